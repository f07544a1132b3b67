"""NFA^b runs (SASE+ §3-§5) under strict contiguity, partition contiguity and skip till next match.

A run is at one component, in the list of its partition and component. An event looks only at the lists of its own
partition whose edges it can satisfy by itself (its mask); so runs that wait for a rare event cost nothing until it
comes, and under contiguity a whole list ends at once. A run carries the values that its further edges ask for
(`run_values`) and a pointer into the shared match buffer (`run_store`).

Runs that an event brings into the same state with the same values are merged (§5.2.2). Those that an event left alone
need no look: equal runs act alike, so if they ever act again they meet then.

Matches are recorded as pointers into the buffer while events are read, and written out when the record is full, which
is also when arrays grow and what can no longer be part of a match is reclaimed.

Options: `merge` on | off, `algorithm` basic | backtrack (§5.2.3, see `backtrack`).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from cepheid.codegen.compile import compiled
from cepheid.codegen.scalar import Constants, Term
from cepheid.codegen.writer import Writer
from cepheid.kernels import (
    BOUNDS,
    COUNTERS,
    FREE,
    OLDEST,
    VALUES,
    Kernel,
    State,
    StateArray,
    instance_stack,
    run_store,
)
from cepheid.kernels.run_absences import Absences
from cepheid.kernels.run_index import Awaited, RunIndex, awaited_by
from cepheid.kernels.run_values import NOWHERE, Computation, Source, Value
from cepheid.pattern import Strategy, partition_attributes
from cepheid.physical import Kind, Plan

DEFAULTS: Mapping[str, str] = {"algorithm": "basic", "merge": "on"}

OWN_COUNTERS = ("merged", "visited")
"""Runs merged into others, and runs that an event looked at: the first registers after the common ones."""

_HELPERS = (
    run_store.add_node,
    run_store.as_float,
    run_store.compact,
    run_store.drop_expired,
    run_store.first_slot,
    run_store.forward_runs,
    run_store.forward_waiting,
    run_store.join,
    run_store.mark_runs,
    run_store.mark_waiting,
    run_store.met_before,
    run_store.precedes,
    run_store.rehashed_index,
    run_store.release,
    run_store.slot_in,
    run_store.unite,
    run_store.write_matches,
)
_IMPORTS = f"""from cepheid.kernels.run_store import (
    ALWAYS, BEFORE, BEGAN, FLOOR, FOUND_SIZE, LAST_ROW, LAST_STEP, NEXT, NODE, NODE_SIZE, ROW, UNREACHED,
    {", ".join(helper.__name__ for helper in _HELPERS)},
)
"""


def kernel(plan: Plan) -> Kernel:
    generator = _Generator(plan, {**DEFAULTS, **{k: str(v) for k, v in plan.options.items()}})
    source = generator.source()
    column_types = tuple("float64" if kind is Kind.FLOAT else "int64" for kind in plan.columns.values())
    arguments = ["int", "int", "int64", "int64", "uint64", "int64", "int64", "float64", *column_types]
    arguments += [f"{array.dtype}!" for array in generator.arrays] + ["int64!", "int64!"]
    return Kernel(
        plan=plan,
        source=source,
        function=compiled(source, arguments),
        arrays=tuple(generator.arrays),
        numbers=np.array(generator.constants.numbers, np.float64),
        steps=tuple(component.step.var for component in generator.run.components),
        column_types=column_types,
        has_bounds=True,
        texts=tuple(generator.constants.texts),
        needs_ranks="ranks[" in source,
    )


def own_counters(state: State) -> dict[str, int]:
    return {name: int(state[0][FREE + i]) for i, name in enumerate(OWN_COUNTERS)}


class _Generator:
    def __init__(self, plan: Plan, options: Mapping[str, str]) -> None:
        self.plan = plan
        self.options = options
        self.registers = list(OWN_COUNTERS)
        self.arrays: list[StateArray] = []
        self.constants = Constants([float(plan.window or 0)])
        strategy = plan.query.strategy
        partition = partition_attributes(plan.query)
        self.contiguous = strategy is not Strategy.NEXT_MATCH
        # Where not all events of a run are in one partition, contiguity has to look at every run.
        self.compared = partition if strategy is Strategy.PARTITION and set(partition) != set(plan.key) else ()
        key = () if strategy is Strategy.STRICT or self.compared else tuple(n for n in plan.key if n in plan.columns)
        self.run = Computation(self.plan, key, self.constants)
        self.states = [c.index for c in self.run.components if c.index < self.run.last or c.takes]
        self.most = len(self.states) + 1
        """How many runs, at most, an event makes of one."""
        for name in self.compared:
            self.run.keep(Value("origin", NOWHERE, self.run.column[name]), self.run.last)
        self.absences = Absences(plan, self.run, self._register, self.most)
        self.exclusive = plan.query.non_overlapping
        self.indexes = self._indexes(key)
        self.run_size = run_store.RUN_SIZE + len(self.run.all_values())
        # A match that waits for its window to pass has a window of its own, and of matches that exclude each other one
        # is chosen by its events: both have to know one run from another.
        self.merges = options["merge"] == "on" and not self.absences.waits and not self.exclusive

    def _indexes(self, key: tuple[str, ...]) -> list[RunIndex]:
        """The main index, and those of the states that wait for a value. Where an event concerns all runs of its
        partition, these are all in the main one."""
        knows_place = self.plan.counts_events and bool(key)
        awaited: dict[int, Awaited] = {}
        if not (self.contiguous or self.exclusive or knows_place):
            for s in self.states:
                if (found := awaited_by(self.run, s, [j for j, _ in self._reachable(s)])) is not None:
                    awaited[s] = found
        main = RunIndex(0, key, None, tuple(s for s in self.states if s not in awaited), knows_place)
        others = [RunIndex(i, key, value, (s,), False) for i, (s, value) in enumerate(awaited.items(), 1)]
        return [main, *others]

    def _index_of(self, state: int) -> RunIndex:
        return next(index for index in self.indexes if state in index.states)

    # --- the function -------------------------------------------------------------------------------------------------

    def source(self) -> str:
        events = Writer()
        with events.block("for e in range(start, time.shape[0]):"):
            self._event(events)
        body = Writer()
        with body.block("while True:"):
            self._make_room(body)
            with body.block("if start == time.shape[0]:"):
                body("break")
            body("stop = time.shape[0]")
            body.lines.extend("    " + line if line else "" for line in events.lines)
            body("start = stop")
        # When a match that waits is decided there may be no events, and so nothing that says what strings mean.
        remembers = self.absences.waits and any("ranks[" in line or "texts[" in line for line in body.lines)
        self._declare_arrays(remembers)
        names = [array.name for array in self.arrays]
        given = ["given_texts", "given_ranks"] if remembers else ["texts", "ranks"]
        columns = [f"column{i}" for i in range(len(self.plan.columns))]
        parameters = ["now", "first", "time", "measure", "mask", *given, "numbers", *columns, *names]
        out = Writer()
        with out.block(f"def step({', '.join([*parameters, 'values', 'bounds'])}):"):
            out("limit = np.int64(numbers[0])")
            for number, name in self._numbered_registers():
                out(f"{name} = reg[{number}]")
            out("written = ends = founds = start = 0", "work = 2")
            if remembers:
                with out.block("if time.shape[0] > 0:"):
                    out("texts, ranks = given_texts.copy(), given_ranks.copy()")
            self.absences.begin(out)
            out.lines.extend("    " + line if line else "" for line in body.lines)
            out(f"matches += ends // {len(self.run.components)}")
            for number, name in self._numbered_registers():
                out(f"reg[{number}] = {name}")
            out(f"reg[{VALUES}] = written", f"reg[{BOUNDS}] = ends")
            self._write_oldest(out)
            out(f"return {', '.join([*names, 'values', 'bounds'])}")
        imports = f"{_IMPORTS}{instance_stack.IMPORTS}\n\n" if self.absences.all else f"{_IMPORTS}\n"
        return imports + self._fields() + "\n\n" + out.text()

    def _write_oldest(self, w: Writer) -> None:
        with w.block("if time.shape[0] > 0:"):
            w("oldest = node[ROW] if nodes > 0 else first + time.shape[0]")
            if self.absences.waits:
                with w.block("for i in range(waits):"):
                    w("oldest = min(oldest, waiting[due_item[i] + LAST_ROW])")
            w(f"reg[{OLDEST}] = oldest")

    def _fields(self) -> str:
        """Where a run's values lie, as constants of the generated module."""
        lines = [f"{value.field} = {run_store.RUN_SIZE + i}" for i, value in enumerate(self.run.all_values())]
        lines += [f"RUN_SIZE = {self.run_size}", *self.absences.offsets()]
        return "".join(f"{line}\n" for line in lines)

    def _numbered_registers(self) -> list[tuple[int, str]]:
        return [*enumerate(COUNTERS), *((FREE + i, name) for i, name in enumerate(self.registers))]

    def _register(self, name: str) -> str:
        if name not in self.registers:
            self.registers.append(name)
        return name

    def _declare_arrays(self, remembers: bool) -> None:
        arrays = [StateArray("reg", "int64", FREE + len(self.registers))]
        arrays.append(StateArray("node", "int64", 64 * run_store.NODE_SIZE))
        arrays.append(StateArray("found", "int64", 256 * run_store.FOUND_SIZE))
        arrays.append(StateArray("run", "int64", 16 * self.run_size))
        for index in self.indexes:
            slots = 16 if index.parts else 1
            arrays.append(StateArray(index.name, "int64", slots * index.stride, fill=-1))
        if self._hashed_merges():
            arrays.append(StateArray("meet", "int64", 64, fill=-1))
        if remembers:
            arrays += [StateArray("texts", "int64", 0), StateArray("ranks", "int64", 0)]
        self.arrays = [*arrays, *self.absences.arrays()]

    # --- between events -----------------------------------------------------------------------------------------------

    def _make_room(self, w: Writer) -> None:
        """Everything that assigns arrays is here, outside the loop over events: an array that is assigned in a loop
        makes Numba count references at every turn. `work` bounds the runs that the next event can look at."""
        for register in ("nodes", "free", "live", "top"):
            self._register(register)
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
        with w.block(f"if start == 0 or {self._short_of('node', 'nodes')} or {self._short_of('run', 'live')}:"):
            self._reclaim(w)
            w(f"node = grown(node, 2 * nodes + {2 * self.most} * work * NODE_SIZE)")
            w(f"run = grown(run, 2 * live + {self.most} * work * RUN_SIZE)")
            if self._hashed_merges():
                w("meet = met_before(meet, run.shape[0] // RUN_SIZE)")
        self.absences.make_room(w)
        for index in self.indexes:
            if index.parts:
                self._register(f"used{index.suffix}")
            index.make_room(w, self._inserts(index))

    def _inserts(self, index: RunIndex) -> str:
        """How many keys an event can add to an index: its own, or one for each run that it makes."""
        return "1" if index.awaited is None else f"{self.most} * work"

    def _reclaim(self, w: Writer) -> None:
        w("peak_retained = max(peak_retained, nodes // NODE_SIZE)")
        if self.plan.window is not None:
            for index in self.indexes:
                w(
                    f"free, dropped = drop_expired({index.layout}, floor, limit, run, free)",
                    "live -= dropped * RUN_SIZE",
                )
        w("marks = np.full(nodes // NODE_SIZE, UNREACHED, np.int64)")
        for index in self.indexes:
            w(f"mark_runs({index.layout}, floor, limit, run, marks)")
        if self.absences.waits:
            w("mark_waiting(waiting, due_item, waits, marks)")
        w("nodes = compact(node, marks)")
        for index in self.indexes:
            w(f"forward_runs({index.layout}, run, marks)")
        if self.absences.waits:
            w("forward_waiting(waiting, due_item, waits, marks)")

    def _short_of(self, table: str, filled: str) -> str:
        size, times = {"node": ("NODE_SIZE", 2), "run": ("RUN_SIZE", 1), "found": ("FOUND_SIZE", 1)}[table]
        return f"{filled} + {times * self.most} * work * {size} > {table}.shape[0]"

    # --- one event ----------------------------------------------------------------------------------------------------

    def _event(self, w: Writer) -> None:
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
            if self._merges_by_target(state):
                w(f"target{state} = EMPTY")
        if self.exclusive:
            w("chosen = False")
        self.absences.latest(w)
        if self.indexes[0].knows_place:
            with w.block(f"if {self.indexes[0].count()} > 0:"):
                w(f"{self.indexes[0].place()} = m")
        for state in reversed(self.states):
            self._state(w, state)
        self._start(w)
        if self.exclusive:
            self._exclude(w)
        self.absences.push(w)

    def _relevant_bits(self) -> int:
        return sum({1 << bit for step in self.plan.steps for bit in (step.begin, step.take) if bit is not None})

    def _find_slot(self, w: Writer, index: RunIndex) -> None:
        """The slot of the event's partition (an event with a null in its key is in none, and begins nothing), and those
        of the runs that wait for one of its values."""
        if index.awaited is not None:
            term = self.run.event_term(index.awaited.attribute)
            w(f"wanted{index.suffix} = {_key_part(term, index.awaited.as_float)}")
            index.find(w, index.at, self._parts(index, f"wanted{index.suffix}"))
            return
        terms = [self.run.event_term(name) for name in index.key]
        if terms:
            with w.block(f"if {' or '.join(_is_null(term) for term in terms)}:"):
                w("events += 1")
                self.absences.push(w, outside_partitions=True)
                w("continue")
        for i, term in enumerate(terms):
            w(f"key{i} = {_key_part(term, False)}")
        index.find(w, index.at, self._parts(index))

    def _parts(self, index: RunIndex, wanted: str | None = None) -> list[str]:
        return [f"key{i}" for i in range(len(index.key))] + ([wanted] if wanted is not None else [])

    # --- the runs of one component ------------------------------------------------------------------------------------

    def _state(self, w: Writer, s: int) -> None:
        component = self.run.components[s]
        reachable = self._reachable(s)
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
                self._visit(w, s, reachable)
                with w.block("if keep:"):
                    w("previous = r")
                with w.block("else:"):
                    with w.block("if previous == EMPTY:"):
                        w(f"{index.name}[head] = following")
                    with w.block("else:"):
                        w("run[previous + NEXT] = following")
                    w("run[r + NEXT] = free", "free = r", "live -= RUN_SIZE", f"{index.count()} -= 1")
                w("r = following")
        if self.contiguous and not self.compared:
            with w.block(f"elif {index.count()} > 0:"):
                self._release(w, s)

    def _release(self, w: Writer, s: int) -> None:
        index = self._index_of(s)
        w(f"free, released = release({index.name}, {index.head(s)}, run, free)")
        w("live -= released * RUN_SIZE", f"{index.count()} -= released")

    def _visit(self, w: Writer, s: int, reachable: list[tuple[int, list[str]]]) -> None:
        if self.plan.window is not None:
            w("keep = m - run[r + BEGAN] <= limit")
            with w.block("if keep:"):
                self._edges(w, s, reachable)
        else:
            self._edges(w, s, reachable)

    def _edges(self, w: Writer, s: int, reachable: list[tuple[int, list[str]]]) -> None:
        """Take, begin and ignore (§3.2): each that holds is a run of its own. The take comes last, it changes `r`."""
        component = self.run.components[s]
        full = f"{self.run.of_run(Value('taken', s))} >= {component.high}" if component.high is not None else "False"
        if component.takes:
            self._decide(w, "takes", s, s)
            if component.high is not None and s < self.run.last:
                w(f"takes = takes and not {full}")
        for j, conditions in reachable:
            name = "begins" if j == s + 1 else "skips"
            self._decide(w, name, s, j)
            with w.block(f"if {' and '.join([name, *self._proceeds(s, s, self.run.of_run), *conditions])}:"):
                self._advance(w, s, j)
        self._ignore(w, s, full)
        if component.takes:
            with w.block("if takes:"):
                self._take(w, s)

    def _decide(self, w: Writer, name: str, at: int, event: int) -> None:
        """Whether the edge from `at` to `event` holds: a take if they are the same, else a begin."""
        component = self.run.components[event]
        tests = component.take if event == at else component.begin
        bit = component.step.take if event == at else component.step.begin
        assert bit is not None
        w(f"{name} = bits & np.uint64({1 << bit}) != 0")
        if tests:
            with w.block(f"if {name}:"):
                w(f"predicates += {len(tests)}", f"{name} = {self.run.test(tests, at, event, self.run.of_run)}")

    def _ignore(self, w: Writer, s: int, full: str) -> None:
        component = self.run.components[s]
        if self.compared:
            w(f"keep = not ({self._same_partition()})")
        elif self.contiguous:
            w("keep = False")
        elif not component.takes:
            w("keep = not begins")
        elif component.high is None or s == self.run.last:
            w("keep = not takes")
        else:
            w(f"keep = not begins if {full} else not takes")

    def _same_partition(self) -> str:
        """Whether the event is in the partition of the run's first event; those with a null are in one of their own."""
        names = self.compared
        of_event = [self.run.event_term(name) for name in names]
        origins = [Value("origin", NOWHERE, self.run.column[name]) for name in names]
        of_run = [Term(self.run.of_run(value), self.run.kinds[value.column]) for value in origins]
        here, there = (" or ".join(map(_is_null, terms)) for terms in (of_event, of_run))
        equal = " and ".join(f"{a.source} == {b.source}" for a, b in zip(of_event, of_run, strict=True))
        return f"(({here}) and ({there})) or ({equal} and not ({here}))"

    def _reachable(self, at: int) -> list[tuple[int, list[str]]]:
        """The components that a run at `at` can begin next, each with the conditions for leaving out those between."""
        found: list[tuple[int, list[str]]] = []
        conditions: list[str] = []
        for j in range(at + 1, self.run.last + 1):
            found.append((j, list(conditions)))
            component = self.run.components[j]
            if not component.may_be_empty:
                break
            if component.proceed:
                conditions.append(self.run.test(component.proceed, at, None, self.run.of_run))
        return found

    def _proceeds(self, s: int, at: int, source: Source) -> list[str]:
        """The conditions on a component's whole group."""
        component = self.run.components[s]
        conditions: list[str] = []
        if component.low > 1:
            conditions.append(f"{source(Value('taken', s))} >= {component.low}")
        if component.proceed:
            conditions.append(self.run.test(component.proceed, at, None, source))
        return conditions

    # --- new runs -----------------------------------------------------------------------------------------------------

    def _start(self, w: Writer) -> None:
        """Every event may begin a run, at the first component or after some that may be empty."""
        for j, conditions in self._reachable(NOWHERE):
            component = self.run.components[j]
            tests = [*conditions]
            if component.begin:
                tests.append(self.run.test(component.begin, NOWHERE, j, self.run.of_run))
            with w.block(f"if bits & np.uint64({1 << component.step.begin}):  # may begin a run at component {j}"):
                if tests:
                    with w.block(f"if {' and '.join(tests)}:"):
                        self._advance(w, NOWHERE, j)
                else:
                    self._advance(w, NOWHERE, j)

    def _advance(self, w: Writer, at: int, to: int) -> None:
        """The run `r` (none at all, if `at` is nowhere) goes on to begin another component on the event."""

        def go() -> None:
            for value in self.run.live(to):
                carried = self.absences.carried(value, at, to)
                w(f"new_{value.name} = {carried or self.run.begun(value, at, to, self.run.of_run)}")
            self._complete(w, at, to, _of_new)
            w("partial_matches += 1")
            if to not in self.states:
                return
            awaited = self._index_of(to).awaited
            if awaited is None:
                self._merge_or(w, to, _of_new, at == NOWHERE, lambda: self._add(w, at, to))
                return
            with w.block(f"if not ({_is_null(self._wanted(awaited))}):  # what equals null never comes"):
                self._merge_or(w, to, _of_new, at == NOWHERE, lambda: self._add(w, at, to))

        if self.absences.test_at_once(w, at, to, self.run.of_run):
            with w.block("if not spoiled:"):
                go()
        else:
            go()

    def _complete(self, w: Writer, at: int, to: int, source: Source) -> None:
        """Record a match if the run that was at `at` may end at component `to` with the event at hand."""
        rest = self.run.components[to + 1 :]
        if not all(component.may_be_empty for component in rest):
            return
        conditions = self._proceeds(to, to, source)
        conditions += [self.run.test(c.proceed, to, None, source) for c in rest if c.proceed]

        def record() -> None:
            if self.absences.test_complete(w, to, source):
                with w.block("if not spoiled:"):
                    self._record(w, at, to, source)
            else:
                self._record(w, at, to, source)

        if conditions:
            with w.block(f"if {' and '.join(conditions)}:"):
                record()
        else:
            record()

    def _record(self, w: Writer, at: int, to: int, source: Source) -> None:
        began, before = ("m", "EMPTY") if at == NOWHERE else ("run[r + BEGAN]", "run[r + NODE]")
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

    def _add(self, w: Writer, at: int, to: int) -> None:
        """A new run `q` at component `to`, with the values just computed."""
        index = self._index_of(to)
        began, before = ("m", "EMPTY") if at == NOWHERE else ("run[r + BEGAN]", "run[r + NODE]")
        with w.block("if live < top:"):
            w("q = free", "free = run[q + NEXT]")
        with w.block("else:"):
            w("q = top", "top += RUN_SIZE")
        w("live += RUN_SIZE", f"run[q + BEGAN] = {began}", "run[q + NODE] = nodes")
        for value in self.run.live(to):
            self._set(w, "q", value)
        w(f"add_node(node, nodes, row, {to}, {before}, {began})", "nodes += NODE_SIZE")
        slot = index.at
        if index.awaited is not None:
            slot = "to"
            wanted = _key_part(self._wanted(index.awaited), index.awaited.as_float)
            index.find(w, slot, self._parts(index, wanted))
            index.occupy(w, slot, self._parts(index, wanted))
        elif at == NOWHERE or self._index_of(at) is not index:
            index.occupy(w, slot, self._parts(index))
            if index.knows_place:
                w(f"{index.place()} = m")
        head = index.head(to, slot)
        w(f"run[q + NEXT] = {index.name}[{head}]", f"{index.name}[{head}] = q", f"{index.count(slot)} += 1")

    def _wanted(self, awaited: Awaited) -> Term:
        """The value that a new run waits for."""
        return Term(_of_new(awaited.value), self.run.kinds[awaited.value.column])

    def _take(self, w: Writer, s: int) -> None:
        """The run `r` takes the event: it stays in its list, changed, unless it is merged into another."""
        changed: dict[Value, str] = {}
        for value in self.run.live(s):
            if value.component == s and (new := self.run.taken(value, self.run.of_run(value))) is not None:
                changed[value] = new
        for value, new in changed.items():
            w(f"new_{value.name} = {new}")

        def source(value: Value) -> str:
            return _of_new(value) if value in changed else self.run.of_run(value)

        self._complete(w, s, s, source)
        w("partial_matches += 1")

        awaited = self._index_of(s).awaited
        # The run may go on without the event too, or wait for another value, in another list.
        moves = bool(self.compared) or (awaited is not None and awaited.value in changed)

        def change() -> None:
            if moves:
                for value in self.run.live(s):
                    if value not in changed:
                        w(f"new_{value.name} = {self.run.of_run(value)}")
                self._add(w, s, s)
                with w.block(
                    "if previous == EMPTY:"
                    if awaited is None
                    else f"if previous == EMPTY and to == {self._index_of(s).at}:"
                ):
                    w("previous = q")
                return
            for value in changed:
                self._set(w, "r", value)
            w(f"add_node(node, nodes, row, {s}, run[r + NODE], run[r + BEGAN])")
            w("run[r + NODE] = nodes", "nodes += NODE_SIZE", "keep = True")

        def go_on() -> None:
            if moves and awaited is not None:
                with w.block(f"if not ({_is_null(self._wanted(awaited))}):  # what equals null never comes"):
                    self._merge_or(w, s, source, False, change)
            else:
                self._merge_or(w, s, source, False, change, "q" if moves else "r")

        high = self.run.components[s].high
        if s == self.run.last and high is not None:
            with w.block(f"if {source(Value('taken', s))} < {high}:"):
                go_on()
        else:
            go_on()

    # --- merging ------------------------------------------------------------------------------------------------------

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

    def _merge_or(self, w: Writer, state: int, source: Source, starts: bool, otherwise: object, run: str = "q") -> None:
        assert callable(otherwise)
        if not self._can_meet(state):
            otherwise()
            return
        if self._merges_by_target(state):
            w(f"q = target{state}")
        else:
            self._look_for_equal(w, state, source)
        with w.block("if q != EMPTY:"):
            if starts:
                w(f"add_node(node, nodes, row, {state}, EMPTY, m)")
                w("unite(node, nodes + NODE_SIZE, nodes, run[q + NODE])", "nodes += NODE_SIZE")
            else:
                w("join(node, run[q + NODE], run[r + NODE], nodes)")
            w("run[q + NODE] = nodes", "run[q + BEGAN] = node[nodes + BEGAN]", "nodes += NODE_SIZE")
            w("merged += 1")
        with w.block("else:"):
            otherwise()
            if self._merges_by_target(state):
                w(f"target{state} = {run}")
            else:
                w("meet[place] = stamp", f"meet[place + 1] = {run}")

    def _look_for_equal(self, w: Writer, state: int, source: Source) -> None:
        """A run that the event has already brought into the state with the same values: `q`, if there is one; `place`
        is where it is remembered, or will be."""
        differing = self._differing(state)
        parts = [self.run.as_held(value, source(value)) for value in differing]
        hashed = parts[0]
        for part in parts[1:]:
            hashed = f"mixed_key({hashed}, {part})"
        w(f"stamp = row * {len(self.states)} + {self.states.index(state)}", "q = EMPTY")
        w(f"place = 2 * first_slot({hashed}, meet.shape[0] // 2)")
        with w.block("while q == EMPTY and meet[place] == stamp:"):
            equal = [f"run[meet[place + 1] + {v.field}] == {part}" for v, part in zip(differing, parts, strict=True)]
            with w.block(f"if {' and '.join(equal)}:"):
                w("q = meet[place + 1]")
            with w.block("else:"):
                w("place = (place + 2) % meet.shape[0]")

    # --- values of runs -----------------------------------------------------------------------------------------------

    def _set(self, w: Writer, run: str, value: Value) -> None:
        w(f"run[{run} + {value.field}] = {self.run.as_held(value, _of_new(value))}")


def _is_null(term: Term) -> str:
    match term.kind:
        case Kind.INT:
            return f"{term.source} == NULL_INT"
        case Kind.CODE:
            return f"{term.source} == NULL_CODE"
        case _:
            return f"{term.source} != {term.source}"


def _key_part(term: Term, as_float: bool) -> str:
    """A value as part of a key; as floats, integers equal floats."""
    if term.kind is Kind.FLOAT:
        return f"float_key({term.source})"
    return f"float_key(null_to_nan({term.source}))" if as_float else term.source


def _of_new(value: Value) -> str:
    return f"new_{value.name}"
