"""Figure 5(e) of plan-based CED (§6.4): two complex events with a common subevent, in memory.

Both are `and`s of two `and`s, of which one is common: six primitive events, two of them common. The rates of the two
vary. The base fetches an event once for both. `apart` has the plan that is best for each event alone, `together` those
of Algorithm 2."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from bench.ced_figures import UNIT, Event, fetched, measured, share_report
from bench.report import Benchmark, Report
from cepheid.acquire.choice import choose
from cepheid.acquire.cost import CoverageModel
from cepheid.acquire.plans import Plan
from cepheid.acquire.search import SearchOptions
from cepheid.acquire.sharing import Member, plan_together, total_cost

OWN = 0.4
"""The rate of each event that is not common, per window."""
_DP = SearchOptions("dp")
Plans = Mapping[str, Plan]


@dataclass(frozen=True, slots=True)
class Pair:
    """Two complex events over the same streams."""

    events: Mapping[str, Event]

    @classmethod
    def of(cls, shared: float) -> Pair:
        def text(*own: str) -> str:
            return f"and(and(E1, E2; {UNIT}), and({', '.join(own)}; {UNIT}); {UNIT})"

        rates = [shared, shared, OWN, OWN, OWN, OWN]
        return cls({"one": Event.of(text("E3", "E4"), rates), "two": Event.of(text("E5", "E6"), rates)})

    @property
    def rates(self) -> Mapping[str, float]:
        return self.events["one"].rates

    def streams(self, seed: int, count: int) -> dict[str, np.ndarray]:
        return self.events["one"].streams(seed, count)

    def _model(self) -> CoverageModel:
        costs = self.events["one"].costs()
        assert isinstance(costs, CoverageModel)
        return costs

    def plans(self) -> dict[str, Plans]:
        costs, roots = self._model(), {name: event.tree.root for name, event in self.events.items()}
        apart = {name: choose(root, costs, _DP).chosen.plan for name, root in roots.items()}
        return {"apart": apart, "together": plan_together(self._members(), _DP).plans}

    def _members(self) -> dict[str, Member]:
        return {name: Member(event.tree.root, self._model()) for name, event in self.events.items()}

    def expected(self, plans: Plans) -> float:
        members = self._members()
        return total_cost(members, {name: member.fetched(plans[name]) for name, member in members.items()})

    def fetched(self, plans: Plans, streams: Mapping[str, np.ndarray]) -> tuple[int, int]:
        """The matches of both, and the events that they fetch."""
        return fetched([(event, plans[name]) for name, event in self.events.items()], streams)

    def least(self, streams: Mapping[str, np.ndarray]) -> int:
        """At least what the event with more events in matches needs."""
        return max(event.least(streams) for event in self.events.values())


def sharing(quick: bool) -> Report:
    samples = []
    for shared in (0.2, 0.5) if quick else (0.1, 0.2, 0.3, 0.4, 0.45, 0.5, 0.6, 0.8, 1.6):
        pair = Pair.of(shared)
        samples += measured(shared, lambda _, pair=pair: pair, lambda pair, _: pair.plans(), quick)  # type: ignore[misc]
    return share_report(
        "ced-5e",
        "two events with a common subevent: events fetched by the rate of the common one",
        "rate of the common events (others 0.4)",
        samples,
        "sharing helps where the common subevent is as frequent as the others or slightly more, and is then acquired "
        "first (§6.4).",
        log_x=True,
    )


BENCHMARKS = (Benchmark("ced-5e", "CED figure 5(e): a common subevent of two events", sharing),)
