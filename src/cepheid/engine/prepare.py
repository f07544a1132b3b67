"""A query and the shape of its input to something that can run: bound, lowered to a plan, its kernel generated."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from cepheid.binding import bind
from cepheid.codegen.legend import with_legend
from cepheid.codegen.masks import is_vectorisable
from cepheid.codegen.scalar import is_compilable
from cepheid.engine.positions import Binding
from cepheid.errors import NotAvailable
from cepheid.events import Clock, Schema
from cepheid.kernels.registry import kernel_for, require_known_options
from cepheid.optimize.adapt import SWITCHABLE, Policy, why_fixed
from cepheid.optimize.lower import lower
from cepheid.optimize.stats import NO_STATS, Stats
from cepheid.pattern import Query, Role, roles
from cepheid.physical import REFERENCE, Kind, Plan
from cepheid.runtime.kernel import Kernel


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the user decides about a run: values for the query's parameters, the evaluator and its options, what is
    known about the stream, and when its plan may change (None: never)."""

    params: Mapping[str, Any] = field(default_factory=dict)
    evaluator: str | None = None
    options: Mapping[str, str | bool] = field(default_factory=dict)
    stats: Stats = NO_STATS
    adaptive: Policy | None = None


NO_WISHES = Wishes()


@dataclass(frozen=True, slots=True)
class Prepared:
    """A bound query, its plan, and the statistics that it was chosen with. Without a kernel the oracle evaluates it,
    and the plan says why. `adaptive` decides when the plan changes, if it can, be it to one of another evaluator, of
    which `others` has one each."""

    query: Query
    schema: Schema
    clock: Clock
    plan: Plan
    kernel: Kernel | None
    stats: Stats = NO_STATS
    adaptive: Policy | None = None
    others: tuple[Plan, ...] = ()

    @property
    def plans(self) -> tuple[Plan, ...]:
        return (self.plan, *self.others)

    @property
    def variables(self) -> dict[str, Role]:
        """The variables that a match binds."""
        return {var: role for var, role in roles(self.query.pattern).items() if not role.negated}

    @property
    def many(self) -> frozenset[str]:
        return self.binding.many

    @property
    def binding(self) -> Binding:
        return Binding.of(self.query.pattern)


def prepare(
    query: Query, kinds: Mapping[str, Kind], schema: Schema, clock: Clock, wishes: Wishes = NO_WISHES
) -> Prepared:
    """`kinds` says how the input's attributes are held; those it does not name cannot be compiled."""
    bound = bind(query, schema, wishes.params)

    def planned(evaluator: str | None) -> Plan:
        return lower(
            bound,
            kinds,
            schema,
            clock,
            evaluator=evaluator,
            options=wishes.options,
            stats=wishes.stats,
            is_compilable=is_compilable,
            is_vectorisable=is_vectorisable,
        )

    plan = planned(wishes.evaluator)
    if plan.evaluator == REFERENCE:
        require_known_options(plan)
        return Prepared(bound, schema, clock, plan, None)
    try:
        prepared = Prepared(bound, schema, clock, plan, kernel_for(plan), wishes.stats)
    except NotAvailable as problem:
        if wishes.evaluator is not None:
            raise
        return Prepared(bound, schema, clock, _instead(planned(REFERENCE), plan, problem), None)
    if wishes.adaptive is None:
        return prepared
    fixed = why_fixed(plan)
    if fixed is not None:
        reasons = (*plan.reasons, f"the plan stays the same while it runs: {fixed}")
        return replace(prepared, plan=replace(plan, reasons=reasons))
    # Who wishes for something of an evaluator wants that one.
    may_be_another = wishes.evaluator is None and not wishes.options.keys() - {"rewrite"}
    names = [name for name in SWITCHABLE if name != plan.evaluator] if may_be_another else []
    others = [other for name in names if (other := _if_able(planned, name)) is not None]
    return replace(prepared, adaptive=wishes.adaptive, others=tuple(others))


def _if_able(planned: Callable[[str | None], Plan], evaluator: str) -> Plan | None:
    try:
        plan = planned(evaluator)
        kernel_for(plan)
    except NotAvailable:
        return None
    return plan


def _instead(reference: Plan, wanted: Plan, problem: NotAvailable) -> Plan:
    return replace(reference, reasons=(*reference.reasons, f"not `{wanted.evaluator}`: {problem.what}"))


def code_of(prepared: Prepared) -> str:
    """The source of the kernel, with what its names stand for."""
    if prepared.kernel is None:
        raise NotAvailable(
            "no code is generated for this query: the reference evaluator runs it",
            hint="; ".join(prepared.plan.reasons) or None,
        )
    return with_legend(prepared.kernel)
