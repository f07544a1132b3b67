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
from cepheid.acquire.plans import plan_text
from cepheid.detection.api import detection
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


def test_queries_and_regions_change_their_plans_together() -> None:
    """Where `A` has become frequent in one region, the plans of both queries change there, and only there."""
    rng = random.Random(2)
    regions = {"eu1": "eu", "us1": "us"}
    tables = {}
    for source in regions:
        drawn = sorted(
            (t, kind) for kind, rate in (("A", 0.003), ("B", 0.06)) for t in range(4_000) if rng.random() < rate
        )
        tables[source] = pa.table({"type": [kind for _, kind in drawn], "ts": [time for time, _ in drawn]})
    text = "complex Q on A as a, B as b event {}(a, b; 40) where a.region = b.region"
    queries = {kind: text.format(kind) for kind in ("and", "seq")}
    chosen = detection(queries, tables, DEFAULT_COLUMNS, regions=regions)
    plans = {part.label: plan_text(part.program.tree.root, part.program.plan) for part in chosen.parts}
    assert set(plans.values()) == {"a → b"}
    calm = {
        (source, kind): (None, Observed(round(rate * 4_000), 4_000))
        for source in regions
        for kind, rate in (("A", 0.003), ("B", 0.06))
    }
    assert chosen.adapted(calm) is None
    drifted = {**calm, ("us1", "A"): (None, Observed(2_000, 4_000)), ("us1", "B"): (None, Observed(10, 4_000))}
    adapted = chosen.adapted(drifted)
    assert adapted is not None
    changed, reason = adapted
    after = {part.label: plan_text(part.program.tree.root, part.program.plan) for part in changed.parts}
    assert after == {"and in eu": "a → b", "and in us": "b → a", "seq in eu": "a → b", "seq in us": "b → a"}
    assert reason.startswith("rates have changed (A 0.5/unit instead of ") and "b → a and b → a move " in reason
