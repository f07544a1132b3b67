"""EXPLAIN ANALYZE: the query is run, and what each operator did is counted."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from cepheid.engine.prepare import Prepared
from cepheid.engine.stepping import Stepper
from cepheid.errors import NotAvailable
from cepheid.io.rows import TIME
from cepheid.physical import Analysis
from cepheid.runtime.kernel import counters, operator_counts


def analysed(prepared: Prepared, batches: Iterable[pa.RecordBatch], count: int | None) -> Analysis:
    """What the plan does on these events, in the order of time; `count` is their number, where it is known."""
    if prepared.kernel is None:
        raise NotAvailable(
            "the reference evaluator runs this query, and it counts nothing",
            hint="; ".join(prepared.plan.reasons) or None,
        )
    stepper = Stepper.start(prepared.kernel, count)
    began: int | None = None
    ended = events = 0
    for batch in batches:
        if batch.num_rows:
            times = batch.column(TIME)
            began = times[0].as_py() if began is None else began
            ended, events = times[batch.num_rows - 1].as_py(), events + batch.num_rows
            for _ in stepper.step(batch):
                """Only what is counted is wanted."""
    for _ in stepper.finish_lazily():
        """Matches that had to wait are counted too."""
    plan = prepared.plan
    passed = events if plan.counts_events else ended - (began or 0)
    windows = passed / plan.window if plan.window else None
    return Analysis(counters(stepper.state), operator_counts(prepared.kernel, stepper.state), windows)
