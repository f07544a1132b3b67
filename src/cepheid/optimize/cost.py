"""ZStream's cost model (§5.1): formula (1) and table 2, with operators as operands.

The cost of an operator is what it looks at, what it tests, and what it makes: C = Ci + n k Ci + p Co. Ci counts the
combinations tried, Co the records made, n the predicates that are tested on each combination.

Three things are more exact here than in the paper's table. A look-up by equality tries only the combinations that are
equal. A negation leaves the share of pairs with nothing between, which follows from the rate of the negated class
(the table's 1 - Pt Pt does not depend on it); pushed down as NSEQ, it also spares the search those pairs. And a closure
between two operands (KSEQ) is charged for its members where its groups are made, on top.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from cepheid import expr as ex
from cepheid.expr import At, Attr, Compare, Expr
from cepheid.optimize.alternatives import Absence, Alternative, Group
from cepheid.optimize.placement import equality_classes, join_tests, names_of, placed, variables
from cepheid.optimize.stats import DEFAULT_ORDER, NO_STATS, Stats
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
    tree_operands,
)

PREDICATE_WEIGHT = 0.25
"""k of formula (1), as the paper measured it."""
OUTPUT_WEIGHT = 1.0
"""p of formula (1)."""
DEFAULT_CARDINALITY = 100.0
"""The events of a class in a window, where nothing is known."""
GROUP_SELECTIVITY = 0.33
"""The share of groups that a predicate on a whole group lets through, where nothing is known."""


def operator_cost(tried: float, predicates: int, made: float) -> float:
    """Formula (1).

    >>> operator_cost(tried=200, predicates=2, made=50)
    350.0
    """
    return tried + predicates * PREDICATE_WEIGHT * tried + OUTPUT_WEIGHT * made


def sequence_tried(left: float, right: float, order: float) -> float:
    """Table 2: CARD_A * CARD_B * Pt."""
    return left * right * order


def conjunction_tried(left: float, right: float) -> float:
    """Table 2: CARD_A * CARD_B."""
    return left * right


def disjunction_tried(left: float, right: float) -> float:
    """Table 2: CARD_A + CARD_B."""
    return left + right


def members_between(members: float, count: int | None = None, order: float = DEFAULT_ORDER) -> float:
    """Table 2's N: the events of a closure between a start and an end; each is in `count` groups if groups have a size.

    >>> members_between(40), members_between(40, count=5)
    (10.0, 50.0)
    """
    return members * order * order * (count or 1)


def nothing_between(expected: float) -> float:
    """The share of pairs in a window with none of the events of which `expected` fall into a window.

    >>> nothing_between(0.0), round(nothing_between(1.0), 2), round(nothing_between(100.0), 2)
    (1.0, 0.63, 0.01)
    """
    return 1.0 if expected < 1e-9 else (1.0 - math.exp(-expected)) / expected


@dataclass(frozen=True, slots=True)
class Model:
    """The costs of one alternative of a pattern. `window` is in ticks or events; `single` are the single-class
    predicates of each variable; `negated` are all negated variables of the pattern; `hashing` says whether equalities
    are looked up."""

    alternative: Alternative
    predicates: tuple[Expr, ...]
    single: Mapping[str, Sequence[Expr]]
    negated: frozenset[str]
    stats: Stats = NO_STATS
    window: float | None = None
    counts_events: bool = False
    hashing: bool = True
    tests: list[Expr] = field(default_factory=list)
    classes: dict[Expr, int] = field(default_factory=dict)
    """Equalities that follow from one another, by the number of their class: a join needs one of each."""

    def __post_init__(self) -> None:
        self.tests.extend(join_tests(self.alternative, self.predicates, self.negated)[0])
        for number, members in enumerate(equality_classes(self.tests)):
            self.classes.update(dict.fromkeys(members, number))

    # --- operands -----------------------------------------------------------------------------------------------------

    def cardinality(self, var: str) -> float:
        """CARD_E = R_E * TW * P_E, at least a little: an operand of which none was seen may still come."""
        passing = self.stats.passing.get(var)
        if passing is None:
            passing = math.prod(self.stats.selectivity(p) for p in self.single.get(var, ()))
        rate = self.stats.rates.get(var)
        if rate is None or self.window is None:
            known = [r for r in self.stats.rates.values() if r > 0]
            share = 1.0 if rate is None or not known else rate / (sum(known) / len(known))
            return max(DEFAULT_CARDINALITY * share * passing, 1e-6)
        if self.counts_events:
            rate /= self.stats.total_rate or 1.0
        return max(rate * float(self.window) * passing, 1e-6)

    def selectivity(self, predicate: Expr) -> float:
        number = self.classes.get(predicate)
        if number is None:
            return self.stats.selectivity(predicate)
        alike = [self.stats.selectivity(p) for p, other in self.classes.items() if other == number]
        return sum(alike) / len(alike)

    def one_of_each(self, tests: Sequence[Expr]) -> list[Expr]:
        """The tests without further equalities of a class."""
        return list({self.classes.get(test, -1 - place): test for place, test in enumerate(tests)}.values())

    def is_equality(self, predicate: Expr) -> bool:
        match predicate:
            case Compare(op="=", left=Attr(at=At.EVENT), right=Attr(at=At.EVENT)):
                return self.hashing
        return False

    def survival(self, absence: Absence) -> float:
        """The share of records that a negation leaves."""
        left = 1.0
        for var in absence.variables:
            against = [p for p in self.predicates if var in ex.variables(p)]
            left *= nothing_between(self.cardinality(var) * math.prod(map(self.selectivity, against)))
        return left

    def absence_of(self, negated: Sequence[str]) -> list[Absence]:
        return [a for a in self.alternative.absences if set(a.variables) <= set(negated)]

    def group_of(self, var: str) -> Group:
        return next(group for group in self.alternative.groups if group.var == var)

    def enough_between(self, group: Group) -> float:
        """The share of pairs with enough members between them."""
        about = [p for p in self.predicates if group.var in ex.variables(p)]
        expected = self.cardinality(group.var) * math.prod(map(self.selectivity, about))
        return max(1.0 - nothing_between(expected / max(group.closure.low, 1)), 1e-6)

    # --- joins --------------------------------------------------------------------------------------------------------

    def join(
        self, tried: float, right: float, equalities: Sequence[float], others: Sequence[float]
    ) -> tuple[float, float]:
        """Cardinality and cost of a join that tries so many pairs; the equalities are looked up."""
        made = tried * math.prod(equalities) * math.prod(others)
        if equalities:
            return made, operator_cost(right + tried * math.prod(equalities), len(others), made)
        return made, operator_cost(tried, len(others), made)

    def order(self, left: Sequence[str], right: Sequence[str]) -> float:
        return self.stats.order(left, right)

    # --- whole trees --------------------------------------------------------------------------------------------------

    def annotated(self, tree: TreeNode) -> TreeNode:
        """The tree with the estimates of every operator."""
        match tree:
            case NegNode():
                item = self.annotated(tree.item)
                left = math.prod(self.survival(a) for a in self.absence_of(tree.negated))
                made = item.cardinality * left
                cost = operator_cost(item.cardinality, 0, made)
                return replace(tree, item=item, cardinality=made, cost=cost)
            case GroupNode():
                item = self.annotated(tree.item)
                made, cost = self.groups(item.cardinality, tree.closures)
                return replace(tree, item=item, cardinality=made, cost=cost)
            case _:
                return self._core(tree, self.tests)

    def groups(self, records: float, closures: Sequence[str]) -> tuple[float, float]:
        """KSEQ's members are visited for each complete record; predicates on whole groups are tested once for each."""
        visited, made = 0.0, records
        for var in closures:
            count = self.group_of(var).closure.high
            visited += records * members_between(self.cardinality(var), count)
            whole = [p for p in self.predicates if var in ex.variables(p) and p not in self.tests]
            made *= GROUP_SELECTIVITY ** sum(any(isinstance(n, ex.Aggregate) for n in ex.walk(p)) for p in whole)
        return made, operator_cost(visited, 0, made)

    def _core(self, node: TreeNode, tests: Sequence[Expr]) -> TreeNode:
        match node:
            case LeafBuffer():
                return replace(node, cardinality=self.cardinality(node.var), cost=0.0)
            case NseqNode():
                right = self._core(node.right, tests)
                made = right.cardinality
                return replace(node, right=right, cardinality=made, cost=operator_cost(made, 0, made))
            case SeqNode() | KseqNode() | ConNode() | DisNode():
                parts = placed(node, tests, self.alternative.joined)
                left, right = self._core(node.left, parts.left), self._core(node.right, parts.right)
                made, cost = self._join(node, left, right, parts.own)
                return replace(node, left=left, right=right, cardinality=made, cost=cost)
            case _:
                raise AssertionError("not inside a tree")

    def _join(self, node: TreeNode, left: TreeNode, right: TreeNode, own: Sequence[Expr]) -> tuple[float, float]:
        a, b = left.cardinality, right.cardinality
        if isinstance(node, DisNode):
            tried = disjunction_tried(a, b)
            return tried, operator_cost(tried, 0, tried)
        sides = set(variables(left)), set(variables(right))
        between = self.one_of_each([p for p in own if all(names_of(p) & side for side in sides)])
        equal = [self.selectivity(p) for p in between if self.is_equality(p)]
        others = [self.selectivity(p) for p in between if not self.is_equality(p)]
        if isinstance(node, ConNode):
            return self.join(conjunction_tried(a, b), a + b, equal, others)
        tried = sequence_tried(a, b, self.order(last_variables(left), first_variables(right)))
        for absence in self.absence_of([var for n in first_nodes(right) for var in n.negated]):
            tried *= self.survival(absence)
        if not isinstance(node, KseqNode):
            return self.join(tried, b, equal, others)
        made, cost = self.join(tried * self.enough_between(self.group_of(node.closure)), b, equal, others)
        return made, cost + b


def total_cost(node: TreeNode) -> float:
    """The cost of a whole annotated tree: the sum of its operators'."""
    inside = sum(total_cost(operand) for operand in tree_operands(node))
    return inside if isinstance(node, LeafBuffer) else node.cost + inside


def first_nodes(node: TreeNode) -> list[NseqNode]:
    """The negations pushed down to the first operand of a subtree, for which what is joined from the left counts."""
    found: list[NseqNode] = []
    while True:
        match node:
            case NseqNode():
                found.append(node)
                node = node.right
            case SeqNode() | KseqNode():
                node = node.left
            case _:
                return found


def first_variables(node: TreeNode) -> list[str]:
    """The variables of a subtree's first operand."""
    while isinstance(node, NseqNode | SeqNode | KseqNode):
        node = node.right if isinstance(node, NseqNode) else node.left
    return variables(node)


def last_variables(node: TreeNode) -> list[str]:
    while isinstance(node, NseqNode | SeqNode | KseqNode):
        node = node.right
    return variables(node)
