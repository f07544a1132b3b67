"""Feeds a growing log: from files that are read once, from a file or a directory that grows, from standard input, or
from a socket."""

from __future__ import annotations

import json
import socket
import sys
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TextIO

import pyarrow as pa

from cepheid.errors import InputProblem, shown
from cepheid.events import timestamp
from cepheid.io.decoding import widened
from cepheid.io.formats import no_file
from cepheid.io.growing_log import GrowingLog
from cepheid.io.inputs import Columns
from cepheid.io.rows import aligned

_LINES = 10_000
"""Lines that are added at once."""
_WAIT = 0.05
"""Seconds between looks at a file that grows."""

Rejected = Callable[[str, str], None]
"""Takes a line that is no event, and the reason."""


class Appended(Protocol):
    """What events are added to."""

    schema: pa.Schema | None

    @property
    def columns(self) -> Columns: ...

    def append(self, table: pa.Table, attributes: Mapping[str, Collection[str]]) -> None: ...


@dataclass(slots=True)
class Gathered:
    """Events that are gathered in one table."""

    name: str
    columns: Columns
    schema: pa.Schema | None = None
    parts: list[pa.Table] = field(default_factory=list)
    attributes: dict[str, set[str]] = field(default_factory=dict)

    def append(self, table: pa.Table, attributes: Mapping[str, Collection[str]]) -> None:
        for kind, names in attributes.items():
            self.attributes.setdefault(kind, set()).update(names)
        self.schema = table.schema if self.schema is None else widened(self.schema, table.schema, self.name)
        self.parts.append(table)

    def table(self) -> pa.Table | None:
        if not self.parts or self.schema is None:
            return None
        batches = [aligned(batch, self.schema) for part in self.parts for batch in part.to_batches()]
        return pa.Table.from_batches(batches, self.schema)


@dataclass(frozen=True, slots=True)
class Lines:
    """Adds lines of JSON to a log. `type` is the type of events that have none."""

    log: Appended
    type: str | None
    rejected: Rejected

    def add(self, lines: Iterable[str]) -> None:
        rows = [row for line in lines if line.strip() and (row := self._row(line)) is not None]
        if rows:
            self._append(rows)

    def _row(self, line: str) -> dict[str, Any] | None:
        try:
            row = json.loads(line)
        except ValueError as problem:
            self.rejected(line, f"not JSON: {problem}")
            return None
        if not isinstance(row, dict):
            self.rejected(line, "not a JSON object")
            return None
        columns = self.log.columns
        if columns.type not in row and self.type is not None:
            row[columns.type] = self.type
        for name in columns.times:
            value = row.get(name)
            moment = timestamp(value) if isinstance(value, str) else value
            if not isinstance(moment, int) or isinstance(moment, bool) or not isinstance(row.get(columns.type), str):
                self.rejected(line, f"no time in `{name}`, or no type in `{columns.type}`")
                return None
            row[name] = moment
        row["\0moment"] = isinstance(json.loads(line).get(columns.time), str)
        return row

    def _append(self, rows: list[dict[str, Any]]) -> None:
        is_moment = any(row.pop("\0moment") for row in rows)
        try:
            self.log.append(self._table(rows, is_moment), self._attributes(rows))
        except (pa.ArrowInvalid, pa.ArrowTypeError, InputProblem) as problem:
            if len(rows) == 1:
                self.rejected(json.dumps(rows[0], default=str), str(problem).splitlines()[0])
                return
            for row in rows:
                self._append([{**row, "\0moment": is_moment}])

    def _table(self, rows: list[dict[str, Any]], is_moment: bool) -> pa.Table:
        """All columns that any row has, in the types that are known if the values fit."""
        known = {} if self.log.schema is None else {f.name: f.type for f in self.log.schema}
        if self.log.schema is None and is_moment:
            known = dict.fromkeys(self.log.columns.times, pa.timestamp("us", "UTC"))
        names = dict.fromkeys(name for row in rows for name in row)
        return pa.table({name: _array([row.get(name) for row in rows], known.get(name)) for name in names})

    def _attributes(self, rows: list[dict[str, Any]]) -> dict[str, set[str]]:
        """The attributes of each type, those that are null included."""
        found: dict[str, set[str]] = {}
        for row in rows:
            found.setdefault(row[self.log.columns.type], set()).update(row)
        return found


