"""How the rows that Spark hands over become events, and how the oracle sees them.

Rows that are no events become rejects, with the reason. A reader travels to the workers with the plan.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from cepheid.engine.oracle import decode, match_batch
from cepheid.engine.prepare import Prepared
from cepheid.errors import InputProblem, shown
from cepheid.events import UNTYPED, Event
from cepheid.io.inputs import Columns
from cepheid.io.rows import one_batch, plain
from cepheid.io.source import types_column, with_type_and_time
from cepheid.runtime.kernel import Array
from cepheid.semantics import Match
from cepheid.spark.spool import path_on

REJECTS = pa.schema([("source", pa.string()), ("line", pa.int64()), ("reason", pa.string()), ("raw", pa.string())])
"""A row that is no event: where it came from, as far as that is known; why; and what it was."""


FILE, NUMBER = "__cepheid_file", "__cepheid_number"
"""Where a row of a file stood. Events of one time come in the order of the files' names, then of their rows."""
SLIP = "value"
"""The column in which Spark gives the lines of a text file."""


@dataclass(frozen=True, slots=True)
class Read:
    """The events among some rows, in the columns of the stream; their times in ticks; and the rejects."""

    events: pa.RecordBatch
    ticks: Array
    rejects: pa.RecordBatch


class Reader(ABC):
    """`schema` holds the columns of the stream's events."""

    schema: pa.Schema
    columns: Columns

    @abstractmethod
    def selected(self) -> Sequence[str]:
        """The columns that it wants from Spark, by SQL expressions."""

    @abstractmethod
    def read(self, given: pa.RecordBatch, earliest: int, latest: int) -> Read:
        """The events of some rows; times outside of the bounds are ones that a stream cannot hold."""

    def shown_from(self) -> Sequence[str]:
        """The columns that the oracle's events are made from."""
        return list(self.schema.names)

    @abstractmethod
    def oracle_events(self, prepared: Prepared, rows: pa.RecordBatch, ticks: Array) -> list[Event]: ...

    @abstractmethod
    def shown(self, prepared: Prepared, matches: Sequence[Match]) -> pa.RecordBatch:
        """Matches that are not shown as rows of the input."""


def quoted(name: str) -> str:
    """A column's name in SQL, whatever signs it holds."""
    return "`" + name.replace("`", "``") + "`"


@dataclass(frozen=True, slots=True)
class RowReader(Reader):
    """Rows that are events as they are. `requires_type` says that an event without a type is none."""

    schema: pa.Schema
    columns: Columns
    requires_type: bool = False

    def selected(self) -> Sequence[str]:
        return [quoted(name) for name in self.schema.names]

    def read(self, given: pa.RecordBatch, earliest: int, latest: int) -> Read:
        column = _ticks(given.column(self.columns.time))
        fits = pc.and_(pc.greater_equal(column, earliest), pc.less_equal(column, latest)).fill_null(False)
        typed = pc.not_equal(given.column(self.columns.type), UNTYPED).fill_null(False) if self.requires_type else None
        good = fits if typed is None else pc.and_(fits, typed)
        if np.asarray(good).all():
            return Read(given, np.asarray(column), pa.RecordBatch.from_pylist([], REJECTS))
        bad = pc.invert(good)
        untimed = np.asarray(pc.invert(fits).filter(bad))
        rejects = [
            {"reason": self._reason(row, no_time), "raw": as_json(row)}
            for row, no_time in zip(given.filter(bad).to_pylist(), untimed.tolist(), strict=True)
        ]
        return Read(given.filter(good), np.asarray(column.filter(good)), pa.RecordBatch.from_pylist(rejects, REJECTS))

    def _reason(self, row: dict[str, object], no_time: bool) -> str:
        name, value = self.columns.time, row[self.columns.time]
        if not no_time:
            return f"no event type: the column `{shown(self.columns.type)}` is missing or null"
        if value is None:
            return f"no time: `{shown(name)}` is null"
        return f"the time `{shown(str(value))}` is not one that a stream can hold"

    def oracle_events(self, prepared: Prepared, rows: pa.RecordBatch, ticks: Array) -> list[Event]:
        names = _of_input(self.schema).names
        events = with_type_and_time(rows, names, types_column(rows, self.columns), ticks)
        return decode(prepared, events, range(len(ticks)))

    def shown(self, prepared: Prepared, matches: Sequence[Match]) -> pa.RecordBatch:
        return match_batch(prepared, matches)


