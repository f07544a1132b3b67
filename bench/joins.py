"""A sequence without complex event processing: joins of one table per component.

Each join is on the equivalence attributes and on the time bucket of the window. Order and window are tested after it.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl
import pyarrow as pa

from bench.measure import Outcome


def sequence_by_joins(table: pa.Table, length: int, attributes: Sequence[str], window: int) -> Outcome:
    """SEQ(E1, ..., E<length>) with equivalence tests. The last event is less than a window after the first, as in
    SASE."""
    events = pl.from_arrow(table.select(["type", "ts", *attributes]))
    assert isinstance(events, pl.DataFrame)
    bucket = pl.col("t1") // window
    starts = _component(events, 1)
    found = pl.concat([starts.with_columns(bucket=bucket), starts.with_columns(bucket=bucket + 1)])
    for number in range(2, length + 1):
        time = pl.col(f"t{number}")
        further = _component(events, number).with_columns(bucket=time // window)
        joined = found.join(further, on=[*attributes, "bucket"], how="inner")
        found = joined.filter(time > pl.col(f"t{number - 1}"), time - pl.col("t1") < window)
        if number < length:
            # A sequence in the bucket of its first event may continue in the next bucket.
            goes_on = found.filter(pl.col("bucket") == bucket).with_columns(pl.col("bucket") + 1)
            found = pl.concat([found, goes_on])
    return Outcome(found.height, found.height * length)


def _component(events: pl.DataFrame, number: int) -> pl.DataFrame:
    return events.filter(pl.col("type") == f"E{number}").drop("type").rename({"ts": f"t{number}"})
