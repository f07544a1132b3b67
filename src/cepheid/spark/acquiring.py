"""A query over tables in steps: the rarest of its events first, then only the rows around them.

A match contains an event of every variable that all matches bind, and lies within a window of it, with all that must
not occur. So the rows outside of the intervals around the rarest such event cannot matter, in any language whose
queries have windows of time. Rows that are left are evaluated as always.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import reduce
from operator import or_

import numpy as np
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cepheid.acquire.nearby import Nearby
from cepheid.engine.prepare import Prepared
from cepheid.engine.spread import spread
from cepheid.optimize.stats import NO_STATS
from cepheid.pattern import Filtered, Iteration, Next, Pattern, Timer, Unless, always_bound
from cepheid.physical import REFERENCE
from cepheid.spark.catalyst import EventColumns, column, ticks, whole_part
from cepheid.spark.file_steps import FileSteps, Step, shared_key
from cepheid.spark.reading import ReadCounts, read_text
from cepheid.spark.source import SparkSource

OPTION = "acquire"
STEPS, SCAN = "steps", "scan"
_NUMBER = "\ue000number"
MOST_EVENTS = 5_000_000
"""The driver collects the times of at most so many events."""
WORTHWHILE = 0.25
"""One scan is expected to cost less if the intervals cover more than this share of the time."""
_IN_CONDITION = 200
"""So many intervals are a condition, which reaches the statistics of files; more are joined."""


@dataclass(frozen=True, slots=True)
class Steps:
    """The events that were read first, and the rows that are left to read."""

    taken: tuple[Step, ...]
    within: Nearby
    key: str | None = None
    files: FileSteps | None = None
    """Of stored files: the row groups that are left."""

    def filtered(self, frame: DataFrame, time: Column) -> DataFrame:
        """The rows that may be in an interval."""
        begins, ends = self.within.times.begins, self.within.times.ends
        if len(begins) <= _IN_CONDITION:
            pairs = zip(begins.tolist(), ends.tolist(), strict=True)
            tests = [(time >= F.lit(begin)) & (time <= F.lit(end)) for begin, end in pairs]
            frame = frame.filter(reduce(or_, tests, F.lit(False)))
        else:
            width = max(self.within.length // len(begins), 1)
            origin = int(begins[0])
            firsts, lasts = (begins - origin) // width, (ends - origin) // width
            numbers = np.unique(np.concatenate([np.arange(b, e + 1) for b, e in zip(firsts, lasts, strict=True)]))
            wanted = frame.sparkSession.createDataFrame([(int(number),) for number in numbers], f"`{_NUMBER}` long")
            number = whole_part(time - F.lit(origin), width)
            frame = frame.join(F.broadcast(wanted), number == column(_NUMBER), "left_semi")
        keys = self.within.keys
        if self.key is not None and keys is not None and len(keys) <= _IN_CONDITION:
            frame = frame.filter(column(self.key).isin(*keys.to_pylist()))
        return frame

    def notes(self) -> list[str]:
        """What was read first, and what is left, with what was expected."""
        first, *others = self.taken
        expected = "" if first.expected is None else f" (about {first.expected:,.0f} expected)"
        found = [f"in steps: the {first.events:,} events of `{first.var}` first{expected}{_read_note(first.read)}"]
        for step in others:
            found.append(
                f"  then {step.events:,} events of `{step.var}` near them (about {step.expected:,.0f} expected), "
                f"{step.left:,} {'partial matches' if step.are_matches else 'intervals with all of these'}"
                f"{_read_note(step.read)}"
            )
        keys = "" if self.within.keyed is None else f" of {len(self.within.keys or ()):,} keys"
        found.append(f"  then the rows in the {self.within.count:,} intervals around them{keys}")
        if self.files is not None:
            left, of = self.files.expected, self.files.of
            found.append(f"  {read_text('expected', left)}")
            found.append(f"  {read_text('one scan', of)}, {self.files.gain:.1f} times the cost")
        return found


def _read_note(read: ReadCounts | None) -> str:
    if read is None:
        return ""
    return f", from {read.groups:,} row groups, {read.decoded:,} of them in other columns than type and time"


def why_not(prepared: Prepared, source: SparkSource) -> str | None:
    """Why a query cannot run in steps; None if it can."""
    plan, query = prepared.plan, prepared.query
    if plan.evaluator == REFERENCE:
        return "the reference evaluator reads all events"
    if prepared.graph is not None:
        return "other queries feed it"
    if plan.window is None or plan.counts_events:
        return "it has no window of time"
    if query.non_overlapping:
        return "NON-OVERLAPPING depends on matches that are far away"
    if source.local is not None and source.files is None:
        return "its rows are read one by one"
    if not candidates(prepared):
        return "no event type is part of every match"
    return None


def candidates(prepared: Prepared) -> list[str]:
    """The variables with event types that every match binds."""
    roles = prepared.query.roles
    return [var for var in _certain(prepared.query.pattern) if roles[var].event_class.types]


def _certain(pattern: Pattern) -> list[str]:
    """The variables that every match binds, also of EQL's core operators."""
    match pattern:
        case Next():
            return [*_certain(pattern.left), *_certain(pattern.right)]
        case Filtered() | Timer() | Unless() | Iteration():
            return _certain(pattern.item)
        case _:
            return always_bound(pattern)


