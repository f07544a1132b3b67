"""The state of SASE's plan of a sequence (SASE §4): the stacks of its components, the equalities that chain their
instances (PAIS), the stored attributes, and the predicates that are left to test.

Generated code reads the event of a component from one of several locations: the current event, or an instance on
a stack, or part of a sequence that waits (`trailing`). Wherever it is, its fields have the same names: `row`,
`time`, `measure`, `cmask` for its mask, and `c0`, `c1`... for its attributes, by the number of their column.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from cepheid import expr as ex
from cepheid.codegen.builder import KernelBuilder, Writer
from cepheid.codegen.scalar import Term, condition, key_fit, key_of
from cepheid.events import START
from cepheid.expr import Attr, Compare, Expr
from cepheid.kernels.instance_stack import ChainTable, Link, Ring, Stack
from cepheid.physical import Kind, Plan, Step


class Location(Protocol):
    """Where generated code reads the event of a component."""

    def field(self, name: str) -> str:
        """Source of one of its fields."""


CHAIN = "chain"
"""The variable with the offset of the event's key in a chain table."""


class _CurrentEvent:
    def field(self, name: str) -> str:
        known = {"row": "first + e", "time": "t", "measure": "m", "cmask": "bits"}
        return known[name] if name in known else f"column{name.removeprefix('c')}[here]"


CURRENT_EVENT = _CurrentEvent()


@dataclass(frozen=True, slots=True)
class Instance:
    """The record at an offset of a stack."""

    stack: Stack
    offset: str

    def field(self, name: str) -> str:
        return self.stack.at(name, self.offset)


Locations = Mapping[str, Location]
"""The location of each component that is already chosen, by its variable."""


@dataclass(frozen=True, slots=True)
class Absence:
    """A negated component: `after` positive components stand before it, and `at` is the one whose instances remember
    the latest negated event."""

    stack: Stack
    after: int
    at: int
    predicates: tuple[Expr, ...]


