"""Spark batch in steps: the rare events of a Parquet table first, then the rows near them, against one scan.

The table is sorted by time, in row groups of 65,536 rows: type, time, key, two numbers and a text. All rows that are
not rare events can be part of a match, so that one scan moves them all. CPU time is that of the driver, the JVM and its
Python workers. What keeps to one scan runs on 10 M rows, more often: its difference is small. The row groups and rows
are counted by a job of their own. CEPHEID_STEPS_ROWS sets another number of rows, and CEPHEID_STEPS_DIRECTORY a
directory in which the tables stay."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from bench.measure import Outcome, Sample, Variant, interleaved
from bench.processes import FamilyClock
from bench.report import Benchmark, Column, Report
from bench.spark import counted, running
from cepheid.api import _spark_batch
from cepheid.engine.prepare import RunOptions
from cepheid.io.inputs import Columns
from cepheid.lang import parse
from cepheid.spark.batch import SparkBatch
from cepheid.spark.description import notes
from cepheid.spark.reading import ReadCounts

ROW_GROUP = 65_536
_CHUNK = 64 * ROW_GROUP
SCAN, STEPS, CHOSEN = "one scan", "steps", "chosen by cost"
KEYS = 1_000
TICK = 10
"""The time from one row to the next."""


@dataclass(frozen=True, slots=True)
class Data:
    """How rare events are spread: one in `every` rows, in bursts of `burst`. `window` is in ticks. `target` is what the
    steps must reach."""

    label: str
    name: str
    every: int
    burst: int
    window: int
    target: str = ""
    variants: tuple[str, ...] = (SCAN, STEPS)
    rows: int = 50_000_000
    repeats: int = 2

    @property
    def query(self) -> str:
        return f"EVENT SEQ(Rare r, Often o) WHERE [id] WITHIN {self.window}"


_FEW_GROUPS = "the targets are 10x fewer row groups and 5x less time."
DATA = (
    Data("rare", "1 : 1,000,000", 1_000_000, 1, 2_000, _FEW_GROUPS),
    Data("bursts", "1 : 1,000 in bursts", 1_000, 1_000, 2_000, _FEW_GROUPS),
    Data(
        "spread",
        "1 : 1,000, windows over 2.5 % of the time",
        1_000,
        1,
        125,
        "the targets are 20x fewer rows moved and 3x less time.",
    ),
    Data(
        "scan",
        "1 : 100, which keeps to one scan",
        100,
        1,
        2_000,
        "the target is at most 5 % more where the cost decides for one scan.",
        (SCAN, CHOSEN),
        10_000_000,
        4,
    ),
)


def stored(directory: Path, data: Data, rows: int) -> str:
    """The table as one Parquet file."""
    path = directory / f"{data.every}-{data.burst}-{rows}.parquet"
    if path.exists():
        return str(path)
    rng = np.random.default_rng(1)
    types = pa.array(["Often", "Rare"])
    schema = pa.schema(
        [
            ("type", pa.string()),
            ("ts", pa.int64()),
            ("id", pa.int64()),
            ("price", pa.float64()),
            ("amount", pa.int64()),
            ("text", pa.string()),
        ]
    )
    texts = pa.array([f"order {number}" for number in range(1_000)])
    with pq.ParquetWriter(path, schema, compression="snappy", use_dictionary=["type", "text"]) as writer:
        for start in range(0, rows, _CHUNK):
            numbers = np.arange(start, min(start + _CHUNK, rows))
            is_rare = (numbers + data.every * data.burst // 2) % (data.every * data.burst) < data.burst
            columns = [
                pa.DictionaryArray.from_arrays(pa.array(is_rare.astype(np.int32)), types).cast(pa.string()),
                pa.array(numbers * TICK),
                pa.array(rng.integers(0, KEYS, len(numbers))),
                pa.array(rng.random(len(numbers))),
                pa.array(rng.integers(0, 1_000, len(numbers))),
                pa.DictionaryArray.from_arrays(pa.array(rng.integers(0, 1_000, len(numbers))), texts).cast(pa.string()),
            ]
            writer.write_table(pa.Table.from_arrays(columns, schema=schema), row_group_size=ROW_GROUP)
    return str(path)


def _batch(data: Data, path: str, session: SparkSession, variant: str) -> SparkBatch:
    forced = {SCAN: {"acquire": "scan"}, STEPS: {"acquire": "steps"}, CHOSEN: {}}[variant]
    options = RunOptions(options=forced)
    return _spark_batch(data.query, parse(data.query), path, Columns(), options, session)


def _run(data: Data, path: str, session: SparkSession, variant: str) -> Outcome:
    return counted(_batch(data, path, session, variant).matches())


def spark_steps(data: Data, quick: bool) -> Report:
    rows = int(os.environ.get("CEPHEID_STEPS_ROWS", 200_000 if quick else data.rows))
    samples: list[Sample] = []
    spent = FamilyClock()
    with tempfile.TemporaryDirectory(prefix="cepheid-") as directory, running("local[2]") as session:
        path = stored(Path(os.environ.get("CEPHEID_STEPS_DIRECTORY", directory)), data, rows)
        variants = [
            Variant(data.name, variant, rows, partial(_run, data, path, session, variant)) for variant in data.variants
        ]
        scanned: ReadCounts | None = None
        for sample in interleaved(variants, repeats=data.repeats, warm=rows < 10_000_000, cpu=spent):
            batch = _batch(data, path, session, sample.variant).acquired()
            read = scanned if batch.steps is None and scanned is not None else batch.counted()
            assert read is not None
            scanned = read if batch.steps is None else scanned
            more = {
                "row groups": float(read.decoded),
                "rows decoded": float(read.rows),
                "rows moved": float(read.moved),
            }
            samples.append(replace(sample, outcome=replace(sample.outcome, counted=more)))
            print(
                sample.point,
                sample.variant,
                f"{sample.cpu:.2f} s of CPU, {sample.wall:.2f} s",
                more,
                *notes(batch),
                sep="\n  ",
            )
    return Report(
        f"spark-steps-{data.label}",
        f"{rows / 1e6:,.0f} M rows of Parquet, rare events first; real",
        "rare events",
        tuple(samples),
        data.target,
        SCAN,
        tuple(Column(title, partial(_cell, title)) for title in ("row groups", "rows decoded", "rows moved")),
    )


def _cell(title: str, sample: Sample) -> str:
    return f"{sample.outcome.counted[title]:,.0f}"


BENCHMARKS = tuple(
    Benchmark(
        f"spark-steps-{data.label}", f"target: rare events of Parquet first, {data.name}", partial(spark_steps, data)
    )
    for data in DATA
)
