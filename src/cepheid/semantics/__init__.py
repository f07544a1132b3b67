"""The oracle: computes the matches of a query by brute force, directly from the definitions.

It is not fast, and it shares nothing with the optimizer or the evaluators. Each definition has its own file, to be read
beside its paper: `combinations` (SASE, ZStream), `runs` (SASE+), `successors` (EQL), `intervals` (CED). A dialect names
its definition (`Dialect.selection`). This file contains the common parts: composition, output and its order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

from cepheid.binding import INTERVAL_TYPES, composite_names, members
from cepheid.checks import EVENT_ID, NODE
from cepheid.evaluation import Env, aggregate, output_value, value_or_null
from cepheid.events import NO_CLOCK, Clock, Event
from cepheid.expr import MEMBER, Aggregate, Over, Whole
from cepheid.pattern import VALUE, DerivedStream, Query, SourceStream
from cepheid.semantics.common import Bindings, Context, Found, accepts, events_of
from cepheid.semantics.thresholds import Occurrence, occurrences
from cepheid.values import compare

_HIDDEN = "\0hidden"
"""The type of events of the input whose type a label hides."""

Attributes = Mapping[str, Sequence[str]]
"""The attributes of each derived event type."""


@dataclass(frozen=True, slots=True)
class Match:
    """One match: each positive variable with its event, its list of events (Kleene), or None (a branch not taken). A
    summary of no matches has no interval."""

    bindings: Bindings
    start: int | None
    end: int | None
    columns: Mapping[str, Any] | None = None


def evaluate(query: Query, events: Sequence[Event], clock: Clock = NO_CLOCK) -> list[Match]:
    """All matches of a bound query on a stream in its order, in the order in which they are complete."""
    found = _found(query, events, clock, Arrivals(events), {})
    matches = [Match(f.bindings, f.start, f.end, _columns(query, f, clock)) for f in found]
    return [summary(query, matches)][: query.limit] if query.summarizes else matches


class Arrivals:
    """The arrival of each event, counted in events of the input. A derived event arrives with the event that completed
    it. Arrival orders events with the same time."""

    def __init__(self, events: Sequence[Event]) -> None:
        self._known = {id(event): (event, event.position) for event in events}

    def of(self, event: Event) -> int:
        return self._known[id(event)][1]

    def put(self, event: Event, arrival: int) -> Event:
        self._known[id(event)] = event, arrival
        return event

    def in_order(self, events: Iterable[Event]) -> list[Event]:
        """By time, then by arrival, then in input order; positions are renumbered."""
        ordered = sorted(events, key=lambda event: (event.end, self.of(event)))
        return [self.put(replace(event, position=i), self.of(event)) for i, event in enumerate(ordered)]


def _found(query: Query, events: Sequence[Event], clock: Clock, arrivals: Arrivals, derived: Attributes) -> list[Found]:
    """The matches of a query. It sees the input, and of the types that other queries derive those that it names."""
    stream = list(events)
    for item in query.inputs:
        if not isinstance(item, SourceStream):
            made = list(_distinct(item, _derived(item, stream, clock, arrivals, derived)))
            stream = arrivals.in_order([*_without_type(item.name, stream, arrivals), *made])
            derived = {**derived, item.name or "": _attributes_of(item, events, derived)}
    hidden = derived.keys() - {name for role in query.roles.values() for name in role.event_class.types}
    visible = [event for event in stream if event.type not in hidden]
    definition = import_module(f"cepheid.semantics.{query.dialect.selection}")
    variables = [var for var, role in query.roles.items() if not role.negated]
    found = sorted(definition.matches(Context.of(query, visible, clock)), key=lambda one: _completion(one, variables))
    if query.consumes:
        found = list(_consuming(found))
    return found if query.summarizes else found[: query.limit]


def _without_type(name: str | None, events: Iterable[Event], arrivals: Arrivals) -> Iterator[Event]:
    """The events, without this type for those that have it: a label hides a type of the input."""
    for event in events:
        is_hidden = event.type == name
        yield arrivals.put(replace(event, type=_HIDDEN), arrivals.of(event)) if is_hidden else event


def _consuming(found: Iterable[Found]) -> Iterator[Found]:
    """Of the matches in their order, those whose events are in none before (CED §3.3)."""
    used: set[int] = set()
    for one in found:
        events = {id(event) for event in events_of(one.bindings)}
        if used.isdisjoint(events):
            used |= events
            yield one


def _completion(found: Found, variables: Sequence[str]) -> tuple[int, int, list[int], list[int]]:
    """The order of matches: end, start, positions of their events, events of each variable (more first)."""
    groups = [[event.position for event in events_of({var: found.bindings.get(var)})] for var in variables]
    return found.end, found.start, [at for group in groups for at in group], [-len(group) for group in groups]


# --- composition (ruling 11) ------------------------------------------------------------------------------------------


def _derived(
    item: DerivedStream | Query, stream: Sequence[Event], clock: Clock, arrivals: Arrivals, derived: Attributes
) -> Iterator[Event]:
    match item:
        case DerivedStream():
            for event in stream:
                if event.type == item.source:
                    yield arrivals.put(_primitive_of(item, event, clock), arrivals.of(event))
        case Query():
            if item.threshold is not None:
                matches = _found(item, stream, clock, arrivals, derived)
                for one in occurrences(item, matches, clock):
                    yield arrivals.put(_event_of(item, one), arrivals.of(one.last))
                return
            known = _known_attributes(item, stream, _with_inputs(item, stream, derived))
            for found in _found(item, stream, clock, arrivals, derived):
                last = max(events_of(found.bindings), key=lambda event: (event.end, event.position))
                yield arrivals.put(composite(item, found, clock, known), arrivals.of(last))


def _distinct(item: DerivedStream | Query, events: Iterable[Event]) -> Iterator[Event]:
    """Of the events of a CED declaration with the same `event_id`, the first: they are one event (ruling 17)."""
    columns = item.columns if isinstance(item, DerivedStream) else item.output or ()
    is_ced = isinstance(item, DerivedStream) or (item.dialect.has_nodes and item.threshold is None)
    is_identified = is_ced and any(column.name == EVENT_ID for column in columns)
    seen: list[Any] = []
    for event in events:
        identity = event.attributes[EVENT_ID] if is_identified else None
        if identity is None or not any(compare("=", identity, other) for other in seen):
            seen += [] if identity is None else [identity]
            yield event


def _event_of(query: Query, one: Occurrence) -> Event:
    attributes = {**_base_schema(None, one.start, one.end), **one.group, VALUE: one.value}
    times = tuple(sorted({one.start, one.end}))
    return Event(query.name or "", one.start, one.end, 0, attributes, attributes, times)


def _primitive_of(item: DerivedStream, event: Event, clock: Clock) -> Event:
    """CED's primitive event for an event of its source, with the base schema (CED §2.1)."""
    env = Env({item.alias: event, NODE: node_of(event)}, {}, clock)
    computed = {column.name: value_or_null(column.expr, env) for column in item.columns}
    attributes = {**_base_schema(event.attributes.get("node_id"), event.start, event.end), **computed}
    origin = item, {item.alias: event}
    return replace(event, type=item.name, attributes=attributes, row=attributes, origin=origin)


