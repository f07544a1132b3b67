"""What lies in the state of a stream: bucket by bucket and key by key, read from its checkpoint."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from cepheid.codegen.columns import attribute
from cepheid.errors import InputProblem, shown
from cepheid.io.rows import TIME
from cepheid.io.tables import plain
from cepheid.io.times import timestamp_text
from cepheid.spark.checkpoint import Checkpoint
from cepheid.spark.places import place
from cepheid.streaming import state as stream_state
from cepheid.streaming.compact import read_rows
from cepheid.streaming.pack import joined


@dataclass(frozen=True, slots=True)
class KeyState:
    """The events of one key that are kept, and the time of the oldest of them."""

    key: tuple[Any, ...]
    events: int
    oldest: int


@dataclass(frozen=True, slots=True)
class BucketState:
    bucket: int
    bytes: int
    waiting: int
    """Events that the watermark has not passed yet."""
    kept: int
    """Events that a later match may contain."""
    oldest: int | None
    watermark: int
    keys: tuple[KeyState, ...]


@dataclass(frozen=True, slots=True)
class StreamState:
    queries: Mapping[str, str]
    timestamps: bool
    buckets: tuple[BucketState, ...]

    def time(self, ticks: int | None) -> str:
        if ticks is None:
            return "-"
        return timestamp_text(ticks) if self.timestamps else str(ticks)


def read_state(checkpoint: str, session: SparkSession) -> StreamState:
    """The state after the last batch that is complete."""
    kept = Checkpoint(place(checkpoint, session), checkpoint)
    made = kept.description()
    if made is None:
        raise InputProblem(
            f"`{shown(checkpoint, 200)}` is not the checkpoint of a stream", expected="the directory given to stream"
        )
    described = made["stream"]
    schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(made["kept"])))
    buckets: list[BucketState] = []
    if kept.place.inside("commits").names():
        states = session.read.format("statestore").load(checkpoint).select("value.groupState.s")
        for row in states.toLocalIterator():
            buckets.append(_bucket(bytes(row["s"]), schema, described))
    buckets.sort(key=lambda bucket: bucket.bucket)
    return StreamState(described["queries"], bool(made["timestamps"]), tuple(buckets))


def _bucket(data: bytes, schema: pa.Schema, described: Mapping[str, Any]) -> BucketState:
    header = stream_state.read_header(data)
    saved = stream_state.read(data, header["fingerprint"])
    rows = joined([read_rows(part, schema) for part in saved.parts[:2]])
    keys = list(dict.fromkeys(tuple(key) for key in described["keys"].values()))
    key = keys[header["bucket"] // described["buckets"]]
    return BucketState(
        header["bucket"],
        len(data),
        header["waiting"],
        header["kept"],
        header["oldest"],
        header["watermark"],
        tuple(_keys(rows, key)) if key else (),
    )


def _keys(rows: pa.RecordBatch, key: Sequence[str]) -> list[KeyState]:
    columns = [attribute(rows, name) for name in key]
    times = np.asarray(rows.column(TIME)).tolist()
    found: dict[tuple[Any, ...], tuple[int, int]] = {}
    for at, *values in zip(times, *(column.to_pylist() for column in columns if column is not None), strict=True):
        value = tuple(plain(item) for item in values)
        count, oldest = found.get(value, (0, at))
        found[value] = count + 1, min(oldest, at)
    return [KeyState(value, count, oldest) for value, (count, oldest) in found.items()]
