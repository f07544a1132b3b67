"""Encodes events in Arrow as the arrays that kernels read. Strings become codes that stay the same in all batches."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cepheid.codegen.columns import MASK, attribute, number_array, time_of
from cepheid.codegen.masks import derived_column, masks
from cepheid.codegen.strings import dictionary_encoded
from cepheid.codegen.typed_columns import NULL, Strings, floats, to_python
from cepheid.codegen.typed_columns import from_arrow as typed
from cepheid.errors import InputProblem
from cepheid.events import HISTORY
from cepheid.expr import Attr
from cepheid.physical import Kind, Plan, kind_of
from cepheid.runtime.arrays import NULL_CODE
from cepheid.runtime.jit import WORTH_COMPILING, entry, machine_code
from cepheid.runtime.kernel import Array, Batch, Codes
from cepheid.runtime.texts import string_table
from cepheid.types import BINARY, UNKNOWN, Family
from cepheid.values import without_zeros


@dataclass(slots=True)
class Dictionary:
    """The strings, binary values and long decimals of a stream and the code of each, which never changes and never
    comes to mean another value."""

    codes: dict[Any, int] = field(default_factory=dict)
    following: int = 0
    """The code that the next new value gets."""
    recent: set[Any] = field(default_factory=set)
    """The values that were seen since `forget`."""

    def code(self, value: object) -> int:
        return self.codes_of([value])[0]

    def codes_of(self, values: list[Any]) -> list[int]:
        """The code of each value; new ones get the next codes, in their order."""
        new = dict.fromkeys(value for value in values if value not in self.codes)
        new.pop(None, None)
        self.codes.update(zip(new, range(self.following, self.following + len(new)), strict=True))
        self.following += len(new)
        self.recent.update(values)
        self.recent.discard(None)
        return [NULL_CODE if value is None else self.codes[value] for value in values]

    def forget(self) -> None:
        """Without the values that were not seen since the last time."""
        self.codes = {value: code for value, code in self.codes.items() if value in self.recent}
        self.recent = set()

    def encode(self, column: pa.Array) -> Array:
        encoded = column if isinstance(column, pa.DictionaryArray) else dictionary_encoded(column)
        known = self.codes_of(encoded.dictionary.to_pylist())
        translation = np.array([*known, NULL_CODE], np.int64)
        indices = encoded.indices
        if indices.null_count:
            indices = indices.fill_null(len(known))
        return np.asarray(translation[indices.to_numpy(zero_copy_only=False)])

    def encode_all(self, values: Sequence[Any]) -> Array:
        return np.array(self.codes_of(list(values)), np.int64)

    def ranks(self) -> Array:
        """The rank of each code in the order of the values, so that codes can be compared as the values are."""
        ranks = np.zeros(self.following, np.int64)
        for family in dict.fromkeys(map(type, self.codes)):  # only values of one type are compared
            values: list[Any] = [value for value in self.codes if type(value) is family]
            codes = np.array([self.codes[value] for value in values], np.int64)
            ranks[codes[_order(values)]] = np.arange(len(values))
        return ranks


def _order(values: Sequence[Any]) -> Array:
    """The indices of values of one type in their order. Strings are ordered by code points, as their UTF-8 is."""
    if isinstance(values[0], str | bytes):
        try:
            return np.asarray(pc.sort_indices(pa.array(values)))
        except (pa.ArrowException, UnicodeError):  # half of a surrogate pair, in the text of a query
            pass
    return np.array(sorted(range(len(values)), key=values.__getitem__), np.int64)


@dataclass(slots=True)
class Encoder:
    """Turns Arrow batches of one stream into kernel batches. What it remembers is part of the stream's state."""

    plan: Plan
    type_column: str
    time_column: str
    texts: Sequence[Any]
    needs_ranks: bool
    needs_characters: bool = False
    dictionary: Dictionary = field(default_factory=Dictionary)
    partition_counts: dict[tuple[Any, ...], int] = field(default_factory=dict)
    rows: int = 0
    last_time: int | None = None
    forgot_at: int | None = None

    def forget_strings(self, now: int, window: int) -> None:
        """Forget the strings of events that lie so far back that no window reaches them. A stream of ever new strings
        then needs no more memory than its window."""
        if self.forgot_at is None:
            self.forgot_at = now
        elif now - self.forgot_at > window:
            self.dictionary.forget()
            self.forgot_at = now

    def encode(self, table: pa.RecordBatch) -> Batch:
        time = time_of(table.column(self.time_column))
        self._require_order(time)
        offsets, points = _histories(table) if self.plan.has_histories else (time, time)
        names = self.plan.columns
        columns = tuple(offsets if name == HISTORY else self._column(table, name) for name in names)
        codes = self.codes()
        mask = table.column(MASK).to_numpy().view(np.uint64) if MASK in table.schema.names else None
        batch = Batch(
            first=self.rows,
            time=time,
            measure=self._measure(table, time),
            mask=masks(self.plan, table, self.type_column) if mask is None else mask,
            columns=columns,
            texts=codes.texts,
            ranks=codes.ranks,
            lists=(points,) if self.plan.has_histories else (),
        )
        self.rows += len(time)
        return batch

    def codes(self) -> Codes:
        """The codes of the string constants, and the ranks of all codes so far."""
        texts = np.array([self.dictionary.code(text) for text in self.texts] or [0], np.int64)
        return Codes(texts, self._ranks() if self.needs_ranks else np.empty(0, np.int64))

    def _ranks(self) -> Array:
        ranks = self.dictionary.ranks()
        if not self.needs_characters:
            return ranks
        texts: list[str | None] = [None] * self.dictionary.following
        for value, code in self.dictionary.codes.items():
            texts[code] = value if isinstance(value, str) else None
        return string_table(ranks, texts)

    def _require_order(self, time: Array) -> None:
        if not len(time):
            return
        earlier = time[1:] < time[:-1]
        if earlier.any() or (self.last_time is not None and time[0] < self.last_time):
            row = self.rows + (int(earlier.argmax()) + 1 if earlier.any() else 0)
            raise InputProblem(
                f"event {row} is earlier than the one before it",
                expected="batches in the order of time",
                hint="sort the events by time first",
            )
        self.last_time = int(time[-1])

    def _column(self, table: pa.RecordBatch, name: str) -> Array:
        if name in self.plan.derived:
            return self._derived(table, name)
        column, kind, rows = attribute(table, name), self.plan.columns[name], table.num_rows
        if column is not None and self.plan.types.get(name, UNKNOWN).family is Family.LIST:
            return self._lists(column)
        if kind is Kind.CODE:
            return np.full(rows, NULL_CODE) if column is None else self.dictionary.encode(column)
        known = NULL if column is None else typed(column)
        if column is not None and isinstance(known.values, Strings):
            # Only events of other types have values here: those of the query have nulls, which have no type.
            known = floats(np.zeros(rows), np.asarray(column.is_valid()))
        return number_array(known, self.plan.types.get(name, known.type), rows)

    def _lists(self, column: pa.Array) -> Array:
        different, numbers = _distinct_lists(column)
        keys = [None if v is None else value_key(v) for v in column.take(pa.array(different)).to_pylist()]
        return np.asarray(self.dictionary.encode_all(keys)[numbers])

    def _derived(self, table: pa.RecordBatch, name: str) -> Array:
        expr = self.plan.derived[name]
        array = attribute(table, expr.name) if isinstance(expr, Attr) else None
        if array is not None and pa.types.is_list(array.type) and self.plan.types[name] == BINARY:
            return self._lists(array)
        column, type_, rows = derived_column(self.plan, table, name), self.plan.types[name], table.num_rows
        if kind_of(type_) is not Kind.CODE:
            return number_array(column, type_, rows)
        if isinstance(column.values, Strings) and column.type == type_:
            return self.dictionary.encode(column.values.encoded(rows, column.valid))
        values = to_python(column, rows)
        if type_.family is Family.DECIMAL:
            return self.dictionary.encode_all([None if value is None else Decimal(value) for value in values])
        return self.dictionary.encode_all([None if value is None else value_key(value) for value in values])

    def _measure(self, table: pa.RecordBatch, time: Array) -> Array:
        if not self.plan.counts_events:
            return time
        if not self.plan.key:
            return np.arange(self.rows, self.rows + len(time), dtype=np.int64)
        keys, inverse = _distinct_keys(table, self.plan.key)
        counts = np.array([self.partition_counts.get(key, 0) for key in keys], np.int64)
        indices = np.empty(len(time), np.int64)
        count = machine_code(_count_in_partition) if len(time) >= WORTH_COMPILING else _count_in_partition
        count(inverse, counts, indices)
        self.partition_counts.update(zip(keys, counts.tolist(), strict=True))
        return indices

    def save(self) -> bytes:
        """Serializes the dictionary and the counters."""
        known = self.dictionary
        memory = {
            "strings": [[_to_json(value), code, value in known.recent] for value, code in known.codes.items()],
            "following": known.following,
            "places": [[list(map(_to_json, key)), count] for key, count in self.partition_counts.items()],
            "rows": self.rows,
            "last": self.last_time,
            "forgot_at": self.forgot_at,
        }
        return json.dumps(memory).encode()

    def restore(self, data: bytes) -> None:
        """Deserializes what `save` has serialized."""
        memory = json.loads(data)
        strings = [(_from_json(value), code, recent) for value, code, recent in memory["strings"]]
        self.dictionary = Dictionary(
            {text: code for text, code, _ in strings},
            memory["following"],
            {text for text, _, recent in strings if recent},
        )
        self.partition_counts = {tuple(map(_from_json, key)): count for key, count in memory["places"]}
        self.rows, self.last_time, self.forgot_at = memory["rows"], memory["last"], memory["forgot_at"]


