"""One bucket of a stream: events wait in it until the watermark has passed them, then go through the evaluators in
order. Nothing here uses Spark, so parity with batch can be tested without it.

Spark's watermark during a batch comes from the batches before it, and decides which events are late. A bucket releases
events up to the watermark of the next batch, which it knows from the latest event of this one: otherwise nearly all
events of a batch would be written to the state and read again. All events of one time are released together, in the
order of their columns, so matches depend neither on how the stream is divided into batches nor on when events are
released.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cepheid.codegen.columns import MASK, attribute
from cepheid.deploy.family_run import MOST, FamilyRun
from cepheid.engine import oracle
from cepheid.engine.adaptation import caught_up
from cepheid.engine.positions import MatchPositions, intervals, position_columns
from cepheid.engine.prepare import Prepared
from cepheid.engine.stepping import Stepper
from cepheid.engine.summary import Summary, merged_row, part_of
from cepheid.errors import Explosion, TooMuchMemory
from cepheid.graph import connected
from cepheid.io.event_columns import readable
from cepheid.io.rows import START, TIME, Rows
from cepheid.optimize.adapt import Switch, horizon, same_work
from cepheid.pattern import negatives
from cepheid.physical import Plan
from cepheid.runtime.kernel import END_OF_TIME, Array, Positions
from cepheid.streaming.adaptation import Adapted, rearranged
from cepheid.streaming.bucket_context import BucketContext
from cepheid.streaming.compact import read_arrays, write_arrays
from cepheid.streaming.families import StreamGroup
from cepheid.streaming.graphs import FedQueries
from cepheid.streaming.order import by_time, settled
from cepheid.streaming.outputs import StreamOutput, first_positions
from cepheid.streaming.pack import joined
from cepheid.streaming.plan import ONE_BUCKET, StreamPlan, StreamQuery, relevant_to
from cepheid.streaming.retained import RetainedRows


@dataclass(frozen=True, slots=True)
class BucketOutput:
    """The output of a bucket for one batch: late events, and the rows of matches by the number of their table."""

    late: pa.RecordBatch | None
    matches: list[tuple[int, pa.RecordBatch]]
    counts: dict[str, int] = field(default_factory=dict)
    """The number of matches of each query that has some, by its name."""
    switches: list[tuple[int, Switch]] = field(default_factory=list)
    """The plans that changed, by the number of their query."""
    dropped: list[tuple[Sequence[str], str]] = field(default_factory=list)
    """The keys that were dropped and the queries that were stopped: the names of the queries, and the reason."""
    costs: dict[str, int] = field(default_factory=dict)
    """The CPU nanoseconds of each query without a key, by its identity."""
    spent: int = 0
    """The CPU nanoseconds of the batch."""


STOPPED = "the query is stopped"
Shown = tuple[StreamOutput, pa.RecordBatch]
"""Some matches as an output shows them."""


@dataclass(slots=True)
class Bucket:
    """The state of a bucket during a batch."""

    context: BucketContext
    number: int
    waiting: pa.RecordBatch
    rows: RetainedRows
    watermark: int = -END_OF_TIME
    last: int = -END_OF_TIME
    """The time of the last event that was released."""
    output_counts: dict[int, int] = field(default_factory=dict)
    """The number of matches that each query with LIMIT has output."""
    memory: dict[int, tuple[bytes, bytes]] = field(default_factory=dict)
    """For each query with a kernel, its state and its encoder's."""
    adapted: dict[int, Adapted] = field(default_factory=dict)
    """For each query whose plan may change, the one in use."""
    switches: list[tuple[int, Switch]] = field(default_factory=list)
    """The plans that changed in the batch at hand."""
    dropped: dict[int, set[str]] = field(default_factory=dict)
    """The keys whose events a query ignores, since one of them completed too many matches."""
    newly_dropped: list[tuple[Sequence[str], str]] = field(default_factory=list)
    """The names of the queries of those of the batch at hand, with the reason."""
    stopped: set[int] = field(default_factory=set)
    """The queries that exceeded a limit."""
    families: bytes = b""
    """The state of the families of its key."""
    inner: dict[str, bytes] = field(default_factory=dict)
    """The states of the queries that feed others, by their names."""
    summaries: dict[int, Summary] = field(default_factory=dict)
    """For each query that returns a summary which its kernel does not compute, that of the matches so far."""
    own: frozenset[str] | None = None
    """The identities of its queries, if they were moved here and are apart from the others; None: all others."""
    apart: frozenset[str] = frozenset()
    """The identities of the queries that are apart."""

    @classmethod
    def new(cls, context: BucketContext, number: int) -> Bucket:
        none = pa.RecordBatch.from_pylist([], context.retained_schema(number))
        return cls(context, number, none, RetainedRows(none, 0, context.plan.reader.columns))

    @property
    def plan(self) -> StreamPlan:
        return self.context.plan

    @property
    def queries(self) -> list[tuple[int, StreamQuery]]:
        here = ((number, self.plan.queries[number]) for number in self.plan.sharing(self.number))
        own, apart = self.own, self.apart
        return [(n, query) for n, query in here if (query.id not in apart if own is None else query.id in own)]

    @property
    def group(self) -> StreamGroup | None:
        return self.plan.group_of(self.number) if self.own is None else None

    # --- a batch ------------------------------------------------------------------------------------------------------

    def step(self, arrived: Sequence[pa.RecordBatch], watermark: int, ahead: int = -END_OF_TIME) -> BucketOutput:
        """Adds events (those before the watermark are late) and evaluates up to the watermark, or up to `ahead` if
        that is later. `ahead` is at most the watermark of the next batch."""
        self.switches, self.newly_dropped = [], []
        began, costs = time.thread_time_ns(), dict[str, int]()
        late = self._take_in(arrived, watermark)
        watermark = max(watermark, ahead)
        released = self._release(watermark)
        if released.num_rows:
            self.last = int(released.column(TIME)[-1].as_py())
            self.rows = replace(self.rows, table=joined([self.rows.table, released]))
        matches: list[tuple[int, pa.RecordBatch]] = []
        counts: Counter[str] = Counter()
        if watermark > self.watermark or released.num_rows:
            oldest = [self.rows.end]
            for queries in self._together():
                before = time.thread_time_ns()
                outputs, needed_from = self._evaluated(queries, released, watermark)
                for one, output in outputs:
                    counts.update(dict.fromkeys(one.names, output.num_rows))
                    matches.extend((one.table, rows) for rows in one.rows(output))
                oldest.append(needed_from)
                cost = (time.thread_time_ns() - before) // len(queries)
                costs.update((query.id, cost) for query in queries.values() if query.key == ONE_BUCKET)
            if self.group is not None:
                oldest.append(self._by_families(self.group, released, watermark, matches, counts))
            else:
                self._require_memory(None)
            self.rows = self.rows.after(min(oldest), self.plan.counts_equals(self.number))
            self.watermark = watermark
        spent = time.thread_time_ns() - began
        return BucketOutput(late, matches, dict(counts), self.switches, self.newly_dropped, costs, spent)

    def _by_families(
        self,
        group: StreamGroup,
        released: pa.RecordBatch,
        watermark: int,
        matches: list[tuple[int, pa.RecordBatch]],
        counts: Counter[str],
    ) -> int:
        """Adds the matches of families; returns the position of the first row that they still need."""
        running = group.restored(self.families, self.rows.end - released.num_rows)
        before = {*running.stopped}
        events = self.plan.reader.typed_batch(released, group.read) if released.num_rows else None
        last = END_OF_TIME if watermark == END_OF_TIME else watermark - 1
        for found in group.matches(running, events, last):
            for table, rows, names in group.rows(found, self.rows):
                matches.append((table, rows))
                counts.update(names)
        self._require_memory(running)
        for rule, problem in running.stopped.items():
            if rule not in before and problem is not None:
                self.newly_dropped.append((group.queries_of(rule), f"{STOPPED}: {problem.what}"))
        if watermark == END_OF_TIME:
            self.families = b""
            return self.rows.end
        self.families = group.saved(running, self.last)
        return min(running.oldest, self.rows.end) if self.families else self.rows.end

    def _take_in(self, arrived: Sequence[pa.RecordBatch], watermark: int) -> pa.RecordBatch | None:
        arrived = [events for events in arrived if events.num_rows]
        if not arrived:
            return None
        events = joined(arrived)
        times = np.asarray(events.column(TIME))
        late = None
        if times.min() < watermark:
            is_late = times < watermark
            if (
                self.plan.reports(self.number) and self.own is None
            ):  # an event goes to several buckets, but is late once
                late = events.filter(pa.array(is_late))
            events = events.filter(pa.array(~is_late))
        wanted = self._relevant(events)
        if wanted is not None:
            events = events.filter(pa.array(wanted))
        self.waiting = joined([self.waiting, events.select(self.context.retained_schema(self.number).names)])
        return late

    def _relevant(self, events: pa.RecordBatch) -> Array | None:
        """The events that can matter to some query; None where all may."""
        queries = [query for _, query in self.queries]
        return relevant_to(queries, self.group, events, self.plan.reader.columns)

    def _release(self, watermark: int) -> pa.RecordBatch:
        waiting = by_time(self.waiting)
        ready = int(np.searchsorted(np.asarray(waiting.column(TIME)), watermark))
        self.waiting = waiting.slice(ready)
        released = waiting.slice(0, ready)
        ties_matter = any(query.ties_matter for _, query in self.queries)
        is_settled = ties_matter or (self.group is not None and self.group.ties_matter)
        return settled(released, self.plan) if is_settled else released

    def _together(self) -> list[dict[int, StreamQuery]]:
        """The queries that run, by their numbers: those that use equal ones together."""
        running = [(number, query) for number, query in self.queries if number not in self.stopped]
        groups = connected([[*query.inner.values()] for _, query in running])
        return [dict(running[at] for at in group) for group in groups]

    def _evaluated(
        self, queries: Mapping[int, StreamQuery], released: pa.RecordBatch, watermark: int
    ) -> tuple[list[Shown], int]:
        """The output of queries, and the position of the first row that they still need. One of several that exceeds a
        limit is stopped, and the others go on."""
        if any(query.inner for query in queries.values()):
            return self._by_graph(queries, released, watermark), self.rows.end
        ((number, query),) = queries.items()
        try:
            return self._evaluate(number, query, released, watermark)
        except Explosion as problem:
            self._stop_some([number], problem)
            return [], self.rows.end

    def _stop_some(self, numbers: Iterable[int], problem: Explosion) -> None:
        if not self.plan.is_several:
            raise problem
        for number in numbers:
            self._stop(number, problem)

    def _stop(self, number: int, problem: Explosion) -> None:
        self.stopped.add(number)
        self.newly_dropped.append((self.plan.queries[number].all_names, f"{STOPPED}: {problem.what}"))
        for held in (self.memory, self.adapted, self.summaries, self.output_counts, self.dropped):
            held.pop(number, None)
        self.inner = {name: self.inner[name] for name in self.used_inner()}

    def used_inner(self) -> list[str]:
        """The queries whose states others need."""
        used = {name for number in self.memory for name in self.plan.queries[number].inner.values()}
        return [name for name in self.inner if name in used]

    def _require_memory(self, running: FamilyRun | None) -> None:
        """Stops the queries with the most state, while that of all together exceeds the limit."""
        limit = self.plan.limits.total_memory
        while limit is not None:
            of_families = 0 if running is None else running.state_bytes
            users: dict[str | int, list[int]] = {number: [number] for number in self.memory}
            for number in self.memory:
                for name in self.plan.queries[number].inner.values():
                    users.setdefault(name, []).append(number)
            sizes = {of: len(self.inner[of]) if isinstance(of, str) else sum(map(len, self.memory[of])) for of in users}
            if of_families + sum(sizes.values()) <= limit:
                return
            largest = max(sizes, key=lambda of: sizes[of], default=None)
            if largest is not None and sizes[largest] >= of_families:
                self._stop_some(users[largest], TooMuchMemory(limit, None, MOST))
            elif running is None or not running.stop_largest(limit):
                return

    # --- evaluators ---------------------------------------------------------------------------------------------------

    def _evaluate(
        self, number: int, query: StreamQuery, released: pa.RecordBatch, watermark: int
    ) -> tuple[list[Shown], int]:
        """The output of a query, and the position of the first row that it still needs."""
        if query.by_oracle:
            return self._by_oracle(number, query, watermark)
        switched = self._adapt(number, query, released.num_rows)
        while True:
            try:
                return self._by_kernel(number, query, released, watermark, switched)
            except Explosion as problem:  # the state in `memory` is still that before the batch
                if problem.row is None:
                    raise
                row = self.rows.table.slice(problem.row - self.rows.first, 1)
                if not self._drop(number, query, row, problem):
                    raise

    def _by_kernel(
        self, number: int, query: StreamQuery, released: pa.RecordBatch, watermark: int, switched: bool
    ) -> tuple[list[Shown], int]:
        stepper = Stepper.start(self.context.kernel(number, self._plan_in_use(number)), released.num_rows)
        if switched:
            self._catch_up(number, query, stepper, released.num_rows)
        elif number in self.memory:
            arrays, encoder = self.memory[number]
            stepper.state = read_arrays(arrays, stepper.compiled.arrays)
            stepper.encoder.restore(encoder)
        else:
            stepper.encoder.rows = self.rows.end - released.num_rows
        answers = self._answers(number, query, stepper, released, watermark)
        summary = self._summary(number, query)
        outputs = list(self._written(number, query, answers, self.rows, self.plan.reader.schema, summary))
        outputs.extend(self._summarised(number, query, stepper, summary, watermark))
        oldest = min(stepper.oldest, self.rows.end)
        if query.prepared.adaptive is not None:
            oldest = min(oldest, self._replayed_from(query, self.rows.table.num_rows))
        if self._is_over(query, oldest, watermark):
            self.memory.pop(number, None)
            oldest = self.rows.end
        else:
            if query.window is not None and not stepper.compiled.needs_ranks:
                stepper.encoder.forget_strings(self.last, query.window)
            self.memory[number] = write_arrays(stepper.state, stepper.compiled.arrays), stepper.encoder.save()
        return outputs, oldest

    def _written(
        self,
        number: int,
        query: StreamQuery,
        answers: Iterable[Positions],
        rows: Rows,
        schema: pa.Schema,
        summary: Summary,
    ) -> Iterator[Shown]:
        """The rows of some matches, or none if the query returns a summary, to which the matches are added."""
        for positions in answers:
            if query.sums_up:
                summary.add_found(positions, query.prepared.binding, rows, schema)
            elif len(positions):
                columns = position_columns(positions, query.prepared.binding)
                bound = MatchPositions(columns, *intervals(positions, rows), positions.reasons)
                yield from self._shown(number, query, bound, rows)

    def _summary(self, number: int, query: StreamQuery) -> Summary:
        """A copy of the summary so far: if an event completes too many matches, the batch is evaluated again."""
        known = self.summaries.get(number) or Summary.of(query.prepared.query)
        return Summary.of_data(query.prepared.query, known.to_data())

    def _summarised(
        self, number: int, query: StreamQuery, stepper: Stepper, summary: Summary, watermark: int
    ) -> Iterator[Shown]:
        """The one row of a summary, at the end of time."""
        if not query.sums_up:
            return
        self.summaries[number] = summary
        if watermark == END_OF_TIME:
            prepared = replace(query.prepared, kernel=stepper.compiled)
            row = merged_row(prepared, [part_of(prepared, stepper, summary)])
            yield query, oracle.made_batch(query.prepared, [row])

    def _by_graph(self, queries: Mapping[int, StreamQuery], released: pa.RecordBatch, watermark: int) -> list[Shown]:
        """The output of queries that others feed. The graph retains the rows that it needs. If one exceeds a limit, the
        others are evaluated again."""
        while queries:
            running = FedQueries.start(self.context, queries, released.num_rows, self.memory, self.inner)
            events, number = released, next(iter(queries))
            if number in self.dropped:  # where keys are dropped, each query is alone
                leave_out = partial(self._without_dropped, number, queries[number])
                events = leave_out(events)
                running.leave_out(leave_out)
            try:
                answers = running.step(events, watermark)
            except Explosion as problem:
                row, users = running.exceeding(problem)
                if row is None or not self._drop(number, queries[number], row, problem):
                    self._stop_some(users, problem)
                    queries = {n: query for n, query in queries.items() if n not in self.stopped}
                continue
            return self._shown_of_graph(running, answers, watermark)
        return []

    def _shown_of_graph(
        self, running: FedQueries, answers: Mapping[int, Sequence[Positions]], watermark: int
    ) -> list[Shown]:
        found: list[Shown] = []
        for number, query in running.queries.items():
            one, summary = running.outputs[number], self._summary(number, query)
            schema = query.prepared.input.schema
            found.extend(self._written(number, query, answers[number], one.rows, schema, summary))
            found.extend(self._summarised(number, query, one.stepper, summary, watermark))
            self.memory.pop(number, None)
        if not all(self._graph_is_over(query, watermark) for query in running.queries.values()):
            memory, inner = running.saved(self.last)
            self.memory |= memory
            self.inner |= inner
        self.inner = {name: self.inner[name] for name in self.used_inner()}
        return found

    def _graph_is_over(self, query: StreamQuery, watermark: int) -> bool:
        """Whether no event so far can affect a later match. Each query may wait for its window after the queries that
        feed it have waited for theirs, and an event about many for that of the events it counts."""
        if watermark == END_OF_TIME:
            return True
        window, limits = query.window, any(one.query.limit is not None for one in query.evaluated)
        if window is None or limits or query.sums_up or query.remembers:
            return False
        return watermark - 1 - self.last > window + 2 * len(query.evaluated)

    def _answers(
        self, number: int, query: StreamQuery, stepper: Stepper, released: pa.RecordBatch, watermark: int
    ) -> Iterator[Positions]:
        if released.num_rows:
            yield from stepper.step(self._for_kernel(number, query, released))
        if watermark == END_OF_TIME:
            yield from stepper.finish_lazily()
        elif watermark > self.watermark and not query.prepared.plan.counts_events:
            yield from stepper.advance_lazily(watermark - 1)

    def _for_kernel(self, number: int, query: StreamQuery, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Rows as the kernel of the plan in use reads them."""
        names = query.read_by_kernel(self.plan.reader.schema)
        times = [name for name in (TIME, START) if name in rows.schema.names]
        arrays = [*(readable(rows.column(name)) for name in names), *map(rows.column, times)]
        masks = rearranged(rows.column(query.mask), query.prepared.plan, self._plan_in_use(number))
        if number in self.dropped:
            masks = pc.if_else(self._is_dropped(number, query, rows), pa.scalar(0, masks.type), masks)
        return pa.RecordBatch.from_arrays([*arrays, masks], names=[*names, *times, MASK])

    def _plan_in_use(self, number: int) -> Plan:
        adapted = self.adapted.get(number)
        return self.plan.queries[number].prepared.plan if adapted is None else adapted.plan

    def _is_dropped(self, number: int, query: StreamQuery, rows: pa.RecordBatch) -> pa.Array:
        return pa.array([key in self.dropped[number] for key in _keys(rows, query.key)], pa.bool_())

    def _without_dropped(self, number: int, query: StreamQuery, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The rows without those of dropped keys, if they show their key."""
        shows_key = all(attribute(rows, name) is not None for name in query.key)
        return rows.filter(pc.invert(self._is_dropped(number, query, rows))) if shows_key else rows

    def _drop(self, number: int, query: StreamQuery, row: pa.RecordBatch, problem: Explosion) -> bool:
        """Ignores the events of a key from now on: that of a row. What the kernel has of it ends with the window.
        Returns whether that helps: not if there is no key, or the state alone exceeds the limit."""
        key = next(iter(_keys(row, query.key) if self.plan.drops_keys else ()), None)
        if key is None or key in self.dropped.get(number, ()):
            return False
        self.dropped.setdefault(number, set()).add(key)
        text = f"the events with {', '.join(query.key)} = {key} are ignored from now on: {problem.what}"
        self.newly_dropped.append((query.all_names, text))
        return True

    # --- plans that change --------------------------------------------------------------------------------------------

    def _adapt(self, number: int, query: StreamQuery, came: int) -> bool:
        """Whether another plan takes over before the newly released events."""
        policy, adapted = query.prepared.adaptive, self.adapted.get(number)
        if policy is None:
            if adapted is not None:
                adapted.since = self.rows.end  # from now on rows are retained for matches only
            return False
        if adapted is None:
            since = self.rows.end - came if number in self.memory else 0
            adapted = self.adapted[number] = Adapted.start(query.prepared, since)
        if not came:
            return False
        before, recent = adapted.plan, self._for_kernel(number, query, self.rows.table)
        kernel = self.context.kernel(number, before)
        decision = adapted.decide(came, recent, kernel, self._replayed_from(query, recent.num_rows - came))
        if decision is None or same_work(before, decision.plan):
            return False
        adapted.switch(decision)
        self.switches.append((number, Switch.of(self.rows.end - came, before, decision)))
        return True

    def _catch_up(self, number: int, query: StreamQuery, stepper: Stepper, came: int) -> None:
        """Replays the retained events on a new kernel, without those that just came."""
        retained = self._for_kernel(number, query, self.rows.table.slice(0, self.rows.table.num_rows - came))
        stepper.state, stepper.encoder = caught_up(stepper.kernel, self.rows.first, [retained])
        if self.watermark > -END_OF_TIME and not query.prepared.plan.counts_events:
            for _ in stepper.advance_lazily(self.watermark - 1):
                """The plan before has output these matches."""

    def _replayed_from(self, query: StreamQuery, count: int) -> int:
        """The position from which on another plan needs the events, after the first `count` retained rows."""
        reach = horizon(query.prepared.plan)
        if query.prepared.plan.counts_events or not count:
            return self.rows.first + max(count - 1 - reach, 0)
        ticks = np.asarray(self.rows.table.column(TIME))[:count]
        return self.rows.first + int(np.searchsorted(ticks, ticks[-1] - reach))

    def _is_over(self, query: StreamQuery, oldest: int, watermark: int) -> bool:
        """Whether no event so far can affect a later match. A negated event is in no match: only its age decides."""
        if watermark == END_OF_TIME:
            return True
        if query.sums_up:
            return False
        window = query.window
        if window is not None and watermark - 1 - self.last > window:
            return True
        return oldest >= self.rows.end and not negatives(query.prepared.query.pattern)

    def _by_oracle(self, number: int, query: StreamQuery, watermark: int) -> tuple[list[Shown], int]:
        """The oracle evaluates all retained events in every batch. A match is output when the watermark passes its end
        and the time in which it may be taken back."""
        if query.sums_up and watermark < END_OF_TIME:
            return [], self.rows.first
        ticks = np.asarray(self.rows.table.column(TIME))
        ids = query.prepared.match_ids
        events = self.plan.reader.oracle_batch(self.rows.table, ticks, () if ids is None else ids.columns)
        matches = [
            match
            for match in oracle.matches(_unlimited(query.prepared), [events], self.rows.first)
            if match.end is None or query.sums_up or self.watermark <= match.end + query.lag < watermark
        ]
        outputs: list[Shown] = []
        if matches and query.gatherer is None:
            outputs.extend(self._limited(number, query, oracle.made_batch(query.prepared, matches, self.rows)))
        elif matches:
            bound = oracle.match_positions(query.prepared, matches)
            outputs.extend(self._shown(number, query, bound, self.rows))
        if query.horizon is None:
            return outputs, self.rows.first
        gone = int(np.searchsorted(ticks, watermark - query.horizon)) if watermark != END_OF_TIME else len(ticks)
        return outputs, self.rows.first + gone

    def _shown(self, number: int, query: StreamQuery, positions: MatchPositions, rows: Rows) -> Iterator[Shown]:
        limit = query.prepared.query.limit
        if limit is not None:
            positions = first_positions(positions, limit - self.output_counts.get(number, 0))
        if not len(positions.start):
            return
        if query.gatherer is not None:
            yield from self._limited(number, query, query.gatherer.table(positions, rows))
            for other in query.others:  # the limit is that of the query, which has decided already
                assert other.gatherer is not None
                yield other, other.gatherer.table(positions, rows)
        else:
            matches = oracle.matches_at(_unlimited(query.prepared), [positions], rows)
            yield from self._limited(number, query, oracle.made_batch(query.prepared, matches, rows))

    def _limited(self, number: int, query: StreamQuery, output: pa.RecordBatch) -> Iterator[Shown]:
        limit = query.prepared.query.limit
        if limit is not None:
            output = output.slice(0, max(limit - self.output_counts.get(number, 0), 0))
            self.output_counts[number] = self.output_counts.get(number, 0) + output.num_rows
        if output.num_rows:
            yield query, output

    # --- the state ----------------------------------------------------------------------------------------------------

    def forget_others(self) -> None:
        """Drops the waiting events that none of its queries needs."""
        wanted = self._relevant(self.waiting)
        if wanted is not None:
            self.waiting = self.waiting.filter(pa.array(wanted))
        if not self.memory and wanted is not None:  # no match so far waits for a later event
            self.rows = self.rows.after(self.rows.end)

    @property
    def is_empty(self) -> bool:
        """Whether the state is that of a new bucket."""
        sums_up = any(query.sums_up for _, query in self.queries)
        has_rows = self.waiting.num_rows or self.rows.table.num_rows
        return not (
            has_rows or self.memory or self.stopped or self.families or self.output_counts or self.dropped or sums_up
        )


# --- keys and limits --------------------------------------------------------------------------------------------------


def _keys(rows: pa.RecordBatch, names: Sequence[str]) -> list[str]:
    """The key of each row, as text."""
    columns = [column.to_pylist() for name in names if (column := attribute(rows, name)) is not None]
    return [", ".join(map(str, values)) for values in zip(*columns, strict=True)]


def _unlimited(prepared: Prepared) -> Prepared:
    return replace(prepared, query=replace(prepared.query, limit=None))
