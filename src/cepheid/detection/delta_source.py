"""A Delta table as a source that can be asked. A pull reads the files whose times and types may fit, by the statistics
in the table's log, and of these the row groups and rows that do, then the other columns of these rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import reduce
from operator import or_
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from cepheid.acquire.intervals import BEGINNING, END
from cepheid.acquire.requests import Answer, Request, RequestKey
from cepheid.detection.source_filter import Filters
from cepheid.errors import InputProblem, shown
from cepheid.io.asked_source import NO_FILTERS, SAMPLE, Deliver, Description, Failure, described
from cepheid.io.event_columns import in_stream_order, ticks_of
from cepheid.io.event_log import EventLog, Traffic, keys_of, of_keys
from cepheid.io.inputs import Columns
from cepheid.runtime.kernel import Array


@dataclass(slots=True)
class Reads:
    """What has been read of a table: files opened by pulls, and rows decoded."""

    files: int = 0
    rows: int = 0


@dataclass(slots=True)
class DeltaSource:
    """The version of a table at the time it was opened. `type` is the type of all its events, if they have none."""

    name: str
    path: str
    columns: Columns
    dataset: ds.Dataset
    schema: pa.Schema
    filters: Filters
    type: str | None = None
    sent: Traffic = field(default_factory=Traffic)
    reads: Reads = field(default_factory=Reads)

    @classmethod
    def open(cls, name: str, path: str, columns: Columns, type: str | None = None) -> DeltaSource:
        try:
            from deltalake import DeltaTable
            from deltalake.exceptions import DeltaError
        except ImportError:
            raise InputProblem(
                f"`{shown(name)}` is a Delta table, and the package `deltalake` is not installed",
                hint="pip install 'cepheid[delta]'",
            ) from None
        try:
            dataset = DeltaTable(path).to_pyarrow_dataset()
        except (DeltaError, OSError, ValueError) as problem:
            raise InputProblem(f"the Delta table `{shown(path, 200)}` cannot be read: {_first_line(problem)}") from None
        schema = dataset.schema
        needed = [*columns.times, *([] if type is not None else [columns.type])]
        for column in needed:
            if column not in schema.names:
                raise InputProblem(
                    f"the Delta table `{shown(path, 200)}` has no column `{shown(column)}`",
                    expected=", ".join(schema.names),
                )
        if columns.type not in schema.names:
            schema = schema.append(pa.field(columns.type, pa.string()))
        return cls(name, path, columns, dataset, schema, Filters(schema, columns), type)

    # --- the protocol -------------------------------------------------------------------------------------------------

    def describe(self, filters: Mapping[str, str] = NO_FILTERS) -> Description:
        """Counts and rates by type and time, and a model of the most recent events of each type."""
        names = [self.columns.time, *([] if self.type is not None else [self.columns.type])]
        times = self._typed(self.dataset.to_table(columns=names))
        kinds = times.column(self.columns.type)
        parts = []
        for kind in pc.unique(kinds).drop_null().to_pylist():
            own = _times(times.filter(pc.equal(kinds, kind)), self.columns)
            recent = int(np.partition(own, len(own) - SAMPLE)[len(own) - SAMPLE]) if len(own) > SAMPLE else BEGINNING
            parts.append(self._read(kind, max(recent, int(own.min())), int(own.max()), None))
        found = pa.concat_tables(parts) if parts else self.schema.empty_table()
        log = EventLog.of(self.name, found, self.columns)
        attributes = self._attributes(log)
        kept = self.filters.kept(filters)
        return described(log, self.schema, self.columns.time, END, kept=kept, attributes=attributes)

    def _attributes(self, log: EventLog) -> dict[str, list[str]]:
        """The attributes of each type. A type lacks a column that is empty for all its events, and not for those of
        another type, as everywhere where files are read (ruling 13). Columns are read only as far as they are empty for
        the recent events of a type."""
        own = (self.columns.type, *self.columns.times)
        names = [name for name in self.dataset.schema.names if name not in own]
        filled = {
            kind: {n for n in names if stored.events.column(n).null_count < len(stored.times)}
            for kind, stored in log.streams.items()
        }
        if len(filled) > 1:
            self._add_filled(filled, [n for n in names if not all(n in found for found in filled.values())])
        used = set().union(*filled.values())
        lacking = {kind: used - found for kind, found in filled.items()}
        return {kind: [n for n in self.schema.names if n not in lacking[kind]] for kind in filled}

    def _add_filled(self, filled: Mapping[str, set[str]], names: list[str]) -> None:
        """Adds those of the columns that some event of a type has a value of."""
        if not names:
            return
        any_valid = reduce(or_, [ds.field(name).is_valid() for name in names])
        for batch in self.dataset.to_batches(columns=[self.columns.type, *names], filter=any_valid):
            kinds = batch.column(self.columns.type)
            for name in names:
                for kind in pc.unique(kinds.filter(batch.column(name).is_valid())).drop_null().to_pylist():
                    filled[kind].add(name)
            if all(name in found for name in names for found in filled.values()):
                return

    def ask(self, request: Request, deliver: Deliver) -> None:
        try:
            deliver(self._answer(request))
        except (OSError, pa.ArrowException) as problem:
            deliver(Failure(request, f"the Delta table cannot be read: {_first_line(problem)}"))

    def _answer(self, request: Request) -> Answer:
        keep = self.filters.keep(request)
        wanted = request.columns if keep is None else None
        table = self._read(request.stream, request.begin, request.end, wanted, request.key)
        events = of_keys(_one_batch(table), request)
        order = in_stream_order(ticks_of(events.column(self.columns.time), self.columns.time), None)
        if order is not None:
            events = events.take(pa.array(order))
        if keep is not None:
            events = keep(events)
        if request.columns is not None:
            events = events.select([name for name in request.columns if name in events.schema.names])
        self.sent.add(events)
        return Answer(self.name, request.stream, request.begin, request.end, BEGINNING, events, keys_of(request))

    def cancel(self, last: int) -> None:
        """Requests are answered at once."""

    def close(self) -> None:
        """Holds nothing open."""

    # --- reading ------------------------------------------------------------------------------------------------------

    def _read(
        self, kind: str, begin: int, end: int, names: tuple[str, ...] | None, key: RequestKey | None = None
    ) -> pa.Table:
        """The events of a type in a range of time."""
        if self.type is not None and kind != self.type:
            return self.schema.empty_table()
        condition = self._times(begin, end)
        if self.type is None:
            own = ds.field(self.columns.type) == kind
            condition = own if condition is None else condition & own
        if key is not None and key[0] in self.dataset.schema.names:
            own = ds.field(key[0]).isin(list(key[1]))
            condition = own if condition is None else condition & own
        columns = [name for name in self.dataset.schema.names if names is None or name in names]
        self.reads.files += sum(1 for _ in self.dataset.get_fragments(filter=condition))
        table = self.dataset.to_table(columns=columns, filter=condition)
        self.reads.rows += table.num_rows
        return self._typed(table)

    def _times(self, begin: int, end: int) -> ds.Expression | None:
        kind, name = self.dataset.schema.field(self.columns.time).type, self.columns.time
        parts = []
        if begin > BEGINNING:
            parts.append(ds.field(name) >= _moment(begin, kind, up=True))
        if end < END:
            parts.append(ds.field(name) <= _moment(end, kind, up=False))
        return parts[0] if len(parts) == 1 else parts[0] & parts[1] if parts else None

    def _typed(self, table: pa.Table) -> pa.Table:
        if self.type is None:
            return table
        if self.columns.type in table.schema.names:
            table = table.drop_columns([self.columns.type])
        return table.append_column(self.columns.type, pa.array([self.type] * table.num_rows, pa.string()))


def _times(table: pa.Table, columns: Columns) -> Array:
    return ticks_of(table.column(columns.time).combine_chunks(), columns.time)


def _one_batch(table: pa.Table) -> pa.RecordBatch:
    batches = table.combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], table.schema)


_PER_UNIT = {"s": 1_000_000, "ms": 1_000, "us": 1}


def _moment(ticks: int, kind: pa.DataType, up: bool) -> Any:
    """Ticks as a value of the time column: of timestamps they are microseconds. Between two values it is the one in the
    range."""
    if not pa.types.is_timestamp(kind):
        return pa.scalar(ticks, pa.int64())
    if kind.unit == "ns":  # which are truncated to ticks
        return pa.scalar(ticks * 1_000 + (0 if up else 999), pa.int64()).cast(kind)
    per = _PER_UNIT[kind.unit]
    return pa.scalar(-(-ticks // per) if up else ticks // per, pa.int64()).cast(kind)


def _first_line(problem: Exception) -> str:
    return str(problem).splitlines()[0] if str(problem) else type(problem).__name__
