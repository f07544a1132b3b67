"""Sequences by active instance stacks (SASE)."""

from __future__ import annotations

from cepheid.kernels.requirements import why_not
from cepheid.kernels.stacks.evaluator import OPTIONS, kernel
from cepheid.optimize.search import plan_cost
from cepheid.optimize.stats import Stats
from cepheid.pattern import EventClass, Neg, Strategy
from cepheid.physical import Lowered, Plan, not_made_for

__all__ = ["NAME", "OPTIONS", "SEARCHES", "able", "cost", "kernel", "plan"]

NAME = "stacks"
SEARCHES = False


def able(lowered: Lowered) -> str | None:
    """Sequences of single events, negated ones among them, all of whose combinations are matches."""
    query = lowered.query
    selects_all = lowered.combines or (lowered.has_strategy and query.strategy is Strategy.ANY_MATCH)
    is_sequence = all(isinstance(item, EventClass | Neg) for item in lowered.items)
    if not (selects_all and is_sequence):
        return not_made_for(query)
    return why_not(lowered)


def plan(lowered: Lowered, stats: Stats) -> Plan:
    return lowered.plan(NAME)


def cost(plan: Plan, stats: Stats) -> float:
    return plan_cost(plan, stats)
