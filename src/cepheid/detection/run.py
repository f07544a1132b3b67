"""Runs a detection: asks sources, takes their answers as they come, and yields matches."""

from __future__ import annotations

import math
import queue
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from cepheid.acquire.drift import Observed
from cepheid.acquire.intervals import END
from cepheid.acquire.plans import plan_text
from cepheid.acquire.requests import Answer, Gap, Request
from cepheid.detection.acquisition import Acquisition, Counts, Round
from cepheid.detection.courier import Courier
from cepheid.detection.detector import UNCERTAIN
from cepheid.detection.options import HOLD
from cepheid.detection.planned import Detection
from cepheid.detection.saved import SavedDetection, SavedPart
from cepheid.io.asked_source import Failure
from cepheid.lang import to_text


@dataclass(frozen=True, slots=True)
class PlanSwitch:
    """A change of the plan, at a time of the frontier."""

    at: int
    before: str
    after: str
    reason: str

    def __str__(self) -> str:
        return f"the plan {self.before} became {self.after} at {self.at}: {self.reason}"


@dataclass(slots=True)
class Running:
    """A detection that runs: it asks, takes answers as they come, and yields matches."""

    detection: Detection
    acquisition: Acquisition = field(init=False)
    gaps: list[Gap] = field(default_factory=list)
    held: int = 0
    """Matches that were held back, because a gap could change them."""
    switches: list[PlanSwitch] = field(default_factory=list)
    """Changes of the plan."""
    offset: int = 0
    """How many bytes of output there are. The writer updates it before it reads the next matches."""
    before_save: Callable[[], None] | None = None
    """Called before the state is saved: what must be on disk before it."""
    _first: Round | None = None
    _saved: float = -math.inf
    """When the state was saved."""
    _compared: float = field(default_factory=time.monotonic)
    """When rates were compared with those expected."""
    _arrived: queue.SimpleQueue[Answer | Failure] = field(default_factory=queue.SimpleQueue)
    _reasons: dict[int, str] = field(default_factory=dict)
    """Why the last attempt of a request failed."""

    def __post_init__(self) -> None:
        saved = self.detection.saved
        if saved is None:
            self.acquisition = Acquisition(self.detection.programs)
        else:
            self.acquisition, self._first = Acquisition.restore(self.detection.programs, saved.acquisition)
            self.gaps, self.offset = list(saved.gaps), saved.offset

    @property
    def schemas(self) -> dict[str, pa.Schema]:
        """The columns of the matches of each query."""
        detectors = zip(self.detection.parts, self.acquisition.detectors, strict=True)
        return {part.name: detector.schema for part, detector in detectors}

    @property
    def schema(self) -> pa.Schema:
        """The columns of the matches of the only query."""
        (schema,) = self.schemas.values()
        return schema

    @property
    def counts(self) -> Counts:
        return self.acquisition.counts

    def matches(self, until: int = END, wall_limit: float | None = None) -> Iterator[pa.Table]:
        """The matches of the only query, as they are detected."""
        for found in self.named_matches(until, wall_limit):
            (table,) = found.values()
            yield table

    def named_matches(self, until: int = END, wall_limit: float | None = None) -> Iterator[dict[str, pa.Table]]:
        """The matches of each query as they are detected, until the sources have ended, the frontier has passed a time,
        or so many seconds are over. All tables may be empty: then there are new gaps."""
        options = self.detection.options
        courier = Courier(self.acquisition, options.timeout, options.attempts)
        stop = None if wall_limit is None else time.monotonic() + wall_limit
        result = self._sent(self._first or self.acquisition.start(), courier)
        try:
            while True:
                shown_matches = self._shown(result.matches)
                self.gaps += result.gaps
                if result.gaps or any(table.num_rows for table in shown_matches.values()):
                    yield shown_matches
                if courier.is_idle or self.acquisition.frontier >= until:
                    self._save()
                    return
                if stop is not None and time.monotonic() >= stop:
                    self._save()
                    return
                if time.monotonic() - self._saved >= options.save_every:
                    self._save()
                changed = self._adapted()
                if changed is not None:
                    courier = Courier(self.acquisition, options.timeout, options.attempts)
                    result = self._sent(changed, courier)
                else:
                    result = self._next(courier, stop)
        finally:
            for link in self.detection.links.values():
                link.source.close()

    def _adapted(self) -> Round | None:
        """Changes plans if the rates have drifted. What is known stays known, and what was asked for and not
        answered is asked for again where the new plans want it."""
        every, now = self.detection.options.adapt_every, time.monotonic()
        if every is None or now - self._compared < every:
            return None
        self._compared = now
        adapted = self.detection.adapted(self.acquisition.observed())
        for channel in self.acquisition.channels.values():
            channel.observed = Observed()
        if adapted is None:
            return None
        before = self.detection.parts
        self.detection, reason = adapted
        for old, new in zip(before, self.detection.parts, strict=True):
            if old.program.plan != new.program.plan:
                root = new.program.tree.root
                was, becomes = (plan_text(root, part.program.plan) for part in (old, new))
                self.switches.append(PlanSwitch(self.acquisition.frontier, was, becomes, reason))
        last = self.acquisition.last_request
        self.acquisition, result = self.acquisition.switched(self.detection.programs)
        for link in self.detection.links.values():
            link.source.cancel(last)
        return result

    def _shown(self, matches: Sequence[pa.Table]) -> dict[str, pa.Table]:
        """The matches by query, those of its regions together."""
        found: dict[str, list[pa.Table]] = {}
        for part, table in zip(self.detection.parts, matches, strict=True):
            found.setdefault(part.name, []).append(self._certain(table))
        return {name: pa.concat_tables(tables) for name, tables in found.items()}

    def _certain(self, matches: pa.Table) -> pa.Table:
        if self.detection.options.gaps != HOLD or not matches.num_rows:
            return matches
        certain = matches.filter(pc.invert(matches.column(UNCERTAIN)))
        self.held += matches.num_rows - certain.num_rows
        return certain

    def _save(self) -> None:
        """Saves the state after matches and gaps have been taken by the reader."""
        detection = self.detection
        if detection.options.state is None:
            return
        if self.before_save is not None:
            self.before_save()
        SavedDetection(
            {name: to_text(query) for name, query in detection.queries.items()},
            tuple(SavedPart(part.name, part.region, part.program.plan) for part in detection.parts),
            detection.descriptions,
            tuple(self.gaps),
            self.offset,
            self.acquisition.save(),
        ).write(detection.options.state)
        self._saved = time.monotonic()

    def _sent(self, result: Round, courier: Courier) -> Round:
        self._send(result.requests)
        courier.sent(result.requests, time.monotonic())
        return result

    def _send(self, requests: Sequence[Request]) -> None:
        for request in requests:
            self.detection.links[request.source].source.ask(request, self._arrived.put)

    def _next(self, courier: Courier, stop: float | None) -> Round:
        """The next round: with the answers that have come, or after a time without any."""
        wait = self.detection.options.timeout / 4
        if stop is not None:
            wait = max(min(wait, stop - time.monotonic()), 0.001)
        answers: list[Answer] = []
        failures: list[Failure] = []
        try:
            item = self._arrived.get(timeout=wait)
            while True:
                (answers if isinstance(item, Answer) else failures).append(item)  # type: ignore[arg-type]
                item = self._arrived.get_nowait()
        except queue.Empty:
            """No more answers have come."""
        result = self.acquisition.receive(answers)
        courier.heard(answers, time.monotonic())
        again, failed = courier.due(time.monotonic())
        self._send(again)
        reasons = {failure.request.number: failure.reason for failure in failures}
        self._reasons.update(reasons)
        for request in failed:
            refused = self.acquisition.refused.get((request.source, request.stream), "no answer")
            given_up = self.acquisition.give_up(request, self._reasons.get(request.number, refused))
            result = Round(
                [*result.requests, *given_up.requests],
                [pa.concat_tables(own) for own in zip(result.matches, given_up.matches, strict=True)],
                [*result.gaps, *given_up.gaps],
            )
        return self._sent(result, courier)
