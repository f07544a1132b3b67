"""ZStream §6: what a tree plan's shape is worth, by selectivity and by rate; negation pushed down; a web log.

Every plan is forced by the options that a user has too. The paper's NFA is the stack evaluator, which searches
backwards from the last component as that NFA did. Beside each measured throughput stands the cost that the model
expects, in nanoseconds for an event.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial

import pyarrow as pa
import pyarrow.compute as pc

import cepheid
from bench.measure import Found, Prepared, Sample, measure
from bench.report import Benchmark, Column, Report
from cepheid.backends import frames
from cepheid.backends.adaptation import stepper_for
from cepheid.backends.local import prepare_for
from cepheid.backends.prepare import NO_WISHES, Wishes
from cepheid.backends.sources import Columns, for_kernel
from cepheid.datasets import DAY, ticks, weblog
from cepheid.events import Clock
from cepheid.lang import parse
from cepheid.optimize.adapt import Adaptive, plan_text
from cepheid.optimize.stats import from_arrow

SAMPLED = 20_000
"""How many events the statistics are taken from."""
PIECE = 2_048
"""Events between two hand-overs of matches, so that no experiment needs the memory for all of them."""

_COLUMNS = Columns("type", "ts")
_READ = ["price"]
"""What the predicates of query 6 read."""

QUERY_4 = "PATTERN IBM;Sun;Oracle WHERE IBM.price > Sun.price WITHIN {window} units"
QUERY_5 = "PATTERN IBM;Sun;Oracle WITHIN {window} units"
QUERY_6 = (
    "PATTERN IBM;Sun;Oracle;Google WHERE Oracle.price > Sun.price AND Oracle.price > Google.price WITHIN {window} units"
)
QUERY_7 = "PATTERN IBM;!Sun;Oracle WITHIN {window} units"
QUERY_8 = "PATTERN Publication;Project;Course WHERE Publication.ip = Project.ip = Course.ip WITHIN {window} units"


@dataclass(frozen=True, slots=True)
class Choice:
    """How a query is to be evaluated."""

    evaluator: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)


CHOSEN, NFA = "chosen", "NFA (stacks)"
THREE = {
    "left-deep": Choice("tree", {"shape": "left-deep"}),
    "right-deep": Choice("tree", {"shape": "right-deep"}),
    NFA: Choice("stacks"),
    CHOSEN: Choice(),
}
FOUR = {
    "left-deep": Choice("tree", {"shape": "[[[IBM;Sun];Oracle];Google]"}),
    "right-deep": Choice("tree", {"shape": "[IBM;[Sun;[Oracle;Google]]]"}),
    "bushy": Choice("tree", {"shape": "[[IBM;Sun];[Oracle;Google]]"}),
    "inner": Choice("tree", {"shape": "[IBM;[[Sun;Oracle];Google]]"}),
    "inner, IBM first": Choice("tree", {"shape": "[[IBM;[Sun;Oracle]];Google]"}),
    NFA: Choice("stacks"),
    CHOSEN: Choice(),
}
"""The paper's four plans of query 6, and the fifth that there is."""
NEGATION = {
    "NSEQ (plan 1)": Choice("tree", {"negation": "pushed"}),
    "negation on top (plan 2)": Choice("tree", {"negation": "top"}),
    NFA: Choice("stacks"),
    CHOSEN: Choice(),
}


# --- measuring plans --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Measured:
    """A plan at one point of an experiment: what was measured, and what the model expects of an event, in nanoseconds
    (nothing of what it has no formula for)."""

    sample: Sample
    plan: str
    expected: float | None
    state_bytes: int


def _measured(
    point: int | float | str, variant: str, query: str, table: pa.Table, choice: Choice, piece: int
) -> Measured:
    opened = frames.opened(table, _COLUMNS)
    assert opened is not None
    parsed = parse(query)
    bound = prepare_for(parsed, opened.source, None, NO_WISHES).query
    stats = from_arrow(bound, table.slice(0, SAMPLED), Clock())
    prepared = prepare_for(parsed, opened.source, None, Wishes({}, choice.evaluator, choice.options, stats))
    assert prepared.kernel is not None
    runnable = Prepared(prepared.kernel)
    sample = measure(point, variant, table.num_rows, partial(runnable.run, table, piece=piece))
    expected = None if math.isnan(prepared.plan.expected) else prepared.plan.expected
    return Measured(sample, plan_text(prepared.plan), expected, sample.found.counted["state_bytes"])


def _compared(
    point: int | float | str, query: str, table: pa.Table, choices: Mapping[str, Choice], piece: int = PIECE
) -> tuple[Measured, ...]:
    return tuple(_measured(point, name, query, table, choice, piece) for name, choice in choices.items())


