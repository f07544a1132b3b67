"""Vectorised evaluation: expressions over typed columns, by the rules of `types`.

The definition is `evaluation`; the values of all rows are computed at once here. Single-event predicates (`masks`) and
RETURN columns are evaluated so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cepheid import expr as ex
from cepheid import types
from cepheid.codegen.conversions import converted
from cepheid.codegen.hashing import hashed
from cepheid.codegen.rounding import nearest_floats, whole_counts
from cepheid.codegen.string_tests import contains, flags, matches_like
from cepheid.codegen.typed_columns import (
    HIGHEST,
    LOWEST,
    NULL,
    TEXTS,
    Column,
    Strings,
    absent_of,
    both,
    constant,
    either,
    floats,
    from_arrow,
    objects,
    to_python,
)
from cepheid.evaluation import call
from cepheid.expr import Aggregate, Attr, Expr
from cepheid.functions import FUNCTIONS, conditions_of_case, digits_of, values_of_case, whole
from cepheid.runtime.kernel import Array
from cepheid.types import Family, Type
from cepheid.values import compare

_COMPARISONS: dict[str, Any] = {
    **{"=": np.equal, "!=": np.not_equal, "<": np.less, "<=": np.less_equal},
    **{">": np.greater, ">=": np.greater_equal},
}
_ARROW = {"=": pc.equal, "!=": pc.not_equal, "<": pc.less, "<=": pc.less_equal, ">": pc.greater, ">=": pc.greater_equal}


def is_vectorisable(expr: Expr) -> bool:
    """Whether an expression can be evaluated over columns."""
    row_by_row = ex.Whole | ex.OccursWithin | ex.Param
    return not any(
        isinstance(node, row_by_row) or (isinstance(node, Attr) and node.at is ex.At.ALL)
        for node in ex.walk_reads(expr)
    )


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Evaluates expressions over `length` rows. `read` returns the values of an attribute, and `aggregate` those of an
    aggregate, with the rows in which they are absent."""

    length: int
    read: Callable[[Attr], Column]
    aggregate: Callable[[Aggregate], Column]
    is_output: bool = False
    """Whether values are shown, not tested: then `coalesce` passes over what is absent."""

    def truth(self, expr: Expr) -> tuple[Array, Array]:
        """The rows in which a predicate is true, and those in which it is not false (true, or does not apply)."""
        match expr:
            case ex.And() | ex.Or():
                parts = [self.truth(item) for item in expr.items]
                certain = np.logical_or.reduce([p[0] for p in parts])
                if isinstance(expr, ex.Or):
                    return certain, np.logical_or.reduce([p[1] for p in parts])
                allowed = np.logical_and.reduce([p[1] for p in parts])
                return certain & allowed, allowed
            case ex.Not():
                certain, allowed = self.truth(expr.item)
                return ~allowed, ~certain
            case ex.Filter():
                return self.truth(expr.item)
            case _:
                test, absent = self._atom(expr)
                return (test, test) if absent is None else (test & ~absent, test | absent)

    def _atom(self, expr: Expr) -> tuple[Array, Any]:
        """The rows in which an atomic predicate is true, and those in which it does not apply."""
        match expr:
            case ex.Compare():
                left, right = self.value(expr.left), self.value(expr.right)
                return compared(expr.op, left, right, self.length), absent_of([left, right])
            case ex.In():
                item, values = self.value(expr.item), [self.value(value) for value in expr.values]
                tests = [compared("=", item, value, self.length) for value in values]
                return np.asarray(np.logical_or.reduce(tests)), absent_of([item, *values])
            case ex.Like():
                item, pattern = self.value(expr.item), self.value(expr.pattern)
                return matches_like(item, pattern, self.length), absent_of([item, pattern])
            case ex.Contains():
                item, part = self.value(expr.item), self.value(expr.text)
                return contains(item, part, self.length), absent_of([item, part])
            case ex.IsNull():
                item = self.value(expr.item)
                is_null = np.False_ if item.valid is None else ~np.asarray(item.valid)
                return np.broadcast_to(is_null, (self.length,)), item.absent
            case _:
                item = self.value(expr)
                flags = item.values if item.type.family is Family.BOOLEAN else np.False_
                return np.broadcast_to(both(item.valid, flags), (self.length,)), item.absent

    def value(self, expr: Expr) -> Column:
        """The value of an expression in each row. The value of a condition is whether it is not false."""
        match expr:
            case ex.Const():
                return constant(expr.value, getattr(expr, "type", types.UNKNOWN))
            case Attr():
                return self.read(expr)
            case Aggregate():
                return self.aggregate(expr)
            case ex.Arithmetic():
                return arithmetic(expr.op, self.value(expr.left), self.value(expr.right))
            case ex.Negative():
                return negative(self.value(expr.item))
            case ex.Call(fn="coalesce") if self.is_output:
                items = [_null_if_absent(self.value(arg)) for arg in expr.args]
                known = [np.broadcast_to(True if item.valid is None else item.valid, (self.length,)) for item in items]
                return chosen([(flags, None) for flags in known[:-1]], items, expr.type, self.length)
            case ex.Call() if (expand := FUNCTIONS[expr.fn].expands) is not None:
                # It does not apply where an argument is absent, also one that only a condition of it reads.
                found = self.value(expand(expr))
                return replace(found, absent=absent_of([found, *map(self.value, expr.args)]))
            case ex.Call(fn=ex.CASE):
                tests = [_true(self.value(test), self.length) for test in conditions_of_case(expr.args)]
                return chosen(tests, [self.value(of) for of in values_of_case(expr.args)], expr.type, self.length)
            case ex.Call():
                return called(expr, [self.value(arg) for arg in expr.args], self.length)
            case ex.Vector():
                items = [self.value(item) for item in expr.items]
                rows = zip(*(to_python(item, self.length) for item in items), strict=True)
                values = np.empty(self.length, object)
                values[:] = [list(row) for row in rows]
                return Column(types.list_of(), values, None, absent_of(items))
            case _:
                return Column(types.BOOLEAN, self.truth(expr)[1])


