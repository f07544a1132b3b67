"""Typical mistakes, and the messages that say what to write instead."""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from typer.testing import CliRunner

import cepheid
from cepheid.app.cli import app
from cepheid.errors import CepheidError, CepheidWarning
from cepheid.lang import parse

EVENTS = pd.DataFrame(
    {
        "type": ["Shelf", "Exit"],
        "ts": pd.to_datetime(["2024-03-01", "2024-03-02"]),
        "tag_id": [1, 1],
        "shelf": ["A", "B"],
    }
)
SASE, PLUS = "EVENT SEQ(Shelf x, Exit e)", "PATTERN SEQ(Shelf+ a[], Exit e)"
MISTAKES = {
    f"{PLUS} WHERE a[0].tag_id = e.tag_id": ("`[0]` is not an index of `a`", "the first event is a[1]"),
    f"{SASE} WHERE x.shelf = A": ("`A` is neither", "a string is written in quotes: 'A'"),
    f"{SASE} WHERE x.shelf = e.shelf GROUP BY tag_id": ("unexpected `GROUP`", "write [tag_id] as a condition in WHERE"),
    f"{SASE} PARTITION BY x.tag_id WITHIN 3 days": ("unexpected `PARTITION`", "write [tag_id] as a condition in WHERE"),
    f"{PLUS} PARTITION BY `tag id`": ("unexpected `PARTITION`", "write [`tag id`] as a condition in WHERE"),
    "PATTERN Shelf;Exit PARTITION BY tag_id WITHIN 3 days": ("unexpected `BY`", "write [tag_id] as a condition"),
    f"{SASE} ORDER BY ts": ("unexpected `ORDER`", "events are ordered by their time"),
    f"{SASE} WITHIN 3 days WHERE [tag_id]": ("unexpected `WHERE`", "WHERE stands before WITHIN"),
    f"{PLUS} WITHIN 3 days WHERE [tag_id]": ("unexpected `WHERE`", "WHERE stands before WITHIN"),
    "PATTERN Shelf;Exit RETURN Exit WHERE [tag_id]": ("unexpected `WHERE`", "WHERE stands before RETURN"),
    "EVENT SEQ(Shelf AS x, Exit e)": ("unexpected `x`", "without AS: Shelf x"),
    "PATTERN SEQ(Shelf AS x, Exit e)": ("unexpected `x`", "without AS: Shelf x"),
    "PATTERN Shelf AS x; Exit e": ("unexpected `x`", "without AS: Shelf x"),
    "EVENT SEQ(x Shelf, e Exit)": (
        "no event has a type of the query",
        "the type comes first, then the variable: Shelf x",
    ),
    "EVENT SEQ(x Shelf, e Exit) WHERE x.tag_id = 1": ("unknown variable `x`", "then the variable: Shelf x"),
    "SELECT * FROM t MATCH_RECOGNIZE (PATTERN (A B+) DEFINE A AS A.x > 1)": (
        "MATCH_RECOGNIZE is not",
        "SASE+ is the closest",
    ),
    f'{SASE} WHERE x."tag id" = 1': ('unexpected `"`', "in backticks: `tag id`"),
    f"{SASE} WHERE x.[tag id] = 1": ("unexpected `[`", "in backticks: `tag id`"),
    f"{SASE} WHERE x.tag id = 1": ("unexpected `id`", "in backticks: x.`tag id`"),
    f"{SASE} WHERE x.tag # = 1": ("unexpected `#`", "in backticks: x.`tag #`"),
    f"{SASE} WHERE [tag id] WITHIN 1 day": ("unexpected `id`", "in backticks: [`tag id`]"),
    f"{SASE} WHERE [tag_id, tag id]": ("unexpected `id`", "in backticks: [`tag id`]"),
    f"{SASE} WHERE ['tag id']": ("unexpected `'`", "in backticks: [`tag id`]"),
    "EVENT SEQ('login failed' a, Exit e)": ("unexpected `'`", "write the type in backticks: `login failed`"),
    "PATTERN SEQ(Shelf a, !('login failed' b), Exit e)": ("unexpected `'`", "the type in backticks: `login failed`"),
    'SELECT * FROM "login failed" a ; Exit e': ('unexpected `"`', "write the type in backticks: `login failed`"),
    "EVENT SEQ(Shelf a, 404 b)": ("unexpected `404`", "write the type in backticks: `404`"),
    "PATTERN SEQ(404+ a[], Exit b)": ("unexpected `404`", "write the type in backticks: `404`"),
    "EVENT SEQ(login failed a, Exit e)": ("unexpected `a`", "a type with a blank in backticks: `login failed` a"),
    "EVENT SEQ(out for delivery a, Exit e)": ("unexpected `delivery`", "a type with blanks in backticks"),
    "EVENT SEQ(Shelf x Exit e)": ("unexpected `Exit`", "write a comma between two components"),
    f"{SASE} WITHIN '5 minutes'": ("unexpected `'`", "without quotes: WITHIN 5 minutes"),
    f"{SASE} WHERE x.shelf RLIKE 'A.*'": ("unexpected `RLIKE`", "write LIKE 'a%'"),
    f"{SASE} WHERE x.shelf ILIKE 'a%'": ("unexpected `ILIKE`", "lower(a.x) LIKE 'a%'"),
    f"{SASE} WHERE x.shelf === 'A'": ("unexpected `=`", "write ="),
    f"{SASE} RETURN x.shelf || e.shelf": ("AND and OR join conditions", "concat(x.shelf, e.shelf)"),
    f"{PLUS} RETURN max(length(a.shelf) + b.n)": ("`max` takes an attribute, or an expression", "max(a.x * a.y)"),
    f"{PLUS} RETURN count(distinct a.shelf)": ("unexpected `a`", "in the table of matches"),
    f"{PLUS} WITHIN 5 minutes HAVING count(a) > 3": ("unexpected `HAVING`", "a condition in WHERE"),
    "EVENT SEQ(x: Shelf, e: Exit)": ("unexpected `:`", "then the variable: Shelf x"),
    "EVENT Shelf x, Exit e WITHIN 5 minutes": ("unexpected `,`", "SEQ(A a, B b)"),
    "EVENT Shelf FOLLOWED BY Exit": ("unexpected `BY`", "write a sequence: SEQ(A a, B b)"),
    "EVENT SEQ(Shelf{3,} x, Exit e)": ("unexpected `{`", "closures are in SASE+"),
    "EVENT SEQ(Shelf+ x, Exit e)": ("unexpected `+`", "closures are in SASE+"),
    f"{SASE} WHERE skip_till_next_match(x, e) {{ [tag_id] }}": ("unexpected `{`", "write PATTERN instead of EVENT"),
    "PATTERN Shelf AND Exit WITHIN 5 minutes": ("unexpected `Exit`", "PATTERN A & B"),
    "PATTERN Shelf OR Exit WITHIN 5 minutes": ("unexpected `Exit`", "PATTERN A | B"),
    "PATTERN Shelf a; Exit b; WHERE a.ts < b.ts": ("unexpected `WHERE`", "write `;` only between two events"),
    "SELECT * FROM Shelf a JOIN Exit b ON a.ts = b.ts": ("unexpected `JOIN`", "FROM A a; B b"),
    "SELECT * FROM Shelf a, Exit b WHERE a.ts < b.ts": ("unexpected `,`", "FROM A a; B b"),
    "SELECT * FROM Shelf a; Exit b WHERE a.ts < b.ts WITHIN 5 minutes": ("`WITHIN`", "OCCURS WITHIN 5 minutes"),
    "complex c on Shelf as s, Exit as e event seq(s, e, 5 min)": ("unexpected `5`", "seq(a, b; 5 min)"),
    "sequence by user with maxspan=5m [a where true]": ("begins with `sequence`", "SASE+ is the closest"),
    f"{SASE} WITHIN 5 minuts": ("unexpected `minuts`", "did you mean `minutes`?"),
    f"{SASE} WHERE x.ts > 2024-03-01": ("`2024-03-01` is a subtraction of numbers", "DATE '2024-03-01'"),
    f"{SASE} WHERE e.ts - x.ts < '5 minutes'": ("compares a duration with a string", "without quotes: 5 minutes"),
    f"{SASE} WHERE datediff(e.ts, x.ts) < 5": ("unknown function `datediff`", "subtract the times"),
    f"{SASE} WHERE x.ts > now()": ("unknown function `now`", "name a time: TIMESTAMP"),
    f"{SASE} RETURN x.*": ("unexpected `*`", "leave RETURN out for all events"),
    f"{SASE} RETURN *": ("unexpected `*`", "leave RETURN out for all events"),
    "EVENT SEQ(ANY(*) x, Exit e)": ("unexpected `*`", "name the types: ANY(A, B) x"),
    "EVENT Shelf x RETURN sum(x.tag_id)": ("which is one event", "beside count(*), aggregates range over all matches"),
    "SELECT * FROM (Shelf S NEXT Exit E)": ("unexpected `NEXT`", "write `;` between an event and the next one"),
    f"{SASE}\n\n{SASE}": ("unexpected `EVENT`", "each of several queries has a label"),
    f"{SASE} WITHIN 1 month": ("a month has no fixed length", "write 30 days"),
    f"{SASE} WHERE x.tag_id > 5 AND x.shelf": ("is not a condition", "compare it: x.shelf"),
    f"{SASE} WHERE x.shelf": ("is not a condition", "compare it: x.shelf = 'text'"),
    f"{SASE} WHERE shelf > 'A'": ("`shelf` is neither", "an attribute with its variable: x.shelf"),
    f"{SASE} WHERE x.tag_id > x.shelf + 1": ("is a string; `+` works on numbers", "--decimal comma"),
    f"{SASE} RETURN x.shelf + e.shelf AS both": ("`+` works on numbers", "concat(x.shelf, e.shelf)"),
    f"{PLUS} RETURN sum(a.shelf) AS s": ("adds up a string", "CAST(... AS double)"),
    f"{SASE} WHERE rnd(x.tag_id) = 1": ("unknown function `rnd`", "did you mean `round`?"),
}


