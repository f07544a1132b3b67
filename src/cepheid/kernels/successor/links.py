"""The index of stored records: equalities between what is stored and what visits it, as keys.

An instance that waits is stored, and an event that may be its successor visits it. An equality applies if both sides
bind its variables. After a union they may bind one set of variables or another, its *alternatives*: each pair of them
has its own equalities, so that a table may have several indexes, and a visitor may have to visit several lists.

Where no equality decides, one part of an OR must: `a.k = b.k OR a.k = b.j`. A visitor then visits a list for each part,
and what satisfies an earlier part was visited before.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import NamedTuple

from cepheid import expr as ex
from cepheid.codegen.operands import Operand, nearest_float
from cepheid.codegen.scalar import Constants, Term, uncompilable, value
from cepheid.expr import Aggregate, At, Attr, Expr
from cepheid.kernels.successor.composites import Composite, Values
from cepheid.kernels.successor.operators import Iteration, Operator, Union
from cepheid.kernels.successor.operators import Next as Sequence_
from cepheid.physical import Kind

_MANY = 256
"""The most pairs of alternatives that are told apart."""
Alternative = frozenset[str]


class Part(NamedTuple):
    """A part of a key: the value of an expression, as an integer of a scale or as a float."""

    expr: Expr
    kind: Kind
    scale: int


@dataclass(frozen=True, slots=True)
class Link:
    """An equality between an expression over what waits and one over what is awaited."""

    predicate: Expr
    waiting: Part
    awaited: Part
    decides: bool
    """Whether equal keys imply that the predicate holds."""


Parts = tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Index:
    """The parts of the key of a record, by the variables that it binds. Without parts there is one list."""

    keys: tuple[tuple[Alternative, Parts], ...]

    @property
    def is_keyed(self) -> bool:
        return bool(self.keys[0][1])


@dataclass(slots=True)
class Indexes:
    """The indexes of a table. `visits` are the indexes that a visitor has to visit, by the variables that it binds,
    each with the parts of its key; no record is in two of them, unless there are `disjuncts`: the parts of an OR, one
    for each visit. `decided` are the predicates that hold wherever the keys are equal."""

    stored: tuple[Alternative, ...]
    visiting: tuple[Alternative, ...]
    indexes: list[Index] = field(default_factory=list)
    visits: dict[Alternative, list[tuple[int, Parts]]] = field(default_factory=dict)
    decided: list[Expr] = field(default_factory=list)
    disjuncts: tuple[Expr, ...] = ()
    by_last: bool = False
    """Whether the alternatives of a chain are those of its last item."""

    @property
    def is_keyed(self) -> bool:
        """Whether there is one index, it has keys, and a visitor visits one list."""
        return len(self.indexes) == 1 and self.indexes[0].is_keyed and not self.disjuncts


def indexes_of(
    links: Sequence[Link], waiting: Operator, awaited: Operator, *, stores_awaited: bool = False, iterates: bool = False
) -> Indexes:
    """The indexes of the records that wait or, with `stores_awaited`, of those that are awaited."""
    by_last = iterates and any(_of_last_item(link, awaited) for link in links)
    if by_last and not all(_of_last_item(link, awaited) or not _of_branch(link, awaited) for link in links):
        links, by_last = [link for link in links if not _of_last_item(link, awaited)], False
    sides = [_relevant(awaited if by_last else waiting, [link.waiting for link in links]),
             _relevant(awaited, [link.awaited for link in links])]  # fmt: skip
    if len(sides[0]) * len(sides[1]) > _MANY:
        return indexes_of([], waiting, awaited, stores_awaited=stores_awaited, iterates=iterates)
    stored, visiting = reversed(sides) if stores_awaited else sides
    found = Indexes(tuple(stored), tuple(visiting), by_last=by_last)
    chosen: list[tuple[list[Link], list[Link]]] = []
    for visitor in visiting:
        groups: dict[Parts, list[tuple[Alternative, Parts]]] = {}
        for record in stored:
            applying = [
                (link, *((link.awaited, link.waiting) if stores_awaited else (link.waiting, link.awaited)))
                for link in links
            ]
            applying = [(link, s, v) for link, s, v in applying if _reads(s) <= record and _reads(v) <= visitor]
            slots: dict[Part, tuple[Part, Link]] = {}
            for link, s, v in sorted(applying, key=lambda one: ex.to_text(one[1].expr)):
                slots.setdefault(v, (s, link))
            groups.setdefault(tuple(slots), []).append((record, tuple(s for s, _ in slots.values())))
            chosen.append(([link for link, *_ in applying], [link for _, link in slots.values()]))
        found.visits[visitor] = []
        for parts, keys in groups.items():
            index = Index(tuple(keys))
            if index not in found.indexes:
                found.indexes.append(index)
            found.visits[visitor].append((found.indexes.index(index), parts))
    for link in links:
        of = [(a, c) for a, c in chosen if link in a]
        if link.decides and all(c == [link] for _, c in of) and (not iterates or len(of) == len(chosen)):
            found.decided.append(link.predicate)
    return found


def indexes_of_parts(
    predicates: Sequence[Expr], waiting: Operator, awaited: Operator, values: Values, *, stores_awaited: bool = False
) -> Indexes | None:
    """The indexes by the parts of an OR that have equalities; None if there is no such OR."""
    for predicate in predicates:
        names = ex.variables(predicate)
        sides = [alternatives(operator, names) for operator in (waiting, awaited)]
        always = [side[0] if len(side) == 1 else frozenset() for side in sides]
        if names - always[0] - always[1] or names.intersection(waiting.many | awaited.many):
            continue
        disjuncts = _disjuncts(predicate.item if isinstance(predicate, ex.Filter) else predicate)
        links = [links_of(part.items if isinstance(part, ex.And) else [part], waiting, awaited, values)
                 for part in disjuncts]  # fmt: skip
        if len(disjuncts) < 2 or not all(links):
            continue
        stored, visiting = reversed(always) if stores_awaited else always
        found = Indexes((stored,), (visiting,), disjuncts=disjuncts)
        found.visits[visiting] = []
        for some in links:
            parts = [(link.awaited, link.waiting) if stores_awaited else (link.waiting, link.awaited) for link in some]
            index = Index(((stored, tuple(kept for kept, _ in parts)),))
            if index not in found.indexes:
                found.indexes.append(index)
            found.visits[visiting].append((found.indexes.index(index), tuple(visits for _, visits in parts)))
        return found
    return None


def _disjuncts(condition: Expr) -> tuple[Expr, ...]:
    match condition:
        case ex.Or():
            return tuple(part for item in condition.items for part in _disjuncts(item))
        case ex.In():
            return tuple(ex.Compare("=", condition.item, one) for one in condition.values)
        case _:
            return (condition,)


def _of_branch(link: Link, item: Operator) -> bool:
    """Whether only some items of an iteration bind what a link reads of the items before."""
    return not _reads(link.waiting).isdisjoint(item.optional)


def _of_last_item(link: Link, item: Operator) -> bool:
    """Whether a link applies only to chains whose last item is of a branch: `a.k = PREV(a.k)` in `(A a | B b)+`."""
    read = [node for node in _read(link.waiting.expr) if node.var in item.optional]
    return (
        bool(read)
        and all(isinstance(node, Attr) and node.at is At.PREVIOUS for node in read)
        and not any(node.var in item.many for node in _read(link.waiting.expr))
    )


def _reads(part: Part) -> frozenset[str]:
    return ex.variables(part.expr)


def _relevant(operator: Operator, parts: Sequence[Part]) -> list[Alternative]:
    """The alternatives of an operator, as far as parts of keys read their variables."""
    names = frozenset(var for part in parts for var in _reads(part))
    return list(dict.fromkeys(alternatives(operator, names)))


def alternatives(operator: Operator, names: Collection[str]) -> list[Alternative]:
    """The sets of variables among `names` that a composite event may bind to events, one of which it does."""
    match operator:
        case Union():
            found = [alternative for item in operator.items for alternative in alternatives(item, names)]
        case Sequence_():
            right = alternatives(operator.right, names)
            found = [a | b for a in alternatives(operator.left, names) for b in right]
        case Iteration():
            items = alternatives(operator.item, names)
            found = [frozenset().union(*some) for n in range(1, len(items) + 1) for some in combinations(items, n)]
        case _ if operator.operands:
            found = alternatives(operator.operands[0], names)
        case _:
            found = [frozenset(operator.variables).intersection(names)]
    return list(dict.fromkeys(found))


# --- equalities -------------------------------------------------------------------------------------------------------


def links_of(
    predicates: Sequence[Expr], waiting: Operator, awaited: Operator, values: Values, iterates: bool = False
) -> list[Link]:
    """The equalities among predicates with one side over what waits and the other over what is awaited. In an
    iteration, its chains wait for its own items."""
    found = []
    for predicate in predicates:
        match predicate.item if isinstance(predicate, ex.Filter) else predicate:
            case ex.Compare(op="=") as equality:
                for sides in _separated(equality, values):
                    link = _link(predicate, sides, (waiting, awaited), values, iterates)
                    if link is not None:
                        found.append(
                            link if sides[0] in (equality.left, equality.right) else replace(link, decides=False)
                        )
                        break
    return found


def _separated(equality: ex.Compare, values: Values) -> Iterator[tuple[Expr, Expr]]:
    """The ways to write an equality, each with two sides: of integers, `b.k - a.k = 2` is `b.k = a.k + 2`."""
    for one, other in ((equality.left, equality.right), (equality.right, equality.left)):
        yield one, other
        if not isinstance(one, ex.Arithmetic) or one.op not in "+-" or not isinstance(other, ex.Const):
            continue
        if not all(_is_value(side, values) and _is_integer(side, values) for side in (one.left, one.right, other)):
            continue
        moved = replace(one, op="+", left=one.right, right=other)
        if one.op == "+":
            moved = replace(one, op="-", left=other, right=one.right)
        yield one.left, moved
        yield moved, one.left


def _is_integer(expr: Expr, values: Values) -> bool:
    operand = value(expr, lambda node: _sample(node, values), Constants())
    return operand.kind is Kind.INT and not operand.is_decimal


def _link(
    predicate: Expr, sides: tuple[Expr, Expr], operators: tuple[Operator, Operator], values: Values, iterates: bool
) -> Link | None:
    (one, other), (waiting, awaited) = sides, operators
    is_waiting = _waits_in_chain if iterates else _waits
    is_awaited = _is_item if iterates else _is_awaited
    if not all(is_waiting(node, waiting, awaited) for node in _read(one)) or not any(_read(one)):
        return None
    if not all(is_awaited(node, awaited) for node in _read(other)) or not any(_read(other)):
        return None
    if not all(_is_value(side, values) for side in sides):
        return None
    if any(_may_lack(node, operator, values) for side, operator in zip(sides, operators, strict=True)
           for node in _read(side)):  # fmt: skip
        return None
    operands = [value(side, lambda node: _sample(node, values), Constants()) for side in sides]
    form = _form(*operands)
    if form is None:
        return None
    kind, scale, decides = form
    is_every = any(isinstance(node, Attr) and node.at is At.ALL for node in _read(one))
    return Link(predicate, Part(one, kind, scale), Part(other, kind, scale), decides and not is_every)


def _read(expr: Expr) -> list[Attr | Aggregate]:
    return [node for node in ex.walk(expr) if isinstance(node, Attr | Aggregate)]


def _is_value(expr: Expr, values: Values) -> bool:
    """Whether kernels compute an expression as a number or a code."""
    plain = ex.Const | Attr | Aggregate | ex.Arithmetic | ex.Negative | ex.Call
    if not all(isinstance(node, plain) for node in ex.walk(expr)):
        return False
    at_last = ex.replaced(expr, Attr, lambda n: Attr(n.var, n.name, type=n.type) if n.at is At.ALL else n)
    return not uncompilable([at_last], values.plan.types)


def _waits(node: Attr | Aggregate, waiting: Operator, awaited: Operator) -> bool:
    if isinstance(node, Aggregate):
        return node.var in waiting.many and node.over is not ex.Over.MATCHES
    return node.var in waiting.variables and node.at is not At.CURRENT and node.var not in awaited.variables


def _is_awaited(node: Attr | Aggregate, awaited: Operator) -> bool:
    if isinstance(node, Aggregate):
        return node.var in awaited.many and node.over is not ex.Over.MATCHES
    return node.var in awaited.variables and node.at in (At.EVENT, At.FIRST)


def _waits_in_chain(node: Attr | Aggregate, chain: Operator, item: Operator) -> bool:
    if isinstance(node, Aggregate) or node.var not in chain.variables or node.at is At.CURRENT:
        return False
    if node.var in item.optional and (node.at is At.ALL or (node.at is At.PREVIOUS and node.var in item.many)):
        return False  # it applies only to some items
    return node.at in (At.PREVIOUS, At.LAST, At.ALL) or node.var in item.many


def _is_item(node: Attr | Aggregate, item: Operator) -> bool:
    if isinstance(node, Aggregate) or node.var not in item.variables:
        return False
    return node.var not in item.many and node.at is At.EVENT


def _may_lack(node: Attr | Aggregate, operator: Operator, values: Values) -> bool:
    """Whether a variable may be bound to an event without the attribute, or lists inside lists may lack events. An
    aggregate has a value over an empty list too, where an attribute does not apply."""
    if isinstance(node, Aggregate) and node.var in operator.empty:
        return True
    around = [op for op in operator.walk() if isinstance(op, Iteration) and node.var in op.variables]
    if len(around) > 1 and node.var in operator.empty:
        return True
    return node.name is not None and values.may_lack(node.var, node.name)


def _sample(node: Attr | Aggregate, values: Values) -> Term:
    """A term of the kind that a value will have."""
    if isinstance(node, Aggregate):
        return values.aggregate(node, lambda _: "x", None)
    return Term("x", values.plan.columns[node.name], None, values.plan.types[node.name], "True")


def _form(left: Operand, right: Operand) -> tuple[Kind, int, bool] | None:
    """The kind and the scale in which equal values are the same integer, and whether others differ; None: there is
    none."""
    kinds = {left.kind, right.kind}
    if None in kinds:
        return None
    if kinds & {Kind.CODE, Kind.BOOL}:
        return (Kind.CODE, 0, True) if len(kinds) == 1 else None
    if Kind.FLOAT in kinds:
        return Kind.FLOAT, 0, all(side.kind is Kind.FLOAT or side.scale > 0 for side in (left, right))
    return Kind.INT, min(left.scale, right.scale), len(kinds) == 1


def as_key(operand: Operand, part: Part) -> tuple[str, list[str]]:
    """A value as part of a key, `float_key(column0[e])`, and the conditions that it has one: that it is not null and,
    if the other side has fewer digits after the point, that it has as few (`column0[e] % 100 == 0`)."""
    source = operand.source
    if part.kind is Kind.FLOAT:
        number = nearest_float(operand)
        is_number = [f"{number} == {number}"] if operand.kind is Kind.FLOAT else []
        return f"float_key({number})", [*operand.known, *is_number]
    if operand.scale > part.scale:
        factor = 10 ** (operand.scale - part.scale)
        return f"{source} // {factor}", [*operand.known, f"{source} % {factor} == 0"]
    return source, list(operand.known)


def possible(event: Composite, those: Sequence[Alternative]) -> Iterator[tuple[Alternative, list[str]]]:
    """The alternatives that a composite may be, each with the variables that tell it from the others."""
    names = sorted(frozenset().union(*those))
    sure = {var for var in names if var in event.bound and var not in event.operator.empty}
    left = [one for one in those if sure <= one and not one & event.unbound]
    open_ = [var for var in names if var not in sure and var not in event.unbound]
    for one in left:
        yield one, [] if len(left) == 1 else open_
