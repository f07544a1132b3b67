"""Queries over tables in steps: the same matches as in one scan, from fewer rows."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import deltalake
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import random_eql
from random_cases import case

import cepheid
from cepheid.acquire.intervals import IntervalSet
from cepheid.acquire.nearby import Windows, around
from cepheid.engine.prepare import Prepared, prepare
from cepheid.errors import CepheidError, InputProblem, NotAvailable
from cepheid.io import frames
from cepheid.io.inputs import Columns
from cepheid.io.shares import Footers, Part
from cepheid.io.source import TableSource
from cepheid.lang import parse
from cepheid.spark.acquiring import candidates, why_not
from cepheid.spark.description import notes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

QUERIES = {
    "sase": "EVENT SEQ(Rare r, !(Often n), Often o) WHERE [id] AND o.v > 2 WITHIN 40",
    "sase-plus": "PATTERN SEQ(Rare r, Often+ o[]) WHERE skip_till_next_match(r, o[]) { [id] } WITHIN 40",
    "zstream": "PATTERN Often o ; Rare r WHERE o.id = r.id WITHIN 40",
    "eql": "SELECT * FROM (Rare r; Often o) WHERE FILTER(r.id = o.id), (r, o) OCCURS WITHIN 40",
    "ced": "complex Q on Rare as r, Often as o, Never as n event and(r, o, !n; 20) where r.id = o.id",
}

RETURNED = f"{QUERIES['zstream']} RETURN o.ts, r.ts, o.text"


def table() -> pa.Table:
    rng = random.Random(5)
    rare = set(rng.sample(range(20_000), 30))
    kinds = ["Rare" if i in rare else "Often" for i in range(20_000)]
    kinds[7] = "Never"
    return pa.table(
        {
            "type": kinds,
            "ts": [3 * i for i in range(20_000)],
            "id": [rng.randint(1, 3) for _ in kinds],
            "v": [rng.randint(0, 5) for _ in kinds],
            "text": [f"row {i}" for i in range(20_000)],
        }
    )


def rows(found: pa.Table) -> list[str]:
    return sorted(map(repr, found.to_pylist()))


@pytest.mark.parametrize("language", QUERIES)
def test_steps_find_the_matches_of_one_scan(language: str, spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "events.parquet")
    pq.write_table(table(), path, row_group_size=1_000)
    query = QUERIES[language]
    expected = rows(cepheid.match(query, table()))
    assert len(expected) > 10
    frame = spark.read.parquet(path)
    for events in (path, frame):
        found = cepheid.match(query, events, session=spark, options={"acquire": "steps"})
        assert rows(found.toArrow()) == expected


def test_few_rows_are_moved(spark: SparkSession, tmp_path: Path) -> None:
    from cepheid.api import _spark_batch
    from cepheid.engine.prepare import RunOptions

    path = str(tmp_path / "events.parquet")
    pq.write_table(table(), path, row_group_size=1_000)
    moved = {}
    for way in ("steps", "scan"):
        options = RunOptions(options={"acquire": way})
        batch = _spark_batch(QUERIES["zstream"], parse(QUERIES["zstream"]), path, Columns(), options, spark).acquired()
        files = batch.source.files
        assert files is not None
        counts = batch.counted()
        assert counts is not None
        moved[way] = counts
        assert any("in steps: the 30 events of `r`" in note for note in notes(batch)) == (way == "steps")
    assert moved["scan"].moved == 19_999 and moved["scan"].decoded == 20
    assert moved["steps"].moved < moved["scan"].moved / 40
    assert moved["steps"].decoded <= 20


@pytest.mark.parametrize(
    "query",
    [
        "EVENT SEQ(R r, M m, O o) WHERE [id] WITHIN 40",
        "SELECT * FROM ((R r; M m); O o) WHERE FILTER(r.id = m.id), FILTER(m.id = o.id), (r, o) OCCURS WITHIN 40",
    ],
    ids=["sase", "eql"],
)
def test_a_step_between_narrows_the_rest(
    query: str, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`m` is rare near `r`: the rows around few partial matches are left."""
    from cepheid.api import _spark_batch
    from cepheid.engine.prepare import RunOptions
    from cepheid.spark import file_steps

    monkeypatch.setattr(file_steps, "JOB", 0.0)
    kinds = ["O"] * 30_000
    for at in range(100, 30_000, 1_500):
        kinds[at] = "R"
    for at in range(105, 30_000, 6_000):
        kinds[at] = "M"
    data = pa.table(
        {"type": kinds, "ts": list(range(30_000)), "id": [i % 5 for i in range(30_000)], "v": list(range(30_000))}
    )
    path = str(tmp_path / "events.parquet")
    pq.write_table(data, path, row_group_size=500)
    options = RunOptions(options={"acquire": "steps"})
    batch = _spark_batch(query, parse(query), path, Columns(), options, spark).acquired()
    assert batch.steps is not None and [step.var for step in batch.steps.taken][:2] == ["m", "r"]
    assert [step.left for step in batch.steps.taken][:2] == [5, 5]
    counts = batch.counted()
    assert counts is not None and counts.decoded <= 10 and counts.moved < 5 * 20
    assert rows(batch.matches().toArrow()) == rows(cepheid.match(query, data))


