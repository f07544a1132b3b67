"""Models of occurrences, and the share of time that plans cover, against simulated streams."""

import numpy as np
import pytest
from acquire.planning import flat

from cepheid.acquire.cost import CoverageModel, PaperModel, StreamModel
from cepheid.acquire.intervals import IntervalSet
from cepheid.acquire.models import Clustered, Histogram, MarkovChain, Model, Poisson, description, fits, fitted
from cepheid.acquire.plans import LEAF, Plan, naive
from cepheid.acquire.tree import Kind, Operator

MODELS = [
    Poisson(0.02),
    MarkovChain(1.0, (0.02,)),
    MarkovChain(40.0, (0.9,)),
    Histogram((0.0, 10.0, 30.0, 200.0), (0.0, 7.0, 13.0, 30.0)),
    MarkovChain(1.0, (0.005, 0.7)),
    MarkovChain(2.0, (0.01, 0.3, 0.2, 0.8)),
    Clustered(0.1, 0.004, 0.05),
    Clustered(0.5, 0.01, 0.01),
]


@pytest.mark.parametrize("model", MODELS)
def test_entering_is_the_slope_of_present(model: Model) -> None:
    assert model.present(0) == 0
    assert model.present(1e6) == pytest.approx(1, abs=1e-3)
    lengths = np.arange(0, 120.0, 0.01)
    slope = np.array([model.entering(x) for x in lengths])
    assert slope.sum() * 0.01 == pytest.approx(model.present(120.0), rel=0.03)
    assert model.entering(0) <= model.rate * 1.02


@pytest.mark.parametrize("model", MODELS)
def test_the_transform_is_that_of_the_waiting_time(model: Model) -> None:
    at = np.array([0.15 + 0j, 0.4 + 0.3j])
    times = np.arange(0, 400, 0.02)
    slope = np.array([model.entering(x) for x in times])
    expected = [(np.exp(-s * times) * slope).sum() * 0.02 for s in at]
    assert model.transform(at, 100.0) == pytest.approx(expected, rel=0.03, abs=2e-3)


def bursty(rng: np.random.Generator, length: int) -> list[int]:
    state, times = 0, []
    for time in range(length):
        state = int(rng.random() < (0.004, 0.75)[state])
        if state:
            times.append(time * 5)
    return times


def test_the_likelihood_chooses_the_model() -> None:
    rng = np.random.default_rng(1)
    steady = np.sort(rng.integers(0, 1_000_000, 2_000))
    assert description(fitted(steady, 0, 1_000_000)) in ("Poisson", "Bernoulli")
    assert fitted(steady, 0, 1_000_000).rate == pytest.approx(0.002, rel=0.05)
    times = bursty(rng, 100_000)
    chosen = fits(times, 0, 500_000)
    assert isinstance(chosen[0].model, MarkovChain)
    assert chosen[0].model.rate == pytest.approx(len(times) / 500_000, rel=0.05)
    # Bursts cover much less than independent events of the same rate.
    assert chosen[0].model.present(100) < 0.6 * Poisson(len(times) / 500_000).present(100)


def combined(streams: list[np.ndarray], kind: Kind, window: int) -> IntervalSet:
    """Where the partial detections of all but the last of the subevents ask for the last, one by one."""
    found: list[tuple[int, int]] = []

    def extend(index: int, first: int, last: int) -> None:
        if index == len(streams):
            found.append((last - window, first + window) if kind is Kind.AND else (last + 1, first + window))
            return
        times = streams[index]
        low, high = (last - window, first + window) if kind is Kind.AND else (last + 1, first + window)
        for time in times[np.searchsorted(times, low) : np.searchsorted(times, high, "right")].tolist():
            extend(index + 1, min(first, time), max(last, time))

    for time in streams[0].tolist():
        extend(1, time, time)
    return IntervalSet.of(found)


@pytest.mark.parametrize("kind", [Kind.AND, Kind.SEQ])
@pytest.mark.parametrize("load", [0.02, 0.3, 1.0])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_coverage_is_that_of_simulated_streams(kind: Kind, load: float, count: int) -> None:
    rng = np.random.default_rng(7)
    window, length = 1_000, int(4_000_000 / max(load, 0.1) / (4 if count == 3 and load > 0.5 else 1))
    rates = [load / window * share for share in (1.0, 0.5, 2.0)[:count]]
    streams = [np.sort(rng.integers(0, length, rng.poisson(rate * length))) for rate in rates]
    covered = combined(streams, kind, window).length / length
    models = {f"E{i}": StreamModel(Poisson(rate)) for i, rate in enumerate([*rates, 1.0])}
    share = CoverageModel(models).coverage(flat(count + 1, kind, window=window), (1 << count) - 1).fraction
    assert share == pytest.approx(covered, rel=0.12, abs=0.001)


