"""A dictionary of queries over a Spark DataFrame, in one job: each finds what it finds locally."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession
from simulation_harness import multiset

import cepheid
from cepheid.errors import CepheidError

pytestmark = pytest.mark.spark

QUERIES = {
    "low": "EVENT SEQ(A x, B y) WHERE [id] AND x.v > 20 WITHIN 60",
    "high": "EVENT SEQ(A x, B y) WHERE [id] AND x.v > 70 WITHIN 60",
    "same": "EVENT SEQ(A x, B y) WHERE [id] AND x.v > 70 WITHIN 60",
    "chain": "SELECT * FROM (A x; B y; C z) WHERE FILTER(x.id = y.id), FILTER(y.id = z.id), (x, z) OCCURS WITHIN 90",
    "closure": "PATTERN SEQ(A a, B+ b[]) WHERE skip_till_next_match(a, b[]) { [id] AND a.v > 50 } WITHIN 40",
    "no_key": "PATTERN A a; B b WHERE a.v < b.v AND a.v > 60 WITHIN 9",
    "no_key_either": "complex Q on A as x, C as y event and(x, y; 3) where x.v > 90",
    "composed": "P: EVENT SEQ(A x, B y) WHERE [id] WITHIN 9\n\nQ: EVENT SEQ(P p, C c) WHERE p.x.id = c.id WITHIN 20",
    "composed_too": "P: EVENT SEQ(A x, B y) WHERE [id] WITHIN 9\nQ: EVENT SEQ(A a, P p) WHERE a.id = p.x.id WITHIN 30",
    "count": "EVENT SEQ(A x, C y) WHERE [id] WITHIN 10 RETURN count(*) AS n, max(y.v) AS m",
}


def events() -> pa.Table:
    rng = np.random.default_rng(5)
    n = 400
    return pa.table(
        {
            "type": rng.choice(["A", "B", "C"], n),
            "ts": np.cumsum(rng.integers(1, 4, n)),
            "id": rng.integers(0, 6, n),
            "v": rng.integers(0, 100, n),
        }
    )


def by_query(tables: list[pa.Table]) -> dict[str, Any]:
    """The matches of each query as a multiset of rows."""
    names = {name for table in tables for name in table.column("query").to_pylist()}
    return {
        name: multiset(table.filter(pc.equal(table.column("query"), name)).drop_columns(["query"]))
        for name in names
        for table in tables
        if name in table.column("query").to_pylist()
    }


@pytest.mark.parametrize("partitions", [1, 3])
def test_each_query_finds_what_it_finds_locally(spark: SparkSession, partitions: int) -> None:
    table = events()
    expected = by_query(cepheid.match(QUERIES, table))
    assert expected.keys() == QUERIES.keys()
    frame = spark.createDataFrame(table.to_pandas())
    tables = cepheid.match(QUERIES, frame, partitions=partitions)
    assert all(found.columns[0] == "query" for found in tables)
    assert by_query([found.toArrow() for found in tables]) == expected


def test_no_event_and_queries_that_cannot_run(spark: SparkSession) -> None:
    frame = spark.createDataFrame(events().slice(0, 5).to_pandas()).filter("v > 1000")
    (found,) = cepheid.match({"count": QUERIES["count"]}, frame, partitions=2)
    (row,) = found.collect()
    assert (row["query"], int(row["n"]), row["m"]) == ("count", 0, None)
    with pytest.raises(CepheidError, match=r"`q`"):
        cepheid.match({"one": QUERIES["low"], "two": "EVENT SEQ(A x, B y) WHERE x.q > 1 WITHIN 5"}, frame)
    with pytest.raises(CepheidError, match="of several queries on Spark"):
        cepheid.match(QUERIES, frame, output="positions")


def test_a_query_that_explodes_is_stopped_and_the_others_go_on(spark: SparkSession) -> None:
    explosive = "PATTERN SEQ(A a, B+ b[]) WHERE skip_till_any_match(a, b[]) { a.v > -1 } WITHIN 99"
    queries = {**QUERIES, "explosive": explosive, "of_one": explosive + " RETURN count(*) AS n, max(a.v) AS m"}
    table, options = events(), {"max_matches": "100"}
    with pytest.warns(cepheid.CepheidWarning, match="`explosive` is stopped"):
        locally = by_query(cepheid.match(queries, table, options=options))
    tables = cepheid.match(queries, spark.createDataFrame(table.to_pandas()), options=options)
    with pytest.warns(cepheid.CepheidWarning, match="the query `explosive`: the query is stopped: .* not complete"):
        found = by_query([frame.toArrow() for frame in tables])
    locally.pop("explosive", None), found.pop("explosive", None)
    assert found == locally and QUERIES.keys() <= found.keys()
