"""The storage of the successor evaluator: waiting instances, chains of iterations, and histories.

Each table is one array of integers, and a record is identified by its offset. An *instance* waits for its successor in
the list of its key (NEXT). DONE says when its successor was found: events of the same time may be successors too, so it
stays until that time has passed. The *index* of a table holds pairs of a key and the head of its list (EMPTY: no key;
DEAD: a key without instances). A table with several indexes has a NEXT and a KEY for each; an instance is then in
several lists, and is dropped from each when that is visited.

The chains of an iteration share their prefixes: a node holds the item that a chain ends with, and PREV is the chain
without it. A *history* (NEXT §3.2) is a list of time points from the last to the first.
"""

from __future__ import annotations

import numpy as np

from cepheid.runtime.arrays import EMPTY, chain_length, first_slot
from cepheid.runtime.jit import njit

NEXT, DONE, END, KEY = 0, 1, 2, 3
"""The first fields of an instance; KEY only in a table with an index."""
FREED = -(1 << 62) - 1
"""DONE of a record that is free."""
NEVER = 1 << 62
"""DONE of an instance that waits; a time later than any other."""
DEAD, ABSENT = -2, -3
"""ABSENT is the NEXT of a record that is in no list of an index."""
PREV, LENGTH = 0, 1
"""The first fields of a node: the node before it, and how many there are up to it."""
BEFORE, POINT, POINT_SIZE = 0, 1, 2
"""The time point before one of a history, and its time. A history is a chain: BEFORE is PREV."""


# --- instances --------------------------------------------------------------------------------------------------------


@njit
def slot_for(index: np.ndarray, key: int) -> int:
    """The offset of a key in an index, or of the unused slot for it."""
    slots = index.shape[0] >> 1
    slot = first_slot(key, slots)
    while index[2 * slot + 1] != EMPTY and index[2 * slot] != key:
        slot = (slot + 1) & (slots - 1)
    return 2 * slot


@njit
def compacted(table: np.ndarray, size: int, top: int, done: int, until: int, now: int) -> int:
    """Drop the instances that were decided before `done`, and those whose deadline (the field `until`; -1: none) is
    before `now`. Returns the new top."""
    kept = 0
    for at in range(0, top, size):
        if table[at + DONE] >= done and (until < 0 or table[at + until] >= now):
            if kept != at:
                for field in range(size):
                    table[kept + field] = table[at + field]
            kept += size
    return kept


