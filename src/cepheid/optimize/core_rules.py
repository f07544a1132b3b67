r"""Rewriting of EQL's core form (NEXT §4.3): laws of its operators, one function each, in one ordered tuple.

Each law documents an example and when it does not hold. Then it leaves the operators as issued and states the reason,
which EXPLAIN shows. A rewritten form binds the same variables and has the same key.

`;` may be regrouped because the successor of an event is the one with the earliest history: of two events, the earlier
one has the earlier successor, so that the first of all composite events `(b; c)` after `a` begins with the successor of
`a`. A condition between `b` and `c` breaks this, unless it divides all operands by one key.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from cepheid import expr as ex
from cepheid import pattern as pt
from cepheid.expr import At, Attr, Compare, Expr, variables
from cepheid.optimize.core_cost import Estimate, Model
from cepheid.optimize.core_key import alternatives, core_key
from cepheid.pattern import Pattern, positives
from cepheid.types import BOOLEAN, Type

_WORTHWHILE = 0.95
"""A regrouping replaces the form as issued only if its cost is below this share: estimates err,"""
_NOTICEABLE = 0.02
"""and if it saves this share of the whole: of 58 random queries, one that saves less was 8 % slower."""
_SIMILAR = 0.2
"""Costs that differ by less than this share of the whole are about the same."""
_WEIGHTS = (0.0, 0.25, 0.5, 1.0, 2.0, 4.0)
"""The weights of composite events that the search tries, each in units of the mean cost of one as issued."""


@dataclass(frozen=True, slots=True)
class CoreInput:
    """The input of a core form. Events of the types `composite` have histories of any length."""

    types: Mapping[str, Type] = field(default_factory=dict)
    lacks: Collection[str] = ()
    has_durations: bool = False
    composite: frozenset[str] = frozenset()
    model: Model | None = None
    """The cost of operators; None: no statistics are known."""


@dataclass(frozen=True, slots=True)
class Rewritten:
    """A core form, the steps that led to it, and the reasons of laws that were not applied."""

    core: Pattern
    notes: tuple[str, ...] = ()


Law = Callable[[Pattern, CoreInput], Rewritten]


def rewritten_core(core: Pattern, given: CoreInput, laws: Sequence[Law] | None = None) -> Rewritten:
    """The core form after all laws."""
    notes: list[str] = []
    for law in LAWS if laws is None else laws:
        found = law(core, given)
        if list(positives(core)) != list(positives(found.core)):
            raise AssertionError(f"the law `{law.__name__}` changed the variables of {core_text(core)}")
        keys = [set(core_key(form, given.lacks, given.types)) for form in (core, found.core)]
        if keys[0] == keys[1]:
            core, notes = found.core, [*notes, *found.notes]
        else:
            notes.append(f"{core_text(core)} as issued: `{law.__name__}` would change its key")
    return Rewritten(core, tuple(dict.fromkeys(notes)))


def core_text(pattern: Pattern) -> str:
    """The operators without their predicates, as EXPLAIN names them: `((a; b); c)`."""
    match pattern:
        case pt.EventClass():
            return pattern.var
        case pt.Filtered():
            return core_text(pattern.item)
        case pt.Next():
            return f"({core_text(pattern.left)}; {core_text(pattern.right)})"
        case pt.Iteration():
            return f"{core_text(pattern.item)}+"
        case pt.Unless():
            return f"({core_text(pattern.item)} \\ {core_text(pattern.cancel)})"
        case pt.Disj():
            return f"({' | '.join(map(core_text, pattern.items))})"
        case pt.Timer():
            return f"({core_text(pattern.item)} @ {pattern.delay.amount})"
        case _:
            raise AssertionError(f"not a core operator: {type(pattern).__name__}")


# --- union ------------------------------------------------------------------------------------------------------------


def flatten_unions(core: Pattern, given: CoreInput) -> Rewritten:
    """`a|(b|c)` is one union of three operands: the compiled operator passes events on, whatever their number.
    (Figure 3's binary tree matters where unions are shared or placed apart, see `deploy/placement.py`.)

    >>> from cepheid.optimize.examples import shown_core
    >>> print(shown_core(flatten_unions, "SELECT * FROM A a | (B b | (C c | D d))"))
    (a | b | c | d)
    """

    def flat(pattern: Pattern) -> Pattern:
        found = pt.with_subpatterns(pattern, flat)
        if not isinstance(found, pt.Disj) or not any(isinstance(item, pt.Disj) for item in found.items):
            return found
        inner = (item.items if isinstance(item, pt.Disj) else (item,) for item in found.items)
        return replace(found, items=tuple(part for items in inner for part in items))

    result = flat(core)
    return Rewritten(result, () if result == core else (f"unions are one operator each: {core_text(result)}",))


# --- exception --------------------------------------------------------------------------------------------------------


def lift_exceptions(core: Pattern, given: CoreInput) -> Rewritten:
    r"""`a; ((b; c) \ d)` is `(a; (b; c)) \ d` if `a` has no duration: then nothing but its only point in time is before
    the wait for the rest. The `;` below the exception is then one chain, which may be regrouped.

    Refuses a first operand with duration: `d` may occur within it, and cancel `((a; b); c) \ d`, not `(a; b); (c \ d)`.
    Refuses where the result would be awaited by another `;`, whose wait would then be cancelled.

    >>> from cepheid.optimize.examples import shown_core
    >>> print(shown_core(lift_exceptions, r"SELECT * FROM A a; ((B b; C c) \ D d)"))
    ((a; (b; c)) \ d)
    >>> print(shown_core(lift_exceptions, r"SELECT * FROM (A a; E e); ((B b; C c) \ D d)"))
    ((a; e); ((b; c) \ d))
    """
    notes: list[str] = []

    def lifted(pattern: Pattern, is_awaited: bool) -> Pattern:
        if isinstance(pattern, pt.Next):
            left, right = lifted(pattern.left, False), pattern.right
            if not isinstance(right, pt.Unless):
                return replace(pattern, left=left, right=lifted(right, True))
            right = replace(right, item=lifted(right.item, False), cancel=lifted(right.cancel, False))
            kept = replace(pattern, left=left, right=right)
            if not isinstance(_unfiltered(right.item), pt.Next):
                return kept
            if not is_point(left, given):
                notes.append(f"{core_text(kept)}: the exception stays, since {core_text(left)} has a duration")
                return kept
            if is_awaited:
                notes.append(f"{core_text(kept)}: the exception stays, since another `;` awaits the result")
                return kept
            return replace(right, item=replace(pattern, left=left, right=right.item))
        return pt.with_subpatterns(pattern, lambda part: lifted(part, False))

    result = lifted(core, False)
    if result != core:
        notes.insert(0, f"exceptions are lifted: {core_text(result)}")
    return Rewritten(result, tuple(notes))


def is_point(pattern: Pattern, given: CoreInput) -> bool:
    """Whether it puts out single events without duration."""
    match pattern:
        case pt.EventClass():
            return not given.has_durations
        case pt.Filtered():
            return is_point(pattern.item, given)
        case pt.Unless():
            return is_point(pattern.item, given)
        case pt.Disj():
            return all(is_point(item, given) for item in pattern.items)
        case _:
            return False


def _unfiltered(pattern: Pattern) -> Pattern:
    return _unfiltered(pattern.item) if isinstance(pattern, pt.Filtered) else pattern


# --- next -------------------------------------------------------------------------------------------------------------


def regroup_next(core: Pattern, given: CoreInput) -> Rewritten:
    r"""`a; (b; c)` is `(a; b); c`: the cheapest grouping, by the dynamic program of figure 5 (whose line 7 should be
    `j = i+l-1`, as its text says).

    A θ discards an instance and never changes a choice, so it is tested by the first `;` from the left that has its
    events. Refuses to group operands

    - that have histories of several lengths, since the longer of two histories comes first;
    - with a φ between them (`FILTER(b.x = c.x)`, or `FILTER(a.x = c.x)` over the group), unless it is part of a key
      over all operands before it;
    - with a θ of their own as issued (in brackets it is a filter on the group);
    - that an exception cancels while they are awaited.

    >>> from cepheid.optimize.examples import shown_core
    >>> rare_first = {"a": 1, "b": 50, "c": 50}
    >>> print(shown_core(regroup_next, "SELECT * FROM A a; (B b; C c)", rare_first))
    ((a; b); c)
    >>> print(shown_core(regroup_next, "SELECT * FROM A a; (B b; C c) WHERE FILTER(b.x = c.x)", rare_first))
    (a; (b; c))
    >>> print(shown_core(regroup_next, "SELECT * FROM A a; (B b; C c) WHERE FILTER(a.x = b.x = c.x)", rare_first))
    ((a; b); c)
    """
    notes: list[str] = []
    result = _regrouped(core, given, notes)
    return Rewritten(result, tuple(notes))


@dataclass(frozen=True, slots=True)
class Operand:
    """An operand of a chain of `;`. `skip` is the φ, and `keep` the θ, of the `;` that awaits it after all operands
    before it."""

    pattern: Pattern
    skip: tuple[Expr, ...] = ()
    keep: tuple[Expr, ...] = ()


def _regrouped(pattern: Pattern, given: CoreInput, notes: list[str]) -> Pattern:
    if not isinstance(pattern, pt.Next):
        return pt.with_subpatterns(pattern, lambda part: _regrouped(part, given, notes))
    chain = Chain.of(pattern, given, notes)
    if len(chain.operands) < 3:
        return chain.as_issued
    if given.model is None:
        notes.append(f"{core_text(chain.as_issued)} as issued: no statistics are known")
        return chain.as_issued
    notes += chain.obstacles()
    issued = given.model.of(chain.as_issued)
    best, estimate = chain.best(given.model, issued)
    if best is not chain.as_issued:
        notes.append(
            f"{core_text(chain.as_issued)} runs as {core_text(best)}: {estimate.cost:.3g} {given.model.unit} instead "
            f"of {issued.cost:.3g}, {issued.made / estimate.made:.3g} times fewer composite events"
        )
    return best


@dataclass(frozen=True, slots=True)
class Chain:
    """Operands that `;` joins from left to right, and the form that they were issued in."""

    operands: tuple[Operand, ...]
    as_issued: Pattern
    given: CoreInput
    keys: tuple[tuple[str, ...], ...]
    """By operand: the attributes that φ makes it share with all operands before it."""
    others: tuple[tuple[Expr, ...], ...]
    """By operand: the rest of φ that reads operands before it."""
    read: Mapping[tuple[str, str], Attr]
    """The attributes of variables that the keys are read from."""

    # --- from a pattern -----------------------------------------------------------------------------------------------

    @classmethod
    def of(cls, pattern: pt.Next, given: CoreInput, notes: list[str]) -> Chain:
        """The chain of a `;`, which is as long as grouping from the left has the meaning that was issued."""
        left, right = pattern.left, pattern.right
        first = cls.of(left, given, notes) if isinstance(left, pt.Next) else None
        heads = first.operands if first is not None else (Operand(_regrouped(left, given, notes)),)
        if first is not None:
            left = first.as_issued
        if isinstance(right, pt.Unless):
            right = pt.with_subpatterns(right, lambda part: _regrouped(part, given, notes))
        rest = cls.of(right, given, notes) if isinstance(right, pt.Next) else None
        if rest is not None:
            right = rest.as_issued
            rest = rest if len(rest.operands) > 1 else None
        elif not isinstance(right, pt.Unless):
            right = _regrouped(right, given, notes)
        issued = replace(pattern, left=left, right=right)
        if not all(map(_is_movable, (*pattern.skip, *pattern.keep))):
            notes.append(f"{core_text(issued)} as issued: a condition reads PREV, ALL or an aggregate")
            alone = replace(issued, left=cls._alone(left, first), right=cls._alone(right, rest))
            return cls._with_keys((Operand(alone),), alone, given)
        if rest is not None:
            spliced = cls._with_keys(
                (*heads, replace(rest.operands[0], skip=pattern.skip), *_with_last(rest.operands[1:], pattern.keep)),
                issued,
                given,
            )
            why = spliced._why_not_spliced(len(heads), rest)
            if why is None:
                return spliced
            notes.append(f"{core_text(right)} as issued: {why}")
            right = cls._alone(right, rest)
            issued = replace(issued, right=right)
        return cls._with_keys((*heads, Operand(right, pattern.skip, pattern.keep)), issued, given)

    @classmethod
    def _alone(cls, pattern: Pattern, chain: Chain | None) -> Pattern:
        """A group that stays one operand, with its own cheapest grouping."""
        if chain is None or chain.given.model is None or len(chain.operands) < 3:
            return pattern
        return chain.best(chain.given.model, chain.given.model.of(pattern))[0]

    @classmethod
    def _with_keys(cls, operands: tuple[Operand, ...], as_issued: Pattern, given: CoreInput) -> Chain:
        keys: list[tuple[str, ...]] = [()]
        others: list[tuple[Expr, ...]] = [()]
        found: list[Operand] = [operands[0]]
        read: dict[tuple[str, str], Attr] = {}
        prefix = operands[0].pattern
        for operand in operands[1:]:
            prefix = pt.Next(prefix, operand.pattern, operand.skip, operand.keep)
            equalities = {
                name: [p for p in operand.skip if _equated(p) == name]
                for name in core_key(prefix, given.lacks, given.types)
                if len(found) == 1 or name in keys[-1]
            }
            keys.append(tuple(name for name, equal in equalities.items() if _have_one_type(equal)))
            own = set(positives(operand.pattern))
            is_key = [p for name in keys[-1] for p in equalities[name]]
            read |= {(node.var, node.name): node for p in is_key for node in ex.walk(p) if isinstance(node, Attr)}
            others.append(tuple(p for p in operand.skip if p not in is_key and not variables(p) <= own))
            found.append(_with_filter(operand, own))
        return cls(tuple(found), as_issued, given, tuple(keys), tuple(others), read)

    def _why_not_spliced(self, start: int, group: Chain) -> str | None:
        """Why a group in brackets that begins at an operand has another meaning than the operands one by one."""
        if isinstance(self.operands[start].pattern, pt.Unless):
            return f"an exception that begins a group is not awaited: {core_text(self.operands[start].pattern)}"
        kept = next((p for operand in group.operands for p in operand.keep), None)
        if kept is not None:
            return f"in brackets, {ex.to_text(kept)} is a filter on the group"
        known = {var for operand in self.operands[: start + 1] for var in positives(operand.pattern)}
        wide = next((p for p in self.others[start] if not variables(p) <= known), None)
        if wide is not None:
            return f"FILTER({ex.to_text(wide)}) is a condition on the group"
        return self._why_not_grouped(start, len(self.operands) - 1)

    # --- groups -------------------------------------------------------------------------------------------------------

    def _why_not_grouped(self, start: int, end: int) -> str | None:
        """Why the operands from `start` to `end` cannot be a group that another operand awaits."""
        if start == end:
            return None
        for at in range(start, end + 1):
            operand = self.operands[at]
            if isinstance(operand.pattern, pt.Unless):
                return f"{core_text(operand.pattern)} is cancelled while it is awaited after what comes before it"
            if at == start:
                continue
            if self.others[at]:
                return f"FILTER({ex.to_text(self.others[at][0])}) is no part of a key over all operands before it"
            if history_length(operand.pattern, self.given) is None:
                return f"the histories of {core_text(operand.pattern)} have several lengths"
        return None

    def obstacles(self) -> Iterator[str]:
        """Why operands are not grouped with the one after them."""
        for start in range(1, len(self.operands) - 1):
            why = self._why_not_grouped(start, start + 1)
            if why is not None:
                names = "; ".join(core_text(operand.pattern) for operand in self.operands[start : start + 2])
                yield f"({names}) is no group: {why}"

    def joined(self, left: Pattern, right: Pattern, start: int, middle: int, end: int) -> pt.Next:
        """`;` of the operands from `start` to `middle`, and from there to `end`."""
        skip = [p for p in self.operands[middle].skip if not _names(p, self.operands[:middle])]
        for name in self.keys[middle]:
            skip += self._equalities(name, self.operands[middle - 1].pattern, self.operands[middle].pattern)
        skip += self.others[middle] if start == 0 else ()
        kept = self.operands[middle : end + 1] if start == 0 else ()
        return pt.Next(left, right, tuple(skip), tuple(p for operand in kept for p in operand.keep))

    def _equalities(self, name: str, before: Pattern, after: Pattern) -> Iterator[Expr]:
        """An attribute is the same in two operands, whatever alternative of each matches."""
        for one in alternatives(before):
            for other in alternatives(after):
                left, right = (next(attr for (var, of), attr in self.read.items() if of == name and var in names)
                               for names in (one, other))  # fmt: skip
                yield Compare("=", left, right, type=BOOLEAN)

    # --- the search ---------------------------------------------------------------------------------------------------

    def best(self, model: Model, issued: Estimate) -> tuple[Pattern, Estimate]:
        """Of the groupings that cost about as little as the cheapest one, that with the fewest composite events: they
        are memory, and messages where operators are placed apart. The form as issued, unless it costs more."""
        found = [self.cheapest(model, weight * issued.cost / (issued.made or 1.0)) for weight in _WEIGHTS]
        most = min(_WORTHWHILE * issued.cost, issued.cost - _NOTICEABLE * (model.reading + issued.cost))
        found = [candidate for candidate in found if candidate[1].cost < most]
        least = min((estimate.cost for _, estimate in found), default=0.0)
        similar = [c for c in found if c[1].cost - least <= _SIMILAR * (model.reading + least)]
        return min(similar, key=lambda candidate: candidate[1].made, default=(self.as_issued, issued))

    def cheapest(self, model: Model, weight: float = 0.0) -> tuple[Pattern, Estimate]:
        """The grouping of least cost, with the weight of a composite event: bottom up over ever longer groups, the best
        split of each (figure 5)."""

        def price(estimate: Estimate) -> float:
            return estimate.cost + weight * estimate.made

        n = len(self.operands)
        best = {(i, i): (operand.pattern, model.of(operand.pattern)) for i, operand in enumerate(self.operands)}
        for length in range(2, n + 1):
            for start in range(n - length + 1):
                end = start + length - 1
                if start > 0 and self._why_not_grouped(start, end) is not None:
                    continue
                for middle in range(start + 1, end + 1):
                    if (middle, end) not in best:
                        continue
                    (left, of_left), (right, of_right) = best[start, middle - 1], best[middle, end]
                    node = self.joined(left, right, start, middle, end)
                    estimate = model.next(node, of_left, of_right)
                    if (start, end) not in best or price(estimate) < price(best[start, end][1]):
                        best[start, end] = node, estimate
        return best[0, n - 1]


def _with_filter(operand: Operand, own: Collection[str]) -> Operand:
    """φ on an operand alone is a filter on it. What an exception cancels stays awaited."""
    alone = tuple(p for p in operand.skip if variables(p) <= set(own))
    if not alone or isinstance(operand.pattern, pt.Unless):
        return operand
    skip = tuple(p for p in operand.skip if p not in alone)
    return replace(operand, pattern=pt.Filtered(operand.pattern, alone), skip=skip)


def _names(predicate: Expr, operands: Sequence[Operand]) -> bool:
    """Whether a predicate reads one of the operands."""
    return any(var in variables(predicate) for operand in operands for var in positives(operand.pattern))


def _with_last(operands: Sequence[Operand], keep: tuple[Expr, ...]) -> tuple[Operand, ...]:
    """The operands of a group, of which the last one has the θ of the group."""
    return (*operands[:-1], replace(operands[-1], keep=(*operands[-1].keep, *keep)))


def _is_movable(predicate: Expr) -> bool:
    """Whether a predicate means the same wherever its events are known: PREV and ALL read only what was detected
    before."""
    nodes = list(ex.walk(predicate))
    return not any(isinstance(node, ex.Aggregate) for node in nodes) and all(
        node.at is At.EVENT for node in nodes if isinstance(node, Attr)
    )


def _equated(predicate: Expr) -> str | None:
    """The attribute that a predicate requires to be the same in two events."""
    match predicate:
        case Compare(op="=", left=Attr(at=At.EVENT) as left, right=Attr(at=At.EVENT) as right):
            return left.name if left.name == right.name else None
    return None


def _have_one_type(equalities: Sequence[Expr]) -> bool:
    """Only then is equality transitive."""
    return len({node.type for p in equalities for node in ex.walk(p) if isinstance(node, Attr)}) == 1


def history_length(pattern: Pattern, given: CoreInput) -> int | None:
    """The number of events and timers in its histories, if all have the same."""
    match pattern:
        case pt.EventClass():
            return None if given.composite.intersection(pattern.types) else 1
        case pt.Filtered() | pt.Unless():
            return history_length(pattern.item, given)
        case pt.Next():
            parts = [history_length(part, given) for part in (pattern.left, pattern.right)]
            known = [length for length in parts if length is not None]
            return sum(known) if len(known) == 2 else None
        case pt.Timer():
            length = history_length(pattern.item, given)
            return None if length is None else length + 1
        case pt.Disj():
            lengths = {history_length(item, given) for item in pattern.items}
            return lengths.pop() if len(lengths) == 1 else None
        case _:
            return None


LAWS: tuple[Law, ...] = (
    flatten_unions,
    lift_exceptions,  # before `;` is regrouped: it makes chains longer
    regroup_next,
)
