"""The helpers that generated kernels call, as Python runs them, and a sample of them compiled."""

from __future__ import annotations

import heapq
import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cepheid.codegen.compile import compiled, interpreted
from cepheid.runtime.arrays import (
    EMPTY,
    copy,
    count_bit,
    count_bits,
    first_with,
    float_key,
    grown,
    heap_pop,
    heap_push,
    last_before,
    live_slots,
    mixed_key,
    rank,
    rehashed,
    ring_capacity,
    slot_of,
    unrolled,
    used_slots,
)


def _integers(*values: int) -> Any:
    return np.array(values, np.int64)


def _key(value: int) -> Any:
    """A key as kernels have it: arithmetic wraps around at 64 bits."""
    return np.int64(value)


def test_an_array_grows_to_twice_its_length_or_to_what_is_needed() -> None:
    array = _integers(1, 2, 3)
    assert grown(array, 3) is array
    assert len(grown(array, 4)) == 6 and grown(array, 4)[:3].tolist() == [1, 2, 3]
    assert len(grown(array, 50)) == 50
    target = np.zeros(5, np.int64)
    copy(array, 1, target, 3, 2)
    assert target.tolist() == [0, 0, 0, 2, 3]


def test_a_ring_keeps_its_instances_in_a_larger_one() -> None:
    ring = np.zeros(4, np.int64)
    for j in range(6, 10):
        ring[j & 3] = 10 * j
    assert ring_capacity(ring, 4) == 4 and ring_capacity(ring, 5) == 8 and ring_capacity(ring, 33) == 64
    larger = unrolled(ring, 6, 10, 8)
    assert [int(larger[j & 7]) for j in range(6, 10)] == [60, 70, 80, 90]


@given(st.lists(st.integers(0, 5), max_size=8), st.integers(0, 6), st.integers(0, 20))
def test_the_last_instance_before_a_time(gaps: list[int], time: int, base: int) -> None:
    times = [sum(gaps[: i + 1]) for i in range(len(gaps))]
    ring = np.zeros(8, np.int64)
    for j, value in enumerate(times, base):
        ring[j & 7] = value
    expected = base - 1 + sum(value < time for value in times)
    assert last_before(ring, base, base + len(times), time) == expected


def test_bits_are_counted_between_two_positions() -> None:
    mask = np.array([1, 2, 3, 4, 1], np.uint64)
    assert count_bit(mask, 0, 5, np.uint64(1)) == 3
    assert count_bit(mask, 1, 4, np.uint64(1)) == 1
    assert count_bit(mask, 0, 5, np.uint64(6)) == 3
    assert count_bit(mask, 2, 2, np.uint64(1)) == 0


@given(st.lists(st.tuples(st.integers(-(2**63), 2**63 - 1), st.integers(0, 30)), max_size=12), st.integers(0, 30))
def test_a_table_finds_every_key_and_forgets_those_that_left_the_window(
    entries: list[tuple[int, int]], base: int
) -> None:
    keys, heads = np.zeros(32, np.int64), np.full(32, EMPTY, np.int64)
    expected: dict[int, int] = {}
    for key, head in entries:
        slot = slot_of(keys, heads, _key(key))
        keys[slot], heads[slot] = key, head
        expected[key] = head
    assert used_slots(heads) == len(expected)
    assert all(heads[slot_of(keys, heads, _key(key))] == head for key, head in expected.items())
    alive = {key: head for key, head in expected.items() if head >= base}
    assert live_slots(heads, base) == len(alive)
    keys, heads = rehashed(keys, heads, base, 3)
    assert used_slots(heads) == len(alive) and len(keys) >= 2 * (len(alive) + 3)
    for key, head in expected.items():
        assert heads[slot_of(keys, heads, _key(key))] == (head if key in alive else EMPTY)


@given(st.lists(st.integers(-50, 50), min_size=1, max_size=30))
def test_a_heap_gives_items_in_the_order_of_time(times: list[int]) -> None:
    heap, items = np.zeros(32, np.int64), np.zeros(32, np.int64)
    for size, time in enumerate(times):
        heap_push(heap, items, size, time, 1000 + size)
        assert heap[0] == min(times[: size + 1])
    popped = [heap_pop(heap, items, size) - 1000 for size in range(len(times), 0, -1)]
    assert [times[item] for item in popped] == sorted(times)
    assert sorted(popped) == list(range(len(times)))


def test_floats_are_equal_as_keys_exactly_if_they_are_equal() -> None:
    assert float_key(0.0) == float_key(-0.0) and float_key(1.5) == float_key(1.5) != float_key(1.5000001)
    assert mixed_key(1, 2) == mixed_key(1, 2) != mixed_key(2, 1)


SAMPLE = """

def step(number, times, items, keys, heads, out):
    size = 0
    for i in range(number):
        heap_push(times, items, size, (i * 7919) % 101, i)
        size += 1
        key = (i * 104729) % 53 - 26
        if 2 * (used_slots(heads) + 1) > keys.shape[0]:
            keys, heads = rehashed(keys, heads, 0, 1)
        slot = slot_of(keys, heads, key)
        keys[slot] = key
        heads[slot] = i
    out = grown(out, number + 60)
    for i in range(number):
        out[i] = heap_pop(times, items, size)
        size -= 1
    for key in range(-26, 27):
        out[number + key + 26] = heads[slot_of(keys, heads, key)]
    return out[: number + 53]
"""


@pytest.mark.parametrize("number", [1, 40, 300])
def test_compiled_helpers_do_what_python_does(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CEPHEID_JIT", "1")

    def run(function: Any) -> list[int]:
        times, items = np.zeros(512, np.int64), np.zeros(512, np.int64)
        keys, heads = np.zeros(16, np.int64), np.full(16, EMPTY, np.int64)
        result: list[int] = function(number, times, items, keys, heads, np.zeros(1, np.int64)).tolist()
        return result

    by_python = run(interpreted(SAMPLE))
    assert run(compiled(SAMPLE, ["int", *["int64!"] * 5])) == by_python
    order = [(i * 7919) % 101 for i in by_python[:number]]
    assert order == sorted(order)


def test_a_heap_agrees_with_the_standard_library_while_it_grows_and_shrinks() -> None:
    draw = random.Random(3)
    times, items, size, expected = np.zeros(64, np.int64), np.zeros(64, np.int64), 0, list[tuple[int, int]]()
    for step in range(500):
        if size < 64 and (size == 0 or draw.random() < 0.55):
            time = draw.randrange(10_000) * 1000 + step  # all different, so that the order is one
            heap_push(times, items, size, time, step)
            heapq.heappush(expected, (time, step))
            size += 1
        else:
            assert heap_pop(times, items, size) == heapq.heappop(expected)[1]
            size -= 1
    left = [heap_pop(times, items, rest) for rest in range(size, 0, -1)]
    assert left == [item for _, item in sorted(expected)]


def test_bits_of_masks_are_counted_and_found() -> None:
    mask = np.array([0, 5, 2, 7], np.uint64)
    assert (count_bits(mask, 0, 4, np.uint64(5)), count_bits(mask, 2, 4, np.uint64(2))) == (4, 2)
    assert (first_with(mask, 0, 4, np.uint64(2)), first_with(mask, 0, 2, np.uint64(2))) == (2, -1)


def test_codes_beyond_the_ranks_are_their_own() -> None:
    ranks = np.array([2, 0, 1])
    assert [rank(code, ranks) for code in (0, 1, 2, 7)] == [2, 0, 1, 7]
