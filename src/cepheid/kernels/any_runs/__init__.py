"""Skip till any match, with closures: all partial matches in one compact store (after CORE)."""

from __future__ import annotations

from cepheid.kernels.any_runs.evaluator import OPTIONS, kernel
from cepheid.kernels.requirements import why_not
from cepheid.optimize.run_cost import any_runs_cost
from cepheid.optimize.search import situation_of
from cepheid.optimize.stats import Stats
from cepheid.pattern import EventClass, Kleene, Neg, Strategy
from cepheid.physical import Lowered, Plan, not_made_for

__all__ = ["NAME", "OPTIONS", "SEARCHES", "SWITCHES", "able", "cost", "kernel", "plan"]

NAME = "any_runs"
SEARCHES = False
SWITCHES = False


def able(lowered: Lowered) -> str | None:
    """Sequences, closures among them, under skip till any match, and summaries of all their matches."""
    is_sequence = all(isinstance(item, EventClass | Neg | Kleene) for item in lowered.items)
    selects_all = lowered.has_strategy and lowered.query.strategy is Strategy.ANY_MATCH
    if not (selects_all and is_sequence):
        return not_made_for(lowered.query)
    return why_not(lowered, excludes=True, durations=True)


def plan(lowered: Lowered, stats: Stats) -> Plan:
    return lowered.plan(NAME)


def cost(plan: Plan, stats: Stats) -> float:
    return any_runs_cost(plan.steps, situation_of(plan, stats))
