"""Events from the future. One of them moves the watermark, and then all others are late. An option bounds how far ahead
an event may be; without it a jump of the watermark is logged, with the event that caused it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa

from cepheid.errors import shown
from cepheid.events import MICROSECONDS, Clock, timestamp_text
from cepheid.io.rows import ROW, row_dicts
from cepheid.io.stream_rows import FILE, NUMBER, Read, shown_row

_MANY_WINDOWS = 100
_EPOCHS = (946_684_800_000_000, 4_102_444_800_000_000)
"""The years 2000 to 2100, in microseconds."""
_LONGEST = 200


@dataclass(frozen=True, slots=True)
class AheadLimit:
    """How many ticks an event may be ahead of the wall clock. Integer times that do not count from 1970 are compared
    with the median of the events that are read together."""

    ticks: int
    clock: Clock

    def applied(self, read: Read, now: int) -> Read:
        """`now` is the wall clock in microseconds. It is the same when a batch is repeated."""
        if not len(read.ticks):
            return read
        median = int(np.partition(read.ticks, (len(read.ticks) - 1) // 2)[(len(read.ticks) - 1) // 2])
        unit = "us" if self.clock.is_timestamp else self.clock.unit or ""
        tick = Fraction(1, 1000) if unit == "ns" else Fraction(MICROSECONDS.get(unit, 0))
        by_clock = self.clock.is_timestamp or _EPOCHS[0] <= median * tick <= _EPOCHS[1]
        reference, other = (
            (int(now / tick), "the wall clock") if by_clock else (median, "the other events of its batch")
        )

        def reason(at: int) -> str:
            return f"the time `{_shown(at, self.clock)}` is too far ahead of {other} ({_shown(reference, self.clock)})"

        return read.rejecting(read.ticks > reference + self.ticks, reason)


@dataclass(frozen=True, slots=True)
class Newest:
    """The newest event that a task has read."""

    ticks: int
    source: str | None
    line: int | None
    row: str

    @classmethod
    def of(cls, events: pa.RecordBatch, ticks: np.ndarray[Any, Any]) -> Newest | None:
        if not len(ticks):
            return None
        at = int(ticks.argmax())
        row = row_dicts(events.slice(at, 1))[0]
        text = row[ROW] if ROW in row else shown_row(row)
        return cls(int(ticks[at]), row.get(FILE), row.get(NUMBER), shown(text, _LONGEST))


@dataclass(frozen=True, slots=True)
class Jump:
    """A watermark that advanced by more than a hundred windows in one batch, and the event that caused it."""

    before: int
    after: int
    newest: Newest

    @classmethod
    def between(cls, before: int, after: int, window: int | None, newest: Newest | None) -> Jump | None:
        is_far = window is not None and after - before > _MANY_WINDOWS * max(window, 1)
        return cls(before, after, newest) if is_far and newest is not None else None

    def to_json(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @classmethod
    def from_json(cls, content: bytes) -> Jump:
        data = json.loads(content)
        return cls(data["before"], data["after"], Newest(**data["newest"]))

    def described(self, clock: Clock) -> str:
        where = "" if self.newest.source is None else f" (`{shown(self.newest.source, 200)}`, line {self.newest.line})"
        return (
            f"the watermark jumped from {_shown(self.before, clock)} to {_shown(self.after, clock)}, more than "
            f"{_MANY_WINDOWS} windows, because of the event {self.newest.row}{where}; events that are older than the "
            "watermark are late; the option max_ahead (--max-ahead) rejects events from the future"
        )


def _shown(ticks: int, clock: Clock) -> str:
    return timestamp_text(ticks) if clock.is_timestamp else str(ticks)
