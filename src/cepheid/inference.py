"""The types of expressions, and the errors if types do not fit.

`typed` sets the type of every node once, when a query is bound. The oracle, kernels, Arrow and Catalyst read
`Expr.type` and never infer types again.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from datetime import date
from decimal import Decimal
from itertools import combinations
from typing import TypeVar

from cepheid import expr as ex
from cepheid import types
from cepheid.errors import NameProblem, TypeProblem, did_you_mean, listing
from cepheid.events import UNIT_WORDS, timestamp
from cepheid.expr import Aggregate, Attr, Call, Const, Expr, ResultType, Value, to_text
from cepheid.functions import FUNCTIONS, conditions_of_case, digits_of
from cepheid.types import BOOLEAN, INTEGER, RECORD, SHORT_DIGITS, STRING, UNKNOWN, Family, Type, type_of
from cepheid.values import decimal_of, unscaled

AttributeType = Callable[[Attr], Type]
E = TypeVar("E", bound=Expr)


def typed(expr: E, attribute_type: AttributeType) -> E:
    """The expression with the type of every node; raises if types do not fit. `attribute_type` reads the schema."""
    if isinstance(expr, Attr):
        return replace(expr, type=attribute_type(expr))
    node = _with_typed_parts(expr, attribute_type)
    return replace(node, type=_type(node))


def _with_typed_parts(expr: E, attribute_type: AttributeType) -> E:
    """The node with typed operands; a literal beside a decimal is a decimal."""

    def of(item: Expr) -> Expr:
        return typed(item, attribute_type)

    match expr:
        case Const():
            return replace(expr, value=_fitting(expr.value))
        case ex.Arithmetic() | ex.Compare():
            left, right = of(expr.left), of(expr.right)
            return replace(expr, left=_beside(expr.left, right) or left, right=_beside(expr.right, left) or right)
        case ex.In():
            item = of(expr.item)
            return replace(expr, item=item, values=tuple(_beside(value, item) or of(value) for value in expr.values))
        case ex.Negative() | ex.IsNull() | ex.Not() | ex.Filter():
            return replace(expr, item=of(expr.item))
        case ex.Contains():
            return replace(expr, item=of(expr.item), text=of(expr.text))
        case ex.Like():
            return replace(expr, item=of(expr.item), pattern=of(expr.pattern))
        case ex.And() | ex.Or() | ex.Vector():
            return replace(expr, items=tuple(map(of, expr.items)))
        case Call():
            args = tuple(map(of, expr.args))
            other = next((arg for arg in args if arg.type.family is Family.DECIMAL or arg.type.is_time), None)
            if other is not None and expr.fn in FUNCTIONS and FUNCTIONS[expr.fn].chooses:
                args = tuple(_beside(before, other) or arg for before, arg in zip(expr.args, args, strict=True))
            if expr.fn == ex.CAST_STRING and len(args) == 1 and args[0].type.family in _MOMENTS:
                args = args[0], Const(args[0].type.family.value, type=STRING)
            return replace(expr, args=args)
        case Aggregate(of=ex.Operand(value=value)):
            operand = of(value)
            return replace(expr, of=ex.Operand(operand), operand=operand.type)
        case Aggregate(name=str() as name):
            return replace(expr, operand=attribute_type(Attr(expr.var, name, span=expr.span)))
        case ex.Same(value=Expr() as value):
            return replace(expr, value=of(value))
        case _:
            return expr


def _fitting(value: Value) -> Value:
    """A constant in the type of its value: an integer beyond 64 bits is a decimal, or else a float."""
    if not isinstance(value, int) or isinstance(value, bool) or type_of(value) in (INTEGER, types.UNSIGNED):
        return value
    return Decimal(value) if type_of(value).family is Family.DECIMAL else float(value) if abs(value) < 2**1023 else None


def _beside(literal: Expr, other: Expr) -> Expr | None:
    """A float literal beside a decimal is the decimal of its text: 0.1 is 0.1. A string beside a time is the time that
    it says. None for other expressions, such as a constant that has a type because it was computed."""
    if isinstance(literal, Const) and isinstance(literal.value, str) and other.type.family in _MOMENTS:
        moment = timestamp(literal.value)
        return None if moment is None else replace(literal, value=moment, type=types.TIMESTAMP)
    if other.type.family is Family.DECIMAL and isinstance(literal, Const) and isinstance(literal.value, float):
        decimal = Decimal(str(literal.value))
        kind = type_of(decimal)
        if literal.type.is_unknown and kind.family is Family.DECIMAL and kind.is_short:
            return replace(literal, value=decimal_of(unscaled(decimal, kind.scale), kind.scale), type=kind)
    return None


def _type(expr: Expr) -> Type:
    """The type of a node whose operands have types."""
    match expr:
        case Const():
            return type_of(expr.value) if expr.type.is_unknown else expr.type
        case ex.Param():
            return UNKNOWN
        case ex.Whole():
            return RECORD
        case Aggregate():
            return _aggregate_type(expr)
        case ex.Arithmetic():
            return _arithmetic_type(expr, expr.op, expr.left, expr.right)
        case ex.Negative():
            return _arithmetic_type(expr, "-", Const(0, type=INTEGER), expr.item)
        case ex.Vector():
            return types.list_of(types.united_all(item.type for item in expr.items))
        case Call():
            return _call_type(expr)
        case ex.Compare():
            _require_comparable(expr.op, expr.left, expr.right, expr)
        case ex.In():
            for value in expr.values:
                _require_comparable("=", expr.item, value, expr)
        case ex.Contains():
            for side in (expr.item, expr.text):
                _require(side, STRING, "CONTAINS works on strings")
        case ex.Like():
            for side in (expr.item, expr.pattern):
                _require(side, STRING, "LIKE works on strings")
        case ex.And() | ex.Or():
            for item in expr.items:
                _require(item, BOOLEAN, "AND and OR join conditions", _joined(expr) or _compared(item))
        case ex.Not() | ex.Filter():
            _require(expr.item, BOOLEAN, "a condition is expected here", _compared(expr.item))
    return BOOLEAN


def _compared(expr: Expr) -> str | None:
    """What to write instead of a number or a string that stands for a condition."""
    if expr.type.is_number:
        return f"compare it: {to_text(expr)} > 0"
    return f"compare it: {to_text(expr)} = 'text'" if expr.type.fits(STRING) else None


def _joined(expr: ex.And | ex.Or) -> str | None:
    """What to write instead of SQL's `||` between strings, which is OR."""
    if not isinstance(expr, ex.Or) or not expr.items[0].type.fits(STRING) or expr.items[0].type.is_unknown:
        return None
    first, *others = expr.items
    if all(item.type.fits(STRING) for item in others):
        return f"strings are joined by concat({', '.join(to_text(item) for item in expr.items)})"
    return f"compare it: {to_text(first)} = 'text'; strings are joined by concat(...), not by ||"


