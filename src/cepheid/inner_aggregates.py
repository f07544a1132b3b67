"""Aggregates over closures inside derived events (`sum(p.b.v)`), which are attributes of these events."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from cepheid import expr as ex
from cepheid.errors import PatternProblem, did_you_mean
from cepheid.events import Schema
from cepheid.expr import MEMBER, Aggregate, Attr, Expr
from cepheid.pattern import Role

_OF_GROUPS = {"sum": "sum", "count": "sum", "min": "min", "max": "max", "first": "first", "last": "last"}
"""The aggregate of the aggregates of groups that is the aggregate of all."""


def of_closure(node: Expr, roles: Mapping[str, Role], schema: Schema) -> Expr:
    """An aggregate over a closure inside a derived event (`sum(p.b.v)`) as an attribute of it."""
    length = isinstance(node, Attr) and node.name.upper().endswith(".LEN")
    if not (isinstance(node, Aggregate) and node.name is not None) and not length:
        return node
    assert isinstance(node, Aggregate | Attr) and node.name is not None
    if node.var not in roles:
        return node
    known = schema.attributes(roles[node.var].event_class.types)
    if isinstance(node, Aggregate) and node.of is not None and roles[node.var].binds_many:
        return node
    if node.name in known and (isinstance(node, Attr) or roles[node.var].binds_many):
        return node
    if isinstance(node, Attr):
        name = _name_of_aggregate(node.name.split(".")[:-1], "count", known)
        return node if name is None else replace(node, name=name)
    found = _of_members(node, roles[node.var].binds_many, known)
    if found is None and not roles[node.var].binds_many:
        raise PatternProblem(
            f"`{ex.to_text(node)}` aggregates `{node.var}`, which has no closure of that name",
            span=node.span,
            expected="an aggregate over a closure",
            hint=_closures_meant(node, known),
        )
    return node if found is None else found


def _closures_meant(node: Aggregate, known: Collection[str]) -> str | None:
    """The hint for a closure whose name is similar, or written in another case: `p.B.v` for `p.b.v`."""
    assert node.name is not None
    member = f"{MEMBER}{node.fn if node.fn in _OF_GROUPS else 'sum'}"
    closures = [name.replace(member, "") for name in known if member in name]
    return did_you_mean(f"{node.var}.{node.name}", [f"{node.var}.{name}" for name in closures])


def _of_members(node: Aggregate, binds_many: bool, known: Collection[str]) -> Expr | None:
    """The aggregate over the closures inside the event, or the events, of a variable; an average over several closures
    is their sum, divided by their count."""
    assert node.name is not None
    if node.of is not None:
        return None
    name = _name_of_aggregate(node.name.split("."), node.fn, known)
    if name is not None and not binds_many:
        return Attr(node.var, name, span=node.span)
    if name is not None and node.fn in _OF_GROUPS:
        return replace(node, fn=_OF_GROUPS[node.fn], name=name)
    if node.fn != "avg":
        return None
    parts = [_of_members(replace(node, fn=fn), binds_many, known) for fn in ("sum", "count")]
    return None if None in parts else ex.Arithmetic("/", *parts, span=node.span)  # type: ignore[arg-type]


def _name_of_aggregate(path: Sequence[str], fn: str, known: Collection[str]) -> str | None:
    """The attribute that holds an aggregate over a closure, which may be in events of another closure: `sum(p.b.v)` is
    `b\ue001sum.v`, and `sum(p.g.b.v)` may be `g\ue001sum.b\ue001sum.v`."""
    ends = range(1, len(path) + 1)
    for count in range(1, len(path) + 1 if fn in _OF_GROUPS else 2):
        for chosen in itertools.combinations(ends, count):
            functions = {end: fn if end == chosen[-1] else _OF_GROUPS[fn] for end in chosen}
            words = [
                f"{word}{MEMBER}{functions[end]}" if end in functions else word
                for end, word in zip(ends, path, strict=True)
            ]
            if ".".join(words) in known:
                return ".".join(words)
    return None
