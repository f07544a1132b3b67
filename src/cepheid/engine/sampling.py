"""Statistics from a sample of the source's first events, so that a plan can be chosen before the run begins."""

from __future__ import annotations

from dataclasses import dataclass

from cepheid.codegen.encoder import Encoder
from cepheid.engine.observation import Observer
from cepheid.io.rows import TIME, TYPE
from cepheid.io.source import SourceDescription, columns_read, for_kernel
from cepheid.optimize.stats import NO_STATS, Stats
from cepheid.physical import Plan

SAMPLE = 1 << 13
"""The most events in a sample: enough for the rates of rare classes, in less than a millisecond."""
SHARE = 8
"""Of fewer events, one in `SHARE` is sampled, so that sampling is a small part of the run."""
WORTHWHILE = 2_000
"""The number of events below which any plan finishes before a search for the best one would."""


@dataclass(slots=True)
class Sampler:
    """Samples a source when `lower` asks for statistics."""

    source: SourceDescription
    stats: Stats = NO_STATS
    """The statistics of the sample, once it was taken."""

    def __call__(self, plan: Plan) -> Stats:
        size = min(SAMPLE, (self.source.count or 0) // SHARE)
        self.stats = NO_STATS if len(plan.steps) < 2 else _observed(plan, self.source, size)
        return self.stats


def worth_sampling(source: SourceDescription) -> bool:
    """A source that can be read only once, or has few events, is not sampled."""
    return source.count is not None and source.count >= WORTHWHILE


def _observed(plan: Plan, source: SourceDescription, size: int) -> Stats:
    names = columns_read(plan.attributes, source.schema)
    first = source.sample(names, size)
    if first is None or not first.num_rows:
        return NO_STATS
    events = for_kernel(first, names)
    encoded = Encoder(plan, TYPE, TIME, (), needs_ranks=False).encode(events)
    return Observer(plan).observe(events, encoded, thoroughly=True)
