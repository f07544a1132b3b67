"""What columns of a text mean, whatever the format of the text: as much as CSV and JSON Lines have in common."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

BLOCK = 1 << 22
"""Bytes that Arrow reads at once: some batches of events, and more than any row should have."""
EXACT = 2**53
"""The whole numbers below are floats as well; a float of this size may be a larger number, rounded."""
_TIMESTAMP = r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{6})?Z"
"""The form in which timestamps are shown: any other would have to be kept as it was written."""
_OTHER_TIMESTAMP = r"^0000|\.000000Z$"
"""There is no year 0, and no fraction is shown where it is zero."""


def timestamps(texts: pa.ChunkedArray) -> pa.ChunkedArray | None:
    """The times that the texts are; None where one of them is no time, or is shown in another way."""
    if not all_true(fits(texts, _TIMESTAMP)) or pc.any(pc.match_substring_regex(texts, _OTHER_TIMESTAMP)).as_py():
        return None
    try:
        return texts.cast(pa.timestamp("us", "UTC"))
    except pa.ArrowInvalid:  # the 30th of February
        return None


def fits(texts: pa.ChunkedArray, pattern: str) -> pa.ChunkedArray:
    """Whether each text as a whole is of the pattern."""
    return pc.match_substring_regex(texts, f"^(?:{pattern})$")


def all_true(truths: pa.ChunkedArray) -> bool:
    """Nulls aside."""
    return bool(pc.all(truths, min_count=0).as_py())
