"""Queries whose trees share equal joins and buffers, as one plan: the union of their patterns (NEXT §4.4).

Sequences and conjunctions of SASE and ZStream with the same window are united where they have classes of events in
common: each event is tested and stored once, equal joins are made once, and a match says which query it belongs to.
Which queries run together, and whether that costs less than apart, is decided by the cost model.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from cepheid import expr as ex
from cepheid.codegen.columns import schema_types
from cepheid.deploy.deployment import Deployment, Operator, United, Written, deploy
from cepheid.deploy.families import BY_STRATEGY
from cepheid.deploy.graphs import with_common_inputs
from cepheid.dialect import COMBINATIONS, RUNS, SUCCESSORS
from cepheid.engine.prepare import Prepared, RunOptions
from cepheid.engine.sampling import Sampler, is_large_enough
from cepheid.expr import Expr
from cepheid.io.event_columns import readable_schema
from cepheid.io.source import SourceDescription
from cepheid.kernels import tree
from cepheid.kernels.registry import kernel_for
from cepheid.limits import LIMITS
from cepheid.logic import expanded
from cepheid.optimize.alternatives import alternatives
from cepheid.optimize.cost import BUFFER, events_in_window, reading_cost
from cepheid.optimize.lower import OPTIONS, lowered_query
from cepheid.optimize.search import Situation
from cepheid.optimize.stats import NO_STATS
from cepheid.optimize.unions import Class, class_of, spelt_out, union_plan, united
from cepheid.pattern import Query, always_bound
from cepheid.physical import REFERENCE, Plan
from cepheid.tree_plan import TreePlan

MOST_MEMBERS = 16
"""The most queries of a union: the code of a kernel grows with them."""
_MOST_BITS = 60
_WORTHWHILE = 0.6
"""A union must be expected to cost less than this share of its queries apart. The model overstates the cost of
reading the events once more: with more than this share, unions were measured to cost up to a third more than apart."""


def deploy_together(queries: Mapping[str, Written], source: SourceDescription, options: RunOptions) -> Deployment:
    """The deployment of queries that see a bounded input in one pass: what they have in common runs once."""
    return with_unions(with_common_inputs(deploy(queries, source, options), options), source, options)


def with_unions(deployment: Deployment, source: SourceDescription, options: RunOptions) -> Deployment:
    """The deployment with its operators united where they have something in common."""
    members: list[_Member] = []
    reasons: dict[str, str] = {}
    for operator in deployment.single_operators:
        reason = why_apart(operator, options)
        if reason is None:
            members.append(_Member.of(operator))
        else:
            reasons[operator.name] = reason
    unions: list[United] = []
    for chunk in _chunks(members):
        if len(chunk) < 2:
            reasons[chunk[0].operator.name] = "no other query with its language and window has an equal class of events"
            continue
        found = _united(chunk, source, options)
        if isinstance(found, str):
            reasons |= {member.operator.name: found for member in chunk}
        else:
            unions.append(found)
    return replace(deployment, unions=tuple(unions), apart=reasons)


def why_apart(operator: Operator, options: RunOptions) -> str | None:
    """Why the trees of an operator are not united with those of others."""
    prepared = operator.prepared
    query, plan = prepared.query, prepared.plan
    if prepared.graph is not None:
        return "it uses other queries"
    if query.dialect.selection == RUNS:
        return BY_STRATEGY
    if query.dialect.selection == SUCCESSORS:
        return "only families of EQL's operators are shared"
    if query.dialect.selection != COMBINATIONS or query.dialect.ordered_by_position:
        return "its operators have windows of their own"
    if prepared.kernel is None or options.evaluator is not None or options.options.keys() - {*OPTIONS, *LIMITS}:
        return "an evaluator or an option is forced"
    if prepared.adaptive is not None:
        return "its plan may change during the run"
    if query.summarizes:
        return "it is a summary of all matches"
    if all(output.prepared.query.limit is not None for output in operator.outputs):
        return "it ends with its LIMIT"
    if query.non_overlapping or query.consumes:
        return "the output depends on other matches"
    if plan.window is None or plan.counts_events:
        return "it has no window of time"
    if len(alternatives(plan.query)) > 1 or len(always_bound(query.pattern)) < len(prepared.variables):
        return "its pattern has alternatives (`|`, `*`)"
    if any(not ex.variables(predicate) for predicate in expanded(plan.query)):
        return "a predicate names no event"
    if len(plan.steps) < 2:
        return "it is a single event"
    return None


@dataclass(frozen=True, slots=True)
class _Member:
    operator: Operator
    where: tuple[Expr, ...]
    classes: frozenset[Class]
    """Of the events that a match binds."""
    attributes: frozenset[str]

    @classmethod
    def of(cls, operator: Operator) -> _Member:
        query = operator.prepared.plan.query
        where = spelt_out(query, operator.prepared.schema)
        single = {var: role for var, role in query.roles.items() if not role.negated and not role.binds_many}
        classes = frozenset(class_of(var, role, where) for var, role in single.items())
        return cls(operator, where, classes, frozenset(operator.prepared.plan.columns))

    @property
    def query(self) -> Query:
        return self.operator.prepared.plan.query

    @property
    def plan(self) -> Plan:
        return self.operator.prepared.plan

    @property
    def signature(self) -> tuple[object, ...]:
        """What the members of a union have in common."""
        query, plan = self.query, self.plan
        return query.dialect, plan.window, query.strategy, plan.has_durations


@dataclass(slots=True)
class _Chunk:
    members: list[_Member] = field(default_factory=list)
    classes: set[Class] = field(default_factory=set)
    bits: int = 0

    def fits(self, member: _Member) -> bool:
        return len(self.members) < MOST_MEMBERS and self.bits + len(member.plan.bits) <= _MOST_BITS

    def add(self, member: _Member) -> None:
        self.members.append(member)
        self.bits += len(member.plan.bits) - len(self.classes & member.classes)
        self.classes |= member.classes


def _chunks(members: Sequence[_Member]) -> Iterator[list[_Member]]:
    """The members in unions, each in the one with which it has the most classes in common. Those with equal beginnings
    come one after the other."""
    by_signature: dict[tuple[object, ...], list[_Member]] = {}
    for member in members:
        by_signature.setdefault(member.signature, []).append(member)
    for alike in by_signature.values():
        chunks: list[_Chunk] = []
        of_class: dict[Class, list[_Chunk]] = {}
        for member in sorted(alike, key=_beginning):
            shared: dict[int, int] = {}
            known = {id(chunk): chunk for kind in member.classes for chunk in of_class.get(kind, ())}
            for kind in member.classes:
                for chunk in of_class.get(kind, ()):
                    shared[id(chunk)] = shared.get(id(chunk), 0) + 1
            open_ones = [number for number in shared if known[number].fits(member)]
            best = known[max(open_ones, key=lambda number: shared[number])] if open_ones else _Chunk()
            if not open_ones:
                chunks.append(best)
            for kind in member.classes - best.classes:
                of_class.setdefault(kind, []).append(best)
            best.add(member)
            if len(best.members) == MOST_MEMBERS:
                for kind in best.classes:
                    of_class[kind].remove(best)
        yield from (chunk.members for chunk in chunks)


def _beginning(member: _Member) -> list[str]:
    """The order in which queries with equal beginnings are neighbours."""
    kinds = (class_of(var, role, member.where) for var, role in member.query.roles.items() if not role.negated)
    return [repr((types, sorted(map(repr, tests)))) for types, tests in kinds]


def _united(members: Sequence[_Member], source: SourceDescription, options: RunOptions) -> United | str:
    """The members as one plan, or why they run apart."""
    first = members[0].operator.prepared
    union = united([(member.query, member.where) for member in members])
    types = schema_types(readable_schema(source.schema))
    has_durations = source.columns.start is not None
    known = {kind: of for member in members for kind, of in member.operator.prepared.schema.types.items()}
    schema, clock = replace(first.schema, types=known), first.clock
    lowered = lowered_query(union.query, types, schema, clock, options.options, has_durations)
    if any(lowered.lacks.keys() & member.attributes - member.plan.lacks.keys() for member in members):
        return "event types of other queries lack an attribute of its predicates"
    sampler = Sampler(source) if is_large_enough(source) else None
    stats = options.stats
    if sampler is not None and stats == NO_STATS:
        stats = sampler(lowered.plan(REFERENCE, by_variable=True))
    situation = Situation(
        lowered.query, tuple(lowered.between), lowered.alone, lowered.window, stats, None, has_durations
    )
    trees = union_plan(situation, union.members)
    plan = lowered.plan(tree.NAME, by_variable=True, predicates=lowered.between, tree=trees)
    if len(plan.bits) > _MOST_BITS:
        return "together they have too many classes of events"
    apart = sum(member.plan.expected for member in members)
    expected = _expected(situation, trees) if stats != NO_STATS else math.nan
    if expected > _WORTHWHILE * apart:
        gain = "more" if expected >= apart else "not much less"
        return f"together they are expected to cost {gain}: {expected:.4g} ns for each event, and {apart:.4g} ns apart"
    plan = replace(plan, expected=expected)
    prepared = Prepared(lowered.query, schema, clock, plan, kernel_for(plan), stats, input=first.input)
    return United(prepared, tuple(member.operator for member in members), apart)


def _expected(situation: Situation, trees: TreePlan) -> float:
    """The nanoseconds for each event: the events are read once, and those of a class stored once."""
    models = [situation.model(alternative) for alternative in alternatives(situation.query)]
    events = max(map(events_in_window, models))
    stored = {var: model.cardinality(var) for model in models for var in (*model.alternative.joined, *model.negated)}
    return (trees.cost + reading_cost(models[0]) + BUFFER * sum(stored.values())) / events
