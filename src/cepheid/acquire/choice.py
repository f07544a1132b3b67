"""The choice of a plan: the cheapest that meets the deadline and asks no source for what it has dropped (CED §3.1)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from cepheid.acquire.cost import CostModel
from cepheid.acquire.plans import Plan, naive, plan_text, unit_node
from cepheid.acquire.search import Candidate, Search, SearchOptions
from cepheid.acquire.tree import Node, Primitive
from cepheid.errors import InputProblem


@dataclass(frozen=True, slots=True)
class Choice:
    """The chosen plan, the plan that pushes everything, and the other plans of the front with the reason why each
    lost."""

    chosen: Candidate
    pushed: Candidate
    lost: tuple[tuple[Candidate, str], ...]
    considered: int


def choose(
    node: Node,
    model: CostModel,
    options: SearchOptions,
    deadline: float | None = None,
    shown: Callable[[float], str] = str,
) -> Choice:
    """The cheapest plan whose latency bound meets the deadline. `shown` writes a number of ticks."""
    search = Search(model, options)
    front = search.plans(node)
    everything = naive(node)
    pushed = Candidate(*model.estimate(node, everything), everything)
    fitting: list[Candidate] = []
    lost: list[tuple[Candidate, str]] = []
    for candidate in front:
        missing = dropped(node, candidate.plan, model)
        if missing is not None:
            lost.append((candidate, f"`{missing}` keeps its events for too short a time"))
        elif deadline is not None and candidate.latency > deadline:
            lost.append((candidate, f"its latency of {shown(candidate.latency)} exceeds the deadline"))
        else:
            fitting.append(candidate)
    if not fitting and (deadline is None or pushed.latency <= deadline):
        fitting = [pushed]  # it asks for nothing in the past
    if not fitting:
        raise InputProblem(
            f"no plan detects `{node.name}` within the deadline of {shown(deadline or 0.0)}",
            expected=f"a deadline of at least {shown(pushed.latency)}, the latency of its sources",
        )
    chosen = min(fitting, key=lambda candidate: (candidate.cost, candidate.latency))
    lost += [(one, "it costs more") for one in fitting if one is not chosen]
    return Choice(chosen, pushed, tuple(lost), search.considered)


def dropped(node: Node, plan: Plan, model: CostModel) -> str | None:
    """A stream whose sources do not keep events for as long as a plan may need them; None: all do."""
    for stream, length in lookback(node, plan, model).items():
        if length > model.streams[stream].retention:
            return stream
    return None


def require_retention(node: Node, plan: Plan, model: CostModel, shown: Callable[[float], str] = str) -> None:
    """Refuses a plan that needs events which a source has dropped by then."""
    stream = dropped(node, plan, model)
    if stream is not None:
        needed = lookback(node, plan, model)[stream]
        pushed = model.estimate(node, naive(node)).latency
        raise InputProblem(
            f"the plan {plan_text(node, plan)} needs events of `{stream}` for {shown(needed)}, but its source keeps "
            f"them for {shown(model.streams[stream].retention)}",
            hint=f"a deadline of {shown(pushed)} pushes everything and needs no events of the past",
        )


def lookback(node: Node, plan: Plan, model: CostModel) -> dict[str, float]:
    """How old an event may be, for each stream that is pulled from, when the request arrives."""
    found: dict[str, float] = {}
    _add_lookback(node, plan, model, 0.0, False, found)
    return found


def _add_lookback(node: Node, plan: Plan, model: CostModel, age: float, pulled: bool, found: dict[str, float]) -> None:
    """`age` is how long before the request an event of the node may end."""
    if isinstance(node, Primitive):
        if pulled:
            found[node.stream] = max(found.get(node.stream, 0.0), age + model.streams[node.stream].latency)
        return
    elapsed, before = 0.0, 0
    window = float(node.window or 0)
    for number, step in enumerate(plan.steps):
        own = 0.0
        for unit in step:
            inner, below = unit_node(node, unit), plan.below[unit]
            now = pulled or number > 0
            _add_lookback(inner, below, model, age + elapsed + window if now else 0.0, now, found)
            own = max(own, model.estimate(inner, below, pulled=now).latency)
        elapsed = model.latency_after(node, before, elapsed, sum(1 << unit for unit in step), own)
        before |= sum(1 << unit for unit in step)
