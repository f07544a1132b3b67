"""Non-overlapping matches that a kernel chooses from all matches: under skip till any match, and with what must not
follow."""

import random

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kernel_harness import bound, by_kernel, by_oracle, encoder_of, kernel_of, stream_of

import cepheid
from cepheid.kernels.exclusion import ExclusiveKernel

PATTERNS = {
    "SEQ(A a, B b)": "a, b",
    "SEQ(A a, B+ b[], C c)": "a, b, c",
    "SEQ(A+ a[], B b)": "a, b",
    "SEQ(A a, B* b[], C* c[])": "a, b, c",
    "SEQ(A a, C b, ~(B c))": "a, b, c",
    "SEQ(A a, B+ b[], ~(C c))": "a, b, c",
    "SEQ(A a, ~(B b), C* c[])": "a, b, c",
    "SEQ(A a, ~(B b), C c)": "a, b, c",
}
CONDITIONS = ["{ }", "{ [k] }", "{ [k] AND a.v <= b.v }", "{ a.k = b.k AND a.v != b.v }"]


@st.composite
def texts(draw: st.DrawFn) -> str:
    pattern = draw(st.sampled_from(sorted(PATTERNS)))
    condition = draw(st.sampled_from(CONDITIONS))
    for var in "ab":
        if f"{var}[]" in pattern:
            condition = condition.replace(f"{var}.", f"{var}[1].")
    if "~(B b)" in pattern:
        condition = condition.replace("!=", "=")
    strategy = draw(st.sampled_from(["skip_till_any_match", "skip_till_next_match", "partition_contiguity"]))
    window = draw(st.sampled_from(["WITHIN 3", "WITHIN 6", "WITHIN 12"]))
    condition = condition.replace("{ }", "{ a[1].v = a[1].v }" if "a[]" in pattern else "{ a.v = a.v }")
    return f"PATTERN {pattern} WHERE {strategy}({PATTERNS[pattern]}) {condition} {window} OUTPUT NON-OVERLAPPING"


@given(texts(), st.integers(0, 10**6), st.lists(st.integers(0, 14), max_size=4))
def test_the_matches_are_those_of_the_definition_however_the_stream_is_cut(
    text: str, seed: int, cuts: list[int]
) -> None:
    rng = random.Random(seed)
    rows = [
        {"type": rng.choice("ABC"), "ts": ts, "k": rng.choice([1, 1, 2, None]), "v": rng.randrange(3)}
        for ts in sorted(rng.randrange(16) for _ in range(14))
    ]
    stream = stream_of(rows)
    query = bound(text, stream)
    found, counted = by_kernel(kernel_of(query, stream), stream, cuts)
    assert found == by_oracle(query, stream)
    assert counted["matches"] == len(found)


@pytest.mark.parametrize(
    "text",
    [
        "PATTERN SEQ(A a, B+ b[], C c) WHERE skip_till_any_match(a, b, c) { [k] } WITHIN 90 OUTPUT NON-OVERLAPPING",
        "PATTERN SEQ(A a, B b, ~(C c)) WHERE skip_till_next_match(a, b, c) { [k] } WITHIN 90 OUTPUT NON-OVERLAPPING",
    ],
)
def test_such_a_query_is_compiled(text: str) -> None:
    rows = [{"type": kind, "ts": ts, "k": 1} for ts, kind in enumerate("A" + 40 * "B" + "C" + "ABC")]
    stream = stream_of(rows)
    kernel = kernel_of(bound(text, stream), stream)
    assert isinstance(kernel, ExclusiveKernel)
    events = pa.Table.from_pylist(rows)
    matches = cepheid.match(text, events)
    # The number of all matches is astronomic; one stands for each group of overlapping ones.
    assert len(matches) == (2 if "B+" in text else 0)
    summary = cepheid.match(text.replace(" OUTPUT", " RETURN count(*) AS n OUTPUT"), events).to_pylist()
    assert summary[0]["n"] == len(matches)


def test_what_decides_is_bounded_by_the_window() -> None:
    text = "PATTERN SEQ(A a, B b) WHERE skip_till_any_match(a, b) { [k] } WITHIN 5 OUTPUT NON-OVERLAPPING"
    rows = [{"type": "AB"[ts % 2], "ts": ts, "k": ts // 2} for ts in range(4_000)]
    stream = stream_of(rows)
    kernel = kernel_of(bound(text, stream), stream)
    encoder, state, sizes = encoder_of(kernel), kernel.initial(), []
    for start in range(0, 4_000, 100):
        state, positions = kernel.step(state, encoder.encode(stream.table.slice(start, 100)))
        assert len(positions)
        sizes.append(sum(len(array) for array in state[-5:]))
    assert max(sizes[20:]) <= 2 * max(sizes[:20])
