"""`hash_f` over columns, as `functions.hash_f` defines it for values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from cepheid import types
from cepheid.codegen.typed_columns import NULL, Column, Strings
from cepheid.functions import HASH_FACTORS, HASH_LAST_SHIFT, HASH_SHIFTS, HASH_STEP, hash_code
from cepheid.runtime.kernel import Array
from cepheid.types import Family

_WORDS = (Family.INTEGER, Family.UNSIGNED, Family.BOOLEAN, Family.FLOAT)


def hashed(args: Sequence[Column], length: int) -> Column | None:
    """The hash of each row; None if some column has no words. That of a single null is null."""
    if len(args) == 1 and args[0] is NULL:
        return NULL
    total: Array = np.zeros(length, np.uint64)
    for arg in args:
        words = _codes(arg, length)
        if words is None:
            return None
        total = _mixed(total ^ words)
    hashes = (total >> np.uint64(1)).astype(np.int64)
    return Column(types.INTEGER, hashes, _valid(args[0]) if len(args) == 1 else None)


def _valid(column: Column) -> Array | None:
    """The rows that are not null; NaN counts as null."""
    valid: Array | None = column.valid
    if column.type.family is not Family.FLOAT:
        return valid
    is_number: Array = ~np.isnan(np.asarray(column.values, np.float64))
    return is_number if valid is None else is_number & valid


def _codes(column: Column, length: int) -> Array | None:
    null = np.uint64(hash_code(None))
    if column is NULL:
        return np.full(length, null)
    words: Any
    if isinstance(column.values, Strings) and column.type.family is Family.STRING:
        of_texts = np.array([hash_code(text) for text in column.values.dictionary.to_pylist()], np.uint64)
        words = of_texts[column.values.codes]
    elif column.type.family is Family.FLOAT:
        words = (np.asarray(column.values, np.float64) + 0.0).view(np.uint64)  # -0.0 is equal to 0.0
    elif column.type.family in _WORDS or column.type.is_time:
        words = np.asarray(column.values).astype(np.uint64)
    else:
        return None
    words = np.broadcast_to(words, (length,))
    return words if column.valid is None else np.where(column.valid, words, null)


def _mixed(words: Array) -> Array:
    words = words + np.uint64(HASH_STEP)
    for shift, factor in zip(HASH_SHIFTS, HASH_FACTORS, strict=True):
        words = (words ^ (words >> np.uint64(shift))) * np.uint64(factor)
    mixed: Array = words ^ (words >> np.uint64(HASH_LAST_SHIFT))
    return mixed
