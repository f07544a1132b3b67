"""Files of any formats as one source of events.

Of columnar files (Parquet, Arrow, ORC) only the required columns are read, batch by batch if the rows are in time
order. Text files (CSV, JSON Lines) are held in memory as tables. The type and time columns are read first, to find the
event types and the order. A row without a time is rejected, and so is a row without a type if other rows have one, and
a row whose start is null or after its end.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cepheid.errors import shown
from cepheid.events import EMPTY_SCHEMA, UNTYPED, Schema, epoch_unit
from cepheid.io.decoding import united_schema
from cepheid.io.event_columns import (
    in_stream_order,
    is_time,
    local_times,
    one_type,
    require_time_column,
    schema_with_epochs,
    schema_with_zone,
    starts_in_time,
    starts_of,
    ticks_of,
    types_column,
    why_no_start,
    with_epochs,
    with_type_and_time,
    with_zone,
)
from cepheid.io.formats import expand, format_named
from cepheid.io.formats.columnar import ColumnFormat, column_format
from cepheid.io.formats.text import TextFormat, without_collecting
from cepheid.io.inputs import Columns, Input
from cepheid.io.refusals import rejects_of
from cepheid.io.rejects import Reject, no_time, no_type
from cepheid.io.row_reader import read_events, row_source
from cepheid.io.rows import START, TIME, RecentRows, aligned, as_json, is_moment, python_values, row_dicts
from cepheid.io.source import BATCH, Attributes, Source
from cepheid.io.times import LAST_TIME, MixedTimes, fraction_unit, out_of_range, skipped_time_reason
from cepheid.runtime.kernel import Array

LEAST_TEXT = 1 << 20
"""Text files of fewer bytes are read row by row, which is as fast and shows numbers as written."""


def open_files(inputs: Sequence[Input], columns: Columns, declared: Schema = EMPTY_SCHEMA) -> Source:
    """The events of all inputs, which have the same columns of type and time. Files are read as columns if that retains
    every row and every value, else row by row. `declared` holds the types that the query declares."""
    source = column_source(inputs, columns, declared)
    return row_source(read_events(inputs, columns, declared), columns) if source is None else source


def column_source(inputs: Sequence[Input], columns: Columns, declared: Schema = EMPTY_SCHEMA) -> FileSource | None:
    """The inputs as columns. None if the rows must be read one by one."""
    expanded = [(item, expand(item.path, item.format)) for item in inputs]
    texts = {path for _, paths in expanded for path, name in paths if isinstance(format_named(name), TextFormat)}
    for item, paths in expanded:
        if any(path not in texts and not _is_columnar(path, name, item, columns) for path, name in paths):
            return None
    # If the query declares types, the row reader checks every value against them.
    if texts and (any(declared.types.values()) or sum(path.stat().st_size for path in texts) < LEAST_TEXT):
        return None
    opened: list[list[EventFile]] = []
    for item, paths in expanded:
        opened.append([])
        for path, name in paths:
            file = _text_file(path, name, item, columns) if path in texts else column_file(path, name, item, columns)
            if file is None:
                return None
            opened[-1].append(file)
    if not texts:
        return scan(opened, columns)
    alike = _with_one_schema(opened)
    source = None if alike is None else scan(alike, columns)
    return source if source is not None and (source.omits_nulls or source.is_uniform) else None


def column_file(path: Path, name: str, item: Input, columns: Columns) -> ColumnFile:
    format = column_format(name)
    schema = format.schema(str(path))
    require_time_column(schema, columns)
    zone = item.columns(columns).text.zone
    local = local_times(schema, item.columns(columns))
    kind = item.type
    if kind is None and (columns.type not in schema.names or format.is_null(str(path), columns.type)):
        kind = UNTYPED
    if zone is None or not local:
        return ColumnFile(str(path), kind, name, schema)
    return ColumnFile(str(path), kind, name, schema_with_zone(schema, local, zone), local=local, zone=zone)


@without_collecting()
def _text_file(path: Path, name: str, item: Input, columns: Columns) -> TextFile | None:
    """None if the file must be read row by row."""
    format = format_named(name)
    assert isinstance(format, TextFormat)
    text = format.columns(path, item.columns(columns), item.type)
    if text is None:
        return None
    rejects = rejects_of(text, str(path), columns, item.type, format.is_tabular)
    if rejects is None:
        return None
    has_types = columns.type in text.rows.column_names and text.rows.column(columns.type).type != pa.null()
    kind = UNTYPED if item.type is None and not has_types else item.type
    return TextFile(str(path), kind, text.rows, text.omits_nulls, tuple(rejects), text.has_nanoseconds)


def _is_columnar(path: Path, name: str, item: Input, columns: Columns) -> bool:
    """Whether the time, start and type columns have types that need no check of each row."""
    schema = column_format(name).schema(str(path))
    if columns.time not in schema.names:
        return False
    times = [schema.field(name).type for name in columns.times if name in schema.names]
    if not all(pa.types.is_integer(time) or is_moment(time) for time in times):
        return False
    if item.type is None and columns.type in schema.names:
        kind = schema.field(columns.type).type
        kind = kind.value_type if pa.types.is_dictionary(kind) else kind
        tests = (pa.types.is_string, pa.types.is_large_string, pa.types.is_integer, pa.types.is_null)
        return any(test(kind) for test in tests)
    return True


def _with_one_schema(inputs: list[list[EventFile]]) -> list[list[EventFile]] | None:
    """The files with the same type for each column. None if the row reader must choose rows to reject (only some files
    of an input have event types, or a column has several types), or if files differ in the meaning of null."""
    files = [file for group in inputs for file in group]
    if any(file.omits_nulls for file in files) and any(file.sparse and not file.omits_nulls for file in files):
        return None
    if any(len({file.type == UNTYPED for file in group}) > 1 for group in inputs):
        return None
    try:
        schema = pa.unify_schemas([file.schema.remove_metadata() for file in files], promote_options="permissive")
        if not all(isinstance(file, TextFile) or _is_within(file.schema, schema) for file in files):
            return None
        return [[_cast(file, schema) if isinstance(file, TextFile) else file for file in g] for g in inputs]
    except pa.ArrowException:  # text and numbers, integers and timestamps, or integers that floats would round
        return None


def _is_within(part: pa.Schema, schema: pa.Schema) -> bool:
    return all(pa.types.is_null(field.type) or field.type == schema.field(field.name).type for field in part)


def _cast(file: TextFile, schema: pa.Schema) -> TextFile:
    return replace(file, table=file.table.cast(pa.schema([schema.field(name) for name in file.schema.names])))


# --- files ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ColumnFile:
    """A columnar file, read batch by batch."""

    path: str
    type: str | None
    """The type of its events. None if the type column holds it, UNTYPED if the events have no type."""
    format: str
    schema: pa.Schema
    omits_nulls: bool = False
    epochs: tuple[str, ...] = ()
    """The columns of times that are numbers with fractions, in `epoch_unit`, and read as timestamps."""
    epoch_unit: str | None = None
    local: tuple[str, ...] = ()
    """The columns of times without a zone, which are those of `zone`."""
    zone: str | None = None

    @property
    def reader(self) -> ColumnFormat:
        return column_format(self.format)

    @property
    def count(self) -> int:
        with self.reader.opened(self.path) as file:
            return file.count

    @property
    def sparse(self) -> list[str]:
        """The columns that may have nulls."""
        with self.reader.opened(self.path) as file:
            filled = file.filled()
        return [name for name in self.schema.names if name not in filled]

    def read(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        for batch in self.reader.batches(self.path, names):
            timed = batch if self.epoch_unit is None else with_epochs(batch, self.epochs, self.epoch_unit)
            yield timed if self.zone is None else with_zone(timed, self.local, self.zone)

    def as_timestamps(self, columns: Columns, unit: str) -> ColumnFile:
        names = [n for n in columns.times if n in self.schema.names and not is_moment(self.schema.field(n).type)]
        return replace(self, schema=schema_with_epochs(self.schema, names), epochs=tuple(names), epoch_unit=unit)


@dataclass(frozen=True, slots=True)
class TextFile:
    """A text file in memory. Every row of the table is an event."""

    path: str
    type: str | None
    table: pa.Table
    omits_nulls: bool = False
    """Whether a null means that the row lacks the attribute."""
    rejects: tuple[Reject, ...] = ()
    has_nanoseconds: bool = False

    @property
    def count(self) -> int:
        return int(self.table.num_rows)

    @property
    def sparse(self) -> list[str]:
        return [name for name in self.table.column_names if self.table.column(name).null_count]

    @property
    def schema(self) -> pa.Schema:
        return self.table.schema

    def read(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        yield from self.table.select(list(names)).to_batches(BATCH)


EventFile = ColumnFile | TextFile


@dataclass(frozen=True, slots=True)
class FileSource:
    """Several files as one source."""

    files: tuple[EventFile, ...]
    schema: pa.Schema
    columns: Columns
    attributes: Attributes
    count: int
    rejected: int
    in_order: bool
    is_uniform: bool
    """Whether the events of a type have the same columns in every file."""
    epoch_unit: str | None = None
    """The unit of times that are numbers with fractions."""
    extreme_times: tuple[int, int] | None = None
    is_closed: bool = False
    """Whether the types and attributes that the files show are all there are."""

    @property
    def omits_nulls(self) -> bool:
        return any(file.omits_nulls for file in self.files)

    @property
    def has_nanoseconds(self) -> bool:
        return any(_has_nanoseconds(file, self.columns.time) for file in self.files)

    def batches(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        if self.in_order:
            yield from self._accepted(names)
            return
        whole = pa.Table.from_batches(self._accepted(names))
        starts = whole.column(START).to_numpy() if START in whole.column_names else None
        order = in_stream_order(whole.column(TIME).to_numpy(), starts)
        yield from (whole if order is None else whole.take(pa.array(order))).to_batches(BATCH)

    def sample(self, names: Sequence[str], size: int) -> pa.RecordBatch | None:
        """None if the files are not in time order, because finding the first events would take reading all."""
        first = next(self.batches(names), None) if self.in_order else None
        return None if first is None else first.slice(0, size)

    def rows(self, names: Sequence[str]) -> RecentRows:
        return RecentRows(names)

    def whole(self) -> pa.Table:
        """All rows, in the order of the files."""
        return pa.Table.from_batches(batch.select(self.schema.names) for batch in self._accepted(self.schema.names))

    def rejects(self) -> Iterator[Reject]:
        if not self.rejected:
            return
        for file in self.files:
            if isinstance(file, TextFile):
                yield from file.rejects
                continue
            line, names = 0, file.schema.names
            for batch, stored in zip(file.read(names), file.reader.batches(file.path, names), strict=True):
                rejected = np.flatnonzero(~_is_event(batch, file, self.columns))
                for at, row in zip(rejected.tolist(), row_dicts(stored.take(pa.array(rejected))), strict=True):
                    why = _skipped(file, batch, stored, at, self.columns) or self._reason(batch, at)
                    yield Reject(file.path, line + at + 1, why, as_json(row))
                line += batch.num_rows

    def _reason(self, batch: pa.RecordBatch, row: int) -> str:
        time = batch.column(self.columns.time).slice(row, 1)
        if is_time(time).all():
            is_timed = starts_in_time(batch.slice(row, 1), self.columns).all()
            return no_type(self.columns.type) if is_timed else why_no_start(batch, row, self.columns)
        return (
            no_time(self.columns.time)
            if time.is_null(nan_is_null=True)[0].as_py()
            else out_of_range(python_values(time)[0])
        )

    def _accepted(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        for file in self.files:
            present = [name for name in names if name in file.schema.names]
            for batch in _events_in(file, self.columns, present):
                yield _aligned(batch, file, names, self.schema, self.columns)


def _has_nanoseconds(file: EventFile, time: str) -> bool:
    if isinstance(file, TextFile):
        return file.has_nanoseconds
    with file.reader.opened(file.path) as opened:
        return opened.has_nanoseconds(time)


def _skipped(file: ColumnFile, batch: pa.RecordBatch, stored: pa.RecordBatch, row: int, columns: Columns) -> str | None:
    """The reason to reject a row whose time or start clocks have skipped."""
    for noun, name in zip(("time", "start"), columns.times, strict=False):
        written = stored.column(name)[row]
        if name in file.local and file.zone is not None and written.is_valid and not batch.column(name)[row].is_valid:
            return skipped_time_reason(str(written), file.zone, noun)
    return None


def _aligned(
    batch: pa.RecordBatch, file: EventFile, names: Sequence[str], schema: pa.Schema, columns: Columns
) -> pa.RecordBatch:
    """The batch with the columns of the unified schema, its types and its times."""
    whole = aligned(batch, pa.schema([schema.field(name) for name in names]))
    ticks = ticks_of(batch.column(columns.time), columns.time)
    starts = starts_of(batch, columns, ticks)
    return with_type_and_time(whole, names, _types(batch, file, columns), ticks, starts)


def _types(batch: pa.RecordBatch, file: EventFile, columns: Columns) -> pa.Array:
    return types_column(batch, columns) if file.type is None else one_type(file.type, batch.num_rows)


# --- reading ----------------------------------------------------------------------------------------------------------


def _events_in(file: EventFile, columns: Columns, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    wanted = [*names, *columns.times, *([columns.type] if file.type is None else [])]
    for batch in file.read(list(dict.fromkeys(wanted))):
        events = _is_event(batch, file, columns)
        yield batch if bool(events.all()) else batch.filter(pa.array(events))


def _is_event(batch: pa.RecordBatch, file: EventFile, columns: Columns) -> Array:
    events = is_time(batch.column(columns.time))
    if columns.start is not None:
        events &= starts_in_time(batch, columns)
    if file.type is None:
        kinds = batch.column(columns.type)
        kinds = kinds.dictionary_decode() if pa.types.is_dictionary(kinds.type) else kinds
        is_typed = kinds.is_valid() if pa.types.is_integer(kinds.type) else pc.not_equal(kinds, UNTYPED)
        events &= np.asarray(is_typed.fill_null(False))
    return events


# --- types and order --------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Scan:
    """Collects the types and the order of events."""

    columns: Columns
    count: int = 0
    rejected: int = 0
    last: tuple[int, int] | None = None
    """The end and the start of the last event."""
    earliest: int = LAST_TIME
    latest: int = -LAST_TIME
    in_order: bool = True
    filled: dict[str, set[str]] = field(default_factory=dict)
    """The columns of each type that are not null in every event."""

    def add(self, file: EventFile, sparse: Sequence[str]) -> set[str]:
        """Reads the times, the types and the columns that may have nulls. Returns the types."""
        types: set[str] = set()
        rows = 0
        for batch in _events_in(file, self.columns, sparse):
            ticks = ticks_of(batch.column(self.columns.time), self.columns.time)
            self._add_times(ticks, starts_of(batch, self.columns, ticks))
            encoded = _types(batch, file, self.columns)
            codes, names = pc.unique(encoded.indices).to_pylist(), encoded.dictionary.to_pylist()
            for code in codes:
                chosen = batch if len(codes) == 1 or not sparse else batch.filter(pc.equal(encoded.indices, code))
                has = {n for n in sparse if chosen.column(n).null_count < chosen.num_rows}
                self.filled.setdefault(names[code], set()).update(has)
                types.add(names[code])
            rows += batch.num_rows
        self.count += rows
        self.rejected += file.count - rows + (len(file.rejects) if isinstance(file, TextFile) else 0)
        return types

    def _add_times(self, ticks: Array, starts: Array | None) -> None:
        if len(ticks):
            first, last = ((int(ticks[i]), int((ticks if starts is None else starts)[i])) for i in (0, -1))
            backwards = (self.last is not None and first < self.last) or in_stream_order(ticks, starts) is not None
            self.in_order = self.in_order and not backwards
            self.last = last
            self.earliest = min(self.earliest, int(ticks.min()))
            self.latest = max(self.latest, int(ticks.max()))


def scan(inputs: Sequence[Sequence[EventFile]], columns: Columns) -> FileSource:
    """The files of all inputs as one source in time order. Events with equal times remain in order of arrival."""
    read = _Scan(columns)
    fractions = _fraction_unit([file for group in inputs for file in group], columns)
    if fractions is not None:
        inputs = [
            [file.as_timestamps(columns, fractions) if isinstance(file, ColumnFile) else file for file in group]
            for group in inputs
        ]
    files = [file for group in inputs for file in group]
    _require_one_kind_of_time(files, columns)
    attributes: dict[str, dict[str, None]] = {}
    is_uniform = True
    for group in inputs:
        sparse = dict.fromkeys(name for file in group for name in file.sparse)
        read.filled = {}
        types = [read.add(file, [n for n in sparse if n in file.schema.names]) for file in group]
        used = set().union(*read.filled.values())
        for name in sorted(read.filled):
            lacking = {n for n in sparse if n in used and n not in read.filled[name]}
            for file in (file for file, of_file in zip(group, types, strict=True) if name in of_file):
                has = dict.fromkeys(n for n in file.schema.names if n not in lacking)
                is_uniform = is_uniform and attributes.setdefault(name, has).keys() == has.keys()
                attributes[name] = {**attributes.get(name, {}), **has}
    schema = united_schema(((f"`{shown(file.path)}`", file.schema) for file in files), columns.reads)
    of_types = {name: {n: schema.field(n).type for n in schema.names if n in has} for name, has in attributes.items()}
    is_integer = not is_moment(schema.field(columns.time).type)
    unit = epoch_unit(read.earliest, read.latest) if is_integer else fractions
    return FileSource(
        tuple(files),
        schema,
        columns,
        of_types,
        read.count,
        read.rejected,
        read.in_order,
        is_uniform,
        unit,
        (read.earliest, read.latest) if read.count else None,
    )


def _fraction_unit(files: Sequence[EventFile], columns: Columns) -> str | None:
    """The unit of times with fractions, in a column of floats (ruling 1)."""
    first, last, has_fractions = math.inf, -math.inf, False
    kinds = [file.schema.field(columns.time).type for file in files if columns.time in file.schema.names]
    if not any(map(pa.types.is_floating, kinds)) or any(map(is_moment, kinds)):
        return None
    for file in files:
        for batch in file.read([columns.time]):
            values = np.asarray(batch.column(0).cast(pa.float64(), safe=False))
            values = values[np.abs(values) <= LAST_TIME]
            if len(values):
                first, last = min(first, float(values.min())), max(last, float(values.max()))
                has_fractions = has_fractions or bool((np.floor(values) != values).any())
    return fraction_unit(first, last, columns.unit) if has_fractions else None


def _require_one_kind_of_time(files: Sequence[EventFile], columns: Columns) -> None:
    kinds: dict[str, EventFile] = {}
    for file in files:
        kind = file.schema.field(columns.time).type
        kinds.setdefault("timestamps" if is_moment(kind) else "integers", file)
    if len(kinds) > 1:
        sides = " but ".join(f"in `{shown(file.path)}` it is {kind}" for kind, file in kinds.items())
        raise MixedTimes(
            f"the time column `{shown(columns.time)}` is not of one kind: {sides}",
            expected="integers in every input, or timestamps in every input",
        )
