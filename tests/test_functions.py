"""The table of scalar functions: every column computes what the definition says."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from cepheid.evaluation import call
from cepheid.functions import FUNCTIONS
from cepheid.types import FLOAT

NUMBERS = [-2.5, -1.0, -0.5, 0.0, 0.25, 1.0, 2.0, 7.75, 1e300]
TEXTS = ["", "a", "Ab", "ABC def", "1"]
each = pytest.mark.parametrize("name", FUNCTIONS)


def _known(value: Any) -> Any:
    return None if value is None or (isinstance(value, float) and math.isnan(value)) else value


@each
def test_bounds_and_types_are_sound(name: str) -> None:
    function = FUNCTIONS[name]
    assert 1 <= function.least <= function.most
    assert function.numpy is None or (function.takes.is_number and function.result(FLOAT).is_number)
    assert function.numpy is None or function.arrow is None
    assert (function.spark is None) == (function.numpy is None and function.arrow is None)


@each
def test_null_gives_null(name: str) -> None:
    assert (call(name, [None] * FUNCTIONS[name].least) is None) != FUNCTIONS[name].null_safe


@pytest.mark.parametrize("name", [name for name, function in FUNCTIONS.items() if function.numpy])
def test_columns_of_numbers(name: str) -> None:
    with np.errstate(invalid="ignore"):
        results = getattr(np, FUNCTIONS[name].numpy or "")(np.array(NUMBERS)).tolist()
    assert [_known(result) for result in results] == [call(name, [number]) for number in NUMBERS]


@pytest.mark.parametrize("name", [name for name, function in FUNCTIONS.items() if function.kernel])
def test_kernel_source(name: str) -> None:
    for number in NUMBERS:
        with np.errstate(invalid="ignore"):
            result = float(eval((FUNCTIONS[name].kernel or "").format("x"), {"np": np, "x": np.float64(number)}))
        assert _known(result) == call(name, [number])


@pytest.mark.parametrize("name", [name for name, function in FUNCTIONS.items() if function.arrow])
def test_columns_of_strings(name: str) -> None:
    results = getattr(pc, FUNCTIONS[name].arrow or "")(pa.array([*TEXTS, None])).to_pylist()
    assert results == [call(name, [text]) for text in [*TEXTS, None]]


@pytest.mark.parametrize("name", [name for name, function in FUNCTIONS.items() if function.spark])
def test_spark_has_the_function(name: str) -> None:
    from pyspark.sql import functions

    assert callable(getattr(functions, FUNCTIONS[name].spark or ""))
