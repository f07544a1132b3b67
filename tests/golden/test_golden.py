"""Every golden case: the query parses, prints back, and the oracle finds what the case says (or refuses, as it says).

Expected results are derived by hand from the papers and the rulings, never from a run. `check(case, evaluate)` holds
any other evaluator to the same cases.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from golden_cases import Case, all_cases, check, differences, lines, read_text

from cepheid.errors import CepheidError
from cepheid.lang import parse, recognise, to_text
from cepheid.semantics import Match, evaluate

CASES = all_cases()
MATCHING = [case for case in CASES if case.matches is not None]
REFUSED = [case for case in CASES if case.error]


def _id(case: Case) -> str:
    return f"{case.language}/{case.name}"


def test_there_are_cases() -> None:
    assert len(CASES) >= 300
    assert {case.language for case in CASES} >= {"sase", "sase_plus", "zstream", "eql", "ced", "composition", "errors"}


def test_every_decision_is_documented() -> None:
    """Where the papers and the rulings are silent, docs/semantics.md says what was decided and points to the case."""
    text = (Path(__file__).parent.parent.parent / "docs" / "semantics.md").read_text(encoding="utf-8")
    decided = [case for case in CASES if "decision" in case.headers["source"]]
    assert len(decided) > 20
    assert [_id(case) for case in decided if f"tests/golden/{_id(case)}.txt" not in text] == []


@pytest.mark.parametrize("case", MATCHING, ids=_id)
def test_oracle_finds_what_the_case_says(case: Case) -> None:
    assert check(case, evaluate) == []


@pytest.mark.parametrize("case", MATCHING, ids=_id)
def test_query_prints_back(case: Case) -> None:
    query = parse(case.query)
    printed = to_text(query)
    assert parse(printed) == query
    assert to_text(parse(printed)) == printed


@pytest.mark.parametrize("case", [c for c in MATCHING if c.language not in ("composition", "rulings")], ids=_id)
def test_language_is_recognised(case: Case) -> None:
    assert recognise(case.query).name.replace("+", "_plus") == case.language


@pytest.mark.parametrize("case", REFUSED, ids=_id)
def test_query_is_refused(case: Case) -> None:
    with pytest.raises(CepheidError) as caught:
        try:
            query, events = case.bound()
            evaluate(query, events, case.clock)
        except CepheidError as error:
            raise error.within(case.query) from None
    message = str(caught.value)
    assert [part for part in case.error if part not in message] == [], message


# --- the harness itself can fail --------------------------------------------------------------------------------------

_CASE = """title: the harness
source: none

query:
EVENT SEQ(A x, B y) WITHIN 10

events:
A 1
A 2
B 4
B 4

matches:
x=A@1 y=B@4
x=A@1 y=B@4#2
x=A@2 y=B@4
x=A@2 y=B@4#2
"""


def _differences(lines_expected: list[str]) -> list[str]:
    head = _CASE.split("matches:")[0]
    return check(read_text(head + "matches:\n" + "\n".join(lines_expected), "harness", "sase"), evaluate)


def test_comparator_accepts_the_truth_in_any_order() -> None:
    expected = _CASE.split("matches:\n")[1].splitlines()
    assert _differences(expected) == []
    assert _differences(["y=B@4 x=A@2", *expected[:2][::-1], "x=A@2   y=B@4#2"]) == []


def test_comparator_sees_a_missing_match() -> None:
    expected = _CASE.split("matches:\n")[1].splitlines()
    assert _differences([*expected, "x=A@9 y=B@4"]) == ["missing: x=A@9 y=B@4"]


def test_comparator_sees_a_match_too_many() -> None:
    expected = _CASE.split("matches:\n")[1].splitlines()
    assert _differences(expected[1:]) == ["not expected: x=A@1 y=B@4"]
    assert len(_differences([])) == 4


def test_comparator_counts_duplicates() -> None:
    assert differences(["x=A@1", "x=A@1"], ["x=A@1"]) == ["missing: x=A@1"]
    assert differences(["x=A@1"], ["x=A@1", "x=A@1"]) == ["not expected: x=A@1"]


def test_comparator_sees_a_wrong_binding() -> None:
    expected = _CASE.split("matches:\n")[1].splitlines()
    wrong = ["x=A@1 y=B@3", *expected[1:]]
    assert _differences(wrong) == ["missing: x=A@1 y=B@3", "not expected: x=A@1 y=B@4"]
    swapped = ["x=B@4 y=A@1", *expected[1:]]
    assert _differences(swapped) == ["missing: x=B@4 y=A@1", "not expected: x=A@1 y=B@4"]


def test_comparator_sees_a_wrong_interval() -> None:
    case = read_text(_CASE.split("matches:")[0].replace("B 4\n", "", 1) + "matches:\n1..5 x=A@1 y=B@4", "h", "sase")
    assert check(case, evaluate) == [
        "missing: 1..5 x=A@1 y=B@4",
        "not expected: 1..4 x=A@1 y=B@4",
        "not expected: 2..4 x=A@2 y=B@4",
    ]


def test_comparator_sees_an_evaluator_that_finds_nothing_or_everything_twice() -> None:
    case = read_text(_CASE, "harness", "sase")
    assert len(check(case, lambda query, events, clock: [])) == 4
    assert len(check(case, lambda query, events, clock: [*evaluate(query, events, clock)] * 2)) == 4


def test_closures_branches_and_columns_are_told_apart() -> None:
    query = parse("PATTERN SEQ(A+ a[], B b)")
    case = read_text(_CASE, "harness", "sase")
    first, second, *_ = events = case.events()
    found = [Match({"a": (first, second), "b": None}, 1, 2), Match({"a": (second,), "b": first}, 1, 2)]
    assert lines(query, found, events) == ["a=[A@1,A@2] b=-", "a=[A@2] b=A@1"]
    returned = parse("PATTERN SEQ(A+ a[], B b) RETURN count(a) AS n, b.id")
    assert lines(returned, [Match({}, 1, 2, {"n": 1, "b.id": None})], events) == ["b.id=null n=1"]
    assert lines(returned, [Match({}, 1, 2, {"n": True, "b.id": 1.5})], events) == ["b.id=1.5 n=true"]


@pytest.mark.parametrize(
    "broken",
    [
        _CASE.replace("title: the harness\n", ""),
        _CASE.replace("matches:", "matchs:").replace("x=A", "A"),
        _CASE.replace("query:", "qery:"),
        _CASE.replace("events:\n", ""),
        _CASE + "\nerror:\nsomething\n",
        _CASE.split("matches:")[0] + "error:\n",
        _CASE.replace("A 1\n", "A 1 id3\n"),
    ],
)
def test_a_slip_in_a_case_file_is_an_error(broken: str) -> None:
    with pytest.raises(ValueError):
        read_text(broken, "broken", "sase")
