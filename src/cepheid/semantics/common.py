"""What all five definitions share: the stream a query looks at, its window, its predicates, and absence."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cepheid import expr as ex
from cepheid.events import Clock, Event
from cepheid.expr import At, Attr, Binding, Compare, Env, Expr, Same
from cepheid.pattern import (
    Conj,
    EventClass,
    Kleene,
    Language,
    Pattern,
    Query,
    Role,
    Seq,
    partition_attributes,
    roles,
    walk,
)

Bindings = Mapping[str, Binding]
NOTHING: Mapping[str, Event] = {}


@dataclass(frozen=True, slots=True)
class Found:
    """What a (sub)pattern found: the events bound, and the interval and history of the whole."""

    bindings: Bindings
    start: int
    end: int
    times: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Context:
    """A query together with the stream it is evaluated on."""

    query: Query
    events: Sequence[Event]
    clock: Clock
    roles: Mapping[str, Role]
    predicates: tuple[Expr, ...]
    window: int | float | None
    place: Mapping[int, int]
    """id(event) -> its position in its partition, for windows that count events (ruling 1)."""
    of_class: Mapping[EventClass, Sequence[Event]]
    """The events that each class of the pattern accepts, in the stream's order."""

    @staticmethod
    def of(query: Query, events: Sequence[Event], clock: Clock) -> Context:
        window = None if query.window is None else clock.ticks(query.window)
        found_roles = roles(query.pattern)
        classes = [role.event_class for role in found_roles.values()]
        of_class = {c: [event for event in events if accepts(c, event)] for c in classes}
        places = _places(query, events)
        return Context(query, events, clock, found_roles, expanded(query), window, places, of_class)

    # -- predicates --

    def holds(self, predicates: Iterable[Expr], bound: Bindings, trying: Mapping[str, Event] = NOTHING) -> bool:
        env = Env(bound, trying, self.clock)
        return all(ex.holds(predicate, env) for predicate in predicates)

    def about(self, *, absent: bool) -> tuple[Expr, ...]:
        """P- (the predicates that name a negated variable) or P+ (the others); SASE §2.2.2."""
        return tuple(p for p in self.predicates if any(self.roles[v].negated for v in ex.variables(p)) == absent)

    # -- the window --

    def within(self, bound: Iterable[Event]) -> bool:
        """Ruling 3: from the earliest start to the latest end, `< T` in SASE and `<= T` elsewhere."""
        if self.window is None:
            return True
        events = list(bound)
        if self.counts_events:
            places = [self.place[id(event)] for event in events]
            return self.fits(max(places) - min(places))
        return self.fits(max(event.end for event in events) - min(event.start for event in events))

    def fits(self, length: int | float) -> bool:
        if self.window is None:
            return True
        return length <= self.window if self.query.language.window_includes_bound else length < self.window

    @property
    def counts_events(self) -> bool:
        return self.query.window is not None and self.query.window.counts_events

    def not_before_window(self, event: Event, last: Event) -> bool:
        """Whether an event lies in the window that ends with `last`."""
        if self.counts_events:
            return self.fits(self.place[id(last)] - self.place[id(event)])
        return self.fits(last.end - event.start)

    def not_after_window(self, event: Event, first: Event) -> bool:
        """Whether an event lies in the window that begins with `first`."""
        if self.counts_events:
            return self.fits(self.place[id(event)] - self.place[id(first)])
        return self.fits(event.end - first.start)

    # -- absence --

    def absent(self, item: Pattern, bound: Bindings, occurs: Callable[[Event], bool]) -> bool:
        """No event of the negated classes for which `occurs` holds satisfies its predicates. An event that is itself
        part of the match is no witness against it."""
        taken = {id(event) for event in events_of(bound)}
        for event_class in walk(item):
            if not isinstance(event_class, EventClass):
                continue
            against = [p for p in self.predicates if event_class.var in ex.variables(p)]
            for event in self.of_class[event_class]:
                if id(event) in taken or not occurs(event):
                    continue
                if self.holds(against, bound, {event_class.var: event}):
                    return False
        return True


