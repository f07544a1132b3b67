"""Many rules over one card stream (NEXT §1.1) on one core: one after the other, and in one pass.

The targets: 100 rules in one pass at least 20 times as fast as one after the other; 10,000 rules at 200,000 events per
second, at less than 10 times the cost of 100, and loaded in 30 seconds.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
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
APART, TOGETHER = "one after the other", "one pass"
PLANNED = "{}, planned before"


def _alone(rules: dict[str, str], table: pa.Table) -> Outcome:
    return Outcome(sum(cepheid.match(text, table, time_unit=UNIT).num_rows for text in rules.values()))


def _together(rules: dict[str, str], table: pa.Table) -> Outcome:
    return Outcome(sum(found.num_rows for found in cepheid.match(rules, table, time_unit=UNIT)))


def _planned(deployments: Sequence[Deployment], source: Source) -> Outcome:
    found = (found for deployment in deployments for found in run(deployment, source))
    return Outcome(sum(batch.num_rows for each in found for batch in each.batches))


def _deployed(rules: dict[str, str], source: Source) -> Deployment:
    written = {name: Written(name, text) for name, text in rules.items()}
    return deploy(written, source, RunOptions(time_unit=UNIT))


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
    source, loading, planned = opened.source, "", dict[int, list[Deployment]]()
    for count in (few, many):
        began = time.process_time()
        planned[count] = [_deployed(card_rules(count, quick), source)]
        loading += f" {count:,} rules are loaded in {time.process_time() - began:.1f} s."
    each = [_deployed({name: text}, source) for name, text in some.items()]
    samples = interleaved(
        [
            Variant(few, APART, n, partial(_alone, some, table), "few"),
            Variant(few, PLANNED.format(APART), n, partial(_planned, each, source), "few"),
            Variant(few, TOGETHER, n, partial(_together, some, table), "few"),
            Variant(few, PLANNED.format(TOGETHER), n, partial(_planned, planned[few], source), "few"),
            Variant(many, PLANNED.format(TOGETHER), n, partial(_planned, planned[many], source), "many"),
        ],
        repeats=5,
    )
    apart, apart_planned, together, together_planned, of_many = samples
    return Report(
        "rules",
        "Fraud rules over one card stream",
        "rules",
        tuple(samples),
        f"{few:,} rules in one pass are {apart.cpu / together.cpu:.1f} times as fast as one after the other, and "
        f"{apart_planned.cpu / together_planned.cpu:.1f} times if both are planned before (target 20); {many:,} rules "
        f"take {rate(of_many.throughput)} events/s on one core (target 200 k) and "
        f"{of_many.cpu / together_planned.cpu:.1f} times the cost of {few:,} (target at most 10).{loading}",
        baseline=APART,
        value=lambda sample: sample.microseconds,
        value_title="microseconds per event (CPU)",
    )


BENCHMARKS = (Benchmark("rules", "target: many rules over one card stream, together and apart", rules),)
