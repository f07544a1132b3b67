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


def test_the_hash_of_a_single_null_is_null() -> None:
    """Beside other values null is a value of its own: an identity may have parts without a value."""
    for values in (*COLUMNS.values(), pa.array([float("nan"), 1.0, None])):
        column = from_arrow(values)
        found = hashed([column], len(values))
        assert found is not None
        known = to_python(column, len(values))
        assert to_python(found, len(values)) == [call("hash_f", [value]) for value in known]
        assert [value is None for value in to_python(found, len(values))] == [v is None or v != v for v in known]
    assert call("hash_f", [None, 1]) not in (None, call("hash_f", [0, 1]))


@pytest.mark.parametrize("evaluator", [None, "reference"])
def test_the_hash_of_null_identifies_nothing(evaluator: str | None) -> None:
    table = pa.table(
        {"type": ["A"] * 4, "ts": [1, 2, 3, 4], "k": [None, None, 5, 5], "f": [float("nan"), None, 0.5, 0.5]}
    )
    for name in ("k", "f"):
        query = f"EVENT SEQ(A a, A b) WHERE hash_f(a.{name}) = hash_f(b.{name})"
        assert cepheid.match(query, table, evaluator=evaluator).num_rows == 1
        text = f"""source A schema int k, double f
primitive P on A as S schema event_id as hash_f(S.{name}), n as S.{name}
complex Q on P as p, P as q event seq(p, q; 9)"""
        alone = text.replace(f"hash_f(S.{name})", f"S.{name}")
        counts = {cepheid.match(one, table, evaluator=evaluator).num_rows for one in (text, alone)}
        assert len(counts) == 1


def test_values_without_a_word_are_left_to_the_definition() -> None:
    assert hashed([from_arrow(pa.array([[1.0, 2.0]]))], 1) is None


@pytest.mark.parametrize("evaluator", [None, "reference"])
def test_equal_floats_have_one_hash(evaluator: str | None) -> None:
    table = pa.table({"type": ["A", "B"], "ts": [1, 2], "f": [0.0, -0.0]})
    query = "EVENT SEQ(A a, B b) WHERE a.f = b.f AND hash_f(a.f) = hash_f(b.f)"
    assert cepheid.match(query, table, evaluator=evaluator).num_rows == 1
