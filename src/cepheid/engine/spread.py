"""How the work of a query can be divided among tasks, with the queries that feed it."""

from __future__ import annotations

from collections.abc import Mapping

from cepheid.engine.prepare import Prepared, PreparedNode
from cepheid.optimize.distribution import Distribution, Keyed, Sliced, Undivided, distribution, may_drop, shuffle_key


def spread(prepared: Prepared) -> Distribution:
    """By a key that a query and all that feed it share, or by slices that overlap by the sum of their windows."""
    own = distribution(prepared.plan)
    if prepared.graph is None or isinstance(own, Undivided) and prepared.query.summarizes:
        return own
    for node in prepared.graph.nodes:
        if node.prepared.query.limit is not None:
            return Undivided(f"LIMIT of `{node.label}` counts all its matches")
    nodes = {node.name: node for node in prepared.graph.nodes}
    keys = _keys(prepared, nodes)
    if keys:
        return Keyed(keys)
    if prepared.graph.reading.shape.columns.start in prepared.graph.reading.shape.schema.names:
        return Undivided("the queries share no key, and the events of the input have a duration")
    before = after = 0
    for label, one in (("the query", prepared), *((f"`{n.label}`", n.prepared) for n in nodes.values())):
        divided = _without_key(one)
        if isinstance(divided, Undivided):
            return Undivided(f"the queries share no key, and in {label} {divided.reason}")
        before, after = before + divided.before, after + divided.after
    return Sliced(before, after)


def _keys(prepared: Prepared, nodes: Mapping[str, PreparedNode]) -> tuple[str, ...]:
    """The columns of the input whose values all events of a match share, those of derived events included."""
    graph = prepared.graph
    reading = graph.reading if graph is not None else None
    return _keys_of(prepared, () if reading is None else reading.derived, nodes)
