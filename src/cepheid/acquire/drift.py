"""Whether the rates of streams have drifted from those that a plan was chosen by."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from cepheid.acquire.cost import StreamModel
from cepheid.acquire.models import Poisson

ENOUGH = 20
"""A rate has drifted only if so many events were seen, or were expected: fewer are chance."""
FACTOR = 2.0
"""A rate has drifted if it is this many times larger or smaller."""
WORTHWHILE = 0.8
"""A plan replaces another if its cost is below this share of the other's."""


@dataclass(slots=True)
class Observed:
    """The events of a stream that a source has sent, and the ticks that its answers cover, since the last check."""

    events: int = 0
    ticks: int = 0


@dataclass(frozen=True, slots=True)
class Drift:
    """A stream with a rate (per tick) other than expected."""

    stream: str
    expected: float
    rate: float


def drifts(streams: Mapping[str, StreamModel], observed: Mapping[str, list[Observed]]) -> list[Drift]:
    """The streams whose rates have drifted. A stream has observations of each of its sources; one that is pulled is
    observed near partial detections only."""
    found = []
    for stream, sources in observed.items():
        if stream not in streams or not all(source.ticks for source in sources):
            continue
        expected = streams[stream].model.rate
        rate = sum(source.events / source.ticks for source in sources)
        ticks = min(source.ticks for source in sources)
        is_clear = max(rate, expected) * ticks >= ENOUGH
        if is_clear and (rate > FACTOR * expected or FACTOR * rate < expected):
            found.append(Drift(stream, expected, rate))
    return found


def with_drifts(streams: Mapping[str, StreamModel], found: list[Drift]) -> dict[str, StreamModel]:
    """The models with the rates that were observed. A stream without an event keeps a rate, below one in the time
    that it was observed for."""
    least = {drift.stream: drift.expected / 1_000 for drift in found}
    changed = {
        drift.stream: replace(streams[drift.stream], model=Poisson(max(drift.rate, least[drift.stream])))
        for drift in found
    }
    return {**streams, **changed}
