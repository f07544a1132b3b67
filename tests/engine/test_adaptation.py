"""A plan that changes while it runs changes nothing else; and it changes when it should."""

from __future__ import annotations

import itertools
import json
import logging
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from examples import examples
from hypothesis import HealthCheck, assume, given, reject, settings
from hypothesis import strategies as st
from kernel_harness import Found, Stream, bound, by_oracle, kernel_of, listed, stream_of
from simulation_harness import QUERIES, SCHEMA, TYPES, cut, multiset, random_rows
from strategies import Stream as DrawnStream
from strategies import sase_queries, zstream_queries
from strategies import streams as drawn_streams
from tree_harness import drawn_plan
from typer.testing import CliRunner, Result

import cepheid
from cepheid.app import cli, report
from cepheid.app.file_run import FileRun
from cepheid.engine.adaptation import AdaptiveStepper, stepper_for
from cepheid.engine.observation import Observer
from cepheid.engine.prepare import Prepared, RunOptions, prepare
from cepheid.engine.stepping import encoder_for
from cepheid.errors import CepheidError, InputProblem
from cepheid.events import Clock, Schema
from cepheid.io import frames
from cepheid.io.inputs import Columns
from cepheid.io.rows import TIME, TYPE
from cepheid.io.source import TableSource
from cepheid.kernels.registry import SWITCHING
from cepheid.lang import parse
from cepheid.optimize.adapt import Adaptive, Decision, Policy, Switch, best_of, plan_text, why_fixed
from cepheid.optimize.search import plan_cost
from cepheid.optimize.stats import NO_STATS, RunningStats, Stats, drift
from cepheid.physical import Plan
from cepheid.runtime.kernel import Kernel, counters
from cepheid.streaming.adaptation import Adapted
from cepheid.streaming.plan import StreamPlan
from cepheid.streaming.planning import StreamSource, plan_stream
from cepheid.streaming.reader import RowReader
from cepheid.streaming.simulation import Simulation

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_EXAMPLES = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
_STREAMS = settings(max_examples=examples(600), deadline=None, suppress_health_check=list(HealthCheck))
_MANY = settings(max_examples=examples(3000), deadline=None, suppress_health_check=list(HealthCheck))


@dataclass(slots=True)
class Forced:
    """Another plan at every decision, whatever the statistics say."""

    plans: Iterator[Plan]
    observed_every: int = 1
    seconds_between: float = 0.0
    observations: int = 2
    seen: list[Stats] = field(default_factory=list)

    def decide(self, plan: Plan, planned_with: Stats, now: Stats, bases: Sequence[Plan]) -> Decision:
        self.seen.append(now)
        return Decision(next(self.plans), "a test says so")


def as_input(stream: Stream) -> pa.RecordBatch:
    columns = {**{n: stream.table.column(n) for n in stream.table.schema.names}}
    columns |= {TYPE: stream.table.column("type"), TIME: stream.table.column("ts")}
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def by_switching(kernel: Kernel, stream: Stream, policy: Forced, cuts: Sequence[int]) -> tuple[Found, list[Switch]]:
    prepared = Prepared(kernel.plan.query, stream.schema, Clock(), kernel.plan, kernel, adaptive=policy)
    switches: list[Switch] = []
    stepper = stepper_for(prepared, kernel, len(stream.events), switches.append)
    found: Found = []
    table = as_input(stream)
    for start, end in itertools.pairwise([0, *sorted(cuts), len(stream.events)]):
        for positions in stepper.step(table.slice(start, end - start)):
            found.extend(listed(positions))
    for positions in stepper.finish_lazily():
        found.extend(listed(positions))
    return sorted(found), switches


def may_switch(text: str) -> bool:
    """A window over a partition's events or none at all keeps a plan as it is."""
    return "WITHIN" in text and not ("events" in text and "[id" in text)


