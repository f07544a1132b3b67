"""Tree plans are chosen by cost: ZStream's formulas by hand, Algorithm 5 against all plans, statistics."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import cepheid
from cepheid.errors import InputProblem
from cepheid.lang import parse
from cepheid.logic import expanded
from cepheid.optimize.alternatives import alternatives
from cepheid.optimize.cost import HASH, OUTPUT_WEIGHT, PREDICATE_WEIGHT, SEARCH, TRY, Model, nothing_between, total_cost
from cepheid.optimize.search import Search, Situation, expected_of_stacks, expected_of_tree, tree_plan
from cepheid.optimize.shapes import shaped
from cepheid.optimize.stats import NO_STATS, Drift, RunningStats, Stats, drift, from_json, to_json
from cepheid.pattern import Conj, Disj, EventClass, Pattern, Seq
from cepheid.tree_plan import ConNode, DisNode, LeafBuffer, NegNode, NseqNode, SeqNode, TreeNode, tree_text

QUERY_4 = "PATTERN IBM;Sun;Oracle WHERE IBM.price > Sun.price WITHIN 200"
QUERY_6 = (
    "PATTERN IBM;Sun;Oracle;Google WHERE Oracle.price > Sun.price AND Oracle.price > Google.price WITHIN 100 units"
)


def situation(text: str, stats: Stats = NO_STATS) -> Situation:
    query = parse(text)
    window = None if query.window is None else float(query.window.amount)
    return Situation(query, expanded(query), {}, window, stats)


def model_of(text: str, stats: Stats = NO_STATS) -> Model:
    found = situation(text, stats)
    return found.model(alternatives(found.query)[0])


def rates(**each: float) -> Stats:
    return Stats(rates=each)


def chosen(text: str, stats: Stats = NO_STATS, **options: Any) -> str:
    return " or ".join(tree_text(tree) for tree in tree_plan(situation(text, stats), **options).trees)


# --- formulas ---------------------------------------------------------------------------------------------------------


def formula_1(tried: float, predicates: int, made: float, searches: float) -> float:
    return TRY * (tried + predicates * PREDICATE_WEIGHT * tried + OUTPUT_WEIGHT * made) + SEARCH * searches


def test_query_4_by_hand() -> None:
    """Formula (1) and table 2 for both plans of query 4 while a window passes: 200 units, three events in ten each,
    selectivity 1/32."""
    stats = Stats({"IBM": 0.3, "Sun": 0.3, "Oracle": 0.3}, selectivities={"IBM.price > Sun.price": 1 / 32})
    model = model_of(QUERY_4, stats)
    card = 0.3 * 200
    pairs = card * card  # each Sun has all IBMs of the window before it
    triples = pairs * card / 2  # in order within a window: one pair of three in it, of two that are
    left = model.annotated(shaped(model.alternative.operands, "left-deep"))
    assert left.cardinality == pytest.approx(triples / 32)
    # a pair that has ended in the window, but started before it, is tried in vain while others start in it
    vain = (pairs * card - triples) / 32 * (1 - nothing_between(card))
    first_join = formula_1(pairs, 1, pairs / 32, card)
    assert total_cost(left) == pytest.approx(first_join + formula_1(triples / 32 + vain, 0, triples / 32, card))
    right = model.annotated(shaped(model.alternative.operands, "right-deep"))
    assert right.cardinality == pytest.approx(triples / 32)
    first_join = formula_1(pairs, 0, pairs, card)
    assert total_cost(right) == pytest.approx(first_join + formula_1(triples, 1, triples / 32, pairs))


def test_conjunction_and_disjunction_by_hand() -> None:
    stats = rates(A=0.1, B=0.2, C=0.3)
    model = model_of("PATTERN A&B WITHIN 100", stats)
    joined = model.annotated(ConNode(LeafBuffer("A"), LeafBuffer("B")))
    assert joined.cardinality == pytest.approx(2 * 10 * 20)
    assert joined.cost == pytest.approx(formula_1(2 * 10 * 20, 0, 2 * 10 * 20, 10 + 20))
    model = model_of("PATTERN (A|B);C WITHIN 100", stats)
    (tree,) = all_shapes(model.alternative.operands)
    annotated = model.annotated(tree)
    assert isinstance(annotated, SeqNode)
    assert annotated.left.cardinality == pytest.approx(10 + 20)
    assert annotated.left.cost == pytest.approx(formula_1(10 + 20, 0, 10 + 20, 0))
    assert annotated.cardinality == pytest.approx(30 * 30)


def test_negation_by_hand() -> None:
    """NSEQ looks at each right record once; NEG on top pays for every pair first."""
    stats = rates(A=0.1, B=1e-9, C=0.2)
    model = model_of("PATTERN A;!B;C WITHIN 100", stats)
    pushed = model.annotated(SeqNode(LeafBuffer("A"), NseqNode(LeafBuffer("C"), ("B",))))
    pairs = 10 * 20
    join = formula_1(pairs, 0, pairs, 20)
    assert total_cost(pushed) == pytest.approx(SEARCH * 20 + join, rel=1e-3)
    on_top = model.annotated(NegNode(SeqNode(LeafBuffer("A"), LeafBuffer("C")), ("B",)))
    assert total_cost(on_top) == pytest.approx(join + formula_1(pairs, 0, pairs, pairs), rel=1e-3)
    frequent = model_of("PATTERN A;!B;C WITHIN 100", rates(A=0.1, B=1.0, C=0.2))
    assert frequent.annotated(pushed).cardinality == pytest.approx(pairs / 100, rel=1e-3)


def test_equalities_are_looked_up() -> None:
    stats = Stats({"A": 1, "B": 1}, selectivities={"A.id = B.id": 0.01, "A.id < B.id": 0.01})
    equal = model_of("PATTERN A;B WHERE A.id = B.id WITHIN 100", stats)
    less = model_of("PATTERN A;B WHERE A.id < B.id WITHIN 100", stats)
    tree = SeqNode(LeafBuffer("A"), LeafBuffer("B"))
    assert equal.annotated(tree).cost == pytest.approx(formula_1(100, 0, 100, 100) + HASH * (100 + 100))
    assert less.annotated(tree).cost == pytest.approx(formula_1(10_000, 1, 100, 100))


# --- stacks or trees --------------------------------------------------------------------------------------------------


def expected(text: str, stats: Stats) -> tuple[float, float]:
    """What stacks and the best tree are expected to take for an event, in nanoseconds."""
    found = situation(text, stats)
    return expected_of_stacks(found), expected_of_tree(found, tree_plan(found))


def test_stacks_cost_what_a_right_deep_tree_costs_without_its_buffers() -> None:
    even = Stats({"IBM": 0.3, "Sun": 0.3, "Oracle": 0.3}, total_rate=0.9)
    stacks, tree = expected(QUERY_4, replace(even, selectivities={"IBM.price > Sun.price": 1 / 32}))
    assert tree < stacks / 2  # the tree tests first what is selective, stacks search backwards
    stacks, tree = expected("PATTERN IBM;Sun;Oracle WHERE Sun.price > Oracle.price WITHIN 200", even)
    assert stacks < tree  # here backwards is the right way, and nothing has to be kept


def test_stacks_win_where_a_key_is_looked_up() -> None:
    """SASE's workload: three of twenty types with one key, in a window of 10,000 events."""
    classes = ("E1", "E2", "E3")
    equal = {f"{a}.k = {b}.k": 0.01 for a, b in itertools.permutations(classes, 2)}
    stats = Stats(dict.fromkeys(classes, 0.05), selectivities=equal, total_rate=1.0)
    stacks, tree = expected("PATTERN E1;E2;E3 WHERE E1.k = E2.k = E3.k WITHIN 10000", stats)
    assert stacks < tree


