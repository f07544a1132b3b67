"""The expected cost and latency of plans (CED §4): events that sources send per tick, and the longest time from the
event that completes a detection to its detection.

A node is *active* at a time if an occurrence that ends then is of interest. The events of a stream are fetched where
the stream is active, each once. `CoverageModel`, the default, estimates the share of time that is covered. `PaperModel`
has the formulas of the paper: it counts an event once for each partial detection that asks for it.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from cepheid.acquire.models import Clustered, Complexes, Model, Poisson, combined
from cepheid.acquire.plans import Plan, bits, unit_node
from cepheid.acquire.tree import Kind, Node, Operator, Primitive, span
from cepheid.pattern import Threshold


@dataclass(frozen=True, slots=True)
class StreamModel:
    """The sources of one event type: latency, retention and sizes. Times are in ticks."""

    model: Model
    latency: float = 0.0
    """The longest time that a message takes, one way."""
    retention: float = math.inf
    """How long a source keeps its events."""
    bytes: float = 0.0
    """The size of an event."""
    distinct: Mapping[str, int] = field(default_factory=dict)
    """How many different values attributes have."""


class Activity(NamedTuple):
    """When a node is active: the share of time, and how often per tick it becomes active. (In the paper's model: the
    time for which it is monitored per tick, counted for each request, and the number of requests.)"""

    fraction: float
    entering: float


CONTINUOUS = Activity(1.0, 0.0)


class Estimate(NamedTuple):
    """The expected number of events per tick, and the latency bound in ticks."""

    cost: float
    latency: float


class CostModel(ABC):
    """Costs of plans over streams with known models."""

    name: str
    streams: Mapping[str, StreamModel]
    elsewhere: Mapping[str, float]
    """The share of each stream's events that other complex events fetch anyway (§5.1)."""

    @abstractmethod
    def first(self, operator: Operator, index: int, active: Activity) -> Activity:
        """When an operand of the first step is active."""

    @abstractmethod
    def later(self, operator: Operator, index: int, before: int, active: Activity) -> Activity:
        """When an operand is active after the units `before` (as bits)."""

    @abstractmethod
    def united(self, parts: list[Activity]) -> Activity:
        """When a stream is active that several operands read."""

    @abstractmethod
    def leaf_latency(self, stream: StreamModel, pulled: bool) -> float: ...

    def latency_after(self, operator: Operator, before: int, latency: float, step: int, own: float) -> float:
        """The latency of a plan with one more step. `own` is the latency of the step."""
        return latency + own

    def unit_activity(self, operator: Operator, unit: int, before: int, active: Activity) -> Activity:
        """When a unit is active if its step comes after the units `before`."""
        if before == 0:
            parts = [self.first(operator, index, active) for index in operator.units[unit]]
        else:
            parts = [self.later(operator, index, before, active) for index in operator.units[unit]]
            parts = [self.keyed(operator, unit, before, part) for part in parts]
        return parts[0] if len(parts) == 1 else self.united(parts)

    def keyed(self, operator: Operator, unit: int, before: int, active: Activity) -> Activity:
        """When a unit is active if its events are asked for by the keys of those before it."""
        return active

    def beside(self, elsewhere: Mapping[str, float]) -> CostModel:
        """The costs where other complex events fetch a share of each stream's events."""
        return replace(self, elsewhere=elsewhere)  # type: ignore[type-var]

    def leaf_cost(self, leaf: Primitive, active: Activity) -> float:
        """The events that are sent for this leaf alone: others fetch their share independently."""
        return self.streams[leaf.stream].model.rate * active.fraction * (1.0 - self.elsewhere.get(leaf.stream, 0.0))

    def estimate(self, node: Node, plan: Plan, active: Activity = CONTINUOUS, pulled: bool = False) -> Estimate:
        """The cost and latency of a plan."""
        if isinstance(node, Primitive):
            return Estimate(self.leaf_cost(node, active), self.leaf_latency(self.streams[node.stream], pulled))
        cost = latency = 0.0
        before = 0
        for step in plan.steps:
            own = 0.0
            for unit in step:
                inner = self.estimate(
                    unit_node(node, unit),
                    plan.below[unit],
                    self.unit_activity(node, unit, before, active),
                    pulled or before != 0,
                )
                cost, own = cost + inner.cost, max(own, inner.latency)
            mask = sum(1 << unit for unit in step)
            latency = self.latency_after(node, before, latency, mask, own)
            before |= mask
        return Estimate(cost, latency)

    def by_stream(self, node: Node, plan: Plan, active: Activity = CONTINUOUS) -> dict[str, float]:
        """The expected share of each stream's events that are fetched. A stream that several nodes read is fetched
        once: their activities are taken as independent."""
        missed: dict[str, float] = {}
        for leaf, activity in self._leaves(node, plan, active):
            missed[leaf.stream] = missed.get(leaf.stream, 1.0) * (1.0 - min(activity.fraction, 1.0))
        return {stream: 1.0 - share for stream, share in missed.items()}

    def _leaves(self, node: Node, plan: Plan, active: Activity) -> list[tuple[Primitive, Activity]]:
        if isinstance(node, Primitive):
            return [(node, active)]
        found: list[tuple[Primitive, Activity]] = []
        before = 0
        for step in plan.steps:
            for unit in step:
                activity = self.unit_activity(node, unit, before, active)
                found += self._leaves(unit_node(node, unit), plan.below[unit], activity)
            before |= sum(1 << unit for unit in step)
        return found


