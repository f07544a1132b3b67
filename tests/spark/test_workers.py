"""Workers that cannot run Cepheid: the error comes before the first job, and says what to do."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import cepheid

pytestmark = [pytest.mark.spark]

SOURCES = Path(cepheid.__file__).parent.parent
OWN_SESSION = f"""
import sys
sys.path.insert(0, {str(SOURCES)!r})  # of the driver alone
import cepheid
from pyspark.sql import SparkSession

spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
events = spark.createDataFrame([("A", 1), ("B", 2)], "type string, ts long")
for attempt in range(2):
    try:
        print("matches", cepheid.match("EVENT SEQ(A x, B y) WITHIN 5", events).count())
    except cepheid.CepheidError as error:
        print(error)
    cepheid.ship(spark)
"""


def output_of(program: str, python: Path, directory: Path, **environment: str) -> str:
    inherited = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYSPARK_PYTHON")}
    done = subprocess.run(
        [str(python), "-c", program], cwd=directory, env={**inherited, **environment}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_workers_without_the_package_get_it_by_ship(tmp_path: Path) -> None:
    """The Python of the workers has the packages that Cepheid needs, by a path file, but not Cepheid."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", "env"], cwd=tmp_path, check=True)
    (site,) = tmp_path.glob("env/lib/python*/site-packages")
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    python = tmp_path / "env" / "bin" / "python"
    first, *rest = output_of(OWN_SESSION, python, tmp_path, PYSPARK_PYTHON=str(python)).splitlines()
    assert first == "error: Spark's workers cannot import `cepheid`"
    assert rest == [
        "  hint: call `cepheid.ship(session)` once, or install Cepheid in the Python that PYSPARK_PYTHON names",
        "matches 1",
    ]


def test_a_python_that_does_not_start(tmp_path: Path) -> None:
    lines = output_of(OWN_SESSION, Path(sys.executable), tmp_path, PYSPARK_PYTHON="/does/not/exist").splitlines()
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    assert lines[0] == f"error: Spark's workers have a Python that does not start, and the driver has Python {here}"
    assert lines[1].startswith(f"  hint: set PYSPARK_PYTHON to a Python {here} on every node before the session starts")
