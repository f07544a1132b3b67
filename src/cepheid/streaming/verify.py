"""`cepheid.verify`: compares the matches of a query in batch with those in streams of the same events, in any order
that the watermark allows and in batches of any size. The state is saved and restored after every batch.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from cepheid.engine.prepare import RunOptions, prepare
from cepheid.engine.run import run
from cepheid.errors import InputProblem
from cepheid.events import Clock
from cepheid.io import frames
from cepheid.io.inputs import Columns
from cepheid.io.rows import dumps, plain, row_dicts
from cepheid.io.source import Source, TableSource
from cepheid.io.stream_rows import NUMBER, plain_schema
from cepheid.lang import parse
from cepheid.pattern import Query
from cepheid.streaming.plan import StreamPlan
from cepheid.streaming.planning import StreamSource, plan_stream
from cepheid.streaming.reader import RowReader
from cepheid.streaming.simulation import Simulation

_MOST_SHOWN = 3
_DELAYS = (0.0, 0.01, 0.1)
"""The disorder of the streams, as fractions of the time that the events span."""
_BUCKETS = 4
"""Enough to separate keys."""


class Difference(NamedTuple):
    """A stream whose matches differ from those of the batch."""

    watermark: int
    """In ticks."""
    batches: int
    """The number of batches it was cut into."""
    missing: tuple[str, ...]
    """The matches of the batch that the stream does not have."""
    unexpected: tuple[str, ...]
    """The matches of the stream that the batch does not have."""


class Verification(NamedTuple):
    """The streams that were run, and those whose matches differ from the batch."""

    differences: tuple[Difference, ...]
    streams: int
    """Their number."""
    events: int
    matches: int
    """Those of the batch."""
    evaluator: str

    @property
    def agrees(self) -> bool:
        return not self.differences

    def __str__(self) -> str:
        summary = (
            f"{self.streams} streams of {self.events} events, evaluated by {self.evaluator}: "
            f"{self.streams - len(self.differences)} gave the {self.matches} matches of the batch"
        )
        lines = [
            f"  watermark {d.watermark}, {d.batches} batches: {len(d.missing)} missing, {len(d.unexpected)} too many"
            for d in self.differences[:_MOST_SHOWN]
        ]
        return "\n".join([summary, *lines])


def verify(
    query: str | Query,
    events: Any,
    *,
    streams: int = 10,
    seed: int = 0,
    dialect: str = "auto",
    type_column: str = "type",
    time_column: str = "ts",
    start_column: str | None = None,
    time_unit: str | None = None,
    params: Mapping[str, Any] | None = None,
    evaluator: str | None = None,
) -> Verification:
    """Compares the matches of a query in a table of events with those that it finds in streams of the same events."""
    parsed = parse(query, dialect) if isinstance(query, str) else query
    source = _source(events, Columns(type_column, time_column, start_column))
    options = RunOptions(params=params or {}, evaluator=evaluator, time_unit=time_unit)
    prepared = prepare(parsed, source, options)
    batch = Counter(_lines(run(prepared, source).batches))
    rng = random.Random(seed)
    span = int(source.times[-1] - source.times[0]) if source.count else 0
    differences = []
    for _ in range(streams):
        delay = round(rng.choice(_DELAYS) * span)
        plan = _plan(parsed, source, prepared.clock, delay, options)
        parts = list(_cut(rng, source, delay))
        streamed = Counter(_lines(Simulation(plan).run(parts).matches["query"]))
        if streamed != batch:
            missing, unexpected = tuple((batch - streamed).elements()), tuple((streamed - batch).elements())
            differences.append(Difference(delay, len(parts), missing, unexpected))
    total = sum(batch.values())
    return Verification(tuple(differences), streams, source.count, total, prepared.plan.evaluator)


def _source(events: Any, columns: Columns) -> TableSource:
    """Events in memory: a stream is cut from them in many ways."""
    if hasattr(events, "toArrow"):
        events = events.toArrow()
    opened = frames.opened(events, columns)
    source: Source | None = None if opened is None else opened.source
    if not isinstance(source, TableSource):
        raise InputProblem("the events are not in memory", expected="a table, or a DataFrame")
    return source


def _plan(query: Query, source: TableSource, clock: Clock, delay: int, options: RunOptions) -> StreamPlan:
    schema = plain_schema(source.schema).append(pa.field(NUMBER, pa.int64()))
    stream = StreamSource(RowReader(schema, source.columns), source.attributes)
    # The watermark of timestamps counts milliseconds.
    ticks = f"{-(-delay // 1000)} ms" if clock.is_timestamp else delay
    return plan_stream({"query": query}, stream, ticks, options, order=(NUMBER,), buckets=_BUCKETS)


def _cut(rng: random.Random, source: TableSource, delay: int) -> Iterator[pa.RecordBatch]:
    """The events in an order that the watermark allows, in batches of any size."""
    count = source.count
    jitter = np.array([rng.randint(0, delay) for _ in range(count)], np.int64)
    arrival = np.argsort(source.times + jitter, kind="stable")
    rows = arrival if source.order is None else source.order[arrival]
    plain_table = source.table.cast(plain_schema(source.schema))
    arriving = plain_table.take(pa.array(rows)).append_column(NUMBER, pa.array(arrival))
    edges = sorted({0, count, *(rng.randint(0, count) for _ in range(rng.randint(0, 8)))})
    for start, end in pairwise(edges):
        yield arriving.slice(start, end - start)


def _lines(batches: Iterator[pa.RecordBatch] | Sequence[pa.RecordBatch]) -> Iterator[str]:
    for batch in batches:
        for row in row_dicts(batch):
            yield dumps(plain(row))
