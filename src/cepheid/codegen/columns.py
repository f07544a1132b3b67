"""Columns of Arrow tables as the arrays that kernels and masks read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cepheid.codegen.strings import dictionary_encoded
from cepheid.errors import InputProblem
from cepheid.events import UNTYPED
from cepheid.physical import Kind
from cepheid.runtime.arrays import NULL_CODE, NULL_INT
from cepheid.runtime.kernel import Array

MASK = "\0mask"
"""The column of masks that were computed before, in Catalyst."""


def kind_of(arrow_type: pa.DataType) -> Kind | None:
    """How a column of this type is held; None for types that kernels do not read."""
    if pa.types.is_dictionary(arrow_type):
        return kind_of(arrow_type.value_type)
    if pa.types.is_integer(arrow_type) or pa.types.is_timestamp(arrow_type) or pa.types.is_date(arrow_type):
        return Kind.INT
    if pa.types.is_floating(arrow_type) or pa.types.is_decimal(arrow_type):
        return Kind.FLOAT
    if pa.types.is_string(arrow_type) or pa.types.is_large_string(arrow_type) or pa.types.is_boolean(arrow_type):
        return Kind.CODE
    if pa.types.is_null(arrow_type):
        return Kind.FLOAT
    return None


def null_value(kind: Kind) -> tuple[Any, Any]:
    """The value that stands for null in an array, and the type of the array."""
    if kind is Kind.FLOAT:
        return np.nan, np.float64
    return (NULL_CODE if kind is Kind.CODE else NULL_INT), np.int64


def attribute(table: pa.RecordBatch, name: str) -> pa.Array | None:
    """The column of an attribute; a dotted name may lead into a struct."""
    if name in table.schema.names:
        return table.column(name)
    outer, _, inner = name.partition(".")
    if inner and outer in table.schema.names and pa.types.is_struct(table.schema.field(outer).type):
        struct = table.column(outer)
        if struct.type.get_field_index(inner) >= 0:
            return pc.struct_field(struct, inner)
    return None


def number_array(column: pa.Array, kind: Kind) -> Array:
    """A column of numbers (or booleans) as NumPy, nulls as the kernel's nulls."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64())
    elif pa.types.is_date(column.type):
        column = column.cast(pa.timestamp("us")).cast(pa.int64())
    wanted, (fill, dtype) = (pa.float64() if kind is Kind.FLOAT else pa.int64()), null_value(kind)
    if column.type != wanted:
        column = column.cast(wanted, safe=kind is not Kind.FLOAT)  # a float is the nearest one
    if column.null_count:
        column = column.fill_null(pa.scalar(fill, wanted))
    return np.asarray(column.to_numpy(zero_copy_only=False), dtype)


def time_of(column: pa.Array) -> Array:
    if column.null_count:
        raise InputProblem(
            "an event has no time", expected="a time in every row", hint="drop rows without a time first"
        )
    if kind_of(column.type) is not Kind.INT:
        raise InputProblem(f"the time column holds {column.type}", expected="integers or timestamps")
    return number_array(column, Kind.INT)


def types_of(table: pa.RecordBatch, type_column: str) -> tuple[list[str], Array]:
    """The distinct event types of a batch, and for each row the number of its type."""
    if type_column not in table.schema.names:
        return [UNTYPED], np.zeros(table.num_rows, np.int64)
    column = table.column(type_column)
    encoded = column if isinstance(column, pa.DictionaryArray) else dictionary_encoded(column)
    names: list[Any] = encoded.dictionary.to_pylist()
    indices = encoded.indices
    if indices.null_count:
        indices = indices.fill_null(len(names))
    return [str(name) for name in names] + [UNTYPED], indices.to_numpy(zero_copy_only=False)


def schema_kinds(schema: pa.Schema, skip: Sequence[str] = ()) -> Mapping[str, Kind]:
    """The kind of every attribute of an Arrow schema, fields of structs under dotted names."""
    kinds: dict[str, Kind] = {}
    for column in schema:
        if pa.types.is_struct(column.type):
            for inner in column.type:
                if (kind := kind_of(inner.type)) is not None:
                    kinds[f"{column.name}.{inner.name}"] = kind
        elif column.name not in skip and (kind := kind_of(column.type)) is not None:
            kinds[column.name] = kind
    return kinds
