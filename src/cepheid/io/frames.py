"""Converts Arrow, pandas and Polars tables, Parquet files and iterators to sources of events, and matches to a table of
the same kind."""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from cepheid.errors import InputProblem, listing, shown
from cepheid.io.decoding import decoded, decoded_schema
from cepheid.io.files import column_file, scan
from cepheid.io.formats import expand, format_named
from cepheid.io.formats.text import TextFormat, timestamps
from cepheid.io.inputs import Columns, Input
from cepheid.io.rows import one_batch
from cepheid.io.source import BatchSource, Source, TableSource, readable_type, require_time_column

Convert = Callable[[pa.Schema, Iterator[pa.RecordBatch]], Any]
"""Converts the schema and batches of the matches to the table type of the events."""

_EXPECTED = (
    "a pyarrow Table, RecordBatch or RecordBatchReader, a pandas or Polars DataFrame, the path of a Parquet, Arrow or "
    "ORC file, or an iterator of batches"
)


@dataclass(frozen=True, slots=True)
class Opened:
    source: Source
    convert: Convert


def opened(events: Any, columns: Columns) -> Opened | None:
    """The events as a source; None for an empty iterator, which has no schema."""
    if isinstance(events, str | os.PathLike):
        return Opened(_file(os.fspath(events), columns), _table)
    if isinstance(events, pa.RecordBatchReader):
        schema = decoded_schema(events.schema)
        require_time_column(schema, columns)
        batches = (batch for item in events for batch in _batches(item))
        return Opened(BatchSource(batches, schema, columns), pa.RecordBatchReader.from_batches)
    if isinstance(events, Mapping):
        raise InputProblem(
            f"the events are a dictionary ({listing(map(str, events))})",
            expected="one table, in which a column names the type of each event",
            hint="pandas.concat([df.assign(type=name) for name, df in tables.items()])",
        )
    table, convert = _whole(events)
    if table is not None:
        return Opened(TableSource.of(_timed(table, columns), columns), convert)
    if isinstance(events, Iterable):
        batches = (batch for item in events for batch in _batches(item, columns))
        first = next(batches, None)
        if first is None:
            return None
        return Opened(BatchSource(itertools.chain([first], batches), first.schema, columns), lambda _, rows: rows)
    raise InputProblem(f"events cannot be read from a {type(events).__name__}", expected=_EXPECTED)


def _file(path: str, columns: Columns) -> Source:
    files = expand(path)
    text = [file for file, name in files if isinstance(format_named(name), TextFormat)]
    if text:
        raise InputProblem(
            f"`{shown(str(text[0]), 200)}` is not a Parquet, Arrow or ORC file",
            expected="one of these, or a table read from the file",
        )
    source = scan([[column_file(file, name, Input(path), columns) for file, name in files]], columns)
    if source.rejected:
        first = next(source.rejects())
        raise InputProblem(
            f"row {first.line} of `{shown(first.source, 200)}` is not a valid event: {first.reason}",
            hint="drop such rows first (`cepheid run` writes them to its reject output)",
        )
    if not source.in_order:
        return TableSource.of(source.whole(), columns)
    everything = {field.name: field.type for field in source.schema}
    return replace(source, attributes=dict.fromkeys(source.attributes, everything))


def _whole(events: Any) -> tuple[pa.Table | None, Convert]:
    """The events as a table (None if they are not a table), and the conversion of matches to the same type."""
    if isinstance(events, pa.Table):
        return _decoded(events), _table
    if isinstance(events, pa.RecordBatch):
        return _decoded(pa.Table.from_batches([events])), lambda schema, rows: one_batch(_table(schema, rows))
    library = type(events).__module__.partition(".")[0]
    if library == "pandas" and type(events).__name__ == "DataFrame":
        return _decoded(pa.Table.from_pandas(events, preserve_index=False)), _to_pandas(events)
    if library == "polars" and type(events).__name__ == "LazyFrame":
        events = events.collect()
    if library == "polars" and type(events).__name__ == "DataFrame":
        polars = sys.modules["polars"]
        table = events.to_arrow(compat_level=polars.CompatLevel.oldest())
        return table, lambda schema, rows: polars.from_arrow(_table(schema, rows))
    if hasattr(events, "__arrow_c_stream__"):
        return _decoded(pa.table(events)), _table
    return None, _table


def _to_pandas(events: Any) -> Convert:
    """Converts matches to a pandas DataFrame, with Arrow-backed columns if events have some: the events of a match are
    dictionaries otherwise, which take longer to create than the matches to find."""
    arrow = sys.modules["pandas"].ArrowDtype
    if any(isinstance(kind, arrow) for kind in events.dtypes):
        return lambda schema, rows: _table(schema, rows).to_pandas(types_mapper=arrow)
    return lambda schema, rows: _with_timestamps(_table(schema, rows))


def _with_timestamps(table: pa.Table) -> Any:
    """A pandas DataFrame of a table. PyArrow would show nanoseconds inside structs as integers."""
    exact: dict[str, list[Any]] = {}
    for at, field in enumerate(table.schema):
        kind = _in_microseconds(field.type)
        if pa.types.is_nested(field.type) and kind != field.type:
            try:
                table = table.set_column(at, field.name, table.column(at).cast(kind))
            except pa.ArrowInvalid:  # some nanoseconds are not whole microseconds
                exact[field.name] = table.column(at).to_pylist()
    frame = table.to_pandas()
    for name, values in exact.items():
        frame[name] = values
    return frame


def _in_microseconds(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_in_microseconds(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_in_microseconds(kind.value_type)))
    return readable_type(kind)


def _decoded(table: pa.Table) -> pa.Table:
    try:
        return decoded(table)
    except pa.ArrowException as problem:
        raise InputProblem(f"the events cannot be read: {shown(str(problem), 200)}") from problem


def _timed(table: pa.Table, columns: Columns) -> pa.Table:
    """The table with strings of ISO 8601 in the columns of times as timestamps, as in text files. Other strings stay,
    for the error that names the column."""
    for name in columns.times:
        if table.schema.names.count(name) != 1:
            continue
        column = table.column(name)
        kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
        if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
            continue
        parsed = timestamps(column.cast(pa.string()))
        if parsed is not None:
            table = table.set_column(table.schema.get_field_index(name), name, parsed)
    return table


def _batches(item: Any, columns: Columns | None = None) -> Iterator[pa.RecordBatch]:
    """The batches of an item of an iterator. `columns` are given if strings may be times: the schema is not settled."""
    table, _ = _whole(item)
    if table is None:
        raise InputProblem(f"the iterator of events yields a {type(item).__name__}", expected="record batches")
    if columns is not None:
        table = _timed(table, columns)
        require_time_column(table.schema, columns)
    yield from table.to_batches()


def _table(schema: pa.Schema, rows: Iterator[pa.RecordBatch]) -> pa.Table:
    return pa.Table.from_batches(rows, schema=schema)
