"""Plans as data: what is computed for each event before the kernel sees it, and what the kernel then does.

A plan holds no events and no code. `bits` say which parts an event can play (the event's *mask*); they are computed
column-wise, in Catalyst or Arrow. `columns` are the only attributes that travel to the kernel. Everything else is for
the code generator of the evaluator that the plan names.

`Lowered` is what the evaluators plan from: a bound query with its predicates sorted (`evaluator.py` is their protocol).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cache, cached_property

from cepheid import expr as ex
from cepheid import limits
from cepheid.dialect import COMBINATIONS, INTERVALS, RUNS
from cepheid.events import HISTORY, NO_CLOCK, START, Clock, Duration, Schema
from cepheid.expr import Attr, Expr
from cepheid.functions import FUNCTIONS
from cepheid.pattern import (
    Disj,
    EventClass,
    Kleene,
    Neg,
    Pattern,
    Query,
    Role,
    Seq,
    Strategy,
    negatives,
    partition_attributes,
    walk,
)
from cepheid.tree_plan import TreePlan
from cepheid.types import BOOLEAN, INTEGER, UNKNOWN, Family, Type

REFERENCE = "reference"
"""The evaluator that runs the oracle, by request."""
FAMILY = "family"
"""The evaluator of queries that are rules of a family, which has one plan for all of them (`deploy/families.py`)."""


Options = Mapping[str, tuple[str, ...]]
"""The allowed values of each option. The first is the default, unless the cost model decides. An empty tuple allows any
text (a tree shape, for example)."""


class Kind(Enum):
    """How an attribute's values are held in the kernel's arrays."""

    INT = "int64"
    """An integer, a time in microseconds, or a short decimal in units of its last digit."""
    UNSIGNED = "uint64"
    """As the signed integer with the same bits."""
    FLOAT = "float64"
    BOOL = "bool"
    """0 or 1."""
    CODE = "code"
    """A string, a binary value or a long decimal as a number that stands for it."""


@cache
def kind_of(type_: Type) -> Kind | None:
    """How values of a type are held; None for types that kernels do not read."""
    if type_.is_exact:
        return Kind.INT
    return _KINDS.get(type_.family)


_KINDS = {
    Family.UNSIGNED: Kind.UNSIGNED,
    Family.FLOAT: Kind.FLOAT,
    Family.BOOLEAN: Kind.BOOL,
    Family.STRING: Kind.CODE,
    Family.BINARY: Kind.CODE,
    Family.DECIMAL: Kind.CODE,
    Family.UNKNOWN: Kind.FLOAT,
}


@dataclass(frozen=True, slots=True)
class MaskTest:
    """A predicate on one event, without the name of a variable, so that equal predicates of several components compare
    equal. The types are those of the attributes it reads, which its own value leaves out."""

    predicate: Expr
    types: tuple[Type, ...]


@dataclass(frozen=True)
class Bit:
    """One bit of the mask: the event has one of the types (or any, if none is given) and passes the tests, each of
    which reads this one event, under the variable name `var`."""

    name: str
    var: str
    types: tuple[str, ...]
    tests: tuple[Expr, ...] = ()

    @cached_property
    def mask_tests(self) -> tuple[MaskTest, ...]:
        return tuple(map(mask_test, self.tests))


def mask_test(test: Expr) -> MaskTest:
    of_one = ex.replaced(test, Attr, lambda node: replace(node, var="", at=ex.At.EVENT))
    return MaskTest(of_one, tuple(node.type for node in ex.walk(of_one) if isinstance(node, Attr)))


@dataclass(frozen=True, slots=True)
class Step:
    """A component of the pattern as an evaluator sees it. `begin` and `take` are numbers of bits in the mask: an event
    can be the component's (first) event, or a further one."""

    var: str
    begin: int
    take: int | None = None
    low: int = 1
    high: int | None = 1
    negated: bool = False

    @property
    def kleene(self) -> bool:
        return self.take is not None


