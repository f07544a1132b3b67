"""Input rows, fetched by position to show the events of a match."""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cepheid.codegen.typed_columns import from_arrow, to_python
from cepheid.errors import InputProblem, shown
from cepheid.events import START as START
from cepheid.events import Event
from cepheid.io.inputs import Columns
from cepheid.runtime.kernel import Array
from cepheid.types import FLOAT
from cepheid.values import without_zeros

TYPE, TIME = "\0type", "\0time"
"""The columns of every batch besides the attributes: the event type, and the time in ticks. Batches of events with
duration also have START, and TIME is the end. No attribute can have such a name, because queries with a NUL are
refused."""
ROW = "\0raw"
"""The column with the row as JSON text, in sources that were read row by row."""
INPUT_ROW = "\0row"
"""The field of an event in the output with its row number in the input."""

_MARKS = ("\0", "\ue000")
"""The characters in the names of columns that Cepheid adds. Names in queries have neither."""


def is_added(column: str) -> bool:
    """Whether Cepheid added a column: the user does not know it, and other forms of the same input lack it."""
    return any(mark in column for mark in _MARKS)


class Rows(ABC):
    """The store that rows of matches are fetched from."""

    def add(self, batch: pa.RecordBatch) -> None:  # noqa: B027
        """Adds the next rows. Ignored if the store has all rows from the start."""

    def forget(self, before: int) -> None:  # noqa: B027
        """Allows the store to drop the rows before a position."""

    @abstractmethod
    def ticks(self, positions: Array) -> Array:
        """The times of the events at these positions. That of an event with duration is its end."""

    @abstractmethod
    def starts(self, positions: Array) -> Array | None:
        """The starts of the events at these positions. None if events have no duration."""

    @abstractmethod
    def first_of_time(self, positions: Array) -> Array:
        """The position of the first event with the time of each."""

    @abstractmethod
    def take(self, names: Sequence[str], positions: pa.Array) -> pa.RecordBatch:
        """These columns of the rows at these positions. The row of a null position is null."""

    def input_rows(self, positions: pa.Array) -> pa.Array:
        """The row numbers in the input, which need not be in time order."""
        return positions


@dataclass(frozen=True, slots=True)
class WholeTable(Rows):
    """An input in memory. `order` holds the row of each position. It is None if the rows are in time order."""

    table: pa.RecordBatch
    times: Array
    order: Array | None = None
    types: pa.Array | None = None
    start_times: Array | None = None

    def ticks(self, positions: Array) -> Array:
        ticks: Array = self.times[positions]
        return ticks

    def starts(self, positions: Array) -> Array | None:
        return None if self.start_times is None else self.start_times[positions]

    def first_of_time(self, positions: Array) -> Array:
        first: Array = np.searchsorted(self.times, self.times[positions])
        return first

    def input_rows(self, positions: pa.Array) -> pa.Array:
        return positions if self.order is None else pa.array(self.order).take(positions)

    def take(self, names: Sequence[str], positions: pa.Array) -> pa.RecordBatch:
        rows = self.table.select([name for name in names if name != TYPE]).take(self.input_rows(positions))
        if TYPE not in names or self.types is None:
            return rows
        return rows.append_column(TYPE, self.types.take(positions)).select(list(names))


_JOINED_ROWS, _JOINED_BYTES = 1 << 16, 1 << 26
"""Larger batches of recent rows are not joined: they are few."""


