"""The invariants of a Query. Checking them needs no data.

Each check raises the first problem with its position, the expected input, and a correction.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from cepheid import expr as ex
from cepheid import pattern as pt
from cepheid.dialect import Closure, Dialect, Windows
from cepheid.errors import NameProblem, PatternProblem, did_you_mean, listing, named_twice
from cepheid.events import EVENTS, NO_CLOCK, OWN_UNIT, Duration
from cepheid.expr import Aggregate, At, Attr, Expr, Over, Whole
from cepheid.functions import FUNCTIONS
from cepheid.inference import unknown_function
from cepheid.pattern import EventClass, Pattern, Query, Role, Threshold, always_bound, negated_parts, subpatterns, walk

NODE = "node"
"""CED's pseudo-source: the context of an event, its node's id and clock (§2.1)."""
EVENT_ID = "event_id"
"""The attribute of CED's base schema that identifies an event: events of one type with the same one are one event."""
NODE_COLUMNS = {"id": "node_id", "loc": "node_loc"}
"""The attributes of `node`, and the columns of its events that hold them. `time` is the time of the event."""

_MEMBER_POSITIONS = (At.CURRENT, At.PREVIOUS)


def check(query: Query, known: Iterable[str] = ()) -> None:
    """Raise if the query breaks an invariant. `known` are the queries that are declared before it."""
    names: set[str] = set()
    for item in query.inputs:
        if item.name in names:
            raise PatternProblem(f"`{item.name}` is declared twice", span=getattr(item, "span", None))
        names.add(item.name or "")
        if isinstance(item, Query):
            check(item, {*known, *names})
            if item.summarizes:
                raise PatternProblem(
                    f"`{item.name}` returns one row about all its matches, which is not a stream of events",
                    expected="an input that returns its events, or columns of each match",
                    hint=f"leave the aggregates over all matches out of the RETURN of `{item.name}`",
                )
    names.update(known)
    _check_pattern(query)
    found = query.roles
    for predicate in query.where:
        nodes = ex.walk(predicate)
        _check_names(nodes, found, query, names)
        _check_predicate(predicate, nodes, found, query)
    _check_output(query, found, names)
    _check_duration(query.window)
    if query.threshold is not None:
        _check_threshold(query, query.threshold)
    if query.limit is not None and query.limit < 0:
        raise PatternProblem("LIMIT must not be negative")


def _check_threshold(query: Query, threshold: Threshold) -> None:
    if not isinstance(query.pattern, EventClass) or any(not isinstance(c.expr, Attr) for c in query.output or ()):
        raise PatternProblem("a count or a sum over the last while is of events of one type, grouped by attributes")
    if threshold.window.counts_events:
        raise PatternProblem(
            "a count over the last events", span=threshold.window.span, expected="a length of time: count(a; 1 min)"
        )
    _check_duration(threshold.window)
    if any(column.name in (pt.VALUE, EVENT_ID) for column in query.output or ()):
        raise PatternProblem(
            f"the events of a count have attributes `{pt.VALUE}` and `{EVENT_ID}` of their own",
            hint="give the attribute another name in a `primitive`",
        )


# --- the pattern ------------------------------------------------------------------------------------------------------


MOST_COMPONENTS = 200
MOST_ALTERNATIVES = 1_000
MOST_REPEATS = 1_000
"""Limits far beyond hand-written queries. They refuse hostile queries that would run forever."""


def _check_size(pattern: Pattern) -> None:
    components = sum(isinstance(node, EventClass) for node in walk(pattern))
    if components > MOST_COMPONENTS:
        raise PatternProblem(
            f"a pattern of {components} components",
            span=pattern.span,
            expected=f"at most {MOST_COMPONENTS}",
            hint="split it into queries that feed one another",
        )
    if _alternatives(pattern) > MOST_ALTERNATIVES:
        raise PatternProblem(
            "the disjunctions multiply to too many alternatives",
            span=pattern.span,
            expected=f"at most {MOST_ALTERNATIVES}",
            hint="split it into queries that feed one another",
        )


def _alternatives(pattern: Pattern) -> int:
    """The number of patterns without disjunction whose union is the pattern."""
    match pattern:
        case pt.Disj():
            return sum(_alternatives(item) for item in pattern.items)
        case pt.Seq() | pt.Conj():
            return math.prod(_alternatives(item) for item in pattern.items)
        case _:
            return 1