# --- the choice -------------------------------------------------------------------------------------------------------


def test_the_rare_class_is_joined_first() -> None:
    """Query 5 (§6.1.2) and query 6 (§6.2): the best plan changes with rates and selectivities."""
    even = {"IBM": 1.0, "Sun": 1.0, "Oracle": 1.0}
    assert chosen("PATTERN IBM;Sun;Oracle WITHIN 200", Stats({**even, "IBM": 0.01})) == "[[IBM; Sun]; Oracle]"
    assert chosen("PATTERN IBM;Sun;Oracle WITHIN 200", Stats({**even, "Oracle": 0.01})) == "[IBM; [Sun; Oracle]]"


def test_query_6_in_its_three_settings() -> None:
    low, high = {"IBM": 0.01, "Sun": 1, "Oracle": 1, "Google": 1}, dict.fromkeys(("IBM", "Sun", "Oracle", "Google"), 1)
    first, second = "Oracle.price > Sun.price", "Oracle.price > Google.price"
    assert chosen(QUERY_6, Stats(low, selectivities={first: 1, second: 1})).startswith("[[[IBM; Sun]")
    inner = chosen(QUERY_6, Stats(high, selectivities={first: 1 / 50, second: 1}))
    assert "[Sun; Oracle]" in inner
    last = chosen(QUERY_6, Stats(high, selectivities={first: 1, second: 1 / 50}))
    assert "[Oracle; Google]" in last


def test_negation_is_pushed_down_where_predicates_allow() -> None:
    assert chosen("PATTERN IBM;!Sun;Oracle WITHIN 200") == "[IBM; NSEQ(!Sun, Oracle)]"
    assert chosen("PATTERN A;!B;C WHERE B.x = C.x WITHIN 9") == "[A; NSEQ(!B, C)]"
    assert chosen("PATTERN A;!B;C WHERE B.x = C.x AND B.x = A.x WITHIN 9") == "NEG([A; C], !B)"
    assert chosen("PATTERN A;!B;C WITHIN 9", negation="top") == "NEG([A; C], !B)"
    assert chosen("PATTERN A;C;!B WITHIN 9") == "NEG([A; C], !B)"
    assert chosen("PATTERN A;B+;C WITHIN 9") == "GROUPS(KSEQ(A, B, C), B)"


def test_the_plan_is_explained() -> None:
    plan = tree_plan(situation(QUERY_6, rates(IBM=0.01, Sun=1, Oracle=1, Google=1)))
    assert plan.runners_up
    for trees, cost, reason in plan.runners_up:
        assert cost >= plan.cost
        assert len(trees) == 1 and "times the cost" in reason