def switching_changes_nothing(text: str, drawn: DrawnStream, data: st.DataObject) -> None:
    rows = [dict(event.row) for event in drawn.events]
    stream = stream_of(rows or [{"type": "A", "ts": 0, "v": 1, "w": 1, "id": 1, "s": "p"}])
    try:
        query = bound(text, stream)
        kernel = kernel_of(query, stream, evaluator="tree")
    except CepheidError:
        reject()
    assume(why_fixed(kernel.plan, SWITCHING) is None)
    plans = [replace(kernel.plan, tree=drawn_plan(data, kernel.plan.query, kernel.plan)) for _ in range(2)]
    try:
        plans.append(kernel_of(query, stream, evaluator="stacks").plan)
    except CepheidError:
        """Not a sequence: stacks cannot evaluate it."""
    policy = Forced(itertools.cycle([*plans, kernel.plan]), data.draw(st.integers(1, 4)))
    cuts = data.draw(st.lists(st.integers(0, len(stream.events)), max_size=3))
    found, _ = by_switching(kernel, stream, policy, cuts)
    assert found == by_oracle(query, stream), plans
    assert policy.seen


@_EXAMPLES
@given(zstream_queries().filter(may_switch), drawn_streams(max_events=14), st.data())
def test_switching_at_every_boundary_changes_nothing(text: str, stream: DrawnStream, data: st.DataObject) -> None:
    switching_changes_nothing(text, stream, data)


@_EXAMPLES
@given(sase_queries().filter(may_switch), drawn_streams(max_events=14), st.data())
def test_switching_changes_nothing_for_sase(text: str, stream: DrawnStream, data: st.DataObject) -> None:
    switching_changes_nothing(text, stream, data)


@pytest.mark.slow
@_MANY
@given((zstream_queries() | sase_queries()).filter(may_switch), drawn_streams(max_events=24), st.data())
def test_switching_often_changes_nothing(text: str, stream: DrawnStream, data: st.DataObject) -> None:
    switching_changes_nothing(text, stream, data)


# --- the decision -----------------------------------------------------------------------------------------------------

QUERY_6 = """PATTERN IBM;Sun;Oracle;Google
WHERE Oracle.price > Sun.price AND Oracle.price > Google.price
WITHIN 100"""
ORACLE_SUN, ORACLE_GOOGLE = "Oracle.price > Sun.price", "Oracle.price > Google.price"


def stocks(
    number: int, rates: Sequence[int] = (1, 1, 1, 1), first: float = 1.0, second: float = 1.0, start: int = 0
) -> pa.Table:
    """Ticks of IBM, Sun, Oracle and Google at these rates, with these selectivities of query 6's predicates."""
    rng = np.random.default_rng(number)
    kinds = rng.choice(4, number, p=np.array(rates) / sum(rates))
    passes = rng.random(number) < np.choose(kinds, [1.0, first, 1.0, second])
    price = np.where(kinds == 2, 0.5, np.where(passes, 0.0, 1.0))
    names = np.array(["IBM", "Sun", "Oracle", "Google"])[kinds]
    return pa.table({"type": names, "ts": np.arange(start, start + number), "price": price})


def plan_of_query_6(stats: Stats) -> Plan:
    stream = stream_of(stocks(20).to_pylist())
    kernel = kernel_of(bound(QUERY_6, stream), stream, evaluator="tree")
    return best_of(kernel.plan, stats)[0]


def known(first: float, second: float, ibm: float = 0.25) -> Stats:
    rates = {"IBM": ibm, "Sun": 0.25, "Oracle": 0.25, "Google": 0.25}
    return Stats(rates, {}, {ORACLE_SUN: first, ORACLE_GOOGLE: second}, {}, sum(rates.values()))


def test_a_plan_changes_when_a_statistic_drifts_and_another_plan_is_better() -> None:
    before, after = known(0.02, 1.0), known(1.0, 0.02)
    plan = plan_of_query_6(before)
    decision = Adaptive().decide(plan, before, after, [plan])
    assert plan_text(plan) != plan_text(decision.plan) == plan_text(plan_of_query_6(after))
    assert decision.drift is not None and decision.drift.size == pytest.approx(1.02 / 0.04 - 1.0)
    assert decision.cost_before == plan_cost(plan, after) > 1.2 * decision.cost_after
    assert decision.reason.startswith(str(decision.drift))


def test_no_plan_changes_without_a_drift_even_if_another_is_better() -> None:
    before, after = known(0.02, 1.0), known(1.0, 0.02)
    worse = plan_of_query_6(before)
    assert plan_cost(worse, after) > 1.2 * plan_cost(plan_of_query_6(after), after)
    assert Adaptive().decide(worse, after, after, [worse]) == Decision(worse, "no statistic has changed enough")


