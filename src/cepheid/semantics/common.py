"""What all five definitions share: the stream of a query, its window, its predicates, its partitions, and absence."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cepheid import evaluation
from cepheid import expr as ex
from cepheid.evaluation import Binding, Env
from cepheid.events import Clock, Event
from cepheid.expr import Attr, Compare, Expr, Same
from cepheid.pattern import Conj, Disj, EventClass, Kleene, Neg, Pattern, Query, Role, Seq, subpatterns, walk
from cepheid.values import compare, is_null

Bindings = Mapping[str, Binding]
NOTHING: Mapping[str, Event] = {}


@dataclass(frozen=True, slots=True)
class Found:
    """A match of a (sub)pattern."""

    bindings: Bindings
    """The bound events."""
    start: int
    end: int
    times: tuple[int, ...]
    """Its history: the times of its events, in order."""


@dataclass(frozen=True, slots=True)
class Context:
    """A query together with the stream it is evaluated on."""

    query: Query
    events: Sequence[Event]
    clock: Clock
    roles: Mapping[str, Role]
    predicates: tuple[Expr, ...]
    """The conjuncts of WHERE, except the equivalence tests."""
    equivalences: tuple[Same, ...]
    may_be_alone: bool
    """Whether a match may bind an event beside which no other one is bound for sure."""
    partition: tuple[str, ...]
    window: int | float | None
    index: Mapping[int, int]
    """id(event) -> its index in its partition, for windows that count events (ruling 1)."""
    of_class: Mapping[EventClass, Sequence[Event]]
    """The events that each class of the pattern accepts, in the stream's order."""

    @staticmethod
    def of(query: Query, events: Sequence[Event], clock: Clock) -> Context:
        window = None if query.window is None else clock.ticks(query.window)
        found_roles = query.roles
        classes = [role.event_class for role in found_roles.values()]
        of_class = {c: [event for event in events if accepts(c, event)] for c in classes}
        equivalences = tuple(p for p in query.where if isinstance(p, Same))
        partition = _partition(query, [var for var, role in found_roles.items() if not role.negated])
        return Context(
            query,
            events,
            clock,
            found_roles,
            tuple(p for p in query.where if not isinstance(p, Same)),
            equivalences,
            bool(equivalences) and _bound_for_sure(query.pattern) < 2,
            partition,
            window,
            _indices(partition, events),
            of_class,
        )

    # -- predicates --

    def holds(self, predicates: Iterable[Expr], bound: Bindings, trying: Mapping[str, Event] = NOTHING) -> bool:
        env = Env(bound, trying, self.clock)
        return all(evaluation.holds(predicate, env) for predicate in predicates)

    def about(self, *, absent: bool) -> tuple[Expr, ...]:
        """P- (the predicates that name a negated variable) or P+ (the others); SASE §2.2.2."""
        return tuple(p for p in self.predicates if any(self.roles[v].negated for v in ex.variables(p)) == absent)

    # -- equivalence tests --

    def agrees(self, event: Event, others: Iterable[Event]) -> bool:
        """Whether the equivalence tests allow an event beside the others (ruling 5): it has the required value, or the
        same value as each of them. They do not apply to an event whose type lacks the attribute."""
        for test in self.equivalences:
            if test.name not in event.attributes:
                continue
            if test.value is not None:
                wanted = [evaluation.value(test.value, Env({}, {}, self.clock))]
            else:
                wanted = [other.attributes[test.name] for other in others if test.name in other.attributes]
            if not all(compare("=", event.attributes[test.name], value) for value in wanted):
                return False
        return True

    def joins(self, event: Event, bound: Bindings) -> bool:
        """Whether an event may begin a component beside the others. One that may be alone in its match is compared
        with itself, since a null key is in no partition (ruling 4)."""
        others = [other for other in first_events(bound) if other is not event]
        return self.agrees(event, [*others, event] if self.may_be_alone else others)

    def all_agree(self, bound: Bindings) -> bool:
        """Whether the first events of all components agree with each other."""
        return all(self.joins(event, bound) for event in first_events(bound))

    # -- the window --

    def within(self, bound: Iterable[Event]) -> bool:
        """Ruling 3: from the earliest start to the latest end, `< T` in SASE and `<= T` elsewhere."""
        if self.window is None:
            return True
        events = list(bound)
        if self.counts_events:
            indices = [self.index[id(event)] for event in events]
            return self.fits(max(indices) - min(indices))
        return self.fits(max(event.end for event in events) - min(event.start for event in events))

    def fits(self, length: int | float) -> bool:
        if self.window is None:
            return True
        return length <= self.window if self.query.dialect.window_includes_bound else length < self.window

    @property
    def counts_events(self) -> bool:
        return self.query.window is not None and self.query.window.counts_events

    def edges(self, events: Iterable[Event]) -> tuple[Event, Event]:
        """The events from which and to which the window of a match counts: those with the earliest start and the latest
        end, or the first and the last in their partition for windows that count events."""
        chosen = list(events)
        if self.counts_events:
            return min(chosen, key=lambda e: self.index[id(e)]), max(chosen, key=lambda e: self.index[id(e)])
        return min(chosen, key=lambda event: event.start), max(chosen, key=lambda event: event.end)

    def in_window(self, first: Event, last: Event) -> bool:
        """Whether the window that begins with `first` reaches to `last`, which may be earlier."""
        if self.counts_events:
            return self.fits(self.index[id(last)] - self.index[id(first)])
        return self.fits(last.end - first.start)

    # -- absence --

    def absent(self, item: Pattern, bound: Bindings, occurs: Callable[[Event], bool]) -> bool:
        """No event of the negated classes for which `occurs` holds satisfies its predicates."""
        return not any(
            occurs(event) and self.is_witness({event_class.var: event}, bound)
            for event_class in walk(item)
            if isinstance(event_class, EventClass)
            for event in self.of_class[event_class]
        )

    def is_witness(self, found: Mapping[str, Event], bound: Bindings) -> bool:
        """Whether the predicates on negated variables hold for these events. An event that is itself part of the match
        is no witness against it."""
        taken = {id(event) for event in events_of(bound)}
        if any(id(event) in taken for event in found.values()):
            return False
        against = [p for p in self.predicates if ex.variables(p) & found.keys()]
        beside = first_events(bound)
        return self.holds(against, bound, found) and all(self.agrees(event, beside) for event in found.values())


