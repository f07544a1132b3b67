"""Arithmetic and comparison of values: the definition that every evaluator is held to (ruling 14).

A value is an int (integers; dates, timestamps and durations in microseconds), a float, a Decimal with the scale of its
type, a bool, a string, bytes, a list, or None for null. NaN counts as null wherever it is read; attributes that are
output as they are keep it.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Context, Decimal
from typing import Any

from cepheid import types
from cepheid.events import timestamp, timestamp_text
from cepheid.types import Family, Type, type_of

LOWEST, HIGHEST = -(2**63), 2**63 - 1
_OPERATORS: Mapping[str, Callable[[Any, Any], Any]] = {
    **{"=": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge},
    **{"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv, "%": operator.mod},
}

_EXACT = Context(prec=1000)
"""Python's decimals are exact as values, but operations on them round to the digits of a context, by default 28."""


def unscaled(value: int | Decimal, scale: int) -> int:
    """The value as a count of units of the last digit.

    >>> unscaled(Decimal("1.50"), 3)
    1500
    """
    if isinstance(value, int):
        return value * int(10**scale)
    sign, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    number = int("".join(map(str, digits))) * (-1 if sign else 1)
    factor = int(10 ** abs(exponent + scale))
    return number * factor if exponent + scale >= 0 else number // factor


def decimal_of(number: int, scale: int) -> Decimal:
    """The decimal with this number of units of its last digit."""
    return Decimal((number < 0, tuple(map(int, str(abs(number)))), -scale))


def without_zeros(value: Decimal) -> Decimal:
    """The decimal without zeros at its end. `Decimal.normalize` would round it to 28 digits."""
    return value.normalize(_EXACT)


def to_float(value: Any) -> float:
    """The nearest float. A decimal is its unscaled integer as a float, divided by the power of ten."""
    if not isinstance(value, Decimal):
        return float(value)
    scale = max(-int(value.as_tuple().exponent), 0)
    return float(unscaled(value, scale)) / 10.0**scale


def fitted(value: Any, type_: Type) -> Any:
    """A value in the type of its attribute, which may be wider than that of the value; NaN is null."""
    if is_null(value):
        return None
    if isinstance(value, int | Decimal) and not isinstance(value, bool):
        if type_.family is Family.FLOAT:
            return to_float(value)
        if type_.family is Family.DECIMAL:
            return decimal_of(unscaled(value, type_.scale), type_.scale)
    return value


def is_null(value: Any) -> bool:
    """Whether a value counts as null: null itself, or NaN."""
    return value is None or (isinstance(value, float) and math.isnan(value))


def is_number(value: Any) -> bool:
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)


# --- arithmetic -------------------------------------------------------------------------------------------------------


def arithmetic(op: str, left: Any, right: Any, type_: Type = types.UNKNOWN) -> Any:
    """`left op right` as a value of this type; null if it is undefined: a null operand, a division by zero, a result
    that does not fit its type, NaN.

    >>> arithmetic("+", 2**53, 1), arithmetic("+", HIGHEST, 1), arithmetic("%", -7, 3), arithmetic("/", 1, 2)
    (9007199254740993, None, 2, 0.5)
    >>> arithmetic("/", 5, 2, types.DURATION), arithmetic("*", 5, 0.5, types.DURATION)
    (3, 3)
    """
    if not (is_number(left) and is_number(right)):
        return None
    known = types.arithmetic(op, type_of(left), type_of(right)) if type_.is_unknown else type_
    if known is None or (op in "/%" and right == 0):
        return None
    match known.family:
        case Family.FLOAT:
            return _of_floats(op, to_float(left), to_float(right))
        case Family.DECIMAL:
            return _of_decimals(op, left, right, known)
        case Family.DURATION if types.is_rounded(op, type_of(left), type_of(right)):
            quotient = _of_floats(op, to_float(left), to_float(right))
            return None if quotient is None else as_integer(rounded(quotient))
        case _:
            return _of_integers(op, left, right)


def _of_floats(op: str, left: float, right: float) -> float | None:
    result: float = _OPERATORS[op](left, right)
    return None if math.isnan(result) else result


def _of_integers(op: str, left: Any, right: Any) -> int | None:
    if not all(isinstance(side, int) and LOWEST <= side <= HIGHEST for side in (left, right)):
        return None
    result: int = _OPERATORS[op](left, right)
    return result if LOWEST <= result <= HIGHEST else None


