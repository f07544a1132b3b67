"""The runs evaluator is held to the oracle, however the stream is cut, and does no more work than it should."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from random import Random
from typing import Any

import pytest
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
    listed,
    require_machine_code_agrees,
    stream_of,
)
from strategies import is_valid

from cepheid.errors import CepheidError, NotAvailable
from cepheid.expr import AGGREGATES
from cepheid.kernels.runs.evaluator import own_counters
from cepheid.physical import REFERENCE
from cepheid.runtime.kernel import END_OF_TIME, Kernel, State, counters

STRATEGIES = ("strict_contiguity", "partition_contiguity", "skip_till_next_match")

NAMES = ("a", "b", "c", "d")
OPTIONS: list[dict[str, str | bool]] = [{}, {}, {"merge": "off"}, {"algorithm": "backtrack"}]


def random_rows(rng: Random) -> list[dict[str, Any]]:
    """Rows in time order with ties, nulls, and a type that may lack an attribute."""
    rows, now = [], rng.choice([-3, 0, 10])
    lacking = rng.choice([None, None, ("C", "v"), ("B", "w"), ("C", "id")])
    for _ in range(rng.randint(1, 16)):
        now += rng.choice([0, 1, 1, 2])
        row = {
            "type": rng.choice("AABBC"),
            "ts": now,
            "id": rng.choice([1, 1, 1, 2, None]),
            "v": rng.choice([1, 2, 3, 2.5, None]),
            "w": rng.choice([1, 2, 3, None]),
            "name": rng.choice(["p", "q", None]),
        }
        if lacking and row["type"] == lacking[0]:
            del row[lacking[1]]
        rows.append(row)
    return rows


def random_query(rng: Random) -> str:
    return next(text for _ in itertools.count() if is_valid(text := random_text(rng)))


def random_text(rng: Random) -> str:
    """SASE+ sequences of single, Kleene and negated components, with predicates of every form on them."""
    names = NAMES[: rng.randint(1, 4)]
    closure = [rng.choice(["", "", "+", "+", "*", "{2}", "{1,2}", "{0,1}"]) for _ in names]
    negated = [not mark and rng.random() < 0.25 for mark in closure]
    if all(negated):
        negated[0] = False
    components = []
    for name, mark, is_negated in zip(names, closure, negated, strict=True):
        kind = rng.choice(["A", "B", "C", "ANY(A, C)", "ANY(A, B)"])
        component = f"{kind}{mark} {name}[]" if mark else f"{kind} {name}"
        components.append(f"!({component})" if is_negated else component)
    many = {name for name, mark in zip(names, closure, strict=True) if mark}
    tests = [random_predicate(rng, names, many) for _ in range(rng.choice([0, 0, 1, 1, 2, 3]))]
    if rng.random() < 0.5:
        tests.append(rng.choice(["[id]", "[id]", "[id, name]", "[w]"]))
    text = f"PATTERN SEQ({', '.join(components)}) WHERE {rng.choice(STRATEGIES)}"
    text += f"({', '.join(f'{n}[]' if n in many else n for n in names)})"
    text += f" {{ {' and '.join(tests) or '1 = 1'} }}"
    if negated[0] or negated[-1] or rng.random() < 0.6:
        text += f" WITHIN {rng.randint(0, 12)} {rng.choice(['', 'units', 'events'])}"
    return text + rng.choice(["", "", "", " OUTPUT NON-OVERLAPPING"])


def random_predicate(rng: Random, names: Sequence[str], many: set[str]) -> str:
    left, right = random_operand(rng, names, many), random_operand(rng, names, many)
    op = rng.choice(["=", "=", "!=", "<", "<=", ">", ">="])
    match rng.randint(0, 5):
        case 0:
            return f"({left} {op} {right} or {random_operand(rng, names, many)} > 1)"
        case 1:
            return f"not ({left} {op} {right})"
        case 2:
            return f"{left} {op} {rng.choice([1, 2, 2.5])}"
        case 3:
            chosen = [rng.choice(names), rng.choice(names)]
            return f" {op} ".join(f"{n}[1].name" if n in many else f"{n}.name" for n in chosen)
        case _:
            return f"{left} {op} {right}"


def random_operand(rng: Random, names: Sequence[str], many: set[str]) -> str:
    name, attribute = rng.choice(names), rng.choice(["v", "w", "v", "id"])
    if name not in many:
        return f"{name}.{attribute}" + rng.choice(["", "", " + 1"])
    function = rng.choice(list(AGGREGATES))
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
    return rng.choice(forms)


@settings(max_examples=examples(800))
@given(st.randoms(use_true_random=True), st.sampled_from(OPTIONS))
def test_agrees_with_the_oracle(rng: Random, options: dict[str, str | bool]) -> None:
    """Queries and streams are drawn apart from Hypothesis, which would try most of its examples near each other."""
    rows, text = random_rows(rng), random_query(rng)
    stream = stream_of(rows)
    note(f"{text}\n{rows}")
    kernel = kernel_or_reject(text, stream, options)
    cuts = [rng.randint(0, len(rows)) for _ in range(rng.randint(0, 3))]
    found, _ = by_kernel(kernel, stream, cuts)
    assert found == by_oracle(bound(text, stream), stream)


@pytest.mark.parametrize("window", ["", " WITHIN 6", " WITHIN 15"])
@pytest.mark.parametrize("predicate", ["[id]", "1 = 1"])
@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("A a, !(B x), C+ b[]", "a, x, b[]"),
        ("A a, !(B x), C b, B c", "a, x, b, c"),
        ("A a, B b, !(C x), B c", "a, b, x, c"),
        ("A a, B b, B c", "a, b, c"),
        ("A a, B* b[], C c", "a, b[], c"),
        ("A a, B+ b[], C c", "a, b[], c"),
    ],
)
def test_streams_with_many_open_runs_agree_with_the_oracle(
    pattern: str, names: str, predicate: str, window: str
) -> None:
    """Runs that wait side by side, with few values to tell them apart, are what merging is about."""
    text = f"PATTERN SEQ({pattern}) WHERE skip_till_next_match({names}) {{ {predicate} }}{window}"
    for seed in range(4):
        rng, time, rows = Random(seed), 0, []
        for _ in range(50):
            time += rng.choice([0, 1, 1, 2])
            rows.append({"type": rng.choice("ABC"), "ts": time, "id": rng.randrange(3), "v": 0})
        stream = stream_of(rows)
        found, _ = by_kernel(kernel_of(bound(text, stream), stream, evaluator="runs"), stream, [rng.randrange(50)])
        assert found == by_oracle(bound(text, stream), stream)


def kernel_or_reject(text: str, stream: Stream, options: dict[str, str | bool]) -> Kernel:
    """Rejects what does not fit the stream, is left to the reference, or cannot be evaluated by backtracking."""
    try:
        query = bound(text, stream)
    except CepheidError:
        reject()
    try:
        return kernel_of(query, stream, evaluator="runs", options=options)
    except CepheidError as problem:
        assert REFERENCE in (problem.expected or "") or "backtrack" in problem.what
        reject()


def ticks(*events: tuple[str, int, int] | tuple[str, int, int, Any]) -> list[dict[str, Any]]:
    """Rows of a type, a time, a partition, and a value."""
    return [{"type": e[0], "ts": e[1], "id": e[2], "v": e[3] if len(e) > 3 else 0} for e in events]


def run(text: str, rows: list[dict[str, Any]], **options: str | bool) -> tuple[Any, dict[str, int]]:
    """The matches and all counters."""
    stream = stream_of(rows)
    kernel = kernel_of(bound(text, stream), stream, evaluator="runs", options=options)
    state, positions = kernel.step(kernel.initial(), encoder_of(kernel).encode(stream.table))
    state, late = kernel.advance(state, END_OF_TIME)
    return sorted(listed(positions) + listed(late)), {**counters(state), **own_counters(state)}


# --- what the paper and the rulings say -------------------------------------------------------------------------------

RISING = "PATTERN SEQ(S+ a[], S b) WHERE {}(a[], b) {{ [id] and a[i].v > a[i-1].v and b.v < 0 }} WITHIN 9"


def test_strategies_differ_in_what_they_skip() -> None:
    rows = ticks(("S", 0, 1, 1), ("S", 1, 2, 9), ("S", 2, 1, 3), ("S", 3, 1, 2), ("S", 4, 1, 4), ("S", 5, 1, -1))
    next_match, _ = run(RISING.format("skip_till_next_match"), rows)
    partition, _ = run(RISING.format("partition_contiguity"), rows)
    strict, _ = run(RISING.format("strict_contiguity"), rows)
    assert ((0, 2, 4), (5,)) in next_match  # 3 is passed over
    assert partition == [((3, 4), (5,)), ((4,), (5,))]
    assert strict == [((3, 4), (5,)), ((4,), (5,))]


def test_a_partition_is_contiguous_across_others_but_a_stream_is_not() -> None:
    rows = ticks(("S", 0, 1, 1), ("S", 1, 2, 9), ("S", 2, 1, -1))
    assert run(RISING.format("partition_contiguity"), rows)[0] == [((0,), (2,))]
    assert run(RISING.format("strict_contiguity"), rows)[0] == []


def test_non_overlapping_keeps_the_first_to_complete_and_begins_anew() -> None:
    text = RISING.format("skip_till_next_match") + " OUTPUT NON-OVERLAPPING"
    rows = ticks(("S", 0, 1, 1), ("S", 1, 1, 2), ("S", 2, 1, -1), ("S", 3, 1, 5), ("S", 4, 1, -2))
    assert run(text, rows)[0] == [((0, 1), (2,)), ((3,), (4,))]


def test_a_match_waits_for_what_must_not_follow() -> None:
    stream = stream_of(ticks(("A", 0, 1), ("B", 1, 1), ("A", 2, 2), ("B", 3, 2), ("C", 6, 2), ("A", 7, 3)))
    text = "PATTERN SEQ(A a, B b, !(C c)) WHERE skip_till_next_match(a, b, c) { [id] } WITHIN 6"
    kernel = kernel_of(bound(text, stream), stream, evaluator="runs")
    encoder, state = encoder_of(kernel), kernel.initial()
    state, positions = kernel.step(state, encoder.encode(stream.table.slice(0, 5)))
    assert listed(positions) == []  # at 6, a C may still come at 6
    assert kernel.oldest(state) == 0
    state, positions = kernel.step(state, encoder.encode(stream.table.slice(5, 1)))
    assert listed(positions) == [((0,), (1,))]
    state, positions = kernel.advance(state, END_OF_TIME)
    assert listed(positions) == []  # the second is spoiled


def test_time_alone_decides_what_waits() -> None:
    stream = stream_of(ticks(("A", 0, 1), ("A", 3, 1)))
    text = "PATTERN SEQ(A a, !(A c)) WHERE skip_till_next_match(a, c) { [id] } WITHIN 2"
    kernel = kernel_of(bound(text, stream), stream, evaluator="runs")
    state, positions = kernel.step(kernel.initial(), encoder_of(kernel).encode(stream.table))
    assert listed(positions) == [((0,),)]
    state, positions = kernel.advance(state, 4)
    assert listed(positions) == []
    state, positions = kernel.advance(state, 5)
    assert listed(positions) == [((1,),)]


def test_backtracking_finds_the_same_by_reading_events_again() -> None:
    rows = ticks(*(("S", i, i % 2, i * 7 % 5) for i in range(60)))
    text = RISING.format("skip_till_next_match").replace("b.v < 0", "b.v = 1")
    found, counted = run(text, rows, merge="off")
    again, counted_again = run(text, rows, algorithm="backtrack")
    assert again == found
    assert counted_again["visited"] >= counted["visited"] > 60
    first, _ = run(text + " OUTPUT NON-OVERLAPPING", rows)
    assert run(text + " OUTPUT NON-OVERLAPPING", rows, algorithm="backtrack")[0] == first


@pytest.mark.parametrize(
    "text",
    [
        "PATTERN SEQ(A a, !(B b), A c) WHERE skip_till_next_match(a, b, c) { [id] }",
        "PATTERN SEQ(A a, A* b[]) WHERE partition_contiguity(a, b[]) { a.id = b[1].id }",
    ],
)
def test_backtracking_says_what_it_leaves_out(text: str) -> None:
    with pytest.raises(NotAvailable, match="backtrack"):
        run(text, ticks(("A", 0, 1), ("B", 1, 1)), algorithm="backtrack")


# --- how much work ----------------------------------------------------------------------------------------------------

WAITING = "PATTERN SEQ(A a, B b) WHERE skip_till_next_match(a, b) { [id] }"


def test_runs_that_wait_cost_nothing_until_their_event_comes() -> None:
    rows = ticks(*(("A", i, 1) for i in range(500)), ("B", 500, 2), ("B", 501, 1))
    found, counted = run(WAITING, rows)
    assert len(found) == 500
    assert counted["visited"] == 1  # runs with the same future wait as one
    assert counted["predicates"] == 0


def test_runs_do_not_wait_as_one_where_an_event_must_be_absent() -> None:
    """The B spoils the run that began before it, and not the one that began after it."""
    rows = ticks(("A", 0, 1), ("B", 1, 1), ("A", 2, 1), ("C", 3, 1))
    found, _ = run("PATTERN SEQ(A a, !(B b), C+ c[]) WHERE skip_till_next_match(a, b, c[]) { [id] }", rows)
    assert found == [((2,), (3,))]


def test_contiguity_ends_a_list_without_a_look() -> None:
    rows = ticks(*(("A", i, i) for i in range(100)), ("C", 100, 5), ("B", 101, 5), ("B", 102, 6))
    text = "PATTERN SEQ(A a, B b) WHERE partition_contiguity(a, b) { [id] }"
    found, counted = run(text, rows)
    assert found == [((6,), (102,))]
    assert counted["visited"] == 1


def test_runs_that_wait_for_a_value_are_found_by_it() -> None:
    rows = ticks(*(("A", i, 1, i) for i in range(500)), ("B", 500, 1, 7), ("B", 501, 1, 7))
    rows = [{**row, "w": 250.0 if row["ts"] == 500 else 999.0} for row in rows]
    found, counted = run("PATTERN SEQ(A a, B b) WHERE skip_till_next_match(a, b) { [id] and b.w = a.v }", rows)
    assert found == [((250,), (500,))]
    assert (counted["visited"], counted["predicates"]) == (1, 1)


def test_a_chain_of_equalities_follows_the_last_value() -> None:
    rows = [{"type": "S", "ts": i, "from": i % 50, "to": (i + 1) % 50} for i in range(100)]
    text = "PATTERN SEQ(S+ b[]) WHERE skip_till_next_match(b[]) { b[i].from = b[i-1].to } WITHIN 20"
    found, counted = run(text, rows)
    assert len(found) == sum(min(i, 20) + 1 for i in range(100))
    assert counted["visited"] <= 2 * 100


def test_equal_runs_are_merged() -> None:
    """Every A is taken by all runs, which differ in nothing that a later edge asks for: one run goes on."""
    rows = ticks(*(("A", i, 1) for i in range(50)), ("B", 50, 1))
    text = "PATTERN SEQ(A+ a[], B b) WHERE skip_till_next_match(a[], b) { [id] }"
    found, counted = run(text, rows)
    apart, counted_apart = run(text, rows, merge="off")
    assert found == apart
    assert len(found) == 50
    assert counted["merged"] == 49
    assert counted["visited"] == 50  # one run for each event after the first
    assert counted_apart["merged"] == 0
    assert counted_apart["visited"] == sum(range(51))


def test_runs_that_differ_in_what_is_asked_for_are_not_merged() -> None:
    rows = ticks(*(("A", i, 1, i % 3) for i in range(30)), ("B", 30, 1, 2))
    text = "PATTERN SEQ(A+ a[], B b) WHERE skip_till_next_match(a[], b) { [id] and b.v > a[1].v }"
    found, counted = run(text, rows)
    assert len(found) == 20
    assert counted["merged"] == 27
    assert counted["visited"] == 1 + 2 + 28 * 3


def test_members_of_a_merged_run_leave_the_window_one_by_one() -> None:
    rows = ticks(*(("A", i, 1) for i in range(10)), ("B", 12, 1))
    text = "PATTERN SEQ(A+ a[], B b) WHERE skip_till_next_match(a[], b) {{ [id] }} WITHIN {}"
    for window in range(13):
        found, _ = run(text.format(window), rows)
        assert [match[0][0] for match in found] == [i for i in range(10) if 12 - i <= window]


def test_every_way_back_of_a_merged_run_is_a_match() -> None:
    """Merged runs whose events differ: two Kleene components that share their events in every possible way."""
    rows = ticks(*(("A", i, 1) for i in range(8)), ("B", 8, 1))
    text = "PATTERN SEQ(A+ a[], A+ b[], B c) WHERE skip_till_next_match(a[], b[], c) { [id] }"
    stream = stream_of(rows)
    found, _ = run(text, rows)
    assert found == by_oracle(bound(text, stream), stream)
    assert len(found) == len(set(found)) == 28


# --- how much memory --------------------------------------------------------------------------------------------------


def fed(kernel: Kernel, stream: Stream, size: int) -> tuple[State, int]:
    """The state after the stream in batches, and the most bytes it took up."""
    encoder, state, most = encoder_of(kernel), kernel.initial(), 0
    for start in range(0, len(stream.events), size):
        state, _ = kernel.step(state, encoder.encode(stream.table.slice(start, size)))
        most = max(most, sum(array.nbytes for array in state))
    return state, most


@pytest.mark.parametrize("count", [4_000, 16_000])
def test_passing_keys_leave_nothing_behind(count: int) -> None:
    stream = stream_of(ticks(*(("A", i, i) for i in range(count))))
    kernel = kernel_of(bound(WAITING + " WITHIN 10", stream), stream, evaluator="runs")
    state, most = fed(kernel, stream, 500)
    assert most < 60_000
    assert kernel.oldest(state) >= count - 500 - 10
    assert counters(state)["peak_retained"] < 100


@pytest.mark.parametrize("count", [3_000, 12_000])
def test_a_run_that_never_ends_keeps_only_its_window(count: int) -> None:
    """The merged run is always young, but the events of its oldest members leave the window."""
    stream = stream_of(ticks(*(("A", i, 1) for i in range(count))))
    text = "PATTERN SEQ(A+ a[], B b) WHERE skip_till_next_match(a[], b) { [id] } WITHIN 20 events"
    _, most = fed(kernel_of(bound(text, stream), stream, evaluator="runs"), stream, 500)
    assert most < 60_000


@pytest.mark.parametrize("count", [3_000, 12_000])
def test_negated_events_are_forgotten(count: int) -> None:
    stream = stream_of(ticks(*(("AB"[i % 2], i, i // 8) for i in range(count))))
    text = "PATTERN SEQ(A a, !(B b), C c) WHERE skip_till_next_match(a, b, c) { [id] } WITHIN 20"
    _, most = fed(kernel_of(bound(text.replace("C c", "A c"), stream), stream, evaluator="runs"), stream, 500)
    assert most < 60_000


def test_values_that_pass_leave_nothing_behind() -> None:
    stream = stream_of(ticks(*(("A", i, -1, i) for i in range(6_000))))
    text = "PATTERN SEQ(A a, A b) WHERE skip_till_next_match(a, b) { b.id = a.v } WITHIN 10"
    _, most = fed(kernel_of(bound(text, stream), stream, evaluator="runs"), stream, 500)
    assert most < 60_000


# --- machine code -----------------------------------------------------------------------------------------------------

COMPILED = [
    "PATTERN SEQ(A+ a[], B b) WHERE skip_till_next_match(a[], b) { [id] and a[i].v > avg(a[..i-1].v) } WITHIN 30",
    "PATTERN SEQ(A a, !(B b), A* c[], C d) WHERE skip_till_next_match(a, b, c[], d) "
    "{ [id] and d.v >= c[1].v and b.v > d.v } WITHIN 40 OUTPUT NON-OVERLAPPING",
    "PATTERN SEQ(A a, B+ b[], !(C c)) WHERE partition_contiguity(a, b[], c) { a.id = b[1].id and c.v > min(b[].v) } "
    "WITHIN 12",
    "PATTERN SEQ(A a, B b, C c) WHERE skip_till_next_match(a, b, c) { b.v = a.v and c.name >= a.name } WITHIN 60",
]


@pytest.mark.parametrize("text", COMPILED)
def test_machine_code_agrees_with_the_oracle(text: str) -> None:
    rows = [
        {"type": "ABC"[(i * i + i // 3) % 3], "ts": i, "id": i * 7 % 11 % 2, "v": i * 5 % 7, "name": "pqrs"[i % 4]}
        for i in range(150)
    ]
    stream = stream_of(rows)
    require_machine_code_agrees(bound(text, stream), stream, "runs", [7, 50])


def test_backtracking_compiles() -> None:
    stream = stream_of(ticks(*(("AB"[i % 5 == 4], i, i % 3, i * 7 % 5) for i in range(200))))
    text = "PATTERN SEQ(A+ a[], B b) WHERE skip_till_next_match(a[], b) { [id] and a[i].v > a[i-1].v } WITHIN 30 events"
    query = bound(text, stream)
    kernel = kernel_of(query, stream, evaluator="runs", options={"algorithm": "backtrack"}, jit=True)
    assert by_kernel(kernel, stream, [50])[0] == by_oracle(query, stream)


def test_generated_source_holds_nothing_of_the_query() -> None:
    stream = stream_of([{"type": "secret_type", "ts": 1, "secret_attribute": "s"}])
    text = (
        "PATTERN SEQ(secret_type+ secret_x[], !(secret_type secret_z), secret_type secret_y) "
        "WHERE skip_till_next_match(secret_x[], secret_z, secret_y) {"
        "secret_x[i].secret_attribute = secret_x[1].secret_attribute "
        "and (secret_x[1].secret_attribute = secret_y.secret_attribute or secret_y.secret_attribute != 'secret text')}"
    )
    kernel = kernel_of(bound(text, stream), stream, evaluator="runs")
    assert "secret" not in kernel.source
    assert kernel.texts == ("secret text",)
