"""Evaluates the queries that feed another one: their matches become events, merged with the input in order.

Each query of the graph is evaluated once. It reads the input merged with the events of the queries that it uses. An
event can be merged only once no earlier one can still be derived, so every query has a *frontier*: no match that it
outputs later ends before it. A derived event stands right after the event that completed it (ruling 15): the order is
by end, then by arrival, which is the position in the input of the completing event, then by the order of the queries.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from cepheid.checks import EVENT_ID
from cepheid.dialect import COMBINATIONS
from cepheid.engine import thresholds
from cepheid.engine.adaptation import stepper_for
from cepheid.engine.composition import Composed
from cepheid.engine.derived_order import events_of_orders, match_orders, match_permutation, order_permutation
from cepheid.engine.first_identities import first_of_each
from cepheid.engine.gather import Gatherer, OutputColumn, with_types
from cepheid.engine.histories import histories, require_timers
from cepheid.engine.layout import INTERVAL
from cepheid.engine.match_ids import IDENTITY, EventIds, LastEvents, identity_column
from cepheid.engine.merging import ARRIVAL, OWN, Merge, numbers_of
from cepheid.engine.positions import MatchPositions, first_and_last, intervals, position_columns
from cepheid.engine.prepare import Prepared, PreparedNode, is_alone
from cepheid.engine.splicing import joined_batches
from cepheid.engine.stepping import Stepper
from cepheid.engine.thresholds import Counting
from cepheid.errors import Explosion
from cepheid.events import HISTORY
from cepheid.io.event_columns import for_kernel
from cepheid.io.rejects import Reject
from cepheid.io.rows import ROW, START, TIME, TYPE, RecentRows, Rows
from cepheid.io.source import Source, columns_read
from cepheid.kernels.registry import kernel_for
from cepheid.optimize.distribution import may_drop
from cepheid.pattern import Kleene, Query, walk
from cepheid.runtime.kernel import END_OF_TIME, Array, Kernel, Positions, joined_positions

NOTHING_SHOWN: Mapping[str, Sequence[str]] = {}
_ORDER = "\0order"
"""The order of matches with equal ends and starts, for LIMIT."""


# --- the events that a query derives ----------------------------------------------------------------------------------


@dataclass(slots=True)
class Evaluating:
    """A query while it runs over merged events."""

    prepared: Prepared
    merge: Merge
    stepper: Stepper
    rows: RecentRows
    label: str | None = None
    """Of a query that others use."""
    problem: Explosion | None = None
    """The limit that it exceeded."""

    @classmethod
    def start(
        cls, prepared: Prepared, merge: Merge, kernel: Kernel, expected: int | None, label: str | None = None
    ) -> Evaluating:
        names = [name for name in merge.schema.names if name not in (TYPE, TIME, START)]
        return cls(prepared, merge, stepper_for(prepared, kernel, expected), RecentRows(names), label)

    def step(self, reached: int) -> Iterator[Positions]:
        """The matches that are certain when no event comes that ends before `reached`."""
        try:
            yield from self._step(reached)
        except Explosion as problem:
            self.problem = problem if self.label is None else problem.of_query(self.label)
            raise self.problem from None

    def _step(self, reached: int) -> Iterator[Positions]:
        ready = self.merge.release(reached)
        if ready is not None:
            self.rows.add(ready)
            read = [n for n in columns_read(self.prepared.attributes, self.merge.schema) if n not in OWN]
            yield from self.stepper.step(for_kernel(ready, read))
        if reached >= END_OF_TIME:
            yield from self.stepper.finish_lazily()
        elif reached > -END_OF_TIME and not self.prepared.plan.counts_events:
            yield from self.stepper.advance_lazily(reached - 1)

    def forget(self) -> None:
        """Drops the rows that no later match contains."""
        self.rows.forget(self.oldest)

    def forget_strings(self, now: int) -> None:
        """Forgets strings that no window reaches."""
        plan = self.prepared.plan
        if plan.window is not None and not plan.counts_events and not self.stepper.compiled.needs_ranks:
            self.stepper.encoder.forget_strings(now, int(plan.window))

    @property
    def oldest(self) -> int:
        """The position of the oldest event that a later match may contain."""
        return min(self.stepper.oldest, self.stepper.encoder.rows)


@dataclass(slots=True)
class Deriving:
    """A query of the graph while it runs: its matches become events for others."""

    node: PreparedNode
    gatherer: Gatherer
    run: Evaluating
    wanted: tuple[str, ...]
    """The attributes that others read; of a node that counts, those of the single events."""
    outer: tuple[str, ...] = ()
    """Of a node that counts, the attributes that others read."""
    exact: bool = True
    """Whether the order of events that one event completes can matter to others."""
    frontier: int = -END_OF_TIME
    """No later match ends before this time."""
    held: list[pa.RecordBatch] = field(default_factory=list)
    """Of a query with LIMIT, the matches that an earlier one may still precede."""
    left: int | None = None
    """How many matches LIMIT still allows."""
    seen: set[Any] = field(default_factory=set)
    """The identities of the events so far, where they have some."""
    used: set[int] = field(default_factory=set)
    """The positions of the events that are in a match, if each is in at most one."""
    on_matches: Callable[[Positions, Rows], None] | None = None
    """Called with its matches, if a query shows them as they are."""

    @property
    def merge(self) -> Merge:
        return self.run.merge

    def step(self, reached: int) -> list[pa.RecordBatch]:
        """The events derived from those that end before a time before which no event comes any more."""
        # One event may complete matches in several parts, and their order is that of all of them.
        parts = [positions for positions in self.run.step(reached) if len(positions)]
        matches = joined_positions(parts) if parts else None
        if matches is not None and self.on_matches is not None:
            self.on_matches(matches, self.run.rows)
        found = [] if matches is None else [self._derived(matches)]
        self.run.forget()
        before, self.frontier = self.frontier, max(self.frontier, self._frontier(reached))
        if self.node.counting is not None:
            return self._counted(self.node.counting, found, before)
        return self._distinct(self._limited(found))

    def _counted(self, counting: Counting, found: list[pa.RecordBatch], before: int) -> list[pa.RecordBatch]:
        """The events about the single events that were found. `held` has those that later windows reach."""
        if not found and not self.held:
            return []
        rows = self._with_held(found)
        result = thresholds.step(counting, self.outer, ARRIVAL, rows, before, self.frontier)
        self.held = [] if result.held is None else [result.held]
        return [] if result.derived is None else [result.derived]

    def _with_held(self, found: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
        """The matches that waited have more columns if a query that read them is gone."""
        names = [name for one in found[:1] for name in one.schema.names]
        return joined_batches([*(one.select(names) if names else one for one in self.held), *found])

    @property
    def _is_ordered(self) -> bool:
        """Whether the first of its matches count, so that they must be in order. Those of one event are."""
        return (
            self.left is not None
            or self.node.prepared.query.consumes
            or (self.node.identity is not None and not is_alone(self.node.prepared.query))
        )

    def _frontier(self, reached: int) -> int:
        """A match with a trailing negation waits for a window after its start."""
        plan = self.node.prepared.plan
        if reached >= END_OF_TIME or not plan.ends_with_negation:
            return reached
        if plan.counts_events or plan.window is None:
            return -END_OF_TIME
        return reached - int(plan.window) - 1

    def _derived(self, positions: Positions) -> pa.RecordBatch:
        rows, (_, last) = self.run.rows, first_and_last(positions)
        columns = position_columns(positions, self.node.prepared.binding)
        start, end = intervals(positions, rows)
        matches = MatchPositions(columns, start, end)
        arrival = rows.numbers(ARRIVAL, last)
        order = match_permutation(columns, start, end, arrival, self.exact or self._is_ordered)
        events = self.gatherer.table(matches, rows) if self.gatherer.columns else None
        arrays = [] if events is None else events.columns
        names = [] if events is None else events.schema.names
        for name, values in ((TIME, end), (START, start), (ARRIVAL, arrival)):
            arrays, names = [*arrays, pa.array(values, pa.int64())], [*names, name]
        if HISTORY in self.wanted:
            points = histories(columns, rows, self.node.prepared.plan.core)
            arrays, names = [*arrays, points], [*names, HISTORY]
        if self.node.prepared.match_ids is not None:
            words = self.node.prepared.match_ids.words(columns, rows, len(end))
            arrays, names = [*arrays, identity_column(words)], [*names, IDENTITY]
        for name in self.wanted:
            if name not in names:
                values = start if name == INTERVAL[0] else end
                found = pa.array(values) if name in INTERVAL else pa.nulls(len(end))
                arrays, names = [*arrays, found], [*names, name]
        if self._is_ordered:
            arrays, names = [*arrays, match_orders(columns)], [*names, _ORDER]
        derived = pa.RecordBatch.from_arrays(arrays, names=names)
        return derived if order is None else derived.take(pa.array(order))

    def _limited(self, found: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
        if not self._is_ordered or not (found or self.held):
            return found
        waiting = self._with_held(found)
        is_ready = numbers_of(waiting, TIME) < self.frontier
        ends, starts, orders = numbers_of(waiting, TIME), numbers_of(waiting, START), waiting.column(_ORDER)
        order = order_permutation(ends, starts, orders)
        ready = order[is_ready[order]][: self.left]
        if self.node.prepared.query.consumes:
            ready = ready[self._consumes(orders.take(pa.array(ready)))]
            waits, _ = events_of_orders(orders.filter(pa.array(~is_ready)))
            oldest = min(self.run.oldest, int(waits.min(initial=END_OF_TIME)))
            self.used = {position for position in self.used if position >= oldest}
        if self.left is None:
            self.held = [] if is_ready.all() else [waiting.filter(pa.array(~is_ready))]
            return [waiting.take(pa.array(ready))] if len(ready) else []
        self.left -= len(ready)
        self.held = [waiting.filter(pa.array(~is_ready))] if self.left and not is_ready.all() else []
        return [waiting.take(pa.array(np.sort(ready)))] if len(ready) else []

    def _consumes(self, orders: pa.ListArray) -> Array:
        """Whether no event of each match (see `match_orders`) is in one before."""
        positions, bounds = events_of_orders(orders)
        events = positions.tolist()
        is_free = np.zeros(len(orders), bool)
        for number, (first, last) in enumerate(itertools.pairwise(bounds.tolist())):
            match = events[first:last]
            if self.used.isdisjoint(match):
                self.used.update(match)
                is_free[number] = True
        return is_free

    def _distinct(self, found: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
        """The first event of each identity."""
        if self.node.identity is None or not found:
            return found
        events = joined_batches(found)
        is_new = first_of_each(events.column(EVENT_ID), self.seen)
        return [events if is_new.all() else events.filter(pa.array(is_new))]


# --- the graph --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Wiring:
    """The columns that each query of a graph reads and derives, for outputs that read some columns."""

    merges: tuple[Merge, ...]
    """The events of each query that the graph feeds, before the first."""
    nodes: tuple[tuple[PreparedNode, Gatherer, Merge, tuple[str, ...], tuple[str, ...]], ...]
    """Each node with the derived columns, its events, the attributes of its matches, and those that others read."""
    input_columns: tuple[str, ...]
    events: EventIds | None = None
    """The identifiers of the events of the input, if matches are identified."""

    @classmethod
    def of(cls, prepared: Prepared, names: Sequence[str], input: pa.Schema) -> Wiring:
        """`names` are the columns of the merged events that the query reads, `input` the columns of the input."""
        return cls.of_several([(prepared, names)], input)

    @classmethod
    def of_several(
        cls,
        fed: Sequence[tuple[Prepared, Sequence[str]]],
        input: pa.Schema,
        shown: Mapping[str, Sequence[str]] = NOTHING_SHOWN,
    ) -> Wiring:
        """The graph that feeds several queries, which identify their matches alike. Equal nodes are one. `shown` has
        the columns of the events of a node that are shown besides."""
        of_node: dict[str, PreparedNode] = {}
        merges: list[Merge] = []
        for prepared, names in fed:
            assert prepared.graph is not None
            of_node.update((node.name, node) for node in prepared.graph.nodes if node.name not in of_node)
            ids, plan = prepared.match_ids, prepared.plan
            own = [name for name in names if name != IDENTITY]
            merges.append(Merge.of(prepared.graph.reading, own, may_drop(plan), plan.has_histories, ids is not None))
        consumers, nodes = [*merges], []
        for node in reversed(of_node.values()):
            read_by_others = [n for consumer in consumers for n in _attributes_read(node.name, consumer)]
            wanted = tuple(dict.fromkeys([*read_by_others, *([] if node.identity is None else [EVENT_ID])]))
            outer = wanted
            if node.counting is not None:
                wanted = node.counting.read
            gatherer = _gatherer(node, wanted)
            needed = [*node.prepared.attributes, *gatherer.needed(), *shown.get(node.name, ())]
            read = columns_read(needed, node.reading.shape.schema)
            plan, passes_on = node.prepared.plan, HISTORY in wanted
            if passes_on and plan.core is not None:
                require_timers(plan.core)
            has_histories = plan.has_histories or (passes_on and bool(node.reading.derived))
            is_identified = node.prepared.match_ids is not None
            consumers.append(Merge.of(node.reading, read, may_drop(plan), has_histories, is_identified))
            nodes.append((node, gatherer, consumers[-1], wanted, outer))
        columns = [column.name for consumer in consumers for column in consumer.schema if column.name not in OWN]
        events = next((prepared.match_ids.events for prepared, _ in fed if prepared.match_ids is not None), None)
        columns += () if events is None else events.columns
        return cls(tuple(merges), tuple(reversed(nodes)), tuple(columns_read(columns, input)), events)


def _attributes_read(node: str, consumer: Merge) -> Iterator[str]:
    """The attributes of a node's events that a consumer reads."""
    names = set(consumer.schema.names)
    for derived in consumer.reading.derived:
        if derived.node == node:
            yield from (name for name in derived.columns if derived.column(name) in names)
            yield from [HISTORY] if HISTORY in names else []


