"""Draws plans for the tree evaluator: every legal shape."""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import strategies as st

from cepheid.events import Duration
from cepheid.optimize.alternatives import alternatives
from cepheid.optimize.search import Search, Situation
from cepheid.optimize.shapes import within
from cepheid.pattern import Conj, Disj, EventClass, Pattern, Query, Seq
from cepheid.physical import Plan
from cepheid.tree_plan import ConNode, DisNode, LeafBuffer, SeqNode, TreeNode, TreePlan

_NODES = {Seq: SeqNode, Conj: ConNode, Disj: DisNode}


def drawn_shape(data: st.DataObject, operands: Pattern, windows: Mapping[Duration, int] | None = None) -> TreeNode:
    """Any order of joining neighbours; the operands of a conjunction in any order too."""
    if isinstance(operands, EventClass):
        return LeafBuffer(operands.var)
    assert isinstance(operands, Seq | Conj | Disj)
    items = [drawn_shape(data, item, windows) for item in operands.items]
    if isinstance(operands, Conj):
        items = data.draw(st.permutations(items))
    while len(items) > 1:
        at = data.draw(st.integers(0, len(items) - 2))
        items[at : at + 2] = [_NODES[type(operands)](items[at], items[at + 1])]
    return within(items[0], operands, windows)


def drawn_plan(data: st.DataObject, query: Query, plan: Plan) -> TreePlan:
    """Any legal plan: any shape, each negation and closure pushed down or not where it can be."""
    windows = plan.operator_windows
    situation = Situation(
        query, plan.predicates, {}, plan.window, operator_windows=windows, has_durations=plan.has_durations
    )
    trees = []
    for alternative in alternatives(query):
        narrowing = situation.narrowing(alternative)
        absences = [(a, gap) for a in alternative.absences if (gap := narrowing.absence(a))]
        closures = [(g, gap) for g in alternative.groups if (gap := narrowing.closure(g))]
        pushed = [item for item in absences if data.draw(st.booleans())]
        narrowed = [item for item in closures if data.draw(st.booleans())]
        search = Search(situation.model(alternative), alternative, pushed, narrowed)
        trees.append(search.complete(drawn_shape(data, alternative.operands, windows)))
    return TreePlan(tuple(trees))
