"""The automaton of a query under skip till any match: its edges, and the tables of the runs that may go along them.

What an edge will do with a run is decided by the values that the edge's formula reads, and by those that must be
carried on because something after it reads them. Runs that agree in these are one group of the edge's table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from cepheid import expr as ex
from cepheid.codegen.scalar import Constants, Term, condition
from cepheid.expr import At, Attr, Compare, Expr, Same
from cepheid.kernels.any_runs.state_vector import Edge, Layout, Moves, Negation, Scope, Slot
from cepheid.logic import last_instantiated
from cepheid.physical import Plan


@dataclass(frozen=True, slots=True)
class Entry:
    """What a run must satisfy to get into a table: predicates on its past, and bounds on its closure's events."""

    predicates: tuple[Expr, ...] = ()
    least: int = 0
    fewer_than: int | None = None


@dataclass(frozen=True, slots=True)
class Table:
    """The groups that may go along an edge; `indexed` slots are those that an event's values must equal."""

    at: int
    entry: Entry
    indexed: tuple[Slot, ...]
    others: tuple[Slot, ...]
    spoilt_by: tuple[int, ...]
    waits: bool
    """Complete matches that wait for a trailing negation."""

    @property
    def slots(self) -> tuple[Slot, ...]:
        return self.indexed + self.others


@dataclass(slots=True)
class Route:
    """An edge with its formula, and what has to hold for a run to come before it."""

    edge: Edge
    bit: int
    tests: tuple[Expr, ...]
    entry: Entry
    spoilt_by: tuple[int, ...]
    needs: set[Slot] = field(default_factory=set)
    waits: bool = False


@dataclass(slots=True)
class _Noted:
    """Reads words only to note which slots were read."""

    slots: set[Slot] = field(default_factory=set)

    def __call__(self, slot: Slot) -> str:
        self.slots.add(slot)
        return "0"


