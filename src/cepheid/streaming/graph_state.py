"""The state of a query over others, and of one that feeds others, serialized by itself: its kernel, its encoder, the
events that a later match may contain, those that wait to be merged, and the identities of those that have some.

Columns are stored with their schema: fewer queries read fewer of them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from cepheid.checks import EVENT_ID
from cepheid.engine.derivation import Deriving, Evaluating, GraphRun
from cepheid.engine.splicing import Selected, joined_batches
from cepheid.streaming.compact import read_arrays, read_parts, read_rows, write_arrays, write_parts, write_rows


def save(running: GraphRun, one: Evaluating) -> bytes:
    """The state of a query that others feed."""
    return write_parts(_parts(running, one, {}))


def save_node(running: GraphRun, node: Deriving) -> bytes:
    """The state of a query that feeds others."""
    header = {"frontier": node.frontier, "left": node.left, "used": sorted(node.used)}
    held = [joined_batches(node.held)] if node.held else []
    tables = [part for batch in (_identities(node), *held) for part in (_described(batch.schema), _write(batch))]
    return write_parts([*_parts(running, node.run, header), *tables])


def restore(running: GraphRun, one: Evaluating, data: bytes) -> None:
    """Puts a saved state into a query that others feed, which is new."""
    _restore(running, one, iter(read_parts(data)))


def restore_node(running: GraphRun, node: Deriving, data: bytes) -> None:
    """Puts a saved state into a query that feeds others, which is new."""
    parts = iter(read_parts(data))
    header = _restore(running, node.run, parts)
    node.frontier, node.left, node.used = header["frontier"], header["left"], set(header["used"])
    seen, *node.held = (_read(rows, _schema(described)) for described, rows in zip(parts, parts, strict=True))
    values = seen.column(0).to_pylist()
    node.seen = {tuple(value) if isinstance(value, list) else value for value in values}


def _parts(running: GraphRun, one: Evaluating, more: Mapping[str, Any]) -> list[bytes]:
    rows, merge = one.rows, one.merge
    header = {**more, "arrived": running.arrived, "reached": merge.reached, "first": one.oldest}
    retained = joined_batches(list(rows.batches)) if rows.batches else _none(merge.schema)
    retained = retained.slice(min(max(one.oldest - rows.first, 0), retained.num_rows)).select(merge.schema.names)
    waiting = joined_batches([_none(merge.schema), *(part.copied() for part in merge.waiting)])
    arrays = write_arrays(one.stepper.state, one.stepper.compiled.arrays)
    tables = map(_write, (retained, waiting, *merge.derived))
    return [json.dumps(header).encode(), arrays, one.stepper.encoder.save(), _described(merge.schema), *tables]


def _restore(running: GraphRun, one: Evaluating, parts: Iterator[memoryview]) -> dict[str, Any]:
    header: dict[str, Any] = json.loads(bytes(next(parts)))
    running.arrived = max(running.arrived, header["arrived"])
    one.stepper.state = read_arrays(bytes(next(parts)), one.stepper.compiled.arrays)
    one.stepper.encoder.restore(bytes(next(parts)))
    merge, saved = one.merge, _schema(next(parts))
    retained, waiting, *derived = (
        _with(_read(next(parts), saved), merge.schema) for _ in range(2 + len(merge.derived))
    )
    one.rows.first = header["first"]
    if retained.num_rows:
        one.rows.add(retained)
    merge.waiting = [Selected(waiting)] if waiting.num_rows else []
    merge.derived, merge.reached = derived, header["reached"]
    return header


def _identities(node: Deriving) -> pa.RecordBatch:
    kind = pa.null() if node.node.identity is None else node.node.identity.arrow
    values = [list(value) if isinstance(value, tuple) else value for value in node.seen]
    return pa.RecordBatch.from_arrays([pa.array(values, kind)], names=[EVENT_ID])


def _none(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([], schema)


def _plain(schema: pa.Schema) -> pa.Schema:
    """The schema without dictionaries."""
    fields = [(f.name, f.type.value_type if pa.types.is_dictionary(f.type) else f.type) for f in schema]
    return pa.schema(fields)


def _described(schema: pa.Schema) -> bytes:
    return bytes(_plain(schema).serialize())


def _schema(data: memoryview) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(data))


def _write(batch: pa.RecordBatch) -> bytes:
    schema = _plain(batch.schema)
    arrays = [column.cast(field.type) for column, field in zip(batch.columns, schema, strict=True)]
    return write_rows(pa.RecordBatch.from_arrays(arrays, schema=schema))


def _read(data: memoryview, schema: pa.Schema) -> pa.RecordBatch:
    return read_rows(bytes(data), schema)


def _with(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The columns that the queries read now. A query that reads more of them has joined the others without any state,
    so that none of these rows is in a match of it."""
    known = rows.schema.names
    arrays = [
        rows.column(field.name).cast(field.type) if field.name in known else pa.nulls(rows.num_rows, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
