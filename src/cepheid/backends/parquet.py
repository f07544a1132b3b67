"""Parquet files as a source of events: read in batches where the rows are in the order of time, and only the columns
that are needed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from cepheid.backends.rows import RecentRows
from cepheid.backends.sources import (
    BATCH,
    Columns,
    Source,
    TableSource,
    require_time_column,
    ticks_of,
    types_column,
    with_type_and_time,
)
from cepheid.backends.tables import exists, neighbours
from cepheid.errors import InputProblem, did_you_mean, shown


@dataclass(frozen=True, slots=True)
class ParquetSource:
    """A file whose rows are in the order of time: what is in memory at once is a batch, not the file."""

    path: str
    schema: pa.Schema
    columns: Columns
    types: tuple[str, ...]
    count: int

    def batches(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        for batch in _read(self.path, self.columns, names):
            ticks = ticks_of(batch.column(self.columns.time), self.columns.time)
            yield with_type_and_time(batch, names, types_column(batch, self.columns), ticks)

    def rows(self, names: Sequence[str]) -> RecentRows:
        return RecentRows(names)


def open_parquet(path: str, columns: Columns) -> Source:
    """The file as a source. Its type and time columns are read first, to know the types and the order."""
    if not exists(path):
        raise InputProblem(f"there is no file `{shown(path, 200)}`", hint=did_you_mean(path, neighbours(path)))
    try:
        file = pq.ParquetFile(path)
    except (pa.ArrowException, OSError) as problem:
        raise InputProblem(f"cannot read `{shown(path, 200)}` as Parquet: {shown(str(problem), 200)}") from problem
    schema = file.schema_arrow
    require_time_column(schema, columns)
    types: dict[str, None] = {}
    last: int | None = None
    for batch in _read(path, columns, []):
        ticks = ticks_of(batch.column(columns.time), columns.time)
        if len(ticks) and ((last is not None and ticks[0] < last) or np.any(ticks[:-1] > ticks[1:])):
            return TableSource.of(file.read(), columns)
        last = int(ticks[-1]) if len(ticks) else last
        kinds = types_column(batch, columns)
        types.update(dict.fromkeys(kinds.dictionary.to_pylist()))
        if kinds.null_count:
            types[""] = None
    return ParquetSource(path, schema, columns, tuple(types), file.metadata.num_rows)


def _read(path: str, columns: Columns, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    with pq.ParquetFile(path) as file:
        wanted = [*names, columns.time, *(n for n in [columns.type] if n in file.schema_arrow.names)]
        yield from file.iter_batches(BATCH, columns=list(dict.fromkeys(wanted)))