@pytest.mark.parametrize("query", MISTAKES)
def test_a_mistake_in_a_query(query: str) -> None:
    what, hint = MISTAKES[query]
    with pytest.raises(CepheidError) as raised:
        cepheid.match(query, EVENTS)
    assert what in raised.value.what and hint in (raised.value.hint or "")


@pytest.mark.parametrize(
    ("query", "dialect", "hint"),
    [
        (
            f"{PLUS} WHERE skip_till_any_match(a[], e) {{ [tag_id] }}",
            "sase",
            "a query in SASE+, not SASE: choose `sase+`",
        ),
        (SASE, "zstream", "a query in SASE, not ZStream: choose `sase`"),
        ("PATTERN Shelf;Exit", "sase+", "a query in ZStream, not SASE+: choose `zstream`"),
        ("SELECT * FROM A a; B b", "ced", "a query in EQL (NEXT), not CED"),
    ],
)
def test_a_query_in_another_language_than_the_option_says(query: str, dialect: str, hint: str) -> None:
    with pytest.raises(CepheidError) as raised:
        parse(query, dialect)
    assert hint in (raised.value.hint or "")


@pytest.mark.parametrize(
    ("query", "text"),
    [
        (
            f"{SASE} WITHIN 5",
            "`5 units` counts microseconds, because the times are timestamps; write a unit: 5 seconds",
        ),
        (f"{SASE} WITHIN 0 minutes", "`WITHIN 0 min` leaves no match"),
        ("PATTERN Shelf;Exit WITHIN 0 hours", "leaves only matches whose events have the same time"),
        (f"{SASE} WHERE e.ts - x.ts < 5", "`e.ts - x.ts < 5` counts microseconds; write a unit: 5 seconds"),
    ],
)
def test_a_condition_that_hardly_anything_satisfies_is_a_warning(query: str, text: str) -> None:
    with pytest.warns(CepheidWarning, match=text):
        assert len(cepheid.match(query, EVENTS)) == 0


