"""CSV: files with a header, read as rows or as columns; and files with a declared schema, which workers read in ranges
of bytes. The header shows the character that separates the cells."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pcsv

from cepheid.errors import InputProblem, listing, shown
from cepheid.events import UNTYPED
from cepheid.io.event_columns import loses_digits
from cepheid.io.formats import TABS, BrokenRow, RawRow, require_times, suffix_of
from cepheid.io.formats.csv_cells import located_cells, parse, read_cells, sifted_cells
from cepheid.io.formats.csv_text import DELIMITERS, CsvText, header_names, row_cells, usual_cell, usual_cells
from cepheid.io.formats.text import (
    EXACT,
    TextFormat,
    TextTable,
    all_true,
    fits,
    late_starts,
    timestamps,
    unfit_timestamps,
)
from cepheid.io.formats.text_stream import read_rows
from cepheid.io.inputs import Columns
from cepheid.io.shares import MOST_FILES, Footers, OpenedPart, Part, StoredFile, StoredFiles
from cepheid.io.source import JSON
from cepheid.io.storage import is_readable, open_file
from cepheid.io.stream_rows import Read, StreamLayout
from cepheid.io.stream_values import Misfit, parsed
from cepheid.io.times import LAST_TIME
from cepheid.physical import Plan
from cepheid.runtime.kernel import Array

# --- rows -------------------------------------------------------------------------------------------------------------

MOST = 0.75
"""A column is numeric if at least this fraction of its non-empty cells are numbers."""

NUMBER = re.compile(r"-?(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]*)")
LEADING_ZERO = re.compile(r"0[0-9]+")
LONGEST_NUMBER = 400


def csv_rows(file: Path, columns: Columns, type: str | None) -> list[RawRow | BrokenRow]:
    """The rows below the header, with numbers and booleans parsed."""
    rows = list(_text_rows(file, columns, requires_times=True))
    type_column = columns.type if type is None else None
    recognise_cells([row.values for row in rows if isinstance(row, RawRow)], type_column, columns.times)
    return rows


def _text_rows(file: Path, columns: Columns, requires_times: bool = False) -> Iterator[RawRow | BrokenRow]:
    """Rows of strings. An empty cell is null."""
    opened, usual = CsvText.of(file, columns), usual_cell(columns)
    text = opened.content.decode("utf-8-sig", errors="surrogateescape")
    is_unicode = _is_unicode(text)
    lines = [line for line in re.split(r"(?<=\n)", text) if line]
    header: list[str] | None = None
    for at, raw, cells in _csv_records(lines, opened.delimiter):
        number = at + opened.skipped
        if header is not None and not isinstance(cells, str) and len(cells) > len(header):
            cells = row_cells(cells, len(header))
        if header is None:
            header = _header(file, raw, cells, columns if requires_times else None)
        elif not (is_unicode or _is_unicode(raw)):
            yield BrokenRow(
                number, "not UTF-8 text", raw.encode(errors="surrogateescape").decode(errors="backslashreplace")
            )
        elif isinstance(cells, str):
            yield BrokenRow(number, cells, raw)
        elif cells and len(cells) != len(header):
            yield BrokenRow(number, f"{len(cells)} cells where the header has {len(header)}", raw)
        elif cells:
            values = {name: cell if cell else None for name, cell in zip(header, cells, strict=True)}
            if usual is not None:
                values = {name: usual(name, cell) for name, cell in values.items()}
            yield RawRow(number, raw, values)


def _is_unicode(text: str) -> bool:
    """Whether the bytes were UTF-8: others are decoded as lone surrogates."""
    try:
        return text.isascii() or bool(text.encode())
    except UnicodeEncodeError:
        return False


def _header(file: Path, raw: str, cells: list[str] | str, required: Columns | None) -> list[str]:
    path = f"`{shown(str(file), 200)}`"
    if not _is_unicode(raw):
        raise InputProblem(
            f"the header of {path} is not UTF-8 text",
            hint='name the encoding of the file: encoding="latin-1", or --encoding latin-1',
        )
    if isinstance(cells, str):
        raise InputProblem(f"the header of {path} cannot be read: {cells}")
    names = header_names(cells)
    if not any(names):
        raise InputProblem(
            f"the first line of {path} is blank",
            expected="the names of the columns",
            hint="remove the lines before them",
        )
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise InputProblem(f"{path} has two columns named `{shown(twice[0])}`", hint="rename one of them")
    if required is not None and any(names):
        require_times(file, names, required)
    return names


def _csv_records(lines: Sequence[str], delimiter: str) -> Iterator[tuple[int, str, list[str] | str]]:
    """The line number, text and cells of each record, or an error in place of the cells. An unclosed quote would
    extend to the end of the file, so only its own line is rejected and parsing continues with the next line."""
    at = 0
    while at < len(lines):
        begin = at  # a copy of the rest for each broken line would take quadratic time
        reader = csv.reader((lines[i] for i in range(begin, len(lines))), strict=True, delimiter=delimiter)
        try:
            for cells in reader:
                end = begin + reader.line_num
                yield at + 1, "".join(lines[at:end]).rstrip("\r\n"), cells
                at = end
        except csv.Error as problem:
            yield at + 1, lines[at].rstrip("\r\n"), f"broken CSV: {problem}"
            at += 1


def recognise_cells(rows: Sequence[dict[str, Any]], type_column: str | None, times: Sequence[str]) -> None:
    """Parses numbers and booleans, separately for each column and event type. Times are parsed cell by cell. The type
    column remains text."""
    columns: dict[tuple[str | None, str], list[dict[str, Any]]] = {}
    for row in rows:
        of_type = row.get(type_column) if type_column is not None else None
        for name, cell in row.items():
            if name in times:
                number = None if cell is None else _number(cell)
                row[name] = cell if number is None else number
            elif cell is not None and name != type_column:
                columns.setdefault((of_type, name), []).append(row)
    for (_, name), members in columns.items():
        cells = [row[name] for row in members]
        for read in (_number, _boolean):
            values = [read(cell) for cell in cells]
            fit = sum(value is not None for value in values)
            if fit >= MOST * len(cells) and not any(LEADING_ZERO.fullmatch(cell) for cell in cells):
                for row, value in zip(members, values, strict=True):
                    row[name] = row[name] if value is None else value
                break


def _number(cell: str) -> int | float | None:
    """The number in a cell, or None. `007` is a name, not a number."""
    text = cell.strip()
    if len(text) > LONGEST_NUMBER:
        return None
    if _INTEGER.fullmatch(text):
        return int(text)
    value = float(text) if NUMBER.fullmatch(text) else math.inf
    return value if math.isfinite(value) else None


def _boolean(cell: str) -> bool | None:
    return {"true": True, "false": False}.get(cell.strip().lower())


# --- columns ----------------------------------------------------------------------------------------------------------

_BOOLEAN = "[Tt][Rr][Uu][Ee]|[Ff][Aa][Ll][Ss][Ee]"


def csv_columns(file: Path, columns: Columns, type: str | None) -> TextTable | None:
    """The rows of a file as typed columns. None if the row reader must read the file."""
    try:
        opened = CsvText.of(file, columns)
    except InputProblem:
        return None
    content, delimiter = opened.content, opened.delimiter
    cells = read_cells(content, delimiter) or sifted_cells(content, delimiter)
    type_column = columns.type if type is None else None
    if cells is None or not cells.table.num_rows or type_column in columns.times:
        return None
    if not set(columns.times) <= set(cells.table.column_names):
        return None
    cells = replace(cells, table=usual_cells(cells.table, columns))
    is_finer = loses_digits(cells.table.column(columns.time))
    typed = _typed(cells.table, columns, type_column)
    if typed is None or typed.unfit.all():
        return None
    table = _fitting(cells.table, typed, columns, type_column) if typed.unfit.any() else pa.table(typed.columns)
    late = None if table is None else late_starts(table, columns)
    if late is None:
        return None
    if late.any():
        unfit = typed.unfit.copy()
        unfit[np.flatnonzero(~unfit)[late]] = True
        typed = replace(typed, unfit=unfit)
        table = _fitting(cells.table, typed, columns, type_column)
    if opened.skipped and (cells.broken or typed.unfit.any()):
        return None
    if not typed.unfit.any():
        return TextTable(table, broken=cells.broken, has_nanoseconds=is_finer)
    located = located_cells(content, cells)
    if located is None or table is None:
        return None
    rows = np.flatnonzero(typed.unfit)
    unfit_cells = usual_cells(located.table.take(pa.array(rows)), columns)
    parsed_rows = _parsed_rows(unfit_cells, table.schema, columns.times)
    refused = [RawRow(*located.text(row), values) for row, values in zip(rows.tolist(), parsed_rows, strict=True)]
    return TextTable(table, broken=located.broken, refused=tuple(refused), has_nanoseconds=is_finer)


@dataclass(frozen=True, slots=True)
class _Typed:
    """Typed columns, except for those that do not hold every row, and the rows that do not fit."""

    columns: dict[str, pa.ChunkedArray]
    unfit: Array


def _fitting(cells: pa.Table, typed: _Typed, columns: Columns, type_column: str | None) -> pa.Table | None:
    """The rows that fit, with the types that all rows decide. None if the row reader must decide."""
    fits = pa.array(~typed.unfit)
    rest = {n: c.filter(fits) for n, c in typed.columns.items() if not pa.types.is_floating(c.type)}
    others = _typed(cells.drop_columns([n for n in rest if n != type_column]).filter(fits), columns, type_column)
    if others is None or others.unfit.any():
        return None
    read = {**others.columns, **rest}
    # A column that does not hold every row is numeric or boolean.
    if any(read[name].type == pa.string() for name in cells.column_names if name not in typed.columns):
        return None
    return pa.table({name: read[name] for name in cells.column_names})


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def _typed(cells: pa.Table, columns: Columns, type_column: str | None) -> _Typed | None:
    """None if the row reader must decide about the types."""
    types = _types(cells, type_column)
    typed: dict[str, pa.ChunkedArray] = {}
    unfit = types < 0
    for name in cells.column_names:
        column = cells.column(name)
        misfits = None
        if name in columns.times:
            read = _times(column)
            misfits = _unfit_times(column) if read is None else None
        elif column.null_count == len(column):
            read = pa.chunked_array([pa.nulls(len(column))])
        elif name == type_column or not columns.reads(name):
            read = column
        else:
            read = _recognised(column, types)
            misfits = _unfit_cells(column, types) if read is None else None
        if misfits is not None and misfits.any():
            unfit = unfit | misfits
        elif read is not None:
            typed[name] = read
        else:
            return None
    return _Typed(typed, unfit)


def _unfit_times(cells: pa.ChunkedArray) -> Array | None:
    """The cells that are not times of the most common kind. None if they are not known."""
    text = pc.utf8_trim_whitespace(cells)
    is_number = np.asarray(fits(text, NUMBER.pattern).fill_null(False))
    is_integer = np.asarray(fits(text, _INTEGER.pattern).fill_null(False))
    others = text.filter(pa.array(is_number & ~is_integer))
    if pc.any(pc.equal(pc.floor(others.cast(pa.float64())), others.cast(pa.float64()))).as_py():
        return None  # `1e3` is an integer, in another form
    unfit = unfit_timestamps(cells)
    if np.count_nonzero(is_integer) > np.count_nonzero(~unfit):
        is_short = np.asarray(pc.less_equal(pc.binary_length(text), len(str(LAST_TIME)) - 1).fill_null(False))
        return np.asarray(~(is_integer & is_short))
    return unfit


def _unfit_cells(cells: pa.ChunkedArray, types: Array) -> Array:
    """The cells that are not numbers (or booleans) in event types in which the column is numeric (or boolean)."""
    text = pc.utf8_trim_whitespace(cells)
    filled = np.asarray(cells.is_valid())
    kinds = [np.asarray(fits(text, pattern).fill_null(False)) for pattern in (NUMBER.pattern, _BOOLEAN)]
    groups = types + 1
    totals = np.bincount(groups[filled], minlength=groups.max() + 1)
    names = np.bincount(groups[np.asarray(fits(cells, LEADING_ZERO.pattern).fill_null(False))], minlength=len(totals))
    unfit = np.zeros(len(filled), bool)
    is_decided = (totals == 0) | (names > 0)
    for is_kind in kinds:
        most = ~is_decided & (np.bincount(groups[is_kind], minlength=len(totals)) >= MOST * totals)
        unfit |= most[groups] & filled & ~is_kind
        is_decided |= most
    return unfit


def _parsed_rows(rows: pa.Table, schema: pa.Schema, times: Sequence[str]) -> Iterator[dict[str, Any]]:
    """The values of rows that do not fit the columns of the others, parsed as far as they do."""
    names = rows.column_names
    columns = []
    for name in names:
        kind, cells = schema.field(name).type, rows.column(name).to_pylist()
        read = _number if name in times or _is_number(kind) else _boolean if pa.types.is_boolean(kind) else None
        values = cells if read is None else [None if cell is None else read(cell) for cell in cells]
        columns.append([cell if value is None else value for cell, value in zip(cells, values, strict=True)])
    return (dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True))


def _types(cells: pa.Table, type_column: str | None) -> Array:
    """The code of each row's event type; -1 if it has none, and others have."""
    column = cells.column(type_column) if type_column in cells.column_names else None
    if column is None or column.null_count == len(column):
        return np.zeros(cells.num_rows, np.int32)
    return np.asarray(pc.index_in(column, pc.unique(column.drop_null())).fill_null(-1))


