"""Streams on Spark: exactly once from source to sink, over stops, restarts and kills. What buckets compute is tested in
tests/test_stream.py; here is what Spark, the checkpoint and the sinks add."""

from __future__ import annotations

import gzip
import io
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from rich.console import Console
from rich.table import Table
from stream_harness import (
    CLOSURE,
    COLUMNS,
    DISORDER,
    NEGATION,
    Places,
    command,
    disordered,
    events,
    expected,
    query_file,
    wait_until,
    write,
    write_parts,
)
from typer.testing import CliRunner

import cepheid
from cepheid.app.cli import app
from cepheid.app.stream_view import metrics_table
from cepheid.errors import InputProblem
from cepheid.events import TIMESTAMP_CLOCK
from cepheid.spark.bucket_groups import group_numbers, spark_hashes
from cepheid.spark.hadoop import HadoopDirectory
from cepheid.spark.stream import OBSERVED, WATERMARK_DELAY, RunningStream
from cepheid.spark.stream_states import read_state
from cepheid.streaming.metrics import Metrics
from cepheid.streaming.sinks import batch_name

pytestmark = pytest.mark.spark


def frame(spark: SparkSession, directory: Path) -> DataFrame:
    directory.mkdir(parents=True, exist_ok=True)
    return spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", 1).parquet(str(directory))


@pytest.fixture
def places(tmp_path: Path) -> Places:
    return Places(tmp_path)


def run(query: Any, source: DataFrame | dict[str, DataFrame], places: Places, **more: Any) -> RunningStream:
    """All that is there."""
    more = {"available_now": True, "end_of_time": False, **more}
    running = cepheid.stream(query, source, watermark=DISORDER, **places.options(), **more)
    running.wait()
    return running


# --- one pass ---------------------------------------------------------------------------------------------------------


def test_two_queries_in_one_pass_with_restarts_give_the_batch_result(spark: SparkSession, places: Places) -> None:
    """Late events, rows without a time, hooks and metrics on the way."""
    rows = events(1, 900)
    arriving = disordered(rows, 2)
    queries = {"negation": NEGATION, "closure": CLOSURE}
    source = frame(spark, places.source)
    heard: list[tuple[Any, str]] = []
    late = {"type": "A", "ts": 3, "id": 1, "v": 0.5}
    for part in range(3):
        more = [{**late, "ts": None}] if part == 0 else [late, {**late, "type": "D"}] if part == 2 else []
        write(places.source, f"part-{part}.parquet", [*arriving[part * 300 : (part + 1) * 300], *more])
        running = run(queries, source, places, on_match=lambda row, name: heard.append((row, name)))
    assert running.totals.late == 2 and running.totals.events == 302
    assert running.metrics().watermark == rows[-1]["ts"] - DISORDER
    assert running.metrics().state_bytes > 0
    before = places.matches("negation")
    rest = running.end_time()
    for name, query in queries.items():
        assert places.matches(name) == expected(query, rows)
    assert sum(before.values()) + rest["negation"] == sum(expected(NEGATION, rows).values())
    assert Counter(row["query"] for row, _ in heard)["closure"] == len(list(places.matches("closure").elements()))
    assert cepheid.read_output(str(places.late)).to_pylist() == [late, {**late, "type": "D"}]
    (reject,) = cepheid.read_output(str(places.rejects)).to_pylist()
    assert reject["reason"] == "no time: `ts` is null" and json.loads(reject["raw"])["type"] == "A"


def test_the_end_of_the_input_is_the_end_of_time_until_the_stream_resumes(
    spark: SparkSession, places: Places, caplog: pytest.LogCaptureFixture
) -> None:
    """As on the command line. Callbacks are told, and writers of Spark, which cannot take anything back, are not."""
    rows = events(1, 300)
    source, heard = frame(spark, places.source), Counter[str]()
    written: list[int] = []

    def writer(matches: DataFrame, batch: int) -> None:
        written.append(matches.count())

    hooks: dict[str, Any] = {"on_match": lambda row, batch: heard.update([batch]), "writer": writer}
    for part in range(2):
        write(places.source, f"part-{part}.parquet", rows[part * 150 : (part + 1) * 150])
        running = run(NEGATION, source, places, end_of_time=True, **(hooks if part else {}))
        assert places.matches() == expected(NEGATION, rows[: (part + 1) * 150])
        assert heard["end-of-time"] == (running.end_time()["query"] if part else 0)
        assert running.wait() and len(list(places.output.glob("end-of-time.*"))) == 1
    more = running.end_time()["query"]
    assert more > 0 and sum(written) == sum(heard.values()) - more
    assert f"{more} more matches at the end of the input are not passed to writers" in caplog.text
    run(NEGATION, source, places)
    assert not list(places.output.glob("end-of-time.*"))


