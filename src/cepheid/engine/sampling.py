"""Statistics of a sample of the first events, for the choice of the first plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from cepheid.codegen.encoder import Encoder
from cepheid.engine.observation import Observer
from cepheid.io.event_columns import for_kernel
from cepheid.io.rows import TIME, TYPE
from cepheid.io.source import Source, SourceDescription, columns_read
from cepheid.optimize.stats import NO_STATS, Stats
from cepheid.physical import Plan

SAMPLE = 1 << 13
"""The most events in a sample: enough for the rates of rare classes, in less than a millisecond."""
SHARE = 8
"""A smaller source is sampled up to one event in `SHARE`, so that sampling is a small part of the run."""
MIN_EVENTS = 2_000
"""Sources with fewer events are not sampled: any plan finishes before a search for the best one."""


@dataclass(slots=True)
class Sampler:
    """Samples a source when `lower` asks for statistics."""

    source: SourceDescription
    stats: Stats = NO_STATS
    """The statistics of the sample; empty before it is taken."""

    def __call__(self, plan: Plan) -> Stats:
        size = min(SAMPLE, (self.source.count or 0) // SHARE)
        self.stats = NO_STATS if len(plan.steps) < 2 else _observed(plan, self.source, size)
        return self.stats


def is_large_enough(source: SourceDescription) -> bool:
    """Whether to sample the source. One that can be read only once has no count, and is not sampled."""
    return source.count is not None and source.count >= MIN_EVENTS


def first_statistics(plan: Plan, source: Source) -> Stats:
    """The statistics of the first events, however few they are: for a user who asks, not for the choice of a plan."""
    names = columns_read(plan.attributes, source.schema)
    first = source.sample(names, SAMPLE)
    return _observed_in(next(source.batches(names), None) if first is None else first, plan, names)


def _observed(plan: Plan, source: SourceDescription, size: int) -> Stats:
    names = columns_read(plan.attributes, source.schema)
    return _observed_in(source.sample(names, size), plan, names)


def _observed_in(first: pa.RecordBatch | None, plan: Plan, names: Sequence[str]) -> Stats:
    if first is None or not first.num_rows:
        return NO_STATS
    events = for_kernel(first, names)
    encoded = Encoder(plan, TYPE, TIME, (), needs_ranks=False).encode(events)
    return Observer(plan).observe(events, encoded, thoroughly=True)
