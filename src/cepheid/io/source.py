"""Inputs in Arrow: what is known of their columns before they are read, and their events in order, batch by batch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa

from cepheid.codegen.strings import dictionary_encoded
from cepheid.engine.gather import flat_fields, owner
from cepheid.engine.stepping import TIME, TYPE
from cepheid.errors import InputProblem, did_you_mean, listing, shown
from cepheid.events import TIMESTAMP_CLOCK, UNTYPED, Clock, Schema, Type
from cepheid.io.rows import RecentRows, Rows, WholeTable, one_batch
from cepheid.runtime.kernel import Array

BATCH = 1 << 17
"""Events in a batch: enough that the cost of a batch does not show, few enough to stay in the processor's cache."""


@dataclass(frozen=True, slots=True)
class Columns:
    """Which columns hold the type and the time of an event."""

    type: str = "type"
    time: str = "ts"


class Source(Protocol):
    """A stream of events. `types` is None where they are only known as they come, and so is `count`."""

    @property
    def schema(self) -> pa.Schema: ...

    @property
    def columns(self) -> Columns: ...

    @property
    def types(self) -> tuple[str, ...] | None: ...

    @property
    def count(self) -> int | None: ...

    def batches(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """The events in the order of time, with these columns and with TYPE and TIME."""
        ...

    def rows(self, names: Sequence[str]) -> Rows:
        """Where rows with these columns are fetched from; of a stream, those that were added."""
        ...


def clock_of(source: Source, unit: str | None) -> Clock:
    kind = source.schema.field(source.columns.time).type
    return TIMESTAMP_CLOCK if pa.types.is_timestamp(kind) or pa.types.is_date(kind) else Clock(unit)


def schema_of(source: Source, named: Iterable[str]) -> Schema:
    """Every event has all columns, whatever its type. Of types that are not known beforehand, those that the query
    names (`named`) are taken to exist."""
    attributes = attribute_types(source.schema)
    types = source.types if source.types is not None else (*named, UNTYPED)
    return Schema({name: attributes for name in types})


def attribute_types(schema: pa.Schema) -> dict[str, Type]:
    return {name: _type_of(kind) for name, kind in flat_fields(schema)}


def _type_of(kind: pa.DataType) -> Type:
    if pa.types.is_dictionary(kind):
        return _type_of(kind.value_type)
    if pa.types.is_boolean(kind):
        return Type.BOOLEAN
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return Type.STRING
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return Type.VECTOR
    numbers = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal, pa.types.is_timestamp, pa.types.is_date)
    return Type.NUMBER if any(test(kind) for test in numbers) else Type.UNKNOWN


def plain_layout(schema: pa.Schema) -> dict[str, pa.DataType]:
    """The types in which the oracle's events give the columns back: what is not a plain value is JSON text."""
    layout = {}
    for name, kind in flat_fields(readable_schema(schema)):
        plain = {Type.NUMBER: pa.float64(), Type.BOOLEAN: pa.bool_()}.get(_type_of(kind), pa.string())
        is_time = pa.types.is_timestamp(kind) or pa.types.is_date(kind)
        layout[name] = pa.timestamp("us", "UTC") if is_time else pa.int64() if pa.types.is_integer(kind) else plain
    return layout


# --- the columns of a batch -------------------------------------------------------------------------------------------


def require_time_column(schema: pa.Schema, columns: Columns) -> None:
    if columns.time not in schema.names:
        raise InputProblem(
            f"the events have no column `{shown(columns.time)}`",
            expected=f"the time column; there are {listing(schema.names)}",
            hint=did_you_mean(columns.time, schema.names) or "say which column holds the time",
        )
    kind = schema.field(columns.time).type
    tests = (pa.types.is_integer, pa.types.is_timestamp, pa.types.is_date, pa.types.is_floating, pa.types.is_null)
    if not any(test(kind) for test in tests):
        raise InputProblem(
            f"the time column `{shown(columns.time)}` holds {kind}", expected="whole numbers or timestamps"
        )


def ticks_of(column: pa.Array, name: str) -> Array:
    """The times of a column without nulls: whole numbers as they are, timestamps in microseconds (finer ones cut)."""
    if column.null_count:
        row = int(np.flatnonzero(np.asarray(column.is_null()))[0])
        raise InputProblem(
            f"the event in row {row} has no time: `{shown(name)}` is null",
            expected="a time in every row",
            hint="drop the rows without a time first",
        )
    if pa.types.is_timestamp(column.type) or pa.types.is_date(column.type):
        column = column.cast(pa.timestamp("us"), safe=False)
    try:
        return np.asarray(column.cast(pa.int64()))
    except pa.ArrowInvalid as problem:
        raise InputProblem(
            f"a time in `{shown(name)}` is not a whole number of 64 bits", expected="whole numbers or timestamps"
        ) from problem


