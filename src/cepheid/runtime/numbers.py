"""Exact arithmetic and comparison in 64 bits, as generated kernels call it.

A result that does not fit is undefined. Generated code asks for that first: `not sum_overflows(a, b) and a + b < c`.
"""

from __future__ import annotations

import math

import numpy as np

from cepheid.runtime.jit import njit

LOWEST, HIGHEST = -(2**63), 2**63 - 1
MOST_DECIMAL = 10**18
_SURE = 9.2e18
"""A product below it fits 64 bits, however its factors were rounded."""


@njit
def sum_overflows(left: int, right: int) -> bool:
    return left > HIGHEST - right if right > 0 else left < LOWEST - right


@njit
def difference_overflows(left: int, right: int) -> bool:
    return left < LOWEST + right if right > 0 else left > HIGHEST + right


@njit
def product_overflows(left: int, right: int) -> bool:
    estimate = float(left) * float(right)
    if -_SURE < estimate < _SURE:
        return False
    if left == LOWEST or right == LOWEST:
        return left != 1 and right != 1
    size, other = abs(left), abs(right)
    if other == 1:
        return False
    most = HIGHEST // other
    if (left < 0) != (right < 0) and HIGHEST - most * other == other - 1:
        most += 1  # a negative product may be one larger in size
    return size > most


@njit
def modulo(left: int, right: int) -> int:
    """`left % right` with the sign of the divisor. The processor traps on the division of the lowest integer by -1."""
    return 0 if right == -1 else left % right


@njit
def compare_scaled(left: int, right: int, factor: int) -> int:
    """The sign of `left - right * factor`, for decimals with different digits after the point."""
    whole = left // factor
    if whole != right:
        return -1 if whole < right else 1
    return 1 if left > whole * factor else 0


@njit
def compare_float(left: int, right: float) -> int:
    """The sign of `left - right`, exact; `right` is not NaN."""
    if right >= 9223372036854775808.0:
        return -1
    if right < -9223372036854775808.0:
        return 1
    whole = math.floor(right)
    number = np.int64(whole)
    if left != number:
        return -1 if left < number else 1
    return -1 if right > whole else 0


@njit
def unsigned_less(left: int, right: int) -> bool:
    """Whether `left < right` for unsigned integers, which are stored as the signed ones with the same bits."""
    return (left ^ LOWEST) < (right ^ LOWEST)


@njit
def compare_unsigned(left: int, right: int) -> int:
    """The sign of `left - right`, for an unsigned and a signed integer."""
    if left < 0 or right < 0:
        return 1
    return -1 if left < right else 1 if left > right else 0


@njit
def unsigned_float(value: int) -> float:
    """The float nearest to an unsigned integer."""
    if value >= 0:
        return float(value)
    # Half of it, with its last bit kept for rounding, fits a signed integer.
    return 2.0 * float(((value >> 1) & HIGHEST) | (value & 1))


@njit
def compare_unsigned_float(left: int, right: float) -> int:
    """The sign of `left - right`, exact, for an unsigned integer; `right` is not NaN."""
    if left >= 0:
        return compare_float(left, right)
    if right < 9223372036854775808.0:
        return 1
    if right >= 18446744073709551616.0:
        return -1
    # Floats from 2 ** 63 on are whole.
    return compare_float(left ^ LOWEST, right - 9223372036854775808.0)


@njit
def remainder(left: float, right: float) -> float:
    """`left % right` with the sign of the divisor; NaN if it is undefined."""
    if right == 0.0 or left - left != 0.0:
        return np.nan
    rest = float(np.fmod(left, right))
    return rest + right if rest != 0.0 and (rest < 0.0) != (right < 0.0) else rest


@njit
def divided(left: float, right: float) -> float:
    return np.nan if right == 0.0 else left / right


@njit
def float_sum(total: float) -> float:
    """A running sum of floats as a value: null over no values, where it is -0.0."""
    return np.nan if total == 0.0 and math.copysign(1.0, total) < 0.0 else total


@njit
def rounded_float(value: float, digits: int) -> float:
    """The value rounded to so many digits after the point, halves away from zero (see `values.rounded`)."""
    factor = 10.0 ** abs(digits)
    scaled = value * factor if digits >= 0 else value / factor
    size = abs(scaled)
    if not size < 4503599627370496.0:
        return value
    nearest = math.floor(size) + (1.0 if size - math.floor(size) >= 0.5 else 0.0)
    if scaled < 0.0:
        nearest = -nearest
    return (nearest / factor if digits >= 0 else nearest * factor) + 0.0


@njit
def rounded_units(value: int, unit: int) -> int:
    """How many units a number is, halves away from zero."""
    count = abs(value) // unit
    count += 1 if abs(value) - count * unit >= unit - unit // 2 else 0
    return -count if value < 0 else count


@njit
def summed(total: int, value: int) -> int:
    """The sum, or the first operand if it overflows."""
    return total if sum_overflows(total, value) else total + value


@njit
def decimal_overflows(total: int, value: int) -> bool:
    """Whether the sum of short decimals has more than 18 digits."""
    return sum_overflows(total, value) or not -MOST_DECIMAL < total + value < MOST_DECIMAL
