"""LIMIT takes the same matches whatever the evaluator."""

from __future__ import annotations

import pyarrow as pa
import pytest

import cepheid
from cepheid.errors import CepheidError

EVENTS = pa.table({"type": ["A", "B", "A", "B"] * 3, "ts": [number // 2 for number in range(12)], "v": range(12)})
CLOSURES = "PATTERN SEQ(A+ a[], A+ b[]) WHERE skip_till_any_match(a[], b[]) { a[1].v >= 0 } WITHIN 100"


@pytest.mark.parametrize("limit", [1, 2, 3, 5])
@pytest.mark.parametrize(
    "query",
    ["PATTERN (A x | A y)", "PATTERN (B b | A x | A y)", CLOSURES, "PATTERN B;A", "EVENT SEQ(A x, B y)", "PATTERN A&B"],
)
def test_every_evaluator_takes_the_same_matches(query: str, limit: int) -> None:
    text = f"{query} LIMIT {limit}"
    expected = cepheid.match(text, EVENTS, output="positions", evaluator="reference").to_pylist()
    assert len(expected) == limit
    able = []
    for evaluator in ("stacks", "runs", "tree", "any_runs"):
        try:
            found = cepheid.match(text, EVENTS, output="positions", evaluator=evaluator)
        except CepheidError:
            continue
        able.append(evaluator)
        assert found.to_pylist() == expected, evaluator
    assert able
