"""The core operators of a query (NEXT §3.4) as the evaluator sees them: what each puts out, and what it tests.

A test on the one event that a leaf may bind is a bit of the mask: `tests` decide whether the event is one of the
leaf's, `keeps` are θ on that event alone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields

from cepheid import pattern as pt
from cepheid.codegen.masks import is_maskable
from cepheid.expr import Aggregate, At, Attr, Expr, Filter, OccursWithin, variables, walk
from cepheid.optimize.core_rules import core_text
from cepheid.pattern import Pattern, positives


@dataclass(slots=True, eq=False)
class Operator(ABC):
    """`variables` are those that its composite events bind; `many` of them bind lists, `optional` ones may be unbound,
    and `empty` ones may bind an empty list. `lengths` are the numbers of events and timers in a history; None: there is
    no bound."""

    number: int
    variables: tuple[str, ...]
    many: frozenset[str]
    optional: frozenset[str]
    empty: frozenset[str]
    lengths: frozenset[int] | None
    is_point: bool
    """Whether it puts out single events without duration: those of one time then have the same history."""
    text: str
    """As errors and EXPLAIN name it."""
    parent: Operator | None = field(default=None, init=False)
    operands: tuple[Operator, ...] = field(init=False)
    """The operators among its arguments, in their order."""

    def __post_init__(self) -> None:
        values = [getattr(self, argument.name) for argument in fields(self) if argument.init]
        listed = [item for value in values for item in (value if isinstance(value, tuple) else (value,))]
        self.operands = tuple(item for item in listed if isinstance(item, Operator))

    def walk(self) -> Iterator[Operator]:
        """Everything under it and itself, bottom up."""
        for operand in self.operands:
            yield from operand.walk()
        yield self

    @property
    def fixed_length(self) -> int | None:
        """The length of all its histories, if they have the same one."""
        return next(iter(self.lengths)) if self.lengths is not None and len(self.lengths) == 1 else None


@dataclass(slots=True, eq=False)
class Leaf(Operator):
    event_class: pt.EventClass
    tests: list[Expr] = field(default_factory=list)
    keeps: list[Expr] = field(default_factory=list)

    @property
    def var(self) -> str:
        return self.event_class.var


@dataclass(slots=True, eq=False)
class Union(Operator):
    items: tuple[Operator, ...]


@dataclass(slots=True, eq=False)
class Selection(Operator):
    """NEXT's filter, of what is not decided by the mask."""

    item: Operator
    keep: tuple[Expr, ...]


@dataclass(slots=True, eq=False)
class Waiting(Operator):
    """An operator with instances that wait for a successor."""

    skip: tuple[Expr, ...]
    keep: tuple[Expr, ...]

    @property
    @abstractmethod
    def awaited(self) -> Operator:
        """The operand that the successor comes from."""

    @property
    def is_prompt(self) -> bool:
        """Whether a successor is decided by the event at hand; otherwise its rivals of the same time have to be known
        first."""
        return self.awaited.is_point


@dataclass(slots=True, eq=False)
class Next(Waiting):
    left: Operator
    right: Operator
    cancel: Operator | None
    when: tuple[Expr, ...]

    @property
    def awaited(self) -> Operator:
        return self.right


@dataclass(slots=True, eq=False)
class Iteration(Waiting):
    item: Operator

    @property
    def awaited(self) -> Operator:
        return self.item


@dataclass(slots=True, eq=False)
class Exception_(Operator):
    item: Operator
    cancel: Operator
    when: tuple[Expr, ...]


@dataclass(slots=True, eq=False)
class Timer(Operator):
    item: Operator
    delay: int


def operators_of(core: Pattern, has_durations: bool, composite: frozenset[str]) -> Operator:
    """The operators of a query in the core language, whose durations are in ticks. Events of the types `composite` have
    histories of any length."""
    root = _Builder(has_durations, composite).build(core)
    for operator in root.walk():
        for operand in operator.operands:
            operand.parent = operator
    return root


def leaves_of(operator: Operator) -> list[Leaf]:
    return [node for node in operator.walk() if isinstance(node, Leaf)]