def _times(cells: pa.ChunkedArray) -> pa.ChunkedArray | None:
    if cells.null_count:
        return None
    whole = _whole_numbers(pc.utf8_trim_whitespace(cells))
    if whole is None:
        return timestamps(cells)
    return whole if pc.max(pc.abs(whole)).as_py() <= LAST_TIME else None


def _recognised(cells: pa.ChunkedArray, types: Array) -> pa.ChunkedArray | None:
    """The typed column. None if its type would differ between event types."""
    text = pc.utf8_trim_whitespace(cells)
    whole = _whole_numbers(text)
    if whole is not None:
        return whole
    numbers, booleans = fits(text, NUMBER.pattern), fits(text, _BOOLEAN)
    written = pc.if_else(numbers, text, pa.scalar(None, pa.string()))
    values = written.cast(pa.float64())
    if not all_true(pc.is_finite(values)) or not all_true(pc.less_equal(pc.binary_length(written), LONGEST_NUMBER)):
        return None  # `1e999` has the form of a number but does not fit a float
    if all_true(numbers):
        # Code that compares the bits of floats would take `-0` and `0` for different values.
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
    # Arrow also parses `007` and `0x10`. Kernels reserve the lowest 64-bit integer.
    is_exact = all_true(pc.equal(whole.cast(pa.string()), text)) and pc.min(whole).as_py() > -(2**63)
    return whole if is_exact else None


