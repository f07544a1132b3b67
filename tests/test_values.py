"""Values by their definition: the table of cases on the oracle, in masks and in RETURN."""

from __future__ import annotations

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
