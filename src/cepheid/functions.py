"""The table of scalar functions: the definition of each, and its implementation in each evaluator.

A new function is a row here. It also needs a case in `spark/catalyst.py` if Spark's function differs from the
definition, for instance beyond 64 bits.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from cepheid.types import FLOAT, INTEGER, STRING, UNKNOWN, Family, Type, decimal
from cepheid.values import absolute, ceil, floor, to_float


def _distance(*args: Any) -> float | None:
    """Euclidean distance of two points: two lists, or the two halves of the argument list."""
    if len(args) == 2 and not isinstance(args[0], list | tuple):
        args = ([args[0]], [args[1]])
    elif len(args) != 2:
        args = (args[: len(args) // 2], args[len(args) // 2 :])
    points = [list(map(to_float, point)) for point in args]
    return math.dist(*points) if len(points[0]) == len(points[1]) else None


def _sqrt(x: Any) -> float | None:
    return math.sqrt(to_float(x)) if x >= 0 else None


def _hash_f(*args: Any) -> int:
    """A hash that is the same in every process and on every machine."""
    digest = hashlib.blake2b(repr(args).encode("utf-8", "backslashreplace"), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


@dataclass(frozen=True, slots=True)
class Function:
    """A function of `least` to `most` arguments. `apply` is its definition. The result is null if an argument is null
    (unless `null_safe`) or if `apply` returns None. An evaluator whose column is None does not have the function."""

    least: int
    most: int
    takes: Type
    result: Callable[[Type], Type]
    """The type of the result, by the type of the first argument."""
    apply: Callable[..., Any]
    null_safe: bool = False
    takes_durations: bool = False
    kernel: str | None = None
    """Source in a kernel, over floats with NaN for null."""
    numpy: str | None = None
    """The NumPy function over columns of numbers."""
    arrow: str | None = None
    """The Arrow function over columns of strings."""
    spark: str | None = None
    """The function of `pyspark.sql.functions`."""


def _itself(of: Type) -> Type:
    return of


def _whole(of: Type) -> Type:
    """The type of a value without its fraction."""
    is_fraction = of.family is Family.DECIMAL and of.scale > 0
    return decimal(of.precision, 0) if is_fraction else of


def _always(type_: Type) -> Callable[[Type], Type]:
    return lambda _: type_


_FLOAT, _INTEGER, _STRING = _always(FLOAT), _always(INTEGER), _always(STRING)
FUNCTIONS: Mapping[str, Function] = {
    "abs": Function(1, 1, FLOAT, _itself, absolute, takes_durations=True, kernel="abs({})", numpy="abs", spark="abs"),
    "sqrt": Function(1, 1, FLOAT, _FLOAT, _sqrt, kernel="np.sqrt({})", numpy="sqrt", spark="sqrt"),
    "floor": Function(1, 1, FLOAT, _whole, floor, kernel="np.floor({})", numpy="floor", spark="floor"),
    "ceil": Function(1, 1, FLOAT, _whole, ceil, kernel="np.ceil({})", numpy="ceil", spark="ceil"),
    "lower": Function(1, 1, STRING, _STRING, str.lower, arrow="utf8_lower", spark="lower"),
    "upper": Function(1, 1, STRING, _STRING, str.upper, arrow="utf8_upper", spark="upper"),
    "length": Function(1, 1, UNKNOWN, _INTEGER, len, arrow="utf8_length", spark="length"),
    "distance": Function(2, 8, UNKNOWN, _FLOAT, _distance),
    "hash_f": Function(1, 64, UNKNOWN, _INTEGER, _hash_f, null_safe=True),
}
