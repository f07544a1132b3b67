"""Rows that are inserted into others, against Arrow's own operations, and rows fetched from several batches."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from cepheid.engine.splicing import Selected, Splice, joined_batches
from cepheid.io.rows import TIME, TYPE, RecentRows


def _rows(seed: int, count: int) -> pa.RecordBatch:
    """Columns of every layout: numbers with and without nulls, only nulls, bits, text, lists, dictionaries."""
    rng = np.random.default_rng(seed)
    some = rng.random(count) < 0.3
    texts = [f"t{n}" for n in rng.integers(0, 5, count)]
    return pa.RecordBatch.from_pydict(
        {
            "whole": pa.array(rng.integers(0, 9, count)),
            "float": pa.array(rng.random(count), mask=some),
            "small": pa.array(rng.integers(0, 9, count), pa.int16(), mask=some),
            "when": pa.array(rng.integers(0, 9, count), pa.timestamp("us"), mask=some),
            "nothing": pa.nulls(count, pa.float64()) if seed else pa.array(rng.random(count)),
            "bit": pa.array(rng.random(count) < 0.5, mask=some),
            "text": pa.array(texts, pa.string(), mask=some),
            "list": pa.array([[n] for n in range(count)], pa.list_(pa.int64())),
            "kind": pa.array([f"k{seed % 2}{text}" for text in texts], pa.string()).dictionary_encode(),
        }
    )


@pytest.mark.parametrize("seed", range(6))
def test_spliced_rows_are_those_of_arrow(seed: int) -> None:
    rng = np.random.default_rng(seed)
    batches = [_rows(number + 1, int(rng.integers(0, 9))).slice(int(rng.integers(0, 2))) for number in range(3)]
    into = [Selected.of(batch, rng.random(batch.num_rows) < 0.7) for batch in batches]
    inserted, count = _rows(0, 5), sum(part.count for part in into)
    order, after = rng.permutation(5), np.sort(rng.integers(0, count + 1, 5))
    selected = joined_batches([part.copied() for part in into]).to_pylist()
    expected = list(selected)
    for row, at in reversed(list(zip(order.tolist(), after.tolist(), strict=True))):
        expected.insert(at, inserted.to_pylist()[row])
    spliced = Splice.of(into, inserted, order, after).rows()
    spliced.validate(full=True)
    assert spliced.to_pylist() == expected


@pytest.mark.parametrize("seed", range(6))
def test_a_split_and_a_copy_keep_the_selected_rows(seed: int) -> None:
    rng, batch = np.random.default_rng(seed), _rows(1, 20).slice(3)
    is_selected = rng.random(batch.num_rows) < rng.random()
    selected, expected = Selected.of(batch, is_selected), batch.filter(pa.array(is_selected)).to_pylist()
    assert selected.copied().to_pylist() == expected
    assert list(selected.numbers("whole")) == [row["whole"] for row in expected]
    cut = int(rng.integers(0, selected.count + 1))
    first, others = selected.split(cut)
    assert first.copied().to_pylist() == expected[:cut] and others.copied().to_pylist() == expected[cut:]


@pytest.mark.parametrize("seed", range(12))
def test_recent_rows_come_from_the_batches_that_hold_them(seed: int) -> None:
    rng = np.random.default_rng(seed)
    times = np.sort(rng.integers(0, 12, 40))
    whole = _rows(0, 40).append_column(TYPE, pa.array(["A"] * 40)).append_column(TIME, pa.array(times))
    rows, at = RecentRows(["whole", "text", "list"]), 0
    for size in rng.multinomial(40, [0.25] * 4):
        rows.add(whole.slice(at, int(size)))
        at += int(size)
    before = int(rng.integers(0, 30))
    rows.forget(before)
    assert rows.first <= np.searchsorted(times, times[before])  # events of one time stay together
    positions = pa.array(rng.integers(before, 40, 15), mask=rng.random(15) < 0.3 * (seed % 2))
    expected = whole.select(["whole", "text", "list"]).take(positions).to_pylist()
    assert rows.take(["whole", "text", "list"], positions).to_pylist() == expected
    there = np.asarray(positions.drop_null())
    assert list(rows.numbers("whole", there)) == [whole["whole"][int(p)].as_py() for p in there]
    assert list(rows.ticks(there)) == list(times[there])
    assert list(rows.first_of_time(there)) == list(np.searchsorted(times, times[there]))
    assert rows.take(["whole"], pa.array([], pa.int64())).num_rows == 0


def test_a_forgotten_batch_leaves_only_the_rows_that_matter() -> None:
    """Fetching rows would otherwise cost as much as the batch is large."""
    rows = RecentRows([])
    rows.add(pa.RecordBatch.from_pydict({TYPE: ["A"] * 1000, TIME: list(range(1000))}))
    rows.forget(990)
    assert (rows.first, sum(batch.num_rows for batch in rows.batches)) == (990, 10)
