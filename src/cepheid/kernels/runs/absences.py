"""Negated components in the evaluation of runs (SASE+ §3.1, ruling 5): no event between the neighbours may be one.

Events that may be a negated component lie on a stack of their own (`instance_stack`), chained by the partition where
the query ties them to it. A negated component is tested at one of three times, depending on its predicates:

- at once, when a run begins a component after it, if no predicate refers to a later component: the run is dropped;
- otherwise when the run is complete. Until then the run stores the latest candidate for the negated event (`candidate`)
  and the event after which candidates count (`since`; EMPTY before the first component, where the window decides);
- when the window has passed, if no component follows it: until then the match waits.

With components that may be empty, one negated component can be all of these for different runs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from cepheid import expr as ex
from cepheid.codegen.builder import KernelBuilder, Writer
from cepheid.codegen.scalar import Reader, Term, condition, mixed
from cepheid.events import START as START_TICKS
from cepheid.expr import Aggregate, At, Attr, Compare, Expr
from cepheid.kernels.instance_stack import Link, Stack
from cepheid.kernels.runs import run_store
from cepheid.kernels.runs.run_vector import RunVector
from cepheid.kernels.runs.variables import (
    EVENT,
    FIELD,
    FLOOR,
    ITEM,
    RUN,
    START,
    WORK,
    Completed,
    Node,
    Waiting,
    key_variable,
)
from cepheid.kernels.state_vector import NOWHERE, Source, Value
from cepheid.physical import Kind, Plan, Step
from cepheid.runtime.kernel import END_OF_TIME, StateArray


@dataclass(frozen=True, slots=True)
class Absence:
    """A negated component."""

    number: int
    after: int
    """How many positive components stand before it."""
    stack: Stack
    at_once: bool
    """Whether its predicates can be tested when the negated event comes."""
    may_lead: bool
    may_trail: bool
    tests: tuple[Expr, ...]
    """Its predicates, without those that the mask and the chains decide."""

    @property
    def candidate(self) -> Value:
        """The latest candidate for the negated event. The search on the stack starts there."""
        return Value("candidate", NOWHERE, self.number)

    @property
    def since(self) -> Value:
        """The event after which candidates count."""
        return Value("since", NOWHERE, self.number)

    @property
    def latest(self) -> str:
        """The variable that is the latest candidate before the current event: `latest1`."""
        return f"latest{self.number}"


class Absences:
    """The negated components of a plan, and the source that tests them."""

    def __init__(self, plan: Plan, run: RunVector, builder: KernelBuilder, most: int) -> None:
        """`most` matches, at most, are completed by an event for each run that it visits."""
        self.plan = plan
        self.most = most
        self.run = run
        self.builder = builder
        self.register = builder.register
        self.key = [name for name in plan.key if name in run.key]
        self.all = [self._absence(number, step) for number, step in enumerate(plan.steps) if step.negated]
        self.waits = any(absence.may_trail for absence in self.all)
        self.expires = plan.window is not None and not (plan.counts_events and plan.key)
        """Whether windows end in the order of the stream. Those that count the events of partitions end at the end."""
        for absence in self.all:
            self._note_uses(absence)

    def _absence(self, number: int, step: Step) -> Absence:
        after = sum(not s.negated for s in self.plan.steps[:number])
        before, following = self.run.components[:after], self.run.components[after:]
        predicates = [p for p in self.plan.predicates if step.var in ex.variables(p)]
        tied = {name for p in predicates if (name := self._ties_to_partition(p, step.var)) is not None}
        links = tuple(Link(n, n, False) for n in self.key) if self.key and tied == set(self.key) else ()
        if len(links) == 1:
            predicates = [p for p in predicates if not self._is_equality_of_key(p, step.var)]
        floats = frozenset(str(i) for i, kind in enumerate(self.run.kinds) if kind is Kind.FLOAT)
        kept = [n.name for p in predicates for n in ex.walk(p) if isinstance(n, Attr) and n.var == step.var]
        columns = [str(self.run.column[name]) for name in dict.fromkeys(kept)]
        if any(name in self.plan.lacking or name in self.plan.nulls for name in kept):
            columns.append("mask")
        may_lead = all(component.may_be_empty for component in before)
        if may_lead and self.plan.counts_from_start:
            columns.append(str(self.run.column[START_TICKS]))
        return Absence(
            number=number,
            after=after,
            stack=Stack(self.register, f"absent{number}", step, links, self.plan.counts_events, tuple(columns), floats),
            tests=tuple(predicates),
            at_once=all(self._is_known(node, after) for p in predicates for node in ex.walk(p)),
            may_lead=may_lead,
            may_trail=all(component.may_be_empty for component in following),
        )

    def _is_equality_of_key(self, predicate: Expr, var: str) -> bool:
        match predicate:
            case Compare(op="=", left=Attr() as a, right=Attr() as b):
                return a.name == b.name and a.name in self.key and var in (a.var, b.var)
        return False

    def _ties_to_partition(self, predicate: Expr, var: str) -> str | None:
        """The attribute of the partition that the negated event shares with a match, whatever else is empty in it."""
        if not self._is_equality_of_key(predicate, var):
            return None
        (other,) = ex.variables(predicate) - {var}
        attribute = next(node.name for node in ex.walk(predicate) if isinstance(node, Attr))
        spelt_for_all = any(isinstance(p, ex.Same) and p.name == attribute for p in self.plan.query.where)
        always_bound = not self.run.components[self.run.index[other]].may_be_empty
        return attribute if spelt_for_all or always_bound else None

    def _is_known(self, node: Expr, after: int) -> bool:
        """Whether a run knows what an identifier stands for when it begins a component after the negated one."""
        if not isinstance(node, Attr | Aggregate) or node.var not in self.run.index:
            return True
        c = self.run.index[node.var]
        return c < after or (c == after and isinstance(node, Attr) and node.at in (At.EVENT, At.FIRST))

    def _note_uses(self, absence: Absence) -> None:
        for predicate in absence.tests:
            if absence.at_once:
                self.run.use(predicate, absence.after - 1, absence.after)
            if absence.may_lead or absence.may_trail or not absence.at_once:
                self.run.use(predicate, self.run.last, self.run.last + 1)
        if absence.may_lead or not absence.at_once:
            self.run.carry(absence.candidate, self.run.last)
            self.run.carry(absence.since, self.run.last)

    # --- the stacks ---------------------------------------------------------------------------------------------------

    def arrays(self) -> list[StateArray]:
        arrays: list[StateArray] = []
        for absence in self.all:
            arrays.append(absence.stack.ring.array())
            if absence.stack.links:
                arrays.append(absence.stack.table.array())
        if self.waits:
            arrays.append(StateArray(Waiting.array, "int64", 16 * self.waiting_size))
            arrays += [StateArray(name, "int64", 16) for name in (Waiting.due, Waiting.due_item)]
        return arrays

    def offsets(self) -> list[str]:
        """Lines that name the fields of the stacks, and of the waiting matches."""
        lines = [absence.stack.record.offsets for absence in self.all]
        if self.waits:
            fields = [_waiting_field(value) for value in self.waiting_values]
            lines += [f"{name} = {run_store.FOUND_SIZE + i}" for i, name in enumerate(fields)]
            lines.append(f"{Waiting.size} = {self.waiting_size}")
        return lines

    def begin(self, w: Writer) -> None:
        for absence in self.all:
            w(absence.stack.ring.size)

    def full(self) -> list[str]:
        """Conditions under which there is no room for one more event, or a waiting match is due."""
        conditions: list[str] = []
        for absence in self.all:
            name = absence.stack.name
            conditions.append(f"{self.register(f'{name}_next')} - {self.register(f'{name}_base')} > {name}_last")
            if absence.stack.links:
                self.register(absence.stack.table.used)
                conditions.append(absence.stack.table.is_full("1"))
        if self.waits and self.expires:
            conditions.append(f"({Waiting.used} > 0 and measure[{EVENT}] - {Waiting.due}[0] > limit)")
        return conditions

    def make_room(self, w: Writer) -> None:
        """Drop the events that have left the window, or that precede all events of runs; then grow the arrays."""
        for absence in self.all:
            stack, name = absence.stack, absence.stack.name
            base, following = self.register(f"{name}_base"), self.register(f"{name}_next")
            gone = self._is_gone(absence, base)
            if gone is not None:
                with w.block(f"while {base} < {following} and {gone}:"):
                    w(f"{base} += 1")
            with w.block(f"if {following} - {base} > {name}_last:"):
                w(stack.ring.grown("8"), stack.ring.size)
            if stack.links:
                with w.block(f"if {stack.table.is_full('1')}:"):
                    w(*stack.table.grown(base, "8"))
        if self.waits:
            due, due_item = Waiting.due, Waiting.due_item
            w(f"room = {Waiting.used} + {self.most} * {WORK}")
            Waiting.grow(w, f"room * {Waiting.size}")
            w(f"{due}, {due_item} = grown({due}, room), grown({due_item}, room)")

    def _is_gone(self, absence: Absence, number: str) -> str | None:
        """The condition that an event can no longer spoil a match; None if it always can."""
        stack = absence.stack
        if self.expires:
            return f"{stack.at('measure', stack.offset(number))} < {FLOOR}"
        if absence.may_lead or absence.may_trail:
            return None
        return f"({Node.used} == 0 or {stack.at('row', stack.offset(number))} < {Node.oldest_row})"

    def push(self, w: Writer, *, outside_partitions: bool = False) -> None:
        """Push the event onto the stacks of the negated components that it may be (`outside_partitions`: only onto
        those without chains, since the event is in no partition)."""
        for absence in self.all:
            stack, name = absence.stack, absence.stack.name
            if outside_partitions and stack.links:
                continue
            following = self.register(f"{name}_next")
            opening = f"if {EVENT.bits} & np.uint64({1 << stack.step.begin}):"
            with w.block(f"{opening}  # may be the negated component {absence.number}"):
                w(
                    f"k = {stack.offset(following)}",
                    stack.put("row", "k", f"first + {EVENT}"),
                    stack.put("time", "k", f"measure[{EVENT}]"),
                )
                if stack.measured:
                    w(stack.put("measure", "k", f"measure[{EVENT}]"))
                for column in stack.columns:
                    value = EVENT.bits if column == "mask" else self.run.event_column(int(column))
                    w(stack.put(f"c{column}", "k", value))
                if stack.links:
                    w(f"chain = {stack.table.find(self._event_key())}")
                    w(stack.put("prev", "k", stack.table.head(stack, "chain")))
                    w(*stack.table.put(stack, "chain", self._event_key(), following))
                w(f"{following} += 1")

    def _event_key(self) -> str:
        return mixed([key_variable(i) for i in range(len(self.key))])

    def latest(self, w: Writer) -> None:
        """The latest event before the current one that may be each negated component."""
        for absence in self.all:
            begins = sum({1 << component.step.begin for component in self.run.components[absence.after :]})
            if begins:
                w(f"{absence.latest} = EMPTY")
                with w.block(f"if {EVENT.bits} & np.uint64({begins}):"):
                    w(f"{absence.latest} = {self._latest(absence.stack, self._event_key)}")

    def _latest(self, stack: Stack, key: Callable[[], str]) -> str:
        """The latest event on a stack; where its events are chained, with a key."""
        return stack.latest(key()) if stack.links else f"{self.register(stack.ring.following)} - 1"

    def _previous(self, absence: Absence) -> str:
        return absence.stack.at("prev", "k") if absence.stack.links else "q - 1"

    # --- while a run continues ----------------------------------------------------------------------------------------

    def crossed(self, at: int, to: int) -> list[Absence]:
        return [absence for absence in self.all if at < absence.after <= to]

    def carried(self, value: Value, at: int, to: int) -> str | None:
        """The new `candidate` or `since` of a run that goes from `at` to begin `to`; None for other values."""
        if value.what not in ("candidate", "since"):
            return None
        absence = next(a for a in self.all if a.number == value.column)
        if absence not in self.crossed(at, to):
            return "EMPTY" if at < absence.after else self.run.of_run(value)
        if value.what == "since":
            return "EMPTY" if at == NOWHERE else Node(RUN.node).row
        return absence.latest if at == NOWHERE or not absence.at_once else "EMPTY"

    def test_at_once(self, w: Writer, at: int, to: int, source: Source) -> list[str]:
        """Set `spoiled` if a negated event lies between the run's last event and the current one. Returns the condition
        under which the run continues, if anything had to be tested."""
        tested = [a for a in self.crossed(at, to) if a.at_once] if at != NOWHERE else []
        if tested:
            w("spoiled = False", f"since = {Node(RUN.node).row}")
        for absence in tested:
            w(f"q = {absence.latest}")
            self._search(w, absence, self._reader(absence, at, to, source))
        return ["not spoiled"] if tested else []

    def test_complete(self, w: Writer, at: int, source: Source) -> list[str]:
        """Like `test_at_once`, for what could not be tested before the run was complete."""
        tested = [a for a in self.all if a.after <= at and a.candidate in self.run.until]
        if tested:
            w("spoiled = False")
        for absence in tested:
            w(f"q, since = {source(absence.candidate)}, {source(absence.since)}")
            self._search(w, absence, self._reader(absence, at, None, source))
        return ["not spoiled"] if tested else []

    def _search(self, w: Writer, absence: Absence, read: Reader) -> None:
        """From event `q` of the stack backwards, as far as the events count:

        while not spoiled and q >= absent1_base:
            k = 2 * (q & absent1_last)
            if absent1[k + ABSENT1_ROW] <= since:
                break
        """
        stack = absence.stack
        with w.block(f"while not spoiled and q >= {self.register(f'{stack.name}_base')}:"):
            w(f"k = {stack.offset('q')}")
            outside = f"{stack.at('row', 'k')} <= since"
            may_leave = absence.may_lead and self.plan.window is not None
            age = f"{EVENT.measure} - {stack.at('measure', 'k')}"
            # Positions in other partitions tell nothing about the events before.
            is_ordered = bool(stack.links) or not (self.plan.counts_events and self.plan.key)
            if may_leave and is_ordered:
                outside += f" or (since == EMPTY and {age} > limit)"
            with w.block(f"if {outside}:"):
                w("break")
            in_window = [f"(since != EMPTY or {age} <= limit)"] if may_leave and not is_ordered else []
            with w.when([*in_window, *self._is_whole(absence)]):
                self._test(w, absence, read)
            w(f"q = {self._previous(absence)}")

    def _is_whole(self, absence: Absence) -> list[str]:
        """The condition that a leading negated event with duration lies in the window with its start, too:
        `since != EMPTY or m - absent1[k + ABSENT1_C2] <= limit`."""
        if not (absence.may_lead and self.plan.counts_from_start):
            return []
        start = absence.stack.at(f"c{self.run.column[START_TICKS]}", "k")
        return [f"(since != EMPTY or {EVENT.measure} - {start} <= limit)"]

    def _test(self, w: Writer, absence: Absence, read: Reader) -> None:
        if absence.tests:
            w(f"predicates += {len(absence.tests)}")
        tests = " and ".join(condition(p, read, self.run.constants) for p in absence.tests) or "True"
        w(f"spoiled = {tests}")

    def _reader(
        self,
        absence: Absence,
        at: int,
        event: int | None,
        source: Source,
        *,
        of_key: Callable[[int], str] | None = None,
    ) -> Reader:
        def read(node: Attr | Aggregate) -> Term:
            if node.var != absence.stack.step.var:
                return self.run.term(node, at, event, source, of_key=of_key)
            assert isinstance(node, Attr)
            column = self.run.column[node.name]
            is_masked = node.name in self.plan.lacking or node.name in self.plan.nulls
            mask = absence.stack.at("cmask", "k") if is_masked else ""
            return self.builder.term(node.name, absence.stack.at(f"c{column}", "k"), mask)

        return read

    # --- matches that wait --------------------------------------------------------------------------------------------

    def trailing(self, at: int) -> list[Absence]:
        """The negated components after which a match that ends at a component has no event."""
        return [absence for absence in self.all if absence.after > at]

    @property
    def waiting_values(self) -> list[Value]:
        """The values that the tests of a waiting match read, and its partition."""
        past = self.run.last + 1
        nodes = [n for a in self.all if a.may_trail for p in a.tests for n in ex.walk(p)]
        read = (
            v
            for n in nodes
            if isinstance(n, Attr | Aggregate) and n.var in self.run.index
            for v in self.run.read_by(n, past)
        )
        of_key = [Value("origin", NOWHERE, self.run.column[name]) for name in self.key]
        return [*dict.fromkeys(read), *of_key]

    @property
    def waiting_size(self) -> int:
        return run_store.FOUND_SIZE + len(self.waiting_values)

    def postpone(self, w: Writer, at: int, began: str, before: str, source: Source) -> None:
        """Let a complete run wait until no event can spoil it:

        waiting[item + BEFORE] = run[r + NODE]
        heap_push(due, due_item, waits - 1, run[r + BEGAN], item)
        """
        waits, waited, items = Waiting.used, self.register("waited"), Waiting.due_item
        w(f"{waits} += 1")
        w(f"{ITEM} = {items}[{waits} - 1] if {waits} <= {waited} else ({waits} - 1) * {Waiting.size}")
        w(f"{waited} = max({waited}, {waits})")
        w(f"{ITEM.before} = {before}", f"{ITEM.last_row} = {EVENT.row}", f"{ITEM.last_step} = {at}")
        w(f"{ITEM.floor} = {began}")
        for value in self.waiting_values:
            if value.what == "origin":
                w(f"{ITEM.cell(_waiting_field(value))} = {key_variable(self.key.index(self._name(value)))}")
            elif value.component + (value.what == "bound") <= at:
                w(f"{ITEM.cell(_waiting_field(value))} = {self.run.as_held(value, source(value))}")
        w(f"heap_push({Waiting.due}, {items}, {waits} - 1, {began}, {ITEM})")

    def _name(self, value: Value) -> str:
        return self.run.names[value.column]

    def decide(self, w: Writer) -> None:
        """Decide the matches whose window has passed; those that nothing spoils are matches:

        while waits > 0 and (now == 4611686018427387904 or moment - due[0] > limit):
            item = heap_pop(due, due_item, waits)
        """
        waits, due, items = self.register(Waiting.used), Waiting.due, Waiting.due_item
        self.register("waited")
        passed = f"now == {END_OF_TIME}"
        if self.expires:
            passed = f"(now == {END_OF_TIME} or moment - {due}[0] > limit)"
            w(f"moment = {'ALWAYS' if self.plan.counts_events else 'max(now, ALWAYS)'}")
            with w.block("if time.shape[0] > 0:"):
                w(f"moment = measure[min({START}, time.shape[0] - 1)]")
        with w.block(f"while {waits} > 0 and {passed}:"):
            w(f"{ITEM} = heap_pop({due}, {items}, {waits})", f"{waits} -= 1", f"{items}[{waits}] = {ITEM}")
            w("spoiled = False")
            for at in range(self.run.last + 1):
                if all(component.may_be_empty for component in self.run.components[at + 1 :]):
                    with w.block(f"if {ITEM.last_step} == {at}:"):
                        for absence in self.trailing(at):
                            self._decide(w, absence, at)
                        if not self.trailing(at):
                            w("pass")
            with w.block("if not spoiled:"):
                last = Completed(Completed.used)
                with w.block(f"if {last} + {last.size} > {last.array}.shape[0]:"):
                    Completed.grow(w, f"{last} + {last.size}")
                Completed.copy(w, last.cell(FIELD), ITEM.cell(FIELD))
                w(f"{last} += {last.size}")

    def _decide(self, w: Writer, absence: Absence, at: int) -> None:
        stack = absence.stack

        def source(value: Value) -> str:
            return self.run.as_read(value, ITEM.cell(_waiting_field(value)))

        def of_key(column: int) -> str:
            held = ITEM.cell(_waiting_field(Value("origin", NOWHERE, column)))
            return f"as_float({held})" if self.run.kinds[column] is Kind.FLOAT else held

        def waiting_key() -> str:
            values = [Value("origin", NOWHERE, self.run.column[name]) for name in self.key]
            return mixed([ITEM.cell(_waiting_field(value)) for value in values])

        w(f"q = {self._latest(stack, waiting_key)}")
        read = self._reader(absence, at, None, source, of_key=of_key)
        with w.block(f"while not spoiled and q >= {self.register(f'{stack.name}_base')}:"):
            w(f"k = {stack.offset('q')}")
            with w.block(f"if {stack.at('row', 'k')} <= {ITEM.last_row}:"):
                w("break")
            in_window = f"{stack.at('measure', 'k')} - {ITEM.floor} <= limit"
            with w.when([] if self.plan.window is None else [in_window]):
                self._test(w, absence, read)
            w(f"q = {self._previous(absence)}")


def _waiting_field(value: Value) -> str:
    return f"WAITING_{value.name.upper()}"
