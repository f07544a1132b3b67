"""The Spark backend over events that are already read: Spark finds the positions of the events of each match, and the
matches are made of the very events that were read, so that they are shown as the reference backend shows them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from cepheid.backends import Answer
from cepheid.backends.files import Loaded
from cepheid.backends.local_events import Bindings, complete_matches, event_batch, prepare_events
from cepheid.backends.prepare import Prepared, Wishes
from cepheid.backends.sources import Columns
from cepheid.backends.spark_batch import SparkJob
from cepheid.backends.spark_events import TYPES, SparkEvents
from cepheid.backends.spark_session import session
from cepheid.backends.spark_worker import POSITION
from cepheid.backends.stepping import TIME, TYPE
from cepheid.codegen.spark import column
from cepheid.events import Clock, Event
from cepheid.optimize.distribution import distribution
from cepheid.pattern import Query
from cepheid.semantics import Match, evaluate

TIMES = "__cepheid_time"


def run(query: Query, loaded: Loaded, params: Mapping[str, Any]) -> Answer:
    prepared = prepare_events(query, loaded, Wishes(params))
    return Answer(matches_of(prepared, loaded.events, session()), prepared.plan)


def matches_of(
    prepared: Prepared, events: Sequence[Event], spark: SparkSession, partitions: int | None = None
) -> list[Match]:
    """In the order in which they are complete, as the oracle gives them."""
    if prepared.kernel is None:
        return _by_oracle(prepared, events, spark)
    if not events:
        return complete_matches(prepared, [], events)
    table = _columns(prepared, events)
    shown = table.drop_columns([POSITION, TYPES]).schema
    source = SparkEvents(spark.createDataFrame(table), Columns(TYPES, TIMES), shown)
    job = SparkJob(prepared, source, distribution(prepared.plan), partitions)
    found = job.positions(column(POSITION)).toArrow()
    return complete_matches(prepared, _bindings(found), events)


def _by_oracle(prepared: Prepared, events: Sequence[Event], spark: SparkSession) -> list[Match]:
    """The oracle in one task: its matches may hold events that no row of the input is."""
    work = spark.sparkContext.parallelize([(prepared.query, list(events), prepared.clock)], 1)
    (matches,) = work.map(_evaluated).collect()
    return matches


def _evaluated(work: tuple[Query, list[Event], Clock]) -> list[Match]:
    return evaluate(*work)


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
