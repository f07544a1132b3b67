"""Where a tree plan writes its matches."""

from __future__ import annotations

from collections.abc import Mapping

from cepheid.codegen.builder import Writer
from cepheid.kernels.tree.buffers import Binding, Buffers

MEMBER = "\0member"
"""The first step of the matches of several queries: the number of the query."""


class Output:
    """Where matches are written, variable by variable; `bounded` if a variable may have any number of events. With
    `members`, those of several queries: the number of the query, then its variables, and nothing for those that another
    query has more."""

    def __init__(
        self,
        buffers: Buffers,
        variables: tuple[str, ...],
        bounded: bool,
        alternatives: int,
        members: tuple[tuple[str, ...], ...] = (),
    ) -> None:
        self.buffers = buffers
        self.bound = variables
        """The variables whose events matches refer to."""
        self.members = members
        self.variables = (MEMBER, *map(str, range(max(map(len, members))))) if members else variables
        self.bounded = bounded
        self.alternatives = alternatives
        self.aggregates: list[str] = []

    def make_room(self, w: Writer, matches: str, row: str, operator: str, further: str = "0") -> None:
        """`values = grown(values, ...)`, for some matches with `further` events besides one for each variable. The
        loop ends if they need too much memory at the event at position `row`, for this operator."""
        needed = f"written + ({matches}) * {len(self.variables)} + {further}"
        with w.block(f"if {needed} > values.shape[0]:"):
            self.buffers.builder.stop_if_large(w, needed, row, f"the matches of {operator}")
            w(f"values = grown(values, {needed})")
        if self.bounded:
            with w.block(f"if ends + ({matches}) * {len(self.variables)} >= bounds.shape[0]:"):
                w(f"bounds = grown(bounds, ends + ({matches}) * {len(self.variables)} + 1)")

    def fits(self, matches: str, further: str = "0") -> str:
        width = len(self.variables)
        test = f"written + ({matches}) * {width} + {further} <= values.shape[0]"
        return f"{test} and ends + ({matches}) * {width} < bounds.shape[0]" if self.bounded else test

    def emit(
        self, w: Writer, number: int, bindings: Mapping[str, Binding], groups: Mapping[str, str] | None = None
    ) -> None:
        """One match of an alternative. `groups` gives the suffix of the array and size of a closure's group:

        values[written] = l0_row[p0 & (l0_time.shape[0] - 1)]
        written += 1
        ends += 1
        bounds[ends] = written
        """
        if self.members:
            self._emit_of_member(w, number, bindings, groups or {})
            return
        done: set[str] = set()
        absent = 0
        for offset, var in enumerate(self.variables):
            if var in done:
                continue
            if not self.bounded:
                w(f"values[written + {offset}] = {self.buffers.row(var, bindings[var])}")
                continue
            if var not in bindings and not (groups and var in groups):
                absent += 1
                continue
            self._emit_absent(w, absent, always=not done)
            absent = 0
            if var in bindings and (shared := self._shared(var, bindings)):
                self._emit_shared(w, shared, bindings[var])
                done |= set(shared)
                continue
            done.add(var)
            self._emit_events(w, var, bindings, groups or {})
        if self.bounded:
            self._emit_absent(w, absent, always=True)
        else:
            w(f"written += {len(self.variables)}")
        w("matches += 1")

    def _emit_events(self, w: Writer, var: str, bindings: Mapping[str, Binding], groups: Mapping[str, str]) -> None:
        if var in groups:
            leaf, member = self.buffers.leaves[var], f"g{groups[var]}[q]"
            with w.block(f"for q in range(s{groups[var]} - 1, -1, -1):"):
                w(f"values[written] = {leaf.field('row', leaf.index(member))}", "written += 1")
        else:
            with w.when(bindings[var].bound):
                w(f"values[written] = {self.buffers.row(var, bindings[var])}", "written += 1")
        w("ends += 1", "bounds[ends] = written")

    def _emit_of_member(
        self, w: Writer, number: int, bindings: Mapping[str, Binding], groups: Mapping[str, str]
    ) -> None:
        """The match of one of several queries:

        values[written] = 1
        values[written + 1] = l0_row[p0 & (l0_time.shape[0] - 1)]
        written += 3
        matches += 1
        """
        variables, width = self.members[number], len(self.variables)
        w(f"values[written] = {number}")
        if not self.bounded:
            for offset, var in enumerate(variables, 1):
                w(f"values[written + {offset}] = {self.buffers.row(var, bindings[var])}")
            w(f"written += {width}", "matches += 1")
            return
        w("written += 1", "ends += 1", "bounds[ends] = written")
        for var in variables:
            self._emit_events(w, var, bindings, groups)
        with w.block(f"for q in range({width - 1 - len(variables)}):"):
            w("ends += 1", "bounds[ends] = written")
        w("matches += 1")

    def _emit_absent(self, w: Writer, variables: int, *, always: bool) -> None:
        """Variables of other alternatives. `always` writes the loop for any number of them, so that the source of
        alternatives differs in the number alone:

        for q in range(4):
            ends += 1
            bounds[ends] = written
        """
        if variables or (always and self.alternatives > 1):
            with w.block(f"for q in range({variables}):"):
                w("ends += 1", "bounds[ends] = written")

    def _shared(self, var: str, bindings: Mapping[str, Binding]) -> tuple[str, ...]:
        """The variables that share a buffer and are written one after the other, the first of which is `var`."""
        variables, start = self.buffers.leaves[var].variables, self.variables.index(var)
        follow = self.variables[start : start + len(variables)] == variables
        return variables if follow and bindings[var].branch is not None else ()

    def _emit_shared(self, w: Writer, variables: tuple[str, ...], binding: Binding) -> None:
        """One of several variables is bound:

        for q in range(3):
            if l0_branch[i] == q:
                values[written] = l0_row[i]
                written += 1
            ends += 1
            bounds[ends] = written
        """
        with w.block(f"for q in range({len(variables)}):"):
            with w.block(f"if {binding.branch} == q:"):
                w(f"values[written] = {self.buffers.row(variables[0], binding)}", "written += 1")
            w("ends += 1", "bounds[ends] = written")
