"""Matches of a stream in any format that Spark writes to files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from cepheid.errors import InputProblem, listing, shown
from cepheid.spark.hadoop import open_directory
from cepheid.streaming.sinks import FORMATS
from cepheid.streaming.storage import Directory


@dataclass(frozen=True, slots=True)
class BatchDirectories:
    """A directory for each batch, `batch=12`, which the same batch replaces when it is run again after a crash. Spark
    reads all of them as one table with a column `batch`. Several tables have a directory each."""

    path: str
    format: str
    directory: Directory

    @classmethod
    def of(cls, path: str, format: str, session: SparkSession) -> BatchDirectories:
        jvm: Any = session._jvm
        try:
            conf = session._jsparkSession.sessionState().conf()
            jvm.org.apache.spark.sql.execution.datasources.DataSource.lookupDataSource(format, conf)
        except (PySparkException, Py4JJavaError) as problem:
            raise InputProblem(
                f"`{shown(format)}` is not an output format",
                expected=f"{listing(FORMATS)}, or one that this Spark session can write",
            ) from problem
        return cls(path, format, open_directory(path, session))

    def __call__(self, matches: DataFrame, batch_id: int, table: str = "") -> None:
        parts = [self.path.rstrip("/"), *([table] if table else []), f"batch={batch_id}"]
        matches.write.format(self.format).mode("overwrite").save("/".join(parts))
