"""Each event in at most one match (CED §3.3, a restrictive consumption policy): of the matches in the order of their
ends, starts and events (see `match_order`), those whose events are in none before."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from cepheid.engine.first_matches import Candidate, candidates, positions_of
from cepheid.engine.positions import Binding, intervals
from cepheid.engine.prepare import Prepared
from cepheid.engine.stepping import Stepper
from cepheid.errors import NotAvailable
from cepheid.io.rows import Rows
from cepheid.runtime.kernel import END_OF_TIME, Array, Positions


@dataclass(slots=True)
class Consuming:
    """Matches that wait until no earlier one can come, and the events that are used up."""

    steps: tuple[str, ...]
    order: tuple[int, ...]
    """The steps in the order of the pattern's variables."""
    waiting: list[Candidate] = field(default_factory=list)
    used: set[int] = field(default_factory=set)

    @classmethod
    def of(cls, steps: tuple[str, ...], binding: Binding) -> Consuming:
        return cls(steps, tuple(steps.index(var) for var in binding.variables if var in steps))

    def output(
        self, stepper: Stepper, found: Iterable[Positions], rows: Rows
    ) -> Iterator[tuple[Positions, Array, Array]]:
        """The matches of a kernel that consume their events, with their starts and ends."""
        latest = -END_OF_TIME
        for positions in found:
            if not len(positions):
                continue
            start, end = intervals(positions, rows)
            for candidate in candidates(positions, start, end, self.order):
                heapq.heappush(self.waiting, candidate)
            latest = int(end[-1])
            yield from self._ready(stepper.later_matches_end_at(latest))
            waiting = self.oldest()
            oldest = stepper.oldest if waiting is None else min(stepper.oldest, waiting)
            self.used = {event for event in self.used if event >= oldest}
        yield from self._ready(END_OF_TIME + 1)

    def _ready(self, before: int) -> Iterator[tuple[Positions, Array, Array]]:
        chosen = []
        while self.waiting and self.waiting[0][0] < before:
            match = heapq.heappop(self.waiting)
            if self.used.isdisjoint(match[2]):
                self.used.update(match[2])
                chosen.append(match)
        if chosen:
            yield positions_of(chosen, self.steps)

    def oldest(self) -> int | None:
        """The first event of the matches that wait."""
        return min((min(match[2]) for match in self.waiting), default=None)


def require_whole(prepared: Prepared, where: str) -> None:
    """Refuses a query whose result is decided over all of its matches, where they are not in one place."""
    if prepared.query.consumes:
        raise NotAvailable(
            f"`consume once` {where}",
            expected="`cepheid.match` in one process, or a complex event that another one uses",
            hint="complex Q on P as p event p, after `complex P ... consume once`",
        )
