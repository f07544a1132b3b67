"""The plan of a stream: its queries, the columns they read, and how events are divided into buckets and ordered.

Events are spread by key over a fixed number of *buckets*, each with a state of its own. Queries that share a key share
the buckets, the events in them and the pass over the input; a query without a key has one bucket. The plan holds no
events and travels to the workers.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from cepheid.binding import require_types
from cepheid.codegen.columns import MASK
from cepheid.dialect import Windows
from cepheid.engine.derivation import Wiring
from cepheid.engine.detected_at import needs_later_events
from cepheid.engine.gather import Gatherer, with_types
from cepheid.engine.oracle import derived_columns, made_batch, makes_output
from cepheid.engine.prepare import DEFAULT_OPTIONS, Prepared, RunOptions, is_alone, prepare, require_used
from cepheid.engine.run import objects_of
from cepheid.engine.shapes import EVENTS, EVENTS_ONLY, FLAT, LONG, OutputOptions, shaped
from cepheid.engine.spread import spread
from cepheid.errors import InputProblem, NotAvailable, did_you_mean, listing, shown
from cepheid.events import Schema
from cepheid.expr import Aggregate
from cepheid.io.inputs import Columns
from cepheid.io.rows import ROW, START, TIME
from cepheid.io.source import Attributes, columns_read
from cepheid.io.stream_files import StreamFiles
from cepheid.kernels.successor.failures import shows_failures
from cepheid.lang import to_text
from cepheid.logic import normal_form
from cepheid.optimize.distribution import Keyed
from cepheid.optimize.windows import lag, operator_windows
from cepheid.pattern import Kleene, Query, walk
from cepheid.physical import REFERENCE, Plan
from cepheid.streaming.ahead import AheadLimit
from cepheid.streaming.reader import FileReader, Reader
from cepheid.streaming.state import STATE_FORMAT
from cepheid.streaming.time import EventTime

ONE_BUCKET: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StreamQuery:
    """One query of a stream. `prepared` is without its kernel, which every worker makes for itself."""

    name: str
    prepared: Prepared
    gatherer: Gatherer | None
    """None where the output is not made of input columns: lines of JSON, or derived events."""
    key: tuple[str, ...]
    lag: int
    """Ticks after its end at which a match of the oracle is certain."""
    horizon: int | None
    """Ticks before the watermark from which on events can still matter to the oracle; None: all of them."""
    arrays: tuple[str, ...] = ()
    """The arrays of the kernel's state; a version with other arrays cannot read it."""
    shape: str = EVENTS
    """The shape of the output."""

    @property
    def by_oracle(self) -> bool:
        return self.prepared.plan.evaluator == REFERENCE

    @property
    def sums_up(self) -> bool:
        """Whether the output is one row that summarizes all matches, written at the end of time."""
        return self.prepared.query.summarizes

    @property
    def window(self) -> int | None:
        """The window in ticks, if it is one of time: with those of the queries that feed it."""
        windows = [_window_of(one) for one in self.evaluated]
        return None if None in windows else sum(window for window in windows if window is not None)

    @property
    def evaluated(self) -> list[Prepared]:
        """The query and those that feed it."""
        graph = self.prepared.graph
        return [self.prepared, *(() if graph is None else (node.prepared for node in graph.nodes))]

    @property
    def grows(self) -> tuple[str, ...]:
        """What the state retains for ever, in the words of EQL."""
        return tuple(held for one in self.evaluated for held in one.plan.grows)

    def wiring(self, schema: pa.Schema) -> Wiring:
        """The columns that the queries of a graph read, of an input with this schema."""
        shown = [ROW, *derived_columns(self.prepared)] if self.gatherer is None else self.gatherer.needed()
        merged = self.prepared.input.schema
        names = columns_read([*self.prepared.plan.attributes, *shown], merged)
        return Wiring.of(self.prepared, names, schema)

    @property
    def ties_matter(self) -> bool:
        """Whether the order of events of the same time can change the matches."""
        if self.prepared.graph is not None:
            return True
        query = self.prepared.query
        by_position = query.dialect.ordered_by_position or self.prepared.plan.counts_events
        closes = any(isinstance(node, Kleene) for node in walk(query.pattern))
        aggregates = [c.expr for c in query.output or () if isinstance(c.expr, Aggregate)] if query.summarizes else []
        ranks = query.limit is not None or any(aggregate.fn in ("first", "last") for aggregate in aggregates)
        return by_position or closes or self.by_oracle or ranks

    @property
    def counts_equals(self) -> bool:
        """Whether events may be identified by their number among equal ones."""
        ids = self.prepared.match_ids
        return ids is not None and not ids.is_carried and ids.columns != (ids.events.column,)

    @property
    def event_columns(self) -> Collection[str]:
        """The columns of the output that hold events."""
        return objects_of(self.prepared).types

    def shaped(self, matches: pa.Table) -> pa.Table:
        """The output of a batch in the shape that the user asked for."""
        if self.shape == EVENTS:
            return matches
        batches = iter(matches.to_batches())
        schema, made = shaped(matches.schema, batches, self.event_columns, self.shape, is_numbered=False)
        return pa.Table.from_batches(made, schema)

    @property
    def output_schema(self) -> pa.Schema:
        return made_batch(self.prepared, []).schema if self.gatherer is None else self.gatherer.schema

    def read_by_kernel(self, schema: pa.Schema) -> list[str]:
        if self.prepared.graph is not None:
            return list(self.wiring(schema).input_columns)
        plan = self.prepared.plan
        return columns_read([*plan.read, *(plan.key if plan.counts_events else ())], schema)


