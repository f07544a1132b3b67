"""Placement of predicates in a tree plan: each at the lowest join that binds its variables. Also the negations and
closures that can narrow a join (NSEQ and KSEQ) instead of being evaluated on top.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Generic, NamedTuple, TypeVar

from cepheid import expr as ex
from cepheid.expr import At, Attr, Compare, Expr
from cepheid.optimize.alternatives import Absence, Alternative, Group, Level, Sides
from cepheid.pattern import EventClass, Pattern, Seq, walk
from cepheid.tree_plan import (
    BinaryNode,
    ConNode,
    DisNode,
    KseqNode,
    LeafBuffer,
    NseqNode,
    SeqNode,
    TreeNode,
    Within,
    tree_operands,
)

T = TypeVar("T")

# --- predicates -------------------------------------------------------------------------------------------------------


def join_tests(
    alternative: Alternative, predicates: Sequence[Expr], negated: Collection[str]
) -> tuple[list[Expr], list[Expr]]:
    """The predicates that joined events decide: those to be tested as soon as they can be, and those of the root.

    A predicate on a closure's members is one on its closing event too."""
    closures = {group.var: group for group in alternative.groups}
    undecided = {*closures, *alternative.empty}
    early: list[Expr] = []
    late: list[Expr] = []
    for predicate in predicates:
        names = names_of(predicate)
        if names.intersection(negated):
            continue
        mentioned = names & undecided
        if mentioned and not all(
            var in closures and closures[var].closing and only_members(predicate, var) for var in mentioned
        ):
            continue
        settled = names & set(alternative.joined) and not _has_constant_part(predicate)
        (early if settled else late).append(predicate)
    return early, late


def only_members(predicate: Expr, closure: str) -> bool:
    """Whether the predicate reads the closure's members one by one, not its first, its last or all of them."""
    return all(
        isinstance(node, Attr) and node.at is At.EVENT
        for node in ex.walk(predicate)
        if isinstance(node, Attr | ex.Aggregate) and node.var == closure
    )


def _has_constant_part(predicate: Expr) -> bool:
    """Whether some part of the predicate that is true or false by itself names no variable at all."""
    match predicate:
        case ex.And() | ex.Or():
            return any(_has_constant_part(item) for item in predicate.items)
        case ex.Not() | ex.Filter():
            return _has_constant_part(predicate.item)
        case _:
            return not names_of(predicate)


@lru_cache(maxsize=1024)
def names_of(predicate: Expr) -> frozenset[str]:
    """The variables that a predicate names, cached for the search."""
    return ex.variables(predicate)


def lean(own: Sequence[Expr], below: Iterable[Expr], is_sure: Callable[[Expr], bool]) -> list[Expr]:
    """The tests of a join without the equalities that follow from others, made here or below. `is_sure` tests
    whether both attributes of an equality are always present."""
    equal: dict[tuple[str, str], set[tuple[str, str]]] = {}

    def joins(test: Expr) -> bool:
        """Whether the equality was not known; it is now."""
        assert isinstance(test, Compare) and isinstance(test.left, Attr) and isinstance(test.right, Attr)
        left, right = (test.left.var, test.left.name), (test.right.var, test.right.name)
        known = equal.get(left, {left})
        if right in known:
            return False
        merged = known | equal.get(right, {right})
        for member in merged:
            equal[member] = merged
        return True

    for test in below:
        if is_sure(test):
            joins(test)
    return [test for test in own if not is_sure(test) or joins(test)]


def equality_classes(tests: Iterable[Expr]) -> list[list[Expr]]:
    """The equalities of a set of attributes, if every pair of them is explicit."""
    group_of: dict[tuple[str, str], tuple[set[tuple[str, str]], list[Expr]]] = {}
    for test in tests:
        match test:
            case Compare(op="=", left=Attr(at=At.EVENT) as left, right=Attr(at=At.EVENT) as right):
                one, other = (left.var, left.name), (right.var, right.name)
                group = group_of.setdefault(one, ({one}, []))
                joining = group_of.setdefault(other, ({other}, []))
                if joining is not group:
                    group[0].update(joining[0])
                    group[1].extend(joining[1])
                    group_of.update(dict.fromkeys(joining[0], group))
                group[1].append(test)
    groups = {id(group): group for group in group_of.values()}.values()
    return [found for members, found in groups if 2 * len(found) == len(members) * (len(members) - 1) > 2]


# --- trees ------------------------------------------------------------------------------------------------------------


def variables(node: TreeNode) -> list[str]:
    """The variables of the leaves, from left to right, cached for the search."""
    found: list[str] = []
    waiting = [node]
    while waiting:
        next_node = waiting.pop()
        if isinstance(next_node, LeafBuffer):
            found.append(next_node.var)
        else:
            waiting += reversed(tree_operands(next_node))
    return found


