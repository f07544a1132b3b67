"""The successor evaluator is held to the oracle, however the stream is cut; an event visits only the instances of its
key."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import random_eql
from examples import examples
from hypothesis import given, reject, settings
from hypothesis import strategies as st
from kernel_harness import bound, by_kernel, by_oracle, encoder_of, kernel_of, require_machine_code_agrees, stream_of
from typer.testing import CliRunner

import cepheid
from cepheid.app import cli
from cepheid.errors import NameProblem, NotAvailable, TooManyInstances, TooManyMatches
from cepheid.explanation import CHAINS, explosions
from cepheid.kernels import successor
from cepheid.kernels.successor import evaluator, instances, successor_kernel
from cepheid.lang import parse
from cepheid.optimize.stats import NO_STATS, Stats
from cepheid.runtime.kernel import operator_counts


@settings(max_examples=examples(150), deadline=None)
@given(st.integers(0, 10**9))
def test_matches_are_those_of_the_oracle(seed: int) -> None:
    rng = Random(seed)
    text, rows = random_eql.query(rng), random_eql.rows(rng)
    stream = stream_of(rows)
    try:
        query = bound(text, stream)
        kernel = kernel_of(query, stream, evaluator="successor")
    except (NameProblem, NotAvailable):
        reject()
    expected = by_oracle(query, stream)
    every = range(1, len(rows))
    for cuts in ((), every, sorted(rng.sample(range(len(rows)), min(2, len(rows))))):
        assert by_kernel(kernel, stream, cuts)[0] == expected


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM A; B; C WHERE FILTER(A.k = B.k = C.k), B.v < C.v, (A, C) OCCURS WITHIN 20",
        "SELECT * FROM A; (B; C) WHERE FILTER(A.k = B.k), FILTER(B.k = C.k)",
        "SELECT * FROM A+ WHERE FILTER(A.k = PREV(A.k)), A.v > PREV(A.v), sum(A.v) < 9",
        "SELECT * FROM A; (B+; C) WHERE FILTER(B.k = PREV(B.k)), B.v <> ALL(B.v)",
        r"SELECT * FROM (A; B) \ C WHERE FILTER(A.k = B.k), A.k = C.k, C.v < B.v",
        r"SELECT * FROM (A @ 3) \ B WHERE A.k = B.k",
        "SELECT * FROM (A | B)+; C WHERE max(A.s) <= 'q'",
        "SELECT * FROM A+; B; C WHERE FILTER(A.v >= PREV(A.v)), FILTER(A.k = B.k), (A, C) OCCURS WITHIN 9",
        "SELECT * FROM (A | B)+; C WHERE (A, C) OCCURS WITHIN 5, (B, C) OCCURS WITHIN 4",
        "SELECT * FROM (A | D); (B | C) WHERE FILTER(A.k = B.k), FILTER(D.k = B.k), FILTER(A.v + 1 = C.w)",
        r"SELECT * FROM ((A a; C b+) \ (C c+; A d)) WHERE FILTER(c.k = d.k), c.v > PREV(c.v)",
    ],
)
def test_machine_code_agrees(text: str) -> None:
    stream = stream_of(random_eql.rows(Random(5), 60))
    query = bound(text, stream)
    require_machine_code_agrees(query, stream, "successor", [7, 8, 30])


def _visits(text: str, keys: int) -> tuple[int, int]:
    """The instances that 500 pairs of events of one key visit while `keys` others wait, and the matches."""

    def event(kind: str, ts: int, k: int) -> dict[str, object]:
        return {"type": kind, "ts": ts, "k": k, "j": k + 5, "s": str(k), "d": Decimal(k).scaleb(-2), "f": float(k)}

    waiting = [event("AD"[i % 2], i, i) for i in range(keys)]
    ours = [event("ABDC"[i % 4], keys + i, -1) for i in range(1000)]
    stream = stream_of([*waiting, *ours])
    query = bound(text, stream)
    kernel = kernel_of(query, stream, evaluator="successor")
    state, positions = kernel.step(kernel.initial(), encoder_of(kernel).encode(stream.table))
    counts = [count.tried or 0 for count in operator_counts(kernel, state).values()]
    return sum(counts), len(positions)


@pytest.mark.parametrize(
    ("text", "most"),
    [
        ("SELECT * FROM A; B WHERE FILTER(A.k = B.k)", 250),
        ("SELECT * FROM A; (B | C) WHERE FILTER(A.k = B.k), FILTER(A.k = C.k)", 250),
        ("SELECT * FROM (A | D); B WHERE FILTER(A.k = B.k), FILTER(B.k = D.k)", 499),
        ("SELECT * FROM A; (B | C) WHERE FILTER(A.k = B.k), FILTER(A.j = C.j)", 750),
        ("SELECT * FROM A; (B | C) WHERE FILTER(A.k = B.k), FILTER(A.j = B.j), FILTER(A.k = C.k)", 750),
        (
            "SELECT * FROM (A | D); C; B "
            "WHERE FILTER(A.k = C.k), FILTER(D.k = C.k), FILTER(A.k = B.k), FILTER(D.s = B.s)",
            1500,
        ),
        ("SELECT * FROM A; B WHERE FILTER(A.k + 5 = B.j)", 250),
        ("SELECT * FROM A; B WHERE FILTER(A.d * 100 = B.k)", 250),
        ("SELECT * FROM A; B WHERE FILTER(B.j - A.k = 5)", 250),
        ("SELECT * FROM A; B WHERE FILTER(0 = A.k - B.k)", 250),
        ("SELECT * FROM A; B WHERE FILTER(A.f = B.k)", 250),
        ("SELECT * FROM A; B WHERE FILTER(upper(A.s) = lower(B.s))", 250),
        ("SELECT * FROM A; B WHERE FILTER(A.k = B.k OR A.k = B.j)", 750),
        ("SELECT * FROM A; B WHERE FILTER(B.k IN (A.k, A.j))", 750),
        ("SELECT * FROM A; (B; C) WHERE FILTER(A.k = B.k AND A.s = B.s OR A.j = C.j), FILTER(B.k = C.k)", 1500),
    ],
)
def test_instances_of_other_keys_are_not_visited(text: str, most: int) -> None:
    """φ's equalities are keys, through unions and of expressions of all types. An instance in two indexes is visited
    once more, when it is decided."""
    for keys in (100, 10_000):
        visits, matches = _visits(text, keys)
        assert 249 <= matches <= visits <= most


def test_chains_over_branches_wait_by_the_keys_of_their_last_item() -> None:
    rows = [{"type": kind, "ts": 1000 * at + i, "k": i} for at, kind in enumerate("AD") for i in range(1000)]
    stream = stream_of(rows)
    tests = [f"FILTER({one}.k = PREV({other}.k))" for one in "AD" for other in "AD"]
    query = bound(f"SELECT * FROM (A | D)+ WHERE {', '.join(tests)}", stream)
    kernel = kernel_of(query, stream, evaluator="successor")
    state, positions = kernel.step(kernel.initial(), encoder_of(kernel).encode(stream.table))
    assert [count.tried for count in operator_counts(kernel, state).values()] == [1000]
    assert len(positions) == 3000


def test_an_attribute_that_another_type_lacks_is_a_key() -> None:
    rows = [{"type": "A", "ts": i, "account": i} for i in range(100)]
    rows += [{"type": "B", "ts": 100 + i, "acc": i} for i in range(100)] + [{"type": "C", "ts": 300}]
    stream = stream_of(rows)
    query = bound("SELECT * FROM A; B; C WHERE FILTER(A.account = B.acc)", stream)
    kernel = kernel_of(query, stream, evaluator="successor")
    state, positions = kernel.step(kernel.initial(), encoder_of(kernel).encode(stream.table))
    assert [count.tried for count in operator_counts(kernel, state).values()] == [100, 100]
    assert len(positions) == 100


@pytest.mark.parametrize("condition", ["count(A) = 3", "3 >= count(A)", "count(A) < 4 AND sum(A.v) > 2"])
def test_chains_that_a_filter_excludes_do_not_grow(condition: str) -> None:
    """An event extends the chains of the last two events only."""
    stream = stream_of([{"type": "A", "ts": i, "v": 1} for i in range(300)])
    query = bound(f"SELECT * FROM A+ WHERE {condition}", stream)
    kernel = kernel_of(query, stream, evaluator="successor")
    state, positions = kernel.step(kernel.initial(), encoder_of(kernel).encode(stream.table))
    (counts,) = operator_counts(kernel, state).values()
    assert len(positions) == len(
        by_oracle(query, stream_of([{"type": "A", "ts": i, "v": 1} for i in range(30)]))
    ) + 270 * (3 if condition == "3 >= count(A)" else 1)
    assert counts.tried is not None and counts.tried < 4 * 300


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM A+; B",
        "SELECT * FROM A+; B WHERE FILTER(A.k = PREV(A.k)), FILTER(A.k = B.k)",
        "SELECT * FROM A+; B WHERE FILTER(A.v >= PREV(A.v)), B.v > 0",
        "SELECT * FROM A+; B; C WHERE (A, C) OCCURS WITHIN 5",
        "SELECT * FROM (A | C)+; B",
    ],
)
def test_chains_that_wait_for_the_same_thing_advance_together(text: str) -> None:
    """An event advances one group, however many chains end with the one before it: half a million."""
    rows = [{"type": "A", "ts": i, "k": 1, "v": i} for i in range(1000)]
    stream = stream_of([*rows, {"type": "B", "ts": 1000, "k": 2, "v": 0}, {"type": "C", "ts": 1001, "k": 3}])
    kernel = kernel_of(bound(text, stream), stream, evaluator="successor")
    batch = encoder_of(kernel).encode(stream.table).cut(0, 1000)
    state, _ = kernel.step(kernel.initial(), batch)
    chains = next(iter(operator_counts(kernel, state).values()))
    assert (chains.tried, chains.made) == (999, 1000)


def test_a_burst_costs_its_output() -> None:
    """Of half a million chains, those of the window are enumerated."""
    rows = [{"type": "A", "ts": i} for i in range(1000)]
    stream = stream_of([*rows, {"type": "B", "ts": 1000}])
    kernel = kernel_of(bound("SELECT * FROM A+; B WHERE (A, B) OCCURS WITHIN 3", stream), stream, evaluator="successor")
    state, positions = kernel.step(kernel.initial(), encoder_of(kernel).encode(stream.table))
    assert len(positions) == 6
    chains, matches = operator_counts(kernel, state).values()
    assert (chains.tried, chains.made, matches.made) == (999, 1000, 3)
    assert matches.tried is not None and matches.tried <= 1000


def test_groups_of_a_window_are_forgotten() -> None:
    stream = stream_of([{"type": "A", "ts": i} for i in range(60_000)])
    kernel = kernel_of(bound("SELECT * FROM A+; B WHERE (A, B) OCCURS WITHIN 3", stream), stream, evaluator="successor")
    batch, state, sizes = encoder_of(kernel).encode(stream.table), kernel.initial(), []
    for start in range(0, 60_000, 10_000):
        state, _ = kernel.step(state, batch.cut(start, start + 10_000))
        sizes.append(sum(array.nbytes for array in state))
    assert sizes[-1] <= 1.5 * sizes[1]


def test_chains_that_no_instance_awaits_do_not_grow() -> None:
    stream = stream_of([{"type": "B", "ts": 0}, *({"type": "A", "ts": i} for i in range(1, 500))])
    kernel = kernel_of(bound("SELECT * FROM B; A+", stream), stream, evaluator="successor")
    state, _ = kernel.step(kernel.initial(), encoder_of(kernel).encode(stream.table))
    assert sum(count.tried or 0 for count in operator_counts(kernel, state).values()) < 10


def test_costs_rank_operators_as_measured() -> None:
    """`bench eql` measures 50, 65, 110 and 270 nanoseconds for each event."""
    stream = stream_of([{"type": "A", "ts": i, "k": i % 3, "v": i % 7} for i in range(30)])
    texts = [
        "SELECT * FROM A a; A b",
        "SELECT * FROM A a; A b WHERE FILTER(a.k = b.k)",
        r"SELECT * FROM (A a @ 10) \ A b WHERE a.k = b.k",
        "SELECT * FROM A a+ WHERE FILTER(a.k = PREV(a.k)), a.v > PREV(a.v)",
    ]
    plans = [kernel_of(bound(text, stream), stream, evaluator="successor").plan for text in texts]
    costs = [successor.cost(plan, NO_STATS) for plan in plans]
    assert costs == sorted(costs)
    measured = (50, 65, 110, 270)
    assert all(0.5 < cost / nanoseconds < 2 for cost, nanoseconds in zip(costs, measured, strict=True))
    rare = Stats(rates={"a": 0.01, "b": 1.0}, total_rate=1.0)
    assert successor.cost(plans[1], rare) < costs[1]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=20), st.sampled_from(("any", "up", "down")))
def test_candidates_are_put_in_the_order_of_their_histories(times: list[tuple[int, int]], arrival: str) -> None:
    """Whatever the order in which they arrive; the last time counts first."""
    if arrival != "any":
        times = sorted(times, key=lambda history: history[::-1], reverse=arrival == "down")
    queue = np.array([value for history in times for value in history], np.int64)
    order = instances.in_order(queue, 2, len(queue), 0, 2, np.zeros(0, np.int64))
    assert sorted(order.tolist()) == list(range(0, len(queue), 2))
    found = [times[at // 2][::-1] for at in order.tolist()]
    assert found == sorted(found)


# --- limits -----------------------------------------------------------------------------------------------------------


def _burst(n: int, **attributes: object) -> pa.Table:
    return pa.Table.from_pylist([{"type": "A", "ts": i, **attributes} for i in range(n)])


def test_chains_that_explode_are_stopped_with_the_operator_and_the_key() -> None:
    with pytest.raises(TooManyMatches) as problem:
        cepheid.match(
            "SELECT * FROM A+ WHERE FILTER(A.k = PREV(A.k))", _burst(200, k="x"), options={"max_matches": "1000"}
        )
    text = str(problem.value)
    assert "with k = x completes more than 1,000 events in the matches of `A+`" in text
    assert "OCCURS WITHIN" in text
    assert problem.value.row == 44  # 44 * 45 / 2 + 45 > 1000


def test_chains_that_nothing_ends_are_warned_of() -> None:
    assert explosions(parse("SELECT * FROM A+ WHERE FILTER(A.k = PREV(A.k))")) == [CHAINS]
    assert explosions(parse("SELECT * FROM A+ WHERE A.v > PREV(A.v)")) == []
    assert explosions(parse("SELECT * FROM A+ WHERE FILTER((A, A) OCCURS WITHIN 5)")) == []
    assert explosions(parse("SELECT * FROM A; B")) == []


@pytest.mark.parametrize(
    ("text", "equality"),
    [
        ("SELECT * FROM A a; B b WHERE FILTER(b.v > a.v - 5 AND b.v < a.v + 5)", "a.key = b.key"),
        ("SELECT * FROM A a+ WHERE FILTER(a.v > PREV(a.v)), a.w > PREV(a.w)", "a.key = PREV(a.key)"),
        ("SELECT * FROM A a+; B b WHERE FILTER(a.k = PREV(a.k)), a.w > 1 AND FILTER(a.v != b.v)", "a.key = b.key"),
        ("SELECT * FROM A a; B b WHERE FILTER(a.k = b.k OR a.v < b.v)", "a.key = b.key"),
    ],
)
def test_a_filter_without_an_index_is_warned_of(text: str, equality: str) -> None:
    (warning,) = [one for one in explosions(parse(text)) if one != CHAINS]
    assert "it visits all that wait" in warning and f"FILTER({equality})" in warning and "OCCURS WITHIN" in warning


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM A a; B b WHERE FILTER(a.k = b.k AND a.v < b.v)",
        "SELECT * FROM A a; B b WHERE a.v < b.v, FILTER(b.v > 3)",
        "SELECT * FROM A a; B b WHERE FILTER(a.k = b.k OR a.k = b.v)",
        "SELECT * FROM A a; B b WHERE FILTER(a.k IN (b.k, b.v))",
        "SELECT * FROM A a+; B b WHERE FILTER(a.k = PREV(a.k)), FILTER((a, b) OCCURS WITHIN 5), a.v > PREV(a.v)",
    ],
)
def test_a_filter_with_an_index_is_not_warned_of(text: str) -> None:
    assert explosions(parse(text)) in ([], [CHAINS])


def test_a_burst_may_complete_as_many_matches_as_the_limit_allows() -> None:
    rows = [*_burst(50).to_pylist(), {"type": "B", "ts": 50}]
    table = pa.Table.from_pylist(rows)
    assert cepheid.match("SELECT * FROM A; B", table, options={"max_matches": "50"}).num_rows == 50
    with pytest.raises(TooManyMatches, match="more than 49 matches"):
        cepheid.match("SELECT * FROM A; B", table, options={"max_matches": "49"})


def test_instances_that_explode_are_stopped_with_the_operator_and_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(successor_kernel, "MOST_INSTANCES", 100)
    with pytest.raises(TooManyInstances) as problem:
        cepheid.match("SELECT * FROM A+; B WHERE FILTER(A.k = PREV(A.k)), FILTER(A.k = B.k)", _burst(5000, k="x"))
    assert "more than 100 instances of `(A+; B)` wait" in str(problem.value) and "k = x" in str(problem.value)


def test_large_output_comes_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluator, "_LARGE", 20)
    table = _burst(20)
    found = cepheid.match("SELECT * FROM A+", table)
    monkeypatch.undo()
    assert found.num_rows == 210
    assert found.equals(cepheid.match("SELECT * FROM A+", table))


def test_counts_failed_detections() -> None:
    rows = [{"type": kind, "ts": i, "v": i} for i, kind in enumerate("ABACB")]
    stream = stream_of(rows)
    kernel = kernel_of(bound(r"SELECT * FROM A; (B \ C) WHERE B.v > 1", stream), stream, evaluator="successor")
    state, _ = kernel.step(kernel.initial(), encoder_of(kernel).encode(stream.table))
    assert successor.failed_detections(kernel, state) == 2  # θ discards the first A, C cancels the second


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**9))
def test_events_with_duration(seed: int) -> None:
    rng = Random(seed)
    text = random_eql.query(rng, 2)
    rows = [{**row, "began": row["ts"] - rng.choice((0, 0, 1, 2, 3))} for row in random_eql.rows(rng)]
    stream = stream_of(sorted(rows, key=lambda row: (row["ts"], row["began"])))
    try:
        query = bound(text, stream)
        kernel = kernel_of(query, stream, evaluator="successor")
    except (NameProblem, NotAvailable):
        reject()
    expected = by_oracle(query, stream)
    for cuts in ((), range(1, len(rows))):
        assert by_kernel(kernel, stream, cuts)[0] == expected


def test_explain_analyze_counts_failed_detections(tmp_path: Path) -> None:
    rows = [{"type": kind, "ts": i, "v": i} for i, kind in enumerate("ABACB")]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "events.parquet")
    arguments = ["explain", r"SELECT * FROM A; (B \ C) WHERE B.v > 1", "--input", str(tmp_path / "events.parquet")]
    shown = CliRunner().invoke(cli.app, [*arguments, "--analyze"])
    assert shown.exit_code == 0, shown.output
    assert "failed detections: 2" in shown.output


def test_failed_detections_are_rows_with_their_reason() -> None:
    rows = [{"type": kind, "ts": i, "v": i} for i, kind in enumerate("ABACB")]
    query = r"SELECT * FROM A; (B \ C) WHERE B.v > 1"
    failed = cepheid.match(query, pa.Table.from_pylist(rows), options={"failures": "rows"})
    assert [(row["A"]["ts"], row["B"]["ts"], row["match_end"], row["reason"]) for row in failed.to_pylist()] == [
        (0, 1, 1, "(A; (B \\ C)): the successor fails B.v > 1"),
        (2, 4, 4, "(A; (B \\ C)): cancelled by C"),
    ]
    sequence = cepheid.match(
        "SELECT A.ts AS a, C.ts AS c FROM A; B; C WHERE A.v + 1 < B.v",
        pa.Table.from_pylist(rows),
        options={"failures": "rows"},
    )
    assert sequence.to_pylist() == [
        {"a": 0, "c": None, "match_start": 0, "match_end": 1, "reason": "(A; B): the successor fails A.v + 1 < B.v"}
    ]


def test_the_complete_history_of_a_derived_event_decides() -> None:
    """Two derived events start and end together; the one with the earlier `B` is the successor (NEXT §3.2)."""
    rows = [{"type": kind, "ts": ts} for ts, kind in enumerate("XABBC")]
    query = "P: EVENT SEQ(A a, B b, C c) WITHIN 100\nQ: SELECT * FROM X; P"
    table = pa.Table.from_pylist(rows)
    assert cepheid.match(query, table).num_rows == cepheid.match(query, table, evaluator="reference").num_rows == 1


@pytest.mark.parametrize("comparison", ["=", "<", "<=", ">", ">="])
def test_all_of_the_compared_attribute_is_the_value_of_the_last_item(comparison: str) -> None:
    """No chain is walked: each of its items was compared with all before it."""
    text, rng, found = f"SELECT * FROM A a+; B b WHERE FILTER(a.v {comparison} ALL(a.v))", Random(comparison), 0
    for _ in range(8):
        rows = [{"type": rng.choice("AAAB"), "ts": ts, "v": rng.choice((0, 1, 2, None))} for ts in range(12)]
        stream = stream_of([{"type": "A", "ts": -1, "v": 1}, *rows])
        query = bound(text, stream)
        kernel = kernel_of(query, stream, evaluator="successor")
        assert "ALL" not in str(kernel.plan.predicates)
        assert by_kernel(kernel, stream, [rng.randint(0, 13)])[0] == by_oracle(query, stream)
        found += len(by_oracle(query, stream))
    assert found
