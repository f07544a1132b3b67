"""Columns of short strings to dictionaries, a few times as fast as Arrow does it for strings of any length.

Types, symbols and the like are short, and few are different. A string of up to fifteen bytes is two machine words, the
second with its length; equal strings are equal words. Whatever does not fit this is left to Arrow.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pyarrow as pa

from cepheid.runtime.jit import WORTH_COMPILING, entry, instruction, machine_code, njit
from cepheid.runtime.kernel import Array

_LONGEST = 15
_SLOTS = 4096
_WORD = 8
_MOST = 1024
"""How many different strings are looked for: many keys are better found in Arrow's own, larger, table."""
_EMPTY = -1
_FAILED = -1


def dictionary_encoded(column: pa.Array) -> pa.DictionaryArray:
    """What `column.dictionary_encode()` gives: values in the order of their first rows."""
    is_plain = column.type == pa.string() and not column.null_count and column.buffers()[2] is not None
    if not is_plain or len(column) < WORTH_COMPILING or sys.byteorder != "little":
        return column.dictionary_encode()
    data = np.frombuffer(column.buffers()[2], np.uint8)
    offsets = np.frombuffer(column.buffers()[1], np.int32)[column.offset : column.offset + len(column) + 1]
    for array in (offsets, data):
        array.flags.writeable = False  # as most buffers are: compiled for one kind of array only
    codes, first_rows = np.empty(len(column), np.int32), np.empty(_MOST, np.int64)
    table = np.full(3 * _SLOTS, _EMPTY, np.int64)
    different = machine_code(_encode)(offsets, data, table, codes, first_rows)
    if different == _FAILED:
        return column.dictionary_encode()
    return pa.DictionaryArray.from_arrays(codes, column.take(pa.array(first_rows[:different])))


@entry
def _encode(offsets: Array, data: Array, table: Array, codes: Array, first_rows: Array) -> int:
    """Fill in the codes; how many strings are different, or that there are too many or one is too long."""
    different = 0
    before_first = before_second = code = _EMPTY
    for row in range(codes.shape[0]):
        at = int(offsets[row])
        length = int(offsets[row + 1]) - at
        if length > _LONGEST:
            return _FAILED
        first = _word(data, at, min(length, _WORD))
        second = length << 56
        if length > _WORD:
            second |= _word(data, at + _WORD, length - _WORD)
        if first != before_first or second != before_second:
            before_first, before_second = first, second
            # no product here exceeds 62 bits, so nothing wraps around
            mixed = ((first ^ first >> 31) & 0x7FFFFFFF) * 73244475 + ((second ^ second >> 31) & 0x7FFFFFFF) * 668265263
            slot = (mixed ^ mixed >> 27) & (_SLOTS - 1)
            while table[3 * slot] != _EMPTY and (table[3 * slot + 1] != first or table[3 * slot + 2] != second):
                slot = (slot + 1) & (_SLOTS - 1)
            code = table[3 * slot]
            if code == _EMPTY:
                if different == first_rows.shape[0]:
                    return _FAILED
                code = different
                first_rows[different] = row
                different += 1
                table[3 * slot], table[3 * slot + 1], table[3 * slot + 2] = code, first, second
        codes[row] = code
    return different


@njit
def _word(data: Array, start: int, length: int) -> int:
    """The bytes of a string as a number, the first the lowest."""
    if start + _WORD <= data.shape[0]:
        word = _eight_bytes(data, start)
        return word if length == _WORD else word & ((1 << 8 * length) - 1)
    word = 0
    for i in range(start + length - 1, start - 1, -1):
        word = word << 8 | int(data[i])
    return word


def _load(builder: Any, address: Any) -> Any:
    from llvmlite import ir

    return builder.load(builder.bitcast(address, ir.IntType(64).as_pointer()), align=1)


@instruction("int64", _load)
def _eight_bytes(array: Array, at: int) -> int:
    """An unaligned load of eight bytes, little-endian."""
    return int.from_bytes(array[at : at + _WORD].tobytes(), "little", signed=True)
