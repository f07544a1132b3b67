"""Events, their schemas, and time.

An event has a type, a time interval (a point for primitive events), attributes, and a position in its stream. Time is
an integer: microseconds for a timestamp column, the column's own unit for an integer column (ruling 1).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta, timezone
from fractions import Fraction
from typing import Any

from cepheid.errors import InputProblem, Span
from cepheid.types import Type, type_of_all, united

UNTYPED = ""
"""The type of the events of an input that has no type column."""
START = "\0start"
"""The column of the start of each event, in ticks, in batches of events with duration: their time is their end. No
attribute can have such a name, because queries and inputs with a NUL are refused."""
HISTORY = "\0history"
"""The column of the complete history of each event that a query derives (NEXT §3.2), as a list of ticks; null for the
events of the input, whose history is their start and end."""


@dataclass(frozen=True, slots=True, eq=False)
class Event:
    """One event. `attributes` holds every attribute of its type (null if the row has none), `row` the values of the
    input, for output. `times` is the complete history of NEXT's time model (§3.2): the time points of all its primitive
    events."""

    type: str
    start: int
    end: int
    position: int
    attributes: Mapping[str, Any]
    row: Mapping[str, Any] = field(repr=False)
    times: tuple[int, ...] = field(repr=False)
    parts: tuple[Event, ...] = field(default=(), repr=False)
    origin: tuple[Any, Mapping[str, Any]] | None = field(default=None, repr=False)
    """Of a derived event: its query, and the match that it is."""
    identity: Any = field(default=None, repr=False)
    """Of an event of the input, if matches are identified: its hash."""

    def primitives(self) -> Iterator[Event]:
        """The primitive events it is made of (itself, if primitive)."""
        if not self.parts:
            yield self
        for part in self.parts:
            yield from part.primitives()


def primitive(type: str, time: int, position: int, attributes: Mapping[str, Any], start: int | None = None) -> Event:
    """A point in time or, with a start, an event that ends at `time`."""
    began = time if start is None else start
    return Event(type, began, time, position, attributes, attributes, (began, time))


@dataclass(frozen=True, slots=True)
class Schema:
    """The attributes of each event type. An open schema was read off data: a type it does not name may still exist."""

    types: Mapping[str, Mapping[str, Type]]
    open: bool = True
    time_column: str | None = None
    """The attribute that is the time of the events, if it is one, and the unit in which it counts."""
    clock: Clock | None = None
    partial: frozenset[str] = frozenset()
    """The types that may have further attributes: events derived from events of which the data has none."""
    derived: frozenset[str] = frozenset()
    """The types whose events queries derive."""
    unseen: Mapping[str, Type] = field(default_factory=dict)
    """The attributes of a type of which the data has no event: those of all its events."""
    is_table: bool = False
    """Whether every event has all columns, so that a type without events has no other attributes than these."""
    is_typed: bool = False
    """Whether columns have types of their own, which hold for a type without events too."""

    def attributes(self, types: Iterable[str]) -> dict[str, Type]:
        """The attributes of all these types. The type of an attribute holds the values in events of all types."""
        merged: dict[str, Type] = {}
        for name in types:
            for attribute, kind in self.types.get(name, self.unseen).items():
                known = merged.get(attribute, kind)
                merged[attribute] = kind if known is kind else united(known, kind)
        return merged


EMPTY_SCHEMA = Schema({})


def infer_schema(events: Iterable[Event]) -> Schema:
    """The schema of these events. A type lacks an attribute if none of its events has it (ruling 13)."""
    values: dict[str, dict[str, list[object]]] = {}
    for event in events:
        attributes = values.setdefault(event.type, {})
        for name, value in event.attributes.items():
            attributes.setdefault(name, []).append(value)
    return Schema({kind: {name: type_of_all(of) for name, of in columns.items()} for kind, columns in values.items()})


def complete(events: Sequence[Event], schema: Schema) -> list[Event]:
    """The events with every attribute of their type: null where the row had none."""
    blank: dict[str, dict[str, Any]] = {name: dict.fromkeys(attributes) for name, attributes in schema.types.items()}
    completed = []
    for event in events:
        everything = {**blank.get(event.type, {}), **event.attributes}
        # Most rows have all attributes in the same order, and a copy of each takes longer than reading it.
        is_complete = list(everything) == list(event.attributes)
        completed.append(event if is_complete else replace(event, attributes=everything))
    return completed


def in_order(events: Iterable[Event]) -> list[Event]:
    """The stream's order: by end, then start, then arrival; positions are numbered anew."""
    ordered = sorted(events, key=lambda event: (event.end, event.start, event.position))
    return [replace(event, position=position) for position, event in enumerate(ordered)]


