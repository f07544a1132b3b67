"""The computation state of a run (SASE+ §5.2.1): the values that edges still to come will ask for, and no others.

Each conjunct stands on the edge of the component where its last identifier is instantiated (§3.2, step 2). What it
reads of earlier events becomes a *value* of the run, kept from the component that gives it to the last edge that asks
for it. So two runs in the same state whose values are equal select the same events from then on (§5.2.2).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from cepheid import expr as ex
from cepheid.codegen.scalar import Constants, Term, condition
from cepheid.expr import Aggregate, At, Attr, Expr, Over
from cepheid.physical import Kind, Plan, Step

NOWHERE = -1
"""The component that a run is at before it has begun."""


@dataclass(frozen=True, slots=True)
class Value:
    """A value of a run. `what` says how it comes about:

    first, last         the attribute of the component's first or latest event
    sum count least most early late    an aggregate of the attribute over the component's events, nulls left out
    seen                0 no event yet, 1 none whose type has the attribute, 2 at least one
    first_lacks, last_lacks    which attributes the type of the first or latest event lacks, as bits of the mask
    length              the number of the component's events
    taken               the same, but not counted further than the component's bounds can ask for
    bound               whether the component has any event
    origin              the attribute of the run's first event
    look, since         for a negated component that is tested at the end: the latest event that could be it, and the
                        event after which it counts
    """

    what: str
    component: int
    column: int = -1

    @property
    def name(self) -> str:
        return f"{self.what}{max(self.component, 0)}" + (f"_{self.column}" if self.column >= 0 else "")

    @property
    def field(self) -> str:
        """Where it lies in a run, as a constant of the generated module."""
        return self.name.upper()

    @property
    def begins_later(self) -> bool:
        """Whether it only says something once the component is left."""
        return self.what == "bound"


@dataclass(slots=True)
class Component:
    """A positive component and the conjuncts on its edges, of those that speak of several events."""

    index: int
    step: Step
    begin: list[Expr] = field(default_factory=list)
    take: list[Expr] = field(default_factory=list)
    proceed: list[Expr] = field(default_factory=list)

    @property
    def low(self) -> int:
        return self.step.low

    @property
    def high(self) -> int | None:
        return self.step.high

    @property
    def takes(self) -> bool:
        return self.step.kleene and self.high != 1

    @property
    def may_be_empty(self) -> bool:
        return self.low == 0


Source = Callable[[Value], str]
"""How a value is read: from the run's columns, or from what was just computed for a new run."""


