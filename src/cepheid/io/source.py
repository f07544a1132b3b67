"""Sources of events: the interface between inputs of any format and the evaluators.

A `Source` yields record batches in time order. Every batch has the requested columns, the event type (TYPE, a
dictionary of strings) and the time in ticks (TIME). If the input has a start column, it also has the start in ticks
(START), TIME is the end, and events of one end are in order of their starts. `schema` has the columns of the input.
`attributes` lists the columns of each event type with their Arrow types. The output shows only the columns of the
event's own type, so a variable that may bind several types needs TYPE beside the columns
(`rows(names).take([..., TYPE], positions)`).

Small or irregular text files are read row by row. The resulting source has the same interface:

- Every attribute is a column. Nested objects are flattened: the attribute `a.b` is a column named `a.b`.
- The type of a column holds every value: int64, float64 (integers mixed with floats, if no integer is rounded), string,
  bool, null (no value at all). The time column is int64 or timestamp("us", "UTC").
- An attribute that fits none of these types (strings in one event type and numbers in another, lists, integers of more
  than 64 bits) is JSON text in a column of type `JSON`. Kernels do not read that type, so the oracle runs queries that
  test the attribute. `attributes` has its type for each event type: int64, float64, bool, string, list<double>, or
  list<JSON> for any other list. That type may be narrower than in `schema` (int64 if only another event type has
  floats), and is null if no event of the type has a value.
- ROW, the last column of `schema`, is the row as JSON text, which preserves the notation (5 and 5.0, null and absent,
  nested objects, times as text). If a source has this column, `rows.events_of` creates events from it, the JSON Lines
  and CSV sinks write it unchanged, and RETURN columns are computed from those events. `attributes` does not list it.

If a source without ROW has `omits_nulls`, a null means that the row lacks the attribute, and sinks omit it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cepheid.codegen.strings import dictionary_encoded
from cepheid.errors import InputProblem, did_you_mean, listing, shown
from cepheid.events import HISTORY, MICROSECONDS, TIMESTAMP_CLOCK, UNTYPED, Clock, Schema, epoch_unit
from cepheid.io.decoding import require_distinct_names
from cepheid.io.inputs import Columns
from cepheid.io.rejects import Reject, after_end, no_start
from cepheid.io.rows import (
    ROW,
    START,
    TIME,
    TYPE,
    RecentRows,
    Rows,
    WholeTable,
    in_ticks,
    is_moment,
    one_batch,
    python_values,
)
from cepheid.io.times import LAST_TIME, fraction_unit, out_of_range
from cepheid.runtime.kernel import Array
from cepheid.types import BINARY, MIXED, Family, Type, from_arrow, list_of, to_arrow

R = TypeVar("R", pa.Table, pa.RecordBatch)
Attributes = Mapping[str, Mapping[str, pa.DataType]]
"""The columns of each event type."""
JSON = pa.binary()
"""The type of a column of JSON text, for values that fit no other type."""

EPOCH_TIMESTAMP = pa.timestamp("us", "UTC")
"""The type of epochs with fractions."""

BATCH = 1 << 17
"""Events in a batch: enough to amortize the cost of a batch, few enough for the processor's cache."""


class SourceDescription(Protocol):
    """The part of a source that `prepare` reads."""

    @property
    def columns(self) -> Columns: ...

    @property
    def schema(self) -> pa.Schema: ...

    @property
    def attributes(self) -> Attributes | None:
        """The columns of each event type. None if the types are not known in advance."""

    @property
    def is_closed(self) -> bool:
        """Whether `attributes` lists all event types that can occur."""

    @property
    def count(self) -> int | None:
        """The number of events, if known."""

    @property
    def omits_nulls(self) -> bool:
        """Whether a null means that the row lacks the attribute."""

    @property
    def epoch_unit(self) -> str | None:
        """The unit of an integer time column, if it is recognised from the values (ruling 1). If the values have
        fractions, they are converted to timestamps, and this is their former unit."""

    def sample(self, names: Sequence[str], size: int) -> pa.RecordBatch | None:
        """The first events, in the columns of `batches`. None if sampling would read or consume all events."""


