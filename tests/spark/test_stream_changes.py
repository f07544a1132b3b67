"""Queries that are added, removed and replaced while a Spark stream runs."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from stream_harness import CLOSURE, COLUMNS, NEGATION, Places, driver, events, expected, wait_until, write
from typer.testing import CliRunner

import cepheid
from cepheid.app.cli import app
from cepheid.deploy.changes import Change
from cepheid.deploy.deployment import Written
from cepheid.errors import CepheidError
from cepheid.spark.deliver import INTERRUPTED, Deliver
from cepheid.spark.hadoop import open_directory
from cepheid.streaming import slots
from cepheid.streaming.checkpoint import REQUESTS, Checkpoint
from cepheid.streaming.delivery import OutputRow
from cepheid.streaming.requests import Requests
from cepheid.streaming.storage import local_directory

pytestmark = pytest.mark.spark

PAIR = "EVENT SEQ(A x, B y) WHERE [id] AND x.v > {} WITHIN 60"
TRIPLE = "SELECT * FROM (A x; B y; C z) WHERE FILTER(x.id = y.id), FILTER(y.id = z.id), (x, z) OCCURS WITHIN 90"
ROWS = events(3, 500, 6)


@pytest.fixture
def places(tmp_path: Path) -> Places:
    return Places(tmp_path)


def start(spark: SparkSession, places: Places, queries: Any) -> Any:
    places.source.mkdir(parents=True, exist_ok=True)
    source = spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", 1).parquet(str(places.source))
    return cepheid.stream(queries, source, watermark=0, partitions=2, **places.options())


def feed(places: Places, running: Any, part: int) -> None:
    write(places.source, f"part-{part}.parquet", ROWS[part * 100 : part * 100 + 100])
    running.process_all()


def test_a_query_sees_the_events_from_its_batch_on(spark: SparkSession, places: Places) -> None:
    """Over a restart with the queries of the checkpoint, and with a batch that is repeated."""
    running = start(spark, places, {"low": PAIR.format(0.1), "closure": CLOSURE})
    feed(places, running, 0)
    running.add({"high": PAIR.format(0.6), "negation": NEGATION})
    with pytest.raises(CepheidError, match="there is a query `high` already"):
        running.add({"high": TRIPLE, "other": TRIPLE})
    with pytest.raises(CepheidError, match="there is no query `hihg`"):
        running.remove("low", "hihg")
    assert list(running.queries) == ["low", "closure", "high", "negation"]
    feed(places, running, 1)
    requests = Requests(Checkpoint(open_directory(str(places.checkpoint), spark), "c").own.inside(REQUESTS))
    asked = requests.send(Change(remove=("closure",), replace={"low": Written("low", TRIPLE)}))
    refused = requests.send(Change(add={"high": Written("high", TRIPLE)}))
    assert not running.wait(2)
    answer, other = requests.answered(asked), requests.answered(refused)
    assert answer is not None and answer.version == 2 and answer.refused is None
    assert other is not None and "already" in (other.refused or "")
    feed(places, running, 2)
    running.stop()
    # The last batch is repeated: it has the queries that it had.
    (places.checkpoint / "commits" / "2").unlink()
    (places.checkpoint / "commits" / ".2.crc").unlink(missing_ok=True)
    running = start(spark, places, None)
    running.process_all()
    running.add({"late": TRIPLE})
    feed(places, running, 3)
    feed(places, running, 4)
    running.stop()
    running.end_time()
    for name, text, first in (("low", TRIPLE, 200), ("high", PAIR.format(0.6), 100), ("negation", NEGATION, 100)):
        found = places.matches(name)
        wanted = expected(text, ROWS[first:])
        # Before it was replaced, `low` had found other matches.
        assert found >= wanted if name == "low" else found == wanted, name
        assert wanted
    assert places.matches("late") == expected(TRIPLE, ROWS[300:])
    assert places.matches("closure") <= expected(CLOSURE, ROWS[:200])


WITHOUT_KEY = {
    "near": "PATTERN A a; B b WHERE a.id < b.id AND a.v > 0.3 WITHIN 9",
    "quiet": "EVENT SEQ(A x, !(D y), C z) WHERE x.v < z.v AND x.id != z.id WITHIN 30",
    "low": PAIR.format(0.1),
}


def test_queries_move_with_their_state(spark: SparkSession, places: Places) -> None:
    """Also before a batch that is repeated, back again, and over a restart."""
    running = start(spark, places, WITHOUT_KEY)
    feed(places, running, 0)
    before = {query.name: query.slot for query in running.stream.plan.queries}
    assert before == {"near": before["near"], "quiet": 1 - before["near"]}
    assert running.move({"near": before["quiet"], "quiet": before["near"]})
    with pytest.raises(CepheidError, match="moving the query `low`: only one without a key"):
        running.move({"low": 1})
    with pytest.raises(CepheidError, match="no slot 7"):
        running.move({"near": 7})
    feed(places, running, 1)
    assert running.move({"near": before["near"]})
    feed(places, running, 2)
    running.stop()
    (places.checkpoint / "commits" / "2").unlink()
    (places.checkpoint / "commits" / ".2.crc").unlink(missing_ok=True)
    running = start(spark, places, None)
    assert {query.name: query.slot for query in running.stream.plan.queries} == dict.fromkeys(before, before["near"])
    running.process_all()
    running.add({"late": WITHOUT_KEY["near"] + " RETURN a.v"})
    assert running.move({"quiet": before["quiet"]})
    feed(places, running, 3)
    feed(places, running, 4)
    running.stop()
    running.end_time()
    for name, text in WITHOUT_KEY.items():
        assert places.matches(name) == expected(text, ROWS), name
        assert sum(places.matches(name).values()) > 30
    assert places.matches("late") == expected(WITHOUT_KEY["near"] + " RETURN a.v", ROWS[300:])


def test_queries_move_when_the_rates_drift(
    spark: SparkSession, places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without waiting for loads that are worth a restart: both queries are on one bucket."""
    monkeypatch.setattr(slots, "_SECONDS", 1e-6)
    monkeypatch.setattr(slots, "_GAIN", 1.01)
    monkeypatch.setattr(slots, "_BATCHES", 2)
    running = start(spark, places, WITHOUT_KEY)
    running.move(dict.fromkeys(("near", "quiet"), 0))
    for part in range(5):
        feed(places, running, part)
        running.wait(1)
    moved = {query.slot for query in running.stream.plan.queries}
    running.stop()
    running.end_time()
    assert moved == {0, 1}
    for name, text in WITHOUT_KEY.items():
        assert places.matches(name) == expected(text, ROWS), name