def test_a_spark_writer_gets_each_batch_under_its_number(spark: SparkSession, places: Places) -> None:
    rows = events(3, 400)
    write_parts(places.source, rows, 2)
    tables: dict[int, list[Any]] = {}

    def writer(matches: DataFrame, batch: int) -> None:
        tables[batch] = [row.asDict(recursive=True) for row in matches.withColumn("n", F.lit(1)).drop("n").collect()]

    running = cepheid.stream(
        CLOSURE,
        frame(spark, places.source),
        watermark=0,
        checkpoint=str(places.checkpoint),
        writer=writer,
        available_now=True,
    )
    running.wait()
    written = Counter(json.dumps(row, sort_keys=True) for found in tables.values() for row in found)
    assert written and not written - expected(CLOSURE, rows)
    assert running.totals.matches["query"] == sum(written.values())


def run_the_last_events_again(places: Places) -> int:
    """As if the driver had been killed after it wrote the matches of the last file and before Spark noted that the
    batch is complete."""
    last = max(int(path.name) for path in places.checkpoint.glob("commits/*") if path.name.isdecimal())
    (places.checkpoint / "commits" / f"{last}").unlink()
    (places.checkpoint / "commits" / f".{last}.crc").unlink(missing_ok=True)
    return last


def test_any_format_of_spark_and_a_batch_that_runs_again_replaces_itself(spark: SparkSession, places: Places) -> None:
    """Files in a format that only Spark writes, hooks, progress and what Spark's listeners hear."""
    rows = events(3, 400)
    heard: list[tuple[str, str]] = []
    progress: list[Metrics] = []

    def start() -> RunningStream:
        return run(
            CLOSURE,
            frame(spark, places.source),
            places,
            format="orc",
            on_match=lambda row, batch: heard.append((batch, json.dumps(row, sort_keys=True))),
            on_progress=progress.append,
        )

    write_parts(places.source, [*rows[:350], {**rows[0], "ts": None}], 3)
    start()
    again = run_the_last_events_again(places)
    before = len(progress)
    write(places.source, "z.parquet", [{**rows[0], "v": 9.0}, *rows[350:], {"type": "D", "ts": 10_000, "id": 1}])
    start()
    found = spark.read.orc(str(places.output))
    matches = Counter(json.dumps(row.asDict(recursive=True), sort_keys=True) for row in found.drop("batch").collect())
    assert matches == expected(CLOSURE, rows)
    # The hook heard the batch twice, under the same name, and can tell.
    assert len(set(heard)) == matches.total() < len(heard) and {batch_name(again)} == {
        batch for batch, _ in (Counter(heard) - Counter(set(heard)))
    }
    wait_until(lambda: len(progress) > before and progress[-1].late == 1)
    assert "late" in rendered(metrics_table(progress[-1], TIMESTAMP_CLOCK))


def test_a_half_written_first_entry_is_not_taken_for_another_stream(spark: SparkSession, places: Places) -> None:
    """What a driver leaves that is killed while it writes the offsets of its first batch."""
    rows = events(4, 200)
    write_parts(places.source, rows, 2)
    (places.checkpoint / "offsets").mkdir(parents=True)
    (places.checkpoint / "offsets" / ".0.5f0c.tmp").write_text("v1")
    run(CLOSURE, frame(spark, places.source), places).end_time()
    assert places.matches() == expected(CLOSURE, rows)


def test_sparks_own_listeners_hear_what_a_batch_did(spark: SparkSession, places: Places) -> None:
    rows = events(5, 300)
    write_parts(places.source, [*rows, {**rows[0], "ts": None}], 2)
    running = run(CLOSURE, frame(spark, places.source), places)
    observed = [result.observedMetrics[OBSERVED].asDict() for result in running.query.recentProgress]
    assert sum(row["events"] for row in observed) == 300 == running.totals.events
    assert sum(row["matches"] for row in observed) == running.totals.matches["query"] > 0
    assert sum(row["rejects"] for row in observed) == 1 and max(row["state_bytes_touched"] for row in observed) > 0


