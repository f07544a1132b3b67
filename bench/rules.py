"""Many rules over one card stream (NEXT §1.1) on one core: one after the other, and in one pass.

The targets: 100 rules in one pass at least 20 times as fast as one after the other; 10,000 rules at 200,000 events per
second, at less than 10 times the cost of 100, and loaded in 30 seconds.
"""

from __future__ import annotations

import time
from functools import partial

import pyarrow as pa

import cepheid
from bench.measure import Outcome, measure
from bench.report import Benchmark, Report
from cepheid import datasets
from cepheid.deploy.deployment import Deployment, Written, deploy
from cepheid.deploy.run import run
from cepheid.engine.prepare import RunOptions
from cepheid.io import frames
from cepheid.io.inputs import Columns
from cepheid.io.source import Source

UNIT = "ms"


def _alone(rules: dict[str, str], table: pa.Table) -> Outcome:
    return Outcome(sum(cepheid.match(text, table, time_unit=UNIT).num_rows for text in rules.values()))


def _together(rules: dict[str, str], table: pa.Table) -> Outcome:
    return Outcome(sum(found.num_rows for found in cepheid.match(rules, table, time_unit=UNIT)))


def _planned(deployment: Deployment, source: Source) -> Outcome:
    return Outcome(sum(batch.num_rows for found in run(deployment, source) for batch in found.batches))


def _rules(count: int, quick: bool) -> dict[str, str]:
    """The rules; over a small stream also one that finds something."""
    frequent = {"frequent": "SELECT * FROM (t A; t B) WHERE FILTER(A.acc = B.acc), A.amount < 90 AND B.amount > 90"}
    return {**datasets.fraud_rules(count), **(frequent if quick else {})}


def rules(quick: bool) -> Report:
    n, many = (500, 30) if quick else (1_000_000, 10_000)
    few, table = (10, datasets.cards(n, accounts=4)) if quick else (100, datasets.cards(n))
    some = _rules(few, quick)
    samples = [
        measure(few, "one after the other", n, partial(_alone, some, table), question="few"),
        measure(few, "one pass, with planning", n, partial(_together, some, table), question="few"),
    ]
    loading = ""
    for count in (few, many):
        opened = frames.opened(table, Columns("type", "ts"))
        assert opened is not None
        began = time.process_time()
        written = {name: Written(name, text) for name, text in _rules(count, quick).items()}
        deployment = deploy(written, opened.source, RunOptions(time_unit=UNIT))
        loading += f" {count:,} rules are loaded in {time.process_time() - began:.1f} s."
        question = "few" if count == few else "many rules"
        samples.append(measure(count, "one pass", n, partial(_planned, deployment, opened.source), question=question))
    return Report(
        "rules",
        "Fraud rules over one card stream",
        "rules",
        tuple(samples),
        f"the targets are a twentieth of one after the other, and 5 microseconds for 10,000 rules.{loading}",
        value=lambda sample: sample.microseconds,
        value_title="microseconds per event (CPU)",
    )


BENCHMARKS = (Benchmark("rules", "target: many rules over one card stream, together and apart", rules),)
