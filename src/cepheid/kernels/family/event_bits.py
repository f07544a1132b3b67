"""The tests of many rules on one event, as one set of bits of any width.

The constants that an attribute is compared with are sorted and cut its values into *classes*: 2i + 1 is the value of
constant i, 2i lies below it. One search finds the class of a value, and the class has a row of bits: the tests on the
attribute that its values pass. The bits of an event are the intersection of the rows of its attributes.

Many constants have many classes, so not each has a row of its own: a class is a row and the bits by which it differs.

The bits of a number that is not negative, read as an integer, have the order of the numbers. So the highest of them are
a *bucket*, and a table says which constants lie in it: mostly none or one, so that little is left to search.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cepheid.runtime.jit import entry, njit

WORD = 63
"""The bits of a word: the sign is not used, so that no operation overflows."""
ALL = (1 << WORD) - 1
_REST = (1 << 63) - 1
"""All bits of a number but its sign."""
NO_ROW = -1
"""The row of a class that passes every test."""


class ClassRows(NamedTuple):
    """The bits of every class: a row, and the bits by which the class differs from it."""

    first_class: np.ndarray
    """The number of the first class of each attribute."""
    row_of: np.ndarray
    """Where the row of each class begins in `rows`."""
    changes_from: np.ndarray
    changes_to: np.ndarray
    """The part of `changes` that belongs to each class."""
    changes: np.ndarray
    rows: np.ndarray
    full: np.ndarray
    """The bits of an event that passes every test."""


@njit
def _class_of(value: float, constants: np.ndarray, low: int, size: int) -> int:
    """The class of a value: 2i between constants i - 1 and i, 2i + 1 if it equals constant i. The constants before
    `low` are less, and those from `low` + `size` on are greater."""
    while size > 0:
        half = (size + 1) >> 1
        if constants[low + half - 1] < value:
            low += half
        size -= half
    same = low < constants.shape[0] and constants[low] == value
    return 2 * low + (1 if same else 0)


@njit
def bucket_of(bits: int, shift: int) -> int:
    """The bucket of the number with these bits. Negative numbers come before others, and greater ones later."""
    return (bits ^ ((bits >> 63) & _REST)) >> shift


@entry
def classes_of_floats(
    values: np.ndarray,
    bits: np.ndarray,
    constants: np.ndarray,
    before: np.ndarray,
    first: int,
    shift: int,
    null: int,
    classes: np.ndarray,
) -> None:
    """The class of each value; NaN is null. `bits` are those of the values, of which none is -0.0. `before` has for
    each bucket from `first` on, and for the end of the last one, the number of constants before it."""
    buckets = before.shape[0] - 1
    for e in range(values.shape[0]):
        value = values[e]
        if value != value:
            classes[e] = null
            continue
        bucket = bucket_of(bits[e], shift) - first
        if bucket < 0:
            classes[e] = 0
        elif bucket >= buckets:
            classes[e] = 2 * constants.shape[0]
        else:
            classes[e] = _class_of(value, constants, before[bucket], before[bucket + 1] - before[bucket])


@entry
def classes_of_integers(
    values: np.ndarray, constants: np.ndarray, nulls: np.ndarray, null: int, classes: np.ndarray
) -> None:
    """The class of each value; `nulls` is empty if none is null."""
    for e in range(values.shape[0]):
        if nulls.shape[0] > 0 and nulls[e]:
            classes[e] = null
            continue
        value = values[e]
        classes[e] = _class_of(value, constants, 0, constants.shape[0])


@njit
def lowest_bit(word: int) -> int:
    """The number of the lowest bit of a word that is not 0."""
    number, width = 0, 32
    while width:
        if word & ((1 << width) - 1) == 0:
            number += width
            word >>= width
        width >>= 1
    return number