def _is_text(cells: pa.ChunkedArray, types: Array, numbers: pa.ChunkedArray, booleans: pa.ChunkedArray) -> bool:
    """Whether the column is neither numeric nor boolean in any event type."""

    def of_types(rows: pa.ChunkedArray) -> Array:
        return np.bincount(types[rows.fill_null(False).to_numpy()] + 1, minlength=types.max() + 2)

    filled, names = of_types(cells.is_valid()), of_types(fits(cells, LEADING_ZERO.pattern))
    most = (of_types(numbers) >= MOST * filled) | (of_types(booleans) >= MOST * filled)
    return not np.any(most & (names == 0) & (filled > 0))


def csv_stream(paths: Sequence[str], layout: StreamLayout) -> Read:
    return read_rows(((path, _stream_rows(Path(path), layout)) for path in paths), layout)


def _stream_rows(file: Path, layout: StreamLayout) -> Iterator[RawRow | BrokenRow]:
    """The rows of a file of a stream, with cells in the types of the stream's columns. An empty cell is null, or an
    attribute that the type lacks, if no event of the type had it when the stream began."""
    columns = layout.columns
    for row in _text_rows(file, columns):
        if isinstance(row, BrokenRow):
            yield row
            continue
        known = layout.attributes.get(columns.event_type or row.values.get(columns.type) or UNTYPED)
        values: dict[str, Any] = {}
        reason = None
        for name, cell in row.values.items():
            if cell is None and known is not None and name not in known:
                continue
            kind = (known or {}).get(name) or (layout.schema.field(name).type if name in layout.schema.names else JSON)
            try:
                is_plain = cell is None or (name == columns.type and columns.event_type is None)
                values[name] = cell if is_plain else _time(cell) if name in columns.times else parsed_cell(cell, kind)
            except Misfit:
                values[name] = None
                reason = layout.misfit(name, kind, cell) if columns.reads(name) else reason
        yield RawRow(row.line, None, values) if reason is None else BrokenRow(row.line, reason, row.raw or "")


