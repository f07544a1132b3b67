"""The top of a tree plan resolves, for each complete record of the joins, the groups of its closures, the
absences that were not pushed down, and whether it must wait for its window to pass.

A group follows from the record (see `optimize.alternatives`): from the event that closes it, or from the latest event
before the closure's right neighbour, back to its left neighbour or the edge of the window. So nothing of a group is
stored between rounds, not even for waiting records: their groups are built again when they are decided.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import NamedTuple

from cepheid import expr as ex
from cepheid.codegen.builder import Writer
from cepheid.codegen.scalar import NULL, Reader, Term
from cepheid.expr import Aggregate, At, Attr, Expr
from cepheid.kernels.aggregates import ACCUMULATORS, AGGREGATE_CODE
from cepheid.kernels.tree.buffers import NEVER, Binding, Buffer, Buffers, Chain
from cepheid.kernels.tree.output import Output
from cepheid.kernels.tree.waiting import Waiting
from cepheid.optimize.alternatives import Absence, Alternative, Group, Level
from cepheid.physical import Kind
from cepheid.runtime.kernel import END_OF_TIME


class Negation(NamedTuple):
    """A negation, and the buffers of what must not occur."""

    absence: Absence
    parts: tuple[Buffer, ...]


class Top:
    def __init__(
        self,
        buffers: Buffers,
        output: Output,
        number: int,
        alternative: Alternative,
        root: Buffer,
        negations: tuple[Negation, ...],
        tests: Sequence[Expr] = (),
    ) -> None:
        self.buffers = buffers
        self.output = output
        self.number = number
        self.alternative = alternative
        self.root = root
        self.negations = negations
        self.group_of = {group.var: group for group in alternative.groups}
        waits = any(self._waits(negation.absence) for negation in negations)
        self.members: list[Expr] = []
        self.tests: list[Expr] = list(tests)
        self.chain_of: dict[str, Chain | None] = {}
        self._sort_tests()
        self._choose_chains()
        self.waiting = Waiting(buffers, number, alternative.joined) if waits else None
        self.emitted = buffers.register(f"a{number}_emitted")
        """The register that counts the emitted matches."""

    @property
    def early_groups(self) -> int:
        """How many leading groups may be resolved before the closing event of another is known."""
        closing = [group for group in self.alternative.groups if group.closing]
        leading = [group for group in closing if not self.alternative.follows_plain(group)]
        return len(leading) if len(closing) > 1 else 0

    def _waits(self, absence: Absence) -> bool:
        """Whether a record may have to wait for events that must not occur. In CED the bounds count, so where an
        operand that may end the match bounds the interval, events of the same time count that come after it."""
        if self.alternative.waits(absence):
            return True
        return self.buffers.by_operator and self.alternative.may_end_with(absence.beside.after[0])

    def _sort_tests(self) -> None:
        """Ruling 8: a predicate on a closure's attribute is one that each member must satisfy; one that reads the whole
        group, or of its first or last event, is tested once the group is there."""
        negated = {step.var for step in self.buffers.plan.steps if step.negated}
        closures = {*self.group_of, *self.alternative.empty}
        for predicate in self.buffers.plan.predicates:
            names = ex.variables(predicate)
            if names & negated or not names & closures:
                continue
            if _speaks_of_members(predicate, closures):
                self.members.append(predicate)
            else:
                self.tests.append(predicate)

    def _choose_chains(self) -> None:
        """Members and negated events that must equal a joined event are looked up."""
        sure = [var for var in self.alternative.plain if var in self.root.sure]
        tests = {group.var: self._tests_of(group) for group in self.alternative.groups}
        searched = {var: (self.buffers.leaves[var], about) for var, about in tests.items()}
        parts = [part for negation in self.negations for part in negation.parts]
        searched |= {part.variables[0]: (part, self._about(part)) for part in parts}
        for var, (buffer, about) in searched.items():
            equalities = self.buffers.equalities(about, buffer.sure, sure)
            self.chain_of[var] = self.buffers.chain(buffer, equalities) if equalities else None

    # --- one round ----------------------------------------------------------------------------------------------------

    @property
    def _cursor(self) -> str:
        return self.buffers.register(f"a{self.number}_settled")

    def resolve(self, w: Writer) -> None:
        root, b = self.root, self.buffers
        w(f"# groups, absences and output of the records in {root.name}")
        w(f"{self._cursor} = max({self._cursor}, {root.base})", "ready = 0")
        if self.waiting:
            self.waiting.take_ready(w, f"{root.following} - {self._cursor}")
        for chain in self.chain_of.values():
            if chain is not None:
                b.link_new(w, chain)
        for group in self.alternative.groups:
            w(f"g{self._n(group.var)} = np.empty({b.leaves[group.var].live} + 1, np.int64)")
        w("done = 0", f"total = ready + {root.following} - {self._cursor}")
        further = " + ".join(["0", *(b.leaves[group.var].live for group in self.alternative.groups)])
        with w.block("while done < total:"):
            self.output.make_room(w, "1", b.row_of(root, f"({self._cursor} + done - ready)"), "the pattern", further)
            with w.block(f"while done < total and {self.output.fits('1', further)}:"):
                self._load(w)
                w("done += 1")
                self._one(w)
        w(f"{self._cursor} = {root.following}")
        if not root.is_leaf:
            w(f"{root.base} = {root.following}")

    def _load(self, w: Writer) -> None:
        """The numbers of the joined events: of a record that has waited, or of a new one."""
        if self.waiting:
            with w.block("if done < ready:"):
                self.waiting.load(w)
        with w.block("else:") if self.waiting else nullcontext():
            w(f"j = {self._cursor} + done - ready", f"i = {self.root.index('j')}")
            for var in self.alternative.joined:
                w(f"p{self._n(var)} = {self.buffers.number(self.root, var, 'j', 'i')}")

    def _one(self, w: Writer) -> None:
        self.bindings: dict[str, Binding] = {}
        for var in self.alternative.joined:
            number = f"p{self._n(var)}"
            unbound = None if var in self.root.sure else f"{number} < 0"
            self.bindings[var] = Binding(self.buffers.leaves[var].index(number), unbound)
        known = list(self.alternative.plain)
        untested = list(self.tests)
        self._test(w, untested, known)
        for group in self.alternative.groups:
            self._fill(w, group, known)
            known.append(group.var)
            self._test(w, untested, known)
        by_operator = self.buffers.by_operator
        if not by_operator:
            self._interval(w, known)
        elif self.waiting:
            w(f"deadline = {NEVER}")
        for negation in self.negations:
            (self._absent_in_interval if by_operator else self._absent)(w, negation, known)
        if self.waiting:
            with w.block(f"if not {self.waiting.decided('deadline' if by_operator else 'first_measure')}:"):
                self.waiting.wait(w)
                w("continue")
        groups = {group.var: str(self._n(group.var)) for group in self.alternative.groups}
        self.output.emit(w, self.number, self.bindings, groups)
        w(f"{self.emitted} += 1")

    def _n(self, var: str) -> int:
        return self.buffers.variable_number[var]

    # --- neighbours ---------------------------------------------------------------------------------------------------

    def _edge(self, w: Writer, target: str, levels: Sequence[Level], known: Sequence[str], *, after: bool) -> bool:
        """`target` becomes the latest end of what is bound before a part (or the earliest start of what is `after`),
        in the innermost sequence that has something there. Whether there surely is something."""
        nothing = str(END_OF_TIME) if after else NEVER
        w(f"{target} = {nothing}")

        def write(rest: Sequence[Level]) -> bool:
            if not rest:
                return False
            bound = [var for part in rest[0] for var in part if var in known]
            for var in self._nearest(rest[0], known):
                self._reach(w, target, var, after=after)
            if any(var in self.alternative.plain or self._has_members(var) for var in bound):
                return True
            if not bound:
                return write(rest[1:])
            inner = [var for level in rest[1:] for part in level for var in part if var in known]
            if not inner:
                return False
            with w.block(f"if {target} == {nothing}:"):
                return write(rest[1:])

        return write(levels)

    def _nearest(self, level: Level, known: Sequence[str]) -> list[str]:
        """The variables that decide the edge: those of further parts lie behind a nearer one that is surely bound,
        unless they are groups, which may reach further than their part's plain classes."""
        chosen: list[str] = []
        covered = False
        for part in level:
            bound = [var for var in part if var in known]
            chosen += [var for var in bound if not covered or var in self.group_of]
            covered = covered or any(var in self.alternative.plain or self._has_members(var) for var in bound)
        return chosen

    def _has_members(self, var: str) -> bool:
        return var in self.group_of and (self.group_of[var].closing or self.group_of[var].closure.low > 0)

    def _reach(self, w: Writer, target: str, var: str, *, after: bool) -> None:
        n, leaf = self._n(var), self.buffers.leaves[var]
        function = "min" if after else "max"
        if var in self.group_of:
            if after and leaf.has_starts:  # the member that starts first need not end first
                with w.block(f"for q in range(s{n}):"):
                    w(f"{target} = min({target}, {leaf.start(leaf.index(f'g{n}[q]'))})")
                return
            event = leaf.end(leaf.index(f"g{n}[s{n} - 1]" if after else f"g{n}[0]"))
            with w.block(f"if s{n} > 0:"):
                w(f"{target} = {function}({target}, {event})")
            return
        binding = self.bindings[var]
        with w.when(binding.bound):
            time = leaf.start(binding.index) if after else leaf.end(binding.index)
            w(f"{target} = {function}({target}, {time})")

    def _extreme(self, w: Writer, target: str, known: Sequence[str], *, latest: bool, closing: str = "") -> None:
        """The latest end (or the earliest start) of the events known. Where the window counts events, their last (or
        first) position, which no two events share. `closing` is the variable of a closure that is about to be filled,
        whose closing event counts too."""
        b = self.buffers
        w(f"{target} = {NEVER if latest else END_OF_TIME}")

        def consider(leaf: Buffer, index: str) -> None:
            measure = b.last_measure(leaf, index) if latest else b.first_measure(leaf, index)
            w(f"{target} = {'max' if latest else 'min'}({target}, {measure})")

        for var in known:
            n, leaf = self._n(var), b.leaves[var]
            if var in self.group_of:
                with w.block(f"for q in range(s{n} - 1, -1, -1):"):
                    consider(leaf, leaf.index(f"g{n}[q]"))
            else:
                with w.when(self.bindings[var].bound):
                    consider(leaf, self.bindings[var].index)
        if closing:
            consider(b.leaves[closing], self.bindings[closing].index)

    # --- groups -------------------------------------------------------------------------------------------------------

    def _tests_of(self, group: Group) -> list[Expr]:
        return [p for p in self.members if group.var in ex.variables(p)]

    def _fill(self, w: Writer, group: Group, known: Sequence[str]) -> None:
        """The members from the last back, so that `g` holds them in reverse:

        while c >= l1_base:
            g1[s1] = c
            s1 += 1
        """
        b, n, leaf = self.buffers, self._n(group.var), self.buffers.leaves[group.var]
        w(f"# the group of the closure in {leaf.name}")
        anchored = self._edge(w, "since", group.sides.before, known, after=False)
        self._edge(w, "upto", group.sides.after, known, after=True)
        at_window_edge = not anchored and b.windowed
        if at_window_edge:
            self._extreme(w, "last_measure", known, latest=True, closing=group.var if group.closing else "")
        chain = self.chain_of[group.var]
        if group.closing:
            w(f"c = p{n}")
        elif chain is not None:
            b.head(w, chain, self.bindings, "c")
        else:
            w(f"c = last_before({leaf.array('time')}, {leaf.base}, {leaf.following}, upto)")
        w(f"s{n} = 0")
        with w.block(f"while c >= {leaf.base}:"):
            w(f"m = {leaf.index('c')}")
            stops = [f"{leaf.field('time', 'm')} <= since"]
            outside = f"since == {NEVER} and last_measure - {b.first_measure(leaf, 'm')} > limit"
            checks: list[str] = [f"{leaf.start('m')} > since"] if leaf.has_starts else []
            if at_window_edge and not b.in_partition:
                stops.append(f"since == {NEVER} and last_measure - {b.latest_first_measure(leaf, 'm')} > limit")
            if at_window_edge and (b.in_partition or leaf.has_starts):
                checks.append(f"not ({outside})")
            with w.block(f"if {' or '.join(stops)}:"):
                w("break")
            if group.closing or chain is not None:
                checks.append(f"{leaf.field('time', 'm')} < upto")
            self._fresh(w, "m", group.var, known)
            checks.append("fresh")
            tests = self._tests_of(group)
            if chain is not None and not group.closing:
                tests = chain.remaining(tests)
            read = self._member_reader(group)
            checks += [b.test(t, read, self.bindings, self.alternative) for t in tests]
            with w.block(f"if {' and '.join(checks)}:"):
                w(f"g{n}[s{n}] = c", f"s{n} += 1")
                if group.closure.high is not None:
                    with w.block(f"if s{n} == {group.closure.high}:"):
                        w("break")
            if group.closing:
                with w.block(f"elif s{n} == 0:"):
                    w("break")
            w(f"c = {b.previous(chain, 'c', 'm')}")
        least = max(group.closure.low, 1 if group.closing else 0)
        if least:
            with w.block(f"if s{n} < {least}:"):
                w("continue")

    def _fresh(self, w: Writer, index: str, var: str, known: Sequence[str], target: str = "fresh") -> None:
        """`fresh = l1_row[m] != l0_row[...]`: whether an event is bound to nothing else."""
        b = self.buffers
        row = b.row(var, Binding(index))
        tests = []
        for other in known:
            if other in self.bindings and other not in self.group_of and b.may_be_one(var, other):
                tests += b.different({var: Binding(index)}, {other: self.bindings[other]})
        w(f"{target} = {' and '.join(tests) or 'True'}")
        for other in known:
            if other in self.group_of and b.may_be_one(var, other):
                n, leaf = self._n(other), b.leaves[other]
                taken = f"{leaf.field('row', leaf.index(f'g{n}[q]'))} == {row}"
                with w.block(f"for q in range(s{n}):"), w.block(f"if {taken}:"):
                    w(f"{target} = False")

    # --- predicates ---------------------------------------------------------------------------------------------------

    def _test(self, w: Writer, untested: list[Expr], known: Sequence[str]) -> None:
        """The predicates that can be tested now, as soon as their groups are filled."""
        pending = set(self.group_of) - set(known)
        ready = [p for p in untested if not ex.variables(p) & pending]
        for predicate in ready:
            untested.remove(predicate)
            read = self._reader(w, self.bindings)
            test = self.buffers.test(predicate, read, self.bindings, self.alternative)
            with w.block(f"if not {test}:"):
                w("continue")

    def _of_no_events(self, node: Attr | Aggregate) -> Term:
        if node.name is None:
            return Term("0", Kind.INT, known="True")
        if isinstance(node, Attr):
            kind = self.buffers.plan.columns[node.name]
            return Term(NULL[kind], kind, "True")
        return AGGREGATE_CODE[node.fn].over_nothing(self.buffers.plan.types[node.name])

    def _member_reader(self, group: Group) -> Reader:
        """How a member test reads its closure: the current member, and as group so far the closing event, if any."""
        b, plain = self.buffers, self.buffers.reader(self.bindings)
        closing = self.bindings.get(group.var) if group.closing else None

        def read(node: Attr | Aggregate) -> Term:
            if node.var != group.var:
                return plain(node)
            if isinstance(node, Attr) and (node.at is At.EVENT or (node.at is At.FIRST and closing is None)):
                return b.term(node, Binding("m"))
            if closing is None:
                return self._of_no_events(node)
            if isinstance(node, Attr):
                return b.term(node, closing)
            if node.name is None:
                return Term("1", Kind.INT, known="True")
            row, term = AGGREGATE_CODE[node.fn], b.term(Attr(node.var, node.name), closing)
            started = [ACCUMULATORS[what].start(term) for what in row.accumulators(term.kind)]
            return replace(row.term(term.type, started), missing=term.missing)

        return read

    def _reader(self, w: Writer, bindings: Mapping[str, Binding]) -> Reader:
        """Reads joined events, and groups once they are filled; aggregates are computed before they are read."""
        b, plain = self.buffers, self.buffers.reader(bindings)

        def read(node: Attr | Aggregate) -> Term:
            if node.var in self.alternative.empty:
                return self._of_no_events(node)
            if node.var not in self.group_of:
                return plain(node)
            n, leaf = self._n(node.var), b.leaves[node.var]
            if isinstance(node, Aggregate):
                return self._aggregate(w, node)
            index = leaf.index(f"g{n}[s{n} - 1]" if node.at is At.FIRST else f"g{n}[0]")
            return b.term(node, Binding(index, f"s{n} == 0"))

        return read

    def _aggregate(self, w: Writer, node: Aggregate) -> Term:
        """The value of an aggregate over a filled group, first member first:

        f0_sum = -0.0
        for q in range(s1 - 1, -1, -1):
            f0_sum = (f0_sum + (B_c0[...] + 0.0) if B_c0[...] == B_c0[...] else f0_sum)
        """
        b, n, leaf = self.buffers, self._n(node.var), self.buffers.leaves[node.var]
        if node.name is None:
            return Term(f"s{n}", Kind.INT, known="True")
        kind, row = b.plan.columns[node.name], AGGREGATE_CODE[node.fn]
        b.builder.constants.needs_ranks |= row.compares and kind is Kind.CODE
        term = b.term(Attr(node.var, node.name), Binding(leaf.index(f"g{n}[q]")))
        name = f"f{len(self.output.aggregates)}"
        self.output.aggregates.append(name)
        running = {what: f"{name}_{what}" for what in row.accumulators(kind)}
        w(*(f"{old} = {ACCUMULATORS[what].over_nothing(kind)}" for what, old in running.items()))
        if term.missing:
            w(f"{name}_there = 0")
        with w.block(f"for q in range(s{n} - 1, -1, -1):"):
            if term.missing:
                with w.block(f"if not {term.missing}:"):
                    w(f"{name}_there += 1")
            w(*(f"{old} = {ACCUMULATORS[what].step(running.__getitem__, term)}" for what, old in running.items()))
        missing = f"(s{n} > 0 and {name}_there == 0)" if term.missing else None
        return replace(row.term(term.type, list(running.values())), missing=missing)

    # --- the whole match ----------------------------------------------------------------------------------------------

    def _interval(self, w: Writer, known: Sequence[str]) -> None:
        """Ruling 3: the whole match fits the window."""
        is_windowed = self.buffers.windowed
        if self.negations or is_windowed:
            self._extreme(w, "first_measure", known, latest=False)
            self._extreme(w, "last_measure", known, latest=True)
        if is_windowed:
            with w.block("if last_measure - first_measure > limit:"):
                w("continue")

    # --- absences -----------------------------------------------------------------------------------------------------

    def _absent(self, w: Writer, negation: Negation, known: Sequence[str]) -> None:
        """Drop the record if an event (or a record) that must not occur lies wholly between the neighbours:

        while c >= l2_base:
            if l2_time[m] <= since: break
            if l2_time[m] < upto and ...: spoiled = True
        """
        b, absence = self.buffers, negation.absence
        w("# nothing negated between the neighbours, or in the window where there is none")
        begun = ended = False
        if absence.in_sequence:
            begun = self._edge(w, "since", absence.sides.before, known, after=False)
            ended = self._edge(w, "upto", absence.sides.after, known, after=True)
        else:
            w(f"since = {NEVER}", f"upto = {END_OF_TIME}")
        for part in negation.parts:
            first, last = b.first_measure(part, "m"), b.last_measure(part, "m")
            stops, checks = [f"{part.end('m')} <= since"], [f"{part.end('m')} < upto"]
            if part.has_starts:
                checks.append(f"{part.start('m')} > since")
            if not begun and b.windowed:
                too_early = f"since == {NEVER} and last_measure - {first} > limit"
                if not b.in_partition:
                    stops.append(f"since == {NEVER} and last_measure - {b.latest_first_measure(part, 'm')} > limit")
                if b.in_partition or part.has_starts:
                    checks.append(f"not ({too_early})")
            if not ended and b.windowed:
                checks.append(f"not (upto == {END_OF_TIME} and {last} - first_measure > limit)")
            self._search(w, part, "upto", stops, checks, known)

    def _absent_in_interval(self, w: Writer, negation: Negation, known: Sequence[str]) -> None:
        """CED §2.2: nothing that must not occur ends in the interval that its operator leaves, bounds included:

        since = l0_time[...]
        upto = l1_time[...]
        """
        absence, beside = negation.absence, negation.absence.beside
        w("# nothing negated ends in the interval that its operator leaves")
        window = "0"
        if beside.window is not None:
            window = self.buffers.builder.constants.integer((self.buffers.plan.operator_windows or {})[beside.window])
        if not absence.in_sequence:
            self._operand_edge(w, "since", beside.all, latest=True)
            self._operand_edge(w, "upto", beside.all, latest=True, function="min")
            w(f"since -= {window}", f"upto += {window}")
        else:
            self._operand_edge(w, "since", beside.before[-1:] or beside.after[-1:], latest=True)
            self._operand_edge(w, "upto", beside.after[:1] or beside.before[:1], latest=not beside.after)
            if not beside.before:
                w(f"since -= {window}")
            if not beside.after:
                w(f"upto += {window}")
        for part in negation.parts:
            stops, checks = [f"{part.end('m')} < since"], [f"{part.end('m')} <= upto"]
            self._search(w, part, "upto + 1", stops, checks, known)
        if self._waits(absence):
            w("deadline = max(deadline, upto)")

    def _operand_edge(self, w: Writer, target: str, operands: Level, *, latest: bool, function: str = "max") -> None:
        """`target` becomes the latest (or, with `function`, the earliest) end of the operands, or their start:

        edge = max(l0_time[...], l1_time[...])
        since = max(since, edge)
        """
        w(f"{target} = {NEVER if function == 'max' else END_OF_TIME}" if len(operands) > 1 else "pass")
        for operand in operands:
            edge = "edge" if len(operands) > 1 else target
            w(f"{edge} = {NEVER if latest else END_OF_TIME}")
            for var in operand:
                leaf, binding = self.buffers.leaves[var], self.bindings[var]
                time = leaf.end(binding.index) if latest else leaf.start(binding.index)
                with w.when(binding.bound):
                    w(f"{edge} = {'max' if latest else 'min'}({edge}, {time})")
            if len(operands) > 1:
                w(f"{target} = {function}({target}, {edge})")

    def _search(
        self, w: Writer, part: Buffer, before: str, stops: Sequence[str], checks: Sequence[str], known: Sequence[str]
    ) -> None:
        """From the last record that ends before a time, back until one of the stops: the current record is dropped if
        one passes the checks and its predicates."""
        b, chain = self.buffers, self.chain_of[part.variables[0]]
        if chain is not None:
            b.head(w, chain, self.bindings, "c")
        else:
            w(f"c = last_before({part.end_array}, {part.base}, {part.following}, {before})")
        w("spoiled = False")
        about = self._about(part)
        tests = about if chain is None else chain.remaining(about)
        bindings = b.bindings(part, "c", "m")
        read = self._reader(w, {**self.bindings, **bindings})
        conditions = [b.test(t, read, self.bindings, self.alternative) for t in tests]
        with w.block(f"while c >= {part.base}:"):
            w(f"m = {part.index('c')}")
            with w.block(f"if {' or '.join(stops)}:"):
                w("break")
            freshness: list[str] = []
            for var, binding in bindings.items():
                self._fresh(w, binding.index, var, known, target=f"fresh{len(freshness)}")
                freshness.append(f"fresh{len(freshness)}")
            with w.block(f"if {' and '.join([*checks, *freshness, *conditions])}:"):
                w("spoiled = True", "break")
            w(f"c = {b.previous(chain, 'c', 'm')}")
        with w.block("if spoiled:"):
            w("continue")

    def _about(self, part: Buffer) -> list[Expr]:
        """The predicates on what must not occur that its own joins have not tested."""
        own = set(part.variables)
        about = [p for p in self.buffers.plan.predicates if own & ex.variables(p)]
        return about if part.is_leaf else [p for p in about if not ex.variables(p) <= own]


def _speaks_of_members(predicate: Expr, closures: set[str]) -> bool:
    return any(isinstance(node, Attr) and node.at is At.EVENT and node.var in closures for node in ex.walk(predicate))
