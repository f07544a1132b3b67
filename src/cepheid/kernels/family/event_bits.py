"""The tests of many rules on one event, as one set of bits of any width.

The constants that an attribute is compared with are sorted and cut its values into *classes*: 2i + 1 is the value of
constant i, 2i lies below it. One search finds the class of a value, and the class has a row of bits: the tests on the
attribute that its values pass. The bits of an event are the intersection of the rows of its attributes.

Many constants have many classes, so not each has a row of its own: a class is a row and the bits by which it differs.
"""

from __future__ import annotations

import numpy as np

from cepheid.runtime.jit import entry, njit

WORD = 63
"""The bits of a word: the sign is not used, so that no operation overflows."""
ALL = (1 << WORD) - 1
NO_ROW = -1
"""The row of a class that passes every test."""


@njit
def _class_of(value: float, constants: np.ndarray) -> int:
    """The class of a value among sorted constants: 2i between constants i - 1 and i, 2i + 1 if it equals constant i."""
    low, size = 0, constants.shape[0]
    while size > 0:
        half = (size + 1) >> 1
        if constants[low + half - 1] < value:
            low += half
        size -= half
    same = low < constants.shape[0] and constants[low] == value
    return 2 * low + (1 if same else 0)


@entry
def classes_of_floats(values: np.ndarray, constants: np.ndarray, null: int, classes: np.ndarray) -> None:
    """The class of each value; NaN is null."""
    for e in range(values.shape[0]):
        value = values[e]
        if value != value:
            classes[e] = null
            continue
        classes[e] = _class_of(value, constants)


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
        classes[e] = _class_of(value, constants)


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
