"""The values of a query's parameters, as Python has them: numbers, also those of NumPy, texts, times and durations."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

from cepheid.errors import InputProblem
from cepheid.events import MICROSECONDS, OWN_UNIT, Duration
from cepheid.expr import Const
from cepheid.types import DATE, DURATION, TIMESTAMP, Family

_EPOCH, _MICROSECOND = datetime(1970, 1, 1, tzinfo=UTC), timedelta(microseconds=1)


def parameter_values(params: Mapping[str, Any]) -> Mapping[str, Const]:
    """The values as constants. A time without a zone is in UTC, as in a query."""
    return {name: _constant(name, value) for name, value in params.items()}


def _constant(name: str, given: object) -> Const:
    value = _of_numpy(given)
    match value:
        case datetime():
            if value != value:  # pandas.NaT
                return Const(None)
            moment = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
            return Const((moment - _EPOCH) // _MICROSECOND, type=TIMESTAMP)
        case date():
            return Const((datetime.combine(value, time(), UTC) - _EPOCH) // _MICROSECOND, type=DATE)
        case timedelta():
            return Const(value // _MICROSECOND, type=DURATION)
        case None | bool() | int() | float() | str() | bytes() | Decimal():
            return Const(value)
        case _:
            raise InputProblem(
                f"the parameter `{name}` is a {type(given).__name__}",
                expected="a number, a text, a boolean, None, a datetime, a date or a timedelta",
                hint="name each value of a list: IN (p1, p2), with a parameter for each"
                if isinstance(given, list | tuple | set | frozenset)
                else None,
            )


def _of_numpy(value: object) -> object:
    """A scalar of NumPy as a value of Python; nanoseconds are truncated."""
    kind = getattr(getattr(value, "dtype", None), "kind", None)
    if kind is None or getattr(value, "ndim", None) != 0:
        return value
    return value.astype(f"{kind}8[us]").item() if kind in "mM" else value.item()  # type: ignore[attr-defined]


def with_amount(length: Duration, params: Mapping[str, Const]) -> Duration:
    """A length of time whose amount is a parameter, with its value."""
    if not isinstance(length.amount, str) or length.amount not in params:
        return length
    constant = params[length.amount]
    is_length = constant.type.family is Family.DURATION
    if is_length and length.unit != OWN_UNIT:
        raise InputProblem(
            f"the parameter `{length.amount}` is a length of time, and the query gives it a unit",
            span=length.span,
            expected="one of them",
            hint=f"leave the unit out, or set the parameter to a number of {length.unit}",
        )
    amount = _number(constant)
    if amount is None or not 0 <= amount < math.inf:
        raise InputProblem(
            f"the parameter `{length.amount}` is a length of time, and its value is {constant.value!r}",
            span=length.span,
            expected="a number that is not negative, or a timedelta",
            hint=f"write a number, and the unit in the query: WITHIN {length.amount} hours",
        )
    if not is_length:
        return replace(length, amount=amount)
    unit = next(unit for unit in ("d", "h", "min", "s", "ms", "us") if amount % MICROSECONDS[unit] == 0)
    return replace(length, amount=amount // MICROSECONDS[unit], unit=unit)


def number(name: str, given: Const) -> int | float:
    """The value of a parameter that is compared with a count or a sum."""
    found = _number(given) if given.type.family is not Family.DURATION else None
    if found is None:
        raise InputProblem(
            f"the parameter `{name}` is compared with a count, and its value is {given.value!r}", expected="a number"
        )
    return found


def _number(constant: Const) -> int | float | None:
    value = constant.value
    is_moment = constant.type.family in (Family.TIMESTAMP, Family.DATE)
    return value if isinstance(value, int | float) and not isinstance(value, bool) and not is_moment else None
