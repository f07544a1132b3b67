"""Tree plans (ZStream)."""

from __future__ import annotations

from cepheid.kernels.requirements import MASK_BITS, TOO_FEW_BITS, why_not
from cepheid.kernels.tree.evaluator import OPTIONS, kernel
from cepheid.optimize.rules import lean_equalities
from cepheid.optimize.search import Situation, tree_options, tree_plan
from cepheid.optimize.search import plan_cost as cost
from cepheid.optimize.stats import Stats
from cepheid.physical import Lowered, Plan, not_made_for

__all__ = ["FOLDS", "NAME", "OPTIONS", "SEARCHES", "SWITCHES", "able", "cost", "kernel", "plan"]

NAME = "tree"
FOLDS = False
SEARCHES = True
SWITCHES = True


def able(lowered: Lowered) -> str | None:
    """Any pattern of a language in which all combinations of events are matches, if its mask has room."""
    if not lowered.combines:
        return not_made_for(lowered.query)
    crowded = () if len(lowered.roles) + len(lowered.lacks) <= MASK_BITS else (TOO_FEW_BITS,)
    return why_not(lowered, *crowded, durations=True, closure_bits=1)


def plan(lowered: Lowered, stats: Stats) -> Plan:
    """The best tree. One equality of each negated event (or closure) with events that are equal anyway is enough."""
    query = lowered.query
    between = lean_equalities(query, lowered.between, lowered.schema)
    windows = lowered.window, lowered.operator_windows
    situation = Situation(query, tuple(between), lowered.alone, windows[0], stats, windows[1], lowered.has_durations)
    tree = tree_plan(situation, *tree_options(lowered.options))
    return lowered.plan(NAME, by_variable=True, predicates=between, tree=tree)
