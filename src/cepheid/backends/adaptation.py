"""A stream whose plan is exchanged while it runs (ZStream §5.3).

The events that a later match may depend on are kept. To switch, the new kernel starts from nothing, goes through the
kept events with its matches suppressed, since the old kernel gave them, and takes over. That neither loses nor repeats
a match, because every kernel gives a match with the event that completes it, or once time has passed its window.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import pyarrow as pa

from cepheid.backends.observation import Observer
from cepheid.backends.prepare import Prepared
from cepheid.backends.stepping import PATIENCE, Stepper, encoder_for, without_compiling
from cepheid.codegen.columns import Encoder
from cepheid.codegen.compile import is_ready
from cepheid.kernels import COUNTERS, Batch, Kernel, Positions, State
from cepheid.kernels.registry import kernel_for
from cepheid.optimize.adapt import Decision, Policy, Switch, horizon, same_work
from cepheid.optimize.stats import RunningStats, Stats
from cepheid.physical import Plan

_log = logging.getLogger("cepheid.adaptation")

Listener = Callable[[Switch], None]


def unheard(switch: Switch) -> None:
    """Nobody listens to switches; the log has them."""


class Kernels:
    """The kernels of one query's plans. One that was made stays, compiled or not."""

    def __init__(self, *made: Kernel) -> None:
        self.made = list(made)

    def of(self, plan: Plan) -> Kernel:
        for kernel in self.made:
            if same_work(kernel.plan, plan):
                return kernel
        self.made.append(kernel_for(plan))
        return self.made[-1]


@dataclass(slots=True)
class Watch:
    """What a stream looked like when its plan was chosen, what it looks like now, and what is to be done about it."""

    policy: Policy
    planned_with: Stats
    running: RunningStats
    observer: Observer

    @classmethod
    def start(cls, policy: Policy, plan: Plan, stats: Stats) -> Watch:
        return cls(policy, stats, RunningStats(policy.observations), Observer(plan))

    def decide(self, plan: Plan, events: pa.RecordBatch, encoded: Batch) -> Decision:
        """Which plan is to go on with these events, which are next."""
        self.running = self.running.observed(self.observer.observe(events, encoded))
        decision = self.policy.decide(plan, self.planned_with, self.running.average)
        if decision.drift is not None and same_work(plan, decision.plan):
            self.planned_with = self.running.average  # the plan is the best for these statistics too
        return decision

    def follow(self, decision: Decision) -> None:
        """The plan has changed."""
        self.planned_with = self.running.average
        self.observer = Observer(decision.plan, self.observer.last)


def told(switch: Switch, listener: Listener = unheard) -> Switch:
    _log.info("the plan changes %s", switch)
    listener(switch)
    return switch


def caught_up(kernel: Kernel, first: int, kept: Iterable[pa.RecordBatch]) -> tuple[State, Encoder]:
    """A kernel's state after the kept events, of which the first has position `first`; their matches are dropped."""
    encoder, state = encoder_for(kernel), kernel.initial()
    encoder.rows = first
    for batch in kept:
        state, _ = kernel.step(state, encoder.encode(batch))
    return state, encoder


def carry_counters(before: State, after: State) -> None:
    """The work of catching up counts, but no event or match counts twice."""
    for number, name in enumerate(COUNTERS):
        if name in ("partial_matches", "predicates"):
            after[0][number] += before[0][number]
        elif name == "peak_retained":
            after[0][number] = max(after[0][number], before[0][number])
        else:
            after[0][number] = before[0][number]


@dataclass(frozen=True, slots=True)
class _Kept:
    """A batch that may still matter: the position of its first event, and the window's measure at its last."""

    first: int
    last_place: int
    events: pa.RecordBatch


@dataclass(slots=True)
class AdaptiveStepper(Stepper):
    """One stream through the kernels of one query, whichever is best at the moment."""

    watch: Watch = field(kw_only=True)
    kernels: Kernels = field(kw_only=True)
    listener: Listener = unheard
    kept: deque[_Kept] = field(default_factory=deque)
    wasted: float = 0.0
    """The seconds that the plan at hand took longer than one that would have to be compiled first."""

    def step(self, batch: pa.RecordBatch, piece: int | None = None) -> Iterator[Positions]:
        size = self.watch.policy.observed_every
        for start in range(0, batch.num_rows, size):
            events = batch.slice(start, size)
            encoded = self.encoder.encode(events)
            decision = self.watch.decide(self.kernel.plan, events, encoded)
            wants_to_switch = not same_work(self.kernel.plan, decision.plan)
            if wants_to_switch and self._is_worth_it(decision):
                self._switch(decision, encoded.first)
                encoded, wants_to_switch = self.encoder.encode(events), False
            self._keep(encoded, events)
            began = self.worked
            yield from self.step_encoded(encoded, piece)
            if wants_to_switch:
                self.wasted += (self.worked - began) * (1.0 - decision.cost_after / decision.cost_before)

    def _is_worth_it(self, decision: Decision) -> bool:
        """A kernel that has to be compiled first is worth it once waiting for it is no longer than what was lost
        without it: nobody knows how much of the stream is still to come."""
        if self.interpreting or math.isnan(decision.cost_before):
            return True
        if self.wasted > PATIENCE or not is_ready(self.compiled.function):
            return True
        return is_ready(self.kernels.of(decision.plan).function)

    def _switch(self, decision: Decision, events: int) -> None:
        switch = Switch.of(events, self.kernel.plan, decision)
        self.compiled = self.kernels.of(decision.plan)
        self.kernel = without_compiling(self.compiled) if self.interpreting else self.compiled
        first = self.kept[0].first if self.kept else events
        state, self.encoder = caught_up(self.kernel, first, (kept.events for kept in self.kept))
        carry_counters(self.state, state)
        self.state = state
        self.wasted = 0.0
        self.watch.follow(decision)
        told(switch, self.listener)

    def _keep(self, encoded: Batch, events: pa.RecordBatch) -> None:
        place = int(encoded.measure[-1])
        self.kept.append(_Kept(encoded.first, place, events))
        while self.kept[0].last_place < place - horizon(self.kernel.plan):
            self.kept.popleft()


def stepper_for(prepared: Prepared, kernel: Kernel, expected: int | None, listener: Listener = unheard) -> Stepper:
    """`expected` is the number of events, where it is known."""
    if prepared.adaptive is None:
        return Stepper.start(kernel, expected)
    plain = Stepper.start(kernel, expected)
    return AdaptiveStepper(
        plain.kernel,
        plain.state,
        plain.encoder,
        plain.compiled,
        plain.interpreting,
        plain.spent,
        watch=Watch.start(prepared.adaptive, kernel.plan, prepared.stats),
        kernels=Kernels(kernel),
        listener=listener,
    )