# --- the share of time that is covered --------------------------------------------------------------------------------


def extended(active: Activity, length: float) -> Activity:
    """An activity whose intervals are longer by `length`, on either side. The times without activity are taken as
    exponential; for one Poisson stream this is exact."""
    if active.fraction >= 1.0 or active.entering <= 0.0:
        return active
    left = math.exp(-length * active.entering / (1.0 - active.fraction))
    return Activity(1.0 - (1.0 - active.fraction) * left, active.entering * left)


def _excluded(operator: Operator, count: int) -> float:
    """The expected length of the interval in which a negated subevent must not end, given the number of the others:
    they are taken as evenly spread over the window."""
    window = float(operator.window or 0)
    if operator.kind is Kind.AND:
        return 2 * window - window * (count - 1) / (count + 1)
    return 2 * window / (count + 1)


def both(one: Activity, other: Activity) -> Activity:
    """Where two independent activities overlap."""
    entering = one.entering * other.fraction + other.entering * one.fraction
    return Activity(one.fraction * other.fraction, entering)


_ROUGH, _TERMS, _EULER = 18.4, 20, 12
_ORDERS = np.arange(_TERMS + _EULER + 1)
_WEIGHTS = np.array(
    [
        (0.5 if k == 0 else 1.0)
        * (-1) ** k
        * (1.0 if k <= _TERMS else sum(math.comb(_EULER, j) for j in range(k - _TERMS, _EULER + 1)) / 2**_EULER)
        for k in range(_TERMS + _EULER + 1)
    ]
) * math.exp(_ROUGH / 2)


_TINY = 1e-9
"""The least share of time that clusters take, or that is between them."""


def inversion_points(time: float) -> Complexes:
    """Where a Laplace transform is evaluated for its inverse at a time (Abate and Whitt's Euler method)."""
    return np.asarray((_ROUGH + 2j * math.pi * _ORDERS) / (2 * time), np.complex128)


def inverse(values: Complexes, time: float) -> float:
    return float(_WEIGHTS @ values.real) / time


