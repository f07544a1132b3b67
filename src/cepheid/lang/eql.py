r"""NEXT's languages (§3.5): stream definitions, and the Event Query Language `SELECT ... FROM ... WHERE ...`.

In a pattern `+` and `@` bind tightest, then `|`, then `\`, then `;`. Next and exception group to the left; brackets
are preserved, because rewriting them is the task of the optimizer (§4.3). The paper defines no syntax for stream
definitions; here it is `SOURCE t (acc long, amount double)`, which may begin with CREATE or REGISTER.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import Any, NamedTuple

from lark import v_args
from lark.tree import Meta

from cepheid.dialect import SUCCESSORS, Closure, Dialect, Order, Windows
from cepheid.errors import PatternProblem, Span, listing
from cepheid.expr import (
    At,
    Attr,
    Call,
    Expr,
    Filter,
    OccursWithin,
    attribute_text,
    bracketed,
    name_text,
    transform,
    type_name_text,
    walk,
)
from cepheid.expr import to_text as expr_text
from cepheid.lang.common import LanguageParser, columns_text, output_columns, where_clause
from cepheid.lang.components import mark_hyphens
from cepheid.lang.expressions import (
    ExpressionBuilder,
    check_depth,
    expression_grammar,
    keywords,
    name_of,
    rule_for,
    rule_for_all,
    span_of,
)
from cepheid.lang.parsed_nodes import ParsedColumn
from cepheid.lang.text import skeleton
from cepheid.lang.type_names import type_named, type_text, unknown_stream
from cepheid.pattern import (
    Disj,
    EventClass,
    Filtered,
    Iteration,
    Next,
    Pattern,
    Query,
    SourceStream,
    Timer,
    Unless,
    roles,
    subpatterns,
)
from cepheid.pattern import walk as walk_pattern

DIALECT = Dialect(
    name="eql", title="EQL (NEXT)", other_names=("next",),
    beginning="SELECT ... FROM ...", first_words=("SELECT", "SOURCE"), clauses=("SELECT", "FROM", "WHERE"),
    selection=SUCCESSORS, selection_text="for each event, its unique immediate successor",
    order=Order.TIME, closure=Closure.ITERATION, windows=Windows.CONDITION, window_includes_bound=True,
    operators=(EventClass, Disj, Next, Iteration, Unless, Timer, Filtered),
    conditions=(Filter, OccursWithin), conditions_belong_to_operators=True,
    has_nodes=False, has_rewrite_rules=False, declares_streams=True, has_classes_by_name=False, names_its_result=False,
)  # fmt: skip

_RESERVED = (*DIALECT.clauses, "FILTER")

_GRAMMAR = (
    r"""
start: definition* _SELECT selection _FROM pattern [_WHERE condition ("," condition)*]
definition: (_CREATE | _REGISTER)? _SOURCE TYPE "(" field ("," field)* ")" ";"? -> source
    | (_CREATE | _REGISTER)? _SINK TYPE ["(" field ("," field)* ")"] ";"? -> sink
field: WORD WORD
selection: STAR -> everything
    | columns

pattern: next
?next: unless
    | next ";" unless -> next_
?unless: union
    | unless _EXCEPT union -> unless_
?union: repeated
    | repeated ("|" repeated)+ -> union_
?repeated: part
    | repeated PLUS -> iteration
    | repeated "@" duration -> timer
?part: "(" next ")"
    | TYPE [NAME] -> event_class

_EXCEPT: /\\(?:setminus\b)?|∖/
"""
    + keywords(*_RESERVED, "CREATE", "REGISTER", "SOURCE", "SINK", "OCCURS", "WITHIN")
    + expression_grammar(
        reserved=_RESERVED,
        vectors=True,
        backslash_spaces=False,
        atoms="""| _FILTER "(" expr ")" -> filter_
    | "(" NAME "," NAME ")" _OCCURS _WITHIN duration -> occurs_within""",
    )
)
_WORDS = {"_EXCEPT": "`\\`", "_FILTER": "`FILTER(...)`"}


class Sink(NamedTuple):
    """A declared sink: the name of the stream that the matches of the query are."""

    name: str
    span: Span


@v_args(meta=True)
class _Builder(ExpressionBuilder):
    def start(self, meta: Meta, items: list[Any]) -> Query:
        sources = tuple(item for item in items if isinstance(item, SourceStream))
        sinks = [item for item in items if isinstance(item, Sink)]
        if len(sinks) > 1:
            raise PatternProblem(
                f"the sinks `{sinks[0].name}` and `{sinks[1].name}`: the matches of a query go to one",
                span=sinks[1].span,
                expected="one sink",
            )
        selection, pattern, *conditions = items[len(sources) + len(sinks) :]
        where = where_clause((condition for condition in conditions if condition is not None), roles(pattern))
        _check_filters(where)
        return Query(
            pattern,
            DIALECT,
            where=where,
            output=None if selection is None else output_columns(selection, roles(pattern)),
            inputs=sources,
            name=sinks[0].name if sinks else None,
        )

    # --- stream definitions

    def source(self, meta: Meta, items: list[Any]) -> SourceStream:
        return SourceStream(str(items[0]), tuple(items[1:]), span=span_of(items[0]))

    def sink(self, meta: Meta, items: list[Any]) -> Sink:
        return Sink(str(items[0]), span_of(items[0]))

    def field(self, meta: Meta, items: list[Any]) -> tuple[str, Any]:
        return str(items[0]), type_named(items[1])

    # --- the query

    filter_ = rule_for(Filter)

    def everything(self, meta: Meta, items: list[Any]) -> None:
        return None

    def selection(self, meta: Meta, items: list[Any]) -> tuple[ParsedColumn, ...]:
        columns: tuple[ParsedColumn, ...] = items[0]
        return columns

    def occurs_within(self, meta: Meta, items: list[Any]) -> Expr:
        first, second, duration = items
        return OccursWithin(name_of(first), name_of(second), duration, span=span_of(meta))

    # --- the pattern

    next_, unless_, timer = rule_for(Next), rule_for(Unless), rule_for(Timer)
    union_ = rule_for_all(Disj)

    def pattern(self, meta: Meta, items: list[Any]) -> Pattern:
        check_depth(items[0], subpatterns, "pattern")
        pattern: Pattern = items[0]
        return pattern

    def iteration(self, meta: Meta, items: list[Any]) -> Pattern:
        return Iteration(items[0], span=span_of(meta))

    def event_class(self, meta: Meta, items: list[Any]) -> Pattern:
        source, alias = items
        return EventClass(str(source) if alias is None else str(alias), (str(source),), span=span_of(meta))


_PARSER = LanguageParser(_GRAMMAR, _Builder(), _WORDS, prepare=mark_hyphens)
_START = re.compile(
    r"\s*(?:SELECT\b|(?:(?:CREATE|REGISTER)\s+)?(?:SOURCE|SINK)\s+(?:[\w-]+|`[^`]*`)\s*"
    r"(?:\(|;|(?:SELECT|SOURCE|CREATE|REGISTER)\b))",
    re.IGNORECASE,
)
_SQL = re.compile(r"\bMATCH_RECOGNIZE\b", re.IGNORECASE)


def recognises(text: str) -> bool:
    """SQL's row patterns also begin with SELECT, but contain MATCH_RECOGNIZE."""
    code = skeleton(text)
    return _START.match(code) is not None and _SQL.search(code) is None


