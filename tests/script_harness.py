"""Runs a script in ways that must not matter: in batches, and in a stream, each cut anywhere."""

from __future__ import annotations

import random
from itertools import pairwise

import pyarrow as pa
from simulation_harness import SCHEMA, TYPES, cut

import cepheid
from cepheid.engine.prepare import RunOptions
from cepheid.io.inputs import Columns
from cepheid.lang import parse
from cepheid.streaming.planning import StreamSource, plan_stream
from cepheid.streaming.reader import RowReader
from cepheid.streaming.simulation import Simulation


def in_batches(text: str, table: pa.Table, rng: random.Random) -> list[pa.RecordBatch]:
    """The matches in an iterator of batches, cut at random."""
    edges = sorted({0, table.num_rows, *(rng.randint(0, table.num_rows) for _ in range(4))})
    parts = [table.slice(a, b - a).combine_chunks().to_batches() for a, b in pairwise(edges)]
    return list(cepheid.match(text, iter([batch for part in parts for batch in part]), time_unit="ms"))


def streamed(text: str, rows: list[dict[str, object]], rng: random.Random, delay: int) -> list[pa.RecordBatch]:
    """The matches of a stream whose state is saved and restored at every batch."""
    source = StreamSource(RowReader(SCHEMA, Columns()), {kind: {f.name: f.type for f in SCHEMA} for kind in TYPES})
    plan = plan_stream({"q": parse(text)}, source, delay, RunOptions(time_unit="ms"), order=("n",), buckets=4)
    return Simulation(plan).run(cut(rng, rows, delay)).matches["q"]