@dataclass(frozen=True, slots=True)
class StreamPlan:
    """The queries of one stream over one input. `order` names the columns that decide between events of one time;
    without any, all columns do, so that the order never depends on how the stream was cut into batches."""

    queries: tuple[StreamQuery, ...]
    reader: Reader
    time: EventTime
    delay: int
    order: tuple[str, ...] = ()
    buckets: int = 1
    shown_names: tuple[str, ...] = ()
    """The columns of the late output."""
    ahead: AheadLimit | None = None
    """How far ahead an event may be; None: any time."""
    drops_keys: bool = False
    """Whether a key with too many matches is dropped; otherwise the stream fails."""

    @property
    def keys(self) -> tuple[tuple[str, ...], ...]:
        """The keys that events are spread by; the queries of one key see the same buckets."""
        return tuple(dict.fromkeys(query.key for query in self.queries))

    @property
    def all_buckets(self) -> int:
        """The number of buckets of all keys together."""
        return self.buckets * len(self.keys)

    @property
    def window(self) -> int | None:
        """The longest window of a query in ticks, if all have one of time."""
        windows = [query.prepared.query.window for query in self.queries]
        if any(window is None or window.counts_events for window in windows):
            return None
        return max(int(self.time.clock.ticks(window)) for window in windows if window is not None)

    @property
    def summing(self) -> frozenset[int]:
        """The buckets whose output at the end of time has a summary, also without any event."""
        return frozenset(self.keys.index(query.key) * self.buckets for query in self.queries if query.sums_up)

    def sharing(self, bucket: int) -> tuple[int, ...]:
        """The numbers of the queries that read a bucket."""
        key = self.keys[bucket // self.buckets]
        return tuple(number for number, query in enumerate(self.queries) if query.key == key)

    def retained(self) -> list[str]:
        """The columns of events in the state: of those that wait, and of those that may be part of a match."""
        names: dict[str, None] = {self.reader.columns.time: None}
        if any(query.ties_matter for query in self.queries):
            names.update(dict.fromkeys(self.order or self.reader.schema.names))
        for query in self.queries:
            names.update(dict.fromkeys(columns_read(query.key, self.reader.schema)))
            names.update(dict.fromkeys(query.read_by_kernel(self.reader.schema)))
            if query.prepared.graph is not None and self.reader.columns.type in self.reader.schema.names:
                names[self.reader.columns.type] = None
            if query.prepared.match_ids is not None:
                names.update(dict.fromkeys(query.prepared.match_ids.columns))
            if query.gatherer is None or query.by_oracle:
                names.update(dict.fromkeys(self.reader.shown_from()))
            else:
                names.update(dict.fromkeys(query.gatherer.needed()))
        return [name for name in self.reader.schema.names if name in names]

    def packed_schema(self) -> pa.Schema:
        """The columns of events on their way to their bucket."""
        return pa.schema([*self.reader.schema, *self._own_fields()])

    def retained_schema(self) -> pa.Schema:
        """The columns of events in a state."""
        return pa.schema([*(self.reader.schema.field(name) for name in self.retained()), *self._own_fields()])

    def _own_fields(self) -> list[pa.Field]:
        masks = [pa.field(mask_column(n), pa.uint64()) for n, query in enumerate(self.queries) if not query.by_oracle]
        starts = [] if self.reader.columns.start is None else [pa.field(START, pa.int64())]
        return [pa.field(TIME, pa.int64()), *starts, *masks]

    # --- the description in a checkpoint ------------------------------------------------------------------------------

    def description(self) -> dict[str, Any]:
        """The properties of a stream that must not change between two runs on one checkpoint."""
        return {
            "state format": STATE_FORMAT,
            "queries": {query.name: to_text(query.prepared.written) for query in self.queries},
            "evaluators": {query.name: ", ".join(p.plan.evaluator for p in query.evaluated) for query in self.queries},
            "kernel state": {query.name: list(query.arrays) for query in self.queries},
            "keys": {query.name: list(query.key) for query in self.queries},
            "buckets": self.buckets,
            "columns": {name: str(self.reader.schema.field(name).type) for name in self.retained()},
            "type column": self.reader.columns.event_type or self.reader.columns.type,
            "time column": self.reader.columns.time,
            "time unit": self.time.clock.unit,
            "order": list(self.order),
            **self._output_description(),
            **({} if self.reader.columns.start is None else {"start column": self.reader.columns.start}),
        }

    def _output_description(self) -> dict[str, Any]:
        """The columns of the output, if they are not those that every stream has."""
        asked: dict[str, list[str]] = {}
        for query in self.queries:
            ids = query.prepared.match_ids
            shape = [] if query.shape == EVENTS else [query.shape]
            detection = [] if query.prepared.detection is None else ["detected_at"]
            identified = [] if ids is None else [f"match_id by {ids.events.column or 'all'}"]
            asked[query.name] = shape + detection + identified
        return {"output columns": asked} if any(asked.values()) else {}

    def for_inspection(self) -> dict[str, Any]:
        """The schema that is needed to decode a state without the queries."""
        retained = base64.b64encode(self.retained_schema().serialize().to_pybytes()).decode()
        return {"retained": retained, "timestamps": self.time.clock.is_timestamp}

    def fingerprint(self) -> str:
        description = json.dumps(self.description(), sort_keys=True)
        return hashlib.blake2b(description.encode(), digest_size=16).hexdigest()

    def notes(self) -> list[str]:
        """How each query is divided, and whether its state grows, as text for users."""
        lines = []
        for query in self.queries:
            if query.key:
                lines.append(f"{query.name}: by {', '.join(query.key)} over {self.buckets} buckets")
            else:
                reason = getattr(spread(query.prepared), "reason", "there is no key that all components share")
                reason = "the output is one row about all matches" if query.sums_up else reason
                lines.append(f"{query.name}: in one bucket, one task: {reason}")
            if query.sums_up:
                lines.append(f"{query.name}: the summary is output at the end of time only")
            if query.window is None and not query.grows and (not query.by_oracle or query.horizon is None):
                lines.append(f"{query.name}: without a time window, the state grows without bound")
            graph = query.prepared.graph
            for node in () if graph is None else graph.nodes:
                if node.identity is not None:
                    lines.append(f"{query.name}: the state holds every event_id of `{node.label}`, without bound")
            if query.grows:
                held = "; ".join(query.grows)
                lines.append(f"{query.name}: the state holds {held}: bound it by (first, last) OCCURS WITHIN time")
        return lines


@dataclass(frozen=True, slots=True)
class StreamSource:
    """A stream before its first event, for `prepare` (see `io.source.SourceDescription`)."""

    reader: Reader
    attributes: Attributes
    """The columns of each event type, without those that Cepheid adds."""
    is_closed: bool = False
    as_lines: bool = False
    """Whether an event is output as the JSON line that it was read from."""
    omits_nulls: bool = False
    count: None = None
    epoch_unit: str | None = None
    """The unit of an integer time column, which the checkpoint stores."""

    seen: tuple[str, ...] | None = None
    """The event types that have been seen; None where they are not known, or do not matter."""

    @classmethod
    def of_files(cls, files: StreamFiles, queries: Iterable[Query]) -> StreamSource:
        seen = tuple(files.layout.attributes)
        unit = files.layout.clock.unit
        return cls(FileReader.of(files), files.attributes(queries), as_lines=files.raw, seen=seen, epoch_unit=unit)

    @property
    def schema(self) -> pa.Schema:
        return self.reader.schema

    @property
    def columns(self) -> Columns:
        return self.reader.columns

    def sample(self, names: Sequence[str], size: int) -> None:
        """No event has arrived yet."""

    def shown_by(self, types: Iterable[str] = ()) -> tuple[str, ...]:
        """The columns that an event of these types (or any, without types) shows."""
        if self.as_lines:
            return (ROW,)
        wanted = {name for kind in types or self.attributes for name in self.attributes.get(kind, ())}
        return tuple(name for name in self.schema.names if name in wanted)


def plan_stream(
    queries: Mapping[str, Query],
    source: StreamSource,
    watermark: str | int,
    options: RunOptions = DEFAULT_OPTIONS,
    *,
    order: Sequence[str] = (),
    buckets: int,
    max_ahead: str | int | None = None,
    drops_keys: bool = False,
    output: OutputOptions = EVENTS_ONLY,
) -> StreamPlan:
    """`max_ahead` is how far ahead of the wall clock an event may be. With `drops_keys`, a key of which one event
    completes too many matches is dropped."""
    require_names(list(queries))
    require_used(options.params, *queries.values())
    for name in order:
        if name not in source.schema.names:
            raise InputProblem(
                f"there is no column `{shown(name)}` to order events of the same time by",
                expected=f"some of {listing(source.schema.names)}",
                hint=did_you_mean(name, source.schema.names),
            )
    for query in queries.values() if source.seen is not None else ():
        known = [*(source.seen or ()), *(item.name or "" for item in query.inputs)]
        require_types(query, Schema({kind: {} for kind in known}))
    if output.shape == LONG and any(query.summarizes for query in queries.values()):
        raise NotAvailable(f"the shape `{LONG}` of a summary", hint=f"choose the shape `{EVENTS}` or `{FLAT}`")
    if output.shape == LONG:  # a replay repeats identifiers, but no numbers
        output = replace(output, match_id=True)
    prepared = {name: output.of(prepare(query, source, options)) for name, query in queries.items()}
    planned = tuple(
        replace(stream_query(name, one, _gatherer(one, source)), shape=output.shape) for name, one in prepared.items()
    )
    time = EventTime(next(iter(prepared.values())).clock)
    ahead = None if max_ahead is None else AheadLimit(time.ticks(max_ahead, "max_ahead"), time.clock)
    delay, shown_names = time.delay(watermark), source.shown_by()
    return StreamPlan(planned, source.reader, time, delay, tuple(order), buckets, shown_names, ahead, drops_keys)


def _gatherer(prepared: Prepared, source: StreamSource) -> Gatherer | None:
    if source.as_lines or makes_output(prepared.query):
        if shows_failures(prepared.plan):
            raise NotAvailable(
                "failed detections of events that are output as lines of text",
                hint="read the events from Parquet, or with a schema",
            )
        return None
    attributes = {var: source.shown_by(role.event_class.types) for var, role in prepared.variables.items()}
    schema = source.schema if prepared.graph is None else with_types(prepared.input.schema)
    return Gatherer.of(prepared, schema, source.columns.time, attributes)


def stream_query(name: str, prepared: Prepared, gatherer: Gatherer | None) -> StreamQuery:
    """Adds the stream's key, lag and horizon to a query; refuses a query that has no output before the end of time."""
    query = prepared.query
    by_oracle = prepared.plan.evaluator == REFERENCE
    lag = _lag(query, prepared) if by_oracle and not query.summarizes else 0
    waits = lag > 0 or (not by_oracle and prepared.plan.ends_with_negation)
    if query.limit is not None and waits:
        raise NotAvailable(
            "LIMIT takes the matches that end first, which is not known in a stream while others wait for a negation",
            hint="leave LIMIT out, or run the query in batch",
        )
    divided = spread(prepared)
    is_divided = isinstance(divided, Keyed) and query.limit is None and not query.summarizes
    key = divided.attributes if isinstance(divided, Keyed) and is_divided else ONE_BUCKET
    feeding = () if prepared.graph is None else tuple(node.prepared for node in prepared.graph.nodes)
    kernels = [one.kernel for one in (prepared, *feeding) if one.kernel is not None]
    arrays = tuple(f"{array.name} {array.dtype}" for kernel in kernels for array in kernel.arrays)
    horizon = _horizon(query, prepared, lag) if by_oracle and not query.summarizes else None
    others = tuple(other for other in prepared.others if _reads_the_same(other, prepared.plan))
    shipped = replace(prepared.without_kernels(), others=others)
    if prepared.graph is not None:
        shipped = shipped.with_fixed_plans()
    own_gatherer = None if gatherer is None else replace(gatherer, prepared=shipped)
    return StreamQuery(name, shipped, own_gatherer, key, lag, horizon, arrays)


def _window_of(prepared: Prepared) -> int | None:
    """The window of a query in ticks. One that feeds another needs none if a match is one event."""
    plan = prepared.plan
    if is_alone(prepared.query) and prepared.plan.evaluator != REFERENCE:
        return 0
    return None if plan.window is None or plan.counts_events else int(plan.window)


def _reads_the_same(other: Plan, plan: Plan) -> bool:
    """Whether another plan can read the masks and columns of events that were packed for a plan."""
    return set(other.bits) <= set(plan.bits) and other.columns.keys() <= plan.columns.keys()


def mask_column(number: int) -> str:
    """The mask column of a query: a bit for each variable that the event can bind."""
    return f"{MASK}{number}"


def require_names(names: Sequence[str]) -> None:
    for name in names:
        if not name or not all(part.isalnum() for part in name.replace("-", "_").split("_") if part):
            raise InputProblem(f"`{shown(name)}` is not a valid name of a query", expected="letters, digits, - and _")


# --- when the oracle's matches are certain ----------------------------------------------------------------------------


def _lag(query: Query, prepared: Prepared) -> int:
    """The ticks after its end during which a later event may invalidate a match. A derived event is certain no
    earlier than the match that it comes from."""
    inner = max((_lag(item, prepared) for item in query.inputs if isinstance(item, Query)), default=0)
    operators = operator_windows(query, prepared.clock)
    if operators is not None:
        return inner + lag(query.pattern, operators)
    if not needs_later_events(normal_form(query.pattern), True):
        return inner
    if query.window is None or query.window.counts_events:
        raise NotAvailable(
            "any later event may invalidate a match of this query, so a stream can never output it",
            hint="bound the negation by WITHIN and a length of time",
        )
    return inner - int(-prepared.clock.ticks(query.window) // 1) + 1


def _horizon(query: Query, prepared: Prepared, lag: int) -> int | None:
    """Two windows before the watermark: an uncertain match began within one, and the events that decide it lie within
    another. Queries over other queries, and selections that depend on all earlier matches, need all events."""
    if query.dialect.windows is not Windows.MATCH or query.window is None:
        return None
    if query.inputs or query.non_overlapping or query.window.counts_events:
        return None
    return 2 * -int(-prepared.clock.ticks(query.window) // 1) + lag + 1
