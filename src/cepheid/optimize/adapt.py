"""Plan adaptation: decides when a running query gets another plan (ZStream §5.3).

The statistics of the stream are averages over the last observations. If a statistic differs from the one that the plan
was chosen with by more than a threshold (t), the search runs again. The new plan is installed if the cost model expects
a gain above another threshold (c). This module only decides; the engine exchanges the kernels.

From Python: `cepheid.match(query, events, adaptive=True)`, or with thresholds
`adaptive=cepheid.Adaptive(drift=0.5, gain=0.2)`; `on_switch=switches.append` collects a `Switch` for each change.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Protocol

from cepheid.errors import InputProblem
from cepheid.optimize.search import (
    expected_of_stacks,
    expected_of_tree,
    plan_cost,
    situation_of,
    tree_options,
    tree_plan,
)
from cepheid.optimize.stats import Drift, Stats, drift
from cepheid.pattern import Kleene, walk
from cepheid.physical import Plan
from cepheid.tree_plan import TREE_NODES, TreeNode, TreePlan, tree_text

OBSERVED_EVERY = 1 << 12
"""The number of events between two observations of a stream."""
SECONDS_BETWEEN = 0.015
"""The seconds of work between two observations: one takes some tenths of a millisecond, a search a millisecond more."""
OBSERVATIONS = 4
"""The number of observations over which statistics are averaged."""


@dataclass(frozen=True, slots=True)
class Decision:
    """The plan to continue with, and the reason. `drift` is the change that started the search, if any. The costs are
    those of the current plan and of the best one, by the current statistics."""

    plan: Plan
    reason: str
    drift: Drift | None = None
    cost_before: float = math.nan
    cost_after: float = math.nan


@dataclass(frozen=True, slots=True)
class Switch:
    """A change of plan after `events` events."""

    events: int
    before: str
    after: str
    reason: str
    statistic: str | None = None
    cost_before: float = math.nan
    cost_after: float = math.nan

    @classmethod
    def of(cls, events: int, before: Plan, decision: Decision) -> Switch:
        return cls(
            events,
            plan_text(before),
            plan_text(decision.plan),
            decision.reason,
            None if decision.drift is None else decision.drift.statistic,
            decision.cost_before,
            decision.cost_after,
        )

    def __str__(self) -> str:
        return f"after {self.events:,} events from {self.before} to {self.after}: {self.reason}"


class Policy(Protocol):
    """Decides which plan to go on with. A policy for tests may decide as it likes."""

    @property
    def observed_every(self) -> int:
        """The least number of events between two observations, and so between two decisions."""

    @property
    def seconds_between(self) -> float:
        """The least seconds of kernel work between two observations, so that observing costs little; more if they take
        long. Zero: only the number of events counts."""

    @property
    def observations(self) -> int:
        """The number of observations over which statistics are averaged."""

    def decide(self, plan: Plan, planned_with: Stats, now: Stats, bases: Sequence[Plan]) -> Decision:
        """The plan to continue with; `plan` is the one in use. `bases` are the query's plans, one for each evaluator
        that may run it."""


_LEAST = {"drift": 0.0, "gain": 0.0, "observed_every": 1, "seconds_between": 0.0, "observations": 1}


@dataclass(frozen=True, slots=True)
class Adaptive:
    """The paper's policy: `drift` is t, the relative change of a statistic at which the search runs again; `gain` is c,
    the share by which the current plan must cost more than the best one to be replaced. The stream is observed every
    `observed_every` events, but not before `seconds_between` seconds of work."""

    drift: float = 0.5
    gain: float = 0.2
    observed_every: int = OBSERVED_EVERY
    seconds_between: float = SECONDS_BETWEEN
    observations: int = OBSERVATIONS

    def __post_init__(self) -> None:
        for name, least in _LEAST.items():
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not value >= least:
                raise InputProblem(f"`{name}` of an adaptive run is {value!r}", expected=f"a number from {least:g} on")

    def decide(self, plan: Plan, planned_with: Stats, now: Stats, bases: Sequence[Plan]) -> Decision:
        changed = drift(planned_with, now)
        if changed is None or changed.size <= self.drift:
            return Decision(plan, "no statistic has changed enough")
        best, after = min((best_of(base, now) for base in bases), key=lambda found: found[1])
        before = plan_cost(plan, now)
        costs = f"{after:.3g} instead of {before:.3g} ns are expected for an event"
        if same_work(plan, best):
            return Decision(plan, f"{changed}, and the plan is still the best", changed, before, after)
        if before <= after * (1.0 + self.gain):
            return Decision(plan, f"{changed}, but another plan gains too little: {costs}", changed, before, after)
        return Decision(best, f"{changed}; {costs}", changed, before, after)


def policy_of(adaptive: bool | Policy) -> Policy | None:
    """The policy of an `adaptive` option; None for plans that do not change."""
    if isinstance(adaptive, bool):
        return Adaptive() if adaptive else None
    if not hasattr(adaptive, "observed_every"):
        raise InputProblem(
            f"the option `adaptive` is of type `{type(adaptive).__name__}`",
            expected="True, False or cepheid.Adaptive()",
        )
    return adaptive


# --- plans ------------------------------------------------------------------------------------------------------------


def best_of(plan: Plan, stats: Stats) -> tuple[Plan, float]:
    """The evaluator's best plan by these statistics, as far as the plan's options leave a choice, and the nanoseconds
    for each event that it is expected to take."""
    situation = situation_of(plan, stats)
    if plan.tree is None:
        return plan, expected_of_stacks(situation)
    tree = tree_plan(situation, *tree_options(plan.options), next_best=0)
    return replace(plan, tree=tree), expected_of_tree(situation, tree)


def same_work(one: Plan, other: Plan) -> bool:
    """Whether two plans of one query do the same, whatever was expected of them."""
    if one.tree is None or other.tree is None:
        return one.evaluator == other.evaluator and one.tree is other.tree
    return one.tree.trees == other.tree.trees


def plan_text(plan: Plan) -> str:
    return plan.evaluator if plan.tree is None else " | ".join(map(tree_text, plan.tree.trees))


_NODES: Mapping[str, type[TreeNode]] = {node.__name__: node for node in TREE_NODES}


def trees_to_data(plan: Plan) -> list[dict[str, Any]]:
    """The trees of a plan as JSON values, without their estimates."""
    return [_node_to_data(tree) for tree in plan.tree.trees] if plan.tree is not None else []


def with_trees(plan: Plan, data: Sequence[Mapping[str, Any]]) -> Plan:
    """The plan with the trees that `trees_to_data` returned."""
    return replace(plan, tree=TreePlan(tuple(_node_of_data(tree) for tree in data)))


def _node_to_data(node: TreeNode) -> dict[str, Any]:
    parts = {field.name: getattr(node, field.name) for field in fields(node) if not field.kw_only}
    data = {name: _node_to_data(part) if isinstance(part, TreeNode) else part for name, part in parts.items()}
    return {"node": type(node).__name__, **data}


def _node_of_data(data: Mapping[str, Any]) -> TreeNode:
    parts = {name: part for name, part in data.items() if name != "node"}
    for name, part in parts.items():
        if isinstance(part, Mapping):
            parts[name] = _node_of_data(part)
        elif isinstance(part, list):
            parts[name] = tuple(part)
    return _NODES[data["node"]](**parts)


# --- switching plans --------------------------------------------------------------------------------------------------


def why_fixed(plan: Plan, switching: Sequence[str]) -> str | None:
    """Why the plan of a query cannot be exchanged while it runs; None if it can. `switching` are the evaluators that
    can take over from one another."""
    if plan.evaluator not in switching:
        return f"the evaluator {plan.evaluator} has one plan only"
    if plan.window is None:
        return "without WITHIN another plan could start only from all events, so all would have to be retained"
    if plan.counts_events and plan.key:
        return "the window counts the events of each partition, so any event may still be in it"
    return None


def horizon(plan: Plan) -> int:
    """The length of the history, in the unit of the window, that another plan needs to take over. A match that waits
    for its trailing negation began up to a window ago, its leading negation reaches back another window, and each
    closure one more."""
    assert plan.window is not None, "a plan without a window is fixed"
    closures = sum(isinstance(node, Kleene) for node in walk(plan.query.pattern))
    return max(0, int(plan.window)) * (2 + closures)
