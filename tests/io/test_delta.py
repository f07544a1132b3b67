"""Delta tables: the rows of their newest version, not those of all files in the directory."""

from __future__ import annotations

import json
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest

import cepheid
from cepheid.engine.prepare import RunOptions
from cepheid.errors import InputProblem, NotAvailable
from cepheid.io.inputs import Columns, Input
from cepheid.spark.file_stream import FileStream, StreamPaths

QUERY = "EVENT SEQ(A a, B b) WITHIN 100 RETURN a.ts, b.ts"


def events(*rows: tuple[str, int]) -> pa.Table:
    return pa.table({"type": [kind for kind, _ in rows], "ts": [time for _, time in rows]})


def written(path: Path) -> str:
    """Of the events that were written, one is deleted and its file rewritten."""
    deltalake.write_deltalake(path, events(("A", 1), ("B", 2), ("B", 3)))
    deltalake.write_deltalake(path, events(("A", 5), ("B", 9)), mode="append")
    deltalake.DeltaTable(path).delete("ts = 2")
    return str(path)


def pairs(found: pa.Table) -> list[tuple[int, ...]]:
    return sorted(tuple(row.values())[:2] for row in found.to_pylist())


def test_the_files_of_the_newest_version_are_read(tmp_path: Path) -> None:
    path = written(tmp_path / "events")
    assert len(list(Path(path).glob("*.parquet"))) == 3
    assert pairs(cepheid.match(QUERY, path)) == [(1, 3), (1, 9), (5, 9)]


def test_what_cannot_be_read_is_refused(tmp_path: Path) -> None:
    by_type = tmp_path / "by_type"
    deltalake.write_deltalake(by_type, events(("A", 1), ("B", 2)), partition_by=["type"])
    with pytest.raises(NotAvailable, match="partitioned by `type`"):
        cepheid.match(QUERY, str(by_type))
    empty = tmp_path / "empty"
    deltalake.DeltaTable.create(empty, pa.schema([("type", pa.string()), ("ts", pa.int64())]))
    with pytest.raises(InputProblem, match="is empty"):
        cepheid.match(QUERY, str(empty))
    broken = tmp_path / "broken"
    (broken / "_delta_log").mkdir(parents=True)
    with pytest.raises(InputProblem, match="the log of the Delta table"):
        cepheid.match(QUERY, str(broken))


def test_features_that_change_the_files_are_refused(tmp_path: Path) -> None:
    path = Path(written(tmp_path / "events"))
    log = sorted((path / "_delta_log").glob("*.json"))[-1]
    following = log.with_name(f"{int(log.stem) + 1:020}.json")
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["deletionVectors"]}
    following.write_text(json.dumps({"protocol": {**protocol, "writerFeatures": ["deletionVectors"]}}) + "\n")
    with pytest.raises(NotAvailable, match=r"with `deletionVectors`(.|\n)*spark\.read\.format"):
        cepheid.match(QUERY, str(path))


def test_a_table_is_no_stream_of_files(tmp_path: Path) -> None:
    path = written(tmp_path / "events")
    paths = StreamPaths((path,), str(tmp_path / "checkpoint"), str(tmp_path / "out"))
    with pytest.raises(NotAvailable, match="as a stream of files: it rewrites its files"):
        FileStream.open({}, [Input(path)], paths, Columns(), RunOptions(), watermark="0", files_per_batch=None)
