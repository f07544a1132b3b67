"""Plan generation (CED §3.2): dynamic programming over sets of subevents with Pareto fronts (Algorithm 1), forward and
backward stepwise heuristics, composition over the event detection tree, and limits on the plans that are passed up."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from cepheid.acquire.cost import CONTINUOUS, Activity, CostModel, Estimate
from cepheid.acquire.plans import LEAF, Plan, bits, may_follow, unit_node, why_single_step
from cepheid.acquire.tree import Node, Operator, Primitive

EXHAUSTIVE_UNITS = 8
"""Operators with more subevents are planned by heuristics."""


class Candidate(NamedTuple):
    """A plan with its cost and latency."""

    cost: float
    latency: float
    plan: Plan

    @property
    def estimate(self) -> Estimate:
        return Estimate(self.cost, self.latency)


def pareto(candidates: Iterable[Candidate]) -> list[Candidate]:
    """The plans that no other plan beats in cost or latency without being worse in the other (Definition 1), the
    cheapest first. Of equal ones the first is kept."""
    found: list[Candidate] = []
    for candidate in sorted(candidates, key=lambda c: (c.cost, c.latency)):
        if not found or candidate.latency < found[-1].latency:
            found.append(candidate)
    return found


# --- limits (§6.3) ----------------------------------------------------------------------------------------------------

Chooser = Callable[[Sequence[Candidate], int], list[Candidate]]


def _random(plans: Sequence[Candidate], count: int) -> list[Candidate]:
    return random.Random(len(plans)).sample(list(plans), count)


def _quickest(plans: Sequence[Candidate], count: int) -> list[Candidate]:
    return sorted(plans, key=lambda c: (c.latency, c.cost))[:count]


def _cheapest(plans: Sequence[Candidate], count: int) -> list[Candidate]:
    return sorted(plans, key=lambda c: (c.cost, c.latency))[:count]


def _balanced(plans: Sequence[Candidate], count: int) -> list[Candidate]:
    """Those with the shortest projections to the line cost = latency, both as shares of the largest."""
    cost = max((c.cost for c in plans), default=1.0) or 1.0
    latency = max((c.latency for c in plans), default=1.0) or 1.0
    return sorted(plans, key=lambda c: (c.cost / cost + c.latency / latency, c.cost))[:count]


def _mixture(plans: Sequence[Candidate], count: int) -> list[Candidate]:
    third = max(count // 3, 1)
    chosen: list[Candidate] = []
    for choose, share in ((_quickest, third), (_cheapest, third), (_balanced, count)):
        others = [plan for plan in plans if plan not in chosen]
        chosen += choose(others, min(share, count - len(chosen)))
    return chosen


STRATEGIES: Mapping[str, Chooser] = {
    "random": _random,
    "latency": _quickest,
    "cost": _cheapest,
    "balance": _balanced,
    "mixture": _mixture,
}


@dataclass(frozen=True, slots=True)
class SearchOptions:
    """How plans are searched for."""

    algorithm: str = "auto"
    """`dp`, `heuristic`, or `auto`: dynamic programming for up to `EXHAUSTIVE_UNITS` subevents."""
    limit: int | None = None
    """How many plans of a subevent are passed to its operator; None: all."""
    strategy: str = "mixture"


DEFAULT_SEARCH = SearchOptions()


# --- the search -------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Search:
    """Finds plans of the nodes of a tree. `considered` counts the plans that were built."""

    model: CostModel
    options: SearchOptions = DEFAULT_SEARCH
    considered: int = 0
    _fronts: dict[tuple[str, Activity, bool], list[Candidate]] = field(default_factory=dict, repr=False)

    def plans(self, node: Node, active: Activity = CONTINUOUS, pulled: bool = False) -> list[Candidate]:
        """The Pareto front of a node that is active for a share of the time, the cheapest first."""
        if isinstance(node, Primitive):
            estimate = self.model.estimate(node, LEAF, active, pulled)
            return [Candidate(estimate.cost, estimate.latency, LEAF)]
        key = (node.name, active, pulled)
        if key not in self._fronts:
            exact = self.options.algorithm == "dp" or (
                self.options.algorithm == "auto" and len(node.units) <= EXHAUSTIVE_UNITS
            )
            generating = _Generating(self, node, active, pulled)
            self._fronts[key] = generating.by_programming() if exact else generating.by_heuristics()
        return self._fronts[key]

    def passed_up(self, node: Node, active: Activity, pulled: bool) -> list[Candidate]:
        """The plans of a subevent that its operator considers."""
        plans = self.plans(node, active, pulled)
        limit = self.options.limit
        if limit is None or len(plans) <= limit:
            return plans
        return pareto(STRATEGIES[self.options.strategy](plans, limit))


class _Partial(NamedTuple):
    """Some steps of an operator's plan."""

    cost: float
    latency: float
    steps: tuple[int, ...]
    chosen: tuple[tuple[int, Plan], ...]
    """The plans of the units."""


