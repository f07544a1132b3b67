"""Where partial detections ask for the events of later steps (CED §3.3): ordinary kernels find the partial detections
among the events that are known, and each activates an interval of time for the subevents of the next step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from cepheid.acquire.intervals import IntervalSet, Numbers
from cepheid.acquire.plans import Plan
from cepheid.acquire.tree import EventTree, Kind, Node, Operator, Part, partial_query, streams
from cepheid.checks import EVENT_ID, NODE
from cepheid.engine.positions import MatchPositions
from cepheid.engine.prepare import Prepared, RunOptions, prepare
from cepheid.engine.run import run_matches
from cepheid.errors import NotAvailable
from cepheid.expr import Attr
from cepheid.expr import walk as walk_expression
from cepheid.io.inputs import Columns
from cepheid.io.rows import Rows
from cepheid.io.source import Attributes, Source, SourceDescription, TableSource
from cepheid.pattern import Column, DerivedStream, Neg, Query, roles


@dataclass(frozen=True, slots=True)
class Asked:
    """The events of sources that can be asked, for `prepare`: their columns and types. They are not sampled."""

    schema: pa.Schema
    columns: Columns
    attributes: Attributes
    epoch_unit: str | None = None
    is_closed: bool = False
    omits_nulls: bool = False
    count: None = None

    def sample(self, names: Sequence[str], size: int) -> None:
        return None

    def table(self, events: pa.Table) -> Source:
        """Some of the events."""
        source = TableSource.of(events, self.columns)
        return replace(source, attributes=self.attributes)


class Stage(NamedTuple):
    """The partial detections of some units of an operator, which activate those of the next step."""

    operator: Operator
    before: int
    step: tuple[int, ...]
    """The units that it activates."""
    indices: tuple[int, ...]
    """The operands of the partial detection."""
    prepared: Prepared
    variables: Mapping[int, tuple[str, ...]]
    """The variables of each operand that occurs."""
    reads: frozenset[str]
    """The streams of the operands."""
    excludes: frozenset[str]
    """The streams that may spoil a partial detection."""

    def activated(self, source: Source, certain: int) -> dict[int, IntervalSet]:
        """When each operand of the next step is of interest, by the partial detections among some events. Those that
        can be spoiled count if they are certain: they end before this time."""
        found: dict[int, list[IntervalSet]] = {i: [] for unit in self.step for i in self.operator.units[unit]}
        for matches, rows in run_matches(self.prepared, source):
            times = {i: _interval(matches, rows, names) for i, names in self.variables.items()}
            if self.excludes:
                kept = matches.end < certain
                times = {i: (starts[kept], ends[kept]) for i, (starts, ends) in times.items()}
            for index, parts in found.items():
                parts.append(IntervalSet.of_arrays(*self._wanted(index, times)))
        return {index: _union(parts) for index, parts in found.items()}

    def _wanted(self, index: int, times: Mapping[int, tuple[Numbers, Numbers]]) -> tuple[Numbers, Numbers]:
        """Where an operand must end to fit each partial detection, or must not end if it is negated (CED §2.2)."""
        window = self.operator.window or 0
        ends = np.stack([end for _, end in times.values()])
        if self.operator.kind is Kind.AND:
            return ends.max(axis=0) - window, ends.min(axis=0) + window
        earlier = [i for i in times if i < index]
        later = [i for i in times if i > index]
        apart = 0 if self.operator.negated[index] else 1
        begin = times[max(earlier)][1] + apart if earlier else ends.max(axis=0) - window
        end = times[min(later)][0] - apart if later else ends.min(axis=0) + window
        return begin, end


def _union(parts: list[IntervalSet]) -> IntervalSet:
    return parts[0] if len(parts) == 1 else IntervalSet.of(interval for part in parts for interval in part.intervals)


def _interval(matches: MatchPositions, rows: Rows, names: tuple[str, ...]) -> tuple[Numbers, Numbers]:
    """The earliest start and the latest end of some variables of each match. Those of a branch not taken are null."""
    starts, ends = [], []
    for name in names:
        column = matches.variables[name]
        is_bound = np.asarray(column.is_valid())
        positions = np.asarray(column.drop_null(), np.int64)
        end = np.full(len(column), np.iinfo(np.int64).min)
        start = np.full(len(column), np.iinfo(np.int64).max)
        end[is_bound] = rows.ticks(positions)
        began = rows.starts(positions)
        start[is_bound] = end[is_bound] if began is None else began
        starts.append(start)
        ends.append(end)
    return np.min(starts, axis=0), np.max(ends, axis=0)


# --- preparation ------------------------------------------------------------------------------------------------------


def stages_of(node: Node, plan: Plan, tree: EventTree, source: SourceDescription, options: RunOptions) -> list[Stage]:
    """The stages of a plan, those of an operator before those of its operands."""
    if not isinstance(node, Operator):
        return []
    found: list[Stage] = []
    before = 0
    for number, step in enumerate(plan.steps):
        if number:
            found.append(_stage(node, before, step, tree.parts[node.name], source, options))
        before |= sum(1 << unit for unit in step)
    for unit, below in enumerate(plan.below):
        for index in node.units[unit]:
            found += stages_of(node.items[index], below, tree, source, options)
    return found


def _stage(
    operator: Operator, before: int, step: tuple[int, ...], part: Part, source: SourceDescription, options: RunOptions
) -> Stage:
    indices = sorted(i for unit in range(len(operator.units)) if before >> unit & 1 for i in operator.units[unit])
    query = partial_query(part, indices)
    bound = set(query.roles)
    items = getattr(part.pattern, "items", ())
    variables = {
        i: tuple(var for var, role in roles(items[i]).items() if not role.negated and var in bound)
        for i in indices
        if not isinstance(items[i], Neg)
    }
    nodes = [operator.items[i] for i in indices]
    excluded: list[Iterable[str]] = [streams(operator.items[i]) for i in indices if operator.negated[i]]
    excluded += [_counted_streams(operator.items[i]) for i in indices]
    return Stage(
        operator,
        before,
        step,
        tuple(indices),
        prepare(query, source, replace(options, params={})),
        variables,
        frozenset(stream for node in nodes for stream in streams(node)),
        frozenset().union(*excluded),
    )


def _counted_streams(node: Node) -> frozenset[str]:
    """The event types that a node counts."""
    if not isinstance(node, Operator):
        return frozenset()
    if node.kind is Kind.COUNT:
        return frozenset(streams(node))
    return frozenset().union(*map(_counted_streams, node.items))


def require_acquirable(query: Query) -> None:
    """Refuses a query in which an event that is not fetched could count as the first of several with one identity."""
    for item in (query, *query.inputs):
        if isinstance(item, Query) and item.consumes:
            raise NotAvailable(
                f"a plan for `{item.name}`, whose matches depend on all earlier ones",
                expected="`consume freely`",
                hint="detect all matches, and let each event be in one of them afterwards",
            )
    for item in query.inputs:
        columns: Sequence[Column] = (
            item.columns if isinstance(item, DerivedStream) else getattr(item, "output", None) or ()
        )
        for column in columns:
            if column.name == EVENT_ID and not _reads_time(column.expr):
                raise NotAvailable(
                    f"a plan for `{item.name}`, whose events count once for each `{EVENT_ID}`, however far apart",
                    expected=f"an `{EVENT_ID}` that depends on node.time, or none",
                )


def _reads_time(expr: Any) -> bool:
    return any(isinstance(node, Attr) and node.var == NODE and node.name == "time" for node in walk_expression(expr))
