"""Gathers the output of matches from their positions: rows of events, or RETURN columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cepheid import expr as ex
from cepheid import types
from cepheid.checks import NODE, NODE_COLUMNS
from cepheid.codegen.columns import attribute, types_of
from cepheid.codegen.masks import no_aggregate
from cepheid.codegen.points import points_of
from cepheid.codegen.typed_columns import Column, either, from_arrow, to_arrow
from cepheid.codegen.vector import Evaluation, is_vectorisable
from cepheid.engine.aggregation import Total, aggregated, selected
from cepheid.engine.input_shape import ShownAttribute
from cepheid.engine.layout import DETECTED, END, INTERVAL, START, column_names, match_schema
from cepheid.engine.match_ids import MATCH_ID
from cepheid.engine.oracle import computed_columns
from cepheid.engine.positions import MatchPositions, match_order
from cepheid.engine.prepare import Prepared
from cepheid.expr import AGGREGATES, Aggregate, At, Attr, Expr, Over, ResultType, Whole
from cepheid.io.rows import INPUT_ROW, TIME, TYPE, Rows
from cepheid.io.source import flat_fields, owner
from cepheid.kernels.successor.failures import REASON, reasons, shows_failures
from cepheid.pattern import Role, types_named
from cepheid.physical import REFERENCE
from cepheid.runtime.kernel import Array


@dataclass(frozen=True, slots=True)
class OutputColumn:
    """A column of the output, with its Arrow type, which is known before the run."""

    name: str
    type: pa.DataType
    shows: Expr | None
    """An event, an attribute or another expression; None for the start and the end of the match, and for the reason of
    a failed detection."""
    of_branches: bool = False
    """Whether it shows the first of several attributes whose event the match binds (`coalesce`)."""


@dataclass(frozen=True, slots=True)
class Lack:
    """The event types of a variable that lack an attribute. `is_total`: all types of the variable lack it."""

    types: frozenset[str]
    is_total: bool


Lacks = Mapping[tuple[str, str], Lack]
"""By variable and attribute. A condition on an attribute that the event's type lacks does not apply (ruling 4)."""


