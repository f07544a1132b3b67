"""Parquet files read by Spark's workers with Arrow, without passing through the JVM's rows.

Spark schedules ranges of row groups. A worker reads the columns that are needed, computes masks, drops what can play no
part, and packs the events of each partition into one Arrow stream; only those streams are shuffled.
"""

from __future__ import annotations

import itertools
import operator
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any
from urllib.parse import unquote, urlsplit

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from pyarrow import fs
from pyspark.sql import DataFrame

from cepheid import expr as ex
from cepheid.backends.sources import Columns, columns_read, ticks_of, types_column
from cepheid.backends.spark.worker import (
    BASE,
    BUCKET,
    EVENTS,
    MASKS,
    POSITION,
    KernelTask,
    Slices,
    narrowed,
    settle_memory,
)
from cepheid.backends.stepping import TYPE
from cepheid.codegen.columns import attribute, kind_of, number_array
from cepheid.codegen.masks import masks
from cepheid.events import UNTYPED
from cepheid.kernels import Array
from cepheid.optimize.distribution import Distribution, Keyed, may_drop
from cepheid.physical import Kind, Plan

_MOST_FILES = 10_000
_FILE_BITS = 40
"""Positions number the files in their upper bits and the rows of each in these."""


@dataclass(frozen=True, slots=True)
class RowGroup:
    """A part of a file that is read at once."""

    file: int
    number: int
    first_row: int
    rows: int
    size: int


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file, and the type of its events where that is not in a column."""

    path: str
    type: str | None = None


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
        if not paths or len(paths) > _MOST_FILES or not all(_is_readable(path) for path in paths):
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
                    groups.append(RowGroup(number, at, first, group.num_rows, group.total_byte_size))
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

    def shares(self, count: int) -> list[tuple[RowGroup, ...]]:
        """The row groups in as many runs of about the same size."""
        size = max(self.size, 1)
        shares: list[list[RowGroup]] = [[] for _ in range(max(count, 1))]
        before = 0
        for group in self.groups:
            shares[min((before + group.size // 2) * len(shares) // size, len(shares) - 1)].append(group)
            before += group.size
        return [tuple(share) for share in shares if share]


def _is_readable(path: str) -> bool:
    return path.startswith(("file:", "/", "hdfs:", "s3:", "gs:"))


def _opened(path: str, dictionaries: Sequence[str] = ()) -> pq.ParquetFile:
    files, name = _storage(path)
    return pq.ParquetFile(files.open_input_file(name), read_dictionary=list(dictionaries))


def _storage(path: str) -> tuple[fs.FileSystem, str]:
    """Where the file lies, and its name there. Spark gives URIs, in which signs are escaped; Java writes `file:/tmp/x`
    where others write `file:///tmp/x`."""
    if path.startswith("file:"):
        return fs.LocalFileSystem(), unquote(urlsplit(path).path)
    return (fs.LocalFileSystem(), path) if path.startswith("/") else fs.FileSystem.from_uri(path)


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
class ReadTask:
    """Reads one share of the row groups and packs what can play a part."""

    plan: Plan
    columns: Columns
    schema: pa.Schema
    """The columns as Spark types them."""
    names: tuple[str, ...]
    """The columns that travel."""
    files: tuple[StoredFile, ...]
    shares: tuple[tuple[RowGroup, ...], ...]
    distribution: Distribution
    partitions: int
    slices: Slices | None
    numbered: bool
    """Whether every event brings its position, rather than only coming in order."""
    typed: bool = False
    """Whether a row without a type is no event."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for share in batch.column(0).to_pylist():
                for group in self._surviving(self.shares[share]):
                    yield from self._packed(group)
        settle_memory()

    def _surviving(self, share: tuple[RowGroup, ...]) -> Iterator[RowGroup]:
        """The row groups whose statistics do not rule out that an event plays a part."""
        for number, run in itertools.groupby(share, key=lambda group: group.file):
            groups, file = list(run), self.files[number]
            files, name = _storage(file.path)
            fragment = ds.ParquetFileFormat().make_fragment(name, files, row_groups=[group.number for group in groups])
            condition = None
            if may_drop(self.plan):
                present = pa.schema([field for field in self.schema if field.name in fragment.physical_schema.names])
                condition = may_matter(self.plan, present, self.columns.type, file.type)
            left = None if condition is None else {group.id for group in fragment.subset(condition).row_groups}
            yield from (group for group in groups if left is None or group.number in left)

    def _packed(self, group: RowGroup) -> Iterator[pa.RecordBatch]:
        events = self._relevant(group)
        base = (group.file << _FILE_BITS) + group.first_row
        if events is None:
            return
        for bucket, part in self._by_bucket(events):
            arrays = [pa.array([bucket], pa.int32()), pa.array([base], pa.int64()), _stream(part)]
            yield pa.RecordBatch.from_arrays(arrays, names=[BUCKET, BASE, EVENTS])

    def _relevant(self, group: RowGroup) -> pa.RecordBatch | None:
        """The events of a row group that matter; the columns that decide it are read first, the others only for a row
        group that has some."""
        file = self.files[group.file]
        kinds = [name for name in [self.columns.type] if name in self.schema.names and file.type is None]
        with _opened(file.path, kinds) as opened:
            tests = [node for bit in self.plan.bits for test in bit.tests for node in ex.walk(test)]
            tested = columns_read([node.name for node in tests if isinstance(node, ex.Attr)], self.schema)
            keys = self.distribution.attributes if isinstance(self.distribution, Keyed) else ()
            first = list(dict.fromkeys([*kinds, *tested, *columns_read(keys, self.schema), self.columns.time]))
            known = self._read(opened, group, first)
            mask = masks(self.plan, known, TYPE)
            kept = self._kept(known, mask)
            others = [name for name in self.names if name not in first]
            if kept is not None and not len(kept):
                return None
            rest = self._read(opened, group, others) if others else known
        arrays = [(known if name in first else rest).column(name) for name in self.names]
        arrays.append(pa.array(_narrow(mask, len(self.plan.bits))))
        names = [*self.names, MASKS]
        if self.numbered:
            base = (group.file << _FILE_BITS) + group.first_row
            arrays.append(pa.array(np.arange(base, base + group.rows)))
            names.append(POSITION)
        whole = pa.RecordBatch.from_arrays(arrays, names=names)
        return whole if kept is None else whole.take(pa.array(kept))

    def _read(self, opened: pq.ParquetFile, group: RowGroup, names: Sequence[str]) -> pa.RecordBatch:
        """Columns as Spark types them, null where the file has none, and the types of the events."""
        present = [name for name in names if name in opened.schema_arrow.names]
        table = opened.read_row_group(group.number, columns=present, use_threads=False).combine_chunks()
        given = self.files[group.file].type
        arrays = []
        for name in names:
            kind = self.schema.field(name).type
            arrays.append(_as(table.column(name), kind) if name in present else pa.nulls(group.rows, kind))
        read = pa.RecordBatch.from_arrays(arrays, names=list(names))
        if given is not None:
            kinds = pa.DictionaryArray.from_arrays(np.zeros(group.rows, np.int32), pa.array([given]))
        elif self.columns.type in present:
            column = table.column(self.columns.type)
            only = pa.RecordBatch.from_arrays([column.chunk(0)], names=[self.columns.type])
            kinds = types_column(only, self.columns)
        else:
            return read
        return read.append_column(TYPE, kinds)

    def _kept(self, known: pa.RecordBatch, mask: Array) -> Array | None:
        """The rows that travel; None for all."""
        wanted = ~np.asarray(known.column(self.columns.time).is_null())
        if self.typed:
            kinds = known.column(TYPE)
            wanted &= np.asarray(pc.not_equal(kinds.cast(pa.string()), UNTYPED).fill_null(False))
        if may_drop(self.plan):
            wanted &= mask & _parts(self.plan) != 0
        if isinstance(self.distribution, Keyed):
            for name in self.distribution.attributes:
                value = attribute(known, name)
                wanted &= ~np.asarray(value.is_null(nan_is_null=True)) if value is not None else False
        return None if bool(wanted.all()) else np.flatnonzero(wanted)

    # --- buckets ------------------------------------------------------------------------------------------------------

    def _by_bucket(self, events: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
        if self.partitions == 1:
            yield 0, events
            return
        if self.slices is not None:
            ticks = ticks_of(events.column(self.columns.time), self.columns.time)
            for number in range(self.slices.count):
                part = events.filter(pa.array(self.slices.covers(number, ticks)))
                if part.num_rows:
                    yield number, part
            return
        assert isinstance(self.distribution, Keyed)
        buckets = bucket_of([attribute(events, name) for name in self.distribution.attributes], self.partitions)
        order = np.argsort(buckets, kind="stable")
        sorted_events = events.take(pa.array(order))
        edges = np.searchsorted(buckets[order], np.arange(self.partitions + 1))
        for bucket in range(self.partitions):
            start, end = int(edges[bucket]), int(edges[bucket + 1])
            if end > start:
                yield bucket, sorted_events.slice(start, end - start)


@dataclass(frozen=True, slots=True)
class ReadAndMatch:
    """One task that reads all shares and finds the matches among their events."""

    read: ReadTask
    match: KernelTask

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return self.match(self.read(batches))


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


def bucket_of(keys: Sequence[pa.Array | None], count: int) -> Array:
    """The partition of each event: the same for equal keys, in every process."""
    mixed: Array | None = None
    for key in keys:
        assert key is not None
        hashed = _hashed(key)
        mixed = hashed if mixed is None else mixed * np.uint64(31) + hashed
    assert mixed is not None
    # Sixteen bits are sorted by counting, which takes no comparisons.
    return (mixed % np.uint64(count)).astype(np.uint16 if count <= 1 << 16 else np.uint32)


def _hashed(key: pa.Array) -> Array:
    kind = kind_of(key.type)
    if kind is Kind.CODE and not pa.types.is_boolean(key.type):
        encoded = key if pa.types.is_dictionary(key.type) else key.dictionary_encode()
        codes = [zlib.crc32(text.encode()) for text in encoded.dictionary.to_pylist()]
        return np.array(codes, np.uint64)[encoded.indices.to_numpy(zero_copy_only=False)]
    numbers = number_array(key, Kind.FLOAT if kind is Kind.FLOAT else Kind.INT)
    if kind is Kind.FLOAT:
        numbers = numbers + 0.0  # minus zero is zero
    bits = numbers.view(np.uint64)
    bits = (bits ^ (bits >> np.uint64(33))) * np.uint64(0xFF51AFD7ED558CCD)
    mixed: Array = bits ^ (bits >> np.uint64(33))
    return mixed


def _parts(plan: Plan) -> np.uint64:
    """The bits of the mask that are parts an event can play."""
    return np.uint64(sum(1 << i for i, bit in enumerate(plan.bits) if bit.var))


def _narrow(mask: Array, bits: int) -> Array:
    for kind in (np.uint8, np.uint16, np.uint32):
        if bits <= 8 * kind().itemsize:
            return mask.astype(kind)
    return mask


def _as(column: pa.ChunkedArray, kind: pa.DataType) -> pa.Array:
    array = (
        column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks) if column.num_chunks else None
    )
    if array is None:
        return pa.array([], kind)
    return array if array.type == kind else array.cast(kind, safe=False)


def _stream(events: pa.RecordBatch) -> pa.Array:
    """The events as one binary value, which is not copied on its way to Spark."""
    sink, narrow = pa.BufferOutputStream(), narrowed(events)
    with pa.ipc.new_stream(sink, narrow.schema) as writer:
        writer.write_batch(narrow)
    content = sink.getvalue()
    edges = pa.py_buffer(np.array([0, content.size], np.int32))
    return pa.Array.from_buffers(pa.binary(), 1, [None, edges, content])
