"""What comparisons with constants leave of the values of one attribute."""

from __future__ import annotations

from collections.abc import Sequence

from cepheid.types import type_of
from cepheid.values import compare


def contradict(tests: Sequence[tuple[str, object]]) -> bool:
    """Whether no value passes every test, an operator with a constant.

    >>> contradict([(">", 5), ("<", 3)]), contradict([(">", 3), ("<", 5)])
    (True, False)
    >>> contradict([("=", 1), ("=", 2)]), contradict([("=", "p"), ("<", 3)])
    (True, True)
    """
    if any(value is None for _, value in tests) or len({type_of(value).noun for _, value in tests}) > 1:
        return True
    exact = [value for op, value in tests if op == "="]
    if exact:
        return not all(compare(op, exact[0], value) for op, value in tests)
    lows = [(op, value) for op, value in tests if op in (">", ">=")]
    highs = [(op, value) for op, value in tests if op in ("<", "<=")]
    return any(
        not compare("<=" if (low_op, high_op) == (">=", "<=") else "<", low, high)
        for low_op, low in lows
        for high_op, high in highs
    )