@dataclass(frozen=True, slots=True)
class Gatherer:
    """Builds the output of a query from rows of its input. `attributes` are the input columns of each variable's
    events, `lacks` the attributes in computed columns that some of its types lack."""

    prepared: Prepared
    input: pa.Schema
    time_column: str
    attributes: Mapping[str, tuple[str, ...]]
    columns: tuple[OutputColumn, ...]
    lacks: Lacks

    @classmethod
    def of(
        cls, prepared: Prepared, input: pa.Schema, time_column: str, attributes: Mapping[str, tuple[str, ...]]
    ) -> Gatherer:
        query, variables = prepared.query, prepared.variables
        layout = {name: dict(flat_fields(input)) for name in (*prepared.schema.types, *types_named(query))}
        known = match_schema(query, prepared.schema, prepared.clock, layout)
        returned = {column.name: column.expr for column in query.output or ()}
        columns = []
        for name in column_names(query):
            shows = None if name in (START, END) else returned.get(name, Whole(name))
            if shows is None:
                kind = input.field(time_column).type
            elif isinstance(shows, Whole) and shows.var in variables:
                shown = shown_attributes(prepared, input, shows.var, attributes[shows.var])
                kind = _events_type(shown, variables[shows.var])
            elif isinstance(shows, Attr) and (shown_type := _interval_type(prepared, shows)) is not None:
                kind = shown_type
            else:
                kind = known.field(name).type
            columns.append(OutputColumn(name, kind, shows))
        if prepared.detection is not None:
            columns.append(OutputColumn(DETECTED, input.field(time_column).type, None))
        if prepared.match_ids is not None:
            columns.append(OutputColumn(MATCH_ID, pa.string(), None))
        if shows_failures(prepared.plan):
            columns.append(OutputColumn(REASON, pa.string(), None))
        return cls(prepared, input, time_column, attributes, tuple(columns), {}).with_lacks()

    def with_lacks(self) -> Gatherer:
        computed = [c.shows for c in self.columns if c.shows is not None and not self._is_fetched(c)]
        return replace(self, lacks=_lacks(self.prepared, computed))

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([(column.name, column.type) for column in self.columns])

    def needed(self) -> list[str]:
        """The input columns that the output is computed from."""
        names: dict[str, None] = {}
        shown = [column.shows for column in self.columns if column.shows is not None]
        for node in (node for expr in shown for node in ex.walk_reads(expr)):
            if isinstance(node, Whole):
                names.update(dict.fromkeys(a.column for a in self._shown(node.var) if a.column != INPUT_ROW))
            elif isinstance(node, Attr) and node.var == NODE and NODE not in self.attributes:
                names.update(dict.fromkeys(owner(NODE_COLUMNS.get(node.name, node.name), self.input)))
            elif isinstance(node, Attr | ex.Aggregate) and node.name is not None:
                names.update(dict.fromkeys(owner(node.name, self.input)))
        if self.prepared.match_ids is not None:
            names.update(dict.fromkeys(self.prepared.match_ids.columns))
        if self.lacks:
            names.update(dict.fromkeys([*owner(self.prepared.input.columns.type, self.input), TYPE]))
        return list(names)

    def table(self, matches: MatchPositions, rows: Rows) -> pa.RecordBatch:
        """One row for each match."""
        arrays: list[pa.Array] = []
        computed, fetched = self._computed(matches, rows), self._fetched(matches, rows)
        for column in self.columns:
            match column.shows:
                case None if column.name == REASON:
                    array = pa.array(reasons(self.prepared.plan)).take(pa.array(matches.reasons))
                case None if column.name == MATCH_ID and self.prepared.match_ids is not None:
                    array = self.prepared.match_ids.of(matches.variables, rows, len(matches.start))
                case None if column.name == DETECTED and self.prepared.detection is not None:
                    array = as_time(self.prepared.detection.ticks(matches.start, matches.end), column.type)
                case None:
                    array = as_time(matches.start if column.name == START else matches.end, column.type)
                case _ if column.name in computed:
                    array = computed[column.name]
                case Whole(var=var):
                    array = self._events(matches.variables[var], self._shown(var), rows)
                case Attr() as attr:
                    array = attribute(fetched[attr.var, attr.at], attr.name)
                case ex.Call(args=attributes):
                    shown = [one for one in attributes if isinstance(one, Attr)]
                    parts = [attribute(fetched[one.var, one.at], one.name) for one in shown]
                    array = pc.coalesce(*(pc.cast(part, column.type) for part in parts))
            arrays.append(array if array.type == column.type else array.cast(column.type))
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _fetched(self, matches: MatchPositions, rows: Rows) -> dict[tuple[str, At], pa.RecordBatch]:
        """The columns of each event whose attributes the output shows, fetched together."""
        names: dict[tuple[str, At], dict[str, None]] = {}
        events: dict[tuple[str, At], Attr] = {}
        shown = [column.shows for column in self.columns if self._is_fetched(column)]
        for attr in (one for shows in shown for one in (shows.args if isinstance(shows, ex.Call) else (shows,))):
            if isinstance(attr, Attr):
                names.setdefault((attr.var, attr.at), {}).update(dict.fromkeys(owner(attr.name, self.input)))
                events[attr.var, attr.at] = attr
        return {event: rows.take(list(names[event]), one_event(matches, attr)) for event, attr in events.items()}

    def _computed(self, matches: MatchPositions, rows: Rows) -> dict[str, pa.Array]:
        """The columns that are neither an event nor an attribute. The oracle evaluates them by their definition."""
        others = {c.name: (c.shows, c.type) for c in self.columns if c.shows is not None and not self._is_fetched(c)}
        by_oracle = self.prepared.plan.evaluator == REFERENCE
        slow = {n: shows for n, shows in others.items() if by_oracle or not is_vectorisable(shows[0])}
        computed = computed_columns(self.prepared, slow, matches, rows, self.needed()) if slow else {}
        values = MatchValues(self.input, matches, rows, {}, self.lacks)
        computed |= {name: values.column(*shows) for name, shows in others.items() if name not in slow}
        return computed

    def _shown(self, var: str) -> Sequence[ShownAttribute]:
        return shown_attributes(self.prepared, self.input, var, self.attributes.get(var, ()))

    def _events(self, positions: pa.Array, shown: Sequence[ShownAttribute], rows: Rows) -> pa.Array:
        many = pa.types.is_list(positions.type)
        flat = positions.flatten() if many else positions
        stored = list(dict.fromkeys(attribute.column for attribute in shown if attribute.column != INPUT_ROW))
        batch = rows.take(stored, flat)
        mask = flat.is_null() if flat.null_count else None
        columns = [rows.input_rows(flat) if a.column == INPUT_ROW else batch.column(a.column) for a in shown]
        arrays = [_as_shown(c, a.type) for c, a in zip(columns, shown, strict=True)]
        events = pa.StructArray.from_arrays(arrays, fields=[pa.field(a.name, a.type) for a in shown], mask=mask)
        return _relisted(positions, events) if many else events

    def _is_fetched(self, column: OutputColumn) -> bool:
        """Whether the column holds events or an attribute, as opposed to a computed value."""
        if column.of_branches:
            return True
        match column.shows:
            case None:
                return True
            case Whole(var=var):
                return var in self.attributes
            case Attr(var=var, name=name, at=at):
                known = name in self.input.names or (name.count(".") == 1 and bool(owner(name, self.input)))
                return var in self.attributes and at is not At.ALL and known
            case _:
                return False


