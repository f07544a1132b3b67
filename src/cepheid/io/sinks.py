"""Sinks: write record batches of matches as JSON Lines, CSV, Parquet or Arrow, and rejects as JSON Lines."""

from __future__ import annotations

import csv
import io
import json
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import IO, Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from cepheid.errors import InputProblem, shown
from cepheid.io.formats import FORMATS
from cepheid.io.json_text import cell_texts, dumps, joined, json_texts, list_texts, member, members_joined, quoted
from cepheid.io.rejects import Reject
from cepheid.io.rows import TYPE

_ROWS = 1 << 15
TEXT = "\0text"
"""The hidden column with a match as JSON text, for results that show the events of a text file unchanged."""


def cell(value: Any) -> Any:
    """The value of a CSV cell; nested values are JSON text."""
    if value is None or isinstance(value, str):
        return value
    return dumps(value)


@dataclass(frozen=True, slots=True)
class Objects:
    """Converts the rows of a result to JSON objects. An event has only the columns of its type."""

    types: Mapping[str, Sequence[str]]
    """The possible event types of each output column that holds events."""
    attributes: Mapping[str, Iterable[str]]
    """The columns of each event type."""
    type_column: str
    omits_nulls: bool = False
    """Whether a null stands for an absent attribute."""

    def json(self, batch: pa.RecordBatch) -> list[pa.Array]:
        """The columns of the output as JSON texts."""
        return [self._texts(name, column) for name, column in zip(batch.schema.names, batch.columns, strict=True)]

    def cells(self, batch: pa.RecordBatch) -> list[pa.Array]:
        """The columns of the output as CSV cells."""
        return [
            quoted(pc.if_else(column.is_valid(), self._texts(name, column), ""))
            if name in self.types
            else cell_texts(column)
            for name, column in zip(batch.schema.names, batch.columns, strict=True)
        ]

    def _texts(self, name: str, column: pa.Array) -> pa.Array:
        if name not in self.types:
            return json_texts(column)
        if pa.types.is_list(column.type):
            return list_texts(column, self._events(self.types[name], column.flatten()))
        return self._events(self.types[name], column)

    def _events(self, types: Sequence[str], events: pa.Array) -> pa.Array:
        """Events as JSON objects."""
        if not pa.types.is_struct(events.type):
            return json_texts(events)
        names = [field.name for field in events.type]
        columns = dict(zip(names, events.flatten(), strict=True))
        kinds = self._kinds(types, columns, len(events))
        members = []
        for name, column in columns.items():
            if name == TYPE:
                continue
            texts = member(name, json_texts(column))
            shown = column.is_valid() if self.omits_nulls else self._has(name, kinds)
            if shown is not False:
                members.append(texts if shown is True else pc.if_else(shown, texts, None))
        texts = members_joined(members, len(events))
        return pc.if_else(events.is_valid(), texts, "null") if events.null_count else texts

    def _kinds(self, types: Sequence[str], columns: Mapping[str, pa.Array], length: int) -> str | pa.Array | None:
        """The type of all events, or of each; None if it is not known."""
        if len(types) == 1:
            return types[0]
        column = columns.get(TYPE, columns.get(self.type_column))
        if column is None:
            return None
        return column.cast(pa.string()) if not pa.types.is_dictionary(column.type) else column.dictionary_decode()

    def _has(self, name: str, kinds: str | pa.Array | None) -> bool | pa.Array:
        """Whether events of these types have the column."""
        if kinds is None or isinstance(kinds, str):
            own = None if kinds is None else self.attributes.get(kinds)
            return own is None or name in own
        lacking = [kind for kind, own in self.attributes.items() if name not in own]
        return pc.invert(pc.is_in(kinds, pa.array(lacking, pa.string()))) if lacking else True


class Sink(Protocol):
    def write(self, batch: pa.RecordBatch) -> None: ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class _JsonLines:
    file: IO[bytes]
    schema: pa.Schema
    objects: Objects

    def write(self, batch: pa.RecordBatch) -> None:
        for part in _parts(batch):
            if TEXT in batch.schema.names:
                lines = joined([part.column(TEXT), "\n"])
            else:
                named = zip(batch.schema.names, self.objects.json(part), strict=True)
                lines = joined([members_joined([member(*one) for one in named], part.num_rows), "\n"])
            _write(self.file, lines)

    def close(self) -> None:
        self.file.flush()


