"""Binding: resolves the names and types of a query against a schema.

The schema of a JSON Lines or CSV file is inferred from its rows, so an event type that it lacks may still occur: a day
without register readings does not invalidate the shoplifting query. These are errors: an attribute that no event has,
types that do not fit, a parameter without a value, and a type name one typo away from a type of the input that the
query does not use.
"""

from __future__ import annotations

import difflib
import itertools
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from cepheid import expr as ex
from cepheid.checks import NODE, NODE_COLUMNS
from cepheid.errors import CepheidError, NameProblem, PatternProblem, TypeProblem, did_you_mean, listing
from cepheid.events import MICROSECONDS, NO_CLOCK, UNIT_WORDS, Duration, Schema
from cepheid.expr import MEMBER, Aggregate, At, Attr, Compare, Const, Expr, Over, Vector, Whole
from cepheid.functions import FUNCTIONS
from cepheid.inference import length_of_one, typed
from cepheid.inner_aggregates import of_closure
from cepheid.parameters import parameter_values
from cepheid.pattern import (
    VALUE,
    Column,
    Conj,
    DerivedStream,
    EventClass,
    Query,
    Role,
    Seq,
    SourceStream,
    Threshold,
    always_bound,
    map_classes,
    most_bound,
    partition_attributes,
    walk,
    with_params,
)
from cepheid.types import BOOLEAN, INTEGER, TIMESTAMP, UNKNOWN, Family, Type

INTERVAL_TYPES = {"start_time": INTEGER, "end_time": INTEGER}
BASE_SCHEMA = {"node_id": UNKNOWN, "event_id": UNKNOWN, **INTERVAL_TYPES}
"""The attributes of every event type in CED (§2.1)."""
_NO_PARAMS: Mapping[str, Any] = {}
_SHORTEST_TYPO = 4


def bind(query: Query, schema: Schema, params: Mapping[str, Any] = _NO_PARAMS) -> Query:
    """The query with values for its parameters and resolved event classes; raises if it does not fit the schema."""
    if params:
        query = with_params(query, parameter_values(params))
    inputs, schema = _bind_inputs(query, schema)
    raw = replace(schema, types={name: own for name, own in schema.types.items() if name not in schema.derived})
    pattern = query.pattern
    if any(role.event_class.by_name for role in query.roles.values()):
        pattern = map_classes(pattern, lambda c: _settled(c, schema))
    query = replace(query, inputs=tuple(inputs), pattern=pattern)
    found = query.roles
    _require_parameters(query)
    require_types(query, schema)
    _require_summary(query)
    checker = _Checker(query, found, schema, raw)
    where = tuple(checker.predicate(_without_inner_tests(p, found)) for p in query.where)
    output = query.output and tuple(Column(c.name, checker.output(c.expr)) for c in query.output)
    threshold = query.threshold
    if threshold is not None:
        threshold = replace(threshold, of=threshold.of and checker.output(threshold.of))
        value_type(threshold)
    return replace(query, where=where, output=output, threshold=threshold)


def value_type(threshold: Threshold) -> Type:
    """The type of a count or a sum."""
    of = threshold.of
    if threshold.fn == "count" or of is None:
        return INTEGER
    if not of.type.is_unknown and of.type.family not in (Family.INTEGER, Family.FLOAT):
        raise TypeProblem(
            f"`{ex.to_text(of)}` is {of.type.noun}, which a sum over the last while does not take",
            span=of.span,
            expected="integers or floats",
            hint="convert it in a `primitive`: CAST(... AS double)",
        )
    return of.type


def typed_predicates(query: Query, predicates: Iterable[Expr], schema: Schema) -> tuple[Expr, ...]:
    """Predicates on the variables of a bound query, such as those that a rule has rewritten, with their types. An
    equivalence test may name an attribute that only a type has that does not occur."""
    schema = with_declared(query, schema) if query.inputs else schema
    types = {var: role.event_class.types or schema.types for var, role in query.roles.items()}
    known = {var: schema.attributes(names) for var, names in types.items()}
    return tuple(typed(p, lambda attr: known.get(attr.var, {}).get(attr.name, UNKNOWN)) for p in predicates)