def test_time_passes_without_events_and_idle_keys_are_released(spark: SparkSession, places: Places) -> None:
    """The watermark reaches buckets for which no event comes: Spark knows the column of time by its metadata."""
    assert WATERMARK_DELAY == "spark.watermarkDelayMs"
    write(places.source, "a.parquet", [{"type": "A", "ts": 1, "id": 7}, {"type": "B", "ts": 2, "id": 7}])
    source = frame(spark, places.source)
    run(NEGATION, source, places)
    with pytest.raises(InputProblem, match="no output"):
        places.matches()
    state = read_state(str(places.checkpoint), spark)
    assert [(bucket.waiting, bucket.oldest) for bucket in state.buckets] == [(2, 1)]
    assert [(key.key, key.events) for bucket in state.buckets for key in bucket.keys] == [((7,), 2)]
    write(places.source, "b.parquet", [{"type": "D", "ts": 1_000, "id": 1}])
    run(NEGATION, source, places)
    assert [json.loads(line)["y"]["ts"] for line in places.matches()] == [2]
    assert read_state(str(places.checkpoint), spark).buckets == ()


def test_the_hash_by_which_buckets_are_spread_is_sparks(spark: SparkSession) -> None:
    numbers = [0, 1, 77, *group_numbers(16)]
    found = spark.createDataFrame([(number,) for number in numbers], "n int").select(F.hash("n")).collect()
    assert [row[0] for row in found] == spark_hashes(np.array(numbers, np.uint32)).tolist()


def rendered(table: Table) -> str:
    console = Console(file=io.StringIO(), width=100)
    console.print(table)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


# --- what is refused --------------------------------------------------------------------------------------------------


def test_a_checkpoint_refuses_another_query_and_a_second_driver(spark: SparkSession, places: Places) -> None:
    write(places.source, "a.parquet", events(1, 10))
    source = frame(spark, places.source)
    running = cepheid.stream(NEGATION, source, watermark=DISORDER, **places.options())
    running.process_all()
    with pytest.raises(InputProblem, match="is in use by"):
        run(NEGATION, source, places)
    running.stop()
    with pytest.raises(InputProblem, match=r"belongs to another stream: queries of `query`.*WITHIN 90.*WITHIN 91"):
        run(NEGATION.replace("90", "91"), source, places)
    with pytest.raises(InputProblem, match="order: "):
        run(NEGATION, source, places, order_by=["v"])
    with pytest.raises(InputProblem, match="`nonsense` is not an output format"):
        run(NEGATION, source, places, format="nonsense")


def test_names_that_may_be_types_need_the_types(spark: SparkSession, places: Places) -> None:
    with pytest.raises(InputProblem, match="types="):
        run("PATTERN A;B WITHIN 5", frame(spark, places.source), places)


def test_several_streams_of_different_types(spark: SparkSession, places: Places) -> None:
    rows = [row for row in events(6, 300) if row["type"] in "AB"]
    sources = {}
    for kind in "AB":
        write(places.source / kind, "part.parquet", [row for row in rows if row["type"] == kind])
        sources[kind] = frame(spark, places.source / kind).drop("type")
    query = "EVENT SEQ(A x, B y) WHERE [id] WITHIN 10"
    run(query, sources, places).end_time()
    found = cepheid.read_output(str(places.output)).to_pylist()
    wanted = [json.loads(line) for line in expected(query, rows).elements()]
    assert Counter((m["x"]["v"], m["y"]["v"]) for m in found) == Counter((m["x"]["v"], m["y"]["v"]) for m in wanted)


def test_files_in_any_file_system_that_spark_knows(spark: SparkSession, tmp_path: Path) -> None:
    place = HadoopDirectory(spark, f"file://{tmp_path}/some").inside("where")
    assert place.names() == [] and place.read("a.txt") is None
    place.write("a.txt", b"one")
    place.write("a.txt", bytes(range(256)))
    place.write("_b", b"")
    assert place.names() == ["a.txt"] and place.read("a.txt") == bytes(range(256))
    place.remove("a.txt")
    place.remove("a.txt")
    assert place.read("a.txt") is None


# --- the command line -------------------------------------------------------------------------------------------------


