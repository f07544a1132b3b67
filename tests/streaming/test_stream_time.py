"""Events from the far future, and the account of every row: read = used + rejected + late."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from simulation_harness import multiset

import cepheid
from cepheid.engine.prepare import RunOptions
from cepheid.engine.query_text import declared_types
from cepheid.errors import InputProblem
from cepheid.events import TIMESTAMP_CLOCK, Clock
from cepheid.io.inputs import Columns
from cepheid.io.rows import ROW
from cepheid.io.stream_files import StreamFiles
from cepheid.lang import parse
from cepheid.streaming.plan import StreamPlan
from cepheid.streaming.planning import StreamSource, plan_stream
from cepheid.streaming.reader import RowReader
from cepheid.streaming.simulation import Simulated, Simulation
from cepheid.streaming.time import EventTime

QUERY = "EVENT SEQ(A x, B y) WHERE [id] WITHIN 10 seconds"
NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROS = (NOW - _EPOCH) // timedelta(microseconds=1)


def schema_of(time: pa.DataType, key: pa.DataType = pa.int64()) -> pa.Schema:  # noqa: B008
    return pa.schema([("type", pa.string()), ("ts", time), ("id", key), ("n", pa.int64())])


def planned(
    query: str, schema: pa.Schema, watermark: str | int, max_ahead: str | int | None = None, unit: str | None = "ms"
) -> StreamPlan:
    kinds = {kind: {field.name: field.type for field in schema} for kind in "ABC"}
    source = StreamSource(RowReader(schema, Columns()), kinds)
    options = RunOptions(time_unit=unit)
    return plan_stream({"q": parse(query)}, source, watermark, options, order=("n",), buckets=4, max_ahead=max_ahead)


def batches(schema: pa.Schema, *rows: Sequence[tuple[str, Any]]) -> list[pa.RecordBatch]:
    numbered = iter(range(1000))
    return [
        pa.RecordBatch.from_pylist(
            [{"type": kind, "ts": ts, "id": 1, "n": next(numbered)} for kind, ts in part], schema
        )
        for part in rows
    ]


def pairs(simulated: Simulated) -> list[tuple[int, int]]:
    rows = [match for part in simulated.matches["q"] for match in part.to_pylist()]
    return sorted((match["x"]["n"], match["y"]["n"]) for match in rows)


@pytest.mark.parametrize(
    ("time", "unit"),
    [(pa.timestamp("us", "UTC"), None), (pa.timestamp("ns"), None), (pa.int64(), "ms"), (pa.int64(), "ns")],
    ids=str,
)
def test_an_event_far_ahead_of_the_wall_clock_is_rejected(time: pa.DataType, unit: str | None) -> None:
    def at(moment: datetime) -> Any:
        if pa.types.is_integer(time):
            return (moment - _EPOCH) // timedelta(microseconds=1) * 1000 // (1_000_000 if unit == "ms" else 1)
        return moment if time.tz else moment.replace(tzinfo=None)

    second = timedelta(seconds=1)
    parts = [
        [("A", at(NOW)), ("B", at(NOW + second))],
        [("B", at(NOW + timedelta(days=400))), ("A", at(NOW + 2 * second))],
        [("B", at(NOW + 3 * second)), ("B", at(NOW + timedelta(minutes=1)))],
    ]
    simulation = Simulation(planned(QUERY, schema_of(time), "1s", "1 minute", unit), now=MICROS)
    simulated = simulation.run(batches(schema_of(time), *parts))
    assert pairs(simulated) == [(0, 1), (0, 4), (3, 4)] and not simulated.late
    (reject,) = [row for part in simulated.rejects for row in part.to_pylist()]
    assert "is too far ahead of the wall clock" in reject["reason"] and '"n": 2' in reject["raw"]
    assert simulation.count == 6 and not simulation.jumps


def test_times_that_are_not_an_epoch_are_compared_with_the_other_events() -> None:
    schema = schema_of(pa.int64())
    rows = [[("A", 1), ("B", 2), ("B", 10**15), ("A", 3)], [("B", 4)]]
    simulation = Simulation(planned(QUERY, schema, 0, 1000), now=MICROS, tasks=1)
    simulated = simulation.run(batches(schema, *rows))
    assert pairs(simulated) == [(0, 1), (0, 4), (3, 4)]
    (reject,) = [row for part in simulated.rejects for row in part.to_pylist()]
    assert "too far ahead of the other events of its batch (2)" in reject["reason"]


def test_a_jump_of_the_watermark_is_reported_with_its_event() -> None:
    schema = schema_of(pa.int64())
    far = 10_000 * 101 + 3
    simulation = Simulation(planned(QUERY, schema, 0))
    simulated = simulation.run(batches(schema, [("A", 1), ("B", 2)], [("B", far)], [("A", 5)]))
    assert len(simulated.late) == 1
    (jump,) = simulation.jumps
    text = jump.described(simulation.plan.time.clock)
    assert (jump.before, jump.after) == (2, far) and '"n": 2' in text and "--max-ahead" in text
    assert type(jump).from_json(jump.to_json()) == jump
    calm = Simulation(planned(QUERY, schema, 0))
    calm.run(batches(schema, [("A", 1), ("B", 2)], [("B", 10_000 * 100)]))
    assert not calm.jumps


def test_a_bound_must_be_a_duration() -> None:
    with pytest.raises(InputProblem, match="not a duration"):
        planned(QUERY, schema_of(pa.int64()), 0, "soon")


def test_every_row_is_used_rejected_or_late() -> None:
    rng = random.Random(4)
    schema = schema_of(pa.int64())
    for _ in range(40):
        delay, bound = rng.choice([0, 5, 50]), rng.choice([None, 20, 10**6])
        parts = [
            [(rng.choice("ABC"), rng.choice([None, rng.randint(0, 100), rng.randint(0, 10**17)])) for _ in range(9)]
            for _ in range(rng.randint(1, 5))
        ]
        simulation = Simulation(planned(QUERY, schema, delay, bound), now=MICROS)
        simulated = simulation.run(batches(schema, *parts), end_of_time=False)
        late, rejected = (sum(part.num_rows for part in of) for of in (simulated.late, simulated.rejects))
        assert simulation.count == 9 * len(parts)
        assert simulation.used + late + rejected == simulation.count


@pytest.mark.parametrize("unit", ["ns", "us", "s", None])
def test_integers_of_any_size_are_times_of_a_stream(unit: str | None) -> None:
    """Up to the bound of event times, as in batch; in order and not, at every cut."""
    rng = random.Random(8)
    schema = schema_of(pa.int64())
    edge = 4_497_000_000_000_000
    for start in (1_780_000_000_000_000_000, -(2**61), 2**61 - 9000, edge - 1200, -edge - 1200, 5 * 10**15):
        rows: list[dict[str, Any]] = [
            {"type": rng.choice("AB"), "ts": start + 40 * n, "id": 1, "n": n} for n in range(60)
        ]
        query = "EVENT SEQ(A x, B y) WHERE [id] WITHIN 300 units"
        expected = multiset(cepheid.match(query, pa.Table.from_pylist(rows, schema), time_unit=unit))
        rows.sort(key=lambda row: row["ts"] + rng.randint(0, 2000))
        plan = planned(query, schema, 2000, unit=unit)
        simulated = Simulation(plan).run(pa.Table.from_pylist(rows, schema).to_batches(9))
        assert multiset(simulated.matches["q"]) == expected and expected
        assert not simulated.late and not simulated.rejects


@pytest.mark.parametrize("clock", [Clock("ms"), Clock("ns"), TIMESTAMP_CLOCK], ids=str)
def test_the_watermark_follows_the_times(clock: Clock) -> None:
    """It is never before an earlier one, nor after the event that sets it, and its ticks are exact for common times."""
    time = EventTime(clock)
    edges = [-(2**61), -(2**61) + 1, -5 * 10**15, -4_497_000_000_000_001, -4_497_000_000_000_000, -1, 0, 1, 10**6]
    ticks = sorted([*edges, *(-tick for tick in edges), 1_780_000_000_000, 1_780_000_000_000_000_000])
    marks = [time.watermark_after(tick, 0) for tick in ticks]
    assert marks == sorted(marks) and all(mark <= tick for mark, tick in zip(marks, ticks, strict=True))
    assert all(0 < time.to_spark_micros(tick) < 2**63 for tick in ticks)
    if clock.unit == "ms":
        assert [mark for mark, tick in zip(marks, ticks, strict=True) if abs(tick) <= 4 * 10**15] == [
            tick for tick in ticks if abs(tick) <= 4 * 10**15
        ]


# --- keys -------------------------------------------------------------------------------------------------------------

KEYS: dict[pa.DataType, list[Any]] = {
    pa.decimal128(9, 2): [Decimal("1.10"), Decimal("-3.00"), Decimal("0.00")],
    pa.decimal128(30, 4): [Decimal("123456789012345678901.0001"), Decimal(2)],
    pa.date32(): [date(2026, 1, 1), date(1969, 12, 31)],
    pa.timestamp("us"): [datetime(2026, 1, 1), datetime(1960, 1, 1, 1)],
    pa.timestamp("ns", "Europe/Berlin"): [datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 6, 1, tzinfo=UTC)],
    pa.binary(): [b"\xff\x00", b"", b"abc"],
    pa.uint64(): [2**64 - 1, 0, 2**63],
    pa.int64(): [-(2**63), 2**63 - 1, 0],
    pa.float64(): [0.0, -0.0, 1e300, float("inf")],
    pa.bool_(): [True, False],
    pa.string(): ["", "ü", "a\0b"],
    pa.large_string(): ["a", "b"],
    pa.duration("us"): [timedelta(seconds=1), timedelta(seconds=-1)],
}


@pytest.mark.parametrize("kind", KEYS, ids=str)
def test_keys_of_every_type(kind: pa.DataType) -> None:
    require_keyed_matches(kind, "EVENT SEQ(A x, B y) WHERE [id] WITHIN 9")


@pytest.mark.parametrize("kind", KEYS, ids=str)
def test_keys_with_windows_of_events(kind: pa.DataType) -> None:
    require_keyed_matches(kind, "EVENT SEQ(A x, B y) WHERE [id] WITHIN 3 events")


def require_keyed_matches(kind: pa.DataType, query: str) -> None:
    rng = random.Random(str(kind))
    schema = schema_of(pa.int64(), kind)
    values = [*KEYS[kind], None]
    rows = [{"type": rng.choice("AB"), "ts": n, "id": rng.choice(values), "n": n} for n in range(40)]
    table = pa.Table.from_pylist(rows, schema)
    expected = multiset(cepheid.match(query, table, time_unit="ms"))
    simulated = Simulation(planned(query, schema, 0)).run(table.to_batches(7))
    assert multiset(simulated.matches["q"]) == expected and expected


@pytest.mark.parametrize("skew", [0, 7, 12, 19])
def test_sources_whose_clocks_differ(skew: int, tmp_path: Path) -> None:
    """Stable events (NEXT §5) are those before the watermark. The clock of one source is behind that of the other. Up
    to the delay of the watermark, the matches are those of batch. Events that are later are reported."""
    rng = random.Random(skew)
    delay, slices, length = 12, 12, 10
    events: list[list[dict[str, Any]]] = [
        [
            {"type": kind, "ts": 100 + length * at + tick - behind, "k": rng.randrange(2), "source": kind}
            for tick in sorted(rng.sample(range(length), 4))
        ]
        for at in range(slices)
        for kind, behind in (("A", 0), ("B", skew))
    ]
    for number, rows in enumerate(events):
        (tmp_path / f"{number:03}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    text = "EVENT SEQ(A a, B b, !(A c), B d) WHERE [k] WITHIN 25"
    query = parse(text)
    found = StreamFiles.first(str(tmp_path), Columns(), "ms", declared_types(query), True)
    assert found is not None
    source = StreamSource.of_files(found, [query])
    plan = plan_stream({"q": query}, source, delay, RunOptions(time_unit="ms"), order=found.order, buckets=2)
    slips = [json.dumps(str(file)) for file in sorted(tmp_path.iterdir())]
    arriving = [
        pa.RecordBatch.from_pylist([{"value": v} for v in pair]) for pair in zip(*[iter(slips)] * 2, strict=True)
    ]
    simulated = Simulation(plan).run(arriving)
    late = [json.loads(line) for part in simulated.late for line in part.column(ROW).to_pylist()]
    assert bool(late) == (skew > delay) and all(row["source"] == "B" for row in late)
    stable = [row for rows in events for row in rows if row not in late]
    stable.sort(key=lambda row: row["ts"])
    expected = cepheid.match(text, pa.Table.from_pylist(stable), time_unit="ms").to_pylist()
    shown = [json.loads(line) for part in simulated.matches["q"] for line in part.column(0).to_pylist()]
    assert len(expected) > 3
    assert Counter(map(json.dumps, shown)) == Counter(map(json.dumps, expected))
