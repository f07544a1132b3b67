"""Chooses the plans of queries: sources describe themselves, their streams get models, and each query its plan, by
region where its events share one, and together with the other queries where they read the same streams."""

from __future__ import annotations

import itertools
import json
import math
import time
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from cepheid.acquire.choice import Choice, require_retention
from cepheid.acquire.cost import MODELS, CostModel, StreamModel
from cepheid.acquire.intervals import END
from cepheid.acquire.models import Model, Poisson, combined, from_data, to_data
from cepheid.acquire.plans import Plan, all_plans, naive, named_plan, plan_text
from cepheid.acquire.search import Candidate
from cepheid.acquire.sharing import Member, plan_together
from cepheid.acquire.tree import EventTree, streams
from cepheid.detection.channels import Address
from cepheid.detection.options import PUSH, DetectOptions, Link, length_text
from cepheid.detection.partials import Asked
from cepheid.detection.source_filter import SourceFilter, any_of, filters_of, regional_filters
from cepheid.engine.prepare import Prepared
from cepheid.engine.spread import spread
from cepheid.errors import InputProblem, SourceUnreachable, listing, shown
from cepheid.events import Clock
from cepheid.io.asked_source import Description, TypeDescription
from cepheid.io.decoding import united_schema
from cepheid.io.inputs import Columns
from cepheid.optimize.distribution import Keyed

MAX_LISTED = 20
"""The plans that an error lists."""


class Scope(NamedTuple):
    """A query in a region, or in all."""

    name: str
    region: str | None


Sources = Mapping[str, tuple[str, ...]]
Statistics = Mapping[Address, Model]
"""The model of each source and event type."""


