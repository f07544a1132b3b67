"""Derives events about many events: a count or a sum over the last while that passes a threshold (CED §6.5).

The matches of the query that binds single events come in order of time. At each time at which events of a group end,
the events of the group in the window are counted or summed. An event stays in the state until no later window reaches
it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import reduce
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cepheid.binding import BASE_SCHEMA, value_type
from cepheid.engine.composition import Attribute
from cepheid.engine.layout import INTERVAL
from cepheid.events import HISTORY, Clock
from cepheid.expr import Attr
from cepheid.io.rows import START, TIME
from cepheid.pattern import VALUE, Column, Query, Threshold
from cepheid.runtime.jit import WORTH_COMPILING, entry, machine_code
from cepheid.runtime.kernel import END_OF_TIME, Array
from cepheid.types import Family, Type
from cepheid.values import HIGHEST, LOWEST, exact_sum

_OF = "\ue000of"
"""The attribute that is counted or summed."""


class Counting(NamedTuple):
    """How a node counts or sums the events of its query."""

    threshold: Threshold
    window: int
    group: tuple[str, ...]
    """The attributes by which events are grouped."""
    read: tuple[str, ...]
    """The attributes of single events that it reads."""
    sums: Type | None
    """The type of a sum; None: it counts."""

    @classmethod
    def of(cls, query: Query, clock: Clock) -> Counting:
        threshold = query.threshold
        assert threshold is not None
        group = tuple(column.name for column in query.output or ())
        read = (*group, *([] if threshold.of is None else [_OF]))
        window = math.floor(clock.ticks(threshold.window))
        return cls(threshold, window, group, read, value_type(threshold) if threshold.fn == "sum" else None)

    def attributes(self, of_events: Sequence[Attribute]) -> tuple[Attribute, ...]:
        """The attributes of the events that it derives, from those of single events."""
        known = {one.name: one for one in of_events}
        kind = pa.int64() if self.sums is None or self.sums.family is not Family.FLOAT else pa.float64()
        value = Attribute(VALUE, Attr("", VALUE), value_type(self.threshold), kind)
        base = {name: replace(known[name], expr=None, key=None) for name in BASE_SCHEMA}
        return tuple({**base, **{name: known[name] for name in self.group}, VALUE: value}.values())


def single_events(query: Query) -> Query:
    """The query of the single events that are counted."""
    threshold = query.threshold
    assert threshold is not None
    of = () if threshold.of is None else (Column(_OF, threshold.of),)
    return replace(query, threshold=None, output=(*(query.output or ()), *of))


class Step(NamedTuple):
    """The events that were derived, and the single events that later windows reach."""

    derived: pa.RecordBatch | None
    held: pa.RecordBatch | None


def step(counting: Counting, wanted: Sequence[str], arrival: str, rows: pa.RecordBatch, before: int, now: int) -> Step:
    """Derives the events that end from `before` on and before `now`. `rows` are the single events that the windows
    reach; `wanted` are the columns of the result, `arrival` is the one with the positions in the input."""
    times = np.asarray(rows.column(TIME), np.int64)
    groups = _codes(rows, counting.group)
    order = np.lexsort((np.asarray(rows.column(arrival)), times, groups))
    order = order[(groups[order] >= 0) & (times[order] < now)]
    at, group = times[order], groups[order]
    is_last = np.ones(len(at), bool)
    is_last[:-1] = (at[1:] != at[:-1]) | (group[1:] != group[:-1])
    last = np.flatnonzero(is_last & (at >= before))
    first = _first(at, group, last, counting.window)
    values, holds = _values(counting, rows, order, first, last)
    first, last = first[holds], last[holds]
    derived = None
    if len(last):
        starts = at[first] if START not in rows.schema.names else _earliest(rows, order, first, last)
        found = _Found(starts, at[last], pa.array(order[last]), values)
        derived = _batch(counting, wanted, arrival, rows, found)
    if now >= END_OF_TIME:
        return Step(derived, None)
    is_held = (times >= now - counting.window) & (groups >= 0)
    return Step(derived, rows if is_held.all() else rows.filter(pa.array(is_held)))


class _Found(NamedTuple):
    starts: Array
    ends: Array
    rows: pa.Array
    """The last event of each."""
    values: pa.Array


def _batch(
    counting: Counting, wanted: Sequence[str], arrival: str, rows: pa.RecordBatch, found: _Found
) -> pa.RecordBatch:
    made = {TIME: pa.array(found.ends), START: pa.array(found.starts)}
    made[arrival] = rows.column(arrival).take(found.rows)
    for name in wanted:
        if name in counting.group:
            made[name] = rows.column(name).take(found.rows)
        elif name == VALUE:
            made[name] = found.values
        elif name in INTERVAL:
            made[name] = made[START] if name == INTERVAL[0] else made[TIME]
        elif name == HISTORY:
            pairs = zip(found.starts.tolist(), found.ends.tolist(), strict=True)
            made[name] = pa.array([sorted({start, end}) for start, end in pairs], pa.list_(pa.int64()))
        else:
            made[name] = pa.nulls(len(found.ends))
    order = np.lexsort((np.asarray(made[arrival]), found.ends))
    return pa.RecordBatch.from_arrays(list(made.values()), names=list(made)).take(pa.array(order))


def _first(at: Array, group: Array, last: Array, window: int) -> Array:
    """The first event of the group in the window of each event `last`."""
    times = np.unique(at)
    keys = group * (len(times) + 1) + np.searchsorted(times, at)
    low = np.searchsorted(times, np.maximum(at[last], np.iinfo(np.int64).min + window) - window)
    found: Array = np.searchsorted(keys, group[last] * (len(times) + 1) + low)
    return found


def _earliest(rows: pa.RecordBatch, order: Array, first: Array, last: Array) -> Array:
    starts = np.asarray(rows.column(START), np.int64)[order]
    return np.array([starts[low : high + 1].min() for low, high in zip(first, last, strict=True)], np.int64)


# --- values -----------------------------------------------------------------------------------------------------------


def _values(
    counting: Counting, rows: pa.RecordBatch, order: Array, first: Array, last: Array
) -> tuple[pa.Array, Array]:
    """The count or sum of each window that passes the threshold, and which do."""
    threshold = counting.threshold
    if counting.sums is not None:
        column = rows.column(_OF).take(pa.array(order))
        return _sums(threshold, column, first, last, counting.sums.family is Family.FLOAT)
    if threshold.of is None:
        counts = last + 1 - first
    elif threshold.is_distinct:
        codes = _codes(rows, (_OF,))[order]
        count = machine_code(distinct_in_windows) if len(codes) >= WORTH_COMPILING else distinct_in_windows
        counts = count(codes, first, last, np.zeros(int(codes.max(initial=0)) + 1, np.int64))
    else:
        present = np.concatenate([[0], np.cumsum(_codes(rows, (_OF,))[order] >= 0)])
        counts = present[last + 1] - present[first]
    holds = _compare(threshold.op, counts, threshold.limit)
    return pa.array(counts[holds], pa.int64()), holds


def _sums(threshold: Threshold, column: pa.Array, first: Array, last: Array, is_float: bool) -> tuple[pa.Array, Array]:
    if is_float:
        column = pc.if_else(pc.is_nan(column), None, column)
    is_there = np.asarray(column.is_valid())
    if not is_float:
        numbers = np.asarray(column.fill_null(0), np.int64)
        if not len(numbers) or _is_small(numbers):
            sums = np.concatenate([[0], np.cumsum(numbers)])
            there = np.concatenate([[0], np.cumsum(is_there)])
            found = sums[last + 1] - sums[first]
            holds = _compare(threshold.op, found, threshold.limit) & (there[last + 1] > there[first])
            return pa.array(found[holds], pa.int64()), holds
    values, kept = [], np.zeros(len(last), bool)
    listed = column.to_pylist()
    compare = _OPERATORS[threshold.op]
    for number, (low, high) in enumerate(zip(first.tolist(), last.tolist(), strict=True)):
        total = exact_sum([value for value in listed[low : high + 1] if value is not None])
        if total is not None and compare(total, threshold.limit):
            kept[number] = True
            values.append(total)
    return pa.array(values, pa.float64() if is_float else pa.int64()), kept


def _is_small(numbers: Array) -> bool:
    """Whether no sum of them overflows."""
    return max(abs(int(numbers.min())), abs(int(numbers.max()))) * len(numbers) <= HIGHEST


_OPERATORS: Mapping[str, Callable[..., bool]] = {
    "=": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}


def _compare(op: str, values: Array, limit: int | float) -> Array:
    """The comparison of integers with a number, by value."""
    if math.isinf(limit) or not LOWEST <= limit <= HIGHEST:
        found: Array = np.full(len(values), _OPERATORS[op](0, limit))
        return found
    exact = Fraction(limit)
    whole = math.floor(exact)
    if whole == exact:
        is_fitting: Array = np.asarray(_OPERATORS[op](values, whole))
        return is_fitting
    if op in ("=", "!="):
        return np.full(len(values), op == "!=")
    return np.asarray(values > whole if op in (">", ">=") else values <= whole)


@entry
def distinct_in_windows(codes: np.ndarray, first: np.ndarray, last: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """The number of different codes, of those that are not negative, from each `first` to its `last`, which both do not
    decrease."""
    found = np.empty(len(last), np.int64)
    low, high, distinct = 0, 0, 0
    for i in range(len(last)):
        while high <= last[i]:
            if codes[high] >= 0:
                if counts[codes[high]] == 0:
                    distinct += 1
                counts[codes[high]] += 1
            high += 1
        while low < first[i]:
            if codes[low] >= 0:
                counts[codes[low]] -= 1
                if counts[codes[low]] == 0:
                    distinct -= 1
            low += 1
        found[i] = distinct
    return found


def _codes(rows: pa.RecordBatch, names: Sequence[str]) -> Array:
    """A number for each combination of values; -1 if one is null."""
    codes = [_column_codes(rows.column(name)) for name in names]
    if not codes:
        return np.zeros(rows.num_rows, np.int64)
    return reduce(_paired, codes)


def _paired(one: Array, other: Array) -> Array:
    joined = one * (int(other.max(initial=0)) + 1) + other
    _, found = np.unique(joined, return_inverse=True)
    return np.where((one < 0) | (other < 0), -1, found)


def _column_codes(column: pa.Array) -> Array:
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_floating(column.type):
        column = pc.add(pc.if_else(pc.is_nan(column), None, column), 0.0)  # -0.0 equals 0.0
    encoded = column.dictionary_encode(null_encoding="mask")
    found: Array = np.asarray(encoded.indices.fill_null(-1), np.int64)
    return found
