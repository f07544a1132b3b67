"""The values that a summary over all matches adds up and compares, as columns."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from cepheid.physical import Kind
from cepheid.runtime.arrays import NULL_CODE

Array = np.ndarray

FITS_WHOLE = 4e18
"""What an integer has room for."""


@dataclass(frozen=True, slots=True)
class Infinite:
    """An infinity among fractions, which may be too large to be floats. With one of the other sign it is NaN."""

    value: float

    def __add__(self, other: Any) -> Infinite:
        return Infinite(self.value + other.value) if isinstance(other, Infinite) else self

    __radd__ = __add__

    def __mul__(self, count: int) -> Infinite:
        return self

    def __float__(self) -> float:
        return self.value


def to_float(amount: Any) -> float:
    try:
        return float(amount)
    except OverflowError:
        return math.inf if amount > 0 else -math.inf


def exact_total(numbers: Array) -> int:
    """The exact sum of integers."""
    if numbers.dtype == object or float(np.abs(numbers.astype(np.float64)).sum()) > FITS_WHOLE:
        return int(sum(numbers.tolist()))
    return int(numbers.sum())


def is_known(words: Array, kind: Kind) -> Array:
    if kind is Kind.FLOAT:
        return ~np.isnan(words.view(np.float64))
    return np.asarray(words != NULL_CODE) if kind in (Kind.CODE, Kind.BOOL) else np.ones(len(words), np.bool_)


def ranked(codes: Array, ranks: Array) -> Array:
    """The rank of each string in the order of strings; a boolean's code is its own."""
    return ranks[codes] if len(ranks) > int(codes.max(initial=0)) else codes


def largest_finite(amounts: Array) -> float:
    finite = np.abs(np.asarray(amounts, np.float64))
    return float(np.max(finite, initial=1.0, where=np.isfinite(finite)))