@dataclass(frozen=True)
class Plan:
    """One query, ready to be turned into a kernel."""

    query: Query
    evaluator: str
    steps: tuple[Step, ...]
    """Of each component of a sequence, or of each variable of a tree."""
    bits: tuple[Bit, ...]
    lacks: Mapping[str, tuple[str, ...]]
    """attribute -> the types that lack it, of those that the query's variables can have."""
    lacking: Mapping[str, int]
    """attribute -> the bit of the events whose type lacks it, where a predicate between events needs to know."""
    predicates: tuple[Expr, ...]
    """The conjuncts that read more than one event; equivalence tests spelt out."""
    columns: Mapping[str, Kind]
    key: tuple[str, ...]
    """The partition attributes that every event has."""
    window: int | float | None
    counts_events: bool
    options: Mapping[str, str | bool]
    reasons: tuple[str, ...] = ()
    tree: TreePlan | None = None
    """How the tree evaluator joins."""
    expected: float = math.nan
    """The nanoseconds for each event by the cost model; NaN without statistics."""
    others: tuple[tuple[str, str], ...] = ()
    """The evaluators that could run instead, each with why it lost."""
    types: Mapping[str, Type] = field(default_factory=dict)
    """The type of each column."""
    nulls: Mapping[str, int] = field(default_factory=dict)
    """attribute -> the bit of the events where it is null, of the attributes whose kind has no null value and may be
    null in an event that has a role."""
    derived: Mapping[str, Expr] = field(default_factory=dict)
    """column -> the expression over one event, without a name, that it is computed by."""
    operator_windows: Mapping[Duration, int] | None = None
    """The windows of operators in ticks, where each has its own (CED); then `window` is how long an event matters."""
    core: Pattern | None = None
    """EQL's core operators, each with its predicates; durations are in ticks."""
    grows: tuple[str, ...] = ()
    """What an evaluator retains for ever, where nothing in the query bounds it."""
    composite: frozenset[str] = frozenset()
    """The event types that other queries derive, if the history of their events decides (EQL)."""
    clock: Clock = NO_CLOCK
    """The unit of ticks, for people."""

    def forced(self, options: Options) -> dict[str, str]:
        """The value of each option: as forced, or the default."""
        return {name: str(self.options.get(name, values[0])) for name, values in options.items()}

    @cached_property
    def max_matches(self) -> int | None:
        """The most matches that one event may complete; None: any number."""
        return limits.max_matches(self.options)

    @cached_property
    def most_enumerated(self) -> int | None:
        """The most matches of one event that an evaluator may enumerate: those of a summary, and those that LIMIT
        leaves out, are not retained."""
        return None if self.query.summarizes or self.query.limit is not None else self.max_matches

    @cached_property
    def max_memory(self) -> int | None:
        """The most bytes that the state and the output of a step may have; None: any number."""
        return limits.max_memory(self.options)

    @cached_property
    def has_durations(self) -> bool:
        """Whether events have a start of their own."""
        return START in self.columns

    @cached_property
    def has_histories(self) -> bool:
        """Whether the kernel reads the complete histories of derived events."""
        return HISTORY in self.columns

    @property
    def counts_from_start(self) -> bool:
        """Whether the window is one of time over events with duration, which counts from the earliest start."""
        return self.has_durations and self.window is not None and not self.counts_events

    @property
    def tested(self) -> list[str]:
        """The attributes that the tests of single events read."""
        return list(ex.attributes_in(test for bit in self.bits for test in bit.tests))

    @property
    def read(self) -> list[str]:
        """The attributes of the input that the kernel's columns are made of."""
        own = [name for name in self.columns if name not in self.derived]
        return list(dict.fromkeys([*own, *ex.attributes_in(self.derived.values())]))

    @property
    def attributes(self) -> list[str]:
        """The attributes that masks and kernel read."""
        return [*self.tested, *self.read, *(self.key if self.counts_events else ())]

    @property
    def ends_with_negation(self) -> bool:
        """Whether the absence of later events may decide a match. In a tree plan any negation counts; EQL's exception
        is decided by earlier events."""
        if self.core is not None:
            return False
        if self.tree is not None:
            return bool(negatives(self.query.pattern))
        outer = itertools.takewhile(lambda step: step.negated or step.low == 0, reversed(self.steps))
        return any(step.negated for step in outer)


