"""What is written compactly is read as it was: numbers of any size, rows of any type, the arrays of kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cepheid.runtime.kernel import StateArray
from cepheid.streaming.compact import read_arrays, read_numbers, read_rows, write_arrays, write_numbers, write_rows

LONG = st.integers(-(2**63), 2**63 - 1)
NUMBERS = st.lists(st.one_of(LONG, st.integers(-200, 200), st.integers(10**15, 10**15 + 70_000)), max_size=40)


@given(NUMBERS)
def test_numbers_come_back(numbers: list[int]) -> None:
    assert read_numbers(write_numbers(np.array(numbers, np.int64))).tolist() == numbers


def test_numbers_that_grow_slowly_take_one_byte_each() -> None:
    assert len(write_numbers(np.arange(10**15, 10**15 + 7_000, 7))) < 1_020


@given(st.lists(NUMBERS, min_size=1, max_size=4), st.integers(1, 5), st.lists(st.floats(), max_size=9))
def test_arrays_come_back_and_can_be_written_to(arrays: list[list[int]], width: int, floats: list[float]) -> None:
    state = (*(np.array(array, np.int64) for array in arrays), np.array(floats), np.array([1], np.uint64))
    layout = [StateArray("a", str(array.dtype), 0, width=width) for array in state]
    again = read_arrays(write_arrays(state, layout), layout)
    assert [array.tobytes() for array in again] == [array.tobytes() for array in state]
    assert [array.dtype for array in again] == [array.dtype for array in state]
    assert all(array.flags.writeable for array in again)


COLUMNS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "long": (pa.int64(), LONG),
    "unsigned": (pa.uint64(), st.integers(0, 2**64 - 1)),
    "at": (pa.timestamp("us", "UTC"), LONG),
    "int": (pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    "double": (pa.float64(), st.floats()),
    "text": (pa.string(), st.sampled_from(["", "a", "é", "long text"])),
    "flag": (pa.bool_(), st.booleans()),
    "many": (pa.list_(pa.int64()), st.lists(st.integers(0, 9), max_size=3)),
}


@given(st.data(), st.integers(0, 30), st.booleans())
def test_rows_come_back(data: st.DataObject, count: int, nulls: bool) -> None:
    arrays = []
    for kind, values in COLUMNS.values():
        drawn = st.one_of(st.none(), values) if nulls else values
        given_values = data.draw(st.lists(drawn, min_size=count, max_size=count))
        as_number = pa.types.is_timestamp(kind)
        array = pa.array(given_values, pa.int64() if as_number else kind)
        arrays.append(array.view(kind) if as_number else array)
    rows = pa.RecordBatch.from_arrays(arrays, names=list(COLUMNS))
    cut = rows.slice(data.draw(st.integers(0, count)))
    for whole in (rows, cut):
        again = read_rows(write_rows(whole), rows.schema)
        again.validate(full=True)
        assert again.schema == rows.schema and again.num_rows == whole.num_rows
        assert [repr(column.to_numpy(zero_copy_only=False).tolist()) for column in map(_plain, again.columns)] == [
            repr(column.to_numpy(zero_copy_only=False).tolist()) for column in map(_plain, whole.columns)
        ]


def _plain(column: pa.Array) -> pa.Array:
    """Times as numbers: Python's own have a shorter range."""
    return column.view(pa.int64()) if pa.types.is_timestamp(column.type) else column


@pytest.mark.parametrize("texts", [["a", "b"] * 500, [str(n) for n in range(1_000)]], ids=["few", "many"])
def test_texts_that_come_again_are_kept_once(texts: list[str]) -> None:
    rows = pa.record_batch({"text": texts})
    written = write_rows(rows)
    assert read_rows(written, rows.schema).equals(rows)
    assert (len(written) < 2_000) == (len(set(texts)) == 2)
