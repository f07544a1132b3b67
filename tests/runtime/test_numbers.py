"""Exact arithmetic and comparison in 64 bits, held to Python's integers."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from cepheid.codegen.compile import compiled, interpreted
from cepheid.runtime import numbers

LOWEST, HIGHEST = -(2**63), 2**63 - 1
SMALL = [0, 1, -1, 2, -2, 3, 7, -7, 10**9, 2**31, 2**32, 3037000499, 3037000500, -3037000500]
LARGE = [2**53, 2**53 + 1, -(2**53) - 1, 10**18, 2**62, -(2**62), HIGHEST, LOWEST, LOWEST + 1]
FLOATS = [0.0, 0.5, -0.5, 1.0, 2.0**53, 2.0**62, 2.0**63, -(2.0**63), 2.0**63 + 2048, 1.8e19, 2.0**64, 1e30, -1e30]
PAIRS = list(itertools.product([*SMALL, *LARGE], repeat=2))


def _sign(left: float, right: float) -> int:
    return (left > right) - (left < right)


@pytest.mark.filterwarnings("error")
def test_results_that_do_not_fit_are_known_before() -> None:
    for a, b in PAIRS:
        left, right = np.int64(a), np.int64(b)
        for function, exact in (
            (numbers.sum_overflows, a + b),
            (numbers.difference_overflows, a - b),
            (numbers.product_overflows, a * b),
        ):
            assert bool(function(left, right)) == (not LOWEST <= exact <= HIGHEST), (function, a, b)  # type: ignore[arg-type]


@pytest.mark.filterwarnings("error")
def test_remainders_have_the_sign_of_the_divisor() -> None:
    for a, b in PAIRS:
        if b:
            assert numbers.modulo(np.int64(a), np.int64(b)) == a % b  # type: ignore[arg-type]
    for x, y in itertools.product([*FLOATS, math.inf, -math.inf], repeat=2):
        found = numbers.remainder(x, y)
        if y == 0 or math.isinf(x):
            assert math.isnan(found)
        else:
            assert found == x % y


@pytest.mark.filterwarnings("error")
def test_comparisons_are_exact() -> None:
    for a, b in PAIRS:
        left, right = np.int64(a), np.int64(b)
        for factor in (10, 100, 10**9):
            assert numbers.compare_scaled(left, right, factor) == _sign(a, b * factor)  # type: ignore[arg-type]
        assert numbers.unsigned_less(left, right) == (a % 2**64 < b % 2**64)  # type: ignore[arg-type]
        assert numbers.compare_unsigned(left, right) == _sign(a % 2**64, b)  # type: ignore[arg-type]
    for a, x in itertools.product([*SMALL, *LARGE], [*FLOATS, math.inf, -math.inf]):
        left = np.int64(a)
        assert numbers.compare_float(left, x) == _sign(a, x)  # type: ignore[arg-type]
        assert numbers.compare_unsigned_float(left, x) == _sign(a % 2**64, x)  # type: ignore[arg-type]
        assert numbers.unsigned_float(left) == float(a % 2**64)  # type: ignore[arg-type]


def test_sums_do_not_wrap_around() -> None:
    assert numbers.summed(HIGHEST, 1) == HIGHEST and numbers.summed(HIGHEST, -1) == HIGHEST - 1
    assert not numbers.decimal_overflows(10**18 - 2, 1) and numbers.decimal_overflows(10**18 - 1, 1)
    assert numbers.decimal_overflows(-(10**18) + 1, -1) and numbers.decimal_overflows(HIGHEST, HIGHEST)


def test_division_by_zero_is_null() -> None:
    assert math.isnan(numbers.divided(1.0, 0.0)) and numbers.divided(1.0, 4.0) == 0.25


SAMPLE = """
def step(left, right, x, y, found):
    for i in range(left.shape[0]):
        a, b = left[i], right[i]
        if not sum_overflows(a, b) and not difference_overflows(a, b) and not product_overflows(a, b):
            found[i] += modulo(a + b, 7) + modulo(a - b, 7) + modulo(a * b, 7)
        found[i] += compare_scaled(a, b, 100) + 3 * compare_float(a, x[i]) + 9 * compare_unsigned(a, b)
        found[i] += 27 * compare_unsigned_float(a, y[i]) + 81 * int(unsigned_less(a, b))
        found[i] += int(decimal_overflows(a, b)) + int(summed(a, b) == a) + int(unsigned_float(a) > 1.0)
        found[i] += int(remainder(x[i], y[i]) > 0.5) + int(divided(x[i], y[i]) > 0.5)
    return found
"""


def test_machine_code_computes_the_same() -> None:
    pairs = np.array(PAIRS, np.int64)
    left, right = np.ascontiguousarray(pairs[:, 0]), np.ascontiguousarray(pairs[:, 1])
    x, y = (np.resize(np.array(values), len(pairs)) for values in (FLOATS, [*FLOATS, math.inf]))
    for array in (left, right, x, y):
        array.flags.writeable = False
    types = ["int64", "int64", "float64", "float64", "int64!"]
    expected = interpreted(SAMPLE)(left, right, x, y, np.zeros(len(pairs), np.int64))
    found = compiled(SAMPLE, types)(left, right, x, y, np.zeros(len(pairs), np.int64))
    assert found.tolist() == expected.tolist()
