"""Points of NEXT's figures 9 and 10 in real time: a stream on Spark whose sources are paced by the clock.

A first file has the events of half a second: its batch compiles the queries. Once it is processed, a thread writes a
file each half second, with as many events as have occurred by then, and the stream reads them as they come. The
*backlog* are the events that were written and not yet processed. As in the paper, a point is observed for ten seconds,
after a few batches. It is overloaded if the backlog grows: at the end it is larger than at the beginning by more than a
tenth of the events that came meanwhile. (The paper's criterion, a delay of one second, is below the length of a
micro-batch.)"""

from __future__ import annotations

import os
import tempfile
import threading
import time
import warnings
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

import cepheid
from bench.measure import Outcome, Sample
from bench.next_workload import TOTAL, events, queries, text_of
from bench.report import Benchmark, Column, Report, rate
from bench.spark import running
from cepheid.errors import CepheidWarning

_EVERY = 0.5
_WINDOW = 10.0
_SETTLING = 15.0
"""Seconds after which the observation begins at the latest, whatever the backlog is then."""
_COMPILING = 240.0
"""Seconds that the first batch may take."""


@dataclass(slots=True)
class Feed:
    """Writes the events of a table as they occur, `speed` times as fast."""

    table: pa.Table
    directory: Path
    speed: float
    written: int = 0
    stop: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        began, first = time.monotonic(), self.written
        number = 0
        while not self.stop.wait(max(began + (number + 1) * _EVERY - time.monotonic(), 0.0)):
            number += 1
            self.write(first + int((time.monotonic() - began) * TOTAL * self.speed), number)

    def write(self, until: int, number: int) -> None:
        """A file with the events up to the given one."""
        until = min(until, self.table.num_rows)
        if until > self.written:
            hidden = self.directory / f".{number:06}.parquet"
            pq.write_table(self.table.slice(self.written, until - self.written), hidden)
            os.rename(hidden, self.directory / f"{number:06}.parquet")
            self.written = until


@dataclass(frozen=True, slots=True)
class Observed:
    """The backlog at the beginning and at the end of the observation, and the events that came meanwhile."""

    before: int
    after: int
    came: int
    matches: int

    @property
    def is_overloaded(self) -> bool:
        return self.after - self.before > 0.1 * self.came


def observed(session: SparkSession, kind: str, count: int, speed: float, window: float, settling: float) -> Observed:
    """A stream with so many queries of five operators."""
    texts = {f"q{number}": text_of(tree) for number, tree in enumerate(queries(kind, 5, count))}
    most = int((settling + window + 10) * TOTAL * speed) + 1
    with tempfile.TemporaryDirectory(prefix="cepheid-") as directory:
        source, work = Path(directory) / "in", Path(directory)
        source.mkdir()
        feed = Feed(events(most), source, speed)
        frame = session.readStream.schema("type string, ts long").parquet(str(source))
        done: list[int] = [0]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CepheidWarning)  # the state of these queries has no bound
            stream = cepheid.stream(
                texts,
                frame,
                watermark="0",
                checkpoint=str(work / "checkpoint"),
                output=str(work / "output"),
                on_progress=lambda progress: done.append(progress.read),
            )
        feeder = threading.Thread(target=feed.run, daemon=True)
        try:
            feed.write(int(_EVERY * TOTAL * speed), 0)
            began = time.monotonic()
            while done[-1] < feed.written:
                if time.monotonic() > began + _COMPILING:
                    raise AssertionError(f"the first batch of {count} queries takes more than {_COMPILING:.0f} s")
                time.sleep(_EVERY)
            batches = len(done)
            feeder.start()
            began = time.monotonic()
            while time.monotonic() < began + settling:
                time.sleep(_EVERY)
                # A few files are always on their way.
                if len(done) > batches + 2 and feed.written - done[-1] < 4 * _EVERY * TOTAL * speed:
                    break
            before, came = feed.written - done[-1], feed.written
            time.sleep(window)
            after, came = feed.written - done[-1], feed.written - came
            return Observed(before, after, came, sum(stream.metrics().matches.values()))
        finally:
            feed.stop.set()
            if feeder.is_alive():
                feeder.join()
            stream.stop()


def _paced(name: str, title: str, points: list[tuple[str, int, float]], quick: bool) -> Report:
    samples = []
    window, settling = (2.0, 5.0) if quick else (_WINDOW, _SETTLING)
    with running("local[1]") as session:
        for label, count, speed in points[:1] if quick else points:
            found = observed(session, "next", count, speed, window, settling)
            counted = {"before": float(found.before), "after": float(found.after), "over": float(found.is_overloaded)}
            print(label, found, flush=True)
            outcome = Outcome(found.matches, 0, counted)
            samples.append(Sample(label, "rewritten", found.came, outcome, window, window))
    return Report(
        name,
        title,
        "point",
        tuple(samples),
        "a point is overloaded if its backlog grows over ten seconds.",
        columns=(
            Column("backlog before", lambda sample: f"{sample.outcome.counted['before']:,.0f}"),
            Column("backlog after", lambda sample: f"{sample.outcome.counted['after']:,.0f}"),
            Column("overloaded", lambda sample: "yes" if sample.outcome.counted["over"] else "no"),
        ),
        value=lambda sample: max(sample.outcome.counted["after"], 1.0),
        value_title="backlog after ten seconds (events)",
    )


def figure_9(quick: bool) -> Report:
    speed = 40.0
    counts = (2, 10, 40)
    points = [(f"{5 * count} operators at {rate(speed * TOTAL)} events/s", count, speed) for count in counts]
    return _paced("next-9-paced", "operators on one core, next queries of 5 operators; real, paced", points, quick)


def figure_10(quick: bool) -> Report:
    points = [(f"{rate(speed * TOTAL)} events/s, 10 queries", 10, speed) for speed in (20.0, 200.0, 1_000.0)]
    return _paced("next-10-paced", "events/s on one core, 10 next queries of 5 operators; real, paced", points, quick)


BENCHMARKS = (
    Benchmark("next-9-paced", "NEXT figure 9: three points in real time on a Spark stream", figure_9),
    Benchmark("next-10-paced", "NEXT figure 10: three points in real time on a Spark stream", figure_10),
)
