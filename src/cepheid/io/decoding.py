"""Decodes Arrow columns: every value in a plain encoding, with valid text.

Kernels, `take` and predicates do not support run-end encoding, views, dictionaries of other values than strings,
extension types, and decimals other than decimal128. Strings are validated, because Parquet and ORC readers accept any
bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cepheid.errors import InputProblem, shown

R = TypeVar("R", pa.Table, pa.RecordBatch)

_BOOLEAN = "arrow.bool8"
_PLAIN_EXTENSIONS = (_BOOLEAN, "arrow.json", "arrow.uuid")
"""Extension types whose storage has the order and the equality of their values."""


def require_distinct_names(schema: pa.Schema, subject: str) -> None:
    """`subject` has the columns of the schema."""
    seen: set[str] = set()
    for name in schema.names:
        if name in seen:
            raise InputProblem(f"{subject} has two columns named `{shown(name)}`", hint="rename one of them")
        if "\0" in name:
            raise InputProblem(f"{subject} has a column whose name contains a NUL: `{shown(name)}`", hint="rename it")
        seen.add(name)


def united_schema(inputs: Iterable[tuple[str, pa.Schema]], is_read: Callable[[str], bool]) -> pa.Schema:
    """The columns of several inputs, each with its name for messages. A column whose types do not fit each other is an
    error if the query reads it, and left out if not."""
    fields: dict[str, tuple[str, pa.Field]] = {}
    unfit: set[str] = set()
    for name, schema in inputs:
        for field in schema.remove_metadata():
            first, known = fields.setdefault(field.name, (name, field))
            try:
                both = _united(known, field)
            except pa.ArrowException:
                if is_read(field.name):
                    raise InputProblem(
                        f"the column `{shown(field.name)}` is {known.type} in {first} and {field.type} in {name}",
                        expected="one type in all inputs",
                        hint="rename the column of one input, or write its values alike",
                    ) from None
                unfit.add(field.name)
            else:
                fields[field.name] = first, both
    return pa.schema([field for name, (_, field) in fields.items() if name not in unfit])


def widened(known: pa.Schema, more: pa.Schema, name: str) -> pa.Schema:
    """The columns of a source as they become known: with those of more of its events. A column whose types do not fit
    each other is an error."""
    if more == known:
        return known
    return united_schema(((f"`{shown(name)}`", known), (f"more of `{shown(name)}`", more)), lambda _: True)


def _united(one: pa.Field, two: pa.Field) -> pa.Field:
    is_moment = pa.types.is_timestamp
    if is_moment(one.type) and is_moment(two.type) and one.type.tz != two.type.tz:  # without a zone, in UTC
        one, two = (field.with_type(pa.timestamp(field.type.unit, "UTC")) for field in (one, two))
    return pa.unify_schemas([pa.schema([one]), pa.schema([two])], promote_options="permissive").field(0)


def decoded_schema(schema: pa.Schema) -> pa.Schema:
    return pa.schema([field.with_type(_decoded_type(field.type)) for field in schema], schema.metadata)


def decoded(rows: R) -> R:
    """ArrowInvalid if a string is not UTF-8."""
    schema = decoded_schema(rows.schema)
    columns = []
    for name, column, kind in zip(schema.names, rows.columns, schema.types, strict=True):
        plain = column if column.type == kind else _decoded(column, kind)
        if _has_strings(kind):
            _validate(plain, name)
        columns.append(plain)
    return type(rows).from_arrays(columns, schema=schema) if columns else rows


def _validate(column: pa.Array | pa.ChunkedArray, name: str) -> None:
    try:
        for chunk in column.chunks if isinstance(column, pa.ChunkedArray) else [column]:
            values = chunk.dictionary if isinstance(chunk, pa.DictionaryArray) else chunk
            if not _is_ascii(values):
                values.validate(full=True)
    except pa.ArrowInvalid as problem:
        raise pa.ArrowInvalid(f"the column `{shown(name)}` is damaged: {problem}") from problem


def _is_ascii(values: pa.Array) -> bool:
    """Whether all bytes of an array of strings are ASCII: a test many times as fast as the validation."""
    if not (pa.types.is_string(values.type) or pa.types.is_large_string(values.type)):
        return False
    _, offsets, data = values.buffers()
    if data is None or offsets is None or not len(values):
        return True
    width = np.int32 if pa.types.is_string(values.type) else np.int64
    ends = np.frombuffer(offsets, width)[values.offset : values.offset + len(values) + 1]
    content = np.frombuffer(data, np.int8)[ends[0] : ends[-1]]
    return not len(content) or int(content.min()) >= 0


def _decoded(column: pa.Array | pa.ChunkedArray, kind: pa.DataType) -> pa.Array | pa.ChunkedArray:
    if isinstance(column, pa.ChunkedArray):
        return pa.chunked_array([_decoded(chunk, kind) for chunk in column.chunks], kind)
    if pa.types.is_run_end_encoded(column.type):
        column = pc.run_end_decode(column)
    elif pa.types.is_dictionary(column.type):  # Arrow cannot take values of a view
        column = column.dictionary.cast(kind).take(column.indices)
    return column if column.type == kind else column.cast(kind)


@cache
def _decoded_type(kind: pa.DataType) -> pa.DataType:
    types = pa.types
    if types.is_run_end_encoded(kind):
        return _decoded_type(kind.value_type)
    if types.is_dictionary(kind):
        is_plain = types.is_string(kind.value_type) or types.is_large_string(kind.value_type)
        return kind if is_plain else _decoded_type(kind.value_type)
    if types.is_string_view(kind):
        return pa.string()
    if types.is_binary_view(kind):
        return pa.binary()
    if isinstance(kind, pa.BaseExtensionType) and kind.extension_name in _PLAIN_EXTENSIONS:
        return pa.bool_() if kind.extension_name == _BOOLEAN else _decoded_type(kind.storage_type)
    if types.is_decimal(kind) and not types.is_decimal128(kind) and kind.precision <= 38:
        return pa.decimal128(kind.precision, kind.scale)
    if types.is_struct(kind):
        return pa.struct([field.with_type(_decoded_type(field.type)) for field in kind])
    if types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_decoded_type(kind.value_type)))
    return kind


@cache
def _has_strings(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        return _has_strings(kind.value_type)
    if pa.types.is_nested(kind):
        return any(_has_strings(kind.field(index).type) for index in range(kind.num_fields))
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))
