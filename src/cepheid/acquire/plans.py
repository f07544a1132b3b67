"""Plans as data (CED §3.1): the order in which the subevents of each operator are acquired.

The first step of the whole event is subscribed to at all times. Each later step is acquired only where the subevents of
the earlier steps make a partial detection."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from cepheid.acquire.tree import Kind, Node, Operator, Primitive


@dataclass(frozen=True, slots=True)
class Plan:
    """The steps of an operator: each has the units (`Operator.units`) that it acquires. `below` has the plan of each
    unit. A primitive event has no steps."""

    steps: tuple[tuple[int, ...], ...] = ()
    below: tuple[Plan, ...] = ()


LEAF = Plan()


def unit_node(operator: Operator, unit: int) -> Node:
    return operator.items[operator.units[unit][0]]


def naive(node: Node) -> Plan:
    """The plan of one step everywhere: all events are pushed."""
    if isinstance(node, Primitive):
        return LEAF
    units = range(len(node.units))
    return Plan((tuple(units),), tuple(naive(unit_node(node, unit)) for unit in units))


def is_naive(plan: Plan) -> bool:
    return len(plan.steps) <= 1 and all(map(is_naive, plan.below))


def why_single_step(operator: Operator) -> str | None:
    """Why an operator has plans of one step only."""
    if operator.kind is Kind.OR:
        return "each event of an `or` is a detection"
    if operator.window is None:
        return "without a window, all earlier and later events may match"
    if operator.kind is Kind.COUNT:
        return "all events in the window are counted"
    return None


def may_follow(operator: Operator, step: int, before: int) -> bool:
    """Whether a step (a set of units, as bits) may come after others: negated subevents come after all the others, or
    everything comes at once (CED §4.1)."""
    everything = (1 << len(operator.units)) - 1
    if before == 0 and step == everything:
        return True
    if why_single_step(operator) is not None:
        return False
    negated = operator.negated_units
    positive = everything & ~negated
    if step & negated:
        return not step & positive and before & positive == positive
    return not before & negated


def all_plans(node: Node) -> Iterator[Plan]:
    """Every plan of an event."""
    if isinstance(node, Primitive):
        yield LEAF
        return
    count = len(node.units)
    below = [list(all_plans(unit_node(node, unit))) for unit in range(count)]
    for steps in _orders(node, (1 << count) - 1, 0):
        for chosen in itertools.product(*below):
            yield Plan(steps, chosen)


def _orders(operator: Operator, left: int, before: int) -> Iterator[tuple[tuple[int, ...], ...]]:
    if not left:
        yield ()
        return
    step = left
    while step:
        if may_follow(operator, step, before):
            for others in _orders(operator, left & ~step, before | step):
                yield (bits(step), *others)
        step = (step - 1) & left


def bits(mask: int) -> tuple[int, ...]:
    return tuple(i for i in range(mask.bit_length()) if mask >> i & 1)


def plan_text(node: Node, plan: Plan) -> str:
    """The plan on one line: `e1 → e2, e3 → !e4`. A complex subevent with a plan of several steps is in brackets."""
    if isinstance(node, Primitive):
        return node.name.rsplit(".", 1)[-1]
    return " → ".join(", ".join(_unit_text(node, plan, unit) for unit in step) for step in plan.steps)


def _unit_text(operator: Operator, plan: Plan, unit: int) -> str:
    indices = operator.units[unit]
    inner = ", ".join(dict.fromkeys(plan_text(operator.items[i], plan.below[unit]) for i in indices))
    node = unit_node(operator, unit)
    text = f"{_word(node)}({inner})" if isinstance(node, Operator) else inner
    return f"!{text}" if operator.is_negated(indices) else text


def _word(operator: Operator) -> str:
    return operator.kind.value if operator.threshold is None else operator.threshold.fn


def named_plan(node: Node, text: str) -> Plan | None:
    """The plan with this text (`plan_text`, with `->` for `→` and spaces anywhere), without a look at the others. None:
    there is none."""
    return _named(node, "".join(text.replace("->", "→").split()))


def _named(node: Node, text: str) -> Plan | None:
    if isinstance(node, Primitive):
        return LEAF if text == plan_text(node, LEAF).replace(" ", "") else None
    left, steps, below = dict(enumerate(node.units)), [], dict[int, Plan]()
    before = 0
    for part in _split(text, "→"):
        step, names = 0, _split(part, ",")
        while names:
            found = next(((unit, *read) for unit in left if (read := _read_unit(node, unit, names)) is not None), None)
            if found is None:
                return None
            unit, below[unit], count = found
            del left[unit], names[:count]
            step |= 1 << unit
        if not step or not may_follow(node, step, before):
            return None
        steps.append(bits(step))
        before |= step
    return None if left else Plan(tuple(steps), tuple(below[unit] for unit in range(len(node.units))))


def _read_unit(operator: Operator, unit: int, names: list[str]) -> tuple[Plan, int] | None:
    """The plan of a unit whose text the first of some names are, and how many they are."""
    inner = unit_node(operator, unit)
    if isinstance(inner, Operator):
        prefix = f"{'!' * operator.is_negated(operator.units[unit])}{_word(inner)}("
        if not (names[0].startswith(prefix) and names[0].endswith(")")):
            return None
        plan = _named(inner, names[0][len(prefix) : -1])
        return None if plan is None else (plan, 1)
    own = _unit_text(operator, Plan((), (LEAF,) * len(operator.units)), unit).replace(" ", "").split(",")
    return (LEAF, len(own)) if names[: len(own)] == own else None


def _split(text: str, at: str) -> list[str]:
    """The parts of a text between separators that are outside of brackets."""
    parts, depth = [""], 0
    for character in text:
        depth += (character == "(") - (character == ")")
        if character == at and not depth:
            parts.append("")
        else:
            parts[-1] += character
    return parts
