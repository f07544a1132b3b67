"""Queries over the matches of other queries on Spark: divided by a shared key or by time, as one task finds them."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from simulation_harness import SCHEMA, multiset, random_rows

import cepheid
from cepheid.physical import REFERENCE

pytestmark = pytest.mark.spark

COMPOSED = {
    "P: EVENT SEQ(A x, B y) WHERE [id] WITHIN 9\n"
    "L: EVENT SEQ(P p, C q) WHERE p.x.id = q.id AND p.y.v <= q.v WITHIN 20": "shuffled by id",
    "P: EVENT SEQ(A x, B y, !(C z)) WHERE [id] WITHIN 5 RETURN x.id AS kk, x.v AS v\n"
    "Q: PATTERN P p;C q WHERE p.kk = q.id WITHIN 12\n"
    "L: PATTERN SEQ(Q a, A b) WHERE skip_till_next_match(a, b) { [id] } WITHIN 30": "shuffled by id",
    "P: EVENT SEQ(A x, B y) WITHIN 4\nL: EVENT SEQ(P p, C q) WHERE p.x.v < q.v WITHIN 8": "cut into slices",
    "P: EVENT SEQ(A x, B y) WITHIN 4 LIMIT 5\nL: EVENT SEQ(P p, C q) WITHIN 8": "LIMIT of `P` counts all its matches",
}


@pytest.mark.parametrize("text", COMPOSED)
def test_every_division_of_a_composition_gives_the_oracles_matches(spark: SparkSession, text: str) -> None:
    rng = random.Random(5)
    rows = [dict(row, ts=at) for at, row in enumerate(row for _ in range(3) for row in random_rows(rng))]
    table = pa.Table.from_pylist(rows, SCHEMA)
    frame = spark.createDataFrame(table.to_pandas(), "type string, ts long, id double, v double, name string, n long")
    frame = frame.withColumn("id", frame["id"].cast("long"))
    expected = multiset(cepheid.match(text, table, time_unit="ms", evaluator=REFERENCE))
    assert expected
    assert COMPOSED[text] in cepheid.explain(text, frame, time_unit="ms")
    assert multiset(cepheid.match(text, frame, time_unit="ms", partitions=3).toArrow()) == expected
