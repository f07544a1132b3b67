"""Plans of several complex events that have subevents in common (CED §5.1, Algorithm 2).

A base fetches an event once, for all who ask for it. So an event that one complex event fetches anyway costs the others
nothing, and it may pay to acquire a common subevent first. Algorithm 2 starts with the plans that are best for each
event alone, and searches each again with the share of the common subevents that the others fetch, as long as the total
decreases. It speaks of one shared event; here shares are counted by stream and source, so any number of subevents may
be common, to any sources.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field

from cepheid.acquire.choice import Choice, choose
from cepheid.acquire.cost import CostModel
from cepheid.acquire.plans import Plan
from cepheid.acquire.search import SearchOptions
from cepheid.acquire.tree import Node, streams

_LEAST = 1e-9
"""The least share of the cost that a round must save."""
Cells = Mapping[Hashable, float]
"""Where the events of a stream come from, with the events per tick. Two complex events share those that both have."""


@dataclass(frozen=True, slots=True)
class Member:
    """A complex event that is planned with others. `cells` are those of each of its streams; without them, streams of
    the same name are the same."""

    root: Node
    model: CostModel
    deadline: float | None = None
    cells: Mapping[str, Cells] = field(default_factory=dict)

    def of(self, stream: str) -> Cells:
        return self.cells.get(stream) or {stream: self.model.streams[stream].model.rate}

    @property
    def read(self) -> frozenset[Hashable]:
        """All its cells."""
        return frozenset(cell for stream in streams(self.root) for cell in self.of(stream))

    def fetched(self, plan: Plan) -> dict[Hashable, float]:
        """The share of the events of each cell that a plan fetches."""
        shares = self.model.by_stream(self.root, plan)
        return {cell: min(share, 1.0) for stream, share in shares.items() for cell in self.of(stream)}

    def beside(self, others: Mapping[Hashable, float]) -> CostModel:
        """The cost of what others do not fetch anyway."""
        elsewhere = {}
        for stream in streams(self.root):
            cells = self.of(stream)
            rate = sum(cells.values())
            elsewhere[stream] = sum(own * others.get(cell, 0.0) for cell, own in cells.items()) / rate if rate else 0.0
        return self.model.beside(elsewhere)


Members = Mapping[str, Member]
Choices = Mapping[str, Choice]


@dataclass(frozen=True, slots=True)
class Together:
    """The plans of several complex events, with the cost of all together: the expected events per tick, each counted
    once. `apart` is that cost with the plans that are best for each alone."""

    choices: Choices
    cost: float
    apart: float
    separate: float
    """The cost of these plans if each complex event fetched its own events."""
    rounds: int

    @property
    def plans(self) -> dict[str, Plan]:
        return {name: choice.chosen.plan for name, choice in self.choices.items()}


def plan_together(members: Members, options: SearchOptions, shown: Callable[[float], str] = str) -> Together:
    """Plans of complex events over the same streams. Each meets its deadline."""
    search = _Search(members, options, shown)
    alone = search.choices({name: {} for name in members})
    apart, separate = search.cost(alone), sum(choice.chosen.cost for choice in alone.values())
    # A second start supposes that others fetch all that is common: the descent from the first may end before that.
    read = [cell for member in members.values() for cell in member.read]
    common: dict[Hashable, float] = {cell: 1.0 for cell in read if read.count(cell) > 1}
    if not common:
        return Together(alone, apart, apart, separate, 0)
    found = [search.improved(start) for start in (alone, search.choices(dict.fromkeys(members, common)))]
    choices, cost, rounds = min(found, key=lambda one: one[1])
    return Together(choices, cost, apart, separate, rounds)


@dataclass(frozen=True, slots=True)
class _Search:
    members: Members
    options: SearchOptions
    shown: Callable[[float], str]

    def choice(self, name: str, elsewhere: Mapping[Hashable, float]) -> Choice:
        """The best plan of a complex event, where others fetch a share of its streams."""
        member = self.members[name]
        return choose(member.root, member.beside(elsewhere), self.options, member.deadline, self.shown)

    def choices(self, elsewhere: Mapping[str, Mapping[Hashable, float]]) -> dict[str, Choice]:
        return {name: self.choice(name, own) for name, own in elsewhere.items()}

    def shares(self, choices: Choices) -> dict[str, dict[Hashable, float]]:
        return {name: self.members[name].fetched(choice.chosen.plan) for name, choice in choices.items()}

    def cost(self, choices: Choices) -> float:
        return total_cost(self.members, self.shares(choices))

    def improved(self, choices: dict[str, Choice]) -> tuple[dict[str, Choice], float, int]:
        """The loop of Algorithm 2: the plans of a local minimum, their cost, and the rounds that it took."""
        best, rounds = self.cost(choices), 0
        while True:
            rounds += 1
            found, reached = dict(choices), self.shares(choices)
            for name, member in self.members.items():
                others = {other: share for other, share in reached.items() if other != name}
                found[name] = self.choice(name, fetched_by_any(others))
                reached[name] = member.fetched(found[name].chosen.plan)
            cost = total_cost(self.members, reached)
            if cost >= best * (1 - _LEAST):
                return choices, best, rounds
            choices, best = found, cost


def fetched_by_any(shares: Mapping[str, Mapping[Hashable, float]]) -> dict[Hashable, float]:
    """The share of each cell's events that any of some complex events fetches; they are taken as independent."""
    cells = {cell for own in shares.values() for cell in own}
    return {cell: 1.0 - math.prod(1.0 - own.get(cell, 0.0) for own in shares.values()) for cell in cells}


def total_cost(members: Members, shares: Mapping[str, Mapping[Hashable, float]]) -> float:
    """The expected events per tick of all complex events together, by the shares that each fetches."""
    rates = {
        cell: rate
        for member in members.values()
        for stream in streams(member.root)
        for cell, rate in member.of(stream).items()
    }
    return sum(rates[cell] * share for cell, share in fetched_by_any(shares).items())
