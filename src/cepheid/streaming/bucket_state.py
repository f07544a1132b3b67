"""Saves and loads the state of a bucket."""

from __future__ import annotations

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

_BY_QUERY = ("outputs", "plans", "dropped", "summaries")
"""The parts of the header that are by query."""


def save(bucket: Bucket) -> bytes:
    rows, waiting = bucket.rows.table, bucket.waiting
    oldest = [column[0].as_py() for column in [rows.column(TIME)] if len(column)]
    if waiting.num_rows:
        oldest.append(pc.min(waiting.column(TIME)).as_py())
    numbers = sorted(bucket.memory)
    names = {number: query.id for number, query in bucket.queries}
    header: dict[str, Any] = {
        "fingerprint": bucket.context.fingerprint,
        "bucket": bucket.number,
        "watermark": bucket.watermark,
        "last": bucket.last,
        "first": bucket.rows.first,
        "columns": bucket.context.retained_schema.names,
        "outputs": {names[number]: count for number, count in bucket.output_counts.items()},
        "queries": [names[number] for number in numbers],
        "plans": {names[number]: adapted.to_data() for number, adapted in bucket.adapted.items()},
        "dropped": {names[number]: sorted(keys) for number, keys in bucket.dropped.items()},
        "summaries": {names[number]: summary.to_data() for number, summary in bucket.summaries.items()},
        "stopped": [names[number] for number in sorted(bucket.stopped)],
        "waiting": waiting.num_rows,
        "retained": rows.num_rows,
        "oldest": min(oldest, default=None),
    }
    memory = [part for number in numbers for part in bucket.memory[number]]
    return stream_state.write(header, [write_rows(waiting), write_rows(rows), bucket.families, *memory])


def load(context: BucketContext, data: bytes) -> Bucket:
    """The state of queries that are no longer there is dropped; that of new ones begins here."""
    saved = stream_state.read(data, context.fingerprint)
    header, (waiting, rows, families, *memory) = saved.header, saved.parts
    plan, number = context.plan, header["bucket"]
    schema = state_schema(header["columns"], plan.reader.schema)
    known = {plan.queries[n].id: n for n in plan.sharing(number)}
    of = {name: {known[key]: data for key, data in header[name].items() if key in known} for name in _BY_QUERY}
    retained = RetainedRows(
        with_schema(read_rows(rows, schema), context.retained_schema), header["first"], plan.reader.columns
    )
    return Bucket(
        context,
        number,
        with_schema(read_rows(waiting, schema), context.retained_schema),
        retained,
        header["watermark"],
        header["last"],
        of["outputs"],
        {known[q]: (memory[2 * i], memory[2 * i + 1]) for i, q in enumerate(header["queries"]) if q in known},
        {n: Adapted.of_data(plan.queries[n].prepared, data) for n, data in of["plans"].items()},
        dropped={n: set(keys) for n, keys in of["dropped"].items()},
        stopped={known[name] for name in header.get("stopped", ()) if name in known},
        families=families if plan.group_of(number) is not None else b"",
        summaries={n: Summary.of_data(plan.queries[n].prepared.query, d) for n, d in of["summaries"].items()},
    )
