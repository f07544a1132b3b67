"""What a base asks of sources, and what they answer.

An answer covers an interval: it has all events of the stream from `begin` up to `complete`. Absence is known, never
guessed. An answer that comes late, twice or out of order covers the same interval again, which changes nothing.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa

from cepheid.acquire.intervals import BEGINNING, END
from cepheid.acquire.keyed import Key

RequestKey = tuple[str, tuple[Key, ...]]


@dataclass(frozen=True, slots=True)
class Request:
    """Asks a source for the events of one type in [begin, end]. A pull has an end that the source has passed. A
    subscription (`follow`) also sends the events to come, as they occur, until its end."""

    number: int
    source: str
    stream: str
    begin: int
    end: int
    follow: bool = False
    filter: str | None = None
    """A condition on the attributes of an event `e`, in Cepheid's expressions: the source sends the events that satisfy
    it."""
    columns: tuple[str, ...] | None = None
    """The columns to send; None: all."""
    key: RequestKey | None = None
    """An attribute and values: the source sends the events that have one of them. None: all events."""


@dataclass(frozen=True, slots=True)
class Answer:
    """All events of a type in [begin, complete]. The source still has its events from `retained` on; those before it
    that it was asked for are lost."""

    source: str
    stream: str
    begin: int
    complete: int
    retained: int
    events: pa.RecordBatch
    keys: tuple[Key, ...] | None = None
    """The keys of the request: of the others, the answer says nothing."""


@dataclass(frozen=True, slots=True)
class Gap:
    """An interval that a source could not answer."""

    source: str
    stream: str
    begin: int
    end: int
    reason: str

    def __str__(self) -> str:
        begin = "" if self.begin <= BEGINNING else f" from {self.begin}"
        end = "" if self.end >= END else f" to {self.end}"
        return f"{self.source}: {self.stream}{begin}{end}"

    def to_data(self) -> dict[str, Any]:
        """As an output: a bound that there is not is null."""
        bounds = {
            "begin": None if self.begin <= BEGINNING else self.begin,
            "end": None if self.end >= END else self.end,
        }
        return asdict(self) | bounds
