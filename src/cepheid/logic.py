"""Logic of queries that needs no data: normal forms of patterns, expansion of equivalence tests, the variables that
every match binds, and the edge of an automaton that tests a conjunct.

The optimizer and the evaluators share these. The oracle (`semantics`) does not use them: it tests the definitions
themselves, so that a mistake here shows as a difference from it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import replace

from cepheid import expr as ex
from cepheid.dialect import Closure
from cepheid.expr import Aggregate, At, Attr, Compare, Expr, Over, Same
from cepheid.pattern import Conj, Disj, Kleene, Neg, Pattern, Query, Seq, always_bound, operator_window


def normal_form(pattern: Pattern) -> Pattern:
    """The pattern with nested operators of one kind flattened, and `!B & !C` written `!(B | C)` (ZStream §5.2.1). An
    operator with a window of its own, or inside one, stays: the window compares its operands as they are (CED §2.2)."""
    match pattern:
        case Seq() | Conj() | Disj():
            items: list[Pattern] = []
            for item in map(normal_form, pattern.items):
                if isinstance(item, Seq | Conj | Disj) and type(item) is type(pattern):
                    has_window = operator_window(pattern) is not None or operator_window(item) is not None
                    items.extend([item] if has_window else item.items)
                else:
                    items.append(item)
            if isinstance(pattern, Conj) and all(isinstance(item, Neg) for item in items):
                return Neg(Disj(tuple(item.item for item in items if isinstance(item, Neg))))
            return items[0] if len(items) == 1 else replace(pattern, items=tuple(items))
        case Neg():
            return replace(pattern, item=normal_form(pattern.item))
        case _:
            return pattern


def begins_with_negation(items: Iterable[Pattern]) -> bool:
    """Whether nothing but components that may be empty stands before some negation of a sequence; for the items in
    reverse, after it."""
    outer = itertools.takewhile(
        lambda item: isinstance(item, Neg) or (isinstance(item, Kleene) and item.low == 0), items
    )
    return any(isinstance(item, Neg) for item in outer)


def expanded(query: Query) -> tuple[Expr, ...]:
    """The conjuncts with every equivalence test expanded: every pair of positive components is equal, and each negated
    component equals the positive ones (ruling 5)."""
    result: list[Expr] = []
    for predicate in query.where:
        result.extend(pairs_of(predicate, query) if isinstance(predicate, Same) else [predicate])
    return tuple(result)


def pairs_of(test: Same, query: Query) -> list[Expr]:
    """An equivalence test as equalities of two events each, or of an event and the value."""
    found_roles = query.roles
    in_order = list(found_roles)

    def read(var: str, at: At) -> Attr:
        return Attr(var, test.name, at, span=test.span)

    def one(var: str) -> Attr:
        """The component's event, or the first of its events."""
        return read(var, At.FIRST if found_roles[var].binds_many else At.EVENT)

    def each(var: str) -> list[Attr]:
        """Every event of the component, as its language reads them."""
        if found_roles[var].binds_many and query.dialect.closure is Closure.RUN:
            return [read(var, At.FIRST), read(var, At.CURRENT)]
        return [read(var, At.EVENT)]

    if test.value is not None:
        return [Compare("=", attr, test.value, span=test.span) for var in in_order for attr in each(var)]
    positive = [var for var in in_order if not found_roles[var].negated]
    # An event needs no partner to be in a partition, but with a null key it is in none (ruling 4).
    may_be_alone = len(always_bound(query.pattern)) < 2
    pairs: list[tuple[Attr, Attr]] = [(one(var), one(var)) for var in positive] if may_be_alone else []
    for earlier, later in itertools.combinations(positive, 2):
        if query.dialect.closure is Closure.RUN or not found_roles[earlier].binds_many:
            pairs.extend((attr, one(earlier)) for attr in each(later))
        elif not found_roles[later].binds_many:
            pairs.extend((attr, one(later)) for attr in each(earlier))
        else:
            pairs.append((one(earlier), one(later)))
    for var in positive:
        if found_roles[var].binds_many:
            at = At.CURRENT if query.dialect.closure is Closure.RUN else At.EVENT
            anchor = At.FIRST if query.dialect.closure is Closure.RUN else At.LAST
            pairs.append((read(var, at), read(var, anchor)))
    pairs.extend(
        (read(var, At.EVENT), one(other)) for var in in_order if found_roles[var].negated for other in positive
    )
    return [Compare("=", left, right, span=test.span) for left, right in dict.fromkeys(pairs)]


def last_instantiated(predicate: Expr, order: Mapping[str, int]) -> tuple[int, str]:
    """The component and the edge where a conjunct can be tested. One that reads `a[i]` and the
    whole group is tested at the take, over the group so far: once the run proceeds, there is no current event."""
    instantiated = [node for node in ex.walk(predicate) if isinstance(node, Attr | Aggregate)]
    last = max((order[node.var] for node in instantiated), default=0)
    edges = {_edge(node) for node in instantiated if order[node.var] == last}
    return last, next((edge for edge in ("take", "proceed") if edge in edges), "begin")


def _edge(identifier: Attr | Aggregate) -> str:
    match identifier:
        case Attr(at=At.EVENT | At.FIRST):
            return "begin"
        case Attr(at=At.CURRENT | At.PREVIOUS) | Aggregate(over=Over.BEFORE):
            return "take"
        case _:
            return "proceed"
