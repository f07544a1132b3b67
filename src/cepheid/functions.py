"""The table of scalar functions: the definition of each, and its implementation in each evaluator.

A new function is a row here. `apply` is its definition, which the oracle runs. A function that chooses between values
says how in other expressions (`expands`), and every evaluator computes those. Any other function may have code for
kernels and for Spark; without it, masks and RETURN call the definition (once for each distinct string), kernels read
the value from a derived column, and Spark leaves the predicate to its workers. Functions that treat the families of
numbers differently have a case of their own in `codegen/operands.py`, `codegen/vector.py` and `spark/catalyst.py`.
"""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

from cepheid import values
from cepheid.expr import CASE, CAST, CAST_DECIMAL, CAST_STRING, And, Call, Compare, Const, Expr, IsNull, Not, Or
from cepheid.types import (
    BOOLEAN,
    DATE,
    FLOAT,
    INTEGER,
    LONG_DIGITS,
    STRING,
    TIMESTAMP,
    UNKNOWN,
    Family,
    Type,
    decimal,
    united,
)
from cepheid.values import to_float


@dataclass(frozen=True, slots=True)
class Function:
    """A function of `least` to `most` arguments. `apply` is its definition. The result is null if an argument is null
    (unless `null_safe`) or if `apply` returns None or is undefined. An evaluator whose column is None has no code."""

    least: int
    most: int
    takes: tuple[Type, ...]
    """The types of the arguments; the last is that of all further ones. UNKNOWN: any."""
    result: Callable[[Sequence[Expr]], Type]
    """The type of the result, by the arguments; MIXED if they do not fit each other."""
    apply: Callable[..., Any]
    null_safe: bool = False
    of: frozenset[Family] = frozenset()
    """The families of types that it takes, where `takes` does not say it."""
    is_elementwise: bool = False
    """Whether `apply` works on NumPy arrays, too."""
    expands: Callable[[Call], Expr] | None = None
    """The call as an expression without this function, with types."""
    kernel: str | None = None
    """Source in a kernel, over floats with NaN for null."""
    arrow: str | None = None
    """The Arrow function that is the same for ASCII strings."""
    spark: Callable[..., Any] | None = None
    """Its Spark column, of `pyspark.sql.functions` and the columns of its arguments."""

    def takes_of(self, number: int) -> Type:
        return self.takes[min(number, len(self.takes) - 1)]

    @property
    def chooses(self) -> bool:
        """Whether the result is one of its arguments, which then have one type."""
        return self.expands is not None or self.apply is _case

    @property
    def is_compiled(self) -> bool:
        """Whether kernels compute it."""
        return self.kernel is not None or self.expands is not None


_ANY, _NUMBER, _TEXT = (UNKNOWN,), (FLOAT,), (STRING,)
_NUMBERS = frozenset({Family.INTEGER, Family.UNSIGNED, Family.FLOAT, Family.DECIMAL})
_COUNTED = _NUMBERS | {Family.DURATION}
_SIMPLE = _NUMBERS | {Family.BOOLEAN, Family.STRING}
_MOMENTS = frozenset({Family.DATE, Family.TIMESTAMP})
_DATED = _MOMENTS | {Family.STRING}
_MANY = 64
DIMENSIONS = 4
"""The most coordinates of a point."""


def kernels_compute(call: Call) -> bool:
    """Whether kernels compute a function of numbers, or one that chooses between values that they hold."""
    function = FUNCTIONS[call.fn]
    if call.fn == "round" and digits_of(call.args) < 0:
        return call.type.family is Family.FLOAT
    return function.is_compiled and not (function.chooses and call.type.family in (Family.LIST, Family.RECORD))


# --- types of results -------------------------------------------------------------------------------------------------


def _itself(args: Sequence[Expr]) -> Type:
    return args[0].type


def _whole(args: Sequence[Expr]) -> Type:
    """The type of a value without its fraction."""
    return whole(args[0].type)


def whole(of: Type) -> Type:
    is_fraction = of.family is Family.DECIMAL and of.scale > 0
    return decimal(of.precision, 0) if is_fraction else of


def _rounded(args: Sequence[Expr]) -> Type:
    of = args[0].type
    if of.family is Family.DECIMAL:
        digits = digits_of(args)
        return decimal(min(of.precision + (digits < 0), LONG_DIGITS), min(of.scale, max(digits, 0)))
    return INTEGER if of.family is Family.UNSIGNED else of