def accepts(event_class: EventClass, event: Event) -> bool:
    """Whether the class contains the event. A class without types is the whole input stream, without derived events."""
    return event.type in event_class.types if event_class.types else not event.parts


def events_of(bound: Bindings) -> list[Event]:
    found: list[Event] = []
    for binding in bound.values():
        if isinstance(binding, tuple):
            found.extend(binding)
        elif binding is not None:
            found.append(binding)
    return found


def first_events(bound: Bindings) -> list[Event]:
    """The event of each component, or the first of its events."""
    return [events[0] for var in bound if (events := events_of({var: bound[var]}))]


def found(bound: Bindings) -> Found:
    events = sorted(events_of(bound), key=lambda event: (event.end, event.position))
    times = tuple(time for event in events for time in event.times)
    return Found(bound, min(e.start for e in events), max(e.end for e in events), times)


def partition_key(attributes: Sequence[str], event: Event) -> tuple[Any, ...] | None:
    """The key of the partition of an event; None if it belongs to no partition."""
    values = tuple(_hashable(event.attributes.get(name)) for name in attributes)
    return None if any(value is None for value in values) else values


def _hashable(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return tuple(map(_hashable, value))
    return None if is_null(value) else value


def _indices(partition: Sequence[str], events: Sequence[Event]) -> dict[int, int]:
    counters: dict[Any, itertools.count[int]] = {}
    return {
        id(event): next(counters.setdefault(partition_key(partition, event), itertools.count())) for event in events
    }


def _partition(query: Query, positive: Sequence[str]) -> tuple[str, ...]:
    """The attributes that all events of a match share: those of equivalence tests, and those for which equalities lead
    from every positive component to every other one (SASE's Q2 calls the two equivalent)."""
    names = [p.name for p in query.where if isinstance(p, Same)]
    equal = [
        (p.left.name, {p.left.var, p.right.var})
        for p in query.where
        if isinstance(p, Compare) and p.op == "=" and isinstance(p.left, Attr) and isinstance(p.right, Attr)
        if p.left.name == p.right.name and {p.left.var, p.right.var} <= set(positive)
    ]
    for name in dict.fromkeys(name for name, _ in equal):
        islands: list[set[str]] = [{var} for var in positive]
        for pair in (pair for other, pair in equal if other == name):
            touched = [island for island in islands if island & pair]
            islands = [island for island in islands if not island & pair] + [set().union(*touched)]
        if len(islands) == 1 and len(positive) > 1:
            names.append(name)
    return tuple(dict.fromkeys(names))


def alternatives(pattern: Pattern) -> Iterator[Pattern]:
    """The patterns without disjunction that the pattern is the union of. A negated disjunction stays."""
    match pattern:
        case Disj():
            for item in pattern.items:
                yield from alternatives(item)
        case Seq() | Conj():
            for choice in itertools.product(*(list(alternatives(item)) for item in pattern.items)):
                yield type(pattern)(choice)
        case _:
            yield pattern


def _bound_for_sure(pattern: Pattern) -> int:
    """How many variables have an event in every match."""

    def bound(node: Pattern) -> set[str]:
        match node:
            case EventClass():
                return {node.var}
            case Neg() | Kleene(low=0):
                return set()
            case _:
                return set().union(*map(bound, subpatterns(node)))

    return len(set.intersection(*map(bound, alternatives(pattern))))
