"""Sets of points in time for each key: what is known of a stream whose events are pulled by the values of an attribute.

>>> some = KeyedSet(IntervalSet(((1, 5),)), {"x": IntervalSet(((8, 9),))})
>>> some.first, some.flattened
(1, IntervalSet(((1, 5), (8, 9))))
>>> KeyedSet(parts={"x": IntervalSet(((4, 9),))}) - some
KeyedSet(whole=IntervalSet(()), parts={'x': IntervalSet(((6, 7),))})
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from cepheid.acquire.intervals import END, NEVER, IntervalSet, Numbers

Key = int | str


@dataclass(frozen=True, slots=True)
class KeyedSet:
    """Points in time for all keys (`whole`), and further ones for single keys. A set without keys is that of a stream
    whose events are fetched whatever their attributes."""

    whole: IntervalSet = NEVER
    parts: Mapping[Key, IntervalSet] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.whole) or bool(self.parts)

    def __or__(self, other: KeyedSet) -> KeyedSet:
        if not other.parts and not self.parts:
            return KeyedSet(self.whole | other.whole)
        few, many = sorted((self.parts, other.parts), key=len)
        parts = dict(many)
        for key, times in few.items():
            parts[key] = parts[key] | times if key in parts else times
        return KeyedSet(self.whole | other.whole, parts)

    def __sub__(self, other: KeyedSet) -> KeyedSet:
        """What is in this set and not in the other. For all keys together only what the other has for all counts."""
        whole = self.whole - other.whole
        parts = {}
        for key, times in self.parts.items():
            left = times - other.whole
            if left and key in other.parts:
                left -= other.parts[key]
            if left:
                parts[key] = left
        return KeyedSet(whole, parts)

    def __and__(self, other: KeyedSet) -> KeyedSet:
        whole = self.whole & other.whole
        keys = dict.fromkeys((*self.parts, *other.parts))
        parts = {key: (self.of(key) & other.of(key)) - whole for key in keys}
        return KeyedSet(whole, {key: times for key, times in parts.items() if times})

    def of(self, key: Key) -> IntervalSet:
        """The points of a key."""
        return self.whole | self.parts[key] if key in self.parts else self.whole

    def within(self, times: IntervalSet) -> KeyedSet:
        return self._changed(lambda own: own & times)

    def from_time(self, time: int) -> KeyedSet:
        """Without the points of single keys before a time."""
        return KeyedSet(self.whole, _filled((key, own.from_time(time)) for key, own in self.parts.items()))

    def _changed(self, change: Callable[[IntervalSet], IntervalSet]) -> KeyedSet:
        return KeyedSet(change(self.whole), _filled((key, change(own)) for key, own in self.parts.items()))

    @property
    def first(self) -> int:
        """The first point of any key, or the end of time."""
        return min((self.whole.first, *(times.first for times in self.parts.values())), default=END)

    @property
    def flattened(self) -> IntervalSet:
        """The points of any key."""
        if not self.parts:
            return self.whole
        pairs = [pair for times in self.parts.values() for pair in times.intervals]
        return IntervalSet.of((*self.whole.intervals, *pairs))

    def holds(self, times: Numbers, keys: Sequence[Any] | None = None) -> npt.NDArray[np.bool_]:
        """Whether each time is in the set of its key."""
        held = self.whole.holds(times)
        if not self.parts or keys is None:
            return held
        rows: dict[Key, list[int]] = {}
        for row, key in enumerate(keys):
            if key in self.parts:
                rows.setdefault(key, []).append(row)
        for key, own in rows.items():
            held[own] |= self.parts[key].holds(times[own])
        return held

    def to_data(self) -> list[Any]:
        return [self.whole.intervals, [[key, times.intervals] for key, times in self.parts.items()]]

    @classmethod
    def from_data(cls, data: Sequence[Any]) -> KeyedSet:
        whole, parts = data
        return cls(_intervals(whole), {key: _intervals(times) for key, times in parts})


def _filled(parts: Iterable[tuple[Key, IntervalSet]]) -> dict[Key, IntervalSet]:
    return {key: times for key, times in parts if times}


def _intervals(pairs: Iterable[Sequence[int]]) -> IntervalSet:
    return IntervalSet(tuple((begin, end) for begin, end in pairs))


NOTHING = KeyedSet()


class Pull(NamedTuple):
    """An interval to ask for, of all events or of those with some keys."""

    begin: int
    end: int
    keys: tuple[Key, ...] | None = None

    @property
    def asked(self) -> KeyedSet:
        return shape(self.begin, self.end, self.keys)


def shape(begin: int, end: int, keys: Iterable[Key] | None) -> KeyedSet:
    """An interval for some keys; None: for all."""
    times = IntervalSet(((begin, end),)) if begin <= end else NEVER
    return KeyedSet(times) if keys is None else KeyedSet(NEVER, dict.fromkeys(keys, times) if times else {})


MAX_KEYS = 1_000
"""The keys of a pull."""


def pulls(missing: KeyedSet, asked: KeyedSet) -> list[Pull]:
    """The pulls for missing intervals. Keys whose intervals overlap share a pull over all of these, unless an event
    would be fetched twice, or the pull would be a quarter longer than the longest interval."""
    found = [Pull(begin, end) for begin, end in missing.whole.intervals]
    single = [(begin, end, key) for key, times in missing.parts.items() for begin, end in times.intervals]
    group: list[tuple[int, int, Key]] = []
    for interval in sorted(single, key=lambda one: one[:2]):
        if group and not _fits(group, interval):
            found += _shared(group, asked)
            asked = _with(asked, found)
            group = []
        group.append(interval)
    return found + _shared(group, asked)


def _with(asked: KeyedSet, found: Iterable[Pull]) -> KeyedSet:
    for pull in found:
        asked |= pull.asked
    return asked


def _fits(group: list[tuple[int, int, Key]], interval: tuple[int, int, Key]) -> bool:
    begin, end = group[0][0], max(last for _, last, _ in group)
    longest = max(last - first for first, last, _ in (*group, interval))
    is_near = interval[0] <= end and max(end, interval[1]) - begin <= longest + longest // 4
    return is_near and len(group) < MAX_KEYS


def _shared(group: list[tuple[int, int, Key]], asked: KeyedSet) -> list[Pull]:
    """One pull for the keys of which nothing in the whole interval was asked for, and single ones for the others."""
    if not group:
        return []
    begin, end = group[0][0], max(last for _, last, _ in group)
    hull = IntervalSet(((begin, end),))
    shared = [key for key in dict.fromkeys(key for _, _, key in group) if not hull & asked.of(key)]
    found = [Pull(begin, end, tuple(shared))] if shared else []
    for first, last, key in group:
        if key not in shared:
            left = IntervalSet(((first, last),)) - asked.of(key)
            found += [Pull(b, e, (key,)) for b, e in left.intervals]
    return found