def _require(expr: Expr, wanted: Type, why: str, hint: str | None = None) -> None:
    if not expr.type.fits(wanted):
        raise TypeProblem(
            f"`{to_text(expr)}` is a {expr.type.noun}; {why}", span=expr.span, expected=f"a {wanted.noun}", hint=hint
        )


def _arithmetic_type(expr: Expr, op: str, left: Expr, right: Expr) -> Type:
    result = types.arithmetic(op, left.type, right.type)
    if result is not None:
        return result
    for side in (left, right):
        if not (side.type.is_number or side.type.is_time):
            _require(
                side, INTEGER, f"`{op}` works on numbers", _of_texts(op, left, right) if side.type == STRING else None
            )
    raise TypeProblem(
        f"`{to_text(expr)}`: `{op}` is not defined for a {left.type} and a {right.type}",
        span=expr.span,
        expected="numbers, or the difference of two times, or a time and a duration",
    )


def _of_texts(op: str, left: Expr, right: Expr) -> str:
    """What to write instead of an operation on strings: `+` often joins them."""
    if op == "+" and left.type == right.type == STRING:
        return f"strings are joined by concat({to_text(left)}, {to_text(right)}); {NUMBERS_IN_TEXT}"
    return NUMBERS_IN_TEXT


def _aggregate_type(expr: Aggregate) -> Type:
    if expr.name is None:
        return INTEGER
    function = ex.AGGREGATES.get(expr.fn)
    if function is None:
        raise unknown_function(expr)
    of = expr.operand
    match function.result:
        case ResultType.COUNT:
            return INTEGER
        case ResultType.VALUE:
            if function.compares and of != BOOLEAN and not types.have_order(of, of):
                raise TypeProblem(f"`{to_text(expr)}`: a {of.noun} has no order", span=expr.span)
            return of
        case _:
            if not (of.is_unknown or of.is_number or of.family is Family.DURATION):
                raise TypeProblem(
                    f"`{to_text(expr)}` adds up a {of.noun}",
                    span=expr.span,
                    expected="an attribute that holds numbers",
                    hint=NUMBERS_IN_TEXT if of == STRING else None,
                )
            return types.average(of) if function.averages else sum_type(of, expr.over)


