"""EQL, CED and composition on Spark, over credit card transactions (W4): beside the same pipeline with a kernel that
does nothing, and on one core and two.

CPU time is the sum over the JVM and its Python workers.
"""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path

from pyspark.sql import SparkSession

from bench.eql import FRAUD
from bench.measure import Outcome
from bench.report import Benchmark, Column, Report
from bench.spark import WITHOUT_KERNEL, in_files, matched, on_cores, running, share_of_empty, side_by_side
from cepheid.datasets import cards

CED = """complex Q on t as a, t as b, t as c event seq(a, b, c; 1 hours)
where a.acc = b.acc and b.acc = c.acc and a.amount < 100 and b.amount < 100 and c.amount > 250"""
COMPOSED = """Small: EVENT SEQ(t a, t b) WHERE [acc] AND a.amount < 100 AND b.amount < 100 WITHIN 1 hours
Fraud: SELECT * FROM Small s; t L WHERE FILTER(s.a.acc = L.acc), L.amount > 250, (s, L) OCCURS WITHIN 12 hours"""
SECONDS = 15.0
"""For each way to run each query over each input, so that the benchmark ends within four minutes on an idle machine."""
QUERIES = {"EQL, fraud (§1.1)": FRAUD, "CED, seq of three": CED}


def _stored(directory: str, events: int, accounts: int) -> str:
    return in_files(Path(directory) / "cards", cards(events, accounts, seed=1))


def _on(session: SparkSession, query: str, path: str) -> Outcome:
    return matched(query, path, session, "ms")


def languages(quick: bool) -> Report:
    events, accounts = (20_000, 100) if quick else (4_000_000, 20_000)
    samples = []
    with running("local[2]") as session, tempfile.TemporaryDirectory() as directory:
        path = _stored(directory, events, accounts)
        for point, query in QUERIES.items():
            run = partial(matched, query, session=session, time_unit="ms")
            samples += side_by_side(session, point, events, path, run, WITHOUT_KERNEL, quick, SECONDS)
    return Report(
        "spark-languages",
        "EQL and CED over credit card transactions in batch, and the same pipeline with a kernel that does nothing",
        "query",
        tuple(samples),
        "the targets are 88 % of the pipeline without a kernel from a DataFrame, and 75 % from Parquet. Each figure is "
        "the median of many runs.",
        columns=(Column("x the pipeline without a kernel", lambda s: share_of_empty(s, samples)),),
        log_y=False,
    )


def language_cores(quick: bool) -> Report:
    events, accounts = (20_000, 100) if quick else (4_000_000, 20_000)
    with tempfile.TemporaryDirectory() as directory:
        path = _stored(directory, events, accounts)
        queries = {**QUERIES, "SASE feeds EQL": COMPOSED}
        samples, ceiling = on_cores(events, {n: partial(_on, query=q, path=path) for n, q in queries.items()})
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
