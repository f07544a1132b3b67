"""Skip till any match, with closures: all partial matches in one compact store (after CORE)."""

from __future__ import annotations

from collections.abc import Iterator

from cepheid.expr import AGGREGATES, Aggregate, ResultType
from cepheid.kernels.aggregates import AGGREGATE_CODE
from cepheid.kernels.any_runs.evaluator import OPTIONS, kernel
from cepheid.kernels.requirements import why_not
from cepheid.optimize.run_cost import any_runs_cost
from cepheid.optimize.search import situation_of
from cepheid.optimize.stats import Stats
from cepheid.pattern import EventClass, Kleene, Neg, Strategy
from cepheid.physical import Kind, Lowered, Plan, kind_of, not_made_for
from cepheid.types import UNKNOWN

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
    return why_not(lowered, *_cannot_summarise(lowered), summarises=not lowered.query.non_overlapping, excludes=True, durations=True)


def _cannot_summarise(lowered: Lowered) -> Iterator[str]:
    if lowered.query.non_overlapping:
        return
    for column in lowered.summary:
        if isinstance(column, Aggregate) and column.name is not None:
            kind = kind_of(lowered.types.get(column.name, UNKNOWN))
            adds_strings = kind is Kind.CODE and AGGREGATES[column.fn].result is ResultType.NUMBER
            if adds_strings or not AGGREGATE_CODE[column.fn].merges:
                yield f"`{column.fn}` over all matches is not computed without enumerating them"


def plan(lowered: Lowered, stats: Stats) -> Plan:
    return lowered.plan(NAME)


def cost(plan: Plan, stats: Stats) -> float:
    return any_runs_cost(plan.steps, situation_of(plan, stats))