def digits_of(args: Sequence[Expr]) -> int:
    """The digits after the point that `round` leaves."""
    match args[1:]:
        case [Const(value=int() as digits)]:
            return digits
        case _:
            return 0


def _always(type_: Type) -> Callable[[Sequence[Expr]], Type]:
    return lambda _: type_


_FLOAT, _INTEGER, _STRING = _always(FLOAT), _always(INTEGER), _always(STRING)


def common_type(args: Sequence[Expr]) -> Type:
    """The type that holds the values of all arguments."""
    literals = [arg.value for arg in args if isinstance(arg, Const) and _is_integer_literal(arg)]
    found = reduce(_joined, (arg.type for arg in args if not _is_integer_literal(arg)), UNKNOWN)
    return reduce(_with_literal, literals, found)


def _is_integer_literal(arg: Expr) -> bool:
    return isinstance(arg, Const) and arg.type == INTEGER


def _with_literal(found: Type, literal: Any) -> Type:
    """A literal has only the digits that it is written with, so that it fits beside a decimal."""
    if found.family is Family.DECIMAL:
        return united(found, decimal(len(str(abs(literal))), 0))
    return found if found.family is Family.UNSIGNED and literal >= 0 else _joined(found, INTEGER)


def _joined(left: Type, right: Type) -> Type:
    if {left.family, right.family} == {Family.DATE, Family.TIMESTAMP}:
        return left if left.family is Family.TIMESTAMP else right
    return united(left, right)


def _of_cases(args: Sequence[Expr]) -> Type:
    return common_type(values_of_case(args))


def values_of_case(args: Sequence[Expr]) -> Sequence[Expr]:
    """The values among the arguments of CASE, the last one where no condition holds."""
    return [*args[1::2], *([args[-1]] if len(args) % 2 else [])]


def conditions_of_case(args: Sequence[Expr]) -> Sequence[Expr]:
    return args[: len(args) - len(args) % 2 : 2]


# --- functions that choose --------------------------------------------------------------------------------------------


def _case(*args: Any) -> Any:
    for test, value in zip(args[::2], args[1::2], strict=False):
        if test is True:
            return value
    return args[-1] if len(args) % 2 else None


def _coalesce(*args: Any) -> Any:
    return next((arg for arg in args if arg is not None), None)


def _least(*args: Any) -> Any:
    return values.extreme("<", args)


def _greatest(*args: Any) -> Any:
    return values.extreme(">", args)


def _nullif(value: Any, other: Any) -> Any:
    return None if values.compare("=", value, other) else value


def _if(test: Any, value: Any, otherwise: Any) -> Any:
    return value if test is True else otherwise


def _sign(value: Any) -> int:
    return int(value > 0) - int(value < 0)


def _test(op: str, left: Expr, right: Expr) -> Expr:
    return Compare(op, left, right, type=BOOLEAN)


def _is_null(item: Expr) -> Expr:
    return IsNull(item, type=BOOLEAN)


def _is_known(item: Expr) -> Expr:
    return Not(_is_null(item), type=BOOLEAN)


def _cases(call: Call, *args: Expr) -> Expr:
    return replace(call, fn=CASE, args=args)


def _expand_coalesce(call: Call) -> Expr:
    *first, last = call.args
    return _cases(call, *(part for arg in first for part in (_is_known(arg), arg)), last)


def _expand_extreme(op: str) -> Callable[[Call], Expr]:
    """An argument is the least if it is not null, and each later one is null or not less."""

    def expand(call: Call) -> Expr:
        *first, last = call.args
        parts: list[Expr] = []
        for number, arg in enumerate(first):
            later = call.args[number + 1 :]
            tests = [Or((_is_null(other), _test(op, arg, other)), type=BOOLEAN) for other in later]
            parts += [And((_is_known(arg), *tests), type=BOOLEAN), arg]
        return _cases(call, *parts, last)

    return expand


def _expand_nullif(call: Call) -> Expr:
    value, other = call.args
    return _cases(call, _test("=", value, other), Const(None, type=value.type), value)


def _expand_if(call: Call) -> Expr:
    return _cases(call, *call.args)


def _expand_sign(call: Call) -> Expr:
    (value,) = call.args
    zero, one, minus_one = (Const(number, type=INTEGER) for number in (0, 1, -1))
    tests = _test(">", value, zero), one, _test("<", value, zero), minus_one, _test("=", value, zero), zero
    return _cases(call, *tests)


# --- other definitions ------------------------------------------------------------------------------------------------


