"""Plans as data: what is computed for each event before the kernel sees it, and what the kernel then does.

A plan holds no events and no code. `bits` say which parts an event can play (the event's *mask*); they are computed
column-wise, in Catalyst or Arrow. `columns` are the only attributes that travel to the kernel. Everything else is for
the code generator of the evaluator that the plan names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from cepheid.expr import Expr
from cepheid.pattern import Query

REFERENCE = "reference"
"""The evaluator that is the oracle itself, for what no compiled evaluator can do."""


class Kind(Enum):
    """How an attribute's values are held in the kernel's arrays."""

    INT = "int64"
    FLOAT = "float64"
    CODE = "code"
    """A string (or boolean) as a number that stands for it."""


@dataclass(frozen=True, slots=True)
class Bit:
    """One bit of the mask: the event has one of the types (or any, if none is given) and passes the tests, each of
    which speaks of this one event, under the variable name `var`."""

    name: str
    var: str
    types: tuple[str, ...]
    tests: tuple[Expr, ...] = ()


@dataclass(frozen=True, slots=True)
class Step:
    """A component of the pattern as an evaluator sees it. `begin` and `take` are numbers of bits in the mask: an event
    can be the component's (first) event, or a further one."""

    var: str
    begin: int
    take: int | None = None
    low: int = 1
    high: int | None = 1
    negated: bool = False

    @property
    def kleene(self) -> bool:
        return self.take is not None


@dataclass(frozen=True, slots=True)
class Plan:
    """One query, ready to be turned into a kernel."""

    query: Query
    evaluator: str
    steps: tuple[Step, ...]
    bits: tuple[Bit, ...]
    lacks: Mapping[str, tuple[str, ...]]
    """attribute -> the types that lack it, of those that the query's variables can have."""
    lacking: Mapping[str, int]
    """attribute -> the bit of the events whose type lacks it, where a predicate between events needs to know."""
    predicates: tuple[Expr, ...]
    """The conjuncts that speak of more than one event; equivalence tests spelt out."""
    columns: Mapping[str, Kind]
    key: tuple[str, ...]
    """The partition attributes that every event has."""
    window: int | float | None
    counts_events: bool
    options: Mapping[str, str | bool]
    reasons: tuple[str, ...] = ()
