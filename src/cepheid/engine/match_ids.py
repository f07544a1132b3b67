"""Identifiers of matches: a hash of the query and of the bound events."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cepheid.io.inputs import Columns
from cepheid.io.json_text import dumps, joined, json_texts
from cepheid.io.rows import START, TIME, Rows, is_added
from cepheid.runtime.kernel import Array

MATCH_ID = "match_id"
LANES = 2
"""Words of 64 bits in a hash."""
IDENTITY = "\0identity"
"""The column of the hash of each event, in batches that are merged with derived events."""
IDENTITY_TYPE = pa.binary(8 * LANES)
_DIGITS = np.frombuffer(b"0123456789abcdef", np.uint8)


@dataclass(frozen=True, slots=True)
class LastEvents:
    """The events of the last time of a batch: the next batch may begin with equal ones."""

    time: int | None = None
    counts: Mapping[str, int] = field(default_factory=dict)
    """How many there are of each text."""


@dataclass(frozen=True, slots=True)
class EventIds:
    """The identifiers of input events: the value in `column`. An event without one, or each if `column` is None, is
    identified by its times, the values in `columns` and its number among equal events."""

    column: str | None
    columns: tuple[str, ...]
    """The columns to read."""
    type_column: str | None = None
    """The one of them that holds the event type, which may be a number."""

    @classmethod
    def of_input(cls, column: str | None, input: Columns, schema: pa.Schema) -> EventIds:
        own = tuple(name for name in schema.names if name not in input.times and not is_added(name))
        if column is not None and not schema.field(column).nullable:
            own = (column,)
        return cls(column, own if column is None or column in own else (*own, column), input.type)

    def words(self, rows: Rows, positions: pa.Array) -> Array:
        """The hashes of the events at some positions. Each distinct identifier is hashed once."""
        at, inverse = np.unique(np.asarray(positions, np.int64), return_inverse=True)
        given = self._given(rows.take([self.column], pa.array(at))) if self.column is not None else pa.nulls(len(at))
        texts = given
        if given.null_count:
            missing = np.flatnonzero(np.asarray(given.is_null()))
            texts = _filled(given, self._contents(rows, at[missing]))
        return _words(texts.take(pa.array(inverse)))

    def words_of_batch(self, batch: pa.RecordBatch, last: LastEvents) -> tuple[Array, LastEvents]:
        """The hashes of all events of a batch, which has TIME, and its last events. `last` are those of the batch
        before it."""
        given = pa.nulls(batch.num_rows) if self.column is None else self._given(batch)
        if not given.null_count or not batch.num_rows:
            return _words(given), last
        ends = np.asarray(batch.column(TIME))
        starts = np.asarray(batch.column(START)) if START in batch.schema.names else None
        texts = self._texts(batch, starts, ends)
        numbers = _numbers_among_equals(np.asarray(texts.dictionary_encode().indices))
        first, latest = (np.flatnonzero(ends == time) for time in (ends[0], ends[-1]))
        if last.time == ends[0]:
            numbers[first] += [last.counts.get(text, 0) for text in texts.take(pa.array(first)).to_pylist()]
        counts = Counter(texts.take(pa.array(latest)).to_pylist())
        if last.time == ends[-1]:
            counts.update(last.counts)
        whole = _numbered(texts, numbers)
        missing = whole.filter(given.is_null())
        return _words(_filled(given, missing)), LastEvents(int(ends[-1]), counts)

    def _given(self, batch: pa.RecordBatch) -> pa.Array:
        """The identifiers in the column, as text."""
        column = batch.column(str(self.column))
        texts = json_texts(column)
        return pc.if_else(pc.and_(column.is_valid(), pc.not_equal(texts, "null")), texts, pa.scalar(None, pa.string()))

    def _contents(self, rows: Rows, at: Array) -> pa.Array:
        """The times and values of events as text, with their number among equal events if it is not the first. Equal
        events have the same time, so those that precede one have followed the first event of its time."""
        before = rows.first_of_time(at)
        lengths = at - before + 1
        within = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        read = np.unique(np.repeat(before, lengths) + within)
        texts = self._texts(rows.take(list(self.columns), pa.array(read)), rows.starts(read), rows.ticks(read))
        if len(read) > len(at) or len(texts.unique()) < len(texts):
            texts = _numbered(texts, _numbers_among_equals(np.asarray(texts.dictionary_encode().indices)))
        return texts.take(pa.array(np.searchsorted(read, at)))

    def _texts(self, batch: pa.RecordBatch, starts: Array | None, ends: Array) -> pa.Array:
        times = [pa.array(ends if starts is None else starts).cast(pa.string()), "/", pa.array(ends).cast(pa.string())]
        members: dict[str, pa.Array] = {}
        for name in self.columns:
            column = batch.column(name)
            is_type = name == self.type_column and pa.types.is_integer(column.type)
            members.update(_members(name, column.cast(pa.string()) if is_type else column))
        return joined([*times, *(members[name] for name in sorted(members))])


@dataclass(frozen=True, slots=True)
class MatchIds:
    """The identifiers of a query's matches. `seed` is the normal text of the query."""

    seed: str
    events: EventIds
    is_carried: bool = False
    """Whether the rows have the hashes of their events in the column IDENTITY: those of queries over other queries."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns to read."""
        return (IDENTITY,) if self.is_carried else self.events.columns

    def of(self, variables: Mapping[str, pa.Array], rows: Rows, count: int) -> pa.Array:
        """One text of 32 hexadecimal digits for each match."""
        return hexadecimal(self.words(variables, rows, count))

    def words(self, variables: Mapping[str, pa.Array], rows: Rows, count: int) -> Array:
        groups: dict[str, tuple[Array, Array]] = {}
        for var, positions in variables.items():
            if pa.types.is_list(positions.type):
                lengths, values = np.asarray(positions.value_lengths().fill_null(0), np.int64), positions.flatten()
            else:
                lengths, values = np.asarray(positions.is_valid(), np.int64), positions.drop_null()
            groups[var] = lengths, self._events(rows, values)
        return match_words(self.seed, groups, count)

    def _events(self, rows: Rows, positions: pa.Array) -> Array:
        if self.is_carried:
            return identity_words(rows.take([IDENTITY], positions).column(IDENTITY))
        return self.events.words(rows, positions)


