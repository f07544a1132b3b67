"""Parquet files that workers read with Arrow: row groups are what is scheduled, and statistics rule some out."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from pyspark.sql import DataFrame

from cepheid import expr as ex
from cepheid.io.source import ticks_of
from cepheid.optimize.distribution import may_drop
from cepheid.physical import Plan
from cepheid.spark.stored import MOST_FILES, Part, StoredFile, is_readable, shared, storage


@dataclass(frozen=True, slots=True)
class RowGroup(Part):
    number: int
    rows: int


@dataclass(frozen=True, slots=True)
class ParquetFiles:
    """Files that Arrow can read for Spark, and what their footers say."""

    files: tuple[StoredFile, ...]
    groups: tuple[RowGroup, ...]
    times: tuple[int, int] | None
    """The first and the last time, where the footers tell."""

    @classmethod
    def of(cls, frame: DataFrame, time_column: str) -> ParquetFiles | None:
        """None where only Spark knows how to read them: another storage, columns that are not in every file (they may
        be named after directories, or differ in case), or more files than footers are worth reading."""
        paths = sorted(frame.inputFiles())
        if not paths or len(paths) > MOST_FILES or not all(is_readable(path) for path in paths):
            return None
        return cls.listed([StoredFile(path) for path in paths], time_column, frame.columns)

    @classmethod
    def listed(cls, files: Sequence[StoredFile], time_column: str, expected: Sequence[str] = ()) -> ParquetFiles | None:
        """These files, in this order; None where one does not have all columns that are expected of it."""
        groups: list[RowGroup] = []
        edges: list[tuple[int, int] | None] = []
        for number, file in enumerate(files):
            with _opened(file.path) as opened:
                if not set(expected) <= set(opened.schema_arrow.names):
                    return None
                first = 0
                for at in range(opened.metadata.num_row_groups):
                    group = opened.metadata.row_group(at)
                    groups.append(RowGroup(number, first, group.total_byte_size, at, group.num_rows))
                    edges.append(_edges(opened, at, time_column))
                    first += group.num_rows
        known = [edge for edge in edges if edge is not None]
        times = None
        if known and len(known) == len(edges):
            times = min(edge[0] for edge in known), max(edge[1] for edge in known)
        return cls(tuple(files), tuple(groups), times)

    @property
    def size(self) -> int:
        return sum(group.size for group in self.groups)

    @property
    def rows(self) -> int:
        return sum(group.rows for group in self.groups)

    @property
    def reader(self) -> ParquetReader:
        return ParquetReader(self.files)

    def shares(self, count: int) -> list[tuple[RowGroup, ...]]:
        return shared(self.groups, count)


def _opened(path: str, dictionaries: Sequence[str] = ()) -> pq.ParquetFile:
    files, name = storage(path)
    return pq.ParquetFile(files.open_input_file(name), read_dictionary=list(dictionaries))


def _edges(opened: pq.ParquetFile, number: int, time_column: str) -> tuple[int, int] | None:
    """The first and last time of a row group, if its statistics say."""
    group = opened.metadata.row_group(number)
    for at in range(group.num_columns):
        chunk = group.column(at)
        if chunk.path_in_schema == time_column:
            if not chunk.is_stats_set or not chunk.statistics.has_min_max:
                return None
            kind = opened.schema_arrow.field(time_column).type
            edges = pa.array([chunk.statistics.min, chunk.statistics.max], kind)
            first, last = ticks_of(edges, time_column).tolist()
            return first, last
    return None


# --- in the workers ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ParquetReader:
    files: tuple[StoredFile, ...]

    def surviving(self, share: Sequence[Part], plan: Plan, schema: pa.Schema, type_column: str) -> Iterator[RowGroup]:
        """The row groups whose statistics do not rule out that an event plays a part."""
        for number, run in itertools.groupby(share, key=lambda part: part.file):
            groups, file = [_as_group(part) for part in run], self.files[number]
            files, name = storage(file.path)
            fragment = ds.ParquetFileFormat().make_fragment(name, files, row_groups=[group.number for group in groups])
            condition = None
            if may_drop(plan):
                present = pa.schema([field for field in schema if field.name in fragment.physical_schema.names])
                condition = may_matter(plan, present, type_column, file.type)
            left = None if condition is None else {group.id for group in fragment.subset(condition).row_groups}
            yield from (group for group in groups if left is None or group.number in left)

    @contextmanager
    def opened(self, part: Part, names: Sequence[str], texts: Sequence[str]) -> Iterator[_OpenedGroup]:
        with _opened(self.files[part.file].path, texts) as file:
            yield _OpenedGroup(file, _as_group(part))


def _as_group(part: Part) -> RowGroup:
    assert isinstance(part, RowGroup)
    return part


@dataclass(frozen=True, slots=True)
class _OpenedGroup:
    file: pq.ParquetFile
    group: RowGroup

    @property
    def rows(self) -> int:
        return self.group.rows

    @property
    def names(self) -> Sequence[str]:
        found: Sequence[str] = self.file.schema_arrow.names
        return found

    def read(self, names: Sequence[str]) -> pa.Table:
        return self.file.read_row_group(self.group.number, columns=list(names), use_threads=False)


# --- statistics -------------------------------------------------------------------------------------------------------

_COMPARE: Mapping[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def may_matter(plan: Plan, schema: pa.Schema, type_column: str, given: str | None = None) -> ds.Expression | None:
    """A condition that holds of every event that can play a part, in terms that statistics of row groups can decide;
    None where there is none. `given` is the type of all events, where it is not in a column."""
    conditions: list[ds.Expression] = []
    for bit in plan.bits:
        if not bit.var or (given is not None and bit.types and given not in bit.types):
            continue
        tests = [_simple(test, plan, schema) for test in bit.tests]
        if bit.types and given is None and type_column in schema.names:
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
            fits = isinstance(value, str) if pa.types.is_string(kind) else is_number and type(value) in (int, float)
            return _COMPARE[op](ds.field(name), value) if fits else None
        case _:
            return None
