"""The order of derived events with equal ends: by arrival, start, and the positions of their events."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from cepheid.engine.positions import match_order
from cepheid.runtime.kernel import Array


def match_permutation(
    columns: Mapping[str, pa.Array], start: Array, end: Array, arrival: Array, exact: bool
) -> Array | None:
    """By end and arrival, then by start, then by the positions of the events (see `match_order`). None if they are in
    that order or, unless it must be `exact`, in the order of their ends and arrivals."""
    is_later, is_same = end[1:] > end[:-1], end[1:] == end[:-1]
    if np.all(is_later | (is_same & (arrival[1:] > arrival[:-1] if exact else arrival[1:] >= arrival[:-1]))):
        return None
    order = np.lexsort((start, arrival, end))
    is_tied = [values[order][1:] == values[order][:-1] for values in (end, arrival, start)]
    if not exact or not np.logical_and.reduce(is_tied).any():
        return order
    return np.lexsort((*reversed(_match_keys(columns)), start, arrival, end))


def match_orders(columns: Mapping[str, pa.Array]) -> pa.Array:
    """The order of each match among those with its end and start, as a list: see `match_order`."""
    orders = []
    for bound in zip(*(column.to_pylist() for column in columns.values()), strict=True):
        groups = [at if isinstance(at, list) else [] if at is None else [at] for at in bound]
        events, counts = match_order(groups)
        orders.append([*events, -1, *counts])
    return pa.array(orders, pa.list_(pa.int64()))


def events_of_order(order: list[int]) -> list[int]:
    """The positions of the events of a match (see `match_orders`)."""
    return order[: order.index(-1)]


def _match_keys(columns: Mapping[str, pa.Array]) -> list[Array]:
    """The positions of the events of each match, variable by variable, then the number of events of each, more first.
    Lists of different lengths are filled up with -1, which comes before every position."""
    groups = [
        (np.asarray(c.flatten()), np.asarray(c.value_lengths().fill_null(0), np.int64))
        if pa.types.is_list(c.type)
        else (np.asarray(c.drop_null()), np.asarray(c.is_valid()).astype(np.int64))
        for c in columns.values()
    ]
    count = len(groups[0][1])
    totals = np.sum([lengths for _, lengths in groups], axis=0)
    table = np.full((count, int(totals.max(initial=0))), -1, np.int64)
    filled = np.zeros(count, np.int64)
    for values, lengths in groups:
        rows = np.repeat(np.arange(count), lengths)
        within = np.arange(len(values)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        table[rows, filled[rows] + within] = values
        filled += lengths
    return [*table.T, *(-lengths for _, lengths in groups)]
