"""Chains of an iteration that wait for the same thing, as one group.

Chains that end with the same item wait for the same successor if nothing that is read of them depends on the items
before it. They are one record, and advance together. The node of a group points to those of the groups that its item
extended: the chains of a group are the paths from its node to the beginning of a chain. Matches are the paths, and are
enumerated when they are written, so that a burst costs its output.

`OCCURS WITHIN` bounds the starts of chains: a node has the latest start of its paths, and paths that start before the
limit of a match are left out.
"""

from __future__ import annotations

import numpy as np

from cepheid import expr as ex
from cepheid.codegen.builder import Writer
from cepheid.expr import Aggregate, At, Attr, Expr, OccursWithin, walk
from cepheid.kernels.state_vector import Value
from cepheid.kernels.successor.composites import LATE, OLDEST, STARTS, Chain, Composite, Field, Limit, Row
from cepheid.kernels.successor.instances import points_to_node
from cepheid.kernels.successor.operators import Iteration, Leaf, Operator, tests_of
from cepheid.kernels.successor.waiting import Tables
from cepheid.runtime.arrays import EMPTY
from cepheid.runtime.jit import njit

EDGE, COUNT, TOTAL, LATEST, FIRST = 0, 1, 2, 3, 4
"""The fields of a node (`waiting.GROUP`): the first of its edges, the number of its paths and of the items in them (at
most MOST), their latest start, and the start of its item if a chain begins with it."""
FROM, MORE = 0, 1
"""An edge: the node before, and the next edge of the same node."""
MOST = 1 << 60
NO_TIME = -LATE
_LAST = ("last", "last_null", "last_missing", "last_time")


@njit
def begin_node(node: np.ndarray, at: int) -> int:
    """A node without paths."""
    node[at + EDGE] = EMPTY
    node[at + COUNT] = 0
    node[at + TOTAL] = 0
    node[at + LATEST] = NO_TIME
    node[at + FIRST] = NO_TIME
    return at


@njit
def add_edge(node: np.ndarray, at: int, edge: np.ndarray, new: int, before: int) -> None:
    """The paths to `before` go on to the node."""
    edge[new + FROM] = before
    edge[new + MORE] = node[at + EDGE]
    node[at + EDGE] = new
    node[at + COUNT] = min(node[at + COUNT] + node[before + COUNT], MOST)
    node[at + TOTAL] = min(node[at + TOTAL] + node[before + TOTAL] + node[before + COUNT], MOST)
    node[at + LATEST] = max(node[at + LATEST], node[before + LATEST])


@njit
def add_start(node: np.ndarray, at: int, start: int) -> None:
    """A chain begins with the node."""
    node[at + FIRST] = start
    node[at + COUNT] = min(node[at + COUNT] + 1, MOST)
    node[at + TOTAL] = min(node[at + TOTAL] + 1, MOST)
    node[at + LATEST] = max(node[at + LATEST], start)


# --- paths ------------------------------------------------------------------------------------------------------------


@njit
def first_path(path: np.ndarray, node: np.ndarray, edge: np.ndarray, last: int, limit: int) -> int:
    """The first path that ends with a node and starts at `limit` or later: its nodes from the last to the first, each
    with the edge to try next. Returns their number; 0: there is none. At its end, `path` has the number of nodes that
    the path has in common with the one that was accumulated (`path_tests`)."""
    path[-1] = 0
    if last == EMPTY or node[last + LATEST] < limit:
        return 0
    path[0] = last
    path[1] = node[last + EDGE]
    return 1 if node[last + FIRST] >= limit else next_path(path, node, edge, 1, limit)


