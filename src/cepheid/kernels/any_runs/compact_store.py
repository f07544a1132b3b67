"""The store that partial matches share: sets of sequences of events, in space that does not grow with their number.

After CORE's timed enumerable compact sets (tECS). A *node* is an event that may come last, in the role of a step, and
the set of sequences that may come before it (`BEFORE`, itself a node; EMPTY where the event is the first). A node is
also the root of a set: its own sequences and those of `LEFT` and `RIGHT`. `START` is where the node's own latest
sequence starts, in the measure of the window. No child starts later than its parent, so a walk over
a set with a window skips expired nodes without visiting them, and every visited node yields a sequence: the delay
between two matches is linear in the length of the next one.

Nodes never change, so sets share them. Putting an event into a set makes one node if it starts as late as the set does,
which is always so where partial matches differ in their events only; otherwise a path is copied, of logarithmic length
since sets are leftist heaps (`RANK`). What a node points to was made before it, so numbers are in topological order.

A *group* is a set of partial matches for which the automaton will do the same: those in one table with one vector of
values (its *words*, the first of them the table's number). Groups are found by all their words (CHAIN) or by the first
few, those that an event's own values must equal (LINK).
"""

from __future__ import annotations

import numpy as np

from cepheid.runtime.arrays import EMPTY, copy, grown, heap_push
from cepheid.runtime.jit import entry, njit
from cepheid.runtime.kernel import FREE, OLDEST, VALUES

Array = np.ndarray

ROW, STEP, BEFORE, START, TIME, LEFT, RIGHT, RANK, NODE_VALUES = range(9)
"""The fields of a node; after them the values that a summary of the matches reads."""
SET, LATEST, CHAIN, LINK, WIDTH, INDEXED, WORDS = range(7)
"""The fields of a group; LATEST is the measure of the last event put into it, WIDTH the number of its words and INDEXED
of those that it is linked by (0: by none, or no longer, because its sequences had expired)."""
EARLIER, SINCE = 2, 1
"""Where events of one time are not in sequence, the last two fields of a group, counted from its end: the time of the
last event put into it, and the set before that time, which events of that time read."""
MARK = -2
"""In place of a group's set: the group only stores when a negative event occurred last."""

NODES, MADE, GROUPS, KEPT, TIDIED, NEGATIVES, PENDING, FIRST_ROW = range(FREE, FREE + 8)
"""Registers: nodes in the store, nodes ever made, groups, nodes kept when the store was last tidied and the measure
then, negative events, groups that wait for a trailing negation, and the oldest event in the store."""
LAST_END, ENDED_LAST, ENDED_EARLIER, REGISTERS = range(FREE + 8, FREE + 12)
"""Registers for LIMIT: when the latest matches ended, how many of them were returned, and how many that ended
earlier."""

LOWEST = int(np.iinfo(np.int64).min) // 2
"""Before every start."""
NEVER = LOWEST - 1
"""The time of the latest negative event if there is none."""
_LONGEST_PATH = 64
"""More nodes than one insertion makes: a set of n nodes has a rank of at most log2 n."""


# --- nodes ------------------------------------------------------------------------------------------------------------


@njit
def is_alive(nodes: Array, stride: int, node: int, floor: int) -> bool:
    """Whether a set has a sequence that starts at `floor` or later."""
    return node >= 0 and nodes[node * stride + START] >= floor


