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
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cepheid.errors import InputProblem, listing, shown
from cepheid.events import TIMESTAMP_CLOCK, UNTYPED, Clock, Schema, epoch_unit, unit_doubt
from cepheid.io.decoding import require_distinct_names
from cepheid.io.event_columns import (
    epoch_fractions,
    in_stream_order,
    is_time,
    loses_digits,
    readable_schema,
    require_time_column,
    schema_with_epochs,
    starts_of,
    ticks_of,
    types_column,
    with_epochs,
    with_type_and_time,
)
from cepheid.io.inputs import Columns
from cepheid.io.rejects import Reject
from cepheid.io.rows import ROW, RecentRows, Rows, WholeTable, aligned, in_ticks, is_moment, one_batch
from cepheid.runtime.kernel import Array
from cepheid.types import BINARY, MIXED, Type, from_arrow, list_of, to_arrow

Attributes = Mapping[str, Mapping[str, pa.DataType]]
"""The columns of each event type."""
JSON = pa.binary()
"""The type of a column of JSON text, for values that fit no other type."""

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

    @property
    def extreme_times(self) -> tuple[int, int] | None:
        """The first and the last of integer times, if they are known."""

    def sample(self, names: Sequence[str], size: int) -> pa.RecordBatch | None:
        """The first events, in the columns of `batches`. None if sampling would read or consume all events."""


class Source(SourceDescription, Protocol):
    """Events in time order. Events with equal times are in order of arrival."""

    @property
    def has_nanoseconds(self) -> bool:
        """Whether times are written in more digits than those of microseconds, as some of them show."""

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
    if unit is None and (recognised := source.epoch_unit) is not None:
        return Clock(recognised, is_recognised=True)
    if unit is not None or source.count == 0:
        return Clock(unit or "ms")
    return Clock(doubt=None if (times := source.extreme_times) is None else unit_doubt(*times))


def unit_caution(source: SourceDescription, clock: Clock) -> str | None:
    """What to say if the declared unit of the times is not the one that their values suggest."""
    seems = source.epoch_unit
    if clock.is_timestamp and source.columns.unit is not None and seems is None:
        column = shown(source.columns.time)
        return f"`{column}` holds timestamps, so the unit of times (time_unit, --time-unit) has no effect"
    if clock.is_timestamp or clock.is_recognised or clock.unit is None or seems in (None, clock.unit):
        return None
    column = shown(source.columns.time)
    return (
        f"`{column}` is declared to be in {clock.unit}, but its values are times of the years 2000 to 2100 in {seems}"
    )


def digits_caution(source: Source) -> str | None:
    """What to say if timestamps have nanoseconds."""
    if not source.has_nanoseconds:
        return None
    return (
        f"`{shown(source.columns.time)}` has nanoseconds, and timestamps count microseconds: the digits after them are "
        "cut, and events within a microsecond have equal times; integers in nanoseconds keep them: "
        'time_unit="ns", or --time-unit ns'
    )


def schema_of(source: SourceDescription, named: Iterable[str]) -> Schema:
    """The attributes of each event type. If the types are not known in advance, the types that the query names
    (`named`) are assumed to exist, with all columns."""
    if source.attributes is None:
        attributes = attribute_types(source.schema)
        types = {name: attributes for name in (*named, UNTYPED)}
        return Schema(types, unseen=attributes, is_table=True, is_typed=True)
    # Sources that were read row by row hold values of mixed types as JSON text, in bytes.
    json = MIXED if ROW in source.schema.names else BINARY
    types = {name: attribute_types(pa.schema(list(of.items())), json) for name, of in source.attributes.items()}
    everything = Schema(types).attributes(types) if types else attribute_types(source.schema)
    # An input without events may have no columns but the time.
    is_typed = ROW not in source.schema.names and not source.omits_nulls
    is_table = is_typed and bool(types)
    return Schema(types, open=not source.is_closed, unseen=everything, is_table=is_table, is_typed=is_typed)


def attribute_types(schema: pa.Schema, bytes_are: Type = BINARY) -> dict[str, Type]:
    json = {JSON: bytes_are, pa.list_(JSON): list_of(bytes_are)}
    return {name: json.get(kind) or from_arrow(kind) for name, kind in flat_fields(schema)}


def plain_layout(schema: pa.Schema) -> dict[str, pa.DataType]:
    """The types of columns that are created from events of the oracle. Records are JSON text."""
    layout = {}
    for name, kind in flat_fields(readable_schema(schema)):
        type_ = from_arrow(kind)
        plain = to_arrow(type_) or pa.string()
        layout[name] = pa.timestamp("us", "UTC") if pa.types.is_timestamp(kind) else plain
    return layout


