"""Limits on the matches that one event completes, and on the memory of a step, in every evaluator."""

from __future__ import annotations

import pickle

import pyarrow as pa
import pytest

import cepheid
from cepheid.errors import Explosion, InputProblem, TooManyMatches, TooMuchMemory

EVENTS = pa.table(
    {"type": ["A"] * 24, "ts": list(range(24)), "k": [2 if i % 10 == 0 else 1 for i in range(24)], "v": list(range(24))}
)
SEQUENCE = "EVENT SEQ(A a, A b, A c, A d, A e) WHERE [k] WITHIN 100"
QUERIES = {
    "stacks": ("stacks", SEQUENCE, {}),
    "basic": ("stacks", SEQUENCE, {"algorithm": "basic"}),
    "trailing negation": ("stacks", "EVENT SEQ(A a, A b, A c, A d, !(B e)) WHERE [k] WITHIN 100", {}),
    "tree": ("tree", SEQUENCE, {}),
    "left-deep": ("tree", SEQUENCE, {"shape": "left-deep"}),
    "conjunction": ("tree", "PATTERN A a & A b & A c & A d WHERE a.k = b.k AND b.k = c.k AND c.k = d.k WITHIN 100", {}),
    "closures": ("tree", "PATTERN A a; A b; A c; A+; A d; A e WHERE a.k = b.k AND b.k = c.k WITHIN 100", {}),
    "runs": ("runs", "PATTERN SEQ(A a, A+ b[], A c) WHERE skip_till_next_match(a, b[], c) { [k] } WITHIN 100", {}),
    "any_runs": (
        "any_runs",
        "PATTERN SEQ(A a, A+ b[], A c) WHERE skip_till_any_match(a, b[], c) { [k] } WITHIN 100",
        {},
    ),
}
MOST = {"runs": 12}


def matches(name: str, **limits: str) -> pa.Table:
    evaluator, query, options = QUERIES[name]
    options = {**options, "max_matches": "off", **limits}
    return cepheid.match(query, EVENTS, output="positions", evaluator=evaluator, options=options)


@pytest.mark.parametrize("name", QUERIES)
def test_an_event_that_completes_too_many_matches_is_an_error(name: str) -> None:
    most = MOST.get(name, 100)
    with pytest.raises(TooManyMatches, match=f"completes more than {most} matches") as caught:
        matches(name, max_matches=str(most))
    problem = caught.value
    assert problem.row is not None and 0 < problem.row < 24
    assert all(way in str(problem) for way in ("RETURN count(*)", "LIMIT", 'output="compressed"', "`max_matches`"))
    assert str(pickle.loads(pickle.dumps(problem))) == str(problem)


@pytest.mark.parametrize("name", [name for name in QUERIES if QUERIES[name][0] != "any_runs"])
def test_matches_that_need_too_much_memory_are_an_error(name: str) -> None:
    most = "6 KB" if name == "runs" else "200 KB"
    with pytest.raises(TooMuchMemory, match="bytes of memory for ") as caught:
        matches(name, max_memory=most)
    assert "`max_memory`" in str(caught.value)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


@pytest.mark.parametrize("name", QUERIES)
def test_limits_that_are_met_change_nothing(name: str) -> None:
    if name == "any_runs":
        pytest.skip("millions of matches")
    assert matches(name, max_matches="200000", max_memory="90 MB").equals(matches(name, max_memory="off"))


@pytest.mark.parametrize("name", ["stacks", "basic", "tree", "runs"])
def test_the_error_names_the_key(name: str) -> None:
    with pytest.raises(Explosion, match="with k = 1"):
        matches(name, max_matches=str(MOST.get(name, 100)))


@pytest.mark.parametrize("name", ["stacks", "tree", "any_runs"])
def test_the_error_names_the_query_that_others_use(name: str) -> None:
    text = f"Inner: {QUERIES[name][1]}\nOuter: EVENT SEQ(Inner i, A a) WITHIN 5"
    with pytest.raises(TooManyMatches, match="with k = 1 completes more than 100 matches of `Inner`") as caught:
        cepheid.match(text, EVENTS, options={"max_matches": "100"})
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


@pytest.mark.parametrize(
    ("query", "operator"),
    [
        ("complex Q on A as a, A as b, A as c event seq(a, b, c)", "seq(a, b, c)"),
        (
            "complex Q on A as a, A as b, A as c, A as d event seq(and(a, b; 50), !d, c; 60) where d.v < 0",
            "seq(and(a, b), !d, c)",
        ),
        ("complex Q on A as a, A as b, A as c event and(a, b, c; 50) where a.k = b.k and b.k = c.k", "and(a, b, c)"),
        ("EVENT SEQ(A a, A b, A c) WITHIN 50", "seq(a, b, c)"),
        ("PATTERN A a; A b; A+; A c WITHIN 50", "seq(a, b, A+, c)"),
        ("PATTERN SEQ(A a, A+ b[]) WHERE skip_till_any_match(a, b[]) {} WITHIN 50", "seq(a, b+)"),
        ("PATTERN SEQ(A+ b[]) WHERE skip_till_next_match(b[]) {} WITHIN 50", "b+"),
        ("SELECT * FROM A a; A b WHERE FILTER(b.v > 22)", "next(a, b)"),
    ],
)
def test_the_error_names_the_operator_of_the_query(query: str, operator: str) -> None:
    with pytest.raises(TooManyMatches, match="completes more than 10 matches of") as caught:
        cepheid.match(query, EVENTS, options={"max_matches": "10"})
    assert f"matches of `{operator}`" in str(caught.value)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_the_error_names_the_operator() -> None:
    with pytest.raises(TooMuchMemory, match=r"memory for the (matches|records) of \[.*\], at the event at position"):
        matches("left-deep", max_memory="200 KB")


def test_a_summary_and_limit_are_not_stopped_by_the_number_of_matches() -> None:
    most = {"max_matches": "100"}
    (row,) = cepheid.match(f"{SEQUENCE} RETURN count(*)", EVENTS, options=most).to_pylist()
    assert row["count(*)"] == cepheid.match(SEQUENCE, EVENTS, output="positions").num_rows > 5000
    assert cepheid.match(f"{SEQUENCE} LIMIT 7", EVENTS, options=most).num_rows == 7


@pytest.mark.parametrize("wrong", ["much", "0", "-1", "3 bytes", ""])
def test_a_limit_on_memory_is_a_size(wrong: str) -> None:
    with pytest.raises(InputProblem, match="`max_memory` cannot be"):
        matches("stacks", max_memory=wrong)


@pytest.mark.parametrize(
    ("query", "warns"),
    [
        ("EVENT SEQ(A a, A b, A c)", True),
        ("EVENT SEQ(A a, A b, A c) WITHIN 9", False),
        ("EVENT SEQ(A a, A b)", False),
        ("EVENT SEQ(A a, A b, A c) LIMIT 3", False),
        ("EVENT SEQ(A a, A b, A c) RETURN count(*)", False),
        ("PATTERN (A | B | C); D", False),
        ("PATTERN SEQ(A a, A b, A c) WHERE skip_till_next_match(a, b, c) {}", False),
    ],
)
def test_explain_warns_of_combinations_without_a_window(query: str, warns: bool) -> None:
    assert ("to the power of 3" in cepheid.explain(query)) == warns
