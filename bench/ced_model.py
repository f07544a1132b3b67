"""How well plans of plan-based CED are modelled and searched for.

`ced-model`: the events that plans of one to five steps fetch, measured in memory, beside those that the default model
expects of models that are fitted to the streams: Poisson, bursty (the first type comes in bursts of ten), on-off (it
comes in a fifth of the time), and regional (three sources for each type, with rates of 1, 2 and 4). Each point is
repeated with other streams until the standard error of the mean is below 2 %: there are few bursts in one. Matches are
not looked for. `ced-search`: the time to find a plan."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from bench.ced_figures import TOLERANCE
from bench.measure import Outcome, Sample, measure
from bench.report import Benchmark, Column, Report
from cepheid.acquire.cost import CoverageModel, StreamModel
from cepheid.acquire.models import Poisson
from cepheid.acquire.search import Search, SearchOptions
from cepheid.acquire.tree import Kind, Operator, Primitive
from cepheid.detection.acquisition import Passing
from cepheid.detection.api import detection
from cepheid.detection.run import Running
from cepheid.io.inputs import DEFAULT_COLUMNS

_LENGTH = 2_000_000
_RATES = {"A": 0.4, "B": 0.7, "C": 1.0, "D": 1.3, "E": 1.6}
"""Relative rates of the types."""
COUNTS = {0.01: 1_500, 0.1: 1_500, 0.3: 1_500, 1.0: 375, 3.0: 375, 10.0: 375}
"""The events of C in a stream, by the rate of C times the window: fewer where many are near each other."""
Times = np.ndarray
Drawn = Callable[[np.random.Generator, str, float], list[Times]]


def _poisson(rng: np.random.Generator, kind: str, rate: float) -> list[Times]:
    return [np.sort(rng.integers(0, _LENGTH, max(rng.poisson(rate * _LENGTH), 1)))]


def _bursty(rng: np.random.Generator, kind: str, rate: float) -> list[Times]:
    if kind != "A":
        return _poisson(rng, kind, rate)
    begins = rng.integers(0, _LENGTH, max(rng.poisson(rate * _LENGTH / 10), 1))
    return [np.unique((begins[:, None] + 20 * np.arange(10)).ravel())]


def _on_off(rng: np.random.Generator, kind: str, rate: float) -> list[Times]:
    if kind != "A":
        return _poisson(rng, kind, rate)
    found = [np.zeros(1, np.int64)]
    begin = 0.0
    while begin < _LENGTH:
        on = rng.exponential(0.002 * _LENGTH)
        found.append((begin + on * rng.random(rng.poisson(5 * rate * on))).astype(np.int64))
        begin += on + rng.exponential(0.008 * _LENGTH)
    times = np.unique(np.concatenate(found))
    return [times[times < _LENGTH]]


def _regional(rng: np.random.Generator, kind: str, rate: float) -> list[Times]:
    return [_poisson(rng, kind, rate * share / 7)[0] for share in (1, 2, 4)]


DATA: Mapping[str, Drawn] = {"poisson": _poisson, "bursty": _bursty, "on-off": _on_off, "regional": _regional}


def _plan(names: Sequence[str], steps: int) -> str:
    """`A → B → C, D, E` for three steps."""
    return " → ".join([*names[: steps - 1], ", ".join(names[steps - 1 :])])


class Observed(NamedTuple):
    """The events of streams, and the shares that a plan fetched and that the model expected."""

    events: int
    share: float
    expected: float


def observed(data: str, steps: int, load: float, count: int, seed: int) -> Observed:
    """`load` is the rate of C times the window. The models are fitted to the streams."""
    rng = np.random.default_rng([round(1_000 * load), steps, seed])
    unit = count / _LENGTH
    tables: dict[str, pa.Table] = {}
    for kind in _RATES:
        for region, times in enumerate(DATA[data](rng, kind, _RATES[kind] * unit)):
            table = pa.table({"type": [kind] * len(times), "ts": times})
            known = tables.get(f"region{region}")
            tables[f"region{region}"] = table if known is None else pa.concat_tables([known, table])
    total = sum(table.num_rows for table in tables.values())
    query = f"complex Q event and({', '.join(_RATES)}; {max(int(load / unit), 1)})"
    found = detection(query, tables, DEFAULT_COLUMNS, plan=_plan(list(_RATES), steps), adapt_every=None)
    running = Running(found)
    running.acquisition.passing = Passing()  # in place of matches, which would take most of the time
    for _ in running.matches():
        raise AssertionError("events pass in place of matches")
    rate = sum(stream.model.rate for stream in found.only.costs.streams.values())
    return Observed(total, running.counts.events / total, found.only.choice.chosen.cost / rate)


def sampled(data: str, steps: int, load: float, count: int, streams: tuple[int, int]) -> Sample:
    """The mean over at least and at most so many streams, until it is settled."""
    least, most = streams
    runs: list[Observed] = []
    while len(runs) < least or (len(runs) < most and not _is_settled(runs)):
        runs.append(observed(data, steps, load, count, len(runs)))
    share, expected = (statistics.fmean(each) for each in zip(*((r.share, r.expected) for r in runs), strict=True))
    counted = {"share": share, "model": expected, "ratio": share / expected, "streams": float(len(runs))}
    events = sum(run.events for run in runs)
    return Sample(f"{load:g}, {steps} steps", data, events, Outcome(0, 0, counted), 1.0, 1.0, f"{data} {steps}")


def _is_settled(runs: Sequence[Observed]) -> bool:
    ratios = [run.share / run.expected for run in runs]
    return statistics.stdev(ratios) / math.sqrt(len(ratios)) <= TOLERANCE * statistics.fmean(ratios)


def model(quick: bool) -> Report:
    loads, steps = ({1.0: 50}, (1, 3)) if quick else (COUNTS, (1, 2, 3, 4, 5))
    samples = [
        sampled(data, number, load, count, (1, 1) if quick or number == 1 else (5, 24))
        for load, count in loads.items()
        for number in steps
        for data in DATA
    ]
    worst = max(samples, key=lambda sample: abs(math.log(sample.outcome.counted["ratio"])))
    return Report(
        "ced-model",
        "and of five: events fetched, measured in memory and modelled",
        "rate x window, steps",
        tuple(samples),
        "the target is 15 %. Matches are not looked for. The largest difference is "
        f"{worst.outcome.counted['ratio'] - 1:+.1%}, {worst.variant} at {worst.point}.",
        columns=(
            *(
                Column(title, lambda sample, name=name: f"{sample.outcome.counted[name]:.3f}")  # type: ignore[misc]
                for title, name in (
                    ("fetched (share)", "share"),
                    ("model (share)", "model"),
                    ("measured / model", "ratio"),
                )
            ),
            Column("streams", lambda sample: f"{sample.outcome.counted['streams']:.0f}"),
        ),
        value=lambda sample: sample.outcome.counted["ratio"],
        value_title="measured / model",
        log_y=False,
    )


# --- the time of a search ---------------------------------------------------------------------------------------------


def _operator(count: int, kind: Kind, negated: int) -> Operator:
    items = tuple(Primitive(f"e{i}", f"E{i}") for i in range(count))
    return Operator("q", kind, items, 100, tuple(i >= count - negated for i in range(count)))


def _searched(operator: Operator, algorithm: str) -> Outcome:
    rng = np.random.default_rng(1)
    rates = 10 ** rng.uniform(-4, -1, len(operator.items))
    costs = CoverageModel({f"E{i}": StreamModel(Poisson(float(rate)), 1.0) for i, rate in enumerate(rates)})
    return Outcome(len(Search(costs, SearchOptions(algorithm)).plans(operator)))


def searching(quick: bool) -> Report:
    shapes = (("and", Kind.AND, 0), ("seq", Kind.SEQ, 0), ("seq, two negated", Kind.SEQ, 2))
    sizes = (("dp", 4),) if quick else (("dp", 5), ("dp", 8), ("heuristic", 8), ("heuristic", 30))
    samples = [
        measure(
            f"{algorithm}, {count} subevents",
            name,
            1,
            partial(_searched, _operator(count, kind, negated), algorithm),
            question=name,
        )
        for algorithm, count in sizes
        for name, kind, negated in shapes
    ]
    return Report(
        "ced-search",
        "CED: search time for a plan",
        "algorithm",
        tuple(samples),
        "the targets are 1 s for dynamic programming over 8 subevents, and 100 ms for heuristics over 30.",
        columns=(Column("milliseconds (CPU)", lambda sample: f"{1_000 * sample.cpu:.2f}"),),
        value=lambda sample: 1_000 * sample.cpu,
        value_title="milliseconds (CPU)",
    )


BENCHMARKS = (
    Benchmark("ced-model", "target: events fetched, measured and modelled", model),
    Benchmark("ced-search", "target: search time for a plan of acquisition", searching),
)
