"""The summary of all matches (`RETURN count(*), sum(b.v)`), folded from their positions part by part.

A summary is small, so it is part of a stream's state, and tasks that find different matches each have one of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from cepheid.engine.aggregation import Total
from cepheid.engine.gather import MatchValues
from cepheid.engine.oracle import Match
from cepheid.engine.positions import Binding, MatchPositions, intervals, position_columns
from cepheid.engine.prepare import Prepared
from cepheid.engine.stepping import Stepper
from cepheid.expr import AGGREGATES, Aggregate, Expr, Over, ResultType
from cepheid.io.rows import Rows
from cepheid.kernels.any_runs.lazy_matches import LazyKernel
from cepheid.pattern import Query
from cepheid.physical import Kind
from cepheid.runtime.kernel import END_OF_TIME, Array, Positions
from cepheid.types import BOOLEAN


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

    def add_found(
        self,
        found: Positions,
        binding: Binding,
        rows: Rows,
        schema: pa.Schema,
        owns: Callable[[Array], Array] | None = None,
    ) -> None:
        """Adds the matches of a step. `owns` selects matches by their start."""
        if not len(found):
            return
        if owns is None and self._only_counts and self._count(found, rows):
            return
        part = MatchPositions(position_columns(found, binding), *intervals(found, rows))
        self.add(part if owns is None else part.chosen(owns(part.start)), rows, schema)

    @property
    def _only_counts(self) -> bool:
        return all(node.over is Over.MATCHES and node.name is None for node in self.totals)

    def _count(self, found: Positions, rows: Rows) -> bool:
        """Counts matches without a look at each: of events without duration, the first and the last position have the
        earliest and the latest time. Says whether that is so."""
        positions = found.values if found.bounds is None else found.values[found.bounds[0] : found.bounds[-1]]
        if not len(positions):
            return False
        outermost = np.array([positions.min(), positions.max()])
        if rows.starts(outermost) is not None:
            return False
        start, end = rows.ticks(outermost).tolist()
        self.start = min(self.start, start)
        self.end = max(self.end, end if found.ends is None else int(found.ends.max()))
        for total in self.totals.values():
            total.count += len(found)
        return True

    def add(self, part: MatchPositions, rows: Rows, schema: pa.Schema) -> None:
        if len(part.start):
            self.start, self.end = min(self.start, int(part.start.min())), max(self.end, int(part.end.max()))
            MatchValues(schema, part, rows, {}, {}).add_to(self.totals)

    def row(self) -> Match:
        """The one row of the output."""
        values = {name: self.totals[node].value() for name, node in self.columns.items()}
        has_matches = self.start <= self.end
        return Match({}, self.start if has_matches else None, self.end if has_matches else None, values)

    def merge(self, other: Summary) -> None:
        """Adds the matches of another summary of the same query."""
        self.start, self.end = min(self.start, other.start), max(self.end, other.end)
        for node, total in self.totals.items():
            total.merge(other.totals[node])

    def to_data(self) -> dict[str, Any]:
        """The summary as JSON."""
        return {"start": self.start, "end": self.end, "totals": [total.to_data() for total in self.totals.values()]}

    @classmethod
    def of_data(cls, query: Query, data: Mapping[str, Any]) -> Summary:
        summary = cls.of(query)
        totals = {node: Total.of_data(known) for node, known in zip(summary.totals, data["totals"], strict=True)}
        return cls(summary.columns, totals, data["start"], data["end"])


@dataclass(frozen=True, slots=True)
class KernelTotals:
    """A summary that a kernel computed: its totals, and the texts of their codes."""

    words: Array
    texts: Mapping[int, Any]


PartialSummary = Summary | KernelTotals


def sums_up(prepared: Prepared) -> bool:
    """Whether the kernel computes the summary of all matches."""
    return isinstance(prepared.kernel, LazyKernel) and bool(prepared.kernel.summary.asked)


def part_of(prepared: Prepared, stepper: Stepper, summary: Summary) -> PartialSummary:
    """The summary of the matches so far: that of the kernel, if it computes one, or else this one."""
    kernel = prepared.kernel
    if not isinstance(kernel, LazyKernel) or not kernel.summary.asked:
        return summary
    words, texts = kernel.totals(stepper.state), {code: text for text, code in stepper.encoder.dictionary.codes.items()}
    return KernelTotals(words, kernel.summary.texts_of(words, texts))


def merged_row(prepared: Prepared, parts: Sequence[PartialSummary]) -> Match:
    """The one row of the output, from the summaries of parts that have no match in common."""
    kernel = prepared.kernel
    if isinstance(kernel, LazyKernel) and kernel.summary.asked:
        computed = [(part.words, part.texts) for part in parts if isinstance(part, KernelTotals)]
        return _row_of_kernel(kernel, *kernel.summary.merged(computed))
    summary = Summary.of(prepared.query)
    for part in parts:
        assert isinstance(part, Summary)
        summary.merge(part)
    return summary.row()


def _row_of_kernel(kernel: LazyKernel, words: Array, texts: Mapping[int, Any]) -> Match:
    row = kernel.summary.row(words)

    def decoded(expr: Expr, value: Any) -> Any:
        """A kernel holds booleans as numbers, and as codes strings and what else has no number."""
        if not isinstance(expr, Aggregate) or AGGREGATES[expr.fn].result is not ResultType.VALUE:
            return value
        if expr.name is None or value is None:
            return value
        if expr.operand == BOOLEAN:
            return bool(value)
        return texts[value] if kernel.plan.columns[expr.name] is Kind.CODE else value

    values = {c.name: decoded(c.expr, row.values[c.name]) for c in kernel.plan.query.output or ()}
    return Match({}, row.start, row.end, values)
