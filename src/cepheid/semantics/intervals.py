"""CED: operators on intervals, each with a window of its own that compares end times (CED §2.2)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from cepheid import expr as ex
from cepheid.events import Event
from cepheid.pattern import Conj, Disj, EventClass, Neg, Pattern, Seq
from cepheid.semantics.common import Bindings, Context, Found, events_of, found


@dataclass(frozen=True, slots=True)
class Absence:
    """A negated subevent, and when it would spoil the complex event."""

    item: Pattern
    occurs: Callable[[int], bool]
    """Whether an event that ends then would spoil it."""


@dataclass(frozen=True, slots=True)
class Subevent:
    """An occurrence of a sub-expression: t1, t2, the bound events, and the excluded events."""

    bindings: Bindings
    start: int
    end: int
    absences: tuple[Absence, ...] = ()


def matches(context: Context) -> Iterator[Found]:
    every_variable = {var: None for var, role in context.roles.items() if not role.negated}
    positive = context.about(absent=False)
    for event in occurrences(context.query.pattern, context):
        bound = {**every_variable, **event.bindings}
        if not context.holds(positive, bound) or not context.all_agree(bound):
            continue
        if not any(_is_spoiled(bound, absence, context) for absence in event.absences):
            yield found(bound)


def _is_spoiled(bound: Bindings, absence: Absence, context: Context) -> bool:
    """Whether a negated subevent, be it an event or an operator over events, ends where it must not."""
    for subevent in occurrences(absence.item, context):
        if absence.occurs(subevent.end) and context.is_witness(_events(subevent), bound):
            return True
    return False


def _events(subevent: Subevent) -> dict[str, Event]:
    return {var: event for var, event in subevent.bindings.items() if isinstance(event, Event)}


def occurrences(pattern: Pattern, context: Context) -> Iterator[Subevent]:
    match pattern:
        case EventClass():
            alone = [p for p in context.predicates if ex.variables(p) == {pattern.var}]
            for event in context.of_class[pattern]:
                if context.holds(alone, {pattern.var: event}):
                    yield Subevent({pattern.var: event}, event.start, event.end)
        case Disj():
            for item in pattern.items:
                yield from occurrences(item, context)
        case Seq() | Conj():
            yield from _combined(pattern, context)


def _combined(pattern: Seq | Conj, context: Context) -> Iterator[Subevent]:
    positive = [item for item in pattern.items if not isinstance(item, Neg)]
    options = [list(occurrences(item, context)) for item in positive]
    for subevents in _choices(options, pattern, context, ()):
        of_item = dict(zip(map(id, positive), subevents, strict=True))
        absences = [absence for subevent in subevents for absence in subevent.absences]
        for index, item in enumerate(pattern.items):
            if isinstance(item, Neg):
                before = [of_item[id(i)] for i in pattern.items[:index] if id(i) in of_item]
                after = [of_item[id(i)] for i in pattern.items[index + 1 :] if id(i) in of_item]
                absences.append(Absence(item.item, _spoils(pattern, before, after, context)))
        yield Subevent(
            {var: binding for subevent in subevents for var, binding in subevent.bindings.items()},
            min(subevent.start for subevent in subevents),
            max(subevent.end for subevent in subevents),
            tuple(absences),
        )


def _choices(
    options: list[list[Subevent]], pattern: Seq | Conj, context: Context, so_far: tuple[Subevent, ...]
) -> Iterator[tuple[Subevent, ...]]:
    """One occurrence of each subevent: in order for seq, all ends within the window, no event in two roles."""
    if len(so_far) == len(options):
        yield so_far
        return
    window = None if pattern.window is None else context.clock.ticks(pattern.window)
    ends = [subevent.end for subevent in so_far]
    taken = {id(event) for subevent in so_far for event in events_of(subevent.bindings)}
    for option in options[len(so_far)]:
        if isinstance(pattern, Seq) and so_far and not so_far[-1].end < option.start:
            continue
        if so_far and window is not None and max(*ends, option.end) - min(*ends, option.end) > window:
            continue
        if not any(id(event) in taken for event in events_of(option.bindings)):
            yield from _choices(options, pattern, context, (*so_far, option))


def _spoils(
    pattern: Seq | Conj, before: list[Subevent], after: list[Subevent], context: Context
) -> Callable[[int], bool]:
    """The interval in which a negated subevent's end must not lie, ends included."""
    window = None if pattern.window is None else context.clock.ticks(pattern.window)
    if isinstance(pattern, Conj):
        ends = [subevent.end for subevent in before + after]
        assert window is not None
        return lambda end: max(ends) - window <= end <= min(ends) + window
    if not before:
        assert window is not None
        return lambda end: after[-1].end - window <= end <= after[0].start
    if not after:
        assert window is not None
        return lambda end: before[-1].end <= end <= before[0].end + window
    return lambda end: before[-1].end <= end <= after[0].start
