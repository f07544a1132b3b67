"""Sinks of a stream's matches, late events and rejects.

A batch that runs again after a crash has the same rows and the same file names, so it replaces what it wrote before and
no row is written twice. A file appears completely or not at all, so readers of the output see committed rows only.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from cepheid.errors import InputProblem, shown
from cepheid.io.rows import ROW, dumps, plain, row_dicts
from cepheid.io.sinks import TEXT
from cepheid.streaming.outputs import QUERY, TABLE
from cepheid.streaming.storage import Directory

FORMATS = ("parquet", "jsonl")
END_OF_TIME_NAME = "end-of-time"


class Sink(Protocol):
    """Takes the rows of a batch. A batch may come again, with the same rows and name."""

    def write(self, batch: str, rows: pa.Table, table: str = "") -> None:
        """`table` names the table of the rows, where there may be several."""

    def forget(self, batch: str) -> None:
        """Removes what a batch wrote."""

    def directories(self) -> Sequence[Directory]:
        """The directories that it writes to."""


@dataclass(frozen=True, slots=True)
class FileSink:
    """One file for each batch that has rows; in a directory for each table, where there may be several."""

    directory: Directory
    format: str = "parquet"

    def write(self, batch: str, rows: pa.Table, table: str = "") -> None:
        if not rows.num_rows:
            return
        content = as_parquet(rows) if self.format == "parquet" else as_json_lines(rows)
        directory = self.directory.inside(table) if table else self.directory
        directory.write(f"{batch}.{self.format}", content)
        self._remove(directory, batch, self.format)  # of a run with another format

    def forget(self, batch: str) -> None:
        for directory in with_tables(self.directory):
            self._remove(directory, batch)

    def directories(self) -> Sequence[Directory]:
        return [self.directory]

    def _remove(self, directory: Directory, batch: str, kept: str | None = None) -> None:
        for format in FORMATS:
            if format != kept:
                directory.remove(f"{batch}.{format}")


def with_tables(directory: Directory) -> list[Directory]:
    """A directory of output, and those of its tables."""
    tables = [name for name in directory.directories() if name.startswith(TABLE)]
    return [directory, *map(directory.inside, tables)]


Hook = Callable[[Mapping[str, Any], str], None]


@dataclass(frozen=True, slots=True)
class HookSink:
    """Calls a function with each row, for alerts. After a crash the rows of the last batch may come again, under the
    same name: a hook that must not act twice remembers the name."""

    hook: Hook

    def write(self, batch: str, rows: pa.Table, table: str = "") -> None:
        for row in row_dicts(rows):
            self.hook(row, batch)

    def forget(self, batch: str) -> None:
        """A call cannot be undone."""

    def directories(self) -> Sequence[Directory]:
        return []


def batch_name(batch_id: int) -> str:
    return f"batch-{batch_id:012d}"


# --- directories with output ------------------------------------------------------------------------------------------

_OUTPUT = re.compile(rf"(batch-\d{{12}}|{END_OF_TIME_NAME})\.({'|'.join(FORMATS)})|batch=\d+|{TABLE}[0-9a-f]{{8}}")


def require_empty(directory: Directory, checkpoint: str) -> None:
    """Refuses a directory with the output of another stream: batches with the same number would replace each other."""
    if any(map(_OUTPUT.fullmatch, [*directory.names(), *directory.directories()])):
        raise InputProblem(
            f"`{shown(directory.name, 200)}` has the output of another stream, not of the one with the checkpoint "
            f"`{shown(checkpoint, 200)}`",
            expected="a directory without output, or the checkpoint that the output was written with",
            hint="use another output directory, or empty this one; if the directory was moved, confirm it with --moved",
        )


# --- formats ----------------------------------------------------------------------------------------------------------


def as_parquet(rows: pa.Table) -> bytes:
    sink = io.BytesIO()
    pq.write_table(rows, sink)
    return sink.getvalue()


def as_json_lines(rows: pa.Table) -> bytes:
    if rows.schema.names == [TEXT]:
        return b"".join(line.encode() + b"\n" for line in rows.column(TEXT).to_pylist())
    return b"".join(dumps(_shown(row)).encode() + b"\n" for row in row_dicts(rows))


def _shown(value: Any) -> Any:
    """A value as JSON. An event that was read from a JSON line is output as that line."""
    if isinstance(value, dict):
        if ROW in value:
            return json.loads(value[ROW])
        return {name: _shown(item) for name, item in value.items()}
    return [_shown(item) for item in value] if isinstance(value, list) else plain(value)


# --- reading the output -----------------------------------------------------------------------------------------------


def read_rows(directory: Directory, query: str | None = None) -> pa.Table | None:
    """All rows that a stream has written to a directory, the batches in order; None before the first. Those of several
    tables have the columns of all; those of one `query` have its own columns, without its name."""
    tables = [rows for one in with_tables(directory) for rows in _tables(one)]
    if query is not None:
        named = [rows.filter(pc.equal(rows.column(QUERY), query)) for rows in tables if QUERY in rows.schema.names]
        tables = [rows.drop_columns([QUERY]) for rows in named if rows.num_rows]
    try:
        return pa.concat_tables(tables, promote_options="permissive") if tables else None
    except (pa.ArrowTypeError, pa.ArrowInvalid) as problem:
        raise InputProblem(
            f"the tables of the output have columns of one name whose types differ: {shown(_differing(tables), 200)}",
            expected="tables whose columns can stand in one",
            hint="read the matches of one query (`query=`), or one table by its own directory",
        ) from problem


def has_rows(directory: Directory) -> bool:
    """Whether a stream has written rows to a directory."""
    return any(rows.num_rows for one in with_tables(directory) for rows in _tables(one))


def _differing(tables: Sequence[pa.Table]) -> str:
    """The first column that has types of which none holds the values of all."""
    known: dict[str, pa.Field] = {}
    for field in (field for rows in tables for field in rows.schema):
        both = [pa.schema([known.get(field.name, field)]), pa.schema([field])]
        try:
            known[field.name] = pa.unify_schemas(both, promote_options="permissive").field(0)
        except (pa.ArrowTypeError, pa.ArrowInvalid):
            return str(field.name)
    raise AssertionError("no column differs")


def _tables(directory: Directory) -> Iterator[pa.Table]:
    for name in directory.names():
        content = directory.read(name)
        if content is None:
            continue
        if name.endswith(".parquet"):
            yield pq.read_table(pa.BufferReader(content))
        elif name.endswith(".jsonl"):
            yield pa.Table.from_pylist([json.loads(line) for line in content.splitlines()])
