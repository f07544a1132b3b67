"""One table of cases for values: an expression over the attributes of two events, and its value.

Every evaluator runs it: the oracle, kernels (predicates between events), masks (predicates on one event), the
vectorised evaluation of RETURN, and Catalyst. The expected values are written by hand from rulings 4, 13 and 14.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal as D
from typing import Any

import pyarrow as pa

INF, NAN = float("inf"), float("nan")
BIG = 2**53
LOWEST, HIGHEST = -(2**63), 2**63 - 1


@dataclass(frozen=True)
class ValueCase:
    """`text` over the events x and y. If `expected` is a bool, `text` is a condition, otherwise a value to return."""

    group: str
    types: Mapping[str, pa.DataType]
    x: Mapping[str, Any]
    y: Mapping[str, Any]
    text: str
    expected: Any

    def __str__(self) -> str:
        return f"{self.group}: {self.text}"

    @property
    def is_condition(self) -> bool:
        return isinstance(self.expected, bool)

    @property
    def query(self) -> str:
        start = "EVENT SEQ(X x, Y y)"
        return f"{start} WHERE {self.text} WITHIN 10 units" if self.is_condition else f"{start} RETURN {self.text} AS r"

    @property
    def table(self) -> pa.Table:
        schema = pa.schema([("type", pa.string()), ("ts", pa.int64()), *self.types.items()])
        return pa.Table.from_pylist([{"type": "X", "ts": 1, **self.x}, {"type": "Y", "ts": 2, **self.y}], schema)

    def problem(self, rows: Sequence[Mapping[str, Any]]) -> str | None:
        """What is wrong with the rows that the query returned; None if they are right."""
        if self.is_condition:
            return None if (len(rows) == 1) == self.expected else f"{len(rows)} matches"
        if len(rows) != 1:
            return f"{len(rows)} matches"
        value = rows[0]["r"]
        is_right = value == self.expected and isinstance(value, bool) == isinstance(self.expected, bool)
        is_right = is_right and isinstance(value, float) == isinstance(self.expected, float)
        return None if is_right else f"{value!r} instead of {self.expected!r}"


def _group(
    group: str, types: Mapping[str, pa.DataType], x: Mapping[str, Any], y: Mapping[str, Any], cases: Mapping[str, Any]
) -> Iterator[ValueCase]:
    for text, expected in cases.items():
        yield ValueCase(group, types, x, y, text, expected)


CASES: tuple[ValueCase, ...] = (
    *_group(
        "integers beyond 2^53",
        {"v": pa.int64()},
        {"v": BIG},
        {"v": BIG + 1},
        {
            "x.v = y.v": False,
            "x.v + 0 = y.v": False,
            "x.v + 1 = y.v": True,
            "y.v - x.v = 1": True,
            "y.v % 2 = 1": True,
            "x.v % 2 = 1": False,
            "abs(x.v) < y.v": True,
            "x.v * 2 = y.v * 2 - 2": True,
            "-x.v > -y.v": True,
            "y.v = 9007199254740993": True,
            "y.v = 9007199254740992.0": False,
            "y.v > 9007199254740992.0": True,
            "x.v + 0.0 = y.v": False,
            "y.v + 0.0 = y.v": False,
            "x.v IN (1, 9007199254740992)": True,
            "y.v / 2 = 4503599627370496": True,
            "x.v + 1": BIG + 1,
            "y.v - x.v": 1,
            "x.v * 2": 2 * BIG,
            "y.v % 10": 3,
            "-y.v": -BIG - 1,
            "abs(-y.v)": BIG + 1,
            "y.v": BIG + 1,
            "x.v / 2": BIG / 2,
            "floor(y.v)": BIG + 1,
        },
    ),
    *_group(
        "the ends of 64 bits",
        {"v": pa.int64()},
        {"v": LOWEST},
        {"v": HIGHEST},
        {
            "x.v = x.v": True,
            "x.v < y.v": True,
            "x.v IS NULL": False,
            "x.v = -9223372036854775808": True,
            "y.v + 1 > 0": False,
            "y.v + 1 <= 0": False,
            "y.v + 1 IS NULL": True,
            "x.v - 1 < 0": False,
            "-x.v > 0": False,
            "abs(x.v) >= 0": False,
            "x.v * -1 > 0": False,
            "x.v * 1 = x.v": True,
            "y.v * 2 > y.v": False,
            "y.v * 2 / 2 = y.v": False,
            "x.v % -1 = 0": True,
            "y.v < 9223372036854775808.0": True,
            "y.v + 0 = 9223372036854775807": True,
            "x.v + y.v = -1": True,
            "y.v - 1 + 1 = y.v": True,
            "y.v + 1 - 1 = y.v": False,
            "y.v < 9223372036854775808": True,
            "y.v < 100000000000000000000000": True,
            "x.v": LOWEST,
            "y.v + 1": None,
            "-x.v": None,
            "abs(x.v)": None,
            "x.v + y.v": -1,
            "y.v * 2": None,
            "y.v / 1": float(HIGHEST),
        },
    ),
    *_group(
        "division and remainder",
        {"v": pa.int64(), "w": pa.int64(), "z": pa.int64()},
        {"v": -7, "w": 3, "z": 0},
        {"v": 7, "w": -3, "z": 0},
        {
            "x.v % x.w = 2": True,
            "y.v % y.w = -2": True,
            "x.v % y.w = -1": True,
            "x.v / x.z = 0": False,
            "x.v / x.z != 0": False,
            "NOT x.v / x.z = 0": True,
            "x.v % x.z IS NULL": True,
            "1 / 2 = 0.5": True,
            "x.v / 2 = -3.5": True,
            "x.v % x.w": 2,
            "y.v % y.w": -2,
            "x.v / y.z": None,
            "x.v % y.z": None,
            "y.v / 2": 3.5,
        },
    ),
    *_group(
        "floats",
        {"v": pa.float64(), "w": pa.float64()},
        {"v": INF, "w": -3.5},
        {"v": -INF, "w": 0.0},
        {
            "x.v > 1e308": True,
            "x.v = x.v": True,
            "x.v - x.v = 0": False,
            "x.v - x.v IS NULL": True,
            "x.v + y.v IS NULL": True,
            "x.v % 2 = 1": False,
            "x.v % 2 IS NULL": True,
            "floor(x.v) > 10": True,
            "ceil(y.v) = y.v": True,
            "x.w % 2 = 0.5": True,
            "x.w % x.v = x.v": True,
            "5 % x.v = 5": True,
            "x.w / y.w > 0": False,
            "sqrt(x.w) >= 0": False,
            "sqrt(x.w) IS NULL": True,
            "floor(x.w) = -4": True,
            "ceil(x.w) = -3": True,
            "-y.w = y.w": True,
            "x.v * y.w IS NULL": True,
            "floor(x.v)": INF,
            "floor(x.w)": -4.0,
            "ceil(x.w)": -3.0,
            "x.v - x.v": None,
            "x.v % 2": None,
            "x.w % 2": 0.5,
            "sqrt(x.w)": None,
            "sqrt(x.v)": INF,
            "x.w / y.w": None,
            "abs(y.v)": INF,
            "x.v": INF,
        },
    ),
    *_group(
        "NaN counts as null",
        {"v": pa.float64()},
        {"v": NAN},
        {"v": 1.0},
        {
            "x.v = x.v": False,
            "x.v != 1": False,
            "x.v IS NULL": True,
            "x.v < y.v": False,
            "NOT x.v < y.v": True,
            "x.v + 1": None,
        },
    ),
    *_group(
        "integers beside floats",
        {"i": pa.int64(), "f": pa.float64()},
        {"i": BIG + 1, "f": float(BIG)},
        {"i": 3, "f": 2.5},
        {
            "x.i = x.f": False,
            "x.i > x.f": True,
            "x.f < x.i": True,
            "x.i + x.f": float(2 * BIG),
            "y.i * y.f": 7.5,
            "y.i + y.f = 5.5": True,
            "y.i > y.f": True,
            "y.i = 3.0": True,
            "y.i % y.f = 0.5": True,
        },
    ),
    *_group(
        "null",
        {"v": pa.int64(), "s": pa.string(), "b": pa.bool_()},
        {"v": None, "s": None, "b": None},
        {"v": 1, "s": "a", "b": True},
        {
            "x.v = y.v": False,
            "x.v != y.v": False,
            "x.v = x.v": False,
            "x.v + 1 = 2": False,
            "x.v IS NULL": True,
            "x.v + y.v IS NULL": True,
            "NOT x.v = y.v": True,
            "x.v IN (1, 2)": False,
            "x.s LIKE '%'": False,
            "x.s = 'a'": False,
            "x.b = TRUE": False,
            "x.b = FALSE": False,
            "x.b": False,
            "NOT x.b": True,
            "upper(x.s) IS NULL": True,
            "x.v + 1": None,
            "upper(x.s)": None,
        },
    ),
    *_group(
        "conditions as values",
        {"v": pa.int64(), "b": pa.bool_()},
        {"v": 1, "b": True},
        {"v": -1, "b": False},
        {
            "(x.v > 0) = TRUE": True,
            "(x.v > 0) = FALSE": False,
            "(x.v > 0) = (y.v > 0)": False,
            "(x.v > 0) != (y.v > 0)": True,
            "(x.v IS NULL) = FALSE": True,
            "(x.v = 1) IN (TRUE)": True,
            "(y.v = 1) IN (TRUE)": False,
            "(x.v > 0) = x.b": True,
            "(y.v > 0) = y.b": True,
            "x.b = (NOT y.b)": True,
            "((x.v > 0) = TRUE) = (x.v = 1)": True,
            "(x.v > 0 AND y.v > 0) = FALSE": True,
            "(x.v / 0 > 1) = FALSE": True,
            "x.b != y.b": True,
            "x.b AND NOT y.b": True,
            "x.b IN (FALSE, TRUE)": True,
        },
    ),
    *_group(
        "short decimals",
        {"d": pa.decimal128(10, 2), "e": pa.decimal128(18, 4), "i": pa.int64(), "f": pa.float64()},
        {"d": D("1.10"), "e": D("0.0001"), "i": 3, "f": 0.1},
        {"d": D("-2.25"), "e": D("99999999999999.9999"), "i": 10**17, "f": 1.1},
        {
            "x.d = 1.1": True,
            "x.d < 1.15": True,
            "x.d + 0.1 = 1.2": True,
            "x.d * 3 = 3.3": True,
            "x.d - 0.1 = 1": True,
            "x.d > x.e": True,
            "x.d < x.i": True,
            "x.d = y.f": True,
            "x.d + x.e = 1.1001": True,
            "y.d % 1 = 0.75": True,
            "x.d % y.d = -1.15": True,
            "y.e + y.e > 0": False,
            "y.e + y.e IS NULL": True,
            "y.i + y.e IS NULL": True,
            "x.i + y.e IS NULL": True,
            "x.i + x.e = 3.0001": True,
            "y.i * 10 + x.d IS NULL": True,
            "floor(y.d) = -3": True,
            "ceil(y.d) = -2": True,
            "abs(y.d) = 2.25": True,
            "-y.d = 2.25": True,
            "x.d IN (1.1, 2)": True,
            "x.d / 2 = 0.55": True,
            "x.d + x.e": D("1.1001"),
            "x.d * x.e": D("0.000110"),
            "x.d * 3": D("3.30"),
            "x.d / 2": 0.55,
            "y.d % 1": D("0.75"),
            "y.e + y.e": None,
            "floor(y.d)": D("-3"),
            "abs(y.d)": D("2.25"),
            "x.d": D("1.10"),
            "x.d + 0.1": D("1.20"),
            "x.d + x.f": 1.1 + 0.1,
            "x.d = 1 + 0.1": True,
            "x.d - 1 = 0.2 - 0.1": True,
            "x.d - 1 + 0.2 = 0.1 + 0.2": False,
            "sqrt(y.d * y.d)": 2.25,
        },
    ),
    *_group(
        "long decimals",
        {"d": pa.decimal128(38, 2)},
        {"d": D("123456789012345678901234567890.10")},
        {"d": D("123456789012345678901234567890.11")},
        {
            "x.d < y.d": True,
            "x.d = y.d": False,
            "x.d > 1": True,
            "x.d + 0.01 = y.d": True,
            "y.d - x.d": D("0.01"),
            "x.d": D("123456789012345678901234567890.10"),
            "x.d * x.d": None,
        },
    ),
    *_group(
        "unsigned integers",
        {"u": pa.uint64(), "i": pa.int64()},
        {"u": 2**63, "i": -1},
        {"u": 2**64 - 1, "i": 5},
        {
            "x.u < y.u": True,
            "x.u = 9223372036854775808": True,
            "x.u > x.i": True,
            "x.u > y.i": True,
            "y.u = 18446744073709551615": True,
            "x.u = 9223372036854775808.0": True,
            "y.u < 18446744073709551616.0": True,
            "x.u + 1 > 0": False,
            "x.u - 1 > 0": False,
            "x.u + 1 IS NULL": True,
            "x.u": 2**63,
            "y.u": 2**64 - 1,
            "x.u + 1": None,
            "x.u / 2": 2.0**62,
        },
    ),
    *_group(
        "times",
        {"t": pa.timestamp("us"), "z": pa.timestamp("us", "UTC"), "d": pa.date32(), "p": pa.duration("us")},
        {
            "t": datetime(2020, 1, 1),
            "z": datetime(2020, 1, 1, tzinfo=UTC),
            "d": date(2020, 1, 1),
            "p": timedelta(seconds=3),
        },
        {
            "t": datetime(2020, 1, 1, 0, 0, 3),
            "z": datetime(2020, 1, 1, 1, tzinfo=UTC),
            "d": date(2020, 1, 3),
            "p": timedelta(days=-1),
        },
        {
            "x.t < y.t": True,
            "x.t = x.d": True,
            "x.z = x.t": True,
            "y.t - x.t = 3000000": True,
            "y.t - x.t = x.p": True,
            "x.t + x.p = y.t": True,
            "y.t - 3000000 = x.t": True,
            "y.d - x.d = 172800000000": True,
            "x.p > y.p": True,
            "-x.p < 0": True,
            "x.p * 2 = 6000000": True,
            "x.p / 2 = 1500000": True,
            "x.p % 2000000 = 1000000": True,
            "y.t - x.t": timedelta(seconds=3),
            "y.d - x.d": timedelta(days=2),
            "x.t + x.p": datetime(2020, 1, 1, 0, 0, 3),
            "x.p * 2": timedelta(seconds=6),
            "x.p / 2": 1500000.0,
            "x.d": date(2020, 1, 1),
            "x.t": datetime(2020, 1, 1),
            "abs(y.p)": timedelta(days=1),
        },
    ),
    *_group(
        "strings",
        {"s": pa.string()},
        {"s": "Straße_100%"},
        {"s": "İ\\z\U0001f600"},
        {
            "x.s LIKE 'Straße%'": True,
            "x.s LIKE '%100\\%'": True,
            "x.s LIKE '%\\_100%'": True,
            "x.s LIKE '%\\_\\_100%'": False,
            "x.s LIKE 'Stra_e_100_'": True,
            "x.s LIKE '%0\\%_'": False,
            "y.s LIKE '_\\\\z_'": True,
            "y.s LIKE '%\\'": False,
            "x.s LIKE ''": False,
            "upper(x.s) = 'STRASSE_100%'": True,
            "lower(y.s) = 'i̇\\z\U0001f600'": True,
            "length(x.s) = 11": True,
            "length(y.s) = 4": True,
            "x.s CONTAINS 'ße'": True,
            "x.s CONTAINS ''": True,
            "x.s < y.s": True,
            "x.s != y.s": True,
            "upper(x.s)": "STRASSE_100%",
            "lower(y.s)": "i̇\\z\U0001f600",
            "length(y.s)": 4,
            "x.s": "Straße_100%",
        },
    ),
    *_group(
        "order of strings",
        {"s": pa.string()},
        {"s": "\U0001f600"},
        {"s": "\uffff"},
        {"x.s > y.s": True, "x.s <= y.s": False, "'' < x.s": True, "x.s = '\U0001f600'": True},
    ),
    *_group(
        "lists and bytes",
        {"l": pa.list_(pa.int64()), "f": pa.list_(pa.float64()), "b": pa.binary()},
        {"l": [1, None, 2], "f": [1.0, 2.0], "b": b"a\xff"},
        {"l": [1, None, 2], "f": [1.0], "b": b"b"},
        {
            "x.l = y.l": True,
            "x.l != y.l": False,
            "x.f = y.f": False,
            "x.f != y.f": True,
            "x.l = x.f": False,
            "x.b < y.b": True,
            "x.b = x.b": True,
            "x.b = y.b": False,
            "length(x.l) = 3": True,
            "length(x.b) = 2": True,
            "x.b": b"a\xff",
            "length(x.l)": 3,
        },
    ),
)
