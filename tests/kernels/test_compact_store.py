"""The compact store held to a model: sets of sequences, groups, what leaves the window, and enumeration in order."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cepheid.kernels.any_runs.compact_store import (
    BEFORE,
    CURSOR_FIELDS,
    FIRST_ROW,
    GROUPS,
    LATEST,
    LEFT,
    LINK,
    LOWEST,
    MADE,
    MARK,
    NODE_VALUES,
    NODES,
    RANK,
    REGISTERS,
    RIGHT,
    ROW,
    SET,
    START,
    STEP,
    TIME,
    WORDS,
    enumerate_some,
    find_group,
    group_of,
    is_alive,
    next_linked,
    note_oldest,
    put,
    reachable,
    still_pending,
    tidied,
    with_item,
    with_match,
)
from cepheid.kernels.any_runs.match_order import matches_in_order
from cepheid.runtime.arrays import EMPTY, heap_pop, heap_push
from cepheid.runtime.jit import machine_code
from cepheid.runtime.kernel import OLDEST, VALUES

Array = np.ndarray
Events = tuple[int, ...]
STRIDE = NODE_VALUES
WORD_COUNT = 3
GROUP = WORDS + WORD_COUNT


@dataclass
class Store:
    """A store beside its model: the sequences of events of each group. An event's position is its place in the
    window's measure and its time, and all events are of one step."""

    nodes: Array = field(default_factory=lambda: np.empty(STRIDE, np.int64))
    groups: Array = field(default_factory=lambda: np.empty(GROUP, np.int64))
    heads: Array = field(default_factory=lambda: np.full(4, EMPTY, np.int64))
    registers: Array = field(default_factory=lambda: np.zeros(REGISTERS, np.int64))
    sequences: dict[int, list[Events]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.registers[FIRST_ROW] = -1

    def item(self, row: int, before: int) -> Array:
        item = np.zeros(STRIDE, np.int64)
        start = row if before == EMPTY else self.nodes[before * STRIDE + START]
        item[[ROW, STEP, BEFORE, START, TIME]] = row, 0, before, start, row
        return item

    def group(self, *words: int, indexed: int = 0) -> int:
        padded = np.zeros(GROUP, np.int64)
        padded[: len(words)] = words
        self.groups, self.heads, group = group_of(self.groups, self.heads, self.registers, padded, len(words), indexed)
        self.sequences.setdefault(group, [])
        return group

    def extend(self, group: int, row: int, source: int | None, floor: int) -> None:
        """Put an event into a group, after the sequences of another (None: as the first event)."""
        before = EMPTY if source is None else int(self.groups[source * GROUP + SET])
        item = self.item(row, before)
        self.nodes = put(self.nodes, self.groups, self.registers, GROUP, group, item, floor, row)
        before_it = [()] if source is None else self.alive(source, floor)
        longer = [(*events, row) for events in before_it]
        self.sequences[group] = self.alive(group, floor) + longer

    def alive(self, group: int, floor: int) -> list[Events]:
        return [events for events in self.sequences[group] if events[0] >= floor]

    def linked(self, words: Events, floor: int) -> list[int]:
        """The groups that an event with these words visits."""
        padded = np.zeros(GROUP, np.int64)
        padded[: len(words)] = words
        found: list[int] = []
        group = int(EMPTY)
        while True:
            chains = self.groups, self.heads, self.nodes, STRIDE
            group = next_linked(*chains, padded, len(words), group, floor)
            if group == EMPTY:
                return sorted(found)
            found.append(group)

    def chained(self) -> list[int]:
        """All groups in the chains by their first words."""
        found: list[int] = []
        for group in self.heads[len(self.heads) // 2 :].tolist():
            while group != EMPTY:
                found.append(group)
                group = int(self.groups[group * GROUP + LINK])
        return sorted(found)

    def first_word(self, group: int) -> int:
        return int(self.groups[group * GROUP + WORDS])

    def root(self, group: int) -> int:
        return int(self.groups[group * GROUP + SET])


def enumerated(nodes: Array, roots: Array, room: int, *, jit: bool = False) -> list[Events]:
    """All matches of some roots, so many at a time."""
    step = machine_code(enumerate_some) if jit else enumerate_some
    cursor, stack, path = np.zeros(CURSOR_FIELDS, np.int64), np.empty(96, np.int64), np.empty(1, np.int64)
    found: list[Events] = []
    while True:
        values, bounds = np.empty(2 * room, np.int64), np.zeros(room + 1, np.int64)
        stack, path, values, matches, written = step(nodes, STRIDE, roots, 1, cursor, stack, path, values, bounds)
        if matches == 0:
            return found
        limits = bounds[: matches + 1].tolist()
        assert limits[-1] == written
        found += [tuple(values[a:b].tolist()) for a, b in pairwise(limits)]


def random_store(rng: Random) -> tuple[Store, int]:
    """A store with some groups, and the floor of the window after its last event."""
    store, limit = Store(), rng.choice([3, 5, 100])
    groups = [store.group(number, indexed=0) for number in range(3)]
    row = 0
    for row in range(rng.randint(1, 10)):
        floor = row - limit
        for group in rng.sample(groups, rng.randint(1, 2)):
            sources = [g for g in groups if store.alive(g, floor) and len(store.alive(g, floor)) < 40]
            store.extend(group, row, rng.choice([None, *sources]), floor)
    return store, row - limit


@given(st.randoms(use_true_random=True), st.integers(1, 5))
def test_a_set_has_the_sequences_that_were_put_into_it(rng: Random, room: int) -> None:
    store, floor = random_store(rng)
    for group in store.sequences:
        root = store.root(group)
        assert is_alive(store.nodes, STRIDE, root, floor) == bool(store.alive(group, floor))
        if store.alive(group, floor):
            roots = np.array([root, floor], np.int64)
            assert sorted(enumerated(store.nodes, roots, room)) == sorted(store.alive(group, floor))


@given(st.lists(st.integers(0, 30), min_size=1, max_size=40), st.integers(0, 20))
def test_sets_are_leftist_heaps_by_start(starts: list[int], floor: int) -> None:
    """So one more item makes few nodes, whatever its start, and what has expired is left behind."""
    nodes, registers, root = np.empty(STRIDE, np.int64), np.zeros(REGISTERS, np.int64), EMPTY
    for row, start in enumerate(starts):
        item = np.zeros(STRIDE, np.int64)
        item[[ROW, BEFORE, START]] = row, EMPTY, start
        made = int(registers[MADE])
        nodes, root = with_item(nodes, registers, item, root, floor)
        assert registers[MADE] - made <= 1 + len(starts).bit_length()
    assert registers[NODES] == registers[MADE]
    table = nodes.reshape(-1, STRIDE)
    waiting, found = [root], []
    while waiting:
        node = table[waiting.pop()]
        found.append(int(node[START]))
        children = [int(child) for child in node[[LEFT, RIGHT]] if child != EMPTY]
        assert all(table[child, START] <= node[START] for child in children)
        ranks = [int(table[child, RANK]) if child != EMPTY else 0 for child in node[[LEFT, RIGHT]]]
        assert ranks[0] >= ranks[1] == node[RANK] - 1
        waiting += children
    assert sorted(s for s in found if s >= floor) == sorted(s for s in starts if s >= floor)


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(-3, 3), st.integers(0, 5)), max_size=60))
def test_groups_are_found_by_all_their_words_and_by_the_first(words: list[tuple[int, int, int]]) -> None:
    store = Store()
    numbers = {key: store.group(*key, indexed=2) for key in words}
    assert sorted(numbers.values()) == list(range(len(numbers)))
    assert [store.group(*key, indexed=2) for key in numbers] == list(numbers.values())
    padded = np.zeros(GROUP, np.int64)
    for key in [*numbers, (9, 9, 9)]:
        padded[:3] = key
        assert find_group(store.groups, store.heads, padded, 3) == numbers.get(key, EMPTY)
        assert store.linked(key[:2], LOWEST) == []  # they are empty
    for key, number in numbers.items():
        store.group(*key, indexed=2)
        store.extend(number, 0, None, LOWEST)
    for key in [*numbers, (9, 9, 9)]:
        assert store.linked(key[:2], LOWEST) == sorted(n for other, n in numbers.items() if other[:2] == key[:2])


