"""Arrays of floats rounded as `values.rounded` rounds one: halves away from zero."""

from __future__ import annotations

from typing import Any

import numpy as np

from cepheid.runtime.kernel import Array


def nearest_floats(values: Array, digits: int) -> Array:
    """To so many digits after the point; a float that has no digit there is unchanged."""
    factor = 10.0 ** abs(digits)
    with np.errstate(all="ignore"):
        scaled = values * factor if digits >= 0 else values / factor
        size = np.abs(scaled)
        nearest = np.copysign(np.floor(size) + (size - np.floor(size) >= 0.5), scaled)
        result = nearest / factor if digits >= 0 else nearest * factor
    return np.where(size < 2.0**52, result, values) + 0.0


def whole_counts(counts: Any) -> tuple[Any, Any]:
    """Floats rounded to 64-bit integers, halves away from zero, and the rows in which they do not fit."""
    nearest = nearest_floats(np.asarray(counts), 0)
    beyond = ~(np.abs(nearest) < 2.0**63)
    return np.where(beyond, 0.0, nearest).astype(np.int64), beyond
