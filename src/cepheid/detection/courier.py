"""Repeats requests whose answers do not come, up to a limit. It has no clock of its own: its callers say what time it
is."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from cepheid.acquire.intervals import BEGINNING, IntervalSet
from cepheid.acquire.requests import Answer, Request
from cepheid.detection.acquisition import Acquisition
from cepheid.io.event_log import keys_of


@dataclass(slots=True)
class _Outstanding:
    request: Request
    since: float
    """When it was sent, or last made progress."""
    attempts: int = 1
    complete: int = BEGINNING
    hole_since: float | None = None
    """Since when an answer is missing before a later one."""
    hole: int = BEGINNING
    """The first point that is missing before a later one."""
    hole_attempts: int = 0
    """How often that point was asked for again."""


@dataclass(slots=True)
class Courier:
    """The requests that are not answered yet. `timeout` is how long an answer may take, and `limit` how often a request
    is sent in all."""

    acquisition: Acquisition
    timeout: float
    limit: int = 5
    repeated: int = 0
    _outstanding: list[_Outstanding] = field(default_factory=list)

    def sent(self, requests: Iterable[Request], now: float) -> None:
        self._outstanding += [_Outstanding(request, now) for request in requests]

    @property
    def is_idle(self) -> bool:
        return not self._outstanding

    def heard(self, answers: Iterable[Answer], now: float) -> None:
        """Takes the answers that say that nothing has come. Their sources are alive, however long it takes until the
        next event says that there was none before it. An answer that goes on after others which have been lost says
        nothing: those are asked for again."""
        for answer in answers:
            if answer.complete >= answer.begin:
                continue
            for one in self._outstanding:
                request = one.request
                same = (request.source, request.stream, keys_of(request)) == (answer.source, answer.stream, answer.keys)
                if same and request.follow and request.begin <= answer.begin:
                    missing = self.acquisition.unanswered(request)
                    if missing and answer.begin <= missing.first:
                        one.since, one.attempts = now, 1

    def due(self, now: float) -> tuple[list[Request], list[Request]]:
        """The requests to send again, and those to give up."""
        again: list[Request] = []
        failed: list[Request] = []
        left: list[_Outstanding] = []
        for one in self._outstanding:
            missing = self.acquisition.unanswered(one.request)
            if not missing:
                continue
            left.append(one)
            complete = self.acquisition.channels[one.request.source, one.request.stream].complete
            if one.request.follow and complete > one.complete:
                one.complete, one.since, one.attempts = complete, now, 1
            hole = missing & IntervalSet(((BEGINNING, complete),)) if one.request.follow else missing
            if one.request.follow and hole:
                one.hole_since = now if one.hole_since is None else one.hole_since
                if now - one.hole_since >= self.timeout:
                    pulls = [replace(one.request, begin=begin, end=end, follow=False) for begin, end in hole.intervals]
                    if hole.first != one.hole:
                        one.hole, one.hole_attempts = hole.first, 0
                    if one.hole_attempts >= self.limit:  # the source is alive, but not for this part
                        failed.append(pulls.pop(0))
                    one.hole_attempts += 1
                    again += pulls
                    one.hole_since = now
            else:
                one.hole_since = None
            if now - one.since < self.timeout:
                continue
            if one.attempts >= self.limit:
                failed.append(one.request)
                left.pop()
                continue
            one.attempts, one.since = one.attempts + 1, now
            again.append(replace(one.request, begin=missing.first))
        self._outstanding = left
        self.repeated += len(again)
        return again, failed
