"""The parts of tree plans: the alternatives of a pattern and, for each, the operands to join, the closures whose groups
follow from the joined record, and the absences.

A disjunction of plain classes is an operand like any other (ZStream's DIS). One that holds closures or negations is
multiplied out, `A;(B+|C);D` to `A;B+;D | A;C;D`, because a group and an absence depend on their neighbours. So is one
with equalities to other events, `A;(B|C)` with `A.k = B.k AND A.k = C.k`: each alternative then looks its events up by
key.

A closure that is counted (`B^5`) or comes last (`A;B+`) has as many groups as it has events that may close one, so the
closing event is joined like a plain class. `A;B*` is `A` (the empty group) or `A;B+`. Any other closure has the one
maximal group that its neighbours leave. So every closure's group follows from the joined record.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

from cepheid import expr as ex
from cepheid.events import Duration
from cepheid.expr import Expr
from cepheid.logic import normal_form
from cepheid.pattern import Conj, Disj, EventClass, Kleene, Neg, Pattern, Query, Seq, positives, walk

MOST_FOR_KEYS = 16
"""The most alternatives into which disjunctions are multiplied out for the sake of their equalities."""
Level = tuple[tuple[str, ...], ...]
"""The variables of each part on one side in a sequence, the nearest part first."""


class Sides(NamedTuple):
    """The parts before and after a part in each sequence around it, the innermost first. The neighbours of a part are
    the bound parts of the innermost sequence that binds any there."""

    before: tuple[Level, ...]
    after: tuple[Level, ...]


class Group(NamedTuple):
    """A closure; `closing` if the event that closes its group is an operand."""

    closure: Kleene
    sides: Sides
    closing: bool

    @property
    def var(self) -> str:
        return self.closure.item.var


@dataclass(frozen=True, slots=True)
class Beside:
    """The operands that occur of the operator around a part, in the order of the text, and the operator's window. In
    CED they alone decide the interval in which a negated operand must not end (§2.2)."""

    before: Level
    after: Level
    window: Duration | None

    @property
    def all(self) -> Level:
        return (*self.before, *self.after)


@dataclass(frozen=True, slots=True)
class Absence:
    """A negation, in a sequence or in a conjunction: of classes, or of an operator over some."""

    item: Pattern
    sides: Sides
    in_sequence: bool
    beside: Beside

    @property
    def variables(self) -> tuple[str, ...]:
        return tuple(node.var for node in walk(self.item) if isinstance(node, EventClass))

    @property
    def is_composite(self) -> bool:
        """Whether it is a combination of events that must not occur."""
        return any(isinstance(node, Seq | Conj) for node in walk(self.item))


@dataclass(frozen=True, slots=True)
class Alternative:
    """`operands` is a pattern of classes alone; `groups` are in the order of their evaluation; the closures of
    `empty` have no event in this alternative."""

    operands: Pattern
    plain: tuple[str, ...]
    groups: tuple[Group, ...]
    absences: tuple[Absence, ...]
    empty: tuple[str, ...]

    @property
    def joined(self) -> tuple[str, ...]:
        """The variables that the join tree binds."""
        return (*self.plain, *(group.var for group in self.groups if group.closing))

    def follows_plain(self, group: Group) -> bool:
        """Whether a plain class precedes the closure, so that its group does not lead."""
        return _mentions(group.sides.before, self.plain)

    def waits(self, absence: Absence) -> bool:
        """Whether a match is complete only once its window has passed. The window of an operator lasts from its own
        operands, whatever follows it."""
        if absence.beside.window is not None:
            return not absence.in_sequence or not absence.beside.after
        after = (var for level in absence.sides.after for part in level for var in part)
        return not absence.in_sequence or not set(self.joined).intersection(after)

    def may_end_with(self, variables: Collection[str]) -> bool:
        """Whether the event of one of these variables can be the last of a match."""
        return not set(variables).isdisjoint(last_variables(self.operands))


def last_variables(operands: Pattern) -> list[str]:
    """The variables whose event can be the last of a match."""
    match operands:
        case Seq():
            return last_variables(operands.items[-1])
        case Conj() | Disj():
            return [var for item in operands.items for var in last_variables(item)]
        case _:
            assert isinstance(operands, EventClass)
            return [operands.var]


def alternatives(query: Query) -> tuple[Alternative, ...]:
    """The alternatives of a pattern in ZStream's language (or SASE's, or CED's)."""
    keyed = frozenset(pair for predicate in query.where for pair in _equated(predicate, query))
    return _alternatives(query.pattern, keyed)


Pairs = frozenset[tuple[str, str]]
"""Pairs of variables whose events have an equal attribute."""


