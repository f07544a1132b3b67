"""What formats of text (CSV, JSON Lines) have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from cepheid.errors import InputProblem, shown
from cepheid.io.formats import BrokenRow, RawRow
from cepheid.io.inputs import Columns
from cepheid.io.stream_rows import Read, StreamLayout

BLOCK = 1 << 22
"""Bytes that Arrow reads at once: some batches of events, and more than any row should have."""
EXACT = 2**53
"""Every integer below is a float as well; a float of this size may be a rounded larger integer."""
_TIMESTAMP = r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{6})?Z"
"""The form in which timestamps are shown. The row reader retains the text of any other form."""
_OTHER_TIMESTAMP = r"^0000|\.000000Z$"
"""There is no year 0, and no fraction is shown where it is zero."""


@dataclass(frozen=True, slots=True)
class TextTable:
    """The rows of a file as typed columns."""

    rows: pa.Table
    omits_nulls: bool = False
    """Whether a null is an attribute that the row does not have, rather than one that is null."""


@dataclass(frozen=True, slots=True)
class TextFormat:
    """`rows` defines what a file means. `columns` reads large files, and only those whose rows are all events and mean
    the same as typed columns; it gives None for any other. One difference is allowed: in a column that mixes integers
    and floats, every value is a float."""

    title: str
    is_tabular: bool
    rows: Callable[[Path, Columns, str | None], Iterable[RawRow | BrokenRow]]
    columns: Callable[[Path, Columns, str | None], TextTable | None]
    stream: Callable[[Sequence[str], StreamLayout, int, int], Read]


def content_of(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as problem:
        raise InputProblem(f"cannot read `{shown(str(file), 200)}`: {problem.strerror}") from problem


def timestamps(texts: pa.ChunkedArray) -> pa.ChunkedArray | None:
    """The texts as timestamps; None where one of them is not a timestamp, or has another form."""
    if not all_true(fits(texts, _TIMESTAMP)) or pc.any(pc.match_substring_regex(texts, _OTHER_TIMESTAMP)).as_py():
        return None
    try:
        return texts.cast(pa.timestamp("us", "UTC"))
    except pa.ArrowInvalid:  # the 30th of February
        return None


def fits(texts: pa.ChunkedArray, pattern: str) -> pa.ChunkedArray:
    """Whether each text as a whole matches the pattern."""
    return pc.match_substring_regex(texts, f"^(?:{pattern})$")


def all_true(truths: pa.ChunkedArray) -> bool:
    """Nulls aside."""
    return bool(pc.all(truths, min_count=0).as_py())
