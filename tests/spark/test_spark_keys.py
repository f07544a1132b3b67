"""EQL queries on Spark whose operands share the value of an expression, not a column: shuffled by that value."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from simulation_harness import multiset

import cepheid

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore")]

QUERIES = {
    "text": "SELECT * FROM A a; B b WHERE FILTER(lower(a.k) = lower(b.k)), a.v < b.v",
    "length": "SELECT * FROM A a; B b WHERE FILTER(length(a.k) = length(b.k)), a.v < b.v",
    "iteration": "SELECT * FROM A a+ WHERE FILTER(lower(a.k) = lower(PREV(a.k))), a.v > PREV(a.v)",
}


def _events() -> pa.Table:
    rng, n = np.random.default_rng(5), 600
    words = np.array(["Ab", "aB", "AB", "cd", "CD", "é", "É", "", "xyz"])
    return pa.table(
        {
            "type": np.array(list("AB"))[rng.integers(0, 2, n)],
            "ts": np.arange(n),
            "k": pa.array(words[rng.integers(0, len(words), n)], mask=rng.random(n) < 0.1),
            "v": np.round(rng.random(n), 2),
        }
    )


@pytest.mark.parametrize("name", QUERIES)
def test_events_are_shuffled_by_a_computed_key(spark: SparkSession, name: str, tmp_path: Path) -> None:
    table, query = _events(), QUERIES[name]
    expected = multiset(cepheid.match(query, table))
    assert expected
    pq.write_table(table, tmp_path / "events.parquet", row_group_size=100)
    path = str(tmp_path / "events.parquet")
    for events in (spark.createDataFrame(table.to_pandas()), path):
        found = cepheid.match(query, events, session=spark, partitions=3)
        assert multiset(pa.Table.from_pylist([row.asDict(recursive=True) for row in found.collect()])) == expected


def test_explain_shows_the_computed_key(spark: SparkSession) -> None:
    frame = spark.createDataFrame(_events().to_pandas())
    assert "shuffled by length(k)" in cepheid.explain(QUERIES["length"], frame)
