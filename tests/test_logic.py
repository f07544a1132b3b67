"""The algebra's logic by itself, and against the oracle, which does the same from the definitions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from examples import examples
from hypothesis import HealthCheck, given, settings
from strategies import (
    Stream,
    bound,
    ced_queries,
    eql_queries,
    multiset,
    sase_plus_queries,
    sase_queries,
    streams,
    zstream_queries,
)

from cepheid.core_language import core_form
from cepheid.events import NO_CLOCK, Duration
from cepheid.expr import Expr, Filter, conjuncts, to_text, variables
from cepheid.lang import parse
from cepheid.logic import expanded, last_instantiated, normal_form
from cepheid.pattern import (
    Conj,
    Disj,
    EventClass,
    Filtered,
    Iteration,
    Neg,
    Next,
    Pattern,
    Seq,
    Strategy,
    Unless,
    always_bound,
    partition_attributes,
    positives,
    roles,
    walk,
)
from cepheid.semantics import evaluate, runs, successors
from cepheid.semantics.common import Context

A, B, C, D = (EventClass(name) for name in "ABCD")
many = settings(max_examples=examples(150), deadline=None, suppress_health_check=list(HealthCheck))


# --- normal forms -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "normal"),
    [
        (Seq((Seq((A, B)), C)), Seq((A, B, C))),
        (Seq((A, Seq((B, Seq((C, D)))))), Seq((A, B, C, D))),
        (Conj((A, Conj((B, C)))), Conj((A, B, C))),
        (Seq((A, Conj((B, C)))), Seq((A, Conj((B, C))))),
        (Seq((A, Conj((Neg(B), Neg(C))), D)), Seq((A, Neg(Disj((B, C))), D))),
        (Conj((A, Neg(B))), Conj((A, Neg(B)))),
        (Seq((A,)), A),
    ],
)
def test_normal_form(pattern: Pattern, normal: Pattern) -> None:
    assert normal_form(pattern) == normal
    assert normal_form(normal) == normal


@many
@given(zstream_queries(), streams())
def test_a_pattern_means_what_its_normal_form_means(text: str, stream: Stream) -> None:
    query = bound(text, stream)
    normal = replace(query, pattern=normal_form(query.pattern))
    assert positives(normal.pattern) == positives(query.pattern)
    assert multiset(evaluate(normal, stream.events)) == multiset(evaluate(query, stream.events))


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("PATTERN A;B", ["A", "B"]),
        ("PATTERN A;!B;C WITHIN 5", ["A", "C"]),
        ("PATTERN A;(B|C)", ["A"]),
        ("PATTERN A;B*;C", ["A", "C"]),
        ("PATTERN A;B+;C", ["A", "B", "C"]),
        ("PATTERN A|B", []),
    ],
)
def test_always_bound(text: str, names: list[str]) -> None:
    assert always_bound(parse(text).pattern) == names


@many
@given(zstream_queries() | sase_plus_queries(), streams())
def test_every_match_binds_what_is_always_bound(text: str, stream: Stream) -> None:
    query = replace(bound(text, stream), output=None)
    for match in evaluate(query, stream.events):
        assert all(match.bindings[var] for var in always_bound(query.pattern))


# --- equivalence tests ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "tests"),
    [
        ("EVENT SEQ(A a, B b, C c) WHERE [id]", ["b.id = a.id", "c.id = a.id", "c.id = b.id"]),
        ("EVENT SEQ(A a, !(B b), C c) WHERE [id]", ["c.id = a.id", "b.id = a.id", "b.id = c.id"]),
        ("EVENT A a WHERE [id]", ["a.id = a.id"]),
        ("EVENT SEQ(A a, B b) WHERE [id = 5]", ["a.id = 5", "b.id = 5"]),
        ("PATTERN SEQ(A a, B+ b[]) WHERE [id]", ["b[1].id = a.id", "b[i].id = a.id", "b[i].id = b[1].id"]),
        ("PATTERN A;B+ WHERE [id]", ["B.id = A.id", "B.id = B[B.LEN].id"]),
        ("EVENT SEQ(A a, B b) WHERE a.v > 1", ["a.v > 1"]),
    ],
)
def test_equivalence_tests_spelt_out(text: str, tests: list[str]) -> None:
    assert [to_text(p) for p in expanded(parse(text))] == tests


@many
@given(sase_queries() | zstream_queries() | sase_plus_queries(), streams())
def test_equivalence_tests_mean_what_they_are_spelt_out_as(text: str, stream: Stream) -> None:
    # Partitions are a matter of the tests themselves, so what reads them is left out.
    query = replace(bound(text, stream), non_overlapping=False)
    if query.window is not None:
        query = replace(query, window=Duration(query.window.amount))
    if query.strategy is Strategy.PARTITION:
        query = replace(query, strategy=Strategy.NEXT_MATCH)
    spelt = replace(query, where=expanded(query))
    assert multiset(evaluate(spelt, stream.events)) == multiset(evaluate(query, stream.events))


@many
@given(sase_queries() | zstream_queries() | sase_plus_queries() | ced_queries(), streams())
def test_the_oracle_partitions_alike(text: str, stream: Stream) -> None:
    query = bound(text, stream)
    assert Context.of(query, [], NO_CLOCK).partition == partition_attributes(query)


# --- edges of automata ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("condition", "tested"),
    [
        ("a.v > 1", (0, "begin")),
        ("b[1].v > a.v", (1, "begin")),
        ("b[i].v > b[i-1].v", (1, "take")),
        ("b[i].v > avg(b[..i-1].v)", (1, "take")),
        ("sum(b[].v) > a.v", (1, "proceed")),
        ("b[i].v > sum(b[].v)", (1, "take")),
        ("c.v > sum(b[].v)", (2, "begin")),
        ("c.v > b[b.LEN].v", (2, "begin")),
    ],
)
def test_last_instantiated(condition: str, tested: tuple[int, str]) -> None:
    query = parse(f"PATTERN SEQ(A a, B+ b[], C c) WHERE {condition}")
    (predicate,) = query.where
    assert last_instantiated(predicate, {"a": 0, "b": 1, "c": 2}) == tested


@many
@given(sase_plus_queries(), streams(max_events=1))
def test_conjuncts_are_tested_on_the_same_edges(text: str, stream: Stream) -> None:
    query = bound(text, stream)
    found = roles(query.pattern)
    classes = [role.event_class for role in found.values() if not role.negated]
    order = {event_class.var: index for index, event_class in enumerate(classes)}
    for predicate in (each for each in expanded(query) if variables(each) <= order.keys()):
        component, edge = runs.tested_at(predicate, classes)
        assert last_instantiated(predicate, order) == (component, edge.name.lower())


# --- the core form ----------------------------------------------------------------------------------------------------

Placement = tuple[tuple[str, ...], str, str, Expr]


def _named(operator: Pattern) -> tuple[str, ...]:
    return tuple(roles(operator))


def _of_core_form(pattern: Pattern) -> Iterator[Placement]:
    """Every predicate of a core form: the variables of its operator, the operator, the part of it, the predicate."""
    for node in walk(pattern):
        match node:
            case Filtered():
                parts = {"filter": node.keep}
                operator = node.item
            case Next() | Iteration():
                parts, operator = {"skip": node.skip, "keep": node.keep}, node
            case Unless():
                parts, operator = {"when": node.when}, node
            case _:
                continue
        for part, predicates in parts.items():
            for predicate in predicates:
                yield from _placements(operator, part, predicate)


def _of_oracle(pattern: Pattern, where: tuple[Expr, ...]) -> Iterator[Placement]:
    placed = successors.placed(pattern, where)
    for node in walk(pattern):
        for part in ("filter", "skip", "keep", "when"):
            for predicate in placed.get((id(node), part), ()):
                yield from _placements(node, part, predicate)


def _placements(operator: Pattern, part: str, predicate: Expr) -> Iterator[Placement]:
    for conjunct in conjuncts(predicate.item if isinstance(predicate, Filter) else predicate):
        yield _named(operator), type(operator).__name__, part, conjunct


def _same_placement(text: str) -> int:
    query = parse(text)
    core: Counter[Any] = Counter(_of_core_form(core_form(query.pattern, query.where)))
    assert core == Counter(_of_oracle(query.pattern, query.where))
    return core.total()


@settings(many, max_examples=examples(400))
@given(eql_queries())
def test_the_oracle_places_predicates_as_the_core_form_does(text: str) -> None:
    _same_placement(text)


@pytest.mark.parametrize(
    ("pattern", "where", "count"),
    [
        ("A a; B b; C c", "a.v > 1, b.v > 1, FILTER(a.id = c.id), c.v > b.v", 4),
        (r"A a; (B b \ C c)", "b.v > 1, c.v > 2, FILTER(c.id = a.id), b.id = a.id", 4),
        (r"(A a \ B b)+", "a.v > PREV(a.v), b.v = 1", 2),
        ("(A a | B b)+", "a.v > 1, b.v > 2", 2),
        ("((A a | B b) @ 3); C c", "a.v > 1, c.v > 2", 2),
        (r"((A a; B b) \ C c) \ D d", "a.v > 1, d.v = b.v, c.v = a.v, b.v > 2", 4),
    ],
)
def test_where_predicates_go(pattern: str, where: str, count: int) -> None:
    assert _same_placement(f"SELECT *\nFROM {pattern}\nWHERE {where}") == count
