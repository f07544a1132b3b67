"""Signals stop a stream with one line, whatever processes they reach, and nothing is lost.

The fast tests send SIGTERM to all processes in `test_stream_failures.test_a_stream_resumes_from_snapshots`.
"""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
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
    write_parts,
)

pytestmark = pytest.mark.spark

ROWS = events(1, 400)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "to_all"),
    [(signal.SIGTERM, True), (signal.SIGINT, True), (signal.SIGTERM, False), (signal.SIGHUP, True)],
)
def test_a_signal_stops_a_stream_with_one_line(tmp_path: Path, number: signal.Signals, to_all: bool) -> None:
    places, log = Places(tmp_path), tmp_path / "log"
    write_parts(places.source, disordered(ROWS, 1), 10)
    words = command(places, query_file(places, CLOSURE))
    words.remove("--available-now")
    with driver(words, log, "local[1]") as process:
        wait_until(lambda: process.poll() is not None or any(places.checkpoint.glob("commits/[0-9]*")), 240)
        stop(process, log, number, to_all)
    finish([*words, "--available-now"], log)
    assert places.matches() == expected(CLOSURE, ROWS)
