"""A stream whose plan is exchanged while it runs (ZStream §5.3).

The events that a later match may depend on are retained. To switch, the new kernel starts with an empty state, replays
the retained events without output, and takes over. No match is lost or repeated, because every kernel outputs a match
with the event that completes it, or once time has passed its window.
"""

from __future__ import annotations

import logging
import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from cepheid.codegen.compile import is_ready
from cepheid.codegen.encoder import Encoder
from cepheid.engine.observation import Observer
from cepheid.engine.prepare import Prepared
from cepheid.engine.stepping import PATIENCE, Stepper, encoder_for, without_compiling
from cepheid.kernels.registry import kernel_for
from cepheid.optimize.adapt import Decision, Policy, Switch, horizon, same_work
from cepheid.optimize.stats import RunningStats, Stats
from cepheid.physical import Plan
from cepheid.runtime.kernel import COUNTERS, Array, Batch, Kernel, Positions, State

_log = logging.getLogger("cepheid.adaptation")

OnSwitch = Callable[[Switch], None]


def ignore(*_: Any) -> None:
    """A callback that does nothing."""


_STEP = 0.001
"""The seconds that a kernel works before the clock is read again, at its pace so far. The value is small, so that a
sudden slowdown is noticed soon."""
ENOUGH = 1_024
"""The least number of events in an observation: fewer say little."""
_SLOWER = 2.0
"""A kernel that has slowed down by this factor since the last observation is observed again at once."""
_PAUSE = 60.0
"""How much longer kernels work between two observations than an observation takes."""

_wasted: dict[str, float] = {}
"""The seconds that this process has lost because the kernel of this source was not compiled: a query that is run again
and again is worth compiling in the end."""


class Kernels:
    """A cache of kernels, one for each plan of a query."""

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
    """Compares the statistics of the stream with those that its plan was chosen with, and decides on a new plan."""

    policy: Policy
    bases: tuple[Plan, ...]
    """The query's plans, one for each evaluator that may run it."""
    planned_with: Stats
    running: RunningStats
    observer: Observer

    @classmethod
    def start(cls, policy: Policy, bases: tuple[Plan, ...], stats: Stats) -> Watch:
        """The first of `bases` is the plan in use."""
        return cls(policy, bases, stats, RunningStats(policy.observations), Observer(bases[0]))

    def observe(self, events: pa.RecordBatch, encoded: Batch) -> None:
        """Adds an observation. The first one after a switch is thorough, because a plan may be chosen by it alone."""
        last = self.observer.last
        self.running = self.running.observed(self.observer.observe(events, encoded))
        if len(self.running.observations) == 1:
            self.observer.last = last
            known = self.observer.observe(events, encoded, thoroughly=True)
            self.running = RunningStats(self.running.length, (known,))

    def decide(self, plan: Plan) -> Decision:
        """The plan to continue with, by the observed statistics."""
        decision = self.policy.decide(plan, self.planned_with, self.running.average, self.bases)
        if decision.drift is not None and same_work(plan, decision.plan):
            self.planned_with = self.running.average  # the plan is the best for these statistics too
        return decision

    def follow(self, decision: Decision) -> None:
        """Observes for the new plan from now on."""
        self.planned_with = self.running.average
        self.observer = Observer(decision.plan, self.observer.last)


def report(switch: Switch, on_switch: OnSwitch = ignore) -> Switch:
    _log.info("the plan changes %s", switch)
    on_switch(switch)
    return switch


def caught_up(kernel: Kernel, first: int, retained: Iterable[pa.RecordBatch]) -> tuple[State, Encoder]:
    """A kernel's state after the retained events, the first at position `first`; their matches are dropped."""
    encoder, state = encoder_for(kernel), kernel.initial()
    encoder.rows = first
    for batch in retained:
        state, _ = kernel.step(state, encoder.encode(batch))
    return state, encoder


def carry_counters(before: State, after: State) -> None:
    """No event or match counts twice; records made and predicates tested are those of the kernel at hand."""
    for number, name in enumerate(COUNTERS):
        if name in ("events", "dropped_by_mask", "matches"):
            after[0][number] = before[0][number]
        elif name == "peak_retained":
            after[0][number] = max(after[0][number], before[0][number])


@dataclass(frozen=True, slots=True)
class _Retained:
    """A batch that may still matter, the position of its first event, and where its events lie in the window's
    measure."""

    first: int
    offsets: Array
    events: pa.RecordBatch

    def after(self, offset: int) -> _Retained:
        """Without the events before an offset in the window's measure."""
        cut = int(np.searchsorted(self.offsets, offset))
        return _Retained(self.first + cut, self.offsets[cut:], self.events.slice(cut))


