"""EQL: NEXT's core operators on the complete-history time model (NEXT §3.2-3.4, ruling 9), and the operator at which
each predicate of WHERE is tested (§3.5).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cmp_to_key
from math import floor

from cepheid.evaluation import Env, holds
from cepheid.events import Event
from cepheid.expr import Aggregate, And, At, Attr, Expr, Filter, variables, walk
from cepheid.pattern import Disj, EventClass, Iteration, Next, Pattern, Timer, Unless, roles, subpatterns
from cepheid.semantics.common import Bindings, Context, Found, found


def matches(context: Context) -> Iterator[Found]:
    every_variable = {var: None for var, role in context.roles.items() if not role.negated}
    operators = Operators(context, placed(context.query.pattern, context.predicates))
    for event in operators.detected(context.query.pattern):
        yield replace(event, bindings={**every_variable, **event.bindings})


# --- predicates (§3.4, §3.5) ------------------------------------------------------------------------------------------

Placed = Mapping[tuple[int, str], Sequence[Expr]]
"""id(operator), part -> predicates. Parts: `filter` (E_θ), `skip` (φ), `keep` (θ of next and iteration), `when` (λ)."""


def placed(pattern: Pattern, predicates: Iterable[Expr]) -> Placed:
    result: dict[tuple[int, str], list[Expr]] = {}
    for predicate in (part for p in predicates for part in _split(p)):
        names = variables(predicate)
        # A condition without variables is about the match, whatever the operators.
        operator, part = _tested_by(predicate, _path(pattern, predicate)) if names else (pattern, "filter")
        result.setdefault((id(operator), part), []).append(predicate)
    return result


def _split(predicate: Expr) -> list[Expr]:
    """The parts of a conjunction, and of one inside FILTER (ruling 18)."""
    match predicate:
        case And():
            return [part for item in predicate.items for part in _split(item)]
        case Filter():
            return [Filter(part) for part in _split(predicate.item)]
        case _:
            return [predicate]


def _path(pattern: Pattern, predicate: Expr) -> list[Pattern]:
    """The operators from the outermost one to the smallest that binds all variables of a predicate, and whose
    iterations make the groups of its aggregates."""
    grouped = {node.var for node in walk(predicate) if isinstance(node, Aggregate)}
    if isinstance(pattern, Iteration) and _single(pattern) & (grouped | _read_before(predicate)):
        return [pattern]
    homes = [part for part in subpatterns(pattern) if variables(predicate) <= roles(part).keys()]
    return [pattern, *(_path(homes[0], predicate) if homes else [])]


def _single(pattern: Iteration) -> set[str]:
    """The variables of which each item of an iteration binds one event, if any."""
    return {var for var, role in roles(pattern.item).items() if not role.negated and not role.binds_many}


def _read_before(predicate: Expr) -> set[str]:
    """The variables of PREV and ALL."""
    return {n.var for n in walk(predicate) if isinstance(n, Attr) and n.at in (At.PREVIOUS, At.ALL)}


def _tested_by(predicate: Expr, path: Sequence[Pattern]) -> tuple[Pattern, str]:
    """The operator that tests a predicate, and as which part of it."""
    part = "skip" if isinstance(predicate, Filter) else "keep"
    *around, home = path
    match home:
        case Next(right=Unless() as exception) if variables(predicate) & roles(exception.cancel).keys():
            return exception, "when"
        case Next():
            return home, part
        case Unless():
            return home, "when"
        case Iteration():
            is_whole = any(isinstance(node, Aggregate) and node.var in _single(home) for node in walk(predicate))
            return home, "filter" if is_whole and part == "keep" else part
    # It is about one operand: a condition for the operator that waits for it, a filter where none does.
    for operator in reversed(around):
        match operator:
            case Unless() if home is operator.item:
                home = operator
            case Iteration():
                return operator, part
            case Next() if home is operator.right:
                return operator, part
            case _:
                break
    return home, "filter"


Groups = Mapping[str, tuple[Event, ...]]
NO_GROUPS: Groups = {}


# --- operators --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Operators:
    context: Context
    placed: Placed

    def detected(self, pattern: Pattern) -> list[Found]:
        """The stream of composite events that an operator puts out."""
        return [e for e in self._unfiltered(pattern) if self._holds(pattern, "filter", {}, e.bindings)]

    def _unfiltered(self, pattern: Pattern) -> list[Found]:
        match pattern:
            case EventClass():
                return [found({pattern.var: event}) for event in self.context.of_class[pattern]]
            case Disj():
                return [event for item in pattern.items for event in self.detected(item)]
            case Timer():
                delay = self.context.clock.ticks(pattern.delay)
                return [_after(event, delay) for event in self.detected(pattern.item)]
            case Unless():
                return self._unless(pattern)
            case Next():
                return self._next(pattern)
            case Iteration():
                return self._iterations(pattern)
            case _:
                raise AssertionError(f"not a core operator: {type(pattern).__name__}")

    def _next(self, pattern: Next) -> list[Found]:
        r"""`E1; E2_{φ,θ}`: for each E1 its immediate successor among the E2 that satisfy φ, if that satisfies θ. If
        E2 is an exception `E2 \ E3`, an E3 that occurs while E2 is awaited discards the instance."""
        exception = pattern.right if isinstance(pattern.right, Unless) else None
        seconds = self.detected(exception.item if exception else pattern.right)
        cancelling = self.detected(exception.cancel) if exception else []
        results = []
        for first in self.detected(pattern.left):
            candidates = [s for s in seconds if self._holds(pattern, "skip", first.bindings, s.bindings)]
            for second in successors(first, candidates):
                composite = _concatenated(first, second)
                if self._holds(pattern, "keep", first.bindings, second.bindings) and not any(
                    first.end < other.end < second.end
                    and self._holds(pattern.right, "when", composite.bindings, other.bindings)
                    for other in cancelling
                ):
                    results.append(composite)
        return results

    def _iterations(self, pattern: Iteration) -> list[Found]:
        """`E+_{φ,θ}`: from every E that satisfies both, the chains of successors. Each prefix is detected."""
        names = [var for var, role in roles(pattern.item).items() if not role.negated]
        items = self.detected(pattern.item)
        results: list[Found] = []
        nothing: Bindings = {var: () for var in names}
        chains = [
            (_appended(replace(item, bindings=nothing, times=()), item, names), item)
            for item in items
            if all(self._holds_for_chain(pattern, part, nothing, None, item.bindings) for part in ("skip", "keep"))
        ]
        while chains:
            results.extend(chain for chain, _ in chains)
            longer: list[tuple[Found, Found]] = []
            for chain, last in chains:
                sides = chain.bindings, last.bindings
                wanted = [i for i in items if self._holds_for_chain(pattern, "skip", *sides, i.bindings)]
                longer.extend(
                    (_appended(chain, item, names), item)
                    for item in successors(chain, wanted)
                    if self._holds_for_chain(pattern, "keep", *sides, item.bindings)
                )
            chains = longer
        return results

    def _unless(self, pattern: Unless) -> list[Found]:
        r"""`E1 \ E2_λ`: E1, unless an E2 that satisfies λ occurs while E1 is being detected."""
        cancelling = self.detected(pattern.cancel)
        return [
            item
            for item in self.detected(pattern.item)
            if not any(
                item.start < other.end < item.end and self._holds(pattern, "when", item.bindings, other.bindings)
                for other in cancelling
            )
        ]

    def _holds_for_chain(
        self, operator: Iteration, part: str, before: Bindings, last: Bindings | None, occurring: Bindings
    ) -> bool:
        """As `_holds`; an aggregate in FILTER is over the chain that the item would make (ruling 18). A condition with
        PREV or ALL applies if the item binds what else it names, and the last item before it what PREV names."""
        whole = {var: (*_as_tuple(before, var), *_as_tuple(occurring, var)) for var in before}
        skipped = [
            predicate
            for predicate in self.placed.get((id(operator), part), ())
            if _read_before(predicate)
            if not _applies(predicate, _single(operator), last, occurring)
        ]
        return self._holds(operator, part, before, occurring, whole, skipped)

    def _holds(
        self,
        operator: Pattern,
        part: str,
        before: Bindings,
        occurring: Bindings,
        groups: Groups = NO_GROUPS,
        skipped: Sequence[Expr] = (),
    ) -> bool:
        """Whether predicates hold for the events detected so far and those now occurring. PREV and ALL read only the
        former."""
        trying = {var: binding for var, binding in occurring.items() if isinstance(binding, Event)}
        bound = {**{var: b for var, b in occurring.items() if var not in trying}, **before}
        env = Env(bound, trying, self.context.clock, groups)
        tested = [p for p in self.placed.get((id(operator), part), ()) if not any(p is other for other in skipped)]
        return all(holds(predicate, env) for predicate in tested)


def _applies(predicate: Expr, single: set[str], last: Bindings | None, occurring: Bindings) -> bool:
    """Whether the item binds the variables that a predicate names without PREV or ALL, and the last item before it
    those that it names with PREV."""
    read = [node for node in walk(predicate) if isinstance(node, Attr) and node.var in single]
    now = {node.var for node in read if node.at not in (At.PREVIOUS, At.ALL)}
    previous = {node.var for node in read if node.at is At.PREVIOUS} if last is not None else set()
    return all(occurring.get(var) is not None for var in now) and all(
        (last or {}).get(var) is not None for var in previous
    )


# --- the temporal model (§3.2) ----------------------------------------------------------------------------------------


def successors(first: Found, candidates: Iterable[Found]) -> list[Found]:
    """SUCC(t, F): those after t with none before them in ⊑. Several only if their histories are the same."""
    later = [c for c in candidates if first.end < c.start]
    if not later:
        return []
    earliest = min((c.times for c in later), key=cmp_to_key(compare))
    return [c for c in later if c.times == earliest]


def compare(sigma: tuple[int, ...], tau: tuple[int, ...]) -> int:
    """Less than 0 if σ ⊑ τ: lexicographic from the end; of two that agree as far as the shorter goes, the longer comes
    first."""
    for a, b in zip(reversed(sigma), reversed(tau), strict=False):
        if a != b:
            return -1 if a < b else 1
    return len(tau) - len(sigma)


def _concatenated(first: Found, second: Found) -> Found:
    return Found({**first.bindings, **second.bindings}, first.start, second.end, first.times + second.times)


def _appended(chain: Found, item: Found, names: Sequence[str]) -> Found:
    bindings = {var: (*_as_tuple(chain.bindings, var), *_as_tuple(item.bindings, var)) for var in names}
    start = chain.start if chain.times else item.start
    return Found(bindings, start, item.end, chain.times + item.times)


def _after(event: Found, delay: int | float) -> Found:
    moment = floor(event.end + delay)
    return replace(event, end=moment, times=(*event.times, moment, moment))


def _as_tuple(bindings: Bindings, var: str) -> tuple[Event, ...]:
    binding = bindings.get(var)
    return () if binding is None else binding if isinstance(binding, tuple) else (binding,)
