"""What is known of the streams of sources: the intervals that were asked for, those that answers cover, and the events
in them. All queries that run together share it, so that an event is fetched once for all of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from cepheid.acquire.drift import Observed
from cepheid.acquire.intervals import ALWAYS, BEGINNING, END, Numbers
from cepheid.acquire.keyed import NOTHING, KeyedSet, shape
from cepheid.acquire.requests import Answer, Gap
from cepheid.detection.partials import Asked
from cepheid.detection.program import Program
from cepheid.detection.source_filter import any_of
from cepheid.errors import InputProblem, listing, shown
from cepheid.io.event_columns import ticks_of
from cepheid.io.rows import in_ticks

Address = tuple[str, str]
"""A source and one of its streams."""
DROPPED_BEFORE = "the source had dropped these events when it was first asked"
_PARTS = 16
"""More batches of a stream are made one."""


@dataclass(slots=True)
class Channel:
    """What is known of one stream of one source, and how it is asked for."""

    filter: str | None = None
    """The condition that the source applies itself."""
    columns: tuple[str, ...] | None = None
    """The columns that the source sends."""
    attribute: str | None = None
    """The attribute by whose values events are asked for."""
    asked: KeyedSet = NOTHING
    covered: KeyedSet = NOTHING
    lost: KeyedSet = NOTHING
    """Gaps."""
    complete: int = BEGINNING
    """The latest time up to which the source has said to have all its events."""
    observed: Observed = field(default_factory=Observed)
    events: list[pa.RecordBatch] = field(default_factory=list)

    @property
    def answered(self) -> KeyedSet:
        return self.covered | self.lost

    def adapted(self, times: KeyedSet, attribute: str | None) -> KeyedSet:
        """What a query wants by the values of an attribute, in those of this channel: another attribute is no key."""
        return times if attribute == self.attribute else KeyedSet(times.flattened)

    def readable(self, times: KeyedSet, attribute: str | None) -> KeyedSet:
        """What is known by this channel's attribute, for a query that has another one."""
        return times if attribute == self.attribute else KeyedSet(times.whole)

    def accepted(self, answer: Answer, events: pa.RecordBatch, times: Numbers, gaps: list[Gap]) -> pa.RecordBatch:
        """The events of an answer that are new. What the source has dropped is a gap, unless it comes after all."""
        keys = None if self.attribute is None else events.column(self.attribute).to_pylist()
        answered = shape(answer.begin, answer.complete, answer.keys)
        answered = answered - (answered - self.asked)  # no more than what was asked for
        if answer.retained > answer.begin:
            gone = shape(answer.begin, min(answer.retained - 1, answer.complete), answer.keys)
            answered, dropped = answered - gone, gone - self.answered
            self.lost |= dropped
            reason = DROPPED_BEFORE if answer.begin <= BEGINNING else "the source has dropped these events"
            gaps += [Gap(answer.source, answer.stream, *part, reason) for part in dropped.flattened.intervals]
        is_new = ~self.covered.holds(times, keys) & answered.holds(times, keys)
        if answer.begin > BEGINNING and answer.complete < END:
            new = answered - self.covered
            self.observed.events += int(is_new.sum())
            self.observed.ticks += new.whole.length + sum(times.length for times in new.parts.values())
        self.lost -= answered
        self.covered |= answered
        self.complete = max(self.complete, answer.complete)
        fresh = events if is_new.all() else events.filter(pa.array(is_new))
        if fresh.num_rows:
            self.events.append(fresh)
        return fresh

    def forget(self, oldest: int, time_column: str) -> None:
        """Drops what is before a time. The intervals of all keys together are few, and stay."""
        kept = [batch.filter(pa.array(ticks(batch.column(time_column)) >= oldest)) for batch in self.events]
        kept = [batch for batch in kept if batch.num_rows]
        if len(kept) > _PARTS:
            kept = pa.Table.from_batches(kept).combine_chunks().to_batches()
        self.events = kept
        if self.asked.parts:
            self.asked = self.asked.from_time(oldest)
            self.covered, self.lost = self.covered.from_time(oldest), self.lost.from_time(oldest)


