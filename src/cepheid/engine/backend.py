"""What a query runs on. Every backend gives the same matches; `reference` is the oracle that the others are held to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from cepheid.errors import InputProblem, did_you_mean, listing, shown
from cepheid.io.row_reader import Loaded
from cepheid.pattern import Query
from cepheid.physical import Plan
from cepheid.semantics import Match

if TYPE_CHECKING:
    from cepheid.optimize.adapt import Switch
    from cepheid.optimize.stats import Stats


@dataclass(frozen=True, slots=True)
class Answer:
    """The matches, the plan by which a backend found them, and how it changed."""

    matches: list[Match]
    plan: Plan | None = None
    switches: tuple[Switch, ...] = ()


Run = Callable[[Query, Loaded, Mapping[str, Any]], Answer]

NAMES = ("reference", "local", "spark")


def backend(name: str, adaptive: bool = False, stats: Stats | None = None) -> Run:
    """The function that runs a query on the backend of this name; `adaptive` if its plan may change while it runs, with
    `stats` if it is to be chosen by what is known about the events."""
    if adaptive and name != "local":
        raise InputProblem("plans change on the backend `local` only", expected="--backend local with --adaptive")
    if name == "reference":
        if stats is not None:
            raise InputProblem(
                "statistics choose between plans, and the backend `reference` has none",
                expected="--backend local or --backend spark with --stats",
            )
        from cepheid.engine import reference

        return reference.run
    if name == "local":
        from cepheid.engine import local_events  # pyarrow and NumPy, which the reference does without

        return partial(local_events.run, adaptive=adaptive, stats=stats)
    if name == "spark":
        from cepheid.spark import files as spark_files  # Spark, which takes seconds to start

        return partial(spark_files.run, stats=stats)
    raise InputProblem(
        f"unknown backend `{shown(name)}`", expected=f"one of {listing(NAMES)}", hint=did_you_mean(name, NAMES)
    )
