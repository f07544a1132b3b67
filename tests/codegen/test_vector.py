"""Vectorised arithmetic and comparisons against Python's exact numbers."""

from __future__ import annotations

import math
import operator
from decimal import Decimal, localcontext
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cepheid import types
from cepheid.codegen.string_tests import contains, matches_like
from cepheid.codegen.typed_columns import Column, constant, from_arrow, to_arrow, to_python
from cepheid.codegen.vector import arithmetic, called, compared, negative
from cepheid.expr import Call

INTEGERS = st.one_of(
    st.integers(-5, 5),
    st.sampled_from([-(2**63), -(2**63) + 1, 2**63 - 1, 2**53, 2**53 + 1, 10**18]),
    st.integers(-(2**63), 2**63 - 1),
)
UNSIGNED = st.one_of(st.integers(0, 5), st.sampled_from([2**63 - 1, 2**63, 2**64 - 1]), st.integers(0, 2**64 - 1))
FLOATS = st.one_of(
    st.sampled_from([0.0, -0.0, 0.5, 2.0**53, 2.0**63, -(2.0**63), 2.0**64, math.inf, -math.inf, 1e300]),
    st.floats(allow_nan=False),
)


def decimals(precision: int, scale: int) -> st.SearchStrategy[Decimal]:
    most = 10**precision - 1
    return st.integers(-most, most).map(lambda n: _decimal(n, scale))


def _decimal(unscaled: int, scale: int) -> Decimal:
    with localcontext(prec=60):
        return Decimal(unscaled).scaleb(-scale)


KINDS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "integer": (pa.int64(), INTEGERS),
    "unsigned": (pa.uint64(), UNSIGNED),
    "float": (pa.float64(), FLOATS),
    "short": (pa.decimal128(18, 4), decimals(18, 4)),
    "shorter": (pa.decimal128(5, 2), decimals(5, 2)),
    "long": (pa.decimal128(38, 10), decimals(38, 10)),
}
OPERATORS = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


@st.composite
def pairs(draw: st.DrawFn) -> tuple[str, str, list[Any], list[Any]]:
    left, right = (draw(st.sampled_from(sorted(KINDS))) for _ in range(2))
    rows = draw(st.lists(st.tuples(*(st.one_of(st.none(), KINDS[kind][1]) for kind in (left, right))), min_size=1))
    return left, right, [a for a, _ in rows], [b for _, b in rows]


def column(kind: str, values: list[Any]) -> Column:
    return from_arrow(pa.array(values, KINDS[kind][0]))


def comparable(value: Any, other: Any) -> Any:
    """A decimal next to a float is its float."""
    if isinstance(value, Decimal) and isinstance(other, float):
        scale = -int(value.as_tuple().exponent)
        with localcontext(prec=60):
            return float(int(value.scaleb(scale))) / 10.0**scale
    return value


@given(pairs(), st.sampled_from(sorted(OPERATORS)))
def test_comparisons_are_exact(pair: tuple[str, str, list[Any], list[Any]], op: str) -> None:
    left, right, a, b = pair
    result = compared(op, column(left, a), column(right, b), len(a)).tolist()
    wanted = [
        x is not None and y is not None and OPERATORS[op](comparable(x, y), comparable(y, x))
        for x, y in zip(a, b, strict=True)
    ]
    assert result == wanted


@given(pairs(), st.sampled_from("+-*/%"))
def test_arithmetic_is_exact_or_null(pair: tuple[str, str, list[Any], list[Any]], op: str) -> None:
    left, right, a, b = pair
    result = arithmetic(op, column(left, a), column(right, b))
    type_ = types.arithmetic(op, types.from_arrow(KINDS[left][0]), types.from_arrow(KINDS[right][0]))
    assert type_ is not None and result.type == type_
    for x, y, value in zip(a, b, to_python(result, len(a)), strict=True):
        wanted = by_python(op, x, y, type_)
        assert value == wanted, (x, op, y, value, wanted)
    arrow = types.to_arrow(type_)
    assert arrow is not None and to_arrow(result, len(a), arrow).type == arrow


