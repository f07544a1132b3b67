"""What the first events of a source say about all of them, so that a plan can be chosen before the run begins."""

from __future__ import annotations

from collections.abc import Mapping

from cepheid import expr as ex
from cepheid.codegen.columns import Encoder
from cepheid.engine.observation import Observer
from cepheid.errors import NotAvailable
from cepheid.events import Clock, Schema
from cepheid.io.rows import TIME, TYPE
from cepheid.io.source import SourceDescription, columns_read, for_kernel
from cepheid.kernels.registry import EVALUATORS, SEARCHING
from cepheid.optimize.lower import lower
from cepheid.optimize.stats import NO_STATS, Stats
from cepheid.pattern import Query
from cepheid.physical import Kind, Plan

SAMPLE = 1 << 13
"""How many events are looked at, at most: enough for the rates of rare classes, in less than a millisecond."""
SHARE = 8
"""Of fewer events one in so many is looked at, so that looking costs little of the run."""
WORTHWHILE = 2_000
"""The number of events below which any plan is done before the best is found."""


def sampled(bound: Query, kinds: Mapping[str, Kind], schema: Schema, clock: Clock, source: SourceDescription) -> Stats:
    """The statistics of a source's first events, where they decide between plans. A source that can only be read once
    is not sampled."""
    if source.count is None or source.count < WORTHWHILE:
        return NO_STATS
    try:
        plan = lower(bound, kinds, schema, clock, EVALUATORS, evaluator=SEARCHING[0])
    except NotAvailable:
        return NO_STATS  # there are no trees to choose between
    return NO_STATS if len(plan.steps) < 2 else _observed(plan, source)


def _observed(plan: Plan, source: SourceDescription) -> Stats:
    names = _columns(plan, source)
    size = min(SAMPLE, (source.count or 0) // SHARE)
    first = source.sample(names, size)
    if first is None or not first.num_rows:
        return NO_STATS
    events = for_kernel(first, names)
    encoded = Encoder(plan, TYPE, TIME, (), needs_ranks=False).encode(events)
    return Observer(plan).observe(events, encoded, thoroughly=True)


def _columns(plan: Plan, source: SourceDescription) -> list[str]:
    """The columns that a plan's masks and kernel read."""
    tests = [node for bit in plan.bits for test in bit.tests for node in ex.walk(test)]
    names = [node.name for node in tests if isinstance(node, ex.Attr)]
    keys = plan.key if plan.counts_events else ()
    return columns_read([*names, *plan.columns, *keys], source.schema)