class Source(SourceDescription, Protocol):
    """Events in time order. Events with equal times are in order of arrival."""

    @property
    def rejected(self) -> int:
        """The number of rejected rows."""

    def rejects(self) -> Iterator[Reject]: ...

    def batches(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """The events with these columns, TYPE and TIME."""

    def rows(self, names: Sequence[str]) -> Rows:
        """The store that rows of matches are fetched from, with these columns. A stream adds its rows to it."""


def clock_of(source: SourceDescription, unit: str | None) -> Clock:
    """The unit of the time column: declared (`unit`) or recognised (ruling 1), else unknown. Without events any unit
    will do."""
    kind = source.schema.field(source.columns.time).type
    unit = source.columns.unit or unit
    if is_moment(kind):
        return replace(TIMESTAMP_CLOCK, is_recognised=source.epoch_unit is not None)
    if unit is None and source.epoch_unit is not None:
        return Clock(source.epoch_unit, is_recognised=True)
    return Clock(unit or ("ms" if source.count == 0 else None))


def unit_caution(source: SourceDescription, clock: Clock) -> str | None:
    """What to say if the declared unit of the times is not the one that their values suggest."""
    seems = source.epoch_unit
    if clock.is_timestamp or clock.is_recognised or clock.unit is None or seems in (None, clock.unit):
        return None
    column = shown(source.columns.time)
    return (
        f"`{column}` is declared to be in {clock.unit}, but its values are times of the years 2000 to 2100 in {seems}"
    )


def schema_of(source: SourceDescription, named: Iterable[str]) -> Schema:
    """The attributes of each event type. If the types are not known in advance, the types that the query names
    (`named`) are assumed to exist, with all columns."""
    if source.attributes is None:
        attributes = attribute_types(source.schema)
        return Schema({name: attributes for name in (*named, UNTYPED)})
    # Sources that were read row by row hold values of mixed types as JSON text, in bytes.
    json = MIXED if ROW in source.schema.names else BINARY
    types = {name: attribute_types(pa.schema(list(of.items())), json) for name, of in source.attributes.items()}
    return Schema(types, open=not source.is_closed)


def attribute_types(schema: pa.Schema, bytes_are: Type = BINARY) -> dict[str, Type]:
    json = {JSON: bytes_are, pa.list_(JSON): list_of(bytes_are)}
    return {name: json.get(kind) or from_arrow(kind) for name, kind in flat_fields(schema)}


def plain_layout(schema: pa.Schema) -> dict[str, pa.DataType]:
    """The types of columns that are created from events of the oracle. Nested values are JSON text."""
    layout = {}
    for name, kind in flat_fields(readable_schema(schema)):
        type_ = from_arrow(kind)
        plain = pa.string() if type_.family is Family.LIST else to_arrow(type_) or pa.string()
        layout[name] = pa.timestamp("us", "UTC") if pa.types.is_timestamp(kind) else plain
    return layout


# --- the columns of a batch -------------------------------------------------------------------------------------------


def require_time_column(schema: pa.Schema, columns: Columns) -> None:
    if columns.time not in schema.names:
        raise InputProblem(
            f"the events have no column `{shown(columns.time)}`",
            expected=f"the time column; there are {listing(schema.names)}",
            hint=did_you_mean(columns.time, schema.names) or "name the column that holds the time",
        )
    kind = schema.field(columns.time).type
    if not any(test(kind) for test in _TIMES):
        raise InputProblem(
            f"the time column `{shown(columns.time)}` holds {kind}",
            expected="whole numbers or timestamps",
            hint="convert it first, in pandas with pd.to_datetime(...)" if _is_text(kind) else None,
        )
    if columns.start is not None:
        _require_start_column(schema, columns.start, columns.time)


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
            hint=f"drop the rows without a {noun} first",
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


def _fraction_unit(columns: Sequence[pa.Array]) -> str | None:
    """The unit of epochs with fractions (`1700000000.25`), which become timestamps. None for other columns. If one
    column of times has fractions, all are converted."""
    if not any(pa.types.is_floating(column.type) for column in columns) or any(map(is_moment, _types_of(columns))):
        return None
    if any(column.null_count or not is_time(column).all() for column in columns):
        return None
    everything = np.concatenate([np.asarray(column, np.float64) for column in columns])
    unit = fraction_unit(everything.min(), everything.max()) if len(everything) else None
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


# --- sources ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TableSource:
    """Events in memory. Rows in any order are sorted by time, then start; the sort is stable."""

    table: pa.RecordBatch
    columns: Columns
    types: pa.Array
    times: Array
    order: Array | None
    """The row of each event. None if the rows are in time order."""
    attributes: Attributes
    rejected_rows: Sequence[Reject] = ()
    fraction_unit: str | None = None
    """The unit in which the times were written, as numbers with fractions."""
    omits_nulls: bool = False
    is_closed: bool = False
    starts: Array | None = None
    """The start of each event, if events have a duration."""

    @classmethod
    def of(cls, table: pa.Table, columns: Columns) -> TableSource:
        """A table in which every event has all columns."""
        require_distinct_names(table.schema, "the input")
        require_time_column(table.schema, columns)
        batch = one_batch(table)
        unit = _fraction_unit([batch.column(name) for name in columns.times])
        if unit is not None:
            batch = with_epochs(batch, columns.times, unit)
        times, types = ticks_of(batch.column(columns.time), columns.time), types_column(batch, columns)
        starts = starts_of(batch, columns, times)
        all_columns = {field.name: field.type for field in batch.schema}
        names = [*types.dictionary.to_pylist(), *([UNTYPED] if types.null_count else [])]
        attributes = dict.fromkeys(names, all_columns)
        order = in_stream_order(times, starts)
        if order is not None:
            types, times = types.take(pa.array(order)), times[order]
            starts = None if starts is None else starts[order]
        return cls(batch, columns, types, times, order, attributes, fraction_unit=unit, starts=starts)

    @property
    def schema(self) -> pa.Schema:
        return self.table.schema

    @property
    def count(self) -> int:
        return int(self.table.num_rows)

    @property
    def epoch_unit(self) -> str | None:
        if is_moment(self.schema.field(self.columns.time).type):
            return self.fraction_unit
        return epoch_unit(int(self.times[0]), int(self.times[-1])) if len(self.times) else None

    @property
    def rejected(self) -> int:
        return len(self.rejected_rows)

    def rejects(self) -> Iterator[Reject]:
        return iter(self.rejected_rows)

    def batches(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        whole = self.sample(names, self.count)
        for start in range(0, whole.num_rows, BATCH):
            yield whole.slice(start, BATCH)

    def sample(self, names: Sequence[str], size: int) -> pa.RecordBatch:
        chosen = self.table.select(list(names))
        first = chosen.slice(0, size) if self.order is None else chosen.take(pa.array(self.order[:size]))
        starts = None if self.starts is None else self.starts[:size]
        return with_type_and_time(first, names, self.types.slice(0, size), self.times[:size], starts)

    def rows(self, names: Sequence[str]) -> Rows:
        return WholeTable(self.table.select(list(names)), self.times, self.order, self.types, self.starts)


@dataclass(frozen=True, slots=True)
class BatchSource:
    """An iterator of record batches in time order. It can be read once. The unit of time is recognised from the first
    batch."""

    arriving: Iterator[pa.RecordBatch]
    schema: pa.Schema
    columns: Columns
    attributes: None = None
    count: None = None
    rejected: int = 0
    omits_nulls: bool = False
    is_closed: bool = False
    epoch_unit: str | None = None

    def __post_init__(self) -> None:
        require_distinct_names(self.schema, "the input")
        first = next(self.arriving, None)
        if first is not None:
            arriving = itertools.chain([first], self.arriving)
            names = [name for name in self.columns.times if name in first.schema.names]
            times = first.column(self.columns.time) if self.columns.time in names else pa.nulls(0)
            unit = _fraction_unit([first.column(name) for name in names])
            if unit is not None:
                object.__setattr__(self, "schema", schema_with_epochs(self.schema, names))
                object.__setattr__(self, "arriving", (with_epochs(batch, names, unit) for batch in arriving))
                object.__setattr__(self, "epoch_unit", unit)
                return
            object.__setattr__(self, "arriving", arriving)
            if len(times) and is_time(times).all():
                ticks = in_ticks(times).cast(pa.int64(), safe=False)
                unit = epoch_unit(pc.min(ticks).as_py(), pc.max(ticks).as_py())
                object.__setattr__(self, "epoch_unit", unit)

    def rejects(self) -> Iterator[Reject]:
        return iter(())

    def batches(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        for batch in self.arriving:
            if batch.schema.names != self.schema.names:
                raise InputProblem(
                    f"a batch has the columns {listing(batch.schema.names)}",
                    expected=f"those of the first batch, {listing(self.schema.names)}",
                )
            for start in range(0, batch.num_rows, BATCH):
                part = batch.slice(start, BATCH)
                ticks = ticks_of(part.column(self.columns.time), self.columns.time)
                starts = starts_of(part, self.columns, ticks)
                yield with_type_and_time(part, names, types_column(part, self.columns), ticks, starts)

    def sample(self, names: Sequence[str], size: int) -> None:
        return None

    def rows(self, names: Sequence[str]) -> RecentRows:
        return RecentRows(names)


def columns_read(names: Iterable[str], schema: pa.Schema) -> list[str]:
    """The columns that contain these attributes."""
    return list(dict.fromkeys(column for name in names for column in owner(name, schema)))


def flat_fields(schema: pa.Schema) -> list[tuple[str, pa.DataType]]:
    """The attributes of a schema: fields of structs have dotted names."""
    fields: list[tuple[str, pa.DataType]] = []
    stack = [(field.name, field.type) for field in reversed(list(schema))]
    while stack:
        name, kind = stack.pop()
        if pa.types.is_struct(kind):
            stack.extend((f"{name}.{inner.name}", inner.type) for inner in reversed(list(kind)))
        else:
            fields.append((name, kind))
    return fields


def owner(attribute_name: str, schema: pa.Schema) -> list[str]:
    """The column that contains an attribute, as a list of one; empty if there is none."""
    parts = attribute_name.split(".")
    prefixes = (".".join(parts[:length]) for length in range(len(parts), 0, -1))
    return [prefix for prefix in prefixes if prefix in schema.names][:1]
