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
    (f"{PAIR} RETURN a.n x", "write AS before the name of a column: a.n AS x"),
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
    (f"{RUN} AFTER MATCH SKIP PAST LAST ROW", "write OUTPUT NON-OVERLAPPING"),
    (f"{RUN} NON-OVERLAPPING", "write OUTPUT NON-OVERLAPPING"),
    ("every a=A -> b=B", "SASE+ is the closest"),
    ("PATTERN SEQ(every A a, B b)", "leave EVERY out"),
    ("select a.n from A.win:time(5 min) as a", "OCCURS WITHIN 5 minutes"),
    ("EVENT SEQ(A(n > 3) a, B b)", "write the conditions of an event in WHERE: A a ... WHERE a.x > 1"),
    ("PATTERN SEQ(A (a.n > 3), B b)", "write the conditions of an event in WHERE: A a ... WHERE a.x > 1"),
    ("EVENT SEQ([login failed] a, B b)", "write the type in backticks: `login failed`"),
    (f"{PAIR} WHERE a.n between (1 .. 2)", "write both bounds: BETWEEN 1 AND 5"),
    (f"{PAIR} WHERE a.s startswith 'x'", "write a.s LIKE 'a%'"),
    (f"{PAIR} WHERE a.s endswith 'x'", "write a.s LIKE '%a'"),
    (f"{PAIR} WHERE a.`user name` has 'x'", "write a.`user name` CONTAINS 'a'"),
    (f"{PAIR} WHERE a[`user id`] = b[`user id`]", "an attribute stands after a point: a.`user id`"),
    (f"{PAIR} WHERE a.n + 1", "compare it: a.n + 1 > 0"),
    (f"{PAIR} WHERE a.s", "compare it: a.s = 'text'"),
    ("PATTERN SEQ(A+ a[], B b) WHERE [id] skip_till_next_match", "the strategy stands first, the conditions in braces"),
    ("PATTERN SEQ(A a[]+, B b)", "write the closure after the type: A+ a[]"),
    ("PATTERN SEQ(A{3,2} a[], B b)", "the lower bound stands first: {2,3}"),
    ("PATTERN SEQ(fail{,3} a[], B b)", "write both bounds: fail{1,3}, or fail{0,3}"),
    ("PATTERN SEQ(fail? a, B b)", "write one or none as a closure: fail{0,1} a[]"),
    ("PATTERN SEQ(A a OR C c, B b)", "write one event of several types as ANY(A, C) x"),
    ("PATTERN SEQ(A+ a[], B b) WHERE a[i].n > a[i-2].n", "a[i-1] is the event before a[i]"),
    (f"{RUN} RETURN a[].n", "RETURN a gives the list of its events"),
    (f"{RUN} RETURN string_agg(a.s, ',')", "compute it from the lists of the output"),
    (f"{PAIR} RETURN b.ts - a.ts AS took in s", "write a name with a blank in backticks: AS `took in s`"),
    (f"{PAIR} # both", "comments are written -- to the end of the line"),
    ("First: EVENT A a WITHIN 5\nEVENT SEQ(First f, B b)", "each of several queries has a label"),
    (f"{RUN.replace('[id]', '[`user id`] OR b.n > 1')}", "a.`user id` = b.`user id`"),
    (f"{PAIR} WHERE hour(a.id) = 8", "TIMESTAMP '1970-01-01' + a.id * 1 second"),
    (f"{PAIR} WHERE CAST(a.id AS timestamp) = b.ts", "TIMESTAMP '1970-01-01' + a.id * 1 second"),
    (f"{PAIR} WHERE a.id > '2024-03-01 08:00'", "a time is written TIMESTAMP '2024-03-01 08:00'"),
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
        "PATTERN SEQ(C{0,1} c[], A a, B b) WHERE skip_till_next_match { [id] }",
        f"{PAIR} WHERE hour(TIMESTAMP '1970-01-01' + a.id * 3600 * 1 second) = 1",
        f"{PAIR} WHERE TIMESTAMP '1970-01-01' + a.id * 1000 / 1000 * 1 us < b.ts",
    ],
)
def test_what_is_written_instead_is_right(query: str) -> None:
    assert len(cepheid.match(query, EVENTS)) == 1


def test_wildcards_of_file_names() -> None:
    for pattern in ("*a*", "^.*a.*$"):
        with pytest.warns(CepheidWarning, match="write LIKE '%a%' for any text"):
            cepheid.match(f"{PAIR} WHERE a.s LIKE '{pattern}'", EVENTS)
    assert len(cepheid.match(f"{PAIR} WHERE a.s LIKE '%a%'", EVENTS)) == 1


@pytest.mark.filterwarnings("error::cepheid.CepheidWarning")
def test_numbers_beside_times() -> None:
    for count in (1_709_251_200, 1_709_251_200_000):
        with pytest.warns(CepheidWarning, match="counts microseconds since 1970; write a time: TIMESTAMP"):
            cepheid.match(f"{PAIR} WHERE a.ts >= {count}", EVENTS)
    for time in ("1709251200000000", "TIMESTAMP '1999-12-31'", "'1999-12-31'"):
        assert len(cepheid.match(f"{PAIR} WHERE a.ts >= {time}", EVENTS)) == 1


def test_groups_of_pandas() -> None:
    with pytest.raises(CepheidError) as raised:
        cepheid.match(PAIR, EVENTS.groupby("id"))
    assert "the condition [key] of a query divides its events" in (raised.value.hint or "")