_OPERATORS: Mapping[type[Pattern], str] = {
    EventClass: "event class",
    pt.Seq: "sequence",
    pt.Conj: "conjunction",
    pt.Disj: "disjunction",
    pt.Neg: "negation",
    pt.Kleene: "closure",
    pt.Filtered: "filter",
    pt.Next: "successor",
    pt.Iteration: "iteration",
    pt.Unless: "exception",
    pt.Timer: "timer",
}


def _check_pattern(query: Query) -> None:
    _check_size(query.pattern)
    seen: set[str] = set()
    for node in walk(query.pattern):
        if not isinstance(node, query.dialect.operators):
            raise PatternProblem(f"{query.dialect.title} has no {_OPERATORS[type(node)]}", span=node.span)
        if isinstance(node, EventClass):
            if node.var in seen:
                name = ex.name_text(f"{node.var}2")
                typed = f"{ex.name_text(node.var)} {name}" if node.by_name or node.types == (node.var,) else name
                hint = f"give one of them another name: {typed}"
                raise named_twice(f"the variable `{node.var}` is declared", "component", node.span, hint)
            seen.add(node.var)
        if isinstance(node, pt.Seq | pt.Conj):
            _check_duration(node.window)
        if isinstance(node, pt.Timer):
            _check_duration(node.delay)
        if isinstance(node, pt.Kleene):
            _check_kleene(node, query.dialect)
    if all(role.negated for role in query.roles.values()):
        raise PatternProblem(
            "the pattern has only negated components",
            span=query.pattern.span,
            expected="at least one event that does occur",
        )
    for node, parent in pt.with_parents(query.pattern):
        _check_negation(node, query, parent)
    if query.dialect.closure is Closure.GROUP and any(role.kleene is not None for role in query.roles.values()):
        _check_closures(query.pattern, False)


def _check_kleene(node: pt.Kleene, dialect: Dialect) -> None:
    if max(node.low, node.high or 0) > MOST_REPEATS:
        raise PatternProblem(
            f"a closure of {max(node.low, node.high or 0)} events", span=node.span, expected=f"at most {MOST_REPEATS}"
        )
    if node.high is not None and (node.high < 1 or node.low > node.high):
        raise PatternProblem(
            f"a closure of {node.low} to {node.high} events",
            span=node.span,
            expected="bounds that fit each other",
            hint=f"the lower bound stands first: {{{node.high},{node.low}}}" if node.high > 0 else None,
        )
    if dialect.closure is Closure.GROUP and node.high is not None and node.low != node.high:
        raise PatternProblem(
            f"{dialect.title} counts closures exactly",
            span=node.span,
            expected="`+`, `*` or `^n`",
            hint="write a single count",
        )


def _is_absent(pattern: Pattern) -> bool:
    """A negation, or ZStream's conjunction of negations `(!B&!C)`."""
    return isinstance(pattern, pt.Neg) or (isinstance(pattern, pt.Conj) and all(_is_absent(i) for i in pattern.items))


def _check_negation(pattern: Pattern, query: Query, parent: Pattern | None) -> None:
    if isinstance(pattern, pt.Neg):
        if not isinstance(parent, pt.Seq | pt.Conj):
            raise PatternProblem(
                "a negation is not allowed here",
                span=pattern.span,
                expected="a negated component beside one that does occur, in a sequence (or a conjunction)",
            )
        if not all(isinstance(n, EventClass | pt.Disj | pt.Seq | pt.Conj) for n in walk(pattern.item)):
            raise PatternProblem(
                "only event types, and operators over event types that occur, can be negated",
                span=pattern.span,
                hint="make the inner pattern a query of its own and negate its name",
            )
    if isinstance(pattern, pt.Seq | pt.Conj):
        absent = [_is_absent(item) for item in pattern.items]
        of_operator = query.dialect.windows is Windows.OPERATOR
        window = pattern.window or (None if of_operator else query.window)
        if all(absent) and not (isinstance(parent, pt.Seq) and isinstance(pattern, pt.Conj)):
            raise PatternProblem(
                "everything here is negated", span=pattern.span, expected="at least one event that does occur"
            )
        first = None if window is not None or all(absent) else _first_at_an_edge(pattern)
        if first is not None:
            where, neighbour = first.where, None if first.neighbour is None else first.neighbour.item.var
            reason = f"`{neighbour}` may be empty, and then nothing bounds the negation: " if neighbour else ""
            raise PatternProblem(
                f"a {where} negation without a window never ends",
                span=first.negation.span or pattern.span,
                expected="a window" if of_operator else "a WITHIN clause",
                hint=f"{reason}write how long the event must stay away, e.g. "
                + ("`; 10)`" if of_operator else "`WITHIN 1 hour`"),
            )