def test_no_plan_changes_without_a_gain_even_if_statistics_drift() -> None:
    before = known(0.02, 1.0)
    plan = plan_of_query_6(before)
    still_best = Adaptive().decide(plan, before, known(0.005, 1.0), [plan])
    assert still_best.plan == plan
    assert str(still_best.drift) == f"the selectivity of `{ORACLE_SUN}` went from 0.02 to 0.005"
    assert "still the best" in still_best.reason
    modest = Adaptive(gain=1e9).decide(plan, before, known(1.0, 0.02), [plan])
    assert modest.plan == plan
    assert "gains too little" in modest.reason


def test_plans_of_several_evaluators_compete() -> None:
    table = stocks(200)
    stream = stream_of(table.to_pylist())
    trees, stacks = (kernel_of(bound(QUERY_6, stream), stream, evaluator=e).plan for e in ("tree", "stacks"))
    many_pairs, few_pairs = known(0.02, 1.0), known(1.0, 0.02, ibm=0.001)
    for now in (many_pairs, few_pairs):
        costs = {plan.evaluator: plan_cost(best_of(plan, now)[0], now) for plan in (trees, stacks)}
        for plan in (best_of(trees, now)[0], stacks):
            decision = Adaptive(gain=0).decide(plan, NO_STATS, now, [trees, stacks])
            assert decision.plan.evaluator == min(costs, key=lambda name: costs[name])
            assert decision.cost_after == min(costs.values())


def test_other_evaluators_may_take_over_unless_one_is_asked_for() -> None:
    opened = frames.opened(stocks(50), Columns())
    assert opened is not None
    for wishes, others in (
        (RunOptions(adaptive=Adaptive()), {"stacks", "tree"}),
        (RunOptions(evaluator="tree", adaptive=Adaptive()), {"tree"}),
        (RunOptions(options={"shape": "bushy"}, adaptive=Adaptive()), {"tree"}),
    ):
        prepared = prepare(parse(QUERY_6), opened.source, wishes)
        assert {plan.evaluator for plan in prepared.plans} == others


def test_what_was_not_known_is_a_drift() -> None:
    plan = plan_of_query_6(NO_STATS)
    decision = Adaptive().decide(plan, NO_STATS, known(0.02, 1.0), [plan])
    assert decision.drift is not None and decision.drift.before is None
    assert "was not known" in decision.reason
    hardly = drift(known(0.001, 1.0), known(0.0001, 1.0))
    assert hardly is not None and hardly.size < 0.1, "a sample cannot tell such selectivities apart"


def test_a_jump_ends_what_was_before() -> None:
    running = RunningStats(4)
    for rate in (1.0, 1.1, 0.9, 8.0, 8.2):
        running = running.observed(Stats({"A": rate}))
    assert running.average.rates["A"] == pytest.approx(8.1)


@pytest.mark.parametrize(
    ("text", "reason"), [("PATTERN A;B", "WITHIN"), ("PATTERN A;B WHERE A.id = B.id WITHIN 5 events", "partition")]
)
def test_plans_that_cannot_change_say_why(text: str, reason: str) -> None:
    table = pa.table({"type": ["A", "B"], "ts": [1, 2], "id": [1, 1]})
    plan = cepheid.explain(text, table, evaluator="tree", adaptive=True)
    assert "cannot change during the run" in plan and reason in plan
    assert cepheid.match(text, table, evaluator="tree", adaptive=True).num_rows == 1


@pytest.mark.parametrize("thresholds", [{"drift": -1}, {"gain": "much"}, {"observed_every": 0}, {"observations": True}])
def test_senseless_thresholds_are_refused(thresholds: dict[str, Any]) -> None:
    with pytest.raises(InputProblem, match=next(iter(thresholds))):
        Adaptive(**thresholds)


# --- observation ------------------------------------------------------------------------------------------------------


def test_observed_statistics_are_those_of_the_stream() -> None:
    table = stocks(40_000, (1, 2, 3, 4), first=0.3, second=0.05)
    stream = stream_of(table.slice(0, 200).to_pylist())
    text = QUERY_6.replace("WITHIN", "AND Google.price < 0.5\nWITHIN")
    kernel = kernel_of(bound(text, stream), stream, evaluator="tree")
    events = table.append_column(TYPE, table["type"]).append_column(TIME, table["ts"]).combine_chunks().to_batches()[0]
    stats = Observer(kernel.plan).observe(events, encoder_for(kernel).encode(events))
    assert stats.total_rate == pytest.approx(1.0, rel=0.01)
    for name, rate in {"IBM": 0.1, "Sun": 0.2, "Oracle": 0.3, "Google": 0.4}.items():
        assert stats.rates[name] == pytest.approx(rate, rel=0.1)
    assert stats.passing["Google"] == pytest.approx(0.05, rel=0.2)
    assert stats.passing["Sun"] == 1.0
    assert stats.selectivities[ORACLE_SUN] == pytest.approx(0.3, abs=0.1)
    assert stats.selectivities[ORACLE_GOOGLE] == 1.0, "those that pass are all cheaper than Oracle"


