"""CED on one core: operators of three subevents, nested in place and by name, and with negation, over keyed streams.

Measured through `cepheid.match`, with all matches as rows.
"""

from __future__ import annotations

from functools import partial

import pyarrow as pa

import cepheid
from bench.measure import Outcome, Sample, measure
from bench.report import Benchmark, Report, growth_report
from cepheid.datasets import synthetic

WINDOW = 5_000
_KEY = "a.id = b.id and b.id = c.id"
_ON = "on E1 as a, E2 as b, E3 as c"
QUERIES = {
    "seq": f"complex Q {_ON} event seq(a, b, c; {WINDOW}) where {_KEY}",
    "and": f"complex Q {_ON} event and(a, b, c; {WINDOW}) where {_KEY}",
    "nested": f"complex Q {_ON} event and(seq(a, b; {WINDOW}), c; {WINDOW}) where {_KEY}",
    "nested by name": f"complex P on E1 as a, E2 as b schema id as a.id event seq(a, b; {WINDOW}) where a.id = b.id\n"
    f"complex Q on P as p, E3 as c event and(p, c; {WINDOW}) where p.id = c.id",
    "seq with negation": f"complex Q {_ON} event seq(a, !b, c; {WINDOW}) where a.id = b.id and a.id = c.id",
    "and with negation": f"complex Q {_ON} event and(a, !b, c; {WINDOW}) where a.id = b.id and a.id = c.id",
    "negated seq": f"complex Q {_ON}, E4 as d event seq(a, !seq(b, c; {WINDOW}), d; {WINDOW})"
    f" where {_KEY} and a.id = d.id",
}


def _events(n: int, quick: bool) -> pa.Table:
    return synthetic(n, types=5, domains=(10 if quick else 10_000,), seed=1).rename_columns(["type", "ts", "id"])


def _matched(query: str, table: pa.Table) -> Outcome:
    return Outcome(cepheid.match(query, table).num_rows)


def ced(quick: bool) -> Report:
    n = 900 if quick else 1_000_000
    table = _events(n, quick)
    samples = [measure(name, "through match", n, partial(_matched, q, table)) for name, q in QUERIES.items()]
    return Report(
        "ced",
        "CED's operators over five event types, keyed",
        "event",
        tuple(samples),
        "the target is 3 M events/s for `seq` and `and` of three, half of it nested by name, and 2 M with negation.",
    )


def ced_growth(quick: bool) -> Report:
    samples: list[Sample] = []
    for name, query in QUERIES.items():
        for n in (90, 900) if quick else (200_000, 2_000_000):
            samples.append(measure(f"{n:,}", name, n, partial(_matched, query, _events(n, quick)), question=name))
    return growth_report("ced-growth", "ten times the events of the same keys", samples)


BENCHMARKS = (
    Benchmark("ced", "target: CED's operators, 1 M events", ced),
    Benchmark("ced-growth", "target: CED, ten times the events", ced_growth),
)
