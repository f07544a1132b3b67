"""The declarations of plan-based complex event detection (§2): a script of `source`, `primitive` and `complex`.

The last complex event is the script's result; the declarations that it uses become its inputs. Inside a schema a bare
name is the name of the declared stream itself, or another attribute of the same schema, or an event, or a parameter.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from lark import v_args
from lark.tree import Meta

from cepheid import pattern as pt
from cepheid.checks import NODE
from cepheid.dialect import INTERVALS, Closure, Dialect, Order, Windows
from cepheid.errors import NameProblem, PatternProblem, Span, SyntaxProblem, did_you_mean, listing, named_twice
from cepheid.events import OWN_UNIT, Duration
from cepheid.expr import Attr, Const, Expr, Param, Same, Whole, attribute_text, children, name_text, type_name_text
from cepheid.expr import to_text as expr_text
from cepheid.expr import walk as walk_expr
from cepheid.lang import ced_counts
from cepheid.lang.ced_counts import Counted, CountedBuilder, nodes_of
from cepheid.lang.common import LanguageParser, conditions_text, where_clause
from cepheid.lang.expressions import (
    MAX_DEPTH,
    all_parts,
    check_depth,
    expression_grammar,
    keywords,
    resolve,
    rule_for,
    span_of,
)
from cepheid.lang.text import skeleton
from cepheid.lang.type_names import type_named, type_text, unknown_stream
from cepheid.pattern import (
    Column,
    DerivedStream,
    EventClass,
    Pattern,
    Query,
    SourceStream,
    map_classes,
    roles,
    types_read,
)

DIALECT = Dialect(
    name="ced", title="CED (plan-based complex event detection)", other_names=(),
    beginning="source, primitive or complex", first_words=("SOURCE", "PRIMITIVE", "COMPLEX"),
    clauses=("EVENT", "WHERE"),
    selection=INTERVALS, selection_text="all combinations of events that fit",
    order=Order.TIME, closure=Closure.NONE, windows=Windows.OPERATOR, window_includes_bound=True,
    operators=(EventClass, pt.Seq, pt.Conj, pt.Disj, pt.Neg),
    conditions=(Same,), conditions_belong_to_operators=False,
    has_nodes=True, has_rewrite_rules=False, declares_streams=True, has_classes_by_name=False, names_its_result=True,
)  # fmt: skip

MAX_SCHEMA = 10_000
"""The most operators that an attribute may have once the attributes that it names are substituted."""

_RESERVED = ("SOURCE", "PRIMITIVE", "COMPLEX", "ON", "SCHEMA", "AS", *DIALECT.clauses)

_GRAMMAR = (
    r"""
start: (declaration ";"?)+
?declaration: _SOURCE TYPE [_ON NUMBER _NODES] _SCHEMA field ("," field)* -> source
    | _PRIMITIVE TYPE on schema -> primitive
    | _COMPLEX TYPE [on] [schema] _EVENT event [_WHERE constraints] [consumption] -> complex
field: WORD WORD
on: _ON listed ("," listed)*
listed: TYPE [_AS NAME]
schema: _SCHEMA derived ("," derived)*
derived: WORD _AS expr
constraints: condition ("," condition)*
consumption: _CONSUME _ONCE -> once
    | _CONSUME _FREELY -> freely

?event: TYPE -> subevent
    | _COUNT "(" counted ";" window ")" COMPARE limit [group] [_AS NAME] -> count_of
    | _SUM "(" counted ";" window ")" COMPARE limit [group] [_AS NAME] -> sum_of
    | _SEQ "(" operand ("," operand)+ [";" window] ")" -> seq
    | _AND "(" operand ("," operand)+ [";" window] ")" -> conj
    | _OR "(" operand ("," operand)+ [";" window] ")" -> disj
?operand: event
    | _WITHOUT event -> neg
window: [NAME "="] duration