@dataclass(slots=True)
class AdaptiveStepper(Stepper):
    """One stream through the kernels of one query, whichever is best at the moment."""

    watch: Watch = field(kw_only=True)
    kernels: Kernels = field(kw_only=True)
    reach: int = field(kw_only=True)
    """How far back, in the window's measure, the events lie that another plan needs."""
    on_switch: OnSwitch = ignore
    retained: deque[_Retained] = field(default_factory=deque)
    observed_at: float | None = None
    """The seconds that the kernels had worked at the last observation."""
    observation_seconds: float = math.inf
    """The least time that an observation took: some are slow by chance."""
    pause: float = 0.0
    """The seconds of work until the next observation; more where observations take longer."""
    stretch: int = 0
    """How many events a kernel is given at once, about."""
    pace: float = 0.0
    """Events a second, lately."""
    pace_then: float = 0.0
    """Events a second, right after the last observation."""
    wanted: Decision | None = None
    """A switch that would have to be compiled first."""

    def step(self, batch: pa.RecordBatch, piece: int | None = None) -> Iterator[Positions]:
        encoded, at = self.encoder.encode(batch), 0
        while at < batch.num_rows:
            size = self._stretch(batch.num_rows - at, piece)
            events, stretch = batch.slice(at, size), encoded.cut(at, at + size)
            if self._is_observation_due(len(stretch)):
                if self._observe(events, stretch):
                    batch, at = batch.slice(at), 0
                    encoded = self.encoder.encode(batch)
                    stretch = encoded.cut(0, size)
            else:
                self.watch.observer.pass_over(stretch)
            at += events.num_rows
            self._retain(stretch, events)
            began = self.worked
            yield from self.step_encoded(stretch, piece)
            took = self.worked - began
            self.pace = len(stretch) / took if took else 0.0
            self.pace_then = self.pace_then or self.pace
            if self.wanted is not None:
                source = self.kernels.of(self.wanted.plan).source
                share = 1.0 - self.wanted.cost_after / self.wanted.cost_before
                _wasted[source] = _wasted.get(source, 0.0) + took * share

    def _stretch(self, events: int, piece: int | None) -> int:
        """The number of events for the kernel until the clock is read again. Stretches are alike as long
        as the pace is, since room for matches is made by what the last stretch (or piece of it) needed."""
        fitting = int(self.pace * min(self.pause, _STEP))
        if not self.stretch or not self.stretch / 2 <= fitting <= 2 * self.stretch:
            self.stretch = max(self.watch.policy.observed_every, fitting)
        alike = math.ceil(events / math.ceil(events / self.stretch))
        return alike if piece is None or alike < piece else alike - alike % piece

    def _is_observation_due(self, events: int) -> bool:
        """Whether to observe the next batch, of this many events."""
        if self.observed_at is None:
            return True
        if events < min(self.watch.policy.observed_every, ENOUGH):
            return False
        return self.worked - self.observed_at >= self.pause or self.pace_then > _SLOWER * self.pace

    def _observe(self, events: pa.RecordBatch, encoded: Batch) -> bool:
        """Observes the next events, and switches to a better plan. Returns whether the plan was switched: then the
        caller encodes the events again for the new plan."""
        began = time.thread_time()
        self.watch.observe(events, encoded)
        self.observation_seconds = took = min(self.observation_seconds, time.thread_time() - began)
        decision = self.watch.decide(self.kernel.plan)
        unchanged = same_work(self.kernel.plan, decision.plan)
        self.wanted = None
        if not unchanged and not self._is_worth_it(decision):
            self.wanted = decision
            took = time.thread_time() - began  # the next observation will search again
        least = self.watch.policy.seconds_between
        self.pause = max(least, _PAUSE * took) if least else 0.0
        self.observed_at, self.pace_then = self.worked, 0.0
        if unchanged or self.wanted is not None:
            return False
        self._switch(decision, encoded.first)
        return True

    def _is_worth_it(self, decision: Decision) -> bool:
        """Whether to switch now. A kernel that must be compiled first has to wait until the old plan has wasted as much
        time as compiling takes, because the rest of the stream may be short."""
        if self.interpreting or math.isnan(decision.cost_before):
            return True
        kernel = self.kernels.of(decision.plan)
        wasted = _wasted.get(kernel.source, 0.0)
        return wasted > PATIENCE or is_ready(kernel.function) or not is_ready(self.compiled.function)

    def _switch(self, decision: Decision, events: int) -> None:
        switch = Switch.of(events, self.kernel.plan, decision)
        self.compiled = self.kernels.of(decision.plan)
        self.kernel = without_compiling(self.compiled) if self.interpreting else self.compiled
        replayed = [part.after(self._oldest()) for part in self.retained]
        first = replayed[0].first if replayed else events
        state, self.encoder = caught_up(self.kernel, first, (part.events for part in replayed))
        carry_counters(self.state, state)
        self.state = state
        self.watch.follow(decision)
        report(switch, self.on_switch)

    def _retain(self, encoded: Batch, events: pa.RecordBatch) -> None:
        self.retained.append(_Retained(encoded.first, encoded.measure, events))
        oldest = self._oldest()
        while self.retained[0].offsets[-1] < oldest:
            self.retained.popleft()

    def _oldest(self) -> int:
        """The offset of the oldest event that another plan needs."""
        return int(self.retained[-1].offsets[-1]) - self.reach


def stepper_for(prepared: Prepared, kernel: Kernel, expected: int | None, on_switch: OnSwitch = ignore) -> Stepper:
    """`expected` is the number of events, where it is known."""
    plain = Stepper.start(kernel, expected)
    if prepared.adaptive is None:
        return plain
    return AdaptiveStepper(
        plain.kernel,
        plain.state,
        plain.encoder,
        plain.compiled,
        plain.interpreting,
        plain.spent,
        watch=Watch.start(prepared.adaptive, prepared.plans, prepared.stats),
        kernels=Kernels(kernel),
        reach=horizon(kernel.plan),
        on_switch=on_switch,
    )
