"""The compiler pipeline of generated source: variables have one type, and results do not change."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cepheid.codegen.compile import compiled, interpreted
from cepheid.codegen.pipeline import SeveralTypes

COUNTING = """
def step(now, mask, values):
    floor = NULL_INT
    total = 0
    for e in range(mask.shape[0]):
        bits = mask[e]
        if bits & np.uint64(2) == 0:
            continue
        floor = now - e
        total += 1
        if total > values.shape[0]:
            values = grown(values, total)
        values[total - 1] = floor
    return values, total, floor
"""
TWO_TYPES = """
def step(now, mask, values):
    here = now
    for e in range(mask.shape[0]):
        here = mask[e]
    values[0] = 1 if here > now else 0
    return values, here
"""
ARGUMENTS = ["int", "uint64", "int64!"]


def arguments() -> tuple[Any, ...]:
    mask = np.array([1, 2, 3, 6, 4], np.uint64)
    mask.flags.writeable = False
    return 40, mask, np.zeros(1, np.int64)


@pytest.fixture
def jit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CEPHEID_JIT", "1")


@pytest.mark.usefixtures("jit")
def test_compiled_source_gives_the_same_as_interpreted() -> None:
    values, total, floor = compiled(COUNTING, ARGUMENTS)(*arguments())
    expected, count, last = interpreted(COUNTING)(*arguments())
    assert (list(values[:total]), total, floor) == (list(expected[:count]), count, last)


@pytest.mark.usefixtures("jit")
def test_a_variable_of_two_types_is_an_error() -> None:
    """Signed and unsigned integers would both become floats, and lose digits beyond 2^53."""
    with pytest.raises(SeveralTypes, match="here is float64"):
        compiled(TWO_TYPES, ARGUMENTS)(*arguments())
