"""The records and chains of the stacks evaluator, and what happens when its output is longer than expected."""

from __future__ import annotations

import numpy as np
import pytest
from kernel_harness import bound, by_kernel, by_oracle, kernel_of, stream_of

from cepheid.kernels.instance_stack import Record, chain_of, rehashed_chains, relaid, used_chains
from cepheid.runtime.arrays import as_float, float_word


@pytest.mark.parametrize("value", [0.0, -1.5, 1e300, float("inf")])
def test_floats_lie_among_integers(value: float) -> None:
    cells = np.zeros(1, np.int64)
    cells[0] = float_word(value)
    assert as_float(cells[0]) == value


def test_records_write_the_source_that_their_docstrings_show() -> None:
    record = Record("s0", ("row", "time"), "s0")
    assert record.offsets == "S0_ROW, S0_TIME = 0, 1" and record.at("time", "i") == "s0[i + S0_TIME]"


def test_instances_keep_their_numbers_in_a_larger_stack() -> None:
    stack = np.zeros(2 * 4, np.int64)
    for j in range(5, 9):
        stack[2 * (j & 3)], stack[2 * (j & 3) + 1] = j, 10 * j
    larger = relaid(stack, 2, 5, 9, 1)
    assert len(larger) == 2 * 8
    assert [tuple(larger[2 * (j & 7) : 2 * (j & 7) + 2]) for j in range(5, 9)] == [(j, 10 * j) for j in range(5, 9)]


@pytest.mark.parametrize("width", [2, 4])
def test_chains_that_left_the_window_are_forgotten(width: int) -> None:
    chains = np.full(16 * width, -1, np.int64)
    for key, mark in [(7, 3), (23, 9), (-4, 12)]:
        at = chain_of(chains, width, key)
        chains[at : at + width] = [key, mark, 10 * mark, 20 * mark][:width]
    assert used_chains(chains, width) == 3
    larger = rehashed_chains(chains, width, 9, 20)
    assert used_chains(larger, width) == 2
    found = [list(larger[at : at + width]) for at in (chain_of(larger, width, key) for key in (23, -4))]
    assert found == [[23, 9, 90, 180][:width], [-4, 12, 120, 240][:width]]
    assert larger[chain_of(larger, width, 7) + 1] == -1


@pytest.mark.parametrize("options", [{}, {"algorithm": "basic"}, {"others": "late"}])
def test_output_that_outgrows_its_room_is_made_again(options: dict[str, str | bool]) -> None:
    """One event completes more matches than there is room for: each is given once, and the counters do not notice."""
    rows = [{"type": "A" if i < 60 else "B", "ts": i, "v": i % 7} for i in range(100)]
    stream = stream_of(rows)
    query = bound("EVENT SEQ(A x, B y) WHERE x.v <= y.v WITHIN 200", stream)
    found, counted = by_kernel(kernel_of(query, stream, options=options), stream)
    assert sorted(found) == by_oracle(query, stream)
    assert len(found) > 1024
    assert (counted["events"], counted["matches"], counted["predicates"]) == (100, len(found), 60 * 40)
