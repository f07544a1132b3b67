"""The state of EQL over many windows: what its kernels count and hold, by name, while the same events come again with
ever new keys."""

from __future__ import annotations

import itertools
from random import Random

import pytest
from examples import examples
from kernel_harness import bound, by_kernel, encoder_of, kernel_of, stream_of

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


@pytest.mark.parametrize("kinds", ["AAABAAABAAAAAAAAABAAABAA", "AAAB" * 400 + "A" * 9])
def test_chains_that_are_cancelled_when_they_are_complete_have_room(kinds: str) -> None:
    """A chain that grows to its last event and is discarded then takes room like one that is a match."""
    stream = stream_of([{"type": kind, "ts": ts, "k": "x"} for ts, kind in enumerate(kinds)])
    query = bound(r"SELECT * FROM (A H+ \ B F) WHERE FILTER(H.k = PREV(H.k)), F.k = H.k, count(H) = 4", stream)
    kernel = kernel_of(query, stream, evaluator="successor")
    completed = [at for at in range(4, len(kinds) + 1) if set(kinds[at - 4 : at]) == {"A"}]
    assert len(by_kernel(kernel, stream, ())[0]) == len(completed)
    assert by_kernel(kernel, stream, ())[0] == by_kernel(kernel, stream, range(1, len(kinds), 7))[0]


def test_random_chains_that_are_cancelled_have_room() -> None:
    queries = (
        r"SELECT * FROM (A H+ \ B F) WHERE FILTER(H.k = PREV(H.k)), F.k = H.k, count(H) = 4",
        r"SELECT * FROM ((A H+ \ B F); C c) WHERE FILTER(H.k = PREV(H.k)), F.k = H.k, FILTER(c.k = H.k), count(H) = 3",
        r"SELECT * FROM A a; ((C c; B b) \ D d) WHERE FILTER(a.k = c.k), FILTER(b.k = c.k), d.k = c.k",
        "SELECT * FROM A H+ WHERE FILTER(H.k = PREV(H.k)), H.v > PREV(H.v), count(H) = 3",
    )
    rng = Random(11)
    for text in queries:
        for _ in range(examples(60)):
            weights = [rng.random() + 0.05 for _ in "ABCD"]
            kinds = ["A", "B", "C", "D", *rng.choices("ABCD", weights, k=rng.randrange(20, 90))]
            rows = [{"type": a, "ts": ts, "k": rng.randrange(2), "v": rng.randrange(9)} for ts, a in enumerate(kinds)]
            stream = stream_of(rows)
            kernel = kernel_of(bound(text, stream), stream, evaluator="successor")
            assert by_kernel(kernel, stream, ())[0] == by_kernel(kernel, stream, (len(rows) // 2,))[0]
