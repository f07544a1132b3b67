"""The pattern algebra and Query: one frozen value that every language produces.

`check` tests the invariants of a Query and needs no data. `bind` resolves its names and types against a schema.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property
from typing import NamedTuple, TypeVar

from cepheid.dialect import COMBINATIONS, RUNS, Dialect
from cepheid.errors import Span
from cepheid.events import Duration
from cepheid.expr import Aggregate, Attr, Compare, Const, Expr, OccursWithin, Over, Param, Same, replaced, substitute
from cepheid.expr import walk as walk_expression
from cepheid.parameters import number, with_amount
from cepheid.types import Type

T = TypeVar("T")

# --- the algebra ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Pattern:
    """A node. Its position in the text (`span`) is not part of its value."""

    span: Span | None = field(default=None, compare=False, repr=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class EventClass(Pattern):
    """The events that a variable may bind: those of the types (SASE's ANY if several), or all events if there are none.

    `by_name` is ZStream's naming: if the input has a type with the name of the variable, the class is that type,
    otherwise the whole stream (ruling 8). `bind` resolves it."""

    var: str
    types: tuple[str, ...] = ()
    by_name: bool = False


@dataclass(frozen=True, slots=True)
class OfOne(Pattern):
    item: Pattern


@dataclass(frozen=True, slots=True)
class OfMany(Pattern):
    items: tuple[Pattern, ...]


@dataclass(frozen=True, slots=True)
class OfManyInTime(OfMany):
    """Only CED's operators have windows of their own."""

    window: Duration | None = None


class Seq(OfManyInTime):
    """One after the other."""


class Conj(OfManyInTime):
    """All of them, in any order."""


class Disj(OfMany):
    """Any of them; NEXT's union."""


class Neg(OfOne):
    """None of these, in the interval that the neighbours (and the window) leave."""


@dataclass(frozen=True, slots=True)
class Kleene(Pattern):
    """`low` to `high` events of a class (`high` None: no limit): + is 1.., * is 0.., ^n is n..n."""

    item: EventClass
    low: int = 1
    high: int | None = None


@dataclass(frozen=True, slots=True)
class Filtered(OfOne):
    """NEXT's filter E_θ."""

    keep: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Next(Pattern):
    """NEXT's `E1; E2_{φ,θ}`: the immediate successor that satisfies φ (`skip`), if it satisfies θ (`keep`)."""

    left: Pattern
    right: Pattern
    skip: tuple[Expr, ...] = ()
    keep: tuple[Expr, ...] = ()


@dataclass(frozen=True, slots=True)
class Iteration(OfOne):
    """NEXT's `E+_{φ,θ}`: one or more successors of one another."""

    skip: tuple[Expr, ...] = ()
    keep: tuple[Expr, ...] = ()


@dataclass(frozen=True, slots=True)
class Unless(OfOne):
    r"""NEXT's exception `E1 \ E2_λ`: E1, but not if an E2 that satisfies λ (`when`) occurs while it is detected."""

    cancel: Pattern
    when: tuple[Expr, ...] = ()


@dataclass(frozen=True, slots=True)
class Timer(OfOne):
    """NEXT's `E @ time`: the point in time a while after E."""

    delay: Duration


# --- queries ----------------------------------------------------------------------------------------------------------


class Strategy(Enum):
    """SASE+'s event selection strategies; a query of another language selects as its language does."""

    STRICT = "strict_contiguity"
    PARTITION = "partition_contiguity"
    NEXT_MATCH = "skip_till_next_match"
    ANY_MATCH = "skip_till_any_match"


class Column(NamedTuple):
    """One column of the output; `name` is its text unless the query names it."""

    name: str
    expr: Expr


@dataclass(frozen=True, slots=True)
class Stream:
    """A declared stream, and the position of its name in the text."""

    name: str
    span: Span | None = field(default=None, compare=False, repr=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class SourceStream(Stream):
    """A declared source (CED's `source`, EQL's stream definition): a type of the input and its schema."""

    attributes: tuple[tuple[str, Type], ...]


@dataclass(frozen=True, slots=True)
class DerivedStream(Stream):
    """CED's `primitive`: one event for each event of a source, with attributes computed from it."""

    source: str
    alias: str
    columns: tuple[Column, ...]


@dataclass(frozen=True, slots=True)
class Threshold:
    """A condition on a count or a sum over events of the last while (CED §6.5). The query binds one event, and its
    output has the attributes by which events are grouped."""

    fn: str
    """count or sum."""
    of: Expr | None
    """The attribute that is counted or summed; None: events are counted."""
    is_distinct: bool
    window: Duration
    op: str
    amount: int | float | str
    """A number or the name of a parameter."""
    nodes: int | None = None
    """The amount is a percentage of so many nodes; None: it is a number."""

    @property
    def limit(self) -> int | float:
        assert not isinstance(self.amount, str)
        return self.amount if self.nodes is None else self.amount * self.nodes / 100


VALUE = "value"
"""The attribute that holds the count or the sum."""


@dataclass(slots=True)
class Display:
    """How `str` and notebooks show a query. The package of the languages, which is above, sets both."""

    text: Callable[[Query], str] = repr
    page: Callable[[Query], str] = repr


DISPLAY = Display()


@dataclass(frozen=True)
class Query:
    """A pattern, its predicates, its window, its selection strategy and its output. `where` holds the conjuncts.
    `inputs` are the named streams and queries that the pattern may use as event types."""

    pattern: Pattern
    dialect: Dialect
    where: tuple[Expr, ...] = ()
    window: Duration | None = None
    strategy: Strategy = Strategy.ANY_MATCH
    output: tuple[Column, ...] | None = None
    non_overlapping: bool = False
    limit: int | None = None
    name: str | None = None
    inputs: tuple[SourceStream | DerivedStream | Query, ...] = ()
    consumes: bool = False
    """Whether each event is in at most one match (CED §3.3): of the matches in their order, those whose events are in
    none before."""
    threshold: Threshold | None = None
    """With it, the query has no matches of its own: it derives one event at each time at which events of a group occur
    and the condition holds."""

    def __str__(self) -> str:
        """Its text."""
        return DISPLAY.text(self)

    def _repr_html_(self) -> str:
        """Its description, for notebooks."""
        return DISPLAY.page(self)

    @cached_property
    def roles(self) -> Mapping[str, Role]:
        """The role of every variable, in the order of the text."""
        return roles(self.pattern)

    @property
    def may_explode(self) -> bool:
        """Whether the number of matches can grow exponentially with the number of events: every choice of the events of
        a closure is a match, and all are enumerated."""
        chooses = self.dialect.selection == RUNS and self.strategy is Strategy.ANY_MATCH
        has_closure = any(isinstance(node, Kleene) and node.high is None for node in walk(self.pattern))
        return chooses and has_closure and not self.is_folded

    @property
    def is_folded(self) -> bool:
        """Whether the output does not list all matches: it summarizes them, or has only the first ones."""
        return self.limit is not None or self.summarizes

    @cached_property
    def combines_without_window(self) -> bool:
        """Whether every combination of three or more events is a match, however far apart they are, and all are
        enumerated."""
        chooses = self.dialect.selection == RUNS and self.strategy is Strategy.ANY_MATCH
        combines = self.dialect.selection == COMBINATIONS or chooses
        return combines and not self.is_folded and self.window is None and components_of_a_match(self.pattern) > 2

    @cached_property
    def summarizes(self) -> bool:
        """Whether the output is one row about all matches: only aggregates, and not all of them over closures."""
        aggregates = [c.expr for c in self.output or () if isinstance(c.expr, Aggregate)]
        return (
            bool(self.output)
            and len(aggregates) == len(self.output or ())
            and any(a.over is Over.MATCHES for a in aggregates)
            and all(a.over is Over.MATCHES or a.var in self.roles for a in aggregates)
        )


# --- reading a pattern ------------------------------------------------------------------------------------------------


def subpatterns(pattern: Pattern) -> tuple[Pattern, ...]:
    match pattern:
        case OfMany():
            return pattern.items
        case Next():
            return (pattern.left, pattern.right)
        case Unless():
            return (pattern.item, pattern.cancel)
        case OfOne() | Kleene():
            return (pattern.item,)
        case _:
            return ()


def walk(pattern: Pattern) -> list[Pattern]:
    """The pattern and everything under it, top down."""
    found: list[Pattern] = []
    waiting = [pattern]
    while waiting:
        node = waiting.pop()
        found.append(node)
        if not isinstance(node, EventClass):
            waiting.extend(reversed(subpatterns(node)))
    return found


_OPERATORS = {
    Seq: "seq",
    Conj: "and",
    Disj: "or",
    Next: "next",
    Unless: "unless",
    Timer: "timer",
    Iteration: "iteration",
}


def operator_text(pattern: Pattern) -> str:
    """A pattern as errors name it, in any language: `seq(a, and(b, !c))`."""
    items = ", ".join(map(operator_text, subpatterns(pattern)))
    match pattern:
        case EventClass():
            return pattern.var
        case Neg():
            return f"!{items}"
        case Kleene():
            return f"{items}+"
        case Filtered():
            return items
        case _:
            return f"{_OPERATORS[type(pattern)]}({items})"


def with_parents(pattern: Pattern) -> list[tuple[Pattern, Pattern | None]]:
    """The pattern and everything under it, each with what it is right under."""
    return [(pattern, None), *((part, node) for node in walk(pattern) for part in subpatterns(node))]


def with_subpatterns(pattern: Pattern, change: Callable[[Pattern], Pattern]) -> Pattern:
    """A copy with `change` applied to every pattern right under it."""
    match pattern:
        case OfMany():
            return replace(pattern, items=tuple(map(change, pattern.items)))
        case Kleene():
            item = change(pattern.item)
            assert isinstance(item, EventClass)
            return replace(pattern, item=item)
        case Next():
            return replace(pattern, left=change(pattern.left), right=change(pattern.right))
        case Unless():
            return replace(pattern, item=change(pattern.item), cancel=change(pattern.cancel))
        case OfOne():
            return replace(pattern, item=change(pattern.item))
        case _:
            return pattern


def map_classes(pattern: Pattern, change: Callable[[EventClass], Pattern]) -> Pattern:
    """The pattern with every event class replaced by `change(event_class)`."""
    if isinstance(pattern, EventClass):
        return change(pattern)
    return with_subpatterns(pattern, lambda part: map_classes(part, change))


@dataclass(frozen=True, slots=True)
class Role:
    """The role of a variable in its pattern."""

    event_class: EventClass
    negated: bool
    kleene: Kleene | None
    binds_many: bool
    """Whether it binds a list of events: a closure, or a variable in an iteration."""


def roles(pattern: Pattern) -> dict[str, Role]:
    """The role of every variable, in the order of the text."""
    found: dict[str, Role] = {}
    waiting = [(pattern, False, False)]
    while waiting:
        node, negated, iterated = waiting.pop()
        match node:
            case EventClass():
                found[node.var] = Role(node, negated, None, iterated)
            case Kleene():
                found[node.item.var] = Role(node.item, negated, node, True)
            case Neg():
                waiting.append((node.item, True, iterated))
            case Unless():
                waiting += [(node.cancel, True, iterated), (node.item, negated, iterated)]
            case Iteration():
                waiting.append((node.item, negated, True))
            case _:
                waiting.extend((part, negated, iterated) for part in reversed(subpatterns(node)))
    return found


def negated_parts(pattern: Pattern) -> list[tuple[Pattern, ...]]:
    """For each negation, the patterns none of which may occur."""
    items = [node.item for node in walk(pattern) if isinstance(node, Neg)]
    return [item.items if isinstance(item, Disj) else (item,) for item in items]


def always_bound(pattern: Pattern) -> list[str]:
    """The positive variables that every match binds to an event."""
    match pattern:
        case EventClass():
            return [pattern.var]
        case Kleene():
            return [pattern.item.var] if pattern.low > 0 else []
        case Seq() | Conj():
            return [var for item in pattern.items for var in always_bound(item)]
        case _:
            return []


def most_bound(pattern: Pattern, names: Collection[str]) -> int:
    """How many of the variables a match can bind."""
    match pattern:
        case Disj():
            return max(most_bound(item, names) for item in pattern.items)
        case Neg():
            return 0
        case EventClass():
            return int(pattern.var in names)
        case Unless():
            return most_bound(pattern.item, names)
        case _:
            return sum(most_bound(item, names) for item in subpatterns(pattern))


def always_binds_one(pattern: Pattern, names: Collection[str]) -> bool:
    """Whether every match binds one of the variables."""
    match pattern:
        case Disj():
            return all(always_binds_one(item, names) for item in pattern.items)
        case Seq() | Conj():
            return any(always_binds_one(item, names) for item in pattern.items)
        case _:
            return any(var in names for var in always_bound(pattern))


def components_of_a_match(pattern: Pattern) -> int:
    """How many components a match can bind: of a disjunction those of one alternative."""
    match pattern:
        case Seq() | Conj():
            return sum(map(components_of_a_match, pattern.items))
        case Disj():
            return max(map(components_of_a_match, pattern.items))
        case Neg():
            return 0
        case _:
            return 1


def positives(pattern: Pattern) -> list[str]:
    return [var for var, role in roles(pattern).items() if not role.negated]


def negatives(pattern: Pattern) -> list[str]:
    return [var for var, role in roles(pattern).items() if role.negated]


def partition_attributes(query: Query) -> tuple[str, ...]:
    """The attributes that partition the stream, because all components must share their values: those of equivalence
    tests, and those with explicit equalities between all positive components (SASE's Q2 calls the two equivalent)."""
    names = [p.name for p in query.where if isinstance(p, Same)]
    wanted = {var for var, role in query.roles.items() if not role.negated}
    links: dict[str, list[tuple[str, str]]] = {}
    for p in query.where:
        match p:
            case Compare(op="=", left=Attr() as left, right=Attr() as right) if left.name == right.name:
                links.setdefault(left.name, []).append((left.var, right.var))
    for name, pairs in links.items():
        if name not in names and len(wanted) > 1 and connects(pairs, wanted):
            names.append(name)
    return tuple(dict.fromkeys(names))


def connects(pairs: Iterable[tuple[T, T]], wanted: set[T]) -> bool:
    """Whether pairs inside the set lead from each of its members to every other one."""
    inside = [pair for pair in pairs if wanted.issuperset(pair)]
    reached = {next(iter(wanted))}
    while True:
        grown = reached.union(*(pair for pair in inside if reached.intersection(pair)))
        if grown == reached:
            return reached == wanted
        reached = grown


def operator_window(node: Pattern) -> Duration | None:
    """The window of an operator, where operators have one of their own."""
    return node.window if isinstance(node, Seq | Conj) else None


def types_read(stream: Stream | Query) -> set[str]:
    """The event types that a declared stream or an inner query reads."""
    match stream:
        case Query():
            return {name for node in walk(stream.pattern) if isinstance(node, EventClass) for name in node.types}
        case DerivedStream():
            return {stream.source}
        case _:
            return set()


def queries_of(query: Query) -> list[Query]:
    """The query, its inner queries, and theirs."""
    return [query, *(part for item in query.inputs if isinstance(item, Query) for part in queries_of(item))]


def types_named(query: Query) -> list[str]:
    """The event types of the input that a query and its inner queries name; the names of derived streams are none."""
    names: dict[str, None] = {}
    derived: set[str] = set()
    for part in queries_of(query):
        for node in walk(part.pattern):
            if isinstance(node, EventClass):
                names.update(dict.fromkeys(node.types))
        for item in part.inputs:
            if isinstance(item, SourceStream):
                names[item.name] = None
                continue
            derived.add(item.name or "")
            if isinstance(item, DerivedStream):
                names[item.source] = None
    return [name for name in names if name not in derived]


def durations(query: Query) -> list[Duration]:
    """All durations in a query and its inner queries."""
    found: list[Duration | None] = []
    for part in queries_of(query):
        found += [part.window, None if part.threshold is None else part.threshold.window]
        found += [node.delay if isinstance(node, Timer) else operator_window(node) for node in walk(part.pattern)]
        found += [node.duration for node in walk_expression(*part.where) if isinstance(node, OccursWithin)]
    return [duration for duration in found if duration is not None]


def parameters(query: Query) -> list[str]:
    """The names of the parameters of a query and its inner queries."""
    names: dict[str, None] = {}
    for part in queries_of(query):
        columns = [c for item in part.inputs if isinstance(item, DerivedStream) for c in item.columns]
        nodes = walk_expression(*part.where, *(c.expr for c in (*columns, *(part.output or ()))))
        names.update(dict.fromkeys(node.name for node in nodes if isinstance(node, Param)))
        if part.threshold is not None and isinstance(part.threshold.amount, str):
            names[part.threshold.amount] = None
    names.update(dict.fromkeys(d.amount for d in durations(query) if isinstance(d.amount, str)))
    return list(names)


def with_params(query: Query, params: Mapping[str, Const]) -> Query:
    """The query with its parameters replaced by values, its inputs included."""

    def duration(d: Duration) -> Duration:
        return with_amount(d, params)

    def windows(pattern: Pattern) -> Pattern:
        node = with_subpatterns(pattern, windows)
        match node:
            case Seq() | Conj():
                return replace(node, window=node.window and duration(node.window))
            case Timer():
                return replace(node, delay=duration(node.delay))
            case _:
                return node

    def columns(items: tuple[Column, ...]) -> tuple[Column, ...]:
        return tuple(Column(c.name, substitute(c.expr, params)) for c in items)

    def stream(item: SourceStream | DerivedStream | Query) -> SourceStream | DerivedStream | Query:
        match item:
            case Query():
                return with_params(item, params)
            case DerivedStream():
                return replace(item, columns=columns(item.columns))
            case _:
                return item

    def threshold(known: Threshold) -> Threshold:
        given = params.get(known.amount) if isinstance(known.amount, str) else None
        amount = known.amount if given is None else number(str(known.amount), given)
        return replace(known, window=duration(known.window), amount=amount)

    def predicate(test: Expr) -> Expr:
        return replaced(
            substitute(test, params), OccursWithin, lambda node: replace(node, duration=duration(node.duration))
        )

    return replace(
        query,
        pattern=windows(query.pattern),
        threshold=query.threshold and threshold(query.threshold),
        where=tuple(predicate(p) for p in query.where),
        window=query.window and duration(query.window),
        output=None if query.output is None else columns(query.output),
        inputs=tuple(stream(item) for item in query.inputs),
    )
