"""The second part of the demo: a stream whose driver is killed and restarted. Its output is compared with batch."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from shutil import rmtree

import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from cepheid import datasets
from cepheid.api import match, read_output
from cepheid.app import report
from cepheid.errors import CepheidError, counted
from cepheid.io.json_text import dumps
from cepheid.io.sinks import make_directory
from cepheid.streaming.storage import LocalDirectory

FILES, EVENTS_A_FILE = 16, 2_000
DISORDER = 300
"""The maximum delay of an event, in ticks."""
KILLED_AFTER = 6
"""The number of batches before the kill."""
_POLL_SECONDS = 0.05


class Stage:
    """The files of the stream."""

    def __init__(self, directory: Path) -> None:
        self.events, self.query = directory / "events", directory / "query.sase"
        self.matches, self.checkpoint = directory / "matches", directory / "checkpoint"
        self.log = directory / "driver.log"

    def command(self) -> list[str]:
        named = {
            "--query-file": self.query,
            "--input": self.events,
            "--checkpoint": self.checkpoint,
            "--output": self.matches,
        }
        words = [word for name, path in named.items() for word in (name, str(path))]
        return ["stream", *words, "--watermark", str(DISORDER), "--files-per-batch", "1", "--available-now"]

    def batches(self) -> int:
        """The number of complete batches. Spark writes a file per batch and deletes old ones."""
        return max((int(name) + 1 for name in LocalDirectory(self.checkpoint / "commits").names()), default=0)

    def match_count(self) -> int:
        return read_output(str(self.matches)).num_rows if LocalDirectory(self.matches).names() else 0


def show_stream(directory: Path, query: str, console: Console) -> None:
    """Replaces the content of the directory."""
    stage = Stage(directory)
    console.rule("A stream that is killed and restarted", align="left")
    rmtree(directory, ignore_errors=True)
    make_directory(directory)
    stage.query.write_text(query, encoding="utf-8")
    events = datasets.retail(FILES * EVENTS_A_FILE, tags=2_000, seed=2)
    _write_out_of_order(events, stage.events)
    report.say(
        console, f"{events.num_rows:,} readings in {FILES} files, out of order, each up to {DISORDER} ticks late.\n"
    )
    report.say(console, f"$ cepheid {' '.join(stage.command())}", "green")
    with Progress(
        TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[status]}"), console=console
    ) as bar:
        task = bar.add_task("starting", total=FILES, status="")
        with _driver(stage) as driver:
            _follow(driver, stage, bar, task, until=KILLED_AFTER)
            os.killpg(driver.pid, signal.SIGKILL)
            driver.wait()
        message = f"kill -9 of the driver, process {driver.pid}: {_status(stage)}"
        bar.console.print(f"[bold red]{message}[/]")
        bar.console.print("[green]$ the same command again[/]")
        bar.update(task, description="restarting")
        with _driver(stage) as driver:
            _follow(driver, stage, bar, task, until=None)
    report.say(console, f"The stream has ended: {_status(stage)}.")
    _compare(stage, query, events, console)


def _write_out_of_order(events: pa.Table, directory: Path) -> None:
    make_directory(directory)
    delay = np.random.default_rng(3).integers(0, DISORDER, events.num_rows)
    arriving = events.take(np.argsort(np.asarray(events["ts"]) + delay, kind="stable"))
    for number in range(FILES):
        datasets.write(arriving.slice(number * EVENTS_A_FILE, EVENTS_A_FILE), directory / f"part-{number:03d}.parquet")


@contextmanager
def _driver(stage: Stage) -> Iterator[subprocess.Popen[bytes]]:
    """The driver in its own process group, which is killed at the end of the demo."""
    with stage.log.open("ab") as log:
        words = [sys.executable, "-P", "-m", "cepheid", *stage.command()]
        process = subprocess.Popen(words, stdout=log, stderr=log, start_new_session=True)
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _follow(driver: subprocess.Popen[bytes], stage: Stage, bar: Progress, task: TaskID, until: int | None) -> None:
    """Shows the progress until `until` batches are complete or the stream has ended."""
    seen = 0
    while True:
        ended, done = driver.poll() is not None, stage.batches()
        if done > seen:
            seen = done
            bar.update(task, completed=min(done, FILES), description="streaming", status=_status(stage))
        if until is not None and done >= until and not ended:
            return
        if ended and (driver.returncode != 0 or until is not None):
            last = stage.log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-5:]
            raise CepheidError("the stream ended unexpectedly: " + " ".join(last), hint=f"the log is {stage.log}")
        if ended:
            return
        time.sleep(_POLL_SECONDS)


def _status(stage: Stage) -> str:
    return f"{counted(stage.batches(), 'batch', 'batches')} done, {stage.match_count():,} matches written"


def _compare(stage: Stage, query: str, events: pa.Table, console: Console) -> None:
    stream, batch = _rows(read_output(str(stage.matches))), _rows(match(query, events))
    lost, twice = batch - stream, stream - batch
    if lost or twice:
        raise CepheidError(f"the stream lost {lost.total()} matches of batch and has {twice.total()} others")
    report.say(
        console,
        f"The same query over the same events in batch: {batch.total():,} matches, all identical. "
        "None was lost, none came twice.",
        "bold",
    )


def _rows(table: pa.Table) -> Counter[str]:
    return Counter(dumps(row) for row in table.to_pylist())
