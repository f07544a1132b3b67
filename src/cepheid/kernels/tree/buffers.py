"""The buffers of a tree plan (ZStream §4.2) as generated code sees them, the chains through them by which equalities
are looked up (§5.2.2), and how attributes are read from their records.

Every buffer is a ring whose records are in the order in which they end. A leaf buffer holds events; a record of another
buffer holds, for each of its variables, the number of an event in that variable's leaf buffer (-1: not bound), and its
start and end. An event with duration has a start of its own. Where the window counts events, a record also holds the
lowest and highest position of its events (`low`, `high`). Where operators have windows of their own, `low` is the
earliest end of the operator's operands, and the end of the record once the operator is complete. Records end in order
but do not start in order, so each also holds the latest start (or `low`) up to it (`top`): a search backwards stops
where no earlier record can still be in the window.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from cepheid import expr as ex
from cepheid.codegen.builder import KernelBuilder, Register, Writer, known_by
from cepheid.codegen.scalar import NULL, KeyFit, Reader, Term, condition, key_fit, key_of
from cepheid.expr import At, Attr, Compare, Expr
from cepheid.optimize.alternatives import Alternative
from cepheid.physical import Kind, Plan, Step
from cepheid.runtime.kernel import StateArray
from cepheid.tree_plan import ConNode, DisNode, LeafBuffer, SeqNode, TreeNode, Within, tree_nodes, tree_operands

NEVER = "NULL_INT"
"""A time before every other: no bound, or nothing there."""


@dataclass(frozen=True, slots=True)
class Binding:
    """The event of a variable: its index in the arrays of the leaf buffer, and the condition that there is none."""

    index: str
    unbound: str | None = None
    branch: str | None = None
    """In a buffer that several variables share: which of them is bound, -1 if none is."""

    @property
    def bound(self) -> list[str]:
        """The condition that there is one, unless there always is."""
        return [f"not {self.unbound}"] if self.unbound else []


@dataclass(eq=False, slots=True)
class Buffer:
    """`sure` are the variables that every record binds (those of a disjunction's branches are not)."""

    name: str
    variables: tuple[str, ...]
    sure: frozenset[str]
    is_leaf: bool
    base: Register
    """The number of the first record that is still in the ring."""
    following: Register
    """The number of the next record."""
    columns: tuple[str, ...] = ()
    chains: list[str] = field(default_factory=list)
    """The arrays that link records of the same key."""
    has_starts: bool = True
    """Whether records have a start of their own; that of an event without duration is its time."""
    kept: str | None = "limit"
    """How long a record may be joined with later ones; None: without limit."""
    in_negation: bool = False
    """Whether it has the records of what must not occur, which are joined in idle rounds too."""
    has_several: bool = False
    """Whether several joins read the records of a join."""
    is_shared: bool = field(init=False)
    """Whether several variables have their events here, those of a disjunction."""
    size: str = field(init=False)
    """`l0_time.shape[0]`"""
    live: str = field(init=False)
    """`l0_next - l0_base`"""
    end_array: str = field(init=False)
    """`l0_time`, the array with the end of every record."""

    def __post_init__(self) -> None:
        self.is_shared = self.is_leaf and len(self.variables) > 1
        self.size = f"{self.name}_{'time' if self.is_leaf else 'start'}.shape[0]"
        self.live = f"{self.following} - {self.base}"
        self.end_array = f"{self.name}_{'time' if self.is_leaf else 'end'}"

    def index(self, number: str) -> str:
        """`j & (l0_time.shape[0] - 1)`, the index of record j in the arrays of the ring."""
        return f"{number} & ({self.size} - 1)"

    def array(self, field: str) -> str:
        """`l0_time`, the array with a field of every record."""
        return f"{self.name}_{field}"

    def field(self, field: str, index: str) -> str:
        """`l0_time[i]`"""
        return f"{self.name}_{field}[{index}]"

    def start(self, index: str) -> str:
        return f"{self.name}_{'start' if self.has_starts else 'time'}[{index}]"

    def end(self, index: str) -> str:
        return f"{self.end_array}[{index}]"


@dataclass(slots=True)
class SharedJoin:
    """A join that several alternatives may need, and its buffer once one of them has made it."""

    buffer: Buffer | None = None


@dataclass(frozen=True, slots=True)
class Equality:
    """`var.name = other.other_name`, by which records with `var` are looked up."""

    var: str
    name: str
    other: str
    other_name: str
    fit: KeyFit
    predicate: Expr
    """The comparison that it stands for."""


@dataclass(eq=False, slots=True)
class Chain:
    """The records of a buffer linked by key, the latest first."""

    name: str
    """Begins the names of the arrays of its table."""
    equalities: tuple[Equality, ...]
    buffer: Buffer
    is_shared: bool = True
    """Whether other joins may look records up here: that of a conjunction has those that it has passed."""

    def remaining(self, tests: Iterable[Expr]) -> list[Expr]:
        """The tests that a lookup does not decide: a single key is exact, the hashes of several may collide."""
        decided = [e.predicate for e in self.equalities if len(self.equalities) == 1 and e.fit.decides]
        return [test for test in tests if not any(test is done for done in decided)]


def either(conditions: Sequence[str]) -> str | None:
    """The conditions joined by `or`, safe beside other operators; None if there is none."""
    return f"({' or '.join(conditions)})" if len(conditions) > 1 else conditions[0] if conditions else None


def shared_leaves(plan: Plan) -> list[tuple[str, ...]]:
    """The variables of each disjunction of classes, if they are nowhere else in the trees."""
    nodes = [node for tree in plan.tree.trees for node in tree_nodes(tree)] if plan.tree is not None else []
    if plan.tree is None or plan.operator_windows is not None or not any(isinstance(n, DisNode) for n in nodes):
        return []
    groups = dict.fromkeys(group for tree in plan.tree.trees for group in _groups(tree))
    number = {step.var: i for i, step in enumerate(plan.steps)}
    times = Counter(var for group in groups for var in group)
    return [
        tuple(sorted(group, key=number.__getitem__))
        for group in groups
        if len(group) > 1 and all(times[var] == 1 for var in group)
    ]


def _groups(node: TreeNode) -> list[tuple[str, ...]]:
    """The variables of each largest disjunction of classes in a tree, and of each other class alone."""
    parts = tree_nodes(node)
    if all(isinstance(part, LeafBuffer | DisNode) for part in parts):
        return [tuple(part.var for part in parts if isinstance(part, LeafBuffer))]
    return [group for operand in tree_operands(node) for group in _groups(operand)]


class Buffers:
    """All buffers of a kernel, and their state arrays."""

    def __init__(self, builder: KernelBuilder) -> None:
        self.builder = builder
        self.register = builder.register
        self.plan = plan = builder.plan
        self.windowed = plan.window is not None
        self.in_partition = plan.counts_events and bool(plan.key)
        """Whether the window counts the events of a partition: then the measure does not grow with time."""
        self.expires = self.windowed and not self.in_partition
        """Whether records leave the window in order."""
        self.by_operator = plan.operator_windows is not None
        """Whether each operator has a window of its own, over the ends of its operands."""
        self.steps: dict[str, Step] = {step.var: step for step in plan.steps}
        self.variable_number = {step.var: i for i, step in enumerate(plan.steps)}
        self.waiting: list[StateArray] = []
        """The arrays of the records that wait for their window to pass (`top`)."""
        self.chains: list[Chain] = []
        self.leaves: dict[str, Buffer] = {}
        shared = shared_leaves(plan)
        for i, step in enumerate(plan.steps):
            variables = next((group for group in shared if step.var in group), (step.var,))
            if step.var == variables[0]:
                sure = variables if len(variables) == 1 else ()
                leaf = self._buffer(f"l{i}", variables, sure, self._columns(variables))
                self.leaves |= dict.fromkeys(variables, leaf)
        self.nodes: list[Buffer] = []
        self.joins: dict[tuple[TreeNode, tuple[Expr, ...]], SharedJoin] = {}

    # --- the window ---------------------------------------------------------------------------------------------------

    def limit(self, operator: Within | None) -> str | None:
        """The window of a join in a search backwards: that of its operator, or that of the match."""
        if not self.by_operator:
            return "limit" if self.expires else None
        window = None if operator is None else operator.window
        return None if window is None else self.builder.constants.integer(window)

    def first_measure(self, buffer: Buffer, index: str) -> str:
        """The measure of the window for the earliest event of a record."""
        if self.by_operator:
            return buffer.end(index) if buffer.is_leaf else buffer.field("low", index)
        if not self.plan.counts_events:
            return buffer.start(index)
        return buffer.field("measure" if buffer.is_leaf else "low", index)

    def last_measure(self, buffer: Buffer, index: str) -> str:
        if not self.plan.counts_events:
            return buffer.end(index)
        return buffer.field("measure" if buffer.is_leaf else "high", index)

    def latest_first_measure(self, buffer: Buffer, index: str) -> str:
        """The latest `first_measure` of a record and all those before it."""
        return buffer.field("top", index) if self._has_top(buffer) else self.first_measure(buffer, index)

    def _has_top(self, buffer: Buffer) -> bool:
        """Whether the records, which end in order, do not begin so, and leave a window by their beginning."""
        if self.by_operator:
            return not buffer.is_leaf
        return self.expires and buffer.has_starts

    def note_top(self, w: Writer, buffer: Buffer, index: str) -> None:
        """For a record that was just written: `x0_top[k] = x0_top_so_far`."""
        if self._has_top(buffer):
            top, start = self.register(f"{buffer.name}_top_so_far"), self.first_measure(buffer, index)
            w(f"{top} = {start} if {buffer.following} == 0 else max({top}, {start})")
            w(f"{buffer.field('top', index)} = {top}")

    def about(self, var: str) -> list[Expr]:
        """The predicates between events that read a variable."""
        return [p for p in self.plan.predicates if var in ex.variables(p)]

    # --- stored fields ------------------------------------------------------------------------------------------------

    def _columns(self, variables: Collection[str]) -> tuple[str, ...]:
        """The attributes of some variables that something between events reads."""
        names = [
            node.name
            for predicate in self.plan.predicates
            for node in ex.walk(predicate)
            if isinstance(node, Attr | ex.Aggregate) and node.var in variables and node.name is not None
        ]
        kept = [f"c{self.builder.column_number[name]}" for name in dict.fromkeys(names)]
        if any(name in self.plan.lacking or name in self.plan.nulls for name in names):
            kept.append("cmask")
        return tuple(kept)

    def node(self, variables: Sequence[str], sure: Iterable[str]) -> Buffer:
        self.nodes.append(self._buffer(f"x{len(self.nodes)}", tuple(variables), sure))
        return self.nodes[-1]

    def of_join(self, node: TreeNode, tests: Sequence[Expr]) -> SharedJoin | None:
        """An inner join with its tests, which alternatives have in common: its records are made once. None if they
        depend on what an alternative has around it."""
        if not all(isinstance(part, LeafBuffer | SeqNode | ConNode | DisNode) for part in tree_nodes(node)):
            return None
        own = {part.var for part in tree_nodes(node) if isinstance(part, LeafBuffer)}
        if not all(ex.variables(test) <= own for test in tests):
            return None
        return self.joins.setdefault((node, tuple(tests)), SharedJoin())

    def _buffer(
        self, name: str, variables: tuple[str, ...], sure: Iterable[str], columns: tuple[str, ...] | None = None
    ) -> Buffer:
        """A buffer of events, with the columns that it holds of them, or of joined records."""
        base, following = self.register(f"{name}_base"), self.register(f"{name}_next")
        made = Buffer(name, variables, frozenset(sure), columns is not None, base, following, columns or ())
        made.has_starts = columns is None or self.plan.has_durations
        return made

    @property
    def all(self) -> list[Buffer]:
        return [*self.leaf_buffers, *self.nodes]

    @property
    def leaf_buffers(self) -> list[Buffer]:
        return list(dict.fromkeys(self.leaves.values()))

    def array_names(self, buffer: Buffer) -> list[str]:
        counts = self.plan.counts_events
        tops = ["top"] if self._has_top(buffer) else []
        if buffer.is_leaf:
            starts = ["start"] if buffer.has_starts else []
            branch = ["branch"] if buffer.is_shared else []
            own = ["row", "time", *starts, *(["measure"] if counts else []), *tops, *branch, *buffer.columns]
        else:
            numbers = [f"v{self.variable_number[leaf.variables[0]]}" for leaf in self.leaves_of(buffer)]
            lows = ["low", "high"] if counts else ["low"] if self.by_operator else []
            own = ["start", "end", *lows, *tops, *numbers]
        return [*own, *buffer.chains]

    def tables(self) -> list[StateArray]:
        """The arrays of the state, once all chains are known."""
        arrays: list[StateArray] = []
        for buffer in self.all:
            arrays += [StateArray(buffer.array(a), self._dtype(a), 16) for a in self.array_names(buffer)]
        for chain in self.chains:
            arrays += [StateArray(f"{chain.name}_key", "int64", 16), StateArray(f"{chain.name}_head", "int64", 16, -1)]
        return [*arrays, *self.waiting]

    def _dtype(self, array: str) -> str:
        if array == "cmask":
            return "uint64"
        if array.startswith("c") and array[1:].isdigit():
            return "float64" if list(self.plan.columns.values())[int(array[1:])] is Kind.FLOAT else "int64"
        return "int64"

    def row_of(self, buffer: Buffer, number: str) -> str:
        """The position of an event of a record: `l0_row[x0_v0[i] & (l0_time.shape[0] - 1)]`."""
        index = buffer.index(number)
        var, binding = next(iter(self.bindings(buffer, number, index).items()))
        return self.row(var, binding)

    def stop_if_large(self, w: Writer, buffer: Buffer, room: str, row: str, operator: str) -> None:
        """End the loop if the records of an operator need too much memory, all their fields together."""
        words = f"{len(self.array_names(buffer))} * ({buffer.live} + {room})"
        self.builder.stop_if_large(w, words, row, f"the records of {operator}")

    def make_room(self, w: Writer, buffer: Buffer, room: str) -> None:
        """Let the ring grow, outside of the loops over records (an array that is assigned in a loop is slow):

        if l0_next - l0_base + room > l0_time.shape[0]:
            capacity = ring_capacity(l0_row, 2 * (l0_next - l0_base + room))
            l0_row = unrolled(l0_row, l0_base, l0_next, capacity)
        """
        with w.block(f"if {buffer.live} + {room} > {buffer.size}:"):
            names = list(map(buffer.array, self.array_names(buffer)))
            w(
                f"capacity = ring_capacity({names[0]}, 2 * ({buffer.live} + {room}))",
                *(f"{name} = unrolled({name}, {buffer.base}, {buffer.following}, capacity)" for name in names),
            )

    def expire(self, w: Writer, buffers: Iterable[Buffer], moment: str, windows: int) -> None:
        """Drop from the front of buffers the records that start before the earliest allowed time:

        eat = measure[final] - limit
        while l0_base < l0_next and l0_time[l0_base & (l0_time.shape[0] - 1)] < eat:
            l0_base += 1
        """
        self._drop(w, [(buffer, "limit") for buffer in buffers if buffer.kept is not None], moment, windows)

    def expire_joined(self, w: Writer, buffers: Iterable[Buffer]) -> None:
        """Drop what has left the window of the operator that joins it, which may be shorter than that of the match.
        Earlier it must not go: the join may still have to combine it with events before `now_measure`, those of idle
        rounds and of this one.

        if final >= 0:
            eat = now_measure - integers[1]
            while x0_base < x0_next and x0_low[x0_base & (x0_start.shape[0] - 1)] < eat:
                x0_base += 1
        """
        short = [(buffer, buffer.kept) for buffer in buffers if buffer.kept not in (None, "limit")]
        self._drop(w, [(buffer, kept) for buffer, kept in short if buffer.in_negation], "now_measure")
        if joined := [(buffer, kept) for buffer, kept in short if not buffer.in_negation]:
            with w.block("if final >= 0:"):
                self._drop(w, joined, "now_measure")

    def _drop(self, w: Writer, buffers: Iterable[tuple[Buffer, str | None]], moment: str, windows: int = 1) -> None:
        known = None
        for buffer, kept in buffers:
            if kept != known:
                known = kept
                w(f"eat = {moment} - {known if windows == 1 else f'{windows} * {known}'}  # the earliest allowed time")
            start = self.first_measure(buffer, buffer.index(buffer.base))
            w(f"while {buffer.base} < {buffer.following} and {start} < eat:", f"    {buffer.base} += 1")

    # --- chains -------------------------------------------------------------------------------------------------------

    def equalities(self, tests: Iterable[Expr], here: Iterable[str], there: Iterable[str]) -> list[Equality]:
        """The tests that are equalities between an attribute of `here` and one of `there`."""
        mine, others = set(here), set(there)
        found: list[Equality] = []
        for test in tests:
            match test:
                case Compare(op="=", left=Attr(at=At.EVENT) as a, right=Attr(at=At.EVENT) as b):
                    if b.var in mine and a.var in others:
                        a, b = b, a
                    if a.var not in mine or b.var not in others or {a.name, b.name} & set(self.plan.lacking):
                        continue
                    fit = key_fit(self.plan.types[a.name], self.plan.types[b.name])
                    if fit is not None:
                        found.append(Equality(a.var, a.name, b.var, b.name, fit, test))
        return found

    def is_sure_equality(self, test: Expr, sure: Collection[str]) -> bool:
        """Whether a test is an equality of attributes of one kind that bound events surely have, so that others may
        follow from it."""
        match test:
            case Compare(op="=", left=Attr(at=At.EVENT) as a, right=Attr(at=At.EVENT) as b):
                there = {a.var, b.var} <= set(sure) and not {a.name, b.name} & set(self.plan.lacking)
                return there and self.plan.types[a.name] == self.plan.types[b.name]
        return False

    def chain(self, buffer: Buffer, equalities: Sequence[Equality], *, shared: bool = True) -> Chain:
        """A chain through a buffer; one that is the same as another is made once, where it may be shared."""
        wanted = [(e.var, e.name, e.fit.as_float) for e in equalities]
        for chain in self.chains if shared else ():
            if (
                chain.is_shared
                and chain.buffer is buffer
                and [(e.var, e.name, e.fit.as_float) for e in chain.equalities] == wanted
            ):
                return Chain(chain.name, tuple(equalities), buffer)
        made = Chain(f"h{len(self.chains)}", tuple(equalities), buffer, shared)
        self.chains.append(made)
        buffer.chains.append(made.name)
        self.register(f"{made.name}_used")
        self.register(f"{made.name}_done")
        return made

    def key(self, chain: Chain, bindings: Mapping[str, Binding], *, other: bool) -> tuple[str, str]:
        """Source of a chain's key (from the records in it, or from the other side) and of the test for nulls."""
        attributes = [Attr(e.other, e.other_name) if other else Attr(e.var, e.name) for e in chain.equalities]
        terms = [self.term(attribute, bindings[attribute.var]) for attribute in attributes]
        return key_of([(term, e.fit.as_float) for term, e in zip(terms, chain.equalities, strict=True)])

    def chain_room(self, w: Writer, chain: Chain, room: str) -> None:
        name, used = chain.name, f"{chain.name}_used"
        with w.block(f"if 2 * ({used} + {room}) > {name}_key.shape[0]:"):
            w(f"{name}_key, {name}_head = rehashed({name}_key, {name}_head, {chain.buffer.base}, {room})")
            w(f"{used} = used_slots({name}_head)")

    def link(self, w: Writer, chain: Chain, number: str, index: str) -> None:
        """Put a record at the head of its chain:

        slot = slot_of(h0_key, h0_head, key)
        l0_h0[i] = h0_head[slot]
        h0_head[slot] = j
        """
        name = chain.name
        key, valid = self.key(chain, self.bindings(chain.buffer, number, index), other=False)
        with w.block(f"if {valid}:"):
            w(f"key = {key}", f"slot = slot_of({name}_key, {name}_head, key)")
            with w.block(f"if {name}_head[slot] == EMPTY:"):
                w(f"{name}_used += 1", f"{name}_key[slot] = key")
            w(f"{chain.buffer.field(name, index)} = {name}_head[slot]", f"{name}_head[slot] = {number}")

    def link_new(self, w: Writer, chain: Chain) -> None:
        """`for j in range(h0_done, l0_next): ...`: put the records since the last time into their chains."""
        buffer, done = chain.buffer, f"{chain.name}_done"
        w(f"{done} = max({done}, {buffer.base})")
        self.chain_room(w, chain, f"{buffer.following} - {done}")
        with w.block(f"for j in range({done}, {buffer.following}):"):
            w(f"i = {buffer.index('j')}")
            self.link(w, chain, "j", "i")
        w(f"{done} = {buffer.following}")

    def head(self, w: Writer, chain: Chain, bindings: Mapping[str, Binding], target: str) -> None:
        """`j = h0_head[slot_of(h0_key, h0_head, key)]`: the latest record with the key of the other side."""
        key, valid = self.key(chain, bindings, other=True)
        w(f"{target} = EMPTY")
        with w.block(f"if {valid}:"):
            w(f"{target} = {chain.name}_head[slot_of({chain.name}_key, {chain.name}_head, {key})]")

    def previous(self, chain: Chain | None, number: str, index: str) -> str:
        return f"{number} - 1" if chain is None else chain.buffer.field(chain.name, index)

    # --- reading ------------------------------------------------------------------------------------------------------

    def leaves_of(self, buffer: Buffer) -> list[Buffer]:
        """The leaf buffers of a record's variables."""
        return list(dict.fromkeys(self.leaves[var] for var in buffer.variables))

    def number_in(self, leaf: Buffer, buffer: Buffer, number: str, index: str) -> str:
        """The number of a record's event in a leaf buffer."""
        return number if buffer.is_leaf else buffer.field(f"v{self.variable_number[leaf.variables[0]]}", index)

    def number(self, buffer: Buffer, var: str, number: str, index: str) -> str:
        """The number of a variable's event in its leaf buffer, -1 if it is not bound."""
        leaf = self.leaves[var]
        found = self.number_in(leaf, buffer, number, index)
        if not leaf.is_shared:
            return found
        return f"({found} if {self._branch(leaf, found)} == {leaf.variables.index(var)} else -1)"

    def _branch(self, leaf: Buffer, number: str) -> str:
        return leaf.field("branch", leaf.index(number))

    def bindings(self, buffer: Buffer, number: str, index: str) -> dict[str, Binding]:
        """The variables of a record."""
        found = {}
        for leaf in self.leaves_of(buffer):
            source = self.number_in(leaf, buffer, number, index)
            event = index if buffer.is_leaf else leaf.index(source)
            if not leaf.is_shared:
                (var,) = leaf.variables
                found[var] = Binding(event, None if var in buffer.sure else f"{source} < 0")
                continue
            which = leaf.field("branch", event)
            # In a join, another disjunction may have left the whole buffer out.
            branch = which if buffer.is_leaf else f"({which} if {source} >= 0 else -1)"
            found |= {var: Binding(event, f"{branch} != {i}", branch) for i, var in enumerate(leaf.variables)}
        return found

    def row(self, var: str, binding: Binding) -> str:
        return self.leaves[var].field("row", binding.index)

    def term(self, node: Attr, binding: Binding) -> Term:
        leaf = self.leaves[node.var]
        missing = [binding.unbound] if binding.unbound else []
        if node.name in self.plan.lacking:
            bit = 1 << self.plan.lacking[node.name]
            missing.append(f"{leaf.field('cmask', binding.index)} & np.uint64({bit}) != 0")
        source = leaf.field(f"c{self.builder.column_number[node.name]}", binding.index)
        known = known_by(self.plan, node.name, leaf.field("cmask", binding.index))
        return Term(source, self.plan.columns[node.name], either(missing), self.plan.types[node.name], known)

    def reader(self, bindings: Mapping[str, Binding]) -> Reader:
        """Reads the attributes of joined events; what names another variable does not apply."""

        def read(node: Attr | ex.Aggregate) -> Term:
            if isinstance(node, ex.Aggregate) or node.var not in bindings:
                kind = Kind.FLOAT if node.name is None else self.plan.columns[node.name]
                return Term(NULL[kind], kind, "True")
            return self.term(node, bindings[node.var])

        return read

    def test(self, predicate: Expr, read: Reader, bindings: Mapping[str, Binding], alternative: Alternative) -> str:
        """A predicate as source. It does not apply where a variable that it names belongs to a branch that the record
        did not take: `(r0_v2[i] < 0 or l0_c0[j] > l2_c0[k])`."""
        named = sorted(ex.variables(predicate))
        own = {*alternative.joined, *alternative.empty, *(group.var for group in alternative.groups)}
        if any(var not in own and not self.steps[var].negated for var in named):
            return "True"
        unbound = [bindings[var].unbound for var in named if var in bindings and bindings[var].unbound]
        test = condition(predicate, read, self.builder.constants)
        return f"({' or '.join([*map(str, unbound), test])})" if unbound else test

    def may_be_one(self, var: str, other: str) -> bool:
        """Whether one event could be bound to both variables."""
        mine, theirs = (self.plan.bits[self.steps[v].begin].types for v in (var, other))
        return not mine or not theirs or bool(set(mine) & set(theirs))

    def different(self, here: Mapping[str, Binding], there: Mapping[str, Binding]) -> list[str]:
        """Conditions that no event is bound twice."""
        tests = []
        for var, binding in here.items():
            for other, elsewhere in there.items():
                if self.may_be_one(var, other):
                    unbound = [p.unbound for p in (binding, elsewhere) if p.unbound]
                    test = f"{self.row(var, binding)} != {self.row(other, elsewhere)}"
                    tests.append(f"({' or '.join([*unbound, test])})" if unbound else test)
        return tests
