"""Detects events across sources that can be asked: asks them to describe themselves, chooses a plan, and runs it."""

from __future__ import annotations

import itertools
import json
import math
import queue
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from cepheid.acquire.choice import Choice, choose, require_retention
from cepheid.acquire.cost import MODELS, CostModel, StreamModel
from cepheid.acquire.describe import explained
from cepheid.acquire.drift import WORTHWHILE, Observed, drifts, with_drifts
from cepheid.acquire.intervals import END
from cepheid.acquire.models import Model, combined, from_data, to_data
from cepheid.acquire.plans import all_plans, naive, named_plan, plan_text
from cepheid.acquire.requests import Answer, Gap, Request
from cepheid.acquire.search import DEFAULT_SEARCH, STRATEGIES, Candidate, SearchOptions
from cepheid.acquire.tree import EventTree, streams
from cepheid.detection.acquisition import UNCERTAIN, Acquisition, Counts, Program, Round, bound_tree
from cepheid.detection.courier import Courier
from cepheid.detection.partials import Asked
from cepheid.detection.saved import SavedDetection
from cepheid.detection.source_filter import filters_of
from cepheid.engine.prepare import RunOptions
from cepheid.errors import InputProblem, SourceUnreachable, did_you_mean, listing, shown
from cepheid.events import Clock, Duration
from cepheid.explanation import Explained
from cepheid.io.asked_source import AskedSource, Description, Failure, TypeDescription
from cepheid.io.decoding import united_schema
from cepheid.io.inputs import Columns
from cepheid.io.source_list import NO_TIME
from cepheid.lang import to_text
from cepheid.pattern import Query
from cepheid.rendering import FORMATS

PUSH = "push"
"""The plan that pushes everything."""
MARK, HOLD = "mark", "hold"
MAX_LISTED = 20
"""The plans that an error lists."""


@dataclass(frozen=True, slots=True)
class Link:
    """A source, and how it is reached."""

    source: AskedSource
    latency: Duration = NO_TIME
    retention: Duration | None = None


@dataclass(frozen=True, slots=True)
class DetectOptions:
    """How a plan is chosen and run."""

    deadline: Duration | None = None
    """The longest time from the event that completes a detection to its detection."""
    model: str = "coverage"
    search: SearchOptions = DEFAULT_SEARCH
    plan: str | None = None
    """The text of a plan, or `push`; None: the cheapest."""
    timeout: float = 10.0
    """Seconds after which a request is repeated."""
    attempts: int = 5
    """How often a request is sent before it is a gap. A source that is not there at the start is tried as often."""
    gaps: str = MARK
    """Whether matches that a gap could change are marked or held back."""
    state: str | None = None
    """The directory of the saved state."""
    save_every: float = 0.5
    """Seconds between saves."""
    adapt_every: float | None = 5.0
    """Seconds between comparisons of the rates with those that the plan was chosen by; None: the plan is kept."""

    def __post_init__(self) -> None:
        for value, known, what in (
            (self.model, MODELS, "model"),
            (self.search.strategy, STRATEGIES, "strategy"),
            (self.search.algorithm, ("auto", "dp", "heuristic"), "algorithm"),
            (self.gaps, (MARK, HOLD), "handling of gaps"),
        ):
            if value not in known:
                raise InputProblem(
                    f"no {what} `{shown(value)}`", expected=f"one of {listing(known)}", hint=did_you_mean(value, known)
                )


