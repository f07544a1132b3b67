"""The laws of EQL's core operators change how a query is evaluated, never what it matches."""

from __future__ import annotations

import doctest
from collections.abc import Mapping
from dataclasses import replace
from random import Random

import pyarrow as pa
import pytest
import random_eql
from hypothesis import assume, given, reject, settings
from hypothesis import strategies as st
from kernel_harness import Stream, bound, by_kernel, by_oracle, stream_of

import cepheid
from cepheid import pattern as pt
from cepheid.codegen.columns import schema_types
from cepheid.codegen.compile import interpreted
from cepheid.errors import NameProblem, NotAvailable
from cepheid.events import START, Clock
from cepheid.explanation import explain
from cepheid.expr import to_text
from cepheid.kernels import successor
from cepheid.kernels.registry import EVALUATORS, kernel_for
from cepheid.optimize import core_cost, core_rules
from cepheid.optimize.core_cost import Estimate
from cepheid.optimize.core_rules import CoreInput, Rewritten, core_text, rewritten_core
from cepheid.optimize.lower import lower
from cepheid.optimize.stats import NO_STATS, Stats
from cepheid.pattern import Pattern, Query
from cepheid.physical import Plan
from cepheid.runtime.kernel import Kernel
from cepheid.types import INTEGER

ANY = Stats(rates={"x": 1.0}, total_rate=1.0)


class AnyGrouping:
    """A model by which some grouping, drawn at random, is cheapest."""

    unit = "points"
    reading = 0.0

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def of(self, pattern: Pattern) -> Estimate:
        return Estimate(1.0, 1e9, 1.0, 1.0, 1.0, 1.0)

    def next(self, node: pt.Next, left: Estimate, right: Estimate) -> Estimate:
        return Estimate(1.0, Random(f"{self.seed} {core_text(node)}").random(), 1.0, 1.0, 1.0, 1.0)


def planned(query: Query, stream: Stream, stats: Stats, options: Mapping[str, str | bool] | None = None) -> Plan:
    return lower(
        query,
        schema_types(pa.schema([field for field in stream.table.schema if field.name != START])),
        stream.schema,
        Clock(),
        EVALUATORS,
        options=options or {},
        stats=stats,
        has_durations=START in stream.table.schema.names,
    )


def interpreted_kernel(plan: Plan) -> Kernel:
    kernel = kernel_for(plan)
    return replace(kernel, function=interpreted(kernel.source))


def require_oracle(seed: int, rows: list[dict[str, object]], text: str, rng: Random) -> None:
    stream = stream_of(rows)
    try:
        query = bound(text, stream)
        issued = planned(query, stream, NO_STATS, {"rewrite": "off"})
    except (NameProblem, NotAvailable):
        reject()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(successor, "model_of", lambda name, stats, has_durations: AnyGrouping(seed))
        plan = planned(query, stream, ANY)
    assert plan.core is not None and issued.core is not None
    assume(core_text(plan.core) != core_text(issued.core))
    kernel, expected = interpreted_kernel(plan), by_oracle(query, stream)
    for cuts in ((), range(1, len(rows)), sorted(rng.sample(range(len(rows)), min(2, len(rows))))):
        assert by_kernel(kernel, stream, cuts)[0] == expected, core_text(plan.core)


@settings(max_examples=150, deadline=None)
@pytest.mark.reach(0.2)
@given(st.integers(0, 10**9))
def test_rewritten_queries_have_the_matches_of_the_oracle(seed: int) -> None:
    rng = Random(seed)
    require_oracle(seed, random_eql.rows(rng, 12), random_eql.chain(rng), rng)


@settings(max_examples=50, deadline=None)
@pytest.mark.reach(0.2)
@given(st.integers(0, 10**9))
def test_rewritten_queries_over_events_with_duration(seed: int) -> None:
    rng = Random(seed)
    text, rows = random_eql.chain(rng), random_eql.rows(rng, 10)
    for row in rows:
        row["began"] = row["ts"] - rng.choice((0, 0, 1, 2))
    require_oracle(seed, rows, text, rng)


