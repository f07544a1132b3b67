"""The Python builder makes the same Query values as the parsers, with Python's operators for expressions.

    x, y, z = var("x"), var("y"), var("z")
    query = (
        sase()
        .seq(event("Shelf", "x"), ~event("Register", "y"), event("Exit", "z"))
        .where(same("tag_id"), x.price > 1.2 * z.price)
        .within(12, "hours")
        .build()
    )

Of a closure `a` there are `a.first.price`, `a.current.price`, `a.previous.price` and `a.last.price`, and `avg(a.price)`
over the whole group or `avg(a.before.price)` over the events so far. `x["name"]` reads an attribute by any name.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial

from cepheid import pattern as pt
from cepheid.checks import check
from cepheid.dialect import Dialect
from cepheid.errors import InputProblem
from cepheid.events import OWN_UNIT, Duration
from cepheid.expr import Expr, parameters
from cepheid.lang import ced as ced_text
from cepheid.lang import eql as eql_text
from cepheid.lang import sase as sase_text
from cepheid.lang import sase_plus as sase_plus_text
from cepheid.lang import zstream as zstream_text
from cepheid.lang.common import column_name, where_clause
from cepheid.lang.components import with_names
from cepheid.lang.expressions import resolve
from cepheid.lang.sase import attribute_of
from cepheid.lang.terms import (  # noqa: F401  (part of the builder's interface)
    LABEL,
    Term,
    Var,
    aggregate,
    as_expr,
    avg,
    call,
    const,
    count,
    duration,
    equal,
    every,
    max_,
    min_,
    occurs_within,
    param,
    passing,
    same,
    sum_,
    var,
    vector,
    word,
)
from cepheid.pattern import DerivedStream, EventClass, Pattern, Query, SourceStream, Strategy
from cepheid.types import Type

# --- patterns ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Part:
    """A pattern under construction; `~part` is its negation."""

    pattern: Pattern

    def __invert__(self) -> Part:
        return Part(pt.Neg(self.pattern))

    def times(self, low: int, high: int | None = None) -> Part:
        """A closure of `low` to `high` events; of exactly `low` where there is no `high`."""
        return self._closure(low, low if high is None else high)

    def plus(self) -> Part:
        return self._closure(1, None)

    def star(self) -> Part:
        return self._closure(0, None)

    def _closure(self, low: int, high: int | None) -> Part:
        if not isinstance(self.pattern, EventClass):
            raise InputProblem("only an event class can be repeated", expected='event("Type", "a")')
        return Part(pt.Kleene(self.pattern, low, high))

    def after(self, amount: int | float | str, unit: str = OWN_UNIT) -> Part:
        """NEXT's `E @ time`."""
        return Part(pt.Timer(self.pattern, duration(amount, unit)))

    def keep(self, *conditions: Term) -> Part:
        """NEXT's filter."""
        return Part(pt.Filtered(self.pattern, _conditions(conditions)))

    def then(self, right: Part, skip: Term | None = None, keep: Term | None = None) -> Part:
        """NEXT's `E1; E2` with its two predicates."""
        return Part(pt.Next(self.pattern, right.pattern, _conditions((skip,)), _conditions((keep,))))

    def repeated(self, skip: Term | None = None, keep: Term | None = None) -> Part:
        """NEXT's iteration."""
        return Part(pt.Iteration(self.pattern, _conditions((skip,)), _conditions((keep,))))

    def unless(self, cancel: Part, when: Term | None = None) -> Part:
        return Part(pt.Unless(self.pattern, cancel.pattern, _conditions((when,))))


def event(type: str, variable: str | None = None) -> Part:
    """Events of a type and their variable; without a name, the language chooses one."""
    return any_of(type, variable=variable)


def any_of(*types: str, variable: str | None = None) -> Part:
    return Part(EventClass("" if variable is None else word(variable), tuple(word(type) for type in types)))


def any_event(variable: str) -> Part:
    """Every event of the stream."""
    return Part(EventClass(word(variable)))


def seq(*parts: Part, window: Duration | None = None) -> Part:
    return Part(pt.Seq(_patterns(parts), window)) if len(parts) > 1 else parts[0]


def both(*parts: Part, window: Duration | None = None) -> Part:
    return Part(pt.Conj(_patterns(parts), window))


def either(*parts: Part) -> Part:
    return Part(pt.Disj(_patterns(parts)))


def source(name: str, **attributes: Type) -> SourceStream:
    return SourceStream(word(name), tuple(attributes.items()))


def derived(name: str, of: str, alias: str, **columns: object) -> DerivedStream:
    """CED's `primitive`."""
    made = tuple(pt.Column(column, as_expr(value)) for column, value in columns.items())
    return DerivedStream(word(name), word(of), word(alias), made)


