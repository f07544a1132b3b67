"""The Arrow layout of matches: known before a query runs, so that an empty result has it too."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

from cepheid.binding import composite_names, with_declared
from cepheid.errors import NotAvailable, shown
from cepheid.events import Clock, Event, Schema, Type
from cepheid.expr import AGGREGATES, Aggregate, Attr, Expr, Gives, Whole, infer
from cepheid.io.matches import END, INTERVAL, START, Presenter, column_names, dumps, presenter
from cepheid.io.row_reader import Loaded
from cepheid.pattern import DerivedStream, EventClass, Query, Role, SourceStream, roles
from cepheid.semantics import Match

Layout = Mapping[str, Mapping[str, pa.DataType]]
"""The Arrow type of each attribute of each event type, where it is known more closely than by the schema."""

JSON_TEXT = pa.string()
_TIMESTAMP = pa.timestamp("us", tz="UTC")
_ARROW: Mapping[Type, pa.DataType] = {Type.NUMBER: pa.float64(), Type.BOOLEAN: pa.bool_()}


def time_type(clock: Clock) -> pa.DataType:
    return _TIMESTAMP if clock.is_timestamp else pa.int64()


def layout_of(loaded: Loaded) -> Layout:
    """What the events show of their attributes: whole numbers stay whole numbers, lists of numbers are lists."""
    seen: dict[str, dict[str, set[str]]] = {}
    for event in loaded.events:
        attributes = seen.setdefault(event.type, {})
        for name, value in event.attributes.items():
            if value is not None:
                attributes.setdefault(name, set()).add(_kind(value))
    layout: dict[str, dict[str, pa.DataType]] = {}
    for type_name, attributes in seen.items():
        layout[type_name] = {name: _arrow_of(kinds) for name, kinds in attributes.items()}
        layout[type_name][loaded.time_column] = time_type(loaded.clock)
    return layout


def _kind(value: Any) -> str:
    match value:
        case bool():
            return "boolean"
        case int():
            return "integer" if -(2**63) <= value < 2**63 else "number"
        case float():
            return "number"
        case list():
            return "numbers" if all(_kind(item) in ("integer", "number") for item in value) else "other"
        case str():
            return "text"
        case _:
            return "other"


def _arrow_of(kinds: set[str]) -> pa.DataType:
    if kinds <= {"integer"}:
        return pa.int64()
    if kinds <= {"integer", "number"}:
        return pa.float64()
    return {"boolean": pa.bool_(), "numbers": pa.list_(pa.float64())}.get(
        next(iter(kinds)) if len(kinds) == 1 else "", JSON_TEXT
    )


def match_schema(query: Query, schema: Schema, clock: Clock, layout: Layout | None = None) -> pa.Schema:
    """The columns of a bound query's matches: a struct for each variable (a list of structs for one that binds many
    events), or the columns that it returns; then the interval. What has no Arrow type of its own is JSON text."""
    columns = _Columns(query, schema, clock, layout or {})
    return pa.schema([(name, columns.type_of(name)) for name in column_names(query)])


class _Columns:
    def __init__(self, query: Query, schema: Schema, clock: Clock, layout: Layout) -> None:
        self.query, self.schema, self.clock = query, with_declared(query, schema), clock
        self.roles = roles(query.pattern)
        self.returned = {column.name: column.expr for column in query.output or ()}
        self.derived = {item.name for item in query.inputs if not isinstance(item, SourceStream)}
        known = dict(layout)
        for item in query.inputs:
            if not isinstance(item, SourceStream):
                known[item.name or ""] = _Columns(_as_query(item, query), self.schema, clock, known).attributes()
        self.layout: Layout = known

    def attributes(self) -> dict[str, pa.DataType]:
        """The types of a match's attributes, where it is an event of another query."""
        found = {n: self._expression(expr) for n, expr in self.returned.items() if not isinstance(expr, Whole)}
        for name, var, attribute in composite_names(self.query, self._attributes_of):
            found[name] = self._attribute(self._types(self.roles[var]), attribute)
        return found

    def _attributes_of(self, var: str) -> Iterable[str]:
        return self.schema.attributes(self._types(self.roles[var]))

    def type_of(self, name: str) -> pa.DataType:
        if name in (START, END):
            return time_type(self.clock)
        return self._expression(self.returned[name]) if name in self.returned else self._variable(self.roles[name])

    def _variable(self, role: Role) -> pa.DataType:
        types = self._types(role)
        fields = [(name, self._attribute(types, name)) for name in self.schema.attributes(types)]
        # Parquet has no struct without fields, so events of which nothing is known are JSON text.
        one = pa.struct(fields) if fields else JSON_TEXT
        return pa.list_(one) if role.binds_many else one

    def _types(self, role: Role) -> tuple[str, ...]:
        return role.event_class.types or tuple(name for name in self.schema.types if name not in self.derived)

    def _attribute(self, types: Iterable[str], name: str) -> pa.DataType:
        if name in INTERVAL and self.derived.issuperset(types):
            return time_type(self.clock)
        known = {self.layout[of][name] for of in types if name in self.layout.get(of, {})}
        if known == {pa.int64(), pa.float64()}:
            return pa.float64()
        if known:
            return known.pop() if len(known) == 1 else JSON_TEXT
        return _ARROW.get(self.schema.attributes(types).get(name, Type.UNKNOWN), JSON_TEXT)

    def _expression(self, expr: Expr) -> pa.DataType:
        match expr:
            case Whole(var=var) if var in self.roles:
                return self._variable(self.roles[var])
            case Aggregate(fn=fn) if AGGREGATES[fn].gives is Gives.COUNT:
                return pa.int64()
            case Attr(var=var, name=name) if var in self.roles:
                return self._attribute(self._types(self.roles[var]), name)
            case Aggregate(fn=fn, var=var, name=str() as name) if (
                AGGREGATES[fn].gives is Gives.VALUE and var in self.roles
            ):
                return self._attribute(self._types(self.roles[var]), name)
            case _:
                return _ARROW.get(infer(expr, self._attribute_type), JSON_TEXT)

    def _attribute_type(self, attr: Attr) -> Type:
        role = self.roles.get(attr.var)
        return Type.UNKNOWN if role is None else self.schema.attributes(self._types(role)).get(attr.name, Type.UNKNOWN)


