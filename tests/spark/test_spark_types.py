"""The types of the first events of a DataFrame, which show misspelt types of a query. Parquet files that a DataFrame
shows unchanged are read without a Spark job."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import cepheid
from cepheid.errors import NameProblem

QUERY = "EVENT SEQ(Shelf s, Exit e) WHERE [id] WITHIN 10 units"
ROWS = 2_500

Change = Callable[[DataFrame], DataFrame]
CHANGES: dict[str, tuple[Change, bool]] = {
    "files as they are": (lambda frame: frame, True),
    "some columns": (lambda frame: frame.select("ts", "type", "id"), False),
    "some rows": (lambda frame: frame.filter("id < 3"), False),
    "other types": (
        lambda frame: frame.withColumn("type", F.when(F.col("type") == "X", "Shelf").otherwise("Exit")),
        False,
    ),
}


def written(path: Path, names: list[str]) -> str:
    count = len(names)
    table = pa.table({"type": names, "ts": range(count), "id": [n // 2 % 5 for n in range(count)]})
    pq.write_table(table, path)
    return str(path)


def jobs_of(spark: SparkSession, group: str, work: Callable[[], object]) -> int:
    spark.sparkContext.setJobGroup(group, group)
    work()
    return len(spark.sparkContext.statusTracker().getJobIdsForGroup(group))


@pytest.mark.parametrize("change", CHANGES)
def test_types_of_files_are_read_without_a_job(spark: SparkSession, tmp_path: Path, change: str) -> None:
    changed, is_free = CHANGES[change]
    frame = changed(spark.read.parquet(written(tmp_path / "events.parquet", ["X", "Exit"] * (ROWS // 2))))
    renamed = QUERY if change == "other types" else QUERY.replace("Shelf", "X")
    assert (jobs_of(spark, change, lambda: cepheid.match(renamed, frame)) == 0) == is_free
    local = frame.toArrow()
    assert cepheid.match(renamed, frame).count() == cepheid.match(renamed, local).num_rows > 0


@pytest.mark.parametrize("rows", [40, ROWS])
def test_misspelt_types_of_files(spark: SparkSession, tmp_path: Path, rows: int) -> None:
    frame = spark.read.parquet(written(tmp_path / "events.parquet", ["Shelf", "Exit"] * (rows // 2)))
    with pytest.raises(NameProblem, match="unknown event type"):
        cepheid.match(QUERY.replace("Shelf", "Shelv").replace("Exit", "Exitt"), frame)


def test_types_of_directories(spark: SparkSession, tmp_path: Path) -> None:
    """The type may be in the names of directories, and a file may be older than its column."""
    table = pa.table({"ts": [1, 2], "id": [1, 1]})
    for name, time in (("Shelf", 1), ("Exit", 2)):
        (tmp_path / "parts" / f"type={name}").mkdir(parents=True)
        pq.write_table(table.slice(time - 1, 1), tmp_path / "parts" / f"type={name}" / "0.parquet")
    parts = spark.read.parquet(str(tmp_path / "parts"))
    assert cepheid.match(QUERY, parts).count() == 1
    with pytest.raises(NameProblem, match="unknown event type"):
        cepheid.match("EVENT SEQ(Shelv s, Exitt e) WITHIN 10 units", parts)
    (tmp_path / "grown").mkdir()
    pq.write_table(table, tmp_path / "grown" / "0.parquet")
    written(tmp_path / "grown" / "1.parquet", ["Shelf", "Exit"])
    grown = spark.read.option("mergeSchema", "true").parquet(str(tmp_path / "grown"))
    assert cepheid.match(QUERY, grown).count() == 1


@pytest.mark.parametrize("kind", ["double", "float"])
def test_types_that_are_floats_have_the_names_of_the_match(spark: SparkSession, kind: str) -> None:
    rows = spark.createDataFrame([(1.0, 1, 7), (2.5, 2, 7)], f"type {kind}, ts long, id long")
    with warnings.catch_warnings():
        warnings.simplefilter("error", cepheid.CepheidWarning)
        assert cepheid.match("EVENT SEQ(`1` s, `2.5` e) WHERE [id] WITHIN 10 units", rows).count() == 1