# --- queries ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class QueryBuilder:
    """A query under construction. Every method returns a new one."""

    dialect: Dialect
    part: Part | None = None
    conditions: tuple[Term, ...] = ()
    window: Duration | None = None
    strategy: Strategy = Strategy.ANY_MATCH
    columns: tuple[tuple[str | None, Expr], ...] | None = None
    is_non_overlapping: bool = False
    most: int | None = None
    name: str | None = None
    inputs: tuple[SourceStream | DerivedStream | Query, ...] = ()

    def pattern(self, part: Part) -> QueryBuilder:
        _require_part(part)
        return replace(self, part=part)

    def seq(self, *parts: Part) -> QueryBuilder:
        return self.pattern(seq(*parts))

    def where(self, *conditions: Term) -> QueryBuilder:
        if not all(isinstance(condition, Term) for condition in conditions):
            raise InputProblem("WHERE takes conditions", hint='compare attributes, as in var("x").price > 3')
        return replace(self, conditions=self.conditions + conditions)

    def within(self, amount: int | float | str, unit: str = OWN_UNIT) -> QueryBuilder:
        return replace(self, window=duration(amount, unit))

    def select(self, strategy: Strategy | str) -> QueryBuilder:
        """SASE+'s event selection strategy."""
        return replace(self, strategy=Strategy(strategy))

    def returns(self, *columns: object, **named: object) -> QueryBuilder:
        """The output: `returns(x, x.price, total=sum_(a.price))`."""
        unnamed = tuple((None, as_expr(column)) for column in columns)
        return replace(self, columns=unnamed + tuple((name, as_expr(column)) for name, column in named.items()))

    def non_overlapping(self) -> QueryBuilder:
        return replace(self, is_non_overlapping=True)

    def limit(self, most: int) -> QueryBuilder:
        return replace(self, most=most)

    def called(self, name: str) -> QueryBuilder:
        return replace(self, name=word(name, LABEL))

    def using(self, *inputs: SourceStream | DerivedStream | Query) -> QueryBuilder:
        """Streams and queries (built, and called something) that the pattern names as event types."""
        return replace(self, inputs=self.inputs + inputs)

    def build(self) -> Query:
        if self.part is None:
            raise InputProblem("the query has no pattern", hint="call .seq(...) or .pattern(...) first")
        pattern = _settled(self.part.pattern, self.dialect)
        negated = pt.negatives(pattern)
        query = Query(
            pattern,
            self.dialect,
            where=where_clause([term.expr for term in self.conditions], pt.roles(pattern)),
            window=self.window,
            strategy=self.strategy,
            output=None if self.columns is None else tuple(_columns(self.columns, negated)),
            non_overlapping=self.is_non_overlapping,
            limit=self.most,
            name=self.name,
            inputs=tuple(_flattened(self.inputs)),
        )
        check(query)
        _check_bare_names(query)
        return query


sase, sase_plus = partial(QueryBuilder, sase_text.DIALECT), partial(QueryBuilder, sase_plus_text.DIALECT)
zstream, eql = partial(QueryBuilder, zstream_text.DIALECT), partial(QueryBuilder, eql_text.DIALECT)
ced = partial(QueryBuilder, ced_text.DIALECT)

_COMPONENTS = (sase_text.DIALECT, sase_plus_text.DIALECT)
"""The languages whose patterns are lists of components, `SEQ(A a, B b)`."""


def _settled(pattern: Pattern, dialect: Dialect) -> Pattern:
    """The pattern with a variable for each component, by the rules of its language."""
    if dialect in _COMPONENTS:
        items = pattern.items if isinstance(pattern, pt.Seq) else (pattern,)
        named = with_names(items)
        return replace(pattern, items=tuple(named)) if isinstance(pattern, pt.Seq) else named[0]

    def named_by_type(event_class: EventClass) -> EventClass:
        if event_class.var or len(event_class.types) != 1:
            return event_class
        if dialect.has_classes_by_name:
            return EventClass(event_class.types[0], by_name=True)
        return replace(event_class, var=event_class.types[0])

    return pt.map_classes(pattern, named_by_type)


def _check_bare_names(query: Query) -> None:
    """Text reads a bare name as an attribute where there is one component, so a parameter cannot be written."""
    exprs = (*query.where, *(column.expr for column in query.output or ()))
    if query.dialect in _COMPONENTS and attribute_of(query.pattern) is not None:
        for name in set().union(*(parameters(expr) for expr in exprs)):
            raise InputProblem(f"a pattern of one component has no parameters, such as `{name}`", hint="use a constant")


def _patterns(parts: Iterable[Part]) -> tuple[Pattern, ...]:
    parts = tuple(parts)
    for part in parts:
        _require_part(part)
    return tuple(part.pattern for part in parts)


def _require_part(part: object) -> None:
    if isinstance(part, Part):
        return
    hint = f"write event({part!r})" if isinstance(part, str) else None
    raise InputProblem(f"a part of the pattern is of type `{type(part).__name__}`", expected='event("A")', hint=hint)


def _conditions(terms: Iterable[Term | None]) -> tuple[Expr, ...]:
    return where_clause([term.expr for term in terms if term is not None], {})


def _columns(columns: Iterable[tuple[str | None, Expr]], negated: list[str]) -> Iterable[pt.Column]:
    for name, raw in columns:
        expr = resolve(raw, negated)
        yield pt.Column(name or column_name(expr), expr)


def _flattened(
    inputs: Iterable[SourceStream | DerivedStream | Query],
) -> Iterable[SourceStream | DerivedStream | Query]:
    """The order of a script: the inputs of a query precede it, on the same level (a CED script is one unit)."""
    for item in inputs:
        if isinstance(item, Query) and not item.dialect.names_its_result:
            yield from _flattened(used for used in item.inputs if isinstance(used, Query))
            yield replace(item, inputs=tuple(used for used in item.inputs if not isinstance(used, Query)))
        else:
            yield item
