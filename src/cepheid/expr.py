"""Scalar expressions: the tree, its types, its printer, and its reference evaluation.

Truth has three values inside this module. A comparison with null, or with undefined arithmetic, is false (ruling 4). A
predicate that names an attribute the bound event's type lacks, or a variable that the match does not bind (another
branch of a disjunction, an empty closure, EQL's PREV before the first event), does not apply: it is *vacuous* and
counts as true (rulings 4 and 12, NEXT §3.5).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import Enum
from functools import reduce
from operator import add
from typing import Any

from cepheid.errors import NameProblem, Span, TypeProblem, did_you_mean, listing
from cepheid.events import NO_CLOCK, Clock, Duration, Event, Type, type_of

# --- the tree ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Expr:
    """A node. Where it stood in the text (`span`) is not part of its value."""

    span: Span | None = field(default=None, compare=False, repr=False, kw_only=True)


class At(Enum):
    """Which of a variable's events an attribute is read from."""

    EVENT = "the event of a plain variable"
    FIRST = "a[1]"
    CURRENT = "a[i], the event being taken (i > 1)"
    PREVIOUS = "a[i-1], and EQL's PREV"
    LAST = "a[a.LEN]"
    ALL = "EQL's ALL: every event bound so far, for which the comparison must hold"


class Over(Enum):
    """What an aggregate ranges over."""

    GROUP = "the variable's whole group"
    BEFORE = "a[..i-1], the events taken before the current one"
    MATCHES = "all matches of the query"


@dataclass(frozen=True, slots=True)
class Const(Expr):
    value: int | float | str | bool | None


@dataclass(frozen=True, slots=True)
class Param(Expr):
    """A value given when the query is run (`x` in ZStream's query 2)."""

    name: str


@dataclass(frozen=True, slots=True)
class Attr(Expr):
    var: str
    name: str
    at: At = At.EVENT


@dataclass(frozen=True, slots=True)
class Whole(Expr):
    """A variable itself, in an output: its event with all attributes (a list for a Kleene variable)."""

    var: str


@dataclass(frozen=True, slots=True)
class Aggregate(Expr):
    """`sum(a.price)`, `avg(a[..i-1].price)`, `count(a)`, `a.LEN`; `name` is None where events are counted."""

    fn: str
    var: str
    name: str | None
    over: Over = Over.GROUP


@dataclass(frozen=True, slots=True)
class Arithmetic(Expr):
    op: str
    left: Expr
    right: Expr


@dataclass(frozen=True, slots=True)
class Negative(Expr):
    item: Expr


@dataclass(frozen=True, slots=True)
class Vector(Expr):
    items: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Call(Expr):
    fn: str
    args: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Compare(Expr):
    op: str
    left: Expr
    right: Expr


@dataclass(frozen=True, slots=True)
class Contains(Expr):
    item: Expr
    text: Expr


@dataclass(frozen=True, slots=True)
class Like(Expr):
    """SQL's LIKE: `%` any characters, `_` one."""

    item: Expr
    pattern: str


@dataclass(frozen=True, slots=True)
class In(Expr):
    item: Expr
    values: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class IsNull(Expr):
    item: Expr


@dataclass(frozen=True, slots=True)
class And(Expr):
    items: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Or(Expr):
    items: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Not(Expr):
    item: Expr


@dataclass(frozen=True, slots=True)
class Same(Expr):
    """An equivalence test `[name]` or `[name = value]` over every component of the pattern."""

    name: str
    value: Expr | None = None


@dataclass(frozen=True, slots=True)
class OccursWithin(Expr):
    """EQL's time constraint `(first, second) OCCURS WITHIN time`."""

    first: str
    second: str
    duration: Duration


@dataclass(frozen=True, slots=True)
class Filter(Expr):
    """EQL's `FILTER(p)`, the skip predicate φ: an event that fails it is passed over, not a reason to give up."""

    item: Expr


TRUE = Const(True)
COMPARISONS = ("=", "!=", "<", "<=", ">", ">=")


