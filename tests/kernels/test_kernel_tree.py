"""The tree evaluator is held to the oracle in every legal shape of plan, however the stream is cut."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from examples import examples
from golden_cases import Case, all_cases
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st
from kernel_harness import Stream, bound, by_kernel, by_oracle, encoder_of, kernel_of, stream_of
from strategies import Stream as DrawnStream
from strategies import ced_queries, sase_queries, zstream_queries
from strategies import streams as drawn_streams
from tree_harness import drawn_plan

from cepheid.codegen import parts
from cepheid.codegen.compile import interpreted
from cepheid.errors import CepheidError
from cepheid.kernels.tree import evaluator as tree
from cepheid.lang import parse
from cepheid.runtime.kernel import Kernel, operator_counts
from cepheid.tree_plan import TreePlan

_EXAMPLES = settings(max_examples=examples(150), deadline=None, suppress_health_check=list(HealthCheck))
_MANY = settings(max_examples=examples(3000), deadline=None, suppress_health_check=list(HealthCheck))


def with_plan(kernel: Kernel, plan: TreePlan) -> Kernel:
    """A kernel whose parts are all functions, as in one with many arrays."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(parts, "MANY_ARRAYS", 0)
        made = tree.kernel(replace(kernel.plan, tree=plan))
    return replace(made, function=interpreted(made.source))


def agrees(text: str, drawn: DrawnStream, data: st.DataObject, lengths: st.SearchStrategy[int] | None = None) -> None:
    """`lengths` draws how long each event lasts; None: no event has a duration."""
    rows = [dict(event.row) for event in drawn.events]
    if lengths is not None:
        rows = [{**row, "began": row["ts"] - data.draw(lengths)} for row in rows]
    stream = stream_of(rows or [{"type": "A", "ts": 0, "v": 1, "w": 1, "id": 1, "s": "p"}])
    try:
        query = bound(text, stream)
        kernel = kernel_of(query, stream, evaluator="tree")
    except CepheidError:
        reject()
    expected = by_oracle(query, stream)
    cuts = data.draw(st.lists(st.integers(0, len(stream.events)), max_size=3))
    assert by_kernel(kernel, stream, cuts)[0] == expected
    plan = drawn_plan(data, kernel.plan.query, kernel.plan)
    assert by_kernel(with_plan(kernel, plan), stream, cuts)[0] == expected, plan


@_EXAMPLES
@given(zstream_queries(), drawn_streams(max_events=14), st.data())
def test_every_plan_agrees_with_the_oracle(text: str, stream: DrawnStream, data: st.DataObject) -> None:
    agrees(text, stream, data)


@_EXAMPLES
@given(sase_queries(), drawn_streams(max_events=14), st.data())
def test_sase_agrees_with_the_oracle(text: str, stream: DrawnStream, data: st.DataObject) -> None:
    agrees(text, stream, data)


@_EXAMPLES
@given(ced_queries(by_name=False), drawn_streams(max_events=14), st.data())
def test_ced_agrees_with_the_oracle(text: str, stream: DrawnStream, data: st.DataObject) -> None:
    agrees(text, stream, data)


_LENGTHS = st.sampled_from((0, 0, 1, 1, 2, 3, 6))


@_EXAMPLES
@given(
    st.one_of(zstream_queries(), sase_queries(), ced_queries(by_name=False)), drawn_streams(max_events=12), st.data()
)
def test_events_with_duration(text: str, stream: DrawnStream, data: st.DataObject) -> None:
    agrees(text, stream, data, _LENGTHS)


@pytest.mark.slow
@_MANY
@given(
    st.one_of(zstream_queries(), sase_queries(), ced_queries(by_name=False)), drawn_streams(max_events=16), st.data()
)
def test_many_events_with_duration(text: str, stream: DrawnStream, data: st.DataObject) -> None:
    agrees(text, stream, data, _LENGTHS)


@pytest.mark.slow
@_MANY
@given(ced_queries(by_name=False), drawn_streams(max_events=20), st.data())
def test_many_ced_plans_agree_with_the_oracle(text: str, stream: DrawnStream, data: st.DataObject) -> None:
    agrees(text, stream, data)


@pytest.mark.slow
@_MANY
@given(zstream_queries(), drawn_streams(max_events=20), st.data())
def test_many_plans_agree_with_the_oracle(text: str, stream: DrawnStream, data: st.DataObject) -> None:
    agrees(text, stream, data)


GOLDEN = [
    case
    for case in all_cases()
    if case.language == "zstream" and case.matches is not None and not case.params and "unit" not in case.headers
    if not parse(case.query).inputs  # the closure of a group is a query of its own
]


