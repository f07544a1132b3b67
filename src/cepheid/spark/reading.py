"""Reads files with Arrow in Spark's workers, without rows in the JVM.

Spark schedules shares of the files. A worker reads the required columns, computes masks, drops the events that no
variable can bind, and packs the events of each partition into one Arrow stream. Only those streams are shuffled.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cepheid.acquire.nearby import Nearby
from cepheid.codegen.columns import attribute, number_array, types_of
from cepheid.codegen.masks import derived_column, masks
from cepheid.codegen.typed_columns import Strings
from cepheid.events import UNTYPED
from cepheid.io.event_columns import is_time, one_type, starts_in_time, ticks_of, types_column, why_no_start
from cepheid.io.formats.csv import CsvReader, ParsedLines, RejectedLine
from cepheid.io.inputs import Columns
from cepheid.io.rejects import no_time
from cepheid.io.rows import TYPE, aligned, in_ticks, one_batch, python_values
from cepheid.io.shares import Footers, OpenedPart, Part, ShareReader
from cepheid.io.source import columns_read
from cepheid.io.times import not_whole, out_of_range
from cepheid.optimize.distribution import Distribution, Keyed, may_drop
from cepheid.physical import Plan
from cepheid.runtime.kernel import Array
from cepheid.spark.worker import BASE, BUCKET, EVENTS, KIND, MASKS, POSITION, Slices, narrowed, settle_memory
from cepheid.streaming.pack import bucket_numbers


@dataclass(slots=True)
class ReadCounts:
    """What was read of some parts (row groups) of files."""

    groups: int = 0
    """Parts of which some column was read."""
    decoded: int = 0
    """Those of which other columns than type and time were."""
    rows: int = 0
    """Their rows."""
    moved: int = 0
    """The rows that were handed on."""


def read_text(title: str, read: ReadCounts) -> str:
    return f"{title}: {read.decoded:,} row groups, {read.rows:,} rows decoded, {read.moved:,} rows moved"


class _Possible(NamedTuple):
    """The columns that were read first, and the rows that they leave; None: all."""

    read: list[pa.RecordBatch]
    rows: Array | None


def _of(rows: Array | None, selected: Array) -> Array:
    return selected if rows is None else rows[selected]


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


@dataclass(frozen=True, slots=True)
class ReadTask:
    """Reads a share of the files and packs the events that can be part of a match."""

    plan: Plan | None
    """Its masks decide which events are shuffled; None: their types alone do."""
    columns: Columns
    schema: pa.Schema
    """The columns in Spark's types."""
    names: tuple[str, ...]
    """The columns to shuffle."""
    reader: ShareReader
    shares: tuple[tuple[Part, ...], ...]
    distribution: Distribution
    partitions: int
    slices: Slices | None
    numbered: bool
    """Whether a column holds the position of each event. Otherwise only their order is known."""
    masked: bool = True
    """Whether masks are shuffled. Otherwise the types of the events are, and the task computes masks itself."""
    types: frozenset[str] | None = None
    """The event types that can matter; None: all."""
    typed: bool = False
    """Whether rows without a type are rejected, in files that have a type column."""
    within: Nearby | None = None
    """The times and keys outside of which no event matters; None: all matter."""
    near_key: str | None = None
    """The attribute that the keys of `within` are values of."""
    by_type: bool = False
    """Whether few events matter, so that the types are read first, and other columns only where some type fits."""

    @property
    def _filter_columns(self) -> list[str]:
        """The columns that decide whether an event is shuffled, besides its type."""
        keys = self.distribution.attributes if isinstance(self.distribution, Keyed) else ()
        tested = () if self.plan is None else self.plan.tested
        return columns_read([*tested, *keys, *self.columns.times], self.schema)

    @property
    def needed(self) -> list[str]:
        """The columns to read."""
        kinds = [self.columns.type] if self.columns.type in self.schema.names else []
        return list(dict.fromkeys([*kinds, *self._filter_columns, *self.names]))

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        footers: Footers = {}
        for batch in batches:
            for share in batch.column(0).to_pylist():
                for part in self._surviving(self.shares[share]):
                    yield from self._packed(part, footers)
        settle_memory()

    def _surviving(self, share: Sequence[Part]) -> Iterable[Part]:
        return share if self.plan is None else self.reader.surviving(share, self.plan, self.schema, self.columns.type)

    def _packed(self, part: Part, footers: Footers) -> Iterator[pa.RecordBatch]:
        events = self.relevant(part, footers)
        if events is None:
            return
        for bucket, some in self._by_bucket(events):
            arrays = [pa.array([bucket], pa.int32()), pa.array([part.base], pa.int64()), _stream(some)]
            yield pa.RecordBatch.from_arrays(arrays, names=[BUCKET, BASE, EVENTS])

    def relevant(self, part: Part, footers: Footers, counts: ReadCounts | None = None) -> pa.RecordBatch | None:
        """The events of a part to shuffle. The columns that decide it are read first, and the others only if there are
        such events."""
        counts = ReadCounts() if counts is None else counts
        type, kinds, first = self._first_columns(part)
        others = [name for name in self.names if name not in first]
        texts = [] if self.within is None else [name for name in others if _is_text(self.schema.field(name).type)]
        with self.reader.opened(part, [*first, *others], [*kinds, *texts], footers) as opened:
            counts.groups += 1
            possible = self._possible(opened, kinds, type)
            if possible is None:
                return None
            if not {*first, *others} <= {*kinds, *self.columns.times}:
                counts.decoded += 1
                counts.rows += opened.rows
            known = self._further(opened, first, type, possible)
            mask = None if self.plan is None else masks(self.plan, known, TYPE)
            selected = self._selected(known, mask, needs_type=self.typed and type is None)
            if selected is not None and not len(selected):
                return None
            rows = possible.rows if selected is None else _of(possible.rows, selected)
            rest = self._read(opened, others, type, rows) if others else None
        counts.moved += opened.rows if rows is None else len(rows)
        if selected is not None:
            known = known.take(pa.array(selected))
        arrays = [known.column(name) if name in first or rest is None else rest.column(name) for name in self.names]
        names = [*self.names, MASKS if self.masked else KIND]
        if self.masked:
            assert self.plan is not None and mask is not None
            arrays.append(pa.array(_narrow(mask if selected is None else mask[selected], len(self.plan.bits))))
        else:
            arrays.append(known.column(TYPE) if TYPE in known.schema.names else one_type(UNTYPED, known.num_rows))
        if self.numbered:
            arrays.append(pa.array(part.base + (np.arange(opened.rows) if rows is None else rows)))
            names.append(POSITION)
        return pa.RecordBatch.from_arrays(arrays, names=names)

    def _first_columns(self, part: Part) -> tuple[str | None, list[str], list[str]]:
        """The type of all events of a part, or the column of their types; and the columns that decide whether an event
        is shuffled."""
        type = self.reader.files[part.file].type
        kinds = [name for name in [self.columns.type] if name in self.schema.names and type is None]
        return type, kinds, [*kinds, *(name for name in self._filter_columns if name not in kinds)]

    def tested(self, part: Part, footers: Footers, rows: int) -> pa.RecordBatch:
        """The columns that decide whether an event is shuffled, of the first rows of a part."""
        type, kinds, first = self._first_columns(part)
        with self.reader.opened(part, first, kinds, footers) as opened:
            return self._read(opened.first(rows), first, type)

    def _possible(self, opened: OpenedPart, kinds: Sequence[str], type: str | None) -> _Possible | None:
        """The rows that types and times leave, where few events are expected. None if they leave no row."""
        read: list[pa.RecordBatch] = []
        fits: Array | None = None
        if self.by_type and self.plan is not None and may_drop(self.plan):
            wanted = {name for bit in self.plan.bits if bit.var for name in bit.types}
            is_typed = all(bit.types for bit in self.plan.bits if bit.var)
            if is_typed and type is not None and type not in wanted:
                return None
            if is_typed and kinds:
                read.append(self._read(opened, kinds, None))
                names, codes = types_of(read[0], TYPE)
                fits = np.array([name in wanted for name in names], bool)[codes]
                if not fits.any():
                    return None
        if self.within is not None:
            read.append(self._read(opened, [self.columns.time], None))
            held = self.within.holds(self._times(read[-1]), None)
            fits = held if fits is None else fits & held
            if not fits.any():
                return None
        return _Possible(read, None if fits is None else np.flatnonzero(fits))

    def _further(
        self, opened: OpenedPart, names: Sequence[str], type: str | None, possible: _Possible
    ) -> pa.RecordBatch:
        """These columns of the rows that are left, some of which have been read."""
        if not possible.read:
            return self._read(opened, names, type)
        taken = [batch.take(pa.array(possible.rows)) for batch in possible.read]
        known = {name: batch.column(name) for batch in taken for name in batch.schema.names}
        rest = self._read(opened, [name for name in names if name not in known], type, possible.rows)
        known |= {name: rest.column(name) for name in rest.schema.names if name not in known}
        own = [*names, *([TYPE] if TYPE in known else [])]
        return pa.RecordBatch.from_arrays([known[name] for name in own], names=own)

    def _times(self, known: pa.RecordBatch) -> Array:
        ticks = in_ticks(known.column(self.columns.time)).cast(pa.int64(), safe=False).fill_null(0)
        times: Array = np.asarray(ticks)
        return times

    def _read(
        self, opened: OpenedPart, names: Sequence[str], type: str | None, rows: Array | None = None
    ) -> pa.RecordBatch:
        """Columns in Spark's types (null if the file lacks them), and the types of the events. `rows` are those to
        read; None: all."""
        present = [name for name in names if name in opened.names]
        table = opened.read(present)
        table = (table if rows is None else table.take(pa.array(rows))).combine_chunks()
        count = opened.rows if rows is None else len(rows)
        arrays = []
        for name in names:
            kind = self.schema.field(name).type
            arrays.append(_as(table.column(name), kind) if name in present else pa.nulls(count, kind))
        if not arrays and type is None:
            return pa.RecordBatch.from_arrays([], names=[])
        read = pa.RecordBatch.from_arrays(arrays, names=list(names))
        if type is not None:
            kinds = one_type(type, count)
        elif self.columns.type in present:
            column = table.column(self.columns.type).combine_chunks()
            kinds = types_column(pa.RecordBatch.from_arrays([column], names=[self.columns.type]), self.columns)
        else:
            return read
        return pa.RecordBatch.from_arrays([*read.columns, kinds], names=[*names, TYPE])

    def _selected(self, known: pa.RecordBatch, mask: Array | None, needs_type: bool) -> Array | None:
        """The rows to shuffle. None for all."""
        wanted = is_event(known, self.columns)
        if self.within is not None:
            keys = None if self.near_key is None else attribute(known, self.near_key)
            wanted &= self.within.holds(self._times(known), keys)
        if needs_type:
            kinds = known.column(TYPE)
            wanted &= np.asarray(pc.not_equal(kinds.cast(pa.string()), UNTYPED).fill_null(False))
        if self.types is not None and TYPE in known.schema.names:
            names, codes = types_of(known, TYPE)
            wanted &= np.array([name in self.types for name in names], bool)[codes]
        if self.plan is not None and mask is not None and may_drop(self.plan):
            wanted &= mask & _variable_bits(self.plan) != 0
        if isinstance(self.distribution, Keyed) and not self.distribution.nulls_match:
            for name in self.distribution.attributes:
                value = attribute(known, name)
                wanted &= ~np.asarray(value.is_null(nan_is_null=True)) if value is not None else False
        return None if bool(wanted.all()) else np.flatnonzero(wanted)

    # --- buckets ------------------------------------------------------------------------------------------------------

    def _with_computed(self, events: pa.RecordBatch) -> pa.RecordBatch:
        """The events with the parts of the key that are no columns of the input."""
        assert isinstance(self.distribution, Keyed)
        for name in self.distribution.computed:
            assert self.plan is not None
            found, rows = derived_column(self.plan, events, name), events.num_rows
            if isinstance(found.values, Strings):
                values = found.values.encoded(rows, found.valid)
            else:
                values = pa.array(number_array(found, self.plan.types[name], rows))
            events = events.append_column(name, values)
        return events

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
        buckets = bucket_numbers(self._with_computed(events), self.distribution.attributes, self.partitions)
        # NumPy sorts 16-bit integers by counting.
        order = np.argsort(buckets.astype(np.uint16) if self.partitions <= 1 << 16 else buckets, kind="stable")
        sorted_events = events.take(pa.array(order))
        edges = np.searchsorted(buckets[order], np.arange(self.partitions + 1))
        for bucket in range(self.partitions):
            start, end = int(edges[bucket]), int(edges[bucket + 1])
            if end > start:
                yield bucket, sorted_events.slice(start, end - start)


