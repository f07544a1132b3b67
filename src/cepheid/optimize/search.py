"""The search for the best tree plan (ZStream §5.2.3, Algorithm 5).

Bottom up over ever longer stretches of a sequence, the best place to split each stretch: O(n^3), bushy plans included.
A conjunction's operands have no order, so every way to part them is looked at where there are few of them. A nested
operator is an operand with the cost and cardinality of its own best plan (theorem 5.1).

Negations are pushed down (NSEQ) where their predicates allow it, or kept on top (NEG), whichever is cheaper.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from cepheid import expr as ex
from cepheid.errors import InputProblem
from cepheid.expr import Expr
from cepheid.optimize.alternatives import Absence, Alternative, Group, alternatives
from cepheid.optimize.cost import (
    Model,
    Operand,
    Pairs,
    conjunction_pairs,
    disjunction_tried,
    events_in_window,
    operator_cost,
    reading_cost,
    sequence_pairs,
    total_cost,
)
from cepheid.optimize.placement import Gap, Narrowing, class_names
from cepheid.optimize.shapes import SHAPES, parse_shape, shaped
from cepheid.optimize.stack_cost import stacks_cost
from cepheid.optimize.stats import NO_STATS, Stats
from cepheid.pattern import Conj, Disj, EventClass, Pattern, Query, Seq, roles
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
    tree_operands,
    tree_text,
)

_FEW = 6
"""Up to how many operands of a conjunction every way to part them is looked at."""
_RUNNERS_UP = 3


@dataclass(frozen=True, slots=True)
class Situation:
    """What a tree plan is chosen for: a query, its predicates (single-class ones by variable, the others), its window
    in ticks or events, and what is known of the stream."""

    query: Query
    predicates: tuple[Expr, ...]
    single: Mapping[str, Sequence[Expr]]
    window: float | None = None
    stats: Stats = NO_STATS

    def model(self, alternative: Alternative) -> Model:
        found = roles(self.query.pattern)
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
        types = {var: role.event_class.types for var, role in roles(self.query.pattern).items()}
        return Narrowing(alternative, self.predicates, types)


def expected_of_tree(situation: Situation, plan: TreePlan) -> float:
    """The nanoseconds for each event that a tree plan is expected to take."""
    models = [situation.model(alternative) for alternative in alternatives(situation.query.pattern)]
    return (plan.cost + reading_cost(models[0])) / max(map(events_in_window, models))


def expected_of_stacks(situation: Situation) -> float:
    """The nanoseconds for each event that stacks are expected to take, for a sequence of classes."""
    model = situation.model(alternatives(situation.query.pattern)[0])
    return stacks_cost(model) / events_in_window(model)


def tree_plan(situation: Situation, shape: str | None = None, negation: str | None = None) -> TreePlan:
    """The cheapest plan, or the one that the user asks for: `shape` is left-deep, right-deep, bushy, or written out
    (`[[IBM;Sun];[Oracle;Google]]`); `negation` is `top` or `pushed`."""
    if negation not in (None, "top", "pushed"):
        raise InputProblem(f"no way to negate `{negation}`", expected="`top` or `pushed`")
    chosen: list[_Candidate] = []
    others: list[tuple[int, _Candidate]] = []
    found = alternatives(situation.query.pattern)
    for number, alternative in enumerate(found):
        candidates = _candidates(situation, alternative, shape if len(found) == 1 or shape in SHAPES else None)
        wanted = [c for c in candidates if negation is None or c.negation in (None, negation)]
        ranked = sorted(wanted, key=lambda c: c.cost)
        chosen.append(ranked[0])
        others += [(number, c) for c in sorted(candidates, key=lambda c: c.cost) if c is not ranked[0]]
    trees = tuple(c.tree for c in chosen)
    cost = sum(c.cost for c in chosen)
    runners_up = []
    for number, candidate in sorted(others, key=lambda item: item[1].cost - chosen[item[0]].cost)[:_RUNNERS_UP]:
        whole = (*trees[:number], candidate.tree, *trees[number + 1 :])
        reason = _why_it_lost(candidate, chosen[number])
        runners_up.append((whole, cost - chosen[number].cost + candidate.cost, reason))
    return TreePlan(trees, cost, tuple(runners_up))


@dataclass(frozen=True, slots=True)
class _Candidate:
    tree: TreeNode
    cost: float
    negation: str | None


def _candidates(situation: Situation, alternative: Alternative, shape: str | None) -> list[_Candidate]:
    """The best plans, each with the root's split in another place, with negations pushed down and on top."""
    model, narrowing = situation.model(alternative), situation.narrowing(alternative)
    absences = [(a, gap) for a in alternative.absences if (gap := narrowing.absence(a)) is not None]
    closures = [(g, gap) for g in alternative.groups if (gap := narrowing.closure(g)) is not None]
    found: dict[TreeNode, _Candidate] = {}
    for pushed in [absences, []] if absences else [[]]:
        search = Search(model, alternative, pushed, closures)
        if shape is None:
            ranked = sorted(search.by_root_split(), key=lambda solved: solved.cost)
            trees = [solved.tree for solved in ranked[: 1 + _RUNNERS_UP]]
        elif shape in SHAPES:
            trees = [shaped(alternative.operands, shape)]
        else:
            trees = [parse_shape(shape, alternative.operands)]
        for tree in trees:
            annotated = model.annotated(search.complete(tree))
            negation = None if not absences else "pushed" if pushed else "top"
            found.setdefault(annotated, _Candidate(annotated, total_cost(annotated), negation))
    return list(found.values())


