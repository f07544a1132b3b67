"""Keeps the events that a plan acquires as files, in the order of their times, for a stream that reads the files.

A file has the events between two positions of the frontier, and its name has the later one. It is on disk before the
state of the acquisition that forgets its events. So whoever reads the files finds the same events again after a crash,
also those that their source has dropped since; and an acquisition that goes on from an older state knows by the names
which events have been written. A file is removed once the batch that has read it is committed.

A watermark follows the times of events. A row of a type that the query does not read says how far the frontier is, so
that what is certain need not wait for the next event."""

from __future__ import annotations

import fcntl
import json
import os
import threading
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from cepheid.acquire.intervals import BEGINNING, END
from cepheid.acquire.requests import Gap
from cepheid.acquire.tree import negated_streams
from cepheid.detection.acquisition import Passing
from cepheid.detection.partials import Asked
from cepheid.detection.planned import Detection
from cepheid.detection.program import Program
from cepheid.detection.run import Running
from cepheid.detection.saved import durable
from cepheid.errors import InputProblem, NotAvailable, shown
from cepheid.io.event_columns import ticks_of
from cepheid.io.rows import is_moment
from cepheid.io.sinks import make_directory

STATE = "_state"
"""The directory of the acquisition's state, which no stream over the files reads."""
GAPS = "gaps.jsonl"
MARK = "frontier"
"""The type of the rows that say how far the frontier is."""
_PATIENCE = 5.0
"""Seconds that a stop waits for a write."""


@dataclass(slots=True)
class AcquiredFiles:
    """The directory of the files. One process writes it."""

    path: Path
    until: int = BEGINNING
    """The frontier of the last file."""
    _lock: int | None = None
    _number: int = 0
    _latest: int = BEGINNING
    """The time of the last event that was written, or one after it."""
    _marked: int = BEGINNING
    """The last mark of this process."""

    @property
    def state(self) -> str:
        return str(self.path / STATE)

    def open(self) -> None:
        """Takes the directory for this process, and finds what has been written."""
        make_directory(self.path / STATE)
        self._lock = os.open(self.path / STATE / "lock", os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self.close()
            raise InputProblem(
                f"another process writes acquired events to `{shown(str(self.path), 200)}`",
                hint="stop it first, or use another checkpoint",
            ) from None
        for file in self.path.glob("*.parquet"):
            number, _, until = file.stem.partition("_")
            self._number, self.until = max(self._number, int(number)), max(self.until, int(until))
        self._latest = self.until

    @property
    def has_removed(self) -> bool:
        """Whether files have been removed, which a stream from the beginning would need."""
        return bool(self._number) and not any(self.path.glob(f"{1:09}_*.parquet"))

    def remove(self, committed: Collection[str]) -> None:
        """Removes files whose batches are committed. The last file stays: it says how far the frontier was."""
        for file in sorted(self.path.glob("*.parquet"))[:-1]:
            if file.name in committed:
                file.unlink(missing_ok=True)

    def close(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def gaps(self) -> list[Gap]:
        try:
            lines = (self.path / STATE / GAPS).read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            return []
        return [Gap(**json.loads(line)) for line in lines]

    def write_gaps(self, gaps: Sequence[Gap]) -> None:
        with durable(self.path / STATE / GAPS) as file:
            file.write("".join(f"{json.dumps(asdict(gap))}\n" for gap in gaps).encode())

    def write(self, passing: Passing, programs: Sequence[Program]) -> None:
        """Writes the events that have passed. They are on disk when this returns."""
        asked, reach = programs[0].asked, max(program.reach or 0 for program in programs)
        time, parts = asked.columns.time, [asked.schema.empty_table(), *passing.events]
        passing.events.clear()
        events = pa.concat_tables(parts).sort_by(time)
        if events.num_rows:
            self._latest = int(ticks_of(events.column(time)[-1:].combine_chunks(), time)[0])
        mark = min(passing.until, self._latest + 2 * reach + 1)
        if BEGINNING < self._latest < END and mark > max(self._latest, self._marked):
            events = pa.concat_tables([events, _mark(asked, mark)])
            self._marked = mark
        if events.num_rows:
            self._number += 1
            with durable(self.path / f"{self._number:09}_{passing.until}.parquet") as file:
                pq.write_table(events, file)
            self.until = passing.until


def _mark(asked: Asked, time: int) -> pa.Table:
    """A row that says that the frontier has reached a time."""
    columns, schema = asked.columns, asked.schema
    kind = MARK
    while kind in asked.attributes:
        kind += "_"
    ticks = pa.array([time], pa.int64())
    of = schema.field(columns.time).type
    values = ticks.cast(pa.timestamp("us")).cast(of, safe=False) if is_moment(of) else ticks.cast(of)
    found = {columns.time: values, columns.type: pa.array([kind]).cast(schema.field(columns.type).type)}
    arrays = [found.get(field.name, pa.nulls(1, field.type)) for field in schema]
    return pa.Table.from_arrays(arrays, schema=schema)


@dataclass(slots=True)
class Acquiring:
    """An acquisition that writes files until its sources have ended, or it is stopped."""

    detection: Detection
    files: AcquiredFiles
    allows_gaps: bool = False
    """Whether it goes on after a gap in which an event could spoil a match."""
    running: Running = field(init=False)
    stopped: threading.Event = field(default_factory=threading.Event)
    error: Exception | None = None
    """The error that ended its thread."""
    _known: int = 0
    _thread: threading.Thread | None = None

    def __post_init__(self) -> None:
        if any(program.reach is None for program in self.detection.programs):
            raise NotAvailable(
                "a stream over sources for an event without a window: nothing is complete before the sources end",
                hint="give each operator a window, or use `cepheid detect`",
            )
        self.running = running = Running(self.detection)
        running.acquisition.passing = Passing(self.files.until)
        running.before_save = self._write
        # A gap that was written before a crash stays one: the stream may have read what is behind it.
        running.gaps = list(dict.fromkeys([*self.files.gaps(), *running.gaps]))
        self._known = len(running.gaps)

    def run(self) -> None:
        try:
            for _ in self.running.matches():
                """Events go to files when the state is saved."""
        except _Stopped:
            """The state is saved up to the last files."""

    def start(self) -> None:
        """Runs in a thread."""
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def require(self) -> None:
        """Raises the error that ended the thread."""
        if self.error is not None:
            raise self.error

    def stop(self) -> None:
        self.stopped.set()
        if self._thread is not None:
            self._thread.join(_PATIENCE)

    def _run(self) -> None:
        try:
            self.run()
        except Exception as error:  # who waits for the thread raises it
            self.error = error

    def _write(self) -> None:
        """Writes gaps, then events: what is behind a gap is never there without it."""
        if self.stopped.is_set():
            raise _Stopped
        running = self.running
        programs = running.detection.programs
        spoiling = frozenset().union(*(negated_streams(program.tree.root) for program in programs))
        for gap in running.gaps[self._known :]:
            is_history = gap.begin <= BEGINNING and gap.end < END  # of before the stream began
            if gap.stream in spoiling and not self.allows_gaps and not is_history:
                raise InputProblem(
                    f"`{shown(gap.source)}` does not answer for `{gap.stream}` from {gap.begin} to {gap.end}, "
                    f"where an event would spoil a match: {gap.reason}",
                    hint="start again to ask again; --allow-gaps goes on without these events",
                )
        if len(running.gaps) > self._known:
            self.files.write_gaps(running.gaps)
            self._known = len(running.gaps)
        passing = running.acquisition.passing
        assert passing is not None
        self.files.write(passing, programs)


class _Stopped(Exception):
    """The acquisition is asked to stop."""
