"""The values of parameters, as Python and NumPy have them, in conditions and as lengths of windows."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import cepheid
from cepheid.app.cli import app
from cepheid.errors import CepheidError, InputProblem

TIMES = pd.to_datetime(["2024-01-01 00:00", "2024-01-01 00:01", "2024-01-01 00:10", "2024-01-01 00:13"])
EVENTS = pd.DataFrame({"type": ["A", "B", "A", "B"], "ts": TIMES, "n": [1, 2, 3, 4]})
WINDOWS = {
    "EVENT SEQ(A a, B b) WITHIN {}": 1,
    "PATTERN SEQ(A a, B b) WITHIN {}": 1,
    "PATTERN A a;B b WITHIN {}": 1,
    "SELECT * FROM A a; B b WHERE (a, b) OCCURS WITHIN {}": 1,
    "SELECT * FROM (A a @ {}); B b": 2,
    "complex Q on A as a, B as b event seq(a, b; {})": 1,
    "complex Q on A as a event count(a; {}) > 0": 2,
}


@pytest.mark.parametrize("query", WINDOWS)
def test_a_window_is_a_number_or_a_timedelta(query: str) -> None:
    given: list[tuple[str, Any]] = [
        ("w minutes", 2),
        ("$w minutes", np.int64(2)),
        ("w min", 2.0),
        ("$w", 120_000_000),
        ("w", timedelta(minutes=2)),
        ("w", pd.Timedelta("2min")),
        ("w", np.timedelta64(120, "s")),
    ]
    for text, value in given:
        assert len(cepheid.match(query.format(text), EVENTS, params={"w": value})) == WINDOWS[query]
    refused: tuple[Any, ...] = (-1, "2", True, None, float("inf"), datetime(2024, 1, 1))
    for value in refused:
        with pytest.raises(InputProblem, match="the parameter `w` is a length of time, and its value is"):
            cepheid.match(query.format("$w minutes"), EVENTS, params={"w": value})
    with pytest.raises(InputProblem, match="and the query gives it a unit"):
        cepheid.match(query.format("w minutes"), EVENTS, params={"w": timedelta(minutes=2)})


def test_a_timedelta_is_shown_as_it_was_probably_meant() -> None:
    plan = cepheid.explain("EVENT SEQ(A a, B b) WITHIN w", EVENTS, params={"w": timedelta(minutes=90)})
    assert "window: 90 min" in plan


@pytest.mark.parametrize("evaluator", [None, "reference"])
@pytest.mark.parametrize(
    ("condition", "value", "count"),
    [
        ("a.ts > p", datetime(2024, 1, 1, 0, 5), 1),
        ("a.ts > p", datetime(2024, 1, 1, 0, 5, tzinfo=UTC), 1),
        ("a.ts > p", pd.Timestamp("2024-01-01 01:05", tz="Europe/Berlin"), 1),
        ("a.ts > p", np.datetime64("2024-01-01T00:05:00.000000000"), 1),
        ("a.ts >= p", date(2024, 1, 1), 3),
        ("a.ts >= p", pd.NaT, 0),
        ("b.ts - a.ts > p", timedelta(minutes=3), 1),
        ("b.ts - a.ts > p * 1 minute", 3, 1),
        ("a.n > p", np.int64(2), 1),
        ("a.n > p", np.float32(2), 1),
        ("a.n > p", Decimal("2.5"), 1),
        ("a.n = 1 AND p", np.bool_(True), 2),
        ("a.n = p", None, 0),
        ("a.n IN (p, 9)", np.uint8(3), 1),
    ],
)
def test_values_of_python_and_numpy(condition: str, value: Any, count: int, evaluator: str | None) -> None:
    query = f"EVENT SEQ(A a, B b) WHERE {condition}"
    found = cepheid.match(query, EVENTS, params={"p": value}, evaluator=evaluator)
    assert len(found) == count


def test_values_that_are_none() -> None:
    with pytest.raises(CepheidError, match="the parameter `p` is a list") as raised:
        cepheid.match("EVENT SEQ(A a, B b) WHERE a.n > p", EVENTS, params={"p": [1, 2]})
    assert "IN (p1, p2)" in (raised.value.hint or "")
    with pytest.raises(CepheidError, match="the parameter `p` is a ndarray"):
        cepheid.match("EVENT SEQ(A a, B b) WHERE a.n > p", EVENTS, params={"p": np.array([1])})
    with pytest.raises(CepheidError, match="is compared with a count, and its value is 'many'"):
        cepheid.match("complex Q on A as a event count(a; 1 min) > p", EVENTS, params={"p": "many"})


def test_a_parameter_with_a_unit_in_a_condition() -> None:
    with pytest.raises(CepheidError) as raised:
        cepheid.match("EVENT SEQ(A a, B b) WHERE b.ts - a.ts < w minutes", EVENTS, params={"w": 2})
    assert "w * 1 minutes" in (raised.value.hint or "")


def test_a_window_on_the_command_line(tmp_path: Any) -> None:
    EVENTS.to_csv(tmp_path / "a.csv", index=False)
    query = "SELECT * FROM A a; B b WHERE (a, b) OCCURS WITHIN w minutes"
    arguments = ["run", query, "-i", str(tmp_path / "a.csv"), "--param", "w=2"]
    assert CliRunner().invoke(app, arguments).stderr.startswith("4 events read, 1 match")
