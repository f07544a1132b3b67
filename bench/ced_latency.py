"""Latency of plans: expected and measured for injected delays, and cost against the deadline (the Pareto front).

Delays: sources behind Arrow Flight, in this process, delay each message by the same time. An event is appended when it
occurs, at the time of the clock. The latency of a match is the time from its last event until the base outputs it; the
model bounds it. A thread that sleeps may wake late on a busy machine, which adds to each message: the process asks for
real-time scheduling, and the page says how late a thread woke. Deadlines: counts in memory, as in the other figures."""

from __future__ import annotations

import json
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pyarrow as pa

from bench.ced_figures import UNIT, Event, measured, share_report, zipf
from bench.measure import Outcome, Sample
from bench.report import Benchmark, Column, Report
from cepheid.acquire.cost import MODELS, StreamModel
from cepheid.acquire.models import Poisson
from cepheid.acquire.plans import plan_text
from cepheid.acquire.search import Search, SearchOptions
from cepheid.detection.api import detection
from cepheid.detection.flight_server import FlightLog, ServerOptions
from cepheid.detection.run import Running
from cepheid.io.growing_log import GrowingLog
from cepheid.io.inputs import DEFAULT_COLUMNS

PLANS = {"1 step": "push", "2 steps": "a -> b, c", "3 steps": "a -> b -> c"}
QUERY = "complex Q on A as a, B as b, C as c event and(a, b, c; 1 s)"
LATENESS = 1_000
"""Microseconds after which an event has come: it is appended right after its time is read."""
MARGIN = 0.050
"""Seconds by which a latency may exceed its bound."""
_BEAT = 0.2
_PAST = {"A": 3, "B": 12, "C": 60}
"""Events of each type in the minute before, for the model."""


@dataclass(frozen=True, slots=True)
class Live:
    """Sources that are fed in this process."""

    logs: dict[str, GrowingLog]
    path: str

    def occur(self, kind: str) -> int:
        """An event that occurs now."""
        moment = int(time.time() * 1_000_000)
        self.logs[kind].append(_event(kind, moment))
        return moment

    def end(self) -> None:
        for log in self.logs.values():
            log.end()


def _event(kind: str, moment: int) -> pa.Table:
    return pa.table({"type": [kind], "ts": pa.array([moment], pa.timestamp("us", "UTC"))})


