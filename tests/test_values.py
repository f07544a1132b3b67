"""Values by their definition: the table of cases on the oracle, in masks and in RETURN."""

from __future__ import annotations

import pyarrow as pa
import pytest
from value_cases import CASES, ValueCase

import cepheid

VECTORISED = [case for case in CASES if not (case.is_condition and "x." in case.text and "y." in case.text)]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_oracle(case: ValueCase) -> None:
    rows = cepheid.match(case.query, case.table, evaluator="reference").to_pylist()
    assert case.problem(rows) is None


@pytest.mark.parametrize("case", VECTORISED, ids=str)
def test_masks_and_returned_columns(case: ValueCase) -> None:
    rows = cepheid.match(case.query, case.table).to_pylist()
    assert case.problem(rows) is None


@pytest.mark.parametrize("options", ["0, x[x.LEN].v", "x[x.LEN].v, 0"])
def test_in_does_not_apply_where_an_option_is_absent(options: str) -> None:
    events = pa.table({"type": ["B"], "ts": [1], "v": [2], "w": [0]})
    query = f"PATTERN SEQ(B* x[], B+ y[]) WHERE skip_till_next_match {{ NOT (y[1].w IN ({options})) }}"
    counts = [cepheid.match(query, events, evaluator=name).num_rows for name in ("reference", None)]
    assert counts == [1, 1]
