"""The events that a query over other queries reads, in order: those of the input and the derived ones.

An event can be merged only once no earlier one can still be derived. A derived event stands right after the event that
completed it (ruling 15): the order is by end, then by arrival, which is the position in the input of the completing
event, then by the order of the queries.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from cepheid.codegen.columns import attribute, types_of
from cepheid.engine.composition import OTHER, DerivedType, Reading
from cepheid.engine.match_ids import IDENTITY, IDENTITY_TYPE, relabelled
from cepheid.engine.splicing import Selected, Splice, joined_batches
from cepheid.events import HISTORY
from cepheid.io.event_columns import one_type
from cepheid.io.rows import START, TIME, TYPE
from cepheid.runtime.kernel import END_OF_TIME, Array

ARRIVAL = "\0arrival"
"""The position in the input of an event, or of the event that completed a derived one."""
OWN = (TYPE, TIME, START, ARRIVAL, HISTORY, IDENTITY)


@dataclass(slots=True)
class Merge:
    """The events that a query reads: those of the input and the derived ones that it uses, which wait until no earlier
    one can come."""

    reading: Reading
    schema: pa.Schema
    """The columns that the query reads, and TYPE, TIME, START and ARRIVAL; HISTORY if it or a later query
    needs it, IDENTITY if matches are identified."""
    drops: bool
    """Whether events of types that the query does not bind are left out."""
    waiting: list[Selected] = field(default_factory=list)
    """Of the input, in order."""
    derived: list[pa.RecordBatch] = field(default_factory=list)
    """For each used node, in the order of `reading.derived`."""
    reached: int = -END_OF_TIME
    """No later event ends before this time."""

    @classmethod
    def of(cls, reading: Reading, names: Sequence[str], drops: bool, has_histories: bool, is_identified: bool) -> Merge:
        fields = [reading.shape.schema.field(name) for name in names]
        # Without derived events, points need no start.
        times = [name for name in (TIME, START, ARRIVAL) if name != START or reading.shape.columns.start is not None]
        own = [pa.field(TYPE, pa.dictionary(pa.int32(), pa.string())), *(pa.field(n, pa.int64()) for n in times)]
        own += [pa.field(HISTORY, pa.list_(pa.int64()))] if has_histories else []
        own += [pa.field(IDENTITY, IDENTITY_TYPE)] if is_identified else []
        schema = pa.schema([*fields, *own])
        none = schema.empty_table().to_batches() or [pa.RecordBatch.from_pylist([], schema)]
        return cls(reading, schema, drops, [], [none[0]] * len(reading.derived))

    @property
    def used(self) -> Collection[str]:
        """The nodes whose events it reads."""
        return {derived.node for derived in self.reading.derived}

    def new(self) -> Merge:
        """The same, without events."""
        return Merge(self.reading, self.schema, self.drops, [], [events.slice(0, 0) for events in self.derived])

    def add_input(self, batch: pa.RecordBatch) -> None:
        """Adds events of the input, which have TYPE, TIME, ARRIVAL, and START if they have a duration."""
        types, wanted, relevant = batch.column(TYPE), self.reading.types, np.ones(batch.num_rows, bool)
        if self.drops and wanted is not None:
            names, codes = types_of(batch, TYPE)
            relevant = np.array([name in wanted for name in names])[codes]
        elif OTHER in self.reading.schema.types:
            types = _with_other(types, self.reading)
            batch = batch.set_column(batch.schema.get_field_index(TYPE), TYPE, types)
        arrays = [self._input_column(batch, column) for column in self.schema]
        selected = Selected.of(pa.RecordBatch.from_arrays(arrays, schema=self.schema), relevant)
        if selected.count:
            self.waiting.append(selected)

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
                self.derived[number] = joined_batches([self.derived[number], self._labelled(derived, events)])

    def _labelled(self, derived: DerivedType, events: pa.RecordBatch) -> pa.RecordBatch:
        label, count = derived.label, events.num_rows
        columns = {derived.column(name): name for name in derived.columns if name in events.schema.names}
        arrays = []
        for column in self.schema:
            if column.name == TYPE:
                arrays.append(one_type(label, count))
            elif column.name == IDENTITY:
                arrays.append(relabelled(events.column(IDENTITY), label))
            elif column.name in OWN:
                arrays.append(events.column(column.name))
            elif column.name in columns:
                found = events.column(columns[column.name])
                arrays.append(found if found.type == column.type else found.cast(column.type))
            else:
                arrays.append(pa.nulls(count, column.type))
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def filter(self, selected: Callable[[pa.RecordBatch], pa.RecordBatch]) -> None:
        """Leaves out some of the events that wait."""
        self.waiting = [Selected(batch) for one in self.waiting if (batch := selected(one.copied())).num_rows]
        self.derived = list(map(selected, self.derived))

    def release(self, reached: int) -> pa.RecordBatch | None:
        """The events that end before a time before which no event comes any more."""
        if not self.derived:
            waiting, self.waiting = self.waiting, []
            return _copied(waiting)
        self.reached = max(self.reached, reached)
        times = np.concatenate([np.empty(0, np.int64), *(one.numbers(TIME) for one in self.waiting)])
        ready = int(np.searchsorted(times, self.reached))
        released, self.waiting = _split(self.waiting, ready)
        parts, ranks = [], []
        for number, events in enumerate(self.derived):
            is_ready = numbers_of(events, TIME) < self.reached
            if is_ready.any():
                whole = bool(is_ready.all())
                parts.append(events if whole else events.filter(pa.array(is_ready)))
                ranks.append(np.full(parts[-1].num_rows, number))
                self.derived[number] = events.slice(0, 0) if whole else events.filter(pa.array(~is_ready))
        if not parts:
            return _copied(released)
        ends, arrivals = (np.concatenate([numbers_of(part, name) for part in parts]) for name in (TIME, ARRIVAL))
        is_later, is_same = ends[1:] > ends[:-1], ends[1:] == ends[:-1]
        is_sorted = len(parts) == 1 and bool(np.all(is_later | (is_same & (arrivals[1:] >= arrivals[:-1]))))
        order = np.arange(len(ends)) if is_sorted else np.lexsort((np.concatenate(ranks), arrivals, ends))
        # After the completing event, or after all events before a later end (that of a timer).
        arrived = np.concatenate([np.empty(0, np.int64), *(one.numbers(ARRIVAL) for one in released)])
        after = np.maximum(
            np.searchsorted(arrived, arrivals[order], "right"), np.searchsorted(times[:ready], ends[order], "left")
        )
        return Splice.of(released, joined_batches(parts), order, after).rows()


def _copied(selected: Sequence[Selected]) -> pa.RecordBatch | None:
    return joined_batches([one.copied() for one in selected]) if selected else None


def _split(selected: Sequence[Selected], count: int) -> tuple[list[Selected], list[Selected]]:
    """The first rows, as many, and the others."""
    first, others = [], []
    for one in selected:
        before, after = one.split(min(count, one.count))
        first += [before] if before.count else []
        others += [after] if after.count else []
        count -= before.count
    return first, others


def _as_types(types: pa.Array) -> pa.Array:
    """Event types with 32-bit indices."""
    if types.type == pa.dictionary(pa.int32(), pa.string()):
        return types
    return pa.DictionaryArray.from_arrays(types.indices.cast(pa.int32()), types.dictionary.cast(pa.string()))


def _with_other(types: pa.Array, reading: Reading) -> pa.Array:
    """The event types, with one name for all that were not known before the run, or that a label hides."""
    names = ["" if name is None else name for name in types.dictionary.to_pylist()]
    seen = reading.schema.types.keys() - {derived.label for derived in reading.derived}
    known = [name if name in seen else OTHER for name in names]
    return types if known == names else pa.DictionaryArray.from_arrays(types.indices, pa.array(known, pa.string()))


def numbers_of(batch: pa.RecordBatch, name: str) -> Array:
    return np.asarray(batch.column(name))