@contextmanager
def live(delay: float) -> Iterator[Live]:
    """Three sources whose messages are delayed by so many seconds."""
    logs = {kind: GrowingLog(kind, DEFAULT_COLUMNS, lateness=LATENESS) for kind in "ABC"}
    now = int(time.time() * 1_000_000)
    for kind, count in _PAST.items():
        for number in range(count):
            logs[kind].append(_event(kind, now - 60_000_000 + number * 60_000_000 // count))
    servers = [FlightLog(log, ServerOptions(beat=_BEAT, delay=delay)) for log in logs.values()]
    with tempfile.TemporaryDirectory(prefix="cepheid-") as directory:
        latency = f"{delay * 1e3 + LATENESS / 1e3:.3f} ms"
        entries = [
            {"name": kind, "address": server.address, "latency": latency, "types": [kind]}
            for kind, server in zip(logs, servers, strict=True)
        ]
        path = Path(directory) / "sources.json"
        path.write_text(json.dumps({"sources": entries}))
        try:
            yield Live(logs, str(path))
        finally:
            for log in logs.values():
                log.end()
            for server in servers:
                server.shutdown()


@contextmanager
def punctual() -> Iterator[bool]:
    """Real-time scheduling, if the system grants it. Threads that begin meanwhile have it, too."""
    before, parameters = os.sched_getscheduler(0), os.sched_getparam(0)
    try:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    except PermissionError:
        yield False
        return
    try:
        yield True
    finally:
        os.sched_setscheduler(0, before, parameters)


@contextmanager
def wake_ups() -> Iterator[list[float]]:
    """The seconds by which a thread that sleeps for 10 ms wakes late."""
    late: list[float] = [0.0]
    stopped = threading.Event()

    def sleep() -> None:
        while not stopped.is_set():
            began = time.monotonic()
            time.sleep(0.01)
            late.append(time.monotonic() - began - 0.01)

    thread = threading.Thread(target=sleep, daemon=True)
    thread.start()
    try:
        yield late
    finally:
        stopped.set()
        thread.join()


def latencies(plan: str, delay: float, rounds: int) -> tuple[list[float], float]:
    """Seconds from the last event of each match to its output, and the bound of the model."""
    with live(delay) as sources:
        running = Running(detection(QUERY, sources.path, DEFAULT_COLUMNS, plan=plan, adapt_every=None, timeout=5.0))
        latency = running.detection.only.choice.chosen.latency / 1e6

        def feed() -> None:
            time.sleep(1.2 + 6 * delay)  # the window of the past, and the first answers
            for _ in range(rounds):
                for kind in "CBA":
                    sources.occur(kind)
                    time.sleep(0.01)
                time.sleep(1.1 + 6 * delay)
            time.sleep(0.5 + 6 * delay)
            sources.end()

        threading.Thread(target=feed, daemon=True).start()
        began, found = time.time(), []
        for table in running.matches():
            now = time.time()
            ends = [end.timestamp() for end in table.column("match_end").to_pylist()]
            found += [now - end for end in ends if end >= began]  # the others were there before
    return found, latency


def delays(quick: bool) -> Report:
    samples = []
    for milliseconds in (5,) if quick else (5, 10, 20, 50, 100, 200):
        for name, plan in list(PLANS.items())[-2:] if quick else PLANS.items():
            rounds = 1 if quick else 5
            with punctual() as is_real_time, wake_ups() as late:
                found, bound = latencies(plan, milliseconds / 1e3, rounds)
            counted = {"expected": bound, "median": statistics.median(found), "most": max(found), "late": max(late)}
            outcome = Outcome(len(found), 0, counted)
            samples.append(Sample(milliseconds, name, rounds, outcome, 1.0, 1.0, question=f"{milliseconds} {name}"))
    above = {key: max(samples, key=partial(_above, key)) for key in ("median", "most")}
    longest, typical = above["most"], above["median"]
    return Report(
        "ced-latency",
        "detection latency over Flight by the delay of a message, one way",
        "delay (ms)",
        tuple(samples),
        f"the target is at most {MARGIN * 1e3:.0f} ms above the bound of the model. The longest latency is at most "
        f"{_above('most', longest):.0f} ms above it ({longest.variant}, delay {longest.point} ms), and "
        f"{sum(_above('most', sample) <= MARGIN * 1e3 for sample in samples)} of {len(samples)} points reach the "
        f"target. Medians are at most {_above('median', typical):.0f} ms above it. Real: sources behind Arrow Flight, "
        f"in a process with{'' if is_real_time else 'out'} real-time scheduling. The last column is by how much a "
        f"thread that slept for 10 ms woke late meanwhile; each message has several such waits.",
        columns=tuple(
            Column(f"{title} (ms)", lambda sample, name=name: f"{sample.outcome.counted[name] * 1e3:.1f}")  # type: ignore[misc]
            for title, name in (
                ("bound of the model", "expected"),
                ("median", "median"),
                ("longest", "most"),
                ("latest wake-up", "late"),
            )
        ),
        value=lambda sample: sample.outcome.counted["median"] * 1e3,
        value_title="latency (ms)",
        log_x=True,
    )


def _above(which: str, sample: Sample) -> float:
    """Milliseconds above the bound."""
    return 1e3 * (sample.outcome.counted[which] - sample.outcome.counted["expected"])


def deadlines(quick: bool) -> Report:
    """Five subevents at sources of different latency."""
    event = Event.of(f"and(E1, E2, E3, E4, E5; {UNIT})", zipf(5, 1.0, 2.0))
    latency = dict(zip(event.rates, (50.0, 10.0, 40.0, 20.0, 30.0), strict=True))
    models = {name: StreamModel(Poisson(rate / UNIT), latency[name]) for name, rate in event.rates.items()}
    front = Search(MODELS["coverage"](models), SearchOptions("dp")).plans(event.tree.root)
    samples = []
    for candidate in front[:2] if quick else front:
        name = plan_text(event.tree.root, candidate.plan)
        samples += measured(candidate.latency, lambda _: event, lambda _, __, n=name, c=candidate: {n: c.plan}, quick)  # type: ignore[misc]
    return share_report(
        "ced-deadline",
        "and of five, w=1: events fetched by the plan for each deadline (all of the Pareto front)",
        "deadline (ticks)",
        samples,
        "a longer deadline allows more steps, which fetch fewer events (§3.1).",
    )


BENCHMARKS = (
    Benchmark("ced-latency", "CED: detection latency, expected and measured, by delay", delays),
    Benchmark("ced-deadline", "CED: cost against the deadline", deadlines),
)
