"""The any_runs evaluator is held to the oracle, however the stream is cut; its work does not grow with the number of
partial matches, nor its memory with the number of matches."""

from __future__ import annotations

import datetime
import itertools
import math
import pickle
from collections.abc import Iterator, Sequence
from dataclasses import replace
from decimal import Decimal
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import strategies
from examples import examples
from hypothesis import given, reject, settings
from hypothesis import strategies as st
from kernel_harness import (
    Found,
    Stream,
    bound,
    by_kernel,
    by_oracle,
    encoder_of,
    kernel_of,
    listed,
    require_machine_code_agrees,
    stream_of,
)

import cepheid
from cepheid.errors import CepheidError, InputProblem, NotAvailable, TooManyMatches
from cepheid.expr import AGGREGATES, Aggregate, Over
from cepheid.kernels.any_runs.compact_store import CURSOR_FIELDS, CURSOR_VISITED, GROUPS, MADE, enumerate_some
from cepheid.kernels.any_runs.lazy_matches import LazyKernel
from cepheid.kernels.any_runs.match_summary import SummaryRow
from cepheid.lang import parse
from cepheid.pattern import Column, positives
from cepheid.runtime.kernel import END_OF_TIME, Positions, State, counters, restore, save
from cepheid.semantics import evaluate

# --- held to the oracle -----------------------------------------------------------------------------------------------

events: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {
        "type": st.sampled_from("AABBC"),
        "gap": st.sampled_from([0, 1, 1, 2]),
        "id": st.sampled_from([1, 1, 1, 2, None]),
        "v": st.sampled_from([1, 2, 3, 2.5, None]),
        "w": st.sampled_from([1, 2, 3, None]),
        "name": st.sampled_from(["p", "q", None]),
    }
)


