"""The placement of a deployment on nodes, and its EXPLAIN: a table of the nodes, and a picture of their operators."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from cepheid.deploy.deployment import Deployment, Written, content_name
from cepheid.deploy.description import first_texts
from cepheid.deploy.operator_graph import OperatorTree, PlacedOperator, operator_tree
from cepheid.deploy.placement import Placed, Placement, placement
from cepheid.engine.prepare import Prepared, RunOptions, prepare
from cepheid.errors import counted
from cepheid.explanation import Explained, rendered
from cepheid.io.source import SourceDescription
from cepheid.optimize.core_cost import CompiledModel
from cepheid.optimize.cost import EVENT
from cepheid.optimize.distribution import keyed
from cepheid.optimize.rules import wants_rewrites
from cepheid.picture import Explanation, Node

_MOST_NAMES = 6


@dataclass(frozen=True, slots=True)
class Placing:
    """The operators without a key on nodes, and the queries that are spread over all nodes, each by its key."""

    placement: Placement
    spread: Mapping[str, tuple[str, ...]]


def placing(
    deployment: Deployment,
    queries: Mapping[str, Written],
    source: SourceDescription,
    options: RunOptions,
    nodes: int,
    strategy: str = "greedy",
) -> Placing:
    """Places the operators of a deployment by the statistics of its source."""
    spread: dict[str, tuple[str, ...]] = {}
    trees: list[OperatorTree] = []
    is_rewritten = wants_rewrites(options.options)
    for group in deployment.groups:
        names = [name for output in group.outputs for name in output.names]
        if group.families.key is not None:
            spread |= dict.fromkeys(names, (group.families.key,))
        else:
            own = {name: prepare(queries[name].query, source, options) for name in names}
            equal: dict[str, list[str]] = {}
            for name, prepared in own.items():
                equal.setdefault(content_name(prepared), []).append(name)
            for same in equal.values():
                trees += _trees(same, own[same[0]], is_rewritten)
    for operator in deployment.operators:
        by_key = keyed(operator.prepared.plan)
        if by_key is not None:
            spread |= dict.fromkeys(operator.names, by_key.attributes)
        else:
            trees += _trees(operator.names, operator.prepared, is_rewritten)
    return Placing(placement(trees, nodes, strategy), spread)


def _trees(names: Sequence[str], prepared: Prepared, is_rewritten: bool) -> list[OperatorTree]:
    """The core operators of equal queries; a query of another language is one operator, and equal ones are the same."""
    plan = prepared.plan
    if plan.core is not None:
        model = CompiledModel(prepared.stats, plan.has_durations)
        return [operator_tree(name, plan.core, model, is_rewritten=is_rewritten) for name in names]
    cost = EVENT if math.isnan(plan.expected) else plan.expected
    whole = PlacedOperator(f"{plan.evaluator} of {names[0]}", (), cost, 0.0)
    return [OperatorTree(name, (whole,)) for name in names]


# --- EXPLAIN ----------------------------------------------------------------------------------------------------------


def explain_placing(found: Placing, queries: Collection[Written], format: str = "text") -> Explained:
    """The nodes as a table and what runs on them, as text; in other formats a picture, with the text of the first
    queries."""
    described = rendered(Explanation(describe(found), text=first_texts(queries)), format)
    return (
        Explained.of(f"{table(found.placement)}\n{described}", described.description) if format == "text" else described
    )


def table(placed: Placement) -> str:
    """A line for each node.

    node  operators  queries  ns for each event  messages for each event
    """
    head = ("node", "operators", "queries", "ns for each event", "of the busiest", "messages for each event")
    loads = placed.loads
    most = max(max(loads, default=0.0), 1e-12)
    received = [0.0] * placed.nodes
    for _, to, rate in placed.messages:
        received[to] += rate
    rows = []
    for node in range(placed.nodes):
        here = [one for one in placed.operators if one.node == node]
        names = {name for one in here for name in one.queries}
        rows.append(
            (f"{node + 1}", f"{len(here)}", f"{len(names)}", f"{loads[node]:.4g}", f"{loads[node] / most:.0%}",
             f"{received[node]:.3g}")
        )  # fmt: skip
    widths = [max(len(row[at]) for row in [head, *rows]) for at in range(len(head))]
    lines = ("  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in [head, *rows])
    return "".join(f"{line}\n" for line in lines)


def describe(found: Placing) -> Node:
    placed = found.placement
    queries = {name for one in placed.operators for name in one.queries}
    shared = sum(len(one.queries) > 1 for one in placed.operators)
    label = f"placement on {counted(placed.nodes, 'node')}, {placed.strategy}: "
    label += f"{counted(len(placed.operators), 'operator')} of {counted(len(queries), 'query', 'queries')}"
    label += f", {shared} of them shared"
    if placed.operators:
        label += f"; the busiest node supports {placed.capacity:,.0f} events/s"
    nodes = [_node(placed, node) for node in range(placed.nodes)]
    return Node(label, (*_spread(found.spread), *(node for node in nodes if node is not None)))


def _spread(spread: Mapping[str, tuple[str, ...]]) -> Iterator[Node]:
    by_key: dict[tuple[str, ...], list[str]] = {}
    for name, key in spread.items():
        by_key.setdefault(key, []).append(name)
    for key, names in by_key.items():
        yield Node(f"spread over all nodes by {', '.join(key)}: {_names(names)}")


def _node(placed: Placement, node: int) -> Node | None:
    here = [one for one in placed.operators if one.node == node]
    if not here:
        return None
    children = tuple(Node(_operator(placed, one)) for one in here)
    return Node(f"node {node + 1}: {placed.loads[node]:.4g} ns for each event", children)


def _operator(placed: Placement, one: Placed) -> str:
    nodes = {placed.operators[number].node for number in one.reads} - {one.node}
    far = f", reads from node {', '.join(str(node + 1) for node in sorted(nodes))}" if nodes else ""
    return f"{one.operator.name}: {one.operator.cpu:.3g} ns, for {_names(one.queries)}{far}"


def _names(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return ", ".join(names[:_MOST_NAMES]) + more
