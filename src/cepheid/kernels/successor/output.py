"""What generated source does with matches: their events as positions and, where variables have lists, as bounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from cepheid.codegen.builder import KernelBuilder, Writer
from cepheid.kernels.state_vector import Value
from cepheid.kernels.successor.composites import ENDS, LATE, Chain, Composite, Field, Limit, Row
from cepheid.kernels.successor.failures import REASON, reason_numbers, shows_failures
from cepheid.kernels.successor.operators import Exception_, Iteration, Leaf, Next, Operator, Timer
from cepheid.kernels.successor.path_tests import DISCARDED, PathTests
from cepheid.physical import Plan


class Output(PathTests):
    """The matches of a plan. Those with lists are records until the loop over events stops."""

    def __init__(self, plan: Plan, builder: KernelBuilder, root: Operator) -> None:
        super().__init__(plan, builder, root)
        self.steps = tuple(step.var for step in plan.steps if not step.negated)
        self.shows_failures = shows_failures(plan)
        self.reasons = list(reason_numbers(self.root))
        self.is_bounded = self.shows_failures or any(
            var in self.root.many or var in self.root.optional for var in self.steps
        )
        self.is_timed = self.shows_failures or any(isinstance(op, Timer) for op in _ending(self.root))
        self.width = len(self.steps) + int(self.is_timed) + int(self.shows_failures)
        self.find_groups(self.shows_failures)

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
            self.found.fill(w, self.found.top, event.reading({DISCARDED: "0"}))
            w(f"{self.found.top} += {self.found.size}", "made += 1")
            if self.groups_of(self.root):
                self.add_output(w, event)
                return
            w("matches += 1")
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
        if self.shows_failures:
            self._record(w, event, {REASON: str(self.reasons.index((op.number, why)))})

    def fail_later(self, w: Writer, op: Operator, event: Composite) -> None:
        """As a match, with the operator that discards it: `found[found_top + FOUND_DISCARDED] = 3`."""
        self.found.offset(DISCARDED)
        self._record(w, event, {DISCARDED: str(op.number)})

    def _record(self, w: Writer, event: Composite, fields: Mapping[Field, str]) -> None:
        """A record with what an instance binds."""
        if self.checked:
            self.found.ensure(w)
        for field in self._found_fields():
            self.found.offset(field)
        inside = {node.number for node in event.operator.walk()}

        def read(field: Field) -> str:
            match field:
                case _ if field in fields:
                    return fields[field]
                case Row() if field.var not in event.operator.variables:
                    return "EMPTY"
                case Chain() if field.operator not in inside:
                    return "EMPTY"
                case Limit() if field.operator not in inside:
                    return f"-{LATE}"
                case Value() if self.values.variable(field) not in event.operator.variables:
                    return self.values.of_none(field)
                case _:
                    return event.read(field)

        self.found.fill(w, self.found.top, replace(event, read=read))
        w(f"{self.found.top} += {self.found.size}", "made += 1")

    def _found_fields(self) -> list[Field]:
        fields: list[Field] = [ENDS] if self.is_timed else []
        fields += [REASON] if self.shows_failures else []
        for var in self.steps:
            fields.append(Chain(self._iteration_of(var).number) if var in self.root.many else Row(var))
        fields += [Limit(op.number) for op in self.limited_groups(self.root)]
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
        if self.groups_of(self.root):
            self._write_groups(w)
            return
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

    def _write_groups(self, w: Writer) -> None:
        """Write the events of each of the matches that a record stands for:

        depth1 = first_path(path1, node1, edge1, found[r + FOUND_CHAIN1], limit1)
        while more1:
            ...
            depth1 = next_path(path1, node1, edge1, depth1, limit1)
        """
        found, groups = self.found, self.groups_of(self.root)
        with w.block(f"if {found.top} > 0:"):
            self.each_path(w, groups)
            if self.has_late_tests:
                w("tested, counted = 0, 0")
            with w.block(f"for r in range(0, {found.top}, {found.size}):"):
                self._write_paths(w, groups)
            w(f"{found.top} = 0")

    def _write_paths(self, w: Writer, groups: Sequence[Iteration]) -> None:
        if not groups:
            self.tested(w, self._write_match)
            return
        self.first(w, groups[0], "r")
        with w.block(f"while more{groups[0].number}{' and problem == 0' if self.has_late_tests else ''}:"):
            self.accumulate(w, groups[0])
            self._write_paths(w, groups[1:])
            self.following(w, groups[0])

    def _write_match(self, w: Writer) -> None:
        found = self.found
        with w.block(f"if ends + {self.width} >= bounds.shape[0]:"):
            w(f"bounds = grown(bounds, ends + {self.width} + 1)")
        for var in self.steps:
            if var not in self.root.many:
                self._write_value(w, found.at(Row(var), "r"), var in self.root.optional, True)
            elif self.is_grouped(op := self._iteration_of(var)):
                self.write_path(w, op, var)
            else:
                self._write_chain(w, op, var, found.at(Chain(op.number), "r"), True)
            w("ends += 1", "bounds[ends] = written")
        if self.is_timed:
            self._write_value(w, found.at(ENDS, "r"), False, True)
            w("ends += 1", "bounds[ends] = written")
        w("matches += 1")

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
