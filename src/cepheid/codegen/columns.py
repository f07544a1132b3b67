"""Columns of Arrow tables as the arrays that kernels and masks read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cepheid.codegen.strings import dictionary_encoded
from cepheid.codegen.typed_columns import Column
from cepheid.codegen.typed_columns import from_arrow as typed
from cepheid.codegen.vector import as_float
from cepheid.errors import InputProblem
from cepheid.events import UNTYPED
from cepheid.physical import Kind, kind_of
from cepheid.runtime.arrays import NULL_CODE, NULL_INT
from cepheid.runtime.kernel import Array
from cepheid.types import MIXED, UNKNOWN, Family, Type, from_arrow

MASK = "\0mask"
"""The column of masks that were computed before, in Catalyst."""


def attribute(table: pa.RecordBatch, name: str) -> pa.Array | None:
    """The column of an attribute; a dotted name may lead into a struct."""
    if name in table.schema.names:
        column = table.column(name)
        return pc.run_end_decode(column) if pa.types.is_run_end_encoded(column.type) else column
    outer, _, inner = name.partition(".")
    if inner and outer in table.schema.names and pa.types.is_struct(table.schema.field(outer).type):
        struct = table.column(outer)
        if struct.type.get_field_index(inner) >= 0:
            return pc.struct_field(struct, inner)
    return None


def number_array(column: Column, type_: Type, length: int) -> Array:
    """A column that is not of codes as a kernel reads it (`physical.Kind`), with the null value of its kind."""
    kind = kind_of(type_)
    if kind is Kind.FLOAT:
        floats = np.broadcast_to(np.asarray(as_float(column), np.float64), (length,))
        return floats if column.valid is None else np.where(column.valid, floats, np.nan)
    values = np.broadcast_to(column.values, (length,))
    whole = values.view(np.int64) if values.dtype == np.uint64 else np.asarray(values, np.int64)
    null = NULL_CODE if kind is Kind.BOOL else NULL_INT
    return whole if column.valid is None else np.where(column.valid, whole, null)


def time_of(column: pa.Array) -> Array:
    if column.null_count:
        raise InputProblem(
            "an event has no time", expected="a time in every row", hint="drop rows without a time first"
        )
    if from_arrow(column.type).family not in (Family.INTEGER, Family.DATE, Family.TIMESTAMP):
        raise InputProblem(f"the time column holds {column.type}", expected="integers or timestamps")
    return np.asarray(typed(column).values, np.int64)


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


def schema_types(schema: pa.Schema) -> Mapping[str, Type]:
    """The type of every attribute of an Arrow schema that kernels can read, or columns can be derived from; fields of
    structs under dotted names."""
    types: dict[str, Type] = {}
    for column in schema:
        if pa.types.is_struct(column.type):
            types |= {f"{column.name}.{inner.name}": from_arrow(inner.type) for inner in column.type if _is_read(inner)}
        elif _is_read(column):
            types[column.name] = from_arrow(column.type)
    return types


def _is_read(field: pa.Field) -> bool:
    type_ = from_arrow(field.type)
    is_list = type_.family is Family.LIST
    return pa.types.is_null(field.type) if type_ in (UNKNOWN, MIXED) else is_list or kind_of(type_) is not None
