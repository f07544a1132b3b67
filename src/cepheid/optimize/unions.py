"""Several queries as one: the union of their patterns, in which equal classes of events have one variable.

The variables of a union belong to all queries that have the same class with the same tests, so one tree plan holds
their events once, and joins that several queries have in common are made once (NEXT §4.4). A variable is shared only
where the predicates between shared variables are those of each query, so that a predicate of the union applies to
exactly the alternatives that bind its variables.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from cepheid import expr as ex
from cepheid.events import Schema
from cepheid.expr import FLIPPED, Aggregate, At, Attr, Compare, Expr, Whole
from cepheid.logic import expanded
from cepheid.optimize.alternatives import Alternative, alternatives
from cepheid.optimize.cost import total_cost
from cepheid.optimize.rules import lean_equalities
from cepheid.optimize.search import Search, Situation, candidates_of
from cepheid.pattern import Disj, Pattern, Query, Role, Seq, map_classes
from cepheid.tree_plan import LeafBuffer, TreeNode, TreePlan, tree_nodes


class Union(NamedTuple):
    """A query whose pattern is the disjunction of those of its members."""

    query: Query
    members: tuple[tuple[str, ...], ...]
    """The variables of the union that the matches of each member bind, in the order of its own."""


Class = tuple[tuple[str, ...], frozenset[Expr]]
"""The types of an event class and the tests on its event alone."""


def united(members: Sequence[tuple[Query, tuple[Expr, ...]]]) -> Union:
    """The union of bound queries of one language with one window, each with its predicates (`spelt_out`)."""
    names = _Names()
    chosen = [names.add(query, where) for query, where in members]
    patterns = tuple(_renamed(query.pattern, own) for (query, _), own in zip(members, chosen, strict=True))
    where = tuple(dict.fromkeys(predicate for known in names.members for predicate in known.where))
    positive = tuple(
        tuple(own[var] for var, role in query.roles.items() if not role.negated)
        for (query, _), own in zip(members, chosen, strict=True)
    )
    first, _ = members[0]
    query = Query(Disj(patterns), first.dialect, where, first.window, first.strategy)
    return Union(query, positive)


def spelt_out(query: Query, schema: Schema) -> tuple[Expr, ...]:
    """The predicates of a query, each written in one way: equal ones compare equal."""
    return tuple(dict.fromkeys(map(_oriented, lean_equalities(query, expanded(query), schema))))


def class_of(var: str, role: Role, where: Sequence[Expr]) -> Class:
    """What decides which events a variable may bind, apart from other events."""
    alone = (p for p in where if ex.variables(p) == {var})
    return role.event_class.types, frozenset(_with_names(p, {var: ""}) for p in alone)


class _Member(NamedTuple):
    variables: frozenset[str]
    where: tuple[Expr, ...]


@dataclass(slots=True)
class _Names:
    """Gives the variables of queries the names of a union."""

    members: list[_Member] = field(default_factory=list)
    of_class: dict[Class, list[str]] = field(default_factory=dict)
    taken: set[str] = field(default_factory=set)

    def add(self, query: Query, where: Sequence[Expr]) -> dict[str, str]:
        between = [(ex.variables(p), p) for p in where if len(ex.variables(p)) > 1]
        names: dict[str, str] = {}
        for var, role in query.roles.items():
            is_single = not role.negated and not role.binds_many
            kind = class_of(var, role, where)
            known = [name for name in self.of_class.get(kind, ()) if name not in names.values()] if is_single else []
            own = set(names.values())
            known.sort(key=lambda name: -max(len(own & m.variables) for m in self.members if name in m.variables))
            names[var] = next((name for name in known if self._agrees({**names, var: name}, between)), "")
            if not names[var]:
                names[var] = self._new(var)
                if is_single:
                    self.of_class.setdefault(kind, []).append(names[var])
        renamed = tuple(_oriented(_with_names(p, names)) for p in where)
        self.members.append(_Member(frozenset(names.values()), renamed))
        return names

    def _agrees(self, names: Mapping[str, str], between: Sequence[tuple[set[str] | frozenset[str], Expr]]) -> bool:
        """Whether each other member has the same predicates between the variables that it shares."""
        own = {_oriented(_with_names(p, names)) for variables, p in between if variables <= names.keys()}
        for member in self.members:
            shared = member.variables & set(names.values())
            if len(shared) > 1:
                theirs = {p for p in member.where if len(ex.variables(p)) > 1 and ex.variables(p) <= shared}
                if theirs != {p for p in own if ex.variables(p) <= shared}:
                    return False
        return True

    def _new(self, var: str) -> str:
        name, number = var, 1
        while name in self.taken:
            number += 1
            name = f"{var}.{number}"
        self.taken.add(name)
        return name


def _renamed(pattern: Pattern, names: Mapping[str, str]) -> Pattern:
    return map_classes(pattern, lambda c: replace(c, var=names[c.var]))


def _with_names(predicate: Expr, names: Mapping[str, str]) -> Expr:
    def change(node: Expr) -> Expr:
        if isinstance(node, Attr | Aggregate | Whole) and node.var in names:
            return replace(node, var=names[node.var])
        return node

    return ex.transform(predicate, change)


def _oriented(predicate: Expr) -> Expr:
    """A comparison with its sides in one order."""
    match predicate:
        case Compare(op=op, left=Attr(at=At.EVENT) as left, right=Attr(at=At.EVENT) as right) if op in FLIPPED:
            if (right.var, right.name) < (left.var, left.name):
                return replace(predicate, op=FLIPPED[op], left=right, right=left)
    return predicate


# --- the plan ---------------------------------------------------------------------------------------------------------


def union_plan(situation: Situation, members: tuple[tuple[str, ...], ...]) -> TreePlan:
    """The cheapest trees of a union, in which an equal join of several trees costs once. From the longest stretches
    that several sequences have in common to the shortest, each is joined on its own where that costs less (§4.4)."""
    found = alternatives(situation.query)
    trees = [
        min(candidates_of(situation, alternative, None, 0), key=lambda candidate: candidate.cost).tree
        for alternative in found
    ]
    cost = cost_of_trees(trees)
    settled: set[int] = set()
    for stretch, owners in _stretches(found):
        using = [number for number in owners if number not in settled]
        if len(using) > 1:
            trial = list(trees)
            for number in using:
                trial[number] = _with_stretch(situation, found[number], stretch)
            if (less := cost_of_trees(trial)) < cost:
                trees, cost = trial, less
                settled.update(using)
    return TreePlan(tuple(trees), cost, members=members)


def cost_of_trees(trees: Sequence[TreeNode]) -> float:
    """The cost of some trees, with equal operators once. A tree that is complete has its own root."""
    inner = {node for tree in trees for node in tree_nodes(tree)[1:] if not isinstance(node, LeafBuffer)}
    known = {node: node.cost for tree in trees for node in tree_nodes(tree)[1:]}
    return sum(known[node] for node in inner) + sum(tree.cost for tree in trees if not isinstance(tree, LeafBuffer))


def cost_apart(trees: Sequence[TreeNode]) -> float:
    return sum(map(total_cost, trees))


def shared_joins(plan: TreePlan) -> dict[TreeNode, list[int]]:
    """The operators that several trees have in common, the largest of each, with the numbers of the trees."""
    owners: dict[TreeNode, list[int]] = {}
    for number, tree in enumerate(plan.trees):
        for node in dict.fromkeys(tree_nodes(tree)[1:]):
            if not isinstance(node, LeafBuffer):
                owners.setdefault(node, []).append(number)
    several = {node: numbers for node, numbers in owners.items() if len(numbers) > 1}
    inside = {
        inner for node, numbers in several.items() for inner in tree_nodes(node)[1:] if several.get(inner) == numbers
    }
    return {node: numbers for node, numbers in several.items() if node not in inside}


def _stretches(found: Sequence[Alternative]) -> list[tuple[tuple[Pattern, ...], list[int]]]:
    """The successive operands that several sequences have in common, the longest and most common first."""
    owners: dict[tuple[Pattern, ...], list[int]] = {}
    for number, alternative in enumerate(found):
        items = alternative.operands.items if isinstance(alternative.operands, Seq) else ()
        for size in range(2, len(items)):
            for at in range(len(items) - size + 1):
                owners.setdefault(items[at : at + size], []).append(number)
    several = [(stretch, numbers) for stretch, numbers in owners.items() if len(numbers) > 1]
    return sorted(several, key=lambda one: (-len(one[0]), -len(one[1])))


def _with_stretch(situation: Situation, alternative: Alternative, stretch: tuple[Pattern, ...]) -> TreeNode:
    """The best tree that joins a stretch of a sequence on its own. Negations and closures stay on top: what they lie
    between may be inside it."""
    sequence = alternative.operands
    assert isinstance(sequence, Seq)
    items, size = sequence.items, len(stretch)
    at = next(at for at in range(len(items)) if items[at : at + size] == stretch)
    nested = replace(sequence, items=(*items[:at], replace(sequence, items=stretch), *items[at + size :]))
    model = situation.model(alternative)
    search = Search(model, replace(alternative, operands=nested), [], [], None)
    return model.annotated(search.complete(search.by_root_split(1)[0].tree))
