"""CPU time and cores of a process and its descendants (a driver, its JVM, the workers)."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path


def cpu_of_family(root: int) -> float:
    """CPU seconds of a process and its descendants, including those that have ended."""
    family = _family(root)
    return sum(sum(map(int, fields[11:15])) for fields in family.values()) / os.sysconf("SC_CLK_TCK")


@dataclass(slots=True)
class FamilyClock:
    """CPU seconds of this process and all descendants that it has seen. One that has ended counts as far as it was
    seen, so that the sum never decreases."""

    seen: dict[int, int] = field(default_factory=dict)

    def __call__(self) -> float:
        for pid, fields in _family(os.getpid()).items():
            self.seen[pid] = max(self.seen.get(pid, 0), sum(map(int, fields[11:13])))
        return sum(self.seen.values()) / os.sysconf("SC_CLK_TCK")


def _family(root: int) -> dict[int, list[str]]:
    """A process and its descendants, with the fields of /proc/PID/stat after the name."""
    known: dict[int, list[str]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                known[int(entry.name)] = (entry / "stat").read_text().rsplit(")", 1)[1].split()
            except (FileNotFoundError, ProcessLookupError):
                continue
    family, grown = {root}, True
    while grown:
        more = {pid for pid, fields in known.items() if int(fields[1]) in family} - family
        family, grown = family | more, bool(more)
    return {pid: known[pid] for pid in family if pid in known}


@contextmanager
def pinned(cores: int) -> Iterator[None]:
    """Limits this process, its descendants and their new children to a number of cores."""
    before = os.sched_getaffinity(0)
    _bind(set(sorted(before)[:cores]))
    try:
        yield
    finally:
        _bind(before)


def _bind(cores: set[int]) -> None:
    """Sets the affinity of each thread, because new threads inherit it."""
    for pid in _family(os.getpid()):
        with suppress(FileNotFoundError):
            for task in Path(f"/proc/{pid}/task").iterdir():
                with suppress(ProcessLookupError):
                    os.sched_setaffinity(int(task.name), cores)


_LOOP = "for _ in range(60_000_000): pass"


def seconds_of_two(cores: int) -> float:
    """The time of two processes that only count, on a number of cores."""
    with pinned(cores):
        began = time.perf_counter()
        for process in [subprocess.Popen([sys.executable, "-c", _LOOP]) for _ in range(2)]:
            process.wait()
        return time.perf_counter() - began