# --- names ------------------------------------------------------------------------------------------------------------

_NAMES_OF_TIMES = ("ts", "time", "timestamp", "datetime", "event_time")


def _settled(event_class: EventClass, schema: Schema) -> EventClass:
    if not event_class.by_name:
        return event_class
    types = (event_class.var,) if event_class.var in schema.types else ()
    return replace(event_class, types=types, by_name=False)


def _length(amount: str) -> str:
    """What to write instead of a length of time without a value."""
    if amount in UNIT_WORDS:
        return f"write WITHIN 1 {amount}; or set the parameter: --param {amount}=..., params={{'{amount}': 5}}"
    if re.fullmatch(r"P(?:\d+[YMWD])*(?:T(?:\d+[HMS])+)?", amount):
        return "write a number and a unit: WITHIN 5 minutes for PT5M"
    return f"write a number: WITHIN 5 minutes; or set the parameter: --param {amount}=..., params={{'{amount}': 5}}"


def _hyphened(node: ex.Param, query: Query) -> str | None:
    """``a.`e-mail` ``, where a name is subtracted from an attribute: `a.e-mail`."""
    for of in ex.walk(*query.where, *(column.expr for column in query.output or ())):
        if isinstance(of, ex.Arithmetic) and of.op == "-" and of.right == node and isinstance(of.left, ex.Attr):
            return f"{of.left.var}.`{of.left.name}-{node.name}`"
    return None


def _no_value(node: ex.Param, query: Query) -> NameProblem:
    """The error of a name that is nothing."""
    name, first = node.name, next(iter(query.roles))
    attribute, of_next = (ex.to_text(Attr(var, name)) for var in (*query.roles, first)[:2])
    same = Vector((node,))
    if (same in query.where or ex.Filter(same) in query.where) and len(query.roles) > 1:
        return NameProblem(
            f"`{name}` is not a condition",
            span=node.span,
            expected="a comparison",
            hint=f"for events with the same {name} write {attribute} = {of_next}",
        )
    if name in query.roles:
        length = f"; {name}.LEN is the number of its events" if query.roles[name].binds_many else ""
        return NameProblem(
            f"`{name}` is a variable, and a value is expected",
            span=node.span,
            expected=f"an attribute of it (`{name}.x`), another value, or a parameter",
            hint=f"an attribute stands after a point: {name}.x{length}; a string is written in quotes: '{name}'",
        )
    hyphened = _hyphened(node, query)
    if hyphened is not None:
        return NameProblem(
            f"`{name}` has no value: `-` is a subtraction",
            span=node.span,
            expected=f"a value, a parameter, or an attribute ({attribute})",
            hint=f"write a name with a hyphen in backticks: {hyphened}",
        )
    return NameProblem(
        f"`{name}` is neither a variable's attribute nor a parameter with a value",
        span=node.span,
        expected=f"an attribute ({attribute}), a value, or a parameter",
        hint="a missing value is NULL: write IS NULL or IS NOT NULL"
        if name.lower() in ("none", "nil", "nan", "undefined")
        else "the type of an event stands in the pattern, before its variable, as `login` in FROM login a, "
        "SEQ(login a, pay b)"
        if name.lower() in ("type", "event_type")
        else f"a string is written in quotes: '{name}'; an attribute with its variable: {attribute}; "
        f"a parameter is set: --param {shlex.quote(name)}=..., or params={{{name!r}: ...}}",
    )


