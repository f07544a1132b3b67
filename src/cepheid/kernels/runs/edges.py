"""The edges of an NFA^b as generated code (SASE+ §3.2): what an event does to a run, and how its events are stored.

The code refers to the run `r` at component `s`, to the event `e`, and to the values `new_...` of the run that results
from both (`variables`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from cepheid.codegen.builder import KernelBuilder, Writer
from cepheid.codegen.scalar import key_part
from cepheid.events import START as START_TICKS
from cepheid.kernels.runs.absences import Absences
from cepheid.kernels.runs.run_index import RunIndex
from cepheid.kernels.runs.run_vector import RunVector, field, of_new
from cepheid.kernels.runs.variables import EVENT, KEEP, NEW_RUN, OLDEST, RUN, START, Completed, Node, Run, key_variable
from cepheid.kernels.state_vector import NOWHERE, Source, Value
from cepheid.pattern import Strategy, partition_attributes
from cepheid.physical import Plan
from cepheid.runtime.kernel import Kernel, StateArray

OWN_COUNTERS = ("merged", "visited")
"""Runs merged into others, and runs that an event looked at: the first registers after the common ones."""


class RunEdges(ABC):
    """What the algorithms of §5.2 share. `arrive`, `record` and `change` are where they differ."""

    def __init__(self, plan: Plan, options: Mapping[str, str]) -> None:
        self.plan = plan
        self.options = options
        self.builder = KernelBuilder(plan)
        self.register = self.builder.register
        for name in OWN_COUNTERS:
            self.register(name)
        strategy = plan.query.strategy
        partition = tuple(name for name in partition_attributes(plan.query) if name in plan.columns)
        self.contiguous = strategy is not Strategy.NEXT_MATCH
        # Where not all events of a run are in one partition, contiguity has to look at every run.
        self.compared = partition if strategy is Strategy.PARTITION and not set(partition) <= set(plan.key) else ()
        in_pieces = strategy is not Strategy.STRICT and not self.compared
        self.key = tuple(name for name in plan.key if name in plan.columns) if in_pieces else ()
        self.run = RunVector(plan, self.key, self.builder.constants)
        self.states = [c.index for c in self.run.components if c.index < self.run.last or c.takes]
        """The components at which a run can wait."""
        self.most = len(self.states) + 1
        """How many runs, at most, an event makes of one."""
        for name in self.compared:
            for what in ("origin", "origin_null"):
                self.run.carry(Value(what, NOWHERE, self.run.column[name]), self.run.last)
        self.absences = Absences(plan, self.run, self.builder, self.most)
        self.exclusive = plan.query.non_overlapping
        self.from_start = plan.counts_from_start

    # --- the function -------------------------------------------------------------------------------------------------

    def kernel(self) -> Kernel:
        """The kernel. What is decided when time has passed is decided without events, and so without the codes and
        ranks of strings that a batch of events brings: then the state keeps them."""
        body, finish, width = Writer(), Writer(), len(self.run.components)
        self.body(body)
        self.builder.declare(*self.tables())
        if self.decides_late and self.builder.uses_strings:
            self.builder.remember_strings()
        finish(f"matches += ends // {width}")
        with finish.block("if time.shape[0] > 0:"):
            finish(f"{OLDEST} = {Node.oldest_row} if {Node.used} > 0 else first + time.shape[0]")
            self.older(finish)
            self.builder.keep_from(finish, OLDEST)
        setup = [f"written = ends = {Completed.used} = {START} = 0"]
        source = self.builder.source(body, finish, preamble=self.preamble(), setup=setup, ends="ends")
        return self.builder.kernel(source, [step.var for step in self.run.steps], has_bounds=True)

    @property
    @abstractmethod
    def decides_late(self) -> bool:
        """Whether the passing of time alone can bring matches."""

    @abstractmethod
    def preamble(self) -> list[str]:
        """The imports and constants of the generated module."""

    @abstractmethod
    def body(self, w: Writer) -> None:
        """All that is done with a batch."""

    @abstractmethod
    def make_room(self, w: Writer) -> None:
        """Write the matches found so far, reclaim what no run needs, and let arrays grow."""

    @contextmanager
    def interrupted_loop(self, w: Writer, item: str, end: str) -> Iterator[None]:
        """A loop whose body stops it (`stop = e`, `break`) where it has to make room, and continues after that:

        while True:
            ...
            for e in range(start, time.shape[0]): ...
            start = stop
        """
        with w.block("while True:"):
            self.make_room(w)
            with w.block(f"if {START} == {end}:"):
                w("break")
            w(f"stop = {end}")
            with w.block(f"for {item} in range({START}, {end}):"):
                yield
            w(f"{START} = stop")

    def interrupt(self, w: Writer, item: str) -> None:
        """Stop the loop before an item, so that room is made for it: `stop = e`, `break`."""
        w(f"stop = {item}", "break")

    @abstractmethod
    def tables(self) -> list[StateArray]:
        """The arrays of the state besides the registers."""

    @abstractmethod
    def older(self, w: Writer) -> None:
        """Lower `oldest` to events that are in no node and may still be part of a match."""

    # --- where the algorithms differ ----------------------------------------------------------------------------------

    @abstractmethod
    def arrive(self, w: Writer, at: int, to: int) -> None:
        """A new run, from `r` (from nowhere, if `at` says so), waits at component `to` with the new values."""

    @abstractmethod
    def record(self, w: Writer, at: int, to: int, source: Source) -> None:
        """The run that was at `at` is complete with the event, which is the last of component `to`."""

    @abstractmethod
    def change(self, w: Writer, s: int, changed: list[Value], source: Source) -> None:
        """The run `r` has taken the event and continues, with those of its values changed."""

    def begin_of_event(self, w: Writer) -> None:
        """The start of an event with duration. One that is longer than the window is no component of a match, though it
        may be a negated one, and ends what contiguity ends:

        began = column1[e]
        if m - began > limit:
            bits &= np.uint64(18446744073709551612)
        """
        if self.from_start:
            positive = self.builder.bits_of([c.step for c in self.run.components])
            w(f"{EVENT.began} = {self.run.event_column(self.run.column[START_TICKS])}")
            with w.block(f"if {EVENT.measure} - {EVENT.began} > limit:"):
                w(f"{EVENT.bits} &= np.uint64({~positive & (1 << 64) - 1})")

    # --- edges --------------------------------------------------------------------------------------------------------

    def edges(self, w: Writer, s: int, reachable: list[tuple[int, list[str]]]) -> None:
        """Take, begin and ignore (§3.2): each that holds is a run of its own. The take comes last, it changes `r`."""
        component = self.run.components[s]
        high = component.step.high
        full = f"{self.run.of_run(Value('taken', s))} >= {high}" if high is not None else "False"
        if component.takes:
            self._decide(w, "takes", s, s)
            if high is not None and s < self.run.last:
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
        """Whether the edge from `at` to `event` holds: a take if they are the same, else a begin:

        takes = bits & np.uint64(2) != 0
        if takes:
            takes = (column0[e] > run[r + LAST0_0])
        """
        component = self.run.components[event]
        tests = component.take if event == at else component.begin
        bit = component.step.take if event == at else component.step.begin
        assert bit is not None
        w(f"{name} = {EVENT.bits} & np.uint64({1 << bit}) != 0")
        if tests:
            with w.block(f"if {name}:"):
                w(f"predicates += {len(tests)}", f"{name} = {self.run.test(tests, at, event, self.run.of_run)}")

    def _ignore(self, w: Writer, s: int, full: str) -> None:
        component = self.run.components[s]
        if self.compared:
            w(f"{KEEP} = not ({self._same_partition()})")
        elif self.contiguous:
            w(f"{KEEP} = False")
        elif not component.takes:
            w(f"{KEEP} = not begins")
        elif component.step.high is None or s == self.run.last:
            w(f"{KEEP} = not takes")
        else:
            w(f"{KEEP} = not begins if {full} else not takes")

    def _same_partition(self) -> str:
        """Whether the event is in the partition of the run's first event; those with a null are in one of their own:

        run[r + ORIGIN_NULL0_1] == 0 and column1[e] == run[r + ORIGIN0_1] if bits & np.uint64(8) == 0 else
        run[r + ORIGIN_NULL0_1] != 0
        """
        columns = [self.run.column[name] for name in self.compared]
        equal = [f"{self.run.event_column(c)} == {self.run.of_run(Value('origin', NOWHERE, c))}" for c in columns]
        nulls = [self.run.of_run(Value("origin_null", NOWHERE, c)) for c in columns]
        known = " and ".join(self.run.event_term(name).is_known for name in self.compared)
        same = " and ".join([*(f"{null} == 0" for null in nulls), *equal])
        return f"({same}) if {known} else ({' or '.join(f'{null} != 0' for null in nulls)})"

    def reachable(self, at: int) -> list[tuple[int, list[str]]]:
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
        if component.step.low > 1:
            conditions.append(f"{source(Value('taken', s))} >= {component.step.low}")
        if component.proceed:
            conditions.append(self.run.test(component.proceed, at, None, source))
        return conditions

    # --- new runs -----------------------------------------------------------------------------------------------------

    def key_of_event(self, w: Writer, outside: Callable[[], None] | None = None) -> None:
        """The event's partition; `outside` writes what is done with an event that is in none:

        if not (column0[e] != NULL_CODE):
            continue
        key0 = column0[e]
        """
        parts = [self.run.event_value(name) for name in self.key]
        if parts:
            known = [self.run.event_term(name).is_known for name in self.key]
            with w.block(f"if not ({' and '.join(known)}):"):
                if outside is not None:
                    outside()
                w("continue")
        for number, part in enumerate(parts):
            w(f"{key_variable(number)} = {key_part(*part)}")

    def start(self, w: Writer) -> None:
        """Every event may begin a run, at the first component or after some that may be empty:

        if bits & np.uint64(1):  # may begin a run at component 0
        """
        for j, conditions in self.reachable(NOWHERE):
            component = self.run.components[j]
            if component.begin:
                conditions.append(self.run.test(component.begin, NOWHERE, j, self.run.of_run))
            opening = f"if {EVENT.bits} & np.uint64({1 << component.step.begin}):  # may begin a run at component {j}"
            with w.block(opening), w.when(conditions):
                self._advance(w, NOWHERE, j)

    def _advance(self, w: Writer, at: int, to: int) -> None:
        """The run `r` (none at all, if `at` is nowhere) continues to begin another component on the event."""
        with w.when(self.absences.test_at_once(w, at, to, self.run.of_run)):
            for value in self.run.live(to):
                new = self.absences.carried(value, at, to) or self.run.begun(value, at, to) or self.run.of_run(value)
                w(f"{of_new(value)} = {new}")
            self._complete(w, at, to, of_new)
            w("partial_matches += 1")
            if to in self.states:
                self.arrive(w, at, to)

    def _complete(self, w: Writer, at: int, to: int, source: Source) -> None:
        """Record a match if the run that was at `at` may end at component `to` with the current event."""
        rest = self.run.components[to + 1 :]
        if not all(component.may_be_empty for component in rest):
            return
        conditions = self._proceeds(to, to, source)
        conditions += [self.run.test(c.proceed, to, None, source) for c in rest if c.proceed]
        with w.when(conditions), w.when(self.absences.test_complete(w, to, source)):
            self.record(w, at, to, source)

    def _take(self, w: Writer, s: int) -> None:
        """The run `r` takes the event: `new_last0_0 = column0[e]`, and so on for each value that changes."""
        changed: dict[Value, str] = {}
        for value in self.run.live(s):
            if value.component == s and (new := self.run.taken(value, self.run.of_run)) is not None:
                changed[value] = new
        for value, new in changed.items():
            w(f"{of_new(value)} = {new}")

        def source(value: Value) -> str:
            return of_new(value) if value in changed else self.run.of_run(value)

        self._complete(w, s, s, source)
        w("partial_matches += 1")
        high = self.run.components[s].step.high
        bounded = s == self.run.last and high is not None
        with w.when([f"{source(Value('taken', s))} < {high}"] if bounded else []):
            self.change(w, s, list(changed), source)

    # --- how runs are stored ------------------------------------------------------------------------------------------

    def store(self, w: Writer, run: Run, value: Value) -> None:
        """Put a new value into a run: `run[q + SUM0_1] = float_word(new_sum0_1)`."""
        w(f"{run.cell(field(value))} = {self.run.as_held(value, of_new(value))}")

    def origin(self, at: int) -> tuple[str, str]:
        """Where the run that results from `r`, or from nothing, began, and the node that its event follows. Of events
        with duration, the last may have started first: `min(run[r + BEGAN], began)`."""
        if self.from_start:
            return (EVENT.began, "EMPTY") if at == NOWHERE else (f"min({RUN.began}, {EVENT.began})", RUN.node)
        return (EVENT.measure, "EMPTY") if at == NOWHERE else (RUN.began, RUN.node)

    def allocate_run(self, w: Writer) -> None:
        """A new run `q`, from the list of free ones if there are any:

        if live < top:
            q = free
            free = run[q + NEXT]
        """
        with w.block(f"if {Run.used} < {Run.top}:"):
            w(f"{NEW_RUN} = {Run.free}", f"{Run.free} = {NEW_RUN.next}")
        with w.block("else:"):
            w(f"{NEW_RUN} = {Run.top}", f"{Run.top} += {Run.size}")
        w(f"{Run.used} += {Run.size}")

    def free_run(self, w: Writer, index: RunIndex) -> None:
        """Put the run `r`, which is in no list any more, into the list of free ones."""
        w(f"{RUN.node} = EMPTY", f"{RUN.next} = {Run.free}", f"{Run.free} = {RUN}")
        w(f"{Run.used} -= {Run.size}", f"{index.count()} -= 1")

    def add_node(self, w: Writer, at: int, to: int) -> None:
        """Select the event for component `to`: `add_node(node, nodes, row, 1, run[r + NODE], run[r + BEGAN])`."""
        began, before = self.origin(at)
        w(f"add_node({Node.array}, {Node.used}, {EVENT.row}, {to}, {before}, {began})", f"{Node.used} += {Node.size}")

    def change_in_place(self, w: Writer, s: int, changed: list[Value]) -> None:
        """The run `r` takes the event and stays in its list: `run[r + NODE] = nodes`."""
        for value in changed:
            self.store(w, RUN, value)
        began, before = self.origin(s)
        w(f"add_node({Node.array}, {Node.used}, {EVENT.row}, {s}, {before}, {began})")
        if self.from_start:
            w(f"{RUN.began} = {began}")
        w(f"{RUN.node} = {Node.used}", f"{Node.used} += {Node.size}", f"{KEEP} = True")

    def write_completed(self, w: Writer, completed: Completed, at: int, to: int) -> None:
        """Write a completed run: `found[founds + BEFORE] = run[r + NODE]`."""
        _, before = self.origin(at)
        w(f"{completed.before} = {before}", f"{completed.last_row} = {EVENT.row}", f"{completed.last_step} = {to}")
        w(f"{completed.floor} = {'ALWAYS' if self.plan.window is None else f'{EVENT.measure} - limit'}")

    def start_marking(self, w: Writer) -> None:
        """No node is marked yet: `marks = np.full(nodes // NODE_SIZE, UNREACHED, np.int64)`."""
        w(f"marks = np.full({Node.used} // {Node.size}, UNREACHED, np.int64)")

    def compact(self, w: Writer) -> None:
        """Remove the nodes that no marked node leads to:

        nodes = compact(node, marks)
        forward_runs(run, top, RUN_SIZE, marks)
        """
        w(f"{Node.used} = compact({Node.array}, marks)")
        w(f"forward_runs({Run.array}, {Run.top}, {Run.size}, marks)")

    def write_matches(self, w: Writer) -> None:
        """Construct the matches of the completed runs:

        values, bounds, written, ends, problem = write_matches(
            found, founds, 2, node, values, bounds, written, ends, integers[1], integers[2])
        if problem != 0:
            break
        """
        arguments = f"{Completed.array}, {Completed.used}, {len(self.run.components)}, {Node.array}"
        limits = f"{self.builder.most_matches}, {self.builder.most_words}"
        w("values, bounds, written, ends, problem = write_matches(")
        w(f"    {arguments}, values, bounds, written, ends, {limits})")
        w("if problem != 0:", f"    problem_at = {self.builder.growing('the matches of a step')}", "    break")
        w(f"{Completed.used} = 0")

    def fields(self, first: int) -> list[str]:
        """Lines that say where a run's values lie, as constants of the generated module."""
        lines = [f"{field(value)} = {first + i}" for i, value in enumerate(self.run.all_values())]
        return [*lines, f"RUN_SIZE = {first + len(lines)}"]
