"""Names in checkpoints outlive the classes of today: what a release may change leaves them as they are."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

import pytest

from cepheid.content import content, content_hash
from cepheid.lang import parse


class _Kind(Enum):
    ONE = "a text that may change"


def _before() -> Any:
    @dataclass(frozen=True)
    class Node:
        name: str
        kind: _Kind = _Kind.ONE

    return Node


def _after() -> Any:
    class Node(NamedTuple):
        name: str
        kind: _Kind = _Kind.ONE
        weight: float = 1.0

    return Node


def _with_position() -> Any:
    @dataclass(frozen=True)
    class Node:
        name: str
        kind: _Kind = _Kind.ONE
        position: int | None = field(default=None, compare=False, kw_only=True)

    return Node


def test_a_new_field_with_a_default_keeps_names() -> None:
    before, after, with_position = _before(), _after(), _with_position()
    assert content(before("a")) == content(after("a")) == content(with_position("a", position=3)) == "Node(name='a')"
    assert content_hash(before("a"), 1) == content_hash(after("a"), 1)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (_after()("a"), _after()("b")),
        (_after()("a", weight=1), _after()("a")),
        (_after()("a", weight=2.0), _after()("a")),
        ((1, 2), (1.0, 2)),
        (("a", "b"), ("a, b",)),
        (True, 1),
        ("1", 1),
        ({"a": 1}, {"a": "1"}),
        (frozenset("ab"), frozenset("a")),
    ],
)
def test_different_values_have_different_names(one: Any, other: Any) -> None:
    assert content(one) != content(other)


def test_queries_have_content_and_other_objects_are_refused() -> None:
    text = "EVENT SEQ(A a, B b) WHERE [k] AND a.v > {} WITHIN 5 minutes"
    assert content(parse(text.format(1))) == content(parse("  " + text.format(1)))
    assert len({content_hash(parse(text.format(value))) for value in ("1", "1.0", "'1'")}) == 3
    with pytest.raises(TypeError, match="no content of a object"):
        content(object())


def test_sets_have_one_order() -> None:
    assert content(frozenset({"x", "y", "z"})) == content(frozenset({"z", "y", "x"})) == "{'x', 'y', 'z'}"
