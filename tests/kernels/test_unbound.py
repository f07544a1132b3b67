"""Conditions that name a variable to which a match binds no event: a closure that is empty, or a branch that did not
match. One on an event of an empty closure does not apply, and inside another condition counts as true; an aggregate of
an empty closure has a value. One that names a variable of a branch not taken does not apply as a whole."""

from __future__ import annotations

from collections.abc import Iterable

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


def allowed(texts: Iterable[str], is_negative: bool) -> list[str]:
    """An OR must not mix positive and negated variables."""
    return [text for text in texts if not (is_negative and " OR " in text)]


def result(text: str, evaluator: str) -> pa.Table | None:
    """None if the evaluator cannot run the query."""
    try:
        return cepheid.match(text, EVENTS, evaluator=evaluator)
    except CepheidError:
        return None


def require_agreement(text: str) -> None:
    """At least one evaluator runs the query, and each that does has the result of the reference."""
    expected = cepheid.match(text, EVENTS, evaluator="reference")
    found = {evaluator.NAME: result(text, evaluator.NAME) for evaluator in EVALUATORS}
    differences = {name: difference(expected, table) for name, table in found.items() if table is not None}
    assert differences and not any(differences.values()), (text, differences)


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
    for text in allowed((*on_events, *on_groups), "!" in pattern):
        require_agreement(f"PATTERN SEQ({pattern}) WHERE {strategy} {{ {text} }} WITHIN 8")


@pytest.mark.parametrize("pattern", ["B x; A y*; C z", "A y*; C z", "B x; A y*; !C z; D w", "(B x; A y*; C z) | D w"])
def test_empty_closures_of_operators(pattern: str) -> None:
    for text in (*(() if "!" in pattern else ON_AN_EVENT), *ON_A_GROUP):
        require_agreement(f"PATTERN {pattern} WHERE {text} WITHIN 8")


@pytest.mark.parametrize(
    "pattern",
    [
        *("(A y | B x); C z", "(A y | B x) & C z", "(A y; D) | C z", "(A y | B x); !C z; D w", "!C z; (A y | B x)"),
        *("(A y | (B x; C z)); D w", "(A y | B x); !C z"),
    ],
)
def test_branches_of_a_disjunction(pattern: str) -> None:
    for text in allowed(ON_AN_EVENT, "!" in pattern):
        require_agreement(f"PATTERN {pattern} WHERE {text} WITHIN 8")


@pytest.mark.parametrize("wrapped", ["{}", "FILTER({})"])
@pytest.mark.parametrize(
    "pattern", ["(A y | B x); C z", "(A y | B x)+; C z", "((A y)+ | B x); C z", "(A y | B x); (D w \\ C z)"]
)
def test_branches_of_a_union(pattern: str, wrapped: str) -> None:
    for text in allowed((*ON_AN_EVENT, *(ON_A_GROUP if "+" in pattern else ())), "\\" in pattern):
        require_agreement(f"SELECT *\nFROM {pattern}\nWHERE {wrapped.format(text)}")


@pytest.mark.parametrize(
    "pattern", ["seq(or(x, y), z; 8)", "seq(or(x, y), !z, w; 8)", "seq(or(seq(x, w; 4), y), z; 8)"]
)
def test_branches_of_a_complex_event(pattern: str) -> None:
    listed = ", ".join(f"{type_} as {var}" for var, type_ in zip("xyzw", "BACD", strict=True) if var in pattern[3:])
    for text in allowed(ON_AN_EVENT, "!" in pattern):
        require_agreement(f"complex Q on {listed}\nevent {pattern}\nwhere {text}")
