"""A standalone cluster of separate processes on this machine: a master, two workers, and an executor of each, one of
which is killed in the middle. What comes out is what comes out without a cluster."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cluster_harness import Cluster, standalone
from stream_harness import (
    CLOSURE,
    NEGATION,
    Places,
    command,
    disordered,
    driver,
    events,
    expected,
    query_file,
    wait_until,
    write_parts,
)

import cepheid
from cepheid import datasets

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with standalone(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


# --- batch ------------------------------------------------------------------------------------------------------------

BATCH_QUERY = "EVENT SEQ(E1 x, E2 y, E3 z) WHERE [attr1] WITHIN 2000 RETURN x.n AS a, y.n AS b, z.n AS c"
BATCH = """
import sys, threading, time
import cepheid

master, path, read_by, out = sys.argv[1:]
spark = cepheid.session(master)
tracker = spark.sparkContext.statusTracker()

def tell_when_in_the_middle():
    done = 0
    while done < 2:
        time.sleep(0.05)
        stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        done = max([stage.numCompletedTasks for stage in stages if stage and stage.numTasks > 4], default=0)
    print("in the middle", flush=True)

threading.Thread(target=tell_when_in_the_middle, daemon=True).start()
events = spark.read.parquet(path) if read_by == "spark" else path
cepheid.match(sys.stdin.read(), events, session=spark, partitions=16).write.parquet(out)
"""


@pytest.mark.parametrize("read_by", ["spark", "files"])
def test_batch_on_a_cluster_survives_the_loss_of_an_executor(cluster: Cluster, tmp_path: Path, read_by: str) -> None:
    table = datasets.synthetic(1_000_000, domains=(200,), seed=5)
    table = table.append_column("n", pa.array(range(table.num_rows)))
    source, out = tmp_path / "in", tmp_path / "out"
    source.mkdir()
    for number in range(8):
        part = table.slice(number * 125_000, 125_000)
        pq.write_table(part, source / f"{number}.parquet", row_group_size=25_000)
    words = [sys.executable, "-c", BATCH, cluster.master, str(source), read_by, str(out)]
    with (tmp_path / "log").open("wb") as log:
        job = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True)
    assert job.stdin is not None and job.stdout is not None
    job.stdin.write(BATCH_QUERY)
    job.stdin.close()
    try:
        assert job.stdout.readline() == "in the middle\n", (tmp_path / "log").read_text()
        cluster.kill_an_executor()
        assert job.wait(timeout=600) == 0, (tmp_path / "log").read_text()
    finally:
        job.kill()
    found = sorted(map(tuple, (row.values() for row in pq.read_table(out).to_pylist())))
    wanted = sorted(map(tuple, (row.values() for row in cepheid.match(BATCH_QUERY, table).to_pylist())))
    assert len(wanted) > 1000 and found == wanted


CACHED = """
import os, sys
import cepheid

master, path, cache, out = sys.argv[1:]
environment = {"CEPHEID_CACHE": cache, "NUMBA_CACHE_DIR": cache, "TMPDIR": os.path.dirname(out)}
spark = cepheid.session(master, {f"spark.executorEnv.{name}": value for name, value in environment.items()})
cepheid.match(sys.stdin.read(), spark.read.parquet(path), partitions=4).write.parquet(out)
"""


@pytest.mark.parametrize("kind", ["a file", "of everybody", "of another user"])
def test_executors_do_not_need_their_cache_of_machine_code(cluster: Cluster, tmp_path: Path, kind: str) -> None:
    """They write to no directory that others write to, or that is not theirs, and cache in a private one instead."""
    if kind == "of another user" and os.getuid() != 0:
        pytest.skip("only root gives a directory to another user")
    table = datasets.synthetic(1_000_000, domains=(200,), seed=5).append_column("n", pa.array(range(1_000_000)))
    source, cache, private = (tmp_path / name for name in ("e.parquet", "cache", "private"))
    pq.write_table(table, source)
    private.mkdir()
    if kind == "a file":
        cache.write_text("")
    else:
        cache.mkdir(mode=0o755)
        (cache / "cepheid").mkdir(mode=0o755)
        for directory in (cache, cache / "cepheid"):
            if kind == "of everybody":
                directory.chmod(0o777)
            elif kind == "of another user":
                os.chown(directory, 54321, 54321)
    words = [sys.executable, "-c", CACHED, cluster.master, str(source), str(cache), str(private / "out")]
    job = subprocess.run(words, input=BATCH_QUERY, capture_output=True, text=True, timeout=600)
    assert job.returncode == 0, job.stderr
    assert not cache.is_dir() or not list(cache.rglob("*.code"))
    assert list(private.rglob("*.code")), "the executors compiled, and cached what they compiled"
    out = private / "out"
    found = sorted(tuple(row.values()) for row in pq.read_table(out).to_pylist())
    wanted = sorted(tuple(row.values()) for row in cepheid.match(BATCH_QUERY, table).to_pylist())
    assert len(wanted) > 100 and found == wanted


# --- streaming --------------------------------------------------------------------------------------------------------


def committed(places: Places) -> int:
    """The number of the last batch that is complete."""
    names = [path.name for path in places.checkpoint.glob("commits/*") if path.name.isdecimal()]
    return max(map(int, names), default=-1)


def has_come_to(places: Places, process: subprocess.Popen[bytes], batch: int) -> bool:
    return committed(places) >= batch or process.poll() is not None


def test_a_stream_on_a_cluster_survives_the_loss_of_executors(cluster: Cluster, tmp_path: Path) -> None:
    places = Places(tmp_path)
    rows = events(3, 1200)
    write_parts(places.source, disordered(rows, 3), 20)
    queries = {"closure": CLOSURE, "negation": NEGATION}
    words = command(places, *(query_file(places, text, name) for name, text in queries.items()))
    log = tmp_path / "driver.log"
    killed: list[int] = []
    with driver(words, log, master=cluster.master) as process:
        for batches in (2, 8):
            wait_until(partial(has_come_to, places, process, batches), 300)
            assert process.poll() is None, log.read_text()
            killed.append(cluster.kill_an_executor())
        assert process.wait(timeout=600) == 0, log.read_text()
    assert len(set(killed)) == 2
    for name, query in queries.items():
        assert places.matches(name) == expected(query, rows)
    assert not places.late.exists()
