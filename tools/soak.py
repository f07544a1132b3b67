"""Runs a stream for as long as one likes, over keys that come and go, and reports its memory and state.

usage: python tools/soak.py [--minutes N] [--files-per-second N] [--events N] [--keys N] [--directory DIR]

Every file has events of a few hundred keys, which later files do not have any more. A line each ten seconds shows the
number of files and matches, the resident memory (of the driver, the JVM and the Python workers), the size of the state,
of Cepheid's part of the checkpoint and of Spark's list of files, and the CPU time since the line before. At the end the
stream is stopped and resumed, and its output compared with batch. The exit code is 1 if it differs, or if memory has
grown by more than half between the second and the last third of a run of five minutes or more.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import cepheid

QUERY = "EVENT SEQ(A x, B y, !(C z)) WHERE [id] WITHIN 2000"
WATERMARK = 50
REPORT_EVERY = 10.0
_LEAST_REPORTS = 10
"""A third of the run must have so many reports: before, memory grows because Spark starts."""
_CLOCK = os.sysconf("SC_CLK_TCK")


def write_file(directory: Path, number: int, events: int, keys: int) -> None:
    """One file with keys of its own. Its name and content depend on its number alone."""
    rng = random.Random(number)
    table = pa.table(
        {
            "type": [rng.choice("ABCD") for _ in range(events)],
            "ts": [1000 * number + at * 1000 // events for at in range(events)],
            "id": [keys * number + rng.randrange(keys) for _ in range(events)],
        }
    )
    hidden = directory / f".{number:09d}.parquet"
    pq.write_table(table, hidden)
    hidden.rename(directory / f"{number:09d}.parquet")


def processes_of(root: int) -> list[int]:
    """A process and its descendants."""
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents[int(path.parent.name)] = int(fields[1])
    found = [root]
    for process in found:
        found += [child for child, parent in parents.items() if parent == process]
    return found


def resident(process: int) -> int:
    """Megabytes."""
    try:
        pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    except OSError:
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE") >> 20


def command_of(process: int) -> str:
    try:
        return Path(f"/proc/{process}/cmdline").read_text().partition("\0")[0]
    except OSError:
        return ""


def cpu_seconds(processes: list[int]) -> float:
    total = 0
    for process in processes:
        try:
            fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        total += int(fields[11]) + int(fields[12])
    return total / _CLOCK


def size(directory: Path) -> int:
    """Kilobytes of the files in a directory."""
    total = 0
    for path in directory.rglob("*"):
        try:
            total += path.stat().st_size if path.is_file() else 0
        except OSError:
            continue
    return total >> 10


def start(base: Path, *more: str) -> subprocess.Popen[bytes]:
    places = {"input": "in", "checkpoint": "checkpoint", "output": "out"}
    words = [word for name, at in places.items() for word in (f"--{name}", str(base / at))]
    command = ["-m", "cepheid", "stream", "--query", QUERY, *words, "--watermark", str(WATERMARK), *more]
    with (base / "log").open("ab") as log:
        return subprocess.Popen([sys.executable, *command], stdout=log, stderr=log, start_new_session=True)


def run(base: Path, minutes: float, files_per_second: float, events: int, keys: int) -> int:
    source, checkpoint = base / "in", base / "checkpoint"
    source.mkdir()
    write_file(source, 0, events, keys)
    written, memory = 1, []
    process = start(base)
    began = reported = time.monotonic()
    cpu = 0.0
    try:
        while (now := time.monotonic()) - began < 60 * minutes and process.poll() is None:
            while written < (now - began) * files_per_second:
                write_file(source, written, events, keys)
                written += 1
            if now - reported >= REPORT_EVERY:
                reported, running = now, processes_of(process.pid)
                used, before = cpu_seconds(running), cpu
                cpu = used
                driver = resident(process.pid)
                jvm = sum(resident(other) for other in running if command_of(other).endswith("java"))
                memory.append(sum(map(resident, running)))
                print(
                    f"{now - began:7.0f} s  {written:7d} files  {len(list((base / 'out').glob('batch-*'))):6d} batches "
                    f"with matches  memory {memory[-1]:5d} MB "
                    f"(driver {driver}, JVM {jvm}, workers {memory[-1] - driver - jvm})  "
                    f"state {size(checkpoint / 'state')} KB  list {size(checkpoint / '_cepheid')} KB  "
                    f"Spark's list {size(checkpoint / 'sources')} KB  {used - before:5.1f} CPU-s",
                    flush=True,
                )
            time.sleep(0.05)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
    if process.wait(300) != 0 or start(base, "--available-now").wait(3600) != 0:
        print((base / "log").read_text())
        return 1
    return max(_difference(base), _growth(memory))


def _difference(base: Path) -> int:
    batch = cepheid.match(QUERY, pq.read_table(sorted((base / "in").iterdir())), time_unit="ms")
    rows = [Counter(map(str, table.to_pylist())) for table in (batch, cepheid.read_output(str(base / "out")))]
    lost, doubled = sum((rows[0] - rows[1]).values()), sum((rows[1] - rows[0]).values())
    print(f"{sum(rows[0].values())} matches in batch; in the stream {lost} are lost and {doubled} are too many")
    return int(bool(lost or doubled))


def _growth(memory: list[int]) -> int:
    third = len(memory) // 3
    if third < _LEAST_REPORTS:
        return 0
    before, after = max(memory[third : 2 * third]), max(memory[2 * third :])
    print(f"memory: {before} MB in the second third of the run, {after} MB in the last")
    return int(after > 1.5 * before)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--files-per-second", type=float, default=2)
    parser.add_argument("--events", type=int, default=2000, help="of each file")
    parser.add_argument("--keys", type=int, default=300, help="of each file")
    parser.add_argument("--directory", type=Path, help="where the stream lives; by default a temporary one")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.directory) as made:
        sys.exit(run(Path(made), options.minutes, options.files_per_second, options.events, options.keys))
