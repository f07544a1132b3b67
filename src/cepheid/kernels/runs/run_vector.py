"""The state vector of a run that waits in a list, and the states in which it carries each value.

A run carries a value from the component that sets it to the last edge that reads it. Which attributes the type of an
event lacks is one value for all attributes: bits of the event's mask.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from cepheid import expr as ex
from cepheid.codegen.scalar import Constants, Term, condition
from cepheid.expr import Aggregate, At, Attr, Expr
from cepheid.kernels.aggregates import AGGREGATE_CODE
from cepheid.kernels.runs.variables import EVENT, RUN
from cepheid.kernels.state_vector import NOWHERE, Source, StateVector, Value
from cepheid.physical import Kind, Plan, Step


@dataclass(frozen=True, slots=True)
class Component:
    """A positive component and the conjuncts on its edges that read several events."""

    index: int
    step: Step
    begin: list[Expr]
    take: list[Expr]
    proceed: list[Expr]

    @property
    def takes(self) -> bool:
        return self.step.take is not None and self.step.high != 1

    @property
    def may_be_empty(self) -> bool:
        return self.step.low == 0


class RunVector(StateVector):
    """Besides those of `Value`, a run has these values:

    bound               whether the component has any event
    seen                0 no event yet, 1 none whose type has the attribute, 2 at least one
    first_lacks, last_lacks    which attributes the type of the first or latest event lacks, as bits of the mask
    origin, origin_null the attribute of the run's first event, and whether it is null
    candidate, since    for a negated component that is tested at the end: the latest event that could be it, and the
                        event after which it counts
    """

    def __init__(self, plan: Plan, key: Sequence[str], constants: Constants) -> None:
        """`key` are the attributes of the partition: all events of a run have the same values of them."""
        super().__init__(plan, constants, key)
        own = [p for p in plan.predicates if ex.variables(p) <= self.index.keys()]
        on = self.on_edges([p for p in own if not self.is_implied(p)])
        self.components = [
            Component(i, step, on[i, "begin"], on[i, "take"], on[i, "proceed"]) for i, step in enumerate(self.steps)
        ]
        self.until: dict[Value, int] = {}
        for component in self.components:
            self._note_uses(component)

    def is_implied(self, predicate: Expr) -> bool:
        """Whether an equality holds because all events of a run are in one partition."""
        match predicate:
            case ex.Compare(op="=", left=Attr() as a, right=Attr() as b):
                return a.name == b.name and a.name in self.key and {a.var, b.var} <= self.index.keys()
        return False

    # --- which values, and for how long -------------------------------------------------------------------------------

    def _note_uses(self, component: Component) -> None:
        j = component.index
        for predicate in component.begin:
            self.use(predicate, j - 1, j)
        for predicate in (*component.take, *component.proceed):
            self.use(predicate, j, j)
        step = component.step
        if step.kleene and (step.low > 1 or (step.high or 1) > 1):
            self.until[Value("taken", j)] = j

    def use(self, predicate: Expr, until: int, at: int) -> None:
        """Carry the values that a predicate reads in all states up to `until`; it is tested when the run is at, or
        begins, `at`."""
        for node in ex.walk(predicate):
            if isinstance(node, Attr | Aggregate) and node.var in self.index:
                for value in self.read_by(node, at):
                    self.carry(value, until)

    def carry(self, value: Value, until: int) -> None:
        self.until[value] = max(self.until.get(value, NOWHERE), until)

    def read_by(self, node: Attr | Aggregate, at: int) -> Iterator[Value]:
        """The values that an identifier is computed from, when the run is at, or begins, component `at`."""
        c = self.index[node.var]
        if isinstance(node, Aggregate):
            if node.name is None:
                yield Value("length", c)
                return
            column = self.column[node.name]
            yield from (Value(what, c, column) for what in AGGREGATE_CODE[node.fn].accumulators(self.kinds[column]))
            if node.name in self.plan.lacking:
                yield Value("seen", c, self.column[node.name])
            return
        if node.at is At.CURRENT:
            return
        which = "first" if node.at in (At.EVENT, At.FIRST) else "last"
        if node.name not in self.key:
            yield Value(which, c, self.column[node.name])
        if node.name in self.plan.lacking or (node.name in self.plan.nulls and node.name not in self.key):
            yield Value(f"{which}_lacks", c)
        if self.may_be_empty(c) and c < at:
            yield Value("bound", c)

    def live(self, state: int) -> list[Value]:
        """The values of a run at a component: V[t...] of §5.2.2. (`bound` is set when the component is left.)"""
        values = [v for v, until in self.until.items() if v.component + (v.what == "bound") <= state <= until]
        return sorted(values, key=lambda v: v.name)

    def all_values(self) -> list[Value]:
        """The columns of the table of runs."""
        return sorted({v for state in range(self.last + 1) for v in self.live(state)}, key=lambda v: v.name)

    def is_fresh(self, value: Value, state: int) -> bool:
        """Whether the event that brings a run into the state decides the value, whatever the run."""
        if value.component != state:
            return False
        return value.what in ("last", "last_lacks") or (
            value.what in ("first", "first_lacks") and not self.components[state].takes
        )

    # --- the values that only runs have -------------------------------------------------------------------------------

    def dtype(self, value: Value) -> str:
        if value.what.endswith("_lacks"):
            return "uint64"
        if value.what == "origin":
            return "float64" if self.kinds[value.column] is Kind.FLOAT else "int64"
        return super().dtype(value)

    def begun(self, value: Value, at: int, to: int) -> str | None:
        if value.what == "origin":
            return self.event_column(value.column) if at == NOWHERE else None
        if value.what == "origin_null":
            return f"int(not ({self.event_term(self.names[value.column]).is_known}))" if at == NOWHERE else None
        if value.what == "bound" and value.component == at:
            return "1"
        return super().begun(value, at, to)

    def of_first(self, value: Value) -> str:
        match value.what:
            case "seen":
                return f"(1 if {self.lacks(value.column, EVENT.bits)} else 2)"
            case "first_lacks" | "last_lacks":
                bits = {*self.plan.lacking.values(), *self.plan.nulls.values()}
                return f"{EVENT.bits} & np.uint64({sum(1 << bit for bit in bits)})"
            case _:
                return super().of_first(value)

    def of_none(self, value: Value) -> str:
        match value.what:
            case "seen" | "bound":
                return "0"
            case "first_lacks" | "last_lacks":
                return "np.uint64(0)"
            case _:
                return super().of_none(value)

    def taken(self, value: Value, old: Source) -> str | None:
        match value.what:
            case "first_lacks" | "bound":
                return None
            case "last_lacks":
                return self.of_first(value)
            case "seen":
                return f"max({old(value)}, 1 if {self.lacks(value.column, EVENT.bits)} else 2)"
            case _:
                return super().taken(value, old)

    def missing(self, which: str, c: int, name: str, at: int, source: Source) -> str | None:
        conditions: list[str] = []
        if self.may_be_empty(c) and c < at:
            conditions.append(f"{source(Value('bound', c))} == 0")
        if name in self.plan.lacking:
            lacks = self.lacks(self.column[name], source(Value(f"{which}_lacks", c)))
            conditions.append(lacks or "False")
        return f"({' or '.join(conditions)})" if conditions else None

    def is_carried_known(self, which: str, c: int, name: str, source: Source) -> str:
        return f"{source(Value(f'{which}_lacks', c))} & np.uint64({1 << self.plan.nulls[name]}) == 0"

    def all_lack(self, c: int, column: int, source: Source) -> str:
        return f"{source(Value('seen', c, column))} == 1"

    # --- reading ------------------------------------------------------------------------------------------------------

    def event_value(self, name: str) -> tuple[str, Kind]:
        column = self.column[name]
        return self.event_column(column), self.kinds[column]

    def of_run(self, value: Value) -> str:
        """A value of the current run: `run[r + LENGTH0]`."""
        return self.as_read(value, RUN.cell(field(value)))

    def test(self, predicates: Sequence[Expr], at: int, event: int | None, source: Source) -> str:
        """The condition that all the predicates hold, of a run at component `at` that tries the current event for
        component `event` (None: it only proceeds)."""

        def read(node: Attr | Aggregate) -> Term:
            return self.term(node, at, event, source)

        return " and ".join(condition(p, read, self.constants) for p in predicates) or "True"


def field(value: Value) -> str:
    """The constant of the generated module that is the offset of a value in a run."""
    return value.name.upper()


def of_new(value: Value) -> str:
    """A value of the run that results from the current run and the event: `new_length0`."""
    return f"new_{value.name}"