@dataclass(frozen=True, slots=True)
class _Unbounded:
    """A negation that no event needs to bound on one side."""

    where: str
    negation: Pattern
    neighbour: pt.Kleene | None
    """The closure on that side, if there is one, which may be empty."""


def _first_at_an_edge(pattern: pt.Seq | pt.Conj) -> _Unbounded | None:
    if isinstance(pattern, pt.Conj):
        return next((_Unbounded("conjoined", item, None) for item in pattern.items if _is_absent(item)), None)
    for where, items in (("leading", pattern.items), ("trailing", pattern.items[::-1])):
        neighbour = None
        for item in items:
            if _is_absent(item):
                return _Unbounded(where, item, neighbour)
            if not _may_be_empty(item):
                break
            neighbour = next((part for part in walk(item) if isinstance(part, pt.Kleene)), None)
    return None


def _may_be_empty(pattern: Pattern) -> bool:
    """Whether a match may bind no event of the pattern."""
    match pattern:
        case pt.Kleene():
            return pattern.low == 0
        case pt.Disj():
            return any(map(_may_be_empty, pattern.items))
        case pt.Seq() | pt.Conj():
            return all(map(_may_be_empty, pattern.items))
        case _:
            return isinstance(pattern, pt.Neg)


def _check_closures(pattern: Pattern, in_conjunction: bool) -> None:
    """A ZStream closure is a group between two neighbours, so it must be in a sequence, between neighbours that are not
    closures."""
    if isinstance(pattern, pt.Kleene) and in_conjunction:
        raise PatternProblem(
            "a closure cannot be an operand of `&`", span=pattern.span, expected="a closure in a sequence, `A;B+;C`"
        )
    if isinstance(pattern, pt.Seq):
        present = [item for item in pattern.items if not _is_absent(item)]
        for left, right in itertools.pairwise(present):
            if isinstance(left, pt.Kleene) and isinstance(right, pt.Kleene):
                raise PatternProblem(
                    "two closures side by side: where one group ends and the next begins is not determined",
                    span=right.span,
                    expected="an event class between two closures",
                )
    for part in subpatterns(pattern):
        inside = isinstance(pattern, pt.Conj) or (in_conjunction and isinstance(pattern, pt.Disj))
        _check_closures(part, inside)


def _check_duration(duration: Duration | None) -> None:
    if duration is None or isinstance(duration.amount, str):
        return
    if not 0 <= duration.amount < math.inf:
        raise PatternProblem(f"a window of {duration}", span=duration.span, expected="a length of zero or more")
    if duration.unit in (OWN_UNIT, EVENTS):
        NO_CLOCK.ticks(duration)


# --- predicates and columns -------------------------------------------------------------------------------------------


def _of_type(node: Expr, type: str, found: Mapping[str, Role]) -> str | None:
    """The hint for a type in place of its variable, or, if the type is the shorter name, such as `SEQ(x Shelf)`, for
    both in the wrong order."""
    var = next((name for name, role in found.items() if type in role.event_class.types and name != type), None)
    if var is None:
        return None
    if len(type) < len(var):
        return f"the type comes first, then the variable: {var} {type}"
    written = f"{var}.{ex.name_text(node.name)}" if isinstance(node, Attr) else var
    return f"`{type}` is a type, and its variable is `{var}`: write {written}"


def _check_names(nodes: Iterable[Expr], found: Mapping[str, Role], query: Query, known: Collection[str]) -> None:
    for node in nodes:
        for var in _named(node):
            if var not in found and not (var == NODE and query.dialect.has_nodes):
                raise NameProblem(
                    f"unknown variable `{var}`",
                    span=node.span,
                    expected=f"a variable of the pattern: {listing(found)}",
                    hint=_of_type(node, var, found) or did_you_mean(var, found),
                )
        if isinstance(node, ex.Same | ex.Filter | ex.OccursWithin) and not isinstance(node, query.dialect.conditions):
            raise PatternProblem(
                f"{query.dialect.title} has no condition such as `{ex.to_text(node)}`",
                span=node.span,
                hint="write FILTER(a.x = b.x)" if ex.Filter in query.dialect.conditions else None,
            )
        if isinstance(node, ex.Call | Aggregate) and node.fn not in (*FUNCTIONS, *ex.AGGREGATES):
            raise unknown_function(node)
        if isinstance(node, Attr):
            _check_position(node, found.get(node.var), query)
        if isinstance(node, Aggregate) and node.over is not Over.MATCHES:
            role = found[node.var]
            named = role.event_class.types or ((node.var,) if role.event_class.by_name else ())
            may_have_closures = named and set(named).issubset(known)
            if role.binds_many or node.name is None or not may_have_closures:
                _check_aggregate(node, role, query)


