"""Values of a stream's later files in the column types that its first files settled. A value that a column can hold
without loss is accepted, whatever its own type; any other is a misfit, and its row is rejected.
"""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cepheid.events import timestamp
from cepheid.io.rows import dumps, plain
from cepheid.io.source import JSON
from cepheid.runtime.kernel import Array
from cepheid.types import Family, Type, from_arrow

_TIMES = (Family.DATE, Family.TIMESTAMP)
_FALSE, _TRUE = "false", "true"


class Misfit(Exception):
    """The column cannot hold the value."""


# --- values of text files ---------------------------------------------------------------------------------------------


def converted(value: Any, kind: pa.DataType) -> Any:
    """A value of JSON as the column holds it."""
    if value is None:
        return None
    if kind == JSON:
        return dumps(plain(value)).encode()
    family = from_arrow(kind).family
    match value:
        case bool():
            if family is Family.BOOLEAN:
                return value
        case int() | float() if family in (Family.INTEGER, Family.UNSIGNED):
            if value == value // 1:
                return _checked(int(value), kind)
        case int() | float() if family is Family.FLOAT:
            if _checked(value, kind) == value:
                return float(value)
        case int() | float() | Decimal() if family is Family.DECIMAL:
            return _checked(Decimal(str(value)), kind)
        case str() if family is Family.STRING:
            return value
        case str() if family in _TIMES:
            ticks = timestamp(value)
            if ticks is not None:
                return (
                    pa.scalar(ticks, pa.timestamp("us", "UTC")).as_py() if family is Family.TIMESTAMP else _day(ticks)
                )
        case list() if family is Family.LIST:
            return [converted(item, kind.value_type) for item in value]
    raise Misfit


def parsed(cell: str, kind: pa.DataType) -> Any:
    """The value of a CSV cell, in the type of its column."""
    text = cell.strip()
    match from_arrow(kind).family:
        case Family.BOOLEAN:
            if text.lower() in (_FALSE, _TRUE):
                return text.lower() == _TRUE
        case Family.INTEGER | Family.UNSIGNED | Family.FLOAT | Family.DECIMAL as family:
            try:
                number = Decimal(text)
            except InvalidOperation:
                raise Misfit from None
            if number.is_finite():
                is_whole = text.lstrip("+-").isdigit()
                return int(number) if is_whole else number if family is Family.DECIMAL else float(number)
        case _:
            return cell
    raise Misfit


def _checked(value: Any, kind: pa.DataType) -> Any:
    try:
        return pa.scalar(value, kind).as_py()
    except (pa.ArrowException, OverflowError) as problem:
        raise Misfit from problem


def _day(ticks: int) -> Any:
    try:
        return pa.scalar(ticks, pa.timestamp("us")).cast(pa.date32()).as_py()
    except pa.ArrowException as problem:
        raise Misfit from problem


# --- columns ----------------------------------------------------------------------------------------------------------


def fitted(column: pa.ChunkedArray, kind: pa.DataType) -> tuple[pa.ChunkedArray, Array | None]:
    """The column in another type, and which rows do not fit into it, if any: they are null."""
    if column.type == kind or pa.types.is_null(column.type):
        return column.cast(kind), None
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_floating(column.type):
        column = pc.if_else(pc.is_nan(column), pa.scalar(None, column.type), column)
    if _may_fit(from_arrow(column.type), from_arrow(kind)):
        try:
            return _cast(column, kind), None
        except pa.ArrowException:
            pass
        return _fitted_by_value(column, kind)
    return pa.chunked_array([pa.nulls(len(column), kind)]), np.asarray(column.is_valid())


def _may_fit(own: Type, wanted: Type) -> bool:
    """Whether some value of a type has an equal one in the other. A time never becomes a number, nor text."""
    is_number = own.is_number and wanted.is_number
    return own.family is wanted.family or is_number or (own.family in _TIMES and wanted.family in _TIMES)


def _cast(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    is_finer = pa.types.is_timestamp(column.type) and column.type.unit == "ns"
    return column.cast(kind, safe=not (is_finer and pa.types.is_timestamp(kind)))


def _fitted_by_value(column: pa.ChunkedArray, kind: pa.DataType) -> tuple[pa.ChunkedArray, Array]:
    values, misfits = [], np.zeros(len(column), bool)
    for number, value in enumerate(column):
        try:
            values.append(value.cast(kind))
        except pa.ArrowException:
            values.append(pa.scalar(None, kind))
            misfits[number] = True
    return pa.chunked_array([pa.array([value.as_py() for value in values], kind)]), misfits
