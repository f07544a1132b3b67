"""SASE+ §6: Kleene closure by predicate and strategy, by window, against backtracking, and with equivalent runs merged.

The stream and the template are the paper's: two symbols, prices that rise with probability 0.7, `Stock+ a[], Stock b`.
The windows count the events of a partition. All matches are enumerated, even where the paper turned that off (8(g)).
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import replace
from functools import lru_cache, partial

import pyarrow as pa

from bench.measure import Sample, measure, prepare, require_agreement
from bench.report import Benchmark, Column, Report
from cepheid.datasets import stock

_STRATEGIES = {"s2": "partition_contiguity", "s3": "skip_till_next_match"}
_PREDICATES = {"p1": "", "p2": " and a[i].price > a[i-1].price", "p3": " and a[i].price > min(a[..i-1].price)"}
_ALL_QUERIES = ("p1s2", "p1s3", "p2s2", "p2s3", "p3s2", "p3s3")
_BATCH = 20_000
"""Matches are long, so their positions are consumed batch by batch."""

_BASIC = {"merge": "off"}
_MERGING = {"merge": "on"}
_BACKTRACK = {"algorithm": "backtrack"}


def template(name: str, window: int, output: str = "") -> str:
    """A query of the paper's workload. A star after the predicate adds a third component, as in figure 8(e). The
    paper's smallest window has one start in 500 prices; smaller windows have more."""
    predicate, star, strategy = name[:2], name[2:-2], name[-2:]
    variables, further, condition = "a[], b", "", ""
    if star:
        variables, further = "a[], b, c", ", Stock c"
        condition = " and c.price > a[1].price and c.price < a[a.LEN].price"
    return (
        f"PATTERN SEQ(Stock+ a[], Stock b{further}) WHERE {_STRATEGIES[strategy]}({variables}) {{ [symbol] "
        f"and a[1].price % {min(window, 500)} == 0{_PREDICATES[predicate]} and b.volume < 150{condition} }} "
        f"WITHIN {window} events{output}"
    )


@lru_cache(maxsize=4)
def stream(n: int) -> pa.Table:
    return stock(n, seed=1)


def _sample(
    point: int | str,
    variant: str,
    query: str,
    table: pa.Table,
    options: Mapping[str, str],
    question: str = "",
    repeats: int = 2,
) -> Sample:
    prepared = prepare(query, table, options)
    run = partial(prepared.run, table, _BATCH)
    sample = measure(point, variant, table.num_rows, run, question=question, repeats=repeats)
    counted = {**sample.outcome.counted, "started": prepared.can_begin(table)}
    return replace(sample, outcome=replace(sample.outcome, counted=counted))


# --- counters of the kernel -------------------------------------------------------------------------------------------


def _match_length(sample: Sample) -> str:
    return f"{sample.outcome.length / max(sample.outcome.matches, 1):.3g}"


def _per_event(name: str, title: str) -> Column:
    return Column(title, lambda s: f"{s.outcome.counted[name] / s.events:.3g}" if name in s.outcome.counted else "")


def _share_merged(sample: Sample) -> str:
    """The share of the started runs that were merged into another run."""
    return f"{100 * sample.outcome.counted['merged'] / sample.outcome.counted['started']:.3g}"


# --- §6.1: predicates, strategies, windows ----------------------------------------------------------------------------


def figure_8a(quick: bool) -> Report:
    n, window = (300, 20) if quick else (200_000, 500)
    samples = [_sample(q, "basic", template(q, window), stream(n), _BASIC) for q in _ALL_QUERIES]
    return Report(
        "sase-plus-8a",
        f"throughput by iterator predicate and strategy, W = {window} (and table 2)",
        "query",
        tuple(samples),
        "match length 250, 250, 4.5, 140, 250, 250; runs per time step 2, 2, 0.01, 2, 2, 2; p2s2 and p2s3 differ by an "
        "order of magnitude.",
        columns=(Column("match length", _match_length), _per_event("visited", "runs visited/event")),
    )


@lru_cache(maxsize=2)
def _by_window(quick: bool) -> tuple[Sample, ...]:
    n, windows = (300, (10, 20)) if quick else (200_000, (500, 1_000, 1_500, 2_000))
    queries = [name for name in _ALL_QUERIES if name != "p1s2"]
    return tuple(_sample(w, q, template(q, w), stream(n), _BASIC, question=q) for q in queries for w in windows)


def figure_8b(quick: bool) -> Report:
    return Report(
        "sase-plus-8b",
        "throughput by partition window",
        "W",
        _by_window(quick),
        "the window matters little to p2s2; the throughput of p1s3 and p3s3 decreases quadratically.",
        columns=(Column("match length", _match_length),),
    )


