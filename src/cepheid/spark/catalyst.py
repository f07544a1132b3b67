"""Single-event predicates as Catalyst expressions: the mask of every event, computed in the JVM, visible in Spark's own
EXPLAIN and pushed to the files where they allow it.

Truth is as in `codegen.masks`: a comparison with null (or NaN) is false, and so is one of values of different types.
A Column that is null counts as false wherever it is used as a condition, so only negation tests for null; so
tests have the plain form that Parquet readers push down.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from operator import add, and_, eq, ge, gt, le, lt, mul, ne, or_, sub, truediv
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cepheid import expr as ex
from cepheid.expr import Expr
from cepheid.functions import FUNCTIONS
from cepheid.physical import Bit, Plan
from cepheid.types import STRING

_LARGEST = 2**63 - 1
_MICROSECONDS_A_DAY = 86_400_000_000
_EPOCH = "TIMESTAMP_NTZ'1970-01-01 00:00:00'"


def column(*path: str) -> Column:
    """A column (or a field inside one) by its name, whatever characters the name has."""
    return F.col(".".join(f"`{name.replace('`', '``')}`" for name in path))


def ticks(of: Column, kind: T.DataType) -> Column:
    """A time as a number: microseconds of a timestamp or date; an integer is unchanged."""
    match kind:
        case T.TimestampType():
            return F.unix_micros(of)
        case T.TimestampNTZType():
            return F.timestamp_diff("MICROSECOND", F.expr(_EPOCH), of)
        case T.DateType():
            return F.unix_date(of).cast("long") * F.lit(_MICROSECONDS_A_DAY)
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
    """Whether tests exclude NaN. Without it they are plain enough to be pushed down to the files, and let NaN pass."""

    def mask(self, plan: Plan) -> Column:
        """The mask: bit i is set where the event can bind the i-th variable."""
        signed = [(1 << i) - (1 << 64) if i == 63 else 1 << i for i in range(len(plan.bits))]
        zero = F.lit(0).cast("long")
        numbers = [
            F.when(self._plays(bit), F.lit(number).cast("long")).otherwise(zero)
            for number, bit in zip(signed, plan.bits, strict=True)
        ]
        return reduce(lambda whole, part: whole.bitwiseOR(part), numbers)

    def matters(self, plan: Plan) -> Column | None:
        """Whether an event can bind any variable; None where all can. Types come first and alone, and tests first in
        their plain form, so that Spark pushes them down to the files."""
        bits = [bit for bit in plan.bits if bit.var]
        if any(not bit.types and not bit.tests for bit in bits):
            return None
        parts = dict.fromkeys((bit.types, tuple(map(_of_one_event, bit.tests))) for bit in bits)
        conditions: list[Column] = []
        if all(bit.types for bit in bits):
            conditions.append(self._has_type(sorted({name for bit in bits for name in bit.types})))
        forms = [replace(self, exact=False), self] if self._excludes_nan(parts) else [self]
        if any(bit.tests for bit in bits):
            for form in forms:
                conditions.append(reduce(or_, (form._plays(Bit("", "", types, tests)) for types, tests in parts)))
        return reduce(and_, conditions)

    def _excludes_nan(self, parts: Iterable[tuple[tuple[str, ...], tuple[Expr, ...]]]) -> bool:
        nodes = [node for _, tests in parts for test in tests for node in ex.walk(test)]
        return any(isinstance(node, ex.Compare) and self._guarded(node.op, node.left, node.right) for node in nodes)

    def value(self, name: str) -> Column:
        """The value of an attribute that every event has."""
        found = self._attribute(name)
        return F.lit(None) if found is None else found[0]

    def is_there(self, name: str) -> Column:
        return ~_settled(self._is_null(ex.Attr("", name)))

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
            case ex.Not():
                certain, allowed = replace(self, exact=True)._truth(expr.item)
                return ~_settled(allowed), ~_settled(certain)
            case ex.Filter():
                return self._truth(expr.item)
            case _:
                test = self._atom(expr)
                names = [node.name for node in ex.walk(expr) if isinstance(node, ex.Attr)]
                lacking = sorted({t for name in names for t in self.lacks.get(name, ())})
                if not lacking:
                    return test, test
                missing = _settled(self._has_type(lacking))
                return test & ~missing, test | missing

    def _atom(self, expr: Expr) -> Column:
        match expr:
            case ex.Compare():
                return self._compare(expr.op, expr.left, expr.right)
            case ex.In():
                return reduce(or_, (self._compare("=", expr.item, option) for option in expr.values), F.lit(False))
            case ex.Like():
                # Spark's LIKE has an escape character, the languages have none.
                return self._text(expr.item).like(expr.pattern.replace("\\", "\\\\"))
            case ex.Contains():
                return self._text(expr.item).contains(self._text(expr.text))
            case ex.IsNull():
                return self._is_null(expr.item)
            case ex.Const():
                return F.lit(expr.value is True)
            case _:
                return self._compare("=", expr, ex.TRUE)

    def _compare(self, op: str, left: Expr, right: Expr) -> Column:
        kinds = {self._kind(side) for side in (left, right)}
        if len(kinds) > 1 or "nothing" in kinds:
            return F.lit(False)
        if kinds == {"text"}:
            return _COMPARE[op](self._text(left), self._text(right))
        if kinds == {"flag"}:
            return _COMPARE[op](self._flag(left), self._flag(right))
        test = _COMPARE[op](self._number(left), self._number(right))
        # Spark takes NaN for the largest number, and equal to itself. A test beside the comparison, rather than
        # around the column, lets the comparison itself be pushed down.
        guarded = self._guarded(op, left, right) if self.exact else []
        return reduce(and_, (~F.isnan(self._number(side)) for side in guarded), test)

    def _guarded(self, op: str, left: Expr, right: Expr) -> list[Expr]:
        """The sides that must not be NaN, where the comparison alone would let it pass."""
        if (isinstance(right, ex.Const) and op in ("=", "<", "<=")) or (
            isinstance(left, ex.Const) and op in ("=", ">", ">=")
        ):
            return []
        return [side for side in (left, right) if self._may_be_nan(side)]

    def _kind(self, expr: Expr) -> str:
        match expr:
            case ex.Const(value=None):
                return "nothing"
            case ex.Const():
                return {bool: "flag", str: "text"}.get(type(expr.value), "number")
            case ex.Attr():
                found = self._attribute(expr.name)
                return "nothing" if found is None else _kind_of(found[1])
            case ex.Call(fn=fn) if FUNCTIONS[fn].takes == STRING:
                return "text"
            case ex.Call() | ex.Arithmetic() | ex.Negative():
                return "number"
            case _:
                return "nothing"

    def _may_be_nan(self, expr: Expr) -> bool:
        match expr:
            case ex.Const():
                return False
            case ex.Attr():
                found = self._attribute(expr.name)
                return found is not None and isinstance(found[1], T.FloatType | T.DoubleType)
            case _:
                return True

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

    def _text(self, expr: Expr) -> Column:
        match expr:
            case ex.Const(value=str() as text):
                return F.lit(text)
            case ex.Call(fn=fn) if FUNCTIONS[fn].takes == STRING:
                return _function(fn, *map(self._text, expr.args))
            case ex.Attr() if self._kind(expr) == "text":
                found = self._attribute(expr.name)
                assert found is not None
                return found[0]
            case _:
                return F.lit(None).cast("string")

    def _flag(self, expr: Expr) -> Column:
        found = self._attribute(expr.name) if isinstance(expr, ex.Attr) else None
        return F.lit(expr.value) if isinstance(expr, ex.Const) else found[0] if found else F.lit(None).cast("boolean")

    def _number(self, expr: Expr) -> Column:
        match expr:
            case ex.Const(value=int() as whole) if abs(whole) <= _LARGEST:
                return F.lit(whole)
            case ex.Const(value=int() | float() as number):
                return F.lit(float(number))
            case ex.Attr() if self._kind(expr) == "number":
                found = self._attribute(expr.name)
                assert found is not None
                return _plain_number(*found)
            case ex.Negative():
                return -self._exact(expr.item)
            case ex.Arithmetic():
                return _arithmetic(expr.op, self._exact(expr.left), self._exact(expr.right))
            case ex.Call(fn=fn) if FUNCTIONS[fn].arrow is not None:
                return _function(fn, *map(self._text, expr.args))
            case ex.Call():
                return _function(expr.fn, *map(self._exact, expr.args))
            case _:
                return F.lit(None).cast("double")

    def _exact(self, expr: Expr) -> Column:
        """A number that takes part in arithmetic: a double, so that nothing overflows, and null rather than NaN."""
        return F.nanvl(self._number(expr).cast("double"), F.lit(None).cast("double"))

    def _is_null(self, expr: Expr) -> Column:
        if not isinstance(expr, ex.Attr):
            return {"text": self._text, "flag": self._flag}.get(self._kind(expr), self._exact)(expr).isNull()
        found = self._attribute(expr.name)
        if found is None:
            return F.lit(True)
        return found[0].isNull() | F.isnan(found[0]) if self._may_be_nan(expr) else found[0].isNull()


_COMPARE: dict[str, Callable[[Any, Any], Column]] = {"=": eq, "!=": ne, "<": lt, "<=": le, ">": gt, ">=": ge}
_ARITHMETIC: dict[str, Callable[[Any, Any], Column]] = {"+": add, "-": sub, "*": mul, "/": truediv}


def _of_one_event(test: Expr) -> Expr:
    """The test without its variable's name, so that equal tests of several components are made once."""
    return ex.transform(test, lambda node: ex.Attr("", node.name) if isinstance(node, ex.Attr) else node)


