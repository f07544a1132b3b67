"""The complete history of the events that a query derives (NEXT §3.2): the time points of all events of a match.

The order is that of the events; a timer of EQL, which is no event, follows those that it waits after. A derived event
in a match contributes its own history.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from cepheid import pattern as pt
from cepheid.errors import NotAvailable
from cepheid.events import HISTORY
from cepheid.io.rows import RecentRows
from cepheid.pattern import Pattern
from cepheid.runtime.kernel import Array


class _Ends(NamedTuple):
    """The ends of the composite events of an operator, each with the number of its match."""

    match: Array
    time: Array


_NONE = _Ends(np.empty(0, np.int64), np.empty(0, np.int64))


def histories(columns: Mapping[str, pa.Array], rows: RecentRows, core: Pattern | None) -> pa.Array:
    """The history of each match as a list. `columns` are the positions of its events by variable, `core` the operators
    of EQL."""
    events: dict[str, _Ends] = {}
    matches, positions = [], []
    for var, column in columns.items():
        match, at = _flat(column)
        events[var] = _Ends(match, rows.ticks(at))
        matches.append(match)
        positions.append(at)
    at = np.concatenate(positions)
    timers: list[_Ends] = []
    if core is not None:
        _ends(core, events, timers, is_repeated=False)
    moments = np.concatenate([_NONE.time, *(timer.time for timer in timers)])
    match = np.concatenate([*matches, *(timer.match for timer in timers)])
    ends = np.concatenate([*(one.time for one in events.values()), moments])
    starts = rows.starts(at)
    starts = ends if starts is None else np.concatenate([starts, moments])
    lengths, points = np.full(len(ends), 2), np.empty(0, np.int64)
    if HISTORY in rows.names and len(at):
        inner = rows.take([HISTORY], pa.array(at)).column(HISTORY)
        own = np.asarray(inner.value_lengths().fill_null(0), np.int64)
        points = np.asarray(inner.flatten())
        lengths[: len(at)] = np.where(own > 0, own, 2)
    is_whole = np.zeros(len(ends), bool)
    if len(points):
        is_whole[: len(at)] = own > 0
    rank = np.concatenate([at, np.full(len(moments), np.iinfo(np.int64).max)])
    order = np.lexsort((rank, ends, match))
    offsets = np.empty(len(ends), np.int64)
    offsets[order] = np.cumsum(lengths[order]) - lengths[order]
    made = np.empty(int(lengths.sum()), np.int64)
    made[offsets[~is_whole]] = starts[~is_whole]
    made[offsets[~is_whole] + 1] = ends[~is_whole]
    sizes = lengths[is_whole]
    within = np.arange(len(points)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    made[np.repeat(offsets[is_whole], sizes) + within] = points
    totals = np.zeros(len(next(iter(columns.values()))) + 1, np.int64)
    np.add.at(totals, match + 1, lengths)
    return pa.ListArray.from_arrays(pa.array(np.cumsum(totals), pa.int32()), pa.array(made))


def require_timers(core: Pattern) -> None:
    """Raises NotAvailable if the events of a match do not determine when its timers fired."""
    variables = {node.var: _NONE for node in pt.walk(core) if isinstance(node, pt.EventClass)}
    _ends(core, variables, [], is_repeated=False)


def _flat(column: pa.Array) -> tuple[Array, Array]:
    """The number of the match and the position of each event of a variable."""
    if pa.types.is_list(column.type):
        lengths = np.asarray(column.value_lengths().fill_null(0), np.int64)
        return np.repeat(np.arange(len(column)), lengths), np.asarray(column.flatten())
    return np.flatnonzero(np.asarray(column.is_valid())), np.asarray(column.drop_null())


def _ends(pattern: Pattern, events: Mapping[str, _Ends], timers: list[_Ends], *, is_repeated: bool) -> _Ends | None:
    """The ends of an operator's composite events in each match, None if its events do not determine them. Adds the
    timers under it. `is_repeated`: it is inside an iteration."""
    match pattern:
        case pt.EventClass():
            return events[pattern.var]
        case pt.Disj():
            found = [_ends(item, events, timers, is_repeated=is_repeated) for item in pattern.items]
            known = [one for one in found if one is not None]
            if len(known) < len(found):
                return None
            return _Ends(np.concatenate([one.match for one in known]), np.concatenate([one.time for one in known]))
        case pt.Next():
            _ends(pattern.left, events, timers, is_repeated=is_repeated)
            return _ends(pattern.right, events, timers, is_repeated=is_repeated)
        case pt.Iteration():
            each = _ends(pattern.item, events, timers, is_repeated=True)
            if each is None or is_repeated:
                return None
            which, of = np.unique(each.match, return_inverse=True)
            last = np.full(len(which), np.iinfo(np.int64).min)
            np.maximum.at(last, of, each.time)
            return _Ends(which, last)
        case pt.Timer():
            ends = _ends(pattern.item, events, timers, is_repeated=is_repeated)
            if ends is None:
                raise NotAvailable(
                    "the history of an event with a timer after an iteration inside another one",
                    hint="let the timer follow a single event of the outer iteration",
                )
            fired = _Ends(ends.match, ends.time + int(pattern.delay.amount))
            timers.append(fired)
            return fired
        case pt.Filtered() | pt.Unless():
            return _ends(pattern.item, events, timers, is_repeated=is_repeated)
        case _:
            raise AssertionError(f"not a core operator: {type(pattern).__name__}")
