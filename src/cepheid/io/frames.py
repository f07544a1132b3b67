"""Converts Arrow, pandas and Polars tables, Parquet files and iterators to sources of events, and matches to a table of
the same kind."""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from cepheid.errors import InputProblem, shown, type_name
from cepheid.events import EMPTY_SCHEMA, Schema, timestamp
from cepheid.io.decoding import decoded, decoded_schema, require_distinct_names
from cepheid.io.event_columns import is_naive, localized, loses_digits, readable_type, require_time_column
from cepheid.io.files import FileSource, TextFile
from cepheid.io.formats.text import timestamps, usual_times
from cepheid.io.inputs import Columns, Input
from cepheid.io.merged import as_columns, merged, open_inputs, without_rows
from cepheid.io.rejects import Reject, reject_hint
from cepheid.io.rows import as_json, one_batch, row_dicts
from cepheid.io.source import BatchSource, Source, TableSource
from cepheid.io.table_rejects import rejected_rows, sifted
from cepheid.io.times import NO_TIME, OTHER_ZONE, skipped_time, time_hint, usual_time

Convert = Callable[[pa.Schema, Iterator[pa.RecordBatch]], Any]
"""Converts the schema and batches of the matches to the table type of the events."""

_EXPECTED = (
    "a pyarrow Table, RecordBatch or RecordBatchReader, a pandas or Polars DataFrame, the path of a file, an iterator "
    "of batches, a cepheid.Input, or a list or dictionary of several inputs"
)


@dataclass(frozen=True, slots=True)
class Opened:
    source: Source
    convert: Convert
    rejected: Any = None
    """The rows of a table that are not events, if there are any: a table of the same kind, with the reasons."""


def opened(
    events: Any, columns: Columns, unit: str | None = None, declared: Schema = EMPTY_SCHEMA, rejects: bool = False
) -> Opened | None:
    """The events as a source; None for an empty iterator, which has no schema. `unit` is that of integer times,
    `declared` holds the types that the query declares. Rows that are not events are an error, unless the user wants
    them (`rejects`)."""
    columns = replace(columns, unit=columns.unit or unit)
    inputs = inputs_of(events)
    if inputs is not None and all(isinstance(item.data, str | os.PathLike) for item in inputs):
        source = without_rows(open_inputs(inputs, columns, unit, declared))
        return Opened(_in_order(source if rejects else _without_rejects(source)), _table)
    if inputs is not None and len(inputs) == 1:
        return opened(inputs[0].data, inputs[0].columns(columns), unit, declared, rejects)
    if inputs is not None:
        return _merged(inputs, columns, unit, declared, rejects)
    if isinstance(events, pa.RecordBatchReader):
        schema = decoded_schema(events.schema)
        require_time_column(schema, columns)
        own = None
        if columns.text.zone is not None:
            schema, own = _timed(schema.empty_table(), columns).schema, columns
        batches = (batch for item in events for batch in _batches(item, own))
        return Opened(BatchSource(batches, schema, columns), pa.RecordBatchReader.from_batches)
    table, convert = _whole(events, columns)
    if table is not None and rejects:
        timed, reasons = sifted(table, columns)
        source = replace(
            TableSource.of(timed, columns, list(reasons)),
            rejected_rows=_listed(table, columns, reasons),
            has_nanoseconds=loses_digits(table.column(columns.time)),
        )
        return Opened(source, convert, rejected_rows(events, list(reasons), list(reasons.values())))
    if table is not None:
        source = TableSource.of(_timed(table, columns), columns)
        return Opened(replace(source, has_nanoseconds=loses_digits(table.column(columns.time))), convert)
    _require_batches(events)
    if isinstance(events, Iterable):
        batches = (batch for item in events for batch in _batches(item, columns))
        first = next(batches, None)
        if first is None:
            return None
        return Opened(BatchSource(itertools.chain([first], batches), first.schema, columns), lambda _, rows: rows)
    raise InputProblem(f"the events are of type {type_name(events)}", expected=_EXPECTED)