def _require_parameters(query: Query) -> None:
    expressions = [*query.where, *(column.expr for column in query.output or ())]
    for node in ex.walk_reads(*expressions):
        if isinstance(node, ex.Param):
            raise _no_value(node, query)
    for item in [item for item in query.inputs if isinstance(item, DerivedStream)]:
        for column in item.columns:
            for node in (node for node in ex.walk(column.expr) if isinstance(node, ex.Param)):
                raise NameProblem(
                    f"`{node.name}` is neither an attribute of `{item.source}` nor a parameter with a value",
                    span=node.span,
                    expected=f"an attribute ({ex.to_text(Attr(item.alias, node.name))}), a value, or a parameter",
                )
    if query.threshold is not None and isinstance(query.threshold.amount, str):
        raise NameProblem(
            f"the threshold `{query.threshold.amount}` has no value",
            expected="a number",
            hint=f"set the parameter: --param {query.threshold.amount}=...",
        )
    last = () if query.threshold is None else (query.threshold.window,)
    for window in [query.window, *last, *(n.window for n in walk(query.pattern) if isinstance(n, Seq | Conj))]:
        if window is not None and not isinstance(window.amount, int | float):
            raise NameProblem(
                f"the window's length `{window.amount}` has no value",
                span=window.span,
                expected="a number",
                hint=_length(window.amount),
            )


def _require_summary(query: Query) -> None:
    """An aggregate over all matches is one value, so it has no place beside columns of each match."""
    for node in ex.walk(*(column.expr for column in query.output or ())):
        if isinstance(node, Aggregate) and node.over is Over.MATCHES and not query.summarizes:
            raise PatternProblem(
                f"`{ex.to_text(node)}` is one value for all matches",
                span=node.span,
                expected="aggregates alone in RETURN, each a column of its own, or none of them over all matches",
                hint="RETURN count(*), sum(a.x) gives one row; for a count per key, RETURN the key and "
                "count the rows of each in the table of matches",
            )


def _without_inner_tests(predicate: Expr, found: Mapping[str, Role]) -> Expr:
    """The predicate with equivalence tests inside it (`[id] OR x.a = 1`) spelt out. One that is a conjunct of its own
    stays: it makes partitions."""
    if isinstance(predicate, ex.Same):
        return predicate

    def spelt_out(node: ex.Same) -> Expr:
        name = ex.attribute_text(node.name)
        if any(role.negated or role.binds_many for role in found.values()):
            raise PatternProblem(
                f"the equivalence test `{ex.to_text(node)}` is part of another condition, and the pattern has closures "
                "or negations",
                span=node.span or predicate.span,
                hint=f"write which events it compares: a.{name} = b.{name}",
            )
        attributes = [Attr(var, node.name, span=node.span) for var in found]
        value = node.value
        pairs = [(a, value) for a in attributes] if value is not None else itertools.combinations(attributes, 2)
        return ex.conjunction([Compare("=", one, other, span=node.span) for one, other in pairs])

    return ex.replaced(predicate, ex.Same, spelt_out)


def require_types(query: Query, schema: Schema) -> None:
    """Refuses a type name that is a slip of one in the schema and, if the schema is closed, one that is not in it."""
    for role in query.roles.values():
        _require_types(role.event_class, schema, query)


def _require_types(event_class: EventClass, schema: Schema, query: Query) -> None:
    named = {name for role in query.roles.values() for name in role.event_class.types}
    for name in event_class.types:
        if name in schema.types:
            continue
        meant = slip(name, set(schema.types) - named)
        if meant is not None or not schema.open:
            raise NameProblem(
                f"unknown event type `{name}`",
                span=event_class.span,
                expected=f"one of {listing(schema.types)}",
                hint=f"did you mean `{meant}`?" if meant else did_you_mean(name, schema.types),
            )


def slip(name: str, others: Iterable[str]) -> str | None:
    """The type that a misspelt name means, if this is nearly certain. Names that differ in digits (E1, E2) are not
    typos of each other."""
    letters = "".join(c for c in name if not c.isdigit())
    candidates = [o for o in others if len(o) >= _SHORTEST_TYPO and _digits(o) == _digits(name)]
    if len(letters) < _SHORTEST_TYPO:
        return None
    close = difflib.get_close_matches(name.casefold(), [o.casefold() for o in candidates], n=1, cutoff=0.75)
    return next((o for o in candidates if close and o.casefold() == close[0]), None)


