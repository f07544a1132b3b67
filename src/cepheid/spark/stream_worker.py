"""Tasks of Spark's Python workers in a stream: rows are packed by bucket, and buckets process a batch."""

from __future__ import annotations

import hashlib
import json
import pickle
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from operator import attrgetter
from typing import Any, NamedTuple

import pandas as pd
import pyarrow as pa
from pyspark import TaskContext

from cepheid.runtime.kernel import END_OF_TIME
from cepheid.spark.bucket_groups import bucket_of, group_numbers
from cepheid.spark.worker import settle_memory, together
from cepheid.streaming import bucket_state
from cepheid.streaming.ahead import Jump, Newest
from cepheid.streaming.bucket import Bucket
from cepheid.streaming.bucket_context import NOTHING, BucketContext, Moved
from cepheid.streaming.compact import read_rows, write_rows
from cepheid.streaming.delivery import JUMPS, READ, OutputRow, cost_row, output_rows, reject_row, state_row
from cepheid.streaming.pack import Packed, from_bytes, pack, to_bytes
from cepheid.streaming.parts import BucketParts
from cepheid.streaming.plan import StreamPlan

PACKED = "grouped int, kind string, ahead long, block binary, at timestamp"
OUTPUT = "kind string, query int, number long, block binary"
NOW = "\ue000now"
"""The time of the batch by the wall clock, in microseconds: Spark repeats a batch with the same time."""
EVENTS, _REJECTS, _SUMMARY = "events", "rejects", "summary"
"""The kinds of blocks."""
STATE = "s binary"
"""One flat column, in lower case: the only schema that Spark never asks a state to change."""

_PACKED_ARROW = pa.schema(
    [
        ("grouped", pa.int32()),
        ("kind", pa.string()),
        ("ahead", pa.int64()),
        ("block", pa.binary()),
        ("at", pa.timestamp("us", "UTC")),
    ]
)
_OUTPUT_ARROW = pa.schema(
    [("kind", pa.string()), ("query", pa.int32()), ("number", pa.int64()), ("block", pa.binary())]
)


_BATCH = "streaming.sql.batchId"
"""The property of a task with the number of its batch. Internal to Spark, so held by a test."""
_MOST_CONTEXTS = 8
_contexts: dict[bytes, BucketContext] = {}
"""A worker serves many tasks, and makes the kernels of a plan once. By a hash of the plan."""


class Version(NamedTuple):
    """A plan for the workers, which read it once, from the batch on that it holds for. Later versions replace it."""

    first_batch: int
    data: bytes
    digest: bytes

    @classmethod
    def of(cls, plan: StreamPlan, first_batch: int, moved: Moved = NOTHING) -> Version:
        data = pickle.dumps((plan, moved))
        return cls(first_batch, data, hashlib.blake2b(data, digest_size=16).digest())

    @property
    def context(self) -> BucketContext:
        if self.digest not in _contexts:
            if len(_contexts) >= _MOST_CONTEXTS:
                _contexts.clear()
            _contexts[self.digest] = BucketContext(*pickle.loads(self.data))
        return _contexts[self.digest]


def _now(versions: Sequence[Version]) -> BucketContext:
    """The version of the batch at hand: one that is repeated has the same."""
    if len(versions) == 1:
        return versions[0].context
    task = TaskContext.get()
    number = None if task is None else task.getLocalProperty(_BATCH)
    assert number is not None, "Spark tells the batch of a task"
    return [version for version in versions if version.first_batch <= int(number)][-1].context


