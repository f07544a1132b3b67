"""The metrics of a running stream."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from cepheid.optimize.adapt import Switch
from cepheid.streaming.ahead import Jump
from cepheid.streaming.slots import Loads


@dataclass(frozen=True, slots=True)
class Metrics:
    """A snapshot of a stream's metrics. Latency is that of the last batch, from its trigger to its commit."""

    batches: int
    read: int
    """The number of rows read: used + late + rejects."""
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
    jumps: tuple[Jump, ...] = ()
    dropped: tuple[str, ...] = ()
    """The keys whose events are ignored, with the reason."""

    @property
    def used(self) -> int:
        """Events that were not late."""
        return self.events - self.late


@dataclass(slots=True)
class Totals:
    """Counts since the start of this run."""

    batches: int = 0
    read: int = 0
    events: int = 0
    last_events: int = 0
    """Events of the last batch."""
    matches: dict[str, int] = field(default_factory=dict)
    late: int = 0
    rejects: int = 0
    states: dict[int, int] = field(default_factory=dict)
    """The bytes of the state of each bucket that was updated."""
    watermark: int | None = None
    """In ticks of the time column."""
    switches: list[tuple[str, Switch]] = field(default_factory=list)
    """Every change of a plan, with the name of its query; each bucket decides for itself."""
    jumps: list[Jump] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)
    loads: Loads = field(default_factory=Loads)
    """Of the queries without a key, since they were last moved."""
    stopped: list[str] = field(default_factory=list)
    """The queries that exceeded a limit, and are not yet removed."""

    @property
    def used(self) -> int:
        return self.events - self.late

    def metrics(self, latency_ms: int) -> Metrics:
        sizes = [size for size in self.states.values() if size]
        return Metrics(
            batches=self.batches,
            read=self.read,
            events=self.events,
            events_a_second=self.last_events / latency_ms * 1000 if latency_ms else 0.0,
            matches=dict(self.matches),
            late=self.late,
            rejects=self.rejects,
            state_bytes=sum(sizes),
            state_buckets=len(sizes),
            watermark=self.watermark,
            latency_ms=latency_ms,
            switches=tuple(self.switches),
            jumps=tuple(self.jumps),
            dropped=tuple(self.dropped),
        )
