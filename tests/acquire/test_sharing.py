"""Complex events with common subevents: Algorithm 2 against the plans of each alone, and against all plans of both."""

import itertools
import random
import statistics

import pytest

from cepheid.acquire.cost import MODELS, CostModel, CoverageModel, StreamModel
from cepheid.acquire.models import Poisson
from cepheid.acquire.plans import all_plans, plan_text
from cepheid.acquire.search import SearchOptions
from cepheid.acquire.sharing import Cells, Member, plan_together, total_cost
from cepheid.acquire.tree import Kind, Operator, Primitive

DP = SearchOptions("dp")


def event(name: str, own: tuple[str, str], window: int = 100) -> Operator:
    """`and(and(S1, S2), and(...))`: the first operand is common to all."""

    def pair(label: str, streams: tuple[str, str]) -> Operator:
        items = tuple(Primitive(f"{name}.{label}.{stream}", stream) for stream in streams)
        return Operator(f"{name}.{label}", Kind.AND, items, window)

    return Operator(name, Kind.AND, (pair("shared", ("S1", "S2")), pair("own", own)), window)


ROOTS = {"one": event("one", ("A", "B")), "two": event("two", ("C", "D"))}


def model(rates: dict[str, float]) -> CoverageModel:
    return CoverageModel({name: StreamModel(Poisson(rate), 1.0) for name, rate in rates.items()})


def members(costs: CostModel, deadlines: dict[str, float] | None = None) -> dict[str, Member]:
    return {name: Member(root, costs, (deadlines or {}).get(name)) for name, root in ROOTS.items()}


def test_a_common_subevent_is_acquired_first_if_that_costs_less_in_all() -> None:
    """It is as frequent as the others: alone, each event would begin with its own."""
    for rate in (0.0041, 0.0044, 0.0048):
        rates = {"S1": rate, "S2": rate, **dict.fromkeys("ABCD", 0.004)}
        found = plan_together(members(model(rates)), DP)
        texts = {name: plan_text(ROOTS[name], plan) for name, plan in found.plans.items()}
        assert found.cost < 0.92 * found.apart
        assert all("S1" in text.split("→")[0] or "S2" in text.split("→")[0] for text in texts.values()), texts


def test_nothing_changes_where_the_common_subevent_is_rare_or_frequent() -> None:
    for rate in (0.0001, 0.1):
        rates = {"S1": rate, "S2": rate, **dict.fromkeys("ABCD", 0.003)}
        found = plan_together(members(model(rates)), DP)
        assert found.cost == pytest.approx(found.apart, rel=0.02)


def test_plans_together_come_close_to_the_best_of_all_pairs() -> None:
    rng = random.Random(4)
    ratios, gains = [], []
    for _ in range(12):
        costs = model({name: 10 ** rng.uniform(-2.8, -2.2) for name in ("S1", "S2", *"ABCD")})
        both = members(costs)
        shares = {name: [both[name].fetched(plan) for plan in all_plans(root)] for name, root in ROOTS.items()}
        best = min(
            total_cost(both, {"one": one, "two": two}) for one, two in itertools.product(shares["one"], shares["two"])
        )
        found = plan_together(both, DP)
        assert best * (1 - 1e-9) <= found.cost <= found.apart * (1 + 1e-9)
        ratios.append(found.cost / best)
        gains.append(found.cost / found.apart)
    assert statistics.fmean(ratios) < 1.02
    assert min(gains) < 1


def test_deadlines_hold_for_each() -> None:
    costs = MODELS["coverage"]({n: StreamModel(Poisson(0.005), 10.0) for n in ("S1", "S2", *"ABCD")})
    found = plan_together(members(costs, {"one": 10.0}), DP)
    assert costs.estimate(ROOTS["one"], found.plans["one"]).latency == 10
    assert costs.estimate(ROOTS["two"], found.plans["two"]).latency > 10
    assert found.cost <= found.apart


def test_sources_that_only_one_event_reads_are_not_shared() -> None:
    """Both read the same types, of different sources but for one."""
    costs = model({"S1": 0.0044, "S2": 0.0044, **dict.fromkeys("ABCD", 0.004)})
    shared: dict[str, dict[str, Cells]] = {
        name: {"S1": {("x", "S1"): 0.0044}, "S2": {("x", "S2"): 0.0044}} for name in ROOTS
    }
    apart: dict[str, dict[str, Cells]] = {
        name: {kind: {(name, kind): 0.0044} for kind in ("S1", "S2")} for name in ROOTS
    }
    found = {}
    for label, cells in (("shared", shared), ("apart", apart)):
        both = {name: Member(root, costs, None, cells[name]) for name, root in ROOTS.items()}
        found[label] = plan_together(both, DP)
    assert found["shared"].cost < 0.92 * found["shared"].apart
    assert found["apart"].cost == found["apart"].apart == pytest.approx(found["apart"].separate)
