"""Statistics of a DataFrame are counted in one pass, and agree with what its rows say."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import cepheid
from cepheid.datasets import ticks
from cepheid.errors import NotAvailable

QUERY = (
    "PATTERN IBM;Sun;Oracle WHERE IBM.price > Sun.price AND Sun.volume = Oracle.volume AND IBM.volume <= 500 "
    "WITHIN 200 units"
)


def test_statistics_of_a_dataframe(spark: SparkSession) -> None:
    table = ticks(6_000, {"IBM": 1, "Sun": 2, "Oracle": 3}, seed=1, prices={"IBM": (1.0, 201.0)})
    frame = spark.createDataFrame(table.to_pandas())
    stats = cepheid.statistics(QUERY, frame)
    assert stats.total_rate == pytest.approx(1.0)
    assert stats.rates == pytest.approx({"IBM": 1 / 6, "Sun": 2 / 6, "Oracle": 3 / 6}, rel=0.1)
    assert stats.passing == pytest.approx({"IBM": 0.5, "Sun": 1.0, "Oracle": 1.0}, abs=0.05)
    assert stats.selectivities["IBM.price > Sun.price"] == pytest.approx(0.1, abs=0.03)
    assert stats.selectivities["Sun.volume = Oracle.volume"] == pytest.approx(1 / 1000, rel=0.3)
    shown = cepheid.explain(QUERY, frame, stats=stats)
    assert "ns for each event" in shown and "evaluators that lost" in shown
    found = cepheid.match(QUERY, frame, stats=stats).count()
    assert found == cepheid.match(QUERY, table, output="positions").num_rows


@pytest.mark.parametrize(
    "where", ["[k] AND b.ts - a.ts > 1000", "a.k > b.k + 100", "a.k = b.k AND a.k > 90", "[k] AND a.k > 2"]
)
def test_analyze_counts_what_the_tasks_did(spark: SparkSession, where: str) -> None:
    """As outside Spark, and without a match it says how far the events got."""
    table = pa.table({"type": ["A", "B", "C"] * 30, "ts": range(90), "k": [i % 7 for i in range(90)], "a.b": [1] * 90})
    query = f"EVENT SEQ(A a, B b) WHERE {where} WITHIN 30"
    shown = cepheid.explain(query, spark.createDataFrame(table), level="analyze")
    counted = [
        line for line in cepheid.explain(query, table, level="analyze").split("what it did")[1].splitlines() if line
    ]
    assert [line for line in counted if "peak" not in line and line not in shown] == []
    assert ("no match: 90 events" in shown) == (cepheid.match(query, table).num_rows == 0)
    with pytest.raises(NotAvailable, match="level `analyze`"):
        cepheid.explain(f"P: {query}\nQ: EVENT SEQ(P p, C c) WITHIN 9", spark.createDataFrame(table), level="analyze")


def test_statistics_of_nothing(spark: SparkSession) -> None:
    frame = spark.createDataFrame([], "type string, ts long, price double, volume long")
    assert cepheid.statistics("PATTERN IBM IBM;Sun Sun WITHIN 9 units", frame) == cepheid.Stats()
