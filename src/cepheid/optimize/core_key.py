"""The key of an EQL query: attributes whose equality φ requires between all events that an instance reads.

Events of another key are then skipped, so that each key can be evaluated on its own. The same equalities as θ are no
key: an event of another key discards the instance.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from cepheid import pattern as pt
from cepheid.expr import At, Attr, Compare, Expr, Filter
from cepheid.pattern import Pattern, positives
from cepheid.types import Type


def core_key(core: Pattern, lacks: Collection[str], types: Mapping[str, Type]) -> tuple[str, ...]:
    """The key of a query in the core language. An attribute that some event type lacks is no key: its equality then
    does not apply."""
    names = dict.fromkeys(
        predicate.left.name
        for node in pt.walk(core)
        for predicate in map(_plain, _joining(node))
        if isinstance(predicate, Compare) and isinstance(predicate.left, Attr)
    )
    return tuple(name for name in names if name in types and name not in lacks and _is_shared(core, name))


def requires_key(core: Pattern) -> bool:
    """Whether every match compares the key of all its events, so that none of them is null."""
    match core:
        case pt.Next():
            return True
        case pt.Disj():
            return all(map(requires_key, core.items))
        case pt.Filtered() | pt.Timer() | pt.Unless():
            return requires_key(core.item)
        case _:
            return False


def _plain(predicate: Expr) -> Expr:
    return predicate.item if isinstance(predicate, Filter) else predicate


def _joining(node: Pattern) -> tuple[Expr, ...]:
    match node:
        case pt.Next() | pt.Iteration():
            return node.skip
        case pt.Unless():
            return node.when
        case _:
            return ()


def _is_shared(pattern: Pattern, name: str) -> bool:
    """Whether an operator skips the events whose value differs from that of the events detected so far."""
    match pattern:
        case pt.EventClass():
            return True
        case pt.Next(right=pt.Unless() as exception):
            # λ reads the composite event, so that one equality with either part of it is enough.
            whole = [a | b for a in alternatives(pattern.left) for b in alternatives(exception.item)]
            return (
                _joins(pattern.skip, name, alternatives(pattern.left), alternatives(exception.item))
                and _joins(exception.when, name, whole, alternatives(exception.cancel))
                and all(_is_shared(part, name) for part in (pattern.left, exception.item, exception.cancel))
            )
        case pt.Next():
            joined = _joins(pattern.skip, name, alternatives(pattern.left), alternatives(pattern.right))
            return joined and _is_shared(pattern.left, name) and _is_shared(pattern.right, name)
        case pt.Unless():
            joined = _joins(pattern.when, name, alternatives(pattern.item), alternatives(pattern.cancel))
            return joined and _is_shared(pattern.item, name) and _is_shared(pattern.cancel, name)
        case pt.Iteration():
            return _follows(pattern, name) and _is_shared(pattern.item, name)
        case _:
            return all(_is_shared(part, name) for part in pt.subpatterns(pattern))


def alternatives(pattern: Pattern) -> list[frozenset[str]]:
    """The sets of variables that a composite event may bind, one of which it does."""
    match pattern:
        case pt.Disj():
            return [found for item in pattern.items for found in alternatives(item)]
        case pt.Next():
            return [a | b for a in alternatives(pattern.left) for b in alternatives(pattern.right)]
        case pt.Filtered() | pt.Timer() | pt.Unless():
            return alternatives(pattern.item)
        case pt.Iteration():
            return [frozenset(positives(pattern))] if len(alternatives(pattern.item)) == 1 else [frozenset()]
        case _:
            return [frozenset(positives(pattern))]


def _joins(
    predicates: Collection[Expr], name: str, left: Collection[frozenset[str]], right: Collection[frozenset[str]]
) -> bool:
    """Whether whatever is bound on either side, an equality of the attribute applies."""
    pairs = [
        (p.left.var, p.right.var)
        for p in map(_plain, predicates)
        if isinstance(p, Compare) and p.op == "=" and isinstance(p.left, Attr) and isinstance(p.right, Attr)
        if p.left.name == p.right.name == name and {p.left.at, p.right.at} <= {At.EVENT}
    ]
    return all(
        any((a in one and b in other) or (b in one and a in other) for a, b in pairs) for one in left for other in right
    )


def _follows(pattern: pt.Iteration, name: str) -> bool:
    """Whether each item of a chain has the value of the one before it."""
    if len(alternatives(pattern.item)) != 1:
        return False
    inside = {var for var, role in pt.roles(pattern.item).items() if not role.negated and not role.binds_many}
    return any(
        isinstance(p, Compare)
        and p.op == "="
        and isinstance(p.left, Attr)
        and isinstance(p.right, Attr)
        and p.left.name == p.right.name == name
        and {p.left.var, p.right.var} <= inside
        and {p.left.at, p.right.at} in ({At.EVENT, At.PREVIOUS}, {At.EVENT, At.ALL})
        for p in map(_plain, pattern.skip)
    )
