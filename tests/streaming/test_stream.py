"""Streams without Spark: what a bucket does with events, time and state, for any cut, any allowed disorder and a
restart at every batch. tests/test_spark_stream.py runs the same code on Spark."""

from __future__ import annotations

import io
import json
import os
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from golden_cases import Case, all_cases
from simulation_harness import EQL_QUERIES, QUERIES, SCHEMA, TYPES, batch, cut, event, multiset, random_rows

import cepheid
from cepheid.api import read_output
from cepheid.app.file_run import FileRun
from cepheid.engine.prepare import RunOptions
from cepheid.engine.query_text import QueryText, declared_types
from cepheid.errors import CepheidError, Explosion, InputProblem, NotAvailable
from cepheid.events import TIMESTAMP_CLOCK, Clock, Schema
from cepheid.io.inputs import Columns, Input
from cepheid.io.stream_files import StreamFiles
from cepheid.lang import parse
from cepheid.runtime.kernel import END_OF_TIME
from cepheid.spark.bucket_groups import group_numbers, spark_hashes
from cepheid.spark.stream import buckets_of
from cepheid.streaming import bucket_state
from cepheid.streaming import state as stream_state
from cepheid.streaming.bucket import Bucket
from cepheid.streaming.bucket_context import BucketContext
from cepheid.streaming.checkpoint import Checkpoint
from cepheid.streaming.pack import bucket_numbers, pack
from cepheid.streaming.plan import StreamPlan
from cepheid.streaming.planning import StreamSource, plan_stream
from cepheid.streaming.reader import RowReader
from cepheid.streaming.simulation import Simulated, Simulation
from cepheid.streaming.sinks import FileSink, as_json_lines
from cepheid.streaming.state import STATE_FORMAT
from cepheid.streaming.storage import LocalDirectory
from cepheid.streaming.time import EventTime, parse_duration


def planned(
    queries: dict[str, str] | str,
    watermark: int = 0,
    *,
    schema: pa.Schema = SCHEMA,
    clock: Clock = Clock("ms"),  # noqa: B008
    order: Sequence[str] = ("n",),
    buckets: int = 4,
) -> StreamPlan:
    named = {"q": queries} if isinstance(queries, str) else queries
    source = StreamSource(RowReader(schema, Columns()), {kind: {f.name: f.type for f in schema} for kind in TYPES})
    parsed = {name: parse(text) for name, text in named.items()}
    return plan_stream(parsed, source, watermark, RunOptions(time_unit=clock.unit), order=order, buckets=buckets)


# --- parity -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", [*QUERIES, *EQL_QUERIES])
def test_any_cut_and_disorder_and_a_restart_at_every_batch_give_the_batch_result(text: str) -> None:
    rng = random.Random(text)
    for _ in range(6):
        rows, delay = random_rows(rng), rng.choice((0, 3, 7))
        expected = multiset(cepheid.match(text, pa.Table.from_pylist(rows, SCHEMA), time_unit="ms"))
        simulated = Simulation(planned(text, delay)).run(cut(rng, rows, delay))
        assert not simulated.late
        assert multiset(simulated.matches["q"]) == expected


def test_the_first_and_last_value_of_a_summary_do_not_depend_on_the_arrival_of_events_of_one_time() -> None:
    rows = [event("A", 1, n=number) for number in (2, 0, 1)] + [event("B", 4, n=3)]
    query = "EVENT SEQ(A x, B y) WHERE [id] WITHIN 6 RETURN count(*) AS c, first(x.n) AS f, last(x.n) AS l"
    (made,) = Simulation(planned(query, 5)).run([batch(rows[:2]), batch(rows[2:])]).matches["q"]
    assert [(row["f"], row["l"]) for row in made.to_pylist()] == [(0, 2)]


def golden_lines(case: Case, directory: Path) -> Counter[str]:
    options = RunOptions(params=case.params, time_unit=case.headers.get("unit"))
    inputs, query = [Input(str(directory))], QueryText(case.query)
    written = io.BytesIO()
    FileRun.open(query, query.parse(), inputs, Columns(), options, "reference").write(written, "jsonl")
    return Counter(written.getvalue().decode().splitlines())


