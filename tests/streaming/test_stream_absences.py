"""Streams of events with duration, cut anywhere, give the matches of the reference for queries with absences, most
of them trailing, with windows in windows, and with what is remembered for longer than a window."""

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


SOURCES = "source A schema int id, double v, string name\nsource B schema int id\n"
HELD = (
    "primitive P on A as s, node schema event_id as s.name, id as s.id\n"
    "complex Q on B as b, P as p event or(b, p) where b.id = p.id",
    "primitive P on A as s, node schema id as s.id, name as s.name\n"
    "complex D on P as p, P as q schema event_id as p.name, id as q.id event seq(p, q; 3)\n"
    "complex Q on D as d, D as e, B as b event or(d, seq(e, b; 4))",
    "complex Busy on A as a event count(a; 50) > 2\ncomplex Q on Busy as b event b",
    "complex Busy on A as a event sum(a.v; 40) > 3 group by a.id\n"
    "complex Q on Busy as x, B as b event seq(x, b; 6) where x.id = b.id",
)


@pytest.mark.parametrize("query", HELD)
def test_what_is_remembered_outlives_the_windows_of_patterns(query: str) -> None:
    """Pauses longer than all windows of patterns, while an `event_id` may come again, or a count goes on."""
    rng, found = random.Random(query), 0
    for _ in range(4):
        at, rows = 0, []
        for _ in range(24):
            at += rng.choice((1, 1, 2, 9, 15))
            kind = {"type": rng.choice("AAB"), "id": rng.choice((1, 2)), "v": rng.choice((1.0, 2.0))}
            rows.append({**kind, "name": rng.choice(("p", "q", "r", None)), "ts": at})
        rows += [{"type": kind, "id": 1, "v": 1.0, "name": "p", "ts": at + 40} for kind in "AB"]
        verified = cepheid.verify(SOURCES + query, pa.Table.from_pylist(rows), streams=6, time_unit="ms")
        assert verified.agrees, verified
        found += verified.matches
    assert found