# --- time -------------------------------------------------------------------------------------------------------------

MICROSECONDS: Mapping[str, int] = {
    "us": 1,
    "ms": 1_000,
    "s": 1_000_000,
    "min": 60 * 1_000_000,
    "h": 3_600 * 1_000_000,
    "d": 86_400 * 1_000_000,
    "w": 7 * 86_400 * 1_000_000,
}

LONGEST = 2**61
"""The bound of event times, before and after 0, and of windows: the sum of a time and a window fits into 64 bits."""
OWN_UNIT = "units"
EVENTS = "events"

UNIT_WORDS: Mapping[str, str] = {
    **dict.fromkeys(("us", "µs", "usec", "usecs", "microsecond", "microseconds"), "us"),
    **dict.fromkeys(("ms", "msec", "msecs", "millisecond", "milliseconds"), "ms"),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), "s"),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), "min"),
    **dict.fromkeys(("h", "hr", "hrs", "hour", "hours"), "h"),
    **dict.fromkeys(("d", "day", "days"), "d"),
    **dict.fromkeys(("w", "week", "weeks"), "w"),
    **dict.fromkeys(("unit", "units"), OWN_UNIT),
    **dict.fromkeys(("event", "events", "row", "rows"), EVENTS),
}
"""Every word for a unit that the languages accept, and the unit it names."""
CALENDAR_WORDS = ("month", "months", "quarter", "quarters", "year", "years")
"""Words for units without a fixed length."""


@dataclass(frozen=True, slots=True)
class Duration:
    """A length of time as written: 12 hours, 200 units, 1000 events. The amount may be a parameter's name."""

    amount: int | float | str
    unit: str = OWN_UNIT
    span: Span | None = field(default=None, compare=False, repr=False)

    @property
    def counts_events(self) -> bool:
        return self.unit == EVENTS

    def __str__(self) -> str:
        word = {"s": "seconds", "h": "hours", "d": "days", "w": "weeks"}.get(self.unit, self.unit)
        return f"{self.amount} {word.removesuffix('s') if self.amount == 1 and len(word) > 3 else word}"


NANOSECONDS = {"ns": 1, **{unit: 1_000 * length for unit, length in MICROSECONDS.items()}}
COLUMN_UNITS = tuple(NANOSECONDS)
"""The units that an integer time column may have."""
_YEAR_2000, _YEAR_2100 = 946_684_800, 4_102_444_800


def epoch_unit(first: int, last: int) -> str | None:
    """The unit of integer times that count from 1970, recognised if all of them fall into the years 2000 to 2100 in
    exactly one of s, ms, us and ns (ruling 1)."""
    for unit in ("s", "ms", "us", "ns"):
        ticks = NANOSECONDS["s"] // NANOSECONDS[unit]
        if _YEAR_2000 * ticks <= first <= last < _YEAR_2100 * ticks:
            return unit
    return None


def unit_doubt(first: int, last: int) -> str | None:
    """Why the unit of times is not recognised, if the first or the last of them would have one."""
    units = epoch_unit(first, first), epoch_unit(last, last)
    if units[0] == units[1]:
        return None
    if units[0] is not None and units[1] is not None:
        return f"{first} is a time in {units[0]}, and {last} is one in {units[1]}"
    odd, fitting = (first, last) if units[0] is None else (last, first)
    return f"{odd} is no time of the years 2000 to 2100, and {fitting} is one in {units[0] or units[1]}"


_SHOWN_UNITS = ("w", "d", "h", "min", "s", "ms", "us")