@pytest.mark.parametrize(
    ("law", "pattern", "rewritten"),
    [
        (
            "flatten_unions",
            "(A a | (B b | C c)); (A d | (C e | B f)) WHERE FILTER(a.k = d.k)",
            "((a | b | c); (d | e | f))",
        ),
        ("flatten_unions", "((A a | B b) | (B c; C d)) WHERE a.v > 1", "(a | b | (c; d))"),
        ("lift_exceptions", r"A a; ((B b; C c) \ A d) WHERE a.k = d.k, b.v < c.v", r"((a; (b; c)) \ d)"),
        ("lift_exceptions", r"(A a | B b); ((B c; A d) \ C e)", r"(((a | b); (c; d)) \ e)"),
        ("regroup_next", "(A a; B b); C c WHERE FILTER(a.v < b.v), c.w > 1, b.k = c.k", "(a; (b; c))"),
        ("regroup_next", "(A a; B b); C c WHERE FILTER(a.k = b.k), FILTER(a.k = c.k)", "(a; (b; c))"),
        ("regroup_next", "((A a; B b); (A c; C d)); B e WHERE FILTER(d.v > 1)", "(a; (b; (c; (d; e))))"),
        ("regroup_next", "((A a+; B b); C c) WHERE FILTER(a.k = PREV(a.k))", "(a+; (b; c))"),
        ("regroup_next", "((A a; (B b | (A c; C d))); C e)", "(a; ((b | (c; d)); e))"),
    ],
)
def test_each_law_keeps_the_matches_of_the_oracle(law: str, pattern: str, rewritten: str) -> None:
    """One law alone, over many streams; the grouping with the longest groups at the end is cheapest."""
    found = 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(core_rules, "LAWS", (getattr(core_rules, law),))
        patch.setattr(successor, "model_of", lambda name, stats, has_durations: _RightDeep())
        for seed in range(25):
            stream = stream_of([*random_eql.rows(Random(seed), 14), *EVERY])
            query = bound(f"SELECT * FROM {pattern}", stream)
            plan = planned(query, stream, ANY)
            assert plan.core is not None and core_text(plan.core) == rewritten
            expected = by_oracle(query, stream)
            found += len(expected)
            assert by_kernel(interpreted_kernel(plan), stream, range(1, len(stream.events)))[0] == expected
    assert found


class _RightDeep(AnyGrouping):
    """The more operands the right side of a `;` has, the cheaper it is."""

    def __init__(self) -> None:
        super().__init__(0)

    def next(self, node: pt.Next, left: Estimate, right: Estimate) -> Estimate:
        return Estimate(1.0, 1.0 / len(pt.positives(node.right)), 1.0, 1.0, 1.0, 1.0)


EVERY = [{"type": kind, "ts": 40, "k": 1, "v": None, "w": 1, "s": "p"} for kind in "ABC"]
"""Events of all types, so that every query binds."""


@pytest.mark.parametrize(("tests", "expected"), [("b.y > 2, ", "((a; b); c)"), ("", "(a; (b; c))")])
def test_a_form_that_saves_little_of_the_whole_stays_as_issued(tests: str, expected: str) -> None:
    """With few b, all operators cost 3.4 ns of 38 for each event, and regrouping saves 0.23."""
    plan = _core(f"(A a; B b); C c WHERE {tests}a.x < c.x", RARE_MIDDLE)
    assert plan.core is not None and core_text(plan.core) == expected


@pytest.mark.parametrize("module", [core_rules, core_cost], ids=lambda module: module.__name__)
def test_examples(module: object) -> None:
    assert doctest.testmod(module).failed == 0  # type: ignore[arg-type]


