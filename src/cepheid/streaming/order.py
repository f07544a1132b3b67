"""The order of the events that a bucket releases: it does not depend on how the stream was cut into batches."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cepheid.io.rows import START, TIME, as_json, python_values
from cepheid.runtime.kernel import Array
from cepheid.streaming.plan import StreamPlan


def by_time(events: pa.RecordBatch) -> pa.RecordBatch:
    """Events in time order, in which most arrive."""
    times = np.asarray(events.column(TIME))
    if not np.any(times[1:] < times[:-1]):
        return events
    return events.take(pa.array(np.argsort(times, kind="stable")))


def settled(events: pa.RecordBatch, plan: StreamPlan) -> pa.RecordBatch:
    """Events of one time by their starts, then by the columns that the plan names, or else by all of them."""
    times = np.asarray(events.column(TIME))
    same = times[1:] == times[:-1]
    if not same.any():
        return events
    tied = np.flatnonzero(np.append(same, False) | np.append(False, same))
    order = np.arange(len(times))
    order[tied] = tied[_order_of(events.take(pa.array(tied)), plan)]
    return events.take(pa.array(order))


def _order_of(tied: pa.RecordBatch, plan: StreamPlan) -> Array:
    names = list(plan.order) or [field.name for field in plan.reader.schema if field.name in tied.schema.names]
    times = {name: tied.column(name) for name in (TIME, START) if name in tied.schema.names}
    columns = {**times, **{f"c{i}": _sortable(tied.column(name)) for i, name in enumerate(names)}}
    keys = [(name, "ascending") for name in columns]
    return np.asarray(pc.sort_indices(pa.table(columns), sort_keys=keys)).astype(np.int64)


def _sortable(column: pa.Array) -> pa.Array:
    if pa.types.is_nested(column.type) or pa.types.is_null(column.type):
        return pa.array(
            [None if value is None else as_json({"": value}) for value in python_values(column)], pa.string()
        )
    return column.cast(pa.int8()) if pa.types.is_boolean(column.type) else column
