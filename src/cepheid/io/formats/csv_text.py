"""CSV files as people have them: their delimiter, the names in their headers, and numbers and times in other forms.

Cells are brought into the usual form (`1234.5`, ISO 8601) before any reader parses them, so that all readers agree.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from cepheid.io.formats import TABS, suffix_of
from cepheid.io.formats.text import content_of, usual_times
from cepheid.io.inputs import Columns, TextOptions
from cepheid.io.times import usual_time

DELIMITERS = (",", ";", "\t", "|")
_MARK = "utf-8-sig"
_DECLARED = re.compile(rb'"?sep=([^\w\s"]|\t)"?[;,\t ]*\r?\n', re.IGNORECASE)
"""Excel's first line, which declares the delimiter."""


@dataclass(frozen=True, slots=True)
class CsvText:
    """The content of a file from its header on."""

    content: bytes
    delimiter: str
    skipped: int = 0
    """The number of lines before the header."""

    @classmethod
    def of(cls, file: Path, columns: Columns) -> CsvText:
        content = content_of(file, columns.text.encoding)
        plain = content.removeprefix(b"\xef\xbb\xbf")
        declared = _DECLARED.match(plain)
        if declared is None:
            return cls(content, _delimiter(file, content, columns))
        return cls(plain[declared.end() :], columns.text.delimiter or declared[1].decode(), 1)


def _delimiter(file: Path, content: bytes, columns: Columns) -> str:
    """The character between cells: as given, or the one that gives the header line the time column. Without such a
    column it is the first that gives several columns, so that errors name them."""
    if columns.text.delimiter is not None:
        return columns.text.delimiter
    line = content.split(b"\n", 1)[0].decode(_MARK, errors="replace").rstrip("\r")
    is_first = "\t" if suffix_of(file) == TABS else ","

    def fit(delimiter: str) -> tuple[bool, bool, bool]:
        try:
            cells = next(csv.reader([line], delimiter=delimiter), [])
        except csv.Error:  # a cell is too long
            cells = []
        return columns.time in header_names(cells), len(cells) > 1, delimiter == is_first

    return max(DELIMITERS, key=fit)


def header_names(cells: Sequence[str]) -> list[str]:
    """The names of columns without the blanks around them; empty cells at the end name none."""
    names = [cell.strip() for cell in cells]
    while len(names) > 1 and not names[-1]:
        names.pop()
    return names


def row_cells(cells: list[str], width: int) -> list[str]:
    """The cells of a row without empty ones beyond the header."""
    return cells[:width] if len(cells) > width and not any(map(str.strip, cells[width:])) else cells


def usual_cell(columns: Columns) -> Callable[[str, str | None], str | None] | None:
    """Brings the cell of a column into the usual form. None if all cells have it."""
    text = columns.text
    if not text.rewrites_times and not _has_own_numbers(text):
        return None
    number = _number_form(text) if _has_own_numbers(text) else None

    def usual(name: str, cell: str | None) -> str | None:
        if cell is None:
            return None
        if name in columns.times:
            found = usual_time(cell, text.time_format, text.zone) if text.rewrites_times else None
            return cell if found is None else found
        return cell if number is None or not number.fullmatch(cell.strip()) else _usual_number(cell, text)

    return usual


def usual_cells(table: pa.Table, columns: Columns) -> pa.Table:
    """The cells of a file in the usual form, each distinct one converted once."""
    text = columns.text
    number = _number_form(text) if _has_own_numbers(text) else None
    for at, name in enumerate(table.column_names):
        column = table.column(name)
        if name in columns.times and text.rewrites_times:
            table = table.set_column(at, name, usual_times(column, text.time_format, text.zone))
        elif name not in columns.times and number is not None:
            table = table.set_column(at, name, _usual_numbers(column, number, text))
    return table


def named_columns(table: pa.Table, header: Sequence[str]) -> pa.Table | None:
    """The table with the names of the header. None if a column without a name has values."""
    names = header_names(header)
    if any(pc.any(column.is_valid()).as_py() for column in table.columns[len(names) :]):
        return None
    return table.select(range(len(names))).rename_columns(names)


def _has_own_numbers(text: TextOptions) -> bool:
    return text.thousands is not None or text.decimal not in (None, ".")


def _number_form(text: TextOptions) -> re.Pattern[str]:
    """Numbers in the form of the file, with the separators where they belong: `1.234,5` but not `1.2.3`."""
    digits = r"[0-9]+"
    if text.thousands is not None:
        digits = rf"(?:[0-9]{{1,3}}(?:{_separator(text.thousands)}[0-9]{{3}})+|[0-9]+)"
    return re.compile(rf"-?{digits}(?:{re.escape(text.decimal or '.')}[0-9]+)?(?:[eE][+-]?[0-9]+)?")


def _separator(character: str) -> str:
    """A space may be one that does not break the line."""
    return "[ \u00a0\u202f]" if character == " " else re.escape(character)


def _usual_numbers(cells: pa.ChunkedArray, form: re.Pattern[str], text: TextOptions) -> pa.ChunkedArray:
    """The numbers among some cells in the usual form. Other cells are unchanged."""
    trimmed = pc.utf8_trim_whitespace(cells)
    plain = trimmed if text.thousands is None else pc.replace_substring_regex(trimmed, _separator(text.thousands), "")
    plain = pc.replace_substring(plain, text.decimal or ".", ".")
    return pc.if_else(pc.match_substring_regex(trimmed, f"^(?:{form.pattern})$"), plain, cells)


def _usual_number(cell: str, text: TextOptions) -> str:
    plain = cell.strip() if text.thousands is None else re.sub(_separator(text.thousands), "", cell.strip())
    return plain.replace(text.decimal or ".", ".")