def _array(values: list[Any], kind: pa.DataType | None) -> pa.Array:
    """The values of a column, in its known type if that holds them exactly."""
    found = pa.array(values)
    if kind is None or found.type == kind:
        return found
    if pa.types.is_nested(kind):
        whole = pa.array(values, kind)
        return whole if whole.to_pylist() == values else found
    is_number = [pa.types.is_integer(one) or pa.types.is_floating(one) for one in (found.type, kind)]
    if not (all(is_number) or pa.types.is_null(found.type) or pa.types.is_timestamp(kind)):
        return found
    try:
        return found.cast(kind)
    except pa.ArrowInvalid:
        return found


def growing_lines(path: Path, stop: threading.Event) -> Iterator[list[str]]:
    """The whole lines of a file, and those that are appended to it."""
    with path.open(encoding="utf-8", errors="replace") as file:
        rest = ""
        while True:
            lines = file.readlines(1 << 20)
            if lines:
                lines[0] = rest + lines[0]
                rest = "" if lines[-1].endswith("\n") else lines.pop()
                if lines:
                    yield lines
            elif stop.wait(_WAIT):
                return


def growing_directory(path: Path, stop: threading.Event) -> Iterator[list[str]]:
    """The lines of the files of a directory, and of those that are added to it. A file is complete when it appears."""
    seen: set[str] = set()
    while True:
        for file in sorted(p for p in path.iterdir() if p.is_file() and not p.name.startswith((".", "_"))):
            if file.name not in seen:
                seen.add(file.name)
                yield file.read_text(encoding="utf-8", errors="replace").splitlines()
        if stop.wait(_WAIT):
            return


def stream_lines(stream: TextIO) -> Iterator[list[str]]:
    """The lines of a stream until it ends. A line is passed on as it comes."""
    for line in stream:
        yield [line]


def socket_lines(address: str) -> Iterator[list[str]]:
    """The lines that a server sends at `host:port`."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise InputProblem(f"`{shown(address)}` is no address", expected="tcp://HOST:PORT")
    try:
        connection = socket.create_connection((host.strip("[]"), int(port)), timeout=10)
    except OSError as problem:
        raise InputProblem(f"tcp://{shown(address)} cannot be reached: {problem}") from None
    with connection:
        connection.settimeout(None)
        with connection.makefile("r", encoding="utf-8", errors="replace") as stream:
            yield from stream_lines(stream)


def lines_of(text: str, stop: threading.Event) -> Iterator[list[str]]:
    """The lines of a feed: `-`, `tcp://HOST:PORT`, or a file or directory that grows."""
    if text == "-":
        return stream_lines(sys.stdin)
    if text.startswith("tcp://"):
        return socket_lines(text.removeprefix("tcp://"))
    path = Path(text)
    if not path.exists():
        raise no_file(text)
    return growing_directory(path, stop) if path.is_dir() else growing_lines(path, stop)


def feed(log: GrowingLog, texts: Sequence[str], type: str | None, stop: threading.Event, rejected: Rejected) -> None:
    """Feeds a log until all feeds end, which those that grow do not."""
    lines = Lines(log, type, rejected)
    threads = [threading.Thread(target=_feed_one, args=(lines, lines_of(text, stop)), daemon=True) for text in texts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if not stop.is_set():
        log.end()


def _feed_one(lines: Lines, parts: Iterator[list[str]]) -> None:
    for part in parts:
        for start in range(0, len(part), _LINES):
            lines.add(part[start : start + _LINES])
