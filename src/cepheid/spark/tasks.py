"""The number of tasks of a query in Spark, by the size of its input."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame

from cepheid.io.shares import StoredFiles
from cepheid.spark.source import SparkSource
from cepheid.spark.workers import is_remote, parallelism

_LARGEST_PARTITION = 128 << 20
_LEAST_DIVIDED = 1 << 20
"""Bytes of input below which one task ends before several have started."""
_FEW_ROWS = 2_000_000
"""Rows of files that one task reads and matches in less time than a shuffle takes."""
_LEAST_PER_TASK = 8 << 20
"""Bytes of input below which another task costs more than it saves."""
_TASKS_PER_CORE = 2
_UNKNOWN_SIZE = 1 << 60
"""Bytes that no input has: Spark's estimate for rows of unknown size, such as those of `createDataFrame` on 4.1."""


@dataclass(frozen=True, slots=True)
class Tasks:
    source: SparkSource
    partitions: int | None
    """The number of tasks that the user wants; None leaves it to the size of the input."""

    @property
    def count(self) -> int:
        if self.partitions is not None:
            return self.partitions
        size = self.input_bytes
        if size < _LEAST_DIVIDED:
            return 1
        if size >= _UNKNOWN_SIZE:
            return self.of_size(_TASKS_PER_CORE * _LEAST_PER_TASK, _TASKS_PER_CORE)
        most = max(int(self.source.frame.sparkSession.conf.get("spark.sql.shuffle.partitions") or 200), 1)
        return max(min(-(-size // _LARGEST_PARTITION), most), self.of_size(size, _TASKS_PER_CORE))

    def of_size(self, size: int, most_per_core: int) -> int:
        """The tasks that read this many bytes: as many for each core, so that none is idle while others do their last
        one, and several where the input is large."""
        cores = parallelism(self.source.frame.sparkSession)
        return cores * max(min(size // (cores * _LEAST_PER_TASK), most_per_core), 1)

    def one_reads(self, files: StoredFiles) -> bool:
        """Whether the files are so small that one task reads and matches them."""
        return self.partitions is None and files.rows <= _FEW_ROWS and files.size <= _LARGEST_PARTITION

    def in_one(self, frame: DataFrame) -> DataFrame:
        """All rows in one partition. A large input is still read by all cores."""
        return frame.repartition(1) if self.input_bytes >= _LEAST_DIVIDED else frame.coalesce(1)

    @property
    def input_bytes(self) -> int:
        """The size of the files, or Spark's estimate."""
        if self.source.files is not None:
            return self.source.files.size
        if is_remote(self.source.frame.sparkSession):
            return _UNKNOWN_SIZE
        return int(str(self.source.frame._jdf.queryExecution().optimizedPlan().stats().sizeInBytes()))
