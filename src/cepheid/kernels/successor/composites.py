"""Composite events in generated source: their fields, where they are read from, and what predicates read of them.

A field is a name (`end`, `start`, `oldest`), the row of a variable's event, the chain of an iteration, a value that a
predicate reads (`state_vector.Value`), or a part of the history. A `Composite` says how each field is read: from the
event at hand, from a record, or from two composites that it is made of.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from cepheid.codegen.builder import known_by
from cepheid.codegen.scalar import NULL, Term
from cepheid.events import START as START_COLUMN
from cepheid.expr import Aggregate, Attr
from cepheid.kernels.aggregates import ACCUMULATORS, AGGREGATE_CODE
from cepheid.kernels.state_vector import Value
from cepheid.kernels.successor.operators import Iteration, Leaf, Next, Operator, Timer, Union
from cepheid.physical import Kind, Plan

LATE = 1 << 62
"""Later than any time; the first time of no events."""


@dataclass(frozen=True, slots=True)
class Row:
    """The position of a variable's event; EMPTY if it is unbound."""

    var: str


@dataclass(frozen=True, slots=True)
class _OfIteration:
    operator: int


class Chain(_OfIteration):
    """The node of the chain of an iteration; EMPTY if it is unbound."""


class Limit(_OfIteration):
    """The time at which the chains of a group have to start at the earliest."""


@dataclass(frozen=True, slots=True)
class Time:
    """One time point of a history of fixed length, counted from its begin."""

    index: int


ENDS, STARTS, LATEST_START, OLDEST, HISTORY, KEEPS = "ends", "starts", "latest", "oldest", "history", "keeps"
"""The times of a composite event (of a group, the latest start), the position of its first event, its history, and
whether the event of a leaf passes θ on that event alone."""
Field = str | Row | Chain | Limit | Time | Value


def field_name(field: Field, values: Values) -> str:
    """The name of a field's constant in generated source. It has nothing of the query's text."""
    match field:
        case Row():
            return f"ROW{values.component[field.var]}"
        case Chain() | Limit():
            return f"{type(field).__name__.upper()}{field.operator}"
        case Time():
            return f"TIME{field.index}"
        case Value():
            return field.name.upper()
        case _:
            return str(field).upper()


Source = Callable[[Field], str]


@dataclass(frozen=True, slots=True)
class Composite:
    """A composite event of an operator. `bound` are the variables that it surely binds, `unbound` those that it
    surely does not."""

    operator: Operator
    read: Source
    bound: frozenset[str]
    unbound: frozenset[str] = frozenset()
    is_at_hand: bool = False
    """Whether it is the event at hand, whose columns and mask can be read."""

    def reading(self, fields: Mapping[Field, str]) -> Composite:
        """The composite with some fields read in another way."""
        before = self.read
        return replace(self, read=lambda field: fields[field] if field in fields else before(field))


def keep_name(var: str) -> str:
    return f"{var} keep"


def keep_bit(plan: Plan, var: str) -> int:
    """The bit of the events of a leaf that pass θ on that event alone."""
    return next(number for number, bit in enumerate(plan.bits) if bit.name == keep_name(var))


