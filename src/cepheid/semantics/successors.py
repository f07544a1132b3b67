"""EQL: NEXT's core operators on the complete-history time model (NEXT §3.2-3.4, ruling 9)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cmp_to_key

from cepheid.core_language import core_form
from cepheid.events import Event
from cepheid.expr import Expr
from cepheid.pattern import Disj, EventClass, Filtered, Iteration, Next, Pattern, Timer, Unless, roles
from cepheid.semantics.common import Bindings, Context, Found, found


def matches(context: Context) -> Iterator[Found]:
    every_variable = {var: None for var, role in context.roles.items() if not role.negated}
    for event in detected(core_form(context.query.pattern, context.predicates), context):
        yield replace(event, bindings={**every_variable, **event.bindings})


def detected(pattern: Pattern, context: Context) -> list[Found]:
    """The stream of composite events that an operator puts out."""
    match pattern:
        case EventClass():
            return [found({pattern.var: event}) for event in context.of_class[pattern]]
        case Filtered():
            return [e for e in detected(pattern.item, context) if _holds(pattern.keep, {}, e.bindings, context)]
        case Disj():
            return [event for item in pattern.items for event in detected(item, context)]
        case Timer():
            return [_after(event, context.clock.ticks(pattern.delay)) for event in detected(pattern.item, context)]
        case Unless():
            return _unless(pattern, detected(pattern.item, context), context)
        case Next():
            return _next(pattern, context)
        case Iteration():
            return _iterations(pattern, context)
        case _:
            raise AssertionError(f"not a core operator: {type(pattern).__name__}")


def _next(pattern: Next, context: Context) -> list[Found]:
    r"""`E1; E2_{φ,θ}`: for each E1 its immediate successor among the E2 that satisfy φ, if that satisfies θ. Where E2
    is an exception `E2 \ E3`, an E3 that occurs while E2 is awaited gives the instance up."""
    right = pattern.right.item if isinstance(pattern.right, Unless) else pattern.right
    cancelling = detected(pattern.right.cancel, context) if isinstance(pattern.right, Unless) else []
    results = []
    seconds = detected(right, context)
    for first in detected(pattern.left, context):
        for second in successors(
            first, [s for s in seconds if _holds(pattern.skip, first.bindings, s.bindings, context)]
        ):
            if not _holds(pattern.keep, first.bindings, second.bindings, context):
                continue
            composite = _concatenated(first, second)
            given_up = isinstance(pattern.right, Unless) and any(
                first.end < other.end < second.end
                and _holds(pattern.right.when, composite.bindings, other.bindings, context)
                for other in cancelling
            )
            if not given_up:
                results.append(composite)
    return results


def _iterations(pattern: Iteration, context: Context) -> list[Found]:
    """`E+_{φ,θ}`: from every E that satisfies both, the chains of successors; each prefix of a chain is detected."""
    names = [var for var, role in roles(pattern.item).items() if not role.negated]
    items = detected(pattern.item, context)
    results: list[Found] = []
    nothing: Bindings = {var: () for var in names}
    chains = [
        _appended(replace(item, bindings=nothing, times=()), item, names)
        for item in items
        if _holds((*pattern.skip, *pattern.keep), nothing, item.bindings, context)
    ]
    while chains:
        results.extend(chains)
        longer: list[Found] = []
        for chain in chains:
            wanted = [i for i in items if _holds(pattern.skip, chain.bindings, i.bindings, context)]
            longer.extend(
                _appended(chain, item, names)
                for item in successors(chain, wanted)
                if _holds(pattern.keep, chain.bindings, item.bindings, context)
            )
        chains = longer
    return results


def _unless(pattern: Unless, items: Sequence[Found], context: Context) -> list[Found]:
    r"""`E1 \ E2_λ`: E1, unless an E2 that satisfies λ occurs while E1 is being detected."""
    cancelling = detected(pattern.cancel, context)
    return [
        item
        for item in items
        if not any(
            item.start < other.end < item.end and _holds(pattern.when, item.bindings, other.bindings, context)
            for other in cancelling
        )
    ]


# --- the temporal model (§3.2) ----------------------------------------------------------------------------------------


def successors(first: Found, candidates: Iterable[Found]) -> list[Found]:
    """SUCC(t, F): those after t with none before them in ⊑. Several only if their histories are the same."""
    later = [c for c in candidates if first.end < c.start]
    if not later:
        return []
    earliest = min((c.times for c in later), key=cmp_to_key(_compare))
    return [c for c in later if c.times == earliest]


def precedes(sigma: tuple[int, ...], tau: tuple[int, ...]) -> bool:
    """σ ⊑ τ: lexicographic from the end; of two that agree as far as the shorter goes, the longer comes first."""
    return _compare(sigma, tau) < 0


def _compare(sigma: tuple[int, ...], tau: tuple[int, ...]) -> int:
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
    moment = int(event.end + delay)
    return replace(event, end=moment, times=(*event.times, moment, moment))


def _as_tuple(bindings: Bindings, var: str) -> tuple[Event, ...]:
    binding = bindings.get(var)
    return () if binding is None else binding if isinstance(binding, tuple) else (binding,)


def _holds(predicates: Sequence[Expr], before: Bindings, occurring: Bindings, context: Context) -> bool:
    """A predicate on the events detected so far and those now occurring: PREV and ALL look only at the former."""
    trying = {var: binding for var, binding in occurring.items() if isinstance(binding, Event)}
    bound = {**{var: b for var, b in occurring.items() if var not in trying}, **before}
    return context.holds(predicates, bound, trying)