@pytest.mark.parametrize("condition", ["x.v = y.v OR length('a') > 2", "NOT (length('a') > 2 AND x.v = y.v)"])
def test_conditions_may_compare_constants_beside_attributes(condition: str) -> None:
    events = pa.table({"type": ["A", "B"] * 50, "ts": range(100), "v": [n % 7 for n in range(100)]})
    query = f"EVENT SEQ(A x, B y) WHERE ({condition}) WITHIN 9"
    assert cepheid.match(query, events, adaptive=True) == cepheid.match(query, events)


def test_rates_count_the_time_of_the_batch_alone() -> None:
    table = stocks(3_000)
    stream = stream_of(table.to_pylist())
    kernel = kernel_of(bound(QUERY_6, stream), stream, evaluator="tree")
    observer, encoder, events = Observer(kernel.plan), encoder_for(kernel), as_input(stream)
    observer.observe(events.slice(0, 1_000), encoder.encode(events.slice(0, 1_000)))
    observer.pass_over(encoder.encode(events.slice(1_000, 1_000)))
    stats = observer.observe(events.slice(2_000), encoder.encode(events.slice(2_000)))
    assert stats.total_rate == 1.0


# --- a whole run ------------------------------------------------------------------------------------------------------


def concatenated() -> pa.Table:
    """§6.3 in small."""
    parts = [((1, 100, 100, 100), 1.0, 1.0), ((1, 1, 1, 1), 0.02, 1.0), ((1, 1, 1, 1), 1.0, 0.02)]
    return pa.concat_tables([stocks(3_000, *part, start=3_000 * i) for i, part in enumerate(parts)])


def test_a_concatenated_stream_switches_and_says_why(caplog: pytest.LogCaptureFixture) -> None:
    table, switches = concatenated(), list[Switch]()
    query = QUERY_6.replace("100", "20")
    with caplog.at_level(logging.INFO, "cepheid.adaptation"):
        settings = Adaptive(observed_every=500, seconds_between=0)
        found = cepheid.match(query, table, evaluator="tree", adaptive=settings, on_switch=switches.append)
    assert multiset(found) == multiset(cepheid.match(query, table))
    assert [record.getMessage() for record in caplog.records] == [f"the plan changes {s}" for s in switches]
    later = [s for s in switches if s.events]
    assert [s.before for s in switches[1:]] == [s.after for s in switches[:-1]]
    assert any(s.events + 500 >= 3_000 and s.events <= 4_500 for s in later)
    third = [s for s in later if 5_500 <= s.events <= 7_500]
    assert any(
        s.statistic in (f"the selectivity of `{ORACLE_SUN}`", f"the selectivity of `{ORACLE_GOOGLE}`") for s in third
    )
    assert len(switches) < 9, "it does not change back and forth"


def test_kernels_are_made_once_and_events_count_once() -> None:
    table = stocks(100)
    stream = stream_of(table.to_pylist())
    query = bound(QUERY_6.replace("100", "20"), stream)
    kernel = kernel_of(query, stream, evaluator="tree")
    other = kernel_of(query, stream, evaluator="tree", options={"shape": "left-deep"})
    policy = Forced(itertools.cycle([other.plan, kernel.plan]), 10)
    prepared = Prepared(kernel.plan.query, stream.schema, Clock(), kernel.plan, kernel, adaptive=policy)
    stepper = stepper_for(prepared, kernel, 100)
    assert isinstance(stepper, AdaptiveStepper)
    found = sum(len(positions) for positions in stepper.step(as_input(stream)))
    assert len(stepper.kernels.made) == 2
    assert stepper.compiled is kernel
    assert (counters(stepper.state)["events"], counters(stepper.state)["matches"]) == (100, found)


