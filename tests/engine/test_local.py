"""The local backend: every input kind, every golden case, equality with the oracle, LIMIT, and bounded memory."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from golden_cases import Case, all_cases
from typer.testing import CliRunner

import cepheid
from cepheid.app import cli
from cepheid.binding import bind
from cepheid.codegen import compile as compiling
from cepheid.engine import stepping
from cepheid.engine.prepare import prepare
from cepheid.errors import CepheidError
from cepheid.events import Clock, Event, Schema, primitive
from cepheid.io.inputs import Columns
from cepheid.io.source import TableSource
from cepheid.lang import parse
from cepheid.pattern import Query, SourceStream
from cepheid.semantics import Match, evaluate
from cepheid.types import type_of, united_all

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
    shown = {name: united_all(type_of(r.get(name)) for r in rows) for name in names}
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


UNCLEAR = "composition/attributes"
"""Its bare attribute is one of a single event. In a table all events have all columns, so both events have it."""
TABULAR = [case for case in CASES if case.rows and has_one_type_per_column(case) and _id(case) != UNCLEAR]


def makes_its_own(query: Query) -> bool:
    return query.summarizes or any(not isinstance(item, SourceStream) for item in query.inputs)


def test_nearly_all_golden_cases_are_tables() -> None:
    assert len(TABULAR) > 0.9 * len(CASES)


def test_a_bare_attribute_that_two_events_of_a_table_have_is_refused() -> None:
    (case,) = [case for case in CASES if _id(case) == UNCLEAR]
    with pytest.raises(CepheidError, match="unknown attribute `w` of `p`"):
        cepheid.match(case.query, table_of(rows_of(case)))


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


@pytest.mark.parametrize("case", TABULAR, ids=_id)
def test_a_compiled_evaluator_runs_it(case: Case) -> None:
    unit, table = case.headers.get("unit"), table_of(rows_of(case))
    assert "evaluator: reference" not in str(cepheid.explain(case.query, table, time_unit=unit, params=case.params))


def _plain(rows: Counter[str]) -> Counter[str]:
    """Whole floats as integers: a column of numbers is of floats if one of them is."""

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: plain(item) for name, item in value.items()}
        if isinstance(value, list):
            return [plain(item) for item in value]
        return int(value) if isinstance(value, float) and value.is_integer() else value

    return Counter({json.dumps(plain(json.loads(row)), sort_keys=True): count for row, count in rows.items()})


# --- kinds of input ---------------------------------------------------------------------------------------------------

SEQUENCE = "EVENT SEQ(A x, B y, C z) WHERE [id] AND x.v < z.v WITHIN 20"


def stream(number: int, seed: int = 3) -> list[dict[str, Any]]:
    """Random events in order of time, with ties and with nulls in every attribute."""
    chance = random.Random(seed)
    rows: list[dict[str, Any]] = []
    time = 0
    for _ in range(number):
        time += chance.choice([0, 1, 1, 2])
        rows.append(
            {
                "type": chance.choice("ABC"),
                "ts": time,
                "id": chance.choice([1, 2, 2, None]),
                "v": chance.choice([1.5, 2.5, 3.0, None]),
                "name": chance.choice(["p", "q", None]),
            }
        )
    return rows


ROWS = stream(120)
EXPECTED = by_rows(oracle(SEQUENCE, ROWS))


def test_the_streams_of_these_tests_have_matches() -> None:
    assert sum(EXPECTED.values()) > 10


def test_a_table_gives_a_table() -> None:
    found = cepheid.match(SEQUENCE, pa.Table.from_pylist(ROWS))
    assert isinstance(found, pa.Table) and of_table(found) == EXPECTED
    event = pa.struct([("type", "string"), ("ts", "int64"), ("id", "int64"), ("v", "float64"), ("name", "string")])
    assert found.schema.names == ["x", "y", "z", "match_start", "match_end"]
    assert found.schema.types == [event, event, event, pa.int64(), pa.int64()]


def test_a_table_of_many_chunks_is_one_table() -> None:
    chunks = [pa.Table.from_pylist(ROWS).slice(start, 7) for start in range(0, len(ROWS), 7)]
    assert of_table(cepheid.match(SEQUENCE, pa.concat_tables(chunks))) == EXPECTED


def test_a_record_batch_gives_a_record_batch() -> None:
    found = cepheid.match(SEQUENCE, pa.RecordBatch.from_pylist(ROWS))
    assert isinstance(found, pa.RecordBatch) and of_table(pa.Table.from_batches([found])) == EXPECTED


def test_a_reader_gives_a_reader() -> None:
    table = pa.Table.from_pylist(ROWS)
    found = cepheid.match(SEQUENCE, table.to_reader(max_chunksize=11))
    assert isinstance(found, pa.RecordBatchReader) and of_table(found.read_all()) == EXPECTED


def test_an_iterator_gives_an_iterator_that_reads_as_it_goes() -> None:
    taken = []

    def batches() -> Iterator[pa.RecordBatch]:
        for number, batch in enumerate(pa.Table.from_pylist(ROWS).to_batches(max_chunksize=10)):
            taken.append(number)
            yield batch

    found = cepheid.match(SEQUENCE, batches())
    first = next(found)
    assert isinstance(first, pa.RecordBatch) and len(taken) < len(ROWS) / 10
    assert of_table(pa.Table.from_batches([first, *found])) == EXPECTED


@pytest.mark.parametrize("returns", ["", " RETURN x.name AS name, y.at AS at, y.v - x.v AS rise"])
def test_pandas_with_arrow_columns_gives_arrow_columns(returns: str) -> None:
    """No event of a match is converted to Python objects; the values are those of an Arrow table."""
    at = pd.to_datetime([0, 5, 9], unit="ms", utc=True)
    plain = pd.DataFrame(
        {"type": ["A", "B", "B"], "ts": [1, 2, 9], "v": [5.5, 7.5, 6], "name": ["ö", None, "z"], "at": at}
    )
    backed = plain.convert_dtypes(dtype_backend="pyarrow")
    query = f"EVENT SEQ(A x, B y) WHERE x.v < y.v WITHIN 50{returns}"
    found = cepheid.match(query, backed)
    assert [type(kind) for kind in found.dtypes] == [pd.ArrowDtype] * len(found.columns)
    assert len(found) == 2 and pa.Table.from_pandas(found).to_pylist() == cepheid.match(query, plain).to_dict("records")
    some = plain.assign(name=plain["name"].astype(pd.ArrowDtype(pa.dictionary(pa.int32(), pa.string()))))
    assert isinstance(cepheid.match(query, some).dtypes.iloc[0], pd.ArrowDtype)
    assert not any(isinstance(kind, pd.ArrowDtype) for kind in cepheid.match(query, plain).dtypes)


@pytest.mark.parametrize("nanoseconds", [5_000, 5_001])
def test_pandas_timestamps_in_events_are_timestamps(nanoseconds: int) -> None:
    """The default of pandas is nanoseconds."""
    at = pd.to_datetime([0, 0, nanoseconds], unit="ns", utc=True)
    frame = pd.DataFrame({"type": ["A", "B", "C"], "ts": at, "v": [1, 2, 3]})
    found = cepheid.match("PATTERN SEQ(A a, B+ b[], C c) WHERE skip_till_any_match(a, b[], c) { a.v < b[i].v }", frame)
    (row,) = found.to_dict("records")
    assert row["a"]["ts"] == row["b"][0]["ts"] == at[0] and row["c"]["ts"] == at[2]
    assert row["match_end"] == at[2].floor("us")


def test_integers_beside_nulls_stay_exact_in_pandas() -> None:
    large = 2**53 + 1
    frame = pd.DataFrame({"type": ["A", "B", "C"], "ts": [1, 2, 3], "v": [large, large, large]})
    query = "PATTERN A a;(B b|C c) WITHIN 4"
    found = cepheid.match(query, frame)
    assert found.b[0]["v"] == large and isinstance(found.b[0]["v"], int) and found.b[1] is None
    assert cepheid.match(query, frame, output="flat")["b.v"].to_list() == [large, pd.NA]
    assert cepheid.match(f"{query} RETURN c.v AS v", frame).v.to_list() == [pd.NA, large]


def test_pandas_gives_pandas() -> None:
    found = cepheid.match(SEQUENCE, pd.DataFrame(ROWS))
    assert isinstance(found, pd.DataFrame) and len(found) == sum(EXPECTED.values())
    assert list(found.columns) == ["x", "y", "z", "match_start", "match_end"]
    assert found.x[0]["type"] == "A"


def test_polars_gives_polars() -> None:
    frame = pl.DataFrame(ROWS)
    found = cepheid.match(SEQUENCE, frame)
    assert isinstance(found, pl.DataFrame)
    assert Counter(json.dumps(_spanned(row), sort_keys=True) for row in found.to_dicts()) == EXPECTED
    assert isinstance(cepheid.match(SEQUENCE, frame.lazy()), pl.DataFrame)


def test_polars_categories_are_types_and_keys() -> None:
    frame = pl.DataFrame(ROWS).with_columns(pl.col("type", "name").cast(pl.Categorical))
    query = "EVENT SEQ(A x, B y) WHERE [name] AND x.name != 'q' WITHIN 3"
    found = cepheid.match(query, frame, output="positions")
    plain = cepheid.match(query, pl.DataFrame(ROWS), output="positions")
    assert len(found) > 0 and found.to_dicts() == plain.to_dicts()


def _spanned(row: dict[str, Any]) -> dict[str, Any]:
    span = [row.pop("match_start"), row.pop("match_end")]
    return {**row, "span": span}


def test_string_views_are_strings() -> None:
    table = pa.Table.from_pylist(ROWS)
    views = table.set_column(0, "type", table.column(0).cast(pa.string_view()))
    assert of_table(cepheid.match(SEQUENCE, views)) == EXPECTED
    assert of_table(cepheid.match(SEQUENCE, views.to_reader()).read_all()) == EXPECTED


def test_anything_that_exports_arrow_is_a_table() -> None:
    class Exports:
        def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
            return pa.Table.from_pylist(ROWS).__arrow_c_stream__(requested_schema)

    assert of_table(cepheid.match(SEQUENCE, Exports())) == EXPECTED


@pytest.mark.parametrize("in_order", [True, False])
def test_a_parquet_file_gives_a_table(tmp_path: Path, in_order: bool) -> None:
    rows = list(ROWS)
    if not in_order:
        random.Random(1).shuffle(rows)
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "events.parquet", row_group_size=13)
    for path in (tmp_path / "events.parquet", str(tmp_path / "events.parquet")):
        assert of_table(cepheid.match(SEQUENCE, path)) == by_rows(oracle(SEQUENCE, rows))


# --- order, positions, columns ----------------------------------------------------------------------------------------


def test_rows_may_be_in_any_order_and_positions_are_rows_of_the_input() -> None:
    rows = list(ROWS)
    random.Random(2).shuffle(rows)
    found = cepheid.match(SEQUENCE, pa.Table.from_pylist(rows), output="positions")
    assert found.schema == pa.schema([("x", "int64"), ("y", "int64"), ("z", "int64")])
    expected = oracle(SEQUENCE, rows)
    assert Counter(map(tuple, (row.values() for row in found.to_pylist()))) == Counter(
        tuple(event.position for event in match.bindings.values() if isinstance(event, Event)) for match in expected
    )


def test_events_of_equal_time_keep_the_order_of_their_rows() -> None:
    rows = [{"type": kind, "ts": 2 - at // 2, "n": at} for at, kind in enumerate("BABA")]
    query = "PATTERN SEQ(A x, B y) WHERE strict_contiguity(x, y) { }"
    found = cepheid.match(query, pa.Table.from_pylist(rows), output="positions")
    assert found.to_pylist() == [{"x": 3, "y": 0}]


def test_positions_of_a_closure_are_lists() -> None:
    query = "PATTERN SEQ(A+ a[], B b) WHERE skip_till_next_match(a[], b) { [id] } WITHIN 6"
    found = cepheid.match(query, pa.Table.from_pylist(ROWS), output="positions")
    assert found.schema == pa.schema([("a", pa.list_(pa.int64())), ("b", "int64")])
    assert len(found) > 0 and max(len(row["a"]) for row in found.to_pylist()) > 1


def test_returned_columns() -> None:
    query = SEQUENCE + " RETURN x, y.name, z.v - x.v AS rise, z.ts"
    found = cepheid.match(query, pa.Table.from_pylist(ROWS))
    assert found.schema.names == ["x", "y.name", "rise", "z.ts", "match_start", "match_end"]
    assert of_table(found) == by_rows(oracle(query, ROWS))


def test_returned_aggregates_of_a_closure() -> None:
    query = (
        "PATTERN SEQ(A+ a[], B b) WHERE skip_till_next_match(a[], b) { [id] } WITHIN 6 "
        "RETURN a[1].v, a[a.LEN].v, count(a) AS n, sum(a.v) AS total, b"
    )
    found = cepheid.match(query, pa.Table.from_pylist(ROWS))
    assert len(found) > 0 and of_table(found) == by_rows(oracle(query, ROWS))


def test_a_branch_that_was_not_taken_is_null() -> None:
    found = cepheid.match("PATTERN A;(B|C) WITHIN 2", pa.Table.from_pylist(ROWS))
    rows = found.to_pylist()
    assert rows and all((row["B"] is None) != (row["C"] is None) for row in rows)
    positions = cepheid.match("PATTERN A;(B|C) WITHIN 2", pa.Table.from_pylist(ROWS), output="positions").to_pylist()
    assert all((row["B"] is None) != (row["C"] is None) for row in positions)


@pytest.mark.parametrize(
    "query", ["PATTERN (B|(A;C*)) WITHIN 3", "PATTERN A;(B|C*) WITHIN 3", "PATTERN ((A;C*)|B);ANY(*) x WITHIN 3"]
)
def test_a_closure_of_a_branch_that_was_not_taken_is_null_and_not_empty(query: str) -> None:
    table = pa.Table.from_pylist(ROWS)
    found, wanted = (
        cepheid.match(query, table, evaluator=evaluator).to_pylist() for evaluator in ("tree", "reference")
    )
    assert Counter(map(str, found)) == Counter(map(str, wanted))
    assert any(row["C"] is None for row in found)


def test_structs_are_read_by_dotted_names() -> None:
    rows = [
        {"type": "A", "ts": 1, "at": {"x": 1}},
        {"type": "B", "ts": 2, "at": {"x": 1}},
        {"type": "B", "ts": 3, "at": None},
    ]
    found = cepheid.match("EVENT SEQ(A a, B b) WHERE a.at.x = b.at.x RETURN b.at.x AS x", pa.Table.from_pylist(rows))
    assert found.to_pylist() == [{"x": 1, "match_start": 1, "match_end": 2}]


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_timestamps_count_microseconds_and_come_back_as_they_were(unit: str) -> None:
    moments = pa.array([0, 3_600, 50_000], pa.int64()).cast(pa.timestamp("s")).cast(pa.timestamp(unit, "UTC"))
    table = pa.table({"type": ["A", "B", "B"], "ts": moments})
    found = cepheid.match("EVENT SEQ(A x, B y) WITHIN 12 hours", table)
    assert len(found) == 1 and found.schema.field("match_end").type == pa.timestamp(unit, "UTC")
    assert found.column("match_end")[0] == moments[1] and found.column("y")[0]["ts"] == moments[1]


def test_an_integer_column_needs_its_unit_for_a_window_in_time() -> None:
    table = pa.table({"type": ["A", "B"], "ts": [0, 5]})
    with pytest.raises(CepheidError, match="whose unit is not known"):
        cepheid.match("EVENT SEQ(A x, B y) WITHIN 12 hours", table)
    assert len(cepheid.match("EVENT SEQ(A x, B y) WITHIN 12 hours", table, time_unit="h")) == 1
    assert len(cepheid.match("EVENT SEQ(A x, B y) WITHIN 5 hours", table, time_unit="h")) == 0


def test_a_wrong_unit_is_reported_before_the_events_are_opened() -> None:
    with pytest.raises(CepheidError, match="`xx` is not a unit of time"):
        cepheid.match("EVENT SEQ(A x, B y) WITHIN 5 hours", "missing.parquet", time_unit="xx")


def test_other_columns_for_type_and_time() -> None:
    table = pa.table({"kind": ["A", "B"], "at": [0, 5]})
    assert len(cepheid.match("EVENT SEQ(A x, B y)", table, type_column="kind", time_column="at")) == 1


def test_events_without_types_are_one_stream() -> None:
    table = pa.table({"ts": [1, 2, 3], "price": [5.0, 7.0, 6.0]})
    found = cepheid.match("PATTERN a;b WHERE a.price < b.price WITHIN 10", table, output="positions")
    assert found.to_pylist() == [{"a": 0, "b": 1}, {"a": 0, "b": 2}]


@pytest.mark.parametrize("query", [SEQUENCE, "PATTERN A;(B|C) WITHIN 2", "SELECT * FROM A; B"])
def test_no_events_no_matches(query: str) -> None:
    table = pa.Table.from_pylist(ROWS).slice(0, 0)
    found = cepheid.match(query, table)
    assert len(found) == 0 and found.schema == cepheid.match(query, pa.Table.from_pylist(ROWS)).schema
    assert len(cepheid.match(query, table, output="positions")) == 0


def test_an_event_with_a_null_key_matches_nothing() -> None:
    table = pa.table({"type": ["A", "B"], "ts": [1, 2], "id": pa.array([None, None], pa.int64())})
    assert len(cepheid.match("EVENT SEQ(A x, B y) WHERE [id]", table)) == 0


@pytest.mark.parametrize(
    "condition",
    [
        "q.n = 9007199254740993",
        "q.n = 9007199254740992",
        "q.n > 9007199254740992",
        "q.n != 5",
        "q.n < 6",
        "q.n + 1 > 5",
        "q.at < 1",
        "q.at != 1",
        "q.at - q.n < 0",
        "q.at > q.n",
    ],
)
def test_null_is_neither_less_nor_more_in_columns_of_whole_numbers(condition: str) -> None:
    """Some of which floats cannot tell from their neighbours, and some of which are times."""
    moments = pa.array([None, 0, None, 10**15], pa.timestamp("us"))
    table = pa.table({"type": ["A"] * 4, "ts": range(4), "n": pa.array([None, 2**53 + 1, 5, 7]), "at": moments})
    query = f"EVENT SEQ(A p, A q) WHERE {condition} WITHIN 100 units"
    found, wanted = (
        sorted(zip(*(m.column(name).to_pylist() for name in ("match_end", "match_start")), strict=True))
        for m in (cepheid.match(query, table, evaluator=evaluator) for evaluator in ("stacks", "reference"))
    )
    assert found == wanted


def test_nan_is_null() -> None:
    frame = pd.DataFrame({"type": ["A", "B"], "ts": [1, 2], "id": [np.nan, np.nan]})
    assert len(cepheid.match("EVENT SEQ(A x, B y) WHERE [id]", frame)) == 0


STREAMED = [
    SEQUENCE + " RETURN x, y.name, z.v - x.v AS rise",
    "EVENT SEQ(!(A x), B y, C z) WHERE [id] WITHIN 4",
    "EVENT SEQ(A x, B y, !(C z)) WHERE [id] WITHIN 5",
    "EVENT SEQ(A x, B y, C z) WHERE [id] WITHIN 6 events",
    "PATTERN SEQ(A+ a[], B b) WHERE skip_till_next_match(a[], b) { [id] AND a[i].v >= a[i-1].v } WITHIN 9",
    "PATTERN SEQ(A a, B+ b[], C c) WHERE partition_contiguity(a, b[], c) { [id] } WITHIN 9",
    "PATTERN SEQ(A+ a[], C c) WHERE skip_till_any_match(a[], c) { [name] } WITHIN 7",
    "PATTERN A a; (B b | C c) WHERE a.id = b.id AND a.id = c.id WITHIN 6",
    "PATTERN A a; B b+; C c WHERE a.id = c.id WITHIN 8 RETURN a, b, c, sum(b.v)",
]


@pytest.mark.parametrize("query", STREAMED)
@pytest.mark.parametrize("size", [1, 4, 33])
def test_a_stream_in_any_cut_gives_what_the_table_gives(query: str, size: int) -> None:
    """Whatever is still needed of earlier batches is still there."""
    table = pa.Table.from_pylist(ROWS)
    whole = cepheid.match(query, table)
    parts = cepheid.match(query, iter(table.to_batches(max_chunksize=size)))
    assert of_table(pa.Table.from_batches(parts, whole.schema)) == of_table(whole) == by_rows(oracle(query, ROWS))
    rows = cepheid.match(query, table, output="positions")
    parts = cepheid.match(query, iter(table.to_batches(max_chunksize=size)), output="positions")
    streamed = pa.Table.from_batches(parts, rows.schema)
    assert Counter(map(str, streamed.to_pylist())) == Counter(map(str, rows.to_pylist()))


# --- LIMIT and the end of the stream ----------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [0, 1, 7, 10_000])
@pytest.mark.parametrize("query", [SEQUENCE, "EVENT SEQ(A x, B y, !(C z)) WHERE [id] WITHIN 5"])
def test_limit_keeps_what_the_oracle_keeps(query: str, limit: int) -> None:
    limited = f"{query} LIMIT {limit}"
    found = cepheid.match(limited, pa.Table.from_pylist(ROWS))
    assert of_table(found) == by_rows(oracle(limited, ROWS))
    batches = pa.Table.from_pylist(ROWS).to_batches(max_chunksize=5)
    assert of_table(pa.Table.from_batches(cepheid.match(limited, iter(batches)), found.schema)) == of_table(found)


def test_limit_sorts_the_matches_of_backtracking_which_are_not_in_the_order_of_their_ends() -> None:
    query = "PATTERN SEQ(ANY(B, C){1,2} x0[], C+ x1[]) WHERE skip_till_next_match { } LIMIT 3"
    for seed in range(12):
        rows = [{"type": random.Random(f"{seed} {at}").choice("BCA"), "ts": at // 2} for at in range(7)]
        found = cepheid.match(query, pa.Table.from_pylist(rows), options={"algorithm": "backtrack"})
        assert of_table(found) == by_rows(oracle(query, rows))


def test_limit_reads_no_further_than_it_must() -> None:
    taken = 0

    def batches() -> Iterator[pa.RecordBatch]:
        nonlocal taken
        for start in range(0, 1_000_000, 10):
            taken += 1
            yield pa.RecordBatch.from_pylist([{"type": "AB"[i % 2], "ts": start + i} for i in range(10)])

    found = list(cepheid.match("EVENT SEQ(A x, B y) WITHIN 3 LIMIT 4", batches()))
    assert sum(len(batch) for batch in found) == 4 and taken < 5


def test_a_run_that_takes_long_goes_on_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stepping, "PATIENCE", 0.0)
    monkeypatch.setattr(stepping, "PIECE", 10)
    rows = stream(200, seed=5)
    assert of_table(cepheid.match(SEQUENCE, pa.Table.from_pylist(rows))) == by_rows(oracle(SEQUENCE, rows))


def test_a_query_that_is_run_again_and_again_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiling, "_loaded", set())
    query = SEQUENCE + " RETURN x.v, y.v"
    kernel = prepare(parse(query), TableSource.of(pa.Table.from_pylist(ROWS), Columns())).kernel
    assert kernel is not None and stepping.Stepper.start(kernel, 10).interpreting
    monkeypatch.setattr(stepping, "_spent", {kernel.source: stepping.PATIENCE + 1})
    assert not stepping.Stepper.start(kernel, 10).interpreting
    assert of_table(cepheid.match(query, pa.Table.from_pylist(ROWS))) == by_rows(oracle(query, ROWS))


def test_a_kernel_that_is_compiled_already_is_not_interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = prepare(parse(SEQUENCE), TableSource.of(pa.Table.from_pylist(ROWS), Columns())).kernel
    monkeypatch.setattr(compiling, "_loaded", set())
    assert kernel is not None and stepping.Stepper.start(kernel, 10).interpreting
    with monkeypatch.context() as changed:
        changed.setattr(stepping, "FEW_EVENTS", 0)
        cepheid.match(SEQUENCE, pa.Table.from_pylist(ROWS))
    assert not stepping.Stepper.start(kernel, 10).interpreting


def test_much_data_is_compiled_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stepping, "FEW_EVENTS", 0)
    assert of_table(cepheid.match(SEQUENCE, pa.Table.from_pylist(ROWS))) == EXPECTED


# --- the command line -------------------------------------------------------------------------------------------------


def run(*arguments: object) -> str:
    done = CliRunner().invoke(cli.app, [str(argument) for argument in arguments])
    assert done.exit_code == 0, done.output
    return done.stderr


def test_both_backends_write_the_same_answers(tmp_path: Path) -> None:
    for case in CASES:
        directory = tmp_path / "cases" / f"{case.language}-{case.name}"
        directory.mkdir(parents=True)
        (directory / "query.txt").write_text(case.query)
        (directory / "events.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows_of(case)))
    answers = {}
    for backend in ("reference", "local"):
        run("batch-run", tmp_path / "cases", tmp_path / backend, "--backend", backend, "--param", "T=6")
        answers[backend] = {
            path.name: Counter(path.read_text().splitlines()) for path in sorted((tmp_path / backend).iterdir())
        }
    assert len(answers["local"]) == len(CASES)
    assert answers["local"] == answers["reference"]


MIXED = [{"type": "A", "ts": 1, "v": 1}, {"type": "B", "ts": 2, "v": "x"}, {"type": "B", "ts": 3, "v": "y"}]


@pytest.mark.parametrize(
    ("query", "count"),
    [
        ("EVENT SEQ(A x, B y) WHERE y.v != 'x' AND x.v > 0", 1),
        ("EVENT SEQ(A x, B y) WHERE x.v + length(y.v) = 2", 2),
        ("EVENT ANY(A, B) x WHERE x.v != 'x'", 1),
        ("EVENT SEQ(ANY(A, B) x, ANY(A, B) y) WHERE x.v = y.v", 0),
    ],
)
def test_an_attribute_whose_type_depends_on_the_event_is_compiled(tmp_path: Path, query: str, count: int) -> None:
    (tmp_path / "events.jsonl").write_text("".join(json.dumps(row) + "\n" for row in MIXED))
    for backend in ("local", "reference"):
        output = tmp_path / f"{backend}.jsonl"
        told = run("run", "--query", query, "-i", tmp_path / "events.jsonl", "-o", output, "--backend", backend)
        assert ("compiled evaluator" in told) == (backend == "local")
        assert len(output.read_text().splitlines()) == count


EQUAL_AS_TEXT = "CAST(a.k AS string) = CAST(b.k AS string)"


@pytest.mark.parametrize(
    ("query", "count"),
    [
        (f"EVENT SEQ(A a, B b) WHERE {EQUAL_AS_TEXT}", 1),
        (f"EVENT SEQ(A a, B b) WHERE lower({EQUAL_AS_TEXT.replace(' = ', ') = lower(')})", 1),
        ("EVENT SEQ(A a, B b) WHERE CAST(a.k AS integer) + 1 = CAST(b.k AS integer) + 1", 1),
        (f"EVENT SEQ(A a, !(B b), C c) WHERE {EQUAL_AS_TEXT} WITHIN 9", 1),
        (f"PATTERN SEQ(A a, B b) WHERE skip_till_next_match(a, b) {{ {EQUAL_AS_TEXT} }} WITHIN 9", 1),
        (f"PATTERN SEQ(A a, B+ b[]) WHERE skip_till_any_match(a, b[]) {{ {EQUAL_AS_TEXT.replace('b.', 'b[i].')} "
         f"AND {EQUAL_AS_TEXT.replace('b.', 'b[1].')} }} WITHIN 9", 1),
        (f"PATTERN A a & B b WHERE {EQUAL_AS_TEXT} WITHIN 9", 1),
    ],
)  # fmt: skip
def test_the_same_function_of_an_attribute_reads_the_type_of_each_event(tmp_path: Path, query: str, count: int) -> None:
    events = [("A", "7"), ("A", "8"), ("B", 7), ("C", "7")]
    rows = [{"type": type_, "ts": ts, "k": k} for ts, (type_, k) in enumerate(events)]
    (tmp_path / "events.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    answers = []
    for backend in ("local", "reference"):
        output = tmp_path / f"{backend}.jsonl"
        told = run("run", "--query", query, "-i", tmp_path / "events.jsonl", "-o", output, "--backend", backend)
        assert ("compiled evaluator" in told) == (backend == "local")
        answers.append(sorted(output.read_text().splitlines()))
    assert answers[0] == answers[1]
    assert len(answers[0]) == count


def test_what_mixed_values_cannot_be_asked_is_an_error_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "events.jsonl").write_text("".join(json.dumps(row) + "\n" for row in MIXED))
    query = "EVENT SEQ(ANY(A, B) x, ANY(A, B) y) WHERE x.v < y.v"
    arguments = ["run", "--query", query, "-i", str(tmp_path / "events.jsonl"), "--backend", "local"]
    done = CliRunner().invoke(cli.app, arguments)
    assert done.exit_code == 2
    assert (
        "no evaluator can run this query: the attribute `v` does not have one type that conditions can read"
        in done.stderr
    )
    assert "--backend reference" in done.stderr


PARQUET_QUERIES = [
    SEQUENCE,
    SEQUENCE + " LIMIT 5",
    SEQUENCE + " RETURN x, y.name, z.ts",
    "EVENT SEQ(A x, !(B y), C z) WHERE [id] WITHIN 5",
    "PATTERN A;T WHERE A.id = T.id WITHIN 2",
    "PATTERN A;(B|C) WITHIN 2",
]


@pytest.mark.parametrize("query", PARQUET_QUERIES)
@pytest.mark.parametrize("ending", ["jsonl", "csv", "parquet"])
def test_parquet_files_give_what_the_reference_gives(tmp_path: Path, query: str, ending: str) -> None:
    rows = [
        {**row, "ts": row["ts"] if n % 17 else None, "extra": n if row["type"] == "A" else None}
        for n, row in enumerate(ROWS)
    ]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "events.parquet", row_group_size=20)
    written = {}
    for backend in ("reference", "local"):
        output = tmp_path / f"{backend}.{ending}"
        told = run("run", "--query", query, "-i", tmp_path / "events.parquet", "-o", output, "--backend", backend)
        assert "8 rejects" in told
        rejects = (tmp_path / f"{backend}.{ending}.rejects.jsonl").read_text()
        found = pq.read_table(output).num_rows if ending == "parquet" else Counter(output.read_text().splitlines())
        written[backend] = (found, rejects)
    assert written["local"] == written["reference"]


def test_several_parquet_files_are_one_stream(tmp_path: Path) -> None:
    for kind in "ABC":
        rows = [{name: value for name, value in row.items() if name != "type"} for row in ROWS if row["type"] == kind]
        pq.write_table(pa.Table.from_pylist(rows), tmp_path / f"{kind}.parquet")
    inputs = [part for kind in "ABC" for part in ("-i", f"{kind}={tmp_path / kind}.parquet")]
    for backend in ("reference", "local"):
        run("run", "--query", SEQUENCE, *inputs, "-o", tmp_path / f"{backend}.jsonl", "--backend", backend)
    lines = [Counter((tmp_path / f"{b}.jsonl").read_text().splitlines()) for b in ("reference", "local")]
    assert lines[0] == lines[1] and len(lines[0]) > 10


# --- memory -----------------------------------------------------------------------------------------------------------

MEASURE = """
import resource, sys
from cepheid.app import cli
sys.argv = ["cepheid", *sys.argv[1:]]
try:
    cli.main()
