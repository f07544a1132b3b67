"""The cost of active instance stacks (SASE §4), in nanoseconds as for tree plans (`cost`).

An event that can be the last component starts a search backwards, component by component, each within the rest of
the window; no intermediate result is stored. So the combinations tried are those of a right-deep tree without its
buffers. An instance is only pushed where one of the component before it is in the window, so a rare first component
spares all searches but those around it.
"""

from __future__ import annotations

import math

from cepheid.optimize.cost import (
    HASH,
    OUTPUT_WEIGHT,
    PREDICATE_WEIGHT,
    SEARCH,
    TRY,
    Model,
    Operand,
    kept,
    one_of_each,
    reading_cost,
    sequence_pairs,
)
from cepheid.optimize.placement import names_of, nearest

PUSH = 12.0
"""Nanoseconds to drop expired instances and to push one."""
STACK_OUTPUT = 0.6
"""The cost of a match, relative to one of a tree, whose events are read through its buffers."""
STACK_TRY = 0.8
"""The cost of a combination, relative to one of a tree: instances on a stack are within the window and need no test."""


def stacks_cost(model: Model) -> float:
    """Nanoseconds while a window passes, of a sequence of classes."""
    names = model.alternative.plain
    alive = 1.0 - math.exp(-model.cardinality(names[0]) * _equal_share(model, names[0], frozenset(names)))
    cost = reading_cost(model) + PUSH * kept(model)
    suffix = Operand(model.cardinality(names[-1]), 1, model.cardinality(names[-1]))
    if any(test.is_equality for test in model.tests):
        cost += HASH * kept(model)
    left, _ = _settled(model, frozenset(names[-1:]), frozenset())
    suffix = Operand(suffix.cardinality * left, 1, suffix.starts)
    for depth in range(len(names) - 2, -1, -1):
        after = frozenset(names[depth + 1 :])
        here = Operand(model.cardinality(names[depth]), 1, model.cardinality(names[depth]))
        pairs = sequence_pairs(here, suffix, model.stats.order(names[depth : depth + 1], names[depth + 1 : depth + 2]))
        own = one_of_each(t for t in model.tests if names[depth] in t.names and t.names <= after | {names[depth]})
        equal = math.prod(test.selectivity for test in own if test.is_equality)
        others = [test.selectivity for test in own if not test.is_equality]
        left, searches = _settled(model, after | {names[depth]}, after)
        # A search backwards ends at an excluded event.
        tried = pairs.tried * equal * left * (alive if depth else 1.0)
        cost += TRY * STACK_TRY * tried * (1.0 + PREDICATE_WEIGHT * len(others))
        made = pairs.fitting * equal * math.prod(others)
        cost += SEARCH * made * left * searches
        suffix = Operand(made * left, suffix.classes + 1, here.starts)
    return float(cost + TRY * OUTPUT_WEIGHT * STACK_OUTPUT * suffix.cardinality)


def _equal_share(model: Model, var: str, names: frozenset[str]) -> float:
    """The share of events with the key of an event of the variable, if equalities define a key."""
    about = one_of_each(test for test in model.tests if var in test.names <= names)
    shares = [test.selectivity for test in about if test.is_equality]
    return min(shares, default=1.0)


def _settled(model: Model, known: frozenset[str], before: frozenset[str]) -> tuple[float, int]:
    """The absences that can be tested as soon as these components are bound: the share of sequences that pass, and the
    number of tests."""
    survival, searches = 1.0, 0
    for absence in model.alternative.absences:
        levels = (*absence.sides.before, *absence.sides.after)
        sides = {var for level in levels for var in nearest(level)}
        about = {v for p in model.predicates if set(absence.variables) & names_of(p) for v in names_of(p)}
        needed = (sides | about) & set(model.alternative.plain)
        if needed <= known and not needed <= before:
            survival *= model.survival(absence)
            searches += len(absence.variables)
    return survival, searches
