"""Compact encoding of rows and kernel arrays. A state is read and written with every batch, so its size is its cost.

Integers are delta encoded, in the fewest bytes that hold the largest difference (none, if all are equal). Repeated
strings are dictionary encoded. The codec of the state compresses the rest.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from cepheid.codegen.strings import dictionary_encoded
from cepheid.runtime.kernel import Array, State, StateArray

_SHORT: tuple[type[np.signedinteger[Any]], ...] = (np.int8, np.int16, np.int32)
_FIRST = struct.Struct("<qB")
"""Before the differences: the first number, and the type of the differences."""
_EQUAL = len(_SHORT) + 1
"""Instead of the type, where all numbers are equal; then only their count follows."""
_COUNT = struct.Struct("<q")
_LENGTH = struct.Struct("<q")
_PLAIN, _NUMBERS, _STRINGS = range(3)
_AS_NUMBERS = (pa.types.is_int64, pa.types.is_uint64, pa.types.is_timestamp)


# --- numbers ----------------------------------------------------------------------------------------------------------


def write_numbers(numbers: Array) -> bytes:
    """Integers of 64 bits. Differences that overflow wrap around, and back again when they are added up."""
    if not len(numbers):
        return b""
    steps = np.diff(numbers)
    low, high = (int(steps.min()), int(steps.max())) if len(steps) else (0, 0)
    if low == high == 0:
        return _FIRST.pack(int(numbers[0]), _EQUAL) + _COUNT.pack(len(numbers))
    fitting = [i for i, kind in enumerate(_SHORT) if np.iinfo(kind).min <= low and high <= np.iinfo(kind).max]
    kind = fitting[0] if fitting else len(_SHORT)
    # One difference takes all 8 bytes, most do not: transposed, their zero bytes lie together and compress well.
    encoded = steps.astype(_SHORT[kind]) if fitting else steps.view(np.uint8).reshape(-1, 8).T
    return _FIRST.pack(int(numbers[0]), kind) + encoded.tobytes()


def read_numbers(data: memoryview | bytes) -> Array:
    if not len(data):
        return np.empty(0, np.int64)
    first, kind = _FIRST.unpack_from(data)
    if kind == _EQUAL:
        (count,) = _COUNT.unpack_from(data, _FIRST.size)
        return np.full(count, first, np.int64)
    if kind < len(_SHORT):
        steps = np.frombuffer(data, _SHORT[kind], offset=_FIRST.size)
    else:
        steps = np.frombuffer(data, np.uint8, offset=_FIRST.size).reshape(8, -1).T.copy().view(np.int64)[:, 0]
    numbers = np.empty(len(steps) + 1, np.int64)
    numbers[0] = first
    numbers[1:] = steps
    return np.cumsum(numbers, out=numbers)


# --- the arrays of a kernel -------------------------------------------------------------------------------------------


def write_arrays(state: State, layout: Sequence[StateArray]) -> bytes:
    parts: list[bytes] = []
    for array, described in zip(state, layout, strict=True):
        parts.append(_LENGTH.pack(len(array)))
        if array.dtype == np.int64:
            parts.extend(write_numbers(field) for field in _fields(array, described.width))
        else:
            parts.append(array.tobytes())
    return write_parts(parts)


def read_arrays(data: bytes, layout: Sequence[StateArray]) -> State:
    parts, state = iter(read_parts(data)), []
    for described in layout:
        (length,) = _LENGTH.unpack(next(parts))
        if np.dtype(described.dtype) == np.int64:
            array = np.empty(length, np.int64)
            for field in _fields(array, described.width):
                field[:] = read_numbers(next(parts))
        else:
            array = np.frombuffer(next(parts), described.dtype).copy()
        state.append(array)
    return tuple(state)


def _fields(array: Array, width: int) -> list[Array]:
    """The fields of an array of records as separate arrays; any other array unchanged."""
    return list(array.reshape(-1, width).T) if len(array) % width == 0 else [array]


# --- rows -------------------------------------------------------------------------------------------------------------


def write_rows(rows: pa.RecordBatch) -> bytes:
    """Without the schema, which both ends know."""
    kinds, parts, plain = bytearray(), [], []
    for column in rows.columns:
        written = _numbers_of(column) or _strings_of(column)
        kinds.append(_PLAIN if written is None else _NUMBERS if len(written) == 1 else _STRINGS)
        parts.extend(written or [])
        if written is None:
            plain.append(column)
    return write_parts([_LENGTH.pack(rows.num_rows), bytes(kinds), *parts, _plain_bytes(plain)])


def read_rows(data: bytes, schema: pa.Schema) -> pa.RecordBatch:
    count, kinds, *parts = read_parts(data)
    rows, coded = _LENGTH.unpack(count)[0], iter(parts[:-1])
    fields = [field for field, kind in zip(schema, kinds, strict=True) if kind == _PLAIN]
    plain = iter(_plain_columns(parts[-1], fields))
    columns: list[pa.Array] = []
    for field, kind in zip(schema, kinds, strict=True):
        if kind == _PLAIN:
            columns.append(next(plain))
        elif kind == _NUMBERS:
            columns.append(pa.Array.from_buffers(field.type, rows, [None, pa.py_buffer(read_numbers(next(coded)))]))
        else:
            codes = read_numbers(next(coded))
            (strings,) = _plain_columns(next(coded), [field])
            columns.append(strings.take(pa.array(codes, mask=codes < 0)))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _numbers_of(column: pa.Array) -> list[bytes] | None:
    if column.null_count or not any(test(column.type) for test in _AS_NUMBERS):
        return None
    return [write_numbers(np.frombuffer(column.buffers()[1], np.int64, len(column), 8 * column.offset))]


def _strings_of(column: pa.Array) -> list[bytes] | None:
    """None where most strings are distinct."""
    if not pa.types.is_string(column.type):
        return None
    encoded = dictionary_encoded(column)
    if 2 * len(encoded.dictionary) > len(column):
        return None
    codes = np.asarray(encoded.indices.fill_null(-1)).astype(np.int64)
    return [write_numbers(codes), _plain_bytes([encoded.dictionary])]


def _plain_bytes(columns: Sequence[pa.Array]) -> bytes:
    return bytes(pa.RecordBatch.from_arrays(columns, names=_names(columns)).serialize()) if columns else b""


def _plain_columns(data: bytes | memoryview, fields: Sequence[pa.Field]) -> list[pa.Array]:
    if not fields:
        return []
    schema = pa.schema(list(zip(_names(fields), (field.type for field in fields), strict=True)))
    columns: list[pa.Array] = pa.ipc.read_record_batch(pa.py_buffer(data), schema).columns
    return columns


def _names(columns: Sequence[object]) -> list[str]:
    return [str(number) for number in range(len(columns))]


# --- parts ------------------------------------------------------------------------------------------------------------


def write_parts(parts: Sequence[bytes]) -> bytes:
    lengths = np.array([len(parts), *map(len, parts)], "<i8")
    return lengths.tobytes() + b"".join(parts)


def read_parts(data: bytes) -> list[memoryview]:
    (count,) = _LENGTH.unpack_from(data)
    edges = np.cumsum([_LENGTH.size * (count + 1), *np.frombuffer(data, "<i8", count, _LENGTH.size)]).tolist()
    whole = memoryview(data)
    return [whole[start:end] for start, end in pairwise(edges)]
