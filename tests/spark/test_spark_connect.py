"""Batch queries of a client of Spark Connect find what they find in this process. Streams are refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import connect_client
import pyspark
import pytest
from ports import free_port

pytestmark = [pytest.mark.spark, pytest.mark.slow]

_CLIENT = Path(connect_client.__file__)
_SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"
_ALIKE = [
    *connect_client.CASES,
    *connect_client.SPARK_ALONE,
    "parquet",
    "a view",
    "a DataFrame by type",
    "transform",
    "rejects",
    "long",
    "several queries",
]


@contextmanager
def _server(directory: Path) -> Iterator[str]:
    """The address of a server on this machine, for as long as the block lasts."""
    port, log = free_port(), directory / "server.log"
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
        "spark.ui.enabled": "false",
    }
    home = Path(pyspark.__file__).parent
    words = [str(home / "bin" / "spark-submit"), "--class", _SERVER, "--master", "local[2]"]
    words += [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    env = {**os.environ, "SPARK_HOME": str(home), "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    with log.open("w") as written:
        # spark-internal stands for the jars that Spark has itself.
        started = subprocess.Popen([*words, "spark-internal"], cwd=directory, env=env, stdout=written, stderr=written)
        try:
            yield f"sc://127.0.0.1:{port}"
        finally:
            started.terminate()
            started.wait()


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    pytest.importorskip("grpc")
    directory = tmp_path_factory.mktemp("connect")
    with _server(directory) as address:
        words = [sys.executable, str(_CLIENT), address, str(directory)]
        env = {name: value for name, value in os.environ.items() if name != "SPARK_HOME"}
        done = subprocess.run(words, cwd=directory, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr + (directory / "server.log").read_text()[-3000:]
    reports = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"name"')]
    return {report["name"]: report for report in reports}


@pytest.mark.parametrize("name", _ALIKE)
def test_a_query_over_connect_finds_what_it_finds_here(results: dict[str, dict[str, Any]], name: str) -> None:
    assert "result" in results[name], results[name]["error"]
    here, there = results[name]["result"]
    assert here, "the case has no match"
    assert there == here


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("explain", "shuffled by tag_id"),
        ("explain html", "<html"),
        ("explain several", "deployment: 3 queries"),
        ("analyze", "├─ matches: "),
    ],
)
def test_explain_over_connect(results: dict[str, dict[str, Any]], name: str, expected: str) -> None:
    assert expected in results[name]["result"]


def test_statistics_over_connect(results: dict[str, dict[str, Any]]) -> None:
    assert results["statistics"]["result"].keys() == {"x", "z"}


@pytest.mark.parametrize(
    ("name", "expected"), [("no file", "there is no file or directory `"), ("no table", "there is no table `nothing`")]
)
def test_an_input_that_does_not_exist_over_connect(
    results: dict[str, dict[str, Any]], name: str, expected: str
) -> None:
    assert expected in results[name]["error"]


@pytest.mark.parametrize(
    ("name", "subject"),
    [
        ("a stream", "streams"),
        ("a stream of files", "streams"),
        ("a directory elsewhere", "the directory `hdfs://host/output`"),
    ],
)
def test_what_needs_a_jvm_is_refused_over_connect(results: dict[str, dict[str, Any]], name: str, subject: str) -> None:
    error = results[name]["error"]
    assert error.startswith(f"NotAvailable: error: {subject} over Spark Connect"), error
    assert "cepheid.session(master)" in error
