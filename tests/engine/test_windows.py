"""Windows at the ends of their range: of length zero, and too long for the time column."""

from __future__ import annotations

import pyarrow as pa
import pytest

import cepheid
from cepheid.errors import InputProblem
from cepheid.events import Clock, Duration

EVENTS = pa.table({"type": ["A", "B", "A", "B", "B"], "ts": [1, 1, 2, 3, 3], "v": [1, 2, 3, 4, 5]})
SHORTEST = {
    "EVENT A a WITHIN 0 units": 0,
    "EVENT SEQ(A a, B b) WITHIN 0 units": 0,
    "EVENT SEQ(A a, B b) WITHIN 1 units": 0,
    "EVENT SEQ(A a, B b) WITHIN 0 events": 0,
    "PATTERN A WITHIN 0 units": 2,
    "PATTERN A;B WITHIN 0 units": 0,
    "PATTERN A&B WITHIN 0 units": 1,
    "PATTERN SEQ(A a) WHERE skip_till_any_match { } WITHIN 0 units": 2,
    "PATTERN SEQ(A a, B b) WHERE skip_till_next_match { } WITHIN 0 units": 1,
    "PATTERN SEQ(B+ b[]) WHERE skip_till_any_match { } WITHIN 0 units": 4,
}


@pytest.mark.parametrize("query", SHORTEST)
def test_windows_of_no_length(query: str) -> None:
    expected = SHORTEST[query]
    assert len(cepheid.match(query, EVENTS, evaluator="reference")) == expected
    assert len(cepheid.match(query, EVENTS)) == expected
    assert len(cepheid.match(query, EVENTS, adaptive=cepheid.Adaptive(observed_every=1, seconds_between=0))) == expected


@pytest.mark.parametrize("query", [query for query in SHORTEST if query.startswith("EVENT")])
def test_windows_of_no_length_without_window_pushdown(query: str) -> None:
    assert len(cepheid.match(query, EVENTS, options={"algorithm": "basic"})) == SHORTEST[query]


TOO_LONG = [
    "EVENT SEQ(A a, B b) WITHIN 1e30 hours",
    "EVENT SEQ(A a, B b) WITHIN 2305843009213693952 units",
    "PATTERN A;B WITHIN 9223372036854775807 units",
    "PATTERN A;B WITHIN 1e300 events",
    "PATTERN SEQ(A a, B b) WHERE skip_till_next_match { } WITHIN 1e13 weeks",
    "SELECT * FROM A; B WHERE (A, B) OCCURS WITHIN 1e30 hours",
    "SELECT * FROM A @ 1e30 hours",
    "source A schema int v\nsource B schema int v\ncomplex c on A, B event seq(A, B; 1e30 hours)",
]


@pytest.mark.parametrize("query", TOO_LONG)
@pytest.mark.parametrize("evaluator", [None, "reference"])
def test_a_window_that_does_not_fit_is_refused(query: str, evaluator: str | None) -> None:
    with pytest.raises(InputProblem, match="too long") as caught:
        cepheid.match(query, EVENTS, time_unit="s", evaluator=evaluator)
    assert caught.value.position is not None and "2^61" in str(caught.value)


def test_a_window_has_the_length_that_is_written() -> None:
    assert Clock("ms").ticks(Duration(0.1, "s")) == 100
    assert Clock("us").ticks(Duration(9007199254740993, "us")) == 9007199254740993
    assert Clock("s").ticks(Duration(1500, "ms")) == 1.5


def test_the_longest_window_reaches_from_the_first_time_to_the_last() -> None:
    ends = pa.table({"type": ["A", "B"], "ts": [-(2**60), 2**60 - 1]})
    for query, expected in (
        ("EVENT SEQ(A a, B b) WITHIN 2305843009213693951 units", 0),
        ("PATTERN A;B WITHIN 2305843009213693951 units", 1),
    ):
        assert len(cepheid.match(query, ends)) == len(cepheid.match(query, ends, evaluator="reference")) == expected


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1, "1 hour", True])
def test_a_parameter_that_is_no_length_of_time_is_refused(value: object) -> None:
    with pytest.raises(InputProblem, match="`w` is a length of time, and its value is"):
        cepheid.match("EVENT SEQ(A a, B b) WITHIN w", EVENTS, params={"w": value}, time_unit="s")