def test_long_lines_are_cut_with_an_ellipsis() -> None:
    long = " AND ".join(["x.tag_id = 1"] * 30)
    with pytest.raises(CepheidError) as raised:
        cepheid.match(f"{SASE} WHERE {long} AND x.tagid = 3 AND {long}", EVENTS)
    line, carets = str(raised.value).splitlines()[2:4]
    assert line.startswith("  1 | …") and line.endswith("…")
    assert line[carets.index("^") : carets.rindex("^") + 1] == "x.tagid"
    with pytest.raises(CepheidError) as raised:
        cepheid.match(f"{SASE} WHERE x.tagid = 3 AND {long}", EVENTS)
    assert str(raised.value).splitlines()[2].startswith("  1 | EVENT") and "…" in str(raised.value)


def test_a_dictionary_of_tables_has_one_for_each_type() -> None:
    tables = {kind: EVENTS[EVENTS["type"] == kind].drop(columns="type") for kind in ("Shelf", "Exit")}
    assert len(cepheid.match(SASE, tables)) == len(cepheid.match(SASE, EVENTS))
    with pytest.raises(CepheidError, match="a key of the dictionary of events is 5"):
        cepheid.match(SASE, {5: EVENTS})
    with pytest.raises(CepheidError, match="the dictionary of events is empty"):
        cepheid.match(SASE, {})


def test_one_is_singular() -> None:
    assert str(parse(f"{SASE} WITHIN 1 hours").window) == "1 hour"
    assert str(parse(f"{SASE} WITHIN 2 hour").window) == "2 hours"


@pytest.mark.parametrize("unit", ("ns", "NS", "nanoseconds"))
def test_nanoseconds_are_a_unit_of_integer_times(unit: str) -> None:
    counted: Any = EVENTS.assign(ts=[1709280000 * 10**9, 1709280060 * 10**9])
    assert len(cepheid.match(f"{SASE} WITHIN 2 minutes", counted, time_unit=unit)) == 1
    assert len(cepheid.match(f"{SASE} WITHIN 1 minute", counted, time_unit=unit)) == 0


@pytest.mark.parametrize("command", ("check", "explain"))
def test_a_query_file_that_does_not_exist(command: str) -> None:
    done = subprocess.run([sys.executable, "-m", "cepheid", command, "nofile.sase"], capture_output=True, text=True)
    assert done.returncode != 0 and "there is no query file `nofile.sase`" in done.stderr


def test_a_missing_type_column_in_python_and_on_the_command_line(tmp_path: Path) -> None:
    events = EVENTS.drop(columns=["type", "shelf"])
    with pytest.raises(CepheidError) as raised:
        cepheid.match(SASE, events)
    assert 'type="Shelf"' in (raised.value.hint or "") and "--input" not in (raised.value.hint or "")
    events.to_csv(tmp_path / "a.csv", index=False)
    found = CliRunner().invoke(app, ["run", "--query", SASE, "--input", str(tmp_path / "a.csv")])
    assert "--type Shelf" in found.stderr and 'type="Shelf"' not in found.stderr


def test_a_start_that_is_null() -> None:
    with pytest.raises(CepheidError) as raised:
        cepheid.match(SASE, EVENTS.assign(began=[EVENTS.ts[0], None]), start_column="began")
    assert "has no start: `began` is null" in raised.value.what and "without a start" in (raised.value.hint or "")


def test_a_time_that_is_a_string_of_digits(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"type": "Shelf", "ts": "17"}\n{"type": "Shelf", "ts": 18}\n')
    found = CliRunner().invoke(app, ["run", "--query", "EVENT Shelf x", "--input", str(tmp_path / "a.jsonl")])
    assert 'the time is the string "17", neither' in found.stderr and "without quotes" in found.stderr


@pytest.mark.parametrize(("time", "kind"), [("1709280000", "int64"), ("1709280000.25", "float64")])
def test_numbers_in_a_column_of_strings_are_no_format(tmp_path: Path, time: str, kind: str) -> None:
    with pytest.raises(CepheidError) as raised:
        cepheid.match("EVENT Shelf x", pd.DataFrame({"type": ["Shelf"], "ts": [time]}))
    assert f'column.astype("{kind}")' in str(raised.value) and "%d" not in str(raised.value)
    (tmp_path / "a.jsonl").write_text(f'{{"type": "Shelf", "ts": "{time}"}}\n')
    found = CliRunner().invoke(app, ["run", "--query", "EVENT Shelf x", "--input", str(tmp_path / "a.jsonl")])
    assert f'the string "{time}"' in found.stderr and "%d" not in found.stderr
    assert "without quotes" in found.stderr


