"""Composition on one core: a query over the matches of another, beside its two parts run one after the other.

The second part reads the merged events from memory, with a start column. The target is 1.3 times the sum of the parts.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import pyarrow as pa

import cepheid
from bench.measure import REPEATS, Outcome, Sample, Variant, interleaved, measure
from bench.report import Benchmark, Column, Report, growth_report

WINDOW = 2_000
INNER = f"EVENT SEQ(A x, B y) WHERE [id] AND x.v < y.v WITHIN {WINDOW} RETURN x.id AS id, x.v AS v, y.v AS w"
_KEY = "p.id = c.id AND p.w < c.v"
OUTER = {
    "SASE, 2 components": f"EVENT SEQ(P p, C c) WHERE {_KEY} WITHIN {2 * WINDOW} RETURN p.v AS a, c.v AS b",
    "SASE, 4 components": f"EVENT SEQ(P p, C c, D d, A a) WHERE {_KEY} AND c.id = d.id AND d.id = a.id AND a.v < d.v "
    f"WITHIN {2 * WINDOW} RETURN p.v AS a, c.v AS b",
    "SASE, negation": f"EVENT SEQ(P p, !(D d), C c) WHERE [id] WITHIN {2 * WINDOW} RETURN p.v AS a, c.v AS b",
    "SASE+": "PATTERN SEQ(P p, C+ c[]) WHERE skip_till_next_match(p, c[]) { [id] and c[i].v > c[i-1].v } "
    f"WITHIN {2 * WINDOW} RETURN p.v AS a",
    "EQL": "SELECT p.v AS a, c.v AS b FROM P p; C c WHERE FILTER(p.id = c.id), p.w < c.v, "
    f"(p, c) OCCURS WITHIN {2 * WINDOW}",
}
"""Queries of several languages over the matches of the SASE query."""


def _events(n: int, keys: int) -> pa.Table:
    rng = np.random.default_rng(1)
    types = pa.array(np.array(["A", "B", "C", "D"])[rng.integers(0, 4, n)]).dictionary_encode()
    columns = {"ts": np.arange(n), "id": rng.integers(0, keys, n), "v": rng.random(n)}
    return pa.table({"type": types, **columns})


def _merged(events: pa.Table, derived: pa.Table) -> pa.Table:
    """The events with those that the inner query derives, as an input of its own."""
    count = derived.num_rows
    points = events.append_column("start", events["ts"]).append_column("w", pa.nulls(events.num_rows, pa.float64()))
    names = ["type", "ts", "start", "id", "v", "w"]
    times = [derived["match_end"], derived["match_start"]]
    others = [derived["id"], derived["v"], derived["w"]]
    made = pa.table([pa.array(["P"] * count, pa.string()), *times, *others], names=names)
    plain = points.set_column(0, "type", points["type"].cast(pa.string())).select(names)
    both = pa.concat_tables([plain, made.cast(plain.schema)])
    ordered = both.sort_by([("ts", "ascending"), ("start", "ascending")]).combine_chunks()
    return ordered.set_column(0, "type", ordered["type"].combine_chunks().dictionary_encode())


def _matched(query: str, table: pa.Table, start_column: str | None = None) -> Outcome:
    return Outcome(cepheid.match(query, table, start_column=start_column).num_rows)


def composition(quick: bool) -> Report:
    n, keys = (900, 10) if quick else (1_000_000, 1_000)
    table = _events(n, keys)
    merged = _merged(table, cepheid.match(INNER, table))
    samples: list[Sample] = []
    for point, outer in OUTER.items():
        variants = [
            Variant(point, "composed", n, partial(_matched, f"P: {INNER}\nQ: {outer}", table), question="composed"),
            Variant(point, "inner alone", n, partial(_matched, INNER, table), question="inner"),
            Variant(point, "outer alone", n, partial(_matched, outer, merged, "start"), question="composed"),
        ]
        samples += interleaved(variants, repeats=1 if quick else 2 * REPEATS)
    return Report(
        "composition",
        "A query over the matches of another, and its parts",
        "query",
        tuple(samples),
        "the target is at most 1.3 times the sum of the parts.",
        columns=(Column("x the sum of the parts", lambda s: _of_parts(s, samples)),),
        value=lambda sample: sample.microseconds,
        value_title="microseconds per event (CPU)",
    )


def composition_growth(quick: bool) -> Report:
    sizes = (90, 900) if quick else (200_000, 2_000_000)
    samples: list[Sample] = []
    for name, outer in OUTER.items():
        for n in sizes:
            table = _events(n, 10 if quick else 1_000)
            run = partial(_matched, f"P: {INNER}\nQ: {outer}", table)
            samples.append(measure(f"{n:,}", name, n, run, question=name))
    return growth_report("composition-growth", "ten times the events of the same keys, composed", samples)


def _of_parts(sample: Sample, samples: list[Sample]) -> str:
    parts = sum(s.cpu for s in samples if s.point == sample.point and s.variant != "composed")
    return f"{sample.cpu / parts:.2f}" if sample.variant == "composed" else ""


BENCHMARKS = (
    Benchmark("composition", "target: two queries, composed and apart", composition),
    Benchmark("composition-growth", "target: composition, ten times the events", composition_growth),
)
