"""The upper bound: W1 as a hand-written loop.

Input and output are the same as for Cepheid: Arrow columns and the positions of all matches. Unlike a kernel, the loop
does not hash the key (it is an index), continue after a batch, serialize its state or update counters.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from bench.measure import Outcome
from cepheid.runtime.jit import entry, machine_code

Array = np.ndarray


def three_of_a_key(table: pa.Table, domain: int, window: int, matches: int) -> Outcome:
    """SEQ(E1, E2, E3) WHERE [attr1]. The number of matches is known beforehand, so the output is allocated once."""
    column = table["type"].combine_chunks()
    types = column if isinstance(column, pa.DictionaryArray) else column.dictionary_encode()
    names = {name: code for code, name in enumerate(types.dictionary.to_pylist())}
    codes = [names[f"E{i}"] for i in (1, 2, 3)]
    compiled: Callable[..., Array] = machine_code(_three_of_a_key)
    found = compiled(types.indices.to_numpy(), *codes, table["attr1"].to_numpy(), domain, window, matches)
    return Outcome(len(found) // 3, len(found))


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
    """Instances of one key form a linked list through `before`. An instance of E2 points to the latest instance of E1.
    Times are positions in these streams."""
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
