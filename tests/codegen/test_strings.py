"""Dictionaries of short strings are those that Arrow makes."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cepheid.codegen import strings
from cepheid.codegen.strings import dictionary_encoded

# Texts whose first eight bytes agree, that are prefixes of each other, empty, with NULs, and too long.
TEXTS = st.one_of(
    st.sampled_from(
        ["", "A", "AB", "Register", "Registers", "Registry of all", "Registry of alls", "x" * 40, "\0", "\0\0"]
    ),
    st.text(max_size=6),
)


@pytest.fixture(autouse=True, params=["compiled", "interpreted"])
def short_columns_too(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strings, "WORTH_COMPILING", 0)
    if request.param == "interpreted":
        monkeypatch.setenv("CEPHEID_JIT", "0")


@given(texts=st.lists(TEXTS, max_size=40), start=st.integers(0, 40), nulls=st.booleans())
def test_short_strings_are_encoded_as_arrow_does(texts: list[str], start: int, nulls: bool) -> None:
    column = pa.array([*texts, None] if nulls else texts, pa.string()).slice(start)
    assert dictionary_encoded(column).equals(column.dictionary_encode())


@pytest.mark.parametrize(
    "different", [pytest.param(lambda: strings._MOST, id="as many as fit"), pytest.param(lambda: 3_000, id="too many")]
)
def test_many_different_strings(different: Callable[[], int]) -> None:
    column = pa.array([f"key {i % different()}" for i in range(5_000)])
    assert dictionary_encoded(column).equals(column.dictionary_encode())


@pytest.mark.parametrize("kind", [pa.large_string(), pa.int64(), pa.bool_()])
def test_other_columns_are_left_to_arrow(kind: pa.DataType) -> None:
    column = pa.array([1, 0, 1], pa.int64()).cast(kind)
    assert dictionary_encoded(column).equals(column.dictionary_encode())