@dataclass(frozen=True, slots=True)
class _Csv:
    file: IO[bytes]
    schema: pa.Schema
    objects: Objects

    def __post_init__(self) -> None:
        self._write([[name for name in self.schema.names if name != TEXT]])

    def write(self, batch: pa.RecordBatch) -> None:
        if TEXT in batch.schema.names:
            rows = (json.loads(text, parse_float=_exact) for text in batch.column(TEXT).to_pylist())
            self._write([[cell(value) for value in row.values()] for row in rows])
            return
        for part in _parts(batch):
            _write(self.file, joined([joined(self.objects.cells(part), ","), "\n"]))

    def close(self) -> None:
        self.file.flush()

    def _write(self, rows: Sequence[Sequence[Any]]) -> None:
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(rows)
        self.file.write(text.getvalue().encode())


def _exact(text: str) -> float | Decimal:
    """A number of a row that is JSON text: a decimal if no float is equal to it."""
    number = float(text)
    return number if math.isinf(number) or Decimal(repr(number)) == Decimal(text) else Decimal(text)


def _parts(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Rows whose text fits into one Arrow array (2 GB) and into the cache."""
    for start in range(0, batch.num_rows, _ROWS):
        yield batch.slice(start, _ROWS)


def _write(file: IO[bytes], texts: pa.Array) -> None:
    """Writes texts one after the other: that is how Arrow holds them."""
    if len(texts):
        _, offsets, data = texts.buffers()
        first, last = (
            int(edge) for edge in np.frombuffer(offsets, np.int32)[[texts.offset, texts.offset + len(texts)]]
        )
        file.write(memoryview(data)[first:last])


@dataclass(slots=True)
class _Parquet:
    file: IO[bytes]
    schema: pa.Schema
    objects: Objects
    writer: pq.ParquetWriter = field(init=False)

    def __post_init__(self) -> None:
        try:
            self.writer = pq.ParquetWriter(self.file, self.schema)
        except pa.ArrowNotImplementedError as problem:
            reason = shown(str(problem), 200)
            raise InputProblem(f"Parquet cannot hold a column: {reason}", expected="--output FILE.arrow") from problem

    def write(self, batch: pa.RecordBatch) -> None:
        self.writer.write_batch(batch)

    def close(self) -> None:
        self.writer.close()


@dataclass(slots=True)
class _Arrow(_Parquet):
    def __post_init__(self) -> None:
        self.writer = pa.ipc.new_file(self.file, self.schema)


SINKS: Mapping[str, Callable[[IO[bytes], pa.Schema, Objects], Sink]] = {
    "jsonl": _JsonLines,
    "csv": _Csv,
    "parquet": _Parquet,
    "arrow": _Arrow,
}
"""The output formats."""


def output_format(path: str) -> str:
    """The format of an output file by its suffix. Refuses others before the query runs."""
    suffix = Path(path).suffix.lower()
    if FORMATS.get(suffix) not in SINKS:
        raise InputProblem(
            f"{suffix[1:] or 'a file without a suffix'} is not an output format: `{shown(path, 200)}`",
            expected="a file named .jsonl, .csv, .parquet or .arrow",
        )
    return FORMATS[suffix]


def write_batches(
    file: IO[bytes], format: str, schema: pa.Schema, batches: Iterable[pa.RecordBatch], objects: Objects
) -> int:
    """Writes the matches incrementally. Returns their number."""
    matches = 0
    # Closed after an error too: an open ParquetWriter would print a second one when it is collected.
    with closing(SINKS[format](file, schema, objects)) as sink:
        for batch in batches:
            sink.write(batch)
            matches += batch.num_rows
    return matches


def write_rejects(path: str, rejects: Iterable[Reject]) -> None:
    with replacing(Path(path)) as file:
        for reject in rejects:
            # A lone surrogate has no UTF-8 encoding; its escape is valid JSON.
            file.write(dumps(asdict(reject)).encode(errors="backslashreplace") + b"\n")


def make_directory(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise InputProblem(f"cannot write into `{shown(str(path), 200)}`: {problem.strerror}") from problem


@contextmanager
def atomic(path: Path) -> Iterator[IO[bytes]]:
    """A temporary file that replaces the file at the path when it is complete. On an error the old file remains."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with temporary.open("wb") as file:
            yield file
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """As `atomic`, with a user error for I/O errors."""
    try:
        with atomic(path) as file:
            yield file
    except OSError as problem:
        raise InputProblem(f"cannot write `{shown(str(path), 200)}`: {problem.strerror or problem}") from problem
