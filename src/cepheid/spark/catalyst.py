"""Single-event predicates as Catalyst expressions: the mask of every event, computed in the JVM, visible in Spark's own
EXPLAIN and pushed to the files where they allow it.

Values follow `types`: integers, dates, timestamps and durations are 64-bit integers, floats are doubles and null
instead of NaN, decimals are Spark's of the same precision. Undefined arithmetic is null, whether Spark's ANSI mode is
on or off. A predicate that Spark would evaluate differently raises `OutsideCatalyst`; workers then evaluate it.

A Column that is null counts as false wherever it is used as a condition, so only negation has to spell it out; that
keeps tests in the plain form that Parquet readers understand.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import reduce
from operator import and_, or_
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cepheid import expr as ex
from cepheid.expr import Expr
from cepheid.functions import FUNCTIONS, digits_of
from cepheid.physical import Bit, Plan
from cepheid.spark.catalyst_values import (
    ARITHMETIC,
    COMPARE,
    LARGEST,
    LEAST,
    MICROSECONDS_A_DAY,
    OutsideCatalyst,
    cast,
    compare_with_float,
    double,
    float_arithmetic,
    integer_arithmetic,
    not_nan,
    remainder,
    rescalable,
    rounded,
)
from cepheid.types import BINARY, BOOLEAN, LONG_DIGITS, STRING, Family, Type, is_rounded

_LONG_DIGITS = 19
"""The digits of a 64-bit integer."""
_ABS_DIGITS = 34
"""Spark's `abs` rounds decimals of more digits."""
_EPOCH = "TIMESTAMP_NTZ'1970-01-01 00:00:00'"
_CONDITIONS = (ex.Compare, ex.In, ex.Like, ex.Contains, ex.IsNull, ex.And, ex.Or, ex.Not, ex.Filter)


def column(*path: str) -> Column:
    """A column (or a field inside one) by its name, whatever characters the name has."""
    return F.col(".".join(f"`{name.replace('`', '``')}`" for name in path))


def whole_part(of: Column, by: int) -> Column:
    """An integer divided by another, without the remainder."""
    return F.call_function("div", of, F.lit(by).cast("long"))


def ticks(of: Column, kind: T.DataType) -> Column:
    """A time as a number: microseconds of a timestamp, a date or an interval; an integer is unchanged."""
    match kind:
        case T.TimestampType():
            return F.unix_micros(of)
        case T.TimestampNTZType():
            return F.timestamp_diff("MICROSECOND", F.expr(_EPOCH), of)
        case T.DateType():
            return F.unix_date(of).cast("long") * F.lit(MICROSECONDS_A_DAY)
        case T.DayTimeIntervalType():
            return F.timestamp_diff("MICROSECOND", F.expr(_EPOCH), F.expr(_EPOCH) + of)
        case _:
            return of.cast("long")


