"""EQL's iteration over a union or a sequence: PREV and ALL of a part of an item, held to the oracle."""

from __future__ import annotations

import random

import pytest
from script_harness import drawn, finds_matches

QUERIES = (
    "SELECT * FROM (A a | B b)+ WHERE a.v >= PREV(a.v)",
    "SELECT * FROM (A a | B b)+ WHERE FILTER(a.v > PREV(a.v)), b.id = PREV(b.id)",
    "SELECT * FROM C c; (A a | B b)+ WHERE FILTER(a.v >= PREV(a.v)), b.v > PREV(a.v)",
    "SELECT * FROM ((A a; C c) | B b)+ WHERE a.v > PREV(c.v), b.id = PREV(b.id)",
    "SELECT * FROM (A a | B b)+ WHERE a.v >= ALL(a.v), count(a) < 4",
    "SELECT * FROM (A a; C c)+ WHERE a.v >= PREV(a.v)",
    "SELECT * FROM (A a; C c)+ WHERE FILTER(a.v > PREV(c.v)), c.id = PREV(c.id)",
    "SELECT * FROM B b; (A a; C c)+ WHERE FILTER(a.id = PREV(a.id)), c.v <= ALL(a.v)",
)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("text", QUERIES)
def test_a_condition_with_prev_is_about_the_items_of_the_iteration(text: str) -> None:
    rng, reached = random.Random(text), 0
    for rows in drawn(rng, 5, most=14):
        reached += finds_matches(text, rows, rng)
    assert reached >= 3
