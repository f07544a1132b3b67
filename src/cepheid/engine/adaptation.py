"""Plan changes during a run (ZStream §5.3).

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
"""The seconds of work, at the current pace, between two readings of the clock: few, so that a sudden slowdown is soon
noticed."""
MIN_OBSERVED = 1_024
"""The minimum number of events in an observation."""
_SLOWER = 2.0
"""A slowdown by this factor since the last observation triggers the next one."""
_PAUSE = 60.0
"""The minimum ratio between the work of the kernels between two observations and the time of an observation."""

_wasted: dict[str, float] = {}
"""The seconds that this process has lost because the kernel of this source was not compiled. They add up over runs, so
that the better kernel of a query that runs often is compiled eventually."""


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
    """Compares the statistics of the stream with those of its plan, and decides on a new plan."""

    policy: Policy
    bases: tuple[Plan, ...]
    """A plan for each evaluator that is able to run the query."""
    planned_with: Stats
    running: RunningStats
    observer: Observer

    @classmethod
    def start(cls, policy: Policy, bases: tuple[Plan, ...], stats: Stats) -> Watch:
        """The first of `bases` is the plan in use."""
        return cls(policy, bases, stats, RunningStats(policy.observations), Observer(bases[0]))

    def observe(self, events: pa.RecordBatch, encoded: Batch) -> None:
        """Adds an observation. The first one after a switch is thorough, because it may decide the next plan alone."""
        last = self.observer.last
        self.running = self.running.observed(self.observer.observe(events, encoded))
        if len(self.running.observations) == 1:
            self.observer.last = last
            known = self.observer.observe(events, encoded, thoroughly=True)
            self.running = RunningStats(self.running.length, (known,))

    def decide(self, plan: Plan) -> Decision:
        """The plan to continue with, according to the observed statistics."""
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
    """The state of a kernel after the retained events, the first at position `first`. Their matches are dropped."""
    encoder, state = encoder_for(kernel), kernel.initial()
    encoder.rows = first
    for batch in retained:
        state, _ = kernel.step(state, encoder.encode(batch))
    return state, encoder


def carry_counters(before: State, after: State) -> None:
    """Carries over the counters of events and matches. The other counters are those of the new kernel."""
    for number, name in enumerate(COUNTERS):
        if name in ("events", "dropped_by_mask", "matches"):
            after[0][number] = before[0][number]
        elif name == "peak_retained":
            after[0][number] = max(after[0][number], before[0][number])


@dataclass(frozen=True, slots=True)
class _Retained:
    """A batch that another plan may need, the position of its first event, and the offsets of its events in the
    window's measure."""

    first: int
    offsets: Array
    events: pa.RecordBatch

    def after(self, offset: int) -> _Retained:
        """Without the events before an offset in the window's measure."""
        cut = int(np.searchsorted(self.offsets, offset))
        return _Retained(self.first + cut, self.offsets[cut:], self.events.slice(cut))


@dataclass(slots=True)
class AdaptiveStepper(Stepper):
    """Steps the best kernel of a query over the batches of one stream. The kernel changes when the stream changes."""

    watch: Watch = field(kw_only=True)
    kernels: Kernels = field(kw_only=True)
    reach: int = field(kw_only=True)
    """The length of history that another plan needs, in the window's measure."""
    on_switch: OnSwitch = ignore
    retained: deque[_Retained] = field(default_factory=deque)
    observed_at: float | None = None
    """The seconds that the kernels had worked at the last observation."""
    observation_seconds: float = math.inf
    """The shortest time of an observation: some are slow by chance."""
    pause: float = 0.0
    """The seconds of work until the next observation; more where observations take longer."""
    stretch: int = 0
    """The approximate number of events in one call of a kernel."""
    pace: float = 0.0
    """Recent events per second."""
    pace_then: float = 0.0
    """Events per second right after the last observation."""
    pending: Decision | None = None
    """A better plan whose kernel is not compiled."""

    def step(
        self, batch: pa.RecordBatch, piece: int | None = None, observe: Callable[[Batch], None] | None = None
    ) -> Iterator[Positions]:
        encoded, at = self.encoder.encode(batch), 0
        if observe is not None:
            observe(encoded)
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
            if self.pending is not None:
                source = self.kernels.of(self.pending.plan).source
                share = 1.0 - self.pending.cost_after / self.pending.cost_before
                _wasted[source] = _wasted.get(source, 0.0) + took * share

    def _stretch(self, events: int, piece: int | None) -> int:
        """The number of events until the clock is read again. Stretches at the same pace have the same length, because
        the last stretch determines the space for matches."""
        fitting = int(self.pace * min(self.pause, _STEP))
        if not self.stretch or not self.stretch / 2 <= fitting <= 2 * self.stretch:
            self.stretch = max(self.watch.policy.observed_every, fitting)
        alike = math.ceil(events / math.ceil(events / self.stretch))
        return alike if piece is None or alike < piece else alike - alike % piece

    def _is_observation_due(self, events: int) -> bool:
        """Whether to observe the next stretch of this many events."""
        if self.observed_at is None:
            return True
        if events < min(self.watch.policy.observed_every, MIN_OBSERVED):
            return False
        return self.worked - self.observed_at >= self.pause or self.pace_then > _SLOWER * self.pace

    def _observe(self, events: pa.RecordBatch, encoded: Batch) -> bool:
        """Observes the next events and switches to a better plan. Returns whether the plan was switched; then the
        caller encodes the events again."""
        began = time.thread_time()
        self.watch.observe(events, encoded)
        self.observation_seconds = took = min(self.observation_seconds, time.thread_time() - began)
        decision = self.watch.decide(self.kernel.plan)
        unchanged = same_work(self.kernel.plan, decision.plan)
        self.pending = None
        if not unchanged and not self._pays_off(decision):
            self.pending = decision
            took = time.thread_time() - began  # the next observation will search again
        least = self.watch.policy.seconds_between
        self.pause = max(least, _PAUSE * took) if least else 0.0
        self.observed_at, self.pace_then = self.worked, 0.0
        if unchanged or self.pending is not None:
            return False
        self._switch(decision, encoded.first)
        return True

    def _pays_off(self, decision: Decision) -> bool:
        """Whether to switch now. A kernel that is not compiled has to wait until the old plan has wasted as much time
        as compilation takes, because the rest of the stream may be short."""
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
        while self.retained and self.retained[0].offsets[-1] < oldest:
            self.retained.popleft()

    def _oldest(self) -> int:
        """The offset of the oldest event that another plan needs."""
        return int(self.retained[-1].offsets[-1]) - self.reach


def stepper_for(prepared: Prepared, kernel: Kernel, expected: int | None, on_switch: OnSwitch = ignore) -> Stepper:
    """`expected` is the number of events; None if unknown."""
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
