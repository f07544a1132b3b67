"""Delta tables as sources that can be asked."""

import json
import random
from pathlib import Path

import pyarrow as pa
import pytest
from detection.running import drawn_query, drawn_table, rows

import cepheid
from cepheid.acquire.intervals import BEGINNING, END
from cepheid.acquire.requests import Answer, Request
from cepheid.detection.delta_source import DeltaSource
from cepheid.errors import InputProblem
from cepheid.io.asked_source import Failure
from cepheid.io.files import open_files
from cepheid.io.inputs import DEFAULT_COLUMNS, Columns, Input

write_deltalake = pytest.importorskip("deltalake", reason="the package deltalake is not installed").write_deltalake


def asked(source: DeltaSource, begin: int, end: int, **more: object) -> Answer:
    found: list[Answer | Failure] = []
    source.ask(Request(1, "t", "A", begin, end, **more), found.append)  # type: ignore[arg-type]
    (answer,) = found
    assert isinstance(answer, Answer)
    return answer


def written(directory: Path, table: pa.Table, size: int) -> str:
    """In files of so many events."""
    for start in range(0, table.num_rows, size):
        write_deltalake(str(directory), table.slice(start, size), mode="append")
    return str(directory)


def test_a_pull_reads_the_files_and_rows_that_fit(tmp_path: Path) -> None:
    table = pa.table({"type": ["A", "B"] * 50, "ts": list(range(100)), "v": list(range(100)), "w": ["x"] * 100})
    source = DeltaSource.open("t", written(tmp_path / "t", table, 10), DEFAULT_COLUMNS)
    assert len(source.describe().types) == 2
    source.reads.files = source.reads.rows = 0
    answer = asked(source, 20, 31, columns=("type", "ts", "v"))
    assert answer.events.to_pydict() == {
        "type": ["A"] * 6,
        "ts": [20, 22, 24, 26, 28, 30],
        "v": [20, 22, 24, 26, 28, 30],
    }
    assert (answer.begin, answer.complete, answer.retained) == (20, 31, BEGINNING)
    assert source.reads.files == 2 and source.reads.rows == 6
    filtered = asked(source, 20, 31, filter="e.v > 25", columns=("type", "ts"))
    assert filtered.events.to_pydict() == {"type": ["A"] * 3, "ts": [26, 28, 30]}
    assert asked(source, BEGINNING, END).events.num_rows == 50
    assert source.sent.events == 59


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_times_of_every_unit_are_pulled_with_both_ends(tmp_path: Path, unit: str) -> None:
    per = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}[unit]
    moments = pa.array([n * per for n in range(10)], pa.int64()).cast(pa.timestamp(unit))
    table = pa.table({"at": moments, "v": list(range(10))})
    source = DeltaSource.open("t", written(tmp_path / "t", table, 4), Columns("type", "at"), "A")
    assert asked(source, 2_000_000, 5_000_000).events.column("v").to_pylist() == [2, 3, 4, 5]
    assert asked(source, 1_999_999, 5_000_001).events.column("v").to_pylist() == [2, 3, 4, 5]
    assert asked(source, 2_000_001, 4_999_999).events.column("v").to_pylist() == [3, 4]


@pytest.mark.parametrize("seed", (0, 1, 3, 4, 5, 6))
def test_detections_over_tables_are_those_of_the_oracle(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    text, table = drawn_query(rng), drawn_table(rng, 60, 100)
    left = pa.compute.less(table["id"], 2)
    for name, part in (("left", table.filter(left)), ("right", table.filter(pa.compute.invert(left)))):
        written(tmp_path / name, part, 9)
    listed = {"sources": [{"name": name, "delta": name} for name in ("left", "right")]}
    (tmp_path / "sources.json").write_text(json.dumps(listed))
    found = cepheid.detect(text, str(tmp_path / "sources.json"))
    assert rows(found.read_all()) == rows(cepheid.match(text, table, evaluator="reference"))


def test_tables_that_cannot_be_read_say_so(tmp_path: Path) -> None:
    with pytest.raises(InputProblem, match=r"the Delta table .* cannot be read"):
        DeltaSource.open("t", str(tmp_path / "nothing"), DEFAULT_COLUMNS)
    path = written(tmp_path / "t", pa.table({"when": [1]}), 1)
    with pytest.raises(InputProblem, match="has no column `ts`"):
        DeltaSource.open("t", path, DEFAULT_COLUMNS)
    source = DeltaSource.open("t", written(tmp_path / "u", drawn_table(random.Random(1), 9, 9), 5), DEFAULT_COLUMNS)
    for file in (tmp_path / "u").glob("*.parquet"):
        file.unlink()
    found: list[Answer | Failure] = []
    source.ask(Request(1, "t", "A", 1, 5), found.append)
    assert isinstance(found[0], Failure) and "cannot be read" in found[0].reason


@pytest.mark.parametrize("rows", [2, 3000])
def test_a_type_lacks_a_column_that_is_empty_for_its_events_as_in_run(rows: int, tmp_path: Path) -> None:
    """`k` is there for the first B only, `v` for no event at all."""
    table = pa.table(
        {
            "type": ["A", "B"] * (rows // 2),
            "ts": pa.array(range(rows), pa.int64()),
            "k": pa.array([None, 7] + [None] * (rows - 2), pa.int64()),
            "v": pa.nulls(rows, pa.int64()),
        }
    )
    path = written(tmp_path / "t", table, 1000)
    known = DeltaSource.open("t", path, DEFAULT_COLUMNS).describe().types
    of_run = open_files([Input(path)], DEFAULT_COLUMNS).attributes
    assert of_run is not None and {kind: list(own.columns) for kind, own in known.items()} == {
        kind: list(own) for kind, own in of_run.items()
    }
    assert "k" not in known["A"].columns and "v" in known["A"].columns
    for condition, count in (("a.k = b.k", rows - 1), ("a.v = b.v", 0)):
        query = f"complex Q on A as a, B as b event and(a, b; 1) where {condition}"
        (tmp_path / "sources.json").write_text(json.dumps({"sources": [{"name": "t", "delta": "t"}]}))
        found = cepheid.detect(query, str(tmp_path / "sources.json")).read_all()
        assert found.num_rows == count