def sum_type(of: Type, over: ex.Over) -> Type:
    """A sum has the widest type of its kind; over all matches it has 38 digits, because it may be astronomic."""
    if of.is_unknown or of.family in (Family.FLOAT, Family.DURATION):
        return of
    if over is ex.Over.MATCHES or (of.family is Family.DECIMAL and not of.is_short):
        return types.decimal(types.LONG_DIGITS, of.scale)
    return types.decimal(SHORT_DIGITS, of.scale) if of.family is Family.DECIMAL else INTEGER


NUMBERS_IN_TEXT = (
    "a number in text is read by CAST(... AS double); "
    'numbers such as 10,5 in a CSV file are declared: --decimal comma, or Input(..., decimal="comma"); '
    "1,200.00 needs --thousands comma"
)
_SUBTRACT = "subtract the times: (b.ts - a.ts) / 1 second is a number"
_FROM_LISTS = "RETURN the closure, and compute it from the lists of the output: output='flat', or --output-shape flat"
_ELSEWHERE = {
    **dict.fromkeys(("datediff", "timestampdiff", "timediff", "date_diff", "unix_timestamp", "epoch"), _SUBTRACT),
    **dict.fromkeys(("now", "current_timestamp", "getdate"), "name a time: TIMESTAMP '2024-03-01 08:00:00'"),
    **dict.fromkeys(("lag", "lead", "previous"), "in SASE+, a[i-1].x is the value before a[i].x"),
    **dict.fromkeys(("isnull", "is_null"), "write x IS NULL"),
    **dict.fromkeys(("mean", "average"), "write avg(a.x)"),
    **dict.fromkeys(("median", "stddev", "std", "variance", "percentile", "quantile", "mode"), _FROM_LISTS),
    **dict.fromkeys(("collect_list", "array_agg", "string_agg", "listagg", "group_concat", "make_list"), _FROM_LISTS),
    **dict.fromkeys(
        ("regexp_like", "regexp_matches", "regexp", "rlike", "matches", "regex", "match", "like"),
        "write a.x LIKE 'a%', or a.x CONTAINS 'a'",
    ),
    **dict.fromkeys(("startswith", "starts_with"), "write a.x LIKE 'text%'"),
    **dict.fromkeys(("endswith", "ends_with"), "write a.x LIKE '%text'"),
    **dict.fromkeys(("date_trunc", "trunc"), "compare the parts: date(a.ts) = date(b.ts) AND hour(a.ts) = hour(b.ts)"),
    **dict.fromkeys(("to_timestamp", "strptime", "parse_date"), "write CAST(a.x AS timestamp)"),
    **dict.fromkeys(("to_char", "strftime", "date_format"), "name the parts: year(a.ts), month(a.ts), hour(a.ts)"),
    **dict.fromkeys(("weekday", "dow"), "write dayofweek(a.ts): 1 is Sunday"),
    **dict.fromkeys(("int", "integer", "float", "double", "str", "string", "to_number"), "write CAST(a.x AS integer)"),
    **dict.fromkeys(("power", "pow"), "write the product: a.x * a.x"),
    **dict.fromkeys(("replace", "split", "regexp_replace"), "change the texts before, as a column of the events"),
    **dict.fromkeys(("mod",), "write x % 2"),
    **dict.fromkeys(("instr", "position", "strpos"), "write x CONTAINS 'text'"),
}
"""What to write instead of functions that other systems have."""


