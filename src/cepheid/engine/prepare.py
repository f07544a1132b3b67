"""Prepares a query for a source: binds it, samples the source, chooses a plan and generates the kernel."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import pyarrow as pa

from cepheid.binding import BASE_SCHEMA, bind, with_declared
from cepheid.checks import EVENT_ID
from cepheid.codegen.columns import schema_types
from cepheid.codegen.legend import with_legend
from cepheid.engine.composition import Attribute, Composed, Reading, attributes_of_matches, projected, reading_of
from cepheid.engine.input_shape import NO_INPUT, InputShape
from cepheid.engine.layout import Detection, column_names
from cepheid.engine.match_ids import MATCH_ID, EventIds, MatchIds
from cepheid.engine.positions import Binding
from cepheid.engine.sampling import Sampler, is_large_enough
from cepheid.engine.text_order import numbers_hint
from cepheid.engine.thresholds import Counting, single_events
from cepheid.errors import InputProblem, NotAvailable, PatternProblem, TypeProblem, did_you_mean, listing, shown
from cepheid.events import START, Clock, Schema
from cepheid.explanation import Feed
from cepheid.graph import InputNode, Node, ProjectionNode, QueryNode, graph_of, is_composed
from cepheid.inference import NUMBERS_IN_TEXT
from cepheid.io.event_columns import readable_schema
from cepheid.io.inputs import Columns
from cepheid.io.rows import is_added
from cepheid.io.source import SourceDescription, clock_of, schema_of
from cepheid.io.times import unit_of
from cepheid.kernels.registry import EVALUATORS, SWITCHING, kernel_for, require_known_options
from cepheid.lang import declaration_text, to_text
from cepheid.optimize.adapt import Policy, policy_of, why_fixed
from cepheid.optimize.lower import OPTIONS as COMMON_OPTIONS
from cepheid.optimize.lower import lower
from cepheid.optimize.stats import NO_STATS, Stats, stats_of
from cepheid.pattern import DerivedStream, EventClass, Query, Role, SourceStream, parameters, types_named
from cepheid.physical import FAMILY, REFERENCE, Plan
from cepheid.runtime.kernel import Kernel


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """The options of a run."""

    params: Mapping[str, Any] = field(default_factory=dict)
    """Values of the query parameters."""
    evaluator: str | None = None
    """The evaluator to use; None leaves the choice to the cost model."""
    options: Mapping[str, str | bool] = field(default_factory=dict)
    """Options of the evaluator and of the optimizer."""
    stats: Stats = NO_STATS
    """Known statistics of the events; by default the first events are sampled."""
    adaptive: Policy | None = None
    """When the plan may change during the run; None: never."""
    time_unit: str | None = None
    """The unit of an integer time column. None: recognised from its values (ruling 1), or else unknown."""

    @classmethod
    def of(
        cls,
        params: Mapping[str, Any] | None,
        evaluator: str | None,
        options: Mapping[str, str | bool] | None,
        stats: Stats | Mapping[str, Any] | None,
        adaptive: bool | Policy,
        time_unit: str | None,
    ) -> RunOptions:
        """The keyword arguments of `match`, `explain` and `stream`."""
        for name, given in (("params", params), ("options", options)):
            if given is not None and not isinstance(given, Mapping):
                raise InputProblem(
                    f"the option `{name}` is of type `{type(given).__name__}`", expected="a dictionary: {'name': value}"
                )
        return cls(
            params=params or {},
            evaluator=evaluator,
            options=options or {},
            stats=NO_STATS if stats is None else stats_of(stats),
            adaptive=policy_of(adaptive),
            time_unit=time_unit,
        )

    def __post_init__(self) -> None:
        """Refuses an unknown unit before any input is opened."""
        if self.time_unit is not None:
            object.__setattr__(self, "time_unit", unit_of(self.time_unit))


DEFAULT_OPTIONS = RunOptions()


@dataclass(frozen=True)
class Prepared:
    """A bound query, its plan, and the statistics that the plan was chosen with. Without a kernel the oracle evaluates
    the query, by request. `adaptive` decides when to change the plan; None: never. `others` holds a
    plan for each other evaluator that a change may choose."""

    query: Query
    schema: Schema
    clock: Clock
    plan: Plan
    kernel: Kernel | None
    stats: Stats = NO_STATS
    adaptive: Policy | None = None
    others: tuple[Plan, ...] = ()
    input: InputShape = NO_INPUT
    graph: PreparedGraph | None = None
    """The queries that feed this one. Its own `query` then reads the columns of the merged events."""
    detection: Detection | None = None
    """When matches become certain, if the output shows it."""
    match_ids: MatchIds | None = None
    """The identifiers of matches, if the output shows them."""

    @cached_property
    def binding(self) -> Binding:
        return Binding.of(self.query.pattern)

    @cached_property
    def written(self) -> Query:
        """The bound query as its text says it, with its inputs."""
        return self.query if self.graph is None else self.graph.query

    @property
    def source_columns(self) -> Columns:
        """The columns of the source; derived events have a duration, even if its events have none."""
        columns = self.input.columns
        return replace(columns, start=None) if columns.start == START else columns

    def with_fixed_plans(self) -> Prepared:
        """The query, and those that feed it, with plans that do not change during a run."""
        graph = self.graph
        if graph is not None:
            nodes = tuple(replace(node, prepared=node.prepared.with_fixed_plans()) for node in graph.nodes)
            graph = replace(graph, nodes=nodes)
        return replace(self, adaptive=None, others=(), graph=graph)

    def without_kernels(self) -> Prepared:
        """For the workers, each of which makes the kernels itself."""
        if self.graph is None:
            return replace(self, kernel=None)
        nodes = tuple(replace(node, prepared=node.prepared.without_kernels()) for node in self.graph.nodes)
        return replace(self, kernel=None, graph=replace(self.graph, nodes=nodes))

    @property
    def plans(self) -> tuple[Plan, ...]:
        return (self.plan, *self.others)

    @cached_property
    def attributes(self) -> tuple[str, ...]:
        """The attributes that the masks and kernels of its plans read."""
        return tuple(dict.fromkeys(name for plan in self.plans for name in plan.attributes))

    @cached_property
    def variables(self) -> dict[str, Role]:
        """The variables that a match binds."""
        return {var: role for var, role in self.query.roles.items() if not role.negated}


@dataclass(frozen=True, slots=True)
class PreparedNode:
    """A node of the graph that other queries use. `reading` describes the events that it reads, `attributes` those that
    it derives."""

    name: str
    label: str
    reading: Reading
    attributes: tuple[Attribute, ...]
    prepared: Prepared
    counting: Counting | None = None
    """How single events are counted, if the node derives events about many."""
    counted: tuple[Attribute, ...] = ()
    """The attributes of these single events."""

    @property
    def identity(self) -> Attribute | None:
        """CED's `event_id`, if the declaration sets it: events with the same one are one event."""
        found = {attribute.name: attribute for attribute in self.attributes}
        identity = found.get(EVENT_ID) if BASE_SCHEMA.keys() <= found.keys() and self.counting is None else None
        return identity if identity is not None and identity.expr is not None else None


