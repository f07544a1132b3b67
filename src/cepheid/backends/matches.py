"""Matches as people and other programs see them: JSON objects, CSV rows, Parquet columns; and the file of rejects."""

from __future__ import annotations

import csv
import io
import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

from cepheid.backends.files import Loaded, Reject, format_of, timestamp_text
from cepheid.errors import InputProblem, PatternProblem, shown
from cepheid.events import Clock, Event, Schema, Type
from cepheid.expr import AGGREGATES, Aggregate, Attr, Expr, Whole, infer
from cepheid.pattern import Query, Role, roles
from cepheid.semantics import Match

START, END = "match_start", "match_end"
_INTERVAL = ("start_time", "end_time")
"""What CED's base schema (§2.1) calls the times of an event that a query made."""


# --- one match as one object ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Presenter:
    """Says how times are shown: in the form that the time column itself has."""

    time_column: str
    clock: Clock
    times: frozenset[str] = frozenset()
    """The output columns that hold a time."""

    def object(self, match: Match) -> dict[str, Any]:
        """The match as a JSON object: its variables, or the columns that the query returns; and its interval."""
        shown_times = self._times_as_given(match)
        shown: dict[str, Any] = {}
        for name, value in (match.bindings if match.columns is None else match.columns).items():
            shown[name] = self.time(value, shown_times) if name in self.times else self.value(value, shown_times)
        return {**shown, START: self.time(match.start, shown_times), END: self.time(match.end, shown_times)}

    def value(self, value: Any, shown_times: Mapping[int, Any]) -> Any:
        match value:
            case Event() if _is_as_given(value):
                return dict(value.row)
            case Event():
                times = (self.time_column, *_INTERVAL)
                return {
                    name: self.time(item, shown_times) if name in times else self.value(item, shown_times)
                    for name, item in value.attributes.items()
                }
            case float():
                return value if math.isfinite(value) else None
            case Mapping():
                return {name: self.value(item, shown_times) for name, item in value.items()}
            case list() | tuple():
                return [self.value(item, shown_times) for item in value]
            case _:
                return value

    def time(self, ticks: Any, shown_times: Mapping[int, Any]) -> Any:
        if not self.clock.is_timestamp or not isinstance(ticks, int | float) or isinstance(ticks, bool):
            return self.value(ticks, shown_times)
        return shown_times.get(ticks) or timestamp_text(ticks)  # type: ignore[arg-type]

    def _times_as_given(self, match: Match) -> dict[int, Any]:
        """The texts that the input gave for the times of the match's events."""
        if not self.clock.is_timestamp:
            return {}
        given: dict[int, Any] = {}
        for binding in match.bindings.values():
            for event in () if binding is None else binding if isinstance(binding, tuple) else (binding,):
                for part in event.primitives():
                    if part.row.get(self.time_column) is not None:
                        given.setdefault(part.start, part.row[self.time_column])
        return given


def _is_as_given(event: Event) -> bool:
    """Whether the event came from the input; one that a query made has no row but its attributes."""
    return bool(event.row) and not event.parts and event.row is not event.attributes


def presenter(query: Query, loaded: Loaded) -> Presenter:
    times = frozenset(column.name for column in query.output or () if _reads_time(column.expr, loaded.time_column))
    return Presenter(loaded.time_column, loaded.clock, times)


def _reads_time(expr: Expr, time_column: str) -> bool:
    if isinstance(expr, Aggregate):
        return expr.name == time_column and expr.fn in ("min", "max", "first", "last")
    return isinstance(expr, Attr) and expr.name == time_column


# --- the Arrow layout of matches --------------------------------------------------------------------------------------

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
    """The columns of the query's matches, known before it runs: a struct for each variable (a list of structs for one
    that binds many events), or the columns that it returns; then the interval. What has no Arrow type of its own is
    JSON text."""
    columns = _Columns(query, schema, layout or {})
    fields = columns.returned() if query.output is not None else columns.bound()
    for name in (START, END):
        if name in fields:
            raise PatternProblem(
                f"`{name}` is the name of a column that every match has", hint="choose another name in the query"
            )
    return pa.schema([*fields.items(), (START, time_type(clock)), (END, time_type(clock))])