class _Builder:
    def __init__(self, has_durations: bool, composite: frozenset[str]) -> None:
        self.has_durations = has_durations
        self.composite = composite
        self.count = 0

    def build(self, pattern: Pattern) -> Operator:
        match pattern:
            case pt.EventClass():
                lengths = None if self.composite.intersection(pattern.types) else frozenset({1})
                return Leaf(*self._shape(pattern, (), lengths, not self.has_durations), event_class=pattern)
            case pt.Filtered():
                item = self.build(pattern.item)
                keep = self._alone(item, pattern.keep, "tests")
                if not keep:
                    return item
                shape = self._shape(pattern, (item,), item.lengths, item.is_point)
                return Selection(*shape, item=item, keep=keep)
            case pt.Disj():
                items = tuple(map(self.build, pattern.items))
                sets = [item.lengths for item in items]
                lengths = None if None in sets else frozenset().union(*(s for s in sets if s is not None))
                shape = self._shape(pattern, items, lengths, all(item.is_point for item in items))
                return Union(*shape, items=items)
            case pt.Next():
                return self._next(pattern)
            case pt.Iteration():
                item = self.build(pattern.item)
                skip, keep = self._alone(item, pattern.skip, "tests"), self._alone(item, pattern.keep, "keeps")
                return Iteration(*self._shape(pattern, (item,), None, False), skip=skip, keep=keep, item=item)
            case pt.Unless():
                item = self.build(pattern.item)
                if item.is_point:
                    return item  # nothing occurs while a single event is being detected
                cancel = self.build(pattern.cancel)
                shape = self._shape(pattern, (item,), item.lengths, False)
                return Exception_(*shape, item=item, cancel=cancel, when=pattern.when)
            case pt.Timer():
                item = self.build(pattern.item)
                lengths = None if item.lengths is None else frozenset(n + 1 for n in item.lengths)
                shape = self._shape(pattern, (item,), lengths, False)
                return Timer(*shape, item=item, delay=int(pattern.delay.amount))
            case _:
                raise AssertionError(f"not a core operator: {type(pattern).__name__}")

    def _next(self, pattern: pt.Next) -> Next:
        left = self.build(pattern.left)
        exception = pattern.right if isinstance(pattern.right, pt.Unless) else None
        right = self.build(exception.item if exception else pattern.right)
        skip, keep = self._alone(right, pattern.skip, "tests"), self._alone(right, pattern.keep, "keeps")
        cancel = self.build(exception.cancel) if exception else None
        lengths = None
        if left.lengths is not None and right.lengths is not None:
            lengths = frozenset(a + b for a in left.lengths for b in right.lengths)
        shape = self._shape(pattern, (left, right), lengths, False)
        return Next(
            *shape,
            skip=skip,
            keep=keep,
            left=left,
            right=right,
            cancel=cancel,
            when=exception.when if exception else (),
        )

    def _shape(
        self, pattern: Pattern, parts: Sequence[Operator], lengths: frozenset[int] | None, is_point: bool
    ) -> tuple[int, tuple[str, ...], frozenset[str], frozenset[str], frozenset[str], frozenset[int] | None, bool, str]:
        self.count += 1
        names = tuple(positives(pattern))
        many, optional, empty = (
            (
                frozenset[str]().union(*sets)
                for sets in zip(*((part.many, part.optional, part.empty) for part in parts), strict=True)
            )
            if parts
            else (frozenset[str](),) * 3
        )
        if isinstance(pattern, pt.Iteration):
            many, optional, empty = frozenset(names), frozenset(), optional | empty
        if isinstance(pattern, pt.Disj) and len(parts) > 1:
            optional = frozenset(names)
        return self.count, names, many, optional, empty, lengths, is_point, core_text(pattern)

    def _alone(self, operand: Operator, predicates: Sequence[Expr], part: str) -> tuple[Expr, ...]:
        """Adds the tests on the single event of a leaf to the leaf, and returns the others."""
        if not isinstance(operand, Leaf):
            return tuple(predicates)
        others = []
        for predicate in map(_unwrapped, predicates):
            if is_alone(predicate, operand.var) and is_maskable(predicate):
                (operand.tests if part == "tests" else operand.keeps).append(predicate)
            else:
                others.append(predicate)
        return tuple(others)


