"""Evaluates the queries that feed another one: their matches become events, merged with the input in order.

Each query of the graph is evaluated once. It reads the input merged with the events of the queries that it uses. An
event can be merged only once no earlier one can still be derived, so every query has a *frontier*: no match that it
outputs later ends before it. A derived event stands right after the event that completed it (ruling 15): the order is
by end, then by arrival, which is the position in the input of the completing event, then by the order of the queries.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from cepheid.codegen.columns import attribute, types_of
from cepheid.engine.composition import OTHER, DerivedType, Reading
from cepheid.engine.gather import Gatherer, OutputColumn
from cepheid.engine.layout import INTERVAL
from cepheid.engine.positions import MatchPositions, first_and_last, intervals, position_columns
from cepheid.engine.prepare import Prepared, PreparedGraph, PreparedNode
from cepheid.engine.stepping import Stepper
from cepheid.io.inputs import Columns
from cepheid.io.rejects import Reject
from cepheid.io.rows import ROW, START, TIME, TYPE, RecentRows, Rows, one_batch
from cepheid.io.source import Attributes, Source, columns_read, for_kernel, one_type
from cepheid.kernels.registry import kernel_for
from cepheid.optimize.distribution import may_drop
from cepheid.runtime.kernel import END_OF_TIME, Array, Positions

ARRIVAL = "\0arrival"
"""The position in the input of an event, or of the event that completed a derived one."""
_OWN = (TYPE, TIME, START, ARRIVAL)
_ORDER = "\0order"
"""The order of matches with equal ends and starts, for LIMIT."""


# --- events of a query in order ---------------------------------------------------------------------------------------


@dataclass(slots=True)
class Merge:
    """The events that a query reads: those of the input and the derived ones that it uses, which wait until no earlier
    one can come."""

    reading: Reading
    schema: pa.Schema
    """The columns that the query reads, and TYPE, TIME, START and ARRIVAL."""
    drops: bool
    """Whether events of types that the query does not bind are left out."""
    waiting: list[pa.RecordBatch] = field(default_factory=list)
    """Of the input, in order."""
    derived: list[pa.RecordBatch] = field(default_factory=list)
    """For each used node, in the order of `reading.derived`."""
    reached: int = -END_OF_TIME
    """No later event ends before this time."""

    @classmethod
    def of(cls, reading: Reading, names: Sequence[str], drops: bool) -> Merge:
        fields = [reading.shape.schema.field(name) for name in names]
        own = [pa.field(TYPE, pa.dictionary(pa.int32(), pa.string())), *(pa.field(n, pa.int64()) for n in _OWN[1:])]
        schema = pa.schema([*fields, *own])
        none = schema.empty_table().to_batches() or [pa.RecordBatch.from_pylist([], schema)]
        return cls(reading, schema, drops, [], [none[0]] * len(reading.derived))

    def add_input(self, batch: pa.RecordBatch) -> None:
        """Adds events of the input, which have TYPE, TIME, ARRIVAL, and START if they have a duration."""
        types, wanted = batch.column(TYPE), self.reading.types
        if self.drops and wanted is not None:
            names, codes = types_of(batch, TYPE)
            relevant = np.array([name in wanted for name in names])[codes]
            if not relevant.all():
                batch = batch.filter(pa.array(relevant))
        elif wanted is None:
            types = _with_other(types, self.reading)
            batch = batch.set_column(batch.schema.get_field_index(TYPE), TYPE, types)
        arrays = [self._input_column(batch, column) for column in self.schema]
        if batch.num_rows:
            self.waiting.append(pa.RecordBatch.from_arrays(arrays, schema=self.schema))

    def _input_column(self, batch: pa.RecordBatch, column: pa.Field) -> pa.Array:
        if column.name == START and START not in batch.schema.names:
            return batch.column(TIME)
        if column.name == TYPE:
            return _as_types(batch.column(TYPE))
        found = attribute(batch, column.name)
        if found is None:
            return pa.nulls(batch.num_rows, column.type)
        return found if found.type == column.type else found.cast(column.type)

    def add_derived(self, node: str, events: pa.RecordBatch) -> None:
        """Adds events of a node, under each label by which the query uses it."""
        for number, derived in enumerate(self.reading.derived):
            if derived.node == node:
                self.derived[number] = _joined([self.derived[number], self._labelled(derived, events)])

    def _labelled(self, derived: DerivedType, events: pa.RecordBatch) -> pa.RecordBatch:
        label, count = derived.label, events.num_rows
        columns = {derived.column(name): name for name in derived.columns if name in events.schema.names}
        arrays = []
        for column in self.schema:
            if column.name == TYPE:
                arrays.append(one_type(label, count))
            elif column.name in _OWN:
                arrays.append(events.column(column.name))
            elif column.name in columns:
                found = events.column(columns[column.name])
                arrays.append(found if found.type == column.type else found.cast(column.type))
            else:
                arrays.append(pa.nulls(count, column.type))
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def release(self, reached: int) -> pa.RecordBatch | None:
        """The events that end before a time before which no event comes any more."""
        if not self.derived:
            released, self.waiting = _joined(self.waiting) if self.waiting else None, []
            return released
        self.reached = max(self.reached, reached)
        base = _joined(self.waiting) if self.waiting else None
        ready = 0 if base is None else int(np.searchsorted(_numbers(base, TIME), self.reached))
        self.waiting = [] if base is None or ready == base.num_rows else [base.slice(ready)]
        parts, ranks = [], []
        for number, events in enumerate(self.derived):
            is_ready = _numbers(events, TIME) < self.reached
            if is_ready.any():
                whole = bool(is_ready.all())
                parts.append(events if whole else events.filter(pa.array(is_ready)))
                ranks.append(np.full(parts[-1].num_rows, number))
                self.derived[number] = events.slice(0, 0) if whole else events.filter(pa.array(~is_ready))
        released = None if base is None or not ready else base.slice(0, ready)
        if not parts:
            return released
        derived = _joined(parts)
        ends, arrivals = _numbers(derived, TIME), _numbers(derived, ARRIVAL)
        order = np.lexsort((np.concatenate(ranks), arrivals, ends))
        if released is None:
            return derived.take(pa.array(order))
        # After the completing event, or after all events before a later end (that of a timer).
        after = np.maximum(
            np.searchsorted(_numbers(released, ARRIVAL), arrivals[order], "right"),
            np.searchsorted(_numbers(released, TIME), ends[order], "left"),
        )
        places = after + np.arange(len(order))
        chosen = np.empty(released.num_rows + len(order), np.int64)
        is_derived = np.zeros(len(chosen), bool)
        is_derived[places] = True
        chosen[is_derived] = released.num_rows + order
        chosen[~is_derived] = np.arange(released.num_rows)
        return _joined([released, derived]).take(pa.array(chosen))


def _as_types(types: pa.Array) -> pa.Array:
    """Event types with 32-bit indices."""
    if types.type == pa.dictionary(pa.int32(), pa.string()):
        return types
    return pa.DictionaryArray.from_arrays(types.indices.cast(pa.int32()), types.dictionary.cast(pa.string()))


def _with_other(types: pa.Array, reading: Reading) -> pa.Array:
    """The event types, with one name for all that were not known before the run."""
    names = ["" if name is None else name for name in types.dictionary.to_pylist()]
    known = [name if name in reading.schema.types else OTHER for name in names]
    return types if known == names else pa.DictionaryArray.from_arrays(types.indices, pa.array(known, pa.string()))


def _numbers(batch: pa.RecordBatch, name: str) -> Array:
    return np.asarray(batch.column(name))


def _joined(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    filled = [batch for batch in batches if batch.num_rows] or list(batches[:1])
    if len(filled) == 1:
        return filled[0]
    return one_batch(pa.Table.from_batches(filled).unify_dictionaries())


# --- the events that a query derives ----------------------------------------------------------------------------------


@dataclass(slots=True)
class Deriving:
    """A query of the graph while it runs: its matches become events for others."""

    node: PreparedNode
    gatherer: Gatherer
    merge: Merge
    stepper: Stepper
    rows: RecentRows
    wanted: tuple[str, ...]
    """The attributes that others read."""
    frontier: int = -END_OF_TIME
    held: list[pa.RecordBatch] = field(default_factory=list)
    """Of a query with LIMIT, the matches that an earlier one may still precede."""
    left: int | None = None
    """How many matches LIMIT still allows."""

    @property
    def prepared(self) -> Prepared:
        return self.node.prepared

    def step(self, reached: int) -> list[pa.RecordBatch]:
        """The derived events of the events that end before a time before which no event comes any more."""
        ready = self.merge.release(reached)
        found: list[pa.RecordBatch] = []
        if ready is not None:
            self.rows.add(ready)
            read = columns_read(self.prepared.plan.attributes, self.merge.schema)
            for positions in self.stepper.step(for_kernel(ready, read)):
                found.extend(self._derived(positions))
        for positions in self._passing(reached):
            found.extend(self._derived(positions))
        self.rows.forget(self.stepper.oldest)
        self.frontier = self._frontier(reached)
        return self._limited(found)

    def _passing(self, reached: int) -> Iterator[Positions]:
        """The matches that become certain as time passes."""
        if reached >= END_OF_TIME:
            yield from self.stepper.finish_lazily()
        elif reached > -END_OF_TIME and not self.prepared.plan.counts_events:
            yield from self.stepper.advance_lazily(reached - 1)

    def _frontier(self, reached: int) -> int:
        """No later match ends before this time. A match with a trailing negation waits for a window after its
        start."""
        plan = self.prepared.plan
        if reached >= END_OF_TIME or not plan.ends_with_negation:
            return reached
        if plan.counts_events or plan.window is None:
            return -END_OF_TIME
        return reached - int(plan.window) - 1

    def _derived(self, positions: Positions) -> Iterator[pa.RecordBatch]:
        if not len(positions):
            return
        _, last = first_and_last(positions)
        columns = position_columns(positions, self.prepared.binding)
        start, end = intervals(positions, self.rows)
        matches = MatchPositions(columns, start, end)
        arrival = _numbers(self.rows.take([ARRIVAL], pa.array(last)), ARRIVAL)
        order = self._order(columns, start, end, arrival)
        events = self.gatherer.table(matches, self.rows) if self.gatherer.columns else None
        arrays = [] if events is None else events.columns
        names = [] if events is None else events.schema.names
        for name, values in ((TIME, end), (START, start), (ARRIVAL, arrival)):
            arrays, names = [*arrays, pa.array(values, pa.int64())], [*names, name]
        for name in self.wanted:
            if name not in names:
                values = start if name == INTERVAL[0] else end
                found = pa.array(values) if name in INTERVAL else pa.nulls(len(end))
                arrays, names = [*arrays, found], [*names, name]
        if self.left is not None:
            positions_in_order = np.stack(_match_keys(columns), axis=1).tolist()
            arrays, names = [*arrays, pa.array(positions_in_order, pa.list_(pa.int64()))], [*names, _ORDER]
        yield pa.RecordBatch.from_arrays(arrays, names=names).take(pa.array(order))

    def _order(self, columns: Mapping[str, pa.Array], start: Array, end: Array, arrival: Array) -> Array:
        """By end and arrival, then by start, then by the positions of the events (see `match_order`)."""
        order = np.lexsort((start, arrival, end))
        tied = np.flatnonzero(
            (end[order][1:] == end[order][:-1])
            & (arrival[order][1:] == arrival[order][:-1])
            & (start[order][1:] == start[order][:-1])
        )
        if not len(tied):
            return order
        keys = [*reversed(_match_keys(columns)), start, arrival, end]
        return np.lexsort(keys)

    def _limited(self, found: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
        if self.left is None or not (found or self.held):
            return found
        waiting = _joined([*self.held, *found])
        is_ready = _numbers(waiting, TIME) < self.frontier
        keys = list(zip(*(waiting.column(name).to_pylist() for name in (TIME, START, _ORDER)), strict=True))
        ready = sorted(np.flatnonzero(is_ready).tolist(), key=keys.__getitem__)[: self.left]
        self.left -= len(ready)
        self.held = [waiting.filter(pa.array(~is_ready))] if self.left and not is_ready.all() else []
        return [waiting.take(pa.array(sorted(ready)))] if ready else []


def _match_keys(columns: Mapping[str, pa.Array]) -> list[Array]:
    """The positions of the events of each match, variable by variable, then the number of events of each, more first.
    Lists of different lengths are filled up with -1, which comes before every position."""
    groups = [
        (np.asarray(c.flatten()), np.asarray(c.value_lengths().fill_null(0), np.int64))
        if pa.types.is_list(c.type)
        else (np.asarray(c.drop_null()), np.asarray(c.is_valid()).astype(np.int64))
        for c in columns.values()
    ]
    count = len(groups[0][1])
    totals = np.sum([lengths for _, lengths in groups], axis=0)
    table = np.full((count, int(totals.max(initial=0))), -1, np.int64)
    filled = np.zeros(count, np.int64)
    for values, lengths in groups:
        rows = np.repeat(np.arange(count), lengths)
        within = np.arange(len(values)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        table[rows, filled[rows] + within] = values
        filled += lengths
    return [*table.T, *(-lengths for _, lengths in groups)]


# --- the graph --------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class GraphRun:
    """The queries that feed another one, while they run, each after those that it uses."""

    nodes: list[Deriving]
    merge: Merge
    """The events of the query that they feed."""
    input_columns: list[str]
    arrived: int = 0
    """The number of events of the input so far."""

    @classmethod
    def of(
        cls, graph: PreparedGraph, prepared: Prepared, names: Sequence[str], input: pa.Schema, expected: int | None
    ) -> GraphRun:
        """`names` are the columns of the merged events that the query reads, `input` the columns of the input."""
        merge = Merge.of(graph.reading, names, may_drop(prepared.plan))
        consumers: list[Merge] = [merge]
        nodes: list[Deriving] = []
        for node in reversed(graph.nodes):
            wanted = [name for consumer in consumers for name in _attributes_read(node.name, consumer)]
            nodes.append(_deriving(node, tuple(dict.fromkeys(wanted)), expected))
            consumers.append(nodes[-1].merge)
        read = [column.name for consumer in consumers for column in consumer.schema if column.name not in _OWN]
        return cls(nodes[::-1], merge, columns_read(read, input))

    def step(self, batch: pa.RecordBatch, reached: int) -> pa.RecordBatch | None:
        """Adds events of the input, after which none comes that ends before `reached`; returns the merged events that
        are certain."""
        arrivals = np.arange(self.arrived, self.arrived + batch.num_rows)
        self.arrived += batch.num_rows
        numbered = batch.append_column(ARRIVAL, pa.array(arrivals, pa.int64()))
        for consumer in (*(node.merge for node in self.nodes), self.merge):
            consumer.add_input(numbered)
        return self.advance(reached)

    def advance(self, reached: int) -> pa.RecordBatch | None:
        """The merged events that are certain when no event comes that ends before `reached`."""
        for node in self.nodes:
            events = node.step(self._reached(node.merge, reached))
            if events:
                derived = _joined(events)
                for consumer in (*(other.merge for other in self.nodes), self.merge):
                    consumer.add_derived(node.node.name, derived)
        return self.merge.release(self._reached(self.merge, reached))

    def _reached(self, merge: Merge, reached: int) -> int:
        used = {derived.node for derived in merge.reading.derived}
        return min([reached, *(node.frontier for node in self.nodes if node.node.name in used)])


def _attributes_read(node: str, consumer: Merge) -> Iterator[str]:
    """The attributes of a node's events that a consumer reads."""
    names = set(consumer.schema.names)
    for derived in consumer.reading.derived:
        if derived.node == node:
            yield from (name for name in derived.columns if derived.column(name) in names)


