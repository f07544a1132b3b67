"""What a query runs on. Every backend gives the same matches; `reference` is the oracle that the others are held to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from cepheid.backends.files import Loaded
from cepheid.errors import InputProblem, NotAvailable, did_you_mean, listing, shown
from cepheid.pattern import Query
from cepheid.semantics import Match

Run = Callable[[Query, Loaded, Mapping[str, Any]], list[Match]]

NAMES = ("reference", "local", "spark")


def backend(name: str) -> Run:
    """The function that runs a query on the backend of this name."""
    if name == "reference":
        from cepheid.backends import reference

        return reference.run
    if name in NAMES:
        raise NotAvailable(f"this version does not have the backend `{name}` yet", hint="use --backend reference")
    raise InputProblem(
        f"unknown backend `{shown(name)}`", expected=f"one of {listing(NAMES)}", hint=did_you_mean(name, NAMES)
    )
