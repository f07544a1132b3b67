"""The golden cases: their text format, and the comparison of what an evaluator finds with what a case expects.

A case is one text file, `golden/<language>/<case>.txt`, of headers and sections:

    title: a sequence takes all combinations
    source: SASE §2.2.2
    unit: ms                          (optional: what the time column counts in)
    params: T=6 name='x'              (optional: the query's parameters)
    compare: events                   (optional: what the match binds, not the columns it returns)

    query:
    EVENT SEQ(A x, B y)

    events:                           type, time, attributes; any order, ties in the order written
    A 1 id=3 price=10
    B 4 id=null

    matches:                          any order; one line per match
    x=A@1 y=B@4

An event is written `Type@time`; the second of the same type and time, as they arrive, `Type@time#2`; a composite event
`Type@start..end`. A closure is a list `a=[Stock@1,Stock@3]`, a branch that was not taken `B=-`. A line may begin with
the match's interval, `1..4 x=A@1 y=B@4`. Where the query has RETURN or SELECT columns, a line lists those instead.
Instead of matches a case may expect an `error:`; every line of that section is a part of the message.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

from cepheid.binding import bind
from cepheid.events import NO_CLOCK, Clock, Event, complete, in_order, infer_schema, primitive
from cepheid.lang import parse
from cepheid.pattern import Query
from cepheid.semantics import Match

GOLDEN = Path(__file__).parent / "golden"

Evaluate = Callable[[Query, Sequence[Event], Clock], Sequence[Match]]
"""A bound query, the stream in its order, and the clock; all matches, in any order, made of the stream's own events."""

_SECTIONS = ("query", "events", "matches", "error")
_HEADERS = ("title", "source", "unit", "params", "compare")
_INTERVAL = re.compile(r"(-?\d+)\.\.(-?\d+)(?:\s+|$)")
_TOKEN = re.compile(r"(?:'[^']*'|\[[^\]]*\]|[^\s'\[\]])+")


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    language: str
    query: str
    headers: Mapping[str, str]
    rows: tuple[tuple[str, int, Mapping[str, Any]], ...] = ()
    matches: tuple[str, ...] | None = None
    error: tuple[str, ...] = field(default=())

    @property
    def params(self) -> dict[str, Any]:
        return dict(_pairs(self.headers.get("params", "")))

    @property
    def clock(self) -> Clock:
        return Clock(self.headers["unit"]) if "unit" in self.headers else NO_CLOCK

    def events(self) -> list[Event]:
        """The stream in its order, every event with all attributes of its type."""
        arrived = [
            primitive(kind, time, position, {"type": kind, "ts": time, **attributes})
            for position, (kind, time, attributes) in enumerate(self.rows)
        ]
        ordered = in_order(arrived)
        return complete(ordered, infer_schema(ordered))

    def bound(self) -> tuple[Query, list[Event]]:
        events = self.events()
        return bind(parse(self.query), infer_schema(events), self.params), events


def read(path: Path) -> Case:
    return read_text(path.read_text(encoding="utf-8"), path.stem, path.parent.name)


def read_text(text: str, name: str, language: str) -> Case:
    """A case; raises ValueError where the text is not one, so that a slip in a file cannot make a case empty."""
    headers: dict[str, str] = {}
    sections: dict[str, list[str]] = {}
    current: list[str] | None = None
    for line in text.splitlines():
        word, colon, rest = line.partition(":")
        if colon and not rest and word in _SECTIONS:
            current = sections.setdefault(word, [])
        elif current is None and colon and word in _HEADERS:
            headers[word] = rest.strip()
        elif current is not None:
            current.append(line)
        elif line.strip():
            raise ValueError(f"{language}/{name}: `{line}` stands before any section and is no header")
    if not {"title", "source"} <= headers.keys():
        raise ValueError(f"{language}/{name}: a case has a title and a source")
    if "query" not in sections or ("matches" in sections) == ("error" in sections):
        raise ValueError(f"{language}/{name}: a case has a query, and either matches or an error")
    error = tuple(line for line in map(str.strip, sections.get("error", [])) if line)
    if "error" in sections and not error:
        raise ValueError(f"{language}/{name}: which error?")
    matches = tuple(_normal(line) for line in sections["matches"] if line.strip()) if "matches" in sections else None
    if matches is not None and "events" not in sections:
        raise ValueError(f"{language}/{name}: matches of which events?")
    return Case(
        name,
        language,
        "\n".join(sections["query"]).strip("\n"),
        headers,
        tuple(_row(line) for line in sections.get("events", []) if line.strip()),
        matches,
        error,
    )


