"""The choice of an evaluator: by the costs that evaluators declare, of those that are able, or as it is forced."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from cepheid.binding import bind
from cepheid.errors import NotAvailable
from cepheid.events import NO_CLOCK, START, Schema
from cepheid.kernels.registry import EVALUATORS
from cepheid.lang import parse
from cepheid.optimize.lower import Evaluators, lower
from cepheid.optimize.stats import NO_STATS, Stats
from cepheid.physical import REFERENCE, Kind, Lowered, Options, Plan, not_made_for
from cepheid.types import FLOAT, INTEGER

SCHEMA = Schema({name: {"id": INTEGER, "v": INTEGER} for name in "ABC"})
TYPES = {"id": INTEGER, "v": FLOAT}
KNOWN = Stats({"x": 1.0, "y": 1.0})


@dataclass
class _Fake:
    """An evaluator of any query that no kernel is made for."""

    NAME: str
    price: float = 1.0
    reason: str | None = None
    made_for: bool = True
    OPTIONS: Options = field(default_factory=dict)
    FOLDS: bool = False
    SEARCHES: bool = False
    SWITCHES: bool = False

    def able(self, lowered: Lowered) -> str | None:
        return self.reason if self.made_for else not_made_for(lowered.query)

    def plan(self, lowered: Lowered, stats: Stats) -> Plan:
        return lowered.plan(self.NAME)

    def cost(self, plan: Plan, stats: Stats) -> float:
        return self.price

    def kernel(self, plan: Plan) -> object:
        raise AssertionError("a plan is chosen without its kernel")


def _lower(evaluators: Evaluators, text: str = "EVENT SEQ(A x, B y) WITHIN 5", **options: Any) -> Plan:
    return lower(bind(parse(text), SCHEMA), TYPES, SCHEMA, NO_CLOCK, evaluators, **options)


def test_the_cheapest_is_chosen_where_statistics_are_known() -> None:
    plan = _lower([_Fake("first", 10.0), _Fake("cheap", 5.0), _Fake("dear", 20.0)], stats=KNOWN)
    assert (plan.evaluator, plan.expected) == ("cheap", 5.0)
    assert dict(plan.others) == {
        "first": "10 ns expected for each event, 2.00 times that of cheap",
        "dear": "20 ns expected for each event, 4.00 times that of cheap",
    }


def test_the_first_stays_where_another_gains_too_little_or_nothing_is_known() -> None:
    evaluators = [_Fake("first", 10.0), _Fake("other", 9.6)]
    assert _lower(evaluators, stats=KNOWN).evaluator == "first"
    unknown = _lower(evaluators)
    assert unknown.evaluator == "first" and math.isnan(unknown.expected)
    assert dict(unknown.others) == {
        "other": "no statistics are known, so the first able evaluator of the registry is used: first"
    }


@pytest.mark.parametrize("stats", [NO_STATS, KNOWN])
def test_a_forced_option_asks_for_the_evaluator_that_has_it(stats: Stats) -> None:
    evaluators = [_Fake("first", 1.0), _Fake("shaped", 10.0, OPTIONS={"shape": ()})]
    options: Mapping[str, str | bool] = {"shape": "bushy"}
    assert _lower(evaluators, stats=stats, options=options).evaluator == "shaped"
    assert _lower(evaluators, stats=stats, options=options, evaluator="first").evaluator == "first"


def test_those_that_are_not_able_do_not_compete() -> None:
    evaluators = [_Fake("unable", 1.0, "no room"), _Fake("able", 10.0)]
    plan = _lower(evaluators, stats=KNOWN)
    assert plan.evaluator == "able" and plan.others == () and plan.reasons == ()
    with pytest.raises(NotAvailable, match=r"`unable` cannot evaluate this query(.|\n)*able, reference(.|\n)*no room"):
        _lower(evaluators, evaluator="unable")


def test_what_no_evaluator_can_run_is_an_error_that_says_what_all_lack() -> None:
    both = [_Fake("one", reason="too wide\nno keys"), _Fake("two", reason="too wide"), _Fake("odd", made_for=False)]
    for evaluators, reasons in (
        (both, "too wide"),
        ([_Fake("one", reason="too wide"), _Fake("two", reason="no keys")], "too wide; no keys"),
        ([_Fake("odd", made_for=False)], "no compiled evaluator for these operators of sase"),
    ):
        with pytest.raises(NotAvailable, match=f"no evaluator can run this query: {reasons}\n(.|\n)*backend reference"):
            _lower(evaluators)
        assert _lower(evaluators, evaluator=REFERENCE).evaluator == REFERENCE


def test_an_evaluator_that_does_not_exist_is_refused() -> None:
    with pytest.raises(NotAvailable, match=r"there is no evaluator `none`(.|\n)*one of one, reference"):
        _lower([_Fake("one")], evaluator="none")


QUERIES = [
    ("EVENT SEQ(A x, B y) WITHIN 5", ["stacks", "tree"]),
    ("EVENT SEQ(A x, !(B n), C y) WHERE [id] WITHIN 5", ["stacks", "tree"]),
    ("PATTERN A x & B y WITHIN 5", ["tree"]),
    ("PATTERN A x; B b+; C y WITHIN 5", ["tree"]),
    ("PATTERN SEQ(A x, B+ y[]) WHERE skip_till_next_match { [id] } WITHIN 5", ["runs"]),
    ("PATTERN SEQ(A x, B y) WHERE skip_till_any_match { [id] } WITHIN 5", ["stacks", "any_runs"]),
    ("PATTERN SEQ(A x, B+ y[]) WHERE skip_till_any_match { [id] } WITHIN 5", ["any_runs"]),
]


@pytest.mark.parametrize(("text", "able"), QUERIES)
def test_every_evaluator_that_is_able_plans_and_has_a_cost(text: str, able: list[str]) -> None:
    plan = _lower(EVALUATORS, text, stats=KNOWN)
    assert plan.evaluator in able
    assert {plan.evaluator, *(name for name, _ in plan.others)} == set(able)
    assert _lower(EVALUATORS, text).evaluator == able[0]
    for evaluator in EVALUATORS:
        if evaluator.NAME in able:
            forced = _lower(EVALUATORS, text, evaluator=evaluator.NAME, stats=KNOWN)
            assert forced.evaluator == evaluator.NAME and 0 < forced.expected < math.inf
            rare, frequent = (Stats({"x": 1.0, "y": rate, "b": rate}, total_rate=20.0) for rate in (0.01, 10.0))
            assert evaluator.cost(forced, rare) < evaluator.cost(forced, frequent)
        else:
            with pytest.raises(NotAvailable):
                _lower(EVALUATORS, text, evaluator=evaluator.NAME)


def test_the_start_of_events_with_duration_travels_as_a_column() -> None:
    plan = _lower([_Fake("one")], has_durations=True)
    assert plan.has_durations and plan.columns[START] is Kind.INT
    assert not _lower([_Fake("one")]).has_durations
    assert START not in _lower([_Fake("one")]).columns


@pytest.mark.parametrize(
    "text",
    [
        "EVENT SEQ(A x, B y) WHERE {} WITHIN 5",
        "PATTERN A x & B y WHERE {} WITHIN 5",
        "SELECT * FROM (A x; B y) WHERE FILTER({})",
        "PATTERN SEQ(A x, B y) WHERE skip_till_next_match {{ {} }} WITHIN 5",
    ],
)
@pytest.mark.parametrize("equality", ["x.id + 1 = y.id", "y.id % 9 = x.id % 9", "abs(x.id) = y.id", "-x.v = y.id"])
def test_a_computed_key_is_a_column_that_kernels_look_up(text: str, equality: str) -> None:
    """Otherwise, every pair of events is tested."""
    plan = _lower(EVALUATORS, text.format(equality))
    assert len(plan.derived) == 1
    assert plan.derived.keys() <= set(plan.columns)
