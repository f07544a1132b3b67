"""Tests of strings that generated kernels call with the codes of the strings.

A kernel that needs more of a string than its code gets a *table*: the rank of each code, then where the characters of
each code begin and end, then the characters, and last the number of codes.

    table([ranks of 2 codes], ["ab", "c"])  ->  0 1 | 5 7 8 | a b c | 2
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cepheid.runtime.jit import njit
from cepheid.runtime.kernel import Array

_ANY, _ONE, _ESCAPE = ord("%"), ord("_"), ord("\\")


def string_table(ranks: Array, texts: Sequence[str | None]) -> Array:
    """The table of the strings with the codes 0, 1, ...; None where a code means no string."""
    letters = [np.frombuffer((t or "").encode("utf-32-le", "surrogatepass"), np.uint32) for t in texts]
    count = len(texts)
    edges = 2 * count + 1 + np.cumsum([0, *map(len, letters)])
    return np.concatenate([ranks, edges, *letters, [count]]).astype(np.int64)


@njit
def text_start(table: Array, code: int) -> int:
    return int(table[table[-1] + code])


@njit
def text_end(table: Array, code: int) -> int:
    return int(table[table[-1] + code + 1])


@njit
def text_length(table: Array, code: int) -> int:
    return text_end(table, code) - text_start(table, code)


@njit
def text_contains(table: Array, code: int, part: int) -> bool:
    """Whether the string `part` is a part of the string `code`."""
    start, length = text_start(table, part), text_length(table, part)
    for at in range(text_start(table, code), text_end(table, code) - length + 1):
        same = 0
        while same < length and table[at + same] == table[start + same]:
            same += 1
        if same == length:
            return True
    return False


@njit
def text_like(table: Array, code: int, pattern: int) -> bool:
    """SQL's LIKE, as `values.like` defines it: only the last `%` is ever tried again, one character further on."""
    at, end = text_start(table, code), text_end(table, code)
    token, last = text_start(table, pattern), text_end(table, pattern)
    wildcard, resume = -1, 0
    while at < end:
        escaped = token + 1 < last and table[token] == _ESCAPE
        if token < last and not escaped and table[token] == _ANY:
            wildcard, resume = token, at
            token += 1
        elif token < last and (
            table[token + 1] == table[at] if escaped else table[token] == _ONE or table[token] == table[at]
        ):
            at += 1
            token += 2 if escaped else 1
        elif wildcard >= 0:
            resume += 1
            at, token = resume, wildcard + 1
        else:
            return False
    while token < last and table[token] == _ANY:
        token += 1
    return token == last