class StackLayout:
    """The components of a plan, the stored fields of their events, and the predicates that are still to be tested."""

    def __init__(self, builder: KernelBuilder, options: Mapping[str, str]) -> None:
        self.builder = builder
        self.plan = plan = builder.plan
        self.options = options
        self.by_position = plan.query.dialect.ordered_by_position
        self.positive = [step for step in plan.steps if not step.negated]
        self.last = len(self.positive) - 1
        self.index = {step.var: i for i, step in enumerate(self.positive)}
        self.equalities = Equalities(plan, options["equalities"])
        negated = {step.var for step in plan.steps if step.negated}
        self.tests = [p for p in plan.predicates if not ex.variables(p) & negated]
        """The predicates on the positive components."""
        self.stacks: list[Stack] = []
        """The stacks of the positive components, except the last."""
        for i, step in enumerate(self.positive[: self.last]):
            links = self.equalities.links(step.var, self.positive[i + 1].var, self.tests)
            self.stacks.append(self.stack(f"s{i}", step, links))
        for stack in self.stacks[1:]:
            stack.pointers.append("rip")
        self.absences = [self._absence(number, step) for number, step in enumerate(plan.steps) if step.negated]
        self.trailing = [absence for absence in self.absences if absence.after > self.last]
        self.progress = "pending_size" if self.trailing else "written"
        """Grows with each sequence that is constructed, until it exceeds `ceiling`."""
        self.inner = [absence for absence in self.absences if absence.after <= self.last]
        """The negated components before the last positive one: construction decides them."""
        for absence in self.inner:
            if absence.at < self.last:
                self.stacks[absence.at].pointers.append(absence.stack.name)
        self.all_stacks = [*self.stacks, *(absence.stack for absence in self.absences)]
        for stack in self.all_stacks:
            stack.columns = self.columns(stack.step.var)
        self.key = self._one_key()
        if self.key:
            ring, table = Ring("instances", builder.register), ChainTable("chains")
            for stack in self.stacks:
                stack.lie_in(ring)
            for stack in self.all_stacks:
                stack.chain_in(table)

    def _one_key(self) -> tuple[Link, ...]:
        """The equalities of every stack, where they are the same: an event then has one key, whichever stack it looks
        at or is pushed onto, and without one it has no part in anything."""
        alike = {stack.links for stack in self.all_stacks}
        if not self.stacks or len(self.all_stacks) == 1 or len(alike) > 1:
            return ()
        (links,) = alike
        return links if all(link.here == link.there for link in links) else ()

    def stack(self, name: str, step: Step, links: tuple[Link, ...] = (), columns: tuple[str, ...] = ()) -> Stack:
        floats = frozenset(str(i) for i, kind in enumerate(self.plan.columns.values()) if kind is Kind.FLOAT)
        return Stack(self.builder.register, name, step, links, self.plan.counts_events, columns, floats)

    def _absence(self, number: int, step: Step) -> Absence:
        after = sum(not s.negated for s in self.plan.steps[:number])
        at = min(after, self.last)
        predicates = tuple(p for p in self.plan.predicates if step.var in ex.variables(p))
        links = self.equalities.links(step.var, self.positive[at].var, predicates)
        return Absence(self.stack(f"n{number}", step, links), after, at, predicates)

    def columns(self, var: str) -> tuple[str, ...]:
        """The attributes of a component that are read again later. Most equalities are decided by the chains."""
        names = [
            node.name
            for predicate in self.plan.predicates
            if not self.equalities.decide(predicate)
            for node in ex.walk(predicate)
            if isinstance(node, Attr) and node.var == var
        ]
        if var == self.positive[self.last].var:
            names += [link.there for absence in self.trailing for link in absence.stack.links]
        if (self.plan.has_durations and var not in self.index) or (
            self.plan.counts_from_start and var == self.positive[0].var
        ):
            names.append(START)
        kept = [str(self.builder.column_number[name]) for name in dict.fromkeys(names)]
        if any(name in self.plan.lacking or name in self.plan.nulls for name in names):
            kept.append("mask")
        return tuple(kept)

    # --- what is left to test -----------------------------------------------------------------------------------------

    def residual(self) -> list[Expr]:
        """What is left to test of the positive components."""
        return [p for p in self.tests if not self.equalities.decide(p)]

    def tests_of(self, absence: Absence) -> list[Expr]:
        """What is left to test of a negated event that was found by its chain."""
        return [p for p in absence.predicates if not self.equalities.decide(p)]

    # --- windows ------------------------------------------------------------------------------------------------------

    @property
    def drops_in_scan(self) -> bool:
        """Whether instances that have left the window can be dropped in the order in which they came (§4.3)."""
        return self._early_window and not self._per_partition_measure

    def sorted_by_measure(self, stack: Stack) -> bool:
        """Whether the instances of a chain leave the window in order, so that a search can stop at the first outside.
        Places in a partition only compare within it."""
        if not self._early_window:
            return False
        return not self._per_partition_measure or {link.here for link in stack.links} >= set(self.plan.key)

    @property
    def _early_window(self) -> bool:
        return self.plan.window is not None and self.options["window"] != "late"

    @property
    def _per_partition_measure(self) -> bool:
        return self.plan.counts_events and bool(self.plan.key)

    # --- searching a stack --------------------------------------------------------------------------------------------

    def find_head(self, w: Writer, stack: Stack, target: str) -> None:
        """Set `target` to the most recent instance of a chain before the current event. Events of one time are not in
        sequence, nor is an event with duration after those that end while it lasts:

            j0 = s0_next - 1
            while j0 >= s0_base and s0[3 * (j0 & s0_last) + S0_TIME] >= t:
                j0 = j0 - 1
        """
        base, following = stack.ring.base, stack.ring.following
        lines = [
            f"# {target}: the latest instance in {stack.name} before this event{', of its key' * bool(stack.links)}"
        ]
        if stack.table.is_shared:
            lines += [f"{target} = {stack.table.head(stack, CHAIN)}"]
        elif stack.links:
            key, valid = key_of([(self.term(CURRENT_EVENT, link.there), link.as_float) for link in stack.links])
            lines += [f"{target} = EMPTY", f"if {valid}:", f"    {target} = {stack.latest(key)}"]
        else:
            lines += [f"{target} = {following} - 1"]
        if not self.by_position:
            offset = stack.offset(target)
            lines += [f"while {target} >= {base} and {stack.at('time', offset)} >= {self.begin}:"]
            lines += [f"    {target} = {stack.previous(target, offset)}"]
        w(*lines)

    def alive(self, stack: Stack, number: str) -> str:
        """Source of the condition that an instance exists and can still be in the window of the current event."""
        alive = f"{number} >= {stack.ring.base}"
        if self.sorted_by_measure(stack) and not self.drops_in_scan:
            alive += f" and m - {stack.at('measure', stack.offset(number))} <= limit"
        return alive

    @property
    def begin(self) -> str:
        """Source of the start of the current event: its time, if it has no duration."""
        return "t" if not self.plan.has_durations else f"{self.builder.column(START, 'here')}"

    def start_of(self, location: Location) -> str:
        """Source of the start of an event with duration on a stack."""
        return location.field(f"c{self.builder.column_number[START]}")

    # --- reading attributes -------------------------------------------------------------------------------------------

    def term(self, location: Location, name: str) -> Term:
        """An attribute of the event at a location."""
        source = location.field(f"c{self.builder.column_number[name]}")
        is_masked = name in self.plan.lacking or name in self.plan.nulls
        return self.builder.term(name, source, location.field("cmask") if is_masked else "")

    def later_term(self, name: str, distance: int) -> Term:
        """An attribute of an event further on."""
        return self.builder.term(name, self.builder.column(name, f"e + {distance}"), "")

    def field_of(self, locations: Locations, i: int, name: str) -> str:
        """Source of a field of a positive component."""
        return locations[self.positive[i].var].field(name)

    def conditions(self, tests: Sequence[Expr], locations: Locations) -> list[str]:
        def read(node: ex.Attr | ex.Aggregate) -> Term:
            assert isinstance(node, Attr)
            return self.term(locations[node.var], node.name)

        return [condition(test, read, self.builder.constants) for test in tests]

    def stop_if(self, flag: str, tests: Sequence[Expr], locations: Locations, further: Sequence[str] = ()) -> list[str]:
        """The lines that set a flag and leave the loop if all tests and further conditions hold:

        predicates += 1
        if s0[i0 + S0_C1] < column1[here]:
            spoiled = True
            break
        """
        condition = " and ".join([*further, *self.conditions(tests, locations)]) or "True"
        return [*counted(tests), f"if {condition}:", f"    {flag} = True", "    break"]


