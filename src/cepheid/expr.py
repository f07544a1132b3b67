"""Scalar expressions: the tree, the definitions of aggregates, and the printer.

`inference` computes the type of an expression, `evaluation` its value. `functions` is the table of scalar functions.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from decimal import Decimal
from enum import Enum
from operator import is_not
from typing import Any, TypeVar

from cepheid.errors import Span
from cepheid.events import MICROSECONDS, Duration, timestamp_text
from cepheid.types import UNKNOWN, Family, Type
from cepheid.values import mean, of_group, total

Value = int | float | str | bool | Decimal | bytes | None
"""A constant."""

MEMBER = "\ue001"
"""In the name of an attribute of a derived event, before what is read of an inner closure: `b\ue001[1].v`, written
`p.b[1].v`, and `b\ue001sum.v`, written `sum(p.b.v)`."""

# --- the tree ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Expr:
    """A node. Its position in the text (`span`) is not part of its value."""

    span: Span | None = field(default=None, compare=False, repr=False, kw_only=True)
    type: Type = field(default=UNKNOWN, compare=False, repr=False, kw_only=True)
    """Its type in a bound query (`inference.typed`)."""


@dataclass(frozen=True, slots=True)
class OfOne(Expr):
    item: Expr


@dataclass(frozen=True, slots=True)
class OfTwo(Expr):
    op: str
    left: Expr
    right: Expr


@dataclass(frozen=True, slots=True)
class OfMany(Expr):
    items: tuple[Expr, ...]


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
    value: Value


@dataclass(frozen=True, slots=True)
class Param(Expr):
    """A value that is set when the query runs (`x` in ZStream's query 2)."""

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
class Operand:
    """What an aggregate computes from each event, where it is more than an attribute: `b.v * b.w`. It is no part of the
    expression around it (`walk` leaves it out), since it is about one event at a time."""

    value: Expr


@dataclass(frozen=True, slots=True)
class Aggregate(Expr):
    """`sum(a.price)`, `avg(a[..i-1].price)`, `count(a)`, `a.LEN`; `name` is None where events are counted, and the text
    of the operand where `of` is one: `sum(a.price * a.count)`."""

    fn: str
    var: str
    name: str | None
    over: Over = Over.GROUP
    of: Operand | None = None
    operand: Type = field(default=UNKNOWN, compare=False, repr=False, kw_only=True)
    """The type of the attribute, or of the operand, in a bound query."""


class Arithmetic(OfTwo):
    """`+`, `-`, `*`, `/` or `%`."""


class Negative(OfOne):
    """`-item`."""


class Vector(OfMany):
    """A list of values, such as a point."""


@dataclass(frozen=True, slots=True)
class Call(Expr):
    fn: str
    args: tuple[Expr, ...]


class Compare(OfTwo):
    """One of `=`, `!=`, `<`, `<=`, `>`, `>=`."""


@dataclass(frozen=True, slots=True)
class Contains(Expr):
    item: Expr
    text: Expr


@dataclass(frozen=True, slots=True)
class Like(Expr):
    """SQL's LIKE: `%` any characters, `_` one."""

    item: Expr
    pattern: Expr


@dataclass(frozen=True, slots=True)
class In(Expr):
    item: Expr
    values: tuple[Expr, ...]


class IsNull(OfOne):
    """`item IS NULL`."""


class And(OfMany):
    """All of them hold."""


class Or(OfMany):
    """One of them holds."""


class Not(OfOne):
    """It does not hold."""


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


class Filter(OfOne):
    """EQL's `FILTER(p)`, the skip predicate φ: an event that fails it is skipped and does not end the instance."""


TRUE = Const(True)
FLIPPED = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
"""The equivalent comparison with its sides exchanged."""


class ResultType(Enum):
    """The kind of result of an aggregate."""

    COUNT = "count"
    """The number of values; 0 for an empty group."""
    NUMBER = "number"
    """Computed from numbers."""
    VALUE = "value"
    """One of the values, with their type."""


@dataclass(frozen=True, slots=True)
class AggregateFunction:
    """An aggregate by its definition. `of` takes the values of a group that are not null, in order, and the type of
    their sum. Unless it counts them, there is at least one. (`kernels/aggregates.py` has the generated code.)"""

    result: ResultType
    of: Callable[[list[Any], Type], Any]
    averages: bool = False
    """Whether the result has the type of an average rather than that of a sum."""
    compares: bool = False
    """Whether the values must have an order."""


AGGREGATES: Mapping[str, AggregateFunction] = {
    "sum": AggregateFunction(ResultType.NUMBER, total),
    "avg": AggregateFunction(ResultType.NUMBER, mean, averages=True),
    "min": AggregateFunction(ResultType.VALUE, lambda values, _: of_group(min, values), compares=True),
    "max": AggregateFunction(ResultType.VALUE, lambda values, _: of_group(max, values), compares=True),
    "count": AggregateFunction(ResultType.COUNT, lambda values, _: len(values)),
    "first": AggregateFunction(ResultType.VALUE, lambda values, _: values[0]),
    "last": AggregateFunction(ResultType.VALUE, lambda values, _: values[-1]),
}


def conjuncts(expr: Expr) -> tuple[Expr, ...]:
    """The conjunction as a flat tuple."""
    if isinstance(expr, And):
        return tuple(part for item in expr.items for part in conjuncts(item))
    return () if expr == TRUE else (expr,)


def first_of(attributes: Sequence[Expr]) -> Expr:
    """The first of them that is not null."""
    return attributes[0] if len(attributes) == 1 else Call("coalesce", tuple(attributes))


def conjunction(items: Sequence[Expr]) -> Expr:
    return TRUE if not items else items[0] if len(items) == 1 else And(tuple(items))


N = TypeVar("N", bound="Expr")


class _Parts(dict[type[Expr], tuple[str, ...]]):
    """The fields of a kind of node that hold nodes. (`dataclasses.fields` is slow, and trees are walked often.)"""

    def __missing__(self, kind: type[Expr]) -> tuple[str, ...]:
        names = self[kind] = tuple(spec.name for spec in fields(kind) if "Expr" in str(spec.type))
        return names


_PARTS = _Parts()


def children(expr: Expr) -> list[Expr]:
    found: list[Expr] = []
    for name in _PARTS[type(expr)]:
        value = getattr(expr, name)
        if isinstance(value, Expr):
            found.append(value)
        elif isinstance(value, tuple):
            found += value
    return found


def walk(*exprs: Expr) -> list[Expr]:
    """The nodes and everything under them, each top down."""
    found: list[Expr] = []
    waiting: list[Expr] = [*reversed(exprs)]
    while waiting:
        node = waiting.pop()
        found.append(node)
        for name in reversed(_PARTS[type(node)]):
            value = getattr(node, name)
            if isinstance(value, Expr):
                waiting.append(value)
            elif isinstance(value, tuple):
                waiting.extend(reversed(value))
    return found


def walk_reads(*exprs: Expr) -> list[Expr]:
    """The nodes of the expressions with those of the operands of aggregates, in place of these aggregates."""
    found: list[Expr] = []
    for node in walk(*exprs):
        found += walk(node.of.value) if isinstance(node, Aggregate) and node.of is not None else (node,)
    return found


def attributes_in(predicates: Iterable[Expr]) -> dict[str, None]:
    """The attributes that predicates name, in order."""
    names: dict[str, None] = {}
    for node in walk_reads(*predicates):
        if isinstance(node, Attr | Aggregate) and node.name is not None:
            names[node.name] = None
    return names


def with_parts(expr: Expr, change: Callable[[Expr], Expr]) -> Expr:
    """A copy with `change` applied to every node right under it; the expression itself if that changes none."""
    updates: dict[str, Any] = {}
    for name in _PARTS[type(expr)]:
        value = getattr(expr, name)
        if isinstance(value, Expr):
            if (part := change(value)) is not value:
                updates[name] = part
        elif isinstance(value, tuple):
            parts = tuple(map(change, value))
            if any(map(is_not, parts, value)):
                updates[name] = parts
    if isinstance(expr, Aggregate) and expr.of is not None and (part := change(expr.of.value)) is not expr.of.value:
        updates["of"] = Operand(part)
    return replace(expr, **updates) if updates else expr


def transform(expr: Expr, change: Callable[[Expr], Expr]) -> Expr:
    """A copy with `change` applied to every node, bottom up."""
    return change(with_parts(expr, lambda part: transform(part, change)))


def replaced(expr: Expr, kind: type[N] | tuple[type[N], ...], change: Callable[[N], Expr]) -> Expr:
    """A copy with `change` applied to every node of these kinds, bottom up; the expression itself if it has none."""
    return transform(expr, lambda node: change(node) if isinstance(node, kind) else node)


def variables(expr: Expr) -> frozenset[str]:
    """The pattern variables that an expression names (an equivalence test applies to all and names none)."""
    names: set[str] = set()
    for node in walk(expr):
        if isinstance(node, Attr | Whole) or (isinstance(node, Aggregate) and node.over is not Over.MATCHES):
            names.add(node.var)
        elif isinstance(node, OccursWithin):
            names.update((node.first, node.second))
    return frozenset(names)


def spelt_out(expr: Expr, columns: Mapping[str, Expr]) -> Expr:
    """The expression with derived columns replaced by what they are derived from."""

    def change(of: Attr) -> Expr:
        definition = columns.get(of.name)
        return of if definition is None else replaced(definition, Attr, lambda n: replace(n, var=of.var, at=of.at))

    return replaced(expr, Attr, change) if columns else expr


def parameters(expr: Expr) -> frozenset[str]:
    return frozenset(node.name for node in walk_reads(expr) if isinstance(node, Param))


def substitute(expr: Expr, values: Mapping[str, Const]) -> Expr:
    """The expression with its parameters replaced by values."""
    return replaced(expr, Param, lambda p: replace(values[p.name], span=p.span) if p.name in values else p)


# --- printer ----------------------------------------------------------------------------------------------------------

_LEVELS = {"+": 5, "-": 5, "*": 6, "/": 6, "%": 6}


def to_text(expr: Expr) -> str:
    """The expression as every language reads it."""
    return _print(expr)[0]


def bracketed(printed: tuple[str, int], level: int) -> str:
    """A printed operand, in brackets if its own operator binds less tightly than `level`."""
    text, own = printed
    return text if own >= level else f"({text})"


def quote(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


KEYWORDS = frozenset(
    [
        "and",
        "as",
        "case",
        "complex",
        "contains",
        "event",
        "false",
        "filter",
        "from",
        "in",
        "is",
        "like",
        "limit",
        "not",
        "null",
        "on",
        "or",
        "output",
        "pattern",
        "primitive",
        "return",
        "schema",
        "select",
        "source",
        "true",
        "where",
        "within",
    ]
)
"""The words that a language does not take for the name of a variable, a type or a parameter, unless it is quoted."""
_SUPERSCRIPT = "⁰¹²³⁴⁵⁶⁷⁸⁹"
_PLAIN = re.compile(rf"[^\W\d{_SUPERSCRIPT}][^\W{_SUPERSCRIPT}]*")
_PLAIN_TYPE = re.compile(rf"{_PLAIN.pattern}(?:-[^\W{_SUPERSCRIPT}]+){{0,8}}")


def name_text(name: str, plain: re.Pattern[str] = _PLAIN) -> str:
    """The name of a variable, a type or a parameter, in backticks where a plain word would not be read as one."""
    return name if plain.fullmatch(name) and name.lower() not in KEYWORDS else _in_backticks(name)


def type_name_text(name: str) -> str:
    """The name of an event type, which may have hyphens."""
    return name_text(name, _PLAIN_TYPE)


def attribute_text(name: str) -> str:
    """The name of an attribute. After a dot every word is a name, apart from the length of a closure. A name with dots
    is quoted as a whole, because the dot may be that of `Rel. Humidity`."""
    is_plain = all(_PLAIN.fullmatch(part) for part in name.split("."))
    return name if is_plain and name.lower() != "len" else _in_backticks(name)


def _in_backticks(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _print(expr: Expr) -> tuple[str, int]:
    def at(item: Expr, level: int) -> str:
        return bracketed(_print(item), level)

    match expr:
        case Or() | And():
            word, level = (" OR ", 1) if isinstance(expr, Or) else (" AND ", 2)
            return word.join(at(item, level + 1) for item in expr.items), level
        case Not():
            return f"NOT {at(expr.item, 3)}", 3
        case Compare() | Contains() | Like():
            left, right = children(expr)
            op = expr.op if isinstance(expr, Compare) else type(expr).__name__.upper()
            return f"{at(left, 5)} {op} {at(right, 5)}", 4
        case In():
            return f"{at(expr.item, 5)} IN ({', '.join(at(option, 5) for option in expr.values)})", 4
        case IsNull():
            return f"{at(expr.item, 5)} IS NULL", 4
        case OccursWithin():
            return f"({name_text(expr.first)}, {name_text(expr.second)}) OCCURS WITHIN {expr.duration}", 4
        case Arithmetic():
            level = _LEVELS[expr.op]
            return f"{at(expr.left, level)} {expr.op} {at(expr.right, level + 1)}", level
        case Negative():
            return f"-{at(expr.item, 8)}", 7
        case Filter():
            return f"FILTER({to_text(expr.item)})", 8
        case Same():
            name = attribute_text(expr.name)
            return f"[{name}]" if expr.value is None else f"[{name} = {at(expr.value, 5)}]", 8
        case Call():
            return _print_call(expr), 8
        case Vector():
            return f"[{', '.join(at(item, 1) for item in expr.items)}]", 8
        case _:
            return _print_leaf(expr), 8


CASE = "case"
"""The function of CASE: `case(condition, value, condition, value, ..., otherwise)`."""
CAST = "cast as "
"""The functions of CAST begin with it: `cast as integer`. Their first argument is the value."""
CAST_DECIMAL = CAST + "decimal"
"""CAST to a decimal: the value, its precision and its scale."""
CAST_STRING = CAST + "string"
"""CAST to a string: the value and, if it is a time, the name of its family (which typing adds)."""


def _print_call(call: Call) -> str:
    if call.fn == CASE:
        pairs = zip(call.args[::2], call.args[1::2], strict=False)
        cases = "".join(f"WHEN {to_text(test)} THEN {to_text(value)} " for test, value in pairs)
        return f"CASE {cases}{f'ELSE {to_text(call.args[-1])} ' if len(call.args) % 2 else ''}END"
    if call.fn.startswith(CAST):
        value, *digits = map(to_text, call.args)
        kind = f"decimal({', '.join(digits)})" if call.fn == CAST_DECIMAL else call.fn.removeprefix(CAST)
        return f"CAST({value} AS {kind})"
    return f"{call.fn}({', '.join(to_text(arg) for arg in call.args)})"


_POSITIONS = {At.EVENT: "{}.{}", At.FIRST: "{}[1].{}", At.CURRENT: "{}[i].{}", At.PREVIOUS: "{}[i-1].{}"}


def _print_leaf(expr: Expr) -> str:
    match expr:
        case Const(value=None):
            return "NULL"
        case Const(value=bool() as flag):
            return "TRUE" if flag else "FALSE"
        case Const(value=str() as text):
            return quote(text)
        case Const(value=int() as number) if expr.type.is_time:
            return _print_time(number, expr.type.family)
        case Const():
            return str(expr.value)
        case Param() | Whole():
            return name_text(expr.name if isinstance(expr, Param) else expr.var)
        case Attr() if MEMBER in expr.name:
            return _print_member(expr)
        case Attr(var=""):  # of the event that a mask is about
            return attribute_text(expr.name)
        case Attr():
            return _print_attribute(expr, name_text(expr.var), attribute_text(expr.name))
        case Aggregate():
            return _print_aggregate(expr)
        case _:
            raise TypeError(f"no text for {type(expr).__name__}")


def _print_member(expr: Attr) -> str:
    """What is read of an inner closure: `p.b[1].v`, `sum(p.b.v)`."""
    outer, _, what = expr.name.rpartition(MEMBER)
    if what.startswith("["):
        index, _, rest = what.partition("].")
        inner = _print_attribute(expr, name_text(expr.var), attribute_text(outer.replace(MEMBER, "")))
        return f"{inner}{index}].{attribute_text(rest)}"
    fn, _, rest = what.partition(".")
    name = f"{outer}.{rest}" if rest else outer
    return f"{fn}({_print_attribute(expr, name_text(expr.var), attribute_text(name.replace(MEMBER, '')))})"


def _print_attribute(expr: Attr, var: str, name: str) -> str:
    match expr.at:
        case At.LAST:
            return f"{var}[{expr.var}.LEN].{name}" if var == expr.var else f"{var}[LEN].{name}"
        case At.ALL:
            return f"ALL({var}.{name})"
        case at:
            return _POSITIONS[at].format(var, name)


_UNITS = {"d": "day", "h": "hour", "min": "minute", "s": "second", "ms": "millisecond", "us": "microsecond"}


def _print_time(count: int, family: Family) -> str:
    """A literal of microseconds: `90 seconds`, `TIMESTAMP '2024-03-01 08:00:00'`, `DATE '2024-03-01'`."""
    if family is Family.DURATION:
        unit = next(unit for unit in _UNITS if count % MICROSECONDS[unit] == 0)
        amount = count // MICROSECONDS[unit]
        return f"{amount} {_UNITS[unit]}{'' if abs(amount) == 1 else 's'}"
    text = timestamp_text(count).removesuffix("Z").replace("T", " ")
    if text == str(count):
        return text
    return f"DATE '{text[:10]}'" if family is Family.DATE else f"TIMESTAMP '{text}'"


def _print_aggregate(expr: Aggregate) -> str:
    if expr.name is None and expr.over is Over.MATCHES:
        return "count(*)"
    if expr.of is not None:
        at = At.PREVIOUS if expr.over is Over.BEFORE else At.EVENT
        inner = replaced(expr.of.value, Attr, lambda node: replace(node, at=at))
        return f"{expr.fn}({to_text(inner)})"
    bracket = "[..i-1]" if expr.over is Over.BEFORE else ""
    of = "" if expr.name is None else f".{attribute_text(expr.name)}"
    return f"{expr.fn}({name_text(expr.var)}{bracket}{of})"
