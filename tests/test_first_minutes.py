"""What newcomers meet in the first minutes: empty inputs, misspelt parameters, plans in units that people read."""

from __future__ import annotations

import warnings
from pathlib import Path

import pyarrow as pa
import pytest
from text_harness import cepheid as command

import cepheid
from cepheid.errors import InputProblem
from cepheid.events import Clock

QUERY = "EVENT SEQ(A x, B y) WHERE x.k > low WITHIN w seconds"
EVENTS = pa.table({"type": ["A", "B"], "ts": [1, 2], "k": [5, 6], "note": [None, "n"]})


@pytest.mark.parametrize(
    ("query", "params", "expected"),
    [(QUERY, {"low": 1, "w": 5, "lwo": 2}, "one of `low`, `w`"), ("EVENT SEQ(A x, B y)", {"low": 1}, "no parameters")],
)
def test_a_parameter_that_the_query_does_not_have(query: str, params: dict[str, int], expected: str) -> None:
    for call in (cepheid.match, cepheid.explain):
        with pytest.raises(InputProblem, match="the query has no parameter `l") as raised:
            call(query, EVENTS, params=params, time_unit="s")
        assert expected in str(raised.value)
    assert len(cepheid.match(QUERY, EVENTS, params={"low": 1, "w": 5}, time_unit="s")) == 1


def test_an_empty_list_of_events() -> None:
    with pytest.raises(InputProblem, match="the list of events is empty"):
        cepheid.match("EVENT SEQ(A x, B y)", [])


@pytest.mark.parametrize("name", ["empty.csv", "empty.jsonl"])
def test_an_empty_file_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("")
    done = command("run", "--query", "EVENT SEQ(A x, B y)", "--input", tmp_path / name)
    assert done.exit_code == 0 and f"there is no row of events in `{tmp_path / name}`" in done.stderr


def test_a_comparison_with_null_has_one_warning() -> None:
    lacking = [cepheid.Input(EVENTS.slice(0, 1).drop_columns(["note"]), type="A"), cepheid.Input(EVENTS[1:], type="B")]
    for events in (lacking, EVENTS):
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            cepheid.match("EVENT SEQ(A a, B b) WHERE a.note = NULL", events)
        assert sum("NULL" in str(one.message) for one in found) == 1


@pytest.mark.parametrize(
    ("clock", "ticks", "text"),
    [
        (Clock("us", is_timestamp=True), 5_999_999, "< 6 s"),
        (Clock("us", is_timestamp=True), 90_000_000, "<= 90 s"),
        (Clock("ms"), 43_200_000, "<= 12 h"),
        (Clock("s"), 86_399, "< 1 d"),
        (Clock(), 29, "<= 29 ticks"),
    ],
)
def test_lengths_of_time_for_people(clock: Clock, ticks: int, text: str) -> None:
    assert clock.bound(ticks) == text


def test_the_window_of_eql_is_in_its_conditions() -> None:
    query = "SELECT * FROM ( A a ; B b ) WHERE (a, b) OCCURS WITHIN 10 min"
    shown = str(cepheid.explain(query, EVENTS, time_unit="s"))
    assert "window: none" not in shown and "units" not in shown and "window: last - first <= 10 min" in shown


def test_a_conjunction_has_no_last_event() -> None:
    shown = str(cepheid.explain("PATTERN A x & B y WHERE x.k = y.k WITHIN 5"))
    assert "tested when x and y are bound, in any order" in shown


def test_a_directory_is_not_a_query(tmp_path: Path) -> None:
    done = command("explain", tmp_path)
    assert done.exit_code != 0 and "is a directory" in done.stderr and "cepheid deploy" in done.stderr


@pytest.mark.parametrize("evaluator", [None, "reference"])
def test_coalesce_in_return_shows_the_branch_that_matched(evaluator: str | None) -> None:
    events = pa.table(
        {
            "type": ["A", "B", "A", "C", "A", "B"],
            "ts": [1, 2, 11, 12, 21, 22],
            "v": [1, 2, 3, 4, 5, None],
            "name": ["a", "bee", "a", "sea", "a", None],
        }
    )
    query = """PATTERN A;(B|C) WITHIN 5 RETURN coalesce(B.v, C.v) AS v, coalesce(B.name, C.name, 'none') AS name,
               coalesce(C.v, 0) + A.v AS total, coalesce(C.v, NULL, 7) AS other"""
    found = cepheid.match(query, events, evaluator=evaluator).to_pylist()
    shown = [(row["v"], row["name"], row["total"], row["other"]) for row in found]
    assert shown == [(2, "bee", 1, 7), (4, "sea", 7, 4), (None, "none", 5, 7)]
