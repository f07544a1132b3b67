"""Where runs live: the shared match buffer (SASE+ §5.1), the lists of runs, and how both are reclaimed.

The buffer is a table of nodes. An *event node* is an event selected for a component, with the node selected before it
(`prev`, EMPTY for a run's first event): runs that have a beginning in common share its nodes, and a match is read off
by following `prev`. A *union node* has an `alt` besides: the runs that were merged into one (§5.2.2) are all those that
lead back through `prev` or through `alt`. `start` is where the youngest run that leads back through a node began, so
that members that have left the window are passed over without a look. A node is younger than those it leads to.

Runs wait in lists, one for each partition and component, whose heads lie in an *index*: a hash table in one array, each
slot holding the parts of its key, the number of its runs (EMPTY if the slot is unused), for windows that count the
partition's events the place reached so far, and the heads.
"""

from __future__ import annotations

import numpy as np

from cepheid.kernels.arrays import EMPTY, grown
from cepheid.kernels.jit import njit

ALWAYS = -(2**62)
"""Earlier than any start: without a window nothing expires."""
UNREACHED = np.iinfo(np.int64).max


@njit
def first_slot(hashed: int, slots: int) -> int:
    """Where the search for a key begins."""
    mixed = ((hashed ^ (hashed >> 31)) & 0x7FFFFFFF) * 73244475  # no product here exceeds 63 bits
    return (mixed ^ (mixed >> 16)) & (slots - 1)


@njit
def slot_in(index: np.ndarray, stride: int, slots: int, key: int) -> int:
    """Where the slot of a key of one part lies, or the unused slot where it belongs."""
    slot = first_slot(key, slots)
    while index[slot * stride + 1] != EMPTY and index[slot * stride] != key:
        slot = (slot + 1) & (slots - 1)
    return slot * stride


@njit
def hash_of(index: np.ndarray, at: int, parts: int) -> int:
    hashed = index[at]
    for part in range(1, parts):
        hashed = (((hashed ^ (hashed >> 31)) & 0x7FFFFFFF) * 73244475) ^ index[at + part]
    return hashed


@njit
def rehashed_index(index: np.ndarray, stride: int, parts: int, room: int) -> tuple[np.ndarray, int, int]:
    """The index with room for more keys and without those that have no runs, its slots, and how many are used."""
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
            slot = first_slot(hash_of(index, at, parts), slots)
            while new[slot * stride + parts] != EMPTY:
                slot = (slot + 1) & (slots - 1)
            new[slot * stride : (slot + 1) * stride] = index[at : at + stride]
    return new, slots, live


@njit
def release(index: np.ndarray, head: int, run_next: np.ndarray, free: int) -> tuple[int, int]:
    """Empty a list into the list of free runs; its new head, and how many runs there were."""
    run, released = index[head], 0
    while run != EMPTY:
        following = run_next[run]
        run_next[run] = free
        free = run
        released += 1
        run = following
    index[head] = EMPTY
    return free, released


@njit
def drop_expired(
    index: np.ndarray,
    stride: int,
    parts: int,
    heads: int,
    floor: int,
    limit: int,
    run_next: np.ndarray,
    run_start: np.ndarray,
    free: int,
) -> tuple[int, int]:
    """Free the runs that have left the window: those that began before `floor`, or in an index whose slots know the
    place their partition has reached (`heads` leaves room for it), more than `limit` before that place."""
    dropped = 0
    for at in range(0, index.shape[0], stride):
        if index[at + parts] <= 0:
            continue
        oldest = index[at + parts + 1] - limit if heads > parts + 1 else floor
        before = dropped
        for head in range(at + heads, at + stride):
            previous, run = EMPTY, index[head]
            while run != EMPTY:
                following = run_next[run]
                if run_start[run] < oldest:
                    if previous == EMPTY:
                        index[head] = following
                    else:
                        run_next[previous] = following
                    run_next[run] = free
                    free = run
                    dropped += 1
                else:
                    previous = run
                run = following
        index[at + parts] -= dropped - before
    return free, dropped


@njit
def mark_reached(
    index: np.ndarray,
    stride: int,
    parts: int,
    heads: int,
    floor: int,
    limit: int,
    run_next: np.ndarray,
    run_node: np.ndarray,
    marks: np.ndarray,
) -> None:
    """Mark the nodes that runs point to with the oldest start that still matters to them."""
    for at in range(0, index.shape[0], stride):
        if index[at + parts] > 0:
            oldest = index[at + parts + 1] - limit if heads > parts + 1 else floor
            for head in range(at + heads, at + stride):
                run = index[head]
                while run != EMPTY:
                    marks[run_node[run]] = oldest
                    run = run_next[run]


@njit
def forward_runs(
    index: np.ndarray,
    stride: int,
    parts: int,
    heads: int,
    run_next: np.ndarray,
    run_node: np.ndarray,
    marks: np.ndarray,
) -> None:
    """Point runs to the new places of their nodes."""
    for at in range(0, index.shape[0], stride):
        if index[at + parts] > 0:
            for head in range(at + heads, at + stride):
                run = index[head]
                while run != EMPTY:
                    run_node[run] = marks[run_node[run]]
                    run = run_next[run]


