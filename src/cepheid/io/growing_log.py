"""A log that grows while it is read: the proxy of a source that keeps no log itself (CED §2.4). It keeps the most
recent events and knows the time up to which it has them all."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from cepheid.acquire.intervals import BEGINNING, END
from cepheid.acquire.requests import Answer, Request
from cepheid.io.asked_source import NO_ATTRIBUTES, Description, Kept, described, without_columns
from cepheid.io.decoding import widened
from cepheid.io.event_columns import ticks_of
from cepheid.io.event_log import EventLog, Keep, Stored, Traffic
from cepheid.io.inputs import Columns
from cepheid.io.rows import aligned

_PARTS = 64
"""Appended parts of a type after which they are joined."""


@dataclass(slots=True)
class GrowingLog:
    """Events in time order. `retention` is how long they are kept, in ticks; `most` is how many of each type. With
    `lateness` (in microseconds) its times are those of the wall clock, and all events before that much ago are there;
    without, an event says that all earlier ones are there."""

    name: str
    columns: Columns
    retention: int | None = None
    most: int = 10_000_000
    lateness: int | None = None
    schema: pa.Schema | None = None
    starts_late: bool = False
    """Whether there may have been events before the first one: those of a feed that cannot be read again."""
    late: int = 0
    """Events that came after their time had been reported as complete, and were left out."""
    sent: Traffic = field(default_factory=Traffic)
    changed: threading.Condition = field(default_factory=threading.Condition, repr=False)
    _streams: dict[str, list[Stored]] = field(default_factory=dict, repr=False)
    _attributes: dict[str, set[str]] = field(default_factory=dict, repr=False)
    _first: int = BEGINNING
    _earliest: int = END
    """The time of the first event that there ever was."""
    _last: int = BEGINNING
    _reported: int = BEGINNING
    _dropped: int = BEGINNING
    _ended: bool = False

    def append(self, table: pa.Table, attributes: Mapping[str, Collection[str]] = NO_ATTRIBUTES) -> None:
        """Adds events, whose types have these attributes. One whose time was reported as complete is late."""
        with self.changed:
            for kind, names in attributes.items():
                self._attributes.setdefault(kind, set()).update(names)
            table = self._widened(table)
            times = ticks_of(table.column(self.columns.time).combine_chunks(), self.columns.time)
            is_late = times <= self._reported
            if is_late.any():
                self.late += int(is_late.sum())
                table = table.filter(pa.array(~is_late))
            for kind, stored in EventLog.of(self.name, table, self.columns).streams.items():
                self._streams.setdefault(kind, []).append(stored)
            if len(times):
                if self._last == BEGINNING and self.starts_late:
                    self._first = int(times.min())
                self._earliest = min(self._earliest, int(times.min()))
                self._last = max(self._last, int(times.max()))
            self._drop()
            self.changed.notify_all()

    def _widened(self, table: pa.Table) -> pa.Table:
        """Events in the columns of the log, which has those of all events, also if the first ones lack some. What it
        cannot take does not change it."""
        schema = table.schema if self.schema is None else widened(self.schema, table.schema, self.name)
        if self.schema is not None and schema != self.schema:
            self._streams = {
                kind: [Stored(aligned(part.events, schema), part.times) for part in parts]
                for kind, parts in self._streams.items()
            }
        self.schema = schema
        batches = [aligned(batch, schema) for batch in table.to_batches()]
        return pa.Table.from_batches(batches, schema)

    def end(self) -> None:
        """No more events will come."""
        with self.changed:
            self._ended = True
            self.changed.notify_all()

    def complete(self) -> int:
        """The time up to which all events are there. It is promised from now on."""
        if self._ended:
            now = END
        elif self.lateness is not None:
            now = int(time.time() * 1_000_000) - self.lateness
        else:
            now = self._last - 1
        self._reported = max(self._reported, now)
        return self._reported

    @property
    def retained(self) -> int:
        """The time from which all events are there; the beginning, if none has become too old."""
        kept = END if self.retention is None else self._last - self.retention
        return max(kept if self._earliest < kept < END else BEGINNING, self._dropped, self._first)

    def _drop(self) -> None:
        """Drops old events, once in a while: it copies those that are kept."""
        for kind, parts in self._streams.items():
            if len(parts) < _PARTS:
                continue
            whole = self._whole(kind)
            excess = len(whole.times) - self.most
            if excess > 0:
                self._dropped = max(self._dropped, int(whole.times[excess - 1]) + 1)
            first = int(np.searchsorted(whole.times, self.retained))
            self._streams[kind] = [Stored(whole.events.slice(first), whole.times[first:])]

    def _whole(self, kind: str) -> Stored:
        parts = self._streams[kind]
        if len(parts) > 1:
            events = pa.Table.from_batches([p.events for p in parts]).combine_chunks().to_batches()
            times = np.concatenate([p.times for p in parts])
            order = np.argsort(times, kind="stable")
            joined = events[0] if events else parts[0].events
            in_order = joined if np.all(times[1:] >= times[:-1]) else joined.take(pa.array(order))
            self._streams[kind] = [Stored(in_order, times[order])]
        return self._streams[kind][0]

    def answer(self, request: Request, begin: int, pushed: bool, keep: Keep | None) -> Answer:
        """The events that a request asks for, as far as they are there. There may be none of its type yet."""
        with self.changed:
            is_known = request.stream in self._streams
            stored = self._whole(request.stream) if is_known else _no_events(self.described_schema())
            log = EventLog(self.name, {request.stream: stored}, None, self.sent)
            complete, retained = self.complete(), self.retained
        answer = log.answer(request, begin, complete, pushed, keep)
        return replace(answer, retained=begin if pushed else retained)

    def wait(self, after: int, seconds: float) -> None:
        """Waits until there is something to report after a time, or so many seconds."""
        with self.changed:
            if self._ended or (self.lateness is None and self._last - 1 > after):
                return
            if self.lateness is not None and self._last > after:
                due = (self._last + self.lateness) / 1_000_000 - time.time()
                if due <= 0:
                    return
                seconds = min(seconds, due)
            self.changed.wait(seconds)

    def described_schema(self) -> pa.Schema:
        if self.schema is None:
            raise without_columns(self.name)
        return self.schema

    def describe(self, kept: Kept | None = None) -> Description:
        with self.changed:
            schema = self.described_schema()
            log = EventLog(self.name, {kind: self._whole(kind) for kind in self._streams})
            complete, retained = self.complete(), self.retained
        return described(log, schema, self.columns.time, complete, retained, kept, self._attributes)


def _no_events(schema: pa.Schema) -> Stored:
    return Stored(pa.RecordBatch.from_pylist([], schema), np.array([], np.int64))
