"""Text formats (CSV, JSON Lines): files without a schema, which are parsed."""

from __future__ import annotations

import codecs
import gc
import gzip
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cepheid.errors import InputProblem, shown
from cepheid.io.formats import COMPRESSED, FORMATS, BrokenRow, RawRow
from cepheid.io.inputs import Columns
from cepheid.io.stream_rows import StreamReader
from cepheid.io.times import usual_time
from cepheid.runtime.kernel import Array

BLOCK = 1 << 22
"""Bytes of a block of Arrow's parsers: several batches of events, and longer than any row."""
EXACT = 2**53
"""A float64 holds every smaller integer exactly. From here on, it may be a rounded integer."""
_DATE = "[0-9]{4}-[0-9]{2}-[0-9]{2}"
_CLOCK_TIME = "[0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:[.,][0-9]{1,12})?)?"
_ZONE = r"\s?(?:[Zz]|[Uu][Tt][Cc]|[Gg][Mm][Tt]|[+-][0-9]{2}(?::?[0-9]{2})?)"
_TIMESTAMP = f"{_DATE}(?:[Tt ]{_CLOCK_TIME}(?:{_ZONE})?)?"
"""The forms of ISO 8601 that the row reader accepts (`io.times`), except a date with a zone."""


@dataclass(frozen=True, slots=True)
class TextTable:
    """A parsed file, as typed columns."""

    rows: pa.Table
    omits_nulls: bool = False
    """Whether a null means that the row lacks the attribute, rather than that its value is null."""
    broken: tuple[BrokenRow, ...] = ()
    refused: tuple[RawRow, ...] = ()
    """Rows that do not fit the columns, as the row reader parses them."""
    has_nanoseconds: bool = False
    """Whether times are written in more digits than those of microseconds."""


@dataclass(frozen=True, slots=True)
class Lines:
    """The lines of a file, by the offsets of their first bytes and of those after their ends."""

    content: bytes
    starts: Array
    ends: Array

    @classmethod
    def of(cls, content: bytes) -> Lines:
        plain = content.removeprefix(b"\xef\xbb\xbf")
        ends = np.flatnonzero(np.frombuffer(plain, np.uint8) == ord("\n")) + 1
        if plain and not plain.endswith(b"\n"):
            ends = np.append(ends, len(plain))
        return cls(plain, np.concatenate([[0], ends[:-1]])[: len(ends)], ends)

    def __len__(self) -> int:
        return len(self.ends)

    @property
    def lengths(self) -> Array:
        """The number of bytes of each line, without the line break."""
        characters = np.frombuffer(self.content, np.uint8)
        ends = self.ends - (characters[self.ends - 1] == ord("\n"))
        is_return = (ends > self.starts) & (characters[np.maximum(ends - 1, 0)] == ord("\r"))
        return np.asarray(ends - is_return - self.starts)

    def at(self, offsets: Array) -> Array:
        """The lines of some bytes."""
        return np.searchsorted(self.ends, offsets, side="right")

    def decoded(self, line: int) -> str:
        """A line with its line break. Bytes that are not UTF-8 are lone surrogates."""
        return self.content[self.starts[line] : self.ends[line]].decode(errors="surrogateescape")

    def text(self, line: int, count: int = 1) -> str:
        """Some lines as text, without the last line break."""
        content = self.content[self.starts[line] : self.ends[line + count - 1]]
        return content.decode(errors="backslashreplace").rstrip("\r\n")

    def is_unicode(self, line: int, count: int = 1) -> bool:
        return is_utf8(self.content[self.starts[line] : self.ends[line + count - 1]])

    def not_unicode(self) -> Array:
        """The lines that are not UTF-8 text."""
        if is_utf8(self.content):
            return np.empty(0, np.int64)
        others = np.unique(self.at(np.flatnonzero(np.frombuffer(self.content, np.uint8) > 127)))
        return np.array([line for line in others.tolist() if not self.is_unicode(line)], np.int64)

    def joined(self, keeps: Array) -> bytes:
        """The content of some lines."""
        edges = np.flatnonzero(np.diff(np.concatenate([[False], keeps, [False]]).astype(np.int8)))
        runs = zip(edges[::2].tolist(), (edges[1::2] - 1).tolist(), strict=True)
        return b"".join(self.content[self.starts[first] : self.ends[last]] for first, last in runs)


def is_utf8(content: bytes) -> bool:
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class TextFormat:
    """`rows` defines the content of a file. `columns` is a fast path for large files: it returns the same values as
    typed columns, or None if a row is not an event or a value does not fit its column. One difference is allowed: in a
    column that mixes integers and floats, every value is a float."""

    title: str
    rows: Callable[[Path, Columns, str | None], Iterable[RawRow | BrokenRow]]
    is_tabular: bool = False
    columns: Callable[[Path, Columns, str | None], TextTable | None] = lambda file, columns, type: None
    stream: StreamReader | None = None


