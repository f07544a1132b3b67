"""Equivalence tests inside other conditions, and aggregates over all matches beside other columns."""

import pyarrow as pa
import pytest

import cepheid
from cepheid.errors import PatternProblem

EVENTS = pa.table({"type": ["A", "B", "B"], "ts": [1, 2, 3], "k": [1, 2, 1], "v": [0, 5, 0]})


@pytest.mark.parametrize("evaluator", [None, "reference"])
@pytest.mark.parametrize(
    ("condition", "expected"),
    [("[k] OR b.v > 3", [2, 3]), ("NOT [k]", [2]), ("[k] OR b.v > 9", [3]), ("[k = 1] OR b.v = 9", [3])],
)
def test_an_equivalence_test_inside_a_condition_compares_all_events(
    evaluator: str | None, condition: str, expected: list[int]
) -> None:
    text = f"EVENT SEQ(A a, B b) WHERE {condition} WITHIN 9 RETURN b.ts AS ts"
    assert cepheid.match(text, EVENTS, evaluator=evaluator)["ts"].to_pylist() == expected


def test_an_equivalence_test_inside_a_condition_has_no_meaning_with_closures_or_negations() -> None:
    with pytest.raises(PatternProblem, match="closures or negations"):
        cepheid.match("EVENT SEQ(A a, !(B b), B c) WHERE [k] OR c.v > 3 WITHIN 9", EVENTS)


@pytest.mark.parametrize("columns", ["a.v, count(*)", "count(*) + 1", "abs(count(*)), count(*)"])
def test_a_value_of_all_matches_has_no_place_beside_those_of_one(columns: str) -> None:
    with pytest.raises(PatternProblem, match="one value for all matches"):
        cepheid.match(f"EVENT SEQ(A a, B b) WITHIN 9 RETURN {columns}", EVENTS)