@dataclass(slots=True)
class _Generating:
    """Plans of one operator."""

    search: Search
    operator: Operator
    active: Activity
    pulled: bool
    _units: dict[tuple[int, int], list[Candidate]] = field(default_factory=dict)

    def unit(self, unit: int, before: int) -> list[Candidate]:
        """The plans of a unit whose step comes after the units `before`."""
        key = (unit, before)
        if key not in self._units:
            node = unit_node(self.operator, unit)
            active = self.search.model.unit_activity(self.operator, unit, before, self.active)
            self._units[key] = self.search.passed_up(node, active, self.pulled or before != 0)
        return self._units[key]

    @property
    def everything(self) -> int:
        return (1 << len(self.operator.units)) - 1

    def plan_of(self, partial: _Partial) -> Candidate:
        below = dict(partial.chosen)
        plan = Plan(tuple(bits(step) for step in partial.steps), tuple(below[u] for u in range(len(below))))
        return Candidate(partial.cost, partial.latency, plan)

    # --- Algorithm 1 --------------------------------------------------------------------------------------------------

    def by_programming(self) -> list[Candidate]:
        table: dict[int, list[_Partial]] = {0: [_Partial(0.0, 0.0, (), ())]}
        for mask in range(1, self.everything + 1):
            found: list[_Partial] = []
            step = mask
            while step:
                before = mask & ~step
                if before in table and may_follow(self.operator, step, before):
                    found += self._longer(table[before], step, before)
                step = (step - 1) & mask
            if found:
                table[mask] = _front(found)
        return [self.plan_of(partial) for partial in table[self.everything]]

    def _longer(self, partials: list[_Partial], step: int, before: int) -> list[_Partial]:
        """Plans with one more step, with every choice for the plans of its subevents."""
        last = self._step(step, before)
        found = []
        for partial in partials:
            for own in last:
                latency = self.search.model.latency_after(self.operator, before, partial.latency, step, own.latency)
                found.append(
                    _Partial(partial.cost + own.cost, latency, (*partial.steps, step), (*partial.chosen, *own.chosen))
                )
        self.search.considered += len(found)
        return found

    def _step(self, step: int, before: int) -> list[_Partial]:
        """The choices for one step: the sum of the costs, the largest latency."""
        found = [_Partial(0.0, 0.0, (), ())]
        for unit in bits(step):
            plans = self.unit(unit, before)
            if len(plans) == 1 and len(found) == 1:
                (only,), (one,) = plans, found
                latency = max(one.latency, only.latency)
                found = [_Partial(one.cost + only.cost, latency, (), (*one.chosen, (unit, only.plan)))]
                continue
            found = _front(
                [
                    _Partial(one.cost + c.cost, max(one.latency, c.latency), (), (*one.chosen, (unit, c.plan)))
                    for one in found
                    for c in plans
                ]
            )
        return found

    # --- heuristics (§3.2.2) ------------------------------------------------------------------------------------------

    def by_heuristics(self) -> list[Candidate]:
        """The plans of both heuristics, those that are Pareto-optimal among them."""
        quickest = tuple(_LAST for _ in self.operator.units)
        walked = self._walk(self._state((self.everything,), quickest), forward=True)
        if why_single_step(self.operator) is None:
            walked += self._walk(self._one_by_one(), forward=False)
        return pareto(self.plan_of(self._partial(state)) for state in walked)

    def _one_by_one(self) -> _State:
        """A plan with low cost: one subevent in each step, in the order of cost × rate, negated ones at the end."""
        negated = self.operator.negated_units

        def weight(unit: int) -> tuple[bool, float]:
            return bool(negated >> unit & 1), min(plan.cost for plan in self.unit(unit, 0))

        order = sorted(range(len(self.operator.units)), key=weight)
        return self._state(tuple(1 << unit for unit in order), tuple(0 for _ in order))

    def _walk(self, state: _State, forward: bool) -> list[_State]:
        """Greedy moves from a plan, each to the neighbour with the largest gain: of cost forward, of latency
        backward."""
        walked = [state]
        current = self._totals(state)
        while True:
            best: tuple[tuple[float, float], _State, Estimate] | None = None
            for neighbour in self._later(state) if forward else self._earlier(state):
                totals = self._totals(neighbour)
                self.search.considered += 1
                gain = current.cost - totals.cost if forward else current.latency - totals.latency
                price = totals.latency - current.latency if forward else totals.cost - current.cost
                if gain <= 1e-12 * max(abs(current.cost if forward else current.latency), 1e-300):
                    continue
                rank = (gain / price if price > 0 else math.inf, gain)
                if best is None or rank > best[0]:
                    best = rank, neighbour, totals
            if best is None:
                return walked
            _, state, current = best
            walked.append(state)

    def _later(self, state: _State) -> Iterable[_State]:
        """Plans in which one subevent is in a later step, the next one or one of its own, or has a cheaper plan."""
        before = 0
        for i, step in enumerate(state.steps):
            following = state.steps[i + 1] if i + 1 < len(state.steps) else 0
            for unit in self._movable(step, before, state.chosen, dearest=True):
                bit, rest = 1 << unit, step & ~(1 << unit)
                kept = (rest,) if rest else ()
                if following:
                    yield from self._changed(state, i, 2, (*kept, following | bit), before)
                if rest:
                    yield from self._changed(state, i, 1, (rest, bit), before)
            before |= step
        negated = self.operator.negated_units
        if negated and len(state.steps) == 1:
            yield from self._changed(state, 0, 1, (self.everything & ~negated, negated), 0)
        yield from self._other_plans(state, -1)

    def _earlier(self, state: _State) -> Iterable[_State]:
        """Plans in which one subevent is in an earlier step, or has a quicker plan."""
        before = 0
        for i, (earlier, step) in enumerate(itertools.pairwise(state.steps)):
            for unit in self._movable(step, before | earlier, state.chosen, dearest=False):
                rest = step & ~(1 << unit)
                yield from self._changed(state, i, 2, (earlier | 1 << unit, *((rest,) if rest else ())), before)
            before |= earlier
        if self.operator.negated_units and len(state.steps) == 2:
            yield from self._changed(state, 0, 2, (self.everything,), 0)
        yield from self._other_plans(state, 1)

    def _movable(self, step: int, before: int, chosen: tuple[int, ...], dearest: bool) -> list[int]:
        """The subevents of a step that are worth a move: those with the highest (or lowest) costs, and the slowest."""
        units = bits(step)
        if len(units) <= _MOVES:
            return list(units)
        of = {unit: self._candidate(unit, before, chosen) for unit in units}
        ranked = sorted(units, key=lambda unit: of[unit].cost, reverse=dearest)
        slowest = max(units, key=lambda unit: of[unit].latency)
        return list(dict.fromkeys([*ranked[: _MOVES - 1], slowest]))

    def _other_plans(self, state: _State, move: int) -> Iterable[_State]:
        """With the next cheaper (-1) or quicker (+1) plan of one complex subevent."""
        before = 0
        for step in state.steps:
            for unit in bits(step & self._complex):
                plans = self.unit(unit, before)
                index = min(state.chosen[unit], len(plans) - 1) + move
                if 0 <= index < len(plans):
                    yield self._state(state.steps, (*state.chosen[:unit], index, *state.chosen[unit + 1 :]))
            before |= step

    @property
    def _complex(self) -> int:
        """The units that may have several plans."""
        items, units = self.operator.items, self.operator.units
        return sum(1 << i for i, unit in enumerate(units) if isinstance(items[unit[0]], Operator))

    def _candidate(self, unit: int, before: int, chosen: tuple[int, ...]) -> Candidate:
        plans = self.unit(unit, before)
        return plans[min(chosen[unit], len(plans) - 1)]

    def _estimate(self, step: int, before: int, chosen: tuple[int, ...]) -> Estimate:
        candidates = [self._candidate(unit, before, chosen) for unit in bits(step)]
        return Estimate(sum(c.cost for c in candidates), max(c.latency for c in candidates))

    def _state(self, steps: tuple[int, ...], chosen: tuple[int, ...]) -> _State:
        before = 0
        estimates = []
        for step in steps:
            estimates.append(self._estimate(step, before, chosen))
            before |= step
        return _State(steps, chosen, tuple(estimates))

    def _changed(self, state: _State, first: int, count: int, steps: tuple[int, ...], before: int) -> Iterable[_State]:
        """The plan with some steps replaced, where negation allows it. The other steps cost what they did: each comes
        after the same subevents."""
        estimates = []
        for step in steps:
            if not may_follow(self.operator, step, before):
                return
            estimates.append(self._estimate(step, before, state.chosen))
            before |= step
        last = first + count
        yield _State(
            (*state.steps[:first], *steps, *state.steps[last:]),
            state.chosen,
            (*state.estimates[:first], *estimates, *state.estimates[last:]),
        )

    def _totals(self, state: _State) -> Estimate:
        latency, before = 0.0, 0
        for step, own in zip(state.steps, state.estimates, strict=True):
            latency = self.search.model.latency_after(self.operator, before, latency, step, own.latency)
            before |= step
        return Estimate(sum(own.cost for own in state.estimates), latency)

    def _partial(self, state: _State) -> _Partial:
        chosen: list[tuple[int, Plan]] = []
        before = 0
        for step in state.steps:
            chosen += [(unit, self._candidate(unit, before, state.chosen).plan) for unit in bits(step)]
            before |= step
        return _Partial(*self._totals(state), state.steps, tuple(chosen))


class _State(NamedTuple):
    """A plan while heuristics change it: its steps as bits, for each unit the index in its front of plans, and the
    estimate of each step."""

    steps: tuple[int, ...]
    chosen: tuple[int, ...]
    estimates: tuple[Estimate, ...]


_LAST = 1 << 30
"""The index of the quickest plan of a front, however long it is."""
_MOVES = 4
"""The subevents of a step that heuristics consider moving."""


def _front(partials: list[_Partial]) -> list[_Partial]:
    found: list[_Partial] = []
    for partial in sorted(partials, key=lambda p: (p.cost, p.latency)):
        if not found or partial.latency < found[-1].latency:
            found.append(partial)
    return found
