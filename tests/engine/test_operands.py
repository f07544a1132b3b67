"""Aggregates of expressions over one event, `sum(b.v * b.w)`, in every language, held to the oracle."""

from __future__ import annotations

import random

import pytest
from script_harness import drawn, finds_matches

from cepheid import lang

QUERIES = (
    "PATTERN A a;B b+;C c WHERE sum(b.v * b.n) > 2 WITHIN 14 "
    "RETURN sum(b.v * b.n) AS s, max(length(b.name)) AS l, avg(abs(b.v)) AS m, first(upper(b.name)) AS f, a.n AS a",
    "PATTERN A a;(B b|C c)+;A d WHERE max(b.v * 2) > a.v WITHIN 9 RETURN sum(b.v * b.n) AS s, min(length(c.name)) AS l",
    "PATTERN SEQ(A a, B+ b[], C c) WHERE skip_till_next_match(a, b[], c) { "
    "avg(abs(b[i].v)) > 1 AND sum(b[..i-1].v * 2) < 12 } WITHIN 9 RETURN count(b.v + 1) AS l, c.n AS c",
    "PATTERN SEQ(A a, B+ b[], C c) WHERE skip_till_any_match(a, b[], c) { sum(b.v * b.v) > 5 } WITHIN 6 "
    "RETURN max(upper(b.name)) AS u, last(b.v - b.id) AS v, c.n AS c",
    "PATTERN SEQ(A a, B+ b[], C c) WHERE skip_till_any_match(a, b[], c) { [id] } WITHIN 8 "
    "RETURN count(*) AS n, sum(b.n * 2) AS s, max(length(b.name)) AS m, max(upper(b.name)) AS u, max(b.v > 2) AS t",
    "EVENT SEQ(A a, B b) WITHIN 5 RETURN count(*) AS n, sum(a.n * a.n) AS s, max(concat(b.name, '!')) AS u",
    "SELECT sum(b.v * b.n) AS s, max(length(b.name)) AS l FROM (B b)+ WHERE FILTER(b.id = PREV(b.id)), "
    "sum(b.v * b.v) < 20",
    "SELECT sum(b.v * b.n) AS s FROM A a; (B b)+ WHERE sum(b.v * 2) > a.v",
    "P: PATTERN A a;B b WITHIN 4\nQ: PATTERN P p+;C c WITHIN 8 "
    "RETURN sum(p.a.v * p.b.v) AS s, max(length(p.b.name)) AS l, c.n AS c",
)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("text", QUERIES)
def test_an_operand_is_computed_from_each_event(text: str) -> None:
    query = lang.parse(text)
    assert lang.parse(str(query)) == query
    rng, reached = random.Random(text), 0
    for rows in drawn(rng, 5):
        reached += finds_matches(text, rows, rng, streams=not query.summarizes)
    assert reached >= 2
