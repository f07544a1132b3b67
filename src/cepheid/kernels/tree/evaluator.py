"""ZStream's tree plans (§4): joins over buffers in the order of end times, in any shape.

A *round* takes a chunk of events into the leaf buffers. If none of them can end a match, the round is idle. Otherwise
the earliest allowed time (EAT) follows from the first that can, what starts before it is dropped, and the operators run
from the leaves to the root, each over the records that are new since its last round (§4.3):

SEQ   for each new record on the right, the earlier records on the left (Algorithm 1)
CON   the new records of both sides in the order of their ends, each with those of the other side before it
DIS   the new records of both sides in the order of their ends
NSEQ  narrows the search of a SEQ: what is on the left must not end before the latest event that negates the right
KSEQ  narrows it too: between left and right there must be enough members of the closure

Equalities are looked up in chains of equal keys. Groups of closures, and absences that cannot be pushed down, are
resolved for complete records (`top`), and so are the matches that must wait for their window to pass. A record that an
operator with a window of its own joins is dropped by this window too, but only after a round that has run its join.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cepheid.codegen.builder import KernelBuilder, Writer
from cepheid.errors import NotAvailable
from cepheid.events import START
from cepheid.kernels.tree.buffers import NEVER, Buffer, Buffers, shared_leaves
from cepheid.kernels.tree.joins import Branch
from cepheid.kernels.tree.output import Output
from cepheid.optimize.alternatives import alternatives, last_variables
from cepheid.optimize.search import TREE_OPTIONS
from cepheid.pattern import Disj, Kleene, walk
from cepheid.physical import Options, Plan
from cepheid.runtime.kernel import END_OF_TIME, FREE, LARGE_OUTPUT, Kernel, OperatorRegisters
from cepheid.tree_plan import DisNode, LeafBuffer, tree_nodes, tree_text

OPTIONS: Options = TREE_OPTIONS
_CHUNK, _LARGE_CHUNK = 1024, 16384
"""How many events a round takes in, unless the output of a round is large. Rounds that Python interprets are longer."""


def kernel(plan: Plan) -> Kernel:
    return _Generator(plan).kernel()


class _Generator:
    def __init__(self, plan: Plan) -> None:
        if plan.tree is None:
            raise NotAvailable("the plan does not say how to join")
        self.plan = plan
        self.trees = plan.tree.trees
        shared = [var for variables in shared_leaves(plan) for var in variables]
        self.taken = {var: FREE + i for i, var in enumerate(shared)}
        """The registers that count the events of variables that share a leaf buffer."""
        self.builder = KernelBuilder(plan, reserved=len(shared))
        self.buffers = Buffers(self.builder)
        found = alternatives(plan.query)
        members = plan.tree.members
        bounded = len(found) > 1 or any(isinstance(node, Kleene | Disj) for node in walk(plan.query.pattern))
        if members:
            bounded = any(isinstance(node, Kleene) for node in walk(plan.query.pattern))
        positive = tuple(step.var for step in plan.steps if not step.negated)
        self.output = Output(self.buffers, positive, bounded, len(found), members)
        self.branches = [
            Branch(self.buffers, self.output, number, alternative, tree)
            for number, (alternative, tree) in enumerate(zip(found, self.trees, strict=True))
        ]
        self.tops = [branch.top for branch in self.branches if branch.top is not None]
        self.waiting = any(top.waiting for top in self.tops)

    # --- the function -------------------------------------------------------------------------------------------------

    def kernel(self) -> Kernel:
        self.builder.declare(*self.buffers.tables())
        if self.waiting:
            self.builder.remember_strings()
        self.chunk = _LARGE_CHUNK if self.builder.interpret_if_large() else _CHUNK
        body = Writer()
        self._write_totals(body, "-")
        body("stop = 0", "rounds = 1")
        with body.block("while rounds > 0:"):
            self._next_round(body)
            self._round(body)
            body(f"if written >= {LARGE_OUTPUT}:", "    break")
        finish = Writer()
        self._write_oldest(finish)
        self._write_totals(finish, "+")
        setup = ["written = 0", "ends = 0", "final = -1", "now_measure = now"]
        source = self.builder.source(body, finish, setup=setup, ends="ends", taken="stop")
        steps, bounded = self.output.variables, self.output.bounded
        return self.builder.kernel(source, steps, has_bounds=bounded, operators=tuple(self.operators()))

    def _next_round(self, w: Writer) -> None:
        """The next round takes in fewer events if these are likely to have a large output:

        usual = 1 + matches * 3 // max(events, 1)
        stop = min(start + min(1024, max(1048576 // usual, 1)), time.shape[0])
        """
        w(f"usual = 1 + matches * {len(self.output.variables)} // max(events, 1)", "start = stop")
        w(f"stop = min(start + min({self.chunk}, max({LARGE_OUTPUT} // usual, 1)), time.shape[0])")
        w("rounds = time.shape[0] - stop")

    def _write_totals(self, w: Writer, sign: str) -> None:
        """`partial_matches -= x0_next` before the events and `+=` after them: the counters of the plan grow by what its
        joins have counted."""
        for operator in (operator for branch in self.branches for operator in branch.operators):
            if operator.out is not None:
                w(f"partial_matches {sign}= {operator.made}")
            if operator.tests:
                w(f"predicates {sign}= {len(operator.tests)} * {operator.tried}")

    def operators(self) -> Iterator[OperatorRegisters]:
        for var, leaf in self.buffers.leaves.items():
            yield OperatorRegisters(var, self.taken[var] if leaf.is_shared else leaf.following.number)
        for node in (node for tree in self.trees for node in tree_nodes(tree) if isinstance(node, DisNode)):
            variables = [part.var for part in tree_nodes(node) if isinstance(part, LeafBuffer)]
            if self.taken.keys() >= set(variables):
                first, *others = (self.taken[var] for var in variables)
                yield OperatorRegisters(tree_text(node), first, also_made=tuple(others))
        for branch in self.branches:
            for operator in branch.operators:
                tried = None if operator.kind == "DIS" else operator.tried.number
                yield OperatorRegisters(operator.text, operator.made.number, tried, len(operator.tests))
            if branch.top is not None:
                yield OperatorRegisters(branch.text, branch.top.emitted.number)

    def _round(self, w: Writer) -> None:
        with w.part():
            self._begin_round(w)
        own = {
            branch.number: [buffer for buffer in self.buffers.all if self._only_in(branch, buffer)]
            for branch in self.branches
        }
        common = [buffer for buffer in self.buffers.all if not any(buffer in buffers for buffers in own.values())]
        for buffer in common:
            with w.part():
                self._refill(w, [buffer])
        for branch in self.branches:
            with w.part():
                self._refill(w, own[branch.number])
                branch.assemble_negated(w)
                with w.block("if final >= 0:"):
                    branch.assemble(w)
                    w("pass")
                if branch.top is not None:
                    branch.top.resolve(w)
        held = " + ".join(buffer.live for buffer in self.buffers.all)
        w(f"peak_retained = max(peak_retained, {held})")
        if self.buffers.expires:
            with w.block(f"if now_measure > {NEVER}:"):
                for buffers in (common, *own.values()):
                    with w.part():
                        self.buffers.expire(w, buffers, "now_measure", self._windows)
                        self.buffers.expire_joined(w, buffers)
        w("if problem != 0:", "    break")

    def _only_in(self, branch: Branch, buffer: Buffer) -> bool:
        """Whether no other alternative reads a buffer."""
        return all((buffer in other.buffers_read) == (other is branch) for other in self.branches)

    def _refill(self, w: Writer, buffers: Sequence[Buffer]) -> None:
        """Take in the events of a chunk, and drop what is too old for the first match that can end in it."""
        if leaves := [buffer for buffer in buffers if buffer.is_leaf]:
            self._take_in(w, leaves)
        if self.buffers.expires and not self.waiting:
            with w.block("if final >= 0:"):
                self.buffers.expire(w, buffers, "measure[final]", self._windows)
                w("pass")

    @property
    def _windows(self) -> int:
        """How many windows an event can matter. A leading group reaches back one window from its own end, if another
        closure is only resolved after it, and it is the whole group that must fit the match's window."""
        return 1 + max((top.early_groups for top in self.tops), default=0)

    def _begin_round(self, w: Writer) -> None:
        """The first event that can end a match, and the time that has passed:

        final = first_with(mask, start, stop, np.uint64(2))
        now_measure = measure[stop - 1]
        """
        buffers = self.buffers
        finals = {var for branch in self.branches for var in last_variables(branch.alternative.operands)}
        final_bits = sum({1 << buffers.steps[var].begin for var in finals})
        wanted = self.builder.bits_of(self.plan.steps)
        w("events += stop - start")
        w(f"dropped_by_mask += stop - start - count_bit(mask, start, stop, np.uint64({wanted}))")
        w(f"final = first_with(mask, start, stop, np.uint64({final_bits}))")
        with w.block("if stop > start:"):
            w(f"now_measure = {NEVER if buffers.in_partition else 'measure[stop - 1]'}")
        with w.block("else:"):
            counted = f"now if now >= {END_OF_TIME} else {NEVER}"
            w(f"now_measure = {counted if self.plan.counts_events else 'now'}")

    def _take_in(self, w: Writer, leaves: Sequence[Buffer]) -> None:
        """Steps 1 and 2 of §4.3, the events of a chunk into leaf buffers:

        for e in range(start, stop):
            bits = mask[e]
            if bits & np.uint64(3) == 0:
                continue
            if bits & np.uint64(1):
                l0_row[l0_next & (l0_time.shape[0] - 1)] = first + e
        """
        for leaf in leaves:
            w(f"room = {self._count(leaf)}")
            self.buffers.make_room(w, leaf, "room")
        steps = {leaf.name: [self.buffers.steps[var] for var in leaf.variables] for leaf in leaves}
        with w.block("for e in range(start, stop):"):
            w("bits = mask[e]")
            if len(leaves) > 1:
                wanted = self.builder.bits_of([step for leaf in leaves for step in steps[leaf.name]])
                w(f"if bits & np.uint64({wanted}) == 0:", "    continue")
            for leaf in leaves:
                first = steps[leaf.name][0]
                if leaf.is_shared:
                    self._take_in_shared(w, leaf, [step.begin for step in steps[leaf.name]])
                    continue
                role = f"can be the component on bit {first.begin}{', negated' if first.negated else ''}"
                with w.block(f"if bits & np.uint64({1 << first.begin}):  # {role}"):
                    self._store(w, leaf)

    def _count(self, leaf: Buffer) -> str:
        """How many events of a chunk go into a leaf buffer."""
        bits = [1 << self.buffers.steps[var].begin for var in leaf.variables]
        if len(bits) == 1:
            return f"count_bit(mask, start, stop, np.uint64({bits[0]}))"
        if len(set(bits)) == len(bits):
            return f"count_bits(mask, start, stop, np.uint64({sum(bits)}))"
        return f"{len(bits)} * count_bit(mask, start, stop, np.uint64({sum(set(bits))}))"

    def _take_in_shared(self, w: Writer, leaf: Buffer, bits: list[int]) -> None:
        """The event as each class of a disjunction that it can be; the constants hold the bit of each:

        if bits & np.uint64(7):
            for q in range(3):
                if bits & (np.uint64(1) << np.uint64(integers[5 + q])):
                    l0_branch[i] = q
        """
        offset = self.builder.constants.table(bits)
        one, each = f"if bits & np.uint64({sum({1 << bit for bit in bits})}):", f"for q in range({len(bits)}):"
        with w.block(one), w.block(each), w.block(f"if bits & (np.uint64(1) << np.uint64(integers[{offset} + q])):"):
            self._store(w, leaf)
            w(f"{leaf.field('branch', 'i')} = q", f"reg[{self.taken[leaf.variables[0]]} + q] += 1")

    def _store(self, w: Writer, leaf: Buffer) -> None:
        """`l0_row[i] = first + e`, and the other fields of the event."""
        w(f"i = {leaf.index(leaf.following)}")
        w(f"{leaf.field('row', 'i')} = first + e", f"{leaf.field('time', 'i')} = time[e]")
        if leaf.has_starts:
            w(f"{leaf.field('start', 'i')} = {self.builder.column(START)}")
        if self.plan.counts_events:
            w(f"{leaf.field('measure', 'i')} = measure[e]")
        for column in leaf.columns:
            value = "bits" if column == "cmask" else f"column{column[1:]}[e]"
            w(f"{leaf.field(column, 'i')} = {value}")
        self.buffers.note_top(w, leaf, "i")
        w(f"{leaf.following} += 1")

    def _write_oldest(self, w: Writer) -> None:
        w("oldest = first + stop")
        for leaf in dict.fromkeys(self.buffers.leaves[var] for var in self.output.bound):
            with w.block(f"if {leaf.base} < {leaf.following}:"):
                w(f"oldest = min(oldest, {leaf.field('row', leaf.index(leaf.base))})")
        self.builder.keep_from(w, "oldest")