@dataclass(frozen=True, slots=True)
class Clock:
    """The unit of the time column. `unit` is None for an integer column whose unit is not known."""

    unit: str | None = None
    is_timestamp: bool = False
    is_recognised: bool = False
    """Whether the unit was recognised from the values, not declared."""
    doubt: str | None = field(default=None, compare=False)
    """Why the unit is not known, with the values that are in the way."""

    def length(self, ticks: int | float) -> str:
        """A number of ticks for people: `6 s`, or `6 ticks` if their unit is not known."""
        if self.unit is None:
            return f"{ticks} ticks"
        whole = Fraction(ticks) * NANOSECONDS[self.unit]
        fitting = [unit for unit in _SHOWN_UNITS if whole and whole % NANOSECONDS[unit] == 0]
        unit = fitting[0] if fitting else "s"
        return f"{float(whole / NANOSECONDS[unit]):.12g} {unit}"

    def bound(self, ticks: int | float) -> str:
        """The condition that a time is at most so many ticks long, as it was probably written."""
        shorter, longer = self.length(ticks), self.length(ticks + 1)
        sizes = [NANOSECONDS.get(text.partition(" ")[2], 0) for text in (shorter, longer)]
        return f"< {longer}" if sizes[1] > sizes[0] else f"<= {shorter}"

    def ticks(self, duration: Duration) -> int | float:
        """The duration in ticks of the column (or in events)."""
        if isinstance(duration.amount, str):
            raise InputProblem(
                f"the window's length `{duration.amount}` has no value",
                span=duration.span,
                hint=f"set the parameter: --param {duration.amount}=...",
            )
        if duration.unit in (OWN_UNIT, EVENTS):
            return _fitting(_amount(duration), duration)
        if self.unit is None:
            raise InputProblem(
                f"`{duration}` over an integer time column whose unit is not known"
                + (f": {self.doubt}" if self.doubt else ""),
                span=duration.span,
                expected="the unit of the time column, or a window in its own units",
                hint="correct such times, or drop their rows; a declared unit (--time-unit, time_unit) holds for all"
                if self.doubt
                else "declare it (--time-unit ms, or time_unit='ms'), or write `WITHIN n units`",
            )
        return _fitting(_amount(duration) * NANOSECONDS[duration.unit] / NANOSECONDS[self.unit], duration)


def _amount(duration: Duration) -> Fraction:
    """The amount as it is written: 0.1 is a tenth."""
    return Fraction(str(duration.amount))


def _fitting(ticks: Fraction, duration: Duration) -> int | float:
    """The sum of a time and a window must fit into 64 bits."""
    if ticks >= LONGEST:
        raise InputProblem(
            f"a window of {duration} is too long",
            span=duration.span,
            expected=f"less than 2^61 ({LONGEST}) units of the time column, or events",
            hint="leave WITHIN out if every match counts, however long",
        )
    return int(ticks) if ticks == int(ticks) else float(ticks)


NO_CLOCK = Clock()
TIMESTAMP_CLOCK = Clock("us", is_timestamp=True)


# --- timestamps as text -----------------------------------------------------------------------------------------------

_ISO = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)(?:[Tt ](\d\d):(\d\d)(?::(\d\d)(?:[.,](\d{1,12}))?)?)?"
    r"\s?([Zz]|[Uu][Tt][Cc]|[Gg][Mm][Tt]|[+-]\d\d(?::?\d\d)?)?",
    re.ASCII,
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def timestamp(text: str) -> int | None:
    """An ISO 8601 date or date-time in microseconds since 1970. Without an offset, or with the word UTC or GMT, it is
    in UTC. Finer fractions are truncated. None if the text is no timestamp."""
    moment = moment_of(text)
    if moment is None:
        return None
    return ((moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)) - _EPOCH) // _MICROSECOND


def moment_of(text: str) -> datetime | None:
    """An ISO 8601 date or date-time, with a zone only if the text has an offset. None if the text is no timestamp."""
    match = _ISO.fullmatch(text.strip())
    if match is None:
        return None
    year, month, day, hour, minute, second, fraction, offset = match.groups()
    try:
        return datetime(
            int(year),
            int(month),
            int(day),
            int(hour or 0),
            int(minute or 0),
            int(second or 0),
            int((fraction or "0")[:6].ljust(6, "0")),
            _zone(offset),
        )
    except ValueError:
        return None


def _zone(offset: str | None) -> timezone | None:
    if offset is None:
        return None
    if offset.upper() in ("Z", "UTC", "GMT"):
        return UTC
    digits = offset[1:].replace(":", "").ljust(4, "0")
    away = timedelta(hours=int(digits[:2]), minutes=int(digits[2:]))
    return timezone(-away if offset[0] == "-" else away)


def timestamp_text(ticks: int | float) -> str:
    """`YYYY-MM-DDTHH:MM:SS[.ffffff]Z`, or the number itself if the year is out of range."""
    try:
        moment = _EPOCH + timedelta(microseconds=ticks)
    except OverflowError:
        return str(ticks)
    return moment.replace(tzinfo=None).isoformat() + "Z"
