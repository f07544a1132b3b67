"""Queries of a bucket that others feed, while they run: equal ones are evaluated once for all that they feed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from cepheid.deploy.families import VERSION
from cepheid.engine.derivation import Deriving, Evaluating, GraphRun
from cepheid.errors import Explosion
from cepheid.runtime.kernel import Positions
from cepheid.streaming import graph_state
from cepheid.streaming.bucket_context import BucketContext
from cepheid.streaming.plan import StreamQuery

Memory = Mapping[int, tuple[bytes, bytes]]


@dataclass(slots=True)
class FedQueries:
    """Some queries by their numbers, and those that feed them."""

    context: BucketContext
    queries: Mapping[int, StreamQuery]
    graph: GraphRun
    outputs: dict[int, Evaluating]
    nodes: dict[str, Deriving]
    """The queries that feed others by the names of their states."""

    @classmethod
    def start(
        cls,
        context: BucketContext,
        queries: Mapping[int, StreamQuery],
        expected: int,
        memory: Memory,
        inner: Mapping[str, bytes],
    ) -> FedQueries:
        """With the states of those that have one."""
        graph = GraphRun.start(context.wiring(tuple(queries)), expected, context.kernel_of)
        outputs = {
            number: Evaluating.start(query.prepared, merge, context.kernel_of(query.prepared), expected)
            for (number, query), merge in zip(queries.items(), graph.merges, strict=True)
        }
        names = {of: name for query in queries.values() for of, name in query.inner.items()}
        nodes = {names[node.node.name]: node for node in graph.nodes}
        for name, node in nodes.items():
            if name in inner:
                graph_state.restore_node(graph, node, inner[name])
        for number, output in outputs.items():
            if number in memory:
                graph_state.restore(graph, output, memory[number][0])
        return cls(context, queries, graph, outputs, nodes)

    @property
    def evaluated(self) -> list[Evaluating]:
        return [*(node.run for node in self.graph.nodes), *self.outputs.values()]

    def leave_out(self, dropped: Callable[[pa.RecordBatch], pa.RecordBatch]) -> None:
        """Leaves out some of the events that wait."""
        for one in self.evaluated:
            one.merge.filter(dropped)

    def step(self, released: pa.RecordBatch, watermark: int) -> dict[int, list[Positions]]:
        """The matches of each query. All are evaluated before any is shown: if one exceeds a limit, the others are
        evaluated again."""
        since = next(iter(self.queries.values())).since  # that of all
        if since and VERSION in released.schema.names:
            released = released.filter(pc.greater_equal(released.column(VERSION), since))
        if released.num_rows:
            names = self.context.wiring(tuple(self.queries)).input_columns
            self.graph.add(self.context.plan.reader.typed_batch(released, names))
        for node in self.graph.nodes:
            self.graph.derive_of(node, watermark)
        return {n: list(one.step(self.graph.reached(one.merge, watermark))) for n, one in self.outputs.items()}

    def exceeding(self, problem: Explosion) -> tuple[pa.RecordBatch | None, list[int]]:
        """The event at which a limit is exceeded, None if no single event does, and the queries that need the one that
        exceeds it."""
        (one,) = (one for one in self.evaluated if one.problem is problem)
        row = None if problem.row is None else one.rows.take(one.rows.names, pa.array([problem.row]))
        node = next((name for name, node in self.nodes.items() if node.run is one), None)
        if node is None:
            return row, [number for number, output in self.outputs.items() if output is one]
        return row, [number for number, query in self.queries.items() if node in query.inner.values()]

    def saved(self, last: int) -> tuple[dict[int, tuple[bytes, bytes]], dict[str, bytes]]:
        """The states of the queries, and of those that feed them, after all events of times up to `last`."""
        for one in self.outputs.values():
            one.forget()
        for one in self.evaluated:
            one.forget_strings(last)
        memory = {n: (graph_state.save(self.graph, one), b"") for n, one in self.outputs.items()}
        return memory, {name: graph_state.save_node(self.graph, node) for name, node in self.nodes.items()}
