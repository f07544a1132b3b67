"""The stacks evaluator is held to the oracle, however the stream is cut, and does no more work than it should."""

from __future__ import annotations

import random
import re
from typing import Any

import pytest
from examples import examples
from hypothesis import given, reject, settings
from hypothesis import strategies as st
from kernel_harness import bound, by_kernel, by_oracle, encoder_of, kernel_of, stream_of
from strategies import is_valid

from cepheid.errors import CepheidError

NEGATION = re.compile("!(?!=)")
OPTIONS: list[dict[str, str | bool]] = [
    {},
    {"equalities": "none"},
    {"equalities": "first", "others": "late"},
    {"equalities": "first", "others": "multi"},
    {"window": "late"},
    {"algorithm": "basic"},
    {"algorithm": "basic", "window": "late"},
]

events: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {
        "type": st.sampled_from("ABC"),
        "gap": st.sampled_from([0, 1, 1, 2, 5]),
        "id": st.sampled_from([1, 2, None]),
        "v": st.sampled_from([1, 2, 3, 2.5, None]),
        "name": st.sampled_from(["p", "q", "r", None]),
        "bare": st.booleans(),
    }
)


@st.composite
def streams(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Rows in time order with ties, nulls, and a type that may lack an attribute."""
    rows, now = [], draw(st.sampled_from([-3, 0, 10]))
    lacks_v = draw(st.booleans())
    for event in draw(st.lists(events, max_size=22)):
        now += event.pop("gap")
        if (lacks_v and event["type"] == "C") or event.pop("bare"):
            event.pop("v")
        event.pop("bare", None)
        rows.append({"ts": now, **event})
    return rows


NAMES = ("x", "y", "z", "w")


@st.composite
def queries(draw: st.DrawFn) -> str:
    """SASE sequences, and the same shapes in SASE+ (by position) and ZStream (`<=`)."""
    language = draw(st.sampled_from(["sase", "sase", "sase+", "zstream"]))
    size = draw(st.integers(1, 4))
    negated = [draw(st.booleans()) and draw(st.booleans()) for _ in range(size)]
    if all(negated):
        negated[draw(st.integers(0, size - 1))] = False
    types = [draw(st.sampled_from(["A", "B", "C", "ANY(A, C)"])) for _ in range(size)]
    if language == "zstream":
        types = [t.replace("ANY(A, C)", "B") for t in types]
        parts = [f"{'!' if no else ''}{t} {v}" for t, v, no in zip(types, NAMES, negated, strict=False)]
        text = "PATTERN " + ";".join(parts)
    else:
        parts = [f"!({t} {v})" if no else f"{t} {v}" for t, v, no in zip(types, NAMES, negated, strict=False)]
        text = ("EVENT" if language == "sase" else "PATTERN") + f" SEQ({', '.join(parts)})"
    tests = draw(st.lists(predicates(NAMES[:size]), max_size=3))
    if tests:
        text += " WHERE " + " AND ".join(tests)
    unit = draw(st.sampled_from(["", "", "units", "events"]))
    edge = negated[0] or negated[-1]
    if edge or draw(st.booleans()):
        text += f" WITHIN {draw(st.integers(0, 9))} {unit}"
    return text


@st.composite
def predicates(draw: st.DrawFn, names: tuple[str, ...]) -> str:
    a, b = draw(st.sampled_from(names)), draw(st.sampled_from(names))
    op = draw(st.sampled_from(["=", "!=", "<", "<=", ">"]))
    return draw(
        st.sampled_from(
            [
                "[id]",
                "[id, name]",
                "[id = 1]",
                f"{a}.id = {b}.id",
                f"{a}.v {op} {b}.v",
                f"{a}.name {op} {b}.name",
                f"{a}.v {op} 2",
                f"{a}.v + 1 {op} {b}.v * 2",
                f"({a}.v {op} {b}.v OR {a}.id = {b}.id)",
                f"NOT ({a}.v {op} {b}.v)",
                f"{a}.name IN ('p', 'q')",
                f"{a}.v / {b}.v > 1",
                f"{a}.name LIKE 'p%'",
            ]
        )
    )


@settings(max_examples=examples(300), deadline=None)
@given(streams(), queries().filter(is_valid), st.data())
def test_agrees_with_the_oracle(rows: list[dict[str, Any]], text: str, data: st.DataObject) -> None:
    able = [options for options in OPTIONS if not NEGATION.search(text) or options.get("algorithm") != "basic"]
    options = data.draw(st.sampled_from(able))
    stream = stream_of(rows) if rows else stream_of([{"type": "A", "ts": 0, "id": 1, "v": 1, "name": "p"}])
    try:
        query = bound(text, stream)
        kernel = kernel_of(query, stream, evaluator="stacks", options=options)
    except CepheidError:
        reject()
    cuts = data.draw(st.lists(st.integers(0, len(stream.events)), max_size=3))
    found, _ = by_kernel(kernel, stream, cuts)
    assert found == by_oracle(query, stream)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from("ABC"), st.integers(1, 3)), min_size=8, max_size=25), st.sampled_from(OPTIONS)
)
def test_windows_that_count_the_events_of_a_partition(
    rows: list[tuple[str, int]], options: dict[str, str | bool]
) -> None:
    stream = stream_of([{"type": kind, "ts": ts, "id": tag} for ts, (kind, tag) in enumerate(rows)])
    query = bound("EVENT SEQ(A x, B y) WHERE [id] WITHIN 3 events", stream)
    assert by_kernel(kernel_of(query, stream, evaluator="stacks", options=options), stream)[0] == by_oracle(
        query, stream
    )


def shop(*events: tuple[str, int, int]) -> list[dict[str, Any]]:
    return [{"type": kind, "ts": ts, "id": tag} for kind, ts, tag in events]


COMPILED = [
    "EVENT SEQ(A x, B y, C z) WHERE [id] WITHIN 6",
    "EVENT SEQ(A x, !(B y), C z) WHERE [id] WITHIN 6",
    "EVENT SEQ(A x, B y, !(C z)) WHERE x.id = y.id AND z.id >= x.id WITHIN 6",
]


@pytest.mark.parametrize("text", COMPILED)
def test_machine_code_agrees_with_the_oracle(text: str) -> None:
    rows = shop(*(("ABC"[(i * i + i // 3) % 3], i // 2, i * 7 % 11 % 3) for i in range(120)))
    stream = stream_of(rows)
    query = bound(text, stream)
    found, counted = by_kernel(kernel_of(query, stream, jit=True), stream, [7, 50])
    plain, counted_plain = by_kernel(kernel_of(query, stream), stream, [7, 50])
    assert found == plain == by_oracle(query, stream)
    assert counted == counted_plain
    assert found


def test_the_basic_plan_evaluates_long_sequences() -> None:
    """Python allows 20 nested loops."""
    stream = stream_of(
        [
            {"type": f"T{n}", "ts": at, "id": n % 4}
            for at, n in enumerate((*range(4), 3, 4, *range(5, 11), 10, *range(11, 21), 20))
        ]
    )
    components = ", ".join(f"T{n} a{n}" for n in range(21))
    query = bound(f"EVENT SEQ({components}) WHERE a0.id <= a20.id AND a6.id != a7.id", stream)
    found, _ = by_kernel(kernel_of(query, stream, options={"algorithm": "basic"}), stream, [11])
    assert found == by_kernel(kernel_of(query, stream), stream, [20])[0]
    assert len(found) > 0


@pytest.mark.parametrize("text", ["EVENT SEQ(A x, B y, C z) WHERE [id] AND x.id < 2 WITHIN 6", "EVENT SEQ(A x, B y)"])
def test_the_basic_plan_agrees(text: str) -> None:
    stream = stream_of(shop(*(("ABC"[i % 3], i, i * i % 5 % 3) for i in range(40))))
    query = bound(text, stream)
    found, _ = by_kernel(kernel_of(query, stream, options={"algorithm": "basic"}), stream, [11])
    assert found == by_oracle(query, stream)


# --- how much work ----------------------------------------------------------------------------------------------------


def test_partitioned_stacks_visit_only_their_own_key() -> None:
    rows = shop(*(("A", i, i) for i in range(50)), ("B", 60, 7))
    stream = stream_of(rows)
    kernel = kernel_of(bound("EVENT SEQ(A x, B y) WHERE [id]", stream), stream)
    found, counted = by_kernel(kernel, stream)
    assert found == [((7,), (50,))]
    assert counted["predicates"] == 0  # the chain's key decides: no instance of another key is looked at
    assert counted["partial_matches"] == 50


def test_events_that_are_no_component_are_dropped_by_the_mask() -> None:
    stream = stream_of(shop(("A", 1, 1), ("C", 2, 1), ("C", 3, 1), ("B", 4, 1)))
    _, counted = by_kernel(kernel_of(bound("EVENT SEQ(A x, B y) WHERE [id]", stream), stream), stream)
    assert (counted["events"], counted["dropped_by_mask"], counted["matches"]) == (4, 2, 1)


def test_an_equality_that_follows_from_others_is_not_tested() -> None:
    rows = shop(("A", 1, 1), ("B", 2, 1), ("C", 3, 1), ("B", 4, 2), ("C", 5, 2))
    stream = stream_of(rows)
    _, counted = by_kernel(kernel_of(bound("EVENT SEQ(A x, B y, C z) WHERE [id]", stream), stream), stream)
    assert counted["predicates"] == 0
    assert counted["partial_matches"] == 2  # the second B finds no A of its key and is not kept


def test_the_window_bounds_what_is_kept() -> None:
    rows = shop(*(("A", i, i) for i in range(3_000)))
    stream = stream_of(rows)
    kernel = kernel_of(bound("EVENT SEQ(A x, B y) WHERE [id] WITHIN 10", stream), stream)
    _, counted = by_kernel(kernel, stream, range(0, 3_000, 100))
    assert counted["peak_retained"] == 10


def test_idle_keys_leave_nothing_behind() -> None:
    """Every event has a key of its own, so the hash table must forget those that have left the window."""
    rows = shop(*(("A", i, i) for i in range(20_000)))
    stream = stream_of(rows)
    kernel = kernel_of(bound("EVENT SEQ(A x, B y) WHERE [id] WITHIN 10", stream), stream)
    encoder, state = encoder_of(kernel), kernel.initial()
    for start in range(0, 20_000, 500):
        state, _ = kernel.step(state, encoder.encode(stream.table.slice(start, 500)))
    assert sum(array.nbytes for array in state) < 200_000
    assert kernel.oldest(state) == 19_990


SHARING = ["SEQ(A x, B y, C z)", "SEQ(A x, !(B y), C z)", "SEQ(A x, C z, !(B y))", "SEQ(A x, B y, !(A w), C z)"]


@pytest.mark.parametrize("pattern", SHARING)
def test_keys_that_stacks_share_come_and_go(pattern: str) -> None:
    """All stacks are found by one look at a table, which forgets the keys that have left the window of all of them."""
    kinds = random.Random(1).choices("ABC", k=12_000)
    rows = shop(*((kind, i, i // 40 * 3 + i % 3) for i, kind in enumerate(kinds)))
    stream = stream_of(rows)
    kernel = kernel_of(bound(f"EVENT {pattern} WHERE [id] WITHIN 25", stream), stream, jit=True)
    unchained = kernel_of(
        bound(f"EVENT {pattern} WHERE [id] WITHIN 25", stream), stream, options={"equalities": "none"}
    )
    encoder, state = encoder_of(kernel), kernel.initial()
    for start in range(0, 12_000, 100):
        state, _ = kernel.step(state, encoder.encode(stream.table.slice(start, 100)))
    assert sum(array.nbytes for array in state) < 50_000
    assert "instances_base" in kernel.source
    found, counted = by_kernel(kernel, stream, range(0, 12_000, 3_000))
    expected, _ = by_kernel(unchained, stream)
    assert found == expected and len(found) > 100
    assert counted["predicates"] == 0


@pytest.mark.parametrize("pattern", ["SEQ(!(B y), A x, C z)", "SEQ(A x, !(B y), C z)", "SEQ(A x, B y, !(A w), C z)"])
def test_many_keys_that_stacks_share_at_once(pattern: str) -> None:
    """Of some of them only a negated event is there when the table grows."""
    waves = [("B", 3), ("A", 1), ("B", 2), ("A", 4), ("C", 1)]
    order = [(kind, key) for kind, each in waves for key in range(0, 300, each)]
    stream = stream_of(shop(*((kind, i, key) for i, (kind, key) in enumerate(order))))
    query = bound(f"EVENT {pattern} WHERE [id] WITHIN 2000", stream)
    found, _ = by_kernel(kernel_of(query, stream), stream, range(0, len(order), 20))
    assert found == by_oracle(query, stream) and len(found) > 50


def test_stacks_whose_events_have_another_key_to_look_than_to_be_found_share_nothing() -> None:
    rows = [{"type": "ABC"[i * i % 7 % 3], "ts": i, "id": i % 3, "v": i * i % 5 % 3} for i in range(60)]
    stream = stream_of(rows)
    query = bound("EVENT SEQ(A x, B y, C z) WHERE x.id = y.v AND y.id = z.v WITHIN 20", stream)
    kernel = kernel_of(query, stream)
    found, _ = by_kernel(kernel, stream, [20])
    assert found == by_oracle(query, stream) and found
    assert "instances_base" not in kernel.source


def test_an_event_without_the_key_that_stacks_share_has_no_part() -> None:
    rows = [{"type": kind, "ts": i, "id": None if i in (1, 4) else 1} for i, kind in enumerate("AABBCC")]
    stream = stream_of(rows)
    query = bound("EVENT SEQ(A x, B y, C z) WHERE [id]", stream)
    found, counted = by_kernel(kernel_of(query, stream), stream)
    assert found == by_oracle(query, stream) == [((0,), (2,), (5,)), ((0,), (3,), (5,))]
    assert (counted["events"], counted["dropped_by_mask"], counted["partial_matches"]) == (6, 2, 3)


def test_a_negation_is_decided_by_one_look() -> None:
    """The latest negated event before the next component is remembered, so those before it are not visited."""
    rows = shop(("A", 0, 1), *(("B", i, 1) for i in range(1, 500)), ("C", 500, 1))
    stream = stream_of(rows)
    kernel = kernel_of(bound("EVENT SEQ(A x, !(B y), C z) WHERE [id] AND y.id >= x.id", stream), stream)
    found, counted = by_kernel(kernel, stream)
    assert found == []
    assert counted["predicates"] == 1


def test_generated_source_holds_nothing_of_the_query() -> None:
    stream = stream_of([{"type": "secret_type", "ts": 1, "secret_attribute": "s"}])
    text = (
        "EVENT SEQ(secret_type secret_x, secret_type secret_y) "
        "WHERE secret_x.secret_attribute = secret_y.secret_attribute AND secret_x.secret_attribute != 'secret text'"
    )
    assert "secret" not in kernel_of(bound(text, stream), stream).source


EDGES = [
    ("EVENT SEQ(A x, !(B y)) WITHIN 6", shop(("A", 1, 1), ("B", 6, 1), ("A", 10, 1), ("B", 16, 1), ("A", 40, 1))),
    ("PATTERN A x;!B y WITHIN 6", shop(("A", 1, 1), ("B", 7, 1), ("A", 10, 1), ("B", 17, 1), ("A", 40, 1))),
    ("PATTERN SEQ(A x, !(A y), B z)", shop(("A", 1, 1), ("A", 1, 2), ("B", 1, 1), ("B", 2, 1))),
    ("PATTERN SEQ(!(A x), B y) WITHIN 3", shop(("A", 1, 1), ("B", 4, 1), ("A", 5, 1), ("B", 9, 1))),
    (
        "EVENT SEQ(A x, B y, !(C z), A w) WHERE z.id > x.id",
        shop(("A", 1, 1), ("A", 2, 3), ("B", 3, 1), ("C", 4, 2), ("A", 5, 1)),
    ),
]


@pytest.mark.parametrize(("text", "rows"), EDGES)
def test_negation_at_its_edges(text: str, rows: list[dict[str, Any]]) -> None:
    stream = stream_of(rows)
    query = bound(text, stream)
    expected = by_oracle(query, stream)
    assert expected
    for cut in range(len(rows) + 1):
        assert by_kernel(kernel_of(query, stream), stream, [cut])[0] == expected


@pytest.mark.parametrize("components", [14, 15, 16, 20, 45])
@pytest.mark.parametrize("query", ["EVENT SEQ({}) WHERE [id] AND x0.v <= x9.v WITHIN 99", "PATTERN {} WITHIN 99"])
def test_sequences_of_any_length(components: int, query: str) -> None:
    """Python allows 20 nested loops, so long sequences are searched by one."""
    rows = [
        {"type": f"T{i}", "ts": 2 * i + again, "id": 1, "v": again}
        for i in range(components)
        for again in range(1 + (i % 9 == 0))
    ]
    rows.insert(8, {"type": "N", "ts": rows[7]["ts"], "id": 1, "v": 0})
    parts = [f"T{i} x{i}" for i in range(components)]
    events = stream_of(rows)
    for negated in ([], ["N n"]):
        is_sase = query.startswith("EVENT")
        between = [f"!({n})" if is_sase else f"!{n}" for n in negated]
        text = query.format((", " if is_sase else "; ").join([*parts[:7], *between, *parts[7:]]))
        bound_query = bound(text, events)
        kernel = kernel_of(bound_query, events, evaluator="stacks")
        expected = by_oracle(bound_query, events)
        assert by_kernel(kernel, events, [5])[0] == expected and expected


def test_a_window_without_room_for_an_event_has_no_match() -> None:
    events = stream_of([{"type": "A", "ts": 1}, {"type": "A", "ts": 2}])
    for options in OPTIONS:
        query = bound("EVENT A x WITHIN 0", events)
        assert by_kernel(kernel_of(query, events, evaluator="stacks", options=options), events, [])[0] == []