def _report(
    name: str, title: str, point: str, measured: Sequence[Measured], paper: str, baseline: str = "right-deep"
) -> Report:
    of = {(m.sample.point, m.sample.variant): m for m in measured}

    def expected(sample: Sample) -> str:
        cost = of[sample.point, sample.variant].expected
        return "" if cost is None else f"{cost:,.0f}"

    return Report(
        name,
        title,
        point,
        tuple(m.sample for m in measured),
        paper,
        baseline=baseline,
        columns=(
            Column("expected ns/event", expected),
            Column("measured ns/event", lambda sample: f"{1e9 * sample.cpu / sample.events:,.0f}"),
            Column("plan", lambda sample: of[sample.point, sample.variant].plan),
        ),
    )


def _estimates(name: str, title: str, point: str, measured: Sequence[Measured], paper: str) -> Report:
    """The model's side of an experiment, as the paper draws it: 1 / estimated cost."""
    known = [m for m in measured if m.expected is not None]
    expected = {(m.sample.point, m.sample.variant): m.expected for m in known}

    def inverse(sample: Sample) -> float:
        cost = expected[sample.point, sample.variant]
        assert cost is not None
        return 1e9 / cost

    return Report(
        name,
        title,
        point,
        tuple(m.sample for m in known),
        paper,
        columns=(Column("1/expected cost (events/s)", lambda sample: f"{inverse(sample):,.0f}"),),
        value=inverse,
        value_title="1 / expected cost (events/s)",
    )


def ranks(values: Sequence[float]) -> list[float]:
    """The rank of each value, from 1; equal values share the mean of theirs.

    >>> ranks([10, 30, 20, 20])
    [1.0, 4.0, 2.5, 2.5]
    """
    found = [0.0] * len(values)
    for value in set(values):
        places = [place for place, other in enumerate(sorted(values), 1) if other == value]
        for at, other in enumerate(values):
            if other == value:
                found[at] = sum(places) / len(places)
    return found


def rank_correlation(one: Sequence[float], other: Sequence[float]) -> float:
    """Spearman's: how well one order predicts the other, from -1 to 1.

    >>> rank_correlation([1, 2, 3, 4], [10, 20, 30, 40]), rank_correlation([1, 2, 3], [3, 2, 1])
    (1.0, -1.0)
    """
    first, second = ranks(one), ranks(other)
    middle = (len(first) + 1) / 2
    shared = sum((a - middle) * (b - middle) for a, b in zip(first, second, strict=True))
    spread = [sum((a - middle) ** 2 for a in side) for side in (first, second)]
    return round(shared / (spread[0] * spread[1]) ** 0.5, 9)


# --- W3 ---------------------------------------------------------------------------------------------------------------


def w3(quick: bool) -> Report:
    n, window = (600, 30) if quick else (500_000, 100)
    table = ticks(n, {"IBM": 1, "Sun": 100, "Oracle": 100, "Google": 100}, seed=1)
    query = QUERY_6.format(window=window)

    def through_api() -> Found:
        return Found(cepheid.match(query, table, output="positions").num_rows)

    measured = _compared(window, query, table, FOUR)
    report = _report(
        "w3",
        "four stocks, IBM a hundred times rarer, two price predicates",
        "W",
        measured,
        "the target is 3 M events/s on one core.",
    )
    return _with_sample(report, measure(window, "cepheid.match", n, through_api))


def _with_sample(report: Report, sample: Sample) -> Report:
    """The report with a sample that no plan belongs to, so that further columns say nothing of it."""
    known = {(s.point, s.variant) for s in report.samples}

    def guarded(cell: Callable[[Sample], str]) -> Callable[[Sample], str]:
        return lambda s: cell(s) if (s.point, s.variant) in known else ""

    columns = tuple(Column(column.title, guarded(column.cell)) for column in report.columns)
    return Report(
        report.name,
        report.title,
        report.point,
        (*report.samples, sample),
        report.paper,
        baseline=report.baseline,
        columns=columns,
    )


# --- §6.1: selectivity and rates --------------------------------------------------------------------------------------


@lru_cache(maxsize=2)
def _query_4(quick: bool) -> tuple[Measured, ...]:
    n, window, denominators = (300, 40, (1, 32)) if quick else (60_000, 200, (1, 2, 4, 8, 16, 32))
    found: list[Measured] = []
    for denominator in denominators:
        # Uniform prices: IBM's exceeds Sun's in 1/d of all pairs if its range is 2/d of Sun's, and always if above it.
        ibm = (1001.0, 2000.0) if denominator == 1 else (1.0, 1.0 + 2 * 999.0 / denominator)
        table = ticks(n, {"IBM": 1, "Sun": 1, "Oracle": 1}, seed=1, prices={"IBM": ibm})
        found += _compared(f"1/{denominator}", QUERY_4.format(window=window), table, THREE)
    return tuple(found)


