"""Queries over events in Spark, for the Python API."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession

from cepheid.engine.prepare import DEFAULT_OPTIONS, RunOptions, code_of
from cepheid.errors import CepheidError, InputProblem, NotAvailable
from cepheid.explanation import explain as explain_query
from cepheid.io.inputs import Columns
from cepheid.lang import parse
from cepheid.pattern import Query
from cepheid.spark.batch import SparkJob
from cepheid.spark.events import SparkEvents, SparkInput

_COLUMNS = Columns()


def spark_job(
    query: str | Query,
    events: SparkInput,
    columns: Columns = _COLUMNS,
    options: RunOptions = DEFAULT_OPTIONS,
    *,
    dialect: str = "auto",
    session: SparkSession | None = None,
    partitions: int | None = None,
) -> SparkJob:
    """The query prepared for the events: its matches, its rejects, and how the work is divided."""
    if partitions is not None and partitions < 1:
        raise InputProblem(f"{partitions} partitions", expected="at least one")
    parsed = parse(query, dialect) if isinstance(query, str) else query
    opened = SparkEvents.opened(events, columns, session)
    try:
        return SparkJob.of(parsed, opened, options, partitions)
    except CepheidError as error:
        if isinstance(query, str):
            error.within(query)
        raise


def match(job: SparkJob, output: str, rejects: bool) -> DataFrame | tuple[DataFrame, DataFrame]:
    """The matches as a DataFrame; with `rejects` also the rows that are not events, with the reason."""
    if output != "events":
        raise NotAvailable(
            "positions in a DataFrame: its rows have no numbers", hint="have a column that numbers them, and RETURN it"
        )
    return (job.matches(), job.rejects()) if rejects else job.matches()


def explain(job: SparkJob, level: str, format: str) -> str:
    """As `cepheid.explain`, and how the work is divided among Spark's tasks."""
    if level == "analyze":
        raise NotAvailable(
            "what a plan does in Spark is counted in its tasks, and not brought together",
            hint="analyze a part of the events outside Spark: `explain(query, df.limit(100_000).toArrow(), ...)`",
        )
    if level == "code":
        return code_of(job.prepared)
    if level == "query":
        return explain_query(job.prepared.query, format)
    text = explain_query(job.prepared.query, format, job.prepared.plan)
    return text if format != "text" else text + "".join(["on spark:\n", *(f"  {note}\n" for note in job.notes())])
