"""The Spark backend over events that are already read: Spark finds the positions of the events of each match, and the
matches are made of the very events that were read, so that they are shown as the reference backend shows them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from cepheid.checks import summarises
from cepheid.engine import local_events
from cepheid.engine.backend import Answer
from cepheid.engine.local_events import Bindings, complete_matches, event_batch, prepare_events
from cepheid.engine.prepare import Prepared, Wishes
from cepheid.events import Event
from cepheid.io.inputs import Columns
from cepheid.io.row_reader import Loaded
from cepheid.io.rows import TIME, TYPE
from cepheid.kernels.registry import kernel_for
from cepheid.optimize.distribution import distribution
from cepheid.optimize.stats import NO_STATS, Stats
from cepheid.pattern import Query
from cepheid.physical import REFERENCE
from cepheid.semantics import Match
from cepheid.spark.batch import SparkJob
from cepheid.spark.catalyst import column
from cepheid.spark.events import TYPES, SparkEvents
from cepheid.spark.session import session
from cepheid.spark.worker import POSITION

TIMES = "__cepheid_time"


_FOR_SMALL_JOBS = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"}
"""Events that were read one by one are few, and the JVM's optimising compiler costs more than it gains."""


def run(query: Query, loaded: Loaded, params: Mapping[str, Any], *, stats: Stats | None = None) -> Answer:
    prepared = prepare_events(query, loaded, Wishes(params, stats=stats or NO_STATS))
    return Answer(matches_of(prepared, loaded, session(settings=_FOR_SMALL_JOBS)), prepared.plan)


def matches_of(prepared: Prepared, loaded: Loaded, spark: SparkSession, partitions: int | None = None) -> list[Match]:
    """In the order in which they are complete, as the oracle gives them."""
    if prepared.kernel is None or summarises(prepared.query) or not loaded.events:
        return _in_one_task(prepared, loaded, spark)
    table = _columns(prepared, loaded.events)
    shown = table.drop_columns([POSITION, TYPES]).schema
    source = SparkEvents(spark.createDataFrame(table), Columns(TYPES, TIMES), shown)
    job = SparkJob(prepared, source, distribution(prepared.plan), partitions)
    found = job.positions(column(POSITION)).toArrow()
    return complete_matches(prepared, _bindings(found), loaded.events)


def _in_one_task(prepared: Prepared, loaded: Loaded, spark: SparkSession) -> list[Match]:
    """What is not a matter of positions: a row about all matches, or matches of events that no row of the input is."""
    work = spark.sparkContext.parallelize([(replace(prepared, kernel=None), replace(loaded, rejects=[]))], 1)
    (matches,) = work.map(_found_in_task).collect()
    return matches


def _found_in_task(work: tuple[Prepared, Loaded]) -> list[Match]:
    prepared, loaded = work
    kernel = None if prepared.plan.evaluator == REFERENCE else kernel_for(prepared.plan)
    return local_events.matches_of(replace(prepared, kernel=kernel), loaded)


def _columns(prepared: Prepared, events: Sequence[Event]) -> pa.Table:
    """What the plan reads of the events, with their positions."""
    batch = event_batch(prepared, events)
    names = {TYPE: TYPES, TIME: TIMES}
    columns = {names.get(name, name): _plain(batch.column(name)) for name in batch.schema.names}
    return pa.table({**columns, POSITION: pa.array(np.arange(batch.num_rows))})


def _plain(values: pa.Array) -> pa.Array:
    """Spark has neither dictionaries nor columns of no type."""
    if pa.types.is_null(values.type):
        return values.cast(pa.float64())
    return values.dictionary_decode() if pa.types.is_dictionary(values.type) else values


def _bindings(found: pa.Table) -> Iterator[Bindings]:
    for row in found.to_pylist():
        yield {var: tuple(at) if isinstance(at, list) else at for var, at in row.items()}
