"""Limits on hostile queries: LIKE does not backtrack, patterns that would never end are refused."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cepheid.checks import check
from cepheid.errors import PatternProblem
from cepheid.lang import parse
from cepheid.values import like


def by_regex(text: str, pattern: str) -> bool:
    parts = [".*" if c == "%" else "." if c == "_" else re.escape(c) for c in pattern]
    return re.fullmatch("".join(parts), text, re.DOTALL) is not None


@given(st.text("ab\n", max_size=8), st.text("ab%_\n", max_size=6))
def test_like_is_what_the_regular_expression_says(text: str, pattern: str) -> None:
    assert like(text, pattern) == by_regex(text, pattern)


def test_like_does_not_backtrack() -> None:
    assert not like("a" * 5_000, "%a" * 40 + "b")


@pytest.mark.parametrize(
    "text",
    [
        "EVENT SEQ(" + ", ".join(f"A a{i}" for i in range(201)) + ")",
        "PATTERN " + ";".join(f"(A{i}|B{i})" for i in range(40)),
        "PATTERN SEQ(A{99999999} a[], B b)",
    ],
)
def test_patterns_that_would_never_end_are_refused(text: str) -> None:
    with pytest.raises(PatternProblem, match="at most"):
        check(parse(text))
