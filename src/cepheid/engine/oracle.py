"""Runs the oracle on record batches. No other module imports `semantics`.

Events and matches are Python objects only here. Events are decoded from ordered record batches with TYPE and TIME (and
ROW, if the source was read row by row). Matches are returned as positions or as record batches.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, time, timedelta
from decimal import Decimal
from operator import attrgetter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cepheid.binding import with_declared
from cepheid.checks import NODE
from cepheid.codegen.columns import types_of
from cepheid.codegen.typed_columns import from_arrow as column_from_arrow
from cepheid.codegen.typed_columns import to_python
from cepheid.engine.composition import projected
from cepheid.engine.layout import (
    DETECTED,
    END,
    INTERVAL,
    START,
    Detection,
    Layout,
    column_names,
    match_schema,
    time_type,
)
from cepheid.engine.match_ids import LANES, MATCH_ID, LastEvents, hexadecimal, labelled_words, match_words
from cepheid.engine.positions import MatchPositions, match_order
from cepheid.engine.prepare import Prepared, position_type
from cepheid.errors import NotAvailable, shown
from cepheid.evaluation import Binding, Env, output_value
from cepheid.events import Clock, Event, timestamp_text
from cepheid.expr import MEMBER, Aggregate, Attr, Expr, walk_reads
from cepheid.graph import is_composed
from cepheid.io.inputs import Columns
from cepheid.io.json_text import dumps
from cepheid.io.rows import ROW, TIME, TYPE, Rows, events_of, json_number, plain
from cepheid.io.rows import START as START_TICKS
from cepheid.io.sinks import TEXT
from cepheid.io.source import plain_layout
from cepheid.lang import declaration_text
from cepheid.pattern import DerivedStream, Query, SourceStream, types_named
from cepheid.semantics import Match as Match
from cepheid.semantics import evaluate, node_of, summary
from cepheid.semantics.common import events_of as events_in
from cepheid.types import FLOAT, TIMESTAMP, UNKNOWN, Family, Type, from_arrow
from cepheid.values import fitted, is_number, to_float, unscaled

_DAY = 86_400_000_000

# --- queries that need it ---------------------------------------------------------------------------------------------


def makes_output(query: Query) -> bool:
    """Whether the output is not made of input rows: it is a summary of all matches, or has derived events."""
    return query.summarizes or is_composed(query)


# --- record batches to events -----------------------------------------------------------------------------------------


def decode(prepared: Prepared, batch: pa.RecordBatch, positions: Sequence[int]) -> list[Event]:
    """The events of a batch with TYPE and TIME; each has the attributes of its type."""
    if prepared.input.derived:
        return _decode_with_derived(prepared, batch, positions)
    return _decode_input(prepared, batch, positions)


def derived_columns(prepared: Prepared) -> list[str]:
    """The columns of derived events that the output shows or is computed from."""
    derived = prepared.input.derived
    if not derived:
        return []
    types = [kind for role in prepared.variables.values() for kind in role.event_class.types]
    shown = [of.column for kind in types for of in derived.get(kind, ())]
    return list(dict.fromkeys([*shown, *_members_read(prepared)]))


def _members_read(prepared: Prepared) -> list[str]:
    """What RETURN reads of the closures of derived events. Events do not show it."""
    nodes = walk_reads(*(column.expr for column in prepared.query.output or ()))
    names = [node.name for node in nodes if isinstance(node, Attr | Aggregate) and node.name is not None]
    return [name for name in dict.fromkeys(names) if MEMBER in name]


def _decode_with_derived(prepared: Prepared, batch: pa.RecordBatch, positions: Sequence[int]) -> list[Event]:
    types, codes = types_of(batch, TYPE)
    is_derived = np.array([name in prepared.input.derived for name in types])[codes]
    own, other = np.flatnonzero(~is_derived), np.flatnonzero(is_derived)
    events: dict[int, Event] = {}
    for at, decoder in ((own, _decode_input), (other, _decode_derived)):
        chosen = [positions[index] for index in at.tolist()]
        events.update(zip(chosen, decoder(prepared, batch.take(pa.array(at)), chosen), strict=True))
    return [events[position] for position in positions]


def _decode_derived(prepared: Prepared, batch: pa.RecordBatch, positions: Sequence[int]) -> list[Event]:
    """The events that other queries derived, from the columns of their attributes."""
    types, codes = types_of(batch, TYPE)
    columns = {
        name: to_python(column_from_arrow(batch.column(name)), batch.num_rows) for name in derived_columns(prepared)
    }
    known, members = prepared.schema.types, _members_read(prepared)
    starts, ends = batch.column(START_TICKS).to_pylist(), batch.column(TIME).to_pylist()
    events = []
    for row, (code, start, end, position) in enumerate(zip(codes.tolist(), starts, ends, positions, strict=True)):
        shown = {of.name: columns[of.column][row] for of in prepared.input.derived[types[code]]}
        read = {of.column: columns[of.column][row] for of in prepared.input.derived[types[code]]}
        read |= {name: columns[name][row] for name in members if name in known[types[code]]}
        events.append(Event(types[code], start, end, position, {**read, **shown}, shown, (start, end)))
    return events


def _decode_input(prepared: Prepared, batch: pa.RecordBatch, positions: Sequence[int]) -> list[Event]:
    source = prepared.input
    names = [ROW] if ROW in batch.schema.names else [n for n in source.schema.names if n in batch.schema.names]
    types, codes = types_of(batch, TYPE)
    kinds = [types[code] for code in codes.tolist()]
    ticks = batch.column(TIME).to_pylist()
    known = prepared.schema.types
    starts = batch.column(START_TICKS).to_pylist() if START_TICKS in batch.schema.names else None
    events = list(events_of(batch.select(names), kinds, ticks, positions, source.columns, known, starts))
    if ROW in names:
        return [_as_settled(event, known) for event in events]
    return [_of_its_type(event, prepared) for event in events]


def _as_settled(event: Event, known: Mapping[str, Mapping[str, Type]]) -> Event:
    """The event without attributes that its type lacks, or got only after the schema of a stream was settled. Rows
    have numbers as written: an integer is converted if the attribute is a float."""
    own = known.get(event.type)
    if own is None:
        return event
    is_whole = [type(value) is int and own.get(name) == FLOAT for name, value in event.attributes.items()]
    if event.attributes.keys() <= own.keys() and not any(is_whole):
        return event
    values = zip(event.attributes.items(), is_whole, strict=True)
    return replace(event, attributes={n: float(v) if whole else v for (n, v), whole in values if n in own})


def _of_its_type(event: Event, prepared: Prepared) -> Event:
    """The event without the columns that its type lacks."""
    source, known = prepared.input, prepared.schema.types.get(event.type, event.attributes)
    has = (source.attributes or {}).get(event.type, event.row)
    row = {n: v for n, v in event.row.items() if n in has and not (source.omits_nulls and v is None)}
    if len(row) == len(event.row) and len(known) == len(event.attributes):
        return event
    return replace(event, attributes={n: v for n, v in event.attributes.items() if n in known}, row=row)


def matches(prepared: Prepared, batches: Iterable[pa.RecordBatch], first: int = 0) -> list[Match]:
    """The matches of the oracle in all events, whose positions start at `first`."""
    events: list[Event] = []
    last, ids = LastEvents(), prepared.match_ids if is_composed(prepared.query) else None
    for batch in batches:
        start = first + len(events)
        decoded = decode(prepared, batch, range(start, start + batch.num_rows))
        if ids is not None:
            words, last = ids.events.words_of_batch(batch, last)
            decoded = [replace(event, identity=own) for event, own in zip(decoded, words, strict=True)]
        events.extend(decoded)
    return evaluate(prepared.query, events, prepared.clock)


def matches_at(prepared: Prepared, parts: Sequence[MatchPositions], rows: Rows) -> list[Match]:
    """The matches of a kernel, with their events decoded from `rows`, which has ROW."""
    positions_read = _all_positions(parts)
    at = np.asarray(positions_read)
    names = [ROW, TYPE, *derived_columns(prepared)]
    batch = rows.take(names, positions_read).append_column(TIME, pa.array(rows.ticks(at)))
    if (starts := rows.starts(at)) is not None:
        batch = batch.append_column(START_TICKS, pa.array(starts))
    positions = positions_read.to_pylist()
    return complete(prepared, parts, dict(zip(positions, decode(prepared, batch, positions), strict=True)))


def complete(prepared: Prepared, parts: Sequence[MatchPositions], events: Mapping[int, Event]) -> list[Match]:
    """The matches of a kernel, with the events at their positions; the first ones if the query has LIMIT."""
    output = None if prepared.query.summarizes else prepared.query.output
    matches = [
        _match(bound, (start, end), output, prepared)
        for part in parts
        for bound, start, end in zip(_bindings(part, events), part.start.tolist(), part.end.tolist(), strict=True)
    ]
    if prepared.query.limit is not None:
        matches.sort(key=_detection_order)
    matches = [summary(prepared.query, matches)] if prepared.query.summarizes else matches
    return matches[: prepared.query.limit]


_POSITION = attrgetter("position")


def _match(
    bound: dict[str, Binding], interval: tuple[int, int], output: Sequence[Any] | None, prepared: Prepared
) -> Match:
    env = _env(bound, prepared)
    return Match(bound, *interval, None if output is None else {c.name: output_value(c.expr, env) for c in output})


def _detection_order(match: Match) -> tuple[Any, ...]:
    bound = match.bindings.values()
    groups = [[] if b is None else list(map(_POSITION, b if isinstance(b, tuple) else (b,))) for b in bound]
    return match.end, match.start, *match_order(groups)


def _env(bound: Mapping[str, Binding], prepared: Prepared) -> Env:
    """The events of a match, and CED's `node`: the context of the event that completes it."""
    if prepared.query.dialect.has_nodes and NODE not in bound:
        last = max(events_in(bound), key=lambda event: (event.end, event.position))
        bound = {**bound, NODE: node_of(last)}
    return Env(bound, {}, prepared.clock)