def _named(node: Expr) -> Iterable[str]:
    match node:
        case Attr() | Whole():
            return (node.var,)
        case Aggregate():
            return () if node.over is Over.MATCHES and node.name is None else (node.var,)
        case ex.OccursWithin():
            return (node.first, node.second)
        case _:
            return ()


def _check_position(node: Attr, role: Role | None, query: Query) -> None:
    if role is None or query.dialect.closure is Closure.ITERATION:
        return
    if node.at is not At.EVENT and not role.binds_many:
        raise PatternProblem(
            f"`{ex.to_text(node)}`: `{node.var}` is one event, not a list",
            span=node.span,
            hint=f"write `{node.var}.{node.name}`",
        )
    if query.dialect.closure is Closure.RUN and role.binds_many and node.at is At.EVENT:
        raise PatternProblem(
            f"`{ex.to_text(node)}`: `{node.var}` is a list of events",
            span=node.span,
            expected=f"`{node.var}[1]`, `{node.var}[i]`, `{node.var}[{node.var}.LEN]` or an aggregate",
            hint=_of_a_list(node),
        )
    if query.dialect.closure is not Closure.RUN and node.at in (*_MEMBER_POSITIONS, At.ALL):
        raise PatternProblem(
            f"`{ex.to_text(node)}` names a position in a run, which {query.dialect.name} does not have",
            span=node.span,
            hint=f"write `{node.var}.{node.name}`, which holds for each member, or an aggregate",
        )


def _of_a_list(node: Attr) -> str:
    """What to write instead of the attribute of a list of events."""
    var = node.var
    if node.name.lower() in ("count", "length", "len", "size"):
        return f"the number of events is {var}.LEN, or count({var})"
    name = ex.name_text(node.name)
    return (
        f"for every event of the list write two conditions, one on {var}[1].{name} (the first) and one on "
        f"{var}[i].{name} (each further one); in RETURN name one of them, or max({var}.{name})"
    )


def _check_aggregate(node: Aggregate, role: Role, query: Query) -> None:
    if not role.binds_many:
        raise PatternProblem(
            f"`{ex.to_text(node)}` aggregates `{node.var}`, which is one event",
            span=node.span,
            expected="an aggregate over a Kleene variable",
            hint=_instead_of_one_event(node),
        )
    if node.over is Over.BEFORE and query.dialect.closure is not Closure.RUN:
        raise PatternProblem(
            f"`{ex.to_text(node)}` names a position in a run, which {query.dialect.name} does not have",
            span=node.span,
            hint="aggregate the whole group",
        )


def _instead_of_one_event(node: Aggregate) -> str:
    if node.name is None:
        return f"give `{node.var}` a closure (+) to count its events; count(*) counts the matches"
    plain = node.name if node.of is not None else f"{node.var}.{ex.name_text(node.name)}"
    closure = f"write {plain}, or give `{node.var}` a closure (+)"
    return f"{closure}; beside count(*), aggregates range over all matches: RETURN count(*), {ex.to_text(node)}"


