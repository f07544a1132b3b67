"""Files that appear in one or more directories, passed to Spark one by one in a fixed order.

Spark orders the files of a directory by their modification time in milliseconds, and files of the same millisecond in
any order, which would make events late. So every file gets a number and a *slip* with its path, in a directory that
Spark reads instead; the modification times of slips follow their numbers. Files are ordered as they are seen; files
seen at once by modification time, then by name, with digits compared as numbers.

After a batch is committed, the slips of its files move to the list `files`, in which line n names file n relative to
the input; with several inputs, the number of its input comes first: `1/day=1/a.jsonl`. So Spark never lists more than a
few hundred slips. A line of the list and of a slip ends with its checksum.
"""

from __future__ import annotations

import json
import os
import re
import threading
import time
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cepheid.errors import InputProblem, shown
from cepheid.io.stream_rows import RESUME
from cepheid.streaming.listing import Listing
from cepheid.streaming.source_log import SourceLog

PAUSE = 0.2
"""Seconds between two listings of the directory."""
_PAUSE_OVER_COST, _LONGEST_PAUSE = 20.0, 5.0
"""The pause is at least this many times as long as the CPU time of a listing, but not longer than this."""
SLIPS = "slips"
_SLIP = ".slip"
_LIST = "files"
_RETAINED = 20
"""Slips that stay after their files have been read: the last ones, by which a lost list is noticed."""
_MOST_SLIPS = 400
"""With more slips than this, those of files that have been read move to the list."""
_CONFIRM = (
    "if the directory was moved with its files, confirm it with --moved; "
    "for another input, use a new checkpoint and a new output"
)
_RESTORE = (
    "restore it from a copy of the checkpoint and start again; "
    "without a copy, use a new checkpoint and a new output, and all input is read again"
)


