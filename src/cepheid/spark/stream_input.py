"""A directory in which files of events appear, as a stream: Parquet or JSON Lines.

What the files look like is settled by those that are there when the stream first starts, and kept in the checkpoint.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from cepheid.engine.query_text import declared_types
from cepheid.errors import InputProblem, listing, shown
from cepheid.events import TIMESTAMP_CLOCK, UNTYPED, Clock, Schema, Type
from cepheid.io.files import column_file, scan
from cepheid.io.formats import expand
from cepheid.io.inputs import Columns, Input
from cepheid.io.row_reader import read_events
from cepheid.io.source import attribute_types, require_time_column
from cepheid.io.times import unit_of
from cepheid.pattern import Query
from cepheid.streaming.lines import LineReader, line_schema
from cepheid.streaming.plan import Shape
from cepheid.streaming.reader import FILE, NUMBER, ParquetReader, Reader
from cepheid.streaming.sinks import RAW

_OWN = (RAW, FILE, NUMBER)


@dataclass(frozen=True, slots=True)
class DirectoryInput:
    path: str
    format: str
    columns: Columns
    clock: Clock
    schema: pa.Schema
    types: Mapping[str, Mapping[str, Type]]
    raw: bool
    """Whether events are shown as the lines that they were."""

    # --- the first look -----------------------------------------------------------------------------------------------

    @classmethod
    def first_look(
        cls,
        path: str,
        columns: Columns,
        time_unit: str | None,
        queries: Iterable[Query],
        raw: bool,
    ) -> DirectoryInput:
        unit = None if time_unit is None else unit_of(time_unit)
        formats = {format for _, format in expand(path)}
        if formats == {"parquet"}:
            return cls._parquet(path, columns, unit)
        if formats != {"jsonl"}:
            raise InputProblem(
                f"the files in `{shown(path, 200)}` are {listing(formats)}",
                expected="all Parquet, or all JSON Lines, for a stream",
            )
        declared: dict[str, Mapping[str, Type]] = {}
        for query in queries:
            declared.update(declared_types(query).types)
        loaded = read_events([Input(path)], columns.type, columns.time, time_unit, declared=Schema(declared))
        return cls(path, "jsonl", columns, loaded.clock, line_schema(loaded, columns), loaded.schema.types, raw)

    @classmethod
    def _parquet(cls, path: str, columns: Columns, unit: str | None) -> DirectoryInput:
        files = [column_file(file, name, Input(path), columns) for file, name in expand(path)]
        looked = scan([files], columns)
        schema = pa.schema([pa.field(field.name, _plain(field.type)) for field in looked.schema])
        kinds = attribute_types(schema)
        types = {
            kind: {name: of for name, of in kinds.items() if name.partition(".")[0] in own or name in own}
            for kind, own in looked.attributes.items()
        }
        time = schema.field(columns.time).type
        clock = TIMESTAMP_CLOCK if pa.types.is_timestamp(time) or pa.types.is_date(time) else Clock(unit)
        placed = pa.schema([*schema, (FILE, pa.string()), (NUMBER, pa.int64())])
        return cls(path, "parquet", columns, clock, placed, types, False)

    # --- kept in the checkpoint ---------------------------------------------------------------------------------------

    def described(self) -> dict[str, Any]:
        return {
            "format": self.format,
            "schema": base64.b64encode(self.schema.serialize().to_pybytes()).decode(),
            "types": {kind: {name: of.value for name, of in own.items()} for kind, own in self.types.items()},
            "timestamps": self.clock.is_timestamp,
            "raw": self.raw,
        }

    @classmethod
    def remembered(cls, path: str, columns: Columns, time_unit: str | None, known: Mapping[str, Any]) -> DirectoryInput:
        schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(known["schema"])))
        types = {kind: {name: Type(of) for name, of in own.items()} for kind, own in known["types"].items()}
        require_time_column(schema, columns)
        unit = None if time_unit is None else unit_of(time_unit)
        clock = TIMESTAMP_CLOCK if known["timestamps"] else Clock(unit)
        return cls(path, known["format"], columns, clock, schema, types, known["raw"])

    # --- the stream ---------------------------------------------------------------------------------------------------

    def reader(self) -> Reader:
        typed = set(self.types) != {UNTYPED}
        if self.format == "jsonl":
            return LineReader(self.schema, self.columns, Schema(self.types), self.clock, typed)
        return ParquetReader(self.schema, self.columns, typed and self.columns.type in self.schema.names)

    @property
    def order(self) -> Sequence[str]:
        """Events of one time come in the order of the files' names, then of their rows, as in batch."""
        return FILE, NUMBER

    def shape(self) -> Shape:
        return Shape(self.reader(), self.clock, lambda query: Schema(self.types), self._shown_by, self.raw)

    def _shown_by(self, types: Iterable[str]) -> tuple[str, ...]:
        if self.raw:
            return (RAW,)
        chosen = [self.types.get(kind, {}) for kind in (types or self.types)]
        wanted = {name for own in chosen for name in own} | {n.partition(".")[0] for own in chosen for n in own}
        return tuple(name for name in self.schema.names if name in wanted and name not in _OWN)


def _plain(kind: pa.DataType) -> pa.DataType:
    """The type without a dictionary, which could not travel in blocks."""
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def slip_frame(session: SparkSession, slips: Path, files_per_batch: int | None) -> DataFrame:
    """The stream of slips, each of which names a file."""
    reader = session.readStream.format("text")
    if files_per_batch is not None:
        reader = reader.option("maxFilesPerTrigger", files_per_batch)
    return reader.load(str(slips))


def require_directory(path: str) -> None:
    if not Path(path).is_dir():
        raise InputProblem(
            f"`{shown(path, 200)}` is no directory", expected="a directory in which files of events appear"
        )
