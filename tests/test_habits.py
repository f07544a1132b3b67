"""Hints at what other systems write, and at tables that are not quite events."""

from __future__ import annotations

import pandas as pd
import pytest

import cepheid
from cepheid.errors import CepheidError

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
    ],
)
def test_hints_at_habits_of_other_systems(text: str, hint: str) -> None:
    with pytest.raises(CepheidError) as raised:
        cepheid.match(text, EVENTS)
    assert hint in (raised.value.hint or "")


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
