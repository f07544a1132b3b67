"""Operators over other queries while they run: an inner query that several of them use is evaluated once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from cepheid.deploy.deployment import Common, Operator
from cepheid.deploy.family_run import MOST
from cepheid.deploy.operator_run import OperatorRun, Showing, Stopping
from cepheid.deploy.outputs import OutputRun
from cepheid.engine.adaptation import OnSwitch
from cepheid.engine.derivation import Deriving, GraphRun, Wiring
from cepheid.engine.merging import Merge
from cepheid.engine.positions import intervals
from cepheid.engine.prepare import PreparedNode
from cepheid.errors import Explosion, TooMuchMemory
from cepheid.io.rows import TIME, RecentRows, Rows
from cepheid.io.source import Source
from cepheid.runtime.kernel import END_OF_TIME, Positions


@dataclass(slots=True)
class _Fed:
    """An operator that reads events that others derive."""

    run: OperatorRun
    merge: Merge
    rows: RecentRows
    """The events that it reads."""
    nodes: frozenset[str]
    """The queries that feed it."""

    def step(self, reached: int) -> Iterator[Positions]:
        """The matches of the events that end before a time before which no event comes any more."""
        events = self.merge.release(reached)
        if events is not None:
            self.rows.add(events)
            yield from self.run.step(events, self.rows)
            self.rows.forget(self.run.oldest_input)

    def finish(self) -> Iterator[Positions]:
        yield from self.run.finish(self.rows)


@dataclass(slots=True)
class _Shown:
    """An operator whose matches are those of a query that feeds others."""

    operator: Operator
    outputs: list[OutputRun]
    nodes: frozenset[str]
    """This query, and those that feed it."""
    stopping: Stopping
    found: list[Positions] = field(default_factory=list)
    """The matches since they were last counted."""
    is_done: bool = False

    def show(self, positions: Positions, rows: Rows) -> None:
        start, end = intervals(positions, rows)
        for one in self.outputs:
            one.add(positions, start, end, rows)
        self.found.append(positions)

    def stop(self, problem: Explosion) -> None:
        self.is_done = True
        self.stopping(self.operator.names, problem)


@dataclass(slots=True)
class ComposedRun:
    """Operators and the queries that feed them."""

    graph: GraphRun
    input_columns: Sequence[str]
    fed: list[_Fed]
    at_nodes: list[_Shown]

    @classmethod
    def start(cls, common: Common, source: Source, of: Showing, on_switch: OnSwitch, stopping: Stopping) -> ComposedRun:
        runs = [OperatorRun.start(operator, source, of, on_switch, stopping) for operator in common.fed]
        shown: dict[str, _Shown] = {}
        for name, operator in common.shown.items():
            outputs = [of(output, common.inner[name].prepared) for output in operator.outputs]
            shown[name] = _Shown(operator, outputs, frozenset(_used(name, common.inner)), stopping)
        columns = {name: [column for one in each.outputs for column in one.retained] for name, each in shown.items()}
        wiring = Wiring.of_several([(run.operator.prepared, run.input_columns) for run in runs], source.schema, columns)
        graph = GraphRun.start(wiring, source.count)
        for node in graph.nodes:
            if node.node.name in shown:
                node.on_matches = shown[node.node.name].show
        fed = [
            _Fed(run, merge, RecentRows(run.shown_input), frozenset(run.operator.feeding))
            for run, merge in zip(runs, graph.merges, strict=True)
        ]
        return cls(graph, wiring.input_columns, fed, [*shown.values()])

    @property
    def shown(self) -> list[OutputRun]:
        return [
            *(shown for one in self.fed for shown in one.run.shown),
            *(shown for one in self.at_nodes for shown in one.outputs),
        ]

    @property
    def shown_input(self) -> list[str]:
        """The columns of the input that its queries show: they show those of the events that they read."""
        return []

    @property
    def oldest_input(self) -> int:
        """The graph retains what it needs."""
        return END_OF_TIME

    @property
    def state_bytes(self) -> int:
        return sum(map(_node_bytes, self.graph.nodes)) + sum(one.run.state_bytes for one in self.fed)

    def stop_largest(self, limit: int) -> bool:
        problem = TooMuchMemory(limit, None, MOST)
        node = max(self.graph.nodes, key=_node_bytes, default=None)
        one = max(self.fed, key=lambda one: one.run.state_bytes)
        if node is not None and _node_bytes(node) >= one.run.state_bytes:
            self._stop(node, problem)
        else:
            one.run.stop_largest(limit)
        self._release()
        return True

    def step(self, batch: pa.RecordBatch, rows: Rows) -> Iterator[Positions]:
        if batch.num_rows and self.graph.nodes:
            self.graph.add(batch)
            yield from self._derived(int(batch.column(TIME)[-1].as_py()))

    def finish(self, rows: Rows) -> Iterator[Positions]:
        yield from self._derived(END_OF_TIME)
        for one in self.fed:
            yield from one.finish()

    def _derived(self, reached: int) -> Iterator[Positions]:
        """The matches over the input and the events that are derived from it."""
        for node in [*self.graph.nodes]:
            if not any(one is node for one in self.graph.nodes):  # it fed only operators that are stopped by now
                continue
            try:
                self.graph.derive_of(node, reached)
            except Explosion as problem:
                self._stop(node, problem)
        for shown in self.at_nodes:
            found, shown.found = shown.found, []
            yield from found
        for one in self.fed:
            if not one.run.is_done:
                yield from one.step(self.graph.reached(one.merge, reached))
        self._release()

    def _stop(self, node: Deriving, problem: Explosion) -> None:
        """Stops the operators that a query feeds."""
        for one in self.fed:
            if node.node.name in one.nodes and not one.run.is_done:
                one.run.stop(problem)
        for shown in self.at_nodes:
            if node.node.name in shown.nodes and not shown.is_done:
                shown.stop(problem)
        self._release()

    def _release(self) -> None:
        """Ends the queries that no operator needs any more."""
        used = {name for one in self.fed if not one.run.is_done for name in one.nodes}
        used |= {name for one in self.at_nodes if not one.is_done for name in one.nodes}
        self.graph.nodes = [node for node in self.graph.nodes if node.node.name in used]
        self.graph.merges = [one.merge for one in self.fed if not one.run.is_done]
        for one in self.fed:
            if one.run.is_stopped:
                one.rows.forget(END_OF_TIME)


def _used(name: str, nodes: Mapping[str, PreparedNode]) -> set[str]:
    """A query and those that feed it."""
    return {name}.union(*(_used(one.node, nodes) for one in nodes[name].reading.derived))


def _node_bytes(node: Deriving) -> int:
    return sum(array.nbytes for array in node.run.stepper.state)
