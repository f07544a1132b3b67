"""What a running stream tells about itself: through Spark's listener, for programs, and as one value, for people."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)


@dataclass(slots=True)
class Tally:
    """What has come out since the start of this run."""

    batches: int = 0
    events: int = 0
    matches: dict[str, int] = field(default_factory=dict)
    late: int = 0
    rejects: int = 0
    states: dict[int, int] = field(default_factory=dict)
    """The bytes of the state of each bucket that was touched."""
    watermark: int | None = None
    """In ticks of the time column."""


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


class MetricsListener(StreamingQueryListener):
    """Hears what Spark says of one stream, and tells whoever listens after every batch."""

    def __init__(self, tally: Tally, tell: Callable[[Metrics], None] | None = None) -> None:
        self.tally, self.tell = tally, tell
        self.run_id: str | None = None
        self.rate, self.latency_ms, self.seen = 0.0, 0, 0

    def metrics(self) -> Metrics:
        tally = self.tally
        sizes = [size for size in tally.states.values() if size]
        return Metrics(
            batches=tally.batches,
            events=tally.events,
            events_a_second=self.rate,
            matches=dict(tally.matches),
            late=tally.late,
            rejects=tally.rejects,
            state_bytes=sum(sizes),
            state_buckets=len(sizes),
            watermark=tally.watermark,
            latency_ms=self.latency_ms,
        )

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """The stream tells its own run, since others may start at the same time."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        told = event.progress
        if self.run_id is not None and str(told.runId) != self.run_id:
            return
        self.latency_ms = int(told.durationMs.get("triggerExecution", self.latency_ms))
        new = self.tally.events - self.seen
        if new and self.latency_ms:
            self.seen, self.rate = self.tally.events, new / self.latency_ms * 1000
        if self.tell is not None:
            self.tell(self.metrics())

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Nothing came: nothing to tell."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """The stream itself tells how it ended."""
