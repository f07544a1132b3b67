"""The joins of one alternative of a tree plan (ZStream §4.3), from the leaves to the root."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from cepheid import expr as ex
from cepheid import tree_plan as tp
from cepheid.codegen.builder import Register, Writer
from cepheid.errors import NotAvailable
from cepheid.expr import Expr
from cepheid.kernels.tree.buffers import NEVER, Binding, Buffer, Buffers, Chain
from cepheid.kernels.tree.output import Output
from cepheid.kernels.tree.top import Negation, Top
from cepheid.optimize.alternatives import Absence, Alternative, Group
from cepheid.optimize.placement import first_nodes, join_tests, lean, names_of, placed
from cepheid.optimize.shapes import SHAPES, shaped
from cepheid.pattern import EventClass, Neg, negated_parts, walk
from cepheid.tree_plan import TreeNode, tree_text


@dataclass(frozen=True, slots=True)
class Join:
    """A join of two buffers into a third, or into the output if it has none of its own. By its chains one side is
    looked up from the other; `tests` are the predicates that this does not decide. `text` is the join as the plan
    writes it, and the registers `tried` and `made` count its work."""

    kind: str
    text: str
    tried: Register
    made: Register
    left: Buffer
    right: Buffer
    out: Buffer | None
    tests: tuple[Expr, ...] = ()
    left_chain: Chain | None = None
    right_chain: Chain | None = None
    absent: tuple[tuple[str, Chain | None], ...] = ()
    closure: Group | None = None
    limit: str | None = None
    """The window that ends a search backwards; None: none does."""
    completes: bool = False
    """Whether it completes an operator with a window of its own: what it makes is one event to the operator around."""


class Branch:
    """One alternative of the pattern: its operators from the leaves to the root, and its top."""

    def __init__(self, buffers: Buffers, output: Output, number: int, alternative: Alternative, tree: TreeNode) -> None:
        self.buffers = buffers
        self.output = output
        self.number = number
        self.alternative = alternative
        self.text = tree_text(tree)
        self.operators: list[Join] = []
        self.made_by_others: list[Buffer] = []
        """The buffers of joins that an alternative before this one makes too."""
        before = len(buffers.nodes)
        core = tree
        while isinstance(core, tp.NegNode | tp.GroupNode):
            core = core.item
        pushed = {var for node in tp.tree_nodes(core) if isinstance(node, tp.NseqNode) for var in node.negated}
        on_top = [a for a in alternative.absences if not pushed.issuperset(a.variables)]
        negated = [step.var for step in buffers.plan.steps if step.negated]
        own = {*alternative.joined, *alternative.empty, *(group.var for group in alternative.groups), *negated}
        predicates = [p for p in buffers.plan.predicates if names_of(p) <= own]
        about_nothing = any(ex.variables(p).intersection(alternative.empty) for p in predicates)
        # A disjunction has no output of its own: it only comes first where closures beside it are empty.
        needs_top = bool(alternative.groups or on_top or about_nothing or isinstance(core, tp.DisNode))
        self.bindable = frozenset({*alternative.joined, *negated})
        joinable, self.at_root = join_tests(alternative, predicates, negated)
        negations = [Negation(a, self._negated(a)) for a in on_top]
        self.always = len(self.operators)
        """How many operators make what must not occur: they run in every round."""
        for join in self.operators:
            for side in (join.left, join.right):
                side.in_negation = True
        root = self._build(core, joinable, is_root=True, emits=not needs_top)
        alone = (*joinable, *self.at_root) if isinstance(core, tp.LeafBuffer) else ()
        self.leaf = root if isinstance(core, tp.LeafBuffer) and not needs_top else None
        self.leaf_tests = alone
        self.top = Top(buffers, output, number, alternative, root, tuple(negations), alone) if needs_top else None
        """None: the joins give out matches themselves."""
        absent = [var for absence in alternative.absences for var in absence.variables]
        variables = [*alternative.plain, *(group.var for group in alternative.groups), *absent]
        leaves = (buffers.leaves[var] for var in variables)
        self.buffers_read = {*leaves, *self.made_by_others, *buffers.nodes[before:]}

    def _negated(self, absence: Absence) -> tuple[Buffer, ...]:
        """The buffers of what must not occur: events, or the records of an operator over them."""
        found: list[Buffer] = []
        for item in itertools.chain(*negated_parts(Neg(absence.item))):
            own = frozenset(node.var for node in walk(item) if isinstance(node, EventClass))
            tests = [p for p in self.buffers.plan.predicates if names_of(p) <= own]
            tree = shaped(item, SHAPES[0], self.buffers.plan.operator_windows)
            found.append(self._build(tree, tests))
        return tuple(found)

    def _build(
        self,
        node: TreeNode,
        tests: Sequence[Expr],
        *,
        is_root: bool = False,
        emits: bool = False,
        operator: tp.Within | None = None,
    ) -> Buffer:
        """The buffer of a node; its operators are appended, operands first. A root that emits has no buffer, so that
        of its left operand is given instead. `operator` is the one that the node is a part of."""
        completes = isinstance(node, tp.Within)
        if isinstance(node, tp.Within):
            operator = node
            node = node.item
        match node:
            case tp.LeafBuffer():
                return self.buffers.leaves[node.var]
            case tp.DisNode() if (shared := self._shared_leaf(node)) is not None:
                return shared
            case tp.NseqNode():
                return self._build(node.item, tests, is_root=is_root, emits=emits, operator=operator)
            case tp.BinaryNode():
                pass
            case _:
                raise NotAvailable(f"a tree plan has no {type(node).__name__} inside")
        join = None if is_root or operator is not None else self.buffers.of_join(node, tests)
        if join is not None and join.buffer is not None:
            join.buffer.has_several = True
            self.made_by_others.append(join.buffer)
            return join.buffer
        parts = placed(node, tests, lambda test: names_of(test) & self.bindable)
        left = self._build(node.left, parts.left, operator=operator)
        right = self._build(node.right, parts.right, operator=operator)
        limit = self.buffers.limit(operator)
        for side in (left, right):
            side.kept = side.kept if side.is_leaf else limit
        sure = left.sure | right.sure
        own = lean(parts.own, [*parts.left, *parts.right], lambda test: self.buffers.is_sure_equality(test, sure))
        own += self.at_root if is_root else []
        out = None
        if not emits:
            bound = () if isinstance(node, tp.DisNode) else sure
            out = self.buffers.node((*left.variables, *right.variables), bound)
            if join is not None:
                join.buffer = out
        operation = self._operator(node, left, right, out, own)
        self.operators.append(replace(operation, limit=limit, completes=completes))
        return left if out is None else out

    def _shared_leaf(self, node: TreeNode) -> Buffer | None:
        """The leaf buffer of a disjunction of classes, if they share one."""
        leaves = [self.buffers.leaves.get(p.var) for p in tp.tree_nodes(node) if isinstance(p, tp.LeafBuffer)]
        shared = leaves[0] is not None and leaves[0].is_shared and all(leaf is leaves[0] for leaf in leaves)
        return leaves[0] if shared else None

    def _operator(self, node: TreeNode, left: Buffer, right: Buffer, out: Buffer | None, tests: list[Expr]) -> Join:
        b = self.buffers
        equal = b.equalities(tests, left.sure, right.sure)
        chain = b.chain(left, equal, shared=not isinstance(node, tp.ConNode)) if equal else None
        rest = tuple(chain.remaining(tests) if chain is not None else tests)
        number = f"a{self.number}_{len(self.operators)}"
        made = b.register(f"{number}_made") if out is None else out.following
        named = tree_text(node), b.register(f"{number}_tried"), made
        match node:
            case tp.ConNode():
                other = b.chain(right, b.equalities(tests, right.sure, left.sure), shared=False) if equal else None
                return Join("CON", *named, left, right, out, rest, chain, other)
            case tp.SeqNode() | tp.KseqNode():
                absent = tuple(
                    (var, self._absence_chain(var, right)) for n in first_nodes(node.right) for var in n.negated
                )
                closure = None
                if isinstance(node, tp.KseqNode):
                    (closure,) = (group for group in self.alternative.groups if group.var == node.closure)
                return Join("SEQ", *named, left, right, out, rest, chain, None, absent, closure)
            case _:
                return Join("DIS", *named, left, right, out)

    # --- operators ----------------------------------------------------------------------------------------------------

    def assemble_negated(self, w: Writer) -> None:
        self._write_operators(w, self.operators[: self.always])

    def assemble(self, w: Writer) -> None:
        self._write_operators(w, self.operators[self.always :])
        if self.leaf is not None:
            self._emit_leaf(w, self.leaf)

    def _write_operators(self, w: Writer, operators: Sequence[Join]) -> None:
        for operator in operators:
            name = operator.out.name if operator.out else "the output"
            w(f"# {operator.kind} of {operator.left.name} and {operator.right.name} into {name}")
            match operator.kind:
                case "SEQ":
                    self._seq(w, operator)
                case "CON":
                    self._con(w, operator)
                case _:
                    self._dis(w, operator)

    def _emit_leaf(self, w: Writer, leaf: Buffer) -> None:
        """The events of a leaf that is an alternative:

        while l0_emitted < l0_next:
            for j in range(l0_emitted, l0_next): ...
            l0_emitted = l0_next
        """
        done = self.buffers.register(f"{leaf.name}_emitted")
        bindings = self.buffers.bindings(leaf, "j", "i")
        w(f"{done} = max({done}, {leaf.base})")
        row = self.buffers.row_of(leaf, f"({leaf.following} - 1)")
        with w.block(f"while {done} < {leaf.following}:"):
            self.output.make_room(w, f"{leaf.following} - {done}", row, self.text)
            with w.block(f"for j in range({done}, {leaf.following}):"):
                w(f"i = {leaf.index('j')}")
                tests = self._conditions(self.leaf_tests, bindings)
                if self.buffers.windowed and not self.buffers.by_operator:
                    counts = self.buffers.plan.counts_events or not leaf.has_starts
                    length = "0" if counts else f"{leaf.end('i')} - {leaf.start('i')}"
                    tests.insert(0, f"{length} <= limit")
                with w.block(f"if {_all(tests)}:"):
                    self.output.emit(w, self.number, bindings)
            w(f"{done} = {leaf.following}")

    def _conditions(self, tests: Iterable[Expr], bindings: dict[str, Binding]) -> list[str]:
        read = self.buffers.reader(bindings)
        return [self.buffers.test(t, read, bindings, self.alternative) for t in tests]

    def _rows(self, w: Writer, operator: Join, following: str, room: str, row: str, body: Callable[[], None]) -> None:
        """The body while `following` holds. The output grows between turns, outside of the inner loop:

        while a0_0r < l1_next:
            values = grown(values, ...)
            while (a0_0r < l1_next) and written + ... <= values.shape[0]:
                ...
                if matches - completed > integers[1]:
                    problem = completing + 1
                    break
        """
        out = operator.out
        with w.block(f"while {following}:"):
            if out is None:
                self.output.make_room(w, room, row, operator.text)
                fits = self.output.fits(room)
            else:
                self.buffers.stop_if_large(w, out, room, row, operator.text)
                self.buffers.make_room(w, out, room)
                fits = f"{out.live} + {room} <= {out.size}"
            with w.block(f"while ({following}) and {fits}:"):
                if out is None:
                    w("completed = matches", f"completing = {row}")
                body()
                if out is None:
                    with w.block(f"if matches - completed > {self.buffers.builder.most_matches}:"):
                        w("problem = completing + 1", "break")
            if out is None:
                w("if problem != 0:", "    break")

    def _cursor(self, w: Writer, operator: Join, side: Buffer) -> str:
        number = self.operators.index(operator)
        which = "l" if side is operator.left else "r"
        cursor = self.buffers.register(f"a{self.number}_{number}{which}")
        w(f"{cursor} = max({cursor}, {side.base})")
        return cursor

    def _seq(self, w: Writer, operator: Join) -> None:
        """Algorithm 1, with the search on the left bounded from both sides:

        r = a0_0r & (l1_time.shape[0] - 1)
        upto = l1_time[r]
        while j >= l0_base: ...
        """
        b, left, right = self.buffers, operator.left, operator.right
        chain, tests = operator.left_chain, operator.tests
        for made in (chain, *(c for _, c in operator.absent)):
            if made is not None:
                b.link_new(w, made)
        cursor = self._cursor(w, operator, right)
        for var, absent_chain in operator.absent:
            if absent_chain is None:
                self._begin_search(w, operator, b.leaves[var])
        if chain is None:
            self._begin_search(w, operator, left)

        def one_right() -> None:
            w(f"r = {right.index(cursor)}", f"{cursor} += 1")
            w(f"upto = {right.start('r')}")
            there = b.bindings(right, f"({cursor} - 1)", "r")
            if operator.closure is not None:
                self._need_members(w, operator.closure, there)
            w(f"since = {NEVER}")
            for var, absent_chain in operator.absent:
                self._latest_negating(w, var, absent_chain, there, operator)
            if operator.limit is not None:
                w(f"oldest = {b.last_measure(right, 'r')} - {operator.limit}")
            if chain is None:
                self._last_before(w, "j", operator, left, "upto")
            else:
                b.head(w, chain, there, "j")
            with w.block(f"while j >= {left.base}:"):
                w(f"i = {left.index('j')}")
                stops = [f"{left.end('i')} < since"] if operator.absent else []
                if operator.limit is not None:
                    stops.append(f"{b.latest_first_measure(left, 'i')} < oldest")
                if stops:
                    with w.block(f"if {' or '.join(stops)}:"):
                        w("break")
                here = b.bindings(left, "j", "i")
                checks = [f"{left.end('i')} < upto"] if chain is not None else []
                checks += self._within(operator, left, "i", right, "r") + self._conditions(tests, {**here, **there})
                w(f"{operator.tried} += 1")
                self._combine(w, operator, checks, ("j", "i"), (f"({cursor} - 1)", "r"))
                w(f"j = {b.previous(chain, 'j', 'i')}")

        row = b.row_of(right, cursor)
        self._rows(w, operator, f"{cursor} < {right.following}", f"({left.live})", row, one_right)
        if not right.is_leaf and not right.has_several:
            w(f"{right.base} = {right.following}")

    def _goes_forward(self, operator: Join) -> bool:
        """Whether the time from which is searched backwards never goes back from one right record to the next: events
        come in the order of time, while other records end in order but do not start so."""
        return operator.right.is_leaf and not operator.right.has_starts and operator.closure is None

    def _searched(self, operator: Join, buffer: Buffer) -> str:
        """The register of the first record that has not ended before the last time searched from."""
        return self.buffers.register(f"a{self.number}_{self.operators.index(operator)}{buffer.name}")

    def _begin_search(self, w: Writer, operator: Join, buffer: Buffer) -> None:
        if self._goes_forward(operator):
            searched = self._searched(operator, buffer)
            w(f"{searched} = max({searched}, {buffer.base})")

    def _last_before(self, w: Writer, target: str, operator: Join, buffer: Buffer, time: str) -> None:
        """`j = last_before(x0_end, x0_base, x0_next, upto)`: the last record that ends before a time. Where times only
        grow, a register follows them."""
        if not self._goes_forward(operator):
            w(f"{target} = last_before({buffer.end_array}, {buffer.base}, {buffer.following}, {time})")
            return
        searched = self._searched(operator, buffer)
        with w.block(f"while {searched} < {buffer.following} and {buffer.end(buffer.index(searched))} < {time}:"):
            w(f"{searched} += 1")
        w(f"{target} = {searched} - 1")

    def _within(self, operator: Join, left: Buffer, i: str, right: Buffer, r: str) -> list[str]:
        """That a pair fits the window; `oldest` follows from the one that ends last."""
        b = self.buffers
        if b.windowed and b.in_partition:
            last = f"max({b.last_measure(left, i)}, {b.last_measure(right, r)})"
            return [f"{last} - min({b.first_measure(left, i)}, {b.first_measure(right, r)}) <= limit"]
        if operator.limit is None:
            return []
        # Of records that begin in order the search has ended at the first that is too old.
        first = b.first_measure(left, i)
        return [] if b.latest_first_measure(left, i) == first else [f"{first} >= oldest"]

    def _fits_alone(self, operator: Join, side: Buffer, index: str) -> list[str]:
        """That an event with duration, which ends last, does not last longer than the window."""
        is_long = side.is_leaf and side.has_starts and not self.buffers.by_operator and operator.limit is not None
        return [f"{self.buffers.first_measure(side, index)} >= oldest"] if is_long else []

    def _combine(
        self, w: Writer, operator: Join, checks: Sequence[str], left_at: tuple[str, str], right_at: tuple[str, str]
    ) -> None:
        """The pair into the output if it passes the checks."""
        b, out, left, right = self.buffers, operator.out, operator.left, operator.right
        with w.block(f"if {_all(checks)}:"):
            if out is None:
                self.output.emit(w, self.number, {**b.bindings(left, *left_at), **b.bindings(right, *right_at)})
                w(f"{operator.made} += 1")
                return
            in_order = operator.kind == "SEQ"
            w(f"k = {out.index(out.following)}")
            starts = left.start(left_at[1]), right.start(right_at[1])
            ends = left.end(left_at[1]), right.end(right_at[1])
            w(f"{out.field('start', 'k')} = {starts[0] if in_order else f'min({starts[0]}, {starts[1]})'}")
            w(f"{out.field('end', 'k')} = {ends[1] if in_order else f'max({ends[0]}, {ends[1]})'}")
            if b.plan.counts_events:
                lows = b.first_measure(left, left_at[1]), b.first_measure(right, right_at[1])
                highs = b.last_measure(left, left_at[1]), b.last_measure(right, right_at[1])
                w(
                    f"{out.field('low', 'k')} = min({lows[0]}, {lows[1]})",
                    f"{out.field('high', 'k')} = max({highs[0]}, {highs[1]})",
                )
            if b.by_operator:
                firsts = [b.first_measure(left, left_at[1]), b.first_measure(right, right_at[1])]
                first = firsts[0] if in_order else f"min({firsts[0]}, {firsts[1]})"
                w(f"{out.field('low', 'k')} = {out.end('k') if operator.completes else first}")
            for side, at in ((left, left_at), (right, right_at)):
                for leaf in b.leaves_of(side):
                    w(f"{b.number_in(leaf, out, '', 'k')} = {b.number_in(leaf, side, *at)}")
            b.note_top(w, out, "k")
            w(f"{out.following} += 1")

    # --- narrowing a sequence -----------------------------------------------------------------------------------------

    def _absence_chain(self, var: str, right: Buffer) -> Chain | None:
        equalities = self.buffers.equalities(self.buffers.about(var), [var], right.sure)
        return self.buffers.chain(self.buffers.leaves[var], equalities) if equalities else None

    def _latest_negating(
        self, w: Writer, var: str, chain: Chain | None, there: dict[str, Binding], operator: Join
    ) -> None:
        """Algorithm 2: the latest negated event before the right record that its predicates hold for."""
        b, leaf, right = self.buffers, self.buffers.leaves[var], operator.right
        if chain is None:
            self._last_before(w, "q", operator, leaf, right.start("r"))
        else:
            b.head(w, chain, there, "q")
        with w.block(f"while q >= {leaf.base}:"):
            w(f"n = {leaf.index('q')}")
            with w.block(f"if {leaf.field('time', 'n')} <= since:"):
                w("break")
            tests = b.about(var) if chain is None else chain.remaining(b.about(var))
            checks = [f"{leaf.field('time', 'n')} < {right.start('r')}"] if chain is not None else []
            checks += self._conditions(tests, {**there, var: Binding("n")})
            with w.block(f"if {_all(checks)}:"):
                w(f"since = {leaf.field('time', 'n')}", "break")
            w(f"q = {b.previous(chain, 'q', 'n')}")

    def _need_members(self, w: Writer, group: Group, there: dict[str, Binding]) -> None:
        """Algorithm 4: the left must end before the closure's first necessary member, counted from the right."""
        leaf, low = self.buffers.leaves[group.var], group.closure.low
        w(f"q = last_before({leaf.array('time')}, {leaf.base}, {leaf.following}, upto)", f"needed = {low}")
        with w.block(f"while q >= {leaf.base}:"):
            w(f"n = {leaf.index('q')}")
            checks = self._conditions(self.buffers.about(group.var), {**there, group.var: Binding("n")})
            with w.block(f"if {_all(checks)}:"):
                w("needed -= 1")
                with w.block("if needed == 0:"):
                    w(f"upto = {leaf.field('time', 'n')}", "break")
            w("q -= 1")
        with w.block("if needed > 0:"):
            w("continue")

    # --- conjunction and disjunction ----------------------------------------------------------------------------------

    def _con(self, w: Writer, operator: Join) -> None:
        """Algorithm 3: in the order of ends, each new record with all records of the other side that ended before."""
        b, left, right = self.buffers, operator.left, operator.right
        cursors = self._cursor(w, operator, left), self._cursor(w, operator, right)
        chains, tests = (operator.left_chain, operator.right_chain), operator.tests
        for chain, cursor in zip(chains, cursors, strict=True):
            if chain is not None:
                b.chain_room(w, chain, f"{chain.buffer.following} - {cursor}")

        def one(current: int) -> None:
            sides, numbers = (left, right), ("l", "r")
            mine, other = sides[current], sides[1 - current]
            me, you = numbers[current], numbers[1 - current]
            my_chain, other_chain = chains[current], chains[1 - current]
            w(f"{me} = {mine.index(cursors[current])}")
            here = b.bindings(mine, cursors[current], me)
            if operator.limit is not None:
                w(f"oldest = {b.last_measure(mine, me)} - {operator.limit}")
            if other_chain is None:
                w(f"j = {cursors[1 - current]} - 1")
            else:
                b.head(w, other_chain, here, "j")
            with w.block(f"while j >= {other.base}:"):
                w(f"{you} = {other.index('j')}")
                if operator.limit is not None:
                    with w.block(f"if {b.latest_first_measure(other, you)} < oldest:"):
                        w("break")
                there = b.bindings(other, "j", you)
                checks = (
                    self._within(operator, other, you, mine, me)
                    + self._fits_alone(operator, mine, me)
                    + b.different(here, there)
                )
                checks += self._conditions(tests, {**here, **there})
                w(f"{operator.tried} += 1")
                at = {me: (cursors[current], me), you: ("j", you)}
                self._combine(w, operator, checks, at["l"], at["r"])
                w(f"j = {b.previous(other_chain, 'j', you)}")
            if my_chain is not None:
                b.link(w, my_chain, cursors[current], me)
            w(f"{cursors[current]} += 1")

        def in_order() -> None:
            with w.block(f"if {self._left_is_next(left, right, cursors)}:"):
                one(0)
            with w.block("else:"):
                one(1)

        more = f"{cursors[0]} < {left.following} or {cursors[1]} < {right.following}"
        row = f"{b.row_of(left, cursors[0])} if {cursors[0]} < {left.following} else {b.row_of(right, cursors[1])}"
        self._rows(w, operator, more, f"max({left.live}, {right.live})", row, in_order)

    def _left_is_next(self, left: Buffer, right: Buffer, cursors: tuple[str, str]) -> str:
        """Whether the left side's next record ends before the right side's."""
        b = self.buffers
        ends = b.last_measure if b.expires and not b.by_operator else lambda side, index: side.end(index)
        earlier = f"{ends(left, left.index(cursors[0]))} <= {ends(right, right.index(cursors[1]))}"
        left_there = f"{cursors[0]} < {left.following}"
        return f"{left_there} and ({cursors[1]} >= {right.following} or {earlier})"

    def _dis(self, w: Writer, operator: Join) -> None:
        b, left, right, out = self.buffers, operator.left, operator.right, operator.out
        assert out is not None
        cursors = self._cursor(w, operator, left), self._cursor(w, operator, right)

        def copy(side: Buffer, cursor: str) -> None:
            w(f"i = {side.index(cursor)}", f"k = {out.index(out.following)}")
            w(f"{out.field('start', 'k')} = {side.start('i')}", f"{out.field('end', 'k')} = {side.end('i')}")
            if b.plan.counts_events:
                w(
                    f"{out.field('low', 'k')} = {b.first_measure(side, 'i')}",
                    f"{out.field('high', 'k')} = {b.last_measure(side, 'i')}",
                )
            if b.by_operator:
                w(f"{out.field('low', 'k')} = {b.first_measure(side, 'i')}")
            for leaf in b.leaves_of(out):
                number = b.number_in(leaf, side, cursor, "i") if leaf in b.leaves_of(side) else "-1"
                w(f"{b.number_in(leaf, out, '', 'k')} = {number}")
            b.note_top(w, out, "k")
            w(f"{out.following} += 1", f"{cursor} += 1")

        def in_order() -> None:
            with w.block(f"if {self._left_is_next(left, right, cursors)}:"):
                copy(left, cursors[0])
            with w.block("else:"):
                copy(right, cursors[1])

        more = f"{cursors[0]} < {left.following} or {cursors[1]} < {right.following}"
        row = f"{b.row_of(left, cursors[0])} if {cursors[0]} < {left.following} else {b.row_of(right, cursors[1])}"
        self._rows(w, operator, more, f"({left.live} + {right.live})", row, in_order)
        for side in (left, right):
            if not side.is_leaf and not side.has_several:
                w(f"{side.base} = {side.following}")


def _all(conditions: Sequence[str]) -> str:
    return " and ".join(conditions) or "True"