# --- evaluators -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Lowered:
    """A bound query as evaluators plan it; each is equal to itself alone. Its predicates are sorted: those on one event
    become bits of the mask, the others are left `between` events."""

    query: Query
    pattern: Pattern
    """The pattern in normal form."""
    roles: Mapping[str, Role]
    predicates: tuple[Expr, ...]
    """All of them, equivalence tests spelt out."""
    alone: Mapping[str, Sequence[Expr]]
    """variable -> the tests on its (first) event alone."""
    taken: Mapping[str, Sequence[Expr]]
    """variable of a closure -> the tests on each further event alone."""
    between: tuple[Expr, ...]
    types: Mapping[str, Type]
    """attribute -> its type in the input, if it has one that kernels can read."""
    schema: Schema
    lacks: Mapping[str, tuple[str, ...]]
    """attribute -> the types that lack it, of those that the query's variables can have."""
    window: int | float | None
    """The window in ticks or events, as the query writes it."""
    options: Mapping[str, str | bool]
    clock: Clock = NO_CLOCK
    has_durations: bool = False
    """Whether events have a start of their own, in the column START; their time is their end."""
    composite: frozenset[str] = frozenset()
    """The event types that other queries derive."""
    derived: Mapping[str, Expr] = field(default_factory=dict)
    """The columns that are no attributes of the input -> the expression over one event that each is computed by."""
    operator_windows: Mapping[Duration, int] | None = None
    """The windows of operators in ticks, where each has its own (CED); then `window` is how long an event matters."""

    @cached_property
    def items(self) -> tuple[Pattern, ...]:
        """The components of the sequence; of another pattern, the pattern itself."""
        return self.pattern.items if isinstance(self.pattern, Seq) else (self.pattern,)

    @cached_property
    def attributes(self) -> Mapping[str, None]:
        """The attributes that the predicates between events read, in order."""
        return ex.attributes_in(self.between)

    @property
    def has_closures(self) -> bool:
        return any(isinstance(node, Kleene) for node in walk(self.pattern))

    @property
    def has_strategy(self) -> bool:
        """Whether an event selection strategy chooses the events of a match (SASE+)."""
        return self.query.dialect.selection == RUNS

    @property
    def combines(self) -> bool:
        """Whether every combination of events that satisfies the pattern is a match (SASE, ZStream, CED)."""
        return self.query.dialect.selection in (COMBINATIONS, INTERVALS)

    @cached_property
    def counts_events(self) -> bool:
        return self.query.window is not None and self.query.window.counts_events

    @cached_property
    def summary(self) -> tuple[Expr, ...]:
        """The columns of a summary of all matches, if the query returns one."""
        return tuple(column.expr for column in self.query.output or ()) if self.query.summarizes else ()

    @cached_property
    def key(self) -> tuple[str, ...]:
        """The partition attributes that every event of a match has and shares with the others. An equality that is
        spelt out says nothing about the further events of a closure, nor about anything beside an empty one."""
        tested = {p.name for p in self.query.where if isinstance(p, ex.Same)}
        names = (n for n in partition_attributes(self.query) if n in tested or not self.has_closures)
        known = (n for n in names if n in self.types and n not in self.lacks)
        return tuple(n for n in known if kind_of(self.types[n]) is not None)

    @property
    def has_whole_key(self) -> bool:
        """Whether all events of a match are in one partition."""
        return set(self.key) == set(partition_attributes(self.query))

    def plan(
        self,
        evaluator: str,
        *,
        by_variable: bool = False,
        predicates: Sequence[Expr] | None = None,
        tree: TreePlan | None = None,
        folds: bool = False,
    ) -> Plan:
        """The plan of an evaluator: with a step for each component of the sequence, or `by_variable` one for each
        variable of any pattern, the negated ones last. `predicates` are those left between events, if fewer. A kernel
        that `folds` reads what a summary is of; those of other evaluators find the matches that it is computed from."""
        left = self.between if predicates is None else tuple(predicates)
        summary = self.summary if folds else ()
        tested = self.attributes if left == self.between else ex.attributes_in(left)
        names = [*{**tested, **ex.attributes_in(summary)}]
        names += partition_attributes(self.query) if self.query.non_overlapping else ()
        types = {name: self.types.get(name, UNKNOWN) for name in names}
        if self.has_durations:
            types[START] = INTEGER
        is_own = (left, summary) == (self.between, self.summary)
        required, nullable = self._own_nulls if is_own else self._nulls(left, summary)
        masks = _Masks(self, {attr for attr in required if _is_exact(types[attr.name])})
        steps = tuple(masks.steps_by_variable() if by_variable else masks.steps())
        lacking = [name for name in tested if name in self.lacks]
        return Plan(
            query=self.query,
            evaluator=evaluator,
            steps=steps,
            lacking={name: masks.add(Bit(f"lacks {name}", "", self.lacks[name])) for name in lacking},
            nulls={name: masks.add(self._null_bit(name, types[name])) for name in nullable},
            bits=tuple(masks.bits),
            lacks=self.lacks,
            predicates=left,
            columns={name: kind_of(type_) or Kind.CODE for name, type_ in types.items()},
            types=types,
            key=self.key,
            window=None if self.window is None else _longest(self.window, self.query.dialect.window_includes_bound),
            counts_events=self.counts_events,
            options=self.options,
            tree=tree,
            derived={name: self.derived[name] for name in types if name in self.derived},
            operator_windows=self.operator_windows,
            clock=self.clock,
        )

    def _null_bit(self, name: str, type_: Type) -> Bit:
        value = self.derived.get(name, Attr("", name, type=type_))
        return Bit(f"null {name}", "", (), (ex.IsNull(value, type=BOOLEAN),))

    @property
    def is_sequence(self) -> bool:
        """Whether it is a sequence of events, negations and closures."""
        return all(isinstance(item, EventClass | Neg | Kleene) for item in self.items)

    @property
    def nullable(self) -> Sequence[str]:
        """The attributes that need a bit for null: their kind has no null value, and they may be null in an event that
        has a role."""
        return self._own_nulls[1]

    @cached_property
    def _own_nulls(self) -> tuple[set[Attr], Sequence[str]]:
        return self._nulls(self.between, self.summary)

    def _nulls(self, left: Sequence[Expr], summary: Sequence[Expr]) -> tuple[set[Attr], Sequence[str]]:
        """The attributes that are required and those that are nullable, with these predicates left between events."""
        required, nodes = self._required(left), ex.walk(*left)
        optional: set[str | None] = {node.name for node in nodes if isinstance(node, Attr) and node not in required}
        optional |= {node.name for node in (*nodes, *ex.walk(*summary)) if isinstance(node, ex.Aggregate)}
        names = [name for name in ex.attributes_in([*left, *summary]) if name in optional]
        return required, [name for name in names if _is_exact(self.types.get(name, UNKNOWN))]

    def _required(self, left: Sequence[Expr]) -> set[Attr]:
        """The attributes without which a predicate is false, so that events where they are null have no role. Where a
        strategy chooses events, such an event may be chosen in vain, so it must stay. A predicate that does not apply,
        because something else is missing, requires nothing."""
        chooses = self.has_strategy and self.query.strategy is not Strategy.ANY_MATCH
        if chooses or not (self.combines or self.has_strategy) or any(isinstance(n, Disj) for n in walk(self.pattern)):
            return set()
        required: set[Attr] = set()
        for predicate in left:
            compared = _compared(predicate)
            if not compared or (self.lacks and self.lacks.keys() & ex.attributes_in([predicate])):
                continue
            roles = [self.roles[var] for var in ex.variables(predicate) if var in self.roles]
            negated = {role.event_class.var for role in roles if role.negated}
            if any(role.kleene is not None for role in roles) or len(negated) > 1:
                continue
            # Without the attribute of another event, a negated event does not count, and the other event stays.
            required |= {attr for attr in compared if not negated or attr.var in negated}
        return required


