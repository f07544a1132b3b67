"""Cepheid finds complex events, patterns over time, in event data that lives in Spark."""

__version__ = "0.1.0"