@dataclass(frozen=True, slots=True)
class PreparedGraph:
    """The nodes that feed a query, each after those that it uses, and the events that the query reads."""

    query: Query
    """As its text says it."""
    nodes: tuple[PreparedNode, ...]
    reading: Reading


def prepare(query: Query, source: SourceDescription, options: RunOptions = DEFAULT_OPTIONS) -> Prepared:
    """Binds the query to the source's columns, samples the source where statistics decide between plans, and lowers
    the query to a plan with its kernel."""
    bound, schema, clock = bound_query(query, source, options)
    shape = InputShape(source.schema, source.columns, source.attributes, source.omits_nulls)
    if not is_composed(bound) or options.evaluator == REFERENCE:
        return _planned(bound, shape, schema, clock, options, source)
    return _composed(bound, shape, schema, clock, options, source)


def shown_only(query: Query, source: SourceDescription, options: RunOptions) -> Prepared:
    """The query as its matches are shown, for one whose matches a family finds: it has no plan of its own."""
    bound, schema, clock = bound_query(query, source, options)
    shape = InputShape(source.schema, source.columns, source.attributes, source.omits_nulls)
    plan = Plan(bound, FAMILY, (), (), {}, {}, (), {}, (), None, False, options.options)
    return Prepared(bound, schema, clock, plan, None, input=shape)


def require_used(params: Mapping[str, Any], *queries: Query) -> None:
    """Refuses the value of a parameter that no query has: its name is often a mistake in writing."""
    known = list(dict.fromkeys(name for query in queries for name in parameters(query)))
    for name in params:
        if name not in known:
            raise InputProblem(
                f"the query has no parameter `{shown(str(name))}`",
                expected=f"one of {listing(known)}" if known else "no parameters: every name in the query is known",
                hint=did_you_mean(str(name), known),
            )


