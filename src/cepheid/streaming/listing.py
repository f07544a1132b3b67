"""New files of a directory tree, at a cost that does not depend on the number of files already read.

Linux reports the names that appear in a directory, so it is not listed again (`streaming.inotify`). Without reports, as
on a network file system to which another machine writes, a directory is listed if its modification time has changed,
and again until that time is so old that every later change must change it. For file systems that keep no such times
there is a complete listing from time to time, which takes at most a hundredth of the time.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cepheid.errors import InputProblem, shown
from cepheid.io.stream_rows import RESUME
from cepheid.streaming.inotify import Overflow, Reports

_HIDDEN = ("_", ".")
_SETTLED = 2.0
"""Seconds after which a change of a directory gives it another modification time; the coarsest clock has two."""
_LEAST_INTERVAL, _INTERVAL_OVER_COST = 10.0, 100.0
"""Seconds between complete listings: this many, or this many times what a listing takes."""


@dataclass(slots=True)
class _Directory:
    changed: int = -1
    """The modification time at the last listing."""
    since: float = 0.0
    """When that modification time was first seen."""
    is_settled: bool = False
    """Whether the directory has been listed since a later change would show."""
    inner: list[str] = field(default_factory=list)
    watch: int | None = None
    """The number by which changes are reported."""


@dataclass(slots=True)
class Listing:
    """The visible files of a tree, by their paths relative to its root. Directories that are links are not entered."""

    root: Path
    directories: dict[str, _Directory] = field(default_factory=dict)
    completed: float = -math.inf
    cost: float = 0.0
    """Seconds that the last complete listing took."""
    reports: Reports = field(default_factory=Reports)

    def new(self, known: Container[str]) -> list[str]:
        """The files that are not known, in any order."""
        started = time.monotonic()
        is_complete = started - self.completed > max(_LEAST_INTERVAL, _INTERVAL_OVER_COST * self.cost)
        reported: dict[int, list[str]] = {}
        try:
            for watch, name in self.reports.read():
                reported.setdefault(watch, []).extend([] if name is None else [name])
        except Overflow:
            is_complete = True
        found, waiting = [], [""]
        while waiting:
            inner, files = self._listed(waiting.pop(), known, started, None if is_complete else reported)
            waiting += inner
            found += files
        if is_complete:
            self.completed, self.cost = started, time.monotonic() - started
        return found

    def _listed(
        self, relative: str, known: Container[str], now: float, reported: Mapping[int, Sequence[str]] | None
    ) -> tuple[list[str], list[str]]:
        """The directories in a directory, and its new files. `reported` are the names that appeared in directories with
        changes; None for a complete listing."""
        path = self.root / relative
        try:
            changed = path.stat().st_mtime_ns
            seen = self.directories.setdefault(relative, _Directory())
            files: list[str] = []
            names = None if reported is None or seen.watch is None else reported.get(seen.watch)
            if names is not None:  # they explain the change of the modification time
                seen.changed, seen.since, seen.is_settled = changed, now, True
                for name, is_directory in _named(path, relative, names, known):
                    (seen.inner if is_directory else files).append(name)
                return list(dict.fromkeys(seen.inner)), files
            if seen.changed != changed:
                seen.changed, seen.since, seen.is_settled = changed, now, False
            if seen.is_settled and reported is not None:
                return seen.inner, []
            seen.inner, seen.watch = [], self.reports.watch(str(path))
            for name, is_directory in _visible(path, relative, known):
                (seen.inner if is_directory else files).append(name)
            seen.is_settled = now - seen.since > _SETTLED
            return seen.inner, files
        except OSError as problem:
            self.directories.pop(relative, None)
            if relative and isinstance(problem, FileNotFoundError | NotADirectoryError):
                return [], []
            raise InputProblem(
                f"cannot list the input `{shown(str(path), 200)}`: {problem.strerror or problem}", hint=RESUME
            ) from problem


def _visible(path: Path, relative: str, known: Container[str]) -> Iterator[tuple[str, bool]]:
    """The directories and the files that are not known, each with whether it is a directory."""
    prefix = f"{relative}/" if relative else ""
    with os.scandir(path) as entries:
        for entry in entries:
            name = prefix + entry.name
            if name in known or entry.name.startswith(_HIDDEN):
                continue
            if entry.is_dir(follow_symlinks=False):
                yield name, True
            elif entry.is_file():
                yield name, False


def _named(path: Path, relative: str, names: Iterable[str], known: Container[str]) -> Iterator[tuple[str, bool]]:
    """Those of some names in a directory that `_visible` would yield."""
    prefix = f"{relative}/" if relative else ""
    for own in dict.fromkeys(names):
        at, name = path / own, prefix + own
        if name in known or own.startswith(_HIDDEN):
            continue
        if at.is_dir() and not at.is_symlink():
            yield name, True
        elif at.is_file():
            yield name, False
