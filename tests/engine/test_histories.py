"""EQL over derived events: among those of one time, the complete history decides (NEXT §3.2)."""

from __future__ import annotations

import random
from collections import Counter

import pyarrow as pa
import pytest
from simulation_harness import cut

import cepheid
from cepheid.engine.prepare import RunOptions
from cepheid.errors import NotAvailable
from cepheid.io.inputs import Columns
from cepheid.lang import parse
from cepheid.streaming.planning import StreamSource, plan_stream
from cepheid.streaming.reader import RowReader
from cepheid.streaming.simulation import Simulation

SCHEMA = pa.schema([("type", pa.string()), ("ts", pa.int64()), ("n", pa.int64())])
SCRIPTS = {
    "combinations": "P: EVENT SEQ(A a, B b, C c) WITHIN 9\nQ: SELECT * FROM D; P",
    "of different lengths": "P: EVENT SEQ(A a, C c) WITHIN 9\nR: EVENT SEQ(A a, B b, C c) WITHIN 9\n"
    "Q: SELECT * FROM D; (P | R)",
    "a closure": "P: PATTERN SEQ(A a, B+ b[], C c) WHERE skip_till_any_match(a, b[], c) { a.n >= 0 } WITHIN 7\n"
    "Q: SELECT * FROM D; P",
    "beside events": "P: EVENT SEQ(A a, C c) WITHIN 9\nQ: SELECT * FROM D; (P | C)",
    "an iteration": "P: EVENT SEQ(A a, B b) WITHIN 5\nQ: SELECT * FROM (P+; C) WHERE (P, C) OCCURS WITHIN 12",
    "a sequence": "P: EVENT SEQ(A a, B b) WITHIN 6\nQ: SELECT * FROM D; (P; C)",
    "timers": "P: SELECT A.n AS n FROM (A @ 3); B\nR: SELECT A.n AS n FROM A; B\nQ: SELECT * FROM D; (P | R)",
    "a timer at the end": "P: SELECT A.n AS n FROM (A; B) @ 2\nR: EVENT SEQ(A a, C c) WITHIN 9\n"
    "Q: SELECT * FROM D; (P | R)",
    "timers in an iteration": "P: SELECT count(A) AS n FROM (A @ 1)+\nQ: SELECT * FROM D; (P; C)",
    "a timer on durations": "P: EVENT SEQ(A a, B b) WITHIN 9\nQ: SELECT * FROM D; ((A @ 2) | P | (B; C))",
    "three levels": "P: EVENT SEQ(A a, B b) WITHIN 6\nR: EVENT SEQ(P p, C c) WITHIN 12\nQ: SELECT * FROM D; R",
    "through EQL": "P: EVENT SEQ(A a, B b) WITHIN 6\nR: SELECT C.n AS n FROM P; C\nQ: SELECT * FROM D; (R | C)",
    "conjunctions": "P: PATTERN A & B & C WITHIN 5\nQ: SELECT * FROM D; P",
}


def _events(rng: random.Random, count: int) -> pa.Table:
    at, rows = 0, []
    for number in range(count):
        at += rng.choice((0, 1, 1, 2))
        rows.append({"type": rng.choice("AABBCCD"), "ts": at, "n": number})
    return pa.Table.from_pylist([{"type": "D", "ts": -1, "n": -1}, *rows], SCHEMA)


def _multiset(rows: list[dict[str, object]]) -> Counter[str]:
    return Counter(str(sorted(row.items())) for row in rows)


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_complete_history_of_a_derived_event_decides(name: str) -> None:
    rng, script, found = random.Random(name), SCRIPTS[name], 0
    attributes = {kind: {field.name: field.type for field in SCHEMA} for kind in "ABCD"}
    source = StreamSource(RowReader(SCHEMA, Columns()), attributes)
    for _ in range(6):
        events = _events(rng, rng.randint(8, 16))
        defined = _multiset(cepheid.match(script, events, evaluator="reference").to_pylist())
        assert _multiset(cepheid.match(script, events).to_pylist()) == defined
        delay = rng.choice((0, 2, 5))
        plan = plan_stream({"q": parse(script)}, source, delay, RunOptions(), order=("n",), buckets=2)
        matches = Simulation(plan).run(cut(rng, events.to_pylist(), delay, SCHEMA)).matches["q"]
        assert _multiset([row for batch in matches for row in batch.to_pylist()]) == defined
        found += defined.total()
    assert found


def test_a_timer_after_an_iteration_inside_another_one_is_refused_where_its_moment_decides() -> None:
    events = pa.Table.from_pylist([{"type": kind, "ts": ts, "n": ts} for ts, kind in enumerate("DAABC")], SCHEMA)
    script = "P: SELECT count(A) AS n FROM ((A+) @ 1)+\nQ: SELECT * FROM D; P"
    with pytest.raises(NotAvailable, match="a timer after an iteration inside another one"):
        cepheid.match(script, events)


@pytest.mark.slow
def test_machine_code_reads_histories() -> None:
    """So many events that the kernel is compiled. In each block, the successor is the event with the earlier `B`."""
    rows = [{"type": kind, "ts": 10 * n + ts, "n": ts} for n in range(5_000) for ts, kind in enumerate("DABBC")]
    script = "P: EVENT SEQ(A a, B b, C c) WITHIN 9\nQ: SELECT P.b.n AS b FROM D; P WHERE (D, P) OCCURS WITHIN 9"
    found = cepheid.match(script, pa.Table.from_pylist(rows, SCHEMA))
    assert found.column("b").to_pylist() == [2] * 5_000