class Channels(dict[Address, Channel]):
    """The channels of some programs. What these ask for of a stream is one request: with the conditions and the columns
    of all of them, and by the attribute of the first that has one."""

    def __init__(self, programs: Sequence[Program]) -> None:
        super().__init__()
        self.asked: Asked = programs[0].asked
        readers: dict[Address, list[Program]] = {}
        for program in programs:
            for source, stream in addresses(program):
                readers.setdefault((source, stream), []).append(program)
        for address, of in readers.items():
            stream = address[1]
            attributes = [program.keys[stream] for program in of if stream in program.keys]
            columns = [program.columns for program in of]
            known = [name for name in self.asked.schema.names if name not in self.asked.added]
            self[address] = Channel(
                any_of([program.filters.get(address) for program in of]),
                tuple(dict.fromkeys(name for own in columns for name in own or known)),
                attributes[0] if attributes else None,
            )

    def answered(self, program: Program, stream: str) -> KeyedSet:
        """Where all sources of a stream have answered."""
        attribute, found = program.keys.get(stream), None
        for source in program.sources[stream]:
            channel = self[source, stream]
            own = channel.readable(channel.answered, attribute)
            found = own if found is None else found & own
        return KeyedSet(ALWAYS) if found is None else found

    def events(self, addresses: Iterable[Address], low: int = BEGINNING, high: int = END) -> pa.Table:
        """The known events of some channels in [low, high]."""
        parts = [batch for address in addresses for batch in self[address].events]
        table = pa.Table.from_batches(parts, self.asked.schema)
        if low <= BEGINNING and high >= END:
            return table
        times = ticks(table.column(self.asked.columns.time))
        return table.filter(pa.array((times >= low) & (times <= high)))

    def normalized(self, answer: Answer) -> tuple[pa.RecordBatch, Numbers]:
        """The events of an answer in the columns of the base, and their times."""
        schema, events = self.asked.schema, answer.events
        names = events.schema.names
        unknown = [name for name in names if name not in schema.names]
        if unknown:
            raise InputProblem(
                f"`{answer.source}` sends the columns {listing(unknown)}", expected=f"some of {listing(schema.names)}"
            )
        count = events.num_rows
        arrays = [events.column(f.name).cast(f.type) if f.name in names else pa.nulls(count, f.type) for f in schema]
        given = {self.asked.columns.type: answer.stream}
        region = self.asked.regions.get(answer.source)
        if region is not None:
            given[self.asked.region] = region
            self._require_region(answer, region)
        for name, value in given.items():
            if name not in names and name in schema.names:
                at = schema.get_field_index(name)
                arrays[at] = pa.array([value] * count).cast(schema.field(at).type)
        times = ticks_of(arrays[schema.get_field_index(self.asked.columns.time)], self.asked.columns.time)
        if len(times) and (times.min() < answer.begin or times.max() > answer.complete):
            raise InputProblem(
                f"`{answer.source}` sends an event of `{answer.stream}` outside of the interval that it answers",
                expected=f"times from {answer.begin} to {answer.complete}",
            )
        return pa.RecordBatch.from_arrays(arrays, schema=schema), times

    def _require_region(self, answer: Answer, region: str) -> None:
        name = self.asked.region
        if name not in answer.events.schema.names:
            return
        others = set(map(str, answer.events.column(name).unique().to_pylist())) - {region}
        if others:
            raise InputProblem(
                f"`{answer.source}` of the region `{shown(region)}` sends an event of `{answer.stream}` whose `{name}` "
                f"is {listing(sorted(others))}"
            )


def addresses(program: Program, streams: Iterable[str] | None = None) -> list[Address]:
    """The channels of some streams of a program; None: of all that it reads."""
    names = program.streams if streams is None else streams
    return [(source, stream) for stream in names for source in program.sources[stream]]


def ticks(column: pa.Array | pa.ChunkedArray) -> Numbers:
    """The times of a column."""
    whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    found: Numbers = np.asarray(in_ticks(whole).cast(pa.int64()), np.int64)
    return found