def figure_8(quick: bool) -> Report:
    return _report(
        "zstream-8",
        "query 4: throughput of plans by the selectivity of IBM.price > Sun.price",
        "selectivity",
        _query_4(quick),
        "the left-deep plan wins by a factor of 5 at 1/32; the NFA is like the right-deep plan.",
    )


def figure_9(quick: bool) -> Report:
    return _estimates(
        "zstream-9",
        "query 4: 1 / expected cost of plans by selectivity",
        "selectivity",
        _query_4(quick),
        "the cost model predicts the behaviour with varying selectivity.",
    )


@lru_cache(maxsize=2)
def _query_5(quick: bool) -> tuple[Measured, ...]:
    n, window = (300, 20) if quick else (20_000, 200)
    relative = ("1:1:1", "1:8:8") if quick else ("32:1:1", "8:1:1", "4:1:1", "1:1:1", "1:4:4", "1:8:8", "1:32:32")
    found: list[Measured] = []
    for rates in relative:
        ibm, sun, oracle = map(float, rates.split(":"))
        table = ticks(n, {"IBM": ibm, "Sun": sun, "Oracle": oracle}, seed=1)
        found += _compared(rates, QUERY_5.format(window=window), table, THREE)
    return tuple(found)


def figure_10(quick: bool) -> Report:
    return _report(
        "zstream-10",
        "query 5: throughput of plans by relative rates",
        "IBM:Sun:Oracle",
        _query_5(quick),
        "right-deep is best where IBM is frequent, left-deep where it is rare; the gap is wider where one is rare.",
    )


def figure_11(quick: bool) -> Report:
    return _estimates(
        "zstream-11",
        "query 5: 1 / expected cost of plans by relative rates",
        "IBM:Sun:Oracle",
        _query_5(quick),
        "the estimates behave as the throughput does.",
    )


# --- §6.2: more complex queries, memory -------------------------------------------------------------------------------

_ABOVE, _BELOW = (1001.0, 2000.0), (1.0, 1000.0)
_SELECTIVE = (1001.0, 1041.0)
"""Above prices in 1001-2000 in 2 % of all pairs: 1/50."""
SETTINGS: Mapping[str, tuple[Mapping[str, float], Mapping[str, tuple[float, float]]]] = {
    "IBM 100 times rarer": (
        {"IBM": 1, "Sun": 100, "Oracle": 100, "Google": 100},
        {"Sun": _BELOW, "Oracle": _ABOVE, "Google": _BELOW},
    ),
    "sel1 = 1/50": (
        {"IBM": 1, "Sun": 1, "Oracle": 1, "Google": 1},
        {"Sun": _ABOVE, "Oracle": _SELECTIVE, "Google": _BELOW},
    ),
    "sel2 = 1/50": (
        {"IBM": 1, "Sun": 1, "Oracle": 1, "Google": 1},
        {"Sun": _BELOW, "Oracle": _SELECTIVE, "Google": _ABOVE},
    ),
}
"""Rates and ranges of prices in the three settings of query 6; selectivities are 1 where the setting does not say."""


@lru_cache(maxsize=2)
def _query_6(quick: bool) -> tuple[Measured, ...]:
    n, window = (250, 30) if quick else (60_000, 100)
    found: list[Measured] = []
    for setting, (rates, prices) in SETTINGS.items():
        table = ticks(n, rates, seed=1, prices=prices)
        found += _compared(setting, QUERY_6.format(window=window), table, FOUR)
    return tuple(found)


def figure_12(quick: bool) -> Report:
    return _report(
        "zstream-12",
        "query 6: throughput of plans in three settings",
        "setting",
        _query_6(quick),
        "left-deep and bushy do best where IBM is rare, inner at sel1 (nearly 2x), right-deep and NFA at sel2.",
    )


def figure_13(quick: bool) -> Report:
    return _estimates(
        "zstream-13",
        "query 6: 1 / expected cost of plans in three settings",
        "setting",
        _query_6(quick),
        "the model predicts the real performance well.",
    )


