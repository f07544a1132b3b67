"""The slots of queries without a key: where new ones run, and when they move because the rates have drifted.

A query is not divided, so no operator sends messages, and equal queries are one already: NEXT's deployment cost (§4.4)
is the CPU of a query and of what runs on its slot. New queries are placed by what their plans expect, and those that
run by the CPU time that their batches have taken.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from cepheid.deploy.operator_graph import OperatorTree, PlacedOperator
from cepheid.deploy.placement import placement, require_strategy
from cepheid.graph import connected
from cepheid.streaming.plan import ONE_BUCKET, StreamPlan

GREEDY, ROUND_ROBIN, ANNEALING = "greedy", "round-robin", "annealing"
_BATCHES = 5
"""The batches that are measured before queries move; those before count half as much every three batches."""
_DECAY = 0.8
_GAIN = 1.3
"""Queries move if the busiest slot takes so many times as long as it would after the move,"""
_SECONDS = 0.25
"""and so many seconds longer for a batch: the stream restarts between two batches."""
NO_INNER: Mapping[str, float] = {}


class Cost(NamedTuple):
    """The nanoseconds for an event: of a query alone, and of those that feed it, by their names."""

    own: float
    inner: Mapping[str, float] = NO_INNER

    @property
    def whole(self) -> float:
        return self.own + sum(self.inner.values())


def placed(
    costs: Mapping[str, Cost], known: Mapping[str, int], loads: Sequence[float], strategy: str = GREEDY
) -> dict[str, int]:
    """The slot of each query: those that have one stay, and the others follow, the most expensive first. `loads` are
    those of the slots without these queries. A query that feeds several is evaluated once on a slot, so that these are
    placed together until they take as long as it does."""
    require_strategy(strategy)
    if strategy == ANNEALING and not known and not any(loads):
        return _annealed({name: cost.whole for name, cost in costs.items()}, len(loads))
    taken, there, slots = [*loads], [set[str]() for _ in loads], dict[str, int]()

    def again(name: str, slot: int) -> float:
        """The cost of the queries that feed it and are not evaluated on the slot."""
        return sum(cost for inner, cost in costs[name].inner.items() if inner not in there[slot])

    old = [name for name in known if name in costs]
    new = sorted((name for name in costs if name not in known), key=lambda name: -costs[name].whole)
    for number, name in enumerate([*old, *new], -len(old)):
        slot = number % len(loads)
        if number < 0:
            slot = known[name]
        elif strategy != ROUND_ROBIN:
            slot = min(range(len(loads)), key=lambda slot: taken[slot] + 2 * again(name, slot))
        taken[slot] += costs[name].own + again(name, slot)
        there[slot].update(costs[name].inner)
        slots[name] = slot
    return slots


def _annealed(costs: Mapping[str, float], slots: int) -> dict[str, int]:
    found = placement([_tree(name, cost) for name, cost in costs.items()], slots, ANNEALING)
    return {one.operator.name: one.node for one in found.operators}


def _tree(name: str, cost: float) -> OperatorTree:
    return OperatorTree(name, (PlacedOperator(name, (), cost, 0.0),))


# --- measured loads ---------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Loads:
    """The CPU time of the buckets of queries without a key in a batch, the latest batches first."""

    batches: int = 0
    costs: dict[str, float] = field(default_factory=dict)
    """The nanoseconds of each query, by its identity."""
    spent: dict[int, float] = field(default_factory=dict)
    """The nanoseconds of each bucket."""

    def begin(self) -> None:
        """Another batch."""
        self.batches += 1
        for held in (self.costs, self.spent):
            for name in held:
                held[name] *= _DECAY  # type: ignore[index]  # mypy joins the types of the keys

    def add(self, bucket: int, spent: int, costs: Mapping[str, int]) -> None:
        self.spent[bucket] = self.spent.get(bucket, 0.0) + (1 - _DECAY) * spent
        for name, cost in costs.items():
            self.costs[name] = self.costs.get(name, 0.0) + (1 - _DECAY) * cost


def moves(plan: StreamPlan, loads: Loads, strategy: str = GREEDY) -> dict[str, int]:
    """The queries that move, with their slots; none as long as that gains little. Those that use equal ones move
    together."""
    if loads.batches < _BATCHES or ONE_BUCKET not in plan.keys or strategy == ROUND_ROBIN:
        return {}
    first = plan.keys.index(ONE_BUCKET) * plan.buckets
    measured = [query for query in plan.queries if query.key == ONE_BUCKET and query.id in loads.costs]
    groups = connected([[f"{name} {query.slot}" for name in query.inner.values()] for query in measured])
    of = {measured[group[0]].id: [measured[number] for number in group] for group in groups}
    now = {name: queries[0].slot for name, queries in of.items()}
    costs = {name: sum(loads.costs[query.id] for query in queries) for name, queries in of.items()}
    rest = np.array([loads.spent.get(first + slot, 0.0) for slot in range(plan.buckets)])
    for name, slot in now.items():
        rest[slot] -= costs[name]
    rest = np.maximum(rest, 0.0)
    wanted = _annealed(costs, plan.buckets) if strategy == ANNEALING else _evened(costs, now, rest)
    before, after = (_busiest(costs, slots, rest) for slots in (now, wanted))
    if before < _GAIN * after or before - after < _SECONDS * 1e9:
        return {}
    return {query.name: slot for name, slot in wanted.items() if slot != now[name] for query in of[name]}


def _evened(costs: Mapping[str, float], slots: Mapping[str, int], rest: np.ndarray) -> dict[str, int]:
    """As few moves as possible: each takes the query from the busiest slot that helps most."""
    found, loads = dict(slots), rest.copy()
    for name, slot in slots.items():
        loads[slot] += costs[name]
    for _ in costs:
        busiest, idlest = int(np.argmax(loads)), int(np.argmin(loads))
        here = [name for name, slot in found.items() if slot == busiest]
        high = {name: max(loads[busiest] - costs[name], loads[idlest] + costs[name]) for name in here}
        best = min(here, key=lambda name: (high[name], name), default=None)
        if best is None or high[best] >= loads[busiest]:
            break
        found[best] = idlest
        loads[busiest] -= costs[best]
        loads[idlest] += costs[best]
    return found


def _busiest(costs: Mapping[str, float], slots: Mapping[str, int], rest: np.ndarray) -> float:
    loads = rest.copy()
    for name, slot in slots.items():
        loads[slot] += costs[name]
    return float(loads.max())
