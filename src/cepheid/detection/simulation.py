"""Simulates sources behind a network: a clock in ticks, random delays, lost and repeated messages, restarts of the
base. Everything is drawn from one seed, so that a run can be repeated."""

from __future__ import annotations

import heapq
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from cepheid.acquire.intervals import END
from cepheid.acquire.requests import Answer, Gap, Request
from cepheid.detection.acquisition import Acquisition, Passing, Round
from cepheid.detection.courier import Courier
from cepheid.detection.program import Program
from cepheid.io.event_log import EventLog


@dataclass(frozen=True, slots=True)
class Network:
    """Delays between these bounds, one way; shares of lost and repeated messages."""

    least: int = 0
    most: int = 0
    loss: float = 0.0
    repeats: float = 0.0


@dataclass(frozen=True, slots=True)
class Detected:
    """A round of the base in which matches were output, at a time of the simulated clock."""

    now: int
    matches: list[pa.Table]
    """Those of each program."""


@dataclass(slots=True)
class Simulation:
    """A base and its sources. `beat` is how often a subscribed source reports that nothing happened. `restarts` are
    times at which the base is restarted from its saved state; messages that are under way then are lost."""

    programs: Sequence[Program]
    logs: Mapping[str, EventLog]
    network: Network
    seed: int = 0
    beat: int = 10
    restarts: tuple[int, ...] = ()
    switches: tuple[tuple[int, Sequence[Program]], ...] = ()
    """Times at which the base changes to other plans."""
    limit: int = 30
    passes: bool = False
    """Whether events pass in place of matches."""
    acquisition: Acquisition = field(init=False)
    detected: list[Detected] = field(default_factory=list)
    gaps: list[Gap] = field(default_factory=list)
    messages: int = 0
    _queue: list[tuple[int, int, str, Any]] = field(default_factory=list)
    _order: int = 0
    _life: int = 0
    _void: int = 0
    """Requests up to this number are cancelled."""
    _last: int = 0
    _rng: random.Random = field(default_factory=random.Random)
    _courier: Courier = field(init=False)

    def run(self) -> list[pa.Table]:
        """All matches of each program, in the order in which they were detected."""
        rng = random.Random(self.seed)
        ends = [int(s.times[-1]) for log in self.logs.values() for s in log.streams.values() if len(s.times)]
        last = max(ends, default=0)
        begin = min(
            [int(s.times[0]) for log in self.logs.values() for s in log.streams.values() if len(s.times)] or [0]
        )
        self.acquisition = Acquisition(self.programs)
        self.acquisition.passing = Passing() if self.passes else None
        timeout = 2 * self.network.most + 2 * self.beat + 2
        self._last, self._rng = last, rng
        self._courier = Courier(self.acquisition, timeout, self.limit)
        self._take(self.acquisition.start(), begin)
        for time in self.restarts:
            self._push(time, "restart", None)
        for time, programs in self.switches:
            self._push(time, "switch", programs)
        self._push(begin + timeout, "check", 0)
        while self._queue:
            now, _, kind, item = heapq.heappop(self._queue)
            match kind:
                case "request":
                    self._answer(item, now)
                case "push":
                    life, request, begin = item
                    self._pushed(life, request, begin, now)
                case "answer":
                    life, answer = item
                    if life == self._life:
                        self._take(self.acquisition.receive([answer]), now)
                case "restart":
                    self._life += 1
                    passing = self.acquisition.passing
                    self.acquisition, result = Acquisition.restore(self.programs, self.acquisition.save())
                    self.acquisition.passing = passing
                    self._courier = Courier(self.acquisition, timeout, self.limit)
                    self._take(result, now)
                    self._push(now + timeout, "check", self._life)
                case "switch":
                    self.programs, self._void = item, self.acquisition.last_request
                    self.acquisition, result = self.acquisition.switched(item)
                    self._courier = Courier(self.acquisition, timeout, self.limit)
                    self._take(result, now)
                case "check" if item == self._life:
                    again, failed = self._courier.due(now)
                    self._send(again, now)
                    for request in failed:
                        self._take(self.acquisition.give_up(request, "no answer"), now)
                    if not self._courier.is_idle:
                        self._push(now + timeout, "check", self._life)
        return [
            pa.concat_tables([detector.schema.empty_table(), *(one.matches[number] for one in self.detected)])
            for number, detector in enumerate(self.acquisition.detectors)
        ]

    def _push(self, time: int, kind: str, item: Any) -> None:
        self._order += 1
        heapq.heappush(self._queue, (time, self._order, kind, item))

    def _deliver(self, now: int, kind: str, item: Any) -> None:
        """A message: it may be lost, and it may come twice."""
        self.messages += 1
        copies = 0 if self._rng.random() < self.network.loss else 1 + (self._rng.random() < self.network.repeats)
        for _ in range(copies):
            self._push(now + self._rng.randint(self.network.least, self.network.most), kind, item)

    def _send(self, requests: list[Request], now: int) -> None:
        for request in requests:
            self._deliver(now, "request", (self._life, request))

    def _take(self, result: Round, now: int) -> None:
        if any(table.num_rows for table in result.matches):
            self.detected.append(Detected(now, result.matches))
        self.gaps += result.gaps
        self._courier.sent(result.requests, now)
        self._send(result.requests, now)

    def _now(self, now: int) -> int:
        """Once all events have occurred, sources say so."""
        return END if now > self._last else now

    def _answer(self, item: tuple[int, Request], now: int) -> None:
        life, request = item
        log = self.logs[request.source]
        answer = log.answer(request, request.begin, self._now(now))
        self._deliver(now, "answer", (life, answer))
        if request.follow and answer.complete < request.end:
            self._schedule(life, request, answer)

    def _schedule(self, life: int, request: Request, answer: Answer) -> None:
        """The next message of a subscription: at the next event, or to say that there was none."""
        times = self.logs[request.source].streams[request.stream].times
        begin = max(answer.complete + 1, request.begin)
        index = int(np.searchsorted(times, begin, "left"))
        following = int(times[index]) if index < len(times) else END
        time = min(following, begin + self.beat, request.end)
        self._push(max(time, begin), "push", (life, request, begin))

    def _pushed(self, life: int, request: Request, begin: int, now: int) -> None:
        if life != self._life or request.number <= self._void:
            return  # the connection is gone, or the subscription is cancelled
        answer = self.logs[request.source].answer(request, begin, self._now(now), pushed=True)
        self._deliver(now, "answer", (life, answer))
        if answer.complete < request.end:
            self._schedule(life, request, answer)
