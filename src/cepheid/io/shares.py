"""Shares of files: what one worker reads, whatever schedules the workers. Everything here can be pickled, and reads
with PyArrow alone."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.dataset as ds

from cepheid import expr as ex
from cepheid.io.formats.columnar import column_format
from cepheid.optimize.distribution import may_drop
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
        ...

    def opened(self, part: Part, names: Sequence[str], texts: Sequence[str]) -> AbstractContextManager[OpenedPart]:
        """For reading some of these columns. `texts` are columns with few distinct values."""
        ...


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


# --- files of columns -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ColumnPart(Part):
    """A chunk of a file of columns."""

    number: int
    rows: int


def stored_columns(files: Sequence[StoredFile], time_column: str, expected: Sequence[str] = ()) -> StoredFiles | None:
    """These files, in this order; None where one lacks a column that is expected of it."""
    parts: list[ColumnPart] = []
    times: list[tuple[int, int] | None] = []
    for number, file in enumerate(files):
        with column_format(file.format).opened(file.path) as opened:
            if not set(expected) <= set(opened.schema.names):
                return None
            first = 0
            for at, chunk in enumerate(opened.chunks(time_column)):
                parts.append(ColumnPart(number, first, chunk.size, at, chunk.rows))
                times.append(chunk.times)
                first += chunk.rows
    known = [edges for edges in times if edges is not None]
    is_known = bool(known) and len(known) == len(times)
    whole = (min(first for first, _ in known), max(last for _, last in known)) if is_known else None
    return StoredFiles(ColumnReader(tuple(files)), tuple(parts), sum(part.rows for part in parts), whole)


@dataclass(frozen=True, slots=True)
class ColumnReader:
    files: tuple[StoredFile, ...]

    def surviving(self, share: Sequence[Part], plan: Plan, schema: pa.Schema, type_column: str) -> Iterator[Part]:
        for number, run in itertools.groupby(share, key=lambda part: part.file):
            parts, file = [_as_chunk(part) for part in run], self.files[number]

            def condition(own: pa.Schema, type: str | None = file.type) -> ds.Expression | None:
                present = pa.schema([field for field in schema if field.name in own.names])
                return may_matter(plan, present, type_column, type)

            numbers: Sequence[int] = [part.number for part in parts]
            if may_drop(plan):
                numbers = column_format(file.format).surviving(file.path, numbers, condition)
            yield from (part for part in parts if part.number in numbers)

    @contextmanager
    def opened(self, part: Part, names: Sequence[str], texts: Sequence[str]) -> Iterator[OpenedPart]:
        file, chunk = self.files[part.file], _as_chunk(part)
        with column_format(file.format).opened(file.path, texts) as opened:
            yield OpenedPart(chunk.rows, opened.schema.names, partial(opened.read, chunk.number))


def _as_chunk(part: Part) -> ColumnPart:
    assert isinstance(part, ColumnPart)
    return part


# --- statistics -------------------------------------------------------------------------------------------------------

_COMPARE: Mapping[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def may_matter(plan: Plan, schema: pa.Schema, type_column: str, type: str | None = None) -> ds.Expression | None:
    """A condition that holds for every event that can take part in a match, in terms that the statistics of row groups
    decide; None where there is none. `type` is the type of all events, where no column holds it."""
    conditions: list[ds.Expression] = []
    for bit in plan.bits:
        if not bit.var or (type is not None and bit.types and type not in bit.types):
            continue
        tests = [_simple(test, plan, schema) for test in bit.tests]
        if bit.types and type is None and type_column in schema.names:
            tests.append(ds.field(type_column).isin(list(bit.types)))
        decisive = [test for test in tests if test is not None]
        if not decisive:
            return None
        conditions.append(reduce(operator.and_, decisive))
    return reduce(operator.or_, conditions) if conditions else ds.scalar(False)


def _simple(test: ex.Expr, plan: Plan, schema: pa.Schema) -> ds.Expression | None:
    match test:
        case ex.Compare(op=op, left=ex.Attr(name=name), right=ex.Const(value=value)) if op in _COMPARE:
            if name not in schema.names or name in plan.lacks:
                return None
            kind = schema.field(name).type
            is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind)
            fits = isinstance(value, str) if pa.types.is_string(kind) else is_number and isinstance(value, int | float)
            return _COMPARE[op](ds.field(name), value) if fits and not isinstance(value, bool) else None
        case _:
            return None
