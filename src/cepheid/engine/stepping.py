"""Steps a kernel over the batches of one stream.

A kernel over few events is interpreted, because compilation would take longer than the run, unless its machine code is
there already. A run that takes longer than expected continues compiled, with the same state.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import pyarrow as pa

from cepheid.codegen.columns import attribute
from cepheid.codegen.compile import interpreted, is_loaded, is_ready
from cepheid.codegen.encoder import Encoder
from cepheid.errors import Explosion
from cepheid.io.rows import TIME, TYPE
from cepheid.pattern import operator_text
from cepheid.physical import Plan
from cepheid.runtime.kernel import END_OF_TIME, Batch, Kernel, Positions, State

FEW_EVENTS = 20_000
"""A kernel over fewer events is interpreted at first; that takes about a tenth of a second."""
FEWEST_EVENTS = 1_000
"""Over fewer events a kernel is interpreted even if its machine code is cached on disk: loading it takes longer."""
PATIENCE = 2.0
"""The seconds of interpretation after which a kernel is compiled. Compilation takes about as long, so a run takes about
twice the optimum at most."""
LOADING = 0.4
"""The same for a kernel whose machine code is cached on disk: importing the compiler takes about as long."""
PIECE = 1_000
"""The most events that are interpreted between two readings of the clock."""
FIRST_PIECE = 64
"""As many are interpreted at first: the matches of an explosive query take long already."""
QUICK = 0.02
"""After a piece that took fewer seconds, the next one is twice as large."""
COMPILED_PIECE = 1 << 16
"""The most events in one call of a compiled kernel: the matches of more do not fit into the processor's cache."""


_spent: dict[str, float] = {}
"""The seconds that this process has interpreted each kernel's source. They add up over runs, so that a query that runs
often is compiled too."""


@dataclass(slots=True)
class Stepper:
    kernel: Kernel
    state: State
    encoder: Encoder
    compiled: Kernel
    interpreting: bool
    spent: float = 0.0
    now: int = -END_OF_TIME
    """The time of the last event."""
    worked: float = 0.0
    """The CPU seconds of the kernels."""
    piece: int = FIRST_PIECE
    """The number of events of the next piece that is interpreted."""

    @classmethod
    def start(cls, kernel: Kernel, expected: int | None) -> Stepper:
        """`expected` is the number of events; None if unknown."""
        spent = _spent.get(kernel.source, 0.0)
        few = expected is None or expected < FEW_EVENTS
        interpreting = few and not (_starts_at_once(kernel, expected) or _took_long(kernel, spent))
        first = without_compiling(kernel) if interpreting else kernel
        return cls(first, kernel.initial(), encoder_for(kernel), kernel, interpreting, spent)

    def step(
        self, batch: pa.RecordBatch, piece: int | None = None, observe: Callable[[Batch], None] | None = None
    ) -> Iterator[Positions]:
        """The matches of a batch, for `piece` events at a time (None: for as many as is efficient). A lazy kernel
        yields them in parts, because all of them may not fit into memory. `observe` gets the encoded batch."""
        encoded = self.encoder.encode(batch)
        if observe is not None:
            observe(encoded)
        try:
            yield from self.step_encoded(encoded, piece)
        except Explosion as problem:
            if problem.row is None:
                raise
            plan = self.kernel.plan
            key, maker = key_text(batch, plan, problem.row - encoded.first), operator_text(plan.query.pattern)
            raise problem.with_key(key, maker) from None

    def step_encoded(self, encoded: Batch, piece: int | None = None) -> Iterator[Positions]:
        at = 0
        while at < len(encoded):
            size = min(self.piece, PIECE) if self.interpreting else piece or COMPILED_PIECE
            began = time.thread_time()
            events = encoded.cut(at, at + size)
            self.state, parts = self.kernel.step_lazily(self.state, events)
            took = time.thread_time() - began
            self.worked += took
            if self.interpreting:
                self.spent += took
                _spent[self.kernel.source] = self.spent
                self.piece = min(2 * size, PIECE) if took < QUICK else size
            at += self.kernel.consumed(self.state, events)
            # `now` advances with the last part: matches of the others may end before it.
            last = next(parts, None)
            for part in parts:
                if last is not None:
                    yield last
                last = part
            if at:
                self.now = int(encoded.time[at - 1])
            if self.interpreting and _took_long(self.compiled, self.spent):
                self.kernel, self.interpreting = self.compiled, False
            if last is not None:
                yield last

    def advance_lazily(self, time: int) -> Iterator[Positions]:
        """The matches that become certain because no event comes before or at `time` any more."""
        self.state, parts = self.kernel.advance_lazily(self.state, time, self.encoder.codes())
        yield from parts

    def finish_lazily(self) -> Iterator[Positions]:
        """The matches that become certain at the end of the stream."""
        yield from self.advance_lazily(END_OF_TIME)

    @property
    def oldest(self) -> int:
        """The position of the oldest event that a later match may contain."""
        return self.kernel.oldest(self.state)

    def later_matches_end_at(self, latest: int = -END_OF_TIME) -> int:
        """A lower bound for the ends of later matches; `latest` is the end of the last match so far. Matches are output
        in the order of their ends, except those with a trailing negation, which are output a window after their
        start, and those of backtracking."""
        plan = self.kernel.plan
        if not self.kernel.in_order:
            return -END_OF_TIME
        if not plan.ends_with_negation:
            return max(self.now, latest)
        return -END_OF_TIME if plan.counts_events or plan.window is None else self.now - int(plan.window)


def key_text(batch: pa.RecordBatch, plan: Plan, row: int) -> str:
    """The key of an event, `acc = 17`; empty without a key."""
    columns = {name: column for name in plan.key if (column := attribute(batch, name)) is not None}
    if not 0 <= row < batch.num_rows:
        return ""
    return ", ".join(f"{name} = {column[row].as_py()}" for name, column in columns.items())


def encoder_for(kernel: Kernel) -> Encoder:
    return Encoder(kernel.plan, TYPE, TIME, kernel.texts, kernel.needs_ranks, kernel.needs_characters)


def _starts_at_once(kernel: Kernel, expected: int | None) -> bool:
    """Whether the machine code of a kernel is in memory, or cached on disk and worth loading: once the compiler is
    imported, that takes some milliseconds."""
    if is_loaded(kernel.function):
        return True
    is_worth_loading = expected is None or expected >= FEWEST_EVENTS
    return is_worth_loading and "numba" in sys.modules and is_ready(kernel.function)


def _took_long(kernel: Kernel, spent: float) -> bool:
    """Whether a kernel was interpreted for as long as its machine code takes to compile, or to load if it is cached."""
    return spent > PATIENCE or (spent > LOADING and is_ready(kernel.function))


def without_compiling(kernel: Kernel) -> Kernel:
    """The kernel as plain Python, which starts without delay."""
    return replace(kernel, function=interpreted(kernel.source))