def _unwrapped(predicate: Expr) -> Expr:
    return predicate.item if isinstance(predicate, Filter) else predicate


def is_alone(predicate: Expr, var: str) -> bool:
    """Whether a predicate is about one event of a variable only (or about none)."""
    if not variables(predicate) <= {var}:
        return False
    nodes = walk(predicate)
    if any(isinstance(node, Aggregate | OccursWithin) for node in nodes):
        return False
    return all(node.at is At.EVENT for node in nodes if isinstance(node, Attr))


def last_variables(operator: Operator) -> frozenset[str]:
    """The variables whose event is surely the one with which a composite event ends, if they are bound."""
    match operator:
        case Leaf():
            return frozenset({operator.var})
        case Next():
            return last_variables(operator.right)
        case Selection() | Exception_() | Iteration():
            return last_variables(operator.item)
        case _:
            return frozenset()


def tests_of(operator: Operator) -> Iterator[Expr]:
    """The predicates between events of an operator."""
    match operator:
        case Next():
            yield from (*operator.skip, *operator.keep, *operator.when)
        case Iteration():
            yield from (*operator.skip, *operator.keep)
        case Selection():
            yield from operator.keep
        case Exception_():
            yield from operator.when


# --- the length of time -----------------------------------------------------------------------------------------------


def bounds_of(predicate: Expr) -> list[tuple[str, str, int]]:
    """The pairs of variables that a predicate requires to occur within some ticks."""
    if not isinstance(predicate, OccursWithin):
        return []
    ticks = int(predicate.duration.amount)
    return [(predicate.first, predicate.second, ticks), (predicate.second, predicate.first, ticks)]


def longest(op: Operator, has_durations: bool) -> int | None:
    """The most ticks from the start to the end of a composite event; None: any number."""

    def inner(part: Operator) -> int | None:
        return longest(part, has_durations)

    match op:
        case Leaf():
            return None if has_durations else 0
        case Next():
            lengths = [
                _sum(0 if one in first_variables(op.left) else inner(op.left), ticks, after)
                for predicate in (*op.skip, *op.keep)
                for one, other, ticks in bounds_of(predicate)
                if binds(op.left, one) and binds(op.right, other)
                for after in [0 if other in last_variables(op.right) else inner(op.right)]
            ]
        case Iteration():
            lengths = [
                ticks
                for predicate in (*op.skip, *op.keep)
                for one, other, ticks in bounds_of(predicate)
                if one in first_variables(op.item) and other in last_variables(op.item)
            ]
        case Union():
            every = [inner(item) for item in op.items]
            return None if None in every else max(length or 0 for length in every)
        case Timer():
            return _sum(inner(op.item), op.delay)
        case Selection() | Exception_():
            return inner(op.item)
        case _:
            return None
    return min((length for length in lengths if length is not None), default=None)


def _sum(*lengths: int | None) -> int | None:
    known = [length for length in lengths if length is not None]
    return sum(known) if len(known) == len(lengths) else None


def binds(op: Operator, var: str) -> bool:
    """Whether all composite events of an operator bind a variable to an event."""
    return var in op.variables and var not in op.optional | op.empty


def first_variables(op: Operator) -> frozenset[str]:
    """The variables whose first event is surely the one with which a composite event starts, if they are bound."""
    match op:
        case Leaf():
            return frozenset({op.var})
        case Next():
            return first_variables(op.left)
        case Selection() | Exception_() | Iteration() | Timer():
            return first_variables(op.item)
        case _:
            return frozenset()


def lifetime(op: Operator, has_durations: bool) -> int | None:
    """The ticks after its start during which a composite event of an operator may become part of a match, or cancel
    one; None: for ever. A match with it would take longer otherwise."""
    top, above = op, op.parent
    while above is not None and not (isinstance(above, Next | Exception_) and top is above.cancel):
        top, above = above, above.parent
    return longest(top, has_durations)