class Values:
    """The values that records carry, by the plan's columns and variables."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.names = list(plan.columns)
        self.column = {name: number for number, name in enumerate(plan.columns)}
        self.component = {step.var: number for number, step in enumerate(plan.steps)}
        self.variables = [step.var for step in plan.steps]

    def variable(self, value: Value) -> str:
        return self.variables[value.component]

    def kind(self, value: Value) -> Kind:
        if value.what in ACCUMULATORS:
            return ACCUMULATORS[value.what].kind_over(self.plan.columns[self.names[value.column]])
        return self.plan.columns[self.names[value.column]] if value.what in ("first", "last") else Kind.INT

    def may_lack(self, var: str, name: str) -> bool:
        """Whether an event of a variable may be of a type without an attribute."""
        lacking = self.plan.lacks.get(name, ()) if name in self.plan.lacking else ()
        types = self.plan.bits[self.plan.steps[self.component[var]].begin].types
        return bool(lacking) and (not types or not set(lacking).isdisjoint(types))

    def as_held(self, field: Field, source: str) -> str:
        """A value as one of the integers of a record: `float_word(x)`."""
        is_float = isinstance(field, Value) and self.kind(field) is Kind.FLOAT
        return f"float_word({source})" if is_float else source

    def as_read(self, field: Field, held: str) -> str:
        """A value that is held as an integer: `as_float(w1[i1 + SUM0_1])`."""
        is_float = isinstance(field, Value) and self.kind(field) is Kind.FLOAT
        return f"as_float({held})" if is_float else held

    # --- one event ----------------------------------------------------------------------------------------------------

    def current(self, leaf: Leaf) -> Composite:
        """The event at hand, as the leaf's."""
        starts = f"column{self.column[START_COLUMN]}[e]" if self.plan.has_durations else "t"

        def read(field: Field) -> str:
            match field:
                case Time() if self.plan.has_durations:
                    return starts if field.index == 0 else "t"
                case "ends" | Time():
                    return "t"
                case "starts" | "latest":
                    return starts
                case "oldest" | Row():
                    return "first + e"
                case "keeps":
                    return f"int(bits & np.uint64({1 << keep_bit(self.plan, leaf.var)}) != 0)"
                case Value() if self.variable(field) == leaf.var:
                    return self.of_one(field, self.event_term(field), starts, "t")
                case _:
                    raise AssertionError(f"an event has no {field}")

        return Composite(leaf, read, frozenset({leaf.var}), is_at_hand=True)

    def event_term(self, value: Value) -> Term:
        if value.column < 0:
            return Term("0", Kind.INT, known="True")
        name = self.names[value.column]
        missing = None
        if self.may_lack(self.variable(value), name):
            missing = f"bits & np.uint64({1 << self.plan.lacking[name]}) != 0"
        known = known_by(self.plan, name, "bits")
        return Term(f"column{value.column}[e]", self.plan.columns[name], missing, self.plan.types[name], known)

    def of_one(self, value: Value, x: Term, starts: str, ends: str) -> str:
        """The value over one event whose attribute is `x`."""
        match value.what:
            case "first" | "last":
                return x.source
            case "first_missing" | "last_missing" | "lacking":
                return "0" if x.missing is None else f"int({x.missing})"
            case "first_null" | "last_null":
                return f"int(not ({x.is_known}))"
            case "length":
                return "1"
            case "absent" | "skipped":
                return "0"
            case "first_time":
                return starts
            case "last_time":
                return ends
            case what:
                return ACCUMULATORS[what].start(x)

    def of_none(self, value: Value) -> str:
        """The value over no events."""
        match value.what:
            case "length" | "lacking":
                return "0"
            case "first" | "last":
                return NULL[self.plan.columns[self.names[value.column]]]
            case "absent" | "skipped" | "first_missing" | "last_missing" | "first_null" | "last_null":
                return "1"
            case "first_time":
                return f"{LATE}"
            case "last_time":
                return f"-{LATE}"
            case what:
                return ACCUMULATORS[what].over_nothing(self.plan.columns[self.names[value.column]])

    def with_one_more(self, value: Value, old: Callable[[Value], str], x: Term, starts: str, ends: str) -> str:
        """The value over a group with one more event, whose attribute is `x`."""
        match value.what:
            case "first":
                return f"({x.source} if {old(replace(value, what='absent', column=-1))} else {old(value)})"
            case "first_missing" | "first_null":
                now = self.of_one(value, x, starts, ends)
                return f"({now} if {old(replace(value, what='absent', column=-1))} else {old(value)})"
            case "last" | "last_missing" | "last_null" | "absent" | "skipped" | "last_time":
                return self.of_one(value, x, starts, ends)
            case "length":
                return f"{old(value)} + 1"
            case "first_time":
                return f"min({old(value)}, {starts})"
            case "lacking":
                now = self.of_one(value, x, starts, ends)
                empty = old(replace(value, what="absent", column=-1))
                return f"({now} if {empty} else {old(value)} & {now})"
            case what:
                self_old = lambda name: old(replace(value, what=name))  # noqa: E731
                return ACCUMULATORS[what].step(self_old, x)

    def read_by_update(self, value: Value) -> list[Value]:
        """The values of a group that its update reads."""
        empty = replace(value, what="absent", column=-1)
        if value.what in ("first", "first_missing", "first_null", "lacking"):
            return [value, empty]
        if value.what in ACCUMULATORS:
            kind = self.plan.columns[self.names[value.column]]
            read: list[Value] = [value]

            def old(name: str) -> str:
                read.append(replace(value, what=name))
                return "0"

            ACCUMULATORS[value.what].step(old, Term("0", kind, None, self.plan.types[self.names[value.column]], "True"))
            return read
        return [value] if value.what in ("length", "first_time") else []

    # --- what predicates read -----------------------------------------------------------------------------------------

    def term(self, node: Attr, which: str, of: Composite, missing_if_absent: bool) -> Term:
        """An attribute of the first or last event that a composite binds to a variable."""
        if of.is_at_hand:
            return self.event_term(Value(which, self.component[node.var], self.column[node.name]))
        value = Value(which, self.component[node.var], self.column[node.name])
        missing = None
        if missing_if_absent or self.may_lack(node.var, node.name):
            missing = f"{of.read(replace(value, what=f'{which}_missing'))} != 0"
        known = known_by(self.plan, node.name, "")
        if known not in (None, "True"):
            known = f"{of.read(replace(value, what=f'{which}_null'))} == 0"
        return Term(of.read(value), self.plan.columns[node.name], missing, self.plan.types[node.name], known)

    def vacuous(self, node: Attr) -> Term:
        """An attribute that is not there, so that its predicate does not apply."""
        kind = self.plan.columns[node.name]
        return Term(NULL[kind], kind, "True", self.plan.types[node.name], "True")

    def aggregate(self, node: Aggregate, read: Callable[[Value], str], missing: str | None) -> Term:
        """An aggregate over the events that `read` has the accumulators of."""
        c = self.component[node.var]
        if node.name is None:
            return Term(read(Value("length", c)), Kind.INT, missing, known="True")
        column = self.column[node.name]
        if self.may_lack(node.var, node.name):
            lacking = f"{read(Value('lacking', c, column))} != 0"
            missing = lacking if missing is None else f"({missing} or {lacking})"
        row = AGGREGATE_CODE[node.fn]
        accumulators = [read(Value(what, c, column)) for what in row.accumulators(self.plan.columns[node.name])]
        return replace(row.term(self.plan.types[node.name], accumulators), missing=missing)

    def empty_aggregate(self, node: Aggregate, missing: str | None) -> Term:
        if node.name is None:
            return Term("0", Kind.INT, missing, known="True")
        return replace(AGGREGATE_CODE[node.fn].over_nothing(self.plan.types[node.name]), missing=missing)