@njit
def with_item(nodes: Array, registers: Array, item: Array, root: int, floor: int) -> tuple[Array, int]:
    """A set with one more item: the nodes and its root. Sequences that start before `floor` are dropped."""
    stride = item.shape[0]
    made = registers[NODES]
    nodes = grown(nodes, (made + _LONGEST_PATH) * stride)
    depth = 0
    below = root
    while is_alive(nodes, stride, below, floor) and nodes[below * stride + START] > item[START]:
        depth += 1
        below = nodes[below * stride + RIGHT]
    lowest = made * stride
    copy(item, 0, nodes, lowest, stride)
    nodes[lowest + LEFT] = below if is_alive(nodes, stride, below, floor) else EMPTY
    nodes[lowest + RIGHT] = EMPTY
    nodes[lowest + RANK] = 1
    for height in range(depth, 0, -1):
        copy(nodes, root * stride, nodes, (made + height) * stride, stride)
        root = nodes[root * stride + RIGHT]
    for height in range(1, depth + 1):
        nodes[(made + height) * stride + RIGHT] = made + height - 1
        settle(nodes, stride, made + height, floor)
    registers[NODES] += depth + 1
    registers[MADE] += depth + 1
    return nodes, made + depth


@njit
def settle(nodes: Array, stride: int, node: int, floor: int) -> None:
    """Drop children that have expired, and put the one of lower rank on the right."""
    at = node * stride
    left = nodes[at + LEFT] if is_alive(nodes, stride, nodes[at + LEFT], floor) else EMPTY
    right = nodes[at + RIGHT] if is_alive(nodes, stride, nodes[at + RIGHT], floor) else EMPTY
    left_rank = nodes[left * stride + RANK] if left >= 0 else 0
    right_rank = nodes[right * stride + RANK] if right >= 0 else 0
    if left_rank < right_rank:
        left, right, right_rank = right, left, left_rank
    nodes[at + LEFT] = left
    nodes[at + RIGHT] = right
    nodes[at + RANK] = right_rank + 1


# --- groups -----------------------------------------------------------------------------------------------------------


@njit
def hashed(words: Array, start: int, count: int) -> int:
    mixed = 0
    for i in range(start, start + count):
        word = words[i]
        # No product here exceeds 63 bits, so nothing wraps around.
        mixed = ((mixed ^ (mixed >> 17) ^ word ^ (word >> 32)) & 0x7FFFFFFF) * 73244475
    return mixed ^ (mixed >> 16)


@njit
def agrees(groups: Array, at: int, words: Array, count: int) -> bool:
    same = 0
    while same < count and groups[at + WORDS + same] == words[same]:
        same += 1
    return same == count


