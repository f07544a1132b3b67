"""The computation-state vector of SASE+ (§5): the values of a partial match that edges still ahead of it will read.

A *slot* of the vector is one such value, held as a 64-bit word. This file says which slots an expression reads, how a
slot is read in generated source, and what its value becomes when a run moves along an edge.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from cepheid.codegen.scalar import Term
from cepheid.expr import Aggregate, At, Attr
from cepheid.physical import Kind, Plan, Step
from cepheid.runtime.arrays import NULL_CODE, NULL_INT
from cepheid.runtime.jit import njit


@dataclass(frozen=True, slots=True)
class Slot:
    """One value of the vector.

    `what` is one of: key, the partition; start, the measure of the first event; row, the position of the last one;
    first, last: an attribute of a component's first or last event, and first_missing, last_missing: whether it has none
    (the component is empty, or the event's type lacks the attribute); count: the number of a component's events, as far
    as its bounds care; events, known, sum, min, max, head, tail: a running aggregate, and lacking: whether no event so
    far has its attribute; lead: the measure of the latest negative event before the first; after, until: the positions
    between which a negative event must not be."""

    what: str
    of: int = -1
    """The component, or for lead, after and until the negation."""
    name: str = ""
    kind: Kind = Kind.INT


@dataclass(frozen=True, slots=True)
class Edge:
    """A transition of a run from the component it is at (-1: before the first) to `target`."""

    source: int
    target: int

    @property
    def takes(self) -> bool:
        return self.source == self.target

    @property
    def starts(self) -> bool:
        return self.source < 0

    def crosses(self, after: int) -> bool:
        """Whether the place after that many components lies between the two."""
        return self.source < after <= self.target


@dataclass(frozen=True, slots=True)
class Negation:
    """A negated component, with `after` positive components before it, and how each of its cases is decided."""

    number: int
    step: Step
    after: int
    inner_late: bool
    """Between two events: when the match is complete, or else as soon as the negative event occurs."""
    leading_late: bool
    """Before the first event: when the match is complete, by looking, or else by the latest negative event's time."""


Words = Callable[[Slot], str]


@dataclass(frozen=True, slots=True)
class Layout:
    """What is known about the attributes and components of a plan."""

    plan: Plan
    components: tuple[Step, ...]
    column_number: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, plan: Plan) -> Layout:
        positive = tuple(step for step in plan.steps if not step.negated)
        return cls(plan, positive, {name: number for number, name in enumerate(plan.columns)})

    @property
    def order(self) -> dict[str, int]:
        return {step.var: number for number, step in enumerate(self.components)}

    def index(self, var: str) -> int:
        return self.order.get(var, -1)

    def kind(self, name: str) -> Kind:
        return self.plan.columns[name]

    def event_term(self, name: str) -> Term:
        return Term(f"column{self.column_number[name]}[e]", self.kind(name), self.lacks(name, "bits"))

    def event_word(self, name: str) -> str:
        source = f"column{self.column_number[name]}[e]"
        return f"float_key({source})" if self.kind(name) is Kind.FLOAT else source

    def event_is_known(self, name: str) -> str:
        source = f"column{self.column_number[name]}[e]"
        if self.kind(name) is Kind.FLOAT:
            return f"{source} == {source}"
        return f"{source} != {'NULL_CODE' if self.kind(name) is Kind.CODE else 'NULL_INT'}"

    def lacks(self, name: str, mask: str) -> str | None:
        bit = self.plan.lacking.get(name)
        return None if bit is None else f"{mask} & np.uint64({1 << bit}) != 0"

    def null(self, kind: Kind) -> str:
        return {Kind.FLOAT: "np.nan", Kind.CODE: "NULL_CODE", Kind.INT: "NULL_INT"}[kind]

    def null_word(self, kind: Kind) -> str:
        return "float_key(np.nan)" if kind is Kind.FLOAT else self.null(kind)


