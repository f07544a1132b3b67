"""Streams on Spark: throughput compared with batch, latency of a micro-batch by part, and cost of the state.

Throughput is that of the steady state, without the batches in which Spark and Numba compile.
"""

from __future__ import annotations

import os
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

import cepheid
from bench.measure import Outcome, Sample, Variant
from bench.report import Benchmark, Column, Report
from bench.spark import counted, cpu_of, measured, running
from cepheid.datasets import synthetic
from cepheid.spark.stream import RunningStream
from cepheid.streaming import bucket_state
from cepheid.streaming.bucket_context import BucketContext
from cepheid.streaming.compact import read_arrays
from cepheid.streaming.plan import StreamPlan

_QUERY = "EVENT SEQ(E1 a, E2 b, E3 c) WHERE [attr1] WITHIN {window}"
_CORES = 2
_WATERMARK = 100
_PARTS = 4
_WARMING_UP = 30
"""Batches that are not measured, because the JVM still compiles."""
_SMALL = 150
"""The number of small batches before large ones are measured, for the same reason."""
_STARTED_AGAIN = 3
"""Batches that are not measured after the restart of a warm stream."""
_PHASES = {
    "addBatch": "events, kernel, state, output",
    "walCommit": "log of offsets",
    "commitOffsets": "log of commits",
    "latestOffset": "list of files",
    "queryPlanning": "Spark's planning",
}


@dataclass(frozen=True, slots=True)
class Batches:
    """The micro-batches of a stream after the warm-up: their milliseconds, in total and by phase."""

    milliseconds: Sequence[float]
    phases: Mapping[str, float]
    cpus: Sequence[float]
    """The CPU seconds of each."""
    state_bytes: int
    """The size in storage."""
    matches: int
    running: RunningStream

    @property
    def median(self) -> float:
        return statistics.median(self.milliseconds)

    @property
    def cpu(self) -> float:
        return statistics.mean(self.cpus)


