"""What tests of streams on Spark share: events and the files they come in, the places of a stream, its driver as a
process of its own, and ways to kill it at moments that matter."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import cepheid

Row = dict[str, Any]

COLUMNS = "type string, ts long, id long, v double"
SCHEMA = pa.schema([("type", pa.string()), ("ts", pa.int64()), ("id", pa.int64()), ("v", pa.float64())])
NEGATION = "EVENT SEQ(A x, B y, !(C z)) WHERE [id] WITHIN 90"
CLOSURE = "PATTERN SEQ(A a, B+ b[], C c) WHERE skip_till_next_match(a, b[], c) {[id]} WITHIN 80"
DISORDER = 15


# --- events -----------------------------------------------------------------------------------------------------------


def events(seed: int, count: int, keys: int = 20) -> list[Row]:
    rng = random.Random(seed)
    return [
        {"type": rng.choice("ABCD"), "ts": number, "id": rng.randint(1, keys), "v": rng.random()}
        for number in range(count)
    ]


def disordered(rows: Sequence[Row], seed: int) -> list[Row]:
    rng = random.Random(seed)
    return sorted(rows, key=lambda row: row["ts"] + rng.randint(0, DISORDER))


def write(directory: Path, name: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """A file appears whole."""
    directory.mkdir(parents=True, exist_ok=True)
    hidden = directory / f".{name}"
    if name.endswith(".parquet"):
        pq.write_table(pa.Table.from_pylist(list(rows), SCHEMA), hidden)
    else:
        hidden.write_text("".join(json.dumps(row) + "\n" for row in rows))
    hidden.rename(directory / name)


def write_parts(directory: Path, rows: Sequence[Row], parts: int, ending: str = "parquet") -> None:
    size = -(-len(rows) // parts)
    for number in range(parts):
        name = f"part-{number:03d}.{ending}"
        write(directory, name, rows[number * size : (number + 1) * size])
        made = time.time() - 10 + number / 100  # Spark takes files in the order of their times
        os.utime(directory / name, (made, made))


def multiset(table: pa.Table) -> Counter[str]:
    return Counter(json.dumps(row, sort_keys=True) for row in table.to_pylist())


def expected(query: str, rows: Sequence[Row]) -> Counter[str]:
    """What batch finds."""
    return multiset(cepheid.match(query, pa.Table.from_pylist(list(rows), SCHEMA)))


# --- places -----------------------------------------------------------------------------------------------------------


class Places:
    def __init__(self, base: Path) -> None:
        self.base = base
        self.source, self.checkpoint, self.output, self.late, self.rejects = (
            base / name for name in ("in", "checkpoint", "out", "late", "rejects")
        )

    def options(self) -> dict[str, Any]:
        return {
            "checkpoint": str(self.checkpoint),
            "output": str(self.output),
            "late_output": str(self.late),
            "reject_output": str(self.rejects),
        }

    def matches(self, name: str | None = None) -> Counter[str]:
        return multiset(cepheid.read_output(str(self.output), query=name))


def query_file(places: Places, text: str, name: str = "q") -> Path:
    places.base.mkdir(parents=True, exist_ok=True)
    file = places.base / f"{name}.txt"
    file.write_text(text)
    return file


def command(places: Places, *queries: Path, more: Sequence[str] = ()) -> list[str]:
    named = {
        "input": places.source,
        "checkpoint": places.checkpoint,
        "output": places.output,
        "late-output": places.late,
        "reject-output": places.rejects,
    }
    options = [word for name, at in named.items() for word in (f"--{name}", str(at))]
    files = [word for query in queries for word in ("--query-file", str(query))]
    bounds = ["--files-per-batch", "1", "--watermark", str(DISORDER), "--available-now"]
    return ["stream", *files, *options, *bounds, *more]


# --- drivers ----------------------------------------------------------------------------------------------------------


_QUICK = "-XX:TieredStopAtLevel=1"
"""Without Java's optimising compiler, which costs a short stream more than it gains."""
QUICK_START = {"SPARK_SUBMIT_OPTS": f"{_QUICK} -Dspark.executor.extraJavaOptions={_QUICK}"}
"""Of the driver and, on a cluster, of executors."""