def _equated(predicate: Expr, query: Query) -> Iterator[tuple[str, str]]:
    match predicate:
        case ex.And():
            for item in predicate.items:
                yield from _equated(item, query)
        case ex.Same():
            yield from itertools.permutations(query.roles, 2)
        case ex.Compare(op="="):
            for one in ex.variables(predicate.left):
                for other in ex.variables(predicate.right):
                    yield from ((one, other), (other, one))


@lru_cache(maxsize=256)
def _alternatives(pattern: Pattern, keyed: Pairs) -> tuple[Alternative, ...]:
    normal = normal_form(pattern)
    branches = list(itertools.islice(_branches(normal, keyed), MOST_FOR_KEYS + 1))
    if len(branches) > MOST_FOR_KEYS:
        branches = list(_branches(normal, frozenset()))
    found = []
    for branch in branches:
        optional = [group.var for group in _analysed(branch, ()).groups if group.closing and group.closure.low == 0]
        for number in range(len(optional) + 1):
            for empty in itertools.combinations(optional, number):
                if _operands(branch, _closing(branch, empty)) is not None:
                    found.append(_analysed(branch, empty))
    return tuple(found)


def _branches(pattern: Pattern, keyed: Pairs) -> Iterator[Pattern]:
    match pattern:
        case Disj():
            for item in pattern.items:
                yield from _branches(item, keyed)
        case Seq() | Conj():
            for choice in itertools.product(*(list(_choices(item, keyed)) for item in pattern.items)):
                yield normal_form(replace(pattern, items=choice))
        case _:
            yield pattern


def _choices(pattern: Pattern, keyed: Pairs) -> Iterator[Pattern]:
    own = {node.var for node in walk(pattern) if isinstance(node, EventClass)}
    is_plain = isinstance(pattern, Disj) and not any(isinstance(node, Neg | Kleene) for node in walk(pattern))
    if is_plain and not any(one in own and other not in own for one, other in keyed):
        yield pattern
    else:
        yield from _branches(pattern, keyed)


def _analysed(branch: Pattern, empty: Sequence[str]) -> Alternative:
    closing = _closing(branch, empty)
    plain = tuple(node.var for node in _classes(branch))
    groups: list[Group] = []
    absences: list[Absence] = []
    for part, sides, in_sequence, beside in _parts(branch, Sides((), ()), empty):
        if isinstance(part, Kleene):
            if part.item.var not in empty:
                groups.append(Group(part, sides, part.item.var in closing))
        else:
            absences.append(Absence(part.item, sides, in_sequence, beside))
    groups.sort(key=lambda group: not _mentions(group.sides.before, plain))
    operands = _operands(branch, closing)
    return Alternative(operands or branch, plain, tuple(groups), tuple(absences), tuple(empty))


def _classes(pattern: Pattern) -> Iterator[EventClass]:
    """The plain classes: neither closures nor negated."""
    match pattern:
        case EventClass():
            yield pattern
        case Seq() | Conj() | Disj():
            for item in pattern.items:
                yield from _classes(item)


_ALONE = Beside((), (), None)


def _parts(
    pattern: Pattern, sides: Sides, empty: Sequence[str], in_sequence: bool = False, beside: Beside = _ALONE
) -> Iterator[tuple[Kleene | Neg, Sides, bool, Beside]]:
    """Every closure and negation with its sides."""
    match pattern:
        case Kleene() | Neg():
            yield pattern, sides, in_sequence, beside
        case Seq() | Conj():
            bound = [tuple(v for v in positives(item) if v not in empty) for item in pattern.items]
            is_sequence = isinstance(pattern, Seq)
            for index, item in enumerate(pattern.items):
                before, after = tuple(bound[:index]), tuple(bound[index + 1 :])
                within = sides
                if is_sequence:
                    within = Sides((before[::-1], *sides.before), (after, *sides.after))
                own = Beside(tuple(filter(None, before)), tuple(filter(None, after)), pattern.window)
                yield from _parts(item, within, empty, is_sequence, own)


def _mentions(levels: tuple[Level, ...], names: Sequence[str]) -> bool:
    return any(var in names for level in levels for part in level for var in part)


def _closing(branch: Pattern, empty: Sequence[str]) -> frozenset[str]:
    """The closures whose closing event is an operand: counted, or with nothing plain after them."""
    plain = [node.var for node in _classes(branch)]
    return frozenset(
        part.item.var
        for part, sides, *_ in _parts(branch, Sides((), ()), ())
        if isinstance(part, Kleene) and part.item.var not in empty
        if part.high is not None or not _mentions(sides.after, plain)
    )


def _operands(pattern: Pattern, closing: frozenset[str]) -> Pattern | None:
    match pattern:
        case EventClass():
            return pattern
        case Kleene():
            return pattern.item if pattern.item.var in closing else None
        case Seq() | Conj() | Disj():
            operands = [operand for item in pattern.items if (operand := _operands(item, closing)) is not None]
            return normal_form(replace(pattern, items=tuple(operands))) if operands else None
        case _:
            return None
