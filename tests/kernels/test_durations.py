"""Events with duration: every evaluator that reads them is held to the oracle, however the stream is cut."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest
import strategies
from examples import examples
from hypothesis import given, note, reject, settings
from hypothesis import strategies as st
from kernel_harness import (
    Stream,
    bound,
    by_kernel,
    by_oracle,
    encoder_of,
    kernel_of,
    require_machine_code_agrees,
    stream_of,
)

from cepheid.errors import CepheidError
from cepheid.events import START
from cepheid.kernels.any_runs.lazy_matches import LazyKernel
from cepheid.kernels.any_runs.match_summary import SummaryRow
from cepheid.runtime.kernel import END_OF_TIME, Kernel
from cepheid.semantics import evaluate

LONGEST = 6
"""The longest event: windows are as long, so that some events do not fit into one."""


def with_starts(rng: random.Random, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows with starts; half of the events are points."""
    return [{**row, "began": row["ts"] - rng.choice((0, rng.randint(0, LONGEST)))} for row in rows]


def kernel_or_reject(text: str, stream: Stream, evaluator: str | None = None) -> Kernel:
    try:
        return kernel_of(bound(text, stream), stream, evaluator=evaluator)
    except CepheidError as problem:
        assert "events with duration" not in str(problem)
        reject()


QUERIES = st.one_of(strategies.sase_plus_queries(), strategies.sase_plus_queries(("skip_till_any_match",)))


@pytest.mark.reach(0.5)
@settings(max_examples=examples(500), deadline=None)
@given(strategies.streams(max_events=9), QUERIES, st.randoms(use_true_random=False))
def test_strategies_agree_with_the_oracle(drawn: strategies.Stream, text: str, rng: random.Random) -> None:
    rows = with_starts(rng, [dict(event.row) for event in drawn.events] or [{"type": "A", "ts": 0}])
    stream = stream_of(rows)
    note(f"{text}\n{rows}")
    kernel = kernel_or_reject(text, stream)
    found, _ = by_kernel(kernel, stream, range(1, len(stream.events)))
    assert found == by_oracle(kernel.plan.query, stream)


@settings(max_examples=examples(300), deadline=None)
@given(strategies.streams(max_events=9), strategies.sase_queries(), st.randoms(use_true_random=False))
def test_combinations_agree_with_the_oracle(drawn: strategies.Stream, text: str, rng: random.Random) -> None:
    rows = with_starts(rng, [dict(event.row) for event in drawn.events] or [{"type": "A", "ts": 0}])
    stream = stream_of(rows)
    note(f"{text}\n{rows}")
    kernel = kernel_or_reject(text, stream, "stacks")
    found, _ = by_kernel(kernel, stream, range(1, len(stream.events)))
    assert found == by_oracle(kernel.plan.query, stream)


@pytest.mark.reach(0.3)
@settings(max_examples=examples(150), deadline=None)
@given(strategies.streams(max_events=9), strategies.sase_plus_queries(), st.randoms(use_true_random=False))
def test_backtracking_agrees_with_the_oracle(drawn: strategies.Stream, text: str, rng: random.Random) -> None:
    rows = with_starts(rng, [dict(event.row) for event in drawn.events] or [{"type": "A", "ts": 0}])
    stream = stream_of(rows)
    try:
        kernel = kernel_of(bound(text, stream), stream, evaluator="runs", options={"algorithm": "backtrack"})
    except CepheidError:
        reject()
    found, _ = by_kernel(kernel, stream, range(1, len(stream.events)))
    assert found == by_oracle(kernel.plan.query, stream)


ANY = "PATTERN SEQ(A a, B+ b[], C c) WHERE skip_till_any_match(a, b[], c) {[id]} WITHIN 12"