def _lacks(prepared: Prepared, exprs: Sequence[Expr]) -> Lacks:
    """The attributes in these expressions that a type of their variable lacks."""
    known, lacks = prepared.schema.types, {}
    for node in (node for expr in exprs for node in ex.walk_reads(expr)):
        if isinstance(node, Attr | Aggregate) and node.name not in (None, TIME) and node.var in prepared.variables:
            types = prepared.variables[node.var].event_class.types
            lacking = frozenset(t for t in types or known if t in known and node.name not in known[t])
            if lacking:
                lacks[node.var, node.name] = Lack(lacking, lacking == frozenset(types))
    return lacks


def _relisted(positions: pa.ListArray, values: pa.Array) -> pa.ListArray:
    """The values in lists with the lengths and nulls of the positions."""
    lengths = positions.value_lengths().fill_null(0)
    offsets = np.concatenate([[0], np.cumsum(np.asarray(lengths))])
    mask = positions.is_null() if positions.null_count else None
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), values, mask=mask)


def with_types(schema: pa.Schema) -> pa.Schema:
    """The columns of rows, with the event type."""
    return schema.append(pa.field(TYPE, pa.dictionary(pa.int32(), pa.string())))


def shown_attributes(prepared: Prepared, input: pa.Schema, var: str, names: Sequence[str]) -> Sequence[ShownAttribute]:
    """The attributes that the events of a variable show: those of derived events under their own names, and the input
    columns `names`."""
    derived = prepared.input.derived
    types = prepared.variables[var].event_class.types if var in prepared.variables else ()
    own = [shown for kind in types if kind in derived for shown in derived[kind]]
    columns = {shown.column for shown in own}
    others = [ShownAttribute(name, name, input.field(name).type) for name in names if name not in columns]
    return list({shown.name: shown for shown in [*others, *own]}.values())


