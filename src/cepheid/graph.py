"""The graph of operators behind a query that uses other queries: which stream of events feeds which.

A graph is data. A node is named by its content: two queries that differ only in their labels are one node, and a query
that two others use is evaluated once. Labels belong to the edges: they are the event types under which a node's events
are known to the query that uses them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from cepheid.content import content_hash
from cepheid.pattern import DerivedStream, Query, SourceStream

INPUT = "input"
"""The name of the input's node."""


@dataclass(frozen=True, slots=True)
class InputNode:
    """The events of the input."""

    @property
    def uses(self) -> tuple[tuple[str, str], ...]:
        return ()


@dataclass(frozen=True, slots=True)
class ProjectionNode:
    """CED's `primitive`: one event for each event of a type, with attributes computed from it. The type is one of the
    input, or that of another node."""

    stream: DerivedStream
    uses: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class QueryNode:
    """A query over the input and the events of the nodes that it uses, each under the label that it names. Their order
    is that of the script."""

    query: Query
    """Bound and without a name. Its inputs are the declared sources only."""
    uses: tuple[tuple[str, str], ...]


Node = InputNode | ProjectionNode | QueryNode


@dataclass(frozen=True, slots=True)
class Graph:
    """The nodes by name, each after those that it uses. `output` is the node whose matches are the result."""

    nodes: Mapping[str, Node]
    output: str

    def consumers(self, name: str) -> list[str]:
        """The nodes that read the events of a node."""
        return [other for other, node in self.nodes.items() if any(used == name for _, used in node.uses)]


def connected(uses: Sequence[Collection[str]]) -> list[list[int]]:
    """The numbers of the queries that use these nodes in groups, such that no two groups have a node in common."""
    of_node: dict[str, list[int]] = {}
    groups: dict[int, list[int]] = {}
    for number, nodes in enumerate(uses):
        joined = {id(group): group for node in nodes if (group := of_node.get(node)) is not None}
        group = max(joined.values(), key=len, default=[])
        moved = [number, *(member for other in joined.values() if other is not group for member in other)]
        group += moved
        of_node |= {node: group for member in moved for node in uses[member]}
        groups = {key: other for key, other in groups.items() if key not in joined} if len(joined) > 1 else groups
        groups[id(group)] = group
    return [sorted(group) for group in groups.values()]


def is_composed(query: Query) -> bool:
    """Whether the query reads events that are not in the input."""
    return any(not isinstance(item, SourceStream) for item in query.inputs)


def graph_of(query: Query) -> Graph:
    """The graph of a bound query and its inputs."""
    nodes: dict[str, Node] = {INPUT: InputNode()}
    output = _add(query, {}, (), nodes)
    return Graph(nodes, output)


def _add(
    item: DerivedStream | Query, scope: Mapping[str, str], sources: tuple[SourceStream, ...], nodes: dict[str, Node]
) -> str:
    """Adds an item and what it uses; returns its name. `scope` maps the labels that it may use to nodes; `sources` are
    those that are declared before it."""
    node: Node
    if isinstance(item, DerivedStream):
        node = ProjectionNode(item, _used(scope, {item.source}))
        content: DerivedStream | Query = replace(item, name="")
    else:
        known = dict(scope)
        for inner in item.inputs:
            if isinstance(inner, SourceStream):
                sources = (*sources, inner)
            else:
                known[inner.name or ""] = _add(inner, known, sources, nodes)
        types = {name for role in item.roles.values() for name in role.event_class.types}
        declared = tuple(source for source in sources if source.name in types)
        query = replace(item, inputs=declared, name=None)
        node = QueryNode(query, _used(known, types))
        content = query
    name = content_hash(content, node.uses).hex()
    nodes.setdefault(name, node)
    return name


def _used(scope: Mapping[str, str], types: set[str]) -> tuple[tuple[str, str], ...]:
    return tuple((label, name) for label, name in scope.items() if label in types)
