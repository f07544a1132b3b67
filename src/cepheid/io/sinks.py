"""Sinks: write record batches of matches as JSON Lines, CSV, Parquet or Arrow, and rejects as JSON Lines."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from cepheid.errors import InputProblem, shown
from cepheid.io.formats import FORMATS
from cepheid.io.rejects import Reject
from cepheid.io.rows import TYPE, plain

TEXT = "\0text"
"""The hidden column with a match as JSON text, for results that show the events of a text file unchanged."""


def dumps(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


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

    def of(self, batch: pa.RecordBatch) -> Iterator[dict[str, Any]]:
        if TEXT in batch.schema.names:
            yield from (json.loads(text) for text in batch.column(TEXT).to_pylist())
            return
        for row in batch.to_pylist():
            yield {
                name: self._events(value, self.types[name]) if name in self.types else plain(value)
                for name, value in row.items()
            }

    def _events(self, value: Any, types: Sequence[str]) -> Any:
        if isinstance(value, list):
            return [self._events(item, types) for item in value]
        if value is None:
            return None
        if self.omits_nulls:
            return {name: plain(item) for name, item in value.items() if item is not None and name != TYPE}
        kind = types[0] if len(types) == 1 else value.pop(TYPE, value.get(self.type_column))
        has = self.attributes.get(kind, value.keys())
        return {name: plain(item) for name, item in value.items() if name in has}


class Sink(Protocol):
    def write(self, batch: pa.RecordBatch) -> None: ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class _JsonLines:
    file: IO[bytes]
    schema: pa.Schema
    objects: Objects

    def write(self, batch: pa.RecordBatch) -> None:
        is_text = TEXT in batch.schema.names
        lines = batch.column(TEXT).to_pylist() if is_text else map(dumps, self.objects.of(batch))
        self.file.writelines(line.encode() + b"\n" for line in lines)

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
        self._write([[cell(value) for value in row.values()] for row in self.objects.of(batch)])

    def close(self) -> None:
        self.file.flush()

    def _write(self, rows: Sequence[Sequence[Any]]) -> None:
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(rows)
        self.file.write(text.getvalue().encode())


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
