"""The reference backend: the oracle itself, in one process. Exact and slow; made for tests and small data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cepheid.binding import bind
from cepheid.engine.backend import Answer
from cepheid.io.row_reader import Loaded
from cepheid.pattern import Query
from cepheid.semantics import evaluate


def run(query: Query, loaded: Loaded, params: Mapping[str, Any]) -> Answer:
    return Answer(evaluate(bind(query, loaded.schema, params), loaded.events, loaded.clock))
