"""Negations before the first component in windows that count the events of a partition, held to the oracle."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest
from script_harness import in_batches, streamed
from simulation_harness import SCHEMA, multiset, random_rows

import cepheid
from cepheid.physical import REFERENCE

QUERIES = (
    "PATTERN SEQ(~(B b), A a, C c) WHERE skip_till_next_match(b, a, c) { [id] } WITHIN 3 events",
    "PATTERN SEQ(~(B b), A a, C c) WHERE skip_till_next_match(b, a, c) { a.id = c.id AND b.v > a.v } WITHIN 3 events",
    "PATTERN SEQ(~(B b), A a, C+ c[]) WHERE skip_till_next_match { [id] AND b.v < c[1].v } WITHIN 5 events",
    "PATTERN SEQ(~(B b), A a, ~(B d), C c) WHERE skip_till_next_match { [id] } WITHIN 4 events",
)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("text", QUERIES)
def test_a_leading_negation_counts_positions_in_the_partition(text: str) -> None:
    rng, reached = random.Random(text), 0
    drawn = [rows for rows in (random_rows(rng) for _ in range(40)) if len({row["type"] for row in rows}) == 3]
    for rows in drawn[:6]:
        table = pa.Table.from_pylist(rows, SCHEMA)
        expected = multiset(cepheid.match(text, table, time_unit="ms", evaluator=REFERENCE))
        assert multiset(cepheid.match(text, table, time_unit="ms")) == expected
        assert multiset(in_batches(text, table, rng)) == expected
        assert multiset(streamed(text, rows, rng, 3)) == expected
        reached += bool(expected)
    assert reached >= 2
