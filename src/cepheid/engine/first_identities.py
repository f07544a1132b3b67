"""The first event of each identity (CED's `event_id`)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from cepheid.runtime.kernel import Array


def first_of_each(identities: pa.Array, seen: set[Any]) -> Array:
    """Which events are the first of their identity, or have none. `seen` are the identities of earlier events, to
    which these are added."""
    if pa.types.is_dictionary(identities.type):
        identities = identities.dictionary_decode()
    codes, values = _coded(identities)
    is_known = np.fromiter((value in seen for value in values), bool, len(values))
    seen.update(values)
    is_new = codes < 0
    known, first = np.unique(codes, return_index=True)
    there = known >= 0
    is_new[first[there][~is_known[known[there]]]] = True
    return is_new


def _coded(identities: pa.Array) -> tuple[Array, list[Any]]:
    """A number for each identity, -1 for null, and the values of the numbers. Arrow tells -0.0 from 0.0, takes all NaN
    for one value, and has no numbers for lists, so Python compares those."""
    kind = identities.type
    if not pa.types.is_nested(kind) and not pa.types.is_floating(kind):
        coded = identities.dictionary_encode()
        return np.asarray(coded.indices.fill_null(-1), np.int64), coded.dictionary.to_pylist()
    numbers: dict[Any, int] = {}
    codes = np.empty(len(identities), np.int64)
    for row, value in enumerate(identities.to_pylist()):
        identity = tuple(value) if isinstance(value, list) else value
        codes[row] = -1 if identity is None else numbers.setdefault(identity, len(numbers))
    return codes, list(numbers)
