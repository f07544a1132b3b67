"""SASE §5: active instance stacks against the basic plan, predicates in and after sequence construction, the growth of
cost with the sequence's length and with the domain of the equivalence attribute.

The streams have 20 types, uniformly distributed, and the windows count events, as in the paper's tables 1 and 2.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from bench.joins import sequence_by_joins
from bench.measure import REPEATS, Sample, measure, prepare
from bench.report import Benchmark, Column, Report, counted
from cepheid.datasets import synthetic

Variants = Mapping[str, Mapping[str, str]]


@dataclass(frozen=True, slots=True)
class Load:
    """The parameters of a load: the length of the stream, its types and the window."""

    events: int
    types: int = 20
    window: int = 10_000

    def query(self, tests: str = "[attr1]", length: int = 3) -> str:
        components = ", ".join(f"E{i + 1}" for i in range(length))
        where = f" WHERE {tests}" if tests else ""
        return f"EVENT SEQ({components}){where} WITHIN {self.window}"

    def stream(self, domain: int, second_domain: int = 20, types: int | None = None) -> pa.Table:
        return synthetic(self.events, types or self.types, (domain, second_domain), seed=1)

    def stream_without_test(self, domain: int) -> pa.Table:
        """The paper omits the equivalence test in its comparison of AIS. More types instead keep the number of matches
        low."""
        return self.stream(domain, types=round(self.types * domain ** (2 / 3)))


_QUICK = Load(500, 4, 80)


def _compared(
    point: int, query: str, table: pa.Table, variants: Variants, question: str = "", repeats: int = REPEATS
) -> list[Sample]:
    samples = []
    for name, options in variants.items():
        run = partial(prepare(query, table, options).run, table)
        samples.append(measure(point, name, table.num_rows, run, question=question, repeats=repeats))
    return samples


# --- §5.2: sequence construction --------------------------------------------------------------------------------------

_CONSTRUCTION: Variants = {"basic": {"algorithm": "basic"}, "AIS": {"equalities": "none"}}


def figure_8(quick: bool) -> Report:
    load, domains = (_QUICK, (10, 100)) if quick else (Load(200_000), (100, 300, 1_000, 3_000, 10_000))
    samples = [s for v in domains for s in _compared(v, load.query(""), load.stream_without_test(v), _CONSTRUCTION)]
    return Report(
        "sase-8",
        "AIS against the basic plan, by domain size",
        "V1",
        tuple(samples),
        "AIS is 18 times as fast as Basic at V1 = 100; they become close at 10,000.",
        baseline="basic",
        log_x=True,
    )


def figure_9(quick: bool) -> Report:
    events, domain, windows = (500, 10, (50, 200)) if quick else (300_000, 10_000, (10_000, 30_000, 60_000, 100_000))
    samples = []
    for window in windows:
        load = Load(events, window=window)
        samples += _compared(window, load.query(""), load.stream_without_test(domain), _CONSTRUCTION)
    return Report(
        "sase-9",
        "AIS against the basic plan, by window size",
        "W",
        tuple(samples),
        "as W grows, Basic loses throughput much faster than AIS; its construction costs W, that of AIS does not.",
        baseline="basic",
    )


# --- §5.3: predicates -------------------------------------------------------------------------------------------------


def first_equivalence(quick: bool) -> Report:
    load, domains = (_QUICK, (10, 100)) if quick else (Load(50_000), (10, 100, 1_000, 10_000))
    variants: Variants = {"selection": {"equalities": "none", "others": "late"}, "PAIS": {}}
    samples = [s for v in domains for s in _compared(v, load.query(), load.stream(v), variants, repeats=1)]
    return Report(
        "sase-pais",
        "the first equivalence test in the scan (PAIS) against selection after construction",
        "V1",
        tuple(samples),
        "selection could not complete the experiment, because of hundreds of millions of intermediate results.",
        baseline="selection",
        columns=(counted("predicates", "predicates/event"),),
        log_x=True,
    )


_SECOND_TEST: Variants = {
    "selection": {"equalities": "first", "others": "late"},
    "Multi-PAIS": {"equalities": "first", "others": "multi"},
    "dynamic filtering": {"equalities": "first", "others": "early"},
    "both hashed": {"equalities": "hashed"},
}
"""The last variant is not in the paper: stacks partitioned by both attributes, the default of Cepheid."""


def figure_10(quick: bool) -> Report:
    return _second_equivalence(
        "sase-10",
        quick,
        20,
        "dynamic filtering wins by a wide margin for V1 <= 500, Multi-PAIS is worse than selection; above, all "
        "three perform alike.",
    )


def figure_10_less_selective(quick: bool) -> Report:
    return _second_equivalence("sase-10-v5", quick, 5, "the overhead of Multi-PAIS is magnified where V2 = 5.")


def _second_equivalence(name: str, quick: bool, second_domain: int, paper: str) -> Report:
    load, domains = (_QUICK, (10, 100)) if quick else (Load(200_000), (10, 30, 100, 300, 1_000, 10_000))
    query = load.query("[attr1] AND [attr2]")
    samples = [s for v in domains for s in _compared(v, query, load.stream(v, second_domain), _SECOND_TEST)]
    return Report(
        name,
        f"three strategies for a second equivalence test, V2 = {second_domain}",
        "V1",
        tuple(samples),
        paper,
        baseline="selection",
        columns=(counted("predicates", "predicates per 10,000", per=10_000),),
        log_x=True,
    )


def further_predicates(quick: bool) -> Report:
    load, domains = (_QUICK, (5, 20)) if quick else (Load(200_000), (10, 100, 1_000))
    variants: Variants = {"selection": {"others": "late"}, "in construction": {"others": "early"}}
    simple, parameterised = "E3.ts % 2 = 0", "E1.attr2 > E3.attr2"
    samples = []
    for domain in domains:
        table = load.stream(domain)
        samples += _compared(domain, load.query(f"[attr1] AND {simple} AND {parameterised}"), table, variants)
    return Report(
        "sase-predicates",
        "a simple predicate, and a parameterised one in and after sequence construction",
        "V1",
        tuple(samples),
        "once equivalence tests and simple predicates are pushed down, others in selection cost little (experiment 4).",
        baseline="selection",
        columns=(counted("predicates", "predicates/event"),),
        log_x=True,
    )


def window_push_down(quick: bool) -> Report:
    load, domains = (_QUICK, (10, 100)) if quick else (Load(100_000), (100, 1_000, 10_000))
    variants: Variants = {"window last": {"window": "late"}, "window pushed down": {"window": "early"}}
    samples = [s for v in domains for s in _compared(v, load.query(), load.stream(v), variants)]
    return Report(
        "sase-window",
        "the window in scan and construction against the window on complete sequences",
        "V1",
        tuple(samples),
        "pushing windows down to both scan and construction is effective (5.3, other experiments; no figure).",
        baseline="window last",
        columns=(counted("peak_retained", "peak of retained events", per=load.events),),
        log_x=True,
    )


# --- §5.4: against a relational stream processor ----------------------------------------------------------------------


def _normalised(samples: list[Sample], lightest: int) -> Column:
    """The normalised throughput of the paper: relative to the lightest load of the same system."""
    light = {s.variant: s.throughput for s in samples if s.point == lightest}
    return Column("normalised", lambda sample: f"{sample.throughput / light[sample.variant]:.3g}")


def figure_11(quick: bool) -> Report:
    load, lengths, domain = (_QUICK, (2, 3), 10) if quick else (Load(100_000), (2, 3, 4, 5, 6), 100)
    table = load.stream(domain)
    samples = []
    for length in lengths:
        samples += _compared(length, load.query(length=length), table, {"Cepheid": {}})
        joins = partial(sequence_by_joins, table, length, ["attr1"], load.window)
        samples.append(measure(length, "joins", load.events, joins, repeats=1))
    light = {s.variant: s.throughput for s in samples if s.point == lengths[0]}
    return Report(
        "sase-11",
        f"normalised throughput by sequence length, V1 = {domain}",
        "L",
        tuple(samples),
        "SASE falls gracefully to 0.5 at L = 6; TelegraphCQ drops sharply after L = 2 and is under 0.01 from L = 5.",
        columns=(_normalised(samples, lengths[0]),),
        value=lambda sample: sample.throughput / light[sample.variant],
        value_title="throughput / throughput at L = 2",
    )


def figure_12(quick: bool) -> Report:
    load, domains = (_QUICK, (10, 100)) if quick else (Load(100_000), (10, 30, 100, 300, 1_000, 10_000))
    tests = {"1 equivalence": ("attr1",), "2 equivalences": ("attr1", "attr2")}
    samples = []
    for domain in domains:
        table = load.stream(domain)
        for name, attributes in tests.items():
            query = load.query(" AND ".join(f"[{a}]" for a in attributes))
            samples += _compared(domain, query, table, {f"Cepheid, {name}": {}}, question=name)
            joins = partial(sequence_by_joins, table, 3, attributes, load.window)
            samples.append(measure(domain, f"joins, {name}", load.events, joins, question=name, repeats=1))
    light = {s.variant: s.throughput for s in samples if s.point == domains[-1]}
    return Report(
        "sase-12",
        "normalised throughput by domain size, one and two equivalence tests, V2 = 20",
        "V1",
        tuple(samples),
        "as V1 falls from 10,000 to 10, TelegraphCQ drops much faster than SASE; the second test helps SASE far more.",
        columns=(_normalised(samples, domains[-1]),),
        value=lambda sample: sample.throughput / light[sample.variant],
        value_title="throughput / throughput at the largest V1",
        log_x=True,
    )


BENCHMARKS = (
    Benchmark("sase-8", "SASE figure 8: AIS against the basic plan, by domain size", figure_8),
    Benchmark("sase-9", "SASE figure 9: AIS against the basic plan, by window size", figure_9),
    Benchmark("sase-pais", "SASE §5.3: the first equivalence test in the scan", first_equivalence),
    Benchmark("sase-10", "SASE figure 10: strategies for a second equivalence test", figure_10),
    Benchmark("sase-10-v5", "SASE figure 10 with a less selective second test", figure_10_less_selective),
    Benchmark("sase-predicates", "SASE experiment 4: further predicates", further_predicates),
    Benchmark("sase-window", "SASE §5.3: windows in scan and construction", window_push_down),
    Benchmark("sase-11", "SASE figure 11: sequence length, against joins", figure_11),
    Benchmark("sase-12", "SASE figure 12: domain size, against joins", figure_12),
)