@dataclass(slots=True)
class RecentRows(Rows):
    """The most recent rows of a stream: those that a later match may contain."""

    names: Sequence[str]
    batches: deque[pa.RecordBatch] = field(default_factory=deque)
    first: int = 0
    """The position of the first retained row."""

    def add(self, batch: pa.RecordBatch) -> None:
        starts = [START] if START in batch.schema.names else []
        self.batches.append(batch.select([*self.names, TYPE, TIME, *starts]))
        self._join_small()

    def _join_small(self) -> None:
        """Joins small batches, so that few are retained however the input is divided: finding rows takes a call for
        each batch and column. A row is copied at most once for each doubling of its batch."""
        while len(self.batches) > 1:
            last, previous = self.batches[-1], self.batches[-2]
            if previous.num_rows > 2 * last.num_rows or last.num_rows + previous.num_rows > _JOINED_ROWS:
                return
            if last.nbytes + previous.nbytes > _JOINED_BYTES:
                return
            self.batches.pop()
            self.batches[-1] = one_batch(pa.Table.from_batches([previous, last]))

    def forget(self, before: int) -> None:
        """Events of one time are forgotten together, because equal ones are counted."""
        while self.batches and self.first + self.batches[0].num_rows <= before:
            if len(self.batches) > 1 and _time_at(self.batches[0], -1) == _time_at(self.batches[1], 0):
                return
            self.first += self.batches.popleft().num_rows
        if self.batches and self.first < before:
            times = np.asarray(self.batches[0].column(TIME))
            forgotten = int(np.searchsorted(times, times[before - self.first]))
            self.batches[0] = self.batches[0].slice(forgotten)
            self.first += forgotten

    def first_of_time(self, positions: Array) -> Array:
        times = pa.chunked_array([batch.column(TIME) for batch in self.batches]).to_numpy()
        first: Array = self.first + np.searchsorted(times, times[positions - self.first])
        return first

    def ticks(self, positions: Array) -> Array:
        return self.numbers(TIME, positions)

    def starts(self, positions: Array) -> Array | None:
        has_starts = bool(self.batches) and START in self.batches[0].schema.names
        return self.numbers(START, positions) if has_starts else None

    def numbers(self, name: str, positions: Array) -> Array:
        """A column of integers without nulls at these positions."""
        batches, at = self._holding(np.asarray(positions) - self.first)
        columns = [np.asarray(batch.column(name)) for batch in batches]
        last = sum(map(len, columns[:-1]))
        is_last = at >= last
        numbers: Array = columns[-1][np.maximum(at - last, 0)]
        if len(columns) > 1:
            numbers[~is_last] = np.concatenate(columns[:-1])[at[~is_last]]
        return numbers

    def take(self, names: Sequence[str], positions: pa.Array) -> pa.RecordBatch:
        if not positions.null_count:
            return self._rows(names, np.asarray(positions) - self.first)
        is_there = np.asarray(positions.is_valid())
        places = np.zeros(len(is_there), np.int64)
        places[is_there] = np.arange(int(is_there.sum()))
        rows = self._rows(names, np.asarray(positions.drop_null()) - self.first)
        return rows.take(pa.array(places, mask=~is_there))

    def _rows(self, names: Sequence[str], at: Array) -> pa.RecordBatch:
        """The rows, counted from the first retained one. Arrow would join all batches first."""
        batches, at = self._holding(at)
        recent = [batch.select(list(names)) for batch in batches]
        if len(recent) == 1:
            return recent[0].take(pa.array(at))
        # Most matches have their events in the last batch. The others come first.
        starts = np.cumsum([0, *(batch.num_rows for batch in recent)])
        earlier = int(np.flatnonzero(at < starts[-2])[-1]) + 1
        numbers = np.searchsorted(starts, at[:earlier], "right") - 1
        order = np.argsort(numbers, kind="stable")
        grouped = np.split(at[:earlier][order], np.cumsum(np.bincount(numbers, minlength=len(recent)))[:-1])
        found = [b.take(pa.array(rows - start)) for b, rows, start in zip(recent, grouped, starts, strict=False)]
        first = one_batch(pa.Table.from_batches(found)).take(pa.array(_inverse(order)))
        if earlier == len(at):
            return first
        return one_batch(pa.Table.from_batches([first, recent[-1].take(pa.array(at[earlier:] - starts[-2]))]))

    def _holding(self, at: Array) -> tuple[list[pa.RecordBatch], Array]:
        """The batches from the first of these rows to the last, and the rows counted from the first of the batches."""
        batches = list(self.batches)
        lowest, highest = (int(at.min()), int(at.max())) if len(at) else (0, 0)
        skipped = 0
        while len(batches) > 1 and lowest >= skipped + batches[0].num_rows:
            skipped += batches.pop(0).num_rows
        rows = skipped + sum(batch.num_rows for batch in batches)
        while len(batches) > 1 and highest < rows - batches[-1].num_rows:
            rows -= batches.pop().num_rows
        return batches, at - skipped if skipped else at