def test_no_more_events_are_kept_than_another_plan_needs() -> None:
    stream = stream_of(stocks(2_000).to_pylist())
    kernel = kernel_of(bound(QUERY_6.replace("100", "20"), stream), stream, evaluator="tree")
    policy = Forced(itertools.repeat(kernel.plan), 50)
    prepared = Prepared(kernel.plan.query, stream.schema, Clock(), kernel.plan, kernel, adaptive=policy)
    stepper = stepper_for(prepared, kernel, 2_000)
    assert isinstance(stepper, AdaptiveStepper)
    for _ in stepper.step(as_input(stream)):
        assert sum(kept.events.num_rows for kept in stepper.retained) <= 2 * 20 + 2 * 50


def test_adaptive_runs_on_spark_batches_are_refused() -> None:
    with pytest.raises(InputProblem, match="adaptive"):
        cepheid.match("PATTERN A;B WITHIN 5", "events.parquet", session=object(), adaptive=True)


# --- in a stream ------------------------------------------------------------------------------------------------------

TREES = [text for text in QUERIES if "SEQ(" not in text] + [
    "PATTERN A a;B b;C c WHERE a.v <= b.v AND b.name = c.name WITHIN 6",
    "PATTERN A a;!B b;C c WHERE a.id = c.id WITHIN 6",
    "PATTERN A a;B b;C c WITHIN 5 events",
    "PATTERN (A a | B b);C c & A d WITHIN 5",
    "EVENT SEQ(A x, B y, !(C z)) WHERE [id] AND z.v > x.v WITHIN 6",
]


def streamed(
    text: str,
    policy: Policy | None,
    watermark: int = 0,
    schema: pa.Schema = SCHEMA,
    types: Sequence[str] = TYPES,
    order: Sequence[str] = ("n",),
    evaluator: str | None = "tree",
) -> StreamPlan:
    source = StreamSource(RowReader(schema, Columns()), {kind: {f.name: f.type for f in schema} for kind in types})
    options = RunOptions(evaluator=evaluator, adaptive=policy, time_unit="ms")
    return plan_stream({"q": parse(text)}, source, watermark, options, order=order, buckets=2)


def shapes_of(text: str) -> list[Plan]:
    """Some plans of a query in a stream."""
    plan = streamed(text, None).queries[0].prepared.plan
    shapes = [best_of(replace(plan, options={"shape": shape}), NO_STATS)[0] for shape in ("left-deep", "right-deep")]
    top = best_of(replace(plan, options={"negation": "top"}), NO_STATS)[0]
    return [replace(other, options={}) for other in (*shapes, top)]


@pytest.mark.parametrize("text", TREES)
def test_switching_at_every_batch_of_a_stream_changes_nothing(text: str) -> None:
    rng = random.Random(text)
    for _ in range(6):
        rows, delay = random_rows(rng), rng.choice((0, 3, 7))
        expected = multiset(cepheid.match(text, pa.Table.from_pylist(rows, SCHEMA), time_unit="ms"))
        policy = Forced(itertools.cycle(shapes_of(text)))
        simulated = Simulation(streamed(text, policy, delay)).run(cut(rng, rows, delay))
        assert multiset(simulated.matches["q"]) == expected


SEQUENCES = [
    "PATTERN A a;B b;C c WHERE a.v <= b.v AND b.name = c.name WITHIN 6",
    "PATTERN A a;!B b;C c WHERE a.id = c.id AND b.v > c.v WITHIN 6",
    "PATTERN !A a;B b;C c WHERE a.v < b.v WITHIN 5",
    "EVENT SEQ(A x, B y, !(C z)) WHERE [id] AND z.v > x.v WITHIN 6",
]


@pytest.mark.parametrize("text", SEQUENCES)
def test_switching_between_evaluators_in_a_stream_changes_nothing(text: str) -> None:
    rng = random.Random(text)
    plans = streamed(text, Adaptive(), evaluator=None).queries[0].prepared.plans
    assert {plan.evaluator for plan in plans} == {"stacks", "tree"}
    for _ in range(6):
        rows, delay = random_rows(rng), rng.choice((0, 3, 7))
        expected = multiset(cepheid.match(text, pa.Table.from_pylist(rows, SCHEMA), time_unit="ms"))
        simulation = Simulation(streamed(text, Forced(itertools.cycle(reversed(plans))), delay, evaluator=None))
        simulated = simulation.run(cut(rng, rows, delay))
        assert multiset(simulated.matches["q"]) == expected