def _time(cell: str) -> int | float | str:
    number = _number(cell)
    return cell if number is None else number


def parsed_cell(cell: str, kind: pa.DataType) -> Any:
    """A cell in the type of its column; in a column without one type, the number or boolean that it shows."""
    if kind != JSON:
        return parsed(cell, kind)
    number, boolean = _number(cell), _boolean(cell)
    return number if number is not None else cell if boolean is None else boolean


FORMAT = TextFormat("CSV", csv_rows, is_tabular=True, columns=csv_columns, stream=csv_stream)


# --- shares -----------------------------------------------------------------------------------------------------------

_RANGE = 4 << 20
"""Bytes of a part: small enough to divide a small file among all cores."""
_SAMPLE = 1 << 16
"""Bytes to read in order to estimate the length of lines, or to find the end of a line."""
_NEWLINE = b"\n"


def stored_csv(paths: Sequence[str], schema: pa.Schema, header: bool) -> StoredFiles:
    """CSV files with the columns of the schema, in this order. An error if workers cannot read them."""
    _require_readable_columns(schema)
    unreadable = [path for path in paths if not is_readable(path)]
    if unreadable or len(paths) > MOST_FILES:
        files = f"`{shown(unreadable[0], 200)}`" if unreadable else f"{len(paths):,} files"
        raise InputProblem(
            f"workers cannot read {files} by themselves",
            hint="let Spark read them: `spark.read.csv(...)` returns a DataFrame",
        )
    parts: list[Part] = []
    rows = 0
    for number, path in enumerate(paths):
        with open_file(path) as file:
            size = file.size()
            parts += (Part(number, at, min(_RANGE, size - at)) for at in range(0, size, _RANGE))
            sample = file.read_at(min(_SAMPLE, size), 0)
            _require_commas(path, sample, schema, header)
            rows += size * sample.count(_NEWLINE) // max(len(sample), 1)
    return StoredFiles(CsvReader(tuple(map(StoredFile, paths)), schema, header), tuple(parts), rows)


