"""Slips: habits of other languages, and what the error says to write instead."""

from __future__ import annotations

import pandas as pd
import pytest

import cepheid
from cepheid.errors import CepheidError, CepheidWarning

EVENTS = pd.DataFrame(
    {
        "type": ["A", "B"],
        "id": [1, 1],
        "n": [1.5, 2.5],
        "s": ["a", "b"],
        "ts": pd.to_datetime(["2024-03-01", "2024-03-02"]),
    }
)
PAIR = "EVENT SEQ(A a, B b)"
RUN = "PATTERN SEQ(A+ a[], B b) WHERE skip_till_next_match(a[], b) {[id]} WITHIN 2 days"
SLIPS = [
    (f"{PAIR} WHERE a.n =< 2", "write >= for at least, <= for at most"),
    (f"{PAIR} WHERE a.s IS NOT 'x'", "write != 'text' for other values"),
    (f"{PAIR} WITHIN 1 hour 30 minutes", "90 minutes for 1 hour and 30"),
    (f"{PAIR} WITHIN PT5M", "WITHIN 5 minutes for PT5M"),
    (f"{PAIR} WITHIN five minutes", "write a number: WITHIN 5 minutes; or set the parameter"),
    (f"{PAIR} RETURN a.n b.n", "write a comma between two columns: a.n, b.n"),
    (f"{PAIR} RETURN a.n AS x b.n", "write a comma between two columns: a.n AS x, b.n"),
    (f"{PAIR} RETURN a.n x", "write AS before the name of a column: a.n AS name"),
    (f"{RUN} RETURN len(a)", "an attribute stands after a point: a.x; a.LEN is the number of its events"),
    (f"{PAIR} WHERE a.s = b", "an attribute stands after a point: b.x; a string is written in quotes: 'b'"),
    (f"{RUN} RETURN mean(a.n)", "write avg(a.x)"),
    (f"{RUN} RETURN median(a.n)", "compute it from the lists of the output"),
    (f"{PAIR} WHERE regexp_like(a.s, 'x.*')", "write a.x LIKE 'a%'"),
    (f"{PAIR} WHERE startswith(a.s, 'x')", "write a.x LIKE 'text%'"),
    (f"{PAIR} WHERE date_trunc('hour', a.ts) = b.ts", "compare the parts: date(a.ts) = date(b.ts)"),
    (f"{PAIR} WHERE to_timestamp(a.s) > b.ts", "write CAST(a.x AS timestamp)"),
    (f"{PAIR} WHERE int(a.s) > 1", "write CAST(a.x AS integer)"),
    (f"{PAIR} WHERE a.n > 1 ? true : false", "write if(a.x > 1, 'yes', 'no'), or CASE WHEN"),
    (f"{PAIR} WHERE a.n::int = 1", "write CAST(a.n AS int)"),
    (f"{PAIR} WHERE a.s || b.s = 'ab'", "strings are joined by concat(...), not by ||"),
    (f"{PAIR};;", "one `;` ends a query"),
    (f"{PAIR} WHERE a.n > 1)", "no parenthesis is open here"),
    (f"{PAIR} WHERE a.s = 'it's'", "write a quote inside of a string twice: 'it''s'"),
    ("EVENT SEQ（A a, B b）", "write it as a character of ASCII"),
    ("SELECT * FROM (FILTER A a) NEXT (FILTER B b)", "FILTER stands in WHERE"),
    (f"{PAIR} WHERE A.n = b.n", "`A` is a type, and its variable is `a`: write a.n"),
    (f"{PAIR} WITHIN w", "--param w=..."),
    ("PATTERN SEQ(A+ a[], B b) WHERE count(*) > 3", "the number of events of a closure is a.LEN"),
    (f"{PAIR} LIMIT 5 OFFSET 2", "there is no OFFSET"),
    (f"{PAIR} LIMIT 5, 2", "there is no OFFSET"),
    (f"{PAIR} SELECT a.n", "RETURN a.x, b.y"),
    (f"{RUN} SELECT a.n", "RETURN a.x, b.y"),
    ("EVENT A a -> B b WITHIN 5 min", "write a sequence: SEQ(A a, B b)"),
    ("EVENT A -> B WITHIN 5 min", "write a sequence: SEQ(A, B)"),
    ("complex c on A as a, B as b event seq(a, b; 5 min) where [id]", "write a.id = b.id"),
    ("complex x = seq(A, B)", "write `event` before the operator: complex x event seq(A, B; 10 min)"),
    ("complex x: seq(A a, B b; w=5min)", "write `event` before the operator: complex x event seq"),
]


@pytest.mark.parametrize(("query", "hint"), SLIPS, ids=[query for query, _ in SLIPS])
def test_what_to_write_instead(query: str, hint: str) -> None:
    with pytest.raises(CepheidError) as raised:
        cepheid.match(query, EVENTS)
    assert hint in (raised.value.hint or "no hint"), raised.value


@pytest.mark.parametrize(
    "query",
    [
        f"{PAIR} WHERE a.n <= 2 AND a.s IS NOT NULL",
        f"{PAIR} WITHIN 1500 minutes",
        f"{PAIR} RETURN a.n AS x, b.n",
        f"{RUN} RETURN a.LEN, avg(a.n) AS m",
        f"{PAIR} WHERE length(a.s) = 1 AND concat(a.s, 'b') = 'ab' AND coalesce(a.n, 0) > 1",
        f"{PAIR} WHERE if(a.n > 1, true, false) AND CAST(a.n AS integer) = 1;",
        f"{PAIR} WHERE a.s != 'it''s'",
        "complex x event seq(A, B; 2 days)",
    ],
)
def test_what_is_written_instead_is_right(query: str) -> None:
    assert len(cepheid.match(query, EVENTS)) == 1


def test_wildcards_of_file_names() -> None:
    for pattern in ("*a*", "^.*a.*$"):
        with pytest.warns(CepheidWarning, match="write LIKE '%a%' for any text"):
            cepheid.match(f"{PAIR} WHERE a.s LIKE '{pattern}'", EVENTS)
    assert len(cepheid.match(f"{PAIR} WHERE a.s LIKE '%a%'", EVENTS)) == 1


def test_groups_of_pandas() -> None:
    with pytest.raises(CepheidError) as raised:
        cepheid.match(PAIR, EVENTS.groupby("id"))
    assert "the condition [key] of a query divides its events" in (raised.value.hint or "")
