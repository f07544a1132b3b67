"""A CSV file as typed columns, for files that are too large to be read row by row.

What a cell means is defined by the row reader (`tables.csv_rows`, `tables.recognise_cells`, `files.event_time`). A file
that could be read in another way here, or of which any row would be rejected, is left to it. One difference remains:
whole and broken numbers in one column are all floats.
"""

from __future__ import annotations

import csv
import io
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow.csv import ConvertOptions, ParseOptions, ReadOptions, read_csv

from cepheid.io.inputs import Columns
from cepheid.io.tables import LEADING_ZERO, LONGEST_NUMBER, MOST, NUMBER
from cepheid.io.text_columns import BLOCK, EXACT, all_true, fits, timestamps
from cepheid.runtime.kernel import Array

_BOOLEAN = "[Tt][Rr][Uu][Ee]|[Ff][Aa][Ll][Ss][Ee]"


def csv_columns(file: Path, columns: Columns, given_type: str | None) -> pa.Table | None:
    """The rows of a file, all of them events; None where it takes the row reader to tell what they are."""
    cells = _cells(file)
    type_column = columns.type if given_type is None else None
    if cells is None or not cells.num_rows or columns.time not in cells.column_names or columns.time == type_column:
        return None
    types = _types(cells, type_column)
    if types is None:
        return None
    typed: dict[str, pa.ChunkedArray] = {}
    for name in cells.column_names:
        column = cells.column(name)
        if name == columns.time:
            read = _times(column)
        elif column.null_count == len(column):
            read = pa.chunked_array([pa.nulls(len(column))])
        else:
            read = column if name == type_column else _recognised(column, types)
        if read is None:
            return None
        typed[name] = read
    return pa.table(typed)


# --- cells ------------------------------------------------------------------------------------------------------------


def _cells(file: Path) -> pa.Table | None:
    """All cells as text, empty ones null."""
    try:
        content = file.read_bytes()
        if not _is_plain(content):
            return None
        header = next(csv.reader(io.TextIOWrapper(io.BytesIO(content), "utf-8-sig", newline=""), strict=True), [])
        cells = read_csv(
            pa.BufferReader(content),
            ReadOptions(block_size=BLOCK),
            ParseOptions(newlines_in_values=True),
            ConvertOptions(
                column_types=dict.fromkeys(header, pa.string()),
                null_values=[""],
                strings_can_be_null=True,
                quoted_strings_can_be_null=True,
            ),
        )
    except (OSError, UnicodeDecodeError, csv.Error, pa.ArrowException):
        return None
    if cells.column_names != header or len(set(header)) < len(header):
        return None
    longest = max(pc.max(pc.binary_length(column)).as_py() or 0 for column in cells.columns)
    return cells if longest <= csv.field_size_limit() else None


def _is_plain(content: bytes) -> bool:
    """Whether quotes enclose whole cells and lines end in one of two ways; elsewhere each reader has its own rules."""
    if b"\0" in content or content.count(b"\r") != content.count(b"\r\n"):
        return False
    signs = np.frombuffer(b"\n" + content.removeprefix(b"\xef\xbb\xbf") + b"\n", np.uint8)
    quotes = np.flatnonzero(signs == ord('"'))
    if len(quotes) % 2:
        return False
    # A quote inside a cell is written twice: one that closes the cell, and one that opens it again.
    before, after = signs[quotes[::2] - 1], signs[quotes[1::2] + 1]
    return bool(np.isin(before, list(b',\n"')).all() and np.isin(after, list(b',\r\n"')).all())


# --- what the cells of a column are -----------------------------------------------------------------------------------


def _types(cells: pa.Table, type_column: str | None) -> Array | None:
    """The event type of each row, as a number; None where some rows have one and others have none."""
    column = cells.column(type_column) if type_column in cells.column_names else None
    if column is None or column.null_count == len(column):
        return np.zeros(cells.num_rows, np.int32)
    return None if column.null_count else pc.index_in(column, pc.unique(column)).to_numpy()


def _times(cells: pa.ChunkedArray) -> pa.ChunkedArray | None:
    if cells.null_count:
        return None
    whole = _whole_numbers(pc.utf8_trim_whitespace(cells))
    return timestamps(cells) if whole is None else whole


def _recognised(cells: pa.ChunkedArray, types: Array) -> pa.ChunkedArray | None:
    """A column that means the same in events of every type; None where it does not."""
    text = pc.utf8_trim_whitespace(cells)
    whole = _whole_numbers(text)
    if whole is not None:
        return whole
    numbers, booleans = fits(text, NUMBER.pattern), fits(text, _BOOLEAN)
    written = pc.if_else(numbers, text, pa.scalar(None, pa.string()))
    values = written.cast(pa.float64())
    if not all_true(pc.is_finite(values)) or not all_true(pc.less_equal(pc.binary_length(written), LONGEST_NUMBER)):
        return None  # `1e999` looks like a number and is none
    if all_true(numbers):
        # As a float, `-0` would not be equal to `0` where bits are compared.
        is_exact = all_true(pc.less(pc.abs(values), EXACT)) and not pc.any(pc.equal(text, "-0")).as_py()
        return values if is_exact else None
    if all_true(booleans):
        return pc.equal(pc.utf8_lower(text), "true")
    return cells if _is_text(cells, types, numbers, booleans) else None


def _whole_numbers(text: pa.ChunkedArray) -> pa.ChunkedArray | None:
    try:
        whole = text.cast(pa.int64())
    except pa.ArrowInvalid:
        return None
    # Arrow also reads `007` and `0x10`. The lowest number of 64 bits is no time, and no kernel counts with it.
    is_as_written = all_true(pc.equal(whole.cast(pa.string()), text)) and pc.min(whole).as_py() > -(2**63)
    return whole if is_as_written else None


def _is_text(cells: pa.ChunkedArray, types: Array, numbers: pa.ChunkedArray, booleans: pa.ChunkedArray) -> bool:
    """Whether the column is neither of numbers nor of booleans in the events of any type."""

    def of_types(rows: pa.ChunkedArray) -> Array:
        return np.bincount(types[rows.fill_null(False).to_numpy()], minlength=types.max() + 1)

    filled, names = of_types(cells.is_valid()), of_types(fits(cells, LEADING_ZERO.pattern))
    most = (of_types(numbers) >= MOST * filled) | (of_types(booleans) >= MOST * filled)
    return not np.any(most & (names == 0) & (filled > 0))