COUNTED = "groups long, decoded long, rows long, moved long, events binary"


@dataclass(frozen=True, slots=True)
class CountedRead:
    """Reads some shares and counts what it reads: a row for each share, with its events if they are wanted."""

    read: ReadTask
    with_events: bool = True

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        footers: Footers = {}
        for share in (share for batch in batches for share in batch.column(0).to_pylist()):
            counts, found = ReadCounts(), []
            for part in self.read._surviving(self.read.shares[share]):
                events = self.read.relevant(part, footers, counts)
                if events is not None and self.with_events:
                    found.append(_decoded(events))
            content = None
            if found:
                sink = pa.BufferOutputStream()
                with pa.ipc.new_stream(sink, found[0].schema) as writer:
                    for events in found:
                        writer.write_batch(events)
                content = sink.getvalue().to_pybytes()
            arrays = [pa.array([number], pa.int64()) for number in astuple(counts)]
            yield pa.RecordBatch.from_arrays(
                [*arrays, pa.array([content], pa.binary())], names=["groups", "decoded", "rows", "moved", "events"]
            )
        settle_memory()


def _decoded(events: pa.RecordBatch) -> pa.RecordBatch:
    """Without dictionaries, which differ from part to part."""
    columns = [
        column.dictionary_decode() if pa.types.is_dictionary(column.type) else column for column in events.columns
    ]
    return pa.RecordBatch.from_arrays(columns, names=events.schema.names)


