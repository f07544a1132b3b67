"""A bad value in an attribute that no query reads rejects no row, in every format, in batch and in streams."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import cepheid
from cepheid.engine.shapes import OutputOptions
from cepheid.events import EMPTY_SCHEMA
from cepheid.io import files
from cepheid.io.inputs import Columns, Input
from cepheid.io.merged import open_inputs
from cepheid.io.stream_files import StreamFiles

READS_K = "EVENT SEQ(A x, B y) WHERE x.k = y.k WITHIN 5 RETURN x.k AS k"
READS_V = "EVENT SEQ(A x, B y) WHERE x.v < y.v WITHIN 5"
WHOLE = "EVENT SEQ(A x, B y) WHERE x.k = y.k WITHIN 5"
ROWS: list[dict[str, Any]] = [{"type": "AB"[i % 2], "ts": i, "k": i // 2, "v": i} for i in range(40)]


def written(directory: Path, format: str, bad: Any) -> Path:
    rows = [{**row, "v": bad if i == 6 else row["v"]} for i, row in enumerate(ROWS)]
    path = directory / f"events.{format}"
    if format == "jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        cells = [",".join(str(value) for value in row.values()) for row in rows]
        path.write_text("\n".join(["type,ts,k,v", *cells]) + "\n")
    return path


def opened(path: Path, query: str) -> tuple[int, int]:
    columns = replace(Columns(), read=OutputOptions().names_read([cepheid.parse(query)]))
    source = open_inputs([Input(str(path))], columns)
    assert source.count is not None
    return source.count, sum(1 for _ in source.rejects())


BAD = [("csv", "x"), ("csv", "nan"), ("jsonl", "x"), ("jsonl", [1]), ("jsonl", {"a": 1}), ("jsonl", "\ud800")]


@pytest.mark.parametrize("is_large", [False, True])
@pytest.mark.parametrize(("format", "bad"), BAD)
def test_batch(tmp_path: Path, format: str, bad: Any, is_large: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if is_large:
        monkeypatch.setattr(files, "LEAST_TEXT", 0)
    path = written(tmp_path, format, bad)
    assert opened(path, READS_K) == (40, 0)
    assert opened(path, READS_V) == opened(path, WHOLE) == (39, 1)
    assert cepheid.match(READS_K, str(path)).num_rows == 20


@pytest.mark.parametrize(("format", "bad"), BAD)
def test_stream(tmp_path: Path, format: str, bad: Any) -> None:
    for query, rejected in ((READS_K, 0), (READS_V, 1)):
        parsed = cepheid.parse(query)
        columns = replace(Columns(), read=OutputOptions().names_read([parsed]))
        path = written(tmp_path, format, 0)
        stream = StreamFiles.first(str(tmp_path), columns, None, EMPTY_SCHEMA, False, queries=[parsed])
        assert stream is not None
        read = stream.read([str(written(tmp_path, format, bad))])
        assert (read.events.num_rows, read.rejects.num_rows) == (40 - rejected, rejected), path


def test_names_that_are_read() -> None:
    read = OutputOptions().names_read([cepheid.parse("EVENT A x WHERE x.p.q = 1 RETURN x.k, upper(x.s) AS s")])
    columns = Columns(read=read)
    assert read == frozenset({"p.q", "k", "s"})
    assert all(map(columns.reads, ("p", "p.q", "p.q.r", "k", "s", "type", "ts")))
    assert not any(map(columns.reads, ("p.x", "pq", "v")))
    summed = "PATTERN SEQ(A+ a[], B b) WHERE skip_till_next_match(a[], b) { [k] } WITHIN 9 RETURN sum(a.v * a.w) AS s"
    assert OutputOptions().names_read([cepheid.parse(summed)]) == frozenset({"k", "v", "w"})
    assert OutputOptions(match_id=True).names_read([cepheid.parse(READS_K)]) is None
    assert OutputOptions().names_read([cepheid.parse(WHOLE)]) is None
