"""LIKE and CONTAINS over columns of strings: once for each distinct string where the other side is a constant."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cepheid.codegen.typed_columns import Column, to_python
from cepheid.runtime.kernel import Array
from cepheid.types import Family
from cepheid.values import like


def flags(answers: pa.Array) -> Array:
    return np.asarray(answers.fill_null(False).to_numpy(zero_copy_only=False), bool)


def matches_like(item: Column, like_what: Column, length: int) -> Array:
    if (pattern := _constant(item, like_what)) is None:
        return _pairs(like, item, like_what, length)

    def test(texts: pa.Array) -> Array:
        if "\\" not in pattern:
            return flags(pc.match_like(texts, pattern))
        return np.array([text is not None and like(text, pattern) for text in texts.to_pylist()], bool)

    return _tested(item, test, length)


def contains(item: Column, part: Column, length: int) -> Array:
    if (text := _constant(item, part)) is None:
        return _pairs(str.__contains__, item, part, length)
    return _tested(item, lambda texts: flags(pc.match_substring(texts, text)), length)


def _constant(item: Column, other: Column) -> str | None:
    """The string that all strings of a column are compared with, if it is one."""
    is_one = item.type.family is other.type.family is Family.STRING and np.ndim(other.values.codes) == 0
    return str(other.values.dictionary[int(other.values.codes)].as_py()) if is_one else None


def _pairs(test: Callable[[str, str], bool], one: Column, other: Column, length: int) -> Array:
    pairs = zip(to_python(one, length), to_python(other, length), strict=True)
    return np.fromiter((isinstance(a, str) and isinstance(b, str) and test(a, b) for a, b in pairs), bool, length)


def _tested(item: Column, test: Callable[[pa.Array], Array], length: int) -> Array:
    """A test of one string, once for each distinct string."""
    if item.type.family is not Family.STRING:
        return np.zeros(length, bool)
    result = test(item.values.dictionary)[item.values.codes]
    return np.broadcast_to(result if item.valid is None else result & item.valid, (length,))
