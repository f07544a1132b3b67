"""Queries over the matches of other queries on Spark: divided by a shared key or by time, as one task finds them."""

from __future__ import annotations

import os
import random
from collections import Counter
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from random_compositions import random_events, random_script
from simulation_harness import SCHEMA, multiset, random_rows

import cepheid
from cepheid.engine.prepare import prepare
from cepheid.errors import NameProblem
from cepheid.io.files import open_files
from cepheid.io.inputs import Columns, Input
from cepheid.lang import parse
from cepheid.physical import REFERENCE
from cepheid.spark import tasks
from cepheid.spark.batch import run_files

pytestmark = pytest.mark.spark

COMPOSED = {
    "P: EVENT SEQ(A x, B y) WHERE [id] WITHIN 9\n"
    "L: EVENT SEQ(P p, C q) WHERE p.x.id = q.id AND p.y.v <= q.v WITHIN 20": "shuffled by id",
    "P: EVENT SEQ(A x, B y, !(C z)) WHERE [id] WITHIN 5 RETURN x.id AS kk, x.v AS v\n"
    "Q: PATTERN P p;C q WHERE p.kk = q.id WITHIN 12\n"
    "L: PATTERN SEQ(Q a, A b) WHERE skip_till_next_match(a, b) { [id] } WITHIN 30": "shuffled by id",
    "P: EVENT SEQ(A x, B y) WITHIN 4\nL: EVENT SEQ(P p, C q) WHERE p.x.v < q.v WITHIN 8": "cut into slices",
    "PATTERN A a;(B b|C c)+;A d WHERE [id] AND b.v >= a.v WITHIN 12 "
    "RETURN count(b_c) AS n, sum(b.v) AS s, a.n AS a": "shuffled by id",
    "PATTERN A a;(B b;C c)+;A d WHERE b.id = c.id WITHIN 14": "cut into slices",
    "P: EVENT SEQ(A x, B y) WITHIN 4 LIMIT 5\nL: EVENT SEQ(P p, C q) WITHIN 8": "LIMIT of `P` counts all its matches",
}


@pytest.mark.parametrize("text", COMPOSED)
def test_every_division_of_a_composition_gives_the_oracles_matches(spark: SparkSession, text: str) -> None:
    rng = random.Random(5)
    rows = [dict(row, ts=at) for at, row in enumerate(row for _ in range(3) for row in random_rows(rng))]
    table = pa.Table.from_pylist(rows, SCHEMA)
    frame = spark.createDataFrame(table.to_pandas(), "type string, ts long, id double, v double, name string, n long")
    frame = frame.withColumn("id", frame["id"].cast("long"))
    expected = multiset(cepheid.match(text, table, time_unit="ms", evaluator=REFERENCE))
    assert expected
    assert COMPOSED[text] in cepheid.explain(text, frame, time_unit="ms")
    assert multiset(cepheid.match(text, frame, time_unit="ms", partitions=3).toArrow()) == expected


SCRIPTS = 6
"""Random scripts. `CEPHEID_COMPOSITIONS=200` tries others, from another seed on."""


def divided_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets Spark divide files of any size."""
    for name in ("_FEW_ROWS", "_LEAST_DIVIDED", "_LEAST_PER_TASK"):
        monkeypatch.setattr(tasks, name, 1 if name == "_LEAST_PER_TASK" else 0)


def test_random_compositions_over_frames_and_files_give_the_local_matches(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    divided_files(monkeypatch)
    count = int(os.environ.get("CEPHEID_COMPOSITIONS", SCRIPTS))
    first = 3 if count == SCRIPTS else random.randrange(1 << 30)
    reached: Counter[str] = Counter()
    for seed in range(first, first + count):
        rng = random.Random(seed)
        text, events = random_script(rng), random_events(rng, 60)
        path = tmp_path / f"{seed}.parquet"
        pq.write_table(events, path, row_group_size=20)
        local = cepheid.match(text, events)
        wanted = multiset(local)
        frame = spark.createDataFrame(
            events.to_pandas(types_mapper=pd.ArrowDtype), "type string, ts long, k long, v long"
        )
        found = {
            "frame": cepheid.match(text, frame, partitions=3).toArrow(),
            "path": cepheid.match(text, str(path), session=spark, partitions=3).toArrow(),
            "files": through_files(text, path),
        }
        for name, table in found.items():
            assert multiset(table) == wanted, (seed, name, text)
        reached["matches"] += bool(wanted)
        reached["summaries"] += "count(*)" in text
        note = cepheid.explain(text, frame)
        reached.update(kind for kind in ("shuffled by", "cut into slices", "merges the summaries") if kind in note)
    assert count != SCRIPTS or (min(reached.values()) > 0 and len(reached) == 5), reached


def through_files(text: str, path: Path) -> pa.Table:
    """The matches in a file, as `cepheid run --backend spark` finds them."""
    source = open_files([Input(str(path))], Columns())
    result = run_files(prepare(parse(text), source), source, as_text=False)
    return pa.Table.from_batches(list(result.batches), result.schema)


def test_the_complete_history_of_a_derived_event_decides_on_spark(spark: SparkSession) -> None:
    """Of two derived events that start and end together, the one with the earlier `B` is the successor."""
    text = (
        "P: EVENT SEQ(A a, B b, C c) WITHIN 9\nQ: SELECT X.ts AS x, P.b.ts AS b FROM X; P WHERE (X, P) OCCURS WITHIN 9"
    )
    rows = [{"type": kind, "ts": 10 * n + ts} for n in range(6) for ts, kind in enumerate("XABBC")]
    frame = spark.createDataFrame(pd.DataFrame(rows), "type string, ts long")
    found = cepheid.match(text, frame, partitions=3).toArrow().to_pylist()
    assert sorted((row["x"], row["b"]) for row in found) == [(10 * n, 10 * n + 2) for n in range(6)]


def test_a_type_without_events_has_all_columns_on_spark(spark: SparkSession) -> None:
    query = "P: PATTERN B b;C c WITHIN 3\nR: SELECT * FROM P p | C c"
    frame = spark.createDataFrame([("A", 1, 1), ("C", 2, 2)], "type string, ts long, id long")
    found = cepheid.match(query, frame, time_unit="s").toArrow()
    local = cepheid.match(query, pa.Table.from_pylist(frame.toArrow().to_pylist()), time_unit="s")
    assert [field.name for field in found.schema.field("p").type] == [f.name for f in local.schema.field("p").type]
    with pytest.raises(NameProblem, match="unknown attribute `id` of `p`"):
        cepheid.match(f"{query} WHERE p.id = 2", frame, time_unit="s")