def bound_query(query: Query, source: SourceDescription, options: RunOptions) -> tuple[Query, Schema, Clock]:
    """The query bound to the source's columns, its event types, and the clock of their times."""
    schema = schema_of(source, sorted(types_named(query)))
    clock = clock_of(source, options.time_unit)
    try:
        bound = bind(query, replace(schema, time_column=source.columns.time, clock=clock), options.params)
    except TypeProblem as problem:
        if problem.hint is not None and NUMBERS_IN_TEXT in problem.hint:
            problem.hint = numbers_hint(problem.span, query, source) or problem.hint
        raise
    return bound, schema, clock


def _composed(
    bound: Query, shape: InputShape, schema: Schema, clock: Clock, options: RunOptions, source: SourceDescription
) -> Prepared:
    """The query and those that feed it, each planned once. Raises NotAvailable if one of them cannot be compiled."""
    graph = graph_of(bound)
    schema = replace(schema, partial=with_declared(bound, schema).partial)
    inner_options = replace(options, evaluator=None, options=_shared_options(options.options))
    is_complete = source.attributes is not None and source.count is not None
    made: dict[str, PreparedNode] = {}
    labels = {name: label for node in graph.nodes.values() for label, name in node.uses}
    for name, node in graph.nodes.items():
        used = [(label, feeding, made[feeding].attributes) for label, feeding in node.uses]
        match node:
            case InputNode():
                continue
            case ProjectionNode(stream=stream):
                query = projected(stream)
            case QueryNode():
                query = node.query if node.query.threshold is None else single_events(node.query)
        reading = reading_of(query, used, shape, schema, clock, is_complete=is_complete)
        described = Composed(source, reading.shape) if used else source
        is_output = name == graph.output
        own_options = options if is_output else inner_options
        try:
            labelled = frozenset(one.label for one in reading.derived)
            prepared = _planned(reading.query, reading.shape, reading.schema, clock, own_options, described, labelled)
        except NotAvailable as problem:
            if is_output:
                raise
            raise NotAvailable(f"in `{labels[name]}`: {problem.what}", hint=problem.hint) from None
        if is_output:
            return replace(prepared, graph=PreparedGraph(bound, tuple(made.values()), reading))
        is_primitive = isinstance(node, ProjectionNode)
        attributes = attributes_of_matches(query, reading, clock, _keys_of_matches(prepared), is_primitive)
        if isinstance(node, QueryNode) and node.query.threshold is not None:
            counting = Counting.of(node.query, clock)
            made[name] = PreparedNode(
                name, labels[name], reading, counting.attributes(attributes), prepared, counting, attributes
            )
            continue
        made[name] = PreparedNode(name, labels[name], reading, attributes, prepared)
    raise AssertionError("a graph has an output")


def _keys_of_matches(prepared: Prepared) -> Collection[str]:
    """The attributes whose values all events of a match share; of a match of one event, all attributes."""
    return prepared.schema.attributes(prepared.schema.types) if is_alone(prepared.query) else prepared.plan.key


def is_alone(query: Query) -> bool:
    """Whether a match is one event."""
    return isinstance(query.pattern, EventClass)


def _shared_options(options: Mapping[str, str | bool]) -> Mapping[str, str | bool]:
    """The options that every evaluator has."""
    return {name: value for name, value in options.items() if name in COMMON_OPTIONS}


def _planned(
    bound: Query,
    shape: InputShape,
    schema: Schema,
    clock: Clock,
    options: RunOptions,
    source: SourceDescription,
    composite: frozenset[str] = frozenset(),
) -> Prepared:
    types = schema_types(readable_schema(shape.schema))
    sampler = Sampler(source) if is_large_enough(source) else None

    def stats() -> Stats:
        return sampler.stats if sampler is not None and options.stats == NO_STATS else options.stats

    def plan_by(evaluator: str | None) -> Plan:
        """The first plan decides whether the source is sampled; the others are lowered with the same statistics."""
        return lower(
            bound,
            types,
            schema,
            clock,
            EVALUATORS,
            evaluator=evaluator,
            options=options.options,
            stats=stats(),
            sample=sampler,
            has_durations=shape.columns.start is not None,
            composite=composite,
        )

    plan = plan_by(options.evaluator)
    if plan.evaluator == REFERENCE:
        require_known_options(plan)
        return Prepared(bound, schema, clock, plan, None, input=shape)
    prepared = Prepared(bound, schema, clock, plan, kernel_for(plan), stats(), input=shape)
    if options.adaptive is None:
        return prepared
    fixed = why_fixed(plan, SWITCHING)
    if fixed is not None:
        reasons = (*plan.reasons, f"the plan cannot change during the run: {fixed}")
        return replace(prepared, plan=replace(plan, reasons=reasons))
    # An option of one evaluator selects that evaluator.
    may_be_another = options.evaluator is None and not options.options.keys() - {"rewrite"}
    names = [name for name in SWITCHING if name != plan.evaluator] if may_be_another else []
    others = [other for name in names if (other := _if_able(plan_by, name)) is not None]
    return replace(prepared, adaptive=options.adaptive, others=tuple(others))


