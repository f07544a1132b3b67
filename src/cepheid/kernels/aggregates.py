"""The aggregate functions of `expr.AGGREGATES` as the evaluators compute them: one row for each.

An aggregate is the result of one or more *accumulators*: running values over a group's values that are not null. The
average is the result of a `sum` and a `count`. A sum of exact numbers is undefined once it has left its type, which
`beyond` remembers. A new aggregate is a row in `AGGREGATE_CODE` here and its definition in `expr.AGGREGATES`; one that
needs an accumulator of its own is a row in `ACCUMULATORS` too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from cepheid.codegen.operands import whole_count
from cepheid.codegen.scalar import NULL, Term, is_null
from cepheid.physical import Kind, kind_of
from cepheid.runtime.numbers import HIGHEST, LOWEST
from cepheid.types import UNKNOWN, Family, Type
from cepheid.values import arithmetic, positive_zero

_EXACT = (Kind.INT, Kind.UNSIGNED)


class Merge(Enum):
    """How the values of an accumulator over two sets of matches become its value over both."""

    COUNT = auto()
    ADD = auto()
    LEAST = auto()
    MOST = auto()


def _same(x: Term) -> str:
    return x.source


Old = Callable[[str], str]
"""How the value of an accumulator before the event at hand is read, by its name."""


@dataclass(frozen=True, slots=True)
class Accumulator:
    """A running value as source. `start(x)` is its value after one event with the value `x`, and `step(old, x)` after
    one more. `x` may be null. Of `early`, for floats:

        x
        (x if old != old else old)
    """

    step: Callable[[Old, Term], str]
    start: Callable[[Term], str] = _same
    kind: Kind | None = None
    """Its own kind; None: that of the attribute."""
    nothing: Mapping[Kind, str] | None = None
    """Its value over no values by the kind of the attribute; null where it has none."""
    compares: bool = False
    """Whether it compares values by their order; of strings, by their ranks."""

    def kind_over(self, attribute: Kind) -> Kind:
        return self.kind or attribute

    def over_nothing(self, attribute: Kind) -> str:
        return (self.nothing or {}).get(attribute, NULL[self.kind_over(attribute)])


def _added(old: Old, x: Term) -> str:
    """`summed(old, x)`, which does not overflow, or for floats `old + (x + 0.0)`, which is never -0.0 (`_NO_SUM`)."""
    before = old("sum")
    if x.kind in _EXACT:
        return f"(summed({before}, {x.source}) if {x.is_known} else {before})"
    return f"({before} + ({x.source} + 0.0) if {x.is_known} else {before})"


def _first_added(x: Term) -> str:
    return f"({x.source}{'' if x.kind in _EXACT else ' + 0.0'} if {x.is_known} else {_NO_SUM[x.kind]})"


def _leaves(before: str, x: Term) -> str:
    """The condition that a sum leaves its type by one more value: `sum_overflows(old, x)`."""
    if x.type.family is Family.DECIMAL:
        return f"decimal_overflows({before}, {x.source})"
    overflows = f"sum_overflows({before}, {x.source})"
    return f"({x.source} < 0 or {overflows})" if x.kind is Kind.UNSIGNED else overflows


def _beyond(before: str, old: str, x: Term) -> str:
    return f"({old} | np.int64({x.is_known} and {_leaves(before, x)}))"


def _extreme(name: str, sign: str) -> Callable[[Old, Term], str]:
    def step(old: Old, x: Term) -> str:
        before = old(name)
        wins = f"{x.source} {sign} {before}"
        if x.kind is Kind.CODE:
            wins = f"rank({x.source}, ranks) {sign} rank({before}, ranks)"
        elif x.kind is Kind.UNSIGNED:
            wins = f"unsigned_less({', '.join((x.source, before) if sign == '<' else (before, x.source))})"
        if x.kind in _EXACT:
            return f"({x.source} if {x.is_known} and {wins} else {before})"
        lost = f"not ({x.is_known}) or not {wins}"
        return f"({x.source} if {is_null(before, x.kind)} else {before} if {lost} else {x.source})"

    return step


def _or(nothing: Mapping[Kind, str]) -> Callable[[Term], str]:
    """The value, or what stands for no value."""

    def start(x: Term) -> str:
        return f"({x.source} if {x.is_known} else {nothing[x.kind]})" if x.kind in nothing else x.source

    return start


def _first(old: Old, x: Term) -> str:
    before = old("early")
    is_first = f"{old('count')} == 0" if x.kind in _EXACT else is_null(before, x.kind)
    return f"({x.source} if {is_first} else {before})"


_NO_SUM = {**dict.fromkeys(_EXACT, "0"), Kind.FLOAT: "-0.0"}
"""The sum of no values. A sum of floats begins with 0.0, so it is never -0.0, and NaN is a sum that is undefined."""
_NONE = dict.fromkeys(Kind, "0")
_GREATEST = {Kind.INT: f"{HIGHEST}", Kind.UNSIGNED: "-1"}
_LEAST = {Kind.INT: f"{LOWEST}", Kind.UNSIGNED: "0"}

ACCUMULATORS: Mapping[str, Accumulator] = {
    "beyond": Accumulator(
        lambda old, x: _beyond(old("sum"), old("beyond"), x), lambda x: _beyond("0", "0", x), Kind.INT, _NONE
    ),
    "sum": Accumulator(_added, _first_added, nothing=_NO_SUM),
    "least": Accumulator(_extreme("least", "<"), _or(_GREATEST), nothing=_GREATEST, compares=True),
    "most": Accumulator(_extreme("most", ">"), _or(_LEAST), nothing=_LEAST, compares=True),
    "early": Accumulator(_first),
    "late": Accumulator(lambda old, x: f"({x.source} if {x.is_known} else {old('late')})"),
    "count": Accumulator(
        lambda old, x: f"{old('count')} + np.int64({x.is_known})", lambda x: f"np.int64({x.is_known})", Kind.INT, _NONE
    ),
}
"""In an order in which they can be updated one after the other: those that read another come before it."""


@dataclass(frozen=True, slots=True)
class AggregateCode:
    """An aggregate by its accumulators: over exact numbers (integers, times, short decimals), and over others.

    `result(type, *accumulators)` is its value as source, with the condition that it is not null; without it, the first
    accumulator is the result, and `count`, if it is one of them, says whether there is one. `merge` says how it is
    computed over all matches without enumerating them (empty: it cannot be), and `of_matches` makes its value of its
    type and those accumulators, which are Python's numbers."""

    exact: tuple[str, ...]
    other: tuple[str, ...]
    result: Callable[..., Term] | None = None
    merge: tuple[Merge, ...] = ()
    of_matches: Callable[..., Any] | None = None
    is_count: bool = False

    def accumulators(self, attribute: Kind) -> tuple[str, ...]:
        return self.exact if attribute in _EXACT else self.other

    def term(self, attribute: Type, accumulators: Sequence[str]) -> Term:
        """Its value, and the condition that it is not null: `sum`, if `count > 0 and beyond == 0`. Of floats, `min` and
        `max` may be -0.0 here: no condition tells it from 0.0, and what is returned is not computed here."""
        kind = kind_of(attribute) or Kind.FLOAT
        if self.result is not None:
            return self.result(attribute, *accumulators)
        if self.is_count:
            return Term(accumulators[0], Kind.INT, known="True")
        known = f"{accumulators[1]} > 0" if len(accumulators) > 1 else None
        return Term(accumulators[0], kind, None, attribute, known)

    def over_nothing(self, attribute: Type) -> Term:
        if self.is_count:
            return Term("0", Kind.INT, known="True")
        kind = Kind.FLOAT if self.result is not None else kind_of(attribute) or Kind.FLOAT
        return Term(NULL[kind], kind, None, attribute, "False")

    def value(self, type_: Type, accumulators: Sequence[Any]) -> Any:
        return accumulators[0] if self.of_matches is None else self.of_matches(type_, *accumulators)

    @property
    def merges(self) -> bool:
        """Whether it can be computed over all matches without enumerating them."""
        return bool(self.merge)

    @property
    def compares(self) -> bool:
        return any(ACCUMULATORS[name].compares for name in self.exact)


