"""Aggregates over the events of each match, and over all matches, from columns of values.

The definitions are in `expr.AGGREGATES`. Nulls do not count. Integers and decimals are summed exactly.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cepheid import types
from cepheid.codegen.typed_columns import HIGHEST, LOWEST, NULL, TEXTS, Column, both, floats, from_arrow
from cepheid.codegen.vector import as_float
from cepheid.runtime.kernel import Array
from cepheid.types import Family, Type


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


def selected(fn: str, array: pa.Array, lengths: Array) -> pa.Array:
    """`min`, `max`, `first` or `last`: one of the values of each group, null for a group without values."""
    groups = Groups.of(array, lengths)
    rows = np.zeros(len(lengths), np.int64)
    if groups.filled.any():
        rows[groups.filled] = groups.rows[_selected(fn, groups)]
    return array.take(pa.array(rows, mask=~groups.filled))


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
    """The sum of each group; null for a group without values, and where it does not fit into 64 bits or 18 digits."""
    groups = Groups.of(array, lengths)
    if groups.column is NULL:
        return NULL
    if groups.column.type.family is Family.FLOAT:
        return floats(_sums_in_order(groups), groups.filled)
    sums, fits = _exact_sums(groups)
    type_ = _sum_type(groups.column.type)
    most = 10**type_.precision if type_.family is Family.DECIMAL else HIGHEST + 1
    least = 1 - most if type_.family is Family.DECIMAL else LOWEST
    if sums.dtype == object:
        fits = fits & (sums < most) & (sums >= least)
        sums = sums if most > HIGHEST + 1 else np.where(fits, sums, 0).astype(np.int64)
    elif type_.family is Family.DECIMAL:
        fits = fits & (sums < most) & (sums >= least)
    return Column(type_, sums, both(groups.filled, fits.astype(bool)))


def _sum_type(type_: Type) -> Type:
    if type_.family is Family.DECIMAL:
        return types.decimal(types.SHORT_DIGITS if type_.is_short else types.LONG_DIGITS, type_.scale)
    return type_ if type_.family is Family.DURATION else types.INTEGER


def averaged(array: pa.Array, lengths: Array) -> Column:
    """The sum of each group as a float, divided by the number of values."""
    groups = Groups.of(array, lengths)
    if groups.column is NULL:
        return NULL
    counts = np.maximum(groups.lengths, 1)
    if groups.column.type.family is Family.FLOAT:
        return floats(_sums_in_order(groups) / counts, groups.filled)
    sums, fits = _exact_sums(groups)
    return floats(as_float(Column(groups.column.type, sums)) / counts, both(groups.filled, fits.astype(bool)))


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


def _exact_sums(groups: Groups) -> tuple[Array, Array]:
    """Integers, of any size where 64 bits may not be enough; and the groups that have a sum."""
    values, fits = groups.values, np.ones(len(groups.lengths), bool)
    if groups.column.type.family is Family.UNSIGNED:
        fits = ~_in_groups(np.logical_or, values > np.uint64(HIGHEST), groups, False)
        values = values.astype(np.int64)
    if values.dtype != object:
        estimate = _in_groups(np.add, np.abs(values.astype(np.float64)), groups, 0.0)
        if not (estimate >= 2.0**62).any():
            return _in_groups(np.add, values, groups, 0), fits
        values = values.astype(object)
    return _in_groups(np.add, values, groups, 0), fits


def _in_groups(ufunc: Any, values: Array, groups: Groups, empty: Any) -> Array:
    result = np.full(len(groups.lengths), empty, values.dtype)
    if len(values):
        result[groups.filled] = ufunc.reduceat(values, groups.starts)
    return result
