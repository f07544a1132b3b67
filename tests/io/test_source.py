"""Files as sources: the events of a source are those of the row reader, whatever way the file was read."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cepheid.events import Event, Schema
from cepheid.io import files
from cepheid.io.files import open_files
from cepheid.io.inputs import Columns, Input
from cepheid.io.row_reader import read_events
from cepheid.io.rows import ROW, TIME, TYPE, RecentRows, events_of
from cepheid.io.source import JSON, Source, TableSource, clock_of, schema_of
from cepheid.types import STRING

ODD = [
    {"type": "A", "ts": 3, "x": 1, "y": "s", "n": {"a": 1, "b": {}}, "v": [1, 2.5]},
    {"type": "B", "ts": 1, "x": 2.5, "y": 7, "w": [1, "b"], "big": 2**70},
    {"type": "A", "ts": 2, "x": None, "y": "t", "n": {"a": None}, "none": None},
    {"type": "B", "ts": 2, "y": 8, "big": 1, "b": True},
]


def written(file: Path, rows: list[dict[str, Any]]) -> list[Input]:
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return [Input(str(file))]


def events_from(source: Source) -> list[Event]:
    names = [ROW] if ROW in source.schema.names else source.schema.names
    events: list[Event] = []
    for batch in source.batches(names):
        types, ticks = batch.column(TYPE).to_pylist(), batch.column(TIME).to_pylist()
        positions = range(len(events), len(events) + batch.num_rows)
        columns = batch.select(list(names))
        found = events_of(columns, types, ticks, positions, source.columns, source.attributes)
        events.extend(replace(event, attributes=in_types(event, source)) for event in found)
    return events


def in_types(event: Event, source: Source) -> dict[str, Any]:
    """The attributes of an event in the types of the source: a row has numbers as written, 1 for the float 1.0."""
    types = (source.attributes or {})[event.type]
    return {n: float(v) if types.get(n) == pa.float64() and v is not None else v for n, v in event.attributes.items()}


def facts(events: list[Event]) -> list[Any]:
    return [(e.type, e.start, e.position, repr(dict(sorted(e.attributes.items()))), repr(e.row)) for e in events]


def test_rows_that_no_table_holds_are_a_source_with_their_events(tmp_path: Path) -> None:
    inputs = written(tmp_path / "a.jsonl", ODD)
    source, loaded = open_files(inputs, Columns()), read_events(inputs)
    assert facts(events_from(source)) == facts(loaded.events)
    assert schema_of(source, ()).types == loaded.schema.types
    assert source.count == 4 and source.rejected == 0 and list(source.rejects()) == []


def test_a_column_has_a_type_that_holds_all_values(tmp_path: Path) -> None:
    source = open_files(written(tmp_path / "a.jsonl", ODD), Columns())
    types = {field.name: field.type for field in source.schema}
    number, text = pa.float64(), pa.string()
    assert (types["x"], types["n.a"], types["b"], types["none"]) == (number, pa.int64(), pa.bool_(), pa.null())
    assert types["y"] == types["v"] == types["w"] == types["big"] == JSON
    assert source.attributes is not None and ROW not in source.attributes["A"]
    assert source.attributes["A"]["y"] == text and source.attributes["B"]["y"] == pa.int64()
    assert source.attributes["A"]["x"] == source.attributes["B"]["x"] == number
    assert source.attributes["A"]["v"] == pa.list_(number) and source.attributes["B"]["w"] == pa.list_(JSON)
    assert source.attributes["B"]["big"] == pa.decimal128(38, 0) and "v" not in source.attributes["B"]


def test_timestamps_of_rows_are_timestamps_and_their_text_stays(tmp_path: Path) -> None:
    rows = [{"ts": "2024-01-02 03:04", "x": 1}, {"ts": "2024-01-01T00:00:00+02:00", "x": 2}]
    source = open_files(written(tmp_path / "a.jsonl", rows), Columns())
    assert source.schema.field("ts").type == pa.timestamp("us", "UTC") and clock_of(source, None).is_timestamp
    (batch,) = source.batches([ROW])
    assert [json.loads(text) for text in batch.column(ROW).to_pylist()] == rows[::-1]


def test_rejects_and_declared_types_are_those_of_the_row_reader(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("type,ts,x\nA,1,5\nA,two,6\nA,3,seven\n,4,8\nA,5\nA,6,9\nA,7,1\nA,8,2\n")
    inputs = [Input(str(file))]
    for declared in (Schema({}), Schema({"A": {"x": STRING}})):
        source, loaded = open_files(inputs, Columns(), declared), read_events(inputs, declared=declared)
        assert list(source.rejects()) == loaded.rejects and source.rejected == len(loaded.rejects) > 0
        assert facts(events_from(source)) == facts(loaded.events)


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl", "a.parquet"])
def test_columns_give_the_events_of_the_row_reader(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "LEAST_TEXT", 0)
    rows: list[dict[str, Any]] = [{"type": "AB"[i % 2], "ts": 90 - i // 2, "x": i, "y": f"s{i}"} for i in range(50)]
    place = tmp_path / name
    if name == "a.csv":
        place.write_text("type,ts,x,y\n" + "".join(",".join(map(str, row.values())) + "\n" for row in rows))
    elif name == "a.jsonl":
        written(place, rows)
    else:
        pq.write_table(pa.Table.from_pylist(rows), place)
    inputs = [Input(str(place))]
    source, loaded = open_files(inputs, Columns()), read_events(inputs)
    assert not isinstance(source, TableSource)
    assert facts(events_from(source)) == facts(loaded.events) and schema_of(source, ()).types == loaded.schema.types


def test_a_sample_is_the_first_events_in_time_order(tmp_path: Path) -> None:
    source = open_files(written(tmp_path / "a.jsonl", ODD), Columns())
    sample = source.sample(["x"], 2)
    assert sample is not None and sample.column(TIME).to_pylist() == [1, 2]
    assert sample.column(TYPE).to_pylist() == ["B", "A"] and sample.column("x").to_pylist() == [2.5, None]
    taken = source.rows(["x"]).take(["x", TYPE], pa.array([3, 0]))
    assert taken.to_pylist() == [{"x": 1.0, TYPE: "A"}, {"x": 2.5, TYPE: "B"}]


def test_recent_rows_are_in_few_batches_however_small_those_added_are() -> None:
    rows, most = RecentRows(["v"]), 0
    for start in range(0, 20_000, 20):
        rows.add(
            pa.record_batch(
                {
                    "v": pa.array(range(start, start + 20)),
                    TYPE: pa.array(["A", str(start % 7)] * 10).dictionary_encode(),
                    TIME: pa.array(range(start, start + 20)),
                }
            )
        )
        rows.forget(start - 9_000)
        most = max(most, len(rows.batches))
        at = pa.array([start + 3, max(start - 8_990, 0), start, max(start - 5_000, 0)])
        assert rows.take(["v"], at).column("v").equals(at)
        assert rows.ticks(np.asarray(at)).tolist() == at.to_pylist()
    assert most < 30
