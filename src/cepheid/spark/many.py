"""Many queries over a DataFrame, in one job: the buckets of a stream, which see all events at once.

Rows are packed by bucket as in a stream (`streaming.pack`), so that keyed queries are spread by key, and those without
a key over the buckets by their cost.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import pandas as pd
from pyspark.accumulators import Accumulator
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from cepheid.deploy.deployment import Written, representatives
from cepheid.engine.prepare import RunOptions
from cepheid.engine.shapes import OutputOptions
from cepheid.errors import InputProblem
from cepheid.runtime.kernel import END_OF_TIME
from cepheid.spark.bucket_groups import bucket_of, group_numbers
from cepheid.spark.source import SparkSource
from cepheid.spark.stops import Stop, Stops, stop_text
from cepheid.spark.stream_worker import EVENTS, OUTPUT, PACKED, Pack, Unpack, Version
from cepheid.spark.tasks import Tasks
from cepheid.spark.worker import settle_memory
from cepheid.streaming.bucket import Bucket
from cepheid.streaming.compact import read_rows
from cepheid.streaming.delivery import MATCHES, output_rows
from cepheid.streaming.plan import StreamPlan
from cepheid.streaming.planning import StreamOptions, StreamSource, plan_queries
from cepheid.streaming.reader import RowReader

_NO_EVENTS = "none"


def run_many(
    queries: Mapping[str, Written],
    source: SparkSource,
    options: RunOptions,
    output: OutputOptions,
    partitions: int | None = None,
) -> list[DataFrame]:
    """The matches of all queries: a DataFrame for each set of columns, whose first column is the name of the query. The
    DataFrames read the events once: those of several sets share a job, whose output is persisted as long as one of them
    is in use. What the user derives from them stays right, and is computed again."""
    source = source.for_queries(list(representatives(queries)), options.time_unit)
    columns = RowReader(source.schema, source.columns)
    events = StreamSource(columns, source.attributes or {}, source.is_closed, epoch_unit=source.epoch_unit)
    buckets = Tasks(source, partitions).count
    plan, refused = plan_queries(
        queries, events, StreamOptions(0, options, buckets=buckets, output=output), is_several=True
    )
    for error in refused.values():
        raise error
    found = _found(source.frame, plan)
    tables = []
    for number, table in enumerate(plan.tables):
        blocks = found.filter((F.col("kind") == MATCHES) & (F.col("query") == number)).select("block")
        tables.append(blocks.mapInArrow(Unpack(table.schema), from_arrow_schema(table.schema)))
    if len(tables) > 1:
        _persisted_for(found, tables)
    return tables


def _persisted_for(frame: DataFrame, users: Sequence[DataFrame]) -> None:
    """Persists a DataFrame until the last of its users is gone."""
    frame.persist()
    left = [len(users)]

    def release() -> None:
        left[0] -= 1
        if not left[0]:
            with suppress(Exception):  # the session has been stopped, which releases it as well
                frame.unpersist()

    for user in users:
        weakref.finalize(user, release).atexit = False


def _found(frame: DataFrame, plan: StreamPlan) -> DataFrame:
    """The output of the buckets, as rows of (kind, query, number, block)."""
    version = Version.of(plan, 0)
    blocks = frame.selectExpr(*plan.reader.selected()).mapInArrow(Pack((version,)), PACKED)
    if plan.summing:  # these buckets have output without any event, too
        numbers = group_numbers(plan.all_buckets)
        none = [(numbers[bucket], _NO_EVENTS, 0, bytearray(), None) for bucket in sorted(plan.summing)]
        blocks = blocks.unionByName(frame.sparkSession.createDataFrame(none, PACKED))
    grouped = blocks.select("grouped", "kind", "block").repartition(plan.all_buckets, "grouped").groupBy("grouped")
    return grouped.applyInPandas(_step_once(version, Stops.of(frame.sparkSession)), OUTPUT)


def _step_once(
    version: Version, stops: Accumulator[tuple[Stop, ...]] | None
) -> Callable[[tuple[Any], pd.DataFrame], pd.DataFrame]:
    """All events of a bucket become its output. A query that exceeds a limit is stopped there, and the others go on."""

    def step(key: tuple[Any], frame: pd.DataFrame) -> pd.DataFrame:
        context = version.context
        plan = context.plan
        blocks = frame["block"][frame["kind"] == EVENTS]
        bucket = Bucket.new(context, bucket_of(int(key[0]), plan.all_buckets))
        schema = context.packed_schema(bucket.number)
        arrived = [read_rows(block, schema) for block in blocks]
        output = bucket.step(arrived, -END_OF_TIME, END_OF_TIME)
        if output.dropped:
            stopped = tuple((tuple(names), reason) for names, reason in output.dropped)
            if stops is None:
                raise InputProblem(stop_text(*stopped[0]), hint="narrow it, or leave it out")
            stops.add(stopped)
        settle_memory()
        return pd.DataFrame(output_rows(output), columns=["kind", "query", "number", "block"])

    return step