TEXTS = ["2024-03-01T00:00:00+01:00", "2024-03-02"]


@pytest.mark.parametrize(
    "of",
    [
        pd.DataFrame,
        lambda columns: pd.DataFrame(columns).astype({"ts": "category"}),
        pa.table,
        pl.DataFrame,
        lambda columns: iter(pa.table(columns).to_batches(1)),
    ],
    ids=["pandas", "categories", "arrow", "polars", "iterator"],
)
def test_strings_are_times_as_on_the_command_line(of: Callable[[Any], Any]) -> None:
    found = cepheid.match(f"{SASE} WITHIN 2 days", of({"type": ["Shelf", "Exit"], "ts": TEXTS, "began": TEXTS}))
    batches = list(found) if isinstance(found, Iterator) else [found]
    assert sum(map(len, batches)) == 1
    none = cepheid.match(f"{SASE} WITHIN 24 hours", of({"type": ["Shelf", "Exit"], "ts": TEXTS}))
    assert sum(map(len, list(none) if isinstance(none, Iterator) else [none])) == 0


def test_strings_may_be_starts() -> None:
    events = pd.DataFrame({"type": ["Shelf", "Exit"], "ts": TEXTS, "began": TEXTS})
    assert len(cepheid.match(SASE, events, start_column="began")) == 1


def test_strings_that_are_no_times() -> None:
    rows = pa.table({"type": ["Shelf", "Exit"], "ts": ["2024-03-01", "02/03/2024"]})
    for events in (rows, rows.to_pandas(), iter(rows.to_batches(2))):
        with pytest.raises(CepheidError) as raised:
            list(cepheid.match(SASE, events))
        assert "02/03/2024" in str(raised.value) and '"%m/%d/%Y" (or' in (raised.value.hint or "")