@dataclass(frozen=True, slots=True)
class Planning:
    """What is known before plans are chosen."""

    bound: Mapping[str, tuple[Prepared, EventTree]]
    asked: Asked
    links: tuple[Link, ...]
    descriptions: tuple[Description, ...]
    clock: Clock
    known: Statistics
    options: DetectOptions

    def length(self, ticks: float) -> str:
        return length_text(ticks, self.clock)

    def model(self, description: Description, stream: str) -> Model:
        own = description.types[stream].model if stream in description.types else Poisson(_NEVER)
        return self.known.get((description.name, stream), own)

    def cells(self) -> dict[Address, float]:
        read = [stream for _, tree in self.bound.values() for stream in streams(tree.root)]
        return {
            (d.name, stream): self.model(d, stream).rate
            for d in self.descriptions
            for stream in dict.fromkeys((*d.types, *read))
        }

    def scopes(self) -> dict[Scope, Sources]:
        """The queries by region, each with the sources of its streams."""
        found: dict[Scope, Sources] = {}
        for name, (prepared, tree) in self.bound.items():
            pairs = list(zip(self.links, self.descriptions, strict=True))
            types = {kind for link, d in pairs for kind in d.types if may_have(link, d, kind)}
            missing = [stream for stream in streams(tree.root) if stream not in types]
            if missing:
                raise InputProblem(
                    f"no source has events of type {listing(missing)}", expected=f"some of {listing(sorted(types))}"
                )
            regions: list[str | None] = [None]
            if is_regional(prepared, self.asked):
                regions = list(dict.fromkeys(self.asked.regions.values()))
            for region in regions:
                found[Scope(name, region)] = {
                    stream: self._sources(stream, region, regional_filters(tree, self.asked.region))
                    for stream in streams(tree.root)
                }
        return found

    def _sources(self, stream: str, region: str | None, filters: Mapping[str, str]) -> tuple[str, ...]:
        """The sources of a stream in a region, without those whose region a condition of the query excludes."""
        found = []
        for link, description in zip(self.links, self.descriptions, strict=True):
            own = self.asked.regions.get(description.name)
            if not may_have(link, description, stream) or region not in (None, own):
                continue
            if own is None or stream not in filters or self._satisfies(own, stream, filters[stream]):
                found.append(description.name)
        return tuple(found)

    def _satisfies(self, region: str, stream: str, condition: str) -> bool:
        """Whether an event of a region satisfies a condition on its region."""
        columns = self.asked.columns
        given: dict[str, Any] = {self.asked.region: region, columns.type: stream, **dict.fromkeys(columns.times, 0)}
        fields = [field for field in self.asked.schema if field.name in given]
        arrays = [_value(given[field.name], field.type) for field in fields]
        event = pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))
        return bool(SourceFilter.of(stream, condition, self.asked).keep(event).num_rows)

    def member(self, scope: Scope, sources: Sources, cells: Mapping[Address, float]) -> Member:
        models = {stream: self._stream_model(stream, of) for stream, of in sources.items()}
        deadline = None if self.options.deadline is None else float(self.clock.ticks(self.options.deadline))
        return member(self.bound[scope.name][1], MODELS[self.options.model](models), sources, cells, deadline)

    def _stream_model(self, stream: str, sources: Sequence[str]) -> StreamModel:
        of = [
            (link, description)
            for link, description in zip(self.links, self.descriptions, strict=True)
            if description.name in sources
        ]
        if not of:
            return StreamModel(Poisson(_NEVER))
        return StreamModel(
            combined([self.model(d, stream) for _, d in of]),
            max(float(self.clock.ticks(link.latency)) for link, _ in of),
            min(math.inf if link.retention is None else self.clock.ticks(link.retention) for link, _ in of),
            max((d.types[stream].bytes for _, d in of if stream in d.types), default=0.0),
            _all_distinct(d.types[stream] for _, d in of if stream in d.types),
        )

    def choices(self, members: Mapping[Scope, Member]) -> tuple[dict[Scope, Choice], float]:
        """The plan of each, and the cost if each fetched its own events."""
        texts = {scope: self._named(scope) for scope in members}
        free = {f"{i}": member for i, (scope, member) in enumerate(members.items()) if texts[scope] is None}
        together = plan_together(free, self.options.search, self.length) if free else None
        found, separate = {}, 0.0 if together is None else together.separate
        for i, (scope, member) in enumerate(members.items()):
            text = texts[scope]
            if text is None:
                assert together is not None
                found[scope] = together.choices[f"{i}"]
            else:
                found[scope] = self._forced(member, text)
                separate += found[scope].chosen.cost
        return found, separate

    def _named(self, scope: Scope) -> str | None:
        plan = self.options.plan
        if isinstance(plan, Mapping):
            unknown = [name for name in plan if name not in self.bound]
            if unknown:
                raise InputProblem(
                    f"there is no query {listing(unknown)} to plan", expected=f"some of {listing(list(self.bound))}"
                )
            return plan.get(scope.name)
        if plan not in (None, PUSH) and len(self.bound) > 1:
            raise InputProblem(
                f"the plan `{shown(plan or '')}` is for one of several queries", expected=f"`{PUSH}`, or plans by name"
            )
        return plan

    def _forced(self, member: Member, text: str) -> Choice:
        root, costs = member.root, member.model
        plan = naive(root) if text == PUSH else named_plan(root, text)
        if plan is None:
            texts = [plan_text(root, one) for one in itertools.islice(all_plans(root), MAX_LISTED)]
            raise InputProblem(f"there is no plan `{shown(text)}`", expected=f"one of {listing(texts)}")
        require_retention(root, plan, costs, self.length)
        found = known_choice(member, plan)
        if member.deadline is not None and found.chosen.latency > member.deadline:
            raise InputProblem(
                f"the plan {plan_text(root, plan)} has a latency of {self.length(found.chosen.latency)}",
                expected=f"at most the deadline, {self.length(member.deadline)}",
            )
        return found


_NEVER = 1e-12
"""The rate of a stream without a source, or of which a source has had no event, per tick."""


def may_have(link: Link, description: Description, stream: str) -> bool:
    """Whether a source is asked for a type. One that goes on may have its first event of a type later."""
    if link.types is not None and stream not in link.types:
        return False
    return stream in description.types or description.complete < END


def _value(value: Any, kind: pa.DataType) -> pa.Array:
    """A column of one value; a moment is a number of its unit."""
    array = pa.array([value])
    return array.cast(pa.timestamp("us")).cast(kind, safe=False) if pa.types.is_timestamp(kind) else array.cast(kind)


