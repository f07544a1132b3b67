"""Literals of time in query text: `90 seconds`, `INTERVAL '10' MINUTE`, `TIMESTAMP '2024-03-01 08:00'`, and the types
that CAST names.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from fractions import Fraction

from lark import Token

from cepheid.errors import NameProblem, Span, SyntaxProblem, did_you_mean, shown
from cepheid.events import CALENDAR_WORDS, LONGEST, MICROSECONDS, UNIT_WORDS, timestamp
from cepheid.expr import CAST, CAST_DECIMAL, Arithmetic, Call, Const, Expr
from cepheid.lang.text import unquote
from cepheid.types import DATE, DURATION, LONG_DIGITS, TIMESTAMP

_MAX_INTEGER = 10**38 - 1
_CASTS: Mapping[str, str] = {
    **dict.fromkeys(("int", "integer", "bigint", "long", "smallint", "tinyint", "short"), "integer"),
    **dict.fromkeys(("double", "float", "real", "number", "numeric"), "double"),
    **dict.fromkeys(("string", "varchar", "char", "text"), "string"),
    **dict.fromkeys(("boolean", "bool"), "boolean"),
    **dict.fromkeys(("timestamp", "datetime"), "timestamp"),
    "date": "date",
}
_DECIMALS = ("decimal", "dec", "numeric", "number")
"""Names of decimals. Without digits, `numeric` and `number` are doubles."""


def span_of(token: Token) -> Span:
    return Span(token.start_pos or 0, token.end_pos or 0)


def unit_of(word: Token) -> str:
    """The unit that a word of the query names."""
    if word.lower() in CALENDAR_WORDS:
        raise SyntaxProblem(
            f"a {word.lower().removesuffix('s')} has no fixed length",
            span=span_of(word),
            expected="weeks, days, hours, minutes, seconds, ms or us",
            hint="write 30 days" if word.lower().startswith("month") else "write it in days",
        )
    return UNIT_WORDS[word.lower()]


def number(token: Token) -> int | float:
    text = str(token)
    if re.fullmatch(r"[0-9]+", text) and len(text) < 100 and int(text) <= _MAX_INTEGER:
        return int(text)
    value = float(text)
    if math.isinf(value) or re.fullmatch(r"[0-9]+", text):
        raise SyntaxProblem(
            f"the number `{shown(text)}` is too large",
            span=span_of(token),
            expected="an integer of at most 38 digits, or a number up to 1.8e308 with a decimal point or an exponent",
        )
    return value


def amount_of(token: Token) -> int | float:
    """The amount of an interval, a number in quotes or not: `'10'`, `1.5`."""
    text = unquote(token).strip() if token.type == "STRING" else str(token)
    try:
        value = Fraction(text)
    except (ValueError, ZeroDivisionError):
        raise SyntaxProblem(
            f"`{shown(text)}` is not an amount of time",
            span=span_of(token),
            expected="a number and one unit",
            hint="INTERVAL '10' MINUTE",
        ) from None
    return int(value) if value.denominator == 1 else float(value)


def duration_literal(amount: int | float, word: Token, span: Span) -> Const:
    """A length of time as a value, in microseconds."""
    length = MICROSECONDS.get(unit_of(word))
    if length is None:
        raise SyntaxProblem(
            f"`{amount} {word}` is not a duration",
            span=span,
            expected="a number and a unit of time, such as 90 seconds",
            hint=f"write the number alone: {amount}",
        )
    count = Fraction(str(amount)) * length
    if abs(count) >= LONGEST:
        raise SyntaxProblem(f"`{amount} {word}` is too long", span=span, expected="less than 2^61 microseconds")
    return Const(int(count), type=DURATION, span=span)


def moment_literal(kind: Token, text: Token, span: Span) -> Const:
    """`TIMESTAMP '...'` or `DATE '...'`, in microseconds since 1970."""
    count = timestamp(unquote(text))
    if count is None:
        raise SyntaxProblem(
            f"`{shown(unquote(text))}` is not a {kind.lower()}",
            span=span_of(text),
            expected="year-month-day, and a time if there is one",
            hint="TIMESTAMP '2024-03-01 08:00:00' or DATE '2024-03-01'",
        )
    if kind.lower() == "date":
        return Const(count - count % MICROSECONDS["d"], type=DATE, span=span)
    return Const(count, type=TIMESTAMP, span=span)


def refuse_bare_date(left: Expr, right: Expr, span: Span) -> None:
    """`2024-03-01` without quotes is a subtraction that nobody means."""
    match left, right:
        case Arithmetic(op="-", left=Const(value=int() as year), right=Const(value=int() as month)), Const(
            value=int() as day
        ) if span.end - span.start == len("2024-03-01") and year >= 1000 and 1 <= month <= 12 and 1 <= day <= 31:
            text = f"{year}-{month:02}-{day:02}"
            raise SyntaxProblem(
                f"`{text}` is a subtraction of numbers", span=span, expected="a date in quotes", hint=f"DATE '{text}'"
            )


def cast_call(item: Expr, word: Token, digits: Sequence[Token], span: Span) -> Call:
    """`CAST(item AS word)`, or `CAST(item AS decimal(precision, scale))`."""
    name = word.lower()
    if name in _DECIMALS and (digits or name not in _CASTS):
        return Call(CAST_DECIMAL, (item, *_decimal_digits(word, digits)), span=span)
    if name not in _CASTS:
        raise NameProblem(
            f"CAST to the unknown type `{word}`",
            span=span_of(word),
            expected="integer, double, decimal(precision, scale), string, boolean, timestamp or date",
            hint=did_you_mean(word, (*_CASTS, *_DECIMALS)),
        )
    if digits:
        is_text = _CASTS[name] == "string"
        raise SyntaxProblem(
            f"`{word}` has no length in CAST",
            span=span_of(digits[0]),
            expected=f"CAST(... AS {word})",
            hint=f"substr(CAST(... AS {word}), 1, {digits[0]}) cuts the string" if is_text else None,
        )
    return Call(CAST + _CASTS[name], (item,), span=span)


def _decimal_digits(word: Token, digits: Sequence[Token]) -> tuple[Const, Const]:
    """The precision and the scale of a decimal, which is 0 if only the precision is written."""
    precision, scale = (*(number(token) for token in digits), *((0,) if len(digits) == 1 else (-1, -1)))[:2]
    if not (isinstance(precision, int) and isinstance(scale, int) and 0 <= scale <= precision and precision > 0):
        found = f"`{word}({', '.join(digits)})` has more digits after the point than in all" if digits else None
        raise SyntaxProblem(
            found or f"`{word}` without its number of digits",
            span=span_of(word),
            expected="the digits in all and those after the point",
            hint=f"{word}(10, 2)",
        )
    if precision > LONG_DIGITS:
        raise SyntaxProblem(
            f"a decimal of {precision} digits", span=span_of(digits[0]), expected=f"at most {LONG_DIGITS} digits"
        )
    return Const(precision, span=span_of(digits[0])), Const(scale, span=span_of(digits[-1]))
