"""Rows for the oracle, and the oracle's matches as rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from cepheid.engine.layout import match_table
from cepheid.engine.prepare import Prepared
from cepheid.events import UNTYPED, Event
from cepheid.io.inputs import Columns
from cepheid.io.row_reader import Loaded
from cepheid.io.rows import events_of, one_batch
from cepheid.io.source import plain_layout, types_column
from cepheid.runtime.kernel import Array
from cepheid.semantics import Match


def oracle_events(
    prepared: Prepared, columns: Columns, names: Sequence[str], rows: pa.RecordBatch, ticks: Array
) -> list[Event]:
    """The events of rows in order, each with those of the named columns that its type has."""
    kinds = [UNTYPED if kind is None else kind for kind in types_column(rows, columns).to_pylist()]
    events = events_of(rows.select(list(names)), kinds, ticks.tolist(), range(len(ticks)), columns.time)
    known = prepared.schema.types
    return [
        replace(event, attributes={n: v for n, v in event.attributes.items() if n in known[event.type]})
        if event.type in known
        else event
        for event in events
    ]


def oracle_rows(prepared: Prepared, columns: Columns, input: pa.Schema, matches: Sequence[Match]) -> pa.RecordBatch:
    """Matches that are more than rows of the input, in a layout that does not depend on them."""
    loaded = Loaded([], prepared.schema, prepared.clock, time_column=columns.time)
    layout = dict.fromkeys(prepared.schema.types, plain_layout(input))
    return one_batch(match_table(prepared.query, matches, loaded, layout))
