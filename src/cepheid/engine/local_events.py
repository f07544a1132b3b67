"""The local backend over events that are already read (JSON Lines, CSV): kernels find the matches, and the matches are
made of the very events that were read, so that they are shown as the reference backend shows them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from cepheid import expr as ex
from cepheid.binding import bind
from cepheid.checks import summarises
from cepheid.codegen.columns import kind_of
from cepheid.engine.adaptation import Listener, stepper_for, unheard
from cepheid.engine.analysis import analysed
from cepheid.engine.backend import Answer
from cepheid.engine.limit import first_matches
from cepheid.engine.positions import bindings_of
from cepheid.engine.prepare import Prepared, Wishes, prepare
from cepheid.engine.sampling import SHARE, WORTHWHILE
from cepheid.engine.stepping import PIECE, Stepper
from cepheid.engine.summaries import summary_of, sums_up
from cepheid.events import Event
from cepheid.expr import Binding, Env
from cepheid.io.row_reader import Loaded
from cepheid.io.rows import TIME, TYPE
from cepheid.io.source import BATCH
from cepheid.optimize.adapt import Switch, policy_of
from cepheid.optimize.stats import NO_STATS, Stats, from_sample
from cepheid.pattern import Query
from cepheid.physical import Analysis, Kind
from cepheid.runtime.kernel import Kernel, Positions
from cepheid.semantics import Match, evaluate, summary
from cepheid.semantics.common import events_of

_SAMPLE = 4_096
"""How many events statistics are taken from, at most."""
_EXACT = 2**53
"""The whole numbers up to here are floats as well."""

Bindings = Mapping[str, int | tuple[int, ...] | None]
"""A match as positions: of the event of each variable, or of its events; none for a branch not taken."""


def run(
    query: Query, loaded: Loaded, params: Mapping[str, Any], *, adaptive: bool = False, stats: Stats | None = None
) -> Answer:
    wishes = Wishes(params, stats=stats or NO_STATS, adaptive=policy_of(adaptive))
    prepared = prepare_events(query, loaded, wishes)
    switches: list[Switch] = []
    return Answer(matches_of(prepared, loaded, switches.append), prepared.plan, tuple(switches))


def prepare_events(query: Query, loaded: Loaded, wishes: Wishes) -> Prepared:
    """Where nothing is known about the stream, some of its first events decide between plans."""
    attributes = _Attributes(loaded.events)
    kinds = {name: kind for name in _names(query) if (kind := attributes.kind(name)) is not None}
    if wishes.stats == NO_STATS and len(loaded.events) >= WORTHWHILE:
        bound = bind(query, loaded.schema, wishes.params)
        if not bound.inputs:
            size = min(_SAMPLE, len(loaded.events) // SHARE)
            wishes = replace(wishes, stats=from_sample(bound, loaded.events[:size], loaded.clock))
    return prepare(query, kinds, loaded.schema, loaded.clock, wishes)


def analysis_of(prepared: Prepared, loaded: Loaded) -> Analysis:
    """What the plan does on the events, operator by operator."""
    whole = event_batch(prepared, loaded.events)
    parts = (whole.slice(start, BATCH) for start in range(0, whole.num_rows, BATCH))
    return analysed(prepared, parts, whole.num_rows)


def matches_of(prepared: Prepared, loaded: Loaded, listener: Listener = unheard) -> list[Match]:
    """In the order in which they are complete, as the oracle gives them."""
    if prepared.kernel is None:
        return evaluate(prepared.query, loaded.events, prepared.clock)
    if sums_up(prepared):
        stepper = Stepper.start(prepared.kernel, len(loaded.events))
        for _ in _answers(stepper, event_batch(prepared, loaded.events), None):
            """The kernel sums up as it goes."""
        return [summary_of(prepared, stepper)][: prepared.query.limit]
    return complete_matches(prepared, _bindings(prepared, prepared.kernel, loaded.events, listener), loaded.events)


def complete_matches(prepared: Prepared, found: Iterable[Bindings], events: Sequence[Event]) -> list[Match]:
    """The matches that bind the events at these positions, in order, and only those that LIMIT leaves."""
    matches = sorted((_match(prepared, at, events) for at in found), key=_order)
    if summarises(prepared.query):
        matches = [summary(prepared.query, matches)]
    return matches if prepared.query.limit is None else matches[: prepared.query.limit]


def _order(match: Match) -> tuple[int, int, list[int]]:
    return match.end, match.start, [event.position for event in events_of(match.bindings)]


def _bindings(prepared: Prepared, kernel: Kernel, events: Sequence[Event], listener: Listener) -> Iterator[Bindings]:
    stepper = stepper_for(prepared, kernel, len(events), listener)
    limit = None if summarises(prepared.query) else prepared.query.limit
    answers = _answers(stepper, event_batch(prepared, events), None if limit is None else PIECE)
    if limit is not None:
        times = np.array([event.start for event in events], np.int64)
        first, _, _ = first_matches(stepper, answers, limit, lambda at: times[at])
        answers = iter([first])
    for positions in answers:
        yield from bindings_of(positions, prepared.binding)


def _answers(stepper: Stepper, whole: pa.RecordBatch, piece: int | None) -> Iterator[Positions]:
    for start in range(0, whole.num_rows, BATCH):
        yield from stepper.step(whole.slice(start, BATCH), piece)
    yield from stepper.finish_lazily()


def _match(prepared: Prepared, at: Bindings, events: Sequence[Event]) -> Match:
    output = prepared.query.output
    wants_columns = output is not None and not summarises(prepared.query)
    bound = {var: _events(at[var], events) for var in prepared.variables}
    env = Env(bound, {}, prepared.clock)
    columns = {c.name: ex.value_or_null(c.expr, env) for c in output or ()} if wants_columns else None
    flat = events_of(bound)
    return Match(bound, min(e.start for e in flat), max(e.end for e in flat), columns)


def _events(at: int | tuple[int, ...] | None, events: Sequence[Event]) -> Binding:
    if isinstance(at, tuple):
        return tuple(events[position] for position in at)
    return None if at is None else events[at]


# --- events as columns ------------------------------------------------------------------------------------------------


def _names(query: Query) -> list[str]:
    """The attributes that the query's conditions name, and what it returns about all matches."""
    returned = [column.expr for column in query.output or ()] if summarises(query) else []
    nodes = [node for expression in (*query.where, *returned) for node in ex.walk(expression)]
    names = [node.name for node in nodes if isinstance(node, ex.Attr | ex.Aggregate | ex.Same)]
    return [name for name in dict.fromkeys(names) if name is not None]