_MOST_SEEN = 100_000
"""How many identifiers of matches are compared."""


def noticing_repeats(
    batches: Iterable[pa.RecordBatch], column: str | None, on_repeat: Callable[[str], None]
) -> Iterator[pa.RecordBatch]:
    """The batches of matches, and a call if two of the first have one identifier, as the events of `column` share."""
    seen: set[str] = set()
    is_open = column is not None
    for batch in batches:
        if is_open:
            found = batch.column(MATCH_ID).slice(0, _MOST_SEEN).to_pylist()
            before = len(seen)
            seen.update(found)
            if len(seen) < before + len(found):
                on_repeat(
                    f"several matches have one `{MATCH_ID}`: events share a value of `{column}`; "
                    "name another id_column, or none"
                )
                is_open = False
            is_open = is_open and len(seen) < _MOST_SEEN
        yield batch


def match_words(seed: str, groups: Mapping[str, tuple[Array, Array]], count: int) -> Array:
    """The hashes of matches, each of them a row of words. A group holds how many events a variable binds in each match,
    and the hashes of all of them. The sum of mixed words depends on the variable and the index of each event, because
    these are mixed with its hash."""
    total = np.full((count, LANES), _hashed([seed])[0], np.uint64)
    for number, (_, (lengths, hashes)) in enumerate(sorted(groups.items())):
        index = np.arange(len(hashes)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        role = _mixed((index.astype(np.uint64) << np.uint64(8)) + np.uint64(number + 1))
        np.add.at(total, np.repeat(np.arange(count), lengths), _mixed(hashes ^ role[:, None]))
    return _mixed(total)


def relabelled(column: pa.Array, label: str) -> pa.Array:
    """The column IDENTITY of derived events under a label."""
    return identity_column(labelled_words(identity_words(column), label))


def labelled_words(words: Array, label: str) -> Array:
    """The hashes of derived events under the label by which a query knows them. One query may have two labels."""
    return _mixed(words ^ _hashed([label])[0])


def identity_column(words: Array) -> pa.Array:
    """Hashes as the values of the column IDENTITY."""
    octets = np.ascontiguousarray(words.astype(">u8")).tobytes()
    return pa.Array.from_buffers(IDENTITY_TYPE, len(words), [None, pa.py_buffer(octets)])


def identity_words(column: pa.Array) -> Array:
    octets = np.frombuffer(column.buffers()[1], ">u8", LANES * len(column), 8 * LANES * column.offset)
    return octets.astype(np.uint64).reshape(-1, LANES)


def hexadecimal(words: Array) -> pa.Array:
    """Hashes as texts of 32 digits."""
    octets = np.ascontiguousarray(words.astype(">u8")).view(np.uint8).reshape(len(words), 8 * LANES)
    digits = np.stack([_DIGITS[octets >> 4], _DIGITS[octets & 15]], axis=2)
    width = 16 * LANES
    offsets = np.arange(len(words) + 1, dtype=np.int32) * width
    return pa.StringArray.from_buffers(len(words), pa.py_buffer(offsets), pa.py_buffer(digits.tobytes()))


def _filled(texts: pa.Array, missing: pa.Array) -> pa.Array:
    """The texts, with others in place of the nulls, in order."""
    if not pa.types.is_string(texts.type):
        return missing
    return pc.replace_with_mask(texts, texts.is_null(), missing)


def _numbered(texts: pa.Array, numbers: Array) -> pa.Array:
    marked = joined([texts, "#", pa.array(numbers).cast(pa.string())])
    return pc.if_else(pa.array(numbers > 0), marked, texts)


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


def _words(texts: pa.Array) -> Array:
    encoded = texts.dictionary_encode()
    words: Array = _hashed(encoded.dictionary.to_pylist())[np.asarray(encoded.indices)]
    return words


def _hashed(texts: list[str]) -> Array:
    digests = b"".join(hashlib.blake2b(text.encode(), digest_size=8 * LANES).digest() for text in texts)
    return np.frombuffer(digests, ">u8").astype(np.uint64).reshape(-1, LANES)


def _mixed(words: Array) -> Array:
    """The finalizer of SplitMix64: each bit of the input changes half of the bits of the output."""
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: Array = words ^ (words >> np.uint64(31))
    return mixed