def by_python(op: str, x: Any, y: Any, type_: types.Type) -> Any:
    if x is None or y is None:
        return None
    if type_ == types.FLOAT:
        x, y = (comparable(side, 0.0) if isinstance(side, Decimal) else float(side) for side in (x, y))
        return by_floats(op, x, y)
    if any(isinstance(side, int) and side >= 2**63 for side in (x, y)) or (op == "%" and y == 0):
        return None
    with localcontext(prec=200):
        if op == "%" and type_.is_short and any(abs(side) * 10**type_.scale >= 2**63 for side in (x, y)):
            return None
        if op == "%":
            value = x - y * ((Decimal(x) / Decimal(y)).to_integral_value("ROUND_FLOOR"))
        else:
            value = {"+": operator.add, "-": operator.sub, "*": operator.mul}[op](x, y)
        if type_ == types.INTEGER:
            return int(value) if -(2**63) <= value < 2**63 else None
        return value if abs(value.scaleb(type_.scale)) < 10**type_.precision else None


def by_floats(op: str, x: float, y: float) -> float | None:
    try:
        value = {"+": x + y, "-": x - y, "*": x * y}[op] if op in "+-*" else x / y if op == "/" else x % y
    except (ZeroDivisionError, ValueError):
        return None
    return None if math.isnan(value) else value


def test_the_smallest_integer_is_a_value() -> None:
    lowest = from_arrow(pa.array([-(2**63), None, 5]))
    assert to_python(lowest, 3) == [-(2**63), None, 5]
    assert to_python(negative(lowest), 3) == [None, None, -5]
    assert to_python(called(Call("abs", ()), [lowest], 3), 3) == [None, None, 5]


@pytest.mark.parametrize(
    ("fn", "values", "wanted"),
    [
        ("floor", [math.inf, -1.5, None], [math.inf, -2.0, None]),
        ("ceil", [Decimal("-1.50"), Decimal("1.01"), None], [Decimal(-1), Decimal(2), None]),
        ("floor", [Decimal("-1.50"), Decimal("1.01"), None], [Decimal(-2), Decimal(1), None]),
        ("sqrt", [4, -1, None], [2.0, None, None]),
        ("upper", ["straße", "ŉ", None], ["STRASSE", "ʼN", None]),
        ("lower", ["ABC", "x", None], ["abc", "x", None]),
        ("length", ["a😀", "", None], [2, 0, None]),
    ],
)
def test_functions(fn: str, values: list[Any], wanted: list[Any]) -> None:
    assert to_python(called(Call(fn, ()), [from_arrow(pa.array(values))], len(values)), len(values)) == wanted


@pytest.mark.parametrize(
    ("pattern", "wanted"),
    [("a%", [True, True, False, False]), (r"a\%", [False, True, False, False]), ("_", [False, False, True, False])],
)
def test_like(pattern: str, wanted: list[bool]) -> None:
    texts = from_arrow(pa.array(["a\nb", "a%", "😀", None]))
    assert matches_like(texts, constant(pattern), 4).tolist() == wanted
    assert matches_like(texts, from_arrow(pa.array([pattern] * 4)), 4).tolist() == wanted


def test_strings_contain_parts() -> None:
    texts = from_arrow(pa.array(["abc", "b", None]))
    assert contains(texts, constant("b"), 3).tolist() == [True, True, False]
    assert contains(texts, from_arrow(pa.array(["c", "c", "c"])), 3).tolist() == [True, False, False]


@pytest.mark.parametrize(
    "array",
    [
        pa.array([1, None], pa.timestamp("ns")),
        pa.array([1, None], pa.timestamp("s", "UTC")),
        pa.array([1, None], pa.date32()),
        pa.array([1, None], pa.duration("ms")),
        pa.array(["a", None]).dictionary_encode(),
        pa.array(["a", None], pa.large_string()),
        pa.array([b"a", None]),
        pa.array([True, None]),
        pa.array([None, None]),
        pa.array([], pa.string()),
        pa.array([[1], None]),
        pa.array([Decimal("1.5"), None], pa.decimal256(40, 2)),
    ],
    ids=lambda array: str(array.type),
)
def test_every_type_of_column_is_read(array: pa.Array) -> None:
    length = len(array)
    values = from_arrow(array)
    assert len(to_python(values, length)) == length
    assert compared("=", values, values, length).tolist() in ([True, False], [False, False], [])
