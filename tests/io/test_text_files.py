"""Text files on the command line, read as columns or row by row: every backend has the matches of the reference."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from text_harness import Case, cepheid, is_by_columns

from cepheid.events import Schema
from cepheid.io import files
from cepheid.io.files import column_source
from cepheid.io.inputs import Columns, Input
from cepheid.types import STRING

SEQ = "EVENT SEQ(A x, B y) WITHIN 100 units"
ANY = "PATTERN T1;T2 WITHIN 9 units"
SOME = "type,ts,id,x,note\nA,1,7,2.5,red\nB,2,7,3,\nA,3,8,1,blue\nB,3,8,4.5,\nB,9,7,1,\n"
MORE = SOME.replace(",7", ",70")
EMPTY = "type,ts,id,x\nA,1,7,\nB,2,7,\n"
MOMENTS = "type,ts,id\nA,2024-01-01T00:00:01Z,1\nB,2024-01-01T00:00:01.500000Z,1\nB,2024-01-01T00:00:03Z,1\n"
WHOLE, BROKEN = "type,ts,x\nA,1,2\n", "type,ts,x\nB,2,2.5\n"
LARGER = "type,ts,x\nA,1,9007199254740993\n"
AS, BS = "ts,id,x\n1,7,2\n4,8,3\n", "ts,id,y\n2,7,2\n5,8,3\n"


def written(*events: dict[str, Any]) -> str:
    return "".join(json.dumps(event) + "\n" for event in events)


LACKING = written(
    {"type": "A", "ts": 1, "id": 7, "note": "red"},
    {"type": "B", "ts": 2, "id": 7, "v": 2.5},
    {"type": "B", "ts": 3, "v": 4},
    {"type": "A", "ts": 4, "id": 7},
    {"type": "B", "ts": 5, "id": 7, "v": 3},
)
NULLS = written({"type": "A", "ts": 1, "x": None}, {"type": "A", "ts": 2, "x": 3}, {"type": "B", "ts": 3, "x": 4})
FULL = written({"type": "A", "ts": 1, "x": 5}, {"type": "B", "ts": 2, "x": 3})

CSV_AS_COLUMNS = {
    "times of two kinds": Case(SEQ, {"a.csv": SOME, "b.csv": MOMENTS}, ("a.csv", "b.csv"), finds=False),
    "any of several types that are given": Case(ANY, {"a.csv": AS, "b.csv": BS}, ("A=a.csv", "B=b.csv")),
    "whole events": Case(SEQ, {"a.csv": SOME}),
    "a key and a predicate": Case("EVENT SEQ(A x, B y) WHERE [id] AND x.x < y.x WITHIN 100 units", {"a.csv": SOME}),
    "returned columns": Case(
        "PATTERN A;B+ WHERE A.id = B.id WITHIN 9 units RETURN A.note AS note, sum(B.x) AS total, A.ts", {"a.csv": SOME}
    ),
    "text": Case("EVENT SEQ(A x, B y) WHERE x.note = 'red' WITHIN 100 units", {"a.csv": SOME}),
    "booleans": Case(
        "EVENT SEQ(A x, B y) WHERE x.b = true WITHIN 9 units", {"a.csv": "type,ts,b\nA,1,TRUE\nB,2,false\n"}
    ),
    "a type that is not there": Case("EVENT SEQ(A x, C y) WITHIN 100 units", {"a.csv": SOME}, finds=False),
    "quotes and lines": Case(SEQ, {"a.csv": 'type,ts,n\r\nA,1,"a ""b"",\r\nc"\r\n"B",2,""\r\n'}),
    "an empty column": Case(SEQ, {"a.csv": EMPTY}),
    "a predicate on an empty column": Case(
        "EVENT SEQ(A x, B y) WHERE x.x = 5 WITHIN 9 units", {"a.csv": EMPTY}, finds=False
    ),
    "an empty column as a key": Case("EVENT SEQ(A x, B y) WHERE [x] WITHIN 9 units", {"a.csv": EMPTY}, finds=False),
    "an empty column returned": Case("PATTERN A;B+ WITHIN 9 units RETURN A.x AS x, max(B.x) AS m", {"a.csv": EMPTY}),
    "out of order": Case(SEQ, {"a.csv": "type,ts,i\nB,5,1\nA,2,2\nB,2,3\nA,1,4\n"}),
    "odd names": Case(SEQ, {"a.csv": 'type,ts,"",a b,"c,d",e.f,e\nA,1,2,3,4,5,\nB,2,1,,9,6,7\n'}),
    "a dotted name": Case(
        "EVENT SEQ(A x, B y) WHERE x.at.x < y.at.x WITHIN 9 units", {"a.csv": "type,ts,at.x\nA,1,2\nB,2,3\n"}
    ),
    "timestamps": Case("EVENT SEQ(A x, B y) WHERE [id] WITHIN 1 second", {"a.csv": MOMENTS}),
    "timestamps returned": Case(
        "PATTERN A;B+ WITHIN 5 seconds RETURN A.ts, max(B.ts) AS last, max(B.ts) - A.ts AS took", {"a.csv": MOMENTS}
    ),
    "other columns for type and time": Case(
        SEQ, {"a.csv": "k,t,ts,type\nA,1,x,9\nB,2,y,8\n"}, options=("--type-column", "k", "--time-column", "t")
    ),
    "events without a type": Case("PATTERN T1;T2 WHERE T1.x < T2.x WITHIN 9 units", {"a.csv": "ts,x\n1,2\n2,3\n"}),
    "an empty type column": Case(ANY, {"a.csv": "type,ts,x\n,1,2\n,2,3\n"}),
    "types that are given": Case(SEQ, {"a.csv": AS, "b.csv": BS}, ("A=a.csv", "B=b.csv")),
    "a given type beside a type column": Case(SEQ, {"a.csv": SOME}, ("A=a.csv", "B=a.csv")),
    "any of the types that are given": Case(ANY, {"a.csv": AS, "b.csv": AS}, ("A=a.csv", "B=b.csv")),
    "a directory": Case(SEQ, {"d/1.csv": SOME, "d/2.csv": MORE}, ("d",)),
    "other numbers in another file": Case(SEQ, {"a.csv": WHOLE, "b.csv": BROKEN}, ("a.csv", "b.csv")),
    "other columns for another type": Case(SEQ, {"d/1.csv": WHOLE, "d/2.csv": "type,ts,y\nB,2,2.5\n"}, ("d",)),
    "an empty column for another type": Case(
        SEQ, {"d/1.csv": "type,ts,x\nA,1,\n", "d/2.csv": "type,ts\nB,2\n"}, ("d",)
    ),
    "a reject": Case(SEQ, {"a.csv": SOME + "A,soon,1,2,red\n"}),
    "beside Parquet": Case(SEQ, {"a.csv": SOME, "b.parquet": MORE}, ("a.csv", "b.parquet")),
    "a directory with Parquet": Case(SEQ, {"d/a.csv": SOME, "d/b.parquet": MORE}, ("d",)),
}

CSV_BY_ROWS = {
    "JSON Lines too": Case(SEQ, {"a.csv": SOME, "b.jsonl": '{"type": "B", "ts": 7}\n'}, ("a.csv", "b.jsonl")),
    "times of two kinds in one input": Case(SEQ, {"d/1.csv": SOME, "d/2.csv": MOMENTS}, ("d",)),
    "types in some files": Case(SEQ, {"d/1.csv": SOME, "d/2.csv": "ts,x\n1,2\n"}, ("d",)),
    "text in another file": Case(SEQ, {"a.csv": WHOLE, "b.csv": BROKEN.replace("2.5", "two")}, ("a.csv", "b.csv")),
    "numbers that are no floats": Case(SEQ, {"a.csv": LARGER, "b.csv": BROKEN}, ("a.csv", "b.csv")),
    "numbers that are no floats, in Parquet": Case(SEQ, {"a.parquet": LARGER, "b.csv": BROKEN}, ("a.parquet", "b.csv")),
    "other columns for the same type": Case(SEQ, {"d/1.csv": SOME, "d/2.csv": "type,ts,y\nA,2,2.5\n"}, ("d",)),
    "a column that a type has in one input": Case(
        SEQ, {"a.csv": "type,ts,x\nA,1,\nB,2,5\n", "b.csv": "type,ts,x\nA,3,4\nB,4,5\n"}, ("a.csv", "b.csv")
    ),
}

JSON_AS_COLUMNS = {
    "attributes that some events lack": Case(SEQ, {"a.jsonl": LACKING}, ("a.jsonl",)),
    "a key that some events lack": Case(
        "EVENT SEQ(A x, B y) WHERE [id] AND y.v > 2 WITHIN 100 units", {"a.jsonl": LACKING}, ("a.jsonl",)
    ),
    "an attribute that a type lacks": Case(
        "EVENT SEQ(A x, ANY(A, B) y) WHERE y.note = 'red' OR y.v > 3 WITHIN 100 units",
        {"a.jsonl": LACKING},
        ("a.jsonl",),
    ),
    "returned columns": Case(
        "PATTERN A;B+ WITHIN 9 units RETURN A.note AS note, sum(B.v) AS total, A", {"a.jsonl": LACKING}, ("a.jsonl",)
    ),
    "nulls": Case(SEQ, {"a.jsonl": NULLS}, ("a.jsonl",)),
    "a directory": Case(SEQ, {"d/1.jsonl": LACKING, "d/2.jsonl": LACKING.replace("7", "8")}, ("d",)),
    "events without a type": Case(ANY, {"a.jsonl": written({"ts": 1, "x": 2}, {"ts": 2})}, ("a.jsonl",)),
    "types that are given": Case(SEQ, {"a.jsonl": LACKING, "b.jsonl": LACKING}, ("A=a.jsonl", "B=b.jsonl")),
    "any of the types that are given": Case(ANY, {"a.jsonl": LACKING, "b.jsonl": FULL}, ("A=a.jsonl", "B=b.jsonl")),
    "a reject": Case(SEQ, {"a.jsonl": LACKING + "{}\n"}, ("a.jsonl",)),
    "beside CSV": Case(SEQ, {"a.jsonl": FULL, "b.csv": "type,ts,x\nA,3,4\nB,4,5\n"}, ("a.jsonl", "b.csv")),
}
JSON_BY_ROWS = {
    "nulls beside missing attributes": Case(SEQ, {"a.jsonl": LACKING, "b.jsonl": NULLS}, ("a.jsonl", "b.jsonl")),
    "empty cells beside missing attributes": Case(
        SEQ, {"a.jsonl": LACKING, "b.csv": "type,ts,x\nA,1,\nA,3,4\nB,4,5\n"}, ("a.jsonl", "b.csv")
    ),
    "other columns for the same type": Case(
        SEQ, {"a.jsonl": FULL, "b.jsonl": FULL.replace("x", "y")}, ("a.jsonl", "b.jsonl")
    ),
}

AS_COLUMNS = {
    **{f"CSV: {name}": case for name, case in CSV_AS_COLUMNS.items()},
    **{f"JSON Lines: {name}": case for name, case in JSON_AS_COLUMNS.items()},
}
BY_ROWS = {
    **{f"CSV: {name}": case for name, case in CSV_BY_ROWS.items()},
    **{f"JSON Lines: {name}": case for name, case in JSON_BY_ROWS.items()},
}


@pytest.mark.parametrize("sort", [*AS_COLUMNS, *BY_ROWS])
def test_the_local_backend_answers_as_the_reference_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sort: str
) -> None:
    case = AS_COLUMNS[sort] if sort in AS_COLUMNS else BY_ROWS[sort]
    assert is_by_columns("local", case, tmp_path, monkeypatch) == (sort in AS_COLUMNS)


@pytest.mark.spark
@pytest.mark.parametrize("sort", AS_COLUMNS)
def test_spark_answers_as_the_reference_does(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sort: str
) -> None:
    assert is_by_columns("spark", AS_COLUMNS[sort], tmp_path, monkeypatch)


def test_types_that_a_query_declares_are_for_the_row_reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "LEAST_TEXT", 0)
    (tmp_path / "a.csv").write_text(SOME)
    inputs = [Input(str(tmp_path / "a.csv"))]
    assert column_source(inputs, Columns()) is not None
    monkeypatch.setattr(files, "_text_file", lambda *_: pytest.fail("the file was read"))
    assert column_source(inputs, Columns(), Schema({"A": {"id": STRING}})) is None


def test_small_files_show_numbers_as_they_are_written(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("type,ts,x\nA,1,5\nB,2,0.5\n")
    found = cepheid("run", "--query", SEQ, "--input", tmp_path / "a.csv", "--backend", "local")
    assert '"x": 5}' in found.stdout