def _inverse(order: Array) -> Array:
    inverse: Array = np.empty(len(order), np.int64)
    inverse[order] = np.arange(len(order))
    return inverse


def _time_at(batch: pa.RecordBatch, row: int) -> int | None:
    return batch.column(TIME)[row].as_py() if batch.num_rows else None


def one_batch(table: pa.Table) -> pa.RecordBatch:
    """The table as one record batch."""
    arrays = [c.chunk(0) if c.num_chunks == 1 else c.combine_chunks() for c in table.columns]
    return pa.RecordBatch.from_arrays(arrays, schema=table.schema)


def aligned(batch: pa.RecordBatch, schema: pa.Schema, others: Mapping[str, pa.Array] | None = None) -> pa.RecordBatch:
    """The batch with the columns of a schema, null where it lacks one. `others` replace columns of the batch."""
    present = {**dict(zip(batch.schema.names, batch.columns, strict=True)), **(others or {})}
    arrays = []
    for column in schema:
        array = present[column.name] if column.name in present else pa.nulls(batch.num_rows, column.type)
        arrays.append(array if array.type == column.type else _cast(array, column))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _cast(array: pa.Array, column: pa.Field) -> pa.Array:
    try:
        return array.cast(column.type)
    except pa.ArrowException as problem:
        raise InputProblem(
            f"a value of the column `{shown(column.name)}` does not fit: {shown(str(problem), 200)}",
            expected=f"values that {column.type} holds exactly, which is the type of the column in all inputs",
            hint="write the column with one type in every input",
        ) from None


# --- events for the oracle --------------------------------------------------------------------------------------------


def events_of(
    rows: pa.RecordBatch,
    types: Sequence[str],
    ticks: Sequence[int],
    positions: Sequence[int],
    input: Columns,
    attributes: Mapping[str, Iterable[str]] | None = None,
    starts: Sequence[int] | None = None,
) -> Iterator[Event]:
    """Rows as events of the oracle. The value of a timestamp is in ticks, as in kernels. An event has the attributes
    that `attributes` lists for its type. They are null if the row lacks them. Without `starts`, events are points."""
    everything = [name for own in (attributes or {}).values() for name in own]
    if ROW in rows.schema.names:
        values_of_rows = attributes_of_rows = [json.loads(text) for text in rows.column(ROW).to_pylist()]
    elif not rows.schema.names:  # a batch without columns has no number of rows
        values_of_rows = attributes_of_rows = [{} for _ in positions]
    else:
        values_of_rows = plain(row_dicts(rows))
        columns = dict(item for name in rows.schema.names for item in _values(name, rows.column(name)))
        attributes_of_rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    for row, values, kind, start, at, position in zip(
        values_of_rows, attributes_of_rows, types, starts or ticks, ticks, positions, strict=True
    ):
        blank = dict.fromkeys(attributes.get(kind, everything)) if attributes is not None else {}
        flat = dict(_flat(values)) if dict in map(type, values.values()) else values
        times = {input.time: at} if input.start is None else {input.start: start, input.time: at}
        yield Event(kind, start, at, position, {**blank, **flat, **times}, row, (start, at))


def _values(name: str, array: pa.Array) -> Iterator[tuple[str, list[Any]]]:
    """The values of a column as the oracle reads them, NaN as it is; the fields of a struct have dotted names."""
    if pa.types.is_struct(array.type):
        for field in array.type:
            yield from _values(f"{name}.{field.name}", pc.struct_field(array, field.name))
        return
    column = from_arrow(array)
    values = to_python(column, len(array))
    if column.type == FLOAT:
        values = [v if v is not None else nan for v, nan in zip(values, array.to_pylist(), strict=True)]
    yield name, [_item(v) for v in values] if pa.types.is_nested(array.type) else values


