"""One stream through one kernel, batch by batch.

A kernel is interpreted first if there is little to do, since compiling takes longer than the whole work; a run that
takes longer than expected goes on compiled, with the same state.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pyarrow as pa

from cepheid.codegen.compile import interpreted
from cepheid.codegen.encoder import Encoder
from cepheid.io.rows import TIME, TYPE
from cepheid.runtime.kernel import END_OF_TIME, Batch, Kernel, Positions, State

LITTLE = 20_000
"""The number of events below which a kernel is interpreted at first: about a tenth of a second."""
PATIENCE = 2.0
"""Seconds of interpreting one kernel after which it is compiled: about as long as that takes, so that nobody waits much
more than twice as long as would have been best."""
PIECE = 1_000
"""How many events are interpreted between two looks at the clock."""
COMPILED_PIECE = 1 << 16
"""How many events a compiled kernel is given at once: the matches of more do not stay in the processor's cache."""


_spent: dict[str, float] = {}
"""The seconds that this process has interpreted each kernel's source: a query that is run again and again is worth
compiling too."""


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
    """The seconds of CPU time that the kernels took: what else the machine does is no part of it."""

    @classmethod
    def start(cls, kernel: Kernel, expected: int | None) -> Stepper:
        """`expected` is the number of events, where it is known."""
        spent = _spent.get(kernel.source, 0.0)
        interpreting = (expected is None or expected < LITTLE) and spent <= PATIENCE
        first = without_compiling(kernel) if interpreting else kernel
        return cls(first, kernel.initial(), encoder_for(kernel), kernel, interpreting, spent)

    def step(self, batch: pa.RecordBatch, piece: int | None = None) -> Iterator[Positions]:
        """The matches of a batch, for `piece` events at a time (None: as many as there are), and of a kernel that has
        more than can be held, in parts."""
        yield from self.step_encoded(self.encoder.encode(batch), piece)

    def step_encoded(self, encoded: Batch, piece: int | None = None) -> Iterator[Positions]:
        at = 0
        while at < len(encoded):
            size = PIECE if self.interpreting else piece or COMPILED_PIECE
            began = time.thread_time()
            self.state, parts = self.kernel.step_lazily(self.state, encoded.cut(at, at + size))
            took = time.thread_time() - began
            self.worked += took
            if self.interpreting:
                self.spent += took
                _spent[self.kernel.source] = self.spent
            at += size
            # The time moves on with the last part: matches of the others may end before it.
            last = next(parts, None)
            for part in parts:
                if last is not None:
                    yield last
                last = part
            self.now = int(encoded.time[min(at, len(encoded)) - 1])
            if self.interpreting and self.spent > PATIENCE:
                self.kernel, self.interpreting = self.compiled, False
            if last is not None:
                yield last

    def finish_lazily(self) -> Iterator[Positions]:
        """The matches that the end of the stream decides."""
        self.state, parts = self.kernel.advance_lazily(self.state, END_OF_TIME)
        yield from parts

    @property
    def oldest(self) -> int:
        """The position of the oldest event that a later match may contain."""
        return self.kernel.oldest(self.state)

    def later_matches_end_at(self, latest: int = -END_OF_TIME) -> int:
        """No match that is still to come ends before this time; `latest` is the end of the last one so far. Matches are
        output in the order in which they end, but for those that wait for a trailing negation, which come a window
        after they start."""
        plan = self.kernel.plan
        if not plan.ends_with_negation:
            return max(self.now, latest)
        return -END_OF_TIME if plan.counts_events or plan.window is None else self.now - int(plan.window)


def encoder_for(kernel: Kernel) -> Encoder:
    return Encoder(kernel.plan, TYPE, TIME, kernel.texts, kernel.needs_ranks)


def without_compiling(kernel: Kernel) -> Kernel:
    """The kernel as plain Python, which starts at once."""
    return replace(kernel, function=interpreted(kernel.source))
