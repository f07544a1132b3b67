"""Texts that share their core are planned once, with the same rules as if each was planned."""

from __future__ import annotations

import pytest

from cepheid import datasets
from cepheid.deploy.deployment import Written, _Planner
from cepheid.deploy.templates import parts_of, skeleton_of
from cepheid.engine.prepare import RunOptions
from cepheid.io import frames
from cepheid.io.inputs import Columns

SASE = "EVENT SEQ(t a, t b) WHERE [acc] AND a.amount < {} AND b.country = '{}' WITHIN {} hours"


def planner() -> _Planner:
    opened = frames.opened(datasets.cards(50), Columns("type", "ts"))
    assert opened is not None
    return _Planner(opened.source, RunOptions(time_unit="ms"))


@pytest.mark.parametrize("at_once", [False, True])
def test_the_rules_are_those_of_each_text(at_once: bool) -> None:
    """The conditions of a core are analysed when they are first seen, or all at once."""
    texts = [*datasets.fraud_rules(80, seed=7).values()]
    texts += [
        SASE.format(amount, country, hours) for amount, country, hours in [(5, "US", 1), (7.5, "DE", 2), (9, "", 3)]
    ]
    shared, calls = planner(), []
    shared.read(Written("q", text) for text in texts if at_once)
    analyse = _Planner._analysed
    for text in texts:
        member = shared.member(Written("q", text))
        assert not isinstance(member, str)
        direct = analyse(planner(), Written("q", text))
        assert not isinstance(direct, str)
        assert repr(member[1:]) == repr(direct[1:]), text
        calls.append(len(shared.fragments))
    assert sum(template is not None for template in shared.templates.values()) >= 8
    assert calls[-1] < 150
    assert not at_once or len(set(calls)) <= len(shared.templates), "one analysis for each core"


@pytest.mark.parametrize(
    "text",
    [
        "EVENT SEQ(t a, t b) WHERE a.v > 1 OR b.v < 2 WITHIN 5",
        "EVENT SEQ(t a, t b) WHERE NOT a.v > 1 WITHIN 5",
        "EVENT SEQ(t a, t b) WHERE a.v BETWEEN 1 AND 2 WITHIN 5",
        "EVENT SEQ(t a, t b) -- WHERE a.v > 1\nWITHIN 5",
        "PATTERN SEQ(t+ a[], t b) WHERE skip_till_next_match(a[], b) { a[1].v > 1 } WITHIN 5",
        "EVENT SEQ(t a, t b) WITHIN 5",
        "EVENT SEQ(t a, t b) WHERE a.k = b.k, a.v > 1 WITHIN 5",
        "SELECT * FROM (t A; t B) WHERE FILTER(A.k = B.k), , A.v > 1",
        "SELECT * FROM (t A; t B) WHERE A.k = B.k AND FILTER(A.v > 1)",
        "EVENT SEQ(t a, t b) WHERE a.s = 'p AND a.v > 5 AND q' WITHIN 5",
    ],
)
def test_texts_that_are_not_surely_cut_are_left_whole(text: str) -> None:
    assert parts_of(text) is None


def test_parts_of_a_text() -> None:
    parts = parts_of("SELECT * FROM (t A; t B) WHERE FILTER(A.k = B.k), FILTER(B.v > 2), A.s = 'x-y' AND A.v < B.v")
    assert parts is not None
    assert parts.fragments == ("FILTER(B.v > 2)", "A.s = 'x-y'")
    assert parts.core == "SELECT * FROM (t A; t B) WHERE FILTER(A.k = B.k), A.v < B.v"
    assert skeleton_of("A.s = 'x-y'").literals == ("x-y",)
    nested = parts_of("SELECT * FROM (t A; t B) WHERE FILTER(A.k = B.k AND B.v > 2 AND B.w > 3), A.v < 1")
    assert nested is not None
    assert nested.fragments == ("A.v < 1",)
