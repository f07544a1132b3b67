"""What a query runs on. Every backend gives the same matches; `reference` is the oracle that the others are held to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from cepheid.backends.files import Loaded
from cepheid.errors import InputProblem, did_you_mean, listing, shown
from cepheid.pattern import Query
from cepheid.physical import Plan
from cepheid.semantics import Match


@dataclass(frozen=True, slots=True)
class Answer:
    """The matches, and the plan by which a backend found them."""

    matches: list[Match]
    plan: Plan | None = None


Run = Callable[[Query, Loaded, Mapping[str, Any]], Answer]

NAMES = ("reference", "local", "spark")


def backend(name: str) -> Run:
    """The function that runs a query on the backend of this name."""
    if name == "reference":
        from cepheid.backends import reference

        return reference.run
    if name == "local":
        from cepheid.backends import local_events  # pyarrow and NumPy, which the reference does without

        return local_events.run
    if name == "spark":
        from cepheid.backends import spark_files  # Spark, which takes seconds to start

        return spark_files.run
    raise InputProblem(
        f"unknown backend `{shown(name)}`", expected=f"one of {listing(NAMES)}", hint=did_you_mean(name, NAMES)
    )