def unknown_function(expr: Aggregate | Call) -> NameProblem:
    own = (name for name in FUNCTIONS if name.isidentifier() and name != ex.CASE)
    names = (*own, *ex.AGGREGATES, "CASE", "CAST", "EXTRACT", "substring")
    return NameProblem(
        f"unknown function `{expr.fn}`",
        span=expr.span,
        expected=f"one of {listing(names, 60)}",
        hint=_ELSEWHERE.get(expr.fn) or did_you_mean(expr.fn, names),
    )


_MOMENTS = (Family.DATE, Family.TIMESTAMP)
_MOST_DIGITS = 18


def _call_type(expr: Call) -> Type:
    function = FUNCTIONS.get(expr.fn)
    if function is None:
        raise unknown_function(expr)
    if not function.least <= len(expr.args) <= function.most:
        wanted = str(function.least) if function.least == function.most else f"{function.least} to {function.most}"
        raise TypeProblem(f"`{expr.fn}` has {len(expr.args)} arguments", span=expr.span, expected=f"{wanted} arguments")
    name = "CAST" if expr.fn.startswith(ex.CAST) else expr.fn
    for number, arg in enumerate(expr.args):
        kind = function.takes_of(number)
        if not kind.is_unknown:
            _require(arg, kind, f"`{name}` takes a {kind.noun}")
        if function.of and not (arg.type.is_unknown or arg.type.family in function.of):
            taken = ", ".join(sorted(family.value for family in function.of))
            raise TypeProblem(
                f"`{to_text(arg)}` is a {arg.type.noun}; `{to_text(expr)}` is not defined for it",
                span=arg.span,
                expected=f"one of: {taken}",
                hint=_hint_at_no_time(arg) if Family.TIMESTAMP in function.of else None,
            )
    if expr.fn in (ex.CASE, "if"):
        for test in conditions_of_case(expr.args):
            _require(test, BOOLEAN, "WHEN takes a condition")
    if expr.fn == "round":
        _require_digits(expr)
    if expr.fn in ("least", "greatest", "nullif"):
        for left, right in combinations(expr.args, 2):
            _require_comparable("=" if expr.fn == "nullif" else "<", left, right, expr)
    result = function.result(expr.args)
    if result is types.MIXED and function.chooses:
        nouns = sorted({arg.type.noun for arg in expr.args if not arg.type.is_unknown} - {"boolean"})
        raise TypeProblem(
            f"`{to_text(expr)}` has values of different types: {', '.join(nouns)}",
            span=expr.span,
            expected="values of the same type",
        )
    return result


def _hint_at_no_time(arg: Expr) -> str | None:
    """What to write for a function of times in place of another value."""
    if arg.type == STRING:
        return "CAST(... AS timestamp) reads a time from a string"
    if arg.type.is_number:
        text = to_text(arg)
        return (
            f"seconds since 1970 are the time TIMESTAMP '1970-01-01' + {text} * 1 second, "
            f"nanoseconds TIMESTAMP '1970-01-01' + {text} / 1000 * 1 us"
        )
    return None


def _require_digits(expr: Call) -> None:
    match expr.args[1:]:
        case [] | [Const(value=int())] if abs(digits_of(expr.args)) <= _MOST_DIGITS:
            return
    raise TypeProblem(
        f"`{to_text(expr)}`: the number of digits is not a constant from -{_MOST_DIGITS} to {_MOST_DIGITS}",
        span=expr.span,
        expected="round(value) or round(value, 2)",
    )


