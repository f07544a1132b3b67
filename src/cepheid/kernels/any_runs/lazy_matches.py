"""A kernel whose matches stay in the compact store until they are requested.

A step returns only the *roots* of the matches that became certain. They can be enumerated in chunks of bounded size,
counted without enumeration, or returned compressed.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from cepheid.errors import TooManyMatches
from cepheid.kernels.any_runs import compact_store as store
from cepheid.kernels.any_runs.match_order import earliest_matches, matches_in_order
from cepheid.kernels.any_runs.match_summary import NO_SUMMARY, Summary
from cepheid.runtime.jit import machine_code
from cepheid.runtime.kernel import (
    COUNTERS,
    END_OF_TIME,
    NO_CODES,
    VALUES,
    Array,
    Batch,
    Codes,
    Kernel,
    Positions,
    State,
)

F = TypeVar("F", bound=Callable[..., Any])

SLICE = 1 << 14
"""How many events are processed between two checks for expired nodes."""
CHUNK = 1 << 16
"""The most matches in a chunk."""
_SMALL_CHUNK = 64
_FEW = 2_000
"""The number of nodes or matches up to which plain Python is as fast as loading machine code."""
_interpreted: dict[Callable[..., Any], int] = {}
"""How many of them each function has processed in plain Python."""
_MATCHES, _PEAK = COUNTERS.index("matches"), COUNTERS.index("peak_retained")
_NODES_ARRAY, _GROUPS_ARRAY, _HEADS_ARRAY, _NEGATIVES_ARRAY = range(1, 5)
_TIMES_ARRAY, _ITEMS_ARRAY, _TOTALS_ARRAY, _ORDER_ARRAY, _UNFOLDED_ARRAY = range(5, 10)
"""The arrays of the state, after the registers. The last one holds the roots whose matches the totals lack, after their
number."""


def _order(match: tuple[tuple[int, ...], tuple[int, ...]]) -> tuple[tuple[int, ...], list[int]]:
    """By positions, then by the number of events of each step, more first."""
    return match[0], [-count for count in match[1]]


@dataclass(frozen=True, slots=True)
class Compressed:
    """Matches in the form of the compact store (see `compact_store`), whose size does not grow with their number:
    `nodes` has a row for each node, and each of the `roots` is a node with the start from which on its sequences are
    matches."""

    steps: tuple[str, ...]
    nodes: Array
    roots: Array
    has_bounds: bool

    def decompressed(self, chunk: int = CHUNK) -> Iterator[Positions]:
        """The matches, chunk by chunk."""
        stride = self.nodes.shape[1]
        yield from _enumerated(self.nodes.ravel(), stride, self.roots.ravel(), self.steps, self.has_bounds, chunk)


@dataclass(frozen=True, slots=True)
class LazyKernel(Kernel):
    """The layout of the store: the length of nodes, groups and negative events, whether events of one time are not in
    sequence (`by_time`), whether sequences that start before the window expire (`expires`), whether the window counts
    positions in partitions (`places`), and whether matches wait for a trailing negation."""

    summary: Summary = NO_SUMMARY
    node_stride: int = 0
    group_stride: int = 0
    negative_stride: int = 0
    by_time: bool = False
    expires: bool = False
    places: bool = False
    waits: bool = False
    earliest_only: bool = False
    """Whether, of the matches with the same first and last event, only the one whose events come earliest is output."""

    def step(self, state: State, batch: Batch) -> tuple[State, Positions]:
        state, chunks = self.step_lazily(state, batch)
        return state, self._joined(chunks)

    def advance(self, state: State, time: int, codes: Codes = NO_CODES) -> tuple[State, Positions]:
        state, chunks = self.advance_lazily(state, time, codes)
        return state, self._joined(chunks)

    def step_lazily(self, state: State, batch: Batch) -> tuple[State, Iterator[Positions]]:
        """The state after a batch, and its matches. They are enumerated, and counted in the state, on request."""
        parts = []
        for start in range(0, max(1, len(batch)), SLICE):
            piece = batch.cut(start, min(start + SLICE, len(batch)))
            state, found = self._stepped(state, piece, int(piece.time[0]) if len(piece) else -END_OF_TIME)
            parts.append(found)
        return state, self._chunks(parts, state[0])

    def consumed(self, state: State, batch: Batch) -> int:
        return len(batch)

    def advance_lazily(self, state: State, time: int, codes: Codes = NO_CODES) -> tuple[State, Iterator[Positions]]:
        state, found = self._stepped(state, self.no_events(0, codes), min(time + 1, END_OF_TIME))
        return state, self._chunks([found], state[0])

    def step_compressed(self, state: State, batch: Batch) -> tuple[State, Compressed]:
        """The state after a batch, and its matches in the form of the store."""
        return self._compressed(*self._stepped(state, batch, int(batch.time[0]) if len(batch) else -END_OF_TIME))

    def advance_compressed(self, state: State, time: int, codes: Codes = NO_CODES) -> tuple[State, Compressed]:
        return self._compressed(*self._stepped(state, self.no_events(0, codes), min(time + 1, END_OF_TIME)))

    def _compressed(self, state: State, matches: tuple[Array, Array]) -> tuple[State, Compressed]:
        nodes, roots = matches
        kept, kept_roots = _fast(store.reachable, len(nodes) // self.node_stride)(nodes, self.node_stride, roots)
        table = kept.reshape(-1, self.node_stride)
        return state, Compressed(self.steps, table, kept_roots.reshape(-1, 2), self.has_bounds)

    def totals(self, state: State) -> Array:
        """The totals of all matches so far, which `summary` reads."""
        return self._folded(state, state[_NODES_ARRAY][: state[0][store.NODES] * self.node_stride])

    def _folded(self, arrays: Sequence[Array], nodes: Array) -> Array:
        """The totals with all matches so far."""
        totals, order, unfolded = arrays[_TOTALS_ARRAY], arrays[_ORDER_ARRAY], arrays[_UNFOLDED_ARRAY]
        roots = unfolded[1 : 1 + unfolded[0]]
        return self.summary.added(totals, nodes, self.node_stride, roots, order) if len(roots) else totals

    # --- roots --------------------------------------------------------------------------------------------------------

    def _stepped(self, state: State, batch: Batch, now: int) -> tuple[State, tuple[Array, Array]]:
        """The state after a batch, and the nodes and roots of its matches. Later steps do not change them: the store
        only adds nodes, or moves to new arrays."""
        registers = state[0]
        registers[VALUES] = 0
        *arrays, roots, _ = self.call(state, batch, now, np.empty(64, np.int64), np.empty(1, np.int64))
        nodes, roots = arrays[_NODES_ARRAY][: registers[store.NODES] * self.node_stride], roots[: registers[VALUES]]
        registers[_PEAK] = max(registers[_PEAK], registers[store.NODES])
        if self.summary.compares_texts and len(batch):
            arrays[_ORDER_ARRAY] = batch.ranks.copy()
        if self.summary.asked and len(roots):
            arrays[_UNFOLDED_ARRAY] = _with_roots(arrays[_UNFOLDED_ARRAY], roots)
        if len(batch):
            self._tidy(arrays, int(batch.measure[-1]))
            store.note_oldest(registers, batch.first + len(batch))
        return tuple(arrays), (nodes, roots)

    def _tidy(self, arrays: list[Array], measure: int) -> None:
        """Compacts the store without the nodes that have left the window. It waits until the store has doubled (or half
        a window has passed), so the amortized cost of a node is constant. A summary is folded before that, all roots in
        one pass: without a window, they share all that they are made of."""
        registers = arrays[0]
        used, limit = int(registers[store.NODES]), int(self.integers[0])
        expires = self.expires and not self.places
        is_due = expires and used + registers[store.GROUPS] > 0 and 2 * (measure - registers[store.TIDIED]) > limit
        if not is_due and used <= 2 * registers[store.KEPT] + _FEW:
            return
        if self.summary.asked:
            arrays[_TOTALS_ARRAY] = self._folded(arrays, arrays[_NODES_ARRAY][: used * self.node_stride])
            arrays[_UNFOLDED_ARRAY] = np.zeros(1, np.int64)
        floor = measure - limit if expires else store.LOWEST
        nodes, groups, heads, moved = _fast(store.tidied, used)(
            arrays[_NODES_ARRAY],
            arrays[_GROUPS_ARRAY],
            registers,
            self.node_stride,
            self.group_stride,
            floor,
            limit if self.places else -1,
            self.by_time,
        )
        arrays[_NODES_ARRAY], arrays[_GROUPS_ARRAY], arrays[_HEADS_ARRAY] = nodes, groups, heads
        pending = int(registers[store.PENDING])
        registers[store.PENDING] = _fast(store.still_pending, pending)(
            arrays[_TIMES_ARRAY], arrays[_ITEMS_ARRAY], pending, moved
        )
        negatives = arrays[_NEGATIVES_ARRAY][: registers[store.NEGATIVES] * self.negative_stride]
        if len(negatives):
            recent = negatives.reshape(-1, self.negative_stride)
            recent = recent[recent[:, 2] >= floor]
            registers[store.NEGATIVES] = len(recent)
            arrays[_NEGATIVES_ARRAY] = np.append(recent.ravel(), np.zeros(1, np.int64))
        registers[store.TIDIED] = measure

    # --- matches ------------------------------------------------------------------------------------------------------

    def _chunks(self, parts: list[tuple[Array, Array]], registers: Array) -> Iterator[Positions]:
        if self.summary.asked:
            return
        if self.earliest_only:
            for nodes, roots in parts:
                positions = self._earliest(nodes, roots)
                registers[_MATCHES] += len(positions)
                yield positions
            return
        if self.plan.query.limit is not None and not self.plan.has_durations:
            yield from self._first(parts, registers, self.plan.query.limit)
            return
        for nodes, roots in parts:
            already = int(registers[_MATCHES])
            most = self.plan.max_matches
            layout = self.node_stride, roots, self.steps, self.has_bounds
            for positions in _enumerated(nodes, *layout, CHUNK, already, most):
                registers[_MATCHES] += len(positions)
                yield positions

    def _earliest(self, nodes: Array, roots: Array) -> Positions:
        items = dict.fromkeys(_items(nodes.reshape(-1, self.node_stride), roots))
        found = [
            group
            for item, floor in items
            for match in earliest_matches(nodes, self.node_stride, item, floor, len(self.steps))
            for group in match
        ]
        bounds = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.array([len(g) for g in found], np.int64))])
        return Positions(self.steps, np.array([row for group in found for row in group], np.int64), bounds)

    def _first(self, parts: list[tuple[Array, Array]], registers: Array, limit: int) -> Iterator[Positions]:
        """The first matches in the order of LIMIT: of the matches that end at one time no more than LIMIT allows, and
        none once enough end earlier. (Matches that waited for a trailing negation come in no order.)"""
        for nodes, roots in parts:
            table = nodes.reshape(-1, self.node_stride)
            items = [(int(table[item, store.TIME]), item, floor) for item, floor in _items(table, roots)]
            for end, group in itertools.groupby(sorted(items), key=lambda item: item[0]):
                if end != registers[store.LAST_END]:
                    registers[store.ENDED_EARLIER] += registers[store.ENDED_LAST]
                    registers[store.LAST_END], registers[store.ENDED_LAST] = end, 0
                wanted = limit if self.waits else limit - int(registers[store.ENDED_EARLIER])
                if wanted <= 0:
                    return
                streams = [
                    matches_in_order(nodes, self.node_stride, item, floor, len(self.steps)) for _, item, floor in group
                ]
                found = list(itertools.islice(heapq.merge(*streams, key=_order), wanted))
                registers[store.ENDED_LAST] += len(found)
                registers[_MATCHES] += len(found)
                values = [row for rows, _ in found for row in rows]
                lengths = [length for _, counts in found for length in counts]
                bounds = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.array(lengths, np.int64))])
                yield Positions(self.steps, np.array(values, np.int64), bounds if self.has_bounds else None)

    def _joined(self, chunks: Iterable[Positions]) -> Positions:
        found = [
            Positions(self.steps, np.empty(0, np.int64), np.zeros(1, np.int64) if self.has_bounds else None),
            *chunks,
        ]
        if len(found) == 2:
            return found[1]
        values = np.concatenate([positions.values for positions in found])
        if not self.has_bounds:
            return Positions(self.steps, values)
        shifts = np.cumsum([0, *(len(positions.values) for positions in found[:-1])])
        limits = [p.bounds[1:] + shift for p, shift in zip(found, shifts, strict=True) if p.bounds is not None]
        return Positions(self.steps, values, np.concatenate([np.zeros(1, np.int64), *limits]))


def _enumerated(
    nodes: Array,
    stride: int,
    roots: Array,
    steps: tuple[str, ...],
    has_bounds: bool,
    chunk: int,
    already: int = 0,
    most: int | None = None,
) -> Iterator[Positions]:
    """The matches of some roots, in chunks that grow; `already` matches were enumerated before. A root with more than
    `most` matches is an error, which is raised after at most three times as many."""
    width, of_root = len(steps), 0
    chunk = chunk if most is None else min(chunk, most)
    cursor, stack, path = np.zeros(store.CURSOR_FIELDS, np.int64), np.empty(96, np.int64), np.empty(32, np.int64)
    size = min(max(_SMALL_CHUNK, len(roots)), chunk)
    while True:
        values, bounds = np.empty(8 * size * width, np.int64), np.zeros(size * width + 1, np.int64)
        root = int(cursor[store.CURSOR_ROOT])
        stack, path, values, matches, written = _fast(store.enumerate_some, already)(
            nodes, stride, roots, width, cursor, stack, path, values, bounds
        )
        if matches == 0:
            return
        of_root = of_root + matches if cursor[store.CURSOR_ROOT] == root else 0
        if most is not None and of_root > most:
            raise TooManyMatches(most, int(nodes[roots[2 * (root - 1)] * stride + store.ROW]))
        yield Positions(steps, values[:written], bounds[: matches * width + 1] if has_bounds else None)
        already += matches
        size = min(4 * size, chunk)


def _items(table: Array, roots: Array) -> Iterator[tuple[int, int]]:
    """The last events of the matches of some roots, as nodes that stand for their own event alone, each with the start
    from which on its sequences are matches."""
    for root, floor in roots.reshape(-1, 2).tolist():
        waiting = [root]
        while waiting:
            item = waiting.pop()
            yield item, floor
            children = (int(table[item, pointer]) for pointer in (store.LEFT, store.RIGHT))
            waiting.extend(child for child in children if child >= 0 and table[child, store.START] >= floor)


def _with_roots(unfolded: Array, roots: Array) -> Array:
    """The roots to fold with some more, after their number."""
    used = int(unfolded[0])
    if 1 + used + len(roots) > len(unfolded):
        unfolded = np.append(unfolded, np.zeros(max(len(unfolded), len(roots)), np.int64))
    unfolded[1 + used : 1 + used + len(roots)] = roots
    unfolded[0] += len(roots)
    return unfolded


def _fast(function: F, amount: int) -> F:
    _interpreted[function] = _interpreted.get(function, 0) + amount
    return machine_code(function) if _interpreted[function] > _FEW else function