@dataclass(slots=True)
class CoverageModel(CostModel):
    """Counts what is covered: each event at most once, however many partial detections ask for it."""

    streams: Mapping[str, StreamModel]
    name: str = "coverage"
    elsewhere: Mapping[str, float] = field(default_factory=dict)
    _presences: dict[str, Model] = field(default_factory=dict, repr=False)
    _coverages: dict[tuple[str, int], Activity] = field(default_factory=dict, repr=False)
    _chains: dict[str, tuple[Complexes, list[Complexes]]] = field(default_factory=dict, repr=False)

    def first(self, operator: Operator, index: int, active: Activity) -> Activity:
        return extended(active, (operator.window or 0) * (2 if operator.negated[index] else 1))

    def later(self, operator: Operator, index: int, before: int, active: Activity) -> Activity:
        reached = self.coverage(operator, before)
        return reached if active == CONTINUOUS else both(reached, self.first(operator, index, active))

    def keyed(self, operator: Operator, unit: int, before: int, active: Activity) -> Activity:
        """The share of time for each key. Partial detections of one key are as many fewer as there are keys, which are
        taken as equally frequent (CED §5.2)."""
        (first, *others), leaf = operator.units[unit], unit_node(operator, unit)
        known = {index for one in bits(before & ~operator.negated_units) for index in operator.units[one]}
        names = [name for own, other, name in operator.equal if own == first and other in known]
        if others or not names or not isinstance(leaf, Primitive) or active.fraction >= 1.0:
            return active
        keys = self.streams[leaf.stream].distinct.get(names[0], 1)
        return Activity(1.0 - (1.0 - active.fraction) ** (1.0 / keys), active.entering)

    def united(self, parts: list[Activity]) -> Activity:
        missed = math.prod(1.0 - part.fraction for part in parts)
        return Activity(1.0 - missed, sum(part.entering for part in parts))

    def leaf_latency(self, stream: StreamModel, pulled: bool) -> float:
        """A pulled event takes a request and an answer."""
        return stream.latency * (2 if pulled else 1)

    def coverage(self, operator: Operator, before: int) -> Activity:
        """The share of time that partial detections of some units ask for."""
        key = (operator.name, before)
        if key not in self._coverages:
            negated = before & operator.negated_units
            positive = before & ~negated
            found = self._and(operator, positive) if operator.kind is Kind.AND else self._seq(operator, positive)
            length = _excluded(operator, sum(len(operator.units[unit]) for unit in bits(positive)))
            for unit in bits(negated):
                absent = 1.0 - self.presence(unit_node(operator, unit)).present(length)
                found = Activity(found.fraction * absent, found.entering * absent)
            self._coverages[key] = found
        return self._coverages[key]

    def _members(self, operator: Operator, units: int) -> list[int]:
        return [index for unit in bits(units) for index in operator.units[unit]]

    def _and(self, operator: Operator, units: int) -> Activity:
        """All of the subevents within a window, and the time up to a window away from each of them."""
        window = operator.window or 0
        models = [self.presence(operator.items[index]) for index in self._members(operator, units)]
        if len(models) == 1:
            return Activity(models[0].present(2 * window), models[0].entering(2 * window))
        return extended(self._all_present(models, window), window)

    def _all_present(self, models: list[Model], window: float) -> Activity:
        """When each of some streams has an event in the last window."""
        together, entering = 1.0, 0.0
        for model in models:
            present = model.present(window)
            entering = entering * present + model.entering(window) * together
            together *= present
        return Activity(together, entering)

    def _together(self, operator: Operator, units: list[int]) -> Activity:
        """When there is an occurrence of the operator without negations in the last window."""
        mask = sum(1 << unit for unit in units)
        if operator.kind is Kind.SEQ:
            return self._seq(operator, mask)
        models = [self.presence(operator.items[index]) for index in self._members(operator, mask)]
        return self._all_present(models, float(operator.window or 0))

    def _seq(self, operator: Operator, units: int) -> Activity:
        """A chain of subevents in the window: the times until the next of each, backwards and forwards from a point in
        time, sum up to at most the window."""
        window = max(float(operator.window or 0), 1e-9)
        if operator.name not in self._chains:
            points = inversion_points(window)
            self._chains[operator.name] = (
                points,
                [self.presence(item).transform(points, window) for item in operator.items],
            )
        points, transforms = self._chains[operator.name]
        product = np.ones_like(points)
        for index in self._members(operator, units):
            product = product * transforms[index]
        fraction = min(max(inverse(product / points, window), 0.0), 1.0)
        return Activity(fraction, max(inverse(product, window), 0.0))

    def presence(self, node: Node) -> Model:
        """When occurrences of a node end."""
        if isinstance(node, Primitive):
            return self.streams[node.stream].model
        if node.name not in self._presences:
            self._presences[node.name] = self._completed(node)
        return self._presences[node.name]

    def _completed(self, operator: Operator) -> Model:
        """When occurrences of a complex event end: an `or` ends with any of its operands. Those of an `and` or `seq`
        come in clusters, while all of its operands are in a window."""
        rate = max(self._occurrences(operator), 1e-300)
        if operator.kind is Kind.OR:
            return combined([self.presence(item) for item in operator.items])
        if operator.kind is Kind.COUNT or not operator.window:
            return Poisson(rate)
        positive = [unit for unit in range(len(operator.units)) if not operator.negated_units >> unit & 1]
        if len(self._members(operator, sum(1 << unit for unit in positive))) == 1:
            return Poisson(rate)
        together = self._together(operator, positive)
        excluded = rate / max(self._occurrences(operator, False), 1e-300)
        fraction, starts = together.fraction * excluded, min(together.entering * excluded, rate)
        if not (_TINY < fraction < 1.0 - _TINY and starts > 0.0):
            return Poisson(rate)
        return Clustered(fraction, starts, rate)

    def _occurrences(self, operator: Operator, excludes: bool = True) -> float:
        """How many events per tick complete an occurrence, with or without what must not occur."""
        if operator.threshold is not None:
            return counted_rate(operator.threshold, self.presence(operator.items[0]).rate, float(operator.window or 0))
        positive = [
            self.presence(item) for item, negated in zip(operator.items, operator.negated, strict=True) if not negated
        ]
        if operator.kind is Kind.OR:
            return sum(model.rate for model in positive)
        window = float(operator.window) if operator.window is not None else math.inf
        absent = math.prod(
            1.0 - self.presence(item).present(window)
            for item, negated in zip(operator.items, operator.negated, strict=True)
            if negated and excludes
        )
        if math.isinf(window):
            return positive[-1].rate if operator.kind is Kind.SEQ else sum(model.rate for model in positive)
        if operator.kind is Kind.AND:
            present = [model.present(window) for model in positive]
            found = sum(m.rate * math.prod(present[:i] + present[i + 1 :]) for i, m in enumerate(positive))
            return found * absent
        if len(positive) == 1 or window <= 0:
            return positive[-1].rate * absent
        points = inversion_points(window)
        product = np.prod([model.transform(points, window) for model in positive[:-1]], axis=0)
        return positive[-1].rate * min(max(inverse(product / points, window), 0.0), 1.0) * absent


