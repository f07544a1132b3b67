"""Kernels: generated code that turns batches of events into matches.

The contract. A kernel holds no data. Its *state* is a tuple of plain arrays. `step` takes the state and one batch of
events, in the stream's order, and returns the new state and the matches that became certain. `advance` takes a time
that has passed without events: it decides trailing negations. Both consume their argument: the old state must not be
used again. `save` and `restore` serialize and deserialize a state.

The matches do not depend on how a stream is cut into batches, nor on where its state is saved and restored.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cepheid.analysis import OperatorCounts
from cepheid.errors import TooManyMatches, TooMuchMemory
from cepheid.physical import Plan

Array = np.ndarray
State = tuple[Array, ...]

END_OF_TIME = 1 << 62
"""Later than any event, and still far enough from the end of 64 bits that differences of times do not wrap around."""

COUNTERS = ("events", "dropped_by_mask", "partial_matches", "predicates", "matches", "peak_retained")
"""The counters of every kernel, in this order, at the start of the registers, the first array of the state."""
VALUES, BOUNDS, OLDEST, PROBLEM, PROBLEM_AT, FREE = range(len(COUNTERS), len(COUNTERS) + 6)
"""The registers after the counters: the size of the output of the last step, the position of the oldest event that a
later match may still contain, the event that exceeds a limit, and the first register of the evaluator. PROBLEM is 0,
or the position of an event plus 1 if it completes too many matches, or the same negated if it needs too much memory at
the array that PROBLEM_AT numbers. Without a problem, PROBLEM_AT is how many events the last step has taken."""

_EVENTS, _MATCHES = COUNTERS.index("events"), COUNTERS.index("matches")
_ROOM = 4
"""The initial size of the output, in values per event."""
LARGE_OUTPUT = 1 << 20
"""A step stops before the next event once its output has so many values (8 MB): the rest comes with the next one."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Events as arrays. `first` is the position of the first event in the whole stream; `measure` is what the window is
    compared with (the time, or the index in the partition for windows that count events); `texts` are the codes of the
    plan's string constants and `ranks` the index of each code in the order of strings."""

    first: int
    time: Array
    measure: Array
    mask: Array
    columns: tuple[Array, ...]
    texts: Array
    ranks: Array
    lists: tuple[Array, ...] = ()
    """Arrays that columns hold offsets of: `points`, if the plan has histories. Each record begins with its length."""

    def __len__(self) -> int:
        return len(self.time)

    def cut(self, start: int, end: int) -> Batch:
        return Batch(
            self.first + start,
            self.time[start:end],
            self.measure[start:end],
            self.mask[start:end],
            tuple(column[start:end] for column in self.columns),
            self.texts,
            self.ranks,
            self.lists,
        )


@dataclass(frozen=True, slots=True)
class Codes:
    """What a kernel reads about strings apart from the events: `texts` and `ranks` of a batch."""

    texts: Array
    ranks: Array


_NONE = np.empty(0, np.int64)
NO_CODES = Codes(_NONE, _NONE)
"""Of a kernel that reads no strings."""


@dataclass(frozen=True, slots=True)
class Positions:
    """Matches as positions in the stream. The events of step s in match m are
    `values[bounds[m * len(steps) + s] : bounds[m * len(steps) + s + 1]]`; without bounds every step has one event.
    `ends` are the ends of the matches in ticks, where a match may end later than its last event. `reasons` are the
    numbers of the reasons of failed detections, where these are the output."""

    steps: tuple[str, ...]
    values: Array
    bounds: Array | None = None
    ends: Array | None = None
    reasons: Array | None = None

    def __len__(self) -> int:
        width = len(self.steps)
        return len(self.values) // width if self.bounds is None else (len(self.bounds) - 1) // width


def joined_positions(parts: Sequence[Positions]) -> Positions:
    """The matches of several outputs of one kernel."""
    if len(parts) == 1:
        return parts[0]
    values = np.concatenate([part.values for part in parts])
    bounds = None
    if parts[0].bounds is not None:
        sizes = np.cumsum([0, *(len(part.values) for part in parts[:-1])])
        ends = [part.bounds[1:] + size for part, size in zip(parts, sizes, strict=True) if part.bounds is not None]
        bounds = np.concatenate([parts[0].bounds[:1], *ends])
    further = [[part.ends for part in parts], [part.reasons for part in parts]]
    known = [[array for array in arrays if array is not None] for arrays in further]
    joined = [np.concatenate(arrays) if arrays else None for arrays in known]
    return Positions(parts[0].steps, values, bounds, *joined)


