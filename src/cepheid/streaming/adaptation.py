"""The plan of a query in one bucket of a stream, which may change between batches. It is part of the bucket's state, so
a restart continues with the plan in use."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from cepheid.engine.adaptation import MIN_OBSERVED, Watch
from cepheid.engine.prepare import Prepared
from cepheid.engine.stepping import encoder_for
from cepheid.errors import InputProblem
from cepheid.optimize.adapt import Adaptive, Decision, Policy, trees_to_data, with_trees
from cepheid.optimize.stats import RunningStats, Stats, from_json, to_json
from cepheid.physical import Plan
from cepheid.runtime.kernel import Kernel

SAMPLE = 1 << 13
"""The number of events in a sample."""


@dataclass(slots=True)
class Adapted:
    """The plan of one query in one bucket. `unseen` events have arrived since the last sample; from the position
    `since` on, all events that another plan needs are retained."""

    plan: Plan
    watch: Watch
    unseen: int = 0
    since: int = 0

    @classmethod
    def start(cls, prepared: Prepared, since: int) -> Adapted:
        return cls(prepared.plan, Watch.start(_policy(prepared), prepared.plans, prepared.stats), since=since)

    def decide(self, came: int, recent: pa.RecordBatch, kernel: Kernel, replayed_from: int) -> Decision | None:
        """Called after `came` new events, the last of `recent`; None where no decision is due. A switch replays the
        events from the position `replayed_from` on."""
        self.unseen += came
        if self.unseen < min(self.watch.policy.observed_every, MIN_OBSERVED):
            return None
        sample = recent.slice(max(recent.num_rows - min(self.unseen, SAMPLE), 0))
        self.unseen = 0
        self.watch.observer.last = None  # some events since the last sample are skipped
        self.watch.observe(sample, encoder_for(kernel).encode(sample))
        decision = self.watch.decide(self.plan)
        return decision if replayed_from >= self.since or not self.since else None

    def switch(self, decision: Decision) -> None:
        self.plan = decision.plan
        self.watch.follow(decision)

    # --- as part of a state -------------------------------------------------------------------------------------------

    def to_data(self) -> dict[str, Any]:
        return {
            "evaluator": self.plan.evaluator,
            "trees": trees_to_data(self.plan),
            "planned_with": _stats_to_data(self.watch.planned_with),
            "observed": [_stats_to_data(stats) for stats in self.watch.running.observations],
            "unseen": self.unseen,
            "since": self.since,
        }

    @classmethod
    def of_data(cls, prepared: Prepared, data: Mapping[str, Any]) -> Adapted:
        bases = {base.evaluator: base for base in prepared.plans}
        if data["evaluator"] not in bases:
            raise InputProblem(
                f"the stream's plan has changed to one of the evaluator `{data['evaluator']}`",
                expected="an adaptive stream that names no other evaluator",
            )
        base = bases.pop(data["evaluator"])
        plan = with_trees(base, data["trees"]) if data["trees"] else base
        watch = Watch.start(_policy(prepared), (plan, *bases.values()), _stats_of_data(data["planned_with"]))
        observed = tuple(map(_stats_of_data, data["observed"]))
        watch.running = RunningStats(watch.policy.observations, observed)
        return cls(plan, watch, data["unseen"], data["since"])


def rearranged(masks: pa.Array, current: Plan, wanted: Plan) -> pa.Array:
    """Masks made for one plan, with the bits in the order of another plan of the same query."""
    if wanted.bits == current.bits:
        return masks
    before = masks.to_numpy(zero_copy_only=False)
    after = np.zeros(len(before), np.uint64)
    for position, bit in enumerate(wanted.bits):
        after |= (before >> np.uint64(current.bits.index(bit)) & np.uint64(1)) << np.uint64(position)
    return pa.array(after)


def _policy(prepared: Prepared) -> Policy:
    """Where plans no longer change, the plan in use stays, and the policy is not consulted."""
    return prepared.adaptive or Adaptive()


def _stats_to_data(stats: Stats) -> Any:
    return json.loads(to_json(stats))


def _stats_of_data(data: Any) -> Stats:
    return from_json(json.dumps(data), "the statistics in a state")