def accepts(event_class: EventClass, event: Event) -> bool:
    """A class without types is the whole input stream; what other queries derive from it is not."""
    return event.type in event_class.types if event_class.types else not event.parts


def events_of(bound: Bindings) -> list[Event]:
    found: list[Event] = []
    for binding in bound.values():
        if isinstance(binding, tuple):
            found.extend(binding)
        elif binding is not None:
            found.append(binding)
    return found


def found(bound: Bindings) -> Found:
    events = sorted(events_of(bound), key=lambda event: (event.end, event.position))
    times = tuple(time for event in events for time in event.times)
    return Found(bound, min(e.start for e in events), max(e.end for e in events), times)


def partition_key(attributes: Sequence[str], event: Event) -> tuple[Any, ...] | None:
    """The values that say which partition an event is in; None if it is in none."""
    values = tuple(event.attributes.get(name) for name in attributes)
    return None if any(value is None for value in values) else values


def _places(query: Query, events: Sequence[Event]) -> dict[int, int]:
    attributes = partition_attributes(query)
    counters: dict[Any, itertools.count[int]] = {}
    return {
        id(event): next(counters.setdefault(partition_key(attributes, event), itertools.count())) for event in events
    }


def expanded(query: Query) -> tuple[Expr, ...]:
    """The conjuncts with every equivalence test spelt out: every pair of positive components equal, and the negative
    ones with the positive ones (ruling 5)."""
    result: list[Expr] = []
    for predicate in query.where:
        result.extend(_expand_same(predicate, query) if isinstance(predicate, Same) else [predicate])
    return tuple(result)


def always_bound(pattern: Pattern) -> list[str]:
    """The positive variables that every match binds to an event."""
    match pattern:
        case EventClass():
            return [pattern.var]
        case Kleene():
            return [pattern.item.var] if pattern.low > 0 else []
        case Seq() | Conj():
            return [var for item in pattern.items for var in always_bound(item)]
        case _:
            return []


def _expand_same(test: Same, query: Query) -> list[Expr]:
    found_roles = roles(query.pattern)
    in_order = list(found_roles)

    def read(var: str, at: At) -> Attr:
        return Attr(var, test.name, at, span=test.span)

    def one(var: str) -> Attr:
        """The component's event, or the first of its events."""
        return read(var, At.FIRST if found_roles[var].binds_many else At.EVENT)

    def each(var: str) -> list[Attr]:
        """Every event of the component, as its language speaks of them."""
        if not found_roles[var].binds_many:
            return [read(var, At.EVENT)]
        if query.language is Language.SASE_PLUS:
            return [read(var, At.FIRST), read(var, At.CURRENT)]
        return [read(var, At.EVENT)]

    if test.value is not None:
        return [Compare("=", attr, test.value, span=test.span) for var in in_order for attr in each(var)]
    positive = [var for var in in_order if not found_roles[var].negated]
    # An event needs no partner to be in a partition, but with a null key it is in none (ruling 4).
    may_be_alone = len(always_bound(query.pattern)) < 2
    pairs: list[tuple[Attr, Attr]] = [(one(var), one(var)) for var in positive] if may_be_alone else []
    for earlier, later in itertools.combinations(positive, 2):
        if query.language is Language.SASE_PLUS or not found_roles[earlier].binds_many:
            pairs.extend((attr, one(earlier)) for attr in each(later))
        elif not found_roles[later].binds_many:
            pairs.extend((attr, one(later)) for attr in each(earlier))
        else:
            pairs.append((one(earlier), one(later)))
    for var in positive:
        if found_roles[var].binds_many:
            at = At.CURRENT if query.language is Language.SASE_PLUS else At.EVENT
            anchor = At.FIRST if query.language is Language.SASE_PLUS else At.LAST
            pairs.append((read(var, at), read(var, anchor)))
    pairs.extend(
        (read(var, At.EVENT), one(other)) for var in in_order if found_roles[var].negated for other in positive
    )
    return [Compare("=", left, right, span=test.span) for left, right in dict.fromkeys(pairs)]
