"""Runs without a match: how far the events got, counted during the run."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from cepheid.analysis import Analysis, VariableCounts
from cepheid.engine.observation import Observer
from cepheid.engine.stepping import Stepper
from cepheid.io.rows import TIME
from cepheid.kernels.successor.successor_kernel import failed_detections
from cepheid.physical import Plan
from cepheid.runtime.kernel import Batch, counters, operator_counts


@dataclass(slots=True)
class Tally:
    """Counts the events of each variable of a plan, batch by batch."""

    plan: Plan
    observer: Observer
    began: int | None = None
    ended: int = 0
    events: int = 0
    of_type: Counter[str] = field(default_factory=Counter)
    passed: Counter[str] = field(default_factory=Counter)
    has_switched: bool = False
    """Whether the plan has changed during the run."""
    shares_times: bool = False
    """Whether several events have one time."""

    @classmethod
    def of(cls, plan: Plan) -> Tally:
        return cls(plan, Observer(plan))

    def add(self, plan: Plan, batch: pa.RecordBatch, encoded: Batch) -> None:
        """Adds a batch, as it is read and as the kernel of a plan gets it."""
        self._follow(plan)
        if not batch.num_rows:
            return
        times = np.asarray(batch.column(TIME))
        if not self.shares_times:
            self.shares_times = bool((times[1:] == times[:-1]).any()) or (self.events > 0 and times[0] == self.ended)
        self.began = int(times[0]) if self.began is None else self.began
        self.ended, self.events = int(times[-1]), self.events + batch.num_rows
        passing = self.observer.passing(encoded.mask)
        self.passed.update(passing)
        self.of_type.update(self.observer.of_class(batch, passing))

    def _follow(self, plan: Plan) -> None:
        """The plans of a run have the same variables, each with bits of its own."""
        if plan is not self.plan:
            self.plan, self.observer, self.has_switched = plan, Observer(plan), True

    def analysis(self, stepper: Stepper) -> Analysis:
        """The counters of a run that has ended."""
        self._follow(stepper.kernel.plan)
        plan = self.plan
        length = self.events if plan.counts_events else self.ended - (self.began or 0)
        counted = counters(stepper.state)
        if plan.core is not None:
            counted["failed_detections"] = failed_detections(stepper.compiled, stepper.state)
        of_variables = {s.var: VariableCounts(int(self.of_type[s.var]), self.passed[s.var]) for s in plan.steps}
        windows = length / plan.window if plan.window else None
        return Analysis(
            counted,
            operator_counts(stepper.compiled, stepper.state),
            of_variables,
            windows,
            self.has_switched,
            self.shares_times,
        )
