"""The events that queries derive, as the queries that use them read them: attributes, columns and types.

A query that uses others reads batches in which their events are merged with those of the input. An attribute of a
derived event shares the column of the same name with the input's events, if it has the same type; otherwise it gets a
column of its own, and the query is rewritten to read that.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import pyarrow as pa

from cepheid import expr as ex
from cepheid import types
from cepheid.binding import BASE_SCHEMA, INTERVAL_TYPES, composite_names, fitting, members, node_type
from cepheid.checks import NODE, NODE_COLUMNS
from cepheid.engine.input_shape import InputShape, ShownAttribute
from cepheid.engine.layout import INTERVAL, expression_type, time_type
from cepheid.errors import NotAvailable
from cepheid.events import Clock, Schema
from cepheid.expr import MEMBER, Aggregate, At, Attr, Expr, Same
from cepheid.inference import typed
from cepheid.io.inputs import Columns
from cepheid.io.rows import START, TIME
from cepheid.io.source import Attributes, SourceDescription, flat_fields
from cepheid.lang import sase
from cepheid.logic import pairs_of
from cepheid.pattern import (
    Column,
    DerivedStream,
    EventClass,
    Query,
    Strategy,
    always_binds_one,
    always_bound,
    map_classes,
)
from cepheid.types import Family, Type

OTHER = "\ue000other"
"""The type of the input's events whose type is not known before the run, for a class over the whole stream."""
_OWN_COLUMN = "\ue000"
"""Joins an attribute and its event type to the name of a column of its own."""


@dataclass(frozen=True, slots=True)
class Attribute:
    """An attribute of derived events: computed from a match by an expression, or else a time of its interval, or null
    (`expr` is None)."""

    name: str
    expr: Expr | None
    type: Type
    arrow: pa.DataType
    key: str | None = None
    """The attribute by whose values the events of the match are partitioned, if this is it."""
    of_branches: bool = False
    """Whether the expression is the attribute of several variables (`coalesce`), of which a match binds one."""


@dataclass(frozen=True, slots=True)
class DerivedType:
    """The events of a node under the label by which a query knows them, and the column of each attribute."""

    label: str
    node: str
    columns: Mapping[str, Attribute]
    renamed: Mapping[str, str]
    """attribute -> its column, if it has another name."""

    def column(self, name: str) -> str:
        return self.renamed.get(name, name)


class Reading(NamedTuple):
    """A query over batches that contain derived events, with their schema."""

    query: Query
    """Rewritten to the columns of derived events."""
    shape: InputShape
    """The columns of the input and of derived events."""
    schema: Schema
    derived: tuple[DerivedType, ...]
    types: frozenset[str] | None
    """The event types of the input that the query binds; None: all."""


# --- the attributes of derived events ---------------------------------------------------------------------------------


def attributes_of_matches(
    query: Query, reading: Reading, clock: Clock, key: Collection[str], has_nodes: bool
) -> tuple[Attribute, ...]:
    """The attributes of a bound query's matches, as `semantics.composite` defines them. `reading` is the same query
    over the columns of its events, `key` the attributes by which its plan is partitioned. With `has_nodes` they have
    CED's base schema."""
    schema, fields = reading.schema, dict(flat_fields(reading.shape.schema))
    roles, derived = reading.query.roles, {one.label: one for one in reading.derived}
    named = [name for role in roles.values() for name in role.event_class.types]
    layout = {name: {**fields, TIME: pa.int64()} for name in (*schema.types, *named)}
    arrow_type = expression_type(reading.query, schema, clock, layout)

    def columns_of(var: str) -> dict[str, str]:
        """The attributes of a variable's events, and their columns."""
        found: dict[str, str] = {}
        for kind in roles[var].event_class.types or tuple(schema.types):
            if kind in derived:
                found.update({name: derived[kind].column(name) for name in derived[kind].columns})
            else:
                found.update({name: name for name in schema.attributes((kind,))})
        return found

    def read(attr: Attr) -> Type:
        if attr.name == TIME:
            return types.INTEGER
        if attr.var not in roles:
            return node_type(attr.name, schema.attributes(schema.types))
        of = roles[attr.var].event_class.types or tuple(schema.types)
        return schema.attributes(of).get(attr.name, types.UNKNOWN)

    # The key of a match is the attribute of a variable only if each match binds the variable.
    bound = set(always_bound(query.pattern))

    def key_of(var: str) -> Collection[str]:
        return key if var in bound else ()

    found: dict[str, Attribute] = {}
    for name, type_ in (BASE_SCHEMA if has_nodes or query.dialect.has_nodes else INTERVAL_TYPES).items():
        found[name] = Attribute(name, None, type_, pa.int64() if name in INTERVAL else pa.null())
    for column in reading.query.output or ():
        if not isinstance(column.expr, ex.Whole):
            returned = typed(column.expr, read)
            own_key = key_of(returned.var) if isinstance(returned, Attr) else ()
            found[column.name] = _attribute(column.name, returned, arrow_type, own_key)
    for name, owners, attribute in composite_names(query, columns_of):
        single = fitting(ex.first_of([Attr(var, columns_of(var)[attribute]) for var in owners]), read)
        if single is not None:
            own_key = key if always_binds_one(query.pattern, owners) else ()
            found[name] = replace(_attribute(name, single, arrow_type, own_key), of_branches=len(owners) > 1)
    for name, expr in members(query, columns_of):
        assert isinstance(expr, Attr | Aggregate)
        own = expr if expr.name is None else replace(expr, name=columns_of(expr.var)[expr.name])
        fitted = fitting(own, read)
        if fitted is not None:
            own_key = () if MEMBER in name else key_of(expr.var)
            found[name] = _attribute(name, fitted, arrow_type, own_key, At.FIRST)
    # An attribute with the name of a key that need not be the key takes its column.
    taken = {name for name in key if name in found and found[name].key != name}
    return tuple(replace(one, key=None) if one.key in taken else one for one in found.values())


