"""NFA^b runs (SASE+ §3-§5) under strict contiguity, partition contiguity and skip till next match.

A run is at one component, in the list of its partition and component. An event visits only the lists of its own
partition whose edges its mask allows. So runs that wait for a rare event cost nothing until it occurs, and under
contiguity a whole list ends at once. A run carries the values that its later edges read (`run_vector`) and a pointer
into the shared match buffer (`run_store`).

Runs that an event brings into the same state with the same values are merged (§5.2.2). Runs that the event did not
change are not compared: equal runs act alike, so they meet when they act again.

Completed runs are recorded as pointers into the buffer. When the record is full, their matches are written, arrays
grow, and nodes that no later match can contain are reclaimed.

Options: `merge` on | off, `algorithm` basic | backtrack (§5.2.3, see `backtrack`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from cepheid.codegen.builder import Writer
from cepheid.codegen.scalar import is_known, key_part, mixed
from cepheid.kernels import instance_stack
from cepheid.kernels.exclusion import exclusive, may_wait
from cepheid.kernels.runs import run_store
from cepheid.kernels.runs.backtrack import Backtrack
from cepheid.kernels.runs.edges import OWN_COUNTERS, RunEdges
from cepheid.kernels.runs.run_index import Awaited, RunIndex, awaited_by
from cepheid.kernels.runs.run_vector import field, of_new
from cepheid.kernels.runs.variables import (
    EVENT,
    FIELD,
    FLOOR,
    KEEP,
    NEW_RUN,
    OLDEST,
    PREVIOUS,
    RUN,
    START,
    WORK,
    Completed,
    Node,
    Row,
    Run,
    Waiting,
    key_variable,
)
from cepheid.kernels.state_vector import NOWHERE, Source, Value
from cepheid.pattern import Strategy, partition_attributes
from cepheid.physical import Options, Plan
from cepheid.runtime import prefetch
from cepheid.runtime.kernel import FREE, Kernel, State, StateArray

OPTIONS: Options = {"algorithm": ("basic", "backtrack"), "merge": ("on", "off")}


def kernel(plan: Plan) -> Kernel:
    """The kernel; for non-overlapping output, where matches wait or partitions do not hold whole matches, one that
    chooses among the matches of another without that output."""
    is_whole = set(partition_attributes(plan.query)) == set(plan.key) or plan.query.strategy is Strategy.STRICT
    if plan.query.non_overlapping and (may_wait(plan) or not is_whole):
        all_matches = replace(plan.query, non_overlapping=False, output=None, limit=None)
        return exclusive(plan, kernel(replace(plan, query=all_matches)))
    options = plan.forced(OPTIONS)
    algorithm: type[RunEdges] = Backtrack if options["algorithm"] == "backtrack" else _Basic
    return replace(algorithm(plan, options).kernel(), in_order=algorithm is not Backtrack)


def own_counters(state: State) -> dict[str, int]:
    return {name: int(state[0][FREE + i]) for i, name in enumerate(OWN_COUNTERS)}


_FEW_NODES = 256
"""Nodes are reclaimed only if there are more."""
_MEET = "meet"
"""The hash table of the runs that the current event has brought into a state."""


class _Basic(RunEdges):
    """§5.2.1 and §5.2.2: all runs side by side, equal ones merged."""

    def __init__(self, plan: Plan, options: Mapping[str, str]) -> None:
        super().__init__(plan, options)
        self.indexes = self._indexes()
        # A match that waits for its window to pass has a window of its own, and non-overlapping output chooses a match
        # by its events: both distinguish runs that merging would make one.
        self.merges = options["merge"] == "on" and not self.absences.waits and not self.exclusive

    def _indexes(self) -> list[RunIndex]:
        """The main index, and those of the states that wait for a value. Where an event concerns all runs of its
        partition, these are all in the main one."""
        stores_measure = self.plan.counts_events and bool(self.key)
        awaited: dict[int, Awaited] = {}
        if not (self.contiguous or self.exclusive or stores_measure):
            for s in self.states:
                if (value := awaited_by(self.run, s, [j for j, _ in self.reachable(s)])) is not None:
                    awaited[s] = value
        main = RunIndex(0, self.key, None, tuple(s for s in self.states if s not in awaited), stores_measure)
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
        durations = [run_store.IMPORT_DURATIONS] if self.from_start else []
        return [run_store.IMPORTS, *durations, *stacks, "", *self.fields(run_store.RUN_SIZE), *self.absences.offsets()]

    def body(self, w: Writer) -> None:
        w(f"{WORK} = 2")
        self.absences.begin(w)
        with self.interrupted_loop(w, EVENT, "time.shape[0]"):
            self._event(w)

    def older(self, w: Writer) -> None:
        if self.absences.waits:
            with w.block(f"for i in range({Waiting.used}):"):
                w(f"{OLDEST} = min({OLDEST}, {Waiting(f'{Waiting.due_item}[i]').last_row})")

    def tables(self) -> list[StateArray]:
        run_size = run_store.RUN_SIZE + len(self.run.all_values())
        arrays = [
            StateArray(Node.array, "int64", 64 * run_store.NODE_SIZE, width=run_store.NODE_SIZE),
            StateArray(Completed.array, "int64", 256 * run_store.FOUND_SIZE),
            StateArray(Run.array, "int64", 16 * run_size, width=run_size),
        ]
        for index in self.indexes:
            slots = 16 if index.parts else 1
            arrays.append(StateArray(index.name, "int64", slots * index.stride, fill=-1, width=index.stride))
        if self._hashed_merges():
            arrays.append(StateArray(_MEET, "int64", 64, fill=-1))
        return [*arrays, *self.absences.arrays()]

    # --- between events -----------------------------------------------------------------------------------------------

    def make_room(self, w: Writer) -> None:
        """Write the matches, reclaim unreachable nodes and expired runs, and grow arrays:

        values, bounds, written, ends, problem = write_matches(found, founds, 2, node, values, bounds, ...)
        node = grown(node, 3 * nodes + 4 * work * NODE_SIZE)

        All assignments of arrays are here, outside the loop over events: an array that is assigned in a loop makes
        Numba count references in each iteration. `work` bounds the runs that the next event can visit."""
        for register in (Node.used, Run.free, Run.used, Run.top):
            self.register(register)
        w("# write the matches, reclaim unused nodes, and make room for the next events")
        if self.absences.waits:
            self.absences.decide(w)
        self.write_matches(w)
        Completed.grow(w, f"{self.most} * {WORK} * {Completed.size}")
        w(f"{FLOOR} = ALWAYS")
        if self.plan.window is not None:
            with w.block(f"if {START} < time.shape[0]:"):
                w(f"{FLOOR} = measure[{START}] - limit")
            if not self.plan.counts_events:
                with w.block("elif time.shape[0] == 0:"):
                    w(f"{FLOOR} = max(now, limit + ALWAYS) - limit")
        # Most nodes are then unreachable or new, so the amortized cost of reclaiming a node is constant.
        kept = self.register("kept")
        due = f"time.shape[0] == 0 or {Node.used} > 3 * {kept} + {_FEW_NODES} * {Node.size}"
        with w.block(f"if {due} or {self._is_full(Node)} or {self._is_full(Run)}:"):
            self._reclaim(w)
            w(f"{kept} = {Node.used}")
            Node.grow(w, f"3 * {Node.used} + {2 * self.most} * {WORK} * {Node.size}")
            Run.grow(w, f"2 * {Run.used} + {self.most} * {WORK} * {Run.size}")
            if self._hashed_merges():
                w(f"{_MEET} = met_before({_MEET}, {Run.array}.shape[0] // {Run.size})")
        self.absences.make_room(w)
        for index in self.indexes:
            if index.parts:
                self.register(index.used)
            index.make_room(w, self._inserts(index))
        if self.indexes[0].key:
            w(f"far = time.shape[0] if {self.indexes[0].name}.shape[0] > {prefetch.FAR} else 0")

    def _inserts(self, index: RunIndex) -> str:
        """How many keys an event can add to an index: its own, or one for each run that it makes."""
        return "1" if index.awaited is None else f"{self.most} * {WORK}"

    def _reclaim(self, w: Writer) -> None:
        w(f"peak_retained = max(peak_retained, {Node.used} // {Node.size})")
        self.start_marking(w)
        for index in self.indexes:
            w(f"{Run.free}, dropped = sweep({index.layout}, {FLOOR}, limit, {Run.array}, {Run.free}, marks)")
            w(f"{Run.used} -= dropped * {Run.size}")
        waiting = f"{Waiting.array}, {Waiting.due_item}, {Waiting.used}"
        if self.absences.waits:
            w(f"mark_waiting({waiting}, marks)")
        self.compact(w)
        if self.absences.waits:
            w(f"forward_waiting({waiting}, marks)")

    def _is_full(self, row: type[Row]) -> str:
        """Whether what the next event can add does not fit. A merge adds two nodes."""
        return row.is_full(f"{(2 if row is Node else 1) * self.most} * {WORK}")

    # --- one event ----------------------------------------------------------------------------------------------------

    def _event(self, w: Writer) -> None:
        self._look_ahead(w)
        w(f"{EVENT.bits} = mask[{EVENT}]")
        if self.from_start:
            w(f"{EVENT.measure} = measure[{EVENT}]")
            self.begin_of_event(w)
        if not self.contiguous:
            with w.block(f"if {EVENT.bits} & np.uint64({self._relevant_bits()}) == 0:"):
                w("events += 1", "dropped_by_mask += 1", "continue")
        if self.absences.all:
            with w.block(f"if {' or '.join(self.absences.full())}:"):
                self.interrupt(w, EVENT)
        for index in self.indexes:
            self._find_slot(w, index)
        w(f"{WORK} = {' + '.join(index.count() for index in self.indexes)} + {2 * len(self.indexes)}")
        full = [self._is_full(row) for row in (Node, Run, Completed)]
        full += [index.is_full(self._inserts(index)) for index in self.indexes if index.parts]
        if self.absences.waits:
            full.append(f"{Waiting.used} + {self.most} * {WORK} > {Waiting.due}.shape[0]")
        with w.block(f"if {' or '.join(full)}:"):
            self.interrupt(w, EVENT)
        w("events += 1", f"{EVENT.measure} = measure[{EVENT}]", f"{EVENT.row} = first + {EVENT}")
        for state in self.states:
            if self._merges_by_target(state) and not self._waits_as_one(state):
                w(f"{_target(state)} = EMPTY")
        if self.exclusive:
            w("chosen = False")
        self.absences.latest(w)
        if self.indexes[0].stores_measure:
            with w.block(f"if {self.indexes[0].count()} > 0:"):
                w(f"{self.indexes[0].measure()} = {EVENT.measure}")
        for state in reversed(self.states):
            self._state(w, state)
        self.start(w)
        if self.exclusive:
            self._exclude(w)
        self.absences.push(w)

    def _look_ahead(self, w: Writer) -> None:
        """Prefetch the slots of the partitions of later events, then the first runs of these partitions:

        if e + 8 < far:
            prefetch(index, first_slot(column0[e + 8], slots) * 4)
        """
        index = self.indexes[0]
        if index.key:
            w("# ask for what later events will look at, so that it is there in time")
            for distance in (prefetch.AHEAD, prefetch.SOON):
                wanted = (
                    "" if self.contiguous else f" and mask[{EVENT} + {distance}] & np.uint64({self._relevant_bits()})"
                )
                slot = index.first([self._later_part(name, distance) for name in index.key])
                with w.block(f"if {EVENT} + {distance} < far{wanted}:"):
                    if distance == prefetch.AHEAD:
                        w(f"prefetch({index.name}, {slot})")
                        continue
                    w(f"later = {slot}")
                    for state in index.states:
                        w(f"prefetch({Run.array}, {index.name}[{index.head(state, 'later')}])")

    def _later_part(self, name: str, distance: int) -> str:
        return key_part(self.builder.column(name, f"{EVENT} + {distance}"), self.plan.columns[name])

    def _relevant_bits(self) -> int:
        return self.builder.bits_of(self.plan.steps)

    def _find_slot(self, w: Writer, index: RunIndex) -> None:
        """The slot of the event's partition (an event with a null in its key is in none, and begins nothing), and those
        of the runs that wait for one of its values."""
        if index.awaited is not None:
            value, kind = self.run.event_value(index.awaited.attribute)
            wanted = f"wanted{index.number or ''}"
            w(f"{wanted} = {key_part(value, kind, index.awaited.as_float)}")
            index.find(w, index.at, self._parts(index, wanted))
            return

        def outside() -> None:
            w("events += 1")
            self.absences.push(w, outside_partitions=True)

        self.key_of_event(w, outside)
        index.find(w, index.at, self._parts(index))

    def _parts(self, index: RunIndex, wanted: str | None = None) -> list[str]:
        return [key_variable(i) for i in range(len(index.key))] + ([wanted] if wanted is not None else [])

    # --- the runs of one component ------------------------------------------------------------------------------------

    def _state(self, w: Writer, s: int) -> None:
        """The edges of the runs at a component, and their removal from the list when they end:

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
            conditions.append(f"{EVENT.bits} & np.uint64({bits}) != 0")
        with w.block(f"if {' and '.join(conditions)}:  # runs at component {s}"):
            w(f"head = {index.head(s)}", f"{PREVIOUS}, {RUN} = EMPTY, {index.name}[head]")
            with w.block(f"while {RUN} != EMPTY:"):
                w(f"following = {RUN.next}", "visited += 1")
                if self.plan.window is not None:
                    w(f"{KEEP} = {EVENT.measure} - {RUN.began} <= limit")
                with w.when([] if self.plan.window is None else [KEEP]):
                    self.edges(w, s, reachable)
                with w.block(f"if {KEEP}:"):
                    w(f"{PREVIOUS} = {RUN}")
                with w.block("else:"):
                    with w.block(f"if {PREVIOUS} == EMPTY:"):
                        w(f"{index.name}[head] = following")
                    with w.block("else:"):
                        w(f"{PREVIOUS.next} = following")
                    self.free_run(w, index)
                w(f"{RUN} = following")
        if self.contiguous and not self.compared:
            with w.block(f"elif {index.count()} > 0:"):
                self._release(w, s)

    def _release(self, w: Writer, s: int) -> None:
        """End all runs at a component: `free, released = release(index, at + 2, run, free)`."""
        index = self._index_of(s)
        w(f"{Run.free}, released = release({index.name}, {index.head(s)}, {Run.array}, {Run.free})")
        w(f"{Run.used} -= released * {Run.size}", f"{index.count()} -= released")

    # --- new runs and matches -----------------------------------------------------------------------------------------

    def record(self, w: Writer, at: int, to: int, source: Source) -> None:
        if self.absences.trailing(to):
            self.absences.postpone(w, to, *self.origin(at), source)
            return
        last, candidate = Completed(Completed.used), Completed("candidate")
        if not self.exclusive:
            self.write_completed(w, last, at, to)
            w(f"{last} += {last.size}")
            return
        w(f"{candidate} = {last} + {last.size} if chosen else {last}")
        self.write_completed(w, candidate, at, to)
        with w.block(f"if chosen and precedes({Node.array}, {last.array}, {candidate}, {last}):"):
            Completed.copy(w, last.cell(FIELD), candidate.cell(FIELD))
        w("chosen = True")

    def _exclude(self, w: Writer) -> None:
        """The first match to complete ends every run of its partition that overlaps it, which are all there are."""
        with w.block("if chosen:"):
            w(f"{Completed.used} += {Completed.size}")
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
        """The run stays in its list, changed, unless it is merged into another. Where it may continue without the event
        too, or waits for another value, and so in another list, a new one takes the event."""
        awaited = self._index_of(s).awaited
        if self._waits_as_one(s):
            self.change_in_place(w, s, changed)
            return
        if not self.compared and (awaited is None or awaited.value not in changed):
            self._merge_or(w, s, source, False, lambda: self.change_in_place(w, s, changed), RUN)
            return

        def add() -> None:
            for value in self.run.live(s):
                if value not in changed:
                    w(f"{of_new(value)} = {self.run.of_run(value)}")
            self._add(w, s, s)
            same_list = "" if awaited is None else f" and to == {self._index_of(s).at}"
            with w.block(f"if {PREVIOUS} == EMPTY{same_list}:"):
                w(f"{PREVIOUS} = {NEW_RUN}")

        self._unless_null(w, s, source, lambda: self._merge_or(w, s, source, False, add))

    def _unless_null(self, w: Writer, state: int, source: Source, then: Callable[[], None]) -> None:
        awaited = self._index_of(state).awaited
        if awaited is None:
            then()
            return
        value = awaited.value
        known = self.run.known(value.what, value.component, self.run.names[value.column], source)
        if known is None:
            known = is_known(source(value), self.run.kinds[value.column])
        with w.block(f"if {known}:  # what equals null never comes"):
            then()

    def _add(self, w: Writer, at: int, to: int) -> None:
        """A new run `q` at component `to`, with the values just computed:

        run[q + BEGAN] = run[r + BEGAN]
        run[q + NODE] = nodes
        add_node(node, nodes, row, 1, run[r + NODE], run[r + BEGAN])
        """
        index = self._index_of(to)
        self.allocate_run(w)
        w(f"{NEW_RUN.began} = {self.origin(at)[0]}", f"{NEW_RUN.node} = {Node.used}")
        for value in self.run.live(to):
            self.store(w, NEW_RUN, value)
        self.add_node(w, at, to)
        slot = index.at
        if index.awaited is not None:
            slot = "to"
            value = index.awaited.value
            wanted = key_part(of_new(value), self.run.kinds[value.column], index.awaited.as_float)
            index.find(w, slot, self._parts(index, wanted))
            index.occupy(w, slot, self._parts(index, wanted))
        elif at == NOWHERE or self._index_of(at) is not index:
            index.occupy(w, slot, self._parts(index))
            if index.stores_measure:
                w(f"{index.measure()} = {EVENT.measure}")
        head = f"{index.name}[{index.head(to, slot)}]"
        w(f"{NEW_RUN.next} = {head}", f"{head} = {NEW_RUN}", f"{index.count(slot)} += 1")

    # --- merging ------------------------------------------------------------------------------------------------------

    def _waits_as_one(self, state: int) -> bool:
        """Whether all runs of a partition that wait at a component are merged into one. No later edge reads their
        events, so they have the same future, whenever they arrived; an event visits one run instead of many. With a
        negated component the time of arrival matters."""
        index = self._index_of(state)
        without_past = not self.run.live(state) and not self.absences.all
        return self.merges and not self.compared and index.awaited is None and without_past

    def _join_waiting(self, w: Writer, at: int, to: int) -> None:
        """The new run joins the one that waits at the component, or is the first to wait there."""
        index = self._index_of(to)
        w(f"{NEW_RUN} = {index.name}[{index.head(to)}]")
        with w.block(f"if {NEW_RUN} != EMPTY:"):
            self._unite(w, at, to)
        with w.block("else:"):
            self._add(w, at, to)

    def _unite(self, w: Writer, at: int, to: int) -> None:
        """Merge the new run into the run `q`:

        add_union(node, nodes, row, 1, run[r + NODE], run[r + BEGAN], run[q + NODE], run[q + BEGAN])
        """
        began, before = self.origin(at)
        node = f"{Node.array}, {Node.used}, {EVENT.row}, {to}"
        w(f"add_union({node}, {before}, {began}, {NEW_RUN.node}, {NEW_RUN.began})")
        self._point_to_new_node(w)

    def _point_to_new_node(self, w: Writer) -> None:
        w(f"{NEW_RUN.node} = {Node.used}", f"{NEW_RUN.began} = {Node(Node.used).began}")
        w(f"{Node.used} += {Node.size}", "merged += 1")

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
        self, w: Writer, state: int, source: Source, starts: bool, otherwise: Callable[[], None], run: Run = NEW_RUN
    ) -> None:
        if not self._can_meet(state):
            otherwise()
            return
        if self._merges_by_target(state):
            w(f"{NEW_RUN} = {_target(state)}")
        else:
            self._find_equal(w, state, source)
        with w.block(f"if {NEW_RUN} != EMPTY:"):
            if starts:
                self._unite(w, NOWHERE, state)
            else:
                joined = f"{Node.array}, {NEW_RUN.node}, {RUN.node}, {Node.used}"
                w(f"join_from({joined}, {EVENT.began})" if self.from_start else f"join({joined})")
                self._point_to_new_node(w)
        with w.block("else:"):
            otherwise()
            if self._merges_by_target(state):
                w(f"{_target(state)} = {run}")
            else:
                w(f"{_MEET}[probe] = stamp", f"{_MEET}[probe + 1] = {run}")

    def _find_equal(self, w: Writer, state: int, source: Source) -> None:
        """Find a run that the event has already brought into the state with the same values (`q`, or EMPTY). `probe` is
        its offset in the hash table `meet`, or the offset at which it will be inserted:

        while q == EMPTY and meet[probe] == stamp:
            if run[meet[probe + 1] + FIRST0_1] == new_first0_1:
                q = meet[probe + 1]
        """
        differing = self._differing(state)
        parts = [self.run.as_held(value, source(value)) for value in differing]
        w(f"stamp = {EVENT.row} * {len(self.states)} + {self.states.index(state)}", f"{NEW_RUN} = EMPTY")
        w(f"probe = 2 * first_slot({mixed(parts)}, {_MEET}.shape[0] // 2)")
        with w.block(f"while {NEW_RUN} == EMPTY and {_MEET}[probe] == stamp:"):
            met = Run(f"{_MEET}[probe + 1]")
            equal = [f"{met.cell(field(v))} == {part}" for v, part in zip(differing, parts, strict=True)]
            with w.block(f"if {' and '.join(equal)}:"):
                w(f"{NEW_RUN} = {met}")
            with w.block("else:"):
                w(f"probe = (probe + 2) % {_MEET}.shape[0]")


def _target(state: int) -> str:
    """The run that the event has already brought into a state: `target1`."""
    return f"target{state}"
