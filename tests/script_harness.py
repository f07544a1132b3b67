"""Runs a script in ways that must not matter: in batches, and in a stream, each cut anywhere."""

from __future__ import annotations

import random
from collections import Counter
from itertools import pairwise
from typing import Any

import pyarrow as pa
from simulation_harness import SCHEMA, TYPES, cut, multiset, random_rows

import cepheid
from cepheid.engine.prepare import RunOptions
from cepheid.io.inputs import Columns
from cepheid.lang import parse
from cepheid.physical import REFERENCE
from cepheid.streaming.planning import StreamSource, plan_stream
from cepheid.streaming.reader import RowReader
from cepheid.streaming.simulation import Simulation


def drawn(rng: random.Random, count: int, most: int | None = None) -> list[list[dict[str, Any]]]:
    """Random events with all types, at most so many of them."""
    streams = (random_rows(rng)[:most] for _ in range(40))
    return [rows for rows in streams if len({row["type"] for row in rows}) == len(TYPES)][:count]


def finds_matches(
    text: str,
    rows: list[dict[str, Any]],
    rng: random.Random,
    delay: int = 3,
    *,
    expected: Counter[str] | None = None,
    streams: bool = True,
) -> bool:
    """Whether the oracle finds matches. Requires those of it (or the expected ones) from a table, from batches and,
    with `streams`, from a stream, each cut anywhere."""
    table = pa.Table.from_pylist(rows, SCHEMA)
    truth = multiset(cepheid.match(text, table, time_unit="ms", evaluator=REFERENCE))
    assert expected is None or truth == expected, text
    assert multiset(cepheid.match(text, table, time_unit="ms")) == truth, text
    assert multiset(in_batches(text, table, rng)) == truth, text
    if streams:
        assert multiset(streamed(text, rows, rng, delay)) == truth, text
    return bool(truth)


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
