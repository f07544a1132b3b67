r"""The cost of EQL's core operators: NEXT's table 1, and the nanoseconds of the compiled operators.

Both estimate an operator from its operands: the rate of its composite events, and their *bursts*. A burst is the
composite events of one end: all that wait for an event are succeeded by it at once.

Table 1 is corrected in one place: the burst size of `E1|E2` is the mean of both, weighted by their burst rates (the
table leaves out the division, so that it would be a rate). Iterations, which the paper leaves to future work, are
estimated as in the model of the compiled operators.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import log2, prod
from typing import Protocol

from cepheid import pattern as pt
from cepheid.expr import Aggregate, Attr, Compare, Expr, OccursWithin, variables, walk
from cepheid.optimize.cost import EVENT
from cepheid.optimize.stats import Stats
from cepheid.pattern import Pattern, positives

LOOK_UP = 18.0
"""Nanoseconds to find the list of a key, among tens of thousands of keys."""
LEAF = 11.0
"""Nanoseconds for an event that a variable may bind."""
INSERT = 3.0
"""Nanoseconds to let a composite event wait."""
VISIT = 2.2
"""Nanoseconds to test an instance that an event may succeed."""
TOUCH = 3.3
"""Nanoseconds for an event that may be a successor, without the instances that it visits."""
QUEUE = 38.0
"""Nanoseconds to hold a composite event until its time has passed, since one with an earlier history may come."""
PASS = 55.0
"""Nanoseconds to decide about the composite events of one time, once it has passed."""
ORDER = 2.2
"""Nanoseconds for each comparison of two histories."""
CHAIN = 150.0
"""Nanoseconds to add an item to a chain or a group."""
FIRE = 36.0
"""Nanoseconds to start a timer and let it fire."""
WRITE = 3.0
"""Nanoseconds for each event of a match."""
_LONGEST = 0.9
"""The largest share of chains that are expected to go on."""
_LEAST = 1e-12


@dataclass(frozen=True, slots=True)
class Estimate:
    """An operator with all below it. `rate` is of its composite events (the paper's μ_s), `burst_size` the number of
    those with one end, `burst_rate` the rate of such ends, `detection` the time to detect one (DT). Times are in the
    unit of the model."""

    rate: float
    cost: float
    burst_size: float
    burst_rate: float
    detection: float
    made: float = 0.0
    """The rate of the composite events that all its `;` make."""
    is_point: bool = False
    """Whether it is single events without duration, of which the first decides at once."""


class Model(Protocol):
    """Estimates operators. `unit` is that of the cost, `reading` the cost of events before any operator."""

    @property
    def unit(self) -> str: ...

    @property
    def reading(self) -> float: ...

    def of(self, pattern: Pattern) -> Estimate:
        """The estimate of a core form."""

    def next(self, node: pt.Next, left: Estimate, right: Estimate) -> Estimate:
        r"""The estimate of a `;` whose operands are estimated; `right` is what is awaited, without its exception."""


class _Operators:
    """What both models have in common."""

    def __init__(self, stats: Stats) -> None:
        self.stats = stats

    def _passing(self, predicates: Sequence[Expr]) -> float:
        windows = [p for p in predicates if isinstance(p, OccursWithin)]
        return prod(self.stats.selectivity(p) for p in predicates if p not in windows) * 0.5 ** len(windows)

    def _between(self, predicates: Sequence[Expr]) -> list[Expr]:
        """The predicates that are not counted in the rate of a variable."""
        return [p for p in predicates if len(variables(p)) != 1 or not variables(p) <= self.stats.passing.keys()]


# --- the paper --------------------------------------------------------------------------------------------------------


class PaperModel(_Operators):
    """Table 1 and the CPU costs of §4.2, in events for each unit of time. Predicates are ignored, as there."""

    unit = "events for each unit of time (table 1)"
    reading = 0.0

    def of(self, pattern: Pattern) -> Estimate:
        match pattern:
            case pt.EventClass():
                rate = max(self.stats.rates.get(pattern.var, self.stats.total_rate or 1.0), _LEAST)
                return Estimate(rate, 0.0, 1.0, rate, 1 / rate)
            case pt.Filtered():
                item = self.of(pattern.item)
                return replace(item, cost=item.cost + item.rate)
            case pt.Disj():
                items = [self.of(item) for item in pattern.items]
                rate, bursts = sum(item.rate for item in items), sum(item.burst_rate for item in items)
                size = sum(item.burst_size * item.burst_rate for item in items) / bursts
                made = sum(item.made for item in items)
                return Estimate(rate, sum(item.cost for item in items) + rate, size, bursts, 1 / bursts, made)
            case pt.Next():
                awaited = pattern.right.item if isinstance(pattern.right, pt.Unless) else pattern.right
                return self.next(pattern, self.of(pattern.left), self.of(awaited))
            case pt.Unless():
                item, cancel = self.of(pattern.item), self.of(pattern.cancel)
                return replace(item, cost=item.cost + cancel.cost + item.rate + cancel.rate)
            case pt.Timer():
                item = self.of(pattern.item)
                return replace(item, cost=item.cost + item.rate, detection=item.detection + float(pattern.delay.amount))
            case pt.Iteration():
                item = self.of(pattern.item)
                longer = 1 / (1 - min(self._passing(pattern.keep), _LONGEST))
                return replace(
                    item,
                    rate=item.rate * longer,
                    burst_size=item.burst_size * longer,
                    cost=item.cost + item.rate * longer,
                )
            case _:
                raise AssertionError(f"not a core operator: {type(pattern).__name__}")

    def next(self, node: pt.Next, left: Estimate, right: Estimate) -> Estimate:
        cost = left.rate
        cost += right.detection / left.detection * left.burst_size * right.burst_size * right.burst_rate
        cost += max(right.burst_rate - left.burst_rate, 0.0) * right.burst_size
        if isinstance(node.right, pt.Unless):
            cancel = self.of(node.right.cancel)
            cost += cancel.cost + left.rate + cancel.rate
        return Estimate(
            left.rate,
            left.cost + right.cost + cost,
            left.burst_size * left.burst_rate * right.detection,
            1 / max(left.detection, right.detection),
            left.detection + right.detection,
            left.made + right.made + left.rate,
        )


# --- the compiled operators -------------------------------------------------------------------------------------------


class CompiledModel(_Operators):
    """Nanoseconds for each event of the input, which is the unit of time. `bench next-cost` holds it to measurements.

    An instance is inserted once. Where the awaited events are single ones, an event visits the instances of its key,
    each until φ holds. Composite events that are awaited are held until their time has passed and put in order, and
    each visits all instances of its key."""

    unit = "ns for each event"
    reading = EVENT

    def __init__(self, stats: Stats, has_durations: bool = False) -> None:
        super().__init__(stats)
        self.has_durations = has_durations
        self.total = stats.total_rate or sum(stats.rates.values()) or 1.0

    def whole(self, core: Pattern) -> float:
        """The cost of a query, with that of reading events and writing matches."""
        root = self.of(core)
        classes = {node.types: self.of(node).rate for node in pt.walk(core) if isinstance(node, pt.EventClass)}
        read = EVENT + LEAF * min(sum(classes.values()), 1.0)
        return read + root.cost + WRITE * root.rate * len(positives(core))

    def of(self, pattern: Pattern) -> Estimate:
        match pattern:
            case pt.EventClass():
                share = min(self.stats.rates.get(pattern.var, self.total) / self.total, 1.0)
                rate = max(share * self.stats.passing.get(pattern.var, 1.0), _LEAST)
                return Estimate(rate, 0.0, 1.0, rate, 0.0, is_point=not self.has_durations)
            case pt.Filtered(item=pt.Iteration() as chains):
                return self._filtered(pattern, self._iteration(chains, self.of(chains.item), pattern.keep))
            case pt.Filtered():
                return self._filtered(pattern, self.of(pattern.item))
            case pt.Disj():
                items = [self.of(item) for item in pattern.items]
                rate, bursts = sum(item.rate for item in items), sum(item.burst_rate for item in items)
                span = sum(item.detection * item.rate for item in items) / rate
                is_point = all(item.is_point for item in items)
                cost, made = sum(item.cost for item in items), sum(item.made for item in items)
                return Estimate(rate, cost, rate / bursts, bursts, span, made, is_point)
            case pt.Next():
                awaited = pattern.right.item if isinstance(pattern.right, pt.Unless) else pattern.right
                return self.next(pattern, self.of(pattern.left), self.of(awaited))
            case pt.Unless():
                item = self.of(pattern.item)
                return item if item.is_point else self._unless(pattern, item)
            case pt.Timer():
                item = self.of(pattern.item)
                return replace(item, cost=item.cost + FIRE * item.rate, is_point=False)
            case pt.Iteration():
                return self._iteration(pattern, self.of(pattern.item))
            case _:
                raise AssertionError(f"not a core operator: {type(pattern).__name__}")

    def _filtered(self, pattern: pt.Filtered, item: Estimate) -> Estimate:
        on_one = isinstance(pattern.item, pt.EventClass)
        keep = self._between(pattern.keep) if on_one else list(pattern.keep)
        share = self._passing(keep)
        cost = 0.0 if on_one else VISIT * item.rate * len(keep)
        return replace(item, rate=item.rate * share, cost=item.cost + cost, burst_rate=item.burst_rate * share)

    def _unless(self, pattern: pt.Unless, item: Estimate) -> Estimate:
        cancel = self.of(pattern.cancel)
        cost = item.cost + cancel.cost + LOOK_UP * (item.rate + cancel.rate)
        return replace(item, rate=item.rate / 2, burst_rate=item.burst_rate / 2, cost=cost)

    def next(self, node: pt.Next, left: Estimate, right: Estimate) -> Estimate:
        skip = self._between(node.skip)
        keys = [p for p in skip if _is_key(p)]
        same, fits = self._passing(keys), self._passing([p for p in skip if not _is_key(p)])
        wait = 1 / (right.burst_rate * same)
        if right.is_point:
            visits, cost = left.rate / fits, 0.0
        else:
            waiting = left.rate * same * (wait + right.detection)
            visits = right.rate * waiting / fits
            cost = PASS * right.burst_rate + right.rate * (QUEUE + ORDER * log2(right.burst_size + 1))
        cost += (
            INSERT * left.rate + VISIT * visits + (LOOK_UP * (left.rate + right.rate) if keys else TOUCH * right.rate)
        )
        rate = left.rate * self._passing(self._between(node.keep))
        if isinstance(node.right, pt.Unless):
            cancel = self.of(node.right.cancel)
            cost += cancel.cost + LOOK_UP * (rate + cancel.rate)
            rate /= 2
        bursts = min(left.burst_rate, right.burst_rate, rate)
        span = left.detection + min(wait, 1 / right.burst_rate if keys else wait) + right.detection
        made = left.made + right.made + rate
        return Estimate(rate, left.cost + right.cost + cost, rate / bursts, bursts, span, made)

    def _iteration(self, pattern: pt.Iteration, item: Estimate, above: Sequence[Expr] = ()) -> Estimate:
        going_on = min(self._passing(pattern.keep), _LONGEST)
        chains = item.rate / (1 - going_on)
        # If an aggregate is read of each chain, chains do not wait in groups.
        read = [node for p in (*pattern.skip, *pattern.keep, *above) for node in walk(p)]
        waiting = chains if any(isinstance(node, Aggregate) for node in read) else item.rate
        skip = self._passing([p for p in pattern.skip if not _is_key(p)])
        cost = item.cost + (CHAIN + INSERT) * waiting + VISIT * waiting / skip
        cost += 2 * LOOK_UP * item.rate if any(map(_is_key, pattern.skip)) else 0.0
        return Estimate(chains, cost, chains / item.burst_rate, item.burst_rate, item.detection, item.made)


def _is_key(predicate: Expr) -> bool:
    return (
        isinstance(predicate, Compare)
        and predicate.op == "="
        and all(any(isinstance(node, Attr) for node in walk(side)) for side in (predicate.left, predicate.right))
    )


def model_of(name: str, stats: Stats, has_durations: bool) -> Model:
    """The model of the option `model`."""
    return PaperModel(stats) if name == "paper" else CompiledModel(stats, has_durations)
