"""Compiles the helpers that all kernels share, so that the first query compiles only its own code.

The set-up runs it once (`python -m cepheid.app.warm_up`). The machine code is cached beside the sources, or with the
kernels if their directory is not writable (`runtime/code_cache`).
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import pyarrow as pa
from rich.console import Console
from rich.progress import track

from cepheid.api import match
from cepheid.datasets import stock, synthetic
from cepheid.errors import CepheidWarning

_EVENTS = 30_000
"""Enough events that no kernel is interpreted."""


def _one_of_each() -> Iterator[tuple[str | dict[str, str], pa.Table]]:
    """Small queries that together call every helper that is compiled separately."""
    sequence = synthetic(_EVENTS, 20, (1_000,), seed=1)
    yield "EVENT SEQ(E1, E2, E3) WHERE [attr1] WITHIN 100", sequence
    yield "EVENT SEQ(E1, !(E2), E3) WHERE [attr1] WITHIN 100", sequence
    yield "PATTERN E1; E2; E3 WHERE E1.attr1 > E2.attr1 AND E2.attr1 = E3.attr1 WITHIN 100", sequence
    rule = "SELECT * FROM (E1 a; E2 b) WHERE FILTER(a.attr1 = b.attr1), a.attr1 > {} AND (a, b) OCCURS WITHIN 100"
    yield {f"rule{limit}": rule.format(limit) for limit in (100, 200)}, sequence
    prices = stock(10 * _EVENTS, seed=1)  # enough events that garbage in the state is collected too
    closure = "[symbol] and a[1].price % 500 == 0 and a[i].volume < 10 and b.volume < 15 } WITHIN 1000"
    yield f"PATTERN SEQ(Stock+ a[], Stock b) WHERE skip_till_next_match(a[], b) {{ {closure}", prices
    yield f"PATTERN SEQ(Stock+ a[], Stock b) WHERE skip_till_any_match(a[], b) {{ {closure}", prices
    yield f"PATTERN SEQ(Stock+ a[], Stock b) WHERE skip_till_any_match(a[], b) {{ {closure} RETURN count(*)", prices


def warm_up() -> None:
    queries = list(_one_of_each())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CepheidWarning)  # matches are not the purpose
        for query, events in track(queries, "Compiling shared helpers", console=Console(stderr=True)):
            match(query, events)


if __name__ == "__main__":
    warm_up()
