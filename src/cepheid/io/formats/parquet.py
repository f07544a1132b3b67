"""Parquet."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from cepheid.io.decoding import decoded, decoded_schema
from cepheid.io.event_columns import is_time, readable_rows, ticks_of
from cepheid.io.formats.columnar import Chunk, ColumnFormat, OpenedColumns
from cepheid.io.source import BATCH
from cepheid.io.storage import storage


class _OpenedParquet(OpenedColumns):
    def __init__(self, file: pq.ParquetFile) -> None:
        self.file, self.stored, self.footer = file, file.schema_arrow, file.metadata

    def chunks(self, time_column: str | None = None) -> list[Chunk]:
        groups = [self.file.metadata.row_group(number) for number in range(self.file.metadata.num_row_groups)]
        return [Chunk(group.num_rows, group.total_byte_size, self._times(group, time_column)) for group in groups]

    def _times(self, group: pq.RowGroupMetaData, time_column: str | None) -> tuple[int, int] | None:
        for column in map(group.column, range(group.num_columns)):
            if column.path_in_schema == time_column and column.is_stats_set and column.statistics.has_min_max:
                edges = [column.statistics.min, column.statistics.max]
                times = pa.array(edges, self.stored.field(column.path_in_schema).type)
                if is_time(times).all() and not pa.types.is_floating(times.type):
                    first, last = ticks_of(times, column.path_in_schema).tolist()
                    return first, last
        return None

    @property
    def count(self) -> int:
        return int(self.file.metadata.num_rows)

    def filled(self) -> set[str]:
        metadata = self.file.metadata
        full: set[str] = set()
        for number in range(metadata.num_columns):
            columns = [metadata.row_group(group).column(number) for group in range(metadata.num_row_groups)]
            if all(c.statistics is not None and c.statistics.null_count == 0 for c in columns):
                full.add(metadata.schema.column(number).path)
        return full

    def read_stored(self, number: int, names: Sequence[str]) -> pa.Table:
        return self.file.read_row_group(number, columns=list(names), use_threads=False)

    def read_first(self, number: int, names: Sequence[str], rows: int) -> pa.Table:
        batches = self.file.iter_batches(rows, row_groups=[number], columns=list(names), use_threads=False)
        found = [next(batches)]  # they end where a dictionary does
        while sum(batch.num_rows for batch in found) < rows:
            found.append(next(batches))
        return readable_rows(decoded(pa.Table.from_batches(found).slice(0, rows)))

    def batches(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        for batch in self.file.iter_batches(BATCH, columns=list(names)):
            yield readable_rows(decoded(batch))


class _Parquet(ColumnFormat):
    title = "Parquet"

    def open(self, file: pa.NativeFile, dictionaries: Sequence[str] = (), footer: Any = None) -> OpenedColumns:
        return _OpenedParquet(pq.ParquetFile(file, metadata=footer, read_dictionary=list(dictionaries)))

    def surviving(
        self, path: str, numbers: Sequence[int], condition: Callable[[pa.Schema], pc.Expression | None]
    ) -> Sequence[int]:
        import pyarrow.dataset as ds  # lazily: only the shares of files on Spark need it

        files, name = storage(path)
        fragment = ds.ParquetFileFormat().make_fragment(name, files, row_groups=list(numbers))
        # Arrow compares no statistics of views, which delta-rs writes.
        comparable = [f for f in fragment.physical_schema if decoded_schema(pa.schema([f])).field(0).type == f.type]
        tested = condition(pa.schema(comparable))
        return numbers if tested is None else [group.id for group in fragment.subset(tested).row_groups]


FORMAT = _Parquet()