SLIPS = {
    "EVENT SEQ(Shelf a Exit b)": "a comma between two components",
    "EVENT SEQ(Shelf a Order b)": "a comma between two components",
    "EVENT SEQ(Shelf a, Exit b) WHERE a.ts => 5": "write >=",
    "PATTERN Shelf -> Exit": "write `;` between",
    "EVENT SEQ(Shelf a, Exit b) WITHIN 1h30m": "90 minutes for 1h30m",
    "EVENT SEQ(Shelf a, Exit b) WITHIN 1 hour and 5 minutes": "one number and one unit",
    "EVENT SEQ(Shelf a, Exit b) WITHIN -1 hour": "greater than 0",
    "EVENT SEQ(Shelf a, Exit b) WHERE a.ts IN 1, 2": "IN (1, 2)",
    "EVENT SEQ(Shelf a, Exit b) WHERE a.shelf LIKE a%": "LIKE 'a%'",
    "EVENT SEQ(Shelf a, Exit b) LIMIT ten": "LIMIT 10",
    "EVENT ANY(Shelf, Exit a)": "ANY(Shelf, Exit) x",
    "EVENT Shelf a RETURN a.ts x": "a.ts AS x",
    "EVENT Shelf a WHERE contains(a.shelf, 'a')": "LIKE '%text%'",
    "EVENT Shelf a WHERE a.ts BETWEEN 1 WITHIN 5": "BETWEEN 1 AND ...",
    "SEQ(Shelf a, Exit b)": "EVENT SEQ(...)",
    "SELECT * FROM t MATCH_RECOGNIZE (PARTITION BY k PATTERN (A B+))": "WHERE partition_contiguity(a, b[]) { [key]",
    "EVENT SEQ(Shelf a -> Exit b)": "write commas between the components",
    "EVENT SEQ(Shelf a; Exit b)": "write commas between the components",
    "PATTERN SEQ(Shelf a; Exit b) WHERE [k]": "write commas between the components",
    "EVENT SEQ(Shelf a, Exit b) WITHIN 00:05:00": "one number and one unit: WITHIN 5 minutes",
    "EVENT SEQ(Shelf a, Exit b) WITHIN 1 hour 30 minutes": "90 minutes for 1 hour and 30",
    "EVENT SEQ(Shelf a, Exit b) WITHIN 5 mins AND b.v > 3": "conditions in WHERE, which stands before WITHIN",
    "EVENT SEQ(Shelf a, Exit b) WHERE b.v > 10,5": "a decimal point",
    "EVENT SEQ(IN a, !(OUT o), IN b)": "a keyword is a name in backticks: `IN`",
    "PATTERN SEQ(Shelf a, LIMIT+ b[])": "a keyword is a name in backticks: `LIMIT`",
    "EVENT SEQ(Shelf a, Exit b) OUTPUT NON-OVERLAPPING": "OUTPUT is in SASE+",
    "PATTERN SEQ(Shelf+ a[], Exit b) WHERE skip_till_next_match(a[], b) [k] WITHIN 1 hour": "in braces",
    "PATTERN SEQ(Shelf+ a[], Exit b) WHERE skip_till_next_match(a[], b) { [k] } AND b.v > 3": "inside the braces",
    "PATTERN SEQ(Shelf{2..3} a[], Exit b)": "a comma: {2,3}",
    "PATTERN SEQ(Shelf a[2], Exit b)": "after the type: Shelf{2} a[]",
    "EVENT Shelf a RETURN a.user id AS who": "in backticks: a.`user id` AS name",
    "EVENT Shelf a RETURN a.shelf AS user name": "in backticks: AS `user name`",
    "EVENT SEQ(charge.failed a, Exit b)": "in backticks: `charge.failed`",
    "PATTERN SEQ(charge.dispute.created+ a[], Exit b)": "in backticks: `charge.dispute.created`",
    "EVENT Shelf a RETURN a.@timestamp": "in backticks: a.`@timestamp`",
    "EVENT Shelf a WHERE a.temp °C > 3": "in backticks: a.`temp °C`",
    "PATTERN SEQ(Shelf+ a[]) WHERE skip_till_next_match(a[]) { a[i].Temp. °C > 3 }": "in backticks: a[i].`Temp. °C`",
    "EVENT SEQ(Shelf a, Exit b) WHERE [Karten-Nr.]": "in backticks: [`Karten-Nr.`]",
    "EVENT SEQ(Shelf a, Exit b) WHERE a.Karten-Nr. = 5": "in backticks: a.`Karten-Nr.`",
    "EVENT Shelf a WHERE a.price (EUR) > 5": "in backticks: a.`price (EUR)`",
    "EVENT Shelf a WHERE a.shelf.lower() = 'a'": "functions stand before their values: lower(a.shelf)",
    "EVENT Shelf a WHERE a.shelf.contains('a')": "write a.shelf CONTAINS 'a'",
    "PATTERN SEQ(101{6} a[])": "in backticks: `101`",
    "PATTERN SEQ(3 Shelf a, Exit b)": "the number after the type: Shelf{3} a[]",
    "PATTERN SEQ(Shelf[3] a, Exit b)": "the number in braces: Shelf{3} a[]",
    "PATTERN SEQ(Shelf a{3}, Exit b)": "the closure after the type: Shelf{3} a[]",
    "PATTERN SEQ(Shelf+ a[], Exit b) WHERE skip_till_next_match(a[], b) ([k])": "the conditions in braces",
    "PATTERN SEQ(Shelf+ a[]) WHERE skip_till_next_match(a[]) { a[last].v > 3 }": "the last event is a[a.LEN]",
    "PATTERN SEQ(Shelf+ a[]) WHERE skip_till_next_match(a[]) { last(a).v > 3 }": "the attribute inside: last(a.v)",
    "PATTERN SEQ(Shelf+ a[]) RETURN a.count": "a.LEN, or count(a)",
    "PATTERN SEQ(Shelf+ a[]) WHERE skip_till_next_match(a[]) { a.v > 3 }": "one on a[1].v (the first)",
    "EVENT Shelf a; Exit b": "EVENT SEQ(Shelf a, Exit b), or in ZStream PATTERN Shelf a; Exit b",
    "PATTERN (Shelf a Exit b)": "write `;` between",
    "PATTERN Shelf;!Exit;Shelf": "another name: Shelf Shelf2",
    "EVENT SEQ(Shelf a, Exit b WHERE a.v > 3": "close the parenthesis of the pattern",
    "EVENT SEQ(Shelf a, Exit b) WITHIN 1 fortnight": "a unit such as seconds",
    "EVENT Shelf a WHERE a.v IN ('a' 'b')": "commas between the values",
    "EVENT Shelf a WHERE a.v IN ['a', 'b']": "IN (1, 2)",
    "EVENT SEQ(Shelf a, Exit b) WHERE a.v & b.v": "write AND",
    "EVENT Shelf a WHERE a.v = :name": "a bare name: name, with --param name=...",
    "EVENT Shelf a WHERE a.v = {name}": "a bare name: name, with --param name=...",
    "EVENT Shelf a WHERE a.v > ?": "a parameter is a bare name",
    "EVENT SEQ(Shelf a, Exit b) RETURN DISTINCT a.v": "leave DISTINCT out",
    "EVENT SEQ(Shelf a, Exit b) WITHIN 5 minutes EMIT a": "columns of the output are in RETURN",
    "SELECT * FROM pattern [every a=Shelf -> b=Exit]": "the events after FROM",
    "SELECT * FROM Shelf a; Exit b WHERE FILTER(a.k = b.k) OCCURS WITHIN 5 minutes": "two variables: FILTER(...)",
    "from every e1=Shelf -> e2=Exit select e1.user insert into Out": "SASE+ is the closest",
    "begin('a').where(x > 3).next('b')": "SASE+ is the closest",
    "CREATE VIEW visit AS EVENT SEQ(Shelf a, Exit b)": "label a query that others use: visit:",
    "EVENT SEQ(Shelf a, Exit|Door b)": "ANY(Exit, Door) b",
    "EVENT SEQ(Shelf a, (Exit b | Door c))": "ANY(A, B) x, and groups in ZStream",
    "EVENT Shelf & Exit": "write it in ZStream: PATTERN A a & B b",
    "EVENT SEQ(* a, Exit b)": "name the types",
    "EVENT SEQ(Shelf a, not(Door) b, Exit c)": "the variable stands inside: !(Door b)",
    "EVENT SEQ(Shelf a, Exit b) WHERE a.user IS b.user": "IS tests for NULL only",
    "EVENT Shelf a WHERE a.v BETWEEN 5, 10": "BETWEEN 5 AND ...",
    "EVENT Shelf a WHERE a['user'] = 'x'": "after a point: a.`user`",
    "EVENT Shelf a WHERE a.user ~ 'x'": "LIKE 'a%'",
    "EVENT SEQ(Shelf a, Exit b) WHERE a.user = b.user, b.v > 3": "write AND between conditions",
    "# visits\nEVENT SEQ(Shelf a, Exit b)": "comments are written --",
    "visit: EVENT SEQ(Shelf a, Exit b) WITHIN 5;\nPATTERN visit; Exit c": "each of several queries has a label",
}


