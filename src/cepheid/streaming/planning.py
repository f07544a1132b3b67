"""Plans the queries of a stream: what decides how each runs in the buckets, and what it shows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from cepheid.binding import require_types
from cepheid.content import content_hash
from cepheid.deploy.deployment import FamilyGroup, Operator, Output, Written, deploy, representatives
from cepheid.deploy.event_tests import EventTest
from cepheid.deploy.families import VERSION, Rule, Shape, slots_of
from cepheid.dialect import Windows
from cepheid.engine.consumption import require_whole
from cepheid.engine.detected_at import needs_later_events
from cepheid.engine.gather import Gatherer, with_types
from cepheid.engine.oracle import makes_output
from cepheid.engine.prepare import DEFAULT_OPTIONS, Prepared, RunOptions, prepare, require_used
from cepheid.engine.shapes import EVENTS, EVENTS_ONLY, FLAT, LONG, OutputOptions
from cepheid.engine.spread import spread
from cepheid.errors import CepheidError, InputProblem, NotAvailable, did_you_mean, listing, shown
from cepheid.events import Schema
from cepheid.io.inputs import Columns
from cepheid.io.rows import ROW
from cepheid.io.source import Attributes, clock_of, columns_read
from cepheid.io.stream_files import StreamFiles
from cepheid.io.stream_inputs import StreamInputs
from cepheid.kernels.successor.failures import shows_failures
from cepheid.limits import NO_LIMITS, Limits
from cepheid.logic import normal_form
from cepheid.optimize.cost import EVENT
from cepheid.optimize.distribution import Keyed
from cepheid.optimize.windows import lag, operator_windows
from cepheid.pattern import Query
from cepheid.physical import REFERENCE, Plan
from cepheid.streaming.ahead import AheadLimit
from cepheid.streaming.families import StreamGroup
from cepheid.streaming.outputs import OutputTable, StreamOutput, tables_of
from cepheid.streaming.plan import FIRST, ONE_BUCKET, Entry, Lineage, StreamPlan, StreamQuery
from cepheid.streaming.reader import FileReader, Reader
from cepheid.streaming.slots import GREEDY, Cost, placed
from cepheid.streaming.time import EventTime

_COST_OF_RULE = 1.0
"""Nanoseconds for an event, about."""


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
    extreme_times: None = None

    seen: tuple[str, ...] | None = None
    """The event types that have been seen; None where they are not known, or do not matter."""

    @classmethod
    def of_files(cls, files: StreamFiles | StreamInputs, queries: Iterable[Query]) -> StreamSource:
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


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """The options of a stream besides its queries: they are the same for all its versions."""

    watermark: str | int
    run: RunOptions = DEFAULT_OPTIONS
    order: tuple[str, ...] = ()
    buckets: int = 1
    max_ahead: str | int | None = None
    """How far ahead of the wall clock an event may be."""
    drops_keys: bool = False
    """Whether a key of which one event completes too many matches is dropped."""
    output: OutputOptions = EVENTS_ONLY
    placement: str = GREEDY
    """The strategy by which queries without a key are placed on slots."""


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
    """The plan of one query, or of several in one pass."""
    written = {name: Written(name, query) for name, query in queries.items()}
    chosen = StreamOptions(watermark, options, tuple(order), buckets, max_ahead, drops_keys, output)
    plan, refused = plan_queries(written, source, chosen, is_several=len(queries) > 1)
    for error in refused.values():
        raise error
    return plan


def plan_queries(
    queries: Mapping[str, Written],
    source: StreamSource,
    options: StreamOptions,
    *,
    is_several: bool,
    lineage: Lineage = FIRST,
) -> tuple[StreamPlan, Mapping[str, CepheidError]]:
    """The plan of some queries, and those that are refused, each with the reason. Where there may be several, the rows
    of matches have the name of their query. `lineage` is what it has from the versions before it."""
    require_names(list(queries))
    for name in options.order:
        if name not in source.schema.names:
            raise InputProblem(
                f"there is no column `{shown(name)}` to order events of the same time by",
                expected=f"some of {listing(source.schema.names)}",
                hint=did_you_mean(name, source.schema.names),
            )
    output = options.output
    if output.shape == LONG:  # a replay repeats identifiers, but no numbers
        output = replace(output, match_id=True)
    planner = _Planning(source, replace(options, output=output), is_several)
    planned, groups, refused = planner.planned(queries)
    entries = tuple(Entry.of(written) for name, written in queries.items() if name not in refused)
    outputs = [
        *(one for query in planned for one in query.outputs),
        *(one for group in groups for one in group.outputs),
    ]
    schemas = [one.row_schema for one in outputs]
    tables = tables_of(schemas) if is_several else [OutputTable("", schemas[0])]
    planned = [
        replace(one.in_table(tables), others=tuple(other.in_table(tables) for other in one.others)) for one in planned
    ]
    groups = [replace(group, outputs=tuple(one.in_table(tables) for one in group.outputs)) for group in groups]
    time = EventTime(clock_of(source, options.run.time_unit))
    max_ahead = options.max_ahead
    plan = StreamPlan(
        tuple(planned),
        source.reader,
        time,
        time.delay(options.watermark),
        options.order,
        options.buckets,
        source.shown_by(),
        None if max_ahead is None else AheadLimit(time.ticks(max_ahead, "max_ahead"), time.clock),
        options.drops_keys,
        tuple(groups),
        tuple(dict.fromkeys([*lineage.keys, *(query.key for query in planned), *(group.key for group in groups)])),
        tuple(tables),
        entries,
        lineage.version,
        lineage.identity,
        max([lineage.slots, *(1 + query.slot for query in planned), *(1 + group.slot for group in groups)]),
        Limits.of(options.run.options) if is_several else NO_LIMITS,
        lineage.moved,
    )
    return plan, refused


@dataclass(frozen=True, slots=True)
class _Planning:
    """Plans the queries of a stream."""

    source: StreamSource
    options: StreamOptions
    is_several: bool

    def planned(
        self, queries: Mapping[str, Written]
    ) -> tuple[list[StreamQuery], list[StreamGroup], Mapping[str, CepheidError]]:
        examples = tuple(representatives(queries))
        require_used(self.options.run.params, *examples)
        for query in examples if self.source.seen is not None else ():
            known = [*(self.source.seen or ()), *(item.name or "" for item in query.inputs)]
            require_types(query, Schema({kind: {} for kind in known}))
        if not self.is_several:
            ((name, written),) = queries.items()
            prepared = self._with_output(prepare(written.query, self.source, self.options.run))
            one = stream_query((name,), prepared, _gatherer(prepared, self.source))
            return [replace(one, shape=self.options.output.shape, id=name)], [], {}
        sharing = not self.options.drops_keys  # families have no limits for each key
        slots = self.options.buckets
        deployment = deploy(queries, self.source, self.options.run, sharing=sharing, smallest=1, slots=slots)
        found: list[StreamQuery] = []
        for operator in deployment.operators:
            for outputs in self._alike(operator):
                found.append(self._alone(operator, outputs, queries[operator.names[0]].since))
        groups = [self._group(group) for group in deployment.groups]
        return self._on_slots(found, groups, queries), groups, deployment.refused

    def _on_slots(
        self, found: list[StreamQuery], groups: Sequence[StreamGroup], queries: Mapping[str, Written]
    ) -> list[StreamQuery]:
        """Places the queries without a key: each stays where it is, and new ones follow (see `slots`)."""
        loads = [0.0] * self.options.buckets
        for group in groups:
            loads[group.slot] += _COST_OF_RULE * len(group.names) if not group.key else 0.0
        keyless = [query for query in found if query.key == ONE_BUCKET]
        costs = {query.id: _costs(query) for query in keyless}
        known = {query.id: slot for query in keyless if (slot := queries[query.name].slot) is not None}
        slots = placed(costs, known, loads, self.options.placement)
        for query in keyless:
            for name in query.all_names:
                queries[name].slot = slots[query.id]
        return [replace(query, slot=slots.get(query.id, 0)) for query in found]

    def _with_output(self, prepared: Prepared) -> Prepared:
        output = self.options.output
        if output.shape == LONG and prepared.written.summarizes:
            raise NotAvailable(f"the shape `{LONG}` of a summary", hint=f"choose the shape `{EVENTS}` or `{FLAT}`")
        return output.of(prepared)

    def _alike(self, operator: Operator) -> list[list[Output]]:
        """The outputs of an operator by what decides its rows and how it is spread: those of a list differ in RETURN
        only. Where matches are not made of columns of the input, each output is alone."""
        found: dict[str, list[Output]] = {}
        for number, output in enumerate(operator.outputs):
            query = output.prepared.query
            is_made = self.source.as_lines or makes_output(query) or query.summarizes
            by_oracle = output.prepared.plan.evaluator == REFERENCE
            own = number if is_made or by_oracle else None
            found.setdefault(repr((list(query.roles), query.limit, own)), []).append(output)
        return [*found.values()]

    def _alone(self, operator: Operator, outputs: Sequence[Output], since: int) -> StreamQuery:
        output, *others = outputs
        prepared = self._with_output(output.prepared)
        query = stream_query(output.names, prepared, _gatherer(prepared, self.source))
        if since and not query.may_begin_later:
            raise NotAvailable(
                f"adding the query `{shown(output.names[0])}` to a stream that runs: its matches depend on the events "
                "between those that it binds, and some of them may have arrived before",
                hint="start a stream of its own for it",
            )
        # The state does not depend on RETURN, unless the output is made of more than columns of the input.
        shown_by = prepared.query.output if query.gatherer is None or query.by_oracle else None
        shown_as = content_hash(shown_by, prepared.query.limit, list(prepared.query.roles), size=4)
        id = f"{operator.name}-{shown_as.hex()}"
        shape = self.options.output.shape
        # Queries that are added together see the same events; where keys are dropped, each ignores other events.
        scope = f"-{id if self.options.drops_keys else since or ''}"
        named = replace(query, shape=shape, id=id, since=since, scope=scope, is_named=True)
        return replace(named, others=tuple(map(self._output, others)))

    def _output(self, output: Output) -> StreamOutput:
        prepared = self._with_output(output.prepared).without_kernels().with_fixed_plans()
        gatherer = _gatherer(prepared, self.source)
        return StreamOutput(output.names, prepared, gatherer, self.options.output.shape, is_named=True)

    def _group(self, group: FamilyGroup) -> StreamGroup:
        outputs = [*map(self._output, group.outputs)]
        tests = [test for shape, rules in group.members for rule in rules for test in _deciding(shape, rule)]
        is_typed = all(test.types for test in tests)
        families = group.families
        limits = [max(rule.limits, default=None) for _, rules in group.members for rule in rules]
        delays = [shape.delay for shape, _ in group.members if shape.delay is not None]
        window = None
        if all(shape.delay is not None or shape.windows for shape, _ in group.members):
            window = max([*(limit for limit in limits if limit is not None), *delays])
        return StreamGroup(
            () if families.key is None else (families.key,),
            families,
            group.rule_names(),
            tuple(outputs),
            group.answers,
            (*columns_read(families.read, self.source.schema), *([VERSION] if VERSION in families.read else [])),
            frozenset(name for test in tests for name in test.types) if is_typed else None,
            window,
            group.slot,
            group.limits,
            any(shape.strategy is not None for shape, _ in group.members),
        )


def _costs(query: StreamQuery) -> Cost:
    own, *inner = (EVENT if math.isnan(one.plan.expected) else one.plan.expected for one in query.evaluated)
    return Cost(own, dict(zip(query.inner.values(), inner, strict=True)))


def _deciding(shape: Shape, rule: Rule) -> list[EventTest]:
    """The tests of a rule that an event must pass to matter."""
    return [test for (_, part), test in zip(slots_of(shape), rule.tests, strict=True) if part != "keeps"]


def _gatherer(prepared: Prepared, source: StreamSource) -> Gatherer | None:
    if source.as_lines or makes_output(prepared.query):
        if shows_failures(prepared.plan):
            raise NotAvailable(
                "failed detections of events that are output as lines of text",
                hint="read the events from Parquet, or with a schema",
            )
        return None
    # The files may not have had a type yet, and then have all columns for it: that of a derived event has none.
    of_input = {kind: of for kind, of in source.attributes.items() if kind not in prepared.input.derived}
    source = replace(source, attributes=of_input)
    attributes = {var: source.shown_by(role.event_class.types) for var, role in prepared.variables.items()}
    schema = source.schema if prepared.graph is None else with_types(prepared.input.schema)
    return Gatherer.of(prepared, schema, source.columns.time, attributes)


def stream_query(names: tuple[str, ...], prepared: Prepared, gatherer: Gatherer | None) -> StreamQuery:
    """Adds the stream's key, lag and horizon to a query; refuses a query that has no output before the end of time."""
    query = prepared.query
    require_whole(prepared, "in a stream")
    by_oracle = prepared.plan.evaluator == REFERENCE
    lag = _lag(query, prepared) if by_oracle and not query.summarizes else 0
    waits = lag > 0 or (not by_oracle and prepared.plan.ends_with_negation)
    if query.limit is not None and waits:
        raise NotAvailable(
            "LIMIT takes the matches that end first, which is not known in a stream while others wait for a negation",
            hint="leave LIMIT out, or run the query in batch",
        )
    divided = spread(prepared)
    is_divided = isinstance(divided, Keyed) and not divided.computed and query.limit is None and not query.summarizes
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
    return StreamQuery(names, shipped, own_gatherer, key=key, lag=lag, horizon=horizon, arrays=arrays)


def _reads_the_same(other: Plan, plan: Plan) -> bool:
    """Whether another plan can read the masks and columns of events that were packed for a plan."""
    return set(other.bits) <= set(plan.bits) and other.columns.keys() <= plan.columns.keys()


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
