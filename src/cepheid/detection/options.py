"""How a detection is planned and run: its options, and how its sources are reached."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from cepheid.acquire.cost import MODELS
from cepheid.acquire.search import DEFAULT_SEARCH, STRATEGIES, SearchOptions
from cepheid.errors import InputProblem, did_you_mean, listing, shown
from cepheid.events import Clock, Duration
from cepheid.io.asked_source import AskedSource
from cepheid.io.source_list import NO_TIME

PUSH = "push"
"""The plan that pushes everything."""
MARK, HOLD = "mark", "hold"


@dataclass(frozen=True, slots=True)
class Link:
    """A source, and how it is reached."""

    source: AskedSource
    latency: Duration = NO_TIME
    retention: Duration | None = None
    region: str | None = None
    types: frozenset[str] | None = None
    """The event types that it is asked for; None: all that it has or may have."""
    address: str | None = None
    """Where it is, for errors; None: at hand."""

    def __str__(self) -> str:
        return f"the source `{shown(self.source.name)}`" + ("" if self.address is None else f" at {self.address}")


@dataclass(frozen=True, slots=True)
class DetectOptions:
    """How a plan is chosen and run."""

    deadline: Duration | None = None
    """The longest time from the event that completes a detection to its detection."""
    model: str = "coverage"
    search: SearchOptions = DEFAULT_SEARCH
    plan: str | Mapping[str, str] | None = None
    """The text of a plan, or `push`; None: the cheapest. Of several queries: `push`, or the texts by name."""
    timeout: float = 10.0
    """Seconds after which a request is repeated."""
    attempts: int = 5
    """How often a request is sent before it is a gap. A source that is not there at the start is tried as often."""
    gaps: str = MARK
    """Whether matches that a gap could change are marked or held back."""
    state: str | None = None
    """The directory of the saved state."""
    save_every: float = 0.5
    """Seconds between saves."""
    adapt_every: float | None = 5.0
    """Seconds between comparisons of the rates with those that the plan was chosen by; None: the plan is kept."""

    def __post_init__(self) -> None:
        for value, known, what in (
            (self.model, MODELS, "model"),
            (self.search.strategy, STRATEGIES, "strategy"),
            (self.search.algorithm, ("auto", "dp", "heuristic"), "algorithm"),
            (self.gaps, (MARK, HOLD), "handling of gaps"),
        ):
            if value not in known:
                raise InputProblem(
                    f"no {what} `{shown(value)}`", expected=f"one of {listing(known)}", hint=did_you_mean(value, known)
                )


# --- lengths of time --------------------------------------------------------------------------------------------------

_SECONDS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3_600.0, "d": 86_400.0, "w": 604_800.0}


def length_text(ticks: float, clock: Clock) -> str:
    """A number of ticks as a length of time."""
    if clock.unit is None:
        return f"{ticks:,.4g} units"
    seconds = ticks * _SECONDS[clock.unit]
    if math.isinf(seconds):
        return "ever"
    for unit in ("d", "h", "min", "s", "ms", "us"):
        if seconds >= _SECONDS[unit]:
            return f"{seconds / _SECONDS[unit]:,.4g} {unit}"
    return f"{seconds:,.4g} s"


def rate_unit(clock: Clock) -> tuple[float, str]:
    """How many ticks there are in the unit that rates are shown in."""
    return (1.0, "unit") if clock.unit is None else (1.0 / _SECONDS[clock.unit], "s")
