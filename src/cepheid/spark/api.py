"""What Python programs call for events in Spark."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from cepheid.engine.prepare import Wishes, code_of
from cepheid.errors import CepheidError, InputProblem, NotAvailable
from cepheid.explanation import explain as explain_query
from cepheid.io.inputs import Columns
from cepheid.io.times import unit_of
from cepheid.lang import parse
from cepheid.optimize.stats import NO_STATS, Stats
from cepheid.pattern import Query
from cepheid.spark.batch import SparkJob
from cepheid.spark.events import SparkEvents, SparkInput


def spark_job(
    query: str | Query,
    events: SparkInput,
    *,
    dialect: str = "auto",
    type_column: str = "type",
    time_column: str = "ts",
    time_unit: str | None = None,
    evaluator: str | None = None,
    params: Mapping[str, Any] | None = None,
    options: Mapping[str, str | bool] | None = None,
    session: SparkSession | None = None,
    partitions: int | None = None,
    stats: Stats | None = None,
) -> SparkJob:
    """The query prepared for the events: its matches, its rejects, and how the work is divided."""
    if partitions is not None and partitions < 1:
        raise InputProblem(f"{partitions} partitions", expected="at least one")
    parsed = parse(query, dialect) if isinstance(query, str) else query
    unit = None if time_unit is None else unit_of(time_unit)
    wishes = Wishes(params or {}, evaluator, options or {}, stats or NO_STATS)
    opened = SparkEvents.opened(events, Columns(type_column, time_column), session)
    try:
        return SparkJob.of(parsed, opened, unit, wishes, partitions)
    except CepheidError as error:
        if isinstance(query, str):
            error.within(query)
        raise


def match(
    query: str | Query, events: SparkInput, *, output: str = "events", rejects: bool = False, **settings: Any
) -> DataFrame | tuple[DataFrame, DataFrame]:
    """The matches as a DataFrame; with `rejects=True` also the rows that are no events, with the reason."""
    if output != "events":
        raise NotAvailable(
            "positions in a DataFrame: its rows have no numbers", hint="have a column that numbers them, and RETURN it"
        )
    job = spark_job(query, events, **settings)
    return (job.matches(), job.rejects()) if rejects else job.matches()


def explain(query: str | Query, events: SparkInput, level: str, format: str, **settings: Any) -> str:
    """As `cepheid.explain`, and how the work is divided among Spark's tasks."""
    if level == "analyze":
        raise NotAvailable(
            "what a plan does in Spark is counted in its tasks, and not brought together",
            hint="analyze a part of the events outside Spark: `explain(query, df.limit(100_000).toArrow(), ...)`",
        )
    job = spark_job(query, events, **settings)
    if level == "code":
        return code_of(job.prepared)
    if level == "query":
        return explain_query(job.prepared.query, format)
    text = explain_query(job.prepared.query, format, job.prepared.plan)
    return text if format != "text" else text + "".join(["on spark:\n", *(f"  {note}\n" for note in job.notes())])


def matches(query: str | Query, **settings: Any) -> Callable[[DataFrame], DataFrame]:
    """For DataFrame.transform: `df.transform(cepheid.matches("EVENT SEQ(A x, B y) WITHIN 10"))`."""

    def transform(events: DataFrame) -> DataFrame:
        return spark_job(query, events, **settings).matches()

    return transform