def _known_attributes(query: Query, stream: Sequence[Event], derived: Attributes) -> dict[str, list[str]]:
    """The attributes of the events that each variable may bind. Those of a derived event do not depend on the events:
    its type has them even if it has no event. A type of which the input has no event has those of all its events."""
    known = {}
    seen = {event.type for event in stream}
    of_input = list(dict.fromkeys(n for event in stream if event.type not in derived for n in event.attributes))
    for var, role in query.roles.items():
        unseen = any(kind not in seen and kind not in derived for kind in role.event_class.types)
        own = [name for kind in role.event_class.types for name in derived.get(kind, ())] + of_input * unseen
        own += [name for event in stream if accepts(role.event_class, event) for name in event.attributes]
        known[var] = list(dict.fromkeys(own))
    return known


def _attributes_of(item: DerivedStream | Query, events: Sequence[Event], derived: Attributes) -> list[str]:
    """The attributes of the events that a declaration or a query derives."""
    if isinstance(item, DerivedStream):
        return [*_base_schema(None, 0, 0), *(column.name for column in item.columns)]
    if item.threshold is not None:
        return [*_base_schema(None, 0, 0), *(column.name for column in item.output or ()), VALUE]
    known = _known_attributes(item, events, _with_inputs(item, events, derived))
    names = [*(_base_schema(None, 0, 0) if item.dialect.has_nodes else INTERVAL_TYPES)]
    names += [column.name for column in item.output or () if not isinstance(column.expr, Whole)]
    names += [name for name, _, _ in composite_names(item, known.__getitem__)]
    return [*names, *(name for name, _ in members(item, known.__getitem__))]


