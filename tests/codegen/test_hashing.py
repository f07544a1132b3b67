"""`hash_f` over columns is the hash of each row by its definition."""

from __future__ import annotations

from datetime import datetime

import pyarrow as pa
import pytest

import cepheid
from cepheid.codegen.hashing import hashed
from cepheid.codegen.typed_columns import constant, from_arrow, to_python
from cepheid.evaluation import call

COLUMNS = {
    "integers": pa.array([0, -1, 2**63 - 1, -(2**63), None]),
    "unsigned integers": pa.array([0, 1, 2**63, 2**64 - 1, None], pa.uint64()),
    "floats": pa.array([0.0, -0.0, 1.5, float("inf"), None]),
    "booleans": pa.array([True, False, None, True, None]),
    "strings": pa.array(["", "a", "é", None, "a"]),
    "timestamps": pa.array([datetime(2020, 1, 1), None, datetime(1960, 1, 1), datetime(2020, 1, 1), None]),
    "nulls": pa.nulls(5),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_the_hash_of_columns_is_that_of_their_values(name: str) -> None:
    columns = [constant("label"), from_arrow(COLUMNS[name]), from_arrow(COLUMNS["integers"])]
    found = hashed(columns, 5)
    assert found is not None
    rows = zip(*(to_python(column, 5) for column in columns), strict=True)
    assert to_python(found, 5) == [call("hash_f", row) for row in rows]


def test_values_without_a_word_are_left_to_the_definition() -> None:
    assert hashed([from_arrow(pa.array([[1.0, 2.0]]))], 1) is None


@pytest.mark.parametrize("evaluator", [None, "reference"])
def test_equal_floats_have_one_hash(evaluator: str | None) -> None:
    table = pa.table({"type": ["A", "B"], "ts": [1, 2], "f": [0.0, -0.0]})
    query = "EVENT SEQ(A a, B b) WHERE a.f = b.f AND hash_f(a.f) = hash_f(b.f)"
    assert cepheid.match(query, table, evaluator=evaluator).num_rows == 1