names = st.sampled_from([f"T{i}" for i in range(6)])


@st.composite
def problems(draw: st.DrawFn) -> tuple[str, Stats]:
    size = draw(st.integers(2, 6))
    classes = [f"T{i}" for i in range(size)]
    tests: dict[str, float] = {}
    for _ in range(draw(st.integers(0, 4))):
        a, b = draw(st.sampled_from(classes)), draw(st.sampled_from(classes))
        op = draw(st.sampled_from(["<", "="]))
        if a != b:
            tests[f"{a}.x {op} {b}.x"] = draw(st.sampled_from([0.01, 0.1, 0.5, 1.0]))
    sign = draw(st.sampled_from([";", ";", "&"]))
    where = f" WHERE {' AND '.join(tests)}" if tests else ""
    each = {name: draw(st.sampled_from([0.01, 0.1, 1.0, 3.0])) for name in classes}
    return f"PATTERN {sign.join(classes)}{where} WITHIN 50", Stats(each, selectivities=tests)


def all_shapes(operands: Pattern) -> Iterator[TreeNode]:
    """Every plan for a pattern of classes, with conjunctions in the order written; there are very many."""
    match operands:
        case EventClass():
            yield LeafBuffer(operands.var)
        case Seq() | Conj() | Disj():
            node = {Seq: SeqNode, Conj: ConNode, Disj: DisNode}[type(operands)]
            for items in itertools.product(*(list(all_shapes(item)) for item in operands.items)):
                yield from joined_in_order(items, node)


def joined_in_order(items: tuple[TreeNode, ...], node: Callable[[TreeNode, TreeNode], TreeNode]) -> Iterator[TreeNode]:
    if len(items) == 1:
        yield items[0]
    for split in range(1, len(items)):
        lefts, rights = joined_in_order(items[:split], node), joined_in_order(items[split:], node)
        for left, right in itertools.product(lefts, rights):
            yield node(left, right)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(problems())
def test_algorithm_5_finds_the_best_of_all_plans(problem: tuple[str, Stats]) -> None:
    found = situation(*problem)
    (alternative,) = alternatives(found.query)
    model = found.model(alternative)
    search = Search(model, alternative, [], [])
    (best,) = search.by_root_split(1)
    costs = [total_cost(model.annotated(tree)) for tree in all_shapes(alternative.operands)]
    assert best.cost == pytest.approx(total_cost(model.annotated(best.tree)))
    if ";" in problem[0]:
        assert best.cost == pytest.approx(min(costs))
    else:
        assert best.cost <= min(costs) * (1 + 1e-9)


def test_long_patterns_are_searched_whole() -> None:
    """`python -m bench search` says how long it takes."""
    classes = [f"T{i}" for i in range(20)]
    tests = " AND ".join(f"{a}.x < {b}.x" for a, b in itertools.pairwise(classes))
    plan = tree_plan(situation(f"PATTERN {';'.join(classes)} WHERE {tests} WITHIN 9"))
    assert [name for name in classes if name not in tree_text(plan.trees[0])] == []


# --- statistics -------------------------------------------------------------------------------------------------------


def sample(number: int) -> list[dict[str, Any]]:
    return [
        {"type": "ABB"[i % 3], "ts": 2 * i, "x": i % 10, "id": i % 4, "big": 100 if i % 5 else 1} for i in range(number)
    ]


def test_statistics_of_a_sample() -> None:
    table = pa.Table.from_pylist(sample(600))
    stats = cepheid.statistics("PATTERN A;B WHERE A.id = B.id AND A.big > 50 WITHIN 90", table)
    assert stats.total_rate == pytest.approx(0.5, rel=0.01)
    assert stats.rates["A"] == pytest.approx(1 / 6, rel=0.02)
    assert stats.rates["B"] == pytest.approx(1 / 3, rel=0.02)
    assert stats.passing["A"] == pytest.approx(0.8, rel=0.05)
    assert stats.selectivities["A.id = B.id"] == pytest.approx(0.25, abs=0.06)


def test_statistics_from_a_file() -> None:
    stats = Stats({"A": 0.5}, {"A": 1.0}, {"A.x = B.x": 0.1}, {("A", "B"): 0.4}, 2.0)
    assert from_json(to_json(stats)) == stats
    for text in ("[]", "{", '{"rate": {}}', '{"rates": {"A": "x"}}', '{"orders": {"A": 1}}', '{"total_rate": true}'):
        with pytest.raises(InputProblem):
            from_json(text)


def test_running_averages_and_drift() -> None:
    running = RunningStats(2)
    for rate in (1.0, 2.0, 4.0):
        running = running.observed(Stats({"A": rate}, total_rate=rate))
    assert running.average == Stats({"A": 3.0}, total_rate=3.0)
    change = drift(Stats({"A": 1.0, "B": 1.0}), Stats({"A": 1.1, "B": 3.0}))
    assert change == Drift("the rate of B", 1.0, 3.0)
    assert change.size == pytest.approx(2.0)