# --- reading ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Scope:
    """Where an expression is evaluated: for a run that is at component `at`, whose vector `words` reads. `event` is the
    component that the event at hand would be of. A component after `at` is empty, or with `bound_only` is nothing that
    an aggregate could speak of. `negative` reads the attributes of a negative event."""

    layout: Layout
    at: int
    words: Words
    event: int | None = None
    bound_only: bool = False
    negative: Callable[[str], Term] | None = None

    def read(self, node: Attr | Aggregate) -> Term:
        component = self.layout.index(node.var)
        if component < 0:
            assert self.negative is not None and node.name is not None
            return self.negative(node.name)
        if isinstance(node, Aggregate):
            return self._aggregate(node, component)
        kind = self.layout.kind(node.name)
        if component == self.event and (component > self.at or node.at is At.CURRENT):
            return self.layout.event_term(node.name)
        if component > self.at or node.at is At.CURRENT:
            return Term(self.layout.null(kind), kind, "True")
        what = "first" if node.at in (At.EVENT, At.FIRST) else "last"
        missing = None
        if self.may_be_missing(component, node.name):
            missing = f"{self.words(Slot(f'{what}_missing', component, node.name))} != 0"
        return self._term(Slot(what, component, node.name, kind), missing)

    def may_be_missing(self, component: int, name: str) -> bool:
        may_be_empty = self.layout.components[component].low == 0 and component < self.at
        return may_be_empty or name in self.layout.plan.lacking

    def _term(self, slot: Slot, missing: str | None = None) -> Term:
        word = self.words(slot)
        return Term(f"as_float({word})" if slot.kind is Kind.FLOAT else word, slot.kind, missing)

    def _aggregate(self, node: Aggregate, component: int) -> Term:
        kind = Kind.INT if node.name is None or node.fn == "count" else self.layout.kind(node.name)
        if component > self.at:
            if self.bound_only:
                return Term(self.layout.null(kind), kind, "True")
            return Term("0" if kind is Kind.INT and node.fn == "count" else self.layout.null(kind), kind)
        if node.name is None:
            return self._term(Slot("events", component))
        missing = None
        if node.name in self.layout.plan.lacking:
            missing = f"{self.words(Slot('lacking', component, node.name))} != 0"
        known = Slot("known", component, node.name)
        match node.fn:
            case "count":
                return self._term(known, missing)
            case "sum" | "avg" if kind is Kind.CODE:
                return Term("np.nan", Kind.FLOAT, missing)
            case "avg":
                total = self._term(Slot("sum", component, node.name, kind)).source
                total = total if kind is Kind.FLOAT else f"null_to_nan({total})"
                return Term(f"divided({total}, float({self.words(known)}))", Kind.FLOAT, missing)
            case _:
                what = {"first": "head", "last": "tail"}.get(node.fn, node.fn)
                return self._term(Slot(what, component, node.name, kind), missing)


