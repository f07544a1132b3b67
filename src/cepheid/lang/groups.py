"""Closures of groups, `(B;C)+`: the group is a query of its own, and the closure is over its matches.

`A;(B;C)+;D WHERE B.k = C.k AND B.v > A.v` is

    G: PATTERN B;C WHERE B.k = C.k
    PATTERN A;G B_C+;D WHERE B_C.B.v > A.v

under the name `(B;C)` for G. Each branch of a disjunction at the top of a group is a query of its own, so a condition
on a variable of one branch does not apply to an occurrence of another. `composed` makes such a query, `written` undoes
it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from cepheid import expr as ex
from cepheid import pattern as pt
from cepheid.errors import PatternProblem
from cepheid.expr import Aggregate, Attr, Expr, Over, Same, Whole
from cepheid.pattern import Column, EventClass, Kleene, Neg, Pattern, Query, roles

_OPENING = "("
"""Begins the name of a group, which no label can have."""


@dataclass(frozen=True, slots=True)
class Repeated(Pattern):
    """A closure of a group, in the parser alone."""

    item: Pattern
    low: int
    high: int | None


def has_groups(pattern: Pattern) -> bool:
    return any(isinstance(node, Repeated) for node in pt.walk(pattern))


# --- from the text ----------------------------------------------------------------------------------------------------


class Group(NamedTuple):
    """A closure of a group and the variable that binds its occurrences."""

    node: Repeated
    var: str
    branches: tuple[Pattern, ...]
    """Without closures of groups inside, which `groups` holds."""
    groups: tuple[Group, ...]
    labels: tuple[str, ...]

    @property
    def kleene(self) -> Kleene:
        event_class = EventClass(self.var, self.labels, span=self.node.item.span)
        return Kleene(event_class, self.node.low, self.node.high, span=self.node.span)

    def path(self, var: str) -> str | None:
        """The attribute of an occurrence that holds the events of a variable: the variable, or that of a group inside
        and the variable; None if the variable is not in the group."""
        if any(var in roles(branch) for branch in self.branches):
            return var
        inner = ((group.var, group.path(var)) for group in self.groups)
        return next((f"{name}.{path}" for name, path in inner if path is not None), None)

    def branch_of(self, var: str) -> int | None:
        """The branch that binds a variable, directly or in a group inside it."""
        inside = {group.var for group in self.groups if group.path(var) is not None}
        found = (n for n, branch in enumerate(self.branches) if roles(branch).keys() & {var, *inside})
        return next(found, None)


class Lifted(NamedTuple):
    """A pattern with the closures of its groups as closures of event classes, and the groups."""

    pattern: Pattern
    groups: tuple[Group, ...] = ()

    @property
    def variables(self) -> dict[str, pt.Role]:
        """The variables of the pattern and of its groups. Each of a group binds many events."""
        found = dict(roles(self.pattern))
        for group in self.groups:
            for branch in group.branches:
                inner = Lifted(branch, group.groups).variables
                found.update({var: replace(role, binds_many=True) for var, role in inner.items()})
        return found


def lifted(pattern: Pattern, text_of: Callable[[Pattern], str]) -> Lifted:
    """The pattern without closures of groups. `text_of` prints a pattern."""
    names = [node.var for node in _classes(pattern)]
    twice = next((node for node in _classes(pattern) if names.count(node.var) > 1), None)
    if twice is not None and has_groups(pattern):
        raise PatternProblem(
            f"the variable `{twice.var}` is declared twice",
            span=twice.span,
            expected="a name of its own for each component, also in groups",
            hint=f"give one of them another name, e.g. {twice.var}2",
        )
    taken = set(names)
    found: list[Group] = []

    def replaced(node: Pattern) -> Pattern:
        match node:
            case Repeated():
                group = _group(node, taken, text_of)
                found.append(group)
                return group.kleene
            case Neg(item=Repeated(item=group_pattern)):
                raise PatternProblem(
                    "a closure cannot be negated",
                    span=node.span,
                    expected="a group that must not occur",
                    hint=f"without the closure: !({text_of(group_pattern)})",
                )
            case _:
                return pt.with_subpatterns(node, replaced)

    return Lifted(replaced(pattern) if has_groups(pattern) else pattern, tuple(found))


def _classes(pattern: Pattern) -> Iterator[EventClass]:
    for node in pt.walk(pattern):
        if isinstance(node, EventClass):
            yield node
        elif isinstance(node, Repeated):
            yield from _classes(node.item)


def _group(node: Repeated, taken: set[str], text_of: Callable[[Pattern], str]) -> Group:
    base = "_".join(event_class.var for event_class in _classes(node.item))
    var, count = base, 1
    while var in taken:
        count += 1
        var = f"{base}_{count}"
    taken.add(var)
    branches = node.item.items if isinstance(node.item, pt.Disj) else (node.item,)
    inner = [lifted(branch, text_of) for branch in branches]
    groups = tuple(group for one in inner for group in one.groups)
    taken |= {group.var for group in groups}
    labels = tuple(f"{_OPENING}{text_of(branch)})" for branch in branches)
    return Group(node, var, tuple(one.pattern for one in inner), groups, labels)


def composed(query: Query, groups: Sequence[Group]) -> Query:
    """The query over its groups: their queries as inputs, each with the conditions that belong to it."""
    if not groups:
        return query
    if query.window is not None and query.window.counts_events:
        raise PatternProblem(
            "a closure of a group in a window that counts events",
            span=query.window.span,
            expected="a window of time, such as WITHIN 10 minutes",
        )
    tests = tuple(p for p in query.where if isinstance(p, Same))
    own: list[Expr] = []
    local: dict[str, list[Expr]] = {label: [] for group in groups for label in group.labels}
    for predicate in query.where:
        label = None if isinstance(predicate, Same) else _owner(predicate, groups)
        (own if label is None else local[label]).append(predicate)
    inputs = tuple(
        composed(
            replace(query, pattern=branch, where=(*local[label], *tests), output=None, limit=None, name=label),
            [inner for inner in group.groups if inner.var in roles(branch)],
        )
        for group in groups
        for label, branch in zip(group.labels, group.branches, strict=True)
    )
    output = query.output and tuple(Column(c.name, _outside(c.expr, groups)) for c in query.output)
    where = tuple(_outside(predicate, groups) for predicate in own)
    return replace(query, where=where, output=output, inputs=(*query.inputs, *inputs))


def _owner(predicate: Expr, groups: Sequence[Group]) -> str | None:
    """The branch that a condition belongs to: the smallest one that binds all its variables, if each of its aggregates
    ranges over a closure inside it."""
    names = ex.variables(predicate)
    for group in groups:
        if not names or any(group.path(var) is None for var in names):
            continue
        branches = {group.branch_of(var) for var in names}
        if len(branches) > 1:
            raise PatternProblem(
                f"`{ex.to_text(predicate)}` compares events of two branches of a group, of which each occurrence has "
                "one",
                span=predicate.span,
                expected="variables of one branch",
            )
        index = branches.pop()
        assert index is not None
        inside = Lifted(group.branches[index], group.groups).variables
        over = [node for node in ex.walk(predicate) if isinstance(node, Aggregate) or _is_position(node)]
        if all(inside[node.var].binds_many for node in over if isinstance(node, Aggregate | Attr)):
            return group.labels[index]
    return None


def _is_position(node: Expr) -> bool:
    return isinstance(node, Attr) and node.at is not ex.At.EVENT


def _outside(expr: Expr, groups: Sequence[Group]) -> Expr:
    """The expression with the attributes of a group's variables as attributes of its occurrences."""
    owners = {var: group for group in groups for var in ex.variables(expr) if group.path(var) is not None}
    if len({group.var for group in owners.values()}) > 1 and any(isinstance(node, Attr) for node in ex.walk(expr)):
        raise PatternProblem(
            f"`{ex.to_text(expr)}` compares the occurrences of two groups",
            span=expr.span,
            expected="occurrences of one group in a condition; an aggregate of the other",
        )

    def change(node: Expr) -> Expr:
        match node:
            case Attr() if node.var in owners:
                group = owners[node.var]
                _require_bound(node, node.var, group)
                return replace(node, var=group.var, name=f"{node.var}.{node.name}")
            case Aggregate() if node.var in owners and node.over is not Over.MATCHES:
                group = owners[node.var]
                path = group.path(node.var)
                if node.of is not None:
                    return replace(node, var=group.var)
                if node.name is not None:
                    return replace(node, var=group.var, name=f"{path}.{node.name}")
                return _count(node, group)
            case Whole() if node.var in owners:
                group = owners[node.var]
                raise PatternProblem(
                    f"`{node.var}` is one event of each occurrence of a group",
                    span=node.span,
                    expected=f"an aggregate over it, or all occurrences: RETURN {ex.name_text(group.var)}",
                )
            case _:
                return node

    return ex.transform(expr, change)


