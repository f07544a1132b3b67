"""The aggregate functions of `expr.AGGREGATES` as the evaluators compute them: one row for each.

An aggregate is the result of one or more *accumulators*: running values over a group's values that are not null. The
average is the result of a `sum` and a `count`. A new aggregate is a row in `AGGREGATE_CODE` here and its definition in
`expr.AGGREGATES`; one that needs an accumulator of its own is a row in `ACCUMULATORS` too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from cepheid.codegen.scalar import NULL, is_null
from cepheid.physical import Kind


class Merge(Enum):
    """How the values of an accumulator over two sets of matches become its value over both."""

    COUNT = auto()
    ADD = auto()
    LEAST = auto()
    MOST = auto()


def _same(value: str, _: Kind) -> str:
    return value


@dataclass(frozen=True, slots=True)
class Accumulator:
    """A running value as source. It is null over no values, unless it says otherwise (`nothing`).

    `start(x, kind)` is its value after one event with the value `x`, and `step(old, x, kind)` after one more. `x` may
    be null. Of `early`, for integers:

        x
        (x if old == NULL_INT else old)
    """

    step: Callable[[str, str, Kind], str]
    start: Callable[[str, Kind], str] = _same
    kind: Kind | None = None
    """Its own kind; None: that of the attribute."""
    nothing: str | None = None
    compares: bool = False
    """Whether it compares values by their order; of strings, by their ranks."""
    merge: Merge | None = None
    """None: over all matches it cannot be computed without enumerating them."""

    def kind_over(self, attribute: Kind) -> Kind:
        return self.kind or attribute

    def over_nothing(self, attribute: Kind) -> str:
        return NULL[self.kind_over(attribute)] if self.nothing is None else self.nothing


def _is_known(x: str, kind: Kind) -> str:
    return f"np.int64(not {is_null(x, kind)})"


def _added(old: str, x: str, kind: Kind) -> str:
    return f"({x} if {is_null(old, kind)} else {old} if {is_null(x, kind)} else {old} + {x})"


def _extreme(sign: str) -> Callable[[str, str, Kind], str]:
    def step(old: str, x: str, kind: Kind) -> str:
        wins = f"rank({x}, ranks) {sign} rank({old}, ranks)" if kind is Kind.CODE else f"{x} {sign} {old}"
        return f"({x} if {is_null(old, kind)} else {old} if {is_null(x, kind)} or not {wins} else {x})"

    return step


ACCUMULATORS: Mapping[str, Accumulator] = {
    "sum": Accumulator(_added, merge=Merge.ADD),
    "count": Accumulator(
        lambda old, x, kind: f"{old} + {_is_known(x, kind)}", _is_known, Kind.INT, nothing="0", merge=Merge.COUNT
    ),
    "least": Accumulator(_extreme("<"), compares=True, merge=Merge.LEAST),
    "most": Accumulator(_extreme(">"), compares=True, merge=Merge.MOST),
    "early": Accumulator(lambda old, x, kind: f"({x} if {is_null(old, kind)} else {old})"),
    "late": Accumulator(lambda old, x, kind: f"({old} if {is_null(x, kind)} else {x})"),
}


@dataclass(frozen=True, slots=True)
class AggregateCode:
    """An aggregate by its accumulators. Without a result of its own, it is the only one of them.

    `result(kind, *accumulators)` is its source, null where they are; `of_matches(*accumulators)` is its value over all
    matches, whose accumulators are Python's numbers. Of `avg`:

        divided(float(total), float(count))
    """

    accumulators: tuple[str, ...]
    result: Callable[..., str] | None = None
    of_matches: Callable[..., Any] | None = None
    kind: Kind | None = None
    """The kind of its result; None: that of its first accumulator."""

    def kind_over(self, attribute: Kind) -> Kind:
        return self.kind or ACCUMULATORS[self.accumulators[0]].kind_over(attribute)

    def source(self, attribute: Kind, accumulators: Sequence[str]) -> str:
        return accumulators[0] if self.result is None else self.result(attribute, *accumulators)

    def over_nothing(self, attribute: Kind) -> str:
        own = ACCUMULATORS[self.accumulators[0]]
        return NULL[self.kind_over(attribute)] if self.result is not None else own.over_nothing(attribute)

    def value(self, accumulators: Sequence[Any]) -> Any:
        return accumulators[0] if self.of_matches is None else self.of_matches(*accumulators)

    @property
    def merges(self) -> bool:
        """Whether it can be computed over all matches without enumerating them."""
        return all(ACCUMULATORS[name].merge is not None for name in self.accumulators)

    @property
    def compares(self) -> bool:
        return any(ACCUMULATORS[name].compares for name in self.accumulators)


AGGREGATE_CODE: Mapping[str, AggregateCode] = {
    "sum": AggregateCode(("sum",)),
    "avg": AggregateCode(
        ("sum", "count"),
        lambda _, total, count: f"divided(float({total}), float({count}))",
        lambda total, count: total / count,
        Kind.FLOAT,
    ),
    "min": AggregateCode(("least",)),
    "max": AggregateCode(("most",)),
    "count": AggregateCode(("count",)),
    "first": AggregateCode(("early",)),
    "last": AggregateCode(("late",)),
}
