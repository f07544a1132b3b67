"""Checks of the machine: whether Cepheid can run here, on its own and on Spark."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import NamedTuple

from cepheid.errors import CepheidError
from cepheid.runtime.code_cache import directory_problem, wanted_directory
from cepheid.version import __version__

LEAST_JAVA = 17
SPARK_VERSIONS = ((4, 1), (5, 0))
"""The least version, and the first that is too new; `pyproject.toml` has the same."""


class Verdict(Enum):
    """Whether a part of the machine works, works with a limit, or must be repaired."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


class Finding(NamedTuple):
    """The state of one part of the machine, in one line. Of a problem the text says what to do."""

    subject: str
    """The part: Java, Spark, the code cache."""
    verdict: Verdict
    text: str


def findings(master: str) -> Iterator[Finding]:
    """Each finding as soon as it is known. Without Java or Spark no session is started."""
    yield Finding("cepheid", Verdict.OK, f"{__version__}, on Python {platform.python_version()}")
    yield cache()
    needed = (java(), spark())
    yield needed[0]
    yield needed[1]
    if all(finding.verdict is Verdict.OK for finding in needed):
        yield workers(master)
    else:
        yield Finding("workers", Verdict.WARNING, "not checked: they need Java and Spark")


def cache() -> Finding:
    directory = wanted_directory()
    problem = directory_problem(directory)
    if problem is None:
        return Finding("cache", Verdict.OK, _from_home(directory))
    return Finding(
        "cache",
        Verdict.WARNING,
        f"{directory} {problem}, so a temporary directory replaces it: set CEPHEID_CACHE to a directory of your own",
    )


def _from_home(path: Path) -> str:
    """`~/.cache/cepheid`"""
    return str("~" / path.relative_to(Path.home()) if path.is_relative_to(Path.home()) else path)


def java() -> Finding:
    home = os.environ.get("JAVA_HOME")
    found = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    advice = f"install Java {LEAST_JAVA} or newer, or point JAVA_HOME at one"
    if found is None:
        return Finding("java", Verdict.PROBLEM, f"no `java` on PATH: {advice}")
    try:
        printed = subprocess.run([found, "-version"], capture_output=True, text=True, timeout=60).stderr
    except (OSError, subprocess.TimeoutExpired) as error:
        return Finding("java", Verdict.PROBLEM, f"{found} does not run ({type(error).__name__}): {advice}")
    version = re.search(r'version "((?:1\.)?(\d+)[^"]*)"', printed)
    if version is None:
        return Finding("java", Verdict.PROBLEM, f"{found} does not tell its version: {advice}")
    if int(version[2]) < LEAST_JAVA:
        return Finding("java", Verdict.PROBLEM, f"{version[1]} ({found}) is too old for Spark: {advice}")
    return Finding("java", Verdict.OK, f"{version[1]} ({found})")


def spark() -> Finding:
    least, too_new = (".".join(map(str, version)) for version in SPARK_VERSIONS)
    advice = f'pip install "pyspark>={least},<{too_new}"'
    try:
        import pyspark
    except ImportError:
        return Finding("spark", Verdict.PROBLEM, f"PySpark is not installed: {advice}")
    version = tuple(int(number) for number in re.findall(r"\d+", pyspark.__version__)[:2])
    if not SPARK_VERSIONS[0] <= version < SPARK_VERSIONS[1]:
        return Finding("spark", Verdict.PROBLEM, f"PySpark {pyspark.__version__} is not supported: {advice}")
    home = os.environ.get("SPARK_HOME")
    return Finding("spark", Verdict.OK, f"PySpark {pyspark.__version__}" + (f", SPARK_HOME {home}" if home else ""))


@contextmanager
def _without_notices() -> Iterator[None]:
    """Holds back what the JVM writes to standard error, and drops its notice of modules, which means nothing here."""
    sys.stderr.flush()
    with tempfile.TemporaryFile() as held:
        before = os.dup(2)
        os.dup2(held.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(before, 2)
            os.close(before)
            held.seek(0)
            for line in held:
                if not line.startswith(b"WARNING: Using incubator modules"):
                    os.write(2, line)


@_without_notices()
def workers(master: str) -> Finding:
    """Starts Spark and asks its workers."""
    from cepheid.spark.session import session
    from cepheid.spark.workers import require_workers, worker_text

    try:
        running = session(master)
    except Exception as error:  # of Py4J, of Spark or of the system: whatever keeps Spark from starting
        reason = str(error).strip().split("\n")[0]
        return Finding("workers", Verdict.PROBLEM, f"Spark does not start on {master}: {reason}")
    try:
        require_workers(running)
        return Finding("workers", Verdict.OK, worker_text(running))
    except CepheidError as error:
        return Finding("workers", Verdict.PROBLEM, ": ".join(filter(None, (error.what, error.hint))))
    finally:
        running.stop()