def _with_inputs(query: Query, events: Sequence[Event], derived: Attributes) -> Attributes:
    """The attributes of the derived types that a query may name, with those of its own inputs."""
    for item in query.inputs:
        if not isinstance(item, SourceStream):
            derived = {**derived, item.name or "": _attributes_of(item, events, derived)}
    return derived


def composite(query: Query, found: Found, clock: Clock, known: Mapping[str, Sequence[str]]) -> Event:
    """The event that a match is, for the queries that use it; it has no position yet. Of a variable that the match does
    not bind (a branch not taken), all attributes are null."""
    parts = tuple(events_of(found.bindings))
    attributes: dict[str, Any] = dict(zip(INTERVAL_TYPES, (found.start, found.end), strict=True))
    if query.dialect.has_nodes:
        attributes = _base_schema(None, found.start, found.end)
    # A returned event is not an attribute: its attributes are.
    events = {column.name for column in query.output or () if isinstance(column.expr, Whole)}
    attributes.update({n: v for n, v in (_columns(query, found, clock) or {}).items() if n not in events})
    for name, owners, attribute in composite_names(query, known.__getitem__):
        bound = [event for var in owners if isinstance(event := found.bindings.get(var), Event)]
        attributes[name] = next((value for e in bound if (value := e.attributes.get(attribute)) is not None), None)
    env = Env(found.bindings, {}, clock)
    attributes |= {name: output_value(expr, env) for name, expr in members(query, known.__getitem__)}
    shown = {name: value for name, value in attributes.items() if MEMBER not in name}
    origin = query, found.bindings
    return Event(query.name or "", found.start, found.end, 0, attributes, shown, found.times, parts, origin)


def _base_schema(node_id: Any, start: int, end: int) -> dict[str, Any]:
    return {"node_id": node_id, "event_id": None, "start_time": start, "end_time": end}


def node_of(event: Event) -> Event:
    """CED's `node` for an event: the context of the node that generated it."""
    context = {"id": event.attributes.get("node_id"), "time": event.end, "loc": event.attributes.get("node_loc")}
    return replace(event, attributes=context)


# --- output -----------------------------------------------------------------------------------------------------------


def _columns(query: Query, found: Found, clock: Clock) -> dict[str, Any] | None:
    if query.output is None or query.summarizes:
        return None
    bound = found.bindings
    if query.dialect.has_nodes:
        last = max(events_of(bound), key=lambda event: (event.end, event.position))
        bound = {**bound, NODE: node_of(last)}
    env = Env(bound, {}, clock)
    return {column.name: output_value(column.expr, env) for column in query.output}


def summary(query: Query, matches: Sequence[Match]) -> Match:
    """One row about all matches: `RETURN count(*), sum(b.price)`."""
    row: dict[str, Any] = {}
    for column in query.output or ():
        of = column.expr
        assert isinstance(of, Aggregate)
        if of.over is Over.MATCHES and of.name is None:
            row[column.name] = len(matches)
        else:
            events = [e for m in matches for e in events_of({of.var: m.bindings.get(of.var)})]
            row[column.name] = aggregate(replace(of, over=Over.MATCHES), events)
    starts = [m.start for m in matches if m.start is not None]
    ends = [m.end for m in matches if m.end is not None]
    return Match({}, min(starts, default=None), max(ends, default=None), row)
