"""EXPLAIN of an acquisition plan: its state machine step by step, what each step is expected to cost, the Pareto front,
and why the other plans lost."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cepheid.acquire.choice import Choice, lookback
from cepheid.acquire.cost import CONTINUOUS, Activity, CostModel
from cepheid.acquire.models import description
from cepheid.acquire.plans import Plan, plan_text, unit_node, why_single_step
from cepheid.acquire.search import Candidate
from cepheid.acquire.tree import Node, Operator, Primitive, streams
from cepheid.nfa import FINAL, Automaton, Edge
from cepheid.picture import Explanation
from cepheid.picture import Node as Shown

Rate = Callable[[float], str]
"""Writes a number of events per tick."""
Length = Callable[[float], str]
"""Writes a number of ticks."""


def explained(root: Node, choice: Choice, model: CostModel, text: str, rate: Rate, length: Length) -> Explanation:
    """The description of a chosen plan. `text` is that of the query."""
    shares = model.by_stream(root, choice.chosen.plan)
    everything = sum(model.streams[stream].model.rate for stream in shares)
    fetched = sum(model.streams[stream].model.rate * share for stream, share in shares.items())
    size = sum(model.streams[s].model.rate * model.streams[s].bytes * share for s, share in shares.items())
    parts = [
        Shown(f"plan: {plan_text(root, choice.chosen.plan)}"),
        Shown(
            f"expected: {rate(fetched)} events of {rate(everything)} ({_share(fetched, everything)}), "
            f"{rate(size)} bytes, latency up to {length(choice.chosen.latency)}"
        ),
        Shown("steps", tuple(_steps(root, choice.chosen.plan, model, CONTINUOUS, "at all times", rate, length))),
        Shown("streams", tuple(_stream(stream, share, model, rate, length) for stream, share in shares.items())),
    ]
    kept = lookback(root, choice.chosen.plan, model)
    if kept:
        ages = tuple(Shown(f"{stream}: {length(age)}") for stream, age in kept.items())
        parts.append(Shown("sources must keep events for", ages))
    front = [choice.chosen, *(candidate for candidate, _ in choice.lost)]
    reasons = {id(candidate): reason for candidate, reason in choice.lost}
    rows = []
    for candidate in sorted(front, key=lambda c: (c.cost, c.latency)):
        rows.append(Shown(_candidate(root, candidate, reasons.get(id(candidate), "chosen"), rate, length)))
    if all(candidate.plan != choice.pushed.plan for candidate in front):
        rows.append(Shown(_candidate(root, choice.pushed, "everything pushed", rate, length)))
    parts.append(Shown(f"Pareto front ({choice.considered:,} plans considered, model: {model.name})", tuple(rows)))
    return Explanation(Shown("acquisition", tuple(parts)), _automata(root, choice.chosen.plan), text)


def shared(
    parts: Sequence[tuple[str, Explanation]],
    cost: float,
    separate: float,
    everything: float,
    streams: Sequence[str],
    rate: Rate,
) -> Explanation:
    """The description of several plans that run together: what they share, then each plan. `streams` says who fetches
    what of the streams that several of them read."""
    found = [
        Shown(
            f"expected: {rate(cost)} events of {rate(everything)} ({_share(cost, everything)}), each fetched once; "
            f"{rate(separate)} if each plan fetched its own"
        )
    ]
    if streams:
        found.append(Shown("shared streams", tuple(map(Shown, streams))))
    found += [Shown(label, own.tree.children) for label, own in parts]
    automata = [(f"{label}: {title}", automaton) for label, own in parts for title, automaton in own.automata]
    texts = dict.fromkeys(own.text for _, own in parts)
    return Explanation(Shown(f"acquisition of {len(parts)} plans", tuple(found)), tuple(automata), "\n\n".join(texts))


def _share(part: float, whole: float) -> str:
    return f"{part / whole:.1%}" if whole else "0%"


def _candidate(root: Node, candidate: Candidate, reason: str, rate: Rate, length: Length) -> str:
    cost = f"{rate(candidate.cost)} events, latency {length(candidate.latency)}"
    return f"{plan_text(root, candidate.plan)}: {cost} ({reason})"


def _stream(stream: str, share: float, model: CostModel, rate: Rate, length: Length) -> Shown:
    known = model.streams[stream]
    return Shown(
        f"{stream}: {share:.1%} of {rate(known.model.rate)} events ({description(known.model)}, latency "
        f"{length(known.latency)})"
    )


def _steps(
    node: Node, plan: Plan, model: CostModel, active: Activity, when: str, rate: Rate, length: Length
) -> list[Shown]:
    """The steps of an operator, those of its complex subevents inside them."""
    if isinstance(node, Primitive):
        return [Shown(f"subscribe to {node.stream}, {when}")]
    found = []
    before, known = 0, ""
    for number, step in enumerate(plan.steps, 1):
        inner = []
        condition = when if number == 1 else f"where {known} {'has' if ',' not in known else 'have'} been detected"
        for unit in step:
            below = unit_node(node, unit)
            activity = model.unit_activity(node, unit, before, active)
            share = f"{min(activity.fraction, 1.0):.1%} of the time"
            verb = "subscribe to" if condition == "at all times" else "pull and subscribe to"
            cost = model.estimate(below, plan.below[unit], activity).cost
            label = f"{verb} {', '.join(streams(below))}: {share}, {rate(cost)} events"
            label = label.replace(verb, f"{verb} (negated)") if node.is_negated(node.units[unit]) else label
            own = _steps(below, plan.below[unit], model, activity, condition, rate, length)
            inner.append(Shown(label, tuple(own) if isinstance(below, Operator) else ()))
        found.append(Shown(f"step {number}, {condition}", tuple(inner)))
        before |= sum(1 << unit for unit in step)
        known = ", ".join(plan_text(unit_node(node, u), plan.below[u]) for s in plan.steps[:number] for u in s)
    reason = why_single_step(node)
    return [*found, Shown(f"one step only: {reason}")] if reason is not None else found


def _automata(node: Node, plan: Plan) -> tuple[tuple[str, Automaton], ...]:
    """The state machine of each operator: a state for each step, and the final one."""
    if isinstance(node, Primitive):
        return ()
    states = [f"S{number}" for number in range(1, len(plan.steps) + 1)]
    edges = []
    for number, step in enumerate(plan.steps):
        names = ", ".join(
            ("no " if node.is_negated(node.units[unit]) else "") + plan_text(unit_node(node, unit), plan.below[unit])
            for unit in step
        )
        target = states[number + 1] if number + 1 < len(states) else FINAL
        edges.append(Edge("begin", states[number], target, names))
        if number:
            edges.append(Edge("ignore", states[number], states[number], "while the windows are open"))
    own = (f"state machine of {node.name}", Automaton((*states, FINAL), tuple(edges)))
    inner = (
        automaton for unit, below in enumerate(plan.below) for automaton in _automata(unit_node(node, unit), below)
    )
    return (own, *inner)
