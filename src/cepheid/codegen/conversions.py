"""Functions of strings and CAST over whole columns, by the definitions in `functions` and `values`.

What has no exact counterpart in Arrow or NumPy is None: it is computed by the definition, for each distinct string or
each row. Texts of floats and numbers in strings have one for the usual values; the definition computes the others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cepheid import types
from cepheid.codegen.float_texts import float_texts
from cepheid.codegen.typed_columns import Column, Strings, both, from_arrow
from cepheid.expr import CAST, CAST_DECIMAL, CAST_STRING, Call, Const
from cepheid.runtime.kernel import Array
from cepheid.types import Family, Type
from cepheid.values import DATE_PARTS, as_decimal, as_double, as_integer, date, unscaled

_FIRST_YEAR, _LAST_YEAR = 1, 9999
"""Times of other years have no text."""
_FLOAT_BOUND = 2.0**63


def converted(expr: Call, args: Sequence[Column], length: int) -> Column | None:
    """The result of a function; None where only the definition computes it."""
    function = _CONVERSIONS.get(expr.fn)
    return None if function is None else function(expr, args, length)


# --- strings ----------------------------------------------------------------------------------------------------------


def _trimmed(_: Call, args: Sequence[Column], __: int) -> Column | None:
    return _over_dictionary(args[0], lambda texts: pc.utf8_trim(texts, characters=" "))


def _over_dictionary(column: Column, change: Callable[[pa.Array], pa.Array]) -> Column | None:
    if column.type.family is not Family.STRING:
        return None
    return Column(column.type, Strings(column.values.codes, change(column.values.dictionary)), column.valid)


def _sliced(expr: Call, args: Sequence[Column], _: int) -> Column | None:
    """`substr` with constant positions. Those from the end count on before the first character of a short string, as
    the negative positions of Arrow do."""
    bounds = [arg.value for arg in expr.args[1:] if isinstance(arg, Const) and isinstance(arg.value, int)]
    if len(bounds) < len(expr.args) - 1 or any(abs(bound) >= 2**31 for bound in bounds):
        return None
    start, *size = bounds
    first = start - 1 if start > 0 else start
    last = first + max(size[0], 0) if size else None
    if first < 0 and last is not None and last >= 0:
        last = None
    if size and size[0] <= 0:
        first = last = 0
    return _over_dictionary(args[0], lambda texts: pc.utf8_slice_codeunits(texts, first, last))


def _joined(_: Call, args: Sequence[Column], length: int) -> Column | None:
    if any(arg.type.family is not Family.STRING for arg in args):
        return None
    varying = [arg for arg in args if np.ndim(arg.values.codes)]
    if len(varying) == 1:
        texts = [arg.values.dictionary if arg is varying[0] else _constant(arg) for arg in args]
        codes: Any = varying[0].values.codes
    else:
        texts = [arg.values.decoded(length) for arg in args]
        codes = np.arange(length)
    valid: Any = None
    for arg in args:
        valid = both(valid, arg.valid)
    return Column(types.STRING, Strings(codes, pc.binary_join_element_wise(*texts, pa.scalar(""))), valid)


def _constant(column: Column) -> pa.Scalar:
    return column.values.dictionary[int(column.values.codes)]


# --- CAST -------------------------------------------------------------------------------------------------------------


def _as_float(_: Call, args: Sequence[Column], __: int) -> Column | None:
    (arg,) = args
    if arg.type.family is Family.STRING:
        return _parsed(arg, r"-?\d+(\.\d+)?", types.FLOAT, pa.float64(), as_double)
    if arg.type.family not in (Family.INTEGER, Family.UNSIGNED, Family.FLOAT, Family.BOOLEAN, Family.DECIMAL):
        return None
    values = np.asarray(arg.values, np.float64)
    if arg.type.family is Family.DECIMAL:
        values = values / 10.0**arg.type.scale
    return Column(types.FLOAT, values, arg.valid)


def _as_integer(_: Call, args: Sequence[Column], __: int) -> Column | None:
    (arg,) = args
    if arg.type.family is Family.STRING:
        return _parsed(arg, r"-?\d{1,18}", types.INTEGER, pa.int64(), as_integer)
    values = np.asarray(arg.values)
    match arg.type.family:
        case Family.INTEGER | Family.BOOLEAN:
            return Column(types.INTEGER, values.astype(np.int64), arg.valid)
        case Family.UNSIGNED:
            return Column(types.INTEGER, values.astype(np.int64), arg.valid).null_where(values > 2**63 - 1)
        case Family.FLOAT:
            fits = (values >= -_FLOAT_BOUND) & (values < _FLOAT_BOUND)
            return Column(types.INTEGER, np.where(fits, values, 0).astype(np.int64), both(arg.valid, fits))
        case Family.DECIMAL if arg.type.is_short:
            units = np.abs(values) // 10**arg.type.scale
            return Column(types.INTEGER, np.where(values < 0, -units, units), arg.valid)
        case _:
            return None


def _as_decimal(expr: Call, args: Sequence[Column], length: int) -> Column | None:
    arg, type_ = args[0], expr.type
    if type_.family is not Family.DECIMAL:
        return None
    if arg.type.family is Family.FLOAT:
        return _decimals_of_floats(arg, type_, length)
    if arg.type.family is Family.STRING:
        return _decimals_of_texts(arg, type_)
    is_short = arg.type.family is Family.INTEGER or (arg.type.family is Family.DECIMAL and arg.type.is_short)
    if not is_short or not type_.is_short:
        return None
    values, digits = np.asarray(arg.values), type_.scale - arg.type.scale
    if digits < 0:
        unit = 10**-digits
        size = np.abs(values)
        counts = size // unit + (size % unit >= unit - unit // 2)
        values = np.where(values < 0, -counts, counts)
        digits = 0
    most = 10 ** (type_.precision - digits) if type_.precision > digits else 1
    fits = (values > -most) & (values < most)
    return Column(type_, np.where(fits, values, 0) * 10**digits, both(arg.valid, fits))


def _decimals_of_floats(arg: Column, type_: Type, length: int) -> Column:
    """The product with the power of ten lies near that of the float's shortest text. Only where a half or more than 52
    bits are near does the definition decide."""
    numbers = np.broadcast_to(np.asarray(arg.values, np.float64), (length,))
    with np.errstate(all="ignore"):
        size = np.abs(numbers) * 10.0**type_.scale
        counts = np.floor(size + 0.5)
        is_sure = (size < 2.0**50) & (np.abs(size - np.floor(size) - 0.5) > size * 2.0**-50)
    units: Array = np.where(is_sure, np.copysign(counts, numbers), 0).astype(np.int64)
    if not type_.is_short:
        units = units.astype(object)
    fits = np.ones(length, bool) if arg.valid is None else np.broadcast_to(arg.valid, (length,)).copy()
    fits &= ~is_sure | (counts < 10.0**type_.precision)
    for row in np.flatnonzero(fits & ~is_sure).tolist():
        exact = as_decimal(float(numbers[row]), type_.precision, type_.scale)
        fits[row] = exact is not None
        units[row] = 0 if exact is None else unscaled(exact, type_.scale)
    return Column(type_, np.where(fits, units, 0), fits)


def _parsed(arg: Column, usual: str, type_: Type, arrow: pa.DataType, by_definition: Callable[[str], Any]) -> Column:
    """The numbers in strings, once for each distinct one. Arrow reads those of the usual form, a regular expression."""
    texts = arg.values.dictionary
    is_usual = pc.fill_null(pc.match_substring_regex(texts, f"^(?:{usual})$"), False)
    read = pc.if_else(is_usual, texts, None).cast(arrow)
    others = np.flatnonzero(~np.asarray(is_usual.to_numpy(zero_copy_only=False)))
    if len(others):
        found = [None if text is None else by_definition(text) for text in texts.take(pa.array(others)).to_pylist()]
        read = pc.replace_with_mask(read, pc.invert(is_usual), pa.array(found, arrow))
    column = from_arrow(read)
    if column.type.family is Family.UNKNOWN:
        return column
    valid = None if column.valid is None else np.asarray(column.valid)[arg.values.codes]
    return Column(type_, np.asarray(column.values)[arg.values.codes], both(arg.valid, valid))


def _decimals_of_texts(arg: Column, type_: Type) -> Column | None:
    if not 0 <= type_.scale < type_.precision:
        return None
    fraction = rf"(\.\d{{1,{type_.scale}}})?" if type_.scale else ""
    usual = rf"-?\d{{1,{type_.precision - type_.scale}}}{fraction}"
    precision, scale = type_.precision, type_.scale
    arrow = pa.decimal128(precision, scale)
    return _parsed(arg, usual, type_, arrow, lambda text: as_decimal(text, precision, scale))


def _as_boolean(_: Call, args: Sequence[Column], __: int) -> Column | None:
    (arg,) = args
    is_known = arg.type.is_number or arg.type.family is Family.BOOLEAN
    return Column(types.BOOLEAN, np.asarray(arg.values) != 0, arg.valid) if is_known else None


def _as_string(_: Call, args: Sequence[Column], length: int) -> Column | None:
    arg = args[0]
    match arg.type.family:
        case Family.STRING:
            return arg
        case Family.BOOLEAN:
            return Column(
                types.STRING, Strings(np.asarray(arg.values, np.int64), pa.array(["false", "true"])), arg.valid
            )
        case Family.INTEGER | Family.UNSIGNED:
            return _with_valid(from_arrow(pa.array(np.broadcast_to(arg.values, (length,))).cast(pa.string())), arg)
        case Family.FLOAT:
            return _texts_of_floats(arg, length)
        case Family.DATE | Family.TIMESTAMP:
            return _texts_of_times(arg, length)
        case _:
            return None


def _texts_of_floats(arg: Column, length: int) -> Column:
    """The texts are a dictionary as they are: most floats are different."""
    texts = float_texts(np.broadcast_to(np.asarray(arg.values, np.float64), (length,)))
    return Column(types.STRING, Strings(np.arange(length), texts), arg.valid)


def _texts_of_times(arg: Column, length: int) -> Column:
    ticks = np.broadcast_to(arg.values, (length,))
    years = DATE_PARTS["year"](ticks)
    fits = (years >= _FIRST_YEAR) & (years <= _LAST_YEAR)
    moments = np.where(fits, ticks, 0).astype("datetime64[us]")
    if arg.type.family is Family.DATE:
        return _with_valid(from_arrow(_texts(moments.astype("datetime64[D]"))), arg, fits)
    texts = pc.replace_substring(_texts(moments), "T", " ", max_replacements=1)
    shortened = pc.utf8_rtrim(pc.utf8_rtrim(texts, characters="0"), characters=".")
    return _with_valid(from_arrow(shortened), arg, fits)


def _texts(moments: Array) -> pa.Array:
    return pa.array(np.datetime_as_string(moments).astype(object), pa.string())


def _with_valid(column: Column, arg: Column, fits: Any = None) -> Column:
    return Column(column.type, column.values, both(arg.valid, fits))


def _as_time(_: Call, args: Sequence[Column], __: int) -> Column | None:
    (arg,) = args
    return (
        Column(types.TIMESTAMP, arg.values, arg.valid) if arg.type.family in (Family.DATE, Family.TIMESTAMP) else None
    )


def _as_date(_: Call, args: Sequence[Column], __: int) -> Column | None:
    (arg,) = args
    is_known = arg.type.family in (Family.DATE, Family.TIMESTAMP)
    return Column(types.DATE, date(np.asarray(arg.values)), arg.valid) if is_known else None


_CONVERSIONS: Mapping[str, Callable[[Call, Sequence[Column], int], Column | None]] = {
    "trim": _trimmed,
    "substr": _sliced,
    "concat": _joined,
    CAST + "double": _as_float,
    CAST + "integer": _as_integer,
    CAST_DECIMAL: _as_decimal,
    CAST + "boolean": _as_boolean,
    CAST_STRING: _as_string,
    CAST + "timestamp": _as_time,
    CAST + "date": _as_date,
}
