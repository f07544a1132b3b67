"""The limits of queries: `max_matches` and `max_memory` stop a query whose matches explode. Of many queries together,
`max_operators` bounds each, `max_total_operators` and `max_total_memory` all of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cepheid.errors import InputProblem, shown

MAX_MATCHES = "1000000"
"""The default of the option `max_matches`."""
MAX_MEMORY = "2 GB"
"""The default of the option `max_memory`."""
_OFF = ("off", "False")
_UNITS = {"": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_DEFAULTS = {
    "max_matches": MAX_MATCHES,
    "max_memory": MAX_MEMORY,
    "max_total_memory": "8 GB",
    "max_operators": "1000",
    "max_total_operators": "1000000",
}
LIMITS = (*_DEFAULTS,)
"""The names of the options that limit queries. They choose neither plans nor evaluators."""

_Options = Mapping[str, str | bool]


def max_matches(options: _Options) -> int | None:
    """The most matches that one event may complete; None: any number."""
    return _number("max_matches", options)


def max_memory(options: _Options) -> int | None:
    """The most bytes that the state and the output of a step may have; None: any number."""
    return _bytes("max_memory", options)


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of many queries together; None: no limit."""

    matches: int | None = None
    """The most matches of a query that one event may complete."""
    memory: int | None = None
    """The most bytes of the state of a query."""
    total_memory: int | None = None
    """The most bytes of the states of all queries in a task."""
    operators: int | None = None
    """The most operators of a query."""
    total_operators: int | None = None
    """The most operators of all queries; what they share counts once."""

    @classmethod
    def of(cls, options: _Options) -> Limits:
        return cls(
            max_matches(options),
            max_memory(options),
            _bytes("max_total_memory", options),
            _number("max_operators", options),
            _number("max_total_operators", options),
        )


NO_LIMITS = Limits()


def _number(name: str, options: _Options) -> int | None:
    value = str(options.get(name, _DEFAULTS[name]))
    if value in _OFF:
        return None
    if not value.isdecimal() or int(value) == 0:
        raise InputProblem(f"the option `{name}` cannot be `{shown(value)}`", expected="a positive number, or `off`")
    return int(value)


def _bytes(name: str, options: _Options) -> int | None:
    value = str(options.get(name, _DEFAULTS[name])).strip()
    if value in _OFF:
        return None
    digits = value.rstrip("KMGTBkmgtb ")
    unit = value[len(digits) :].strip().upper()
    if not digits.isdecimal() or int(digits) == 0 or unit not in _UNITS:
        raise InputProblem(
            f"the option `{name}` cannot be `{shown(value)}`",
            expected="a number of bytes, with KB, MB, GB or TB if you like (`500 MB`), or `off`",
        )
    return int(digits) * _UNITS[unit]
