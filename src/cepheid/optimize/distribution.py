"""How the work of a plan can be divided among tasks: by a key that all events of a match share, by slices of time that
overlap by the window, or not at all.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from cepheid import expr as ex
from cepheid.dialect import Closure
from cepheid.expr import At, Attr, Compare
from cepheid.logic import expanded, normal_form
from cepheid.optimize.core_key import requires_key
from cepheid.optimize.windows import looking_back
from cepheid.pattern import EventClass, Kleene, Query, Seq, Strategy, always_bound, connects, negated_parts
from cepheid.physical import REFERENCE, Plan
from cepheid.types import Family


@dataclass(frozen=True, slots=True)
class Keyed:
    """All events of a match, and all events that a negation excludes, have the same values of these attributes. Events
    without a value match nothing, unless `nulls_match`: then each of them can be a match by itself. `computed` are the
    expressions of attributes that are no columns of the input: `lower(k)`."""

    attributes: tuple[str, ...]
    nulls_match: bool = False
    computed: Mapping[str, ex.Expr] = field(default_factory=dict)


class Sliced(NamedTuple):
    """A match is decided by the events from `before` ticks before its first event to `after` ticks after it."""

    before: int
    after: int


@dataclass(frozen=True, slots=True)
class Undivided:
    """One task sees all events."""

    reason: str


Distribution = Keyed | Sliced | Undivided
_EXACT = (Family.STRING, Family.INTEGER, Family.BOOLEAN)
"""Values that are equal only if they are the same, as opposed to 0.0 and -0.0."""


def distribution(plan: Plan) -> Distribution:
    if plan.evaluator == REFERENCE:
        return Undivided("; ".join(plan.reasons) or "the reference evaluator sees all events")
    return keyed(plan) or slices(plan)


def keyed(plan: Plan) -> Keyed | None:
    """How the work of a compiled plan is divided by a key; None if all its events do not share one."""
    if plan.core is not None:  # fewer parts of a key divide the events less finely
        parts = tuple(name for name in plan.key if name not in plan.derived)
        if parts:
            return Keyed(parts, nulls_match=not requires_key(plan.core))
        computed = {name: plan.derived[name] for name in plan.key if plan.types[name].family in _EXACT}
        return Keyed(tuple(computed), nulls_match=True, computed=computed) if computed else None
    key = shuffle_key(plan)
    return Keyed(key) if key else None


def slices(plan: Plan) -> Sliced | Undivided:
    """How the work of a compiled plan is divided without a key."""
    query = plan.query
    if query.consumes:
        return Undivided("which matches consume an event is decided over all events, since there is no key")
    if isinstance(query.pattern, EventClass) and not plan.counts_events and not query.non_overlapping:
        return Sliced(0, 0)
    if query.non_overlapping:
        return Undivided("which matches overlap is decided over all events, since there is no key")
    if plan.counts_events:
        return Undivided("the window counts all events, since there is no key")
    if plan.window is None and plan.core is not None:
        return Undivided(
            "no FILTER makes the operands share a key, and no OCCURS WITHIN bounds a match from start to end"
        )
    if plan.window is None:
        return Undivided("there is neither a key that all components share nor a window")
    window = int(plan.window)
    if plan.core is not None:  # from the start of a match on, only later events decide it
        return Sliced(0, window)
    if plan.operator_windows is not None:
        return Sliced(looking_back(query.pattern, plan.operator_windows), window)
    return Sliced(window if _looks_back(query) else 0, window)


def may_drop(plan: Plan) -> bool:
    """Whether events that no variable can bind may be dropped. They matter for contiguity and for windows that count
    events."""
    contiguous = plan.query.strategy in (Strategy.STRICT, Strategy.PARTITION)
    return plan.evaluator != REFERENCE and not contiguous and not plan.counts_events


def _looks_back(query: Query) -> bool:
    """Whether events before a match's first event can decide about it: a leading negation, or a leading closure that
    begins at the window's edge."""
    pattern = normal_form(query.pattern)
    first = pattern.items[0] if isinstance(pattern, Seq) else pattern
    closes = isinstance(first, Kleene) and query.dialect.closure is Closure.RUN
    return not isinstance(first, EventClass) and not closes


# --- the shuffle key --------------------------------------------------------------------------------------------------

_Node = tuple[str, bool]
"""A variable, and whether the further events of its closure are meant rather than its (first) event."""


def shuffle_key(plan: Plan) -> tuple[str, ...]:
    """The attributes whose equality is required between all components, negated ones included."""
    if plan.query.strategy is Strategy.STRICT:
        return ()
    return tuple(name for name in plan.key if _joins_all(plan.query, name))


def _joins_all(query: Query, name: str) -> bool:
    """A condition on a variable that a match need not bind (a branch, an empty closure, a negation) does not apply when
    it is not bound, so it cannot join others: they must be joined without it, and it must be joined to one of them."""
    closures = {var for var, role in query.roles.items() if role.binds_many}
    everything = {(var, further) for var in query.roles for further in (False, var in closures)}
    bound = set(always_bound(query.pattern))
    core = {node for node in everything if node[0] in bound}
    links = [pair for p in expanded(query) for pair in _links(p, name, closures)]
    is_linked = len(core) > 1 or any(a == b for a, b in links)
    joined = core.union(*(pair for pair in links if core.intersection(pair)))
    for part in itertools.chain(*negated_parts(query.pattern)):
        # The events of a negated operator count together, so one of them may join the others.
        together = {(var, False) for var in always_bound(part)}
        if together & joined and connects(links, core | together):
            joined |= together
    return bool(core) and is_linked and connects(links, core) and joined == everything


def _links(predicate: ex.Expr, name: str, closures: set[str]) -> Iterator[tuple[_Node, _Node]]:
    """What an equality of the attribute joins."""
    match predicate:
        case Compare(op="=", left=Attr() as left, right=Attr() as right) if left.name == right.name == name:
            if {left.at, right.at} == {At.CURRENT, At.PREVIOUS} and left.var == right.var:
                # Each equals the one before it, so all equal the first.
                yield (left.var, False), (left.var, True)
                return
            for a in _nodes(left, closures):
                for b in _nodes(right, closures):
                    yield a, b


def _nodes(attr: Attr, closures: set[str]) -> tuple[_Node, ...]:
    match attr.at:
        case At.EVENT if attr.var in closures:
            return (attr.var, False), (attr.var, True)
        case At.EVENT | At.FIRST:
            return ((attr.var, False),)
        case At.CURRENT:
            return ((attr.var, True),)
        case _:
            return ()