def is_wanted(prepared: Prepared, source: SparkSource) -> bool:
    """Whether a query over a DataFrame runs in steps: by its option, or if known rates promise that it costs less."""
    option = prepared.plan.options.get(OPTION)
    if option is not None or why_not(prepared, source) is not None:
        return option == STEPS and why_not(prepared, source) is None
    rates = [rate for var in candidates(prepared) if (rate := _rate(prepared, var)) is not None]
    if prepared.stats == NO_STATS or not rates:
        return False
    return -math.expm1(-2 * math.ceil(prepared.plan.window or 0) * min(rates)) < WORTHWHILE


def _rate(prepared: Prepared, var: str) -> float | None:
    """Events per tick that pass the tests of a variable, if it is known."""
    rate = prepared.stats.rates.get(var)
    return None if rate is None else rate * prepared.stats.passing.get(var, 1.0)


def steps_of(prepared: Prepared, source: SparkSource) -> Steps | None:
    """The intervals around the rarest event: one job counts the candidates, another collects their times. None if
    there are too many of them."""
    plan, read = prepared.plan, EventColumns(source.frame.schema, source.type_column, prepared.plan.lacks)
    conditions: dict[str, Column] = {}
    for var in candidates(prepared):
        bits = tuple(bit for bit in plan.bits if bit.var == var)
        matters = read.matters(replace(plan, bits=bits)) if bits else None
        if matters is not None:
            conditions[var] = matters
    if not conditions:
        return None
    events = source.frame.filter(source.is_event)
    names = list(conditions)
    counts = events.agg(*(F.count_if(conditions[var]).alias(f"c{i}") for i, var in enumerate(names))).first()
    assert counts is not None
    count, var = min((counts[i], var) for i, var in enumerate(names))
    if count > MOST_EVENTS:
        return None
    key = shared_key(spread(prepared), source.schema)
    wanted = [ticks(column(source.columns.time), source.time_type).cast("long").alias("c0")]
    if source.columns.start is not None:
        start = ticks(column(source.columns.start), source.frame.schema[source.columns.start].dataType)
        wanted.append(start.cast("long").alias("c1"))
    if key is not None:
        wanted.append(column(key).alias("c2"))
    found = events.filter(conditions[var]).select(*wanted).toArrow()
    times = np.asarray(found.column("c0"), np.int64)
    starts = times if source.columns.start is None else np.minimum(times, np.asarray(found.column("c1"), np.int64))
    keys = None if key is None else found.column("c2").combine_chunks()
    length = math.ceil(plan.window or 0)
    within = Nearby.of(starts - length, times + length, keys)
    return Steps((Step(var, None, int(count), int(count)),), within, key)