def is_event_time(column: pa.Array) -> Array:
    """Whether each value is the time of an event: present, in range, and whole."""
    fits = is_time(column)
    if pa.types.is_floating(column.type):
        fits &= np.asarray(pc.equal(column, pc.floor(column)).fill_null(False))
    return fits


def is_event(rows: pa.RecordBatch, columns: Columns) -> Array:
    """Whether each row has the times of an event: whole, in range, and its start not after its end."""
    fits = is_event_time(rows.column(columns.time))
    if columns.start is not None:
        fits &= is_event_time(rows.column(columns.start)) & starts_in_time(rows, columns)
    return fits


def why_no_event(rows: pa.RecordBatch, row: int, columns: Columns) -> str:
    """The reason to reject a row of these."""
    if columns.start is not None and is_event_time(rows.column(columns.time).slice(row, 1)).all():
        start = rows.column(columns.start).slice(row, 1)
        is_fraction = is_time(start).all() and not is_event_time(start).all()
        return not_whole(start[0].as_py(), "start") if is_fraction else why_no_start(rows, row, columns)
    time = rows.column(columns.time).slice(row, 1)
    value = python_values(time)[0]
    if value is None or value != value:
        return no_time(columns.time)
    return out_of_range(value) if not is_time(time).all() else not_whole(value)


