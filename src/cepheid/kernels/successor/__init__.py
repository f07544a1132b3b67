"""NEXT's core operators on the complete-history time model (NEXT §3.2-3.4): filter, union, next, iteration, exception
and time.

Instances wait for their immediate successor in lists by key, which come from φ's equalities (`network`). Composite
events carry what later operators read (`composites`), and nothing else. Time passes between events: timers fire, and
among composite events of one time the earliest history decides (`evaluator`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from cepheid import expr as ex
from cepheid import pattern as pt
from cepheid.core_language import core_form
from cepheid.dialect import SUCCESSORS
from cepheid.events import Clock, Duration
from cepheid.expr import At, Attr, Expr
from cepheid.kernels.requirements import why_not
from cepheid.kernels.successor.composites import keep_name
from cepheid.kernels.successor.evaluator import failed_detections, kernel
from cepheid.kernels.successor.operators import Iteration, Operator, leaves_of, operators_of, tests_of
from cepheid.optimize.core_key import core_key
from cepheid.optimize.stats import Stats
from cepheid.pattern import Pattern
from cepheid.physical import Bit, Lowered, Options, Plan, not_made_for

__all__ = ["NAME", "OPTIONS", "SEARCHES", "SWITCHES", "able", "cost", "failed_detections", "kernel", "plan"]

NAME = "successor"
SEARCHES = False
SWITCHES = False
OPTIONS: Options = {}


def able(lowered: Lowered) -> str | None:
    """EQL."""
    if lowered.query.dialect.selection != SUCCESSORS:
        return not_made_for(lowered.query)
    root, _ = _operators(lowered)
    sorted_ = _sorted(lowered, root)
    plain = tuple(ex.transform(p, _compiled_apart) for p in sorted_.between)
    return why_not(replace(sorted_, between=plain), *_obstacles(root), durations=True)


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
                        yield f"`{ex.to_text((every or within)[0])}` inside a condition that is used as a value"
            groups = {n.var for n in ex.walk(predicate) if isinstance(n, Attr) and n.at is At.ALL}
            if len(groups) > 1:
                yield f"ALL of several variables in `{ex.to_text(predicate)}`"
            for node in ex.walk(predicate):
                is_read = isinstance(node, ex.Aggregate) or (isinstance(node, Attr) and node.at is At.ALL)
                if is_read and isinstance(node, ex.Aggregate | Attr) and _is_nested(root, op, node.var):
                    yield f"`{ex.to_text(node)}` over an iteration inside another one"


def _is_nested(root: Operator, op: Operator, var: str) -> bool:
    """Whether the events of a variable that an operator reads are those of an iteration inside another one."""
    around = [node for node in op.walk() if isinstance(node, Iteration) and var in node.variables]
    return len(around) > 1


def plan(lowered: Lowered, stats: Stats) -> Plan:
    root, core = _operators(lowered)
    sorted_ = _sorted(lowered, root)
    made = sorted_.plan(NAME, by_variable=True, predicates=sorted_.between)
    keeps = [Bit(keep_name(leaf.var), leaf.var, (), tuple(leaf.keeps)) for leaf in leaves_of(root) if leaf.keeps]
    return replace(made, core=core, bits=(*made.bits, *keeps), key=core_key(core, lowered.lacks, lowered.types))


def cost(plan: Plan, stats: Stats) -> float:
    """A visit to the list of each key, and the work of an instance for each event."""
    return 20.0 + 40.0 * len(plan.steps)


def _operators(lowered: Lowered) -> tuple[Operator, Pattern]:
    """The operators of the query, and its core form with durations in ticks."""
    core = _in_ticks(core_form(lowered.query.pattern, lowered.predicates), lowered.clock)
    return operators_of(core, lowered.has_durations), core


def _sorted(lowered: Lowered, root: Operator) -> Lowered:
    """The query with the predicates of its operators in place of those of its events."""
    alone = {leaf.var: tuple(leaf.tests) for leaf in leaves_of(root)}
    others = {var: () for var in lowered.roles if var not in alone}  # what cancels a single event
    between = tuple(dict.fromkeys(p for op in root.walk() for p in tests_of(op)))
    keeps = {leaf.var: tuple(leaf.keeps) for leaf in leaves_of(root)}
    return replace(lowered, alone={**others, **alone}, taken=keeps, between=between)


def _in_ticks(pattern: Pattern, clock: Clock) -> Pattern:
    def ticks(duration: Duration) -> Duration:
        return Duration(int(clock.ticks(duration) // 1))

    def of(predicates: tuple[Expr, ...]) -> tuple[Expr, ...]:
        return tuple(ex.transform(p, change) for p in predicates)

    def change(node: Expr) -> Expr:
        return replace(node, duration=ticks(node.duration)) if isinstance(node, ex.OccursWithin) else node

    match pattern:
        case pt.Filtered():
            return replace(pattern, item=_in_ticks(pattern.item, clock), keep=of(pattern.keep))
        case pt.Next():
            left, right = _in_ticks(pattern.left, clock), _in_ticks(pattern.right, clock)
            return replace(pattern, left=left, right=right, skip=of(pattern.skip), keep=of(pattern.keep))
        case pt.Iteration():
            item = _in_ticks(pattern.item, clock)
            return replace(pattern, item=item, skip=of(pattern.skip), keep=of(pattern.keep))
        case pt.Unless():
            item, cancel = _in_ticks(pattern.item, clock), _in_ticks(pattern.cancel, clock)
            return replace(pattern, item=item, cancel=cancel, when=of(pattern.when))
        case pt.Disj():
            return replace(pattern, items=tuple(_in_ticks(item, clock) for item in pattern.items))
        case pt.Timer():
            return replace(pattern, item=_in_ticks(pattern.item, clock), delay=ticks(pattern.delay))
        case _:
            return pattern
