"""Queries that exceed a limit in a task of a batch job: the task goes on with the others, and the driver warns."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Sequence

from pyspark import AccumulatorParam, TaskContext
from pyspark.accumulators import Accumulator
from pyspark.sql import SparkSession

from cepheid.errors import CepheidWarning, listing
from cepheid.spark.workers import is_remote

_LOG = logging.getLogger("cepheid.spark")

Stop = tuple[tuple[str, ...], str]
"""The names of the queries of an operator, and why it was stopped."""


class Stops(AccumulatorParam[tuple[Stop, ...]]):
    """Collects what was stopped. Spark adds it on the driver before the action that runs the job returns."""

    def zero(self, value: tuple[Stop, ...]) -> tuple[Stop, ...]:
        return ()

    def addInPlace(self, value1: tuple[Stop, ...], value2: tuple[Stop, ...]) -> tuple[Stop, ...]:
        known = {names for names, _ in value1}
        new = tuple(dict((names, (names, why)) for names, why in value2 if names not in known).values())
        if TaskContext.get() is None:  # the driver
            for names, why in new:
                _warn(names, why)
        return (*value1, *new)

    @classmethod
    def of(cls, session: SparkSession) -> Accumulator[tuple[Stop, ...]] | None:
        """None over Spark Connect, where tasks cannot tell the driver anything."""
        return None if is_remote(session) else session.sparkContext.accumulator((), cls())


def stop_text(names: Sequence[str], why: str) -> str:
    return f"{f'the query `{names[0]}`' if len(names) == 1 else f'the queries {listing(names)}'}: {why}"


def _warn(names: Sequence[str], why: str) -> None:
    """Spark calls this in a thread of its own, which an error would end."""
    text = f"{stop_text(names, why)}; its matches are not complete"
    try:
        warnings.warn(text, CepheidWarning, stacklevel=2)
    except CepheidWarning:
        _LOG.warning(text)
