"""The matches of a root in the order of their events' positions, which is the order of LIMIT.

The store leads from the last event of a match back to its first, but the order begins with the first. So the pointers
are reversed, once for each root. The matches are then the paths from the nodes without predecessor to the root, and a
depth-first search that tries later events in order yields them in order, each in time linear in its length. The search
is lazy.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from cepheid.kernels.any_runs.compact_store import BEFORE, LEFT, RIGHT, ROW, START, STEP
from cepheid.runtime.arrays import EMPTY

Array = np.ndarray
Counts = tuple[int, ...]
"""How many events each step has."""
Frontier = Mapping[int, frozenset[Counts]]
"""The nodes that the events chosen so far may lead to, with the counts of their steps."""


def matches_in_order(
    nodes: Array, stride: int, root: int, floor: int, steps: int
) -> Iterator[tuple[tuple[int, ...], Counts]]:
    """The positions of each match that ends with the root's own event, and how many of them each step has."""
    forward = _Forward.of(nodes.reshape(-1, stride), root, floor)
    path: list[int] = []
    none = (0,) * steps
    choices = [forward.beginnings(none)]
    while choices:
        found = next(choices[-1], None)
        if found is None:
            choices.pop()
            if path:
                path.pop()
            continue
        row, frontier = found
        for counts in sorted(frontier.get(root, ()), reverse=True):
            yield (*path, row), counts
        path.append(row)
        choices.append(forward.following({node: counts for node, counts in frontier.items() if node != root}))


def earliest_matches(nodes: Array, stride: int, root: int, floor: int, steps: int) -> Iterator[list[list[int]]]:
    """Of the matches that end with the root's own event, for each event that they start with the one whose events come
    earliest: the positions of its events by step."""
    forward = _Forward.of(nodes.reshape(-1, stride), root, floor)
    beginnings = [(forward.row[node], node) for node in forward.first]
    for _, same in itertools.groupby(beginnings, key=lambda item: item[0]):
        found: list[list[int]] = [[] for _ in range(steps)]
        frontier = forward.earliest(iter(list(same)))
        while True:
            node = frontier[0]
            found[forward.step[node]].append(forward.row[node])
            if root in frontier:
                break
            ahead = heapq.merge(*(forward.after_node(each, frozenset()) for each in frontier))
            frontier = forward.earliest((row, node) for row, node, _ in ahead)
        yield found


@dataclass(frozen=True, slots=True)
class _Forward:
    """The nodes of a store that lead to a root, with reversed pointers."""

    row: Mapping[int, int]
    step: Mapping[int, int]
    first: list[int]
    after: Mapping[int, list[int]]
    """The nodes whose events come after those of a set, in order."""
    above: Mapping[int, list[int]]
    """The nodes whose sets a node is part of, in the order of what is next after them."""
    next_row: Mapping[int, int]
    """The first event that comes after those of a set, or of a set that it is part of."""

    @classmethod
    def of(cls, table: Array, root: int, floor: int) -> _Forward:
        row, step = {}, {}
        first: list[int] = []
        after: dict[int, list[int]] = {}
        above: dict[int, list[int]] = {}
        waiting = [root]
        while waiting:
            node = waiting.pop()
            fields = table[node].tolist()
            row[node], step[node] = fields[ROW], fields[STEP]
            if fields[BEFORE] == EMPTY:
                first.append(node)
            # The root stands for its own event alone, not for the set of which it is the head.
            pointers = [(BEFORE, after)] if node == root else [(BEFORE, after), (LEFT, above), (RIGHT, above)]
            for pointer, reversed_ in pointers:
                child = fields[pointer]
                if child >= 0 and table[child, START] >= floor:
                    reversed_.setdefault(child, []).append(node)
                    if child not in row:
                        row[child] = EMPTY
                        waiting.append(child)
        next_row: dict[int, int] = {}
        for node in sorted(row, reverse=True):
            after.setdefault(node, []).sort(key=row.__getitem__)
            parents = above.setdefault(node, [])
            parents.sort(key=next_row.__getitem__)
            ahead = [row[n] for n in after[node][:1]] + [next_row[n] for n in parents[:1]]
            if ahead:
                next_row[node] = min(ahead)
        first.sort(key=row.__getitem__)
        return cls(row, step, first, after, above, next_row)

    def beginnings(self, none: Counts) -> Iterator[tuple[int, Frontier]]:
        return self._by_row(iter([(self.row[node], node, frozenset([none])) for node in self.first]))

    def following(self, frontier: Frontier) -> Iterator[tuple[int, Frontier]]:
        """The events that may come next, in order, each with its frontier."""
        return self._by_row(heapq.merge(*(self.after_node(node, counts) for node, counts in frontier.items())))

    def earliest(self, found: Iterator[tuple[int, int]]) -> list[int]:
        """Of nodes in the order of their events, those for the first event and the first step that it can have."""
        (_, same) = next(itertools.groupby(found, key=lambda item: item[0]))
        nodes = [node for _, node in same]
        step = min(self.step[node] for node in nodes)
        return list(dict.fromkeys(node for node in nodes if self.step[node] == step))

    def after_node(self, node: int, counts: frozenset[Counts]) -> Iterator[tuple[int, int, frozenset[Counts]]]:
        """The events after the sets that a node is part of. One path leads to a set: a node is in it at most once."""
        waiting = [(self.next_row[node], node, 0, 0)] if node in self.next_row else []
        while waiting:
            _, at, position, parent = heapq.heappop(waiting)
            after, above = self.after[at], self.above[at]
            here = self.row[after[position]] if position < len(after) else None
            there = self.next_row[above[parent]] if parent < len(above) else None
            if here is not None and (there is None or here <= there):
                yield here, after[position], counts
                position += 1
            elif there is not None:
                heapq.heappush(waiting, (there, above[parent], 0, 0))
                parent += 1
            ahead = [self.row[n] for n in after[position : position + 1]]
            ahead += [self.next_row[n] for n in above[parent : parent + 1]]
            if ahead:
                heapq.heappush(waiting, (min(ahead), at, position, parent))

    def _by_row(self, found: Iterator[tuple[int, int, frozenset[Counts]]]) -> Iterator[tuple[int, Frontier]]:
        row = EMPTY
        frontier: dict[int, frozenset[Counts]] = {}
        for next_row, node, counts in found:
            if next_row != row and frontier:
                yield row, frontier
                frontier = {}
            row = next_row
            step = self.step[node]
            counted = frozenset((*c[:step], c[step] + 1, *c[step + 1 :]) for c in counts)
            frontier[node] = frontier.get(node, frozenset()) | counted
        if frontier:
            yield row, frontier
