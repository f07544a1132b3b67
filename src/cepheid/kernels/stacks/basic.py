"""SASE's basic plan (§3.2): every event has a cell in one runtime stack, and construction searches it from the latest
cell back. Predicates are tested on complete sequences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext

from cepheid.codegen.builder import Writer
from cepheid.errors import NotAvailable
from cepheid.kernels.instance_stack import Stack
from cepheid.kernels.stacks.layout import CURRENT_EVENT, Instance, Locations, counted
from cepheid.kernels.stacks.scan import READ, StackScan
from cepheid.physical import Plan
from cepheid.runtime.kernel import OperatorRegisters

_MOST_LOOPS = 14
"""The components that are searched by nested loops: Python allows 20."""


class RuntimeStack(StackScan):
    def __init__(self, plan: Plan, options: Mapping[str, str]) -> None:
        super().__init__(plan, {**options, "equalities": "none"})
        if plan.has_durations:
            raise NotAvailable("the basic plan evaluates events without duration")
        if self.layout.absences:
            raise NotAvailable("the basic plan evaluates sequences without negation")
        columns = {column for step in plan.steps for column in self.layout.columns(step.var)} - {"mask"}
        self.cells = self.layout.stack("cell", self.layout.positive[0], columns=("mask", *sorted(columns)))

    @property
    def stacks(self) -> Sequence[Stack]:
        return [self.cells]

    @property
    def decides_late(self) -> bool:
        return False

    def most_pushed(self, stacks: Sequence[Stack]) -> str:
        return "stop - start"

    def older(self, w: Writer) -> None:
        self.older_on(w, self.cells.ring)

    def operators(self) -> tuple[OperatorRegisters, ...]:
        """None: a cell is of no component."""
        return ()

    def event(self, w: Writer) -> None:
        w("if e < 0:", "    continue")
        w(*READ)
        if self.layout.drops_in_scan:
            self.drop_expired(w)
        last = self.layout.last
        with w.block(f"if bits & np.uint64({1 << self.layout.positive[last].begin}):"):
            self.stop_if_large(w)
            self.note_output(w)
            w(f"j{last} = {self.cells.ring.following}")
            search = self._search if last <= _MOST_LOOPS else self._search_flat
            search(w, last - 1, {self.layout.positive[last].var: CURRENT_EVENT})
            self.repeat_if_full(w)
        self.push(w, self.cells, {})

    def _found(self, w: Writer, locations: Locations) -> None:
        """Test a complete sequence, and write it out."""
        w(*counted(self.layout.tests))
        tests = self.layout.conditions(self.layout.tests, locations) or ["True"]
        with w.when(tests), self._within_window(w, locations):
            self.emit(w, [self.layout.field_of(locations, i, "row") for i in range(len(self.layout.positive))])

    def _search_flat(self, w: Writer, top: int, locations: Locations) -> None:
        """The search of a long sequence as one loop:

        while depth < 24 and written <= ceiling:
            if depth == 23:
                if j23 < cell_base:
                    depth += 1
                    continue
                i23 = 4 * (j23 & cell_last)
                j23 -= 1
                if ...:
                    j22 = j23
                    depth = 22
        """
        chosen = dict(locations)
        w(f"depth = {top}", f"j{top} = j{top + 1} - 1")
        with w.block(f"while depth <= {top} and written <= ceiling:"):
            for depth in range(top, -1, -1):
                with w.block(f"{'if' if depth == top else 'elif'} depth == {depth}:"):
                    w(f"if j{depth} < {self.cells.ring.base}:", "    depth += 1", "    continue")
                    w(f"i{depth} = {self.cells.offset(f'j{depth}')}", f"j{depth} -= 1")
                    cell, condition = self._cell(depth, chosen)
                    chosen[self.layout.positive[depth].var] = cell
                    with w.block(f"if {condition}:"):
                        if depth == 0:
                            self._found(w, chosen)
                        else:
                            w(f"j{depth - 1} = j{depth}", f"depth = {depth - 1}")

    def _cell(self, depth: int, locations: Locations) -> tuple[Instance, str]:
        """The cell at hand, and the condition that it may be the component at this depth."""
        cell = Instance(self.cells, f"i{depth}")
        condition = f"{cell.field('cmask')} & np.uint64({1 << self.layout.positive[depth].begin}) != 0"
        if not self.layout.by_position:
            condition += f" and {cell.field('time')} < {self.layout.field_of(locations, depth + 1, 'time')}"
        return cell, condition

    def _search(self, w: Writer, depth: int, locations: Locations) -> None:
        if depth < 0:
            self._found(w, locations)
            return
        step = self.layout.positive[depth]
        w(f"j{depth} = j{depth + 1} - 1")
        few = "" if depth == 0 else " and written <= ceiling"
        with w.block(f"while j{depth} >= {self.cells.ring.base}{few}:"):
            w(f"i{depth} = {self.cells.offset(f'j{depth}')}")
            cell, condition = self._cell(depth, locations)
            with w.block(f"if {condition}:"):
                self._search(w, depth - 1, {**locations, step.var: cell})
            w(f"j{depth} -= 1")

    def _within_window(self, w: Writer, locations: Locations) -> AbstractContextManager[None]:
        """Instances that the scan has dropped need no test, but the current event is never dropped."""
        if self.plan.window is None:
            return nullcontext()
        if self.layout.drops_in_scan:
            return w.block("if limit >= 0:") if self.layout.last == 0 else nullcontext()
        return w.block(f"if m - {self.layout.field_of(locations, 0, 'measure')} <= limit:")