def _memory(name: str, title: str, point: str, measured: Sequence[Measured], paper: str) -> Report:
    of = {(m.sample.point, m.sample.variant): m for m in measured}

    def megabytes(sample: Sample) -> float:
        return of[sample.point, sample.variant].state_bytes / 1e6

    return Report(
        name,
        title,
        point,
        tuple(m.sample for m in measured),
        paper,
        columns=(
            Column("peak MB", lambda sample: f"{megabytes(sample):.3f}"),
            Column("peak records", lambda sample: f"{sample.found.counted['peak_retained']:,}"),
        ),
        value=megabytes,
        value_title="peak memory of the state, MB",
    )


def table_3(quick: bool) -> Report:
    return _memory(
        "zstream-table-3",
        "query 6: peak memory of plans",
        "setting",
        [m for m in _query_6(quick) if m.sample.point != "sel2 = 1/50"],
        "from 6.5 to 7.6 MB for all plans, much more stable than their throughput.",
    )


# --- §6.3: plan adaptation --------------------------------------------------------------------------------------------

ADAPTIVE = "adaptive"
_FIXED = ("left-deep", "right-deep", "bushy", "inner", NFA)


def _concatenated(n: int) -> list[pa.Table]:
    """The three streams of query 6, one after the other."""
    segments = []
    for number, (rates, prices) in enumerate(SETTINGS.values()):
        table = ticks(n, rates, seed=1, prices=prices)
        segments.append(table.set_column(1, "ts", pc.add(table["ts"], number * n)))
    return segments


def _in_segments(query: str, segments: Sequence[pa.Table], choice: Choice, policy: Adaptive | None) -> list[Sample]:
    """What each segment of a stream took, in one run over all of them."""
    whole = frames.opened(pa.concat_tables(segments), _COLUMNS)
    assert whole is not None
    wishes = Wishes({}, choice.evaluator, choice.options, adaptive=policy)
    prepared = prepare_for(parse(query), whole.source, None, wishes)
    assert prepared.kernel is not None
    stepper = stepper_for(prepared, prepared.kernel, whole.source.count)
    samples = []
    for setting, segment in zip(SETTINGS, segments, strict=True):
        events = frames.opened(segment, _COLUMNS)
        assert events is not None
        batches = [for_kernel(batch, _READ) for batch in events.source.batches(_READ)]
        wall, cpu = time.perf_counter(), time.process_time()
        matches = sum(len(found) for batch in batches for found in stepper.step(batch, PIECE))
        spent = max(time.process_time() - cpu, 1e-9), time.perf_counter() - wall
        samples.append(Sample(setting, "", segment.num_rows, Found(matches), *spent))
    return samples


def figure_14(quick: bool) -> Report:
    n, window, repeats = (400, 30, 1) if quick else (500_000, 100, 2)
    query, segments = QUERY_6.format(window=window), _concatenated(n)
    policy = Adaptive(observed_every=100, seconds_between=0.0) if quick else Adaptive()
    samples: list[Sample] = []
    for variant in (*_FIXED, ADAPTIVE):  # the fixed plans first, so that those that take over are compiled
        choice, adapts = FOUR.get(variant, Choice()), policy if variant == ADAPTIVE else None
        runs = [_in_segments(query, segments, choice, adapts) for _ in range(repeats)]
        best = min(runs, key=lambda run: sum(sample.cpu for sample in run))
        samples += [replace(sample, variant=variant) for sample in best]
        total = Found(sum(sample.found.matches for sample in best))
        spent = sum(sample.cpu for sample in best), sum(sample.wall for sample in best)
        samples.append(Sample("all of it", variant, n * len(segments), total, *spent))
    return Report(
        "zstream-14",
        "query 6 over the three settings one after the other: fixed plans and one that adapts",
        "segment",
        tuple(samples),
        "the adaptive plan is nearly as good as the best fixed plan in each segment.",
        baseline=ADAPTIVE,
    )


# --- §6.4: negation ---------------------------------------------------------------------------------------------------


def _query_7(quick: bool, varied: str) -> tuple[Measured, ...]:
    n, window, factors = (300, 40, (1, 8)) if quick else (200_000, 200, (1, 2, 4, 8, 16))
    found: list[Measured] = []
    for factor in factors:
        rates = {"IBM": 1.0, "Sun": 1.0, "Oracle": 1.0, varied: float(factor)}
        table = ticks(n, rates, seed=1)
        found += _compared(factor, QUERY_7.format(window=window), table, NEGATION, n)
    return tuple(found)


def figure_15(quick: bool) -> Report:
    return _report(
        "zstream-15",
        "query 7: NSEQ against negation on top, by the rate of Oracle",
        "rate of Oracle",
        _query_7(quick, "Oracle"),
        "NSEQ always wins, by almost an order of magnitude; it slows a little as Oracle's rate grows.",
        baseline="negation on top (plan 2)",
    )


