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

from cepheid.optimize.adapt import Switch


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


def metrics_of(tally: Tally, duration: Mapping[str, int]) -> Metrics:
    """`duration` holds the milliseconds of the last batch, as Spark tells them."""
    sizes = [size for size in tally.states.values() if size]
    latency = int(duration.get("triggerExecution", 0))
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


class MetricsListener(StreamingQueryListener):
    """Hears what Spark says of one run of a stream, and tells whoever listens after every batch."""

    def __init__(self, tally: Tally, run_id: str, tell: Callable[[Metrics], None]) -> None:
        self.tally, self.run_id, self.tell = tally, run_id, tell

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Other streams may start at the same time."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        if str(event.progress.runId) == self.run_id:
            self.tell(metrics_of(self.tally, event.progress.durationMs))

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Nothing came: nothing to tell."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """The stream itself tells how it ended."""
