"""Rows of a table in memory that are not events: without a valid time, or with a start after their end."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cepheid.errors import InputProblem
from cepheid.io.event_columns import is_naive, is_time, moments_of, starts_in_time, why_no_start
from cepheid.io.formats.text import timestamps, unfit_timestamps, usual_times
from cepheid.io.inputs import Columns
from cepheid.io.rejects import REASON, no_time
from cepheid.io.rows import one_batch, python_values
from cepheid.io.times import out_of_range, skipped_time, skipped_time_reason, unfit_time


def sifted(table: pa.Table, columns: Columns) -> tuple[pa.Table, Mapping[int, str]]:
    """The table with its times as timestamps, null where they are none, and the rows that are not events, each with the
    reason."""
    reasons: dict[int, str] = {}
    for noun, name in zip(("time", "start"), columns.times, strict=False):
        if table.schema.names.count(name) == 1:
            at = table.schema.get_field_index(name)
            table = table.set_column(at, name, _read(table.column(name), columns, noun, reasons))
    if columns.time in table.schema.names:
        batch = one_batch(table.select([name for name in columns.times if name in table.schema.names]))
        time = batch.column(columns.time)
        for row in np.flatnonzero(~is_time(time)).tolist():
            value = time.slice(row, 1)
            is_null = value.is_null(nan_is_null=True)[0].as_py()
            reasons.setdefault(row, no_time(columns.time) if is_null else out_of_range(python_values(value)[0]))
        if columns.start in batch.schema.names:
            for row in np.flatnonzero(~starts_in_time(batch, columns)).tolist():
                reasons.setdefault(row, why_no_start(batch, row, columns))
    return table, dict(sorted(reasons.items()))


def _read(column: pa.ChunkedArray, columns: Columns, noun: str, reasons: dict[int, str]) -> pa.ChunkedArray:
    """A column of times with null in place of values that are none, whose rows get a reason."""
    zone = columns.text.zone
    if zone is not None and is_naive(column.type):
        moments, skipped = moments_of(column, zone)
        for row in np.flatnonzero(np.asarray(skipped)).tolist():
            reasons.setdefault(row, skipped_time_reason(str(column[row]), zone, noun))
        return pc.if_else(skipped, pa.scalar(None, moments.type), moments)
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        return column
    strings = column.cast(pa.string())
    text = columns.text
    usual = usual_times(strings, text.time_format, text.zone) if text.rewrites_times else strings
    unfit = unfit_timestamps(usual) & np.asarray(usual.is_valid())
    for row in np.flatnonzero(unfit).tolist():
        written = usual[row].as_py()
        reasons.setdefault(row, skipped_time(written, noun) or unfit_time(written, noun, text.time_format))
    parsed = timestamps(pc.if_else(pa.array(unfit), pa.scalar(None, pa.string()), usual))
    assert parsed is not None, "each string that is left is a timestamp"
    return parsed


def rejected_rows(events: Any, rows: Sequence[int], reasons: Sequence[str]) -> Any:
    """Rows of a table, in a table of the same kind, with the reasons as their last column."""
    library = type(events).__module__.partition(".")[0]
    names = list(events.columns) if library in ("pandas", "polars") else events.schema.names
    if REASON in names:
        raise InputProblem(f"the events have a column `{REASON}`", hint="rename it: rejected rows have reasons there")
    if library == "pandas":
        return events.iloc[list(rows)].assign(**{REASON: list(reasons)})
    if library == "polars":
        polars = sys.modules["polars"]
        return events[list(rows)].with_columns(polars.Series(REASON, list(reasons), polars.String))
    table = pa.Table.from_batches([events]) if isinstance(events, pa.RecordBatch) else pa.table(events)
    return table.take(pa.array(rows, pa.int64())).append_column(REASON, pa.array(reasons, pa.string()))
