"""Models of when the events of a type occur (CED §4): Poisson, Bernoulli, a histogram of gaps, and a Markov chain for
bursts. A model answers two questions, from which costs follow: how many events there are, and how likely an interval of
some length has at least one."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Complexes = npt.NDArray[np.complex128]

_POINTS = 1024
_HORIZON = 2.5
"""The transform of a waiting time is integrated over this many windows, at this many points."""


class Model(ABC):
    """The occurrences of one event type over time, in ticks."""

    @property
    @abstractmethod
    def rate(self) -> float:
        """Events per tick."""

    @abstractmethod
    def present(self, length: float) -> float:
        """The probability that an interval of this length has an event."""

    @abstractmethod
    def entering(self, length: float) -> float:
        """The derivative of `present`: how often per tick an event comes after a gap of more than this length."""

    def transform(self, points: Complexes, window: float) -> Complexes:
        """The Laplace transform of the time until the next event, at these points."""
        times = np.linspace(0.0, _HORIZON * window, _POINTS)
        present = np.array([self.present(time) for time in times])
        kernel = np.exp(-np.outer(points, times))
        found: Complexes = points * np.trapezoid(kernel * present, times, axis=1)
        return found


@dataclass(frozen=True)
class Poisson(Model):
    """Independent events with a constant rate."""

    per_tick: float

    @property
    def rate(self) -> float:
        return self.per_tick

    def present(self, length: float) -> float:
        return -math.expm1(-self.rate * length)

    def entering(self, length: float) -> float:
        return self.rate * math.exp(-self.rate * length)

    def transform(self, points: Complexes, window: float) -> Complexes:
        found: Complexes = self.rate / (self.rate + points)
        return found


@dataclass(frozen=True)
class Histogram(Model):
    """The distribution of the gaps between events: the share of gaps that are longer than each bound. Of any stationary
    process, `present` grows with the rate of events times the share of gaps that are longer."""

    bounds: tuple[float, ...]
    """Ascending, the first is 0, the last the longest gap."""
    shorter: tuple[float, ...]
    """The mean of the gaps, where longer ones count as each bound: the integral of the share that is longer. It is that
    of the sample, so that the rate is, too, however few gaps are in the tail."""

    @property
    def rate(self) -> float:
        return 1.0 / self.shorter[-1]

    def present(self, length: float) -> float:
        return float(np.interp(length, self.bounds, self.shorter)) * self.rate

    def entering(self, length: float) -> float:
        i = bisect_right(self.bounds, length) - 1
        if i >= len(self.bounds) - 1:
            return 0.0
        return self.rate * (self.shorter[i + 1] - self.shorter[i]) / (self.bounds[i + 1] - self.bounds[i])


@dataclass(frozen=True)
class MarkovChain(Model):
    """At each step of time an event, or none, with a probability that depends on the last steps (CED §4.2). Of order 0
    it is Bernoulli's model. Events are anywhere in their steps: half a step has one half as often. So those at equal
    gaps, whose probability is 1, cover their windows and not all the time."""

    step: float
    probabilities: tuple[float, ...]
    """For each state of the last steps (a number whose lowest bit is the last step): the probability of an event."""

    @property
    def order(self) -> int:
        return len(self.probabilities).bit_length() - 1

    @cached_property
    def _stationary(self) -> Floats:
        states = len(self.probabilities)
        matrix = np.zeros((states, states))
        for state, probability in enumerate(self.probabilities):
            following = (state << 1) & (states - 1)
            matrix[state, following | (1 if states > 1 else 0)] += probability
            matrix[state, following] += 1.0 - probability
        system = np.vstack([matrix.T - np.eye(states), np.ones(states)])
        solution: Floats = np.linalg.lstsq(system, np.append(np.zeros(states), 1.0), rcond=None)[0]
        return solution

    @property
    def rate(self) -> float:
        return float(self._stationary @ np.array(self.probabilities)) / self.step

    @cached_property
    def _absent(self) -> tuple[float, ...]:
        """The probability of no event in 0, 1, ... steps, until the last steps are known to have none."""
        states = len(self.probabilities)
        weights, found = self._stationary, [1.0]
        for _ in range(self.order + 1):
            following = np.zeros(states)
            for state in range(states):
                following[(state << 1) & (states - 1)] += weights[state] * (1.0 - self.probabilities[state])
            weights = following
            found.append(float(weights.sum()))
        return tuple(found)

    def _without(self, steps: int) -> float:
        """The probability of no event in this many steps."""
        last = len(self._absent) - 1
        if steps <= last:
            return self._absent[steps]
        return self._absent[last] * (1.0 - self.probabilities[0]) ** (steps - last)

    def present(self, length: float) -> float:
        steps = length / self.step
        whole = math.floor(steps)
        low, high = self._without(whole), self._without(whole + 1)
        return 1.0 - (low + (steps - whole) * (high - low))

    def entering(self, length: float) -> float:
        whole = math.floor(length / self.step)
        return (self._without(whole) - self._without(whole + 1)) / self.step


@dataclass(frozen=True)
class Clustered(Model):
    """Occurrences of a complex event, which come in clusters: each further event while the others are in the window
    completes another. Clusters begin with an occurrence; their lengths and the times between them are taken as
    exponential."""

    fraction: float
    """The share of time in clusters, below 1."""
    starts: float
    """Clusters per tick."""
    per_tick: float
    """Occurrences per tick, the first of each cluster among them."""

    @property
    def rate(self) -> float:
        return self.per_tick

    @cached_property
    def _rates(self) -> tuple[float, float, float]:
        """How often a cluster begins outside of one, ends, and has a further occurrence or ends."""
        ends = self.starts / self.fraction
        return self.starts / (1.0 - self.fraction), ends, max(self.per_tick / self.fraction, ends)

    def _absent(self, length: float) -> tuple[float, float]:
        """The probability that there is no occurrence, and its slope."""
        begins, ends, leaving = self._rates
        outside, inside = math.exp(-begins * length), math.exp(-leaving * length)
        apart = leaving - begins
        if abs(apart) * length < 1e-6:
            ended, slope = ends * length * outside, ends * outside * (1.0 - begins * length)
        else:
            ended = ends * (outside - inside) / apart
            slope = ends * (leaving * inside - begins * outside) / apart
        free = 1.0 - self.fraction
        return (
            free * outside + self.fraction * (inside + ended),
            -free * begins * outside + self.fraction * (slope - leaving * inside),
        )

    def present(self, length: float) -> float:
        return 1.0 - self._absent(length)[0]

    def entering(self, length: float) -> float:
        return -self._absent(length)[1]

    def transform(self, points: Complexes, window: float) -> Complexes:
        begins, ends, leaving = self._rates
        inside = (1.0 + ends / (points + begins)) / (points + leaving)
        found: Complexes = 1.0 - points * ((1.0 - self.fraction) / (points + begins) + self.fraction * inside)
        return found


# --- fitting ----------------------------------------------------------------------------------------------------------

MAX_ORDER = 3
_BINS = (4, 8, 16, 32, 64)
_MAX_STEPS = 1_000_000
_FEW = 20
"""Fewer events than this do not show more than a rate."""


@dataclass(frozen=True, slots=True)
class Fit:
    """A model and how well it describes a sample: the Bayesian information criterion, less is better."""

    model: Model
    criterion: float = field(compare=False)


def fitted(times: Sequence[int] | npt.NDArray[np.int64], begin: int, end: int) -> Model:
    """The model that describes the events in [begin, end] best."""
    return fits(times, begin, end)[0].model


def fits(times: Sequence[int] | npt.NDArray[np.int64], begin: int, end: int) -> list[Fit]:
    """All models of a sample of event times, the best first."""
    ordered = np.sort(np.asarray(times, np.int64))
    length = max(end - begin + 1, 1)
    silence = np.array([gap for gap in (ordered[0] - begin, end - ordered[-1]) if gap > 0] if len(ordered) else [])
    gaps = np.concatenate([np.diff(ordered), silence])
    rate = max(len(ordered), 0.5) / length
    if len(ordered) < _FEW:
        return [Fit(Poisson(rate), 0.0)]
    step = max(float(np.quantile(gaps, 0.02)), length / _MAX_STEPS, 1.0)
    steps = max(math.ceil(length / step), 1)
    counts = np.bincount(((ordered - begin) / step).astype(np.int64).clip(0, steps - 1), minlength=steps)
    histograms = [_histogram(gaps, step, bins) for bins in _BINS]
    # Few gaps do not show many bins. They show that gaps are not those of another model, and then their mean is known.
    histogram = replace(histograms[-1], criterion=min(fit.criterion for fit in histograms))
    found = [_poisson(rate, counts, step), histogram]
    if counts.max() <= 1:
        found += [_chain(counts, step, order) for order in range(MAX_ORDER + 1)]
    return sorted(found, key=lambda fit: fit.criterion)


def _criterion(likelihood: float, parameters: int, size: int) -> float:
    return parameters * math.log(max(size, 2)) - 2 * likelihood


def _poisson(rate: float, counts: npt.NDArray[np.int64], step: float) -> Fit:
    mean = rate * step
    factorials = np.cumsum(np.log(np.maximum(np.arange(counts.max() + 1), 1)))
    likelihood = float(counts.sum() * math.log(mean) - mean * len(counts) - factorials[counts].sum())
    return Fit(Poisson(rate), _criterion(likelihood, 1, len(counts)))


def _histogram(gaps: npt.NDArray[np.int64], step: float, bins: int) -> Fit:
    ordered = np.sort(gaps)
    shortest = ordered[0] * (1 - 1e-6)  # no gap is shorter: events may come at regular times
    # A bin has about as many gaps as any other, or as much time: few long gaps take most of the time between bursts.
    ranks = np.linspace(0, 1, bins // 2 + 1)
    long_ones = ordered[np.searchsorted(np.cumsum(ordered), ranks * ordered.sum()).clip(0, len(ordered) - 1)]
    bounds = np.unique(np.concatenate([[0.0, shortest], np.quantile(gaps, ranks), long_ones]))
    longer = 1.0 - np.searchsorted(ordered, bounds, "right") / len(gaps)
    longer[0], longer[-1] = 1.0, 0.0
    shares = -np.diff(longer)
    widths = np.maximum(np.diff(bounds) / step, 1.0)
    filled = shares > 0
    likelihood = float(len(gaps) * (shares[filled] * np.log(shares[filled] / widths[filled])).sum())
    sums = np.concatenate([[0.0], np.cumsum(ordered)])
    below = np.searchsorted(ordered, bounds, "right")
    means = (sums[below] + bounds * (len(ordered) - below)) / len(ordered)
    model = Histogram(tuple(bounds.tolist()), tuple(means.tolist()))
    return Fit(model, _criterion(likelihood, len(bounds) - 2, len(gaps)))


def _chain(counts: npt.NDArray[np.int64], step: float, order: int) -> Fit:
    """A Markov chain; that of order 0 is Bernoulli's."""
    states = np.zeros(len(counts) - order, np.int64)
    for back in range(1, order + 1):
        states |= counts[order - back : len(counts) - back] << (back - 1)
    following = counts[order:]
    seen = np.bincount(states, minlength=1 << order)
    events = np.bincount(states, weights=following, minlength=1 << order)
    shares = (events + 0.5 * (seen == 0)) / np.maximum(seen, 1)
    inner = np.clip(shares, 1e-12, 1 - 1e-12)
    likelihood = float((events * np.log(inner) + (seen - events) * np.log1p(-inner)).sum())
    return Fit(MarkovChain(step, tuple(shares.tolist())), _criterion(likelihood, 1 << order, len(counts)))


