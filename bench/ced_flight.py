"""One point of each of figures 4 and 5(a)-(e) of plan-based CED again over Arrow Flight: the same plans over the same
streams, in memory and from a server in a process of its own, must fetch the same number of events of each type.

The servers count what they send; the base counts what it receives."""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from bench.ced_figures import SKEW, UNIT, Event, binary, ran, random_event, table_of, zipf
from bench.ced_sharing import Pair
from bench.flight_servers import served
from bench.measure import Outcome, Sample
from bench.report import Benchmark, Column, Report
from cepheid.acquire.plans import Plan
from cepheid.acquire.search import SearchOptions
from cepheid.detection.api import detection
from cepheid.detection.program import Program
from cepheid.detection.run import Running
from cepheid.io.inputs import DEFAULT_COLUMNS

EVENTS = 2_000
MEMORY, FLIGHT = "in memory", "over Flight"
_HEURISTIC = SearchOptions("heuristic")


class Point(NamedTuple):
    """A point of a figure: an event and a plan."""

    figure: str
    about: str
    event: Event
    plan: Plan


def points() -> Iterator[Point]:
    three, five = zipf(3, SKEW, 1.0), zipf(5, 1.0, 2.0)

    def operator(kind: str, *operands: str, window: float = 1) -> str:
        return f"{kind}({', '.join(operands)}; {int(window * UNIT)})"

    for letter, kind in (("a", "and"), ("b", "seq")):
        event = Event.of(operator(kind, "E1", "E2", "E3", window=0.5), three)
        yield Point(f"4({letter})", "w = 0.5, 3 steps", event, event.plan(3))
    event = Event.of(operator("and", "E1", "E2", "!E3"), three)
    yield Point("4(c)", "one negated, 3 steps", event, event.plan(3))
    event = Event.of(operator("and", "E1", "E2", "E3", "E4"), [0.3] * 4)
    yield Point("4(d)", "4 subevents, 4 steps", event, event.plan(4, _HEURISTIC))
    event = Event.of(operator("and", "E1", "E2", "E3"), zipf(3, 1.0, 1.0))
    yield Point("4(e)", "skew 1, 2 steps", event, event.plan(2))
    event = Event.of(operator("and", *(f"E{i + 1}" for i in range(5))), five)
    errors = {name: rate * (0.6 if number % 2 else 1.4) for number, (name, rate) in enumerate(event.rates.items())}
    yield Point("4(f)", "error of 40 %", event, event.plan(rates=errors))
    for figure, options in (("5(a)", SearchOptions("dp")), ("5(b)", _HEURISTIC)):
        text, leaves = random_event(3, 0)
        event = Event.of(text, zipf(leaves, SKEW, 0.12 * leaves))
        yield Point(figure, "3 operators", event, event.plan(options=options))
    for figure, options in (("5(c)", SearchOptions("dp", 3, "mixture")), ("5(d)", SearchOptions("heuristic", 3))):
        event = binary(0)
        yield Point(figure, "k = 3", event, event.plan(4, options))
    pair = Pair.of(0.45)
    plans = pair.plans()["together"]
    for name, event in pair.events.items():
        yield Point("5(e)", f"event {name}, common rate 0.45", event, plans[name])


def over_flight(point: Point, table: pa.Table, directory: Path) -> tuple[int, Counter[str], int]:
    """The matches, the events that the base received by type, and those that the server has sent."""
    query = f"complex Q event {point.event.text}"
    with served(directory, {"log": table}) as servers:
        found = detection(query, servers.path, DEFAULT_COLUMNS, adapt_every=None, timeout=120)
        part = found.only
        known = part.program
        program = Program.of(known.prepared, known.tree, point.plan, known.asked, known.sources, found.run_options)
        running = Running(replace(found, parts=(replace(part, program=program),)))
        matches = sum(part.num_rows for part in running.matches())
        if running.gaps:
            raise AssertionError(f"gaps at figure {point.figure}: {running.gaps}")
        servers.stop()
        return matches, running.counts.by_stream, servers.events


def compared(number: int, point: Point, quick: bool) -> list[Sample]:
    streams = point.event.streams(number, 250 if quick else EVENTS)
    count = sum(len(times) for times in streams.values())
    replayed = ran([(point.event, point.plan)], streams)
    if replayed is None:
        raise AssertionError(f"a type does not occur at figure {point.figure}")
    matches, memory = replayed
    began = time.process_time()
    with tempfile.TemporaryDirectory(prefix="cepheid-") as directory:
        found, received, sent = over_flight(point, table_of(streams), Path(directory))
    spent = max(time.process_time() - began, 1e-9)
    if received != memory.counts.by_stream or sent != received.total():
        raise AssertionError(f"counts differ at figure {point.figure}: {memory.counts.by_stream}, {received}, {sent}")
    by_variant: Mapping[str, tuple[int, int, int]] = {
        MEMORY: (matches, memory.counts.events, 0),
        FLIGHT: (found, received.total(), sent),
    }
    return [
        Sample(
            f"{point.figure}: {point.about}",
            variant,
            count,
            Outcome(matches, 0, {"fetched": float(events), "sent": float(of)}),
            spent,
            spent,
        )
        for variant, (matches, events, of) in by_variant.items()
    ]


def same_counts(quick: bool) -> Report:
    chosen = [point for point in points() if not quick or point.figure == "4(a)"]
    samples = [sample for number, point in enumerate(chosen) for sample in compared(number, point, quick)]
    return Report(
        "ced-flight",
        "one point of each figure over Flight; real",
        "figure",
        tuple(samples),
        "the benchmark fails unless both fetch the same number of events of each type, and the server sends as many.",
        columns=(
            Column("events fetched", lambda sample: f"{sample.outcome.counted['fetched']:,.0f}"),
            Column("sent by the server", lambda sample: f"{sample.outcome.counted['sent'] or 0:,.0f}"),
        ),
        value=lambda sample: sample.outcome.counted["fetched"],
        value_title="events fetched",
    )


BENCHMARKS = (Benchmark("ced-flight", "CED figures 4 and 5(a)-(e): one point of each over Flight", same_counts),)
