"""Expressions in Python: terms, which support Python's operators, and their constructors."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from cepheid import expr as ex
from cepheid.errors import InputProblem, did_you_mean, listing, shown
from cepheid.events import OWN_UNIT, UNIT_WORDS, Duration
from cepheid.expr import Aggregate, And, Arithmetic, At, Attr, Compare, Const, Expr, Or, Over, Param, Whole
from cepheid.functions import ALIASES
from cepheid.lang.expressions import flat, negative
from cepheid.lang.parsed_nodes import EqualChain, Group, aggregate_of


def _infix(op: str, build: Callable[[str, Expr, Expr], Expr], swapped: bool = False) -> Callable[[Term, object], Term]:
    def operator(self: Term, other: object) -> Term:
        left, right = (as_expr(other), self.expr) if swapped else (self.expr, as_expr(other))
        return Term(build(op, left, right))

    return operator


class Term:
    """An expression under construction. `&`, `|` and `~` are AND, OR and NOT."""

    def __init__(self, expr: Expr) -> None:
        self.expr = expr

    __add__, __radd__ = _infix("+", Arithmetic), _infix("+", Arithmetic, swapped=True)
    __sub__, __rsub__ = _infix("-", Arithmetic), _infix("-", Arithmetic, swapped=True)
    __mul__, __rmul__ = _infix("*", Arithmetic), _infix("*", Arithmetic, swapped=True)
    __truediv__, __rtruediv__ = _infix("/", Arithmetic), _infix("/", Arithmetic, swapped=True)
    __mod__, __rmod__ = _infix("%", Arithmetic), _infix("%", Arithmetic, swapped=True)
    __eq__ = _infix("=", Compare)  # type: ignore[assignment]
    __ne__ = _infix("!=", Compare)  # type: ignore[assignment]
    __lt__, __le__ = _infix("<", Compare), _infix("<=", Compare)
    __gt__, __ge__ = _infix(">", Compare), _infix(">=", Compare)
    __and__ = _infix("and", lambda _, left, right: flat(And, (left, right), None))
    __or__ = _infix("or", lambda _, left, right: flat(Or, (left, right), None))
    __hash__ = None  # type: ignore[assignment]

    def __neg__(self) -> Term:
        return Term(negative(self.expr))

    def __invert__(self) -> Term:
        return Term(ex.Not(self.expr))

    def __bool__(self) -> bool:
        raise TypeError("a condition has no truth value of its own: join conditions with & and |, not `and` and `or`")

    def is_in(self, *values: object) -> Term:
        return Term(ex.In(self.expr, tuple(as_expr(value) for value in values)))

    def is_null(self) -> Term:
        return Term(ex.IsNull(self.expr))

    def like(self, pattern: object) -> Term:
        return Term(ex.Like(self.expr, as_expr(pattern)))

    def contains(self, text: object) -> Term:
        return Term(ex.Contains(self.expr, as_expr(text)))


_POSITIONS: dict[str, At | Over] = {
    "first": At.FIRST,
    "current": At.CURRENT,
    "previous": At.PREVIOUS,
    "last": At.LAST,
    "before": Over.BEFORE,
}
NAME = re.compile(r"[^\x00-\x1f\x7f-\x9f\ud800-\udfff\ue000]+")
LABEL = re.compile(r"[^\W\d]\w*(?:-\w+){0,8}")


def as_expr(value: object) -> Expr:
    """The expression of a term, a variable or a plain Python value."""
    match value:
        case Term():
            return value.expr
        case Var():
            return value._whole
        case None | bool() | str():
            return Const(value)
        case int() | float() if math.isfinite(value) and abs(value) < 2**63:
            return Const(value)
        case _:
            raise InputProblem(f"`{shown(repr(value))}` is not allowed in a query", expected="a number, string or term")


def word(text: str, allowed: re.Pattern[str] = NAME) -> str:
    if not allowed.fullmatch(text):
        raise InputProblem(
            f"`{shown(text)}` is not a name",
            expected="printable characters" if allowed is NAME else "letters, digits and `_`",
        )
    return text


class Var:
    """A variable of the pattern: `x.price` is an attribute of its event, `a.first` its first event, and so on."""

    def __init__(self, name: str, at: At | Over = At.EVENT) -> None:
        self._name = word(name)
        self._at = at

    @property
    def _whole(self) -> Expr:
        return Group(self._name, None, self._at) if isinstance(self._at, Over) else Whole(self._name)

    def __getitem__(self, attribute: str) -> Term:
        name = word(attribute)
        if isinstance(self._at, Over):
            return Term(Group(self._name, name, self._at))
        return Term(Attr(self._name, name, self._at))

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        if self._at is At.EVENT and attribute in _POSITIONS:
            return Var(self._name, _POSITIONS[attribute])
        return self[attribute]


def var(name: str) -> Var:
    return Var(name)


def param(name: str) -> Term:
    return Term(Param(word(name)))


def const(value: int | float | str | bool | None) -> Term:
    return Term(as_expr(value))


def same(*names: str, **values: object) -> Term:
    """The equivalence test: `same("id")`, `same("a", "b")`, `same(id="1")`."""
    tests: list[Expr] = [ex.Same(name) for name in names]
    tests += [ex.Same(name, as_expr(value)) for name, value in values.items()]
    return Term(tests[0] if len(tests) == 1 else ex.And(tuple(tests)))


def equal(*terms: object) -> Term:
    """`A = B = C`: every pair is equal."""
    return Term(EqualChain(tuple(as_expr(term) for term in terms)))


def aggregate(fn: str, of: Term | Var) -> Term:
    match as_expr(of):
        case Group() as group:
            return Term(Aggregate(fn, group.var, group.name, group.over))
        case Attr(at=At.EVENT) as attribute:
            return Term(Aggregate(fn, attribute.var, attribute.name))
        case Whole() as whole if fn == "count":
            return Term(Aggregate(fn, whole.var, None))
        case other if (found := aggregate_of(fn, other)) is not None:
            return Term(found)
        case other:
            raise InputProblem(f"`{fn}` cannot range over `{ex.to_text(other)}`", expected="an attribute of a variable")


avg, sum_, min_, max_ = (partial(aggregate, fn) for fn in ("avg", "sum", "min", "max"))


def count(of: Term | Var | None = None) -> Term:
    """The events of a closure or, of nothing, the matches."""
    return Term(Aggregate("count", "*", None, Over.MATCHES)) if of is None else aggregate("count", of)


def every(of: Term) -> Term:
    """EQL's ALL."""
    match of.expr:
        case Attr(at=At.EVENT) as attribute:
            return Term(replace(attribute, at=At.ALL))
        case other:
            raise InputProblem(f"ALL cannot take `{ex.to_text(other)}`", expected="an attribute of a variable")


