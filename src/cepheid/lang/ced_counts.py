"""Counts and sums over the last while in CED's language (CED §6.5): `count(idle; 1 min) > 50% of 49 nodes`.

One that is the whole event of a `complex` is its definition. One inside another event is a declaration of its own,
which is named by `as` or after what it counts, and the event uses it by that name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from lark import Token, v_args
from lark.tree import Meta

from cepheid import pattern as pt
from cepheid.dialect import Dialect
from cepheid.errors import NameProblem, PatternProblem, Span, did_you_mean, listing
from cepheid.events import OWN_UNIT, Duration
from cepheid.expr import Attr, Expr, attribute_text, conjuncts, name_text, variables
from cepheid.lang.expressions import ExpressionBuilder, span_of
from cepheid.lang.literals import number
from cepheid.pattern import Column, EventClass, Pattern, Query, Threshold, with_subpatterns

GRAMMAR = r"""
counted: NAME -> events
    | NAME "." WORD -> values
    | _DISTINCT NAME "." WORD -> distinct_values
limit: NUMBER -> amount
    | MINUS NUMBER -> negative_amount
    | NAME -> parameter
    | NUMBER MODULO _OF share -> amount_of_nodes
    | MODULO NUMBER _OF share -> amount_of_nodes
share: NUMBER _NODES
    | _ALL _NODES
group: _GROUP _BY by
    | _GROUP _BY "(" by ("," by)* ")"
by: NAME ["." WORD]