def figure_16(quick: bool) -> Report:
    return _report(
        "zstream-16",
        "query 7: NSEQ against negation on top, by the rate of Sun",
        "rate of Sun",
        _query_7(quick, "Sun"),
        "NSEQ always wins; negation on top catches up as Sun grows, since there are fewer pairs of IBM and Oracle.",
        baseline="negation on top (plan 2)",
    )


# --- §6.5: web access -------------------------------------------------------------------------------------------------


@lru_cache(maxsize=2)
def _query_8(quick: bool) -> tuple[Measured, ...]:
    n, hours = (15_000, 28 * 24) if quick else (1_500_000, 10)
    query = QUERY_8.format(window=hours * DAY // 24)
    return _compared(f"{hours} hours", query, weblog(n, seed=1), THREE)


def figure_17(quick: bool) -> Report:
    return _report(
        "zstream-17",
        "query 8: publication, project and course pages from one address",
        "window",
        _query_8(quick),
        "left-deep is much faster, since publications are rarest; the NFA is a little slower than right-deep. Of 1.5 M "
        "accesses, 6,775, 11,610 and 16,083 are of these kinds (table 4).",
    )


def table_5(quick: bool) -> Report:
    return _memory(
        "zstream-table-5",
        "query 8: peak memory of plans",
        "window",
        _query_8(quick),
        "10.13 MB left-deep, 10.66 MB right-deep, 10.55 MB NFA.",
    )


# --- the model against the measurements -------------------------------------------------------------------------------


def rank(quick: bool) -> Report:
    """Over all plans of queries 4 to 6: the expected cost of an event beside its measured time."""
    parts = {"query 4": _query_4(quick), "query 5": _query_5(quick), "query 6": _query_6(quick)}
    pairs = [
        (m.expected, m.sample.microseconds * 1e3, name, m)
        for name, measured in parts.items()
        for m in measured
        if m.expected is not None and m.sample.variant != CHOSEN
    ]
    pairs.sort(key=lambda pair: pair[0])
    whole = rank_correlation([p[0] for p in pairs], [p[1] for p in pairs])
    each = {
        name: rank_correlation([p[0] for p in pairs if p[2] == name], [p[1] for p in pairs if p[2] == name])
        for name in parts
    }
    samples = [
        Sample(round(cost, 1), name, m.sample.events, m.sample.found, m.sample.cpu, m.sample.wall, f"{number}")
        for number, (cost, _, name, m) in enumerate(pairs)
    ]
    labels = {f"{number}": f"{m.sample.point}, {m.sample.variant}" for number, (_, _, _, m) in enumerate(pairs)}
    alone = ", ".join(f"{name} {value:.2f}" for name, value in each.items())
    return Report(
        "zstream-rank",
        f"expected cost and measured time: rank correlation {whole:.3f} ({alone})",
        "expected ns/event",
        tuple(samples),
        "the cost model accurately reflects the system's performance; the target is a rank correlation of 0.9.",
        columns=(
            Column("measured ns/event", lambda sample: f"{sample.microseconds * 1e3:,.0f}"),
            Column("plan", lambda sample: labels[sample.question]),
        ),
        value=lambda sample: sample.microseconds * 1e3,
        value_title="measured ns/event",
        log_x=True,
    )


BENCHMARKS = (
    Benchmark("w3", "target: four stocks, two price predicates", w3),
    Benchmark("zstream-8", "ZStream figure 8: query 4 by selectivity", figure_8),
    Benchmark("zstream-9", "ZStream figure 9: its estimated cost", figure_9),
    Benchmark("zstream-10", "ZStream figure 10: query 5 by relative rates", figure_10),
    Benchmark("zstream-11", "ZStream figure 11: its estimated cost", figure_11),
    Benchmark("zstream-12", "ZStream figure 12: query 6 in three settings", figure_12),
    Benchmark("zstream-13", "ZStream figure 13: its estimated cost", figure_13),
    Benchmark("zstream-table-3", "ZStream table 3: memory of query 6", table_3),
    Benchmark("zstream-14", "ZStream figure 14: the plan adapts", figure_14),
    Benchmark("zstream-15", "ZStream figure 15: negation by the rate of Oracle", figure_15),
    Benchmark("zstream-16", "ZStream figure 16: negation by the rate of Sun", figure_16),
    Benchmark("zstream-17", "ZStream figure 17 and table 4: a web log", figure_17),
    Benchmark("zstream-table-5", "ZStream table 5: memory of query 8", table_5),
    Benchmark("zstream-rank", "ZStream: the cost model against the measurements", rank),
)
