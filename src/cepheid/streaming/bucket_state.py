"""Saves and loads the state of a bucket."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow.compute as pc

from cepheid.engine.summary import Summary
from cepheid.io.rows import TIME
from cepheid.streaming import state as stream_state
from cepheid.streaming.adaptation import Adapted
from cepheid.streaming.bucket import Bucket
from cepheid.streaming.bucket_context import BucketContext
from cepheid.streaming.compact import read_rows, write_rows
from cepheid.streaming.plan import state_schema, with_schema
from cepheid.streaming.retained import RetainedRows
from cepheid.streaming.state import SavedState

_BY_QUERY = ("outputs", "plans", "dropped", "summaries")
"""The parts of the header that are by query."""


def save(bucket: Bucket, apart: Sequence[bytes] = ()) -> bytes:
    """The state of a bucket, with those of the queries apart that were moved to it."""
    rows, waiting = bucket.rows.table, bucket.waiting
    oldest = [column[0].as_py() for column in [rows.column(TIME)] if len(column)]
    if waiting.num_rows:
        oldest.append(pc.min(waiting.column(TIME)).as_py())
    numbers = sorted(bucket.memory)
    names = {number: query.id for number, query in bucket.queries}
    header: dict[str, Any] = {
        "fingerprint": bucket.context.fingerprint,
        "bucket": bucket.number,
        "version": bucket.plan.version,
        "own": None if bucket.own is None else sorted(bucket.own),
        "apart": len(apart),
        "watermark": bucket.watermark,
        "last": bucket.last,
        "first": bucket.rows.first,
        "columns": bucket.context.retained_schema(bucket.number).names,
        "outputs": {names[number]: count for number, count in bucket.output_counts.items()},
        "queries": [names[number] for number in numbers],
        "inner": [*bucket.inner],
        "plans": {names[number]: adapted.to_data() for number, adapted in bucket.adapted.items()},
        "dropped": {names[number]: sorted(keys) for number, keys in bucket.dropped.items()},
        "summaries": {names[number]: summary.to_data() for number, summary in bucket.summaries.items()},
        "stopped": [names[number] for number in sorted(bucket.stopped)],
        "waiting": waiting.num_rows,
        "retained": rows.num_rows,
        "oldest": min(oldest, default=None),
    }
    memory = [part for number in numbers for part in bucket.memory[number]]
    parts = [write_rows(waiting), write_rows(rows), bucket.families, *memory, *bucket.inner.values(), *apart]
    return stream_state.write(header, parts)


def read(context: BucketContext, data: bytes) -> SavedState:
    return stream_state.read(data, context.fingerprint)


def load(context: BucketContext, data: bytes) -> Bucket:
    """The state of a bucket without those of the queries apart."""
    saved = read(context, data)
    return loaded(context, saved, saved.header["bucket"])


def number_of(data: bytes) -> int:
    """The number of the bucket of a state."""
    return int(stream_state.read_header(data)["bucket"])


def apart(saved: SavedState) -> Sequence[bytes]:
    """The states of the queries that were moved to the bucket."""
    count = saved.header.get("apart", 0)
    return saved.parts[len(saved.parts) - count :]


def loaded(
    context: BucketContext,
    saved: SavedState,
    number: int,
    own: frozenset[str] | None = None,
    apart: frozenset[str] = frozenset(),
) -> Bucket:
    """The state of queries that are no longer there is dropped; that of new ones begins here. `own` and `apart` are
    those of the bucket."""
    header, (waiting, rows, families, *memory) = saved.header, saved.parts
    plan = context.plan
    schema = state_schema(header["columns"], plan.reader.schema)
    here = [plan.queries[n].id for n in plan.sharing(number)]
    known = {
        name: n
        for name, n in zip(here, plan.sharing(number), strict=True)
        if (name not in apart if own is None else name in own)
    }
    of = {name: {known[key]: data for key, data in header[name].items() if key in known} for name in _BY_QUERY}
    wanted = context.retained_schema(number)
    retained = RetainedRows(with_schema(read_rows(rows, schema), wanted), header["first"], plan.reader.columns)
    used = {name for key in header["queries"] if key in known for name in plan.queries[known[key]].inner.values()}
    inner = zip(header["inner"], memory[2 * len(header["queries"]) :], strict=False)  # those of queries apart follow
    return Bucket(
        context,
        number,
        with_schema(read_rows(waiting, schema), wanted),
        retained,
        header["watermark"],
        header["last"],
        of["outputs"],
        {known[q]: (memory[2 * i], memory[2 * i + 1]) for i, q in enumerate(header["queries"]) if q in known},
        {n: Adapted.of_data(plan.queries[n].prepared, data) for n, data in of["plans"].items()},
        dropped={n: set(keys) for n, keys in of["dropped"].items()},
        stopped={known[name] for name in header.get("stopped", ()) if name in known},
        families=families if own is None and plan.group_of(number) is not None else b"",
        own=own,
        apart=apart,
        inner={name: part for name, part in inner if name in used},
        summaries={n: Summary.of_data(plan.queries[n].prepared.query, d) for n, d in of["summaries"].items()},
    )
