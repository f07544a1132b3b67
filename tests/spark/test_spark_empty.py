"""Files and DataFrames without any event: Spark gives the rows and the columns that `match` gives without it."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import cepheid
from cepheid.errors import InputProblem

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore::cepheid.errors.CepheidWarning")]

SCHEMA = pa.schema(
    [("type", pa.string()), ("ts", pa.int64()), ("id", pa.int64()), ("v", pa.int64()), ("d", pa.decimal128(9, 2))]
)
QUERIES = {
    "count": "PATTERN A a & B b WITHIN 10 RETURN count(*)",
    "sums": "EVENT SEQ(A a, B b) WITHIN 10 RETURN count(*), sum(a.v), sum(b.d), max(a.v)",
    "count by key": "EVENT SEQ(A a, B b) WHERE [id] WITHIN 10 RETURN count(*)",
    "count in EQL": "SELECT count(*) FROM A a; B b",
    "expressions": "EVENT SEQ(A a, B b) WITHIN 10 RETURN a.v + 1 AS v, b.d * 2 AS d",
    "closure": "PATTERN SEQ(A+ a[], B b) WHERE skip_till_any_match(a[], b) {[id]} RETURN sum(a.v) AS s, a.LEN AS n",
    "composed": "P: EVENT SEQ(A a, B b) WITHIN 10\nQ: SELECT p.a.v + 1 AS v FROM P p; A c",
}


@pytest.mark.parametrize("name", QUERIES)
def test_an_input_without_events(spark: SparkSession, tmp_path: Path, name: str) -> None:
    path = str(tmp_path / "empty.parquet")
    pq.write_table(SCHEMA.empty_table(), path)
    query = QUERIES[name]
    expected = cepheid.match(query, SCHEMA.empty_table())
    for found in (
        cepheid.match(query, path, session=spark),
        cepheid.match(query, path, session=spark, partitions=3),
        cepheid.match(query, spark.read.parquet(path)),
    ):
        table = found.toArrow()
        assert table.to_pylist() == expected.to_pylist()
        assert [(f.name, f.type) for f in table.schema] == [(f.name, f.type) for f in expected.schema]


@pytest.mark.parametrize(
    ("name", "expected"),
    [("/nowhere/events.parquet", "there is no file or directory"), ("nothing", "there is no table `nothing`")],
)
def test_an_input_that_does_not_exist_is_named(spark: SparkSession, name: str, expected: str) -> None:
    with pytest.raises(InputProblem, match=expected):
        cepheid.match("EVENT SEQ(A x, B y) WITHIN 5", name, session=spark)
