"""Families against the oracle, query by query: random rules over random streams, however they are cut."""

from __future__ import annotations

import itertools
from bisect import bisect_left
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_rules import as_if_many, eql_rules, in_order, sase_rules, strategy_rules, streams

import cepheid
from cepheid.deploy.deployment import Deployment, Written, deploy
from cepheid.deploy.event_tests import EventTest, EventTests
from cepheid.deploy.families import LONGEST
from cepheid.engine.prepare import RunOptions
from cepheid.expr import Attr, Compare, Const
from cepheid.io import frames
from cepheid.io.inputs import Columns
from cepheid.io.rows import TYPE
from cepheid.kernels.family.event_bits import WORD
from cepheid.types import BOOLEAN, FLOAT


def deployed(queries: dict[str, str], table: pa.Table) -> Deployment:
    opened = frames.opened(table, Columns("type", "ts"))
    assert opened is not None
    return deploy({name: Written(name, text) for name, text in queries.items()}, opened.source, RunOptions())


def by_query(tables: list[Any]) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for table in tables:
        for row in table.to_pylist():
            found.setdefault(row.pop("query"), []).append(row)
    return found


@given(st.lists(eql_rules() | sase_rules() | strategy_rules(), min_size=2, max_size=7), streams(), st.data())
@settings(max_examples=60)
def test_families_find_what_the_oracle_finds(texts: list[str], table: pa.Table, data: st.DataObject) -> None:
    with as_if_many(data):
        check_families(texts, table, data)


def check_families(texts: list[str], table: pa.Table, data: st.DataObject) -> None:
    queries = {f"q{number}": text for number, text in enumerate([*texts, texts[0]])}
    expected = {name: cepheid.match(text, table, evaluator="reference").to_pylist() for name, text in queries.items()}
    together = by_query(cepheid.match(queries, table))
    for name, rows in expected.items():
        assert in_order(together.get(name, [])) == in_order(rows), queries[name]
    cuts = sorted({0, len(table), *data.draw(st.lists(st.integers(0, len(table)), max_size=3))})
    parts = [table.slice(a, b - a).combine_chunks() for a, b in itertools.pairwise(cuts)]
    batches = [batch for part in parts for batch in part.to_batches()]
    in_batches = [list(one) for one in cepheid.match(queries, iter(batches))]
    in_parts = [pa.Table.from_batches(one) for one in in_batches if one]
    assert {name: in_order(rows) for name, rows in by_query(in_parts).items()} == {
        name: in_order(rows) for name, rows in together.items()
    }


FLOATS = st.floats() | st.sampled_from([0.0, -0.0, 1.0, -1.0, 1.5, 5e-324, -5e-324, 1e308, -1e308])


@given(st.lists(FLOATS.filter(lambda value: value == value), min_size=1, max_size=30), st.lists(FLOATS))
def test_the_class_of_a_float_is_found_by_its_highest_bits(constants: list[float], values: list[float]) -> None:
    tests = EventTests(len(constants) // WORD + 1, {"f": FLOAT}, {})
    for bit, constant in enumerate(constants):
        tests.add(bit, EventTest((), (Compare("<", Attr("", "f"), Const(constant), type=BOOLEAN),)))
    tests.build()
    values = [*values, *constants, *np.nextafter(constants, 0.0).tolist()]
    known = sorted({constant + 0.0 for constant in constants})
    expected = [
        2 * len(known) + 1 if value != value else 2 * bisect_left(known, value) + (value in known) for value in values
    ]
    batch = pa.record_batch({"ts": range(len(values)), TYPE: ["t"] * len(values), "f": values})
    assert tests.classes(batch).tolist() == expected


def test_which_queries_are_families() -> None:
    table = pa.table({"type": ["t", "u"], "ts": [1, 2], "k": [1, 1], "v": [1, 2], "f": [1.0, 2.0], "s": ["x", "y"]})
    chain = "SELECT * FROM (t A; t B) WHERE FILTER(A.k = B.k), A.v < {} AND B.v > 3 AND (A, B) OCCURS WITHIN {}"
    queries = {
        "one": chain.format(1, 5),
        "two": chain.format(2, 6),
        "equal": chain.format(1, 5),
        "silence": "SELECT * FROM ((t A @ 5) \\ t B) WHERE A.k = B.k AND A.v > 2",
        "exception": "SELECT * FROM (t A; (t B \\ u X)) WHERE FILTER(A.k = B.k), A.k = X.k AND X.v > 2",
        "pair": "SELECT * FROM ((t A; t B) \\ u X) WHERE FILTER(A.k = B.k), A.k = X.k AND B.k = X.k AND X.v > 5",
        "combined": "EVENT SEQ(t a, u b) WHERE [k] AND a.v > 1 WITHIN 5",
        "compared": "SELECT * FROM (t A; t B) WHERE FILTER(A.k = B.k), A.v < B.v",
        "closure": "SELECT * FROM (t A+; t B) WHERE FILTER(A.k = B.k)",
        "next": "PATTERN SEQ(t a, t b) WHERE skip_till_next_match(a, b) { [k] and a.v > 1 } WITHIN 5",
        "any": "PATTERN SEQ(t a, t b) WHERE skip_till_any_match(a, b) { [k] and a.v > 1 } WITHIN 5",
        "contiguous": "PATTERN SEQ(t a, t b) WHERE partition_contiguity(a, b) { [k] and a.v > 1 } WITHIN 5",
        "strict": "PATTERN SEQ(t a, t b) WHERE strict_contiguity(a, b) { a.v > 1 } WITHIN 5",
        "strict with a key": "PATTERN SEQ(t a, t b) WHERE strict_contiguity(a, b) { [k] } WITHIN 5",
        "next without a key": "PATTERN SEQ(t a, t b) WHERE skip_till_next_match(a, b) { a.v > 1 } WITHIN 5",
        "not": "PATTERN SEQ(t a, ~(u x), t b) WHERE skip_till_next_match(a, b) { [k] } WITHIN 5",
        "limit": "EVENT SEQ(t a, u b) WHERE [k] WITHIN 5 LIMIT 2",
    }
    deployment = deployed(queries, table)
    others = {"strict with a key", "next without a key", "not"}
    assert set(deployment.alone) == {"compared", "closure", "limit", *others}
    group, without_key = deployment.groups
    assert [shape.text for shape, _ in without_key.shapes] == ["strict_contiguity(1, 2)"]
    assert {shape.text: count for shape, count in group.shapes} == {
        "skip_till_next_match(1, 2)": 1,
        "skip_till_any_match(1, 2)": 1,
        "partition_contiguity(1, 2)": 1,
        "1; 2": 2,
        "(1 @ 5) \\ x": 1,
        "1; (2 \\ x)": 2,
        "SEQ(1, 2)": 1,
    }
    assert LONGEST >= 4


@pytest.mark.slow
def test_families_compiled_and_reclaimed() -> None:
    """Enough events that memory is reclaimed, against each rule alone."""
    from cepheid import datasets

    rules = datasets.fraud_rules(150, seed=4)
    table = datasets.cards(300_000, accounts=3_000, seed=4)
    together = by_query(cepheid.match(rules, table, time_unit="ms"))
    assert sum(map(len, together.values())) > 50
    for name, text in list(rules.items())[::5]:
        alone = cepheid.match(text, table, time_unit="ms").to_pylist()
        assert in_order(together.get(name, [])) == in_order(alone), text
