"""The helpers of the runs evaluator, each held to a model: the index of run lists, the match buffer, and reclaiming."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from random import Random
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cepheid.codegen.compile import compiled
from cepheid.kernels.runs import backtrack, run_store, variables
from cepheid.kernels.runs.run_store import (
    ALT,
    ALWAYS,
    BEFORE,
    BEGAN,
    FLOOR,
    FOUND_SIZE,
    NEXT,
    NODE,
    NODE_SIZE,
    PREV,
    RUN_SIZE,
    STEP,
    UNION,
    UNREACHED,
    add_node,
    add_union,
    compact,
    forward_runs,
    forward_waiting,
    join,
    mark_waiting,
    met_before,
    precedes,
    rehashed_index,
    release,
    slot_in,
    sweep,
    write_matches,
)
from cepheid.kernels.runs.variables import Field, Row
from cepheid.runtime.arrays import EMPTY, first_slot, mixed_key

Array = np.ndarray
Events = tuple[int, ...]

# --- the index --------------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(-40, 40), max_size=30), st.integers(0, 9))
def test_an_index_finds_the_keys_that_have_runs(keys: list[int], room: int) -> None:
    """Slots of a key, the number of its runs, and the heads of two lists; an index that is rebuilt drops empty ones."""
    stride, index = 4, np.full(16 * 4, EMPTY, np.int64)
    runs: dict[int, int] = {}
    for key in keys:
        if 2 * (len(runs) + 1) > len(index) // stride:
            index, _, _ = rehashed_index(index, stride, 1, 1)
            runs = {key: count for key, count in runs.items() if count}
        at = slot_in(index, stride, len(index) // stride, key)
        if index[at + 1] == EMPTY:
            index[at : at + stride] = key, 0, EMPTY, key + 100
        runs[key] = runs.get(key, 0) + (1 if key % 3 else 0)
        index[at + 1] = runs[key]
    index, slots, live = rehashed_index(index, stride, 1, room)
    runs = {key: count for key, count in runs.items() if count}
    assert (slots, live) == (len(index) // stride, len(runs))
    assert slots >= 2 * (2 * live + room)
    for key in range(-45, 45):
        found = index[slot_in(index, stride, slots, key) :][:stride].tolist()
        assert found == [key, runs[key], EMPTY, key + 100] if key in runs else found[1] == EMPTY


def test_keys_of_several_parts_are_kept_apart() -> None:
    """Generated code begins the search for such a key where the rebuilt index has put it."""
    stride, parts = 4, 2
    index = np.full(16 * stride, EMPTY, np.int64)
    keys = [(a, b) for a in range(3) for b in range(2)]
    for at, key in enumerate(keys):
        index[at * stride : (at + 1) * stride] = *key, 1, 10 * at
    index, slots, live = rehashed_index(index, stride, parts, 0)
    assert live == len(keys)
    for number, (a, b) in enumerate(keys):
        slot = first_slot(mixed_key(a, b), slots)
        while index[slot * stride : slot * stride + 2].tolist() != [a, b]:
            assert index[slot * stride + parts] != EMPTY
            slot = (slot + 1) % slots
        assert index[slot * stride + 3] == 10 * number


def test_the_table_of_meetings_grows_with_the_runs() -> None:
    meet = np.arange(8)
    assert met_before(meet, 2) is meet
    larger = met_before(meet, 5)
    assert len(larger) == 32
    assert set(larger.tolist()) == {EMPTY}


def runs_in_lists(*lists: list[int]) -> tuple[Array, Array]:
    """An index of one slot without a key, with a list of runs for each head: the index and the runs, which begin where
    they are told and whose node is their number."""
    index: list[int] = [sum(map(len, lists))]
    runs: list[dict[int, int]] = []
    for starts in lists:
        index.append(len(runs) * RUN_SIZE if starts else EMPTY)
        for i, start in enumerate(starts):
            following = (len(runs) + 1) * RUN_SIZE if i + 1 < len(starts) else EMPTY
            runs.append({BEGAN: start, NEXT: following, NODE: len(runs) * NODE_SIZE})
    table = [run[field] for run in runs for field in range(RUN_SIZE)]
    return np.array(index, np.int64), np.array(table, np.int64)


def listed(run: Array, r: int) -> list[int]:
    found = []
    while r != EMPTY:
        found.append(r // RUN_SIZE)
        r = int(run[r + NEXT])
    return found


def test_a_released_list_is_free() -> None:
    index, run = runs_in_lists([5, 3], [4])
    free, released = release(index, 1, run, EMPTY)
    assert released == 2
    assert listed(run, free) == [1, 0]
    assert (listed(run, int(index[1])), listed(run, int(index[2]))) == ([], [2])
    assert [run[r * RUN_SIZE + NODE] == EMPTY for r in range(3)] == [True, True, False]


@given(st.lists(st.integers(0, 9), max_size=6), st.lists(st.integers(0, 9), max_size=6), st.integers(0, 10))
def test_runs_that_left_the_window_are_swept(first: list[int], second: list[int], floor: int) -> None:
    index, run = runs_in_lists(first, second)
    starts = [*first, *second]
    marks = np.full(len(starts), UNREACHED, np.int64)
    free, dropped = sweep(index, 3, 0, 1, floor, 0, run, EMPTY, marks)
    kept = [i for i, start in enumerate(starts) if start >= floor]
    assert [*listed(run, int(index[1])), *listed(run, int(index[2]))] == kept
    assert sorted(listed(run, free)) == [i for i in range(len(starts)) if i not in kept]
    assert (dropped, index[0]) == (len(starts) - len(kept), len(kept))
    assert marks.tolist() == [floor if i in kept else UNREACHED for i in range(len(starts))]


def test_a_partition_that_counts_its_events_has_a_window_of_its_own() -> None:
    index, run = runs_in_lists([5, 3], [4])
    counted = np.array([index[0], 6, index[1], index[2]], np.int64)
    marks = np.full(3, UNREACHED, np.int64)
    _, dropped = sweep(counted, 4, 0, 2, ALWAYS, 2, run, EMPTY, marks)
    assert dropped == 1
    assert marks.tolist() == [4, UNREACHED, 4]


# --- the buffer -------------------------------------------------------------------------------------------------------


class Buffer:
    """A match buffer beside its model: the sequences of events that each node leads back to. A run begins in the
    window's measure at the position of its first event."""

    def __init__(self) -> None:
        self.node = np.zeros(400 * NODE_SIZE, np.int64)
        self.sequences: dict[int, list[Events]] = {}
        self.top = 0

    def _new(self, sequences: list[Events]) -> int:
        n, self.top = self.top, self.top + NODE_SIZE
        self.sequences[n] = sequences
        return n

    def began(self, n: int) -> int:
        return int(self.node[n + BEGAN])

    def after(self, before: int, row: int) -> list[Events]:
        return [(row,)] if before == EMPTY else [(*events, row) for events in self.sequences[before]]

    def add(self, row: int, before: int) -> int:
        began = row if before == EMPTY else self.began(before)
        add_node(self.node, self.top, row, 0, before, began)
        return self._new(self.after(before, row))

    def unite(self, row: int, before: int, alt: int) -> int:
        began = row if before == EMPTY else self.began(before)
        add_union(self.node, self.top, row, 0, before, began, alt, self.began(alt))
        return self._new(self.after(before, row) + self.sequences[alt])

    def join(self, event: int, joining: int, row: int) -> int:
        before = int(self.node[event + PREV])
        join(self.node, event, joining, self.top)
        self.sequences[event] = self.sequences[before] + self.sequences[joining]
        return self._new(self.after(event, row))

    def matches(self, n: int, floor: int) -> list[Events]:
        return sorted(events for events in self.sequences[n] if events[0] >= floor)


