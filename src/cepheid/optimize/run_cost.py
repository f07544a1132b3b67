"""The cost of runs (SASE+ §5, and any match by groups of runs), in nanoseconds as for stacks and trees (`cost`).

Both read the components of a sequence from the first to the last. Under skip till next match a run continues in one
way: an event visits the runs that wait for one like it, and each run that it fits becomes one other run. Under skip
till any match the runs with the same values are one group, so the cost of an event is that of the groups that it
extends and of the matches that are enumerated, whatever the number of runs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from cepheid import expr as ex
from cepheid.expr import At, Attr, Compare, Expr
from cepheid.optimize.alternatives import alternatives
from cepheid.optimize.cost import (
    HASH,
    PREDICATE_WEIGHT,
    Model,
    Operand,
    events_in_window,
    nothing_between,
    reading_cost,
    sequence_pairs,
)
from cepheid.optimize.search import Situation
from cepheid.optimize.stats import DEFAULT_ORDER
from cepheid.physical import Step

RUN = 30.0
"""Nanoseconds to make a run, or to change one, with the node of its event."""
VISIT = 4.0
"""Nanoseconds to test a run or a group that an event may extend."""
GROUP = 90.0
"""Nanoseconds to find the group that an event extends, and to add the new group to a table and the store."""
FOLD = 20.0
"""Nanoseconds to visit a node of the store for a summary."""
ENUMERATE = 10.0
"""Nanoseconds for each event of a match that is written out."""


def runs_cost(steps: Sequence[Step], situation: Situation) -> float:
    """Nanoseconds for each event under a contiguity or skip till next match."""
    model = situation.model(alternatives(situation.query)[0])
    components = _Components(steps, model)
    waiting = components.cardinality(0)
    cost = reading_cost(model) + RUN * (waiting + components.negated)
    for i in range(1, len(components.positive)):
        fitting = components.cardinality(i) * components.equal(i) * components.others(i)
        visited = components.cardinality(i) * waiting * nothing_between(fitting) * components.equal(i)
        waiting *= 1.0 - math.exp(-fitting)
        cost += HASH * components.cardinality(i) + VISIT * visited * components.test_weight(i) + RUN * waiting
        if components.positive[i].kleene:
            cost += RUN * waiting * fitting * DEFAULT_ORDER
    cost += ENUMERATE * len(components.positive) * waiting
    return cost / events_in_window(model)


def any_runs_cost(steps: Sequence[Step], situation: Situation) -> float:
    """Nanoseconds for each event under skip till any match. The number of matches of a closure cannot be predicted:
    a closure counts as one event. A summary visits the events of a window once for each that completes a match;
    without a window, all of them once."""
    query = situation.query
    model = situation.model(alternatives(query)[0])
    components = _Components(steps, model)
    first = components.cardinality(0)
    matches = Operand(first, 1, first)
    cost = reading_cost(model) + GROUP * (first + components.negated)
    nodes = first
    for i in range(1, len(components.positive)):
        here = components.cardinality(i)
        if components.count(i):  # such tests run on each group, and groups differ in the attributes that they read
            cost += VISIT * here * components.cardinality(i - 1) * components.equal(i) * components.test_weight(i)
        pairs = sequence_pairs(matches, Operand(here, 1, here), DEFAULT_ORDER)
        made = pairs.fitting * components.equal(i) * components.others(i)
        matches = Operand(made, matches.classes + 1, matches.starts)
        items = max(here, made) if components.differ(i) else here
        cost += (GROUP + HASH) * items * (2 if components.positive[i].kleene else 1)
        nodes += items
    if query.summarizes:
        last = len(components.positive) - 1
        passes = components.cardinality(last) * (components.equal(last) if query.window is not None else 0.0)
        cost += FOLD * (1.0 + passes) * nodes
    else:
        cost += ENUMERATE * len(components.positive) * min(matches.cardinality, query.limit or math.inf)
    return float(cost / events_in_window(model))


class _Components:
    """The positive components of a sequence, and the predicates that are tested when each is reached."""

    def __init__(self, steps: Sequence[Step], model: Model) -> None:
        self.model = model
        self.positive = [step for step in steps if not step.negated]
        self.negated = sum(model.cardinality(step.var) for step in steps if step.negated)
        """The negated events of a window: each is looked up and stored."""
        names = [step.var for step in self.positive]
        self._ready: list[list[Expr]] = [[] for _ in names]
        for predicate in model.predicates:
            indexes = [names.index(var) for var in ex.variables(predicate) if var in names]
            if indexes and ex.variables(predicate) <= set(names):
                self._ready[max(indexes)].append(predicate)

    def cardinality(self, i: int) -> float:
        return self.model.cardinality(self.positive[i].var)

    def equal(self, i: int) -> float:
        """The share of earlier runs with equal keys, which are looked up."""
        return math.prod(self.model.stats.selectivity(p) for p in self._ready[i] if _is_equality(p))

    def others(self, i: int) -> float:
        return math.prod(self.model.stats.selectivity(p) for p in self._ready[i] if not _is_equality(p))

    def differ(self, i: int) -> bool:
        """Whether the runs that reach a component are many groups: later tests read their earlier events."""
        tests = (p for ready in self._ready[i:] for p in ready if not _is_equality(p))
        earlier = {step.var for step in self.positive[:i]}
        return any(ex.variables(p) & earlier for p in tests)

    def count(self, i: int) -> int:
        return sum(not _is_equality(p) for p in self._ready[i])

    def test_weight(self, i: int) -> float:
        return 1.0 + PREDICATE_WEIGHT * self.count(i) / VISIT


def _is_equality(predicate: Expr) -> bool:
    match predicate:
        case Compare(op="=", left=Attr(at=At.EVENT) as a, right=Attr(at=At.EVENT) as b):
            return a.var != b.var
    return False