@contextlib.contextmanager
def driver(arguments: Sequence[str], log: Path, master: str = "local[2]") -> Iterator[subprocess.Popen[bytes]]:
    """A stream in a process of its own, which does not outlive the test."""
    with log.open("wb") as told:
        words = [sys.executable, "-m", "cepheid", *arguments, "--master", master]
        process = subprocess.Popen(
            words, stdout=told, stderr=told, start_new_session=True, env={**os.environ, **QUICK_START}
        )
    try:
        yield process
    finally:
        kill(process, with_children=True)


def stop(process: subprocess.Popen[bytes], log: Path, number: signal.Signals, to_all: bool) -> None:
    """A signal, to the driver alone or to its children too, stops a stream with one line."""
    (os.killpg if to_all else os.kill)(process.pid, number)
    assert process.wait(timeout=120) == 0, log.read_text()
    notes, *stopped = [line for line in log.read_text().splitlines() if not line.startswith("WARNING: Using incubator")]
    assert notes.startswith("q: by id") and len(stopped) == 1, log.read_text()
    assert stopped[0].startswith("stopped; q: ") and "resumes" in stopped[0]


def kill(process: subprocess.Popen[bytes], with_children: bool, number: signal.Signals = signal.SIGKILL) -> None:
    """A signal that ends the driver alone, or the JVM and the workers too."""
    with contextlib.suppress(ProcessLookupError):
        (os.killpg if with_children else os.kill)(process.pid, number)
    process.wait(timeout=300)


def finish(arguments: Sequence[str], log: Path, seconds: int = 600, master: str = "local[2]") -> None:
    with driver(arguments, log, master) as process:
        assert process.wait(timeout=seconds) == 0, log.read_text(errors="replace")


def wait_until(holds: Callable[[], bool], seconds: float = 60) -> None:
    until = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < until, "it did not happen in time"
        time.sleep(0.05)


# --- moments ----------------------------------------------------------------------------------------------------------


def _all_files(directory: Path) -> frozenset[str]:
    """Hidden ones too: a file that is being written."""
    found = (os.path.join(at, name) for at, _, names in os.walk(directory) for name in names)
    return frozenset(found)


MOMENTS: Mapping[str, Callable[[Places], frozenset[str]]] = {
    "a file is handed over": lambda places: _all_files(places.checkpoint / "_cepheid"),
    "a batch is planned": lambda places: _all_files(places.checkpoint / "offsets"),
    "state is written": lambda places: _all_files(places.checkpoint / "state"),
    "output is written": lambda places: _all_files(places.output),
    "late events are written": lambda places: _all_files(places.late),
    "a batch is committed": lambda places: _all_files(places.checkpoint / "commits"),
    "time ends": lambda places: frozenset(p for p in _all_files(places.output) if "end-of-time" in p),
}
"""What shows on the disk when the driver is in the middle of something."""
STARTING = "it starts"


def wait_for(moment: str, places: Places, process: subprocess.Popen[bytes], rng: random.Random) -> bool:
    """Until the moment has come, the first time or a later one, or shortly after; False if the driver ended first."""
    if moment == STARTING:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(rng.uniform(0, 15))
        return process.poll() is None
    look = MOMENTS[moment]
    seen = look(places)
    for _ in range(rng.choice([1, 1, 2, 3, 6])):
        while process.poll() is None and (now := look(places)) == seen:
            time.sleep(0.001)
        if process.poll() is not None:
            return False
        seen = now
    time.sleep(rng.choice([0, 0, rng.uniform(0, 0.02), rng.uniform(0, 0.3), rng.uniform(0, 1.5)]))
    return process.poll() is None