def _to_json(value: object) -> object:
    """A value of a key or of the dictionary; what JSON does not have is an object with its type."""
    match value:
        case bytes():
            return {"bytes": value.hex()}
        case Decimal():
            return {"decimal": str(value)}
        case _:
            return value


def _from_json(value: Any) -> Any:
    match value:
        case {"bytes": text}:
            return bytes.fromhex(text)
        case {"decimal": text}:
            return Decimal(text)
        case _:
            return value


def _distinct_lists(column: pa.Array) -> tuple[Array, Array]:
    """The first row of each different list, and for each row the number of its list. Lists of equal values may count as
    different (0.0 and -0.0)."""
    kind = column.type
    is_plain = pa.types.is_list(kind) and not pa.types.is_nested(kind.value_type)
    if not is_plain or not len(column):
        return np.arange(len(column)), np.arange(len(column))
    items = column.flatten()  # without those of lists that are null
    codes = np.full(len(items), -1, np.int64)
    if not pa.types.is_null(items.type):
        encoded = items if isinstance(items, pa.DictionaryArray) else items.dictionary_encode()
        codes = np.asarray(encoded.indices.fill_null(-1), np.int64)
    lengths = np.asarray(pc.fill_null(column.value_lengths(), 0), np.int64)
    offsets = np.concatenate([[0], np.cumsum(lengths)]) * codes.itemsize
    texts = pa.LargeBinaryArray.from_buffers(
        pa.large_binary(), len(column), [None, pa.py_buffer(offsets), pa.py_buffer(codes)]
    )
    numbers = np.asarray(texts.dictionary_encode().indices, np.int64)
    if column.null_count:  # null has no items, as an empty list
        numbers = np.where(np.asarray(column.is_valid()), numbers + 1, 0)
    _, first, numbers = np.unique(numbers, return_index=True, return_inverse=True)
    return first, numbers


