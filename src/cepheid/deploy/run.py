"""The operators of a deployment while they run, in one pass over its input (see `engine.passing`)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from cepheid.deploy.composed_run import ComposedRun
from cepheid.deploy.deployment import Common, Deployment, FamilyGroup, United
from cepheid.deploy.family_run import FamilyRun, RuleMatches
from cepheid.deploy.operator_run import OnStop, OperatorRun, Showing, Stopping
from cepheid.deploy.outputs import OutputRun, ShapeTable, tables
from cepheid.deploy.union_matches import of_members
from cepheid.engine.adaptation import OnSwitch, ignore
from cepheid.engine.passing import Found, Operating, Progress, one_pass
from cepheid.engine.positions import MatchPositions
from cepheid.engine.run import read_by_plan
from cepheid.engine.shapes import EVENTS
from cepheid.engine.stepping import Stepper
from cepheid.errors import Explosion
from cepheid.io.event_columns import for_kernel
from cepheid.io.rows import ROW, TIME, Rows
from cepheid.io.source import Source, columns_read
from cepheid.limits import NO_LIMITS, Limits
from cepheid.optimize.adapt import horizon
from cepheid.runtime.kernel import END_OF_TIME, Positions

_SHOWN_AT_ONCE = 1 << 12
_ROWS_WAITED_FOR = 1 << 19
"""The rows that are retained at most because a match among them is not shown yet."""


def run(
    deployment: Deployment,
    source: Source,
    *,
    shape: str = EVENTS,
    as_text: bool = False,
    progress: Progress = ignore,
    on_switch: OnSwitch = ignore,
    on_stop: OnStop = ignore,
    limits: Limits = NO_LIMITS,
) -> list[ShapeTable]:
    """The matches of all queries, in a table for each set of output columns, in the order of the queries. Those of one
    query are in order of detection. With `as_text` they are prepared for text output, which shows the events of a text
    file unchanged.

    A query that exceeds a limit is stopped: `on_stop` is called with the names of the queries that it answers and the
    reason, its state is released, and the others go on. It is an error if no other query is left."""
    stopping = Stopping(deployment, on_stop)
    rows_of = source if ROW in source.schema.names else None
    of = partial(OutputRun.of, shape=shape, rows_of=rows_of, is_text=as_text and rows_of is not None)
    running: list[Running] = []
    for operator in deployment.single_operators:
        if operator.prepared.graph is None:
            running.append(OperatorRun.start(operator, source, of, on_switch, stopping))
        else:
            running.append(ComposedRun.start(Common((operator,), {}), source, of, on_switch, stopping))
    running += [ComposedRun.start(common, source, of, on_switch, stopping) for common in deployment.common]
    running += [UnionRun.start(union, source, of, stopping) for union in deployment.unions]
    running += [GroupRun.start(group, source, of, stopping) for group in deployment.groups]
    rows = source.rows(list(dict.fromkeys(name for one in running for name in one.shown_input)))
    operators: Sequence[Operating[Found]] = running

    def read(events: int, matches: int) -> None:
        _require_memory(running, limits)
        progress(events, matches)

    for _ in one_pass(source, operators, rows, read):
        """The outputs have shown the matches."""
    return tables([shown for one in running for shown in one.shown], deployment.names)


def _require_memory(running: Sequence[Running], limits: Limits) -> None:
    """Stops the queries with the most state, while that of all together exceeds the limit."""
    most = limits.total_memory
    while most is not None and sum(one.state_bytes for one in running) > most:
        largest = max(running, key=lambda one: one.state_bytes)
        if not largest.stop_largest(most):
            return


@dataclass(slots=True)
class GroupRun:
    """The families of one key while they run."""

    group: FamilyGroup
    run: FamilyRun
    shown: list[OutputRun]
    queries: list[pa.Array]
    """The names of the queries of each output."""
    input_columns: Sequence[str]
    stopping: Stopping
    waiting: list[RuleMatches] = field(default_factory=list)
    """Matches that are not shown yet: many are shown at once."""
    reported: set[int] = field(default_factory=set)
    """The rules that were stopped."""

    @classmethod
    def start(cls, group: FamilyGroup, source: Source, of: Showing, stopping: Stopping) -> GroupRun:
        shown = [of(output, output.prepared) for output in group.outputs]
        read = columns_read(group.families.read, source.schema)
        names = [pa.array(output.names, pa.string()) for output in group.outputs]
        columns = list(dict.fromkeys([*read, *(name for one in shown for name in one.retained)]))
        return cls(group, FamilyRun.start(group.families, group.limits), shown, names, columns, stopping)

    @property
    def state_bytes(self) -> int:
        return self.run.state_bytes

    def stop_largest(self, limit: int) -> bool:
        stopped = self.run.stop_largest(limit)
        self._report()
        return stopped

    def _report(self) -> None:
        for rule, problem in self.run.stopped.items():
            if rule not in self.reported and problem is not None:
                self.reported.add(rule)
                self.stopping(self.group.queries_of(rule), problem)

    @property
    def shown_input(self) -> list[str]:
        return [name for one in self.shown for name in one.retained]

    @property
    def oldest_input(self) -> int:
        return min(self.run.oldest, self._oldest_waiting)

    @property
    def _oldest_waiting(self) -> int:
        return min((int(found.rows[:, 0].min()) for found in self.waiting), default=END_OF_TIME)

    def step(self, batch: pa.RecordBatch, rows: Rows) -> Iterator[RuleMatches]:
        for found in self.run.step(batch):
            self._report()
            if len(found):
                self.waiting.append(found)
            yield found
        is_much = sum(map(len, self.waiting)) >= _SHOWN_AT_ONCE
        if is_much or self._oldest_waiting < self.run.rows - _ROWS_WAITED_FOR:
            self._show(rows)

    def finish(self, rows: Rows) -> Iterator[RuleMatches]:
        found = self.run.finish()
        self._report()
        self.waiting.append(found)
        self._show(rows)
        yield found

    def _show(self, rows: Rows) -> None:
        """Shows the matches of each rule as the queries that it answers do."""
        if not self.waiting:
            return
        found = RuleMatches.together(self.waiting)
        self.waiting = []
        for one, names, lines in zip(self.shown, self.queries, self.group.answers, strict=True):
            for line in lines if len(found) else ():
                numbers = line[found.rules]
                chosen = np.flatnonzero(numbers >= 0)
                own, variables = found.of(chosen), one.prepared.binding.variables
                columns = {var: pa.array(own.rows[:, at]) for at, var in enumerate(variables)}
                one.show(MatchPositions(columns, own.start, own.end), rows, names.take(pa.array(numbers[chosen])))


@dataclass(slots=True)
class UnionRun:
    """Operators whose trees are one plan, while they run. Once one of them exceeds a limit, each runs by itself."""

    union: United
    stepper: Stepper
    members: list[OperatorRun]
    """Each operator; its matches are shown here too."""
    names: list[str]
    """The columns that the kernel reads."""
    retained: deque[_Retained] = field(default_factory=deque)
    """The batches of which an operator needs events to run by itself."""
    read: int = 0
    """The number of events so far."""
    is_divided: bool = False
    """Whether each operator runs by itself."""

    @classmethod
    def start(cls, union: United, source: Source, of: Showing, stopping: Stopping) -> UnionRun:
        kernel = union.prepared.kernel
        assert kernel is not None
        members = [OperatorRun.start(operator, source, of, ignore, stopping) for operator in union.operators]
        return cls(union, Stepper.start(kernel, source.count), members, read_by_plan(union.prepared, source.schema))

    @property
    def shown(self) -> list[OutputRun]:
        return [shown for one in self.members for shown in one.shown]

    @property
    def input_columns(self) -> Sequence[str]:
        return list(dict.fromkeys([*self.names, *(name for one in self.members for name in one.input_columns)]))

    @property
    def shown_input(self) -> list[str]:
        """The columns of the input that its queries show."""
        return [name for one in self.members for name in one.shown_input]

    @property
    def oldest_input(self) -> int:
        """The position of the oldest row of the input that a later match may show."""
        if self.is_divided:
            return min(one.oldest_input for one in self.members)
        held = [oldest for one in self.shown if (oldest := one.oldest) is not None]
        return min([self.stepper.oldest, *held])

    @property
    def state_bytes(self) -> int:
        if self.is_divided:
            return sum(one.state_bytes for one in self.members)
        return sum(array.nbytes for array in self.stepper.state)

    def stop_largest(self, limit: int) -> bool:
        self._divide()
        return max(self.members, key=lambda one: one.state_bytes).stop_largest(limit)

    def step(self, batch: pa.RecordBatch, rows: Rows) -> Iterator[Positions]:
        if not batch.num_rows:
            return
        if not self.is_divided:
            try:
                found = list(self.stepper.step(for_kernel(batch, self.names)))
            except Explosion:
                self._divide()
            else:
                self._retain(batch)
                yield from self._shown(found, rows)
                return
        for one in self.members:
            yield from one.step(batch, rows)

    def finish(self, rows: Rows) -> Iterator[Positions]:
        if not self.is_divided:
            try:
                found = list(self.stepper.finish_lazily())
            except Explosion:
                self._divide()
            else:
                yield from self._shown(found, rows)
                for one in self.members:
                    one.is_done = True
        for one in self.members:
            yield from one.finish(rows)

    def _shown(self, found: Sequence[Positions], rows: Rows) -> Iterator[Positions]:
        steps = [tuple(one.operator.prepared.variables) for one in self.members]
        for positions in found:
            for number, own in of_members(positions, steps):
                self.members[number].show(own, rows)
            yield positions

    def _retain(self, batch: pa.RecordBatch) -> None:
        time = int(batch.column(TIME)[-1].as_py())
        self.retained.append(_Retained(self.read, time, batch))
        self.read += batch.num_rows
        oldest = time - horizon(self.union.prepared.plan)
        while self.retained[0].last < oldest:
            self.retained.popleft()

    def _divide(self) -> None:
        """Lets each operator run by itself, from the retained events on."""
        if self.is_divided:
            return
        self.is_divided = True
        self.stepper.state = self.stepper.kernel.initial()
        first = self.retained[0].first if self.retained else self.read
        for one in self.members:
            one.catch_up(first, [part.batch for part in self.retained])
        self.retained.clear()


class _Retained(NamedTuple):
    """A batch, the position of its first event, and the time of its last."""

    first: int
    last: int
    batch: pa.RecordBatch


Running = OperatorRun | ComposedRun | GroupRun | UnionRun