except SystemExit as ended:
    assert not ended.code
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def _peak(events: Path, output: Path) -> int:
    query = "EVENT SEQ(E1 x, E2 y, E3 z) WHERE [id] WITHIN 10000 units"
    arguments = ["run", "--query", query, "-i", str(events), "-o", str(output), "--backend", "local"]
    done = subprocess.run([sys.executable, "-c", MEASURE, *arguments], capture_output=True, text=True, check=True)
    return int(done.stdout)


@pytest.mark.slow
def test_a_file_ten_times_larger_runs_in_the_same_memory(tmp_path: Path) -> None:
    chance = np.random.default_rng(1)
    names = np.array([f"E{i}" for i in range(20)])

    def part(first: int, size: int) -> pa.Table:
        return pa.table(
            {
                "type": names[chance.integers(0, 20, size)],
                "ts": np.arange(first, first + size),
                "id": chance.integers(0, 10_000, size),
                "note": [f"note {i}" for i in range(first, first + size)],
            }
        )

    parts = [part(first, 200_000) for first in range(0, 4_000_000, 200_000)]
    pq.write_table(pa.concat_tables(parts[:2]), tmp_path / "small.parquet", row_group_size=200_000)
    pq.write_table(pa.concat_tables(parts), tmp_path / "large.parquet", row_group_size=200_000)
    _peak(tmp_path / "small.parquet", tmp_path / "warm.jsonl")  # the compiler's own memory is not the question
    small = _peak(tmp_path / "small.parquet", tmp_path / "small.jsonl")
    large = _peak(tmp_path / "large.parquet", tmp_path / "large.jsonl")
    assert large < 1.25 * small, (small, large)
    assert len((tmp_path / "large.jsonl").read_text().splitlines()) > 5


@pytest.mark.parametrize("evaluator", [None, "reference"])
def test_output_columns_that_read_no_attribute(evaluator: str | None) -> None:
    events = pa.table({"type": ["A", "A"], "ts": [1, 2]})
    found = cepheid.match("EVENT A b RETURN 1 AS one, 2 + 3 AS five", events, evaluator=evaluator)
    assert found.select(["one", "five"]).to_pylist() == [{"one": 1, "five": 5}] * 2
