"""JSON Lines as a stream: lines become events by the same rules as in batch, against the types that were settled when
the stream first started. An event is shown as the line that it was."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from cepheid.engine.layout import Layout, time_type
from cepheid.engine.oracle import Presenter
from cepheid.engine.prepare import Prepared
from cepheid.errors import shown
from cepheid.events import UNTYPED, Clock, Event, Schema, Type, complete, type_of
from cepheid.io.formats import BrokenRow
from cepheid.io.formats.jsonl import json_rows
from cepheid.io.inputs import Columns
from cepheid.io.rejects import Malformed, shown_value
from cepheid.io.row_reader import Loaded, flatten
from cepheid.io.sinks import dumps
from cepheid.io.times import TimeKind, event_time
from cepheid.runtime.kernel import Array
from cepheid.semantics import Match
from cepheid.streaming.reader import FILE, NUMBER, REJECTS, SLIP, Read, Reader, paths_on
from cepheid.streaming.sinks import LINE, RAW

MIXED = pa.binary()
"""Values that no kernel can hold, because they are of several types or not plain, as JSON."""


def line_schema(loaded: Loaded, columns: Columns) -> pa.Schema:
    """A column for each attribute, in the type that all its values have."""
    found: dict[str, set[pa.DataType]] = {}
    for kind, attributes in _layout(loaded).items():
        for name, arrow_type in attributes.items():
            is_text = loaded.schema.types[kind].get(name) is Type.STRING
            plain = not pa.types.is_string(arrow_type) or is_text
            found.setdefault(name, set()).add(arrow_type if plain else MIXED)
    fields = [(name, _one_type(kinds)) for name, kinds in found.items() if name not in (columns.type, columns.time)]
    time = pa.timestamp("us", "UTC") if loaded.clock.is_timestamp else pa.int64()
    own = [(RAW, pa.string()), (FILE, pa.string()), (NUMBER, pa.int64())]
    return pa.schema([(columns.type, pa.string()), (columns.time, time), *fields, *own])


def _one_type(kinds: set[pa.DataType]) -> pa.DataType:
    if kinds == {pa.int64(), pa.float64()}:
        return pa.float64()
    return next(iter(kinds)) if len(kinds) == 1 else MIXED


def _layout(loaded: Loaded) -> Layout:
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
        next(iter(kinds)) if len(kinds) == 1 else "", pa.string()
    )


@dataclass(frozen=True, slots=True)
class LineReader(Reader):
    """Reads the files that slips name."""

    schema: pa.Schema
    columns: Columns
    types: Schema
    clock: Clock
    typed: bool
    """Whether events have types at all."""

    def selected(self) -> Sequence[str]:
        return [SLIP]

    # --- lines to events ----------------------------------------------------------------------------------------------

    def read(self, given: pa.RecordBatch, earliest: int, latest: int) -> Read:
        rows: list[dict[str, Any]] = []
        ticks: list[int] = []
        rejects: list[dict[str, Any]] = []
        for path in paths_on(given):
            for row in json_rows(Path(path), self.columns, None):
                if isinstance(row, BrokenRow):
                    rejects.append({"source": path, "line": row.line, "reason": row.reason, "raw": row.raw})
                    continue
                text = row.raw if row.raw is not None else json.dumps(row.values, ensure_ascii=False)
                try:
                    at, attributes, kind = self._event(row.values, earliest, latest)
                except Malformed as problem:
                    rejects.append({"source": path, "line": row.line, "reason": str(problem), "raw": text})
                    continue
                rows.append({**attributes, self.columns.type: kind, RAW: text, FILE: path, NUMBER: row.line})
                ticks.append(at)
        return Read(self._batch(rows, ticks), np.array(ticks, np.int64), pa.RecordBatch.from_pylist(rejects, REJECTS))

    def _event(self, values: dict[str, Any], earliest: int, latest: int) -> tuple[int, dict[str, Any], str]:
        kind, at = event_time(values, self.columns.time)
        wanted = TimeKind.TIMESTAMP if self.clock.is_timestamp else TimeKind.INTEGER
        if kind is not wanted:
            time = shown(str(values[self.columns.time]))
            raise Malformed(f"the time `{time}` is not like the others, which are {wanted.value}")
        if not earliest <= at <= latest:
            raise Malformed(f"the time `{shown(str(at))}` is not one that a stream can hold")
        type_name = self._type(values)
        attributes, records = flatten(values)
        self._require_fitting(type_name, attributes, records, values)
        return at, attributes, type_name

    def _type(self, values: Mapping[str, Any]) -> str:
        found = values.get(self.columns.type)
        if isinstance(found, str) and found:
            return found
        if not self.typed and found is None:
            return UNTYPED
        if found is None or found == "":
            raise Malformed(f"no event type: the column `{self.columns.type}` is missing or null")
        raise Malformed(f"the event type {shown_value(found)} is not a string")

    def _require_fitting(
        self, kind: str, attributes: Mapping[str, Any], records: Sequence[str], values: Mapping[str, Any]
    ) -> None:
        known = self.types.types.get(kind, {})
        given = [(name, type_of(value), value) for name, value in attributes.items() if value is not None]
        given += [(name, Type.RECORD, values.get(name)) for name in records]
        of = f" of `{shown(kind)}`" if kind else ""
        for name, found, value in given:
            if name == self.columns.time:
                continue
            if not known.get(name, Type.UNKNOWN).fits(found):
                wanted = f"is a {known[name].value}"
                raise Malformed(f"the attribute `{shown(name)}`{of} {wanted}, not {shown_value(value)}")
            if name in self.schema.names and not _holds(self.schema.field(name).type, value):
                raise Malformed(
                    f"the attribute `{shown(name)}`{of} was whole numbers when the stream began, not "
                    f"{shown_value(value)}"
                )

    def _batch(self, rows: Sequence[Mapping[str, Any]], ticks: Sequence[int]) -> pa.RecordBatch:
        arrays = []
        for field in self.schema:
            if field.name == self.columns.time:
                arrays.append(pa.array(ticks, pa.int64()).cast(field.type))
            else:
                arrays.append(pa.array([_value(row.get(field.name), field.type) for row in rows], field.type))
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    # --- the oracle ---------------------------------------------------------------------------------------------------

    def shown_from(self) -> Sequence[str]:
        return [self.columns.type, self.columns.time, RAW]

    def oracle_events(self, prepared: Prepared, rows: pa.RecordBatch, ticks: Array) -> list[Event]:
        return complete(list(self._given(rows, ticks)), prepared.schema)

    def _given(self, rows: pa.RecordBatch, ticks: Array) -> Iterator[Event]:
        kinds = rows.column(self.columns.type).to_pylist()
        lines = zip(rows.column(RAW).to_pylist(), kinds, ticks.tolist(), strict=True)
        for position, (text, kind, at) in enumerate(lines):
            values = json.loads(text)
            attributes = {**flatten(values)[0], self.columns.time: at}
            yield Event(kind, at, at, position, attributes, values, (at, at))

    def shown(self, prepared: Prepared, matches: Sequence[Match]) -> pa.RecordBatch:
        show = Presenter.of(prepared.query, self.columns.time, prepared.clock)
        lines = [dumps(show.object(match)) for match in matches]
        return pa.RecordBatch.from_arrays([pa.array(lines, pa.string())], names=[LINE])


def _holds(kind: pa.DataType, value: Any) -> bool:
    if not pa.types.is_integer(kind):
        return True
    return isinstance(value, int) and -(2**63) <= value < 2**63


def _value(value: Any, kind: pa.DataType) -> Any:
    """The value in the form that the column's type takes."""
    if value is None:
        return None
    if kind == MIXED:
        return json.dumps(value, ensure_ascii=False).encode()
    if pa.types.is_floating(kind):
        return float(value)
    if pa.types.is_list(kind):
        return value if isinstance(value, list) and all(isinstance(item, int | float) for item in value) else None
    return value