def random_buffer(rng: Random) -> tuple[Buffer, list[int]]:
    """A buffer, and the nodes that runs may be at."""
    buffer, ends = Buffer(), [0]
    buffer.add(0, EMPTY)
    for row in range(1, rng.randint(2, 12)):
        if sum(map(len, buffer.sequences.values())) > 2000:
            break
        match rng.randint(0, 4):
            case 0:
                ends.append(buffer.add(row, EMPTY))
            case 1 | 2:
                ends.append(buffer.add(row, rng.choice(ends)))
            case 3:
                ends.append(buffer.unite(row, rng.choice([EMPTY, *ends]), rng.choice(ends)))
            case _:
                before, joining = rng.choice(ends), rng.choice(ends)
                ends.append(buffer.join(buffer.add(row, before), joining, row))
    return buffer, ends


MANY = 1 << 40


def written(node: Array, n: int, floor: int, write: Callable[..., tuple[Array, Array, int, int, int]]) -> list[Events]:
    """The sequences that a run at a node leads back to, as matches without their last event."""
    found = np.array([n, 99, 0, floor], np.int64)
    start = np.zeros(1, np.int64)
    values, bounds, filled, ends, _ = write(found, FOUND_SIZE, 1, node, start.copy(), start.copy(), 0, 0, MANY, MANY)
    limits = bounds[: ends + 1].tolist()
    assert limits[-1] == filled
    matches = [tuple(values[a:b].tolist()) for a, b in pairwise(limits)]
    assert all(match[-1] == 99 for match in matches)
    return sorted(match[:-1] for match in matches)


