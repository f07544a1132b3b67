"""The kernel of NEXT's core operators: the loop over events, the passing of time, and the reclaiming of memory.

    while True:
        while wake < moment:            time has passed: timers fire, and late operators choose among their candidates
        ...                             matches are written, memory is reclaimed, arrays grow
        for e in range(start, ...):     events, until time passes or there may be no room for the next one

Arrays are assigned outside the loop over events only: otherwise Numba counts references in each iteration.
"""

from __future__ import annotations

from dataclasses import replace

from cepheid.codegen.builder import KernelBuilder, Writer
from cepheid.events import HISTORY as HISTORY_COLUMN
from cepheid.expr import Attr
from cepheid.kernels.successor import groups, instances, successor_kernel
from cepheid.kernels.successor.composites import HISTORY, OLDEST, STARTS, Chain, Field, Time
from cepheid.kernels.successor.groups import DiffersInGroup
from cepheid.kernels.successor.operators import (
    Exception_,
    Iteration,
    Next,
    Operator,
    Timer,
    Waiting,
    leaves_of,
    lifetime,
    operators_of,
)
from cepheid.kernels.successor.output import Output
from cepheid.kernels.successor.tables import Table
from cepheid.physical import Plan
from cepheid.runtime import prefetch
from cepheid.runtime.kernel import Kernel, OperatorRegisters, StateArray

_ROUNDS = 64
"""The source is complete after as many rounds as the pattern is deep."""
_LARGE = 1 << 22
"""A kernel stops after so many values of output, before the next event."""
_FEW, _MANY = 256, 4096
"""Records, and nodes of chains and histories, are reclaimed only if there are more."""


def kernel(plan: Plan) -> Kernel:
    return _Evaluator(plan).kernel()


