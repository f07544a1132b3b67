"""Several directories as one stream of events, each with its own type, columns of time, unit and format.

The first files of each directory settle its own schema (`io.stream_files`). The events of all have the columns of the
merged schema, as those of `io.merged` in batch: if the times differ in kind or unit, all become timestamps.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from cepheid.errors import InputProblem, listing, shown
from cepheid.events import TIMESTAMP_CLOCK, Schema
from cepheid.io.decoding import united_schema
from cepheid.io.event_columns import types_column
from cepheid.io.inputs import Columns, Input
from cepheid.io.merged import (
    MERGED_START,
    MERGED_TIME,
    MERGED_TYPE,
    become_timestamps,
    in_microseconds,
    latest_tick,
    several_types,
    types_mixed,
    with_merged_times,
    with_times,
)
from cepheid.io.rows import ROW, aligned, in_ticks
from cepheid.io.source import JSON, Attributes
from cepheid.io.stream_files import StreamFiles, missing_columns, parse_schema, require_types
from cepheid.io.stream_rows import FILE, INPUT, NUMBER, Read, StreamLayout
from cepheid.io.times import out_of_range
from cepheid.pattern import Query, types_named
from cepheid.runtime.kernel import Array


@dataclass(frozen=True, slots=True)
class StreamInputs:
    """The files of several directories. `roots` are the resolved paths of the directories."""

    inputs: tuple[StreamFiles, ...]
    roots: tuple[str, ...]
    layout: StreamLayout
    converts: tuple[bool, ...]
    """Whether the times of each input are integers that become timestamps."""
    raw: bool = False

    @classmethod
    def of(cls, inputs: Sequence[StreamFiles]) -> StreamInputs:
        names = [f"`{shown(item.path, 200)}`" for item in inputs]
        columns, clocks = [item.layout.columns for item in inputs], [item.layout.clock for item in inputs]
        converts = become_timestamps(names, columns, clocks)
        own = [
            with_merged_times(_plain(item, name), of, as_timestamps)
            for item, name, of, as_timestamps in zip(inputs, names, columns, converts, strict=True)
        ]
        schema, merged = with_times(united_schema(zip(names, own, strict=True), columns[0].reads), columns, clocks)
        attributes = _attributes(inputs, schema)
        hidden = [(MERGED_TYPE, pa.string()), (INPUT, pa.int64()), (FILE, pa.string()), (NUMBER, pa.int64())]
        settled = pa.schema([*schema, *(pa.field(*each) for each in hidden)])
        clock = TIMESTAMP_CLOCK if any(converts) else clocks[0]
        layout = StreamLayout(settled, replace(merged, type=MERGED_TYPE), attributes, clock)
        return cls(tuple(inputs), tuple(str(Path(item.path).resolve()) for item in inputs), layout, tuple(converts))

    @classmethod
    def first(
        cls,
        items: Sequence[Input],
        columns: Columns,
        unit: str | None,
        declared: Schema,
        *,
        queries: Sequence[Query] = (),
        schema: str | None = None,
    ) -> StreamInputs | None:
        """Settles the schema by the existing files; None if some input has no event yet. A column that `schema`
        declares is one of the inputs that have it, or of all if none does."""

        def opened(item: Input, types: Mapping[str, pa.DataType]) -> StreamFiles | None:
            own = item.columns(columns)
            return StreamFiles.first(item.path, own, own.unit or unit, declared, False, schema=types, named=item.format)

        found = [opened(item, {}) for item in items]
        settled = [files for files in found if files is not None]
        if len(settled) < len(found):
            return None
        known = {} if schema is None else parse_schema(schema)
        if known:
            had = [set(files.layout.schema.names) for files in settled]
            of_each = [
                {n: kind for n, kind in known.items() if n in own or not any(n in o for o in had)} for own in had
            ]
            again = [opened(item, types) for item, types in zip(items, of_each, strict=True)]
            settled = [files for files in again if files is not None]
        fields = {field.name: field.type for files in settled for field in files.layout.schema}
        missing = missing_columns(queries, fields)
        require_types(missing, [item.path for item in items])
        return cls.of([files.having({n: kind for n, kind in missing.items() if kind is not None}) for files in settled])

    # --- in the checkpoint --------------------------------------------------------------------------------------------

    def description(self) -> dict[str, Any]:
        return {"inputs": [item.description() for item in self.inputs]}

    @classmethod
    def described(
        cls, items: Sequence[Input], columns: Columns, unit: str | None, known: Mapping[str, Any]
    ) -> StreamInputs:
        inputs = []
        for item, own in zip(items, known["inputs"], strict=True):
            of = item.columns(columns)
            inputs.append(StreamFiles.described(item.path, of, of.unit or unit, own, item.format))
        return cls.of(inputs)

    # --- events -------------------------------------------------------------------------------------------------------

    @property
    def is_text(self) -> bool:
        return all(item.is_text for item in self.inputs)

    @property
    def order(self) -> Sequence[str]:
        """Events with equal times are in the order of the inputs, as in batch."""
        return INPUT, FILE, NUMBER

    def read(self, paths: Sequence[str]) -> Read:
        reads = []
        for number, (item, root) in enumerate(zip(self.inputs, self.roots, strict=True)):
            own = [path for path in paths if Path(path).is_relative_to(root)]
            if own:
                reads.append(self._merged(number, item.read(own)))
        return Read.joined(reads, self.layout.schema)

    def _merged(self, number: int, read: Read) -> Read:
        """What one input has read, with the columns and the times of the merged stream."""
        own, clock = self.inputs[number].layout, self.inputs[number].layout.clock
        if self.converts[number] and clock.unit is not None:
            read = read.rejecting(np.abs(read.ticks) > latest_tick(clock.unit), out_of_range)
        events, ticks = read.events, self._ticks(number, read.ticks)
        starts = ticks if own.columns.start is None else self._ticks(number, _ticks_of(events, own.columns.start))
        of_times = {MERGED_TIME: ticks, MERGED_START: starts, own.columns.start: starts, own.columns.time: ticks}
        replaced = {name: pa.array(of) for name, of in of_times.items() if name is not None}
        replaced |= {
            field.name: events.column(field.name).cast(pa.string())
            for field in events.schema
            if field.type == JSON and field.name not in replaced
        }
        replaced[MERGED_TYPE] = types_column(events, own.columns).dictionary_decode()
        replaced[INPUT] = pa.array(np.full(events.num_rows, number))
        return Read(aligned(events, self.layout.schema, replaced), ticks, read.rejects)

    def _ticks(self, number: int, own: Array) -> Array:
        unit = self.inputs[number].layout.clock.unit
        return in_microseconds(own, unit) if self.converts[number] and unit is not None else own

    def attributes(self, queries: Iterable[Query]) -> Attributes:
        """The columns of each event type that has been seen, and of the types that the queries name: these have all
        columns."""
        seen = self.layout.attributes
        hidden = (MERGED_TYPE, MERGED_TIME, MERGED_START, INPUT, FILE, NUMBER)
        fields = {field.name: field.type for field in self.layout.schema if field.name not in hidden}
        unseen = [name for query in queries for name in types_named(query) if name not in seen]
        return {**seen, **dict.fromkeys(unseen, fields)}


def _plain(item: StreamFiles, name: str) -> pa.Schema:
    """The columns of an input in the merged stream. Lists and records are JSON text, and a column of several types is
    an error if it is read (see `merged.as_columns`)."""
    own = []
    for field in item.layout.schema:
        of_types = types_mixed(field.name, item.layout.attributes) if field.type == JSON else {}
        if len(of_types) > 1 and item.layout.columns.reads(field.name):
            raise several_types(field.name, of_types, name)
        if field.name not in (ROW, FILE, NUMBER) and len(of_types) < 2:
            own.append(field.with_type(pa.string()) if field.type == JSON else field)
    return pa.schema(own)


def _attributes(inputs: Sequence[StreamFiles], schema: pa.Schema) -> Attributes:
    attributes: dict[str, dict[str, pa.DataType]] = {}
    for item in inputs:
        for kind, own in item.attributes(()).items():
            known = {name: schema.field(name).type for name in own if name in schema.names}
            attributes.setdefault(kind, {}).update(known)
    return attributes


def _ticks_of(events: pa.RecordBatch, name: str) -> Array:
    return np.asarray(in_ticks(events.column(name)).cast(pa.int64()))


def require_apart(paths: Sequence[str]) -> None:
    """Refuses inputs of which one holds the other: its files would be events twice."""
    roots = [Path(path).resolve() for path in paths]
    for at, one in enumerate(roots):
        for two in roots[:at]:
            if one == two or one.is_relative_to(two) or two.is_relative_to(one):
                what = "twice" if one == two else f"with `{shown(str(two), 200)}`, of which one holds the other"
                raise InputProblem(
                    f"the input `{shown(str(one), 200)}` is there {what}",
                    expected=f"directories apart from each other; there are {listing(paths)}",
                    hint="one directory may hold events of several types, named by a column: --type-column",
                )
