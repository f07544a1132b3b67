"""Reading event files: Parquet, CSV and JSON Lines become one stream of events in order.

A malformed row never stops the run and never vanishes: it becomes a Reject that says where, why, and what the row was.
"""

from __future__ import annotations

import gc
import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cepheid.errors import InputProblem, listing, shown
from cepheid.events import (
    EMPTY_SCHEMA,
    TIMESTAMP_CLOCK,
    UNTYPED,
    Clock,
    Event,
    Schema,
    Type,
    complete,
    infer_schema,
    type_of,
)
from cepheid.io.formats import BrokenRow, Format, expand, format_named
from cepheid.io.inputs import Columns, Input
from cepheid.io.rejects import Malformed, Reject, shown_value
from cepheid.io.times import TimeKind, event_time, unit_of

DEEPEST = 32
"""How deep a value may nest: far beyond real data, far within what can be walked and printed without care."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """What was read: the stream in order with every attribute of its types, and the rows that are not events."""

    events: list[Event]
    schema: Schema
    clock: Clock
    rejects: list[Reject] = field(default_factory=list)
    rows: int = 0
    time_column: str = "ts"


@contextmanager
def _without_collecting() -> Iterator[None]:
    """Nothing that is read is thrown away, and looking for garbage in it takes a third of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@_without_collecting()
def read_events(
    inputs: Sequence[Input],
    type_column: str = "type",
    time_column: str = "ts",
    time_unit: str | None = None,
    declared: Schema = EMPTY_SCHEMA,
) -> Loaded:
    """The stream of all inputs together: by time, then by arrival, which is the order of the inputs and their rows.

    `time_unit` is the unit of an integer time column. `declared` holds the types that the query itself declares."""
    unit = None if time_unit is None else unit_of(time_unit)
    rows: list[_Row] = []
    rejects: list[tuple[int, Reject]] = []
    kinds: dict[TimeKind, Input] = {}
    arrived = 0
    for item in inputs:
        read = _InputReader(item, type_column, time_column, arrived)
        rows.extend(read.rows())
        rejects.extend(read.rejects)
        arrived = read.arrived
        if read.kind is not None:
            kinds.setdefault(read.kind, item)
    if len(kinds) > 1:
        sides = " but ".join(f"in `{shown(item.path)}` it is {kind.value}" for kind, item in kinds.items())
        raise InputProblem(
            f"the time column `{shown(time_column)}` is not of one kind: {sides}",
            expected="integers in every input, or timestamps in every input",
        )
    clock = TIMESTAMP_CLOCK if TimeKind.TIMESTAMP in kinds else Clock(unit)
    fitting = _with_fitting_values(rows, rejects, time_column, declared)
    ordered = sorted(fitting, key=lambda row: (row.time, row.arrival))
    events = [
        Event(r.type, r.time, r.time, position, r.attributes, r.values, (r.time, r.time))
        for position, r in enumerate(ordered)
    ]
    schema = infer_schema(events)
    rejects.sort(key=lambda numbered: numbered[0])
    return Loaded(complete(events, schema), schema, clock, [r for _, r in rejects], arrived, time_column)


# --- one input --------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Row:
    """A row on its way to becoming an event."""

    arrival: int
    source: str
    line: int
    raw: str | None
    values: dict[str, Any]
    time: int = 0
    type: str = UNTYPED
    attributes: dict[str, Any] = field(default_factory=dict)
    records: tuple[str, ...] = ()

    def rejected(self, reason: str) -> tuple[int, Reject]:
        raw = self.raw if self.raw is not None else json.dumps(self.values, ensure_ascii=False)
        return self.arrival, Reject(self.source, self.line, reason, raw)


