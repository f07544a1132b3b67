"""A step stops where its output is large, and the next one goes on: memory holds a piece of the matches."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from kernel_harness import bound, encoder_of, kernel_of, stream_of

from cepheid.kernels.stacks import scan
from cepheid.kernels.tree import evaluator as tree
from cepheid.runtime.kernel import counters

SEQUENCE = "EVENT SEQ(A a, B b, C c) WHERE [k] WITHIN 60 events"
TRAILING = "EVENT SEQ(A a, B b, !(D d)) WHERE [k] WITHIN 60"
CASES = {
    "stacks": (SEQUENCE, "stacks", {}),
    "basic": (SEQUENCE, "stacks", {"algorithm": "basic"}),
    "trailing negation": (TRAILING, "stacks", {}),
    "tree": (SEQUENCE, "tree", {}),
    "closure": ("PATTERN A a; B+; C c WHERE a.k = c.k WITHIN 30", "tree", {}),
}
LARGE = 100
EVENTS = 600
FEWER = {"basic": 250}
"""Of the algorithm whose work grows with the cube of the events."""


@pytest.mark.parametrize("name", CASES)
def test_a_step_stops_where_its_output_is_large(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text, evaluator, options = CASES[name]
    draw, count = random.Random(7), FEWER.get(name, EVENTS)
    stream = stream_of([{"type": draw.choice("ABCABCABCD"), "ts": i, "k": draw.randrange(3)} for i in range(count)])
    query = bound(text, stream)
    whole = kernel_of(query, stream, evaluator=evaluator, options=options)
    batch = encoder_of(whole).encode(stream.table)
    state, expected = whole.step(whole.initial(), batch)
    assert whole.consumed(state, batch) == count

    monkeypatch.setattr(tree, "_CHUNK", 64)
    for module in (scan, tree):
        monkeypatch.setattr(module, "LARGE_OUTPUT", LARGE)
    kernel = kernel_of(query, stream, evaluator=evaluator, options=options)
    state_in_parts, values, taken, at = kernel.initial(), [], [0], 0
    while at < count:
        state_in_parts, positions = kernel.step_part(state_in_parts, batch.cut(at, count))
        at += kernel.consumed(state_in_parts, batch)
        taken.append(at)
        values.append(positions.values)
    assert [value for part in values for value in part] == list(expected.values)
    assert all(first < second for first, second in pairwise(taken))
    assert all(len(part) >= LARGE for part in values[:-1])
    assert len(values) > 5 and sum(map(len, values)) > 5 * LARGE
    if evaluator == "stacks":
        assert counters(state_in_parts) == counters(state)
        # Without the matches of its last event, a part is not large.
        width = len(kernel.steps)
        for part in values[:-1]:
            last = part.reshape(-1, width)[:, -1]
            assert name == "trailing negation" or len(part[: width * int((last < last[-1]).sum())]) < LARGE

    step_state, found = kernel.step(kernel.initial(), batch)
    assert list(found.values) == list(expected.values)
    assert (found.bounds is None) == (expected.bounds is None)
    if found.bounds is not None and expected.bounds is not None:
        assert list(found.bounds) == list(expected.bounds)
    assert counters(step_state)["matches"] == counters(state)["matches"] == len(expected)
    assert counters(step_state)["events"] == count
