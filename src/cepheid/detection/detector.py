"""Executes the plan of one query over what is known of its streams: which intervals it wants, and its matches."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from cepheid.acquire.intervals import BEGINNING, END, NEVER, IntervalSet, Numbers
from cepheid.acquire.keyed import NOTHING, KeyedSet
from cepheid.acquire.plans import Plan
from cepheid.acquire.tree import Kind, Node, Operator, Primitive, negated_streams, span
from cepheid.detection.channels import Address, Channels, addresses, ticks
from cepheid.detection.partials import Stage
from cepheid.detection.program import Program
from cepheid.engine.run import output_schema, run

UNCERTAIN = "uncertain"
"""The column that says whether a gap could change a match."""
Fresh = Mapping[Address, list[pa.RecordBatch]]
"""The events that have come in a round."""


class Emitted(NamedTuple):
    """How often a match was output, and the time up to which the frontier has to come before it is forgotten."""

    times: int
    due: int


class Detector:
    """A running plan of one query. Detections that end at `begin` or later are of interest."""

    def __init__(self, program: Program, channels: Channels, begin: int = BEGINNING) -> None:
        self.program = program
        self.channels = channels
        self.begin = begin
        self.wanted: dict[str, KeyedSet] = dict.fromkeys(program.streams, NOTHING)
        self.activated: dict[tuple[str, int], dict[int, KeyedSet]] = {
            (stage.operator.name, stage.before): {i: NOTHING for u in stage.step for i in stage.operator.units[u]}
            for stage in program.stages
        }
        self.emitted: dict[str, Emitted] = {}
        self.frontier = BEGINNING
        self.spoiling = negated_streams(program.tree.root)
        self.schema = output_schema(program.prepared).append(pa.field(UNCERTAIN, pa.bool_()))
        self._last_certain = BEGINNING

    def round(self, fresh: Fresh, detects: bool) -> pa.Table:
        """Takes the events that have come, and returns the matches that became certain."""
        stages = self.program.stages
        before = self.frontier
        for stage in stages:
            if not stage.excludes:
                self._detect_partially(stage, fresh)
        reached = self._want()
        for stage in stages:
            if stage.excludes:  # what may spoil its partial detections is wanted by now
                self._detect_partially(stage, fresh)
                reached = self._want()
        self.frontier = max(before, reached)
        certain = self._certain(self.spoiling)
        is_new = certain != self._last_certain or any(address in fresh for address in addresses(self.program))
        self._last_certain = certain
        return self._detect(before, certain) if detects and is_new else self.schema.empty_table()

    @property
    def oldest(self) -> int:
        """The earliest time of an event that a later match can contain."""
        reach = self.program.reach
        return BEGINNING if reach is None or self.frontier <= BEGINNING else self.frontier - 2 * reach

    def forget(self) -> None:
        """Drops the intervals before that time."""
        if self.oldest <= BEGINNING:
            return
        for key, active in self.activated.items():
            self.activated[key] = {index: _from_time(times, self.oldest) for index, times in active.items()}

    # --- activation ---------------------------------------------------------------------------------------------------

    def _want(self) -> int:
        """Computes the intervals that are wanted of each stream. Returns the frontier."""
        self.wanted = dict.fromkeys(self.wanted, NOTHING)
        everything = KeyedSet(IntervalSet(((self.begin, END),)))
        return self._visit(self.program.tree.root, self.program.plan, everything, END)

    def _detect_partially(self, stage: Stage, fresh: Fresh) -> None:
        """Adds the intervals that the partial detections of a stage activate: those with new events, or, if events can
        spoil them, all that are certain."""
        found = self.activated[stage.operator.name, stage.before]
        low, high = BEGINNING, END
        length = span(stage.operator)
        read = addresses(self.program, stage.reads)
        if not stage.excludes:
            time = self.program.asked.columns.time
            new = [ticks(batch.column(time)) for address in read for batch in fresh.get(address, ())]
            if not new:
                return
            if length is not None:
                low = int(min(times.min() for times in new)) - length
                high = int(max(times.max() for times in new)) + length
        events = self.channels.events(read, low, high)
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
        return self.channels.answered(self.program, stream)

    def _certain(self, of: Iterable[str]) -> int:
        """The first time for which an answer is missing that some streams were asked for."""
        return min((((self.wanted[s] - self._answered(s)).first) for s in of), default=END)

    # --- detection ----------------------------------------------------------------------------------------------------

    def _detect(self, before: int, certain: int) -> pa.Table:
        """The matches that are certain now and were not output. `before` is the frontier of the last round: what it
        had passed was output then."""
        program = self.program
        low = BEGINNING if program.reach is None or before <= BEGINNING else before - 2 * program.reach
        events = self.channels.events(addresses(program), low, END)
        if not events.num_rows:
            return self.schema.empty_table()
        result = run(program.prepared, program.asked.table(events))
        found = pa.Table.from_batches(list(result.batches), result.schema)
        starts, ends = (ticks(found.column(name)) for name in _INTERVAL_COLUMNS)
        due = ends + program.trail
        if before > BEGINNING:
            later = due > before
            found, starts, ends, due = found.filter(pa.array(later)), starts[later], ends[later], due[later]
        keys = [json.dumps(row, default=repr, sort_keys=True) for row in found.to_pylist()]
        # A match is known while it can be found again, also if its events have to be fetched again in between.
        self.emitted = {key: one for key, one in self.emitted.items() if one.due > before}
        old = Counter({key: one.times for key, one in self.emitted.items()})
        is_new = np.zeros(len(keys), bool)
        for number, key in enumerate(keys):
            if old[key] > 0:
                old[key] -= 1
            elif not self.spoiling or due[number] < certain:
                is_new[number] = True
                known = self.emitted.get(key, Emitted(0, 0))
                self.emitted[key] = Emitted(known.times + 1, int(due[number]))
        uncertain = self._uncertain(starts[is_new], ends[is_new])
        fresh = found.filter(pa.array(is_new))
        return fresh.append_column(UNCERTAIN, pa.array(uncertain, pa.bool_())).cast(self.schema)

    def _uncertain(self, starts: Numbers, ends: Numbers) -> list[bool]:
        """Whether a gap could hide an event that spoils a match."""
        lost = NEVER
        for address in addresses(self.program, self.spoiling):
            lost |= self.channels[address].lost.flattened
        reach = self.program.reach or 0
        around = zip(starts.tolist(), ends.tolist(), strict=True)
        return [bool(lost & IntervalSet(((start - reach, end + reach),))) for start, end in around]

    # --- another plan, saved state ------------------------------------------------------------------------------------

    def switched(self, program: Program, channels: Channels) -> Detector:
        """The detection with another plan, from the frontier on."""
        is_bounded = self.program.reach is not None and self.frontier > BEGINNING
        begin = max(self.begin, self.frontier - program.trail) if is_bounded else self.begin
        found = Detector(program, channels, begin)
        found.frontier, found.emitted = self.frontier, self.emitted
        return found

    def to_data(self) -> dict[str, Any]:
        return {
            "begin": self.begin,
            "frontier": self.frontier,
            "certain": self._last_certain,
            "emitted": self.emitted,
            "activated": [
                [name, before, [[index, times.to_data()] for index, times in active.items()]]
                for (name, before), active in self.activated.items()
            ],
        }

    @classmethod
    def from_data(cls, program: Program, channels: Channels, data: Mapping[str, Any]) -> Detector:
        found = cls(program, channels, data["begin"])
        found.frontier, found._last_certain = data["frontier"], data["certain"]
        found.emitted = {key: Emitted(*one) for key, one in data["emitted"].items()}
        for name, before, active in data["activated"]:
            found.activated[name, before] = {index: KeyedSet.from_data(times) for index, times in active}
        return found


_INTERVAL_COLUMNS = ("match_start", "match_end")


def _from_time(times: KeyedSet, time: int) -> KeyedSet:
    return replace(times.from_time(time), whole=times.whole.from_time(time))


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
