"""ZStream's cost model (§5.1): formula (1) and table 2, with operators as operands, in nanoseconds of this kernel.

The cost of an operator counts combinations, tests and results: C = Ci + n k Ci + p Co. Ci counts the
combinations tried, Co the records made, n the predicates that are tested on each combination. The weights are those of
the compiled kernels (`bench zstream-rank` measures how well they predict), so that the costs of evaluators compare.

Some things are more exact here than in the paper's table, which counts the combinations that lie in one window. Here
everything is counted while a window passes, which is what a stream costs: each record meets the window before it, so
there are twice as many pairs. Of records of several events fewer fit a window together than of single events; those
that do not are tried in vain, as long as the search cannot know. A look-up by equality tries only the combinations that
are equal. A negation leaves the share of pairs with nothing between, which follows from the rate of the negated class
(the table's 1 - Pt Pt does not depend on it); pushed down as NSEQ, it also spares the search those pairs. And a closure
between two operands (KSEQ) is charged for its members where its groups are made, on top.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from operator import attrgetter
from typing import Any, NamedTuple

from cepheid import expr as ex
from cepheid import tree_plan as tp
from cepheid.expr import At, Attr, Compare, Expr
from cepheid.optimize.alternatives import Absence, Alternative, Group
from cepheid.optimize.placement import equality_classes, join_tests, names_of, placed
from cepheid.optimize.stats import DEFAULT_ORDER, NO_STATS, Stats
from cepheid.tree_plan import TreeNode, tree_operands

TRY = 0.8
"""Nanoseconds to try one combination of two records: the unit of formula (1)."""
PREDICATE_WEIGHT = 2.5
"""k of formula (1): a test reads two attributes and may be guessed wrong."""
OUTPUT_WEIGHT = 12.5
"""p of formula (1)."""
EVENT = 35.0
"""Nanoseconds to encode an event and read it."""
BUFFER = 35.0
"""Nanoseconds to put an event into its leaf buffer, and to take it out again when it has left the window."""
SEARCH = 8.0
"""Nanoseconds to find the start of a search by time, once for each joined record."""
HASH = 20.0
"""Nanoseconds to find a key in a table, to put a record into its chain or to begin a search there."""
DEFAULT_CARDINALITY = 100.0
"""The events of a class in a window, where nothing is known."""
GROUP_SELECTIVITY = 0.33
"""The share of groups that a predicate on a whole group lets through, where nothing is known."""


Amount = Any
"""A number, or an array of numbers: the search estimates many joins at once."""


def operator_cost(tried: Amount, predicates: Amount, made: Amount, searches: Amount = 0.0) -> Amount:
    """Formula (1), plus the cost of `searches` by time.

    >>> operator_cost(tried=200, predicates=2, made=50) == TRY * (200 + 2 * PREDICATE_WEIGHT * 200 + OUTPUT_WEIGHT * 50)
    True
    """
    return TRY * (tried + predicates * PREDICATE_WEIGHT * tried + OUTPUT_WEIGHT * made) + SEARCH * searches


class Operand(NamedTuple):
    """The properties of an operand that the cost of a join depends on: its records per window, the events per record,
    and the number of different events that its records start with."""

    cardinality: Amount
    classes: Amount
    starts: Amount


class Pairs(NamedTuple):
    """The pairs of records that a join tries while a window passes, and those of them that fit the window."""

    tried: Amount
    fitting: Amount

    def scaled(self, share: Amount) -> Pairs:
        return Pairs(self.tried * share, self.fitting * share)


def sequence_pairs(left: Operand, right: Operand, order: float) -> Pairs:
    """Table 2's CARD_A * CARD_B * Pt, on both sides of each other while a window passes.

    A record of n events whose window has room for it spans (n - 1) / n of it on average, so 1 / n of it is left for the
    other operand. Records on the left are searched backwards to the last that starts in the window: where few start,
    few are tried in vain.

    >>> sequence_pairs(Operand(10, 1, 10), Operand(20, 1, 20), 0.5)
    Pairs(tried=200.0, fitting=200.0)
    """
    shares = fitting_share(left.classes, right.classes), 1.0 - nothing_between(left.starts)
    return pairs_in_order(left.cardinality, right.cardinality, right.classes, order, *shares)


def pairs_in_order(left: Amount, right: Amount, classes: Amount, order: Amount, fit: Amount, in_vain: Amount) -> Pairs:
    """`sequence_pairs` over arrays. `left` and `right` are cardinalities, `classes` is the number of events in a right
    record, `fit` the share of ordered pairs that fit a window, and `in_vain` the share of the others that is tried."""
    both = 2.0 * order * left * right
    fitting = both * fit
    return Pairs(fitting + (both / classes - fitting) * in_vain, fitting)


@lru_cache(maxsize=1024)
def fitting_share(left: int, right: int) -> float:
    """The share of ordered pairs that fit one window together, of records with `left` and `right` events that each fit
    a window."""
    return math.factorial(left - 1) * math.factorial(right - 1) / math.factorial(left + right - 1)


def conjunction_pairs(left: Operand, right: Operand) -> Pairs:
    """Table 2's CARD_A * CARD_B, each with the window before it.

    >>> conjunction_pairs(Operand(10, 1, 10), Operand(20, 1, 20))
    Pairs(tried=400.0, fitting=400.0)
    """
    both = left.cardinality * right.cardinality
    return Pairs(2.0 * both, both * (left.classes + right.classes) / (left.classes * right.classes))


def members_between(members: float, count: int | None = None) -> float:
    """Table 2's N: the events of a closure between a start and an end; each is in `count` groups if groups have a size.

    >>> members_between(40), members_between(40, count=5)
    (10.0, 50.0)
    """
    return members * DEFAULT_ORDER * DEFAULT_ORDER * (count or 1)


def join(
    pairs: Pairs, searches: Amount, linked: Amount, equal: Amount, others: Amount, tests: Amount, hashed: Amount
) -> tuple[Amount, Amount]:
    """Cardinality and cost of a join over these pairs. `searches` is the number of searches, `equal` the share of pairs
    with equal keys, and `others` the combined selectivity of the other predicates (`tests` is their number). If keys
    are `hashed`, only pairs with equal keys are tried, and `linked` records are inserted into the hash table."""
    made = pairs.fitting * equal * others
    return made, operator_cost(pairs.tried * equal, tests, made, searches) + hashed * HASH * (searches + linked)


def nothing_between(expected: float) -> float:
    """The share of pairs in a window with none of the events of which `expected` fall into a window.

    >>> nothing_between(0.0), round(nothing_between(1.0), 2), round(nothing_between(100.0), 2)
    (1.0, 0.63, 0.01)
    """
    return 1.0 if expected < 1e-9 else (1.0 - math.exp(-expected)) / expected


@dataclass(frozen=True, eq=False, slots=True)
class JoinTest:
    """A predicate between joined events, with its properties precomputed. Equalities that follow from one another have
    the same class number `alike`: a join tests one of each class."""

    predicate: Expr
    names: frozenset[str]
    selectivity: float
    is_equality: bool
    alike: int | None = None


def tested_join(
    pairs: Pairs, searches: float, linked: float, tests: Iterable[tuple[float, bool]]
) -> tuple[float, float]:
    """A join with these tests, each with its selectivity and whether it is an equality."""
    equal, others, count, hashed = 1.0, 1.0, 0, False
    for selectivity, is_equality in tests:
        if is_equality:
            equal, hashed = equal * selectivity, True
        else:
            others, count = others * selectivity, count + 1
    return join(pairs, searches, linked, equal, others, count, hashed)


def one_of_each(tests: Iterable[JoinTest]) -> list[JoinTest]:
    """The tests without further equalities of a class."""
    return list({-1 - place if t.alike is None else t.alike: t for place, t in enumerate(tests)}.values())


@dataclass(frozen=True, slots=True)
class Estimated:
    """A tree with the estimates of its operators, and the properties that a join with it reads: the variables that it
    binds,
    those of its first and last operand, and those of the negations pushed down to the first."""

    tree: TreeNode
    operand: Operand
    names: tuple[str, ...]
    first: tuple[str, ...]
    last: tuple[str, ...]
    negated: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Model:
    """The costs of one alternative of a pattern. `window` is in ticks or events; `single` are the single-class
    predicates of each variable; `negated` are all negated variables of the pattern; `hashing`: whether equalities
    are looked up in hash tables."""

    alternative: Alternative
    predicates: tuple[Expr, ...]
    single: Mapping[str, Sequence[Expr]]
    negated: frozenset[str]
    stats: Stats = NO_STATS
    window: float | None = None
    counts_events: bool = False
    hashing: bool = True
    tests: list[JoinTest] = field(default_factory=list)
    known: dict[str, float] = field(default_factory=dict)
    """Cache of `cardinality`, by variable."""
    surviving: dict[tuple[str, ...], float] = field(default_factory=dict)
    """Cache of `survival`, by the variables of the negation."""

    def __post_init__(self) -> None:
        predicates = join_tests(self.alternative, self.predicates, self.negated)[0]
        shares = [self.stats.selectivity(p) for p in predicates]
        place_of = {id(p): place for place, p in enumerate(predicates)}
        number_of: dict[int, int] = {}
        for number, members in enumerate(equality_classes(predicates)):
            places = [place_of[id(member)] for member in members]
            number_of.update(dict.fromkeys(places, number))
            mean = sum(shares[place] for place in places) / len(places)
            for place in places:
                shares[place] = mean
        joined = frozenset(self.alternative.joined)
        for place, p in enumerate(predicates):
            names, equal = names_of(p) & joined, self._is_equality(p)
            self.tests.append(JoinTest(p, names, shares[place], equal, number_of.get(place)))

    # --- operands -----------------------------------------------------------------------------------------------------

    def cardinality(self, var: str) -> float:
        """CARD_E = R_E * TW * P_E, at least a little: an operand of which none was seen may still come."""
        if var not in self.known:
            self.known[var] = self._cardinality(var)
        return self.known[var]

    def _cardinality(self, var: str) -> float:
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

    def _is_equality(self, predicate: Expr) -> bool:
        match predicate:
            case Compare(op="=", left=Attr(at=At.EVENT), right=Attr(at=At.EVENT)):
                return self.hashing
        return False

    def survival(self, absence: Absence) -> float:
        """The share of records that a negation leaves."""
        negated = absence.variables
        if negated not in self.surviving:
            shares = []
            for var in negated:
                against = [p for p in self.predicates if var in names_of(p)]
                shares.append(nothing_between(self.cardinality(var) * math.prod(map(self.stats.selectivity, against))))
            self.surviving[negated] = math.prod(shares)
        return self.surviving[negated]

    def absence_of(self, negated: Sequence[str]) -> list[Absence]:
        return [a for a in self.alternative.absences if set(a.variables) <= set(negated)] if negated else []

    def group_of(self, var: str) -> Group:
        return next(group for group in self.alternative.groups if group.var == var)

    def enough_between(self, group: Group) -> float:
        """The share of pairs with enough members between them."""
        about = [p for p in self.predicates if group.var in names_of(p)]
        expected = self.cardinality(group.var) * math.prod(map(self.stats.selectivity, about))
        return max(1.0 - nothing_between(expected / max(group.closure.low, 1)), 1e-6)

    # --- whole trees --------------------------------------------------------------------------------------------------

    def annotated(self, tree: TreeNode) -> TreeNode:
        """The tree with the estimates of every operator."""
        match tree:
            case tp.NegNode():
                item = self.annotated(tree.item)
                left = math.prod(self.survival(a) for a in self.absence_of(tree.negated))
                made = item.cardinality * left
                cost = operator_cost(item.cardinality, 0, made, item.cardinality * len(tree.negated))
                return replace(tree, item=item, cardinality=made, cost=cost)
            case tp.GroupNode():
                item = self.annotated(tree.item)
                made, cost = self.groups(item.cardinality, tree.closures)
                return replace(tree, item=item, cardinality=made, cost=cost)
            case _:
                return self._core(tree, self.tests).tree

    def groups(self, records: float, closures: Sequence[str]) -> tuple[float, float]:
        """KSEQ's members are visited for each complete record; predicates on whole groups are tested once for each."""
        visited, made = 0.0, records
        for var in closures:
            count = self.group_of(var).closure.high
            visited += records * members_between(self.cardinality(var), count)
            joined = [test.predicate for test in self.tests]
            whole = [p for p in self.predicates if var in names_of(p) and p not in joined]
            made *= GROUP_SELECTIVITY ** sum(any(isinstance(n, ex.Aggregate) for n in ex.walk(p)) for p in whole)
        return made, operator_cost(visited, 0, made)

    def _core(self, node: TreeNode, tests: Sequence[JoinTest]) -> Estimated:
        match node:
            case tp.LeafBuffer():
                events, own = self.cardinality(node.var), (node.var,)
                leaf = replace(node, cardinality=events, cost=0.0)
                return Estimated(leaf, Operand(events, 1, events), own, own, own)
            case tp.Within():
                inner = self._core(node.item, tests)
                whole = replace(node, item=inner.tree, cardinality=inner.operand.cardinality, cost=0.0)
                return replace(inner, tree=whole)
            case tp.NseqNode():
                inner = self._core(node.item, tests)
                made = inner.operand.cardinality
                nseq = replace(node, item=inner.tree, cardinality=made, cost=self.negating(made, node.negated))
                return replace(inner, tree=nseq, negated=(*node.negated, *inner.negated))
            case tp.BinaryNode():
                parts = placed(node, tests, attrgetter("names"))
                left, right = self._core(node.left, parts.left), self._core(node.right, parts.right)
                made, cost = self._join(node, left, right, parts.own)
                tree = replace(node, left=left.tree, right=right.tree, cardinality=made, cost=cost)
                names = (*left.names, *right.names)
                if isinstance(node, tp.SeqNode | tp.KseqNode):
                    operand = Operand(made, len(names), left.operand.starts)
                    return Estimated(tree, operand, names, left.first, right.last, left.negated)
                starts = left.operand.starts + right.operand.starts
                operand = Operand(made, 1 if isinstance(node, tp.DisNode) else len(names), starts)
                return Estimated(tree, operand, names, names, names)
            case _:
                raise AssertionError("not inside a tree")

    def negating(self, records: float, negated: Sequence[str]) -> float:
        """NSEQ finds for each record the latest event that negates it, without searching the others."""
        return float(operator_cost(0.0, 0, 0.0, records * len(negated)))

    def _join(self, node: TreeNode, left: Estimated, right: Estimated, own: Sequence[JoinTest]) -> tuple[float, float]:
        a, b = left.operand.cardinality, right.operand.cardinality
        if isinstance(node, tp.DisNode):
            return a + b, operator_cost(a + b, 0, a + b)
        sides = frozenset(left.names), frozenset(right.names)
        between = one_of_each(test for test in own if test.names & sides[0] and test.names & sides[1])
        tests = [(test.selectivity, test.is_equality) for test in between]
        if isinstance(node, tp.ConNode):
            return tested_join(conjunction_pairs(left.operand, right.operand), a + b, a + b, tests)
        pairs = sequence_pairs(left.operand, right.operand, self.stats.order(left.last, right.first))
        for absence in self.absence_of(right.negated):
            pairs = pairs.scaled(self.survival(absence))
        if not isinstance(node, tp.KseqNode):
            return tested_join(pairs, b, a, tests)
        return tested_join(pairs.scaled(self.enough_between(self.group_of(node.closure))), 2 * b, a, tests)


def events_in_window(model: Model) -> float:
    """All events while a window passes; where their rate is not known, those of the pattern's classes."""
    if model.window is not None and model.counts_events:
        return max(float(model.window), 1.0)
    if model.window is not None and model.stats.total_rate is not None:
        return max(float(model.window) * model.stats.total_rate, 1e-6)
    return kept(model)


def reading_cost(model: Model) -> float:
    """Every evaluator reads every event."""
    return EVENT * events_in_window(model)


def kept(model: Model) -> float:
    """The number of events of a window that a plan stores: those of the pattern's classes."""
    return sum(map(model.cardinality, {*model.alternative.joined, *model.negated}))


def total_cost(node: TreeNode) -> float:
    """The cost of a whole annotated tree: the sum of its operators'."""
    inside = sum(total_cost(operand) for operand in tree_operands(node))
    return inside if isinstance(node, tp.LeafBuffer) else node.cost + inside
