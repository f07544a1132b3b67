"""Local times in Spark: DataFrames without a zone, whatever the zone of the session, and files that workers read."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

import cepheid
from cepheid.app.cli import app

pytestmark = pytest.mark.spark

BERLIN = "Europe/Berlin"
QUERY = "EVENT SEQ(A a, B b) RETURN b.ts - a.ts AS took"
TIMES = [datetime(2024, 3, 31, 1, 50), datetime(2024, 3, 31, 3, 5), datetime(2024, 3, 31, 2, 30)]
"""15 minutes in Berlin, and a time that clocks skipped."""


def written(path: Path) -> str:
    table = pa.table({"type": ["A", "B", "B"], "ts": pa.array(TIMES, pa.timestamp("us"))})
    pq.write_table(table, path / "a.parquet")
    return str(path / "a.parquet")


def test_local_times_of_dataframes_and_files(spark: SparkSession, tmp_path: Path) -> None:
    file = written(tmp_path)
    frame = spark.sql(
        "SELECT * FROM VALUES ('A', timestamp_ntz'2024-03-31 01:50'), ('B', timestamp_ntz'2024-03-31 03:05'), "
        "('B', timestamp_ntz'2024-03-31 02:30') AS t(type, ts)"
    )
    for events in (frame, file):
        found, rejects = cepheid.match(QUERY, events, zone=BERLIN, rejects=True, session=spark)
        assert [row.took for row in found.collect()] == [timedelta(minutes=15)]
        assert [row.type for row in rejects.collect()] == ["B"]
    of_types = {name: frame.filter(f"type = '{name}'").drop("type") for name in "AB"}
    (row,) = cepheid.match(QUERY, of_types, zone=BERLIN).collect()
    assert row.took == timedelta(minutes=15)
    days = spark.sql("SELECT * FROM VALUES ('A', date'2024-03-31'), ('B', date'2024-04-01') AS t(type, ts)")
    (row,) = cepheid.match(QUERY, days, zone=BERLIN).collect()
    assert row.took == timedelta(hours=23)


def test_the_backend_spark_reads_local_times_as_local_does(spark: SparkSession, tmp_path: Path) -> None:
    words = ["run", QUERY, "--input", written(tmp_path), "--zone", BERLIN]
    local, on_spark = (CliRunner().invoke(app, [*words, "--backend", backend]) for backend in ("local", "spark"))
    assert local.exit_code == on_spark.exit_code == 0, on_spark.output
    assert local.stdout == on_spark.stdout and '"took": 900.0' in local.stdout
    for found in (local, on_spark):
        assert "2 events + 1 reject" in found.stderr and "does not exist in Europe/Berlin" in found.stderr
        assert "times of `ts` without an offset are those of Europe/Berlin" in found.stderr
