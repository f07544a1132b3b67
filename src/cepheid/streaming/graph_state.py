"""The state of the queries that feed another one, serialized: of each its kernel, its encoder, the events that a later
match may contain, those that wait to be merged, and the identities of those that have some.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pyarrow as pa

from cepheid.checks import EVENT_ID
from cepheid.engine.derivation import Deriving, Evaluating, GraphRun
from cepheid.engine.splicing import Selected, joined_batches
from cepheid.errors import Explosion
from cepheid.streaming.compact import read_arrays, read_parts, read_rows, write_arrays, write_parts, write_rows


def save(running: GraphRun, output: Evaluating) -> bytes:
    """The state of a graph and of the query that it feeds."""
    evaluated = [*(node.run for node in running.nodes), output]
    header = {
        "arrived": running.arrived,
        "reached": [one.merge.reached for one in evaluated],
        "first": [one.oldest for one in evaluated],
        "frontiers": [node.frontier for node in running.nodes],
        "left": [node.left for node in running.nodes],
        "used": [sorted(node.used) for node in running.nodes],
    }
    parts = [json.dumps(header).encode()]
    for one in evaluated:
        parts += [write_arrays(one.stepper.state, one.stepper.compiled.arrays), one.stepper.encoder.save()]
        rows, schema = one.rows, one.merge.schema
        retained = joined_batches(list(rows.batches)) if rows.batches else _none(schema)
        waiting = joined_batches([_none(schema), *(part.copied() for part in one.merge.waiting)])
        retained = retained.slice(min(max(one.oldest - rows.first, 0), retained.num_rows)).select(schema.names)
        parts += [_write(batch) for batch in (retained, waiting, *one.merge.derived)]
    for node in running.nodes:
        held = joined_batches(node.held) if node.held else None
        parts += [b"", b""] if held is None else [held.schema.serialize().to_pybytes(), _write(held)]
        parts.append(_write(_identities(node)))
    return write_parts(parts)


def restore(running: GraphRun, output: Evaluating, data: bytes) -> None:
    """Puts a saved state into a graph and the query that it feeds, which are new."""
    text, *saved = read_parts(data)
    header, parts = json.loads(bytes(text)), iter(saved)
    running.arrived = header["arrived"]
    evaluated = [*(node.run for node in running.nodes), output]
    for one, reached, first in zip(evaluated, header["reached"], header["first"], strict=True):
        one.stepper.state = read_arrays(bytes(next(parts)), one.stepper.compiled.arrays)
        one.stepper.encoder.restore(bytes(next(parts)))
        schema = one.merge.schema
        retained, waiting = _read(parts, schema), _read(parts, schema)
        one.rows.first = first
        if retained.num_rows:
            one.rows.add(retained)
        one.merge.waiting = [Selected(waiting)] if waiting.num_rows else []
        one.merge.derived = [_read(parts, schema) for _ in one.merge.derived]
        one.merge.reached = reached
    saved_nodes = zip(running.nodes, header["frontiers"], header["left"], header["used"], strict=True)
    for node, frontier, left, used in saved_nodes:
        node.frontier, node.left, node.used = frontier, left, set(used)
        description, rows = next(parts), next(parts)
        if len(description):
            node.held = [read_rows(bytes(rows), pa.ipc.read_schema(pa.py_buffer(description)))]
        seen = read_rows(bytes(next(parts)), _identities(node).schema).column(0).to_pylist()
        node.seen = {tuple(value) if isinstance(value, list) else value for value in seen}


def exceeding(running: GraphRun, output: Evaluating, problem: Explosion) -> pa.RecordBatch | None:
    """The event at which a query of the graph exceeds a limit; None if no single event does."""
    evaluated = [*(node.run for node in running.nodes), output]
    rows = next(one.rows for one in evaluated if one.problem is problem)
    return None if problem.row is None else rows.take(rows.names, pa.array([problem.row]))


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


def _write(batch: pa.RecordBatch) -> bytes:
    schema = _plain(batch.schema)
    arrays = [column.cast(field.type) for column, field in zip(batch.columns, schema, strict=True)]
    return write_rows(pa.RecordBatch.from_arrays(arrays, schema=schema))


def _read(parts: Iterator[memoryview], schema: pa.Schema) -> pa.RecordBatch:
    rows = read_rows(bytes(next(parts)), _plain(schema))
    arrays = [column.cast(field.type) for column, field in zip(rows.columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