class _Columns:
    def __init__(self, query: Query, schema: Schema, layout: Layout) -> None:
        self.query, self.schema, self.layout = query, schema, layout
        self.roles = roles(query.pattern)
        self.composite = {item.name for item in query.inputs if isinstance(item, Query)}

    def bound(self) -> dict[str, pa.DataType]:
        return {var: self._variable(role) for var, role in self.roles.items() if not role.negated}

    def returned(self) -> dict[str, pa.DataType]:
        return {column.name: self._expression(column.expr) for column in self.query.output or ()}

    def _variable(self, role: Role) -> pa.DataType:
        types = self._types(role)
        attributes = {} if self.composite.intersection(types) else self.schema.attributes(types)
        fields = [(name, self._attribute(types, name, kind)) for name, kind in attributes.items()]
        # Parquet has no struct without fields, so events of which nothing is known are JSON text.
        one = pa.struct(fields) if fields else JSON_TEXT
        return pa.list_(one) if role.binds_many else one

    def _types(self, role: Role) -> tuple[str, ...]:
        return role.event_class.types or tuple(self.schema.types)

    def _attribute(self, types: Iterable[str], name: str, kind: Type) -> pa.DataType:
        known = {self.layout[t][name] for t in types if name in self.layout.get(t, {})}
        if known == {pa.int64(), pa.float64()}:
            return pa.float64()
        return known.pop() if len(known) == 1 else JSON_TEXT if known else _ARROW.get(kind, JSON_TEXT)

    def _expression(self, expr: Expr) -> pa.DataType:
        if isinstance(expr, Whole):
            role = self.roles.get(expr.var)
            return JSON_TEXT if role is None else self._variable(role)
        if isinstance(expr, Aggregate) and expr.fn == "count":
            return pa.int64()
        if isinstance(expr, Attr) or (isinstance(expr, Aggregate) and expr.fn in AGGREGATES[2:]):
            role = self.roles.get(expr.var)
            types = () if role is None else self._types(role)
            if expr.name is not None and not self.composite.intersection(types):
                return self._attribute(types, expr.name, self.schema.attributes(types).get(expr.name, Type.UNKNOWN))
        return _ARROW.get(infer(expr, self._attribute_type), JSON_TEXT)

    def _attribute_type(self, attr: Attr) -> Type:
        role = self.roles.get(attr.var)
        return Type.UNKNOWN if role is None else self.schema.attributes(self._types(role)).get(attr.name, Type.UNKNOWN)


def match_table(query: Query, matches: Sequence[Match], loaded: Loaded) -> pa.Table:
    schema = match_schema(query, loaded.schema, loaded.clock, layout_of(loaded))
    show = presenter(query, loaded)
    columns: list[pa.Array] = []
    for field in schema:
        if field.name in (START, END):
            values: list[Any] = [match.start if field.name == START else match.end for match in matches]
        else:
            values = [(match.bindings if match.columns is None else match.columns).get(field.name) for match in matches]
        columns.append(pa.array([_arrow_value(value, field.type, show) for value in values], field.type))
    return pa.Table.from_arrays(columns, schema=schema)


def _arrow_value(value: Any, kind: pa.DataType, show: Presenter) -> Any:
    """The value in the form that the Arrow type takes; null where it does not fit."""
    if value is None:
        return None
    if pa.types.is_string(kind):
        return value if isinstance(value, str) else dumps(show.value(value, {}))
    if pa.types.is_list(kind):
        return (
            [_arrow_value(item, kind.value_type, show) for item in value] if isinstance(value, list | tuple) else None
        )
    if pa.types.is_struct(kind):
        return (
            {field.name: _arrow_value(value.attributes.get(field.name), field.type, show) for field in kind}
            if isinstance(value, Event)
            else None
        )
    if pa.types.is_boolean(kind):
        return value if isinstance(value, bool) else None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value) if pa.types.is_floating(kind) else int(value)


# --- files ------------------------------------------------------------------------------------------------------------


def dumps(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def require_writable_name(path: str) -> None:
    """Found out before the query runs, not after."""
    format_of(Path(path))


def write_matches(path: str, query: Query, matches: Sequence[Match], loaded: Loaded) -> None:
    """One row per match, in the format that the name says. The file is there whole or not at all."""
    format = format_of(Path(path))
    with replacing(Path(path)) as file:
        if format == "parquet":
            pq.write_table(match_table(query, matches, loaded), file)
        elif format == "csv":
            file.write(_csv(query, matches, loaded).encode())
        else:
            write_json_lines(file, query, matches, loaded)


def write_json_lines(file: IO[bytes], query: Query, matches: Iterable[Match], loaded: Loaded) -> None:
    show = presenter(query, loaded)
    for match in matches:
        file.write(dumps(show.object(match)).encode() + b"\n")


def _csv(query: Query, matches: Iterable[Match], loaded: Loaded) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    header = match_schema(query, loaded.schema, loaded.clock).names
    writer.writerow(header)
    show = presenter(query, loaded)
    for match in matches:
        row = show.object(match)
        writer.writerow([_cell(row.get(name)) for name in header])
    return text.getvalue()


def _cell(value: Any) -> Any:
    if value is None or isinstance(value, str):
        return value
    return dumps(value)


def write_rejects(path: str, rejects: Iterable[Reject]) -> None:
    with replacing(Path(path)) as file:
        for reject in rejects:
            # Half a character (a lone surrogate) cannot be written as UTF-8; as an escape it is JSON.
            file.write(dumps(asdict(reject)).encode(errors="backslashreplace") + b"\n")


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """A file to write that takes the path's place when all is written; on an error the old one stays."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with temporary.open("wb") as file:
                yield file
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as problem:
        raise InputProblem(f"cannot write `{shown(str(path), 200)}`: {problem.strerror or problem}") from problem
