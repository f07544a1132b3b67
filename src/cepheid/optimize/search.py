"""The search for the best tree plan (ZStream §5.2.3, Algorithm 5).

Bottom up over ever longer stretches of a sequence, it finds the best split of each stretch: O(n^3), bushy plans
included. The operands of a conjunction have no order, so the search tries every partition of them if they are few. A
nested operator is an operand with the cost and cardinality of its own best plan (theorem 5.1).

Negations are pushed down (NSEQ) where their predicates allow it, or evaluated on top (NEG), whichever is cheaper.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from cepheid import tree_plan as tp
from cepheid.errors import InputProblem, listing
from cepheid.events import Duration
from cepheid.expr import Expr
from cepheid.optimize.alternatives import Absence, Alternative, Group, alternatives
from cepheid.optimize.cost import (
    BUFFER,
    Model,
    Operand,
    conjunction_pairs,
    events_in_window,
    fitting_share,
    join,
    kept,
    nothing_between,
    operator_cost,
    pairs_in_order,
    reading_cost,
    tested_join,
    total_cost,
)
from cepheid.optimize.placement import Gap, Narrowing, class_names
from cepheid.optimize.shapes import SHAPES, parse_shape, shaped, within
from cepheid.optimize.stack_cost import stacks_cost
from cepheid.optimize.stats import NO_STATS, Stats
from cepheid.pattern import Conj, Disj, EventClass, Pattern, Query, Seq
from cepheid.physical import Options, Plan
from cepheid.tree_plan import TreeNode, TreePlan, tree_nodes, tree_text

TREE_OPTIONS: Options = {"shape": (), "negation": ("pushed", "top")}
_FEW = 6
"""The most operands of a conjunction for which the search tries every partition of them."""
RUNNERS_UP = 3


@dataclass(frozen=True, slots=True)
class Situation:
    """The input of the search: a query, its predicates (the single-class ones by variable, and the others), its window
    in ticks or events, and the statistics of the stream."""

    query: Query
    predicates: tuple[Expr, ...]
    single: Mapping[str, Sequence[Expr]]
    window: float | None = None
    stats: Stats = NO_STATS
    operator_windows: Mapping[Duration, int] | None = None
    has_durations: bool = False

    def model(self, alternative: Alternative) -> Model:
        found = self.query.roles
        return Model(
            alternative,
            self.predicates,
            self.single,
            frozenset(var for var, role in found.items() if role.negated),
            self.stats,
            self.window,
            self.query.window is not None and self.query.window.counts_events,
        )

    def narrowing(self, alternative: Alternative) -> Narrowing:
        types = {var: role.event_class.types for var, role in self.query.roles.items()}
        return Narrowing(alternative, self.predicates, types, self.operator_windows is None and not self.has_durations)


def situation_of(plan: Plan, stats: Stats) -> Situation:
    """The situation of an existing plan, with other statistics. The window is as the query writes it: that of a plan
    is the longest whole number within it."""
    single = {step.var: plan.bits[step.begin].tests for step in plan.steps}
    window = None if plan.window is None else plan.window + (not plan.query.dialect.window_includes_bound)
    return Situation(plan.query, plan.predicates, single, window, stats, plan.operator_windows, plan.has_durations)


def expected_of_tree(situation: Situation, tree: TreePlan) -> float:
    """The nanoseconds for each event that a tree plan is expected to take."""
    models = [situation.model(alternative) for alternative in alternatives(situation.query)]
    around = reading_cost(models[0]) + BUFFER * kept(models[0])
    return (tree.cost + around) / max(map(events_in_window, models))


def expected_of_stacks(situation: Situation) -> float:
    """The nanoseconds for each event that stacks are expected to take, for a sequence of classes."""
    model = situation.model(alternatives(situation.query)[0])
    return stacks_cost(model) / events_in_window(model)


def plan_cost(plan: Plan, stats: Stats) -> float:
    """The nanoseconds for each event that a plan of stacks or trees is expected to take by these statistics."""
    situation = situation_of(plan, stats)
    if plan.tree is None:
        return expected_of_stacks(situation)
    pairs = zip(alternatives(plan.query), plan.tree.trees, strict=True)
    cost = sum(total_cost(situation.model(alternative).annotated(tree)) for alternative, tree in pairs)
    return expected_of_tree(situation, replace(plan.tree, cost=cost))


def tree_options(options: Mapping[str, str | bool]) -> tuple[str | None, str | None]:
    """The shape and the negation that the options force, if any."""
    shape, negation = (str(options[name]) if name in options else None for name in TREE_OPTIONS)
    return shape, negation


def tree_plan(
    situation: Situation, shape: str | None = None, negation: str | None = None, next_best: int = RUNNERS_UP
) -> TreePlan:
    """The cheapest plan under the options: `shape` is left-deep, right-deep, bushy, or a tree
    (`[[IBM;Sun];[Oracle;Google]]`); `negation` is `top` or `pushed`. The plan also lists the `next_best` cheapest
    alternatives."""
    if negation is not None and negation not in TREE_OPTIONS["negation"]:
        raise InputProblem(f"no way to negate `{negation}`", expected=listing(TREE_OPTIONS["negation"]))
    chosen: list[Candidate] = []
    others: list[tuple[int, Candidate]] = []
    found = alternatives(situation.query)
    for number, alternative in enumerate(found):
        candidates = candidates_of(
            situation, alternative, shape if len(found) == 1 or shape in SHAPES else None, next_best
        )
        wanted = [c for c in candidates if negation is None or c.negation in (None, negation)]
        ranked = sorted(wanted, key=lambda c: c.cost)
        chosen.append(ranked[0])
        others += [(number, c) for c in sorted(candidates, key=lambda c: c.cost) if c is not ranked[0]]
    trees = tuple(c.tree for c in chosen)
    cost = sum(c.cost for c in chosen)
    runners_up = []
    for number, candidate in sorted(others, key=lambda item: item[1].cost - chosen[item[0]].cost)[:next_best]:
        whole = (*trees[:number], candidate.tree, *trees[number + 1 :])
        reason = _why_it_lost(candidate, chosen[number])
        runners_up.append((whole, cost - chosen[number].cost + candidate.cost, reason))
    return TreePlan(trees, cost, tuple(runners_up))


@dataclass(frozen=True, slots=True)
class Candidate:
    tree: TreeNode
    cost: float
    negation: str | None


def candidates_of(situation: Situation, alternative: Alternative, shape: str | None, next_best: int) -> list[Candidate]:
    """The best plans, each with another split of the root, with negations pushed down and on top."""
    model, narrowing = situation.model(alternative), situation.narrowing(alternative)
    absences = [(a, gap) for a in alternative.absences if (gap := narrowing.absence(a)) is not None]
    closures = [(g, gap) for g in alternative.groups if (gap := narrowing.closure(g)) is not None]
    found: dict[TreeNode, Candidate] = {}
    for pushed in [absences, []] if absences else [[]]:
        search = Search(model, alternative, pushed, closures, situation.operator_windows)
        if shape is None:
            trees = [solved.tree for solved in search.by_root_split(1 + next_best)]
        elif shape in SHAPES:
            trees = [shaped(alternative.operands, shape, situation.operator_windows)]
        else:
            written = parse_shape(shape, alternative.operands)
            trees = [within(written, alternative.operands, situation.operator_windows)]
        for tree in trees:
            annotated = model.annotated(search.complete(tree))
            negation = None if not absences else "pushed" if pushed else "top"
            found.setdefault(annotated, Candidate(annotated, total_cost(annotated), negation))
    return list(found.values())


def _why_it_lost(candidate: Candidate, best: Candidate) -> str:
    """What makes the loser expensive: the most costly operator that the winner does not have at the same cost."""
    ratio = candidate.cost / best.cost if best.cost else math.inf
    operators, shared = tree_nodes(candidate.tree), tree_nodes(best.tree)
    own = [
        node
        for node in operators
        if not any(type(node) is type(s) and math.isclose(node.cost, s.cost, rel_tol=1e-6) for s in shared)
    ]
    worst = max(own or operators, key=lambda node: node.cost)
    more = f"{ratio:.2f} times the cost" if ratio < 10 else f"{ratio:.0f} times the cost"
    return f"{more}: {tree_text(worst)} alone costs {worst.cost:.4g} and makes {worst.cardinality:.4g} records"


# --- Algorithm 5 ------------------------------------------------------------------------------------------------------


class Solved(NamedTuple):
    """The best plan of a sub-pattern, without estimates in its nodes."""

    tree: TreeNode
    operand: Operand
    cost: float


@dataclass(frozen=True, slots=True)
class Search:
    """The search over one alternative, with these negations and closures pushed down."""

    model: Model
    alternative: Alternative
    absences: Sequence[tuple[Absence, Gap]]
    closures: Sequence[tuple[Group, Gap]]
    windows: Mapping[Duration, int] | None = None

    def by_root_split(self, number: int) -> list[Solved]:
        """The best plan for each split of the whole pattern: the cheapest `number` of them, cheapest first."""
        operands = self.alternative.operands
        if not isinstance(operands, Seq):
            return [self._solve(operands)]
        return [self._within(solved, operands) for solved in self._sequence(operands).splits(number)]

    def _within(self, solved: Solved, operands: Pattern) -> Solved:
        return solved._replace(tree=within(solved.tree, operands, self.windows))

    def complete(self, tree: TreeNode) -> TreeNode:
        """Adds the NSEQ and KSEQ nodes that narrow joins, and the groups and negations on top, to a tree of joins."""
        core = self._narrowed(tree)
        pushed = {var for absence, _ in self.absences for var in absence.variables}
        if self.alternative.groups:
            core = tp.GroupNode(core, tuple(group.var for group in self.alternative.groups))
        on_top = tuple(v for a in self.alternative.absences for v in a.variables if v not in pushed)
        return tp.NegNode(core, on_top) if on_top else core

    def _narrowed(self, node: TreeNode) -> TreeNode:
        """NSEQ around the operand after a pushed negation, and KSEQ where a closure lies in the gap."""
        match node:
            case tp.SeqNode():
                left, right = self._narrowed(node.left), self._narrowed(node.right)
                first, last = _edge_names(node.right, first=True), _edge_names(node.left, first=False)
                for group, gap in self.closures:
                    items = gap.sequence.items
                    if class_names(items[gap.following]) == first and class_names(items[gap.following - 1]) == last:
                        return tp.KseqNode(left, self._negated(right, first), group.var)
                return tp.SeqNode(left, self._negated(right, first))
            case tp.ConNode() | tp.DisNode():
                return replace(node, left=self._narrowed(node.left), right=self._narrowed(node.right))
            case tp.Within():
                return replace(node, item=self._narrowed(node.item))
            case _:
                return node

    def _negated(self, node: TreeNode, first: frozenset[str]) -> TreeNode:
        negated = tuple(
            var
            for absence, gap in self.absences
            if class_names(gap.sequence.items[gap.following]) == first
            for var in absence.variables
        )
        return _wrap_first(node, negated) if negated else node

    def _solve(self, pattern: Pattern) -> Solved:
        match pattern:
            case EventClass():
                events = self.model.cardinality(pattern.var)
                return Solved(tp.LeafBuffer(pattern.var), Operand(events, 1, events), 0.0)
            case Seq():
                return self._within(self._sequence(pattern).best(), pattern)
            case Conj():
                return self._within(self._conjunction(pattern), pattern)
            case Disj():
                return self._disjunction(pattern)
            case _:
                raise AssertionError("not an operand")

    def _sequence(self, pattern: Seq) -> _Stretches:
        items = [self._solve(item) for item in pattern.items]
        names = [class_names(item) for item in pattern.items]
        steps = [_Step(1.0)]
        for index in range(1, len(items)):
            order = self.model.stats.order(sorted(names[index - 1]), sorted(names[index]))
            absences = [a for a, gap in self.absences if gap == Gap(pattern, index)]
            closures = [g for g, gap in self.closures if gap == Gap(pattern, index)]
            negated = [var for absence in absences for var in absence.variables]
            if negated:
                nseq = self.model.negating(items[index].operand.cardinality, negated)
                items[index] = items[index]._replace(cost=items[index].cost + nseq)
            kept = math.prod(map(self.model.survival, absences)) * math.prod(map(self.model.enough_between, closures))
            steps.append(_Step(order, kept, searches=1 + len(closures)))
        return _Stretches(items, steps, _crossing(self.model, names), tp.SeqNode)

    def _conjunction(self, pattern: Conj) -> Solved:
        items = [self._solve(item) for item in pattern.items]
        names = [class_names(item) for item in pattern.items]
        if len(items) > _FEW:
            steps = [_Step(1.0)] * len(items)
            return _Stretches(items, steps, _crossing(self.model, names), tp.ConNode).best()
        return self._parted(items, names)

    def _parted(self, items: Sequence[Solved], names: Sequence[frozenset[str]]) -> Solved:
        """Every way to part the operands of a conjunction in two."""
        best: dict[int, Solved] = {1 << i: item for i, item in enumerate(items)}
        tests = _crossing(self.model, names)
        for chosen in range(1, 1 << len(items)):
            if chosen in best:
                continue
            part = (chosen - 1) & chosen
            while part > chosen - part:
                rest = chosen - part
                one, other = (best[part], best[rest]) if rest & -rest > part & -part else (best[rest], best[part])
                between = [t for t in tests if t.made_by(part, rest)]
                records = one.operand.cardinality + other.operand.cardinality
                pairs = conjunction_pairs(one.operand, other.operand)
                made, cost = tested_join(pairs, records, records, [(t.selectivity, t.equality) for t in between])
                cost += one.cost + other.cost
                if chosen not in best or cost < best[chosen].cost:
                    best[chosen] = Solved(tp.ConNode(one.tree, other.tree), _joined(one, other, made), cost)
                part = (part - 1) & chosen
        return best[(1 << len(items)) - 1]

    def _disjunction(self, pattern: Disj) -> Solved:
        first, *rest = [self._solve(item) for item in pattern.items]
        for item in rest:
            made = first.operand.cardinality + item.operand.cardinality
            cost = first.cost + item.cost + operator_cost(made, 0, made)
            starts = first.operand.starts + item.operand.starts
            first = Solved(tp.DisNode(first.tree, item.tree), Operand(made, 1, starts), cost)
        return first


def _joined(one: Solved, other: Solved, made: float) -> Operand:
    """What a conjunction is as an operand: it may start with any of its events."""
    return Operand(made, one.operand.classes + other.operand.classes, one.operand.starts + other.operand.starts)


@dataclass(frozen=True, slots=True)
class _Step:
    """The factors of a split at one index of a sequence: the share of pairs in order, the share that negations and
    closures leave, and the number of searches for each right record."""

    order: float
    kept: float = 1.0
    searches: int = 1


@dataclass(frozen=True, slots=True)
class _Crossing:
    """A test between operands, as bits: it is made where operands on both sides of a split are among them, and none of
    them lies outside. A class of equalities is `partial`: any two of its operands are to be compared."""

    spans: int
    selectivity: float
    equality: bool
    partial: bool = False

    def made_by(self, left: int, right: int) -> bool:
        spans = self.spans
        return bool(spans & left and spans & right) and (self.partial or not spans & ~(left | right))


def _crossing(model: Model, names: Sequence[frozenset[str]]) -> list[_Crossing]:
    here = frozenset().union(*names)
    found: list[_Crossing] = []
    of_class: dict[int, _Crossing] = {}
    for test in model.tests:
        spans = sum(1 << i for i, part in enumerate(names) if part & test.names)
        if not test.names <= here or spans & (spans - 1) == 0:
            continue
        if test.alike is None:
            found.append(_Crossing(spans, test.selectivity, test.is_equality))
        else:
            known = of_class[test.alike].spans if test.alike in of_class else 0
            of_class[test.alike] = _Crossing(spans | known, test.selectivity, test.is_equality, True)
    return [*found, *of_class.values()]


@lru_cache(maxsize=64)
def _fitting_shares(size: int) -> Any:
    """A table of `fitting_share` for records of 1 to `size` classes on both sides."""
    return np.array([[fitting_share(left, right) for right in range(1, size + 1)] for left in range(1, size + 1)])


class _Tests:
    """The selectivities of the tests at each split of a sequence, indexed by the first operand, the first after the
    split, and the end: the share of pairs with equal keys, whether keys are hashed, and the number and the combined
    selectivity of the other tests."""

    def __init__(self, size: int, tests: Sequence[_Crossing]) -> None:
        cube = (size + 1, size + 1, size + 1)
        self.equal, self.others = np.ones(cube), np.ones(cube)
        self.hashed, self.count = np.zeros(cube, bool), np.zeros(cube)
        for test in tests:
            where: Any
            if test.partial:
                before = np.array([(test.spans & ((1 << place) - 1)).bit_count() for place in range(size + 1)])
                more = before[:, None] < before  # whether one of its operands lies between two positions
                where = more[:, :, None] & more[None, :, :]
            else:
                low, high = (test.spans & -test.spans).bit_length() - 1, test.spans.bit_length() - 1
                where = np.s_[: low + 1, low + 1 : high + 1, high + 1 :]
            if test.equality:
                self.equal[where] *= test.selectivity
                self.hashed[where] = True
            else:
                self.others[where] *= test.selectivity
                self.count[where] += 1.0


class _Stretches:
    """Algorithm 5 over the operands of one sequence (or of a conjunction of many): for all stretches of one size at
    once, the costs of all their splits."""

    def __init__(
        self,
        items: Sequence[Solved],
        steps: Sequence[_Step],
        tests: Sequence[_Crossing],
        node: type[tp.SeqNode] | type[tp.ConNode],
    ) -> None:
        n = len(items)
        self.items = items
        self.node = node
        self.tests = _Tests(n, tests)
        self.order, self.kept, self.searches = np.array([(step.order, step.kept, step.searches) for step in steps]).T
        self.classes = np.cumsum([0, *(item.operand.classes for item in items)])
        self.starts = np.cumsum([0.0, *(item.operand.starts for item in items)])
        self.in_vain = np.array([1.0 - nothing_between(item.operand.starts) for item in items])
        self.fit = _fitting_shares(int(self.classes[-1]))
        self.cardinality, self.cost = np.zeros((n + 1, n + 1)), np.zeros((n + 1, n + 1))
        self.root = np.zeros((n + 1, n + 1), np.int64)
        for place, item in enumerate(items):
            alone = (place, place + 1)
            self.cardinality[alone], self.cost[alone] = item.operand.cardinality, item.cost
        for size in range(2, n + 1):
            i = np.arange(n - size + 1)
            made, cost = self._splits(i[:, None], i[:, None] + np.arange(1, size), i[:, None] + size)
            best = cost.argmin(axis=1)
            self.cardinality[i, i + size] = made[:, -1]
            self.cost[i, i + size], self.root[i, i + size] = cost[i, best], i + best + 1

    def _splits(self, i: Any, r: Any, j: Any) -> tuple[Any, Any]:
        """Cardinality and cost of stretches from `i` to `j` that are split at `r`."""
        left, right = self.cardinality[i, r], self.cardinality[r, j]
        one, other = self.classes[r] - self.classes[i], self.classes[j] - self.classes[r]
        searches: Any
        if self.node is tp.SeqNode:
            fit = self.fit[one - 1, other - 1]
            pairs = pairs_in_order(left, right, other, self.order[r], fit, self.in_vain[i]).scaled(self.kept[r])
            searches, linked = right * self.searches[r], left
        else:
            starts = self.starts[r] - self.starts[i], self.starts[j] - self.starts[r]
            pairs = conjunction_pairs(Operand(left, one, starts[0]), Operand(right, other, starts[1]))
            searches = linked = left + right
        tests, at = self.tests, (i, r, j)
        made, cost = join(pairs, searches, linked, tests.equal[at], tests.others[at], tests.count[at], tests.hashed[at])
        return made, cost + self.cost[i, r] + self.cost[r, j]

    def _tree(self, i: int, j: int, root: int | None = None) -> TreeNode:
        if j == i + 1:
            return self.items[i].tree
        r = root or int(self.root[i, j])
        return self.node(self._tree(i, r), self._tree(r, j))

    @property
    def _whole(self) -> Operand:
        starts = self.items[0].operand.starts if self.node is tp.SeqNode else float(self.starts[-1])
        return Operand(float(self.cardinality[0, -1]), int(self.classes[-1]), starts)

    def best(self) -> Solved:
        n = len(self.items)
        return Solved(self._tree(0, n), self._whole, float(self.cost[0, n]))

    def splits(self, number: int) -> list[Solved]:
        n = len(self.items)
        _, cost = self._splits(0, np.arange(1, n), n)
        return [
            Solved(self._tree(0, n, int(r) + 1), self._whole, float(cost[r]))
            for r in np.argsort(cost, kind="stable")[:number]
        ]


def _edge_names(node: TreeNode, *, first: bool) -> frozenset[str]:
    """The variables of the first (or last) operand of a subtree."""
    while isinstance(node, tp.SeqNode):
        node = node.left if first else node.right
    return frozenset(n.var for n in tree_nodes(node) if isinstance(n, tp.LeafBuffer))


def _wrap_first(node: TreeNode, negated: tuple[str, ...]) -> TreeNode:
    if isinstance(node, tp.SeqNode | tp.KseqNode):
        return replace(node, left=_wrap_first(node.left, negated))
    return tp.NseqNode(node, negated)