def _item(value: Any) -> Any:
    """An item of a list as the oracle reads it."""
    match value:
        case list() | tuple():
            return [_item(item) for item in value]
        case float() | Decimal() | bytes() | date() | time() | timedelta():
            return value
        case _:
            return plain(value)


def is_moment(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind) or pa.types.is_date(kind))


def in_ticks(column: pa.Array) -> pa.Array:
    """Timestamps and dates as microseconds (nanoseconds are rounded down). Other columns are unchanged."""
    if not is_moment(column.type):
        return column
    if pa.types.is_timestamp(column.type) and column.type.unit == "ns":
        whole = column.cast(pa.int64())
        toward_zero = pc.divide(whole, 1000)
        is_above = pc.less(whole, pc.multiply(toward_zero, 1000))
        return pc.subtract(toward_zero, is_above.cast(pa.int64()))
    return column.cast(pa.timestamp("us"), safe=False).cast(pa.int64())


def row_dicts(batch: pa.RecordBatch | pa.Table) -> list[dict[str, Any]]:
    """The rows of a batch as dictionaries of Python values."""
    columns = [python_values(column) for column in batch.columns]
    return [dict(zip(batch.schema.names, values, strict=True)) for values in zip(*columns, strict=True)]


def python_values(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """The values of a column. Timestamps, dates and durations beyond Python's are counts of microseconds."""
    try:
        values: list[Any] = column.to_pylist()
    except (OverflowError, ValueError):
        values = [_python_value(value) for value in column]
    return values


def _python_value(value: pa.Scalar) -> Any:
    try:
        return value.as_py()
    except (OverflowError, ValueError):
        match value:
            case pa.StructScalar():
                return {name: _python_value(value[name]) for name in value}
            case pa.ListScalar():
                return [_python_value(item) for item in value.values]
            case _:
                unit = _DATES.get(value.type) or value.type.unit
                return value.value // 1000 if unit == "ns" else value.value * _MICROSECONDS[unit]


_DATES = {pa.date32(): "d", pa.date64(): "ms"}
_MICROSECONDS = {"us": 1, "ms": 10**3, "s": 10**6, "d": 86_400 * 10**6}


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def plain(value: Any) -> Any:
    """An Arrow value as a JSON value. NaN becomes null, because pandas uses NaN for missing values."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            if math.isinf(value):  # JSON has no number for it
                return "Infinity" if value > 0 else "-Infinity"
            return None if math.isnan(value) else value
        case datetime():
            naive = value.replace(tzinfo=None) - (value.utcoffset() or timedelta())
            return naive.isoformat() + "Z"
        case date() | time():
            return value.isoformat()
        case timedelta():
            return value / timedelta(seconds=1)
        case Decimal():
            return json_number(value)
        case bytes():
            return value.decode(errors="backslashreplace")
        case Mapping():
            return {str(name): plain(item) for name, item in value.items()}
        case list() | tuple():
            return [plain(item) for item in value]
        case _:
            return str(value)


def json_number(value: Decimal) -> int | float | Decimal:
    """A decimal as an integer or a float if it is equal to one; `dumps` writes others digit by digit."""
    if value == value.to_integral_value():
        return int(value)
    return float(value) if Decimal(repr(float(value))) == value else value


def dumps(value: Any) -> str:
    """JSON of a plain value, in which decimals have all their digits."""
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    except TypeError:  # there is a decimal inside
        return _exact(value)


def _exact(value: Any) -> str:
    match value:
        case Decimal():
            return f"{without_zeros(value):f}"
        case dict():
            return f"{{{', '.join(f'{dumps(str(name))}: {_exact(item)}' for name, item in value.items())}}}"
        case list() | tuple():
            return f"[{', '.join(map(_exact, value))}]"
        case _:
            return json.dumps(value, ensure_ascii=False, allow_nan=False)


def as_json(row: Mapping[str, Any]) -> str:
    return dumps(plain(row))
