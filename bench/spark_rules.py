"""Many queries on a Spark stream: rules of families against one rule, and queries without a key on one slot and on two.

The targets: 1,000 rules at 40 % of the throughput of one, in micro-batches of 500,000 events; and 200 queries without a
key on two slots at 1.7 times one slot. The time of a batch on several cores depends on what else the machine does, so
each variant also has the *critical path* by CPU time: the longest task that packs events, and the longest bucket.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from bench.measure import Outcome, Sample
from bench.report import Benchmark, Column, Report
from bench.rules import card_rules
from bench.spark import running
from bench.streaming import Batches, streamed
from cepheid import datasets
from cepheid.deploy.deployment import Written
from cepheid.engine.prepare import RunOptions
from cepheid.io.inputs import Columns
from cepheid.streaming.bucket_context import BucketContext
from cepheid.streaming.compact import read_rows, write_rows
from cepheid.streaming.pack import pack
from cepheid.streaming.parts import BucketParts
from cepheid.streaming.plan import StreamPlan
from cepheid.streaming.planning import StreamOptions, StreamSource, plan_queries
from cepheid.streaming.reader import RowReader

_TASKS = 2


@dataclass(slots=True)
class Stream:
    """The tasks of a stream, one after the other in this process: rows are packed, and buckets read and save states."""

    plan: StreamPlan
    states: dict[int, bytes] = field(default_factory=dict)
    watermark: int = 0
    matches: int = 0

    @classmethod
    def of(cls, queries: Mapping[str, str], schema: pa.Schema, types: list[str], slots: int, unit: str) -> Stream:
        attributes = {kind: {each.name: each.type for each in schema} for kind in types}
        source = StreamSource(RowReader(schema, Columns()), attributes, seen=tuple(types), epoch_unit=unit)
        options = StreamOptions(0, RunOptions(time_unit=unit), ("ts",), slots)
        written = {name: Written(name, text) for name, text in queries.items()}
        plan, refused = plan_queries(written, source, options, is_several=True)
        for error in refused.values():
            raise error
        return cls(plan)

    def batch(self, events: pa.Table) -> tuple[float, float]:
        """The CPU seconds of the critical path, and of all tasks."""
        context, rows = BucketContext(self.plan), events.combine_chunks().to_batches()[0]
        size, packing, blocks = -(-rows.num_rows // _TASKS), [], []
        for start in range(0, rows.num_rows, size):
            began = time.thread_time()
            packets = pack(self.plan, rows.slice(start, size)).packets
            blocks += [(packet.bucket, packet.latest, write_rows(packet.rows)) for packet in packets]
            packing.append(time.thread_time() - began)
        latest = max(latest for _, latest, _ in blocks if latest is not None)
        ahead, stepping = self.plan.time.watermark_after(latest, self.plan.delay), []
        for number in range(self.plan.all_buckets):
            began = time.thread_time()
            bucket = BucketParts.load(context, number, self.states.get(number))
            schema = context.packed_schema(number)
            arrived = [read_rows(block, schema) for to, _, block in blocks if to == number]
            output = bucket.step(arrived, self.plan.time.watermark(self.watermark), ahead)
            self.matches += sum(output.counts.values())
            self.states[number] = bucket.save()
            stepping.append(time.thread_time() - began)
        self.watermark = self.plan.time.to_spark_micros(latest) // 1000 - self.plan.delay
        return max(packing) + max(stepping), sum(packing) + sum(stepping)


def _interleaved(variants: Mapping[str, Stream], events: Callable[[int], pa.Table], batches: int) -> list[Sample]:
    """The best batch of each variant after the first one, which compiles. All see the same batches."""
    best: dict[str, tuple[float, float]] = {}
    for number in range(batches):
        table = events(number)
        for name, stream in variants.items():
            found = stream.batch(table)
            if number:
                best[name] = min(found, best.get(name, found))
    size = events(0).num_rows
    return [
        Sample(name, name, size, Outcome(stream.matches), best[name][1], best[name][0], question=name)
        for name, stream in variants.items()
    ]


def _report(name: str, title: str, samples: list[Sample], baseline: str, note: str) -> Report:
    of = {sample.variant: sample for sample in samples}
    return Report(
        name,
        title,
        "variant",
        tuple(samples),
        note,
        columns=(
            Column("critical path, s", lambda s: f"{s.wall:.3f}"),
            Column(f"x {baseline}", lambda s: f"{of[baseline].wall / s.wall:.2f}"),
        ),
        value=lambda s: s.events / s.wall,
        value_title="events/s (critical path by CPU time)",
        log_y=False,
    )


def _on_spark(session: SparkSession, texts: Mapping[str, str], source: Path, work: Path, skipped: int) -> Batches:
    """A stream over all files, one in a batch."""
    return streamed(session, source, work, texts, skipped, files_per_batch=1, watermark=0, time_unit="ms")


def rules_on_spark(quick: bool) -> Report:
    """The streams are interleaved, each twice; of each the best median counts."""
    size, count, batches, skipped = (600, 20, 3, 1) if quick else (500_000, 1_000, 6, 2)
    table = datasets.cards(size * batches, accounts=8 if quick else 20_000)
    texts = card_rules(count, quick)
    one = dict([*texts.items()][:1])
    best: dict[str, Sample] = {}
    with running(f"local[{_TASKS}]") as session, tempfile.TemporaryDirectory(prefix="cepheid-") as directory:
        source = Path(directory) / "in"
        source.mkdir()
        for number in range(batches):
            pq.write_table(table.slice(number * size, size), source / f"{number:03}.parquet", row_group_size=size // 4)
            os.utime(source / f"{number:03}.parquet", (number + 1, number + 1))
        for turn in range(2):
            for name, of in (("one rule", one), (f"{count:,} rules", texts)):
                ran = _on_spark(session, of, source, Path(directory) / f"{name} {turn}", skipped)
                cpu, wall = statistics.median(ran.cpus), ran.median / 1000
                found = Sample(name, name, size, Outcome(ran.matches), cpu, wall, question=name)
                best[name] = min(best.get(name, found), found, key=lambda sample: sample.cpu)
    samples, first = [*best.values()], best["one rule"]
    return Report(
        "spark-rules",
        f"rules on a Spark stream in micro-batches of {size:,} events",
        "variant",
        tuple(samples),
        "the target is 0.4 times the throughput of one rule.",
        columns=(
            Column("x one rule (CPU)", lambda s: f"{first.cpu / s.cpu:.2f}"),
            Column("x one rule (wall)", lambda s: f"{first.wall / s.wall:.2f}"),
        ),
        value=lambda s: s.throughput,
        value_title="events/s (CPU)",
        log_y=False,
    )


def rules(quick: bool) -> Report:
    """Rules over one card stream, keyed: they are spread over the buckets."""
    size, count, batches = (600, 20, 2) if quick else (500_000, 1_000, 3)
    table = datasets.cards(size * batches, accounts=8 if quick else 20_000)
    texts = card_rules(count, quick)
    one = dict([*texts.items()][:1])
    variants = {
        "one rule": Stream.of(one, table.schema, ["t"], _TASKS, "ms"),
        f"{count:,} rules": Stream.of(texts, table.schema, ["t"], _TASKS, "ms"),
    }
    samples = _interleaved(variants, lambda number: table.slice(number * size, size), batches)
    note = "the tasks of Python alone, without what Spark does for one rule as for many."
    return _report("spark-rules-tasks", f"rules in micro-batches of {size:,} events", samples, "one rule", note)


_TYPES = [f"E{number}" for number in range(20)]


def _without_key(count: int) -> dict[str, str]:
    chance, found = np.random.default_rng(2), {}
    for number in range(count):
        a, b, c = chance.choice(len(_TYPES), 3, replace=False)
        gap, window = 900 + int(chance.integers(80)), 100 + int(chance.integers(60))
        found[f"q{number}"] = (
            f"EVENT SEQ(E{a} a, E{b} b, E{c} c) WHERE a.v < b.v AND b.v < c.v AND c.v - a.v > {gap} WITHIN {window}"
        )
    return found


def slots(quick: bool) -> Report:
    size, count, batches = (300, 4, 2) if quick else (500_000, 200, 3)
    chance, total = np.random.default_rng(1), size * batches
    kinds = np.array(_TYPES)[chance.integers(0, len(_TYPES), total)]
    table = pa.table({"type": kinds, "ts": np.arange(total), "v": chance.integers(0, 1000, total)})
    texts = _without_key(count)
    if quick:
        texts["often"] = "EVENT SEQ(E1 a, E2 b) WHERE a.v < b.v WITHIN 50"
    variants = {
        name: Stream.of(texts, table.schema, _TYPES, several, "ms")
        for name, several in (("one slot", 1), ("two slots", 2))
    }
    samples = _interleaved(variants, lambda number: table.slice(number * size, size), batches)
    title = f"{count} queries without a key in micro-batches of {size:,} events"
    return _report("spark-slots", title, samples, "one slot", "the target is 1.7 times one slot.")


BENCHMARKS = (
    Benchmark("spark-rules", "target: many rules on a Spark stream, against one", rules_on_spark),
    Benchmark("spark-rules-tasks", "many rules in the tasks of a stream, against one", rules),
    Benchmark("spark-slots", "target: queries without a key on two slots, against one", slots),
)