@njit
def next_path(path: np.ndarray, node: np.ndarray, edge: np.ndarray, depth: int, limit: int) -> int:
    """The path after one of `depth` nodes. Returns the number of its nodes; 0: there is none."""
    while depth > 0:
        at = path[2 * depth - 1]
        while at != EMPTY and node[edge[at + FROM] + LATEST] < limit:
            at = edge[at + MORE]
        if at == EMPTY:
            depth -= 1
            continue
        path[2 * depth - 1] = edge[at + MORE]
        path[-1] = min(path[-1], depth)
        before = edge[at + FROM]
        path[2 * depth] = before
        path[2 * depth + 1] = node[before + EDGE]
        depth += 1
        if node[before + FIRST] >= limit:
            return depth
    return 0


@njit
def paths_since(node: np.ndarray, edge: np.ndarray, last: int, limit: int, most: int) -> tuple[int, int]:
    """The number of paths to a node that start at `limit` or later, and of their items; little more than `most`."""
    path = np.empty(2 * (node.shape[0] + 1), np.int64)
    count, total = 0, 0
    depth = first_path(path, node, edge, last, limit)
    while depth > 0 and total <= most:
        count += 1
        total += depth
        depth = next_path(path, node, edge, depth, limit)
    return count, total


# --- memory -----------------------------------------------------------------------------------------------------------


