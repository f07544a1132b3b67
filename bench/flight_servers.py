"""Sources in processes of their own, behind Arrow Flight, for experiments of plan-based CED."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

_SENT = re.compile(r"([\d,]+) events and ([\d,]+) bytes sent in ([\d,]+) answers")


@dataclass(slots=True)
class Served:
    """Running servers. After `stop`, `events`, `bytes` and `answers` are what they have sent in all."""

    processes: list[subprocess.Popen[str]]
    path: str
    """The file that names the sources."""
    events: int = 0
    bytes: int = 0
    answers: int = 0
    _stopped: bool = field(default=False)

    def stop(self) -> None:
        if self._stopped:
            return
        self._stopped = True
        for process in self.processes:
            process.send_signal(signal.SIGTERM)
        for process in self.processes:
            _, errors = process.communicate(timeout=30)
            found = _SENT.search(errors)
            if found is not None:
                self.events += int(found[1].replace(",", ""))
                self.bytes += int(found[2].replace(",", ""))
                self.answers += int(found[3].replace(",", ""))


@contextmanager
def served(directory: Path, tables: Mapping[str, pa.Table], latency: object = 5) -> Iterator[Served]:
    """`./cepheid source serve` for each table, in a process of its own."""
    processes: list[subprocess.Popen[str]] = []
    entries = []
    directory.mkdir(parents=True, exist_ok=True)
    try:
        for name, table in tables.items():
            file = directory / f"{name}.parquet"
            pq.write_table(table, file)
            command = [sys.executable, "-m", "cepheid", "source", "serve", "--name", name, "--input", str(file)]
            pipe = subprocess.PIPE
            processes.append(subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True))
        for name, process in zip(tables, processes, strict=True):
            assert process.stdout is not None
            address = process.stdout.readline().strip()
            if not address:
                raise RuntimeError(f"the source {name} did not start: {process.communicate()[1]}")
            entries.append({"name": name, "address": address, "latency": latency})
        path = directory / "sources.json"
        path.write_text(json.dumps({"sources": entries}))
        found = Served(processes, str(path))
        yield found
        found.stop()
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
                process.wait()
