"""Matches as people and other programs see them: JSON objects and CSV rows; and the file of rejects."""

from __future__ import annotations

import csv
import io
import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

from cepheid.errors import InputProblem, PatternProblem, shown
from cepheid.events import Clock, Event
from cepheid.expr import AGGREGATES, Aggregate, Attr, Expr, Gives
from cepheid.io.formats import format_of
from cepheid.io.rejects import Reject
from cepheid.io.row_reader import Loaded
from cepheid.io.times import timestamp_text
from cepheid.pattern import Query, positives
from cepheid.semantics import Match

START, END = "match_start", "match_end"
INTERVAL = ("start_time", "end_time")
"""What CED's base schema (§2.1) calls the times of an event that a query made."""


# --- one match as one object ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Presenter:
    """Says how times are shown: in the form that the time column itself has."""

    time_column: str
    clock: Clock
    times: frozenset[str] = frozenset()
    """The output columns that hold a time."""

    def object(self, match: Match) -> dict[str, Any]:
        """The match as a JSON object: its variables, or the columns that the query returns; and its interval."""
        shown_times = self._times_as_given(match)
        shown: dict[str, Any] = {}
        for name, value in (match.bindings if match.columns is None else match.columns).items():
            shown[name] = self.time(value, shown_times) if name in self.times else self.value(value, shown_times)
        return {**shown, START: self.time(match.start, shown_times), END: self.time(match.end, shown_times)}

    def value(self, value: Any, shown_times: Mapping[int, Any]) -> Any:
        match value:
            case Event() if _is_as_given(value):
                return dict(value.row)
            case Event():
                times = (self.time_column, *INTERVAL)
                return {
                    name: self.time(item, shown_times) if name in times else self.value(item, shown_times)
                    for name, item in value.attributes.items()
                }
            case float():
                return value if math.isfinite(value) else None
            case Mapping():
                return {name: self.value(item, shown_times) for name, item in value.items()}
            case list() | tuple():
                return [self.value(item, shown_times) for item in value]
            case _:
                return value

    def time(self, ticks: Any, shown_times: Mapping[int, Any]) -> Any:
        if not self.clock.is_timestamp or not isinstance(ticks, int | float) or isinstance(ticks, bool):
            return self.value(ticks, shown_times)
        return shown_times.get(ticks) or timestamp_text(ticks)  # type: ignore[arg-type]

    def _times_as_given(self, match: Match) -> dict[int, Any]:
        """The texts that the input gave for the times of the match's events."""
        if not self.clock.is_timestamp:
            return {}
        given: dict[int, Any] = {}
        for binding in match.bindings.values():
            for event in () if binding is None else binding if isinstance(binding, tuple) else (binding,):
                for part in event.primitives():
                    if part.row.get(self.time_column) is not None:
                        given.setdefault(part.start, part.row[self.time_column])
        return given


def column_names(query: Query) -> list[str]:
    """The columns of the query's matches: what it returns, or its variables; then the interval."""
    names = positives(query.pattern) if query.output is None else [column.name for column in query.output]
    for name in (START, END):
        if name in names:
            raise PatternProblem(
                f"`{name}` is the name of a column that every match has", hint="choose another name in the query"
            )
    return [*names, START, END]


def _is_as_given(event: Event) -> bool:
    """Whether the event came from the input; one that a query made has no row but its attributes."""
    return bool(event.row) and not event.parts and event.row is not event.attributes


def presenter(query: Query, loaded: Loaded) -> Presenter:
    times = frozenset(column.name for column in query.output or () if _reads_time(column.expr, loaded.time_column))
    return Presenter(loaded.time_column, loaded.clock, times)


def _reads_time(expr: Expr, time_column: str) -> bool:
    if isinstance(expr, Aggregate):
        return expr.name == time_column and AGGREGATES[expr.fn].gives is Gives.VALUE
    return isinstance(expr, Attr) and expr.name == time_column


# --- files ------------------------------------------------------------------------------------------------------------


def dumps(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def require_writable_name(path: str) -> None:
    """Found out before the query runs, not after."""
    format_of(Path(path))


def write_matches(path: str, query: Query, matches: Sequence[Match], loaded: Loaded) -> None:
    """One row per match, in the format that the name says. The file is there whole or not at all."""
    format = format_of(Path(path))
    with replacing(Path(path)) as file:
        if format == "parquet":
            from cepheid.engine import layout  # pyarrow, which takes longer to load than most queries to run

            layout.write_parquet(file, query, matches, loaded)
        elif format == "csv":
            file.write(_csv(query, matches, loaded).encode())
        else:
            write_json_lines(file, query, matches, loaded)


def write_json_lines(file: IO[bytes], query: Query, matches: Iterable[Match], loaded: Loaded) -> None:
    show = presenter(query, loaded)
    for match in matches:
        file.write(dumps(show.object(match)).encode() + b"\n")


def _csv(query: Query, matches: Iterable[Match], loaded: Loaded) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    header = column_names(query)
    writer.writerow(header)
    show = presenter(query, loaded)
    for match in matches:
        row = show.object(match)
        writer.writerow([cell(row.get(name)) for name in header])
    return text.getvalue()


def cell(value: Any) -> Any:
    """A value in a cell of CSV: what is nested is JSON text."""
    if value is None or isinstance(value, str):
        return value
    return dumps(value)


def write_rejects(path: str, rejects: Iterable[Reject]) -> None:
    with replacing(Path(path)) as file:
        for reject in rejects:
            # Half a character (a lone surrogate) cannot be written as UTF-8; as an escape it is JSON.
            file.write(dumps(asdict(reject)).encode(errors="backslashreplace") + b"\n")


def make_directory(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise InputProblem(f"cannot write into `{shown(str(path), 200)}`: {problem.strerror}") from problem


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """A file to write that takes the path's place when all is written; on an error the old one stays."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with temporary.open("wb") as file:
                yield file
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as problem:
        raise InputProblem(f"cannot write `{shown(str(path), 200)}`: {problem.strerror or problem}") from problem
