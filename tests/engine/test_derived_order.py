"""The order and the identities of derived events by columns are those by their definition, match by match."""

from __future__ import annotations

import itertools
import math
import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from cepheid.engine.derived_order import events_of_orders, match_orders, match_permutation, order_permutation
from cepheid.engine.first_identities import first_of_each
from cepheid.engine.positions import match_order


def groups_of(columns: dict[str, pa.Array]) -> list[list[list[int]]]:
    """The events of each match by variable."""
    rows = zip(*(column.to_pylist() for column in columns.values()), strict=True)
    return [[at if isinstance(at, list) else [] if at is None else [at] for at in row] for row in rows]


@pytest.mark.parametrize("seed", range(40))
def test_matches_are_in_the_order_of_their_definition(seed: int) -> None:
    rng = random.Random(seed)
    count = rng.choice((0, 1, 30))
    one = pa.array([rng.choice((None, *range(4))) for _ in range(count)], pa.int64())
    many = [rng.choice((None, [rng.randrange(4) for _ in range(rng.randrange(4))])) for _ in range(count)]
    columns = {"a": one, "b": pa.array([None, *many], pa.list_(pa.int64())).slice(1)}
    start, end, arrival = (np.array([rng.randrange(2) for _ in range(count)], np.int64) for _ in range(3))
    groups = groups_of(columns)
    orders = match_orders(columns)
    by_definition = sorted(range(count), key=lambda row: (end[row], start[row], *match_order(groups[row])))
    assert order_permutation(end, start, orders).tolist() == by_definition
    events, bounds = events_of_orders(orders)
    listed = [events[first:last].tolist() for first, last in itertools.pairwise(bounds)]
    assert listed == [list(itertools.chain(*of_match)) for of_match in groups]
    by_arrival = sorted(range(count), key=lambda r: (end[r], arrival[r], start[r], *match_order(groups[r])))
    order = match_permutation(columns, start, end, arrival, True)
    assert (list(range(count)) if order is None else order.tolist()) == by_arrival


IDENTITIES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "integers": (pa.int64(), [1, 2, None]),
    "strings": (pa.string(), ["", "a", "b", None]),
    "codes": (pa.dictionary(pa.int32(), pa.string()), ["a", "b", None]),
    "floats": (pa.float64(), [0.0, -0.0, 1.5, math.nan, None]),
    "lists": (pa.list_(pa.string()), [["a"], ["a", None], [], None]),
    "flags": (pa.bool_(), [True, False, None]),
    "octets": (pa.binary(), [b"", b"a", None]),
    "nothing": (pa.null(), [None]),
}


@pytest.mark.parametrize("kind", IDENTITIES)
def test_the_first_event_of_each_identity_counts(kind: str) -> None:
    """Equal floats are one identity, NaN and null are none."""
    rng, (type_, choices) = random.Random(kind), IDENTITIES[kind]
    seen: set[Any] = set()
    earlier: list[Any] = []
    for _ in range(6):
        values = [rng.choice(choices) for _ in range(rng.randrange(5))]
        expected = []
        for value in values:
            expected.append(value is None or value not in earlier or value != value)
            earlier.append(value)
        batch = pa.concat_arrays([pa.array(choices, type_).slice(0, 0), pa.array(values, type_)])
        assert first_of_each(batch, seen).tolist() == expected
