"""ORC."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from pyarrow.orc import ORCFile

from cepheid.io.formats.columnar import Chunk, ColumnFormat, OpenedColumns


class _OpenedOrc(OpenedColumns):
    def __init__(self, file: ORCFile) -> None:
        self.file, self.stored = file, file.schema

    def chunks(self, time_column: str | None = None) -> list[Chunk]:
        stripes = self.file.nstripes
        if stripes == 1:
            return [Chunk(self.file.nrows, self.file.content_length)]
        # PyArrow does not report the number of rows of a stripe, so its first column is read.
        size = self.file.content_length // max(stripes, 1)
        return [Chunk(self.read_stored(number, self.stored.names[:1]).num_rows, size) for number in range(stripes)]

    @property
    def count(self) -> int:
        return int(self.file.nrows)

    def read_stored(self, number: int, names: Sequence[str]) -> pa.Table:
        # PyArrow interprets a dot in a name as the path to a nested field.
        chosen = None if any("." in name for name in names) else list(names)
        return pa.Table.from_batches([self.file.read_stripe(number, columns=chosen)]).select(list(names))


class _Orc(ColumnFormat):
    title = "ORC"

    def open(self, file: pa.NativeFile, dictionaries: Sequence[str] = (), footer: Any = None) -> OpenedColumns:
        return _OpenedOrc(ORCFile(file))


FORMAT = _Orc()
