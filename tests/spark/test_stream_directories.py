"""Several directories as one stream on Spark: every match once, over restarts, moves and kills."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from stream_harness import Places, driver, events, finish, kill, multiset, wait_for, wait_until, write
from typer.testing import CliRunner, Result

import cepheid
from cepheid.app.cli import app
from cepheid.errors import CepheidError

pytestmark = pytest.mark.spark

QUERY = "EVENT SEQ(A a, B b, !(C c)) WHERE [id] WITHIN 90 ms RETURN a.id AS id, a.ts AS s, b.at AS e, b.v AS v"
ROWS = events(3, 600)
PARTS = 5


class Several(Places):
    def inputs(self) -> list[cepheid.Input]:
        """A as CSV, B with another column of time, C with a column of its type."""
        return [
            cepheid.Input(str(self.source / "a"), type="A", time_unit="ms"),
            cepheid.Input(str(self.source / "b"), type="B", time_column="at", time_unit="ms"),
            cepheid.Input(str(self.source / "c"), type_column="kind", time_unit="ms"),
        ]

    def words(self, *more: str) -> list[str]:
        given = ["a,type=A,unit=ms", "b,type=B,time=at,unit=ms", "c,type-column=kind,unit=ms"]
        words = ["stream", "--query", QUERY, "--checkpoint", str(self.checkpoint), "--output", str(self.output)]
        words += ["--watermark", "10 s", "--available-now", "--format", "parquet", *more]
        return [*words, *(word for text in given for word in ("--input", f"{self.source}/{text}"))]

    def feed(self, number: int) -> None:
        size = -(-len(ROWS) // PARTS)
        own = ROWS[number * size : (number + 1) * size]
        (self.source / "a").mkdir(parents=True, exist_ok=True)
        lines = [f"{row['ts']},{row['id']}\n" for row in own if row["type"] == "A"]
        hidden = self.source / "a" / f".{number}"
        hidden.write_text("ts,id\n" + "".join(lines))
        hidden.rename(hidden.with_name(f"{number}.csv"))
        second = [{"at": row["ts"], "id": row["id"], "v": row["v"]} for row in own if row["type"] == "B"]
        write(self.source / "b", f"{number}.jsonl", second)
        third = [{"kind": "C", "ts": row["ts"], "id": row["id"]} for row in own if row["type"] == "C"]
        write(self.source / "c", f"{number}.jsonl", third)

    def wanted(self) -> Counter[str]:
        matches, _ = cepheid.match(QUERY, self.inputs(), rejects=True)
        assert matches.num_rows
        return multiset(matches.select(["id", "v"]))

    def found(self) -> Counter[str]:
        return multiset(cepheid.read_output(str(self.output)).select(["id", "v"]))


def run(places: Several, *more: str) -> Result:
    return CliRunner().invoke(app, places.words(*more))


def refused(result: Result, *words: str) -> None:
    assert result.exit_code == 2, (result.output, result.exception)
    assert all(word in result.stderr for word in words), result.stderr


def test_several_directories_resume_move_and_stay_the_same(spark: SparkSession, tmp_path: Path) -> None:
    places = Several(tmp_path)
    for name in "abc":
        (places.source / name).mkdir(parents=True)
    empty = run(places)
    assert empty.exit_code == 0 and f"there is no event in `{places.source / 'a'}` or" in empty.stderr
    places.feed(0)
    first = run(places)
    assert first.exit_code == 0, (first.output, first.exception)
    places.feed(1)
    (places.source / "a/bad.csv").write_text("ts,id\nsoon,1\n")
    assert "1 rejected" in run(places).output
    (rejected,) = [line for path in tmp_path.glob("out.rejects/*") for line in path.read_text().splitlines()]
    assert f"{places.source}/a/bad.csv" in rejected
    words = places.words()
    refused(CliRunner().invoke(app, words[:-2]), "reads 3 inputs", "now there are 2", "use a new checkpoint")
    refused(CliRunner().invoke(app, [*words[:-6], *words[-4:], *words[-6:-4]]), "the inputs are in another order")
    places.source.rename(tmp_path / "moved")
    places.source = tmp_path / "moved"
    refused(run(places), "the input is", "--moved")
    assert run(places, "--moved").exit_code == 0
    for number in range(2, PARTS):
        places.feed(number)
    assert run(places).exit_code == 0
    assert places.found() == places.wanted()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_killed_streams_over_directories_find_each_match_once(tmp_path: Path, seed: int) -> None:
    rng, places, log = random.Random(seed), Several(tmp_path), tmp_path / "log"
    moments = ["a file is handed over", "state is written", "output is written", "a batch is committed"]
    words = places.words("--files-per-batch", "1")
    for number in range(PARTS):
        places.feed(number)
        with driver(words, log, "local[1]") as process:
            wait_for(rng.choice(moments), places, process, rng)
            kill(process, with_children=True)
    finish(words, log)
    assert places.found() == places.wanted()


def test_python_takes_directories_as_the_command_line_does(spark: SparkSession, tmp_path: Path) -> None:
    """A stop, files that appear before and during the second run, and each match once."""
    places, alerts = Several(tmp_path), list[dict[str, object]]()

    def started(*, available_now: bool) -> cepheid.RunningStream:
        return cepheid.stream(
            QUERY,
            places.inputs(),
            watermark="10 s",
            checkpoint=str(places.checkpoint),
            output=str(places.output),
            on_match=lambda row, _: alerts.append(dict(row)),
            available_now=available_now,
        )

    for name in "abc":
        (places.source / name).mkdir(parents=True)
    with pytest.raises(CepheidError, match="there is no event yet in `"):
        started(available_now=True)
    for number in range(3):
        places.feed(number)
    started(available_now=True).wait()
    running = started(available_now=False)
    read = running.metrics().read
    places.feed(3)
    wait_until(lambda: running.metrics().read > read)
    running.stop()
    places.feed(4)
    resumed = run(places)  # the same stream, from the command line
    assert resumed.exit_code == 0, resumed.output
    assert places.found() == places.wanted()
    assert len(alerts) > 0 and set(alerts[0]) == {"id", "s", "e", "v", "match_start", "match_end"}


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"output": None}, "a stream of directories needs an output"),
        ({"order_by": ["n"], "buckets": 4}, "`buckets`, `order_by` are options of streaming DataFrames"),
        ({"events": {"A": "a", "B": object()}}, "some inputs of the stream are directories"),
        ({"events": ["a", "a/b"]}, "of which one holds the other"),
        ({"events": "nowhere"}, "is not a directory"),
    ],
)
def test_python_refuses_what_directories_cannot_have(
    changed: dict[str, object], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a" / "b").mkdir(parents=True)
    options: dict[str, object] = {"events": "a", "watermark": 5, "checkpoint": "c", "output": "o", **changed}
    with pytest.raises(CepheidError, match=message):
        cepheid.stream(QUERY, **options)  # type: ignore[arg-type]
