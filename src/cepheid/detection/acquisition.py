"""Executes the acquisition plans of one query or many (CED §3.3, §5.1): a deterministic machine that takes answers and
gives requests and matches, without a clock or sockets of its own.

What is known of a stream is a set of intervals: those asked for and those covered by answers. Partial detections
activate further intervals, in the past and in the future; what was asked for is not asked for again, so that no event
is fetched twice, whichever query asks for it. Pulled events are older than others that are already known. A detection
therefore looks at all events that a match may still contain, and a match is output once, as soon as its events are
known and every interval that could hold an event that spoils it is covered.

The *frontier* of a query is the time up to which everything that its plan may ask for has been answered. No later
answer changes what is before it, so that events a window before the frontiers of all queries that read them are
forgotten.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import pyarrow as pa

from cepheid.acquire.drift import Observed
from cepheid.acquire.intervals import BEGINNING, END, IntervalSet
from cepheid.acquire.keyed import NOTHING, KeyedSet, pulls, shape
from cepheid.acquire.requests import Answer, Gap, Request
from cepheid.detection.channels import Address, Channels, addresses
from cepheid.detection.detector import Detector, Fresh
from cepheid.detection.program import Program
from cepheid.errors import InputProblem
from cepheid.io.event_log import Traffic, keys_of


class Round(NamedTuple):
    """The result of some answers: what to ask next, the matches of each program that became certain, and new gaps."""

    requests: list[Request]
    matches: list[pa.Table]
    gaps: list[Gap]


@dataclass(slots=True)
class Counts(Traffic):
    """The answers that the base received, and its requests."""

    requests: int = 0
    repeated: int = 0
    """Events that came again."""
    refused: int = 0
    """Answers that do not fit."""
    by_channel: Counter[Address] = field(default_factory=Counter)

    @property
    def by_stream(self) -> Counter[str]:
        """The events of each type."""
        found: Counter[str] = Counter()
        for (_, stream), count in self.by_channel.items():
            found[stream] += count
        return found


@dataclass(slots=True)
class Passing:
    """The events that the frontier passes, in place of the matches in them: another engine detects those. No later
    answer adds events before the frontier, so that events pass in the order of their times, each once."""

    until: int = BEGINNING
    """The time up to which events have passed."""
    events: list[pa.Table] = field(default_factory=list)

    def take(self, events: pa.Table, frontier: int) -> None:
        """Takes the known events up to the frontier."""
        self.until = max(self.until, frontier)
        if events.num_rows:
            self.events.append(events)


class Acquisition:
    """Running plans. `programs` have the same columns and types of events."""

    def __init__(self, programs: Sequence[Program]) -> None:
        self.channels = Channels(programs)
        self.detectors = [Detector(program, self.channels) for program in programs]
        self.counts = Counts()
        self.refused: dict[Address, str] = {}
        """Why the last answer of a source about a stream was refused."""
        self.passing: Passing | None = None
        self._number = 0

    @property
    def frontier(self) -> int:
        """The time up to which everything that any plan may ask for has been answered."""
        return min(detector.frontier for detector in self.detectors)

    # --- rounds -------------------------------------------------------------------------------------------------------

    def start(self) -> Round:
        """The first requests."""
        return self._round({}, [])

    def receive(self, answers: Iterable[Answer]) -> Round:
        """Takes some answers, in any order."""
        fresh: dict[Address, list[pa.RecordBatch]] = {}
        gaps: list[Gap] = []
        for answer in answers:
            address = (answer.source, answer.stream)
            try:
                events = self._accepted(answer, gaps)
            except (InputProblem, pa.ArrowException) as problem:  # it stays unanswered
                self.refused[address] = str(problem).splitlines()[0]
                self.counts.refused += 1
                continue
            if events.num_rows:
                fresh.setdefault(address, []).append(events)
        return self._round(fresh, gaps)

    def give_up(self, request: Request, reason: str) -> Round:
        """Takes a request as unanswerable: what it did not cover is a gap."""
        missing = self._missing(request)
        self.channels[request.source, request.stream].lost |= missing
        intervals = missing.flattened.intervals
        return self._round({}, [Gap(request.source, request.stream, *part, reason) for part in intervals])

    def unanswered(self, request: Request) -> IntervalSet:
        """The part of a request that has no answer yet."""
        return self._missing(request).flattened

    def _missing(self, request: Request) -> KeyedSet:
        """The part of a request that is still needed: forgotten intervals need no answer."""
        channel = self.channels[request.source, request.stream]
        asked = shape(request.begin, request.end, keys_of(request))
        return asked - (asked - channel.asked) - channel.answered

    def _accepted(self, answer: Answer, gaps: list[Gap]) -> pa.RecordBatch:
        """The events of an answer that are new, in the columns of the base."""
        channel = self.channels.get((answer.source, answer.stream))
        if channel is None:
            raise InputProblem(f"`{answer.source}` sends `{answer.stream}`, which it was not asked for")
        self.counts.add(answer.events)
        self.counts.by_channel[answer.source, answer.stream] += answer.events.num_rows
        events, times = self.channels.normalized(answer)
        fresh = channel.accepted(answer, events, times, gaps)
        self.counts.repeated += events.num_rows - fresh.num_rows
        return fresh

    def _round(self, fresh: Fresh, gaps: list[Gap]) -> Round:
        matches = [detector.round(fresh, self.passing is None) for detector in self.detectors]
        if self.passing is not None:
            frontier = self.frontier
            self.passing.take(self.channels.events(self.channels, self.passing.until + 1, frontier), frontier)
        requests = self._requests()
        self._forget()
        return Round(requests, matches, gaps)

    def _requests(self) -> list[Request]:
        """Requests the intervals that any query wants and none has requested before."""
        wanted = dict.fromkeys(self.channels, NOTHING)
        for detector in self.detectors:
            for source, stream in addresses(detector.program):
                own = self.channels[source, stream].adapted(detector.wanted[stream], detector.program.keys.get(stream))
                wanted[source, stream] |= own
        found = []
        for (source, stream), channel in self.channels.items():
            for pull in pulls(wanted[source, stream] - channel.asked, channel.asked):
                self._number += 1
                follow = pull.end > channel.complete
                key = None if pull.keys is None or channel.attribute is None else (channel.attribute, pull.keys)
                found.append(
                    Request(
                        self._number, source, stream, pull.begin, pull.end, follow, channel.filter, channel.columns, key
                    )
                )
                channel.asked |= pull.asked
        self.counts.requests += len(found)
        return found

    def _forget(self) -> None:
        """Drops the events that no later match can contain."""
        oldest = dict.fromkeys(self.channels, END if self.passing is None else self.passing.until + 1)
        for detector in self.detectors:
            for address in addresses(detector.program):
                oldest[address] = min(oldest[address], detector.oldest)
            detector.forget()
        for address, channel in self.channels.items():
            if oldest[address] > BEGINNING:
                channel.forget(oldest[address], self.channels.asked.columns.time)

    # --- other plans --------------------------------------------------------------------------------------------------

    def switched(self, programs: Sequence[Program]) -> tuple[Acquisition, Round]:
        """The detection with other plans, from the frontier on, and its requests. What is known stays known. All
        requests that are not answered are void: what the new plans want of them is asked for again."""
        found = Acquisition(programs)
        found.detectors = [
            detector.switched(program, found.channels)
            for detector, program in zip(self.detectors, programs, strict=True)
        ]
        found._number, found.counts, found.passing = self._number, self.counts, self.passing
        fresh: dict[Address, list[pa.RecordBatch]] = {}
        for address, old in self.channels.items():
            channel = found.channels[address]
            if old.covered.parts and channel.attribute != old.attribute:
                continue  # only the events with some keys are known
            channel.asked, channel.covered, channel.lost = old.answered, old.covered, old.lost
            channel.complete, channel.events = old.complete, old.events
            fresh[address] = old.events
        return found, found._round(fresh, [])

    @property
    def last_request(self) -> int:
        return self._number

    def observed(self) -> dict[Address, tuple[str | None, Observed]]:
        """The events and ticks that were observed of each channel, and the attribute by which it is asked."""
        return {address: (channel.attribute, channel.observed) for address, channel in self.channels.items()}

    # --- saved state --------------------------------------------------------------------------------------------------

    def save(self) -> bytes:
        """The state: known events, intervals, and the matches that may be found again."""
        state = {
            "number": self._number,
            "channels": [
                [*address, c.covered.to_data(), c.lost.to_data(), c.complete, sum(b.num_rows for b in c.events)]
                for address, c in self.channels.items()
            ],
            "detectors": [detector.to_data() for detector in self.detectors],
        }
        events = self.channels.events(self.channels)
        schema = events.schema.with_metadata({"state": json.dumps(state)})
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, schema) as writer:
            writer.write_table(events.replace_schema_metadata(schema.metadata))
        return bytes(sink.getvalue())

    @classmethod
    def restore(cls, programs: Sequence[Program], saved: bytes) -> tuple[Acquisition, Round]:
        """Plans that go on, and their requests: what was asked for and not answered is asked for again."""
        table = pa.ipc.open_stream(saved).read_all()
        state = json.loads(table.schema.metadata[b"state"])
        events = table.replace_schema_metadata(None)
        found = cls(programs)
        found._number = state["number"]
        first = 0
        for source, stream, covered, lost, complete, count in state["channels"]:
            channel = found.channels[source, stream]
            channel.covered, channel.lost = KeyedSet.from_data(covered), KeyedSet.from_data(lost)
            channel.asked, channel.complete = channel.answered, complete
            channel.events = events.slice(first, count).combine_chunks().to_batches()
            first += count
        found.detectors = [
            Detector.from_data(program, found.channels, data)
            for program, data in zip(programs, state["detectors"], strict=True)
        ]
        return found, found._round({}, [])