_CONSUME.5: /consume(?=\s+(?:once|freely)\b)/i
_ONCE.5: /once\b/i
_FREELY.5: /freely\b/i
_SEQ.5: /seq(?=\s*\()/i
_WITHOUT: /[!~¬]/
"""
    + ced_counts.GRAMMAR
    + keywords(*(word for word in _RESERVED if word != "AS"))
    + expression_grammar(reserved=_RESERVED, vectors=True)
)
_WORDS = {"_SEQ": "`seq(...)`", "_AND": "`and`", "_OR": "`or`", "_WITHOUT": "`!`", **ced_counts.WORDS}


# --- declarations as written ------------------------------------------------------------------------------------------


class _Listed(NamedTuple):
    """One entry of an `on` clause."""

    stream: str
    alias: str
    span: Span


class _Attribute(NamedTuple):
    name: str
    expr: Expr
    span: Span


class _Event(NamedTuple):
    """A `primitive` or, with the expression of its event, a `complex` declaration."""

    name: str
    span: Span
    on: tuple[_Listed, ...]
    schema: tuple[_Attribute, ...] | None
    event: Pattern | None = None
    where: tuple[Expr, ...] = ()
    consumes: bool = False


class _Source(NamedTuple):
    stream: SourceStream
    nodes: int | None
    """How many nodes it has."""

    @property
    def name(self) -> str:
        return self.stream.name

    @property
    def span(self) -> Span | None:
        return self.stream.span


_Declaration = _Source | _Event
_Stream = SourceStream | DerivedStream | Query


@v_args(meta=True)
class _Builder(CountedBuilder):
    start = on = schema = constraints = all_parts
    neg = rule_for(pt.Neg)

    def source(self, meta: Meta, items: list[Any]) -> _Declaration:
        name, nodes, *fields = items
        return _Source(SourceStream(str(name), tuple(fields), span=span_of(name)), nodes and nodes_of(nodes))

    def field(self, meta: Meta, items: list[Any]) -> tuple[str, Any]:
        return str(items[1]), type_named(items[0])

    def primitive(self, meta: Meta, items: list[Any]) -> _Declaration:
        name, on, schema = items
        return _Event(str(name), span_of(name), on, schema)

    def complex(self, meta: Meta, items: list[Any]) -> _Declaration:
        name, on, schema, event, where, consumes = items
        return _Event(str(name), span_of(name), on or (), schema, event, where or (), bool(consumes))

    def once(self, meta: Meta, items: list[Any]) -> bool:
        return True

    def freely(self, meta: Meta, items: list[Any]) -> bool:
        return False

    def listed(self, meta: Meta, items: list[Any]) -> _Listed:
        stream, alias = items
        return _Listed(str(stream), str(stream if alias is None else alias), span_of(stream))

    def derived(self, meta: Meta, items: list[Any]) -> _Attribute:
        check_depth(items[1], children, "expression")
        return _Attribute(str(items[0]), items[1], span_of(items[0]))

    def subevent(self, meta: Meta, items: list[Any]) -> Pattern:
        return EventClass(str(items[0]), span=span_of(meta))

    def seq(self, meta: Meta, items: list[Any]) -> Pattern:
        return pt.Seq(tuple(items[:-1]), items[-1], span=span_of(meta))

    def conj(self, meta: Meta, items: list[Any]) -> Pattern:
        return pt.Conj(tuple(items[:-1]), items[-1], span=span_of(meta))

    def disj(self, meta: Meta, items: list[Any]) -> Pattern:
        window: Duration | None = items[-1]
        if window is not None:
            raise PatternProblem(
                "`or` has no window",
                span=window.span,
                expected="or(e1, e2, ...)",
                hint="it outputs each subevent as it occurs (§2.2)",
            )
        return pt.Disj(tuple(items[:-1]), span=span_of(meta))

    def window(self, meta: Meta, items: list[Any]) -> Duration:
        duration: Duration = items[-1]
        return duration


_PARSER = LanguageParser(_GRAMMAR, _Builder(), _WORDS)
_START = re.compile(
    r"\s*(?:source\s+(?:[\w-]+|`[^`]*`)\s+(?:on|schema|source|primitive|complex)|primitive|complex)\b", re.IGNORECASE
)


def recognises(text: str) -> bool:
    return _START.match(skeleton(text)) is not None


def parse(text: str, known: Collection[str] = ()) -> Query:
    """The result of the script; `known` are streams that are declared elsewhere."""
    declarations: tuple[_Declaration, ...] = _PARSER.parse(text)
    streams = _Script(declarations, known).streams()
    result = next((stream for stream in reversed(streams) if isinstance(stream, Query)), None)
    if result is None:
        raise PatternProblem(
            "the script declares no complex event",
            span=getattr(declarations[-1], "span", None),
            expected="a `complex` declaration, whose events are the result",
            hint="complex NAME on ... event seq(...)",
        )
    if result.threshold is not None:
        result = ced_counts.wrapped(result)
    used = _used(result, streams)
    return replace(result, inputs=tuple(stream for stream in streams if stream.name in used))


def _used(result: Query, streams: Sequence[_Stream]) -> set[str]:
    """The declarations that the result uses, directly or through others. A declaration precedes its uses."""
    used = types_read(result)
    for stream in reversed(streams):
        if stream.name in used and stream is not result:
            used |= types_read(stream)
    return used


# --- declarations -----------------------------------------------------------------------------------------------------


class _Script:
    """The declarations in their order, and the meaning of each name."""

    def __init__(self, declarations: Sequence[_Declaration], known: Collection[str]) -> None:
        self._declarations = declarations
        self._known = known
        self._all = {declaration.name for declaration in declarations}
        self._has_sources = any(isinstance(d, _Source) for d in declarations)
        self._has_streams = any(isinstance(d, _Source) or d.event is None for d in declarations)
        self._before: list[str] = []
        self._nodes: dict[str, int | None] = {}

    def streams(self) -> list[_Stream]:
        found: list[_Stream] = []
        for declaration in self._declarations:
            if declaration.name in self._before:
                raise named_twice(f"`{declaration.name}` is declared", "declaration", declaration.span)
            if isinstance(declaration, _Source):
                found.append(declaration.stream)
                self._nodes[declaration.name] = declaration.nodes
            elif declaration.event is None:
                found.append(self._primitive(declaration))
            else:
                found += self._complex(declaration, declaration.event)
            if isinstance(declaration, _Event):
                nodes = {self._nodes.get(item.stream) for item in declaration.on if item.stream != NODE}
                self._nodes[declaration.name] = nodes.pop() if len(nodes) == 1 else None
            self._before.append(declaration.name)
        return found

    def _primitive(self, declaration: _Event) -> DerivedStream | Query:
        """One event for each event of each source. That of several sources is their `or`: an attribute that reads
        another source is null."""
        sources = [item for item in declaration.on if item.stream != NODE]
        if not sources:
            raise PatternProblem(
                f"the primitive event `{declaration.name}` is on no source",
                span=declaration.span,
                expected="at least one source (and `node`)",
            )
        seen: list[_Listed] = []
        for source in sources:
            self._check_declared(source.stream, source.span, is_closed=self._has_sources)
            if any(source.stream == other.stream or source.alias == other.alias for other in seen):
                raise PatternProblem(
                    f"`{source.stream}` is listed twice",
                    span=source.span,
                    expected="each source once, and a name of its own for each",
                )
            seen.append(source)
        columns = _Schema(declaration.name, declaration.schema or (), {source.alias for source in sources}).columns()
        if len(sources) == 1:
            (source,) = sources
            return DerivedStream(declaration.name, source.stream, source.alias, columns, span=declaration.span)
        classes = tuple(EventClass(source.alias, (source.stream,), span=source.span) for source in sources)
        own = () if any(column.name == "node_id" for column in columns) else (Column("node_id", Attr(NODE, "id")),)
        return Query(pt.Disj(classes, span=declaration.span), DIALECT, output=(*own, *columns), name=declaration.name)

    def _complex(self, declaration: _Event, event: Pattern) -> list[Query]:
        """The declaration, after those of the counts in it."""
        aliases: dict[str, str] = {}
        for item in declaration.on:
            if item.stream == NODE:
                continue
            self._check_declared(item.stream, item.span, is_closed=self._has_streams)
            if item.alias in aliases:
                hint = f"write `{item.stream} as` and another name"
                raise named_twice(f"`{item.alias}` is listed", "subevent", item.span, hint)
            aliases[item.alias] = item.stream
        pattern, counts, where = self._counts(declaration, event, aliases)
        if pattern is None:
            return counts
        pattern = map_classes(pattern, lambda node: self._subevent(node, aliases))
        schema = declaration.schema
        made = Query(
            pattern,
            DIALECT,
            where=where_clause(where, roles(pattern)),
            output=None if schema is None else _Schema(declaration.name, schema, roles(pattern)).columns(),
            name=declaration.name,
            consumes=declaration.consumes,
        )
        return [*counts, made]

    def _counts(
        self, declaration: _Event, event: Pattern, aliases: Mapping[str, str]
    ) -> tuple[Pattern | None, list[Query], tuple[Expr, ...]]:
        """The event with counts by name (None if it is one itself), their declarations, and the other conditions."""
        counts = ced_counts.counts_in(event)
        if not counts:
            return event, [], declaration.where
        bound = {node.var for node in pt.walk(event) if isinstance(node, EventClass)}
        ced_counts.require_listed(counts, aliases, bound)
        if isinstance(event, Counted) and declaration.schema is not None:
            raise PatternProblem(
                f"`{declaration.name}` is a count, which has a schema of its own",
                span=declaration.span,
                expected="the attributes of its group, and `value`",
            )
        if isinstance(event, Counted) and declaration.consumes:
            raise PatternProblem(
                f"`{declaration.name}` is a count, which consumes no events",
                span=declaration.span,
                hint="let the complex event that uses it consume them",
            )
        names = ced_counts.named(counts, {*self._all, *self._before, *self._known, *bound})
        names = [declaration.name] if isinstance(event, Counted) else names
        known = {alias: aliases.get(alias, alias) for alias in (one.alias for one in counts)}
        own, where = ced_counts.divided(declaration.where, set(known), {*bound, *names})
        made = []
        for one, name in zip(counts, names, strict=True):
            stream = known[one.alias]
            self._check_declared(stream, one.span, is_closed=self._has_streams)
            conditions = where_clause(own[one.alias], roles(EventClass(one.alias)))
            made.append(ced_counts.declared(one, name, known, conditions, DIALECT, self._nodes.get(stream)))
        if isinstance(event, Counted):
            if where:
                raise PatternProblem(
                    f"a condition on other events than `{event.alias}`", span=where[0].span, expected="on single events"
                )
            return None, made, where
        self._before += names
        return ced_counts.with_names(event, {id(one): n for one, n in zip(counts, names, strict=True)}), made, where

    def _subevent(self, node: EventClass, aliases: Mapping[str, str]) -> EventClass:
        """A name in an event expression: one that `on` lists, or (always, where it lists none) a stream's own."""
        if node.var in aliases:
            return replace(node, types=(aliases[node.var],))
        if node.types:  # a count
            return node
        if aliases and node.var not in self._before:
            raise NameProblem(
                f"`{node.var}` is not among the subevents",
                span=node.span,
                expected=f"one that `on` lists: {listing(aliases)}",
                hint=did_you_mean(node.var, aliases),
            )
        self._check_declared(node.var, node.span, is_closed=self._has_streams)
        return replace(node, types=(node.var,))

    def _check_declared(self, name: str, span: Span | None, is_closed: bool) -> None:
        """Where a script declares the streams that it reads (`is_closed`), it declares all of them."""
        if name in self._before or name in self._known:
            return
        if name in self._all:
            raise NameProblem(
                f"`{name}` is used before it is declared",
                span=span,
                expected="a declaration above this one",
                hint=f"move the declaration of `{name}` up",
            )
        if is_closed:
            raise unknown_stream(name, span, [*self._before, *self._known])


class _Schema:
    """The attributes of one declaration, with the attributes that it names substituted."""

    def __init__(self, stream: str, attributes: Sequence[_Attribute], events: Collection[str]) -> None:
        self._stream = stream
        self._events = events
        self._attributes: dict[str, _Attribute] = {}
        self._done: dict[str, tuple[Expr, int]] = {}
        for attribute in attributes:
            if attribute.name in self._attributes:
                raise named_twice(f"the attribute `{attribute.name}` is declared", "attribute", attribute.span)
            self._attributes[attribute.name] = attribute

    def columns(self) -> tuple[Column, ...]:
        return tuple(Column(name, self._settled(name, ())[0]) for name in self._attributes)

    def _settled(self, name: str, trail: tuple[str, ...]) -> tuple[Expr, int]:
        """The attribute's expression and its size. `trail` are the attributes that led here."""
        if name in self._done:
            return self._done[name]
        attribute = self._attributes[name]
        if name in trail or len(trail) > MAX_DEPTH:
            raise PatternProblem(
                f"the attribute `{name}` is defined by itself" if name in trail else "attributes nested too deep",
                span=attribute.span,
                expected="attributes of the subevents, or attributes that are made of them",
                hint="qualify the attribute: `A.attribute`",
            )
        bare = [node.name for node in walk_expr(attribute.expr) if isinstance(node, Param)]
        inner = {other: self._settled(other, (*trail, name)) for other in bare if other in self._attributes}
        size = sum(1 for _ in walk_expr(attribute.expr)) + sum(inner[other][1] for other in bare if other in inner)
        if size > MAX_SCHEMA:
            raise SyntaxProblem(
                f"the attribute `{name}` has {size:,} operators once those it names are put in",
                span=attribute.span,
                expected=f"at most {MAX_SCHEMA:,}",
            )
        settled = resolve(attribute.expr, bare_name=self._reading(inner), single=self._events)
        check_depth(settled, children, "expression")
        self._done[name] = settled, size
        return self._done[name]

    def _reading(self, inner: Mapping[str, tuple[Expr, int]]) -> Callable[[Param], Expr]:
        def read(node: Param) -> Expr:
            if node.name in inner:
                return inner[node.name][0]
            if node.name == self._stream:
                return Const(node.name, span=node.span)
            return Whole(node.name, span=node.span) if node.name in self._events else node

        return read


# --- printing ---------------------------------------------------------------------------------------------------------


def to_text(query: Query) -> str:
    """The whole script, the declarations that the result uses first."""
    return "\n\n".join(declaration_text(stream) for stream in (*query.inputs, query))


def declaration_text(stream: _Stream) -> str:
    """One declaration of a script."""
    match stream:
        case SourceStream():
            fields = ", ".join(f"{type_text(kind)} {attribute_text(name)}" for name, kind in stream.attributes)
            return f"source {type_name_text(stream.name)}\nschema {fields}"
        case DerivedStream():
            on = _on_text({stream.alias: stream.source}, (column.expr for column in stream.columns))
            return "\n".join([f"primitive {type_name_text(stream.name)}", on, _schema_text(stream.columns)])
        case _:
            return _complex_text(stream)


def _complex_text(query: Query) -> str:
    classes = [node for node in pt.walk(query.pattern) if isinstance(node, EventClass)]
    aliases = {node.var: node.types[0] for node in classes if len(node.types) == 1}
    columns = query.output or ()
    lines = [f"complex {type_name_text(query.name or 'result')}"]
    uses_node = any(_names_node(expr) for expr in (*query.where, *(column.expr for column in columns)))
    if uses_node or any(alias != stream for alias, stream in aliases.items()):
        lines.append(_on_text(aliases, (*query.where, *(column.expr for column in columns))))
    if columns and query.threshold is None:
        lines.append(_schema_text(columns))
    lines.append(f"event {pattern_text(query.pattern) if query.threshold is None else ced_counts.text(query)}")
    if query.where:
        lines.append(f"where {conditions_text(query.where)}")
    if query.consumes:
        lines.append("consume once")
    return "\n".join(lines)


def _names_node(expr: Expr) -> bool:
    return any(isinstance(node, Attr) and node.var == NODE for node in walk_expr(expr))


def _on_text(aliases: Mapping[str, str], exprs: Iterable[Expr]) -> str:
    listed = [
        type_name_text(stream) + ("" if stream == alias else f" as {name_text(alias)}")
        for alias, stream in aliases.items()
    ]
    return "on " + ", ".join([*listed, NODE] if any(map(_names_node, exprs)) else listed)


def _schema_text(columns: Iterable[Column]) -> str:
    return "schema " + ",\n       ".join(
        f"{attribute_text(column.name)} as {expr_text(column.expr)}" for column in columns
    )


_OPERATORS = {pt.Seq: "seq", pt.Conj: "and", pt.Disj: "or"}


def pattern_text(pattern: Pattern) -> str:
    match pattern:
        case pt.Seq() | pt.Conj() | pt.Disj():
            window = "" if isinstance(pattern, pt.Disj) else _window_text(pattern.window)
            return f"{_OPERATORS[type(pattern)]}({_operands_text(pattern.items)}{window})"
        case pt.Neg():
            return f"!{pattern_text(pattern.item)}"
        case EventClass(types=(_,)):
            return type_name_text(pattern.var)
        case _:
            raise PatternProblem(
                f"{type(pattern).__name__} has no text in CED's language",
                span=pattern.span,
                expected=listing(("Seq", "Conj", "Disj", "Neg", "EventClass of one type")),
            )


def _operands_text(items: Iterable[Pattern]) -> str:
    return ", ".join(pattern_text(item) for item in items)


def _window_text(window: Duration | None) -> str:
    if window is None:
        return ""
    return f"; {window.amount if window.unit == OWN_UNIT else window}"
