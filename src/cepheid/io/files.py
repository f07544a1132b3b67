"""Files as one source of events, whatever their formats."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import NoneType
from typing import Any

import numpy as np
import pyarrow as pa

from cepheid.events import EMPTY_SCHEMA, UNTYPED, Schema
from cepheid.io.columnar import ColumnFile, TextFile, parquet_file, parquet_schema, scan, text_file, unified
from cepheid.io.formats import expand
from cepheid.io.inputs import Columns, Input
from cepheid.io.row_reader import Loaded, read_events
from cepheid.io.rows import ROW, TIME, TYPE
from cepheid.io.source import JSON, Source, TableSource

LEAST_TEXT = 1 << 20
"""Bytes of text below which the row reader is done before columns pay off; it shows numbers as they are written."""


def open_files(inputs: Sequence[Input], columns: Columns, declared: Schema = EMPTY_SCHEMA) -> Source:
    """The events of all inputs. Files are read as columns where every row can be read that way and shown as it is
    written; else row by row. `declared` holds the types that the query declares."""
    files = _column_files(inputs, columns, declared)
    if files is not None:
        source = scan(files, columns)
        has_text = any(isinstance(file, TextFile) for file in source.files)
        if not has_text or source.omits_nulls or source.is_uniform:
            return source
    return _row_source(read_events(inputs, columns.type, columns.time, declared=declared), columns)


def _column_files(inputs: Sequence[Input], columns: Columns, declared: Schema) -> list[list[ColumnFile]] | None:
    """The files of each input; None where they have to be read row by row."""
    expanded = [(item, expand(item.path)) for item in inputs]
    for item, paths in expanded:
        if any(format == "parquet" and not _is_columnar(path, item, columns) for path, format in paths):
            return None
    texts = [path for _, paths in expanded for path, format in paths if format != "parquet"]
    # Where a query declares types, every value is checked against them.
    if texts and (any(declared.types.values()) or sum(path.stat().st_size for path in texts) < LEAST_TEXT):
        return None
    opened: list[list[ColumnFile]] = []
    for item, paths in expanded:
        opened.append([])
        for path, format in paths:
            is_text = format != "parquet"
            file = text_file(path, format, item, columns) if is_text else parquet_file(str(path), item, columns)
            if file is None:
                return None
            opened[-1].append(file)
    return _with_one_schema(opened) if texts else opened


def _is_columnar(path: Path, item: Input, columns: Columns) -> bool:
    """Whether times and types are what they should be, so that no row has to be looked at by itself."""
    schema = parquet_schema(str(path))
    if columns.time not in schema.names:
        return False
    time = schema.field(columns.time).type
    if not (pa.types.is_integer(time) or pa.types.is_timestamp(time) or pa.types.is_date(time)):
        return False
    if item.type is None and columns.type in schema.names:
        kind = schema.field(columns.type).type
        kind = kind.value_type if pa.types.is_dictionary(kind) else kind
        return pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_null(kind)
    return True


def _with_one_schema(inputs: list[list[ColumnFile]]) -> list[list[ColumnFile]] | None:
    """The files with one type for each column. None where the row reader has to choose the rows to reject (some files
    of an input have types and others none, or a column is not of one type), or where nulls do not mean the same in all
    files."""
    files = [file for group in inputs for file in group]
    if any(file.omits_nulls for file in files) and any(file.sparse and not file.omits_nulls for file in files):
        return None
    if any(len({file.type == UNTYPED for file in group}) > 1 for group in inputs):
        return None
    try:
        schema = unified(files)
        if not all(isinstance(file, TextFile) or _is_within(file.schema, schema) for file in files):
            return None
        return [[_cast(file, schema) if isinstance(file, TextFile) else file for file in g] for g in inputs]
    except pa.ArrowException:  # text and numbers, integers and timestamps, or integers that floats would round
        return None


def _is_within(part: pa.Schema, schema: pa.Schema) -> bool:
    return all(pa.types.is_null(field.type) or field.type == schema.field(field.name).type for field in part)


def _cast(file: TextFile, schema: pa.Schema) -> TextFile:
    return replace(file, table=file.table.cast(pa.schema([schema.field(name) for name in file.schema.names])))


# --- rows as a source -------------------------------------------------------------------------------------------------


def _row_source(loaded: Loaded, columns: Columns) -> TableSource:
    """Rows as a table with a column for each attribute, and the rows themselves (see `source`)."""
    events = loaded.events
    types = [event.type for event in events]
    attributes: dict[str, dict[str, pa.DataType]] = {
        name: dict.fromkeys(of, pa.null()) for name, of in loaded.schema.types.items()
    }
    arrays: dict[str, pa.Array] = {}
    for name in dict.fromkeys([*(name for of in attributes.values() for name in of), columns.time]):
        values = [event.attributes.get(name) for event in events]
        if name == columns.time:
            ticks = pa.array(values, pa.int64())
            arrays[name] = ticks.cast(pa.timestamp("us", "UTC")) if loaded.clock.is_timestamp else ticks
        elif name not in (TYPE, TIME, ROW):
            arrays[name] = _column(values)
        for of_type, kind in _kinds_by_type(types, values).items():
            if name in attributes[of_type]:
                attributes[of_type][name] = arrays[name].type if name == columns.time else kind
    arrays[ROW] = pa.array([json.dumps(event.row, ensure_ascii=False) for event in events], pa.string())
    times = np.array([event.start for event in events], np.int64)
    encoded = pa.array(types, pa.string()).dictionary_encode()
    table = pa.RecordBatch.from_arrays(list(arrays.values()), names=list(arrays))
    return TableSource(table, columns, encoded, times, None, attributes, loaded.rejects)


_ARROW: Mapping[type, pa.DataType] = {int: pa.int64(), float: pa.float64(), str: pa.string(), bool: pa.bool_()}
_EXACT = 2**53
"""Integers up to here are floats as well."""


def _column(values: Sequence[Any]) -> pa.Array:
    """The values in a type that holds them all, or as JSON text."""
    kinds = {type(value) for value in values if value is not None}
    if not kinds:
        return pa.nulls(len(values))
    if kinds == {int, float} and all(abs(v) <= _EXACT for v in values if isinstance(v, int)):
        return pa.array([None if v is None else float(v) for v in values], pa.float64())
    is_wide = kinds == {int} and not all(-(2**63) < v < 2**63 for v in values if v is not None)
    if len(kinds) == 1 and kinds <= _ARROW.keys() and not is_wide:
        return pa.array(values, _ARROW[kinds.pop()])
    return pa.array([None if v is None else json.dumps(v, ensure_ascii=False).encode() for v in values], JSON)


def _kinds_by_type(types: Sequence[str], values: Sequence[Any]) -> dict[str, pa.DataType]:
    """The Arrow type that the values of an attribute have in events of each type."""
    kinds: dict[str, set[type]] = defaultdict(set)
    for of_type, kind in {(of_type, type(value)) for of_type, value in zip(types, values, strict=True)}:
        kinds[of_type].add(kind)
    return {
        of_type: _narrowest(found - {NoneType}, (v for t, v in zip(types, values, strict=True) if t == of_type))
        for of_type, found in kinds.items()
    }


def _narrowest(kinds: set[type], values: Iterator[Any]) -> pa.DataType:
    """`values` are read only where their Python types do not tell."""
    if not kinds:
        return pa.null()
    if kinds == {int}:
        return pa.int64() if all(v is None or -(2**63) <= v < 2**63 for v in values) else pa.float64()
    if kinds == {int, float}:
        return pa.float64()
    if kinds == {list}:
        items = (item for v in values if v is not None for item in v)
        is_numeric = all(isinstance(item, int | float) and not isinstance(item, bool) for item in items)
        return pa.list_(pa.float64() if is_numeric else JSON)
    return _ARROW[kinds.pop()] if len(kinds) == 1 else JSON
