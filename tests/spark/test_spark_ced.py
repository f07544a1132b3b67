"""CED's scripts on Spark: by key, in slices of time and in one task they find what a local run finds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from simulation_harness import multiset

import cepheid
from cepheid.errors import NotAvailable

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore")]

SCRIPTS = {
    "by key": "complex Q on A as a, B as b, C as c event and(seq(a, b; 30), c; 30) where a.id = b.id and b.id = c.id",
    "by key, with a negated operator": "complex Q on A as a, B as b, C as c, D as d"
    " event seq(a, !seq(b, c; 9), d; 30) where a.id = d.id and a.id = b.id and b.id = c.id",
    "in slices": "complex Q on A as a, B as b, C as c event and(seq(a, b; 4), !c; 5) where a.v < b.v and c.v > 0.9",
    "in slices, nested": "complex Q on A as a, B as b, C as c, D as d event seq(or(seq(a, !b; 3), c), d; 4)",
    "by name": "complex P on A as a, B as b schema id as a.id, v as b.v event seq(a, b; 30) where a.id = b.id\n"
    "complex Q on P as p, C as c, node schema v as p.v, at as node.time event and(p, c; 30) where p.id = c.id",
    "one task": "complex Q on A as a, B as b event seq(a, b) where a.v + 0.98 < b.v",
    "primitives": "source A schema int id, double v, int n\n"
    "primitive P on A as s, node schema event_id as hash_f(node.time, s.id), p as [s.v, s.n], id as s.id\n"
    "complex Q on P as a, P as b schema id as a.id, d as distance(a.p, b.p)"
    " event seq(a, b; 60) where a.id = b.id and distance(a.p, b.p) >= 50",
}


def _events() -> pa.Table:
    rng = np.random.default_rng(3)
    n = 1_500
    return pa.table(
        {
            "type": np.array(list("ABCD"))[rng.integers(0, 4, n)],
            "ts": np.arange(n) // 2,
            "id": rng.integers(0, 12, n),
            "v": np.round(rng.random(n), 2),
            "n": rng.integers(0, 100, n),
        }
    )


@pytest.mark.parametrize("name", SCRIPTS)
def test_on_spark_as_locally(spark: SparkSession, name: str) -> None:
    table, query = _events(), SCRIPTS[name]
    assert "reference" not in cepheid.explain(query, table)
    expected = multiset(cepheid.match(query, table))
    frame = spark.createDataFrame(table.to_pandas())
    found = cepheid.match(query, frame)
    assert multiset(pa.Table.from_pylist([row.asDict(recursive=True) for row in found.collect()])) == expected
    assert expected


@pytest.mark.parametrize("call", [cepheid.match, cepheid.explain])
def test_a_result_that_consumes_is_refused_and_as_a_subevent_found(spark: SparkSession, call: Any) -> None:
    table = _events().slice(0, 300)
    pair = "complex P on A as a, B as b schema id as a.id, v as b.v event seq(a, b; 9) consume once"
    frame = spark.createDataFrame(table.to_pandas())
    with pytest.raises(NotAvailable, match="`consume once` on Spark"):
        call(pair, frame)
    used = f"{pair}\ncomplex Q on P as p schema id as p.id, v as p.v event p"
    expected = multiset(cepheid.match(used, table))
    assert expected and multiset(cepheid.match(used, frame).toArrow()) == expected