def value_key(value: Any) -> bytes:
    """Equal bytes for equal values (`values.compare`): numbers are equal by value, and in lists null, as which NaN
    counts, equals null."""
    return repr(_item_key(value)).encode()


def _item_key(item: Any) -> Any:
    match item:
        case list() | tuple():
            return [_item_key(inner) for inner in item]
        case float() if item != item:
            return None
        case float() if item.is_integer():
            return int(item)
        case Decimal() if item == item.to_integral_value():
            return int(item)
        case Decimal():
            return without_zeros(item)
        case _:
            return item


def _histories(table: pa.RecordBatch) -> tuple[Array, Array]:
    """The offset of each event's history in the array of all of them, or -1: its length, then its time points."""
    column = attribute(table, HISTORY)
    if column is None:
        return np.full(table.num_rows, -1), np.empty(0, np.int64)
    lengths = np.asarray(column.value_lengths().fill_null(0), np.int64)
    has_some = lengths > 0
    sizes = lengths + has_some
    offsets = np.cumsum(sizes) - sizes
    points, is_point = np.empty(int(sizes.sum()), np.int64), np.ones(int(sizes.sum()), bool)
    points[offsets[has_some]] = lengths[has_some]
    is_point[offsets[has_some]] = False
    points[is_point] = np.asarray(column.flatten())
    return np.where(has_some, offsets, -1), points


@entry
def _count_in_partition(keys: Array, counts: Array, indices: Array) -> None:
    """Writes the index of each event in its partition; `counts` are the events of each partition so far."""
    for i in range(keys.shape[0]):
        indices[i] = counts[keys[i]]
        counts[keys[i]] += 1


def _distinct_keys(table: pa.RecordBatch, names: Sequence[str]) -> tuple[list[tuple[Any, ...]], Array]:
    """The partition keys of a batch, and for each row the number of its key."""
    parts = [_encoded_key(attribute(table, name), table.num_rows) for name in names]
    if len(parts) == 1:
        return [(value,) for value in parts[0][0]], parts[0][1]
    combined = np.zeros(table.num_rows, np.int64)
    for values, indices in parts:
        combined = combined * len(values) + indices
    distinct, inverse = np.unique(combined, return_inverse=True)
    keys = []
    for number in distinct.tolist():
        key: list[Any] = []
        for values, _ in reversed(parts):
            number, index = divmod(number, len(values))
            key.append(values[index])
        keys.append(tuple(reversed(key)))
    return keys, inverse.astype(np.int64)


def _encoded_key(column: pa.Array | None, rows: int) -> tuple[list[Any], Array]:
    """The distinct values of a key column, null among them, and for each row the number of its value."""
    if column is None or pa.types.is_null(column.type):
        return [None], np.zeros(rows, np.int64)
    encoded = column if isinstance(column, pa.DictionaryArray) else column.dictionary_encode()
    values = to_python(typed(encoded.dictionary), len(encoded.dictionary))
    # A dictionary may have equal values, and null.
    numbers = {value: number for number, value in enumerate(dict.fromkeys([*values, None]))}
    if len(numbers) > len(values) and not encoded.indices.null_count:
        return values, encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    translation = np.array([*(numbers[value] for value in values), numbers[None]], np.int64)
    indices = encoded.indices.fill_null(len(values)).to_numpy(zero_copy_only=False)
    return list(numbers), translation[indices]