def _of_decimals(op: str, left: Any, right: Any, type_: Type) -> Decimal | None:
    for side in (left, right):
        if isinstance(side, float) or (isinstance(side, int) and not LOWEST <= side <= HIGHEST):
            return None
    scales = [0 if isinstance(side, int) else max(-side.as_tuple().exponent, 0) for side in (left, right)]
    if op != "*":
        scales = [type_.scale, type_.scale]
    numbers = [unscaled(side, scale) for side, scale in zip((left, right), scales, strict=True)]
    if type_.is_short and not all(LOWEST <= number <= HIGHEST for number in numbers):
        return None
    result: int = _OPERATORS[op](*numbers)
    if op == "*" and sum(scales) != type_.scale:  # the scale of a type may be negative
        result = unscaled(decimal_of(result, sum(scales)), type_.scale)
    return decimal_of(result, type_.scale) if abs(result) < 10**type_.precision else None


def total(values: list[Any], type_: Type) -> Any:
    """The sum of values, in their order; null once a partial sum does not fit the type."""
    result: Any = 0
    for value in values:
        result = arithmetic("+", result, fitted(value, type_), type_)
        if result is None:
            return None
    return result


def exact_sum(values: Sequence[Any]) -> int | float | None:
    """The sum of integers or floats, whatever their order: that of floats is rounded once. Null if there are no values,
    or if the sum does not fit.

    >>> exact_sum([0.1] * 10), exact_sum([2**63 - 1, 1, -1]), exact_sum([2**62, 2**62]), exact_sum([])
    (1.0, 9223372036854775807, None, None)
    """
    if not values:
        return None
    if all(isinstance(value, int) for value in values):
        whole = sum(values)
        return whole if LOWEST <= whole <= HIGHEST else None
    try:
        found = math.fsum(values)
    except (OverflowError, ValueError):  # of infinities with both signs
        return None
    return None if math.isnan(found) else found


def mean(values: list[Any], type_: Type) -> float | int | None:
    """The average as a float, or of durations as a duration: the exact sum (of floats, in their order) divided by the
    count."""
    whole = total(values, type_)
    return None if whole is None else arithmetic("/", whole, len(values), types.average(type_))


# --- comparison -------------------------------------------------------------------------------------------------------


def compare(op: str, left: Any, right: Any) -> bool:
    """A comparison; false if a side is null or the operator is not defined for the two. Numbers compare by value:
    integers and decimals exactly, a decimal and a float as floats.

    >>> compare("=", 2**53 + 1, 2.0**53), compare("=", [1, None], [1.0, None]), compare("<", True, 2)
    (False, True, False)
    """
    if is_null(left) or is_null(right):
        return False
    if isinstance(left, list | tuple) and isinstance(right, list | tuple):
        return op in ("=", "!=") and _are_equal(left, right) == (op == "=")
    if is_number(left) and is_number(right):
        if {type(left), type(right)} == {float, Decimal}:
            left, right = to_float(left), to_float(right)
        return bool(_OPERATORS[op](left, right))
    if type(left) is not type(right) or (op not in ("=", "!=") and not isinstance(left, str | bytes)):
        return False
    return bool(_OPERATORS[op](left, right))


def _are_equal(left: Any, right: Any) -> bool:
    """Lists are equal if their items are; there, null equals null."""
    if isinstance(left, list | tuple) and isinstance(right, list | tuple):
        return len(left) == len(right) and all(map(_are_equal, left, right))
    return (is_null(left) and is_null(right)) or compare("=", left, right)


# --- functions --------------------------------------------------------------------------------------------------------


def absolute(value: Any) -> Any:
    if isinstance(value, Decimal):
        return value.copy_abs()
    return None if value == LOWEST and isinstance(value, int) else abs(value)


def floor(value: Any) -> Any:
    """The largest whole number that is not greater, in the type of the value; never -0.0."""
    match value:
        case float():
            return float(math.floor(value)) if math.isfinite(value) else value
        case Decimal():
            return Decimal(unscaled(value, 0))
        case _:
            return value


def ceil(value: Any) -> Any:
    match value:
        case float():
            return -floor(-value) + 0.0
        case Decimal():
            return Decimal(-unscaled(value.copy_negate(), 0))
        case _:
            return value


