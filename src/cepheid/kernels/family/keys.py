"""The numbers of the keys of families, in a table of hashes."""

from __future__ import annotations

import numpy as np

from cepheid.kernels.family.instances import NONE
from cepheid.runtime.jit import entry, njit


@entry
def key_numbers(
    keys: np.ndarray, start: int, null: int, slots: np.ndarray, used: int, numbers: np.ndarray
) -> tuple[int, int]:
    """The number of each key from `start` on, counted from 0 in the order of arrival; -1 for null. `slots` is a table
    of keys and numbers. Returns how many events have theirs (all, unless it is full) and how many keys there are."""
    mask = (slots.shape[0] >> 1) - 1
    for e in range(start, keys.shape[0]):
        key = keys[e]
        if key == null:
            numbers[e] = NONE
            continue
        slot = first_slot(key, mask)
        while slots[2 * slot + 1] != NONE and slots[2 * slot] != key:
            slot = (slot + 1) & mask
        if slots[2 * slot + 1] == NONE:
            if 4 * used > slots.shape[0]:
                return e, used
            slots[2 * slot] = key
            slots[2 * slot + 1] = used
            used += 1
        numbers[e] = slots[2 * slot + 1]
    return keys.shape[0], used


@njit
def first_slot(key: int, mask: int) -> int:
    """The first slot to probe for a key. No product exceeds 62 bits."""
    mixed = (key ^ (key >> 31)) & 0x7FFFFFFF
    mixed = mixed * 73244475
    return (mixed ^ (mixed >> 27)) & mask


@entry
def rehashed(slots: np.ndarray, larger: np.ndarray) -> None:
    """Copies a table of keys to a larger one."""
    mask = (larger.shape[0] >> 1) - 1
    for at in range(0, slots.shape[0], 2):
        if slots[at + 1] != NONE:
            key = slots[at]
            slot = first_slot(key, mask)
            while larger[2 * slot + 1] != NONE:
                slot = (slot + 1) & mask
            larger[2 * slot] = key
            larger[2 * slot + 1] = slots[at + 1]
