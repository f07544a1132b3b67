"""Streams of events with duration, cut anywhere, give the matches of the reference for queries with absences, most
of them trailing, and with windows in windows."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest
import random_absences
from differential import compiled, difference

import cepheid
from cepheid.errors import CepheidError

pytestmark = pytest.mark.filterwarnings("ignore::cepheid.errors.CepheidWarning")


def agrees(text: str, rng: random.Random, streams: int) -> bool:
    """Whether the query is accepted: then table and streams give the matches of the reference."""
    table = pa.Table.from_pylist(random_absences.rows(rng, rng.randint(8, 16)))
    with compiled(always=False):
        try:
            expected = cepheid.match(text, table, start_column="began", evaluator="reference")
            verified = cepheid.verify(text, table, start_column="began", streams=streams, seed=rng.randrange(1000))
        except CepheidError as refusal:
            assert "no evaluator can run" in str(refusal) or "duration" in str(refusal), f"{text}: {refusal}"
            return False
        found = cepheid.match(text, table, start_column="began")
    assert difference(expected, found, types=False) is None, (text, table.to_pylist())
    assert verified.agrees, (text, table.to_pylist(), str(verified))
    return True


@pytest.mark.parametrize("seed", range(5))
def test_absences(seed: int) -> None:
    rng = random.Random(seed)
    assert sum(agrees(random_absences.query(rng), rng, 2) for _ in range(3))


@pytest.mark.parametrize("seed", range(3))
def test_absences_of_complex_events_by_name(seed: int) -> None:
    rng = random.Random(seed)
    assert sum(agrees(random_absences.composed(rng), rng, 2) for _ in range(3))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 140))
def test_many_absences(seed: int) -> None:
    rng = random.Random(seed)
    assert sum(agrees(random_absences.query(rng), rng, 4) for _ in range(6))
    assert sum(agrees(random_absences.composed(rng), rng, 4) for _ in range(4))
