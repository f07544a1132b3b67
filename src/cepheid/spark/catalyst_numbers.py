"""Arithmetic and comparison of numbers, and the text of times, as Catalyst expressions. Undefined arithmetic is null,
whether Spark's ANSI mode is on or off."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal
from operator import add, eq, ge, gt, le, lt, mul, ne, sub, truediv
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F

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