GOLDEN = [case for case in all_cases() if case.matches is not None and not parse(case.query).consumes]
"""Streams refuse `consume once`: its matches are chosen among all of them."""


@pytest.mark.parametrize("language", sorted({case.language for case in GOLDEN}))
def test_golden_cases_as_files_of_a_stream(language: str, tmp_path: Path) -> None:
    """Every case that batch can run, from JSON Lines in several files to the very lines that batch writes."""
    rng = random.Random(language)
    for case in (case for case in GOLDEN if case.language == language):
        directory = tmp_path / case.name
        files = golden_files(case, directory, rng)
        query = parse(case.query)
        found = StreamFiles.first(str(directory), Columns(), case.headers.get("unit"), declared_types(query), True)
        if found is None:
            assert not golden_lines(case, directory)
            continue
        options, source = (
            RunOptions(params=case.params, time_unit=case.headers.get("unit")),
            StreamSource.of_files(found, [query]),
        )
        plan = plan_stream({"q": query}, source, 0, options, order=found.order, buckets=4)
        slips = [pa.RecordBatch.from_pylist([{"value": json.dumps(str(file))}]) for file in files]
        simulated = Simulation(plan).run(slips)
        lines = [as_json_lines(pa.Table.from_batches([rows])).decode() for rows in simulated.matches["q"]]
        assert Counter("".join(lines).splitlines()) == golden_lines(case, directory), case.name


def golden_files(case: Case, directory: Path, rng: random.Random) -> list[Path]:
    directory.mkdir()
    rows = sorted(case.rows, key=lambda row: row[1])
    edges = sorted({0, len(rows), *(rng.randint(0, len(rows)) for _ in range(3))})
    files = []
    for number, (a, b) in enumerate(pairwise(edges) if rows else [(0, 0)]):
        files.append(directory / f"part-{number}.jsonl")
        lines = [json.dumps({"type": kind, "ts": ts, **attributes}) for kind, ts, attributes in rows[a:b]]
        files[-1].write_text("\n".join(lines) + "\n")
    return files


def test_verify_tells_whether_the_stream_is_the_batch() -> None:
    rows = random_rows(random.Random(9))
    found = cepheid.verify(QUERIES[3], pa.Table.from_pylist(rows, SCHEMA), streams=4)
    assert found.agrees and found.streams == 4 and "4 gave the" in str(found)
    moments = SCHEMA.set(1, pa.field("ts", pa.timestamp("us", "UTC")))
    table = pa.Table.from_pylist([{**row, "ts": row["ts"] * 977} for row in rows], moments)
    assert cepheid.verify("EVENT SEQ(A x, B y) WHERE [id] WITHIN 5 ms", table, streams=4).agrees


def test_verify_shows_a_stream_that_is_not_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Simulation, "run", lambda self, batches: Simulated({"query": []}, [], []))
    rows = [event("A", 1), event("B", 2)]
    found = cepheid.verify("EVENT SEQ(A x, B y) WITHIN 5", pa.Table.from_pylist(rows, SCHEMA), streams=1)
    assert not found.agrees and "1 missing, 0 too many" in str(found)


# --- late events and rejects ------------------------------------------------------------------------------------------


def run(plan: StreamPlan, *batches: Sequence[dict[str, Any]], end_of_time: bool = True) -> Simulated:
    return Simulation(plan).run([batch(rows) for rows in batches], end_of_time=end_of_time)


def test_late_events_are_given_out_and_do_not_match() -> None:
    plan = planned("EVENT SEQ(A x, B y) WHERE [id] WITHIN 50", 10)
    simulated = run(plan, [event("A", 100)], [event("A", 89), event("D", 5), event("B", 90)], [event("B", 95)])
    assert sorted(row["ts"] for rows in simulated.late for row in rows.to_pylist()) == [5, 89]
    pairs = [(row["x"]["ts"], row["y"]["ts"]) for rows in simulated.matches["q"] for row in rows.to_pylist()]
    assert pairs == []


