"""Kinds of values against the places where a query can have them, on every way to run it.

A kind is an Arrow type with its edges: the longest decimals, NaN and -0.0, times before 1970, unsigned integers above
2^63 - 1, empty strings and lists, dictionaries, large and fixed sizes. The oracle gives the expected rows.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal as D
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import feather

import cepheid
from cepheid.errors import CepheidError

INF, NAN, OLD = float("inf"), float("nan"), datetime(1969, 12, 31, 23, 59, 59, 999_999)

KINDS: Mapping[str, tuple[pa.DataType, Sequence[Any]]] = {
    "integer": (pa.int64(), [2**63 - 1, -(2**63), 0, 2**53 + 1, 2**53]),
    "byte": (pa.int8(), [127, -128, 0]),
    "unsigned": (pa.uint64(), [2**64 - 1, 2**63, 2**63 - 1, 0]),
    "float": (pa.float64(), [NAN, -0.0, 0.0, INF, -INF, 1.5, 2.0**53]),
    "narrow float": (pa.float32(), [NAN, -0.0, 0.0, INF, 1.5]),
    "short decimal": (pa.decimal128(18, 2), [D("9" * 16 + ".99"), D("0.00"), D("1.01")]),
    "long decimal": (pa.decimal128(38, 10), [D("9" * 28 + ".9999999999"), D("-1.0000000001"), D(1)]),
    "fraction": (pa.decimal128(38, 38), [D("0." + "9" * 38), D("-0." + "0" * 37 + "1"), D(0)]),
    "hundreds": (pa.decimal128(5, -2), [D(100), D(-200), D(9_999_900)]),
    "wide decimal": (pa.decimal256(38, 2), [D("1.25"), D("1.26"), D(0)]),
    "boolean": (pa.bool_(), [True, False]),
    "string": (pa.string(), ["", " ", "a", "ß", "\U0001f600", "\uffff", "a\0b"]),
    "large string": (pa.large_string(), ["", "a", "A", "\U0001f600"]),
    "view": (pa.string_view(), ["", "a", "a string that is too long for a view"]),
    "dictionary": (pa.dictionary(pa.int8(), pa.string()), ["", "x", "Z"]),
    "large dictionary": (pa.dictionary(pa.int32(), pa.large_string()), ["", "x", "Z"]),
    "numbers in a dictionary": (pa.dictionary(pa.int32(), pa.int64()), [1, 2**63 - 1, -5]),
    "binary": (pa.binary(), [b"", b"\0", b"\0\0", b"\xff"]),
    "large binary": (pa.large_binary(), [b"", b"\0", b"\xff"]),
    "fixed binary": (pa.binary(2), [b"\0\0", b"ab", b"\xff\xff"]),
    "date": (pa.date32(), [date(1, 1, 1), date(1969, 12, 31), date(9999, 12, 31)]),
    "timestamp": (pa.timestamp("us"), [OLD, datetime(1970, 1, 1), datetime(1, 1, 1)]),
    "zone": (pa.timestamp("us", "Europe/Berlin"), [OLD, datetime(2024, 3, 31, 1), datetime(1938, 4, 24)]),
    "seconds": (pa.timestamp("s"), [datetime(1969, 12, 31, 23, 59, 59), datetime(1970, 1, 1)]),
    "duration": (pa.duration("us"), [timedelta(0), timedelta(microseconds=-1), timedelta(days=1)]),
    "time of day": (pa.time64("us"), [time(0), time(23, 59, 59, 999_999)]),
    "list": (pa.list_(pa.int64()), [[], [1], [1, 2], [None], [2**63 - 1]]),
    "floats": (pa.list_(pa.float64()), [[], [NAN], [-0.0], [0.0], [INF], [-INF]]),
    "decimals": (pa.list_(pa.decimal128(38, 10)), [[], [D("1." + "0" * 9 + "1")], [D("1." + "0" * 9 + "2")]]),
    "texts": (pa.list_(pa.binary()), [[], [b"\xff"], [b"\\xff"]]),
    "moments": (pa.list_(pa.timestamp("us")), [[], [OLD], [datetime(2024, 1, 1)]]),
    "pairs": (pa.list_(pa.int64(), 2), [[1, 2], [2, 1], [None, 1]]),
    "large list": (pa.large_list(pa.int64()), [[], [1]]),
    "no integer": (pa.int64(), [None]),
    "no float": (pa.float64(), [None, NAN]),
    "nothing": (pa.null(), [None]),
}
_GROUP = "PATTERN SEQ(A+ a[], B b) WHERE skip_till_next_match(a[], b) { a[i].w != 9 } WITHIN 40 RETURN"
QUERIES = {
    "key": "EVENT SEQ(A a, !(C c), B b) WHERE [v] WITHIN 40",
    "comparison": "EVENT SEQ(A a, B b) WHERE NOT a.v >= b.v AND b.v = b.v WITHIN 40",
    "columns": "EVENT SEQ(A a, B b) WHERE a.v != b.v WITHIN 40 RETURN a.v AS x, coalesce(a.v, b.v) AS y, "
    "CASE WHEN a.w > 1 THEN a.v ELSE b.v END AS z",
    "arithmetic": "EVENT SEQ(A a, B b) WITHIN 40 RETURN a.v - b.v AS s, a.v * b.w AS p, a.v / b.v AS q, abs(a.v) AS n",
    "selected": f"{_GROUP} min(a.v) AS mi, max(a.v) AS ma, first(a.v) AS f, last(a.v) AS l, count(a.v) AS n",
    "sums": f"{_GROUP} sum(a.v) AS s, avg(a.v) AS m",
    "tree": "PATTERN A & B WHERE A.v = B.v WITHIN 40 RETURN A.v AS x, B.w AS y",
    "next": "SELECT * FROM A a+ ; B b WHERE FILTER(a.v = PREV(a.v)), FILTER(a.v = b.v), (a, b) OCCURS WITHIN 15",
    "composition": "P: EVENT SEQ(A a, B b) WHERE [v] WITHIN 20\nEVENT SEQ(P p, C c) WHERE p.v = c.v WITHIN 40 "
    "RETURN p.v AS x, c.v AS y",
}
COLUMNAR = ("float", "unsigned", "long decimal", "zone", "floats", "dictionary", "large binary")


def events(kind: str) -> pa.Table:
    chance, (arrow, values) = random.Random(kind), KINDS[kind]
    drawn = [chance.choice([*values, None]) for _ in range(16)]
    plain = arrow.value_type if pa.types.is_dictionary(arrow) else arrow
    column = pa.array(drawn, plain) if plain is arrow else pa.array(drawn, plain).dictionary_encode().cast(arrow)
    numbers = pa.array([chance.randint(1, 3) for _ in drawn], pa.int64())
    return pa.table({"type": chance.choices("ABC", k=16), "ts": list(range(16)), "w": numbers, "v": column})


def rows(found: pa.Table) -> list[str]:
    """The rows as texts, in which 0.0 differs from -0.0. NaN counts as null."""
    return sorted(repr(row).replace("nan", "None") for row in found.to_pylist())


def expected(query: str, table: pa.Table) -> list[str] | None:
    """The rows of the oracle; None if the query is wrong for this kind."""
    try:
        return rows(cepheid.match(query, table, evaluator="reference"))
    except CepheidError:
        return None


@pytest.mark.filterwarnings("ignore::cepheid.CepheidWarning")
@pytest.mark.parametrize("kind", KINDS)
def test_every_evaluator_has_the_rows_of_the_oracle(kind: str) -> None:
    table, compared = events(kind), 0
    for name, query in QUERIES.items():
        truth = expected(query, table)
        try:
            found = rows(cepheid.match(query, table))
        except CepheidError:  # a mistake, or documented as one that kernels do not compute
            assert truth is None or kind == "time of day" or "decimal" in kind or kind == "fraction", name
            continue
        assert found == truth, name
        compared += 1
    assert compared >= 3


@pytest.mark.filterwarnings("ignore::cepheid.CepheidWarning")
@pytest.mark.parametrize("kind", COLUMNAR)
def test_files_have_the_rows_of_the_table(kind: str, tmp_path: Path) -> None:
    table = events(kind)
    pq.write_table(table, tmp_path / "events.parquet")
    feather.write_feather(table, tmp_path / "events.arrow")
    truths = {name: expected(QUERIES[name], table) for name in ("key", "columns", "selected")}
    assert any(truths.values())
    for name in [name for name, truth in truths.items() if truth is not None]:
        for file in ("events.parquet", "events.arrow"):
            assert rows(cepheid.match(QUERIES[name], str(tmp_path / file))) == truths[name], (name, file)


@pytest.mark.spark
@pytest.mark.filterwarnings("ignore::cepheid.CepheidWarning")
@pytest.mark.parametrize("kind", ("float", "long decimal", "zone"))
def test_spark_has_the_rows_of_the_table(kind: str, spark: Any, tmp_path: Path) -> None:
    table, path = events(kind), str(tmp_path / "events.parquet")
    pq.write_table(table, path)
    if kind == "zone":  # Spark shows all times in the zone of its session
        table = table.set_column(3, "v", table["v"].cast(pa.timestamp("us", "UTC")))
    truth = expected(QUERIES["columns"], table)
    assert truth
    assert rows(cepheid.match(QUERIES["columns"], spark.read.parquet(path)).toArrow()) == truth
