"""Aggregates over all matches, in every evaluator."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from datetime import timedelta
from decimal import Decimal
from itertools import product

import pyarrow as pa
import pytest

import cepheid
from cepheid.engine import summary
from cepheid.errors import CepheidError

EVENTS = pa.table(
    {
        "type": ["A", "B", "C"] * 8,
        "ts": range(24),
        "k": [number % 2 for number in range(24)],
        "v": pa.array([2**62 + number if number % 5 else None for number in range(24)], pa.int64()),
        "w": [number / 7 for number in range(24)],
        "d": pa.array([Decimal(number) / 4 for number in range(24)], pa.decimal128(10, 2)),
        "s": [chr(97 + number % 7) for number in range(24)],
        "b": [number % 3 == 0 for number in range(24)],
        "p": pa.array([number * number * 1_000_003 for number in range(24)], pa.duration("us")),
    }
)
QUERIES = {
    "sase": ("EVENT SEQ(A x, B y, C z) WITHIN 12 RETURN ", "z"),
    "zstream": ("PATTERN A;B+;C WITHIN 12 RETURN ", "B"),
    "next": (
        "PATTERN SEQ(A+ a[], C z) WHERE skip_till_next_match(a[], z) { a[i].w > a[i-1].w } WITHIN 12 RETURN ",
        "z",
    ),
    "any": ("PATTERN SEQ(A a, C z) WHERE skip_till_any_match(a, z) { z.w > a.w } WITHIN 12 RETURN ", "z"),
}


@pytest.mark.parametrize(
    "aggregate",
    [
        "sum({}.v)",
        "avg({}.v)",
        "min({}.s)",
        "max({}.b)",
        "sum({}.d)",
        "avg({}.w)",
        "first({}.v)",
        "last({}.s)",
        "avg({}.p)",
    ],
)
@pytest.mark.parametrize("query", sorted(QUERIES))
def test_every_evaluator_summarizes_as_the_oracle_does(query: str, aggregate: str) -> None:
    text, var = QUERIES[query]
    whole = f"{text}count(*) AS n, {aggregate.format(var)} AS total"
    expected = cepheid.match(whole, EVENTS, evaluator="reference")
    able = {}
    for evaluator in ("stacks", "runs", "tree", "any_runs"):
        with suppress(CepheidError):
            able[evaluator] = cepheid.match(whole, EVENTS, evaluator=evaluator)
    assert able
    for evaluator, found in able.items():
        assert found.schema == expected.schema
        for name, value in expected.to_pylist()[0].items():
            shown = found.to_pylist()[0][name]
            assert shown == (pytest.approx(value, rel=1e-12) if isinstance(value, float) else value), evaluator


def test_the_average_of_durations_is_a_duration() -> None:
    """Rounded to a microsecond: over the matches of another query, over all matches, over a closure, in a predicate."""
    table = pa.table(
        {
            "type": ["A", "B", "A", "B", "A", "B"],
            "ts": pa.array([0, 10, 20, 35, 40, 59], pa.timestamp("s")),
            "p": pa.array([1, 2, 3, 5, 6, 8], pa.duration("us")),
        }
    )
    composed = (
        "P: EVENT SEQ(A f, B s) WITHIN 20 seconds RETURN s.ts - f.ts AS took\n"
        "Q: EVENT P p RETURN count(*) AS n, min(p.took) AS fastest, avg(p.took) AS mean"
    )
    closure = "PATTERN SEQ(A a, B+ b[]) WHERE skip_till_any_match(a, b[]) { b[i].p > avg(b[..i-1].p) } WITHIN 1 minute "
    for evaluator in (None, "reference"):
        (row,) = cepheid.match(composed, table, evaluator=evaluator).to_pylist()
        assert row["n"] == 3
        assert row["fastest"] == timedelta(seconds=10)
        assert row["mean"] == timedelta(seconds=14, microseconds=666_667)
        (row,) = cepheid.match(
            "EVENT A x RETURN count(*) AS n, avg(x.p) AS mean, sum(x.p) AS total", table, evaluator=evaluator
        ).to_pylist()
        assert row["mean"] == timedelta(microseconds=3)
        assert row["total"] == timedelta(microseconds=10)
        found = cepheid.match(closure + "RETURN avg(b.p) AS mean", table, evaluator=evaluator)
        assert found.schema.field("mean").type == pa.duration("us")
        assert Counter(found["mean"].to_pylist()) == Counter(
            timedelta(microseconds=count) for count in [2, 5, 8, 4, 5, 7, 5, 5, 8, 7, 8]
        )


def test_sums_over_matches_are_exact_beyond_64_bits() -> None:
    table = pa.table({"type": ["A"] * 3, "ts": [1, 2, 3], "v": [2**62, 2**62, 2**62]})
    (row,) = cepheid.match("EVENT A x RETURN count(*) AS n, sum(x.v) AS total", table).to_pylist()
    assert row["n"] == 3 and row["total"] == 3 * 2**62


@pytest.mark.parametrize("evaluator", [None, "reference", "stacks", "any_runs"])
def test_the_average_over_matches_is_that_of_the_exact_sum(evaluator: str | None) -> None:
    """Also where the sum has more digits than a decimal holds: only a sum that is shown must fit."""
    most = Decimal("9" * 34 + ".9999")
    table = pa.table({"type": ["A", "A", "B"], "ts": [1, 2, 3], "v": pa.array([1, 1, most], pa.decimal128(38, 4))})
    if evaluator == "any_runs":
        query = "PATTERN SEQ(A x, B y, A* z[]) WHERE skip_till_any_match { } RETURN count(*) AS n, avg(y.v) AS mean"
    else:
        query = "EVENT SEQ(A x, B y) RETURN count(*) AS n, avg(y.v) AS mean"
    (row,) = cepheid.match(query, table, evaluator=evaluator).to_pylist()
    assert row["n"] == 2 and row["mean"] == float(most)
    with pytest.raises(CepheidError, match="has more than 38 digits"):
        cepheid.match(query + ", sum(y.v) AS total", table, evaluator=evaluator)


@pytest.mark.parametrize(
    "query",
    [
        "EVENT SEQ(A x, B y) WITHIN 9 units",
        "PATTERN SEQ(A x, B+ y[]) WHERE skip_till_next_match(x, y[]) { } WITHIN 9 units",
        "PATTERN A&(B|C) WITHIN 4 units",
        "SELECT count(*) FROM (A @ 1) \\ C",
        "SELECT count(*) FROM A; B+",
    ],
)
def test_counting_looks_at_no_single_match(query: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The interval of all matches follows from the outermost events, except for events with duration."""
    text = query if query.startswith("SELECT") else f"{query} RETURN count(*)"
    lasting = EVENTS.append_column("began", pa.array([max(t - t % 5, 0) for t in range(24)]))
    for start in ("began", None):
        if start is None:
            monkeypatch.setattr(summary, "position_columns", None)
        expected = cepheid.match(text, lasting, start_column=start, evaluator="reference").to_pylist()
        assert expected[0]["count(*)"] > 0
        assert cepheid.match(text, lasting, start_column=start).to_pylist() == expected