def _all_positions(parts: Sequence[MatchPositions]) -> pa.Array:
    """The positions of all events of the matches, each once."""
    columns = [column for part in parts for column in part.variables.values()]
    flat = [column.flatten() if pa.types.is_list(column.type) else column for column in columns]
    return pc.drop_null(pa.concat_arrays(flat)).unique() if flat else pa.array([], pa.int64())


def _bindings(matches: MatchPositions, events: Mapping[int, Event]) -> Iterator[dict[str, Binding]]:
    columns = {var: column.to_pylist() for var, column in matches.variables.items()}
    for number in range(len(matches.start)):
        bound: dict[str, Binding] = {}
        for var, positions in columns.items():
            at = positions[number]
            bound[var] = tuple(events[p] for p in at) if isinstance(at, list) else None if at is None else events[at]
        yield bound


# --- matches to positions and record batches --------------------------------------------------------------------------


def match_positions(prepared: Prepared, matches: Sequence[Match]) -> MatchPositions:
    """The positions of matches whose events are rows of the input."""
    columns: dict[str, pa.Array] = {}
    for var in prepared.variables:
        bindings = [match.bindings.get(var) for match in matches]
        columns[var] = pa.array([_position(binding) for binding in bindings], position_type(prepared, var))
    start, end = (np.array([getattr(m, name) for m in matches], np.int64) for name in ("start", "end"))
    return MatchPositions(columns, start, end)


