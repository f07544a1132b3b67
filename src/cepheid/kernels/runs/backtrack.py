"""The backtrack algorithm (SASE+ §5.2.3), for comparison: one run at a time in each partition.

Events are stored as long as a run may read them again. The run on top of its partition's stack reads one event after
the other until it is complete or fails. The runs that it splits off wait on the stack; when it ends, the topmost goes
on from the event at which it was split off. The bottom of the stack is a run that has not begun: it reads events and
begins runs. So runs begin in order, each after the end of those before it.

With non-overlapping output, a match bounds the search for an earlier one. When no run is left to try, the search begins
again after the match.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from cepheid.codegen.builder import Writer
from cepheid.errors import NotAvailable
from cepheid.kernels.runs import run_store
from cepheid.kernels.runs.edges import RunEdges
from cepheid.kernels.runs.run_index import RunIndex
from cepheid.kernels.runs.run_store import ALWAYS, BEFORE, FOUND_SIZE, NEXT, NODE_SIZE, RUN_SIZE
from cepheid.kernels.runs.variables import (
    EVENT,
    FIELD,
    KEEP,
    OLDEST,
    START,
    Completed,
    Field,
    Node,
    Row,
    Run,
    key_variable,
)
from cepheid.kernels.state_vector import NOWHERE, Source, Value
from cepheid.physical import Kind, Plan
from cepheid.runtime.arrays import EMPTY
from cepheid.runtime.jit import njit
from cepheid.runtime.kernel import END_OF_TIME, StateArray

AT, SEEN, READ, FIRST_VALUE = RUN_SIZE, RUN_SIZE + 1, RUN_SIZE + 2, RUN_SIZE + 3
"""The further fields of a run: its component, the event that it has read last and, if it has read none, the first."""
LINK, EVENT_ROW, EVENT_MEASURE, BITS, FIRST_COLUMN = 0, 1, 2, 3, 4
"""A stored event: the next of its partition, its position, its measure in the window, its mask; its attributes
follow."""
BEST, BEST_END, LAST, TOP, SLOT_SIZE = 0, FOUND_SIZE, FOUND_SIZE + 1, FOUND_SIZE + 2, FOUND_SIZE + 3
"""After its key and the number of its runs, a partition's slot holds the best match so far and the event that ends it
(EMPTY if there is none), its last event, and the top of its stack."""

_FOREVER = 1 << 62
"""A window that no run leaves: runs fail when they read an event outside theirs."""


class StackedRun(Run):
    """A run on the stack of its partition."""

    at, seen, read = Field(), Field(), Field()


class StoredEvent(Row):
    """A stored event; its attributes follow these fields."""

    array, size, used = "event", "EVENT_SIZE", "kept"
    link, event_row, event_measure, bits = Field(), Field(), Field(), Field()


_TOP, _NEW, _ABOVE, _STORED = StackedRun("r"), StackedRun("q"), StackedRun("above"), StoredEvent(EVENT)
"""The run on top of the stack, a new run, the lowest of the runs just split off, and the current event."""


class Backtrack(RunEdges):
    def __init__(self, plan: Plan, options: Mapping[str, str]) -> None:
        super().__init__(plan, options)
        if self.absences.all or self.compared:
            raise NotAvailable(
                "the backtrack algorithm evaluates patterns without negation, in partitions that hold whole matches",
                hint="leave out the option `algorithm`",
            )
        self.index = RunIndex(0, self.key, None, tuple(range(SLOT_SIZE)), False)
        self.event_size = FIRST_COLUMN + len(plan.columns)
        self.run.event_column = self._event_column

    def _event_column(self, column: int) -> str:
        held = _STORED.cell(str(FIRST_COLUMN + column))
        return f"as_float({held})" if self.run.kinds[column] is Kind.FLOAT else held

    def _slot(self, field: str) -> str:
        return f"{self.index.name}[{self.index.at} + {len(self.key) + 1} + {field}]"

    # --- the function -------------------------------------------------------------------------------------------------

    @property
    def decides_late(self) -> bool:
        return True

    def preamble(self) -> list[str]:
        return [run_store.IMPORTS, IMPORTS, "", *self.fields(FIRST_VALUE), f"EVENT_SIZE = {self.event_size}"]

    def body(self, w: Writer) -> None:
        for name in (Node.used, Run.free, Run.used, Run.top, self.index.used, StoredEvent.used, "arrived"):
            self.register(name)
        w("# at the end of time, every partition is finished; else every event is a job")
        w(f"ending = now == {END_OF_TIME}")
        w(f"jobs = {self.index.name}.shape[0] // {self.index.stride} if ending else time.shape[0]")
        with self.interrupted_loop(w, "i", "jobs"):
            self._job(w)

    def tables(self) -> list[StateArray]:
        return [
            StateArray(Node.array, "int64", 64 * NODE_SIZE),
            StateArray(Completed.array, "int64", 256 * FOUND_SIZE),
            StateArray(Run.array, "int64", 16 * (FIRST_VALUE + len(self.run.all_values()))),
            StateArray(StoredEvent.array, "int64", 64 * self.event_size),
            StateArray(self.index.name, "int64", (16 if self.key else 1) * self.index.stride, fill=-1),
        ]

    def older(self, w: Writer) -> None:
        with w.block(f"if {StoredEvent.used} > 0:"):
            w(f"{OLDEST} = min({OLDEST}, {StoredEvent.array}[EVENT_ROW])")

    def make_room(self, w: Writer) -> None:
        layout = f"{self.index.name}, {self.index.stride}, {self.index.parts}"
        run, event, kept = Run.array, StoredEvent.array, StoredEvent.used
        w("# write the matches, forget events that no run reads, and make room")
        self.write_matches(w)
        with w.block(f"if {START} == 0 or {self._is_full()}:"):
            w(f"peak_retained = max(peak_retained, {kept} // {StoredEvent.size})")
            w(f"{kept} = forget_events({layout}, {run}, {event}, {kept}, {StoredEvent.size})")
            self.start_marking(w)
            expired = f"{layout}, {self.index.stride - 1}, ALWAYS, {_FOREVER}"
            w(f"{Run.free}, _ = sweep({expired}, {run}, {Run.free}, marks)", f"mark_best({layout}, marks)")
            self.compact(w)
            w(f"forward_best({layout}, marks)")
            Node.grow(w, f"2 * {Node.used} + {self.most + 1} * {Node.size}")
            Run.grow(w, f"2 * {Run.used} + {self.most + 1} * {Run.size}")
            StoredEvent.grow(w, f"2 * {kept} + {StoredEvent.size}")
        self.index.make_room(w, "1")

    def _is_full(self) -> str:
        tables = [row.is_full(str(self.most + 1)) for row in (Node, Run, Completed)]
        return " or ".join([*tables, f"{StoredEvent.used} + {StoredEvent.size} > {StoredEvent.array}.shape[0]"])

    # --- one event, or one partition to finish ------------------------------------------------------------------------

    def _job(self, w: Writer) -> None:
        full = self._is_full() + (f" or {self.index.is_full('1')}" if self.key else "")
        with w.block(f"if {full}:"):
            self.interrupt(w, "i")
        with w.block("if ending:"):
            w(f"{self.index.at} = i * {self.index.stride}")
        with w.block("else:"):
            self._arrive(w)
        w("short = False")
        with w.block(f"while {self.index.count()} > 0:"):
            w(f"short = {self._is_full()}")
            with w.block("if short:"):
                w("break")
            w(f"{_TOP} = {self._slot('TOP')}")
            w(f"{EVENT} = {_TOP.read} if {_TOP.read} != EMPTY else {StoredEvent(_TOP.seen).link}")
            if self.exclusive:
                self._settle(w)
            with w.block(f"if {EVENT} == EMPTY:"):
                with w.block(f"if not ending and {_TOP.at} != {NOWHERE}:"):
                    w("break")
                self._pop(w)
                w("continue")
            self._read(w)
        with w.block("if short:"):
            self.interrupt(w, "i")
        w("arrived = 0")

    def _arrive(self, w: Writer) -> None:
        """Append the event to those of its partition, unless that was done before room was made."""
        with w.block("if arrived == 0:"):
            w("events += 1")
        if not self.contiguous:
            with w.block(f"if mask[i] & np.uint64({self.builder.bits_of(self.plan.steps)}) == 0:"):
                w("dropped_by_mask += 1", "continue")
        w(f"{EVENT} = {StoredEvent.used}", f"{_STORED.event_row} = first + i", f"{_STORED.event_measure} = measure[i]")
        w(f"{_STORED.bits} = np.int64(mask[i])", f"{_STORED.link} = EMPTY")
        for column, kind in enumerate(self.run.kinds):
            value = f"float_key(column{column}[i])" if kind is Kind.FLOAT else f"column{column}[i]"
            w(f"{_STORED.cell(str(FIRST_COLUMN + column))} = {value}")
        w(f"{EVENT.bits} = mask[i]")
        self.key_of_event(w)
        parts = [key_variable(number) for number in range(len(self.key))]
        self.index.find(w, self.index.at, parts)
        with w.block("if arrived == 0:"):
            self.index.occupy(w, self.index.at, parts)
            w("arrived = 1", f"{StoredEvent.used} += {StoredEvent.size}")
            with w.block(f"if {self.index.count()} > 0:"):
                w(f"{StoredEvent(self._slot('LAST')).link} = {EVENT}")
            with w.block("else:"):
                w(f"{self._slot('TOP')} = EMPTY", f"{self._slot('BEST_END')} = EMPTY")
                self._push(w, NOWHERE)
                w(f"{_NEW.read} = {EVENT}")
            w(f"{self._slot('LAST')} = {EVENT}")

    def _settle(self, w: Writer) -> None:
        """End the runs that cannot complete before the best match. It is certain when no begun run is left."""
        best = self._slot("BEST_END")
        with w.block(f"if {best} != EMPTY and ({EVENT} == EMPTY or {EVENT} > {best}):"):
            with w.block(f"if {_TOP.at} != {NOWHERE}:"):
                self._pop(w)
                w("continue")
            Completed.copy(w, Completed(Completed.used).cell(FIELD), self._slot(f"BEST + {FIELD}"))
            w(f"{Completed.used} += {Completed.size}", f"{best} = EMPTY", "continue")

    def _read(self, w: Writer) -> None:
        """Let the run on top read an event. The runs that it splits off come above it, so that they begin the next
        component before it stays where it is."""
        w("visited += 1", f"{EVENT.bits} = np.uint64({_STORED.bits})")
        w(f"{EVENT.measure} = {_STORED.event_measure}", f"{EVENT.row} = {_STORED.event_row}")
        self.begin_of_event(w)
        w(f"{_TOP.seen} = {EVENT}", f"{_TOP.read} = EMPTY", f"{_ABOVE} = EMPTY", f"{KEEP} = True")
        with w.block(f"if {_TOP.at} == {NOWHERE}:"):
            self.start(w)
        if self.plan.window is not None:
            with w.block(f"elif {EVENT.measure} - {_TOP.began} > limit:"):
                w(f"{KEEP} = False")
        for s in self.states:
            with w.block(f"elif {_TOP.at} == {s}:"):
                self.edges(w, s, self.reachable(s))
        with w.block(f"if not {KEEP}:"):
            with w.block(f"if {_ABOVE} == EMPTY:"):
                w(f"{self._slot('TOP')} = {_TOP.next}")
            with w.block("else:"):
                w(f"{_ABOVE.next} = {_TOP.next}")
            self.free_run(w, self.index)

    def _pop(self, w: Writer) -> None:
        w(f"{self._slot('TOP')} = {_TOP.next}")
        self.free_run(w, self.index)

    # --- results of an edge -------------------------------------------------------------------------------------------

    def arrive(self, w: Writer, at: int, to: int) -> None:
        self._push(w, to)
        w(f"{_NEW.seen} = {EVENT}", f"{_NEW.read} = EMPTY")
        w(f"{_NEW.began} = {self.origin(at)[0]}", f"{_NEW.node} = {Node.used}")
        for value in self.run.live(to):
            self.store(w, _NEW, value)
        self.add_node(w, at, to)
        with w.block(f"if {_ABOVE} == EMPTY:"):
            w(f"{_ABOVE} = {_NEW}")

    def _push(self, w: Writer, state: int) -> None:
        """A new run `q` on top of its partition's stack:

        run[q + NEXT] = index[at + 1 + TOP]
        index[at + 1 + TOP] = q
        """
        self.allocate_run(w)
        w(f"{_NEW.at} = {state}", f"{_NEW.node} = EMPTY")
        w(f"{_NEW.next} = {self._slot('TOP')}", f"{self._slot('TOP')} = {_NEW}", f"{self.index.count()} += 1")

    def change(self, w: Writer, s: int, changed: list[Value], source: Source) -> None:
        self.change_in_place(w, s, changed)

    def record(self, w: Writer, at: int, to: int, source: Source) -> None:
        last, further = Completed(Completed.used), Completed(f"{Completed.used} + {Completed.size}")
        self.write_completed(w, last, at, to)
        if not self.exclusive:
            w(f"{last} += {last.size}")
            return
        best, best_end = self._slot(f"BEST + {FIELD}"), self._slot("BEST_END")
        Completed.copy(w, further.cell(FIELD), best)
        earlier = f"precedes({Node.array}, {last.array}, {last}, {further})"
        with w.block(f"if {best_end} == EMPTY or {EVENT} < {best_end} or {earlier}:"):
            Completed.copy(w, best, last.cell(FIELD))
            w(f"{best_end} = {EVENT}")


# --- helpers of the generated code ------------------------------------------------------------------------------------


@njit
def forget_events(
    index: np.ndarray, stride: int, parts: int, run: np.ndarray, event: np.ndarray, kept: int, size: int
) -> int:
    """Move the events that some run may still read to the front, and return their length."""
    oldest = kept
    for at in range(0, index.shape[0], stride):
        if index[at + parts] > 0:
            oldest = min(oldest, index[at + parts + 1 + LAST])
            r = index[at + parts + 1 + TOP]
            while r != EMPTY:
                oldest = min(oldest, run[r + READ] if run[r + READ] != EMPTY else run[r + SEEN])
                r = run[r + NEXT]
    if oldest == 0:
        return kept
    for e in range(oldest, kept, size):
        for field in range(size):
            event[e - oldest + field] = event[e + field]
        if event[e + LINK] != EMPTY:
            event[e - oldest + LINK] -= oldest
    for at in range(0, index.shape[0], stride):
        if index[at + parts] > 0:
            index[at + parts + 1 + LAST] -= oldest
            if index[at + parts + 1 + BEST_END] != EMPTY:
                index[at + parts + 1 + BEST_END] -= oldest
            r = index[at + parts + 1 + TOP]
            while r != EMPTY:
                run[r + SEEN] -= oldest
                if run[r + READ] != EMPTY:
                    run[r + READ] -= oldest
                r = run[r + NEXT]
    return kept - oldest


@njit
def mark_best(index: np.ndarray, stride: int, parts: int, marks: np.ndarray) -> None:
    """Mark the nodes that the best matches so far lead to."""
    for at in range(0, index.shape[0], stride):
        best = at + parts + 1
        if index[at + parts] > 0 and index[best + BEST_END] != EMPTY and index[best + BEFORE] != EMPTY:
            marks[index[best + BEFORE] // NODE_SIZE] = ALWAYS


@njit
def forward_best(index: np.ndarray, stride: int, parts: int, marks: np.ndarray) -> None:
    for at in range(0, index.shape[0], stride):
        best = at + parts + 1
        if index[at + parts] > 0 and index[best + BEST_END] != EMPTY and index[best + BEFORE] != EMPTY:
            index[best + BEFORE] = marks[index[best + BEFORE] // NODE_SIZE]


IMPORTS = f"""from {__name__} import (
    AT, BEST, BEST_END, BITS, EVENT_MEASURE, EVENT_ROW, LAST, LINK, READ, SEEN, TOP,
    forget_events, forward_best, mark_best,
)"""
"""The import statement that generated code begins with."""
