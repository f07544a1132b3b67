"""The experiments of plan-based CED (§6.2, §6.3) in memory: the share of events that plans fetch, and their model.

Event times are Poisson with Zipf's rates; one unit of time has 1,000 ticks. Each point is repeated with other streams
until the standard error of the mean is below 2 %. All variants of a point see the same streams, and must find the same
matches. The paper's figures are images, so that there are no numbers to compare with."""

from __future__ import annotations

import math
import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np
import pyarrow as pa

from bench.measure import Outcome, Sample
from bench.report import Benchmark, Column, Report
from cepheid.acquire.choice import choose
from cepheid.acquire.cost import MODELS, CostModel, StreamModel
from cepheid.acquire.models import Poisson
from cepheid.acquire.plans import Plan
from cepheid.acquire.search import SearchOptions
from cepheid.acquire.tree import EventTree
from cepheid.detection.acquisition import Acquisition
from cepheid.detection.partials import Asked
from cepheid.detection.program import Program, bound_tree
from cepheid.detection.replay import replay
from cepheid.engine.prepare import Prepared, RunOptions
from cepheid.engine.run import run_positions
from cepheid.io.event_log import EventLog
from cepheid.io.inputs import DEFAULT_COLUMNS
from cepheid.lang import parse

UNIT = 1_000
"""Ticks in a unit of time."""
SKEW = 0.255
TOLERANCE = 0.02
RANDOM_EVENTS = 12
"""Random events of each size, and random rates: what they cost differs more than what streams do."""
_SCHEMA = pa.schema([("type", pa.string()), ("ts", pa.int64())])
_DP, _HEURISTIC = SearchOptions("dp"), SearchOptions("heuristic")


def zipf(count: int, skew: float, total: float) -> list[float]:
    """Rates per unit of time, which sum up to a total."""
    shares = [1 / (i + 1) ** skew for i in range(count)]
    return [total * share / sum(shares) for share in shares]


@dataclass(frozen=True, slots=True)
class Event:
    """A complex event over E1, E2, ... with their rates per unit of time."""

    text: str
    tree: EventTree
    prepared: Prepared
    asked: Asked
    rates: Mapping[str, float]

    @classmethod
    def of(cls, text: str, rates: Sequence[float]) -> Event:
        named = {f"E{i + 1}": rate for i, rate in enumerate(rates)}
        asked = Asked(_SCHEMA, DEFAULT_COLUMNS, {name: {f.name: f.type for f in _SCHEMA} for name in named})
        prepared, tree = bound_tree(parse(f"complex Q event {text}"), asked, RunOptions())
        return cls(text, tree, prepared, asked, named)

    def costs(self, model: str = "coverage", rates: Mapping[str, float] | None = None) -> CostModel:
        known = rates or self.rates
        return MODELS[model]({name: StreamModel(Poisson(rate / UNIT), 1.0) for name, rate in known.items()})

    def plan(
        self, steps: float = math.inf, options: SearchOptions = _DP, rates: Mapping[str, float] | None = None
    ) -> Plan:
        """The cheapest plan whose latency is that of so many steps, if there is one; else the quickest."""
        return choose(self.tree.root, self.costs(rates=rates), options, 2 * steps - 1).chosen.plan

    def streams(self, seed: int, count: int) -> dict[str, np.ndarray]:
        """Event times of each type, about `count` in all."""
        rng = np.random.default_rng(seed)
        length = int(count / sum(self.rates.values()) * UNIT)
        drawn = {name: rng.poisson(rate / UNIT * length) for name, rate in self.rates.items()}
        return {name: np.sort(rng.integers(0, length, number)) for name, number in drawn.items()}

    def expected(self, plan: Plan) -> float:
        """The events per tick that the model expects a plan to fetch."""
        return self.costs().estimate(self.tree.root, plan).cost

    def fetched(self, plan: Plan, streams: Mapping[str, np.ndarray]) -> tuple[int, int]:
        """The matches that a plan finds, and the events that it fetches."""
        return fetched([(self, plan)], streams)

    def least(self, streams: Mapping[str, np.ndarray]) -> int:
        """The events that take part in matches: no plan can do with fewer."""
        table = table_of(streams)
        result = run_positions(self.prepared, self.asked.table(table))
        found = [np.asarray(column.drop_null()) for batch in result.batches for column in batch.columns]
        return len(np.unique(np.concatenate([np.empty(0, np.int64), *found])))


def fetched(planned: Sequence[tuple[Event, Plan]], streams: Mapping[str, np.ndarray]) -> tuple[int, int]:
    """The matches that plans find together, and the events that they fetch."""
    found = ran(planned, streams)
    return (0, 0) if found is None else (found[0], found[1].counts.events)


