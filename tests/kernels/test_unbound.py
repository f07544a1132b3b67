"""Conditions that name a variable to which a match binds no event: a closure that is empty, or a branch that did not
match. One on an event of an empty closure does not apply, and inside another condition counts as true; an aggregate of
an empty closure has a value. One that names a variable of a branch not taken does not apply as a whole."""

from __future__ import annotations

import pyarrow as pa
import pytest
from differential import difference

import cepheid
from cepheid.errors import CepheidError
from cepheid.kernels.registry import EVALUATORS

pytestmark = pytest.mark.filterwarnings("ignore::cepheid.errors.CepheidWarning")

EVENTS = pa.table(
    {
        "type": ["B", "B", "A", "C", "B", "C", "D", "A", "C", "D"],
        "ts": [1, 2, 4, 5, 7, 8, 9, 10, 12, 13],
        "u": [1, 2, 1, None, 3, 2, 1, 3, 1, 2],
        "b": [True, False, None, True, False, True, True, False, None, False],
    }
)
"""Events among which each closure below is empty in some matches, and each branch not taken in some."""

ON_AN_EVENT = (
    "(z.u = y.u) = FALSE",
    "(z.u = y.u) = z.b",
    "NOT (z.u = y.u OR z.u = 2)",
    "(z.u = y.u AND z.u = 2) = FALSE",
    "NOT (z.u IN (y.u, 1))",
    "(y.u IS NULL) = (z.u = 1)",
    "CASE WHEN y.u > 1 THEN z.u ELSE 2 END = 2",
    "coalesce(y.u, z.u) = 2",
    "(y.b OR z.u = 1) = FALSE",
)
ON_A_GROUP = (
    "count(y) > z.u",
    "NOT (sum(y.u) > z.u)",
    "(sum(y.u) > z.u) = FALSE",
    "(max(y.u) IS NULL) = (z.u = 1)",
    "coalesce(sum(y.u), 0) < z.u",
    "min(y.b) = z.b",
    "NOT (count(y) = 0 AND z.u = 1)",
)


def is_allowed(text: str, is_negative: bool) -> bool:
    """An OR must not mix positive and negated variables."""
    return not (is_negative and " OR " in text)


def require_agreement(text: str) -> int:
    """The number of evaluators that run a query, each with the result of the reference."""
    expected, ran = cepheid.match(text, EVENTS, evaluator="reference"), 0
    for evaluator in EVALUATORS:
        try:
            found = cepheid.match(text, EVENTS, evaluator=evaluator.NAME)
        except CepheidError:
            continue
        ran += 1
        assert difference(expected, found) is None, (evaluator.NAME, text)
    return ran


@pytest.mark.parametrize("strategy", ["skip_till_any_match", "skip_till_next_match", "partition_contiguity"])
@pytest.mark.parametrize(
    "pattern",
    [
        *("B x, A* y[], !(C z)", "B x, A* y[], !(C z), D w", "A* y[], B x, !(C z)", "!(C z), B x, A* y[]"),
        *("!(C z), A* y[], B x", "B x, A* y[], C z", "B x, A* y[], D* v[], !(C z)", "C z, A* y[]"),
    ],
)
def test_empty_closures_of_runs(pattern: str, strategy: str) -> None:
    on_events = [text.replace("y.", "y[1].") for text in ON_AN_EVENT]
    on_groups = [text.replace("(y", "(y[]") for text in ON_A_GROUP]
    for text in (*on_events, *on_groups):
        if is_allowed(text, "!" in pattern):
            assert require_agreement(f"PATTERN SEQ({pattern}) WHERE {strategy} {{ {text} }} WITHIN 8")


@pytest.mark.parametrize("pattern", ["B x; A y*; C z", "A y*; C z", "B x; A y*; !C z; D w", "(B x; A y*; C z) | D w"])
def test_empty_closures_of_operators(pattern: str) -> None:
    for text in (*(() if "!" in pattern else ON_AN_EVENT), *ON_A_GROUP):
        assert require_agreement(f"PATTERN {pattern} WHERE {text} WITHIN 8")


@pytest.mark.parametrize(
    "pattern",
    [
        *("(A y | B x); C z", "(A y | B x) & C z", "(A y; D) | C z", "(A y | B x); !C z; D w", "!C z; (A y | B x)"),
        *("(A y | (B x; C z)); D w", "(A y | B x); !C z"),
    ],
)
def test_branches_of_a_disjunction(pattern: str) -> None:
    for text in ON_AN_EVENT:
        if is_allowed(text, "!" in pattern):
            assert require_agreement(f"PATTERN {pattern} WHERE {text} WITHIN 8")


@pytest.mark.parametrize("wrapped", ["{}", "FILTER({})"])
@pytest.mark.parametrize(
    "pattern", ["(A y | B x); C z", "(A y | B x)+; C z", "((A y)+ | B x); C z", "(A y | B x); (D w \\ C z)"]
)
def test_branches_of_a_union(pattern: str, wrapped: str) -> None:
    for text in (*ON_AN_EVENT, *(ON_A_GROUP if "+" in pattern else ())):
        if is_allowed(text, "\\" in pattern):
            assert require_agreement(f"SELECT *\nFROM {pattern}\nWHERE {wrapped.format(text)}")


@pytest.mark.parametrize(
    "pattern", ["seq(or(x, y), z; 8)", "seq(or(x, y), !z, w; 8)", "seq(or(seq(x, w; 4), y), z; 8)"]
)
def test_branches_of_a_complex_event(pattern: str) -> None:
    listed = ", ".join(f"{type_} as {var}" for var, type_ in zip("xyzw", "BACD", strict=True) if var in pattern[3:])
    for text in ON_AN_EVENT:
        if is_allowed(text, "!" in pattern):
            assert require_agreement(f"complex Q on {listed}\nevent {pattern}\nwhere {text}")
