"""Identifiers of matches: a hash of the query and of the bound events."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cepheid.io.inputs import Columns
from cepheid.io.json_text import dumps, joined, json_texts
from cepheid.io.rows import Rows
from cepheid.runtime.kernel import Array

MATCH_ID = "match_id"
_LANES = 2
"""Words of 64 bits in a hash."""
_DIGITS = np.frombuffer(b"0123456789abcdef", np.uint8)


@dataclass(frozen=True, slots=True)
class MatchIds:
    """The identifiers of a query's matches. `seed` is the normal text of the query. An event is identified by `column`
    or, if that is None, by its times, the values in `columns` and its number among equal events."""

    seed: str
    column: str | None
    columns: tuple[str, ...]
    """The columns to read."""
    type_column: str | None = None
    """The one of them that holds the event type, which may be a number."""

    @classmethod
    def of_query(cls, seed: str, column: str | None, input: Columns, names: Sequence[str]) -> MatchIds:
        """`names` are the columns of the input."""
        if column is not None:
            return cls(seed, column, (column,))
        own = tuple(name for name in names if name not in input.times and "\0" not in name)
        return cls(seed, None, own, input.type)

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
        if self.column is None:
            at, inverse = np.unique(np.asarray(positions, np.int64), return_inverse=True)
            texts = self._contents(rows, at).take(pa.array(inverse)).dictionary_encode()
        else:
            texts = json_texts(rows.take([self.column], positions).column(self.column)).dictionary_encode()
        hashes: Array = _hashed(texts.dictionary.to_pylist())[np.asarray(texts.indices)]
        return hashes

    def _contents(self, rows: Rows, at: Array) -> pa.Array:
        """The times and values of events as text, with their number among equal events if it is not the first. Equal
        events have the same time, so those that precede one have followed the first event of its time."""
        before = rows.first_of_time(at)
        lengths = at - before + 1
        within = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        read = np.unique(np.repeat(before, lengths) + within)
        texts = self._texts(rows, read)
        if len(read) > len(at) or len(texts.unique()) < len(texts):
            numbers = _numbers_among_equals(np.asarray(texts.dictionary_encode().indices))
            marked = joined([texts, "#", pa.array(numbers).cast(pa.string())])
            texts = pc.if_else(pa.array(numbers > 0), marked, texts)
        return texts.take(pa.array(np.searchsorted(read, at)))

    def _texts(self, rows: Rows, at: Array) -> pa.Array:
        starts, ends = rows.starts(at), rows.ticks(at)
        times = [pa.array(ends if starts is None else starts).cast(pa.string()), "/", pa.array(ends).cast(pa.string())]
        batch = rows.take(list(self.columns), pa.array(at))
        members: dict[str, pa.Array] = {}
        for name in self.columns:
            column = batch.column(name)
            is_type = name == self.type_column and pa.types.is_integer(column.type)
            members.update(_members(name, column.cast(pa.string()) if is_type else column))
        return joined([*times, *(members[name] for name in sorted(members))])


def _members(name: str, column: pa.Array) -> dict[str, pa.Array]:
    """The values of a column as JSON members, null where there is no value; the fields of a struct have dotted names.
    A number has the same text in every type that holds it."""
    if pa.types.is_struct(column.type):
        fields = zip((field.name for field in column.type), column.flatten(), strict=True)
        return {key: text for own, values in fields for key, text in _members(f"{name}.{own}", values).items()}
    if pa.types.is_null(column.type):
        return {}
    texts = json_texts(column)
    if pa.types.is_floating(column.type):
        texts = pc.replace_substring_regex(texts, r"\.0$", "")
    is_there = pc.and_(column.is_valid(), pc.not_equal(texts, "null"))
    return {name: pc.if_else(is_there, joined([",", dumps(name), ":", texts]), pa.scalar(None, pa.string()))}


def _numbers_among_equals(codes: Array) -> Array:
    """The number of equal codes before each."""
    order = np.argsort(codes, kind="stable")
    ordered = codes[order]
    is_first = np.concatenate([[True], ordered[1:] != ordered[:-1]])
    firsts = np.maximum.accumulate(np.where(is_first, np.arange(len(codes)), 0))
    numbers = np.empty(len(codes), np.int64)
    numbers[order] = np.arange(len(codes)) - firsts
    return numbers


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