def first_nodes(node: TreeNode) -> list[NseqNode]:
    """The negations pushed down to the first operand of a subtree, which depend on the record joined from the left."""
    found: list[NseqNode] = []
    while True:
        match node:
            case NseqNode():
                found.append(node)
                node = node.item
            case SeqNode() | KseqNode():
                node = node.left
            case _:
                return found


def _scopes(node: TreeNode) -> list[frozenset[str]]:
    """The sets of variables whose predicates can be tested inside the node."""
    match node:
        case NseqNode() | Within():
            return _scopes(node.item)
        case DisNode():
            return _scopes(node.left) + _scopes(node.right)
        case SeqNode() | KseqNode() | ConNode():
            return [frozenset(variables(node))]
        case _:
            return []


@dataclass(frozen=True, slots=True)
class Placed(Generic[T]):
    """The tests of a join itself, and those that its operands make."""

    own: list[T]
    left: list[T]
    right: list[T]


def placed(node: BinaryNode, tests: Sequence[T], names: Callable[[T], frozenset[str]]) -> Placed[T]:
    """`names` are the variables that a test names, of those that the tree binds: others do not count."""
    if not tests:
        return Placed([], [], [])
    left_scopes, right_scopes = _scopes(node.left), _scopes(node.right)
    parts: Placed[T] = Placed([], [], [])
    for test in tests:
        needed = names(test)
        in_left, in_right = any(map(needed.issubset, left_scopes)), any(map(needed.issubset, right_scopes))
        if in_left:
            parts.left.append(test)
        if in_right:
            parts.right.append(test)
        if not in_left and not in_right:
            parts.own.append(test)
    return parts


# --- push-down --------------------------------------------------------------------------------------------------------


class Gap(NamedTuple):
    """The position of a negation or closure in a sequence of operands."""

    sequence: Seq
    following: int
    """The index of the operand after it."""


@dataclass(frozen=True, slots=True)
class Narrowing:
    """Decides for one alternative which negations and closures can narrow a join. `types` are those of each variable's
    class (none: all)."""

    alternative: Alternative
    predicates: Sequence[Expr]
    types: Mapping[str, tuple[str, ...]]
    may_narrow: bool = True
    """Whether the latest negated event before the right operand decides about all left operands, and the last members
    about all groups: events have no duration, and the interval does not include its bounds."""

    def absence(self, absence: Absence) -> Gap | None:
        """Where a negation can be an NSEQ: between two operands, its predicates all on the one after it (§4.4.2)."""
        if not absence.in_sequence or absence.is_composite or self.alternative.waits(absence) or not self.may_narrow:
            return None
        gap = self._gap(absence.sides)
        return (
            gap if gap and all(self._depends_on_right(var, gap, absence.sides) for var in absence.variables) else None
        )

    def closure(self, group: Group) -> Gap | None:
        """Where a closure can be a KSEQ: between two operands, its members' predicates all on the one after it."""
        if group.closing or group.closure.low == 0 or not self.may_narrow:
            return None
        gap = self._gap(group.sides)
        if gap is None or not self._depends_on_right(group.var, gap, group.sides):
            return None
        about = [p for p in self.predicates if group.var in names_of(p)]
        return gap if all(only_members(p, group.var) for p in about) else None

    def _gap(self, sides: Sides) -> Gap | None:
        """The two neighbours must be known by their own events: no group reaches beyond them into the gap."""
        if not sides.before or not sides.after:
            return None
        left, right = nearest(sides.before[0]), nearest(sides.after[0])
        if not left or not right or not set(right) <= set(self.alternative.plain):
            return None
        if not set(left) <= set(self.alternative.joined):
            return None
        for sequence in walk(self.alternative.operands):
            if isinstance(sequence, Seq):
                for index in range(1, len(sequence.items)):
                    before, after = class_names(sequence.items[index - 1]), class_names(sequence.items[index])
                    if before <= set(left) and after <= set(right):
                        return Gap(sequence, index)
        return None

    def _depends_on_right(self, var: str, gap: Gap, sides: Sides) -> bool:
        right = class_names(gap.sequence.items[gap.following])
        own = {*self.alternative.joined, *(group.var for group in self.alternative.groups)}
        for predicate in self.predicates:
            names = names_of(predicate) - {var}
            if var in names_of(predicate) and (not names & own <= right or names & set(self.alternative.empty)):
                return False
        around = {v for level in (sides.before[0], sides.after[0]) for part in level for v in part}
        return not any(self._may_be_one(var, other) for other in own - around - {var})

    def _may_be_one(self, var: str, other: str) -> bool:
        mine, theirs = self.types[var], self.types[other]
        return not mine or not theirs or bool(set(mine) & set(theirs))


def nearest(level: Level) -> tuple[str, ...]:
    return next((part for part in level if part), ())


def class_names(pattern: Pattern) -> frozenset[str]:
    return frozenset(node.var for node in walk(pattern) if isinstance(node, EventClass))
