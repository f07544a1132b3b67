"""Rows of text files in a stream: they become events by the rules of a batch run, with the types of the stream."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa

from cepheid.events import MICROSECONDS, UNTYPED
from cepheid.io.formats import BrokenRow, RawRow
from cepheid.io.nested import value_of
from cepheid.io.rejects import Malformed, after_end
from cepheid.io.rows import ROW, as_json
from cepheid.io.source import JSON
from cepheid.io.stream_rows import FILE, NUMBER, Read, StreamLayout, file_name, reject, reject_rows
from cepheid.io.stream_values import Misfit, converted
from cepheid.io.times import LAST_TIME, TimeKind, event_time, out_of_range
from cepheid.io.values import event_type, flatten_read


def read_rows(files: Iterable[tuple[str, Iterable[RawRow | BrokenRow]]], layout: StreamLayout) -> Read:
    rows: list[dict[str, Any]] = []
    ticks: list[int] = []
    rejects: list[dict[str, Any]] = []
    for path, read in files:
        source = file_name(path)
        for row in read:
            if isinstance(row, BrokenRow):
                rejects.append(reject(source, row.line, row.reason, row.raw))
                continue
            text = row.raw if row.raw is not None else as_json(row.values)
            try:
                at, event = _event(row.values, layout)
            except Malformed as problem:
                rejects.append(reject(source, row.line, str(problem), text))
                continue
            rows.append({**event, ROW: text, FILE: source, NUMBER: row.line})
            ticks.append(at)
    arrays = []
    for field in layout.schema:
        if field.name == layout.columns.time:
            arrays.append(pa.array(ticks, pa.int64()).cast(field.type))
        elif field.name == layout.columns.start:
            arrays.append(pa.array([row[field.name] for row in rows], pa.int64()).cast(field.type))
        else:
            arrays.append(pa.array([row.get(field.name) for row in rows], field.type))
    events = pa.RecordBatch.from_arrays(arrays, schema=layout.schema)
    return Read(events, np.array(ticks, np.int64), reject_rows(rejects))


def _time(values: dict[str, Any], column: str, layout: StreamLayout, noun: str = "time") -> tuple[TimeKind, int]:
    value = values.get(column)
    if layout.epoch_unit is None or isinstance(value, bool) or not isinstance(value, int | float):
        return event_time(values, column, noun, layout.columns.text.time_format)
    at = value * MICROSECONDS[layout.epoch_unit]
    if not abs(at) <= LAST_TIME:
        raise Malformed(out_of_range(value, noun))
    return TimeKind.TIMESTAMP, round(at)


def _start(values: dict[str, Any], end: int, column: str, layout: StreamLayout) -> int:
    kind, start = _time(values, column, layout, "start")
    if kind is not layout.time_kind:
        raise Malformed(layout.misfit(column, layout.schema.field(column).type, values[column]))
    if start > end:
        raise Malformed(after_end(column, layout.columns.time))
    return start


def _event(values: dict[str, Any], layout: StreamLayout) -> tuple[int, dict[str, Any]]:
    """The time and the columns of an event. Malformed if the row is not an event of the stream."""
    columns = layout.columns
    kind, at = _time(values, columns.time, layout)
    if kind is not layout.time_kind:
        raise Malformed(layout.time_kind.rejects(values[columns.time]))
    starts = {} if columns.start is None else {columns.start: _start(values, at, columns.start, layout)}
    is_untyped = not layout.has_types and values.get(columns.type) is None
    type_name = columns.event_type or (
        UNTYPED if is_untyped else event_type(value_of(values, columns.type), columns.type)
    )
    values, attributes, records = flatten_read(values, columns)
    known = layout.attributes.get(type_name, {})
    event: dict[str, Any] = starts if columns.event_type is not None else {columns.type: type_name, **starts}
    for name in layout.schema.names:
        value = attributes.get(name)
        if value is None or name in event or name == columns.time:
            continue
        column = layout.schema.field(name).type
        try:
            if column == JSON and known.get(name, JSON) != JSON:
                converted(value, known[name])
            event[name] = converted(value, column)
        except Misfit:
            if not columns.reads(name):
                continue
            raise Malformed(layout.misfit(name, known.get(name, column), value)) from None
    for name in records:
        if name in layout.schema.names and columns.reads(name):
            raise Malformed(layout.misfit(name, layout.schema.field(name).type, values.get(name)))
    return at, event