def _require_batches(events: Any) -> None:
    """Refuses what can be iterated and yields no tables: a file, an array, a column. DataFrames are no batches."""
    is_list, library = isinstance(events, list | tuple), type(events).__module__.partition(".")[0]
    if is_list and len(events) > 1 and all(type(item).__name__ == "DataFrame" for item in events):
        raise InputProblem(
            f"the events are a {type(events).__name__} of DataFrames",
            expected="one DataFrame, or several inputs, each with its event type: {'A': df, 'B': other}",
            hint="pandas.concat(events), or polars.concat(events), makes one of DataFrames with the same columns; "
            "[cepheid.Input(df), ...] reads each as an input",
        )
    hint = None
    if hasattr(events, "read"):
        hint = "pass its path in place of the open file: match(query, 'events.csv')"
    elif library == "numpy":
        hint = "give its columns names: pandas.DataFrame(events, columns=['type', 'ts', ...])"
    elif type(events).__name__ == "Series" or isinstance(events, pa.Array | pa.ChunkedArray):
        hint = "a column alone has no times: pass the whole table"
    if hint is not None:
        raise InputProblem(f"the events are of type {type_name(events)}", expected=_EXPECTED, hint=hint)


def inputs_of(events: Any) -> list[Input] | None:
    """The inputs, if the events are paths or described inputs, or several: a list of them, or a dictionary with one for
    each event type. None for a table or an iterator."""
    match events:
        case Input():
            return [events]
        case str() | os.PathLike():
            return [Input(events)]
        case Mapping():
            if not events:
                raise InputProblem("the dictionary of events is empty", expected="an input for each event type")
            if any(
                isinstance(item, list) and item and not isinstance(item[0], Input | str | os.PathLike)
                for item in events.values()
            ):
                raise InputProblem(
                    "the dictionary of events has lists of values",
                    expected="an input for each event type",
                    hint="make a table of columns: pyarrow.table(events)",
                )
            return [_of_type(kind, item) for kind, item in events.items()]
        case list() | tuple() if not events:
            raise InputProblem("the list of events is empty", expected="at least one file, table or record batch")
        case list() | tuple() if any(isinstance(item, Input | str | os.PathLike) for item in events):
            return [item if isinstance(item, Input) else Input(item) for item in events]
        case _:
            return None


def _of_type(kind: Any, item: Any) -> Input:
    if not isinstance(kind, str) or not kind:
        raise InputProblem(f"a key of the dictionary of events is {shown(repr(kind))}", expected="an event type")
    if isinstance(item, Input) and item.type not in (None, kind):
        raise InputProblem(f"the input of `{shown(kind)}` has the type `{shown(item.type or '')}`")
    return replace(item, type=kind) if isinstance(item, Input) else Input(item, kind)


def _merged(
    inputs: Sequence[Input], columns: Columns, unit: str | None, declared: Schema, rejects: bool
) -> Opened | None:
    """Several inputs. The matches are a table of the kind of the first table among them."""
    all_opened = [opened(item, columns, unit, declared, rejects) for item in inputs]
    known = [(item, one) for item, one in zip(inputs, all_opened, strict=True) if one is not None]
    if not known:
        return None
    for item, one in known:
        if one.source.attributes is None:
            raise InputProblem(
                f"one of several inputs is an iterator of batches ({item.name})",
                expected="tables or files: the event types of each input must be known",
            )
    convert = next((one.convert for item, one in known if not isinstance(item.data, str | os.PathLike)), _table)
    sources = [as_columns(one.source, item.name) for item, one in known]
    return Opened(merged(sources, [item.name for item, _ in known], unit), convert)


def _without_rejects(source: Source) -> Source:
    if source.rejected:
        first = next(iter(source.rejects()))
        help = reject_hint(first, in_python=True)
        if NO_TIME in first.reason:
            reasons = (reject.reason for reject in source.rejects() if NO_TIME in reject.reason)
            help = time_hint(reasons, source.columns.text.time_format)
        raise InputProblem(
            f"row {first.line} of `{shown(first.source, 200)}` is not a valid event: {first.reason}",
            hint=f"{help}; rejects=True returns the matches of the other rows"
            if help is not None
            else "drop such rows first, or use rejects=True, which returns the matches and the rejected rows",
        )
    return source


def _in_order(source: Source) -> Source:
    """A source of columnar files whose rows have numbers, as those of a table: if it is not in time order, it is read.
    A type lacks the columns that are empty for all its events, as on the command line."""
    if not isinstance(source, FileSource) or any(isinstance(file, TextFile) or file.type for file in source.files):
        return source
    if source.in_order:
        return source
    read = TableSource.of(source.whole(), source.columns)
    return replace(read, attributes=source.attributes, has_nanoseconds=source.has_nanoseconds)


