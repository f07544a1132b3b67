"""What breaks under a stream stops it with an error that names the file, and once that is put right it goes on with
nothing lost and nothing twice."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from stream_harness import (
    CLOSURE,
    Places,
    command,
    disordered,
    driver,
    events,
    expected,
    finish,
    query_file,
    stop,
    wait_until,
    write,
)
from typer.testing import CliRunner, Result

from cepheid.app.cli import app

pytestmark = pytest.mark.spark

FILES, SIZE = 7, 40
ROWS = events(1, FILES * SIZE)
ARRIVING = disordered(ROWS, 1)


def run(places: Places, query: str = CLOSURE) -> Result:
    return CliRunner().invoke(app, command(places, query_file(places, query)))


def feed(places: Places, first: int, last: int) -> None:
    for number in range(first, last):
        write(places.source, f"part-{number:02d}.parquet", ARRIVING[number * SIZE : (number + 1) * SIZE])


def require_success(result: Result) -> None:
    assert result.exit_code == 0, (result.output, result.exception)


def require_all_of_it(places: Places) -> None:
    assert places.matches() == expected(CLOSURE, ROWS)
    assert not places.late.exists() and not places.rejects.exists()


@pytest.mark.slow
def test_a_stream_resumes_from_snapshots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A start checks the files that RocksDB's snapshots name. Spark writes snapshots once a minute by default."""
    often = {"maintenanceInterval": "1s", "minDeltasForSnapshot": "2"}
    settings = [
        word for name, value in often.items() for word in ("--conf", f"spark.sql.streaming.stateStore.{name}={value}")
    ]
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", " ".join([*settings, "pyspark-shell"]))
    places, log = Places(tmp_path), tmp_path / "log"
    words = command(places, query_file(places, CLOSURE))
    words.remove("--available-now")
    feed(places, 0, FILES - 1)
    with driver(words, log) as process:
        wait_until(lambda: process.poll() is not None or any(places.checkpoint.glob("state/0/0/SSTs/*.sst")), 240)
        stop(process, log, signal.SIGTERM, to_all=True)
    feed(places, FILES - 1, FILES)
    finish([*words, "--available-now"], log)
    require_all_of_it(places)
    for named in places.checkpoint.glob("state/0/0/SSTs/*.sst"):
        named.write_bytes(b"")
    assert any("is damaged" in line for line in run(places).stderr.splitlines()[:1])


# --- damaged files ----------------------------------------------------------------------------------------------------


def newest(directory: Path, pattern: str) -> Path:
    found = [path for path in directory.glob(pattern) if not path.name.startswith(".")]
    return max(found, key=lambda path: int(path.stem))


Find = Callable[[Places], Path]
DAMAGED: dict[str, Find] = {
    "state": lambda places: newest(places.checkpoint, "state/0/0/*.changelog"),
    "offsets": lambda places: newest(places.checkpoint, "offsets/*"),
    "commits": lambda places: newest(places.checkpoint, "commits/*"),
    "what Spark read": lambda places: newest(places.checkpoint, "sources/0/*"),
    "a slip": lambda places: newest(places.checkpoint, "_cepheid/slips/*.slip"),
    "what the stream is": lambda places: places.checkpoint / "_cepheid" / "stream.json",
    "Spark's name for it": lambda places: places.checkpoint / "metadata",
}


@contextmanager
def garbage_in(path: Path) -> Iterator[None]:
    whole = path.read_bytes()
    path.write_bytes(b"garbage" * 9)
    yield
    path.write_bytes(whole)


@contextmanager
def unreadable(path: Path) -> Iterator[None]:
    """Not even for root, who may read what has no permissions."""
    whole = path.read_bytes()
    path.unlink()
    path.mkdir()
    yield
    path.rmdir()
    path.write_bytes(whole)


@pytest.mark.parametrize(
    "damaged",
    [["state", "offsets", "a slip"], pytest.param(list(DAMAGED), marks=pytest.mark.slow)],
    ids=["some", "all"],
)
def test_damaged_files_are_named_and_after_repair_the_stream_goes_on(
    spark: SparkSession, tmp_path: Path, damaged: list[str]
) -> None:
    places = Places(tmp_path)
    feed(places, 0, 2)
    require_success(run(places))
    feed(places, 2, FILES)
    for what in damaged:
        path = DAMAGED[what](places)
        with garbage_in(path):
            result = run(places)
        assert result.exit_code == 2, (what, result.output, result.exception)
        assert path.name in result.stderr and "hint: " in result.stderr and "restore" in result.stderr, (
            what,
            result.stderr,
        )
    path = DAMAGED["state"](places)
    with unreadable(path):
        result = run(places)
    assert result.exit_code == 2 and "restore it" in result.stderr
    assert f"`{path.relative_to(places.checkpoint)}` in the checkpoint `{places.checkpoint}`" in result.stderr
    require_success(run(places))
    require_all_of_it(places)


def test_a_damaged_input_file_is_named_and_read_once_it_is_whole(spark: SparkSession, tmp_path: Path) -> None:
    places = Places(tmp_path)
    feed(places, 0, 1)
    require_success(run(places))
    feed(places, 1, 3)
    damaged = places.source / "part-02.parquet"
    with garbage_in(damaged):
        feed(places, 3, FILES)
        result = run(places)
        assert result.exit_code == 2
        assert f"cannot read `{damaged}` as Parquet" in result.stderr and "start again" in result.stderr
    require_success(run(places))
    require_all_of_it(places)


# --- a full disk ------------------------------------------------------------------------------------------------------


@contextmanager
def small_disk(at: Path, size: str = "2m") -> Iterator[Path]:
    at.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(at)], capture_output=True)
    if mounted.returncode != 0:
        pytest.skip("a disk can only be made small by those who may mount one")
    try:
        yield at
    finally:
        subprocess.run(["umount", "--lazy", str(at)], check=True)


def fill(disk: Path, room: int) -> Path:
    """All but some bytes; gives the file to remove again."""
    ballast, free = disk / "ballast", os.statvfs(disk)
    ballast.write_bytes(b"\0" * (free.f_bavail * free.f_frsize - room))
    return ballast


PAGE = 4096
OUTPUT = [("output", pages * PAGE) for pages in (0, 2, 4, 6)]
CHECKPOINT = [("checkpoint", pages * PAGE) for pages in (0, 1, 2, 4, 6, 8, 12, 14)]


@pytest.mark.parametrize(
    ("what", "room"),
    [("checkpoint", 10 * PAGE), *(pytest.param(*at, marks=pytest.mark.slow) for at in [*OUTPUT, *CHECKPOINT])],
)
def test_a_full_disk_stops_the_stream_and_with_room_it_goes_on(
    spark: SparkSession, tmp_path: Path, what: str, room: int
) -> None:
    with small_disk(tmp_path / "disk") as disk:
        places = Places(tmp_path)
        setattr(places, what, disk / what)
        feed(places, 0, 1)
        require_success(run(places))
        feed(places, 1, FILES)
        ballast = fill(disk, room)
        result = run(places)
        ballast.unlink()
        assert result.exit_code == 2, (result.output, result.exception)
        assert "No space left on device" in result.stderr or "the disk is full" in result.stderr
        assert str(disk / what) in result.stderr and "start again" in result.stderr
        require_success(run(places))
        require_all_of_it(places)