def _gatherer(node: PreparedNode, wanted: Sequence[str]) -> Gatherer:
    shape = node.reading.shape
    schema = with_types(shape.schema).append(pa.field(TIME, pa.int64()))
    known = node.attributes if node.counting is None else node.counted
    chosen = [a for a in known if a.name in wanted and a.expr is not None]
    columns = tuple(OutputColumn(a.name, a.arrow, a.expr, a.of_branches) for a in chosen)
    variables = dict.fromkeys(node.prepared.variables, ())
    return Gatherer(node.prepared, schema, shape.columns.time, variables, columns, {}).with_lacks()


def _order_matters(query: Query) -> bool:
    """Whether the order of events with the same end can change the matches of a query."""
    combines = query.dialect.selection == COMBINATIONS and not query.dialect.ordered_by_position
    counts = query.window is not None and query.window.counts_events
    return not combines or counts or query.limit is not None or any(isinstance(n, Kleene) for n in walk(query.pattern))


def compiled(prepared: Prepared) -> Kernel:
    return prepared.kernel or kernel_for(prepared.plan)


@dataclass(slots=True)
class GraphRun:
    """The queries that feed others, while they run, each after those that it uses."""

    nodes: list[Deriving]
    merges: Sequence[Merge]
    """The events of the queries that they feed."""
    arrived: int = 0
    """The number of events of the input so far."""
    events: EventIds | None = None
    last: LastEvents = field(default_factory=LastEvents)
    """The last events of the input, with which later ones may be equal. A stream releases all events of a time at
    once, so they are not part of its state."""

    @classmethod
    def start(cls, wiring: Wiring, expected: int | None, kernel: Callable[[Prepared], Kernel] = compiled) -> GraphRun:
        nodes = []
        for node, gatherer, merge, wanted, outer in wiring.nodes:
            run = Evaluating.start(node.prepared, merge.new(), kernel(node.prepared), expected, node.label)
            consumers = [*wiring.merges, *(other for _, _, other, _, _ in wiring.nodes)]
            users = [one.reading.query for one in consumers if node.name in one.used]
            exact = any(map(_order_matters, users))
            nodes.append(Deriving(node, gatherer, run, wanted, outer, exact, left=node.prepared.query.limit))
        return cls(nodes, [merge.new() for merge in wiring.merges], events=wiring.events)

    @property
    def merge(self) -> Merge:
        """The events of the one query that they feed."""
        (merge,) = self.merges
        return merge

    @property
    def consumers(self) -> Iterator[Merge]:
        """The events that the queries read, here and after."""
        yield from (node.merge for node in self.nodes)
        yield from self.merges

    def add(self, batch: pa.RecordBatch) -> None:
        """Adds events of the input."""
        arrivals = np.arange(self.arrived, self.arrived + batch.num_rows)
        self.arrived += batch.num_rows
        numbered = batch.append_column(ARRIVAL, pa.array(arrivals, pa.int64()))
        if self.events is not None:
            words, self.last = self.events.words_of_batch(batch, self.last)
            numbered = numbered.append_column(IDENTITY, identity_column(words))
        for consumer in self.consumers:
            consumer.add_input(numbered)

    def derive(self, reached: int) -> int:
        """Derives the events that are certain when no event of the input comes that ends before `reached`. Returns the
        time before which no merged event of the one query comes any more."""
        for node in self.nodes:
            self.derive_of(node, reached)
        return self.reached(self.merge, reached)

    def derive_of(self, node: Deriving, reached: int) -> None:
        """Derives the events of a node, after those of the nodes that it uses."""
        events = node.step(self.reached(node.merge, reached))
        if events:
            derived = joined_batches(events)
            for consumer in self.consumers:
                consumer.add_derived(node.node.name, derived)

    def reached(self, merge: Merge, reached: int) -> int:
        """The time before which no event comes any more to a query, where no event of the input ends before
        `reached`."""
        return min([reached, *(node.frontier for node in self.nodes if node.node.name in merge.used)])


