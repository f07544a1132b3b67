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
def set_event_bits(
    e: int,
    classes: np.ndarray,
    first_class: np.ndarray,
    row_of: np.ndarray,
    changes_from: np.ndarray,
    changes_to: np.ndarray,
    changes: np.ndarray,
    rows: np.ndarray,
    full: np.ndarray,
    scratch: np.ndarray,
    bits: np.ndarray,
) -> None:
    """Sets the bits that event `e` passes. `classes` has a row of classes for each
    attribute; `full` are the bits that exist."""
    words = bits.shape[0]
    attributes = first_class.shape[0]
    events = classes.shape[0] // max(attributes, 1)
    begun = False
    for a in range(attributes):
        c = first_class[a] + classes[a * events + e]
        at = row_of[c]
        if at == NO_ROW:
            continue
        row = rows[at : at + words]  # a view, whose indexes cannot be negative, so that the loops are vectorised
        low, high = changes_from[c], changes_to[c]
        if not begun:
            for w in range(words):
                bits[w] = row[w]
            for i in range(low, high):
                bit = changes[i]
                bits[bit // WORD] ^= 1 << (bit % WORD)
            begun = True
        elif low == high:
            for w in range(words):
                bits[w] &= row[w]
        else:
            for w in range(words):
                scratch[w] = row[w]
            for i in range(low, high):
                bit = changes[i]
                scratch[bit // WORD] ^= 1 << (bit % WORD)
            for w in range(words):
                bits[w] &= scratch[w]
    if not begun:
        for w in range(words):
            bits[w] = full[w]


@njit
def lowest_bit(word: int) -> int:
    """The number of the lowest bit of a word that is not 0."""
    number = 0
    if word & 0xFFFFFFFF == 0:
        number += 32
        word >>= 32
    if word & 0xFFFF == 0:
        number += 16
        word >>= 16
    if word & 0xFF == 0:
        number += 8
        word >>= 8
    if word & 0xF == 0:
        number += 4
        word >>= 4
    if word & 3 == 0:
        number += 2
        word >>= 2
    if word & 1 == 0:
        number += 1
    return number
