"""Rewrites change how a query is written, never what it matches."""

from __future__ import annotations

import doctest
import random
from collections import Counter
from dataclasses import replace
from decimal import Decimal

import pyarrow as pa
import pytest
from examples import examples
from hypothesis import HealthCheck, given, settings
from strategies import Stream, bound, multiset, sase_queries, streams, zstream_queries

import cepheid
from cepheid.errors import PatternProblem
from cepheid.events import Schema
from cepheid.expr import In, Not, Or, to_text
from cepheid.optimize import bounds, cost, rules, search, shapes, stats
from cepheid.optimize.examples import SCHEMA, example, shown
from cepheid.optimize.rules import FALSE, RULES, Rule, expense, rewrite
from cepheid.pattern import Query, Seq, partition_attributes
from cepheid.semantics import evaluate

UNITS = "seconds", "events"
_EXAMPLES = settings(max_examples=examples(250), deadline=None, suppress_health_check=list(HealthCheck))


def unchanged(text: str, stream: Stream) -> None:
    query = bound(text, stream)
    expected = multiset(evaluate(query, stream.events))
    for rule in RULES:
        query = rewrite(query, stream.schema, [rule])
        found: Counter[tuple[object, ...]] = multiset(evaluate(query, stream.events))
        assert found == expected, rule.__name__


@_EXAMPLES
@given(zstream_queries(), streams(max_events=10))
def test_rewrites_keep_the_matches_of_zstream(text: str, stream: Stream) -> None:
    unchanged(text, stream)


@_EXAMPLES
@given(sase_queries(), streams(max_events=10))
def test_rewrites_keep_the_matches_of_sase(text: str, stream: Stream) -> None:
    unchanged(text, stream)


@pytest.mark.parametrize("module", [rules, bounds, cost, search, shapes, stats], ids=lambda module: module.__name__)
def test_examples(module: object) -> None:
    result = doctest.testmod(module)  # type: ignore[arg-type]
    assert result.failed == 0


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("PATTERN A;B WHERE 1 > 2", "PATTERN A;B\nWHERE FALSE"),
        ("PATTERN A;!B;C WHERE B.x = 1 AND 1 > 2", "PATTERN A;!B;C\nWHERE B.x = 1 AND FALSE"),
        ("PATTERN A;!B;C WHERE (B.x = 1 AND 1 > 2)", "PATTERN A;!B;C\nWHERE B.x = 1 AND FALSE"),
        ("PATTERN A;B WHERE NOT (A.x = 1 AND 1 < 2)", "PATTERN A;B\nWHERE NOT (A.x = 1 AND TRUE)"),
        ("PATTERN A;B WHERE A.x > 1 / 0", "PATTERN A;B\nWHERE A.x > NULL"),
    ],
)
def test_constants(text: str, expected: str) -> None:
    assert shown(rules.fold_constants, text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "PATTERN A;!B;C WHERE (A.x = 1 AND B.y = 1 OR A.x = 1 AND B.y = 2)",
        "PATTERN A;B*;C WHERE (A.x = 1 AND B.y = 1 OR A.x = 1 AND B.y = 2)",
    ],
)
def test_a_condition_on_an_absent_event_is_not_split(text: str) -> None:
    assert len(rewrite(example(text), SCHEMA).where) == 1


def test_a_negated_alternative_is_split_only_if_each_part_names_the_absent_event() -> None:
    assert len(rewrite(example("PATTERN A;!B;C WHERE NOT (B.x = A.x OR B.y = 2)"), SCHEMA).where) == 2
    with pytest.raises(PatternProblem, match="mixes positive and negated variables under OR"):
        example("PATTERN A;!B;C WHERE NOT (A.x = 1 OR B.y = 2)")


def test_what_an_event_may_lack_is_left_alone() -> None:
    bare = Schema({**SCHEMA.types, "C": {}})
    query = example("PATTERN A;B;C WHERE A.id = C.id AND C.id = B.id AND C.x > 3 AND C.x < 2")
    assert rewrite(query, bare) == query
    assert FALSE in rewrite(query, SCHEMA).where