def passing(condition: Term) -> Term:
    """EQL's `FILTER(p)`: an event that fails it is passed over."""
    return Term(ex.Filter(condition.expr))


def call(fn: str, *args: object) -> Term:
    name = word(fn, LABEL).lower()
    return Term(ex.Call(ALIASES.get(name, name), tuple(as_expr(arg) for arg in args)))


def vector(*items: object) -> Term:
    return Term(ex.Vector(tuple(as_expr(item) for item in items)))


def occurs_within(first: str, second: str, amount: int | float | str, unit: str = OWN_UNIT) -> Term:
    return Term(ex.OccursWithin(word(first), word(second), duration(amount, unit)))


def duration(amount: int | float | str, unit: str = OWN_UNIT) -> Duration:
    """A length of time; a string is the name of a parameter."""
    if isinstance(amount, str) and not LABEL.fullmatch(amount):
        number, _, rest = amount.strip().partition(" ")
        written = f'{number}, "{rest or unit}"' if rest or unit != OWN_UNIT else number
        raise InputProblem(
            f"`{shown(amount)}` is a string, and not the name of a parameter",
            expected='a number and its unit: 5, "minutes"',
            hint=f"write {written}" if number.isdecimal() else None,
        )
    if unit.lower() not in UNIT_WORDS:
        raise InputProblem(
            f"unknown unit `{shown(unit)}`",
            expected=f"one of {listing(UNIT_WORDS, 40)}",
            hint=did_you_mean(unit, UNIT_WORDS),
        )
    return Duration(word(amount) if isinstance(amount, str) else amount, UNIT_WORDS[unit.lower()])
