"""The event time at which a match becomes certain."""

from __future__ import annotations

import math
from dataclasses import replace

from cepheid.dialect import Windows
from cepheid.engine.layout import DETECTED, Detection, column_names
from cepheid.engine.prepare import Prepared
from cepheid.errors import NotAvailable, PatternProblem
from cepheid.events import Clock
from cepheid.logic import normal_form
from cepheid.optimize.windows import lag, operator_windows
from cepheid.pattern import Conj, Kleene, Neg, Pattern, Query, Seq, walk

_AT_END = Detection(None)


def with_detection(prepared: Prepared) -> Prepared:
    """The query with the column `detected_at` in its output. Raises NotAvailable if the time depends on the match."""
    query = prepared.written
    if query.summarizes:
        raise NotAvailable("`detected_at` of a summary: it is about all matches")
    if DETECTED in column_names(query):
        raise PatternProblem(
            f"`{DETECTED}` is the name of the column that was asked for", hint="choose another name in the query"
        )
    return replace(prepared, detection=_detection(query, prepared.clock))


def _detection(query: Query, clock: Clock) -> Detection:
    """The end of the match or, after a negation at the end of a sequence, the end of its window."""
    for item in query.inputs:
        if isinstance(item, Query) and _detection(item, clock) != _AT_END:
            raise NotAvailable(
                f"`{DETECTED}` of a query over `{item.name}`, whose matches become certain after they end",
                hint=f"drop {DETECTED}",
            )
    operators = operator_windows(query, clock)
    pattern = normal_form(query.pattern)
    if query.dialect.windows is Windows.CONDITION or (operators is not None and not lag(query.pattern, operators)):
        return _AT_END
    if operators is None and not needs_later_events(pattern, True):
        return _AT_END
    items = pattern.items if isinstance(pattern, Seq) else (pattern,)
    is_simple = isinstance(items[-1], Neg) and not any(needs_later_events(part, False) for part in items)
    window = query.window
    if operators is not None or not is_simple or window is None or window.counts_events or query.non_overlapping:
        raise NotAvailable(
            f"`{DETECTED}` of this query: later events decide its matches, and not at the end of one window of time",
            expected="a sequence that ends with an event, or with a negation and WITHIN a length of time",
        )
    ticks = clock.ticks(window)
    return Detection(math.floor(ticks) if query.dialect.window_includes_bound else math.ceil(ticks))


def needs_later_events(pattern: Pattern, at_the_end: bool) -> bool:
    """Whether later events can invalidate a match: the pattern ends with a negation, or with a closure that may be
    empty."""
    match pattern:
        case Neg():
            return at_the_end
        case Kleene():
            return at_the_end and pattern.low == 0
        case Seq():
            last = max((i for i, item in enumerate(pattern.items) if not isinstance(item, Neg)), default=-1)
            return any(needs_later_events(item, at_the_end and i >= last) for i, item in enumerate(pattern.items))
        case Conj():
            return any(needs_later_events(item, True) for item in pattern.items)
        case _:
            return any(needs_later_events(part, at_the_end) for part in _parts(pattern))


def _parts(pattern: Pattern) -> list[Pattern]:
    return [node for node in walk(pattern) if node is not pattern and isinstance(node, Seq | Conj | Kleene)]