def test_an_event_exactly_as_late_as_allowed_is_not_late() -> None:
    plan = planned("EVENT SEQ(A x, B y) WHERE [id] WITHIN 50", 10)
    simulated = run(plan, [event("B", 100)], [event("A", 90)], [event("A", 89)])
    assert [row["ts"] for rows in simulated.late for row in rows.to_pylist()] == [89]
    assert [row["x"]["ts"] for rows in simulated.matches["q"] for row in rows.to_pylist()] == [90]


def test_events_wait_no_longer_than_their_own_batch_makes_them_and_none_of_it_is_late() -> None:
    """Whether an event is late is decided by the batches before its own, but what can be released by all of them."""
    plan = planned("EVENT SEQ(A x, B y) WHERE [id] WITHIN 50", 10, buckets=1)
    rows = batch([event("B", 100), event("A", 2), event("B", 3), event("A", 95)])
    (packet,) = pack(plan, rows).packets
    bucket = Bucket.new(BucketContext(plan), packet.bucket)
    output = bucket.step([packet.rows], -END_OF_TIME, plan.time.watermark_after(packet.latest, plan.delay))
    assert output.late is None and bucket.watermark == 90
    assert [(row["x"]["ts"], row["y"]["ts"]) for _, found in output.matches for row in found.to_pylist()] == [(2, 3)]
    assert sorted(bucket.waiting.column("ts").to_pylist()) == [95, 100]


def test_a_batch_that_other_tasks_read_again_gives_the_same() -> None:
    """After a failure a batch may be read by more tasks than before, and what it gave may have been handed over."""
    rng = random.Random(7)
    rows = [event(rng.choice("ABC"), number + rng.randint(0, 3), id=rng.randint(1, 9)) for number in range(120)]
    batches = [batch(rows[start : start + 10]) for start in range(0, len(rows), 10)]

    def steps(tasks: int) -> Iterator[tuple[Counter[str], int]]:
        simulation = Simulation(planned("EVENT SEQ(A x, B y) WHERE [id] WITHIN 20", 4), tasks=tasks)
        for one in batches:
            yield multiset(simulation.run([one], end_of_time=False).matches["q"]), simulation.spark_watermark

    for first, again in zip(steps(1), steps(7), strict=True):
        assert first == again


def test_events_of_one_time_in_several_batches_are_ordered_as_in_one() -> None:
    text = "PATTERN SEQ(A a, B b) WHERE strict_contiguity(a, b) {a.id = b.id} WITHIN 5"
    rows = [event("A", 7, n=1), event("B", 7, n=2), event("A", 7, n=3), event("B", 7, n=4)]
    together = run(planned(text, 1), rows)
    apart = run(planned(text, 1), rows[2:], rows[:1], [rows[3]], [rows[1]])
    assert multiset(together.matches["q"]) == multiset(apart.matches["q"])
    assert sum(multiset(together.matches["q"]).values()) == 2


def test_without_an_order_all_columns_decide_between_events_of_one_time() -> None:
    text = "PATTERN SEQ(A a, B b) WHERE strict_contiguity(a, b) {a.id = b.id} WITHIN 5"
    rows = [event("A", 7, v=float(v), n=n) for n, v in enumerate((3, 1, 2))] + [event("B", 7, v=2.0, n=9)]
    rng = random.Random(1)
    answers = set()
    for _ in range(5):
        rng.shuffle(rows)
        simulated = run(planned(text, 1, order=()), *([row] for row in rows))
        answers.add(tuple(sorted(multiset(simulated.matches["q"]).elements())))
    assert len(answers) == 1


def test_rows_without_a_usable_time_are_rejected_with_the_reason() -> None:
    simulated = run(planned("EVENT SEQ(A x, B y) WITHIN 5"), [event("A", None), event("A", 2**62), event("A", 1)])
    reasons = [row["reason"] for rows in simulated.rejects for row in rows.to_pylist()]
    assert reasons[0] == "no time: `ts` is null"
    assert reasons[1] == f"the time {2**62} does not fit: it must lie between -2^61 and 2^61"
    assert json.loads(simulated.rejects[0].to_pylist()[0]["raw"])["type"] == "A"


