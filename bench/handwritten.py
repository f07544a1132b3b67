"""The upper limit: W1 written by hand for this one query, over arrays that are ready to use.

What a kernel has to do and this loop has not: find out the types, hash the key (here it is an index), read the window,
the order and the number of components from a plan, go on after a batch, save its state.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numba
import numpy as np
import pyarrow as pa

from bench.measure import Found

Array = np.ndarray


def three_of_a_key(table: pa.Table, domain: int, window: int) -> Any:
    """A run of SEQ(E1, E2, E3) WHERE [attr1], with its input made ready beforehand."""
    types = np.array([int(name[1:]) for name in table["type"].to_pylist()], np.int8)
    keys = table["attr1"].to_numpy()

    def run() -> Found:
        written, matches = _loop()(types, keys, domain, window)
        return Found(matches, len(written))

    return run


@lru_cache(maxsize=1)
def _loop() -> Any:
    return numba.njit(_three_of_a_key)


def _three_of_a_key(types: Array, keys: Array, domain: int, window: int) -> tuple[Array, int]:
    """Instances of one key form a chain through `before`; the second ones remember the latest first one. Times are
    positions in these streams."""
    n = types.shape[0]
    latest_first = np.full(domain + 1, -1, np.int64)
    latest_second = np.full(domain + 1, -1, np.int64)
    before = np.empty(n, np.int64)
    first_of = np.empty(n, np.int64)
    found = np.empty(3 * n, np.int64)
    written = 0
    for e in range(n):
        kind = types[e]
        if kind > 3:
            continue
        key = keys[e]
        if kind == 1:
            before[e] = latest_first[key]
            latest_first[key] = e
        elif kind == 2:
            if latest_first[key] >= 0 and e - latest_first[key] < window:
                before[e] = latest_second[key]
                first_of[e] = latest_first[key]
                latest_second[key] = e
        else:
            second = latest_second[key]
            while second >= 0 and e - second < window:
                first = first_of[second]
                while first >= 0 and e - first < window:
                    found[written] = first
                    found[written + 1] = second
                    found[written + 2] = e
                    written += 3
                    first = before[first]
                second = before[second]
    return found[:written], written // 3
