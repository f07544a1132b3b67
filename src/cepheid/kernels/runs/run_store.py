"""The storage of runs: the shared match buffer (SASE+ §5.1), the lists of runs, and the reclaiming of both.

Each table is one array of integers, and a record is identified by its offset: `node[n + PREV]` is a field of the node
at n. The fields of a record are adjacent in memory, and a kernel passes few arrays.

The buffer is a table of nodes. An *event node* is an event selected for a component, with the node selected before it
(PREV, EMPTY for a run's first event). Runs with a common prefix share its nodes, and PREV leads from the last event of
a match to the first. The runs that were merged into one (§5.2.2) are the paths through a node's PREV and those through
its ALT. A *union node* (STEP is UNION) has no event of its own, only PREV and ALT. OWN is where the youngest run
through a node's own event began, and BEGAN the same with the runs through ALT, so expired runs are skipped without a
visit. A node is younger than the nodes that it points to.

Runs wait in lists, one for each partition and component. The heads of the lists are in an *index*: a hash table whose
slots hold the parts of the key, the number of runs (EMPTY if the slot is unused), the measure that the partition has
reached (for windows that count the partition's events), and the heads.
"""

from __future__ import annotations

import numpy as np

from cepheid.runtime.arrays import EMPTY, chain_length, first_slot, grown
from cepheid.runtime.jit import njit
from cepheid.runtime.prefetch import AHEAD, SOON, prefetch

BEGAN = 0
"""Where a run began in the window's measure: a field of nodes and of runs."""
ROW, PREV, ALT, STEP, OWN, NODE_SIZE = 1, 2, 3, 4, 5, 6
"""A node: the event's position, the nodes it points to, its component, and where the youngest run through it began."""
UNION = -1
NEXT, NODE, RUN_SIZE = 1, 2, 3
"""A run: the next one in its list, and the node of its last event. Its values follow."""
BEFORE, LAST_ROW, LAST_STEP, FLOOR, FOUND_SIZE = 0, 1, 2, 3, 4
"""A completed run: the node of its last event but one, the position and the component of its last event, and the oldest
start that fits the window."""

ALWAYS = -(2**62)
"""Earlier than any start: without a window nothing expires."""
UNREACHED = np.iinfo(np.int64).max


# --- the index --------------------------------------------------------------------------------------------------------


@njit
def slot_in(index: np.ndarray, stride: int, slots: int, key: int) -> int:
    """The offset of the slot of a key of one part, or of the unused slot for it."""
    slot = first_slot(key, slots)
    while index[slot * stride + 1] != EMPTY and index[slot * stride] != key:
        slot = (slot + 1) & (slots - 1)
    return slot * stride


@njit
def _hash_of(index: np.ndarray, at: int, parts: int) -> int:
    hashed: int = index[at]
    for part in range(1, parts):
        hashed = (((hashed ^ (hashed >> 31)) & 0x7FFFFFFF) * 73244475) ^ index[at + part]
    return hashed


@njit
def rehashed_index(index: np.ndarray, stride: int, parts: int, room: int) -> tuple[np.ndarray, int, int]:
    """The index with room for more keys and without keys that have no runs, the number of its slots, and how many are
    used."""
    live = 0
    for at in range(0, index.shape[0], stride):
        if index[at + parts] > 0:
            live += 1
    slots = 16
    while slots < 2 * (2 * live + room):
        slots *= 2
    new = np.full(slots * stride, EMPTY, index.dtype)
    for at in range(0, index.shape[0], stride):
        if index[at + parts] > 0:
            slot = first_slot(_hash_of(index, at, parts), slots)
            while new[slot * stride + parts] != EMPTY:
                slot = (slot + 1) & (slots - 1)
            for field in range(stride):
                new[slot * stride + field] = index[at + field]
    return new, slots, live


@njit
def met_before(meet: np.ndarray, runs: int) -> np.ndarray:
    """The hash table of equal runs, twice as large as the table of runs: pairs of a stamp and a run. A stamp is unique
    to an event and a state, so no entry has to be removed."""
    size = meet.shape[0]
    while size < 4 * runs:
        size *= 2
    return meet if size == meet.shape[0] else np.full(size, EMPTY, np.int64)


@njit
def release(index: np.ndarray, head: int, run: np.ndarray, free: int) -> tuple[int, int]:
    """Move all runs of a list to the list of free runs. Returns the head of that list, and the number of runs."""
    r, released = index[head], 0
    while r != EMPTY:
        following = run[r + NEXT]
        run[r + NODE] = EMPTY
        run[r + NEXT] = free
        free = r
        released += 1
        r = following
    index[head] = EMPTY
    return free, released


# --- reclaiming -------------------------------------------------------------------------------------------------------


