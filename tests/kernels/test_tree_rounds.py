"""The tree evaluator joins in rounds with an event that can end a match. What an operator has made by then must
remain for the events that come before the next such round."""

from __future__ import annotations

import itertools
import random

import pyarrow as pa
import pytest
import random_absences
from examples import examples
from hypothesis import given, note, settings
from hypothesis import strategies as st
from kernel_harness import Found, Stream, bound, by_oracle, encoder_of, kernel_of, listed, stream_of

import cepheid
from cepheid.errors import CepheidError
from cepheid.runtime.kernel import END_OF_TIME, Kernel, restore, save

_ANY = settings(max_examples=examples(300), deadline=None)
_MANY = settings(max_examples=examples(3000), deadline=None)


def found_by(kernel: Kernel, stream: Stream, cuts: list[int]) -> Found:
    """The matches of the stream cut at these places. At each the state is saved and restored, and the time before the
    next event passes."""
    encoder, state, found = encoder_of(kernel), kernel.initial(), list[tuple[tuple[int, ...], ...]]()
    for start, end in itertools.pairwise([0, *cuts, len(stream.events)]):
        state, positions = kernel.step(state, encoder.encode(stream.table.slice(start, end - start)))
        found += listed(positions)
        last, following = stream.events[end - 1 : end + 1] if end < len(stream.events) else (None, None)
        if last is not None and following is not None and last.end < following.end and not kernel.plan.counts_events:
            state, positions = kernel.advance(state, following.end - 1, encoder.codes())
            found += listed(positions)
        state, memory, encoder = restore(save(state)), encoder.save(), encoder_of(kernel)
        encoder.restore(memory)
    state, positions = kernel.advance(state, END_OF_TIME, encoder.codes())
    return sorted(found + listed(positions))


def agrees(rng: random.Random, most: int) -> None:
    """Every evaluator of a random query with absences, over events with duration cut anywhere."""
    text, rows = random_absences.query(rng), random_absences.rows(rng, rng.randint(6, most))
    note(f"{text}\n{rows}")
    stream = stream_of(rows)
    query = bound(text, stream)
    expected = by_oracle(query, stream)
    everywhere = range(1, len(stream.events))
    for evaluator in ("tree", "stacks"):
        try:
            kernel = kernel_of(query, stream, evaluator=evaluator)
        except CepheidError:
            assert evaluator == "stacks"
            continue
        for cuts in ([], sorted(rng.sample(everywhere, rng.randrange(len(rows)))), list(everywhere)):
            assert found_by(kernel, stream, cuts) == expected, (evaluator, cuts)


@_ANY
@given(st.randoms(use_true_random=False))
def test_absences_among_events_with_duration(rng: random.Random) -> None:
    agrees(rng, 14)


@pytest.mark.slow
@_MANY
@given(st.randoms(use_true_random=False))
def test_many_absences_among_events_with_duration(rng: random.Random) -> None:
    agrees(rng, 20)


SIMULTANEOUS = (
    "seq(a, !b, c; 5)",
    "seq(a, !b, c)",
    "seq(!b, c; 5)",
    "seq(!b, and(a, c; 5); 5)",
    "seq(a, !seq(d, b; 3), c; 5)",
    "seq(a, !and(d, b; 3), or(c, e); 5)",
    "and(seq(a, !b, c; 5), d; 3)",
    "seq(a, !b, seq(c, d; 5); 5)",
)


@pytest.mark.parametrize("event", SIMULTANEOUS)
def test_an_absence_counts_all_events_of_the_time_of_its_bound(event: str) -> None:
    """B comes after C at the same time: in a later batch, or after it in the same one."""
    for seed in range(12):
        rng = random.Random(seed)
        times = sorted(rng.choices(range(4), k=9))
        stream = stream_of([{"type": rng.choice("ABCD"), "ts": time} for time in times])
        query = bound(f"complex Q on A as a, B as b, C as c, D as d, A as e event {event}", stream)
        kernel, everywhere = kernel_of(query, stream, evaluator="tree"), list(range(1, len(stream.events)))
        for cuts in ([], *([at] for at in everywhere), everywhere):
            assert found_by(kernel, stream, cuts) == by_oracle(query, stream), (stream.events, cuts)


LAZY = {
    "disjunction": (
        "complex Q on C as x, B as y, D as z, A as w event seq(and(x, or(y, z); 5), w; 5)",
        "A1 B2 C5 A8",
        1,
    ),
    "three operands": (
        "complex Q on B as x, C as y, D as z, A as w event seq(and(x, y, z; 5), w; 9)",
        "B1 C2 A3 D6 A12",
        1,
    ),
    "sequence": ("complex Q on B as x, C as y, D as z, A as w event and(seq(x, y, z; 5), w; 9)", "B1 C2 A3 D6 A12", 2),
    "absent operator": (
        "complex Q on A as a, B as x, C as y, D as z, E as w event seq(a, !and(x, y, z; 5), w; 20)",
        "A1 B2 C3 D6 E12",
        0,
    ),
    "trailing absence": (
        "complex Q on C as x, B as y, B as z, C as v, A as w, D as n event seq(and(x, or(y, z); 5), v, w, !n; 5)",
        "A1 B2 C5 C7 A8 A9",
        4,
    ),
}
"""Each with events and the number of its matches. A round in which something could end a match comes before an event
that an inner operator still joins, and the next such round after the window of this operator."""


def events(text: str) -> list[tuple[str, int]]:
    return [(word[0], int(word[1:])) for word in text.split()]


@pytest.mark.parametrize("name", LAZY)
def test_the_window_of_an_inner_operator_ends_with_its_join(name: str) -> None:
    text, shown, count = LAZY[name]
    stream = stream_of([{"type": kind, "ts": ts} for kind, ts in events(shown)])
    query = bound(text, stream)
    expected = by_oracle(query, stream)
    assert len(expected) == count
    for shape in ("left-deep", "right-deep", "bushy"):
        kernel = kernel_of(query, stream, evaluator="tree", options={"shape": shape})
        for places in range(len(stream.events)):
            for cuts in itertools.combinations(range(1, len(stream.events)), places):
                assert found_by(kernel, stream, list(cuts)) == expected, (shape, cuts)


@pytest.mark.filterwarnings("ignore::cepheid.errors.CepheidWarning")
@pytest.mark.parametrize("name", LAZY)
def test_tables_of_several_chunks(name: str) -> None:
    """The rounds of a table are those of its chunks: events that fit no variable move the edge between them."""
    text, shown, count = LAZY[name]
    for at in range(1, len(events(shown))):
        rows = events(shown)
        rows[at:at] = [("X", rows[at - 1][1])] * 1022
        table = pa.table({"type": [kind for kind, _ in rows], "ts": [ts for _, ts in rows]})
        assert cepheid.match(text, table, evaluator="tree").num_rows == count, at
