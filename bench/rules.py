"""Many rules over one card stream (NEXT §1.1) on one core: one after the other, and in one pass.

The targets: 100 rules in one pass at least 20 times as fast as one after the other; 10,000 rules at 200,000 events per
second, at less than 10 times the cost of 100, and loaded in 30 seconds.
"""

from __future__ import annotations

import time
from functools import partial

import pyarrow as pa

import cepheid
from bench.measure import Outcome, Variant, interleaved
from bench.report import Benchmark, Report, rate
from cepheid import datasets
from cepheid.deploy.deployment import Deployment, Written, deploy
from cepheid.deploy.run import run
from cepheid.engine.prepare import RunOptions
from cepheid.io import frames
from cepheid.io.inputs import Columns
from cepheid.io.source import Source

UNIT = "ms"
APART = "one after the other"


def _alone(rules: dict[str, str], table: pa.Table) -> Outcome:
    return Outcome(sum(cepheid.match(text, table, time_unit=UNIT).num_rows for text in rules.values()))


def _together(rules: dict[str, str], table: pa.Table) -> Outcome:
    return Outcome(sum(found.num_rows for found in cepheid.match(rules, table, time_unit=UNIT)))


def _planned(deployment: Deployment, source: Source) -> Outcome:
    return Outcome(sum(batch.num_rows for found in run(deployment, source) for batch in found.batches))


def card_rules(count: int, quick: bool) -> dict[str, str]:
    """The rules; over a small stream first one that finds something."""
    frequent = {"frequent": "SELECT * FROM (t A; t B) WHERE FILTER(A.acc = B.acc), A.amount < 90 AND B.amount > 90"}
    return {**(frequent if quick else {}), **datasets.fraud_rules(count)}


def rules(quick: bool) -> Report:
    n, many = (500, 30) if quick else (1_000_000, 10_000)
    few, table = (10, datasets.cards(n, accounts=4)) if quick else (100, datasets.cards(n))
    some = card_rules(few, quick)
    opened = frames.opened(table, Columns("type", "ts"))
    assert opened is not None
    loading, planned = "", dict[int, Deployment]()
    for count in (few, many):
        began = time.process_time()
        written = {name: Written(name, text) for name, text in card_rules(count, quick).items()}
        planned[count] = deploy(written, opened.source, RunOptions(time_unit=UNIT))
        loading += f" {count:,} rules are loaded in {time.process_time() - began:.1f} s."
    samples = interleaved(
        [
            Variant(few, APART, n, partial(_alone, some, table), "few"),
            Variant(few, "one pass, with planning", n, partial(_together, some, table), "few"),
            Variant(few, "one pass", n, partial(_planned, planned[few], opened.source), "few"),
            Variant(many, "one pass", n, partial(_planned, planned[many], opened.source), "many"),
        ],
        repeats=5,
    )
    apart, *_, together, of_many = samples
    return Report(
        "rules",
        "Fraud rules over one card stream",
        "rules",
        tuple(samples),
        f"{few:,} rules in one pass are {apart.cpu / together.cpu:.1f} times as fast as one after the other (target "
        f"20); {many:,} rules take {rate(of_many.throughput)} events/s on one core (target 200 k) and "
        f"{of_many.cpu / together.cpu:.1f} times the cost of {few:,} (target at most 10).{loading}",
        baseline=APART,
        value=lambda sample: sample.microseconds,
        value_title="microseconds per event (CPU)",
    )


BENCHMARKS = (Benchmark("rules", "target: many rules over one card stream, together and apart", rules),)
