"""A directory in which files of events appear, as a stream: files of columns (Parquet, Arrow, ORC) or JSON Lines.

The files that are there when the stream first starts settle its schema, which the checkpoint keeps.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from cepheid.errors import InputProblem, listing, shown
from cepheid.events import TIMESTAMP_CLOCK, Clock, Schema, Type
from cepheid.io.files import column_file, open_files, scan
from cepheid.io.formats import expand, format_named
from cepheid.io.formats.columnar import ColumnFormat
from cepheid.io.formats.jsonl import FORMAT as JSON_LINES
from cepheid.io.formats.jsonl import stream_schema
from cepheid.io.inputs import Columns, Input
from cepheid.io.rows import ROW
from cepheid.io.source import JSON, Attributes, Source, clock_of, require_time_column, schema_of
from cepheid.io.stream_rows import FILE, NUMBER, Read, StreamLayout

_HIDDEN = (ROW, FILE, NUMBER)
_ARROW = {
    Type.NUMBER: pa.float64(),
    Type.STRING: pa.string(),
    Type.BOOLEAN: pa.bool_(),
    Type.VECTOR: pa.list_(pa.float64()),
}


@dataclass(frozen=True, slots=True)
class StreamFiles:
    path: str
    format: str
    layout: StreamLayout
    raw: bool
    """Whether events are shown as the lines that they were read from."""

    @classmethod
    def first(cls, path: str, columns: Columns, unit: str | None, declared: Schema, raw: bool) -> StreamFiles:
        """As the files that are there show it. `declared` holds the types that the queries declare."""
        formats = {format for _, format in expand(path)}
        format = format_named(next(iter(formats)))
        source: Source
        if len(formats) == 1 and isinstance(format, ColumnFormat):
            source, raw = scan([[column_file(*file, Input(path), columns) for file in expand(path)]], columns), False
            fields = [field.with_type(_plain(field.type)) for field in source.schema]
            schema = pa.schema([*fields, (FILE, pa.string()), (NUMBER, pa.int64())])
        elif len(formats) == 1 and format is JSON_LINES:
            source = open_files([Input(path)], columns, declared)
            schema = stream_schema(source)
        else:
            raise InputProblem(
                f"the files in `{shown(path, 200)}` are {listing(formats)}",
                expected="all Parquet, all Arrow, all ORC, or all JSON Lines, for a stream",
            )
        return cls(
            path, formats.pop(), StreamLayout(schema, columns, schema_of(source, ()), clock_of(source, unit)), raw
        )

    # --- in the checkpoint --------------------------------------------------------------------------------------------

    def description(self) -> dict[str, Any]:
        layout = self.layout
        return {
            "format": self.format,
            "schema": base64.b64encode(layout.schema.serialize().to_pybytes()).decode(),
            "types": {kind: {name: of.value for name, of in own.items()} for kind, own in layout.types.types.items()},
            "timestamps": layout.clock.is_timestamp,
            "raw": self.raw,
        }

    @classmethod
    def described(cls, path: str, columns: Columns, unit: str | None, known: Mapping[str, Any]) -> StreamFiles:
        schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(known["schema"])))
        types = {kind: {name: Type(of) for name, of in own.items()} for kind, own in known["types"].items()}
        require_time_column(schema, columns)
        clock = TIMESTAMP_CLOCK if known["timestamps"] else Clock(unit)
        return cls(path, known["format"], StreamLayout(schema, columns, Schema(types), clock), known["raw"])

    # --- events -------------------------------------------------------------------------------------------------------

    @property
    def order(self) -> Sequence[str]:
        """Events of one time come in the order of the files' names, then of their rows, as in batch."""
        return FILE, NUMBER

    def read(self, paths: Sequence[str], earliest: int, latest: int) -> Read:
        """The events of some files; times outside of the bounds are ones that a stream cannot hold."""
        format = format_named(self.format)
        return format.stream(paths, self.layout, earliest, latest)

    @property
    def attributes(self) -> Attributes:
        """The columns of each event type. A column of JSON Lines may mix the values of several event types; the types
        in the checkpoint decide."""
        schema, known = self.layout.schema, self.layout.types.types
        if ROW in schema.names:
            return {kind: {name: _ARROW.get(of, JSON) for name, of in own.items()} for kind, own in known.items()}
        columns = {kind: {name.partition(".")[0] for name in own} | set(own) for kind, own in known.items()}
        fields = [field for field in schema if field.name not in _HIDDEN]
        return {
            kind: {field.name: field.type for field in fields if field.name in own} for kind, own in columns.items()
        }


def _plain(kind: pa.DataType) -> pa.DataType:
    """The type without a dictionary, which could not travel in blocks."""
    return kind.value_type if pa.types.is_dictionary(kind) else kind
