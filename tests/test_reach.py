"""Property tests that reject too much fail, and so do tests that may end before they assert."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from reach import FLOOR, Reach, early_ends

HERE = Path(__file__).parent


def reach_of(values: int, floor: float = FLOOR) -> Reach:
    """Of a test that can use so many of a hundred values."""

    @settings(max_examples=50, database=None)
    @given(st.integers(0, 99))
    def test(value: int) -> None:
        assume(value < values)

    with Reach(test) as reach:
        test()
    reach.require(floor)
    return reach


def test_draws_that_reach_the_end_are_counted() -> None:
    reach = reach_of(100)
    assert reach.reached == reach.drawn == 50


def test_a_test_that_rejects_many_draws_fails() -> None:
    with pytest.raises(AssertionError, match=r"\d+ of \d+ draws reached the end of the test, fewer than 80%"):
        reach_of(40)
    assert reach_of(40, floor=0.2).drawn > reach_of(40, floor=0.2).reached > 20


def test_the_count_is_part_of_every_property_test(request: pytest.FixtureRequest) -> None:
    hooks = request.config.hook.pytest_pyfunc_call.get_hookimpls()
    assert "reach" in {hook.function.__module__ for hook in hooks}


def test_no_test_ends_before_it_asserts() -> None:
    found = {str(file.relative_to(HERE)): early_ends(file.read_text()) for file in HERE.rglob("*.py")}
    assert {file: problems for file, problems in found.items() if problems} == {}


RETURNS = "returns or continues"
CONDITION = "asserts under a condition only"


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ("if x:\n  return\n assert x", RETURNS),
        ("try:\n  f()\n except ValueError:\n  return\n assert x", RETURNS),
        ("for y in x:\n  if y:\n   continue\n  assert y", RETURNS),
        ("if x:\n  return", RETURNS),
        ("if x:\n  assert x", CONDITION),
        ("try:\n  f()\n except ValueError:\n  assert x", CONDITION),
        ("assert x\n if x:\n  return\n assert y", None),
        ("for y in x:\n  assert y", None),
        ("def f():\n  return\n assert x", None),
        ("if x:\n  assert y\n else:\n  assert z", None),
        ("with pytest.raises(E):\n  f()\n if x:\n  return\n assert x", None),
        ("with x:\n  assert x", None),
    ],
)
def test_early_ends_are_found(body: str, problem: str | None) -> None:
    found = early_ends(f"def test_it(x):\n {body}\n")
    assert [problem in text for text in found] == [True] if problem else found == []