def ran(planned: Sequence[tuple[Event, Plan]], streams: Mapping[str, np.ndarray]) -> tuple[int, Acquisition] | None:
    """The matches that plans find together, and how they ended; None if a type did not occur."""
    logs = {name: EventLog.of(name, table_of({name: times}), DEFAULT_COLUMNS) for name, times in streams.items()}
    sources = {name: (name,) for name, log in logs.items() if log.streams}
    if any(name not in sources for event, _ in planned for name in event.rates):
        return None
    running = Acquisition(
        [Program.of(event.prepared, event.tree, plan, event.asked, sources, RunOptions()) for event, plan in planned]
    )
    return sum(matches.num_rows for matches in replay(running, logs)), running


def table_of(streams: Mapping[str, np.ndarray]) -> pa.Table:
    kinds = np.repeat(list(streams), [len(times) for times in streams.values()])
    return pa.table({"type": kinds.tolist(), "ts": np.concatenate(list(streams.values()))}, _SCHEMA)


MINIMUM = "in matches"
Variants = Mapping[str, Plan]
PlanT = TypeVar("PlanT", contravariant=True)


class Planned(Protocol[PlanT]):
    """One or several complex events whose plans are compared."""

    @property
    def rates(self) -> Mapping[str, float]: ...

    def streams(self, seed: int, count: int) -> dict[str, np.ndarray]: ...

    def expected(self, plan: PlanT) -> float: ...

    def fetched(self, plan: PlanT, streams: Mapping[str, np.ndarray]) -> tuple[int, int]: ...

    def least(self, streams: Mapping[str, np.ndarray]) -> int: ...


EventT = TypeVar("EventT", bound=Planned[Any])


def measured(
    point: float | str,
    events: Callable[[int], EventT],
    variants: Callable[[EventT, int], Mapping[str, Any]],
    quick: bool,
    most: int = 60,
) -> list[Sample]:
    """Runs plans over streams until the mean share of fetched events is settled (`quick`: until one has a match), at
    most so often."""
    shares: dict[str, list[float]] = {}
    model: dict[str, list[float]] = {}
    total: dict[str, list[float]] = {}
    seed = 0
    while seed < most and not (any(matches for _, matches, _ in total.values()) if quick else _is_settled(shares)):
        event = events(seed)
        streams = event.streams(seed, 250 if quick else 2_000)
        count = sum(len(times) for times in streams.values())
        found: set[int] = set()
        ran: list[tuple[Any, int, int, float]] = []  # variants may have the same plan
        everything = sum(event.rates.values()) / UNIT
        for name, plan in variants(event, seed).items():
            known = next((each for each in ran if each[0] == plan), None)
            if known is None:
                began = time.process_time()
                known = (plan, *event.fetched(plan, streams), time.process_time() - began)
                ran.append(known)
            _, matches, fetched, spent = known
            found.add(matches)
            shares.setdefault(name, []).append(fetched / count)
            model.setdefault(name, []).append(event.expected(plan) / everything)
            before = total.setdefault(name, [0, 0, 0.0])
            total[name] = [before[0] + count, before[1] + matches, before[2] + spent]
        if len(found) != 1:
            raise AssertionError(f"plans disagree at {point}, seed {seed}: {found}")
        shares.setdefault(MINIMUM, []).append(event.least(streams) / count)
        seed += 1
    samples = []
    for name, values in shares.items():
        counts = total.get(name, next(iter(total.values())))
        counted = {"share": statistics.fmean(values)}
        if name in model:
            counted["model"] = statistics.fmean(model[name])
        outcome = Outcome(int(counts[1]), 0, counted)
        samples.append(Sample(point, name, int(counts[0]), outcome, max(counts[2], 1e-9), max(counts[2], 1e-9)))
    return samples


def _is_settled(shares: Mapping[str, list[float]]) -> bool:
    for name, values in shares.items():
        if name == MINIMUM:
            continue
        if len(values) < 5:
            return False
        mean = statistics.fmean(values)
        if statistics.stdev(values) / math.sqrt(len(values)) > TOLERANCE * max(mean, 1e-9):
            return False
    return bool(shares)


def _cell(name: str) -> Callable[[Sample], str]:
    return lambda sample: f"{sample.outcome.counted[name]:.3f}" if name in sample.outcome.counted else ""


def share_report(
    name: str, title: str, point: str, samples: Sequence[Sample], paper: str, log_x: bool = False
) -> Report:
    return Report(
        name,
        title,
        point,
        tuple(samples),
        paper,
        columns=(Column("fetched (share)", _cell("share")), Column("model (share)", _cell("model"))),
        value=lambda sample: sample.outcome.counted["share"],
        value_title="share of events fetched",
        log_x=log_x,
        log_y=False,
    )