ROWS = [{"type": kind, "ts": i, "x": i % 2, "y": i} for i, kind in enumerate("ABCDABCDABCD")]
RARE_FIRST = Stats(rates={"a": 0.01, "b": 1.0, "c": 1.0, "d": 1.0}, total_rate=3.0)
RARE_MIDDLE = Stats(rates={"a": 1.0, "b": 0.01, "c": 1.0, "d": 1.0}, total_rate=3.0)


def _core(text: str, stats: Stats, **options: str) -> Plan:
    stream = stream_of(ROWS)
    return planned(bound(f"SELECT * FROM {text}", stream), stream, stats, options)


@pytest.mark.parametrize(
    ("text", "stats", "expected"),
    [
        ("A a; (B b; C c)", RARE_FIRST, "((a; b); c)"),
        ("(A a; B b); C c", RARE_MIDDLE, "(a; (b; c))"),
        ("A a; (B b; C c) WHERE FILTER(a.x = b.x), FILTER(c.y > 3)", RARE_FIRST, "((a; b); c)"),
        ("(A a; B b); C c WHERE FILTER(a.x = b.x = c.x)", RARE_MIDDLE, "(a; (b; c))"),
        ("(A a; B b); C c WHERE c.y > 5, a.x < c.x", RARE_MIDDLE, "(a; (b; c))"),
        (r"A a; ((B b; C c) \ D d)", RARE_FIRST, r"(((a; b); c) \ d)"),
        ("(A a @ 1); ((B b; C c); (C d | D e))", RARE_FIRST, "((((a @ 1); b); c); (d | e))"),
        ("(A a+; B b); C c", RARE_MIDDLE, "(a+; (b; c))"),
    ],
)
def test_the_cheapest_grouping_runs(text: str, stats: Stats, expected: str) -> None:
    plan = _core(text, stats)
    assert plan.core is not None and core_text(plan.core) == expected
    assert core_text(_core(text, stats, rewrite="off").core or plan.core) != expected


@pytest.mark.parametrize(
    ("text", "stats", "why"),
    [
        ("A a; (B b; C c) WHERE FILTER(b.x = c.x)", RARE_FIRST, "FILTER(b.x = c.x) is no part of a key"),
        ("(A a; B b); C c WHERE FILTER(b.x = c.x)", RARE_MIDDLE, "FILTER(b.x = c.x) is no part of a key"),
        ("(A a; B b); C c WHERE FILTER(a.x = c.x)", RARE_MIDDLE, "FILTER(a.x = c.x) is no part of a key"),
        ("A a; (B b; C c) WHERE FILTER(a.x = c.x)", RARE_FIRST, "FILTER(a.x = c.x) is a condition on the group"),
        ("A a; (B b; C c) WHERE c.y > 3", RARE_FIRST, "in brackets, c.y > 3 is a filter on the group"),
        ("A a; (B b; C c+)", RARE_FIRST, "the histories of c+ have several lengths"),
        ("A a; (B b; (C c | (C d; D e)))", RARE_FIRST, "the histories of (c | (d; e)) have several lengths"),
        (r"(A a; B b); (C c \ D d)", RARE_MIDDLE, r"(c \ d) is cancelled while it is awaited"),
        (r"(A a; A b); ((B c; C d) \ D e)", RARE_FIRST, "the exception stays, since (a; b) has a duration"),
        (r"D e; (A a; ((B b; C c) \ D d))", RARE_FIRST, "the exception stays, since another `;` awaits the result"),
        ("(A a; B b); C c WHERE c.y > PREV(b.y)", RARE_MIDDLE, "a condition reads PREV, ALL or an aggregate"),
        ("(A a; B b); C c", NO_STATS, "no statistics are known"),
    ],
)
def test_explain_shows_why_a_law_does_not_apply(text: str, stats: Stats, why: str) -> None:
    plan = _core(text, stats)
    assert plan.core == _core(text, stats, rewrite="off").core
    shown = explain(plan.query, plan=plan)
    assert why in " ".join(shown.replace("│", " ").split())


