"""Points, which are lists of numbers, as Arrow arrays: no list of Python values is made."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from cepheid import expr as ex
from cepheid.codegen.columns import attribute
from cepheid.codegen.typed_columns import Column, absent_of, to_arrow
from cepheid.expr import Attr, Expr
from cepheid.types import FLOAT, INTEGER

_READ = ("coordinate", "dimensions")


def of_points(expr: Expr, table: pa.RecordBatch) -> Column | None:
    """`coordinate(p, 1)` or `dimensions(p)` of a column of lists of numbers; None for another expression or column."""
    match expr:
        case ex.Call(fn=fn, args=(Attr(name=name), *numbers)) if fn in _READ:
            column = attribute(table, name)
            if column is None or not pa.types.is_list(column.type) or not _is_number(column.type.value_type):
                return None
            number = numbers[0] if numbers else ex.Const(0)
            if not isinstance(number, ex.Const) or not isinstance(number.value, int) or number.value < 0:
                return None
            return _read(column, number.value)
    return None


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_floating(kind) or pa.types.is_integer(kind)) and kind != pa.uint64()


def _read(points: pa.ListArray, number: int) -> Column:
    """A coordinate of each point, 0 where it has fewer; with number 0, how many it has."""
    offsets = np.asarray(points.offsets, np.int64)
    lengths = np.where(np.asarray(points.is_null()), 0, np.diff(offsets))
    known = np.asarray(points.is_valid())
    if number == 0:
        return Column(INTEGER, lengths, known)
    inside = number <= lengths
    values = points.values
    if not len(values):
        return Column(FLOAT, np.zeros(len(points)), known)
    at = np.where(inside, offsets[:-1] + number - 1, 0)
    found = np.asarray(values.cast(pa.float64(), safe=False).fill_null(np.nan))[at]
    is_known = known & ~(inside & np.isnan(found))
    return Column(FLOAT, np.where(inside & is_known, found, 0.0), is_known)


def points_of(items: Sequence[Column], length: int, kind: pa.ListType) -> pa.ListArray:
    """The points with these coordinates; null where an event that a coordinate reads is not there."""
    size = len(items)
    values = pa.concat_arrays([to_arrow(item, length, kind.value_type) for item in items])
    order = np.arange(length * size).reshape(size, length).T.ravel()
    absent = absent_of(items)
    mask = None if absent is None else pa.array(np.broadcast_to(absent, (length,)))
    offsets = pa.array(np.arange(0, length * size + 1, size) if size else np.zeros(length + 1), pa.int32())
    return pa.ListArray.from_arrays(offsets, values.take(pa.array(order)), mask=mask).cast(kind)
