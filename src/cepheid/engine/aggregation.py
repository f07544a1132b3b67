"""Aggregates over the events of each match, and over all matches, from columns of values.

The definitions are in `expr.AGGREGATES`. Nulls do not count. Integers and decimals are summed exactly. An aggregate
without vectorised code here is computed by its definition.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cepheid import types
from cepheid.codegen.rounding import whole_counts
from cepheid.codegen.typed_columns import HIGHEST, LOWEST, NULL, TEXTS, Column, floats, from_arrow, to_python
from cepheid.codegen.vector import as_float
from cepheid.expr import AGGREGATES, Over, ResultType
from cepheid.inference import sum_type
from cepheid.runtime.kernel import Array
from cepheid.types import Family, Type
from cepheid.values import arithmetic, decimal_of, is_number


@dataclass(frozen=True, slots=True)
class Groups:
    """Values in groups of consecutive rows, without nulls. Groups may be empty."""

    column: Column
    rows: Array
    """The row of each value in the column with nulls."""
    lengths: Array

    @classmethod
    def of(cls, array: pa.Array, lengths: Array) -> Groups:
        column = from_arrow(array)
        if column is NULL:
            return cls(column, np.empty(0, np.int64), np.zeros(len(lengths), np.int64))
        if column.valid is None:
            return cls(column, np.arange(len(array)), lengths)
        valid = np.broadcast_to(column.valid, (len(array),))
        number = np.repeat(np.arange(len(lengths)), lengths)
        return cls(column, valid.nonzero()[0], np.bincount(number[valid], minlength=len(lengths)))

    @property
    def values(self) -> Array:
        """Numbers, or the ranks of strings: they have the order of the values."""
        values = self.column.values
        if self.column.type.family in TEXTS:
            ranks = np.empty(len(values.dictionary), np.int64)
            ranks[np.asarray(pc.array_sort_indices(values.dictionary))] = np.arange(len(ranks))
            values = ranks[values.codes]
        return np.asarray(values[self.rows])

    @property
    def filled(self) -> Array:
        return self.lengths > 0

    @property
    def starts(self) -> Array:
        """The first value of each group that is not empty."""
        ends = np.cumsum(self.lengths)
        return np.asarray((ends - self.lengths)[self.filled])


def aggregated(fn: str, array: pa.Array, lengths: Array) -> Column:
    """An aggregate of each group that is computed from its values."""
    groups = Groups.of(array, lengths)
    is_none = groups.column is NULL
    is_odd = not is_none and groups.column.type.is_unknown and not all(map(is_number, groups.values.tolist()))
    if fn in _COMPUTED and (fn == "count" or not is_odd):
        return _COMPUTED[fn](array, lengths)
    if is_none:
        return NULL
    of, function = groups.column.type, AGGREGATES[fn]
    type_ = types.average(of) if function.averages else sum_type(of, Over.GROUP)
    type_ = types.INTEGER if function.result is ResultType.COUNT else type_
    return from_arrow(pa.array(_by_definition(fn, array, groups), types.to_arrow(type_)))


def _by_definition(fn: str, array: pa.Array, groups: Groups) -> list[Any]:
    function, values = AGGREGATES[fn], [v for v in to_python(groups.column, len(array)) if v is not None]
    ends, type_ = np.cumsum(groups.lengths).tolist(), sum_type(groups.column.type, Over.GROUP)
    of_groups = (values[end - length : end] for end, length in zip(ends, groups.lengths.tolist(), strict=True))
    has_value = function.result is ResultType.COUNT
    return [function.of(group, type_) if group or has_value else None for group in of_groups]


def selected(fn: str, array: pa.Array, lengths: Array) -> pa.Array:
    """`min`, `max`, `first` or `last`: one of the values of each group, null for a group without values."""
    groups = Groups.of(array, lengths)
    if fn not in _SELECTED:
        return pa.array(_by_definition(fn, array, groups), array.type)
    rows = np.zeros(len(lengths), np.int64)
    if groups.filled.any():
        rows[groups.filled] = groups.rows[_selected(fn, groups)]
    chosen = array.take(pa.array(rows, mask=~groups.filled))
    return _with_positive_zeros(chosen) if fn in ("min", "max") else chosen


def _with_positive_zeros(array: pa.Array) -> pa.Array:
    """The floats with 0.0 for -0.0 (`values.positive_zero`); other values unchanged."""
    kind = array.type.value_type if pa.types.is_dictionary(array.type) else array.type
    if not pa.types.is_floating(kind):
        return array
    wide = array.cast(kind).cast(pa.float64())
    return pc.add(wide, 0.0).cast(kind).cast(array.type)


def _selected(fn: str, groups: Groups) -> Array:
    """The index of the selected value of each group that is not empty."""
    starts, lengths = groups.starts, groups.lengths[groups.filled]
    if fn in ("first", "last"):
        return starts if fn == "first" else starts + lengths - 1
    values = groups.values
    best = (np.minimum if fn == "min" else np.maximum).reduceat(values, starts)
    hits = (values == np.repeat(best, lengths)).nonzero()[0]
    return np.asarray(hits[np.searchsorted(hits, starts)])


def counted(array: pa.Array, lengths: Array) -> Column:
    return Column(types.INTEGER, Groups.of(array, lengths).lengths)


def summed(array: pa.Array, lengths: Array) -> Column:
    """The sum of each group; null for a group without values, and once the running sum does not fit its type."""
    groups = Groups.of(array, lengths)
    if groups.column is NULL:
        return NULL
    if groups.column.type.family is Family.FLOAT:
        return floats(_sums_in_order(groups) + 0.0, groups.filled)  # a sum begins with 0.0, so it is never -0.0
    type_ = sum_type(groups.column.type, Over.GROUP)
    exact = values = groups.values
    least, most = (1 - 10**type_.precision, 10**type_.precision - 1) if type_.precision else (LOWEST, HIGHEST)
    if values.dtype == object:
        risky = groups.filled
    else:
        risky = _in_groups(np.add, np.abs(values.astype(np.float64)), groups, 0.0) >= 0.9 * most
        values = values.astype(np.int64)
    sums, valid = _in_groups(np.add, values, groups, 0), groups.filled
    if risky.any():
        sums, valid = sums.copy(), valid.copy()
        ends = np.cumsum(groups.lengths)
        for number in risky.nonzero()[0]:
            group = exact[ends[number] - groups.lengths[number] : ends[number]].tolist()
            running = list(accumulate(group))
            fits = all(least <= partial <= most for partial in (*group, *running))
            valid[number], sums[number] = fits, running[-1] if fits else 0
    return Column(type_, sums, valid)


def averaged(array: pa.Array, lengths: Array) -> Column:
    """The sum of each group as a float, divided by the number of values; of durations, rounded to a microsecond."""
    sums = summed(array, lengths)
    if sums is NULL:
        return NULL
    counts = np.maximum(Groups.of(array, lengths).lengths, 1)
    averages = as_float(sums) / counts
    if sums.type.family is Family.DURATION:
        return Column(sums.type, whole_counts(averages)[0], sums.valid)
    return floats(averages, sums.valid)


_COMPUTED: Mapping[str, Callable[[pa.Array, Array], Column]] = {"sum": summed, "avg": averaged, "count": counted}
_SELECTED = ("min", "max", "first", "last")


def _sums_in_order(groups: Groups) -> Array:
    """Floats are added one after the other, as by the definition: another order gives another sum."""
    sums = np.zeros(len(groups.lengths))
    values, starts, lengths = groups.values, groups.starts, groups.lengths[groups.filled]
    if not len(starts):
        return sums
    longest = int(lengths.max())
    with np.errstate(all="ignore"):
        if longest > len(starts):
            sums[groups.filled] = [np.cumsum(values[a : a + n])[-1] for a, n in zip(starts, lengths, strict=True)]
            return sums
        of_filled = values[starts].copy()
        for number in range(1, longest):
            longer = lengths > number
            of_filled[longer] += values[starts[longer] + number]
    sums[groups.filled] = of_filled
    return sums


def _in_groups(ufunc: Any, values: Array, groups: Groups, empty: Any) -> Array:
    result = np.full(len(groups.lengths), empty, values.dtype)
    if len(values):
        result[groups.filled] = ufunc.reduceat(values, groups.starts)
    return result


Order = list[Any]
"""The place of a match in the order in which matches are detected."""


@dataclass(slots=True)
class Total:
    """An aggregate over the events of all matches, which are added part by part. `chosen` is the value of `min`, `max`,
    `first` or `last`, and for sums any value, which shows their type; `order` is the match of `first` and `last`. Of an
    aggregate that is computed by its definition, `chosen` are all values."""

    fn: str
    count: int = 0
    sum: Any = 0
    chosen: pa.Array | None = None
    order: Order | None = None

    @property
    def type(self) -> Type:
        return types.UNKNOWN if self.chosen is None else from_arrow(self.chosen).type

    def add(self, values: pa.Array) -> None:
        lengths = np.array([len(values)])
        groups = Groups.of(values, lengths)
        if not groups.filled.any():
            return
        self.count += int(groups.lengths[0])
        if self.fn in ("min", "max"):
            self._choose(selected(self.fn, values, lengths))
        elif not self._adds_up:
            self._choose(values.drop_null())
        elif self.fn != "count":
            self.chosen = selected("first", values, lengths) if self.chosen is None else self.chosen
            numbers = groups.values
            if self.type.family is Family.FLOAT:
                self.sum = float(np.cumsum(np.concatenate([[self.sum], numbers]))[-1])
            else:
                self.sum += _exact_sum(numbers)

    def add_in_order(self, value: pa.Array, order: Order) -> None:
        """The value of `first` or `last` in one match, that is the first or last of some."""
        self.count += 1
        if self._precedes(order):
            self.chosen, self.order = value, order

    def merge(self, other: Total) -> None:
        """Adds other matches. Of `first` and `last`, the orders must be comparable."""
        self.count += other.count
        self.sum += other.sum
        if other.chosen is None:
            return
        if self.fn in ("min", "max") or not self._adds_up:
            self._choose(other.chosen)
        elif self.chosen is None or (other.order is not None and self._precedes(other.order)):
            self.chosen, self.order = other.chosen, other.order

    def _precedes(self, order: Order) -> bool:
        """Whether a match of this order has the value of `first` or `last`, instead of the matches so far."""
        return self.order is None or (order < self.order if self.fn == "first" else order > self.order)

    def _choose(self, value: pa.Array) -> None:
        known = value if self.chosen is None else pa.concat_arrays([self.chosen, value])
        self.chosen = selected(self.fn, known, np.array([len(known)])) if self._adds_up else known

    @property
    def _adds_up(self) -> bool:
        """Whether the total of two parts is computed from their totals."""
        return self.fn in _COMPUTED or self.fn in _SELECTED

    def to_data(self) -> dict[str, Any]:
        """The total as JSON."""
        chosen = None if self.chosen is None else base64.b64encode(_one_value(self.chosen)).decode()
        return {"fn": self.fn, "count": self.count, "sum": repr(self.sum), "chosen": chosen, "order": self.order}

    @classmethod
    def of_data(cls, data: Mapping[str, Any]) -> Total:
        number = data["sum"]
        total = int(number) if number.lstrip("-").isdigit() else float(number)
        chosen = None if data["chosen"] is None else _read_value(base64.b64decode(data["chosen"]))
        return cls(data["fn"], data["count"], total, chosen, data["order"])

    def value(self) -> Any:
        """The value as the oracle has it."""
        if self.fn == "count":
            return self.count
        if not self.count:
            return None
        if self.chosen is not None and self.fn in _SELECTED:
            return to_python(from_arrow(self.chosen), 1)[0]
        if self.chosen is not None and not self._adds_up:
            values = to_python(from_arrow(self.chosen), len(self.chosen))
            return AGGREGATES[self.fn].of(values, sum_type(self.type, Over.MATCHES))
        total = decimal_of(self.sum, self.type.scale) if self.type.family is Family.DECIMAL else self.sum
        if self.fn == "avg":
            return arithmetic("/", total, self.count, types.average(self.type))
        is_too_long = self.type.family is Family.DURATION and not LOWEST <= total <= HIGHEST
        return None if is_too_long or (isinstance(total, float) and np.isnan(total)) else total


def _one_value(array: pa.Array) -> bytes:
    """An array of one value, with its type."""
    plain = array.dictionary_decode() if pa.types.is_dictionary(array.type) else array
    batch, buffer = pa.RecordBatch.from_arrays([plain], names=["value"]), io.BytesIO()
    with pa.ipc.new_stream(buffer, batch.schema) as writer:
        writer.write_batch(batch)
    return buffer.getvalue()


def _read_value(data: bytes) -> pa.Array:
    with pa.ipc.open_stream(data) as reader:
        return reader.read_next_batch().column(0)


def _exact_sum(numbers: Array) -> int:
    """The sum of 64-bit integers, of which the halves do not overflow; or of objects."""
    if numbers.dtype == object:
        return sum(numbers.tolist())
    low = numbers & numbers.dtype.type(0xFFFFFFFF)
    return (int((numbers >> numbers.dtype.type(32)).sum()) << 32) + int(low.sum())
