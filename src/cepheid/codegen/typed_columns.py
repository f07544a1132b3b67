"""Typed columns of values, converted from and to Arrow and Python.

Validity is separate from the values, so that every value of a type can occur. Integers, dates, timestamps and durations
(in microseconds) and short decimals (unscaled) are 64-bit integers; long decimals and lists are objects. Strings are
codes into a dictionary, so that a function or test of one string runs once for each distinct string.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cepheid import types
from cepheid.codegen.strings import dictionary_encoded
from cepheid.runtime.kernel import Array
from cepheid.types import Family, Type
from cepheid.values import decimal_of, unscaled

TEXTS = (Family.STRING, Family.BINARY)
LOWEST, HIGHEST = -(2**63), 2**63 - 1
_MICROSECONDS = {"s": 1_000_000, "ms": 1_000, "us": 1}
_DAY = 86_400_000_000
_WORD = 2**64


@dataclass(frozen=True, slots=True)
class Strings:
    """Strings (or binary values) as codes into a dictionary, which may contain equal values."""

    codes: Any
    dictionary: pa.Array

    def decoded(self, length: int) -> pa.Array:
        return self.dictionary.take(pa.array(np.broadcast_to(self.codes, (length,))))

    def encoded(self, length: int, valid: Any) -> pa.DictionaryArray:
        """With null where they are not valid."""
        nulls = None if valid is None else ~np.broadcast_to(valid, (length,))
        codes = pa.array(np.broadcast_to(self.codes, (length,)), pa.int32(), mask=nulls)
        return pa.DictionaryArray.from_arrays(codes, self.dictionary)


@dataclass(frozen=True, slots=True)
class Column:
    """Values of one type. `valid` is False for nulls, `absent` is True where an attribute or an event is lacking (see
    `evaluation`); None stands for no such row. Values of a constant, and flags, may be scalars."""

    type: Type
    values: Any
    valid: Any = None
    absent: Any = None

    def null_where(self, invalid: Any) -> Column:
        return self if invalid is None else replace(self, valid=both(self.valid, ~np.asarray(invalid)))


NULL = Column(types.UNKNOWN, np.float64("nan"), np.False_)


def both(left: Any, right: Any) -> Any:
    return right if left is None else left if right is None else left & right


def either(left: Any, right: Any) -> Any:
    return right if left is None else left if right is None else left | right


def absent_of(columns: Sequence[Column]) -> Any:
    """The rows in which one of the columns is absent."""
    absent: Any = None
    for column in columns:
        absent = either(absent, column.absent)
    return absent


# --- from and to Arrow and Python -------------------------------------------------------------------------------------


def from_arrow(array: pa.Array) -> Column:
    """An Arrow array as a column. NaN is null."""
    if pa.types.is_run_end_encoded(array.type):
        array = pc.run_end_decode(array)
    type_ = types.from_arrow(array.type)
    if type_.family in TEXTS:
        return _from_texts(array, type_)
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    valid = np.asarray(array.is_valid().to_numpy(zero_copy_only=False)) if array.null_count else None
    if type_.family is Family.DECIMAL:
        return Column(type_, _scaled(array, type_), valid)
    match type_.family:
        case Family.INTEGER | Family.UNSIGNED:
            arrow = pa.int64() if type_.family is Family.INTEGER else pa.uint64()
            return Column(type_, _filled(array, arrow), valid)
        case Family.FLOAT:
            return floats(_filled(array, pa.float64()), valid)
        case Family.BOOLEAN:
            return Column(type_, _filled(array, pa.bool_()), valid)
        case Family.DATE | Family.TIMESTAMP | Family.DURATION:
            values, overflow = _microseconds(array)
            return Column(type_, values, valid).null_where(overflow)
        case _ if array.null_count == len(array):
            return NULL
        case _:
            return Column(type_, objects(array.to_pylist()), valid)


def is_json(arrow: pa.DataType, type_: Type) -> bool:
    """Whether a column of bytes holds JSON texts, because the types of events have values of different types there."""
    return pa.types.is_binary(arrow) and type_.family not in (Family.BINARY, Family.UNKNOWN)


def from_json(array: pa.Array, type_: Type) -> Column:
    """The values of JSON texts that have this type, the others as null; of mixed types, all values as objects. Values
    of other event types need not fit: integers of more than 64 bits, floats beside integers."""
    values = [None if text is None else json.loads(text) for text in array.to_pylist()]
    arrow = types.to_arrow(type_)
    if arrow is None:
        return Column(types.UNKNOWN, objects(values), np.array([value is not None for value in values], bool))
    fitting = [value if value is not None and types.type_of(value).fits(type_) else None for value in values]
    if type_.family is Family.FLOAT:
        fitting = [None if value is None else _float(value) for value in fitting]
    try:
        return from_arrow(pa.array(fitting, arrow))
    except (pa.ArrowException, OverflowError):
        return from_arrow(pa.array([_held(value, arrow) for value in fitting], arrow))


def _held(value: Any, arrow: pa.DataType) -> Any:
    """A value, or None if the Arrow type cannot hold it."""
    try:
        return pa.scalar(value, arrow).as_py()
    except (pa.ArrowException, OverflowError):
        return None


def _float(value: int | float) -> float | None:
    try:
        return float(value)
    except OverflowError:
        return None


def _from_texts(array: pa.Array, type_: Type) -> Column:
    plain = pa.string() if type_.family is Family.STRING else pa.binary()
    if not pa.types.is_dictionary(array.type):
        array = dictionary_encoded(array if array.type == plain else array.cast(plain))
    indices, dictionary = array.indices, array.dictionary
    valid = np.asarray(indices.is_valid().to_numpy(zero_copy_only=False)) if indices.null_count else None
    codes = (indices.fill_null(0) if indices.null_count else indices).to_numpy(zero_copy_only=False)
    if dictionary.null_count:
        valid = both(valid, np.asarray(dictionary.is_valid().to_numpy(zero_copy_only=False))[codes])
        dictionary = dictionary.fill_null("" if type_.family is Family.STRING else b"")
    if not len(dictionary):
        return Column(type_, Strings(np.zeros(len(codes), np.int64), pa.array([None], plain)), np.False_)
    return Column(type_, Strings(codes, dictionary.cast(plain)), valid)


def _filled(array: pa.Array, arrow: pa.DataType) -> Array:
    array = array if array.type == arrow else array.cast(arrow)
    return np.asarray(
        (array.fill_null(False if arrow == pa.bool_() else 0) if array.null_count else array).to_numpy(
            zero_copy_only=False
        )
    )


def floats(values: Any, valid: Any = None) -> Column:
    """Floats, NaN as null."""
    nan = np.isnan(values)
    return Column(types.FLOAT, values, both(valid, ~nan) if np.any(nan) else valid)


def objects(values: Sequence[Any]) -> Array:
    array = np.empty(len(values), object)
    array[:] = values
    return array


def _scaled(array: pa.Array, type_: Type) -> Array:
    """The unscaled integers of decimals."""
    if not pa.types.is_decimal128(array.type):
        array = array.cast(pa.decimal128(type_.precision, type_.scale))
    words = np.frombuffer(array.buffers()[1], np.int64)[2 * array.offset : 2 * (array.offset + len(array))]
    if type_.is_short:
        return np.ascontiguousarray(words[::2])
    return np.asarray(words[1::2].astype(object) * _WORD + words[::2].view(np.uint64).astype(object))


def _microseconds(array: pa.Array) -> tuple[Array, Any]:
    """Dates, timestamps and durations in microseconds (nanoseconds are rounded down), and the rows that overflow."""
    kind = array.type
    if pa.types.is_date32(kind):
        return _filled(array.cast(pa.int32()), pa.int64()) * _DAY, None
    counts = _filled(array.cast(pa.int64()), pa.int64())
    unit = "ms" if pa.types.is_date64(kind) else kind.unit
    if unit == "ns":
        return counts // 1_000, None
    factor = _MICROSECONDS[unit]
    overflow = (counts > HIGHEST // factor) | (counts < -(HIGHEST // factor)) if factor > 1 else None
    with np.errstate(over="ignore"):
        return counts * factor, overflow if overflow is not None and overflow.any() else None


def constant(value: Any, type_: Type = types.UNKNOWN) -> Column:
    """A literal. A float whose type is a decimal is the decimal that its text says."""
    match value:
        case None:
            return NULL
        case bool():
            return Column(types.BOOLEAN, np.bool_(value))
        case int() | float() | Decimal() if type_.family is Family.DECIMAL:
            count = unscaled(Decimal(str(value)), type_.scale)
            return Column(type_, np.int64(count) if type_.is_short else objects([count])[0])
        case int() if LOWEST <= value <= HIGHEST:
            return Column(type_ if type_.is_time else types.INTEGER, np.int64(value))
        case int() if 0 <= value < _WORD:
            return Column(types.UNSIGNED, np.uint64(value))
        case int() | float():
            return floats(np.float64(value))
        case str() | bytes():
            arrow, kind = (pa.string(), types.STRING) if isinstance(value, str) else (pa.binary(), types.BINARY)
            return Column(kind, Strings(np.zeros((), np.int64), pa.array([value], arrow)))
        case _:
            return Column(type_, objects([value]))


def to_python(column: Column, length: int) -> list[Any]:
    """The values as the oracle has them: None for null, `Decimal` for decimals, microseconds for times."""
    if isinstance(column.values, Strings):
        values = column.values.decoded(length).to_pylist()
    elif column.type.family is Family.DECIMAL:
        values = [decimal_of(int(v), column.type.scale) for v in np.broadcast_to(column.values, (length,)).tolist()]
    else:
        values = np.broadcast_to(column.values, (length,)).tolist()
    if column.valid is None:
        return list(values)
    valid = np.broadcast_to(column.valid, (length,)).tolist()
    return [value if is_valid else None for value, is_valid in zip(values, valid, strict=True)]


def to_arrow(column: Column, length: int, arrow: pa.DataType) -> pa.Array:
    """The column as an Arrow array of a type that can hold it; null where it is null or absent."""
    valid = both(column.valid, None if column.absent is None else ~np.asarray(column.absent))
    nulls = None if valid is None else ~np.broadcast_to(valid, (length,))
    family = column.type.family
    if (family is Family.UNKNOWN and column is NULL) or (nulls is not None and nulls.all()):
        return pa.nulls(length, arrow)
    if isinstance(column.values, Strings):
        array = column.values.decoded(length)
        return (array if nulls is None else pc.if_else(pa.array(~nulls), array, None)).cast(arrow)
    values = np.broadcast_to(column.values, (length,))
    if family is Family.DECIMAL:
        return _decimals(values, nulls, column.type).cast(arrow)
    if values.dtype == object:
        items = values.tolist()
        if pa.types.is_string(arrow):  # of several types, or of one that is not computed with, such as a time of day
            items = [item if isinstance(item, str) else json.dumps(item, default=str) for item in items]
        return pa.array(items, arrow, mask=nulls)
    if column.type.is_time and pa.types.is_temporal(arrow):
        unit = pa.duration("us") if family is Family.DURATION else pa.timestamp("us")
        array = pa.array(values, pa.int64(), mask=nulls).cast(unit)
        if pa.types.is_timestamp(arrow):
            array = array.cast(pa.timestamp("us", arrow.tz))
        return array.cast(arrow, safe=False)
    return pa.array(values, mask=nulls).cast(arrow)


def _decimals(values: Any, nulls: Any, type_: Type) -> pa.Array:
    if values.dtype == object:
        counts = values if nulls is None else np.where(nulls, 0, values)
        decimals = [decimal_of(int(count), type_.scale) for count in counts]
        return pa.array(decimals, pa.decimal128(type_.precision, type_.scale), mask=nulls)
    words = np.empty((len(values), 2), np.int64)
    words[:, 0], words[:, 1] = values, values >> 63
    bits = None if nulls is None else pa.py_buffer(np.packbits(~nulls, bitorder="little").tobytes())
    buffers = [bits, pa.py_buffer(words)]
    return pa.Array.from_buffers(pa.decimal128(type_.precision, type_.scale), len(values), buffers)