# --- figure 4 ---------------------------------------------------------------------------------------------------------


def _steps(event: Event, seed: int) -> Variants:
    plans = {f"{steps} step{'s' * (steps > 1)}": event.plan(steps) for steps in (1, 2, 3)}
    return {**plans, "3 steps, heuristic": event.plan(3, _HEURISTIC)}


def _windows(kind: str, letter: str, quick: bool) -> Report:
    rates = zipf(3, SKEW, 1.0)
    samples = []
    for window in (0.5, 2) if quick else (0.1, 0.25, 0.5, 1, 2, 4):
        event = Event.of(f"{kind}(E1, E2, E3; {int(window * UNIT)})", rates)
        samples += measured(window, lambda _, event=event: event, _steps, quick)  # type: ignore[misc]
    return share_report(
        f"ced-4{letter}",
        f"{kind}(e1, e2, e3; w): events fetched by window and steps",
        "window",
        samples,
        "more steps cost less, larger windows more, until everything is fetched (§6.2).",
        log_x=True,
    )


def negation(quick: bool) -> Report:
    samples = []
    for negated in (0, 1, 2):
        operands = [f"{'!' if i >= 3 - negated else ''}E{i + 1}" for i in range(3)]
        event = Event.of(f"and({', '.join(operands)}; {UNIT})", zipf(3, SKEW, 1.0))
        samples += measured(negated, lambda _, event=event: event, _steps, quick)  # type: ignore[misc]
    return share_report(
        "ced-4c",
        "and(e1, e2, e3; w=1): events fetched by negated subevents",
        "negated",
        samples,
        "the cost increases with more negated subevents (§6.2).",
    )


def fanout(quick: bool) -> Report:
    samples = []
    for count in (2, 3) if quick else (2, 3, 4, 5, 6):
        text = f"and({', '.join(f'E{i + 1}' for i in range(count))}; {UNIT})"
        event = Event.of(text, [0.3] * count)
        limits = range(1, count + 1)

        def variants(event: Event, _: int, limits: Sequence[int] = limits) -> Variants:
            return {f"{steps} step{'s' * (steps > 1)}": event.plan(steps, _HEURISTIC) for steps in limits}

        samples += measured(count, lambda _, event=event: event, variants, quick)  # type: ignore[misc]
    return share_report(
        "ced-4d",
        "and of n subevents with equal rates, w=1: events fetched by fanout and steps",
        "subevents",
        samples,
        "a larger fanout has fewer detections and a wider range of latencies (§6.2).",
    )


def skew(quick: bool) -> Report:
    samples = []
    for value in (0.0, 2.0) if quick else (0.0, 0.255, 0.5, 1.0, 1.5, 2.0):
        event = Event.of(f"and(E1, E2, E3; {UNIT})", zipf(3, value, 1.0))
        samples += measured(value, lambda _, event=event: event, _steps, quick)  # type: ignore[misc]
    return share_report(
        "ced-4e",
        "and(e1, e2, e3; w=1): events fetched by the skew of the rates",
        "skew",
        samples,
        "the more skewed the rates, the fewer events are fetched (§6.2).",
    )


def errors(quick: bool) -> Report:
    samples = []
    text = f"and(E1, E2, E3, E4, E5; {UNIT})"
    for value in (0.5,) if quick else (0.0, 0.255, 1.0, 2.0):
        event = Event.of(text, zipf(5, value, 2.0))

        def variants(event: Event, seed: int) -> Variants:
            rng = random.Random(seed)
            found = {"exact rates": event.plan()}
            for error in (0.1, 0.2, 0.4):
                rates = {name: rate * (1 + error * rng.choice((-1, 1))) for name, rate in event.rates.items()}
                found[f"error {error:.0%}"] = event.plan(rates=rates)
            return found

        samples += measured(value, lambda _, event=event: event, variants, quick)  # type: ignore[misc]
    return share_report(
        "ced-4f",
        "and of five, w=1: events fetched with errors in all rates, by skew",
        "skew",
        samples,
        "errors matter more with skewed rates; the target is at most 15 % more events with an error of 20 %.",
    )


# --- figure 5 ---------------------------------------------------------------------------------------------------------