def _position(binding: Binding) -> int | list[int] | None:
    if isinstance(binding, tuple):
        return [event.position for event in binding]
    return None if binding is None else binding.position


NO_TEXTS: Mapping[int, Any] = {}


def time_texts(prepared: Prepared, batches: Iterable[pa.RecordBatch]) -> dict[int, Any]:
    """The times of all events as they are written in the rows of the input."""
    time = prepared.input.columns.time
    return {
        ticks: row[time]
        for batch in batches
        for ticks, text in zip(batch.column(TIME).to_pylist(), batch.column(ROW).to_pylist(), strict=True)
        if (row := json.loads(text)).get(time) is not None
    }


def match_batch(
    prepared: Prepared,
    matches: Sequence[Match],
    as_text: bool = False,
    texts: Mapping[int, Any] = NO_TEXTS,
    rows: Rows | None = None,
) -> pa.RecordBatch:
    """One row per match, in a schema that does not depend on the matches. With `as_text` only the column TEXT has
    values: the match as JSON text, with the events unchanged. `texts` are times as they are written in the input,
    `rows` has the columns that identify the events."""
    query, clock = prepared.written, prepared.clock
    show = Presenter.of(prepared, texts)
    columns: list[pa.Array] = []
    detection, ids = prepared.detection, _match_ids(prepared, matches, rows)
    if as_text:
        schema = text_schema(prepared)
        further = [{}] * len(matches) if ids is None else [{MATCH_ID: text} for text in ids.to_pylist()]
        objects = [{**show.object(match), **more} for match, more in zip(matches, further, strict=True)]
        lines = pa.array([dumps(shown) for shown in objects], pa.string())
        return pa.RecordBatch.from_arrays([*([pa.nulls(len(matches))] * (len(schema) - 1)), lines], schema=schema)
    schema = match_schema(query, prepared.schema, clock, layout_of(prepared))
    if detection is not None:
        schema = schema.append(pa.field(DETECTED, time_type(clock)))
    for column in schema:
        if column.name == DETECTED and detection is not None:
            values: list[Any] = [detection.ticks(match.start, match.end) for match in matches]
        elif column.name in (START, END):
            values = [match.start if column.name == START else match.end for match in matches]
        else:
            values = [
                (match.bindings if match.columns is None else match.columns).get(column.name) for match in matches
            ]
        columns.append(_array(values, column.type, show))
    made = pa.RecordBatch.from_arrays(columns, schema=schema)
    return made if ids is None else made.append_column(MATCH_ID, ids)


