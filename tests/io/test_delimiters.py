"""CSV files with other characters than commas between the cells, and files that no format reads."""

from __future__ import annotations

import gzip
from pathlib import Path

import pyarrow as pa
import pytest
from text_harness import cepheid, lines

from cepheid.errors import InputProblem
from cepheid.events import Schema
from cepheid.io import files
from cepheid.io.formats import BrokenRow, RawRow
from cepheid.io.formats.csv import csv_columns, csv_rows, stored_csv
from cepheid.io.inputs import Columns
from cepheid.io.stream_files import StreamFiles

QUERY = "EVENT SEQ(A a, B b) WHERE a.k = b.k"
ROWS = [
    ["ts", "type", "k", "note"],
    ["1", "A", "7", '"x, ; | y"'],
    ["2", "B", "7", '"two\nlines"'],
    ["3", "B", "8", '"a ""quote"""'],
    ["4", "B", "7", ""],
]


def text(delimiter: str, rows: list[list[str]] = ROWS) -> str:
    return "".join(delimiter.join(row) + "\n" for row in rows)


def run(*arguments: object) -> list[object]:
    found = cepheid("run", "--query", QUERY, *arguments)
    assert found.exit_code == 0, found.stderr
    return lines(found)


@pytest.mark.parametrize("delimiter", [";", "\t", "|"])
@pytest.mark.parametrize("by_columns", [False, True])
def test_the_header_shows_the_delimiter(
    tmp_path: Path, delimiter: str, by_columns: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if by_columns:
        monkeypatch.setattr(files, "LEAST_TEXT", 0)
    (tmp_path / "commas.csv").write_text(text(","))
    (tmp_path / "others.csv").write_text("\N{ZERO WIDTH NO-BREAK SPACE}" + text(delimiter))
    expected = run("--input", tmp_path / "commas.csv")
    assert run("--input", tmp_path / "others.csv") == expected and len(expected) == 2


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_rows_and_columns_are_the_same_also_beside_broken_rows(tmp_path: Path, delimiter: str) -> None:
    file = tmp_path / "a.csv"
    good = [["5", "A", "1", '"x"'], ["6", "B", "2", "y,;|z".replace(delimiter, "")]] * 20
    file.write_text(text(delimiter, [ROWS[0], *good, ["7", "A"], ["8", "A", "1", '"q"r'], *good]))
    found, rows = csv_columns(file, Columns(), None), csv_rows(file, Columns(), None)
    assert found is not None and len(found.broken) == 2
    assert found.rows.to_pylist() == [row.values for row in rows if isinstance(row, RawRow)]
    assert sorted(found.broken, key=lambda row: row.line) == [row for row in rows if isinstance(row, BrokenRow)]


def test_tsv_files_have_tabs_and_may_be_compressed(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text(text("\t"))
    (tmp_path / "b.tsv.gz").write_bytes(gzip.compress(text("\t").encode()))
    assert len(run("--input", tmp_path / "a.tsv")) == len(run("--input", tmp_path / "b.tsv.gz")) == 2


def test_the_option_names_any_other_delimiter(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text(text("~"))
    assert len(run("--input", file, "--delimiter", "~")) == 2
    file.write_text(text("\t"))
    assert len(run("--input", file, "--delimiter", "\\t")) == 2
    refused = cepheid("run", "--query", QUERY, "--input", file, "--delimiter", "::")
    assert refused.exit_code != 0 and "one character" in refused.stderr


def test_a_header_without_the_time_column_is_shown_by_columns(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(text(";"))
    refused = cepheid("run", "--query", QUERY, "--input", tmp_path / "a.csv", "--time-column", "at")
    assert "the file has `k`, `note`, `ts`, `type`" in refused.stderr


def test_files_of_a_stream_have_headers_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(text(";"))
    (tmp_path / "b.tsv").write_text(text("\t"))
    found = StreamFiles.first(str(tmp_path), Columns(), None, Schema({}), False)
    assert found is not None
    read = found.read([str(tmp_path / "a.csv"), str(tmp_path / "b.tsv")])
    assert read.rejects.num_rows == 0 and read.events.column("k").to_pylist() == [7, 7, 8, 7] * 2


@pytest.mark.parametrize(("name", "delimiter"), [("a.tsv", "\t"), ("a.csv", ";")])
def test_workers_refuse_files_without_commas(tmp_path: Path, name: str, delimiter: str) -> None:
    (tmp_path / name).write_text(text(delimiter))
    schema = pa.schema([("ts", pa.int64()), ("type", pa.string()), ("k", pa.int64()), ("note", pa.string())])
    with pytest.raises(InputProblem, match="workers read CSV files with commas"):
        stored_csv([str(tmp_path / name)], schema, header=True)


def test_files_of_unknown_formats_are_named(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(text(","))
    for name in ("README.txt", "b.xlsx", "_SUCCESS", ".a.csv.crc"):
        (tmp_path / name).write_text("?")
    found = cepheid("run", "--query", QUERY, "--input", tmp_path)
    assert "2 files of unknown format not read: `README.txt`, `b.xlsx`" in found.stderr
    assert "of unknown format" not in cepheid("run", "--query", QUERY, "--input", tmp_path / "a.csv").stderr


def test_compressed_files_are_named_where_formats_are(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("?")
    assert ".csv.gz" in cepheid("run", "--query", QUERY, "--input", tmp_path / "a.txt").stderr
    assert ".csv.gz" in cepheid("run", "--query", QUERY, "--input", tmp_path).stderr