@dataclass(frozen=True, slots=True)
class EventColumns:
    """The columns of a DataFrame of events, as the predicates of a plan read them. Without a type column the events
    have no type."""

    schema: T.StructType
    type_column: str | None
    lacks: Mapping[str, tuple[str, ...]]
    exact: bool = True
    """Whether NaN is looked for. Without it tests are plain enough for files to decide, and let NaN pass."""

    def mask(self, plan: Plan) -> Column | None:
        """The number whose bits say which parts an event can play; None if workers have to compute it."""
        signed = [(1 << i) - (1 << 64) if i == 63 else 1 << i for i in range(len(plan.bits))]
        zero = F.lit(0).cast("long")
        try:
            numbers = [
                F.when(self._plays(bit), F.lit(number).cast("long")).otherwise(zero)
                for number, bit in zip(signed, plan.bits, strict=True)
            ]
        except OutsideCatalyst:
            return None
        return reduce(lambda whole, part: whole.bitwiseOR(part), numbers)

    def matters(self, plan: Plan) -> Column | None:
        """Whether an event can play any part, as far as Spark can tell; None if all can. Types come first and by
        themselves, and tests first in their plain form, so that they reach the files."""
        bits = [(bit.types, tuple(filter(self.can_evaluate, bit.tests))) for bit in plan.bits if bit.var]
        if any(not types and not tests for types, tests in bits):
            return None
        parts = dict.fromkeys((types, tuple(dict.fromkeys(map(_of_one_event, tests)))) for types, tests in bits)
        common = [test for test in next(iter(parts))[1] if all(test in tests for _, tests in parts)]
        parts = dict.fromkeys((types, tuple(test for test in tests if test not in common)) for types, tests in parts)
        conditions: list[Column] = []
        if all(types for types, _ in bits):
            conditions.append(self._has_type(sorted({name for types, _ in bits for name in types})))
        looks_for_nan = self._looks_for_nan([*parts, ((), common)])
        for form in [replace(self, exact=False), self] if looks_for_nan else [self]:
            conditions.extend(form._truth(test)[1] for test in common)
            if any(tests for _, tests in parts):
                conditions.append(reduce(or_, (form._plays(Bit("", "", types, tests)) for types, tests in parts)))
        return reduce(and_, conditions)

    def can_evaluate(self, test: Expr) -> bool:
        """Whether Spark evaluates the test; otherwise workers do."""
        try:
            self._truth(test)
        except OutsideCatalyst:
            return False
        return True

    def _looks_for_nan(self, parts: Iterable[tuple[tuple[str, ...], Sequence[Expr]]]) -> bool:
        nodes = [node for _, tests in parts for test in tests for node in ex.walk(test)]
        return any(isinstance(node, ex.Compare) and self._guarded(node.op, node.left, node.right) for node in nodes)

    def value(self, name: str) -> Column:
        """The value of an attribute that every event has."""
        found = self._attribute(name)
        return F.lit(None) if found is None else found[0]

    def computed(self, expr: Expr) -> Column | None:
        """The value of an expression over one event; None if workers have to compute it."""
        try:
            return self._value(expr)
        except OutsideCatalyst:
            return None

    def is_there(self, name: str) -> Column:
        return ~self._is_null(ex.Attr("", name))

    def _plays(self, bit: Bit) -> Column:
        conditions = [self._has_type(bit.types)] if bit.types else []
        conditions.extend(self._truth(test)[1] for test in bit.tests)
        return reduce(and_, conditions) if conditions else F.lit(True)

    def _has_type(self, types: Iterable[str]) -> Column:
        if self.type_column is None:
            return F.lit(False)
        return column(self.type_column).isin(list(types))

    # --- truth --------------------------------------------------------------------------------------------------------

    def _truth(self, expr: Expr) -> tuple[Column, Column]:
        """Where the predicate is certainly true, and where it is not false (see `codegen.scalar`)."""
        match expr:
            case ex.And() | ex.Or():
                parts = [self._truth(item) for item in expr.items]
                certain = reduce(or_, (p[0] for p in parts))
                if isinstance(expr, ex.Or):
                    return certain, reduce(or_, (p[1] for p in parts))
                allowed = reduce(and_, (p[1] for p in parts))
                return certain & allowed, allowed
            case ex.Not(item=ex.IsNull() as asked) if not self._lacking(asked):
                known = ~self._is_null(asked.item)
                return known, known
            case ex.Not():
                certain, allowed = replace(self, exact=True)._truth(expr.item)
                return ~_settled(allowed), ~_settled(certain)
            case ex.Filter():
                return self._truth(expr.item)
            case _:
                test = self._atom(expr)
                lacking = self._lacking(expr)
                if not lacking:
                    return test, test
                missing = _settled(self._has_type(lacking))
                return test & ~missing, test | missing

    def _lacking(self, expr: Expr) -> list[str]:
        """The types that lack an attribute of the expression."""
        return sorted({t for name in _names_read(expr) for t in self.lacks.get(name, ())})

    def _atom(self, expr: Expr) -> Column:
        match expr:
            case ex.Compare():
                return self._compare(expr.op, expr.left, expr.right)
            case ex.In():
                return reduce(or_, (self._compare("=", expr.item, option) for option in expr.values), F.lit(False))
            case ex.Like():
                if not isinstance(expr.pattern, ex.Const):
                    raise OutsideCatalyst("Spark reads a backslash in a pattern otherwise")
                return self._value(expr.item).like(_spark_pattern(str(expr.pattern.value)))
            case ex.Contains():
                return self._value(expr.item).contains(self._value(expr.text))
            case ex.IsNull():
                return self._is_null(expr.item)
            case ex.Const():
                return F.lit(expr.value is True)
            case _:
                return self._compare("=", expr, ex.Const(True, type=BOOLEAN))

    def _is_null(self, expr: Expr) -> Column:
        if not isinstance(expr, ex.Attr):
            return F.lit(True) if _is_null_literal(expr) else self._value(expr).isNull()
        found = self._attribute(expr.name)
        if found is None:
            return F.lit(True)
        return found[0].isNull() | F.isnan(found[0]) if self._may_be_nan(expr) else found[0].isNull()

    # --- comparisons --------------------------------------------------------------------------------------------------

    def _compare(self, op: str, left: Expr, right: Expr) -> Column:
        if _is_null_literal(left) or _is_null_literal(right):
            return F.lit(False)
        if isinstance(left, ex.Const) and not isinstance(right, ex.Const):
            return self._compare(ex.FLIPPED[op], right, left)
        sides = {_comparison_family(left.type), _comparison_family(right.type)}
        if len(sides) == 1 and sides <= {Family.BOOLEAN, Family.STRING, Family.BINARY}:
            return COMPARE[op](self._value(left), self._value(right))
        if sides == {Family.INTEGER}:
            return self._compare_integers(op, left, right)
        if sides == {Family.FLOAT}:
            return self._compare_floats(op, left, right)
        if sides == {Family.INTEGER, Family.FLOAT}:
            return self._compare_mixed(op, left, right)
        if sides == {Family.DECIMAL, Family.FLOAT}:
            return COMPARE[op](self._double(left), self._double(right))
        if sides in ({Family.DECIMAL}, {Family.DECIMAL, Family.INTEGER}):
            _require_common_type(left.type, right.type)
            return COMPARE[op](self._plain_number(left), self._plain_number(right))
        raise OutsideCatalyst

    def _compare_integers(self, op: str, left: Expr, right: Expr) -> Column:
        kinds = [self._spark_type(side) for side in (left, right)]
        if kinds[0] is not None and kinds[0] == kinds[1]:
            return COMPARE[op](self._raw(left), self._raw(right))
        return COMPARE[op](self._plain_number(left), self._plain_number(right))

    def _compare_floats(self, op: str, left: Expr, right: Expr) -> Column:
        """Spark takes NaN for the largest number, and equal to itself. A test beside the comparison, rather than
        around the column, lets the comparison itself be pushed down."""
        test = COMPARE[op](self._plain_number(left), self._plain_number(right))
        guarded = self._guarded(op, left, right) if self.exact else []
        return reduce(and_, (~F.isnan(self._raw(side)) for side in guarded), test)

    def _guarded(self, op: str, left: Expr, right: Expr) -> list[Expr]:
        """The sides that must not be NaN, where the comparison by itself would let it pass."""
        if (isinstance(right, ex.Const) and op in ("=", "<", "<=")) or (
            isinstance(left, ex.Const) and op in ("=", ">", ">=")
        ):
            return []
        return [side for side in (left, right) if self._may_be_nan(side)]

    def _compare_mixed(self, op: str, left: Expr, right: Expr) -> Column:
        """An integer and a float, exactly: the float is rounded to an integer, not the integer to a float."""
        if _comparison_family(left.type) is Family.FLOAT:
            if isinstance(right, ex.Const):
                return self._compare_with_integer(op, left, right.value)
            return self._compare_mixed(ex.FLIPPED[op], right, left)
        if isinstance(right, ex.Const):
            return compare_with_float(op, self._plain_number(left), right.value)
        whole, real = self._value(left), self._value(right)
        both = whole.isNotNull() & real.isNotNull()
        fits = (real >= -(2.0**63)) & (real < 2.0**63)
        # In ANSI mode, rounding a float beyond 64 bits is an error.
        above, lower = F.when(fits, F.ceil(real)), F.when(fits, F.floor(real))
        is_below = _settled(F.when(fits, whole < above).otherwise(real > 0))
        is_up_to = _settled(F.when(fits, whole <= lower).otherwise(real > 0))
        is_equal = _settled(F.when(fits, (real == lower) & (whole == lower)))
        answers = {"<": is_below, "<=": is_up_to, "=": is_equal, ">": ~is_up_to, ">=": ~is_below, "!=": ~is_equal}
        return both & answers[op]

    def _compare_with_integer(self, op: str, real: Expr, number: Any) -> Column:
        nearest = float(number)
        if int(nearest) == number:
            return self._compare_floats(op, real, ex.Const(nearest, type=real.type))
        if op in ("=", "!="):
            return F.lit(False) if op == "=" else ~_settled(self._is_null(real))
        lower = nearest if nearest < number else math.nextafter(nearest, -math.inf)
        bound, op = (math.nextafter(lower, math.inf), "<") if op in ("<", "<=") else (lower, ">")
        return self._compare_floats(op, real, ex.Const(bound, type=real.type))

    def _may_be_nan(self, expr: Expr) -> bool:
        return isinstance(expr, ex.Attr) and isinstance(self._spark_type(expr), T.FloatType | T.DoubleType)

    # --- values -------------------------------------------------------------------------------------------------------

    def _attribute(self, name: str) -> tuple[Column, T.DataType] | None:
        """The column of an attribute and its type; a dotted name may lead into a struct."""
        if name in self.schema.names:
            return column(name), self.schema[name].dataType
        outer, _, inner = name.partition(".")
        if inner and outer in self.schema.names:
            struct = self.schema[outer].dataType
            if isinstance(struct, T.StructType) and inner in struct.names:
                return column(outer, inner), struct[inner].dataType
        return None

    def _spark_type(self, expr: Expr) -> T.DataType | None:
        found = self._attribute(expr.name) if isinstance(expr, ex.Attr) else None
        return None if found is None else found[1]

    def _raw(self, expr: Expr) -> Column:
        """An attribute as the DataFrame has it."""
        found = self._attribute(expr.name) if isinstance(expr, ex.Attr) else None
        if found is None:
            raise OutsideCatalyst
        return found[0]

    def _plain_number(self, expr: Expr) -> Column:
        """A number for a comparison: an attribute as it is, which may be NaN, so that it can be pushed down."""
        if isinstance(self._spark_type(expr), T.NumericType):
            return self._raw(expr)
        return self._value(expr)

    def _value(self, expr: Expr) -> Column:
        """The value as `types` has it; null where it is undefined."""
        match expr:
            case ex.Const():
                return _literal(expr)
            case ex.Attr():
                return self._attribute_value(expr)
            case ex.Negative():
                zero = ex.Const(0, type=Type(Family.INTEGER))
                return self._arithmetic("-", zero, expr.item, expr.type)
            case ex.Arithmetic():
                return self._arithmetic(expr.op, expr.left, expr.right, expr.type)
            case ex.Call():
                return self._call(expr)
            case _ if isinstance(expr, _CONDITIONS):
                return _settled(replace(self, exact=True)._truth(expr)[1])
            case _:
                raise OutsideCatalyst

    def _attribute_value(self, expr: ex.Attr) -> Column:
        found = self._attribute(expr.name)
        if found is None:
            raise OutsideCatalyst
        of, kind = found
        match expr.type.family:
            case Family.FLOAT if isinstance(kind, T.FloatType | T.DoubleType):
                return not_nan(of.cast("double"))
            case Family.INTEGER if isinstance(kind, T.IntegralType):
                return of.cast("long")
            case Family.DECIMAL if isinstance(kind, T.DecimalType):
                return of
            case Family.BOOLEAN | Family.STRING | Family.BINARY if _HELD[expr.type.family](kind):
                return of
            case Family.DATE | Family.TIMESTAMP | Family.DURATION if isinstance(kind, _TIMES):
                return ticks(of, kind)
            case _:
                raise OutsideCatalyst

    def _integer(self, expr: Expr) -> Column:
        """A 64-bit integer; an unsigned one that is larger is undefined."""
        return F.lit(None).cast("long") if expr.type.family is Family.UNSIGNED else self._value(expr)

    def _double(self, expr: Expr) -> Column:
        """The nearest float of a number."""
        return double(self._value(expr), expr.type)

    def _arithmetic(self, op: str, left: Expr, right: Expr, result: Type) -> Column:
        if _is_null_literal(left) or _is_null_literal(right):
            return F.lit(None).cast(_spark_name(result))
        match result.family:
            case Family.FLOAT:
                return not_nan(float_arithmetic(op, self._double(left), self._double(right)))
            case Family.INTEGER | Family.TIMESTAMP | Family.DURATION:
                if result.family is Family.DURATION and is_rounded(op, left.type, right.type):
                    raise OutsideCatalyst
                if Family.DECIMAL in (left.type.family, right.type.family):
                    raise OutsideCatalyst
                return integer_arithmetic(op, self._integer(left), self._integer(right))
            case Family.DECIMAL:
                return self._decimal_arithmetic(op, left, right, result)
            case _:
                raise OutsideCatalyst

    def _decimal_arithmetic(self, op: str, left: Expr, right: Expr, result: Type) -> Column:
        """Two short decimals, or one and an integer: Spark holds every digit of their result."""
        sides = []
        for side in (left, right):
            if side.type.family is Family.DECIMAL and not side.type.is_short:
                raise OutsideCatalyst
            of = self._value(side)
            of = of if side.type.family is Family.DECIMAL else of.cast(T.DecimalType(_LONG_DIGITS, 0))
            sides.append(rescalable(of, result.scale - side.type.scale) if op == "%" else of)
        found = remainder(*sides) if op == "%" else ARITHMETIC[op](*sides)
        return found.try_cast(T.DecimalType(result.precision, result.scale))

    def _call(self, expr: ex.Call) -> Column:
        function = FUNCTIONS[expr.fn]
        if function.expands is not None:
            return self._value(function.expands(expr))
        if function.spark is not None:
            if any(arg.type.is_unknown for arg in expr.args):
                raise OutsideCatalyst
            result: Column = function.spark(F, *map(self._value, expr.args))
            return result
        if expr.fn.startswith(ex.CAST):
            return cast(self._value(expr.args[0]), expr.args[0].type, expr.type)
        of = expr.args[0]
        family = of.type.family
        is_whole = family is Family.INTEGER or of.type.is_time
        match expr.fn:
            case "abs" if is_whole:
                value = self._value(of)
                return F.when(value > LEAST, F.abs(value))
            case "abs" if family is Family.DECIMAL and of.type.precision > _ABS_DIGITS:
                raise OutsideCatalyst
            case "abs" if family in (Family.FLOAT, Family.DECIMAL):
                return F.abs(self._value(of))
            case "floor" | "ceil" if is_whole:
                return self._value(of)
            case "floor" | "ceil" if family is Family.FLOAT:
                value = self._value(of)
                # These give 64-bit integers; beyond those every double is whole.
                whole = getattr(F, expr.fn)(value).cast("double")
                return F.when(F.abs(value) < 2.0**62, whole).otherwise(value)
            case "floor" | "ceil" if family is Family.DECIMAL:
                whole_decimal: Column = getattr(F, expr.fn)(self._value(of))
                return whole_decimal.try_cast(T.DecimalType(expr.type.precision, expr.type.scale))
            case ex.CASE:
                return self._case(expr)
            case "round":
                return rounded(self._value(of), of.type, digits_of(expr.args), expr.type)
            case "sqrt" if of.type.is_number:
                value = self._double(of)
                return F.when(value >= 0, F.sqrt(value))
            case "length" if of.type in (STRING, BINARY):
                return F.length(self._value(of)).cast("long")
            case _:
                # Spark's upper and lower differ from Python's beyond ASCII.
                raise OutsideCatalyst

    def _case(self, expr: ex.Call) -> Column:
        pairs = zip(expr.args[::2], expr.args[1::2], strict=False)
        # A condition that is null is not true.
        branches = [(self._value(test), self._converted(of, expr.type)) for test, of in pairs]
        found = F.when(*branches[0])
        for test, of in branches[1:]:
            found = found.when(test, of)
        return found.otherwise(self._converted(expr.args[-1], expr.type)) if len(expr.args) % 2 else found

    def _converted(self, expr: Expr, kind: Type) -> Column:
        """A value in a type that holds it."""
        if kind.is_unknown or kind.family in (Family.LIST, Family.RECORD, Family.UNSIGNED):
            raise OutsideCatalyst
        if _is_null_literal(expr):
            return F.lit(None).cast(_spark_name(kind))
        match kind.family:
            case Family.FLOAT:
                return self._double(expr)
            case Family.DECIMAL if expr.type.family is not Family.UNSIGNED:
                return self._value(expr).try_cast(T.DecimalType(kind.precision, kind.scale))
            case Family.DECIMAL:
                raise OutsideCatalyst
            case _:
                return self._value(expr)


