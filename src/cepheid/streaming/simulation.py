"""A stream in one process, without Spark: the same packing, buckets, states and watermark.

Every batch starts from serialized states, as after a restart. Spark adds storage and scheduling.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from operator import attrgetter

import pyarrow as pa
import pyarrow.compute as pc

from cepheid.optimize.adapt import Switch
from cepheid.runtime.kernel import END_OF_TIME
from cepheid.streaming.ahead import Jump
from cepheid.streaming.bucket_context import BucketContext, Moved
from cepheid.streaming.outputs import QUERY
from cepheid.streaming.pack import Packet, pack
from cepheid.streaming.parts import BucketParts, moved_states, read_moved, write_moved
from cepheid.streaming.plan import StreamPlan


@dataclass(frozen=True, slots=True)
class Simulated:
    """The output of a simulated stream: the matches of each query, late events, and rejects."""

    matches: dict[str, list[pa.RecordBatch]]
    late: list[pa.RecordBatch]
    rejects: list[pa.RecordBatch]
    states: tuple[int, ...] = ()
    """The size of all states in bytes, after each batch."""
    switches: list[tuple[str, Switch]] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)
    """The keys whose events were ignored, with the reason."""


@dataclass(slots=True)
class Simulation:
    plan: StreamPlan
    states: dict[int, bytes] = field(default_factory=dict)
    spark_watermark: int = 0
    """In milliseconds, as Spark counts it."""
    sizes: list[int] = field(default_factory=list)
    tasks: int = 3
    """The number of tasks that read a batch."""
    now: int = 0
    """The wall clock in microseconds."""
    count: int = 0
    """The number of rows read."""
    used: int = 0
    """The number of events that were not late."""
    jumps: list[Jump] = field(default_factory=list)
    moved: Moved = field(default_factory=dict)
    """The states of queries that were moved."""

    def move(self, plan: StreamPlan) -> None:
        """Goes on with the plan after a change that moves queries."""
        moved = moved_states(BucketContext(self.plan, self.moved), self.states, plan)
        self.moved = read_moved(write_moved(moved, plan.fingerprint()), plan.fingerprint())
        self.plan = plan

    def run(self, batches: Iterable[pa.RecordBatch], *, end_of_time: bool = True) -> Simulated:
        out = Simulated({name: [] for name in self.plan.names}, [], [])
        for batch in batches:
            tasks = [pack(self.plan, part, self.now) for part in _parts(batch, self.tasks)]
            self.count += sum(task.count for task in tasks)
            before = self.watermark
            self._batch([packet for task in tasks for packet in task.packets], before, out)
            newest = max((task.newest for task in tasks if task.newest), key=attrgetter("ticks"), default=None)
            if before > -END_OF_TIME and (jump := Jump.between(before, self.watermark, self.plan.window, newest)):
                self.jumps.append(jump)
        if end_of_time:
            self._batch([], END_OF_TIME, out)
        return replace(out, states=tuple(self.sizes))

    @property
    def watermark(self) -> int:
        return self.plan.time.watermark(self.spark_watermark)

    def _by_query(self, matches: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        """The matches of each query, without the column that names it."""
        if not self.plan.is_several:
            yield self.plan.names[0], matches
            return
        names, rows = matches.column(QUERY), matches.drop_columns([QUERY])
        for name in names.unique().to_pylist():
            yield name, rows.filter(pc.equal(names, name))

    def _batch(self, arrived: list[Packet], watermark: int, out: Simulated) -> None:
        context = BucketContext(self.plan, self.moved)
        out.rejects.extend(packet.rows for packet in arrived if packet.rejected)
        called = {packet.bucket for packet in arrived if not packet.rejected}
        last = self.states.keys() | self.plan.summing if watermark == END_OF_TIME else set()
        for number in sorted(called | last):
            data = self.states.pop(number, None)
            bucket = BucketParts.load(context, number, data)
            came = [packet for packet in arrived if packet.bucket == number]
            ahead = [self.plan.time.watermark_after(packet.latest, self.plan.delay) for packet in came]
            output = bucket.step(
                [packet.rows for packet in came if not packet.rejected], watermark, max(ahead, default=-END_OF_TIME)
            )
            if self.plan.reports(number):
                self.used += sum(packet.rows.num_rows for packet in came if not packet.rejected)
            if output.late is not None:
                self.used -= output.late.num_rows
                out.late.append(output.late)
            for _, matches in output.matches:
                for name, rows in self._by_query(matches):
                    out.matches.setdefault(name, []).append(rows)
            out.dropped.extend(reason for _, reason in output.dropped)
            out.switches.extend((self.plan.queries[query].name, switch) for query, switch in output.switches)
            if not bucket.is_empty:
                self.states[number] = bucket.save()
        self.sizes.append(sum(map(len, self.states.values())))
        latest = [packet.latest for packet in arrived if packet.latest is not None]
        if latest:
            moment = self.plan.time.to_spark_micros(max(latest)) // 1000 - self.plan.delay
            self.spark_watermark = max(self.spark_watermark, moment)


def _parts(batch: pa.RecordBatch, tasks: int) -> Iterator[pa.RecordBatch]:
    """A batch as several tasks read it, none of which knows the rows of the others."""
    size = max(-(-batch.num_rows // tasks), 1)
    for start in range(0, batch.num_rows, size):
        yield batch.slice(start, size)
