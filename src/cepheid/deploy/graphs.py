"""Queries over other queries whose inner queries are one graph: an equal inner query is evaluated once for all that use
it, and for the query of the deployment that it is itself (NEXT §4.4)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from cepheid.deploy.deployment import Common, Deployment, Operator
from cepheid.engine.prepare import RunOptions
from cepheid.graph import QueryNode, connected, graph_of

_MOST_COMPARED = 16
"""The queries that an inner query is compared with, to say what it differs in."""
_PARTS = {
    "pattern": "pattern (or other names in it)",
    "where": "condition",
    "window": "window",
    "strategy": "strategy",
    "output": "RETURN",
    "dialect": "language",
}


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
    for numbers in connected([operator.feeding for operator in composed]):
        of = [composed[number] for number in numbers]
        here = dict.fromkeys(name for operator in of for name in operator.feeding if name in shown)
        fed = tuple(operator for operator in of if _as_node(operator) not in nodes)
        found.append(Common(fed, {name: shown[name] for name in here}))
    return replace(deployment, common=tuple(one for one in found if len(one.operators) > 1))


def _as_node(operator: Operator) -> str | None:
    """The name that the operator has where it feeds others; None if its matches are not shown as they are found."""
    return graph_of(operator.prepared.written).output if why_not_shown(operator) is None else None


def why_not_shown(operator: Operator) -> str | None:
    """Why an operator finds its matches by itself, although others use an equal query; None if it does not."""
    prepared = operator.prepared
    for output in operator.outputs:
        query = output.prepared.written
        if query.limit is not None or query.summarizes or query.threshold is not None:
            return "it has LIMIT, a summary or a threshold"
    if prepared.adaptive is not None:
        return "its plan may change during the run"
    if prepared.detection is not None or prepared.match_ids is not None:
        return "its output has columns that are computed of its matches"
    return None


# --- what is not shared -----------------------------------------------------------------------------------------------


class _Inner(NamedTuple):
    label: str
    node: QueryNode
    users: tuple[str, ...]


def why_not_common(deployment: Deployment) -> dict[str, list[str]]:
    """For the name of each inner query that is evaluated more than once, or for one operator alone, the reasons."""
    inner = _inner_queries(deployment)
    like: dict[object, list[_Inner]] = {}
    for one in inner.values():
        for kind in (one.label, one.node.query.pattern):
            like.setdefault(kind, []).append(one)
    common = {name for together in deployment.common for name in together.inner}
    shown = {name for together in deployment.common for name in together.shown}
    uses = Counter(name for operator in deployment.operators for name in operator.feeding)
    found: dict[str, list[str]] = {}
    for name, one in inner.items():
        if uses[name] > 1 and name not in common:
            found[name] = ["an evaluator is forced"]
        elif uses[name] == 1 and name not in shown:
            others = [*like[one.label], *like[one.node.query.pattern]]
            found[name] = [_difference(one, [other for other in others[:_MOST_COMPARED] if other is not one])]
    for operator in deployment.operators:
        name, reason = graph_of(operator.prepared.written).output, why_not_shown(operator)
        if name in inner and reason is not None:
            again = f"evaluated again for {', '.join(operator.names)}, equal to it: {reason}"
            found.setdefault(name, []).append(again)
    return found


def _inner_queries(deployment: Deployment) -> dict[str, _Inner]:
    """The queries that feed operators, by their names."""
    found: dict[str, _Inner] = {}
    for operator in deployment.operators:
        if operator.prepared.graph is None:
            continue
        nodes = graph_of(operator.prepared.written).nodes
        for name, prepared in operator.feeding.items():
            node = nodes.get(name)
            if isinstance(node, QueryNode):
                known = found.get(name)
                users = (*(() if known is None else known.users), *operator.names)
                found[name] = _Inner(prepared.label, node, users)
    return found


def _difference(one: _Inner, others: Sequence[_Inner]) -> str:
    """How an inner query differs from the one that is most like it."""
    if not others:
        return "no other query uses one like it"
    differences = [_differing(one.node, other.node) for other in others]
    nearest = min(range(len(others)), key=lambda number: len(differences[number]))
    other = others[nearest]
    return f"{other.label} of {other.users[0]} has another {' and another '.join(differences[nearest])}"


def _differing(one: QueryNode, other: QueryNode) -> list[str]:
    found = [word for field, word in _PARTS.items() if getattr(one.query, field) != getattr(other.query, field)]
    if one.uses != other.uses:
        found.append("inner query")
    return found or ["option"]
