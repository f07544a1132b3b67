"""Spark batch: Cepheid compared with the obvious pipeline and with Spark SQL.

CPU time is the sum over the JVM and its Python workers.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import cepheid
from bench import spark as this_module
from bench.measure import Outcome, Sample, Variant, interleaved
from bench.processes import cpu_of_family, pinned, seconds_of_two
from bench.report import Benchmark, Column, Report
from cepheid.datasets import synthetic
from cepheid.engine.stepping import Stepper, encoder_for
from cepheid.io.source import BATCH
from cepheid.kernels.registry import kernel_for
from cepheid.spark import batch as spark_batch
from cepheid.spark import worker as spark_worker

OBVIOUS = "read, repartition, sort, count"
FRAME, FILES_ALONE = "Cepheid, DataFrame", "Cepheid, Parquet"
UNSHOWN, EMPTY = ", matches not shown", ", no kernel"
KERNEL = "CPU seconds of kernels"
PARTITIONS = 4
FILES = 4
REPEATS = 12
"""A JVM compiles for about ten runs, which costs more than a small job."""
IN_A_ROW = 4
"""Runs of one variant stay together, because garbage collection and compilation spill over into the next run."""
ENOUGH = 15.0
"""A variant stops after these seconds, but not before its second run."""
ROUNDS = 21
"""The number of runs whose median resolves differences of a few percent."""
LONG_ENOUGH = 60.0
"""A variant of these stops after as many seconds: fewer runs on a busy machine."""
STREAMS = ((3, "every event matters"), (20, "3 of 20 types matter (W1)"))
"""The number of event types in a stream; the query uses three."""
QUERY = "EVENT SEQ(E1 a, E2 b, E3 c) WHERE [attr1] WITHIN {window}"


# --- measuring --------------------------------------------------------------------------------------------------------


@contextmanager
def running(master: str) -> Iterator[SparkSession]:
    """A new session. Workers do not have this package on their path, so its functions are pickled by value."""
    cloudpickle.register_pickle_by_value(this_module)  # type: ignore[no-untyped-call]
    session = cepheid.session(master)
    try:
        yield session
    finally:
        session.stop()


def cpu_of(session: SparkSession) -> float:
    """CPU seconds of the JVM and its descendants."""
    return cpu_of_family(int(session._jvm.java.lang.ProcessHandle.current().pid()))  # type: ignore[union-attr]


def measured(
    session: SparkSession,
    variants: Sequence[Variant],
    repeats: int = REPEATS,
    warm: bool = True,
    by: Callable[[Sample], float] = lambda sample: sample.cpu,
) -> list[Sample]:
    """The best of several interleaved runs of each variant, after a warm-up run in which Spark and Numba compile."""
    spent, in_a_row = partial(cpu_of, session), min(repeats, IN_A_ROW)
    return interleaved(variants, repeats=repeats, warm=warm, cpu=spent, enough=ENOUGH, in_a_row=in_a_row, by=by)


def stored(directory: Path, events: int, types: int, keys: int) -> str:
    """Parquet files of a stream: type, time, key and one more value."""
    table = synthetic(events, types, (keys,), seed=1)
    table = table.append_column("value", pa.array(np.random.default_rng(1).random(events)))
    return in_files(directory / f"{events}-{types}-{keys}", table)


def in_files(path: Path, table: pa.Table) -> str:
    """The events in several Parquet files of several row groups."""
    path.mkdir()
    size = -(-table.num_rows // FILES)
    for number in range(FILES):
        part = table.slice(number * size, size)
        pq.write_table(part, path / f"{number}.parquet", row_group_size=max(size // 3, 1))
    return str(path)


# --- variants ---------------------------------------------------------------------------------------------------------


def obvious(session: SparkSession, path: str) -> Outcome:
    """The pipeline that one would write without Cepheid, up to the matching."""

    def count(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pydict({"rows": [sum(batch.num_rows for batch in batches)]})

    events = session.read.parquet(path).repartition(PARTITIONS, "attr1").sortWithinPartitions("attr1", "ts")
    return _told(events.mapInArrow(count, "rows long").agg(F.sum("rows")))


def _told(one_row: DataFrame) -> Outcome:
    """Reduces a DataFrame to one number."""
    row = one_row.first()
    assert row is not None
    return Outcome(int(row[0]))


def counted(rows: DataFrame) -> Outcome:
    return _told(rows.agg(F.count("*")))


def matched(query: str, events: Any, session: SparkSession, time_unit: str | None = None) -> Outcome:
    return counted(cepheid.match(query, events, session=session, partitions=PARTITIONS, time_unit=time_unit))


class NoKernel(spark_worker.KernelTask):
    """The whole path of events, with a kernel that does nothing."""

    def _matches(self, events: pa.RecordBatch, rows: Any) -> Iterator[Any]:
        encoder_for(kernel_for(self.prepared.plan)).encode(events)
        return iter(())


def no_output(clock: Path) -> type[spark_worker.KernelTask]:
    """The kernel finds all matches, without output. The CPU seconds of each task's kernel are written to a file."""

    class NoOutput(spark_worker.KernelTask):
        def _matches(self, events: pa.RecordBatch, rows: Any) -> Iterator[Any]:
            stepper = Stepper.start(kernel_for(self.prepared.plan), events.num_rows)
            encoded = stepper.encoder.encode(events)
            began = time.process_time()
            for parts in (stepper.step_encoded(encoded, BATCH), stepper.finish_lazily()):
                sum(map(len, parts))
            with clock.open("a") as file:
                file.write(f"{time.process_time() - began}\n")
            return iter(())

    return NoOutput


