"""Shares of files: what one worker reads, whatever schedules the workers. Everything here can be pickled, and reads
with PyArrow alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from cepheid.physical import Plan

MOST_FILES = 10_000
"""More files than this are not opened before the work is divided."""
_FILE_BITS = 40
"""Positions number the files in their upper bits and the rows of a file in these."""


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file, and the type of its events where no column holds it."""

    path: str
    type: str | None = None
    format: str = "parquet"


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a file that is read at once. `first` is a number that no row before it reaches: the number of its first
    row, or the offset of its first byte."""

    file: int
    first: int
    size: int

    @property
    def base(self) -> int:
        """The position of its first row; those of the others follow."""
        return (self.file << _FILE_BITS) + self.first


@dataclass(frozen=True, slots=True)
class OpenedPart:
    """A part while it is read: its columns are `names`, and `read` reads some of them."""

    rows: int
    names: Sequence[str]
    read: Callable[[Sequence[str]], pa.Table]


class ShareReader(Protocol):
    """What a worker needs to read its share of the files."""

    @property
    def files(self) -> tuple[StoredFile, ...]: ...

    def surviving(self, share: Sequence[Part], plan: Plan, schema: pa.Schema, type_column: str) -> Iterator[Part]:
        """The parts that may contain events of the query (the others are skipped by their statistics)."""

    def opened(self, part: Part, names: Sequence[str], texts: Sequence[str]) -> AbstractContextManager[OpenedPart]:
        """For reading some of these columns. `texts` are columns with few distinct values."""


@dataclass(frozen=True, slots=True)
class StoredFiles:
    """Files that workers read, and what is known of them before they are read."""

    reader: ShareReader
    parts: tuple[Part, ...]
    rows: int
    """The number of rows, which may be an estimate."""
    times: tuple[int, int] | None = None
    """The first and the last time, where the files know them."""

    @property
    def size(self) -> int:
        return sum(part.size for part in self.parts)

    def shares(self, count: int) -> list[tuple[Part, ...]]:
        """The parts in as many runs of about the same size."""
        size = max(self.size, 1)
        shares: list[list[Part]] = [[] for _ in range(max(count, 1))]
        before = 0
        for part in self.parts:
            shares[min((before + part.size // 2) * len(shares) // size, len(shares) - 1)].append(part)
            before += part.size
        return [tuple(share) for share in shares if share]
