"""Waits for other processes, for as long as they make progress: a busy machine takes its time."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

PATIENCE = 240.0
"""Seconds without any progress."""


def sizes(*paths: Path) -> list[tuple[str, int]]:
    """What there is in directories and files, which changes while a process writes them."""
    found = []
    for path in paths:
        for file in [path, *path.rglob("*")]:
            try:
                found.append((str(file), file.stat().st_size))
            except FileNotFoundError:
                """It has been removed since it was listed."""
    return sorted(found)


def wait_until(is_done: Callable[[], bool], progress: Callable[[], object], patience: float = PATIENCE) -> bool:
    """Whether it is done. Waits while there is progress: while its value changes."""
    known, since = progress(), time.monotonic()
    while not is_done():
        seen = progress()
        if seen != known:
            known, since = seen, time.monotonic()
        elif time.monotonic() - since > patience:
            return False
        time.sleep(0.2)
    return True