def files(directory: Path, sizes: Sequence[int], keys: int) -> Path:
    """Writes a stream as several files per micro-batch, so that all cores read."""
    directory.mkdir()
    events = sum(sizes)
    table = synthetic(events, 3, (keys,), seed=1)
    table = table.append_column("value", pa.array(np.random.default_rng(1).random(events)))
    at = 0
    for number, part in enumerate(size // _PARTS for size in sizes for _ in range(_PARTS)):
        path = directory / f"{number:05}.parquet"
        pq.write_table(table.slice(at, part), path)
        os.utime(path, (number + 1, number + 1))  # Spark reads files in the order of their times
        at += part
    return directory


def streamed(
    session: SparkSession,
    source: Path,
    work: Path,
    queries: str | Mapping[str, str],
    warming_up: int = _WARMING_UP,
    files_per_batch: int = _PARTS,
    **options: Any,
) -> Batches:
    """Reads all new files, one micro-batch at a time."""
    schema = session.read.parquet(str(source)).schema
    events = session.readStream.schema(schema).option("maxFilesPerTrigger", files_per_batch).parquet(str(source))
    spent = [cpu_of(session)]
    stream = cepheid.stream(
        queries,
        events,
        checkpoint=str(work / "checkpoint"),
        output=str(work / "output"),
        available_now=True,
        end_of_time=False,
        on_progress=lambda _: spent.append(cpu_of(session)),
        **{"watermark": _WATERMARK, **options},
    )
    stream.wait()
    batches = [progress for progress in stream.query.recentProgress if progress.numInputRows]
    metrics = stream.metrics()
    steady = batches[warming_up:] or batches
    warm = spent[warming_up:] if len(spent) > warming_up + 1 else spent
    return Batches(
        [progress.durationMs["triggerExecution"] for progress in steady],
        {name: statistics.median(p.durationMs.get(name, 0) for p in steady) for name in _PHASES},
        [after - before for before, after in pairwise(warm)],
        metrics.state_bytes,
        sum(metrics.matches.values()),
        stream,
    )


def require_equal(batch: DataFrame, stream: DataFrame) -> None:
    """Fails unless a stream has written exactly the matches of batch."""
    missing, unexpected = batch.exceptAll(stream).count(), stream.exceptAll(batch).count()
    if missing or unexpected:
        raise AssertionError(f"the stream lacks {missing} matches of batch, and has {unexpected} others")


# --- throughput -------------------------------------------------------------------------------------------------------


def throughput(quick: bool) -> Report:
    """Interleaves batch and stream, so that both see the same phases of the machine. Returns the medians."""
    rounds, batches, size, keys, window = (2, 3, 2_000, 50, 100) if quick else (4, 15, 500_000, 10_000, 10_000)
    query, events = _QUERY.format(window=window), rounds * batches * size
    of_batch, of_stream = [], []
    with running(f"local[{_CORES}]") as session, tempfile.TemporaryDirectory() as directory:
        whole, source = files(Path(directory) / "whole", [size] * rounds * batches, keys), Path(directory) / "source"
        source.mkdir()

        def batch() -> Outcome:
            found = cepheid.match(query, session.read.parquet(str(whole)))
            found.write.mode("overwrite").parquet(str(Path(directory) / "matches"))
            return counted(session.read.parquet(str(Path(directory) / "matches")))

        one = Variant(events, "batch", events, batch)
        measured(session, [one], repeats=1)  # until Spark has compiled
        if not quick:
            small = files(Path(directory) / "small", [size // 100] * _SMALL, keys)
            streamed(session, small, Path(directory) / "warm", query)
        arriving = sorted(whole.iterdir())
        for number in range(rounds):
            of_batch += measured(session, [one], repeats=1, warm=False)
            for path in arriving[number * batches * _PARTS : (number + 1) * batches * _PARTS]:
                os.link(path, source / path.name)
            of_stream.append(streamed(session, source, Path(directory), query, _STARTED_AGAIN))
        # Without the events that the watermark has not passed, the output would not be complete.
        last = sum(of_stream[-1].running.end_time().values())
        output = session.read.parquet(str(Path(directory) / "output"))
        require_equal(session.read.parquet(str(Path(directory) / "matches")), output)
    middle = sorted(of_batch, key=lambda sample: sample.wall)[len(of_batch) // 2]
    seconds = statistics.median(ms for part in of_stream for ms in part.milliseconds) / 1000
    cpu = statistics.mean(part.cpu for part in of_stream)
    matches = sum(part.matches for part in of_stream) + last
    stream = Sample(events, "stream", size, Outcome(matches), cpu, seconds, question="stream")
    return Report(
        "stream",
        f"a stream in micro-batches of {size:,} events compared with batch over the same files",
        "events",
        (middle, stream),
        "the target is half the throughput of batch, in wall time.",
        columns=(
            Column("x batch (wall)", lambda s: f"{s.events / s.wall / (middle.events / middle.wall):.2f}"),
            Column("x batch (CPU)", lambda s: f"{s.throughput / middle.throughput:.2f}"),
            Column("ms per batch", lambda s: f"{1000 * s.wall:.0f}"),
        ),
        value=lambda sample: sample.events / sample.wall,
        value_title="events/s (wall)",
        log_y=False,
    )


# --- cost of a batch --------------------------------------------------------------------------------------------------


def overhead(quick: bool) -> Report:
    """Batches so small that the cost of their events is negligible."""
    batches, size, keys, window = (3, 100, 10, 50) if quick else (60, 1_000, 100, 1_000)
    with running(f"local[{_CORES}]") as session, tempfile.TemporaryDirectory() as directory:
        source = files(Path(directory) / "source", [size] * batches, keys)
        found = streamed(session, source, Path(directory), _QUERY.format(window=window))
    sample = partial(Sample, events=size, outcome=Outcome(found.matches), cpu=found.cpu)
    samples = [sample(point="the whole batch", variant="median", wall=found.median / 1000)]
    for name, meaning in _PHASES.items():
        samples.append(sample(point=meaning, variant="median", wall=max(found.phases[name], 0.001) / 1000))
    return Report(
        "stream-overhead",
        f"latency of a micro-batch of {size:,} events, by part",
        "part",
        tuple(samples),
        "Spark's micro-batches have a floor of about 100 ms.",
        columns=(Column("ms", lambda s: f"{1000 * s.wall:.0f}"),),
        value=lambda s: 1000 * s.wall,
        value_title="milliseconds",
        log_y=False,
    )


# --- cost of the state ------------------------------------------------------------------------------------------------


def _live_bytes(session: SparkSession, work: Path, plan: StreamPlan) -> int:
    """The state in memory during a batch: rows of events and arrays of the kernel."""
    context, live = BucketContext(plan), 0
    states = session.read.format("statestore").load(str(work / "checkpoint")).select("value.groupState.s")
    for row in states.collect():
        bucket = bucket_state.load(context, bytes(row["s"]))
        live += bucket.rows.table.nbytes + bucket.waiting.nbytes
        for number, (memory, _) in bucket.memory.items():
            kernel = context.kernel(number, plan.queries[number].prepared.plan)
            live += sum(array.nbytes for array in read_arrays(memory, kernel.arrays))
    return live


def state(quick: bool) -> Report:
    """Windows of increasing length, with enough events before the measurement to fill them, so that the state grows."""
    batches, size, keys, windows = (
        (3, 500, 50, (100, 500))
        if quick
        else (12, 20_000, 2_000, (20_000, 60_000, 200_000, 400_000, 800_000, 1_600_000))
    )
    samples, live, stored = [], {}, {}
    with running(f"local[{_CORES}]") as session, tempfile.TemporaryDirectory() as directory:
        if not quick:
            warm = files(Path(directory) / "warm", [size] * _WARMING_UP, keys)
            streamed(session, warm, Path(directory) / "warmed", _QUERY.format(window=windows[0]))
        for window in windows:
            source = files(Path(directory) / f"{window}", [window, *[size] * batches], keys)
            # The query has no matches, so that only the state differs.
            query = f"EVENT SEQ(E1 a, E2 b, E3 c) WHERE [attr1] AND c.value < a.value - 1 WITHIN {window}"
            work = Path(directory) / f"{window}-work"
            found = streamed(session, source, work, query, batches // 2)
            live[window], stored[window] = _live_bytes(session, work, found.running.stream.plan), found.state_bytes
            wall = found.median / 1000
            samples.append(
                Sample(window, "stream", size, Outcome(found.matches), found.cpu, wall, question=f"{window}")
            )
    return Report(
        "stream-state",
        f"latency of a micro-batch of {size:,} events by size of the state",
        "window",
        tuple(samples),
        "the target is at most twice the time when the state grows from 1 to 10 MB per partition.",
        columns=(
            Column("state, MB per partition", lambda s: f"{live[int(str(s.point))] / _CORES / 1e6:.2f}"),
            Column("stored", lambda s: f"{stored[int(str(s.point))] / _CORES / 1e6:.2f}"),
            Column("ms per batch", lambda s: f"{1000 * s.wall:.0f}"),
            Column("x the first", lambda s: f"{s.wall / samples[0].wall:.2f}"),
        ),
        value=lambda s: 1000 * s.wall,
        value_title="ms per batch",
        log_y=False,
    )


BENCHMARKS = (
    Benchmark("stream", "target: throughput of a stream compared with batch", throughput),
    Benchmark("stream-overhead", "latency of a micro-batch by part", overhead),
    Benchmark("stream-state", "target: latency of a micro-batch by size of the state", state),
)