_TIMES = (T.TimestampType, T.TimestampNTZType, T.DateType, T.DayTimeIntervalType)
_HELD: dict[Family, Callable[[T.DataType], bool]] = {
    Family.BOOLEAN: lambda kind: isinstance(kind, T.BooleanType),
    Family.STRING: lambda kind: isinstance(kind, T.StringType | T.CharType | T.VarcharType),
    Family.BINARY: lambda kind: isinstance(kind, T.BinaryType),
}
_SPARK_NAMES = {Family.FLOAT: "double", Family.BOOLEAN: "boolean", Family.STRING: "string", Family.BINARY: "binary"}


def _names_read(expr: Expr) -> Iterator[str]:
    """The attributes that a predicate itself reads. Those of a condition that is used as a value belong to that
    condition."""
    for node in ex.children(expr):
        if isinstance(node, ex.Attr):
            yield node.name
        elif not isinstance(node, _CONDITIONS):
            yield from _names_read(node)
    if isinstance(expr, ex.Attr):
        yield expr.name


def _comparison_family(kind: Type) -> Family:
    """The family whose rules compare values of a type: times are integers."""
    if kind.is_time:
        return Family.INTEGER
    return Family.DECIMAL if kind.family is Family.UNSIGNED else kind.family


def _require_common_type(left: Type, right: Type) -> None:
    """Spark compares decimals in a type that holds both, unless that takes more digits than it has."""
    digits = [
        (side.precision - side.scale, side.scale) if side.family is Family.DECIMAL else (_LONG_DIGITS + 1, 0)
        for side in (left, right)
    ]
    if max(before for before, _ in digits) + max(after for _, after in digits) > LONG_DIGITS:
        raise OutsideCatalyst


