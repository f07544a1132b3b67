"""The plan of a stream: its queries, the columns they read, and how events are divided into buckets and ordered.

Events are spread by key over a fixed number of *buckets*, each with a state of its own. Queries that share a key share
the buckets, the events in them and the pass over the input; a query without a key has one bucket. The plan holds no
events and travels to the workers.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from cepheid.codegen.columns import MASK
from cepheid.deploy.deployment import Written
from cepheid.deploy.families import VERSION
from cepheid.engine.derivation import Wiring
from cepheid.engine.oracle import derived_columns
from cepheid.engine.prepare import Prepared, is_alone
from cepheid.engine.shapes import EVENTS
from cepheid.engine.spread import remembers, spread
from cepheid.engine.summary import Summary
from cepheid.errors import listing
from cepheid.expr import Aggregate
from cepheid.io.inputs import Columns
from cepheid.io.rows import ROW, START, TIME
from cepheid.io.source import columns_read
from cepheid.lang import AUTO
from cepheid.limits import NO_LIMITS, Limits
from cepheid.optimize.distribution import may_drop
from cepheid.pattern import Kleene, walk
from cepheid.physical import REFERENCE
from cepheid.runtime.kernel import Array
from cepheid.streaming.ahead import AheadLimit
from cepheid.streaming.families import StreamGroup
from cepheid.streaming.outputs import OutputTable, StreamOutput
from cepheid.streaming.reader import Reader
from cepheid.streaming.state import STATE_FORMAT
from cepheid.streaming.time import EventTime

ONE_BUCKET: tuple[str, ...] = ()
_PLACE = "keys", "slots", "versions that they were added with (or keys that are dropped)"
"""What queries differ in that do not share equal queries that feed them."""


@dataclass(frozen=True, slots=True)
class StreamQuery(StreamOutput):
    """A query with a kernel of its own. Equal queries are one; `names` are those that show the same columns."""

    key: tuple[str, ...] = ONE_BUCKET
    lag: int = 0
    """Ticks after its end at which a match of the oracle is certain."""
    horizon: int | None = None
    """Ticks before the watermark from which on events can still matter to the oracle; None: all of them."""
    arrays: tuple[str, ...] = ()
    """The arrays of the kernel's state; a version with other arrays cannot read it."""
    id: str = ""
    """Names its state: by its content, where there may be several queries."""
    since: int = 0
    """The version of the deployment that it was added with."""
    slot: int = 0
    """The bucket of a query without a key among those of the stream."""
    scope: str = ""
    """Queries with the same scope share equal queries that feed them."""
    others: tuple[StreamOutput, ...] = ()
    """How equal queries show its matches that differ in RETURN."""

    @property
    def outputs(self) -> tuple[StreamOutput, ...]:
        return (self, *self.others)

    @property
    def all_names(self) -> list[str]:
        """The queries that it answers."""
        return [name for output in self.outputs for name in output.names]

    @property
    def shown(self) -> list[str]:
        """The columns of the input that its outputs need, where they are made of such columns."""
        return [name for one in self.outputs if one.gatherer is not None for name in one.gatherer.needed()]

    @property
    def mask(self) -> str:
        """The column with a bit for each variable that the event can bind."""
        return f"{MASK}{self.id}"

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
        graph = self.prepared.graph
        counted = [node.counting.window for node in graph.nodes if node.counting is not None] if graph else []
        windows = [*map(_window_of, self.evaluated), *counted]
        return None if None in windows else sum(window for window in windows if window is not None)

    @property
    def remembers(self) -> bool:
        """Whether a later event may be one with an event so far, however long ago: they have the same `event_id`."""
        graph = self.prepared.graph
        return graph is not None and any(map(remembers, graph.nodes))

    @property
    def evaluated(self) -> list[Prepared]:
        """The query and those that feed it."""
        graph = self.prepared.graph
        return [self.prepared, *(() if graph is None else (node.prepared for node in graph.nodes))]

    @property
    def grows(self) -> tuple[str, ...]:
        """What the state retains for ever, in the words of EQL."""
        return tuple(held for one in self.evaluated for held in one.plan.grows)

    @property
    def inner(self) -> dict[str, str]:
        """The queries that feed it by their names, and how their states are named."""
        graph = self.prepared.graph
        return {} if graph is None else {node.name: f"{node.name}{self.scope}" for node in graph.nodes}

    @property
    def read_of_graph(self) -> tuple[Prepared, Sequence[str]]:
        """The query, and the columns that it reads of the events of the input and of those that feed it."""
        if self.sums_up:
            shown = Summary.of(self.prepared.query).attributes
        else:
            shown = [ROW, *derived_columns(self.prepared)] if self.gatherer is None else self.shown
        return self.prepared, columns_read([*self.prepared.plan.attributes, *shown], self.prepared.input.schema)

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
    def may_begin_later(self) -> bool:
        """Whether it can ignore events that arrived before it was added."""
        return not self.by_oracle and (self.prepared.graph is not None or may_drop(self.prepared.plan))

    def read_by_kernel(self, schema: pa.Schema) -> list[str]:
        if self.prepared.graph is not None:
            return list(Wiring.of_several([self.read_of_graph], schema).input_columns)
        plan = self.prepared.plan
        return columns_read([*plan.read, *(plan.key if plan.counts_events else ())], schema)


