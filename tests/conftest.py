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


def _session() -> SparkSession:
    import cepheid

    # Without the optimising compiler, which costs small jobs more than it gains.
    return cepheid.session("local[2]", {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"})


@pytest.fixture(scope="session")
def _sessions() -> Iterator[list[SparkSession]]:
    sessions: list[SparkSession] = []
    yield sessions
    for session in sessions:
        session.stop()


@pytest.fixture
def spark(_sessions: list[SparkSession]) -> SparkSession:
    """One session for all tests of a process, since starting it costs more than most of them; a new one after a test
    that has stopped it."""
    if not _sessions or _sessions[-1].sparkContext._jsc is None:
        _sessions.append(_session())
    return _sessions[-1]
