"""Plan generation: dynamic programming against every plan, heuristics, limits, deadlines and retention."""

import random

import pytest
from acquire.planning import drawn_model, flat, nested
from detection.running import NAMED, World, drawn_table

from cepheid.acquire.choice import choose, lookback, require_retention
from cepheid.acquire.cost import CoverageModel, StreamModel
from cepheid.acquire.models import Poisson
from cepheid.acquire.plans import LEAF, Plan, all_plans, is_naive, naive, named_plan, plan_text
from cepheid.acquire.search import STRATEGIES, Candidate, Search, SearchOptions, pareto
from cepheid.acquire.tree import Kind, Operator, Primitive, streams
from cepheid.errors import InputProblem

DP, HEURISTIC = SearchOptions("dp"), SearchOptions("heuristic")


def rounded(front: list[Candidate]) -> list[tuple[float, float]]:
    return [(float(f"{c.cost:.9g}"), float(f"{c.latency:.9g}")) for c in front]


@pytest.mark.parametrize(("count", "plans"), [(1, 1), (2, 3), (3, 13), (4, 75), (5, 541)])
def test_the_number_of_plans_is_that_of_the_paper(count: int, plans: int) -> None:
    assert sum(1 for _ in all_plans(flat(count, Kind.AND))) == plans


def test_negated_subevents_come_last_or_everything_at_once() -> None:
    operator = flat(4, Kind.AND, negated=2)
    texts = {plan_text(operator, plan) for plan in all_plans(operator)}
    assert len(texts) == 3 * 3 + 1
    assert "e0, e1, !e2, !e3" in texts
    assert "e1 → e0 → !e3 → !e2" in texts
    assert "e0 → !e2 → e1 → !e3" not in texts


@pytest.mark.parametrize("model", ["coverage", "paper"])
@pytest.mark.parametrize("kind", [Kind.AND, Kind.SEQ])
def test_programming_finds_the_front_of_all_plans(kind: Kind, model: str) -> None:
    rng = random.Random(f"{kind} {model}")
    for _ in range(8):
        count = rng.randint(2, 5)
        operator = flat(count, kind, rng.randrange(min(3, count)), rng.choice((1, 10, 100, 1000)))
        costs = drawn_model(rng, count, model)
        every = pareto(Candidate(*costs.estimate(operator, plan), plan) for plan in all_plans(operator))
        found = Search(costs, DP).plans(operator)
        assert rounded(found) == rounded(every)
        assert all(rounded([c]) == rounded([Candidate(*costs.estimate(operator, c.plan), c.plan)]) for c in found)


@pytest.mark.parametrize("model", ["coverage", "paper"])
def test_programming_finds_the_front_of_nested_events(model: str) -> None:
    rng = random.Random(5)
    for _ in range(10):
        root = nested(rng, rng.randint(2, 3))
        costs = drawn_model(rng, 20, model)
        every = pareto(Candidate(*costs.estimate(root, plan), plan) for plan in all_plans(root))
        assert rounded(Search(costs, DP).plans(root)) == rounded(every)


def test_heuristics_come_close_to_the_best_plan() -> None:
    rng = random.Random(3)
    ratios = []
    for _ in range(40):
        root = nested(rng, rng.randint(1, 4)) if rng.random() < 0.5 else flat(rng.randint(2, 6), Kind.SEQ, 1)
        costs = drawn_model(rng, 30)
        best, found = Search(costs, DP).plans(root)[0], Search(costs, HEURISTIC).plans(root)[0]
        assert found.cost >= best.cost * (1 - 1e-9)
        ratios.append(found.cost / best.cost)
    assert sum(ratios) / len(ratios) < 1.1


@pytest.mark.parametrize("kind", [Kind.AND, Kind.SEQ])
def test_searches_consider_few_plans(kind: Kind) -> None:
    rng = random.Random(1)
    exact, greedy = Search(drawn_model(rng, 8), DP), Search(drawn_model(rng, 30), HEURISTIC)
    exact.plans(flat(8, kind))
    greedy.plans(flat(30, kind))
    assert exact.considered < 60_000
    assert greedy.considered < 6_000


