"""The helpers of the successor evaluator: instances by key, chains that share their prefixes, and histories."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cepheid.kernels.successor.instances import (
    ABSENT,
    BEFORE,
    DEAD,
    FREED,
    KEY,
    LENGTH,
    NEVER,
    NEXT,
    POINT,
    PREV,
    compacted,
    compare_histories,
    compare_times,
    concatenated,
    events_in,
    forward,
    history_length,
    in_order,
    kept_nodes,
    lowest,
    mark,
    recorded,
    reindexed,
    relinked,
    reverse,
    shifted,
    slot_for,
    trimmed,
    unmarked,
    widened,
)
from cepheid.runtime.arrays import EMPTY

SIZE = 4
"""The length of a record: NEXT, DONE, END and KEY."""


def table_of(*records: tuple[int, int]) -> np.ndarray:
    """Instances with these values of DONE and KEY."""
    return np.array([field for done, key in records for field in (EMPTY, done, 0, key)], np.int64)


def listed(index: np.ndarray, table: np.ndarray, key: int) -> list[int]:
    """The instances of a key, by their number in the table."""
    found, at = [], index[slot_for(index, key) + 1]
    while at >= 0:
        found.append(int(at) // SIZE)
        at = table[at + NEXT]
    return found


# --- instances --------------------------------------------------------------------------------------------------------


def test_instances_that_were_decided_or_expired_are_dropped() -> None:
    table = table_of((NEVER, 1), (5, 2), (9, 3), (NEVER, 4))
    assert compacted(table, SIZE, len(table), 7, -1, 0) == 3 * SIZE
    assert table[KEY : 3 * SIZE : SIZE].tolist() == [1, 3, 4]
    table[2::SIZE] = [10, 20, 30, 0]
    assert compacted(table, SIZE, 3 * SIZE, 0, 2, 15) == 2 * SIZE
    assert table[KEY : 2 * SIZE : SIZE].tolist() == [3, 4]


@given(st.lists(st.integers(-5, 5), max_size=40), st.integers(0, 30))
def test_an_index_lists_the_instances_of_each_key(keys: list[int], room: int) -> None:
    table = table_of(*((NEVER, key) for key in keys))
    index, used = reindexed(np.full(8, EMPTY, np.int64), table, SIZE, len(table), room, NEXT, KEY)
    assert used == len(set(keys))
    assert len(index) >= 4 * (len(keys) + room)
    for key in set(keys):
        assert listed(index, table, key) == [n for n in reversed(range(len(keys))) if keys[n] == key]
    larger, kept = widened(index, 2 * used + room)
    assert kept == used
    assert all(listed(larger, table, key) == listed(index, table, key) for key in keys)


def test_keys_without_instances_leave_a_wider_index() -> None:
    table = table_of((NEVER, 7), (NEVER, 8))
    index, used = reindexed(np.full(8, EMPTY, np.int64), table, SIZE, len(table), 0, NEXT, KEY)
    index[slot_for(index, 7) + 1] = DEAD
    index, used = widened(index, 20)
    assert (used, listed(index, table, 7), listed(index, table, 8)) == (1, [], [1])


def test_records_in_no_list_stay_in_none() -> None:
    table = table_of(*[(NEVER, 1)] * 3)
    table[SIZE + NEXT] = ABSENT
    assert relinked(table, SIZE, len(table), NEXT) == 2 * SIZE
    assert table[NEXT::SIZE].tolist() == [EMPTY, ABSENT, 0]
    index, used = reindexed(np.full(8, EMPTY, np.int64), table, SIZE, len(table), 0, NEXT, KEY)
    assert (used, listed(index, table, 1)) == (1, [2, 0])


def test_records_move_to_the_front() -> None:
    table = np.arange(8)
    assert shifted(table, 3, 8) == 5
    assert table[:5].tolist() == [3, 4, 5, 6, 7]
    assert trimmed(table, 4, 5).tolist() == [3, 4, 5, 6, 7] and trimmed(table, 4, 0).tolist() == [0] * 4
    reverse(table, 1, 4)
    assert table[:5].tolist() == [3, 6, 5, 4, 7]


def test_free_records_have_no_lowest_value() -> None:
    table = table_of((NEVER, 6), (FREED, 1), (NEVER, 4))
    assert lowest(table, SIZE, 0, len(table), KEY, 99) == 4
    assert lowest(table, SIZE, 2 * SIZE, len(table), KEY, 3) == 3


# --- chains -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(20))
def test_chains_keep_their_nodes_when_others_go(seed: int) -> None:
    chance, width = random.Random(seed), 3
    node: list[int] = []
    for number in range(30):
        before = chance.choice([EMPTY, *range(0, len(node), width)])
        node += [before, 1 if before == EMPTY else node[before + LENGTH] + 1, number]
    nodes = np.array(node, np.int64)
    ends = [chance.choice([EMPTY, *range(0, len(node), width)]) for _ in range(8)]
    table = np.array([[EMPTY, FREED if n == 3 else NEVER, end, 0] for n, end in enumerate(ends)], np.int64).ravel()

    def chain(at: int) -> list[int]:
        found = []
        while at != EMPTY:
            found.append(int(nodes[at + 2]))
            at = nodes[at + PREV]
        return found

    live = [n for n in range(8) if n != 3]
    before = [chain(table[SIZE * n + 2]) for n in live]
    reached = {number for numbers in before for number in numbers}
    marks = unmarked(len(nodes), width)
    mark(table, SIZE, 0, len(table), 2, True, nodes, width, marks)
    top = kept_nodes(nodes, width, len(nodes), marks)
    forward(table, SIZE, 0, len(table), 2, True, width, marks)
    assert top == width * len(reached)
    assert [chain(table[SIZE * n + 2]) for n in live] == before
    table[SIZE * 3 + 2] = EMPTY
    assert events_in(table, SIZE, len(table), 2, nodes) == sum(map(len, before))


# --- histories --------------------------------------------------------------------------------------------------------

histories = st.lists(st.integers(0, 3), min_size=1, max_size=4).map(sorted)


def written(history: np.ndarray, top: int, points: list[int]) -> tuple[int, int]:
    """The history of these time points and the new top."""
    end = recorded(history, top, np.array([len(points), *points]), 0)
    return end - 2, end


def points_of(history: np.ndarray, at: int) -> list[int]:
    found = []
    while at != EMPTY:
        found.append(int(history[at + POINT]))
        at = history[at + BEFORE]
    return found[::-1]


@given(histories, histories)
def test_histories_are_written_joined_and_compared(one: list[int], other: list[int]) -> None:
    history = np.zeros(64, np.int64)
    first, top = written(history, 0, one)
    second, top = written(history, top, other)
    assert (points_of(history, first), points_of(history, second)) == (one, other)
    end = concatenated(history, top, first, second)
    assert points_of(history, end - 2) == one + other
    assert history_length(history, end - 2) == len(one) + len(other)
    backwards = [[-point for point in reversed(points)] for points in (one, other)]
    found = compare_histories(history, first, second)
    if one == other:
        assert found == 0
    elif backwards[0][: len(other)] == backwards[1]:
        assert found < 0  # of two that agree, the longer comes first
    elif backwards[1][: len(one)] == backwards[0]:
        assert found > 0
    else:
        assert (found < 0) == (one[::-1] < other[::-1])


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=30))
def test_candidates_are_ordered_by_their_histories(times: list[tuple[int, int]]) -> None:
    queue = np.array([[*pair, n] for n, pair in enumerate(times)], np.int64).ravel()
    order = in_order(queue, 3, len(queue), 0, 2, np.zeros(0, np.int64))
    assert [times[at // 3] for at in order] == sorted(times, key=lambda pair: pair[::-1])
    for one, other in itertools.pairwise(order):
        assert compare_times(queue, one, other, 0, 2) <= 0