def _settled(condition: Column) -> Column:
    return F.coalesce(condition, F.lit(False))


def _kind_of(kind: T.DataType) -> str:
    match kind:
        case T.StringType() | T.CharType() | T.VarcharType():
            return "text"
        case T.BooleanType():
            return "flag"
        case T.NumericType() | T.TimestampType() | T.TimestampNTZType() | T.DateType():
            return "number"
        case _:
            return "nothing"


def _plain_number(of: Column, kind: T.DataType) -> Column:
    if isinstance(kind, T.DecimalType):
        return of.cast("double")
    return of if isinstance(kind, T.NumericType) else ticks(of, kind)


def _arithmetic(op: str, a: Column, b: Column) -> Column:
    """Division by zero is undefined, which is null; a remainder has the sign of its divisor, as Python's."""
    if op in ("/", "%"):
        b = F.nullif(b, F.lit(0.0))
    if op == "%":
        rest = a % b
        return F.when((rest != 0) & ((rest < 0) != (b < 0)), rest + b).otherwise(rest)
    return _ARITHMETIC[op](a, b)


def _function(name: str, *args: Column) -> Column:
    result: Column = getattr(F, FUNCTIONS[name].spark or name)(*args)
    match name:
        case "sqrt":
            return F.when(args[0] >= 0, result)
        case "floor" | "ceil":
            # These give 64-bit integers; beyond those every double is whole.
            return F.when(F.abs(args[0]) < 2.0**62, result.cast("double")).otherwise(args[0])
        case _:
            return result
