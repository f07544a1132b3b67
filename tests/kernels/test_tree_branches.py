"""Joins with the branches of a disjunction."""

from __future__ import annotations

import re

import pyarrow as pa

import cepheid


def test_branches_are_joined_by_their_key() -> None:
    events = pa.table({"type": ["A", "B", "D", "C"] * 100, "ts": range(400), "k": [row // 4 for row in range(400)]})
    query = "PATTERN (A a & (B b | D d)); C c WHERE [k] WITHIN 400 units"
    text = str(cepheid.explain(query, events, time_unit="s", level="analyze"))
    assert re.findall(r"CON: .* made ([\d,]+)", text) == ["100", "100"]
    assert cepheid.match(query, events, time_unit="s").num_rows == 200