@pytest.mark.parametrize("text", SLIPS)
def test_slips_have_hints(text: str) -> None:
    with pytest.raises(CepheidError) as raised:
        parse(text)
    assert SLIPS[text] in (raised.value.hint or ""), raised.value


def test_conditions_that_no_event_decides() -> None:
    for condition, warning in (("\"user id\" = 'a'", "a.`user id`"), ("a.shelf = NULL", "IS NULL")):
        with pytest.warns(CepheidWarning, match=warning):
            cepheid.match(f"EVENT Shelf a WHERE {condition}", EVENTS)
    with pytest.raises(CepheidError, match="WITHIN 1 hour"):
        cepheid.match("EVENT SEQ(Shelf a, Exit b) WITHIN hour", EVENTS)
    with pytest.raises(CepheidError, match="without quotes"):
        cepheid.match("EVENT Shelf a WHERE a.ok = 'false'", EVENTS.assign(ok=True))


@pytest.mark.parametrize("zone", (" UTC", " GMT", "UTC", ".25 UTC"))
def test_the_word_utc_after_a_time(tmp_path: Path, zone: str) -> None:
    texts = [f"2024-03-01 08:00:00{zone}", "2024-03-01 08:01:00+00:00"]
    frame = pd.DataFrame({"type": ["Shelf", "Exit"], "ts": texts})
    frame.to_csv(tmp_path / "a.csv", index=False)
    frame.to_json(tmp_path / "a.jsonl", orient="records", lines=True)
    large = pd.concat([frame, frame.assign(type="Other").loc[[0] * 40_000]])
    large.to_csv(tmp_path / "large.csv", index=False)
    assert (tmp_path / "large.csv").stat().st_size > 1_000_000, "the columnar reader is for large files"
    starts = [
        cepheid.match(f"{SASE} WITHIN 2 minutes", events)["match_start"][0]
        for events in (frame, *(str(tmp_path / name) for name in ("a.csv", "a.jsonl", "large.csv")))
    ]
    expected = pd.Timestamp(texts[0].replace("GMT", "UTC"))
    assert [pd.Timestamp(start.as_py() if isinstance(start, pa.Scalar) else start) for start in starts] == [
        expected
    ] * 4


@pytest.mark.parametrize("condition", ("x.door = 3", "[door]"))
def test_a_condition_on_an_attribute_that_the_type_lacks_is_a_warning(tmp_path: Path, condition: str) -> None:
    (tmp_path / "a.csv").write_text("type,ts,tag_id,door\nShelf,1,1,\nExit,2,1,3\n")
    with pytest.warns(CepheidWarning, match="no event of type `Shelf` has `door`: .* does not apply to `x`"):
        assert len(cepheid.match(f"{SASE} WHERE {condition}", str(tmp_path / "a.csv"))) == 1
    found = CliRunner().invoke(app, ["run", f"{SASE} WHERE {condition}", "--input", str(tmp_path / "a.csv")])
    assert "warning: no event of type `Shelf` has `door`" in found.stderr and "`e`" not in found.stderr


def test_a_sheet_is_saved_as_csv_first(tmp_path: Path) -> None:
    (tmp_path / "a.xlsx").write_bytes(b"PK")
    with pytest.raises(CepheidError) as raised:
        cepheid.match(SASE, str(tmp_path / "a.xlsx"))
    assert "save the sheet as CSV" in (raised.value.hint or "")


