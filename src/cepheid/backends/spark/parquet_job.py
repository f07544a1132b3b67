"""One query over Parquet files on Spark, from the command line: workers read the files, the matches come back."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, fields

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema

from cepheid.backends.columnar import ParquetFile
from cepheid.backends.columnar_job import ColumnJob
from cepheid.backends.local import Progress, is_made_by_oracle
from cepheid.backends.sources import readable_schema
from cepheid.backends.spark.events import SparkEvents
from cepheid.backends.spark.parquet import ParquetFiles
from cepheid.backends.spark.session import session
from cepheid.backends.spark.stored import StoredFile
from cepheid.backends.spark_batch import SparkJob
from cepheid.optimize.distribution import distribution


@dataclass(frozen=True, slots=True)
class SparkParquetJob(ColumnJob):
    """The same job, divided among Spark's workers."""

    @classmethod
    def of(cls, job: ColumnJob) -> SparkParquetJob | None:
        """None where the output is not made of rows of the files, or they are not all Parquet."""
        are_parquet = all(isinstance(file, ParquetFile) for file in job.source.files)
        if is_made_by_oracle(job.prepared.query) or not are_parquet:
            return None
        return cls(*(getattr(job, field.name) for field in fields(job)))

    @property
    def on_spark(self) -> SparkJob:
        spark, source = session(), self.source
        schema = readable_schema(source.schema)
        # Workers have a working directory of their own.
        stored = [StoredFile(os.path.abspath(file.path), file.type) for file in source.files]
        files = ParquetFiles.listed(stored, source.columns.time)
        events = SparkEvents(
            frame=spark.createDataFrame([], from_arrow_schema(schema)),
            columns=source.columns,
            schema=schema,
            of_type=source.attributes,
            files=files,
            typed=True,
        )
        return SparkJob(self.prepared, events, distribution(self.prepared.plan))

    def run(self, progress: Progress) -> _SparkRun:
        return _SparkRun(self.on_spark, progress, self.source.count)


@dataclass(frozen=True, slots=True)
class _SparkRun:
    job: SparkJob
    progress: Progress
    events_in_all: int

    @property
    def schema(self) -> pa.Schema:
        return self.job.schema

    def events(self) -> Iterator[pa.RecordBatch]:
        found = self.job.matches().toArrow()
        self.progress(self.events_in_all, found.num_rows)
        yield from found.cast(self.schema).to_batches()