def test_limits_keep_the_cheapest_plan_feasible() -> None:
    rng = random.Random(2)
    binary = Operator(
        "r",
        Kind.AND,
        tuple(
            Operator(f"r.{i}", Kind.AND, tuple(Primitive(f"r.{i}.{j}", f"E{2 * i + j}") for j in range(2)), 50)
            for i in range(2)
        ),
        50,
    )
    costs = drawn_model(rng, 4)
    best = Search(costs, DP).plans(binary)
    for strategy in STRATEGIES:
        limited = Search(costs, SearchOptions("dp", 1, strategy)).plans(binary)
        assert limited[0].cost >= best[0].cost * (1 - 1e-9)
        wide = Search(costs, SearchOptions("dp", 100, strategy)).plans(binary)
        assert rounded(wide) == rounded(best)
    assert Search(costs, SearchOptions("dp", 1, "latency")).plans(binary)[-1].latency == best[-1].latency


def chain() -> tuple[Operator, CoverageModel]:
    rates = {"E0": 0.0005, "E1": 0.005, "E2": 1.0}
    costs = CoverageModel({name: StreamModel(Poisson(rate), latency=10, retention=500) for name, rate in rates.items()})
    return flat(3, Kind.AND, window=100), costs


def test_a_deadline_buys_latency_with_events() -> None:
    operator, costs = chain()
    free = choose(operator, costs, DP)
    assert plan_text(operator, free.chosen.plan) == "e0 → e1 → e2"
    assert free.chosen.latency == 10 + 20 + 20
    tight = choose(operator, costs, DP, deadline=30)
    assert plan_text(operator, tight.chosen.plan) == "e0, e1 → e2"
    assert next(reason for _, reason in tight.lost) == "its latency of 50.0 exceeds the deadline"
    assert is_naive(choose(operator, costs, DP, deadline=10).chosen.plan)
    with pytest.raises(InputProblem, match=r"within the deadline of 9(.|\n)*at least 10") as problem:
        choose(operator, costs, DP, deadline=9)
    assert "no plan detects `r`" in str(problem.value)


def test_retention_excludes_plans() -> None:
    operator, costs = chain()
    steps = Plan(((0,), (1,), (2,)), (LEAF, LEAF, LEAF))
    assert lookback(operator, steps, costs) == {"E1": 100 + 10 + 10, "E2": 100 + 30 + 10}
    short = CoverageModel({**costs.streams, "E2": StreamModel(Poisson(1.0), 10, retention=125)})
    assert plan_text(operator, choose(operator, short, DP).chosen.plan) == "e0, e1 → e2"
    with pytest.raises(InputProblem, match=r"needs events of `E2` for 140\.0, but its source keeps them for 125"):
        require_retention(operator, steps, short)
    require_retention(operator, naive(operator), short)
    assert streams(operator) == ("E0", "E1", "E2")


SHARED = "complex Q on A as a, A as x, B as b, C as c, D as d event and(seq(a, !b; 3), seq(x, c; 4), d; 9)"
MANY = "complex Q on A as a, B as b, C as c, D as d event seq(and(a, b; 3), !and(c, d; 3); 9)"


@pytest.mark.parametrize("text", [*NAMED, SHARED, MANY])
def test_a_plan_is_found_by_its_text_alone(text: str) -> None:
    world = World.of(text, drawn_table(random.Random(1), 4, 9))
    root = world.tree.root
    for plan in all_plans(root):
        known = plan_text(root, plan)
        found = named_plan(root, known.replace("→", " ->"))
        assert found is not None, known
        assert plan_text(root, found) == known
        assert named_plan(root, known + " -> a") is None
    for odd in ("", "->", "a ->", "a, a", "nothing", "and(", "and()", "(" * 5_000, ")" * 9, "a, , b"):
        assert named_plan(root, odd) is None, odd


def test_a_plan_of_many_steps_is_found_at_once() -> None:
    operator = flat(14, Kind.AND)  # more plans than could be listed
    text = " -> ".join(plan_text(item, LEAF) for item in operator.items)
    found = named_plan(operator, text)
    assert found is not None
    assert found.steps == tuple((unit,) for unit in range(14))