@dataclass(frozen=True, slots=True)
class Lineage:
    """The properties that a version of a stream inherits from those before it."""

    keys: tuple[tuple[str, ...], ...] = ()
    version: int = 0
    """The number of versions before it."""
    identity: str = ""
    """The fingerprint of the first version, which all others have too."""
    slots: int = 1
    """The number of buckets that queries without a key have had."""
    moved: int = 0
    """The last version before which queries were moved; 0: none."""


FIRST = Lineage()


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
    groups: tuple[StreamGroup, ...] = ()
    """The families of each key."""
    keys: tuple[tuple[str, ...], ...] = ()
    """The keys that events are spread by; the queries of one key see the same buckets. A key keeps its number for the
    lifetime of a stream."""
    tables: tuple[OutputTable, ...] = ()
    entries: tuple[Entry, ...] = ()
    """All queries, in their order."""
    version: int = 0
    """The number of changes before it."""
    identity: str = ""
    """The fingerprint of the first version, which all others have too."""
    slots: int = 1
    """The number of buckets that queries without a key have, or have had."""
    limits: Limits = NO_LIMITS
    moved: int = 0
    """The last version before which queries were moved; 0: none."""

    @property
    def names(self) -> list[str]:
        return [entry.name for entry in self.entries]

    @property
    def next_lineage(self) -> Lineage:
        """Of the version after it."""
        return Lineage(self.keys, self.version + 1, self.fingerprint(), self.slots, self.moved)

    @property
    def is_several(self) -> bool:
        """Whether there may be several queries: rows then have the name of theirs."""
        return not (len(self.tables) == 1 and not self.tables[0].name)

    @property
    def tracks_versions(self) -> bool:
        """Whether a query was added later, and does not see the events before."""
        return any(entry.since for entry in self.entries)

    def group_of(self, bucket: int) -> StreamGroup | None:
        """The families that read a bucket."""
        return next((group for group in self.groups if self._reads(group, bucket)), None)

    def _reads(self, reader: StreamQuery | StreamGroup, bucket: int) -> bool:
        number, slot = divmod(bucket, self.buckets)
        return reader.key == self.keys[number] and (reader.key != ONE_BUCKET or reader.slot == slot)

    def reports(self, bucket: int) -> bool:
        """Whether a bucket counts its events: each event goes to one such bucket."""
        return bucket < (self.buckets if self.keys[0] != ONE_BUCKET else 1)

    def counts_equals(self, bucket: int) -> bool:
        """Whether equal events of a bucket are counted."""
        group = self.group_of(bucket)
        outputs = [*(self.queries[n] for n in self.sharing(bucket)), *(() if group is None else group.outputs)]
        return any(output.counts_equals for output in outputs)

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
        of_groups = [group.window for group in self.groups]
        if None in of_groups:
            return None
        known = [int(self.time.clock.ticks(window)) for window in windows if window is not None]
        return max([*known, *(window for window in of_groups if window is not None)], default=None)

    @property
    def summing(self) -> frozenset[int]:
        """The buckets whose output at the end of time has a summary, also without any event."""
        summaries = [query for query in self.queries if query.sums_up]
        return frozenset(self.keys.index(query.key) * self.buckets + query.slot for query in summaries)

    def sharing(self, bucket: int) -> tuple[int, ...]:
        """The numbers of the queries that read a bucket."""
        return tuple(number for number, query in enumerate(self.queries) if self._reads(query, bucket))

    def relevant(self, bucket: int, events: pa.RecordBatch) -> Array | None:
        """The events that can matter to some query of a bucket; None where all may."""
        queries = [self.queries[number] for number in self.sharing(bucket)]
        return relevant_to(queries, self.group_of(bucket), events, self.reader.columns)

    def retained(self) -> list[str]:
        """The columns of events in the state: of those that wait, and of those that may be part of a match."""
        names: dict[str, None] = {self.reader.columns.time: None}
        if any(query.ties_matter for query in self.queries) or any(group.ties_matter for group in self.groups):
            names.update(dict.fromkeys(self.order or self.reader.schema.names))
        for group in self.groups:
            names.update(dict.fromkeys([*group.read, self.reader.columns.type]))
            for output in group.outputs:
                assert output.gatherer is not None
                ids = output.prepared.match_ids
                names.update(dict.fromkeys([*output.gatherer.needed(), *(() if ids is None else ids.columns)]))
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
                names.update(dict.fromkeys(query.shown))
        return [name for name in self.reader.schema.names if name in names]

    def packed_schema(self, bucket: int | None = None) -> pa.Schema:
        """The columns of events on their way to a bucket, with the masks of its queries (None: of all)."""
        return pa.schema([*self.reader.schema, *self._own_fields(bucket)])

    def retained_schema(self, bucket: int) -> pa.Schema:
        """The columns of events in the state of a bucket."""
        return pa.schema([*(self.reader.schema.field(name) for name in self.retained()), *self._own_fields(bucket)])

    def _own_fields(self, bucket: int | None) -> list[pa.Field]:
        here = self.queries if bucket is None else [self.queries[number] for number in self.sharing(bucket)]
        starts = [] if self.reader.columns.start is None else [START]
        versions = [VERSION] if self.tracks_versions else []
        masks = [query.mask for query in here if not query.by_oracle]
        return [own_field(name) for name in (TIME, *starts, *versions, *masks)]

    # --- the description in a checkpoint ------------------------------------------------------------------------------

    def description(self) -> dict[str, Any]:
        """The properties of a stream that must not change between two runs on one checkpoint."""
        return {
            "state format": STATE_FORMAT,
            "queries": {entry.name: entry.text for entry in self.entries},
            "evaluators": {query.id: ", ".join(p.plan.evaluator for p in query.evaluated) for query in self.queries},
            "kernel state": {query.id: list(query.arrays) for query in self.queries},
            "keys": [list(key) for key in self.keys],
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
        for query in (*self.queries, *(output for group in self.groups for output in group.outputs[:1])):
            ids = query.prepared.match_ids
            shape = [] if query.shape == EVENTS else [query.shape]
            detection = [] if query.prepared.detection is None else ["detected_at"]
            identified = [] if ids is None else [f"match_id by {ids.events.column or 'all'}"]
            asked[query.name] = shape + detection + identified
        return {"output columns": asked} if any(asked.values()) else {}

    def for_inspection(self) -> dict[str, Any]:
        """The schema that is needed to decode a state without the queries."""
        retained = base64.b64encode(self.reader.schema.serialize().to_pybytes()).decode()
        return {"columns": retained, "timestamps": self.time.clock.is_timestamp}

    def fingerprint(self) -> str:
        if self.identity:
            return self.identity
        description = json.dumps(self.description(), sort_keys=True)
        return hashlib.blake2b(description.encode(), digest_size=16).hexdigest()

    def notes(self) -> list[str]:
        """How each query is divided, and whether its state grows, as text for users."""
        lines = []
        for group in self.groups:
            count = f"{len(group.names)} queries in families" if len(group.names) > 1 else group.names[0]
            by = f"by {', '.join(group.key)} over {self.buckets} buckets" if group.key else "in one bucket, one task"
            lines.append(f"{count}: {by}")
            if group.window is None:
                lines.append(f"{count}: without a time window, the state grows without bound")
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
        return [*lines, *self._notes_on_inner()]

    def _notes_on_inner(self) -> Iterator[str]:
        """Which queries that feed several are evaluated once in a bucket, and which are not."""
        labels: dict[str, str] = {}
        users: dict[str, dict[tuple[object, ...], list[str]]] = {}
        for query in self.queries:
            for node in () if query.prepared.graph is None else query.prepared.graph.nodes:
                labels[node.name] = node.label
                place = query.key, query.slot, query.scope
                users.setdefault(node.name, {}).setdefault(place, []).extend(query.all_names)
        for name, by_place in users.items():
            for names in by_place.values():
                if len(names) > 1:
                    yield f"{labels[name]}: evaluated once for {listing(names)}"
            differ = [word for word, *of in zip(_PLACE, *by_place, strict=True) if len({*of}) > 1]
            if differ:
                apart = "; ".join(listing(names) for names in by_place.values())
                yield f"{labels[name]}: evaluated apart for {apart}: other {' and '.join(differ)}"


@dataclass(frozen=True, slots=True)
class Entry:
    """A query of a stream, as the checkpoint stores it."""

    name: str
    text: str
    dialect: str = AUTO
    since: int = 0
    slot: int = 0
    uses: Sequence[str] = ()
    """The other queries of the stream that it uses as event types."""

    @classmethod
    def of(cls, written: Written) -> Entry:
        source = written.source
        dialect = written.dialect if isinstance(source, str) else source.dialect.name
        return cls(written.name, written.text, dialect, written.since, written.slot or 0, written.uses)

    @property
    def written(self) -> Written:
        return Written(self.name, self.text, self.dialect, self.since, self.slot)


def _window_of(prepared: Prepared) -> int | None:
    """The window of a query in ticks. One that feeds another needs none if a match is one event."""
    plan = prepared.plan
    if is_alone(prepared.query) and prepared.plan.evaluator != REFERENCE:
        return 0
    return None if plan.window is None or plan.counts_events else int(plan.window)


def relevant_to(
    queries: Sequence[StreamQuery], group: StreamGroup | None, events: pa.RecordBatch, columns: Columns
) -> Array | None:
    """The events that can matter to some query or rule; None where all may."""
    if not all(query.prepared.graph is not None or may_drop(query.prepared.plan) for query in queries):
        return None
    relevant: Array = np.zeros(events.num_rows, bool)
    if group is not None:
        known = group.relevant(events, columns)
        if known is None:
            return None
        relevant |= known
    for query in queries:
        if relevant.all():
            return None
        relevant |= np.asarray(events.column(query.mask)) != 0
    return relevant


def own_field(name: str) -> pa.Field:
    """A column of events that the stream adds."""
    return pa.field(name, pa.uint64() if name.startswith(MASK) else pa.int64())


def state_schema(names: Sequence[str], schema: pa.Schema) -> pa.Schema:
    """The columns of a state: some of the input, and those that the stream adds."""
    return pa.schema([schema.field(name) if name in schema.names else own_field(name) for name in names])


def with_schema(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Rows of a state that another version wrote. A query that was added later cannot bind them: its mask is 0."""
    if rows.schema.names == schema.names:
        return rows

    def column(field: pa.Field) -> pa.Array:
        if field.name in rows.schema.names:
            return rows.column(field.name)
        is_own = field.name.startswith(MASK) or field.name == VERSION
        return pa.array(np.zeros(rows.num_rows), field.type) if is_own else pa.nulls(rows.num_rows, field.type)

    return pa.RecordBatch.from_arrays([column(field) for field in schema], schema=schema)
