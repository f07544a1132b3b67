"""CSV files that Spark's workers read: however they are cut, every line is a row or is result about."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

import cepheid
from cepheid.errors import InputProblem, NotAvailable
from cepheid.io.formats import csv
from cepheid.io.formats.csv import CsvReader, ParsedLines, stored_csv
from cepheid.io.shares import Part, StoredFile
from cepheid.spark.dataframes import CsvFiles

LAYOUT = pa.schema([("type", pa.string()), ("ts", pa.int64()), ("id", pa.int64()), ("v", pa.float64())])
SCHEMA = "type string, ts long, id long, v double"
QUERIES = {
    "keyed": "EVENT SEQ(A x, B y) WHERE [id] WITHIN 20",
    "sliced": "EVENT SEQ(A x, B y) WHERE x.v < y.v WITHIN 9",
    "undivided": "EVENT SEQ(A x, B y) WITHIN 3 events",
    "limited": "EVENT SEQ(A x, B y) WHERE [id] WITHIN 20 LIMIT 7",
    "counted": "EVENT SEQ(A x, B y) WHERE [id] WITHIN 20 RETURN count(*) AS n",
    "nested": "SELECT * FROM A; B WHERE A.id = B.id",
}


# --- lines and ranges -------------------------------------------------------------------------------------------------

GOOD = st.sampled_from(["A,1,2,3.5", "B,2,,", '"A,B",3,1,1e3', ",4,1,2", "é,5,1,.5", '"say ""no""",6,1,2'])
BAD = st.sampled_from(["A,x,1,2", "A,1,2", "A,1,2,3,4", "A,1,1.5,2", 'A,1,2,"3', 'A,1,"2,3', "\u00a0"])


@given(
    lines=st.lists(st.one_of(GOOD, GOOD, GOOD, BAD, st.just("")), max_size=12),
    range_size=st.integers(1, 60),
    header=st.booleans(),
    ending=st.sampled_from(["", "\n"]),
    newline=st.sampled_from(["\n", "\r\n"]),
)
@settings(max_examples=examples(300), deadline=None)
def test_every_line_is_read_once_however_a_file_is_cut(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], range_size: int, header: bool, ending: str, newline: str
) -> None:
    file = tmp_path_factory.mktemp("csv") / "events.csv"
    content = newline.join([*(["a header"] if header else []), *lines]) + ending
    file.write_bytes(content.encode())
    reader = CsvReader((StoredFile(str(file)),), LAYOUT, header)
    size = len(content.encode())
    rows: list[tuple[Any, ...]] = []
    unfit: list[str] = []
    for at in range(0, size, range_size):
        for found in reader.read(Part(0, at, min(range_size, size - at)), LAYOUT.names):
            if isinstance(found, ParsedLines):
                rows += map(tuple, (row.values() for row in found.rows.to_pylist()))
                assert len(found.lines.splitlines()) == found.rows.num_rows
            else:
                unfit.append(found.line.decode().strip("\r\n"))
    expected = [line for line in lines if line in _ROWS]
    refused = [line for line in lines if line not in _ROWS]
    assert rows == [_ROWS[line] for line in expected]
    assert unfit == [line for line in refused if line]


_ROWS = {
    "A,1,2,3.5": ("A", 1, 2, 3.5),
    "B,2,,": ("B", 2, None, None),
    '"A,B",3,1,1e3': ("A,B", 3, 1, 1000.0),
    ",4,1,2": (None, 4, 1, 2.0),
    "é,5,1,.5": ("é", 5, 1, 0.5),
    '"say ""no""",6,1,2': ('say "no"', 6, 1, 2.0),
}


def test_only_columns_that_are_needed_must_fit() -> None:
    (found,) = CsvReader((), LAYOUT, header=False).parsed(b"A,1,not a number,2\n", ("type", "ts"))
    assert isinstance(found, ParsedLines) and found.rows.to_pylist() == [{"type": "A", "ts": 1}]


