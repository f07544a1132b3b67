"""A source whose events are all at hand: a table, or files."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from cepheid.acquire.intervals import END
from cepheid.acquire.requests import Request
from cepheid.detection.source_filter import Filters
from cepheid.errors import shown
from cepheid.io.asked_source import NO_FILTERS, Deliver, Description, described
from cepheid.io.event_log import EventLog
from cepheid.io.inputs import Columns
from cepheid.io.merged import as_columns
from cepheid.io.rows import TYPE
from cepheid.io.source import Source


@dataclass(slots=True)
class LogSource:
    """A log whose events are all at hand: a table, or files. It answers at once."""

    log: EventLog
    schema: pa.Schema
    filters: Filters
    attributes: Mapping[str, Collection[str]] = field(default_factory=dict)
    """The attributes of each type."""

    @property
    def name(self) -> str:
        return self.log.name

    @classmethod
    def of(cls, name: str, source: Source) -> LogSource:
        """The log of the events of files or of a table."""
        table, columns = events_of(name, source), source.columns
        log = EventLog.of(name, table, columns)
        return cls(log, table.schema, Filters(table.schema, columns), attributes_of(source, log.streams))

    def describe(self, filters: Mapping[str, str] = NO_FILTERS) -> Description:
        return described(
            self.log,
            self.schema,
            self.filters.columns.time,
            END,
            kept=self.filters.kept(filters),
            attributes=self.attributes,
        )

    def ask(self, request: Request, deliver: Deliver) -> None:
        deliver(self.log.answer(request, request.begin, keep=self.filters.keep(request)))

    def cancel(self, last: int) -> None:
        """Requests are answered at once."""

    def close(self) -> None:
        """Holds nothing open."""


def attributes_of(source: Source, types: Iterable[str]) -> dict[str, Collection[str]]:
    """The attributes of each event type. Every event of a table has all columns."""
    known = source.attributes or {}
    return {kind: list(known.get(kind, source.schema.names)) for kind in types}


def _with_types(batch: pa.RecordBatch, names: list[str], columns: Columns) -> pa.RecordBatch:
    """The columns of the events, with one that holds their types."""
    types = batch.column(TYPE).cast(pa.string())
    if columns.type in names:
        at = names.index(columns.type)
        arrays = [types if i == at else batch.column(n) for i, n in enumerate(names)]
        return pa.RecordBatch.from_arrays(arrays, names=names)
    return pa.RecordBatch.from_arrays([types, *map(batch.column, names)], names=[columns.type, *names])


def events_of(name: str, source: Source) -> pa.Table:
    """All events of a source, with a column that holds their types. `name` is that of the source, for messages."""
    source = as_columns(source, f"`{shown(name, 200)}`")
    names = source.schema.names
    parts = [_with_types(batch, names, source.columns) for batch in source.batches(names)]
    if parts:
        return pa.Table.from_batches(parts)
    return pa.schema([source.schema.field(name) for name in names]).empty_table()
