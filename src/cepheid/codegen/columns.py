"""Events in Arrow to the arrays that kernels read, and what has to be remembered from batch to batch to do so."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cepheid.codegen.strings import dictionary_encoded
from cepheid.errors import InputProblem
from cepheid.events import UNTYPED
from cepheid.physical import Kind, Plan
from cepheid.runtime.arrays import NULL_CODE, NULL_INT
from cepheid.runtime.jit import entry, machine_code
from cepheid.runtime.kernel import Array, Batch

MASK = "\0mask"
"""The column of masks that were computed before, in Catalyst."""


def kind_of(arrow_type: pa.DataType) -> Kind | None:
    """How a column of this type is held; None for types that kernels do not read."""
    if pa.types.is_dictionary(arrow_type):
        return kind_of(arrow_type.value_type)
    if pa.types.is_integer(arrow_type) or pa.types.is_timestamp(arrow_type) or pa.types.is_date(arrow_type):
        return Kind.INT
    if pa.types.is_floating(arrow_type) or pa.types.is_decimal(arrow_type):
        return Kind.FLOAT
    if pa.types.is_string(arrow_type) or pa.types.is_large_string(arrow_type) or pa.types.is_boolean(arrow_type):
        return Kind.CODE
    if pa.types.is_null(arrow_type):
        return Kind.FLOAT
    return None


@dataclass(slots=True)
class Dictionary:
    """The strings of a stream and the code of each, which never changes and never comes to mean another string."""

    codes: dict[str, int] = field(default_factory=dict)
    following: int = 0
    """The code that the next new string gets."""
    recent: set[str] = field(default_factory=set)
    """The strings that were seen since `forget`."""

    def code(self, text: str) -> int:
        self.recent.add(text)
        found = self.codes.get(text)
        if found is None:
            found = self.codes[text] = self.following
            self.following += 1
        return found

    def forget(self) -> None:
        """Without the strings that were not seen since the last time."""
        self.codes = {text: code for text, code in self.codes.items() if text in self.recent}
        self.recent = set()

    def encode(self, column: pa.Array) -> Array:
        encoded = column if isinstance(column, pa.DictionaryArray) else dictionary_encoded(column)
        translation = np.array([self.code(text) for text in encoded.dictionary.to_pylist()] or [0], np.int64)
        indices = encoded.indices
        if indices.null_count:
            local = indices.fill_null(0).to_numpy(zero_copy_only=False)
            return np.where(indices.is_null().to_numpy(zero_copy_only=False), NULL_CODE, translation[local])
        return np.asarray(translation[indices.to_numpy(zero_copy_only=False)])

    def ranks(self) -> Array:
        """The place of each code in the order of the strings, so that codes can be compared as strings are."""
        order = sorted(self.codes, key=lambda text: text)
        ranks = np.zeros(self.following, np.int64)
        for rank, text in enumerate(order):
            ranks[self.codes[text]] = rank
        return ranks


@dataclass(slots=True)
class Encoder:
    """Turns Arrow batches of one stream into kernel batches. What it remembers is part of the stream's state."""

    plan: Plan
    type_column: str
    time_column: str
    texts: Sequence[str]
    needs_ranks: bool
    dictionary: Dictionary = field(default_factory=Dictionary)
    places: dict[tuple[Any, ...], int] = field(default_factory=dict)
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
        from cepheid.codegen.masks import masks

        time = time_of(table.column(self.time_column))
        self._require_order(time)
        text_codes = np.array([self.dictionary.code(text) for text in self.texts] or [0], np.int64)
        columns = tuple(self._column(table, name, kind) for name, kind in self.plan.columns.items())
        mask = table.column(MASK).to_numpy().view(np.uint64) if MASK in table.schema.names else None
        batch = Batch(
            first=self.rows,
            time=time,
            measure=self._measure(table, time),
            mask=masks(self.plan, table, self.type_column) if mask is None else mask,
            columns=columns,
            texts=text_codes,
            ranks=self.dictionary.ranks() if self.needs_ranks else np.empty(0, np.int64),
        )
        self.rows += len(time)
        return batch

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

    def _column(self, table: pa.RecordBatch, name: str, kind: Kind) -> Array:
        column = attribute(table, name)
        if column is None:
            return np.full(table.num_rows, *_nothing(kind))
        if kind is Kind.CODE and not pa.types.is_boolean(column.type):
            return self.dictionary.encode(column)
        return number_array(column, kind)

    def _measure(self, table: pa.RecordBatch, time: Array) -> Array:
        if not self.plan.counts_events:
            return time
        if not self.plan.key:
            return np.arange(self.rows, self.rows + len(time), dtype=np.int64)
        keys, inverse = _distinct_keys(table, self.plan.key)
        counts = np.array([self.places.get(key, 0) for key in keys], np.int64)
        places = np.empty(len(time), np.int64)
        count = machine_code(_count_places) if len(time) >= _WORTH_COMPILING else _count_places
        count(inverse, counts, places)
        self.places.update(zip(keys, counts.tolist(), strict=True))
        return places

    def save(self) -> bytes:
        known = self.dictionary
        memory = {
            "strings": [[text, code, text in known.recent] for text, code in known.codes.items()],
            "following": known.following,
            "places": [[list(key), count] for key, count in self.places.items()],
            "rows": self.rows,
            "last": self.last_time,
            "forgot_at": self.forgot_at,
        }
        return json.dumps(memory).encode()

    def restore(self, data: bytes) -> None:
        memory = json.loads(data)
        strings = memory["strings"]
        self.dictionary = Dictionary(
            {text: code for text, code, _ in strings},
            memory["following"],
            {text for text, _, recent in strings if recent},
        )
        self.places = {tuple(key): count for key, count in memory["places"]}
        self.rows, self.last_time, self.forgot_at = memory["rows"], memory["last"], memory["forgot_at"]


