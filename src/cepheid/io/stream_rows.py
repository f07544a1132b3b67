"""Rows of a stream as events, checked against the schema that the stream fixed when it first started."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cepheid.errors import shown
from cepheid.events import UNTYPED, Clock, Schema
from cepheid.io.inputs import Columns
from cepheid.io.rejects import no_time, no_type
from cepheid.io.rows import as_json, in_ticks
from cepheid.runtime.kernel import Array

REJECTS = pa.schema([("source", pa.string()), ("line", pa.int64()), ("reason", pa.string()), ("raw", pa.string())])
"""A rejected row: its file and line (null if unknown), the reason, and the row itself."""
FILE, NUMBER = "__cepheid_file", "__cepheid_number"
"""The file and the number of a row. Events with equal times are ordered by file name, then by row number."""
RESUME = "fix it and start again: the stream resumes where it stopped"


@dataclass(frozen=True, slots=True)
class StreamLayout:
    """The schema of the events of a stream. `schema` has the columns of the events, with FILE and NUMBER."""

    schema: pa.Schema
    columns: Columns
    types: Schema
    clock: Clock

    @property
    def has_types(self) -> bool:
        return set(self.types.types) != {UNTYPED}


@dataclass(frozen=True, slots=True)
class Read:
    """Events in the columns of the stream, their times in ticks, and the rejects."""

    events: pa.RecordBatch
    ticks: Array
    rejects: pa.RecordBatch


StreamReader = Callable[[Sequence[str], StreamLayout, int, int], Read]
"""Reads files of a stream, in the columns of the layout. It rejects times outside the two bounds."""


def accepted(rows: pa.RecordBatch, columns: Columns, requires_type: bool, earliest: int, latest: int) -> Read:
    """Splits rows into events and rejects. A time outside the bounds cannot be represented in a stream."""
    column = _ticks(rows.column(columns.time))
    fits = pc.and_(pc.greater_equal(column, earliest), pc.less_equal(column, latest)).fill_null(False)
    typed = pc.not_equal(rows.column(columns.type), UNTYPED).fill_null(False) if requires_type else None
    good = fits if typed is None else pc.and_(fits, typed)
    if np.asarray(good).all():
        return Read(rows, np.asarray(column), pa.RecordBatch.from_pylist([], REJECTS))
    bad = pc.invert(good)
    untimed = np.asarray(pc.invert(fits).filter(bad)).tolist()
    rejects = [
        {
            "source": row.pop(FILE, None),
            "line": row.pop(NUMBER, None),
            "reason": _time_reason(row[columns.time], columns.time) if is_untimed else no_type(columns.type),
            "raw": as_json(row),
        }
        for row, is_untimed in zip(rows.filter(bad).to_pylist(), untimed, strict=True)
    ]
    return Read(rows.filter(good), np.asarray(column.filter(good)), pa.RecordBatch.from_pylist(rejects, REJECTS))


def _time_reason(value: object, column: str) -> str:
    return no_time(column) if value is None else f"the time `{shown(str(value))}` is not one that a stream can hold"


def _ticks(column: pa.Array) -> pa.Array:
    """Times as integers. A missing or fractional time is null."""
    if pa.types.is_floating(column.type):
        whole = pc.equal(column, pc.round(column)).fill_null(False)
        held = pc.and_(whole, pc.less(pc.abs(column), 2.0**62)).fill_null(False)
        return pc.if_else(held, column, None).cast(pa.int64())
    return in_ticks(column).cast(pa.int64())
