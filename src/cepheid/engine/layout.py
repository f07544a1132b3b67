"""The Arrow schema of matches. It is known before the run, so that an empty result has it too."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from cepheid import types
from cepheid.binding import composite_names, members, with_declared
from cepheid.errors import PatternProblem
from cepheid.events import Clock, Schema
from cepheid.expr import AGGREGATES, MEMBER, Aggregate, Attr, Expr, ResultType, Whole
from cepheid.pattern import DerivedStream, EventClass, Query, Role, SourceStream, positives
from cepheid.types import UNKNOWN, Family, Type

START, END = "match_start", "match_end"
DETECTED = "detected_at"
"""The column, by request, with the event time at which a match became certain."""
INTERVAL = ("start_time", "end_time")
"""The times of a derived event, by their names in CED's base schema (§2.1)."""

Layout = Mapping[str, Mapping[str, pa.DataType]]
"""The Arrow type of each attribute of each event type, if it is known more precisely than in the schema."""

JSON_TEXT = pa.string()
_TIMESTAMP = pa.timestamp("us", tz="UTC")


@dataclass(frozen=True, slots=True)
class Detection:
    """When a match becomes certain: so many ticks after its start, or, if None, at its end."""

    after_start: int | None

    def ticks(self, start: Any, end: Any) -> Any:
        """Of one match, or of arrays of them."""
        return end if self.after_start is None else start + self.after_start


def column_names(query: Query) -> list[str]:
    """The columns of the query's matches: its RETURN columns or its variables; then the interval."""
    names = positives(query.pattern) if query.output is None else [column.name for column in query.output]
    for name in (START, END):
        if name in names:
            spans = [column.expr.span for column in query.output or () if column.name == name]
            raise PatternProblem(
                f"`{name}` is the name of a column that every match has",
                span=spans[0] if spans else None,
                hint="choose another name in the query",
            )
    return [*names, START, END]


def time_type(clock: Clock) -> pa.DataType:
    return _TIMESTAMP if clock.is_timestamp else pa.int64()


def match_schema(query: Query, schema: Schema, clock: Clock, layout: Layout | None = None) -> pa.Schema:
    """The schema of a bound query's matches: a struct for each variable (a list of structs for a variable that binds
    many events) or the RETURN columns; then the interval. Values without an Arrow type are JSON text."""
    columns = _Columns(query, schema, clock, layout or {})
    return pa.schema([(name, columns.type_of(name)) for name in column_names(query)])


def expression_type(query: Query, schema: Schema, clock: Clock, layout: Layout) -> Callable[[Expr], pa.DataType]:
    """The Arrow type of expressions over the variables of a bound query."""
    return _Columns(query, schema, clock, layout).expression


class _Columns:
    def __init__(self, query: Query, schema: Schema, clock: Clock, layout: Layout) -> None:
        self.query, self.schema, self.clock = query, with_declared(query, schema), clock
        self.roles = query.roles
        self.returned = {column.name: column.expr for column in query.output or ()}
        self.derived = {item.name for item in query.inputs if not isinstance(item, SourceStream)}
        known = dict(layout)
        for item in query.inputs:
            if not isinstance(item, SourceStream):
                known[item.name or ""] = _Columns(_as_query(item, query), self.schema, clock, known).attributes()
        self.layout: Layout = known

    def attributes(self) -> dict[str, pa.DataType]:
        """The types of the attributes of a match that is an event of another query."""
        own = {n: self.expression(expr) for n, expr in self.returned.items() if not isinstance(expr, Whole)}
        for name, owners, attribute in composite_names(self.query, self._attributes_of):
            kinds = dict.fromkeys(kind for var in owners for kind in self._event_types(self.roles[var]))
            own[name] = self._attribute(tuple(kinds), attribute)
        for name, expr in members(self.query, self._attributes_of):
            if isinstance(expr, Attr) or (
                isinstance(expr, Aggregate) and AGGREGATES[expr.fn].result is ResultType.VALUE
            ):
                own[name] = self.expression(expr)
        return own

    def _attributes_of(self, var: str) -> Iterable[str]:
        return self.schema.attributes(self._event_types(self.roles[var]))

    def type_of(self, name: str) -> pa.DataType:
        if name in (START, END):
            return time_type(self.clock)
        return self.expression(self.returned[name]) if name in self.returned else self._variable(self.roles[name])

    def _variable(self, role: Role) -> pa.DataType:
        names = self._event_types(role)
        shown = [name for name in self.schema.attributes(names) if MEMBER not in name]
        fields = [(name, self._attribute(names, name)) for name in shown]
        # Parquet has no struct without fields, so events without known attributes are JSON text.
        one = pa.struct(fields) if fields else JSON_TEXT
        return pa.list_(one) if role.binds_many else one

    def _event_types(self, role: Role) -> tuple[str, ...]:
        return role.event_class.types or tuple(name for name in self.schema.types if name not in self.derived)

    def _attribute(self, of: Iterable[str], name: str) -> pa.DataType:
        """The type of an attribute of these event types."""
        if name in INTERVAL and self.derived.issuperset(of):
            return time_type(self.clock)
        known = {self.layout[one][name] for one in of if name in self.layout.get(one, {})}
        if known == {pa.int64(), pa.float64()}:
            return pa.float64()
        if known:
            return known.pop() if len(known) == 1 else JSON_TEXT
        return _arrow_type(self.schema.attributes(of).get(name, UNKNOWN))

    def expression(self, expr: Expr) -> pa.DataType:
        match expr:
            case Whole(var=var) if var in self.roles:
                return self._variable(self.roles[var])
            case Aggregate(fn=fn) if self.query.summarizes and AGGREGATES[fn].result is not ResultType.VALUE:
                return _arrow_type(_total_type(expr))
            case Attr(var=var, name=name) if var in self.roles:
                return self._attribute(self._event_types(self.roles[var]), name)
            case Aggregate(fn=fn, var=var, name=str() as name, of=None) if (
                AGGREGATES[fn].result is ResultType.VALUE and var in self.roles
            ):
                return self._attribute(self._event_types(self.roles[var]), name)
            case _:
                return _arrow_type(expr.type)


def _arrow_type(type_: Type) -> pa.DataType:
    return types.to_arrow(type_) or JSON_TEXT


def _total_type(expr: Aggregate) -> Type:
    """The type of a count or sum over all matches, of which there may be astronomically many. Durations keep theirs."""
    if expr.type.family in (Family.INTEGER, Family.UNSIGNED, Family.DECIMAL):
        return types.decimal(types.LONG_DIGITS, expr.type.scale)
    return expr.type


def _as_query(stream: DerivedStream | Query, user: Query) -> Query:
    """A derived stream with one event per event of its source, as a pattern of one component."""
    if isinstance(stream, Query):
        return stream
    return Query(EventClass(stream.alias, (stream.source,)), user.dialect, output=stream.columns)