_LENGTH = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+)\s*", re.IGNORECASE)
_NUMBER = re.compile(r"[+-]?\d+(?:\.\d+)?")
_DOTTED = re.compile(r"\s*([0-3]\d)\.([01]\d)\.(\d{4})\b")
_CLOCK = re.compile(r"\s*([01]?\d|2[0-3]):([0-5]\d)(?::00)?\s*")
_DAY = re.compile(r"\s*(\d{4})-(\d\d?)-(\d\d?)\b")


def length_of_one(name: str, node: Expr) -> str | None:
    """What to write for `b.LEN` where `b` is one event."""
    if name.upper() != "LEN" or not isinstance(node, Attr):
        return None
    return f"`{node.var}` is one event; the number of events is that of a closure: B+ {node.var}[]"


def _hint_at_text(kind: Type, text: str, value: Expr) -> str | None:
    """What to write in place of a text that is compared with a value of this kind."""
    length = _LENGTH.fullmatch(text)
    if length is not None and length[2].lower() in UNIT_WORDS and (kind.is_number or kind.family is Family.DURATION):
        return f"a duration is written without quotes: {length[1]} {length[2]}"
    if kind.family is Family.DURATION:
        return "a duration is written without quotes: 5 minutes"
    if kind.is_number:
        if timestamp(text) is not None and not _NUMBER.fullmatch(text):
            return f"beside the numbers of the time column, a time is written TIMESTAMP '{text}'"
        return f"a number is written without quotes: {text}" if _NUMBER.fullmatch(text) else "compare it with a number"
    if kind == BOOLEAN:
        return "a boolean is true or false, without quotes"
    if kind.family not in _MOMENTS:
        return None
    day = _DAY.match(text)
    if day is not None:
        return f"there is no day {day[0].strip()}" if not _is_day(*map(int, day.groups())) else _TIME
    clock = _CLOCK.fullmatch(text)
    if clock is not None:
        of = to_text(value)
        part, number = f"hour({of})", str(int(clock[1]))
        if int(clock[2]):
            part, number = f"hour({of}) * 60 + minute({of})", str(60 * int(clock[1]) + int(clock[2]))
        return f"compare the time of day, in UTC: {part} >= {number}"
    dotted = _DOTTED.match(text)
    return f"write the year first: '{dotted[3]}-{dotted[2]}-{dotted[1]}'" if dotted is not None else _TIME


def _hint_at_casts(text: Expr, value: Expr) -> str | None:
    """What to write where a text is compared with another value of the events."""
    if not value.type.is_number and value.type != BOOLEAN:
        return None
    as_texts = f"write CAST({to_text(value)} AS string) to compare texts"
    if value.type == BOOLEAN:
        return as_texts
    return f"{as_texts} ('007' is not '7'), or CAST({to_text(text)} AS double) to compare numbers"


_TIME = "a time is written '2024-03-01 08:00:00'"


def _is_day(year: int, month: int, day: int) -> bool:
    try:
        date(year, month, day)
    except ValueError:
        return False
    return True


def _require_comparable(op: str, left: Expr, right: Expr, whole: Expr) -> None:
    if not types.are_comparable(left.type, right.type):
        hint = None
        for value, other in ((left, right), (right, left)):
            kind = value.type
            if isinstance(other, Const) and isinstance(other.value, str):
                hint = _hint_at_text(kind, other.value, value) or hint
            elif kind == BOOLEAN and isinstance(other, Const):
                hint = "a boolean is true or false, without quotes"
            elif kind == STRING and isinstance(other, Const) and isinstance(other.value, int | float):
                hint = f"a string is written in quotes: '{other.value}'; {NUMBERS_IN_TEXT}"
        if STRING in (left.type, right.type) and not isinstance(left, Const) and not isinstance(right, Const):
            text, value = (left, right) if left.type == STRING else (right, left)
            hint = _hint_at_casts(text, value)
        raise TypeProblem(
            f"`{to_text(whole)}` compares a {left.type.noun} with a {right.type.noun}",
            span=whole.span,
            expected="two values of the same type",
            hint=hint,
        )
    if op not in ("=", "!=") and not types.have_order(left.type, right.type):
        raise TypeProblem(
            f"`{to_text(whole)}` orders values that have no order", span=whole.span, expected="numbers or strings"
        )