def test_few_rows_show_that_no_variable_is_rare(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A first sample decides where it is clear. Otherwise a larger one does."""
    from cepheid.acquire import scan_cost
    from cepheid.api import _spark_batch
    from cepheid.engine.prepare import RunOptions
    from cepheid.spark.reading import ReadTask

    asked: list[int] = []
    tested = ReadTask.tested

    def observed(self: ReadTask, part: Part, footers: Footers, rows: int) -> pa.RecordBatch:
        asked.append(rows)
        return tested(self, part, footers, rows)

    monkeypatch.setattr(ReadTask, "tested", observed)
    monkeypatch.setattr(scan_cost, "JOB", 0.0)
    for often, clear in ((2, True), (10_000, False)):
        kinds = ["Rare" if at % often == 0 else "Often" for at in range(2_100_000)]
        data = pa.table({"type": pa.array(kinds).dictionary_encode(), "ts": range(2_100_000), "id": [1] * 2_100_000})
        pq.write_table(data, tmp_path / "events.parquet", row_group_size=300_000)
        query = "EVENT SEQ(Rare r, Often o) WHERE [id] WITHIN 200 LIMIT 3"
        path = str(tmp_path / "events.parquet")
        batch = _spark_batch(query, parse(query), path, Columns(), RunOptions(), spark).acquired()
        assert (len(set(asked)) == 1, batch.steps is None) == (clear, clear)
        asked.clear()


@pytest.mark.parametrize("partitions", [[], ["id"]], ids=["plain", "partitioned"])
def test_steps_over_a_delta_table(partitions: list[str], spark: SparkSession, tmp_path: Path) -> None:
    """The rows of the newest version. Workers read the files of a table without partitions, Spark those of others."""
    path = str(tmp_path / "events")
    deltalake.write_deltalake(path, table().slice(0, 12_000).drop_columns(["text"]), partition_by=partitions or None)
    deltalake.write_deltalake(path, table().slice(12_000), mode="append", schema_mode="merge")
    deltalake.DeltaTable(path).delete("v = 4")
    texts = pa.chunked_array([pa.nulls(12_000, pa.string()), *table()["text"].slice(12_000).chunks])
    data = table().set_column(4, "text", texts)
    expected = rows(cepheid.match(RETURNED, data.filter(pc.not_equal(data["v"], 4))))
    assert 10 < len(expected) < len(cepheid.match(RETURNED, data))
    for way in ("steps", "scan"):
        found = cepheid.match(RETURNED, path, session=spark, options={"acquire": way})
        assert rows(found.toArrow()) == expected, way
    if not partitions:
        noted = cepheid.explain(RETURNED, path, session=spark, options={"acquire": "steps"}, level="analyze")
        assert re.search(r"actual: \d+ row groups", noted)


def test_analyze_counts_what_is_read(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "events.parquet")
    pq.write_table(table(), path, row_group_size=1_000)
    query = "PATTERN Often o ; Rare r WHERE o.id = r.id WITHIN 40"
    text = cepheid.explain(query, path, level="analyze", session=spark, options={"acquire": "steps"})
    assert "in steps: the 30 events of `r` first (about 30 expected), from 16 row groups, 16 of them" in text
    assert "one scan: 20 row groups, 20,000 rows decoded, 20,000 rows moved" in text
    assert re.search(r"expected: 16 row groups, 16,000 rows decoded, \d+ rows moved", text)
    assert re.search(r"actual: 16 row groups, 16,000 rows decoded, \d+ rows moved", text)


def test_cost_decides_over_files(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from cepheid.acquire import scan_cost
    from cepheid.api import _spark_batch
    from cepheid.engine.prepare import RunOptions
    from cepheid.spark import tasks

    monkeypatch.setattr(scan_cost, "JOB", 1e5)
    monkeypatch.setattr(tasks, "_FEW_ROWS", 0)
    path = str(tmp_path / "events.parquet")
    pq.write_table(table(), path, row_group_size=1_000)
    for window, expected in ((40, True), (60_000, False)):
        query = f"PATTERN Often o ; Rare r WHERE o.id = r.id WITHIN {window}"
        batch = _spark_batch(query, parse(query), path, Columns(), RunOptions(), spark).acquired()
        assert (batch.steps is not None) == expected
        assert any("one scan, not steps" in note for note in notes(batch)) != expected


def test_known_rates_decide(spark: SparkSession) -> None:
    from cepheid.api import _spark_batch
    from cepheid.engine.prepare import RunOptions
    from cepheid.optimize.stats import Stats

    frame = spark.createDataFrame([("Rare", 1, 1), ("Often", 2, 1)], "type string, ts long, id long")
    query = parse(QUERIES["zstream"])
    for rate, expected in ((0.0001, True), (0.1, False)):
        options = RunOptions(stats=Stats(rates={"r": rate, "o": 1.0}))
        batch = _spark_batch(QUERIES["zstream"], query, frame, Columns(), options)
        assert (batch.acquired().steps is not None) == expected


def test_what_cannot_run_in_steps_says_why(spark: SparkSession) -> None:
    frame = spark.createDataFrame([("Rare", 1, 1)], "type string, ts long, id long")
    query = "PATTERN SEQ(Rare r, Often o) WHERE skip_till_next_match(r, o) { [id] } RETURN r.ts"
    with pytest.raises(NotAvailable, match="in steps: it has no window of time"):
        cepheid.match(query, frame, options={"acquire": "steps"})


@pytest.mark.filterwarnings("ignore::cepheid.errors.CepheidWarning")
@pytest.mark.parametrize("part", range(3))
def test_rows_far_from_an_event_of_every_match_do_not_matter(part: int) -> None:
    """Random queries in every language, without Spark."""
    compared = 0
    for seed in range(25 * part, 25 * part + 25):
        drawn = case(random.Random(seed))
        try:
            expected = cepheid.match(drawn.text, drawn.table, start_column=drawn.start_column)
            opened = frames.opened(drawn.table, Columns("type", "ts", drawn.start_column))
            assert opened is not None and isinstance(opened.source, TableSource)
            prepared = prepare(parse(drawn.text), opened.source)
        except CepheidError:
            continue
        for var, near in _near_candidates(prepared, opened.source):
            try:
                found = rows(cepheid.match(drawn.text, drawn.table.take(near), start_column=drawn.start_column))
            except InputProblem:  # none of these rows has a type of the query
                found = []
            assert found == rows(expected), (seed, drawn, var)
            compared += 1
    assert compared > 15


def _near_candidates(prepared: Prepared, source: TableSource) -> Iterator[tuple[str, np.ndarray]]:
    """For each event that every match binds, and for all of them, the rows within a window of such events."""
    if why_not(prepared, SimpleNamespace(local=None)) is not None:  # type: ignore[arg-type]
        return
    length = math.ceil(prepared.plan.window or 0)
    starts = source.times if source.starts is None else source.starts
    kinds = source.types.cast(pa.string()).to_pylist()
    single = {}
    for var in candidates(prepared):
        own = np.array([kind in prepared.query.roles[var].event_class.types for kind in kinds], bool)
        single[var] = Windows(starts[own], source.times[own])
    for names in [*([var] for var in single), *([list(single)] if len(single) > 1 else [])]:
        within = IntervalSet.of_arrays(*around([single[var] for var in names], length)[:2])
        kept = np.flatnonzero(within.holds(source.times))
        yield ", ".join(names), np.sort(kept if source.order is None else source.order[kept])


def test_rows_far_from_an_event_do_not_matter_to_the_unique_successor() -> None:
    """Random queries of EQL whose matches OCCUR WITHIN some time, where one type is rare; without Spark."""
    compared = found_any = 0
    for seed in range(60):
        rng = random.Random(seed)
        drawn = random_eql.Drawn(rng, rng.choice((1, 2, 2, 3)), rng.choice((random_eql.FORMS, random_eql.CHAINS)))
        window = f"({drawn.positive[0]}, {drawn.positive[-1]}) OCCURS WITHIN {rng.choice((2, 3, 5, 8))}"
        text = random_eql._with_conditions(rng, drawn)
        text += (", " if "WHERE" in text else "\nWHERE ") + (window if rng.randrange(2) else f"FILTER({window})")
        events = random_eql.rows(rng, 40)
        for row in events:
            row["type"] = "B" if row["type"] == "C" and rng.randrange(3) else row["type"]
        data = pa.table({name: [row.get(name) for row in events] for name in ("type", "ts", "k", "v", "w", "s")})
        try:
            expected = cepheid.match(text, data)
            opened = frames.opened(data, Columns())
            assert opened is not None and isinstance(opened.source, TableSource)
            prepared = prepare(parse(text), opened.source)
        except CepheidError:
            continue
        for var, near in _near_candidates(prepared, opened.source):
            assert rows(cepheid.match(text, data.take(near))) == rows(expected), (seed, text, var)
            compared += len(near) < len(events)
            found_any += expected.num_rows > 0
    assert compared > 15 and found_any > 15
