"""The state of a bucket, serialized: a header that can be read by itself, and a compressed body.

The header names the format version and the fingerprint of the stream: Spark hands a state to any function that asks.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from cepheid.errors import InputProblem

STATE_FORMAT = 13
"""Increased whenever the bytes of a state or the meaning of a kernel's arrays change."""
_MAGIC = b"CEPH"
_LENGTH = struct.Struct("<I")
_CODEC = "zstd"


@dataclass(frozen=True, slots=True)
class SavedState:
    """The header of a state, and the parts of its body."""

    header: dict[str, Any]
    parts: tuple[bytes, ...]


def write(header: dict[str, Any], parts: Sequence[bytes]) -> bytes:
    body = b"".join(parts)
    complete = {**header, "format": STATE_FORMAT, "parts": [len(part) for part in parts]}
    text = json.dumps(complete).encode()
    return b"".join((_MAGIC, _LENGTH.pack(len(text)), text, bytes(pa.Codec(_CODEC).compress(body))))


def read_header(data: bytes) -> dict[str, Any]:
    return _split(data)[0]


def read(data: bytes, fingerprint: str) -> SavedState:
    header, body = _split(data)
    if header["fingerprint"] != fingerprint:
        raise InputProblem(
            "a state in the checkpoint belongs to another query, or to the same query with other buckets",
            hint="use a new checkpoint directory, or the query that this one was made with",
        )
    lengths = header["parts"]
    try:
        whole = bytes(pa.Codec(_CODEC).decompress(body, decompressed_size=sum(lengths))) if sum(lengths) else b""
    except (pa.ArrowException, OSError) as problem:
        raise _damaged() from problem
    edges = np.concatenate([[0], np.cumsum(lengths)]).astype(int).tolist()
    return SavedState(header, tuple(whole[a:b] for a, b in pairwise(edges)))


def _split(data: bytes) -> tuple[dict[str, Any], bytes]:
    start = len(_MAGIC) + _LENGTH.size
    if data[: len(_MAGIC)] != _MAGIC or len(data) < start:
        raise _damaged()
    length = _LENGTH.unpack(data[len(_MAGIC) : start])[0]
    try:
        header = json.loads(data[start : start + length])
    except ValueError as problem:
        raise _damaged() from problem
    if header["format"] != STATE_FORMAT:
        raise InputProblem(
            f"a state in the checkpoint has format {header['format']}",
            expected=f"format {STATE_FORMAT}, which this version of Cepheid writes",
            hint="resume with the version that wrote it, or use a new checkpoint directory",
        )
    return header, data[start + length :]


def _damaged() -> InputProblem:
    return InputProblem(
        "a state in the checkpoint is damaged", hint="restore the checkpoint from a copy, or use a new one"
    )
