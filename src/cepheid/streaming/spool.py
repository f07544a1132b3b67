"""Files that appear in a directory, handed to Spark one by one in a settled order.

Spark takes the files of a directory by the millisecond in which they were written, and those of one millisecond in any
order, which would make events late that are not. So every file gets a *slip* that names it, in a directory of slips
that Spark reads instead; slips are numbered, and their times are made to follow the numbers. The order of files is that
in which they were seen; of those seen at once, by the time they were written, then by name, numbers as numbers.
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

PAUSE = 0.2
"""Seconds between two looks at the directory."""
_SLIP = ".slip"


@dataclass(slots=True)
class Spool:
    """The slips of the files of one directory. They stay, and tell after a restart which files were handed over."""

    input: Path
    slips: Path
    format: str
    known: set[str] = field(default_factory=set)
    last: int = 0
    last_time: int = 0
    """The time of the last slip, in milliseconds."""

    def open(self) -> None:
        """Learns from the slips that are there."""
        try:
            self.slips.mkdir(parents=True, exist_ok=True)
            # A hidden one was never handed over: the process ended while it wrote.
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
        """Writes a slip for every file that has none yet; gives their number."""
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
    """Looks for new files as long as it is entered."""

    def __init__(self, spool: Spool) -> None:
        self.spool = spool
        self.ended = threading.Event()
        self.failure: InputProblem | None = None
        self.thread = threading.Thread(target=self._look, name="cepheid-spool", daemon=True)

    def _look(self) -> None:
        try:
            while not self.ended.wait(PAUSE):
                self.spool.take_in()
        except InputProblem as problem:
            self.failure = problem

    def require(self) -> None:
        """Raises what made it stop looking."""
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
        f"cannot use `{shown(str(directory), 200)}` in the checkpoint: {problem.strerror or problem}",
        hint="put that right and start again: the stream goes on where it stopped",
    )
