"""The cells of a CSV file, as columns of strings. An empty cell is null.

A file with broken records is sifted: lines that Python's parser and Arrow's might read differently are parsed one by
one, as the row reader does, and Arrow parses the others. So broken lines do not make a large file slow to read.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pcsv

from cepheid.io.formats import BrokenRow
from cepheid.io.formats.csv_text import header_names, named_columns, row_cells
from cepheid.io.formats.text import BLOCK, Lines
from cepheid.runtime.kernel import Array

_TRUE, _FALSE = ("true", "True", "TRUE"), ("false", "False", "FALSE")
_BEFORE_QUOTE, _AFTER_QUOTE = b'\n"', b'\r\n"'
"""Besides the delimiter."""


@dataclass(frozen=True, slots=True)
class Cells:
    """`starts` is the line of each row, counted from 0; None if the lines are not known. `lengths` has the number of
    lines of the rows that have several."""

    table: pa.Table
    broken: tuple[BrokenRow, ...] = ()
    lines: Lines | None = None
    starts: Array | None = None
    lengths: Mapping[int, int] = field(default_factory=dict)
    delimiter: str = ","

    def text(self, row: int) -> tuple[int, str]:
        """The line of a row, counted from 1, and its text."""
        assert self.lines is not None and self.starts is not None
        start = int(self.starts[row])
        return start + 1, self.lines.text(start, self.lengths.get(start, 1))


def read_cells(content: bytes, delimiter: str) -> Cells | None:
    """The cells of a file in which every line is a record with all cells. None for any other file."""
    if not _is_plain(content, delimiter):
        return None
    text = io.TextIOWrapper(io.BytesIO(content), "utf-8-sig", newline="")
    try:
        header = next(csv.reader(text, strict=True, delimiter=delimiter), [])
        return _cells(content, header, delimiter, pcsv.ReadOptions(block_size=BLOCK))
    except (UnicodeDecodeError, csv.Error, pa.ArrowException):
        return None


def located_cells(content: bytes, cells: Cells) -> Cells | None:
    """The cells with the lines of their rows."""
    if cells.lines is not None:
        return cells
    lines = Lines.of(content)
    filled = np.flatnonzero(lines.lengths)[1:]
    if len(filled) == cells.table.num_rows:  # no row has several lines
        return replace(cells, lines=lines, starts=filled)
    found = sifted_cells(content, cells.delimiter)
    return found if found is not None and found.table.num_rows == cells.table.num_rows else None


def sifted_cells(content: bytes, delimiter: str) -> Cells | None:
    """The cells of the records that are not broken, with their lines. None if the row reader must read the file."""
    lines = Lines.of(content)
    suspects = _suspects(lines, delimiter)
    if len(lines) < 2 or (len(suspects) and suspects[0] == 0):
        return None
    header = next(csv.reader([lines.text(0)], strict=True, delimiter=delimiter), [])
    if len(header_names(header)) < len(header):
        return None
    keeps = lines.lengths > 0
    continues = np.zeros(len(lines), bool)
    broken: list[BrokenRow] = []
    lengths: dict[int, int] = {}
    after = 1
    for start in suspects.tolist():
        if start < after:
            continue  # inside a record that begins before it
        length, reason = _record(lines, start, len(header), delimiter)
        after = start + length
        keeps[start:after] = reason is None
        if reason is None:
            lengths[start] = length
            continues[start + 1 : after] = True
        else:
            broken.append(BrokenRow(start + 1, reason, lines.text(start, length)))
    wrong: list[pcsv.InvalidRow] = []

    def skip(row: pcsv.InvalidRow) -> str:
        wrong.append(row)
        return "skip"

    kept = lines.joined(keeps)
    if not _is_plain(kept, delimiter):
        return None
    try:  # rows have numbers only in one thread
        cells = _cells(kept, header, delimiter, pcsv.ReadOptions(block_size=BLOCK, use_threads=False), skip)
    except pa.ArrowException:
        return None
    records = np.flatnonzero(keeps & ~continues)
    if any(row.actual_columns > row.expected_columns and row.text.rstrip("\r\n ").endswith(delimiter) for row in wrong):
        return None  # the cells beyond the header may be empty
    for row in wrong:
        start = int(records[row.number - 1])
        reason = f"{row.actual_columns} cells where the header has {row.expected_columns}"
        broken.append(BrokenRow(start + 1, reason, lines.text(start, lengths.get(start, 1))))
    starts = np.delete(records, [0, *(row.number - 1 for row in wrong)])
    if cells is None or len(starts) != cells.table.num_rows:
        return None
    return Cells(cells.table, tuple(broken), lines, starts, lengths, delimiter)


def _cells(
    content: bytes,
    header: Sequence[str],
    delimiter: str,
    options: pcsv.ReadOptions,
    on_invalid: Callable[[pcsv.InvalidRow], str] | None = None,
) -> Cells | None:
    if len(set(header)) < len(header) or len(set(header_names(header))) < len(header_names(header)):
        return None
    schema = pa.schema([(name, pa.string()) for name in header])
    table = parse(content, options, schema, multiline=True, on_invalid=on_invalid, delimiter=delimiter)
    named = named_columns(table, header) if table.column_names == header else None
    if named is None:
        return None
    longest = max(pc.max(pc.binary_length(column)).as_py() or 0 for column in table.columns)
    return Cells(named, delimiter=delimiter) if longest <= csv.field_size_limit() else None


def parse(
    content: bytes,
    options: pcsv.ReadOptions,
    schema: pa.Schema,
    names: Sequence[str] = (),
    multiline: bool = False,
    on_invalid: Callable[[pcsv.InvalidRow], str] | None = None,
    delimiter: str = ",",
) -> pa.Table:
    """These columns, or all. `multiline` allows line breaks in quoted cells. `on_invalid` decides about a row with too
    few or too many cells."""
    return pcsv.read_csv(
        pa.BufferReader(content),
        options,
        pcsv.ParseOptions(delimiter=delimiter, newlines_in_values=multiline, invalid_row_handler=on_invalid),
        pcsv.ConvertOptions(
            column_types=schema,
            include_columns=list(names),
            null_values=[""],
            true_values=_TRUE,
            false_values=_FALSE,
            strings_can_be_null=True,
        ),
    )


def _is_plain(content: bytes, delimiter: str) -> bool:
    """Whether quotes enclose whole cells and lines end in LF or CRLF. Parsers disagree about anything else."""
    if b"\0" in content or content.count(b"\r") != content.count(b"\r\n"):
        return False
    characters = np.frombuffer(b"\n" + content.removeprefix(b"\xef\xbb\xbf") + b"\n", np.uint8)
    quotes = np.flatnonzero(characters == ord('"'))
    if len(quotes) % 2:
        return False
    # A quote inside a cell is doubled: the first closes the cell and the second opens it again.
    before, after = characters[quotes[::2] - 1], characters[quotes[1::2] + 1]
    between = delimiter.encode()
    return bool(
        np.isin(before, list(_BEFORE_QUOTE + between)).all() and np.isin(after, list(_AFTER_QUOTE + between)).all()
    )


# --- suspect lines ----------------------------------------------------------------------------------------------------


def _suspects(lines: Lines, delimiter: str) -> Array:
    """The lines that are no records for sure: their quotes do not enclose whole cells, or they are not plain text."""
    characters = np.frombuffer(b"\n" + lines.content + b"\n", np.uint8)
    returns = np.flatnonzero(characters == ord("\r"))
    odd = [np.flatnonzero(characters == 0) - 1, returns[characters[returns + 1] != ord("\n")] - 1]
    quotes = np.flatnonzero(characters == ord('"'))
    of_lines = lines.at(quotes - 1)
    counts = np.bincount(of_lines, minlength=len(lines))
    firsts = np.cumsum(counts) - counts
    opens = (np.arange(len(quotes)) - firsts[of_lines]) % 2 == 0
    between = delimiter.encode()
    is_plain = np.where(
        opens,
        np.isin(characters[quotes - 1], list(_BEFORE_QUOTE + between)),
        np.isin(characters[quotes + 1], list(_AFTER_QUOTE + between)),
    )
    suspects = np.concatenate(
        [*(lines.at(at) for at in odd), of_lines[~is_plain], np.flatnonzero(counts % 2), lines.not_unicode()]
    )
    return np.unique(suspects).astype(np.int64)


def _record(lines: Lines, start: int, cells: int, delimiter: str) -> tuple[int, str | None]:
    """The number of lines of the record that begins in a line, and why it is broken, if it is."""
    rest = (lines.decoded(at) for at in range(start, len(lines)))
    reader = csv.reader(rest, strict=True, delimiter=delimiter)
    try:
        found, length, problem = next(reader), reader.line_num, None
    except csv.Error as error:
        found, length, problem = [], 1, f"broken CSV: {error}"
    if not lines.is_unicode(start, length):
        return length, "not UTF-8 text"
    if problem is None and len(row_cells(found, cells)) != cells:
        problem = f"{len(found)} cells where the header has {cells}"
    return length, problem
