"""Active instance stacks (SASE §4.1): each component has a stack of the events that may be it, and an instance
remembers the most recent instance of the previous stack before it (its RIP). What finds none is not pushed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cepheid.codegen.builder import Writer
from cepheid.codegen.scalar import key_of
from cepheid.expr import variables
from cepheid.kernels.instance_stack import Stack
from cepheid.kernels.stacks.construction import Construction
from cepheid.kernels.stacks.layout import CHAIN, CURRENT_EVENT, Instance, Locations
from cepheid.kernels.stacks.scan import READ, StackScan
from cepheid.kernels.stacks.trailing import Trailing
from cepheid.physical import Plan, Step
from cepheid.runtime import prefetch
from cepheid.runtime.kernel import END_OF_TIME, OperatorRegisters, StateArray


class ActiveInstanceStacks(StackScan):
    def __init__(self, plan: Plan, options: Mapping[str, str]) -> None:
        super().__init__(plan, options)
        self.trailing = Trailing(self.layout)
        self.construction = Construction(self.layout, self._found)
        self.bits = self.builder.bits_of(plan.steps)
        """The bits of the mask that give an event a role."""

    @property
    def stacks(self) -> Sequence[Stack]:
        return self.layout.all_stacks

    @property
    def decides_late(self) -> bool:
        return bool(self.layout.trailing)

    def tables(self) -> list[StateArray]:
        return [*super().tables(), *(self.trailing.tables() if self.decides_late else [])]

    def make_room(self, w: Writer) -> None:
        super().make_room(w)
        if self.chain_tables:
            sizes = " + ".join(f"{table.name}.shape[0]" for table in self.chain_tables)
            w(f"far = time.shape[0] if {sizes} > {prefetch.FAR_CHAINS} else 0")

    def most_pushed(self, stacks: Sequence[Stack]) -> str:
        bits = sum({1 << stack.step.begin for stack in stacks})
        return f"count_bit(mask, max(start, 0), stop, np.uint64({bits}))"

    def older(self, w: Writer) -> None:
        for ring in dict.fromkeys(stack.ring for stack in self.layout.stacks):
            self.older_on(w, ring)
        if self.decides_late:
            self.trailing.older(w)

    def operators(self) -> tuple[OperatorRegisters, ...]:
        """The instances pushed on each stack; the events of the last component are not pushed."""
        return tuple(OperatorRegisters(stack.step.var, stack.pushed.number) for stack in self.stacks)

    # --- one event ----------------------------------------------------------------------------------------------------

    def event(self, w: Writer) -> None:
        self._look_ahead(w)
        self._read(w)
        if self.decides_late:
            self.trailing.decide(w, self.emit)
        w("if e < 0:", "    continue")
        if self.layout.drops_in_scan:
            w("# drop the instances that have left the window")
            self.drop_expired(w)
        if self.layout.key:
            self._look_up(w)
        for i, step in reversed(list(enumerate(self.layout.positive))):
            with w.block(f"if bits & np.uint64({1 << step.begin}):  # can be {_comment(step)}"):
                if i == self.layout.last:
                    self._complete(w)
                else:
                    self._push_positive(w, i)
        for absence in self.layout.absences:
            step = absence.stack.step
            with w.block(f"if bits & np.uint64({1 << step.begin}):  # can be {_comment(step)}, negated"):
                self.push(w, absence.stack, {})

    def _look_up(self, w: Writer) -> None:
        """Look up the event's key in the table that all stacks share:

        key = column0[here]
        chain = chain_of(chains, 8, key)
        """
        key, valid = key_of([(self.layout.term(CURRENT_EVENT, link.here), link.as_float) for link in self.layout.key])
        plays_a_part = [f"bits & np.uint64({self.bits})"] if self.decides_late else []
        (table,) = self.chain_tables
        skip = (f"if not ({' and '.join([*plays_a_part, valid])}):", "    continue")
        w(*skip, f"key = {key}", f"{CHAIN} = {table.find('key')}")

    def _look_ahead(self, w: Writer) -> None:
        """Prefetch what later events read: their chains, then the heads of these:

        if e + 16 < far and mask[e + 16] & np.uint64(7):
            prefetch(chains, first_link(chains, 8, column0[e + 16]))
        """
        if not self.chain_tables:
            return
        lines = ["# ask for what later events will look at, so that it is there in time"]
        for distance in (prefetch.AHEAD, prefetch.SOON):
            lines += [f"if e + {distance} < far and mask[e + {distance}] & np.uint64({self.bits}):"]
            for table in self.chain_tables:
                links = [(self.layout.later_term(link.here, distance), link.as_float) for link in table.stacks[0].links]
                entry = table.first(key_of(links)[0])
                if distance == prefetch.AHEAD:
                    lines += [f"    prefetch({table.name}, {entry})"]
                    continue
                heads = [(stack, table.head(stack, entry)) for stack in table.stacks]
                lines += [f"    prefetch({stack.ring.name}, {stack.offset(head)})" for stack, head in heads]
        w(*lines)

    def _read(self, w: Writer) -> None:
        w("if e < 0:", "    t = now", "    m = now", "    bits = np.uint64(0)")
        if self.plan.counts_events:
            w(f"    if now != {END_OF_TIME}:", "        continue")
        with w.block("else:"):
            w(*READ)
            if self.decides_late:
                self.stop_if_large(w)
            w(f"if bits & np.uint64({self.bits}) == 0:", "    dropped_by_mask += 1")
            if not self.decides_late:
                w("    continue")

    # --- pushing ------------------------------------------------------------------------------------------------------

    def _push_positive(self, w: Writer, i: int) -> None:
        stack = self.layout.stacks[i]
        pointers: dict[str, str] = {}
        if i > 0:
            pointers["rip"] = f"rip{i}"
            self.layout.find_head(w, self.layout.stacks[i - 1], pointers["rip"])
        for absence in self.layout.inner:
            if absence.at == i:
                pointers[absence.stack.name] = f"latest_{absence.stack.name}"
                self.layout.find_head(w, absence.stack, pointers[absence.stack.name])
        if i == 0:
            self.push(w, stack, pointers)
            return
        with w.block(f"if {self.layout.alive(self.layout.stacks[i - 1], pointers['rip'])}:"):
            if self.layout.options["others"] == "multi":
                self._cross_filter(w, i)
                with w.block("if found:"):
                    self.push(w, stack, pointers)
            else:
                self.push(w, stack, pointers)

    def _cross_filter(self, w: Writer, i: int) -> None:
        """Multi-PAIS (§4.2.2): some instance of the previous stack must agree on every equivalence attribute. A
        loop like that of `Construction._search` sets `found`."""
        stack, var = self.layout.stacks[i - 1], self.layout.positive[i].var
        pair = {stack.step.var, var}
        tests = [p for p in self.layout.tests if variables(p) == pair and p not in self.layout.equalities.exact]
        agree = self.layout.stop_if("found", tests, {stack.step.var: Instance(stack, "k"), var: CURRENT_EVENT})
        w("found = False", f"j = rip{i}")
        with w.block(f"while {self.layout.alive(stack, 'j')}:"):
            w(f"k = {stack.offset('j')}", *agree, f"j = {stack.previous('j', 'k')}")

    # --- matches ------------------------------------------------------------------------------------------------------

    def _complete(self, w: Writer) -> None:
        if self.decides_late:
            w(f"ceiling = {self.layout.progress} + {self.builder.most_matches}")
            self.construction.construct(w)
            self.stop_if_many(w)
            return
        self.stop_if_large(w)
        self.note_output(w)
        self.construction.construct(w)
        w("# no room left: do this event again, with enough")
        self.repeat_if_full(w)

    def _found(self, w: Writer, locations: Locations) -> None:
        if self.decides_late:
            self.trailing.postpone(w, locations)
        else:
            self.emit(w, [self.layout.field_of(locations, i, "row") for i in range(len(self.layout.positive))])


def _comment(step: Step) -> str:
    """A component's number stands for it in comments: its name is the query's text."""
    return f"component on bit {step.begin}"