def test_a_stream_whose_evaluator_has_changed_must_go_on_as_adaptive() -> None:
    text = SEQUENCES[0]
    plans = streamed(text, Adaptive(), evaluator=None).queries[0].prepared.plans
    batches = cut(random.Random(1), random_rows(random.Random(1)), 0)
    simulation = Simulation(streamed(text, Forced(itertools.repeat(plans[1])), evaluator=None))
    assert simulation.run(batches, end_of_time=False).switches
    simulation.plan = streamed(text, None, evaluator=None)
    with pytest.raises(InputProblem, match=f"evaluator `{plans[1].evaluator}`"):
        simulation.run([])


@pytest.mark.slow
@_STREAMS
@given((zstream_queries() | sase_queries()).filter(may_switch), drawn_streams(max_events=20), st.data())
def test_switching_changes_nothing_in_random_streams(text: str, drawn: DrawnStream, data: st.DataObject) -> None:
    rows = [{"n": place, **event.row} for place, event in enumerate(drawn.events)]
    kinds = {"type": pa.string(), "s": pa.string()}
    schema = pa.schema([(name, kinds.get(name, pa.int64())) for name in ("type", "ts", "id", "v", "w", "s", "n")])
    try:
        table = pa.Table.from_pylist(rows, schema)
        types = table["type"].unique().to_pylist()
        plan = streamed(text, None, 0, schema, types).queries[0].prepared.plan
        expected = multiset(cepheid.match(text, table, time_unit="ms", evaluator="tree"))
    except (CepheidError, pa.ArrowInvalid):
        reject()
    assume(rows and why_fixed(plan, SWITCHING) is None)
    plans = [replace(plan, tree=drawn_plan(data, plan.query, plan)) for _ in range(2)]
    delay = data.draw(st.sampled_from((0, 3)))
    policy = Forced(itertools.cycle([*plans, plan]))
    batches = cut(random.Random(data.draw(st.integers(0, 999))), table.to_pylist(), delay, schema)
    simulated = Simulation(streamed(text, policy, delay, schema, types)).run(batches)
    assert multiset(simulated.matches["q"]) == expected, plans


@pytest.mark.parametrize("text", TREES)
def test_a_stream_may_become_adaptive_and_stop_being_so(text: str) -> None:
    rng = random.Random(text)
    for _ in range(4):
        rows = random_rows(rng)
        expected = multiset(cepheid.match(text, pa.Table.from_pylist(rows, SCHEMA), time_unit="ms"))
        simulation = Simulation(streamed(text, None))
        batches = cut(rng, rows, 0)
        found: list[pa.RecordBatch] = []
        for number, batch in enumerate(batches):
            policy = Forced(itertools.cycle(shapes_of(text))) if rng.random() < 0.7 else None
            simulation.plan = streamed(text, policy)
            found += simulation.run([batch], end_of_time=number == len(batches) - 1).matches["q"]
        assert multiset(found) == expected


def test_a_restarted_stream_goes_on_with_its_plan_and_statistics() -> None:
    text = "PATTERN A a;B b;C c WHERE a.v <= b.v AND b.name = c.name WITHIN 6"
    prepared = streamed(text, Adaptive()).queries[0].prepared
    for plan in shapes_of(text):
        adapted = Adapted.start(prepared, 3)
        adapted.plan, adapted.unseen = plan, 17
        adapted.watch.planned_with = Stats({"a": 0.5}, {"a": 1.0}, {"a.v <= b.v": 0.25}, {}, 1.5)
        adapted.watch.running = RunningStats(4, (Stats({"a": 0.5}), Stats({"a": 0.7})))
        again = Adapted.of_data(prepared, adapted.to_data())
        assert plan_text(again.plan) == plan_text(plan)
        assert again.plan.tree is not None and plan.tree is not None
        assert again.plan.tree.trees == plan.tree.trees
        assert again.watch.planned_with == adapted.watch.planned_with
        assert again.watch.running == adapted.watch.running
        assert (again.unseen, again.since) == (17, 3)


def test_a_stream_that_changes_gets_another_plan() -> None:
    table, query = concatenated(), QUERY_6.replace("100", "20")
    plan = streamed(query, Adaptive(), 0, table.schema, ("IBM", "Sun", "Oracle", "Google"), ())
    simulated = Simulation(plan).run(table.to_batches(max_chunksize=1_500))
    assert multiset(simulated.matches["q"]) == multiset(cepheid.match(query, table, time_unit="ms"))
    reasons = [switch.reason for _, switch in simulated.switches]
    assert any("the selectivity of `Oracle.price" in reason for reason in reasons)


