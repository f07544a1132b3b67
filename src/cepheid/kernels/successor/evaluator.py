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
from cepheid.expr import Attr
from cepheid.kernels.successor import instances, successor_kernel
from cepheid.kernels.successor.composites import ENDS, HISTORY, OLDEST, STARTS, Chain, Composite, Field, Row, Time
from cepheid.kernels.successor.failures import REASON, reason_numbers, shows_failures
from cepheid.kernels.successor.network import Network
from cepheid.kernels.successor.operators import (
    Exception_,
    Iteration,
    Leaf,
    Next,
    Operator,
    Timer,
    Waiting,
    leaves_of,
    operators_of,
)
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


class _Evaluator(Network):
    def __init__(self, plan: Plan) -> None:
        assert plan.core is not None
        builder = KernelBuilder(plan)
        super().__init__(plan, builder, operators_of(plan.core, plan.has_durations))
        self.steps = tuple(step.var for step in plan.steps if not step.negated)
        self.shows_failures = shows_failures(plan)
        self.reasons = list(reason_numbers(self.root))
        self.is_bounded = self.shows_failures or any(
            var in self.root.many or var in self.root.optional for var in self.steps
        )
        self.is_timed = self.shows_failures or any(isinstance(op, Timer) for op in _ending(self.root))
        self.width = len(self.steps) + int(self.is_timed) + int(self.shows_failures)
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
        for _ in range(_ROUNDS):
            before = self.shape()
            body, finish = Writer(), Writer()
            self.conditions.count = 0
            self._body(body)
            self._finish(finish)
            if self.shape() == before:
                break
        builder = self.builder
        for array in self._arrays():
            builder.declare(array)
        if self.has_late and builder.uses_strings:
            builder.remember_strings()
        preamble = [instances.IMPORTS, "", *(line for table in self._tables() for line in table.constants())]
        source = builder.source(
            body,
            finish,
            preamble=preamble,
            setup=[
                "made = 0",
                "start = 0",
                "written = 0",
                "ends = 0",
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
                with w.block("while wake < moment:"):
                    self._pass_time(w)
            if self.is_bounded:
                self._write_found(w)
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
        self._prefetch(w, prompt)
        w("bits = mask[e]")
        every = sum({1 << self.bits[leaf.var] for leaf in self.leaves})
        with w.block(f"if bits & np.uint64({every}) == np.uint64(0):"):
            w("dropped_by_mask += 1", "continue")
        w("tick = t", "output = 0")
        if prompt:
            w("lone = e + 1 < time.shape[0] and time[e + 1] > t")
        for leaf in reversed(self.leaves):
            with w.block(f"if bits & np.uint64({1 << self.bits[leaf.var]}) != np.uint64(0):"):
                self.put_out(w, leaf, self.with_history(w, leaf, self.values.at_hand(leaf)))
        with w.block("if output > most:"):
            w("problem = first + e + 1", "stop = e + 1", "break")

    def _prefetch(self, w: Writer, prompt: list[Waiting]) -> None:
        """The lists that later events will visit:

        if e + 16 < time.shape[0]:
            prefetch(w1_index, 2 * first_slot(column0[e + 16], w1_index.shape[0] >> 1))
        """
        ahead = {}
        for op in prompt:
            for leaf in leaves_of(op.awaited):
                others = frozenset(op.awaited.variables).difference(leaf.variables)
                event = replace(self.values.at_hand(leaf), unbound=others)
                for number, choices in self.visited(self.tables[op], event).items():
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

    def match(self, w: Writer, event: Composite) -> None:
        """A match, as positions or, if its variables have lists, as a record:

        values[written] = w1[i1 + W1_ROW0]
        values[written + 1] = first + e
        written += 2
        """
        if self.shows_failures:
            w("matches += 1")
            return
        if self.is_bounded:
            if self.checked:
                self.found.ensure(w)
            for field in self._found_fields():
                self.found.offset(field)
            self.found.fill(w, self.found.top, event)
            w(f"{self.found.top} += {self.found.size}", "matches += 1", "made += 1")
            chains = dict.fromkeys(self._iteration_of(var) for var in self.steps if var in self.root.many)
            if not chains or self.root.optional:
                w("output += 1")
            for op in chains:
                chain = event.read(Chain(op.number))
                with w.when([f"{chain} != EMPTY"] if self.root.optional else []):
                    w(f"output += {self.nodes[op].name}[{chain} + LENGTH]")
            return
        if self.checked:
            with w.block(f"if written + {self.width} > values.shape[0]:"):
                w(f"values = grown(values, written + {self.width})")
        for number, var in enumerate(self.steps):
            w(f"values[written + {number}] = {event.read(Row(var))}")
        if self.is_timed:
            w(f"values[written + {self.width - 1}] = {event.read(ENDS)}")
        w(f"written += {self.width}", "matches += 1", "made += 1", "output += 1")

    def fail(self, w: Writer, op: Operator, why: str, event: Composite) -> None:
        """A failed detection, as a record with what it binds: `found[found_top + FOUND_REASON] = 2`."""
        if not self.shows_failures:
            return
        if self.checked:
            self.found.ensure(w)
        for field in self._found_fields():
            self.found.offset(field)
        inside = {node.number for node in event.operator.walk()}

        def read(field: Field) -> str:
            match field:
                case "reason":
                    return str(self.reasons.index((op.number, why)))
                case Row() if field.var not in event.operator.variables:
                    return "EMPTY"
                case Chain() if field.operator not in inside:
                    return "EMPTY"
                case _:
                    return event.read(field)

        self.found.fill(w, self.found.top, replace(event, read=read))
        w(f"{self.found.top} += {self.found.size}", "made += 1")

    def _found_fields(self) -> list[Field]:
        fields: list[Field] = [ENDS] if self.is_timed else []
        fields += [REASON] if self.shows_failures else []
        for var in self.steps:
            fields.append(Chain(self._iteration_of(var).number) if var in self.root.many else Row(var))
        return list(dict.fromkeys(fields))

    def _iteration_of(self, var: str, under: Operator | None = None) -> Iteration:
        return _outermost(self.root if under is None else under, var)

    # --- matches with lists -------------------------------------------------------------------------------------------

    def _write_found(self, w: Writer) -> None:
        """Write the events of the matches, variable by variable:

        values = grown(values, written + ... + events_in(found, 2, found_top, FOUND_CHAIN1, node1))
        for r in range(0, found_top, 2):
            m0 = found[r + FOUND_CHAIN1]
            ...
        """
        found, width = self.found, self.width
        nested = any(var in self._iteration_of(var).item.many for var in self.steps if var in self.root.many)
        with w.block(f"if {found.top} > 0:"):
            w(f"bounds = grown(bounds, ends + {found.top} // {found.size} * {width} + 1)")
            chains = [self._iteration_of(var) for var in self.steps if var in self.root.many]
            ends = [(found.offset(Chain(op.number)), self.nodes[op].name) for op in chains]
            sizes = [f"events_in({found.name}, {found.size}, {found.top}, {chain}, {node})" for chain, node in ends]
            w(f"values = grown(values, {' + '.join(['written', f'{found.top} // {found.size} * {width}', *sizes])})")
            with w.block(f"for r in range(0, {found.top}, {found.size}):"):
                for var in self.steps:
                    if var in self.root.many:
                        iteration = self._iteration_of(var)
                        self._write_chain(w, iteration, var, found.at(Chain(iteration.number), "r"), nested)
                    else:
                        may_lack = self.shows_failures or var in self.root.optional
                        self._write_value(w, found.at(Row(var), "r"), may_lack, nested)
                    w("ends += 1", "bounds[ends] = written")
                if self.is_timed:
                    self._write_value(w, found.at(ENDS, "r"), False, nested)
                    w("ends += 1", "bounds[ends] = written")
                if self.shows_failures:
                    self._write_value(w, found.at(REASON, "r"), False, nested)
                    w("ends += 1", "bounds[ends] = written")
            w(f"{found.top} = 0")

    def _write_chain(self, w: Writer, op: Iteration, var: str, chain: str, checked: bool) -> None:
        """The events of a variable in a chain, written from the last one on:

        m0 = found[r + FOUND_CHAIN1]
        at = written + node1[m0 + LENGTH]
        while m0 != EMPTY: ...
        """
        table = self.nodes[op]
        is_plain = not (checked or var in op.item.many or var in op.item.optional or var in self.root.optional)
        is_plain = is_plain and not self.shows_failures
        if not is_plain:
            w("began = written")
            self._write_backwards(w, op, var, chain, 0, checked)
            w("reverse(values, began, written)")
            return
        self.chained.add(op.number)
        w(f"m0 = {chain}", f"written += {table.name}[m0 + LENGTH]", "at = written")
        with w.block("while m0 != EMPTY:"):
            w("at -= 1", f"values[at] = {table.at(Row(var), 'm0')}", f"m0 = {table.name}[m0 + PREV]")

    def _write_backwards(self, w: Writer, op: Iteration, var: str, chain: str, depth: int, checked: bool) -> None:
        """The events of a variable in a chain, the last one first."""
        table, at = self.nodes[op], f"m{depth}"
        self.chained.add(op.number)
        w(f"{at} = {chain}")
        with w.block(f"while {at} != EMPTY:"):
            if var in op.item.many:
                inner = self._iteration_of(var, op.item)
                self._write_backwards(w, inner, var, table.at(Chain(inner.number), at), depth + 1, checked)
            else:
                self._write_value(w, table.at(Row(var), at), var in op.item.optional, checked)
            w(f"{at} = {table.name}[{at} + PREV]")

    def _write_value(self, w: Writer, source: str, is_optional: bool, checked: bool) -> None:
        with w.when([f"{source} != EMPTY"] if is_optional else []):
            if checked:
                with w.block("if written == values.shape[0]:"):
                    w("values = grown(values, written + 1)")
            w(f"values[written] = {source}", "written += 1")

    # --- time ---------------------------------------------------------------------------------------------------------

    def _pass_time(self, w: Writer) -> None:
        """Time goes to the next moment at which something is to be decided, and it is."""
        w("tick = wake", "output = 0")
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
            w("problem = max(first + start, 1)", "wake = NEVER")

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
            if not self.is_bounded:
                w(f"values = grown(values, written + {self.width} * room)")

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
        pools = [(Chain(op.number), table) for op, table in self.nodes.items() if op.number in self.chained]
        for field, table in reversed(pools):
            self._reclaim_pool(w, field, table.name, table.size, table.top, self._kept(table))
        if self.histories:
            self._reclaim_pool(w, HISTORY, "history", 2, "history_top", self.builder.register("history_kept"))

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
        pointing = [pair for pair in self._records(self.root) if field in pair[0].fields]
        pointing += [(table, "0") for table in [*self.nodes.values(), *self.cancels.values()] if field in table.fields]
        w(f"marks = unmarked({top}, {size})")
        for table, start in pointing:
            records = f"{table.name}, {table.size}, {start}, {table.top}, {table.offset(field)}, {table.frees}"
            w(f"mark({records}, {name}, {size}, marks)")
        w(f"{top} = kept_nodes({name}, {size}, {top}, marks)", f"{kept} = {top}")
        for table, start in pointing:
            records = f"{table.name}, {table.size}, {start}, {table.top}, {table.offset(field)}, {table.frees}"
            w(f"forward({records}, {size}, marks)")

    def _finish(self, w: Writer) -> None:
        w("taken = start", "oldest = first + start")
        for table, start in self._records(self.root):
            if table.binds:
                function = "lowest" if table.frees else "lowest_waiting"
                at = table.offset(OLDEST)
                w(f"oldest = {function}({table.name}, {table.size}, {start}, {table.top}, {at}, oldest)")
        w("events += start")
        live = " + ".join(f"live{op.number}" for op in self.waiting) or "0"
        w(f"peak_retained = max(peak_retained, {live})")
        self.builder.keep_from(w, "oldest")


def _ending(op: Operator) -> list[Operator]:
    """The operators with whose composite events a match may end."""
    match op:
        case Next():
            return [op, *_ending(op.right)]
        case Timer() | Leaf():
            return [op]
        case Exception_():
            return [op, *_ending(op.item)]
        case _:
            return [op, *(node for operand in op.operands for node in _ending(operand))]


def _outermost(under: Operator, var: str) -> Iteration:
    return [op for op in under.walk() if isinstance(op, Iteration) and var in op.variables][-1]