def _why_it_lost(candidate: _Candidate, best: _Candidate) -> str:
    """What makes the loser expensive: the most costly operator that the winner does not have at the same cost."""
    ratio = candidate.cost / best.cost if best.cost else math.inf
    shared = [(type(node), node.cost) for node in _operators(best.tree)]
    own = [n for n in _operators(candidate.tree) if not any(_alike(n, kind, cost) for kind, cost in shared)]
    worst = max(own or _operators(candidate.tree), key=lambda node: node.cost)
    more = f"{ratio:.2f} times the cost" if ratio < 10 else f"{ratio:.0f} times the cost"
    return f"{more}: {tree_text(worst)} alone costs {worst.cost:.4g} and makes {worst.cardinality:.4g} records"


def _alike(node: TreeNode, kind: type[TreeNode], cost: float) -> bool:
    return isinstance(node, kind) and math.isclose(node.cost, cost, rel_tol=1e-6)


def _operators(node: TreeNode) -> list[TreeNode]:
    return [node, *(inner for operand in tree_operands(node) for inner in _operators(operand))]


# --- Algorithm 5 ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Solved:
    """The best plan of a sub-pattern, without estimates in its nodes."""

    tree: TreeNode
    operand: Operand
    cost: float


class Search:
    """The search over one alternative, with these negations and closures pushed down."""

    def __init__(
        self,
        model: Model,
        alternative: Alternative,
        absences: Sequence[tuple[Absence, Gap]],
        closures: Sequence[tuple[Group, Gap]],
    ) -> None:
        self.model = model
        self.alternative = alternative
        self.absences = absences
        self.closures = closures

    def best(self) -> Solved:
        return self._solve(self.alternative.operands)

    def by_root_split(self) -> list[Solved]:
        """The best plan for each way to split the whole pattern."""
        operands = self.alternative.operands
        return self._sequence(operands).splits() if isinstance(operands, Seq) else [self._solve(operands)]

    def complete(self, tree: TreeNode) -> TreeNode:
        """The plan with what narrows its joins, and what is settled on top."""
        core = self._narrowed(tree)
        pushed = {var for absence, _ in self.absences for var in absence.variables}
        if self.alternative.groups:
            core = GroupNode(core, tuple(group.var for group in self.alternative.groups))
        on_top = tuple(v for a in self.alternative.absences for v in a.variables if v not in pushed)
        return NegNode(core, on_top) if on_top else core

    def _narrowed(self, node: TreeNode) -> TreeNode:
        """NSEQ around the operand after a pushed negation, and KSEQ where a closure lies in the gap."""
        match node:
            case SeqNode():
                left, right = self._narrowed(node.left), self._narrowed(node.right)
                first, last = _edge_names(node.right, first=True), _edge_names(node.left, first=False)
                for group, gap in self.closures:
                    items = gap.sequence.items
                    if class_names(items[gap.index]) == first and class_names(items[gap.index - 1]) == last:
                        return KseqNode(left, group.var, self._negated(right, first))
                return SeqNode(left, self._negated(right, first))
            case ConNode() | DisNode():
                return replace(node, left=self._narrowed(node.left), right=self._narrowed(node.right))
            case _:
                return node

    def _negated(self, node: TreeNode, first: frozenset[str]) -> TreeNode:
        negated = tuple(
            var
            for absence, gap in self.absences
            if class_names(gap.sequence.items[gap.index]) == first
            for var in absence.variables
        )
        return _wrap_first(node, negated) if negated else node

    def _solve(self, pattern: Pattern) -> Solved:
        match pattern:
            case EventClass():
                events = self.model.cardinality(pattern.var)
                return Solved(LeafBuffer(pattern.var), Operand(events, 1, events), 0.0)
            case Seq():
                return self._sequence(pattern).best()
            case Conj():
                return self._conjunction(pattern)
            case Disj():
                return self._disjunction(pattern)
            case _:
                raise AssertionError("not an operand")

    def _sequence(self, pattern: Seq) -> _Stretches:
        items = [self._solve(item) for item in pattern.items]
        names = [class_names(item) for item in pattern.items]
        steps = [_Step(1.0)]
        for index in range(1, len(items)):
            order = self.model.order(sorted(names[index - 1]), sorted(names[index]))
            absences = [a for a, gap in self.absences if gap == Gap(pattern, index)]
            closures = [g for g, gap in self.closures if gap == Gap(pattern, index)]
            negated = [var for absence in absences for var in absence.variables]
            if negated:
                nseq = self.model.negating(items[index].operand.cardinality, negated)
                items[index] = replace(items[index], cost=items[index].cost + nseq)
            kept = math.prod(map(self.model.survival, absences)) * math.prod(map(self.model.enough_between, closures))
            steps.append(_Step(order, kept, looks=1 + len(closures)))
        return _Stretches(self.model, items, steps, _crossing(self.model, names), SeqNode)

    def _conjunction(self, pattern: Conj) -> Solved:
        items = [self._solve(item) for item in pattern.items]
        names = [class_names(item) for item in pattern.items]
        if len(items) > _FEW:
            steps = [_Step(1.0)] * len(items)
            return _Stretches(self.model, items, steps, _crossing(self.model, names), ConNode).best()
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
                made, cost = self.model.join(
                    conjunction_pairs(one.operand, other.operand),
                    one.operand.cardinality + other.operand.cardinality,
                    one.operand.cardinality + other.operand.cardinality,
                    [t.selectivity for t in between if t.equality],
                    [t.selectivity for t in between if not t.equality],
                )
                cost += one.cost + other.cost
                if chosen not in best or cost < best[chosen].cost:
                    best[chosen] = Solved(ConNode(one.tree, other.tree), _joined(one, other, made), cost)
                part = (part - 1) & chosen
        return best[(1 << len(items)) - 1]

    def _disjunction(self, pattern: Disj) -> Solved:
        first, *rest = [self._solve(item) for item in pattern.items]
        for item in rest:
            made = disjunction_tried(first.operand.cardinality, item.operand.cardinality)
            cost = first.cost + item.cost + operator_cost(made, 0, made)
            starts = first.operand.starts + item.operand.starts
            first = Solved(DisNode(first.tree, item.tree), Operand(made, 1, starts), cost)
        return first


