"""The computation-state vector of a run (SASE+ §5.2.1): the values that edges still to come will read, and no others.

Each conjunct stands on the edge of the component where its last identifier is instantiated (§3.2, step 2). What it
reads of earlier events becomes a *value* of the run. Two runs in the same state whose values are equal select the same
events from then on (§5.2.2).

The vector says which values an expression reads, how they are read, and what an event makes of them. Where they are
stored is the evaluator's business: it reads a value through a `Source`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from cepheid.codegen.builder import known_by
from cepheid.codegen.scalar import NULL, Constants, Term
from cepheid.expr import Aggregate, At, Attr, Expr
from cepheid.kernels.aggregates import ACCUMULATORS, AGGREGATE_CODE
from cepheid.logic import last_instantiated
from cepheid.physical import Kind, Plan, Step

NOWHERE = -1
"""The component that a run is at before it has begun."""


@dataclass(frozen=True)
class Value:
    """A value of a run. `what` says how it comes about:

    first, last        the attribute of the component's first or latest event
    first_missing, last_missing    whether there is no such event, or its type lacks the attribute
    first_null, last_null          whether the attribute is null, where its kind has no null value
    sum, count, ...    an accumulator of an aggregate of the attribute over the component's events (`ACCUMULATORS`)
    lacking            whether the component has events, and the types of all of them lack the attribute
    length             the number of the component's events
    taken              the same, but not counted further than the component's bounds can ask for

    Evaluators add values of their own.
    """

    what: str
    component: int = NOWHERE
    column: int = -1

    @cached_property
    def name(self) -> str:
        return f"{self.what}{max(self.component, 0)}" + (f"_{self.column}" if self.column >= 0 else "")


Source = Callable[[Value], str]
"""How a value is read: from the run, or from what was just computed for a new one."""


class StateVector:
    """The components of a plan that bind events, and the values that runs carry between them."""

    def __init__(self, plan: Plan, constants: Constants, key: Sequence[str] = ()) -> None:
        """`key` are the attributes that all events of a run share, so that they are read from any of them."""
        self.plan = plan
        self.constants = constants
        self.steps: tuple[Step, ...] = tuple(step for step in plan.steps if not step.negated)
        self.last = len(self.steps) - 1
        self.index = {step.var: i for i, step in enumerate(self.steps)}
        self.names = list(plan.columns)
        self.column = {name: i for i, name in enumerate(plan.columns)}
        self.kinds = list(plan.columns.values())
        self.key = set(key)
        self.event_column: Callable[[int], str] = lambda column: f"column{column}[e]"
        """How an attribute of the current event is read."""

    def on_edges(self, predicates: Sequence[Expr]) -> defaultdict[tuple[int, str], list[Expr]]:
        """The predicates on each edge of a component: `begin`, `take` or `proceed`."""
        placed: defaultdict[tuple[int, str], list[Expr]] = defaultdict(list)
        for predicate in predicates:
            placed[last_instantiated(predicate, self.index)].append(predicate)
        return placed

    def may_be_empty(self, component: int) -> bool:
        return self.steps[component].low == 0

    # --- the current event --------------------------------------------------------------------------------------------

    def event_term(self, name: str) -> Term:
        column = self.column[name]
        missing, known = self.lacks(column, "bits"), known_by(self.plan, name, "bits")
        return Term(self.event_column(column), self.kinds[column], missing, self.plan.types[name], known)

    def lacks(self, column: int, bits: str) -> str | None:
        """Whether an event with these bits is of a type that lacks the attribute; None if no type does:

        bits & np.uint64(32) != 0
        """
        bit = self.plan.lacking.get(self.names[column])
        return None if bit is None else f"{bits} & np.uint64({1 << bit}) != 0"

    # --- how values are held ------------------------------------------------------------------------------------------

    def dtype(self, value: Value) -> str:
        if value.what in ACCUMULATORS:
            kind = ACCUMULATORS[value.what].kind_over(self.kinds[value.column])
        else:
            kind = self.kinds[value.column] if value.what in ("first", "last") else Kind.INT
        return "float64" if kind is Kind.FLOAT else "int64"

    def as_held(self, value: Value, source: str) -> str:
        """A value as one of the integers of a table: `float_key(x)`. Equal attributes have equal ones, so that runs can
        be equal; of a running sum, all bits count (`ACCUMULATORS`)."""
        to_integer = "float_word" if value.what in ACCUMULATORS else "float_key"
        return {"float64": f"{to_integer}({source})", "uint64": f"np.int64({source})"}.get(self.dtype(value), source)

    def as_read(self, value: Value, held: str) -> str:
        """A value that is held as an integer: `as_float(run[r + SUM0_1])`."""
        return {"float64": f"as_float({held})", "uint64": f"np.uint64({held})"}.get(self.dtype(value), held)

    # --- how values change --------------------------------------------------------------------------------------------

    def begun(self, value: Value, at: int, to: int) -> str | None:
        """The value in a run that goes from component `at` (or nowhere) to begin `to` on the current event; None where
        it stays."""
        if value.component == to:
            return self.of_first(value)
        return None if value.component <= at else self.of_none(value)

    def of_first(self, value: Value) -> str:
        """The value after the component's first event, the current one."""
        match value.what:
            case "length" | "taken":
                return "1"
            case "first" | "last":
                return self.event_column(value.column)
            case "first_null" | "last_null":
                return f"int(not ({self.event_term(self.names[value.column]).is_known}))"
            case "first_missing" | "last_missing" | "lacking":
                lacks = self.lacks(value.column, "bits")
                return "0" if lacks is None else f"int({lacks})"
            case what:
                return ACCUMULATORS[what].start(self.event_term(self.names[value.column]))

    def of_none(self, value: Value) -> str:
        """The value of a component without events."""
        match value.what:
            case "length" | "taken" | "lacking":
                return "0"
            case "first" | "last":
                return NULL[self.kinds[value.column]]
            case "first_missing" | "last_missing" | "first_null" | "last_null":
                return "1"
            case what:
                return ACCUMULATORS[what].over_nothing(self.kinds[value.column])

    def taken(self, value: Value, old: Source) -> str | None:
        """The value after the component has taken the current event; None where it stays. Of a count:

        run[r + COUNT0_1] + np.int64(column1[e] != NULL_INT)
        """
        match value.what:
            case "first" | "first_missing" | "first_null":
                return None
            case "last" | "last_missing" | "last_null":
                return self.of_first(value)
            case "length":
                return f"{old(value)} + 1"
            case "taken":
                step = self.steps[value.component]
                return f"min({old(value)} + 1, {step.high or step.low})"
            case "lacking":
                return f"{old(value)} & {self.of_first(value)}"
            case what:
                accumulator, kind = ACCUMULATORS[what], self.kinds[value.column]
                self.constants.needs_ranks |= accumulator.compares and kind is Kind.CODE
                return accumulator.step(
                    lambda name: old(replace(value, what=name)), self.event_term(self.names[value.column])
                )

    # --- reading ------------------------------------------------------------------------------------------------------

    def term(
        self,
        node: Attr | Aggregate,
        at: int,
        event: int | None,
        source: Source,
        *,
        of_key: Callable[[int], str] | None = None,
    ) -> Term:
        """What an identifier stands for, in a run at component `at` that tries the current event for component `event`
        (None: it only proceeds). Components after `at` are empty. `of_key` reads the partition where there
        is no current event."""
        c = self.index[node.var]
        if isinstance(node, Aggregate):
            return self._aggregate(node, c, source) if c <= at else self._empty_aggregate(node)
        if c == event and (node.at in (At.EVENT, At.CURRENT) or c > at):
            return self.event_term(node.name)
        kind = self.plan.columns[node.name]
        if c > at or node.at is At.CURRENT:
            return Term(NULL[kind], kind, "True", self.plan.types[node.name])
        which = "first" if node.at in (At.EVENT, At.FIRST) else "last"
        column, read_key = self.column[node.name], of_key or self.event_column
        value = read_key(column) if node.name in self.key else source(Value(which, c, column))
        missing, known = self.missing(which, c, node.name, at, source), self.known(which, c, node.name, source)
        return Term(value, kind, missing, self.plan.types[node.name], known)

    def known(self, which: str, c: int, name: str, source: Source) -> str | None:
        """The condition that an attribute of an earlier event is not null; None if its kind has a null value. An event
        with a null in its key has no part in any run."""
        known = known_by(self.plan, name, "")
        if known in (None, "True") or name in self.key:
            return known and "True"
        return self.is_carried_known(which, c, name, source)

    def is_carried_known(self, which: str, c: int, name: str, source: Source) -> str | None:
        return f"{source(Value(f'{which}_null', c, self.column[name]))} == 0"

    def missing(self, which: str, c: int, name: str, at: int, source: Source) -> str | None:
        """Whether a run at component `at` has no such event of component `c`, or none with the attribute; None if it
        surely has."""
        if not (self.may_be_empty(c) and c < at) and name not in self.plan.lacking:
            return None
        return f"{source(Value(f'{which}_missing', c, self.column[name]))} != 0"

    def _aggregate(self, node: Aggregate, c: int, source: Source) -> Term:
        if node.name is None:
            return Term(source(Value("length", c)), Kind.INT, known="True")
        column = self.column[node.name]
        missing = self.all_lack(c, column, source) if node.name in self.plan.lacking else None
        row = AGGREGATE_CODE[node.fn]
        values = [source(Value(what, c, column)) for what in row.accumulators(self.kinds[column])]
        return replace(row.term(self.plan.types[node.name], values), missing=missing)

    def all_lack(self, c: int, column: int, source: Source) -> str:
        """Whether the component has events, and the types of all of them lack the attribute."""
        return f"{source(Value('lacking', c, column))} != 0"

    def _empty_aggregate(self, node: Aggregate) -> Term:
        if node.name is None:
            return Term("0", Kind.INT, known="True")
        return AGGREGATE_CODE[node.fn].over_nothing(self.plan.types[node.name])