@given(st.randoms(use_true_random=True))
def test_groups_whose_sequences_have_expired_leave_their_chain_until_they_get_another(rng: Random) -> None:
    """So an event visits them once, and not until the store is tidied."""
    store, limit, keys = Store(), rng.choice([1, 3, 100]), [(rng.randrange(2), n) for n in range(6)]
    for row in range(30):
        floor = row - limit
        if rng.random() < 0.5:
            key = rng.choice(keys)
            store.extend(store.group(*key, indexed=1), row, None, floor)
        first = rng.randrange(2)
        alive = [group for group in store.sequences if store.alive(group, floor) and store.first_word(group) == first]
        assert store.linked((first,), floor) == sorted(alive)
        assert [group for group in store.chained() if store.first_word(group) == first] == sorted(alive)


def tidy(store: Store, floor: int, limit: int, *, jit: bool = False) -> list[int]:
    """What is left of the groups after tidying: the new number of each."""
    function = machine_code(tidied) if jit else tidied
    layout = store.registers, STRIDE, GROUP
    nodes, groups, heads, moved = function(store.nodes, store.groups, *layout, floor, limit, False)
    store.nodes, store.groups, store.heads = nodes, groups, heads
    return [int(number) for number in moved]


def kept_what_is_alive(rng: Random, *, jit: bool = False) -> None:
    """In the window of the last event or, where windows count a partition's events, each group in that of its own."""
    store, floor = random_store(rng)
    before = int(store.registers[NODES])
    floors = dict.fromkeys(store.sequences, floor)
    if rng.random() < 0.5:
        limit = rng.choice([1, 2, 3])  # no longer than any window of `random_store`
        floors = {group: int(store.groups[group * GROUP + LATEST]) - limit for group in store.sequences}
        moved = tidy(store, LOWEST, limit, jit=jit)
    else:
        moved = tidy(store, floor, -1, jit=jit)
    alive = {group: store.alive(group, floors[group]) for group in store.sequences}
    assert [number != EMPTY for number in moved] == [bool(alive[group]) for group in sorted(alive)]
    assert store.registers[GROUPS] == sum(map(bool, alive.values()))
    assert store.registers[NODES] <= before
    for group, number in enumerate(moved):
        if number != EMPTY:
            roots = np.array([store.root(number), floors[group]], np.int64)
            assert sorted(enumerated(store.nodes, roots, 3, jit=jit)) == sorted(alive[group])
    rows = [row for sequences in alive.values() for events in sequences for row in events]
    assert store.registers[FIRST_ROW] == min(rows, default=-1)
    note_oldest(store.registers, 50)
    assert store.registers[OLDEST] == min(rows, default=50)