class Gives(Enum):
    """What the result of an aggregate is."""

    COUNT = "count"
    """How many values there are; 0 over nothing."""
    NUMBER = "number"
    """Computed from numbers."""
    VALUE = "value"
    """One of the values, so of their type."""


@dataclass(frozen=True, slots=True)
class AggregateFunction:
    """An aggregate by its definition. `of` takes the values of a group that are not null, in order; unless it counts
    them, at least one. (`kernels/aggregates.py` holds how generated code computes it.)"""

    gives: Gives
    of: Callable[[Sequence[Any]], Any]


AGGREGATES: Mapping[str, AggregateFunction] = {
    "sum": AggregateFunction(Gives.NUMBER, lambda values: reduce(add, values)),
    "avg": AggregateFunction(Gives.NUMBER, lambda values: reduce(add, values) / len(values)),
    "min": AggregateFunction(Gives.VALUE, min),
    "max": AggregateFunction(Gives.VALUE, max),
    "count": AggregateFunction(Gives.COUNT, len),
    "first": AggregateFunction(Gives.VALUE, lambda values: values[0]),
    "last": AggregateFunction(Gives.VALUE, lambda values: values[-1]),
}


def conjuncts(expr: Expr) -> tuple[Expr, ...]:
    """The conjunction as a flat tuple."""
    if isinstance(expr, And):
        return tuple(part for item in expr.items for part in conjuncts(item))
    return () if expr == TRUE else (expr,)


def conjunction(items: Sequence[Expr]) -> Expr:
    return TRUE if not items else items[0] if len(items) == 1 else And(tuple(items))


def children(expr: Expr) -> Iterator[Expr]:
    for spec in fields(expr):
        value = getattr(expr, spec.name)
        if isinstance(value, Expr):
            yield value
        elif isinstance(value, tuple):
            yield from (item for item in value if isinstance(item, Expr))


def walk(expr: Expr) -> Iterator[Expr]:
    """The node and everything under it, top down."""
    yield expr
    for child in children(expr):
        yield from walk(child)


def transform(expr: Expr, change: Callable[[Expr], Expr]) -> Expr:
    """A copy with `change` applied to every node, bottom up."""
    updates: dict[str, Any] = {}
    for spec in fields(expr):
        value = getattr(expr, spec.name)
        if isinstance(value, Expr):
            updates[spec.name] = transform(value, change)
        elif isinstance(value, tuple):
            updates[spec.name] = tuple(transform(item, change) if isinstance(item, Expr) else item for item in value)
    return change(replace(expr, **updates) if updates else expr)


def variables(expr: Expr) -> frozenset[str]:
    """The pattern variables that an expression names (an equivalence test names none: it speaks of all)."""
    names: set[str] = set()
    for node in walk(expr):
        if isinstance(node, Attr | Whole) or (isinstance(node, Aggregate) and node.over is not Over.MATCHES):
            names.add(node.var)
        elif isinstance(node, OccursWithin):
            names.update((node.first, node.second))
    return frozenset(names)


def parameters(expr: Expr) -> frozenset[str]:
    return frozenset(node.name for node in walk(expr) if isinstance(node, Param))


def substitute(expr: Expr, values: Mapping[str, Any]) -> Expr:
    """The expression with parameters replaced by the values given for them."""

    def change(node: Expr) -> Expr:
        return Const(values[node.name], span=node.span) if isinstance(node, Param) and node.name in values else node

    return transform(expr, change)


# --- functions --------------------------------------------------------------------------------------------------------