def text_schema(prepared: Prepared) -> pa.Schema:
    """The schema of `match_batch` as text."""
    names = [*column_names(prepared.written), *([] if prepared.detection is None else [DETECTED])]
    names += [] if prepared.match_ids is None else [MATCH_ID]
    return pa.schema([*((name, pa.null()) for name in names), (TEXT, pa.string())])


def _match_ids(prepared: Prepared, matches: Sequence[Match], rows: Rows | None) -> pa.Array | None:
    if prepared.match_ids is None:
        return None
    if not matches:
        return pa.array([], pa.string())
    if is_composed(prepared.query):
        return hexadecimal(_words_of_matches(prepared.match_ids.seed, prepared.query, [m.bindings for m in matches]))
    assert rows is not None
    return prepared.match_ids.of(match_positions(prepared, matches).variables, rows, len(matches))


def _words_of_matches(seed: str, query: Query, matches: Sequence[Mapping[str, Any]]) -> Any:
    """The hashes of matches whose events may be derived."""
    variables = [var for var, role in query.roles.items() if not role.negated]
    groups: dict[str, tuple[Any, Any]] = {}
    for var in variables:
        events = [events_in({var: match.get(var)}) for match in matches]
        words = [_words_of_event(event) for own in events for event in own]
        groups[var] = np.array([len(own) for own in events]), np.array(words, np.uint64).reshape(-1, LANES)
    return match_words(seed, groups, len(matches))


def _words_of_event(event: Event) -> Any:
    if event.origin is None:
        return event.identity
    item, bound = event.origin
    query = projected(item) if isinstance(item, DerivedStream) else item
    return labelled_words(_words_of_matches(declaration_text(item), query, [bound]), event.type)[0]


def made_batch(prepared: Prepared, matches: Sequence[Match], rows: Rows | None = None) -> pa.RecordBatch:
    """A batch of matches that are not made of input rows: their columns, or their JSON text if the source has ROW."""
    as_text = ROW in prepared.input.schema.names
    batch = match_batch(prepared, matches, as_text, rows=rows)
    return batch.select([TEXT]) if as_text else batch


def layout_of(prepared: Prepared) -> Layout:
    """The Arrow types of the attributes of each event type in the oracle's output."""
    source = prepared.input
    if ROW in source.schema.names:
        return {
            name: {n: _shown_type(kind) for n, kind in attributes.items() if not pa.types.is_null(kind)}
            for name, attributes in (source.attributes or {}).items()
        }
    return dict.fromkeys((*prepared.schema.types, *types_named(prepared.query)), plain_layout(source.schema))


