"""Queries over other queries whose inner queries are one graph: an equal inner query is evaluated once for all that use
it, and for the query of the deployment that it is itself (NEXT §4.4)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from cepheid.deploy.deployment import Common, Deployment, Operator
from cepheid.engine.prepare import RunOptions
from cepheid.graph import graph_of


def with_common_inputs(deployment: Deployment, options: RunOptions) -> Deployment:
    """The deployment with the operators over other queries put together where they use equal ones."""
    composed = [operator for operator in deployment.operators if operator.prepared.graph is not None]
    if not composed or options.evaluator is not None:
        return deployment
    shown: dict[str, Operator] = {}
    nodes = {name for operator in composed for name in operator.feeding}
    for operator in deployment.operators:
        name = _as_node(operator)
        if name in nodes:
            shown[name] = operator
    found = []
    for of in _connected({operator.name: operator for operator in composed}):
        here = dict.fromkeys(name for operator in of for name in operator.feeding if name in shown)
        fed = tuple(operator for operator in of if _as_node(operator) not in nodes)
        found.append(Common(fed, {name: shown[name] for name in here}))
    return replace(deployment, common=tuple(one for one in found if len(one.operators) > 1))


def _as_node(operator: Operator) -> str | None:
    """The name that the operator has where it feeds others; None if its matches are not shown as they are found."""
    prepared = operator.prepared
    for output in operator.outputs:
        query = output.prepared.written
        if query.limit is not None or query.summarizes or query.threshold is not None:
            return None
    if prepared.adaptive is not None or prepared.detection is not None or prepared.match_ids is not None:
        return None
    return graph_of(prepared.written).output


def _connected(operators: Mapping[str, Operator]) -> list[list[Operator]]:
    """The operators in groups, such that no two groups have a node in common."""
    of_node: dict[str, int] = {}
    groups: dict[int, list[Operator]] = {}
    for number, operator in enumerate(operators.values()):
        joined = {of_node[name] for name in operator.feeding if name in of_node}
        members = [one for other in sorted(joined) for one in groups.pop(other)]
        groups[number] = [*members, operator]
        of_node |= dict.fromkeys([name for member in groups[number] for name in member.feeding], number)
    return [*groups.values()]
