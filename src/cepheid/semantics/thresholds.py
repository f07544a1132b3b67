"""Events about many events: a count or a sum over the last while that passes a threshold (CED §6.5)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cepheid.evaluation import Env, value_or_null
from cepheid.events import Clock, Event
from cepheid.pattern import Query, Threshold, positives
from cepheid.semantics.common import Found
from cepheid.values import compare, exact_sum


@dataclass(frozen=True, slots=True)
class Occurrence:
    """The events of a group in the last while, at the time of the last of them."""

    group: Mapping[str, Any]
    value: Any
    start: int
    end: int
    last: Event
    """The event that completes it: of those at its end, the last to arrive."""


def occurrences(query: Query, found: Sequence[Found], clock: Clock) -> Iterator[Occurrence]:
    """One at each time at which events of a group end, if the condition holds for all events of the group that end then
    or at most the window before. Events that have no value for an attribute of the group are in none."""
    threshold = query.threshold
    assert threshold is not None
    (var,) = positives(query.pattern)
    groups: list[tuple[dict[str, Any], list[Event]]] = []
    for one in found:
        event = one.bindings[var]
        assert isinstance(event, Event)
        env = Env(one.bindings, {}, clock)
        key = {column.name: value_or_null(column.expr, env) for column in query.output or ()}
        if any(part is None for part in key.values()):
            continue
        same = [members for known, members in groups if all(compare("=", known[n], key[n]) for n in key)]
        if same:
            same[0].append(event)
        else:
            groups.append((key, [event]))
    window = clock.ticks(threshold.window)
    for key, members in groups:
        for time in sorted({event.end for event in members}):
            last = [event for event in members if time - window <= event.end <= time]
            total = _total(threshold, var, last, clock)
            if compare(threshold.op, total, threshold.limit):
                completing = max((event for event in last if event.end == time), key=lambda event: event.position)
                yield Occurrence(key, total, min(event.start for event in last), time, completing)


def _total(threshold: Threshold, var: str, events: Sequence[Event], clock: Clock) -> Any:
    if threshold.of is None:
        return len(events)
    read = [value_or_null(threshold.of, Env({var: event}, {}, clock)) for event in events]
    values = [one for one in read if one is not None]
    if threshold.fn == "sum":
        return exact_sum(values)
    if not threshold.is_distinct:
        return len(values)
    distinct: list[Any] = []
    for one in values:
        if not any(compare("=", one, other) for other in distinct):
            distinct.append(one)
    return len(distinct)
