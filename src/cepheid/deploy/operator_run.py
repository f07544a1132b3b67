"""An operator of a deployment while it runs, and what its queries show of its matches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from cepheid.deploy.deployment import Deployment, Operator, Output
from cepheid.deploy.family_run import MOST
from cepheid.deploy.outputs import OutputRun
from cepheid.engine.adaptation import OnSwitch, caught_up, stepper_for
from cepheid.engine.consumption import require_whole
from cepheid.engine.positions import intervals
from cepheid.engine.prepare import Prepared
from cepheid.engine.run import read_by_plan
from cepheid.engine.stepping import PIECE, Stepper
from cepheid.errors import Explosion, NotAvailable, TooMuchMemory
from cepheid.io.event_columns import for_kernel
from cepheid.io.rows import Rows
from cepheid.io.source import Source
from cepheid.runtime.kernel import END_OF_TIME, Positions

OnStop = Callable[[Sequence[str], Explosion], None]
"""Called with the names of queries that are stopped, and the reason."""
Showing = Callable[[Output, Prepared], OutputRun]


@dataclass(slots=True)
class Stopping:
    """The queries that exceeded a limit."""

    deployment: Deployment
    on_stop: OnStop
    names: set[str] = field(default_factory=set)

    def __call__(self, names: Sequence[str], problem: Explosion) -> None:
        self.names.update(names)
        if self.names >= {*self.deployment.names} - self.deployment.refused.keys():
            raise problem
        self.on_stop(names, problem)


@dataclass(slots=True)
class OperatorRun:
    """An operator while it runs, and what its queries show of its matches."""

    operator: Operator
    stepper: Stepper
    shown: list[OutputRun]
    names: list[str]
    """The columns that the kernel reads."""
    input_columns: Sequence[str]
    """The columns of the events that are read for it."""
    stopping: Stopping
    is_done: bool = False
    """Whether LIMIT allows no more matches, or the operator is stopped."""
    is_stopped: bool = False
    """Whether it exceeded a limit."""

    @classmethod
    def start(
        cls, operator: Operator, source: Source, of: Showing, on_switch: OnSwitch, stopping: Stopping
    ) -> OperatorRun:
        prepared = operator.prepared
        if prepared.kernel is None:
            raise NotAvailable(
                "the reference evaluator runs one query at a time", hint="run the query alone, or drop `evaluator`"
            )
        require_whole(prepared, "beside other queries")
        shown = [of(output, prepared) for output in operator.outputs]
        retained = list(dict.fromkeys(name for one in shown for name in one.retained))
        names = read_by_plan(prepared, source.schema if prepared.graph is None else prepared.graph.reading.shape.schema)
        every = list(dict.fromkeys([*names, *retained]))
        stepper = stepper_for(prepared, prepared.kernel, source.count, on_switch)
        return cls(operator, stepper, shown, names, every, stopping)

    @property
    def state_bytes(self) -> int:
        return 0 if self.is_done else sum(array.nbytes for array in self.stepper.state)

    def stop_largest(self, limit: int) -> bool:
        if not self.is_done:
            self.stop(TooMuchMemory(limit, None, MOST))
        return True

    def stop(self, problem: Explosion) -> None:
        """Ends the operator and releases its state."""
        self.is_done = self.is_stopped = True
        self.stepper.state = self.stepper.kernel.initial()
        self.stopping(self.operator.names, problem)

    @property
    def shown_input(self) -> list[str]:
        """The columns of the events that its queries show."""
        return [name for one in self.shown for name in one.retained]

    @property
    def oldest_input(self) -> int:
        """The position of the oldest event that a later match may show."""
        if self.is_stopped:
            return END_OF_TIME
        held = [oldest for one in self.shown if (oldest := one.oldest) is not None]
        return min([END_OF_TIME if self.is_done else self.stepper.oldest, *held])

    def step(self, batch: pa.RecordBatch, rows: Rows) -> Iterator[Positions]:
        if self.is_done or not batch.num_rows:
            return
        try:
            yield from self._matched(self.stepper.step(for_kernel(batch, self.names), self._piece), rows)
        except Explosion as problem:
            self.stop(problem)

    @property
    def _is_limited(self) -> bool:
        return all(one.first is not None for one in self.shown)

    @property
    def _piece(self) -> int | None:
        """An operator whose queries all have a LIMIT may end after any piece."""
        return PIECE if self._is_limited else None

    def _matched(self, parts: Iterator[Positions], rows: Rows) -> Iterator[Positions]:
        """Shows the matches of some parts, each before the next one is read."""
        latest = -END_OF_TIME
        for positions in parts:
            if len(positions):
                latest = self.show(positions, rows)
            yield positions
            if self._is_limited:
                before = self.stepper.later_matches_end_at(latest)
                if all([one.first is not None and one.first.settled(before) for one in self.shown]):
                    self.is_done = True
                    break

    def show(self, positions: Positions, rows: Rows) -> int:
        """Shows matches; returns the end of the last one."""
        start, end = intervals(positions, rows)
        for one in self.shown:
            one.add(positions, start, end, rows)
        return int(end[-1])

    def catch_up(self, first: int, batches: Sequence[pa.RecordBatch]) -> None:
        """Takes over from another plan after these batches, the first event of which is at position `first`."""
        try:
            events = (for_kernel(batch, self.names) for batch in batches)
            self.stepper.state, self.stepper.encoder = caught_up(self.stepper.kernel, first, events)
        except Explosion as problem:
            self.stop(problem)

    def finish(self, rows: Rows) -> Iterator[Positions]:
        if self.is_stopped:  # of its matches, LIMIT and summaries show all or none
            return
        try:
            yield from self._finish(rows)
        except Explosion as problem:
            self.stop(problem)

    def _finish(self, rows: Rows) -> Iterator[Positions]:
        if not self.is_done:
            yield from self._matched(self.stepper.finish_lazily(), rows)
        for one in self.shown:
            one.finish(rows, self.stepper)