def _shown_type(kind: pa.DataType) -> pa.DataType:
    is_text = pa.types.is_list(kind) and kind != pa.list_(pa.float64())
    return pa.string() if is_text or pa.types.is_binary(kind) else kind


def computed_columns(
    prepared: Prepared,
    columns: Mapping[str, tuple[Expr, pa.DataType]],
    matches: MatchPositions,
    rows: Rows,
    names: list[str],
) -> dict[str, pa.Array]:
    """Output columns that are neither an event nor an attribute, evaluated per match. The expressions read the input
    columns `names`."""
    positions_read = _all_positions([matches])
    at, positions = np.asarray(positions_read), positions_read.to_pylist()
    ticks, starts = rows.ticks(at).tolist(), rows.starts(at)
    columns_of_input = prepared.input.columns
    batch = rows.take(names, positions_read)
    types, codes = types_of(batch, TYPE)
    kinds = [types[code] for code in codes.tolist()]
    start_ticks = None if starts is None else starts.tolist()
    decoded = events_of(batch, kinds, ticks, positions, columns_of_input, starts=start_ticks)
    known = prepared.schema.types if TYPE in batch.schema.names else {}
    events = dict(zip(positions, (_as_settled(event, known) for event in decoded), strict=True))
    show = Presenter(columns_of_input, prepared.clock)
    values: dict[str, list[Any]] = {name: [] for name in columns}
    for bound in _bindings(matches, events):
        env = _env(bound, prepared)
        for name, (expr, _) in columns.items():
            values[name].append(output_value(expr, env))
    return {name: _array(values[name], kind, show) for name, (_, kind) in columns.items()}


def _array(values: Sequence[Any], kind: pa.DataType, show: Presenter) -> pa.Array:
    """Values of the oracle as an Arrow array. Its timestamps and durations count microseconds."""
    if not pa.types.is_timestamp(kind) and not pa.types.is_duration(kind):
        return pa.array([arrow_value(value, kind, show) for value in values], kind)
    counts = pa.array([arrow_value(value, pa.int64(), show) for value in values], pa.int64())
    is_timestamp = pa.types.is_timestamp(kind)
    return counts.cast(pa.timestamp("us", kind.tz) if is_timestamp else pa.duration("us")).cast(kind, safe=False)


def arrow_value(value: Any, kind: pa.DataType, show: Presenter) -> Any:
    """The value converted for the Arrow type; null if it does not fit."""
    if value is None:
        return None
    if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        return arrow_value(value, kind.value_type, show)
    match from_arrow(kind).family:
        case Family.STRING:
            return value if isinstance(value, str) else dumps(show.value(value, {}))
        case Family.LIST:
            items = value if isinstance(value, list | tuple) else None
            return None if items is None else [arrow_value(item, kind.value_type, show) for item in items]
        case Family.RECORD:
            if not isinstance(value, Event):
                return None
            return {field.name: arrow_value(value.attributes.get(field.name), field.type, show) for field in kind}
        case Family.BOOLEAN:
            return value if isinstance(value, bool) else None
        case Family.BINARY:
            return value if isinstance(value, bytes) else None
    if not is_number(value):  # a time of day, and times in lists, are not computed with
        return value if pa.types.is_temporal(kind) and isinstance(value, date | time | timedelta) else None
    if pa.types.is_floating(kind):
        return to_float(value)
    if pa.types.is_decimal(kind):
        return _decimal(value, kind) if not isinstance(value, float) else None
    if not math.isfinite(value) or not (0 <= value < 2**64 if pa.types.is_uint64(kind) else -(2**63) <= value < 2**63):
        return None
    if pa.types.is_date(kind):  # 64-bit dates count milliseconds
        return int(value) // _DAY * (86_400_000 if pa.types.is_date64(kind) else 1)
    return int(value)


def _decimal(value: int | Decimal, kind: pa.DataType) -> Decimal:
    """A total with more than 38 digits is an error, because a null would hide it."""
    if abs(unscaled(value, kind.scale)) >= 10**kind.precision:
        raise NotAvailable(
            f"{shown(str(value))} has more than {kind.precision} digits",
            hint="write JSON Lines with `cepheid run`, or use a shorter window",
        )
    return Decimal(fitted(value, from_arrow(kind)))


