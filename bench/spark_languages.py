"""EQL, CED and composition on Spark, over credit card transactions (W4): beside the same pipeline with a kernel that
does nothing, and on one core and two.

CPU time is the sum over the JVM and its Python workers.
"""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow.parquet as pq
from pyspark.sql import SparkSession

import cepheid
from bench.eql import FRAUD
from bench.measure import Outcome, Variant, interleaved
from bench.processes import pinned, seconds_of_two
from bench.report import Benchmark, Column, Report
from bench.spark import (
    EMPTY,
    FILES,
    FILES_ALONE,
    FRAME,
    PARTITIONS,
    REPEATS,
    ROUNDS,
    NoKernel,
    counted,
    cpu_of,
    measured,
    running,
    share_of_empty,
)
from cepheid.datasets import cards
from cepheid.spark import batch as spark_batch

CED = """complex Q on t as a, t as b, t as c event seq(a, b, c; 1 hours)
where a.acc = b.acc and b.acc = c.acc and a.amount < 100 and b.amount < 100 and c.amount > 250"""
COMPOSED = """Small: EVENT SEQ(t a, t b) WHERE [acc] AND a.amount < 100 AND b.amount < 100 WITHIN 1 hours
Fraud: SELECT * FROM Small s; t L WHERE FILTER(s.a.acc = L.acc), L.amount > 250, (s, L) OCCURS WITHIN 12 hours"""
QUERIES = {"EQL, fraud (§1.1)": FRAUD, "CED, seq of three": CED}


def stored(directory: Path, events: int, accounts: int) -> str:
    path, table, size = directory / "cards", cards(events, accounts, seed=1), -(-events // FILES)
    path.mkdir()
    for number in range(FILES):
        pq.write_table(table.slice(number * size, size), path / f"{number}.parquet", row_group_size=max(size // 3, 1))
    return str(path)


def matched(query: str, events: Any, session: SparkSession) -> Outcome:
    return counted(cepheid.match(query, events, session=session, partitions=PARTITIONS, time_unit="ms"))


def without_kernel(query: str, events: Any, session: SparkSession) -> Outcome:
    with mock.patch.object(spark_batch, "KernelTask", NoKernel):
        return matched(query, events, session)


def languages(quick: bool) -> Report:
    events, accounts = (20_000, 100) if quick else (4_000_000, 20_000)
    samples = []
    with running("local[2]") as session, tempfile.TemporaryDirectory() as directory:
        path = stored(Path(directory), events, accounts)
        for point, query in QUERIES.items():
            variant = partial(Variant, point, events=events)
            for source, given in ((FRAME, session.read.parquet(path)), (FILES_ALONE, path)):
                variants = [
                    variant(source, run=partial(matched, query, given, session)),
                    variant(source + EMPTY, run=partial(without_kernel, query, given, session), question="none"),
                ]
                interleaved(variants, repeats=1 if quick else REPEATS // 2)  # the JVM compiles during these runs
                spent, repeats = partial(cpu_of, session), 1 if quick else ROUNDS
                samples += interleaved(variants, repeats=repeats, warm=False, cpu=spent, typical=True)
    return Report(
        "spark-languages",
        "EQL and CED over credit card transactions in batch, and the same pipeline with a kernel that does nothing",
        "query",
        tuple(samples),
        "the targets are 88 % of the pipeline without a kernel from a DataFrame, and 75 % from Parquet. Each figure is "
        f"the median of {ROUNDS} runs.",
        columns=(Column("x the pipeline without a kernel", lambda s: share_of_empty(s, samples)),),
        log_y=False,
    )


def language_cores(quick: bool) -> Report:
    events, accounts = (20_000, 100) if quick else (4_000_000, 20_000)
    samples = []
    with tempfile.TemporaryDirectory() as directory:
        path = stored(Path(directory), events, accounts)
        for cores in (1, 2):
            with running(f"local[{cores}]") as session, pinned(cores):
                variants = [
                    Variant(f"{cores}", name, events, partial(matched, query, path, session), question=name)
                    for name, query in {**QUERIES, "SASE feeds EQL": COMPOSED}.items()
                ]
                samples += measured(session, variants)
    ceiling = seconds_of_two(1) / seconds_of_two(2)
    one = {sample.variant: sample.wall for sample in samples if sample.point == "1"}
    return Report(
        "spark-languages-cores",
        "EQL, CED and composition over credit card transactions on one core and on two, pinned to them",
        "cores",
        tuple(samples),
        "the target is 1.7x in wall time with twice the cores. Two processes that only count gain "
        f"{ceiling:.2f}x from the second core of this machine, which is the upper bound.",
        columns=(Column("x one core (wall)", lambda s: f"{one[s.variant] / s.wall:.2f}"),),
        log_y=False,
        value=lambda sample: sample.events / sample.wall,
        value_title="events/s (wall)",
    )


BENCHMARKS = (
    Benchmark("spark-languages", "target: EQL and CED on Spark, and the pipeline without a kernel", languages),
    Benchmark("spark-languages-cores", "target: EQL, CED, composition on one core and on two", language_cores),
)
