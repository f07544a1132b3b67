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


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One session for all tests of a process: starting it costs more than most of them."""
    import cepheid

    # Without the optimising compiler, which costs small jobs more than it gains.
    session = cepheid.session("local[2]", {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"})
    yield session
    session.stop()