# --- comparisons ------------------------------------------------------------------------------------------------------


def compared(op: str, left: Column, right: Column, length: int) -> Array:
    """Where a comparison is true; false where a side is null or the operator is not defined for the two types."""
    defined = types.are_comparable if op in ("=", "!=") else types.have_order
    if not defined(left.type, right.type) or left.type.is_unknown or right.type.is_unknown:
        result: Any = np.False_
        if _is_object(left) or _is_object(right):
            result = _compared_objects(op, left, right, length)
    elif left.type.family in TEXTS:
        result = _compared_texts(op, left.values, right.values, length)
    elif _is_object(left) or _is_object(right):
        result = _compared_objects(op, left, right, length)
    elif _are_alike(left, right):
        result = _COMPARISONS[op](left.values, right.values)
    elif _are_floats(left, right) or _are_floats(right, left):
        result = _COMPARISONS[op](as_float(left), as_float(right))
    else:
        result = _COMPARISONS[op](_ordering(left, right), 0)
    for valid in (left.valid, right.valid):
        result = result if valid is None else result & valid
    return np.broadcast_to(result, (length,))


def _is_object(column: Column) -> bool:
    return column.type.family in (Family.LIST, Family.RECORD, Family.UNKNOWN) and column is not NULL


def _are_floats(column: Column, constant: Column) -> bool:
    """Whether a column of floats is compared with an integer constant that a float holds exactly."""
    if column.type.family is not Family.FLOAT or constant.type.family is not Family.INTEGER:
        return False
    return np.ndim(constant.values) == 0 and abs(int(constant.values)) <= 2**53


def _are_alike(left: Column, right: Column) -> bool:
    """Whether the values of both are numbers in the same unit."""
    families = {left.type.family, right.type.family}
    if len(families) == 1:
        return left.type.scale == right.type.scale
    return all(side.type.is_time or side.type.family is Family.INTEGER for side in (left, right))


def _compared_texts(op: str, left: Strings, right: Strings, length: int) -> Array:
    for side, other, flipped in ((left, right, op), (right, left, ex.FLIPPED[op])):
        if np.ndim(other.codes) == 0:
            return np.asarray(flags(_ARROW[flipped](side.dictionary, other.dictionary[int(other.codes)]))[side.codes])
    return flags(_ARROW[op](left.decoded(length), right.decoded(length)))