_WORTH_COMPILING = 10_000


@entry
def _count_places(keys: Array, counts: Array, places: Array) -> None:
    for i in range(keys.shape[0]):
        places[i] = counts[keys[i]]
        counts[keys[i]] += 1


def _distinct_keys(table: pa.RecordBatch, names: Sequence[str]) -> tuple[list[tuple[Any, ...]], Array]:
    """The partition keys of a batch, and for each row the number of its key."""
    parts: list[tuple[list[Any], Array]] = []
    for name in names:
        column = attribute(table, name)
        if column is None:
            column = pa.nulls(table.num_rows)
        encoded = column.dictionary_encode(null_encoding="encode") if not pa.types.is_null(column.type) else None
        if encoded is None:
            parts.append(([None], np.zeros(table.num_rows, np.int64)))
        else:
            indices = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
            parts.append((encoded.dictionary.to_pylist(), indices))
    combined = np.zeros(table.num_rows, np.int64)
    for values, indices in parts:
        combined = combined * len(values) + indices
    if len(parts) == 1:
        return [(value,) for value in parts[0][0]], combined
    distinct, inverse = np.unique(combined, return_inverse=True)
    keys = []
    for number in distinct.tolist():
        key: list[Any] = []
        for values, _ in reversed(parts):
            number, index = divmod(number, len(values))
            key.append(values[index])
        keys.append(tuple(reversed(key)))
    return keys, inverse.astype(np.int64)


def _nothing(kind: Kind) -> tuple[Any, Any]:
    if kind is Kind.FLOAT:
        return np.nan, np.float64
    return (NULL_CODE if kind is Kind.CODE else NULL_INT), np.int64


def attribute(table: pa.RecordBatch, name: str) -> pa.Array | None:
    """The column of an attribute; a dotted name may lead into a struct."""
    if name in table.schema.names:
        return table.column(name)
    outer, _, inner = name.partition(".")
    if inner and outer in table.schema.names and pa.types.is_struct(table.schema.field(outer).type):
        struct = table.column(outer)
        if struct.type.get_field_index(inner) >= 0:
            return pc.struct_field(struct, inner)
    return None


def number_array(column: pa.Array, kind: Kind) -> Array:
    """A column of numbers (or booleans) as NumPy, nulls as the kernel's nulls."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64())
    elif pa.types.is_date(column.type):
        column = column.cast(pa.timestamp("us")).cast(pa.int64())
    wanted, (fill, dtype) = (pa.float64() if kind is Kind.FLOAT else pa.int64()), _nothing(kind)
    if column.type != wanted:
        column = column.cast(wanted, safe=kind is not Kind.FLOAT)  # a float is the nearest one
    if column.null_count:
        column = column.fill_null(pa.scalar(fill, wanted))
    return np.asarray(column.to_numpy(zero_copy_only=False), dtype)


def time_of(column: pa.Array) -> Array:
    if column.null_count:
        raise InputProblem(
            "an event has no time", expected="a time in every row", hint="drop rows without a time first"
        )
    if kind_of(column.type) is not Kind.INT:
        raise InputProblem(f"the time column holds {column.type}", expected="integers or timestamps")
    return number_array(column, Kind.INT)


def types_of(table: pa.RecordBatch, type_column: str) -> tuple[list[str], Array]:
    """The distinct event types of a batch, and for each row the number of its type."""
    if type_column not in table.schema.names:
        return [UNTYPED], np.zeros(table.num_rows, np.int64)
    column = table.column(type_column)
    encoded = column if isinstance(column, pa.DictionaryArray) else dictionary_encoded(column)
    names: list[Any] = encoded.dictionary.to_pylist()
    indices = encoded.indices
    if indices.null_count:
        indices = indices.fill_null(len(names))
    return [str(name) for name in names] + [UNTYPED], indices.to_numpy(zero_copy_only=False)


def schema_kinds(schema: pa.Schema, skip: Sequence[str] = ()) -> Mapping[str, Kind]:
    """The kind of every attribute of an Arrow schema, fields of structs under dotted names."""
    kinds: dict[str, Kind] = {}
    for column in schema:
        if pa.types.is_struct(column.type):
            for inner in column.type:
                if (kind := kind_of(inner.type)) is not None:
                    kinds[f"{column.name}.{inner.name}"] = kind
        elif column.name not in skip and (kind := kind_of(column.type)) is not None:
            kinds[column.name] = kind
    return kinds