def _digits(name: str) -> str:
    return "".join(c for c in name if c.isdigit())


# --- attributes and types ---------------------------------------------------------------------------------------------


class _Checker:
    """Finds the type of each attribute that a query reads; `raw` is the schema of the input alone."""

    def __init__(self, query: Query, found: Mapping[str, Role], schema: Schema, raw: Schema) -> None:
        self.query = query
        self.found = found
        self.schema = schema
        self.raw = raw
        self.known: dict[tuple[str, ...], dict[str, Type]] = {}

    def types_of(self, var: str) -> tuple[str, ...]:
        return self.found[var].event_class.types or tuple(self.raw.types)

    def attribute_type(self, attr: Attr) -> Type:
        if attr.var == NODE and NODE not in self.found:
            return node_type(attr.name, self.schema.attributes(self.schema.types))
        types = self.types_of(attr.var)
        if types not in self.known:
            self.known[types] = self.schema.attributes(types)
        known = self.known[types]
        if attr.name in known:
            # Rows of another type may have values of another type.
            is_known = self.schema.is_typed or not types or any(name in self.schema.types for name in types)
            return known[attr.name] if is_known else UNKNOWN
        self._require_known(attr.name, types, attr)
        return UNKNOWN

    def _require_known(self, name: str, types: tuple[str, ...], node: Expr) -> None:
        """A type may lack an attribute that other types have (a predicate on it is then true, ruling 4). An attribute
        that no type has is an error, provided that the types of the variable occur in the input. The attributes of a
        derived type are known, so one that it lacks is an error even if others have it."""
        is_derived = self.schema.derived.issuperset(types)
        everyone = self.schema.attributes(types if is_derived else self.schema.types)
        is_open = not self.schema.is_table and any(t not in self.schema.types for t in types)
        if name in everyone or not types or is_open:
            return
        if self.schema.partial.intersection(types):
            return
        known = [known for known in self.schema.attributes(types) if MEMBER not in known]
        raise NameProblem(
            f"unknown attribute `{name.replace(MEMBER, '')}`" + (f" of `{node.var}`" if isinstance(node, Attr) else ""),
            span=node.span,
            expected=f"one of {listing(known)}",
            hint=_more_exact(name, known)
            if is_derived
            else self._time_of(name, types) or length_of_one(name, node) or did_you_mean(name, known),
        )

    def _time_of(self, name: str, types: tuple[str, ...]) -> str | None:
        """The hint for a usual name of the time, where the column of the time has another."""
        if name.lower() not in _NAMES_OF_TIMES:
            return None
        attributes = self.schema.attributes(types)
        moments = [known for known, kind in attributes.items() if kind.family is Family.TIMESTAMP]
        column = self.schema.time_column if self.schema.time_column in attributes else None
        column = column or (moments[0] if len(moments) == 1 else None)
        return column and f"the time of the events is `{column}`"

    def predicate(self, predicate: Expr) -> Expr:
        if isinstance(predicate, ex.Same):
            types = tuple(dict.fromkeys(t for var in self.found for t in self.types_of(var)))
            self._require_known(predicate.name, types, predicate)
            for var in self.found:
                if self.schema.derived.issuperset(self.types_of(var)):
                    self._require_known(
                        predicate.name, self.types_of(var), Attr(var, predicate.name, span=predicate.span)
                    )
            if predicate.value is not None:
                test = Compare("=", Attr(next(iter(self.found)), predicate.name), predicate.value, span=predicate.span)
                fitted = self.predicate(test)
                assert isinstance(fitted, Compare)
                return replace(predicate, value=fitted.right)
            return predicate
        fitted = self._typed(self._inner(predicate))
        if not fitted.type.fits(BOOLEAN):
            value = "> 0" if fitted.type.is_number else "= 'text'"
            raise NameProblem(
                f"`{ex.to_text(predicate)}` is not a condition",
                span=predicate.span,
                expected="a condition",
                hint=f"compare it: {ex.to_text(predicate)} {value}, or {ex.to_text(predicate)} IS NOT NULL",
            )
        return fitted

    def output(self, expr: Expr) -> Expr:
        if self.query.summarizes and isinstance(expr, Aggregate):
            over_matches = typed(replace(expr, over=Over.MATCHES), self.attribute_type)
            return replace(over_matches, over=expr.over)
        return self._typed(self._inner(expr))

    def _typed(self, expr: Expr) -> Expr:
        fitted = ex.replaced(expr, (Compare, ex.Arithmetic, ex.Call), lambda n: self._fit_time(self._fit_literal(n)))
        return typed(fitted, self.attribute_type)

    def _fit_time(self, node: Expr) -> Expr:
        """A literal of time beside the integers of the time column, or of their difference, counts in their unit.
        Beside another number its unit is not known."""
        if isinstance(node, ex.Call):
            return replace(node, args=tuple(self._as_moment(arg, node) for arg in node.args))
        if not isinstance(node, Compare | ex.Arithmetic) or (isinstance(node, ex.Arithmetic) and node.op not in "+-/"):
            return node
        left, right = node.left, self._in_ticks(node.right, node.left)
        if isinstance(node, Compare) or node.op != "/":
            left = self._in_ticks(node.left, node.right)
        return node if left is node.left and right is node.right else replace(node, left=left, right=right)

    def _as_moment(self, arg: Expr, call: ex.Call) -> Expr:
        """The integers of the time column as timestamps, for a function of times: 1970 and so many microseconds."""
        takes = FUNCTIONS[call.fn].of if call.fn in FUNCTIONS else frozenset()
        clock = self.schema.clock or NO_CLOCK
        if Family.TIMESTAMP not in takes or Family.INTEGER in takes or clock.unit is None or clock.unit == "ns":
            return arg
        if not (isinstance(arg, Attr) and arg.name == self.schema.time_column and self.attribute_type(arg) == INTEGER):
            return arg
        count = ex.Arithmetic("*", arg, Const(MICROSECONDS[clock.unit]), span=arg.span)
        return ex.Arithmetic("+", Const(0, type=TIMESTAMP), count, span=arg.span)

    def _in_ticks(self, literal: Expr, other: Expr) -> Expr:
        if not (isinstance(literal, Const) and isinstance(literal.value, int) and literal.type.is_time):
            return literal
        if isinstance(other, Const) or not typed(other, self.attribute_type).type.is_number:
            return literal
        names = {n.name for n in ex.walk(other) if isinstance(n, Attr | Aggregate)}
        if names != {self.schema.time_column}:
            raise TypeProblem(
                f"`{ex.to_text(other)}` is a number, whose unit is not known beside `{ex.to_text(literal)}`",
                span=literal.span,
                expected="a time or a duration on both sides",
                hint="write the number in the unit of the attribute",
            )
        ticks = (self.schema.clock or NO_CLOCK).ticks(Duration(literal.value, "us", span=literal.span))
        return Const(ticks, span=literal.span)

    def _inner(self, expr: Expr) -> Expr:
        """Aggregates over closures inside derived events, and their lengths, become attributes."""
        if not any(isinstance(n, Aggregate) or (isinstance(n, Attr) and "." in n.name) for n in ex.walk(expr)):
            return expr
        return ex.replaced(expr, (Attr, Aggregate), lambda node: of_closure(node, self.found, self.schema))

    def _fit_literal(self, node: Expr) -> Expr:
        """The papers quote all ids (`[id='1']`): a quoted number that is compared for equality with a numeric attribute
        is a number."""
        if not isinstance(node, Compare) or node.op not in ("=", "!="):
            return node
        left, right = node.left, node.right
        return replace(node, left=self._as_compared_with(left, right), right=self._as_compared_with(right, left))

    def _as_compared_with(self, literal: Expr, other: Expr) -> Expr:
        if isinstance(literal, Const) and isinstance(literal.value, str) and isinstance(other, Attr):
            number = _as_number(literal.value)
            if number is not None and self.attribute_type(other).is_number:
                return Const(number, span=literal.span)
        return literal


