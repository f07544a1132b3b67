"""The event detection tree of a query (CED §2.3): operators with their windows over the streams that sources are asked
for. Complex events that the query names are expanded."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum, auto
from typing import NamedTuple

from cepheid.errors import NotAvailable
from cepheid.events import Clock
from cepheid.expr import Attr, Compare, Same, variables
from cepheid.pattern import (
    Conj,
    DerivedStream,
    Disj,
    EventClass,
    Neg,
    Pattern,
    Query,
    Seq,
    SourceStream,
    Threshold,
    roles,
    types_read,
    walk,
)


class Kind(StrEnum):
    AND = auto()
    OR = auto()
    SEQ = auto()
    COUNT = auto()
    """A count or a sum over the last while passes a threshold (CED §6.5)."""


class Primitive(NamedTuple):
    """The events of one type, which a source is asked for."""

    name: str
    stream: str
    """The event type."""


@dataclass(frozen=True, slots=True)
class Operator:
    """A complex event. `negated` says for each operand whether it must not occur."""

    name: str
    kind: Kind
    items: tuple[Node, ...]
    window: int | None
    """The window in ticks. An `or` has none."""
    negated: tuple[bool, ...] = ()
    threshold: Threshold | None = None
    equal: tuple[tuple[int, int, str], ...] = ()
    """Operands whose attribute equals one of another operand: both, and the attribute of the first."""

    units: tuple[tuple[int, ...], ...] = field(init=False, repr=False, compare=False)
    """The operands that a plan places together: those of one stream, since its events are fetched once."""
    negated_units: int = field(init=False, repr=False, compare=False)
    """The units that must not occur, as bits."""

    def __post_init__(self) -> None:
        negated = self.negated or (False,) * len(self.items)
        found: dict[object, list[int]] = {}
        for index, item in enumerate(self.items):
            key = (item.stream, negated[index]) if isinstance(item, Primitive) else index
            found.setdefault(key, []).append(index)
        units = tuple(tuple(indices) for indices in found.values())
        object.__setattr__(self, "negated", negated)
        object.__setattr__(self, "units", units)
        object.__setattr__(self, "negated_units", sum(1 << i for i, unit in enumerate(units) if negated[unit[0]]))

    def is_negated(self, unit: tuple[int, ...]) -> bool:
        return self.negated[unit[0]]


Node = Primitive | Operator


class Part(NamedTuple):
    """The text behind a node: its pattern, and the query in which it stands."""

    query: Query
    pattern: Pattern


@dataclass(frozen=True, slots=True)
class EventTree:
    """The tree of a query, and its part for each operator and for each complex event over an event alone."""

    root: Node
    parts: Mapping[str, Part] = field(default_factory=dict)


def nodes(node: Node) -> Iterator[Node]:
    """The node and all below it, top down."""
    yield node
    if isinstance(node, Operator):
        for item in node.items:
            yield from nodes(item)


def streams(node: Node) -> tuple[str, ...]:
    """The event types under a node, each once."""
    return tuple(dict.fromkeys(leaf.stream for leaf in nodes(node) if isinstance(leaf, Primitive)))


def negated_streams(node: Node, is_negated: bool = False) -> frozenset[str]:
    """The event types that may spoil an event."""
    if isinstance(node, Primitive):
        return frozenset({node.stream}) if is_negated else frozenset()
    inner = is_negated or node.kind is Kind.COUNT  # a count is another with each further event
    below = (negated_streams(item, inner or node.negated[i]) for i, item in enumerate(node.items))
    return frozenset().union(*below)


def span(node: Node) -> int | None:
    """The longest time between the end of an event and the end of its earliest primitive event. None: no limit."""
    if isinstance(node, Primitive):
        return 0
    inner = [span(item) for item in node.items]
    if None in inner or (node.window is None and node.kind is not Kind.OR):
        return None
    return (node.window or 0) + max(part for part in inner if part is not None)


# --- from a query -----------------------------------------------------------------------------------------------------

_Declared = SourceStream | DerivedStream | Query


def tree_of(query: Query, clock: Clock) -> EventTree:
    """The tree of a bound query in CED's language."""
    parts: dict[str, Part] = {}
    root = _Building(clock, parts).event(query, query.name or "event")
    return EventTree(root, parts)


