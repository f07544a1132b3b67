"""What a run of a plan did: the counters that EXPLAIN ANALYZE shows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class OperatorCounts:
    """What an operator did: the records that it made and, of a join, the combinations that it tried and the predicates
    that it tested on them."""

    made: int
    tried: int | None = None
    predicates: int | None = None


class VariableCounts(NamedTuple):
    """The events of a variable's types, and those of them that pass its conditions on a single event."""

    of_type: int
    passed: int


@dataclass(frozen=True, slots=True)
class Analysis:
    """What a plan did on some events: the counters of its kernel, those of each operator by the text of it, those of
    each variable, and how many windows passed (None without a window)."""

    counters: Mapping[str, int]
    operators: Mapping[str, OperatorCounts]
    variables: Mapping[str, VariableCounts]
    windows: float | None
    has_switched: bool = False
    """Whether the plan changed during the run: the counters of operators and partial matches are those of the last."""
    shares_times: bool = False
    """Whether several events have one time, so that none of them is before another."""
