"""Spark in batch: every way of dividing the work gives the oracle's matches, and Spark's own plan shows what it did."""

from __future__ import annotations

import datetime
import json
import random
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from golden_cases import Case, all_cases
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from typer.testing import CliRunner

import cepheid
from cepheid.app.cli import app
from cepheid.app.demo import EXAMPLES
from cepheid.binding import bind
from cepheid.engine.prepare import prepare
from cepheid.errors import CepheidError, InputProblem, NameProblem, NotAvailable
from cepheid.events import NO_CLOCK, Event, complete, in_order, infer_schema, primitive
from cepheid.io.formats.columnar import may_matter
from cepheid.io.inputs import Columns
from cepheid.kernels.registry import EVALUATORS
from cepheid.lang import parse
from cepheid.optimize.distribution import Keyed, Sliced, Undivided
from cepheid.optimize.lower import lower
from cepheid.semantics import evaluate
from cepheid.spark.batch import SparkBatch
from cepheid.spark.description import notes
from cepheid.spark.file_schema import spark_schema
from cepheid.spark.source import SparkInput, SparkSource
from cepheid.spark.worker import SLICE
from cepheid.types import FLOAT, INTEGER

pytestmark = pytest.mark.spark

Row = dict[str, Any]


# --- streams and answers ----------------------------------------------------------------------------------------------


def stream(seed: int, count: int = 150, ids: Sequence[Any] = (1, 2, 3, None), types: str = "ABC") -> list[Row]:
    """Events with ties in time, null keys, null and fractional values, in any order of rows."""
    chance = random.Random(seed)
    rows, now = [], 0
    for _ in range(count):
        now += chance.choice([0, 0, 1, 1, 3])
        rows.append(
            {
                "type": chance.choice(types),
                "ts": now,
                "id": chance.choice(ids),
                "v": chance.choice([0.5, 1.0, 2.0, 3.0, None]),
                "name": chance.choice(["p", "q", None]),
            }
        )
    chance.shuffle(rows)
    return [{**row, "n": n} for n, row in enumerate(rows)]


SCHEMA = pa.schema(
    [("type", pa.string()), ("ts", pa.int64()), ("id", pa.int64()), ("v", pa.float64()), ("name", pa.string())]
).append(pa.field("n", pa.int64()))