# --- the paper's formulas ---------------------------------------------------------------------------------------------


@dataclass(slots=True)
class PaperModel(CostModel):
    """The formulas as printed in §4: Poisson streams, an event counted for every request that asks for it, the same
    latency for push and pull. The unit of time is the tick."""

    streams: Mapping[str, StreamModel]
    name: str = "paper"
    elsewhere: Mapping[str, float] = field(default_factory=dict)

    def first(self, operator: Operator, index: int, active: Activity) -> Activity:
        return Activity(active.fraction + active.entering * (operator.window or 0), active.entering)

    def united(self, parts: list[Activity]) -> Activity:
        return max(parts)

    def leaf_latency(self, stream: StreamModel, pulled: bool) -> float:
        return stream.latency

    def latency_after(self, operator: Operator, before: int, latency: float, step: int, own: float) -> float:
        """Only the steps from that of the last subevent of a sequence on count (§4.1)."""
        if operator.kind is not Kind.SEQ or any(operator.negated):
            return latency + own
        last = next(1 << i for i, unit in enumerate(operator.units) if len(operator.items) - 1 in unit)
        if step & last:
            return own
        return latency + own if before & last else 0.0

    def later(self, operator: Operator, index: int, before: int, active: Activity) -> Activity:
        negated = before & operator.negated_units
        members = sorted(i for unit in bits(before & ~negated) for i in operator.units[unit])
        window = float(operator.window or 0)
        reach, length = (
            self._and(operator, members, window)
            if operator.kind is Kind.AND
            else self._seq(operator, members, index, window)
        )
        for unit in bits(negated):
            reach *= math.exp(-self._rate(unit_node(operator, unit)) * window)
        requests = reach * min(active.fraction, 1.0)
        return Activity(requests * length, requests)

    def _and(self, operator: Operator, members: list[int], window: float) -> tuple[float, float]:
        rates = [self._rate(operator.items[index]) for index in members]
        return _completions(rates, window), 2 * window

    def _seq(self, operator: Operator, members: list[int], index: int, window: float) -> tuple[float, float]:
        """The probability of the partial event at a point in time, and the expected time to monitor the operand."""
        rates = [self._rate(operator.items[i]) for i in members]
        now = -math.expm1(-rates[-1])
        if len(rates) == 1 or window <= 0:
            return now, window
        points = inversion_points(window)
        waits = [rate / (rate + points) for rate in rates[:-1]]
        product = np.prod(waits, axis=0)
        chance = min(max(inverse(product / points, window), 1e-12), 1.0)
        expected = [inverse(product / (rate + points) / points, window) / chance for rate in rates[:-1]]
        earlier = sum(1 for i in members if i < index)
        length = expected[earlier - 1] if 0 < earlier < len(members) else window - sum(expected)
        return now * chance, min(max(length, 0.0), window)

    def _rate(self, node: Node) -> float:
        """The occurrence probability of a node per tick, as a rate."""
        if isinstance(node, Primitive):
            return self.streams[node.stream].model.rate
        if node.threshold is not None:
            return max(counted_rate(node.threshold, self._rate(node.items[0]), float(node.window or 0)), 1e-300)
        positive = [item for item, negated in zip(node.items, node.negated, strict=True) if not negated]
        rates = [self._rate(item) for item in positive]
        window = float(span(node) or 0) if node.window is None else float(node.window)
        if node.kind is Kind.OR:
            return sum(rates)
        absent = math.prod(
            math.exp(-self._rate(item) * window)
            for item, negated in zip(node.items, node.negated, strict=True)
            if negated
        )
        if node.kind is Kind.AND:
            return max(_completions(rates, window) * absent, 1e-300)
        if len(rates) == 1 or window <= 0:
            return max(rates[-1] * absent, 1e-300)
        points = inversion_points(window)
        product = np.prod([rate / (rate + points) for rate in rates[:-1]], axis=0)
        chance = min(max(inverse(product / points, window), 0.0), 1.0)
        return max(-math.expm1(-rates[-1]) * chance * absent, 1e-300)


