"""How the work of a query can be divided among tasks, with the queries that feed it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cepheid.checks import NODE
from cepheid.engine.composition import OTHER, DerivedType
from cepheid.engine.prepare import Prepared, PreparedGraph, PreparedNode, is_alone
from cepheid.engine.summary import sums_up
from cepheid.expr import Aggregate, Attr, Call
from cepheid.io.rows import TIME
from cepheid.optimize.distribution import Distribution, Keyed, Sliced, Undivided, distribution, keyed, may_drop, slices


def spread(prepared: Prepared) -> Distribution:
    """By a key that a query and all that feed it share, or by slices that overlap by the sum of their windows. The
    summaries of tasks that find different matches are merged."""
    divided = distribution(prepared.plan) if prepared.graph is None else _of_graph(prepared, prepared.graph)
    if not prepared.query.summarizes:
        return divided
    if any(isinstance(c.expr, Aggregate) and c.expr.fn in ("first", "last") for c in prepared.query.output or ()):
        return Undivided("`first` and `last` depend on the order of all matches")
    if isinstance(divided, Sliced) and sums_up(prepared):
        return Undivided("matches are summarised without being enumerated, so that slices of time cannot divide them")
    return divided


def _of_graph(prepared: Prepared, graph: PreparedGraph) -> Distribution:
    for node in graph.nodes:
        if node.prepared.query.limit is not None:
            return Undivided(f"LIMIT of `{node.label}` counts all its matches")
    identified = [node for node in graph.nodes if node.identity is not None]
    parts = [_identifying(node) for node in identified]
    found = _keys(prepared, graph.reading.derived, {node.name: node for node in graph.nodes})
    keys = [name for name in found if all(name in part for part in parts)]
    shape = graph.reading.shape
    if keys:
        evaluated = [prepared, *(node.prepared for node in graph.nodes)]
        nulls_match = any(own.nulls_match for one in evaluated if (own := keyed(one.plan)) is not None)
        return Keyed(tuple(keys), nulls_match)
    if shape.columns.start in shape.schema.names:
        return Undivided("the queries share no key, and the events of the input have a duration")
    for node, part in zip(identified, parts, strict=True):
        if TIME not in part:
            return Undivided(f"the queries share no key, and any two events of `{node.label}` may have one `event_id`")
    before = after = 0
    for label, one in (("the query", prepared), *((f"`{node.label}`", node.prepared) for node in graph.nodes)):
        divided = slices(one.plan)
        if isinstance(divided, Undivided):
            return Undivided(f"the queries share no key, and in {label} {divided.reason}")
        before, after = before + divided.before, after + divided.after
    for node in graph.nodes:
        if node.counting is not None:  # an event about many begins with the first of them
            before, after = before + node.counting.window, after + node.counting.window
    return Sliced(before, after)


def _keys(prepared: Prepared, derived: Sequence[DerivedType], nodes: Mapping[str, PreparedNode]) -> Sequence[str]:
    """The columns of the input whose values all events of a match share. A match of one event shares all columns."""
    inner = {one.node: _keys_of_node(nodes[one.node], nodes) for one in derived}
    own = keyed(prepared.plan)
    parts = () if own is None or own.computed else own.attributes
    names = list(prepared.input.schema.names) if is_alone(prepared.query) else parts
    return [name for name in names if all(_carries(one, name) and name in inner[one.node] for one in derived)]


def _keys_of_node(node: PreparedNode, nodes: Mapping[str, PreparedNode]) -> Sequence[str]:
    keys = _keys(node.prepared, node.reading.derived, nodes)
    return keys if node.counting is None else [name for name in keys if name in node.counting.group]


def remembers(node: PreparedNode) -> bool:
    """Whether an event of a node may be one with an earlier one, at any distance of time."""
    return node.identity is not None and TIME not in _identifying(node)


def _identifying(node: PreparedNode) -> set[str]:
    """The columns of its event in which two events of a node with the same `event_id` agree, TIME among them."""
    expr = None if node.identity is None else node.identity.expr
    parts = expr.args if isinstance(expr, Call) and expr.fn == "hash_f" else (expr,)
    read = [part for part in parts if isinstance(part, Attr)]
    names = {TIME if part.var == NODE and part.name == "time" else part.name for part in read}
    return names if is_alone(node.prepared.query) else names & {TIME}


def _carries(derived: DerivedType, key: str) -> bool:
    """Whether the events of a derived type have in a column the key of the events that they are made of."""
    there = [attribute for name, attribute in derived.columns.items() if derived.column(name) == key]
    return bool(there) and all(attribute.key == key for attribute in there)


def input_types(prepared: Prepared) -> frozenset[str] | None:
    """The event types of the input that can matter to a query or to one that feeds it; None: all."""
    graph = prepared.graph
    evaluated = [prepared, *(node.prepared for node in graph.nodes)] if graph is not None else [prepared]
    types: set[str] = set()
    for one in evaluated:
        bound = [role.event_class.types for role in one.query.roles.values()]
        if not may_drop(one.plan) or not all(bound):
            return None
        types.update(name for names in bound for name in names)
    return None if OTHER in types else frozenset(types)
