"""Tasks of Spark's Python workers: they sort the events of a partition by time and evaluate the query on them. One call
of a kernel evaluates all keys of a partition."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cepheid.codegen.columns import MASK
from cepheid.codegen.masks import masks
from cepheid.engine.first_matches import FirstMatches, first_matches
from cepheid.engine.gather import Gatherer
from cepheid.engine.layout import START as MATCH_START
from cepheid.engine.positions import MatchPositions, intervals, position_columns
from cepheid.engine.prepare import Prepared
from cepheid.engine.run import output_schema, run
from cepheid.engine.stepping import PIECE, Stepper
from cepheid.io.event_columns import in_stream_order, readable, starts_of, ticks_of, types_column
from cepheid.io.rows import START, TIME, WholeTable, one_batch
from cepheid.io.source import BATCH, Source, TableSource, columns_read
from cepheid.kernels.registry import kernel_for
from cepheid.physical import REFERENCE
from cepheid.runtime.kernel import Array, Positions

POSITION = "\ue000position"
"""The order of arrival, which decides between events of the same time."""
NO_EVENT = -1
"""The position of a row without an event: it ensures that there is a partition."""
MASKS = "\ue000mask"
SLICE = "\ue000slice"
KIND = "\ue000kind"
"""The event types that workers read from files, which may have a type for all their rows."""
ORDER = "\ue000order"
"""The sort key of LIMIT: the end and the start of a match, then the time and arrival of each of its events."""

BUCKET, BASE, EVENTS = "bucket", "base", "events"
PACKED = f"{BUCKET} int, {BASE} long, {EVENTS} binary"
"""The rows that are shuffled where events travel packed: the partition that they belong to, their offset in the
input, and the events as an Arrow stream."""

_MOST_BITS = 12
"""The most mask bits for which a table of all masks is small."""

MOST_ROWS = 1 << 15
"""Rows of an output batch; a row may be long."""


@dataclass(frozen=True, slots=True)
class Slices:
    """The time axis in slices of equal length, from `origin` on. A match belongs to the slice that it starts in. An
    event with duration may start before the origin, which is the first end."""

    origin: int
    length: int
    count: int
    before: int
    after: int

    def covers(self, number: int, ticks: Array) -> Array:
        """The events that a slice needs to find its matches."""
        start = self.origin + number * self.length
        covered: Array = (ticks >= start - self.before) & (ticks < start + self.length + self.after)
        return covered

    def owned(self, number: int, start: Array) -> Array:
        """The matches, by their start, that belong to a slice."""
        owned: Array = np.maximum((start - self.origin) // self.length, 0) == number
        return owned


@dataclass(frozen=True, slots=True)
class ImpliedTypes:
    """Where every variable has one type, the mask of an event implies its type: the type column, which is text, is not
    shuffled."""

    column: str
    types: tuple[str, ...]
    of_mask: tuple[int, ...]
    """The number of the type for each mask."""

    @classmethod
    def of(cls, prepared: Prepared, column: str | None) -> ImpliedTypes | None:
        plan, bound = prepared.plan, prepared.variables
        kinds = {i: bit.types for i, bit in enumerate(plan.bits) if bit.var in bound}
        is_read = column is None or column in (*plan.read, *plan.key)
        if is_read or len(plan.bits) > _MOST_BITS or any(len(types) != 1 for types in kinds.values()):
            return None
        names = tuple(dict.fromkeys(types[0] for types in kinds.values()))
        numbers = {i: names.index(types[0]) for i, types in kinds.items()}
        masks = range(1 << len(plan.bits))
        assert column is not None
        return cls(column, names, tuple(next((n for i, n in numbers.items() if mask >> i & 1), 0) for mask in masks))

    def restored(self, table: pa.RecordBatch) -> pa.RecordBatch:
        codes = np.array(self.of_mask, np.int32)[_numbers(table, MASKS)]
        return table.append_column(
            self.column, pa.DictionaryArray.from_arrays(codes, pa.array(self.types, pa.string()))
        )


@dataclass(frozen=True, slots=True)
class KernelTask:
    """Finds the matches among the events of a partition by a kernel."""

    prepared: Prepared
    """Without its kernel, which every worker makes for itself."""
    gatherer: Gatherer
    types: ImpliedTypes | None = None
    """The types of events, where their masks imply them."""
    type_column: str | None = None
    """The column of types, for a task that computes the masks itself."""
    slices: Slices | None = None
    packed: bool = False
    """Whether the events come packed, as `spark/reading.py` packs them."""
    read: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]] | None = None
    """Reads the shares of files whose numbers the task gets, where it also reads the events itself."""

    @property
    def schema(self) -> pa.Schema:
        is_cut = self.prepared.query.limit is not None
        return self.gatherer.schema.append(pa.field(ORDER, pa.list_(pa.int64()))) if is_cut else self.gatherer.schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        batches = batches if self.read is None else self.read(batches)
        table = (unpacked if self.packed else together)(batches)
        if table is not None:
            table = table if self.types is None else self.types.restored(table)
            for output in self._outputs(table):
                for start in range(0, output.num_rows, MOST_ROWS):
                    yield output.slice(start, MOST_ROWS)
        settle_memory()

    def _outputs(self, table: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        plan, columns = self.prepared.plan, self.prepared.input.columns
        times = ticks_of(table.column(columns.time), columns.time)
        starts = starts_of(table, columns, times)
        order = in_stream_order(times, starts, _numbers(table, POSITION) if POSITION in table.schema.names else None)
        if order is not None:
            times, starts = times[order], None if starts is None else starts[order]
        types = types_column(table, columns) if self.gatherer.lacks else None
        types = types if types is None or order is None else types.take(pa.array(order))
        rows = WholeTable(table, times, order, types, starts)
        names = columns_read([*plan.read, *plan.key], table.schema)
        arrays = [*(readable(table.column(name)) for name in names), self._masks(table)]
        if order is not None:
            arrays = [array.take(pa.array(order)) for array in arrays]
        of_times = {TIME: pa.array(times)} if starts is None else {TIME: pa.array(times), START: pa.array(starts)}
        events = pa.RecordBatch.from_arrays([*arrays, *of_times.values()], names=[*names, MASK, *of_times])
        for matches in self._matches(events, rows):
            if self.slices is not None:
                matches = matches.chosen(self.slices.owned(table.column(SLICE)[0].as_py(), matches.start))
            if len(matches.start):
                yield self._shown(matches, rows)

    def _masks(self, table: pa.RecordBatch) -> pa.Array:
        if MASKS in table.schema.names:
            return table.column(MASKS).cast(pa.int64())
        columns = pa.RecordBatch.from_arrays(list(map(readable, table.columns)), names=table.schema.names)
        return pa.array(masks(self.prepared.plan, columns, self.type_column or "").view(np.int64))

    def _matches(self, events: pa.RecordBatch, rows: WholeTable) -> Iterator[MatchPositions]:
        prepared = self.prepared
        stepper = Stepper.start(kernel_for(prepared.plan), events.num_rows)
        limit = prepared.query.limit
        pieces = stepper.step(events, BATCH if limit is None else PIECE)
        answers: Iterator[Positions] = chain(pieces, stepper.finish_lazily())
        if limit is not None:
            first = FirstMatches.of(limit, stepper.kernel.steps, prepared.binding)
            answers = iter([first_matches(stepper, answers, limit, rows, first)[0]])
        for positions in answers:
            if len(positions):
                columns = position_columns(positions, prepared.binding)
                yield MatchPositions(columns, *intervals(positions, rows), positions.reasons)

    def _shown(self, matches: MatchPositions, rows: WholeTable) -> pa.RecordBatch:
        shown = self.gatherer.table(matches, rows)
        return shown if self.prepared.query.limit is None else shown.append_column(ORDER, _order_of(matches, rows))


@dataclass(frozen=True, slots=True)
class WholeTask:
    """Runs the query over all events of a partition, as `engine.run` does: its rows, or those of a source that the task
    reads itself."""

    prepared: Prepared
    """Without its kernel."""
    source: Source | None
    as_text: bool
    slices: Slices | None = None
    packed: bool = False
    """Whether the events come packed, as `spark/reading.py` packs them."""
    read: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]] | None = None
    """Reads the shares of files whose numbers the task gets, where it also reads the events itself."""

    @property
    def schema(self) -> pa.Schema:
        return spark_types(output_schema(self.prepared, self.as_text))

    @property
    def compiled(self) -> Prepared:
        """The query with its kernel."""
        is_compiled = self.prepared.plan.evaluator != REFERENCE
        return replace(self.prepared, kernel=kernel_for(self.prepared.plan)) if is_compiled else self.prepared

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        source, number = self.opened(batches)
        if source is not None:
            for batch in run(self.compiled, source, as_text=self.as_text).batches:
                if self.slices is not None:
                    starts = ticks_of(batch.column(MATCH_START), MATCH_START)
                    batch = batch.filter(pa.array(self.slices.owned(number, starts)))
                yield from pa.Table.from_batches([batch]).cast(self.schema).to_batches(MOST_ROWS)
        settle_memory()

    def opened(self, batches: Iterator[pa.RecordBatch]) -> tuple[Source | None, int]:
        """The events of the task, and the number of its slice; None where Spark made an empty partition."""
        return (self.source, 0) if self.source is not None else self._rows(batches)

    def _rows(self, batches: Iterator[pa.RecordBatch]) -> tuple[TableSource | None, int]:
        """The rows in order."""
        batches = batches if self.read is None else self.read(batches)
        table, columns = (unpacked if self.packed else together)(batches), self.prepared.source_columns
        if table is None or not table.num_rows:  # the pack of a file without rows is not empty itself
            return None, 0
        if self.packed:
            number = table.column(SLICE)[0].as_py()
            source = TableSource.of(pa.Table.from_batches([table]).drop_columns([SLICE]), replace(columns, type=KIND))
            return source, number
        number = table.column(SLICE)[0].as_py() if SLICE in table.schema.names else 0
        table = table.filter(pc.not_equal(table.column(POSITION), NO_EVENT))
        ticks = ticks_of(table.column(columns.time), columns.time)
        order = in_stream_order(ticks, starts_of(table, columns, ticks), _numbers(table, POSITION))
        ordered = table if order is None else table.take(pa.array(order))
        own = [name for name in (POSITION, SLICE) if name in table.schema.names]
        return TableSource.of(pa.Table.from_batches([ordered]).drop_columns(own), columns), number


@dataclass(frozen=True, slots=True)
class Renamed:
    """A task whose columns travel under generated names: PySpark reads `*` and `a.b` as something else."""

    task: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
    names: tuple[str, ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from self.task(batch.rename_columns(list(self.names)) for batch in batches)


def spark_types(schema: pa.Schema) -> pa.Schema:
    """The schema in types that Spark has: no dictionaries, no nanoseconds, no unsigned integers."""
    return pa.schema([(field.name, _spark_type(field.type)) for field in schema])


def _spark_type(kind: pa.DataType) -> pa.DataType:
    is_ = pa.types
    if is_.is_dictionary(kind) or is_.is_run_end_encoded(kind):
        return _spark_type(kind.value_type)
    if is_.is_timestamp(kind):
        return pa.timestamp("us", kind.tz)
    if is_.is_struct(kind):
        return pa.struct([(field.name, _spark_type(field.type)) for field in kind])
    if is_.is_list(kind) or is_.is_large_list(kind) or is_.is_fixed_size_list(kind):
        return pa.list_(_spark_type(kind.value_type))
    return next((held for is_one, held in _SPARK_TYPES if is_one(kind)), kind)


_SPARK_TYPES: Sequence[tuple[Callable[[pa.DataType], bool], pa.DataType]] = (
    (pa.types.is_uint64, pa.decimal128(20, 0)),
    (pa.types.is_unsigned_integer, pa.int64()),
    (pa.types.is_float16, pa.float32()),
    (pa.types.is_large_string, pa.string()),
    (pa.types.is_string_view, pa.string()),
    (pa.types.is_large_binary, pa.binary()),
    (pa.types.is_fixed_size_binary, pa.binary()),
    (pa.types.is_date64, pa.date32()),
    (pa.types.is_duration, pa.duration("us")),
)


def together(batches: Iterator[pa.RecordBatch]) -> pa.RecordBatch | None:
    """All rows of a partition; None where it is empty, as partitions often are."""
    filled = [batch for batch in batches if batch.num_rows]
    return one_batch(pa.Table.from_batches(filled)) if filled else None


def unpacked(batches: Iterator[pa.RecordBatch]) -> pa.RecordBatch | None:
    """The events of a partition that come in packs, in the order of arrival."""
    packs: list[tuple[int, pa.Table]] = []
    for batch in batches:
        for bucket, base, events in zip(*(batch.column(name) for name in (BUCKET, BASE, EVENTS)), strict=True):
            table = pa.ipc.open_stream(events.as_buffer()).read_all()
            number = pa.scalar(bucket.as_py(), pa.int32())
            packs.append((base.as_py(), widened(table).append_column(SLICE, pa.repeat(number, table.num_rows))))
    packs.sort(key=lambda pack: pack[0])
    return one_batch(pa.concat_tables([table for _, table in packs])) if packs else None


# --- narrow columns ---------------------------------------------------------------------------------------------------

_BASE, _TYPE = b"base", b"type"
_WIDE = (pa.types.is_int64, pa.types.is_timestamp)


def narrowed(events: pa.RecordBatch) -> pa.RecordBatch:
    """The same events in fewer bytes: 64-bit integers as 32-bit differences from their minimum, where these fit.
    `widened` restores them."""
    arrays, fields = [], []
    for field, column in zip(events.schema, events.columns, strict=True):
        if any(test(field.type) for test in _WIDE) and column.null_count < len(column):
            numbers = column.cast(pa.int64())
            edges = pc.min_max(numbers)
            least, most = edges["min"].as_py(), edges["max"].as_py()
            if most - least < 1 << 32:
                encoding = {_BASE: str(least), _TYPE: pa.schema([field]).serialize().to_pybytes()}
                column = pc.subtract(numbers, least).cast(pa.uint32())
                field = pa.field(field.name, pa.uint32(), metadata=encoding)
        arrays.append(column)
        fields.append(field)
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def widened(events: pa.Table) -> pa.Table:
    arrays, fields = [], []
    for field, column in zip(events.schema, events.columns, strict=True):
        encoding = field.metadata or {}
        if _BASE in encoding:
            field = pa.ipc.read_schema(pa.py_buffer(encoding[_TYPE])).field(0)
            column = pc.add(column.cast(pa.int64()), int(encoding[_BASE])).cast(field.type)
        arrays.append(column)
        fields.append(field)
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


def _numbers(table: pa.RecordBatch, name: str) -> Array:
    return np.asarray(table.column(name))


def _order_of(matches: MatchPositions, rows: WholeTable) -> pa.Array:
    arrivals = _numbers(rows.table, POSITION)
    orders: list[list[int]] = [[int(end), int(start)] for end, start in zip(matches.end, matches.start, strict=True)]
    counts: list[list[int]] = [[-(2**63)] for _ in orders]  # less than any time: fewer events come first
    for column in matches.variables.values():
        for order, count, bound in zip(orders, counts, column.to_pylist(), strict=True):
            group = bound if isinstance(bound, list) else [] if bound is None else [bound]
            count.append(-len(group))
            for position in group:
                row = position if rows.order is None else rows.order[position]
                order.extend((int(rows.times[position]), int(arrivals[row])))
    orders = [order + count for order, count in zip(orders, counts, strict=True)]
    return pa.array(orders, pa.list_(pa.int64()))


_settled = 0
"""How many modules were loaded when memory was last settled."""


def settle_memory() -> None:
    """Spark collects garbage after every task and traverses all of Numba and Arrow. Objects of loaded modules stay, so
    they are excluded from collection."""
    global _settled
    if len(sys.modules) > _settled:
        gc.collect()
        gc.freeze()
        _settled = len(sys.modules)
