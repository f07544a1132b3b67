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
_TIMESTAMP = r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{6})?Z"
"""The form in which sinks write timestamps. The row reader retains the text of other forms."""
_OTHER_TIMESTAMP = r"^0000|\.000000Z$"
"""Year 0 does not exist, and sinks do not write a fraction of zero."""


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
    """Parses timestamps. None if a string is not a timestamp, or is not in the form that sinks write."""
    if not all_true(fits(strings, _TIMESTAMP)) or pc.any(pc.match_substring_regex(strings, _OTHER_TIMESTAMP)).as_py():
        return None
    try:
        return strings.cast(pa.timestamp("us", "UTC"))
    except pa.ArrowInvalid:  # the 30th of February
        return None


def fits(strings: pa.ChunkedArray, pattern: str) -> pa.ChunkedArray:
    """Whether the pattern matches each whole string."""
    return pc.match_substring_regex(strings, f"^(?:{pattern})$")


def all_true(values: pa.ChunkedArray) -> bool:
    """Whether no value is false. Nulls do not count."""
    return bool(pc.all(values, min_count=0).as_py())
