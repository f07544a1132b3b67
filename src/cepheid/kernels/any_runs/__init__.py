"""Skip till any match, with closures: all partial matches in one compact store (after CORE)."""

from __future__ import annotations

from cepheid.kernels.any_runs.evaluator import OPTIONS, kernel
from cepheid.kernels.requirements import why_not
from cepheid.optimize.run_cost import any_runs_cost
from cepheid.optimize.search import situation_of
from cepheid.optimize.stats import Stats
from cepheid.pattern import EventClass, Strategy
from cepheid.physical import Lowered, Plan, not_made_for

__all__ = ["FOLDS", "NAME", "OPTIONS", "SEARCHES", "SWITCHES", "able", "cost", "kernel", "plan"]

NAME = "any_runs"
FOLDS = True
SEARCHES = SWITCHES = False


def able(lowered: Lowered) -> str | None:
    """Sequences, closures among them, under skip till any match; summaries and the first matches of plain sequences in
    languages that combine all events."""
    if lowered.combines and lowered.operator_windows is None and _is_folded(lowered):
        return why_not(lowered, counts_edges=False)
    selects_all = lowered.has_strategy and lowered.query.strategy is Strategy.ANY_MATCH
    if not (selects_all and lowered.is_sequence):
        return not_made_for(lowered.query)
    return why_not(lowered, excludes=True, durations=True)


def _is_folded(lowered: Lowered) -> bool:
    """Whether not all matches of a sequence of single events are enumerated."""
    return lowered.query.is_folded and all(isinstance(item, EventClass) for item in lowered.items)


def plan(lowered: Lowered, stats: Stats) -> Plan:
    return lowered.plan(NAME, folds=True)


def cost(plan: Plan, stats: Stats) -> float:
    return any_runs_cost(plan.steps, situation_of(plan, stats))