class Computation:
    """The components of a plan with their edges, and the values that runs carry between them."""

    def __init__(self, plan: Plan, key: Sequence[str], constants: Constants) -> None:
        """`key` are the attributes by which runs are found, so that a run only ever meets events that share them."""
        self.plan = plan
        self.constants = constants
        self.components = [Component(i, s) for i, s in enumerate(s for s in plan.steps if not s.negated)]
        self.last = len(self.components) - 1
        self.index = {component.step.var: component.index for component in self.components}
        self.column = {name: i for i, name in enumerate(plan.columns)}
        self.kinds = list(plan.columns.values())
        self.key = set(key)
        self.event_column: Callable[[int], str] = lambda column: f"column{column}[e]"
        """How an attribute of the event at hand is read."""
        self.until: dict[Value, int] = {}
        self._place_on_edges()
        for component in self.components:
            self._note_uses(component)

    # --- edges --------------------------------------------------------------------------------------------------------

    def _place_on_edges(self) -> None:
        for predicate in self.plan.predicates:
            if not ex.variables(predicate) <= self.index.keys() or self.is_implied(predicate):
                continue
            placed = [(self.index[n.var], _edge(n)) for n in ex.walk(predicate) if isinstance(n, Attr | Aggregate)]
            last = max(index for index, _ in placed)
            edges = {edge for index, edge in placed if index == last}
            component = self.components[last]
            (
                component.take if "take" in edges else component.proceed if "proceed" in edges else component.begin
            ).append(predicate)

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
        if component.step.kleene and (component.low > 1 or (component.high or 1) > 1):
            self.until[Value("taken", j)] = j

    def use(self, predicate: Expr, until: int, at: int) -> None:
        """Keep what a predicate reads in all states up to `until`; it is tested when the run is at, or begins, `at`."""
        for node in ex.walk(predicate):
            if isinstance(node, Attr | Aggregate) and node.var in self.index:
                for value in self.read_by(node, at):
                    self.keep(value, until)

    def keep(self, value: Value, until: int) -> None:
        self.until[value] = max(self.until.get(value, NOWHERE), until)

    def read_by(self, node: Attr | Aggregate, at: int) -> Iterator[Value]:
        """The values that an identifier is computed from, when the run is at, or begins, component `at`."""
        c = self.index[node.var]
        if isinstance(node, Aggregate):
            yield from (Value(what, c, self._column(node.name)) for what in _AGGREGATED[node.fn, node.name is None])
            if node.name in self.plan.lacking:
                yield Value("seen", c, self._column(node.name))
            return
        if node.at is At.CURRENT:
            return
        which = "first" if node.at in (At.EVENT, At.FIRST) else "last"
        if node.name not in self.key:
            yield Value(which, c, self._column(node.name))
        if node.name in self.plan.lacking:
            yield Value(f"{which}_lacks", c)
        if self.components[c].may_be_empty and c < at:
            yield Value("bound", c)

    def _column(self, name: str | None) -> int:
        return -1 if name is None else self.column[name]

    def live(self, state: int) -> list[Value]:
        """The values of a run at a component: V[t...] of §5.2.2."""
        values = [v for v, until in self.until.items() if v.component + v.begins_later <= state <= until]
        return sorted(values, key=lambda v: v.name)

    def all_values(self) -> list[Value]:
        """The columns of the table of runs."""
        return sorted({v for state in range(self.last + 1) for v in self.live(state)}, key=lambda v: v.name)

    def dtype(self, value: Value) -> str:
        if value.what.endswith("_lacks"):
            return "uint64"
        by_attribute = value.what in ("first", "last", "sum", "least", "most", "early", "late", "origin")
        return "float64" if by_attribute and self.kinds[value.column] is Kind.FLOAT else "int64"

    def as_held(self, value: Value, source: str) -> str:
        """How a value is held among the integers of a table."""
        match self.dtype(value):
            case "float64":
                return f"float_key({source})"
            case "uint64":
                return f"np.int64({source})"
            case _:
                return source

    def as_read(self, value: Value, held: str) -> str:
        match self.dtype(value):
            case "float64":
                return f"as_float({held})"
            case "uint64":
                return f"np.uint64({held})"
            case _:
                return held

    def of_run(self, value: Value) -> str:
        """A value of the run at hand."""
        return self.as_read(value, f"run[r + {value.field}]")

    def is_fresh(self, value: Value, state: int) -> bool:
        """Whether the event that brings a run into the state decides the value, whatever the run."""
        if value.component != state:
            return False
        return value.what in ("last", "last_lacks") or (
            value.what in ("first", "first_lacks") and not self.components[state].takes
        )

    # --- how values change --------------------------------------------------------------------------------------------

    def begun(self, value: Value, at: int, to: int, source: Source) -> str:
        """The value in a run that goes from component `at` (or nowhere) to begin `to` on the event at hand."""
        c = value.component
        if value.what == "origin":
            return self.event_column(value.column) if at == NOWHERE else source(value)
        if value.what == "bound" and c == at:
            return "1"
        if c == to:
            return self._of_first_event(value)
        return source(value) if c <= at else self._of_no_event(value)

    def _of_first_event(self, value: Value) -> str:
        x = self.event_column(value.column) if value.column >= 0 else ""
        match value.what:
            case "length" | "taken":
                return "1"
            case "count":
                return f"np.int64(not {_null(x, self.kinds[value.column])})"
            case "seen":
                return f"(1 if {self.lacks(value.column, 'bits')} else 2)"
            case "first_lacks" | "last_lacks":
                return self._lack_bits()
            case _:
                return x

    def _of_no_event(self, value: Value) -> str:
        match value.what:
            case "length" | "taken" | "count" | "seen" | "bound":
                return "0"
            case "first_lacks" | "last_lacks":
                return "np.uint64(0)"
            case _:
                return _NULL[self.kinds[value.column]]

    def taken(self, value: Value, old: str) -> str | None:
        """The value after the component has taken the event at hand; None where it stays."""
        if value.what in ("first", "first_lacks", "bound"):
            return None
        x = self.event_column(value.column) if value.column >= 0 else ""
        kind = self.kinds[value.column] if value.column >= 0 else Kind.INT
        match value.what:
            case "last":
                return x
            case "last_lacks":
                return self._lack_bits()
            case "length":
                return f"{old} + 1"
            case "taken":
                component = self.components[value.component]
                return f"min({old} + 1, {component.high or component.low})"
            case "count":
                return f"{old} + np.int64(not {_null(x, kind)})"
            case "seen":
                return f"max({old}, 1 if {self.lacks(value.column, 'bits')} else 2)"
            case "early":
                return f"({x} if {_null(old, kind)} else {old})"
            case "late":
                return f"({old} if {_null(x, kind)} else {x})"
            case "sum":
                return f"({x} if {_null(old, kind)} else {old} if {_null(x, kind)} else {old} + {x})"
        sign = "<" if value.what == "least" else ">"
        wins = f"ranks[{x}] {sign} ranks[{old}]" if kind is Kind.CODE else f"{x} {sign} {old}"
        return f"({x} if {_null(old, kind)} else {old} if {_null(x, kind)} or not {wins} else {x})"

    def lacks(self, column: int, bits: str) -> str:
        """Whether an event with these bits has a type that lacks the attribute."""
        name = list(self.plan.columns)[column]
        return f"{bits} & np.uint64({1 << self.plan.lacking[name]}) != 0"

    def _lack_bits(self) -> str:
        return f"bits & np.uint64({sum(1 << bit for bit in self.plan.lacking.values())})"

    # --- reading ------------------------------------------------------------------------------------------------------

    def test(self, predicates: Sequence[Expr], at: int, event: int | None, source: Source) -> str:
        """Source of the condition that all the predicates hold, of a run at component `at` that tries the event at hand
        for component `event` (None: it only proceeds). Components in between, and after, are empty."""

        def read(node: Attr | Aggregate) -> Term:
            return self.term(node, at, event, source)

        return " and ".join(condition(p, read, self.constants) for p in predicates) or "True"

    def term(
        self,
        node: Attr | Aggregate,
        at: int,
        event: int | None,
        source: Source,
        *,
        unbound: bool = False,
        of_key: Callable[[int], str] | None = None,
    ) -> Term:
        """What an identifier stands for. Components after `at` are empty or, once a match is complete, `unbound`: then
        what speaks of them does not apply. `of_key` reads the partition where there is no event at hand."""
        c = self.index[node.var]
        if isinstance(node, Aggregate):
            return self._aggregate(node, c, source) if c <= at else self._empty_aggregate(node, unbound)
        kind = self.plan.columns[node.name]
        if c == event and (node.at in (At.EVENT, At.CURRENT) or c > at):
            return self.event_term(node.name)
        if c > at:
            return Term(_NULL[kind], kind, "True")
        which = "first" if node.at in (At.EVENT, At.FIRST) else "last"
        missing: list[str] = []
        if self.components[c].may_be_empty and c < at:
            missing.append(f"{source(Value('bound', c))} == 0")
        if node.name in self.plan.lacking:
            missing.append(self.lacks(self.column[node.name], source(Value(f"{which}_lacks", c))))
        column, read_key = self.column[node.name], of_key or self.event_column
        value = read_key(column) if node.name in self.key else source(Value(which, c, column))
        return Term(value, kind, f"({' or '.join(missing)})" if missing else None)

    def event_term(self, name: str) -> Term:
        missing = self.lacks(self.column[name], "bits") if name in self.plan.lacking else None
        return Term(self.event_column(self.column[name]), self.plan.columns[name], missing)

    def _aggregate(self, node: Aggregate, c: int, source: Source) -> Term:
        column = self._column(node.name)
        missing = f"{source(Value('seen', c, column))} == 1" if node.name in self.plan.lacking else None
        values = [source(Value(what, c, column)) for what in _AGGREGATED[node.fn, node.name is None]]
        if node.fn == "avg":
            return Term(f"divided(float({values[0]}), float({values[1]}))", Kind.FLOAT, missing)
        counts = node.fn == "count" or node.name is None
        return Term(values[0], Kind.INT if counts else self.kinds[column], missing)

    def _empty_aggregate(self, node: Aggregate, unbound: bool) -> Term:
        missing = "True" if unbound else None
        if node.fn == "count" or node.name is None:
            return Term("0", Kind.INT, missing)
        kind = Kind.FLOAT if node.fn == "avg" else self.plan.columns[node.name]
        return Term(_NULL[kind], kind, missing)


_AGGREGATED = {
    ("sum", False): ("sum",),
    ("avg", False): ("sum", "count"),
    ("count", False): ("count",),
    ("min", False): ("least",),
    ("max", False): ("most",),
    ("first", False): ("early",),
    ("last", False): ("late",),
    **{(fn, True): ("length",) for fn in ex.AGGREGATES},
}
"""The values that an aggregate of an attribute is computed from; without an attribute, events are counted."""

_NULL = {Kind.INT: "NULL_INT", Kind.CODE: "NULL_CODE", Kind.FLOAT: "np.nan"}


def _null(source: str, kind: Kind) -> str:
    return f"{source} != {source}" if kind is Kind.FLOAT else f"{source} == {_NULL[kind]}"


def _edge(identifier: Attr | Aggregate) -> str:
    match identifier:
        case Attr(at=At.EVENT | At.FIRST):
            return "begin"
        case Attr(at=At.CURRENT | At.PREVIOUS) | Aggregate(over=Over.BEFORE):
            return "take"
        case _:
            return "proceed"


def of_new(value: Value) -> str:
    """A value of the run that the event makes of the one at hand."""
    return f"new_{value.name}"
