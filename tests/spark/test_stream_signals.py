"""Signals stop a stream with one line, whatever processes they reach, and nothing is lost."""

from __future__ import annotations

import os
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
    wait_until,
    write_parts,
)

pytestmark = pytest.mark.spark

ROWS = events(1, 400)


@pytest.mark.parametrize(
    ("number", "to_all"),
    [
        (signal.SIGTERM, True),
        *(
            pytest.param(number, to_all, marks=pytest.mark.slow)
            for number, to_all in [(signal.SIGINT, True), (signal.SIGTERM, False), (signal.SIGHUP, True)]
        ),
    ],
)
def test_a_signal_stops_a_stream_with_one_line(tmp_path: Path, number: signal.Signals, to_all: bool) -> None:
    places, log = Places(tmp_path), tmp_path / "log"
    write_parts(places.source, disordered(ROWS, 1), 10)
    words = command(places, query_file(places, CLOSURE))
    words.remove("--available-now")
    with driver(words, log, "local[1]") as process:
        wait_until(lambda: process.poll() is not None or any(places.checkpoint.glob("commits/[0-9]*")), 240)
        (os.killpg if to_all else os.kill)(process.pid, number)
        assert process.wait(timeout=120) == 0, log.read_text()
    notes, *stopped = [line for line in log.read_text().splitlines() if not line.startswith("WARNING: Using incubator")]
    assert notes.startswith("q: by id") and len(stopped) == 1, log.read_text()
    assert stopped[0].startswith("stopped; q: ") and "resumes" in stopped[0]
    finish([*words, "--available-now"], log)
    assert places.matches() == expected(CLOSURE, ROWS)
