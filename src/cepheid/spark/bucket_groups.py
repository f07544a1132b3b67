"""Maps buckets to group numbers that Spark distributes evenly over its tasks.

Spark assigns a group to the task `hash(number) mod tasks`. Its hash of small integers is uneven: of 32 buckets, one of
two tasks would get 20. So each bucket has a group number whose hash modulo `_EVEN` is the bucket itself. `_EVEN` is a
multiple of every usual number of tasks, so every task gets the same number of buckets.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from cepheid.runtime.kernel import Array

_EVEN = 5040
"""A multiple of 1 to 10, 12, 14, 15 and 16 (and more)."""
_SEED = 42
_TRIED = 40 * _EVEN
"""The number of candidates: enough that their hashes leave every remainder of a division by `_EVEN`."""


@lru_cache(maxsize=64)
def group_numbers(buckets: int) -> tuple[int, ...]:
    """The group numbers of the buckets 0, 1, ... They must never change: Spark finds the saved states by them."""
    rests, first = np.unique(spark_hashes(np.arange(_TRIED, dtype=np.uint32)) % _EVEN, return_index=True)
    assert len(rests) == _EVEN, "some candidate has every remainder"
    laps, rest = np.divmod(np.arange(buckets), _EVEN)
    # More buckets than remainders: each further lap takes new numbers, which Spark distributes as usual.
    return tuple((first[rest] + laps * _TRIED).tolist())


def bucket_of(group: int, buckets: int) -> int:
    """The bucket of a group number."""
    return group_numbers(buckets).index(group)


def spark_hashes(numbers: Array) -> Array:
    """Spark's hash of integers (Murmur 3)."""
    with np.errstate(over="ignore"):
        mixed = _turned(numbers * np.uint32(0xCC9E2D51), 15) * np.uint32(0x1B873593)
        hashed = _turned(np.uint32(_SEED) ^ mixed, 13) * np.uint32(5) + np.uint32(0xE6546B64)
        hashed ^= np.uint32(4)
        hashed = (hashed ^ (hashed >> np.uint32(16))) * np.uint32(0x85EBCA6B)
        hashed = (hashed ^ (hashed >> np.uint32(13))) * np.uint32(0xC2B2AE35)
        signed: Array = (hashed ^ (hashed >> np.uint32(16))).view(np.int32).astype(np.int64)
    return signed


def _turned(numbers: Array, bits: int) -> Array:
    turned: Array = (numbers << np.uint32(bits)) | (numbers >> np.uint32(32 - bits))
    return turned