@st.composite
def streams(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Few rows, since matches multiply: in time order with ties, nulls, and a type that may lack an attribute."""
    rows, now = [], draw(st.sampled_from([-3, 0, 10]))
    lacking = draw(st.sampled_from([None, None, ("C", "v"), ("B", "w"), ("C", "id")]))
    for event in draw(st.lists(events, min_size=1, max_size=11)):
        now += event.pop("gap")
        if lacking and event["type"] == lacking[0]:
            event.pop(lacking[1])
        rows.append({"ts": now, **event})
    return rows


NAMES = ("a", "b", "c", "d")
EXPLODING = "PATTERN SEQ(A+ a[], A b) WHERE skip_till_any_match(a[], b) { 1 = 1 }"


@st.composite
def queries(draw: st.DrawFn) -> str:
    """Sequences of single, Kleene and negated components, with predicates of every form between them."""
    names = NAMES[: draw(st.integers(1, 4))]
    closure = [draw(st.sampled_from(["", "", "+", "+", "*", "{2}", "{1,2}", "{0,1}", "{2,}"])) for _ in names]
    negated = [not mark and draw(st.integers(0, 3)) == 0 for mark in closure]
    if all(negated):
        negated[0] = False
    components = []
    for name, mark, is_negated in zip(names, closure, negated, strict=True):
        kind = draw(st.sampled_from(["A", "B", "C", "ANY(A, C)", "ANY(A, B)"]))
        component = f"{kind}{mark} {name}[]" if mark else f"{kind} {name}"
        components.append(f"!({component})" if is_negated else component)
    many = {name for name, mark in zip(names, closure, strict=True) if mark}
    tests = draw(st.lists(predicates(names, many), max_size=3))
    tests += draw(st.sampled_from([[], ["[id]"], ["[id]"], ["[id, name]"], ["[w]"]]))
    text = f"PATTERN SEQ({', '.join(components)}) WHERE skip_till_any_match {{ {' and '.join(tests) or '1 = 1'} }}"
    if negated[0] or negated[-1] or draw(st.booleans()):
        text += f" WITHIN {draw(st.integers(0, 9))} {draw(st.sampled_from(['', 'units', 'events']))}"
    return text


@st.composite
def predicates(draw: st.DrawFn, names: Sequence[str], many: set[str]) -> str:
    left, right, third = (draw(operands(names, many)) for _ in range(3))
    op = draw(st.sampled_from(["=", "=", "!=", "<", "<=", ">", ">="]))
    texts = [f"{n}[1].name" if n in many else f"{n}.name" for n in names]
    forms = [
        f"{left} {op} {right}",
        f"{left} {op} {right}",
        f"({left} {op} {right} or {third} > 1)",
        f"not ({left} {op} {right})",
        f"{left} {op} {draw(st.sampled_from([1, 2, 2.5]))}",
        f"{draw(st.sampled_from(texts))} {op} {draw(st.sampled_from(texts))}",
        f"{draw(st.sampled_from(texts))} {op} 'p'",
    ]
    return draw(st.sampled_from(forms))


@st.composite
def operands(draw: st.DrawFn, names: Sequence[str], many: set[str]) -> str:
    name, attribute = draw(st.sampled_from(names)), draw(st.sampled_from(["v", "w", "v", "id"]))
    if name not in many:
        return f"{name}.{attribute}" + draw(st.sampled_from(["", "", " + 1"]))
    function = draw(st.sampled_from(list(AGGREGATES)))
    forms = [
        f"{name}[1].{attribute}",
        f"{name}[i].{attribute}",
        f"{name}[i].{attribute}",
        f"{name}[i-1].{attribute}",
        f"{name}[{name}.LEN].{attribute}",
        f"{function}({name}[..i-1].{attribute})",
        f"{function}({name}[].{attribute})",
        f"count({name}[])",
    ]
    return draw(st.sampled_from(forms))


def kernel_or_reject(text: str, stream: Stream) -> LazyKernel:
    """Rejects what does not fit the stream, and what is left to the reference."""
    try:
        kernel = kernel_of(bound(text, stream), stream, evaluator="any_runs")
    except CepheidError:
        reject()
    assert isinstance(kernel, LazyKernel)
    return kernel


@settings(max_examples=examples(500), deadline=None)
@given(streams(), queries().filter(strategies.is_valid), st.data())
def test_agrees_with_the_oracle(rows: list[dict[str, Any]], text: str, data: st.DataObject) -> None:
    stream = stream_of(rows)
    kernel = kernel_or_reject(text, stream)
    cuts = data.draw(st.lists(st.integers(0, len(stream.events)), max_size=3))
    found, counted = by_kernel(kernel, stream, cuts)
    assert found == by_oracle(kernel.plan.query, stream)
    assert counted["matches"] == len(found)
    assert counted["events"] == len(stream.events)


@settings(max_examples=examples(150), deadline=None)
@given(strategies.streams(max_events=9), strategies.sase_plus_queries(("skip_till_any_match",), non_overlapping=False))
def test_agrees_with_the_oracle_on_the_common_queries(drawn: strategies.Stream, text: str) -> None:
    stream = stream_of([dict(event.row) for event in drawn.events] or [{"type": "A", "ts": 0}])
    kernel = kernel_or_reject(text, stream)
    found, _ = by_kernel(kernel, stream, range(1, len(stream.events)))
    assert found == by_oracle(kernel.plan.query, stream)


@settings(max_examples=examples(200), deadline=None)
@given(streams(), queries().filter(strategies.is_valid), st.sampled_from([0, 1, 2, 7]), st.data())
def test_limit_gets_the_first_matches(rows: list[dict[str, Any]], text: str, limit: int, data: st.DataObject) -> None:
    """A kernel gives no more than LIMIT could keep of each time, among these the first in the oracle's order."""
    stream = stream_of(rows)
    kernel = kernel_or_reject(f"{text} LIMIT {limit}", stream)

    def order(match: tuple[tuple[int, ...], ...]) -> tuple[int, list[int]]:
        positions = [position for part in match for position in part]
        return stream.events[max(positions)].end, positions

    cuts = data.draw(st.lists(st.integers(0, len(stream.events)), max_size=3))
    found, _ = by_kernel(kernel, stream, cuts)
    everything = by_oracle(bound(text, stream), stream)
    assert len(set(found)) == len(found)
    assert set(found) <= set(everything)
    first = sorted(map(order, everything))[:limit]
    assert sorted(map(order, found))[:limit] == first


COLUMNS = ("count(*)", "count({0}.v)", "sum({0}.v)", "avg({0}.v)", "min({0}.v)", "max({0}.v)", "sum({0}.w)")


@settings(max_examples=examples(200), deadline=None)
@given(streams(), queries().filter(strategies.is_valid), st.data())
def test_summaries_agree_with_the_oracle(rows: list[dict[str, Any]], text: str, data: st.DataObject) -> None:
    stream = stream_of(rows)
    var = data.draw(st.sampled_from(positives(parse(text).pattern)))
    kernel = kernel_or_reject(f"{text} RETURN {', '.join(COLUMNS).format(var)}", stream)
    cuts = data.draw(st.lists(st.integers(0, len(stream.events)), max_size=3))
    row = summary(kernel, stream, cuts)
    (expected,) = evaluate(kernel.plan.query, stream.events)
    assert expected.columns is not None
    assert row.values == pytest.approx(dict(expected.columns))
    assert (row.start, row.end) == (expected.start, expected.end)


plain_sequences = st.tuples(
    strategies.steps(negation=False), st.sampled_from([strategies.Steps.sase, strategies.Steps.zstream])
)


@pytest.mark.reach(0.6)
@settings(max_examples=examples(150), deadline=None)
@given(strategies.streams(max_events=11, gap=2), plain_sequences, st.data())
def test_plain_sequences_are_summarised_as_the_oracle_does(
    drawn: strategies.Stream, steps: tuple[strategies.Steps, Any], data: st.DataObject
) -> None:
    """In SASE and ZStream, events of one time are not in sequence, however the stream is cut among them."""
    text = steps[1](steps[0])
    stream = stream_of([dict(event.row) for event in drawn.events] or [{"type": "A", "ts": 0}])
    var = data.draw(st.sampled_from(positives(parse(text).pattern)))
    kernel = kernel_or_reject(f"{text} RETURN {', '.join(COLUMNS).format(var)}", stream)
    row = summary(kernel, stream, range(1, len(stream.events)))
    (expected,) = evaluate(kernel.plan.query, stream.events)
    assert expected.columns is not None
    assert row.values == pytest.approx(dict(expected.columns))
    assert (row.start, row.end) == (expected.start, expected.end)


@pytest.mark.reach(0.6)
@settings(max_examples=examples(100), deadline=None)
@given(strategies.streams(max_events=11, gap=2), plain_sequences, st.sampled_from([0, 1, 2, 7]))
def test_limit_gets_the_first_matches_of_plain_sequences(
    drawn: strategies.Stream, steps: tuple[strategies.Steps, Any], limit: int
) -> None:
    text = steps[1](steps[0])
    stream = stream_of([dict(event.row) for event in drawn.events] or [{"type": "A", "ts": 0}])
    kernel = kernel_or_reject(f"{text} LIMIT {limit}", stream)
    found, _ = by_kernel(kernel, stream, range(1, len(stream.events)))
    everything = by_oracle(bound(text, stream), stream)
    assert set(found) <= set(everything)

    def order(match: tuple[tuple[int, ...], ...]) -> tuple[int, int, list[int]]:
        positions = [position for part in match for position in part]
        of_match = [stream.events[position] for position in positions]
        return max(e.end for e in of_match), min(e.start for e in of_match), sorted(positions)

    assert sorted(map(order, found))[:limit] == sorted(map(order, everything))[:limit]


@pytest.mark.parametrize(
    "text",
    [
        "EVENT SEQ(A a, B b, B c) RETURN count(*), sum(b.v)",
        "PATTERN A a; B b; B c RETURN count(*), sum(b.v)",
        "PATTERN SEQ(A a, B b, B c) WHERE skip_till_any_match { 1 = 1 } RETURN count(*), sum(b.v)",
    ],
)
def test_a_cubic_number_of_matches_is_counted_without_enumeration(text: str) -> None:
    count = 3_000
    table = pa.table({"type": ["A"] * count + ["B"] * count, "ts": range(2 * count), "v": [10**17] * 2 * count})
    (row,) = cepheid.match(text, table).to_pylist()
    pairs = count * (count - 1) // 2
    assert row["count(*)"] == count * pairs
    assert row["sum(b.v)"] == count * pairs * 10**17


def test_limit_stops_a_sequence_without_a_window_early() -> None:
    count = 3_000
    table = pa.table({"type": ["A"] * count + ["B"] * count, "ts": range(2 * count)})
    rows = cepheid.match("EVENT SEQ(A a, A b, B c, B d) LIMIT 3", table, output="positions").to_pylist()
    assert [(row["a"], row["b"], row["c"], row["d"]) for row in rows] == [(0, b, count, count + 1) for b in (1, 2, 3)]


def summary(kernel: LazyKernel, stream: Stream, cuts: Sequence[int] = ()) -> SummaryRow:
    encoder, state = encoder_of(kernel), kernel.initial()
    for start, end in itertools.pairwise([0, *sorted(cuts), len(stream.events)]):
        state, positions = kernel.step(state, encoder.encode(stream.table.slice(start, end - start)))
        assert len(positions) == 0
        state = restore(save(state))
    state, _ = kernel.advance(state, END_OF_TIME, encoder.codes())
    return kernel.summary.row(kernel.totals(state))


# --- work and memory --------------------------------------------------------------------------------------------------


def rows_of(kinds: str, **columns: Any) -> list[dict[str, Any]]:
    """A row for each letter, a tick apart; a column is a value, or a function of the row's number."""
    return [
        {"type": kind, "ts": i, "id": 1, **{n: v(i) if callable(v) else v for n, v in columns.items()}}
        for i, kind in enumerate(kinds)
    ]


def started(text: str, stream: Stream, *, jit: bool = False) -> tuple[LazyKernel, State]:
    kernel = kernel_of(bound(text, stream), stream, evaluator="any_runs", jit=jit)
    assert isinstance(kernel, LazyKernel)
    return kernel, kernel.initial()


def stepped(text: str, rows: list[dict[str, Any]]) -> tuple[LazyKernel, State, Iterator[Positions]]:
    stream = stream_of(rows)
    kernel, state = started(text, stream)
    return kernel, *kernel.step_lazily(state, encoder_of(kernel).encode(stream.table))


CONSTANT_WORK = {
    "PATTERN SEQ(A+ a[], B b)": 2,
    "PATTERN SEQ(A+ a[], B b) WHERE [id] WITHIN 50": 2,
    "PATTERN SEQ(A a, A+ b[], B c) WHERE [id]": 3,
    "PATTERN SEQ(A+ a[], A+ b[], A+ c[], B d) WHERE [id]": 8,
    "PATTERN SEQ(A a, B* b[], A* c[], B d) WHERE [id]": 8,
    "PATTERN SEQ(A a, !C n, A+ b[]) WHERE [id]": 5,
}
"""Queries without predicates between events, and the most nodes that an event may make: one for each edge that it can
go along and each table that it is then put into, and one for each way in which it completes a match."""


@pytest.mark.parametrize("text", CONSTANT_WORK)
def test_an_event_makes_as_many_nodes_as_there_are_edges(text: str) -> None:
    """However many partial matches there are: they multiply with every event."""
    made = []
    for size in (50, 100, 200):
        _, state, _ = stepped(text, rows_of("A" * (size - 1) + "B"))
        made.append(state[0][MADE])
        assert made[-1] <= CONSTANT_WORK[text] * size
        assert counters(state)["partial_matches"] <= CONSTANT_WORK[text] * size
        assert counters(state)["predicates"] == 0
    assert made[2] - made[1] <= 2 * (made[1] - made[0]) + 2


def test_an_equality_with_the_last_event_finds_its_group_at_once() -> None:
    """A chain of hand-overs: the groups are found by the place where the thing is, not searched."""
    text = "PATTERN SEQ(A a, B+ b[]) WHERE b[1].source = a.target and b[i].source = b[i-1].target WITHIN 400"
    kinds = "A" * 200 + "B" * 200
    _, state, _ = stepped(text, rows_of(kinds, source=lambda i: i % 200, target=lambda i: i % 200))
    assert counters(state)["predicates"] == 0
    assert counters(state)["partial_matches"] == 400
    assert state[0][MADE] <= 600  # a node for each arrival, and one for each match told


def test_groups_hold_what_later_edges_ask_and_no_more() -> None:
    """200 prices, but only three that differ in what the predicate reads."""
    text = "PATTERN SEQ(A+ a[], B b) WHERE b.v > a[1].v"
    _, state, _ = stepped(text, rows_of("A" * 200 + "B", v=lambda i: i % 3))
    assert state[0][GROUPS] <= 6
    assert counters(state)["predicates"] == 3


EXPONENTIAL = "PATTERN SEQ(A+ a[], B b) WHERE [id]"


def test_an_exponential_number_of_matches_is_counted_at_once() -> None:
    for size in (40, 500):
        stream = stream_of(rows_of("A" * size + "B", v=2))
        kernel, _ = started(f"{EXPONENTIAL} RETURN count(*), sum(a.v), max(a.v)", stream)
        values = summary(kernel, stream, [size // 2]).values
        assert values["count(*)"] == 2**size - 1
        assert values["sum(a.v)"] == 2 * size * 2 ** (size - 1)
        assert values["max(a.v)"] == 2


def test_limit_stops_an_exponential_query_in_little_memory() -> None:
    size = 300
    _, state, parts = stepped(f"{EXPONENTIAL} LIMIT 10", rows_of("A" * size + "B"))
    found = [match for part in parts for match in listed(part)]
    assert len(found) == 10
    assert found[0] == (tuple(range(size)), (size,))
    assert sum(array.nbytes for array in state) < 64 * 8 * 4 * size


def test_matches_are_enumerated_as_far_as_they_are_asked_for() -> None:
    _, state, parts = stepped(EXPONENTIAL, rows_of("A" * 40 + "B"))
    seen: set[Any] = set()
    for part in itertools.islice(parts, 3):
        found = listed(part)
        assert len(found) <= 4096
        assert not seen & set(found)
        seen.update(found)
    assert counters(state)["matches"] == len(seen)


@pytest.mark.parametrize(
    "text",
    [
        "PATTERN SEQ(A+ a[], B b) WITHIN 14",
        "PATTERN SEQ(A+ a[], B* b[], A+ c[]) WITHIN 6",
        "PATTERN SEQ(A+ a[], B b) WHERE a[i].v > a[i-1].v WITHIN 20",
    ],
)
def test_the_delay_between_matches_is_linear_in_their_length(text: str) -> None:
    """Enumerated one by one: no more nodes are visited for a match than it has events."""
    stream = stream_of(rows_of("AAAABAAABAAAAABAAB", v=lambda i: i * 7 % 5))
    kernel, state = started(text, stream)
    _, compressed = kernel.step_compressed(state, encoder_of(kernel).encode(stream.table))
    nodes, roots = compressed.nodes.ravel(), compressed.roots.ravel()
    cursor, stack, path = np.zeros(CURSOR_FIELDS, np.int64), np.empty(96, np.int64), np.empty(32, np.int64)
    steps, matches, visited = len(kernel.steps), 0, 0
    while True:
        values, bounds = np.empty(100, np.int64), np.zeros(steps + 1, np.int64)
        stack, path, values, count, length = enumerate_some(
            nodes, kernel.node_stride, roots, steps, cursor, stack, path, values, bounds
        )
        if not count:
            break
        assert cursor[CURSOR_VISITED] - visited <= length
        visited = int(cursor[CURSOR_VISITED])
        matches += 1
    assert matches == len(by_oracle(bound(text, stream), stream)) > 100


TYPED: dict[str, tuple[pa.DataType, list[Any]]] = {
    "boolean": (pa.bool_(), [True, False, None]),
    "integer": (pa.int64(), [2**53, 2**53 + 1, 2**63 - 1, -(2**63) + 1, None]),
    "unsigned": (pa.uint64(), [1, 2**63 + 1, 2**64 - 1, None]),
    "short decimal": (pa.decimal128(10, 2), [Decimal("1.10"), Decimal("2.20"), Decimal("99999999.99"), None]),
    "long decimal": (pa.decimal128(30, 2), [Decimal("1.10"), Decimal("1234567890123456789012345678.90"), None]),
    "string": (pa.string(), ["b", "a", "é", "", None]),
    "date": (pa.date32(), [datetime.date(2020, 1, 1), datetime.date(1969, 1, 1), None]),
    "duration": (pa.duration("us"), [datetime.timedelta(seconds=1), datetime.timedelta(days=-1), None]),
}


@pytest.mark.parametrize("kind", TYPED)
@pytest.mark.parametrize("seed", range(4))
def test_summaries_are_exact_over_every_type(kind: str, seed: int) -> None:
    """Over all matches: the least and the greatest value, the sum, the average and the count."""
    rng, (arrow, values) = Random(seed), TYPED[kind]
    events = {"type": [rng.choice("AAB") for _ in range(7)], "ts": list(range(7))}
    table = pa.table({**events, "v": pa.array([rng.choice(values) for _ in range(7)], arrow)})
    adds = kind not in ("boolean", "string", "date", "long decimal")
    functions = ["min", "max", "count", *(["sum", "avg"] if adds else [])]
    returned = ", ".join(f"{function}({name}.v)" for function in functions for name in "ab")
    query = (
        "PATTERN SEQ(A+ a[], ANY(A, B) b) WHERE skip_till_any_match(a[], b) { b.v != a[1].v }"
        f" WITHIN 5 RETURN count(*), {returned}"
    )
    counted = cepheid.match(query, table, evaluator="any_runs")
    assert counted.equals(cepheid.match(query, table, evaluator="reference"))


def test_an_event_that_completes_too_many_matches_is_an_error() -> None:
    rows = rows_of("A" * 40)
    with pytest.raises(TooManyMatches, match="the event at position") as caught:
        cepheid.match(EXPLODING, pa.Table.from_pylist(rows), options={"max_matches": "1000"})
    assert "count(*)" in str(caught.value) and "LIMIT" in str(caught.value) and "compressed" in str(caught.value)
    assert pickle.loads(pickle.dumps(caught.value)).row == caught.value.row and (caught.value.row or 0) <= 12


@pytest.mark.parametrize("most", [1, 7, 512, 5000, "off"])
def test_the_limit_is_for_each_event_and_not_for_all(most: int | str) -> None:
    """The last of ten events completes 2^9 - 1 matches."""
    few = pa.Table.from_pylist(rows_of("A" * 10))
    if isinstance(most, int) and 3 * most < 2**9 - 1:
        with pytest.raises(TooManyMatches):
            cepheid.match(EXPLODING, few, output="positions", options={"max_matches": str(most)})
    else:
        assert (
            cepheid.match(EXPLODING, few, output="positions", options={"max_matches": str(most)}).num_rows == 2**10 - 11
        )


@pytest.mark.parametrize("value", ["0", "-1", "many", "1.5", True])
def test_a_limit_that_is_no_number_is_refused(value: str | bool) -> None:
    with pytest.raises(InputProblem, match="max_matches"):
        cepheid.match(EXPLODING, pa.Table.from_pylist(rows_of("AAA")), options={"max_matches": value})


def test_compressed_matches_of_a_table_have_its_row_numbers() -> None:
    rows = list(reversed(rows_of("A" * 6)))
    table = pa.Table.from_pylist(rows)
    compressed = list(cepheid.match(EXPLODING, table, output="compressed"))
    found = sorted(match for part in compressed for chunk in part.decompressed() for match in listed(chunk))
    plain = cepheid.match(EXPLODING, table, output="positions").to_pylist()
    assert found == sorted((tuple(row["a"]), (row["b"],)) for row in plain)
    with pytest.raises(NotAvailable, match="compressed"):
        cepheid.match(EXPLODING + " LIMIT 3", table, output="compressed")


def test_explain_warns_of_an_explosion_and_names_the_ways_out() -> None:
    text = cepheid.explain(EXPLODING)
    assert "exponentially" in text and all(way in text for way in ("count(*)", "LIMIT", "compressed"))
    assert "exponentially" not in cepheid.explain(EXPLODING + " LIMIT 5")
    assert "exponentially" not in cepheid.explain(EXPLODING + " RETURN count(*)")
    assert "exponentially" not in cepheid.explain(EXPLODING.replace("any_match", "next_match"))


def test_compressed_matches_are_the_matches() -> None:
    stream = stream_of(rows_of("AABAABABBA", v=lambda i: i % 4))
    for text in ("PATTERN SEQ(A+ a[], B b) WITHIN 5", "PATTERN SEQ(A a, B b) WHERE a.v < b.v WITHIN 5"):
        kernel, state = started(text, stream)
        _, compressed = kernel.step_compressed(state, encoder_of(kernel).encode(stream.table))
        found = [match for part in compressed.decompressed(chunk=7) for match in listed(part)]
        assert sorted(found) == by_oracle(bound(text, stream), stream)


def test_compressed_matches_take_less_room_than_they_are_worth() -> None:
    stream = stream_of(rows_of("A" * 60 + "B"))
    kernel, state = started(EXPONENTIAL, stream)
    _, compressed = kernel.step_compressed(state, encoder_of(kernel).encode(stream.table))
    assert len(compressed.roots) == 1
    assert len(compressed.nodes) <= 2 * 60 + 1  # for 2^60 - 1 matches


@pytest.mark.parametrize(
    "text",
    [
        "PATTERN SEQ(A+ a[], B b) WHERE [id] WITHIN 20",
        "PATTERN SEQ(A+ a[], B b) WITHIN 20 events",
        "PATTERN SEQ(A+ a[], B b) WHERE a[i].v > a[i-1].v WITHIN 20",
        "PATTERN SEQ(A+ a[], !C n, B b) WHERE n.v > b.v WITHIN 20",
        "PATTERN SEQ(!C n, A+ a[], B b) WHERE [id] WITHIN 20",
        "PATTERN SEQ(A a, B b, !C n) WHERE [id] WITHIN 20",
    ],
)
def test_what_has_left_the_window_is_forgotten(text: str) -> None:
    """Keys come and go; neither they nor old events stay."""
    held = []
    for size in (2_000, 8_000):
        rows = rows_of("AACAACAACB" * (size // 10), id=lambda i: i // 10, v=lambda i: i % 7)
        stream = stream_of(rows)
        kernel, state = started(text, stream)
        encoder, most = encoder_of(kernel), 0
        for start in range(0, size, 500):
            state, _ = kernel.step_lazily(state, encoder.encode(stream.table.slice(start, 500)))
            most = max(most, sum(array.nbytes for array in state))
        assert kernel.oldest(state) >= size - 500 - 40
        held.append(most)
    assert held[1] <= 1.2 * held[0]


def test_a_trailing_negation_is_decided_when_time_has_passed() -> None:
    rows = [*rows_of("AAB"), {"type": "C", "ts": 7, "id": 2}, {"type": "C", "ts": 8, "id": 1}]
    stream = stream_of(rows)
    kernel, state = started("PATTERN SEQ(A+ a[], B b, !C n) WHERE [id] WITHIN 7", stream)
    encoder = encoder_of(kernel)
    state, before = kernel.step(state, encoder.encode(stream.table.slice(0, 4)))
    assert listed(before) == []
    state, decided = kernel.step(state, encoder.encode(stream.table.slice(4, 1)))
    assert sorted(listed(decided)) == [((0,), (2,)), ((0, 1), (2,))]  # the other starts at 1, so the C is in its window
    state, after = kernel.advance(state, END_OF_TIME)
    assert listed(after) == []


def test_advancing_time_decides_a_trailing_negation() -> None:
    stream = stream_of(rows_of("AAB"))
    kernel, state = started("PATTERN SEQ(A+ a[], B b, !C n) WITHIN 5", stream)
    state, found = kernel.step(state, encoder_of(kernel).encode(stream.table))
    assert len(found) == 0
    state, found = kernel.advance(state, 4)
    assert len(found) == 0
    state, found = kernel.advance(state, 5)
    assert sorted(listed(found)) == [((0,), (2,)), ((0, 1), (2,))]


# --- what it leaves to others -----------------------------------------------------------------------------------------


def test_what_cannot_be_summed_up_is_enumerated() -> None:
    stream = stream_of(rows_of("AAB", v=1))
    query = bound(f"{EXPONENTIAL} RETURN count(*)", stream)
    last = Column("last", Aggregate("last", "a", "v", Over.GROUP))
    kernel = kernel_of(replace(query, output=(*(query.output or ()), last)), stream, evaluator="any_runs")
    assert isinstance(kernel, LazyKernel) and not kernel.summary.asked
    found, _ = by_kernel(kernel, stream)
    assert found == by_oracle(replace(query, output=None), stream)


def test_an_automaton_with_too_many_edges_is_refused() -> None:
    stream = stream_of(rows_of("AAB"))
    components = ", ".join(f"A* a{i}[]" for i in range(30))
    with pytest.raises(NotAvailable, match="edges"):
        kernel_of(bound(f"PATTERN SEQ({components}, B b)", stream), stream, evaluator="any_runs")


# --- compiled ---------------------------------------------------------------------------------------------------------

COMPILED = [
    "PATTERN SEQ(A+ a[], B b) WHERE [id] WITHIN 8",
    "PATTERN SEQ(A a, B+ b[]) WHERE b[i].v > avg(b[..i-1].v) and b[1].name = a.name WITHIN 7",
    "PATTERN SEQ(A{1,2} a[], !(C n), B b) WHERE n.v > b.v WITHIN 7",
    "PATTERN SEQ(A a, B* b[], !(C n)) WHERE [id] and max(b[].v) > a.v WITHIN 6",
]


@pytest.mark.parametrize("text", COMPILED)
def test_machine_code_agrees_with_the_oracle(text: str) -> None:
    rows = rows_of(
        "".join("ABC"[(i * i + i // 3) % 3] for i in range(60)),
        id=lambda i: i * 7 % 11 % 3,
        v=lambda i: i * 5 % 7 if i % 4 else None,
        name=lambda i: "pq"[i % 2],
    )
    stream = stream_of(rows)
    require_machine_code_agrees(bound(text, stream), stream, "any_runs", [7, 40])


def test_many_matches_are_enumerated_and_counted_by_machine_code() -> None:
    rows = rows_of("".join("B" if i % 12 == 11 else "A" for i in range(6_000)), v=lambda i: i % 9)
    stream = stream_of(rows)
    text = "PATTERN SEQ(A+ a[], B b) WITHIN 9"
    kernel, state = started(text, stream, jit=True)
    state, found = kernel.step(state, encoder_of(kernel).encode(stream.table))
    counted, _ = started(f"{text} RETURN count(*), sum(a.v)", stream, jit=True)
    values = summary(counted, stream).values
    assert len(found) == counters(state)["matches"] == values["count(*)"] == 500 * (2**9 - 1)
    assert values["sum(a.v)"] == sum_of_members(found, rows)


def sum_of_members(found: Positions, rows: list[dict[str, Any]]) -> int:
    matches: Found = listed(found)
    return sum(int(math.fsum(rows[position]["v"] for position in match[0])) for match in matches)
