"""The value of an expression, by definition: every evaluator is held to it.

Truth has three values inside this module. A comparison with null, or with undefined arithmetic, is false (ruling 4). A
predicate that names an attribute the bound event's type lacks, or a variable that the match does not bind (another
branch of a disjunction, an empty closure, EQL's PREV before the first event), does not apply: it is *vacuous* and
counts as true (rulings 4 and 12, NEXT §3.5).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from cepheid import expr as ex
from cepheid.errors import NameProblem
from cepheid.events import NO_CLOCK, Clock, Event
from cepheid.expr import Aggregate, Attr, Expr, transform
from cepheid.functions import FUNCTIONS
from cepheid.inference import sum_type
from cepheid.types import Family, Type, decimal, type_of, united_all
from cepheid.values import arithmetic, compare, fitted, like

_ANY_DIGITS = 1000
"""More digits than any total of decimals has."""

Binding = Event | tuple[Event, ...] | None


@dataclass(frozen=True, slots=True)
class Env:
    """The context of an evaluation: the events bound so far and, by variable, the candidate events that are being
    tested. `groups` are the events that aggregates range over, where they are not those bound so far."""

    bound: Mapping[str, Binding]
    trying: Mapping[str, Event] = field(default_factory=dict)
    clock: Clock = NO_CLOCK
    groups: Mapping[str, tuple[Event, ...]] = field(default_factory=dict)
    is_output: bool = False
    """Whether the value is shown, not tested: then `coalesce` passes over what the match does not have."""

    def group(self, var: str) -> tuple[Event, ...] | None:
        """The events bound to a variable before the one being tried; None where the match does not bind it."""
        binding = self.bound.get(var)
        if binding is None:
            return () if var in self.trying else None
        return binding if isinstance(binding, tuple) else (binding,)


class _Vacuous(Exception):
    """The predicate names an attribute or variable that is absent, so it does not apply."""


class _ForAll(Exception):
    """The predicate reads every event of a variable (EQL's ALL), so it is tested for each of them."""

    def __init__(self, var: str) -> None:
        self.var = var


def holds(predicate: Expr, env: Env) -> bool:
    """Whether a predicate is true, or does not apply. One that names a variable that the match does not bind does not
    apply as a whole, whatever its parts are."""
    if any(env.group(var) is None for var in ex.variables(predicate)):
        return True
    return truth(predicate, env) is not False


def truth(expr: Expr, env: Env) -> bool | None:
    """True, False, or None where the predicate does not apply."""
    match expr:
        case ex.And():
            results = [truth(item, env) for item in expr.items]
            return False if False in results else True if True in results else None
        case ex.Or():
            results = [truth(item, env) for item in expr.items]
            return True if True in results else None if None in results else False
        case ex.Not():
            result = truth(expr.item, env)
            return None if result is None else not result
        case ex.Filter():
            return truth(expr.item, env)
    try:
        return _atom(expr, env)
    except _Vacuous:
        return None
    except _ForAll as met:
        return _holds_for_all(expr, met.var, env)


def _holds_for_all(expr: Expr, var: str, env: Env) -> bool | None:
    """EQL's ALL: true if and only if the values of all previously detected events make the comparison true."""

    def pin(node: Expr) -> Expr:
        if isinstance(node, Attr) and node.var == var and node.at is ex.At.ALL:
            return replace(node, at=ex.At.LAST)
        return node

    group = env.group(var)
    if not group:
        return None
    pinned = transform(expr, pin)
    results = [truth(pinned, replace(env, bound={**env.bound, var: (event,)})) for event in group]
    return False not in results


def _atom(expr: Expr, env: Env) -> bool:
    match expr:
        case ex.Compare():
            return compare(expr.op, value(expr.left, env), value(expr.right, env))
        case ex.Contains():
            item, text = value(expr.item, env), value(expr.text, env)
            return isinstance(item, str) and isinstance(text, str) and text in item
        case ex.Like():
            item, pattern = value(expr.item, env), value(expr.pattern, env)
            return isinstance(item, str) and isinstance(pattern, str) and like(item, pattern)
        case ex.In():
            # All options are read first: where one is absent, the test does not apply, whatever their order.
            item, options = value(expr.item, env), [value(option, env) for option in expr.values]
            return any(compare("=", item, option) for option in options)
        case ex.IsNull():
            return value(expr.item, env) is None
        case ex.OccursWithin():
            return _occurs_within(expr, env)
        case _:
            return value(expr, env) is True


def _occurs_within(expr: ex.OccursWithin, env: Env) -> bool:
    events: list[Event] = []
    for var in (expr.first, expr.second):
        group = env.group(var)
        if group is None:
            raise _Vacuous
        events.extend((*group, env.trying[var]) if var in env.trying else group)
    if not events:
        raise _Vacuous
    span = max(event.end for event in events) - min(event.start for event in events)
    return span <= env.clock.ticks(expr.duration)


def value(expr: Expr, env: Env) -> Any:
    """The value of a scalar expression; null where it is undefined."""
    match expr:
        case ex.Const():
            return expr.value
        case Attr():
            return fitted(attribute(_event_at(expr, env), expr.name), expr.type)
        case ex.Arithmetic():
            return arithmetic(expr.op, value(expr.left, env), value(expr.right, env), expr.type)
        case ex.Negative():
            return arithmetic("-", 0, value(expr.item, env), expr.type)
        case Aggregate():
            group = env.groups.get(expr.var, env.group(expr.var))
            if group is None or (group and not any(_has_operand(expr, event) for event in group)):
                raise _Vacuous
            return aggregate(expr, group)
        case ex.Call():
            passes_over = env.is_output and expr.fn == "coalesce"
            args = [value_or_null(arg, env) if passes_over else value(arg, env) for arg in expr.args]
            return fitted(call(expr.fn, args), expr.type)
        case ex.Vector():
            return [value(item, env) for item in expr.items]
        case ex.Whole():
            return env.bound.get(expr.var)
        case ex.Param():
            raise NameProblem(f"the parameter `{expr.name}` has no value", span=expr.span)
        case _:
            return truth(expr, env) is not False


def output_value(expr: Expr, env: Env) -> Any:
    """The value of an output column: null where it reads an event that the match does not have. An attribute that is
    returned as it is keeps NaN."""
    found = value_or_null(expr, replace(env, is_output=True))
    if found is None and isinstance(expr, Attr):
        try:
            return attribute(_event_at(expr, env), expr.name)
        except _Vacuous:
            return None
    return found


def value_or_null(expr: Expr, env: Env) -> Any:
    """The value of an expression; null where it does not apply."""
    try:
        return value(expr, env)
    except _Vacuous:
        return None


def _event_at(expr: Attr, env: Env) -> Event:
    group = env.group(expr.var)
    if group is None:
        raise _Vacuous
    trying = env.trying.get(expr.var)
    match expr.at:
        case ex.At.ALL:
            raise _ForAll(expr.var)
        case ex.At.FIRST:
            event = group[0] if group else trying
        case ex.At.CURRENT:
            event = trying
        case ex.At.EVENT:
            event = trying if trying is not None else group[-1] if group else None
        case _:
            event = group[-1] if group else None
    if event is None:
        raise _Vacuous
    return event


def attribute(event: Event, name: str) -> Any:
    if name not in event.attributes:
        raise _Vacuous
    return event.attributes[name]


def aggregate(expr: Aggregate, events: Sequence[Event]) -> Any:
    """An aggregate over an attribute of events; nulls do not count, and over nothing only `count` has a value."""
    if expr.name is None:
        return len(events)
    read = (fitted(_operand_of(expr, event), expr.operand) for event in events)
    values = [v for v in read if v is not None]
    function = ex.AGGREGATES[expr.fn]
    if not values and function.result is not ex.ResultType.COUNT:
        return None
    type_ = sum_type(_operand(expr, values), expr.over)
    if expr.over is ex.Over.MATCHES and type_.family is Family.DECIMAL:
        type_ = decimal(_ANY_DIGITS, type_.scale)  # a total is exact; the output refuses one that it cannot hold
    return function.of(values, type_)


def _has_operand(expr: Aggregate, event: Event) -> bool:
    """Whether the type of the event has all attributes that an aggregate reads."""
    if expr.of is None:
        return expr.name in (None, *event.attributes)
    return all(node.name in event.attributes for node in ex.walk(expr.of.value) if isinstance(node, Attr))


def _operand_of(expr: Aggregate, event: Event) -> Any:
    if expr.of is None:
        return event.attributes.get(expr.name or "")
    return value_or_null(expr.of.value, Env({expr.var: event}))


def _operand(expr: Aggregate, values: Sequence[Any]) -> Type:
    return united_all(map(type_of, values)) if expr.operand.is_unknown else expr.operand


def call(fn: str, args: Sequence[Any]) -> Any:
    function = FUNCTIONS[fn]
    if any(arg is None for arg in args) and not function.null_safe:
        return None
    try:
        return function.apply(*args)
    except (TypeError, ValueError, OverflowError):
        return None