@njit
def compact_nodes(
    marks: np.ndarray,
    row: np.ndarray,
    prev: np.ndarray,
    alt: np.ndarray,
    start: np.ndarray,
    step: np.ndarray,
    depth: np.ndarray,
) -> int:
    """Keep what the marked nodes lead to, within their windows, and leave in `marks` where each node went; the number
    of nodes kept. A union of which one side has expired is its other side."""
    for node in range(marks.shape[0] - 1, -1, -1):
        floor = marks[node]
        if floor != UNREACHED:
            if prev[node] != EMPTY and start[prev[node]] >= floor:
                marks[prev[node]] = floor
            if alt[node] != EMPTY and start[alt[node]] >= floor:
                marks[alt[node]] = floor
    kept = 0
    for node in range(marks.shape[0]):
        if marks[node] == UNREACHED:
            continue
        left = EMPTY if prev[node] == EMPTY else marks[prev[node]]
        right = EMPTY if alt[node] == EMPTY else marks[alt[node]]
        if left == UNREACHED:
            marks[node] = right
        elif right == UNREACHED:
            marks[node] = left
        else:
            row[kept] = row[node]
            prev[kept] = left
            alt[kept] = right
            start[kept] = start[node]
            step[kept] = step[node]
            depth[kept] = 1
            if left != EMPTY:
                depth[kept] = 1 + depth[left] if right == EMPTY else 1 + max(depth[left], depth[right])
            marks[node] = kept
            kept += 1
    return kept


@njit
def add_node(
    node: int,
    at_row: int,
    at_step: int,
    before: int,
    began: int,
    row: np.ndarray,
    prev: np.ndarray,
    alt: np.ndarray,
    start: np.ndarray,
    step: np.ndarray,
    depth: np.ndarray,
) -> None:
    """Select an event for a component after the node `before` (EMPTY: as the first event of a run)."""
    row[node] = at_row
    prev[node] = before
    alt[node] = EMPTY
    start[node] = began
    step[node] = at_step
    depth[node] = 1 if before == EMPTY else depth[before] + 1


@njit
def unite(
    node: int, one: int, other: int, prev: np.ndarray, alt: np.ndarray, start: np.ndarray, depth: np.ndarray
) -> None:
    """Make a node a union of two others."""
    prev[node] = one
    alt[node] = other
    start[node] = max(start[one], start[other])
    depth[node] = 1 + max(depth[one], depth[other])


@njit
def join(
    event: int,
    joining: int,
    node: int,
    row: np.ndarray,
    prev: np.ndarray,
    alt: np.ndarray,
    start: np.ndarray,
    step: np.ndarray,
    depth: np.ndarray,
) -> None:
    """Let what leads to `joining` lead to an event node too. The event moves to the new node, so that it stays younger
    than the union, which takes its old place."""
    unite(event, joining, prev[event], prev, alt, start, depth)
    add_node(node, row[event], step[event], event, start[event], row, prev, alt, start, step, depth)


@njit
def write_matches(
    found: int,
    found_node: np.ndarray,
    found_row: np.ndarray,
    found_step: np.ndarray,
    found_floor: np.ndarray,
    width: int,
    row: np.ndarray,
    prev: np.ndarray,
    alt: np.ndarray,
    start: np.ndarray,
    step: np.ndarray,
    depth: np.ndarray,
    values: np.ndarray,
    bounds: np.ndarray,
    written: int,
    ends: int,
) -> tuple[np.ndarray, np.ndarray, int, int]:
    """Match construction: follow every path from the completed runs back to their beginnings, and write the events.

    `written` and `ends` are how much of `values` and `bounds` is filled."""
    rows = np.empty(64, np.int64)
    steps = np.empty(64, np.int64)
    later_node = np.empty(64, np.int64)
    later_length = np.empty(64, np.int64)
    for i in range(found):
        node, floor, length, later = found_node[i], found_floor[i], 0, 0
        if node != EMPTY and depth[node] > rows.shape[0]:
            rows = np.empty(2 * depth[node], np.int64)
            steps = np.empty(2 * depth[node], np.int64)
            later_node = np.empty(2 * depth[node], np.int64)
            later_length = np.empty(2 * depth[node], np.int64)
        while True:
            while node != EMPTY:
                if alt[node] == EMPTY:
                    rows[length] = row[node]
                    steps[length] = step[node]
                    length += 1
                    node = prev[node]
                elif start[prev[node]] < floor:
                    node = alt[node]
                else:
                    if start[alt[node]] >= floor:
                        later_node[later] = alt[node]
                        later_length[later] = length
                        later += 1
                    node = prev[node]
            values = grown(values, written + length + 1)
            bounds = grown(bounds, ends + width + 1)
            at = 0
            for k in range(length - 1, -1, -1):
                while at < steps[k]:
                    at += 1
                    bounds[ends + at] = written
                values[written] = rows[k]
                written += 1
            while at < found_step[i]:
                at += 1
                bounds[ends + at] = written
            values[written] = found_row[i]
            written += 1
            while at < width:
                at += 1
                bounds[ends + at] = written
            ends += width
            if later == 0:
                break
            later -= 1
            node, length = later_node[later], later_length[later]
    return values, bounds, written, ends