def _require_bound(node: Attr, var: str, group: Group) -> None:
    """An occurrence has the attribute if each one of the branch binds the variable to one event."""
    for branch in group.branches:
        role = roles(branch).get(var)
        if role is not None and not role.negated and not role.binds_many and var in pt.always_bound(branch):
            return
    raise PatternProblem(
        f"`{ex.to_text(node)}`: not every occurrence of the group has one `{var}`",
        span=node.span,
        expected="a variable that each occurrence binds to one event, an aggregate, or a condition inside the group",
        hint="write the branches of a disjunction outermost: ((B;D)|(C;E))+",
    )


def _count(node: Aggregate, group: Group) -> Expr:
    """`count(B)`: the occurrences, or the events of closures inside them."""
    path = group.path(node.var) or ""
    if "." in path:
        return replace(node, var=group.var, name=path.rpartition(".")[0])
    if any(role.binds_many for branch in group.branches for var, role in roles(branch).items() if var == node.var):
        return replace(node, var=group.var, name=path)
    if len(group.branches) == 1 and node.var in pt.always_bound(group.branches[0]):
        return replace(node, var=group.var)
    raise PatternProblem(
        f"`{ex.to_text(node)}`: not every occurrence of the group has a `{node.var}`",
        span=node.span,
        expected=f"count({ex.name_text(group.var)}), which counts the occurrences",
        hint=f"count the values of an attribute that is never null: count({ex.name_text(node.var)}.x)",
    )


