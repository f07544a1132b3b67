"""`cepheid doctor`: a line for each part of the machine, and what to do about a problem."""

from __future__ import annotations

import os
import re
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cepheid.app import cli, doctor
from cepheid.app.doctor import Verdict

ROOT = Path(__file__).resolve().parent.parent.parent


def java_that_prints(directory: Path, text: str) -> Path:
    program = directory / "bin" / "java"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\ncat >&2 <<'END'\n{text}\nEND\n")
    program.chmod(0o755)
    return directory


@pytest.mark.parametrize(
    ("printed", "verdict", "text"),
    [
        ('openjdk version "17.0.15" 2025-04-15', Verdict.OK, "17.0.15"),
        ('java version "21" 2023-09-19 LTS', Verdict.OK, "21"),
        ('java version "1.8.0_392"', Verdict.PROBLEM, "too old for Spark: install Java 17 or newer"),
        ("Segmentation fault", Verdict.PROBLEM, "install Java 17 or newer"),
    ],
)
def test_the_version_of_java(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, printed: str, verdict: Verdict, text: str
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(java_that_prints(tmp_path, printed)))
    found = doctor.java()
    assert found.verdict is verdict and text in found.text and "\n" not in found.text


def test_no_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert doctor.java() == doctor.Finding(
        "java", Verdict.PROBLEM, "no `java` on PATH: install Java 17 or newer, or point JAVA_HOME at one"
    )


@pytest.mark.parametrize(
    ("version", "verdict"), [("4.0.2", Verdict.PROBLEM), ("4.1.0", Verdict.OK), ("5.0.0", Verdict.PROBLEM)]
)
def test_the_version_of_spark(monkeypatch: pytest.MonkeyPatch, version: str, verdict: Verdict) -> None:
    monkeypatch.setattr("pyspark.__version__", version)
    found = doctor.spark()
    assert found.verdict is verdict and version in found.text
    assert verdict is Verdict.OK or 'pip install "pyspark>=4.1,<5.0"' in found.text


def test_the_versions_of_spark_are_those_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert "pyspark>=4.1,<5" in project["dependencies"]
    assert doctor.SPARK_VERSIONS == ((4, 1), (5, 0))
    assert not [name for name in project["dependencies"] if re.match("matplotlib|polars", name)]
    assert {"matplotlib", "polars"} <= set(project["optional-dependencies"]["bench"])


def test_a_cache_that_others_can_write_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CEPHEID_CACHE", str(tmp_path / "own"))
    assert doctor.cache() == doctor.Finding("cache", Verdict.OK, str(tmp_path / "own"))
    os.chmod(tmp_path / "own", 0o777)
    found = doctor.cache()
    assert found.verdict is Verdict.WARNING and "set CEPHEID_CACHE" in found.text


def test_a_problem_is_exit_code_1_and_each_part_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "/does/not/exist")
    done = CliRunner().invoke(cli.app, ["doctor"])
    lines = done.stdout.splitlines()
    assert done.exit_code == 1
    assert [line.split()[0] for line in lines] == ["cepheid", "cache", "java", "spark", "workers"]
    assert lines[2].split()[1] == "problem" and lines[4].split()[1] == "warning"


@pytest.mark.parametrize(("typed", "suggested"), [("do", "doctor"), ("ex", "explain")])
def test_the_shell_completes_commands(typed: str, suggested: str) -> None:
    asked = {"_CEPHEID_COMPLETE": "complete_bash", "COMP_WORDS": f"cepheid {typed}", "COMP_CWORD": "1"}
    done = CliRunner().invoke(cli.app, [], prog_name="cepheid", env=asked)
    assert done.exit_code == 0 and done.stdout.split() == [suggested]


def test_the_notice_of_the_jvm_is_dropped(capfd: pytest.CaptureFixture[str]) -> None:
    with doctor._without_notices():
        os.write(2, b"WARNING: Using incubator modules: jdk.incubator.vector\nno space left\n")
    assert capfd.readouterr().err == "no space left\n"
