"""Summaries of all matches (`RETURN count(*), sum(b.v)`) on Spark: each task summarises its own matches, and one task
merges these summaries into the one row of the output."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cepheid.engine.oracle import match_batch
from cepheid.engine.run import partial_summary
from cepheid.engine.summary import merged_row
from cepheid.spark.worker import WholeTask, settle_memory

PARTIAL = "partial"
"""The column with the summary of one task, pickled."""


@dataclass(frozen=True, slots=True)
class SummaryTask:
    """Summarises the matches of a partition."""

    events: WholeTask

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([(PARTIAL, pa.binary())])

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        source, number = self.events.opened(batches)
        if source is not None:
            slices = self.events.slices
            summary = partial_summary(
                self.events.compiled, source, None if slices is None else partial(slices.owned, number)
            )
            yield pa.RecordBatch.from_pydict({PARTIAL: [pickle.dumps(summary)]}, self.schema)
        settle_memory()


@dataclass(frozen=True, slots=True)
class MergeTask:
    """Merges the summaries of all tasks. A null stands for no events, so that there is a row without any match."""

    events: WholeTask

    @property
    def schema(self) -> pa.Schema:
        return self.events.schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        parts = [pickle.loads(part) for batch in batches for part in batch.column(PARTIAL).drop_null().to_pylist()]
        prepared = self.events.compiled
        row = match_batch(prepared, [merged_row(prepared, parts)][: prepared.query.limit], self.events.as_text)
        yield from pa.Table.from_batches([row]).cast(self.schema).to_batches()


def merged(partials: DataFrame) -> DataFrame:
    """All partial summaries in one partition, which has at least one row."""
    none = partials.sparkSession.range(1).select(F.lit(None).cast("binary").alias(PARTIAL))
    return partials.unionByName(none).repartition(1)