@given(st.randoms(use_true_random=True))
def test_tidying_keeps_what_is_alive_and_no_more(rng: Random) -> None:
    kept_what_is_alive(rng)


@pytest.mark.slow
def test_tidying_in_machine_code() -> None:
    for seed in range(30):
        kept_what_is_alive(Random(seed), jit=True)


def test_groups_that_count_events_have_windows_of_their_own() -> None:
    store = Store()
    quiet, busy = store.group(0), store.group(1)
    store.extend(quiet, 2, None, 0)
    store.extend(busy, 3, None, 0)
    store.groups[busy * GROUP + LATEST] = 9
    assert tidy(store, 0, 4) == [0, EMPTY]


def test_a_mark_is_kept_for_the_length_of_a_window() -> None:
    store = Store()
    for number, latest in enumerate([3, 8]):
        at = store.group(number) * GROUP
        store.groups[at + SET], store.groups[at + LATEST] = MARK, latest
    assert tidy(store, 5, -1) == [EMPTY, 0]
    assert store.root(0) == MARK


@given(st.randoms(use_true_random=True))
def test_matches_take_their_nodes_with_them(rng: Random) -> None:
    store, floor = random_store(rng)
    roots = [part for g in store.sequences if store.alive(g, floor) for part in (store.root(g), floor)]
    nodes = store.nodes[: store.registers[NODES] * STRIDE]
    kept, moved = reachable(nodes, STRIDE, np.array(roots, np.int64))
    assert len(kept) <= len(nodes)
    assert sorted(enumerated(kept, moved, 4)) == sorted(enumerated(nodes, np.array(roots, np.int64), 4))


@given(st.randoms(use_true_random=True))
def test_matches_come_in_order(rng: Random) -> None:
    """Of a root that stands for its own event alone, as those do that complete matches."""
    store, floor = random_store(rng)
    last = 50
    for group in [g for g in store.sequences if store.alive(g, floor)]:
        roots, registers = np.empty(1, np.int64), store.registers.copy()
        registers[VALUES] = 0
        nodes, roots = with_match(store.nodes, registers, roots, store.item(last, store.root(group)), floor)
        found = list(matches_in_order(nodes[: registers[NODES] * STRIDE], STRIDE, int(roots[0]), floor, 1))
        assert [rows for rows, _ in found] == sorted((*events, last) for events in store.alive(group, floor))
        assert all(counts == (len(rows),) for rows, counts in found)


def test_groups_on_the_heap_are_renumbered() -> None:
    times, items = np.zeros(4, np.int64), np.zeros(4, np.int64)
    for size, (time, group) in enumerate([(7, 0), (3, 1), (5, 2), (4, 3)]):
        heap_push(times, items, size, time, group)
    moved = np.array([0, EMPTY, 1, 2], np.int64)
    left = still_pending(times, items, 4, moved)
    assert [heap_pop(times, items, size) for size in range(left, 0, -1)] == [2, 1, 0]
