"""A detection: queries, their sources, and the plans that were chosen for them."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace

from cepheid.acquire.choice import Choice
from cepheid.acquire.cost import MODELS, CostModel, StreamModel
from cepheid.acquire.describe import Rate, explained, shared
from cepheid.acquire.drift import WORTHWHILE, Drift, Observed, drifts, with_drifts
from cepheid.acquire.models import Poisson
from cepheid.acquire.plans import plan_text
from cepheid.acquire.sharing import Member, fetched_by_any, plan_together, total_cost
from cepheid.detection.channels import Address
from cepheid.detection.options import DetectOptions, Link, length_text, rate_unit
from cepheid.detection.partials import REGION
from cepheid.detection.planning import Planning, asked_of, described, filtered, known_choice, member, read_statistics
from cepheid.detection.program import Program, bound_tree
from cepheid.detection.saved import SavedDetection
from cepheid.engine.prepare import RunOptions
from cepheid.engine.query_text import QueryText
from cepheid.errors import InputProblem, listing, shown
from cepheid.events import Clock
from cepheid.explanation import Explained
from cepheid.io.asked_source import Description
from cepheid.io.inputs import Columns
from cepheid.lang import to_text
from cepheid.pattern import Query
from cepheid.rendering import FORMATS

NO_TEXTS: Mapping[str, QueryText] = {}


@dataclass(frozen=True, slots=True)
class Part:
    """The plan of a query for one region, or for all."""

    name: str
    """That of the query."""
    region: str | None
    query: Query
    program: Program
    choice: Choice
    costs: CostModel

    @property
    def label(self) -> str:
        return self.name if self.region is None else f"{self.name} in {self.region}"


@dataclass(frozen=True, slots=True)
class Detection:
    """Queries, their sources, and the plans that were chosen."""

    queries: Mapping[str, Query]
    links: Mapping[str, Link]
    parts: tuple[Part, ...]
    cells: Mapping[Address, float]
    """The events per tick of each stream of each source."""
    separate: float
    """The expected events per tick if each plan fetched its own."""
    clock: Clock
    options: DetectOptions
    descriptions: tuple[Description, ...]
    run_options: RunOptions
    saved: SavedDetection | None = None

    @classmethod
    def of(
        cls,
        queries: Mapping[str, Query],
        links: Sequence[Link],
        columns: Columns,
        options: DetectOptions,
        run_options: RunOptions,
        statistics: str | None = None,
        region: str = REGION,
        texts: Mapping[str, QueryText] = NO_TEXTS,
    ) -> Detection:
        """Chooses plans, or takes those of the saved state. `statistics` is a file with models of the streams; by
        default the sources are asked for them. `region` is the column with the region of a source, and
        `texts` are those of the queries, for errors."""
        if not queries:
            raise InputProblem("there are no queries", expected="at least one")
        saved = None if options.state is None else SavedDetection.read(options.state)
        if saved is None:
            descriptions = [described(link, options) for link in links]
        else:
            saved.require(
                {name: to_text(query) for name, query in queries.items()},
                [link.source.name for link in links],
                options.state or "",
            )
            descriptions = list(saved.descriptions)
        asked = asked_of(links, descriptions, columns, region)
        bound = {}
        for name, query in queries.items():
            with texts[name].located_errors() if name in texts else nullcontext():
                bound[name] = bound_tree(query, asked, run_options)
        clock = next(iter(bound.values()))[0].clock
        if saved is None:
            trees = [tree for _, tree in bound.values()]
            descriptions = [
                filtered(link, description, trees, asked) for link, description in zip(links, descriptions, strict=True)
            ]
        known = {} if statistics is None else read_statistics(statistics)
        planning = Planning(bound, asked, tuple(links), tuple(descriptions), clock, known, options)
        cells, scopes = planning.cells(), planning.scopes()
        members = {scope: planning.member(scope, scopes[scope], cells) for scope in scopes}
        if saved is None:
            choices, separate = planning.choices(members)
        else:
            saved.require_parts(list(scopes), options.state or "")
            choices = {
                scope: known_choice(members[scope], part.plan) for scope, part in zip(scopes, saved.parts, strict=True)
            }
            separate = sum(choice.chosen.cost for choice in choices.values())
        parts = []
        for scope, sources in scopes.items():
            prepared, tree = bound[scope.name]
            program = Program.of(prepared, tree, choices[scope].chosen.plan, asked, sources, run_options)
            query, costs = queries[scope.name], members[scope].model
            parts.append(Part(scope.name, scope.region, query, program, choices[scope], costs))
        by_name = {link.source.name: link for link in links}
        return cls(
            queries, by_name, tuple(parts), cells, separate, clock, options, tuple(descriptions), run_options, saved
        )

    @property
    def programs(self) -> list[Program]:
        return [part.program for part in self.parts]

    @property
    def only(self) -> Part:
        """The part of one query that has one."""
        (part,) = self.parts
        return part

    def explain(self, format: str = "text") -> Explained:
        """The plans, step by step."""
        render = FORMATS.get(format)
        if render is None:
            raise InputProblem(f"no format `{shown(format)}`", expected=f"one of {listing(FORMATS)}")
        per, unit = rate_unit(self.clock)

        def rate(events: float) -> str:
            return f"{events * per:,.4g}/{unit}"

        def length(ticks: float) -> str:
            return length_text(ticks, self.clock)

        found = [
            explained(part.program.tree.root, part.choice, part.costs, to_text(part.query), rate, length)
            for part in self.parts
        ]
        if len(found) == 1:
            return Explained.of(render(found[0]), found[0])
        members = self._members()
        plans = {part.label: part.program.plan for part in self.parts}
        shares = {label: member.fetched(plans[label]) for label, member in members.items()}
        whole = shared(
            [(part.label, one) for part, one in zip(self.parts, found, strict=True)],
            total_cost(members, shares),
            self.separate,
            sum(self.cells[address] for address in self.cells if any(address in own for own in shares.values())),
            self._streams(shares, rate),
            rate,
        )
        return Explained.of(render(whole), whole)

    def _streams(self, shares: Mapping[str, Mapping[Hashable, float]], rate: Rate) -> list[str]:
        """The streams that several plans read: the share that each fetches, and that of all together."""
        together, lines = fetched_by_any(shares), []
        for address, events in self.cells.items():
            readers = {label: own[address] for label, own in shares.items() if address in own}
            if len(readers) > 1:
                source, stream = address
                parts = ", ".join(f"{label} {share:.1%}" for label, share in readers.items())
                lines.append(f"{stream} of {source}: {parts}; {together[address]:.1%} of {rate(events)} events in all")
        return lines

    def _members(self) -> dict[str, Member]:
        return {
            part.label: member(part.program.tree, part.costs, part.program.sources, self.cells) for part in self.parts
        }

    def adapted(self, observed: Mapping[Address, tuple[str | None, Observed]]) -> tuple[Detection, str] | None:
        """The detection with plans that cost less at the rates that were observed, and the reason; None: the plans
        stay. A plan that the user has named stays."""
        if self.options.plan is not None:
            return None
        found: dict[str, list[Drift]] = {
            part.label: drifts(part.costs.streams, _of(part, observed)) for part in self.parts
        }
        if not any(found.values()):
            return None
        costs = {
            part.label: MODELS[self.options.model](with_drifts(part.costs.streams, found[part.label]))
            for part in self.parts
        }
        cells = self._drifted(observed)
        members = {
            part.label: member(part.program.tree, costs[part.label], part.program.sources, cells, self._deadline)
            for part in self.parts
        }
        try:
            together = plan_together(members, self.options.search, lambda ticks: length_text(ticks, self.clock))
        except InputProblem:
            return None  # no plan meets the deadline; this one is as good as any
        before = {part.label: part.program.plan for part in self.parts}
        known = total_cost(members, {label: member.fetched(before[label]) for label, member in members.items()})
        if together.plans == before or together.cost > WORTHWHILE * known:
            return None
        per, unit = rate_unit(self.clock)
        drifted = {d.stream: d for own in found.values() for d in own}.values()
        rates = [f"{d.stream} {d.rate * per:,.4g}/{unit} instead of {d.expected * per:,.4g}" for d in drifted]
        saved = f"{1 - together.cost / known:.0%}" if known else "all"
        changed = [part for part in self.parts if together.plans[part.label] != before[part.label]]
        texts = [plan_text(part.program.tree.root, together.plans[part.label]) for part in changed]
        verb = "moves" if len(texts) == 1 else "move"
        reason = f"rates have changed ({', '.join(rates)}): {' and '.join(texts)} {verb} {saved} fewer events"
        parts = tuple(self._with(part, together.choices[part.label], costs[part.label]) for part in self.parts)
        return replace(self, parts=parts, cells=cells, separate=together.separate), reason

    def _with(self, part: Part, choice: Choice, costs: CostModel) -> Part:
        known, plan = part.program, choice.chosen.plan
        program = Program.of(known.prepared, known.tree, plan, known.asked, known.sources, self.run_options)
        return replace(part, program=program, choice=choice, costs=costs)

    @property
    def _deadline(self) -> float | None:
        return None if self.options.deadline is None else float(self.clock.ticks(self.options.deadline))

    def _drifted(self, observed: Mapping[Address, tuple[str | None, Observed]]) -> dict[Address, float]:
        """The rates of the cells, with those that were observed long enough."""
        cells = dict(self.cells)
        for address, (attribute, seen) in observed.items():
            one = {address[1]: StreamModel(Poisson(cells[address]))}
            distinct = next(
                (p.costs.streams[address[1]].distinct for p in self.parts if address[1] in p.costs.streams), {}
            )
            for drift in drifts(one, {address[1]: [_of_all_keys(seen, attribute, distinct)]}):
                cells[address] = drift.rate
        return cells


def _of(part: Part, observed: Mapping[Address, tuple[str | None, Observed]]) -> dict[str, list[Observed]]:
    """The observations of the streams of a part, by source."""
    found = {}
    for stream in part.program.streams:
        distinct = part.costs.streams[stream].distinct
        own = [observed[source, stream] for source in part.program.sources[stream]]
        found[stream] = [_of_all_keys(seen, attribute, distinct) for attribute, seen in own]
    return found


def _of_all_keys(seen: Observed, attribute: str | None, distinct: Mapping[str, int]) -> Observed:
    """An observation of single keys as that of the stream: of one of ten keys, a tenth of the time."""
    return seen if attribute is None else Observed(seen.events, seen.ticks // distinct.get(attribute, 1))