class Automaton:
    """The edges of a plan (`routes`), the tables they read, and the slots that a run has at each component (`states`).

    `late` negations are decided when a match is complete, `leading` ones by the time of the latest negative event."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.layout = Layout.of(plan)
        self.components = self.layout.components
        self.end = len(self.components)
        self.keys = _keys(plan)
        negated = {step.var for step in plan.steps if step.negated}
        self.predicates = [p for p in plan.predicates if not ex.variables(p) & negated and not self._same_key(p)]
        self.against = {
            var: [p for p in plan.predicates if var in ex.variables(p) and not self._same_key(p)] for var in negated
        }
        self.negations = self._negations()
        self.late = [n for n in self.negations if n.inner_late or n.leading_late]
        self.leading = [n for n in self.negations if self.all_optional(0, n.after) and not n.leading_late]
        self.moves = Moves(self.layout, self.negations)
        self.routes = self._routes()
        self.accepting = [i for i in range(self.end) if self.all_optional(i + 1, self.end)]
        self.states: list[list[Slot]] = [[] for _ in self.components]
        self._find_needs()
        self.tables: list[Table] = []
        self.table_of: dict[int, int] = {}
        self._assign_tables()

    # --- what the query asks ------------------------------------------------------------------------------------------

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
        for place, step in enumerate(self.plan.steps):
            if step.negated:
                after = sum(not s.negated for s in self.plan.steps[:place])
                named = {self.layout.index(v) for p in self.against[step.var] for v in ex.variables(p)} - {-1}
                inner_late = any(component >= after for component in named)
                leading_late = bool(named) and self.all_optional(0, after)
                found.append(Negation(len(found), step, after, inner_late, leading_late))
        return tuple(found)

    def _placed(self, component: int, edge: str) -> tuple[Expr, ...]:
        """The predicates on one edge of a component (SASE+ §3.2, step 2)."""
        return tuple(p for p in self.predicates if last_instantiated(p, self.layout.order) == (component, edge))

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
                        Route(edge, step.begin, self._placed(target, "begin"), self.leaving(source, target), spoilt_by)
                    )
            if step.take is not None and (step.high is None or step.high > 1):
                entry = Entry(fewer_than=step.high)
                routes.append(Route(Edge(target, target), step.take, self._placed(target, "take"), entry, ()))
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
        """What a run must satisfy to proceed from a component past those between it and the target."""
        predicates = [p for i in range(max(source, 0), target) for p in self._placed(i, "proceed")]
        if source < 0:
            return Entry(tuple(predicates))
        step = self.components[source]
        return Entry(tuple(predicates), step.low if step.low > 1 else 0)

    # --- slots --------------------------------------------------------------------------------------------------------

    def _reads(
        self, expressions: Sequence[Expr], at: int, *, event: int | None = None, negative: bool = False
    ) -> set[Slot]:
        """The slots that expressions read, for a run at a component."""
        noted = _Noted()
        reader = (lambda name: Term("0", self.layout.kind(name))) if negative else None
        scope = Scope(self.layout, at, noted, event, negative=reader)
        for expression in expressions:
            condition(expression, scope.read, Constants())
        return noted.slots

    def _carried(self, edge: Edge) -> set[Slot]:
        """The slots before an edge that those after it are made of."""
        noted = _Noted()
        for slot in self.states[edge.target]:
            self.moves.word(slot, edge, noted)
        return noted.slots

    def _find_needs(self) -> None:
        """The slots that each table and each component needs: what is read there, and what must be carried on."""
        changed = True
        while changed:
            changed = False
            for route in self.routes:
                edge = route.edge
                if edge.starts:
                    continue
                needs = {Slot("key", name=name, kind=self.layout.kind(name)) for name in self.keys}
                needs |= self._reads(route.tests, edge.source, event=edge.target)
                for number in route.spoilt_by:
                    needs |= self._reads(self.against[self.negations[number].step.var], edge.source, negative=True)
                if route.waits and self.plan.window is not None:
                    needs.add(Slot("start"))
                if not route.waits:
                    needs |= self._carried(edge)
                if needs != route.needs:
                    route.needs, changed = needs, True
            for at in range(self.end):
                wanted = set().union(*(self._entry_reads(r) | r.needs for r in self.routes if r.edge.source == at))
                if at in self.accepting:
                    wanted |= self._accept_reads(at)
                if wanted != set(self.states[at]):
                    self.states[at], changed = sorted(wanted, key=_slot_order), True

    def _entry_reads(self, route: Route) -> set[Slot]:
        at = route.edge.source
        needed = self._reads(route.entry.predicates, at)
        if route.entry.least or route.entry.fewer_than is not None:
            needed.add(Slot("count", at))
        return needed

    def _accept_reads(self, at: int) -> set[Slot]:
        needed = self._reads(self.leaving(at, self.end).predicates, at)
        if self.leaving(at, self.end).least:
            needed.add(Slot("count", at))
        for n in self.negations:
            if n.after > at:
                continue
            if n.inner_late or n.leading_late:
                needed |= {Slot("after", n.number), Slot("until", n.number)}
                needed |= self._reads(self.against[n.step.var], at, negative=True)
            if self.all_optional(0, n.after) and not n.leading_late:
                needed.add(Slot("lead", n.number))
        return needed

    def _assign_tables(self) -> None:
        for number, route in enumerate(self.routes):
            if route.edge.starts:
                continue
            indexed = tuple(dict.fromkeys(slot for slot, _ in self.equalities(route)))
            others = tuple(sorted(route.needs - set(indexed), key=_slot_order))
            table = Table(route.edge.source, route.entry, indexed, others, route.spoilt_by, route.waits)
            if table not in self.tables:
                self.tables.append(table)
            self.table_of[number] = self.tables.index(table)

    def equalities(self, route: Route) -> list[tuple[Slot, str]]:
        """The slots that an event's attributes must equal: those that groups are found by."""
        found = [(Slot("key", name=name, kind=self.layout.kind(name)), name) for name in self.keys]
        return found + [pair for test in route.tests if (pair := self.equality(test, route.edge)) is not None]

    def equality(self, test: Expr, edge: Edge) -> tuple[Slot, str] | None:
        if not isinstance(test, Compare) or test.op != "=":
            return None
        for here, there in ((test.left, test.right), (test.right, test.left)):
            if isinstance(here, Attr) and isinstance(there, Attr) and not self._of_event(there, edge):
                slots = self._reads([Compare("=", there, there)], edge.source, event=edge.target)
                plain = len(slots) == 1 and self._of_event(here, edge) and here.name not in self.plan.lacking
                if plain and self.layout.kind(here.name) is self.layout.kind(there.name):
                    return next(iter(slots)), here.name
        return None

    def _of_event(self, attr: Attr, edge: Edge) -> bool:
        return self.layout.index(attr.var) == edge.target and (not edge.takes or attr.at is At.CURRENT)


# --- reading predicates -----------------------------------------------------------------------------------------------


def _keys(plan: Plan) -> tuple[str, ...]:
    """The attributes that all events of a match share, none of them null, and the negative events with them."""
    tested = {p.name for p in plan.query.where if isinstance(p, Same) and p.value is None}
    negates = any(step.negated for step in plan.steps)
    return tuple(name for name in plan.key if name in plan.columns and (name in tested or not negates))


def _slot_order(slot: Slot) -> tuple[str, int, str]:
    return slot.what, slot.of, slot.name
