"""Identifiers of matches: a hash of the query and of the identifiers of the bound events."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from cepheid.io.json_text import json_texts
from cepheid.io.rows import Rows
from cepheid.runtime.kernel import Array

MATCH_ID = "match_id"
_LANES = 2
"""Words of 64 bits in a hash."""
_DIGITS = np.frombuffer(b"0123456789abcdef", np.uint8)


@dataclass(frozen=True, slots=True)
class MatchIds:
    """The identifiers of a query's matches. `column` has the identifiers of the events, `seed` is the normal text of
    the query."""

    column: str
    seed: str

    def of(self, variables: Mapping[str, pa.Array], rows: Rows, count: int) -> pa.Array:
        """One text of 32 hexadecimal digits for each match. The sum of mixed words depends on the variable and the
        index of each event, because these are mixed with its hash."""
        total = np.full((count, _LANES), _hashed([self.seed])[0], np.uint64)
        for number, (_, positions) in enumerate(sorted(variables.items())):
            if pa.types.is_list(positions.type):
                lengths, values = np.asarray(positions.value_lengths().fill_null(0), np.int64), positions.flatten()
            else:
                lengths, values = np.asarray(positions.is_valid(), np.int64), positions.drop_null()
            index = np.arange(len(values)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
            role = _mixed((index.astype(np.uint64) << np.uint64(8)) + np.uint64(number + 1))
            mixed = _mixed(self._events(rows, values) ^ role[:, None])
            np.add.at(total, np.repeat(np.arange(count), lengths), mixed)
        return _hexadecimal(_mixed(total))

    def _events(self, rows: Rows, positions: pa.Array) -> Array:
        """The hashes of the events. Each distinct identifier is hashed once."""
        texts = json_texts(rows.take([self.column], positions).column(self.column)).dictionary_encode()
        hashes: Array = _hashed(texts.dictionary.to_pylist())[np.asarray(texts.indices)]
        return hashes


def _hashed(texts: list[str]) -> Array:
    digests = b"".join(hashlib.blake2b(text.encode(), digest_size=8 * _LANES).digest() for text in texts)
    return np.frombuffer(digests, ">u8").astype(np.uint64).reshape(-1, _LANES)


def _mixed(words: Array) -> Array:
    """The finalizer of SplitMix64: each bit of the input changes half of the bits of the output."""
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: Array = words ^ (words >> np.uint64(31))
    return mixed


def _hexadecimal(words: Array) -> pa.Array:
    octets = np.ascontiguousarray(words.astype(">u8")).view(np.uint8).reshape(len(words), 8 * _LANES)
    digits = np.stack([_DIGITS[octets >> 4], _DIGITS[octets & 15]], axis=2)
    width = 16 * _LANES
    offsets = np.arange(len(words) + 1, dtype=np.int32) * width
    return pa.StringArray.from_buffers(len(words), pa.py_buffer(offsets), pa.py_buffer(digits.tobytes()))
