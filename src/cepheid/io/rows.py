"""The events of an input as Arrow rows that can be fetched by position, to show the events of a match."""

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

import pyarrow as pa
import pyarrow.compute as pc

from cepheid.events import Event
from cepheid.runtime.kernel import Array

TYPE, TIME = "\0type", "\0time"
"""The columns that every batch brings besides its attributes: the event's type, and its time in ticks. No attribute is
called so, since text with a NUL is no query."""
ROW = "\0raw"
"""The column with the row as JSON text, of sources that were read row by row."""


class Rows(ABC):
    """The store that rows of matches are fetched from."""

    def add(self, batch: pa.RecordBatch) -> None:  # noqa: B027
        """Adds the next rows, unless the store already has all rows."""

    def forget(self, before: int) -> None:  # noqa: B027
        """Allows the store to drop the rows before a position."""

    @abstractmethod
    def ticks(self, positions: Array) -> Array: ...

    @abstractmethod
    def take(self, names: Sequence[str], positions: pa.Array) -> pa.RecordBatch:
        """These columns of the rows at these positions, null where the position is."""

    def input_rows(self, positions: pa.Array) -> pa.Array:
        """The row numbers of the input, which may not have been in order."""
        return positions


@dataclass(frozen=True, slots=True)
class WholeTable(Rows):
    """An input in memory. `order` holds the row of each position, or is None where the rows were in order."""

    table: pa.RecordBatch
    times: Array
    order: Array | None = None
    types: pa.Array | None = None

    def ticks(self, positions: Array) -> Array:
        found: Array = self.times[positions]
        return found

    def input_rows(self, positions: pa.Array) -> pa.Array:
        return positions if self.order is None else pa.array(self.order).take(positions)

    def take(self, names: Sequence[str], positions: pa.Array) -> pa.RecordBatch:
        rows = self.table.select([name for name in names if name != TYPE]).take(self.input_rows(positions))
        if TYPE not in names or self.types is None:
            return rows
        return rows.append_column(TYPE, self.types.take(positions)).select(list(names))


@dataclass(slots=True)
class RecentRows(Rows):
    """The last part of a stream: as much of it as a later match may still contain."""

    names: Sequence[str]
    batches: deque[pa.RecordBatch] = field(default_factory=deque)
    first: int = 0
    """The position of the first row that is still there."""

    def add(self, batch: pa.RecordBatch) -> None:
        self.batches.append(batch.select([*self.names, TYPE, TIME]))

    def forget(self, before: int) -> None:
        while self.batches and self.first + self.batches[0].num_rows <= before:
            self.first += self.batches.popleft().num_rows

    def ticks(self, positions: Array) -> Array:
        found: Array = self.take([TIME], pa.array(positions)).column(TIME).to_numpy()
        return found

    def take(self, names: Sequence[str], positions: pa.Array) -> pa.RecordBatch:
        recent = pa.Table.from_batches(self.batches).select(list(names))
        return one_batch(recent.take(pc.subtract(positions, self.first)))


def one_batch(table: pa.Table) -> pa.RecordBatch:
    """The rows of a table in one piece."""
    arrays = [c.chunk(0) if c.num_chunks == 1 else c.combine_chunks() for c in table.columns]
    return pa.RecordBatch.from_arrays(arrays, schema=table.schema)


# --- events for the oracle --------------------------------------------------------------------------------------------


def events_of(
    rows: pa.RecordBatch,
    types: Sequence[str],
    ticks: Sequence[int],
    positions: Sequence[int],
    time_column: str,
    attributes: Mapping[str, Iterable[str]] | None = None,
) -> Iterator[Event]:
    """Rows as the oracle's events. A timestamp is an attribute in ticks, as in kernels. An event has the
    attributes that `attributes` lists for its type, null where the row has none."""
    if ROW in rows.schema.names:
        values_of_rows = attributes_of_rows = [json.loads(text) for text in rows.column(ROW).to_pylist()]
    elif not rows.schema.names:  # a batch without columns has lost the number of its rows
        values_of_rows = attributes_of_rows = [{} for _ in positions]
    else:
        values_of_rows = plain(rows.to_pylist())
        ticked = pa.RecordBatch.from_arrays([in_ticks(column) for column in rows.columns], names=rows.schema.names)
        attributes_of_rows = plain(ticked.to_pylist())
    for row, values, kind, at, position in zip(
        values_of_rows, attributes_of_rows, types, ticks, positions, strict=True
    ):
        blank = dict.fromkeys(attributes.get(kind, ())) if attributes is not None else {}
        flat = dict(_flat(values)) if dict in map(type, values.values()) else values
        yield Event(kind, at, at, position, {**blank, **flat, time_column: at}, row, (at, at))


def is_moment(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind) or pa.types.is_date(kind))


def in_ticks(column: pa.Array) -> pa.Array:
    """Timestamps and dates as microseconds, finer ones truncated; any other column unchanged."""
    return column.cast(pa.timestamp("us"), safe=False).cast(pa.int64()) if is_moment(column.type) else column


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def plain(value: Any) -> Any:
    """A value of Arrow as JSON knows it. A NaN is null: tables made with pandas have no other sign for it."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return None if math.isnan(value) else value
        case datetime():
            naive = value.replace(tzinfo=None) - (value.utcoffset() or timedelta())
            return naive.isoformat() + "Z"
        case date() | time():
            return value.isoformat()
        case timedelta():
            return value / timedelta(seconds=1)
        case Decimal():
            return int(value) if value == value.to_integral_value() else float(value)
        case bytes():
            return value.decode(errors="backslashreplace")
        case Mapping():
            return {str(name): plain(item) for name, item in value.items()}
        case list() | tuple():
            return [plain(item) for item in value]
        case _:
            return str(value)


def as_json(row: Mapping[str, Any]) -> str:
    return json.dumps(plain(row), ensure_ascii=False)