def rounded(value: Any, digits: int = 0) -> Any:
    """Rounded to so many digits after the point, halves away from zero. A float is multiplied by the power of ten,
    rounded and divided again; one that has no digit there is unchanged."""
    match value:
        case float():
            factor = 10.0 ** abs(digits)
            scaled = value * factor if digits >= 0 else value / factor
            size = abs(scaled)
            if not size < 2.0**52:
                return value
            nearest = math.copysign(math.floor(size) + (size - math.floor(size) >= 0.5), scaled)
            return (nearest / factor if digits >= 0 else nearest * factor) + 0.0
        case Decimal():
            scale = max(-int(value.as_tuple().exponent), 0)
            if digits >= scale:
                return value
            units = _nearest(unscaled(value, scale), int(10 ** (scale - digits)))
            return decimal_of(units * int(10 ** max(-digits, 0)), max(digits, 0))
        case _:
            result = value if digits >= 0 else _nearest(value, int(10**-digits)) * int(10**-digits)
            return result if LOWEST <= result <= HIGHEST else None


def _nearest(number: int, unit: int) -> int:
    """How many units a number is, halves away from zero."""
    count = (abs(number) + unit // 2) // unit
    return -count if number < 0 else count


def extreme(op: str, candidates: Sequence[Any]) -> Any:
    """The least (`<`) or the greatest (`>`) of the values that are not null, the first of equal ones."""
    known = [value for value in candidates if value is not None]
    best = known[0] if known else None
    for value in known[1:]:
        best = value if compare(op, value, best) else best
    return best


def positive_zero(value: Any) -> Any:
    """The value, 0.0 for -0.0. The two are equal, so the least or greatest of a group, of which both may be, is 0.0."""
    return value + 0.0 if isinstance(value, float) else value


def of_group(choose: Callable[[list[Any]], Any], values: list[Any]) -> Any:
    """The least or greatest value of a group; null if the values have no order: lists, or strings beside numbers."""
    kinds = {"number" if is_number(value) else type(value) for value in values}
    if len(kinds) > 1 or not kinds <= {"number", bool, str, bytes}:
        return None
    return positive_zero(choose(values))


# --- dates ------------------------------------------------------------------------------------------------------------
# Counts of microseconds are integers or arrays of them, so there are no branches: a condition counts as 0 or 1.

_DAY = 86_400_000_000
_DAYS_BEFORE_1970 = 719_468
"""The days from 1 March of the year 0 to 1 January 1970."""
_FOUR_CENTURIES = 146_097


def _civil(time: Any) -> tuple[Any, Any, Any]:
    """The year, month and day of a time, in the Gregorian calendar before and after its introduction. A year begins in
    March here, so that the leap day is its last."""
    days = time // _DAY + _DAYS_BEFORE_1970
    era = days // _FOUR_CENTURIES
    day_of_era = days - era * _FOUR_CENTURIES
    year_of_era = (day_of_era - day_of_era // 1460 + day_of_era // 36_524 - day_of_era // 146_096) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    shifted = (5 * day_of_year + 2) // 153
    month = shifted + 3 - 12 * (shifted >= 10)
    return year_of_era + era * 400 + (month <= 2), month, day_of_year - (153 * shifted + 2) // 5 + 1


def _first_day(year: Any) -> Any:
    """The number of 1 January of a year, in days since 1970."""
    before = year - 1
    return 365 * before + before // 4 - before // 100 + before // 400 + 306 - _DAYS_BEFORE_1970


DATE_PARTS: Mapping[str, Callable[[Any], Any]] = {
    "year": lambda time: _civil(time)[0],
    "quarter": lambda time: (_civil(time)[1] + 2) // 3,
    "month": lambda time: _civil(time)[1],
    "day": lambda time: _civil(time)[2],
    "dayofweek": lambda time: (time // _DAY + 4) % 7 + 1,
    "dayofyear": lambda time: time // _DAY - _first_day(_civil(time)[0]) + 1,
    "hour": lambda time: time % _DAY // 3_600_000_000,
    "minute": lambda time: time % 3_600_000_000 // 60_000_000,
    "second": lambda time: time % 60_000_000 // 1_000_000,
}
"""The parts of a time in UTC. The week begins on Sunday, its day 1."""


def date(time: Any) -> Any:
    return time - time % _DAY


# --- CAST -------------------------------------------------------------------------------------------------------------

_NUMBER = re.compile(r"\s*([+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:e[+-]?\d{1,4})?)\s*", re.ASCII | re.IGNORECASE)


def as_integer(value: Any) -> int | None:
    """The number without its fraction; null if it has more than 64 bits, or a string is no number."""
    match value:
        case str():
            number = _NUMBER.fullmatch(value)
            return None if number is None else as_integer(Decimal(number[1]))
        case float() if math.isinf(value):
            return None
        case Decimal() if value.adjusted() > 19:
            return None
        case _:
            result = int(value)
            return result if LOWEST <= result <= HIGHEST else None


def as_double(value: Any) -> float | None:
    if isinstance(value, str):
        number = _NUMBER.fullmatch(value)
        return None if number is None else float(number[1])
    return to_float(value)


def as_decimal(value: Any, precision: int, scale: int) -> Decimal | None:
    """The value with so many digits after the point, halves away from zero; null if it has more than `precision`
    digits. A float is the decimal of its shortest text: 0.125 has the three digits that it is written with."""
    match value:
        case str():
            number = _NUMBER.fullmatch(value)
            return None if number is None else as_decimal(Decimal(number[1]), precision, scale)
        case float() if not math.isfinite(value):
            return None
        case float():
            return as_decimal(Decimal(repr(value)), precision, scale)
        case Decimal() if value and value.adjusted() >= precision - scale:
            return None
        case Decimal():
            digits = max(-int(value.as_tuple().exponent), 0)
            if value.adjusted() < -scale - 1:
                return decimal_of(0, scale)
            units = unscaled(value, max(digits, scale))
            units = _nearest(units, int(10 ** (digits - scale))) if digits > scale else units
        case _:
            units = unscaled(int(value), scale)
    return decimal_of(units, scale) if abs(units) < 10**precision else None


def as_string(value: Any, time: str | None = None) -> str | None:
    """A value as text. Times count microseconds, so `time` says that it is a `timestamp` or a `date`: in UTC, and with
    a fraction only if there is one. Times beyond the year 9999 have no text."""
    if time is not None:
        day, _, clock = timestamp_text(value).removesuffix("Z").partition("T")
        if not clock:
            return None
        return day if time == "date" else f"{day} {clock.rstrip('0') if '.' in clock else clock}"
    match value:
        case bool():
            return "true" if value else "false"
        case Decimal():
            return f"{value:f}"
        case _:
            return str(value)


def as_boolean(value: Any) -> bool | None:
    if isinstance(value, str):
        return {"true": True, "false": False}.get(value.strip().lower())
    return bool(value != 0)


def as_timestamp(value: Any) -> int | None:
    return timestamp(value) if isinstance(value, str) else int(value)


def as_date(value: Any) -> int | None:
    time = as_timestamp(value)
    return None if time is None else int(date(time))


# --- strings ----------------------------------------------------------------------------------------------------------


def like(text: str, pattern: str) -> bool:
    r"""SQL's LIKE: `%` is any characters, `_` one character, and a backslash makes the next character an ordinary one.
    Only the last `%` is ever tried again, one character further on, so that no pattern takes exponential time.

    >>> like("100%", r"100\%"), like("1000", r"100\%"), like("a\\", "a\\")
    (True, False, True)
    """
    tokens = _like_tokens(pattern)
    at_text = at_token = 0
    wildcard, resume = -1, 0
    while at_text < len(text):
        token = tokens[at_token] if at_token < len(tokens) else None
        if token is _ANY:
            wildcard, resume = at_token, at_text
            at_token += 1
        elif token is not None and (token is _ONE or token == text[at_text]):
            at_text += 1
            at_token += 1
        elif wildcard >= 0:
            resume += 1
            at_text, at_token = resume, wildcard + 1
        else:
            return False
    return all(token is _ANY for token in tokens[at_token:])


_ANY, _ONE = object(), object()


def _like_tokens(pattern: str) -> list[object]:
    tokens: list[object] = []
    characters = iter(pattern)
    for character in characters:
        if character == "\\":
            tokens.append(next(characters, character))
        else:
            tokens.append({"%": _ANY, "_": _ONE}.get(character, character))
    return tokens
