"""A real broker of Kafka on the loopback address, from the jars of Maven Central."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from ports import free_port

VERSION = "3.9.1"
_POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>cepheid</groupId><artifactId>broker</artifactId><version>1</version><dependencies><dependency>
<groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>{VERSION}</version>
</dependency></dependencies></project>"""


def jars(directory: Path) -> Path:
    """The jars of the broker. Skips where Maven Central cannot be reached."""
    for program in ("mvn", "java"):
        if shutil.which(program) is None:
            pytest.skip(f"a broker of Kafka needs {program}, which is not installed")
    (directory / "pom.xml").write_text(_POM)
    command = ["mvn", "-q", "-B", "dependency:copy-dependencies", "-DincludeScope=runtime", "-DoutputDirectory=lib"]
    try:
        done = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=400)
    except subprocess.TimeoutExpired:
        pytest.skip("the jars of Kafka could not be loaded from Maven Central in time")
    if done.returncode:
        pytest.skip(f"the jars of Kafka cannot be loaded from Maven Central: {done.stdout.strip()[:200]}")
    return directory / "lib"


class Broker:
    """One node, which is broker and controller (KRaft)."""

    def __init__(self, directory: Path, lib: Path) -> None:
        self.directory, self.lib, self.port = directory, lib, free_port()
        self.address = f"127.0.0.1:{self.port}"
        controller = free_port()
        self.settings = directory / "server.properties"
        self.settings.write_text(
            "\n".join(
                (
                    "process.roles=broker,controller",
                    "node.id=1",
                    f"controller.quorum.voters=1@127.0.0.1:{controller}",
                    f"listeners=PLAINTEXT://{self.address},CONTROLLER://127.0.0.1:{controller}",
                    f"advertised.listeners=PLAINTEXT://{self.address}",
                    "controller.listener.names=CONTROLLER",
                    "listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
                    f"log.dirs={directory}/logs",
                    "offsets.topic.replication.factor=1",
                    "log.retention.check.interval.ms=300",
                    "log.segment.delete.delay.ms=100",
                )
            )
        )
        made = self._java("kafka.tools.StorageTool", "random-uuid").stdout.split()[-1]
        self._java("kafka.tools.StorageTool", "format", "-t", made, "-c", str(self.settings))
        self.process: subprocess.Popen[bytes] | None = None

    def _java(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = ["java", "-cp", f"{self.lib}/*", *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)

    def start(self) -> None:
        from confluent_kafka.admin import AdminClient

        command = ["java", "-Xmx384m", "-cp", f"{self.lib}/*", "kafka.Kafka", str(self.settings)]
        with (self.directory / "broker.log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)
        admin = AdminClient({"bootstrap.servers": self.address, "log_level": 0})
        for _ in range(60):
            try:
                admin.list_topics(timeout=1)
                return
            except Exception:  # it is not there yet
                time.sleep(0.5)
        raise AssertionError((self.directory / "broker.log").read_text()[-2000:])

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


@contextmanager
def running(directory: Path) -> Iterator[Broker]:
    broker = Broker(directory, jars(directory))
    broker.start()
    try:
        yield broker
    finally:
        broker.stop()