def _sum(attribute: Type, *parts: str) -> Term:
    if kind_of(attribute) not in _EXACT:
        return Term(f"float_sum({parts[0]})", Kind.FLOAT)
    beyond, total, count = parts
    result = UNKNOWN if attribute.family is Family.UNSIGNED else attribute
    return Term(total, Kind.INT, None, result, f"({count} > 0 and {beyond} == 0)")


def _average(attribute: Type, *parts: str) -> Term:
    if kind_of(attribute) not in _EXACT:
        return Term(f"divided({parts[0]}, float({parts[1]}))", Kind.FLOAT)
    beyond, total, count = parts
    number = f"float({total})" + (f" / {10.0**attribute.scale!r}" if attribute.scale else "")
    average, known = f"divided({number}, float({count}))", f"({count} > 0 and {beyond} == 0)"
    if attribute.family is Family.DURATION:
        return Term(whole_count(average), Kind.INT, None, attribute, known)
    return Term(average, Kind.FLOAT, known=known)


AGGREGATE_CODE: Mapping[str, AggregateCode] = {
    "sum": AggregateCode(
        ("beyond", "sum", "count"), ("sum",), _sum, (Merge.ADD,), lambda _, total: total if total == total else None
    ),
    "avg": AggregateCode(
        ("beyond", "sum", "count"),
        ("sum", "count"),
        _average,
        (Merge.ADD, Merge.COUNT),
        lambda type_, total, count: arithmetic("/", total, count, type_),
    ),
    "min": AggregateCode(("least", "count"), ("least",), None, (Merge.LEAST,), lambda _, x: positive_zero(x)),
    "max": AggregateCode(("most", "count"), ("most",), None, (Merge.MOST,), lambda _, x: positive_zero(x)),
    "count": AggregateCode(("count",), ("count",), merge=(Merge.COUNT,), is_count=True),
    "first": AggregateCode(("early", "count"), ("early",)),
    "last": AggregateCode(("late", "count"), ("late",)),
}
