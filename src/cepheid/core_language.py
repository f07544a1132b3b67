"""Translates EQL to NEXT's core language, which attaches each predicate to one operator (§3.4, §3.5).

A predicate belongs to the smallest sub-pattern that binds all its variables; a conjunction inside one FILTER is split
first. On a single event it is a filter, unless a next or an iteration waits for that event: then it is the operator's
θ, which discards the instance (the paper's query of three consecutive transactions), or, written FILTER(...), its φ,
which skips the event. A condition with PREV or ALL belongs to the iteration whose items they read. A condition
on an aggregate is a filter on the chains of the iteration that makes the group, or belongs to an operator above it; in
FILTER it is the iteration's φ.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from cepheid import pattern as pt
from cepheid.errors import PatternProblem
from cepheid.expr import Aggregate, At, Attr, Compare, Expr, Filter, In, OccursWithin, Or, conjuncts, variables, walk
from cepheid.pattern import Pattern, roles


def core_form(pattern: Pattern, where: Sequence[Expr]) -> Pattern:
    """The pattern in the core language, every predicate attached to its operator."""
    parts = [part for p in where for part in _parts(p)]
    placed, here = _place(pattern, [p for p in parts if variables(p)])
    # A condition without variables is about the match, whatever the operators.
    here += [p for p in parts if not variables(p)]
    keep = tuple(part for p in here for part in conjuncts(p.item if isinstance(p, Filter) else p))
    return pt.Filtered(placed, keep) if here else placed


def _parts(predicate: Expr) -> list[Expr]:
    """The conjuncts of a predicate, each in a FILTER of its own if the predicate is one."""
    if isinstance(predicate, Filter):
        return [Filter(part, span=part.span, type=part.type) for part in conjuncts(predicate.item)]
    return list(conjuncts(predicate))


def _bound_by(pattern: Pattern) -> set[str]:
    return set(roles(pattern))


def _split(where: list[Expr], *parts: Pattern) -> tuple[list[list[Expr]], list[Expr]]:
    """The predicates that belong to each part, and those of the operator above the parts."""
    inside: list[list[Expr]] = [[] for _ in parts]
    here: list[Expr] = []
    for predicate in where:
        names = variables(predicate)
        home = next((i for i, part in enumerate(parts) if names and names <= _bound_by(part)), None)
        (here if home is None else inside[home]).append(predicate)
    return inside, here


def _skip_and_keep(where: list[Expr]) -> tuple[tuple[Expr, ...], tuple[Expr, ...]]:
    skip = tuple(part for p in where if isinstance(p, Filter) for part in conjuncts(p.item))
    return skip, tuple(p for p in where if not isinstance(p, Filter))


def _place(pattern: Pattern, where: list[Expr]) -> tuple[Pattern, list[Expr]]:
    """The pattern with predicates attached below its top operator, and those that the operator above must take."""
    match pattern:
        case pt.EventClass():
            return pattern, where
        case pt.Next():
            return _place_next(pattern, where), []
        case pt.Iteration():
            groups = [p for p in where if _aggregates_over(p, pattern.item)]
            previous = [p for p in where if p not in groups and _reads_chain(p, pattern.item)]
            item, here = _place(pattern.item, [p for p in where if p not in groups and p not in previous])
            skip, keep = _skip_and_keep([*here, *previous, *(p for p in groups if isinstance(p, Filter))])
            chains = replace(pattern, item=item, skip=skip, keep=keep)
            whole = tuple(p for p in groups if not isinstance(p, Filter))
            return pt.Filtered(chains, whole) if whole else chains, []
        case pt.Unless():
            (inside, cancelling), here = _split(where, pattern.item, pattern.cancel)
            item, above = _place(pattern.item, inside)
            return replace(pattern, item=item, cancel=core_form(pattern.cancel, cancelling), when=tuple(here)), above
        case pt.Disj():
            inside_each, here = _split(where, *pattern.items)
            items = tuple(core_form(item, inside) for item, inside in zip(pattern.items, inside_each, strict=True))
            return replace(pattern, items=items), here
        case pt.Timer():
            return replace(pattern, item=core_form(pattern.item, where)), []
        case _:
            raise PatternProblem("EQL does not have this operator", span=pattern.span)


def _aggregates_over(predicate: Expr, item: Pattern) -> bool:
    """Whether a predicate of an iteration has an aggregate over a variable that is a single event in each item."""
    inside = roles(item)
    aggregated = [node.var for node in walk(predicate) if isinstance(node, Aggregate)]
    return any(var in inside and not (inside[var].binds_many or inside[var].negated) for var in aggregated)


def _reads_chain(predicate: Expr, item: Pattern) -> bool:
    """Whether a predicate has PREV or ALL of a variable that is a single event in each item: they read the items before
    it, whatever part of the item binds the variable."""
    inside = roles(item)
    read = [node.var for node in walk(predicate) if isinstance(node, Attr) and node.at in (At.PREVIOUS, At.ALL)]
    return any(var in inside and not (inside[var].binds_many or inside[var].negated) for var in read)


def _place_next(pattern: pt.Next, where: list[Expr]) -> pt.Next:
    (in_left, in_right), here = _split(where, pattern.left, pattern.right)
    left = core_form(pattern.left, in_left)
    right, of_right = _place(pattern.right, in_right)
    if isinstance(right, pt.Unless):
        cancelling = _bound_by(right.cancel)
        right = replace(right, when=(*right.when, *(p for p in here if variables(p) & cancelling)))
        here = [p for p in here if not variables(p) & cancelling]
    skip, keep = _skip_and_keep([*of_right, *here])
    return replace(pattern, left=left, right=right, skip=skip, keep=keep)


def endless_chains(pattern: Pattern) -> list[pt.Iteration]:
    """The iterations of a core form whose chains nothing ends: neither θ nor OCCURS WITHIN. Every prefix of every chain
    is a composite event, so there are as many as pairs of events."""
    return [
        node
        for node in pt.walk(pattern)
        if isinstance(node, pt.Iteration)
        if not node.keep and not any(isinstance(part, OccursWithin) for p in node.skip for part in walk(p))
    ]


def unindexed(pattern: Pattern) -> list[tuple[Pattern, list[Expr]]]:
    """The sequences and iterations of a core form whose φ compares events, but never for equality: an event that may
    follow visits every instance that waits. Each has its comparisons."""
    found: list[tuple[Pattern, list[Expr]]] = []
    for node in pt.walk(pattern):
        if isinstance(node, pt.Next | pt.Iteration):
            bare = [predicate.item if isinstance(predicate, Filter) else predicate for predicate in node.skip]
            compared = [predicate for predicate in bare if _compares(node, predicate)]
            if compared and not any(_is_equality(predicate) for predicate in compared):
                found.append((node, compared))
    return found


def _compares(node: pt.Next | pt.Iteration, predicate: Expr) -> bool:
    """Whether a predicate is about both what waits and what may follow."""
    if any(isinstance(part, OccursWithin) for part in walk(predicate)):
        return False
    if isinstance(node, pt.Next):
        return not any(roles(side).keys().isdisjoint(variables(predicate)) for side in (node.left, node.right))
    return any(isinstance(part, Aggregate) for part in walk(predicate)) or _reads_chain(predicate, node.item)


def _is_equality(predicate: Expr) -> bool:
    """Whether an index can find what satisfies a predicate: it is an equality, or each part of an OR is one."""
    match predicate:
        case Or():
            return all(any(map(_is_equality, conjuncts(part))) for part in predicate.items)
        case Compare():
            return predicate.op == "="
        case _:
            return isinstance(predicate, In)
