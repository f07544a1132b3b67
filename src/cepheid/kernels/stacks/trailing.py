"""Trailing negation (SASE §3.3): a sequence that would be a match waits until its window has passed, and is one if no
negated event has come by then."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from cepheid.codegen.builder import Array, Writer
from cepheid.codegen.scalar import key_of
from cepheid.kernels.stacks.layout import Absence, Instance, Locations, StackLayout
from cepheid.physical import Kind
from cepheid.runtime.kernel import StateArray


@dataclass(frozen=True, slots=True)
class _Pending:
    """A component of the sequence `p` that waits, with an array for each field of its event."""

    arrays: Mapping[str, Array]

    def field(self, name: str) -> str:
        return self.arrays[name].at("p")


class Trailing:
    """The sequences that wait, in the order in which their windows end."""

    def __init__(self, layout: StackLayout) -> None:
        self.layout = layout
        self.register = layout.builder.register
        names = ("pending_heap", "pending_item", "pending_time", "pending_measure", "pending_free")
        self.own = [Array(StateArray(name, "int64", 16)) for name in names]
        self.heap, self.item, self.time, self.measure, self.free = self.own

    @cached_property
    def components(self) -> list[_Pending]:
        """The events of a sequence that waits, one for each positive component."""
        kinds = {str(number): kind for number, kind in enumerate(self.layout.plan.columns.values())}
        components = []
        for i, step in enumerate(self.layout.positive):
            dtypes = {"row": "int64"}
            for column in self.layout.columns(step.var):
                is_float = column != "mask" and kinds[column] is Kind.FLOAT
                dtypes[f"c{column}"] = "uint64" if column == "mask" else "float64" if is_float else "int64"
            arrays = {name: Array(StateArray(f"pending_{i}_{name}", dtype, 16)) for name, dtype in dtypes.items()}
            components.append(_Pending(arrays))
        return components

    @property
    def _arrays(self) -> list[Array]:
        return [*self.own, *(array for component in self.components for array in component.arrays.values())]

    def tables(self) -> list[StateArray]:
        """The arrays of the sequences that wait: their events, the end of the last, the start of the window."""
        return [array.state for array in self._arrays]

    def postpone(self, w: Writer, locations: Locations) -> None:
        """Store the current sequence until its window has passed:

        pending_0_row[p] = s0[i0 + S0_ROW]
        heap_push(pending_heap, pending_item, pending_size, pending_measure[p], p)
        """
        size, made, free = (self.register(f"pending_{name}") for name in ("size", "made", "freed"))
        w(f"if {free} > 0:", f"    {free} -= 1", f"    p = {self.free.at(free)}")
        with w.block("else:"):
            w(f"p = {made}", f"{made} += 1")
            with w.block(f"if {made} > {self.time.size}:"):
                w(*(array.grown(made) for array in self._arrays))
        start = self.layout.field_of(locations, 0, "measure")
        if self.layout.plan.counts_from_start:
            start = self.layout.start_of(locations[self.layout.positive[0].var])
        stored = [f"{self.time.at('p')} = t", f"{self.measure.at('p')} = {start}"]
        for i, component in enumerate(self.components):
            fields = [(name, self.layout.field_of(locations, i, name)) for name in component.arrays]
            stored += [f"{component.field(name)} = {source}" for name, source in fields]
        w(*stored, f"heap_push({self.heap}, {self.item}, {size}, {self.measure.at('p')}, p)", f"{size} += 1")

    def decide(self, w: Writer, emit: Callable[[Writer, Sequence[str]], None]) -> None:
        """Decide the sequences whose window has passed:

        while pending_size > 0 and m - pending_heap[0] > limit:
            p = heap_pop(pending_heap, pending_item, pending_size)
            ...
            if not spoiled: ...
        """
        size, free = self.register("pending_size"), self.register("pending_freed")
        with w.block(f"while {size} > 0 and m - {self.heap.at('0')} > limit:"):
            w(f"p = heap_pop({self.heap}, {self.item}, {size})", f"{size} -= 1")
            w(f"{self.free.at(free)} = p", f"{free} += 1", "spoiled = False")
            for absence in self.layout.trailing:
                self._look_for(w, absence)
            with w.block("if not spoiled:"):
                rows = [component.field("row") for component in self.components]
                needed = f"written + {len(rows)}"
                w(f"if {needed} > values.shape[0]:", f"    values = grown(values, {needed})")
                emit(w, rows)

    def _look_for(self, w: Writer, absence: Absence) -> None:
        """Set `spoiled` if a negated event spoils the sequence: from the latest one back to the last component:

        while not spoiled and q >= n2_base:
            ...
            q = q - 1
        """
        stack, last, negated = absence.stack, self.components[-1], Instance(absence.stack, "k")
        base = stack.ring.base
        if stack.links:
            key, _ = key_of([(self.layout.term(last, link.there), link.as_float) for link in stack.links])
            w(f"q = {stack.latest(key)}")
        else:
            w(f"q = {stack.ring.following} - 1")
        order, end = ("row", last.field("row")) if self.layout.by_position else ("time", self.time.at("p"))
        locations = {step.var: component for step, component in zip(self.layout.positive, self.components, strict=True)}
        whole = [f"{self.layout.start_of(negated)} > {end}"] if self.layout.plan.has_durations else []
        tests = self.layout.tests_of(absence)
        spoil = self.layout.stop_if("spoiled", tests, {**locations, stack.step.var: negated}, whole)
        with w.block(f"while not spoiled and q >= {base}:"):
            w(
                f"k = {stack.offset('q')}",
                f"if {negated.field(order)} <= {end}:",
                "    break",
                f"if {negated.field('measure')} - {self.measure.at('p')} <= limit:",
                *(f"    {line}" for line in spoil),
                f"q = {stack.previous('q', 'k')}",
            )

    def older(self, w: Writer) -> None:
        """`oldest = min(oldest, pending_0_row[pending_item[p]])`"""
        first = self.components[0].arrays["row"]
        w(f"for p in range({self.register('pending_size')}):")
        w(f"    oldest = min(oldest, {first.at(self.item.at('p'))})")
