"""Cepheid finds complex events, patterns over time, in event data that lives in Spark."""

from cepheid.version import __version__

__all__ = ["__version__"]