def counted(tests: Sequence[Expr]) -> list[str]:
    """`predicates += 2`"""
    return [f"predicates += {len(tests)}"] if tests else []


class Equalities:
    """The equalities of neighbours that are in the chains' keys: all of them, or the `first` of each, or `none`."""

    def __init__(self, plan: Plan, which: str) -> None:
        self.plan = plan
        self.which = which
        self.exact: set[Expr] = set()
        """Those that are a key by themselves. Several are mixed into one key, which different values may share, so that
        they are tested again."""
        self._equal: dict[tuple[str, str], set[tuple[str, str]]] = {}
        """The attributes, each of a variable, that are equal to it by the exact keys."""

    def links(self, here: str, there: str, predicates: Sequence[Expr]) -> tuple[Link, ...]:
        """The key of the chains of `here`, in which instances of `there` look."""
        if self.which == "none":
            return ()
        links: list[tuple[Link, Expr, bool]] = []
        for predicate in predicates:
            match predicate:
                case Compare(op="=", left=Attr() as a, right=Attr() as b) if {a.var, b.var} == {here, there}:
                    mine, other = (a, b) if a.var == here else (b, a)
                    if mine.name in self.plan.lacking or other.name in self.plan.lacking:
                        continue
                    fit = key_fit(self.plan.types[mine.name], self.plan.types[other.name])
                    if fit is not None:
                        links.append((Link(mine.name, other.name, fit.as_float), predicate, fit.decides))
        if self.which == "first":
            links = links[:1]
        if len(links) == 1:
            ((link, predicate, decides),) = links
            if decides:
                self.exact.add(predicate)
                self._note_equal((here, link.here), (there, link.there))
        return tuple(link for link, *_ in links)

    def _note_equal(self, left: tuple[str, str], right: tuple[str, str]) -> None:
        merged = self._equal.get(left, {left}) | self._equal.get(right, {right})
        for member in merged:
            self._equal[member] = merged

    def decide(self, predicate: Expr) -> bool:
        """Whether the chains decide it, by one key or by several together."""
        if predicate in self.exact:
            return True
        match predicate:
            case Compare(op="=", left=Attr() as a, right=Attr() as b):
                return (b.var, b.name) in self._equal.get((a.var, a.name), ())
        return False