# --- time without events, idle keys, bounded state --------------------------------------------------------------------


def test_a_trailing_negation_fires_when_others_let_time_pass() -> None:
    plan = planned("EVENT SEQ(A x, B y, !(C z)) WHERE [id] WITHIN 10")
    simulated = run(plan, [event("A", 1, id=1), event("B", 2, id=1)], [event("A", 30, id=2)], [], end_of_time=False)
    assert [row["y"]["ts"] for rows in simulated.matches["q"] for row in rows.to_pylist()] == [2]


def test_a_match_that_waits_for_a_negation_is_not_given_out_before_its_time() -> None:
    plan = planned("EVENT SEQ(A x, B y, !(C z)) WHERE [id] WITHIN 10")
    simulated = run(plan, [event("A", 1), event("B", 2)], [event("A", 10, id=2)], end_of_time=False)
    assert not simulated.matches["q"]


def test_idle_keys_release_their_state() -> None:
    simulation = Simulation(planned("EVENT SEQ(A x, B y, C z) WHERE [id] WITHIN 10", buckets=8))
    simulation.run([batch([event("A", 1, id=key) for key in range(40)])], end_of_time=False)
    assert len(simulation.states) == 8
    simulation.run([batch([event("A", 100, id=1)]), batch([event("D", 200)])], end_of_time=False)
    assert simulation.states == {}