def frame(spark: SparkSession, rows: Sequence[Row], schema: pa.Schema = SCHEMA, parts: int = 3) -> DataFrame:
    """The rows in several partitions, in order."""
    table = pa.Table.from_pylist(list(rows), schema)
    size = max(-(-len(rows) // parts), 1)
    frames = [spark.createDataFrame(table.slice(start, size)) for start in range(0, max(len(rows), 1), size)]
    return reduce(DataFrame.unionAll, frames)


def oracle(query: str, rows: Sequence[Row], params: Mapping[str, Any] | None = None) -> list[Any]:
    """The matches as the numbers of their events."""
    events = in_order(primitive(row["type"], row["ts"], i, row) for i, row in enumerate(rows))
    schema = infer_schema(events)
    bound = bind(parse(query), schema, params or {})

    def number(binding: Event | tuple[Event, ...] | None) -> Any:
        if isinstance(binding, tuple):
            return [event.attributes["n"] for event in binding]
        return None if binding is None else binding.attributes["n"]

    matches = evaluate(bound, complete(events, schema))
    return sorted(({var: number(b) for var, b in m.bindings.items()} for m in matches), key=repr)


def numbers(found: DataFrame) -> list[Any]:
    def number(value: Any) -> Any:
        if isinstance(value, list):
            return [item["n"] for item in value]
        return None if value is None else value["n"]

    rows = found.drop("match_start", "match_end").toArrow().to_pylist()
    return sorted(({var: number(value) for var, value in row.items()} for row in rows), key=repr)


def batch(query: str, events: SparkInput, partitions: int | None = None) -> SparkBatch:
    parsed = parse(query)
    source = SparkSource.open(events, Columns()).for_query(parsed)
    return SparkBatch(prepare(parsed, source), source, partitions)


KEYED = [
    "EVENT SEQ(A x, B y, C z) WHERE [id] WITHIN 20",
    "EVENT SEQ(A x, !(B y), C z) WHERE [id] AND y.v > x.v WITHIN 15",
    "EVENT SEQ(A x, B y, !(C z)) WHERE x.id = y.id AND y.id = z.id WITHIN 12",
    "EVENT SEQ(A x, B y) WHERE x.name = y.name AND x.v > 1 WITHIN 3",
    "EVENT SEQ(A x, B y, C z) WHERE [id, name]",
    "EVENT SEQ(A x, B y) WHERE [id] WITHIN 6 events",
    "PATTERN SEQ(A a, B+ b[], C c) WHERE skip_till_next_match(a, b[], c) {[id] AND b[i].v >= b[i-1].v} WITHIN 12",
    "PATTERN SEQ(A a, B b) WHERE partition_contiguity(a, b) {[id]} WITHIN 9",
    "PATTERN SEQ(A a, B b) WHERE skip_till_next_match(a, b) {[id]} WITHIN 20 OUTPUT NON-OVERLAPPING",
    "PATTERN A;B;C WHERE A.id = B.id AND B.id = C.id WITHIN 9",
    "SELECT * FROM A; B; C WHERE FILTER(A.id = B.id), FILTER(B.id = C.id)",
    "SELECT * FROM A+ WHERE FILTER(A.id = PREV(A.id)), A.v > PREV(A.v)",
    r"SELECT * FROM (A @ 3) \ B WHERE A.id = B.id",
]
SLICED = [
    "EVENT SEQ(A x, B y) WHERE x.v < y.v WITHIN 4",
    "EVENT SEQ(!(A x), B y, C z) WHERE x.v > z.v WITHIN 5",
    "EVENT SEQ(A x, B y, !(C z)) WHERE z.v > x.v WITHIN 5",
    "EVENT SEQ(A x, !(B y), C z) WHERE x.id = z.id WITHIN 6",
    "PATTERN SEQ(A a, B b) WHERE strict_contiguity(a, b) {[id]} WITHIN 9",
    "PATTERN SEQ(A a, B+ b[]) WHERE skip_till_next_match(a, b[]) {b[i].v > b[i-1].v} WITHIN 6",
    "PATTERN A;B;C WITHIN 3",
    "PATTERN A;!B;C WITHIN 5",
    "PATTERN A;(B&C) WHERE A.id = 1 AND B.id = 2 AND C.id = 3 WITHIN 5",
    "PATTERN A+;B WHERE A.id = 1 AND B.id = 2 WITHIN 4",
    "SELECT * FROM A; B; C WHERE A.id = B.id, (A, C) OCCURS WITHIN 6",
    "SELECT * FROM A; (B+; C) WHERE (A, C) OCCURS WITHIN 5",
]
UNDIVIDED = [
    "EVENT SEQ(A x, B y) WHERE x.v < y.v AND x.v > 1",
    "EVENT SEQ(A x, B y) WITHIN 3 events",
    "SELECT * FROM A; B WHERE A.id = B.id",
    "PATTERN SEQ(A a, B b) WHERE skip_till_next_match(a, b) {a.v > 0} WITHIN 4 OUTPUT NON-OVERLAPPING",
]


@pytest.mark.parametrize(("number", "query"), list(enumerate([*KEYED, *SLICED, *UNDIVIDED])))
def test_every_distribution_gives_the_oracles_matches(spark: SparkSession, number: int, query: str) -> None:
    rows = stream(number)
    job = batch(query, frame(spark, rows), 4)
    wanted = Keyed if query in KEYED else Sliced if query in SLICED else Undivided
    assert isinstance(job.distribution, wanted) or job.prepared.plan.evaluator == "reference"
    expected = oracle(query, rows)
    assert expected
    assert numbers(job.matches()) == expected


def test_matches_across_the_edges_of_slices(spark: SparkSession) -> None:
    """One match for every pair of neighbours, so that one lies across every edge, and none is found twice."""
    rows = [{"type": "AB"[n % 2], "ts": n, "id": 0, "v": 1.0, "name": "p", "n": n} for n in range(60)]
    job = batch("EVENT SEQ(A x, B y) WITHIN 2", frame(spark, rows), 7)
    assert isinstance(job.distribution, Sliced)
    found = job.matches()
    assert numbers(found) == sorted(({"x": n, "y": n + 1} for n in range(0, 60, 2)), key=repr)
    assert SLICE in plan_of(found)


@pytest.mark.parametrize(
    "ids", [(1,), (1, 1, 1, 1, 1, 1, 2, 3), tuple(range(5000)), (None,)], ids=["one", "skewed", "many", "null"]
)
def test_skewed_many_and_null_keys(spark: SparkSession, ids: tuple[Any, ...]) -> None:
    query = "EVENT SEQ(A x, B y) WHERE [id] WITHIN 30"
    rows = stream(5, 400, ids[:6] if len(ids) > 100 else ids) + [
        {"type": t, "ts": 10_000 + i, "id": i, "v": 1.0, "name": "p", "n": 1000 + 2 * i + (t == "B")}
        for i in (ids if len(ids) > 100 else ())
        for t in "AB"
        if t == "A" or i % 2
    ]
    found = numbers(batch(query, frame(spark, rows), 5).matches())
    assert found == oracle(query, rows[:400])


def returned(found: Any) -> Counter[tuple[Any, ...]]:
    table = found if isinstance(found, pa.Table) else found.toArrow()
    return Counter(zip(*(column.to_pylist() for column in table.columns), strict=True))


@pytest.mark.parametrize("query", [KEYED[0], KEYED[6]])
def test_a_key_with_half_of_all_events(spark: SparkSession, tmp_path: Path, query: str) -> None:
    """One task has most of the work, some have none, and the answer is the same, from files too."""
    rng = np.random.default_rng(1)
    count = 20_000
    keys = np.where(rng.random(count) < 0.5, 7, rng.integers(0, 5, count) * 1000)
    table = pa.table(
        {
            "type": pa.array(list("ABCD")).take(pa.array(rng.integers(0, 4, count))),
            "ts": np.arange(count),
            "id": pa.array(keys, mask=rng.random(count) < 0.05),
            "v": rng.random(count),
        }
    )
    pq.write_table(table, tmp_path / "events.parquet", row_group_size=4_000)
    wanted = returned(cepheid.match(query, table).select(["match_start", "match_end"]))
    assert wanted.total() > 1_000
    for events in (spark.createDataFrame(table), str(tmp_path / "events.parquet")):
        found = cepheid.match(query, events, session=spark, partitions=16)
        assert returned(found.select("match_start", "match_end")) == wanted


@pytest.mark.slow
def test_a_million_keys(spark: SparkSession) -> None:
    """Half of them with a match."""
    keys = 1_000_000
    ids = spark.range(keys, numPartitions=4).withColumnRenamed("id", "key")
    first = ids.selectExpr("'A' AS type", "key AS ts", "key")
    second = ids.selectExpr("IF(key % 2 = 0, 'B', 'C') AS type", "key + 5 AS ts", "key")
    found = cepheid.match("EVENT SEQ(A x, B y) WHERE [key] WITHIN 9", first.unionAll(second), partitions=4)
    result = found.agg(F.count("*"), F.sum(F.col("x.key")), F.sum(F.col("match_end") - F.col("match_start"))).collect()
    assert tuple(result[0]) == (keys // 2, sum(range(0, keys, 2)), keys // 2 * 5)


@pytest.mark.parametrize("query", [KEYED[0], SLICED[0], UNDIVIDED[2]])
def test_empty_input_gives_an_empty_answer_with_its_columns(spark: SparkSession, query: str) -> None:
    found = batch(query, frame(spark, []), 3).matches()
    assert found.columns[-2:] == ["match_start", "match_end"]
    assert found.count() == 0


def test_limit_takes_the_first_matches(spark: SparkSession) -> None:
    rows = stream(11)
    query = "PATTERN SEQ(A a, B b) WHERE skip_till_any_match(a, b) {[id]} WITHIN 20 LIMIT 7"
    for partitions in (1, 4):
        assert numbers(batch(query, frame(spark, rows), partitions).matches()) == oracle(query, rows)


def test_a_row_about_all_matches(spark: SparkSession) -> None:
    """Two to the power of thirty matches, which nobody makes."""
    rows = [{"type": "A", "ts": n, "id": 1, "v": 1.0, "name": "p", "n": n} for n in range(30)]
    query = "PATTERN SEQ(A+ a[]) WHERE skip_till_any_match(a[]) {[id]} WITHIN 100 RETURN count(*)"
    for events in (rows, []):
        (row,) = cepheid.match(query, frame(spark, events)).collect()
        assert row[0] == (2 ** len(events) - 1)


# --- what comes out ---------------------------------------------------------------------------------------------------


def test_columns_are_known_before_anything_runs(spark: SparkSession) -> None:
    events = frame(spark, [])
    closure = "PATTERN SEQ(A a, B+ b[]) WHERE skip_till_next_match(a, b[]) {[id]} WITHIN 9"
    event = "struct<type:string,ts:bigint,id:bigint,v:double,name:string,n:bigint>"
    assert cepheid.match(closure, events).schema.simpleString() == (
        f"struct<a:{event},b:array<{event}>,match_start:bigint,match_end:bigint>"
    )
    returned = "PATTERN A;B WHERE A.id = B.id WITHIN 9 RETURN A.id, B.v * 2 AS twice, A"
    found = cepheid.match(returned, frame(spark, stream(1, 10)))
    assert found.schema.simpleString() == (
        f"struct<A.id:bigint,twice:double,A:{event},match_start:bigint,match_end:bigint>"
    )


def test_spark_knows_what_is_never_null(spark: SparkSession, tmp_path: Path) -> None:
    """The times, types and keys of events; not other columns of the same names."""
    nested = pa.struct([("ts", pa.int64()), ("id", pa.int64())])
    rows = [{"type": t, "ts": n, "id": n // 2, "at": {"ts": None, "id": None}} for n, t in enumerate("ABABAB")]
    table = pa.Table.from_pylist(
        rows, pa.schema([("type", pa.string()), ("ts", pa.int64()), ("id", pa.int64()), ("at", nested)])
    )
    pq.write_table(table, tmp_path / "events.parquet")
    for events in (spark.createDataFrame(table), str(tmp_path / "events.parquet")):
        keyed = cepheid.match("EVENT SEQ(A x, B y) WHERE [id] WITHIN 9 RETURN x, y.at.ts AS ts", events, session=spark)
        assert [field.name for field in keyed.schema["x"].dataType if not field.nullable] == ["type", "ts", "id"]
        assert keyed.schema["ts"].nullable
        found = sorted((row["x"].ts, row["x"].at.ts, row["ts"]) for row in keyed.collect())
        assert found == [(n, None, None) for n in (0, 2, 4)]
        sliced = cepheid.match("EVENT SEQ(A x, B y) WHERE x.id < y.id WITHIN 9", events, session=spark)
        assert [field.name for field in sliced.schema["y"].dataType if not field.nullable] == ["type", "ts"]


def test_transform_and_match_agree(spark: SparkSession) -> None:
    rows = stream(3)
    query = KEYED[0]
    assert numbers(frame(spark, rows).transform(cepheid.matches(query))) == oracle(query, rows)
    assert numbers(cepheid.match(query, frame(spark, rows))) == oracle(query, rows)


@pytest.mark.parametrize("kind", [pa.timestamp("us", "UTC"), pa.timestamp("us"), pa.date32(), pa.int32()], ids=str)
def test_times_of_every_type(spark: SparkSession, kind: pa.DataType) -> None:
    day = datetime.datetime(2024, 2, 28, tzinfo=datetime.UTC)
    rows: list[Row] = [{"type": "AB"[i % 2], "ts": i, "n": i} for i in range(12)]

    def time(number: int) -> Any:
        if pa.types.is_integer(kind):
            return number
        moment = day + datetime.timedelta(days=number)
        return moment.date() if pa.types.is_date(kind) else moment if kind.tz else moment.replace(tzinfo=None)

    schema = pa.schema([("type", pa.string()), ("ts", kind), ("n", pa.int64())])
    events = frame(spark, [{**row, "ts": time(row["ts"])} for row in rows], schema)
    window = "2 units" if pa.types.is_integer(kind) else "2 days"
    found = cepheid.match(f"EVENT SEQ(A x, B y) WITHIN {window}", events, partitions=3)
    assert found.schema["match_start"].dataType == events.schema["ts"].dataType
    assert numbers(found) == [{"x": i, "y": i + 1} for i in sorted(range(0, 12, 2), key=lambda i: str(i) + ",")]
    starts = {row.x.ts for row in found.collect()}
    assert starts == {row.match_start for row in found.collect()}


def test_rows_without_a_time_are_rejected_not_lost(spark: SparkSession) -> None:
    rows: list[Row] = [
        {"type": "A", "ts": 1, "n": 0},
        {"type": "B", "ts": None, "n": 1},
        {"type": "B", "ts": 2, "n": 2},
    ]
    matches, rejects = cepheid.match("EVENT SEQ(A x, B y) WITHIN 9", frame(spark, rows), rejects=True)
    assert numbers(matches) == [{"x": 0, "y": 2}]
    assert [(row.n, row.reject_reason) for row in rejects.collect()] == [(1, "no time: `ts` is null")]


# --- several DataFrames -----------------------------------------------------------------------------------------------


def test_a_dataframe_for_each_type(spark: SparkSession) -> None:
    """The exit has no shelf number: a condition on it does not apply there (ruling 4)."""
    shelf = spark.createDataFrame([(1, 7, "tea"), (2, 8, "milk")], "ts long, tag long, goods string")
    out = spark.createDataFrame([(5, 7, 1), (6, 8, 2)], "ts long, tag long, door int")
    found = cepheid.match(
        "EVENT SEQ(Shelf x, Exit y) WHERE [tag] AND y.goods = 'none' AND y.door = 1 WITHIN 10",
        {"Shelf": shelf, "Exit": out},
    )
    assert found.schema.simpleString() == (
        "struct<x:struct<ts:bigint,tag:bigint,goods:string>,y:struct<ts:bigint,tag:bigint,door:int>,"
        "match_start:bigint,match_end:bigint>"
    )
    assert [(row.x.goods, row.y.door) for row in found.collect()] == [("tea", 1)]


def test_dataframes_that_do_not_fit_together_are_refused(spark: SparkSession) -> None:
    one = spark.createDataFrame([(1, 7)], "ts long, tag long")
    other = spark.createDataFrame([(1, "7")], "ts long, tag string")
    with pytest.raises(InputProblem, match="`tag` is bigint in the events of `A` and string in those of `B`"):
        cepheid.match("EVENT SEQ(A x, B y) WHERE [tag]", {"A": one, "B": other})
    with pytest.raises(NameProblem, match="unknown event type `C`"):
        cepheid.match("EVENT SEQ(A x, C y) WHERE [tag]", {"A": one, "B": one})


# --- what Spark sees --------------------------------------------------------------------------------------------------


def plan_of(found: DataFrame) -> str:
    return str(found._jdf.queryExecution().executedPlan().toString())


@pytest.fixture
def _whole_plans(spark: SparkSession) -> Iterator[None]:
    spark.conf.set("spark.sql.maxMetadataStringLength", "1000")
    yield
    spark.conf.unset("spark.sql.maxMetadataStringLength")


@pytest.mark.usefixtures("_whole_plans")
def test_what_matters_is_decided_before_the_shuffle(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "events")
    frame(spark, stream(1)).write.parquet(path)
    query = "EVENT SEQ(A x, B y) WHERE [id] AND x.v > 2 WITHIN 9"
    plan = plan_of(cepheid.match(query, spark.read.parquet(path), partitions=4))
    shuffle, filtered = plan.index("Exchange hashpartitioning(id"), plan.index("Filter ")
    assert shuffle < filtered
    assert "CASE WHEN ((type" in plan
    pushed = next(line for line in plan.splitlines() if "PushedFilters" in line)
    assert "In(type, [A,B])" in pushed and "GreaterThan(v,2.0)" in pushed
    assert "IsNotNull(ts)" in pushed and "GreaterThanOrEqual(ts,-2305843009213693952)" in pushed
    assert plan[filtered : plan.index("\n", filtered)].count("isnotnull(id") == 1
    contiguous = "PATTERN SEQ(A a, B b) WHERE partition_contiguity(a, b) {[id]} WITHIN 9"
    plan = plan_of(cepheid.match(contiguous, spark.read.parquet(path), partitions=4))
    assert "In(type" not in plan and "IsNotNull(id)" in plan


def test_only_needed_columns_travel(spark: SparkSession) -> None:
    query = "PATTERN A;B WHERE A.id = B.id AND A.v > 1 WITHIN 9 RETURN A.n"
    found = cepheid.match(query, frame(spark, stream(1)), partitions=4)
    line = next(line for line in plan_of(found).splitlines() if "MapInArrow" in line)
    assert "KernelTask(id#" in line
    assert "name#" not in line and "type#" not in line and ", v#" not in line


def test_explain_says_how_the_work_is_divided(spark: SparkSession) -> None:
    events = frame(spark, stream(1, 10))
    assert "shuffled by id" in cepheid.explain(KEYED[0], events)
    assert "time is cut into slices" in cepheid.explain(SLICED[0], events)
    assert "one task sees all events: there is neither a key" in cepheid.explain(UNDIVIDED[0], events)
    assert "def step" in cepheid.explain(KEYED[0], events, level="code")


# --- errors -----------------------------------------------------------------------------------------------------------


def test_errors_say_what_to_do(spark: SparkSession) -> None:
    events = frame(spark, stream(1, 5))
    with pytest.raises(InputProblem, match="have no column `time`"):
        cepheid.match(KEYED[0], events, time_column="time")
    with pytest.raises(NameProblem, match="line 1, column"):
        cepheid.match("EVENT SEQ(A x, B y) WHERE x.prise > 1 WITHIN 9", events)
    with pytest.raises(NotAvailable, match="rows have no numbers"):
        cepheid.match(KEYED[0], events, output="positions")
    with pytest.raises(InputProblem, match="`partitions` is 0"):
        cepheid.match(KEYED[0], events, partitions=0)
    odd: Any
    for odd in ("4", 2.5, True):
        with pytest.raises(InputProblem, match="`partitions` is") as raised:
            cepheid.match(KEYED[0], events, partitions=odd)
        assert raised.value.expected == "a whole number"
    with pytest.raises(InputProblem, match="two columns `ts`"):
        cepheid.match(KEYED[0], events.select("ts", "ts", "type"))
    with pytest.raises(CepheidError, match="timestamps or whole numbers"):
        cepheid.match(KEYED[0], events, time_column="name")


# --- Parquet read by the workers --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, list[Row]]:
    """Several files of several row groups each."""
    directory = tmp_path_factory.mktemp("stored")
    rows = sorted(stream(21, 400), key=lambda row: row["ts"])
    for part in range(3):
        table = pa.Table.from_pylist(rows[part * 140 : (part + 1) * 140], SCHEMA)
        pq.write_table(table, directory / f"part-{part}.parquet", row_group_size=50)
    return str(directory), rows


@pytest.mark.parametrize("query", [KEYED[0], KEYED[3], KEYED[5], KEYED[7], SLICED[1], SLICED[4], UNDIVIDED[1]])
@pytest.mark.parametrize("partitions", [3, None], ids=["shuffled", "at_once"])
def test_workers_read_parquet(
    spark: SparkSession, stored: tuple[str, list[Row]], query: str, partitions: int | None
) -> None:
    """Without a word about partitions, few rows are one task's."""
    path, rows = stored
    job = batch(query, path, partitions)
    plan = plan_of(job.matches())
    assert "FileScan" not in plan
    assert ("Exchange" in plan) == (partitions is not None)
    assert ("one task reads the files" in notes(job)[0]) == (partitions is None)
    assert numbers(job.matches()) == oracle(query, rows)


PLAIN = pa.table(
    {
        "flag": [True],
        "byte": pa.array([1], pa.int8()),
        "short": pa.array([1], pa.int16()),
        "int": pa.array([1], pa.int32()),
        "long": [1],
        "float": pa.array([1], pa.float32()),
        "double": [1.0],
        "text": ["x"],
        "day": pa.array([1], pa.date32()),
        "at": pa.array([1], pa.timestamp("us")),
        "at_utc": pa.array([1], pa.timestamp("us", "UTC")),
    }
)


@pytest.mark.parametrize("name", PLAIN.column_names)
def test_a_footer_says_the_schema_that_spark_would_find(spark: SparkSession, tmp_path: Path, name: str) -> None:
    table = PLAIN.select([name])
    pq.write_table(table, tmp_path / "arrow.parquet")
    spark.createDataFrame(table).write.parquet(str(tmp_path / "spark"))
    for path in (str(tmp_path / "arrow.parquet"), str(tmp_path / "spark")):
        assert spark_schema(path) == spark.read.parquet(path).schema


def test_schemas_are_merged_where_the_session_says_so(spark: SparkSession, tmp_path: Path) -> None:
    first = pa.table({"type": ["A"], "ts": [1], "id": [1]})
    pq.write_table(first, tmp_path / "a.parquet")
    pq.write_table(first.append_column("v", pa.array([2.0])), tmp_path / "b.parquet")
    query = "EVENT A x WHERE x.v > 1"
    with pytest.raises(NameProblem):
        cepheid.match(query, str(tmp_path), session=spark)
    spark.conf.set("spark.sql.parquet.mergeSchema", "true")
    try:
        assert cepheid.match(query, str(tmp_path), session=spark).count() == 1
    finally:
        spark.conf.unset("spark.sql.parquet.mergeSchema")


def test_where_spark_has_its_own_view_of_a_schema_it_is_asked(spark: SparkSession, tmp_path: Path) -> None:
    others = {
        "unsigned": pa.array([1], pa.uint32()),
        "nanoseconds": pa.array([1], pa.timestamp("ns")),
        "nested": [[1]],
        "decimal": pa.array([1], pa.decimal128(9, 2)),
        "bytes": [b"x"],
    }
    for name, values in others.items():
        pq.write_table(pa.table({name: values}), tmp_path / f"{name}.parquet")
        assert spark_schema(str(tmp_path / f"{name}.parquet")) is None
    assert spark_schema(str(tmp_path)) is None
    spark.range(2).selectExpr("id", "id AS part").write.partitionBy("part").parquet(str(tmp_path / "parts"))
    assert spark_schema(str(tmp_path / "parts")) is None
    (tmp_path / "broken.parquet").write_text("no")
    assert spark_schema(str(tmp_path / "broken.parquet")) is None
    assert spark_schema(str(tmp_path / "absent.parquet")) is None


def test_row_groups_that_cannot_matter_are_not_read(stored: tuple[str, list[Row]]) -> None:
    schema = infer_schema(primitive(row["type"], row["ts"], 0, row) for row in stored[1])
    types = {"id": INTEGER, "v": FLOAT, "ts": INTEGER}
    bound = bind(parse("EVENT SEQ(A x, B y) WHERE [id] AND x.ts > 1000 AND y.v > 2 WITHIN 5"), schema)
    condition = may_matter(lower(bound, types, schema, NO_CLOCK, EVALUATORS), SCHEMA, "type")
    assert "(ts > 1000)" in str(condition) and "(v > 2)" in str(condition)
    whole = bind(parse("PATTERN a;B WHERE B.v > 2 WITHIN 5"), schema)
    assert may_matter(lower(whole, types, schema, NO_CLOCK, EVALUATORS), SCHEMA, "type") is None


def test_files_that_only_spark_can_read_are_read_by_spark(spark: SparkSession, tmp_path: Path) -> None:
    """The event type is the name of a directory, which no file holds."""
    rows = stream(8)
    path = str(tmp_path / "events")
    frame(spark, rows).write.partitionBy("type").parquet(path)
    found = cepheid.match(KEYED[0], path, session=spark, partitions=3)
    assert "FileScan" in plan_of(found)
    assert numbers(found) == oracle(KEYED[0], rows)


def test_a_table_is_read_like_its_files(spark: SparkSession, stored: tuple[str, list[Row]]) -> None:
    path, rows = stored
    spark.read.parquet(path).createOrReplaceTempView("stored_events")
    assert numbers(cepheid.match(KEYED[0], "stored_events", session=spark, partitions=2)) == oracle(KEYED[0], rows)


# --- the command line -------------------------------------------------------------------------------------------------


def write_cases(directory: Path, cases: Sequence[Case]) -> None:
    for case in cases:
        place = directory / f"{case.language}-{case.name}"
        place.mkdir(parents=True)
        (place / "query.txt").write_text(case.query, encoding="utf-8")
        lines = [json.dumps({"type": kind, "ts": time, **attributes}) for kind, time, attributes in case.rows]
        (place / "events.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")


GOLDEN = [case for case in all_cases() if case.matches is not None and not case.params]


@pytest.mark.parametrize("cases", [GOLDEN[::18], pytest.param(GOLDEN, marks=pytest.mark.slow)], ids=["some", "all"])
def test_batch_run_on_spark_equals_the_reference(spark: SparkSession, tmp_path: Path, cases: list[Case]) -> None:
    write_cases(tmp_path / "cases", cases)
    answers = []
    for backend in ("reference", "spark"):
        out = tmp_path / backend
        result = CliRunner().invoke(app, ["batch-run", str(tmp_path / "cases"), str(out), "--backend", backend])
        assert result.exit_code == 0, result.output
        answers.append({file.name: sorted(file.read_text().splitlines()) for file in sorted(out.iterdir())})
    assert answers[0] == answers[1]


@pytest.mark.parametrize(
    ("query", "where"),
    [
        ("SELECT * FROM A a+ WHERE FILTER(a.id = PREV(a.id))", "the matches of `a+`"),
        ("P: SELECT * FROM A a+ WHERE FILTER(a.id = PREV(a.id))\nQ: EVENT SEQ(P p, B b)", "the matches of `a+`"),
    ],
)
def test_an_explosion_on_spark_is_an_error_that_names_operator_and_key(
    spark: SparkSession, tmp_path: Path, query: str, where: str
) -> None:
    rows = [{"type": "A", "ts": at, "id": at % 2, "v": 0.5} for at in range(400)]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "events.parquet")
    (tmp_path / "query.txt").write_text(query)
    words = ["--query-file", "query.txt", "--input", "events.parquet", "--max-matches", "100", "--backend", "spark"]
    at = [str(tmp_path / word) if word.endswith((".txt", ".parquet")) else word for word in words]
    result = CliRunner().invoke(app, ["run", *at, "--output", str(tmp_path / "out.jsonl")])
    assert result.exit_code == 2, result.output
    assert result.output.startswith("error: the event at position ")
    assert where in result.output and " with id = " in result.output and "Traceback" not in result.output


def test_the_tour_shows_a_query_of_each_language(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Into a directory named from where the user stands, where no worker is."""
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, ["demo", "--no-stream", "--output", "tour"])
    assert result.exit_code == 0, result.output
    found = [
        int(number.replace(",", "")) for number in re.findall(r"^([\d,]+) matches in", result.output, re.MULTILINE)
    ]
    assert len(found) == len(EXAMPLES) and all(found)
    written = [(tmp_path / "tour" / example.output).read_text().splitlines() for example in EXAMPLES]
    assert [len(lines) for lines in written] == found
    assert result.output.splitlines()[-1].startswith("  tour/")


# --- shapes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "query",
    [
        "EVENT SEQ(A x, B y) WHERE [id] WITHIN 6",
        "PATTERN SEQ(A a, B+ b[], C c) WHERE skip_till_any_match(a, b[], c) { [id] } WITHIN 20",
        "PATTERN A;(B+|C) WITHIN 3",
        "EVENT SEQ(A x, B y, !(C z)) WHERE [id] WITHIN 6",
        "EVENT SEQ(A x, B y) WHERE [id] WITHIN 6 RETURN x, y.v AS v",
    ],
)
def test_shapes_on_spark_are_those_of_a_table(spark: SparkSession, query: str) -> None:
    table = pa.Table.from_pylist(stream(5, 60, types="ABC"))
    frame = spark.createDataFrame(table.to_pylist(), "type string, ts long, id long, v double, name string, n long")
    flat = cepheid.match(query, frame, output="flat", detected_at=True, id_column="n", partitions=2).toArrow()
    expected = cepheid.match(query, table, output="flat", detected_at=True, id_column="n")
    assert expected.num_rows and flat.schema.names == expected.schema.names
    assert as_counter(flat.to_pylist()) == as_counter(expected.to_pylist())
    assert rows_by_match(cepheid.match(query, frame, output="long", partitions=2).toArrow()) == rows_by_match(
        cepheid.match(query, table, output="long").drop_columns(["match_row"])
    )


def as_counter(rows: list[Row]) -> Counter[str]:
    return Counter(json.dumps(row) for row in rows)


def rows_by_match(long: pa.Table) -> Counter[str]:
    """The rows of each match, whatever its number."""
    of: dict[int, list[Row]] = {}
    for row in long.to_pylist():
        of.setdefault(row.pop("match_number"), []).append(row)
    return Counter(map(json.dumps, of.values()))


def test_inputs_with_their_own_times(spark: SparkSession) -> None:
    """As outside Spark: integer times become timestamps where others are."""
    logins = pa.table({"user": ["ann", "bob", "ann"], "ts": [1709280000, 1709280010, 1709280020]})
    moments = pa.array([1709280030_000000, 1709280031_000000], pa.timestamp("us", "UTC"))
    orders = pa.table({"user": ["ann", "bob"], "created_at": moments})
    query = "EVENT SEQ(Login a, Order b) WHERE [user] AND b.created_at - a.ts < 25 seconds WITHIN 1 hour"
    inputs = {"Login": logins, "Order": cepheid.Input(orders, time_column="created_at")}
    frames = {
        "Login": spark.createDataFrame(logins),
        "Order": cepheid.Input(spark.createDataFrame(orders), time_column="created_at"),
    }
    expected = cepheid.match(query, inputs).to_pylist()
    assert len(expected) == 2
    found = cepheid.match(query, frames).toArrow()
    assert sorted(found.to_pylist(), key=str) == sorted(expected, key=str)
    one = "PATTERN SEQ(Login a, Login b) WHERE skip_till_next_match(a, b) { [user] } WITHIN 1 minute"
    for options in ({"type": "Login"}, {"type_column": None}):
        assert cepheid.match(one, spark.createDataFrame(logins), **options).count() == 1


@pytest.mark.parametrize("options", [{"time_format": "%d.%m.%Y"}, {"decimal": ","}, {"encoding": "latin-1"}])
def test_how_text_files_are_written_is_no_option_of_a_dataframe(spark: SparkSession, options: dict[str, str]) -> None:
    frame = spark.createDataFrame([("A", 1)], "type string, ts long")
    with pytest.raises(InputProblem, match="of a DataFrame, whose values Spark has read"):
        cepheid.match("EVENT SEQ(A a, A b)", cepheid.Input(frame, **options))


def test_a_streaming_dataframe_is_for_stream(spark: SparkSession) -> None:
    rates = spark.readStream.format("rate").load().selectExpr("'A' AS type", "timestamp AS ts")
    with pytest.raises(InputProblem, match="the events are a streaming DataFrame") as raised:
        cepheid.match("EVENT SEQ(A a, A b)", rates)
    assert "cepheid.stream(query, events" in (raised.value.hint or "")
