"""The state of EQL over many windows: what its kernels count and hold, by name, while the same events come again with
ever new keys."""

from __future__ import annotations

import itertools

import pytest
from kernel_harness import bound, encoder_of, kernel_of, stream_of

from cepheid.runtime.kernel import counters, operator_counts, restore, save

WINDOW, SETTLING, WATCHED = 1000, 35, 20
"""The length of the window, the number of windows after which no array grows, and the number of windows after these."""
KINDS = "AACBABBCAB" * 20
QUERIES = {
    "sequence": "SELECT * FROM A x; B y WHERE FILTER(x.id = y.id), (x, y) OCCURS WITHIN 1000",
    "iteration": "SELECT * FROM A x; B y+ WHERE FILTER(x.id = y.id), FILTER(y.id = PREV(y.id)), "
    "(x, y) OCCURS WITHIN 1000",
    "timer": "SELECT * FROM A x @ 1000",
    "exception": r"SELECT * FROM (A x @ 1000) \ B y WHERE x.id = y.id",
    "exception of a sequence": r"SELECT * FROM (A x; C z) \ B y WHERE x.id = y.id, FILTER(x.id = z.id), "
    "(x, z) OCCURS WITHIN 1000",
}


def _rows(window: int) -> list[dict[str, object]]:
    """The events of one window: those of the window before, with other keys."""
    step = WINDOW // len(KINDS)
    return [
        {"type": kind, "ts": window * WINDOW + step * at, "id": 1000 * window + at // 10 * 4 + at * at % 4}
        for at, kind in enumerate(KINDS)
    ]


@pytest.mark.parametrize("name", QUERIES)
def test_the_state_is_flat_and_each_window_costs_the_same(name: str) -> None:
    stream = stream_of([row for window in range(SETTLING + WATCHED) for row in _rows(window)])
    kernel = kernel_of(bound(QUERIES[name], stream), stream, evaluator="successor")
    encoder, state = encoder_of(kernel), kernel.initial()
    counted: list[dict[str, int]] = []
    held: list[dict[str, int]] = []
    for window in range(SETTLING + WATCHED):
        batch = stream.table.slice(window * len(KINDS), len(KINDS))
        state, _ = kernel.step(state, encoder.encode(batch))
        state = restore(save(state))
        work = {f"made by {of}": counts.made for of, counts in operator_counts(kernel, state).items()}
        tried = {f"tried by {of}": counts.tried or 0 for of, counts in operator_counts(kernel, state).items()}
        counted.append({**counters(state), **work, **tried})
        held.append({array.name: len(values) for array, values in zip(kernel.arrays, state, strict=True)})
    added = [{key: after[key] - before[key] for key in after} for before, after in itertools.pairwise(counted)]
    assert {one["events"] for one in added} == {len(KINDS)}
    assert len({(one["matches"], one["predicates"], one["dropped_by_mask"]) for one in added[1:]}) == 1
    assert added[SETTLING]["matches"] > 0
    assert {one["peak_retained"] for one in added[SETTLING:]} == {0}
    for measured in (added, held):  # dead records are reclaimed together, so some windows cost less than others
        for key in measured[0]:
            settled, watched = (max(one[key] for one in part) for part in (measured[:SETTLING], measured[SETTLING:]))
            assert watched <= settled, key
