"""EQL on one core: NEXT's fraud query, and iteration, exception and time over keyed streams.

Measured through `cepheid.match`, with all matches as positions, and in the kernel alone.
"""

from __future__ import annotations

from functools import partial

import pyarrow as pa

import cepheid
from bench.measure import Outcome, Sample, measure, prepare
from bench.report import Benchmark, Report, growth_report
from cepheid.codegen.encoder import Encoder
from cepheid.datasets import cards
from cepheid.runtime.kernel import Batch, Kernel

PIECE = 1 << 16

FRAUD = """SELECT * FROM ( t S1 ; t S2 ; t L )
WHERE FILTER(S1.acc = S2.acc), FILTER(S2.acc = L.acc),
      S1.amount < 100 AND S2.amount < 100 AND
      L.amount > 250 AND (S1, L) OCCURS WITHIN 12 hours"""
QUERIES = {
    "fraud (§1.1)": FRAUD,
    "iteration": "SELECT * FROM t a+ WHERE FILTER(a.acc = PREV(a.acc)), a.amount > PREV(a.amount)",
    "exception": r"SELECT * FROM (t a; t b) \ t c "
    "WHERE FILTER(a.acc = b.acc), a.amount < 50, b.amount > 250, c.acc = a.acc, c.amount > 400",
    "time": r"SELECT * FROM (t a @ 1 hours) \ t b WHERE a.acc = b.acc",
}


def _matched(query: str, table: pa.Table) -> Outcome:
    return Outcome(cepheid.match(query, table, output="positions", time_unit="ms").num_rows)


def _in_kernel(kernel: Kernel, events: Batch) -> Outcome:
    """The kernel alone, over events that are encoded already."""
    state, matches = kernel.initial(), 0
    for start in range(0, len(events), PIECE):
        state, positions = kernel.step(state, events.cut(start, start + PIECE))
        matches += len(positions)
    return Outcome(matches)


def eql(quick: bool) -> Report:
    n, accounts = (900, 10) if quick else (1_000_000, 20_000)
    table = cards(n, accounts, seed=1)
    samples = []
    for name, query in QUERIES.items():
        kernel = prepare(query.replace("12 hours", "43200000").replace("1 hours", "3600000"), table).kernel
        encoder = Encoder(kernel.plan, "type", "ts", kernel.texts, kernel.needs_ranks)
        events = encoder.encode(table.combine_chunks().to_batches()[0])
        samples.append(measure(name, "through match", n, partial(_matched, query, table)))
        samples.append(measure(name, "kernel alone", n, partial(_in_kernel, kernel, events), question="kernel"))
    return Report(
        "eql",
        "EQL over credit card transactions, keyed by account",
        "query",
        tuple(samples),
        "the target is 4 M events/s for the fraud query (8 M in the kernel alone), and 2 M for the others; NEXT's data "
        "rate is 2,100 transactions/s.",
    )


def eql_growth(quick: bool) -> Report:
    sizes = (90, 900) if quick else (200_000, 2_000_000)
    samples: list[Sample] = []
    for name, query in QUERIES.items():
        for n in sizes:
            table = cards(n, 10 if quick else 20_000, seed=1)
            samples.append(measure(f"{n:,}", name, n, partial(_matched, query, table), question=name))
    return growth_report("eql-growth", "ten times the events of the same accounts", samples)


BENCHMARKS = (
    Benchmark("eql", "target: EQL's operators, 1 M transactions", eql),
    Benchmark("eql-growth", "target: EQL, ten times the events", eql_growth),
)