def all_cases() -> list[Case]:
    return [read(path) for path in sorted(GOLDEN.glob("*/*.txt"))]


def _row(line: str) -> tuple[str, int, dict[str, Any]]:
    kind, time, *rest = line.strip().split(maxsplit=2)
    return kind, int(time), dict(_pairs(rest[0] if rest else ""))


def _pairs(text: str) -> Iterable[tuple[str, Any]]:
    for token in _TOKEN.findall(text):
        name, equals, value = token.partition("=")
        if not equals:
            raise ValueError(f"`{token}` is not name=value")
        yield name, _value(value)


def _value(text: str) -> Any:
    words = {"null": None, "true": True, "false": False}
    return words[text] if text in words else ast.literal_eval(text)


# --- comparison -------------------------------------------------------------------------------------------------------


def check(case: Case, evaluate: Evaluate) -> list[str]:
    """What is wrong with what an evaluator finds on a case that expects matches; nothing, if all is well."""
    query, events = case.bound()
    found = evaluate(query, events, case.clock)
    expected = case.matches or ()
    with_interval = bool(expected) and all(_INTERVAL.match(line) for line in expected)
    by_events = case.headers.get("compare") == "events"
    return differences(expected, lines(query, found, events, with_interval, by_events))


def differences(expected: Iterable[str], found: Iterable[str]) -> list[str]:
    """The two as multisets: a match found twice is one too many."""
    wanted, got = Counter(expected), Counter(found)
    missing = [f"missing: {line}" for line in sorted((wanted - got).elements())]
    return missing + [f"not expected: {line}" for line in sorted((got - wanted).elements())]


def lines(
    query: Query, found: Iterable[Match], events: Sequence[Event], with_interval: bool = False, by_events: bool = False
) -> list[str]:
    """The matches as a case writes them."""
    names = _names(events)

    def shown(value: Any) -> str:
        match value:
            case None:
                return "-" if query.output is None else "null"
            case bool():
                return str(value).lower()
            case Event():
                name = f"{value.type}@{value.start}"
                return names.get(id(value.row), name if value.start == value.end else f"{name}..{value.end}")
            case tuple() | list():
                return f"[{','.join(map(shown, value))}]"
            case float() if value.is_integer():
                return str(int(value))
            case Decimal():
                return str(value)
            case _:
                return repr(value)

    def line(match: Match) -> str:
        values = match.bindings if match.columns is None or by_events else match.columns
        parts = [f"{name}={shown(value)}" for name, value in values.items()]
        return _normal(" ".join([f"{match.start}..{match.end}", *parts] if with_interval else parts))

    return [line(match) for match in found]


def _names(events: Iterable[Event]) -> dict[int, str]:
    """What each event of the input is called, by the identity of its row, which copies of the event share."""
    counts: Counter[str] = Counter()
    names = {}
    for event in events:
        name = f"{event.type}@{event.start}"
        counts[name] += 1
        names[id(event.row)] = name if counts[name] == 1 else f"{name}#{counts[name]}"
    return names


def _normal(line: str) -> str:
    """The line with its parts in the order of their names."""
    interval = _INTERVAL.match(line.strip())
    rest = line.strip()[interval.end() :] if interval else line.strip()
    parts = sorted(_TOKEN.findall(re.sub(r",\s+", ",", rest)))
    return " ".join([f"{interval.group(1)}..{interval.group(2)}", *parts] if interval else parts)
