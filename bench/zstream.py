"""ZStream §6: the benefit of the shape of a tree plan, by selectivity and by rate; negation pushed down; a web log.

Every plan is forced with the public options. The stack evaluator stands for the paper's NFA: both search backwards from
the last component. The reports show each measured throughput with the estimated cost in nanoseconds per event.
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
from bench.measure import Outcome, Prepared, Sample, Variant, interleaved, measure
from bench.report import Benchmark, Column, Report
from cepheid.datasets import DAY, ticks, weblog
from cepheid.engine.adaptation import stepper_for
from cepheid.engine.prepare import RunOptions, prepare
from cepheid.engine.sampling import first_statistics
from cepheid.io import frames
from cepheid.io.event_columns import for_kernel
from cepheid.io.inputs import Columns
from cepheid.lang import parse
from cepheid.optimize.adapt import Adaptive, plan_text
from cepheid.physical import Plan

PIECE = 2_048
"""The number of events per call of a kernel, so that no experiment holds all matches in memory."""

REPEATS = 9
ENOUGH = 2.0
"""A plan stops after these seconds, but not before its second run."""

_COLUMNS = Columns("type", "ts")
_READ = ["price"]
"""The columns that the predicates of query 6 read."""

QUERY_4 = "PATTERN IBM;Sun;Oracle WHERE IBM.price > Sun.price WITHIN {window} units"
QUERY_5 = "PATTERN IBM;Sun;Oracle WITHIN {window} units"
QUERY_6 = (
    "PATTERN IBM;Sun;Oracle;Google WHERE Oracle.price > Sun.price AND Oracle.price > Google.price WITHIN {window} units"
)
QUERY_7 = "PATTERN IBM;!Sun;Oracle WITHIN {window} units"
QUERY_8 = "PATTERN Publication;Project;Course WHERE Publication.ip = Project.ip = Course.ip WITHIN {window} units"


@dataclass(frozen=True, slots=True)
class Choice:
    """The options of a plan."""

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
"""The four plans of query 6 in the paper, and the fifth possible one."""
NEGATION = {
    "NSEQ (plan 1)": Choice("tree", {"negation": "pushed"}),
    "negation on top (plan 2)": Choice("tree", {"negation": "top"}),
    NFA: Choice("stacks"),
    CHOSEN: Choice(),
}


# --- measuring plans --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Measured:
    """A plan at one point of an experiment: its measurement, and the estimated nanoseconds per event (None without a
    formula)."""

    sample: Sample
    plan: str
    expected: float | None
    state_bytes: float


def _prepared(query: str, table: pa.Table, choice: Choice) -> Prepared:
    """Plans the query with the statistics of its first events."""
    opened = frames.opened(table, _COLUMNS)
    assert opened is not None
    parsed = parse(query)
    stats = first_statistics(prepare(parsed, opened.source).plan, opened.source)
    prepared = prepare(
        parsed, opened.source, RunOptions(params={}, evaluator=choice.evaluator, options=choice.options, stats=stats)
    )
    assert prepared.kernel is not None
    return Prepared(prepared.kernel)


def _compared(
    point: int | float | str, query: str, table: pa.Table, choices: Mapping[str, Choice], piece: int = PIECE
) -> tuple[Measured, ...]:
    kernels = [_prepared(query, table, choice) for choice in choices.values()]
    variants = [
        Variant(point, name, table.num_rows, partial(kernel.run, table, piece=piece))
        for name, kernel in zip(choices, kernels, strict=True)
    ]
    # The chosen plan is one of the other variants too; the better time of the two counts.
    best: dict[str, Sample] = {}
    samples = interleaved(variants, repeats=REPEATS, enough=ENOUGH)
    for sample, prepared in zip(samples, kernels, strict=True):
        source = prepared.kernel.source
        best[source] = min(best.get(source, sample), sample, key=lambda found: found.cpu)
    return tuple(
        _measured(replace(best[prepared.kernel.source], variant=sample.variant), prepared.kernel.plan)
        for sample, prepared in zip(samples, kernels, strict=True)
    )


def _measured(sample: Sample, plan: Plan) -> Measured:
    expected = None if math.isnan(plan.expected) else plan.expected
    return Measured(sample, plan_text(plan), expected, sample.outcome.counted["state_bytes"])


Reported = Callable[[str, str, str, Sequence[Measured], str], Report]
"""Builds a report from a name, a title, the varied quantity, the measurements and the values of the paper."""


def _by_sample(measured: Sequence[Measured]) -> Callable[[Sample], Measured]:
    of = {(m.sample.point, m.sample.variant): m for m in measured}
    return lambda sample: of[sample.point, sample.variant]


def _throughput(
    name: str, title: str, point: str, measured: Sequence[Measured], paper: str, baseline: str = "right-deep"
) -> Report:
    """The measurements with the estimates."""
    of = _by_sample(measured)
    columns = (
        Column("expected ns/event", lambda s: "" if (cost := of(s).expected) is None else f"{cost:,.0f}"),
        Column("measured ns/event", lambda s: f"{1e9 * s.cpu / s.events:,.0f}"),
        Column("plan", lambda s: of(s).plan),
    )
    return Report(name, title, point, tuple(m.sample for m in measured), paper, baseline=baseline, columns=columns)


def _estimates(name: str, title: str, point: str, measured: Sequence[Measured], paper: str) -> Report:
    """The estimates of an experiment, as in the plots of the paper: 1 / estimated cost."""
    known = tuple(m.sample for m in measured if m.expected is not None)
    of = _by_sample(measured)

    def inverse(sample: Sample) -> float:
        return 1e9 / (of(sample).expected or math.nan)

    told = "1 / expected cost (events/s)"
    columns = (Column(told, lambda sample: f"{inverse(sample):,.0f}"),)
    return Report(name, title, point, known, paper, columns=columns, value=inverse, value_title=told)


def _memory(name: str, title: str, point: str, measured: Sequence[Measured], paper: str) -> Report:
    of = _by_sample(measured)

    def megabytes(sample: Sample) -> float:
        return of(sample).state_bytes / 1e6

    columns = (
        Column("peak MB", lambda sample: f"{megabytes(sample):.3f}"),
        Column("peak records", lambda sample: f"{sample.outcome.counted['peak_retained']:,}"),
    )
    told, samples = "peak memory of the state, MB", tuple(m.sample for m in measured)
    return Report(name, title, point, samples, paper, columns=columns, value=megabytes, value_title=told)


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
    return float(round(shared / (spread[0] * spread[1]) ** 0.5, 9))


# --- W3 ---------------------------------------------------------------------------------------------------------------


def w3(quick: bool) -> Report:
    n, window = (600, 30) if quick else (500_000, 100)
    table = ticks(n, {"IBM": 1, "Sun": 100, "Oracle": 100, "Google": 100}, seed=1)
    query = QUERY_6.format(window=window)

    def through_api() -> Outcome:
        return Outcome(cepheid.match(query, table, output="positions").num_rows)

    measured = _compared(window, query, table, FOUR)
    report = _throughput(
        "w3",
        "four stocks, IBM a hundred times rarer, two price predicates",
        "W",
        measured,
        "the target is 3 M events/s on one core.",
    )
    return _with_sample(report, measure(window, "cepheid.match", n, through_api))


def _with_sample(report: Report, sample: Sample) -> Report:
    """The report with a sample without a plan; its additional columns are empty."""
    known = {(s.point, s.variant) for s in report.samples}

    def guarded(cell: Callable[[Sample], str]) -> Callable[[Sample], str]:
        return lambda s: cell(s) if (s.point, s.variant) in known else ""

    columns = tuple(Column(column.title, guarded(column.cell)) for column in report.columns)
    return replace(report, samples=(*report.samples, sample), columns=columns)


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
    n, window = (150, 20) if quick else (200_000, 100)
    found: list[Measured] = []
    for setting, (rates, prices) in SETTINGS.items():
        table = ticks(n, rates, seed=1, prices=prices)
        found += _compared(setting, QUERY_6.format(window=window), table, FOUR)
    return tuple(found)


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
    """The time of each segment of a stream, in one run over all segments."""
    whole = frames.opened(pa.concat_tables(segments), _COLUMNS)
    assert whole is not None
    wishes = RunOptions(params={}, evaluator=choice.evaluator, options=choice.options, adaptive=policy)
    prepared = prepare(parse(query), whole.source, wishes)
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
        samples.append(Sample(setting, "", segment.num_rows, Outcome(matches), *spent))
    return samples


def figure_14(quick: bool) -> Report:
    n, window, repeats = (400, 30, 1) if quick else (1_000_000, 100, 5)
    query, segments = QUERY_6.format(window=window), _concatenated(n)
    policy = Adaptive(observed_every=100, seconds_between=0.0) if quick else Adaptive()
    runs: dict[str, list[list[Sample]]] = {variant: [] for variant in (*_FIXED, ADAPTIVE)}
    for _ in range(repeats):
        for variant in runs:  # the fixed plans first, so that the adaptive run finds compiled kernels
            choice, adapts = FOUR.get(variant, Choice()), policy if variant == ADAPTIVE else None
            runs[variant].append(_in_segments(query, segments, choice, adapts))
    samples: list[Sample] = []
    for variant in runs:
        best = [min(segment, key=lambda sample: sample.cpu) for segment in zip(*runs[variant], strict=True)]
        samples += [replace(sample, variant=variant) for sample in best]
        total = Outcome(sum(sample.outcome.matches for sample in best))
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


# --- §6.5: web access -------------------------------------------------------------------------------------------------


@lru_cache(maxsize=2)
def _query_8(quick: bool) -> tuple[Measured, ...]:
    n, hours = (15_000, 28 * 24) if quick else (1_500_000, 10)
    query = QUERY_8.format(window=hours * DAY // 24)
    return _compared(f"{hours} hours", query, weblog(n, seed=1), THREE)


# --- the model against the measurements -------------------------------------------------------------------------------


def rank(quick: bool) -> Report:
    """Over all plans of queries 4 to 6: the estimated cost per event and the measured time."""
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
        Sample(round(cost, 1), name, m.sample.events, m.sample.outcome, m.sample.cpu, m.sample.wall, f"{number}")
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


# --- all of them ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Figure:
    """A figure or table of the paper: measurements and their presentation."""

    name: str
    about: str
    shown: Reported
    measured: Callable[[bool], Sequence[Measured]]
    point: str
    title: str
    paper: str

    def run(self, quick: bool) -> Report:
        return self.shown(self.name, self.title, self.point, self.measured(quick), self.paper)

    def benchmark(self) -> Benchmark:
        return Benchmark(self.name, f"ZStream {self.about}", self.run)


_AGAINST_TOP = partial(_throughput, baseline="negation on top (plan 2)")
_FIGURES = (
    _Figure(
        "zstream-8",
        "figure 8: query 4 by selectivity",
        _throughput,
        _query_4,
        "selectivity",
        "query 4: throughput of plans by the selectivity of IBM.price > Sun.price",
        "the left-deep plan wins by a factor of 5 at 1/32; the NFA is like the right-deep plan.",
    ),
    _Figure(
        "zstream-9",
        "figure 9: its estimated cost",
        _estimates,
        _query_4,
        "selectivity",
        "query 4: 1 / expected cost of plans by selectivity",
        "the cost model predicts the behaviour with varying selectivity.",
    ),
    _Figure(
        "zstream-10",
        "figure 10: query 5 by relative rates",
        _throughput,
        _query_5,
        "IBM:Sun:Oracle",
        "query 5: throughput of plans by relative rates",
        "right-deep is best where IBM is frequent, left-deep where it is rare; the gap is wider where one is rare.",
    ),
    _Figure(
        "zstream-11",
        "figure 11: its estimated cost",
        _estimates,
        _query_5,
        "IBM:Sun:Oracle",
        "query 5: 1 / expected cost of plans by relative rates",
        "the estimates behave as the throughput does.",
    ),
    _Figure(
        "zstream-12",
        "figure 12: query 6 in three settings",
        _throughput,
        _query_6,
        "setting",
        "query 6: throughput of plans in three settings",
        "left-deep and bushy do best where IBM is rare, inner at sel1 (nearly 2x), right-deep and NFA at sel2.",
    ),
    _Figure(
        "zstream-13",
        "figure 13: its estimated cost",
        _estimates,
        _query_6,
        "setting",
        "query 6: 1 / expected cost of plans in three settings",
        "the model predicts the real performance well.",
    ),
    _Figure(
        "zstream-table-3",
        "table 3: memory of query 6",
        _memory,
        lambda quick: [m for m in _query_6(quick) if m.sample.point != "sel2 = 1/50"],
        "setting",
        "query 6: peak memory of plans",
        "from 6.5 to 7.6 MB for all plans, much more stable than their throughput.",
    ),
    _Figure(
        "zstream-15",
        "figure 15: negation by the rate of Oracle",
        _AGAINST_TOP,
        partial(_query_7, varied="Oracle"),
        "rate of Oracle",
        "query 7: NSEQ against negation on top, by the rate of Oracle",
        "NSEQ always wins, by almost an order of magnitude; negation on top gains more from a skew, and NSEQ slows a "
        "little as Oracle's rate grows.",
    ),
    _Figure(
        "zstream-16",
        "figure 16: negation by the rate of Sun",
        _AGAINST_TOP,
        partial(_query_7, varied="Sun"),
        "rate of Sun",
        "query 7: NSEQ against negation on top, by the rate of Sun",
        "NSEQ always wins; negation on top catches up as Sun grows, since there are fewer pairs of IBM and Oracle.",
    ),
    _Figure(
        "zstream-17",
        "figure 17 and table 4: a web log",
        _throughput,
        _query_8,
        "window",
        "query 8: publication, project and course pages from one address",
        "left-deep is much faster, since publications are rarest; the NFA is a little slower than right-deep. Of 1.5 M "
        "accesses, 6,775, 11,610 and 16,083 are of these kinds (table 4).",
    ),
    _Figure(
        "zstream-table-5",
        "table 5: memory of query 8",
        _memory,
        _query_8,
        "window",
        "query 8: peak memory of plans",
        "10.13 MB left-deep, 10.66 MB right-deep, 10.55 MB NFA.",
    ),
)
BENCHMARKS = (
    Benchmark("w3", "target: four stocks, two price predicates", w3),
    *(figure.benchmark() for figure in _FIGURES),
    Benchmark("zstream-14", "ZStream figure 14: the plan adapts", figure_14),
    Benchmark("zstream-rank", "ZStream: the cost model against the measurements", rank),
)
