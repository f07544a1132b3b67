"""Topics of Kafka as sources that can be asked, on a real broker."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from detection.kafka_broker import Broker, running
from detection.running import rows

import cepheid
from cepheid.acquire.requests import Answer, Request
from cepheid.detection.api import detection
from cepheid.detection.kafka_source import KafkaSource, Topic
from cepheid.detection.run import Running
from cepheid.errors import InputProblem, SourceUnreachable
from cepheid.io.asked_source import Failure
from cepheid.io.inputs import DEFAULT_COLUMNS

pytest.importorskip("confluent_kafka", reason="the package confluent-kafka is not installed")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with running(tmp_path_factory.mktemp("kafka")) as found:
        yield found


def topic(broker: Broker, name: str, partitions: int = 2, **config: str) -> None:
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    admin = AdminClient({"bootstrap.servers": broker.address})
    for made in admin.create_topics([NewTopic(name, partitions, 1, config=config)]).values():
        made.result()


def send(broker: Broker, name: str, events: list[dict[str, Any]], partitions: int = 2) -> None:
    """Events whose timestamps are their times, in random partitions."""
    from confluent_kafka import Producer

    producer, rng = Producer({"bootstrap.servers": broker.address}), random.Random(name)
    for event in events:
        value = json.dumps(event).encode()
        producer.produce(name, value, partition=rng.randrange(partitions), timestamp=event["ts"])
    producer.flush()


def drawn(now: int, count: int, seed: int) -> list[dict[str, Any]]:
    rng = random.Random(seed)
    times = sorted(rng.sample(range(now - 60_000, now), count))
    return [{"type": rng.choice("AB"), "ts": at, "k": rng.randint(1, 3)} for at in times]


def answers(source: KafkaSource, request: Request, seconds: float = 20) -> list[Answer | Failure]:
    found: list[Answer | Failure] = []
    source.ask(request, found.append)
    until = time.monotonic() + seconds
    while not found and time.monotonic() < until:
        time.sleep(0.05)
    return found


@pytest.mark.slow
def test_a_pull_reads_the_offsets_whose_timestamps_fit(broker: Broker) -> None:
    now = int(time.time() * 1_000) - 5_000
    events = drawn(now, 400, 1)
    topic(broker, "pulled")
    send(broker, "pulled", events)
    source = KafkaSource.open("k", Topic(broker.address, "pulled", DEFAULT_COLUMNS, "ms"))
    described = source.describe()
    assert sum(of.count for of in described.types.values()) == 400
    begin, end = events[100]["ts"], events[120]["ts"]
    (answer,) = answers(source, Request(1, "k", "A", begin, end, filter="e.k > 1", columns=("type", "ts", "k")))
    assert isinstance(answer, Answer)
    expected = [e for e in events[100:121] if e["type"] == "A" and e["k"] > 1]
    assert answer.events.to_pylist() == expected
    assert (answer.begin, answer.complete) == (begin, end)
    source.close()


@pytest.mark.slow
def test_detections_are_those_of_the_oracle_while_events_come(broker: Broker, tmp_path: Path) -> None:
    now = int(time.time() * 1_000)
    events = drawn(now, 300, 2)
    topic(broker, "rare")
    topic(broker, "often")
    for name, kind in (("rare", "A"), ("often", "B")):
        send(broker, name, [e for e in events if e["type"] == kind])
    listed = {
        "sources": [
            {"name": name, "kafka": broker.address, "topic": name, "lateness": "300 ms"} for name in ("rare", "often")
        ],
        "time_unit": "ms",
    }
    (tmp_path / "sources.json").write_text(json.dumps(listed))
    text = "complex Q on A as a, B as b event seq(a, b; 2 s) where a.k = b.k"
    running = Running(detection(text, str(tmp_path / "sources.json"), DEFAULT_COLUMNS, plan="a -> b"))
    found: list[pa.Table] = []
    later: list[dict[str, Any]] = []
    for table in running.matches(until=now + 2_000, wall_limit=60):
        found.append(table)
        if not later:
            at = int(time.time() * 1_000)
            later = [{"type": "A", "ts": at, "k": 1}, {"type": "B", "ts": at + 50, "k": 1}]
            send(broker, "rare", later[:1])
            send(broker, "often", later[1:])
    everything = pa.Table.from_pylist(events + later)
    assert rows(pa.concat_tables(found)) == rows(cepheid.match(text, everything, evaluator="reference", time_unit="ms"))
    assert running.gaps == []


@pytest.mark.slow
def test_what_the_topic_has_dropped_is_reported(broker: Broker) -> None:
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient

    now = int(time.time() * 1_000) - 5_000
    events = drawn(now, 100, 3)
    topic(broker, "short", 1)
    send(broker, "short", events, 1)
    admin = AdminClient({"bootstrap.servers": broker.address})
    for done in admin.delete_records([TopicPartition("short", 0, 60)]).values():
        done.result()
    source = KafkaSource.open("k", Topic(broker.address, "short", DEFAULT_COLUMNS, "ms", lateness=0.0))
    assert source.describe().retained == events[60]["ts"]
    (answer,) = answers(source, Request(1, "k", "A", events[10]["ts"], events[90]["ts"]))
    assert isinstance(answer, Answer)
    assert answer.retained == events[60]["ts"]
    assert answer.events.column("ts").to_pylist() == [e["ts"] for e in events[60:91] if e["type"] == "A"]
    source.close()


@pytest.mark.slow
def test_records_that_are_no_events_are_counted(broker: Broker) -> None:
    from confluent_kafka import Producer

    now = int(time.time() * 1_000) - 5_000
    topic(broker, "odd", 1)
    producer = Producer({"bootstrap.servers": broker.address})
    for value in (b"\xff\x00", b"[1]", b'{"ts": "x"}', b"", json.dumps({"type": "A", "ts": now, "k": 1}).encode()):
        producer.produce("odd", value, timestamp=now)
    producer.flush()
    source = KafkaSource.open("k", Topic(broker.address, "odd", DEFAULT_COLUMNS, "ms"))
    assert source.describe().types["A"].count == 1
    assert source.rejected == 3
    source.close()


@pytest.mark.slow
def test_a_broker_that_stops_is_a_failure_and_its_absence_an_error(broker: Broker) -> None:
    now = int(time.time() * 1_000) - 5_000
    topic(broker, "stopped", 1)
    send(broker, "stopped", drawn(now, 20, 4), 1)
    source = KafkaSource.open("k", Topic(broker.address, "stopped", DEFAULT_COLUMNS, "ms"))
    source.describe()
    broker.stop()
    (failure,) = answers(source, Request(1, "k", "A", now - 30_000, now), 60)
    assert isinstance(failure, Failure) and failure.reason
    broker.start()
    (answer,) = answers(source, Request(2, "k", "A", now - 30_000, now), 60)
    assert isinstance(answer, Answer)
    with pytest.raises(SourceUnreachable, match="the topic `nothing`"):
        KafkaSource.open("k", Topic(broker.address, "nothing", DEFAULT_COLUMNS, "ms")).describe()
    source.close()


def test_a_list_of_sources_names_servers_and_topic(tmp_path: Path) -> None:
    (tmp_path / "s.json").write_text(json.dumps({"sources": [{"name": "k", "kafka": "127.0.0.1:1"}]}))
    with pytest.raises(InputProblem, match="has no topic of Kafka"):
        cepheid.detect("complex Q on A as a event a", str(tmp_path / "s.json"))