def _more_exact(name: str, known: Iterable[str]) -> str | None:
    """A hint with the events of a match that have the attribute, where it is not one of the match."""
    inner = [one for one in known if one.endswith(f".{name}")]
    return f"say whose it is: {listing(inner)}" if inner else did_you_mean(name, known)


def _as_number(text: str) -> int | float | None:
    for read in (int, float):
        try:
            return read(text)
        except ValueError:
            continue
    return None


# --- composition ------------------------------------------------------------------------------------------------------


def with_declared(query: Query, schema: Schema) -> Schema:
    """The schema of the input and of the streams that the query declares."""
    return _bind_inputs(query, schema)[1]


def _bind_inputs(query: Query, schema: Schema) -> tuple[list[SourceStream | DerivedStream | Query], Schema]:
    inputs: list[SourceStream | DerivedStream | Query] = []
    for item in query.inputs:
        bound, attributes = _bind_input(item, schema)
        inputs.append(bound)
        own = with_declared(bound, schema) if isinstance(bound, Query) and bound.inputs else schema
        partial = schema.partial.union([bound.name or ""]) if _is_partial(bound, own) else schema.partial
        derived = schema.derived if isinstance(bound, SourceStream) else schema.derived.union([bound.name or ""])
        types = {**schema.types, bound.name or "": attributes}
        schema = replace(schema, types=types, partial=partial, derived=derived)
    return inputs, schema