class _InputReader:
    """Reads the files of one input; what is no event goes to `rejects`, numbered by arrival."""

    def __init__(self, item: Input, type_column: str, time_column: str, arrived: int) -> None:
        self.item, self.type_column, self.time_column = item, type_column, time_column
        self.arrived = arrived
        self.kind: TimeKind | None = None
        self.rejects: list[tuple[int, Reject]] = []

    def rows(self) -> list[_Row]:
        rows: list[_Row] = []
        tabular = False
        for file, name in expand(self.item.path):
            format = format_named(name)
            read = list(self._file_rows(file, format))
            tabular = tabular or format.is_tabular
            rows.extend(read)
        rows = self._typed(self._timed(rows))
        if tabular:
            _drop_columns_of_other_types(rows)
        return list(self._flattened(rows))

    def _file_rows(self, file: Path, format: Format) -> Iterator[_Row]:
        source = str(file)
        for row in format.rows(file, Columns(self.type_column, self.time_column), self.item.type):
            self.arrived += 1
            if isinstance(row, BrokenRow):
                self.rejects.append((self.arrived, Reject(source, row.line, row.reason, row.raw)))
                continue
            if format.is_tabular and self.time_column not in row.values:
                raise InputProblem(
                    f"`{shown(source, 200)}` has no column `{shown(self.time_column)}`",
                    expected=f"the time column; the file has {listing(row.values)}",
                    hint="name it with --time-column",
                )
            yield _Row(self.arrived, source, row.line, row.raw, row.values)

    def _timed(self, rows: list[_Row]) -> list[_Row]:
        """The rows that have a time, of the kind that most of them have; the first seen of two equally common."""
        parsed: list[tuple[_Row, TimeKind]] = []
        for row in rows:
            try:
                kind, row.time = event_time(row.values, self.time_column)
            except Malformed as problem:
                self.rejects.append(row.rejected(str(problem)))
            else:
                parsed.append((row, kind))
        if not parsed:
            return []
        self.kind = Counter(kind for _, kind in parsed).most_common(1)[0][0]
        for row, kind in parsed:
            if kind is not self.kind:
                reason = f"the time `{shown(str(row.values[self.time_column]))}` is not like the others, "
                self.rejects.append(row.rejected(f"{reason}which are {self.kind.value}"))
        return [row for row, kind in parsed if kind is self.kind]

    def _typed(self, rows: list[_Row]) -> list[_Row]:
        if self.item.type is not None:
            for row in rows:
                row.type = self.item.type
            return rows
        if all(row.values.get(self.type_column) is None for row in rows):
            return rows
        typed = []
        for row in rows:
            found = row.values.get(self.type_column)
            if isinstance(found, str) and found:
                row.type = found
                typed.append(row)
            elif found is None or found == "":
                self.rejects.append(row.rejected(f"no event type: the column `{self.type_column}` is missing or null"))
            else:
                self.rejects.append(row.rejected(f"the event type {shown_value(found)} is not a string"))
        return typed

    def _flattened(self, rows: list[_Row]) -> Iterator[_Row]:
        for row in rows:
            try:
                row.attributes, row.records = flatten(row.values)
            except Malformed as problem:
                self.rejects.append(row.rejected(str(problem)))
            else:
                row.attributes[self.time_column] = row.time
                yield row


def _drop_columns_of_other_types(rows: list[_Row]) -> None:
    """A table that holds several types has the columns of all of them in every row: a column that is empty throughout
    one type, and filled in another, is one that the type lacks (ruling 13)."""
    filled: dict[str, set[str]] = {}
    for row in rows:
        filled.setdefault(row.type, set()).update(name for name, value in row.values.items() if value is not None)
    used = set().union(*filled.values()) if filled else set()
    for row in rows:
        row.values = {n: v for n, v in row.values.items() if n in filled[row.type] or n not in used}


def _with_fitting_values(
    rows: list[_Row], rejects: list[tuple[int, Reject]], time_column: str, declared: Schema
) -> Iterator[_Row]:
    """The rows whose values are of the type that is declared for the attribute, or else that most values of it have in
    events of the same type; the first seen of two equally common."""
    votes: defaultdict[tuple[str, str], Counter[Type]] = defaultdict(Counter)

    def values_of(row: _Row) -> Iterator[tuple[str, Type, Any]]:
        for name, value in row.attributes.items():
            if value is not None and name != time_column:
                yield name, type_of(value), value
        for name in row.records:
            yield name, Type.RECORD, row.values.get(name)

    for row in rows:
        for name, kind, _ in values_of(row):
            votes[row.type, name][kind] += 1
    wanted = {key: counted.most_common(1)[0][0] for key, counted in votes.items()}
    for type_name, name in votes:
        kind = declared.types.get(type_name, {}).get(name, Type.UNKNOWN)
        if kind is not Type.UNKNOWN:
            wanted[type_name, name] = kind
    if all(counted.keys() == {wanted[key]} for key, counted in votes.items()):
        yield from rows
        return
    for row in rows:
        for name, kind, value in values_of(row):
            expected = wanted[row.type, name]
            if kind is not expected:
                of = f" of `{shown(row.type)}`" if row.type else ""
                reason = f"the attribute `{shown(name)}`{of} is a {expected.value}, not {shown_value(value)}"
                rejects.append(row.rejected(reason))
                break
        else:
            yield row


# --- values -----------------------------------------------------------------------------------------------------------


def flatten(values: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The attributes, nested objects by dotted names, and the names of those objects."""
    flat: dict[str, Any] = {}
    records: list[str] = []

    def visit(name: str, value: Any, depth: int) -> None:
        if depth > DEEPEST:
            raise Malformed(f"the attribute `{shown(name)}` is nested more than {DEEPEST} deep")
        if isinstance(value, dict):
            records.append(name)
            for key, inner in value.items():
                visit(f"{name}.{key}", inner, depth + 1)
            return
        _require_plain(name, name, depth)
        _require_plain(name, value, depth)
        if name in flat:
            raise Malformed(f"the attribute `{shown(name)}` is given twice")
        flat[name] = value

    for key, value in values.items():
        visit(key, value, 0)
    return flat, tuple(records)


def _require_plain(name: str, value: Any, depth: int) -> None:
    """Numbers must be finite and text must be Unicode, or the row could not be written out again."""
    if isinstance(value, float) and not math.isfinite(value):
        raise Malformed(f"the attribute `{shown(name)}` is not a finite number")
    if isinstance(value, str) and not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as problem:
            raise Malformed(f"the attribute `{shown(name)}` holds half a character") from problem
    if isinstance(value, list | dict):
        if depth > DEEPEST:
            raise Malformed(f"the attribute `{shown(name)}` is nested more than {DEEPEST} deep")
        for item in value.values() if isinstance(value, dict) else value:
            _require_plain(name, item, depth + 1)
