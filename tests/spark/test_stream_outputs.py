"""The columns of a stream's output and the options of its input, from the command line, as in batch."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

import cepheid
from cepheid.app.cli import app

pytestmark = pytest.mark.spark

QUERY = "PATTERN SEQ(Login a, Login b) WHERE skip_till_next_match(a, b) { [`user id`] } WITHIN 1 minute"
FIRST = "user id;at;ok\nann;1709280000;false\nbob;1709280001;true\n"
SECOND = "user id;at;ok\nann;1709280002;true\nann;1709280002;true\nbob;1709280090;true\n"


@pytest.mark.parametrize("shape", ["events", "flat", "long"])
def test_a_stream_of_files_as_in_batch(spark: SparkSession, tmp_path: Path, shape: str) -> None:
    logins = tmp_path / "logins"
    logins.mkdir()
    (logins / "1.csv").write_text(FIRST)
    (logins / "2.csv").write_text(SECOND)
    asked = ["--query", QUERY, "--output-shape", shape, "--detected-at", "--match-id"]
    given = ["--input", f"{logins},type=Login,time=at,sep=semicolon"]
    batch = CliRunner().invoke(app, ["run", *asked, *given])
    assert batch.exit_code == 0, batch.stderr
    places = ["--checkpoint", str(tmp_path / "c"), "--output", str(tmp_path / "o"), "--available-now"]
    streamed = CliRunner().invoke(app, ["stream", *asked, *given, *places, "--files-per-batch", "1"])
    assert streamed.exit_code == 0, streamed.stderr
    expected = [json.loads(line) for line in batch.stdout.splitlines()]
    for row in expected:
        row.pop("match_number", None)
    found = [json.loads(line) for file in (tmp_path / "o").glob("*.jsonl") for line in file.read_text().splitlines()]
    assert Counter(json.dumps(row, sort_keys=True) for row in found) == Counter(
        json.dumps(row, sort_keys=True) for row in expected
    )
    assert len({row["match_id"] for row in found}) == 2


def test_identifiers_on_spark_are_those_outside(spark: SparkSession) -> None:
    table = pa.table({"type": list("AABBAB"), "ts": [1, 1, 2, 2, 3, 4], "k": [1, 1, 1, 1, 2, 2], "v": [0.5] * 6})
    query = "EVENT SEQ(A x, B y) WHERE [k] WITHIN 10"
    _require_same_identifiers(spark, query, table, 5)
    composed = f"P: {query} RETURN x.k AS k\nLast: EVENT SEQ(P p, B z) WHERE p.k = z.k WITHIN 10"
    later = table.set_column(1, "ts", pa.array([3, 3, 4, 4, 5, 6]))
    _require_same_identifiers(spark, composed, pa.concat_tables([table, later]), 9)


def _require_same_identifiers(spark: SparkSession, query: str, table: pa.Table, count: int) -> None:
    expected = sorted(cepheid.match(query, table, match_id=True)["match_id"].to_pylist())
    assert len(set(expected)) == len(expected) == count
    for partitions in (1, 3):
        found = cepheid.match(query, spark.createDataFrame(table), match_id=True, partitions=partitions)
        assert sorted(row.match_id for row in found.collect()) == expected


def test_identifiers_of_a_frame_for_each_type_are_those_outside(spark: SparkSession) -> None:
    tables = {
        "A": pa.table({"at": [1, 1, 2], "k": [1, 2, 1]}),
        "B": pa.table({"ts": [2, 3], "k": [1, 2], "v": [0.5, None]}),
    }
    columns = {"A": "at", "B": "ts"}
    query = "EVENT SEQ(A x, B y) WHERE [k] WITHIN 10 units"
    inputs = {kind: cepheid.Input(table, time_column=columns[kind]) for kind, table in tables.items()}
    expected = sorted(cepheid.match(query, inputs, match_id=True)["match_id"].to_pylist())
    frames = {
        kind: cepheid.Input(spark.createDataFrame(table), time_column=columns[kind]) for kind, table in tables.items()
    }
    found = cepheid.match(query, frames, match_id=True)
    assert sorted(row.match_id for row in found.collect()) == expected
    assert len(set(expected)) == 2
