"""One query over files of columns on Spark, from the command line: workers read the files, the matches come back."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.pandas.types import from_arrow_schema

from cepheid.engine.columnar_job import ColumnJob
from cepheid.engine.local import Progress, is_made_by_oracle
from cepheid.io.files import EventFile, TextFile
from cepheid.io.formats import format_of
from cepheid.io.shares import StoredColumns, StoredFile
from cepheid.io.source import readable_schema
from cepheid.optimize.distribution import distribution
from cepheid.spark.batch import SparkJob
from cepheid.spark.events import SparkEvents
from cepheid.spark.session import session


@dataclass(frozen=True, slots=True)
class SparkColumnJob(ColumnJob):
    """The same job, divided among Spark's workers."""

    @classmethod
    def of(cls, job: ColumnJob) -> SparkColumnJob | None:
        """None where the output is not made of rows of the files."""
        if is_made_by_oracle(job.prepared.query):
            return None
        return cls(*(getattr(job, field.name) for field in fields(job)))

    def on_spark(self, stored: Sequence[StoredFile]) -> SparkJob:
        spark, source = session(), self.source
        schema = readable_schema(source.schema)
        events = SparkEvents(
            frame=spark.createDataFrame([], from_arrow_schema(schema)),
            columns=source.columns,
            schema=schema,
            of_type={name: tuple(of) for name, of in source.attributes.items()},
            files=StoredColumns.of(stored, source.columns.time),
            typed=True,
        )
        return SparkJob(self.prepared, events, distribution(self.prepared.plan))

    def run(self, progress: Progress) -> _SparkRun:
        return _SparkRun(self, progress)


@dataclass(frozen=True, slots=True)
class _SparkRun:
    job: SparkColumnJob
    progress: Progress

    @property
    def schema(self) -> pa.Schema:
        return self.job.on_spark([]).schema

    def events(self) -> Iterator[pa.RecordBatch]:
        with _in_parquet(self.job.source.files) as stored:
            found = self.job.on_spark(stored).matches().toArrow()
        self.progress(self.job.source.count, found.num_rows)
        yield from found.cast(self.schema).to_batches()


@contextmanager
def _in_parquet(files: Sequence[EventFile]) -> Iterator[list[StoredFile]]:
    """What workers read. A text was read to find out the types of its columns, and is not read again."""
    with tempfile.TemporaryDirectory(prefix="cepheid-") as directory:
        stored = []
        for number, file in enumerate(files):
            # Workers have a working directory of their own.
            path = Path(os.path.abspath(file.path))
            if isinstance(file, TextFile):
                path = Path(directory) / f"{number}.parquet"
                pq.write_table(file.table, path, compression="none", row_group_size=_ROW_GROUP)
            stored.append(StoredFile(str(path), file.type, format_of(path)))
        yield stored


_ROW_GROUP = 1 << 18
"""Rows that are read at once: few enough that all cores get some."""
