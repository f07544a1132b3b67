"""How long an event matters where each operator has a window of its own, over the ends of its operands (CED §2.2)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from cepheid.dialect import Windows
from cepheid.events import Clock, Duration
from cepheid.pattern import Conj, Disj, EventClass, Neg, Pattern, Query, Seq, operator_window, walk


def operator_windows(query: Query, clock: Clock) -> dict[Duration, int] | None:
    """The windows of the operators in whole ticks; None where the match as a whole has the window."""
    if query.dialect.windows is not Windows.OPERATOR:
        return None
    found = [operator_window(node) for node in walk(query.pattern)]
    return {window: math.floor(clock.ticks(window)) for window in found if window is not None}


def match_window(pattern: Pattern) -> Duration | None:
    """The window of the match as a whole, where it is that of its one operator over single points in time."""
    if not isinstance(pattern, Seq | Conj) or not all(map(_is_single, pattern.items)):
        return None
    return pattern.window


def _is_single(pattern: Pattern) -> bool:
    """Whether the operand is one event."""
    match pattern:
        case Disj():
            return all(map(_is_single, pattern.items))
        case _:
            return isinstance(pattern, EventClass)


def reach(pattern: Pattern, ticks: Mapping[Duration, int]) -> int | None:
    """How long after its end an event can matter: the longest match, what a match waits for, and how long what must
    not occur takes itself. None: without limit."""
    parts = [span(pattern, ticks), waiting(pattern, ticks), _negated_span(pattern, ticks)]
    return None if None in parts else sum(part for part in parts if part is not None)


def span(pattern: Pattern, ticks: Mapping[Duration, int]) -> int | None:
    """The longest time between the ends of two events of a match: an operand may last as long as its own operands are
    apart, and the window compares the ends of the operands.

    >>> from cepheid.lang import parse
    >>> pattern = parse("complex Q event seq(and(A, B; 3), C; 2)").pattern
    >>> span(pattern, {window: window.amount for window in (pattern.window, pattern.items[0].window)})
    5
    """
    match pattern:
        case Seq() | Conj():
            inner = [span(item, ticks) for item in pattern.items if not isinstance(item, Neg)]
            if pattern.window is None or None in inner:
                return inner[0] if len(inner) == 1 and pattern.window is None else None
            return ticks[pattern.window] + max(part for part in inner if part is not None)
        case Disj():
            inner = [span(item, ticks) for item in pattern.items]
            return None if None in inner else max(part for part in inner if part is not None)
        case _:
            return 0


def looking_back(pattern: Pattern, ticks: Mapping[Duration, int]) -> int:
    """How long before the first event of a match an event may end that must not occur."""
    return max((ticks[window] for window, _ in _open(pattern)), default=0) + (_negated_span(pattern, ticks) or 0)


def waiting(pattern: Pattern, ticks: Mapping[Duration, int]) -> int:
    """How long after the end of a match an event may end that must not occur."""
    return max((ticks[window] for window, trails in _open(pattern) if trails), default=0)


def lag(pattern: Pattern, ticks: Mapping[Duration, int]) -> int:
    """How long after its end a match is certain: 0 if nothing that comes later can spoil it."""
    return waiting(pattern, ticks) + 1 if any(trails for _, trails in _open(pattern)) else 0


def _open(pattern: Pattern) -> Iterator[tuple[Duration, bool]]:
    """The windows of operators with a negation at an edge, and whether nothing follows it."""
    for node in walk(pattern):
        if isinstance(node, Seq | Conj) and node.window is not None:
            absent = [isinstance(item, Neg) for item in node.items]
            trails = any(absent) if isinstance(node, Conj) else absent[-1]
            if trails or absent[0]:
                yield node.window, trails


def _negated_span(pattern: Pattern, ticks: Mapping[Duration, int]) -> int | None:
    spans = [span(node.item, ticks) for node in walk(pattern) if isinstance(node, Neg)]
    return None if None in spans else max((part for part in spans if part is not None), default=0)
