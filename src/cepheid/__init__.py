"""Cepheid finds complex events, patterns over time, in event data that lives in Spark."""

from typing import TYPE_CHECKING, Any

from cepheid.version import __version__

if TYPE_CHECKING:
    from cepheid.backends.api import explain as explain
    from cepheid.backends.api import match as match
    from cepheid.backends.api import statistics as statistics
    from cepheid.backends.spark.api import matches as matches
    from cepheid.backends.spark.csv import CsvFiles as CsvFiles
    from cepheid.backends.spark.session import session as session
    from cepheid.backends.stream.api import stream as stream
    from cepheid.backends.stream.output import read_output as read_output
    from cepheid.backends.verify import Verification as Verification
    from cepheid.backends.verify import verify as verify
    from cepheid.errors import CepheidError as CepheidError
    from cepheid.lang import parse as parse
    from cepheid.lang import to_text as to_text
    from cepheid.optimize.adapt import Adaptive as Adaptive
    from cepheid.optimize.adapt import Switch as Switch
    from cepheid.optimize.stats import Stats as Stats

__all__ = [
    "Adaptive",
    "CepheidError",
    "CsvFiles",
    "Stats",
    "Switch",
    "Verification",
    "__version__",
    "explain",
    "match",
    "matches",
    "parse",
    "read_output",
    "session",
    "statistics",
    "stream",
    "to_text",
    "verify",
]

_HOMES = {
    "match": "cepheid.backends.api",
    "explain": "cepheid.backends.api",
    "statistics": "cepheid.backends.api",
    "matches": "cepheid.backends.spark.api",
    "CsvFiles": "cepheid.backends.spark.csv",
    "session": "cepheid.backends.spark.session",
    "stream": "cepheid.backends.stream.api",
    "read_output": "cepheid.backends.stream.output",
    "verify": "cepheid.backends.verify",
    "Verification": "cepheid.backends.verify",
    "Adaptive": "cepheid.optimize.adapt",
    "Switch": "cepheid.optimize.adapt",
    "Stats": "cepheid.optimize.stats",
    "parse": "cepheid.lang",
    "to_text": "cepheid.lang",
    "CepheidError": "cepheid.errors",
}


def __getattr__(name: str) -> Any:
    """What the package offers is loaded when it is asked for: parsing a query needs neither Arrow nor NumPy."""
    import importlib

    if name not in _HOMES:
        raise AttributeError(f"module `cepheid` has no attribute `{name}`")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