def test_bursts_cover_what_the_chain_expects() -> None:
    rng = np.random.default_rng(2)
    times = bursty(rng, 200_000)
    covered = combined([np.array(times)], Kind.AND, 200).length / 1_000_000
    models = {"E0": StreamModel(fitted(times, 0, 1_000_000)), "E1": StreamModel(Poisson(1.0))}
    share = CoverageModel(models).coverage(flat(2, Kind.AND, window=200), 1).fraction
    assert share == pytest.approx(covered, rel=0.1)


def test_the_papers_example_has_the_papers_cost() -> None:
    """The cost of e1 → e2 → e3 in §4."""
    rates, window = (0.01, 0.02, 0.5), 4
    operator: Operator = flat(3, Kind.AND, window=window)
    streams = {f"E{i}": StreamModel(Poisson(rate), latency=3) for i, rate in enumerate(rates)}
    one, two, three = rates
    now = [1 - np.exp(-rate) for rate in rates]
    seen = [1 - np.exp(-rate * window) for rate in rates]
    expected = one + now[0] * 2 * window * two + (now[0] * seen[1] + now[1] * seen[0]) * 2 * window * three
    steps = Plan(((0,), (1,), (2,)), (LEAF,) * 3)
    assert PaperModel(streams).estimate(operator, steps) == pytest.approx((expected, 9))
    assert PaperModel(streams).estimate(operator, naive(operator)) == pytest.approx((sum(rates), 3))
    last_first = Plan(((2,), (0,), (1,)), (LEAF,) * 3)
    assert PaperModel(streams).estimate(flat(3, Kind.SEQ), last_first).latency == 9
    assert PaperModel(streams).estimate(flat(3, Kind.SEQ), steps).latency == 3


def test_the_default_model_never_expects_more_than_everything() -> None:
    operator = flat(2, Kind.AND, window=100)
    streams = {"E0": StreamModel(Poisson(0.01)), "E1": StreamModel(Poisson(0.01))}
    steps = Plan(((0,), (1,)), (LEAF, LEAF))
    assert CoverageModel(streams).estimate(operator, steps).cost < 0.02
    assert CoverageModel(streams).estimate(operator, steps).cost == pytest.approx(0.01 + 0.01 * (1 - np.exp(-2)))
    assert PaperModel(streams).estimate(operator, steps).cost > 0.02


@pytest.mark.parametrize("rate", [0.01, 0.003, 0.0003])
def test_the_model_of_bursts_has_their_rate_and_their_presence(rate: float) -> None:
    """Bursts that overlap: most gaps are short, and few long ones take most of the time."""
    rng, length = np.random.default_rng(7), 400_000
    begins = rng.integers(0, length, rng.poisson(rate / 10 * length))
    times = np.sort((begins[:, None] + 20 * np.arange(10)).ravel())
    model = fitted(times, 0, length)
    assert model.rate == pytest.approx(len(times) / length, rel=0.02)
    for window in (50, 100, 400, 1_000):
        present = np.minimum(np.diff(times), window).sum() / length
        assert model.present(window) == pytest.approx(present, rel=0.05)


@pytest.mark.parametrize("count", [120, 160])
def test_few_events_that_come_on_and_off_are_no_poisson_stream(count: int) -> None:
    """A fifth of the time has all events: on for 2,000 ticks, off for 8,000. So few gaps do not show 64 bins, but they
    are clearly not those of independent events."""
    rng, length = np.random.default_rng(count), 1_000_000
    times: list[float] = []
    at = 0.0
    while at < length:
        on = rng.exponential(2_000)
        times += (at + on * rng.random(rng.poisson(5 * count / length * on))).tolist()
        at += on + rng.exponential(8_000)
    ordered = np.unique(np.array(times, np.int64))
    model = fitted(ordered, 0, length)
    for window in (0.5, 1.5, 3.0):
        mean = window * length / count
        gaps = np.diff(np.concatenate([[0], ordered, [length]]))
        assert model.present(mean) == pytest.approx(np.minimum(gaps, mean).sum() / length, rel=0.12)


@pytest.mark.parametrize("spread", [0, 1, 3, 10, 20, 60])
@pytest.mark.parametrize("count", [40, 400])
def test_events_at_nearly_equal_gaps_cover_their_windows(spread: int, count: int) -> None:
    """Heartbeats: however well their gaps are known, a short window after each covers little."""
    rng = np.random.default_rng(spread)
    times = 250 * np.arange(count) + rng.integers(-spread, spread + 1, count)
    first, last = int(times[0]), int(times[-1])
    model = fitted(times, first, last)
    for window in (2, 10, 18, 100, 200, 300, 600):
        present = np.minimum(np.diff(times), window).sum() / (last - first)
        assert model.present(window) == pytest.approx(present, rel=0.13, abs=0.002), window
    covered = combined([times], Kind.AND, 9).length / (last - first)
    models = {"E0": StreamModel(model), "E1": StreamModel(Poisson(1.0))}
    assert CoverageModel(models).coverage(flat(2, Kind.AND, window=9), 1).fraction == pytest.approx(covered, rel=0.1)