# --- on the command line ----------------------------------------------------------------------------------------------


def ran(*arguments: object) -> Result:
    return CliRunner().invoke(cli.app, ["run", *map(str, arguments)])


@pytest.mark.parametrize("ending", ["parquet", "jsonl"])
def test_an_adaptive_run_finds_the_same(ending: str, tmp_path: Path) -> None:
    place = tmp_path / f"stocks.{ending}"
    table = stocks(2_000, (1, 100, 100, 100))
    if ending == "parquet":
        pq.write_table(table, place)
    else:
        place.write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))
    query = "PATTERN IBM;(Sun & Oracle);Google WHERE Oracle.price > Sun.price WITHIN 9 units"
    told = ran("--query", query, "--input", place, "--backend", "local", "--adaptive")
    fixed = ran("--query", query, "--input", place, "--backend", "local")
    assert told.stdout and sorted(told.stdout.splitlines()) == sorted(fixed.stdout.splitlines())
    assert "evaluated by the compiled evaluator `tree`" in told.stderr


def test_the_summary_of_a_run_tells_how_the_plan_changed() -> None:
    switch = Switch(16_384, "[IBM; Sun]", "stacks", "the rate of IBM went from 0.1 to 0.4")
    source = TableSource.of(pa.table({"type": ["IBM"], "ts": [1]}), Columns())
    prepared = Prepared(parse(QUERY_6), Schema({}), Clock(), plan_of_query_6(NO_STATS), None)
    lines = list(report.summary(FileRun(source, prepared, "local", [switch]), 0, 0, None))
    expected = "the plan changed after 16,384 events from [IBM; Sun] to stacks: the rate of IBM went from 0.1 to 0.4"
    assert lines[-1] == expected


def test_only_the_local_backend_changes_plans(tmp_path: Path) -> None:
    place = tmp_path / "stocks.parquet"
    pq.write_table(stocks(10), place)
    refused = ran("--query", "PATTERN IBM;Sun WITHIN 9 units", "--input", place, "--adaptive", "--backend", "spark")
    assert refused.exit_code == 2
    assert "--backend local" in refused.stderr


# --- on Spark ---------------------------------------------------------------------------------------------------------


@pytest.mark.spark
def test_plans_change_in_spark_and_a_restart_goes_on_with_them(spark: SparkSession, tmp_path: Path) -> None:
    table, query = concatenated(), QUERY_6.replace("100", "20")
    source = tmp_path / "source"
    source.mkdir()
    frame = spark.readStream.schema("type string, ts long, price double").option("maxFilesPerTrigger", 1)
    switches: list[Switch] = []
    for places in ((0, 3_000), (6_000,)):
        for place in places:
            pq.write_table(table.slice(place, 3_000), source / f"{place:05}.parquet")
        running = cepheid.stream(
            query,
            frame.parquet(str(source)),
            watermark=0,
            types=["IBM", "Sun", "Oracle", "Google"],
            checkpoint=str(tmp_path / "checkpoint"),
            output=str(tmp_path / "out"),
            evaluator="tree",
            adaptive=True,
            available_now=True,
        )
        running.wait()
        assert {name for name, _ in running.metrics().switches} <= {"query"}
        switches += [switch for _, switch in running.metrics().switches]
    running.end_time()
    found = cepheid.read_output(str(tmp_path / "out"))
    assert multiset(found) == multiset(cepheid.match(query, table))
    assert "was not known" in switches[0].reason
    assert len(switches) > 1 and all("selectivity" in s.reason or "rate" in s.reason for s in switches[1:])
    assert not any("was not known" in switch.reason for switch in switches[1:]), "what was learnt is in the state"


@pytest.mark.parametrize("query", ["EVENT SEQ(A x, B y) WHERE [id] WITHIN 0", "PATTERN A;B WITHIN 0"])
def test_an_empty_window_retains_no_event(query: str) -> None:
    rows = [{"type": "AB"[n % 2], "ts": n // 3, "id": n % 2} for n in range(3000)]
    table = pa.Table.from_pylist(rows)
    assert cepheid.match(query, table, adaptive=True).num_rows == cepheid.match(query, table).num_rows == 0
