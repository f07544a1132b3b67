"""A stream's driver is killed at random moments by signals of all kinds, and started after each: what all of them wrote
together is what batch finds, nothing lost, nothing twice.

`CEPHEID_KILL_SEEDS=7,8,9` tries other seeds, `CEPHEID_KILLS` another number of kills than 20.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest
from cluster_harness import Cluster, standalone
from stream_harness import (
    CLOSURE,
    DISORDER,
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
from cepheid.deploy.changes import Change
from cepheid.errors import InputProblem
from cepheid.streaming.checkpoint import REQUESTS, Checkpoint
from cepheid.streaming.outputs import QUERY, TABLE
from cepheid.streaming.requests import Requests
from cepheid.streaming.sinks import FileSink
from cepheid.streaming.storage import LocalDirectory, local_directory
from cepheid.streaming.versions import SavedVersion

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
    "composed_too": "P: EVENT SEQ(A x, B y) WHERE [id] WITHIN 50\n"
    "Q: EVENT SEQ(P p, A a) WHERE p.x.id = a.id WITHIN 130",
}
"""A query of each language, and two over the matches of another."""
TO_ALL = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
TO_DRIVER = (*TO_ALL, signal.SIGQUIT, signal.SIGABRT, signal.SIGSEGV)
"""The signals for the driver alone. The JVM would write a file about some of them into the current directory."""
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


def killed(process: subprocess.Popen[bytes], rng: random.Random) -> str:
    """Half of the kills are kill -9."""
    with_children = rng.random() < 0.5
    number = rng.choice(TO_ALL if with_children else TO_DRIVER) if rng.random() < 0.5 else signal.SIGKILL
    kill(process, with_children, number)
    return f"{number.name}{' (with children)' if with_children else ''}"


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
                done.append(f"{moment}: {killed(process, rng)}")
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


# --- a deployment that changes ----------------------------------------------------------------------------------------


_PAIR = "P: EVENT SEQ(A x, D y) WHERE x.v < y.v WITHIN 6 RETURN x.id AS k, y.v AS w"
WITHOUT_KEY = {
    "near": "PATTERN A a; B b WHERE a.id < b.id AND a.v > 0.3 WITHIN 6",
    "far": "complex Q on A as a, C as c event and(a, c; 5) where a.v < c.v",
    "quiet": "EVENT SEQ(A x, !(D y), C z) WHERE x.v < z.v AND x.id != z.id WITHIN 9",
    "above": f"{_PAIR}\nQ: PATTERN P p; C c WHERE p.w < c.v WITHIN 12",
    "beside": f"{_PAIR}\nQ: EVENT SEQ(B b, P p) WHERE b.id != p.k WITHIN 9",
}
"""Queries that a deployment places on buckets, and moves. Two use one."""
CHANGING = {**QUERIES, **WITHOUT_KEY}


class Rules:
    """A folder of queries. One of them is added, replaced, removed or moved from time to time."""

    def __init__(self, folder: Path, rng: random.Random, requests: Requests) -> None:
        self.folder, self.rng, self.texts, self.requests = folder, rng, dict[str, str](), requests
        self.kinds = itertools.cycle(rng.sample(["move", "move", "add", "remove", "replace"], 5))
        folder.mkdir()
        for name in ("closure", "composed", "composed_too", "quiet", "above", "beside"):
            self._write(name, CHANGING[name])

    def change(self) -> None:
        """A change of the next kind that is possible now."""
        movable = [name for name in self.texts if name in WITHOUT_KEY]
        absent = [name for name in CHANGING if name not in self.texts]
        candidates = {"move": movable, "add": absent, "remove": list(self.texts), "replace": list(self.texts)}
        while not (names := candidates[kind := next(self.kinds)]) or (kind == "remove" and len(self.texts) <= 2):
            pass
        name = self.rng.choice(names)
        if kind == "move":
            self.requests.send(Change(move={name: self.rng.randrange(2) for name in movable}))
        elif kind == "remove":
            del self.texts[name]
            (self.folder / f"{name}.txt").unlink()
        else:
            self._write(name, f"{CHANGING[name]} -- {self.rng.random()}")

    def _write(self, name: str, text: str) -> None:
        self.texts[name] = text
        hidden = self.folder / f".{name}"
        hidden.write_text(text)
        hidden.rename(self.folder / f"{name}.txt")


class History:
    """The versions of the queries that the checkpoint has had, by their numbers, and the last file of each batch. A
    thread looks for new ones."""

    def __init__(self, checkpoint: Checkpoint, places: Places) -> None:
        self.checkpoint, self.versions = checkpoint, dict[int, SavedVersion]()
        self.offsets, self.last_files = places.checkpoint / "offsets", dict[int, int]()

    @contextmanager
    def followed(self) -> Iterator[None]:
        ended = threading.Event()

        def follow() -> None:
            while not ended.wait(0.05):
                with suppress(InputProblem):  # the stream has not described itself yet
                    self.look()

        thread = threading.Thread(target=follow)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
            self.look()

    def look(self) -> None:
        for file in self.offsets.glob("[0-9]*"):
            with suppress(OSError, ValueError):  # Spark is writing or removing it
                self.last_files[int(file.name)] = int(json.loads(file.read_text().splitlines()[-1])["logOffset"])
        self.versions.update({one.lineage.version: one for one in self.checkpoint.versions()})

    @property
    def first_files(self) -> dict[tuple[str, str], int]:
        """The queries that there were, each with the first file of its first batch. Spark takes two files into a batch
        that it had begun to plan when it was killed."""
        found: dict[tuple[str, str], int] = {}
        for _, version in sorted(self.versions.items()):
            for entry in version.entries:
                first = 1 + self.last_files[version.first_batch - 1] if version.first_batch else 0
                found.setdefault((entry.name, entry.written.text), first)
        return found

    def passed(self) -> Counter[str]:
        """The versions that a batch was evaluated with, by how they differ from the one of the batch before."""
        ordered = [one for _, one in sorted(self.versions.items())]
        evaluated = [one for one, later in pairwise(ordered) if one.first_batch < later.first_batch] + ordered[-1:]
        found: Counter[str] = Counter()
        for one, later in pairwise(evaluated):
            before, now = one.queries, later.queries
            kept = now.keys() & before.keys()
            kinds = {
                "added": now.keys() - before.keys(),
                "removed": before.keys() - now.keys(),
                "replaced": {name for name in kept if now[name].text != before[name].text},
                "moved": {name for name in kept if now[name].slot != before[name].slot},
            }
            found.update(["versions", *(kind for kind, names in kinds.items() if names)])
        return found


def require_rules(places: Places, feeder: Feeder, rules: Rules, seen: dict[tuple[str, str], int]) -> None:
    """A query that runs at the end has found what batch finds from some file on, at the latest the first one of its
    first batch. No version of a query has found a match twice, or one that batch does not find."""

    def wanted(text: str, file: int) -> Counter[str]:
        ordered = sorted(feeder.arriving[file * feeder.size :], key=lambda row: row["ts"])
        return expected(text, ordered)

    for name in {name for name, _ in seen}:
        versions = {text: first for (other, text), first in seen.items() if other == name}
        try:
            found = places.matches(name)
        except InputProblem:
            found = Counter()
        of_batch = expected(CHANGING[name], feeder.rows)
        assert not found.keys() - of_batch.keys(), name
        assert all(count <= len(versions) * of_batch[row] for row, count in found.items()), name
        if name in rules.texts:
            text = rules.texts[name]
            first = min(versions[text], feeder.files)
            since = [wanted(text, file) for file in range(first + 1)]
            missing = min((one - found for one in since), key=lambda one: sum(one.values()))
            assert not missing, (name, versions, missing)
            assert len(versions) > 1 or found in since, (name, first)


def changed_killed_and_restarted(
    base: Path, seed: int, kills: int, ending: str, cluster: Cluster | None = None
) -> None:
    """On a cluster two of three kills are of an executor, and the driver goes on: a driver that starts again takes the
    longest of all that happens here."""
    rng, places = random.Random(seed), Places(base)
    checkpoint = Checkpoint(local_directory(str(places.checkpoint)), "c")
    feeder = Feeder(places, seed, ending, files=3 * kills + 6)
    rules = Rules(base / "rules", rng, Requests(checkpoint.own.inside(REQUESTS)))
    at = {"input": places.source, "output": places.output, "checkpoint": places.checkpoint}
    words = ["deploy", str(rules.folder), *(word for name, path in at.items() for word in (f"--{name}", str(path)))]
    words += ["--files-per-batch", "1", "--watermark", str(DISORDER), "--available-now"]
    done: list[str] = []
    history = History(checkpoint, places)
    moments = ["a batch is planned", "state is written", "output is written", "a batch is committed", STARTING]
    master = "local[2]" if cluster is None else cluster.master
    while len(done) < kills:
        feeder.feed(rng.randint(1, 3))
        moment, at_once = rng.choice(moments), rng.random() < 0.5
        if done and at_once:
            rules.change()
        with history.followed(), driver(words, base / "driver.log", master) as process:
            if done and not at_once:
                wait_for(rng.choice(moments), places, process, rng)
                rules.change()
            while len(done) < kills and wait_for(moment, places, process, rng):
                if cluster is None or rng.random() < 1 / 3:
                    done.append(f"{moment}: {killed(process, rng)}")
                    break
                if cluster.kill_any_executor(rng):
                    done.append(f"{moment}: SIGKILL of an executor")
                feeder.feed(1)
                rules.change()
                moment = rng.choice(moments[:-1])
            else:
                if len(done) < kills:
                    assert process.returncode == 0, (base / "driver.log").read_text(errors="replace")
    feeder.feed(feeder.files)
    with history.followed():
        finish(words, base / "driver.log", master=master)
    seen, passed = history.first_files, history.passed()
    done.append(f"versions that batches were evaluated with: {dict(passed)}, of {len(history.versions)}")
    print("\n".join(done))
    assert {(name, text) for name, text in rules.texts.items()} <= seen.keys()
    require_rules(places, feeder, rules, seen)
    assert passed["versions"] >= kills // 3  # a change may come before the one before it had a batch
    assert kills < 10 or all(passed[kind] > 0 for kind in ("added", "removed", "replaced", "moved")), passed


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_many_kills_on_a_cluster_while_queries_change(tmp_path: Path, seed: int) -> None:
    """`kill -9` of the driver and of executors, at random moments, while queries are added, replaced, removed and
    moved."""
    with standalone(tmp_path) as cluster:
        changed_killed_and_restarted(tmp_path, seed, KILLS, ["parquet", "jsonl"][seed % 2], cluster)


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_many_kills_of_a_deployment_that_changes(tmp_path: Path, seed: int) -> None:
    changed_killed_and_restarted(tmp_path, seed, KILLS, ["parquet", "jsonl"][seed % 2])
