"""CSV files that workers read with Arrow: ranges of bytes are what is scheduled, and each line stands for itself.

A line that does not fit the columns that it should have is no event; `CsvRejects` tells about it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.csv as pcsv

from cepheid.errors import InputProblem, listing, shown
from cepheid.physical import Plan
from cepheid.spark.stored import MOST_FILES, Part, StoredFile, is_readable, shared, storage

_RANGE = 4 << 20
"""Bytes that are read at once: few enough that all cores get some of a small file."""
_LOOK = 1 << 16
"""Bytes that tell how long lines are, or where one ends."""
_NEWLINE = b"\n"
_TRUE, _FALSE = ("true", "True", "TRUE"), ("false", "False", "FALSE")


@dataclass(frozen=True, slots=True)
class CsvFiles:
    """CSV files whose columns are known: `path` is a file, a directory or a pattern, `schema` the names and types of
    the columns as Spark writes them (`"type string, ts long"`). With `header` the first line of each file is passed
    over. A value may be quoted, and may not contain a line break."""

    path: str
    schema: str
    header: bool = False


@dataclass(frozen=True, slots=True)
class StoredCsv:
    """CSV files that all have the columns of `layout`, in this order."""

    files: tuple[StoredFile, ...]
    layout: pa.Schema
    header: bool
    parts: tuple[Part, ...]
    rows: int
    """About so many."""
    times: tuple[int, int] | None = None

    @classmethod
    def of(cls, paths: Sequence[str], layout: pa.Schema, header: bool) -> StoredCsv:
        """Raises an error where workers cannot read them."""
        _require_readable_columns(layout)
        elsewhere = [path for path in paths if not is_readable(path)]
        if elsewhere or len(paths) > MOST_FILES:
            what = f"`{shown(elsewhere[0], 200)}`" if elsewhere else f"{len(paths):,} files"
            raise InputProblem(
                f"workers cannot read {what} by themselves",
                hint="have Spark read them: `spark.read.csv(...)` gives a DataFrame",
            )
        parts: list[Part] = []
        rows = 0
        for number, path in enumerate(paths):
            with _opened(path) as opened:
                size = opened.size()
                parts += (Part(number, at, min(_RANGE, size - at)) for at in range(0, size, _RANGE))
                look = opened.read_at(min(_LOOK, size), 0)
                rows += size * look.count(_NEWLINE) // max(len(look), 1)
        return cls(tuple(map(StoredFile, paths)), layout, header, tuple(parts), rows)

    @property
    def size(self) -> int:
        return sum(part.size for part in self.parts)

    @property
    def reader(self) -> CsvReader:
        return CsvReader(self.files, self.layout, self.header)

    def shares(self, count: int) -> list[tuple[Part, ...]]:
        return shared(self.parts, count)


_READABLE = (
    pa.types.is_string,
    pa.types.is_boolean,
    pa.types.is_integer,
    pa.types.is_floating,
    pa.types.is_date32,
    lambda kind: pa.types.is_timestamp(kind) and kind.tz is None,
)


def _require_readable_columns(layout: pa.Schema) -> None:
    for field in layout:
        if not any(test(field.type) for test in _READABLE):
            raise InputProblem(
                f"the column `{shown(field.name)}` of a CSV file is to be {field.type}",
                expected=listing(["string", "boolean", "int", "long", "float", "double", "date", "timestamp_ntz"]),
                hint="have Spark read it: `spark.read.csv(...)` gives a DataFrame",
            )


def _opened(path: str) -> pa.NativeFile:
    files, name = storage(path)
    return files.open_input_file(name)


# --- in the workers ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Fitting:
    """Lines that have all the columns that they should have: a row for each."""

    lines: bytes
    rows: pa.Table


@dataclass(frozen=True, slots=True)
class Unfit:
    """A line that is no row."""

    line: bytes
    reason: str


@dataclass(frozen=True, slots=True)
class CsvReader:
    files: tuple[StoredFile, ...]
    layout: pa.Schema
    header: bool

    def surviving(self, share: Sequence[Part], plan: Plan, schema: pa.Schema, type_column: str) -> Iterator[Part]:
        """All: nothing is known of a text before it is read."""
        yield from share

    @contextmanager
    def opened(self, part: Part, names: Sequence[str], texts: Sequence[str]) -> Iterator[_OpenedLines]:
        empty = pa.schema([self.layout.field(name) for name in names]).empty_table()
        read = [found.rows for found in self.read(part, names) if isinstance(found, Fitting)]
        yield _OpenedLines(pa.concat_tables([empty, *read]).combine_chunks())

    def read(self, part: Part, names: Sequence[str]) -> Iterator[Fitting | Unfit]:
        """The lines that begin in a range of bytes."""
        with _opened(self.files[part.file].path) as file:
            size, end = file.size(), part.first + part.size
            begin = 0 if part.first == 0 else _next_line(file, part.first - 1)
            if part.first == 0 and self.header:
                begin = _next_line(file, 0)
            stop = size if end >= size else _next_line(file, end - 1)
            lines = file.read_at(max(stop - begin, 0), begin)
        yield from _read(lines, _Columns(self.layout, tuple(names)))


def _next_line(file: pa.NativeFile, at: int) -> int:
    """Where the line after the one at this byte begins."""
    while some := file.read_at(_LOOK, at):
        found = some.find(_NEWLINE)
        if found >= 0:
            return at + found + 1
        at += len(some)
    return at


@dataclass(frozen=True, slots=True)
class _OpenedLines:
    table: pa.Table

    @property
    def rows(self) -> int:
        return self.table.num_rows

    @property
    def names(self) -> Sequence[str]:
        found: Sequence[str] = self.table.schema.names
        return found

    def read(self, names: Sequence[str]) -> pa.Table:
        return self.table.select(list(names))


@dataclass(frozen=True, slots=True)
class _Columns:
    """All columns of a file, and the names of those that are wanted."""

    layout: pa.Schema
    wanted: tuple[str, ...]

    def of(self, lines: bytes) -> pa.Table:
        return pcsv.read_csv(
            pa.BufferReader(lines),
            pcsv.ReadOptions(use_threads=False, block_size=len(lines) + 1, column_names=self.layout.names),
            pcsv.ParseOptions(),
            pcsv.ConvertOptions(
                column_types=self.layout,
                include_columns=list(self.wanted),
                null_values=[""],
                true_values=_TRUE,
                false_values=_FALSE,
                strings_can_be_null=True,
            ),
        )


def _read(lines: bytes, columns: _Columns) -> Iterator[Fitting | Unfit]:
    """Where Arrow refuses many lines for the sake of some, they are halved until it is clear which."""
    if not lines.strip():
        return
    try:
        rows = columns.of(lines)
        problem = None if _stand_alone(lines, rows, columns) else "a quote is not closed in its line"
    except pa.ArrowInvalid as refused:
        problem = shown(str(refused).replace("Row #1: ", ""), 200)  # of the one line that is left in the end
    if problem is None:
        yield Fitting(lines, rows)
        return
    middle = lines.rfind(_NEWLINE, 0, max(len(lines) // 2, 1)) + 1 or lines.find(_NEWLINE) + 1
    if 0 < middle < len(lines):
        yield from _read(lines[:middle], columns)
        yield from _read(lines[middle:], columns)
    else:
        yield Unfit(lines, problem)


def _stand_alone(lines: bytes, rows: pa.Table, columns: _Columns) -> bool:
    """Whether each line is a row of its own. What comes after a quote that is not closed becomes part of its cell, and
    after the last line nothing comes: that is read twice in a row, to see."""
    if rows.num_rows != lines.count(_NEWLINE) + (not lines.endswith(_NEWLINE)):
        return False
    last = lines[lines.rstrip(b"\r\n").rfind(_NEWLINE) + 1 :].rstrip(b"\r\n")
    return b'"' not in last or columns.of(last + _NEWLINE + last).num_rows == 2


PATH, LINE = "path", "line"
"""What is told of a line besides the reason."""


@dataclass(frozen=True, slots=True)
class CsvRejects:
    """The lines of some shares that are no events for a query, with the reason."""

    reader: CsvReader
    shares: tuple[tuple[Part, ...], ...]
    names: tuple[str, ...]
    """The columns that the query needs: what the others hold does not matter."""
    time_column: str
    reason: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for share in batch.column(0).to_pylist():
                for part in self.shares[share]:
                    yield from self._rejects(part)

    def _rejects(self, part: Part) -> Iterator[pa.RecordBatch]:
        refused: list[tuple[bytes, str]] = []
        for found in self.reader.read(part, self.names):
            if isinstance(found, Unfit):
                refused.append((found.line, found.reason))
            else:
                timeless = np.flatnonzero(found.rows.column(self.time_column).is_null(nan_is_null=True))
                lines = found.lines.split(_NEWLINE) if len(timeless) else []
                refused += ((lines[at], f"no time: `{self.time_column}` is null") for at in timeless.tolist())
        if refused:
            texts = [line.rstrip(b"\r\n").decode(errors="backslashreplace") for line, _ in refused]
            columns = {PATH: [self.reader.files[part.file].path] * len(refused), LINE: texts}
            yield pa.RecordBatch.from_pydict({**columns, self.reason: [reason for _, reason in refused]})