@njit
def reindexed(
    index: np.ndarray, table: np.ndarray, size: int, top: int, room: int, link: int, key: int
) -> tuple[np.ndarray, int]:
    """The index of a compacted table with room for more keys, and how many keys it has. `link` and `key` are the
    fields of the index."""
    slots = 16
    while slots < 2 * (top // size + room):
        slots *= 2
    if slots > index.shape[0] >> 1 or 8 * slots < index.shape[0]:
        index = np.empty(2 * slots, np.int64)
    for at in range(1, index.shape[0], 2):
        index[at] = EMPTY
    used = 0
    for at in range(0, top, size):
        if table[at + link] != ABSENT:
            slot = slot_for(index, table[at + key])
            head = index[slot + 1]
            used += int(head == EMPTY)
            table[at + link] = EMPTY if head < 0 else head
            index[slot] = table[at + key]
            index[slot + 1] = at
    return index, used


@njit
def widened(index: np.ndarray, needed: int) -> tuple[np.ndarray, int]:
    """The index with room for `needed` keys and without those that have no instances, and how many keys it has."""
    slots = 16
    while slots < 4 * needed:
        slots *= 2
    new, used = np.full(2 * slots, EMPTY, np.int64), 0
    for at in range(0, index.shape[0], 2):
        if index[at + 1] >= 0:
            slot = slot_for(new, index[at])
            new[slot] = index[at]
            new[slot + 1] = index[at + 1]
            used += 1
    return new, used


@njit
def shifted(table: np.ndarray, first: int, top: int) -> int:
    """Move the records from `first` on to the front. Returns the new top."""
    for at in range(first, top):
        table[at - first] = table[at]
    return top - first


@njit
def trimmed(table: np.ndarray, size: int, top: int) -> np.ndarray:
    """The table without the room after its records, but for one of them."""
    smaller = np.zeros(max(top, size), np.int64)
    for at in range(top):
        smaller[at] = table[at]
    return smaller


@njit
def reverse(values: np.ndarray, start: int, end: int) -> None:
    end -= 1
    while start < end:
        values[start], values[end] = values[end], values[start]
        start += 1
        end -= 1


@njit
def relinked(table: np.ndarray, size: int, top: int, link: int) -> int:
    """The head of the one list of a compacted table without keys."""
    head = EMPTY
    for at in range(0, top, size):
        if table[at + link] != ABSENT:
            table[at + link] = head
            head = at
    return head


@njit
def lowest(table: np.ndarray, size: int, start: int, top: int, field: int, least: int) -> int:
    """The least value of a field, at most `least`. Free records do not count."""
    for at in range(start, top, size):
        if table[at + DONE] != FREED and table[at + field] < least:
            least = table[at + field]
    return least


@njit
def lowest_waiting(queue: np.ndarray, size: int, start: int, top: int, field: int, least: int) -> int:
    """As `lowest`, of a table without free records."""
    for at in range(start, top, size):
        if queue[at + field] < least:
            least = queue[at + field]
    return least


# --- chains -----------------------------------------------------------------------------------------------------------


@njit
def unmarked(top: int, width: int) -> np.ndarray:
    """A mark for each node; none is marked."""
    return np.full(top // width, EMPTY, np.int64)


@njit
def points_to_node(table: np.ndarray, at: int, field: int, frees: bool) -> bool:
    """Whether a field of a record points to a node; with `frees`, the record may be free."""
    points: bool = table[at + field] != EMPTY and (not frees or table[at + DONE] != FREED)
    return points


@njit
def mark(
    table: np.ndarray,
    size: int,
    start: int,
    top: int,
    field: int,
    frees: bool,
    node: np.ndarray,
    width: int,
    marks: np.ndarray,
) -> None:
    """Mark the nodes of the chains that a field of the records in a table points to; with `frees`, records may be
    free."""
    for at in range(start, top, size):
        if points_to_node(table, at, field, frees):
            n = table[at + field]
            while n != EMPTY and marks[n // width] == EMPTY:
                marks[n // width] = 0
                n = node[n + PREV]


@njit
def kept_nodes(node: np.ndarray, width: int, top: int, marks: np.ndarray) -> int:
    """Keep the marked nodes, and store the new offset of each in `marks`. Returns the new top. A node is younger than
    the one before it."""
    kept = 0
    for at in range(0, top, width):
        if marks[at // width] != EMPTY:
            for field in range(width):
                node[kept + field] = node[at + field]
            if node[kept + PREV] != EMPTY:
                node[kept + PREV] = marks[node[kept + PREV] // width]
            marks[at // width] = kept
            kept += width
    return kept


@njit
def forward(
    table: np.ndarray, size: int, start: int, top: int, field: int, frees: bool, width: int, marks: np.ndarray
) -> None:
    """Replace the nodes that a field points to by their new offsets."""
    for at in range(start, top, size):
        if points_to_node(table, at, field, frees):
            table[at + field] = marks[table[at + field] // width]


@njit
def events_in(table: np.ndarray, size: int, top: int, field: int, node: np.ndarray) -> int:
    """The length of the chains that a field of all records points to."""
    total = 0
    for at in range(0, top, size):
        if table[at + field] != EMPTY:
            total += node[table[at + field] + LENGTH]
    return total


# --- histories --------------------------------------------------------------------------------------------------------


@njit
def history_length(history: np.ndarray, point: int) -> int:
    length: int = chain_length(history, point, BEFORE)
    return length


@njit
def history_points(points: np.ndarray, at: int) -> int:
    """The number of time points of a derived event, whose record is at `at`; -1: it is no derived event."""
    return points[at] if at >= 0 else 0


@njit
def recorded(history: np.ndarray, top: int, points: np.ndarray, at: int) -> int:
    """Write the time points of a derived event from `top` on. Returns the new top; the last time point is the last one
    written. There must be room."""
    before = EMPTY
    for point in range(at + 1, at + 1 + points[at]):
        history[top + BEFORE] = before
        history[top + POINT] = points[point]
        before = top
        top += POINT_SIZE
    return top


@njit
def concatenated(history: np.ndarray, top: int, before: int, after: int) -> int:
    """Write the time points of `after`, after those of `before`, from `top` on. Returns the new top; the last time
    point is the last one written. There must be room."""
    end: int = top + POINT_SIZE * history_length(history, after)
    at = end
    while after != EMPTY:
        at -= POINT_SIZE
        history[at + POINT] = history[after + POINT]
        history[at + BEFORE] = before if at == top else at - POINT_SIZE
        after = history[after + BEFORE]
    return end


@njit
def compare_histories(history: np.ndarray, one: int, other: int) -> int:
    """Less than 0 if the first comes first (⊑): lexicographic from the end; of two that agree, the longer."""
    while one != EMPTY and other != EMPTY:
        if history[one + POINT] != history[other + POINT]:
            return -1 if history[one + POINT] < history[other + POINT] else 1
        one = history[one + BEFORE]
        other = history[other + BEFORE]
    return 0 if one == other else 1 if one == EMPTY else -1


@njit
def compare_times(queue: np.ndarray, one: int, other: int, times: int, length: int) -> int:
    """The same for histories of one length, whose time points lie side by side."""
    for field in range(times + length - 1, times - 1, -1):
        if queue[one + field] != queue[other + field]:
            return -1 if queue[one + field] < queue[other + field] else 1
    return 0


@njit
def _comes_before(queue: np.ndarray, one: int, other: int, times: int, length: int, history: np.ndarray) -> bool:
    if length > 0:
        return compare_times(queue, one, other, times, length) < 0
    return compare_histories(history, queue[one + times], queue[other + times]) < 0


@njit
def in_order(queue: np.ndarray, size: int, top: int, times: int, length: int, history: np.ndarray) -> np.ndarray:
    """The candidates of a queue by their histories: `length` fields from `times` on or, if `length` is 0, the list that
    the field `times` points to. Most arrive in order or, out of one list of instances, with the latest first: then
    the merges find nothing to do."""
    count = top // size
    order = np.empty(count, np.int64)
    reversed_ = count > 1 and _comes_before(queue, (count - 1) * size, 0, times, length, history)
    for n in range(count):
        order[n] = (count - 1 - n if reversed_ else n) * size
    merged = np.empty(count, np.int64)
    width = 1
    while width < count:
        for start in range(0, count - width, 2 * width):
            middle, end = start + width, min(start + 2 * width, count)
            if not _comes_before(queue, order[middle], order[middle - 1], times, length, history):
                continue
            left, right = start, middle
            for n in range(start, end):
                if right == end or (
                    left < middle and not _comes_before(queue, order[right], order[left], times, length, history)
                ):
                    merged[n] = order[left]
                    left += 1
                else:
                    merged[n] = order[right]
                    right += 1
            order[start:end] = merged[start:end]
        width *= 2
    return order


IMPORTS = f"""from {__name__} import (
    ABSENT, BEFORE, DEAD, DONE, END, FREED, KEY, LENGTH, NEVER, NEXT, POINT, PREV, compacted, compare_histories,
    compare_times, concatenated, events_in, first_slot, forward, history_length, history_points, in_order,
    kept_nodes, lowest, lowest_waiting, mark, recorded, reindexed, relinked, reverse, shifted, slot_for, trimmed,
    unmarked, widened,
)"""
"""The import of generated modules."""