class _Evaluator(Output):
    def __init__(self, plan: Plan) -> None:
        assert plan.core is not None
        builder = KernelBuilder(plan)
        super().__init__(plan, builder, operators_of(plan.core, plan.has_durations, plan.composite))
        self.leaves = leaves_of(self.root)
        self.bits = {step.var: step.begin for step in plan.steps}
        self.has_late = bool(self.queues or self.fifos)
        for name in ("begun", "wake", "tick", "stamp", "failed", "crowd", "taken"):
            builder.register(name)
        for op in self.waiting:
            for name in (f"live{op.number}", f"tried{op.number}", f"made{op.number}"):
                builder.register(name)

    def kernel(self) -> Kernel:
        body, finish = Writer(), Writer()
        single: set[int] | None = None
        for _ in range(_ROUNDS):
            if self.single != single:
                self.forget()
            before, single = self.shape(), set(self.single)
            body, finish = Writer(), Writer()
            self.conditions.count = 0
            try:
                self._body(body)
                self._finish(finish)
            except DiffersInGroup:
                continue
            if self.shape() == before:
                break
        builder = self.builder
        for array in self._arrays():
            builder.declare(array)
        if self.has_late and builder.uses_strings:
            builder.remember_strings()
        preamble = [
            instances.IMPORTS,
            groups.IMPORTS,
            "",
            *(line for table in self._tables() for line in table.constants()),
        ]
        source = builder.source(
            body,
            finish,
            preamble=preamble,
            setup=[
                "made = 0",
                "start = 0",
                "written = 0",
                "ends = 0",
                *(["doubted, doubted_end = -1, 0"] if self.has_late_tests else []),
                f"most = {self._constant(self.plan.max_matches or 1 << 62)}",
            ],
            ends="ends",
        )
        counted = [
            OperatorRegisters(
                op.text, builder.register(f"made{op.number}").number, builder.register(f"tried{op.number}").number
            )
            for op in self.waiting
        ]
        further = {
            "is_timed": self.is_timed,
            "shows_failures": self.shows_failures,
            "failures": builder.register("failed").number,
            "taken": builder.register("taken").number,
            "crowd": builder.register("crowd").number,
            "pattern": self.root.text,
        }
        return builder.kernel(
            source,
            self.steps,
            has_bounds=self.is_bounded,
            operators=counted,
            kind=successor_kernel.SuccessorKernel,
            further=further,
        )

    def _constant(self, value: int) -> str:
        return self.builder.constants.integer(value)

    def _tables(self) -> list[Table]:
        return [
            *self.tables.values(),
            *self.cancels.values(),
            *self.queues.values(),
            *self.fifos.values(),
            *self.nodes.values(),
            *(self.edges[op] for op in self.groups_in(self.root)),
            self.found,
        ]

    def _arrays(self) -> list[StateArray]:
        arrays = []
        for table in self._tables():
            arrays.append(table.array())
            for number in table.keyed:
                arrays.append(StateArray(table.index_name(number), "int64", 32, fill=-1, width=2))
        return [*arrays, StateArray("history", "int64", 16, width=2)]

    # --- the function -------------------------------------------------------------------------------------------------

    def _body(self, w: Writer) -> None:
        with w.block("if begun == 0:"):
            w("begun = 1", "wake = NEVER", "tick = -NEVER")
        with w.block("while True:"):
            self.checked = True
            w("moment = time[start] if start < time.shape[0] else now if time.shape[0] == 0 else tick")
            if self.has_late:
                with w.block(f"while wake < moment{' and doubted < 0' if self.has_late_tests else ''}:"):
                    self._pass_time(w)
            if self.is_bounded:
                self._write_found(w)
                if self.has_late_tests:
                    w("again, doubted = doubted >= 0 and problem == 0, -1")
                    with w.block("if again:"):
                        w("continue")
            self._make_room(w)
            with w.block(f"if start == time.shape[0] or problem > 0 or written > {_LARGE}:"):
                w("break")
            self.checked = False
            w("stop = time.shape[0]")
            with w.block("for e in range(start, time.shape[0]):"):
                self._event(w)
            w("start = stop")

    def _event(self, w: Writer) -> None:
        prompt = [op for op in self.waiting if op.is_prompt]
        work = " + ".join(["made", *(f"live{op.number}" for op in prompt), str(len(self.leaves) + 1)])
        w("t = time[e]")
        late = "t > wake or " if self.has_late else ""
        with w.block(f"if {late}{work} > budget:"):
            w("stop = e", "break")
        if self.plan.has_histories:
            with w.block(f"if history_top + {self._history_room('e')} > history.shape[0]:"):
                w("stop = e", "break")
        self._prefetch(w, prompt)
        w("bits = mask[e]")
        every = sum({1 << self.bits[leaf.var] for leaf in self.leaves})
        with w.block(f"if bits & np.uint64({every}) == np.uint64(0):"):
            w("dropped_by_mask += 1", "continue")
        w("tick = t", "output = 0", *self.shown())
        if prompt:
            w("lone = e + 1 < time.shape[0] and time[e + 1] > t")
        for leaf in reversed(self.leaves):
            with w.block(f"if bits & np.uint64({1 << self.bits[leaf.var]}) != np.uint64(0):"):
                self.put_out(w, leaf, self.with_history(w, leaf, self.values.current(leaf)))
        with w.block("if output > most:"):
            w(*self.doubt() or ["problem = first + e + 1"], "stop = e + 1", "break")

    def _prefetch(self, w: Writer, prompt: list[Waiting]) -> None:
        """The lists that later events will visit:

        if e + 16 < time.shape[0]:
            prefetch(w1_index, 2 * first_slot(column0[e + 16], w1_index.shape[0] >> 1))
        """
        ahead = {}
        for op in prompt:
            for leaf in leaves_of(op.awaited):
                others = frozenset(op.awaited.variables).difference(leaf.variables)
                event = replace(self.values.current(leaf), unbound=others)
                for number, choices in self.visited(self.tables[op], event):
                    parts = choices[0][1]
                    if parts and all(isinstance(part.expr, Attr) for part in parts):
                        key, _ = self._key_of(parts, event)
                        ahead[self.tables[op].index_name(number), key] = op
        if not ahead:
            return
        with w.block(f"if e + {prefetch.AHEAD} < time.shape[0]:"):
            for (index, key), op in ahead.items():
                table = self.tables[op].name
                far, near = (str(key).replace("[e]", f"[e + {n}]") for n in (prefetch.AHEAD, prefetch.SOON))
                with w.block(f"if {index}.shape[0] > {prefetch.FAR}:"):
                    w(f"prefetch({index}, 2 * first_slot({far}, {index}.shape[0] >> 1))")
                    w(f"a{op.number} = {index}[2 * first_slot({near}, {index}.shape[0] >> 1) + 1]")
                    with w.block(f"if a{op.number} >= 0:"):
                        w(f"prefetch({table}, a{op.number})")

    # --- time ---------------------------------------------------------------------------------------------------------

    def _pass_time(self, w: Writer) -> None:
        """Time goes to the next moment at which something is to be decided, and it is."""
        w("tick = wake", "output = 0", *self.shown())
        for op in self.operators:
            if isinstance(op, Timer):
                self.fire(w, op)
            elif isinstance(op, Waiting) and not op.is_prompt:
                self._choose(w, op)
        w("wake = NEVER")
        for table in self.fifos.values():
            first = self.builder.register(f"{table.name}_first")
            with w.block(f"if {first} < {table.top}:"):
                w(f"wake = min(wake, {table.name}[{first}])")
        with w.block("if output > most:"):
            w(*self.doubt() or ["problem = max(first + start, 1)", "wake = NEVER"])

    def _choose(self, w: Writer, op: Waiting) -> None:
        """The candidates of one time, by their histories: the first that suits an instance decides it.

        order1 = in_order(q1, 4, q1_top, Q1_TIME0, 2, history)
        for o1 in range(order1.shape[0]):
            u1 = order1[o1]
            ...
        """
        k, queue = op.number, self.queues[op]
        length = (op.awaited.fixed_length or 0) * self.points
        if length:
            times = queue.offset(Time(0))
            for index in range(length):
                queue.offset(Time(index))
            differs = f"compare_times({queue.name}, u{k}, order{k}[o{k} - 1], {times}, {length}) != 0"
        else:
            times = queue.offset(HISTORY)
            other = f"{queue.name}[order{k}[o{k} - 1] + {times}]"
            differs = f"compare_histories(history, {queue.name}[u{k} + {times}], {other}) != 0"
        with w.block(f"if {queue.top} > 0:"):
            w(f"order{k} = in_order({queue.name}, {queue.size}, {queue.top}, {times}, {length}, history)")
            w(f"decided{k} = stamp")
            with w.block(f"for o{k} in range(order{k}.shape[0]):"):
                w(f"u{k} = order{k}[o{k}]")
                with w.block(f"if o{k} == 0 or {differs}:"):
                    w("stamp += 1")
                if isinstance(op, Iteration):
                    for number in self.tables[op].keyed:
                        self.widen(w, self.tables[op], f"live{k} + 1", number)
                self.succeed(w, op, queue.composite(op.awaited, f"u{k}", "tick"))
            w(f"{queue.top} = 0")

    # --- memory -------------------------------------------------------------------------------------------------------

    def _make_room(self, w: Writer) -> None:
        stores = [*self.tables.values(), *self.cancels.values()]
        pools = [table for op, table in self.nodes.items() if op.number in self.chained]
        crowded = [f"{table.top} > 2 * {self._kept(table)} + {_FEW * table.size}" for table in stores]
        if crowded:
            with w.block(f"if {' or '.join(['time.shape[0] == 0', *crowded])}:"):
                self._reclaim(w)
        pools += [self.edges[op] for op in self.groups_in(self.root)]
        full = [f"{table.top} > 3 * {self._kept(table)} + {_MANY * table.size}" for table in pools]
        if self.histories:
            full.append(f"history_top > 3 * {self.builder.register('history_kept')} + {_MANY * 2}")
        if full:
            with w.block(f"if {' or '.join(['time.shape[0] == 0', *full])}:"):
                self._reclaim_pools(w)
        with w.block("if time.shape[0] == 0:"):
            for table in self.fifos.values():
                self._shift(w, table)
            for table in self._tables():
                w(f"{table.name} = trimmed({table.name}, {table.size}, {table.top})")
            if self.histories:
                w("history = trimmed(history, 2, history_top)")
        for number, op in enumerate(self.waiting, 1):
            with w.block(f"if live{op.number} > {successor_kernel.MOST_INSTANCES}:"):
                w(f"crowd = {number}", "problem = max(first + start, 1)")
        prompt = [op for op in self.waiting if op.is_prompt]
        work = " + ".join([*(f"live{op.number}" for op in prompt), str(len(self.leaves) + 1)])
        with w.block("if start < time.shape[0]:"):
            w(f"room = 2 * ({work}) + min(time.shape[0] - start, 4096)", "made = 0", "budget = room")
            for table in self._tables():
                if table.size and (table is not self.found or self.is_bounded):
                    table.grow(w, "room")
                for number in table.keyed:
                    self.widen(w, table, "room", number)
            for table in self.fifos.values():
                self._shift(w, table)
            if self.histories:
                w("history = grown(history, history_top + 8 * room)")
            if self.plan.has_histories:
                w(f"history = grown(history, history_top + {self._history_room('start')})")
            if not self.is_bounded:
                w(f"values = grown(values, written + {self.width} * room)")

    def _history_room(self, event: str) -> str:
        """The most room that the histories of an event take: `4 * (2 + history_points(points, column1[e]))`"""
        offset = self.builder.column(HISTORY_COLUMN, event)
        return f"{2 * len(self.leaves)} * (2 + history_points(points, {offset}))"

    def _kept(self, table: Table) -> str:
        return self.builder.register(f"{table.name}_kept")

    def _shift(self, w: Writer, table: Table) -> None:
        """Move the timers that have not fired to the front: `f1_top = shifted(f1, f1_first, f1_top)`."""
        first = self.builder.register(f"{table.name}_first")
        with w.block(f"if 2 * {first} > {table.top}:"):
            w(f"{table.top} = shifted({table.name}, {first}, {table.top})", f"{first} = 0")

    def _reclaim(self, w: Writer) -> None:
        """Drop the instances that were decided or came too late, and what cancels nothing any more:

        w1_top = compacted(w1, 7, w1_top, moment, W1_UNTIL, moment)
        w1_index, w1_used = reindexed(w1_index, w1, 7, w1_top, 8, NEXT, KEY)
        """
        for op, table in self.tables.items():
            until = table.offset("until") if self.expires(op) else "-1"
            done = "moment" if op.is_prompt else "stamp + 1"
            self._compact(w, table, done, until, "moment")
            w(f"live{op.number} = {table.top} // {table.size}")
        for cancelled, table in self.cancels.items():
            w("least = moment")
            self._oldest_start(w, cancelled)
            self._compact(w, table, "-NEVER", "END", "least + 1")

    def _reclaim_pools(self, w: Writer) -> None:
        for op in self.groups_in(self.root):
            self._reclaim_groups(w, op)
        pools = [
            (Chain(op.number), table) for op, table in self.nodes.items() if op.number in self.chained & self.single
        ]
        for field, table in reversed(pools):
            self._reclaim_pool(w, field, table.name, table.size, table.top, self._kept(table))
        if self.histories:
            self._reclaim_pool(w, HISTORY, "history", 2, "history_top", self.builder.register("history_kept"))

    def _reclaim_groups(self, w: Writer, op: Iteration) -> None:
        """Keep the nodes of groups that records point to, and those before them on paths that are not too old:

        marks = unmarked(node1_top, 7)
        mark_groups(w1, 7, 0, w1_top, W1_CHAIN1, True, 7, marks)
        node1_top, edge1_top = kept_groups(node1, 7, node1_top, edge1, edge1_top, marks, moment - integers[1])
        """
        nodes, edges, field = self.nodes[op], self.edges[op], Chain(op.number)
        ticks = lifetime(op, self.plan.has_durations)
        since = "-NEVER" if ticks is None else f"moment - {self._constant(ticks)}"
        w(f"marks = unmarked({nodes.top}, {nodes.size})")
        pointing = self._pointing(field)
        for table, start in pointing:
            w(f"mark_groups({table.field_of_all(field, start)}, {nodes.size}, marks)")
        kept = f"{nodes.name}, {nodes.size}, {nodes.top}, {edges.name}, {edges.top}, marks, {since}"
        w(f"{nodes.top}, {edges.top} = kept_groups({kept})")
        w(f"{self._kept(nodes)} = {nodes.top}", f"{self._kept(edges)} = {edges.top}")
        for table, start in pointing:
            w(f"forward({table.field_of_all(field, start)}, {nodes.size}, marks)")

    def _pointing(self, field: Field) -> list[tuple[Table, str]]:
        """The tables whose records point to chains or histories, each with the offset of its first record."""
        pointing = [pair for pair in self._records(self.root) if field in pair[0].fields]
        others = [*self.nodes.values(), *self.cancels.values()]
        return pointing + [(table, "0") for table in others if field in table.fields]

    def _compact(self, w: Writer, table: Table, done: str, until: str, now: str) -> None:
        name, free = table.name, self.builder.register(f"{table.name}_free")
        w(f"{table.top} = compacted({name}, {table.size}, {table.top}, {done}, {until}, {now})", f"{free} = 0")
        w(f"{self._kept(table)} = {table.top}")
        for number in range(len(self._of(table).indexes)):
            link = table.field("next", number)
            if number in table.keyed:
                index, used, key = table.index_name(number), table.used(number), table.field("key", number)
                w(f"{index}, {used} = reindexed({index}, {name}, {table.size}, {table.top}, 8, {link}, {key})")
            else:
                w(f"{table.head(number)} = relinked({name}, {table.size}, {table.top}, {link}) + 1")

    def _oldest_start(self, w: Writer, op: Operator) -> None:
        """The earliest time from which on something may still cancel: of an instance that waits, or of a part of the
        pattern that is being detected."""
        if isinstance(op, Next):
            table = self.tables[op]
            w(f"least = lowest({table.name}, {table.size}, 0, {table.top}, END, least)")
            return
        assert isinstance(op, Exception_)
        if self.plan.has_durations:
            # An event to come may have started before this moment.
            ticks = lifetime(op, True)
            w("least = -NEVER" if ticks is None else f"least = moment - {self._constant(ticks)}")
        for table, start in self._records(op.item):
            at = table.offset(STARTS)
            w(f"least = lowest_waiting({table.name}, {table.size}, {start}, {table.top}, {at}, least)")

    def _records(self, under: Operator) -> list[tuple[Table, str]]:
        """The tables with composite events of the operators under one, each with the offset of its first record."""
        found = []
        for op in under.walk():
            for tables in (self.tables, self.queues):
                if op in tables:
                    found.append((tables[op], "0"))
            if isinstance(op, Timer):
                found.append((self.fifos[op], self.builder.register(f"{self.fifos[op].name}_first")))
        return found

    def _reclaim_pool(self, w: Writer, field: Field, name: str, size: int, top: str, kept: str) -> None:
        """Keep the nodes that records point to:

        marks = unmarked(node1_top, 4)
        mark(w1, 7, 0, w1_top, W1_CHAIN1, True, node1, 4, marks)
        node1_top = kept_nodes(node1, 4, node1_top, marks)
        forward(w1, 7, 0, w1_top, W1_CHAIN1, True, 4, marks)
        """
        pointing = self._pointing(field)
        w(f"marks = unmarked({top}, {size})")
        for table, start in pointing:
            w(f"mark({table.field_of_all(field, start)}, {name}, {size}, marks)")
        w(f"{top} = kept_nodes({name}, {size}, {top}, marks)", f"{kept} = {top}")
        for table, start in pointing:
            w(f"forward({table.field_of_all(field, start)}, {size}, marks)")

    def _finish(self, w: Writer) -> None:
        w("taken = start", "oldest = first + start")
        for table, start in self._records(self.root):
            if table.binds:
                function = "lowest" if table.frees else "lowest_waiting"
                at = table.offset(OLDEST)
                w(f"oldest = {function}({table.name}, {table.size}, {start}, {table.top}, {at}, oldest)")
        for op in self.groups_in(self.root):
            table = self.nodes[op]
            w(f"oldest = lowest_waiting({table.name}, {table.size}, 0, {table.top}, {table.offset(OLDEST)}, oldest)")
        w("events += start")
        live = " + ".join(f"live{op.number}" for op in self.waiting) or "0"
        w(f"peak_retained = max(peak_retained, {live})")
        self.builder.keep_from(w, "oldest")
