"""What no evaluator refuses any more, and every refusal that is left, with a query that provokes it."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest

import cepheid
from cepheid.errors import NotAvailable

COUNT = 24
EVENTS = pa.table(
    {
        "type": ["A", "B", "C"] * (COUNT // 3),
        "ts": range(COUNT),
        "k": [n % 2 for n in range(COUNT)],
        "v": [n % 5 for n in range(COUNT)],
        "s": ["ab", "AB", "abc", None] * (COUNT // 4),
        "y": pa.array([b"a", b"b"] * (COUNT // 2), pa.binary()),
        "d": pa.array([Decimal("12345678901234567890.10") + n for n in range(COUNT)], pa.decimal128(30, 2)),
        "l": pa.array([[n % 2] for n in range(COUNT)], pa.list_(pa.int64())),
    }
)
LONG = ", ".join(f"A a{n}" for n in range(60))
RUN = "PATTERN SEQ(A a, B+ b[], C c) WHERE {}(a, b, c) {{ {} }} WITHIN 9{}"
STRATEGIES = ("partition_contiguity", "skip_till_next_match", "skip_till_any_match")

COMPILED = [
    *(f"EVENT SEQ(A a, B b) WHERE [k] WITHIN 9 RETURN {c}" for c in ("count(*)", "count(*) AS n, last(b.s) AS l")),
    "PATTERN A;B+;C WITHIN 9 RETURN count(*) AS n, sum(B.d) AS d, first(A.s) AS f",
    RUN.format("skip_till_next_match", "[k]", " RETURN count(*) AS n, first(b.v) AS f"),
    RUN.format("skip_till_any_match", "[k]", " RETURN count(*) AS n, first(b.v) AS f"),
    *(f"EVENT SEQ(A a, B b) WHERE {p} WITHIN 9" for p in ("upper(a.s) = b.s", "a.s CONTAINS b.s", "[y]", "a.l = b.l")),
    "EVENT SEQ(A a, B b) WHERE a.s LIKE 'a%' OR b.v > a.v WITHIN 9",
    *(
        f"EVENT SEQ(A a, B b) WHERE {p} WITHIN 9"
        for p in ("a.s LIKE b.s", "a.s LIKE concat(lower(b.s), '%') OR a.v = 1")
    ),
    *(f"EVENT SEQ(A a, B b) WHERE {p} WITHIN 9" for p in ("a.s NOT LIKE a.s", "coalesce(a.s, 'ABC') CONTAINS b.s")),
    "EVENT SEQ(A a, B b) WHERE a.d + 1 = b.d WITHIN 9",
    *(f"PATTERN SEQ(A a, ~(B b), C c) WHERE {s} {{ [k] }} WITHIN 5 events" for s in STRATEGIES),
    *(
        f"PATTERN SEQ(~(B b), A a, C+ c[]) WHERE {s} {{ [k] and b.v < c[1].v }} WITHIN 5 events"
        for s in ("skip_till_any_match", "skip_till_next_match")
    ),
    "PATTERN SEQ(~(B b), A a) WHERE skip_till_next_match { [k] } WITHIN 5 events",
    *(f"PATTERN SEQ(A a, ~(B b)) WHERE {s} {{ [k] }} WITHIN 2 events" for s in STRATEGIES),
    "EVENT SEQ(A a, !(B b), C c) WHERE [k] WITHIN 5 events",
    "PATTERN A;B;C WHERE A.k = B.k AND B.k = C.k WITHIN 5 events",
    *(RUN.format(s, "[k]", " OUTPUT NON-OVERLAPPING") for s in ("skip_till_any_match", "skip_till_next_match")),
    "PATTERN SEQ(A a, B b, ~(C c)) WHERE skip_till_any_match(a, b, c) { [k] } WITHIN 5 OUTPUT NON-OVERLAPPING",
    "PATTERN (A x | B y); C z WHERE (NOT (x.v = 1)) != (NOT (z.v = 1)) WITHIN 9",
    f"EVENT SEQ({LONG}) WITHIN 90",
    f"PATTERN {';'.join(f'A a{n}' for n in range(60))} WITHIN 90",
    f"PATTERN SEQ({LONG}, B+ b[]) WITHIN 90",
    f"PATTERN SEQ({LONG}) WHERE skip_till_next_match {{ a1.v = a2.v }} WITHIN 90",
]
SPLIT = f"P: EVENT SEQ({LONG}) WITHIN 90\nQ: EVENT SEQ(P p, A b) WITHIN 90"
PAIRS = [f"(A a{n}; B b{n})" for n in range(34)]
HALVES = f"P: PATTERN {' | '.join(PAIRS[:17])} WITHIN 5\nQ: PATTERN {' | '.join(PAIRS[17:])} WITHIN 5"
SUM = "EVENT SEQ(A a, B b) WITHIN 9 RETURN count(*) AS n, count({}) AS l"
REFUSED = {
    "EVENT SEQ(A a, B b) WHERE a.d + b.d > 3 WITHIN 9": (
        "`d` is a decimal of 30 digits",
        "EVENT SEQ(A a, B b) WHERE CAST(a.d AS double) + CAST(b.d AS double) > 3 WITHIN 9",
    ),
    "PATTERN A;B+;C WHERE sum(B.d) > 3 WITHIN 9": (
        "`sum(B.d) > 3` cannot be compiled",
        "PATTERN A;B+;C WHERE sum(CAST(B.d AS double)) > 3 WITHIN 9",
    ),
    "PATTERN A;B+;C WHERE upper(max(B.s)) = C.s WITHIN 9": (
        "`upper(max(B.s)) = C.s` cannot be compiled",
        "PATTERN A;B+;C WHERE max(upper(B.s)) = C.s WITHIN 9",
    ),
    f"EVENT SEQ({LONG}, {LONG.replace('a', 'b')}) WITHIN 90": ("the mask of an event has 64 bits", SPLIT),
    f"PATTERN {' | '.join(PAIRS)} WITHIN 5": (
        "the mask of an event has 64 bits",
        f"{HALVES}\nR: PATTERN P p | Q q WITHIN 5",
    ),
    SUM.format("a.l"): (
        "`l` holds lists, which are not summarised",
        SUM.format("CASE WHEN a.l IS NULL THEN NULL ELSE 1 END"),
    ),
    "EVENT SEQ(A a, B b) WHERE concat(a.s, b.s) = 'abAB' WITHIN 9": (
        "is a string made of several events",
        "EVENT SEQ(A a, B b) WHERE a.s = 'ab' AND b.s = 'AB' WITHIN 9",
    ),
    "PATTERN SEQ(A a, B+ b[]) WHERE skip_till_any_match { a.k = b[i].k } WITHIN 5 events": (
        "not all events of a match",
        "PATTERN SEQ(A a, B+ b[]) WHERE skip_till_any_match { [k] } WITHIN 5 events",
    ),
    "PATTERN SEQ(A a, B b) WHERE partition_contiguity { [l] } WITHIN 5": (
        "partitions by `l`, which holds lists",
        "PATTERN SEQ(A a, B b) WHERE partition_contiguity { [k] } WITHIN 5",
    ),
    "EVENT SEQ(A a, B b) WHERE [l] WITHIN 3 events": (
        "partitions by `l`, which holds lists",
        "EVENT SEQ(A a, B b) WHERE [l] WITHIN 5",
    ),
    "SELECT * FROM (A a+; B b)+ WHERE sum(a.v) > count(b), (a, b) OCCURS WITHIN 5": (
        "over an iteration inside another one",
        "P: SELECT sum(a.v) AS s FROM A a+; B b WHERE (a, b) OCCURS WITHIN 5\n"
        "Q: SELECT * FROM P p+ WHERE sum(p.s) > count(p), (p, p) OCCURS WITHIN 9",
    ),
    "SELECT * FROM A a+; B b+ WHERE ALL(a.v) < ALL(b.v), (a, b) OCCURS WITHIN 5": (
        "ALL of several variables",
        "SELECT * FROM A a+; B b+ WHERE max(a.v) < min(b.v), (a, b) OCCURS WITHIN 5",
    ),
    "PATTERN SEQ(A a, B b) WHERE skip_till_any_match { [l] } WITHIN 5 OUTPUT NON-OVERLAPPING": (
        "which holds lists",
        "PATTERN SEQ(A a, B b) WHERE skip_till_any_match { [k] } WITHIN 5 OUTPUT NON-OVERLAPPING",
    ),
}
"""Each with the reason, and what to write instead."""


@pytest.mark.parametrize("text", COMPILED)
def test_a_compiled_evaluator_runs_it(text: str) -> None:
    assert "evaluator: reference" not in str(cepheid.explain(text, EVENTS))
    found, expected = (cepheid.match(text, EVENTS, evaluator=e).to_pylist() for e in (None, "reference"))
    assert sorted(map(str, found)) == sorted(map(str, expected))


@pytest.mark.parametrize("text", REFUSED)
def test_a_refusal_says_what_to_write_instead_and_the_oracle_runs_by_request(text: str) -> None:
    for call in (cepheid.match, cepheid.explain):
        with pytest.raises(NotAvailable) as caught:
            call(text, EVENTS)
        message = str(caught.value)
        assert "no evaluator can run this query" in message and REFUSED[text][0] in message
        assert "(" in caught.value.what and 'evaluator="reference"' in message
    assert "evaluator: reference" in str(cepheid.explain(text, EVENTS, evaluator="reference"))


@pytest.mark.parametrize("text", [instead for _, instead in REFUSED.values()])
def test_what_to_write_instead_is_compiled(text: str) -> None:
    assert "evaluator: reference" not in str(cepheid.explain(text, EVENTS))
    found, expected = (cepheid.match(text, EVENTS, evaluator=e).to_pylist() for e in (None, "reference"))
    assert sorted(map(str, found)) == sorted(map(str, expected))