def _compared_objects(op: str, left: Column, right: Column, length: int) -> Array:
    pairs = zip(to_python(left, length), to_python(right, length), strict=True)
    return np.fromiter((compare(op, a, b) for a, b in pairs), bool, length)


def _ordering(left: Column, right: Column) -> Array:
    """-1, 0 or 1 as `left` is less than, equal to or greater than `right`: exact for numbers of different types."""
    if left.type.family is Family.FLOAT:
        return -_ordering(right, left)
    if right.type.family is Family.FLOAT:
        return _ordering_with_float(left, right)
    if Family.DECIMAL in (left.type.family, right.type.family):
        return _ordering_of_decimals(left, right)
    if left.type.family is Family.UNSIGNED:
        return -_ordering(right, left)
    if right.type.family is not Family.UNSIGNED:
        return _sign(left.values, right.values)
    signed = np.asarray(left.values)
    return np.where(signed < 0, -1, _sign(signed.astype(np.uint64), right.values))


def _sign(left: Any, right: Any) -> Array:
    return np.asarray(np.greater(left, right), np.int8) - np.asarray(np.less(left, right), np.int8)


def _ordering_with_float(left: Column, right: Column) -> Array:
    """Rounding is monotonic, so only ties with the nearest float need the exact integers."""
    numbers, floats = np.broadcast_arrays(left.values, right.values)
    sign = _sign(as_float(left), floats)
    if left.type.family is Family.DECIMAL:
        return sign
    low, high = (0.0, 2.0**64) if left.type.family is Family.UNSIGNED else (-(2.0**63), 2.0**63)
    ties = np.atleast_1d((sign == 0) & np.isfinite(floats))
    if not ties.any():
        return sign
    sign, numbers, floats = np.atleast_1d(sign), np.atleast_1d(numbers), np.atleast_1d(floats)
    inside = ties & (floats >= low) & (floats < high)
    sign[ties & (floats >= high)] = -1
    sign[inside] = _sign(numbers[inside], floats[inside].astype(numbers.dtype))
    return sign


def _ordering_of_decimals(left: Column, right: Column) -> Array:
    """The side with more digits after the point is divided by the other's unit, which cannot overflow."""
    if left.type.scale < right.type.scale:
        return -_ordering_of_decimals(right, left)
    factor = 10 ** (left.type.scale - right.type.scale)
    values = np.asarray(left.values)
    if factor > HIGHEST or object in (values.dtype, np.asarray(right.values).dtype):
        return _sign(values.astype(object), _objects(right.values, factor))
    whole = values // factor
    order = _ordering(Column(types.INTEGER, whole), replace(right, type=_unscaled(right.type)))
    return np.where(order == 0, (values - whole * factor > 0).astype(np.int8), order)


def _unscaled(type_: Type) -> Type:
    return types.INTEGER if type_.family is Family.DECIMAL else type_


# --- arithmetic -------------------------------------------------------------------------------------------------------


def as_float(column: Column) -> Any:
    """The nearest floats. A decimal is its scaled integer as a float, divided by the power of ten."""
    values = np.asarray(column.values, np.float64)
    return values / 10.0**column.type.scale if column.type.family is Family.DECIMAL else values


def arithmetic(op: str, left: Column, right: Column) -> Column:
    """`left op right` by the rules of `types.arithmetic`; null where it is undefined."""
    type_ = types.arithmetic(op, left.type, right.type)
    absent, valid = absent_of([left, right]), both(left.valid, right.valid)
    if type_ is None or type_.is_unknown:
        return replace(NULL, absent=absent)
    with np.errstate(all="ignore"):
        if type_.family is Family.FLOAT:
            values, invalid = _floats(op, as_float(left), as_float(right))
            return replace(floats(values, valid).null_where(invalid), absent=absent)
        if type_.family is Family.DURATION and types.is_rounded(op, left.type, right.type):
            counts, undefined = _floats(op, as_float(left), as_float(right))
            values, invalid = whole_counts(counts)
            invalid = either(undefined, invalid)
        else:
            values, invalid = _exact(op, type_, left, right)
    return Column(type_, values, valid, absent).null_where(invalid)


def negative(column: Column) -> Column:
    return arithmetic("-", Column(types.INTEGER, np.int64(0)), column)


