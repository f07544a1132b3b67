"""kill -9 of a stream's driver at random moments, and a start after each: what all of them wrote together is what batch
finds, nothing lost, nothing twice.

`CEPHEID_KILL_SEEDS=7,8,9` tries other seeds, `CEPHEID_KILLS` another number of kills than 20.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from stream_harness import (
    CLOSURE,
    MOMENTS,
    NEGATION,
    SCHEMA,
    STARTING,
    Places,
    Row,
    command,
    disordered,
    driver,
    events,
    expected,
    finish,
    kill,
    multiset,
    query_file,
    wait_for,
    write,
)

import cepheid
from cepheid.streaming.outputs import QUERY, TABLE
from cepheid.streaming.sinks import FileSink
from cepheid.streaming.storage import LocalDirectory

pytestmark = pytest.mark.spark

SEEDS = [int(seed) for seed in os.environ.get("CEPHEID_KILL_SEEDS", "2,3,4").split(",")]
KILLS = int(os.environ.get("CEPHEID_KILLS", "20"))
QUERIES = {
    "closure": CLOSURE,
    "negation": NEGATION,
    "tree": "PATTERN A a & B b;!D d WHERE a.id = b.id = d.id WITHIN 60",
    "successor": r"SELECT * FROM A a; (B b \ D d) WHERE FILTER(a.id = b.id), a.id = d.id, (a, b) OCCURS WITHIN 80",
    "intervals": "complex Q on A as a, B as b, C as c event seq(a, !b, c; 60) where a.id = b.id = c.id",
    "composed": "P: EVENT SEQ(A x, B y) WHERE [id] WITHIN 50\n"
    "Q: SELECT * FROM P p; C c WHERE FILTER(p.x.id = c.id), (p, c) OCCURS WITHIN 90",
}
"""A query of each language, and one over the matches of another."""
LATE: Row = {"type": "A", "ts": 1, "id": 1, "v": 0.25}
NO_EVENT: Row = {"type": "A", "ts": None, "id": 1, "v": 0.75}


class Feeder:
    """Files that come while the stream is started again and again, some with a late event or a row without a time."""

    def __init__(self, places: Places, seed: int, ending: str, files: int, events_a_file: int = 40) -> None:
        self.places, self.ending, self.size = places, ending, events_a_file
        self.rows = events(seed, files * events_a_file)
        self.arriving = disordered(self.rows, seed)
        self.written = self.late = self.rejects = 0
        self.files = files

    def feed(self, count: int) -> None:
        for number in range(self.written, min(self.written + count, self.files)):
            rows = self.arriving[number * self.size : (number + 1) * self.size]
            if number % 3 == 2:
                rows, self.late = [*rows, {**LATE, "v": float(number)}], self.late + 1
            if number % 5 == 4:
                rows, self.rejects = [*rows, {**NO_EVENT, "v": float(number)}], self.rejects + 1
            write(self.places.source, f"part-{number:03d}.{self.ending}", rows)
            self.written += 1


def require_exactly_once(places: Places, feeder: Feeder) -> None:
    for name, query in QUERIES.items():
        wanted, found = expected(query, feeder.rows), places.matches(name)
        assert sum(wanted.values()) > 20
        assert (wanted - found, found - wanted) == (Counter(), Counter()), name
    late = multiset(cepheid.read_output(str(places.late)))
    assert sum(late.values()) == len(late) == feeder.late
    rejects = multiset(cepheid.read_output(str(places.rejects)))
    assert sum(rejects.values()) == len(rejects) == feeder.rejects


def test_what_is_lost_or_twice_is_noticed(tmp_path: Path) -> None:
    """What a perfect stream would have written passes; with any row less, or twice, it does not."""
    places = Places(tmp_path)
    feeder = Feeder(places, 1, "parquet", files=16)
    feeder.feed(16)
    late = [{**LATE, "v": float(n)} for n in range(feeder.late)]
    rejects = [{"raw": str(n)} for n in range(feeder.rejects)]
    perfect = {}
    for name, query in QUERIES.items():
        found = cepheid.match(query, pa.Table.from_pylist(feeder.rows, SCHEMA))
        perfect[places.output / f"{TABLE}{name}"] = found.append_column(QUERY, pa.array([name] * found.num_rows))
    perfect |= {places.late: pa.Table.from_pylist(late), places.rejects: pa.Table.from_pylist(rejects)}
    for directory, rows in perfect.items():
        FileSink(LocalDirectory(directory)).write("batch-0", rows)
    require_exactly_once(places, feeder)
    for directory, rows in perfect.items():
        for wrong in (rows.slice(1), pa.concat_tables([rows, rows.slice(0, 1)])):
            FileSink(LocalDirectory(directory)).write("batch-0", wrong)
            with pytest.raises(AssertionError):
                require_exactly_once(places, feeder)
        FileSink(LocalDirectory(directory)).write("batch-0", rows)


def killed_and_restarted(base: Path, seed: int, kills: int, moments: list[str], ending: str) -> list[str]:
    """What was done, in words."""
    rng, places = random.Random(seed), Places(base)
    feeder = Feeder(places, seed, ending, files=3 * kills + 6)
    words = command(places, *(query_file(places, text, name) for name, text in QUERIES.items()))
    done: list[str] = []
    while len(done) < kills:
        moment = moments[len(done) % len(moments)]
        feeder.feed(rng.randint(1, 3))
        with driver(words, base / "driver.log") as process:
            if wait_for(moment, places, process, rng):
                with_children = rng.random() < 0.5
                kill(process, with_children)
                done.append(f"{moment}{' (with children)' if with_children else ''}")
            else:
                # The moment did not come, since all was done: that is no kill, but must not be a failure either.
                assert process.returncode == 0, (base / "driver.log").read_text(errors="replace")
    feeder.feed(feeder.files)
    finish(words, base / "driver.log")
    require_exactly_once(places, feeder)
    return done


@pytest.mark.parametrize("kills", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_kills_lose_nothing_and_double_nothing(tmp_path: Path, kills: int) -> None:
    """With a seed for which the moments come before the files end."""
    moments = ["output is written", "a batch is planned"]
    assert len(killed_and_restarted(tmp_path, seed=10, kills=kills, moments=moments, ending="jsonl")) == kills


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_many_kills_lose_nothing_and_double_nothing(tmp_path: Path, seed: int) -> None:
    moments = [*MOMENTS, STARTING] * 3
    random.Random(seed).shuffle(moments)
    done = killed_and_restarted(tmp_path, seed, KILLS, moments, ["parquet", "jsonl"][seed % 2])
    print("\n".join(done))
