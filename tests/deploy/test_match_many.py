"""Several queries in one pass: the matches of each are those that it finds alone."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cepheid
from cepheid import datasets
from cepheid.errors import CepheidError

SMALL_THEN_LARGE = """SELECT * FROM (t S1; t S2; t L) WHERE FILTER(S1.acc = S2.acc), FILTER(S2.acc = L.acc),
S1.amount < 100 AND S2.amount < 100 AND L.amount > 150 AND (S1, L) OCCURS WITHIN 12 hours"""
PAIR = "EVENT SEQ(t a, t b) WHERE [acc] AND a.amount < 50 AND b.amount > 300 WITHIN 2 days"
QUERIES = {
    "eql": SMALL_THEN_LARGE,
    "other names": SMALL_THEN_LARGE.replace("S1", "A").replace("S2", "B"),
    "sase": PAIR,
    "returns": PAIR + " RETURN a.acc AS acc, b.amount AS amount",
    "renamed": PAIR.replace("a.", "x.").replace("b.", "y.").replace("t a", "t x").replace("t b", "t y")
    + " RETURN y.acc AS acc, y.amount AS amount",
    "first": PAIR + " RETURN b.acc AS acc, b.amount AS amount LIMIT 3",
    "count": PAIR + " RETURN count(*) AS n",
    "closure": "PATTERN SEQ(t a, t+ b[]) WHERE skip_till_next_match(a, b[]) { [acc] AND a.amount < 30 } WITHIN 1 days",
    "count of groups": "PATTERN SEQ(t a, t+ b[]) WHERE skip_till_any_match(a, b[]) { [acc] AND a.amount < 30 AND "
    "b[i].amount > 200 } WITHIN 12 hours RETURN count(*) AS n",
    "zstream": "PATTERN A; !B; C WHERE A.amount > 400 AND C.amount > 500 AND B.amount < 20 WITHIN 1 hours",
    "ced": "complex big = seq(t a, t b; 3600000) where a.acc = b.acc and b.amount > 2 * a.amount",
    "composed": "Pair: " + PAIR + "\n\nTwice: EVENT SEQ(Pair p, t c) WHERE p.a.acc = c.acc WITHIN 3 days",
}


def events() -> pa.Table:
    return datasets.cards(1500, accounts=40, seed=3)


def rows_by_query(tables: list[pa.Table]) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for table in tables:
        for row in table.to_pylist():
            found.setdefault(row.pop("query"), []).append(row)
    return found


def test_each_query_finds_what_it_finds_alone() -> None:
    table = events()
    queries = {name: text for name, text in QUERIES.items() if name != "ced"}
    together = rows_by_query(cepheid.match(queries, table, time_unit="ms"))
    for name, text in queries.items():
        alone = cepheid.match(text, table, time_unit="ms").to_pylist()
        assert together.get(name, []) == alone, name
        assert alone, name


def test_one_table_for_each_set_of_columns() -> None:
    chosen = {name: QUERIES[name] for name in ("sase", "returns", "renamed", "first", "count")}
    tables = cepheid.match(chosen, events(), time_unit="ms")
    assert [table.schema.names[:3] for table in tables] == [
        ["query", "a", "b"],
        ["query", "acc", "amount"],
        ["query", "n", "match_start"],
    ]
    assert set(tables[1].column("query").to_pylist()) == {"returns", "renamed", "first"}


@pytest.mark.parametrize("shape", ["flat", "long"])
def test_other_shapes(shape: str) -> None:
    chosen = {name: QUERIES[name] for name in ("eql", "other names", "sase", "closure")}
    together = rows_by_query(cepheid.match(chosen, events(), time_unit="ms", output=shape))
    for name, text in chosen.items():
        alone = cepheid.match(text, events(), time_unit="ms", output=shape).to_pylist()
        assert together[name] == alone, name


def test_a_parquet_file_and_pandas(tmp_path: Any) -> None:
    path = tmp_path / "cards.parquet"
    datasets.write(events(), path)
    chosen = {name: QUERIES[name] for name in ("eql", "composed")}
    expected = rows_by_query(cepheid.match(chosen, events(), time_unit="ms"))
    assert rows_by_query(cepheid.match(chosen, path, time_unit="ms")) == expected
    frames = cepheid.match(chosen, events().to_pandas(), time_unit="ms")
    assert [len(frame) for frame in frames] == [len(expected["eql"]), len(expected["composed"])]


def test_a_refused_query_is_named() -> None:
    with pytest.raises(CepheidError) as problem:
        cepheid.match({"good": PAIR, "bad": "EVENT SEQ(t a, u b) WITHIN"}, events(), time_unit="ms")
    assert "bad" in str(problem.value)
    with pytest.raises(CepheidError, match="no event has a type"):
        cepheid.match({"good": PAIR, "bad": "EVENT SEQ(u a, v b) WITHIN 1 hours"}, events(), time_unit="ms")
    with pytest.raises(CepheidError, match="column `query`"):
        cepheid.match({"q": PAIR + " RETURN a.acc AS query"}, events(), time_unit="ms")


def test_fraud_rules_are_stable_and_rare() -> None:
    rules = datasets.fraud_rules(40, seed=1)
    assert list(datasets.fraud_rules(10, seed=1).items()) == list(rules.items())[:10]
    assert datasets.fraud_rules(10, seed=2) != datasets.fraud_rules(10, seed=1)
    table = datasets.cards(20_000, accounts=400)
    matches = sum(len(table) for table in cepheid.match(rules, table, time_unit="ms"))
    assert 0 < matches <= 0.2 * len(table)


@given(st.integers(0, 1_000_000))
@settings(max_examples=10)
def test_fraud_rules_together_and_alone(seed: int) -> None:
    rules = datasets.fraud_rules(12, seed)
    table = datasets.cards(600, accounts=8, seed=seed)
    together = rows_by_query(cepheid.match(rules, table, time_unit="ms"))
    for name, text in rules.items():
        assert together.get(name, []) == cepheid.match(text, table, time_unit="ms").to_pylist()


def test_the_name_of_a_query_is_a_string() -> None:
    with pytest.raises(CepheidError, match="the name of a query is `1`"):
        cepheid.match({1: PAIR}, events())  # type: ignore[dict-item]


@pytest.mark.parametrize("option", ["match_id", "detected_at", "rejects"])
def test_options_of_one_query_are_named(option: str) -> None:
    table = pa.table({"type": ["A", "B"], "ts": [1, 2]})
    asked: Any = {option: True}
    with pytest.raises(CepheidError, match=f"`{option}` of several queries"):
        cepheid.match({"x": "EVENT SEQ(A a, B b)"}, table, **asked)
