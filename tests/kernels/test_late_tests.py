"""Conditions on aggregates of an iteration whose chains wait in groups: held to the oracle and to chains one by one."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from examples import examples
from hypothesis import given, reject, settings
from hypothesis import strategies as st
from kernel_harness import bound, by_kernel, by_oracle, encoder_of, kernel_of, require_machine_code_agrees, stream_of

import cepheid
from cepheid.errors import NameProblem, TooManyMatches
from cepheid.kernels import successor
from cepheid.kernels.successor import path_tests
from cepheid.runtime.kernel import operator_counts

HUGE = 2**62
PATTERNS = (
    "A b+",
    "(A | B b)+",
    "(A b | B c)+",
    "A b+; B x",
    "(A b+; B x); C y",
    "A b+ | (B x; C y)",
    "(A b+; B x) | C y",
    "A b+ @ 2",
    "(A b; B x)+",
    "A b+; (B x | C y)",
    r"A b+; (B x \ C y)",
    r"(A b+ \ C y); B x",
    "B x; A b+",
    r"(B x; C y) \ A b+",
)
"""All bind `b` as an iteration; the last ones decide by its chains."""


def _condition(rng: Random, names: str) -> str:
    name = rng.choice("vvf")
    fn = rng.choice(("sum", "sum", "avg", "min", "max", "first", "last"))
    sign = rng.choice(("<", "<=", ">", ">=", "=", "!="))
    value = f"{fn}(b.{name})"
    forms = [f"{value} {sign} {rng.choice((2, 3.5, 6))}", f"count(b) {sign} {rng.choice((1, 2, 3))}"]
    forms += [f"{value} {sign} max(b.w)", f"count(b.{name}) >= 2", f"sum(b.v) + count(b) {sign} 5", "sum(b.v) > b.w"]
    forms += [f"({value} {sign} 3 OR count(b) = 1)", f"3 < {value} AND count(b) > 1", f"min(b.s) {sign} 'q'"]
    if "x" in names:
        forms += [
            f"{value} {sign} x.v",
            f"FILTER({value} {sign} x.v)",
            "sum(b.f) > x.f",
            f"{value} {sign} count(b) * x.w",
        ]
    return rng.choice(forms)


def _query(rng: Random, is_timed: bool = True) -> str:
    """Without OCCURS WITHIN, if it is not timed: chains that it leaves out of their group are not counted as failed."""
    pattern = rng.choice(PATTERNS)
    conditions = [_condition(rng, pattern) for _ in range(rng.choice((1, 1, 2, 3)))]
    others = [
        "FILTER(b.k = PREV(b.k))",
        "b.v >= PREV(b.v)",
        "(b, b) OCCURS WITHIN 5",
        "FILTER(b.w < 3)",
        "b.v <> ALL(b.v)",
    ]
    if " x" in pattern:
        others += ["FILTER(b.k = x.k)", "x.w > 1", "x.w > b.w", "(b, x) OCCURS WITHIN 4"]
    others = [other for other in others if is_timed or "OCCURS" not in other]
    conditions += rng.sample(others, rng.choice((0, 1, 1, 2)))
    rng.shuffle(conditions)
    return f"SELECT * FROM {pattern} WHERE {', '.join(conditions)}"


def _rows(rng: Random, most: int = 9) -> list[dict[str, Any]]:
    integers = rng.choice(((1, 2, 3, None), (1, 2, 3), (HUGE, -HUGE, 1, 3), (HUGE, HUGE, -HUGE, -2)))
    floats = rng.choice(((0.1, 0.2, 0.7, 1e16, -1e16, None), (1.0, 2.5), (1e308, float("inf"), 1.0)))
    lacking = rng.choice((None, None, ("B", "v")))
    time, found = 0, []
    for _ in range(rng.randrange(1, most + 1)):
        time += rng.choice((0, 1, 1, 2))
        row = {"type": rng.choice("AAABBC"), "ts": time, "k": rng.choice((1, 1, 2, None)), "v": rng.choice(integers)}
        row |= {"f": rng.choice(floats), "w": rng.choice((1, 2, 3)), "s": rng.choice(("p", "q", "r", None))}
        found.append({name: value for name, value in row.items() if (row["type"], name) != lacking})
    return found


@settings(max_examples=examples(300), deadline=None)
@given(st.integers(0, 10**9))
def test_matches_are_those_of_the_oracle(seed: int) -> None:
    rng = Random(seed)
    text, rows = _query(rng), _rows(rng)
    stream = stream_of(rows)
    try:
        query = bound(text, stream)
    except NameProblem:
        reject()  # no event has the attribute
    kernel = kernel_of(query, stream, evaluator="successor")
    expected = by_oracle(query, stream)
    for cuts in ((), range(1, len(rows)), sorted(rng.sample(range(len(rows)), min(2, len(rows))))):
        assert by_kernel(kernel, stream, cuts)[0] == expected


@settings(max_examples=examples(100), deadline=None)
@given(st.integers(0, 10**9))
def test_failed_detections_are_counted_as_they_are_shown(seed: int) -> None:
    rng = Random(seed)
    text, stream = _query(rng, is_timed=False), stream_of(_rows(rng, 12))
    try:
        query = bound(text, stream)
    except NameProblem:
        reject()
    kernel = kernel_of(query, stream, evaluator="successor")
    state, _ = kernel.step(kernel.initial(), encoder_of(kernel).encode(stream.table))
    shown = kernel_of(query, stream, evaluator="successor", options={"failures": "rows"})
    _, rows = shown.step(shown.initial(), encoder_of(shown).encode(stream.table))
    assert successor.failed_detections(kernel, state) == len(rows)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM A b+ WHERE FILTER(b.k = PREV(b.k)), sum(b.f) > 2.3, count(b) >= 2",
        "SELECT * FROM A b+; B x WHERE FILTER(b.v <= PREV(b.v)), avg(b.v) > 1, sum(b.f) < x.f, (b, x) OCCURS WITHIN 8",
        "SELECT * FROM (A b | B c)+ WHERE min(b.s) <= 'q', max(b.f) > 0.5, sum(b.v) > 2, (b, c) OCCURS WITHIN 5",
    ],
)
def test_machine_code_agrees(text: str) -> None:
    stream = stream_of(_rows(Random(5), 60))
    require_machine_code_agrees(bound(text, stream), stream, "successor", [7, 8, 30])


@pytest.mark.parametrize(
    "condition",
    ["count(A) >= 99", "sum(A.v) > 4900", "avg(A.f) > 40", "min(A.v) >= 5", "max(A.f) < 20", "sum(A.v) < 40"],
)
def test_chains_that_a_condition_distinguishes_advance_together(condition: str) -> None:
    """An event advances one group, as without the condition."""
    rows = [{"type": "A", "ts": i, "k": 1, "v": i, "f": i / 2} for i in range(100)]
    stream = stream_of(rows)
    query = bound(f"SELECT * FROM A+ WHERE FILTER(A.k = PREV(A.k)), {condition}", stream)
    kernel = kernel_of(query, stream, evaluator="successor")
    state, _ = kernel.step(kernel.initial(), encoder_of(kernel).encode(stream.table))
    chains = next(iter(operator_counts(kernel, state).values()))
    assert (chains.tried, chains.made) == (99, 100)


def test_a_condition_on_the_successor_keeps_the_groups() -> None:
    rows = [{"type": "A", "ts": i, "k": 1, "v": 1} for i in range(100)]
    stream = stream_of([*rows, {"type": "B", "ts": 100, "k": 1, "v": 9}, {"type": "C", "ts": 101, "k": 1, "v": 3}])
    text = "SELECT * FROM A a+; B b; C c WHERE FILTER(a.k = PREV(a.k)), FILTER(a.k = b.k), count(a) >= 99, "
    for condition, failed, matches in (("b.v > 5", 0, 3), ("b.v > 9", 3, 0), ("b.v > 5, c.v > 5", 3, 0)):
        kernel = kernel_of(bound(text + condition, stream), stream, evaluator="successor")
        state, positions = kernel.step(kernel.initial(), encoder_of(kernel).encode(stream.table))
        assert (successor.failed_detections(kernel, state), len(positions)) == (failed, matches)
        chains = next(iter(operator_counts(kernel, state).values()))
        assert (chains.tried, chains.made) == (99, 100)


def _limited(condition: str, most: int, n: int = 60) -> int:
    rows = [{"type": "A", "ts": i, "k": "x"} for i in range(n)]
    text = f"SELECT * FROM A+ WHERE FILTER(A.k = PREV(A.k)), {condition}"
    return int(cepheid.match(text, stream_of(rows).table, options={"max_matches": str(most)}).num_rows)


def test_the_limit_counts_the_chains_that_pass() -> None:
    """The last event ends 60 chains with 1,830 events, one of which has all 60."""
    assert _limited("count(A) >= 60", 100) == 1
    with pytest.raises(TooManyMatches) as problem:
        _limited("count(A) >= 50", 100)
    assert "with k = x completes more than 100 events in the matches of `" in str(problem.value)
    assert problem.value.row == 50  # chains of 50 and 51 events


def test_the_limit_stops_paths_that_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(path_tests, "_TESTED", 1)
    with pytest.raises(TooManyMatches):
        _limited("count(A) >= 1000", 50)