# --- matches as JSON --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Presenter:
    """Converts matches to JSON objects, with times in the form of the time column."""

    input: Columns
    clock: Clock
    types: Mapping[str, Type] = field(default_factory=dict)
    """The types of the RETURN columns."""
    derived: Collection[str] = ()
    """The event types that other queries derive."""
    texts: Mapping[int, Any] = field(default_factory=dict)
    """Times as they are written in the input, beside those in the rows of a match."""
    detection: Detection | None = None
    kinds: Mapping[str, Mapping[str, Type]] = field(default_factory=dict)
    """The types of the attributes of each event type."""

    @classmethod
    def of(cls, prepared: Prepared, texts: Mapping[int, Any]) -> Presenter:
        query, input, clock = prepared.query, prepared.input, prepared.clock
        written = prepared.written
        kinds = with_declared(written, prepared.schema).types
        derived = {item.name or "" for item in written.inputs if not isinstance(item, SourceStream)}
        roles = query.roles
        types = {}
        for column in query.output or ():
            types[column.name] = column.expr.type
            match column.expr:
                case Attr(var=var, name=name) if name in INTERVAL and clock.is_timestamp and var in roles:
                    if derived.issuperset(roles[var].event_class.types):
                        types[column.name] = TIMESTAMP
        return cls(input.columns, clock, types, input.derived, texts, prepared.detection, kinds)

    def object(self, match: Match) -> dict[str, Any]:
        """The match as a JSON object: its variables or RETURN columns, and its interval."""
        texts = self._times_of(match)
        result: dict[str, Any] = {}
        for name, value in (match.bindings if match.columns is None else match.columns).items():
            result[name] = self._returned(value, self.types.get(name, UNKNOWN), texts)
        times = {START: match.start, END: match.end}
        if self.detection is not None:
            times[DETECTED] = self.detection.ticks(match.start, match.end)
        return {**result, **{name: self.time(ticks, texts) for name, ticks in times.items()}}

    def _returned(self, value: Any, type_: Type, texts: Mapping[int, Any]) -> Any:
        """A value of the oracle, in which times are microseconds, as its type is shown in JSON."""
        if isinstance(value, bool) or not isinstance(value, int):
            return self.value(value, texts)
        match type_.family:
            case Family.TIMESTAMP:
                return self.time(value, texts)
            case Family.DATE:
                return timestamp_text(value).partition("T")[0]
            case Family.DURATION:
                return value / 1_000_000
            case _:
                return value

    def value(self, value: Any, texts: Mapping[int, Any]) -> Any:
        match value:
            case Event(parts=()) if value.row and value.row is not value.attributes and value.type not in self.derived:
                return dict(value.row)
            case Event():  # derived by a query: it has attributes but no row
                times, kinds = (*self.input.times, *INTERVAL), self.kinds.get(value.type, {})
                return {
                    name: self.time(item, texts)
                    if name in times
                    else self._returned(item, kinds.get(name, UNKNOWN), texts)
                    for name, item in (value.row or value.attributes).items()
                }
            case Decimal():
                return json_number(value)
            case bytes():
                return value.decode(errors="backslashreplace")
            case Mapping():
                return {name: self.value(item, texts) for name, item in value.items()}
            case list() | tuple():
                return [self.value(item, texts) for item in value]
            case _:
                return plain(value)

    def time(self, ticks: Any, texts: Mapping[int, Any]) -> Any:
        if not self.clock.is_timestamp or not isinstance(ticks, int | float) or isinstance(ticks, bool):
            return ticks if isinstance(ticks, int) else self.value(ticks, texts)
        return texts.get(ticks) or self.texts.get(ticks) or timestamp_text(ticks)  # type: ignore[arg-type]

    def _times_of(self, match: Match) -> dict[int, Any]:
        """The times of the match's events as they are written in the input."""
        if not self.clock.is_timestamp:
            return {}
        texts: dict[int, Any] = {}
        for event in events_in(match.bindings):
            for part in () if event.type in self.derived else event.primitives():
                for ticks, name in zip((part.end, part.start), self.input.times, strict=False):
                    if part.row.get(name) is not None:
                        texts.setdefault(ticks, part.row[name])
        return texts
