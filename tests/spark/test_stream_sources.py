"""A plan over sources as a stream: the process is killed again and again, and its sources drop what they have sent."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from detection.test_adaptation import QUERY as DRIFTING
from detection.test_adaptation import drifting
from detection.test_flight import TABLES, listed, served
from detection.test_saved import NEGATED
from detection.waiting import sizes, wait_until
from ports import free_port

import cepheid
from cepheid.io.growing_log import GrowingLog
from cepheid.io.inputs import DEFAULT_COLUMNS

pytestmark = pytest.mark.spark

PARTS = 3
"""The sources get their events in so many parts."""


def stream_command(directory: Path, *more: str) -> list[str]:
    command = ["stream", "--query-file", str(directory / "q.ced"), "--sources", str(directory / "sources.json")]
    command += ["--checkpoint", str(directory / "checkpoint"), "--output", str(directory / "out")]
    return [sys.executable, "-m", "cepheid", *command, "--format", "jsonl", "--master", "local[1]", *more]


def found(directory: Path, last: str = "c") -> list[tuple[int, int]]:
    """The times of the first and the last event of each match."""
    files = sorted((directory / "out").glob("batch-*.jsonl"))
    lines = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    return sorted((line["a"]["ts"], line[last]["ts"]) for line in lines)


def oracle(last: int) -> list[tuple[int, int]]:
    """The matches of the events up to a time."""
    table = pa.concat_tables(TABLES.values())
    rows = cepheid.match(NEGATED, table.filter(pa.compute.less_equal(table["ts"], last))).to_pylist()
    return sorted((row["a"]["ts"], row["c"]["ts"]) for row in rows)


def test_files_as_sources_are_a_stream(tmp_path: Path) -> None:
    for name, table in TABLES.items():
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))
    entries = [{"name": name, "file": f"{name}.jsonl"} for name in TABLES]
    (tmp_path / "sources.json").write_text(json.dumps({"sources": entries}))
    (tmp_path / "q.ced").write_text(NEGATED)
    done = subprocess.run(stream_command(tmp_path, "--available-now"), capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
    assert found(tmp_path) == oracle(30_000)
    assert " events received in " in done.stderr
    acquired = tmp_path / "checkpoint.acquired"
    (left,) = acquired.glob("*.parquet")  # the others have been read
    left.rename(acquired / f"000000007_{left.stem.partition('_')[2]}.parquet")
    other = stream_command(tmp_path, "--available-now", "--checkpoint", str(tmp_path / "new"))
    acquired.rename(tmp_path / "new.acquired")
    refused = subprocess.run(other, capture_output=True, text=True, timeout=500)
    assert refused.returncode == 2
    assert "files that another one has read were removed from" in refused.stderr


def test_several_queries_share_what_is_acquired(tmp_path: Path) -> None:
    for name, table in TABLES.items():
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))
    entries = [{"name": name, "file": f"{name}.jsonl"} for name in TABLES]
    (tmp_path / "sources.json").write_text(json.dumps({"sources": entries}))
    (tmp_path / "q.ced").write_text(NEGATED)
    pairs = "complex R on A as a, C as c event and(a, c; 60) where a.id = c.id"
    (tmp_path / "r.ced").write_text(pairs)
    command = stream_command(tmp_path, "--query-file", str(tmp_path / "r.ced"), "--available-now")
    done = subprocess.run(command, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for file in (tmp_path / "out").rglob("*.jsonl") for line in file.read_text().splitlines()]
    counts = {name: sum(line["query"] == name for line in lines) for name in ("q", "r")}
    assert counts == {"q": len(oracle(30_000)), "r": cepheid.match(pairs, pa.concat_tables(TABLES.values())).num_rows}


def stop(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def has_all(directory: Path, stream: subprocess.Popen[bytes], wanted: set[tuple[int, int]], last: str = "c") -> bool:
    assert stream.poll() is None, (directory / "log").read_text()
    return wanted <= set(found(directory, last))


@pytest.mark.slow
def test_the_plan_of_a_stream_follows_the_rates(tmp_path: Path) -> None:
    """First `A` is rare, then `B`: the plan changes while the stream runs, with a line that says why. No match is
    missed, and none is there twice."""
    tables = {"first": drifting("A", (0.003, 0.3), 6_000), "second": drifting("B", (0.3, 0.003), 6_000)}
    logs = {name: GrowingLog(name, DEFAULT_COLUMNS) for name in tables}
    (tmp_path / "q.ced").write_text(DRIFTING)

    def grow(first: int, last: int) -> None:
        for name, table in tables.items():
            times = table["ts"].to_pylist()
            logs[name].append(table.filter(pa.array([first <= time < last for time in times])))

    def wanted(last: int) -> set[tuple[int, int]]:
        table = pa.concat_tables(tables.values())
        matches = cepheid.match(DRIFTING, table.filter(pa.compute.less(table["ts"], last))).to_pylist()
        return {(row["a"]["ts"], row["b"]["ts"]) for row in matches}

    def progress() -> object:
        return sizes(*(tmp_path / name for name in ("checkpoint.acquired", "checkpoint", "out", "log")))

    grow(0, 6_000)
    known = max(time for time in tables["first"]["ts"].to_pylist() if time < 6_000) - 100  # the rare ones say how far
    with served(*logs.values()) as servers, (tmp_path / "log").open("wb") as log:
        listed(tmp_path, servers)
        stream = subprocess.Popen(stream_command(tmp_path), stdout=log, stderr=log, start_new_session=True)
        try:
            assert wait_until(partial(has_all, tmp_path, stream, wanted(known), "b"), progress), (
                tmp_path / "log"
            ).read_text()
            for begin in range(6_000, 12_000, 50):  # the rates are compared every five seconds
                grow(begin, begin + 50)
                time.sleep(0.15)
            for source in logs.values():
                source.end()
            assert wait_until(partial(has_all, tmp_path, stream, wanted(12_000), "b"), progress), (
                tmp_path / "log"
            ).read_text()
        finally:
            stop(stream)
    result, said = found(tmp_path, "b"), (tmp_path / "log").read_text()
    assert len(result) == len(set(result)) and set(result) == wanted(12_000)
    assert "the plan a → b became b → a at " in said and "rates have changed (" in said, said
    moved = sum(source.sent.events for source in logs.values())
    assert moved < 0.8 * sum(table.num_rows for table in tables.values())


@pytest.mark.slow
def test_killed_streams_over_sources_find_each_match_once(tmp_path: Path) -> None:
    """The stream is killed in each part, and servers drop the events of a part when those of the next come. The last
    matches come without an end of the sources."""
    rng = random.Random(1)
    ports = {name: free_port() for name in TABLES}
    entries = [{"name": name, "address": f"grpc://127.0.0.1:{port}", "latency": 5} for name, port in ports.items()]
    (tmp_path / "sources.json").write_text(json.dumps({"sources": entries}))
    (tmp_path / "q.ced").write_text(NEGATED)
    length = 20_000 // PARTS

    def serve(name: str) -> subprocess.Popen[bytes]:
        command = ["source", "serve", "--name", name, "--follow", str(tmp_path / f"{name}.jsonl")]
        command += ["--listen", f"127.0.0.1:{ports[name]}", "--retention", str(length + 300), "--time-unit", "s"]
        process = subprocess.Popen([sys.executable, "-m", "cepheid", *command], stdout=subprocess.PIPE)
        assert process.stdout is not None
        assert process.stdout.readline(), name  # it listens
        return process

    def start() -> subprocess.Popen[bytes]:
        with (tmp_path / "log").open("ab") as log:
            command = stream_command(tmp_path, "--plan", "a -> c -> !b")
            return subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)

    def grow(part: int) -> None:
        for name, table in TABLES.items():
            rows = [row for row in table.to_pylist() if part * length <= row["ts"] < (part + 1) * length]
            rows.append({"type": rows[0]["type"], "ts": (part + 1) * length - 1, "id": 0})  # all say how far they are
            with (tmp_path / f"{name}.jsonl").open("a") as file:
                file.write("".join(json.dumps(row) + "\n" for row in rows))

    acquired = tmp_path / "checkpoint.acquired"

    def written() -> object:
        return sizes(acquired, tmp_path / "checkpoint", tmp_path / "out", tmp_path / "log")

    grow(0)
    servers = {name: serve(name) for name in TABLES}
    stream = start()
    try:
        for part in range(PARTS):
            if part:
                grow(part)
            for _ in range(rng.choice((1, 2))):
                time.sleep(rng.uniform(1, 9))
                stop(stream)
                stream = start()
            wanted = set(oracle((part + 1) * length - 101))
            assert wait_until(partial(has_all, tmp_path, stream, wanted), written), (tmp_path / "log").read_text()
        assert wait_until(lambda: not any(acquired.glob("000000001_*")), written)  # its batch is committed
        result = found(tmp_path)
    finally:
        stop(stream)
        for server in servers.values():
            server.kill()
            server.wait()
    log = (tmp_path / "log").read_text()
    assert "gap" not in log, log
    assert len(result) == len(set(result))
    assert set(result) <= set(oracle(30_000))