@dataclass(frozen=True, slots=True)
class ComposedSource(Composed):
    """A source with the events that other queries derive from it. It can be read once."""

    source: Source
    prepared: Prepared = field(kw_only=True)

    @property
    def has_nanoseconds(self) -> bool:
        return self.source.has_nanoseconds

    @property
    def rejected(self) -> int:
        return self.source.rejected

    def rejects(self) -> Iterator[Reject]:
        return self.source.rejects()

    def batches(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        wiring = Wiring.of(self.prepared, names, self.source.schema)
        running = GraphRun.start(wiring, self.count)
        for batch in self.source.batches(wiring.input_columns):
            if batch.num_rows:
                running.add(batch)
                merged = running.merge.release(running.derive(int(batch.column(TIME)[-1].as_py())))
                if merged is not None:
                    yield merged
        merged = running.merge.release(running.derive(END_OF_TIME))
        if merged is not None:
            yield merged

    def rows(self, names: Sequence[str]) -> Rows:
        return AllRows(names) if ROW in names else RecentRows(names)


class AllRows(RecentRows):
    """All rows of a source that was read row by row, which is small."""

    __slots__ = ()

    def forget(self, before: int) -> None:
        """Keeps all rows: the matches are shown at the end."""


def composed(prepared: Prepared, source: Source) -> Source:
    """The source that the kernel of a query reads."""
    if prepared.graph is None:
        return source
    return ComposedSource(source, prepared.graph.reading.shape, source.count, prepared=prepared)
