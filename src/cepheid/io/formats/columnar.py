"""Columnar formats (Parquet, Arrow IPC, ORC). A file has a schema and consists of chunks (row groups, record batches,
stripes). Any columns of any chunk can be read separately."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial, reduce
from operator import and_, eq, ge, gt, le, lt, or_
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cepheid import expr as ex
from cepheid.errors import InputProblem, shown
from cepheid.io.decoding import decoded, decoded_schema, require_distinct_names
from cepheid.io.event_columns import (
    EPOCH_TIMESTAMP,
    epoch_timestamps,
    local_times,
    loses_digits,
    moments_of,
    readable_rows,
    readable_schema,
)
from cepheid.io.formats import RawRow, format_named, require_times
from cepheid.io.inputs import Columns
from cepheid.io.rows import as_json, one_batch, plain, python_values, row_dicts
from cepheid.io.shares import Footers, OpenedPart, Part, StoredFile, StoredFiles
from cepheid.io.source import BATCH
from cepheid.io.storage import open_file
from cepheid.io.stream_rows import (
    FILE,
    NUMBER,
    RESUME,
    Read,
    StreamLayout,
    accepted,
    file_name,
    joined,
    reject,
    reject_rows,
)
from cepheid.io.stream_values import fitted
from cepheid.io.times import skipped_time_reason, usual_time
from cepheid.optimize.distribution import may_drop
from cepheid.physical import Plan


@dataclass(frozen=True, slots=True)
class Chunk:
    """The number of rows and bytes of a chunk, and its first and last time if the file has statistics."""

    rows: int
    size: int
    times: tuple[int, int] | None = None


class OpenedColumns(ABC):
    """An open columnar file. `stored` is its schema, and `schema` that of the decoded rows."""

    stored: pa.Schema
    footer: Any = None
    """What was parsed of the file, to open it again."""

    @cached_property
    def schema(self) -> pa.Schema:
        return readable_schema(decoded_schema(self.stored))

    @abstractmethod
    def chunks(self, time_column: str | None = None) -> list[Chunk]: ...

    @abstractmethod
    def read_stored(self, number: int, names: Sequence[str]) -> pa.Table:
        """These columns of one chunk, as the file stores them."""

    def read(self, number: int, names: Sequence[str]) -> pa.Table:
        """These columns of one chunk."""
        return readable_rows(decoded(self.read_stored(number, names)))

    def read_first(self, number: int, names: Sequence[str], rows: int) -> pa.Table:
        """These columns of the first rows of one chunk."""
        return self.read(number, names).slice(0, rows)

    @property
    def count(self) -> int:
        return sum(chunk.rows for chunk in self.chunks())

    def has_nanoseconds(self, time: str) -> bool:
        """Whether the first times have digits that microseconds lack."""
        kind = self.stored.field(time).type
        is_fine = pa.types.is_timestamp(kind) and kind.unit == "ns" and self.count
        return bool(is_fine) and loses_digits(self.read_stored(0, [time]).column(time))

    def filled(self) -> set[str]:
        """The columns that have no nulls according to the statistics of the file."""
        return set()

    def batches(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        for number in range(len(self.chunks())):
            yield from self.read(number, names).to_batches(BATCH)


class ColumnFormat(ABC):
    """Reads files of one format, in any process."""

    title: ClassVar[str]
    is_tabular: ClassVar[bool] = True

    @abstractmethod
    def open(self, file: pa.NativeFile, dictionaries: Sequence[str] = (), footer: Any = None) -> OpenedColumns:
        """`dictionaries` are string columns with few distinct values, `footer` that of the file if it is known."""

    @contextmanager
    def reading(self, path: str, hint: str | None = None) -> Iterator[None]:
        """Reports errors of PyArrow as errors of the file."""
        try:
            yield
        except (pa.ArrowException, OSError) as problem:
            reason = shown(str(problem), 200)
            raise InputProblem(f"cannot read `{shown(path, 200)}` as {self.title}: {reason}", hint=hint) from problem

    @contextmanager
    def opened(self, path: str, dictionaries: Sequence[str] = (), footer: Any = None) -> Iterator[OpenedColumns]:
        with self.reading(path):
            file = open_file(path)
            opened = self.open(file, dictionaries, footer)
        require_distinct_names(opened.stored, f"`{shown(path, 200)}`")
        with file:
            yield opened

    def schema(self, path: str) -> pa.Schema:
        with self.opened(path) as file:
            return file.schema

    def batches(self, path: str, names: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """These columns, or all."""
        with self.reading(path), self.opened(path) as file:
            yield from file.batches(file.schema.names if names is None else names)

    def is_null(self, path: str, name: str) -> bool:
        """Whether every value of a column is null."""
        return all(batch.column(0).null_count == batch.num_rows for batch in self.batches(path, [name]))

    def surviving(
        self, path: str, numbers: Sequence[int], condition: Callable[[pa.Schema], pc.Expression | None]
    ) -> Sequence[int]:
        """The chunks that may have rows for which the condition holds. Statistics rule out the others."""
        return numbers

    def rows(self, file: Path, columns: Columns, type: str | None) -> Iterator[RawRow]:
        number = 0
        schema = self.schema(str(file))
        require_times(file, schema.names, columns)
        local = local_times(schema, columns)
        for batch in self.batches(str(file)):
            stored = row_dicts(batch)
            for own in stored if local else ():
                own.update((n, usual_time(str(own[n]), None, columns.text.zone)) for n in local if own[n] is not None)
            for values in plain(stored):
                number += 1
                if type is None and isinstance(values.get(columns.type), int):
                    values[columns.type] = str(values[columns.type])  # a column of integers may hold the types
                yield RawRow(number, None, values)

    def stream(self, paths: Sequence[str], layout: StreamLayout) -> Read:
        return Read.joined([self._stream_file(path, layout) for path in paths], layout.schema)

    def _stream_file(self, path: str, layout: StreamLayout) -> Read:
        """The rows of a file in the columns of the stream. A column that the file lacks is null."""
        schema, source = layout.schema, file_name(path)
        with self.reading(path, RESUME), self.opened(path) as file:
            local = local_times(file.schema, layout.columns)
            present = [name for name in schema.names if name in file.schema.names]
            own = pa.schema([file.schema.field(name) for name in present])
            table = pa.Table.from_batches(file.batches(present), own)
            count = file.count
        arrays: list[pa.ChunkedArray | pa.Array] = []
        reasons: dict[int, str] = {}
        for field in schema:
            if field.name == FILE:
                arrays.append(pa.repeat(source, count))
            elif field.name == NUMBER:
                arrays.append(pa.array(range(1, count + 1), pa.int64()))
            elif field.name in present:
                column = table.column(field.name)
                if layout.epoch_unit is not None and field.name in layout.columns.times:
                    column = _as_timestamps(column, layout.epoch_unit)
                if field.name in local:
                    column = _in_zone(column, layout.columns, field.name, reasons)
                is_type = (
                    layout.requires_types and field.name == layout.columns.type and pa.types.is_integer(column.type)
                )
                values, misfits = (column.cast(field.type), None) if is_type else fitted(column, field.type)
                arrays.append(values)
                is_read = layout.columns.reads(field.name)
                for row in [] if misfits is None or not is_read else np.flatnonzero(misfits).tolist():
                    value = plain(python_values(column.slice(row, 1))[0])
                    reasons.setdefault(row, layout.misfit(field.name, field.type, value))
            else:
                arrays.append(pa.nulls(count, field.type))
        rows = one_batch(pa.table(arrays, schema=schema))
        chosen = row_dicts(table.take(pa.array(reasons, pa.int64())))
        rejects = [
            reject(source, row + 1, why, as_json(values))
            for (row, why), values in zip(reasons.items(), chosen, strict=True)
        ]
        if reasons:
            good = np.ones(count, bool)
            good[list(reasons)] = False
            rows = rows.filter(pa.array(good))
        requires_type = layout.requires_types and layout.columns.type in schema.names
        read = accepted(rows, layout.columns, requires_type)
        return Read(read.events, read.ticks, joined([reject_rows(rejects), read.rejects]))


def _in_zone(column: pa.ChunkedArray, columns: Columns, name: str, reasons: dict[int, str]) -> pa.ChunkedArray:
    """Local times as moments. Rows with a time that clocks skipped get a reason."""
    zone = columns.text.zone
    assert zone is not None
    moments, skipped = moments_of(column, zone)
    for row in np.flatnonzero(np.asarray(skipped)).tolist():
        reasons.setdefault(
            row, skipped_time_reason(str(column[row]), zone, "time" if name == columns.time else "start")
        )
    return pc.if_else(skipped, pa.scalar(None, moments.type), moments)


def _as_timestamps(column: pa.ChunkedArray, unit: str) -> pa.ChunkedArray:
    kind = column.type
    if not (pa.types.is_floating(kind) or pa.types.is_integer(kind)):
        return column
    return pa.chunked_array([epoch_timestamps(chunk, unit) for chunk in column.chunks], EPOCH_TIMESTAMP)


def column_format(name: str) -> ColumnFormat:
    format = format_named(name)
    assert isinstance(format, ColumnFormat)
    return format


# --- shares -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ColumnPart(Part):
    """A chunk of a columnar file. `times` are its first and last time, if the file has statistics."""

    number: int
    rows: int
    times: tuple[int, int] | None = None


def stored_columns(files: Sequence[StoredFile], time_column: str, expected: Sequence[str] = ()) -> StoredFiles | None:
    """Files for workers to read. None if a file lacks an expected column."""
    parts: list[ColumnPart] = []
    for number, file in enumerate(files):
        with column_format(file.format).opened(file.path) as opened:
            if not set(expected) <= set(opened.schema.names):
                return None
            first = 0
            for at, chunk in enumerate(opened.chunks(time_column)):
                parts.append(ColumnPart(number, first, chunk.size, at, chunk.rows, chunk.times))
                first += chunk.rows
    known = [part.times for part in parts if part.times is not None]
    is_known = bool(known) and len(known) == len(parts)
    whole = (min(first for first, _ in known), max(last for _, last in known)) if is_known else None
    return StoredFiles(ColumnReader(tuple(files)), tuple(parts), sum(part.rows for part in parts), whole)


@dataclass(frozen=True, slots=True)
class ColumnReader:
    files: tuple[StoredFile, ...]

    def surviving(self, share: Sequence[Part], plan: Plan, schema: pa.Schema, type_column: str) -> Iterator[Part]:
        for number, run in itertools.groupby(share, key=lambda part: part.file):
            parts, file = [_as_chunk(part) for part in run], self.files[number]

            def condition(own: pa.Schema, type: str | None = file.type) -> pc.Expression | None:
                present = pa.schema([field for field in schema if field.name in own.names])
                return may_matter(plan, present, type_column, type)

            numbers: Sequence[int] = [part.number for part in parts]
            if may_drop(plan):
                numbers = column_format(file.format).surviving(file.path, numbers, condition)
            yield from (part for part in parts if part.number in numbers)

    @contextmanager
    def opened(
        self, part: Part, names: Sequence[str], dictionaries: Sequence[str], footers: Footers | None = None
    ) -> Iterator[OpenedPart]:
        file, chunk = self.files[part.file], _as_chunk(part)
        footer = None if footers is None else footers.get(part.file)
        with column_format(file.format).opened(file.path, dictionaries, footer) as opened:
            if footers is not None:
                footers[part.file] = opened.footer
            read, read_first = partial(opened.read, chunk.number), partial(opened.read_first, chunk.number)
            yield OpenedPart(chunk.rows, opened.schema.names, read, read_first)


def _as_chunk(part: Part) -> ColumnPart:
    assert isinstance(part, ColumnPart)
    return part


# --- statistics -------------------------------------------------------------------------------------------------------

_COMPARE: Mapping[str, Callable[[Any, Any], Any]] = {"=": eq, "<": lt, "<=": le, ">": gt, ">=": ge}


def may_matter(plan: Plan, schema: pa.Schema, type_column: str, type: str | None = None) -> pc.Expression | None:
    """A condition that every event of a match satisfies, and that the statistics of row groups can rule out. None if
    there is no such condition. `type` is the type of all events, if no column holds it."""
    conditions: list[pc.Expression] = []
    for bit in plan.bits:
        if not bit.var or (type is not None and bit.types and type not in bit.types):
            continue
        tests = [_simple(test, plan, schema) for test in bit.tests]
        if bit.types and type is None and type_column in schema.names and _is_string(schema.field(type_column).type):
            tests.append(pc.field(type_column).isin(list(bit.types)))
        decisive = [test for test in tests if test is not None]
        if not decisive:
            return None
        conditions.append(reduce(and_, decisive))
    return reduce(or_, conditions) if conditions else pc.scalar(False)


def _simple(test: ex.Expr, plan: Plan, schema: pa.Schema) -> pc.Expression | None:
    match test:
        case ex.Compare(op=op, left=ex.Attr(name=name), right=ex.Const(value=value)) if op in _COMPARE:
            if name not in schema.names or name in plan.lacks:
                return None
            kind = schema.field(name).type
            is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind)
            fits = isinstance(value, str) if _is_string(kind) else is_number and isinstance(value, int | float)
            return _COMPARE[op](pc.field(name), value) if fits and not isinstance(value, bool) else None
        case _:
            return None


def _is_string(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))
