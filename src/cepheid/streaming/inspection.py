"""The state of a stream, by bucket and by key, decoded from its checkpoint."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from cepheid.codegen.columns import attribute
from cepheid.errors import InputProblem, shown
from cepheid.events import timestamp_text
from cepheid.io.rows import TIME, plain, python_values
from cepheid.streaming import state as stream_state
from cepheid.streaming.checkpoint import Checkpoint
from cepheid.streaming.compact import read_rows
from cepheid.streaming.pack import joined
from cepheid.streaming.plan import state_schema


@dataclass(frozen=True, slots=True)
class KeyState:
    """The retained events of one key, and the time of the oldest."""

    key: tuple[Any, ...]
    events: int
    oldest: int


@dataclass(frozen=True, slots=True)
class BucketState:
    bucket: int
    bytes: int
    waiting: int
    """Events that the watermark has not passed yet."""
    retained: int
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


def decoded(checkpoint: Checkpoint, states: Iterable[bytes]) -> StreamState:
    """The states of the buckets, decoded by the description in the checkpoint, without the queries."""
    description = checkpoint.description()
    if description is None:
        path = shown(checkpoint.path, 200)
        raise InputProblem(
            f"`{path}` is not the checkpoint of a stream", expected="the checkpoint directory of a stream"
        )
    described = description["stream"]
    schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(description["columns"])))
    buckets = sorted((_bucket(data, schema, described) for data in states), key=lambda bucket: bucket.bucket)
    return StreamState(described["queries"], bool(description["timestamps"]), tuple(buckets))


def _bucket(data: bytes, schema: pa.Schema, described: Mapping[str, Any]) -> BucketState:
    header = stream_state.read_header(data)
    saved = stream_state.read(data, header["fingerprint"])
    schema = state_schema(header["columns"], schema)
    rows = joined([read_rows(part, schema) for part in saved.parts[:2]])
    key = described["keys"][header["bucket"] // described["buckets"]]
    return BucketState(
        header["bucket"],
        len(data),
        header["waiting"],
        header["retained"],
        header["oldest"],
        header["watermark"],
        tuple(_keys(rows, key)) if key else (),
    )


def _keys(rows: pa.RecordBatch, key: Sequence[str]) -> list[KeyState]:
    columns = [attribute(rows, name) for name in key]
    times = np.asarray(rows.column(TIME)).tolist()
    states: dict[tuple[Any, ...], tuple[int, int]] = {}
    for at, *values in zip(times, *(python_values(column) for column in columns if column is not None), strict=True):
        value = tuple(plain(item) for item in values)
        count, oldest = states.get(value, (0, at))
        states[value] = count + 1, min(oldest, at)
    return [KeyState(value, count, oldest) for value, (count, oldest) in states.items()]
