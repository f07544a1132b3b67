"""The records of a tree plan that wait until no event can come any more that must not occur."""

from __future__ import annotations

from collections.abc import Sequence

from cepheid.codegen.builder import Array, Writer
from cepheid.kernels.tree.buffers import Buffers
from cepheid.runtime.kernel import END_OF_TIME, StateArray


class Waiting:
    """`w0_measure` and `w0_item` are a heap by the start of the match or, where operators have windows of their own, by
    the time up to which nothing may occur. `w0_v1` holds the event of variable 1."""

    def __init__(self, buffers: Buffers, number: int, variables: Sequence[str]) -> None:
        prefix = f"w{number}"
        self.buffers = buffers
        self.heap, self.item, self.free, self.ready = (
            Array(StateArray(f"{prefix}_{name}", "int64", 16)) for name in ("measure", "item", "free", "ready")
        )
        numbers = {var: buffers.variable_number[var] for var in variables}
        self.events = {n: Array(StateArray(f"{prefix}_v{n}", "int64", 16)) for n in numbers.values()}
        self.arrays = [self.heap, self.item, self.free, self.ready, *self.events.values()]
        buffers.waiting += [array.state for array in self.arrays]
        self.size, self.freed, self.made = (buffers.register(f"{prefix}_{name}") for name in ("size", "freed", "made"))

    def decided(self, measure: str) -> str:
        """Whether no event can come any more in the window of a match that starts there (or is decided then)."""
        if self.buffers.by_operator:
            return f"{measure} < now_measure"
        if not self.buffers.expires:
            return f"now_measure >= {END_OF_TIME}"
        return f"{measure} + limit < now_measure"

    def take_ready(self, w: Writer, more: str) -> None:
        """Take the records whose window has passed; there will be room for some more:

        while w0_size > 0 and w0_measure[0] + limit < now_measure:
            w0_ready[ready] = heap_pop(w0_measure, w0_item, w0_size)
        """
        w(f"room = {self.made} + {more}", f"if room > {self.heap.size}:")
        w(*(f"    {array.grown('room')}" for array in self.arrays))
        with w.block(f"while {self.size} > 0 and {self.decided(self.heap.at('0'))}:"):
            w(f"{self.ready.at('ready')} = heap_pop({self.heap}, {self.item}, {self.size})")
            w(f"{self.size} -= 1", "ready += 1")

    def load(self, w: Writer) -> None:
        """`p1 = w0_v1[slot]`: the events of a record that has waited."""
        w(f"slot = {self.ready.at('done')}")
        w(*(f"p{n} = {array.at('slot')}" for n, array in self.events.items()))
        w(f"{self.free.at(self.freed)} = slot", f"{self.freed} += 1")

    def wait(self, w: Writer) -> None:
        """Let the current record wait:

        w0_v1[slot] = p1
        heap_push(w0_measure, w0_item, w0_size, first_measure, slot)
        """
        w(f"if {self.freed} > 0:", f"    {self.freed} -= 1", f"    slot = {self.free.at(self.freed)}")
        w("else:", f"    slot = {self.made}", f"    {self.made} += 1")
        w(*(f"{array.at('slot')} = p{n}" for n, array in self.events.items()))
        measure = "deadline" if self.buffers.by_operator else "first_measure" if self.buffers.expires else "0"
        w(f"heap_push({self.heap}, {self.item}, {self.size}, {measure}, slot)", f"{self.size} += 1")
