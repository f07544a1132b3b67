"""Where partial detections ask for the events of later steps (CED §3.3): ordinary kernels find the partial detections
among the events that are known, and each activates an interval of time for the subevents of the next step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cepheid.acquire.intervals import IntervalSet, Numbers
from cepheid.acquire.keyed import NOTHING, KeyedSet
from cepheid.acquire.plans import Plan
from cepheid.acquire.tree import EventTree, Kind, Node, Operator, Part, Primitive, nodes, partial_query, streams
from cepheid.checks import EVENT_ID, NODE
from cepheid.engine.positions import MatchPositions
from cepheid.engine.prepare import Prepared, RunOptions, prepare
from cepheid.engine.run import run_matches
from cepheid.errors import NotAvailable
from cepheid.expr import Attr, Compare
from cepheid.expr import walk as walk_expression
from cepheid.io.inputs import Columns
from cepheid.io.rows import Rows
from cepheid.io.source import Attributes, Source, TableSource
from cepheid.pattern import Column, DerivedStream, EventClass, Neg, Query, SourceStream, roles

REGION = "region"
"""The column with the region of the source of an event, unless another is named."""


@dataclass(frozen=True, slots=True)
class Asked:
    """The events of sources that can be asked, for `prepare`: their columns and types. They are not sampled."""

    schema: pa.Schema
    columns: Columns
    attributes: Attributes
    epoch_unit: str | None = None
    extreme_times: None = None
    is_closed: bool = False
    omits_nulls: bool = False
    count: None = None
    added: frozenset[str] = frozenset()
    """Columns that the base adds: sources do not have them."""
    held: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """The columns of each source; one that is not named has all."""
    regions: Mapping[str, str] = field(default_factory=dict)
    """The region of each source that has one."""
    region: str = REGION
    """The column with the region."""

    def sample(self, names: Sequence[str], size: int) -> None:
        return None

    def table(self, events: pa.Table) -> Source:
        """Some of the events."""
        source = TableSource.of(events, self.columns)
        return replace(source, attributes=self.attributes)


class KeyTest(NamedTuple):
    """An equality between an operand and one that is known: `attribute` of the operand, `known` of the variable."""

    attribute: str
    var: str
    known: str


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
    keys: Mapping[int, KeyTest]
    """The operands of the next step whose events are asked for by the values of an attribute."""

    def activated(self, source: Source, certain: int) -> dict[int, KeyedSet]:
        """When each operand of the next step is of interest, by the partial detections among some events. Those that
        can be spoiled count if they are certain: they end before this time."""
        found: dict[int, KeyedSet] = {i: NOTHING for unit in self.step for i in self.operator.units[unit]}
        columns = list(dict.fromkeys(test.known for test in self.keys.values()))
        for matches, rows in run_matches(self.prepared, source, columns):
            times = {i: _interval(matches, rows, names) for i, names in self.variables.items()}
            kept = None
            if self.excludes:
                kept = matches.end < certain
                times = {i: (starts[kept], ends[kept]) for i, (starts, ends) in times.items()}
            for index in found:
                begins, ends = self._wanted(index, times)
                if index in self.keys:
                    values = self._values(self.keys[index], matches, rows, kept)
                    found[index] |= _by_key(begins, ends, values)
                else:
                    found[index] |= KeyedSet(IntervalSet.of_arrays(begins, ends))
        return found

    def _values(
        self, test: KeyTest, matches: MatchPositions, rows: Rows, kept: npt.NDArray[np.bool_] | None
    ) -> pa.Array:
        """The values that an operand must have, for each partial detection."""
        positions = matches.variables[test.var]
        column = rows.take([test.known], positions).column(test.known)
        values = column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column
        return values if kept is None else values.filter(pa.array(kept))

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


def _by_key(begins: Numbers, ends: Numbers, values: pa.Array) -> KeyedSet:
    """The intervals by key. An event whose key is null fits no other."""
    encoded = values.dictionary_encode()
    codes = np.asarray(encoded.indices.fill_null(-1), np.int64)
    order = np.argsort(codes, kind="stable")
    bounds = np.searchsorted(codes[order], np.arange(len(encoded.dictionary) + 1))
    parts = {}
    for code, key in enumerate(encoded.dictionary.to_pylist()):
        own = order[bounds[code] : bounds[code + 1]]
        parts[key] = IntervalSet.of_arrays(begins[own], ends[own])
    return KeyedSet(parts={key: times for key, times in parts.items() if times})


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


def stages_of(node: Node, plan: Plan, tree: EventTree, source: Asked, options: RunOptions) -> list[Stage]:
    """The stages of a plan, those of an operator before those of its operands."""
    if not isinstance(node, Operator):
        return []
    leaves = [leaf.stream for leaf in nodes(tree.root) if isinstance(leaf, Primitive)]
    found: list[Stage] = []
    before = 0
    for number, step in enumerate(plan.steps):
        if number:
            stage = _stage(node, before, step, tree.parts[node.name], source, options)
            keys = {
                index: test
                for index, test in stage.keys.items()
                if isinstance(item := node.items[index], Primitive) and leaves.count(item.stream) == 1
            }
            found.append(stage._replace(keys=keys))
        before |= sum(1 << unit for unit in step)
    for unit, below in enumerate(plan.below):
        for index in node.units[unit]:
            found += stages_of(node.items[index], below, tree, source, options)
    return found


def _stage(
    operator: Operator, before: int, step: tuple[int, ...], part: Part, source: Asked, options: RunOptions
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
        _key_tests(operator, step, query, part, source),
    )


def _key_tests(
    operator: Operator, step: tuple[int, ...], query: Query, part: Part, source: Asked
) -> dict[int, KeyTest]:
    """The equalities of the next step's operands with known ones, where both are events of the input. Integers and
    strings are keys; floats that are equal may differ."""
    derived = {stream.name for stream in part.query.inputs if not isinstance(stream, SourceStream)}
    classes = {
        node.var: node.types[0]
        for item in getattr(part.pattern, "items", ())
        if isinstance(node := item.item if isinstance(item, Neg) else item, EventClass) and node.types[0] not in derived
    }
    known = [node.var for node in getattr(query.pattern, "items", (query.pattern,)) if isinstance(node, EventClass)]
    found: dict[int, KeyTest] = {}
    for unit in step:
        indices = operator.units[unit]
        item = getattr(part.pattern, "items", ())[indices[0]]
        node = item.item if isinstance(item, Neg) else item
        if len(indices) > 1 or not isinstance(node, EventClass) or node.var not in classes:
            continue
        for predicate in part.query.where:
            match predicate:
                case Compare(op="=", left=Attr() as left, right=Attr() as right):
                    own, other = (left, right) if left.var == node.var else (right, left)
                    if (
                        own.var == node.var
                        and other.var in known
                        and other.var in classes
                        and _is_key(own, other, classes, source)
                    ):
                        found.setdefault(indices[0], KeyTest(own.name, other.var, other.name))
    return found


def _is_key(own: Attr, other: Attr, classes: Mapping[str, str], source: Asked) -> bool:
    """A condition on an attribute that a type lacks does not apply (ruling 4), so that it is no key. Sources cannot be
    asked by a column that the base adds."""
    attributes = source.attributes or {}
    if own.name in source.added:
        return False
    if any(one.name not in attributes.get(classes[one.var], {}) for one in (own, other)):
        return False
    kinds = [source.schema.field(attribute.name).type for attribute in (own, other)]
    kinds = [kind.value_type if pa.types.is_dictionary(kind) else kind for kind in kinds]
    is_text = all(pa.types.is_string(kind) or pa.types.is_large_string(kind) for kind in kinds)
    return is_text or all(pa.types.is_integer(kind) for kind in kinds)


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
