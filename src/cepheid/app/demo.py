"""The demo: a query in each language over generated data on Spark, and a stream that is killed and restarted."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.resources import files
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
from rich.console import Console

from cepheid import datasets
from cepheid.app import report
from cepheid.app.demo_stream import show_stream
from cepheid.app.file_run import FileRun
from cepheid.engine.prepare import RunOptions
from cepheid.engine.query_text import QueryText
from cepheid.io.inputs import Columns, Input
from cepheid.io.sinks import make_directory, replacing
from cepheid.pattern import Query
from cepheid.physical import REFERENCE, Plan

SPARK_LOG = "spark.log"
_QUICK = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"}
"""Small jobs end before the JVM's optimizing compiler pays off."""


@dataclass(frozen=True, slots=True)
class Example:
    """A query of the package and its generated data."""

    file: str
    data: str
    generate: Callable[[], pa.Table]
    time_unit: str = "ms"
    params: Mapping[str, Any] = field(default_factory=dict)

    @property
    def text(self) -> str:
        return example_text(self.file)

    @property
    def output(self) -> str:
        return f"{self.file.split('.')[0]}.jsonl"

    def command(self, directory: Path) -> str:
        """The equivalent command line."""
        more = [f"--param {name}={value}" for name, value in self.params.items()]
        more.append(f"--time-unit {self.time_unit}")
        where = {"query-file": self.file, "input": f"{self.data}.parquet", "output": self.output}
        words = [f"--{name} {directory / file}" for name, file in where.items()]
        return " ".join(["cepheid run --backend spark", *words, *more])


EXAMPLES = (
    Example("shoplifting.sase", "retail", lambda: datasets.retail(200_000, tags=20_000, seed=1)),
    Example("rising-price.saseplus", "stock", lambda: datasets.stock(50_000, symbols=20, seed=1)),
    Example("price-fall.zstream", "ticks", lambda: datasets.ticks(20_000, seed=1), params={"x": 0.5, "y": 0.5}),
    Example("card-fraud.eql", "cards", lambda: datasets.cards(500, accounts=20, seed=1)),
    Example("running-person.ced", "persons", lambda: datasets.persons(1_000, seed=1), time_unit="s"),
)


def example_text(name: str) -> str:
    return (files("cepheid") / "examples" / name).read_text(encoding="utf-8")


def show(directory: Path, console: Console, stream: bool = True) -> None:
    """Writes data, queries and matches to the directory, and shows them on the console."""
    make_directory(directory)
    with _spark(directory / SPARK_LOG, console):
        for example in EXAMPLES:
            _show(example, directory, console)
    if stream:
        show_stream(directory / "stream", example_text("shoplifting.sase"), console)
        console.print()
    report.say(console, f"The events, the queries and all matches are in {directory}/:", "bold")
    for path in sorted(directory.iterdir()):
        report.say(console, f"  {path}{'/' if path.is_dir() else ''}")


@contextmanager
def _spark(log: Path, console: Console) -> Iterator[None]:
    """A session for the whole demo, unless one is active. The messages of the JVM go to a file."""
    from pyspark.sql import SparkSession  # lazily: Spark takes seconds to load

    if SparkSession.getActiveSession() is not None:
        yield
        return
    with console.status("Starting Spark on this machine"):
        from cepheid.spark.session import session

        with _errors_into(log):
            spark = session(settings=_QUICK)
    try:
        yield
    finally:
        spark.stop()


@contextmanager
def _errors_into(log: Path) -> Iterator[None]:
    """Redirects the standard error of processes that are started meanwhile to the file."""
    sys.stderr.flush()
    standard = os.dup(2)
    try:
        with log.open("wb") as file:
            os.dup2(file.fileno(), 2)
        yield
    finally:
        os.dup2(standard, 2)
        os.close(standard)


def _show(example: Example, directory: Path, console: Console) -> None:
    text, output = example.text, directory / example.output
    table = example.generate()
    datasets.write(table, directory / f"{example.data}.parquet")
    with replacing(directory / example.file) as file:
        file.write(text.encode())
    query = QueryText(text, example.file).parse()
    console.rule(f"{query.dialect.title}: {example.file}", align="left")
    report.say(console, text.rstrip(), "cyan")
    report.say(console, f"\n$ {example.command(directory)}", "green")
    began = time.perf_counter()
    with console.status(f"Matching {table.num_rows:,} events"):
        matches, plan = _run(example, query, directory)
    seconds = time.perf_counter() - began
    read = f"{table.num_rows:,} events ({example.data}.parquet, {seconds:.1f} s)"
    report.say(console, f"{matches:,} matches in {read}, {_by(plan)}", "bold")
    with output.open(encoding="utf-8") as lines:
        console.print(report.row_table([json.loads(line) for line in islice(lines, report.FIRST_FEW)]))
    if matches > report.FIRST_FEW:
        report.say(console, f"and {matches - report.FIRST_FEW:,} more in {output.name}")
    console.print()


def _run(example: Example, query: Query, directory: Path) -> tuple[int, Plan]:
    """Writes the matches. Returns their number and the plan."""
    inputs = [Input(str(directory / f"{example.data}.parquet"))]
    options = RunOptions(params=example.params, time_unit=example.time_unit)
    opened = FileRun.open(QueryText(example.text, example.file), query, inputs, Columns(), options, "spark")
    with replacing(directory / example.output) as file:
        return opened.write(file, "jsonl"), opened.prepared.plan


def _by(plan: Plan) -> str:
    if plan.evaluator == REFERENCE:
        return "by the reference evaluator in one task"
    return f"by the compiled evaluator `{plan.evaluator}`"