def _literal(expr: ex.Const) -> Column:
    match expr.value:
        case bool() | str() | bytes() as value:
            return F.lit(value)
        case int() as value if LEAST <= value <= LARGEST:
            return F.lit(value).cast("long")
        case int() | Decimal() as value:
            kind = expr.type
            digits = (kind.precision, kind.scale) if kind.family is Family.DECIMAL else (_LONG_DIGITS + 1, 0)
            return F.lit(Decimal(value)).cast(T.DecimalType(*digits))
        case float() as value:
            return F.lit(value)
        case _:
            raise OutsideCatalyst


def _is_null_literal(expr: Expr) -> bool:
    return isinstance(expr, ex.Const) and expr.value is None


def _spark_name(kind: Type) -> str:
    if kind.family is Family.DECIMAL:
        return f"decimal({kind.precision}, {kind.scale})"
    return _SPARK_NAMES.get(kind.family, "long")


def _spark_pattern(pattern: str) -> str:
    """The pattern with every backslash that Spark would read otherwise, or refuse, spelt out."""
    pieces, at = [], 0
    while at < len(pattern):
        escaped = pattern[at] == "\\" and at + 1 < len(pattern)
        literal = pattern[at + 1] if escaped else pattern[at]
        is_wild = not escaped and literal in "%_"
        pieces.append(literal if is_wild or literal not in "%_\\" else f"\\{literal}")
        at += 2 if escaped else 1
    return "".join(pieces)


def _of_one_event(test: Expr) -> Expr:
    """The test without its variable's name, so that equal tests of several components are made once."""
    return ex.replaced(test, ex.Attr, lambda node: replace(node, var=""))


def _settled(condition: Column) -> Column:
    return F.coalesce(condition, F.lit(False))