def test_json_lines_from_files_to_files(spark: SparkSession, places: Places, tmp_path: Path) -> None:
    """The lines that the stream writes are those that batch writes; what is there at the end of time is taken back."""
    rows = disordered(events(7, 200), 8)
    query = query_file(places, NEGATION)
    write_parts(places.source, rows[:150], 3, "jsonl")
    (places.source / "broken.jsonl").write_text("nonsense\n")
    first = CliRunner().invoke(app, command(places, query))
    assert first.exit_code == 0, first.output
    write(places.source, "more.jsonl", rows[150:])
    second = CliRunner().invoke(app, command(places, query))
    assert second.exit_code == 0, second.output
    batch = tmp_path / "batch.jsonl"
    arguments = ["run", "--query-file", str(query), "--input", str(places.source), "--output", str(batch)]
    assert CliRunner().invoke(app, arguments).exit_code == 0
    lines = [line for file in sorted(places.output.iterdir()) for line in file.read_text().splitlines()]
    assert Counter(lines) == Counter(batch.read_text().splitlines())
    (reject,) = cepheid.read_output(str(places.rejects)).to_pylist()
    assert (reject["line"], reject["raw"]) == (1, "nonsense") and reject["reason"].startswith("broken JSON")
    shown = CliRunner().invoke(app, ["state", str(places.checkpoint)])
    assert shown.exit_code == 0 and "oldest event" in shown.output


# --- the tour ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_tour_kills_a_stream_and_shows_that_nothing_is_lost(tmp_path: Path) -> None:
    """With a home that is empty, as on a fresh machine."""
    home, tour = tmp_path / "home", tmp_path / "tour"
    home.mkdir()
    words = [sys.executable, "-m", "cepheid", "demo", "--output", str(tour)]
    result = subprocess.run(words, env={**os.environ, "HOME": str(home)}, capture_output=True, text=True, check=True)
    assert "kill -9 of the driver" in result.stdout and "None was lost, none came twice." in result.stdout
    assert (tour / "stream" / "matches").is_dir()


# --- the schema and the time of later files ---------------------------------------------------------------------------


def test_a_stream_of_files_that_differ(spark: SparkSession, tmp_path: Path) -> None:
    """No event at first, then a file without a type of the query, then others, one of them compressed, one from the far
    future, one of another format: every row is accounted for."""
    source = tmp_path / "in"
    source.mkdir()
    words = ["stream", "--query", "EVENT SEQ(A x, B y) WHERE [id] AND x.v < y.v WITHIN 100", "--input", str(source)]
    words += ["--checkpoint", str(tmp_path / "checkpoint"), "--output", str(tmp_path / "out"), "--available-now"]
    words += ["--watermark", "50", "--max-ahead", "500", "--master", "local[2]"]
    (source / "0.csv").write_text("type,ts,id,v\nA,soon,1,1\n")
    first = CliRunner().invoke(app, words)
    assert first.exit_code == 0 and "there is no event in" in first.output and not (tmp_path / "checkpoint").exists()
    assert "1 row would be rejected" in first.output and "row 2: the time `soon`" in first.output
    (source / "0.csv").write_text("type,ts,id,v\n")
    (source / "1.csv").write_text("type,ts,id,v\nA,1,1,1\nA,2,2,5\n")
    assert "2 rows read: 2 used, 0 rejected, 0 late" in CliRunner().invoke(app, words).output
    lines = ["type,ts,id,v,new", "B,3,1,2,", "B,4,2,2.5,", "B,5,2,7,8", "B,999999,1,9,"]
    (source / "2.csv.gz").write_bytes(gzip.compress("\n".join(lines).encode()))
    (source / "3.jsonl").write_text("{}\n")
    ended = CliRunner().invoke(app, words)
    assert ended.exit_code == 0, ended.output
    assert "5 rows read: 2 used, 3 rejected, 0 late" in ended.output, ended.output
    rejects = [json.loads(line) for path in (tmp_path / "out.rejects").glob("*.jsonl") for line in path.open()]
    places = [(Path(reject["source"]).name, reject["line"]) for reject in rejects]
    assert sorted(places, key=str) == [("2.csv.gz", 3), ("2.csv.gz", 5), ("3.jsonl", None)]
    matches = [json.loads(line) for path in (tmp_path / "out").glob("*.jsonl") for line in path.open()]
    assert sorted((match["x"]["ts"], match["y"]["ts"]) for match in matches) == [(1, 3), (2, 5)]