def _whole(events: Any, columns: Columns | None = None) -> tuple[pa.Table | None, Convert]:
    """The events as a table (None if they are not a table), and the conversion of matches to the same type."""
    if isinstance(events, pa.Table):
        return _decoded(events), _table
    if isinstance(events, pa.RecordBatch):
        return _decoded(pa.Table.from_batches([events])), lambda schema, rows: one_batch(_table(schema, rows))
    library = type(events).__module__.partition(".")[0]
    if library == "pandas" and type(events).__name__ == "DataFrame":
        return _decoded(_from_pandas(events, columns)), _to_pandas(events)
    if library == "polars" and type(events).__name__ == "LazyFrame":
        events = events.collect()
    if library == "polars" and type(events).__name__ == "DataFrame":
        polars = sys.modules["polars"]
        table = events.to_arrow(compat_level=polars.CompatLevel.oldest())
        return table, lambda schema, rows: polars.from_arrow(_table(schema, rows))
    if hasattr(events, "__arrow_c_stream__"):
        return _decoded(pa.table(events)), _table
    return None, _table


def _from_pandas(events: Any, columns: Columns | None) -> pa.Table:
    """The DataFrame without the columns of mixed values that no query reads. One that a query reads is an error."""
    events = with_index(events)
    if columns is not None and columns.time not in events.columns:
        _refuse_index(events.index, columns.time)
    require_distinct_names(pa.schema([(str(name), pa.null()) for name in events.columns]), "the input")
    try:
        return pa.Table.from_pandas(events, preserve_index=False)
    except _NOT_CONVERTED as problem:
        mixed = [name for name in events.columns if not _has_one_type(events[name])]
        read = [name for name in mixed if columns is None or columns.reads(str(name))]
        if mixed and not read:
            return pa.Table.from_pandas(events.drop(columns=mixed), preserve_index=False)
        holds = "mixes values of several types" if isinstance(problem, pa.ArrowException) else "cannot be read"
        what = f"the column `{shown(str(read[0]))}` {holds}" if read else "the events"
        raise InputProblem(
            f"{what}: {shown(str(problem.args[0]), 200)}" if problem.args else what,
            expected="values of one type in each column that the query reads",
            hint="convert it first, in pandas with pd.to_numeric(..., errors='coerce') or .astype(str)",
        ) from problem


_NOT_CONVERTED = (pa.ArrowException, OverflowError, TypeError, ValueError)
"""What PyArrow raises for columns that it cannot convert: of mixed values, of integers beyond 64 bits, sparse ones."""


def with_index(events: Any) -> Any:
    """A pandas DataFrame whose index has names, with columns of these names."""
    named = [name for name in events.index.names if isinstance(name, str) and name not in events.columns]
    return events.reset_index(named) if named and len(set(named)) == len(named) else events


def _refuse_index(index: Any, time: str) -> None:
    """Refuses times that are an index without a name."""
    if type(index).__name__ == "DatetimeIndex" and index.name is None:
        raise InputProblem(
            f"there is no column `{shown(time)}`: the time is the index of the DataFrame",
            expected="a column of times",
            hint="make the index a column: events.reset_index(), time_column='index'; or name it: "
            f"events.rename_axis({time!r})",
        )


def _has_one_type(column: Any) -> bool:
    try:
        pa.array(column, from_pandas=True)
    except _NOT_CONVERTED:
        return False
    return True


def _to_pandas(events: Any) -> Convert:
    """Converts matches to a pandas DataFrame, with Arrow-backed columns if events have some: the events of a match are
    dictionaries otherwise, which take longer to create than the matches to find."""
    arrow = sys.modules["pandas"].ArrowDtype
    if any(isinstance(kind, arrow) for kind in events.dtypes):
        return lambda schema, rows: _table(schema, rows).to_pandas(types_mapper=arrow)
    return lambda schema, rows: _exact_frame(_table(schema, rows))


