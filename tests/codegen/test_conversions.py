"""Functions of strings and CAST over columns give the values of their definitions, and are computed as columns."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import cepheid
from cepheid.codegen import float_texts, vector

_TEXTS = ["", "a", "ab", "abc", " a b ", "  ", "ß😀e\u0301x", "\ta\n", "\u00a0x\u00a0", None, "12"]
_COLUMNS: dict[str, pa.Array] = {
    "s": pa.array(_TEXTS),
    "r": pa.array(_TEXTS[::-1]),
    "i": pa.array([0, 1, -1, 2**63 - 1, -(2**63), 2**53 + 1, -(2**53) - 1, 99, 1000, None, 10**18], pa.int64()),
    "q": pa.array([0, 1, 2**64 - 1, 2**63, 2**63 - 1, 2**53 + 1, 7, 8, 9, None, 2], pa.uint64()),
    "f": pa.array([0.0, -0.0, 2.5, -2.5, 2.0**63, -(2.0**63), float("inf"), float("nan"), 1e300, None, -0.9]),
    "g": pa.array([0.285, 1.005, 2.675, 0.125, -0.135, 4.35, 99.995, 1e-9, 12345678.005, None, 0.5]),
    "d": pa.array(
        [*map(Decimal, ["0", "0.005", "0.015", "-0.005", "-0.015", "99.995", "-99.994", "12345.678", "-7", "1"]), None]
    ).cast(pa.decimal128(12, 3)),
    "e": pa.array(
        [*map(Decimal, ["0", "0.5", "-0.5", "99999999999999999999", "1", "2", "3", "4", "5", "6"]), None]
    ).cast(pa.decimal128(30, 1)),
    "b": pa.array([True, False, None] * 3 + [True, False]),
    "u": pa.array([date(1, 1, 1), date(9999, 12, 31), date(1969, 12, 31), None, *[date(2024, 2, 29)] * 7]),
    "t": pa.array(
        [datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999999), datetime(1969, 12, 31, 1, 2, 3, 500000), None]
        + [datetime(2024, 2, 29, 10, 20, 30, n) for n in (0, 1, 10, 100000, 120000, 999999, 5)],
        pa.timestamp("us"),
    ),
    "far": pa.array([-(2**60), 2**60, 0, None, *[1] * 7], pa.int64()).cast(pa.timestamp("us"), safe=False),
}
_TABLE = pa.table({"type": ["A"] * 11, "ts": range(11), **_COLUMNS})
_EXPRESSIONS = [
    *(f"trim(a.{name})" for name in "sr"),
    *(f"substr(a.s, {at})" for at in (-5, -2, -1, 0, 1, 2, 9)),
    *(f"substr(a.s, {at}, {size})" for at in (-5, -2, -1, 0, 1, 2, 9) for size in (-1, 0, 1, 2, 9)),
    *("concat(a.s, 'x')", "concat('x', a.s, '')", "concat(a.s, a.r)", "concat(a.s, 'é', a.r, a.s)", "concat('x', 'y')"),
    *(f"CAST(a.{name} AS {kind})" for name in "iqfdeb" for kind in ("int", "double", "boolean", "string")),
    *(f"CAST(a.{name} AS decimal({kind}))" for name in "idfg" for kind in ("4, 2", "18, 4", "18, 18", "3, 0", "38, 2")),
    *(f"CAST(a.{name} AS {kind})" for name in ("u", "t", "far") for kind in ("string", "timestamp", "date")),
    "CAST(a.s AS string)",
]


def _values(expression: str, evaluator: str | None) -> list[Any]:
    found = cepheid.match(f"EVENT A a RETURN a.ts AS n, {expression} AS c", _TABLE, evaluator=evaluator)
    column = found.sort_by("n").column("c")
    if pa.types.is_temporal(column.type):  # Python has fewer years
        column = column.cast(pa.int32() if pa.types.is_date32(column.type) else pa.int64())
    return [None if value != value else value for value in column.to_pylist()]


@pytest.mark.parametrize("expression", _EXPRESSIONS)
def test_columns_have_the_values_of_the_definition(expression: str) -> None:
    wanted = _values(expression, "reference")
    assert list(map(repr, _values(expression, None))) == list(map(repr, wanted)) and wanted != [None] * 11


_OF_COLUMNS = [
    *("trim(a.s)", "substr(a.s, 2, 3)", "concat(a.s, '!')", "concat(a.s, a.s)", "CAST(a.i AS double)"),
    *("CAST(a.f AS int)", "CAST(a.i AS string)", "CAST(a.i AS decimal(12, 2))", "CAST(a.t AS string)"),
    *(
        "CAST(a.d AS int)",
        "CAST(a.d AS double)",
        "CAST(a.d AS decimal(8, 1))",
        "CAST(a.f AS decimal(9, 3))",
        "CAST(a.f AS boolean)",
        "CAST(a.f AS string)",
        "CAST(a.s AS int)",
        "CAST(a.s AS double)",
        "CAST(a.s AS decimal(12, 2))",
    ),
]


@pytest.mark.parametrize("expression", _OF_COLUMNS)
def test_no_row_is_computed_by_its_definition(expression: str, monkeypatch: pytest.MonkeyPatch) -> None:
    count = 2_000
    numbers = np.arange(count)
    table = pa.table(
        {
            "type": ["A"] * count,
            "ts": numbers,
            "i": numbers,
            "f": numbers / 7,
            "s": numbers.astype(str),
            "t": pa.array(numbers).cast(pa.timestamp("us")),
            "d": pa.array(numbers).cast(pa.decimal128(19)).cast(pa.decimal128(12, 2)),
        }
    )
    calls = 0

    def counted(*_: Any) -> None:
        nonlocal calls
        calls += 1

    monkeypatch.setattr(vector, "call", counted)
    assert cepheid.match(f"EVENT A a RETURN {expression} AS c", table).num_rows == count
    assert calls == 0


_NUMBERS = [
    *(
        "7",
        "-7",
        "+7",
        "007",
        "-0",
        "0",
        "",
        " ",
        " 12 ",
        "12\n",
        "1_0",
        "0x1f",
        "1e3",
        "1e5000",
        "1e-5000",
        ".5",
        "5.",
        "-.5",
        ".",
    ),
    *(
        "1.5",
        "-1.25",
        "1.005",
        "999999.995",
        "0.1",
        "-0.0",
        "abc",
        "nan",
        "inf",
        "-Infinity",
        "1 2",
        "1,5",
        "\u0661",
        "\u00a01",
    ),
    *("9223372036854775807", "9223372036854775808", "-9223372036854775808", "99999999999999999999999999999999999999"),
    *("123456789012345678", "1234567890123456789", "-123456789012345678.9", "0.1234567890123456789012345678901234567"),
    *("17976931348623157" + "0" * 292, "1" + "0" * 400, "0." + "0" * 400 + "1", "2.2250738585072011e-308", "8.41e21"),
    *("9007199254740993", "9007199254740992.999", "4.35", "0.000001", "1" * 30 + "." + "1" * 30),
]


@pytest.mark.parametrize(
    "kind", ["int", "double", "decimal(9, 2)", "decimal(18, 0)", "decimal(18, 18)", "decimal(38, 4)"]
)
@pytest.mark.parametrize("encoded", [False, True])
def test_strings_are_numbers_by_the_definition(kind: str, encoded: bool) -> None:
    rng = np.random.default_rng(3)
    texts = [
        *_NUMBERS,
        None,
        *map(repr, _floats(rng).tolist()),
        *map(str, rng.integers(-(2**63), 2**63 - 1, 200).tolist()),
    ]
    column = pa.array([text for text in texts for _ in range(1 + encoded)])
    rows = {
        "type": ["A"] * len(column),
        "ts": range(len(column)),
        "s": column.dictionary_encode() if encoded else column,
    }
    query = f"EVENT A a RETURN a.ts AS n, CAST(a.s AS {kind}) AS c"
    one, two = (cepheid.match(query, pa.table(rows), evaluator=name).sort_by("n")["c"] for name in ("reference", None))
    assert one.type == two.type and list(map(repr, one.to_pylist())) == list(map(repr, two.to_pylist()))


def _floats(rng: np.random.Generator) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Of all sizes: whole, near the bounds at which the form of the text changes, and of random bits."""
    bits = rng.integers(0, 2**63, 500).view(np.float64) * rng.choice([1, -1], 500)
    bounds = np.array([1e-10, 1e-5, 1e-4, 1.0, 1e9, 1e10, 1e15, 1e16, 1e17, 1e22, 2.0**53])
    near = np.concatenate(
        [bounds, np.nextafter(bounds, 0), np.nextafter(bounds, np.inf), -bounds, bounds + 1, bounds * 3]
    )
    whole = np.concatenate([rng.integers(-(10**n), 10**n, 40).astype(float) for n in range(1, 18)])
    return np.concatenate(
        [bits, near, whole, whole / 7, whole / 1000, rng.random(200) * 1e-3, [0.0, -0.0, np.inf, -np.inf]]
    )


def test_texts_of_floats_are_those_of_the_definition(monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(3):
        values = _floats(np.random.default_rng(seed))
        texts = float_texts.float_texts(values).to_pylist()
        known = [text for text, value in zip(texts, values, strict=True) if value == value]
        assert known == [repr(value) for value in values.tolist() if value == value]
    # Another version of Arrow may write them in another form.
    monkeypatch.setattr(float_texts, "writes_as_defined", lambda: False)
    texts = float_texts.float_texts(values).to_pylist()
    assert [text for text, value in zip(texts, values, strict=True) if value == value] == known