@contextmanager
def without_collecting() -> Iterator[None]:
    """Disables garbage collection, which would take a third of the time and free nothing: all rows are retained."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


_GZIP = b"\x1f\x8b"
"""The first bytes of a compressed file, which no text in UTF-8 has."""


_BINARY = {b"PAR1": "parquet", b"ARROW1": "arrow", b"ORC\n": "orc", b"ORC\x08": "orc", b"PK\x03\x04": "a ZIP archive"}
"""The first bytes of files in other formats."""


def content_of(file: Path, encoding: str | None = None) -> bytes:
    """The content in UTF-8. Without an encoding, bytes that are not UTF-8 are left to the reader, and a byte order mark
    shows UTF-16."""
    try:
        content = file.read_bytes()
        is_compressed = file.suffix.lower() == COMPRESSED or content.startswith(_GZIP)
        content = gzip.decompress(content) if is_compressed else content
    except (OSError, EOFError, zlib.error) as problem:
        reason = getattr(problem, "strerror", None) or str(problem)
        raise InputProblem(f"cannot read `{shown(str(file), 200)}`: {reason}") from problem
    other = next((name for start, name in _BINARY.items() if content.startswith(start)), None)
    if other is not None:
        path = shown(str(file), 200)
        raise InputProblem(
            f"`{path}` contains {other}, not text",
            hint=f"name the format: --input {path},format={other}, or cepheid.Input(..., format='{other}')"
            if other in FORMATS.values()
            else "unpack it, or save a sheet as CSV",
        )
    if encoding is None and content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        encoding = "utf-16"
    if encoding is None:
        return content
    try:
        return content.decode(encoding).encode()
    except UnicodeError as problem:
        raise InputProblem(f"`{shown(str(file), 200)}` is not text in {encoding}: {problem}") from problem


def usual_times(strings: pa.ChunkedArray, format: str | None, zone: str | None) -> pa.ChunkedArray:
    """Times in another format, or of a zone, in ISO 8601, each distinct one converted once. Others are unchanged."""

    def converted(text: str | None) -> str | None:
        found = None if text is None else usual_time(text, format, zone)
        return text if found is None else found

    chunks = [chunk.dictionary_encode() for chunk in strings.chunks]
    texts = [
        pa.array(map(converted, chunk.dictionary.to_pylist()), pa.string()).take(chunk.indices) for chunk in chunks
    ]
    return pa.chunked_array(texts, pa.string())


def timestamps(strings: pa.ChunkedArray) -> pa.ChunkedArray | None:
    """Parses timestamps, as `io.times.timestamp` does: UTC without a zone, fractions truncated to microseconds. None if
    a string is not a timestamp."""
    is_year_0 = pc.match_substring_regex(strings, r"^\s*0000")
    if not all_true(fits(strings, rf"\s*{_TIMESTAMP}\s*")) or pc.any(is_year_0).as_py():
        return None
    try:
        return _zoned(strings).cast(pa.timestamp("us", "UTC"))
    except pa.ArrowInvalid:  # a form that Arrow does not parse
        plain = pc.ascii_upper(pc.utf8_trim_whitespace(strings))
    fractions, blank = (r"(\.[0-9]{6})[0-9]+", r"\1"), (rf"({_CLOCK_TIME})\s", r"\1")
    for pattern, replacement in ((r"\s?(?:UTC|GMT)$", "Z"), (",", "."), fractions, blank):
        plain = pc.replace_substring_regex(plain, pattern, replacement)
    try:
        return _zoned(plain).cast(pa.timestamp("us", "UTC"))
    except pa.ArrowInvalid:  # the 30th of February
        return None


def unfit_timestamps(strings: pa.ChunkedArray) -> Array:
    """The strings that `timestamps` does not parse."""
    is_form = fits(strings, rf"\s*{_TIMESTAMP}\s*").fill_null(False)
    unfit = ~np.asarray(is_form)
    form = np.flatnonzero(~unfit)
    chosen = strings.take(pa.array(form))
    unfit[form[_unparsed(chosen)]] = True
    return unfit


def _unparsed(strings: pa.ChunkedArray) -> list[int]:
    """Bisects strings in the form of timestamps until those that are none are isolated: the 30th of February."""
    found: list[int] = []
    waiting = [(0, len(strings))]
    while waiting:
        first, end = waiting.pop()
        if first == end or timestamps(strings.slice(first, end - first)) is not None:
            continue
        middle = (first + end) // 2
        if end - first == 1:
            found.append(first)
        else:
            waiting += [(first, middle), (middle, end)]
    return found


def _zoned(strings: pa.ChunkedArray) -> pa.ChunkedArray:
    """Adds the zone to strings without one, which Arrow requires."""
    with_zone = pc.match_substring_regex(strings, f":[0-9.]+{_ZONE}$")
    if all_true(with_zone):
        return strings
    zone = pc.if_else(pc.equal(pc.utf8_length(strings), len("2020-01-01")), "T00:00Z", "Z")
    return pc.if_else(with_zone, strings, pc.binary_join_element_wise(strings, zone, ""))


def late_starts(rows: pa.Table, columns: Columns) -> Array | None:
    """The rows whose start is after their end. None if starts and ends are not of one kind."""
    if columns.start is None:
        return np.zeros(rows.num_rows, bool)
    if rows.column(columns.start).type != rows.column(columns.time).type:
        return None
    return np.asarray(pc.greater(rows.column(columns.start), rows.column(columns.time)))


def fits(strings: pa.ChunkedArray, pattern: str) -> pa.ChunkedArray:
    """Whether the pattern matches each whole string."""
    return pc.match_substring_regex(strings, f"^(?:{pattern})$")


def all_true(values: pa.ChunkedArray) -> bool:
    """Whether no value is false. Nulls do not count."""
    return bool(pc.all(values, min_count=0).as_py())