def _distance(*args: Any) -> float | None:
    """Euclidean distance of two points: two lists, or the two halves of the argument list. The squares are added in
    order, as kernels do."""
    if len(args) == 2 and not isinstance(args[0], list | tuple):
        args = ([args[0]], [args[1]])
    elif len(args) != 2:
        args = (args[: len(args) // 2], args[len(args) // 2 :])
    one, other = (list(map(to_float, point)) for point in args)
    if len(one) != len(other) or len(one) > DIMENSIONS:
        return None
    total = 0.0
    for a, b in zip(one, other, strict=True):
        total += (a - b) * (a - b)
    return math.sqrt(total)


def _coordinate(point: Any, number: int) -> float:
    return to_float(point[number - 1]) if number <= len(point) else 0.0


def _sqrt(x: Any) -> float | None:
    return math.sqrt(to_float(x)) if x >= 0 else None


HASH_STEP = 0x9E3779B97F4A7C15
HASH_SHIFTS, HASH_FACTORS, HASH_LAST_SHIFT = (30, 27), (0xBF58476D1CE4E5B9, 0x94D049BB133111EB), 31
"""The constants of SplitMix64, which mixes the bits of a word."""
_WORD = (1 << 64) - 1


def hash_code(value: Any) -> int:
    """A word for a value: integers and floats are their own, others have a digest."""
    if isinstance(value, int):
        return int(value) & _WORD
    if isinstance(value, float):
        return int.from_bytes(struct.pack("<d", value + 0.0), "little")  # -0.0 is equal to 0.0
    text = value if isinstance(value, str) else repr(value)
    digest = hashlib.blake2b(text.encode("utf-8", "backslashreplace"), digest_size=8)
    return int.from_bytes(digest.digest(), "little")


def _hash_f(*args: Any) -> int | None:
    """A hash that is the same in every process and on every machine. That of one null is null, which identifies
    nothing; beside other values, null is a value of its own."""
    if len(args) == 1 and (args[0] is None or args[0] != args[0]):  # NaN counts as null
        return None
    word = 0
    for arg in args:
        word = (word ^ hash_code(arg)) + HASH_STEP & _WORD
        for shift, factor in zip(HASH_SHIFTS, HASH_FACTORS, strict=True):
            word = (word ^ word >> shift) * factor & _WORD
        word ^= word >> HASH_LAST_SHIFT
    return word >> 1


def _substr(text: str, start: int, length: int | None = None) -> str:
    """Characters from the `start`-th on, which counts from 1, or if it is negative from the end."""
    first = start - 1 if start > 0 else len(text) + start if start < 0 else 0
    last = len(text) if length is None else first + length
    return text[max(first, 0) : max(last, 0)]


def _spark_substr(F: Any, text: Any, start: Any, length: Any = None) -> Any:
    return F.substr(text, start.cast("int"), F.lit(2**31 - 1) if length is None else length.cast("int"))


def _part(name: str, spark: Callable[[Any, Any], Any]) -> Function:
    """A part of a date or a timestamp, in UTC."""
    apply = values.DATE_PARTS[name]
    return Function(1, 1, _ANY, _INTEGER, apply, of=_MOMENTS, is_elementwise=True, spark=spark)


def _of_day(whole: int, part: int) -> Callable[[Any, Any], Any]:
    """The number of `part` microseconds that have passed of the current `whole`."""
    return lambda F, t: ((F.pmod(t, F.lit(whole)) - F.pmod(t, F.lit(part))) / F.lit(part)).cast("long")


_MINUTE, _HOUR, _DAY = 60_000_000, 3_600_000_000, 86_400_000_000


def _of_date(name: str) -> Callable[[Any, Any], Any]:
    """A field of the date. Multiples of a day have 13 zero bits at their end, so that their division is exact."""

    def field(F: Any, t: Any) -> Any:
        day = ((t - F.pmod(t, F.lit(_DAY))) / F.lit(_DAY)).cast("int")
        return getattr(F, name)(F.date_from_unix_date(day)).cast("long")

    return field


def _decimal_of_digits(args: Sequence[Expr]) -> Type:
    match args[1:]:
        case [Const(value=int() as precision), Const(value=int() as scale)]:
            return decimal(precision, scale)
        case _:
            return UNKNOWN


def _cast(type_: Type, apply: Callable[[Any], Any], of: frozenset[Family]) -> Function:
    return Function(1, 1, _ANY, _always(type_), apply, of=of)


FUNCTIONS: Mapping[str, Function] = {
    "abs": Function(1, 1, _ANY, _itself, values.absolute, of=_COUNTED, kernel="abs({})"),
    "sqrt": Function(1, 1, _NUMBER, _FLOAT, _sqrt, kernel="np.sqrt({})"),
    "floor": Function(1, 1, _NUMBER, _whole, values.floor, kernel="np.floor({})"),
    "ceil": Function(1, 1, _NUMBER, _whole, values.ceil, kernel="np.ceil({})"),
    "round": Function(1, 2, (FLOAT, INTEGER), _rounded, values.rounded, kernel="rounded_float({}, {})"),
    "sign": Function(1, 1, _ANY, _INTEGER, _sign, of=_COUNTED, expands=_expand_sign),
    CASE: Function(2, _MANY, _ANY, _of_cases, _case, null_safe=True, kernel=""),
    "coalesce": Function(1, _MANY, _ANY, common_type, _coalesce, null_safe=True, expands=_expand_coalesce),
    "least": Function(1, 8, _ANY, common_type, _least, null_safe=True, expands=_expand_extreme("<=")),
    "greatest": Function(1, 8, _ANY, common_type, _greatest, null_safe=True, expands=_expand_extreme(">=")),
    "nullif": Function(2, 2, _ANY, _itself, _nullif, null_safe=True, expands=_expand_nullif),
    "if": Function(3, 3, _ANY, _of_cases, _if, null_safe=True, expands=_expand_if),
    "lower": Function(1, 1, _TEXT, _STRING, str.lower, arrow="ascii_lower"),
    "upper": Function(1, 1, _TEXT, _STRING, str.upper, arrow="ascii_upper"),
    "length": Function(1, 1, _ANY, _INTEGER, len),
    "substr": Function(2, 3, (STRING, INTEGER), _STRING, _substr, spark=_spark_substr),
    "trim": Function(1, 1, _TEXT, _STRING, lambda text: text.strip(" "), spark=lambda F, text: F.trim(text)),
    "concat": Function(1, _MANY, _TEXT, _STRING, lambda *texts: "".join(texts), spark=lambda F, *t: F.concat(*t)),
    "year": _part("year", _of_date("year")),
    "quarter": _part("quarter", _of_date("quarter")),
    "month": _part("month", _of_date("month")),
    "day": _part("day", _of_date("dayofmonth")),
    "dayofweek": _part("dayofweek", _of_date("dayofweek")),
    "dayofyear": _part("dayofyear", _of_date("dayofyear")),
    "hour": _part("hour", _of_day(_DAY, _HOUR)),
    "minute": _part("minute", _of_day(_HOUR, _MINUTE)),
    "second": _part("second", _of_day(_MINUTE, 1_000_000)),
    "date": Function(
        *(1, 1, _ANY, _always(DATE), values.date),
        of=_MOMENTS,
        is_elementwise=True,
        spark=lambda F, t: t - F.pmod(t, F.lit(_DAY)),
    ),
    CAST + "integer": _cast(INTEGER, values.as_integer, _SIMPLE),
    CAST + "double": _cast(FLOAT, values.as_double, _SIMPLE),
    CAST_DECIMAL: Function(3, 3, (UNKNOWN, INTEGER), _decimal_of_digits, values.as_decimal, of=_SIMPLE),
    CAST_STRING: Function(1, 2, (UNKNOWN, STRING), _STRING, values.as_string, of=_SIMPLE | _MOMENTS),
    CAST + "boolean": _cast(BOOLEAN, values.as_boolean, _SIMPLE),
    CAST + "timestamp": _cast(TIMESTAMP, values.as_timestamp, _DATED),
    CAST + "date": _cast(DATE, values.as_date, _DATED),
    "distance": Function(2, 2 * DIMENSIONS, _ANY, _FLOAT, _distance),
    "coordinate": Function(2, 2, (UNKNOWN, INTEGER), _FLOAT, _coordinate),
    "dimensions": Function(1, 1, _ANY, _INTEGER, len, of=frozenset({Family.LIST, Family.UNKNOWN})),
    "hash_f": Function(1, _MANY, _ANY, _INTEGER, _hash_f, null_safe=True),
}
ALIASES: Mapping[str, str] = {
    **{"substring": "substr", "len": "length", "ceiling": "ceil", "ucase": "upper", "lcase": "lower", "iff": "if"},
    **{"ifnull": "coalesce", "nvl": "coalesce", "dayofmonth": "day", "to_date": "date"},
}
"""Other names that people write, and the function of the table."""
