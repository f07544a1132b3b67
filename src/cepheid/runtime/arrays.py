"""Helpers that generated kernels call: arrays that grow, rings of instances, hash tables of chain heads, and heaps.

A *ring* holds instances numbered from 0 in order of arrival. Those still alive are `base` to `next - 1`, and instance j
has the index `j & (capacity - 1)`. Dropping the oldest is one addition, and numbers stay valid.
"""

from __future__ import annotations

import numpy as np

from cepheid.runtime.jit import njit

NULL_INT = np.iinfo(np.int64).min
"""Null in an integer column. (In a float column it is NaN, in a column of codes -1.)"""
NULL_CODE = -1
EMPTY = -1
"""An unused slot of a table, and the end of a chain."""


@njit
def chain_length(records: np.ndarray, record: int, link: int) -> int:
    """The number of records in a chain; `link` is the field with the offset of the next one."""
    length = 0
    while record != EMPTY:
        length += 1
        record = records[record + link]
    return length


@njit
def grown(array: np.ndarray, needed: int) -> np.ndarray:
    """The array, or a copy at least twice as long if `needed` elements do not fit."""
    if needed <= array.shape[0]:
        return array
    larger = np.empty(max(needed, 2 * array.shape[0]), array.dtype)
    copy(array, 0, larger, 0, array.shape[0])
    return larger


@njit
def copy(source: np.ndarray, start: int, target: np.ndarray, at: int, count: int) -> None:
    """A loop: an assignment of slices takes seconds to compile."""
    for i in range(count):
        target[at + i] = source[start + i]


@njit
def ring_capacity(ring: np.ndarray, needed: int) -> int:
    """The capacity, a power of two, at which `needed` instances fit."""
    capacity: int = ring.shape[0]
    while capacity < needed:
        capacity *= 2
    return capacity


@njit
def unrolled(ring: np.ndarray, base: int, following: int, capacity: int) -> np.ndarray:
    """A ring of a larger capacity with the live instances at their new indexes."""
    larger = np.empty(capacity, ring.dtype)
    for j in range(base, following):
        larger[j & (capacity - 1)] = ring[j & (ring.shape[0] - 1)]
    return larger


@njit
def last_before(times: np.ndarray, base: int, following: int, time: int) -> int:
    """The number of the last instance of a ring in the order of time that is earlier than `time` (or `base - 1`)."""
    low, high = base, following
    while low < high:
        middle = (low + high) >> 1
        if times[middle & (times.shape[0] - 1)] < time:
            low = middle + 1
        else:
            high = middle
    return low - 1


@njit
def count_bit(mask: np.ndarray, start: int, stop: int, bit: np.uint64) -> int:
    """How many events from `start` to `stop` have a bit of their mask set, or one of several."""
    count = 0
    for e in range(start, stop):
        if mask[np.uint64(e)] & bit:  # unsigned, so that no index wraps around and the loop is vectorised
            count += 1
    return count


@njit
def first_with(mask: np.ndarray, start: int, stop: int, bits: np.uint64) -> int:
    """The first event from `start` to `stop` that has one of some bits of its mask set, -1 if none has."""
    for e in range(start, stop):
        if mask[e] & bits:
            return e
    return -1


@njit
def first_slot(hashed: int, slots: int) -> int:
    """The first slot to probe for a key in a table of so many slots, a power of two."""
    mixed = ((hashed ^ (hashed >> 31)) & 0x7FFFFFFF) * 73244475  # no product here exceeds 63 bits, so nothing wraps
    return (mixed ^ (mixed >> 16)) & (slots - 1)


@njit
def count_bits(mask: np.ndarray, start: int, stop: int, bits: np.uint64) -> int:
    """How many of some bits the events from `start` to `stop` have set, together."""
    count = 0
    for e in range(start, stop):
        left = mask[e] & bits
        while left:
            left &= left - np.uint64(1)
            count += 1
    return count


@njit
def slot_of(keys: np.ndarray, heads: np.ndarray, key: int) -> int:
    """The slot of a key, or the empty slot where it belongs."""
    last = keys.shape[0] - 1
    slot: int = first_slot(key, keys.shape[0])
    while heads[slot] != EMPTY and keys[slot] != key:
        slot = (slot + 1) & last
    return slot


@njit
def used_slots(heads: np.ndarray) -> int:
    used = 0
    for head in heads:
        if head != EMPTY:
            used += 1
    return used


@njit
def live_slots(heads: np.ndarray, base: int) -> int:
    live = 0
    for head in heads:
        if head >= base:
            live += 1
    return live


@njit
def rehashed(keys: np.ndarray, heads: np.ndarray, base: int, room: int) -> tuple[np.ndarray, np.ndarray]:
    """The table with room for more keys and without those whose chain has left the window, so that idle keys cost
    nothing."""
    live = live_slots(heads, base)
    capacity = 16
    while capacity < 2 * (2 * live + room):
        capacity *= 2
    new_keys = np.zeros(capacity, keys.dtype)
    new_heads = np.full(capacity, EMPTY, heads.dtype)
    for old in range(keys.shape[0]):
        if heads[old] >= base:
            slot = slot_of(new_keys, new_heads, keys[old])
            new_keys[slot] = keys[old]
            new_heads[slot] = heads[old]
    return new_keys, new_heads


@njit
def _set_pair(times: np.ndarray, items: np.ndarray, at: int, time: int, item: int) -> None:
    times[at] = time
    items[at] = item


@njit
def heap_push(times: np.ndarray, items: np.ndarray, size: int, time: int, item: int) -> None:
    """Put an item on a heap ordered by time; the arrays must have room for `size + 1`."""
    child = size
    while child > 0:
        parent = (child - 1) >> 1
        if times[parent] <= time:
            break
        _set_pair(times, items, child, times[parent], items[parent])
        child = parent
    _set_pair(times, items, child, time, item)


@njit
def heap_pop(times: np.ndarray, items: np.ndarray, size: int) -> int:
    """Take the earliest item off a heap of `size` items."""
    first: int = items[0]
    time = times[size - 1]
    item = items[size - 1]
    size -= 1
    parent = 0
    while 2 * parent + 1 < size:
        child = 2 * parent + 1
        if child + 1 < size and times[child + 1] < times[child]:
            child += 1
        if times[child] >= time:
            break
        _set_pair(times, items, parent, times[child], items[child])
        parent = child
    _set_pair(times, items, parent, time, item)
    return first


@njit
def float_key(value: float) -> int:
    """A float as an integer that is equal exactly for equal floats (0.0 and -0.0 are equal)."""
    return np.float64(value + 0.0).view(np.int64)  # type: ignore[return-value]


@njit
def float_word(value: float) -> int:
    """A float as an integer of the same bits, -0.0 too."""
    return np.float64(value).view(np.int64)  # type: ignore[return-value]


@njit
def as_float(key: int) -> float:
    """The float that `float_key` or `float_word` made an integer of."""
    return np.int64(key).view(np.float64)


@njit
def rank(code: int, ranks: np.ndarray) -> int:
    """The position of a string in the order of strings; a boolean's code is its own."""
    return ranks[code] if code < ranks.shape[0] else code


@njit
def mixed_key(left: int, right: int) -> int:
    """Hashes two keys to one. Different pairs may collide, so the caller still compares them."""
    return (((left ^ (left >> 31)) & 0x7FFFFFFF) * 73244475) ^ right