class Gate:
    """Holds a batch back that has been evaluated until it opens. A delivery that was interrupted gives up."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, batch: int) -> None:
        self.is_open, self.calls = False, 0
        deliver = Deliver._deliver

        def held(delivery: Deliver, batch_id: int, rows: Sequence[OutputRow]) -> None:
            self.calls += batch_id == batch
            while batch_id == batch and not self.is_open:
                time.sleep(0.02)
                if delivery.is_stopping:
                    raise InterruptedError(INTERRUPTED)
            deliver(delivery, batch_id, rows)

        monkeypatch.setattr(Deliver, "_deliver", held)


def state_files(places: Places) -> set[str]:
    return {str(path.relative_to(places.checkpoint)) for path in (places.checkpoint / "state").rglob("*.changelog")}


@pytest.mark.parametrize("by_request", [False, True])
def test_queries_move_after_the_batch_that_has_begun(
    spark: SparkSession, places: Places, monkeypatch: pytest.MonkeyPatch, by_request: bool
) -> None:
    """It is not interrupted, and the next does not begin before they have moved."""
    running = start(spark, places, WITHOUT_KEY)
    checkpoint = Checkpoint(open_directory(str(places.checkpoint), spark), "c")
    requests = Requests(checkpoint.own.inside(REQUESTS))
    feed(places, running, 0)
    gate = Gate(monkeypatch, 1)
    for part in (1, 2):
        write(places.source, f"part-{part}.parquet", ROWS[part * 100 : part * 100 + 100])
        time.sleep(0.05)  # Spark takes files in the order of their times
    wait_until(lambda: gate.calls == 1)
    run, slots = running.query.runId, dict.fromkeys(("near", "quiet"), 0)
    assert not running.move(slots, timeout=0.5)
    asked = requests.send(Change(move=slots)) if by_request else None
    assert not running.wait(2)
    assert (running.query.runId, gate.calls, running.stream.plan.version) == (run, 1, 0)
    before = state_files(places)
    opener = threading.Timer(0.5, setattr, (gate, "is_open", True))
    opener.start()
    if asked is None:
        assert running.move(slots)
    else:
        assert not running.delivery.hold()  # as `wait` does, so that the next batch does not begin meanwhile
        wait_until(lambda: checkpoint.first_uncommitted == 2)
        time.sleep(1)
        assert state_files(places) == before
        assert not running.wait(2)
        assert requests.answered(asked) is not None
    assert [(one.first_batch, one.lineage.version) for one in checkpoint.versions()][-1] == (2, 1)
    assert gate.calls == 1
    for part in (3, 4):
        feed(places, running, part)
    running.stop()
    running.end_time()
    for name, text in WITHOUT_KEY.items():
        assert places.matches(name) == expected(text, ROWS), name


def test_changes_do_not_keep_a_batch_from_ending(
    spark: SparkSession, places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch that takes longer than the time between two looks for requests is interrupted once."""
    running = start(spark, places, WITHOUT_KEY)
    requests = Requests(Checkpoint(open_directory(str(places.checkpoint), spark), "c").own.inside(REQUESTS))
    feed(places, running, 0)
    gate = Gate(monkeypatch, 1)
    write(places.source, "part-1.parquet", ROWS[100:200])
    wait_until(lambda: gate.calls == 1)
    running.add({"late": PAIR.format(0.6)})
    wait_until(lambda: gate.calls == 2)
    repeated = running.query.runId
    assert running.is_repeating
    # Queries cannot move before the batch has ended.
    assert not running.move(dict.fromkeys(("near", "quiet"), 0), timeout=0)
    asked = [requests.send(Change(move=dict.fromkeys(("near", "quiet"), 0)))]
    asked.append(requests.send(Change(add={"later": Written("later", PAIR.format(0.1))})))
    assert not running.wait(3)
    assert running.query.runId == repeated and gate.calls == 2
    assert all(requests.answered(name) is None for name in asked)
    gate.is_open = True
    running.process_all()
    assert not running.is_repeating
    assert not running.wait(3)
    answers = [requests.answered(name) for name in asked]
    assert [answer and answer.refused for answer in answers] == [None, None] and None not in answers
    for part in (2, 3, 4):
        feed(places, running, part)
    running.stop()
    running.end_time()
    for name, text in WITHOUT_KEY.items():
        assert places.matches(name) == expected(text, ROWS), name
    assert places.matches("late") == expected(PAIR.format(0.6), ROWS[200:])
    assert places.matches("later") == expected(PAIR.format(0.1), ROWS[200:])


