"""The summary of all matches (`RETURN count(*), sum(b.v)`), folded from their positions part by part.

A summary is small, so it is part of a stream's state.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from cepheid.engine.aggregation import Total
from cepheid.engine.gather import MatchValues
from cepheid.engine.oracle import Match
from cepheid.engine.positions import MatchPositions
from cepheid.expr import Aggregate
from cepheid.io.rows import Rows
from cepheid.pattern import Query
from cepheid.runtime.kernel import END_OF_TIME


@dataclass(slots=True)
class Summary:
    """The aggregates of the query's columns over the matches so far, and their interval."""

    columns: Mapping[str, Aggregate]
    totals: dict[Aggregate, Total]
    start: int = END_OF_TIME
    end: int = -END_OF_TIME

    @classmethod
    def of(cls, query: Query) -> Summary:
        columns = {c.name: c.expr for c in query.output or () if isinstance(c.expr, Aggregate)}
        return cls(columns, {node: Total(node.fn) for node in columns.values()})

    @property
    def attributes(self) -> list[str]:
        """The attributes that are summarised."""
        return [node.name for node in self.totals if node.name is not None]

    def add(self, part: MatchPositions, rows: Rows, schema: pa.Schema) -> None:
        if len(part.start):
            self.start, self.end = min(self.start, int(part.start.min())), max(self.end, int(part.end.max()))
            MatchValues(schema, part, rows, {}, {}).add_to(self.totals)

    def row(self) -> Match:
        """The one row of the output."""
        values = {name: self.totals[node].value() for name, node in self.columns.items()}
        has_matches = self.start <= self.end
        return Match({}, self.start if has_matches else None, self.end if has_matches else None, values)

    def to_data(self) -> dict[str, Any]:
        """The summary as JSON."""
        return {"start": self.start, "end": self.end, "totals": [total.to_data() for total in self.totals.values()]}

    @classmethod
    def of_data(cls, query: Query, data: Mapping[str, Any]) -> Summary:
        summary = cls.of(query)
        totals = {node: Total.of_data(known) for node, known in zip(summary.totals, data["totals"], strict=True)}
        return cls(summary.columns, totals, data["start"], data["end"])