def _distance(*args: Any) -> float | None:
    """Euclidean distance of two points, given as two lists or as two halves of one argument list."""
    if len(args) == 2 and not isinstance(args[0], list | tuple):
        args = ([args[0]], [args[1]])
    elif len(args) != 2:
        args = (args[: len(args) // 2], args[len(args) // 2 :])
    return math.dist(*args) if len(args[0]) == len(args[1]) else None


def _hash_f(*args: Any) -> int:
    """A hash that is the same in every process and on every machine."""
    digest = hashlib.blake2b(repr(args).encode("utf-8", "backslashreplace"), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


@dataclass(frozen=True, slots=True)
class Function:
    least: int
    most: int
    takes: Type
    gives: Type
    apply: Callable[..., Any]
    null_safe: bool = False


FUNCTIONS: Mapping[str, Function] = {
    "abs": Function(1, 1, Type.NUMBER, Type.NUMBER, abs),
    "sqrt": Function(1, 1, Type.NUMBER, Type.NUMBER, lambda x: math.sqrt(x) if x >= 0 else None),
    "floor": Function(1, 1, Type.NUMBER, Type.NUMBER, math.floor),
    "ceil": Function(1, 1, Type.NUMBER, Type.NUMBER, math.ceil),
    "lower": Function(1, 1, Type.STRING, Type.STRING, str.lower),
    "upper": Function(1, 1, Type.STRING, Type.STRING, str.upper),
    "length": Function(1, 1, Type.UNKNOWN, Type.NUMBER, len),
    "distance": Function(2, 8, Type.UNKNOWN, Type.NUMBER, _distance),
    "hash_f": Function(1, 64, Type.UNKNOWN, Type.NUMBER, _hash_f, null_safe=True),
}


# --- types ------------------------------------------------------------------------------------------------------------

AttributeType = Callable[[Attr], Type]


def infer(expr: Expr, attribute_type: AttributeType) -> Type:
    """The type of an expression; raises where types do not fit. `attribute_type` knows the schema."""
    match expr:
        case Const():
            return type_of(expr.value)
        case Param():
            return Type.UNKNOWN
        case Attr():
            return attribute_type(expr)
        case Whole():
            return Type.RECORD
        case Aggregate():
            return _infer_aggregate(expr, attribute_type)
        case Arithmetic():
            for side in (expr.left, expr.right):
                _require(side, Type.NUMBER, attribute_type, f"`{expr.op}` works on numbers")
            return Type.NUMBER
        case Negative():
            _require(expr.item, Type.NUMBER, attribute_type, "`-` works on numbers")
            return Type.NUMBER
        case Vector():
            for item in expr.items:
                infer(item, attribute_type)
            return Type.VECTOR
        case Call():
            return _infer_call(expr, attribute_type)
        case Compare():
            _infer_comparison(expr.op, expr.left, expr.right, expr, attribute_type)
        case In():
            for value in expr.values:
                _infer_comparison("=", expr.item, value, expr, attribute_type)
        case Contains():
            for side in (expr.item, expr.text):
                _require(side, Type.STRING, attribute_type, "CONTAINS works on strings")
        case Like():
            _require(expr.item, Type.STRING, attribute_type, "LIKE works on strings")
        case IsNull():
            infer(expr.item, attribute_type)
        case And() | Or():
            for item in expr.items:
                _require(item, Type.BOOLEAN, attribute_type, "AND and OR join conditions")
        case Not() | Filter():
            _require(expr.item, Type.BOOLEAN, attribute_type, "a condition is expected here")
        case Same():
            if expr.value is not None:
                infer(expr.value, attribute_type)
    return Type.BOOLEAN


def _require(expr: Expr, wanted: Type, attribute_type: AttributeType, why: str) -> None:
    found = infer(expr, attribute_type)
    if not found.fits(wanted):
        raise TypeProblem(f"`{to_text(expr)}` is a {found.value}; {why}", span=expr.span, expected=f"a {wanted.value}")


def _infer_aggregate(expr: Aggregate, attribute_type: AttributeType) -> Type:
    if expr.name is None:
        return Type.NUMBER
    if expr.fn not in AGGREGATES:
        raise _unknown_function(expr)
    of = attribute_type(Attr(expr.var, expr.name, span=expr.span))
    gives = AGGREGATES[expr.fn].gives
    if gives is Gives.COUNT:
        return Type.NUMBER
    if gives is Gives.NUMBER and not of.fits(Type.NUMBER):
        raise TypeProblem(
            f"`{to_text(expr)}` adds up a {of.value}", span=expr.span, expected="an attribute that holds numbers"
        )
    return of


def _unknown_function(expr: Aggregate | Call) -> NameProblem:
    names = (*FUNCTIONS, *AGGREGATES)
    return NameProblem(
        f"unknown function `{expr.fn}`",
        span=expr.span,
        expected=f"one of {listing(names, 20)}",
        hint=did_you_mean(expr.fn, names),
    )


def _infer_call(expr: Call, attribute_type: AttributeType) -> Type:
    function = FUNCTIONS.get(expr.fn)
    if function is None:
        raise _unknown_function(expr)
    if not function.least <= len(expr.args) <= function.most:
        wanted = str(function.least) if function.least == function.most else f"{function.least} to {function.most}"
        raise TypeProblem(
            f"`{expr.fn}` was given {len(expr.args)} arguments", span=expr.span, expected=f"{wanted} arguments"
        )
    for arg in expr.args:
        if function.takes is Type.UNKNOWN:
            infer(arg, attribute_type)
        else:
            _require(arg, function.takes, attribute_type, f"`{expr.fn}` takes a {function.takes.value}")
    return function.gives


def _infer_comparison(op: str, left: Expr, right: Expr, whole: Expr, attribute_type: AttributeType) -> None:
    kinds = infer(left, attribute_type), infer(right, attribute_type)
    if not kinds[0].fits(kinds[1]):
        hint = None
        for kind, other in ((kinds[0], right), (kinds[1], left)):
            if kind is Type.NUMBER and isinstance(other, Const) and isinstance(other.value, str):
                hint = "a number is written without quotes"
            elif kind is Type.STRING and isinstance(other, Const) and isinstance(other.value, int | float):
                hint = f"a string is written in quotes: '{other.value}'"
        raise TypeProblem(
            f"`{to_text(whole)}` compares a {kinds[0].value} with a {kinds[1].value}",
            span=whole.span,
            expected="two values of the same type",
            hint=hint,
        )
    if op not in ("=", "!=") and (Type.BOOLEAN in kinds or Type.RECORD in kinds):
        raise TypeProblem(
            f"`{to_text(whole)}` orders values that have no order", span=whole.span, expected="numbers or strings"
        )


# --- reference evaluation ---------------------------------------------------------------------------------------------

Binding = Event | tuple[Event, ...] | None


@dataclass(frozen=True, slots=True)
class Env:
    """What an expression is evaluated against: the events bound so far and, while events are being taken or tried,
    those events by the variable they are for."""

    bound: Mapping[str, Binding]
    trying: Mapping[str, Event] = field(default_factory=dict)
    clock: Clock = NO_CLOCK

    def group(self, var: str) -> tuple[Event, ...] | None:
        """The events bound to a variable before the one being tried; None where the match does not bind it."""
        binding = self.bound.get(var)
        if binding is None:
            return () if var in self.trying else None
        return binding if isinstance(binding, tuple) else (binding,)


class _Vacuous(Exception):
    """The predicate names something that is not there, so it does not apply."""


class _ForAll(Exception):
    """The predicate speaks of every event of a variable (EQL's ALL), so it has to be tried for each of them."""

    def __init__(self, var: str) -> None:
        self.var = var


def holds(predicate: Expr, env: Env) -> bool:
    """Whether a predicate is true, or does not apply."""
    return truth(predicate, env) is not False


def truth(expr: Expr, env: Env) -> bool | None:
    """True, False, or None where the predicate does not apply."""
    match expr:
        case And():
            results = [truth(item, env) for item in expr.items]
            return False if False in results else True if True in results else None
        case Or():
            results = [truth(item, env) for item in expr.items]
            return True if True in results else None if None in results else False
        case Not():
            result = truth(expr.item, env)
            return None if result is None else not result
        case Filter():
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
        return replace(node, at=At.LAST) if isinstance(node, Attr) and node.var == var and node.at is At.ALL else node

    group = env.group(var)
    if not group:
        return None
    pinned = transform(expr, pin)
    results = [truth(pinned, replace(env, bound={**env.bound, var: (event,)})) for event in group]
    return False not in results


def _atom(expr: Expr, env: Env) -> bool:
    match expr:
        case Compare():
            return compare(expr.op, value(expr.left, env), value(expr.right, env))
        case Contains():
            item, text = value(expr.item, env), value(expr.text, env)
            return isinstance(item, str) and isinstance(text, str) and text in item
        case Like():
            item = value(expr.item, env)
            return isinstance(item, str) and like(item, expr.pattern)
        case In():
            item = value(expr.item, env)
            return any(compare("=", item, value(option, env)) for option in expr.values)
        case IsNull():
            return value(expr.item, env) is None
        case OccursWithin():
            return _occurs_within(expr, env)
        case _:
            return value(expr, env) is True


def _occurs_within(expr: OccursWithin, env: Env) -> bool:
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


def compare(op: str, left: Any, right: Any) -> bool:
    """A comparison; false where either side is null or the operator is not defined for the two."""
    if left is None or right is None:
        return False
    kind = type_of(left)
    if kind is not type_of(right):
        return False
    if op == "=":
        return bool(left == right)
    if op == "!=":
        return bool(left != right)
    if kind not in (Type.NUMBER, Type.STRING):
        return False
    match op:
        case "<":
            return bool(left < right)
        case "<=":
            return bool(left <= right)
        case ">":
            return bool(left > right)
        case _:
            return bool(left >= right)


def value(expr: Expr, env: Env) -> Any:
    """The value of a scalar expression; null where it is undefined."""
    match expr:
        case Const():
            return expr.value
        case Attr():
            return attribute(_event_at(expr, env), expr.name)
        case Arithmetic():
            return arithmetic(expr.op, value(expr.left, env), value(expr.right, env))
        case Negative():
            return arithmetic("-", 0, value(expr.item, env))
        case Aggregate():
            group = env.group(expr.var)
            if group is None or (group and not any(expr.name in (None, *event.attributes) for event in group)):
                raise _Vacuous
            return aggregate(expr.fn, group, expr.name)
        case Call():
            args = [value(arg, env) for arg in expr.args]
            return call(expr.fn, args)
        case Vector():
            return [value(item, env) for item in expr.items]
        case Whole():
            return env.bound.get(expr.var)
        case Param():
            raise NameProblem(f"the parameter `{expr.name}` has no value", span=expr.span)
        case _:
            return truth(expr, env) is not False


def value_or_null(expr: Expr, env: Env) -> Any:
    """The value of an output column: null where it speaks of something the match does not have."""
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
        case At.ALL:
            raise _ForAll(expr.var)
        case At.FIRST:
            event = group[0] if group else trying
        case At.CURRENT:
            event = trying
        case At.EVENT:
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


def arithmetic(op: str, left: Any, right: Any) -> Any:
    """Exact arithmetic on numbers; null where it is undefined (a null or non-number operand, division by zero)."""
    if type_of(left) is not Type.NUMBER or type_of(right) is not Type.NUMBER:
        return None
    try:
        match op:
            case "+":
                return left + right
            case "-":
                return left - right
            case "*":
                return left * right
            case "/":
                return left / right
            case _:
                return left % right
    except (ZeroDivisionError, OverflowError):
        return None


def aggregate(fn: str, group: Sequence[Event], name: str | None) -> Any:
    """An aggregate over a group's attribute; nulls do not count, and over nothing only `count` has a value."""
    if name is None:
        return len(group)
    values = [v for v in (event.attributes.get(name) for event in group) if v is not None]
    function = AGGREGATES[fn]
    return function.of(values) if values or function.gives is Gives.COUNT else None


def call(fn: str, args: Sequence[Any]) -> Any:
    function = FUNCTIONS[fn]
    if any(arg is None for arg in args) and not function.null_safe:
        return None
    try:
        return function.apply(*args)
    except (TypeError, ValueError, OverflowError):
        return None


def like(text: str, pattern: str) -> bool:
    """SQL's LIKE, without the backtracking that a hostile pattern could drive a regular expression into: only the last
    `%` is ever tried again, one character further on."""
    at_text = at_pattern = 0
    wildcard, resume = -1, 0
    while at_text < len(text):
        if at_pattern < len(pattern) and pattern[at_pattern] == "%":
            wildcard, resume = at_pattern, at_text
            at_pattern += 1
        elif at_pattern < len(pattern) and pattern[at_pattern] in ("_", text[at_text]):
            at_text += 1
            at_pattern += 1
        elif wildcard >= 0:
            resume += 1
            at_text, at_pattern = resume, wildcard + 1
        else:
            return False
    return pattern[at_pattern:].strip("%") == ""


# --- printer ----------------------------------------------------------------------------------------------------------

_LEVELS = {"or": 1, "and": 2, "not": 3, "compare": 4, "+": 5, "-": 5, "*": 6, "/": 6, "%": 6, "negative": 7, "atom": 8}


def to_text(expr: Expr) -> str:
    """The expression as every language reads it."""
    return _print(expr)[0]


def quote(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _print(expr: Expr) -> tuple[str, int]:
    def at(item: Expr, level: int) -> str:
        text, own = _print(item)
        return text if own >= level else f"({text})"

    match expr:
        case Or():
            return " OR ".join(at(item, 2) for item in expr.items), 1
        case And():
            return " AND ".join(at(item, 3) for item in expr.items), 2
        case Not():
            return f"NOT {at(expr.item, 3)}", 3
        case Compare():
            return f"{at(expr.left, 5)} {expr.op} {at(expr.right, 5)}", 4
        case Contains():
            return f"{at(expr.item, 5)} CONTAINS {at(expr.text, 5)}", 4
        case Like():
            return f"{at(expr.item, 5)} LIKE {quote(expr.pattern)}", 4
        case In():
            return f"{at(expr.item, 5)} IN ({', '.join(at(option, 5) for option in expr.values)})", 4
        case IsNull():
            return f"{at(expr.item, 5)} IS NULL", 4
        case OccursWithin():
            return f"({expr.first}, {expr.second}) OCCURS WITHIN {expr.duration}", 4
        case Arithmetic():
            level = _LEVELS[expr.op]
            return f"{at(expr.left, level)} {expr.op} {at(expr.right, level + 1)}", level
        case Negative():
            return f"-{at(expr.item, 8)}", 7
        case Filter():
            return f"FILTER({to_text(expr.item)})", 8
        case Same():
            return f"[{expr.name}]" if expr.value is None else f"[{expr.name} = {at(expr.value, 5)}]", 8
        case Call():
            return f"{expr.fn}({', '.join(at(arg, 1) for arg in expr.args)})", 8
        case Vector():
            return f"[{', '.join(at(item, 1) for item in expr.items)}]", 8
        case _:
            return _print_leaf(expr), 8


_POSITIONS = {At.EVENT: "{}.{}", At.FIRST: "{}[1].{}", At.CURRENT: "{}[i].{}", At.PREVIOUS: "{}[i-1].{}"}


def _print_leaf(expr: Expr) -> str:
    match expr:
        case Const(value=None):
            return "NULL"
        case Const(value=bool() as flag):
            return "TRUE" if flag else "FALSE"
        case Const(value=str() as text):
            return quote(text)
        case Const(value=float() as number):
            return repr(number)
        case Const():
            return str(expr.value)
        case Param() | Whole():
            return expr.name if isinstance(expr, Param) else expr.var
        case Attr(at=At.LAST):
            return f"{expr.var}[{expr.var}.LEN].{expr.name}"
        case Attr(at=At.ALL):
            return f"ALL({expr.var}.{expr.name})"
        case Attr():
            return _POSITIONS[expr.at].format(expr.var, expr.name)
        case Aggregate():
            return _print_aggregate(expr)
        case _:
            raise TypeError(f"no text for {type(expr).__name__}")


def _print_aggregate(expr: Aggregate) -> str:
    if expr.over is Over.MATCHES:
        return f"{expr.fn}({expr.var}.{expr.name})" if expr.name is not None else "count(*)"
    bracket = "[..i-1]" if expr.over is Over.BEFORE else ""
    return f"{expr.fn}({expr.var}{bracket}" + (f".{expr.name})" if expr.name is not None else ")")
