"""From buckets to sinks: the output of a bucket as rows, and the rows of a batch to the sinks.

A row is (kind, query, number, block): the kind of output, the number of the query, a count, and a block of bytes.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import NamedTuple

import pyarrow as pa

from cepheid.engine.adaptation import report as report_switch
from cepheid.io.stream_rows import REJECTS as REJECT_SCHEMA
from cepheid.optimize.adapt import Switch
from cepheid.streaming.ahead import Jump
from cepheid.streaming.bucket import STOPPED, BucketOutput
from cepheid.streaming.metrics import Totals
from cepheid.streaming.pack import from_bytes, to_bytes
from cepheid.streaming.plan import StreamPlan
from cepheid.streaming.sinks import Sink
from cepheid.streaming.storage import Directory

MATCHES, LATE, REJECTS, STATES, SWITCHES = "matches", "late", "rejects", "states", "switches"
READ, JUMPS, DROPPED, COUNTS, COSTS = "read", "jumps", "dropped", "counts", "costs"


_LOG = logging.getLogger("cepheid.stream")


class OutputRow(NamedTuple):
    kind: str
    query: int
    """The number of the query; of the table for MATCHES, of the bucket for STATES and COSTS."""
    number: int
    """The number of rows in the block, or of rows read for READ; of bytes for STATES, of events for SWITCHES."""
    block: bytes


def output_rows(output: BucketOutput) -> list[OutputRow]:
    rows = [OutputRow(MATCHES, number, batch.num_rows, to_bytes(batch)) for number, batch in output.matches]
    if output.counts:
        rows.append(OutputRow(COUNTS, 0, sum(output.counts.values()), json.dumps(output.counts).encode()))
    if output.late is not None:
        rows.append(OutputRow(LATE, 0, output.late.num_rows, to_bytes(output.late)))
    for number, switch in output.switches:
        rows.append(OutputRow(SWITCHES, number, switch.events, json.dumps(asdict(switch)).encode()))
    for names, reason in output.dropped:
        rows.append(OutputRow(DROPPED, 0, 1, json.dumps([[*names], reason]).encode()))
    return rows


def reject_row(block: bytes) -> OutputRow:
    return OutputRow(REJECTS, 0, from_bytes(block, REJECT_SCHEMA).num_rows, block)


def state_row(bucket: int, size: int, watermark: int | None, events: int) -> OutputRow:
    """The metrics of a bucket."""
    return OutputRow(STATES, bucket, size, json.dumps({"watermark": watermark, "events": events}).encode())


def cost_row(bucket: int, output: BucketOutput) -> OutputRow:
    """The CPU time of a bucket and of its queries without a key."""
    return OutputRow(COSTS, bucket, output.spent, json.dumps(output.costs).encode())


@dataclass(frozen=True, slots=True)
class Sinks:
    """The sinks of a stream: of its matches, for late events, and for rejects."""

    matches: Sequence[Sink] = ()
    late: Sequence[Sink] = ()
    rejects: Sequence[Sink] = ()

    def directories(self) -> list[Directory]:
        """The directories of all outputs."""
        return [directory for sink in (*self.matches, *self.late, *self.rejects) for directory in sink.directories()]

    def forget_matches(self, batch: str) -> None:
        for sink in self.matches:
            sink.forget(batch)

    def deliver(self, plan: StreamPlan, batch: str, rows: Sequence[OutputRow]) -> dict[str, int]:
        """Writes the rows of a batch to their sinks; returns the number of matches of each query."""
        blocks: dict[int, list[bytes]] = {}
        for row in rows:
            if row.kind == MATCHES:
                blocks.setdefault(row.query, []).append(row.block)
        for number, table in enumerate(plan.tables):
            for sink in self.matches if number in blocks else ():
                sink.write(batch, _table(blocks[number], table.schema), table.name)
        late = [row.block for row in rows if row.kind == LATE]
        _write(self.late, batch, late, plan.packed_schema(0), plan.shown_names)
        _write(self.rejects, batch, [row.block for row in rows if row.kind == REJECTS], REJECT_SCHEMA)
        return counted_matches(plan, rows)


def counted_matches(plan: StreamPlan, rows: Iterable[OutputRow]) -> dict[str, int]:
    """The number of matches of each query in a batch."""
    counted = dict.fromkeys(plan.names, 0)
    for row in rows:
        if row.kind == COUNTS:
            for name, number in json.loads(row.block).items():
                counted[name] += number
    return counted


def _write(
    sinks: Iterable[Sink], batch: str, blocks: Sequence[bytes], schema: pa.Schema, names: Sequence[str] | None = None
) -> None:
    table = _table(blocks, schema)
    for sink in sinks:
        sink.write(batch, table if names is None else table.select(list(names)))


def _table(blocks: Sequence[bytes], schema: pa.Schema) -> pa.Table:
    return pa.Table.from_batches([from_bytes(bytes(block), schema) for block in blocks], schema)


def count(totals: Totals, plan: StreamPlan, rows: Iterable[OutputRow], matches: Mapping[str, int]) -> None:
    """Adds a batch to the totals."""
    totals.batches += 1
    totals.last_events = 0
    totals.loads.begin()
    for name, number in matches.items():
        totals.matches[name] = totals.matches.get(name, 0) + number
    for row in rows:
        if row.kind == LATE:
            totals.late += row.number
        elif row.kind == REJECTS:
            totals.rejects += row.number
        elif row.kind == STATES:
            totals.states[row.query] = row.number
            reported = json.loads(row.block)
            totals.last_events += reported["events"]
            # Buckets know different watermarks; the latest one holds.
            marks = [mark for mark in (totals.watermark, reported["watermark"]) if mark is not None]
            totals.watermark = max(marks, default=None)
        elif row.kind == COSTS:
            totals.loads.add(row.query, row.number, json.loads(row.block))
        elif row.kind == READ:
            totals.read += row.number
        elif row.kind == JUMPS:
            totals.jumps.append(Jump.from_json(row.block))
            _LOG.warning(totals.jumps[-1].described(plan.time.clock))
        elif row.kind == DROPPED:
            names, reason = json.loads(row.block)
            totals.dropped.append(f"{', '.join(names)}: {reason}")
            if reason.startswith(STOPPED):
                totals.stopped += [name for name in names if name not in totals.stopped]
            _LOG.warning(totals.dropped[-1])
        elif row.kind == SWITCHES:
            switch = report_switch(Switch(**json.loads(row.block)))
            totals.switches.append((plan.queries[row.query].name, switch))
    totals.events += totals.last_events
