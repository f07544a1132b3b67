"""Topics of Kafka, at a real broker, as sources of a stream: the stream and the broker are killed, and the topics drop
what has been read."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from detection.kafka_broker import Broker, running
from detection.test_kafka import send, topic
from detection.waiting import sizes, wait_until

import cepheid

pytest.importorskip("confluent_kafka", reason="the package confluent-kafka is not installed")
pytestmark = [pytest.mark.spark, pytest.mark.slow]

QUERY = "complex Q on A as a, B as b, C as c event seq(a, !b, c; 3 s) where a.id = c.id"
RATES = {"A": 6, "B": 15, "C": 90}
"""The events of each type in a part."""


def drawn(begin: int, end: int, seed: int) -> dict[str, list[dict[str, Any]]]:
    """Events by type in an interval, each at a time of its own."""
    rng = random.Random(seed)
    times = rng.sample(range(begin, end), sum(RATES.values()))
    found = {}
    for kind, count in RATES.items():
        own, times = sorted(times[:count]), times[count:]
        found[kind] = [{"type": kind, "ts": at, "id": rng.randint(1, 3)} for at in own]
    return found


def oracle(events: list[dict[str, Any]]) -> list[tuple[int, int]]:
    matches = cepheid.match(QUERY, pa.Table.from_pylist(events), evaluator="reference", time_unit="ms").to_pylist()
    return sorted((row["a"]["ts"], row["c"]["ts"]) for row in matches)


def drop(broker: Broker, until: int) -> int:
    """The topics drop the records before a time. Returns how many."""
    from confluent_kafka import Consumer, TopicPartition
    from confluent_kafka.admin import AdminClient

    consumer = Consumer({"bootstrap.servers": broker.address, "group.id": "test"})
    moments = [TopicPartition(name, partition, until) for name in RATES for partition in range(2)]
    kept = [found for found in consumer.offsets_for_times(moments, timeout=30) if found.offset > 0]
    consumer.close()
    admin = AdminClient({"bootstrap.servers": broker.address})
    for done in admin.delete_records(kept).values():
        done.result()
    return sum(found.offset for found in kept)


def test_killed_streams_over_topics_find_each_match_once(tmp_path: Path) -> None:
    entries = [{"name": name.lower(), "topic": name, "lateness": "1 s"} for name in RATES]
    (tmp_path / "q.ced").write_text(QUERY)
    command = ["stream", "--query-file", str(tmp_path / "q.ced"), "--sources", str(tmp_path / "sources.json")]
    command += ["--checkpoint", str(tmp_path / "checkpoint"), "--output", str(tmp_path / "out")]
    command += ["--format", "jsonl", "--master", "local[1]", "--plan", "a -> c -> !b"]

    def start() -> subprocess.Popen[bytes]:
        with (tmp_path / "log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "cepheid", *command], stdout=log, stderr=log, start_new_session=True
            )

    def kill(process: subprocess.Popen[bytes]) -> None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def found() -> list[tuple[int, int]]:
        lines = [line for file in (tmp_path / "out").glob("batch-*.jsonl") for line in file.read_text().splitlines()]
        return sorted((match["a"]["ts"], match["c"]["ts"]) for match in map(json.loads, lines))

    def progress() -> object:
        return sizes(*(tmp_path / name for name in ("checkpoint.acquired", "checkpoint", "out", "log")))

    def has_all() -> bool:
        assert stream.poll() is None, (tmp_path / "log").read_text()
        return set(oracle(events)) <= set(found())

    def grow(begin: int, end: int, seed: int) -> None:
        for name, own in drawn(begin, end, seed).items():
            send(broker, name, own)
            events.extend(own)

    events: list[dict[str, Any]] = []
    (tmp_path / "kafka").mkdir()
    with running(tmp_path / "kafka") as broker:
        listed = {"sources": [{**entry, "kafka": broker.address} for entry in entries], "time_unit": "ms"}
        (tmp_path / "sources.json").write_text(json.dumps(listed))
        for name in RATES:
            topic(broker, name)
        now = int(time.time() * 1_000)
        grow(now - 60_000, now - 10_000, 1)
        stream = start()
        try:
            assert wait_until(has_all, progress), (tmp_path / "log").read_text()
            assert drop(broker, now - 20_000) > 50  # they were acquired, and their batch is committed or not
            for seed in (2, 3):
                kill(stream)
                now = int(time.time() * 1_000)
                grow(now - 900, now, seed)
                stream = start()
                if seed == 3:
                    broker.stop()
                    broker.start()
                assert wait_until(has_all, progress), (tmp_path / "log").read_text()
        finally:
            kill(stream)
    log = (tmp_path / "log").read_text()
    assert "gap" not in log, log
    assert found() == oracle(events), log