def test_explain_shows_the_grouping_and_its_cost() -> None:
    plan = _core("A a; (B b; C c)", RARE_FIRST)
    assert "(a; (b; c)) runs as ((a; b); c):" in " ".join(explain(plan.query, plan=plan).split())
    paper = _core("A a; (B b; C c)", RARE_FIRST, model="paper")
    assert "events for each unit of time (table 1)" in " ".join(explain(paper.query, plan=paper).split())


def test_failed_detections_are_those_of_the_query_as_issued() -> None:
    text = "(A a; B b); C c WHERE c.y > 5"
    assert _core(text, RARE_MIDDLE, failures="rows").core == _core(text, NO_STATS).core


def test_a_bound_on_state_is_kept() -> None:
    """Grouped otherwise, every b would wait for ever."""
    plan = _core("(A a; B b); C c WHERE (a, b) OCCURS WITHIN 3, (b, c) OCCURS WITHIN 3", RARE_MIDDLE)
    assert plan.grows == () and plan.window == 6


def test_the_tree_of_a_sampled_table_is_chosen() -> None:
    """A sample of the events decides, and the matches are the same."""
    kinds = [("ABBCCBCB" * 4 + "B")[i % 33] for i in range(5_000)]
    table = pa.table({"type": kinds, "ts": list(range(5_000))})
    text = "SELECT * FROM B b; (B c; (C d; A a))"
    rewritten = cepheid.explain(text, table)
    assert "runs as" in rewritten
    tables = [cepheid.match(text, table, options=options) for options in ({}, {"rewrite": "off"})]
    matches = [sorted(map(str, found.to_pylist())) for found in tables]  # those of one time have no order
    assert matches[0] == matches[1] != []


def test_only_queries_with_a_choice_are_sampled() -> None:
    """A sample takes time. θ discards instances, so it does not make the events of a variable rarer; φ does."""
    stream = stream_of([{"type": "AB"[i % 2], "ts": i, "x": i % 4} for i in range(40)])
    sampled: list[Plan] = []

    def sample(plan: Plan) -> Stats:
        sampled.append(plan)
        return NO_STATS

    types = schema_types(stream.table.schema)
    for text, options in (
        ("A a; B b WHERE a.x < b.x", {}),
        ("A a; B b; A c", {"rewrite": "off"}),
        ("A a; B b; A c WHERE FILTER(b.x > 1), c.x > 2, FILTER(a.x = b.x)", {}),
    ):
        query = bound(f"SELECT * FROM {text}", stream)
        lower(query, types, stream.schema, Clock(), EVALUATORS, options=options, sample=sample)
    (plan,) = sampled
    tests = {bit.name: [to_text(test) for test in bit.tests] for bit in plan.bits}
    assert tests["b begin"] == ["b.x > 1"] and tests["c begin"] == []
    assert [to_text(predicate) for predicate in plan.predicates] == ["a.x = b.x"]


def test_a_law_that_would_change_the_key_is_refused_and_a_lost_variable_is_named() -> None:
    plan = _core("A a; B b WHERE FILTER(a.x = b.x)", RARE_FIRST)
    core = plan.core
    assert isinstance(core, pt.Next)
    given_input = CoreInput({"x": INTEGER})

    def forgets_the_key(core: Pattern, given: CoreInput) -> Rewritten:
        assert isinstance(core, pt.Next)
        return Rewritten(replace(core, skip=()))

    def forgets_a_variable(core: Pattern, given: CoreInput) -> Rewritten:
        assert isinstance(core, pt.Next)
        return Rewritten(core.left)

    found = rewritten_core(core, given_input, [forgets_the_key])
    assert found.core == core and "would change its key" in found.notes[0]
    with pytest.raises(AssertionError, match="forgets_a_variable"):
        rewritten_core(core, given_input, [forgets_a_variable])