def test_other_queries_than_those_of_the_checkpoint_are_refused(spark: SparkSession, places: Places) -> None:
    running = start(spark, places, {"low": PAIR.format(0.1)})
    feed(places, running, 0)
    running.add({"high": PAIR.format(0.6)})
    running.stop()
    with pytest.raises(CepheidError, match="belongs to another stream"):
        start(spark, places, {"low": PAIR.format(0.1)})
    running = start(spark, places, {"high": PAIR.format(0.6), "low": PAIR.format(0.1)})
    feed(places, running, 1)
    running.stop()
    running.end_time()
    assert places.matches("low") == expected(PAIR.format(0.1), ROWS[:200])
    assert places.matches("high") == expected(PAIR.format(0.6), ROWS[100:200])


def test_a_stream_follows_its_folder_and_the_commands(places: Places, tmp_path: Path) -> None:
    rules = tmp_path / "rules"
    rules.mkdir()
    (rules / "low.sase").write_text(PAIR.format(0.1))
    (rules / "closure.sase").write_text(CLOSURE)
    (rules / "broken.sase").write_text("EVENT SEQ(A x, B")
    (tmp_path / "extra.sase").write_text(TRIPLE)
    checkpoint = Checkpoint(local_directory(str(places.checkpoint)), "c")
    log = tmp_path / "log"

    def deploy(*words: str) -> str:
        result = CliRunner().invoke(app, ["deploy", *words])
        assert result.exit_code == (2 if "error" in result.stderr else 0), result.stderr
        return result.stdout + result.stderr

    def names() -> list[str]:
        return [entry.name for version in checkpoint.versions()[-1:] for entry in version.entries]

    def feed_part(part: int) -> None:
        write(places.source, f"part-{part}.parquet", ROWS[part * 100 : part * 100 + 100])
        wait_until(lambda: part in checkpoint.batches("commits"), 120)

    write(places.source, "part-0.parquet", ROWS[:100])
    options = ["--input", str(places.source), "--output", str(places.output), "--checkpoint", str(places.checkpoint)]
    with driver(["deploy", str(rules), *options, "--files-per-batch", "1"], log):
        wait_until(lambda: 0 in checkpoint.batches("commits"), 120)
        (rules / "high.sase").write_text(PAIR.format(0.6))
        (rules / "closure.sase").unlink()
        wait_until(lambda: names() == ["low", "high"], 60)
        feed_part(1)
        assert "changed: version" in deploy("add", str(places.checkpoint), str(tmp_path / "extra.sase"))
        assert "there is a query `extra` already" in deploy("add", str(places.checkpoint), str(tmp_path / "extra.sase"))
        feed_part(2)
        assert deploy("list", str(places.checkpoint)).splitlines()[-1].startswith("extra: SELECT")
        assert "the stream runs" in deploy("status", str(places.checkpoint))
        assert "changed" in deploy("remove", str(places.checkpoint), "low")
    assert names() == ["high", "extra"]
    assert "refused: broken" in log.read_text()
    assert "does not run" in deploy("status", str(places.checkpoint))
    # What certain matches there are by the end of the last batch.
    for name, text, first in (("high", PAIR.format(0.6), 100), ("extra", TRIPLE, 200)):
        assert places.matches(name) <= expected(text, ROWS[first:300])
        assert places.matches(name) >= expected(text, ROWS[first:299])