# --- composites of operators ------------------------------------------------------------------------------------------


def joined(operator: Next, left: Composite, right: Composite, values: Values, points: int) -> Composite:
    """`left; right`. `points` is the number of time points of an event in a history."""

    def read(field: Field) -> str:
        match field:
            case "starts" | "latest" | "oldest":
                return left.read(field)
            case "ends":
                return right.read(field)
            case Row():
                return (left if field.var in operator.left.variables else right).read(field)
            case Value():
                return (left if values.variable(field) in operator.left.variables else right).read(field)
            case Chain() | Limit():
                return (left if _iterates(operator.left, field.operator) else right).read(field)
            case Time():
                size = (operator.left.fixed_length or 0) * points
                return left.read(field) if field.index < size else right.read(Time(field.index - size))
            case _:
                raise AssertionError(f"a sequence has no {field}")

    return Composite(operator, read, left.bound | right.bound, left.unbound | right.unbound)


def _iterates(operator: Operator, number: int) -> bool:
    return any(isinstance(node, Iteration) and node.number == number for node in operator.walk())


def chosen(operator: Union, item: Composite, values: Values) -> Composite:
    """One branch of a union: the variables of the others are unbound."""
    others = frozenset(operator.variables).difference(item.operator.variables)

    def read(field: Field) -> str:
        match field:
            case Row() if field.var in others:
                return "EMPTY"
            case Chain() if not _iterates(item.operator, field.operator):
                return "EMPTY"
            case Limit() if not _iterates(item.operator, field.operator):
                return f"-{LATE}"
            case Value() if values.variable(field) in others:
                return values.of_none(field)
            case _:
                return item.read(field)

    return Composite(operator, read, item.bound, item.unbound | others)


def passed_on(operator: Operator, item: Composite) -> Composite:
    """The same composite as the output of another operator."""
    return replace(item, operator=operator)


def after_a_while(operator: Timer, item: Composite, moment: str, points: int) -> Composite:
    """The composite that ends when the timer fires."""
    size = (operator.item.fixed_length or 0) * points

    def read(field: Field) -> str:
        if field == ENDS or (isinstance(field, Time) and field.index >= size):
            return moment
        return item.read(field)

    return replace(item, operator=operator, read=read)
