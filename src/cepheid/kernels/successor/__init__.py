"""NEXT's core operators on the complete-history time model (NEXT §3.2-3.4): filter, union, next, iteration, exception
and time.

Instances wait for their immediate successor in lists by key, which come from φ's equalities (`network`). Composite
events carry what later operators read (`composites`), and nothing else. Time passes between events: timers fire, and
among composite events of one time the earliest history decides (`evaluator`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import replace

from cepheid import expr as ex
from cepheid import pattern as pt
from cepheid.core_language import core_form
from cepheid.dialect import SUCCESSORS
from cepheid.events import HISTORY, Clock, Duration
from cepheid.expr import At, Attr, Expr, attributes_in
from cepheid.kernels.requirements import why_not
from cepheid.kernels.successor.composites import keep_name
from cepheid.kernels.successor.conditions import waits_for
from cepheid.kernels.successor.evaluator import kernel
from cepheid.kernels.successor.failures import OPTIONS as FAILURE_OPTIONS
from cepheid.kernels.successor.operators import (
    Exception_,
    Iteration,
    Operator,
    Waiting,
    leaves_of,
    lifetime,
    longest,
    operators_of,
    tests_of,
)
from cepheid.kernels.successor.successor_kernel import failed_detections
from cepheid.optimize.core_cost import CompiledModel, model_of
from cepheid.optimize.core_key import core_key
from cepheid.optimize.core_rules import CoreInput, Rewritten, core_text, rewritten_core
from cepheid.optimize.derived import derived
from cepheid.optimize.rules import wants_rewrites
from cepheid.optimize.stats import NO_STATS, Stats
from cepheid.pattern import Pattern
from cepheid.physical import Bit, Kind, Lowered, Options, Plan, not_made_for
from cepheid.types import INTEGER

__all__ = [
    "FOLDS",
    "NAME",
    "OPTIONS",
    "SEARCHES",
    "SWITCHES",
    "able",
    "cost",
    "failed_detections",
    "kernel",
    "placed_operators",
    "plan",
]

NAME = "successor"
OPTIONS: Options = {**FAILURE_OPTIONS, "model": ("compiled", "paper")}
FOLDS = False
SEARCHES = True
SWITCHES = False


def able(lowered: Lowered) -> str | None:
    """EQL."""
    if lowered.query.dialect.selection != SUCCESSORS:
        return not_made_for(lowered.query)
    placed, root, _ = placed_operators(lowered)
    plain = tuple(ex.transform(p, _compiled_apart) for p in placed.between)
    return why_not(replace(placed, between=plain), *_obstacles(root), durations=True)


def _compiled_apart(node: Expr) -> Expr:
    """What stands for a condition that `conditions` compiles itself."""
    match node:
        case ex.OccursWithin():
            return ex.TRUE
        case Attr(at=At.ALL):
            return replace(node, at=At.EVENT)
        case _:
            return node


def _obstacles(root: Operator) -> Iterator[str]:
    for op in root.walk():
        for predicate in tests_of(op):
            for node in ex.walk(predicate):
                inner = [n for n in ex.walk(node) if n is not node]
                is_value = not isinstance(node, ex.And | ex.Or | ex.Not | ex.Filter)
                if is_value and any(isinstance(n, ex.Compare | ex.And | ex.Or | ex.Not | ex.In) for n in inner):
                    every = [n for n in inner if isinstance(n, Attr) and n.at is At.ALL]
                    within = [n for n in inner if isinstance(n, ex.OccursWithin)]
                    if every or within:
                        inner_text = ex.to_text((every or within)[0])
                        yield f"`{inner_text}` inside a condition that is used as a value (write both cases, with OR)"
            groups = {n.var for n in ex.walk(predicate) if isinstance(n, Attr) and n.at is At.ALL}
            if len(groups) > 1:
                yield f"ALL of several variables in `{ex.to_text(predicate)}` (write max or min of one of them)"
            for node in ex.walk(predicate):
                is_read = isinstance(node, ex.Aggregate) or (isinstance(node, Attr) and node.at is At.ALL)
                if is_read and isinstance(node, ex.Aggregate | Attr) and _is_nested(op, node.var):
                    yield f"`{ex.to_text(node)}` over an iteration inside another one (write a query of its own for it)"


def _is_nested(op: Operator, var: str) -> bool:
    """Whether the events of a variable that an operator reads are those of an iteration inside another one."""
    around = [node for node in op.walk() if isinstance(node, Iteration) and var in node.variables]
    return len(around) > 1


def plan(lowered: Lowered, stats: Stats) -> Plan:
    rewritten = _rewritten(lowered, stats)
    placed, root, core = placed_operators(lowered, rewritten.core)
    made = placed.plan(NAME, by_variable=True)
    leaves = [leaf for leaf in leaves_of(root) if leaf.keeps]
    keeps = [Bit(keep_name(leaf.var), leaf.var, leaf.event_class.types, tuple(leaf.keeps)) for leaf in leaves]
    compares = any(isinstance(op, Waiting) and op.awaited.lengths is None and _is_composite(op.awaited, lowered)
                   for op in root.walk())  # fmt: skip
    histories = {HISTORY: INTEGER} if compares else {}
    return replace(
        made,
        core=core,
        columns={**made.columns, **dict.fromkeys(histories, Kind.INT)},
        types={**made.types, **histories},
        composite=lowered.composite if compares else frozenset(),
        bits=(*made.bits, *keeps),
        key=core_key(core, lowered.lacks, lowered.types),
        window=longest(root, lowered.has_durations),
        grows=tuple(_growing(root, lowered.has_durations)),
        reasons=rewritten.notes,
    )


def _rewritten(lowered: Lowered, stats: Stats) -> Rewritten:
    """The core form after the laws of §4.3. Failed detections are shown as the query is issued."""
    core = core_in_ticks(lowered)
    if not wants_rewrites(lowered.options) or str(lowered.options.get("failures", "count")) == "rows":
        return Rewritten(core)
    model = None if stats == NO_STATS else model_of(str(lowered.options.get("model", "")), stats, lowered.has_durations)
    given = CoreInput(lowered.types, lowered.lacks, lowered.has_durations, lowered.composite, model)
    found = rewritten_core(core, given)
    if _grows(core, lowered) or not _grows(found.core, lowered):
        return found
    return Rewritten(core, (*found.notes, f"{core_text(core)} as issued: the rewritten form would have no bound"))


def _grows(core: Pattern, lowered: Lowered) -> bool:
    root = operators_of(core, lowered.has_durations, lowered.composite)
    return any(True for _ in _growing(root, lowered.has_durations))


def _is_composite(op: Operator, lowered: Lowered) -> bool:
    """Whether it binds events that other queries derive."""
    return any(lowered.composite.intersection(leaf.event_class.types) for leaf in leaves_of(op))


def _growing(root: Operator, has_durations: bool) -> Iterator[str]:
    """What is retained without a bound."""
    for op in root.walk():
        if isinstance(op, Waiting) and lifetime(op, has_durations) is None:
            held = waits_for(op).text
            yield f"every {held} that waits for {op.awaited.text} in {op.text}"
        elif isinstance(op, Exception_) and has_durations and lifetime(op, has_durations) is None:
            yield f"every {op.cancel.text}, since {op.item.text} may have started long before it ends"


def cost(plan: Plan, stats: Stats) -> float:
    """Nanoseconds for each event."""
    assert plan.core is not None
    return CompiledModel(stats, plan.has_durations).whole(plan.core)


def core_in_ticks(lowered: Lowered) -> Pattern:
    """The core form as issued, durations in ticks."""
    clock = lowered.clock
    return _with_predicates(
        core_form(lowered.query.pattern, lowered.predicates),
        lambda p: _in_ticks(p, clock),
        clock,
        lambda p: _with_last(p, lowered.lacks, _in_unions(lowered.query.pattern)),
    )


def placed_operators(lowered: Lowered, core: Pattern | None = None) -> tuple[Lowered, Operator, Pattern]:
    """The query with its predicates sorted by operators, the operators, and the core form, durations in ticks: a
    rewritten one, or that as issued."""
    core = core_in_ticks(lowered) if core is None else core
    unplaced = operators_of(core, lowered.has_durations, lowered.composite)
    between = dict.fromkeys(p for op in unplaced.walk() for p in tests_of(op))
    own = {name: type_ for name, type_ in lowered.types.items() if name not in lowered.derived}
    computed = derived(list(between), own)
    summarised = {name: lowered.derived[name] for name in attributes_in(lowered.summary) if name in lowered.derived}
    changed = dict(zip(between, computed.predicates, strict=True))
    core = _with_predicates(core, lambda p: changed.get(p, p), None)
    root = operators_of(core, lowered.has_durations, lowered.composite)
    leaves = leaves_of(root)
    unread: dict[str, tuple[Expr, ...]] = {var: () for var in lowered.roles}  # what cancels a single event has no leaf
    placed = replace(
        lowered,
        alone={**unread, **{leaf.var: tuple(leaf.tests) for leaf in leaves}},
        taken={leaf.var: tuple(leaf.keeps) for leaf in leaves},
        between=tuple(dict.fromkeys(p for op in root.walk() for p in tests_of(op))),
        types={**own, **{name: lowered.types[name] for name in summarised}, **computed.types},
        lacks=computed.lacks({name: types for name, types in lowered.lacks.items() if name not in lowered.derived}),
        derived={**summarised, **computed.columns},
    )
    return placed, root, core


def _in_ticks(predicate: Expr, clock: Clock) -> Expr:
    return ex.replaced(predicate, ex.OccursWithin, lambda node: replace(node, duration=_ticks(node.duration, clock)))


def _ticks(duration: Duration, clock: Clock) -> Duration:
    """A duration in whole ticks: times are whole, so a rest makes no difference."""
    return Duration(int(clock.ticks(duration) // 1))


def _in_unions(pattern: Pattern) -> set[str]:
    """The variables of branches."""
    return {var for node in pt.walk(pattern) if isinstance(node, pt.Disj) for var in pt.roles(node)}


def _with_last(predicate: Expr, lacks: Collection[str], optional: Collection[str]) -> Expr:
    """A condition of an iteration on each item, with the last item instead of ALL if that decides: since all items
    satisfy `a.v > ALL(a.v)`, the last one has the greatest value. Not every item binds `optional` variables."""

    def change(node: Expr) -> Expr:
        match node:
            case ex.Compare(op="=" | "<" | "<=" | ">" | ">=", left=Attr() as left, right=Attr() as right):
                is_one = (left.var, left.name) == (right.var, right.name) and left.name not in lacks
                is_one = is_one and left.var not in optional
                if is_one and {left.at, right.at} == {At.EVENT, At.ALL}:
                    last = [replace(side, at=At.PREVIOUS) if side.at is At.ALL else side for side in (left, right)]
                    return replace(node, left=last[0], right=last[1])
        return node

    match predicate:
        case ex.Filter():
            return replace(predicate, item=change(predicate.item))
        case _:
            return change(predicate)


def _with_predicates(
    pattern: Pattern,
    change: Callable[[Expr], Expr],
    clock: Clock | None,
    of_items: Callable[[Expr], Expr] = lambda predicate: predicate,
) -> Pattern:
    """The core form with other predicates and, with a clock, timers in ticks. `of_items` changes the conditions of
    iterations on their items before."""

    def of(predicates: tuple[Expr, ...]) -> tuple[Expr, ...]:
        return tuple(map(change, predicates))

    pattern = pt.with_subpatterns(pattern, lambda part: _with_predicates(part, change, clock, of_items))
    match pattern:
        case pt.Filtered():
            return replace(pattern, keep=of(pattern.keep))
        case pt.Next():
            return replace(pattern, skip=of(pattern.skip), keep=of(pattern.keep))
        case pt.Iteration():
            skip, keep = (tuple(map(of_items, predicates)) for predicates in (pattern.skip, pattern.keep))
            return replace(pattern, skip=of(skip), keep=of(keep))
        case pt.Unless():
            return replace(pattern, when=of(pattern.when))
        case pt.Timer() if clock is not None:
            return replace(pattern, delay=_ticks(pattern.delay, clock))
        case _:
            return pattern
