"""Files that appear in a directory, passed to Spark one by one in a fixed order.

Spark orders the files of a directory by their modification time in milliseconds, and files of the same millisecond in
any order, which would make events late. So every file gets a *slip* with its path, in a directory that Spark reads
instead. Slips are numbered, and their modification times follow the numbers. Files are ordered as they are seen; files
seen at once by modification time, then by name, with digits compared as numbers.
"""

from __future__ import annotations

import json
import os
import re
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from cepheid.errors import InputProblem, shown
from cepheid.io.formats import FORMATS
from cepheid.io.stream_rows import RESUME

PAUSE = 0.2
"""Seconds between two listings of the directory."""
_SLIP = ".slip"


@dataclass(slots=True)
class Spool:
    """The slips of the files of one directory. After a restart they show which files Spark already has."""

    input: Path
    slips: Path
    format: str
    known: set[str] = field(default_factory=set)
    last: int = 0
    last_time: int = 0
    """The time of the last slip, in milliseconds."""

    def open(self) -> None:
        """Restores the state from the slips in the checkpoint."""
        try:
            self.slips.mkdir(parents=True, exist_ok=True)
            # A hidden slip was never visible to Spark: the process ended while it was written.
            for slip in self.slips.glob(f"[!.]*{_SLIP}"):
                self.known.add(self._path(slip))
                self.last = max(self.last, int(slip.name.removesuffix(_SLIP)))
                self.last_time = max(self.last_time, slip.stat().st_mtime_ns // 1_000_000)
        except OSError as problem:
            raise _cannot(self.slips, problem) from problem

    def _path(self, slip: Path) -> str:
        try:
            return path_on(slip.read_text())
        except ValueError as problem:
            raise InputProblem(
                f"`{shown(str(slip), 200)}` in the checkpoint is damaged",
                expected="the path of a file of events, as a JSON string",
                hint="restore it from a copy of the checkpoint, or write into it the path that no other slip holds",
            ) from problem

    def take_in(self) -> int:
        """Writes a slip for every file that has none yet; returns the number of new slips."""
        new = sorted(self._new(), key=_arrival)
        for path in new:
            self._write(path)
        return len(new)

    def _new(self) -> Iterator[Path]:
        for path in self.input.rglob("*"):
            hidden = any(part.startswith(("_", ".")) for part in path.relative_to(self.input).parts)
            fits = FORMATS.get(path.suffix.lower()) == self.format
            if not hidden and fits and str(path) not in self.known and path.is_file():
                yield path

    def _write(self, path: Path) -> None:
        self.last += 1
        self.last_time = max(self.last_time + 1, time.time_ns() // 1_000_000)
        slip = self.slips / f"{self.last:012d}{_SLIP}"
        hidden = self.slips / f".{slip.name}"
        try:
            hidden.write_text(json.dumps(str(path)) + "\n")
            os.utime(hidden, ns=(self.last_time * 1_000_000, self.last_time * 1_000_000))
            hidden.replace(slip)
        except OSError as problem:
            raise _cannot(self.slips, problem) from problem
        self.known.add(str(path))


class Watch:
    """Polls the directory for new files in a thread, while it is entered."""

    def __init__(self, spool: Spool) -> None:
        self.spool = spool
        self.ended = threading.Event()
        self.failure: InputProblem | None = None
        self.thread = threading.Thread(target=self._poll, name="cepheid-spool", daemon=True)

    def _poll(self) -> None:
        try:
            while not self.ended.wait(PAUSE):
                self.spool.take_in()
        except InputProblem as problem:
            self.failure = problem

    def require(self) -> None:
        """Raises the error that ended the thread, if any."""
        if self.failure is not None:
            raise self.failure

    def __enter__(self) -> Watch:
        self.thread.start()
        return self

    def __exit__(self, *problem: object) -> None:
        self.ended.set()
        self.thread.join()


def path_on(slip: str) -> str:
    """The path that a slip names; ValueError if it names none."""
    path = json.loads(slip)
    if not isinstance(path, str):
        raise ValueError(slip)
    return path


_NUMBER = re.compile(r"(\d+)")


def _arrival(path: Path) -> tuple[int, list[tuple[int, str]]]:
    try:
        written = path.stat().st_mtime_ns
    except FileNotFoundError:
        written = 0
    pieces = _NUMBER.split(str(path))
    return written, [(int(piece), "") if piece.isdecimal() else (-1, piece) for piece in pieces]


def _cannot(directory: Path, problem: OSError) -> InputProblem:
    return InputProblem(
        f"cannot use `{shown(str(directory), 200)}` in the checkpoint: {problem.strerror or problem}", hint=RESUME
    )