def _compared(predicate: Expr) -> set[Attr]:
    """The attributes of single events that make a predicate false where they are null."""
    match predicate:
        case ex.Compare():
            return _strict(predicate.left) | _strict(predicate.right)
        case ex.In():
            return _strict(predicate.item)
        case _:
            return set()


def _strict(expr: Expr) -> set[Attr]:
    """The attributes of single events that make a value null where they are null."""
    match expr:
        case Attr(at=ex.At.EVENT):
            return {expr}
        case ex.Arithmetic():
            return _strict(expr.left) | _strict(expr.right)
        case ex.Negative():
            return _strict(expr.item)
        case ex.Call() if not FUNCTIONS[expr.fn].null_safe:
            return {attr for arg in expr.args for attr in _strict(arg)}
        case _:
            return set()


def _is_exact(type_: Type) -> bool:
    """Whether every word of the type's kind is a value, so that none is left for null."""
    return kind_of(type_) in (Kind.INT, Kind.UNSIGNED)


class _Masks:
    """The bits of a plan, numbered as steps ask for them."""

    def __init__(self, lowered: Lowered, required: Iterable[Attr]) -> None:
        self.lowered = lowered
        self.required = sorted(required, key=lambda attr: attr.name)
        self.bits: list[Bit] = []

    def add(self, bit: Bit) -> int:
        self.bits.append(bit)
        return len(self.bits) - 1

    def _class(self, event_class: EventClass, tests: Sequence[Expr], edge: str) -> int:
        known = [attr for attr in self.required if attr.var == event_class.var]
        values = [ex.spelt_out(attr, self.lowered.derived) for attr in known]
        not_null = [ex.Not(ex.IsNull(value, type=BOOLEAN), type=BOOLEAN) for value in values]
        return self.add(Bit(f"{event_class.var} {edge}", event_class.var, event_class.types, (*tests, *not_null)))

    def steps(self) -> list[Step]:
        return [step for item in self.lowered.items for step in self._steps_of(item, False)]

    def _steps_of(self, item: Pattern, negated: bool) -> list[Step]:
        lowered = self.lowered
        match item:
            case EventClass():
                return [Step(item.var, self._class(item, lowered.alone[item.var], "begin"), negated=negated)]
            case Kleene():
                var = item.item.var
                begin = self._class(item.item, lowered.alone[var], "begin")
                return [Step(var, begin, self._class(item.item, lowered.taken[var], "take"), item.low, item.high)]
            case Neg():
                return self._steps_of(item.item, True)
            case Disj() if negated:
                return [step for part in item.items for step in self._steps_of(part, True)]
            case _:
                raise AssertionError("not a sequence")

    def steps_by_variable(self) -> list[Step]:
        """Each member of a closure passes the same tests, so both edges have one bit."""
        steps = []
        for var, role in sorted(self.lowered.roles.items(), key=lambda item: item[1].negated):
            bit = self._class(role.event_class, self.lowered.alone[var], "begin")
            if role.kleene is None:
                steps.append(Step(var, bit, negated=role.negated))
            else:
                steps.append(Step(var, bit, bit, role.kleene.low, role.kleene.high))
        return steps


def _longest(window: int | float, includes_bound: bool) -> int:
    """The longest whole number of ticks that fits the window, so that kernels only ever ask `<=`."""
    return math.floor(window) if includes_bound else math.ceil(window) - 1


def not_made_for(query: Query) -> str:
    """The reason of an evaluator that does not implement the query's operators. It is shown only if no evaluator has a
    more specific reason."""
    return f"no compiled evaluator for these operators of {query.dialect.name}"
