"""Files that Spark's workers read themselves, without passing through the JVM's rows: what all formats share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol, TypeVar
from urllib.parse import unquote, urlsplit

import pyarrow as pa
from pyarrow import fs

from cepheid.physical import Plan

MOST_FILES = 10_000
"""More files than are worth looking at before the work is divided."""
_FILE_BITS = 40
"""Positions number the files in their upper bits and what each holds in these."""


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file, and the type of its events where that is not in a column."""

    path: str
    type: str | None = None


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a file that is read at once. `first` is a number that no row before it reaches: of its first row, or
    of its first byte."""

    file: int
    first: int
    size: int

    @property
    def base(self) -> int:
        """The position of its first row; those of the others follow."""
        return (self.file << _FILE_BITS) + self.first


_AnyPart = TypeVar("_AnyPart", bound=Part)


class OpenedPart(Protocol):
    """A part while it is read, in whatever steps are best."""

    @property
    def rows(self) -> int: ...

    @property
    def names(self) -> Sequence[str]:
        """The columns that it has."""
        ...

    def read(self, names: Sequence[str]) -> pa.Table: ...


class Reader(Protocol):
    """What a worker must know to read the files of one format."""

    @property
    def files(self) -> tuple[StoredFile, ...]: ...

    def surviving(self, share: Sequence[Part], plan: Plan, schema: pa.Schema, type_column: str) -> Iterator[Part]:
        """The parts of which it is not known beforehand that no event plays a part."""
        ...

    def opened(self, part: Part, names: Sequence[str], texts: Sequence[str]) -> AbstractContextManager[OpenedPart]:
        """For reading some of these columns. Of `texts` only few values are expected."""
        ...


class StoredFiles(Protocol):
    """Files of one format that the workers can read, and what is known of them beforehand."""

    @property
    def reader(self) -> Reader: ...

    @property
    def times(self) -> tuple[int, int] | None:
        """The first and the last time, where that can be told."""
        ...

    @property
    def size(self) -> int: ...

    @property
    def rows(self) -> int: ...

    def shares(self, count: int) -> Sequence[tuple[Part, ...]]: ...


def shared(parts: Sequence[_AnyPart], count: int) -> list[tuple[_AnyPart, ...]]:
    """The parts in as many runs of about the same size."""
    size = max(sum(part.size for part in parts), 1)
    shares: list[list[_AnyPart]] = [[] for _ in range(max(count, 1))]
    before = 0
    for part in parts:
        shares[min((before + part.size // 2) * len(shares) // size, len(shares) - 1)].append(part)
        before += part.size
    return [tuple(share) for share in shares if share]


def is_readable(path: str) -> bool:
    return path.startswith(("file:", "/", "hdfs:", "s3:", "gs:"))


def storage(path: str) -> tuple[fs.FileSystem, str]:
    """Where the file lies, and its name there. Spark gives URIs, in which signs are escaped; Java writes `file:/tmp/x`
    where others write `file:///tmp/x`."""
    if path.startswith("file:"):
        return fs.LocalFileSystem(), unquote(urlsplit(path).path)
    return (fs.LocalFileSystem(), path) if path.startswith("/") else fs.FileSystem.from_uri(path)
