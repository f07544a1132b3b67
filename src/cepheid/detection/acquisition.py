"""Executes an acquisition plan (CED §3.3): a deterministic machine that takes answers and gives requests and matches,
without a clock or sockets of its own.

What is known of a stream is a set of intervals: those asked for and those covered by answers. Partial detections
activate further intervals, in the past and in the future; what was asked for is not asked for again, so that no event
is fetched twice. Pulled events are older than others that are already known. A detection therefore looks at all events
that a match may still contain, and a match is output once, as soon as its events are known and every interval that
could hold an event that spoils it is covered.

The *frontier* is the time up to which everything that the plan may ask for has been answered. No later answer changes
what is before it, so that events a window before the frontier are forgotten.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cepheid.acquire.drift import Observed
from cepheid.acquire.intervals import BEGINNING, END, NEVER, IntervalSet, Numbers
from cepheid.acquire.keyed import NOTHING, KeyedSet, pulls, shape
from cepheid.acquire.plans import Plan
from cepheid.acquire.requests import Answer, Gap, Request
from cepheid.acquire.tree import (
    EventTree,
    Kind,
    Node,
    Operator,
    Primitive,
    negated_streams,
    nodes,
    span,
    streams,
    tree_of,
)
from cepheid.detection.partials import Asked, Stage, require_acquirable, stages_of
from cepheid.detection.source_filter import columns_of, filters_of
from cepheid.engine.prepare import Prepared, RunOptions, prepare
from cepheid.engine.run import output_schema, run
from cepheid.errors import InputProblem, listing
from cepheid.io.event_columns import ticks_of
from cepheid.io.event_log import Traffic, keys_of
from cepheid.io.rows import in_ticks
from cepheid.pattern import Query

UNCERTAIN = "uncertain"
"""The column that says whether a gap could change a match."""


class Program(NamedTuple):
    """A plan with the kernels that it needs."""

    tree: EventTree
    plan: Plan
    prepared: Prepared
    stages: tuple[Stage, ...]
    asked: Asked
    sources: Mapping[str, tuple[str, ...]]
    """The sources of each stream."""
    reach: int | None
    """How long an event can matter, before and after its time. None: without limit."""
    filters: Mapping[str, str]
    """The conditions that sources apply themselves."""
    columns: tuple[str, ...] | None
    """The columns that sources send; None: all."""
    keys: Mapping[str, str]
    """The streams that are asked for by the values of an attribute, and the attribute."""
    trail: int
    """How long after the end of a match an event may come that spoils it."""

    @classmethod
    def of(
        cls,
        prepared: Prepared,
        tree: EventTree,
        plan: Plan,
        asked: Asked,
        sources: Mapping[str, tuple[str, ...]],
        options: RunOptions,
    ) -> Program:
        root = tree.root
        missing = [stream for stream in streams(root) if not sources.get(stream)]
        if missing:
            raise InputProblem(
                f"no source has events of type {listing(missing)}", expected=f"some of {listing(sorted(sources))}"
            )
        length = span(root)
        stages = tuple(stages_of(root, plan, tree, asked, options))
        trail = _trail(root)
        reach = None if length is None else length + trail + max(_windows(root), default=0) + 1
        columns = columns_of(prepared.written, asked.columns)
        return cls(tree, plan, prepared, stages, asked, sources, reach, filters_of(tree), columns, _keys(stages), trail)


def bound_tree(query: Query, asked: Asked, options: RunOptions) -> tuple[Prepared, EventTree]:
    """The query prepared for its sources, and its tree."""
    prepared = prepare(query, asked, options)
    require_acquirable(prepared.written)
    return prepared, tree_of(prepared.written, prepared.clock)


def _keys(stages: Sequence[Stage]) -> dict[str, str]:
    """The attribute by which each stream is asked for."""
    found: dict[str, str] = {}
    for stage in stages:
        for index, test in stage.keys.items():
            item = stage.operator.items[index]
            assert isinstance(item, Primitive)
            found[item.stream] = test.attribute
    return found


def _windows(root: Node) -> list[int]:
    return [node.window or 0 for node in nodes(root) if isinstance(node, Operator)]


def _trail(root: Node) -> int:
    """The longest window at whose end an event must not occur."""
    found = [0]
    for node in nodes(root):
        if isinstance(node, Operator) and (node.negated[-1] or (node.kind is Kind.AND and any(node.negated))):
            found.append(node.window or 0)
    return sum(found)


@dataclass(slots=True)
class Channel:
    """What is known of one stream of one source."""

    asked: KeyedSet = NOTHING
    covered: KeyedSet = NOTHING
    lost: KeyedSet = NOTHING
    """Gaps."""
    complete: int = BEGINNING
    """The latest time up to which the source has said to have all its events."""
    observed: Observed = field(default_factory=Observed)

    @property
    def answered(self) -> KeyedSet:
        return self.covered | self.lost


class Round(NamedTuple):
    """The result of some answers: what to ask next, the matches that became certain, and new gaps."""

    requests: list[Request]
    matches: pa.Table
    gaps: list[Gap]


@dataclass(slots=True)
class Counts(Traffic):
    """The answers that the base received, and its requests."""

    requests: int = 0
    repeated: int = 0
    """Events that came again."""
    refused: int = 0
    """Answers that do not fit."""
    by_stream: Counter[str] = field(default_factory=Counter)


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
    """A running plan. Detections that end at `begin` or later are of interest."""

    def __init__(self, program: Program, begin: int = BEGINNING) -> None:
        self.program = program
        self.begin = begin
        self.channels: dict[tuple[str, str], Channel] = {
            (source, stream): Channel() for stream in streams(program.tree.root) for source in program.sources[stream]
        }
        self.known: dict[str, list[pa.RecordBatch]] = {stream: [] for stream in streams(program.tree.root)}
        self.wanted: dict[str, KeyedSet] = {stream: NOTHING for stream in streams(program.tree.root)}
        self.activated: dict[tuple[str, int], dict[int, KeyedSet]] = {
            (stage.operator.name, stage.before): {i: NOTHING for u in stage.step for i in stage.operator.units[u]}
            for stage in program.stages
        }
        self.emitted: Counter[str] = Counter()
        self.frontier = BEGINNING
        self.counts = Counts()
        self.refused: dict[tuple[str, str], str] = {}
        """Why the last answer of a source about a stream was refused."""
        self.passing: Passing | None = None
        self._number = 0
        self._last_certain = BEGINNING
        self._spoiling = negated_streams(program.tree.root)
        self.schema = output_schema(program.prepared).append(pa.field(UNCERTAIN, pa.bool_()))

    # --- rounds -------------------------------------------------------------------------------------------------------

    def start(self) -> Round:
        """The first requests."""
        return self._round({}, [])

    def receive(self, answers: Iterable[Answer]) -> Round:
        """Takes some answers, in any order."""
        fresh: dict[str, list[pa.RecordBatch]] = {}
        gaps: list[Gap] = []
        for answer in answers:
            try:
                events = self._accepted(answer, gaps)
            except (InputProblem, pa.ArrowException) as problem:  # it stays unanswered
                self.refused[answer.source, answer.stream] = str(problem).splitlines()[0]
                self.counts.refused += 1
                continue
            if events is not None and events.num_rows:
                fresh.setdefault(answer.stream, []).append(events)
        return self._round(fresh, gaps)

    def give_up(self, request: Request, reason: str) -> Round:
        """Takes a request as unanswerable: what it did not cover is a gap."""
        channel = self.channels[request.source, request.stream]
        missing = self._missing(request)
        channel.lost |= missing
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

    def _accepted(self, answer: Answer, gaps: list[Gap]) -> pa.RecordBatch | None:
        """The events of an answer that are new, in the columns of the base."""
        channel = self.channels.get((answer.source, answer.stream))
        if channel is None:
            raise InputProblem(f"`{answer.source}` sends `{answer.stream}`, which it was not asked for")
        self.counts.add(answer.events)
        self.counts.by_stream[answer.stream] += answer.events.num_rows
        events = self._normalized(answer)
        times = ticks_of(events.column(self.program.asked.columns.time), self.program.asked.columns.time)
        if len(times) and (times.min() < answer.begin or times.max() > answer.complete):
            raise InputProblem(
                f"`{answer.source}` sends an event of `{answer.stream}` outside of the interval that it answers",
                expected=f"times from {answer.begin} to {answer.complete}",
            )
        attribute = self.program.keys.get(answer.stream)
        keys = None if attribute is None else events.column(attribute).to_pylist()
        answered = shape(answer.begin, answer.complete, answer.keys)
        answered = answered - (answered - channel.asked)  # no more than what was asked for
        is_new = ~channel.covered.holds(times, keys) & answered.holds(times, keys)
        self.counts.repeated += int(len(times) - is_new.sum())
        if answer.begin > BEGINNING and answer.complete < END:
            new = answered - channel.covered
            channel.observed.events += int(is_new.sum())
            channel.observed.ticks += new.whole.length + sum(times.length for times in new.parts.values())
        if answer.retained > answer.begin and answer.begin > BEGINNING:
            dropped = shape(answer.begin, min(answer.retained - 1, answer.complete), answer.keys) - channel.answered
            channel.lost |= dropped
            reason = "the source has dropped these events"
            gaps += [Gap(answer.source, answer.stream, *part, reason) for part in dropped.flattened.intervals]
        channel.covered |= answered - channel.lost
        channel.complete = max(channel.complete, answer.complete)
        return events if is_new.all() else events.filter(pa.array(is_new))

    def _normalized(self, answer: Answer) -> pa.RecordBatch:
        schema, events = self.program.asked.schema, answer.events
        names = events.schema.names
        unknown = [name for name in names if name not in schema.names]
        if unknown:
            raise InputProblem(
                f"`{answer.source}` sends the columns {listing(unknown)}", expected=f"some of {listing(schema.names)}"
            )
        count = events.num_rows
        arrays = [events.column(f.name).cast(f.type) if f.name in names else pa.nulls(count, f.type) for f in schema]
        at = schema.get_field_index(self.program.asked.columns.type)
        if self.program.asked.columns.type not in names:
            arrays[at] = pa.array([answer.stream] * count, schema.field(at).type)
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _round(self, fresh: Mapping[str, list[pa.RecordBatch]], gaps: list[Gap]) -> Round:
        for stream, batches in fresh.items():
            self.known[stream] += batches
        before = self.frontier
        for stage in self.program.stages:
            if not stage.excludes:
                self._detect_partially(stage, fresh)
        reached = self._want()
        for stage in self.program.stages:
            if stage.excludes:  # what may spoil its partial detections is wanted by now
                self._detect_partially(stage, fresh)
                reached = self._want()
        self.frontier = max(before, reached)
        certain = self._certain(self._spoiling)
        matches = self.schema.empty_table()
        if self.passing is not None:
            self.passing.take(self._events(self.known, self.passing.until + 1, self.frontier), self.frontier)
        elif fresh or certain != self._last_certain:
            matches = self._detect(before, certain)
        self._last_certain = certain
        requests = self._requests()
        self._forget()
        return Round(requests, matches, gaps)

    def _want(self) -> int:
        """Computes the intervals that are wanted of each stream. Returns the frontier."""
        self.wanted = {stream: NOTHING for stream in self.wanted}
        everything = KeyedSet(IntervalSet(((self.begin, END),)))
        return self._visit(self.program.tree.root, self.program.plan, everything, END)

    # --- activation ---------------------------------------------------------------------------------------------------

    def _detect_partially(self, stage: Stage, fresh: Mapping[str, list[pa.RecordBatch]]) -> None:
        """Adds the intervals that the partial detections of a stage activate: those with new events, or, if events can
        spoil them, all that are certain."""
        found = self.activated[stage.operator.name, stage.before]
        low, high = BEGINNING, END
        length = span(stage.operator)
        if not stage.excludes:
            new = [self._times(batch) for stream in stage.reads for batch in fresh.get(stream, ())]
            if not new:
                return
            if length is not None:
                low = int(min(times.min() for times in new)) - length
                high = int(max(times.max() for times in new)) + length
        events = self._events(stage.reads, low, high)
        if events.num_rows:
            certain = self._certain(stage.excludes)
            activated = stage.activated(self.program.asked.table(events), certain)
            for index, active in activated.items():
                found[index] |= active

    def _visit(self, node: Node, plan: Plan, active: KeyedSet, final: int) -> int:
        """Adds the intervals of a node's streams to what is wanted. `active` has the times at which its occurrences
        are of interest, of a stream by key, of which those before `final` do not change any more. Returns the time up
        to which everything that was and will be asked for has been answered."""
        if isinstance(node, Primitive):
            self.wanted[node.stream] |= active
            missing = (active - self._answered(node.stream)).first
            return final if missing >= END else min(final, missing - 1)
        settled, known = END, END
        before = 0
        for number, step in enumerate(plan.steps):
            for unit in step:
                for index in node.units[unit]:
                    times, limit = _operand(node, index, active.whole, final)
                    own = KeyedSet(times)
                    if number:
                        own = self.activated[node.name, before][index].within(times)
                        limit = min(limit, _earlier(known, node.window))
                    reached = self._visit(node.items[index], plan.below[unit], own, limit)
                    settled = min(settled, reached)
            known = settled
            before |= sum(1 << unit for unit in step)
        return settled

    def _answered(self, stream: str) -> KeyedSet:
        """Where all sources of a stream have answered."""
        channels = [self.channels[source, stream] for source in self.program.sources[stream]]
        found = channels[0].answered
        for channel in channels[1:]:
            found &= channel.answered
        return found

    def _certain(self, of: frozenset[str]) -> int:
        """The first time for which an answer is missing that some streams were asked for."""
        return min((((self.wanted[s] - self._answered(s)).first) for s in of), default=END)

    def _requests(self) -> list[Request]:
        """Requests the wanted intervals that were not requested before."""
        found = []
        for (source, stream), channel in self.channels.items():
            condition, attribute = self.program.filters.get(stream), self.program.keys.get(stream)
            for pull in pulls(self.wanted[stream] - channel.asked, channel.asked):
                self._number += 1
                follow = pull.end > channel.complete
                key = None if pull.keys is None or attribute is None else (attribute, pull.keys)
                columns = self.program.columns
                found.append(
                    Request(self._number, source, stream, pull.begin, pull.end, follow, condition, columns, key)
                )
                channel.asked |= pull.asked
        self.counts.requests += len(found)
        return found

    # --- detection ----------------------------------------------------------------------------------------------------

    def _detect(self, before: int, certain: int) -> pa.Table:
        """The matches that are certain now and were not output. `before` is the frontier of the last round: what it
        had passed was output then."""
        program = self.program
        low = BEGINNING if program.reach is None or before <= BEGINNING else before - 2 * program.reach
        events = self._events(streams(program.tree.root), low, END)
        if not events.num_rows:
            return self.schema.empty_table()
        result = run(program.prepared, program.asked.table(events))
        found = pa.Table.from_batches(list(result.batches), result.schema)
        starts, ends = (_ticks(found.column(name)) for name in _INTERVAL_COLUMNS)
        due = ends + program.trail
        if before > BEGINNING:
            later = due > before
            found, starts, ends, due = found.filter(pa.array(later)), starts[later], ends[later], due[later]
        keys = [json.dumps(row, default=repr, sort_keys=True) for row in found.to_pylist()]
        # A match stays in the count while it can be found again, certain or not.
        old = self.emitted & Counter(keys)
        self.emitted = old.copy()
        is_new = np.zeros(len(keys), bool)
        for number, key in enumerate(keys):
            if old[key] > 0:
                old[key] -= 1
            elif not self._spoiling or due[number] < certain:
                is_new[number] = True
                self.emitted[key] += 1
        uncertain = self._uncertain(starts[is_new], ends[is_new])
        fresh = found.filter(pa.array(is_new))
        return fresh.append_column(UNCERTAIN, pa.array(uncertain, pa.bool_())).cast(self.schema)

    def _uncertain(self, starts: Numbers, ends: Numbers) -> list[bool]:
        """Whether a gap could hide an event that spoils a match."""
        lost = NEVER
        for (_, stream), channel in self.channels.items():
            if stream in self._spoiling:
                lost |= channel.lost.flattened
        reach = self.program.reach or 0
        around = zip(starts.tolist(), ends.tolist(), strict=True)
        return [bool(lost & IntervalSet(((start - reach, end + reach),))) for start, end in around]

    # --- known events -------------------------------------------------------------------------------------------------

    def _times(self, batch: pa.RecordBatch) -> Numbers:
        return _ticks(batch.column(self.program.asked.columns.time))

    def _events(self, of: Iterable[str], low: int, high: int) -> pa.Table:
        parts = [batch for stream in of for batch in self.known[stream]]
        table = pa.Table.from_batches(parts, self.program.asked.schema)
        if low <= BEGINNING and high >= END:
            return table
        times = _ticks(table.column(self.program.asked.columns.time))
        return table.filter(pa.array((times >= low) & (times <= high)))

    def _forget(self) -> None:
        """Drops the events that no later match can contain."""
        reach = self.program.reach
        if reach is None or self.frontier <= BEGINNING:
            return
        oldest = self.frontier - 2 * reach
        for stream, batches in self.known.items():
            kept = [batch.filter(pa.array(self._times(batch) >= oldest)) for batch in batches]
            kept = [batch for batch in kept if batch.num_rows]
            if len(kept) > 16:
                kept = pa.Table.from_batches(kept).combine_chunks().to_batches()
            self.known[stream] = kept
        for key, active in self.activated.items():
            self.activated[key] = {index: _from_time(times, oldest) for index, times in active.items()}
        for channel in self.channels.values():
            if channel.asked.parts:
                channel.asked = channel.asked.from_time(oldest)
                channel.covered, channel.lost = channel.covered.from_time(oldest), channel.lost.from_time(oldest)

    # --- another plan -------------------------------------------------------------------------------------------------

    def switched(self, program: Program) -> tuple[Acquisition, Round]:
        """The detection with another plan, from the frontier on, and its requests. What is known stays known. All
        requests that are not answered are void: what the new plan wants of them is asked for again."""
        reach = self.program.reach
        is_bounded = reach is not None and self.frontier > BEGINNING
        found = Acquisition(program, max(self.begin, self.frontier - program.trail) if is_bounded else self.begin)
        found.frontier, found._number = self.frontier, self._number
        found.emitted, found.counts, found.passing = self.emitted, self.counts, self.passing
        kept = {stream for stream in self.known if not self._is_divided(stream, program)}
        for key, channel in self.channels.items():
            if key[1] in kept:
                found.channels[key] = Channel(channel.answered, channel.covered, channel.lost, channel.complete)
        return found, found._round({stream: self.known[stream] for stream in kept}, [])

    def _is_divided(self, stream: str, program: Program) -> bool:
        """Whether only the events with some keys are known of a stream that another plan does not ask for by these."""
        by_key = any(channel.covered.parts for (_, other), channel in self.channels.items() if other == stream)
        return by_key and program.keys.get(stream) != self.program.keys.get(stream)

    @property
    def last_request(self) -> int:
        return self._number

    def observed(self) -> dict[str, list[Observed]]:
        """The events and ticks that were observed of each stream, by source."""
        found: dict[str, list[Observed]] = {}
        for (_, stream), channel in self.channels.items():
            found.setdefault(stream, []).append(channel.observed)
        return found

    # --- saved state --------------------------------------------------------------------------------------------------

    def save(self) -> bytes:
        """The state: known events, intervals, and the matches that may be found again."""
        state = {
            "begin": self.begin,
            "frontier": self.frontier,
            "certain": self._last_certain,
            "number": self._number,
            "emitted": dict(self.emitted),
            "channels": [
                [source, stream, c.covered.to_data(), c.lost.to_data(), c.complete]
                for (source, stream), c in self.channels.items()
            ],
            "activated": [
                [name, before, [[index, times.to_data()] for index, times in active.items()]]
                for (name, before), active in self.activated.items()
            ],
        }
        events = self._events(self.known, BEGINNING, END)
        schema = events.schema.with_metadata({"state": json.dumps(state)})
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, schema) as writer:
            writer.write_table(events.replace_schema_metadata(schema.metadata))
        return bytes(sink.getvalue())

    @classmethod
    def restore(cls, program: Program, saved: bytes) -> tuple[Acquisition, Round]:
        """A plan that goes on, and its requests: what was asked for and not answered is asked for again."""
        table = pa.ipc.open_stream(saved).read_all()
        state = json.loads(table.schema.metadata[b"state"])
        found = cls(program, state["begin"])
        found.frontier, found._number = state["frontier"], state["number"]
        found._last_certain, found.emitted = state["certain"], Counter(state["emitted"])
        for source, stream, covered, lost, complete in state["channels"]:
            known, gone = KeyedSet.from_data(covered), KeyedSet.from_data(lost)
            found.channels[source, stream] = Channel(known | gone, known, gone, complete)
        for name, before, active in state["activated"]:
            found.activated[name, before] = {index: KeyedSet.from_data(times) for index, times in active}
        kinds = table.column(program.asked.columns.type)
        for stream in found.known:
            own = table.filter(pc.equal(kinds.cast(pa.string()), stream)).replace_schema_metadata(None)
            found.known[stream] = own.combine_chunks().to_batches()
        return found, found._round({}, [])


_INTERVAL_COLUMNS = ("match_start", "match_end")


def _from_time(times: KeyedSet, time: int) -> KeyedSet:
    return replace(times.from_time(time), whole=times.whole.from_time(time))


def _ticks(column: pa.Array | pa.ChunkedArray) -> Numbers:
    whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    found: Numbers = np.asarray(in_ticks(whole).cast(pa.int64()), np.int64)
    return found


def _earlier(time: int, window: int | None) -> int:
    """A time minus a window. A time without limit stays without limit."""
    if time >= END:
        return END
    return BEGINNING if window is None else time - window


def _operand(operator: Operator, index: int, active: IntervalSet, final: int) -> tuple[IntervalSet, int]:
    """When an operand is of interest if its operator is, and up to which time that is final (CED §2.2)."""
    if operator.kind is Kind.OR:
        return active, final
    if operator.window is None:
        last = active.intervals[-1][1] if active else BEGINNING
        return IntervalSet(((BEGINNING, END if operator.negated[index] else last),)), _earlier(final, None)
    after = operator.window if operator.negated[index] else 0
    return active.extended(operator.window, after), _earlier(final, operator.window)