def test_equalities_do_not_make_partitions() -> None:
    query = example("PATTERN A;B;C WHERE A.x = B.y AND B.y = C.x AND C.x = B.x WITHIN 5 events")
    assert rewrite(query, SCHEMA) == query


@pytest.mark.parametrize(
    "where", ["A.id IN (B.id) AND B.id = C.id", "[id] AND A.x = 1 OR [id] AND B.x = 2", "NOT NOT A.id = B.id AND [x]"]
)
def test_a_rule_names_a_key_only_where_partitions_do_not_decide_the_matches(where: str) -> None:
    by_time, by_events = (rewrite(example(f"PATTERN A;B;C WHERE {where} WITHIN 5 {unit}"), SCHEMA) for unit in UNITS)
    assert not any(isinstance(p, Or | In | Not) and "id" in to_text(p) for p in by_time.where)
    query = example(f"PATTERN A;B;C WHERE {where} WITHIN 5 events")
    assert partition_attributes(by_events) == partition_attributes(query)


INF = float("inf")


@pytest.mark.parametrize(
    ("values", "kind", "is_key"),
    [
        ((0, 1, 2**63 - 1, -(2**63), None), pa.int64(), True),
        ((0, 1, 127, -128, None), pa.int8(), True),
        ((0, 1, 2**62, -(2**62), None), pa.timestamp("us"), True),
        ((0, 1, 2**63, 2**64 - 1, None), pa.uint64(), False),
        ((0.0, -0.0, INF, -INF, float("nan"), 5e-324, None), pa.float64(), False),
        ((Decimal("0.00"), Decimal("1.25"), Decimal("9" * 16 + ".99"), None), pa.decimal128(18, 2), False),
    ],
    ids=str,
)
def test_a_difference_of_zero_is_an_equality_where_it_is_exact(
    values: tuple[object, ...], kind: pa.DataType, is_key: bool
) -> None:
    rng = random.Random(3)
    chosen = pa.array([rng.choice(values) for _ in range(60)], kind)
    types = [rng.choice("ABC") for _ in range(60)]
    events = pa.table({"type": types, "ts": range(60), "k": chosen, "n": range(60)})
    for condition in ("A.k - B.k = 0", "0 = A.k - B.k"):
        text = f"PATTERN A;B;!C WHERE {condition} AND B.k - C.k = 0 WITHIN 12 RETURN A.n, B.n"
        expected, found = (cepheid.match(text, events, evaluator=name) for name in ("reference", None))
        assert Counter(map(str, expected.to_pylist())) == Counter(map(str, found.to_pylist()))
        assert expected.num_rows > 0
        assert ("A.k = B.k" in cepheid.explain(text, events)) == is_key


def test_contradictions() -> None:
    assert shown(rules.remove_contradictions, "PATTERN A;!(B|C);D WHERE B.x < 1 AND B.x > 2 AND C.x = 1") == (
        "PATTERN A;!C;D\nWHERE C.x = 1"
    )
    query = example("PATTERN A;B WHERE A.x = B.x AND A.x = 1 AND B.x = 2")
    assert FALSE in rewrite(query, SCHEMA).where


def test_rewrites_lower_the_expense() -> None:
    query = example("PATTERN A;(!B&!C);D WITHIN 9")
    assert expense(rewrite(query, SCHEMA).pattern) < expense(query.pattern)


def test_a_broken_rule_is_named() -> None:
    def forgets_a_variable(query: Query, schema: Schema) -> Query:
        assert isinstance(query.pattern, Seq)
        return replace(query, pattern=Seq(query.pattern.items[1:]))

    def forgets_the_where(query: Query, schema: Schema) -> Query:
        return replace(query, where=())

    query = example("PATTERN A;B;C WHERE A.id = B.id AND B.id = C.id")
    broken: list[Rule] = [forgets_a_variable, forgets_the_where]
    for rule in broken:
        with pytest.raises(PatternProblem, match=rule.__name__):
            rewrite(query, SCHEMA, [rule])
