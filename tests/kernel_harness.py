"""Runs a kernel over a stream cut into batches, its state saved and restored at every cut, to hold it to the oracle."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from cepheid.binding import bind
from cepheid.codegen.columns import schema_types
from cepheid.codegen.compile import interpreted
from cepheid.codegen.encoder import Encoder
from cepheid.events import START, Clock, Event, Schema, complete, in_order, infer_schema, primitive
from cepheid.kernels.registry import EVALUATORS, kernel_for
from cepheid.lang import parse
from cepheid.optimize.lower import lower
from cepheid.pattern import Query
from cepheid.runtime import prefetch
from cepheid.runtime.kernel import END_OF_TIME, Kernel, Positions, counters, restore, save
from cepheid.semantics import evaluate

# Small streams are to look ahead too.
prefetch.AHEAD, prefetch.SOON, prefetch.FAR, prefetch.FAR_CHAINS = 2, 1, 0, 0

Found = list[tuple[tuple[int, ...], ...]]
"""Matches as positions, variable by variable, sorted."""


@dataclass(frozen=True)
class Stream:
    events: list[Event]
    schema: Schema
    table: pa.RecordBatch


def stream_of(rows: Sequence[Mapping[str, Any]]) -> Stream:
    """Rows with `type` and `ts` as a stream; those with `began` are events with duration."""
    events = in_order(primitive(row["type"], row["ts"], i, row, row.get("began")) for i, row in enumerate(rows))
    schema = infer_schema(events)
    events = complete(events, schema)
    names = sorted({name for attributes in schema.types.values() for name in attributes} | {"type", "ts"})
    columns = {name: [event.attributes.get(name) for event in events] for name in names}
    if "began" in columns:
        columns[START] = [event.start for event in events]
    table = pa.RecordBatch.from_pydict({n: pa.array(v, *_type(n)) for n, v in columns.items()})
    return Stream(events, schema, table)


def _type(name: str) -> tuple[pa.DataType, ...]:
    return {"type": (pa.string(),), "ts": (pa.int64(),)}.get(name, ())


def bound(text: str, stream: Stream) -> Query:
    return bind(parse(text), stream.schema)


def by_oracle(query: Query, stream: Stream) -> Found:
    return sorted(
        tuple(tuple(e.position for e in _listed(binding)) for binding in match.bindings.values())
        for match in evaluate(query, stream.events)
    )


def _listed(binding: Event | tuple[Event, ...] | None) -> tuple[Event, ...]:
    return () if binding is None else binding if isinstance(binding, tuple) else (binding,)


def kernel_of(
    query: Query,
    stream: Stream,
    *,
    evaluator: str | None = None,
    options: Mapping[str, str | bool] | None = None,
    jit: bool = False,
) -> Kernel:
    plan = lower(
        query,
        schema_types(pa.schema([field for field in stream.table.schema if field.name != START])),
        stream.schema,
        Clock(),
        EVALUATORS,
        evaluator=evaluator,
        options=options or {},
        has_durations=START in stream.table.schema.names,
    )
    kernel = kernel_for(plan)
    return replace(kernel, function=_in_little_room(kernel.function if jit else interpreted(kernel.source)))


def _in_little_room(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with so little room for its output that it has to make more at the first match."""
    return lambda *arguments: function(*arguments[:-2], np.empty(1, np.int64), np.zeros(1, np.int64))


def by_kernel(kernel: Kernel, stream: Stream, cuts: Sequence[int] = ()) -> tuple[Found, dict[str, int]]:
    """The kernel's matches and counters over the stream cut at these places."""
    encoder = encoder_of(kernel)
    state = kernel.initial()
    found: Found = []
    edges = [0, *sorted(cuts), len(stream.events)]
    for start, end in itertools.pairwise(edges):
        state, positions = kernel.step(state, encoder.encode(stream.table.slice(start, end - start)))
        found.extend(listed(positions))
        state = restore(save(state))
        memory, encoder = encoder.save(), encoder_of(kernel)
        encoder.restore(memory)
    state, positions = kernel.advance(state, END_OF_TIME, encoder.codes())
    found.extend(listed(positions))
    return sorted(found), counters(state)


def require_machine_code_agrees(query: Query, stream: Stream, evaluator: str, cuts: Sequence[int]) -> None:
    """Compiled, interpreted and by definition a query has the same matches, at least one; and the same counters."""
    found, counted = by_kernel(kernel_of(query, stream, evaluator=evaluator, jit=True), stream, cuts)
    plain, counted_plain = by_kernel(kernel_of(query, stream, evaluator=evaluator), stream, cuts)
    assert found == plain == by_oracle(query, stream)
    assert counted == counted_plain
    assert found


def encoder_of(kernel: Kernel) -> Encoder:
    return Encoder(kernel.plan, "type", "ts", kernel.texts, kernel.needs_ranks, kernel.needs_characters)


def listed(positions: Positions) -> Found:
    width = len(positions.steps)
    values = [int(value) for value in positions.values]
    if positions.bounds is None:
        return [tuple((p,) for p in values[i : i + width]) for i in range(0, len(values), width)]
    limits = [int(limit) for limit in positions.bounds]
    return [
        tuple(tuple(values[limits[m * width + s] : limits[m * width + s + 1]]) for s in range(width))
        for m in range(len(positions))
    ]
