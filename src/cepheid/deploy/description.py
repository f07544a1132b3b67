"""EXPLAIN of a deployment: what its queries share, what they do not, and why."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice

from cepheid.deploy.deployment import Deployment, FamilyGroup, Operator, Written
from cepheid.explanation import Explained, rendered
from cepheid.picture import Explanation, Node

_MOST_NAMES, _MOST_TEXTS = 8, 20


def explain_deployment(deployment: Deployment, queries: Iterable[Written], format: str = "text") -> Explained:
    """The description of a deployment, as text or picture. A picture shows the text of the first queries."""
    texts = [f"-- {query.name}\n{query.text.strip()}" for query in islice(queries, _MOST_TEXTS)]
    if len(deployment.names) > _MOST_TEXTS:
        texts.append(f"-- and {len(deployment.names) - _MOST_TEXTS} more")
    return rendered(Explanation(describe(deployment), text="\n\n".join(texts)), format)


def describe(deployment: Deployment) -> Node:
    queries = len(deployment.names) - len(deployment.refused)
    operators = len(deployment.operators) + sum(len(group.shapes) for group in deployment.groups)
    nodes = [_group_node(group) for group in deployment.groups]
    shared = [operator for operator in deployment.operators if len(operator.names) > 1]
    if shared:
        nodes.append(Node("equal queries, evaluated once", tuple(map(_operator_node, shared))))
    nodes += _alone_nodes(deployment, {name for operator in shared for name in operator.names})
    if deployment.refused:
        refused = (Node(f"{name}: {str(error).splitlines()[0]}") for name, error in deployment.refused.items())
        nodes.append(Node(f"refused: {len(deployment.refused)}", tuple(refused)))
    return Node(f"deployment: {queries} queries, {operators} operators, one pass over the input", tuple(nodes))


def _group_node(group: FamilyGroup) -> Node:
    tests = group.families.tests
    key = "no key" if group.families.key is None else f"key {group.families.key}"
    one_table = [
        *(f"{name}: {len(tests.constants[name])} constants, one search" for name in tests.numbers),
        *(
            f"{'event type' if of.is_type else name}: {len(tests.strings[name])} values"
            for name, of in tests.texts.items()
        ),
        *([f"{len(tests.conditions)} other conditions, each computed once"] if tests.conditions else []),
    ]
    families = [Node(f"{shape.text}: {rules} rules, one operator") for shape, rules in group.shapes]
    rules = sum(count for _, count in group.shapes)
    shapes = "1 shape" if len(group.shapes) == 1 else f"{len(group.shapes)} shapes"
    return Node(
        f"families with {key}: {rules} rules in {shapes}, equal beginnings shared",
        (Node("tests on one event, one table", tuple(map(Node, one_table))), *families),
    )


def _operator_node(operator: Operator) -> Node:
    return Node(f"{operator.name} ({operator.prepared.plan.evaluator}): {_names(operator.names)}")


def _alone_nodes(deployment: Deployment, shared: set[str]) -> list[Node]:
    """The queries that share only the reading, by the reason."""
    reasons: dict[str, list[str]] = {}
    for name, reason in deployment.alone.items():
        if name not in shared and name not in deployment.refused:
            reasons.setdefault(reason, []).append(name)
    return [Node(f"evaluated alone, {reason}: {_names(names)}") for reason, names in reasons.items()]


def _names(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return ", ".join(names[:_MOST_NAMES]) + more
