"""Negations before the first component in windows that count the events of a partition, held to the oracle."""

from __future__ import annotations

import random

import pytest
from script_harness import drawn, finds_matches

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
    for rows in drawn(rng, 6):
        reached += finds_matches(text, rows, rng)
    assert reached >= 2
