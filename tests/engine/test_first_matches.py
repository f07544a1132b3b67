"""The work of LIMIT."""

from __future__ import annotations

import heapq
from typing import Any

import pyarrow as pa
import pytest

import cepheid

EVENTS = 20_000


def test_certain_matches_are_not_compared_again(monkeypatch: pytest.MonkeyPatch) -> None:
    compared = 0

    nsmallest = heapq.nsmallest

    def counting(limit: int, candidates: list[Any]) -> list[Any]:
        nonlocal compared
        compared += len(candidates)
        return nsmallest(limit, candidates)

    monkeypatch.setattr(heapq, "nsmallest", counting)
    events = pa.table({"type": ["A", "B"] * (EVENTS // 2), "ts": range(EVENTS)})
    query = f"PATTERN SEQ(A a, B b) WITHIN 1 units LIMIT {EVENTS}"
    found = cepheid.match(query, events, time_unit="s", output="positions")
    matches = EVENTS // 2
    assert found.num_rows == matches
    pieces = EVENTS // 1000
    assert compared <= matches + pieces
