"""NFA^b runs (SASE+ §3-§5) under strict contiguity, partition contiguity and skip till next match.

A run is at one component, in the list of its partition and component. An event looks only at the lists of its own
partition whose edges it can satisfy by itself (its mask); so runs that wait for a rare event cost nothing until it
comes, and under contiguity a whole list ends at once. A run carries the values that its further edges ask for
(`run_vector`) and a pointer into the shared match buffer (`run_store`).

Runs that an event brings into the same state with the same values are merged (§5.2.2). Those that an event left alone
need no look: equal runs act alike, so if they ever act again they meet then.

Matches are recorded as pointers into the buffer while events are read, and written out when the record is full, which
is also when arrays grow and what can no longer be part of a match is reclaimed.

Options: `merge` on | off, `algorithm` basic | backtrack (§5.2.3, see `backtrack`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from cepheid.codegen.builder import Writer
from cepheid.codegen.scalar import is_null, key_part, mixed
from cepheid.kernels import instance_stack
from cepheid.kernels.runs import run_store
from cepheid.kernels.runs.backtrack import Backtrack
from cepheid.kernels.runs.edges import OWN_COUNTERS, RunEdges
from cepheid.kernels.runs.run_index import Awaited, RunIndex, awaited_by
from cepheid.kernels.runs.run_vector import field, of_new
from cepheid.kernels.state_vector import NOWHERE, Source, Value
from cepheid.physical import Options, Plan
from cepheid.runtime import prefetch
from cepheid.runtime.kernel import FREE, Kernel, State, StateArray

OPTIONS: Options = {"algorithm": ("basic", "backtrack"), "merge": ("on", "off")}


def kernel(plan: Plan) -> Kernel:
    options = plan.forced(OPTIONS)
    algorithm: type[RunEdges] = Backtrack if options["algorithm"] == "backtrack" else _Basic
    return algorithm(plan, options).kernel()


def own_counters(state: State) -> dict[str, int]:
    return {name: int(state[0][FREE + i]) for i, name in enumerate(OWN_COUNTERS)}


_LITTLE = 256
"""So few nodes are not worth looking for those that can be reclaimed."""


class _Basic(RunEdges):
    """§5.2.1 and §5.2.2: all runs side by side, equal ones merged."""

    def __init__(self, plan: Plan, options: Mapping[str, str]) -> None:
        super().__init__(plan, options)
        self.indexes = self._indexes()
        # A match that waits for its window to pass has a window of its own, and of matches that exclude each other one
        # is chosen by its events: both have to know one run from another.
        self.merges = options["merge"] == "on" and not self.absences.waits and not self.exclusive

    def _indexes(self) -> list[RunIndex]:
        """The main index, and those of the states that wait for a value. Where an event concerns all runs of its
        partition, these are all in the main one."""
        knows_place = self.plan.counts_events and bool(self.key)
        awaited: dict[int, Awaited] = {}
        if not (self.contiguous or self.exclusive or knows_place):
            for s in self.states:
                if (found := awaited_by(self.run, s, [j for j, _ in self.reachable(s)])) is not None:
                    awaited[s] = found
        main = RunIndex(0, self.key, None, tuple(s for s in self.states if s not in awaited), knows_place)
        others = [RunIndex(i, self.key, value, (s,), False) for i, (s, value) in enumerate(awaited.items(), 1)]
        return [main, *others]

    def _index_of(self, state: int) -> RunIndex:
        return next(index for index in self.indexes if state in index.states)

    # --- the function -------------------------------------------------------------------------------------------------

    @property
    def decides_late(self) -> bool:
        return self.absences.waits

    def preamble(self) -> list[str]:
        stacks = [instance_stack.IMPORTS] if self.absences.all else []
        return [run_store.IMPORTS, *stacks, "", *self.fields(run_store.RUN_SIZE), *self.absences.offsets()]

    def body(self, w: Writer) -> None:
        w("work = 2")
        self.absences.begin(w)
        with self.interrupted_loop(w, "e", "time.shape[0]"):
            self._event(w)

    def older(self, w: Writer) -> None:
        if self.absences.waits:
            with w.block("for i in range(waits):"):
                w("oldest = min(oldest, waiting[due_item[i] + LAST_ROW])")

    def tables(self) -> list[StateArray]:
        run_size = run_store.RUN_SIZE + len(self.run.all_values())
        arrays = [
            StateArray("node", "int64", 64 * run_store.NODE_SIZE, width=run_store.NODE_SIZE),
            StateArray("found", "int64", 256 * run_store.FOUND_SIZE),
            StateArray("run", "int64", 16 * run_size, width=run_size),
        ]
        for index in self.indexes:
            slots = 16 if index.parts else 1
            arrays.append(StateArray(index.name, "int64", slots * index.stride, fill=-1, width=index.stride))
        if self._hashed_merges():
            arrays.append(StateArray("meet", "int64", 64, fill=-1))
        return [*arrays, *self.absences.arrays()]

    # --- between events -----------------------------------------------------------------------------------------------

    def make_room(self, w: Writer) -> None:
        """Write the matches, reclaim what no run needs, and let arrays grow:

        values, bounds, written, ends = write_matches(found, founds, 2, node, values, bounds, written, ends)
        node = grown(node, 3 * nodes + 4 * work * NODE_SIZE)

        Everything that assigns arrays is here, outside the loop over events: an array that is assigned in a loop makes
        Numba count references at every turn. `work` bounds the runs that the next event can look at."""
        for register in ("nodes", "free", "live", "top"):
            self.register(register)
        w("# write what was found, reclaim what no run needs, and make room for the next events")
        if self.absences.waits:
            self.absences.decide(w)
        w("values, bounds, written, ends = write_matches(")
        w(f"    found, founds, {len(self.run.components)}, node, values, bounds, written, ends)")
        w("founds = 0", f"found = grown(found, {self.most} * work * FOUND_SIZE)", "floor = ALWAYS")
        if self.plan.window is not None:
            with w.block("if start < time.shape[0]:"):
                w("floor = measure[start] - limit")
            if not self.plan.counts_events:
                with w.block("elif time.shape[0] == 0:"):
                    w("floor = max(now, limit + ALWAYS) - limit")
        # Most of what is looked through is then gone or new, so reclaiming costs no more than making it did.
        self.register("kept")
        due = f"time.shape[0] == 0 or nodes > 3 * kept + {_LITTLE} * NODE_SIZE"
        with w.block(f"if {due} or {self._short_of('node', 'nodes')} or {self._short_of('run', 'live')}:"):
            self._reclaim(w)
            w("kept = nodes")
            w(f"node = grown(node, 3 * nodes + {2 * self.most} * work * NODE_SIZE)")
            w(f"run = grown(run, 2 * live + {self.most} * work * RUN_SIZE)")
            if self._hashed_merges():
                w("meet = met_before(meet, run.shape[0] // RUN_SIZE)")
        self.absences.make_room(w)
        for index in self.indexes:
            if index.parts:
                self.register(f"used{index.suffix}")
            index.make_room(w, self._inserts(index))
        if self.indexes[0].key:
            w(f"far = time.shape[0] if {self.indexes[0].name}.shape[0] > {prefetch.FAR} else 0")

    def _inserts(self, index: RunIndex) -> str:
        """How many keys an event can add to an index: its own, or one for each run that it makes."""
        return "1" if index.awaited is None else f"{self.most} * work"

    def _reclaim(self, w: Writer) -> None:
        w("peak_retained = max(peak_retained, nodes // NODE_SIZE)")
        w("marks = np.full(nodes // NODE_SIZE, UNREACHED, np.int64)")
        for index in self.indexes:
            w(f"free, dropped = sweep({index.layout}, floor, limit, run, free, marks)", "live -= dropped * RUN_SIZE")
        if self.absences.waits:
            w("mark_waiting(waiting, due_item, waits, marks)")
        w("nodes = compact(node, marks)", "forward_runs(run, top, RUN_SIZE, marks)")
        if self.absences.waits:
            w("forward_waiting(waiting, due_item, waits, marks)")

    def _short_of(self, table: str, filled: str) -> str:
        size, times = {"node": ("NODE_SIZE", 2), "run": ("RUN_SIZE", 1), "found": ("FOUND_SIZE", 1)}[table]
        return f"{filled} + {times * self.most} * work * {size} > {table}.shape[0]"

    # --- one event ----------------------------------------------------------------------------------------------------

    def _event(self, w: Writer) -> None:
        self._look_ahead(w)
        w("bits = mask[e]")
        if not self.contiguous:
            with w.block(f"if bits & np.uint64({self._relevant_bits()}) == 0:"):
                w("events += 1", "dropped_by_mask += 1", "continue")
        if self.absences.all:
            with w.block(f"if {' or '.join(self.absences.short())}:"):
                w("stop = e", "break")
        for index in self.indexes:
            self._find_slot(w, index)
        w(f"work = {' + '.join(index.count() for index in self.indexes)} + {2 * len(self.indexes)}")
        short = [self._short_of(*table) for table in (("node", "nodes"), ("run", "live"), ("found", "founds"))]
        short += [index.short(self._inserts(index)) for index in self.indexes if index.parts]
        if self.absences.waits:
            short.append(f"waits + {self.most} * work > due.shape[0]")
        with w.block(f"if {' or '.join(short)}:"):
            w("stop = e", "break")
        w("events += 1", "m = measure[e]", "row = first + e")
        for state in self.states:
            if self._merges_by_target(state) and not self._waits_as_one(state):
                w(f"target{state} = EMPTY")
        if self.exclusive:
            w("chosen = False")
        self.absences.latest(w)
        if self.indexes[0].knows_place:
            with w.block(f"if {self.indexes[0].count()} > 0:"):
                w(f"{self.indexes[0].place()} = m")
        for state in reversed(self.states):
            self._state(w, state)
        self.start(w)
        if self.exclusive:
            self._exclude(w)
        self.absences.push(w)

    def _look_ahead(self, w: Writer) -> None:
        """Prefetch what later events will read: the slots of their partitions, then the first runs of these:

        if e + 8 < far:
            prefetch(index, first_slot(column0[e + 8], slots) * 4)
        """
        index = self.indexes[0]
        if index.key:
            w("# ask for what later events will look at, so that it is there in time")
            for distance in (prefetch.AHEAD, prefetch.SOON):
                wanted = "" if self.contiguous else f" and mask[e + {distance}] & np.uint64({self._relevant_bits()})"
                slot = index.first([self._later_part(name, distance) for name in index.key])
                with w.block(f"if e + {distance} < far{wanted}:"):
                    if distance == prefetch.AHEAD:
                        w(f"prefetch({index.name}, {slot})")
                        continue
                    w(f"later = {slot}")
                    for state in index.states:
                        w(f"prefetch(run, {index.name}[{index.head(state, 'later')}])")

    def _later_part(self, name: str, distance: int) -> str:
        return key_part(f"column{self.run.column[name]}[e + {distance}]", self.plan.columns[name])

    def _relevant_bits(self) -> int:
        return self.builder.bits_of(self.plan.steps)

    def _find_slot(self, w: Writer, index: RunIndex) -> None:
        """The slot of the event's partition (an event with a null in its key is in none, and begins nothing), and those
        of the runs that wait for one of its values."""
        if index.awaited is not None:
            value, kind = self.run.event_value(index.awaited.attribute)
            w(f"wanted{index.suffix} = {key_part(value, kind, index.awaited.as_float)}")
            index.find(w, index.at, self._parts(index, f"wanted{index.suffix}"))
            return

        def outside() -> None:
            w("events += 1")
            self.absences.push(w, outside_partitions=True)

        self.key_of_event(w, outside)
        index.find(w, index.at, self._parts(index))

    def _parts(self, index: RunIndex, wanted: str | None = None) -> list[str]:
        return [f"key{i}" for i in range(len(index.key))] + ([wanted] if wanted is not None else [])

    # --- the runs of one component ------------------------------------------------------------------------------------

    def _state(self, w: Writer, s: int) -> None:
        """What the event does with the runs at a component; those that do not go on leave their list:

        while r != EMPTY:
            following = run[r + NEXT]
            ...
            r = following
        """
        component = self.run.components[s]
        reachable = self.reachable(s)
        bits = sum({1 << self.run.components[j].step.begin for j, _ in reachable})
        if component.takes and component.step.take is not None:
            bits |= 1 << component.step.take
        index = self._index_of(s)
        conditions = [f"{index.count()} > 0"]
        if not self.compared:
            conditions.append(f"bits & np.uint64({bits}) != 0")
        with w.block(f"if {' and '.join(conditions)}:  # runs at component {s}"):
            w(f"head = {index.head(s)}", f"previous, r = EMPTY, {index.name}[head]")
            with w.block("while r != EMPTY:"):
                w("following = run[r + NEXT]", "visited += 1")
                if self.plan.window is not None:
                    w("keep = m - run[r + BEGAN] <= limit")
                with w.when([] if self.plan.window is None else ["keep"]):
                    self.edges(w, s, reachable)
                with w.block("if keep:"):
                    w("previous = r")
                with w.block("else:"):
                    with w.block("if previous == EMPTY:"):
                        w(f"{index.name}[head] = following")
                    with w.block("else:"):
                        w("run[previous + NEXT] = following")
                    w("run[r + NODE] = EMPTY", "run[r + NEXT] = free", "free = r")
                    w("live -= RUN_SIZE", f"{index.count()} -= 1")
                w("r = following")
        if self.contiguous and not self.compared:
            with w.block(f"elif {index.count()} > 0:"):
                self._release(w, s)

    def _release(self, w: Writer, s: int) -> None:
        """End all runs at a component: `free, released = release(index, at + 2, run, free)`."""
        index = self._index_of(s)
        w(f"free, released = release({index.name}, {index.head(s)}, run, free)")
        w("live -= released * RUN_SIZE", f"{index.count()} -= released")

    # --- new runs and matches -----------------------------------------------------------------------------------------

    def record(self, w: Writer, at: int, to: int, source: Source) -> None:
        began, before = self._origin(at)
        if self.absences.trailing(to):
            self.absences.postpone(w, to, before, began, source)
            return
        place = "founds"
        if self.exclusive:
            place = "candidate"
            w("candidate = founds + FOUND_SIZE if chosen else founds")
        w(f"found[{place} + BEFORE] = {before}", f"found[{place} + LAST_ROW] = row")
        w(f"found[{place} + LAST_STEP] = {to}")
        w(f"found[{place} + FLOOR] = {'ALWAYS' if self.plan.window is None else 'm - limit'}")
        if not self.exclusive:
            w("founds += FOUND_SIZE")
            return
        with w.block("if chosen and precedes(node, found, candidate, founds):"), w.block("for i in range(FOUND_SIZE):"):
            w("found[founds + i] = found[candidate + i]")
        w("chosen = True")

    def _exclude(self, w: Writer) -> None:
        """The first match to complete ends every run of its partition that overlaps it, which are all there are."""
        with w.block("if chosen:"):
            w("founds += FOUND_SIZE")
            for state in self.states:
                with w.block(f"if {self.indexes[0].count()} > 0:"):
                    self._release(w, state)

    def arrive(self, w: Writer, at: int, to: int) -> None:
        if self._waits_as_one(to):
            self._join_waiting(w, at, to)
            return
        self._unless_null(
            w, to, of_new, lambda: self._merge_or(w, to, of_new, at == NOWHERE, lambda: self._add(w, at, to))
        )

    def change(self, w: Writer, s: int, changed: list[Value], source: Source) -> None:
        """The run stays in its list, changed, unless it is merged into another. Where it may go on without the event
        too, or waits for another value, and so in another list, a new one takes the event."""
        awaited = self._index_of(s).awaited
        if self._waits_as_one(s):
            self._change_in_place(w, s, changed)
            return
        if not self.compared and (awaited is None or awaited.value not in changed):
            self._merge_or(w, s, source, False, lambda: self._change_in_place(w, s, changed), "r")
            return

        def add() -> None:
            for value in self.run.live(s):
                if value not in changed:
                    w(f"{of_new(value)} = {self.run.of_run(value)}")
            self._add(w, s, s)
            same_list = "" if awaited is None else f" and to == {self._index_of(s).at}"
            with w.block(f"if previous == EMPTY{same_list}:"):
                w("previous = q")

        self._unless_null(w, s, source, lambda: self._merge_or(w, s, source, False, add))

    def _change_in_place(self, w: Writer, s: int, changed: list[Value]) -> None:
        for value in changed:
            self.store(w, "r", value)
        w(f"add_node(node, nodes, row, {s}, run[r + NODE], run[r + BEGAN])")
        w("run[r + NODE] = nodes", "nodes += NODE_SIZE", "keep = True")

    def _unless_null(self, w: Writer, state: int, source: Source, then: Callable[[], None]) -> None:
        awaited = self._index_of(state).awaited
        if awaited is None:
            then()
            return
        never = is_null(source(awaited.value), self.run.kinds[awaited.value.column])
        with w.block(f"if not ({never}):  # what equals null never comes"):
            then()

    def _add(self, w: Writer, at: int, to: int) -> None:
        """A new run `q` at component `to`, with the values just computed:

        run[q + BEGAN] = run[r + BEGAN]
        run[q + NODE] = nodes
        add_node(node, nodes, row, 1, run[r + NODE], run[r + BEGAN])
        """
        index = self._index_of(to)
        began, before = self._origin(at)
        with w.block("if live < top:"):
            w("q = free", "free = run[q + NEXT]")
        with w.block("else:"):
            w("q = top", "top += RUN_SIZE")
        w("live += RUN_SIZE", f"run[q + BEGAN] = {began}", "run[q + NODE] = nodes")
        for value in self.run.live(to):
            self.store(w, "q", value)
        w(f"add_node(node, nodes, row, {to}, {before}, {began})", "nodes += NODE_SIZE")
        slot = index.at
        if index.awaited is not None:
            slot = "to"
            value = index.awaited.value
            wanted = key_part(of_new(value), self.run.kinds[value.column], index.awaited.as_float)
            index.find(w, slot, self._parts(index, wanted))
            index.occupy(w, slot, self._parts(index, wanted))
        elif at == NOWHERE or self._index_of(at) is not index:
            index.occupy(w, slot, self._parts(index))
            if index.knows_place:
                w(f"{index.place()} = m")
        head = index.head(to, slot)
        w(f"run[q + NEXT] = {index.name}[{head}]", f"{index.name}[{head}] = q", f"{index.count(slot)} += 1")

    def _origin(self, at: int) -> tuple[str, str]:
        """Where the run that comes of `r`, or of nothing, began, and the node that its event follows."""
        return ("m", "EMPTY") if at == NOWHERE else ("run[r + BEGAN]", "run[r + NODE]")

    # --- merging ------------------------------------------------------------------------------------------------------

    def _waits_as_one(self, state: int) -> bool:
        """Whether all runs of a partition that wait at a component are one: none of their events matters any more, so
        they have the same future whenever they came. However many there are, an event then looks at one. Where an event
        must be absent it matters when they came."""
        index = self._index_of(state)
        without_past = not self.run.live(state) and not self.absences.all
        return self.merges and not self.compared and index.awaited is None and without_past

    def _join_waiting(self, w: Writer, at: int, to: int) -> None:
        """The new run joins the one that waits at the component, or is the first to wait there."""
        index = self._index_of(to)
        w(f"q = {index.name}[{index.head(to)}]")
        with w.block("if q != EMPTY:"):
            self._unite(w, at, to)
        with w.block("else:"):
            self._add(w, at, to)

    def _unite(self, w: Writer, at: int, to: int) -> None:
        """Merge the new run into the run `q`:

        add_union(node, nodes, row, 1, run[r + NODE], run[r + BEGAN], run[q + NODE], run[q + BEGAN])
        """
        began, before = self._origin(at)
        w(f"add_union(node, nodes, row, {to}, {before}, {began}, run[q + NODE], run[q + BEGAN])")
        self._lead_to_last_node(w)

    def _lead_to_last_node(self, w: Writer) -> None:
        w("run[q + NODE] = nodes", "run[q + BEGAN] = node[nodes + BEGAN]", "nodes += NODE_SIZE", "merged += 1")

    def _differing(self, state: int) -> list[Value]:
        """The values in which runs that an event brings into a state can differ."""
        return [v for v in self.run.live(state) if not self.run.is_fresh(v, state)]

    def _can_meet(self, state: int) -> bool:
        """Whether one event can bring several runs into a state."""
        return self.merges and (state > 0 or self.run.components[state].takes)

    def _merges_by_target(self, state: int) -> bool:
        return self._can_meet(state) and not self._differing(state)

    def _hashed_merges(self) -> bool:
        return any(self._can_meet(s) and self._differing(s) for s in self.states)

    def _merge_or(
        self, w: Writer, state: int, source: Source, starts: bool, otherwise: Callable[[], None], run: str = "q"
    ) -> None:
        if not self._can_meet(state):
            otherwise()
            return
        if self._merges_by_target(state):
            w(f"q = target{state}")
        else:
            self._look_for_equal(w, state, source)
        with w.block("if q != EMPTY:"):
            if starts:
                self._unite(w, NOWHERE, state)
            else:
                w("join(node, run[q + NODE], run[r + NODE], nodes)")
                self._lead_to_last_node(w)
        with w.block("else:"):
            otherwise()
            if self._merges_by_target(state):
                w(f"target{state} = {run}")
            else:
                w("meet[place] = stamp", f"meet[place + 1] = {run}")

    def _look_for_equal(self, w: Writer, state: int, source: Source) -> None:
        """A run that the event has already brought into the state with the same values: `q`, if there is one; `place`
        is where it is remembered, or will be:

        while q == EMPTY and meet[place] == stamp:
            if run[meet[place + 1] + FIRST0_1] == new_first0_1:
                q = meet[place + 1]
        """
        differing = self._differing(state)
        parts = [self.run.as_held(value, source(value)) for value in differing]
        w(f"stamp = row * {len(self.states)} + {self.states.index(state)}", "q = EMPTY")
        w(f"place = 2 * first_slot({mixed(parts)}, meet.shape[0] // 2)")
        with w.block("while q == EMPTY and meet[place] == stamp:"):
            equal = [f"run[meet[place + 1] + {field(v)}] == {part}" for v, part in zip(differing, parts, strict=True)]
            with w.block(f"if {' and '.join(equal)}:"):
                w("q = meet[place + 1]")
            with w.block("else:"):
                w("place = (place + 2) % meet.shape[0]")