_COUNT.5: /count(?=\s*\()/i
_SUM.5: /sum(?=\s*\()/i
_DISTINCT.5: /distinct(?=\s+[^\W\d])/i
_NODES.5: /nodes?\b/i
_GROUP.5: /group(?=\s+by\b)/i
_BY.5: /by\b/i
_OF.5: /of\b/i
_ALL.5: /all\b/i
"""
WORDS = {"_COUNT": "`count(...)`", "_SUM": "`sum(...)`"}
NODE_ID = "node_id"


class _Of(NamedTuple):
    alias: Token
    attribute: str | None
    is_distinct: bool


class _Limit(NamedTuple):
    amount: int | float | str
    is_share: bool = False
    nodes: int | None = None
    span: Span | None = None


class _By(NamedTuple):
    alias: str | None
    name: str
    span: Span


@dataclass(frozen=True, slots=True)
class Counted(Pattern):
    """A count or a sum as written, in the parser alone."""

    fn: str
    of: _Of
    window: Duration
    op: str
    limit: _Limit
    group: tuple[_By, ...]
    label: str | None

    @property
    def alias(self) -> str:
        return str(self.of.alias)


@v_args(meta=True)
class CountedBuilder(ExpressionBuilder):
    """Builds them."""

    def events(self, meta: Meta, items: list[Any]) -> _Of:
        return _Of(items[0], None, False)

    def values(self, meta: Meta, items: list[Any]) -> _Of:
        return _Of(items[0], str(items[1]), False)

    def distinct_values(self, meta: Meta, items: list[Any]) -> _Of:
        return _Of(items[0], str(items[1]), True)

    def amount(self, meta: Meta, items: list[Any]) -> _Limit:
        return _Limit(number(items[0]))

    def negative_amount(self, meta: Meta, items: list[Any]) -> _Limit:
        return _Limit(-number(items[1]))

    def parameter(self, meta: Meta, items: list[Any]) -> _Limit:
        return _Limit(str(items[0]))

    def amount_of_nodes(self, meta: Meta, items: list[Any]) -> _Limit:
        percent = next(item for item in items if isinstance(item, Token) and item.type == "NUMBER")
        return _Limit(number(percent), True, items[-1], span_of(meta))

    def share(self, meta: Meta, items: list[Any]) -> int | None:
        """The number of nodes; None: all nodes."""
        return nodes_of(items[0]) if items else None

    def by(self, meta: Meta, items: list[Any]) -> _By:
        first, second = items
        return _By(None if second is None else str(first), str(first if second is None else second), span_of(meta))

    def group(self, meta: Meta, items: list[Any]) -> tuple[_By, ...]:
        return tuple(items)

    def count_of(self, meta: Meta, items: list[Any]) -> Counted:
        return _counted("count", items, span_of(meta))

    def sum_of(self, meta: Meta, items: list[Any]) -> Counted:
        return _counted("sum", items, span_of(meta))


def nodes_of(token: Token) -> int:
    found = number(token)
    if not isinstance(found, int) or found < 1:
        raise PatternProblem(f"{token} nodes", span=span_of(token), expected="a whole number of nodes")
    return found


_SAME_AS = {"==": "=", "<>": "!=", "≠": "!=", "≤": "<=", "≥": ">="}


def _counted(fn: str, items: list[Any], span: Span) -> Counted:
    of, window, sign, limit, group, label = items
    if fn == "sum" and of.attribute is None:
        raise PatternProblem(
            f"`sum({of.alias})` sums events", span=span, expected="an attribute", hint=f"sum({of.alias}.attribute; ...)"
        )
    if fn == "sum" and of.is_distinct:
        raise PatternProblem("a sum of distinct values", span=span, expected="count(distinct ...), or sum(...)")
    if limit.is_share and (fn == "sum" or (of.attribute is not None and not of.is_distinct)):
        raise PatternProblem(
            "a share of nodes is a count of nodes",
            span=limit.span,
            expected=f"count({of.alias}; ...) > 50% of all nodes",
        )
    if limit.is_share and not of.is_distinct:
        of = _Of(of.alias, NODE_ID, True)
    name = None if label is None else str(label)
    return Counted(fn, of, window, _SAME_AS.get(sign, str(sign)), limit, group or (), name, span=span)


def declared(
    counted: Counted, name: str, types: Mapping[str, str], where: tuple[Expr, ...], dialect: Dialect, nodes: int | None
) -> Query:
    """The declaration of a count. `types` are the event types by alias; `nodes` is the number of nodes of its source,
    if that is declared."""
    alias = counted.alias
    for by in counted.group:
        if by.alias not in (None, alias):
            raise NameProblem(f"`{by.alias}` is not what is counted", span=by.span, expected=f"`{alias}.{by.name}`")
    if counted.limit.is_share and counted.limit.nodes is None and nodes is None:
        raise PatternProblem(
            "the number of all nodes is not known",
            span=counted.limit.span,
            expected="50% of 49 nodes",
            hint="or declare it with the source: source NAME on 49 nodes schema ...",
        )
    known = (counted.limit.nodes or nodes) if counted.limit.is_share else None
    of = None if counted.of.attribute is None else Attr(alias, counted.of.attribute, span=counted.span)
    window, limit = counted.window, counted.limit
    threshold = Threshold(counted.fn, of, counted.of.is_distinct, window, counted.op, limit.amount, known)
    columns = tuple(Column(by.name, Attr(alias, by.name, span=by.span)) for by in counted.group)
    event_class = EventClass(alias, (types[alias],), span=span_of(counted.of.alias))
    return Query(event_class, dialect, where=where, output=columns, name=name, threshold=threshold)


def counts_in(pattern: Pattern) -> list[Counted]:
    return [node for node in pt.walk(pattern) if isinstance(node, Counted)]


def named(counts: list[Counted], taken: set[str]) -> list[str]:
    """A name for each count: its own, or that of what it counts."""
    names: list[str] = []
    for one in counts:
        name, number = one.label or f"{one.fn}_{one.alias}", 2
        if one.label is not None and name in {*taken, *names}:
            raise PatternProblem(f"`{name}` is declared twice", span=one.span, hint="choose another name after `as`")
        while name in {*taken, *names}:
            name, number = f"{one.fn}_{one.alias}_{number}", number + 1
        names.append(name)
    return names


def with_names(pattern: Pattern, names: Mapping[int, str]) -> Pattern:
    """The pattern with the events of counts instead of them, by identity."""
    if isinstance(pattern, Counted):
        name = names[id(pattern)]
        return EventClass(name, (name,), span=pattern.span)
    return with_subpatterns(pattern, lambda part: with_names(part, names))


def divided(
    where: tuple[Expr, ...], counted: set[str], known: set[str]
) -> tuple[dict[str, tuple[Expr, ...]], tuple[Expr, ...]]:
    """The conditions on the events that are counted, by alias, and the others."""
    own: dict[str, list[Expr]] = {alias: [] for alias in counted}
    others = []
    for predicate in (part for condition in where for part in conjuncts(condition)):
        names = variables(predicate) & counted
        if not names:
            others.append(predicate)
        elif len(names) == 1 and not variables(predicate) - names:
            own[next(iter(names))].append(predicate)
        else:
            raise PatternProblem(
                f"a condition on `{next(iter(names))}`, which is counted, and on other events",
                span=predicate.span,
                expected=f"conditions on single events, or on events of the pattern: {listing(known)}",
                hint="group by the attribute, and compare the group: count_a.key = b.key",
            )
    return {alias: tuple(predicates) for alias, predicates in own.items()}, tuple(others)


def require_listed(counts: list[Counted], aliases: Mapping[str, str], bound: set[str]) -> None:
    for one in counts:
        if one.alias in bound:
            raise PatternProblem(
                f"`{one.alias}` is counted, and is an event of the pattern as well",
                span=one.span,
                hint=f"list the type twice: on {aliases.get(one.alias, one.alias)} as {one.alias}, ... as another name",
            )
        if aliases and one.alias not in aliases:
            raise NameProblem(
                f"`{one.alias}` is not among the subevents",
                span=span_of(one.of.alias),
                expected=f"one that `on` lists: {listing(aliases)}",
                hint=did_you_mean(one.alias, aliases),
            )


def text(query: Query) -> str:
    """The event of a declaration that counts."""
    threshold = query.threshold
    assert threshold is not None and isinstance(query.pattern, EventClass)
    alias = name_text(query.pattern.var)
    of = threshold.of
    what = f"{alias}.{attribute_text(of.name)}" if isinstance(of, Attr) else alias
    distinct = "distinct " if threshold.is_distinct else ""
    amount = threshold.amount if threshold.nodes is None else f"{threshold.amount}% of {threshold.nodes} nodes"
    columns = [f"{alias}.{attribute_text(column.name)}" for column in query.output or ()]
    group = f" group by {columns[0] if len(columns) == 1 else '(' + ', '.join(columns) + ')'}" if columns else ""
    window = threshold.window
    length = window.amount if window.unit == OWN_UNIT else window
    return f"{threshold.fn}({distinct}{what}; {length}) {threshold.op} {amount}{group}"


def wrapped(query: Query) -> Query:
    """The result of a script whose last declaration is a count: its events."""
    name = query.name or ""
    result = Query(EventClass(name, (name,)), query.dialect, name="result" if name != "result" else "result_2")
    return replace(result, inputs=(query,))
