"""Processes and all that they started (a driver, its JVM, and the workers under it): their CPU time, and the cores that
they may use."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def cpu_of_family(root: int) -> float:
    """CPU seconds of a process and of all processes under it, also of those that have ended and been waited for."""
    spent: dict[int, float] = {}
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
            except (FileNotFoundError, ProcessLookupError):
                continue
            parents[int(entry.name)] = int(fields[1])
            spent[int(entry.name)] = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    family, grown = {root}, True
    while grown:
        more = {pid for pid, parent in parents.items() if parent in family} - family
        family, grown = family | more, bool(more)
    return sum(spent[pid] for pid in family)


@contextmanager
def pinned(cores: int) -> Iterator[None]:
    """This process, and whatever it starts meanwhile, on so many cores."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(before)[:cores])
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


_LOOP = "for _ in range(60_000_000): pass"


def seconds_of_two(cores: int) -> float:
    """How long two processes take that do nothing but count, together on so many cores."""
    with pinned(cores):
        began = time.perf_counter()
        for process in [subprocess.Popen([sys.executable, "-c", _LOOP]) for _ in range(2)]:
            process.wait()
        return time.perf_counter() - began
