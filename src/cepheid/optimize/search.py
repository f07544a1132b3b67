"""Which tree plan is best."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cepheid import expr as ex
from cepheid.expr import At, Attr, Expr
from cepheid.optimize.alternatives import Absence, Alternative, Group, alternatives
from cepheid.pattern import Conj, Disj, EventClass, Pattern, Query, Seq, positives, roles
from cepheid.physical import (
    ConNode,
    DisNode,
    GroupNode,
    KseqNode,
    LeafBuffer,
    NegNode,
    NseqNode,
    SeqNode,
    TreeNode,
    TreePlan,
)


def tree_plan(query: Query, predicates: Sequence[Expr]) -> TreePlan:
    return TreePlan(tuple(_left_deep(a.operands) for a in alternatives(query.pattern)))


def _left_deep(pattern: Pattern) -> TreeNode:
    if isinstance(pattern, EventClass):
        return LeafBuffer(pattern.var)
    assert isinstance(pattern, Seq | Conj | Disj)
    made = {Seq: SeqNode, Conj: ConNode, Disj: DisNode}[type(pattern)]
    node = _left_deep(pattern.items[0])
    for item in pattern.items[1:]:
        node = made(node, _left_deep(item))
    return node