def random_event(operators: int, seed: int) -> tuple[str, int]:
    """A random event with this many operators of two or three subevents, window 2.5; its text and its leaves."""
    rng = random.Random(f"{operators} {seed}")
    leaves = 0

    def build(left: int) -> str:
        nonlocal leaves
        count = rng.choice((2, 3))
        shares = [0] * count
        for _ in range(left - 1):
            shares[rng.randrange(count)] += 1
        parts = []
        for share in shares:
            if share:
                parts.append(build(share))
            else:
                leaves += 1
                parts.append(f"E{leaves}")
        kind = rng.choice(("and", "seq", "or"))
        return f"{kind}({', '.join(parts)}{'' if kind == 'or' else f'; {int(2.5 * UNIT)}'})"

    return build(operators), leaves


def _random(operators: int) -> Callable[[int], Event]:
    def event(seed: int) -> Event:
        text, leaves = random_event(operators, seed)
        return Event.of(text, zipf(leaves, SKEW, 0.12 * leaves))

    return event


def complexity(quick: bool) -> Report:
    def variants(event: Event, _: int) -> Variants:
        return {"low latency": event.plan(1), "medium latency": event.plan(3), "high latency": event.plan()}

    samples = []
    for operators in (1, 2) if quick else (1, 2, 3, 4, 5, 6, 7):
        samples += measured(operators, _random(operators), variants, quick, RANDOM_EVENTS)
    return share_report(
        "ced-5a",
        "random events by their number of operators: events fetched for three latencies",
        "operators",
        samples,
        "the cost does not depend on the number of operators but on how often the event occurs (§6.3).",
    )


def heuristics(quick: bool) -> Report:
    def variants(event: Event, _: int) -> Variants:
        return {"dynamic programming": event.plan(), "heuristic": event.plan(options=_HEURISTIC)}

    samples = []
    for operators in (1, 2) if quick else (1, 2, 3, 4, 5, 6, 7):
        samples += measured(operators, _random(operators), variants, quick, RANDOM_EVENTS)
    return share_report(
        "ced-5b",
        "random events: events fetched by plans of both algorithms",
        "operators",
        samples,
        "the heuristic comes very close to dynamic programming on average (§6.3); the target is within 10 %.",
    )


def binary(seed: int) -> Event:
    """A complete binary tree of `and` operators over eight types, with rates in random order."""
    names = iter(f"E{i + 1}" for i in range(8))

    def build(height: int) -> str:
        return next(names) if height == 0 else f"and({build(height - 1)}, {build(height - 1)}; {int(2.5 * UNIT)})"

    rates = zipf(8, 1.0, 4.0)
    random.Random(seed).shuffle(rates)
    return Event.of(build(3), rates)


def _limits(letter: str, title: str, chosen: Mapping[str, tuple[str, str]], quick: bool) -> Report:
    samples = []
    for limit in (1, 3) if quick else (1, 2, 3, 6, 12):

        def variants(event: Event, _: int, limit: int = limit) -> Variants:
            options = {name: SearchOptions(algorithm, limit, way) for name, (algorithm, way) in chosen.items()}
            return {name: event.plan(4, option) for name, option in options.items()}

        samples += measured(limit, binary, variants, quick, RANDOM_EVENTS)
    return share_report(
        f"ced-5{letter}",
        title,
        "k",
        samples,
        "a greater k comes closer to the best plan; mixture and minimum cost are best (§6.3).",
    )


def strategies(quick: bool) -> Report:
    ways = ("random", "latency", "cost", "balance", "mixture")
    title = "a binary tree of and: events fetched if each operator passes k plans up, by strategy"
    return _limits("c", title, {way: ("dp", way) for way in ways}, quick)


def heuristic_strategies(quick: bool) -> Report:
    both = {"dynamic programming": ("dp", "mixture"), "heuristic": ("heuristic", "mixture")}
    title = "a binary tree of and: events fetched if each operator passes k plans up, by algorithm"
    return _limits("d", title, both, quick)


BENCHMARKS = (
    Benchmark("ced-4a", "CED figure 4(a): and, by window and steps", lambda quick: _windows("and", "a", quick)),
    Benchmark("ced-4b", "CED figure 4(b): seq, by window and steps", lambda quick: _windows("seq", "b", quick)),
    Benchmark("ced-4c", "CED figure 4(c): negation", negation),
    Benchmark("ced-4d", "CED figure 4(d): fanout", fanout),
    Benchmark("ced-4e", "CED figure 4(e): skew of rates", skew),
    Benchmark("ced-4f", "CED figure 4(f): errors in rates", errors),
    Benchmark("ced-5a", "CED figure 5(a): complexity of events", complexity),
    Benchmark("ced-5b", "CED figure 5(b): dynamic programming and heuristics", heuristics),
    Benchmark("ced-5c", "CED figure 5(c): limits on plans, by strategy", strategies),
    Benchmark("ced-5d", "CED figure 5(d): limits on plans, by algorithm", heuristic_strategies),
)
