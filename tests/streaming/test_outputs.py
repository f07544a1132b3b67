"""Identifiers, times of detection and shapes of matches: in streams as in batch, whatever the cuts of the stream."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import cepheid
from cepheid.app.cli import app
from cepheid.engine.shapes import OutputOptions
from cepheid.errors import InputProblem, NotAvailable
from cepheid.io.inputs import Columns
from cepheid.io.rows import plain
from cepheid.io.source import TableSource
from cepheid.lang import parse
from cepheid.streaming.plan import StreamPlan
from cepheid.streaming.planning import StreamSource, plan_stream
from cepheid.streaming.reader import RowReader
from cepheid.streaming.simulation import Simulation

PAIR = "EVENT SEQ(A x, B y) WHERE x.k = y.k WITHIN 10"
RUNS = "PATTERN SEQ(A+ x[], B y) WHERE skip_till_any_match(x[], y) { [k] } WITHIN 4"
LOST = "EVENT SEQ(A x, !(B y)) WHERE [k] WITHIN 5"
QUERIES = (PAIR, RUNS, LOST, "PATTERN A;B WHERE A.k = B.k WITHIN 10 RETURN A.v, B.v")


def events(rng: random.Random, count: int = 40) -> pa.Table:
    """Few distinct events, so that many are equal. Those of one time are in the order of a stream."""
    times = sorted(rng.choices(range(20), k=count))
    table = pa.table(
        {
            "type": rng.choices(["A", "B"], k=count),
            "ts": times,
            "k": rng.choices([1, 2, None], k=count),
            "v": rng.choices([0.5, 2.0], k=count),
        }
    )
    return table.sort_by([(name, "ascending") for name in ("ts", "type", "k", "v")])


def plan(query: str, table: pa.Table, output: OutputOptions) -> StreamPlan:
    source = TableSource.of(table, Columns())
    stream = StreamSource(RowReader(table.schema, Columns()), source.attributes)
    return plan_stream({"query": parse(query)}, stream, 0, buckets=3, output=output)


def streamed(query: str, table: pa.Table, rng: random.Random, output: OutputOptions) -> list[pa.RecordBatch]:
    """The state is saved and restored after every batch, and the batches end where a time does."""
    times = table.column("ts").to_pylist()
    cuts = [i for i in range(1, len(times)) if times[i] != times[i - 1] and rng.random() < 0.3]
    edges = [0, *cuts, len(times)]
    batches = [table.slice(a, b - a).combine_chunks().to_batches()[0] for a, b in pairwise(edges)]
    return Simulation(plan(query, table, output)).run(batches).matches["query"]


def lines(batches: Iterator[pa.RecordBatch] | list[pa.RecordBatch]) -> Counter[str]:
    return Counter(json.dumps(plain(row), sort_keys=True) for batch in batches for row in batch.to_pylist())


@pytest.mark.parametrize("query", QUERIES)
@pytest.mark.parametrize("id_column", [None, "id"])
def test_streams_have_the_identifiers_of_the_batch(query: str, id_column: str | None) -> None:
    rng = random.Random(f"{query} {id_column}")
    matches = 0
    for _ in range(12):
        table = events(rng)
        table = table.append_column("id", pa.array(range(len(table)))) if id_column else table
        asked = OutputOptions(detected_at=True, match_id=True, id_column=id_column)
        batch = cepheid.match(query, table, detected_at=True, match_id=True, id_column=id_column)
        assert lines(streamed(query, table, rng, asked)) == lines(batch.to_batches())
        assert len(set(batch["match_id"].to_pylist())) == len(batch)
        matches += len(batch)
    assert matches > 30


def test_identifiers_do_not_depend_on_the_form_of_the_input(tmp_path: Path) -> None:
    table = events(random.Random(3))
    pq.write_table(table, tmp_path / "e.parquet", row_group_size=5)
    rows = [{name: value for name, value in row.items() if value is not None} for row in table.to_pylist()]
    (tmp_path / "e.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    pages = table.to_pandas(types_mapper=None)
    pages["k"] = pages["k"].astype("Int64")
    pages.to_csv(tmp_path / "e.csv", index=False)
    shuffled = pa.Table.from_pylist(random.Random(1).sample(table.to_pylist(), len(table)), table.schema)
    expected = Counter(cepheid.match(PAIR, table, match_id=True)["match_id"].to_pylist())
    assert len(expected) > 20
    for other in (table.to_pandas(), shuffled, *(tmp_path / f"e.{suffix}" for suffix in ("parquet", "jsonl", "csv"))):
        found = cepheid.match(PAIR, other, match_id=True)["match_id"]
        assert Counter(found if hasattr(found, "to_frame") else found.to_pylist()) == expected
    for suffix in ("parquet", "jsonl", "csv"):
        for backend in ("local", "reference"):
            arguments = ["run", "--query", PAIR, "--input", str(tmp_path / f"e.{suffix}"), "--backend", backend]
            output = CliRunner().invoke(app, [*arguments, "--match-id"]).stdout
            assert Counter(json.loads(line)["match_id"] for line in output.splitlines()) == expected


@pytest.mark.parametrize("shape", ["flat", "long"])
@pytest.mark.parametrize("query", QUERIES[:3])
def test_streams_have_the_shapes_of_the_batch(query: str, shape: str) -> None:
    rng = random.Random(7)
    table = events(rng)
    asked = OutputOptions(shape, detected_at=True, match_id=True)
    planned = plan(query, table, asked)
    found = pa.Table.from_batches(streamed(query, table, rng, asked), planned.tables[0].schema)
    batch = cepheid.match(query, table, output=shape, detected_at=True, match_id=True)
    own = [name for name in batch.column_names if name not in ("match_number", "match_row")]
    assert found.column_names == own
    assert lines(found.to_batches()) == lines(batch.select(own).to_batches())


COMPOSITIONS = (
    f"P: {PAIR}\nLast: EVENT SEQ(P p, A z) WITHIN 20",
    f"P: {PAIR} RETURN x.k AS k, y.v AS v\nLast: EVENT SEQ(ANY(P, A) p, B z) WHERE p.k = z.k WITHIN 12",
    f"P: {PAIR} RETURN x.k AS k\nQ: EVENT SEQ(A x, B y) WHERE x.k = y.k WITHIN 10 RETURN x.k AS k\n"
    "Last: EVENT ANY(P, Q) p WHERE p.k = 1",
    f"P: {LOST} RETURN x.k AS k\nM: EVENT SEQ(P p, B y) WITHIN 8 RETURN p.k AS k LIMIT 7\n"
    "Last: PATTERN SEQ(M+ m[], A a) WHERE skip_till_next_match(m[], a) { [k] } WITHIN 30",
    "source A schema int k, double v\nsource B schema int k\n"
    "primitive P on A as a, node schema event_id as hash_f(P, node.time, a.k), k as a.k\n"
    "complex Q on P as p, B as b schema k as p.k event seq(p, b; 6) where p.k = b.k\n"
    "complex R on Q as q, P as p schema k as q.k event and(q, p; 5)",
    "P: SELECT A.k AS k FROM ( A ; B ) WHERE FILTER(A.k = B.k), (A, B) OCCURS WITHIN 6\n"
    "Last: SELECT * FROM ( P p ; A z ) WHERE FILTER(p.k = z.k), (p, z) OCCURS WITHIN 9",
)


@pytest.mark.parametrize("query", COMPOSITIONS)
@pytest.mark.parametrize("id_column", [None, "id"])
def test_identifiers_of_composed_queries(query: str, id_column: str | None) -> None:
    rng = random.Random(f"{query} {id_column}")
    matches = 0
    for _ in range(5):
        table = events(rng, 26)
        ids = [None if rng.random() < 0.3 else number for number in range(len(table))]
        table = table.append_column("id", pa.array(ids, pa.int64())) if id_column else table
        asked = OutputOptions(detected_at=False, match_id=True, id_column=id_column)
        batch = cepheid.match(query, table, match_id=True, id_column=id_column)
        expected = lines(batch.to_batches())
        oracle = cepheid.match(query, table, match_id=True, id_column=id_column, evaluator="reference")
        assert Counter(oracle["match_id"].to_pylist()) == Counter(batch["match_id"].to_pylist())
        parts = iter(table.to_batches(max_chunksize=3))
        again = cepheid.match(query, parts, match_id=True, id_column=id_column)
        assert lines(again) == expected
        assert lines(streamed(query, table, rng, asked)) == expected
        assert len(set(batch["match_id"].to_pylist())) == len(batch)
        matches += len(batch)
    assert matches > 5


def test_the_long_shape_of_a_stream_has_identifiers() -> None:
    table = events(random.Random(2))
    planned = plan(PAIR, table, OutputOptions("long"))
    assert "match_id" in planned.queries[0].output_schema.names
    assert planned.description()["output columns"] == {"query": ["long", "match_id by all"]}


def test_refusals() -> None:
    table = events(random.Random(1))
    with pytest.raises(NotAvailable, match="the shape `long` of a summary") as raised:
        plan(f"{PAIR} RETURN count(*)", table, OutputOptions("long"))
    assert "match_id" not in str(raised.value)
    with pytest.raises(InputProblem, match="no column `kk`"):
        cepheid.match(PAIR, table, id_column="kk")
    with pytest.raises(NotAvailable, match="of a summary"):
        cepheid.match(f"{PAIR} RETURN count(*)", table, match_id=True)
    with pytest.raises(InputProblem, match="unknown output shape"):
        plan(PAIR, table, OutputOptions("wide"))
    refused: dict[str, Any] = {"output": "positions", "match_id": True}
    with pytest.raises(NotAvailable, match="`match_id` of positions"):
        cepheid.match(PAIR, table, **refused)


def test_tables_whose_columns_differ_are_read_by_their_queries(tmp_path: Path) -> None:
    one, several = {"v": 1}, [{"v": 1}, {"v": 2}]
    for table, rows in (
        ("table-1", {"query": "pairs", "b": one}),
        ("table-2", {"query": "runs", "b": several}),
        ("table-3", {"query": "nulls", "b": None}),
    ):
        (tmp_path / table).mkdir()
        (tmp_path / table / "batch-000000000000.jsonl").write_text(json.dumps(rows) + "\n")
    assert cepheid.read_output(str(tmp_path), query="runs").to_pylist() == [{"b": several}]
    with pytest.raises(InputProblem, match="no match of a query `other`"):
        cepheid.read_output(str(tmp_path), query="other")
    with pytest.raises(InputProblem, match="types differ: b") as raised:
        cepheid.read_output(str(tmp_path))
    assert "`query=`" in str(raised.value.hint)
