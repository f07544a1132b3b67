"""Single-event predicates in Catalyst hold for the events for which they hold by definition."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from datetime import datetime

import pyarrow as pa
import pytest
from differential import for_spark
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from random_cases import Expressions
from random_values import PROFILES, Profile, pool, world
from value_cases import CASES, ValueCase

import cepheid
from cepheid.binding import bind
from cepheid.events import Schema
from cepheid.io.source import flat_fields
from cepheid.lang import parse
from cepheid.physical import Bit
from cepheid.spark.catalyst import EventColumns
from cepheid.spark.catalyst_values import OutsideCatalyst
from cepheid.types import from_arrow

pytestmark = pytest.mark.spark


def in_catalyst(spark: SparkSession, table: pa.Table, conditions: Sequence[str]) -> list[set[int] | None]:
    """For each condition the numbers `n` of the rows for which it holds; None if it is left to workers. One job
    evaluates all of them: every condition is a column."""
    events = spark.createDataFrame(table)
    schema = Schema({"A": {name: from_arrow(kind) for name, kind in flat_fields(table.schema)}})
    read = EventColumns(events.schema, None, {})
    columns = {}
    for number, text in enumerate(conditions):
        try:
            columns[number] = read._plays(Bit("", "x", (), bind(parse(_query(text)), schema).where))
        except OutsideCatalyst:
            continue
    named = [F.coalesce(test, F.lit(False)).alias(f"p{number}") for number, test in columns.items()]
    rows = events.select("n", *named).collect()
    return [
        {row["n"] for row in rows if row[f"p{number}"]} if number in columns else None
        for number in range(len(conditions))
    ]


def by_definition(table: pa.Table, condition: str) -> set[int]:
    found = cepheid.match(f"{_query(condition)} RETURN x.n AS n", table, evaluator="reference")
    return set(found.column("n").to_pylist())


def differences(spark: SparkSession, table: pa.Table, conditions: Sequence[str]) -> tuple[list[str], int]:
    """The conditions that hold for other rows in Catalyst, and the number of those that Catalyst evaluates."""
    wrong, inside = [], 0
    for condition, found in zip(conditions, in_catalyst(spark, table, conditions), strict=True):
        if found is None:
            continue
        inside += 1
        expected = by_definition(table, condition)
        if found != expected:
            number = min(found ^ expected)
            kinds = ", ".join(f"{field.name}: {field.type}" for field in table.schema)
            row = table.slice(number, 1).to_pylist()[0]
            wrong.append(f"{condition} should be {number in expected} for {row} ({kinds})")
    return wrong, inside


def _query(condition: str) -> str:
    return f"EVENT SEQ(A x) WHERE {condition}"


def _table(rng: random.Random, profile: Profile, rows: int = 40) -> tuple[pa.Table, Expressions]:
    while True:
        drawn = world(rng, profile)
        columns = {
            name: pa.array([rng.choice([*pool(rng, kind, profile), None]) for _ in range(rows)], kind)
            for name, kind in drawn.attributes.items()
        }
        numbers = pa.array(range(rows), pa.int64())
        table = for_spark(pa.table({"type": pa.array(["A"] * rows), "ts": numbers, **columns, "n": numbers}))
        if table is not None:
            return table, Expressions(rng, drawn)


@pytest.fixture(params=[True, False], ids=["ansi", "not ansi"])
def either(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[SparkSession]:
    spark.conf.set("spark.sql.ansi.enabled", request.param)
    yield spark
    spark.conf.unset("spark.sql.ansi.enabled")


@pytest.mark.parametrize("profile", [name for name in PROFILES if name not in ("unsigned", "windows", "names")])
def test_random_conditions(either: SparkSession, profile: str) -> None:
    rng = random.Random(profile)
    for _ in range(2):
        table, draw = _table(rng, PROFILES[profile])
        wrong, inside = differences(either, table, [draw.condition(["x"]) for _ in range(40)])
        assert not wrong, "\n".join(wrong)
        assert inside > 12


VALUES = pa.table(
    {
        "type": ["A"] * 6,
        "ts": range(6),
        "n": range(6),
        "i": [1, -7, None, 0, 2**53 - 1, 500],
        "f": [1.5, float("nan"), None, -0.5, 1e300, 4.0],
        "s": ["tea", "Tea%", None, "", "a\\b_c", "Ärger"],
        "b": [True, False, None, True, False, None],
        "o": [{"k": k} for k in (1, -7, None, 0, 2**53 - 1, 500)],
    }
)
PREDICATES = """
x.i > 0; x.i != 1; x.i = 500; x.f > 1; x.f >= 1.5; x.f != 4; x.f < 2; x.i + 1 > 1; x.i / 2 = 0.5; x.i / 0 > 1
x.i % 3 = 2; x.i % -3 = -1; x.f % 2 = 1.5; -x.i > 5; x.i * x.f > 1; x.i - x.f < 0; x.s = 'tea'; x.s != 'tea'
x.s < 'b'; 'b' > x.s; x.s LIKE 't%'; x.s LIKE '%e_'; x.s LIKE 'a\\\\b_c'; x.s LIKE '%'; x.s CONTAINS 'ea'
x.s CONTAINS x.s; x.i IN (1, 500, 7); x.s IN ('tea', ''); x.i IS NULL; x.f IS NULL; NOT x.i IS NULL; NOT x.f > 1
NOT x.s = 'tea'; x.b = TRUE; x.b != TRUE; NOT (x.i > 0 AND x.f > 1); x.i > 0 OR x.s = ''; abs(x.i) = 7; sqrt(x.f) > 1
sqrt(x.i) >= 0; floor(x.f) = -1; ceil(x.f) = 2; length(x.s) = 4; lower(x.s) = 'tea%'; upper(x.s) = 'ÄRGER'; x.i = x.i
x.f = x.f; x.f != x.f; x.i < x.f; x.i = 1.0; x.i < 9223372036854775807; x.f < 1.7e308; x.o.k = 1; x.o.k IS NULL
floor(x.f) > 5; x.i IN (NULL, 1); x.i = NULL; NOT x.i = NULL
""".replace("\n", ";")


def test_conditions_of_every_kind(either: SparkSession) -> None:
    texts = [text.strip() for text in PREDICATES.split(";") if text.strip()]
    wrong, inside = differences(either, VALUES, texts)
    assert not wrong, "\n".join(wrong)
    assert inside == len(texts) - 2, "upper and lower are left to workers"


# --- the table of cases -----------------------------------------------------------------------------------------------

_READ = re.compile(r"\b([xy])\.(\w+)")
"""An attribute of x or y in the text of a case."""


def _on_one_event(cases: Sequence[ValueCase]) -> pa.Table:
    """One event with the attributes of x and y of a group of cases."""
    case = cases[0]
    columns = {
        f"{var}_{name}": pa.array([values.get(name)], kind)
        for var, values in (("x", case.x), ("y", case.y))
        for name, kind in case.types.items()
    }
    return pa.table({"type": ["A"], "ts": [0], "n": [0], **columns})


GROUPS = {
    name: [case for case in CASES if case.group == name and case.is_condition]
    for name in dict.fromkeys(case.group for case in CASES if case.is_condition)
}


def test_the_table_of_cases(either: SparkSession) -> None:
    wrong, inside, total = [], 0, 0
    tables = [(cases, for_spark(_on_one_event(cases))) for cases in GROUPS.values()]
    for cases, table in ((cases, table) for cases, table in tables if table is not None):
        texts = [_READ.sub(r"x.\1_\2", case.text) for case in cases]
        for case, found in zip(cases, in_catalyst(either, table, texts), strict=True):
            total, inside = total + 1, inside + (found is not None)
            if found is not None and (found == {0}) != case.expected:
                wrong.append(f"{case} should be {case.expected}")
    assert not wrong, "\n".join(wrong)
    assert inside > total // 2


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=str)
def test_spark_evaluates_the_cases(spark: SparkSession, case: ValueCase) -> None:
    table = for_spark(case.table)
    if table is None:
        pytest.skip("a DataFrame has no unsigned 64-bit integers")
    rows = cepheid.match(case.query, spark.createDataFrame(table)).toArrow().to_pylist()
    if isinstance(case.expected, datetime) and case.expected.tzinfo is None:
        # `createDataFrame` reads local times as times in the zone of the session.
        rows = [{**row, "r": row["r"].replace(tzinfo=None)} for row in rows]
    assert case.problem(rows) is None
