"""The Python of Spark's workers: whether it can run Cepheid, and how it gets the package."""

from __future__ import annotations

import atexit
import re
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from weakref import WeakSet

import pyarrow as pa
import pyspark
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from cepheid.errors import NotAvailable, listing, shown
from cepheid.version import __version__

_PACKAGE = Path(__file__).parent.parent
_NEEDED = ("pyarrow", "numpy", "numba")
_UNKNOWN_PARALLELISM = 8
_MOST_TASKS = 64
_trusted: WeakSet[SparkSession] = WeakSet()
"""Sessions whose workers can run Cepheid."""


def trust(session: SparkSession) -> None:
    """Skips the check for a session whose workers run this Python with this package."""
    _trusted.add(session)


def ship(session: SparkSession) -> None:
    """Sends this version of Cepheid to the executors of a session. They need the packages that Cepheid uses (PyArrow,
    NumPy, Numba) and the same version of Python."""
    session.addArtifacts(str(_archive()), pyfile=True)


@lru_cache(maxsize=1)
def _archive() -> Path:
    """The package as an archive, which lasts as long as the process: executors that start later fetch it then."""
    directory = tempfile.mkdtemp(prefix="cepheid-")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    archive = Path(directory) / f"cepheid-{__version__}.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
        for file in sorted(_PACKAGE.rglob("*")):
            if file.is_file() and "__pycache__" not in file.parts:
                packed.write(file, file.relative_to(_PACKAGE.parent))
    return archive


def require_workers(session: SparkSession) -> None:
    """Checks, once for each session, that its workers have the same Python and Cepheid. A job of a few tasks asks."""
    if session not in _trusted:
        worker_text(session)
        trust(session)


def worker_text(session: SparkSession) -> str:
    """`Python 3.11.7 (/usr/bin/python3), Cepheid 0.1.0`, as the workers report it. Workers that cannot run Cepheid are
    an error."""
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    try:
        tasks = _tasks(session)
        probe = F.udf(_probe(_NEEDED), "string", useArrow=False)
        rows = session.range(0, tasks, 1, tasks).select(probe("id")).collect()
    except (PySparkException, Py4JJavaError) as error:
        raise _failure(str(error), here) from None
    reports = [report.split("\t") for report in sorted({row[0] for row in rows})]
    for python, path, version, missing in reports:
        if not python.startswith(f"{here}."):
            raise _other_python(f"Python {python}", here)
        if missing:
            raise NotAvailable(
                f"the Python of Spark's workers ({shown(path, 200)}) lacks {listing(missing.split(','))}",
                hint=f"set PYSPARK_PYTHON={shown(sys.executable, 200)} before the session starts"
                if _is_local(session)
                else "install them on every node, in the Python that PYSPARK_PYTHON names",
            )
        if not version:
            raise NotAvailable(
                "Spark's workers cannot import `cepheid`",
                hint="call `cepheid.ship(session)` once, or install Cepheid in the Python that PYSPARK_PYTHON names",
            )
        if version != __version__:
            raise NotAvailable(
                f"Spark's workers have Cepheid {version}, and the driver has {__version__}",
                hint=f"install Cepheid {__version__} on every node, in the Python that PYSPARK_PYTHON names",
            )
    python, path, version, _ = reports[0]
    return f"Python {python} ({path}), Cepheid {version}"


def _tasks(session: SparkSession) -> int:
    """Enough tasks to reach every executor."""
    return min(parallelism(session), _MOST_TASKS)


def is_remote(session: SparkSession) -> bool:
    """Whether the session is one of Spark Connect, which has no JVM here."""
    return type(session).__module__.startswith("pyspark.sql.connect.")


def require_jvm(session: SparkSession, what: str) -> None:
    """Refuses what needs the JVM of the driver, which a client of Spark Connect does not have."""
    if is_remote(session):
        raise NotAvailable(
            f"{what} over Spark Connect, whose clients reach neither file systems nor state",
            hint="run it in a process of its own without Connect: cepheid.session(master), or spark-submit",
        )


def _is_local(session: SparkSession) -> bool:
    """Whether the workers run on this machine."""
    return not is_remote(session) and str(session.sparkContext.master).startswith("local")


def parallelism(session: SparkSession) -> int:
    """The number of cores. Over Spark Connect it is unknown, and 8 stands for it."""
    return _UNKNOWN_PARALLELISM if is_remote(session) else int(session.sparkContext.defaultParallelism)


def _probe(needed: tuple[str, ...]) -> Callable[[int], str]:
    """The report of a worker. An inner function, because Spark sends its code: a function of this module would be sent
    by name, and the worker may not have the module."""

    def report(_: int) -> str:
        import platform
        import sys
        from importlib.util import find_spec

        try:
            from cepheid.version import __version__ as version
        except ImportError:
            version = ""
        missing = ",".join(name for name in needed if find_spec(name) is None)
        return "\t".join((platform.python_version(), sys.executable, version, missing))

    return report


def _failure(text: str, here: str) -> NotAvailable:
    """The error of a job that did not end: Spark itself refuses another Python, and cannot start one that is absent."""
    if "PYTHON_VERSION_MISMATCH" in text:
        return _other_python("another version of Python", here)
    if "Cannot run program" in text:
        return _other_python("a Python that does not start", here)
    told = [line.strip() for line in text.splitlines() if "Error" in line or "Exception" in line]
    return NotAvailable(
        f"Spark's workers cannot run Python: {shown(told[-1] if told else text.strip(), 200)}",
        hint="run `cepheid doctor`",
    )


def _other_python(found: str, here: str) -> NotAvailable:
    return NotAvailable(
        f"Spark's workers have {found}, and the driver has Python {here}",
        hint=f"set PYSPARK_PYTHON to a Python {here} on every node before the session starts (here: {sys.executable})",
    )


_FIRST_WITH_INTEGERS = (4, 1, 4)
_FIRST_THAT_REQUIRES_THEM = 26


def require_integer_offsets(spark: str = pyspark.__version__, arrow: str = pa.__version__) -> None:
    """Refuses a stream on a PySpark that slices the batches of its state by floats, which PyArrow does not accept."""
    version = tuple(int(part) for part in re.findall(r"\d+", spark)[:3])
    if version < _FIRST_WITH_INTEGERS and int(arrow.partition(".")[0]) >= _FIRST_THAT_REQUIRES_THEM:
        raise NotAvailable(
            f"streams on PySpark {spark} with PyArrow {arrow}, which do not fit together",
            hint="pip install 'pyspark>=4.1.4,<5', or 'pyarrow<26'",
        )
