"""Text formats (CSV, JSON Lines): files without a schema, which are parsed."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from cepheid.errors import InputProblem, shown
from cepheid.io.formats import COMPRESSED, BrokenRow, RawRow
from cepheid.io.inputs import Columns
from cepheid.io.stream_rows import StreamReader

BLOCK = 1 << 22
"""Bytes of a block of Arrow's parsers: several batches of events, and longer than any row."""
EXACT = 2**53
"""A float64 holds every smaller integer exactly. From here on, it may be a rounded integer."""
_DATE = "[0-9]{4}-[0-9]{2}-[0-9]{2}"
_CLOCK_TIME = "[0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:[.,][0-9]{1,12})?)?"
_ZONE = r"\s?(?:[Zz]|[+-][0-9]{2}(?::?[0-9]{2})?)"
_TIMESTAMP = f"{_DATE}(?:[Tt ]{_CLOCK_TIME}(?:{_ZONE})?)?"
"""The forms of ISO 8601 that the row reader accepts (`io.times`), except a date with a zone."""


@dataclass(frozen=True, slots=True)
class TextTable:
    """A parsed file, as typed columns."""

    rows: pa.Table
    omits_nulls: bool = False
    """Whether a null means that the row lacks the attribute, rather than that its value is null."""


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


def content_of(file: Path) -> bytes:
    try:
        content = file.read_bytes()
        return gzip.decompress(content) if file.suffix.lower() == COMPRESSED else content
    except (OSError, EOFError, zlib.error) as problem:
        reason = getattr(problem, "strerror", None) or str(problem)
        raise InputProblem(f"cannot read `{shown(str(file), 200)}`: {reason}") from problem


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
    for pattern, replacement in ((",", "."), (r"(\.[0-9]{6})[0-9]+", r"\1"), (rf"({_CLOCK_TIME})\s", r"\1")):
        plain = pc.replace_substring_regex(plain, pattern, replacement)
    try:
        return _zoned(plain).cast(pa.timestamp("us", "UTC"))
    except pa.ArrowInvalid:  # the 30th of February
        return None


def _zoned(strings: pa.ChunkedArray) -> pa.ChunkedArray:
    """Adds the zone to strings without one, which Arrow requires."""
    with_zone = pc.match_substring_regex(strings, f":[0-9.]+{_ZONE}$")
    if all_true(with_zone):
        return strings
    zone = pc.if_else(pc.equal(pc.utf8_length(strings), len("2020-01-01")), "T00:00Z", "Z")
    return pc.if_else(with_zone, strings, pc.binary_join_element_wise(strings, zone, ""))


def fits(strings: pa.ChunkedArray, pattern: str) -> pa.ChunkedArray:
    """Whether the pattern matches each whole string."""
    return pc.match_substring_regex(strings, f"^(?:{pattern})$")


def all_true(values: pa.ChunkedArray) -> bool:
    """Whether no value is false. Nulls do not count."""
    return bool(pc.all(values, min_count=0).as_py())
