"""Reads stored files in steps: the rarest events of a pattern, from the types of the rows; then further rare events
near them; then the rows that can still matter, from the row groups whose times may fit.

The driver samples a few row groups to order the variables by rate, and evaluates the partial matches of the steps."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from cepheid.acquire.nearby import Nearby, Windows, around, is_key
from cepheid.acquire.scan_cost import COLLECTED, JOB, VALUE, WORTHWHILE, TableShape
from cepheid.acquire.tree import Part as QueryPart
from cepheid.acquire.tree import partial_query
from cepheid.codegen.masks import masks
from cepheid.detection.partials import Asked
from cepheid.engine.prepare import Prepared, RunOptions, prepare
from cepheid.engine.run import run_matches
from cepheid.expr import attributes_in
from cepheid.io.event_columns import starts_of, ticks_of
from cepheid.io.formats.columnar import ColumnPart
from cepheid.io.rows import TYPE
from cepheid.io.shares import Footers, StoredFiles
from cepheid.io.source import columns_read
from cepheid.optimize.distribution import Distribution, Keyed
from cepheid.pattern import Conj, EventClass, Seq, Strategy, partition_attributes
from cepheid.spark.reading import ReadCounts, ReadTask
from cepheid.spark.worker import KIND

_SAMPLED_PARTS = 8
_SAMPLED_ROWS = 600_000
_FIRST_ROWS, _CLEARLY = 16_384, 0.1
"""The rows of a part that a first sample has, and the share of the expected events for which one scan must be best for
it to decide."""
_UNSEEN = 0.5
"""The count of an event that the sample does not have."""
MOST_EVENTS = 2_000_000
"""The driver collects at most so many events."""

NOWHERE = Windows(np.empty(0, np.int64), np.empty(0, np.int64))

Collect = Callable[[ReadTask], tuple[pa.Table | None, ReadCounts]]
"""Reads in a job of Spark."""


@dataclass(frozen=True, slots=True)
class Step:
    """A step that was taken: the events of a variable that were read, and what they leave."""

    var: str
    expected: float | None
    """How many events were expected; None without statistics."""
    events: int
    left: int
    """The partial matches, or the intervals in which all events lie that were read."""
    read: ReadCounts | None = None
    are_matches: bool = True
    """Whether partial matches are left, not intervals."""


@dataclass(frozen=True, slots=True)
class FileSteps:
    """The steps that were taken, and the rows that are left to read."""

    taken: tuple[Step, ...]
    within: Nearby
    key: str | None
    parts: tuple[ColumnPart, ...]
    expected: ReadCounts
    """What the last step is expected to read."""
    of: ReadCounts
    """What one scan reads."""
    gain: float
    """How many times as much one scan is expected to cost."""


@dataclass(frozen=True, slots=True)
class Stepping:
    """Takes the steps of a query over files. `read` reads all relevant rows of the files."""

    prepared: Prepared
    files: StoredFiles
    read: ReadTask
    columns: int
    """How many columns are read besides type and time."""
    candidates: Sequence[str]
    collect: Collect
    forced: bool = False

    def steps(self) -> FileSteps | str:
        """The steps, or the reason for one scan."""
        parts = [part for part in self.files.parts if isinstance(part, ColumnPart)]
        if len(parts) < len(self.files.parts):
            return "text files are read as a whole"
        times = self.files.times
        if times is None and not self.forced:
            return "the files have no statistics about their times"
        length = 1 if times is None else times[1] - times[0] + 1
        # Few rows show that no variable is rare, if one scan is best for a fraction of its events, too.
        for most, share in ((_FIRST_ROWS, _CLEARLY), (self.files.rows, 1.0)):
            counts, passing = self._sampled(parts, most)
            shape = TableShape(self.files.rows, self.columns, length, len(parts), passing)
            first = min(self.candidates, key=lambda var: counts[var])
            events = counts[first] * share
            if events > MOST_EVENTS:
                return f"even `{first}`, the rarest variable, has about {counts[first]:,.0f} events"
            if not self.forced and not shape.is_surveyed(events, self.window):
                return f"the rows around the {counts[first]:,.0f} expected events of `{first}` are too many"
        return self._walk(parts, shape, counts, first)

    @property
    def window(self) -> int:
        return math.ceil(self.prepared.plan.window or 0)

    @property
    def key(self) -> str | None:
        return shared_key(self.read.distribution, self.read.schema)

    # --- rates --------------------------------------------------------------------------------------------------------

    def _sampled(self, parts: Sequence[ColumnPart], most: int) -> tuple[Mapping[str, float], float]:
        """The expected number of events of each candidate, and the share of rows that any variable can bind. A sample
        has at most so many rows of a part."""
        plan, total = self.prepared.plan, sum(part.rows for part in parts)
        mean = max(total // max(len(parts), 1), 1)
        count = max(min(_SAMPLED_PARTS, _SAMPLED_ROWS // mean, len(parts)), 1)
        chosen = [parts[int(at)] for at in np.linspace(0, len(parts) - 1, count + 2)[1:-1]] if len(parts) > 2 else parts
        rows, passed = 0, 0
        footers: Footers = {}
        counts = dict.fromkeys(self.candidates, 0)
        for part in chosen:
            known = self.read.tested(part, footers, most)
            mask = masks(plan, known, TYPE)
            rows += known.num_rows
            passed += int(np.count_nonzero(mask & _bits(self.prepared, None)))
            for var in counts:
                counts[var] += int(np.count_nonzero(mask & _bits(self.prepared, var)))
        scale = total / max(rows, 1)
        return {var: max(found, _UNSEEN) * scale for var, found in counts.items()}, passed / max(rows, 1)

    # --- steps --------------------------------------------------------------------------------------------------------

    def _walk(
        self, parts: Sequence[ColumnPart], shape: TableShape, counts: Mapping[str, float], first: str
    ) -> FileSteps | str:
        events, read = self._collected(first, parts, None)
        if events is not None and events.num_rows > MOST_EVENTS:
            return f"`{first}` has {events.num_rows:,} events, more than the driver collects"
        known = {first: events}
        starts, ends, keys = self._times(events)
        within = Nearby.of(starts - self.window, ends + self.window, keys)
        taken = [Step(first, counts[first], len(ends), len(ends), read)]
        while True:
            left, expected, cost = self._left(parts, shape, within)
            following = self._next(shape, counts, known, expected, cost, within)
            if following is None:
                break
            events, read = self._collected(following, left, within)
            known[following] = events
            has_matches = all(var in self._single for var in known)
            windows = self._partial(known) if has_matches else self._together(known)
            within = Nearby.of(*windows)
            near = counts[following] * min(expected.moved / max(shape.rows * shape.passing, 1), 1.0)
            count = 0 if events is None else events.num_rows
            taken.append(Step(following, near, count, len(windows.begins), read, has_matches))
        if not self.forced and cost > WORTHWHILE * shape.scan:
            covered = expected.moved / max(shape.rows * shape.passing, 1)
            return f"the rows around the {taken[0].events:,} events of `{first}` are {covered:.0%} of all"
        whole = ReadCounts(shape.groups, shape.groups, shape.rows, int(shape.rows * shape.passing))
        gain = shape.scan / max(cost + shape.survey(taken[0].events), 1.0)
        return FileSteps(tuple(taken), within, self.key, tuple(left), expected, whole, gain)

    def _left(
        self, parts: Sequence[ColumnPart], shape: TableShape, within: Nearby
    ) -> tuple[list[ColumnPart], ReadCounts, float]:
        """The parts whose times may fit, what is expected to be read of them, and its cost."""
        left = [part for part in parts if part.times is None or within.meets(*part.times)]
        decoded = sum(part.rows for part in left)
        moved = 0.0
        for part in left:
            first, last = part.times or (0, -1)
            moved += part.rows * (min(within.within(first, last) / (last - first + 1), 1.0) if first <= last else 1.0)
        moved *= shape.passing * within.share
        expected = ReadCounts(len(left), len(left), decoded, round(moved))
        return left, expected, shape.rest(decoded, moved)

    def _next(
        self,
        shape: TableShape,
        counts: Mapping[str, float],
        known: Mapping[str, pa.Table | None],
        expected: ReadCounts,
        cost: float,
        within: Nearby,
    ) -> str | None:
        """The next variable whose events are worth a step of their own: they are missing near many partial matches."""
        if not expected.groups or any(table is None for table in known.values()):
            return None
        others = [var for var in counts if var not in known]
        if not others:
            return None
        following = min(others, key=lambda var: counts[var])
        rate = counts[following] / max(shape.ticks, 1)
        missing = math.exp(-2 * rate * self.window * within.share)
        near = min(counts[following], expected.moved)
        price = JOB + 2 * VALUE * expected.rows + COLLECTED * near
        return following if near <= MOST_EVENTS and missing * cost > price else None

    @property
    def _single(self) -> list[str]:
        """The candidates of which a match binds one event, at the top of the pattern."""
        pattern = self.prepared.written.pattern
        items = pattern.items if isinstance(pattern, Seq | Conj) else ()
        return [item.var for item in items if isinstance(item, EventClass) and item.var in self.candidates]

    def _collected(
        self, var: str, parts: Sequence[ColumnPart], within: Nearby | None
    ) -> tuple[pa.Table | None, ReadCounts]:
        """The events of a variable, with the columns that partial matches read."""
        plan, query = self.prepared.plan, self.prepared.written
        own = replace(plan, bits=tuple(bit for bit in plan.bits if bit.var == var))
        tested = [*attributes_in(query.where), *partition_attributes(query), *([self.key] if self.key else [])]
        names = columns_read([*self.read.columns.times, *tested], self.read.schema)
        read = replace(self.read, plan=own, names=tuple(names), masked=False, by_type=True, within=within)
        files = replace(self.files, parts=tuple(parts))
        return self.collect(replace(read, near_key=self.key, shares=tuple(files.shares(len(self.read.shares)))))

    # --- partial matches ----------------------------------------------------------------------------------------------

    def _times(self, events: pa.Table | None) -> Windows:
        """The starts, the ends and the keys of events."""
        if events is None:
            return NOWHERE
        batch, columns = events.combine_chunks().to_batches()[0], self.read.columns
        times = ticks_of(batch.column(columns.time), columns.time)
        starts = starts_of(batch, columns, times)
        keys = None if self.key is None else batch.column(self.key)
        return Windows(times if starts is None else starts, times, keys)

    def _together(self, known: Mapping[str, pa.Table | None]) -> Windows:
        """The time in which all known variables have events within a window. The next event of an instance of EQL
        depends on those between, so that parts of its patterns have no matches of their own."""
        return around([self._times(events) for events in known.values()], self.window)

    def _partial(self, known: Mapping[str, pa.Table | None]) -> Windows:
        """The time that the rest of each partial match can lie in: a window around every event of it."""
        tables = [table for table in known.values() if table is not None]
        if len(tables) < len(known):
            return NOWHERE
        whole = pa.concat_tables(tables)
        columns = replace(self.read.columns, type=KIND, event_type=None)
        shape = self.prepared.input
        asked = Asked(whole.schema, columns, shape.attributes or {}, self.prepared.clock.unit)
        query = self.prepared.written
        pattern = query.pattern
        assert isinstance(pattern, Seq | Conj)
        indices = [i for i, item in enumerate(pattern.items) if isinstance(item, EventClass) and item.var in known]
        partial = replace(
            partial_query(QueryPart(query, pattern), indices),
            strategy=Strategy.ANY_MATCH,
            non_overlapping=False,
            limit=None,
        )
        prepared = prepare(partial, asked, RunOptions(time_unit=self.prepared.clock.unit))
        source = asked.table(whole)
        begins, ends, keys = [NOWHERE.begins], [NOWHERE.ends], []
        for matches, rows in run_matches(prepared, source):
            latest, earliest = [], []
            for column in matches.variables.values():
                positions = np.asarray(column, np.int64)
                end = rows.ticks(positions)
                start = rows.starts(positions)
                latest.append(end if start is None else start)
                earliest.append(end)
            begins.append(np.max(latest, axis=0) - self.window)
            ends.append(np.min(earliest, axis=0) + self.window)
            if self.key is not None:
                at = next(iter(matches.variables.values()))
                keys.append(source.rows([self.key]).take([self.key], at).column(0))
        found = pa.concat_arrays(keys) if keys else None
        return Windows(np.concatenate(begins), np.concatenate(ends), found)


def shared_key(divided: Distribution, schema: pa.Schema) -> str | None:
    """A column whose value all events of a match share, and all that a negation excludes; None if there is none."""
    if not isinstance(divided, Keyed) or divided.nulls_match:
        return None
    names = [name for name in divided.attributes if name in schema.names and is_key(schema.field(name).type)]
    return names[0] if names else None


def _bits(prepared: Prepared, var: str | None) -> np.uint64:
    """The bits of the mask that stand for a variable, or for any."""
    bits = enumerate(prepared.plan.bits)
    return np.uint64(sum(1 << i for i, bit in bits if bit.var and var in (None, bit.var)))
