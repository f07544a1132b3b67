"""Workers that cannot run Cepheid: the error comes before the first job, and says what to do."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from stream_harness import QUICK_START

import cepheid
from cepheid.errors import NotAvailable
from cepheid.spark import arrow_schema
from cepheid.spark.workers import require_integer_offsets

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

pytestmark = [pytest.mark.spark]

SOURCES = Path(cepheid.__file__).parent.parent
OWN_SESSION = f"""
import sys
sys.path.insert(0, {str(SOURCES)!r})  # of the driver alone
import cepheid
from pyspark.sql import SparkSession

spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
events = spark.createDataFrame([("A", 1), ("B", 2)], "type string, ts long")
for attempt in range(int(sys.argv[1])):
    try:
        print("matches", cepheid.match("EVENT SEQ(A x, B y) WITHIN 5", events).count())
    except cepheid.CepheidError as error:
        print(error)
    cepheid.ship(spark)
"""


def output_of(python: Path, directory: Path, attempts: int, **environment: str) -> str:
    inherited = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYSPARK_PYTHON")}
    words, env = [str(python), "-c", OWN_SESSION, str(attempts)], {**inherited, **QUICK_START, **environment}
    done = subprocess.run(words, cwd=directory, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_workers_without_the_package_get_it_by_ship(tmp_path: Path) -> None:
    """The Python of the workers has the packages that Cepheid needs, by a path file, but not Cepheid."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", "env"], cwd=tmp_path, check=True)
    (site,) = tmp_path.glob("env/lib/python*/site-packages")
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    python = tmp_path / "env" / "bin" / "python"
    first, *rest = output_of(python, tmp_path, 2, PYSPARK_PYTHON=str(python)).splitlines()
    assert first == "error: Spark's workers cannot import `cepheid`"
    assert rest == [
        "  hint: call `cepheid.ship(session)` once, or install Cepheid in the Python that PYSPARK_PYTHON names",
        "matches 1",
    ]


def test_local_workers_of_another_environment_are_told_which_python_to_use(tmp_path: Path) -> None:
    """Spark starts `python3` of the path, also for a driver in an environment that is not activated."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", "env"], cwd=tmp_path, check=True)
    python = tmp_path / "env" / "bin" / "python"
    first, second = output_of(Path(sys.executable), tmp_path, 1, PYSPARK_PYTHON=str(python)).splitlines()
    assert first == f"error: the Python of Spark's workers ({python}) lacks `numba`, `numpy`, `pyarrow`"
    assert second == f"  hint: set PYSPARK_PYTHON={sys.executable} before the session starts"


@pytest.mark.slow
def test_a_python_that_does_not_start(tmp_path: Path) -> None:
    lines = output_of(Path(sys.executable), tmp_path, 1, PYSPARK_PYTHON="/does/not/exist").splitlines()
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    assert lines[0] == f"error: Spark's workers have a Python that does not start, and the driver has Python {here}"
    assert lines[1].startswith(f"  hint: set PYSPARK_PYTHON to a Python {here} on every node before the session starts")


def test_schemas_have_the_time_zone_of_the_session(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark 4.1 converts to UTC, newer ones take the zone: both are one schema."""
    frame = spark.createDataFrame(
        [], "a timestamp, b array<struct<c: timestamp, d: timestamp_ntz>>, e map<int, timestamp>"
    )
    monkeypatch.setattr(arrow_schema, "_TAKES_ZONE", True)
    newer = arrow_schema.arrow_schema(frame)

    def older(schema: StructType) -> pa.Schema:
        return to_arrow_schema(schema, timezone="Etc/GMT-3")

    monkeypatch.setattr(arrow_schema, "_TAKES_ZONE", False)
    monkeypatch.setattr(arrow_schema, "to_arrow_schema", older)
    assert arrow_schema.arrow_schema(frame) == newer
    assert newer.field("a").type.tz == spark.conf.get("spark.sql.session.timeZone")


@pytest.mark.parametrize("output", ["flat", "long"])
def test_shapes_of_matches_with_timestamps(spark: SparkSession, output: str) -> None:
    rows = [("A", datetime(2026, 1, 1, 8, tzinfo=UTC)), ("B", datetime(2026, 1, 1, 9, tzinfo=UTC))]
    events = spark.createDataFrame(rows, "type string, ts timestamp")
    found = cepheid.match("EVENT SEQ(A x, B y) WITHIN 2 hours", events, output=output)
    assert found.count() == (1 if output == "flat" else 2)


@pytest.mark.parametrize(
    ("spark", "arrow", "fits"), [("4.1.0", "26.0.1", False), ("4.1.0", "25.0", True), ("4.1.4", "26.0", True)]
)
def test_versions_that_do_not_fit_together(spark: str, arrow: str, fits: bool) -> None:
    with nullcontext() if fits else pytest.raises(NotAvailable, match=r"pyspark>=4\.1\.4"):
        require_integer_offsets(spark, arrow)


@pytest.mark.parametrize("size", [1, 50 << 20, 44 << 20, 1 << 40])
def test_every_core_has_as_many_tasks(spark: SparkSession, size: int) -> None:
    """Seven tasks on two cores leave one of them idle during the last."""
    from cepheid.spark.tasks import Tasks
    from cepheid.spark.workers import parallelism

    source = SimpleNamespace(frame=SimpleNamespace(sparkSession=spark))
    count = Tasks(source, None).of_size(size, 4)  # type: ignore[arg-type]
    assert count % parallelism(spark) == 0 and count <= 4 * parallelism(spark)
    assert count == parallelism(spark) or size >= count * (8 << 20)