def figure_8c(quick: bool) -> Report:
    samples = tuple(
        sorted((replace(s, point=s.outcome.length) for s in _by_window(quick)), key=lambda s: s.outcome.length)
    )
    return Report(
        "sase-plus-8c",
        "processing cost by output complexity (the lengths of all matches)",
        "events in matches",
        samples,
        "the cost is linear in the output complexity.",
        columns=(Column("CPU seconds", lambda s: f"{s.cpu:.3g}"),),
        value=lambda sample: sample.cpu,
        value_title="CPU seconds",
        log_y=False,
    )


# --- §6.2: backtracking -----------------------------------------------------------------------------------------------


def figure_8d(quick: bool) -> Report:
    n, window = (300, 20) if quick else (50_000, 500)
    samples = []
    for name in _ALL_QUERIES[1:]:
        query = template(name, window)
        samples.append(_sample(name, "backtrack", query, stream(n), _BACKTRACK, repeats=1))
        samples.append(_sample(name, "basic", query, stream(n), _BASIC))
    return Report(
        "sase-plus-8d",
        f"basic against backtrack, all results, W = {window}",
        "query",
        tuple(samples),
        "basic is 200 to 300 times as fast as backtrack, except for p2s2, where it is 1.3 times as fast.",
        baseline="backtrack",
        columns=(_per_event("visited", "runs visited/event"),),
    )


def figure_8e(quick: bool) -> Report:
    n, window = (300, 20) if quick else (50_000, 500)
    samples = []
    for name in ("p3s2", "p3s3", "p3*s2", "p3*s3"):
        query = template(name, window, " OUTPUT NON-OVERLAPPING")
        samples.append(_sample(name, "backtrack", query, stream(n), _BACKTRACK, repeats=1))
        samples.append(_sample(name, "basic", query, stream(n), _BASIC))
    return Report(
        "sase-plus-8e",
        f"basic against backtrack, non-overlapping results, W = {window}",
        "query",
        tuple(samples),
        "both are fast for p3; for p3*s3 basic is an order of magnitude faster than backtrack.",
        baseline="backtrack",
        columns=(_per_event("visited", "runs visited/event"),),
    )


# --- §6.3: merging ----------------------------------------------------------------------------------------------------


def figure_8f(quick: bool) -> Report:
    n, window = (300, 20) if quick else (200_000, 500)
    samples = []
    for name in _ALL_QUERIES:
        query = template(name, window)
        samples.append(_sample(name, "basic", query, stream(n), _BASIC))
        samples.append(_sample(name, "merging", query, stream(n), _MERGING))
    return Report(
        "sase-plus-8f",
        f"merging of equivalent runs, W = {window}",
        "query",
        tuple(samples),
        "merging is 1.5 times as fast for p1s3, 1.4 for p2s3, 1.5 for p3s3; all run at over 10,000 events/s.",
        baseline="basic",
        columns=(Column("runs merged, %", _share_merged), _per_event("visited", "runs visited/event")),
    )


def figure_8g(quick: bool) -> Report:
    n, windows = (300, (10, 20)) if quick else (200_000, (500, 1_000, 1_500, 2_000))
    samples: list[Sample] = []
    gains: dict[tuple[str, Hashable], float] = {}
    for name in ("p1s3", "p2s3", "p3s3"):
        for window in windows:
            query = template(name, window)
            basic = _sample(window, f"{name} basic", query, stream(n), _BASIC, question=name)
            merging = _sample(window, name, query, stream(n), _MERGING, question=name)
            require_agreement([basic, merging])
            gains[name, window] = merging.throughput / basic.throughput
            samples.append(merging)
    return Report(
        "sase-plus-8g",
        "gain of merging by partition window (and table 3)",
        "W",
        tuple(samples),
        "gains of 1.4 to 2.1; runs merged at W = 500: 48%, at W = 2000: 75% (p1s3), 60% (p2s3), 51% (p3s3).",
        columns=(
            Column("x basic", lambda s: f"{gains[s.variant, s.point]:.3g}"),
            Column("runs merged, %", _share_merged),
            _per_event("visited", "runs visited/event"),
        ),
        value=lambda sample: gains[sample.variant, sample.point],
        value_title="throughput of merging / throughput of basic",
        log_y=False,
    )


BENCHMARKS = (
    Benchmark("sase-plus-8a", "SASE+ figure 8(a), table 2: predicates and strategies", figure_8a),
    Benchmark("sase-plus-8b", "SASE+ figure 8(b): partition window", figure_8b),
    Benchmark("sase-plus-8c", "SASE+ figure 8(c): output complexity", figure_8c),
    Benchmark("sase-plus-8d", "SASE+ figure 8(d): basic against backtrack", figure_8d),
    Benchmark("sase-plus-8e", "SASE+ figure 8(e): the same, non-overlapping results", figure_8e),
    Benchmark("sase-plus-8f", "SASE+ figure 8(f): merging of runs", figure_8f),
    Benchmark("sase-plus-8g", "SASE+ figure 8(g), table 3: merging by window", figure_8g),
)
