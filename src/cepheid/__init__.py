"""Cepheid finds complex events, patterns over time, in event data that lives in Spark."""

from typing import TYPE_CHECKING, Any

from cepheid.version import __version__

if TYPE_CHECKING:
    from cepheid import builder as builder
    from cepheid.api import explain as explain
    from cepheid.api import match as match
    from cepheid.api import matches as matches
    from cepheid.api import read_output as read_output
    from cepheid.api import statistics as statistics
    from cepheid.detection.api import detect as detect
    from cepheid.detection.api import explain_detection as explain_detection
    from cepheid.errors import CepheidError as CepheidError
    from cepheid.errors import CepheidWarning as CepheidWarning
    from cepheid.io.inputs import Input as Input
    from cepheid.lang import parse as parse
    from cepheid.lang import to_text as to_text
    from cepheid.optimize.adapt import Adaptive as Adaptive
    from cepheid.optimize.adapt import Switch as Switch
    from cepheid.optimize.stats import Stats as Stats
    from cepheid.spark.dataframes import CsvFiles as CsvFiles
    from cepheid.spark.session import session as session
    from cepheid.spark.stream_api import stream as stream
    from cepheid.spark.workers import ship as ship
    from cepheid.streaming.verify import Verification as Verification
    from cepheid.streaming.verify import verify as verify

_MODULES = {
    "cepheid.api": ("explain", "match", "matches", "read_output", "statistics"),
    "cepheid.detection.api": ("detect", "explain_detection"),
    "cepheid.errors": ("CepheidError", "CepheidWarning"),
    "cepheid.io.inputs": ("Input",),
    "cepheid.lang": ("parse", "to_text"),
    "cepheid.optimize.adapt": ("Adaptive", "Switch"),
    "cepheid.optimize.stats": ("Stats",),
    "cepheid.spark.session": ("session",),
    "cepheid.spark.dataframes": ("CsvFiles",),
    "cepheid.spark.stream_api": ("stream",),
    "cepheid.spark.workers": ("ship",),
    "cepheid.streaming.verify": ("Verification", "verify"),
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names}
_SUBMODULES = ("builder",)
__all__ = ["__version__", *_SUBMODULES, *_HOMES]


def __getattr__(name: str) -> Any:
    """Imports the names of the package on first use: parsing a query needs neither Arrow nor NumPy."""
    import importlib

    if name in _SUBMODULES:
        return importlib.import_module(f"cepheid.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module `cepheid` has no attribute `{name}`")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
