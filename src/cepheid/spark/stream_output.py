"""Where a stream's matches, late events and rejects go.

A batch that is run again after a crash gives the same rows, and its files have the same names: it replaces what it
wrote before, so nothing is ever there twice. A file is there whole or not at all: whoever reads a directory of output
reads only what is certain.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from cepheid.errors import InputProblem, listing, shown
from cepheid.io.tables import plain
from cepheid.spark.places import Place, place

FORMATS = ("parquet", "jsonl")
END_OF_TIME_NAME = "end-of-time"
RAW = "\0raw"
"""A column that holds an event as the line of JSON that it was."""
LINE = "\0line"
"""A column that holds a whole match as a line of JSON."""


class Sink(Protocol):
    """Takes the rows of a batch. It may be given a batch that it was given before, with the same rows and name."""

    def write(self, batch: str, rows: pa.Table) -> None: ...

    def forget(self, batch: str) -> None:
        """Take back what a batch wrote."""
        ...


@dataclass(frozen=True, slots=True)
class FileSink:
    """One file for each batch that has rows."""

    place: Place
    format: str = "parquet"

    def write(self, batch: str, rows: pa.Table) -> None:
        if rows.num_rows:
            self.place.write(self._name(batch), as_parquet(rows) if self.format == "parquet" else as_json_lines(rows))

    def forget(self, batch: str) -> None:
        self.place.remove(self._name(batch))

    def _name(self, batch: str) -> str:
        return f"{batch}.{self.format}"


@dataclass(frozen=True, slots=True)
class HookSink:
    """Calls a function with each row, for alerts. After a crash the rows of the last batch may come again, under the
    same name: whoever must not act twice remembers the name."""

    hook: Callable[[Mapping[str, Any], str], None]

    def write(self, batch: str, rows: pa.Table) -> None:
        for row in rows.to_pylist():
            self.hook(row, batch)

    def forget(self, batch: str) -> None:
        """What was told cannot be taken back."""


def batch_name(batch_id: int) -> str:
    return f"batch-{batch_id:012d}"


def file_sink(path: str, format: str, session: Any = None) -> FileSink:
    if format not in FORMATS:
        raise InputProblem(f"`{shown(format)}` is no format of output", expected=f"one of {listing(FORMATS)}")
    return FileSink(place(path, session), format)


# --- formats ----------------------------------------------------------------------------------------------------------


def as_parquet(rows: pa.Table) -> bytes:
    sink = io.BytesIO()
    pq.write_table(rows, sink)
    return sink.getvalue()


def as_json_lines(rows: pa.Table) -> bytes:
    if rows.schema.names == [LINE]:
        return b"".join(line.encode() + b"\n" for line in rows.column(LINE).to_pylist())
    return b"".join(json.dumps(_shown(row), ensure_ascii=False).encode() + b"\n" for row in rows.to_pylist())


def _shown(value: Any) -> Any:
    """A value as JSON; an event that was read from a line of JSON is what the line said."""
    if isinstance(value, dict):
        if RAW in value:
            return json.loads(value[RAW])
        return {name: _shown(item) for name, item in value.items()}
    return [_shown(item) for item in value] if isinstance(value, list) else plain(value)


# --- reading it again -------------------------------------------------------------------------------------------------


def read_output(path: str, session: Any = None) -> pa.Table:
    """All rows that a stream has written to a directory, the batches in order."""
    directory = place(path, session)
    tables = list(_tables(directory, directory.names()))
    if not tables:
        raise InputProblem(f"there is no output of a stream in `{shown(path, 200)}` yet")
    return pa.concat_tables(tables, promote_options="permissive")


def _tables(directory: Place, names: Sequence[str]) -> Iterator[pa.Table]:
    for name in names:
        content = directory.read(name)
        if content is None:
            continue
        if name.endswith(".parquet"):
            yield pq.read_table(pa.BufferReader(content))
        elif name.endswith(".jsonl"):
            yield pa.Table.from_pylist([json.loads(line) for line in content.splitlines()])
