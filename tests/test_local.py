"""The local backend: every input kind, every golden case, equality with the oracle, LIMIT, and bounded memory."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from golden_cases import Case, all_cases

import cepheid
from cepheid.binding import bind
from cepheid.checks import summarises
from cepheid.events import Clock, Event, Schema, primitive, type_of
from cepheid.lang import parse
from cepheid.pattern import Query, SourceStream
from cepheid.semantics import Match, evaluate

CASES = [case for case in all_cases() if case.matches is not None]


def _id(case: Case) -> str:
    return f"{case.language}/{case.name}"


# --- what match must find ---------------------------------------------------------------------------------------------


def table_of(rows: list[dict[str, Any]]) -> pa.Table:
    names = dict.fromkeys(name for row in rows for name in row)
    return pa.table({name: pa.array([row.get(name) for row in rows]) for name in ["type", "ts", *names]})


def oracle(query: str, rows: list[dict[str, Any]], unit: str | None = None, params: Any = None) -> list[Match]:
    """The matches on a table in which every event has all columns; events are numbered by their row."""
    names = dict.fromkeys(["type", "ts", *(name for row in rows for name in row)])
    events = [
        primitive(row["type"], row["ts"], number, {name: row.get(name) for name in names})
        for number, row in enumerate(rows)
    ]
    ordered = sorted(events, key=lambda event: event.start)
    shown = {name: next((type_of(r[name]) for r in rows if r.get(name) is not None), type_of(None)) for name in names}
    bound = bind(parse(query), Schema({row["type"]: shown for row in rows}), params or {})
    return evaluate(bound, ordered, Clock(unit))


def by_rows(matches: list[Match]) -> Counter[str]:
    def rows(binding: Any) -> Any:
        if isinstance(binding, tuple):
            return [event.row for event in binding]
        return binding.row if isinstance(binding, Event) else binding

    found = [
        {
            **{var: rows(b) for var, b in (m.bindings if m.columns is None else m.columns).items()},
            "span": [m.start, m.end],
        }
        for m in matches
    ]
    return Counter(json.dumps(row, sort_keys=True) for row in found)


def of_table(table: pa.Table) -> Counter[str]:
    rows = []
    for row in table.to_pylist():
        span = [row.pop("match_start"), row.pop("match_end")]
        rows.append({**row, "span": span})
    return Counter(json.dumps(row, sort_keys=True) for row in rows)


def rows_of(case: Case) -> list[dict[str, Any]]:
    return [{"type": kind, "ts": time, **attributes} for kind, time, attributes in case.rows]


def has_one_type_per_column(case: Case) -> bool:
    columns: dict[str, set[str]] = {}
    for row in rows_of(case):
        for name, value in row.items():
            if value is not None:
                columns.setdefault(name, set()).add("number" if type(value) in (int, float) else type(value).__name__)
    return all(len(kinds) == 1 for kinds in columns.values())


TABULAR = [case for case in CASES if case.rows and has_one_type_per_column(case)]


def makes_its_own(query: Query) -> bool:
    return summarises(query) or any(not isinstance(item, SourceStream) for item in query.inputs)


def test_nearly_all_golden_cases_are_tables() -> None:
    assert len(TABULAR) > 0.9 * len(CASES)


@pytest.mark.parametrize("case", TABULAR, ids=_id)
def test_match_finds_what_the_oracle_finds(case: Case) -> None:
    rows = rows_of(case)
    unit = case.headers.get("unit")
    found = cepheid.match(case.query, table_of(rows), time_unit=unit, params=case.params)
    expected = oracle(case.query, rows, unit, case.params)
    if makes_its_own(parse(case.query)):
        assert len(found) == len(expected)
    else:
        assert _plain(of_table(found)) == _plain(by_rows(expected))


def _plain(rows: Counter[str]) -> Counter[str]:
    """Whole floats as integers: a column of numbers is of floats if one of them is."""

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: plain(item) for name, item in value.items()}
        if isinstance(value, list):
            return [plain(item) for item in value]
        return int(value) if isinstance(value, float) and value.is_integer() else value

    return Counter({json.dumps(plain(json.loads(row)), sort_keys=True): count for row, count in rows.items()})