def clocked(clock: Path, run: Callable[[], Outcome]) -> Outcome:
    """The matches of a run and the CPU seconds of its kernels."""
    clock.write_text("")
    found = run()
    return replace(found, counted={KERNEL: sum(map(float, clock.read_text().split()))})


def with_task(task: type[spark_worker.KernelTask], run: Callable[[], Outcome]) -> Outcome:
    with mock.patch.object(spark_batch, "KernelTask", task):
        return run()


Tasks = Mapping[str, Callable[[Callable[[], Outcome]], Outcome]]
"""Ways to run a query by the suffixes of their names, besides the usual one."""
WITHOUT_KERNEL: Tasks = {EMPTY: partial(with_task, NoKernel)}


def side_by_side(
    session: SparkSession,
    point: str,
    events: int,
    path: str,
    run: Callable[[Any], Outcome],
    tasks: Tasks,
    quick: bool,
    enough: float = LONG_ENOUGH,
) -> list[Sample]:
    """A query over a DataFrame and over Parquet files, as usual and in other ways: the medians of as many runs as fit
    into `enough` seconds each."""
    samples = []
    for source, given in ((FRAME, session.read.parquet(path)), (FILES_ALONE, path)):
        once = partial(run, given)
        variants = [Variant(point, source, events, once)]
        variants += [Variant(point, source + s, events, partial(way, once), "none") for s, way in tasks.items()]
        interleaved(variants, repeats=1 if quick else REPEATS // 2)  # the JVM compiles during these runs
        spent, repeats = partial(cpu_of, session), 1 if quick else ROUNDS
        samples += interleaved(variants, repeats=repeats, warm=False, cpu=spent, enough=enough, typical=True)
    return samples


def on_cores(events: int, queries: Mapping[str, Callable[[SparkSession], Outcome]]) -> tuple[list[Sample], float]:
    """Queries on one core and on two, pinned to them, and how much two processes that only count gain from two."""
    samples = []
    for cores in (1, 2):
        with running(f"local[{cores}]") as session, pinned(cores):
            variants = [Variant(f"{cores}", n, events, partial(run, session), n) for n, run in queries.items()]
            samples += measured(session, variants, by=lambda sample: sample.wall)
    return samples, seconds_of_two(1) / seconds_of_two(2)


def _joins(session: SparkSession, path: str, window: int, wanted: str) -> DataFrame:
    """The same sequence in Spark SQL."""
    session.read.parquet(path).createOrReplaceTempView("events")
    return session.sql(
        f"""
        SELECT {wanted} FROM events a
        JOIN events b ON b.attr1 = a.attr1 AND b.ts > a.ts AND b.ts < a.ts + {window}
        JOIN events c ON c.attr1 = a.attr1 AND c.ts > b.ts AND c.ts < a.ts + {window}
        WHERE a.type = 'E1' AND b.type = 'E2' AND c.type = 'E3'
        """
    )


def joined(session: SparkSession, path: str, window: int) -> Outcome:
    return _told(_joins(session, path, window, "count(*)"))


def made_whole(make: Callable[[], DataFrame], rows: Outcome) -> Outcome:
    """Computes every row with all its columns, and drops it."""
    make().write.format("noop").mode("overwrite").save()
    return rows


# --- benchmarks -------------------------------------------------------------------------------------------------------


def spark_batch_paths(quick: bool) -> Report:
    events, window, keys = (20_000, 500, 100) if quick else (5_000_000, 10_000, 10_000)
    query = QUERY.format(window=window)
    samples = []
    with running("local[2]") as session, tempfile.TemporaryDirectory() as directory:
        for types, point in STREAMS:
            path = stored(Path(directory), events, types, keys)
            variant = partial(Variant, point, events=events)
            variants = [
                variant(OBVIOUS, run=partial(obvious, session, path), question="rows"),
                variant("Spark SQL joins", run=partial(joined, session, path, window)),
                variant(FRAME, run=partial(matched, query, session.read.parquet(path), session)),
                variant(FILES_ALONE, run=partial(matched, query, path, session)),
            ]
            samples += measured(session, variants)
    return Report(
        "spark",
        "SEQ(E1, E2, E3) of one key, from Parquet, in batch",
        "stream",
        tuple(samples),
        "the targets are 2x the plain pipeline from Parquet, 1.3x from a DataFrame, 3x with 3 of 20 types; 5x joins.",
        baseline=OBVIOUS,
        log_y=False,
    )


def spark_kernel(quick: bool) -> Report:
    events, window, keys = (20_000, 500, 100) if quick else (5_000_000, 10_000, 10_000)
    query = QUERY.format(window=window)
    samples = []
    with running("local[2]") as session, tempfile.TemporaryDirectory() as directory:
        clock = Path(directory) / "clock"
        unshown = partial(with_task, no_output(clock))
        tasks: Tasks = {UNSHOWN: lambda run: clocked(clock, partial(unshown, run)), **WITHOUT_KERNEL}
        for types, point in STREAMS:
            path = stored(Path(directory), events, types, keys)
            run = partial(matched, query, session=session)
            samples += side_by_side(session, point, events, path, run, tasks, quick)
    return Report(
        "spark-kernel",
        "SEQ(E1, E2, E3) of one key in batch, and the same pipeline with a kernel that does nothing",
        "stream",
        tuple(samples),
        f"the target is 95 % of the pipeline without a kernel. Each figure is the median of {ROUNDS} runs. The "
        "variance between two pipelines is as large as the cost of a kernel; the kernel's own timer, in the same run, "
        "measures its share exactly.",
        columns=(
            Column("kernel (ns per event)", lambda s: _clocked(s, lambda seconds: f"{1e9 * seconds / s.events:.1f}")),
            Column("share outside the kernel", lambda s: _clocked(s, lambda seconds: f"{1 - seconds / s.cpu:.1%}")),
            Column("x the pipeline without a kernel", lambda s: share_of_empty(s, samples)),
        ),
        log_y=False,
    )


def _clocked(sample: Sample, told: Callable[[float], str]) -> str:
    """A column computed from the CPU seconds of the kernels, if they are known."""
    return told(sample.outcome.counted[KERNEL]) if KERNEL in sample.outcome.counted else ""


def share_of_empty(sample: Sample, samples: Sequence[Sample]) -> str:
    """The throughput of a pipeline relative to the pipeline without a kernel."""
    source = sample.variant.removesuffix(UNSHOWN).removesuffix(EMPTY)
    empty = [s for s in samples if s.variant == source + EMPTY and s.point == sample.point]
    return f"{sample.throughput / empty[0].throughput:.0%}" if empty else ""


def spark_joins(quick: bool) -> Report:
    """W1: Spark SQL compares all pairs of a key, whatever their distance, so it slows down as the stream grows."""
    window = 500 if quick else 10_000
    sizes = ((10_000, 100),) if quick else ((1_000_000, 10_000), (1_000_000, 100), (4_000_000, 100))
    query, structs = QUERY.format(window=window), "struct(a.*) AS a, struct(b.*) AS b, struct(c.*) AS c"
    samples = []
    with running("local[2]") as session, tempfile.TemporaryDirectory() as directory:
        for events, keys in sizes:
            path = stored(Path(directory), events, 20, keys)
            rows = matched(query, path, session)
            assert rows == joined(session, path, window)
            by_joins = partial(made_whole, partial(_joins, session, path, window, structs), rows)
            by_cepheid = partial(made_whole, partial(cepheid.match, query, path, session=session), rows)
            variant = partial(Variant, f"{events:,} events, {keys:,} keys", events=events)
            variants = [variant("Spark SQL joins", run=by_joins), variant(FILES_ALONE, run=by_cepheid)]
            # As many runs as the time allows: the JVM compiles a job of half a second for more than ten runs.
            samples += measured(session, variants, repeats=3 * REPEATS)
    return Report(
        "spark-joins",
        "SEQ(E1, E2, E3) of one key, 20 types (W1), every match with its events",
        "stream",
        tuple(samples),
        "the target is 5x the throughput of Spark SQL joins.",
        baseline="Spark SQL joins",
        log_y=False,
    )


def spark_cores(quick: bool) -> Report:
    events, window, keys = (20_000, 500, 100) if quick else (5_000_000, 10_000, 10_000)
    query = QUERY.format(window=window)
    with tempfile.TemporaryDirectory() as directory:
        path = stored(Path(directory), events, 3, keys)
        samples, ceiling = on_cores(events, {FILES_ALONE: partial(matched, query, path)})
    one = samples[0].wall
    return Report(
        "spark-cores",
        "the same stream on one core and on two, with all processes pinned to them",
        "cores",
        tuple(samples),
        "the target is 1.7x in wall time with twice the cores. Two processes that only count gain "
        f"{ceiling:.2f}x from the second core of this machine, which is the upper bound.",
        columns=(
            Column("x one core (wall)", lambda s: f"{one / s.wall:.2f}"),
            Column("share of the upper bound", lambda s: "" if s.point == "1" else f"{one / s.wall / ceiling:.0%}"),
        ),
        log_y=False,
        value=lambda sample: sample.events / sample.wall,
        value_title="events/s (wall)",
    )


BENCHMARKS = (
    Benchmark("spark", "Spark batch compared with a plain pipeline and with Spark SQL joins", spark_batch_paths),
    Benchmark("spark-kernel", "target: Spark batch compared with the same pipeline without a kernel", spark_kernel),
    Benchmark("spark-joins", "target: W1 on Spark compared with Spark SQL", spark_joins),
    Benchmark("spark-cores", "Spark batch on one core and on two", spark_cores),
)
