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

from cepheid.acquire.intervals import IntervalSet
from cepheid.dialect import Windows
from cepheid.engine.prepare import Prepared
from cepheid.optimize.stats import NO_STATS
from cepheid.pattern import always_bound
from cepheid.physical import REFERENCE
from cepheid.spark.catalyst import EventColumns, column, ticks, whole_part
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
    """The intervals around the events of a variable."""

    var: str
    events: int
    within: IntervalSet

    def filtered(self, frame: DataFrame, time: Column) -> DataFrame:
        """The rows that may be in an interval."""
        intervals = self.within.intervals
        if len(intervals) <= _IN_CONDITION:
            tests = [(time >= F.lit(begin)) & (time <= F.lit(end)) for begin, end in intervals]
            return frame.filter(reduce(or_, tests, F.lit(False)))
        width = max(self.within.length // len(intervals), 1)
        origin = intervals[0][0]
        begins, ends = (np.array(intervals, np.int64).T - origin) // width
        numbers = np.unique(np.concatenate([np.arange(b, e + 1) for b, e in zip(begins, ends, strict=True)]))
        wanted = frame.sparkSession.createDataFrame([(int(number),) for number in numbers], f"`{_NUMBER}` long")
        number = whole_part(time - F.lit(origin), width)
        return frame.join(F.broadcast(wanted), number == column(_NUMBER), "left_semi")


def why_not(prepared: Prepared, source: SparkSource) -> str | None:
    """Why a query cannot run in steps; None if it can."""
    plan, query = prepared.plan, prepared.query
    if plan.evaluator == REFERENCE:
        return "the reference evaluator reads all events"
    if prepared.graph is not None:
        return "other queries feed it"
    if plan.window is None or plan.counts_events or query.dialect.windows is Windows.CONDITION:
        return "it has no window of time"
    if query.non_overlapping:
        return "NON-OVERLAPPING depends on matches that are far away"
    if source.local is not None:
        return "its rows are read one by one"
    if not candidates(prepared):
        return "no event type is part of every match"
    return None


def candidates(prepared: Prepared) -> list[str]:
    """The variables with event types that every match binds."""
    roles = prepared.query.roles
    return [var for var in always_bound(prepared.query.pattern) if roles[var].event_class.types]


def is_wanted(prepared: Prepared, source: SparkSource) -> bool:
    """Whether a query runs in steps: by its option, or if known rates make it cheaper than one scan."""
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
    events = source.frame.filter(source.reject_reason.isNull())
    names = list(conditions)
    counts = events.agg(*(F.count_if(conditions[var]).alias(f"c{i}") for i, var in enumerate(names))).first()
    assert counts is not None
    count, var = min((counts[i], var) for i, var in enumerate(names))
    if count > MOST_EVENTS:
        return None
    time = ticks(column(source.columns.time), source.time_type).cast("long").alias("time")
    times = np.asarray(events.filter(conditions[var]).select(time).toArrow().column("time"), np.int64)
    length = math.ceil(plan.window or 0)
    starts = times
    if source.columns.start is not None:
        start = ticks(column(source.columns.start), source.frame.schema[source.columns.start].dataType)
        began = events.filter(conditions[var]).select(start.cast("long").alias("time")).toArrow()
        starts = np.minimum(times, np.asarray(began.column("time"), np.int64))
    return Steps(var, int(count), IntervalSet.of_arrays(starts - length, times + length))