@dataclass(frozen=True, slots=True)
class TableSource:
    """Events in memory. Rows in any order are sorted by time, then start; the sort is stable."""

    table: pa.RecordBatch
    columns: Columns
    types: pa.Array
    times: Array
    order: Array | None
    """The row of each event. None if all rows are events, in time order."""
    attributes: Attributes
    rejected_rows: Sequence[Reject] = ()
    fraction_unit: str | None = None
    """The unit in which the times were written, as numbers with fractions."""
    omits_nulls: bool = False
    is_closed: bool = False
    starts: Array | None = None
    """The start of each event, if events have a duration."""
    has_nanoseconds: bool = False

    @classmethod
    def of(cls, table: pa.Table, columns: Columns, rejected: Sequence[int] = ()) -> TableSource:
        """A table in which every event has all columns. Some rows are no events (`io.table_rejects`)."""
        require_distinct_names(table.schema, "the input")
        require_time_column(table.schema, columns)
        batch = one_batch(table)
        unit = epoch_fractions([batch.column(name) for name in columns.times], columns.unit)
        if unit is not None:
            batch = with_epochs(batch, columns.times, unit)
        whole, chosen = batch, None
        if rejected:
            chosen = np.setdiff1d(np.arange(batch.num_rows), rejected)
            batch = batch.take(pa.array(chosen))
        times, types = ticks_of(batch.column(columns.time), columns.time), types_column(batch, columns)
        starts = starts_of(batch, columns, times)
        all_columns = {field.name: field.type for field in batch.schema}
        names = [*types.dictionary.to_pylist(), *([UNTYPED] if types.null_count else [])]
        attributes = dict.fromkeys(names, all_columns)
        order = in_stream_order(times, starts)
        if order is not None:
            types, times = types.take(pa.array(order)), times[order]
            starts = None if starts is None else starts[order]
        if chosen is not None:
            order = chosen if order is None else chosen[order]
        return cls(whole, columns, types, times, order, attributes, fraction_unit=unit, starts=starts)

    @property
    def schema(self) -> pa.Schema:
        return self.table.schema

    @property
    def count(self) -> int:
        return len(self.times)

    @property
    def epoch_unit(self) -> str | None:
        if is_moment(self.schema.field(self.columns.time).type):
            return self.fraction_unit
        return epoch_unit(int(self.times[0]), int(self.times[-1])) if len(self.times) else None

    @property
    def extreme_times(self) -> tuple[int, int] | None:
        return (int(self.times[0]), int(self.times[-1])) if len(self.times) else None

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
    extreme_times: tuple[int, int] | None = None
    has_nanoseconds: bool = False

    def __post_init__(self) -> None:
        require_distinct_names(self.schema, "the input")
        first = next(self.arriving, None)
        if first is not None:
            arriving = itertools.chain([first], self.arriving)
            names = [name for name in self.columns.times if name in first.schema.names]
            times = first.column(self.columns.time) if self.columns.time in names else pa.nulls(0)
            object.__setattr__(self, "has_nanoseconds", self.has_nanoseconds or loses_digits(times))
            unit = epoch_fractions([first.column(name) for name in names], self.columns.unit)
            if unit is not None:
                object.__setattr__(self, "schema", schema_with_epochs(self.schema, names))
                object.__setattr__(self, "arriving", (with_epochs(batch, names, unit) for batch in arriving))
                object.__setattr__(self, "epoch_unit", unit)
                return
            object.__setattr__(self, "arriving", arriving)
            if len(times) and is_time(times).all():
                ticks = in_ticks(times).cast(pa.int64(), safe=False)
                extremes = pc.min(ticks).as_py(), pc.max(ticks).as_py()
                object.__setattr__(self, "extreme_times", extremes)
                object.__setattr__(self, "epoch_unit", epoch_unit(*extremes))

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
                part = _as_first(
                    batch.slice(start, BATCH), self.schema, [*names, *self.columns.times, self.columns.type]
                )
                ticks = ticks_of(part.column(self.columns.time), self.columns.time)
                starts = starts_of(part, self.columns, ticks)
                yield with_type_and_time(part, names, types_column(part, self.columns), ticks, starts)

    def sample(self, names: Sequence[str], size: int) -> None:
        return None

    def rows(self, names: Sequence[str]) -> RecentRows:
        return RecentRows(names)


def _as_first(batch: pa.RecordBatch, schema: pa.Schema, names: Iterable[str]) -> pa.RecordBatch:
    """The batch with the types that the columns to be read have in the first batch."""
    read = pa.schema([schema.field(name) for name in dict.fromkeys(names) if name in schema.names])
    is_alike = all(batch.schema.field(field.name).type == field.type for field in read)
    return batch if is_alike else aligned(batch, read)


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
