"""Sums of floats that leave the numbers: once a sum is undefined it stays so, in every evaluator, and a sum of no
values is null."""

from __future__ import annotations

import itertools
import math
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_harness import bound, by_kernel, by_oracle, kernel_of, stream_of

import cepheid

pytestmark = pytest.mark.filterwarnings("error::RuntimeWarning")

VALUES = (
    (math.inf, -math.inf, 1.0),
    (1e308, 1e308, -1e308, 2.0, None),
    (None, 0.0, -0.0, math.nan),
    (None, math.nan, math.inf, -math.inf, 1e308, -1e308, 0.0, -0.0, 1.5, -2.25),
)
PATTERNS = {
    "runs": (
        "PATTERN SEQ(A+ a[], B b) WHERE skip_till_next_match(a[], b) {{ {} }} WITHIN 9",
        "PATTERN SEQ(C c, A* a[], B b) WHERE partition_contiguity(c, a[], b) {{ [k] AND {} }}",
        "PATTERN SEQ(A+ a[], B b, ~(C c)) WHERE skip_till_next_match(a[], b) {{ {} }} WITHIN 9",
    ),
    "any_runs": (
        "PATTERN SEQ(A+ a[], B b) WHERE skip_till_any_match {{ {} }} WITHIN 7",
        "PATTERN SEQ(C c, A* a[], B b) WHERE skip_till_any_match {{ {} }} WITHIN 7",
    ),
    "tree": ("PATTERN A a+;B b WHERE {} WITHIN 9", "PATTERN C c;A a*;B b WHERE {} WITHIN 9"),
    "successor": (
        "SELECT * FROM A a+; B b WHERE {}, (a, b) OCCURS WITHIN 9",
        "SELECT * FROM (A a | C c)+; B b WHERE {}",
        "SELECT * FROM B b; A a+ WHERE FILTER({}), (b, a) OCCURS WITHIN 8",
    ),
}


def _rows(rng: Random, length: int = 10) -> list[dict[str, Any]]:
    values = rng.choice(VALUES)
    return [
        {"type": rng.choice("AAABC"), "ts": i, "k": rng.choice((1, 1, 2)), "v": rng.choice(values)}
        for i in range(length)
    ] + [{"type": kind, "ts": 100 + i, "k": 3, "v": 0.5} for i, kind in enumerate("ABC")]


def _condition(rng: Random) -> str:
    fn = rng.choice(("sum", "sum", "avg", "avg", "min", "max"))
    test = f"{fn}(a.v) {rng.choice(('<', '>', '=', '!=', '<=', '>='))} {rng.choice(('0.0', '1.5', '1e300', '-1e300'))}"
    return rng.choice((test, f"NOT ({test})", f"{fn}(a.v) IS NULL"))


def _of_language(evaluator: str, condition: str) -> str:
    return condition.replace("(a.v)", "(a[].v)") if "runs" in evaluator else condition


@pytest.mark.parametrize(("evaluator", "pattern"), [(name, p) for name, ps in PATTERNS.items() for p in ps])
@given(seed=st.integers(0, 2**32))
@settings(max_examples=examples(40))
def test_the_oracle_agrees(evaluator: str, pattern: str, seed: int) -> None:
    """Cut anywhere, with a save and a restore of the state at every cut."""
    rng = Random(seed)
    events = stream_of(_rows(rng))
    query = bound(pattern.format(_of_language(evaluator, _condition(rng))), events)
    kernel = kernel_of(query, events, evaluator=evaluator)
    cuts = sorted(rng.sample(range(1, len(events.events)), 3))
    assert by_kernel(kernel, events, cuts)[0] == by_oracle(query, events)


@pytest.mark.parametrize("evaluator", PATTERNS)
@pytest.mark.parametrize("values", [[math.inf, -math.inf, 5.0], [1e308, 1e308, -math.inf, 5.0], [None, -0.0]], ids=str)
def test_an_undefined_sum_stays_undefined(evaluator: str, values: list[float | None]) -> None:
    rows = [{"type": "A", "ts": i, "v": v, "k": 1} for i, v in enumerate(values)] + [
        {"type": "B", "ts": 50, "v": 5.0, "k": 1}
    ]
    events = stream_of(rows)
    pattern = PATTERNS[evaluator][0].replace(" 9", " 90").replace(" 7", " 90")
    for fn, test in itertools.product(("sum", "avg"), ("= 5.0", "< 9.0", "IS NULL", "= 0.0")):
        query = bound(pattern.format(_of_language(evaluator, f"{fn}(a.v) {test}")), events)
        kernel = kernel_of(query, events, evaluator=evaluator)
        assert by_kernel(kernel, events, [2])[0] == by_oracle(query, events), (fn, test)


@pytest.mark.slow
@pytest.mark.parametrize("evaluator", PATTERNS)
def test_machine_code_agrees(evaluator: str) -> None:
    rng = Random(7)
    for pattern, condition in itertools.product(PATTERNS[evaluator][:1], ("sum(a.v) < 9.0", "NOT (avg(a.v) > 1e300)")):
        streams = [stream_of(_rows(rng)) for _ in range(12)]
        query = bound(pattern.format(_of_language(evaluator, condition)), streams[0])
        kernel = kernel_of(query, streams[0], evaluator=evaluator, jit=True)
        for events in streams:
            assert by_kernel(kernel, events, [3])[0] == by_oracle(query, events)


def _of_all_matches(query: str, table: pa.Table, **options: Any) -> dict[str, Any]:
    (row,) = cepheid.match(query, table, **options).to_pylist()
    assert isinstance(row, dict)
    return row


@pytest.mark.parametrize("fn", ["sum", "avg", "min", "max"])
@pytest.mark.parametrize(
    "values", [[math.inf, -math.inf], [math.inf, 1.0], [1e308] * 24, [-1e308] * 24 + [math.inf]], ids=str
)
def test_sums_over_all_matches(fn: str, values: list[float]) -> None:
    """A sum that is NaN is null, and one that is too large is infinite, however many the matches."""
    types = ["A"] * len(values) + ["B"]
    table = pa.table({"type": types, "ts": range(len(types)), "v": [*values, 0.5]})
    pairs = f"EVENT SEQ(A a, B b) RETURN count(*) AS n, {fn}(a.v) AS x"
    groups = f"PATTERN SEQ(A+ a[], B b) WHERE skip_till_any_match {{ }} RETURN count(*) AS n, {fn}(a[].v) AS x"
    found = [_of_all_matches(query, table) for query in (pairs, groups)]
    assert [row["n"] for row in found] == [len(values), 2 ** len(values) - 1]
    is_small = len(values) == 2  # of more values, the groups are too many for the reference
    is_free = math.inf in values and not is_small  # the order in which floats overflow
    queries = [pairs] * (not is_free) + [groups] * is_small
    assert [_of_all_matches(query, table, evaluator="reference") for query in queries] == [
        row for row, query in zip(found, (pairs, groups), strict=True) if query in queries
    ]
    extreme = {"sum": math.inf * math.copysign(1, values[-1]), "min": min(values), "max": max(values)}
    assert is_small or fn == "avg" or found[1]["x"] == extreme[fn]
