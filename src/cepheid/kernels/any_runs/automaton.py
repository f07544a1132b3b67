"""The automaton of a query under skip till any match: its edges, the tables of the runs that may take them, and their
state vector.

The values that an edge's formula reads, and those that are carried on for later edges, decide how a run continues. Runs
that agree in these values are one group of the edge's table.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from cepheid import expr as ex
from cepheid.codegen.scalar import Constants, Reader, Term, condition, key_fit
from cepheid.expr import Aggregate, At, Attr, Compare, Expr, Same
from cepheid.kernels.state_vector import NOWHERE, Source, StateVector, Value
from cepheid.physical import Kind, Plan, Step


class Edge(NamedTuple):
    """A transition of a run from a component to another, or to the same one (a take)."""

    source: int
    """The component that the run is at; `NOWHERE` before the first."""
    target: int

    @property
    def takes(self) -> bool:
        return self.source == self.target

    @property
    def starts(self) -> bool:
        return self.source == NOWHERE

    def crosses(self, after: int) -> bool:
        """Whether the gap after that many components lies between the two."""
        return self.source < after <= self.target


@dataclass(frozen=True, slots=True)
class Negation:
    """A negated component, with `after` positive components before it, and how each of its cases is decided."""

    number: int
    step: Step
    after: int
    inner_late: bool
    """Between two events: when the match is complete, or else as soon as the negative event occurs."""
    leading_late: bool
    """Before the first event: when the match is complete, by a search, or else by the time of the latest negative
    event."""


class WordVector(StateVector):
    """The state vector as 64-bit words, the words of a group. Sources here read words, not values.

    Besides those of `Value`, it has these values (`component` is the number of a negation for the last three):

    key                 an attribute of the partition
    start               where the first event lies in the window's measure
    row                 the position of the latest event
    lead                the measure of the latest negative event before the first event
    after, until        the positions between which a negative event must not be
    """

    def __init__(self, plan: Plan, constants: Constants, negations: tuple[Negation, ...]) -> None:
        super().__init__(plan, constants)
        self.negations = negations

    def key_of(self, name: str) -> Value:
        return Value("key", NOWHERE, self.column[name])

    def event_word(self, column: int) -> str:
        """An attribute of the current event as a word: `float_key(column1[e])`."""
        source = self.event_column(column)
        return f"float_key({source})" if self.kinds[column] is Kind.FLOAT else source

    def event_is_known(self, name: str) -> str:
        return self.event_term(name).is_known

    def reader(
        self, at: int, words: Source, *, event: int | None = None, negative: Callable[[str], Term] | None = None
    ) -> Reader:
        """Reads identifiers (see `StateVector.term`); `negative` reads the attributes of a negative event."""

        def read(node: Attr | Aggregate) -> Term:
            if node.var not in self.index:
                assert negative is not None and node.name is not None
                return negative(node.name)
            return self.term(node, at, event, lambda value: self.as_read(value, words(value)))

        return read

    def word(self, value: Value, edge: Edge, old: Source) -> str:
        """The word of a value after an edge. Of the sum of an attribute when the closure takes the event:

        float_word((as_float(groups[at + 8]) + (column0[e] + 0.0) if column0[e] == column0[e] else ...))
        """
        match value.what:
            case "key":
                return self.event_word(value.column)
            case "row":
                return "row"
            case "start":
                if self.plan.counts_from_start:
                    return "began" if edge.starts else f"min(began, {old(value)})"
                return "m" if edge.starts else old(value)
            case "lead" | "after" | "until":
                return self._around_negation(value, edge, old)
        if edge.takes and value.component == edge.target:
            new = self.taken(value, lambda value: self.as_read(value, old(value)))
        else:
            new = self.begun(value, edge.source, edge.target)
        return old(value) if new is None else self.as_held(value, new)

    def _around_negation(self, value: Value, edge: Edge, old: Source) -> str:
        negation = self.negations[value.component]
        crosses = edge.crosses(negation.after)
        if value.what == "lead":
            return f"lead{negation.number}" if edge.starts and crosses else "NEVER" if edge.starts else old(value)
        if edge.starts:
            return "row" if value.what == "until" and crosses and negation.leading_late else "-1"
        if crosses and negation.inner_late:
            return "row" if value.what == "until" else old(Value("row"))
        return old(value)


@dataclass(frozen=True, slots=True)
class Entry:
    """The condition of a table on its runs: predicates on past events, and bounds on the length of its closure."""

    predicates: tuple[Expr, ...] = ()
    least: int = 0
    fewer_than: int | None = None


class Table(NamedTuple):
    """The groups that may take an edge."""

    at: int
    """The component that their runs are at."""
    entry: Entry
    waits: bool
    """Complete matches that wait for a trailing negation."""
    indexed: tuple[Value, ...]
    """The values that attributes of the event must equal."""
    others: tuple[Value, ...]
    spoilt_by: tuple[int, ...]

    @property
    def values(self) -> tuple[Value, ...]:
        return self.indexed + self.others


@dataclass(slots=True)
class Route:
    """An edge with its formula, and the condition on the runs that may take it."""

    edge: Edge
    bit: int
    tests: Sequence[Expr]
    entry: Entry
    spoilt_by: tuple[int, ...]
    needs: set[Value] = field(default_factory=set)
    waits: bool = False


@dataclass(slots=True)
class _Noted:
    """Reads words only to note which values were read."""

    values: set[Value] = field(default_factory=set)

    def __call__(self, value: Value) -> str:
        self.values.add(value)
        return "0"


class Automaton:
    """The edges of a plan (`routes`), the tables they read, and the values that a run has at each component (`states`).

    `late` negations are decided when a match is complete, `leading` ones by the time of the latest negative event."""

    def __init__(self, plan: Plan, constants: Constants) -> None:
        self.plan = plan
        self.components = tuple(step for step in plan.steps if not step.negated)
        self.end = len(self.components)
        self.keys = _keys(plan)
        negated = {step.var for step in plan.steps if step.negated}
        self.predicates = [p for p in plan.predicates if not ex.variables(p) & negated and not self._same_key(p)]
        self.against = {
            var: [p for p in plan.predicates if var in ex.variables(p) and not self._same_key(p)] for var in negated
        }
        self.negations = self._negations()
        self.vector = WordVector(plan, constants, self.negations)
        self.placed = self.vector.on_edges(self.predicates)
        """The predicates on each edge of a component."""
        self.late = [n for n in self.negations if n.inner_late or n.leading_late]
        self.leading = [n for n in self.negations if self.all_optional(0, n.after) and not n.leading_late]
        self.routes = self._routes()
        self.accepting = [i for i in range(self.end) if self.all_optional(i + 1, self.end)]
        self.states: list[list[Value]] = [[] for _ in self.components]
        self._find_needs()
        self.tables: list[Table] = []
        self.table_of: dict[int, int] = {}
        self._assign_tables()

    # --- the query ----------------------------------------------------------------------------------------------------

    def _same_key(self, predicate: Expr) -> bool:
        """Whether a predicate follows from all events being of one partition."""
        match predicate:
            case Compare(op="=", left=Attr() as a, right=Attr() as b):
                return a.name == b.name and a.name in self.keys
        return False

    def all_optional(self, start: int, end: int) -> bool:
        return all(step.low == 0 for step in self.components[start:end])

    def _negations(self) -> tuple[Negation, ...]:
        found: list[Negation] = []
        index = {step.var: number for number, step in enumerate(self.components)}
        for position, step in enumerate(self.plan.steps):
            if step.negated:
                after = sum(not s.negated for s in self.plan.steps[:position])
                named = {index[v] for p in self.against[step.var] for v in ex.variables(p) if v in index}
                inner_late = any(component >= after for component in named)
                leading_late = bool(named) and self.all_optional(0, after)
                found.append(Negation(len(found), step, after, inner_late, leading_late))
        return tuple(found)

    def _routes(self) -> list[Route]:
        routes: list[Route] = []
        for target, step in enumerate(self.components):
            for source in range(-1, target):
                if self.all_optional(source + 1, target):
                    edge = Edge(source, target)
                    spoilt_by = tuple(
                        n.number for n in self.negations if edge.crosses(n.after) and not n.inner_late and source >= 0
                    )
                    routes.append(
                        Route(edge, step.begin, self.placed[target, "begin"], self.leaving(source, target), spoilt_by)
                    )
            if step.take is not None and (step.high is None or step.high > 1):
                entry = Entry(fewer_than=step.high)
                routes.append(Route(Edge(target, target), step.take, self.placed[target, "take"], entry, ()))
        for source in range(self.end):
            if self.all_optional(source + 1, self.end) and self.waits_at(source):
                spoilt_by = tuple(n.number for n in self.negations if n.after > source)
                entry = self.leaving(source, self.end)
                routes.append(Route(Edge(source, self.end), -1, (), entry, spoilt_by, waits=True))
        return routes

    def waits_at(self, at: int) -> bool:
        """Whether a match whose last event is of this component has to wait for a trailing negation."""
        return any(n.after > at for n in self.negations)

    def leaving(self, source: int, target: int) -> Entry:
        """The condition for a run to proceed from a component past those between it and the target."""
        predicates = [p for i in range(max(source, 0), target) for p in self.placed[i, "proceed"]]
        if source < 0:
            return Entry(tuple(predicates))
        step = self.components[source]
        return Entry(tuple(predicates), step.low if step.low > 1 else 0)

    # --- values -------------------------------------------------------------------------------------------------------

    def _order(self, value: Value) -> tuple[int, str, int, str]:
        known = _ORDER.index(value.what) if value.what in _ORDER else len(_ORDER)
        return known, value.what, value.component, self.vector.names[value.column] if value.column >= 0 else ""

    def _reads(
        self, expressions: Sequence[Expr], at: int, *, event: int | None = None, negative: bool = False
    ) -> set[Value]:
        """The values that expressions read, for a run at a component."""
        noted = _Noted()
        of_negative = (lambda name: Term("0", self.plan.columns[name])) if negative else None
        read = self.vector.reader(at, noted, event=event, negative=of_negative)
        for expression in expressions:
            condition(expression, read, Constants())
        return noted.values

    def _carried(self, edge: Edge) -> set[Value]:
        """The values before an edge that those after it are made of."""
        noted = _Noted()
        for value in self.states[edge.target]:
            self.vector.word(value, edge, noted)
        return noted.values

    def _find_needs(self) -> None:
        """The values that each table and each component needs: those that are read there, and those that are carried
        on."""
        changed = True
        while changed:
            changed = False
            for route in self.routes:
                edge = route.edge
                if edge.starts:
                    continue
                needs = {self.vector.key_of(name) for name in self.keys}
                needs |= self._reads(route.tests, edge.source, event=edge.target)
                for number in route.spoilt_by:
                    needs |= self._reads(self.against[self.negations[number].step.var], edge.source, negative=True)
                if route.waits and self.plan.window is not None:
                    needs.add(Value("start"))
                if not route.waits:
                    needs |= self._carried(edge)
                if needs != route.needs:
                    route.needs, changed = needs, True
            for at in range(self.end):
                wanted = set().union(*(self._entry_reads(r) | r.needs for r in self.routes if r.edge.source == at))
                if at in self.accepting:
                    wanted |= self._accept_reads(at)
                if wanted != set(self.states[at]):
                    self.states[at], changed = sorted(wanted, key=self._order), True

    def _entry_reads(self, route: Route) -> set[Value]:
        at = route.edge.source
        needed = self._reads(route.entry.predicates, at)
        if route.entry.least or route.entry.fewer_than is not None:
            needed.add(Value("taken", at))
        return needed

    def _accept_reads(self, at: int) -> set[Value]:
        needed = self._reads(self.leaving(at, self.end).predicates, at)
        if self.leaving(at, self.end).least:
            needed.add(Value("taken", at))
        for n in self.negations:
            if n.after > at:
                continue
            if n.inner_late or n.leading_late:
                needed |= {Value("after", n.number), Value("until", n.number)}
                needed |= self._reads(self.against[n.step.var], at, negative=True)
            if self.all_optional(0, n.after) and not n.leading_late:
                needed.add(Value("lead", n.number))
        return needed

    def _assign_tables(self) -> None:
        for number, route in enumerate(self.routes):
            if route.edge.starts:
                continue
            indexed = tuple(dict.fromkeys(value for value, _ in self.equalities(route)))
            others = tuple(sorted(route.needs - set(indexed), key=self._order))
            table = Table(route.edge.source, route.entry, route.waits, indexed, others, route.spoilt_by)
            if table not in self.tables:
                self.tables.append(table)
            self.table_of[number] = self.tables.index(table)

    def equalities(self, route: Route) -> list[tuple[Value, str]]:
        """The values that attributes of the event must equal: groups are looked up by them."""
        found = [(self.vector.key_of(name), name) for name in self.keys]
        return found + [pair for test in route.tests if (pair := self.equality(test, route.edge)) is not None]

    def equality(self, test: Expr, edge: Edge) -> tuple[Value, str] | None:
        if not isinstance(test, Compare) or test.op != "=":
            return None
        for here, there in ((test.left, test.right), (test.right, test.left)):
            if isinstance(here, Attr) and isinstance(there, Attr) and not self._of_event(there, edge):
                read = self._reads([Compare("=", there, there)], edge.source, event=edge.target)
                values = [value for value in read if not value.what.endswith("_null")]
                plain = len(values) == 1 and self._of_event(here, edge) and here.name not in self.plan.lacking
                fit = key_fit(self.plan.types[here.name], self.plan.types[there.name])
                if plain and fit is not None and fit.decides:
                    return values[0], here.name
        return None

    def _of_event(self, attr: Attr, edge: Edge) -> bool:
        return self.vector.index.get(attr.var) == edge.target and (not edge.takes or attr.at is At.CURRENT)


# --- reading predicates -----------------------------------------------------------------------------------------------


def _keys(plan: Plan) -> tuple[str, ...]:
    """The attributes that all events of a match share, none of them null, and the negative events with them."""
    tested = {p.name for p in plan.query.where if isinstance(p, Same) and p.value is None}
    negates = any(step.negated for step in plan.steps)
    return tuple(name for name in plan.key if name in plan.columns and (name in tested or not negates))


_ORDER = (
    *("after", "taken", "length", "first", "first_missing", "early", "key", "count", "lacking", "last"),
    *("last_missing", "lead", "most", "least", "row", "start", "sum", "late", "until"),
)
"""The order of a group's words, which saved states depend on; other values come last."""