@dataclass(frozen=True, slots=True)
class _Attributes:
    """The attributes of events as Arrow columns, in the type that all their values have."""

    events: Sequence[Event]

    def column(self, name: str) -> pa.Array | None:
        """None where the values have no one type that a kernel can hold."""
        values = [event.attributes.get(name) for event in self.events]
        found = {type(value) for value in values if value is not None}
        if found == {int, float} and all(abs(v) <= _EXACT for v in values if isinstance(v, int)):
            return pa.array([None if v is None else float(v) for v in values], pa.float64())
        if found == {int} and not all(-(2**63) < v < 2**63 for v in values if v is not None):
            return None
        types = {int: pa.int64(), float: pa.float64(), str: pa.string(), bool: pa.bool_()}
        if not found:
            return pa.nulls(len(values))
        return pa.array(values, types[found.pop()]) if len(found) == 1 and found <= types.keys() else None

    def kind(self, name: str) -> Kind | None:
        column = self.column(name)
        return None if column is None else kind_of(column.type)


def event_batch(prepared: Prepared, events: Sequence[Event]) -> pa.RecordBatch:
    """What the plan reads of the events."""
    names: list[str] = []
    for plan in prepared.plans:
        tested = [node for bit in plan.bits for test in bit.tests for node in ex.walk(test)]
        names += [*(node.name for node in tested if isinstance(node, ex.Attr)), *plan.columns, *plan.key]
    attributes = _Attributes(events)
    columns: dict[str, pa.Array] = {TYPE: pa.array([event.type for event in events], pa.string()).dictionary_encode()}
    columns[TIME] = pa.array(np.array([event.start for event in events], np.int64))
    for name in dict.fromkeys(names):
        column = attributes.column(name)
        if column is not None:
            columns[name] = column
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
