"""Packing of events by bucket: one block of bytes for each bucket, instead of one row for each event."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa

from cepheid.codegen.columns import attribute, types_of
from cepheid.codegen.masks import masks
from cepheid.engine.prepare import Prepared
from cepheid.engine.spread import input_types
from cepheid.io.event_columns import readable_rows, starts_of, types_column, with_type_and_time
from cepheid.io.rows import TIME, TYPE, in_ticks, one_batch
from cepheid.io.stream_rows import Read
from cepheid.runtime.kernel import Array
from cepheid.streaming.ahead import Newest
from cepheid.streaming.plan import StreamPlan
from cepheid.types import Family, from_arrow


@dataclass(frozen=True, slots=True)
class Packed:
    """The rows that a task has read: packets for the buckets, the number of rows, and the newest event."""

    packets: list[Packet]
    count: int
    newest: Newest | None


@dataclass(frozen=True, slots=True)
class Packet:
    """The events of one bucket, or rejects. `latest` is the time in ticks of the latest event among all packets that
    were made together, whatever its bucket."""

    bucket: int
    rejected: bool
    rows: pa.RecordBatch
    latest: int | None


def pack(plan: StreamPlan, rows: pa.RecordBatch, now: int = 0) -> Packed:
    """The rows of a task by bucket. `now` is the time of the batch by the wall clock, in microseconds."""
    read = plan.reader.read(rows)
    count = read.count
    if plan.ahead is not None:
        read = plan.ahead.applied(read, now)
    return Packed(list(_packets(plan, read)), count, Newest.of(read.events, read.ticks))


def _packets(plan: StreamPlan, read: Read) -> Iterator[Packet]:
    """An event goes to one bucket of each key, and to all buckets of queries without a key.

    Every bucket gets a packet, even an empty one. So all buckets know the latest time, whichever task read which rows,
    and a batch that is repeated by other tasks after a failure releases the same events."""
    events, ticks = read.events, read.ticks
    latest = int(ticks.max()) if events.num_rows else None
    if read.rejects.num_rows:
        yield Packet(0, True, read.rejects, latest)
    if not events.num_rows:
        return
    whole = _with_masks(plan, events, ticks)
    for number, key in enumerate(plan.keys):
        first = number * plan.buckets
        if not key:
            yield from _for_slots(plan, first, whole, latest)
            continue
        without_events = set(range(first, first + plan.buckets))
        buckets = first + bucket_numbers(events, key, plan.buckets)
        # NumPy sorts 16-bit integers by counting.
        order = np.argsort(buckets.astype(np.uint16) if plan.all_buckets <= 1 << 16 else buckets, kind="stable")
        whole_of_key = whole.select(plan.packed_schema(first).names)
        ordered = whole_of_key.take(pa.array(order))
        edges = np.flatnonzero(np.diff(buckets[order], prepend=-1, append=-1))
        for start, end in pairwise(edges.tolist()):
            bucket = int(buckets[order[start]])
            without_events.remove(bucket)
            yield Packet(bucket, False, ordered.slice(start, end - start), latest)
        for bucket in sorted(without_events):
            yield Packet(bucket, False, whole_of_key.slice(0, 0), latest)


def _for_slots(plan: StreamPlan, first: int, whole: pa.RecordBatch, latest: int | None) -> Iterator[Packet]:
    """For each bucket with queries without a key the events that may matter to them, and all for the one that counts
    them."""
    for bucket in range(first, first + plan.slots):
        own = whole.select(plan.packed_schema(bucket).names)
        if not plan.reports(bucket):
            wanted = plan.relevant(bucket, own)
            own = own if wanted is None else own.filter(pa.array(wanted))
        yield Packet(bucket, False, own, latest)


def _with_masks(plan: StreamPlan, events: pa.RecordBatch, ticks: Array) -> pa.RecordBatch:
    names = events.schema.names
    columns = plan.reader.columns
    typed = with_type_and_time(readable_rows(events), names, types_column(events, columns), ticks)
    starts = starts_of(events, columns, ticks)
    arrays = [*events.columns, typed.column(TIME), *([] if starts is None else [pa.array(starts)])]
    if plan.tracks_versions:
        arrays.append(pa.array(np.full(events.num_rows, plan.version)))
    for query in plan.queries:
        if not query.by_oracle:
            arrays.append(pa.array(_masks(query.prepared, typed)))
    return pa.RecordBatch.from_arrays(arrays, schema=plan.packed_schema())


def _masks(prepared: Prepared, typed: pa.RecordBatch) -> Array:
    """The masks of events; those for a query that others feed only tell whether an event can matter."""
    if prepared.graph is None:
        return masks(prepared.plan, typed, TYPE)
    wanted = input_types(prepared)
    if wanted is None:
        return np.ones(typed.num_rows, np.uint64)
    names, codes = types_of(typed, TYPE)
    return np.asarray(np.array([name in wanted for name in names], np.uint64)[codes])


# --- buckets ----------------------------------------------------------------------------------------------------------


def bucket_numbers(events: pa.RecordBatch, key: Sequence[str], buckets: int) -> Array:
    """The bucket of each event by its key. It must never change: states are stored by bucket."""
    mixed = np.zeros(events.num_rows, np.uint64)
    for name in key:
        column = attribute(events, name)
        assert column is not None, "a key is a column of the input"
        mixed = _mixed(mixed ^ _numbers(column))
    return (mixed % np.uint64(buckets)).astype(np.int64)


def _numbers(column: pa.Array) -> Array:
    if pa.types.is_floating(column.type):
        # 0.0 and -0.0 are equal and have different bits.
        floats = np.asarray(column.cast(pa.float64()).fill_null(0.0)) + 0.0
        return floats.view(np.uint64)
    column = in_ticks(column)
    if pa.types.is_uint64(column.type):
        return np.asarray(column.fill_null(0))
    if pa.types.is_integer(column.type) or pa.types.is_boolean(column.type):
        return np.asarray(column.cast(pa.int64()).fill_null(0)).astype(np.int64).view(np.uint64)
    encoded = column.dictionary_encode()
    is_bytes = from_arrow(column.type).family is Family.BINARY
    values = encoded.dictionary.cast(pa.binary() if is_bytes else pa.string()).cast(pa.binary()).to_pylist()
    sums = np.array([zlib.crc32(value) for value in values] or [0], np.uint64)
    return np.asarray(sums[np.asarray(encoded.indices.fill_null(0))])


def _mixed(numbers: Array) -> Array:
    """The finalizer of SplitMix64, which scatters consecutive keys."""
    with np.errstate(over="ignore"):
        numbers = (numbers + np.uint64(0x9E3779B97F4A7C15)) * np.uint64(0xBF58476D1CE4E5B9)
        numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return np.asarray(numbers ^ (numbers >> np.uint64(31)))


# --- bytes ------------------------------------------------------------------------------------------------------------


def to_bytes(rows: pa.RecordBatch) -> bytes:
    """Arrow IPC without the schema, which both ends know."""
    return bytes(rows.serialize())


def from_bytes(data: bytes, schema: pa.Schema) -> pa.RecordBatch:
    return pa.ipc.read_record_batch(pa.py_buffer(data), schema)


def joined(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """The rows of some batches in one, which is not copied if the others are empty."""
    filled = [batch for batch in batches if batch.num_rows] or [*batches[:1]]
    return filled[0] if len(filled) == 1 else one_batch(pa.Table.from_batches(filled))