@pytest.mark.parametrize("case", GOLDEN, ids=lambda case: case.name)
def test_golden_cases(case: Case) -> None:
    stream = stream_of([{"type": kind, "ts": time, **row} for kind, time, row in case.rows])
    query = bound(case.query, stream)
    expected = by_oracle(query, stream)
    for options in ({}, {"shape": "left-deep"}, {"shape": "right-deep"}, {"negation": "top"}, {"rewrite": False}):
        try:
            kernel = kernel_of(query, stream, evaluator="tree", options=options)
        except CepheidError as problem:
            assert "partition" in str(problem.hint)
        else:
            for cut in range(len(stream.events)):
                assert by_kernel(kernel, stream, [cut])[0] == expected


# --- plans by name ----------------------------------------------------------------------------------------------------

STOCKS = ("IBM", "Sun", "Oracle", "Google")
QUERY_6 = "PATTERN IBM;Sun;Oracle;Google WHERE Oracle.price > Sun.price AND Oracle.price > Google.price WITHIN 40 units"
SHAPES = (
    "left-deep",
    "right-deep",
    "bushy",
    "[[[IBM;Sun];Oracle];Google]",
    "[IBM;[Sun;[Oracle;Google]]]",
    "[[IBM;Sun];[Oracle;Google]]",
    "[IBM;[[Sun;Oracle];Google]]",
    "[[IBM;[Sun;Oracle]];Google]",
)


def ticks(number: int) -> Stream:
    """Prices that rise and fall, of the four stocks in turn (and by chance of a small generator)."""
    rows: list[dict[str, Any]] = []
    state = 7
    for time in range(number):
        state = (state * 1103515245 + 12345) % 2147483648
        rows.append({"type": STOCKS[(state >> 8) % 4], "ts": time, "price": (state >> 16) % 100})
    return stream_of(rows)


@pytest.mark.parametrize("shape", SHAPES)
def test_forced_shapes(shape: str) -> None:
    stream = ticks(120)
    query = bound(QUERY_6, stream)
    kernel = kernel_of(query, stream, evaluator="tree", options={"shape": shape})
    assert by_kernel(kernel, stream, [30, 31, 90])[0] == by_oracle(query, stream)


@pytest.mark.parametrize("shape", ["sideways", "[IBM;Sun]", "[[Sun;IBM];[Oracle;Google]]", "[IBM", "[IBM]", "[[" * 99])
def test_other_shapes_are_refused(shape: str) -> None:
    stream = ticks(12)
    with pytest.raises(CepheidError, match="plan"):
        kernel_of(bound(QUERY_6, stream), stream, evaluator="tree", options={"shape": shape})


@pytest.mark.parametrize(
    "text",
    [
        QUERY_6,
        "PATTERN IBM;!Sun;Oracle WITHIN 40 units",
        "PATTERN IBM;Sun+;Oracle;!Google WHERE sum(Sun.price) > 100 WITHIN 30 units",
        "PATTERN (IBM&(Sun|Oracle));Google^2 WHERE IBM.price = Google.price WITHIN 20 units",
        "PATTERN IBM*;(Sun|Oracle);Google* WITHIN 8 events",
    ],
)
def test_compiled_as_interpreted(text: str) -> None:
    stream = ticks(150)
    query = bound(text, stream)
    compiled = kernel_of(query, stream, evaluator="tree", jit=True)
    assert by_kernel(compiled, stream, [17, 90])[0] == by_oracle(query, stream)


# --- disjunctions of classes ------------------------------------------------------------------------------------------


def alternatives_of(count: int, condition: str = "") -> str:
    classes = " | ".join(f"T{i} a{i}" for i in range(count))
    where = " AND ".join(f"a{i}.v {condition} b.v" for i in range(count)) if condition else ""
    return f"PATTERN ({classes}); B b {f'WHERE {where} ' if where else ''}WITHIN 20"


def stream_of_types(count: int) -> Stream:
    types = [f"T{i % count}" if i % 4 else "B" for i in range(120)]
    return stream_of([{"type": kind, "ts": 2 * i, "v": i * 7 % 5} for i, kind in enumerate(types)])


def test_the_source_of_a_disjunction_does_not_grow_with_its_classes() -> None:
    """The compiler takes longer than in proportion to the source."""
    lines = {
        count: kernel_of(bound(alternatives_of(count), stream), stream, evaluator="tree").source.count("\n")
        for count in (3, 50)
        if (stream := stream_of_types(count))
    }
    assert lines[50] == lines[3]


@pytest.mark.parametrize("condition", ["", "<", "="])
def test_fifty_alternatives_agree_with_the_oracle(condition: str) -> None:
    stream = stream_of_types(50)
    query = bound(alternatives_of(50, condition), stream)
    kernel = kernel_of(query, stream, evaluator="tree")
    found, _ = by_kernel(kernel, stream, [17, 90])
    assert found == by_oracle(query, stream) and found


def sequences_of(count: int, condition: str = "=") -> str:
    sequences = " | ".join(f"(T{i} a{i}; B b{i})" for i in range(count))
    conditions = " AND ".join(f"a{i}.v + {i} {condition} b{i}.v + {i}" for i in range(count))
    return f"PATTERN {sequences} WHERE {conditions} WITHIN 20"


