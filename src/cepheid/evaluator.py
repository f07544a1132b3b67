"""The protocol of a compiled evaluator: which queries it can evaluate, its plans, what they cost, and their kernels."""

from __future__ import annotations

from typing import Protocol, TypeVar

from cepheid.physical import Lowered, Options, Plan

S = TypeVar("S", contravariant=True)
K = TypeVar("K", covariant=True)


class Evaluator(Protocol[S, K]):
    """A compiled evaluator, over statistics S and with kernels K: a module of its package in `kernels`. Statistics and
    kernels are defined in layers above this one."""

    NAME: str
    OPTIONS: Options
    """Its options."""
    FOLDS: bool
    """Whether it summarizes matches, and finds the first ones, without enumerating all."""
    SEARCHES: bool
    """Whether statistics decide between plans of its own."""
    SWITCHES: bool
    """Whether its plans can take over from others while a query runs, and others from them."""

    def able(self, lowered: Lowered) -> str | None:
        """Why it cannot evaluate the query, a line for each reason; None if it can."""

    def plan(self, lowered: Lowered, stats: S) -> Plan:
        """Its best plan of a query that it can evaluate."""

    def cost(self, plan: Plan, stats: S) -> float:
        """The nanoseconds for each event that one of its plans is expected to take."""

    def kernel(self, plan: Plan) -> K:
        """The compiled plan. Raises NotAvailable where code cannot be generated after all."""