def known_choice(member: Member, plan: Plan) -> Choice:
    """A plan that was not searched for."""
    root, costs = member.root, member.model
    pushed = naive(root)
    return Choice(Candidate(*costs.estimate(root, plan), plan), Candidate(*costs.estimate(root, pushed), pushed), (), 1)


def member(
    tree: EventTree, costs: CostModel, sources: Sources, cells: Mapping[Address, float], deadline: float | None = None
) -> Member:
    own: dict[str, dict[Hashable, float]] = {
        stream: {(source, stream): cells[source, stream] for source in sources[stream]} for stream in streams(tree.root)
    }
    return Member(tree.root, costs, deadline, own)


def is_regional(prepared: Prepared, asked: Asked) -> bool:
    """Whether all events of a match come from sources of one region."""
    if not asked.regions:
        return False
    divided = spread(prepared)
    return isinstance(divided, Keyed) and asked.region in divided.attributes and not divided.nulls_match


def filtered(link: Link, description: Description, trees: Sequence[EventTree], asked: Asked) -> Description:
    """What a source says of the events that any query asks for."""
    found = {}
    by_tree = [(streams(tree.root), filters_of(tree, asked, description.name)) for tree in trees]
    for stream in description.types:
        own = [filters.get(stream) for read, filters in by_tree if stream in read]
        condition = any_of(own) if own else None
        if condition is not None:
            found[stream] = condition
    return link.source.describe(found) if found else description


def _all_distinct(descriptions: Iterable[TypeDescription]) -> dict[str, int]:
    """The most values that an attribute has at a source."""
    found: dict[str, int] = {}
    for description in descriptions:
        for name, count in description.distinct.items():
            found[name] = max(found.get(name, 1), count)
    return found


def described(link: Link, options: DetectOptions) -> Description:
    """The description of a source. One that cannot be reached is tried again, up to the limit of requests."""
    for attempt in range(1, options.attempts + 1):
        try:
            return link.source.describe()
        except SourceUnreachable:
            if attempt == options.attempts:
                raise
            time.sleep(min(options.timeout, 0.2 * 2**attempt))
    raise AssertionError("attempts are positive")


def asked_of(links: Sequence[Link], descriptions: Sequence[Description], columns: Columns, region: str) -> Asked:
    """The events of all sources. Those of sources with a region have it in a column."""
    named = zip(links, descriptions, strict=True)
    schema = united_schema(((str(link), description.schema) for link, description in named), columns.reads)
    for name in (columns.type, columns.time):
        if name not in schema.names:
            raise InputProblem(f"the sources have no column `{shown(name)}`", expected=listing(schema.names))
    regions = {link.source.name: link.region for link in links if link.region is not None}
    added: frozenset[str] = frozenset()
    if regions and any(region not in d.schema.names for d in descriptions):
        added = frozenset({region})
        if region not in schema.names:
            schema = schema.append(pa.field(region, pa.string()))
    attributes: dict[str, dict[str, pa.DataType]] = {}
    for description in descriptions:
        for kind, known in description.types.items():
            attributes.setdefault(kind, {}).update(
                {name: schema.field(name).type for name in (*known.columns, *added) if name in schema.names}
            )
    held = {description.name: frozenset(description.schema.names) for description in descriptions}
    return Asked(schema, columns, attributes, added=added, held=held, regions=regions, region=region)


def statistics_text(descriptions: Sequence[Description]) -> str:
    """The statistics of sources as JSON."""
    data = {
        d.name: {
            kind: {"count": t.count, "first": t.first, "last": t.last, "bytes": t.bytes, **to_data(t.model)}
            for kind, t in d.types.items()
        }
        for d in descriptions
    }
    return json.dumps(data, indent=2) + "\n"


def read_statistics(path: str) -> Statistics:
    where = f"`{shown(path, 200)}`"
    try:
        data = json.loads(Path(path).read_text(encoding="utf-8"))
        return {(name, kind): from_data(model) for name, types in data.items() for kind, model in types.items()}
    except (OSError, UnicodeDecodeError) as problem:
        raise InputProblem(f"the statistics in {where} cannot be read: {problem}") from None
    except (ValueError, KeyError, TypeError, AttributeError) as problem:
        raise InputProblem(
            f"{where} has no statistics of sources: {problem}", expected="the output of `cepheid source stats`"
        ) from None
