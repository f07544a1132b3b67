"""Hints at what other systems write, and at tables that are not quite events."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest
from typer.testing import CliRunner

import cepheid
from cepheid.app.cli import app
from cepheid.errors import CepheidError, CepheidWarning

SASE = "EVENT SEQ(Shelf s, Exit e)"
EVENTS = pd.DataFrame({"type": ["Shelf", "Exit"], "ts": [1, 2], "tag_id": [7, 7]})


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("SELECT * FROM Shelf WHERE type = 'Shelf'", "the type of an event stands in the pattern"),
        ("EVENT SEQ(Shelf s, Exit e) RETURN count(e)", "give `e` a closure (+)"),
        ("PATTERN (A a B b) DEFINE B AS B.x > A.x", "the conditions of DEFINE in WHERE"),
        ("EVENT SEQ(Shelf s, Exit e) WHERE s.tag_id = e.tag_id OR e.tag_id", "compare it: e.tag_id > 0"),
        ("EVENT SEQ(Shelf s, Exit e) WHERE NOT e.tag_id", "compare it: e.tag_id > 0"),
        ("EVENT SEQ(Shelf s, Exit e) WHERE int(e.tag_id[1:]) > 3", "substr(e.tag_id, 2)"),
        (f"{SASE} RETURN s.tag_id AS tag, count(*) AS n GROUP BY tag", '.groupby("tag").size() in pandas'),
        (f"{SASE} RETURN s.tag_id, count(*)", "count the rows of each"),
        (f"{SASE} WHERE e.ts - s.ts > '5 minutes'", "without quotes: 5 minutes"),
        (f"{SASE} WHERE s.tag_id > 'x'", "compare it with a number"),
        (f"{SASE} WHERE s.card = 4111", "a string is written in quotes: '4111'"),
        (f"{SASE} WHERE s.place = 'till WITHIN 5 minutes", "close it where it ends: 'till'"),
        (f"{SASE} WHERE concat(s.place, 'x) = s.place", "close it where it ends: 'x'"),
        (f"{SASE} WHERE s.e-mail = e.e-mail WITHIN 5", "in backticks: s.`e-mail`"),
        (f"{SASE} WHERE CASE s.tag_id > 1 THEN 1 END = 1", "WHEN before the condition"),
        (f"{SASE} WHERE CASE WHEN s.tag_id > 1 THEN 1 = 1 WITHIN 5", "close CASE with END"),
        (f"{SASE} WHERE CAST(s.tag_id, int) = 1", "write CAST(s.tag_id AS int)"),
        (f"{SASE} WHERE s.ts > TIMESTAMP 2024-03-01", "TIMESTAMP '2024-03-01'"),
        (f"{SASE} WHERE e.ts - s.ts < INTERVAL '5 minutes' WITHIN 5", "INTERVAL '5' minutes, or 5 minutes"),
        (f"{SASE} WITHIN 2 weeks 3 days", "one number and one unit"),
        ("complex x event count(Shelf) > 3", "count(Shelf; 5 min)"),
        ("PATTERN Shelf s; NOT Exit e; Shelf t", "!Exit e"),
        ("PATTERN Shelf+ s; Exit e", "write the variable first: Shelf s+"),
        ("PATTERN Shelf s AND Exit e", "write events in any order with &"),
        ("PATTERN Shelf s OR Exit e", "write one event or the other with |"),
        (f"{SASE} WHERE EXTRACT(EPOCH FROM s.ts) > 0", "subtract"),
        (f"{SASE} WITHIN (5 minutes)", "without parentheses: WITHIN 5 minutes"),
        (f"{SASE} WHERE s.tag_id > 1 AND WITHIN 5", "there is no condition after AND"),
        (f"{SASE} WHERE s.tag_id > 1 OR", "there is no condition after OR"),
        (f"{SASE} WHERE WITHIN 5", "there is no condition after WHERE"),
        (f"{SASE} RETURN s.tag id", "s.tag AS id; and a name with a blank in backticks: s.`tag id`"),
        (f"{SASE} RETURN count()", "write count(*) for the number of matches"),
        ("EVENT SEQ(Shelf | `404` s, Exit e)", "ANY(Shelf, `404`) s"),
        ("EVENT SEQ(Shelf s, `Exit e)", "close it where it ends: `Exit e`"),
        ("SELECT * FROM Shelf s; Exit e WHERE FILTER([`tag id`])", "write s.`tag id` = e.`tag id`"),
        ("SELECT * FROM Shelf s; Exit e WHERE [tag_id]", "write s.tag_id = e.tag_id"),
        ("complex c on Shelf as s, Exit as e event seq(s, e; 5) where [`tag id`]", "write s.`tag id` = e.`tag id`"),
        (f"{SASE} WHERE s.place = `out door`", "s.`out door`; a parameter is set: --param 'out door'=..."),
    ],
)
def test_hints_at_habits(text: str, hint: str) -> None:
    events = EVENTS.assign(place="till", card=["4111 1111", "5500 0000 0000"])
    with pytest.raises(CepheidError) as raised:
        cepheid.match(text, events)
    assert hint in (raised.value.hint or "")


def test_a_type_in_another_case_is_named() -> None:
    with pytest.warns(CepheidWarning, match="no event of type `shelf`.*; did you mean `Shelf`"):
        cepheid.match("EVENT SEQ(shelf s, Shelf e)", EVENTS)


def test_a_time_of_day_gets_a_day() -> None:
    with pytest.raises(CepheidError, match=r"pd\.to_datetime\('2024-03-01 ' \+ column\)"):
        cepheid.match(SASE, EVENTS.assign(ts=["08:00", "09:00"]))


@pytest.mark.parametrize(
    ("time", "hint"),
    [
        ("2025-06-31", "there is no day 2025-06-31"),
        ("30.06.2025", "write the year first: '2025-06-30'"),
        ("yesterday", "a time is written '2024-03-01 08:00:00'"),
    ],
)
def test_hints_at_texts_that_are_no_times(time: str, hint: str) -> None:
    events = EVENTS.assign(ts=pd.to_datetime(["2025-06-01", "2025-06-02"]))
    with pytest.raises(CepheidError) as raised:
        cepheid.match(f"{SASE} WHERE s.ts > '{time}'", events)
    assert raised.value.hint == hint


def test_types_that_lack_an_attribute_beside_others_have_a_warning() -> None:
    events = {"Shelf": pa.table({"ts": [1], "state": ["on"]}), "Exit": pa.table({"ts": [2]})}
    with pytest.warns(CepheidWarning, match="no event of type `Exit` has `state`.* to `x` where it is `Exit`"):
        cepheid.match("EVENT ANY(Shelf, Exit) x WHERE x.state = 'on'", events)


def test_names_with_dots_are_quoted_as_a_whole() -> None:
    query = cepheid.parse("EVENT Shelf s WHERE s.`Rel. Humidity (%)` > 3 AND s.at.place = 'x'")
    assert "s.`Rel. Humidity (%)` > 3 AND s.at.place" in str(query) and cepheid.parse(str(query)) == query


def test_the_summary_names_the_columns_of_local_times(tmp_path: Path) -> None:
    for name, column in (("a", "Call Time"), ("b", "at")):
        (tmp_path / f"{name}.csv").write_text(f"{column}\n2024-03-01 08:0{ord(name) - 97}:00\n")
    inputs = [f"{tmp_path / 'a.csv'},type=Shelf,time=Call Time", f"{tmp_path / 'b.csv'},type=Exit,time=at"]
    found = CliRunner().invoke(app, ["run", SASE, "-i", inputs[0], "-i", inputs[1], "--zone", "Europe/Berlin"])
    assert "times of `Call Time`, `at` without an offset are those of Europe/Berlin" in found.stderr


def test_names_of_columns_that_every_match_has_are_located() -> None:
    with pytest.raises(CepheidError, match="line 1, column 35"):
        cepheid.match("EVENT SEQ(Shelf s, Exit e) RETURN s.ts AS match_start", EVENTS)


def test_unknown_functions_list_the_forms_that_are_keywords() -> None:
    with pytest.raises(CepheidError) as raised:
        cepheid.match("EVENT Shelf s WHERE foo(s.tag_id) > 3", EVENTS)
    assert "`CAST`" in (raised.value.expected or "") and "`substring`" in (raised.value.expected or "")


def test_tables_without_columns_and_with_periods() -> None:
    with pytest.raises(CepheidError) as raised:
        cepheid.match(SASE, pd.DataFrame())
    assert "no columns" in (raised.value.expected or "")
    days = pd.DataFrame({"type": ["Shelf"], "ts": pd.period_range("2024-03-01", periods=1, freq="D")})
    with pytest.raises(CepheidError) as raised:
        cepheid.match(SASE, days)
    assert "events['ts'].dt.to_timestamp()" in (raised.value.hint or "")
