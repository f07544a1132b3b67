"""The rows of a table that can still matter: those in some intervals of time and, where all events of a match share a
key, only those of a key in its own intervals.

>>> near = Nearby.of(np.array([0, 5, 90]), np.array([7, 9, 99]), pa.array(["x", "y", "x"]))
>>> near.holds(np.array([3, 3, 8, 95]), pa.array(["x", "y", "x", "x"])).tolist()
[True, False, False, True]
>>> near.meets(10, 80), near.meets(8, 20), near.length
(False, True, 20)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cepheid.acquire.intervals import END, IntervalSet, Numbers

Truth = npt.NDArray[np.bool_]
_KEYS = (pa.types.is_integer, pa.types.is_string, pa.types.is_large_string, pa.types.is_boolean, pa.types.is_date)
"""The types of keys whose equality is that of their values."""


@dataclass(frozen=True, slots=True)
class _Times:
    """Disjoint closed intervals, in order."""

    begins: Numbers
    ends: Numbers

    @classmethod
    def of(cls, begins: Numbers, ends: Numbers) -> _Times:
        merged = np.array(IntervalSet.of_arrays(begins, ends).intervals, np.int64).reshape(-1, 2)
        return cls(np.ascontiguousarray(merged[:, 0]), np.ascontiguousarray(merged[:, 1]))

    def holds(self, times: Numbers) -> Truth:
        if not len(times) or not len(self.begins):
            return np.zeros(len(times), bool)
        # Times of a row group are close together: few intervals are searched.
        first = int(np.searchsorted(self.ends, times.min(), "left"))
        last = int(np.searchsorted(self.begins, times.max(), "right"))
        if first >= last:
            return np.zeros(len(times), bool)
        begins, ends = self.begins[first:last], self.ends[first:last]
        if 8 * len(begins) < len(times) and np.all(times[1:] >= times[:-1]):
            changes = np.zeros(len(times) + 1, np.int32)
            np.add.at(changes, np.searchsorted(times, begins, "left"), 1)
            np.subtract.at(changes, np.searchsorted(times, ends, "right"), 1)
            inside: Truth = np.cumsum(changes[:-1]) > 0
            return inside
        index = np.searchsorted(begins, times, "right") - 1
        held: Truth = (index >= 0) & (times <= ends[np.maximum(index, 0)])
        return held


@dataclass(frozen=True, slots=True)
class Nearby:
    """`times` has the intervals of all keys together. `keyed` has those of each key on one axis: the number of the key
    times `stride`, plus the time since `origin`. Without keys it is None."""

    times: _Times
    keys: pa.Array | None = None
    keyed: _Times | None = None
    origin: int = 0
    stride: int = 0

    @classmethod
    def of(cls, begins: Numbers, ends: Numbers, keys: pa.Array | None = None) -> Nearby:
        """The union of intervals, each with the key that its events share."""
        times = _Times.of(begins, ends)
        if keys is None or not len(begins) or not is_key(keys.type):
            return cls(times)
        distinct = keys.drop_null().unique()
        origin, stride = int(begins.min()), int(ends.max()) - int(begins.min()) + 2
        if stride * (len(distinct) + 1) >= END:
            return cls(times)
        numbers = pc.index_in(keys, distinct)
        known = np.asarray(numbers.is_valid())
        base = np.asarray(numbers.drop_null(), np.int64) * stride - origin
        return cls(times, distinct, _Times.of(begins[known] + base, ends[known] + base), origin, stride)

    @property
    def count(self) -> int:
        """The number of intervals."""
        return len(self.times.begins)

    @property
    def length(self) -> int:
        """The ticks that they cover."""
        return int((self.times.ends - self.times.begins + 1).sum())

    @property
    def share(self) -> float:
        """The share of the keys that are of interest at a time that is covered, among those that occur at all."""
        if self.keyed is None or self.keys is None or not len(self.keys) or not self.length:
            return 1.0
        return float((self.keyed.ends - self.keyed.begins + 1).sum()) / (self.length * len(self.keys))

    def meets(self, first: int, last: int) -> bool:
        """Whether a range of time has a point in an interval."""
        at = int(np.searchsorted(self.times.ends, first, "left"))
        return at < self.count and int(self.times.begins[at]) <= last

    def within(self, first: int, last: int) -> int:
        """The ticks of a range that are covered."""
        begins, ends = np.maximum(self.times.begins, first), np.minimum(self.times.ends, last)
        return int(np.maximum(ends - begins + 1, 0).sum())

    def holds(self, times: Numbers, keys: pa.Array | None) -> Truth:
        """Whether each row, by its time and key, can matter."""
        held = self.times.holds(times)
        if self.keyed is None or self.keys is None or keys is None or not held.any():
            return held
        at = np.flatnonzero(held)
        numbers = pc.index_in(keys.take(pa.array(at)).cast(self.keys.type), self.keys)
        known = np.asarray(numbers.is_valid())
        place = np.asarray(numbers.fill_null(0), np.int64) * self.stride + times[at] - self.origin
        held[at] = known & self.keyed.holds(place)
        return held


class Windows(NamedTuple):
    """Intervals of time, each with its key where all events of a match share one."""

    begins: Numbers
    ends: Numbers
    keys: pa.Array | None = None


def around(events: Sequence[Windows], length: int) -> Windows:
    """The time in which a match can lie that lasts at most `length` and has one of each kind of events: from a `length`
    before the last of them to a `length` after the first. With keys, those events have the same.

    >>> rare, rarer = (Windows(times, times) for times in (np.array([10, 90]), np.array([13, 50])))
    >>> around([rare, rarer], 5)[:2]
    (array([8]), array([15]))
    """
    keys = [own.keys for own in events if own.keys is not None]
    if len(keys) < len(events) or not all(is_key(own.type) for own in keys):
        return Windows(*_common([(own.begins - length, own.ends) for own in events], length))
    distinct = pa.concat_arrays(keys).drop_null().unique()
    origin = min((int(own.begins.min()) for own in events if len(own.begins)), default=0) - length
    last = max((int(own.ends.max()) for own in events if len(own.ends)), default=0)
    stride = last - origin + 2
    if stride * (len(distinct) + 1) >= END:
        return around([own._replace(keys=None) for own in events], length)
    shifted = []
    for own, of in zip(events, keys, strict=True):
        numbers = pc.index_in(of, distinct)
        known = np.asarray(numbers.is_valid())
        base = np.asarray(numbers.drop_null(), np.int64) * stride - origin
        shifted.append((own.begins[known] - length + base, own.ends[known] + base))
    begins, ends = _common(shifted, 0)
    numbers = begins // stride
    base = numbers * stride - origin
    return Windows(begins - base, ends - base + length, distinct.take(pa.array(numbers)))


def _common(sets: Sequence[tuple[Numbers, Numbers]], length: int) -> tuple[Numbers, Numbers]:
    """The points that are in an interval of each set, and a `length` after them."""
    bounds = [np.array(IntervalSet.of_arrays(*of).intervals, np.int64).reshape(-1, 2) for of in sets]
    points = np.concatenate([*(own[:, 0] for own in bounds), *(own[:, 1] + 1 for own in bounds)])
    steps = np.repeat(np.array([1, -1]), len(points) // 2)
    at, index = np.unique(points, return_inverse=True)
    changes = np.zeros(len(at), np.int64)
    np.add.at(changes, index, steps)
    inside = np.flatnonzero(np.cumsum(changes) == len(sets))
    return at[inside], at[inside + 1] - 1 + length


def is_key(kind: pa.DataType) -> bool:
    return any(test(kind) for test in _KEYS)