def projected(stream: DerivedStream) -> Query:
    """CED's `primitive` as a query of one component, with the attributes of the base schema (CED §2.1)."""
    alias = stream.alias

    def of_source(node: Expr) -> Expr:
        if not isinstance(node, Attr) or node.var != NODE or alias == NODE:
            return node
        return replace(node, var=alias, name={**NODE_COLUMNS, "time": TIME}.get(node.name, node.name))

    computed = {c.name: Column(c.name, ex.transform(c.expr, of_source)) for c in stream.columns}
    base = {"node_id": Column("node_id", Attr(alias, "node_id"))}
    return Query(EventClass(alias, (stream.source,)), sase.DIALECT, output=tuple({**base, **computed}.values()))


def _attribute(
    name: str, expr: Expr, arrow_type: Callable[[Expr], pa.DataType], key: Collection[str], at: At = At.EVENT
) -> Attribute:
    # Floats that are equal can differ in their sign, so the key of another event does not stand for them.
    sources = expr.args if isinstance(expr, ex.Call) and expr.fn == "coalesce" else (expr,)
    names = {one.name if isinstance(one, Attr) and one.at is at else None for one in sources}
    column = names.pop() if len(names) == 1 and expr.type.family is not Family.FLOAT else None
    shared = column if column in key else None
    return Attribute(name, expr, expr.type, arrow_type(expr), shared)


# --- the columns that a query reads -----------------------------------------------------------------------------------


def reading_of(
    query: Query,
    used: Sequence[tuple[str, str, tuple[Attribute, ...]]],
    shape: InputShape,
    schema: Schema,
    clock: Clock,
    *,
    is_complete: bool,
) -> Reading:
    """A bound query without inputs, over the input and the derived events that it uses: their label, node and
    attributes. `is_complete`: all event types of the input are known."""
    if not used:
        return Reading(query, shape, schema, (), None)
    labels = {label for label, _, _ in used}
    is_known = is_complete and labels.isdisjoint(schema.types)
    others = {} if is_known else {OTHER: schema.attributes(schema.types)}
    base = replace(schema, types={**schema.types, **others})
    known = tuple(name for name in base.types if name not in labels)
    raw = {name: kind for name, kind in flat_fields(shape.schema)}
    fields, derived = dict(raw), []
    apart = _read_apart(query, {label: {a.name: a for a in attributes} for label, _, attributes in used}, base)
    for label, node, attributes in used:
        renamed: dict[str, str] = {}
        for attribute in attributes:
            separate = replace(attribute, key=None) if (label, attribute.name) in apart else attribute
            column = _column_of(separate, label, fields, raw)
            if column != attribute.name:
                renamed[attribute.name] = column
            if column not in fields or pa.types.is_null(fields[column]):
                fields[column] = attribute.arrow
        derived.append(DerivedType(label, node, {a.name: a for a in attributes}, renamed))
    query = replace(query, pattern=map_classes(query.pattern, lambda c: c if c.types else replace(c, types=known)))
    query = _rewritten(query, {one.label: one for one in derived})
    merged = [pa.field(name, fields.pop(name, shape.schema.field(name).type)) for name in shape.schema.names]
    merged += [pa.field(name, kind) for name, kind in fields.items() if name not in raw or _is_shared(name, derived)]
    own = {one.label: {one.column(n): a.arrow for n, a in one.columns.items() if MEMBER not in n} for one in derived}
    by_type = {name: {f.name: f.type for f in shape.schema} for name in known}
    new_schema = {one.label: {one.column(n): a.type for n, a in one.columns.items()} for one in derived}
    composed = InputShape(
        pa.schema(merged),
        replace(shape.columns, start=shape.columns.start or START),
        {**(by_type if shape.attributes is None else shape.attributes), **own},
        shape.omits_nulls,
        {one.label: tuple(_shown(one, clock)) for one in derived},
    )
    types_bound = {name for role in query.roles.values() for name in role.event_class.types} - labels
    return Reading(
        query,
        composed,
        replace(base, types={**base.types, **new_schema}),
        tuple(derived),
        None if OTHER in types_bound else frozenset(types_bound),
    )


