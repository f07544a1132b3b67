"""The upper limit: W1 written by hand for this one query.

It begins where Cepheid begins, with Arrow columns, and ends with the positions of every match. What a kernel has to do
and this loop has not: hash the key (here it is an index), go on after a batch, save its state, count its work.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from bench.measure import Found
from cepheid.runtime.jit import entry, machine_code

Array = np.ndarray


def three_of_a_key(table: pa.Table, domain: int, window: int, matches: int) -> Found:
    """SEQ(E1, E2, E3) WHERE [attr1]; how many matches there are is known beforehand, so the output has its size."""
    column = table["type"].combine_chunks()
    types = column if isinstance(column, pa.DictionaryArray) else column.dictionary_encode()
    names = {name: code for code, name in enumerate(types.dictionary.to_pylist())}
    codes = [names[f"E{i}"] for i in (1, 2, 3)]
    compiled: Callable[..., Array] = machine_code(_three_of_a_key)
    found = compiled(types.indices.to_numpy(), *codes, table["attr1"].to_numpy(), domain, window, matches)
    return Found(len(found) // 3, len(found))


@entry
def _three_of_a_key(
    types: Array,
    first_type: int,
    second_type: int,
    third_type: int,
    keys: Array,
    domain: int,
    window: int,
    matches: int,
) -> Array:
    """Instances of one key form a chain through `before`; the second ones remember the latest first one. Times are
    positions in these streams."""
    n = types.shape[0]
    latest_first = np.full(domain + 1, -1, np.int64)
    latest_second = np.full(domain + 1, -1, np.int64)
    before = np.empty(n, np.int64)
    first_of = np.empty(n, np.int64)
    found = np.empty(3 * matches, np.int64)
    written = 0
    for e in range(n):
        kind = types[e]
        if kind == first_type:
            before[e] = latest_first[keys[e]]
            latest_first[keys[e]] = e
        elif kind == second_type:
            first = latest_first[keys[e]]
            if first >= 0 and e - first < window:
                before[e] = latest_second[keys[e]]
                first_of[e] = first
                latest_second[keys[e]] = e
        elif kind == third_type:
            second = latest_second[keys[e]]
            while second >= 0 and e - second < window:
                first = first_of[second]
                while first >= 0 and e - first < window:
                    if written < found.shape[0]:
                        found[written] = first
                        found[written + 1] = second
                        found[written + 2] = e
                    written += 3
                    first = before[first]
                second = before[second]
    return found[:written]
