"""Runs of NFA^b (SASE+)."""

from __future__ import annotations

from cepheid.kernels.requirements import why_no_partition, why_not
from cepheid.kernels.runs.evaluator import OPTIONS, kernel
from cepheid.optimize.run_cost import runs_cost
from cepheid.optimize.search import situation_of
from cepheid.optimize.stats import Stats
from cepheid.pattern import Strategy
from cepheid.physical import Lowered, Plan, not_made_for

__all__ = ["FOLDS", "NAME", "OPTIONS", "SEARCHES", "SWITCHES", "able", "cost", "kernel", "plan"]

NAME = "runs"
FOLDS = SEARCHES = SWITCHES = False


def able(lowered: Lowered) -> str | None:
    """Sequences, closures among them, under a strategy by which each run continues in one way."""
    selects_one = lowered.has_strategy and lowered.query.strategy is not Strategy.ANY_MATCH
    if not (selects_one and lowered.is_sequence):
        return not_made_for(lowered.query)
    parts = why_no_partition(lowered) if lowered.query.strategy is Strategy.PARTITION else []
    return why_not(lowered, *parts, excludes=True, durations=True)


def plan(lowered: Lowered, stats: Stats) -> Plan:
    return lowered.plan(NAME)


def cost(plan: Plan, stats: Stats) -> float:
    return runs_cost(plan.steps, situation_of(plan, stats))