def _is_partial(item: SourceStream | DerivedStream | Query, schema: Schema) -> bool:
    """Whether events are derived from types that the schema does not have."""
    match item:
        case SourceStream():
            return False
        case DerivedStream():
            sources = {item.source}
        case _:
            sources = {t for role in item.roles.values() if not role.negated for t in role.event_class.types}
    return bool(sources & schema.partial) or not (schema.is_table or sources <= schema.types.keys())


def _bind_input(
    item: SourceStream | DerivedStream | Query, schema: Schema
) -> tuple[SourceStream | DerivedStream | Query, Mapping[str, Type]]:
    """A named stream, bound, and the attributes its events have."""
    match item:
        case SourceStream():
            own = schema.types.get(item.name, {})
            return item, {**own, **{name: _observed(kind, own.get(name, UNKNOWN)) for name, kind in item.attributes}}
        case DerivedStream():
            source = schema.attributes((item.source,))

            def read(attr: Attr) -> Type:
                return source.get(attr.name, UNKNOWN) if attr.var == item.alias else node_type(attr.name, source)

            columns = tuple(Column(c.name, typed(c.expr, read)) for c in item.columns)
            base = {**BASE_SCHEMA, "node_id": source.get("node_id", UNKNOWN)}
            return replace(item, columns=columns), {**base, **{c.name: c.expr.type for c in columns}}
        case _:
            bound = bind(item, schema)
            return bound, output_attributes(bound, with_declared(bound, schema) if bound.inputs else schema)


def node_type(name: str, attributes: Mapping[str, Type]) -> Type:
    """The type of an attribute of CED's `node`: its clock counts ticks."""
    return INTEGER if name == "time" else attributes.get(NODE_COLUMNS.get(name, name), UNKNOWN)


def _observed(declared: Type, observed: Type) -> Type:
    """The type of a declared attribute: the columns of the input decide between numbers."""
    return observed if declared.is_number and observed.is_number else declared