def _if_able(plan_by: Callable[[str | None], Plan], evaluator: str) -> Plan | None:
    try:
        plan = plan_by(evaluator)
        kernel_for(plan)
    except NotAvailable:
        return None
    return plan


def with_match_ids(prepared: Prepared, column: str | None) -> Prepared:
    """The query with the column `match_id` in its output, by the identifiers of events in a column or, without one, by
    all their columns. The queries that feed it identify their matches too."""
    query, graph = prepared.written, prepared.graph
    shape = prepared.input if graph is None else graph.nodes[0].reading.shape
    if column is not None:
        _require_identifiers(prepared, column, shape)
    if query.summarizes:
        raise NotAvailable(f"`{MATCH_ID}` of a summary, which is about all matches", hint=f"drop {MATCH_ID}")
    if graph is not None and any(node.counting is not None for node in graph.nodes):
        raise NotAvailable(
            f"`{MATCH_ID}` of matches with events about many events", hint="group by attributes, and compare these"
        )
    if MATCH_ID in column_names(query):
        raise PatternProblem(
            f"`{MATCH_ID}` is the name of the column that was asked for", hint="choose another name in the query"
        )
    events = EventIds.of_input(column, shape.columns, shape.schema)
    if graph is not None:
        items = graph_of(graph.query).nodes
        graph = replace(graph, nodes=tuple(_identifying(node, items[node.name], events) for node in graph.nodes))
    return replace(prepared, graph=graph, match_ids=MatchIds(to_text(query), events, graph is not None))


def _identifying(node: PreparedNode, item: Node, events: EventIds) -> PreparedNode:
    assert not isinstance(item, InputNode)
    seed = declaration_text(item.stream if isinstance(item, ProjectionNode) else item.query)
    return replace(node, prepared=replace(node.prepared, match_ids=MatchIds(seed, events, is_carried=True)))


def _require_identifiers(prepared: Prepared, column: str, shape: InputShape) -> None:
    names = shape.schema.names
    if column not in names:
        known = [name for name in names if not is_added(name)]
        raise InputProblem(
            f"there is no column `{shown(column)}`",
            expected=f"one of {listing(known)}",
            hint=did_you_mean(column, known) or "without id_column, events are identified by all their columns",
        )
    for kind in _types_bound(prepared.written):
        if column not in prepared.schema.types.get(kind, (column,)):
            raise InputProblem(
                f"events of type `{shown(kind)}` have no column `{shown(column)}`",
                expected="a column that identifies the events of every type of the pattern",
                hint="without id_column, events are identified by all their columns",
            )


def _types_bound(query: Query) -> list[str]:
    """The event types of the input whose events are in the matches of a query or of one that feeds it."""
    derived = {item.name for item in query.inputs if not isinstance(item, SourceStream)}
    types = [kind for role in query.roles.values() if not role.negated for kind in role.event_class.types]
    for item in query.inputs:
        types += [item.source] if isinstance(item, DerivedStream) else []
        types += _types_bound(item) if isinstance(item, Query) else []
    return [kind for kind in dict.fromkeys(types) if kind not in derived]


def position_type(prepared: Prepared, var: str) -> pa.DataType:
    """The Arrow type of the positions of a variable's events in each match."""
    return pa.list_(pa.int64()) if var in prepared.binding.many else pa.int64()


def feeds_of(prepared: Prepared) -> tuple[Feed, ...]:
    """The queries that feed a query, for EXPLAIN."""
    nodes = () if prepared.graph is None else prepared.graph.nodes
    return tuple(Feed(n.label, tuple(d.label for d in n.reading.derived), n.prepared.plan) for n in nodes)


def code_of(prepared: Prepared) -> str:
    """The source of the kernel, with a legend of its names."""
    if prepared.kernel is None:
        raise NotAvailable(
            "no code is generated for this query: the reference evaluator runs it",
            hint="; ".join(prepared.plan.reasons) or None,
        )
    return with_legend(prepared.kernel)
