"""LIMIT: the first matches in the order of their ends, then starts, then events (see `match_order`)."""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from cepheid.engine.positions import Binding, intervals, match_order
from cepheid.engine.stepping import Stepper
from cepheid.io.rows import Rows
from cepheid.runtime.kernel import END_OF_TIME, Array, Positions

MOST_RIVALS = 200_000
"""The most matches beyond the limit that are sorted. One event may complete more matches than can be sorted; then
the first ones in detection order are output."""


Candidate = tuple[int, int, list[int], list[int], list[list[int]]]
"""End, start and `match_order` of a match, and the positions of the events of each step."""


@dataclass(slots=True)
class FirstMatches:
    """The candidates for LIMIT: at most `limit` matches, in order."""

    limit: int
    steps: tuple[str, ...]
    order: tuple[int, ...]
    """The steps in the order of the pattern's variables."""
    certain: list[Candidate] = field(default_factory=list)
    """The first candidates, which no later match precedes: they are not compared again."""
    waiting: list[Candidate] = field(default_factory=list)
    """The candidates after them, in order."""
    oldest_certain: int | None = None

    @classmethod
    def of(cls, limit: int, steps: tuple[str, ...], binding: Binding) -> FirstMatches:
        return cls(limit, steps, tuple(steps.index(var) for var in binding.variables if var in steps))

    def add(self, positions: Positions, start: Array, end: Array) -> None:
        new = candidates(positions, start, end, self.order)
        self.waiting = heapq.nsmallest(self.limit - len(self.certain), [*self.waiting, *new])

    def settled(self, before: int) -> bool:
        """Whether no later match, which ends at `before` or after it, can be among the first. Candidates that end
        earlier become certain."""
        count = bisect_left(self.waiting, before, key=lambda candidate: candidate[0])
        self.oldest_certain = _oldest(self.waiting[:count], self.oldest_certain)
        self.certain += self.waiting[:count]
        del self.waiting[:count]
        return len(self.certain) >= self.limit

    def oldest(self) -> int | None:
        return _oldest(self.waiting, self.oldest_certain)

    def positions(self) -> tuple[Positions, Array, Array]:
        return positions_of([*self.certain, *self.waiting], self.steps)


def _oldest(matches: Iterable[Candidate], oldest: int | None) -> int | None:
    """The position of the first event of the matches and before them."""
    firsts = [min(events) for _, _, events, _, _ in matches]
    return min(firsts if oldest is None else [*firsts, oldest], default=None)


def candidates(positions: Positions, start: Array, end: Array, order: Sequence[int]) -> list[Candidate]:
    """Matches with all that orders them. `order` has the steps in the order of the pattern's variables."""
    width = len(positions.steps)
    if positions.bounds is None:
        groups = [[[position] for position in row] for row in positions.values.reshape(-1, width).tolist()]
    else:
        bounds, values = positions.bounds.tolist(), positions.values.tolist()
        matches = range(0, len(bounds) - 1, width)
        groups = [[values[bounds[at + s] : bounds[at + s + 1]] for s in range(width)] for at in matches]
    orders = [match_order([group[step] for step in order]) for group in groups]
    return [(e, s, *own, g) for e, s, own, g in zip(end.tolist(), start.tolist(), orders, groups, strict=True)]


def positions_of(matches: Sequence[Candidate], steps: tuple[str, ...]) -> tuple[Positions, Array, Array]:
    """The matches with their starts and ends."""
    groups = [group for *_, of_steps in matches for group in of_steps]
    values, lengths = [position for group in groups for position in group], [len(group) for group in groups]
    bounds = np.concatenate([[0], np.cumsum(np.array(lengths, np.int64))]).astype(np.int64)
    start, end = (np.array([item[at] for item in matches], np.int64) for at in (1, 0))
    return Positions(steps, np.array(values, np.int64), bounds), start, end


def first_matches(
    stepper: Stepper, output: Iterable[Positions], limit: int, rows: Rows, first: FirstMatches
) -> tuple[Positions, Array, Array]:
    """The first `limit` matches of a kernel, with their starts and ends. Reads no more output of the kernel once they
    are certain. `rows` has the times of the events. `first` collects the candidates."""
    latest, seen = -END_OF_TIME, 0
    for positions in output:
        if len(positions):
            start, end = intervals(positions, rows)
            first.add(positions, start, end)
            latest, seen = int(end[-1]), seen + len(positions)
        if first.settled(stepper.later_matches_end_at(latest)) or (limit and seen > limit + MOST_RIVALS):
            break
    return first.positions()
