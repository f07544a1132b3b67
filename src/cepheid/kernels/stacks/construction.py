"""Sequence construction (SASE §4.1): from the event that may be the last component, a depth-first search back through
the stacks, written out as nested loops. Python allows 20 nested loops, so a longer sequence is searched by one loop
with the depth in a variable.

Predicates are tested in the loop of the earliest component they read, that is as soon as the search can test them,
and so are the negated components before the last positive one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cepheid import expr as ex
from cepheid.codegen.builder import Writer
from cepheid.expr import Expr
from cepheid.kernels.stacks.layout import CURRENT_EVENT, Absence, Instance, Locations, StackLayout, counted

_MOST_LOOPS = 14
"""The stacks that are searched by nested loops. Loops over chunks, events and negated events come on top."""


class Construction:
    """`found` is what is done with a sequence."""

    def __init__(self, layout: StackLayout, found: Callable[[Writer, Locations], None]) -> None:
        self.layout = layout
        self.found = found

    def construct(self, w: Writer) -> None:
        """All sequences that end with the current event, as one loop inside the other:

        while j1 >= s1_base and written <= ceiling:
            i1 = 4 * (j1 & s1_last)
            j0 = s1[i1 + S1_RIP]
            while j0 >= s0_base: ...
            j1 = j1 - 1
        """
        last = self.layout.last
        for absence in self.layout.inner:
            if absence.at == last:
                self.layout.find_head(w, absence.stack, f"latest_{absence.stack.name}")
        locations = {self.layout.positive[last].var: CURRENT_EVENT}
        if last == 0:
            fits = "limit >= 0" if not self.layout.plan.counts_from_start else f"t - {self.layout.begin} <= limit"
            with w.block(f"if {fits}:" if self.layout.plan.window is not None else "if True:"):
                self._at_depth(w, 0, locations)
            return
        self.layout.find_head(w, self.layout.stacks[last - 1], f"j{last - 1}")
        if self.is_flat:
            self._search_flat(w, locations)
        else:
            self._search(w, last - 1, locations)

    @property
    def is_flat(self) -> bool:
        return len(self.layout.stacks) > _MOST_LOOPS

    def _search_flat(self, w: Writer, locations: Locations) -> None:
        """The same search as one loop. An instance that passes its tests leads down to the stack before it; a stack
        without further instances leads back up:

        depth = 24
        while depth < 25 and written <= ceiling:
            if depth == 24:
                if not j24 >= s24_base:
                    depth += 1
                    continue
                i24 = 4 * (j24 & s24_last)
                j24 = j24 - 1
                ...
                    j23 = s24[i24 + S24_RIP]
                    depth = 23
        """
        chosen = dict(locations)
        top = len(self.layout.stacks)
        w(f"depth = {top - 1}")
        with w.block(f"while depth < {top} and {self.layout.progress} <= ceiling:  # construct backwards"):
            for depth in range(top - 1, -1, -1):
                stack, number, offset = self.layout.stacks[depth], f"j{depth}", f"i{depth}"
                chosen[stack.step.var] = Instance(stack, offset)
                with w.block(f"{'if' if depth == top - 1 else 'elif'} depth == {depth}:"):
                    w(f"if not ({self.layout.alive(stack, number)}):", "    depth += 1", "    continue")
                    w(f"{offset} = {stack.offset(number)}", f"{number} = {stack.previous(number, offset)}")
                    self._at_depth(w, depth, dict(chosen))

    def _search(self, w: Writer, depth: int, locations: Locations) -> None:
        stack = self.layout.stacks[depth]
        number, offset = f"j{depth}", f"i{depth}"
        # The innermost loop has no more turns than its stack has instances, so it needs no ceiling.
        few = "" if depth == 0 else f" and {self.layout.progress} <= ceiling"
        with w.block(f"while {self.layout.alive(stack, number)}{few}:  # construct backwards"):
            w(f"{offset} = {stack.offset(number)}")
            self._at_depth(w, depth, {**locations, stack.step.var: Instance(stack, offset)})
            w(f"{number} = {stack.previous(number, offset)}")

    def _at_depth(self, w: Writer, depth: int, locations: Locations) -> None:
        """Apply the tests that are possible once the component at this depth is chosen, then go to the previous one."""
        ready, absences = self._ready(depth)
        checks = self.layout.conditions(ready, locations)
        in_window = self.layout.plan.window is None or all(map(self.layout.sorted_by_measure, self.layout.stacks))
        if depth == 0 and not in_window:
            checks.insert(0, f"m - {self.layout.field_of(locations, 0, 'measure')} <= limit")
        if depth == 0 and self.layout.plan.counts_from_start and self.layout.last > 0:
            checks.insert(0, f"m - {self.layout.start_of(locations[self.layout.positive[0].var])} <= limit")
        w(*counted(ready))
        with w.when(checks):
            self._without(w, absences, depth, locations)

    def _ready(self, depth: int) -> tuple[list[Expr], list[Absence]]:
        """The predicates and the absences that are tested at a depth: as soon as all they read is chosen, or all
        on complete sequences."""
        residual, inner = self.layout.residual(), self.layout.inner
        if self.layout.options["others"] != "early":
            return (residual, inner) if depth == 0 else ([], [])
        return (
            [predicate for predicate in residual if self._depth_of(ex.variables(predicate)) == depth],
            [absence for absence in inner if self._absence_depth(absence) == depth],
        )

    def _depth_of(self, names: frozenset[str]) -> int:
        index = self.layout.index
        return min((index[var] for var in names if var in index), default=self.layout.last)

    def _absence_depth(self, absence: Absence) -> int:
        names = frozenset(v for p in self.layout.tests_of(absence) for v in ex.variables(p))
        neighbour = max(absence.after - 1, 0)
        return min(self._depth_of(names), neighbour)

    def _without(self, w: Writer, absences: Sequence[Absence], depth: int, locations: Locations) -> None:
        """Go on if none of the absences is spoiled."""
        if not absences:
            self._go_on(w, depth, locations)
            return
        absence, *others = absences
        is_sorted = not self.layout.plan.has_durations
        if is_sorted and absence.after == depth + 1 and not self.layout.tests_of(absence):
            self._stop_before(w, absence, locations)
            self._without(w, others, depth, locations)
            return
        self._look_for(w, absence, locations)
        with w.block("if not spoiled:"):
            self._without(w, others, depth, locations)

    def _go_on(self, w: Writer, depth: int, locations: Locations) -> None:
        if depth == 0:
            self.found(w, locations)
        else:
            w(f"j{depth - 1} = {self.layout.stacks[depth].at('rip', f'i{depth}')}")
            if self.is_flat:
                w(f"depth = {depth - 1}")
            else:
                self._search(w, depth - 1, locations)

    # --- negation -----------------------------------------------------------------------------------------------------

    def _look_for(self, w: Writer, absence: Absence, locations: Locations) -> None:
        """Set `spoiled` if a negated event is between the neighbours: from the latest one before the next component,
        backwards (`while q >= n1_base: ... q = q - 1`)."""
        stack, negated = absence.stack, Instance(absence.stack, "k")
        if absence.after == 0:
            too_old = f"m - {negated.field('measure')} > limit"
        else:
            too_old = f"not {self._comes_between(absence, locations)}"
        whole = self._is_whole(absence, locations)
        tests = self.layout.tests_of(absence)
        spoil = self.layout.stop_if("spoiled", tests, {**locations, stack.step.var: negated}, whole)
        w("spoiled = False", f"q = {self._latest(absence)}")
        with w.block(f"while q >= {stack.ring.base}:"):
            w(f"k = {stack.offset('q')}", f"if {too_old}:", "    break", *spoil, f"q = {stack.previous('q', 'k')}")

    def _is_whole(self, absence: Absence, locations: Locations) -> list[str]:
        """The condition that a negated event with duration lies in the gap with its start, too; its end does:
        `n1[k + N1_C2] > s0[i0 + S0_TIME]`."""
        layout = self.layout
        if not layout.plan.has_durations:
            return []
        start = layout.start_of(Instance(absence.stack, "k"))
        if absence.after > 0:
            return [f"{start} > {layout.field_of(locations, absence.after - 1, 'time')}"]
        return [f"m - {start} <= limit"] if layout.plan.counts_from_start else []

    def _stop_before(self, w: Writer, absence: Absence, locations: Locations) -> None:
        """A negated event that is tested for nothing else spoils all instances before it: the search ends there."""
        w(
            f"q = {self._latest(absence)}",
            f"if q >= {absence.stack.ring.base}:",
            f"    k = {absence.stack.offset('q')}",
            f"    if {self._comes_between(absence, locations)}:",
            *(["        depth += 1", "        continue"] if self.is_flat else ["        break"]),
        )

    def _latest(self, absence: Absence) -> str:
        """The latest negated event before the next component."""
        if absence.at == self.layout.last:
            return f"latest_{absence.stack.name}"
        return self.layout.stacks[absence.at].at(absence.stack.name, f"i{absence.at}")

    def _comes_between(self, absence: Absence, locations: Locations) -> str:
        """Whether the negated event at offset k comes after the component before it."""
        order = "row" if self.layout.by_position else "time"
        return f"{absence.stack.at(order, 'k')} > {self.layout.field_of(locations, absence.after - 1, order)}"
