"""CPU time of a process and all that it started: a driver, its JVM, and the workers under it."""

from __future__ import annotations

import os
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
