"""Arithmetic, comparison, rounding and conversion of values as Catalyst expressions. Undefined arithmetic is null,
whether Spark's ANSI mode is on or off."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal
from operator import add, eq, ge, gt, le, lt, mul, ne, sub, truediv
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cepheid.types import Family, Type

MICROSECONDS_A_DAY = 86_400_000_000
LEAST, LARGEST = -(2**63), 2**63 - 1
COMPARE: dict[str, Callable[[Any, Any], Column]] = {"=": eq, "!=": ne, "<": lt, "<=": le, ">": gt, ">=": ge}
ARITHMETIC: dict[str, Callable[[Any, Any], Column]] = {"+": add, "-": sub, "*": mul, "/": truediv}


class OutsideCatalyst(Exception):
    """Spark has no expression that gives the value of this one."""


def compare_with_float(op: str, whole: Column, bound: Any) -> Column:
    """An integer column and a float, as a comparison of integers, which files understand."""
    lower = -math.inf if bound < LEAST else math.inf if bound > LARGEST else math.floor(bound)
    if lower == bound and math.isfinite(lower):
        return COMPARE[op](whole, F.lit(lower))
    if op in ("=", "!="):
        return F.lit(False) if op == "=" else whole.isNotNull()
    if math.isfinite(lower):
        return whole <= F.lit(lower) if op in ("<", "<=") else whole > F.lit(lower)
    return whole.isNotNull() if (op in ("<", "<=")) == (bound > 0) else F.lit(False)


def integer_arithmetic(op: str, a: Column, b: Column) -> Column:
    match op:
        case "+":
            return F.try_add(a, b)
        case "-":
            return F.try_subtract(a, b)
        case "*":
            return F.try_multiply(a, b)
        case "%":
            return remainder(a, b)
        case _:
            raise OutsideCatalyst


def float_arithmetic(op: str, a: Column, b: Column) -> Column:
    if op == "%":
        return remainder(a, b)
    return a / F.nullif(b, F.lit(0.0)) if op == "/" else ARITHMETIC[op](a, b)


def remainder(a: Column, b: Column) -> Column:
    """A remainder has the sign of its divisor, as Python's; by zero it is undefined."""
    rest = a % F.nullif(b, F.lit(0))
    return F.when((rest != 0) & ((rest < 0) != (b < 0)), rest + b).otherwise(rest)


def rescalable(of: Column, digits: int) -> Column:
    """A decimal; null if it needs more than 64 bits with so many more digits."""
    most = Decimal(LARGEST // 10**digits)
    return F.when(F.abs(of) <= F.lit(most), of) if digits else of


def not_nan(of: Column) -> Column:
    return F.nanvl(of, F.lit(None).cast("double"))


_SECOND, _DAY = 1_000_000, 86_400_000_000
_FIRST, _BEYOND = -62_135_596_800_000_000, 253_402_300_800_000_000
"""Microseconds from 1970 to the year 1 and to the year 10000."""


def time_text(count: Column, is_date: bool) -> Column:
    """A count of microseconds as `2024-03-01` or `2024-03-01 08:00:00.5`, in UTC whatever the zone of the session.
    Differences that are multiples of a day or a second are divided exactly."""
    of_day, of_second = F.pmod(count, F.lit(_DAY)), F.pmod(count, F.lit(_SECOND))
    text = F.date_from_unix_date(((count - of_day) / F.lit(_DAY)).cast("int")).cast("string")
    if not is_date:
        second = ((of_day - of_second) / F.lit(_SECOND)).cast("long")
        parts = (F.floor(second / 3600), F.floor(second / 60) % 60, second % 60)
        clock = F.format_string("%02d:%02d:%02d", *parts)
        digits = F.rtrim(F.lpad(of_second.cast("string"), 6, "0"), F.lit("0"))
        text = F.concat(text, F.lit(" "), clock, F.when(of_second == 0, "").otherwise(F.concat(F.lit("."), digits)))
    return F.when((count >= F.lit(_FIRST)) & (count < F.lit(_BEYOND)), text)


def double(value: Column, kind: Type) -> Column:
    """The nearest float of a number; of a decimal, its digits as an integer divided by a power of ten."""
    if kind.family is not Family.DECIMAL:
        return value.cast("double")
    if not kind.is_short:
        raise OutsideCatalyst
    digits = value * F.lit(Decimal(10**kind.scale))
    return digits.cast("long").cast("double") / F.lit(10.0**kind.scale)


def rounded(value: Column, kind: Type, digits: int, result: Type) -> Column:
    """By the definition: Spark rounds the decimal text of a float."""
    match kind.family:
        case Family.INTEGER if digits >= 0:
            return value
        case Family.DECIMAL if kind.precision >= 38:
            raise OutsideCatalyst  # Spark fails where the rounded number has a digit more
        case Family.DECIMAL if digits >= 0:
            return F.round(value, min(digits, kind.scale)).try_cast(T.DecimalType(result.precision, result.scale))
        case Family.FLOAT:
            factor = F.lit(10.0 ** abs(digits))
            scaled = value * factor if digits >= 0 else value / factor
            size = F.abs(scaled)
            # These give 64-bit integers; beyond those every double is whole.
            lower = F.when(size < 2.0**52, F.floor(size)).cast("double")
            nearest = (lower + F.when(size - lower >= 0.5, 1.0).otherwise(0.0)) * F.signum(scaled)
            unscaled = nearest / factor if digits >= 0 else nearest * factor
            return F.when(size < 2.0**52, unscaled).otherwise(value)
        case _:
            raise OutsideCatalyst


def cast(value: Column, kind: Type, result: Type) -> Column:
    family = kind.family
    match result.family:
        case Family.DECIMAL if family in (Family.INTEGER, Family.DECIMAL):
            return value.try_cast(T.DecimalType(result.precision, result.scale))
        case same if same is family:
            return value
        case Family.INTEGER if family is Family.FLOAT:
            return F.when((value >= -(2.0**63)) & (value < 2.0**63), value).cast("long")
        case Family.INTEGER if family is Family.BOOLEAN:
            return value.cast("long")
        case Family.FLOAT if family in (Family.INTEGER, Family.DECIMAL):
            return double(value, kind)
        case Family.STRING if family in (Family.INTEGER, Family.BOOLEAN):
            return value.cast("string")
        case Family.STRING if family in (Family.DATE, Family.TIMESTAMP):
            return time_text(value, family is Family.DATE)
        case Family.BOOLEAN if family in (Family.INTEGER, Family.FLOAT):
            return value != 0
        case Family.TIMESTAMP if family is Family.DATE:
            return value
        case Family.DATE if family is Family.TIMESTAMP:
            return value - F.pmod(value, F.lit(MICROSECONDS_A_DAY))
        case _:
            raise OutsideCatalyst
