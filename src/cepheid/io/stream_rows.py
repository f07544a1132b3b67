"""Rows of a stream as events, checked against the schema that the stream settled when it first started.

Every row that is read becomes an event or a reject. Columns and event types that appear later are accepted: the schema
has no column for the former, and the latter have all columns.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cepheid.errors import shown
from cepheid.events import UNTYPED, Clock
from cepheid.io.event_columns import starts_in_time, why_no_start
from cepheid.io.inputs import Columns
from cepheid.io.rejects import no_time, no_type, shown_value
from cepheid.io.rows import ROW, as_json, in_ticks, is_added, row_dicts
from cepheid.io.source import JSON, Attributes
from cepheid.io.times import LAST_TIME, TimeKind, not_whole, out_of_range
from cepheid.runtime.kernel import Array
from cepheid.types import from_arrow

REJECTS = pa.schema([("source", pa.string()), ("line", pa.int64()), ("reason", pa.string()), ("raw", pa.string())])
"""A rejected row: its file and line (null if unknown), the reason, and the row itself."""
FILE, NUMBER = "\0file", "\0number"
"""The file and the number of a row. Events with equal times are ordered by file name, then by row number."""
INPUT = "\0input"
"""The number of the input that a row is from, where there are several: it decides first between equal times."""
RESUME = "fix it and start again: the stream resumes where it stopped"


@dataclass(frozen=True, slots=True)
class StreamLayout:
    """The schema of the events of a stream. `schema` has the columns of the events, with FILE and NUMBER; `attributes`
    the columns of each event type that has been seen, each with its type in events of that type."""

    schema: pa.Schema
    columns: Columns
    attributes: Attributes
    clock: Clock
    epoch_unit: str | None = None
    """The unit of times that are numbers with fractions, and read as timestamps."""

    @property
    def has_types(self) -> bool:
        return set(self.attributes) != {UNTYPED}

    @property
    def requires_types(self) -> bool:
        """Whether an event must have a type in the type column."""
        return self.has_types and self.columns.event_type is None

    @property
    def time_kind(self) -> TimeKind:
        return TimeKind.TIMESTAMP if self.clock.is_timestamp else TimeKind.INTEGER

    def misfit(self, name: str, kind: pa.DataType, value: Any) -> str:
        """The reason to reject a row because of one value."""
        if name in self.columns.times:
            return self.time_kind.rejects(value, "time" if name == self.columns.time else "start")
        settled = "JSON" if kind == JSON else from_arrow(kind)
        return f"the attribute `{shown(name)}` is of type {settled} in this stream, not {shown_value(value)}"


@dataclass(frozen=True, slots=True)
class Read:
    """Events in the columns of the stream, their times in ticks, and the rejects."""

    events: pa.RecordBatch
    ticks: Array
    rejects: pa.RecordBatch

    @property
    def count(self) -> int:
        return int(self.events.num_rows + self.rejects.num_rows)

    @classmethod
    def joined(cls, reads: Sequence[Read], schema: pa.Schema) -> Read:
        return cls(
            joined([pa.RecordBatch.from_pylist([], schema), *(read.events for read in reads)]),
            np.concatenate([np.empty(0, np.int64), *(read.ticks for read in reads)]),
            joined([reject_rows([]), *(read.rejects for read in reads)]),
        )

    def rejecting(self, bad: Array, reason: Callable[[int], str]) -> Read:
        """Without some of the events, which are rejected. The reason depends on the time of an event."""
        if not bad.any():
            return self
        chosen = self.events.filter(pa.array(bad))
        rejects = [
            reject(row.get(FILE), row.get(NUMBER), reason(at), row[ROW] if ROW in row else shown_row(row))
            for row, at in zip(row_dicts(chosen), self.ticks[bad].tolist(), strict=True)
        ]
        return Read(self.events.filter(pa.array(~bad)), self.ticks[~bad], joined([self.rejects, reject_rows(rejects)]))


def joined(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    whole = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return whole[0] if whole else batches[0]


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """The schema without dictionaries, which blocks of the stream cannot hold."""
    return pa.schema([(field.name, plain_type(field.type)) for field in schema])


def plain_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_dictionary(kind):
        return kind.value_type
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(plain_type(field.type)) for field in kind])
    return pa.list_(plain_type(kind.value_type)) if pa.types.is_list(kind) else kind


def reject(source: str | None, line: int | None, reason: str, raw: str) -> dict[str, Any]:
    return {"source": source, "line": line, "reason": reason, "raw": raw}


def reject_rows(rejects: Sequence[dict[str, Any]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(list(rejects), REJECTS)


def shown_row(row: Mapping[str, Any]) -> str:
    """A row as the user knows it."""
    return as_json({name: value for name, value in row.items() if not is_added(name)})


def file_name(path: str) -> str:
    """The path as text: a file name need not be UTF-8."""
    return os.fsencode(path).decode(errors="backslashreplace")


StreamReader = Callable[[Sequence[str], StreamLayout], Read]
"""Reads files of a stream, in the columns of the layout. It rejects times outside the two bounds."""


# --- columns ----------------------------------------------------------------------------------------------------------


def accepted(rows: pa.RecordBatch, columns: Columns, requires_type: bool) -> Read:
    """Splits rows into events and rejects."""
    column = _ticks(rows.column(columns.time))
    fits = pc.and_(pc.greater_equal(column, -LAST_TIME), pc.less_equal(column, LAST_TIME)).fill_null(False)
    started = None if columns.start is None else pa.array(starts_in_time(rows, columns))
    typed = pc.not_equal(rows.column(columns.type), UNTYPED).fill_null(False) if requires_type else None
    good = reduce(pc.and_, [test for test in (started, typed) if test is not None], fits)
    if np.asarray(good).all():
        return Read(rows, np.asarray(column), reject_rows([]))
    bad = np.flatnonzero(~np.asarray(good)).tolist()

    def reason(number: int, row: dict[str, Any]) -> str:
        if not fits[number].as_py():
            return _time_reason(row[columns.time], columns.time)
        is_started = started is None or started[number].as_py()
        return no_type(columns.type) if is_started else why_no_start(rows, number, columns)

    rejects = [
        reject(row.get(FILE), row.get(NUMBER), reason(number, row), shown_row(row))
        for number, row in zip(bad, row_dicts(rows.take(pa.array(bad, pa.int64()))), strict=True)
    ]
    return Read(rows.filter(good), np.asarray(column.filter(good)), reject_rows(rejects))


def _time_reason(value: object, column: str) -> str:
    is_fraction = isinstance(value, float) and not value.is_integer()
    return no_time(column) if value is None or value != value else (not_whole if is_fraction else out_of_range)(value)


def _ticks(column: pa.Array) -> pa.Array:
    """Times as integers. A missing or fractional time is null."""
    if pa.types.is_floating(column.type):
        whole = pc.equal(column, pc.round(column)).fill_null(False)
        held = pc.and_(whole, pc.less(pc.abs(column), 2.0**62)).fill_null(False)
        return pc.if_else(held, column, None).cast(pa.int64())
    return in_ticks(column).cast(pa.int64())
