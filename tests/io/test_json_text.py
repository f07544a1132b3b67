"""Columns as JSON and CSV text, against the texts of single values."""

from __future__ import annotations

import csv
import io
import json
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from cepheid.engine.prepare import RunOptions, prepare
from cepheid.engine.run import run
from cepheid.io.inputs import Columns
from cepheid.io.json_text import cell_texts, json_texts
from cepheid.io.rows import dumps, plain
from cepheid.io.sinks import SINKS, Objects
from cepheid.io.source import TableSource
from cepheid.lang import parse
from cepheid.streaming.sinks import as_json_lines

MOMENT = datetime(2024, 2, 29, 12, 30, 5, 120_000, UTC)
COLUMNS: dict[str, pa.Array] = {
    "integers": pa.array([1, -(2**63), None]),
    "unsigned": pa.array([2**64 - 1, 0, None], pa.uint64()),
    "floats": pa.array([1.0, 1e300, 0.1, -0.0, float("nan"), float("inf"), float("-inf"), None]),
    "booleans": pa.array([True, False, None]),
    "strings": pa.array(['a"b', "c,\nd", "é\\", "", "\x01", None]),
    "dictionary": pa.array(["a", "b", None, "a"]).dictionary_encode(),
    "timestamps": pa.array([MOMENT, datetime(1969, 1, 1, tzinfo=UTC), None], pa.timestamp("us", "UTC")),
    "nanoseconds": pa.array([1_500, None], pa.timestamp("ns")),
    "dates": pa.array([date(2024, 1, 1), None]),
    "durations": pa.array([timedelta(seconds=1.5), None]),
    "decimals": pa.array([Decimal("1.50"), Decimal("3.00"), None]),
    "long decimals": pa.array([Decimal("9" * 28 + ".9999999991"), Decimal("-0.25")], pa.decimal128(38, 10)),
    "decimals near zero": pa.array([Decimal("0"), Decimal("0.0012"), Decimal("-7"), None], pa.decimal128(38, 30)),
    "decimals of thousands": pa.array([Decimal("0"), Decimal("1000"), Decimal("-123000"), None], pa.decimal128(9, -3)),
    "whole decimals": pa.array([Decimal("0"), Decimal("1000"), Decimal("-10"), None], pa.decimal128(9, 0)),
    "narrow floats": pa.array([1.0, 0.1, 1e10, -1e-5, float("nan"), float("inf"), None], pa.float32()),
    "characters": pa.array([chr(code) for code in (*range(0x21), 0x22, 0x2F, 0x5C, 0x7F, 0x80, 0x2028, 0x1F600)]),
    "binary": pa.array([b"ab", None]),
    "lists": pa.array([[1, None], [], None]),
    "structs": pa.array([{"a": 1, "b": "x"}, {"a": None, "b": "y"}, None]),
    "nested": pa.array([[{"a": [1.5]}], None]),
    "nulls": pa.nulls(2),
    "empty": pa.array([], pa.string()),
}


@pytest.mark.parametrize("name", sorted(COLUMNS))
def test_columns_are_written_as_their_values_are(name: str) -> None:
    column = COLUMNS[name]
    for part in (column, column.slice(1)):
        values = [plain(value) for value in part.to_pylist()]
        texts = json_texts(part).to_pylist()
        assert [json.loads(text, parse_float=Decimal) for text in texts] == [
            json.loads(dumps(v), parse_float=Decimal) for v in values
        ]
        cells = [None if v is None else v if isinstance(v, str) else dumps(v) for v in values]
        read = list(csv.reader(io.StringIO("".join(f"x,{cell}\n" for cell in cell_texts(part).to_pylist()))))
        shown = ["" if c is None else {"Infinity": "inf", "-Infinity": "-inf"}.get(c, c) for c in cells]
        assert [row[1] for row in read] == shown


@pytest.mark.parametrize("format", ["jsonl", "csv"])
def test_an_event_shows_the_columns_of_its_type(format: str) -> None:
    event = pa.struct([("type", pa.string()), ("v", pa.int64()), ("w", pa.int64())])
    rows: list[dict[str, Any]] = [
        {"x": {"type": "A", "v": 1, "w": None}, "b": [{"type": "B", "v": None, "w": 2}], "match_start": 1},
        {"x": {"type": "B", "v": None, "w": 3}, "b": [], "match_start": 2},
        {"x": None, "b": None, "match_start": 3},
    ]
    schema = pa.schema([("x", event), ("b", pa.list_(event)), ("match_start", pa.int64())])
    objects = Objects({"x": ("A", "B"), "b": ("B",)}, {"A": ("type", "v"), "B": ("type", "w")}, "type")
    file = io.BytesIO()
    SINKS[format](file, schema, objects).write(pa.RecordBatch.from_pylist(rows, schema))
    if format == "csv":
        lines = [
            [cell and json.loads(cell) for cell in row]
            for row in list(csv.reader(io.StringIO(file.getvalue().decode())))[1:]
        ]
    else:
        lines = [list(json.loads(line).values()) for line in file.getvalue().splitlines()]
    assert lines[0] == [{"type": "A", "v": 1}, [{"type": "B", "w": 2}], 1]
    assert lines[1] == [{"type": "B", "w": 3}, [], 2]
    assert lines[2][:2] == (["", ""] if format == "csv" else [None, None])


def test_decimals_have_all_their_digits_in_every_text() -> None:
    """In matches of batches, in those of streams, and in summaries, which are as exact as JSON Lines can be."""
    long = Decimal("9" * 28 + ".9999999991")
    table = pa.table({"type": ["A", "B"], "ts": [1, 2], "v": pa.array([long, long], pa.decimal128(38, 10))})
    row = pa.table({"x": [{"v": long, "items": [long, None]}]})
    assert as_json_lines(row).decode() == f'{{"x": {{"v": {long}, "items": [{long}, null]}}}}\n'
    for evaluator in (None, "reference"):
        options = RunOptions(evaluator=evaluator)
        source = TableSource.of(table, Columns())
        prepared = prepare(parse("EVENT SEQ(A x, B y) RETURN max(y.v) AS m, count(*) AS n"), source, options)
        result, file = run(prepared, source, as_text=True), io.BytesIO()
        sink = SINKS["jsonl"](file, result.schema, result.objects)
        for batch in result.batches:
            sink.write(batch)
        assert file.getvalue().decode().startswith(f'{{"m": {long}, "n": 1')
