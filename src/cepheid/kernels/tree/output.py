"""Where a tree plan writes its matches."""

from __future__ import annotations

from collections.abc import Mapping

from cepheid.codegen.builder import Writer
from cepheid.kernels.tree.buffers import Binding, Buffers


class Output:
    """Where matches are written, variable by variable; `bounded` if a variable may have any number of events."""

    def __init__(self, buffers: Buffers, variables: tuple[str, ...], bounded: bool) -> None:
        self.buffers = buffers
        self.variables = variables
        self.bounded = bounded
        self.aggregates: list[str] = []

    def make_room(self, w: Writer, matches: str, further: str = "0") -> None:
        """`values = grown(values, ...)`, for some matches with `further` events besides one for each variable."""
        needed = f"written + ({matches}) * {len(self.variables)} + {further}"
        with w.block(f"if {needed} > values.shape[0]:"):
            w(f"values = grown(values, {needed})")
        if self.bounded:
            with w.block(f"if ends + ({matches}) * {len(self.variables)} >= bounds.shape[0]:"):
                w(f"bounds = grown(bounds, ends + ({matches}) * {len(self.variables)} + 1)")

    def fits(self, matches: str, further: str = "0") -> str:
        width = len(self.variables)
        test = f"written + ({matches}) * {width} + {further} <= values.shape[0]"
        return f"{test} and ends + ({matches}) * {width} < bounds.shape[0]" if self.bounded else test

    def emit(self, w: Writer, bindings: Mapping[str, Binding], groups: Mapping[str, str] | None = None) -> None:
        """One match. `groups` gives the suffix of the array and size of a closure's group:

        values[written] = l0_row[p0 & (l0_time.shape[0] - 1)]
        written += 1
        ends += 1
        bounds[ends] = written
        """
        for offset, var in enumerate(self.variables):
            if not self.bounded:
                w(f"values[written + {offset}] = {self.buffers.row(var, bindings[var])}")
                continue
            if groups is not None and var in groups:
                leaf, member = self.buffers.leaves[var], f"g{groups[var]}[q]"
                with w.block(f"for q in range(s{groups[var]} - 1, -1, -1):"):
                    w(f"values[written] = {leaf.field('row', leaf.index(member))}", "written += 1")
            elif var in bindings:
                with w.when(bindings[var].bound):
                    w(f"values[written] = {self.buffers.row(var, bindings[var])}", "written += 1")
            w("ends += 1", "bounds[ends] = written")
        if not self.bounded:
            w(f"written += {len(self.variables)}")
        w("matches += 1")
