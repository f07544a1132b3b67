"""A standalone cluster of separate processes on this machine: a master and two workers, each with an executor."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ports import free_port
from stream_harness import wait_until

EXECUTOR = "org.apache.spark.executor.CoarseGrainedExecutorBackend"


@dataclass(frozen=True)
class Cluster:
    master: str
    workers: tuple[subprocess.Popen[bytes], ...]

    def executors(self) -> list[int]:
        """The processes of the executors that run now."""
        started = {worker.pid for worker in self.workers}
        return [pid for pid in _processes() if _parent(pid) in started and EXECUTOR in _words(pid)]

    def kill_any_executor(self, rng: random.Random) -> bool:
        """Whether there was one."""
        running = self.executors()
        if running:
            os.kill(rng.choice(running), signal.SIGKILL)
        return bool(running)

    def kill_an_executor(self, seconds: float = 600) -> int:
        wait_until(lambda: len(self.executors()) == 2, seconds)
        (victim, *_) = self.executors()
        os.kill(victim, signal.SIGKILL)
        return victim


def _processes() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdecimal()]


def _parent(pid: int) -> int | None:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return None


def _words(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    except OSError:
        return []


@contextmanager
def spark_process(log: Path, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    import pyspark

    home = Path(pyspark.__file__).parent
    environment = {
        **os.environ,
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_WORKER_DIR": str(log.parent / "work"),
        "PYSPARK_PYTHON": sys.executable,
    }
    with log.open("wb") as result:
        process = subprocess.Popen(
            [str(home / "bin" / "spark-class"), *words],
            env=environment,
            stdout=result,
            stderr=result,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        # A worker ends its executors when it is asked to end.
        process.terminate()
        process.wait(timeout=60)


@contextmanager
def standalone(logs: Path) -> Iterator[Cluster]:
    port, host = free_port(), ["--host", "127.0.0.1"]
    url = f"spark://127.0.0.1:{port}"
    web = ["--webui-port", "0"]
    name = "org.apache.spark.deploy"
    with spark_process(logs / "master.log", f"{name}.master.Master", *host, "--port", str(port), *web):
        wait_until(lambda: "I have been elected leader" in (logs / "master.log").read_text(), 600)
        size = ["--cores", "1", "--memory", "2g"]
        worker = [f"{name}.worker.Worker", *host, *web, *size, url]
        with spark_process(logs / "1.log", *worker) as first, spark_process(logs / "2.log", *worker) as second:
            registered = "Successfully registered with master"
            wait_until(lambda: all(registered in (logs / f"{n}.log").read_text() for n in (1, 2)), 600)
            yield Cluster(url, (first, second))
