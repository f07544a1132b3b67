"""The successor evaluator is held to the oracle, however the stream is cut; an event visits only the instances of its
key."""

from __future__ import annotations

from random import Random

import pytest
import random_eql
from hypothesis import given, reject, settings
from hypothesis import strategies as st
from kernel_harness import bound, by_kernel, by_oracle, encoder_of, kernel_of, require_machine_code_agrees, stream_of

from cepheid.errors import NameProblem, NotAvailable
from cepheid.runtime.kernel import operator_counts


@settings(max_examples=150, deadline=None)
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
    ],
)
def test_machine_code_agrees(text: str) -> None:
    stream = stream_of(random_eql.rows(Random(5), 60))
    query = bound(text, stream)
    require_machine_code_agrees(query, stream, "successor", [7, 8, 30])


def _visits(keys: int) -> int:
    """The instances that 500 events of one key visit while `keys` others wait."""
    waiting = [{"type": "A", "ts": i, "k": i} for i in range(keys)]
    ours = [{"type": "AB"[i % 2], "ts": keys + i, "k": -1} for i in range(1000)]
    stream = stream_of([*waiting, *ours])
    query = bound("SELECT * FROM A; B WHERE FILTER(A.k = B.k)", stream)
    kernel = kernel_of(query, stream, evaluator="successor")
    state, _ = kernel.step(kernel.initial(), encoder_of(kernel).encode(stream.table))
    (counts,) = operator_counts(kernel, state).values()
    assert counts.made == 500
    assert counts.tried is not None
    return counts.tried


def test_instances_of_other_keys_are_not_visited() -> None:
    assert _visits(1_000) == _visits(100_000) == 500
