"""Events with duration on Spark: DataFrames and files, divided by key and by time, and streams."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pcsv
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

import cepheid
from cepheid.app.cli import app
from cepheid.engine.prepare import prepare
from cepheid.io.inputs import Columns
from cepheid.lang import parse
from cepheid.optimize.distribution import Keyed, Sliced
from cepheid.spark.batch import SparkBatch
from cepheid.spark.source import SparkSource

pytestmark = pytest.mark.spark

KEYED = "EVENT SEQ(A x, B y) WHERE [k] WITHIN 20"
SLICED = "EVENT SEQ(A x, B y) WHERE x.v <= y.v WITHIN 20"
STRATEGY = "PATTERN SEQ(A x, B+ y[]) WHERE skip_till_next_match(x, y[]) {[k]} WITHIN 20"
ANY = "PATTERN SEQ(A x, B y) WHERE skip_till_any_match(x, y) {x.v < y.v} WITHIN 15"
LIMITED = f"{KEYED} LIMIT 7"
COMPOSED = "P: EVENT SEQ(A x, B y) WHERE [k] WITHIN 20\nQ: EVENT SEQ(P a, C c) WITHIN 30"
EQL = "SELECT * FROM A; B WHERE FILTER(A.k = B.k), (A, B) OCCURS WITHIN 20"
CED = "complex Q event and(A, B; 12)"
REASONS = {"no start: `began` is null", "the start is after the end: `began` is later than `ts`"}


def events(seed: int, count: int = 120) -> pa.Table:
    rng = random.Random(seed)
    rows: list[dict[str, Any]] = []
    for _ in range(count):
        end = rng.randrange(2 * count)
        start = end - rng.choice((0, rng.randrange(10), rng.randrange(25)))
        rows.append(
            {"type": rng.choice("ABC"), "k": rng.randrange(3), "v": rng.randrange(4), "began": start, "ts": end}
        )
    return pa.Table.from_pylist(rows)


def bad_rows() -> pa.Table:
    return pa.table(
        {"type": ["A", "A"], "k": [1, 1], "v": [1, 1], "began": pa.array([9, None], pa.int64()), "ts": [8, 8]}
    )


def expected(text: str, table: pa.Table) -> Counter[str]:
    rows = cepheid.match(text, table, start_column="began", evaluator="reference").to_pylist()
    return Counter(map(repr, rows))


def found(frame: Any) -> Counter[str]:
    return Counter(map(repr, frame.toArrow().to_pylist()))


@pytest.mark.parametrize("text", [KEYED, SLICED, STRATEGY, ANY, LIMITED, COMPOSED, EQL, CED])
def test_dataframes_and_files_give_the_matches_of_the_oracle(spark: SparkSession, tmp_path: Path, text: str) -> None:
    table = events(1)
    whole = pa.concat_tables([table, bad_rows()])
    pq.write_table(whole, tmp_path / "events.parquet", row_group_size=30)
    frame = spark.createDataFrame(whole)
    wanted = expected(text, table)
    assert wanted
    matches, rejects = cepheid.match(text, frame, start_column="began", partitions=3, rejects=True)
    assert found(matches) == wanted
    assert {row.reject_reason for row in rejects.collect()} == REASONS
    by_files = cepheid.match(text, str(tmp_path / "events.parquet"), start_column="began", session=spark, partitions=3)
    assert found(by_files) == wanted


def test_the_work_is_divided_by_key_and_by_time(spark: SparkSession) -> None:
    columns = Columns(start="began")
    for text, kind in ((KEYED, Keyed), (SLICED, Sliced), (STRATEGY, Keyed), (ANY, Sliced)):
        query = parse(text)
        source = SparkSource.of(spark.createDataFrame(events(1)), columns).for_query(query)
        assert isinstance(SparkBatch(prepare(query, source), source, 3).distribution, kind)


def test_csv_files_with_a_schema(spark: SparkSession, tmp_path: Path) -> None:
    table = events(2)
    pcsv.write_csv(pa.concat_tables([table, bad_rows()]), tmp_path / "e.csv")
    files = cepheid.CsvFiles(str(tmp_path / "e.csv"), "type string, k long, v long, began long, ts long", header=True)
    matches, rejects = cepheid.match(KEYED, files, start_column="began", rejects=True)
    assert found(matches) == expected(KEYED, table)
    assert {row.reject_reason for row in rejects.collect()} == REASONS


def test_the_command_line_runs_on_spark(spark: SparkSession, tmp_path: Path) -> None:
    table = events(3)
    pq.write_table(pa.concat_tables([table, bad_rows()]), tmp_path / "e.parquet")
    given = ["--query", KEYED, "-i", str(tmp_path / "e.parquet"), "--start-column", "began", "--time-unit", "ms"]
    outputs = []
    for backend in ("local", "spark", "reference"):
        result = CliRunner().invoke(app, ["run", *given, "--backend", backend])
        assert result.exit_code == 0, result.stderr
        assert "2 rejects" in result.stderr
        outputs.append(sorted(result.stdout.splitlines()))
    assert outputs[0] == outputs[1] == outputs[2] and outputs[0]


def test_a_stream_gives_the_matches_of_the_batch(spark: SparkSession, tmp_path: Path) -> None:
    table = events(4)
    arriving = table.sort_by([("ts", "ascending")])
    source = tmp_path / "in"
    source.mkdir()
    frame = spark.readStream.schema(spark.createDataFrame(table).schema).parquet(str(source))
    places: dict[str, Any] = {
        name: str(tmp_path / name) for name in ("checkpoint", "output", "reject_output", "late_output")
    }
    for part in range(3):
        rows = arriving.slice(40 * part, 40)
        pq.write_table(pa.concat_tables([rows, bad_rows()]) if part == 1 else rows, source / f"{part}.parquet")
        running = cepheid.stream(
            {"keyed": KEYED, "strategy": STRATEGY},
            frame,
            watermark=3,
            start_column="began",
            available_now=True,
            **places,
        )
        running.wait()
    running.end_time()
    for name, text in (("keyed", KEYED), ("strategy", STRATEGY)):
        rows = cepheid.read_output(places["output"], query=name).to_pylist()
        assert Counter(map(repr, rows)) == expected(text, table)
    rejects = cepheid.read_output(places["reject_output"]).to_pylist()
    assert {row["reason"] for row in rejects} == REASONS
    with pytest.raises(cepheid.CepheidError, match="start column"):
        cepheid.stream({"keyed": KEYED, "strategy": STRATEGY}, frame, watermark=3, available_now=True, **places)


@pytest.mark.parametrize("format", ["jsonl", "csv", "parquet"])
def test_the_command_line_streams_files(spark: SparkSession, tmp_path: Path, format: str) -> None:
    table = events(5)
    source = tmp_path / "in"
    source.mkdir()
    writers = {
        "jsonl": lambda rows, path: path.write_text("".join(f"{json.dumps(row)}\n" for row in rows.to_pylist())),
        "csv": pcsv.write_csv,
        "parquet": pq.write_table,
    }
    writers[format](pa.concat_tables([table, bad_rows()]), source / f"a.{format}")
    places = {name: tmp_path / name for name in ("checkpoint", "output", "reject-output")}
    given = ["--query", KEYED, "--input", source, "--start-column", "began", "--watermark", "300", "--time-unit", "ms"]
    named = [word for name, path in places.items() for word in (f"--{name}", path)]
    result = CliRunner().invoke(app, ["stream", *map(str, [*given, *named]), "--format", "jsonl", "--available-now"])
    assert result.exit_code == 0, result.output
    lines = [line for path in sorted(places["output"].rglob("*.jsonl")) for line in path.read_text().splitlines()]
    intervals = Counter((row["match_start"], row["match_end"]) for row in map(json.loads, lines))
    wanted = cepheid.match(KEYED, table, start_column="began", evaluator="reference").to_pylist()
    assert intervals == Counter((row["match_start"], row["match_end"]) for row in wanted)
    rejects = cepheid.read_output(str(places["reject-output"])).to_pylist()
    assert {row["reason"] for row in rejects} == REASONS