def _deriving(node: PreparedNode, wanted: tuple[str, ...], expected: int | None) -> Deriving:
    prepared, shape = node.prepared, node.reading.shape
    chosen = [a for a in node.attributes if a.name in wanted and a.expr is not None]
    schema = shape.schema
    for name, kind in ((TYPE, pa.dictionary(pa.int32(), pa.string())), (TIME, pa.int64())):
        schema = schema.append(pa.field(name, kind))
    gatherer = Gatherer(
        prepared,
        schema,
        shape.columns.time,
        {var: () for var in prepared.variables},
        tuple(OutputColumn(a.name, a.arrow, a.expr) for a in chosen),
        {},
    ).with_lacks()
    read = columns_read([*prepared.plan.attributes, *gatherer.needed()], shape.schema)
    merge = Merge.of(node.reading, read, may_drop(prepared.plan))
    kernel = prepared.kernel or kernel_for(prepared.plan)
    rows = RecentRows([*read, ARRIVAL])
    return Deriving(node, gatherer, merge, Stepper.start(kernel, expected), rows, wanted, left=prepared.query.limit)


@dataclass(frozen=True, slots=True)
class ComposedSource:
    """A source with the events that other queries derive from it. It can be read once."""

    prepared: Prepared
    graph: PreparedGraph
    source: Source

    @property
    def schema(self) -> pa.Schema:
        return self.graph.reading.shape.schema

    @property
    def columns(self) -> Columns:
        return self.graph.reading.shape.columns

    @property
    def attributes(self) -> Attributes | None:
        return self.graph.reading.shape.attributes

    @property
    def omits_nulls(self) -> bool:
        return self.source.omits_nulls

    @property
    def is_closed(self) -> bool:
        return self.source.is_closed

    @property
    def count(self) -> int | None:
        return self.source.count

    @property
    def epoch_unit(self) -> str | None:
        return self.source.epoch_unit

    @property
    def rejected(self) -> int:
        return self.source.rejected

    def rejects(self) -> Iterator[Reject]:
        return self.source.rejects()

    def sample(self, names: Sequence[str], size: int) -> pa.RecordBatch | None:
        return None

    def batches(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        running = GraphRun.of(self.graph, self.prepared, names, self.source.schema, self.count)
        for batch in self.source.batches(running.input_columns):
            if batch.num_rows:
                merged = running.step(batch, int(batch.column(TIME)[-1].as_py()))
                if merged is not None:
                    yield merged
        merged = running.advance(END_OF_TIME)
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
    return source if prepared.graph is None else ComposedSource(prepared, prepared.graph, source)