# --- moving -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Moves:
    """What the slots become along an edge. `old` reads the vector before it."""

    layout: Layout
    negations: tuple[Negation, ...]

    def word(self, slot: Slot, edge: Edge, old: Words) -> str:
        match slot.what:
            case "key":
                return self.layout.event_word(slot.name)
            case "row":
                return "row"
            case "start":
                return "m" if edge.starts else old(slot)
            case "lead" | "after" | "until":
                return self._around_negation(slot, edge, old)
        if edge.takes and slot.of == edge.target:
            return self._further(slot, old)
        if slot.of == edge.target:
            return self._first(slot)
        return self._empty(slot) if edge.source < slot.of < edge.target else old(slot)

    def _around_negation(self, slot: Slot, edge: Edge, old: Words) -> str:
        negation = self.negations[slot.of]
        crosses = edge.crosses(negation.after)
        if slot.what == "lead":
            return f"lead{negation.number}" if edge.starts and crosses else "NEVER" if edge.starts else old(slot)
        if edge.starts:
            return "row" if slot.what == "until" and crosses and negation.leading_late else "-1"
        if crosses and negation.inner_late:
            return "row" if slot.what == "until" else old(Slot("row"))
        return old(slot)

    def _first(self, slot: Slot) -> str:
        """The value after the component's first event."""
        match slot.what:
            case "first_missing" | "last_missing" | "lacking":
                lacks = self.layout.lacks(slot.name, "bits")
                return "0" if lacks is None else f"int({lacks})"
            case "count" | "events":
                return "1"
            case "known":
                return f"int({self.layout.event_is_known(slot.name)})"
            case _:
                return self.layout.event_word(slot.name)

    def _empty(self, slot: Slot) -> str:
        """The value for a component without events."""
        match slot.what:
            case "first_missing" | "last_missing":
                return "1"
            case "count" | "events" | "known" | "lacking":
                return "0"
            case _:
                return self.layout.null_word(slot.kind)

    def _further(self, slot: Slot, old: Words) -> str:
        """The value after a further event of the component."""
        match slot.what:
            case "first" | "first_missing":
                return old(slot)
            case "last" | "last_missing":
                return self._first(slot)
            case "count":
                step = self.layout.components[slot.of]
                return f"min({old(slot)} + 1, {step.low if step.high is None else step.high})"
            case "events":
                return f"{old(slot)} + 1"
            case "known":
                return f"{old(slot)} + {self._first(slot)}"
            case "lacking":
                return f"{old(slot)} & {self._first(slot)}"
        word, of = self.layout.event_word(slot.name), old(slot)
        if slot.kind is Kind.FLOAT:
            value = self.layout.event_term(slot.name).source
            return f"float_key({slot.what}_float(as_float({of}), {value}))"
        if slot.kind is Kind.CODE:
            extra = ", ranks" if slot.what in ("min", "max") else ""
            return f"{slot.what}_code({of}, {word}{extra})"
        return f"{slot.what}_int({of}, {word})"


# --- words and running aggregates, null where nothing is known --------------------------------------------------------


@njit
def as_float(word: int) -> float:
    """The float that `float_key` made a word of."""
    return np.int64(word).view(np.float64)


@njit
def sum_int(total: int, value: int) -> int:
    return value if total == NULL_INT else total if value == NULL_INT else total + value


@njit
def min_int(least: int, value: int) -> int:
    return value if least == NULL_INT else least if value == NULL_INT else min(least, value)


@njit
def max_int(most: int, value: int) -> int:
    return max(most, value)  # a null is the smallest integer


@njit
def head_int(first: int, value: int) -> int:
    return value if first == NULL_INT else first


@njit
def tail_int(last: int, value: int) -> int:
    return last if value == NULL_INT else value


@njit
def sum_float(total: float, value: float) -> float:
    return value if total != total else total if value != value else total + value


@njit
def min_float(least: float, value: float) -> float:
    return value if least != least or value < least else least


@njit
def max_float(most: float, value: float) -> float:
    return value if most != most or value > most else most


@njit
def head_float(first: float, value: float) -> float:
    return value if first != first else first


@njit
def tail_float(last: float, value: float) -> float:
    return last if value != value else value


@njit
def rank(code: int, ranks: np.ndarray) -> int:
    """The place of a string in the order of strings; a boolean's code is its own."""
    return ranks[code] if code < ranks.shape[0] else code


@njit
def min_code(least: int, value: int, ranks: np.ndarray) -> int:
    if least == NULL_CODE or value == NULL_CODE:
        return max(least, value)
    return value if rank(value, ranks) < rank(least, ranks) else least


@njit
def max_code(most: int, value: int, ranks: np.ndarray) -> int:
    if most == NULL_CODE or value == NULL_CODE:
        return max(most, value)
    return value if rank(value, ranks) > rank(most, ranks) else most


@njit
def head_code(first: int, value: int) -> int:
    return value if first == NULL_CODE else first


@njit
def tail_code(last: int, value: int) -> int:
    return last if value == NULL_CODE else value
