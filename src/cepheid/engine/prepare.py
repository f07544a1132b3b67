"""Prepares a query for a source: binds it, samples the source, chooses a plan and generates the kernel."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from cepheid.binding import bind
from cepheid.codegen.columns import schema_types
from cepheid.codegen.legend import with_legend
from cepheid.engine.positions import Binding
from cepheid.engine.sampling import Sampler, is_large_enough
from cepheid.errors import NotAvailable
from cepheid.events import Clock, Schema
from cepheid.io.inputs import Columns
from cepheid.io.source import Attributes, SourceDescription, clock_of, readable_schema, schema_of
from cepheid.io.times import unit_of
from cepheid.kernels.registry import EVALUATORS, SWITCHING, kernel_for, require_known_options
from cepheid.optimize.adapt import Policy, policy_of, why_fixed
from cepheid.optimize.lower import lower
from cepheid.optimize.stats import NO_STATS, Stats
from cepheid.pattern import Query, Role
from cepheid.physical import REFERENCE, Plan
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
        stats: Stats | None,
        adaptive: bool | Policy,
        time_unit: str | None,
    ) -> RunOptions:
        """The keyword arguments of `match`, `explain` and `stream`."""
        return cls(
            params=params or {},
            evaluator=evaluator,
            options=options or {},
            stats=stats or NO_STATS,
            adaptive=policy_of(adaptive),
            time_unit=time_unit,
        )

    def __post_init__(self) -> None:
        """Refuses an unknown unit before any input is opened."""
        if self.time_unit is not None:
            object.__setattr__(self, "time_unit", unit_of(self.time_unit))


DEFAULT_OPTIONS = RunOptions()


@dataclass(frozen=True, slots=True)
class InputShape:
    """The schema of the source that a query was prepared for (see `Source`)."""

    schema: pa.Schema
    columns: Columns
    attributes: Attributes | None = None
    omits_nulls: bool = False


NO_INPUT = InputShape(pa.schema([]), Columns())


@dataclass(frozen=True, slots=True)
class Prepared:
    """A bound query, its plan, and the statistics that the plan was chosen with. Without a kernel the oracle evaluates
    the query, and the plan holds the reasons. `adaptive` decides when to change the plan; None: never. `others` holds a
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
    binding: Binding = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "binding", Binding.of(self.query.pattern))

    @property
    def plans(self) -> tuple[Plan, ...]:
        return (self.plan, *self.others)

    @property
    def variables(self) -> dict[str, Role]:
        """The variables that a match binds."""
        return {var: role for var, role in self.query.roles.items() if not role.negated}


def prepare(query: Query, source: SourceDescription, options: RunOptions = DEFAULT_OPTIONS) -> Prepared:
    """Binds the query to the source's columns, samples the source where statistics decide between plans, and lowers
    the query to a plan with its kernel."""
    shape = InputShape(source.schema, source.columns, source.attributes, source.omits_nulls)
    schema = schema_of(source, sorted({name for role in query.roles.values() for name in role.event_class.types}))
    clock = clock_of(source, options.time_unit)
    return _planned(bind(query, schema, options.params), shape, schema, clock, options, source)


def _planned(
    bound: Query, shape: InputShape, schema: Schema, clock: Clock, options: RunOptions, source: SourceDescription
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
        )

    plan = plan_by(options.evaluator)
    if plan.evaluator == REFERENCE:
        require_known_options(plan)
        return Prepared(bound, schema, clock, plan, None, input=shape)
    try:
        prepared = Prepared(bound, schema, clock, plan, kernel_for(plan), stats(), input=shape)
    except NotAvailable as problem:
        if options.evaluator is not None:
            raise
        reference = plan_by(REFERENCE)
        reasons = (*reference.reasons, f"not `{plan.evaluator}`: {problem.what}")
        return Prepared(bound, schema, clock, replace(reference, reasons=reasons), None, input=shape)
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


def position_type(prepared: Prepared, var: str) -> pa.DataType:
    """The Arrow type of the positions of a variable's events in each match."""
    return pa.list_(pa.int64()) if var in prepared.binding.many else pa.int64()


def code_of(prepared: Prepared) -> str:
    """The source of the kernel, with a legend of its names."""
    if prepared.kernel is None:
        raise NotAvailable(
            "no code is generated for this query: the reference evaluator runs it",
            hint="; ".join(prepared.plan.reasons) or None,
        )
    return with_legend(prepared.kernel)