def _as_shown(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """The column in the type that is shown; a derived event may have nothing in a column of the input."""
    if column.type == kind:
        return column
    return pa.nulls(len(column)) if pa.types.is_null(kind) else column.cast(kind)


def _interval_type(prepared: Prepared, attr: Attr) -> pa.DataType | None:
    """The type in the output of a time of a derived event's interval."""
    types = prepared.variables[attr.var].event_class.types if attr.var in prepared.variables else ()
    shown = [shown for kind in types for shown in prepared.input.derived.get(kind, ()) if shown.column == attr.name]
    return shown[0].type if shown and attr.name in INTERVAL and len(shown) == len(types) else None


def _events_type(shown: Sequence[ShownAttribute], role: Role) -> pa.DataType:
    one = pa.struct([(attribute.name, attribute.type) for attribute in shown])
    return pa.list_(one) if role.binds_many else one


def as_time(ticks: Array, kind: pa.DataType) -> pa.Array:
    """Ticks in the type of the time column."""
    array = pa.array(ticks, pa.int64())
    if pa.types.is_timestamp(kind):
        return array.cast(pa.timestamp("us", kind.tz)).cast(kind, safe=False)
    return array.cast(pa.timestamp("us")).cast(kind, safe=False) if pa.types.is_date(kind) else array.cast(kind)


@dataclass(frozen=True, slots=True)
class MatchValues:
    """Evaluates RETURN expressions over matches, with the attributes of their events gathered as columns."""

    input: pa.Schema
    matches: MatchPositions
    rows: Rows
    gathered: dict[tuple[str, At, str], Column]
    lacks: Lacks

    def column(self, expr: Expr, kind: pa.DataType) -> pa.Array:
        """The values of an expression for all matches, as an Arrow type."""
        length = len(self.matches.start)
        if isinstance(expr, Aggregate) and AGGREGATES[expr.fn].result is ResultType.VALUE:
            array = self._selected(expr)
            return array if array.type == kind else array.cast(kind)
        evaluation = Evaluation(length, self._read, self._aggregate, is_output=True)
        if isinstance(expr, ex.Vector) and expr.items and pa.types.is_list(kind):
            return points_of([evaluation.value(item) for item in expr.items], length, kind)
        return to_arrow(evaluation.value(expr), length, kind)

    def _read(self, attr: Attr) -> Column:
        key = attr.var, attr.at, attr.name
        if attr.var == NODE and NODE not in self.matches.variables:
            return self._read_node(attr)
        if key not in self.gathered:
            positions = one_event(self.matches, attr)
            column = from_arrow(self._values(attr.name, positions))
            unbound = np.asarray(positions.is_null()) if positions.null_count else None
            lacking = self._lacking(attr.var, attr.name, positions)
            self.gathered[key] = replace(column, absent=either(unbound, lacking))
        return self.gathered[key]

    def _read_node(self, attr: Attr) -> Column:
        """CED's `node`: the context of the event that completes the match, which ends last."""
        if attr.name == "time":
            return Column(types.INTEGER, np.asarray(self.matches.end))
        name = NODE_COLUMNS.get(attr.name, attr.name)
        return from_arrow(self._values(name, pa.array(self.matches.last_positions())))

    def _lacking(self, var: str, name: str, positions: pa.Array) -> Array | None:
        """The events whose type lacks the attribute."""
        lack = self.lacks.get((var, name))
        if lack is None:
            return None
        if lack.is_total:
            return np.ones(len(positions), bool)
        types, codes = types_of(self.rows.take([*owner(name, self.input), TYPE], positions), TYPE)
        return np.asarray(np.array([t in lack.types for t in types])[codes])

    def _values(self, name: str, positions: pa.Array) -> pa.Array:
        owners = owner(name, self.input)
        values = attribute(self.rows.take(owners, positions), name) if owners else None
        return pa.nulls(len(positions)) if values is None else values

    def _groups(self, var: str) -> tuple[pa.Array, Array, Any]:
        """The positions of the events of a variable, how many each match has, and the matches that do not bind it."""
        positions = self.matches.variables[var]
        unbound = np.asarray(positions.is_null()) if positions.null_count else None
        if not pa.types.is_list(positions.type):
            bound = np.ones(len(positions), np.int64) if unbound is None else (~unbound).astype(np.int64)
            return positions.drop_null(), bound, unbound
        return positions.flatten(), np.asarray(positions.value_lengths().fill_null(0), np.int64), unbound

    def add_to(self, totals: Mapping[Aggregate, Total]) -> None:
        """Adds these matches to aggregates over all matches."""
        for node, total in totals.items():
            if node.over is Over.MATCHES and node.name is None:
                total.count += len(self.matches.start)
            elif node.name is None:
                total.count += int(self._groups(node.var)[1].sum())
            elif node.fn in ("first", "last"):
                self._add_in_order(node, total)
            else:
                total.add(self._operands(node, self._groups(node.var)[0]))

    def _add_in_order(self, node: Aggregate, total: Total) -> None:
        """Of the matches that have a value, the first or last in the order in which matches are detected."""
        positions, lengths, _ = self._groups(node.var)
        values = selected(node.fn, self._operands(node, positions), lengths)
        known = np.flatnonzero(np.asarray(values.is_valid()))
        if not len(known):
            return
        outermost = min if node.fn == "first" else max
        for times in (self.matches.end, self.matches.start):
            known = known[times[known] == outermost(times[known])]
        orders = {int(match): self._order(int(match)) for match in known}
        match = outermost(orders, key=orders.__getitem__)
        total.add_in_order(values.slice(match, 1), orders[match])

    def _order(self, match: int) -> list[Any]:
        at = [column[match].as_py() for column in self.matches.variables.values()]
        groups = [group if isinstance(group, list) else [] if group is None else [group] for group in at]
        return [int(self.matches.end[match]), int(self.matches.start[match]), *match_order(groups)]

    def _aggregate(self, node: Aggregate) -> Column:
        positions, lengths, unbound = self._groups(node.var)
        if node.name is None:
            return Column(types.INTEGER, lengths, absent=unbound)
        read = [node.name] if node.of is None else [n.name for n in ex.walk(node.of.value) if isinstance(n, Attr)]
        lacking = reduce(either, [self._lacking(node.var, name, positions) for name in read])
        if lacking is not None:
            having = np.bincount(np.repeat(np.arange(len(lengths)), lengths)[~lacking], minlength=len(lengths))
            unbound = either(unbound, (lengths > 0) & (having == 0))
        if AGGREGATES[node.fn].result is ResultType.VALUE:
            return replace(from_arrow(self._selected(node)), absent=unbound)
        return replace(aggregated(node.fn, self._operands(node, positions), lengths), absent=unbound)

    def _operands(self, node: Aggregate, positions: pa.Array) -> pa.Array:
        """What an aggregate ranges over: an attribute of the events, or a value that is computed from each."""
        if node.of is None:
            return self._values(node.name or "", positions)

        def read(attr: Attr) -> Column:
            column = from_arrow(self._values(attr.name, positions))
            return replace(column, absent=self._lacking(attr.var, attr.name, positions))

        computed = Evaluation(len(positions), read, no_aggregate).value(node.of.value)
        return to_arrow(computed, len(positions), types.to_arrow(node.operand) or pa.null())

    def _selected(self, node: Aggregate) -> pa.Array:
        positions, lengths, _ = self._groups(node.var)
        return selected(node.fn, self._operands(node, positions), lengths)


def one_event(matches: MatchPositions, attr: Attr) -> pa.Array:
    """The position of the one event that an attribute is read from."""
    positions = matches.variables[attr.var]
    if not pa.types.is_list(positions.type):
        return positions
    offsets = np.asarray(positions.offsets)
    starts, ends = offsets[:-1], offsets[1:]
    at = starts if attr.at is At.FIRST else ends - 1
    empty = (starts == ends) | np.asarray(positions.is_null())
    return positions.values.take(pa.array(at, mask=empty))