# --- to the text ------------------------------------------------------------------------------------------------------


def is_group(item: object) -> bool:
    """Whether an input is a group of the query that uses it, written in place."""
    return isinstance(item, Query) and (item.name or "").startswith(_OPENING)


@dataclass(frozen=True, slots=True)
class Written:
    """A query as it is written: groups in their places, and their conditions beside those of the query."""

    query: Query
    groups: Mapping[str, Query] = field(default_factory=dict)
    """Label -> query."""

    def branches(self, closure: Kleene) -> list[Query]:
        """The queries of a closure's group; none if it is over an event class."""
        return [self.groups[name] for name in closure.item.types if name in self.groups]


def written(query: Query) -> Written:
    """The query with the conditions of its groups and the names of their variables, as the text has them."""
    groups = {item.name or "": item for item in query.inputs if isinstance(item, Query) and is_group(item)}
    if not groups:
        return Written(query)
    variables = {
        closure.item.var: {var for name in closure.item.types if name in groups for var in groups[name].roles}
        for closure in pt.walk(query.pattern)
        if isinstance(closure, Kleene)
    }

    def change(node: Expr) -> Expr:
        if not isinstance(node, Attr | Aggregate) or node.name is None:
            return node
        if isinstance(node, Aggregate) and node.of is not None:
            return replace(node, var=min(ex.variables(node.of.value)))
        first, _, rest = node.name.partition(".")
        return replace(node, var=first, name=rest) if rest and first in variables.get(node.var, ()) else node

    def inner(queries: Iterable[Query]) -> Iterator[Expr]:
        for item in queries:
            yield from (p for p in written(item).query.where if not isinstance(p, Same))

    where = (*inner(groups.values()), *(ex.transform(p, change) for p in query.where))
    output = query.output and tuple(Column(c.name, ex.transform(c.expr, change)) for c in query.output)
    return Written(replace(query, where=where, output=output), groups)