def _require_commas(path: str, sample: bytes, schema: pa.Schema, header: bool) -> None:
    """Workers read files with commas only."""
    first = sample.split(_NEWLINE, 1)[0].decode(errors="replace")
    others = [character for character in DELIMITERS if character != "," and character in first]
    if suffix_of(Path(path)) == TABS or (header and len(schema) > 1 and "," not in first and others):
        sep = "\t" if suffix_of(Path(path)) == TABS else others[0]
        raise InputProblem(
            f"workers read CSV files with commas; `{shown(path, 200)}` has {sep!r}",
            hint=f"let Spark read it: `spark.read.csv(..., sep={sep!r})` returns a DataFrame",
        )


_READABLE = (
    pa.types.is_string,
    pa.types.is_boolean,
    pa.types.is_integer,
    pa.types.is_floating,
    pa.types.is_date32,
    lambda kind: pa.types.is_timestamp(kind) and kind.tz is None,
)


def _require_readable_columns(schema: pa.Schema) -> None:
    for field in schema:
        if not any(test(field.type) for test in _READABLE):
            raise InputProblem(
                f"the column `{shown(field.name)}` of a CSV file is declared as {field.type}",
                expected=listing(["string", "boolean", "int", "long", "float", "double", "date", "timestamp_ntz"]),
                hint="let Spark read it: `spark.read.csv(...)` returns a DataFrame",
            )


