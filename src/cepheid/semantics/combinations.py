"""SASE and ZStream: all combinations (rulings 5, 6 and 8).

A match is a choice of one event for each plain class, in an order that the operators allow, together with the groups
that its closures then have. Groups and absences are tested once the plain classes are chosen, because both depend on
their neighbours and on the window of the whole match.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from cepheid import expr as ex
from cepheid.events import Event
from cepheid.expr import At, Attr, Expr
from cepheid.pattern import Conj, EventClass, Kleene, Neg, Pattern, Seq, subpatterns, walk
from cepheid.semantics.common import Bindings, Context, Found, alternatives, events_of, found

Group = tuple[Event, ...]
Test = tuple[frozenset[str], Expr]
"""A predicate and the variables it names."""


def matches(context: Context) -> Iterator[Found]:
    every_variable = {var: None for var, role in context.roles.items() if not role.negated}
    for alternative in alternatives(context.query.pattern):
        for bound in _Search(context, alternative).matches():
            yield found({**every_variable, **bound})


@dataclass(frozen=True, slots=True)
class Chosen:
    """A choice for the plain classes of a (sub)pattern, and its interval; no interval if it has none."""

    bound: Mapping[str, Event]
    start: int | None = None
    end: int | None = None


@dataclass(frozen=True, slots=True)
class _Search:
    context: Context
    pattern: Pattern

    def matches(self) -> Iterator[Bindings]:
        closures = [node for node in walk(self.pattern) if isinstance(node, Kleene)]
        closure_names = {closure.item.var for closure in closures}
        member_tests = [p for p in self.context.about(absent=False) if _speaks_of_members(p, closure_names)]
        match_tests = [p for p in self.context.about(absent=False) if p not in member_tests]
        for chosen in self._choices(self.pattern, [(ex.variables(p), p) for p in match_tests]):
            for groups in self._groups(closures, chosen.bound, member_tests):
                bound: Bindings = {**chosen.bound, **groups}
                events = events_of(bound)
                if not events or not self.context.within(events):
                    continue
                holds = self.context.holds(match_tests, bound) and self.context.all_agree(bound)
                if holds and self._nothing_forbidden(self.pattern, bound):
                    yield bound

    # -- plain classes --

    def _choices(self, pattern: Pattern, tests: Sequence[Test]) -> Iterator[Chosen]:
        """Every choice of events for the plain classes that the operators (and the tests that can be made) allow."""
        match pattern:
            case EventClass():
                for event in self.context.of_class[pattern]:
                    bound = {pattern.var: event}
                    if self._passes(tests, bound, bound):
                        yield Chosen(bound, event.start, event.end)
            case Seq() | Conj():
                options = [list(self._choices(item, tests)) for item in pattern.items]
                yield from self._join(options, isinstance(pattern, Seq), Chosen({}), tests)
            case _:
                yield Chosen({})

    def _join(
        self, options: Sequence[Sequence[Chosen]], ordered: bool, so_far: Chosen, tests: Sequence[Test]
    ) -> Iterator[Chosen]:
        """One of each of the options, one after the other if `ordered`."""
        if not options:
            yield so_far
            return
        taken = {id(event) for event in so_far.bound.values()}
        for choice in options[0]:
            if ordered and None not in (so_far.end, choice.start) and not so_far.end < choice.start:  # type: ignore[operator]
                continue
            if any(id(event) in taken for event in choice.bound.values()):
                continue
            bound = {**so_far.bound, **choice.bound}
            starts = [t for t in (so_far.start, choice.start) if t is not None]
            ends = [t for t in (so_far.end, choice.end) if t is not None]
            joined = Chosen(bound, min(starts, default=None), max(ends, default=None))
            if (bound and not self.context.within(bound.values())) or not self._passes(tests, bound, choice.bound):
                continue
            yield from self._join(options[1:], ordered, joined, tests)

    def _passes(self, tests: Sequence[Test], bound: Mapping[str, Event], new: Mapping[str, Event]) -> bool:
        """Whether the predicates hold that only now can be tested. This prunes hopeless choices early."""
        ready = [p for names, p in tests if names <= bound.keys() and names & new.keys()]
        return self.context.holds(ready, bound) and self.context.all_agree(bound)

    # -- closures --

    def _groups(
        self, closures: Sequence[Kleene], bound: Mapping[str, Event], tests: Sequence[Expr]
    ) -> Iterator[dict[str, Group]]:
        """Every way to fill the closures. A leading one begins at the edge of the window, which the end of the match
        decides, so it is filled last."""
        in_order = sorted(closures, key=lambda closure: not _neighbours(self.pattern, closure, bound)[0])
        yield from self._fill(in_order, bound, {}, tests)

    def _fill(
        self, closures: Sequence[Kleene], bound: Mapping[str, Event], groups: dict[str, Group], tests: Sequence[Expr]
    ) -> Iterator[dict[str, Group]]:
        if not closures:
            yield groups
            return
        known: Bindings = {**bound, **groups}
        earlier, later = _neighbours(self.pattern, closures[0], known)
        after = max((event.end for event in earlier), default=None)
        before = min((event.start for event in later), default=None)
        for group in self._candidates_for(closures[0], after, before, known, tests):
            yield from self._fill(closures[1:], bound, {**groups, closures[0].item.var: group}, tests)

    def _candidates_for(
        self, closure: Kleene, after: int | None, before: int | None, bound: Bindings, tests: Sequence[Expr]
    ) -> Iterator[Group]:
        """The groups a closure can have between `after` and `before` (None: it leads, or trails)."""
        var = closure.item.var
        taken = events_of(bound)

        def members(last: Event | None) -> Group:
            known: Bindings = {**bound, var: (last,)} if last is not None else bound
            end = max([*taken, *([last] if last is not None else [])], key=lambda event: event.end, default=None)
            mine = [p for p in tests if var in ex.variables(p)]
            beside = [*(other for other in bound.values() if isinstance(other, Event)), *([last] if last else [])]
            return tuple(
                event
                for event in self.context.of_class[closure.item]
                if (after is None or after < event.start)
                and (before is None or event.end < before)
                and (last is None or event.position <= last.position)
                and (after is not None or end is None or self.context.in_window(event, end))
                and not any(event is other for other in taken)
                and self.context.holds(mine, known, {var: event})
                and self.context.agrees(event, beside)
            )

        if before is not None and closure.high is None:
            everyone = members(None)
            if len(everyone) >= closure.low:
                yield everyone
            return
        if closure.low == 0:
            yield ()
        for last in self.context.of_class[closure.item]:
            everyone = members(last)
            if not everyone or everyone[-1] is not last or len(everyone) < closure.low:
                continue
            yield everyone if closure.high is None else everyone[-closure.low :]

    # -- negation --

    def _nothing_forbidden(self, pattern: Pattern, bound: Bindings) -> bool:
        """A negation in a sequence excludes events between its neighbours; one in a conjunction, in the whole window. A
        conjunction of negations alone, `A;(!B & !C);D`, is at the position of the conjunction (ZStream §5.2.1)."""
        for item in subpatterns(pattern):
            if _is_absence(item):
                forbidden = [node for node in walk(item) if isinstance(node, Neg)]
                if not all(self._absent(node, isinstance(pattern, Seq), bound) for node in forbidden):
                    return False
            elif not self._nothing_forbidden(item, bound):
                return False
        return True

    def _absent(self, item: Neg, in_sequence: bool, bound: Bindings) -> bool:
        first, last = self.context.edges(events_of(bound))
        before, after = _neighbours(self.pattern, item, bound)

        def occurs(event: Event) -> bool:
            if not in_sequence:
                return self.context.in_window(event, last) and self.context.in_window(first, event)
            if before and not max(e.end for e in before) < event.start:
                return False
            if after and not event.end < min(e.start for e in after):
                return False
            if not before and not self.context.in_window(event, last):
                return False
            return bool(after) or self.context.in_window(first, event)

        if not any(isinstance(node, Seq | Conj) for node in walk(item.item)):
            return self.context.absent(item.item, bound, occurs)
        found = (events for part in alternatives(item.item) for events in self._occurrences(part))
        return not any(all(map(occurs, events.values())) and self.context.is_witness(events, bound) for events in found)

    def _occurrences(self, pattern: Pattern) -> Iterator[Mapping[str, Event]]:
        """The combinations of events, in the order of the operators and within the window, that a negated operator
        excludes where all of them lie in its interval."""
        if isinstance(pattern, EventClass):
            yield from ({pattern.var: event} for event in self.context.of_class[pattern])
            return
        for parts in itertools.product(*(list(self._occurrences(item)) for item in subpatterns(pattern))):
            events = [event for part in parts for event in part.values()]
            in_order = all(
                max(event.end for event in one.values()) < min(event.start for event in other.values())
                for one, other in itertools.pairwise(parts)
            )
            is_one_each = len({id(event) for event in events}) == len(events)
            if (in_order or not isinstance(pattern, Seq)) and is_one_each and self.context.within(events):
                yield {var: event for part in parts for var, event in part.items()}


def _neighbours(
    pattern: Pattern, part: Pattern, bound: Bindings, before: Sequence[Event] = (), after: Sequence[Event] = ()
) -> tuple[Sequence[Event], Sequence[Event]]:
    """The events bound before and after a part, in the innermost sequence that binds any there. An event after a
    conjunction is after all of it."""
    for index, item in enumerate(subpatterns(pattern)):
        if any(node is part for node in walk(item)):
            if isinstance(pattern, Seq):
                before = [e for i in pattern.items[:index] for e in _bound_under(i, bound)] or before
                after = [e for i in pattern.items[index + 1 :] for e in _bound_under(i, bound)] or after
            return _neighbours(item, part, bound, before, after)
    return before, after


def _bound_under(pattern: Pattern, bound: Bindings) -> list[Event]:
    """The events bound under a positive sub-pattern."""
    if isinstance(pattern, Neg):
        return []
    names = {node.var for node in walk(pattern) if isinstance(node, EventClass)}
    return events_of({var: binding for var, binding in bound.items() if var in names})


def _is_absence(pattern: Pattern) -> bool:
    return isinstance(pattern, Neg) or (isinstance(pattern, Conj) and all(map(_is_absence, pattern.items)))


def _speaks_of_members(predicate: Expr, closures: set[str]) -> bool:
    """Ruling 8: a predicate on a closure's attribute is one that each member must satisfy."""
    return any(isinstance(node, Attr) and node.at is At.EVENT and node.var in closures for node in ex.walk(predicate))