def types_column(batch: pa.RecordBatch, columns: Columns) -> pa.Array:
    """The types as a dictionary, which is all that ever reads them; without a type column events have no type."""
    if columns.type not in batch.schema.names:
        return pa.DictionaryArray.from_arrays(np.zeros(batch.num_rows, np.int32), pa.array([UNTYPED]))
    column = batch.column(columns.type)
    if not pa.types.is_dictionary(column.type):
        column = dictionary_encoded(column)
    if not pa.types.is_string(column.type.value_type):
        column = pa.DictionaryArray.from_arrays(column.indices, column.dictionary.cast(pa.string()))
    return column


def readable(column: pa.Array) -> pa.Array:
    """The column in a type that predicates are evaluated on."""
    kind = column.type
    if pa.types.is_timestamp(kind) and kind.unit == "ns":
        return column.cast(pa.timestamp("us", kind.tz), safe=False)
    return column


def readable_schema(schema: pa.Schema) -> pa.Schema:
    return pa.schema([(field.name, readable(pa.array([], field.type)).type) for field in schema])


def for_kernel(batch: pa.RecordBatch, names: Sequence[str]) -> pa.RecordBatch:
    """What a kernel's masks and columns are made from: these columns, the types and the times."""
    arrays = [*(readable(batch.column(name)) for name in names), batch.column(TYPE), batch.column(TIME)]
    return pa.RecordBatch.from_arrays(arrays, names=[*names, TYPE, TIME])


def with_type_and_time(batch: pa.RecordBatch, names: Sequence[str], types: pa.Array, ticks: Array) -> pa.RecordBatch:
    arrays = [batch.column(name) for name in names]
    fields = [*(batch.schema.field(name) for name in names), pa.field(TYPE, types.type), pa.field(TIME, pa.int64())]
    return pa.RecordBatch.from_arrays([*arrays, types, pa.array(ticks)], schema=pa.schema(fields))


# --- sources ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TableSource:
    """Events in memory, in any order: sorted by time, rows of equal time as they come."""

    table: pa.RecordBatch
    columns: Columns
    types_of_rows: pa.Array
    times: Array
    order: Array | None

    @classmethod
    def of(cls, table: pa.Table, columns: Columns) -> TableSource:
        require_time_column(table.schema, columns)
        batch = one_batch(table)
        times, types = ticks_of(batch.column(columns.time), columns.time), types_column(batch, columns)
        if bool(np.all(times[:-1] <= times[1:])):
            return cls(batch, columns, types, times, None)
        order = np.argsort(times, kind="stable")
        return cls(batch, columns, types.take(pa.array(order)), times[order], order)

    @property
    def schema(self) -> pa.Schema:
        return self.table.schema

    @property
    def types(self) -> tuple[str, ...]:
        names = self.types_of_rows.dictionary.to_pylist()
        return tuple(names) if not self.types_of_rows.null_count else (*names, UNTYPED)

    @property
    def count(self) -> int:
        return self.table.num_rows

    def batches(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        chosen = self.table.select(list(names))
        if self.order is not None:
            chosen = chosen.take(pa.array(self.order))
        whole = with_type_and_time(chosen, names, self.types_of_rows, self.times)
        for start in range(0, whole.num_rows, BATCH):
            yield whole.slice(start, BATCH)

    def first(self, names: Sequence[str], count: int) -> pa.RecordBatch:
        """The first events in the order of time, as `batches` gives them."""
        chosen = self.table.select(list(names))
        head = chosen.slice(0, count) if self.order is None else chosen.take(pa.array(self.order[:count]))
        return with_type_and_time(head, names, self.types_of_rows.slice(0, count), self.times[:count])

    def rows(self, names: Sequence[str]) -> Rows:
        return WholeTable(self.table.select(list(names)), self.times, self.order)


@dataclass(frozen=True, slots=True)
class BatchSource:
    """Events as they come, already in the order of time."""

    given: Iterator[pa.RecordBatch]
    schema: pa.Schema
    columns: Columns
    types: None = None
    count: None = None

    def batches(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        for batch in self.given:
            if batch.schema.names != self.schema.names:
                raise InputProblem(
                    f"a batch has the columns {listing(batch.schema.names)}",
                    expected=f"those of the first batch, {listing(self.schema.names)}",
                )
            for start in range(0, batch.num_rows, BATCH):
                part = batch.slice(start, BATCH)
                ticks = ticks_of(part.column(self.columns.time), self.columns.time)
                yield with_type_and_time(part, names, types_column(part, self.columns), ticks)

    def rows(self, names: Sequence[str]) -> RecentRows:
        return RecentRows(names)


def columns_read(names: Iterable[str], schema: pa.Schema) -> list[str]:
    """The columns that hold these attributes."""
    return list(dict.fromkeys(column for name in names for column in owner(name, schema)))


def lacking_nothing(schema: pa.Schema, variables: Iterable[str]) -> Mapping[str, tuple[str, ...]]:
    return {var: tuple(schema.names) for var in variables}
