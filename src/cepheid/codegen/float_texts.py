"""Floats as text, by the definition (`values.as_string`): the shortest digits that read as the float."""

from __future__ import annotations

from functools import cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cepheid.runtime.kernel import Array
from cepheid.values import as_string

_WHOLE_IN_ARROW = 1e10
"""Arrow writes whole floats below this bound without a fraction, and all floats from it on with an exponent."""
_FROM_EXPONENT, _TO_EXPONENT = 1e16, 1e-4
"""Floats from the first on and below the second have an exponent in their text."""
_SAMPLES: tuple[float, ...] = (
    *(0.0, -0.0, 1.0, -17.0, 9999999999.0, 0.1, 1.5, 0.0001, 1234567.25, 0.30000000000000004, 9999999999.5),
    *(1e16, 1.5e17, 1.7976931348623157e308, float("inf"), float("-inf"), 123456.789, 5e22),
)


def float_texts(values: Array) -> pa.Array:
    """The texts of floats. Arrow has the same digits, and the same form between the bounds above but for `.0`; the
    definition writes the others. NaN has a text that means nothing."""
    texts, size = pa.array(values).cast(pa.string()), np.abs(values)
    is_whole = (np.floor(values) == values) & (size < _WHOLE_IN_ARROW)
    if is_whole.any():
        texts = pc.if_else(pa.array(is_whole), pc.binary_join_element_wise(texts, ".0", ""), texts)
    is_alike = is_whole | (size >= _FROM_EXPONENT) | ((size >= _TO_EXPONENT) & (size < _WHOLE_IN_ARROW))
    others: Array = ~is_alike & ~np.isnan(values) if writes_as_defined() else ~np.isnan(values)
    if others.any():
        texts = pc.replace_with_mask(texts, pa.array(others), pa.array(map(as_string, values[others].tolist())))
    return texts


@cache
def writes_as_defined() -> bool:
    """Whether this version of Arrow writes floats in the form that `float_texts` completes."""
    texts = pa.array(_SAMPLES).cast(pa.string()).to_pylist()
    is_whole = [value.is_integer() and abs(value) < _WHOLE_IN_ARROW for value in _SAMPLES]
    written = [f"{text}.0" if whole else text for text, whole in zip(texts, is_whole, strict=True)]
    return written == list(map(as_string, _SAMPLES))
