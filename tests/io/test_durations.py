"""Inputs of events with duration: a start column beside the time column, in every format."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pcsv
import pyarrow.feather as feather
import pyarrow.orc as orc
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import cepheid
from cepheid.app import cli
from cepheid.errors import InputProblem
from cepheid.io import files
from cepheid.io.files import FileSource, open_files
from cepheid.io.inputs import Columns, Input
from cepheid.io.rows import START, TIME
from cepheid.io.source import Source

COLUMNS = Columns(start="began")
ROWS = [
    {"type": "A", "began": 5, "ts": 6, "v": 1},
    {"type": "B", "began": 1, "ts": 6, "v": 2},
    {"type": "A", "began": 3, "ts": 4, "v": 3},
    {"type": "B", "began": 1, "ts": 6, "v": 4},
    {"type": "B", "began": 9, "ts": 10, "v": 5},
]
IN_ORDER = [(3, 4, 3), (1, 6, 2), (1, 6, 4), (5, 6, 1), (9, 10, 5)]
"""Start, end and `v` by end, then start, then arrival."""
QUERY = "EVENT SEQ(A x, B y) WITHIN 20"


def _csv(table: pa.Table, path: Path) -> None:
    pcsv.write_csv(table, path)


def _jsonl(table: pa.Table, path: Path) -> None:
    path.write_text("".join(json.dumps(row, default=str) + "\n" for row in table.to_pylist()))


WRITERS: dict[str, Callable[[pa.Table, Path], Any]] = {
    "csv": _csv,
    "jsonl": _jsonl,
    "parquet": lambda table, path: pq.write_table(table, path),
    "arrow": lambda table, path: feather.write_feather(table, path),
    "orc": lambda table, path: orc.write_table(table, str(path)),
}


def _events(source: Source) -> list[tuple[int, int, int]]:
    """The start, the end and `v` of each event."""
    rows = [row for batch in source.batches(["v"]) for row in batch.to_pylist()]
    return [(row[START], row[TIME], row["v"]) for row in rows]


def _open(tmp_path: Path, format: str, table: pa.Table) -> Source:
    path = tmp_path / f"events.{format}"
    WRITERS[format](table, path)
    return open_files([Input(str(path))], COLUMNS)


@pytest.mark.parametrize("small", [True, False])
@pytest.mark.parametrize("format", WRITERS)
def test_every_format_has_starts(tmp_path: Path, format: str, small: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not small:
        monkeypatch.setattr(files, "LEAST_TEXT", 0)
    source = _open(tmp_path, format, pa.Table.from_pylist(ROWS))
    assert isinstance(source, FileSource) == (not small or format in ("parquet", "arrow", "orc"))
    assert _events(source) == IN_ORDER
    assert source.rejected == 0


@pytest.mark.parametrize("format", WRITERS)
def test_starts_are_timestamps_as_times_are(tmp_path: Path, format: str) -> None:
    kind = pa.timestamp("us")
    table = pa.Table.from_pylist(ROWS)
    for name in ("began", "ts"):
        times = pc.multiply(table.column(name), 1_000_000).cast(kind)
        table = table.set_column(table.column_names.index(name), name, times)
    source = _open(tmp_path, format, table)
    assert _events(source) == [(start * 1_000_000, end * 1_000_000, v) for start, end, v in IN_ORDER]


@pytest.mark.parametrize("small", [True, False])
@pytest.mark.parametrize("format", WRITERS)
def test_a_start_after_its_end_or_none_is_rejected_with_the_reason(
    tmp_path: Path, format: str, small: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not small:
        monkeypatch.setattr(files, "LEAST_TEXT", 0)
    bad = [{"type": "A", "began": 8, "ts": 7, "v": 6}, {"type": "A", "began": None, "ts": 7, "v": 7}]
    source = _open(tmp_path, format, pa.Table.from_pylist([*ROWS[:2], *bad, *ROWS[2:]]))
    assert _events(source) == IN_ORDER
    assert source.rejected == 2
    first, second = source.rejects()
    assert first.reason == "the start is after the end: `began` is later than `ts`"
    assert second.reason == "no start: `began` is null"
    header = format == "csv"
    assert [first.line, second.line] == [3 + header, 4 + header]


@pytest.mark.parametrize("small", [True, False])
@pytest.mark.parametrize("format", WRITERS)
def test_a_start_of_another_type_than_the_time_is_an_error(
    tmp_path: Path, format: str, small: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not small:
        monkeypatch.setattr(files, "LEAST_TEXT", 0)
    table = pa.Table.from_pylist(ROWS)
    table = table.set_column(1, "began", table.column("began").cast(pa.timestamp("s")).cast(pa.timestamp("us")))
    with pytest.raises(InputProblem, match=r"the start column `began` holds timestamp.* but the time column `ts`"):
        _open(tmp_path, format, table)


@pytest.mark.parametrize("format", [format for format in WRITERS if format != "jsonl"])
def test_a_missing_start_column_is_an_error(tmp_path: Path, format: str) -> None:
    with pytest.raises(InputProblem, match="no column `began`"):
        _open(tmp_path, format, pa.Table.from_pylist(ROWS).drop_columns(["began"]))


def test_tables_of_every_library_have_starts() -> None:
    table = pa.Table.from_pylist(ROWS)
    polars = pytest.importorskip("polars")
    expected = [(3, 10), (5, 10)]
    for events in (table, table.to_pandas(), polars.from_arrow(table), table.to_batches()[0]):
        found = cepheid.match(QUERY, events, start_column="began", evaluator="reference")
        if hasattr(found, "to_arrow"):
            found = found.to_arrow()
        elif not hasattr(found, "to_pylist"):
            found = pa.Table.from_pandas(found)
        assert [(row["match_start"], row["match_end"]) for row in found.to_pylist()] == expected


def test_batches_in_time_order_have_starts() -> None:
    table = pa.Table.from_pylist(ROWS).sort_by([("ts", "ascending"), ("began", "ascending")])
    reader = pa.RecordBatchReader.from_batches(table.schema, table.to_batches(2))
    found = cepheid.match(QUERY, reader, start_column="began", evaluator="reference").read_all()
    assert [(row["match_start"], row["match_end"]) for row in found.to_pylist()] == [(3, 10), (5, 10)]


def test_a_table_with_a_start_after_its_end_is_refused_as_one_without_a_time_is() -> None:
    table = pa.Table.from_pylist([*ROWS, {"type": "A", "began": 12, "ts": 11, "v": 6}])
    with pytest.raises(InputProblem, match="row 5 cannot be: the start is after the end"):
        cepheid.match(QUERY, table, start_column="began")


def test_epochs_with_fractions_are_timestamps_in_both_columns(tmp_path: Path) -> None:
    rows = [{"type": "A", "began": 1_700_000_000.25, "ts": 1_700_000_001, "v": 1}]
    (tmp_path / "e.jsonl").write_text(json.dumps(rows[0]))
    expected = [(1_700_000_000_250_000, 1_700_000_001_000_000, 1)]
    assert _events(open_files([Input(str(tmp_path / "e.jsonl"))], COLUMNS)) == expected


def test_the_command_line_counts_rejects_with_the_reason(tmp_path: Path) -> None:
    path, output = tmp_path / "e.jsonl", tmp_path / "m.jsonl"
    bad = {"type": "A", "began": 8, "ts": 7, "v": 6}
    path.write_text("".join(json.dumps(row) + "\n" for row in [*ROWS, bad]))
    given = ["run", "--query", QUERY, "-i", str(path), "--start-column", "began", "-o", str(output)]
    result = CliRunner().invoke(cli.app, [*given, "--backend", "reference"])
    assert result.exit_code == 0 and "1 reject" in result.stderr
    found = [json.loads(line) for line in output.read_text().splitlines()]
    assert [(row["match_start"], row["match_end"]) for row in found] == [(3, 10), (5, 10)]
    (reject,) = [json.loads(line) for line in (tmp_path / "m.jsonl.rejects.jsonl").read_text().splitlines()]
    assert reject["reason"] == "the start is after the end: `began` is later than `ts`"
