"""Failed detections are counted as many as are shown: groups of chains count only those that OCCURS WITHIN has not
dropped."""

from __future__ import annotations

from random import Random

import pytest
from kernel_harness import Stream, bound, encoder_of, kernel_of, listed, stream_of

from cepheid.kernels.successor import failed_detections
from cepheid.runtime.kernel import END_OF_TIME, Kernel

QUERIES = (
    "SELECT * FROM A a+; B b WHERE FILTER((a, b) OCCURS WITHIN 2), b.k > 5",
    "SELECT * FROM A a+; B b WHERE FILTER((a, b) OCCURS WITHIN 2), a.k + b.k > 0",
    "SELECT * FROM A a+; B b WHERE (a, b) OCCURS WITHIN 3, b.k = 1",
    "SELECT * FROM A a+; B b; C c WHERE (a, c) OCCURS WITHIN 1, (a, c) OCCURS WITHIN 4, b.k = 1",
    "SELECT * FROM A a+; B b; C c WHERE (b, c) OCCURS WITHIN 1, (a, b) OCCURS WITHIN 3, b.k = 1",
    "SELECT * FROM A a+; (B b; C c) WHERE (a, b) OCCURS WITHIN 2",
    "SELECT * FROM A a+; (B b; C c) WHERE (a, b) OCCURS WITHIN 2, (a, c) OCCURS WITHIN 5",
    "SELECT * FROM A a+; (B b @ 1) WHERE (a, b) OCCURS WITHIN 3, a.k + b.k > 0",
    "SELECT * FROM A a+; (B b; C c) WHERE FILTER((a, c) OCCURS WITHIN 4), b.k + c.k > 0",
)


def failures(kernel: Kernel, stream: Stream) -> tuple[int, int]:
    """How many rows of output there are, and how many failed detections are counted."""
    encoder = encoder_of(kernel)
    state, positions = kernel.step(kernel.initial(), encoder.encode(stream.table))
    state, last = kernel.advance(state, END_OF_TIME, encoder.codes())
    return len(listed(positions)) + len(listed(last)), failed_detections(kernel, state)


@pytest.mark.parametrize("text", QUERIES)
def test_as_many_failed_detections_are_counted_as_shown(text: str) -> None:
    found = 0
    for seed in range(15):
        rng = Random(seed)
        times = sorted(rng.choices(range(12), k=10))
        stream = stream_of([{"type": rng.choice("AAABBC"), "ts": ts, "k": rng.randrange(2)} for ts in times])
        query = bound(text, stream)
        shown, counted = failures(kernel_of(query, stream, options={"failures": "rows"}), stream)
        _, counted_alone = failures(kernel_of(query, stream), stream)
        assert shown == counted == counted_alone, (text, stream.events)
        found += shown
    assert found
