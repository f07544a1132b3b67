"""Streams of files: a directory to which event files are added, in any format that has a stream reader.

The files that exist when the stream first starts determine its schema. The checkpoint stores it.
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
    """Whether the output shows an event as the line that it was read from."""

    @classmethod
    def first(cls, path: str, columns: Columns, unit: str | None, declared: Schema, raw: bool) -> StreamFiles:
        """Infers the schema from the existing files. `declared` holds the types that the queries declare."""
        files = expand(path)
        names = {name for _, name in files}
        format = format_named(files[0][1])
        if len(names) > 1 or format.stream is None:
            raise InputProblem(
                f"the files in `{shown(path, 200)}` are {listing(names)}",
                expected="all Parquet, all Arrow, all ORC, or all JSON Lines, for a stream",
            )
        source: Source
        if isinstance(format, ColumnFormat):
            source, raw = scan([[column_file(*file, Input(path), columns) for file in files]], columns), False
            fields = [field.with_type(_plain(field.type)) for field in source.schema]
            schema = pa.schema([*fields, (FILE, pa.string()), (NUMBER, pa.int64())])
        else:
            source = open_files([Input(path)], columns, declared)
            schema = _text_schema(source)
        layout = StreamLayout(schema, columns, schema_of(source, ()), clock_of(source, unit))
        return cls(path, names.pop(), layout, raw)

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
        """Events with equal times are ordered by file name, then by row number, as in batch."""
        return FILE, NUMBER

    def read(self, paths: Sequence[str], earliest: int, latest: int) -> Read:
        """The events of some files. A time outside the bounds cannot be represented in a stream."""
        stream = format_named(self.format).stream
        assert stream is not None
        return stream(paths, self.layout, earliest, latest)

    @property
    def attributes(self) -> Attributes:
        """The columns of each event type. In a text file a column may mix values of several types, so the types in the
        checkpoint decide."""
        schema, known = self.layout.schema, self.layout.types.types
        if ROW in schema.names:
            return {kind: {name: _ARROW.get(of, JSON) for name, of in own.items()} for kind, own in known.items()}
        columns = {kind: {name.partition(".")[0] for name in own} | set(own) for kind, own in known.items()}
        fields = [field for field in schema if field.name not in _HIDDEN]
        return {
            kind: {field.name: field.type for field in fields if field.name in own} for kind, own in columns.items()
        }


def _plain(kind: pa.DataType) -> pa.DataType:
    """The type without a dictionary. Blocks of the stream cannot hold dictionaries."""
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _text_schema(source: Source) -> pa.Schema:
    """A column for each attribute, in a type that holds its values in events of every type, and the line itself."""
    columns = source.columns
    types: dict[str, set[pa.DataType]] = {}
    for attributes in (source.attributes or {}).values():
        for name, kind in attributes.items():
            if not pa.types.is_null(kind) and name not in (columns.type, columns.time):
                types.setdefault(name, set()).add(JSON if kind == pa.list_(JSON) else kind)
    fields = [(name, _one_type(kinds)) for name, kinds in types.items()]
    time = pa.timestamp("us", "UTC") if clock_of(source, None).is_timestamp else pa.int64()
    own = [(ROW, pa.string()), (FILE, pa.string()), (NUMBER, pa.int64())]
    return pa.schema([(columns.type, pa.string()), (columns.time, time), *fields, *own])


def _one_type(kinds: set[pa.DataType]) -> pa.DataType:
    if kinds == {pa.int64(), pa.float64()}:
        return pa.float64()
    return next(iter(kinds)) if len(kinds) == 1 else JSON
