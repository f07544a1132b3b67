"""Distances between points of several events, by every evaluator as by definition."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

import cepheid

_LIST = pa.list_(pa.float64())


def _events(seed: int, points: list[Any]) -> pa.Table:
    rng = random.Random(seed)
    rows = [
        {"type": rng.choice("AB"), "ts": i, "p": rng.choice(points), "x": rng.randrange(4), "y": rng.random()}
        for i in range(40)
    ]
    schema = [("type", pa.string()), ("ts", pa.int64()), ("p", _LIST), ("x", pa.int64()), ("y", pa.float64())]
    return pa.Table.from_pylist(rows, pa.schema(schema))


def _rows(matches: pa.Table) -> list[str]:
    return sorted(map(str, matches.to_pylist()))


POINTS = [[0.0, 0.0], [3.0, 4.0], [1.0], [1.0, 2.0, 3.0, 4.0], [1.0, 2.0, 3.0, 4.0, 5.0], None, [1.0, None], []]
CONDITIONS = (
    "distance(a.p, b.p) >= 5",
    "not distance(a.p, b.p) < 2",
    "distance(a.p, b.p) < 2 or a.x > b.x",
    "distance(a.p, [b.x, b.y]) < 3 and a.x = b.x",
    "distance([a.x, a.y], [b.y, b.x]) * 2 <= 3",
    "distance(a.x, b.x) = 1",
    "distance(a.x, a.y, b.x, b.y) > 1.5",
)


@pytest.mark.parametrize("condition", CONDITIONS)
@pytest.mark.parametrize("operator", ["seq", "and"])
def test_distances_are_compiled(condition: str, operator: str) -> None:
    query = f"complex Q on A as a, B as b event {operator}(a, b; 6) where {condition}"
    found = 0
    for seed in range(3):
        events = _events(seed, POINTS)
        assert "reference" not in cepheid.explain(query, events)
        expected = _rows(cepheid.match(query, events, evaluator="reference"))
        assert _rows(cepheid.match(query, events, evaluator="tree")) == expected
        assert _rows(cepheid.match(query, events)) == expected
        found += len(expected)
    assert found


def test_coordinates_and_dimensions() -> None:
    query = "complex Q on A as a schema x as coordinate(a.p, 1), z as coordinate(a.p, 3), n as dimensions(a.p) event a"
    events = pa.table({"type": ["A", "A"], "ts": [1, 2], "p": pa.array([[1.5, 2.0], None], _LIST)})
    rows = [{name: row[name] for name in "xzn"} for row in cepheid.match(query, events).to_pylist()]
    assert rows == [{"x": 1.5, "z": 0.0, "n": 2}, {"x": None, "z": None, "n": None}]
