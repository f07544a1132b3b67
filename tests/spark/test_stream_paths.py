"""The directories of a stream: spelled in several ways, moved, with odd characters, or belonging to another stream."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from stream_harness import CLOSURE, Places, command, disordered, events, expected, query_file, write
from typer.testing import CliRunner, Result

from cepheid.app.cli import app

pytestmark = pytest.mark.spark

SIZE = 40
ROWS = events(1, 4 * SIZE)
ARRIVING = disordered(ROWS, 1)
ODD = ["a b", "%20%", '#"', "line\nbreak\ttab", "é`'$&+,;=@!~()<>|^"]
WILD = ["*?", "[a]", "{b,c}", "\\"]


def feed(places: Places, *numbers: int) -> None:
    for number in numbers:
        write(places.source, f"part-{number:02d}.jsonl", ARRIVING[number * SIZE : (number + 1) * SIZE])


def run(places: Places, *more: str) -> Result:
    words = command(places, query_file(places, CLOSURE), more=[*more, "--format", "parquet"])
    words.remove("--files-per-batch")
    words.remove("1")
    return CliRunner().invoke(app, words)


def refused(result: Result, *words: str) -> None:
    assert result.exit_code == 2, (result.output, result.exception)
    assert all(word in result.stderr for word in words), result.stderr
    assert "Traceback" not in result.stderr and len(result.stderr.splitlines()) <= 4, result.stderr


def test_a_directory_is_the_same_by_any_name_and_a_moved_one_needs_a_word(spark: SparkSession, tmp_path: Path) -> None:
    places = Places(tmp_path)
    feed(places, 0)
    assert run(places).exit_code == 0
    (tmp_path / "link").symlink_to(tmp_path)
    spelled = Places(tmp_path / "link/in/..")
    spelled.base = tmp_path
    feed(places, 1)
    assert f"1 batch; {SIZE} rows read: {SIZE} used" in run(spelled).output
    for name in ("in", "checkpoint"):
        (tmp_path / name).rename(tmp_path / f"moved {name}")
    places.source, places.checkpoint = tmp_path / "moved in", tmp_path / "moved checkpoint"
    feed(places, 2)
    refused(run(places), "the checkpoint is", "moved checkpoint", "at the last start it was", "--moved")
    assert f"1 batch; {SIZE} rows read: {SIZE} used" in run(places, "--moved").output
    feed(places, 3)
    assert f"1 batch; {SIZE} rows read: {SIZE} used" in run(places).output
    assert places.matches() == expected(CLOSURE, ROWS)


def test_paths_with_odd_characters_work(spark: SparkSession, tmp_path: Path) -> None:
    """All of them in one path, in two starts. Spark takes some for wildcards, in the path of a checkpoint only."""
    odd = Places(tmp_path.joinpath(*ODD, *WILD))
    odd.checkpoint = tmp_path.joinpath(*ODD, "checkpoint")
    feed(odd, 0, 1)
    first = run(odd)
    assert first.exit_code == 0, (first.output, first.exception)
    feed(odd, 2, 3)
    assert f"1 batch; {2 * SIZE} rows read: {2 * SIZE} used" in run(odd).output
    assert odd.matches() == expected(CLOSURE, ROWS)


def test_an_output_belongs_to_one_checkpoint(spark: SparkSession, tmp_path: Path) -> None:
    places = Places(tmp_path)
    feed(places, 0, 1, 2, 3)
    assert run(places).exit_code == 0
    new = Places(tmp_path)
    new.checkpoint = tmp_path / "new"
    refused(
        run(new),
        f"`{places.output}` has the output of another stream, not of the one with the checkpoint `{new.checkpoint}`",
    )
    elsewhere = Places(tmp_path)
    elsewhere.output = tmp_path / "of another"
    write(elsewhere.output, "batch-000000000000.parquet", ROWS[:1])
    refused(run(elsewhere), f"`{elsewhere.output}` has the output of another stream")
    (elsewhere.output / "batch-000000000000.parquet").unlink()
    assert run(elsewhere).exit_code == 0, "another output, from now on"
    assert places.matches() == expected(CLOSURE, ROWS)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"output": "in/out"}, ["the output", "is inside the input"]),
        ({"late": "in/_late"}, ["the late output", "is inside the input"]),
        ({"source": "out/more/in"}, ["the input", "is inside the output"]),
        ({"source": "link/out/in"}, ["the input", "is inside the output"]),
        ({"checkpoint": "in/checkpoint"}, ["the checkpoint", "is inside the input"]),
        ({"rejects": "link/out/../out"}, ["is both the output and the reject output"]),
        ({"checkpoint": "link/in"}, ["is both the input and the checkpoint"]),
        ({"output": "\udcff"}, ["cannot be the path of a directory"]),
        *[({"checkpoint": f"{wild}/checkpoint"}, ["which Spark takes for a wildcard"]) for wild in WILD],
    ],
)
def test_a_stream_does_not_read_what_it_writes(tmp_path: Path, changed: dict[str, str], words: list[str]) -> None:
    places = Places(tmp_path)
    (tmp_path / "link").symlink_to(tmp_path)
    for name, path in changed.items():
        setattr(places, name, tmp_path / path)
    feed(places, 0)
    refused(run(places), *words)
