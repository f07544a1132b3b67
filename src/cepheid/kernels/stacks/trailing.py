"""Trailing negation (SASE §3.3): a sequence that would be a match waits until its window has passed, and is one if no
negated event has come by then."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from cepheid.codegen.builder import Array, Writer
from cepheid.codegen.scalar import key_of
from cepheid.kernels.stacks.chains import Chains, previous
from cepheid.kernels.stacks.layout import Absence, Instance, Locations, StackLayout
from cepheid.physical import Kind
from cepheid.runtime.kernel import StateArray


@dataclass(frozen=True, slots=True)
class _Pending:
    """A component of the sequence `p` that waits."""

    i: int

    def field(self, name: str) -> str:
        return f"pending_{self.i}_{name}[p]"


class Trailing:
    """The sequences that wait, in the order in which their windows end."""

    def __init__(self, layout: StackLayout, chains: Chains) -> None:
        self.layout = layout
        self.chains = chains
        names = ("pending_heap", "pending_item", "pending_time", "pending_measure", "pending_free")
        self.heap, self.item, self.time, self.measure, self.free = (
            Array(StateArray(name, "int64", 16)) for name in names
        )

    def tables(self) -> list[StateArray]:
        """A sequence that waits: its events, the end of the last, the start of its window."""
        arrays = [self.heap.state, self.item.state, self.time.state, self.measure.state, self.free.state]
        kinds = list(self.layout.plan.columns.values())
        for i, step in enumerate(self.layout.positive):
            arrays.append(StateArray(f"pending_{i}_row", "int64", 16))
            for column in self.layout.columns(step.var):
                kind = "uint64" if column == "mask" else "float64" if kinds[int(column)] is Kind.FLOAT else "int64"
                arrays.append(StateArray(f"pending_{i}_c{column}", kind, 16))
        return arrays

    def postpone(self, w: Writer, locations: Locations) -> None:
        """Store the sequence at hand until its window has passed:

        pending_0_row[p] = s0[i0 + S0_ROW]
        heap_push(pending_heap, pending_item, pending_size, pending_measure[p], p)
        """
        register = self.chains.register
        size, made, free = register("pending_size"), register("pending_made"), register("pending_freed")
        with w.block(f"if {free} > 0:"):
            w(f"{free} -= 1", f"p = {self.free.at(free)}")
        with w.block("else:"):
            w(f"p = {made}", f"{made} += 1")
            with w.block(f"if {made} > {self.time.size}:"):
                for array in self.tables():
                    Array(array).grow(w, made)
        w(f"{self.time.at('p')} = t", f"{self.measure.at('p')} = {self.layout.field_of(locations, 0, 'measure')}")
        for i, step in enumerate(self.layout.positive):
            for name in ("row", *(f"c{column}" for column in self.layout.columns(step.var))):
                w(f"{_Pending(i).field(name)} = {self.layout.field_of(locations, i, name)}")
        w(f"heap_push({self.heap}, {self.item}, {size}, {self.measure.at('p')}, p)", f"{size} += 1")

    def decide(self, w: Writer, emit: Callable[[Writer, Sequence[str]], None]) -> None:
        """Decide the sequences whose window has passed:

        while pending_size > 0 and m - pending_heap[0] > limit:
            p = heap_pop(pending_heap, pending_item, pending_size)
            ...
            if not spoiled: ...
        """
        size, free = self.chains.register("pending_size"), self.chains.register("pending_freed")
        with w.block(f"while {size} > 0 and m - {self.heap.at('0')} > limit:"):
            w(f"p = heap_pop({self.heap}, {self.item}, {size})", f"{size} -= 1")
            w(f"{self.free.at(free)} = p", f"{free} += 1", "spoiled = False")
            for absence in self.layout.trailing:
                self._look_for(w, absence)
            with w.block("if not spoiled:"):
                rows = [_Pending(i).field("row") for i in range(len(self.layout.positive))]
                with w.block(f"if written + {len(rows)} > values.shape[0]:"):
                    w(f"values = grown(values, written + {len(rows)})")
                emit(w, rows)

    def _look_for(self, w: Writer, absence: Absence) -> None:
        """Whether a negated event spoils the sequence: from the latest one back to the last component."""
        stack, last = absence.stack, _Pending(self.layout.last)
        base = self.chains.base(stack)
        if stack.links:
            key, _ = key_of([(self.layout.term(last, link.there), link.as_float) for link in stack.links])
            w(f"q = {stack.latest(key)}")
        else:
            w(f"q = {self.chains.following(stack)} - 1")
        with w.block(f"while not spoiled and q >= {base}:"):
            w(f"k = {stack.place('q')}")
            negated = Instance(stack, "k")
            order, end = ("row", last.field("row")) if self.layout.by_position else ("time", self.time.at("p"))
            with w.block(f"if {negated.field(order)} <= {end}:"):
                w("break")
            with w.block(f"if {negated.field('measure')} - {self.measure.at('p')} <= limit:"):
                locations = {step.var: _Pending(i) for i, step in enumerate(self.layout.positive)}
                with self.layout.if_all(w, self.layout.tests_of(absence), {**locations, stack.step.var: negated}):
                    w("spoiled = True", "break")
            w(f"q = {previous(stack, 'q', 'k')}")

    def older(self, w: Writer) -> None:
        with w.block(f"for p in range({self.chains.register('pending_size')}):"):
            w(f"oldest = min(oldest, pending_0_row[{self.item.at('p')}])")