@dataclass(frozen=True, slots=True)
class StateArray:
    """An array of a kernel's state: its name in the generated code, its type, and its initial content."""

    name: str
    dtype: str
    length: int
    fill: int = 0
    width: int = 1
    """The length of a record."""


@dataclass(frozen=True, slots=True)
class OperatorRegisters:
    """The registers in which a kernel counts the work of one operator: the records that it made and, for a join, the
    combinations that it tried. Each combination is tested by `predicates` predicates."""

    operator: str
    made: int
    tried: int | None = None
    predicates: int = 0
    also_made: tuple[int, ...] = ()
    """Further registers to add to `made`."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """A generated function and its arguments.

    `function(now, first, time, measure, mask, texts, ranks, integers, floats, *columns, *lists, *state, values,
    bounds)`
    returns the arrays of the state followed by `values` and `bounds`, each possibly as a larger copy. It first
    processes the time that has passed (`now`), then the events, so `advance` is a step without events."""

    plan: Plan
    source: str
    function: Callable[..., tuple[Array, ...]]
    arrays: tuple[StateArray, ...]
    integers: Array
    floats: Array
    steps: tuple[str, ...]
    """The variables of a match, in the order of its output."""
    column_types: tuple[str, ...]
    has_bounds: bool
    """Whether a step may bind any number of events, so that the output has `bounds`."""
    texts: tuple[Any, ...] = ()
    """The string constants; batches contain their codes."""
    needs_ranks: bool = False
    """Whether strings are compared by order, so that batches contain the ranks of their codes."""
    needs_characters: bool = False
    """Whether strings are compared by their characters, so that `ranks` is a table of them (`runtime.texts`)."""
    operators: tuple[OperatorRegisters, ...] = ()
    """The counters of each operator, in a kernel whose plan has operators."""
    growing: tuple[str, ...] = ()
    """What may need much memory, as an error names it."""
    in_order: bool = True
    """Whether matches without a trailing negation are output in the order of their ends."""

    def initial(self) -> State:
        return tuple(np.full(a.length, a.fill, a.dtype) for a in self.arrays)

    def step(self, state: State, batch: Batch) -> tuple[State, Positions]:
        state, positions = self.step_part(state, batch)
        parts = [positions]
        while (done := self.consumed(state, batch)) < len(batch):
            batch = batch.cut(done, len(batch))
            state, positions = self.step_part(state, batch)
            parts.append(positions)
        return state, joined_positions(parts)

    def step_part(self, state: State, batch: Batch) -> tuple[State, Positions]:
        """As `step`, up to the event after which the output is large: `consumed` tells how many events that is."""
        return self._call(state, batch, int(batch.time[0]) if len(batch) else -END_OF_TIME)

    def advance(self, state: State, time: int, codes: Codes = NO_CODES) -> tuple[State, Positions]:
        """Decide what no event before or at `time` can change any more: none is still to come. Matches that waited are
        tested now, so a kernel that reads strings needs their codes."""
        # No event comes, so none that comes is the oldest that a match may contain.
        return self._call(state, self.no_events(END_OF_TIME, codes), min(time + 1, END_OF_TIME))

    def step_lazily(self, state: State, batch: Batch) -> tuple[State, Iterator[Positions]]:
        """As `step_part`, with the matches in parts. A kernel that can enumerate matches one by one does so lazily, as
        the iterator is consumed."""
        state, positions = self.step_part(state, batch)
        return state, iter([positions])

    def consumed(self, state: State, batch: Batch) -> int:
        """How many events of a batch `step_part` or `step_lazily` has taken."""
        return int(state[0][PROBLEM_AT])

    def advance_lazily(self, state: State, time: int, codes: Codes = NO_CODES) -> tuple[State, Iterator[Positions]]:
        state, positions = self.advance(state, time, codes)
        return state, iter([positions])

    def _call(self, state: State, batch: Batch, now: int) -> tuple[State, Positions]:
        registers = state[0]
        # Room for twice the output of the last step and twice the average output of as many events: unused memory
        # costs nothing, copies do. A step stops at a large output, so more is of no use.
        events, matches = int(registers[_EVENTS]), int(registers[_MATCHES])
        usual = 2 * len(self.steps) * matches * len(batch) // max(events, 1)
        room = max(1024, _ROOM * len(batch), min(max(2 * int(registers[VALUES]), usual), 2 * LARGE_OUTPUT))
        edges = max(1024, len(batch), min(max(2 * int(registers[BOUNDS]), usual), 2 * LARGE_OUTPUT))
        registers[VALUES] = registers[BOUNDS] = 0
        values, bounds = np.empty(room, np.int64), np.zeros(edges if self.has_bounds else 1, np.int64)
        *arrays, values, bounds = self.call(state, batch, now, values, bounds)
        written = values[: registers[VALUES]]
        limits = bounds[: registers[BOUNDS] + 1] if self.has_bounds else None
        positions = Positions(self.steps, written, limits)
        self.require_few_matches(positions)
        return tuple(arrays), positions

    def too_many(self, registers: Array, row: int) -> TooManyMatches:
        """The error if the function has stopped at an event that completes too many matches."""
        return TooManyMatches(self.plan.max_matches or 0, row)

    def require_few_matches(self, positions: Positions) -> None:
        """Raises `TooManyMatches` if one event completes more matches than allowed."""
        most = self.plan.most_enumerated
        if most is None or len(positions) <= most:
            return
        if positions.bounds is None:
            last = positions.values.reshape(-1, len(self.steps)).max(axis=1)
        else:
            last = np.maximum.reduceat(positions.values, positions.bounds[: -1 : len(self.steps)])
        rows, counts = np.unique(last, return_counts=True)
        if counts.max() > most:
            raise TooManyMatches(most, int(rows[counts > most][0]))

    def call(self, state: State, batch: Batch, now: int, values: Array, bounds: Array) -> tuple[Array, ...]:
        """The state after the events, and the output."""
        of_batch = (batch.first, batch.time, batch.measure, batch.mask, batch.texts, batch.ranks)
        columns = (*batch.columns, *batch.lists)
        made = self.function(now, *of_batch, self.integers, self.floats, *columns, *state, values, bounds)
        problem, most = int(made[0][PROBLEM]), self.plan.max_memory
        if problem > 0:
            raise self.too_many(made[0], problem - 1)
        if problem < 0:
            raise TooMuchMemory(most or 0, -problem - 1, self.growing[made[0][PROBLEM_AT]])
        if most is not None and sum(array.nbytes for array in made) > most:
            raise TooMuchMemory(most, None, "the state and the matches of a step")
        return made

    def no_events(self, first: int, codes: Codes) -> Batch:
        assert codes is not NO_CODES or not (self.texts or self.needs_ranks), (
            "compiled code would read beyond the codes"
        )
        columns = tuple(np.empty(0, dtype) for dtype in self.column_types)
        lists = (_NONE,) if self.plan.has_histories else ()
        return Batch(first, _NONE, _NONE, np.empty(0, np.uint64), columns, codes.texts, codes.ranks, lists)

    def oldest(self, state: State) -> int:
        """The position of the oldest event that a later match may still contain."""
        return int(state[0][OLDEST])


def counters(state: State) -> dict[str, int]:
    return {name: int(state[0][i]) for i, name in enumerate(COUNTERS)}


def operator_counts(kernel: Kernel, state: State) -> dict[str, OperatorCounts]:
    """The counts of each operator of the plan so far."""
    counts = {}
    for operator in kernel.operators:
        tried = None if operator.tried is None else int(state[0][operator.tried])
        tested = None if tried is None else tried * operator.predicates
        made = sum(int(state[0][register]) for register in (operator.made, *operator.also_made))
        counts[operator.operator] = OperatorCounts(made, tried, tested)
    return counts


def save(state: State) -> bytes:
    """Serializes a state."""
    buffer = io.BytesIO()
    np.savez(buffer, *state)
    return buffer.getvalue()


def restore(data: bytes) -> State:
    """Deserializes a state that `save` has serialized."""
    with np.load(io.BytesIO(data)) as arrays:
        return tuple(arrays[name] for name in arrays.files)