@pytest.mark.parametrize("seed", range(20))
def test_summaries_agree_with_the_oracle(seed: int) -> None:
    rng = random.Random(seed)
    stream = stream_of(with_starts(rng, random_rows(rng)))
    kernel = kernel_of(bound(f"{ANY} RETURN count(*), sum(b.v), max(b.v)", stream), stream)
    assert isinstance(kernel, LazyKernel)
    row = summary(kernel, stream, [5, 9])
    (expected,) = evaluate(kernel.plan.query, stream.events)
    assert row.values == dict(expected.columns or {})
    assert (row.start, row.end) == (expected.start, expected.end)


def random_rows(rng: random.Random, count: int = 14) -> list[dict[str, Any]]:
    times = sorted(rng.randrange(2 * count) for _ in range(count))
    return [{"type": rng.choice("ABC"), "ts": ts, "id": rng.randrange(2), "v": rng.randrange(5)} for ts in times]


def summary(kernel: LazyKernel, stream: Stream, cuts: list[int]) -> SummaryRow:
    encoder, state = encoder_of(kernel), kernel.initial()
    for start, end in itertools.pairwise([0, *cuts, len(stream.events)]):
        state, _ = kernel.step(state, encoder.encode(stream.table.slice(start, end - start)))
    state, _ = kernel.advance(state, END_OF_TIME)
    return kernel.summary.row(kernel.totals(state))


COMPILED = [
    ("runs", "PATTERN SEQ(A a, B+ b[], C c) WHERE skip_till_next_match(a, b[], c) {[id]} WITHIN 12"),
    ("runs", "PATTERN SEQ(!(C x), A a, B b) WHERE skip_till_next_match(x, a, b) {[id]} WITHIN 9"),
    ("any_runs", ANY),
    ("stacks", "EVENT SEQ(A a, !(B x), C c) WHERE [id] AND x.v < c.v WITHIN 12"),
    ("stacks", "EVENT SEQ(!(C x), A a, B b, !(A y)) WHERE [id] WITHIN 12"),
    ("any_runs", "PATTERN SEQ(!(C x), A a, B+ b[]) WHERE skip_till_any_match(x, a, b[]) {x.v < a.v} WITHIN 9"),
]


@pytest.mark.parametrize(("evaluator", "text"), COMPILED)
def test_machine_code_agrees(evaluator: str, text: str) -> None:
    rng = random.Random(3)
    stream = stream_of(with_starts(rng, random_rows(rng, 40)))
    require_machine_code_agrees(bound(text, stream), stream, evaluator, [11, 25])


@pytest.mark.parametrize(("evaluator", "text"), COMPILED)
def test_points_pay_nothing(evaluator: str, text: str) -> None:
    """Without durations, the source has no start: it is the same whether it is generated by a version that knows of
    durations or not."""
    rng = random.Random(3)
    rows = random_rows(rng)
    points, intervals = stream_of(rows), stream_of(with_starts(rng, rows))
    source = kernel_of(bound(text, points), points, evaluator=evaluator).source
    with_durations = kernel_of(bound(text, intervals), intervals, evaluator=evaluator)
    start = f"column{list(with_durations.plan.columns).index(START)}"
    assert f"{start}[" in with_durations.source and start not in source
    assert "began" not in source and "join_from" not in source


@pytest.mark.parametrize("evaluator", ["runs", "any_runs"])
def test_windows_that_count_events_do_not_read_starts(evaluator: str) -> None:
    rng = random.Random(3)
    rows = random_rows(rng)
    strategy = "any" if evaluator == "any_runs" else "next"
    text = f"PATTERN SEQ(A a, B+ b[]) WHERE skip_till_{strategy}_match(a, b[]) {{[id]}} WITHIN 9 events"
    points, intervals = stream_of(rows), stream_of(with_starts(rng, rows))
    one, two = (kernel_of(bound(text, s), s, evaluator=evaluator) for s in (points, intervals))
    assert one.source == two.source.replace(f", column{list(two.plan.columns).index(START)}", "", 1)