@dataclass(frozen=True, slots=True)
class Pack:
    """The rows of a task as one block for each bucket. With each goes the time of the task's latest event: as `at`, of
    which Spark makes the watermark of the next batch, and as that watermark, `ahead`, which the bucket sees."""

    versions: tuple[Version, ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = together(batches)
        if rows is None:
            return
        plan = _now(self.versions).plan
        now = 0
        if NOW in rows.schema.names:
            now, rows = rows.column(NOW)[0].as_py(), rows.drop_columns([NOW])
        packed = pack(plan, rows, now)
        if packed.count:
            yield self._blocks(plan, packed)
        settle_memory()

    def _blocks(self, plan: StreamPlan, packed: Packed) -> pa.RecordBatch:
        time, delay = plan.time, plan.delay
        numbers = group_numbers(plan.all_buckets)
        summary = json.dumps({"read": packed.count, "newest": packed.newest and asdict(packed.newest)}).encode()
        blocks = [
            (numbers[packet.bucket], packet.latest, _REJECTS, to_bytes(packet.rows))
            if packet.rejected
            else (numbers[packet.bucket], packet.latest, EVENTS, write_rows(packet.rows))
            for packet in packed.packets
        ]
        blocks.append((numbers[0], blocks[0][1], _SUMMARY, summary))
        columns = [
            pa.array([group for group, *_ in blocks], pa.int32()),
            pa.array([kind for _, _, kind, _ in blocks], pa.string()),
            pa.array([time.watermark_after(latest, delay) for _, latest, *_ in blocks], pa.int64()),
            pa.array([block for *_, block in blocks], pa.binary()),
            pa.array(
                [0 if latest is None else time.to_spark_micros(latest) for _, latest, *_ in blocks],
                pa.timestamp("us", "UTC"),
            ),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=_PACKED_ARROW)


@dataclass(frozen=True, slots=True)
class Step:
    """Processes one batch of one bucket: its state and new events become its new state and output."""

    versions: tuple[Version, ...]

    def __call__(self, key: tuple[int], frames: Iterable[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
        context = _now(self.versions)
        plan = context.plan
        blocks: dict[str, list[bytes]] = {EVENTS: [], _REJECTS: [], _SUMMARY: []}
        ahead = -END_OF_TIME
        for frame in frames:
            for kind, block in zip(frame["kind"], frame["block"], strict=True):
                blocks[kind].append(block)
            ahead = max([ahead, *map(int, frame["ahead"])])
        before = state.get[0] if state.exists else None
        number = bucket_of(key[0], plan.all_buckets)
        bucket = BucketParts.load(context, number, before)
        watermark = plan.time.watermark(state.getCurrentWatermarkMs())
        arrived = [read_rows(block, context.packed_schema(number)) for block in blocks[EVENTS]]
        output = bucket.step(arrived, watermark, ahead)
        after = b""
        if not bucket.is_empty:
            after = bucket.save()
            if after != before:
                state.update((after,))
        elif before is not None:
            state.remove()
        events = sum(batch.num_rows for batch in arrived) if plan.reports(bucket.number) else 0
        reached = max(watermark, ahead)
        known = reached if reached > -END_OF_TIME else None
        rows = [*output_rows(output), *map(reject_row, blocks[_REJECTS]), state_row(number, len(after), known, events)]
        if output.costs:
            rows.append(cost_row(number, output))
        rows.extend(self._summary_rows(plan, blocks[_SUMMARY], watermark, reached))
        yield pd.DataFrame(rows, columns=_OUTPUT_ARROW.names)
        settle_memory()

    def _summary_rows(self, plan: StreamPlan, summaries: list[bytes], before: int, after: int) -> Iterator[OutputRow]:
        """The number of rows that the tasks of the batch have read, and a jump of the watermark."""
        tasks = [json.loads(summary) for summary in summaries]
        if tasks:
            yield OutputRow(READ, 0, sum(task["read"] for task in tasks), b"")
        newest = max((Newest(**task["newest"]) for task in tasks if task["newest"]), key=_TICKS, default=None)
        jump = Jump.between(before, after, plan.window, newest) if before > -END_OF_TIME else None
        if jump is not None:
            yield OutputRow(JUMPS, 0, 1, jump.to_json())


_TICKS = attrgetter("ticks")


@dataclass(frozen=True, slots=True)
class Drain:
    """The output that buckets would have if no event came any more; their states do not change."""

    version: Version

    def without_events(self, called: Collection[int]) -> list[OutputRow]:
        """The summaries of the buckets that have no state, since none of their queries has seen an event."""
        context = self.version.context
        numbers = sorted(context.plan.summing - {*called})
        return [row for number in numbers for row in output_rows(Bucket.new(context, number).step([], END_OF_TIME))]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = self.version.context
        for batch in batches:
            for data in batch.column(0).to_pylist():
                bucket = BucketParts.load(context, bucket_state.number_of(data), data)
                rows = [*output_rows(bucket.step([], END_OF_TIME)), state_row(bucket.number, 0, None, 0)]
                columns = [list(column) for column in zip(*rows, strict=True)] or [[], [], [], []]
                arrays = [pa.array(c, f.type) for c, f in zip(columns, _OUTPUT_ARROW, strict=True)]
                yield pa.RecordBatch.from_arrays(arrays, schema=_OUTPUT_ARROW)


@dataclass(frozen=True, slots=True)
class Unpack:
    """Blocks of matches as rows again, where a Spark writer takes them."""

    schema: pa.Schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for block in batch.column(0).to_pylist():
                yield from_bytes(block, self.schema)