def _floats(op: str, a: Any, b: Any) -> tuple[Any, Any]:
    match op:
        case "+":
            return a + b, None
        case "-":
            return a - b, None
        case "*":
            return a * b, None
        case "/":
            return a / b, b == 0
        case _:
            return np.remainder(a, b), b == 0


def _exact(op: str, type_: Type, left: Column, right: Column) -> tuple[Any, Any]:
    """Integers, or the unscaled integers of decimals, and the rows in which the result is undefined."""
    (a, beyond_a), (b, beyond_b) = _signed(left), _signed(right)
    beyond = either(beyond_a, beyond_b)
    factors = [1, 1]
    if type_.family is Family.DECIMAL and op != "*":
        factors = [10 ** (type_.scale - side.type.scale) for side in (left, right)]
    if (
        object in (a.dtype, b.dtype)
        or max(factors) > HIGHEST
        or (type_.family is Family.DECIMAL and not type_.is_short)
    ):
        values, invalid = _by_objects(op, type_, a, b, factors)
        return values, either(beyond, invalid)
    if factors != [1, 1]:
        (a, over_a), (b, over_b) = _times(a, factors[0]), _times(b, factors[1])
        over = either(over_a, over_b)
        beyond = either(beyond, over)
    values, invalid = _integers(op, a, b)
    if type_.family is Family.DECIMAL:
        invalid = either(invalid, (values <= -(10**type_.precision)) | (values >= 10**type_.precision))
    return values, either(beyond, invalid)


def _signed(column: Column) -> tuple[Any, Any]:
    """The values as 64-bit integers, and the rows in which they are not."""
    values = np.asarray(column.values)
    if column.type.family is not Family.UNSIGNED:
        return values, None
    return values.astype(np.int64), values > np.uint64(HIGHEST)


