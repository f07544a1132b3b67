"""The scan over events (SASE §3.2, §4.1) as generated code, whatever stacks it fills and searches.

Events are read in chunks. The code reads the current event `e` (`here` where it indexes an array: unsigned, which
saves the test for negative indices), with its time `t`, its position `m` in the window's measure and its mask `bits`.
Matches go to `values`; `written` is its used length.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import cached_property

from cepheid.codegen.builder import KernelBuilder, Writer
from cepheid.codegen.scalar import key_of
from cepheid.kernels.instance_stack import IMPORTS, ChainTable, Ring, Stack
from cepheid.kernels.stacks.layout import CHAIN, CURRENT_EVENT, StackLayout
from cepheid.physical import Plan
from cepheid.runtime.kernel import LARGE_OUTPUT, Kernel, OperatorRegisters, StateArray

_CHUNK = 4096
"""Arrays grow between chunks of so many events."""

MATCHES = "the matches of a step"
"""What may need much memory, as an error names it."""
READ = ("here = np.uint64(e)", "t = time[here]", "m = measure[here]", "bits = mask[here]", "events += 1")
"""The lines that read the current event."""


class StackScan(ABC):
    """What the algorithms share. What they keep on stacks, and what an event does to them, is where they differ."""

    def __init__(self, plan: Plan, options: Mapping[str, str]) -> None:
        self.plan = plan
        self.builder = KernelBuilder(plan)
        self.register = self.builder.register
        self.layout = StackLayout(self.builder, options)

    # --- where the algorithms differ ----------------------------------------------------------------------------------

    @property
    @abstractmethod
    def stacks(self) -> Sequence[Stack]:
        """All stacks."""

    @property
    @abstractmethod
    def decides_late(self) -> bool:
        """Whether the passing of time alone can bring matches."""

    @abstractmethod
    def event(self, w: Writer) -> None:
        """All that is done with an event; `e` is -1 for the time that has passed before the batch."""

    @abstractmethod
    def most_pushed(self, stacks: Sequence[Stack]) -> str:
        """Source of how many events of a chunk can be pushed onto one of the stacks, at most."""

    @abstractmethod
    def older(self, w: Writer) -> None:
        """Lower `oldest` to the events that may still be part of a match."""

    @abstractmethod
    def operators(self) -> tuple[OperatorRegisters, ...]:
        """Where the work of each component is counted, when the source is written."""

    @cached_property
    def rings(self) -> list[Ring]:
        return list(dict.fromkeys(stack.ring for stack in self.stacks))

    @cached_property
    def chain_tables(self) -> list[ChainTable]:
        return list(dict.fromkeys(stack.table for stack in self.stacks if stack.links))

    # --- the function -------------------------------------------------------------------------------------------------

    def source(self) -> str:
        """The module with the function `step`."""
        body = Writer()
        body("stop = -1")
        with body.block("while stop < time.shape[0]:"):
            # What an event does is written first: it says which registers there are.
            events = Writer()
            with events.block("for e in range(start, stop):"):
                self.event(events)
            body("start = stop", f"stop = min(max(start, 0) + {_CHUNK}, time.shape[0])")
            self.make_room(body)
            body.append(events)
        self.builder.declare(*self.tables())
        finish = Writer()
        finish(f"matches += written // {len(self.layout.positive)}", "oldest = first + taken")
        self.older(finish)
        self.builder.keep_from(finish, "oldest")
        offsets = [stack.record.offsets for stack in self.stacks]
        setup = [*offsets, "written = 0", "wanted = 0", "taken = time.shape[0]"]
        return self.builder.source(body, finish, preamble=[IMPORTS], setup=setup, taken="taken")

    def kernel(self) -> Kernel:
        source = self.source()
        steps = [step.var for step in self.layout.positive]
        return self.builder.kernel(source, steps, has_bounds=False, operators=self.operators())

    def tables(self) -> list[StateArray]:
        """The arrays of the state besides the registers."""
        return [ring.array() for ring in self.rings] + [table.array() for table in self.chain_tables]

    def make_room(self, w: Writer) -> None:
        """Arrays grow here, between chunks of events, and not in the loop over events: an array that is assigned in a
        loop makes Numba count references at every turn, which costs more than all the rest."""
        w("# make room for all that the events of this chunk may push")
        if not self.decides_late:
            with w.block("if wanted > values.shape[0]:"):
                self.builder.stop_if_large(w, "wanted", "first + max(start, 0)", MATCHES)
                w("values = grown(values, wanted)")
        for ring in self.rings:
            retained = f"{ring.following} - {ring.base}"
            w(
                f"room = {' + '.join(self.most_pushed([stack]) for stack in ring.stacks)}",
                f"if {ring.width} * ({retained} + room) > {ring.name}.shape[0]:",
                f"    {ring.grown('room')}",
                ring.size,
            )
        for table in self.chain_tables:
            self.register(table.used)
            w(f"room = {self.most_pushed(table.stacks)}")
            with w.block(f"if {table.is_full('room')}:"):
                if table.is_shared:
                    self._oldest_row(w, table.stacks)
                    w(*table.grown("oldest", "room"))
                else:
                    w(*table.grown(table.stacks[0].ring.base, "room"))

    def _oldest_row(self, w: Writer, stacks: Sequence[Stack]) -> None:
        """The position of the first event that is still on one of the stacks, or of the next event."""
        w("oldest = first + max(start, 0)")
        for ring in dict.fromkeys(stack.ring for stack in stacks):
            self.older_on(w, ring)

    # --- stacks -------------------------------------------------------------------------------------------------------

    def push(self, w: Writer, stack: Stack, pointers: Mapping[str, str]) -> None:
        """The current event becomes an instance, unless a part of its key is null:

        i = 3 * (s0_next & s0_last)
        s0[i + S0_ROW] = first + e
        s0[i + S0_TIME] = t
        """
        if not stack.links:
            self._store(w, stack, pointers)
            self._count_push(w, stack)
        elif stack.table.is_shared:
            self._store(w, stack, pointers)
            self._chain(w, stack)
        else:
            key, valid = key_of([(self.layout.term(CURRENT_EVENT, link.here), link.as_float) for link in stack.links])
            with w.block(f"if {valid}:"):
                self._store(w, stack, pointers)
                w(f"key = {key}", f"{CHAIN} = {stack.table.find('key')}")
                self._chain(w, stack)

    def _chain(self, w: Writer, stack: Stack) -> None:
        """Put the instance at the head of the chain of the event's `key`:

        s0[i + S0_PREV] = s0_chains[chain + 1]
        s0_chains[chain + 1] = s0_next
        """
        w(
            stack.put("prev", "i", stack.table.head(stack, CHAIN)),
            *stack.table.put(stack, CHAIN, "key", stack.ring.following),
        )
        self._count_push(w, stack)

    def _count_push(self, w: Writer, stack: Stack) -> None:
        counts = dict.fromkeys([stack.ring.following, stack.pushed, "partial_matches"])
        retained = " + ".join(f"{ring.following} - {ring.base}" for ring in self.rings)
        peak = ("if retained > peak_retained:", "    peak_retained = retained")
        w(*(f"{number} += 1" for number in counts), f"retained = {retained}", *peak)

    def _store(self, w: Writer, stack: Stack, pointers: Mapping[str, str]) -> None:
        measured = ["measure"] if stack.measured else []
        of_event = ["row", "time", *measured], [f"c{column}" for column in stack.columns]
        own, columns = ([stack.put(name, "i", CURRENT_EVENT.field(name)) for name in names] for names in of_event)
        links = [stack.put(pointer, "i", pointers[pointer]) for pointer in stack.pointers]
        w(f"# push onto {stack.name}", f"i = {stack.offset(stack.ring.following)}", *own, *links, *columns)

    def drop_expired(self, w: Writer) -> None:
        """Drop the instances that have left the window of the current event. Mostly it is none or one, which a branch
        would mispredict, so the first is dropped without one:

            s0_base += np.int64((s0_base < s0_next) & (m - s0[3 * (s0_base & s0_last) + S0_TIME] > limit))
        """
        for ring in self.rings:
            base, following = ring.base, ring.following
            expired = f"m - {ring.stacks[0].at('measure', ring.offset(base))} > limit"
            w(
                f"{base} += np.int64(({base} < {following}) & ({expired}))",
                f"while {base} < {following} and {expired}:",
                f"    {base} += 1",
            )

    def older_on(self, w: Writer, ring: Ring) -> None:
        """`oldest = min(oldest, s0[... + S0_ROW])`: the first event that is still in a ring."""
        oldest = ring.stacks[0].at("row", ring.offset(ring.base))
        w(f"if {ring.base} < {ring.following}:", f"    oldest = min(oldest, {oldest})")

    # --- matches ------------------------------------------------------------------------------------------------------

    def emit(self, w: Writer, rows: Sequence[str]) -> None:
        """`values[written + 0] = ...` for each event of a match, if there is room; `written` counts it in any case."""
        stored = [f"    values[written + {offset}] = {row}" for offset, row in enumerate(rows)]
        w(f"if written + {len(rows)} <= values.shape[0]:", *stored, f"written += {len(rows)}")

    def stop_if_large(self, w: Writer) -> None:
        """Leave the current event to the next step if the output is large. Only the number of events has changed:

        if written >= 1048576:
            events, taken, stop = events - 1, e, time.shape[0]
            break
        """
        with w.block(f"if written >= {LARGE_OUTPUT}:"):
            w("events, taken, stop = events - 1, e, time.shape[0]", "break")

    def note_output(self, w: Writer) -> None:
        """Remember the counters, in case the event's matches have to be made again; `ceiling` is how much output the
        event may have."""
        width = len(self.layout.positive)
        w("before, tested = written, predicates", f"ceiling = written + {width} * {self.builder.most_matches}")

    def stop_if_many(self, w: Writer) -> None:
        """Stop at an event that completes too many matches:

        if written > ceiling:
            problem, written, stop = first + e + 1, before, time.shape[0]
            break
        """
        with w.block(f"if {self.layout.progress} > ceiling:"):
            w("problem, stop = first + e + 1, time.shape[0]", "break")

    def repeat_if_full(self, w: Writer) -> None:
        """Process the event again with a larger output. Construction changes nothing else:

        if written > values.shape[0]:
            wanted, written, predicates = written, before, tested
        """
        lines = ("wanted, written, predicates = written, before, tested", "events -= 1", "stop = e", "break")
        self.stop_if_many(w)
        w("if written > values.shape[0]:", *(f"    {line}" for line in lines))
