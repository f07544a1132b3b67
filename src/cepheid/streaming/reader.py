"""Readers of a stream: rows from Spark become events, or rejects with the reason. A reader is sent to the workers with
the plan.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from cepheid.io.event_columns import types_column, with_type_and_time
from cepheid.io.inputs import Columns
from cepheid.io.rows import ROW, START, TIME
from cepheid.io.stream_files import StreamFiles
from cepheid.io.stream_inputs import StreamInputs
from cepheid.io.stream_rows import FILE, INPUT, NUMBER, Read, accepted
from cepheid.runtime.kernel import Array
from cepheid.streaming.spool import path_on

SLIP = "value"
"""The column of a Spark text source that holds the lines."""


class Reader(ABC):
    """`schema` holds the columns of the stream's events."""

    schema: pa.Schema
    columns: Columns

    @abstractmethod
    def selected(self) -> Sequence[str]:
        """The columns that it reads from Spark, as SQL expressions."""

    @abstractmethod
    def read(self, rows: pa.RecordBatch) -> Read:
        """The events of some rows. Rows whose time is outside the bounds are rejected."""

    # --- the oracle ---------------------------------------------------------------------------------------------------

    def shown_from(self) -> Sequence[str]:
        """The columns that the oracle's events are made from."""
        types = [self.columns.type] if self.columns.type in self.schema.names else []
        return [*types, *self.columns.times, ROW] if ROW in self.schema.names else list(self.schema.names)

    def typed_batch(self, rows: pa.RecordBatch, names: Sequence[str]) -> pa.RecordBatch:
        """These columns of rows that have TIME, with the event type."""
        starts = np.asarray(rows.column(START)) if START in rows.schema.names else None
        types = types_column(rows, self.columns)
        return with_type_and_time(rows, names, types, np.asarray(rows.column(TIME)), starts)

    def oracle_batch(self, rows: pa.RecordBatch, ticks: Array, identifying: Sequence[str]) -> pa.RecordBatch:
        """The rows as the oracle reads them, with the columns that identify events."""
        own = [name for name in self.schema.names if name not in (INPUT, FILE, NUMBER)]
        names = [ROW, *identifying] if ROW in self.schema.names else own
        starts = np.asarray(rows.column(START)) if START in rows.schema.names else None
        return with_type_and_time(rows, names, types_column(rows, self.columns), ticks, starts)


@dataclass(frozen=True, slots=True)
class RowReader(Reader):
    """Rows of a DataFrame, each of which is an event."""

    schema: pa.Schema
    columns: Columns

    def selected(self) -> Sequence[str]:
        return [quoted(name) for name in self.schema.names]

    def read(self, rows: pa.RecordBatch) -> Read:
        rows = rows if rows.schema.types == self.schema.types else rows.cast(self.schema)
        return accepted(rows, self.columns, False)


@dataclass(frozen=True, slots=True)
class FileReader(Reader):
    """Files named by slips; the workers read them."""

    schema: pa.Schema
    columns: Columns
    files: StreamFiles | StreamInputs

    @classmethod
    def of(cls, files: StreamFiles | StreamInputs) -> FileReader:
        return cls(files.layout.schema, files.layout.columns, files)

    def selected(self) -> Sequence[str]:
        return [SLIP]

    def read(self, rows: pa.RecordBatch) -> Read:
        slips = rows.column(SLIP).to_pylist()
        return self.files.read(sorted(path_on(slip) for slip in slips if slip.strip()))


def quoted(name: str) -> str:
    """A column's name in SQL, whatever characters it has."""
    return "`" + name.replace("`", "``") + "`"