def _times(values: Any, factor: int) -> tuple[Any, Any]:
    if factor == 1:
        return values, None
    over = (values > HIGHEST // factor) | (values < -(HIGHEST // factor))
    return values * np.int64(factor), over if np.any(over) else None


def _integers(op: str, a: Any, b: Any) -> tuple[Any, Any]:
    match op:
        case "+":
            total = a + b
            return total, ((a ^ total) & (b ^ total)) < 0
        case "-":
            difference = a - b
            return difference, ((a ^ b) & (a ^ difference)) < 0
        case "*":
            return _product(a, b)
        case _ if np.all(b):
            return np.remainder(a, b), None
        case _:
            return np.where(b == 0, 0, np.remainder(a, np.where(b == 0, 1, b))), b == 0


def _product(a: Any, b: Any) -> tuple[Any, Any]:
    product, estimate = a * b, np.abs(np.asarray(a, np.float64) * np.asarray(b, np.float64))
    risky = estimate >= 2.0**62
    if not np.any(risky):
        return product, None
    a, b, risky = np.broadcast_arrays(a, b, risky)
    over = np.zeros(risky.shape, bool)
    exact = a[risky].astype(object) * b[risky].astype(object)
    over[risky] = (exact > HIGHEST) | (exact < LOWEST)
    return product, over


def _objects(values: Any, factor: int) -> Array:
    """Python's integers, times a factor. NumPy would take the product of a single one out of its array."""
    return np.asarray(np.asarray(values).astype(object) * factor, object)


def _by_objects(op: str, type_: Type, a: Any, b: Any, factors: Sequence[int]) -> tuple[Any, Any]:
    """With Python's integers, which do not overflow."""
    a, b = _objects(a, factors[0]), _objects(b, factors[1])
    undefined: Any = None
    if op == "%":
        undefined = np.asarray(b == 0, bool)
        values: Any = np.asarray(a % np.where(undefined, 1, b), object)
    else:
        values = np.asarray(a + b if op == "+" else a - b if op == "-" else a * b, object)
    most = 10 ** (type_.precision or 19)
    return values, either(undefined, np.asarray((values <= -most) | (values >= most), bool))


# --- functions and tests of strings -----------------------------------------------------------------------------------


def called(expr: ex.Call, args: Sequence[Column], length: int) -> Column:
    """A scalar function: over arrays where it has a case here, else by its definition, for each row or each distinct
    string."""
    absent, function = absent_of(args), FUNCTIONS[expr.fn]
    known = _FUNCTIONS.get(expr.fn)
    computed = hashed(args, length) if expr.fn == "hash_f" else converted(expr, args, length)
    if known is not None:
        computed = known(args[0], expr)
    if computed is not None:
        return replace(computed, absent=absent)
    if function.is_elementwise and args[0].type.is_time:
        return Column(expr.type, function.apply(np.asarray(args[0].values)), args[0].valid, absent)
    strings, *others = args
    if strings.type.family is Family.STRING and all(np.ndim(other.values) == 0 for other in map(_scalars, others)):
        distinct = strings.values.dictionary
        rows = zip(distinct.to_pylist(), *(to_python(other, len(distinct)) for other in others), strict=True)
        result = _from_python([call(expr.fn, row) for row in rows], expr.type)
        return replace(_taken(result, strings.values.codes), absent=absent).null_where(_invalid(strings))
    rows = zip(*(to_python(arg, length) for arg in args), strict=True)
    return replace(_from_python([call(expr.fn, row) for row in rows], expr.type), absent=absent)


def _scalars(column: Column) -> Column:
    """The column with the codes of its strings as values."""
    return replace(column, values=column.values.codes) if isinstance(column.values, Strings) else column


def _invalid(column: Column) -> Any:
    return None if column.valid is None else ~np.asarray(column.valid)


def _from_python(results: list[Any], type_: Type) -> Column:
    """Values by the definition as a column of their type. Times are counts of microseconds. Of an attribute that the
    type lacks, they are those of other event types, which may be of several types or too large for Arrow's inference.
    """
    arrow = pa.int64() if type_.is_time else None if type_.is_unknown else types.to_arrow(type_)
    try:
        column = from_arrow(pa.array(results, arrow))
    except (pa.ArrowException, OverflowError):
        if not type_.is_unknown:
            raise
        return Column(types.UNKNOWN, objects(results), np.array([value is not None for value in results], bool))
    return replace(column, type=type_) if type_.is_time and column is not NULL else column


def _taken(column: Column, codes: Any) -> Column:
    """The column with a row for each code, which is the number of one of its rows."""
    if column is NULL:
        return column
    valid = None if column.valid is None else np.broadcast_to(column.valid, (len(_scalars(column).values),))[codes]
    if isinstance(column.values, Strings):
        return replace(column, values=Strings(column.values.codes[codes], column.values.dictionary), valid=valid)
    return replace(column, values=column.values[codes], valid=valid)


# --- CASE -------------------------------------------------------------------------------------------------------------


def _true(test: Column, length: int) -> tuple[Array, Any]:
    """The rows in which a condition is true, and those in which it is absent."""
    flags = test.values if test.type.family is Family.BOOLEAN else np.False_
    return np.broadcast_to(both(test.valid, flags), (length,)), test.absent


def _null_if_absent(column: Column) -> Column:
    if column.values is NULL.values:
        return NULL
    return column if column.absent is None else replace(column.null_where(column.absent), absent=None)


def chosen(tests: Sequence[tuple[Array, Any]], values: Sequence[Column], type_: Type, length: int) -> Column:
    """In each row the value of the first test that is true, or the last value if there is one more than tests."""
    absent = absent_of([*values, *(Column(types.BOOLEAN, flags, None, gone) for flags, gone in tests)])
    number = np.full(length, len(tests))
    for index in range(len(tests) - 1, -1, -1):
        number[tests[index][0]] = index
    if type_.is_unknown or type_.family in (Family.LIST, Family.RECORD, Family.BINARY):
        rows = list(zip(*(to_python(value, length) for value in values), *([[None] * length]), strict=True))
        return replace(_from_python([row[n] for row, n in zip(rows, number, strict=True)], type_), absent=absent)
    found, valid = _blank(type_, length), np.zeros(length, bool)
    dictionary: list[pa.Array] = []
    for index, value in enumerate(values):
        where = number == index
        if not where.any() or value is NULL:
            continue
        valid[where] = np.broadcast_to(True if value.valid is None else value.valid, (length,))[where]
        if type_.family is Family.STRING:
            offset = sum(map(len, dictionary))
            dictionary.append(value.values.dictionary)
            found[where] = np.broadcast_to(value.values.codes, (length,))[where] + offset
        else:
            found[where] = np.broadcast_to(_converted(value, type_), (length,))[where]
    if type_.family is Family.STRING:
        if not dictionary:
            return replace(NULL, absent=absent)
        return Column(type_, Strings(found, pa.concat_arrays(dictionary)), valid, absent)
    return Column(type_, found, valid, absent)


def _blank(type_: Type, length: int) -> Array:
    match type_.family:
        case Family.FLOAT:
            return np.zeros(length)
        case Family.BOOLEAN:
            return np.zeros(length, bool)
        case Family.UNSIGNED:
            return np.zeros(length, np.uint64)
        case Family.DECIMAL if not type_.is_short:
            return np.full(length, 0, object)
        case _:
            return np.zeros(length, np.int64)


def _converted(column: Column, type_: Type) -> Any:
    """The values of a column in a type that holds them."""
    if type_.family is Family.FLOAT:
        return as_float(column)
    if type_.family is not Family.DECIMAL:
        return column.values
    factor = 10 ** (type_.scale - column.type.scale)
    return np.asarray(column.values).astype(np.int64 if type_.is_short else object) * factor


def _absolute(arg: Column, _: ex.Call) -> Column | None:
    if arg.type.family is Family.UNSIGNED:
        return arg
    if not arg.type.is_number and arg.type.family is not Family.DURATION:
        return None
    with np.errstate(over="ignore"):
        values = np.abs(arg.values)
    lowest = arg.type.family in (Family.INTEGER, Family.DURATION)
    return replace(arg, values=values).null_where(values < 0 if lowest else None)


def _rounded(function: Any, up: int) -> Callable[[Column, ex.Call], Column | None]:
    def rounded(arg: Column, _: ex.Call) -> Column | None:
        match arg.type.family:
            case Family.INTEGER | Family.UNSIGNED:
                return arg
            case Family.FLOAT:
                return replace(arg, values=function(arg.values) + 0.0)  # never -0.0
            case Family.DECIMAL:
                factor = 10**arg.type.scale
                values = up * (up * np.asarray(arg.values) // factor)
                type_ = whole(arg.type)
                return replace(arg, type=type_, values=values.astype(np.int64) if type_.is_short else values)
            case _:
                return None

    return rounded


def _nearest(arg: Column, expr: ex.Call) -> Column | None:
    digits = digits_of(expr.args)
    match arg.type.family:
        case Family.FLOAT:
            return replace(arg, values=nearest_floats(np.asarray(arg.values), digits))
        case Family.INTEGER if digits >= 0:
            return arg
        case Family.DECIMAL if 0 <= digits < arg.type.scale:
            unit = 10 ** (arg.type.scale - digits)
            size = np.abs(arg.values)
            counts = size // unit + (size % unit >= unit - unit // 2)
            values = np.where(np.asarray(arg.values) < 0, -counts, counts)
            return replace(arg, type=expr.type, values=values.astype(np.int64) if expr.type.is_short else values)
        case _:
            return None


def _root(arg: Column, _: ex.Call) -> Column | None:
    if not arg.type.is_number:
        return None
    with np.errstate(invalid="ignore"):
        return floats(np.sqrt(as_float(arg)), arg.valid)


def _cased(arg: Column, expr: ex.Call) -> Column | None:
    if arg.type.family is not Family.STRING or pc.all(pc.string_is_ascii(arg.values.dictionary)).as_py() is False:
        return None
    changed = getattr(pc, FUNCTIONS[expr.fn].arrow or "")(arg.values.dictionary)
    return replace(arg, values=Strings(arg.values.codes, changed))


def _length(arg: Column, _: ex.Call) -> Column | None:
    if arg.type.family is not Family.STRING:
        return None
    lengths = pc.utf8_length(arg.values.dictionary).cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    return replace(arg, type=types.INTEGER, values=lengths[arg.values.codes])


_FUNCTIONS: dict[str, Callable[[Column, ex.Call], Column | None]] = {
    "abs": _absolute,
    "floor": _rounded(np.floor, 1),
    "ceil": _rounded(np.ceil, -1),
    "sqrt": _root,
    "round": _nearest,
    "lower": _cased,
    "upper": _cased,
    "length": _length,
}
