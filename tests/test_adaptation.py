"""A plan that changes while it runs changes nothing else; and it changes when it should."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kernel_harness import Found, Stream, bound, by_oracle, kernel_of, listed, stream_of
from strategies import Stream as DrawnStream
from strategies import sase_queries, zstream_queries
from strategies import streams as drawn_streams
from test_kernel_tree import drawn_plan

from cepheid.backends.adaptation import stepper_for
from cepheid.backends.prepare import Prepared
from cepheid.backends.stepping import TIME, TYPE
from cepheid.errors import CepheidError
from cepheid.events import Clock
from cepheid.kernels import Kernel
from cepheid.optimize.adapt import Decision, Switch, why_fixed
from cepheid.optimize.stats import Stats
from cepheid.physical import Plan

_EXAMPLES = settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
_MANY = settings(max_examples=3000, deadline=None, suppress_health_check=list(HealthCheck))


@dataclass(slots=True)
class Forced:
    """Another plan at every decision, whatever the statistics say."""

    plans: Iterator[Plan]
    observed_every: int = 1
    observations: int = 2
    seen: list[Stats] = field(default_factory=list)

    def decide(self, plan: Plan, planned_with: Stats, now: Stats) -> Decision:
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


def switching_changes_nothing(text: str, drawn: DrawnStream, data: st.DataObject) -> None:
    rows = [dict(event.row) for event in drawn.events]
    stream = stream_of(rows or [{"type": "A", "ts": 0, "v": 1, "w": 1, "id": 1, "s": "p"}])
    try:
        query = bound(text, stream)
        kernel = kernel_of(query, stream, evaluator="tree")
    except CepheidError:
        return
    if why_fixed(kernel.plan) is not None:
        return
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
@given(zstream_queries(), drawn_streams(max_events=14), st.data())
def test_switching_at_every_boundary_changes_nothing(text: str, stream: DrawnStream, data: st.DataObject) -> None:
    switching_changes_nothing(text, stream, data)


@_EXAMPLES
@given(sase_queries(), drawn_streams(max_events=14), st.data())
def test_switching_changes_nothing_for_sase(text: str, stream: DrawnStream, data: st.DataObject) -> None:
    switching_changes_nothing(text, stream, data)


@pytest.mark.slow
@_MANY
@given(zstream_queries() | sase_queries(), drawn_streams(max_events=24), st.data())
def test_switching_often_changes_nothing(text: str, stream: DrawnStream, data: st.DataObject) -> None:
    switching_changes_nothing(text, stream, data)
