"""Sets of points in time: closed intervals of whole ticks, in order, none of which touch.

>>> IntervalSet.of([(5, 7), (1, 3), (4, 4)])
IntervalSet(((1, 7),))
>>> IntervalSet(((1, 9),)) - IntervalSet(((3, 4),))
IntervalSet(((1, 2), (5, 9)))
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.int64]
Interval = tuple[int, int]

BEGINNING, END = -(2**62), 2**62
"""Before and after all times."""


@dataclass(frozen=True, slots=True)
class IntervalSet:
    """Disjoint closed intervals, in order. Two that touch are one."""

    intervals: tuple[Interval, ...] = ()

    @classmethod
    def of(cls, intervals: Iterable[Interval]) -> IntervalSet:
        """The union of intervals in any order. One that ends before it begins is empty."""
        merged: list[list[int]] = []
        for begin, end in sorted(intervals):
            if end < begin:
                continue
            if merged and begin <= merged[-1][1] + 1:
                merged[-1][1] = max(merged[-1][1], end)
            else:
                merged.append([begin, end])
        return cls(tuple((begin, end) for begin, end in merged))

    @classmethod
    def of_arrays(cls, begins: Numbers, ends: Numbers) -> IntervalSet:
        """The union of many intervals."""
        filled = begins <= ends
        begins, ends = begins[filled], ends[filled]
        if not len(begins):
            return cls()
        order = np.argsort(begins, kind="stable")
        begins, reached = begins[order], np.maximum.accumulate(ends[order])
        is_first = np.ones(len(begins), bool)
        is_first[1:] = begins[1:] > reached[:-1] + 1
        is_last = np.append(is_first[1:], True)
        return cls(tuple(zip(begins[is_first].tolist(), reached[is_last].tolist(), strict=True)))

    def holds(self, times: Numbers) -> npt.NDArray[np.bool_]:
        """Whether each time is in the set."""
        if not self.intervals:
            return np.zeros(len(times), bool)
        begins, ends = np.array(self.intervals, np.int64).T
        index = np.searchsorted(begins, times, "right") - 1
        held: npt.NDArray[np.bool_] = (index >= 0) & (times <= ends[np.maximum(index, 0)])
        return held

    def __bool__(self) -> bool:
        return bool(self.intervals)

    def __or__(self, other: IntervalSet) -> IntervalSet:
        if not other.intervals or not self.intervals:
            return self if not other.intervals else other
        few, many = sorted((self.intervals, other.intervals), key=len)
        if len(few) > _FEW:
            return IntervalSet.of((*few, *many))
        for begin, end in few:
            first, last = _touching(many, begin - 1, end + 1)
            if first < last:
                begin, end = min(begin, many[first][0]), max(end, many[last - 1][1])
            many = (*many[:first], (begin, end), *many[last:])
        return IntervalSet(many)

    def __and__(self, other: IntervalSet) -> IntervalSet:
        found: list[Interval] = []
        mine, theirs = iter(self.intervals), iter(other.intervals)
        a, b = next(mine, None), next(theirs, None)
        while a is not None and b is not None:
            begin, end = max(a[0], b[0]), min(a[1], b[1])
            if begin <= end:
                found.append((begin, end))
            if a[1] < b[1]:
                a = next(mine, None)
            else:
                b = next(theirs, None)
        return IntervalSet(tuple(found))

    def __sub__(self, other: IntervalSet) -> IntervalSet:
        if 0 < len(self.intervals) <= _FEW:
            begin, end = self.intervals[0][0], self.intervals[-1][1]
            first, last = _touching(other.intervals, begin, end)
            other = IntervalSet(other.intervals[first:last])
        return self & other.complement() if other.intervals else self

    def complement(self) -> IntervalSet:
        found: list[Interval] = []
        begin = BEGINNING
        for first, last in self.intervals:
            if begin < first:
                found.append((begin, first - 1))
            begin = last + 1
        if begin <= END:
            found.append((begin, END))
        return IntervalSet(tuple(found))

    def contains(self, time: int) -> bool:
        index = bisect_left(self.intervals, (time + 1,)) - 1
        return index >= 0 and time <= self.intervals[index][1]

    def extended(self, before: int = 0, after: int = 0) -> IntervalSet:
        """Each interval with this much time before and after it."""
        return IntervalSet.of((max(begin - before, BEGINNING), min(end + after, END)) for begin, end in self.intervals)

    def from_time(self, time: int) -> IntervalSet:
        """Without the points before a time."""
        return self & IntervalSet(((time, END),))

    @property
    def first(self) -> int:
        """The first point, or the end of time."""
        return self.intervals[0][0] if self.intervals else END

    @property
    def length(self) -> int:
        return sum(end - begin + 1 for begin, end in self.intervals)


_FEW = 4
"""So many intervals are found one by one in a large set."""


def _touching(intervals: tuple[Interval, ...], begin: int, end: int) -> tuple[int, int]:
    """The range of the intervals that have a point in [begin, end]."""
    first = bisect_left(intervals, begin, key=lambda interval: interval[1])
    return first, bisect_left(intervals, end + 1, lo=first, key=lambda interval: interval[0])


NEVER = IntervalSet()
ALWAYS = IntervalSet(((BEGINNING, END),))
