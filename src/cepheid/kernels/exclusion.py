"""`OUTPUT NON-OVERLAPPING` over the matches of a kernel that does not exclude any itself.

The first match to complete in a partition excludes all that overlap it (ruling 7). Matches are decided in the order of
their last events. A match with a trailing negation is certain only a window after its start, so a match waits until
none that completed before it can still become certain.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from cepheid.pattern import Strategy, partition_attributes
from cepheid.physical import Kind, Plan
from cepheid.runtime.arrays import NULL_CODE, NULL_INT
from cepheid.runtime.kernel import (
    COUNTERS,
    END_OF_TIME,
    NO_CODES,
    Array,
    Batch,
    Codes,
    Kernel,
    Positions,
    State,
    StateArray,
)

_MATCHES = COUNTERS.index("matches")
_OWN = ("exclusion_first", "exclusion_events", "exclusion_ends", "exclusion_waiting", "exclusion_bounds")
"""The arrays of the state after those of the kernel inside: the position of the first event whose key is kept; the
measure and the key of each event from there on; the key and the last position of each match that still excludes
others; the matches that wait."""

Match = tuple[tuple[int, ...], ...]
"""The positions of a match's events, by step."""
Key = tuple[int, ...]


def may_wait(plan: Plan) -> bool:
    """Whether a match can end with what must not follow it: a negation after which there is nothing, or nothing but
    closures that may be empty."""
    optional = [step.negated or step.low == 0 for step in plan.steps]
    last = max((i for i, may_lack in enumerate(optional) if not may_lack), default=-1)
    return any(step.negated for step in plan.steps[last + 1 :])


def exclusive(plan: Plan, inner: Kernel) -> ExclusiveKernel:
    """The matches of `inner` that do not overlap."""
    names = () if plan.query.strategy is Strategy.STRICT else partition_attributes(plan.query)
    keys = tuple(list(plan.columns).index(name) for name in names)
    own = (
        StateArray(_OWN[0], "int64", 1),
        StateArray(_OWN[1], "int64", 0, width=1 + len(keys)),
        StateArray(_OWN[2], "int64", 0, width=1 + len(keys)),
        StateArray(_OWN[3], "int64", 0),
        StateArray(_OWN[4], "int64", 1),
    )
    return ExclusiveKernel(
        plan=plan,
        source=inner.source,
        function=inner.function,
        arrays=(*inner.arrays, *own),
        integers=inner.integers,
        floats=inner.floats,
        steps=inner.steps,
        column_types=inner.column_types,
        has_bounds=True,
        texts=inner.texts,
        needs_ranks=inner.needs_ranks,
        needs_characters=inner.needs_characters,
        operators=inner.operators,
        inner=inner,
        keys=keys,
        waits=may_wait(plan),
    )


@dataclass(frozen=True, slots=True)
class ExclusiveKernel(Kernel):
    inner: Kernel = field(kw_only=True)
    keys: tuple[int, ...] = field(kw_only=True)
    """The columns of the partition key."""
    waits: bool = field(kw_only=True)
    """Whether a match may become certain after one that ends later."""

    def step_part(self, state: State, batch: Batch) -> tuple[State, Positions]:
        memory = _Memory.of(state[-len(_OWN) :], len(self.keys))
        inside, parts = self._inside.step_lazily(state[: -len(_OWN)], batch)
        batch = batch.cut(0, self.consumed(inside, batch))
        memory.note(self._noted(batch), batch.first)
        passed = -END_OF_TIME if self._in_partitions or not len(batch) else int(batch.measure[-1])
        return self._decided(inside, memory, parts, passed)

    def advance(self, state: State, time: int, codes: Codes = NO_CODES) -> tuple[State, Positions]:
        memory = _Memory.of(state[-len(_OWN) :], len(self.keys))
        inside, parts = self._inside.advance_lazily(state[: -len(_OWN)], time, codes)
        is_over = time >= END_OF_TIME
        passed = END_OF_TIME if is_over else -END_OF_TIME if self.plan.counts_events else time + 1
        return self._decided(inside, memory, parts, passed)

    def consumed(self, state: State, batch: Batch) -> int:
        return self.inner.consumed(state, batch)

    def oldest(self, state: State) -> int:
        memory = _Memory.of(state[-len(_OWN) :], len(self.keys))
        return min([self.inner.oldest(state), *map(_first, memory.waiting)])

    @property
    def _in_partitions(self) -> bool:
        """Whether the window counts the events of a partition: positions in others tell nothing."""
        return self.plan.counts_events and bool(self.plan.key)

    @property
    def _inside(self) -> Kernel:
        """The kernel inside, compiled or interpreted as this one is."""
        return replace(self.inner, function=self.function)

    def _noted(self, batch: Batch) -> Array:
        kinds = list(self.plan.columns.values())
        columns = [_key_column(batch.columns[number], kinds[number]) for number in self.keys]
        return np.stack([batch.measure, *columns], axis=1) if len(batch) else np.empty((0, 1 + len(columns)))

    def _decided(
        self, inside: State, memory: _Memory, parts: Iterable[Positions], passed: int
    ) -> tuple[State, Positions]:
        found = [match for positions in parts for match in _matches(positions)]
        width = END_OF_TIME if self.plan.window is None else int(self.plan.window)
        chosen, waiting = [], []
        for match in sorted([*memory.waiting, *found], key=_completion):
            ended = memory.measure(_last(match))
            if self.waits and not (ended + width < passed or passed == END_OF_TIME):
                waiting.append(match)
            elif memory.admits(match):
                chosen.append(match)
        memory.waiting = waiting
        inside[0][_MATCHES] += len(chosen) - len(found)
        memory.forget(min([self.inner.oldest(inside), *map(_first, waiting)]))
        return (*inside, *memory.arrays()), _positions(self.steps, chosen)


