"""Rows of CSV and Parquet files, with plain values: numbers, text, booleans, null, lists and records."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cepheid.errors import InputProblem, shown

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Given:
    """A row as the file gives it; `raw` is its text, or None where the file is not text."""

    line: int
    raw: str | None
    values: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Broken:
    """A row that cannot be read."""

    line: int
    reason: str
    raw: str


def content_of(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as problem:
        raise InputProblem(f"cannot read `{shown(str(file), 200)}`: {problem.strerror}") from problem


# --- CSV --------------------------------------------------------------------------------------------------------------

MOST = 0.75
"""The part of a column's filled cells that must look like numbers for the column to be one of numbers."""

NUMBER = re.compile(r"-?(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]*)")
LEADING_ZERO = re.compile(r"0[0-9]+")
LONGEST_NUMBER = 400


def csv_rows(file: Path) -> Iterator[Given | Broken]:
    """The rows under the header. Cells are text, and empty ones null; `recognise_cells` finds the numbers."""
    try:
        text = content_of(file).decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        raise InputProblem(
            f"`{shown(str(file), 200)}` is not UTF-8 text (byte {problem.start})", hint="convert it: iconv -t utf-8"
        ) from problem
    lines = [line for line in re.split(r"(?<=\n)", text) if line]
    records = _csv_records(lines)
    header: list[str] | None = None
    for number, raw, cells in records:
        if header is None:
            header = _header(file, cells)
        elif isinstance(cells, str):
            yield Broken(number, cells, raw)
        elif cells and len(cells) != len(header):
            yield Broken(number, f"{len(cells)} cells where the header has {len(header)}", raw)
        elif cells:
            yield Given(number, raw, {name: cell if cell else None for name, cell in zip(header, cells, strict=True)})


def _header(file: Path, cells: list[str] | str) -> list[str]:
    if isinstance(cells, str):
        raise InputProblem(f"the header of `{shown(str(file), 200)}` cannot be read: {cells}")
    twice = [name for name in cells if cells.count(name) > 1]
    if twice:
        raise InputProblem(f"`{shown(str(file), 200)}` has two columns named `{shown(twice[0])}`")
    return cells


def _csv_records(lines: Sequence[str]) -> Iterator[tuple[int, str, list[str] | str]]:
    """Line, text, and cells of each record (or why it has none). A quote that is never closed would swallow the rest of
    the file: only its own line is given up, and reading goes on with the next."""
    at = 0
    while at < len(lines):
        reader = csv.reader(lines[at:], strict=True)
        begin = at
        try:
            for cells in reader:
                end = begin + reader.line_num
                yield at + 1, "".join(lines[at:end]).rstrip("\r\n"), cells
                at = end
        except csv.Error as problem:
            yield at + 1, lines[at].rstrip("\r\n"), f"broken CSV: {problem}"
            at += 1


def recognise_cells(rows: Sequence[dict[str, Any]], type_column: str | None, as_they_are: Sequence[str]) -> None:
    """Turns the text of cells into numbers and booleans, column by column and event type by event type. The time column
    is recognised cell by cell; the type column stays text."""
    columns: dict[tuple[str | None, str], list[dict[str, Any]]] = {}
    for row in rows:
        of_type = row.get(type_column) if type_column is not None else None
        for name, cell in row.items():
            if name in as_they_are:
                row[name] = _number(cell) if cell is not None and _number(cell) is not None else cell
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
    """The number that a cell shows; `007` is a name, not a number."""
    text = cell.strip()
    if len(text) > LONGEST_NUMBER:
        return None
    if _INTEGER.fullmatch(text):
        return int(text)
    value = float(text) if NUMBER.fullmatch(text) else math.inf
    return value if math.isfinite(value) else None


def _boolean(cell: str) -> bool | None:
    return {"true": True, "false": False}.get(cell.strip().lower())


# --- Parquet ----------------------------------------------------------------------------------------------------------


def parquet_rows(file: Path) -> Iterator[Given | Broken]:
    # Here and not above: pyarrow takes longer to load than most text files to read.
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        opened = pq.ParquetFile(file)
        number = 0
        for batch in opened.iter_batches():
            columns = _with_microseconds(batch)
            for values in columns.to_pylist():
                number += 1
                yield Given(number, None, {name: plain(value) for name, value in values.items()})
    except (pa.ArrowException, OSError) as problem:
        raise InputProblem(f"cannot read `{shown(str(file), 200)}` as Parquet: {shown(str(problem), 200)}") from problem


def _with_microseconds(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Nanoseconds cut to microseconds, which is what Python's datetime (and Cepheid's time) can hold."""
    import pyarrow as pa

    arrays = []
    for column in batch.columns:
        if pa.types.is_timestamp(column.type) and column.type.unit == "ns":
            column = column.cast(pa.timestamp("us", tz=column.type.tz), safe=False)
        arrays.append(column)
    return pa.RecordBatch.from_arrays(arrays, names=batch.schema.names)


def plain(value: Any) -> Any:
    """A value of Arrow as JSON knows it. A NaN is null: tables made with pandas have no other sign for it."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return None if math.isnan(value) else value
        case datetime():
            naive = value.replace(tzinfo=None) - (value.utcoffset() or timedelta())
            return naive.isoformat() + "Z"
        case date() | time():
            return value.isoformat()
        case timedelta():
            return value / timedelta(seconds=1)
        case Decimal():
            return int(value) if value == value.to_integral_value() else float(value)
        case bytes():
            return value.decode(errors="backslashreplace")
        case Mapping():
            return {str(name): plain(item) for name, item in value.items()}
        case list() | tuple():
            return [plain(item) for item in value]
        case _:
            return str(value)