def counted_rate(threshold: Threshold, rate: float, window: float) -> float:
    """How many events per tick end a window whose count passes a threshold. Events are taken as independent, and nodes
    as equal. Nothing is known of values, so that each event may end a sum that passes."""
    if threshold.fn == "sum" or isinstance(threshold.amount, str):
        return rate
    nodes = threshold.nodes
    if nodes is not None and nodes > 1:
        share = -math.expm1(-rate * window / nodes)
        mean, variance = 1 + (nodes - 1) * share, (nodes - 1) * share * (1 - share)
    else:
        mean, variance = 1 + rate * window, rate * window
    spread = math.sqrt(max(2 * variance, 1e-12))
    below = 0.5 * math.erfc((mean - math.floor(threshold.limit) - 0.5) / spread)
    equal = 0.5 * math.erfc((mean - math.floor(threshold.limit) + 0.5) / spread)
    passing = {">": 1 - below, "<=": below, ">=": 1 - equal, "<": equal, "=": below - equal, "!=": 1 - below + equal}
    if threshold.limit != math.floor(threshold.limit):
        passing |= {">=": 1 - below, "<": below, "=": 0.0, "!=": 1.0}
    return rate * min(max(passing[threshold.op], 0.0), 1.0)


def _completions(rates: list[float], window: float) -> float:
    """The probability that an event completes a conjunction at a point in time (§4.1, the sum (i))."""
    return sum(
        -math.expm1(-rate) * math.prod(-math.expm1(-other * window) for j, other in enumerate(rates) if j != i)
        for i, rate in enumerate(rates)
    )


MODELS: Mapping[str, Callable[[Mapping[str, StreamModel]], CostModel]] = {
    "coverage": CoverageModel,
    "paper": PaperModel,
}
