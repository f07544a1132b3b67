"""Events with duration from input to output: every evaluator gives the oracle's matches and intervals, in tables and in
streams of the same events."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

import cepheid
from cepheid.errors import InputProblem
from cepheid.io.inputs import Columns
from cepheid.lang import parse
from cepheid.streaming.planning import StreamSource, plan_stream
from cepheid.streaming.reader import RowReader
from cepheid.streaming.simulation import Simulation

QUERIES = [
    "EVENT SEQ(A x, B y) WHERE [k] WITHIN 20",
    "EVENT SEQ(A x, !(C n), B y) WHERE x.v <= y.v WITHIN 20 RETURN x.v, y.began, y.ts - x.began AS took",
    "EVENT SEQ(!(C n), A x, B y, !(C m)) WHERE [k] WITHIN 12",
    "PATTERN A;B WITHIN 20",
    "PATTERN SEQ(A x, B+ y[]) WHERE skip_till_next_match(x, y[]) {[k]} WITHIN 20",
    "PATTERN SEQ(A x, B+ y[], C z) WHERE skip_till_any_match(x, y[], z) {[k] AND y[i].v >= x.v} WITHIN 15",
    "PATTERN SEQ(A x, B y) WHERE skip_till_any_match(x, y) {x.v < y.v} WITHIN 15",
    "PATTERN SEQ(A x, B y) WHERE strict_contiguity(x, y) {x.k = y.k} WITHIN 15",
    "PATTERN SEQ(A x, B y) WHERE partition_contiguity(x, y) {[k]} WITHIN 9 OUTPUT NON-OVERLAPPING",
    "PATTERN SEQ(A x, B+ y[]) WHERE skip_till_any_match(x, y[]) {[k]} WITHIN 9 RETURN count(*), sum(y.v)",
    "PATTERN A;B&C WITHIN 15",
    "PATTERN A;B+;C WITHIN 25",
    "SELECT * FROM A; B WHERE FILTER(A.k = B.k), (A, B) OCCURS WITHIN 20",
    "SELECT * FROM A; B+ WHERE FILTER(A.k = B.k), (A, B) OCCURS WITHIN 20",
    r"SELECT * FROM A \ C WHERE A.k = C.k, C.v > A.v",
    r"SELECT * FROM (A; B) \ C WHERE FILTER(A.k = B.k), A.k = C.k, (A, B) OCCURS WITHIN 30",
    r"SELECT * FROM B \ (C; A)",
    "complex Q event and(A, B, C; 12)",
    "complex Q event seq(A, !C, B; 20)",
    "complex P event seq(A, B; 10)\ncomplex Q event and(P, C; 12)",
    "P: EVENT SEQ(A x, B y) WHERE [k] WITHIN 20\nQ: EVENT SEQ(P a, C c) WITHIN 30",
    "P: PATTERN SEQ(A x, B+ y[]) WHERE skip_till_next_match(x, y[]) {[k]} WITHIN 20\nQ: PATTERN P;C WITHIN 30",
    "P: EVENT SEQ(A x, B y) WHERE [k] WITHIN 20\n"
    "Q: PATTERN SEQ(P a, C c) WHERE skip_till_next_match(a, c) {1 = 1} WITHIN 30",
]


def events(seed: int, count: int = 50) -> pa.Table:
    """Events in the order of arrival, with ties and with events that are longer than some windows."""
    rng = random.Random(seed)
    rows: list[dict[str, Any]] = []
    for _ in range(count):
        end = rng.randrange(2 * count)
        start = end - rng.choice((0, rng.randrange(10), rng.randrange(25)))
        row = {"type": rng.choice("ABC"), "k": rng.randrange(2), "v": rng.randrange(4), "node_id": 1}
        rows.append({**row, "began": start, "ts": end})
    return pa.Table.from_pylist(rows)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("text", QUERIES)
def test_evaluators_give_the_matches_of_the_oracle(text: str, seed: int) -> None:
    table = events(seed)
    assert "evaluator: reference" not in cepheid.explain(text, table, start_column="began")
    found = cepheid.match(text, table, start_column="began")
    expected = cepheid.match(text, table, start_column="began", evaluator="reference")
    assert sorted(map(str, found.to_pylist())) == sorted(map(str, expected.to_pylist()))
    assert found.num_rows


LIMITED = [text for text in QUERIES if "complex" not in text and "SELECT" not in text]


@pytest.mark.parametrize("text", [text for text in LIMITED if "RETURN count" not in text and "!(C m)" not in text])
def test_limit_takes_the_matches_that_end_first(text: str) -> None:
    table = events(7)
    found = cepheid.match(f"{text} LIMIT 5", table, start_column="began")
    expected = cepheid.match(f"{text} LIMIT 5", table, start_column="began", evaluator="reference")
    assert found.to_pylist() == expected.to_pylist()


@pytest.mark.parametrize("text", QUERIES)
def test_streams_give_the_matches_of_the_batch(text: str) -> None:
    verified = cepheid.verify(text, events(5), start_column="began", streams=6)
    assert verified.evaluator != "reference"
    assert verified.agrees, str(verified)


def test_a_match_counts_from_the_earliest_start_to_the_latest_end() -> None:
    """The event that ends last has started first."""
    rows = [{"type": "A", "began": 4, "ts": 5}, {"type": "B", "began": 1, "ts": 9}]
    text = "PATTERN SEQ(A x, B y) WHERE skip_till_next_match(x, y) {{1 = 1}} WITHIN {} units"
    table = pa.Table.from_pylist(rows)
    (found,) = cepheid.match(text.format(8), table, start_column="began").to_pylist()
    assert (found["match_start"], found["match_end"]) == (1, 9)
    assert not cepheid.match(text.format(7), table, start_column="began").num_rows
    assert not cepheid.match("EVENT SEQ(A x, B y) WITHIN 20", table, start_column="began").num_rows


def test_a_stream_rejects_a_start_after_its_end() -> None:
    rows = [
        {"type": "A", "began": 1, "ts": 2},
        {"type": "A", "began": 5, "ts": 4},
        {"type": "B", "began": None, "ts": 6},
        {"type": "B", "began": 7, "ts": 9},
    ]
    schema = pa.schema([("type", pa.string()), ("began", pa.int64()), ("ts", pa.int64())])
    columns = Columns(start="began")
    fields = {field.name: field.type for field in schema}
    source = StreamSource(RowReader(schema, columns), dict.fromkeys("AB", fields))
    plan = plan_stream({"query": parse("EVENT SEQ(A x, B y) WITHIN 20")}, source, 0, buckets=2)
    out = Simulation(plan).run([pa.RecordBatch.from_pylist(rows, schema)])
    reasons = [reason for batch in out.rejects for reason in batch.column("reason").to_pylist()]
    assert sorted(reasons) == ["no start: `began` is null", "the start is after the end: `began` is later than `ts`"]
    (found,) = [row for batch in out.matches["query"] for row in batch.to_pylist()]
    assert (found["match_start"], found["match_end"]) == (1, 9)


def test_a_stream_is_late_by_the_ends_of_events() -> None:
    """An event that started long ago is in time if its end is."""
    rows = [
        {"type": "A", "began": 1, "ts": 2},
        {"type": "C", "began": 30, "ts": 30},
        {"type": "B", "began": 4, "ts": 29},
        {"type": "B", "began": 4, "ts": 19},
    ]
    schema = pa.schema([("type", pa.string()), ("began", pa.int64()), ("ts", pa.int64())])
    fields = {field.name: field.type for field in schema}
    source = StreamSource(RowReader(schema, Columns(start="began")), dict.fromkeys("ABC", fields))
    plan = plan_stream({"query": parse("EVENT SEQ(A x, B y) WITHIN 40")}, source, 5, buckets=1)
    batches = [pa.RecordBatch.from_pylist(rows[:2], schema), pa.RecordBatch.from_pylist(rows[2:], schema)]
    out = Simulation(plan).run(batches)
    assert [row["ts"] for batch in out.late for row in batch.to_pylist()] == [19]
    assert [row["match_end"] for batch in out.matches["query"] for row in batch.to_pylist()] == [29]


def test_another_start_column_is_another_stream() -> None:
    schema = pa.schema([("type", pa.string()), ("began", pa.int64()), ("ts", pa.int64())])
    fields = {field.name: field.type for field in schema}

    def described(columns: Columns) -> dict[str, Any]:
        source = StreamSource(RowReader(schema, columns), dict.fromkeys("AB", fields))
        return plan_stream({"query": parse("EVENT SEQ(A x, B y) WITHIN 40")}, source, 5, buckets=1).description()

    assert described(Columns(start="began"))["start column"] == "began"
    assert "start column" not in described(Columns())


def test_the_start_has_the_kind_of_the_time() -> None:
    table = events(1).append_column("when", pa.array([0] * 50, pa.timestamp("us")))
    with pytest.raises(InputProblem, match="the start column `when` holds timestamp"):
        cepheid.match(QUERIES[0], table, start_column="when")
