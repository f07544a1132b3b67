"""Matches as positions of events, in Arrow. The results of every evaluator take this form before rows are gathered."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np
import pyarrow as pa

from cepheid.io.rows import Rows
from cepheid.pattern import Disj, EventClass, Iteration, Pattern, roles, subpatterns
from cepheid.runtime.kernel import Array, Positions

_BLOCK = 1 << 12
"""The number of matches that are transposed at once: they fit into the first cache of the processor."""


@dataclass(frozen=True, slots=True)
class MatchPositions:
    """Some matches as positions of their events. Each variable has a column: one position for each match (null for a
    branch not taken), or a list for a variable that binds many. `start` and `end` are times in ticks, `reasons` the
    numbers of the reasons of failed detections."""

    variables: Mapping[str, pa.Array]
    start: Array
    end: Array
    reasons: Array | None = None

    def chosen(self, which: Array) -> MatchPositions:
        """The matches for which this is true."""
        if bool(which.all()):
            return self
        at = pa.array(np.flatnonzero(which))
        reasons = None if self.reasons is None else self.reasons[which]
        variables = {var: column.take(at) for var, column in self.variables.items()}
        return MatchPositions(variables, self.start[which], self.end[which], reasons)

    def last_positions(self) -> Array:
        """The position of the last event of each match, of single events and of lists."""
        latest = np.full(len(self.end), -1, np.int64)
        for column in self.variables.values():
            if pa.types.is_list(column.type):
                numbers = np.repeat(np.arange(len(column)), np.asarray(column.value_lengths().fill_null(0)))
                np.maximum.at(latest, numbers, np.asarray(column.flatten(), np.int64))
            else:
                latest = np.maximum(latest, np.asarray(column.fill_null(-1), np.int64))
        return latest


@dataclass(frozen=True, slots=True)
class Binding:
    """How the variables of a query bind events. Those in `many` bind lists; those in `never_empty` bind lists of at
    least one event. A variable without events belongs to a branch not taken, and is null. The list of a closure that
    may be empty is null only if one of its `rivals` (the variables of the other branches) binds an event."""

    variables: tuple[str, ...]
    many: frozenset[str]
    never_empty: frozenset[str]
    rivals: Mapping[str, frozenset[str]]

    @classmethod
    def of(cls, pattern: Pattern) -> Binding:
        variables = {var: role for var, role in roles(pattern).items() if not role.negated}
        rivals: dict[str, frozenset[str]] = {}
        for node in _outside_iterations(pattern):
            if isinstance(node, Disj):
                branches = [frozenset(roles(item)) & variables.keys() for item in node.items]
                for branch in branches:
                    others = frozenset().union(*(other for other in branches if other is not branch))
                    for var in branch:
                        rivals[var] = rivals.get(var, frozenset()) | others
        return cls(
            tuple(variables),
            frozenset(var for var, role in variables.items() if role.binds_many),
            frozenset(var for var, role in variables.items() if role.kleene is not None and role.kleene.low > 0),
            rivals,
        )


def _outside_iterations(pattern: Pattern) -> list[Pattern]:
    """The nodes of a pattern, but for those inside EQL's iterations: there, the list of a branch not taken is empty."""
    found = [pattern]
    for node in found:
        found += () if isinstance(node, EventClass | Iteration) else subpatterns(node)
    return found


def position_columns(positions: Positions, binding: Binding) -> dict[str, pa.Array]:
    """The output of a kernel as one column for each variable, in the order of the pattern."""
    columns = _columns(positions, binding)
    return {var: columns[var] for var in binding.variables if var in columns}


def _columns(positions: Positions, binding: Binding) -> dict[str, pa.Array]:
    width = len(positions.steps)
    if positions.bounds is None:
        return dict(zip(positions.steps, map(pa.array, _transposed(positions.values.reshape(-1, width))), strict=True))
    columns: dict[str, pa.Array] = {}
    edges = {
        var: (positions.bounds[number:-1:width], positions.bounds[number + 1 :: width])
        for number, var in enumerate(positions.steps)
    }
    for var, (starts, ends) in edges.items():
        empty = starts == ends
        if var not in binding.many:
            values = positions.values[np.where(empty, 0, starts)] if len(positions.values) else positions.values
            columns[var] = pa.array(values, mask=empty if empty.any() else None)
            continue
        values = _events_of(positions.steps.index(var), positions.values, positions.bounds, width)
        if var not in binding.never_empty:
            of_rivals = [edges[rival] for rival in binding.rivals.get(var, ()) if rival in edges]
            empty = empty & np.logical_or.reduce([np.zeros(len(empty), bool), *(a != b for a, b in of_rivals)])
        mask = pa.array(empty) if empty.any() else None
        offsets = pa.array(np.concatenate([[0], np.cumsum(ends - starts)]), pa.int32())
        columns[var] = pa.ListArray.from_arrays(offsets, pa.array(values), mask=mask)
    return columns


def match_order(variables: Iterable[Sequence[int]]) -> tuple[list[int], list[int]]:
    """The last part of the order of matches, after their ends and starts: the positions of their events by variable,
    then the number of events of each variable, more first."""
    groups = list(variables)
    return [position for group in groups for position in group], [-len(group) for group in groups]


def _transposed(rows: Array) -> Array:
    """The transpose of the rows, block by block, so that no row is read from memory twice."""
    columns = np.empty(rows.shape[::-1], rows.dtype)
    for start in range(0, len(rows), _BLOCK):
        columns[:, start : start + _BLOCK] = rows[start : start + _BLOCK].T
    return columns


def _events_of(step: int, values: Array, bounds: Array, width: int) -> Array:
    """The events of one step, match by match. (Flags of a byte are faster than indices of eight.)"""
    is_step = np.zeros(len(bounds) - 1, bool)
    is_step[step::width] = True
    events: Array = values[bounds[0] : bounds[-1]][np.repeat(is_step, np.diff(bounds))]
    return events


def intervals(positions: Positions, rows: Rows) -> tuple[Array, Array]:
    """The earliest start and the latest end of the events of each match, EQL's timers among them."""
    first, last = first_and_last(positions)
    starts = rows.starts(positions.values)
    ends = rows.ticks(last) if positions.ends is None else positions.ends
    if starts is None:
        return rows.ticks(first), ends
    earliest, _ = first_and_last(replace(positions, values=starts))
    return earliest, ends


def first_and_last(positions: Positions) -> tuple[Array, Array]:
    """The positions of the earliest and the latest event of each match."""
    width = len(positions.steps)
    if not len(positions):
        return positions.values[:0], positions.values[:0]
    if positions.bounds is None:
        columns = positions.values.reshape(-1, width).T  # by column: ten times as fast as along the short rows
        return reduce(np.minimum, columns), reduce(np.maximum, columns)
    starts = positions.bounds[:-1:width]
    return np.minimum.reduceat(positions.values, starts), np.maximum.reduceat(positions.values, starts)
