"""Sources that can be asked: the protocol between a base and the sources of events, wherever they are.

A source describes itself, and takes requests: *pull* a range of time, or *subscribe* to the events of a type. It
delivers answers, possibly later and from other threads (`acquire.requests.Answer`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from cepheid.acquire.intervals import BEGINNING
from cepheid.acquire.models import Model, Poisson, fitted
from cepheid.acquire.requests import Answer, Request
from cepheid.errors import SourceUnreachable, shown
from cepheid.io.event_columns import ticks_of
from cepheid.io.event_log import EventLog

PROTOCOL = 3
"""The version of the protocol. Base and source must have the same."""

SAMPLE = 20_000
"""The most recent events of a type that a model is fitted to."""
_RARE = 1e-9
"""The rate of a type with one event, per tick."""


@dataclass(frozen=True, slots=True)
class TypeDescription:
    """The events of a type at a source: their number, the times of the first and the last, their size and their
    model."""

    count: int
    first: int
    last: int
    bytes: float
    model: Model
    columns: tuple[str, ...]
    distinct: Mapping[str, int] = field(default_factory=dict)
    """How many different values the recent events have, for attributes that events can be asked for by."""


class Description(NamedTuple):
    """What a source says of itself."""

    name: str
    schema: pa.Schema
    types: Mapping[str, TypeDescription]
    complete: int
    """The time up to which it has all its events."""
    retained: int
    """The time from which it still has its events."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A request that a source could not answer, and the reason."""

    request: Request
    reason: str


NO_COLUMNS = "has no events yet, so that its columns are not known"


def without_columns(name: str, where: str = "") -> SourceUnreachable:
    """The error of a source that cannot describe itself yet."""
    return SourceUnreachable(
        f"`{shown(name)}`{where} {NO_COLUMNS}",
        hint="start once it has an event, or serve it with --input FILE: a Parquet file with its columns and no rows",
    )


Deliver = Callable[[Answer | Failure], None]


NO_FILTERS: Mapping[str, str] = {}
NO_ATTRIBUTES: Mapping[str, Collection[str]] = {}


class AskedSource(Protocol):
    @property
    def name(self) -> str: ...

    def describe(self, filters: Mapping[str, str] = NO_FILTERS) -> Description:
        """Describes the events, of some types only those that satisfy a condition. Raises InputProblem if the source
        cannot be reached."""

    def ask(self, request: Request, deliver: Deliver) -> None:
        """Sends a request. The answers, or a failure, are delivered when they come."""

    def cancel(self, last: int) -> None:
        """Ends the requests up to a number, which are not wanted any more. Answers may still come."""

    def close(self) -> None: ...


def _distinct(events: pa.RecordBatch) -> dict[str, int]:
    recent = events.slice(max(events.num_rows - SAMPLE, 0))
    kinds = {f.name: f.type.value_type if pa.types.is_dictionary(f.type) else f.type for f in recent.schema}
    names = [n for n, kind in kinds.items() if pa.types.is_integer(kind) or pa.types.is_string(kind)]
    return {name: max(pc.count_distinct(recent.column(name).cast(kinds[name])).as_py(), 1) for name in names}


Kept = Callable[[str, pa.RecordBatch], pa.RecordBatch]
"""The events of a type that are described."""


def described(
    log: EventLog,
    schema: pa.Schema,
    time_column: str,
    complete: int,
    retained: int = BEGINNING,
    kept: Kept | None = None,
    attributes: Mapping[str, Collection[str]] = NO_ATTRIBUTES,
) -> Description:
    """The description of a log. A type that has no event that is kept is described by its rate. Rates count the time of
    the whole log: a type whose few events are close together is rare. `attributes` are those that the events of a type
    have, even if they are null in all of them."""
    types: dict[str, TypeDescription] = {}
    spans = [(int(of.times[0]), int(of.times[-1])) for of in log.streams.values() if len(of.times)]
    begin, end = min((first for first, _ in spans), default=0), max((last for _, last in spans), default=0)
    for kind, stored in log.streams.items():
        count = len(stored.times)
        if not count:
            continue
        times, recent = stored.times[-SAMPLE:], stored.events.slice(max(count - SAMPLE, 0))
        first, last = int(times[0]) if count > SAMPLE else begin, int(times[-1])
        if kept is not None:
            recent = kept(kind, recent)
            times = ticks_of(recent.column(time_column), time_column)
        model = fitted(times, first, end) if end > first else Poisson(_RARE)
        known = attributes.get(kind, ())
        present = [n for n in schema.names if n in known or stored.events.column(n).null_count < count]
        size = stored.events.nbytes / count
        types[kind] = TypeDescription(
            count, int(stored.times[0]), last, size, model, tuple(present), _distinct(stored.events)
        )
    return Description(log.name, schema, types, complete, retained)
