"""Matches as positions of events, in Arrow: what every evaluator's answer becomes before rows are gathered for it."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from cepheid.events import Event
from cepheid.kernels import Array, Positions
from cepheid.semantics import Match


@dataclass(frozen=True, slots=True)
class Found:
    """Some matches. For each variable a column of positions: one for each match (null for a branch not taken), or a
    list for a variable that binds many; and the ticks at which each match starts and ends."""

    variables: Mapping[str, pa.Array]
    start: Array
    end: Array


def position_columns(positions: Positions, many: Collection[str]) -> dict[str, pa.Array]:
    """The answer of a kernel as a column for each step."""
    width = len(positions.steps)
    columns: dict[str, pa.Array] = {}
    for number, var in enumerate(positions.steps):
        if positions.bounds is None:
            columns[var] = pa.array(np.ascontiguousarray(positions.values[number::width]))
            continue
        starts, ends = positions.bounds[number:-1:width], positions.bounds[number + 1 :: width]
        values = positions.values[_ranges(starts, ends - starts)]
        columns[var] = _listed(values, ends - starts) if var in many else pa.array(values)
    return columns


def _ranges(starts: Array, lengths: Array) -> Array:
    """starts[0], starts[0]+1, ... for lengths[0] numbers, then the same for the next."""
    before = np.cumsum(lengths) - lengths
    return np.repeat(starts - before, lengths) + np.arange(int(lengths.sum()))


def _listed(values: Array, lengths: Array) -> pa.ListArray:
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.array(values))


def first_and_last(positions: Positions) -> tuple[Array, Array]:
    """The positions of the earliest and the latest event of each match."""
    width = len(positions.steps)
    if not len(positions):
        return positions.values[:0], positions.values[:0]
    if positions.bounds is None:
        rows = positions.values.reshape(-1, width)
        return rows.min(axis=1), rows.max(axis=1)
    starts = positions.bounds[:-1:width]
    return np.minimum.reduceat(positions.values, starts), np.maximum.reduceat(positions.values, starts)


def from_matches(matches: Sequence[Match], variables: Sequence[str], many: Collection[str]) -> Found:
    """The oracle's answer: matches whose events are all of the input."""
    columns: dict[str, pa.Array] = {}
    for var in variables:
        bindings = [match.bindings.get(var) for match in matches]
        wanted = pa.list_(pa.int64()) if var in many else pa.int64()
        columns[var] = pa.array([_position(binding) for binding in bindings], wanted)
    start, end = (np.array([getattr(m, name) for m in matches], np.int64) for name in ("start", "end"))
    return Found(columns, start, end)


def _position(binding: Event | tuple[Event, ...] | None) -> int | list[int] | None:
    if isinstance(binding, tuple):
        return [event.position for event in binding]
    return None if binding is None else binding.position


def bindings_of(positions: Positions, many: Collection[str]) -> Iterator[dict[str, int | tuple[int, ...]]]:
    """The matches one by one, each variable with its position or positions."""
    columns = {var: column.to_pylist() for var, column in position_columns(positions, many).items()}
    for number in range(len(positions)):
        yield {var: tuple(values[number]) if var in many else values[number] for var, values in columns.items()}


# --- LIMIT ------------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class FirstMatches:
    """The matches that LIMIT keeps: ordered by end, then by start, then by the positions of their events. No more are
    held than can still be among them."""

    limit: int
    steps: tuple[str, ...]
    held: list[tuple[int, int, tuple[int, ...], tuple[int, ...]]] = field(default_factory=list)
    """End, start, positions of all events, and how many of them each step has."""

    def add(self, positions: Positions, start: Array, end: Array) -> None:
        width = len(self.steps)
        if positions.bounds is None:
            events = [tuple(row) for row in positions.values.reshape(-1, width).tolist()]
            lengths = [(1,) * width] * len(events)
        else:
            bounds, values = positions.bounds.tolist(), positions.values.tolist()
            edges = range(0, len(bounds) - 1, width)
            events = [tuple(values[bounds[at] : bounds[at + width]]) for at in edges]
            lengths = [tuple(bounds[at + s + 1] - bounds[at + s] for s in range(width)) for at in edges]
        new = zip(end.tolist(), start.tolist(), events, lengths, strict=True)
        self.held = heapq.nsmallest(self.limit, [*self.held, *new])

    def settled(self, before: int) -> bool:
        """Whether later matches, which end at `before` or after it, come too late."""
        return len(self.held) >= self.limit and (not self.held or self.held[-1][0] < before)

    def oldest(self) -> int | None:
        return min((min(events) for _, _, events, _ in self.held), default=None)

    def positions(self) -> tuple[Positions, Array, Array]:
        values = [position for _, _, events, _ in self.held for position in events]
        lengths = [length for *_, counts in self.held for length in counts]
        bounds = np.concatenate([[0], np.cumsum(np.array(lengths, np.int64))]).astype(np.int64)
        start, end = (np.array([item[at] for item in self.held], np.int64) for at in (1, 0))
        return Positions(self.steps, np.array(values, np.int64), bounds), start, end
