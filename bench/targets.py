"""The speed targets on one core: events in Arrow memory, all matches as positions.

Measured through `cepheid.match`, including parsing, planning and the encoding of Arrow columns.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

import cepheid
from bench.handwritten import three_of_a_key
from bench.joins import sequence_by_joins
from bench.measure import Outcome, Sample, measure, oracle, prepare
from bench.report import Benchmark, Column, Report, counted
from cepheid.datasets import cards, retail, stock, synthetic

THROUGH_API = "Cepheid"
ORACLE_EVENTS = 1_000


def _matched(query: str, table: pa.Table, time_unit: str | None = None) -> Outcome:
    found = cepheid.match(query, table, output="positions", time_unit=time_unit)
    return Outcome(found.num_rows)


def _measured(point: int | str, variant: str, query: str, table: pa.Table, time_unit: str | None = None) -> Sample:
    return measure(point, variant, table.num_rows, partial(_matched, query, table, time_unit))


def _floor(point: int | str, query: str, table: pa.Table) -> Sample:
    """The oracle over the beginning of the stream."""
    part = table.slice(0, min(ORACLE_EVENTS, table.num_rows // 3))
    return measure(point, "oracle", part.num_rows, partial(oracle, query, part), repeats=1, warm=False)


# --- W1 ---------------------------------------------------------------------------------------------------------------


def w1(quick: bool) -> Report:
    n, types, window, domains = (900, 4, 100, (10, 30)) if quick else (1_000_000, 20, 10_000, (100, 10_000))
    query = f"EVENT SEQ(E1, E2, E3) WHERE [attr1] WITHIN {window}"
    samples = []
    for domain in domains:
        table = synthetic(n, types, (domain,), seed=1)
        encoded = table.set_column(0, "type", table["type"].dictionary_encode())
        plain = _measured(domain, "Cepheid, string types", query, table)
        by_hand = partial(three_of_a_key, domain=domain, window=window, matches=plain.outcome.matches)
        samples += [
            plain,
            measure(domain, "loop by hand, string types", n, partial(by_hand, table)),
            _measured(domain, "Cepheid, dictionary types", query, encoded),
            measure(domain, "loop by hand, dictionary types", n, partial(by_hand, encoded)),
            measure(domain, "joins", n, partial(sequence_by_joins, table, 3, ["attr1"], window), repeats=1),
            _floor(domain, query, table),
        ]
    return Report(
        "w1",
        "SEQ(E1, E2, E3), one equivalence test, window of 10,000 events",
        "V1",
        tuple(samples),
        "the target is 10 M events/s; SASE reports 40,000 events/s for a highly complex query, on hardware of 2006.",
        baseline="joins",
        log_x=True,
    )


def w1_pandas(quick: bool) -> Report:
    """W1 from a pandas DataFrame to a pandas DataFrame."""
    n, types, domain, window = (900, 4, 10, 100) if quick else (1_000_000, 20, 100, 10_000)
    table = synthetic(n, types, (domain,), seed=1)
    plain, backed = table.to_pandas(), table.to_pandas(types_mapper=pd.ArrowDtype)
    query = f"EVENT SEQ(E1 x, E2 y, E3 z) WHERE [attr1] WITHIN {window}"
    columns = f"{query} RETURN x.ts AS first, z.ts AS last, x.attr1 AS key"
    variants = {
        "Arrow table": (query, table, "events"),
        "Arrow-backed columns": (query, backed, "events"),
        "Arrow-backed columns, RETURN columns": (columns, backed, "events"),
        "NumPy columns, positions": (query, plain, "positions"),
        "NumPy columns, RETURN columns": (columns, plain, "events"),
        "NumPy columns, dictionaries": (query, plain, "events"),
    }

    def found(query: str, events: Any, output: str) -> Outcome:
        return Outcome(len(cepheid.match(query, events, output=output)))

    return Report(
        "w1-pandas",
        "W1 from pandas to pandas",
        "V1",
        tuple(measure(domain, name, n, partial(found, *of)) for name, of in variants.items()),
        "the targets are 3 M events/s with Arrow-backed columns or flat output, and 0.7 M with dictionaries.",
        baseline="Arrow table",
    )


# --- W2 ---------------------------------------------------------------------------------------------------------------


def w2(quick: bool) -> Report:
    n, windows = (600, (20,)) if quick else (200_000, (500,))
    samples = []
    for window in windows:
        query = (
            "PATTERN SEQ(Stock+ a[], Stock b) WHERE skip_till_next_match(a[], b) { [symbol] and a[1].price % 500 == 0 "
            f"and a[i].price > a[i-1].price and b.volume < 150 }} WITHIN {window} events"
        )
        table = stock(n, seed=1)
        samples += [_measured(window, THROUGH_API, query, table), _floor(window, query, table)]
    return Report(
        "w2",
        "Stock+ a[], Stock b: skip till next match, p2",
        "W",
        tuple(samples),
        "the target is 1.5 M events/s; SASE+ ran the query, with merging, at over 10,000 events/s on hardware of 2008.",
        baseline="oracle",
    )


# --- W4, W5 -----------------------------------------------------------------------------------------------------------

_HALF_A_DAY = 43_200_000
_SMALL_SMALL_LARGE = "[acc] and s1.amount < 100 and s2.amount < 100 and l.amount > 250"


def w4(quick: bool) -> Report:
    n, accounts = (900, 10) if quick else (2_000_000, 20_000)
    table = cards(n, accounts, seed=1)
    queries = {
        "all combinations (SASE)": f"EVENT SEQ(t s1, t s2, t l) WHERE {_SMALL_SMALL_LARGE} WITHIN {_HALF_A_DAY}",
        "skip till next match": _in_account("skip_till_next_match"),
        "partition contiguity": _in_account("partition_contiguity"),
    }
    samples = []
    for strategy, query in queries.items():
        samples += [_measured(strategy, THROUGH_API, query, table), _floor(strategy, query, table)]
    return Report(
        "w4",
        "small, small, large transactions of one account within 12 hours",
        "strategy",
        tuple(samples),
        "the target is 5 M events/s; NEXT's data rate is 2,100 transactions/s.",
        baseline="oracle",
    )


def _in_account(strategy: str, window: int = _HALF_A_DAY, further: str = "") -> str:
    tests = _SMALL_SMALL_LARGE + further
    return f"PATTERN SEQ(t s1, t s2, t l) WHERE {strategy}(s1, s2, l) {{ {tests} }} WITHIN {window}"


def _shoplifting(window: int) -> str:
    return f"EVENT SEQ(Shelf x, !(Register y), Exit z) WHERE [tag_id] WITHIN {window}"


def w5(quick: bool) -> Report:
    n, tags, windows = (900, 30, (100, 500)) if quick else (1_000_000, 50_000, (10_000, 100_000, 1_000_000))
    table = retail(n, tags, seed=1)
    samples = []
    for window in windows:
        query = _shoplifting(window)
        samples += [_measured(window, THROUGH_API, query, table), _floor(window, query, table)]
    return Report(
        "w5",
        "Shelf, no Register, Exit of one tag",
        "W",
        tuple(samples),
        "the target is 5 M events/s.",
        baseline="oracle",
        log_x=True,
    )


# --- flatness ---------------------------------------------------------------------------------------------------------


def window_growth(quick: bool) -> Report:
    """Ten times the window with ten times the keys: about as many matches, ten times the partial matches. Also ten
    times the window alone, for a query without matches."""
    n, types, window, domain, tags = (600, 4, 30, 10, 30) if quick else (1_000_000, 20, 10_000, 1_000, 20_000)
    samples = []
    for factor in (1, 10):
        sequence = f"EVENT SEQ(E1, E2, E3) WHERE [attr1] WITHIN {factor * window}"
        samples.append(_measured(factor, "sequence", sequence, synthetic(n, types, (factor * domain,), seed=1)))
        shoplifting = _shoplifting(factor * window)
        samples.append(_measured(factor, "negation", shoplifting, retail(n, factor * tags, seed=1)))
        in_account = partial(_in_account, "skip_till_next_match", factor * _HALF_A_DAY)
        accounts = cards(2 * n, factor * tags, seed=1)
        samples.append(_measured(factor, "skip till next match", in_account(), accounts))
        never = in_account(" and l.country = 'nowhere'")
        same = cards(2 * n, tags, seed=1)
        samples.append(_measured(factor, "skip till next match, no matches, the same keys", never, same))
    return _growth("flat-window", "cost per event when window and number of keys grow tenfold", "factor", samples)


def stream_growth(quick: bool) -> Report:
    n, types, window, domain, tags = (200, 4, 30, 10, 30) if quick else (1_000_000, 20, 10_000, 1_000, 20_000)
    samples = []
    for factor in (1, 10):
        sequence = f"EVENT SEQ(E1, E2, E3) WHERE [attr1] WITHIN {window}"
        samples.append(_measured(factor, "sequence", sequence, synthetic(factor * n, types, (domain,), seed=1)))
        samples.append(_measured(factor, "negation", _shoplifting(window), retail(factor * n, tags, seed=1)))
    return _growth("flat-stream", "cost per event when the stream grows tenfold", "factor", samples)


def _growth(name: str, title: str, point: str, samples: list[Sample]) -> Report:
    numbered = tuple(replace(sample, question=sample.variant) for sample in samples)
    before = {s.variant: s.microseconds for s in numbered if s.point == 1}
    return Report(
        name,
        title,
        point,
        numbered,
        "the target is a cost per event within a factor of 1.3.",
        value=lambda sample: sample.microseconds / before[sample.variant],
        value_title="cost per event, times the first",
        log_y=False,
        columns=(Column("cost", lambda sample: f"{sample.microseconds / before[sample.variant]:.2f}"),),
    )


# --- every event starts a run -----------------------------------------------------------------------------------------


def _starts(n: int, alarms: int) -> pa.Table:
    """Events of two keys. All may start a run; `flag` is 1 in a few and never 2; values of `ref` rarely repeat."""
    rng = np.random.default_rng(1)
    flag = np.zeros(n, np.int64)
    flag[rng.choice(n, alarms, replace=False)] = 1
    return pa.table(
        {
            "type": pa.array(["T"]).take(pa.array(np.zeros(n, np.int64))),
            "ts": np.arange(n),
            "key": np.arange(n) % 2,
            "flag": flag,
            "ref": rng.integers(1_000 * n, size=n),
        }
    )


def open_runs(quick: bool) -> Report:
    n, starts = (500, (10, 50)) if quick else (400_000, (1_000, 10_000, 100_000))
    table = _starts(n, 5)
    samples = []
    for number in starts:
        window = 2 * number
        questions = {
            "stacks, single-event": "EVENT SEQ(T a, T b, T c) WHERE [key] AND b.flag = 1 AND c.flag = 2 WITHIN {w}",
            "stacks, equality": "EVENT SEQ(T a, T b) WHERE [key] AND a.ref = b.ref WITHIN {w}",
            "runs, single-event": "PATTERN SEQ(T a, T b, T c) WHERE skip_till_next_match(a, b, c) "
            "{{ [key] and b.flag = 1 and c.flag = 2 }} WITHIN {w}",
            "runs, equality": "PATTERN SEQ(T a, T b) WHERE skip_till_next_match(a, b) "
            "{{ [key] and a.ref = b.ref }} WITHIN {w}",
            "any_runs, single-event": "PATTERN SEQ(T a, T+ b[], T c) WHERE skip_till_any_match(a, b[], c) "
            "{{ [key] and b[1].flag = 1 and b[i].flag = 1 and c.flag = 2 }} WITHIN {w}",
        }
        for variant, template in questions.items():
            run = partial(prepare(template.format(w=window), table).run, table)
            samples.append(measure(number, variant, n, run, question=variant))
    return Report(
        "open-runs",
        "every event starts a run: cost per event by the number of starts of a key in the window",
        "starts of a key",
        tuple(samples),
        "work per event must not be linear in the number of open runs.",
        columns=(counted("partial_matches", "partial matches/event"), counted("predicates", "predicates/event")),
        value=lambda sample: sample.microseconds,
        value_title="microseconds per event (CPU)",
        log_x=True,
    )


BENCHMARKS = (
    Benchmark("w1", "target: a sequence of three, 1 M events", w1),
    Benchmark("w1-pandas", "target: W1 from pandas to pandas", w1_pandas),
    Benchmark("w2", "target: Kleene closure over stock ticks", w2),
    Benchmark("w4", "target: card fraud, 2 M transactions", w4),
    Benchmark("w5", "target: shoplifting, 1 M readings", w5),
    Benchmark("flat-window", "target: the window grows tenfold", window_growth),
    Benchmark("flat-stream", "target: the stream grows tenfold", stream_growth),
    Benchmark("open-runs", "target: 100,000 open runs of a key", open_runs),
)