def test_the_loops_of_alternatives_of_one_shape_are_written_once() -> None:
    loops = {}
    for count in (8, 20):
        stream = stream_of_types(count)
        source = kernel_of(bound(sequences_of(count), stream), stream, evaluator="tree").source
        loops[count] = [line for line in source.splitlines() if line.strip().startswith(("for ", "while "))]
    assert len(loops[20]) == len(loops[8])


@pytest.mark.parametrize("condition", ["<", "="])
def test_twenty_sequences_agree_with_the_oracle(condition: str) -> None:
    stream = stream_of_types(20)
    query = bound(sequences_of(20, condition), stream)
    found, _ = by_kernel(kernel_of(query, stream, evaluator="tree"), stream, [17, 90])
    assert found == by_oracle(query, stream) and found


def test_parts_are_compiled_where_python_interprets_the_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "MANY_ARRAYS", 0)
    stream = stream_of_types(2)
    query = bound(sequences_of(2), stream)
    kernel = kernel_of(query, stream, evaluator="tree", jit=True)
    found, _ = by_kernel(kernel, stream, [17, 90])
    assert found == by_oracle(query, stream) and found
    assert "def part0(" in kernel.source


@pytest.mark.parametrize(
    "text",
    [
        "PATTERN (A a | A b | B c); (A d | B e) WHERE a.v < d.v AND b.v > e.v WITHIN 9",
        "PATTERN (A a | A b) & (B c | A d) WITHIN 5",
        "PATTERN (A a | B b | C c); B+; (A d | C e) WHERE a.v = d.v WITHIN 7 events",
        "PATTERN ((A a | B b); C c) | (A d; B e) WITHIN 6",
    ],
)
def test_one_event_may_be_several_classes_of_a_disjunction(text: str) -> None:
    stream = stream_of([{"type": "ABC"[i * i % 7 % 3], "ts": i, "v": i % 4} for i in range(30)])
    query = bound(text, stream)
    found, _ = by_kernel(kernel_of(query, stream, evaluator="tree"), stream, [3, 17])
    assert found == by_oracle(query, stream) and found


def test_the_events_of_each_class_of_a_disjunction_are_counted() -> None:
    stream = stream_of([{"type": "ABBC"[i % 4], "ts": i} for i in range(40)])
    kernel = kernel_of(bound("PATTERN (A a | B b); C c WITHIN 5", stream), stream, evaluator="tree")
    state, _ = kernel.step(kernel.initial(), encoder_of(kernel).encode(stream.table))
    counts = operator_counts(kernel, state)
    assert (counts["a"].made, counts["b"].made, counts["c"].made) == (10, 20, 10)


def test_a_closure_needs_one_bit_of_the_mask() -> None:
    """34 closures and a class have 35 roles: with two bits for each closure they would not fit into 64."""
    classes = " | ".join(f"T{i}+" for i in range(34))
    stream = stream_of([{"type": f"T{i % 34}" if i % 5 else "B", "ts": i} for i in range(60)])
    query = bound(f"PATTERN B; ({classes}) WITHIN 6", stream)
    found, _ = by_kernel(kernel_of(query, stream, evaluator="tree"), stream, [20])
    assert found == by_oracle(query, stream) and found


# --- how much work is done --------------------------------------------------------------------------------------------


def work(text: str, stream: Stream, **options: str) -> dict[str, int]:
    return by_kernel(kernel_of(bound(text, stream), stream, evaluator="tree", options=options), stream)[1]


def test_rounds_are_idle_without_a_final_event() -> None:
    rows = [{"type": "AB"[i % 2], "ts": i} for i in range(400)]
    assert work("PATTERN A;B;C WITHIN 50", stream_of([*rows, {"type": "C", "ts": 1000}]))["partial_matches"] == 0


def test_a_pushed_negation_spares_pairs() -> None:
    stream = ticks(200)
    pushed = work("PATTERN IBM;!Sun;Oracle;Google WITHIN 60", stream, negation="pushed", shape="left-deep")
    on_top = work("PATTERN IBM;!Sun;Oracle;Google WITHIN 60", stream, negation="top", shape="left-deep")
    assert pushed["matches"] == on_top["matches"]
    assert 5 * pushed["partial_matches"] < on_top["partial_matches"]


def test_buffers_are_bounded_by_the_window() -> None:
    short, long = (
        work("PATTERN IBM;Sun;Oracle WITHIN 9", ticks(400)),
        work("PATTERN IBM;Sun;Oracle WITHIN 9", ticks(800)),
    )
    assert long["peak_retained"] <= 1.3 * short["peak_retained"] + 400


def test_equalities_are_looked_up() -> None:
    rows = [{"type": "AB"[i % 2], "ts": i, "id": i // 2} for i in range(200)]
    assert work("PATTERN A;B;A x WHERE A.id = B.id WITHIN 150", stream_of(rows))["predicates"] == 0
