"""The NFA^b automaton of a SASE+ query, compiled by §3.2 of the SASE+ paper: structure, predicates on the edges of
their last identifiers, ignore edges by strategy, the window (steps 1-4, and 5 and 6 that tighten them).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from cepheid.expr import Compare, Expr, to_text, variables
from cepheid.logic import expanded, last_instantiated
from cepheid.pattern import EventClass, Query, Role, Strategy, partition_attributes

FINAL = "F"


class Edge(NamedTuple):
    """`begin` and `take` consume an event and bind it, `ignore` consumes it, `proceed` consumes nothing."""

    kind: str
    source: str
    target: str
    formula: str
    """Its condition on the event, as text."""


class Automaton(NamedTuple):
    """States in a line, the first the start and the last the final one."""

    states: tuple[str, ...]
    edges: tuple[Edge, ...]
    notes: tuple[str, ...] = ()


def compile_automaton(query: Query) -> Automaton:
    found = query.roles
    components = [var for var, role in found.items() if not role.negated]
    states = [state for var in components for state in _states(var, found[var])] + [FINAL]
    formulas = _placed(query, components, found)
    window = _window_text(query, states[0])
    edges: list[Edge] = []
    for var in components:
        role = found[var]
        first, *second = _states(var, role)
        after = states[states.index(second[0] if second else first) + 1]
        begin = _all([_type_test(role.event_class), *formulas.get((var, "begin"), [])])
        begin_window = [] if first == states[0] else window
        edges.append(Edge("begin", first, second[0] if second else after, _all([begin, *begin_window])))
        if first != states[0]:
            edges.append(Edge("ignore", first, first, _all([_ignore(query, f"begin at {first}"), *window])))
        if role.kleene is None:
            continue
        (loop,) = second
        if role.kleene.low == 0:
            edges.append(Edge("proceed", first, after, "the closure is empty"))
        most = [] if role.kleene.high is None else [f"fewer than {role.kleene.high} taken"]
        take = _all([_type_test(role.event_class), *formulas.get((var, "take"), []), *most])
        edges.append(Edge("take", loop, loop, _all([take, *window])))
        edges.append(Edge("ignore", loop, loop, _all([_ignore(query, f"take at {loop}"), *window])))
        least = [] if role.kleene.low <= 1 else [f"at least {role.kleene.low} taken"]
        proceed = [*formulas.get((var, "proceed"), []), *least]
        if after == FINAL:
            proceed += window
        elif not proceed:
            proceed = [f"the event can begin {after}, or can neither be taken nor ignored"]
        edges.append(Edge("proceed", loop, after, _all(proceed)))
    return Automaton(tuple(states), tuple(edges), _notes(query, found))


def _states(var: str, role: Role) -> list[str]:
    return [var] if role.kleene is None else [f"{var}[1]", f"{var}[i]"]


def _placed(query: Query, components: list[str], found: Mapping[str, Role]) -> dict[tuple[str, str], list[str]]:
    """Step 2: each conjunct on an edge of the state where the last of its identifiers is instantiated."""
    order = {var: number for number, var in enumerate(components)}
    placed: dict[tuple[str, str], list[str]] = {}
    for predicate in expanded(query):
        if any(found[var].negated for var in variables(predicate)):
            continue
        component, edge = last_instantiated(predicate, order)
        placed.setdefault((components[component], edge), []).append(_formula(predicate))
    return placed


def _formula(predicate: Expr) -> str:
    """A value that equals itself is not null."""
    if isinstance(predicate, Compare) and predicate.op == "=" and predicate.left == predicate.right:
        return f"{to_text(predicate.left)} IS NOT NULL"
    return to_text(predicate)


def _ignore(query: Query, condition: str) -> str:
    """Step 3."""
    match query.strategy:
        case Strategy.STRICT:
            return "FALSE"
        case Strategy.PARTITION:
            keys = partition_attributes(query)
            return f"NOT (same {', '.join(keys)})" if keys else "FALSE"
        case Strategy.NEXT_MATCH:
            return f"NOT ({condition})"
        case Strategy.ANY_MATCH:
            return "TRUE"


def _window_text(query: Query, start: str) -> list[str]:
    if query.window is None:
        return []
    if query.window.counts_events:
        return [f"position - position of {start} <= {query.window.amount}"]
    return [f"time - time of {start} <= {query.window}"]


def _type_test(event_class: EventClass) -> str:
    return f"type is {' or '.join(event_class.types)}" if event_class.types else "TRUE"


def _all(formulas: list[str]) -> str:
    if "FALSE" in formulas:
        return "FALSE"
    tests = [formula for formula in formulas if formula != "TRUE"]
    return (
        " AND ".join(f"({formula})" if " OR " in formula and len(tests) > 1 else formula for formula in tests) or "TRUE"
    )


def _notes(query: Query, found: Mapping[str, Role]) -> tuple[str, ...]:
    """Negation is that of a nested query (§3.1): it removes matches of the automaton of the positive components."""
    notes = []
    names = list(found)
    for at, (var, role) in enumerate(found.items()):
        if role.negated:
            about = (p for p in expanded(query) if var in variables(p))
            formula = _all([_type_test(role.event_class), *(to_text(p) for p in about)])
            before = next((name for name in reversed(names[:at]) if not found[name].negated), None)
            after = next((name for name in names[at:] if not found[name].negated), None)
            where = " and ".join(f"{word} {name}" for word, name in (("after", before), ("before", after)) if name)
            notes.append(f"a match is removed if {var} occurs {where}: {formula}")
    return tuple(notes)
