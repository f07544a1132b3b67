"""Rows that were read one by one, as a source."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from types import NoneType
from typing import Any

import numpy as np
import pyarrow as pa

from cepheid.io.inputs import Columns
from cepheid.io.row_reader import Loaded
from cepheid.io.rows import ROW, TIME, TYPE
from cepheid.io.source import JSON, TableSource


def row_source(loaded: Loaded, columns: Columns) -> TableSource:
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