def _joined(one: Solved, other: Solved, made: float) -> Operand:
    """What a conjunction is as an operand: it may start with any of its events."""
    return Operand(made, one.operand.classes + other.operand.classes, one.operand.starts + other.operand.starts)


@dataclass(frozen=True, slots=True)
class _Step:
    """What a split at one place of a sequence means: the share of pairs in order, the share that negations and closures
    leave, and how many searches begin for each right record."""

    order: float
    kept: float = 1.0
    looks: int = 1


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
        mentioned = ex.variables(test) & frozenset(model.alternative.joined)
        spans = sum(1 << i for i, part in enumerate(names) if part & mentioned)
        if not mentioned <= here or spans & (spans - 1) == 0:
            continue
        number = model.classes.get(test)
        if number is None:
            found.append(_Crossing(spans, model.selectivity(test), model.is_equality(test)))
        else:
            known = of_class[number].spans if number in of_class else 0
            of_class[number] = _Crossing(spans | known, model.selectivity(test), model.is_equality(test), True)
    return [*found, *of_class.values()]


class _Stretches:
    """Algorithm 5 over the operands of one sequence."""

    def __init__(
        self,
        model: Model,
        items: Sequence[Solved],
        steps: Sequence[_Step],
        tests: Sequence[_Crossing],
        node: type[SeqNode] | type[ConNode],
    ) -> None:
        self.model = model
        self.items = items
        self.steps = steps
        self.node = node
        n = len(items)
        self.classes = [0, *itertools.accumulate(item.operand.classes for item in items)]
        self.crossed_at = [[t for t in tests if t.spans >> r and t.spans & ((1 << r) - 1)] for r in range(n)]
        self.cost = [[math.inf] * (n + 1) for _ in range(n + 1)]
        self.root = [[0] * (n + 1) for _ in range(n + 1)]
        self.operand = [[item.operand] * (n + 1) for item in items]
        for i, item in enumerate(items):
            self.operand[i][i + 1], self.cost[i][i + 1] = item.operand, item.cost
        for size in range(2, n + 1):
            for i in range(n - size + 1):
                j = i + size
                for r in range(i + 1, j):
                    made, cost = self._split(i, r, j)
                    if cost < self.cost[i][j]:
                        self.cost[i][j], self.root[i][j] = cost, r
                self.operand[i][j] = self._operand(i, j, made)

    def _operand(self, i: int, j: int, made: float) -> Operand:
        items = self.items
        starts = items[i].operand.starts if self.node is SeqNode else sum(x.operand.starts for x in items[i:j])
        return Operand(made, self.classes[j] - self.classes[i], starts)

    def _split(self, i: int, r: int, j: int) -> tuple[float, float]:
        left, right, step = self.operand[i][r], self.operand[r][j], self.steps[r]
        equal: list[float] = []
        others: list[float] = []
        before, after = (1 << r) - (1 << i), (1 << j) - (1 << r)
        for test in self.crossed_at[r]:
            if test.made_by(before, after):
                (equal if test.equality else others).append(test.selectivity)
        if self.node is SeqNode:
            pairs: Pairs = sequence_pairs(left, right, step.order)
            if step.kept != 1.0:
                pairs = pairs.scaled(step.kept)
            looked, linked = right.cardinality * step.looks, left.cardinality
        else:
            pairs = conjunction_pairs(left, right)
            looked = linked = left.cardinality + right.cardinality
        made, cost = self.model.join(pairs, looked, linked, equal, others)
        return made, cost + self.cost[i][r] + self.cost[r][j]

    def _tree(self, i: int, j: int, root: int | None = None) -> TreeNode:
        if j == i + 1:
            return self.items[i].tree
        r = root or self.root[i][j]
        return self.node(self._tree(i, r), self._tree(r, j))

    def best(self) -> Solved:
        n = len(self.items)
        return Solved(self._tree(0, n), self.operand[0][n], self.cost[0][n])

    def splits(self) -> list[Solved]:
        n = len(self.items)
        found = [(self._split(0, r, n), r) for r in range(1, n)]
        return [Solved(self._tree(0, n, r), self.operand[0][n], cost) for (_, cost), r in found]


def _edge_names(node: TreeNode, *, first: bool) -> frozenset[str]:
    """The variables of the first (or last) operand of a subtree."""
    while isinstance(node, SeqNode):
        node = node.left if first else node.right
    return frozenset(n.var for n in _operators(node) if isinstance(n, LeafBuffer))


def _wrap_first(node: TreeNode, negated: tuple[str, ...]) -> TreeNode:
    if isinstance(node, SeqNode | KseqNode):
        return replace(node, left=_wrap_first(node.left, negated))
    return NseqNode(negated, node)
