"""The table of scalar functions: every column computes what the definition says. (The table of `value_cases` runs each
function on every evaluator.)"""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from value_cases import CASES

import cepheid
from cepheid.evaluation import call
from cepheid.expr import CASE, CAST
from cepheid.functions import ALIASES, FUNCTIONS
from cepheid.runtime.numbers import rounded_float, rounded_units
from cepheid.values import DATE_PARTS, rounded

NUMBERS = [-2.5, -1.0, -0.5, 0.0, 0.25, 1.0, 2.0, 7.75, 1e300]
TEXTS = ["", "a", "Ab", "ABC def", "1"]
each = pytest.mark.parametrize("name", FUNCTIONS)


def _known(value: Any) -> Any:
    return None if value is None or (isinstance(value, float) and math.isnan(value)) else value


@each
def test_bounds_and_names_are_sound(name: str) -> None:
    function = FUNCTIONS[name]
    assert 1 <= function.least <= function.most
    assert function.takes and (function.expands is None or function.kernel is None)
    assert name == name.lower() and (name.isidentifier() or name.startswith(CAST))


def test_aliases_are_other_names_of_functions() -> None:
    assert set(ALIASES.values()) <= set(FUNCTIONS) and not set(ALIASES) & set(FUNCTIONS)


@each
def test_null_gives_null(name: str) -> None:
    function = FUNCTIONS[name]
    assert call(name, [None] * function.least) is None


@each
def test_every_function_has_cases_for_every_evaluator(name: str) -> None:
    written = {CASE: "CASE "}.get(name, f"AS {name.removeprefix(CAST)}" if name.startswith(CAST) else f"{name}(")
    names = [written.lower(), *(f"{alias}(" for alias, meant in ALIASES.items() if meant == name)]
    texts = [case.text.lower() for case in CASES]
    assert name in ("distance", "coordinate", "dimensions", "hash_f") or any(n in text for n in names for text in texts)


@pytest.mark.parametrize("name", [n for n, f in FUNCTIONS.items() if f.kernel and n not in (CASE, "round")])
def test_kernel_source(name: str) -> None:
    for number in NUMBERS:
        with np.errstate(invalid="ignore"):
            result = float(eval((FUNCTIONS[name].kernel or "").format("x"), {"np": np, "x": np.float64(number)}))
        assert _known(result) == call(name, [number])


@pytest.mark.parametrize("name", [name for name, function in FUNCTIONS.items() if function.arrow])
def test_columns_of_strings(name: str) -> None:
    results = getattr(pc, FUNCTIONS[name].arrow or "")(pa.array([*TEXTS, None])).to_pylist()
    assert results == [call(name, [text]) for text in [*TEXTS, None]]


@pytest.mark.parametrize("digits", (-2, 0, 1, 3))
def test_rounding_in_kernels(digits: int) -> None:
    for number in (*NUMBERS, 0.49999999999999994, 2.5, 1.005, -1234.5678, math.inf):
        assert rounded_float(number, digits) == rounded(number, digits)
    if digits > 0:
        for number in (0, 5, 15, -15, 14, -16, 10**18 - 1):
            nearest = int(math.copysign(math.floor(abs(number) / 10**digits + 0.5), number)) if number else 0
            assert abs(number) > 2**50 or rounded_units(number, 10**digits) == nearest


def test_parts_of_dates_are_those_of_the_calendar() -> None:
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    moments = [
        datetime(1, 1, 1, tzinfo=UTC) + timedelta(days=n, seconds=n * 7919 % 86400) for n in range(0, 3650000, 97)
    ]
    times = np.array([(moment - epoch) // timedelta(microseconds=1) for moment in moments])
    for name in ("year", "month", "day", "hour", "minute", "second"):
        assert DATE_PARTS[name](times).tolist() == [getattr(moment, name) for moment in moments]
        assert DATE_PARTS[name](int(times[5])) == getattr(moments[5], name)
    assert DATE_PARTS["dayofyear"](times).tolist() == [moment.timetuple().tm_yday for moment in moments]
    assert DATE_PARTS["dayofweek"](times).tolist() == [moment.isoweekday() % 7 + 1 for moment in moments]
    assert DATE_PARTS["quarter"](times).tolist() == [(moment.month - 1) // 3 + 1 for moment in moments]


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("decimal", "`decimal` without its number of digits"),
        ("decimal(2, 5)", "more digits after the point than in all"),
        ("decimal(50, 2)", "a decimal of 50 digits"),
        ("varchar(3)", "substr(CAST(... AS varchar), 1, 3) cuts the string"),
        ("decimla(3, 1)", "did you mean `decimal`"),
    ],
)
def test_a_wrong_type_of_cast(kind: str, message: str) -> None:
    with pytest.raises(cepheid.CepheidError) as error:
        cepheid.parse(f"EVENT A a WHERE CAST(a.v AS {kind}) = 1")
    assert message in str(error.value)
