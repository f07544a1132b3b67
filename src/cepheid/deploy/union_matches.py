"""The matches of a union of operators, each operator's by itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from cepheid.runtime.kernel import Array, Positions


def of_members(positions: Positions, steps: Sequence[tuple[str, ...]]) -> Iterator[tuple[int, Positions]]:
    """The matches of each operator of a union, whose first step is the number of the operator."""
    width = len(positions.steps)
    if not len(positions):
        return
    bounds = positions.bounds
    numbers = positions.values[0::width] if bounds is None else positions.values[bounds[:-1:width]]
    order = np.argsort(numbers, kind="stable")
    present, starts = np.unique(numbers[order], return_index=True)
    for number, chosen in zip(present.tolist(), np.split(order, starts[1:]), strict=True):
        own = steps[number]
        if bounds is None:
            yield number, Positions(own, positions.values.reshape(-1, width)[chosen, 1 : 1 + len(own)].ravel())
            continue
        begins = bounds[:-1].reshape(-1, width)[chosen, 1 : 1 + len(own)].ravel()
        ends = bounds[1:].reshape(-1, width)[chosen, 1 : 1 + len(own)].ravel()
        yield number, Positions(own, *_lists(positions.values, begins, ends))


def _lists(values: Array, begins: Array, ends: Array) -> tuple[Array, Array]:
    """Some ranges of values, one after the other, and their bounds."""
    bounds: Array = np.concatenate([[0], np.cumsum(ends - begins)])
    places = np.repeat(begins - bounds[:-1], ends - begins) + np.arange(bounds[-1])
    return values[places], bounds