def _key_column(values: Array, kind: Kind) -> Array:
    """Equal integers for equal values; the null of the kind stays."""
    if kind is not Kind.FLOAT:
        return np.where(values == NULL_CODE, NULL_INT, values) if kind in (Kind.CODE, Kind.BOOL) else values
    return np.where(np.isnan(values), NULL_INT, (values + 0.0).view(np.int64))


@dataclass(slots=True)
class _Memory:
    """What decides about later matches."""

    first: int
    events: Array
    ends: dict[Key | None, int]
    waiting: list[Match]

    @classmethod
    def of(cls, arrays: Sequence[Array], keys: int) -> _Memory:
        first, events, ends, values, bounds = arrays
        known = {_key(row[:-1]): row[-1] for row in ends.reshape(-1, keys + 1).tolist()}
        steps = int(bounds[0])
        waiting = list(_matches(Positions(("",) * steps, values, bounds[1:]))) if steps else []
        return cls(int(first[0]), events.reshape(-1, keys + 1), known, waiting)

    def arrays(self) -> tuple[Array, ...]:
        width = self.events.shape[1]
        ends = [[*(key if key is not None else (NULL_INT,) * (width - 1)), end] for key, end in self.ends.items()]
        positions = _positions(("",) * (len(self.waiting[0]) if self.waiting else 0), self.waiting)
        assert positions.bounds is not None
        bounds = [len(positions.steps), *(positions.bounds.tolist() if self.waiting else [])]
        return (
            np.array([self.first], np.int64),
            self.events.ravel(),
            np.array(ends, np.int64).ravel(),
            positions.values,
            np.array(bounds, np.int64),
        )

    def note(self, events: Array, first: int) -> None:
        if not len(self.events):
            self.first = first
        self.events = np.concatenate([self.events, events.astype(np.int64)])

    def measure(self, position: int) -> int:
        return int(self.events[position - self.first, 0])

    def admits(self, match: Match) -> bool:
        """Whether the match overlaps none that was chosen; then it is."""
        first, last = _first(match), _last(match)
        key = _key(self.events[first - self.first, 1:].tolist())
        if first <= self.ends.get(key, -1):
            return False
        self.ends[key] = last
        return True

    def forget(self, oldest: int) -> None:
        """Without the events before the oldest of a later match, and without what only such events could overlap."""
        gone = min(max(oldest - self.first, 0), len(self.events))
        self.first, self.events = self.first + gone, self.events[gone:]
        self.ends = {key: end for key, end in self.ends.items() if end >= oldest}


def _key(values: Sequence[int]) -> Key | None:
    """An event with a null key belongs to no partition."""
    return None if NULL_INT in values else tuple(values)


def _matches(positions: Positions) -> Iterator[Match]:
    width = len(positions.steps)
    values = positions.values.tolist()
    if positions.bounds is None:
        for start in range(0, len(values), width):
            yield tuple((value,) for value in values[start : start + width])
        return
    bounds = positions.bounds.tolist()
    for start in range(0, len(bounds) - 1, width):
        edges = bounds[start : start + width + 1]
        yield tuple(tuple(values[a:b]) for a, b in itertools.pairwise(edges))


def _positions(steps: Sequence[str], matches: Sequence[Match]) -> Positions:
    groups = [group for match in matches for group in match]
    bounds = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.array([len(g) for g in groups], np.int64))])
    return Positions(tuple(steps), np.array([row for group in groups for row in group], np.int64), bounds)


def _first(match: Match) -> int:
    return min(row for group in match for row in group)


def _last(match: Match) -> int:
    return max(row for group in match for row in group)


def _completion(match: Match) -> tuple[int, list[tuple[int, int]]]:
    """Matches in the order in which they complete; of several on one event, the one whose events come earliest."""
    roles = sorted((row, step) for step, group in enumerate(match) for row in group)
    return roles[-1][0], roles