@dataclass(frozen=True, slots=True)
class ParquetReader(Reader):
    """Reads the files that slips name, in the workers."""

    schema: pa.Schema
    columns: Columns
    requires_type: bool

    def selected(self) -> Sequence[str]:
        return [SLIP]

    def read(self, given: pa.RecordBatch, earliest: int, latest: int) -> Read:
        files = [self._file(path) for path in paths_on(given)]
        whole = one_batch(pa.concat_tables(files)) if files else pa.RecordBatch.from_pylist([], self.schema)
        read = self._rows.read(whole, earliest, latest)
        return Read(read.events, read.ticks, self._placed(read.rejects) if read.rejects.num_rows else read.rejects)

    def _file(self, path: str) -> pa.Table:
        try:
            with pq.ParquetFile(path) as file:
                wanted = [name for name in self.schema.names if name in file.schema_arrow.names]
                table = file.read(columns=wanted)
            arrays = [self._column(table, field, path) for field in self.schema]
        except (pa.ArrowException, OSError) as problem:
            raise InputProblem(
                f"cannot read `{shown(path, 200)}` as Parquet: {shown(str(problem), 200)}",
                hint="put that right and start again: the stream goes on where it stopped",
            ) from problem
        return pa.table(arrays, schema=self.schema)

    def _column(self, table: pa.Table, field: pa.Field, path: str) -> pa.Array:
        if field.name == FILE:
            return pa.array([path], pa.string()).take(pa.array(np.zeros(table.num_rows, np.int64)))
        if field.name == NUMBER:
            return pa.array(np.arange(1, table.num_rows + 1))
        if field.name not in table.schema.names:
            return pa.nulls(table.num_rows, field.type)
        return table.column(field.name).cast(field.type)

    def _placed(self, rejects: pa.RecordBatch) -> pa.RecordBatch:
        """The rejects with the file and the row that each was, which are columns of the row itself."""
        rows = [json.loads(raw) for raw in rejects.column("raw").to_pylist()]
        placed = [
            {"source": row.pop(FILE), "line": row.pop(NUMBER), "reason": reason, "raw": as_json(row)}
            for row, reason in zip(rows, rejects.column("reason").to_pylist(), strict=True)
        ]
        return pa.RecordBatch.from_pylist(placed, REJECTS)

    def oracle_events(self, prepared: Prepared, rows: pa.RecordBatch, ticks: Array) -> list[Event]:
        return self._rows.oracle_events(prepared, rows, ticks)

    def shown(self, prepared: Prepared, matches: Sequence[Match]) -> pa.RecordBatch:
        return self._rows.shown(prepared, matches)

    @property
    def _rows(self) -> RowReader:
        return RowReader(self.schema, self.columns, self.requires_type)


def paths_on(slips: pa.RecordBatch) -> list[str]:
    """The files that slips name, in order."""
    return sorted(path_on(slip) for slip in slips.column(SLIP).to_pylist() if slip.strip())


def _of_input(schema: pa.Schema) -> pa.Schema:
    """Without the columns that say where a row stood."""
    return pa.schema([field for field in schema if field.name not in (FILE, NUMBER)])


def _ticks(column: pa.Array) -> pa.Array:
    """Times as integers; null where there is none."""
    if pa.types.is_timestamp(column.type) or pa.types.is_date(column.type):
        return column.cast(pa.timestamp("us"), safe=False).cast(pa.int64())
    if pa.types.is_floating(column.type):
        whole = pc.equal(column, pc.round(column)).fill_null(False)
        held = pc.and_(whole, pc.less(pc.abs(column), 2.0**62)).fill_null(False)
        return pc.if_else(held, column, None).cast(pa.int64())
    return column.cast(pa.int64())


def as_json(row: dict[str, object]) -> str:
    return json.dumps({name: plain(value) for name, value in row.items()}, ensure_ascii=False)
