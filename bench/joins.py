"""What people do without complex event processing: a sequence as joins of tables, one for each component.

Each join is on the equivalence attributes and on the window's bucket of time; order and window are tested after it.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl
import pyarrow as pa

from bench.measure import Found


def sequence_by_joins(table: pa.Table, length: int, attributes: Sequence[str], window: int) -> Found:
    """SEQ(E1, ..., E<length>) with equivalence tests, by SASE's rule that the last event comes less than a window
    after the first."""
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
            # A sequence that is still in the bucket of its first event may go on in the next one.
            goes_on = found.filter(pl.col("bucket") == bucket).with_columns(pl.col("bucket") + 1)
            found = pl.concat([found, goes_on])
    return Found(found.height, found.height * length)


def _component(events: pl.DataFrame, number: int) -> pl.DataFrame:
    return events.filter(pl.col("type") == f"E{number}").drop("type").rename({"ts": f"t{number}"})
