"""A log of events that can be asked: the events of one source, in time order, of which it keeps the most recent."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cepheid.acquire.intervals import BEGINNING, END
from cepheid.acquire.keyed import Key
from cepheid.acquire.requests import Answer, Request
from cepheid.errors import InputProblem, shown
from cepheid.io.event_columns import in_stream_order, ticks_of, types_column
from cepheid.io.inputs import Columns
from cepheid.runtime.kernel import Array

Keep = Callable[[pa.RecordBatch], pa.RecordBatch]
"""Keeps some of the events of a type."""


@dataclass(slots=True)
class Traffic:
    """The answers of a source. Several calls of a server count at the same time."""

    events: int = 0
    bytes: int = 0
    answers: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    def add(self, events: pa.RecordBatch) -> None:
        size = pa.ipc.get_record_batch_size(events)
        with self._lock:
            self.events += events.num_rows
            self.bytes += size
            self.answers += 1


@dataclass(frozen=True, slots=True)
class Stored:
    """The events of one type, in time order."""

    events: pa.RecordBatch
    times: Array


@dataclass(frozen=True, slots=True)
class EventLog:
    """The events of a source by type. `retention` is how long it keeps them, in ticks; None: for ever."""

    name: str
    streams: Mapping[str, Stored]
    retention: int | None = None
    sent: Traffic = field(default_factory=Traffic)

    @classmethod
    def of(cls, name: str, table: pa.Table, columns: Columns, retention: int | None = None) -> EventLog:
        """The log of a table in any order."""
        batch = (
            table.combine_chunks().to_batches()[0] if table.num_rows else pa.RecordBatch.from_pylist([], table.schema)
        )
        times = ticks_of(batch.column(columns.time), columns.time)
        order = in_stream_order(times, None)
        if order is not None:
            batch, times = batch.take(pa.array(order)), times[order]
        types = types_column(batch, columns)
        streams: dict[str, Stored] = {}
        for code, kind in enumerate(types.dictionary.to_pylist()):
            own = np.flatnonzero(np.asarray(pc.fill_null(pc.equal(types.indices, code), False)))
            streams[kind] = Stored(batch.take(pa.array(own)), times[own])
        return cls(name, streams, retention)

    def answer(
        self, request: Request, begin: int, now: int = END, pushed: bool = False, keep: Keep | None = None
    ) -> Answer:
        """The events that a request asks for, from `begin` on, as far as they have occurred. Events are `pushed` as
        they occur, before any is dropped. `keep` applies the filter of the request."""
        stored = self.streams[request.stream]
        complete = min(request.end, now)
        keeps_all = self.retention is None or now >= END or pushed
        retained = BEGINNING if keeps_all or self.retention is None else now - self.retention
        if not len(stored.times) or stored.times[0] >= retained:
            retained = BEGINNING  # it has dropped none
        low = int(np.searchsorted(stored.times, max(begin, retained), "left"))
        high = int(np.searchsorted(stored.times, complete, "right"))
        events = of_keys(stored.events.slice(low, max(high - low, 0)), request)
        if keep is not None:
            events = keep(events)
        if request.columns is not None:
            events = events.select([name for name in request.columns if name in events.schema.names])
        self.sent.add(events)
        return Answer(self.name, request.stream, begin, complete, retained, events, keys_of(request))


def keys_of(request: Request) -> tuple[Key, ...] | None:
    return None if request.key is None else request.key[1]


def of_keys(events: pa.RecordBatch, request: Request) -> pa.RecordBatch:
    """The events that have one of the keys of a request. Without its attribute they have none."""
    if request.key is None:
        return events
    name, keys = request.key
    if name not in events.schema.names:
        return events.slice(0, 0)
    column = events.column(name)
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    try:
        values = pa.array(keys, kind)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        raise InputProblem(f"the keys of `{shown(name)}` are no values of type {kind}") from None
    return events.filter(pc.is_in(column.cast(kind), value_set=values))
