"""The plan follows the rates of the sources, without losing a match."""

import random
import threading
from pathlib import Path

import pyarrow as pa
from detection.running import rows
from detection.test_flight import listed, served

import cepheid
from cepheid.acquire.cost import StreamModel
from cepheid.acquire.drift import Observed, drifts
from cepheid.acquire.models import Poisson
from cepheid.api import detection
from cepheid.detection.run import Running
from cepheid.io.growing_log import GrowingLog
from cepheid.io.inputs import DEFAULT_COLUMNS

QUERY = "complex Q on A as a, B as b event and(a, b; 40) where a.id = b.id"


def test_few_events_are_no_drift() -> None:
    streams = {"A": StreamModel(Poisson(0.1)), "B": StreamModel(Poisson(0.1))}
    assert drifts(streams, {"A": [Observed(9, 30)], "B": [Observed(90, 900)]}) == []
    (drift,) = drifts(streams, {"A": [Observed(0, 300)], "B": [Observed(60, 900), Observed(50, 900)]})
    assert (drift.stream, drift.rate) == ("A", 0.0)
    (drift,) = drifts(streams, {"B": [Observed(120, 900), Observed(120, 900)], "A": [Observed(0, 0)]})
    assert drift.stream == "B" and round(drift.rate, 3) == 0.267


def drifting(kind: str, rates: tuple[float, float], length: int) -> pa.Table:
    """A stream whose rate changes in the middle."""
    rng = random.Random(kind)
    times = [t for t in range(2 * length) if rng.random() < rates[t // length]]
    return pa.table({"type": [kind] * len(times), "ts": times, "id": [rng.randint(1, 3) for _ in times]})


def test_the_plan_follows_the_rates_and_no_match_is_lost(tmp_path: Path) -> None:
    """First `A` is rare, then `B`: the cheaper plan begins with the rare one."""
    tables = {"first": drifting("A", (0.003, 0.3), 6_000), "second": drifting("B", (0.3, 0.003), 6_000)}
    expected = cepheid.match(QUERY, pa.concat_tables(tables.values()))
    logs = {name: GrowingLog(name, DEFAULT_COLUMNS) for name in tables}

    def grow(first: int, last: int) -> None:
        for name, table in tables.items():
            times = table["ts"].to_pylist()
            logs[name].append(table.filter(pa.array([first <= time < last for time in times])))

    grow(0, 2_000)
    with served(*logs.values()) as servers:
        found = detection(QUERY, listed(tmp_path, servers), DEFAULT_COLUMNS, adapt_every=0.2, timeout=2.0)
        running = Running(found)

        def feed() -> None:
            for first in range(2_000, 12_000, 250):
                grow(first, first + 250)
                threading.Event().wait(0.05)
            for log in logs.values():
                log.end()

        threading.Thread(target=feed, daemon=True).start()
        matches = pa.concat_tables([running.schema.empty_table(), *running.matches()])
    assert rows(matches) == rows(expected)
    assert (running.switches[0].before, running.switches[0].after) == ("a → b", "b → a")
    assert "rates have changed (A " in running.switches[0].reason or "B " in running.switches[0].reason
    assert running.counts.events - running.counts.repeated < 0.7 * sum(table.num_rows for table in tables.values())