def output_attributes(query: Query, schema: Schema) -> dict[str, Type]:
    """The attributes of the events that a bound query's matches are."""
    found = query.roles
    checker = _Checker(query, found, schema, schema)

    def attributes_of(var: str) -> dict[str, Type]:
        return schema.attributes(checker.types_of(var))

    base = BASE_SCHEMA if query.dialect.has_nodes else INTERVAL_TYPES
    result: dict[str, Type] = dict(base)
    for column in query.output or ():
        if not isinstance(column.expr, Whole):
            result[column.name] = column.expr.type
    if query.threshold is not None:
        return {**result, VALUE: value_type(query.threshold)}
    for name, expr in members(query, attributes_of):
        fitted = fitting(expr, checker.attribute_type)
        if fitted is not None:
            result[name] = fitted.type
    for name, owners, attribute in composite_names(query, attributes_of):
        fitted = fitting(ex.first_of([Attr(var, attribute) for var in owners]), checker.attribute_type)
        if fitted is not None:
            result[name] = fitted.type
    return result


def composite_names(
    query: Query, attributes_of: Callable[[str], Iterable[str]]
) -> Iterator[tuple[str, tuple[str, ...], str]]:
    """How the attributes of a match's events are read from the match: `var.attribute` for every event it returns, and
    the bare attribute where only one event has it or an equivalence test makes all agree. Its owners are all variables
    that have it, unless every match binds one of them (they are in branches of a disjunction). The match's own
    variables and interval come before a bare attribute of the same name."""
    found = query.roles
    single = [var for var, role in found.items() if not role.negated and not role.binds_many]
    if query.output is not None:
        single = [c.expr.var for c in query.output if isinstance(c.expr, Whole) and c.expr.var in single]
    owners: dict[str, list[str]] = {}
    for var in single:
        for attribute in attributes_of(var):
            owners.setdefault(attribute, []).append(var)
            yield f"{var}.{attribute}", (var,), attribute
    own = {f"{var}.{attribute}" for attribute, variables in owners.items() for var in variables}
    shared = partition_attributes(query)
    for attribute, variables in owners.items():
        is_own = attribute in INTERVAL_TYPES or attribute in own
        is_one = len(variables) == 1 or most_bound(query.pattern, variables) == 1
        if query.output is None and not is_own and (is_one or attribute in shared):
            first = next((var for var in variables if var in always_bound(query.pattern)), None)
            yield attribute, tuple(variables) if first is None else (first,), attribute


def members(query: Query, attributes_of: Callable[[str], Iterable[str]]) -> Iterator[tuple[str, Expr]]:
    """What can be read of the closures of a match, from the match: `b[1].v`, the last event, aggregates, and the bare
    attribute of an equivalence test that only closures have, which their events share."""
    yield from _shared_by_closures(query, attributes_of)
    returned = None if query.output is None else {c.expr.var for c in query.output if isinstance(c.expr, Whole)}
    for var, role in query.roles.items():
        if role.negated or not role.binds_many or (returned is not None and var not in returned):
            continue
        yield f"{var}{MEMBER}count", Aggregate("count", var, None)
        for attribute in attributes_of(var):
            yield f"{var}{MEMBER}[1].{attribute}", Attr(var, attribute, At.FIRST)
            yield f"{var}{MEMBER}[{var}.LEN].{attribute}", Attr(var, attribute, At.LAST)
            for fn in ex.AGGREGATES:
                yield f"{var}{MEMBER}{fn}.{attribute}", Aggregate(fn, var, attribute)


def _shared_by_closures(query: Query, attributes_of: Callable[[str], Iterable[str]]) -> Iterator[tuple[str, Expr]]:
    if query.output is not None:
        return
    closures = [var for var, role in query.roles.items() if role.binds_many and not role.negated]
    bound = always_bound(query.pattern)
    taken = {*INTERVAL_TYPES, *(name for name, _, _ in composite_names(query, attributes_of))}
    for name in dict.fromkeys(test.name for test in query.where if isinstance(test, ex.Same)):
        owners = [var for var in closures if name in attributes_of(var)]
        if owners and name not in taken:
            yield name, Attr(next((var for var in owners if var in bound), owners[0]), name, At.FIRST)


def fitting(expr: Expr, attribute_type: Callable[[Attr], Type]) -> Expr | None:
    """The expression with its type; None if the types do not fit, as in a sum of strings."""
    try:
        return typed(expr, attribute_type)
    except CepheidError:
        return None