def test_a_summary_of_no_matches() -> None:
    query = "EVENT SEQ(A x, B y) WHERE x.w > y.w + 100 RETURN count(*) AS n, sum(x.v) AS total"
    any_match = (
        "PATTERN SEQ(A x, B+ y[]) WHERE skip_till_any_match(x, y[]) { y[i].w > 100 AND y[1].w > 100 } WITHIN 9 "
        "RETURN count(*) AS n, sum(x.v) AS total"
    )
    timed = EVENTS.set_column(1, "ts", EVENTS["ts"].cast(pa.timestamp("us")))
    for text, events, evaluator in product((query, any_match), (EVENTS, timed), (None, "reference")):
        text = text.replace("WITHIN 9 ", "WITHIN 9 us ") if events is timed else text
        (row,) = cepheid.match(text, events, evaluator=evaluator).to_pylist()
        assert row == {"n": 0, "total": None, "match_start": None, "match_end": None}


@pytest.mark.parametrize("evaluator", ["reference", "runs"])
def test_sums_over_a_group_are_null_once_an_unsigned_value_exceeds_the_integers(evaluator: str) -> None:
    """Also for the first value of a group, and for an only one. Over all matches sums are decimals, which hold it."""
    values = pa.array([0, 2**63, 1, 0, 0, 2**63 - 1, 0, 0, 2**64 - 1, 0], pa.uint64())
    table = pa.table({"type": list("ABBCABCABC"), "ts": range(10), "u": values})
    text = "PATTERN SEQ(A x, B+ b[], C z) WHERE skip_till_next_match(x, b[], z) { x.ts >= 0 } WITHIN 3 RETURN "
    found = cepheid.match(text + "sum(b.u) AS total, avg(b.u) AS mean, max(b.u) AS top", table, evaluator=evaluator)
    assert found["total"].to_pylist() == [None, 2**63 - 1, None]
    assert found["mean"].to_pylist() == [None, 2.0**63, None]
    assert found["top"].to_pylist() == [2**63, 2**63 - 1, 2**64 - 1]
    (row,) = cepheid.match("EVENT SEQ(B b, C z) WITHIN 2 RETURN count(*) AS n, sum(b.u) AS total", table).to_pylist()
    assert row["total"] == 2**63 - 1 + 1 + 2**64 - 1


_LONG = pa.table(
    {
        "type": ["B", "B", "B", "A"],
        "ts": [3, 6, 6, 10],
        "v": pa.array([None, Decimal(5), Decimal(1), Decimal(5)], pa.decimal128(38, 4)),
        "o": ["i", "k", "k", "j"],
    }
)


@pytest.mark.parametrize("evaluator", ["any_runs", "stacks"])
@pytest.mark.parametrize("columns", ["max(x.v)", "min(x.v), max(x.o)", "max(x.o), max(y.v), min(y.o)", "min(x.o)"])
def test_values_of_several_types_have_codes_in_one_summary(columns: str, evaluator: str) -> None:
    """Strings and long decimals share the codes of a run. A null has none, so the value of its word is no candidate."""
    query = f"EVENT SEQ(B x, A y) WHERE NOT x.o = y.o WITHIN 20 RETURN {columns}, count(*)"
    expected = cepheid.match(query, _LONG, evaluator="reference")
    assert cepheid.match(query, _LONG, evaluator=evaluator).to_pylist() == expected.to_pylist()