def _read_apart(query: Query, used: Mapping[str, Mapping[str, Attribute]], schema: Schema) -> set[tuple[str, str]]:
    """The attributes, by label, that do not stand in the column of a key: a class of several types has one column for
    each attribute, and a type that lacks the attribute has nothing there."""
    apart: set[tuple[str, str]] = set()
    for role in query.roles.values():
        kinds = role.event_class.types
        derived = [kind for kind in kinds if kind in used]
        if len(kinds) < 2 or not derived:
            continue
        for name in {name for kind in derived for name in used[kind]}:
            columns = [used[k][name].key or name if name in used.get(k, ()) else None for k in derived]
            columns += [name if name in schema.attributes((k,)) else None for k in kinds if k not in used]
            if len(set(columns)) > 1:
                apart.update((kind, name) for kind in derived)
    return apart


def _column_of(
    attribute: Attribute, label: str, fields: Mapping[str, pa.DataType], raw: Mapping[str, pa.DataType]
) -> str:
    """The column of an attribute: that of the key if it is the key, its own name if the type fits, or one of its
    own."""
    if attribute.key is not None and raw.get(attribute.key) == attribute.arrow:
        return attribute.key
    there = fields.get(attribute.name)
    fits = there is None or there == attribute.arrow or pa.types.is_null(there) or pa.types.is_null(attribute.arrow)
    return attribute.name if fits else f"{attribute.name}{_OWN_COLUMN}{label}"


def _is_shared(name: str, derived: Sequence[DerivedType]) -> bool:
    """Whether a field of a struct of the input has the name of a derived attribute."""
    return any(name == one.column(attribute) for one in derived for attribute in one.columns)


def _shown(derived: DerivedType, clock: Clock) -> list[ShownAttribute]:
    def type_of(attribute: Attribute) -> pa.DataType:
        return time_type(clock) if attribute.expr is None and attribute.name in INTERVAL else attribute.arrow

    shown = {name: of for name, of in derived.columns.items() if MEMBER not in name}
    return [ShownAttribute(name, derived.column(name), type_of(of)) for name, of in shown.items()]


def _rewritten(query: Query, derived: Mapping[str, DerivedType]) -> Query:
    """The query with the attributes of derived events under the names of their columns."""
    roles = query.roles

    def column(var: str, name: str) -> str:
        of = roles[var].event_class.types if var in roles else ()
        names = {derived[kind].column(name) if kind in derived else name for kind in of}
        if len(names) > 1:
            raise NotAvailable(f"the attribute `{name}` of `{var}` does not have one type")
        return names.pop() if names else name

    def renamed(node: Expr) -> Expr:
        match node:
            case Attr(var=var, name=name):
                return replace(node, name=column(var, name))
            case Aggregate(var=var, name=str() as name, of=None):
                return replace(node, name=column(var, name))
            case _:
                return node

    def tests(predicate: Expr) -> tuple[Expr, ...]:
        """The predicate over columns. An equivalence test over several columns is a test of each pair."""
        if not isinstance(predicate, Same):
            return (ex.transform(predicate, renamed),)
        columns = {column(var, predicate.name) for var in roles}
        if len(columns) == 1:
            return (replace(predicate, name=columns.pop()),)
        if query.strategy is Strategy.PARTITION or (query.window is not None and query.window.counts_events):
            raise NotAvailable(
                f"the equivalence test `[{predicate.name}]` reads columns of different types, so it cannot partition",
                hint="give the attribute one type with CAST in the RETURN of the query that derives it",
            )
        return tuple(ex.transform(pair, renamed) for pair in pairs_of(predicate, query))

    where = tuple(test for predicate in query.where for test in tests(predicate))
    output = query.output and tuple(Column(c.name, ex.transform(c.expr, renamed)) for c in query.output)
    return replace(query, where=where, output=output)


@dataclass(frozen=True, slots=True)
class Composed:
    """A source with derived events, for `prepare` (see `io.source.SourceDescription`). It is not sampled: that would
    evaluate the queries that derive them."""

    source: SourceDescription
    shape: InputShape
    count: int | None = None

    @property
    def columns(self) -> Columns:
        return self.shape.columns

    @property
    def schema(self) -> pa.Schema:
        return self.shape.schema

    @property
    def attributes(self) -> Attributes | None:
        return self.shape.attributes

    @property
    def omits_nulls(self) -> bool:
        return self.shape.omits_nulls

    @property
    def is_closed(self) -> bool:
        return self.source.is_closed

    @property
    def epoch_unit(self) -> str | None:
        return self.source.epoch_unit

    @property
    def extreme_times(self) -> tuple[int, int] | None:
        return self.source.extreme_times

    def sample(self, names: Sequence[str], size: int) -> pa.RecordBatch | None:
        return None
