"""The kernel of the successor evaluator: its matches may end with a timer, and large output comes in parts."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from cepheid.errors import TooManyInstances, TooManyMatches
from cepheid.runtime.kernel import Array, Batch, Kernel, Positions, State

MOST_INSTANCES = 20_000_000
"""The most instances of one operator that may wait: some gigabytes."""


@dataclass(frozen=True, slots=True)
class SuccessorKernel(Kernel):
    """A kernel whose matches may end with a timer, later than their last event."""

    is_timed: bool = False
    """Whether each match is followed by its end."""
    shows_failures: bool = False
    """Whether the output are failed detections, each followed by its end and the number of its reason."""
    failures: int = 0
    """The register that counts failed detections."""

    crowd: int = 0
    """The register with the number of an operator, from 1 on, that has too many instances."""
    taken: int = 0
    """The register that counts the events that the last step has taken."""
    pattern: str = ""
    """The operators, for error texts."""

    def _call(self, state: State, batch: Batch, now: int) -> tuple[State, Positions]:
        state, positions = Kernel._call(self, state, batch, now)
        if self.shows_failures:
            positions = _with_reasons(positions)
        return state, _with_ends(positions) if self.is_timed else positions

    def too_many(self, registers: Array, row: int) -> TooManyMatches:
        if registers[self.crowd]:
            return TooManyInstances(MOST_INSTANCES, row, self.operators[int(registers[self.crowd]) - 1].operator)
        return TooManyMatches(self.plan.max_matches or 0, row, self.pattern if self.has_bounds else None)

    def require_few_matches(self, positions: Positions) -> None:
        """The function counts the matches of an event itself: one that ends with a timer has no last event."""

    def consumed(self, state: State, batch: Batch) -> int:
        return int(state[0][self.taken])


def _with_ends(positions: Positions) -> Positions:
    """The ends of matches apart from the positions of their events."""
    width = len(positions.steps) + 1
    if positions.bounds is None:
        rows = positions.values.reshape(-1, width)
        return Positions(positions.steps, np.ascontiguousarray(rows[:, :-1]).ravel(), None, rows[:, -1].copy())
    values, bounds, ends = _without_last(positions, width)
    return replace(positions, values=values, bounds=bounds, ends=ends)


def _with_reasons(positions: Positions) -> Positions:
    """The reasons of failed detections apart from their events and ends."""
    values, bounds, numbers = _without_last(positions, len(positions.steps) + 2)
    return replace(positions, values=values, bounds=bounds, reasons=numbers)


def _without_last(positions: Positions, width: int) -> tuple[Array, Array, Array]:
    """The values and bounds without the last of `width` steps, which has one value, and its values."""
    assert positions.bounds is not None
    bounds = positions.bounds
    at = bounds[width - 1 : -1 : width]
    kept = np.ones(len(positions.values), bool)
    kept[at] = False
    count = np.arange(len(at))
    starts = bounds[:-1].reshape(-1, width)[:, :-1] - count[:, None] if len(at) else np.empty((0, width - 1), np.int64)
    last = np.array([len(positions.values) - len(at)], np.int64)
    return positions.values[kept], np.concatenate([starts.ravel(), last]), positions.values[at]


def failed_detections(kernel: Kernel, state: State) -> int:
    """How many instances an exception or θ has discarded."""
    return int(state[0][kernel.failures]) if isinstance(kernel, SuccessorKernel) else 0
