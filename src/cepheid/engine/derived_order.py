"""The order of derived events with equal ends: by arrival, start, and the positions of their events."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

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


def match_orders(columns: Mapping[str, pa.Array]) -> pa.ListArray:
    """The order of each match among those with its end and start, as a list: the positions of its events, -1, and the
    numbers of events of each variable (see `match_order`)."""
    groups = _groups(columns)
    sizes = np.sum([lengths for _, lengths in groups], axis=0) + 1 + len(groups)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    orders = np.full(offsets[-1], -1, np.int64)
    filled = offsets[:-1].copy()
    for values, lengths in groups:
        orders[_places(filled, lengths)] = values
        filled += lengths
    for number, (_, lengths) in enumerate(groups, 1):
        orders[filled + number] = -lengths
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.array(orders))


def order_permutation(end: Array, start: Array, orders: pa.ListArray) -> Array:
    """The order of matches by end, start and `match_orders`. Only those with equal ends and starts are compared by
    their events."""
    order: Array = np.lexsort((start, end))
    is_equal = (end[order][1:] == end[order][:-1]) & (start[order][1:] == start[order][:-1])
    if is_equal.any():
        at = np.flatnonzero(np.concatenate([is_equal, [False]]) | np.concatenate([[False], is_equal]))
        tied = order[at]
        compared = orders.take(pa.array(tied))
        lengths = np.asarray(compared.value_lengths(), np.int64)
        # A shorter list has -1 before any later column, so what fills it up is never compared.
        table = np.zeros((len(tied), lengths.max()), np.int64)
        table.ravel()[_places(np.arange(len(tied)) * table.shape[1], lengths)] = np.asarray(compared.flatten())
        order[at] = tied[np.lexsort((*reversed(table.T), start[tied], end[tied]))]
    return order


def events_of_orders(orders: pa.ListArray) -> tuple[Array, Array]:
    """The positions of the events of some matches, one after the other, and where those of each begin and end."""
    values, offsets = np.asarray(orders.flatten(), np.int64), np.asarray(orders.offsets, np.int64)
    offsets = offsets - offsets[0]
    negative = np.flatnonzero(values < 0)
    lengths = negative[np.searchsorted(negative, offsets[:-1])] - offsets[:-1]
    return values[_places(offsets[:-1], lengths)], np.concatenate([[0], np.cumsum(lengths)])


def _places(starts: Array, lengths: Array) -> Array:
    """The places of rows of these lengths that begin there."""
    before = np.cumsum(lengths) - lengths
    places: Array = np.arange(lengths.sum()) + np.repeat(starts - before, lengths)
    return places


def _match_keys(columns: Mapping[str, pa.Array]) -> list[Array]:
    """The positions of the events of each match, variable by variable, then the number of events of each, more first.
    Lists of different lengths are filled up with -1, which comes before every position."""
    groups = _groups(columns)
    count = len(groups[0][1])
    totals = np.sum([lengths for _, lengths in groups], axis=0)
    table = np.full((count, int(totals.max(initial=0))), -1, np.int64)
    filled = np.arange(count) * table.shape[1]
    for values, lengths in groups:
        table.ravel()[_places(filled, lengths)] = values
        filled += lengths
    return [*table.T, *(-lengths for _, lengths in groups)]


def _groups(columns: Mapping[str, pa.Array]) -> list[tuple[Array, Array]]:
    """The positions of the events of each variable, one match after the other, and how many each match has."""
    return [
        (np.asarray(c.flatten(), np.int64), np.asarray(c.value_lengths().fill_null(0), np.int64))
        if pa.types.is_list(c.type)
        else (np.asarray(c.drop_null(), np.int64), np.asarray(c.is_valid()).astype(np.int64))
        for c in columns.values()
    ]
