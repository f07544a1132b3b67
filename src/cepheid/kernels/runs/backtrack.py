"""The backtrack algorithm (SASE+ §5.2.3), for comparison: one run at a time in each partition.

Events are kept as long as a run may read them again. The run on top of its partition's stack reads them one after the
other until it is complete or fails; the runs that it splits off wait on the stack, and when it is done the topmost goes
on from the event at which it was split off. At the bottom of the stack stands the beginning of runs, which reads events
like a run: so runs begin in order, each when those before it are done.

Where only non-overlapping matches are wanted, a match bounds the search for an earlier one, and when there is none left
to try, everything begins anew after it.
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
from cepheid.kernels.state_vector import NOWHERE, Source, Value
from cepheid.physical import Kind, Plan
from cepheid.runtime.arrays import EMPTY
from cepheid.runtime.jit import njit
from cepheid.runtime.kernel import END_OF_TIME, StateArray

AT, SEEN, READ, FIRST_VALUE = RUN_SIZE, RUN_SIZE + 1, RUN_SIZE + 2, RUN_SIZE + 3
"""What a run knows besides: its component, the event that it has read last, and, if it has read none, the first."""
LINK, EVENT_ROW, PLACE, BITS, FIRST_COLUMN = 0, 1, 2, 3, 4
"""A kept event: the next of its partition, its position, its place in the window's measure, its mask; its attributes
follow."""
BEST, BEST_END, LAST, TOP, SLOT_SIZE = 0, FOUND_SIZE, FOUND_SIZE + 1, FOUND_SIZE + 2, FOUND_SIZE + 3
"""After its key and the number of its runs, a partition's slot holds the best match so far and the event that ends it
(EMPTY if there is none), its last event, and the top of its stack."""

_FOREVER = 1 << 62
"""A window that nothing leaves: runs fail when they read an event outside theirs."""


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
        held = f"event[e + {FIRST_COLUMN + column}]"
        return f"as_float({held})" if self.run.kinds[column] is Kind.FLOAT else held

    def _slot(self, field: str) -> str:
        return f"index[at + {len(self.key) + 1} + {field}]"

    # --- the function -------------------------------------------------------------------------------------------------

    @property
    def decides_late(self) -> bool:
        return True

    def preamble(self) -> list[str]:
        return [run_store.IMPORTS, IMPORTS, "", *self.fields(FIRST_VALUE), f"EVENT_SIZE = {self.event_size}"]

    def body(self, w: Writer) -> None:
        for name in ("nodes", "free", "live", "top", "used", "kept", "arrived"):
            self.register(name)
        w("# at the end of time, every partition is finished; else every event is a job")
        w(f"ending = now == {END_OF_TIME}")
        w(f"jobs = index.shape[0] // {self.index.stride} if ending else time.shape[0]")
        with self.interrupted_loop(w, "i", "jobs"):
            self._job(w)

    def tables(self) -> list[StateArray]:
        return [
            StateArray("node", "int64", 64 * NODE_SIZE),
            StateArray("found", "int64", 256 * FOUND_SIZE),
            StateArray("run", "int64", 16 * (FIRST_VALUE + len(self.run.all_values()))),
            StateArray("event", "int64", 64 * self.event_size),
            StateArray("index", "int64", (16 if self.key else 1) * self.index.stride, fill=-1),
        ]

    def older(self, w: Writer) -> None:
        with w.block("if kept > 0:"):
            w("oldest = min(oldest, event[EVENT_ROW])")

    def make_room(self, w: Writer) -> None:
        layout = f"index, {self.index.stride}, {self.index.parts}"
        w("# write what was found, forget what no run reads, and make room")
        w("values, bounds, written, ends = write_matches(")
        w(f"    found, founds, {len(self.run.components)}, node, values, bounds, written, ends)")
        w("founds = 0")
        with w.block(f"if start == 0 or {self._short()}:"):
            w("peak_retained = max(peak_retained, kept // EVENT_SIZE)")
            w(f"kept = forget_events({layout}, run, event, kept, EVENT_SIZE)")
            w("marks = np.full(nodes // NODE_SIZE, UNREACHED, np.int64)")
            w(f"free, _ = sweep({layout}, {self.index.stride - 1}, ALWAYS, {_FOREVER}, run, free, marks)")
            w(f"mark_best({layout}, marks)", "nodes = compact(node, marks)")
            w("forward_runs(run, top, RUN_SIZE, marks)", f"forward_best({layout}, marks)")
            w(f"node = grown(node, 2 * nodes + {self.most + 1} * NODE_SIZE)")
            w(f"run = grown(run, 2 * live + {self.most + 1} * RUN_SIZE)", "event = grown(event, 2 * kept + EVENT_SIZE)")
        self.index.make_room(w, "1")

    def _short(self) -> str:
        tables = (("node", "nodes", "NODE_SIZE"), ("run", "live", "RUN_SIZE"), ("found", "founds", "FOUND_SIZE"))
        rooms = [f"{filled} + {self.most + 1} * {size} > {table}.shape[0]" for table, filled, size in tables]
        return " or ".join([*rooms, "kept + EVENT_SIZE > event.shape[0]"])

    # --- one event, or one partition to finish ------------------------------------------------------------------------

    def _job(self, w: Writer) -> None:
        short = self._short() + (f" or {self.index.short('1')}" if self.key else "")
        with w.block(f"if {short}:"):
            w("stop = i", "break")
        with w.block("if ending:"):
            w(f"at = i * {self.index.stride}")
        with w.block("else:"):
            self._arrive(w)
        w("short = False")
        with w.block(f"while {self.index.count()} > 0:"):
            w(f"short = {self._short()}")
            with w.block("if short:"):
                w("break")
            w(f"r = {self._slot('TOP')}")
            w("e = run[r + READ] if run[r + READ] != EMPTY else event[run[r + SEEN] + LINK]")
            if self.exclusive:
                self._settle(w)
            with w.block("if e == EMPTY:"):
                with w.block(f"if not ending and run[r + AT] != {NOWHERE}:"):
                    w("break")
                self._pop(w)
                w("continue")
            self._read(w)
        with w.block("if short:"):
            w("stop = i", "break")
        w("arrived = 0")

    def _arrive(self, w: Writer) -> None:
        """Append the event to those of its partition, unless that was done before room was made."""
        with w.block("if arrived == 0:"):
            w("events += 1")
        if not self.contiguous:
            with w.block(f"if mask[i] & np.uint64({self.builder.bits_of(self.plan.steps)}) == 0:"):
                w("dropped_by_mask += 1", "continue")
        w("e = kept", "event[e + EVENT_ROW] = first + i", "event[e + PLACE] = measure[i]")
        w("event[e + BITS] = np.int64(mask[i])", "event[e + LINK] = EMPTY")
        for column, kind in enumerate(self.run.kinds):
            value = f"float_key(column{column}[i])" if kind is Kind.FLOAT else f"column{column}[i]"
            w(f"event[e + {FIRST_COLUMN + column}] = {value}")
        self.key_of_event(w)
        parts = [f"key{number}" for number in range(len(self.key))]
        self.index.find(w, "at", parts)
        with w.block("if arrived == 0:"):
            self.index.occupy(w, "at", parts)
            w("arrived = 1", "kept += EVENT_SIZE")
            with w.block(f"if {self.index.count()} > 0:"):
                w(f"event[{self._slot('LAST')} + LINK] = e")
            with w.block("else:"):
                w(f"{self._slot('TOP')} = EMPTY", f"{self._slot('BEST_END')} = EMPTY")
                self._push(w, NOWHERE)
                w("run[q + READ] = e")
            w(f"{self._slot('LAST')} = e")

    def _settle(self, w: Writer) -> None:
        """A run that cannot end before the best match is done; when only the beginning is left, it is certain."""
        best = self._slot("BEST_END")
        with w.block(f"if {best} != EMPTY and (e == EMPTY or e > {best}):"):
            with w.block(f"if run[r + AT] != {NOWHERE}:"):
                self._pop(w)
                w("continue")
            with w.block("for field in range(FOUND_SIZE):"):
                w(f"found[founds + field] = {self._slot('BEST + field')}")
            w("founds += FOUND_SIZE", f"{best} = EMPTY", "continue")

    def _read(self, w: Writer) -> None:
        """Let the run on top read an event. What it splits off comes above it, so that it goes on to the next component
        before it goes on where it is."""
        w("visited += 1", "bits = np.uint64(event[e + BITS])", "m = event[e + PLACE]", "row = event[e + EVENT_ROW]")
        w("run[r + SEEN] = e", "run[r + READ] = EMPTY", "above = EMPTY", "keep = True")
        with w.block(f"if run[r + AT] == {NOWHERE}:"):
            self.start(w)
        if self.plan.window is not None:
            with w.block("elif m - run[r + BEGAN] > limit:"):
                w("keep = False")
        for s in self.states:
            with w.block(f"elif run[r + AT] == {s}:"):
                self.edges(w, s, self.reachable(s))
        with w.block("if not keep:"):
            with w.block("if above == EMPTY:"):
                w(f"{self._slot('TOP')} = run[r + NEXT]")
            with w.block("else:"):
                w("run[above + NEXT] = run[r + NEXT]")
            self._release(w)

    def _pop(self, w: Writer) -> None:
        w(f"{self._slot('TOP')} = run[r + NEXT]")
        self._release(w)

    def _release(self, w: Writer) -> None:
        w("run[r + NODE] = EMPTY", "run[r + NEXT] = free", "free = r", "live -= RUN_SIZE", f"{self.index.count()} -= 1")

    # --- what comes of an edge ----------------------------------------------------------------------------------------

    def arrive(self, w: Writer, at: int, to: int) -> None:
        began, before = ("m", "EMPTY") if at == NOWHERE else ("run[r + BEGAN]", "run[r + NODE]")
        self._push(w, to)
        w("run[q + SEEN] = e", "run[q + READ] = EMPTY", f"run[q + BEGAN] = {began}", "run[q + NODE] = nodes")
        for value in self.run.live(to):
            self.store(w, "q", value)
        w(f"add_node(node, nodes, row, {to}, {before}, {began})", "nodes += NODE_SIZE")
        with w.block("if above == EMPTY:"):
            w("above = q")

    def _push(self, w: Writer, state: int) -> None:
        """A new run `q` on top of its partition's stack:

        run[q + NEXT] = index[at + 1 + TOP]
        index[at + 1 + TOP] = q
        """
        with w.block("if live < top:"):
            w("q = free", "free = run[q + NEXT]")
        with w.block("else:"):
            w("q = top", "top += RUN_SIZE")
        w("live += RUN_SIZE", f"run[q + AT] = {state}", "run[q + NODE] = EMPTY")
        w(f"run[q + NEXT] = {self._slot('TOP')}", f"{self._slot('TOP')} = q", f"{self.index.count()} += 1")

    def change(self, w: Writer, s: int, changed: list[Value], source: Source) -> None:
        for value in changed:
            self.store(w, "r", value)
        w(f"add_node(node, nodes, row, {s}, run[r + NODE], run[r + BEGAN])")
        w("run[r + NODE] = nodes", "nodes += NODE_SIZE", "keep = True")

    def record(self, w: Writer, at: int, to: int, source: Source) -> None:
        before = "EMPTY" if at == NOWHERE else "run[r + NODE]"
        floor = "ALWAYS" if self.plan.window is None else "m - limit"
        w(f"found[founds + BEFORE] = {before}", "found[founds + LAST_ROW] = row")
        w(f"found[founds + LAST_STEP] = {to}", f"found[founds + FLOOR] = {floor}")
        if not self.exclusive:
            w("founds += FOUND_SIZE")
            return
        best = self._slot("BEST_END")
        with w.block("for field in range(FOUND_SIZE):"):
            w(f"found[founds + FOUND_SIZE + field] = {self._slot('BEST + field')}")
        with w.block(f"if {best} == EMPTY or e < {best} or precedes(node, found, founds, founds + FOUND_SIZE):"):
            with w.block("for field in range(FOUND_SIZE):"):
                w(f"{self._slot('BEST + field')} = found[founds + field]")
            w(f"{best} = e")


# --- helpers of the generated code ------------------------------------------------------------------------------------


@njit
def forget_events(
    index: np.ndarray, stride: int, parts: int, run: np.ndarray, event: np.ndarray, kept: int, size: int
) -> int:
    """Move the events that some run may still read to the front; where they end."""
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
    AT, BEST, BEST_END, BITS, EVENT_ROW, LAST, LINK, PLACE, READ, SEEN, TOP, forget_events, forward_best, mark_best,
)"""
"""The import statement that generated code begins with."""