def test_an_input_without_events_has_no_unit_of_time(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("type,ts\nShelf,01/05/2024 08:00\n")
    found = CliRunner().invoke(app, ["run", f"{SASE} WITHIN 5 minutes", "--input", str(tmp_path / "a.csv")])
    assert "write times as 2024-03-01 08:00:00" in found.stderr and "integer column" not in found.stderr


SCRIPT = "source A schema string user\nsource B schema string user\ncomplex Q on A as a, B as b "


@pytest.mark.parametrize(
    ("query", "hint"),
    [
        ("EVENT (A a, B b)", "EVENT SEQ(A a, B b)"),
        ("SELECT * FROM (A a ; B b) WHERE (a, b) OCCURS WITHIN 5 parsecs", "a unit such as seconds"),
        ("EVENT SEQ(A a, B b) WHERE a.user IS 'x'", "IS tests for NULL only"),
        ("EVENT SEQ(A a, B b) LIMIT 5 RETURN a.user", "LIMIT stands last: RETURN"),
        ("PATTERN SEQ(A a, B+ b[]) WHERE { [user] }", "name a strategy before the braces"),
        ("PATTERN SEQ(A a, B+ b[]) WHERE skip_till_next_match(a, b[]) [user]", "the conditions in braces"),
        ("PATTERN SEQ(A a, B+ b[]) WHERE skip_till_next_match(a, b[]) { b[i].v > b[i+1].v }", "b[i] and b[i-1]"),
        ("PATTERN SEQ(A a, B b+) WHERE skip_till_next_match(a, b) { [user] }", "B+ b[]"),
        ("PATTERN SEQ(A a, (B b, A c)+) WHERE skip_till_next_match(a, b, c) { [user] }", "give a query over several"),
        ("PATTERN A,B", "PATTERN A; B"),
        ("SELECT * FROM (A a ; B b) WHERE FILTER a.user = b.user", "FILTER(a.x = b.x)"),
        ("SELECT * FROM (A a ; B b) GROUP BY a.user", "FILTER(a.user = b.user)"),
        ("SELECT * FROM (A+ a ; B b)", "A a+"),
        ("SELECT * FROM (A a ; NOT B b)", "(A a; B b) \\ C c"),
        ("SELECT a.* FROM (A a ; B b)", "SELECT a, b"),
        (SCRIPT + "event seq(a; b; 5)", "`;` before the window"),
        (SCRIPT + "event seq(a, b, 5)", "seq(a, b; 5)"),
        (SCRIPT + "event sequence(a, b; 5)", "the operators are seq"),
        (SCRIPT + "event a and b", "and(a, b; 10)"),
        (SCRIPT + "event seq(a, b; 5 min) within 5 min", "seq(a, b; 5 min)"),
        ("source A\ncomplex Q on A as a event a", "source A schema string name"),
        (
            "source A schema string user\nprimitive P on A as a schema a.user as k\ncomplex Q on P as p event p",
            "k as a.user",
        ),
    ],
)
def test_hints_for_what_newcomers_write(query: str, hint: str) -> None:
    with pytest.raises(CepheidError) as raised:
        parse(query)
    assert hint in str(raised.value)


def test_a_name_in_a_primitive_that_is_no_attribute() -> None:
    query = "source A schema string user\nprimitive P on A as a schema k as user\ncomplex Q on P as p event p"
    with pytest.raises(CepheidError, match="neither an attribute of `A`") as raised:
        cepheid.match(query, pa.table({"type": ["A"], "ts": [1], "user": ["u"]}))
    assert "a.user" in str(raised.value)


def test_columns_of_mixed_values() -> None:
    """A pandas DataFrame may have numbers and text in one column."""
    events = EVENTS.assign(note=[1, "x"])
    assert len(cepheid.match(f"{SASE} RETURN x.tag_id", events)) == 1
    for query in (SASE, f"{SASE} WHERE x.note = 1 RETURN x.tag_id"):
        with pytest.raises(CepheidError, match="the column `note` mixes values of several types"):
            cepheid.match(query, events)


def test_arguments_in_the_wrong_order() -> None:
    with pytest.raises(CepheidError) as raised:
        cepheid.match(EVENTS, SASE)
    assert "match(query, events)" in (raised.value.expected or "")


def test_the_time_may_be_an_index_without_a_name() -> None:
    times = pd.DatetimeIndex(["2024-03-01", "2024-03-02"])
    with pytest.raises(CepheidError) as raised:
        cepheid.match(SASE, EVENTS.drop(columns="ts").set_index(times))
    assert "reset_index()" in (raised.value.hint or "") and "rename_axis('ts')" in (raised.value.hint or "")


def test_differences_of_floats_at_a_bound() -> None:
    """37.4 - 37.1 is less than 0.3."""
    events = pd.DataFrame({"type": "r", "ts": [1, 2], "v": [37.1, 37.4]})
    with pytest.warns(CepheidWarning, match=r"write round\(b.v - a.v, 1\)"):
        assert len(cepheid.match("EVENT SEQ(r a, r b) WHERE b.v - a.v >= 0.3", events)) == 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(cepheid.match("EVENT SEQ(r a, r b) WHERE round(b.v - a.v, 1) >= 0.3", events)) == 1
        assert len(cepheid.match("EVENT SEQ(r a, r b) WHERE b.v - a.v > 0.2", events)) == 1


def test_a_name_in_zstream_that_is_almost_a_type() -> None:
    with pytest.warns(CepheidWarning, match="`shelf` is no event type of the input, so .* did you mean `Shelf`?"):
        cepheid.match("PATTERN shelf;Exit", EVENTS)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cepheid.match("PATTERN T1;Exit", EVENTS)
        cepheid.match("PATTERN Shelf;Exit WHERE SAME `tag_id`", EVENTS)


def test_a_condition_that_leaves_the_first_event_free() -> None:
    events = pd.DataFrame({"type": ["A", "A", "B"], "ts": [1, 2, 3], "v": [20, 30, 0]})
    query = "PATTERN SEQ(A+ a[], B b) WHERE skip_till_next_match(a[], b) {{ a[i].v > 25 {} }}"
    with pytest.warns(CepheidWarning, match=r"from the second event on; .* add a\[1\].v > 25"):
        assert len(cepheid.match(query.format(""), events)) == 2
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(cepheid.match(query.format("AND a[1].v > 25"), events)) == 1
        cepheid.match(query.format("AND a[i].v > a[i-1].v AND a[1].v > 0"), events)


def test_a_query_that_is_the_name_of_a_file() -> None:
    with pytest.raises(CepheidError) as raised:
        cepheid.match("queries/a.sase", EVENTS)
    assert "open('queries/a.sase').read()" in (raised.value.hint or "")


def test_events_after_the_query_on_the_command_line(tmp_path: Path) -> None:
    found = CliRunner().invoke(app, ["run", SASE, "events.csv"])
    assert found.exit_code == 2 and "events are given with --input events.csv" in found.stderr
    found = CliRunner().invoke(app, ["state", str(tmp_path / "nowhere")])
    assert found.exit_code == 2 and "there is no checkpoint" in found.stderr


def test_a_run_in_which_every_row_is_rejected_fails(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("type,ts\nShelf,01/05/2024\n")
    assert CliRunner().invoke(app, ["run", SASE, "--input", str(tmp_path / "a.csv")]).exit_code == 2


def test_where_the_time_is() -> None:
    renamed = EVENTS.rename(columns={"ts": "at"})
    for events, hint in (
        (renamed, "time_column='at'"),
        (renamed.assign(at=EVENTS.tag_id), "time_column='...'"),
        (renamed.set_index("at"), "time_column='at'"),
    ):
        with pytest.raises(CepheidError) as raised:
            cepheid.match(SASE, events)
        assert hint in (raised.value.hint or "")
    with pytest.raises(CepheidError) as raised:
        cepheid.match(f"{SASE} RETURN e.ts", renamed, time_column="at")
    assert "the time of the events is `at`" in (raised.value.hint or "")


def test_days_before_months_are_seen_in_later_rows(tmp_path: Path) -> None:
    frame = pd.DataFrame({"type": ["Shelf", "Exit"], "ts": ["02/03/2024 10:00", "13/03/2024 10:00"]})
    with pytest.raises(CepheidError) as raised:
        cepheid.match(SASE, frame)
    assert 'time_format="%d/%m/%Y %H:%M";' in (raised.value.hint or "")
    assert len(cepheid.match(SASE, frame, time_format="%d/%m/%Y %H:%M")) == 1
    frame.to_csv(tmp_path / "a.csv", index=False)
    found = CliRunner().invoke(app, ["run", SASE, "--input", str(tmp_path / "a.csv")])
    assert "--time-format '%d/%m/%Y %H:%M';" in found.stderr
    assert cepheid.match(SASE, str(tmp_path / "a.csv"), time_format="%d/%m/%Y %H:%M").num_rows == 1


def test_options_and_events_that_match_does_not_have() -> None:
    with pytest.raises(CepheidError) as raised:
        cepheid.match(SASE, EVENTS, timeformat="%d.%m.%Y")  # type: ignore[call-arg]
    assert "`match` has no option `timeformat`" in str(raised.value) and "`time_format`?" in str(raised.value)
    for events, hint in (
        (EVENTS.to_dict("records"), "pyarrow.Table.from_pylist(events)"),
        (EVENTS.to_dict("list"), "pyarrow.table(events)"),
    ):
        with pytest.raises(CepheidError) as raised:
            cepheid.match(SASE, events)
        assert hint in (raised.value.hint or "")


def test_numbers_as_types() -> None:
    with pytest.raises(CepheidError) as raised:
        cepheid.match("EVENT SEQ(`0` a, `5` b)", EVENTS.assign(type=["51", "05"]))
    assert "did you mean `05`?" in (raised.value.hint or "")


def test_a_unit_that_the_times_do_not_have(tmp_path: Path) -> None:
    events = pd.DataFrame({"type": ["Shelf", "Exit"], "ts": [1_743_718_687_786, 1_743_718_687_999]})
    with pytest.warns(CepheidWarning, match="declared to be in s, but its values are times .* in ms"):
        cepheid.match(f"{SASE} WITHIN 1 hour", events, time_unit="s")
    events.to_csv(tmp_path / "a.csv", index=False)
    query = ["run", f"{SASE} WITHIN 1 hour", "-i", str(tmp_path / "a.csv"), "--time-unit"]
    assert "but its values are times" in CliRunner().invoke(app, [*query, "s"]).stderr
    assert "but its values are times" not in CliRunner().invoke(app, [*query, "ms"]).stderr


@pytest.mark.parametrize("unit, minutes", (("ms", 1 / 60), ("s", 1_000 / 60)))
def test_a_difference_of_integer_times_divided_by_a_duration(unit: str, minutes: float) -> None:
    events = pa.table({"type": ["Shelf", "Exit"], "ts": [1_000, 2_000]})
    query = f"{SASE} RETURN (e.ts - x.ts) / 1 minute AS m"
    for evaluator in (None, "reference"):
        assert cepheid.match(query, events, time_unit=unit, evaluator=evaluator)["m"].to_pylist() == [minutes]


def test_a_partition_that_few_people_mean() -> None:
    """SASE calls an equality between all variables an equivalence test: it divides the events."""
    events = pd.DataFrame({"type": ["R", "O", "O"], "ts": [1, 2, 3], "k": 1, "who": ["a", "b", "a"], "by": "a"})
    pattern = "PATTERN SEQ(R r, O o) WHERE partition_contiguity(r, o)"
    with pytest.warns(CepheidWarning, match=r"makes `who` part of the partition.* as r.who IN \(o.who\)"):
        assert len(cepheid.match(f"{pattern} {{ [k] AND r.who = o.who }}", events)) == 1
    with pytest.warns(CepheidWarning, match="no match") as warned:
        assert len(cepheid.match(f"{pattern} {{ [k] AND r.who IN (o.who) }}", events)) == 0
    assert len(warned) == 1
    overlapping = f"{pattern.replace('partition_contiguity', 'skip_till_next_match')} {{ r.who = o.by }}"
    with pytest.warns(CepheidWarning, match="OUTPUT NON-OVERLAPPING has no partition: `r.who = o.by` compares"):
        cepheid.match(f"{overlapping} OUTPUT NON-OVERLAPPING", events)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cepheid.match(overlapping, events)
        cepheid.match(f"{pattern} {{ r.who = o.who }} OUTPUT NON-OVERLAPPING", events)


def test_an_aggregate_of_an_expression_over_one_event() -> None:
    with pytest.raises(CepheidError) as raised:
        cepheid.match("EVENT SEQ(Shelf x, Exit e) RETURN max(e.tag_id * 2) AS m", EVENTS)
    assert (raised.value.hint or "").startswith("write e.tag_id * 2, or give `e` a closure")