@dataclass(frozen=True, slots=True)
class _Building:
    clock: Clock
    parts: dict[str, Part]

    def event(self, query: Query, name: str) -> Node:
        """The node of a complex event. One over an event alone has that of the event, and a part of its own."""
        self.parts[name] = Part(query, query.pattern)
        return self.node(query.pattern, query, name)

    def node(self, pattern: Pattern, query: Query, name: str) -> Node:
        """`query` is the one in which the pattern stands, with the declarations before it. `name` is unique."""
        match pattern:
            case EventClass(types=(kind,)):
                for number, stream in enumerate(query.inputs):
                    if stream.name == kind and isinstance(stream, DerivedStream):
                        inner = replace(query, inputs=query.inputs[:number])
                        return self.node(EventClass(pattern.var, (stream.source,)), inner, name)
                    if stream.name == kind and isinstance(stream, Query):
                        inner = replace(stream, inputs=(*query.inputs[:number], *stream.inputs))
                        if stream.threshold is not None:
                            return self.count(inner, stream.threshold, name)
                        return self.event(inner, name)
                return Primitive(name, kind)
            case Seq() | Conj() | Disj():
                return self.operator(pattern, query, name)
            case _:
                raise NotAvailable(
                    "a plan for events other than those of CED's operators",
                    expected="and, or, seq and ! over event types",
                    hint="`cepheid.match` runs this query over events that are all at hand",
                )

    def operator(self, pattern: Seq | Conj | Disj, query: Query, name: str) -> Operator:
        items = [item.item if isinstance(item, Neg) else item for item in pattern.items]
        below = [self.node(item, query, f"{name}.{_label(item, i)}") for i, item in enumerate(items)]
        negated = tuple(isinstance(item, Neg) for item in pattern.items)
        self.parts[name] = Part(query, pattern)
        if isinstance(pattern, Disj):
            return Operator(name, Kind.OR, tuple(below), None, negated)
        window = None if pattern.window is None else math.floor(self.clock.ticks(pattern.window))
        kind = Kind.SEQ if isinstance(pattern, Seq) else Kind.AND
        return Operator(name, kind, tuple(below), window, negated, None, tuple(_equalities(items, below, query)))

    def count(self, query: Query, threshold: Threshold, name: str) -> Operator:
        self.parts[name] = Part(query, query.pattern)
        below = self.node(query.pattern, query, f"{name}.{_label(query.pattern, 0)}")
        window = math.floor(self.clock.ticks(threshold.window))
        return Operator(name, Kind.COUNT, (below,), window, (), threshold)


def _equalities(items: list[Pattern], below: list[Node], query: Query) -> Iterator[tuple[int, int, str]]:
    """The equalities between operands that are events of sources."""
    found = {item.var: i for i, item in enumerate(items) if isinstance(item, EventClass)}
    at = {var: i for var, i in found.items() if isinstance(below[i], Primitive)}
    for predicate in query.where:
        match predicate:
            case Compare(op="=", left=Attr() as left, right=Attr() as right) if left.var != right.var:
                if left.var in at and right.var in at:
                    yield at[left.var], at[right.var], left.name
                    yield at[right.var], at[left.var], right.name


def _label(pattern: Pattern, index: int) -> str:
    return pattern.var if isinstance(pattern, EventClass) else str(index + 1)


# --- partial events ---------------------------------------------------------------------------------------------------


def partial_query(part: Part, indices: Sequence[int]) -> Query:
    """The query of a partial detection: some operands of an operator, and the predicates that speak of them only.
    Negations inside the other operands are left out: what they exclude may not be known yet."""
    pattern = part.pattern
    assert isinstance(pattern, Seq | Conj)
    items = [item if isinstance(item, Neg) else _positive(item) for item in (pattern.items[i] for i in indices)]
    chosen = items[0] if len(items) == 1 else replace(pattern, items=tuple(items))
    known = set(roles(chosen))
    where = tuple(p for p in part.query.where if isinstance(p, Same) or variables(p) <= known)
    used = {name for node in walk(chosen) if isinstance(node, EventClass) for name in node.types}
    inputs: list[_Declared] = []
    for stream in reversed(part.query.inputs):
        if stream.name in used:
            inputs.append(stream)
            used |= types_read(stream)
    return replace(part.query, pattern=chosen, where=where, output=None, inputs=tuple(reversed(inputs)), name=None)


def _positive(pattern: Pattern) -> Pattern:
    if not isinstance(pattern, Seq | Conj | Disj):
        return pattern
    items = tuple(_positive(item) for item in pattern.items if not isinstance(item, Neg))
    return items[0] if len(items) == 1 else replace(pattern, items=items)