def _as_query(stream: DerivedStream | Query, user: Query) -> Query:
    """One event for each event of a source is a pattern too, of one component."""
    if isinstance(stream, Query):
        return stream
    return Query(EventClass(stream.alias, (stream.source,)), user.dialect, output=stream.columns)


def write_parquet(file: IO[bytes], query: Query, matches: Sequence[Match], loaded: Loaded) -> None:
    pq.write_table(match_table(query, matches, loaded), file)


def match_table(query: Query, matches: Sequence[Match], loaded: Loaded, layout: Layout | None = None) -> pa.Table:
    schema = match_schema(query, loaded.schema, loaded.clock, layout_of(loaded) if layout is None else layout)
    show = presenter(query, loaded)
    columns: list[pa.Array] = []
    for field in schema:
        if field.name in (START, END):
            values: list[Any] = [match.start if field.name == START else match.end for match in matches]
        else:
            values = [(match.bindings if match.columns is None else match.columns).get(field.name) for match in matches]
        columns.append(pa.array([arrow_value(value, field.type, show) for value in values], field.type))
    return pa.Table.from_arrays(columns, schema=schema)


def arrow_value(value: Any, kind: pa.DataType, show: Presenter) -> Any:
    """The value in the form that the Arrow type takes; null where it does not fit."""
    if value is None:
        return None
    if pa.types.is_string(kind):
        return value if isinstance(value, str) else dumps(show.value(value, {}))
    if pa.types.is_list(kind):
        return [arrow_value(item, kind.value_type, show) for item in value] if isinstance(value, list | tuple) else None
    if pa.types.is_struct(kind):
        return (
            {field.name: arrow_value(value.attributes.get(field.name), field.type, show) for field in kind}
            if isinstance(value, Event)
            else None
        )
    if pa.types.is_boolean(kind):
        return value if isinstance(value, bool) else None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    if pa.types.is_floating(kind):
        return float(value)
    if not -(2**63) <= value < 2**63:
        raise NotAvailable(
            f"{shown(str(int(value)))} does not fit into a column of whole numbers, which has 64 bits",
            hint="ask `cepheid run` for JSON, or use a shorter window",
        )
    return int(value)
