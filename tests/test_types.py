"""The type of every pair of operands, and types to Arrow and back."""

from __future__ import annotations

import itertools

import pyarrow as pa
import pytest

from cepheid import types as t

NUMBERS = (t.INTEGER, t.UNSIGNED, t.FLOAT, t.decimal(10, 2), t.decimal(30, 4))
OTHERS = (t.BOOLEAN, t.STRING, t.BINARY, t.DATE, t.TIMESTAMP, t.DURATION, t.list_of(t.INTEGER), t.RECORD)
OF_EACH = NUMBERS + OTHERS

ARITHMETIC = [
    ("+", t.INTEGER, t.INTEGER, t.INTEGER),
    ("/", t.INTEGER, t.INTEGER, t.FLOAT),
    ("%", t.UNSIGNED, t.INTEGER, t.INTEGER),
    ("*", t.INTEGER, t.FLOAT, t.FLOAT),
    ("+", t.decimal(10, 2), t.INTEGER, t.decimal(18, 2)),
    ("*", t.decimal(10, 2), t.decimal(10, 3), t.decimal(18, 5)),
    ("*", t.decimal(18, 10), t.decimal(18, 10), t.decimal(38, 20)),
    ("-", t.decimal(10, 2), t.decimal(20, 1), t.decimal(38, 2)),
    ("/", t.decimal(10, 2), t.INTEGER, t.FLOAT),
    ("-", t.TIMESTAMP, t.TIMESTAMP, t.DURATION),
    ("-", t.DATE, t.TIMESTAMP, t.DURATION),
    ("+", t.TIMESTAMP, t.TIMESTAMP, None),
    ("+", t.DATE, t.DURATION, t.TIMESTAMP),
    ("+", t.DURATION, t.TIMESTAMP, t.TIMESTAMP),
    ("-", t.DURATION, t.TIMESTAMP, None),
    ("-", t.TIMESTAMP, t.INTEGER, t.TIMESTAMP),
    ("*", t.DURATION, t.INTEGER, t.DURATION),
    ("*", t.FLOAT, t.DURATION, t.DURATION),
    ("/", t.DURATION, t.DURATION, t.FLOAT),
    ("/", t.DURATION, t.INTEGER, t.DURATION),
    ("/", t.DURATION, t.FLOAT, t.DURATION),
    ("/", t.DURATION, t.decimal(5, 2), t.DURATION),
    ("/", t.INTEGER, t.DURATION, None),
    ("%", t.DURATION, t.DURATION, t.DURATION),
    ("+", t.STRING, t.STRING, None),
    ("+", t.BOOLEAN, t.INTEGER, None),
    ("+", t.UNKNOWN, t.INTEGER, t.UNKNOWN),
    ("+", t.UNKNOWN, t.STRING, None),
]


@pytest.mark.parametrize(("op", "left", "right", "result"), ARITHMETIC)
def test_arithmetic(op: str, left: t.Type, right: t.Type, result: t.Type | None) -> None:
    assert t.arithmetic(op, left, right) == result


def test_comparison() -> None:
    for left, right in itertools.product(OF_EACH, repeat=2):
        both = {left.family, right.family}
        expected = left.family is right.family or {left, right} <= set(NUMBERS)
        expected |= both == {t.Family.DATE, t.Family.TIMESTAMP}
        expected |= (left.is_time and right in NUMBERS) or (right.is_time and left in NUMBERS)
        assert t.are_comparable(left, right) is expected, (left, right)
        assert t.are_comparable(left, right) == t.are_comparable(right, left)
        unordered = {t.Family.BOOLEAN, t.Family.LIST, t.Family.RECORD}
        assert t.have_order(left, right) is (expected and not both & unordered)


def test_united() -> None:
    assert t.united(t.INTEGER, t.FLOAT) == t.FLOAT
    assert t.united(t.UNKNOWN, t.STRING) == t.STRING
    assert t.united(t.INTEGER, t.UNSIGNED) == t.decimal(20, 0)
    assert t.united(t.decimal(10, 2), t.decimal(12, 1)) == t.decimal(13, 2)
    assert t.united(t.decimal(38, 0), t.decimal(38, 10)) == t.FLOAT
    assert t.united(t.STRING, t.INTEGER) == t.united(t.MIXED, t.FLOAT) == t.MIXED
    assert t.united(t.list_of(t.INTEGER), t.list_of(t.FLOAT)) == t.list_of(t.FLOAT)


@pytest.mark.parametrize("type_", OF_EACH[:-1], ids=str)
def test_arrow_keeps_the_type(type_: t.Type) -> None:
    arrow = t.to_arrow(type_)
    assert arrow is not None and t.from_arrow(arrow) == type_
    assert t.from_arrow(pa.dictionary(pa.int32(), arrow)) == type_