@dataclass(frozen=True)
class Combined(Model):
    """The events of several independent sources."""

    models: tuple[Model, ...]

    @property
    def rate(self) -> float:
        return sum(model.rate for model in self.models)

    def present(self, length: float) -> float:
        return 1.0 - math.prod(1.0 - model.present(length) for model in self.models)

    def entering(self, length: float) -> float:
        absent = [1.0 - model.present(length) for model in self.models]
        return sum(
            model.entering(length) * math.prod(absent[:i] + absent[i + 1 :]) for i, model in enumerate(self.models)
        )


def combined(models: Sequence[Model]) -> Model:
    """The model of several independent sources (CED §5.2). Poisson streams are one Poisson stream."""
    if len(models) == 1:
        return models[0]
    if all(isinstance(model, Poisson) for model in models):
        return Poisson(sum(model.rate for model in models))
    return Combined(tuple(models))


# --- as JSON ----------------------------------------------------------------------------------------------------------


def to_data(model: Model) -> dict[str, Any]:
    match model:
        case Poisson():
            return {"model": "poisson", "rate": model.per_tick}
        case Histogram():
            return {"model": "histogram", "bounds": model.bounds, "shorter": model.shorter}
        case MarkovChain():
            return {"model": "markov", "step": model.step, "probabilities": model.probabilities}
        case _:
            return {"model": "poisson", "rate": model.rate}


def from_data(data: Mapping[str, Any]) -> Model:
    """Raises KeyError, TypeError or ValueError if the data is no model."""
    match data["model"]:
        case "poisson":
            return Poisson(float(data["rate"]))
        case "bernoulli":
            return MarkovChain(float(data["step"]), (float(data["probability"]),))
        case "histogram":
            return Histogram(tuple(map(float, data["bounds"])), tuple(map(float, data["shorter"])))
        case "markov":
            return MarkovChain(float(data["step"]), tuple(map(float, data["probabilities"])))
        case other:
            raise ValueError(f"no model `{other}`")


def description(model: Model) -> str:
    """The model in a few words."""
    match model:
        case Poisson():
            return "Poisson"
        case Histogram():
            return "histogram of gaps"
        case Clustered():
            return "clusters"
        case MarkovChain(order=0):
            return "Bernoulli"
        case MarkovChain():
            return f"Markov chain of order {model.order}"
        case _:
            return "several sources"