@given(st.randoms(use_true_random=True))
def test_matches_are_the_ways_back(rng: Random) -> None:
    buffer, ends = random_buffer(rng)
    for n in ends:
        floor = rng.randint(0, buffer.began(n))
        assert written(buffer.node, n, floor, write_matches) == buffer.matches(n, floor)


def reclaimed(rng: Random, shrink: Callable[[Array, Array], int]) -> None:
    """Reclaim what some runs do not need: they still lead back to what they did, with the nodes they need alone."""
    buffer, ends = random_buffer(rng)
    roots = {n: rng.randint(0, buffer.began(n)) for n in rng.sample(ends, rng.randint(1, len(ends)))}
    marks = np.full(buffer.top // NODE_SIZE, UNREACHED, np.int64)
    for n, floor in roots.items():
        marks[n // NODE_SIZE] = floor
    expected = {n: buffer.matches(n, floor) for n, floor in roots.items()}
    kept = shrink(buffer.node, marks)
    assert kept <= buffer.top
    for n, floor in roots.items():
        assert written(buffer.node, int(marks[n // NODE_SIZE]), floor, write_matches) == expected[n]
    for n in range(0, kept, NODE_SIZE):
        assert buffer.node[n + STEP] != UNION or buffer.node[n + ALT] != EMPTY  # a union has two sides
    needed = {event for matches in expected.values() for events in matches for event in events}
    assert {int(row) for row in buffer.node[1:kept:NODE_SIZE]} == needed


@given(st.randoms(use_true_random=True))
def test_reclaiming_keeps_what_runs_need_and_no_more(rng: Random) -> None:
    reclaimed(rng, compact)


def test_reclaiming_in_machine_code() -> None:
    source = (
        "from cepheid.kernels.runs.run_store import compact\n\ndef step(node, marks): return compact(node, marks)\n"
    )
    shrink = compiled(source, ["int64!", "int64!"])
    for seed in range(50):
        reclaimed(Random(seed), shrink)


def test_the_events_of_a_match_lie_by_component() -> None:
    node = np.zeros(8 * NODE_SIZE, np.int64)
    add_node(node, 0, 10, 0, EMPTY, 10)
    add_node(node, NODE_SIZE, 11, 2, 0, 10)
    add_node(node, 2 * NODE_SIZE, 12, 2, NODE_SIZE, 10)
    found = np.array([2 * NODE_SIZE, 13, 3, ALWAYS, EMPTY, 14, 1, ALWAYS], np.int64)
    none = np.zeros(1, np.int64)
    values, bounds, filled, ends, problem = write_matches(
        found, 2 * FOUND_SIZE, 5, node, none.copy(), none.copy(), 0, 0, MANY, MANY
    )
    assert values[:filled].tolist() == [10, 11, 12, 13, 14] and problem == 0
    assert bounds[: ends + 1].tolist() == [0, 1, 1, 3, 4, 4, 4, 5, 5, 5, 5]


@pytest.mark.parametrize(
    ("one", "other", "first"),
    [
        ([(1, 0), (3, 1)], [(2, 0), (3, 1)], True),
        ([(1, 0), (3, 1)], [(1, 0), (2, 1)], False),
        ([(1, 0), (2, 0)], [(1, 0), (2, 1)], True),
        ([(1, 0)], [(1, 0), (2, 1)], False),
        ([(1, 0)], [(1, 0)], False),
    ],
)
def test_of_two_runs_the_earlier_comes_first(
    one: list[tuple[int, int]], other: list[tuple[int, int]], first: bool
) -> None:
    """By their events (position, component) before the one that completes both, at position 9 for component 1."""
    node, top = np.zeros(8 * NODE_SIZE, np.int64), 0
    ends = []
    for events in (one, other):
        before = EMPTY
        for row, step in events:
            add_node(node, top, row, step, before, events[0][0])
            before, top = top, top + NODE_SIZE
        ends.append(before)
    found = np.array([ends[0], 9, 1, ALWAYS, ends[1], 9, 1, ALWAYS], np.int64)
    assert precedes(node, found, 0, FOUND_SIZE) is first


def test_pointers_follow_nodes_to_their_new_places() -> None:
    run = np.array([0, EMPTY, 2 * NODE_SIZE, 0, EMPTY, EMPTY], np.int64)
    marks = np.array([UNREACHED, UNREACHED, NODE_SIZE], np.int64)
    forward_runs(run, len(run), RUN_SIZE, marks)
    assert run[[NODE, RUN_SIZE + NODE]].tolist() == [NODE_SIZE, EMPTY]
    waiting = np.zeros(3 * FOUND_SIZE, np.int64)
    waiting[[BEFORE, FLOOR]] = 2 * NODE_SIZE, 7
    waiting[FOUND_SIZE + BEFORE] = EMPTY
    waiting[[2 * FOUND_SIZE + BEFORE, 2 * FOUND_SIZE + FLOOR]] = 0, 5
    items, marks = np.array([0, FOUND_SIZE, 2 * FOUND_SIZE], np.int64), np.array([9, UNREACHED, UNREACHED], np.int64)
    mark_waiting(waiting, items, 3, marks)
    assert marks.tolist() == [5, UNREACHED, 7]
    forward_waiting(waiting, items, 3, np.array([0, 0, NODE_SIZE], np.int64))
    assert waiting[[BEFORE, FOUND_SIZE + BEFORE, 2 * FOUND_SIZE + BEFORE]].tolist() == [NODE_SIZE, EMPTY, 0]


@pytest.mark.parametrize(
    ("row", "module"),
    [
        (variables.Node, run_store),
        (variables.Run, run_store),
        (variables.Completed, run_store),
        (backtrack.StackedRun, backtrack),
        (backtrack.StoredEvent, backtrack),
    ],
)
def test_handles_name_the_fields_of_the_layouts(row: type[Row], module: ModuleType) -> None:
    """A handle reads a field by a constant of the layout, and the fields of a record follow each other without gaps."""
    fields = [name for part in reversed(row.__mro__) for name, field in vars(part).items() if isinstance(field, Field)]
    offsets = [getattr(module, name.upper(), getattr(run_store, name.upper(), None)) for name in fields]
    assert offsets == list(range(len(fields)))
    assert getattr(row("x"), fields[-1]) == f"{row.array}[x + {fields[-1].upper()}]"


@pytest.mark.parametrize(("most", "words", "problem"), [(3, 99, 0), (2, 99, 51), (3, 8, -51), (1, 99, 51)])
def test_matches_are_written_until_they_are_too_many_or_too_large(most: int, words: int, problem: int) -> None:
    """Event 50 completes three matches of three events each."""
    node = np.zeros(8 * NODE_SIZE, np.int64)
    for i in range(3):
        add_node(node, 2 * i * NODE_SIZE, 10 + i, 0, EMPTY, 10)
        add_node(node, (2 * i + 1) * NODE_SIZE, 20 + i, 1, 2 * i * NODE_SIZE, 10)
    rows = [(0, 50), (1, 50), (2, 50)]
    found = np.array([v for i, last in rows for v in ((2 * i + 1) * NODE_SIZE, last, 2, ALWAYS)], np.int64)
    none = np.zeros(1, np.int64)
    result = write_matches(found, len(found), 3, node, none.copy(), none.copy(), 0, 0, most, words)
    assert result[-1] == problem
    assert result[2] == (9 if problem == 0 else 3 * min(most, words // 3))