def test_a_range_is_as_long_as_it_is_worth(tmp_path: Path) -> None:
    file = tmp_path / "events.csv"
    file.write_bytes(b"A,1,2,3\n" * (csv._RANGE // 4))
    stored = stored_csv([str(file)], LAYOUT, header=False)
    assert [(part.first, part.size) for part in stored.parts] == [(0, csv._RANGE), (csv._RANGE, csv._RANGE)]
    assert stored.size == 2 * csv._RANGE
    assert stored.rows == csv._RANGE // 4


# --- on Spark ---------------------------------------------------------------------------------------------------------


def _events(count: int) -> pa.Table:
    chance = random.Random(4)
    rows = []
    for n in range(count):
        row = {"type": chance.choice("ABC"), "ts": n // 2, "id": chance.choice([1, 2, 3, None]), "v": chance.random()}
        rows.append(row)
    chance.shuffle(rows)
    return pa.Table.from_pylist(rows, LAYOUT)


def _rows(found: Any) -> list[str]:
    table = found if isinstance(found, pa.Table) else found.toArrow()
    return sorted(repr(row) for row in table.to_pylist())


@pytest.mark.spark
@pytest.mark.parametrize("name", QUERIES)
@pytest.mark.parametrize("partitions", [None, 3])
def test_matches_are_those_of_the_same_rows_in_parquet(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, partitions: int | None
) -> None:
    """The order of files and lines decides between events of the same time, so the order of rows must be kept."""
    monkeypatch.setattr(csv, "_RANGE", 1_000)
    table = _events(300)
    directory = tmp_path / "csv"
    directory.mkdir()
    options = pyarrow.csv.WriteOptions(include_header=True)
    for number in range(2):
        pyarrow.csv.write_csv(table.slice(number * 150, 150), directory / f"{number}.csv", options)
    pyarrow.parquet.write_table(table, tmp_path / "events.parquet")
    wanted = cepheid.match(QUERIES[name], str(tmp_path / "events.parquet"))
    assert wanted.num_rows
    files = CsvFiles(str(directory), SCHEMA, header=True)
    found, rejects = cepheid.match(QUERIES[name], files, session=spark, partitions=partitions, rejects=True)
    assert _rows(found) == _rows(wanted)
    assert rejects.count() == 0


@pytest.mark.spark
def test_lines_that_are_no_events_are_told_about(spark: SparkSession, tmp_path: Path) -> None:
    file = tmp_path / "events.csv"
    file.write_text('A,1,1,1\nA,soon,1,1\nB,,1,2\nB,3,1\n\nB,4,1,2\nB,5,"1,2\n', encoding="utf-8")
    found, rejects = cepheid.match(QUERIES["keyed"], CsvFiles(str(file), SCHEMA), session=spark, rejects=True)
    assert [(row.x.ts, row.y.ts) for row in found.collect()] == [(1, 4)]
    result = {row.line: (row.path.endswith("/events.csv"), row.reject_reason) for row in rejects.collect()}
    assert list(result) == ["A,soon,1,1", "B,,1,2", "B,3,1", 'B,5,"1,2']
    assert all(is_named for is_named, _ in result.values())
    reasons = [reason for _, reason in result.values()]
    assert "'soon'" in reasons[0] and "Row" not in reasons[0]
    assert reasons[1] == "no time: `ts` is null"
    assert "Expected 4 columns, got 3" in reasons[2]


@pytest.mark.spark
def test_columns_that_only_spark_can_read_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    file = tmp_path / "events.csv"
    file.write_text("A,1\n", encoding="utf-8")
    with pytest.raises(InputProblem, match=r"the column `ts` of a CSV file is declared as timestamp"):
        cepheid.match("EVENT A x", CsvFiles(str(file), "type string, ts timestamp"), session=spark)
    with pytest.raises(InputProblem, match="workers cannot read `abfs://"):
        stored_csv(["abfs://far/away.csv"], LAYOUT, header=False)
    with pytest.raises(InputProblem, match="no column `ts`"):
        cepheid.match("EVENT A x", CsvFiles(str(file), "type string, at long"), session=spark)


@pytest.mark.spark
def test_what_else_takes_events_takes_csv_files(spark: SparkSession, tmp_path: Path) -> None:
    file = tmp_path / "events.csv"
    pyarrow.csv.write_csv(_events(50), file)
    files = CsvFiles(str(file), SCHEMA, header=True)
    assert "one task reads the files" in cepheid.explain(QUERIES["keyed"], files)
    assert cepheid.statistics(QUERIES["keyed"], files)
    with pytest.raises(NotAvailable):
        cepheid.match(QUERIES["keyed"], files, output="positions")


WIDE = "type string, ts long, x long, y double, z long"
WIDE_ROWS = ["A,1,1,nan,1", "B,2,1,inf,2", "A,3,1,-inf,zz", "B,4,1,1.5,3", f"B,{2**62},1,2,2", "B,,1,2,2"]


@pytest.mark.spark
@pytest.mark.parametrize(
    ("query", "evaluator", "matches", "bad"),
    [
        ("EVENT SEQ(A a, B b) WHERE a.x = b.x RETURN a.ts AS at, b.ts AS bt", None, {(1, 2), (1, 4), (3, 4)}, set()),
        ("SELECT A.ts AS at, B.ts AS bt FROM A; B WHERE A.x = B.x", None, {(1, 2), (3, 4)}, set()),
        ("SELECT A.ts AS at, B.ts AS bt FROM A; B WHERE A.x = B.x", "reference", {(1, 2)}, {WIDE_ROWS[2]}),
        ("EVENT SEQ(A a, B b) WHERE a.x = b.x RETURN count(*) AS n, max(b.ts) AS last", None, {(3, 4)}, set()),
    ],
    ids=["compiled", "successors", "by the oracle, which reads all columns", "a summary"],
)
def test_no_line_is_lost_silently(
    spark: SparkSession, tmp_path: Path, query: str, evaluator: str | None, matches: set[tuple[int, int]], bad: set[str]
) -> None:
    (tmp_path / "e.csv").write_text("\n".join(WIDE_ROWS))
    files = CsvFiles(str(tmp_path / "e.csv"), WIDE)
    found, rejects = cepheid.match(query, files, session=spark, evaluator=evaluator, rejects=True)
    assert {tuple(row)[:2] for row in found.collect()} == matches
    reasons = {row["line"]: row["reject_reason"] for row in rejects.collect()}
    assert reasons.keys() == {*bad, *WIDE_ROWS[4:]}
    assert "does not fit" in reasons[WIDE_ROWS[4]] and "no time" in reasons[WIDE_ROWS[5]]