class ParsedLines(NamedTuple):
    """Lines that fit the schema, with one row for each."""

    lines: bytes
    rows: pa.Table


class RejectedLine(NamedTuple):
    """A line that cannot be parsed."""

    line: bytes
    reason: str


@dataclass(frozen=True, slots=True)
class CsvReader:
    files: tuple[StoredFile, ...]
    schema: pa.Schema
    header: bool

    def surviving(self, share: Sequence[Part], plan: Plan, schema: pa.Schema, type_column: str) -> Iterator[Part]:
        """All parts, because CSV files have no statistics."""
        yield from share

    @contextmanager
    def opened(
        self, part: Part, names: Sequence[str], dictionaries: Sequence[str], footers: Footers | None = None
    ) -> Iterator[OpenedPart]:
        empty = pa.schema([self.schema.field(name) for name in names]).empty_table()
        parsed = [lines.rows for lines in self.read(part, names) if isinstance(lines, ParsedLines)]
        table = pa.concat_tables([empty, *parsed]).combine_chunks()

        def read(names: Sequence[str], rows: int | None = None) -> pa.Table:
            return table.select(list(names)).slice(0, rows)

        yield OpenedPart(table.num_rows, table.column_names, read, read)

    def read(self, part: Part, names: Sequence[str]) -> Iterator[ParsedLines | RejectedLine]:
        """The lines that begin in a range of bytes."""
        with open_file(self.files[part.file].path) as file:
            size, end = file.size(), part.first + part.size
            begin = 0 if part.first == 0 else _next_line(file, part.first - 1)
            if part.first == 0 and self.header:
                begin = _next_line(file, 0)
            stop = size if end >= size else _next_line(file, end - 1)
            lines = file.read_at(max(stop - begin, 0), begin)
        yield from self.parsed(lines, names)

    def parsed(self, lines: bytes, names: Sequence[str]) -> Iterator[ParsedLines | RejectedLine]:
        """Parses lines. If Arrow reports an error, the lines are bisected until the invalid ones are isolated."""
        if not lines.strip():
            return
        try:
            rows = self._parse(lines, names)
            problem = None if self._stand_alone(lines, rows, names) else "a quote is not closed in its line"
        except pa.ArrowInvalid as refused:
            problem = shown(str(refused).replace("Row #1: ", ""), 200)  # only used if there is a single line
        if problem is None:
            yield ParsedLines(lines, rows)
            return
        middle = lines.rfind(_NEWLINE, 0, max(len(lines) // 2, 1)) + 1 or lines.find(_NEWLINE) + 1
        if 0 < middle < len(lines):
            yield from self.parsed(lines[:middle], names)
            yield from self.parsed(lines[middle:], names)
        else:
            yield RejectedLine(lines, problem)

    def _parse(self, lines: bytes, names: Sequence[str]) -> pa.Table:
        options = pcsv.ReadOptions(use_threads=False, block_size=len(lines) + 1, column_names=self.schema.names)
        return parse(lines, options, self.schema, names)

    def _stand_alone(self, lines: bytes, rows: pa.Table, names: Sequence[str]) -> bool:
        """Whether each line is one row. The cell of an unclosed quote continues in the next line. The last line has no
        next line, so it is followed by a copy of itself and parsed again."""
        if rows.num_rows != lines.count(_NEWLINE) + (not lines.endswith(_NEWLINE)):
            return False
        last = lines[lines.rstrip(b"\r\n").rfind(_NEWLINE) + 1 :].rstrip(b"\r\n")
        return b'"' not in last or self._parse(last + _NEWLINE + last, names).num_rows == 2


def _next_line(file: pa.NativeFile, at: int) -> int:
    """The offset of the first line that begins after this byte."""
    while some := file.read_at(_SAMPLE, at):
        end = some.find(_NEWLINE)
        if end >= 0:
            return at + int(end) + 1
        at += len(some)
    return at