FIRST, LAST = "first", "last"


@dataclass(frozen=True, slots=True)
class ReadTimes:
    """Reads the first and the last time of each part, for files without statistics."""

    read: ReadTask

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        time = self.read.columns.time
        for batch in batches:
            for part in (part for share in batch.column(0).to_pylist() for part in self.read.shares[share]):
                with self.read.reader.opened(part, [time], []) as opened:
                    column = _as(opened.read([time]).column(time), self.read.schema.field(time).type)
                ticks = ticks_of(column.filter(pa.array(is_event_time(column))), time)
                if len(ticks):
                    yield pa.RecordBatch.from_pydict({FIRST: [int(ticks.min())], LAST: [int(ticks.max())]})


# --- rejects ----------------------------------------------------------------------------------------------------------

PATH, LINE = "path", "line"
"""The columns of a rejected line, besides the reason."""


@dataclass(frozen=True, slots=True)
class CsvRejects:
    """Reads the rejected lines of some shares, with the reason."""

    reader: CsvReader
    shares: tuple[tuple[Part, ...], ...]
    names: tuple[str, ...]
    """The columns that the query reads. The others are not parsed."""
    columns: Columns
    reason: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for share in batch.column(0).to_pylist():
                for part in self.shares[share]:
                    yield from self._rejects(part)

    def _rejects(self, part: Part) -> Iterator[pa.RecordBatch]:
        rejects: list[tuple[bytes, str]] = []
        for read in self.reader.read(part, self.names):
            if isinstance(read, RejectedLine):
                rejects.append((read.line, read.reason))
            else:
                rows = one_batch(read.rows)
                rejected = np.flatnonzero(~is_event(rows, self.columns)).tolist()
                lines = read.lines.split(b"\n") if rejected else []
                rejects += ((lines[at], why_no_event(rows, at, self.columns)) for at in rejected)
        if rejects:
            texts = [line.rstrip(b"\r\n").decode(errors="backslashreplace") for line, _ in rejects]
            columns = {PATH: [self.reader.files[part.file].path] * len(rejects), LINE: texts}
            yield pa.RecordBatch.from_pydict({**columns, self.reason: [reason for _, reason in rejects]})


@dataclass(frozen=True, slots=True)
class CsvRows:
    """Reads all rows of some shares. Columns that the query does not read are null."""

    reader: CsvReader
    shares: tuple[tuple[Part, ...], ...]
    names: tuple[str, ...]
    """The columns that the query reads."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for part in (part for share in batch.column(0).to_pylist() for part in self.shares[share]):
                for read in self.reader.read(part, self.names):
                    if isinstance(read, ParsedLines) and read.rows.num_rows:
                        yield aligned(one_batch(read.rows), self.reader.schema)


# --- columns ----------------------------------------------------------------------------------------------------------


def _variable_bits(plan: Plan) -> np.uint64:
    """The bits of the mask that stand for a variable of the pattern."""
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
    """The events as one binary value, without a copy of the serialized bytes."""
    sink, narrow = pa.BufferOutputStream(), narrowed(events)
    with pa.ipc.new_stream(sink, narrow.schema) as writer:
        writer.write_batch(narrow)
    content = sink.getvalue()
    edges = pa.py_buffer(np.array([0, content.size], np.int32))
    return pa.Array.from_buffers(pa.binary(), 1, [None, edges, content])
