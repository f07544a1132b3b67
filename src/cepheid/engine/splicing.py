"""Inserts rows into selected rows of others, column by column, and copies each value once.

Arrow would copy the selected rows, join both and then take them in order. That is slow where a column has nulls, as
most columns of derived events have: the input lacks their attributes, and they lack those of the input.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from cepheid.io.rows import one_batch
from cepheid.runtime.kernel import Array


def joined_batches(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """All rows, of which there may be none."""
    filled = [batch for batch in batches if batch.num_rows] or list(batches[:1])
    if len(filled) == 1:
        return filled[0]
    return one_batch(pa.Table.from_batches(filled).unify_dictionaries())


@dataclass(frozen=True, slots=True)
class Selected:
    """Some rows of a batch, in order, which are not copied yet; all of them if `rows` is None."""

    batch: pa.RecordBatch
    rows: Array | None = None

    @property
    def count(self) -> int:
        return self.batch.num_rows if self.rows is None else len(self.rows)

    @property
    def indices(self) -> Array:
        return np.arange(self.batch.num_rows) if self.rows is None else self.rows

    def numbers(self, name: str) -> Array:
        values = np.asarray(self.batch.column(name))
        return values if self.rows is None else values[self.rows]

    @classmethod
    def of(cls, batch: pa.RecordBatch, is_selected: Array) -> Selected:
        """The rows for which this is true. Few rows of many are copied."""
        if is_selected.all():
            return cls(batch)
        selected = cls(batch, np.flatnonzero(is_selected))
        return selected if 2 * selected.count > batch.num_rows else cls(selected.copied())

    def split(self, count: int) -> tuple[Selected, Selected]:
        """The first rows, as many, and the others, which are few."""
        if self.rows is None:
            return Selected(self.batch.slice(0, count)), Selected(self.batch.slice(count))
        return Selected(self.batch, self.rows[:count]), Selected(Selected(self.batch, self.rows[count:]).copied())

    def copied(self) -> pa.RecordBatch:
        if self.rows is None:
            return self.batch
        arrays = [_taken(column, self.rows) for column in self.batch.columns]
        return pa.RecordBatch.from_arrays(arrays, schema=self.batch.schema)


@dataclass(frozen=True, slots=True)
class Splice:
    """Rows `order` of a batch, each inserted after a number of selected rows of others. All have one schema."""

    into: Sequence[Selected]
    inserted: pa.RecordBatch
    order: Array
    at: Array
    """The positions in the result of the inserted rows."""
    chosen: Array
    """The row of each row of the result, in all batches one after the other, `inserted` last."""

    @classmethod
    def of(cls, into: Sequence[Selected], inserted: pa.RecordBatch, order: Array, after: Array) -> Splice:
        at = after + np.arange(len(order))
        is_selected = np.ones(sum(part.count for part in into) + len(order), bool)
        is_selected[at] = False
        starts = np.cumsum([0, *(part.batch.num_rows for part in into)])
        rows = [part.indices + start for part, start in zip(into, starts[:-1], strict=True)]
        chosen = np.empty(len(is_selected), np.int64)
        chosen[at] = starts[-1] + order
        chosen[is_selected] = np.concatenate([np.empty(0, np.int64), *rows])
        return cls(into, inserted, order, at, chosen)

    def rows(self) -> pa.RecordBatch:
        batches = [*(part.batch for part in self.into), self.inserted]
        columns = range(self.inserted.num_columns)
        arrays = [self._column([batch.column(at) for batch in batches]) for at in columns]
        return pa.RecordBatch.from_arrays(arrays, schema=self.inserted.schema)

    def _column(self, parts: Sequence[pa.Array]) -> pa.Array:
        kind = parts[-1].type
        if pa.types.is_dictionary(kind):
            unified = pa.chunked_array(parts, kind).unify_dictionaries().chunks
            return pa.DictionaryArray.from_arrays(self._numbers([p.indices for p in unified]), unified[0].dictionary)
        if _is_number(kind):
            return self._numbers(parts)
        return pa.chunked_array(parts, kind).combine_chunks().take(pa.array(self.chosen))

    def _numbers(self, parts: Sequence[pa.Array]) -> pa.Array:
        """Few rows are inserted: they are written over the others, taken as if there were no more of them."""
        *others, inserted = parts
        kind, count = inserted.type, len(self.chosen)
        are_null = all(part.null_count == len(part) for part in others)  # an attribute of the inserted rows only
        values = np.zeros(count, _integer(kind)) if are_null else self._taken(list(map(_values, others)))
        values[self.at] = _values(inserted)[self.order]
        valid = None
        if any(part.null_count for part in parts):
            is_mixed = not are_null and any(part.null_count for part in others)
            valid = self._taken(list(map(_validity, others))) if is_mixed else np.full(count, not are_null)
            valid[self.at] = _validity(inserted)[self.order]
        return _of_values(values, kind, valid)

    def _taken(self, parts: Sequence[Array]) -> Array:
        joined = parts[0] if len(parts) == 1 else np.concatenate(parts)
        taken: Array = joined.take(self.chosen, mode="clip")
        return taken


def _taken(array: pa.Array, rows: Array) -> pa.Array:
    if array.null_count == len(array):
        return pa.nulls(len(rows), array.type)
    if pa.types.is_dictionary(array.type):
        return pa.DictionaryArray.from_arrays(_taken(array.indices, rows), array.dictionary)
    if array.null_count or not _is_number(array.type):
        return array.take(pa.array(rows))
    return _of_values(_values(array).take(rows, mode="clip"), array.type, None)


def _of_values(values: Array, kind: pa.DataType, valid: Array | None) -> pa.Array:
    validity = None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.Array.from_buffers(kind, len(values), [validity, pa.py_buffer(values)])


def _is_number(kind: pa.DataType) -> bool:
    """Whether the values are a buffer of numbers of one, two, four or eight bytes."""
    return pa.types.is_primitive(kind) and kind.bit_width in (8, 16, 32, 64)


def _integer(kind: pa.DataType) -> np.dtype[np.signedinteger]:
    return np.dtype(f"i{kind.bit_width // 8}")


def _values(array: pa.Array) -> Array:
    """The buffer of an array of numbers; any number stands for a null."""
    values = np.frombuffer(array.buffers()[1], _integer(array.type))
    return values[array.offset : array.offset + len(array)]


def _validity(array: pa.Array) -> Array:
    return np.asarray(array.is_valid()) if array.null_count else np.ones(len(array), bool)
