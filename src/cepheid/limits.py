"""The options that stop a query whose matches explode: `max_matches` and `max_memory`."""

from __future__ import annotations

from collections.abc import Mapping

from cepheid.errors import InputProblem, shown

MAX_MATCHES = "1000000"
"""The default of the option `max_matches`."""
MAX_MEMORY = "2 GB"
"""The default of the option `max_memory`."""
_OFF = ("off", "False")
_UNITS = {"": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}


def max_matches(options: Mapping[str, str | bool]) -> int | None:
    """The most matches that one event may complete; None: any number."""
    value = str(options.get("max_matches", MAX_MATCHES))
    if value in _OFF:
        return None
    if not value.isdecimal() or int(value) == 0:
        raise InputProblem(
            f"the option `max_matches` cannot be `{shown(value)}`", expected="a positive number, or `off`"
        )
    return int(value)


def max_memory(options: Mapping[str, str | bool]) -> int | None:
    """The most bytes that the state and the output of a step may have; None: any number."""
    value = str(options.get("max_memory", MAX_MEMORY)).strip()
    if value in _OFF:
        return None
    digits = value.rstrip("KMGTBkmgtb ")
    unit = value[len(digits) :].strip().upper()
    if not digits.isdecimal() or int(digits) == 0 or unit not in _UNITS:
        raise InputProblem(
            f"the option `max_memory` cannot be `{shown(value)}`",
            expected="a number of bytes, with KB, MB, GB or TB if you like (`500 MB`), or `off`",
        )
    return int(digits) * _UNITS[unit]
