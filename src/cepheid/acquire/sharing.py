"""Plans of several complex events that have subevents in common (CED §5.1, Algorithm 2).

A base fetches an event once, for all who ask for it. So an event that one complex event fetches anyway costs the others
nothing, and it may pay to acquire a common subevent first. Algorithm 2 starts with the plans that are best for each
event alone, and searches each again with the share of the common subevents that the others fetch, as long as the total
decreases. It speaks of one shared event; here shares are counted by stream, so any number of subevents may be common.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from cepheid.acquire.choice import choose
from cepheid.acquire.cost import CoverageModel, PaperModel
from cepheid.acquire.plans import Plan
from cepheid.acquire.search import SearchOptions
from cepheid.acquire.tree import Node
from cepheid.acquire.tree import streams as streams_of

_LEAST = 1e-9
"""The least share of the cost that a round must save."""
Shares = Mapping[str, Mapping[str, float]]
"""For each complex event, the share of each stream's events that its plan fetches."""
Model = TypeVar("Model", CoverageModel, PaperModel)


@dataclass(frozen=True, slots=True)
class Together:
    """The plans of several complex events, with the cost of all together: the expected events per tick, each counted
    once. `apart` is that cost with the plans that are best for each alone."""

    plans: Mapping[str, Plan]
    cost: float
    apart: float
    rounds: int


def plan_together(
    roots: Mapping[str, Node], model: Model, options: SearchOptions, deadlines: Mapping[str, float] | None = None
) -> Together:
    """Plans of complex events over the same streams. Each meets its deadline."""
    search = _Search(roots, model, options, deadlines or {})
    alone = search.plans({name: {} for name in roots})
    apart = search.cost(alone)
    # A second start supposes that others fetch all that is common: the descent from the first may end before that.
    streams = [stream for root in roots.values() for stream in streams_of(root)]
    common = {stream: 1.0 for stream in streams if streams.count(stream) > 1}
    found = [search.improved(start) for start in (alone, search.plans(dict.fromkeys(roots, common)))]
    plans, cost, rounds = min(found, key=lambda one: one[1])
    return Together(plans, cost, apart, rounds)


@dataclass(frozen=True, slots=True)
class _Search(Generic[Model]):
    roots: Mapping[str, Node]
    model: Model
    options: SearchOptions
    deadlines: Mapping[str, float]

    def plan(self, name: str, elsewhere: Mapping[str, float]) -> Plan:
        """The best plan of a complex event, where others fetch a share of its streams."""
        changed = replace(self.model, elsewhere=elsewhere)
        return choose(self.roots[name], changed, self.options, self.deadlines.get(name)).chosen.plan

    def plans(self, elsewhere: Shares) -> dict[str, Plan]:
        return {name: self.plan(name, own) for name, own in elsewhere.items()}

    def shares(self, plans: Mapping[str, Plan]) -> dict[str, dict[str, float]]:
        return {name: self.model.by_stream(self.roots[name], plan) for name, plan in plans.items()}

    def cost(self, plans: Mapping[str, Plan]) -> float:
        return total_cost(self.model, self.shares(plans))

    def improved(self, plans: dict[str, Plan]) -> tuple[dict[str, Plan], float, int]:
        """The loop of Algorithm 2: the plans of a local minimum, their cost, and the rounds that it took."""
        best, rounds = self.cost(plans), 0
        while True:
            rounds += 1
            found, reached = dict(plans), self.shares(plans)
            for name, root in self.roots.items():
                others = {other: share for other, share in reached.items() if other != name}
                found[name] = self.plan(name, _fetched(others))
                reached[name] = self.model.by_stream(root, found[name])
            cost = total_cost(self.model, reached)
            if cost >= best * (1 - _LEAST):
                return plans, best, rounds
            plans, best = found, cost


def _fetched(shares: Shares) -> dict[str, float]:
    """The share of each stream's events that any of some complex events fetches; they are taken as independent."""
    streams = {stream for own in shares.values() for stream in own}
    return {
        stream: 1.0 - math.prod(1.0 - min(own.get(stream, 0.0), 1.0) for own in shares.values()) for stream in streams
    }


def total_cost(model: CoverageModel | PaperModel, shares: Shares) -> float:
    """The expected events per tick of all complex events together."""
    return sum(model.streams[stream].model.rate * share for stream, share in _fetched(shares).items())
