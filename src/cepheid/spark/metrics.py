"""What a running stream tells about itself, as one value."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from py4j.protocol import Py4JError
from pyspark.sql.streaming import StreamingQuery

from cepheid.optimize.adapt import Switch

_EVERY = 0.1
"""Seconds between two looks at whether a batch is complete."""


@dataclass(slots=True)
class Tally:
    """What has come out since the start of this run."""

    batches: int = 0
    events: int = 0
    last_events: int = 0
    """Those of the last batch."""
    matches: dict[str, int] = field(default_factory=dict)
    late: int = 0
    rejects: int = 0
    states: dict[int, int] = field(default_factory=dict)
    """The bytes of the state of each bucket that was touched."""
    watermark: int | None = None
    """In ticks of the time column."""
    switches: list[tuple[str, Switch]] = field(default_factory=list)
    """Every change of a plan, with the name of its query; buckets decide for themselves."""


@dataclass(frozen=True, slots=True)
class Metrics:
    """A stream at one moment. Latency is that of the last batch, from its trigger to its commit."""

    batches: int
    events: int
    events_a_second: float
    matches: Mapping[str, int]
    late: int
    rejects: int
    state_bytes: int
    state_buckets: int
    watermark: int | None
    latency_ms: int
    switches: tuple[tuple[str, Switch], ...] = ()


class LastBatch(NamedTuple):
    """The batch that a stream has completed last, and the milliseconds from its trigger to its commit."""

    number: int
    latency: int


def last_batch(query: StreamingQuery) -> LastBatch | None:
    """Spark is asked for no more than that: what it tells Python of a batch on its own, all figures of the state store
    among it, crosses one by one, and takes a tenth of a second."""
    progress = query._jsq.lastProgress()
    if progress is None:
        return None
    return LastBatch(progress.batchId(), int(progress.durationMs().get("triggerExecution") or 0))


def metrics_of(tally: Tally, last: LastBatch | None) -> Metrics:
    sizes = [size for size in tally.states.values() if size]
    latency = 0 if last is None else last.latency
    return Metrics(
        batches=tally.batches,
        events=tally.events,
        events_a_second=tally.last_events / latency * 1000 if latency else 0.0,
        matches=dict(tally.matches),
        late=tally.late,
        rejects=tally.rejects,
        state_bytes=sum(sizes),
        state_buckets=len(sizes),
        watermark=tally.watermark,
        latency_ms=latency,
        switches=tuple(tally.switches),
    )


class Teller(threading.Thread):
    """Tells whoever listens how a stream fares, after every batch."""

    def __init__(self, query: StreamingQuery, tally: Tally, tell: Callable[[Metrics], None]) -> None:
        super().__init__(name="cepheid-teller", daemon=True)
        self.query, self.tally, self.tell = query, tally, tell
        self.told: LastBatch | None = None
        self.ended = threading.Event()

    def run(self) -> None:
        with suppress(Py4JError):  # Spark is gone, which whoever waits for the stream is told
            while not self.ended.wait(_EVERY):
                self._tell_news()

    def close(self) -> None:
        """Of the last batch too, if it is news."""
        self.ended.set()
        self.join()
        with suppress(Py4JError):
            self._tell_news()

    def _tell_news(self) -> None:
        last = last_batch(self.query)
        if last is not None and last != self.told:
            self.told = last
            self.tell(metrics_of(self.tally, last))