@njit
def find_group(groups: Array, heads: Array, words: Array, width: int) -> int:
    """The group with these words, or EMPTY. The array of words is as long as a group is."""
    stride = words.shape[0]
    group: int = heads[hashed(words, 0, width) & (heads.shape[0] // 2 - 1)]
    while group != EMPTY:
        at = group * stride
        if groups[at + WIDTH] == width and agrees(groups, at, words, width):
            return group
        group = groups[at + CHAIN]
    return EMPTY


@njit
def next_linked(
    groups: Array, heads: Array, nodes: Array, node_stride: int, words: Array, indexed: int, last: int, floor: int
) -> int:
    """The group after `last` of those that are linked by these words and have a sequence that starts at `floor` or
    later; the first one after EMPTY. The others leave the chain, so that an event does not visit them again."""
    stride = words.shape[0]
    if last != EMPTY:
        head = EMPTY
        group = groups[last * stride + LINK]
    else:
        size = heads.shape[0] // 2
        head = size + (hashed(words, 0, indexed) & (size - 1))
        group = heads[head]
    before = last
    while group != EMPTY:
        at = group * stride
        after = groups[at + LINK]
        if groups[at + INDEXED] == indexed and agrees(groups, at, words, indexed):
            if is_alive(nodes, node_stride, groups[at + SET], floor):
                return int(group)
            groups[at + INDEXED] = 0
            if before == EMPTY:
                heads[head] = after
            else:
                groups[before * stride + LINK] = after
        else:
            before = group
        group = after
    return int(EMPTY)


@njit
def group_of(
    groups: Array, heads: Array, registers: Array, words: Array, width: int, indexed: int
) -> tuple[Array, Array, int]:
    """The group with these words, made if there is none, and linked by the first `indexed` of them."""
    stride = words.shape[0]
    group = find_group(groups, heads, words, width)
    if group != EMPTY:
        if groups[group * stride + INDEXED] != indexed:  # it had left the chain
            groups[group * stride + INDEXED] = indexed
            link_by_index(groups, heads, stride, group)
        return groups, heads, group
    group = registers[GROUPS]
    registers[GROUPS] += 1
    groups = grown(groups, (group + 1) * stride)
    at = group * stride
    groups[at + SET] = EMPTY
    groups[at + WIDTH] = width
    groups[at + INDEXED] = indexed
    copy(words, 0, groups, at + WORDS, width)
    if 4 * (group + 1) > heads.shape[0]:
        return groups, linked_anew(groups, stride, group + 1), group
    link(groups, heads, stride, group)
    return groups, heads, group


@njit
def link(groups: Array, heads: Array, stride: int, group: int) -> None:
    at = group * stride
    size = heads.shape[0] // 2
    head = hashed(groups, at + WORDS, groups[at + WIDTH]) & (size - 1)
    groups[at + CHAIN] = heads[head]
    heads[head] = group
    link_by_index(groups, heads, stride, group)


@njit
def link_by_index(groups: Array, heads: Array, stride: int, group: int) -> None:
    at = group * stride
    size = heads.shape[0] // 2
    groups[at + LINK] = EMPTY
    if groups[at + INDEXED] > 0:
        head = size + (hashed(groups, at + WORDS, groups[at + INDEXED]) & (size - 1))
        groups[at + LINK] = heads[head]
        heads[head] = group


@njit
def linked_anew(groups: Array, stride: int, count: int) -> Array:
    """The heads of the chains of `count` groups, with room for twice as many."""
    size = 16
    while size < 4 * count:
        size *= 2
    heads = np.full(2 * size, EMPTY, np.int64)
    for group in range(count):
        link(groups, heads, stride, group)
    return heads


@njit
def put(
    nodes: Array, groups: Array, registers: Array, group_stride: int, group: int, item: Array, floor: int, measure: int
) -> Array:
    """Put an item into a group's set."""
    at = group * group_stride
    nodes, groups[at + SET] = with_item(nodes, registers, item, groups[at + SET], floor)
    groups[at + LATEST] = measure
    if registers[FIRST_ROW] < 0:
        registers[FIRST_ROW] = item[ROW]
    return nodes


@njit
def note_time(groups: Array, group_stride: int, group: int, is_new: bool, time: int) -> None:
    """Before an event of this time is put into a group: remember the set that events of the same time read."""
    end = (group + 1) * group_stride
    if is_new:
        groups[end - EARLIER] = EMPTY
    elif groups[end - SINCE] != time:
        groups[end - EARLIER] = groups[end - group_stride + SET]
    groups[end - SINCE] = time


@njit
def set_before(groups: Array, group_stride: int, group: int, time: int) -> int:
    """The set of a group without the sequences that end at this time."""
    end = (group + 1) * group_stride
    before: int = groups[end - EARLIER] if groups[end - SINCE] == time else groups[end - group_stride + SET]
    return before


@njit
def with_match(nodes: Array, registers: Array, roots: Array, item: Array, floor: int) -> tuple[Array, Array]:
    """Add the sequences of an item to the matches."""
    nodes, root = with_item(nodes, registers, item, int(EMPTY), floor)
    return nodes, with_root(registers, roots, root, floor)


@njit
def with_root(registers: Array, roots: Array, root: int, floor: int) -> Array:
    written = registers[VALUES]
    roots = grown(roots, written + 2)
    roots[written] = root
    roots[written + 1] = floor
    registers[VALUES] += 2
    return roots


# --- expiry -----------------------------------------------------------------------------------------------------------


@entry
def tidied(
    nodes: Array, groups: Array, registers: Array, stride: int, group_stride: int, floor: int, limit: int, by_time: bool
) -> tuple[Array, Array, Array, Array]:
    """Nodes and groups within the window, the heads of the groups' chains, and each group's new number. If the measure
    is the position in a partition (`limit` >= 0), each group has a window of its own, up to the last event put into
    it. With `by_time` groups have the field EARLIER."""
    count = registers[GROUPS]
    moved = np.full(count, EMPTY, np.int64)
    floors = np.full(registers[NODES] + 1, EMPTY, np.int64)
    marked = np.zeros(registers[NODES] + 1, np.bool_)
    kept_groups = 0
    for group in range(count):
        at = group * group_stride
        own = groups[at + LATEST] - limit if limit >= 0 else floor
        root = groups[at + SET]
        if is_alive(nodes, stride, root, own):
            _mark_root(root, own, marked, floors)
            if by_time and is_alive(nodes, stride, groups[at + group_stride - EARLIER], own):
                _mark_root(groups[at + group_stride - EARLIER], own, marked, floors)
        elif root != MARK or groups[at + LATEST] < floor:
            continue
        moved[group] = kept_groups
        kept_groups += 1
    _mark(nodes, stride, marked, floors)
    kept_nodes, numbers, first_row = _kept_nodes(nodes, stride, marked, floors)
    kept = np.empty(max(1, kept_groups) * group_stride, np.int64)
    for group in range(count):
        if moved[group] != EMPTY:
            at = moved[group] * group_stride
            copy(groups, group * group_stride, kept, at, group_stride)
            if kept[at + SET] >= 0:
                kept[at + SET] = numbers[kept[at + SET]]
            if by_time and kept[at + group_stride - EARLIER] >= 0:
                kept[at + group_stride - EARLIER] = numbers[kept[at + group_stride - EARLIER]]
    registers[GROUPS] = kept_groups
    registers[NODES] = registers[KEPT] = kept_nodes.shape[0] // stride - _LONGEST_PATH
    registers[FIRST_ROW] = first_row
    return kept_nodes, kept, linked_anew(kept, group_stride, kept_groups), moved


@njit
def _mark_root(root: int, floor: int, marked: Array, floors: Array) -> None:
    floors[root] = min(floors[root], floor) if marked[root] else floor
    marked[root] = True


@njit
def _mark(nodes: Array, stride: int, marked: Array, floors: Array) -> None:
    """Mark the nodes that are reachable from marked ones. A node points to lower numbers only."""
    for node in range(marked.shape[0] - 2, -1, -1):
        if marked[node]:
            for field in (BEFORE, LEFT, RIGHT):
                child = nodes[node * stride + field]
                if is_alive(nodes, stride, child, floors[node]):
                    floors[child] = min(floors[child], floors[node]) if marked[child] else floors[node]
                    marked[child] = True


@njit
def _kept_nodes(nodes: Array, stride: int, marked: Array, floors: Array) -> tuple[Array, Array, int]:
    """The marked nodes with room for more, the new number of each node, and the oldest event among them."""
    numbers = np.full(marked.shape[0], EMPTY, np.int64)
    kept = np.empty((np.sum(marked) + _LONGEST_PATH) * stride, np.int64)
    made = 0
    first_row = -1
    for node in range(marked.shape[0] - 1):
        if marked[node]:
            at = made * stride
            copy(nodes, node * stride, kept, at, stride)
            for field in (BEFORE, LEFT, RIGHT):
                if kept[at + field] >= 0:
                    kept[at + field] = numbers[kept[at + field]]
            settle(kept, stride, made, floors[node])
            if first_row < 0 or kept[at + ROW] < first_row:
                first_row = kept[at + ROW]
            numbers[node] = made
            made += 1
    return kept, numbers, first_row


@entry
def reachable(nodes: Array, stride: int, roots: Array) -> tuple[Array, Array]:
    """The nodes that are reachable from the roots of matches, and the renumbered roots."""
    marked = np.zeros(nodes.shape[0] // stride + 1, np.bool_)
    floors = np.full(marked.shape[0], EMPTY, np.int64)
    for i in range(0, roots.shape[0], 2):
        _mark_root(roots[i], roots[i + 1], marked, floors)
    _mark(nodes, stride, marked, floors)
    kept, numbers, _ = _kept_nodes(nodes, stride, marked, floors)
    moved = roots.copy()
    for i in range(0, roots.shape[0], 2):
        moved[i] = numbers[roots[i]]
    return kept[: kept.shape[0] - _LONGEST_PATH * stride], moved


@entry
def still_pending(times: Array, items: Array, size: int, moved: Array) -> int:
    """Renumber the groups on a heap after tidying, without the dropped ones. Returns how many are left."""
    left = 0
    for i in range(size):
        time, group = times[i], moved[items[i]]
        if group != EMPTY:
            heap_push(times, items, left, time, group)
            left += 1
    return left


def note_oldest(registers: Array, following: int) -> None:
    """Store the oldest event that a later match may still contain; `following` is the position of the next event."""
    registers[OLDEST] = registers[FIRST_ROW] if registers[FIRST_ROW] >= 0 else max(following, int(registers[OLDEST]))


# --- enumeration ------------------------------------------------------------------------------------------------------

CURSOR_ROOT, CURSOR_STACK, CURSOR_VISITED, CURSOR_FIELDS = range(4)
"""The state of an enumeration: the next root, the size of the stack, and the number of visited nodes."""


@entry
def enumerate_some(
    nodes: Array,
    stride: int,
    roots: Array,
    steps: int,
    cursor: Array,
    stack: Array,
    path: Array,
    values: Array,
    bounds: Array,
) -> tuple[Array, Array, Array, int, int]:
    """Write matches until there is no room for another. Returns how many there are, and how many events they have.

    A depth-first search back from the last event of each match. The stack holds the nodes still to visit, each with its
    position from the end and the floor of its window; `path` holds the nodes chosen so far."""
    matches = written = 0
    room = (bounds.shape[0] - 1) // steps
    while matches < room:
        if cursor[CURSOR_STACK] == 0:
            if 2 * cursor[CURSOR_ROOT] >= roots.shape[0]:
                break
            stack[0] = roots[2 * cursor[CURSOR_ROOT]]
            stack[1] = 0
            stack[2] = roots[2 * cursor[CURSOR_ROOT] + 1]
            cursor[CURSOR_STACK] = 3
            cursor[CURSOR_ROOT] += 1
        top = cursor[CURSOR_STACK] - 3
        node, depth, floor = stack[top], stack[top + 1], stack[top + 2]
        at = node * stride
        before = nodes[at + BEFORE]
        if before == EMPTY and written + depth + 1 > values.shape[0] and matches > 0:
            break
        cursor[CURSOR_VISITED] += 1
        stack = grown(stack, top + 9)
        for field in (LEFT, RIGHT):
            if is_alive(nodes, stride, nodes[at + field], floor):
                stack[top], stack[top + 1], stack[top + 2] = nodes[at + field], depth, floor
                top += 3
        path = grown(path, depth + 1)
        path[depth] = node
        if before != EMPTY:
            stack[top], stack[top + 1], stack[top + 2] = before, depth + 1, floor
            top += 3
        else:
            if written + depth + 1 > values.shape[0]:
                values = np.empty(depth + 1, np.int64)  # the first match of a chunk is longer than the chunk
            step = 0
            for i in range(depth, -1, -1):
                while step < nodes[path[i] * stride + STEP]:
                    step += 1
                    bounds[matches * steps + step] = written
                values[written] = nodes[path[i] * stride + ROW]
                written += 1
            while step < steps:
                step += 1
                bounds[matches * steps + step] = written
            matches += 1
        cursor[CURSOR_STACK] = top
    return stack, path, values, matches, written
