"""The row reader: reads files row by row, and returns the rows as a source.

It defines how a row of any format becomes an event. A malformed row becomes a Reject with the file, the line, the
reason and the row itself. It neither stops the run nor is dropped silently.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from types import NoneType
from typing import Any

import numpy as np
import pyarrow as pa

from cepheid.errors import shown
from cepheid.events import EMPTY_SCHEMA, MICROSECONDS, UNTYPED, Event, Schema, complete, infer_schema
from cepheid.io.event_columns import other_kind_of_start
from cepheid.io.formats import BrokenRow, Format, expand, format_named
from cepheid.io.formats.text import EXACT, without_collecting
from cepheid.io.inputs import DEFAULT_COLUMNS, Columns, Input
from cepheid.io.nested import column_of, value_of
from cepheid.io.rejects import Malformed, Reject, after_end
from cepheid.io.rows import ROW, START, TIME, TYPE
from cepheid.io.source import JSON, TableSource
from cepheid.io.times import LAST_TIME, MixedTimes, TimeKind, event_time, fraction_unit, has_nanoseconds
from cepheid.io.values import event_type, flatten_read, misfit, typed_values
from cepheid.types import BOOLEAN, FLOAT, INTEGER, STRING, to_arrow, type_of, type_of_all


@dataclass(frozen=True, slots=True)
class Loaded:
    """The events in time order, with every attribute of their types, and the rows that are not events."""

    events: list[Event]
    schema: Schema
    is_timestamp: bool
    """Whether times are timestamps, not integers."""
    rejects: list[Reject] = field(default_factory=list)
    rows: int = 0
    fraction_unit: str | None = None
    """The unit in which the times were written, as numbers with fractions."""


@without_collecting()
def read_events(inputs: Sequence[Input], columns: Columns = DEFAULT_COLUMNS, declared: Schema = EMPTY_SCHEMA) -> Loaded:
    """The events of all inputs, sorted by end, then start, then arrival (the order of the inputs and their rows).
    `declared` holds the types that the query declares."""
    rows: list[_Row] = []
    rejects: list[tuple[int, Reject]] = []
    kinds: dict[TimeKind, Input] = {}
    arrived, unit = 0, None
    for item in inputs:
        read = _InputReader(item, columns, arrived)
        rows.extend(read.rows())
        rejects.extend(read.rejects)
        arrived, unit = read.arrived, unit or read.fraction_unit
        if read.kind is not None:
            kinds.setdefault(read.kind, item)
    if len(kinds) > 1:
        sides = " but ".join(f"in `{shown(item.path)}` it is {kind.value}" for kind, item in kinds.items())
        raise MixedTimes(
            f"the time column `{shown(columns.time)}` is not of one kind: {sides}",
            expected="integers in every input, or timestamps in every input",
        )
    fitting = _with_fitting_values(rows, rejects, columns, declared)
    ordered = sorted(fitting, key=attrgetter("time", "start", "arrival"))
    events = [
        Event(r.type, r.start, r.time, position, r.attributes, r.values, (r.start, r.time))
        for position, r in enumerate(ordered)
    ]
    schema = infer_schema(events)
    rejects.sort(key=lambda numbered: numbered[0])
    is_timestamp = TimeKind.TIMESTAMP in kinds
    return Loaded(complete(events, schema), schema, is_timestamp, [r for _, r in rejects], arrived, unit)


# --- one input --------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Row:
    """A row that may become an event."""

    arrival: int
    source: str
    line: int
    raw: str | None
    values: dict[str, Any]
    time: int = 0
    start: int = 0
    type: str = UNTYPED
    attributes: dict[str, Any] = field(default_factory=dict)
    records: tuple[str, ...] = ()

    def rejected(self, reason: str) -> tuple[int, Reject]:
        raw = self.raw if self.raw is not None else json.dumps(self.values, ensure_ascii=False)
        return self.arrival, Reject(self.source, self.line, reason, raw)


class _InputReader:
    """Reads the files of one input. `rejects` collects rejected rows with their number of arrival."""

    def __init__(self, item: Input, columns: Columns, arrived: int) -> None:
        self.item, self.columns = item, columns
        self.arrived = arrived
        self.kind: TimeKind | None = None
        self.fraction_unit: str | None = None
        self.rejects: list[tuple[int, Reject]] = []

    def rows(self) -> list[_Row]:
        rows: list[_Row] = []
        tabular = False
        for file, name in expand(self.item.path, self.item.format):
            format = format_named(name)
            tabular = tabular or format.is_tabular
            rows.extend(self._file_rows(file, format))
        rows = self._typed(self._started(self._timed(rows)))
        if tabular:
            _drop_columns_of_other_types(rows)
        return self._flattened(rows)

    def _file_rows(self, file: Path, format: Format) -> list[_Row]:
        source, rows = str(file), []
        for row in format.rows(file, self.item.columns(self.columns), self.item.type):
            self.arrived += 1
            if isinstance(row, BrokenRow):
                self.rejects.append((self.arrived, Reject(source, row.line, row.reason, row.raw)))
                continue
            rows.append(_Row(self.arrived, source, row.line, row.raw, row.values))
        return rows

    def _timed(self, rows: list[_Row]) -> list[_Row]:
        """The rows with a time of the most common kind. Of two equally common kinds, the first seen."""
        parsed: list[tuple[_Row, TimeKind]] = []
        self.fraction_unit = self._fraction_unit(rows)
        for row, value in zip(rows, column_of((row.values for row in rows), self.columns.time), strict=True):
            if self.fraction_unit is not None and isinstance(value, int | float) and not isinstance(value, bool):
                row.time = round(value * MICROSECONDS[self.fraction_unit])
                parsed.append((row, TimeKind.TIMESTAMP))
                continue
            if type(value) is int and abs(value) <= LAST_TIME:  # the common case, without a call
                row.time = value
                parsed.append((row, TimeKind.INTEGER))
                continue
            try:
                kind, row.time = event_time(row.values, self.columns.time, "time", self.columns.text.time_format)
            except Malformed as problem:
                self.rejects.append(row.rejected(str(problem)))
            else:
                parsed.append((row, kind))
        if not parsed:
            return []
        self.kind = Counter([kind for _, kind in parsed]).most_common(1)[0][0]
        for row, kind in parsed:
            if kind is not self.kind:
                self.rejects.append(row.rejected(self.kind.rejects(value_of(row.values, self.columns.time))))
        return [row for row, kind in parsed if kind is self.kind]

    def _started(self, rows: list[_Row]) -> list[_Row]:
        """The rows with a start of the kind of their time, not after it. Without a start column events are points."""
        column = self.columns.start
        if column is None:
            for row in rows:
                row.start = row.time
            return rows
        started: list[tuple[_Row, TimeKind]] = []
        for row in rows:
            value = value_of(row.values, column)
            try:
                if self.fraction_unit is not None and isinstance(value, int | float) and not isinstance(value, bool):
                    kind, row.start = TimeKind.TIMESTAMP, round(value * MICROSECONDS[self.fraction_unit])
                else:
                    kind, row.start = event_time(row.values, column, "start", self.columns.text.time_format)
            except Malformed as problem:
                self.rejects.append(row.rejected(str(problem)))
            else:
                started.append((row, kind))
        kinds = Counter([kind for _, kind in started])
        if kinds and self.kind is not None and kinds.most_common(1)[0][0] is not self.kind:
            other = kinds.most_common(1)[0][0]
            raise other_kind_of_start(column, other.value, self.columns.time, self.kind.value)
        fitting = []
        for row, kind in started:
            if self.kind is not None and kind is not self.kind:
                self.rejects.append(row.rejected(self.kind.rejects(value_of(row.values, column), "start")))
            elif row.start > row.time:
                self.rejects.append(row.rejected(after_end(column, self.columns.time)))
            else:
                fitting.append(row)
        return fitting

    def _fraction_unit(self, rows: list[_Row]) -> str | None:
        """The unit of times that are numbers with fractions, if they are epochs: they become timestamps."""
        times = self.columns.times
        cells = (cell for name in times for cell in column_of((row.values for row in rows), name))
        numbers: list[Any] = [cell for cell in cells if type(cell) in (int, float)]
        finite = [number for number in numbers if number == number]
        if not finite or all(type(number) is int or float(number).is_integer() for number in finite):
            return None
        largest = max(map(abs, finite))
        return fraction_unit(min(finite), max(finite), self.columns.unit) if largest <= LAST_TIME else None

    def _typed(self, rows: list[_Row]) -> list[_Row]:
        if self.item.type is not None:
            for row in rows:
                row.type = self.item.type
            return rows
        kinds = column_of((row.values for row in rows), self.columns.type)
        if all(kind is None for kind in kinds):
            return rows
        typed = []
        for row, kind in zip(rows, kinds, strict=True):
            try:
                row.type = kind if type(kind) is str and kind else event_type(kind, self.columns.type)
            except Malformed as problem:
                self.rejects.append(row.rejected(str(problem)))
            else:
                typed.append(row)
        return typed

    def _flattened(self, rows: list[_Row]) -> list[_Row]:
        flattened = []
        for row in rows:
            try:
                row.values, row.attributes, row.records = flatten_read(row.values, self.columns)
            except Malformed as problem:
                self.rejects.append(row.rejected(str(problem)))
            else:
                row.attributes[self.columns.time] = row.time
                if self.columns.start is not None:
                    row.attributes[self.columns.start] = row.start
                flattened.append(row)
        return flattened


def _drop_columns_of_other_types(rows: list[_Row]) -> None:
    """In a table of several types, every row has the columns of all types. A type lacks a column that is null in all of
    its events and not null in events of another type (ruling 13)."""
    filled: dict[str, set[str]] = {}
    for row in rows:
        filled.setdefault(row.type, set()).update(name for name, value in row.values.items() if value is not None)
    used = set().union(*filled.values()) if filled else set()
    for row in rows:
        row.values = {n: v for n, v in row.values.items() if n in filled[row.type] or n not in used}


def _with_fitting_values(
    rows: list[_Row], rejects: list[tuple[int, Reject]], columns: Columns, declared: Schema
) -> list[_Row]:
    """The rows whose values have the declared type of the attribute or, without a declaration, the most common type of
    the attribute in events of the same type. Of two equally common types, the first seen. Another value of an attribute
    that no query reads is null."""
    times = columns.times
    classes: defaultdict[tuple[str, str], Counter[type]] = defaultdict(Counter)
    for row in rows:
        for name, value in row.attributes.items():
            if value is not None and name not in times:
                classes[row.type, name][type(value)] += 1
        for name in row.records:
            classes[row.type, name][dict] += 1
    votes: dict[tuple[str, str], Counter[str]] = {}
    of_numbers: defaultdict[str, set[type]] = defaultdict(set)
    for key, counted_classes in classes.items():
        votes[key] = Counter()
        for of_class, count in counted_classes.items():
            votes[key][_NOUNS.get(of_class) or type_of(of_class()).noun] += count
        of_numbers[key[1]] |= counted_classes.keys() & {int, float}
    mixed = [name for name, found in of_numbers.items() if len(found) > 1]
    wanted = {key: counted.most_common(1)[0][0] for key, counted in votes.items()}
    for type_name, name in votes:
        kind = declared.types.get(type_name, {}).get(name)
        if kind is not None and not kind.is_unknown:
            wanted[type_name, name] = kind.noun
    if all(counted.keys() == {wanted[key]} for key, counted in votes.items()):
        return _with_one_kind_of_number(rows, mixed)
    fitting = []
    for row in rows:
        for name, kind, value in list(typed_values(row.values, row.attributes, row.records, times)):
            expected = wanted[row.type, name]
            if kind.noun != expected and not columns.reads(name):
                row.attributes |= {name: None} if name in row.attributes else {}
            elif kind.noun != expected:
                rejects.append(row.rejected(misfit(name, row.type, f"is a {expected}", value)))
                break
        else:
            fitting.append(row)
    return _with_one_kind_of_number(fitting, mixed)


def _with_one_kind_of_number(rows: list[_Row], names: Sequence[str]) -> list[_Row]:
    """An attribute that has a float in some row has floats in all rows, as a column of a table does. If that would
    round an integer of more than 53 bits, it has floats only in the event types with a float."""
    for name in names:
        of_floats = {row.type for row in rows if type(row.attributes.get(name)) is float}
        integers = [row for row in rows if type(row.attributes.get(name)) is int]
        is_exact = all(-EXACT <= row.attributes[name] <= EXACT for row in integers)
        for row in integers if of_floats else ():
            if is_exact or row.type in of_floats:
                row.attributes[name] = float(row.attributes[name])
    return rows


# --- rows as a source -------------------------------------------------------------------------------------------------


def row_source(loaded: Loaded, columns: Columns) -> TableSource:
    """Rows as a table with a column for each attribute, and the rows as JSON text (see `source`)."""
    events = loaded.events
    types = [event.type for event in events]
    attributes: dict[str, dict[str, pa.DataType]] = {
        name: dict.fromkeys(of, pa.null()) for name, of in loaded.schema.types.items()
    }
    arrays: dict[str, pa.Array] = {}
    for name in dict.fromkeys([*(name for of in attributes.values() for name in of), *columns.times]):
        values = [event.attributes.get(name) for event in events]
        if name in columns.times:
            ticks = pa.array(values, pa.int64())
            arrays[name] = ticks.cast(pa.timestamp("us", "UTC")) if loaded.is_timestamp else ticks
        elif name not in (TYPE, TIME, START, ROW):
            arrays[name] = _column(values)
        for of_type, kind in _kinds_by_type(types, values).items():
            if name in attributes[of_type]:
                is_whole = name in columns.times or arrays[name].type == pa.uint64()
                attributes[of_type][name] = arrays[name].type if is_whole and kind != pa.null() else kind
    arrays[ROW] = pa.array([json.dumps(event.row, ensure_ascii=False) for event in events], pa.string())
    times = np.array([event.end for event in events], np.int64)
    starts = None if columns.start is None else np.array([event.start for event in events], np.int64)
    encoded = pa.array(types, pa.string()).dictionary_encode()
    table = pa.RecordBatch.from_arrays(list(arrays.values()), names=list(arrays))
    return TableSource(
        table,
        columns,
        encoded,
        times,
        None,
        attributes,
        loaded.rejects,
        loaded.fraction_unit,
        starts=starts,
        has_nanoseconds=loaded.is_timestamp and has_nanoseconds(value_of(e.row, columns.time, None) for e in events),
    )


_NOUNS = {int: INTEGER.noun, float: FLOAT.noun, str: STRING.noun, bool: BOOLEAN.noun}
_ARROW: Mapping[type, pa.DataType] = {int: pa.int64(), float: pa.float64(), str: pa.string(), bool: pa.bool_()}


def _column(values: Sequence[Any]) -> pa.Array:
    """The values in a type that holds all of them, or as JSON text."""
    kinds = set(map(type, values)) - {NoneType}
    if not kinds:
        return pa.nulls(len(values))
    integers = [v for v in values if v is not None] if kinds == {int} else [0]
    least, most = min(integers), max(integers)
    if least >= 0 and 2**63 <= most < 2**64:
        return pa.array(values, pa.uint64())
    is_wide = not -(2**63) < least <= most < 2**63
    if len(kinds) == 1 and kinds <= _ARROW.keys() and not is_wide:
        return pa.array(values, _ARROW[kinds.pop()])
    return pa.array([None if v is None else json.dumps(v, ensure_ascii=False).encode() for v in values], JSON)


def _kinds_by_type(types: Sequence[str], values: Sequence[Any]) -> dict[str, pa.DataType]:
    """The Arrow type of an attribute in events of each type."""
    of_types: dict[str, list[Any]] = {name: [] for name in dict.fromkeys(types)}
    for of_type, value in zip(types, values, strict=True):
        if value is not None:
            of_types[of_type].append(value)
    return {of_type: _narrowest(of_values) for of_type, of_values in of_types.items()}


def _narrowest(values: Sequence[Any]) -> pa.DataType:
    kinds = set(map(type, values))
    if not kinds:
        return pa.null()
    if kinds == {int} and not -(2**63) <= min(values) <= max(values) < 2**63:
        return to_arrow(type_of_all(values))
    if kinds == {int, float}:
        return pa.float64()
    if kinds == {list}:
        items = [item for v in values for item in v]
        is_numeric = all(type(item) is float or (type(item) is int and -EXACT <= item <= EXACT) for item in items)
        return pa.list_(pa.float64() if is_numeric else JSON)
    return _ARROW[kinds.pop()] if len(kinds) == 1 else JSON