def _check_predicate(predicate: Expr, nodes: Sequence[Expr], found: Mapping[str, Role], query: Query) -> None:
    names = ex.variables(predicate)
    absent = {var for var in names if var in found and found[var].negated}
    closure = next((var for var, role in found.items() if role.binds_many), None)
    for node in nodes:
        if isinstance(node, Aggregate) and node.over is Over.MATCHES:
            raise PatternProblem(
                f"`{ex.to_text(node)}` counts matches, so it is not allowed in WHERE",
                span=node.span,
                hint=f"the number of events of a closure is {closure}.LEN" if closure is not None else "use RETURN",
            )
    if query.dialect.conditions_belong_to_operators:
        return
    if len(absent) > 1 and not _are_negated_together(query.pattern, absent):
        raise PatternProblem(
            f"`{ex.to_text(predicate)}` names several negated variables: {listing(absent)}",
            span=predicate.span,
            expected="at most one negated variable in a predicate, since none of their events is in the match, or "
            "variables of one negated operator",
        )
    if absent:
        _check_split(predicate, absent)
    members = {
        node.var
        for node in nodes
        if isinstance(node, Attr | Aggregate) and node.var in found
        if (isinstance(node, Attr) and found[node.var].binds_many and _is_member(node, query))
        or (isinstance(node, Aggregate) and node.over is Over.BEFORE)
    }
    many = {var for var in names if var in found and found[var].binds_many}
    if len(members) > 1 or (members and query.dialect.closure is Closure.GROUP and len(many) > 1):
        raise PatternProblem(
            f"`{ex.to_text(predicate)}` compares the members of two closures",
            span=predicate.span,
            expected="members of one closure in a predicate; an aggregate of the other",
        )
    circular = [node for node in nodes if isinstance(node, Aggregate) and node.var in members]
    if circular and query.dialect.closure is Closure.GROUP:
        var = circular[0].var
        raise PatternProblem(
            f"`{ex.to_text(predicate)}` decides which events are members of `{var}` by all of its members",
            span=circular[0].span or predicate.span,
            expected="a condition on each member, or one on aggregates",
            hint=f"compare the members of `{var}` with another class or a constant, or write aggregates on both sides",
        )
    if members and absent:
        raise PatternProblem(
            f"`{ex.to_text(predicate)}` compares a negated event with each member of a closure",
            span=predicate.span,
            hint="compare it with an aggregate, or with the first or last member",
        )
    if members and query.dialect.closure is Closure.RUN:
        order = list(found)
        (var,) = members
        later = [name for name in names if name in found and order.index(name) > order.index(var)]
        if later:
            raise PatternProblem(
                f"`{ex.to_text(predicate)}`: `{var}[i]` is taken before `{later[0]}` is known",
                span=predicate.span,
                hint=f"write `{var}[{var}.LEN]` for the last of `{var}`",
            )


def _are_negated_together(pattern: Pattern, names: set[str]) -> bool:
    """Whether one negated operator binds all these variables: it is a combination of them that must not occur."""
    return any(names <= set(always_bound(part)) for parts in negated_parts(pattern) for part in parts)


def _is_member(node: Attr, query: Query) -> bool:
    """Whether the attribute is read from every member of a closure."""
    return node.at in _MEMBER_POSITIONS or (node.at is At.EVENT and query.dialect.closure is Closure.GROUP)


def _check_split(predicate: Expr, absent: set[str]) -> None:
    """SASE §2.2: the qualification must be P+ ∧ P-, so an OR cannot join a condition on the match with one on an event
    that must not occur."""
    for node in ex.walk(predicate):
        if isinstance(node, ex.Or) and len({bool(ex.variables(item) & absent) for item in node.items}) > 1:
            raise PatternProblem(
                f"`{ex.to_text(node)}` mixes positive and negated variables under OR",
                span=node.span or predicate.span,
                expected=f"the negated {listing(absent)} in every alternative, or in none",
                hint="join the two conditions with AND, or split the query",
            )


def _check_output(query: Query, found: Mapping[str, Role], known: Collection[str]) -> None:
    for item in query.inputs:
        if isinstance(item, pt.DerivedStream):
            for column in item.columns:
                _check_source_names(column.expr, item)
    if query.output is None:
        return
    seen: set[str] = set()
    over_matches = query.summarizes
    for column in query.output:
        if column.name in seen:
            raise PatternProblem(
                f"two columns are called `{column.name}`", span=column.expr.span, hint="rename one with AS"
            )
        seen.add(column.name)
        nodes = ex.walk(column.expr)
        for node in nodes:
            for var in _named(node):
                if var in found and found[var].negated:
                    raise PatternProblem(
                        f"`{var}` is negated: there is no event to return",
                        span=node.span,
                        expected=f"a variable that is bound: {listing(v for v, r in found.items() if not r.negated)}",
                    )
            if (isinstance(node, Attr) and node.at in (*_MEMBER_POSITIONS, At.ALL)) or (
                isinstance(node, Aggregate) and node.over is Over.BEFORE
            ):
                raise PatternProblem(
                    f"`{ex.to_text(node)}` has no meaning once the match is complete",
                    span=node.span,
                    hint="return the variable, its first or last event, or an aggregate",
                )
        try:
            _check_names(nodes, found, query, known)
        except PatternProblem:
            if not over_matches:
                raise


def _check_source_names(expression: Expr, stream: pt.DerivedStream) -> None:
    for node in ex.walk(expression):
        if isinstance(node, Attr) and node.var not in (stream.alias, NODE):
            raise NameProblem(
                f"unknown source `{node.var}`",
                span=node.span,
                expected=f"`{stream.alias}` or `node`",
                hint=did_you_mean(node.var, (stream.alias, NODE)),
            )