@dataclass(slots=True)
class Spool:
    """The files that were handed to Spark."""

    inputs: tuple[Path, ...]
    """The resolved paths of the inputs."""
    own: Path
    """Cepheid's directory in the checkpoint."""
    log: SourceLog
    moved_from: tuple[Path, ...] = ()
    """The inputs' paths at the last start, if some was another one."""
    known: set[str] = field(default_factory=set)
    """The files that have a number, as the list names them."""
    slips: dict[int, str] = field(default_factory=dict)
    """Those of them that have a slip, by number."""
    last: int = 0
    last_time: int = 0
    """The time of the last slip, in milliseconds."""
    listings: Sequence[Listing] = ()
    listing_cost: float = 0.0
    """CPU seconds of the last listing."""

    @property
    def directory(self) -> Path:
        """The directory of slips that Spark reads."""
        return self.own / SLIPS

    # --- the state in the checkpoint ----------------------------------------------------------------------------------

    def open(self, is_new: bool) -> None:
        """Restores the state from the checkpoint, and refuses a checkpoint that does not name every file that Spark has
        read. No stream has run on a new checkpoint: what is there comes from a start that did not succeed."""
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            if is_new:
                for slip in self.directory.glob(f"*{_SLIP}"):
                    slip.unlink()
            listed = self._read_list()
            found = self._read_slips()
        except OSError as problem:
            raise _cannot(self.own, problem) from problem
        self.slips = {number: path for number, path in found.items() if number > len(listed)}
        self.last = max(self.slips, default=len(listed))
        self._require_complete(len(listed), found)
        self.known = {*listed, *self.slips.values()}
        self.listings = [Listing(root) for root in self.inputs]
        for number in found.keys() - self.slips.keys():  # the process ended while slips moved to the list
            self._slip(number).unlink(missing_ok=True)
        self.compact()

    def _read_list(self) -> list[str]:
        path = self.own / _LIST
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            return []
        *lines, rest = content.split(b"\n")
        if rest:  # the process ended while it wrote: the slips of these lines still exist
            os.truncate(path, len(content) - len(rest))
        paths = []
        for number, line in enumerate(lines, 1):
            try:
                paths.append(path_on(line.decode()))
            except ValueError as problem:
                raise _damaged(path, f"line {number} names no file") from problem
        return paths

    def _read_slips(self) -> dict[int, str]:
        found = {}
        # A hidden slip was never visible to Spark: the process ended while it was written.
        for slip in sorted(self.directory.glob(f"[!.]*{_SLIP}")):
            if not slip.stem.isdecimal():
                raise _damaged(slip, "its name is not a number")
            try:
                path = path_on(slip.read_text())
            except ValueError as problem:
                raise _damaged(slip, "it names no file") from problem
            number = int(slip.stem)
            found[number] = self._relative(path, slip)
            self.last_time = max(self.last_time, slip.stat().st_mtime_ns // 1_000_000)
        return found

    def _relative(self, path: str, slip: Path) -> str:
        """The name in the list of the path in a slip."""
        for at in (Path(path), Path(path).parent.resolve() / Path(path).name):
            for roots in (self.moved_from, self.inputs):
                for number, root in enumerate(roots):
                    if at.is_relative_to(root):
                        return self._name(number, str(at.relative_to(root)))
        names = " or ".join(f"`{shown(str(root), 200)}`" for root in self.inputs)
        raise InputProblem(
            f"`{shown(str(slip), 200)}` names `{shown(path, 200)}`, which is not in the input {names}", hint=_CONFIRM
        )

    def _name(self, number: int, relative: str) -> str:
        return relative if len(self.inputs) == 1 else f"{number}/{relative}"

    def _path(self, name: str) -> Path:
        """The path of a file that the list names."""
        if len(self.inputs) == 1:
            return self.inputs[0] / name
        number, _, relative = name.partition("/")
        return self.inputs[int(number)] / relative

    def _require_complete(self, listed: int, slips: dict[int, str]) -> None:
        last = max(slips, default=listed)
        lacking = next((number for number in range(listed + 1, last + 1) if number not in slips), None)
        handed = self.log.handed()
        if lacking is None and handed > last:
            lacking = handed
        if lacking is None and listed and not slips:
            lacking = listed
        if lacking is not None:
            raise InputProblem(
                "the checkpoint does not name every file that was read: "
                f"`{shown(str(self._slip(lacking)), 200)}` is missing and `{_LIST}` beside it names {listed} files",
                hint=_RESTORE,
            )

    def move(self) -> None:
        """Names files and slips by the directories in which they are now."""
        self.log.relocate(self.directory)
        for number, relative in self.slips.items():
            at = self._slip(number).stat().st_mtime_ns
            self._write_slip(number, relative, at)

    def compact(self) -> None:
        """Moves the slips of files that have been read to the list, except for the last ones."""
        if len(self.slips) <= _MOST_SLIPS:
            return
        first = min(self.slips)
        through = self.log.processed() - _RETAINED
        if through - first < _MOST_SLIPS // 2:
            return
        lines = "".join(entry_line(self.slips[number]) for number in range(first, through + 1))
        try:
            with (self.own / _LIST).open("ab") as file:
                file.write(lines.encode())
                file.flush()
                os.fsync(file.fileno())
            for number in range(first, through + 1):
                self._slip(number).unlink(missing_ok=True)
                del self.slips[number]
        except OSError as problem:
            raise _cannot(self.own, problem) from problem
        self.log.trim(through)

    def committed(self) -> frozenset[str]:
        """The files whose batches are committed, as the list names them: no batch reads them again."""
        last = self.log.processed()
        return frozenset(self.known) - {name for number, name in list(self.slips.items()) if number > last}

    # --- new files ----------------------------------------------------------------------------------------------------

    def take_in(self) -> int:
        """Writes a slip for every file that has none yet; returns the number of new slips."""
        assert self.listings, "the spool is open"
        started = time.thread_time()
        found = [
            self._name(number, relative)
            for number, listing in enumerate(self.listings)
            for relative in listing.new(_Named(self, number))
        ]
        self.listing_cost = time.thread_time() - started
        new = sorted(found, key=self._arrival)
        for path in new:
            self._write(path)
        return len(new)

    def _arrival(self, path: str) -> tuple[int, list[tuple[int, str]]]:
        try:
            written = self._path(path).stat().st_mtime_ns
        except OSError:  # the reader of the file reports it
            written = 0
        return written, [(int(part), "") if part.isdecimal() else (-1, part) for part in _DIGITS.split(path)]

    def _write(self, path: str) -> None:
        self.last += 1
        self.last_time = max(self.last_time + 1, time.time_ns() // 1_000_000)
        self._write_slip(self.last, path, self.last_time * 1_000_000)
        self.slips[self.last] = path
        self.known.add(path)

    def _write_slip(self, number: int, path: str, at: int) -> None:
        slip = self._slip(number)
        hidden = slip.with_name(f".{slip.name}")
        try:
            hidden.write_text(entry_line(str(self._path(path))))
            os.utime(hidden, ns=(at, at))
            hidden.replace(slip)
        except OSError as problem:
            raise _cannot(self.directory, problem) from problem

    def _slip(self, number: int) -> Path:
        return self.directory / f"{number:012d}{_SLIP}"


@dataclass(frozen=True, slots=True)
class _Named:
    """The files of one input that are known, by their paths in it."""

    spool: Spool
    number: int

    def __contains__(self, relative: object) -> bool:
        return self.spool._name(self.number, str(relative)) in self.spool.known


class Watch:
    """Polls the directories for new files in a thread, while it is entered."""

    def __init__(self, spool: Spool) -> None:
        self.spool = spool
        self.ended = threading.Event()
        self.failure: Exception | None = None
        self.thread = threading.Thread(target=self._poll, name="cepheid-spool", daemon=True)

    def _poll(self) -> None:
        pause = PAUSE
        try:
            while not self.ended.wait(pause):
                self.spool.take_in()
                self.spool.compact()
                # Writing and removing slips is not part of the cost: it would delay the files that come next.
                pause = min(max(PAUSE, _PAUSE_OVER_COST * self.spool.listing_cost), _LONGEST_PAUSE)
        except Exception as problem:  # `require` raises it where the stream waits
            self.failure = problem

    def require(self) -> None:
        """Raises the error that ended the thread, if any."""
        if self.failure is not None:
            raise self.failure

    def start(self) -> Watch:
        self.thread.start()
        return self

    def end(self) -> None:
        self.ended.set()
        self.thread.join()

    def __enter__(self) -> Watch:
        return self.start()

    def __exit__(self, *problem: object) -> None:
        self.end()


# --- lines ------------------------------------------------------------------------------------------------------------


def entry_line(path: str) -> str:
    """`"day=1/a.jsonl" 8f2c01aa`: a path as a JSON string, and its checksum."""
    text = json.dumps(path)
    return f"{text} {zlib.crc32(text.encode()):08x}\n"


def path_on(line: str) -> str:
    """The path that a line names, with or without a checksum; ValueError if it names none."""
    text = line.strip()
    path, end = json.JSONDecoder().raw_decode(text)
    checksum = text[end:].strip()
    if not isinstance(path, str) or (checksum and checksum != f"{zlib.crc32(text[:end].encode()):08x}"):
        raise ValueError(line)
    return path


_DIGITS = re.compile(r"(\d+)")


def moved(what: str, now: Path, before: Path) -> InputProblem:
    return InputProblem(
        f"the {what} is `{shown(str(now), 200)}`, but at the last start it was `{shown(str(before), 200)}`",
        hint=_CONFIRM,
    )


def _damaged(path: Path, reason: str) -> InputProblem:
    return InputProblem(f"`{shown(str(path), 200)}` in the checkpoint is damaged: {reason}", hint=_RESTORE)


def _cannot(directory: Path, problem: OSError) -> InputProblem:
    at = problem.filename or directory
    return InputProblem(
        f"cannot use `{shown(str(at), 200)}` in the checkpoint: {problem.strerror or problem}", hint=RESUME
    )
