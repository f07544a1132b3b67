"""Random tests are the same every time in `make test`, so that a red run means a change, and new every time in
`make test-all` (CEPHEID_EXPLORE=1), which is where new counterexamples are looked for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from examples import EXPLORES
from hypothesis import settings
from reach import pytest_pyfunc_call  # noqa: F401

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.register_profile("explore", deadline=None)
settings.load_profile("explore" if EXPLORES else "repeatable")


_STARTED: list[SparkSession] = []
"""The sessions of this process."""


def _session() -> SparkSession:
    import cepheid

    # Without the optimising compiler, which costs small jobs more than it gains.
    return cepheid.session("local[2]", {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"})


@pytest.fixture(scope="session")
def _sessions() -> Iterator[list[SparkSession]]:
    yield _STARTED
    for session in _STARTED:
        session.stop()


def _is_running(session: SparkSession) -> bool:
    try:
        return session.sparkContext._jsc is not None and not session.sparkContext._jsc.sc().isStopped()
    except Exception:  # the JVM has ended
        return False


@pytest.fixture(autouse=True)
def _leaves_spark_running() -> Iterator[None]:
    """The test that ends the session of its process fails, and not those that need it later."""
    was_running = bool(_STARTED) and _is_running(_STARTED[-1])
    yield
    assert not was_running or _is_running(_STARTED[-1]), "the test has ended the Spark session that all tests share"


@pytest.fixture
def spark(_sessions: list[SparkSession]) -> SparkSession:
    """One session for all tests of a process, since starting it costs more than most of them; a new one after a test
    that has ended it."""
    if not _sessions or not _is_running(_sessions[-1]):
        _sessions.append(_session())
    return _sessions[-1]
