"""Progress of a running stream: its metrics after every batch."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from py4j.protocol import Py4JError
from pyspark.sql.streaming.query import StreamingQuery

from cepheid.streaming.metrics import Metrics, Totals

_EVERY = 0.1
"""Seconds between two checks whether a batch is complete."""


class LastBatch(NamedTuple):
    """The last completed batch, and the milliseconds from its trigger to its commit."""

    number: int
    latency: int


def last_batch(query: StreamingQuery) -> LastBatch | None:
    """Reads two figures of Spark's progress. `query.lastProgress` would copy all of them to Python, those of the state
    store included, one by one: a tenth of a second."""
    progress = query._jsq.lastProgress()
    if progress is None:
        return None
    return LastBatch(progress.batchId(), int(progress.durationMs().get("triggerExecution") or 0))


class ProgressReporter(threading.Thread):
    """Calls a function with the stream's metrics after every batch."""

    def __init__(self, query: StreamingQuery, totals: Totals, on_progress: Callable[[Metrics], None]) -> None:
        super().__init__(name="cepheid-progress", daemon=True)
        self.query, self.totals, self.on_progress = query, totals, on_progress
        self.reported: LastBatch | None = None
        self.ended = threading.Event()

    def run(self) -> None:
        with suppress(Py4JError):  # Spark has stopped: `wait` reports it
            while not self.ended.wait(_EVERY):
                self._report()

    def close(self) -> None:
        """Reports the last batch too, if it is new."""
        self.ended.set()
        self.join()
        with suppress(Py4JError):
            self._report()

    def _report(self) -> None:
        last = last_batch(self.query)
        if last is not None and last != self.reported:
            self.reported = last
            self.on_progress(self.totals.metrics(last.latency))
