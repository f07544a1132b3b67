"""Large text files as columns, held against the row reader: from the command line, whatever the format."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner, Result

from cepheid.app import cli
from cepheid.errors import InputProblem
from cepheid.events import Event
from cepheid.io import files, merged
from cepheid.io.files import FileSource
from cepheid.io.formats.csv import csv_columns
from cepheid.io.formats.text import TextTable
from cepheid.io.inputs import DEFAULT_COLUMNS, Columns, Input
from cepheid.io.refusals import rejects_of
from cepheid.io.row_reader import Loaded, read_events
from cepheid.io.source import Source

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def read_by_rows(file: Path, given_type: str | None, columns: Columns = DEFAULT_COLUMNS) -> Loaded | None:
    """None where the row reader refuses the whole file."""
    try:
        return read_events([Input(str(file), given_type)], columns)
    except InputProblem:
        return None


def has_types(table: pa.Table, given_type: str | None) -> bool:
    return given_type is None and "type" in table.column_names and not pa.types.is_null(table["type"].type)


def rows_with_events(
    file: Path, found: TextTable, given_type: str | None, columns: Columns, *, is_tabular: bool
) -> tuple[Loaded, list[tuple[dict[str, Any], Event]]] | None:
    """What the row reader makes of the file, and each row of the table with its event: the times, the types and the
    rejects are the same. None if the rejects are left to the row reader."""
    table, loaded = found.rows, read_by_rows(file, given_type, columns)
    rejects = rejects_of(found, str(file), columns, given_type, is_tabular=is_tabular)
    if rejects is None:
        return None
    assert loaded is not None and loaded.rejects == rejects
    assert loaded.rows == len(loaded.events) + len(rejects) == table.num_rows + len(rejects)
    is_timestamp = pa.types.is_timestamp(table["ts"].type)
    assert loaded.is_timestamp == is_timestamp
    rows: list[dict[str, Any]] = sorted(table.to_pylist(), key=lambda row: [row[name] for name in columns.times])
    pairs = list(zip(rows, loaded.events, strict=True))
    for row, event in pairs:
        assert event.type == (given_type or (row["type"] if has_types(table, given_type) else ""))
        if is_timestamp:
            assert (row["ts"] - EPOCH) // timedelta(microseconds=1) == event.end
            for name in columns.times:
                row[name] = event.row[name]  # in another form than a large file shows
        else:
            assert row["ts"] == event.end
            assert columns.start is None or row[columns.start] == event.start
    return loaded, pairs


def cepheid(*arguments: object) -> Result:
    return CliRunner().invoke(cli.app, [str(argument) for argument in arguments])


@dataclass(frozen=True)
class Case:
    """A query, files and how they are given; and whether there are matches."""

    query: str
    files: dict[str, str]
    inputs: tuple[str, ...] = ("a.csv",)
    options: tuple[str, ...] = ()
    finds: bool = True


def write_files(directory: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        place = directory / name
        place.parent.mkdir(exist_ok=True)
        if place.suffix == ".parquet":
            text_file = directory / "as-text"
            text_file.write_text(text)
            found = csv_columns(text_file, Columns(), None)
            assert found is not None
            pq.write_table(found.rows, place)
        else:
            place.write_bytes(text.encode())


def is_by_columns(backend: str, case: Case, directory: Path, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether the files were read as columns; the answers are those of the reference in any case."""
    write_files(directory, case.files)
    monkeypatch.chdir(directory)
    inputs = [word for item in case.inputs for word in ("--input", item)]
    arguments = ("run", "--query", case.query, *inputs, *case.options, "--backend")
    with monkeypatch.context() as patched:
        patched.setattr(files, "column_source", lambda *_: None)
        by_rows = cepheid(*arguments, "reference")
    opened: list[Source] = []

    def open_files(*arguments: Any) -> Source:
        opened.append(files.open_files(*arguments))
        return opened[-1]

    with monkeypatch.context() as patched:
        patched.setattr(files, "LEAST_TEXT", 0)
        patched.setattr(merged, "open_files", open_files)
        found = cepheid(*arguments, backend)
    assert found.exit_code == by_rows.exit_code, found.exception
    assert lines(found) == lines(by_rows) and bool(lines(by_rows)) == case.finds
    assert said(found) == said(by_rows)
    return any(isinstance(source, FileSource) for source in opened)


def lines(result: Result) -> list[Any]:
    """In one order: a kernel finds the matches that one event completes in an order of its own."""

    def known(line: str) -> str:
        return json.dumps(json.loads(line, parse_int=float), sort_keys=True)

    return [json.loads(line) for line in sorted(result.stdout.splitlines(), key=known)]


def said(result: Result) -> list[str]:
    """Without the evaluator, and how far the events got: only compiled evaluators count that."""
    summary, _, _ = result.stderr.partition("no match:")
    return [line for line in summary.splitlines() if not line.startswith("evaluated by")]