@pytest.mark.parametrize("key", ["id", "name"])
def test_state_is_bounded_by_the_window_and_not_by_the_stream(key: str) -> None:
    simulation = Simulation(planned(f"EVENT SEQ(A x, B y, !(C z)) WHERE [{key}] WITHIN 20", 5))
    for start in range(0, 4000, 100):
        rows = [event("AB"[at % 2], at, id=at // 2, name=f"key {at // 2}") for at in range(start, start + 100)]
        simulation.run([batch(rows)], end_of_time=False)
    assert max(simulation.sizes[20:]) < 1.5 * max(simulation.sizes[:20])


FLAT = {
    "EQL": "SELECT * FROM A x; B y WHERE FILTER(x.id = y.id), (x, y) OCCURS WITHIN 20",
    "EQL, iteration": "SELECT * FROM A x; B y+ WHERE FILTER(x.id = y.id), FILTER(y.id = PREV(y.id)), "
    "(x, y) OCCURS WITHIN 20",
    "EQL, time": r"SELECT * FROM (A x @ 20) \ C y WHERE x.id = y.id",
    "CED": "complex Q on A as x, B as y event seq(x, y; 20) where x.id = y.id",
    "CED, negation": "complex Q on A as x, C as z, B as y event seq(x, !z, y; 20) where x.id = y.id and x.id = z.id",
    "SASE feeds EQL": "P: EVENT SEQ(A x, B y) WHERE [id] WITHIN 10\n"
    "Q: SELECT * FROM P p; A z WHERE FILTER(p.x.v = z.v), (p, z) OCCURS WITHIN 20",
}


@pytest.mark.parametrize("name", FLAT)
def test_the_state_is_flat_over_many_windows(name: str) -> None:
    """Fifty windows with ever new keys."""
    simulation, found = Simulation(planned(FLAT[name], 3)), 0
    for start in range(0, 1000, 50):
        rows = [event("AB"[at % 2], at, id=at // 2) for at in range(start, start + 50)]
        matches = simulation.run([batch(rows)], end_of_time=False).matches["q"]
        found += sum(part.num_rows for part in matches)
    assert found > 400
    assert max(simulation.sizes[10:]) < 1.1 * max(simulation.sizes[:10])


# --- several queries --------------------------------------------------------------------------------------------------


def test_queries_of_different_keys_share_one_stream() -> None:
    texts = {"by_id": QUERIES[0], "by_name": "EVENT SEQ(A x, B y) WHERE [name] WITHIN 5", "alone": QUERIES[5]}
    rng = random.Random(5)
    rows = [*random_rows(rng), event("A", 10_000), event("B", 10)]
    simulated = Simulation(planned(texts, 3)).run([*cut(rng, rows[:-1], 3), batch(rows[-1:])])
    assert sum(late.num_rows for late in simulated.late) == 1
    for name, text in texts.items():
        expected = cepheid.match(text, pa.Table.from_pylist(rows[:-1], SCHEMA), time_unit="ms")
        assert multiset(simulated.matches[name]) == multiset(expected), name


def test_a_summary_comes_with_the_end_of_time_only() -> None:
    plan = planned("EVENT SEQ(A x, B y) WHERE [id] WITHIN 50 RETURN count(*)")
    rows = [event("A", 1), event("B", 2), event("B", 3)]
    assert not run(plan, rows, [event("A", 500)], end_of_time=False).matches["q"]
    (answer,) = run(plan, rows, [event("A", 500)]).matches["q"]
    assert answer.to_pylist()[0]["count(*)"] == 2


@pytest.mark.parametrize(
    "text",
    [
        "EVENT SEQ(A x, B y) WHERE [id] WITHIN 50 RETURN count(*) AS n, sum(x.v) AS s",
        "PATTERN A x;B y+ WITHIN 50 RETURN count(*) AS n, sum(x.v) AS s",
        "PATTERN SEQ(A x, B y) WHERE skip_till_next_match(x, y) {[id]} WITHIN 9 RETURN count(*) AS n, sum(x.v) AS s",
    ],
)
def test_a_stream_without_events_has_a_summary(text: str) -> None:
    plan = planned(text)
    assert not plan.queries[0].by_oracle
    (answer,) = run(plan, []).matches["q"]
    assert answer.to_pylist()[0]["n"] == 0 and answer.to_pylist()[0]["s"] is None


def test_limit_beside_a_trailing_negation_is_refused() -> None:
    with pytest.raises(NotAvailable, match="LIMIT"):
        planned("EVENT SEQ(A x, B y, !(C z)) WHERE [id] WITHIN 5 LIMIT 2")


def test_notes_say_how_a_query_is_spread() -> None:
    assert planned(QUERIES[0]).notes() == ["q: by id over 4 buckets"]
    assert "one bucket" in planned("EVENT SEQ(A x, B y) WITHIN 5").notes()[0]
    assert any("grows without bound" in note for note in planned("EVENT SEQ(A x, B y) WHERE [id]").notes())


# --- time -------------------------------------------------------------------------------------------------------------


def test_event_time_goes_through_spark_and_back() -> None:
    for clock, ticks in ((Clock(), -5), (Clock(), 1_700_000_000_000_000), (TIMESTAMP_CLOCK, -1_000)):
        time = EventTime(clock)
        assert time.watermark(time.to_spark_micros(ticks) // 1000) == ticks
        assert time.watermark(0) == -END_OF_TIME
    assert EventTime(TIMESTAMP_CLOCK).watermark(EventTime(TIMESTAMP_CLOCK).to_spark_micros(1_999) // 1000) == 1_000


def test_delays_of_a_watermark() -> None:
    assert EventTime(Clock("ms")).delay("10 minutes") == 600_000
    assert EventTime(Clock("s")).delay("10min") == 600
    assert EventTime(Clock()).delay(500) == EventTime(Clock()).delay("500") == 500
    assert EventTime(TIMESTAMP_CLOCK).delay("1.5 s") == 1_500
    with pytest.raises(InputProblem, match="unit"):
        EventTime(Clock()).delay("10 minutes")
    for text in ("soon", "10 parsecs", "3 events", "-1"):
        with pytest.raises(InputProblem):
            EventTime(Clock("ms")).delay(text)
    assert parse_duration("2h").unit == "h"


def test_timestamps_stream_as_they_match() -> None:
    schema = SCHEMA.set(1, pa.field("ts", pa.timestamp("us", "UTC")))
    rows = [event("A", at * 1_000_000 + 1, n=at) for at in range(5)]
    rows += [event("B", at * 1_000_000 + 1_500, n=at) for at in range(5)]
    text = "EVENT SEQ(A x, B y) WHERE [id] WITHIN 2 seconds"
    plan = planned(text, schema=schema, clock=TIMESTAMP_CLOCK)
    simulated = Simulation(plan).run([batch(rows[:5], schema), batch([], schema), batch(rows[5:], schema)])
    late = {row["n"] for found in simulated.late for row in found.to_pylist()}
    assert late == {0, 1, 2, 3}
    kept = [row for row in rows if not (row["type"] == "B" and row["n"] in late)]
    expected = cepheid.match(text, pa.Table.from_pylist(kept, schema))
    assert multiset(simulated.matches["q"]) == multiset(expected)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM A; B; C WHERE FILTER(A.id = B.id = C.id), (A, C) OCCURS WITHIN 50",
        "SELECT * FROM A; (B+; C) WHERE FILTER(B.id = PREV(B.id)), (A, C) OCCURS WITHIN 50, count(B) <= 3",
        r"SELECT * FROM (A @ 50) \ B WHERE A.id = B.id",
    ],
)
def test_the_state_of_eql_is_flat_over_twenty_windows(text: str) -> None:
    rng = random.Random(4)
    rows = [event(rng.choice(TYPES), at, id=rng.randrange(8), n=at) for at in range(1000)]
    simulation = Simulation(planned(text))
    simulated = simulation.run([batch(rows[at : at + 50]) for at in range(0, 1000, 50)])
    sizes = simulated.states[2:20]
    assert min(sizes) > 0
    assert max(sizes[-6:]) < 1.5 * max(sizes[:6])


def test_eql_says_what_its_stream_retains_for_ever() -> None:
    held = "q: the state holds every A that waits for B in (A; B): bound it by (first, last) OCCURS WITHIN time"
    assert planned("SELECT * FROM A; B WHERE FILTER(A.id = B.id)").notes() == ["q: by id over 4 buckets", held]
    bounded = "SELECT * FROM A; B WHERE FILTER(A.id = B.id), (A, B) OCCURS WITHIN 5"
    assert planned(bounded).notes() == ["q: by id over 4 buckets"]


# --- states and checkpoints -------------------------------------------------------------------------------------------


def saved() -> tuple[BucketContext, bytes]:
    context = BucketContext(planned(QUERIES[0]))
    bucket = Bucket.new(context, 0)
    return context, bucket_state.save(bucket)


def test_a_state_of_another_query_is_refused() -> None:
    _, data = saved()
    with pytest.raises(InputProblem, match="another query"):
        bucket_state.load(BucketContext(planned(QUERIES[1])), data)


def test_a_damaged_state_is_refused() -> None:
    context, data = saved()
    for broken in (b"", b"CEPH", data[:20], b"x" + data[1:]):
        with pytest.raises(InputProblem, match="damaged"):
            bucket_state.load(context, broken)


def test_a_state_of_another_format_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    context, data = saved()
    monkeypatch.setattr(stream_state, "STATE_FORMAT", 99)
    with pytest.raises(InputProblem, match=f"format {STATE_FORMAT}"):
        bucket_state.load(context, data)


def checkpoint(directory: Path) -> Checkpoint:
    return Checkpoint(LocalDirectory(directory), str(directory))


def test_a_checkpoint_tells_what_changed(tmp_path: Path) -> None:
    own = checkpoint(tmp_path)
    own.settle(planned(QUERIES[1]).description(), {})
    own.settle(planned(QUERIES[0]).description(), {})
    (tmp_path / "metadata").write_text("{}")  # which Spark leaves when a stream has started
    own.settle(planned(QUERIES[0]).description(), {})
    with pytest.raises(InputProblem) as refused:
        own.settle(planned("EVENT SEQ(A x, B y, C z) WHERE [id] WITHIN 7").description(), {})
    assert "queries of `q`" in refused.value.what and "6" in refused.value.what and "7" in refused.value.what
    with pytest.raises(InputProblem, match="buckets: `4`, now `8`"):
        own.settle(planned(QUERIES[0], buckets=8).description(), {})


def test_there_is_a_bucket_for_each_task_of_the_first_start(tmp_path: Path) -> None:
    own = checkpoint(tmp_path)
    assert buckets_of(own, 3) == 3
    own.settle(planned(QUERIES[0], buckets=3).description(), {})
    (tmp_path / "metadata").write_text("{}")
    assert buckets_of(own, 16) == 3


def test_the_watermark_may_change_between_two_runs() -> None:
    assert planned(QUERIES[0], 5).fingerprint() == planned(QUERIES[0], 9).fingerprint()


def test_a_checkpoint_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "metadata").write_text("{}")
    with pytest.raises(InputProblem, match="was not written by Cepheid"):
        checkpoint(tmp_path).description()


def test_a_checkpoint_has_one_owner(tmp_path: Path) -> None:
    first = checkpoint(tmp_path).take()
    with pytest.raises(InputProblem, match=f"in use by .* {os.getpid()}"):
        checkpoint(tmp_path).take()
    first.release()
    second = checkpoint(tmp_path).take()
    second.require()
    with pytest.raises(InputProblem, match="taken over"):
        first.require()
    second.release()


def test_keys_stay_in_their_buckets_for_ever() -> None:
    """States lie in buckets: another spreading would lose them."""
    rows = batch([event("A", 1, id=key, name=f"k{key}", v=key / 2) for key in (0, 1, 2, 1_000_003, -7)])
    assert bucket_numbers(rows, ("id",), 32).tolist() == IDS
    assert bucket_numbers(rows, ("name",), 32).tolist() == NAMES
    assert bucket_numbers(rows, ("v",), 32).tolist() == FLOATS
    nulls = batch([event("A", 1, id=None, name=None, v=None)])
    assert [bucket_numbers(nulls, (name,), 32).tolist() for name in ("id", "name", "v")]
    zeros = batch([event("A", 1, v=0.0), event("A", 1, v=-0.0)])
    assert len(set(bucket_numbers(zeros, ("v",), 32).tolist())) == 1


IDS = [7, 3, 0, 17, 15]
NAMES = [22, 0, 2, 23, 27]
FLOATS = [7, 17, 31, 17, 0]


def test_every_task_gets_as_many_buckets_as_the_others() -> None:
    """States are found by these numbers: others would lose them."""
    numbers = group_numbers(64)
    assert numbers[:4] == NUMBERS and len(set(group_numbers(12_000))) == 12_000
    hashes = spark_hashes(np.array(numbers, np.uint32))
    for tasks in (1, 2, 4, 8, 16):
        assert set(Counter((hashes % tasks).tolist()).values()) == {64 // tasks}


NUMBERS = (22362, 14516, 848, 16776)


# --- files ------------------------------------------------------------------------------------------------------------


def test_a_batch_that_is_written_again_replaces_itself(tmp_path: Path) -> None:
    sink = FileSink(LocalDirectory(tmp_path / "out"))
    sink.write("batch-1", pa.table({"a": [1]}))
    sink.write("batch-1", pa.table({"a": [1]}))
    sink.write("batch-2", pa.table({"a": [2]}))
    sink.write("batch-3", pa.table({"a": pa.array([], pa.int64())}))
    sink.write("end-of-time", pa.table({"a": [3]}))
    assert read_output(str(tmp_path / "out")).column("a").to_pylist() == [1, 2, 3]
    sink.forget("end-of-time")
    assert read_output(str(tmp_path / "out")).column("a").to_pylist() == [1, 2]
    assert sorted(os.listdir(tmp_path / "out")) == ["batch-1.parquet", "batch-2.parquet"]


def test_a_directory_that_cannot_be_written_is_an_error_that_says_so(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("a file")
    with pytest.raises(InputProblem, match="cannot write"):
        FileSink(LocalDirectory(tmp_path / "out")).write("batch-1", pa.table({"a": [1]}))


def test_files_of_two_formats_are_no_stream(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("{}")
    (tmp_path / "b.csv").write_text("type,ts\n")
    with pytest.raises(CepheidError, match="`csv`, `jsonl`"):
        StreamFiles.first(str(tmp_path), Columns(), "ms", Schema({}), True)


# --- too many matches -------------------------------------------------------------------------------------------------

EXPLODING = "PATTERN SEQ(A a, B+ b[], C c) WHERE skip_till_any_match(a, b[], c) { [id] } WITHIN 200"


@pytest.mark.parametrize(
    ("evaluator", "query", "limit"),
    [
        ("any_runs", EXPLODING, ("max_matches", "1000")),
        ("stacks", "EVENT SEQ(A a, B b, B c, C d) WHERE [id] WITHIN 200", ("max_matches", "100")),
        ("stacks", "EVENT SEQ(A a, B b, B c, B d, C e) WHERE [id] WITHIN 200", ("max_memory", "100 KB")),
        ("tree", "EVENT SEQ(A a, B b, B c, C d) WHERE [id] WITHIN 200", ("max_matches", "100")),
        (
            "runs",
            "PATTERN SEQ(B b, B+ c[], C d) WHERE skip_till_next_match(b, c[], d) { [id] } WITHIN 200",
            ("max_matches", "20"),
        ),
        (
            None,
            "SELECT * FROM B b+; C c WHERE FILTER(b.id = PREV(b.id) AND b.id = c.id), (b, c) OCCURS WITHIN 200",
            ("max_matches", "100"),
        ),
        (
            None,
            "complex Q on A as a, B as b, B as c, C as d event and(a, b, c, d; 200) where a.id = b.id = c.id = d.id",
            ("max_matches", "90"),
        ),
        (None, f"P: {EXPLODING}\nQ: EVENT SEQ(P p, A z) WHERE p.a.id = z.id WITHIN 300", ("max_matches", "1000")),
        (
            None,
            "P: EVENT SEQ(A a, B b) WHERE [id] WITHIN 200\n"
            "Q: PATTERN P p & P q & C z WHERE p.a.id = q.a.id = z.id WITHIN 300",
            ("max_matches", "50"),
        ),
    ],
)
def test_a_key_with_too_many_matches_stops_the_stream_or_is_dropped(
    evaluator: str | None, query: str, limit: tuple[str, str]
) -> None:
    """The events of key 1 complete up to 2^30 matches; the matches of the other keys are all there."""
    kinds = ["A", *"B" * 30, "C", "A", "B", "C"]
    rows = [
        {"type": kind if key == 1 or kind != "B" or at % 10 == 1 else "D", "ts": 4 * at + key, "id": key, "v": 0.5}
        for at, kind in enumerate(kinds)
        for key in (0, 1, 2)
    ]
    batches = [batch(rows[at : at + 20]) for at in range(0, len(rows), 20)]
    columns = {field.name: field.type for field in SCHEMA}
    source = StreamSource(RowReader(SCHEMA, Columns()), dict.fromkeys("ABCD", columns))
    options = RunOptions(time_unit="ms", evaluator=evaluator, options=dict([limit]))
    plans = [
        plan_stream({"q": parse(query)}, source, 0, options, buckets=2, drops_keys=drops) for drops in (False, True)
    ]
    with pytest.raises(Explosion, match="more than "):
        Simulation(plans[0]).run(batches)
    simulated = Simulation(plans[1]).run(batches)
    assert len(simulated.dropped) == 1 and simulated.dropped[0].startswith("the events with id = 1 are ignored from")
    others = [row for row in rows if row["id"] != 1]
    expected = multiset(cepheid.match(query, pa.Table.from_pylist(others, SCHEMA), time_unit="ms"))
    assert multiset(simulated.matches["q"]) == expected and sum(expected.values()) > 1