@njit
def sweep(
    index: np.ndarray,
    stride: int,
    parts: int,
    heads: int,
    floor: int,
    limit: int,
    run: np.ndarray,
    free: int,
    marks: np.ndarray,
) -> tuple[int, int]:
    """Free the runs that have left the window, and mark the nodes of the others with the oldest start that fits it:
    `floor` or, in an index whose slots store the measure that their partition has reached (before the heads), `limit`
    before that measure. Returns the list of free runs, and the number of freed runs."""
    dropped = 0
    for at in range(0, index.shape[0], stride):
        if index[at + parts] <= 0:
            continue
        oldest = index[at + parts + 1] - limit if heads > parts + 1 else floor
        before = dropped
        for head in range(at + heads, at + stride):
            previous, r = EMPTY, index[head]
            while r != EMPTY:
                following = run[r + NEXT]
                if run[r + BEGAN] < oldest:
                    if previous == EMPTY:
                        index[head] = following
                    else:
                        run[previous + NEXT] = following
                    run[r + NODE] = EMPTY
                    run[r + NEXT] = free
                    free = r
                    dropped += 1
                else:
                    if run[r + NODE] != EMPTY:
                        marks[run[r + NODE] // NODE_SIZE] = oldest
                    previous = r
                r = following
        index[at + parts] -= dropped - before
    return free, dropped


@njit
def forward_runs(run: np.ndarray, top: int, size: int, marks: np.ndarray) -> None:
    """Replace the nodes of runs by their new offsets; free runs have none."""
    for r in range(0, top, size):
        if run[r + NODE] != EMPTY:
            run[r + NODE] = marks[run[r + NODE] // NODE_SIZE]


@njit
def compact(node: np.ndarray, marks: np.ndarray) -> int:
    """Keep the nodes that are reachable from marked nodes within their windows, and store each node's new offset in
    `marks`. Returns the length of the kept nodes. A node with one expired side is replaced by its other side."""
    for i in range(marks.shape[0] - 1, -1, -1):
        floor, n = marks[i], i * NODE_SIZE
        if floor != UNREACHED:
            if node[n + PREV] != EMPTY and node[n + OWN] >= floor:
                marks[node[n + PREV] // NODE_SIZE] = min(marks[node[n + PREV] // NODE_SIZE], floor)
            if node[n + ALT] != EMPTY and node[node[n + ALT] + BEGAN] >= floor:
                marks[node[n + ALT] // NODE_SIZE] = min(marks[node[n + ALT] // NODE_SIZE], floor)
    kept = 0
    for i in range(marks.shape[0]):
        floor, n = marks[i], i * NODE_SIZE
        if floor == UNREACHED:
            continue
        alt = EMPTY if node[n + ALT] == EMPTY else marks[node[n + ALT] // NODE_SIZE]
        alt = EMPTY if alt == UNREACHED else alt
        prev = EMPTY if node[n + PREV] == EMPTY else marks[node[n + PREV] // NODE_SIZE]
        if node[n + OWN] < floor:
            marks[i] = alt
        elif node[n + STEP] == UNION and alt == EMPTY:
            marks[i] = prev
        else:
            marks[i] = kept
            alt_began = ALWAYS if alt == EMPTY else node[alt + BEGAN]
            add_union(node, kept, node[n + ROW], node[n + STEP], prev, node[n + OWN], alt, alt_began)
            kept += NODE_SIZE
    return kept


@njit
def mark_waiting(waiting: np.ndarray, items: np.ndarray, waits: int, marks: np.ndarray) -> None:
    """Mark the nodes of matches that are complete but not yet certain."""
    for i in range(waits):
        before = waiting[items[i] + BEFORE]
        if before != EMPTY:
            marks[before // NODE_SIZE] = min(marks[before // NODE_SIZE], waiting[items[i] + FLOOR])


@njit
def forward_waiting(waiting: np.ndarray, items: np.ndarray, waits: int, marks: np.ndarray) -> None:
    for i in range(waits):
        before = waiting[items[i] + BEFORE]
        if before != EMPTY:
            waiting[items[i] + BEFORE] = marks[before // NODE_SIZE]


# --- the buffer -------------------------------------------------------------------------------------------------------


@njit
def add_node(node: np.ndarray, n: int, row: int, step: int, before: int, began: int) -> None:
    """Select an event for a component after the node `before` (EMPTY: as the first event of a run)."""
    add_union(node, n, row, step, before, began, EMPTY, began)


@njit
def add_union(node: np.ndarray, n: int, row: int, step: int, before: int, began: int, alt: int, alt_began: int) -> None:
    """Select an event for a component after the node `before`, with the node `alt` as the alternative."""
    node[n + BEGAN] = max(began, alt_began)
    node[n + ROW] = row
    node[n + PREV] = before
    node[n + ALT] = alt
    node[n + STEP] = step
    node[n + OWN] = began


@njit
def join(node: np.ndarray, event: int, joining: int, n: int) -> None:
    """Add the paths of `joining` to those of an event node. The event moves to the new node, so that it stays younger
    than the union, which takes its old offset."""
    row, step, before = node[event + ROW], node[event + STEP], node[event + PREV]
    add_union(node, event, row, UNION, joining, node[joining + BEGAN], before, node[before + BEGAN])
    add_node(node, n, row, step, event, node[event + BEGAN])


@njit
def join_from(node: np.ndarray, event: int, joining: int, n: int, began: int) -> None:
    """As `join`, for an event that began before it ended, and maybe before the others."""
    join(node, event, joining, n)
    node[n + BEGAN] = min(node[n + BEGAN], began)
    node[n + OWN] = node[n + BEGAN]


@njit
def precedes(node: np.ndarray, found: np.ndarray, one: int, other: int) -> bool:
    """Whether the first of two runs that one event completed, and that were never merged, comes first: the run that
    started first, and of those the run whose events come earlier, or for an earlier component."""
    size = 1 + max(chain_length(node, found[one + BEFORE], PREV), chain_length(node, found[other + BEFORE], PREV))
    chosen = np.full((2, size, 2), EMPTY, np.int64)
    for which in range(2):
        i = other if which else one
        n = found[i + BEFORE]
        at = chain_length(node, n, PREV)
        chosen[which, at, 0], chosen[which, at, 1] = found[i + LAST_ROW], found[i + LAST_STEP]
        while n != EMPTY:
            at -= 1
            chosen[which, at, 0], chosen[which, at, 1] = node[n + ROW], node[n + STEP]
            n = node[n + PREV]
    for at in range(size):
        for part in range(2):
            if chosen[0, at, part] != chosen[1, at, part]:
                return bool(chosen[0, at, part] < chosen[1, at, part])
    return False


@njit
def write_matches(
    found: np.ndarray,
    count: int,
    width: int,
    node: np.ndarray,
    values: np.ndarray,
    bounds: np.ndarray,
    written: int,
    ends: int,
    most: int,
    most_words: int,
) -> tuple[np.ndarray, np.ndarray, int, int, int]:
    """Match construction: follow every path from the completed runs back to their first events, and write the events.

    `written` and `ends` are the used lengths of `values` and `bounds`. Construction ends at an event that completes
    more than `most` matches, whose position plus 1 is returned, or at one whose matches need more than `most_words`
    words of memory: then its position plus 1 is returned negated."""
    current, completed = -1, 0
    size = 64
    rows, steps = np.empty(size, np.int64), np.empty(size, np.int64)
    later_node, later_length = np.empty(size, np.int64), np.empty(size, np.int64)
    for i in range(0, count, FOUND_SIZE):
        # prefetch the nodes of later matches
        ahead, soon = i + AHEAD * FOUND_SIZE, i + SOON * FOUND_SIZE
        if ahead < count:
            prefetch(node, found[ahead + BEFORE])
        if soon < count and found[soon + BEFORE] != EMPTY:
            prefetch(node, node[found[soon + BEFORE] + PREV])
        n, floor, length, later = found[i + BEFORE], found[i + FLOOR], 0, 0
        if found[i + LAST_ROW] != current:
            current, completed = found[i + LAST_ROW], 0
        while True:
            while n != EMPTY:
                if max(length, later) == size:
                    size *= 2
                    rows, steps = grown(rows, size), grown(steps, size)
                    later_node, later_length = grown(later_node, size), grown(later_length, size)
                while n != EMPTY and length < size and later < size:
                    if node[n + OWN] < floor:
                        n = node[n + ALT]
                        continue
                    if node[n + ALT] != EMPTY and node[node[n + ALT] + BEGAN] >= floor:
                        later_node[later] = node[n + ALT]
                        later_length[later] = length
                        later += 1
                    if node[n + STEP] != UNION:
                        rows[length] = node[n + ROW]
                        steps[length] = node[n + STEP]
                        length += 1
                    n = node[n + PREV]
            completed += 1
            if completed > most:
                return values, bounds, written, ends, current + 1
            if written + length + 1 > most_words:
                return values, bounds, written, ends, -current - 1
            values = grown(values, written + length + 1)
            bounds = grown(bounds, ends + width + 1)
            at = 0
            for k in range(length - 1, -1, -1):
                while at < steps[k]:
                    at += 1
                    bounds[ends + at] = written
                values[written] = rows[k]
                written += 1
            while at < found[i + LAST_STEP]:
                at += 1
                bounds[ends + at] = written
            values[written] = found[i + LAST_ROW]
            written += 1
            while at < width:
                at += 1
                bounds[ends + at] = written
            ends += width
            if later == 0:
                break
            later -= 1
            n, length = later_node[later], later_length[later]
    return values, bounds, written, ends, 0


IMPORTS = f"""from {__name__} import (
    ALWAYS, BEFORE, BEGAN, FLOOR, FOUND_SIZE, LAST_ROW, LAST_STEP, NEXT, NODE, NODE_SIZE, ROW, UNREACHED,
    add_node, add_union, compact, first_slot, forward_runs, forward_waiting, join, mark_waiting,
    met_before, precedes, rehashed_index, release, slot_in, sweep, write_matches,
)"""
"""The import of generated modules."""
IMPORT_DURATIONS = f"from {__name__} import join_from"
"""The further import of modules for events with duration."""
