"""Values in kernels: the table of cases between events in every evaluator, and nulls beside the extremes of a type."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from value_cases import CASES, ValueCase

import cepheid
from cepheid.errors import NotAvailable

PATTERNS = {
    "stacks": "EVENT SEQ(X x, Y y) WHERE {} WITHIN 10",
    "tree": "PATTERN X x; Y y WHERE {} WITHIN 10",
    "runs": "PATTERN SEQ(X x, Y y) WHERE skip_till_next_match(x, y) {{ {} }} WITHIN 10",
    "any_runs": "PATTERN SEQ(X x, Y y) WHERE skip_till_any_match(x, y) {{ {} }} WITHIN 10",
}
BETWEEN = [case for case in CASES if case.is_condition and "x." in case.text and "y." in case.text]


@pytest.fixture(autouse=True)
def _interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CEPHEID_JIT", "0")


def _problem(case: ValueCase, evaluator: str) -> str | None:
    """What is wrong with the matches of an evaluator; None if they are right, or the evaluator is not able."""
    try:
        found = cepheid.match(PATTERNS[evaluator].format(case.text), case.table, evaluator=evaluator)
    except NotAvailable:
        return None
    return case.problem(found.to_pylist())


def _is_compiled(case: ValueCase) -> bool:
    try:
        cepheid.explain(case.query, case.table, evaluator="stacks")
    except NotAvailable:
        return False
    return True


@pytest.mark.parametrize("case", BETWEEN, ids=str)
def test_conditions_between_events(case: ValueCase) -> None:
    assert {name: _problem(case, name) for name in PATTERNS} == dict.fromkeys(PATTERNS)


def test_most_conditions_are_compiled() -> None:
    assert sum(map(_is_compiled, BETWEEN)) >= 0.8 * len(BETWEEN)


VALUES: dict[pa.DataType, list[Any]] = {
    pa.int64(): [None, -(2**63), -(2**63) + 1, 2**63 - 1, 0, -1],
    pa.uint64(): [None, 0, 2**63, 2**64 - 1, 2**63 - 1],
    pa.float64(): [None, math.inf, -math.inf, 0.0, -0.0],
    pa.bool_(): [None, True, False],
    pa.string(): [None, "", "a"],
}
TESTS = [
    *("x.v = y.v", "x.v != y.v", "NOT (x.v = y.v)", "(x.v IS NULL) = (y.v IS NULL)", "x.v = y.v OR x.v IS NULL"),
    *("x.v < y.v", "NOT (x.v <= y.v)", "x.v < y.v OR y.v IS NULL"),
]


def _matches(query: str, table: pa.Table, evaluator: str) -> list[str]:
    return sorted(map(str, cepheid.match(query, table, evaluator=evaluator).to_pylist()))


def _cases() -> Iterator[Any]:
    for (kind, values), test in itertools.product(VALUES.items(), TESTS):
        if not (pa.types.is_boolean(kind) and "<" in test):
            yield pytest.param(kind, values, test, id=f"{kind}: {test}")


@pytest.mark.parametrize(("kind", "values", "test"), _cases())
def test_null_is_no_value(kind: pa.DataType, values: list[Any], test: str) -> None:
    rows = [
        {"type": "XY"[n % 2], "ts": n, "v": v}
        for n, v in enumerate(v for pair in itertools.product(values, repeat=2) for v in pair)
    ]
    table = pa.Table.from_pylist(rows, pa.schema([("type", pa.string()), ("ts", pa.int64()), ("v", kind)]))
    for evaluator, pattern in PATTERNS.items():
        query = pattern.format(test).replace("WITHIN 10", "WITHIN 4")
        assert _matches(query, table, evaluator) == _matches(query, table, "reference"), evaluator


@pytest.mark.parametrize("fn", ["min", "max", "first", "last", "sum", "count"])
@pytest.mark.parametrize("kind", [pa.int64(), pa.uint64()], ids=str)
def test_aggregates_of_extremes(kind: pa.DataType, fn: str) -> None:
    values = VALUES[kind]
    rows = [{"type": "X" if n % 4 else "Y", "ts": n, "v": v} for n, v in enumerate(values * 5)]
    table = pa.Table.from_pylist(rows, pa.schema([("type", pa.string()), ("ts", pa.int64()), ("v", kind)]))
    other = "0" if fn == "count" else "{}.v"
    queries = {
        "runs": "PATTERN SEQ(X+ a[], Y b) WHERE skip_till_next_match(a[], b) {{ {fn}(a[].v) {op} {other} }}",
        "any_runs": "PATTERN SEQ(X+ a[], Y b) WHERE skip_till_any_match {{ {fn}(a[].v) {op} {other} }} WITHIN 6",
        "tree": "PATTERN X+; Y WHERE {fn}(X.v) {op} {other} WITHIN 6",
    }
    for evaluator, op in itertools.product(queries, ("=", "<=", "!=")):
        against = other.format("Y" if evaluator == "tree" else "b")
        query = queries[evaluator].format(fn=fn, op=op, other=against)
        assert _matches(query, table, evaluator) == _matches(query, table, "reference"), query


@pytest.mark.parametrize("closure", ["A+ b[]", "A* b[]"])
@pytest.mark.parametrize("kind", [pa.int64(), pa.uint64()], ids=str)
def test_partitions_of_extremes(kind: pa.DataType, closure: str) -> None:
    extreme = VALUES[kind][1] or 2**63
    values = [extreme, None, extreme, extreme, None, None, 1, extreme, 1, None, extreme]
    table = pa.table({"type": ["A"] * len(values), "ts": range(len(values)), "id": pa.array(values, kind)})
    query = f"PATTERN SEQ(A a, {closure}) WHERE partition_contiguity(a, b[]) {{ a.id = b[1].id }} WITHIN 20"
    assert _matches(query, table, "runs") == _matches(query, table, "reference")


@pytest.mark.parametrize("evaluator", PATTERNS)
def test_a_mask_has_room_for_nulls(evaluator: str) -> None:
    """62 components and two nullable attributes fill the mask; one more component is refused with the reason."""
    outcomes: list[str] = []
    for count in (62, 63):
        values = pa.array([None, *range(count - 1)], pa.int64())
        table = pa.table({"type": [f"T{n}" for n in range(count)], "ts": range(count), "v": values, "w": values})
        components = [f"T{n} a{n}" for n in range(count)]
        test = "(a0.v != a1.v OR a0.v IS NULL) AND (a0.w != a1.w OR a0.w IS NULL)"
        pattern = PATTERNS[evaluator].replace("WITHIN 10", "WITHIN 100").replace("(x, y) ", " ")
        pattern = pattern.replace("X x, Y y", ", ".join(components)).replace("X x; Y y", "; ".join(components))
        try:
            outcomes.append(f"{len(cepheid.match(pattern.format(test), table, evaluator=evaluator))} match")
        except NotAvailable as error:
            outcomes.append(str(error))
    assert outcomes[0] == "1 match"
    assert f"the evaluator `{evaluator}` cannot evaluate this query" in outcomes[1]


@pytest.mark.parametrize("kind", [pa.int64(), pa.uint64(), pa.float64(), pa.string()], ids=str)
@pytest.mark.parametrize("closure", [False, True])
def test_summaries_of_extremes(kind: pa.DataType, closure: bool) -> None:
    values = VALUES[kind]
    b, column = ("B+ b[]", "b[].v") if closure else ("B b", "b.v")
    functions = ["min", "max", "count", *(["sum", "avg"] if pa.types.is_integer(kind) else [])]
    output = ", ".join(f"{fn}({column}) AS {fn}" for fn in functions)
    query = f"PATTERN SEQ(A a, {b}) WHERE skip_till_any_match {{ 1 = 1 }} WITHIN 100 RETURN {output}, count(*) AS n"
    for chosen in (values[1:2], values[:1], values[2:3], values[:2], values):
        rows = [{"type": "A", "ts": 0, "v": None}, *({"type": "B", "ts": 1 + n, "v": v} for n, v in enumerate(chosen))]
        table = pa.Table.from_pylist(rows, pa.schema([("type", pa.string()), ("ts", pa.int64()), ("v", kind)]))
        assert _matches(query, table, "any_runs") == _matches(query, table, "reference"), chosen


@pytest.mark.parametrize("evaluator", ["reference", None])
@pytest.mark.parametrize("kind", [pa.date32(), pa.date64()], ids=str)
def test_dates_of_64_bits_are_days(kind: pa.DataType, evaluator: str | None) -> None:
    table = pa.table({"type": ["X", "X"], "ts": [1, 2], "d": pa.array([19_800, 19_801], pa.int32()).cast(pa.date32())})
    table = table.set_column(2, "d", table.column("d").cast(kind))
    query = "PATTERN SEQ(X+ x[]) WHERE strict_contiguity { } WITHIN 9 RETURN max(x.d) AS d, date(x[1].d) AS e"
    found = cepheid.match(query, table, evaluator=evaluator).sort_by([("match_start", "ascending"), ("d", "ascending")])
    assert found.column("d").cast(pa.date32()).cast(pa.int32()).to_pylist() == [19_800, 19_801, 19_801]
    assert found.column("e").cast(pa.date32()).cast(pa.int32()).to_pylist() == [19_800, 19_800, 19_801]