@njit
def mark_groups(
    table: np.ndarray, size: int, start: int, top: int, field: int, frees: bool, width: int, marks: np.ndarray
) -> None:
    """Mark the nodes that a field of the records in a table points to; with `frees`, records may be free."""
    for at in range(start, top, size):
        if points_to_node(table, at, field, frees):
            marks[table[at + field] // width] = 0


@njit
def kept_groups(
    node: np.ndarray, width: int, top: int, edge: np.ndarray, edge_top: int, marks: np.ndarray, since: int
) -> tuple[int, int]:
    """Keep the marked nodes and those on paths to them that start at `since` or later, and store the new offset of each
    in `marks`. Returns the new tops of nodes and edges. A node is younger than those before it."""
    for at in range(top - width, -1, -width):
        if marks[at // width] != EMPTY:
            pointer = node[at + EDGE]
            while pointer != EMPTY:
                if node[edge[pointer + FROM] + LATEST] >= since:
                    marks[edge[pointer + FROM] // width] = 0
                pointer = edge[pointer + MORE]
    kept, kept_edges = 0, 0
    edges = np.empty(edge_top, np.int64)
    for at in range(0, top, width):
        if marks[at // width] != EMPTY:
            for field in range(width):
                node[kept + field] = node[at + field]
            pointer, last = node[kept + EDGE], EMPTY
            node[kept + EDGE] = EMPTY
            while pointer != EMPTY:
                if marks[edge[pointer + FROM] // width] != EMPTY:
                    edges[kept_edges + FROM] = marks[edge[pointer + FROM] // width]
                    edges[kept_edges + MORE] = EMPTY
                    if last == EMPTY:
                        node[kept + EDGE] = kept_edges
                    else:
                        edges[last + MORE] = kept_edges
                    last = kept_edges
                    kept_edges += 2
                pointer = edge[pointer + MORE]
            marks[at // width] = kept
            kept += width
    for at in range(kept_edges):
        edge[at] = edges[at]
    return kept, kept_edges


IMPORTS = f"""from {__name__} import (
    COUNT, FIRST, LATEST, TOTAL, add_edge, add_start, begin_node, first_path, kept_groups, mark_groups, next_path,
    paths_since,
)"""
"""The import of generated modules."""


# --- source -----------------------------------------------------------------------------------------------------------


class DiffersInGroup(Exception):
    """Something is read of chains that differs within a group: the source has to be written anew without the group."""


class Groups(Tables):
    """The iterations whose chains wait in groups, because nothing is read of them that differs within a group."""

    def find_groups(self, shows_failures: bool) -> None:
        for op in self.nodes:
            inside = [node for node in self.root.walk() if isinstance(node, Iteration) and op in node.item.walk()]
            if shows_failures or inside or op.item.many or _reads_whole((*op.skip, *op.keep)):
                self.single.add(op.number)
        for predicate in (p for op in self.operators for p in tests_of(op)):
            bare = predicate.item if isinstance(predicate, ex.Filter) else predicate
            for node in walk(bare):
                if isinstance(node, OccursWithin) and node is not bare:
                    self._no_groups(node.first, node.second)

    def _no_groups(self, *variables: str) -> None:
        self.single |= {op.number for op in self.nodes if not set(variables).isdisjoint(op.variables)}

    def node_item(self, op: Iteration, node: str) -> Composite:
        if self.is_grouped(op):
            raise self._differs(op)
        return super().node_item(op, node)

    def _differs(self, op: Iteration) -> DiffersInGroup:
        self.single.add(op.number)
        return DiffersInGroup(op.text)

    # --- advance ------------------------------------------------------------------------------------------------------

    def _node(self, w: Writer, op: Iteration) -> None:
        """`if n1 == EMPTY: n1 = begin_node(node1, node1_top)`"""
        k, table = op.number, self.nodes[op]
        with w.block(f"if n{k} == EMPTY:"):
            if self.checked:
                table.ensure(w)
            w(f"n{k} = begin_node({table.name}, {table.top})", f"{table.top} += {table.size}", "made += 1")

    def advance(self, w: Writer, op: Iteration, group: Composite) -> None:
        """The chains of a group go on to the item: `add_edge(node1, n1, edge1, edge1_top, w1[i1 + W1_CHAIN1])`"""
        k, edges = op.number, self.edges[op]
        self._node(w, op)
        if self.checked:
            edges.ensure(w)
        w(f"add_edge({self.nodes[op].name}, n{k}, {edges.name}, {edges.top}, {group.read(Chain(k))})")
        w(f"{edges.top} += 2", "made += 1")

    def start(self, w: Writer, op: Iteration, item: Composite) -> None:
        """A chain begins: `add_start(node1, n1, t)`"""
        self._node(w, op)
        w(f"add_start({self.nodes[op].name}, n{op.number}, {item.read(STARTS)})")

    def group(self, w: Writer, op: Iteration, item: Composite) -> Composite:
        """The group that ends with an item."""
        k, table = op.number, self.nodes[op]
        self.chained.add(k)
        table.offset(OLDEST)
        table.fill(w, f"n{k}", item)

        def read(field: Field) -> str:
            match field:
                case "ends" | "oldest":
                    return item.read(field)
                case Chain() if field.operator == k:
                    return f"n{k}"
                case Limit() if field.operator == k:
                    return f"{NO_TIME}"
                case "latest":
                    return f"{table.name}[n{k} + LATEST]"
                case Value() if self.values.variable(field) in item.bound:
                    if field.what == "absent":
                        return "0"
                    if field.what in _LAST:
                        return item.read(field)
                    if field.what == "first_time" and isinstance(op.item, Leaf):
                        return f"{table.name}[n{k} + LATEST]"
            raise self._differs(op)

        return Composite(op, read, frozenset(op.variables))

    # --- limits -------------------------------------------------------------------------------------------------------

    def limited_groups(self, op: Operator) -> list[Iteration]:
        """The iterations whose groups OCCURS WITHIN limits."""
        names = {
            name
            for other in self.operators
            for predicate in tests_of(other)
            for node in walk(predicate)
            if isinstance(node, OccursWithin)
            for name in (node.first, node.second)
        }
        return [node for node in self.groups_of(op) if not names.isdisjoint(node.variables)]

    def paths(self, event: Composite) -> str:
        """The number of composite events that a composite stands for: `node1[w1[i1 + W1_CHAIN1] + COUNT]`."""
        groups = self.groups_of(event.operator)
        limited = self.limited_groups(event.operator)
        sources = []
        for op in groups:
            node, chain = self.nodes[op].name, event.read(Chain(op.number))
            count = f"{node}[{chain} + COUNT]"
            limit = event.read(Limit(op.number))
            if op in limited and limit != f"-{LATE}":
                count = f"paths_since({node}, {self.edges[op].name}, {chain}, {limit}, {MOST})[0]"
            sources.append(f"({count} if {chain} != EMPTY else 1)")
        return " * ".join(sources) or "1"

    def add_output(self, w: Writer, event: Composite) -> None:
        """`output += node1[n1 + TOTAL]`: the items in the matches that a composite stands for."""
        groups = self.groups_of(event.operator)
        limited = self.limited_groups(event.operator)
        w("several, items = 1.0, 0.0")
        for op in groups:
            k, node, chain = op.number, self.nodes[op].name, event.read(Chain(op.number))
            with w.block(f"if {chain} != EMPTY:"):
                if op in limited:
                    limit = event.read(Limit(k))
                    w(f"count, total = paths_since({node}, {self.edges[op].name}, {chain}, {limit}, most)")
                else:
                    w(f"count, total = {node}[{chain} + COUNT], {node}[{chain} + TOTAL]")
                w("items = items * count + total * several", "several *= count")
        for op in self._outer(event.operator):
            if not self.is_grouped(op) and op.number in self.chained:
                node, chain = self.nodes[op].name, event.read(Chain(op.number))
                with w.block(f"if {chain} != EMPTY:"):
                    w(f"items += several * {node}[{chain} + LENGTH]")
        w(f"output += int(min(max(items, several), {float(MOST)}))")

    def _outer(self, op: Operator) -> list[Iteration]:
        """The iterations whose chains an operator puts out, but for those inside another one. What cancels is no part
        of its composite events."""
        if isinstance(op, Iteration):
            return [op]
        parts = [operand for operand in op.operands if operand is not getattr(op, "cancel", None)]
        return [found for operand in parts for found in self._outer(operand)]

    # --- output -------------------------------------------------------------------------------------------------------

    def each_path(self, w: Writer, groups: list[Iteration]) -> None:
        """The paths of the groups of a match, as arrays:

        path1 = np.empty(2 * (node1_top // 7 + 1), np.int64)
        """
        for op in groups:
            table = self.nodes[op]
            w(f"path{op.number} = np.empty(2 * ({table.top} // {table.size} + 1), np.int64)")

    def first(self, w: Writer, op: Iteration, record: str) -> None:
        """`depth1 = first_path(path1, node1, edge1, found[r + FOUND_CHAIN1], found[r + FOUND_LIMIT1])`"""
        k = op.number
        limit = self.found.at(Limit(k), record) if op in self.limited_groups(self.root) else f"{NO_TIME}"
        arrays = f"path{k}, {self.nodes[op].name}, {self.edges[op].name}"
        w(f"limit{k} = {limit}", f"depth{k} = first_path({arrays}, {self.found.at(Chain(k), record)}, limit{k})")
        w(f"more{k} = True")

    def following(self, w: Writer, op: Iteration) -> None:
        k = op.number
        arrays = f"path{k}, {self.nodes[op].name}, {self.edges[op].name}"
        w(f"depth{k} = next_path({arrays}, depth{k}, limit{k})", f"more{k} = depth{k} > 0")

    def write_path(self, w: Writer, op: Iteration, var: str) -> None:
        """The events of a variable in a path, the first one first:

        for step1 in range(depth1 - 1, -1, -1):
            values[written] = node1[path1[2 * step1] + NODE1_ROW0]
            written += 1
        """
        k, table = op.number, self.nodes[op]
        row = table.at(Row(var), f"path{k}[2 * step{k}]")
        with w.block(f"if written + depth{k} > values.shape[0]:"):
            w(f"values = grown(values, written + depth{k})")
        is_bound = [f"{row} != EMPTY"] if var in op.item.optional else []
        with w.block(f"for step{k} in range(depth{k} - 1, -1, -1):"), w.when(is_bound):
            w(f"values[written] = {row}", "written += 1")


def _reads_whole(predicates: tuple[Expr, ...]) -> bool:
    """Whether predicates read more of a chain than its last item."""
    return any(
        isinstance(node, Aggregate) or (isinstance(node, Attr) and node.at in (At.ALL, At.FIRST))
        for predicate in predicates
        for node in walk(predicate)
    )
