"""Random typed cases (tests/random_cases.py): every backend gives the result of the reference.

`make test` draws the same few cases every time. `CEPHEID_EXPLORE=1 CEPHEID_CASES=500` draws as many new ones of each
profile, and `make explore` goes on after a difference and groups what it finds.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from differential import FORMATS, Comparison, are_equal, compare, compare_files, difference, reference, smallest
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st
from random_cases import LANGUAGES, Case, case
from random_values import PROFILES

from cepheid.errors import CepheidError
from cepheid.kernels.registry import EVALUATORS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.filterwarnings("ignore::cepheid.errors.CepheidWarning")

CASES = int(os.environ.get("CEPHEID_CASES", "8"))
_ANY = settings(
    max_examples=CASES,
    phases=[Phase.generate],  # `smallest` knows what a case is made of
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)


@pytest.mark.parametrize("profile", PROFILES)
@given(rng=st.randoms(use_true_random=False))
@_ANY
def test_evaluators_and_streams_give_the_results_of_the_reference(profile: str, rng: random.Random) -> None:
    comparison = compare(case(rng, PROFILES[profile]))
    assume(comparison is not None)
    assert comparison is not None and not comparison.findings, _shown(comparison)


@pytest.mark.parametrize("format", FORMATS)
def test_files_of_every_format_give_the_results_of_the_reference(format: str) -> None:
    rng, ran = random.Random(format), 0
    for _ in range(5 * CASES):
        drawn = case(rng)
        comparison = compare_files(drawn, format)
        ran += comparison is not None
        if comparison is not None and comparison.findings:
            pytest.fail(str(smallest(comparison.findings[0], lambda smaller: compare_files(smaller, format))))
    assert ran > CASES, "the format holds too few of the cases, or too many are refused"


@pytest.mark.slow
@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("number", range(4))
def test_machine_code_gives_the_results_of_the_reference(profile: str, number: int) -> None:
    comparison = compare(_with_matches(f"{profile} {number}", profile), jit=True, stream=False)
    assert comparison is not None and not comparison.findings, _shown(comparison)


@pytest.mark.spark
@pytest.mark.parametrize("profile", PROFILES)
def test_spark_gives_the_results_of_the_reference(spark: SparkSession, profile: str) -> None:
    for number in range(max(CASES // 4, 2)):
        comparison = compare(_with_matches(f"{profile} {number}", profile), stream=False, session=spark, only="spark")
        assert comparison is not None and not comparison.findings, _shown(comparison)


def _shown(comparison: Comparison | None) -> str:
    assert comparison is not None
    return str(smallest(comparison.findings[0], lambda smaller: compare(smaller)))


def _with_matches(seed: str, profile: str) -> Case:
    """A case that has matches."""
    rng = random.Random(seed)
    while True:
        drawn = case(rng, PROFILES[profile])
        try:
            if reference(drawn).num_rows:
                return drawn
        except CepheidError:
            continue


def test_cases_of_every_language_are_accepted_matched_and_run_by_every_evaluator() -> None:
    """The floors of the generator: a driver whose queries are refused or match nothing finds nothing."""
    rng, languages, ran = random.Random(3), Counter[str](), Counter[str]()
    for _ in range(90):
        drawn = case(rng, PROFILES["plain"])
        languages[drawn.language] += 1
        comparison = compare(drawn, stream=False)
        ran.update(comparison.ran if comparison is not None else ["refused"])
    assert set(languages) == set(LANGUAGES)
    assert ran["refused"] <= 6
    assert ran["matches"] >= 22
    assert all(ran[evaluator.NAME] >= 3 for evaluator in EVALUATORS), ran


# --- the comparator itself --------------------------------------------------------------------------------------------


def test_results_are_compared_by_value_in_any_order_of_rows() -> None:
    one = pa.table({"a": [1, 2], "f": [0.1 + 0.2, float("nan")]})
    two = pa.table({"a": [2, 1], "f": [float("nan"), 0.3]})
    assert difference(one, two) is None
    assert difference(one, two.slice(1)) == "2 rows / 1 rows"
    assert difference(one, pa.table({"a": [2, 1], "f": [float("nan"), 0.31]})) == "f: 0.30000000000000004 / 0.31"
    assert difference(one, pa.table({"a": [2, 1], "f": [None, 0.3]})) == "f: 'nan' / None"
    assert difference(pa.table({"f": [0.0]}), pa.table({"f": [-0.0]})) == "f: 0.0 / '-0.0'"
    assert difference(one, two.set_column(0, "a", two["a"].cast(pa.float64()))) == "types: a: int64 / double"


def test_a_number_is_not_equal_to_one_of_another_type() -> None:
    assert not are_equal(1, 1.0) and not are_equal(True, 1) and are_equal([1.0, {"a": None}], [1.0, {"a": None}])
