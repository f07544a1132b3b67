"""The versions of a stream whose queries change while it runs.

A change takes effect between two batches. The checkpoint stores the number of the first batch of each version that a
batch may still need, so that a batch that is repeated after a crash has the queries that it had before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from cepheid.deploy.changes import Change, changed, difference, refusal
from cepheid.deploy.deployment import Written
from cepheid.deploy.folder import linked
from cepheid.errors import CepheidError, InputProblem, NotAvailable, shown
from cepheid.streaming.plan import FIRST, ONE_BUCKET, Entry, Lineage, StreamPlan
from cepheid.streaming.planning import StreamOptions, StreamSource, plan_queries


@dataclass(frozen=True, slots=True)
class SavedVersion:
    """A version as the checkpoint stores it."""

    first_batch: int
    lineage: Lineage
    entries: tuple[Entry, ...]

    @classmethod
    def of(cls, plan: StreamPlan, first_batch: int) -> SavedVersion:
        return cls(
            first_batch, Lineage(plan.keys, plan.version, plan.fingerprint(), plan.slots, plan.moved), plan.entries
        )

    def to_data(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def of_data(cls, data: Mapping[str, Any]) -> SavedVersion:
        lineage = data["lineage"]
        keys = tuple(tuple(key) for key in lineage["keys"])
        entries = tuple(Entry(**entry) for entry in data["entries"])
        slots, moved = lineage.get("slots", 1), lineage.get("moved", 0)
        known = Lineage(keys, lineage["version"], lineage["identity"], slots, moved)
        return cls(data["first_batch"], known, entries)

    @property
    def queries(self) -> dict[str, Written]:
        return {entry.name: entry.written for entry in self.entries}

    @property
    def uses(self) -> dict[str, Sequence[str]]:
        """The other queries that each one uses."""
        return {entry.name: entry.uses for entry in self.entries}


@dataclass(frozen=True, slots=True)
class Planner:
    """Plans the versions of a stream."""

    source: StreamSource
    options: StreamOptions

    @property
    def known_types(self) -> tuple[str, ...] | None:
        """The event types of the input, if they are known: another name may be that of a query."""
        return self.source.seen

    def plan(
        self, queries: Mapping[str, Written], lineage: Lineage = FIRST, *, is_several: bool = True
    ) -> tuple[StreamPlan, Mapping[str, CepheidError]]:
        """The plan of some queries, and those that are refused, each with the reason."""
        refused: Mapping[str, CepheidError] = {}
        if is_several and self.known_types is not None:
            queries, refused = linked(queries, self.known_types)
            if not queries:
                raise next(iter(refused.values()))
        plan, more = plan_queries(queries, self.source, self.options, is_several=is_several, lineage=lineage)
        return plan, {**refused, **more}

    def started(
        self, queries: Mapping[str, Written], saved: Sequence[SavedVersion]
    ) -> tuple[list[tuple[int, StreamPlan]], Mapping[str, CepheidError]]:
        """The plans of a stream at its start, and the queries that are refused. A checkpoint with the same queries goes
        on with its versions."""
        if saved and not difference(saved[-1].queries, queries):
            return self.resumed(saved), {}
        plan, refused = self.plan(queries)
        return [(0, plan)], refused

    def resumed(self, saved: Sequence[SavedVersion]) -> list[tuple[int, StreamPlan]]:
        """The plans of saved versions, each with its first batch."""
        return [(one.first_batch, _whole(self.plan(one.queries, one.lineage))) for one in saved]

    def changed(self, before: StreamPlan, change: Change) -> StreamPlan:
        """The version after a change. Raises if the change is refused."""
        queries = {entry.name: entry.written for entry in before.entries}
        lineage = before.next_lineage
        if change.move:
            return self._moved(before, change, queries, replace(lineage, moved=lineage.version))
        uses = {entry.name: entry.uses for entry in before.entries}
        return _whole(self.plan(changed(queries, change, lineage.version, self.known_types, uses), lineage))

    def _moved(self, before: StreamPlan, change: Change, queries: dict[str, Written], lineage: Lineage) -> StreamPlan:
        """Equal queries move together."""
        for name, slot in change.move.items():
            query = next((query for query in before.queries if name in query.all_names), None)
            if name in queries and (query is None or query.key != ONE_BUCKET):
                raise NotAvailable(
                    f"moving the query `{shown(name)}`: only one without a key, in no family, has a place of its own"
                )
            if not 0 <= slot < before.buckets:
                raise InputProblem(
                    f"there is no slot {slot} for the query `{shown(name)}`", expected=f"0 to {before.buckets - 1}"
                )
            for other in [] if query is None else query.all_names:
                queries[other] = replace(queries[other], slot=slot)
        return _whole(self.plan(changed(queries, change, lineage.version, self.known_types), lineage))


def _whole(planned: tuple[StreamPlan, Mapping[str, CepheidError]]) -> StreamPlan:
    plan, refused = planned
    for name, error in refused.items():
        raise refusal(name, error)
    return plan