def parse(text: str, known: Collection[str] = ()) -> Query:
    """The query; `known` are streams that are declared elsewhere."""
    query: Query = _PARSER.parse(text)
    _check_sources(query, known)
    return query


def _check_sources(query: Query, known: Collection[str]) -> None:
    """Where streams are defined, all of them are."""
    if not query.inputs:
        return
    declared = {item.name for item in query.inputs if isinstance(item, SourceStream)}.union(known)
    for node in walk_pattern(query.pattern):
        if isinstance(node, EventClass) and declared.isdisjoint(node.types):
            raise unknown_stream(node.types[0], node.span, declared)


def _check_filters(where: Iterable[Expr]) -> None:
    """FILTER is a qualification of its own, so nothing but AND may join it with another."""
    for condition in where:
        inside = condition.item if isinstance(condition, Filter) else condition
        for node in walk(inside):
            if isinstance(node, Filter):
                raise PatternProblem(
                    "FILTER inside another condition",
                    span=node.span,
                    expected="FILTER(...) as a qualification of its own, after a comma or AND",
                    hint="put the whole condition inside one FILTER",
                )


# --- printing ---------------------------------------------------------------------------------------------------------

_NEXT, _UNLESS, _UNION, _POSTFIX = range(4)


def to_text(query: Query) -> str:
    """The query as this language writes it, its stream definitions first."""
    lines = [_definition_text(item) for item in query.inputs if isinstance(item, SourceStream)]
    lines.append("SELECT " + ("*" if query.output is None else columns_text(query.output, _expression_text)))
    lines.append(f"FROM {_print(query.pattern)[0]}")
    if query.where:
        lines.append("WHERE " + ", ".join(_expression_text(condition) for condition in query.where))
    return "\n".join(lines)


def _definition_text(source: SourceStream) -> str:
    fields = ", ".join(f"{attribute_text(name)} {type_text(kind)}" for name, kind in source.attributes)
    return f"SOURCE {type_name_text(source.name)} ({fields})"


def _expression_text(expression: Expr) -> str:
    def change(node: Expr) -> Expr:
        if isinstance(node, Attr) and node.at is At.PREVIOUS:
            return Call("PREV", (Attr(node.var, node.name),))
        return node

    return expr_text(transform(expression, change))


def _print(pattern: Pattern) -> tuple[str, int]:
    """The text, and how tightly its outermost operator binds."""

    def at(item: Pattern, level: int) -> str:
        return bracketed(_print(item), level)

    match pattern:
        case Next():
            return f"{at(pattern.left, _NEXT)}; {at(pattern.right, _UNLESS)}", _NEXT
        case Unless():
            return f"{at(pattern.item, _UNLESS)} \\ {at(pattern.cancel, _UNION)}", _UNLESS
        case Disj():
            return " | ".join(at(item, _POSTFIX) for item in pattern.items), _UNION
        case Iteration():
            return f"{at(pattern.item, _POSTFIX)}+", _POSTFIX
        case Timer():
            return f"{at(pattern.item, _POSTFIX)} @ {pattern.delay}", _POSTFIX
        case EventClass(types=(source,)):
            text = type_name_text(source)
            return text if source == pattern.var else f"{text} {name_text(pattern.var)}", _POSTFIX
        case _:
            raise PatternProblem(
                f"{type(pattern).__name__} has no text in EQL",
                span=pattern.span,
                expected=listing(("Next", "Unless", "Disj", "Iteration", "Timer", "EventClass of one type")),
            )