@dataclass(frozen=True, slots=True)
class Detection:
    """A query, its sources, and the plan that was chosen."""

    query: Query
    links: Mapping[str, Link]
    program: Program
    choice: Choice
    costs: CostModel
    clock: Clock
    options: DetectOptions
    descriptions: tuple[Description, ...]
    run_options: RunOptions
    saved: SavedDetection | None = None

    @classmethod
    def of(
        cls,
        query: Query,
        links: Sequence[Link],
        columns: Columns,
        options: DetectOptions,
        run_options: RunOptions,
        statistics: str | None = None,
    ) -> Detection:
        """Chooses a plan, or takes that of the saved state. `statistics` is a file with models of the streams; by
        default the sources are asked for them."""
        saved = None if options.state is None else SavedDetection.read(options.state)
        if saved is None:
            descriptions = [_described(link, options) for link in links]
        else:
            saved.require(to_text(query), [link.source.name for link in links], options.state or "")
            descriptions = list(saved.descriptions)
        asked = _asked(descriptions, columns)
        prepared, tree = bound_tree(query, asked, run_options)
        sources = {
            kind: tuple(d.name for d in descriptions if kind in d.types) for d in descriptions for kind in d.types
        }
        filters = filters_of(tree)
        if filters and saved is None:
            descriptions = [
                link.source.describe({kind: text for kind, text in filters.items() if kind in description.types})
                for link, description in zip(links, descriptions, strict=True)
            ]
        known = {} if statistics is None else read_statistics(statistics)
        models = stream_models(links, descriptions, prepared.clock, known)
        missing = [stream for stream in streams(tree.root) if stream not in models]
        if missing:
            raise InputProblem(
                f"no source has events of type {listing(missing)}", expected=f"some of {listing(sorted(models))}"
            )
        costs = MODELS[options.model](models)
        if saved is None:
            choice = _chosen(tree, costs, options, prepared.clock)
        else:
            pushed, plan = naive(tree.root), saved.plan
            choice = Choice(
                Candidate(*costs.estimate(tree.root, plan), plan),
                Candidate(*costs.estimate(tree.root, pushed), pushed),
                (),
                1,
            )
        program = Program.of(prepared, tree, choice.chosen.plan, asked, sources, run_options)
        by_name = {link.source.name: link for link in links}
        return cls(
            query, by_name, program, choice, costs, prepared.clock, options, tuple(descriptions), run_options, saved
        )

    def explain(self, format: str = "text") -> Explained:
        """The plan, step by step."""
        render = FORMATS.get(format)
        if render is None:
            raise InputProblem(f"no format `{shown(format)}`", expected=f"one of {listing(FORMATS)}")
        per, unit = _rate_unit(self.clock)
        found = explained(
            self.program.tree.root,
            self.choice,
            self.costs,
            to_text(self.query),
            lambda rate: f"{rate * per:,.4g}/{unit}",
            lambda ticks: length_text(ticks, self.clock),
        )
        return Explained.of(render(found), found)

    def run(self) -> Running:
        return Running(self)

    def _of_all_keys(self, stream: str, observed: list[Observed]) -> list[Observed]:
        """Observations of single keys as those of the stream: of one of ten keys, a tenth of the time."""
        if stream not in self.program.keys:
            return observed
        keys = self.costs.streams[stream].distinct.get(self.program.keys[stream], 1)
        return [Observed(of.events, of.ticks // keys) for of in observed]

    def adapted(self, observed: Mapping[str, list[Observed]]) -> tuple[Detection, str] | None:
        """The detection with a plan that costs less at the rates that were observed, and the reason; None: the plan
        stays. A plan that the user has named stays."""
        found = drifts(self.costs.streams, {stream: self._of_all_keys(stream, of) for stream, of in observed.items()})
        if not found or self.options.plan is not None:
            return None
        tree, program = self.program.tree, self.program
        costs = MODELS[self.options.model](with_drifts(self.costs.streams, found))
        try:
            choice = _chosen(tree, costs, self.options, self.clock)
        except InputProblem:
            return None  # no plan meets the deadline; this one is as good as any
        known, plan = costs.estimate(tree.root, program.plan).cost, choice.chosen.plan
        if plan == program.plan or choice.chosen.cost > WORTHWHILE * known:
            return None
        per, unit = _rate_unit(self.clock)
        rates = [f"{d.stream} {d.rate * per:,.4g}/{unit} instead of {d.expected * per:,.4g}" for d in found]
        saved = f"{1 - choice.chosen.cost / known:.0%}" if known else "all"
        reason = f"rates have changed ({', '.join(rates)}): {plan_text(tree.root, plan)} moves {saved} fewer events"
        changed = Program.of(program.prepared, tree, plan, program.asked, program.sources, self.run_options)
        return replace(self, program=changed, choice=choice, costs=costs), reason


def _all_distinct(descriptions: Iterable[TypeDescription]) -> dict[str, int]:
    """The most values that an attribute has at a source."""
    found: dict[str, int] = {}
    for description in descriptions:
        for name, count in description.distinct.items():
            found[name] = max(found.get(name, 1), count)
    return found


def _described(link: Link, options: DetectOptions) -> Description:
    """The description of a source. One that cannot be reached is tried again, up to the limit of requests."""
    for attempt in range(1, options.attempts + 1):
        try:
            return link.source.describe()
        except SourceUnreachable:
            if attempt == options.attempts:
                raise
            time.sleep(min(options.timeout, 0.2 * 2**attempt))
    raise AssertionError("attempts are positive")


def _asked(descriptions: list[Description], columns: Columns) -> Asked:
    schema = united_schema(((f"the source `{shown(d.name)}`", d.schema) for d in descriptions), columns.reads)
    for name in (columns.type, columns.time):
        if name not in schema.names:
            raise InputProblem(f"the sources have no column `{shown(name)}`", expected=listing(schema.names))
    attributes: dict[str, dict[str, pa.DataType]] = {}
    for description in descriptions:
        for kind, known in description.types.items():
            attributes.setdefault(kind, {}).update(
                {name: schema.field(name).type for name in known.columns if name in schema.names}
            )
    return Asked(schema, columns, attributes)


Statistics = Mapping[tuple[str, str], Model]
"""The model of each source and event type."""


def stream_models(
    links: Sequence[Link], descriptions: Sequence[Description], clock: Clock, known: Statistics
) -> dict[str, StreamModel]:
    """The model of each event type over all its sources: their rates together, the longest latency, the shortest
    retention."""
    parts: dict[str, list[tuple[Link, Description]]] = {}
    for link, description in zip(links, descriptions, strict=True):
        for kind in description.types:
            parts.setdefault(kind, []).append((link, description))
    found: dict[str, StreamModel] = {}
    for kind, of in parts.items():
        kept = [math.inf if link.retention is None else clock.ticks(link.retention) for link, _ in of]
        found[kind] = StreamModel(
            combined([known.get((d.name, kind), d.types[kind].model) for _, d in of]),
            max(float(clock.ticks(link.latency)) for link, _ in of),
            min(kept),
            max(d.types[kind].bytes for _, d in of),
            _all_distinct(d.types[kind] for _, d in of),
        )
    return found


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


def _chosen(tree: EventTree, costs: CostModel, options: DetectOptions, clock: Clock) -> Choice:
    root = tree.root
    deadline = None if options.deadline is None else float(clock.ticks(options.deadline))

    def length(ticks: float) -> str:
        return length_text(ticks, clock)

    if options.plan is None:
        return choose(root, costs, options.search, deadline, length)
    plan = naive(root) if options.plan == PUSH else named_plan(root, options.plan)
    if plan is None:
        texts = [plan_text(root, one) for one in itertools.islice(all_plans(root), MAX_LISTED)]
        raise InputProblem(f"there is no plan `{shown(options.plan)}`", expected=f"one of {listing(texts)}")
    require_retention(root, plan, costs, length)
    chosen = Candidate(*costs.estimate(root, plan), plan)
    pushed = Candidate(*costs.estimate(root, naive(root)), naive(root))
    if deadline is not None and chosen.latency > deadline:
        raise InputProblem(
            f"the plan {plan_text(root, plan)} has a latency of {length(chosen.latency)}",
            expected=f"at most the deadline, {length(deadline)}",
        )
    return Choice(chosen, pushed, (), 1)


@dataclass(frozen=True, slots=True)
class PlanSwitch:
    """A change of the plan, at a time of the frontier."""

    at: int
    before: str
    after: str
    reason: str


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
            self.acquisition = Acquisition(self.detection.program)
        else:
            self.acquisition, self._first = Acquisition.restore(self.detection.program, saved.acquisition)
            self.gaps, self.offset = list(saved.gaps), saved.offset

    @property
    def schema(self) -> pa.Schema:
        return self.acquisition.schema

    @property
    def counts(self) -> Counts:
        return self.acquisition.counts

    def matches(self, until: int = END, wall_limit: float | None = None) -> Iterator[pa.Table]:
        """The matches as they are detected, until the sources have ended, the frontier has passed a time, or so many
        seconds are over. A table may be empty: then there are new gaps."""
        options = self.detection.options
        courier = Courier(self.acquisition, options.timeout, options.attempts)
        stop = None if wall_limit is None else time.monotonic() + wall_limit
        result = self._sent(self._first or self.acquisition.start(), courier)
        try:
            while True:
                shown_matches = self._shown(result.matches)
                self.gaps += result.gaps
                if shown_matches.num_rows or result.gaps:
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
        """Changes the plan if the rates have drifted. What is known stays known, and what was asked for and not
        answered is asked for again where the new plan wants it."""
        every, now = self.detection.options.adapt_every, time.monotonic()
        if every is None or now - self._compared < every:
            return None
        self._compared = now
        adapted = self.detection.adapted(self.acquisition.observed())
        for channel in self.acquisition.channels.values():
            channel.observed = Observed()
        if adapted is None:
            return None
        root, before = self.detection.program.tree.root, self.detection.program.plan
        self.detection, reason = adapted
        after = self.detection.program.plan
        self.switches.append(
            PlanSwitch(self.acquisition.frontier, plan_text(root, before), plan_text(root, after), reason)
        )
        last = self.acquisition.last_request
        self.acquisition, result = self.acquisition.switched(self.detection.program)
        for link in self.detection.links.values():
            link.source.cancel(last)
        return result

    def _shown(self, matches: pa.Table) -> pa.Table:
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
            to_text(detection.query),
            detection.choice.chosen.plan,
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
        again, failed = courier.due(time.monotonic())
        self._send(again)
        reasons = {failure.request.number: failure.reason for failure in failures}
        self._reasons.update(reasons)
        for request in failed:
            refused = self.acquisition.refused.get((request.source, request.stream), "no answer")
            given_up = self.acquisition.give_up(request, self._reasons.get(request.number, refused))
            result = Round(
                [*result.requests, *given_up.requests],
                pa.concat_tables([result.matches, given_up.matches]),
                [*result.gaps, *given_up.gaps],
            )
        return self._sent(result, courier)


# --- lengths of time --------------------------------------------------------------------------------------------------

_SECONDS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3_600.0, "d": 86_400.0, "w": 604_800.0}


def length_text(ticks: float, clock: Clock) -> str:
    """A number of ticks as a length of time."""
    if clock.unit is None:
        return f"{ticks:,.4g} units"
    seconds = ticks * _SECONDS[clock.unit]
    if math.isinf(seconds):
        return "ever"
    for unit in ("d", "h", "min", "s", "ms", "us"):
        if seconds >= _SECONDS[unit]:
            return f"{seconds / _SECONDS[unit]:,.4g} {unit}"
    return f"{seconds:,.4g} s"


def _rate_unit(clock: Clock) -> tuple[float, str]:
    """How many ticks there are in the unit that rates are shown in."""
    return (1.0, "unit") if clock.unit is None else (1.0 / _SECONDS[clock.unit], "s")
