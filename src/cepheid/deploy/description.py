"""EXPLAIN of a deployment: what its queries share, what they do not, and why."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import islice

from cepheid import expr as ex
from cepheid.deploy.deployment import Common, Deployment, FamilyGroup, Operator, United, Written
from cepheid.deploy.expected import expected_costs
from cepheid.deploy.graphs import why_not_common
from cepheid.errors import counted
from cepheid.explanation import Explained, rendered
from cepheid.io.source import SourceDescription
from cepheid.optimize.unions import shared_joins
from cepheid.picture import Explanation, Node
from cepheid.tree_plan import LeafBuffer, tree_nodes, tree_text

_MOST_NAMES, _MOST_TEXTS, _MOST_UNIONS = 8, 20, 6
NO_COSTS: Mapping[str, float] = {}


def explain_deployment(
    deployment: Deployment, queries: Collection[Written], source: SourceDescription, format: str = "text"
) -> Explained:
    """The description of a deployment, as text or picture. A picture shows the text of the first queries."""
    costs = expected_costs(deployment, source)
    return rendered(Explanation(describe(deployment, costs), text=first_texts(queries)), format)


def first_texts(queries: Collection[Written]) -> str:
    """The text of the first queries, and the number of the others."""
    texts = [f"-- {query.name}\n{query.text.strip()}" for query in islice(queries, _MOST_TEXTS)]
    if len(queries) > _MOST_TEXTS:
        texts.append(f"-- and {len(queries) - _MOST_TEXTS} more")
    return "\n\n".join(texts)


def describe(deployment: Deployment, costs: Mapping[str, float] = NO_COSTS) -> Node:
    """What runs together and what does not; `costs` are the expected nanoseconds for each event of some operators."""
    queries = len(deployment.names) - len(deployment.refused)
    single = deployment.single_operators
    operators = len(single) + len(deployment.unions) + sum(len(group.shapes) for group in deployment.groups)
    operators += sum(len(common.fed) for common in deployment.common)
    operators += sum(len(common.inner) for common in deployment.common)
    nodes = [_group_node(group) for group in deployment.groups]
    nodes += map(_union_node, deployment.unions[:_MOST_UNIONS])
    others = deployment.unions[_MOST_UNIONS:]
    if others:
        queries_of_others = sum(len(operator.names) for union in others for operator in union.operators)
        nodes.append(
            Node(f"{counted(len(others), 'more plan')} like these, for the trees of {queries_of_others} queries")
        )
    apart = why_not_common(deployment)
    nodes += (_common_node(common, apart) for common in deployment.common)
    shared = [operator for operator in single if len(operator.names) > 1]
    if shared:
        nodes.append(Node("equal queries, evaluated once", tuple(map(_operator_node, shared))))
    nodes += _alone_nodes(deployment, [operator for operator in single if len(operator.names) == 1])
    nodes += _inner_alone(single, apart)
    nodes += _most_expensive([operator for operator in single if operator.name in costs], costs)
    if deployment.refused:
        refused = (Node(f"{name}: {str(error).splitlines()[0]}") for name, error in deployment.refused.items())
        nodes.append(Node(f"refused: {len(deployment.refused)}", tuple(refused)))
    label = f"deployment: {counted(queries, 'query', 'queries')}, {counted(operators, 'operator')}"
    return Node(f"{label}, one pass over the input", tuple(nodes))


def _group_node(group: FamilyGroup) -> Node:
    tests = group.families.tests
    key = "no key" if group.families.key is None else f"key {group.families.key}"
    one_table = [
        *(f"{name}: {counted(len(tests.constants[name]), 'constant')}, one search" for name in tests.numbers),
        *(
            f"{'event type' if of.is_type else name}: {counted(len(tests.strings[name]), 'value')}"
            for name, of in tests.texts.items()
        ),
        *([f"{counted(len(tests.conditions), 'other condition')}, each computed once"] if tests.conditions else []),
    ]
    families = [Node(f"{shape.text}: {counted(rules, 'rule')}, one operator") for shape, rules in group.shapes]
    rules = sum(count for _, count in group.shapes)
    members = f"{counted(rules, 'rule')} in {counted(len(group.shapes), 'shape')}"
    return Node(
        f"families with {key}: {members}, equal beginnings shared",
        (Node("tests on one event, one table", tuple(map(Node, one_table))), *families),
    )


def _operator_node(operator: Operator) -> Node:
    return Node(f"{_names(operator.names)} ({operator.prepared.plan.evaluator})")


def _union_node(union: United) -> Node:
    """The trees of several operators as one plan: what they have in common, and what each has of its own."""
    plan = union.prepared.plan
    assert plan.tree is not None
    names = [_names(operator.names) for operator in union.operators]
    queries = sum(len(operator.names) for operator in union.operators)
    joins = [
        Node(f"{tree_text(node)}: joined once for {_names([names[number] for number in numbers])}")
        for node, numbers in shared_joins(plan.tree).items()
    ]
    owners: dict[str, list[str]] = {}
    for name, tree in zip(names, plan.tree.trees, strict=True):
        for node in tree_nodes(tree):
            if isinstance(node, LeafBuffer):
                owners.setdefault(node.var, []).append(name)
    bits = {step.var: plan.bits[step.begin] for step in plan.steps}
    buffers = []
    for var, of in owners.items():
        if len(of) > 1:
            tests = [" or ".join(bits[var].types), *map(ex.to_text, bits[var].tests)]
            buffers.append(
                Node(f"{var}: {', '.join(filter(None, tests)) or 'any event'}: stored once for {_names(of)}")
            )
    trees = [Node(f"{name}: {tree_text(tree)}") for name, tree in zip(names, plan.tree.trees, strict=True)]
    cost = ""
    if plan.expected == plan.expected:
        cost = f", expected {plan.expected:.4g} ns for each event ({union.cost_apart:.4g} ns apart)"
    label = f"one plan for the trees of {queries} queries{cost}"
    children = [Node("shared joins", tuple(joins))] if joins else []
    children += [Node("shared buffers", tuple(buffers))] if buffers else []
    return Node(label, (*children, Node("trees (a stream runs each by itself)", tuple(trees))))


def _common_node(common: Common, apart: Mapping[str, Sequence[str]]) -> Node:
    """The inner queries of several operators, each with those that use it."""
    inner = []
    for node in common.inner.values():
        users = [name for one in common.operators if node.name in one.feeding for name in one.names]
        own = common.shown.get(node.name)
        of = "" if own is None else f", and its matches are those of {_names(own.names)}"
        of += "".join(f"; {reason}" for reason in apart.get(node.name, ()))
        inner.append(Node(f"{node.label} ({node.prepared.plan.evaluator}): evaluated once for {_names(users)}{of}"))
    fed = tuple(map(_operator_node, common.fed))
    label = (
        "queries over other queries, each of which is evaluated once "
        "(in a stream, and on Spark: once for those that were added together and have one key, or one slot, "
        "and again for a query that is itself one of the deployment)"
    )
    return Node(label, (Node("inner queries", tuple(inner)), *fed))


def _alone_nodes(deployment: Deployment, operators: Sequence[Operator]) -> list[Node]:
    """The queries that share only the reading, by the reasons."""
    reasons: dict[str, list[str]] = {}
    for operator in operators:
        of_family, of_union = deployment.alone.get(operator.names[0]), deployment.apart.get(operator.name)
        reason = "; ".join(dict.fromkeys(reason for reason in (of_family, of_union) if reason is not None))
        reasons.setdefault(reason, []).extend(operator.names)
    return [Node(f"evaluated alone, {reason}: {_names(names)}") for reason, names in reasons.items()]


def _inner_alone(operators: Sequence[Operator], apart: Mapping[str, Sequence[str]]) -> list[Node]:
    """The inner queries that are evaluated for each operator, with the reasons."""
    lines = [
        f"{node.label} of {_names(operator.names)}: {'; '.join(apart[name])}"
        for operator in operators
        for name, node in operator.feeding.items()
        if name in apart
    ]
    if not lines:
        return []
    more = [f"and {len(lines) - _MOST_NAMES} more"] if len(lines) > _MOST_NAMES else []
    return [Node("inner queries that are not shared", tuple(map(Node, [*lines[:_MOST_NAMES], *more])))]


def _most_expensive(operators: Sequence[Operator], costs: Mapping[str, float]) -> list[Node]:
    """The operators that run by themselves and are expected to take the most, before they run."""
    first = sorted(operators, key=lambda operator: -costs[operator.name])[:_MOST_NAMES]
    if not first:
        return []
    total = sum(costs[operator.name] for operator in operators)
    label = f"expected of what runs alone: {total:,.0f} ns for each event (100 rules of a family take about 300)"
    lines = (
        f"{_names(one.names)} ({one.prepared.plan.evaluator}): {costs[one.name]:,.0f} ns, {costs[one.name] / total:.0%}"
        for one in first
    )
    return [Node(label, tuple(map(Node, lines)))]


def _names(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return ", ".join(names[:_MOST_NAMES]) + more
