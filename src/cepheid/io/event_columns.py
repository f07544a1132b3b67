"""The columns of a batch that make its rows events: the time, the start and the type, checked and in the form of
`io.source.Source`, and the values of all columns in types that predicates support."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cepheid.codegen.strings import dictionary_encoded
from cepheid.errors import InputProblem, did_you_mean, listing, shown
from cepheid.events import HISTORY, MICROSECONDS, UNTYPED
from cepheid.io.inputs import Columns
from cepheid.io.rejects import after_end, no_start
from cepheid.io.rows import START, TIME, TYPE, in_ticks, is_moment, python_values
from cepheid.io.times import LAST_TIME, OTHER_ZONE, fraction_unit, has_nanoseconds, out_of_range
from cepheid.runtime.kernel import Array

R = TypeVar("R", pa.Table, pa.RecordBatch)
EPOCH_TIMESTAMP = pa.timestamp("us", "UTC")
"""The type of epochs with fractions."""


def require_time_column(schema: pa.Schema, columns: Columns) -> None:
    if columns.time not in schema.names:
        raise InputProblem(
            f"the events have no column `{shown(columns.time)}`",
            expected=f"the time column; there are {listing(schema.names) if schema.names else 'no columns'}",
            hint=did_you_mean(columns.time, schema.names) or _naming_times(schema),
        )
    kind = schema.field(columns.time).type
    if not any(test(kind) for test in _TIMES):
        raise InputProblem(
            f"the time column `{shown(columns.time)}` holds {kind}",
            expected="timestamps, whole numbers, or strings of ISO 8601 (2024-03-01 08:00:00)",
            hint=_converting(columns.time, kind),
        )
    if columns.start is not None:
        _require_start_column(schema, columns.start, columns.time)


def _converting(name: str, kind: pa.DataType) -> str | None:
    if _is_text(kind):
        return (
            "name their format: time_format='%d.%m.%Y %H:%M'; or convert them first, by "
            "pd.to_datetime(...) in pandas or to_timestamp(...) in Spark"
        )
    return f"convert them first: events[{name!r}].dt.to_timestamp()" if "period" in str(kind).lower() else None


def _naming_times(schema: pa.Schema) -> str:
    """The hint for a time column that is not named. Columns of timestamps are the first choice."""
    moments = [field.name for field in schema if is_moment(field.type)]
    if not moments:
        return "name the column that holds the time: time_column='...'"
    return f"name the column that holds the time: {' or '.join(f'time_column={name!r}' for name in moments[:3])}"


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


_TIMES = (pa.types.is_integer, is_moment, pa.types.is_floating, pa.types.is_null)


def _require_start_column(schema: pa.Schema, start: str, time: str) -> None:
    if start not in schema.names:
        raise InputProblem(
            f"the events have no column `{shown(start)}`",
            expected=f"the start column; there are {listing(schema.names)}",
            hint=did_you_mean(start, schema.names) or "name the column that holds the start of each event",
        )
    kind, of_time = schema.field(start).type, schema.field(time).type
    is_known = not (pa.types.is_null(kind) or pa.types.is_null(of_time))
    if not any(test(kind) for test in _TIMES) or (is_known and is_moment(kind) != is_moment(of_time)):
        raise other_kind_of_start(start, str(kind), time, str(of_time))


def other_kind_of_start(start: str, kind: str, time: str, kind_of_time: str) -> InputProblem:
    return InputProblem(
        f"the start column `{shown(start)}` holds {kind}, but the time column `{shown(time)}` holds {kind_of_time}",
        expected="whole numbers in both columns, in the same unit, or timestamps in both",
    )


_MICROSECONDS = {"s": 1_000_000, "ms": 1_000, "us": 1}


def is_naive(kind: pa.DataType) -> bool:
    """Whether values are dates and times without a zone."""
    return bool(pa.types.is_date(kind) or (pa.types.is_timestamp(kind) and kind.tz is None))


def local_times(schema: pa.Schema, columns: Columns) -> tuple[str, ...]:
    """The columns of times without a zone, if one is declared."""
    names = columns.times if columns.text.zone is not None else ()
    return tuple(name for name in names if name in schema.names and is_naive(schema.field(name).type))


def schema_with_zone(schema: pa.Schema, names: Iterable[str], zone: str) -> pa.Schema:
    """The schema with local times of some columns as moments."""
    moment = pa.timestamp("us", zone)
    return pa.schema([f.with_type(moment) if f.name in names else f for f in schema], schema.metadata)


def with_zone(batch: pa.RecordBatch, names: Iterable[str], zone: str) -> pa.RecordBatch:
    """The batch with local times of some columns as moments. A time that clocks skipped is null."""
    for name in names:
        at = batch.schema.get_field_index(name)
        if at >= 0:
            moments, skipped = moments_of(pa.chunked_array([batch.column(at)]), zone)
            whole = pc.if_else(skipped, pa.scalar(None, moments.type), moments).cast(pa.timestamp("us", zone))
            batch = batch.set_column(at, name, whole.combine_chunks())
    return batch


def moments_of(column: pa.ChunkedArray, zone: str) -> tuple[pa.ChunkedArray, pa.ChunkedArray]:
    """The times of a zone as moments, and which of them clocks skip. Of two moments with one time, when clocks are set
    back, it is the earlier one."""
    local = column.cast(pa.timestamp("us")) if pa.types.is_date(column.type) else column
    moments = pc.assume_timezone(local, zone, ambiguous="earliest", nonexistent="earliest")
    return moments, pc.not_equal(pc.local_timestamp(moments), local).fill_null(False)


def localized(column: pa.ChunkedArray, name: str, zone: str) -> pa.ChunkedArray:
    """The times of a zone as moments."""
    moments, skipped = moments_of(column, zone)
    if pc.any(skipped).as_py():
        row = pc.index(skipped, True).as_py()
        raise InputProblem(
            f"the event in row {row} has a time that does not exist in {zone}: `{shown(name)}` is {column[row]}, which "
            "clocks skipped",
            expected="times that clocks showed, or timestamps with a zone",
            hint=OTHER_ZONE,
        )
    return moments


def is_time(column: pa.Array) -> Array:
    """Whether each value is a time: neither null nor NaN, and in the range of ticks."""
    kind = column.type
    factor = 1
    if kind == pa.timestamp("ns", getattr(kind, "tz", None)):
        return np.asarray(column.is_valid())
    if pa.types.is_timestamp(kind):
        column, factor = column.cast(pa.int64()), _MICROSECONDS[kind.unit]
    elif pa.types.is_date(kind):
        column, factor = column.cast(pa.date32()).cast(pa.int32()).cast(pa.int64()), 86_400_000_000
    elif pa.types.is_floating(kind):
        return np.asarray(pc.less_equal(pc.abs(column), float(LAST_TIME)).fill_null(False))
    elif pa.types.is_uint64(kind):
        return np.asarray(pc.less_equal(column, pa.scalar(LAST_TIME, kind)).fill_null(False))
    latest = LAST_TIME // factor
    column = column.cast(pa.int64())
    if len(column) and not column.null_count:
        extremes = pc.min_max(column)
        if -latest <= extremes["min"].as_py() and extremes["max"].as_py() <= latest:
            return np.ones(len(column), bool)
    fits = pc.and_(pc.greater_equal(column, -latest), pc.less_equal(column, latest))
    return np.asarray(fits.fill_null(False))


def ticks_of(column: pa.Array, name: str, noun: str = "time") -> Array:
    """The times of a column without nulls, in ticks. Nanoseconds are truncated to microseconds."""
    if column.null_count:
        row = int(np.flatnonzero(np.asarray(column.is_null()))[0])
        raise InputProblem(
            f"the event in row {row} has no {noun}: `{shown(name)}` is null",
            expected=f"a {noun} in every row",
            hint=f"drop the rows without a {noun} first, in pandas with events.dropna(subset=[{name!r}]), or use "
            "match(..., rejects=True), which also returns them",
        )
    try:
        ticks = np.asarray(in_ticks(column).cast(pa.int64()))
        fits = is_time(column)
    except pa.ArrowInvalid as problem:
        raise InputProblem(
            f"a {noun} in `{shown(name)}` is not a whole number of 64 bits", expected="whole numbers or timestamps"
        ) from problem
    if not fits.all():
        row = int(np.flatnonzero(~fits)[0])
        value = python_values(column.slice(row, 1))[0]
        raise InputProblem(
            f"the event in row {row} has a {noun} that does not fit: `{shown(name)}` is {value}",
            expected="times between -2^61 and 2^61",
            hint="drop such rows first",
        )
    return ticks


_SAMPLED = 1_000


def loses_digits(column: pa.Array | pa.ChunkedArray) -> bool:
    """Whether a column holds times finer than microseconds, as some of its values show, taken from all parts of it."""
    kind = column.type
    if pa.types.is_timestamp(kind) and kind.unit == "ns":
        seen = column.take(pa.array(np.arange(0, len(column), len(column) // _SAMPLED + 1)))
        return any(value % 1000 for value in seen.cast(pa.int64()).to_pylist() if value is not None)
    return _is_text(kind) and has_nanoseconds(column.slice(0, _SAMPLED).to_pylist())


def starts_of(rows: pa.RecordBatch, columns: Columns, ticks: Array) -> Array | None:
    """The starts of events in ticks, whose ends are `ticks`. None if the input has no start column."""
    if columns.start is None:
        return None
    starts = ticks_of(rows.column(columns.start), columns.start, "start")
    late = np.flatnonzero(starts > ticks)
    if len(late):
        raise InputProblem(
            f"the event in row {late[0]} cannot be: {after_end(columns.start, columns.time)}",
            expected="starts before or at the end",
            hint="drop such rows first (`cepheid run` writes them to its reject output)",
        )
    return starts


def starts_in_time(rows: pa.RecordBatch, columns: Columns) -> Array:
    """Whether each row has a start that is a time and not after its end; all do if there is no start column."""
    if columns.start is None:
        return np.ones(rows.num_rows, bool)
    start, end = rows.column(columns.start), rows.column(columns.time)
    fits = is_time(start)
    whole = [np.asarray(in_ticks(column).cast(pa.int64(), safe=False).fill_null(0)) for column in (start, end)]
    fits &= ~is_time(end) | (whole[0] <= whole[1])
    return fits


def why_no_start(rows: pa.RecordBatch, row: int, columns: Columns) -> str:
    """The reason to reject a row of these, whose start is not in time."""
    assert columns.start is not None
    start = rows.column(columns.start).slice(row, 1)
    if start.is_null(nan_is_null=True)[0].as_py():
        return no_start(columns.start)
    if not is_time(start).all():
        return out_of_range(python_values(start)[0], "start")
    return after_end(columns.start, columns.time)


def in_stream_order(ticks: Array, starts: Array | None, arrivals: Array | None = None) -> Array | None:
    """The rows by end, then start, then arrival (None: rows are in the order of arrival); None where they already are.
    A shuffle gives long sorted runs, which a stable sort merges. Ties are sorted only where some are out of order."""
    ties = [column for column in (starts, arrivals) if column is not None]
    order = None
    if np.any(ticks[:-1] > ticks[1:]):
        order = np.argsort(ticks, kind="stable")
        ticks, ties = ticks[order], [column[order] for column in ties]
    tied = ticks[:-1] == ticks[1:]
    for column in ties:
        if np.any(tied & (column[:-1] > column[1:])):
            settled = np.lexsort((*reversed(ties), ticks))
            return settled if order is None else order[settled]
        tied &= column[:-1] == column[1:]
    return order


def epoch_fractions(columns: Sequence[pa.Array], declared: str | None) -> str | None:
    """The unit of times with fractions (`1700000000.25`), which become timestamps: the declared one, or that of epochs.
    None for other columns. If one column of times has fractions, all are converted."""
    if not any(pa.types.is_floating(column.type) for column in columns) or any(map(is_moment, _types_of(columns))):
        return None
    if any(column.null_count or not is_time(column).all() for column in columns):
        return None
    everything = np.concatenate([np.asarray(column, np.float64) for column in columns])
    unit = fraction_unit(everything.min(), everything.max(), declared) if len(everything) else None
    if unit is None or bool((np.floor(everything) == everything).all()):
        return None
    return unit


def epoch_timestamps(column: pa.Array, unit: str) -> pa.Array:
    """Numbers since 1970 as timestamps. A number that is no time is null."""
    values = np.asarray(column.cast(pa.float64(), safe=False)) * MICROSECONDS[unit]
    fits = np.abs(values) <= LAST_TIME
    ticks = pa.array(np.rint(np.where(fits, values, 0)).astype(np.int64), mask=~fits)
    return ticks.cast(EPOCH_TIMESTAMP)


def with_epochs(batch: pa.RecordBatch, names: Iterable[str], unit: str) -> pa.RecordBatch:
    """The batch with numbers in some columns as timestamps."""
    for name in names:
        at = batch.schema.get_field_index(name)
        if at >= 0 and not is_moment(batch.schema.field(at).type):
            batch = batch.set_column(at, name, epoch_timestamps(batch.column(at), unit))
    return batch


def schema_with_epochs(schema: pa.Schema, names: Iterable[str]) -> pa.Schema:
    return pa.schema([f.with_type(EPOCH_TIMESTAMP) if f.name in names else f for f in schema], schema.metadata)


def _types_of(columns: Sequence[pa.Array]) -> list[pa.DataType]:
    return [column.type for column in columns]


def types_column(batch: pa.RecordBatch, columns: Columns) -> pa.Array:
    """The event types, dictionary-encoded. Without a type column, events have the one type of the input, or none."""
    if columns.event_type is not None:
        return one_type(columns.event_type, batch.num_rows)
    if columns.type not in batch.schema.names:
        return one_type(UNTYPED, batch.num_rows)
    column = batch.column(columns.type)
    if not pa.types.is_dictionary(column.type):
        column = dictionary_encoded(column)
    if not pa.types.is_string(column.type.value_type):
        column = pa.DictionaryArray.from_arrays(column.indices, column.dictionary.cast(pa.string()))
    return column


def one_type(name: str, count: int) -> pa.Array:
    """A column of `count` equal event types."""
    return pa.DictionaryArray.from_arrays(np.zeros(count, np.int32), pa.array([name]))


def readable(column: pa.Array) -> pa.Array:
    """The column in a type that predicates support: nanoseconds are truncated to microseconds."""
    kind = readable_type(column.type)
    return column if kind == column.type else in_ticks(column).cast(kind)


def readable_rows(rows: R) -> R:
    return type(rows).from_arrays([readable(column) for column in rows.columns], names=rows.schema.names)


def readable_schema(schema: pa.Schema) -> pa.Schema:
    return pa.schema([(field.name, readable_type(field.type)) for field in schema])


def readable_type(kind: pa.DataType) -> pa.DataType:
    is_nanoseconds = pa.types.is_timestamp(kind) and kind.unit == "ns"
    return pa.timestamp("us", kind.tz) if is_nanoseconds else kind


def for_kernel(batch: pa.RecordBatch, names: Sequence[str]) -> pa.RecordBatch:
    """The input of a kernel's masks and columns: these columns, the types, the times, the starts if events have a
    duration, and the histories of derived ones."""
    own = [name for name in (TYPE, TIME, START, HISTORY) if name in batch.schema.names and name not in names]
    arrays = [*(readable(batch.column(name)) for name in names), *map(batch.column, own)]
    return pa.RecordBatch.from_arrays(arrays, names=[*names, *own])


def with_type_and_time(
    batch: pa.RecordBatch, names: Sequence[str], types: pa.Array, ticks: Array, starts: Array | None = None
) -> pa.RecordBatch:
    """These columns, the types and the times, and the starts of events with duration."""
    arrays = [*(batch.column(name) for name in names), types, pa.array(ticks)]
    fields = [*(batch.schema.field(name) for name in names), pa.field(TYPE, types.type), pa.field(TIME, pa.int64())]
    if starts is not None:
        arrays.append(pa.array(starts))
        fields.append(pa.field(START, pa.int64()))
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))
