"""LIMIT: the first matches in the order of their ends, then starts, then positions of their events."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np

from cepheid.engine.positions import first_and_last
from cepheid.engine.stepping import Stepper
from cepheid.runtime.kernel import END_OF_TIME, Array, Positions

MOST_RIVALS = 200_000
"""The most matches beyond the limit that are sorted. One event may complete more matches than can be sorted; then
the first ones in detection order are output."""


@dataclass(slots=True)
class FirstMatches:
    """The candidates for LIMIT: at most `limit` matches, in order."""

    limit: int
    steps: tuple[str, ...]
    best: list[tuple[int, int, tuple[int, ...], tuple[int, ...]]] = field(default_factory=list)
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
        self.best = heapq.nsmallest(self.limit, [*self.best, *new])

    def settled(self, before: int) -> bool:
        """Whether no later match, which ends at `before` or after it, can be among the first."""
        return len(self.best) >= self.limit and (not self.best or self.best[-1][0] < before)

    def oldest(self) -> int | None:
        return min((min(events) for _, _, events, _ in self.best), default=None)

    def positions(self) -> tuple[Positions, Array, Array]:
        values = [position for _, _, events, _ in self.best for position in events]
        lengths = [length for *_, counts in self.best for length in counts]
        bounds = np.concatenate([[0], np.cumsum(np.array(lengths, np.int64))]).astype(np.int64)
        start, end = (np.array([item[at] for item in self.best], np.int64) for at in (1, 0))
        return Positions(self.steps, np.array(values, np.int64), bounds), start, end


def first_matches(
    stepper: Stepper,
    output: Iterable[Positions],
    limit: int,
    ticks: Callable[[Array], Array],
    first: FirstMatches | None = None,
) -> tuple[Positions, Array, Array]:
    """The first `limit` matches of a kernel, with their starts and ends. Reads no more output of the kernel once they
    are certain. `ticks` returns the times of positions. A caller that reads intermediate candidates passes `first`."""
    first = FirstMatches(limit, stepper.kernel.steps) if first is None else first
    latest, seen = -END_OF_TIME, 0
    for positions in output:
        if len(positions):
            start, end = (ticks(at) for at in first_and_last(positions))
            first.add(positions, start, end)
            latest, seen = int(end[-1]), seen + len(positions)
        if first.settled(stepper.later_matches_end_at(latest)) or (limit and seen > limit + MOST_RIVALS):
            break
    return first.positions()