def _exact_frame(table: pa.Table) -> Any:
    """A pandas DataFrame of a table. PyArrow would show nanoseconds in structs as integers, and integers beside nulls
    as floats, which are not exact."""
    exact: dict[str, list[Any]] = {}
    for at, field in enumerate(table.schema):
        kind = _in_microseconds(field.type)
        if pa.types.is_nested(field.type) and kind != field.type:
            try:
                table = table.set_column(at, field.name, table.column(at).cast(kind))
            except pa.ArrowInvalid:  # some nanoseconds are not whole microseconds
                exact[field.name] = table.column(at).to_pylist()
    frame = table.to_pandas(integer_object_nulls=True)
    for name, values in exact.items():
        frame[name] = values
    pandas = sys.modules["pandas"]
    for field in table.schema:
        if pa.types.is_integer(field.type) and table.column(field.name).null_count:
            nullable = getattr(pandas, str(field.type).replace("int", "Int").replace("u", "U") + "Dtype")()
            frame[field.name] = table.column(field.name).to_pandas(types_mapper={field.type: nullable}.get)
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
    """The table with strings of ISO 8601 in the columns of times as timestamps, as in text files, and timestamps
    without a zone as those of the declared one."""
    for name in columns.times:
        if table.schema.names.count(name) != 1:
            continue
        at, column, zone = table.schema.get_field_index(name), table.column(name), columns.text.zone
        if zone is not None and is_naive(column.type):
            table = table.set_column(at, name, localized(column, name, zone))
            continue
        kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
        if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
            continue
        text, strings = columns.text, column.cast(pa.string())
        usual = usual_times(strings, text.time_format, text.zone) if text.rewrites_times else strings
        parsed = timestamps(usual)
        if parsed is None:
            raise _skipped(name, usual) or (
                _unread(name, strings) if text.time_format is None else _misformatted(name, strings, text.time_format)
            )
        table = table.set_column(at, name, parsed)
    return table


def _skipped(column: str, strings: pa.ChunkedArray) -> InputProblem | None:
    """The error of a time that clocks skip; None if there is none."""
    for row, text in enumerate(strings.to_pylist()):
        if text is not None and (reason := skipped_time(text)) is not None:
            return InputProblem(f"row {row} of `{shown(column)}`: {reason}", hint=OTHER_ZONE)
    return None


def _misformatted(column: str, strings: pa.ChunkedArray, format: str) -> InputProblem:
    texts = [(row, text) for row, text in enumerate(strings.to_pylist()) if text is not None]
    at, wrong = next((i, s) for i, s in texts if usual_time(s, format, None) is None and timestamp(s) is None)
    return InputProblem(
        f"the time `{shown(wrong)}` in row {at} of `{shown(column)}` does not have the format {shown(format)}",
        hint=time_hint((f"`{text}`" for _, text in texts), format),
    )


def _unread(column: str, strings: pa.ChunkedArray) -> InputProblem:
    """The error of strings that are no times, with the first of them and the format that it seems to have."""
    unread = [(i, s) for i, s in enumerate(strings.to_pylist()) if s is not None and timestamp(s) is None]
    at, wrong = unread[0]
    return InputProblem(
        f"the time `{shown(wrong)}` in row {at} of `{shown(column)}` is a string, {NO_TIME}",
        expected="timestamps, whole numbers, or strings of ISO 8601 (2024-03-01 08:00:00)",
        hint=time_hint(f"`{text}`" for _, text in unread),
    )


def _listed(table: pa.Table, columns: Columns, reasons: Mapping[int, str]) -> list[Reject]:
    """Rejected rows as those of files are listed."""
    rows = row_dicts(table.take(pa.array(reasons, pa.int64())))
    name = columns.event_type or "the table"
    return [Reject(name, at + 1, why, as_json(row)) for (at, why), row in zip(reasons.items(), rows, strict=True)]


def _batches(item: Any, columns: Columns | None = None) -> Iterator[pa.RecordBatch]:
    """The batches of an item of an iterator. `columns` are given if strings may be times: the schema is not settled."""
    table, _ = _whole(item, columns)
    if table is None:
        raise InputProblem(
            f"the iterator of events yields values of type {type_name(item)}",
            expected="record batches",
            hint="make a table of rows: pyarrow.Table.from_pylist(events)"
            if isinstance(item, dict)
            else "pass the whole table: the condition [key] of a query divides its events"
            if isinstance(item, tuple)
            else None,
        )
    if columns is not None:
        table = _timed(table, columns)
        require_time_column(table.schema, columns)
    # A table without rows has no batch, but its columns.
    yield from table.to_batches() or [pa.RecordBatch.from_pylist([], table.schema)]


def _table(schema: pa.Schema, rows: Iterator[pa.RecordBatch]) -> pa.Table:
    return pa.Table.from_batches(rows, schema=schema)
