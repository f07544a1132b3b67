"""Shares of files: the parts that one worker reads. Everything here can be pickled and needs PyArrow alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any, Protocol

import pyarrow as pa

from cepheid.physical import Plan

MOST_FILES = 10_000
"""The driver opens at most this many files to divide the work."""
_FILE_BITS = 40
"""These lower bits of a position number the rows of a file. The upper bits number the files."""


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file, and the type of its events if no column holds it."""

    path: str
    type: str | None = None
    format: str = "parquet"


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a file that is read at once. `first` is the number of its first row, or the offset of its first byte:
    either way, rows before it have smaller numbers."""

    file: int
    first: int
    size: int

    @property
    def base(self) -> int:
        """The position of its first row. The other rows follow."""
        return (self.file << _FILE_BITS) + self.first


@dataclass(frozen=True, slots=True)
class OpenedPart:
    """An open part. `names` are its columns, and `read` reads some of them."""

    rows: int
    names: Sequence[str]
    read: Callable[[Sequence[str]], pa.Table]
    read_first: Callable[[Sequence[str], int], pa.Table]
    """Reads some columns of the first rows."""

    def first(self, rows: int) -> OpenedPart:
        """As if it had no more than these rows."""
        return self if rows >= self.rows else replace(self, rows=rows, read=lambda names: self.read_first(names, rows))


Footers = dict[int, Any]
"""What was parsed of each file, by its number: the footer of a file with many row groups takes longer to parse than one
of them."""


class ShareReader(Protocol):
    """Reads shares of files in a worker."""

    @property
    def files(self) -> tuple[StoredFile, ...]: ...

    def surviving(self, share: Sequence[Part], plan: Plan, schema: pa.Schema, type_column: str) -> Iterator[Part]:
        """The parts that may contain events of the query (the others are skipped by their statistics)."""

    def opened(
        self, part: Part, names: Sequence[str], dictionaries: Sequence[str], footers: Footers | None = None
    ) -> AbstractContextManager[OpenedPart]:
        """Opens a part to read some of these columns. `dictionaries` are string columns with few distinct values.
        `footers` are those of the files that the caller has opened before."""


@dataclass(frozen=True, slots=True)
class StoredFiles:
    """Files that workers read, with their sizes and statistics."""

    reader: ShareReader
    parts: tuple[Part, ...]
    rows: int
    """The number of rows, possibly estimated."""
    times: tuple[int, int] | None = None
    """The first and the last time, if the files have statistics."""

    @property
    def size(self) -> int:
        return sum(part.size for part in self.parts)

    def shares(self, count: int) -> list[tuple[Part, ...]]:
        """Divides the parts into `count` runs of about the same size."""
        size = max(self.size, 1)
        shares: list[list[Part]] = [[] for _ in range(max(count, 1))]
        before = 0
        for part in self.parts:
            shares[min((before + part.size // 2) * len(shares) // size, len(shares) - 1)].append(part)
            before += part.size
        return [tuple(share) for share in shares if share]
