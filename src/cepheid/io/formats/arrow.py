"""Arrow IPC and Feather: the file format, which has a footer, and the streaming format."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from cepheid.io.formats.columnar import Chunk, ColumnFormat, OpenedColumns

_MAGIC = b"ARROW1"


class _OpenedFile(OpenedColumns):
    """The file format: the footer allows reading any single record batch."""

    def __init__(self, file: pa.NativeFile) -> None:
        self.file, self.stored = file, pa.ipc.open_file(file).schema

    def chunks(self, time_column: str | None = None) -> list[Chunk]:
        reader = self._reader(self.stored.names[:1])
        size = self.file.size() // max(reader.num_record_batches, 1)
        return [Chunk(reader.get_batch(number).num_rows, size) for number in range(reader.num_record_batches)]

    def read_stored(self, number: int, names: Sequence[str]) -> pa.Table:
        table = pa.Table.from_batches([self._reader(names).get_batch(number)])
        return _validated(table).select(list(names))

    def _reader(self, names: Sequence[str]) -> pa.ipc.RecordBatchFileReader:
        # PyArrow reads all fields if the list is empty.
        chosen = [self.stored.get_field_index(name) for name in names] or [0] * bool(self.stored.names)
        return pa.ipc.open_file(self.file, options=pa.ipc.IpcReadOptions(included_fields=chosen))


class _OpenedStream(OpenedColumns):
    """The streaming format: one chunk, because it can only be read from its beginning."""

    def __init__(self, file: pa.NativeFile) -> None:
        self.table = _validated(pa.ipc.open_stream(file).read_all())
        self.stored = self.table.schema

    def chunks(self, time_column: str | None = None) -> list[Chunk]:
        return [Chunk(self.table.num_rows, self.table.nbytes)]

    def read_stored(self, number: int, names: Sequence[str]) -> pa.Table:
        return self.table.select(list(names))


def _validated(table: pa.Table) -> pa.Table:
    """PyArrow does not check the offsets and dictionary codes of a damaged file, and would read beyond its buffers."""
    table.validate(full=True)
    return table


class _Arrow(ColumnFormat):
    title = "Arrow IPC"

    def open(self, file: pa.NativeFile, dictionaries: Sequence[str] = (), footer: Any = None) -> OpenedColumns:
        is_file = file.read(len(_MAGIC)) == _MAGIC
        file.seek(0)
        return _OpenedFile(file) if is_file else _OpenedStream(file)


FORMAT = _Arrow()
